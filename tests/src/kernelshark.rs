//! KernelShark: its window, on a display of Xvfb, and the library below it.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::binaries::tool;
use crate::harness::{program, run, wait_for};

/// Prints each record that KernelShark's library loads: time, CPU, thread, event, thread's name, text.
const ROWS: &str = r#"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <libkshark.h>

int main(int argc, char **argv)
{
    struct kshark_context *context = NULL;
    if (argc != 2 || !kshark_instance(&context))
        return 2;
    int stream = kshark_open(context, argv[1]);
    if (stream < 0) {
        fprintf(stderr, "kshark_open: %d\n", stream);
        return 1;
    }
    struct kshark_entry **rows = NULL;
    ssize_t count = kshark_load_entries(context, stream, &rows);
    for (ssize_t n = 0; n < count; n++) {
        char *event = kshark_get_event_name(rows[n]);
        char *task = kshark_get_task(rows[n]), *info = kshark_get_info(rows[n]);
        printf("%" PRIi64 "\t%d\t%d\t%s\t%s\t%s\n", rows[n]->ts, rows[n]->cpu,
               (int)rows[n]->pid, event, task, info);
        free(event); free(task); free(info);
    }
    return count < 0;
}
"#;

/// A record as the library has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// Time in nanoseconds.
    pub time: u64,
    /// The CPU.
    pub cpu: u32,
    /// The thread, and what KernelShark calls it.
    pub pid: i64,
    /// `SYSTEM/EVENT`.
    pub event: String,
    /// The thread's name.
    pub task: String,
    /// The text of the fields.
    pub info: String,
}

/// All records of a file, in the order of the library.
#[track_caller]
pub fn rows(file: &Path, dir: &Path) -> Vec<Row> {
    let source = dir.join("rows.c");
    fs::write(&source, ROWS).unwrap();
    tool(dir, "cc", &["-O1", "-I/usr/include/kernelshark", "-o", "rows", "rows.c", "-lkshark"]);
    let out = run(program(dir, dir.join("rows").to_str().unwrap(), [""; 0]).arg(file)).expect(0).out;
    out.lines().filter_map(row).collect()
}

/// A line that is a record: the library says things of its own, too.
fn row(line: &str) -> Option<Row> {
    let columns: Vec<&str> = line.splitn(6, '\t').collect();
    let [time, cpu, pid, event, task, info] = columns[..] else { return None };
    Some(Row {
        time: time.parse().expect(line),
        cpu: cpu.parse().expect(line),
        pid: pid.parse().expect(line),
        event: event.to_owned(),
        task: task.to_owned(),
        info: info.to_owned(),
    })
}

/// The window, on a display of its own. It runs as `nobody`: as root it would ask first.
#[derive(Debug)]
pub struct Window {
    server: Child,
    viewer: Child,
    display: String,
    title: String,
    id: String,
    log: PathBuf,
}

impl Window {
    /// Opens a file, which is copied to where `nobody` can read it, and waits for the window.
    #[track_caller]
    pub fn open(file: &Path, dir: &Path, args: &[&str]) -> Self {
        let home = dir.join("nobody");
        fs::create_dir(&home).unwrap();
        for directory in [dir, &home] {
            fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
        }
        let name = file.file_name().unwrap().to_str().unwrap();
        fs::copy(file, home.join(name)).unwrap();
        fs::set_permissions(home.join(name), Permissions::from_mode(0o644)).unwrap();
        run(&mut program(dir, "chown", ["-R", "nobody:nogroup", home.to_str().unwrap()])).expect(0);
        // It chooses a display that is free, and tells which. It stays as it is when its last client leaves:
        // a server that resets itself then drops who connects meanwhile, such as the viewer beside
        // `xdotool`.
        let mut server = Command::new("Xvfb")
            .args(["-displayfd", "1", "-screen", "0", "1500x900x24", "-nolisten", "tcp", "-noreset"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("Xvfb");
        let mut number = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut number).unwrap();
        let display = format!(":{}", number.trim());
        let log = dir.join("kernelshark.log");
        let said = fs::File::create(&log).unwrap();
        let user = ["--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "kernelshark"];
        let viewer = Command::new("setpriv")
            .args(user)
            .args(args)
            .args(["-i", name])
            .current_dir(&home)
            .env("DISPLAY", &display)
            .env("HOME", &home)
            .env("XDG_RUNTIME_DIR", &home)
            .env("LIBGL_ALWAYS_SOFTWARE", "1")
            .stdout(said.try_clone().unwrap())
            .stderr(said)
            .spawn()
            .expect("setpriv");
        let title = format!("Kernel Shark ({name})");
        let mut window = Self { server, viewer, display, title, id: String::new(), log };
        window.id = wait_for("KernelShark's window", || window.find());
        window
    }

    /// Has the window take the whole display.
    fn enlarge(&self) {
        self.xdotool(&["windowmove", &self.id, "0", "0"]);
        self.xdotool(&["windowsize", &self.id, "1500", "900"]);
    }

    fn xdotool(&self, args: &[&str]) -> String {
        let mut command = program("/".as_ref(), "xdotool", args);
        run(command.env("DISPLAY", &self.display)).out
    }

    /// The window, once its title says that the file is loaded.
    fn find(&mut self) -> Option<String> {
        let ended = self.viewer.try_wait().unwrap();
        assert!(ended.is_none(), "{ended:?}: {}", fs::read_to_string(&self.log).unwrap());
        let found = self.xdotool(&["search", "--onlyvisible", "--name", "Kernel Shark"]);
        let id = found.lines().next()?;
        (self.xdotool(&["getwindowname", id]).trim_end() == self.title).then(|| id.to_owned())
    }

    /// A picture of the display, when it has stopped changing, is all of the window, and has these numbers of
    /// colours at least in parts of it.
    #[track_caller]
    pub fn picture(&self, to: &Path, least: &[(&str, usize)]) {
        let mut last = Vec::new();
        self.enlarge();
        wait_for("a picture that stays", || {
            run(program("/".as_ref(), "import", ["-window", "root", "-display", &self.display]).arg(to))
                .expect(0);
            let whole = colours(to, "20x20+1470+400") > 1;
            let is_drawn = least.iter().all(|&(part, least)| colours(to, part) >= least);
            let picture = pixels(to);
            let same = picture == last;
            last = picture;
            if !whole {
                // A window that lays itself out for the first time takes another size after it was given one.
                self.enlarge();
            }
            // The window draws when its events come: it gets a moment between two looks.
            std::thread::sleep(std::time::Duration::from_millis(300));
            (same && whole && is_drawn).then_some(())
        });
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        for child in [&mut self.viewer, &mut self.server] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What is in a picture, without the time at which it was made.
fn pixels(picture: &Path) -> Vec<u8> {
    let hash = run(program("/".as_ref(), "identify", ["-format", "%#"]).arg(picture)).expect(0);
    hash.out.into_bytes()
}

/// How many colours a part of a picture has.
fn colours(picture: &Path, part: &str) -> usize {
    let args = ["-crop", part, "+repage", "-format", "%k", "info:"];
    let told = run(program("/".as_ref(), "convert", [picture.to_str().unwrap()]).args(args)).expect(0);
    told.out.trim().parse().expect(&told.out)
}
