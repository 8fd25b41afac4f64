//! Names of files as processes have them that are elsewhere: below another root directory, in another mount
//! namespace, or with files that were removed or replaced.

use std::{
    ffi::CString,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

use integration_tests::{
    binaries::tool,
    harness::{Ended, Marked, agent, run},
    trace_cmd,
};

/// Calls `ping(n)` of its library for each line that it reads, which has the number `n` in it.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int ping(int n);
__attribute__((noinline)) int turn(int n) { int sum = 0; while (n--) sum += ping(n); return sum; }
int main(void)
{
    char line[64];
    int sum = 0;
    setvbuf(stdout, 0, _IOLBF, 0);
    puts("ready");
    while (fgets(line, sizeof line, stdin)) { sum += turn(atoi(line)); puts("done"); }
    return sum == 1;
}
"#;

/// With a constant in it that makes another file of another version, and a marker with one argument in
/// version 1 and two in version 2. It calls `getppid` from a function that has a frame, since it calls
/// another, and not from one of libc's without, which would hide its caller.
fn library(version: u32) -> String {
    let marker = match version {
        1 => "STAP_PROBE1(ping, call, n);",
        2 => "STAP_PROBE2(ping, call, n, n);",
        _ => "",
    };
    format!(
        "#include <unistd.h>\n#include <sys/sdt.h>\n__attribute__((noinline)) int version_{version}(int n)\n\
         {{ long found = getuid(); __asm__ volatile(\"syscall\" : \"=a\"(found) : \"a\"(110L) : \"rcx\", \"r11\", \"memory\"); \
         return (int)found + n + {version}; }}\n\
         __attribute__((noinline)) int ping(int n) {{ int found = version_{version}(n); {marker} __asm__ volatile(\"\"); \
         return found + 1; }}\n"
    )
}

/// A directory with a program, its library `libping.so.1` and all that both need.
struct Root(PathBuf);

impl Root {
    fn new(dir: &Path, name: &str, version: u32) -> Self {
        let root = dir.join(name);
        fs::create_dir_all(root.join("opt/lib")).unwrap();
        fs::write(root.join("ping.c"), library(version)).unwrap();
        fs::write(root.join("main.c"), PROGRAM).unwrap();
        let build = |args: &[&str]| tool(&root, "cc", args);
        let flags = ["-O1", "-fno-omit-frame-pointer", "-Wl,--build-id"];
        let shared = ["-shared", "-fPIC", "-Wl,-soname,libping.so.1", "-o", "opt/lib/libping.so.1", "ping.c"];
        build(&[&flags[..], &shared].concat());
        let program =
            ["-o", "opt/pinger", "main.c", "opt/lib/libping.so.1", "-Wl,-rpath,$ORIGIN/lib:/opt/lib"];
        build(&[&flags[..], &program].concat());
        // What the program loads, at the same paths.
        let listed = Command::new("ldd").arg(root.join("opt/pinger")).output().unwrap();
        for word in String::from_utf8(listed.stdout).unwrap().split_whitespace() {
            let path = Path::new(word);
            if path.is_absolute() && !path.starts_with(&root) {
                let copy = root.join(path.strip_prefix("/").unwrap());
                fs::create_dir_all(copy.parent().unwrap()).unwrap();
                fs::copy(path, copy).unwrap();
            }
        }
        Self(root)
    }

    fn library(&self) -> PathBuf {
        self.0.join("opt/lib/libping.so.1")
    }

    fn program(&self) -> PathBuf {
        self.0.join("opt/pinger")
    }

    /// Starts the program with this as its root directory, in a mount namespace of its own.
    fn start_inside(&self) -> Pinger {
        let root = CString::new(self.0.to_str().unwrap()).unwrap();
        let mut command = Command::new("/opt/pinger");
        // SAFETY: two system calls between fork and exec, on memory that is there before.
        unsafe {
            command.pre_exec(move || {
                let done = libc::unshare(libc::CLONE_NEWNS) == 0 && libc::chroot(root.as_ptr()) == 0;
                if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
            });
        }
        Pinger::start(command.current_dir("/"))
    }

    fn start(&self) -> Pinger {
        Pinger::start(&mut Command::new(self.program()))
    }
}

/// The program, which waits for what it is told.
struct Pinger {
    child: Child,
    stdin: ChildStdin,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Pinger {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut this = Self { stdin: child.stdin.take().unwrap(), child, lines };
        this.expect("ready");
        this
    }

    #[track_caller]
    fn expect(&mut self, line: &str) {
        assert_eq!(self.lines.next().unwrap().unwrap(), line);
    }

    fn ping(&mut self, count: u32) {
        writeln!(self.stdin, "{count}").unwrap();
        self.expect("done");
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Pinger {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const NO_SUCH: i32 = 112;

/// Records these processes with these options, while each calls the library so often as its number says.
/// Gives how the recorder ended, and the report.
#[track_caller]
fn record(dir: &Path, options: &[&str], pingers: &mut [(&mut Pinger, u32)]) -> (Ended, String) {
    let pids: Vec<String> = pingers.iter().map(|(pinger, _)| pinger.pid()).collect();
    let pids = pids.join(",");
    let recording = Marked::start(dir, &[&["-o", "out.dat", "-P", &pids][..], options].concat());
    for (pinger, count) in pingers {
        pinger.ping(*count);
    }
    let ended = recording.finish().expect(0);
    (ended, trace_cmd::report(&dir.join("out.dat"), &[]))
}

fn hits(report: &str) -> usize {
    report.matches(" hit: ").count()
}

#[test]
fn a_name_is_that_of_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path(), "one", 1);
    let mut inside = root.start_inside();
    // By what it is called, by its path there, and by a link there that leads elsewhere here.
    std::os::unix::fs::symlink("/opt/lib/libping.so.1", root.0.join("opt/link")).unwrap();
    for name in ["libping.so.1", "/opt/lib/libping.so.1", "/opt/link"] {
        let probe = format!("hit={name}:ping");
        let (ended, report) = record(dir.path(), &["--uprobe", &probe], &mut [(&mut inside, 5)]);
        assert_eq!(hits(&report), 5, "{name}: {}", ended.err);
        assert!(!ended.err.contains("has mapped"), "{name}: {}", ended.err);
    }
}

#[test]
fn files_of_one_name_in_two_containers_are_one_event() {
    let dir = tempfile::tempdir().unwrap();
    let roots = [Root::new(dir.path(), "one", 1), Root::new(dir.path(), "two", 2)];
    let [mut one, mut two] = roots.each_ref().map(Root::start_inside);
    let mut both = [(&mut one, 3), (&mut two, 4)];
    let probe = "hit=libping.so.1:ping n=$arg1:s32";
    assert_eq!(hits(&record(dir.path(), &["--uprobe", probe], &mut both).1), 7);
    let (ended, report) = record(dir.path(), &["--uprobe", "libping.so.1:version_*"], &mut both);
    for (event, count) in [("version_1", 3), ("version_2", 4)] {
        assert_eq!(report.matches(&format!(" {event}: ")).count(), count, "{event}: {}", ended.err);
    }
    // A function that one of them lacks.
    let (ended, report) = record(dir.path(), &["--uprobe", "hit=libping.so.1:version_2"], &mut both);
    assert_eq!(hits(&report), 4);
    assert!(ended.err.contains("no function version_2"), "{}", ended.err);
}

/// They may be of different versions: one does not keep the others from being recorded.
#[test]
fn markers_of_one_name_are_read_file_by_file() {
    let dir = tempfile::tempdir().unwrap();
    let roots =
        [("one", 1), ("two", 2), ("three", 3)].map(|(name, version)| Root::new(dir.path(), name, version));
    let [mut one, mut two, mut three] = roots.each_ref().map(Root::start_inside);
    let libraries =
        [&two, &three].map(|pinger| format!("/proc/{}/root/opt/lib/libping.so.1: ", pinger.pid()));
    let mut all = [(&mut one, 3), (&mut two, 4), (&mut three, 5)];
    for (probe, event) in [("hit=libping.so.1:ping:call", "hit"), ("libping.so.1:ping:*", "call")] {
        let (ended, report) = record(dir.path(), &["--usdt", probe], &mut all);
        assert_eq!(report.matches(&format!(" {event}: ")).count(), 3, "{probe}: {}", ended.err);
        for library in &libraries {
            assert!(ended.err.contains(library), "{probe}: {library}: {}", ended.err);
        }
        assert!(ended.err.contains("2 arguments here and 1 in"), "{probe}: {}", ended.err);
    }
}

#[test]
fn processes_without_a_file_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path(), "one", 1);
    let (mut pinger, mut other) = (root.start_inside(), Command::new("sleep").arg("1000").spawn().unwrap());
    let pids = format!("{},{}", pinger.pid(), other.id());
    let options = ["-o", "out.dat", "-P", &pids, "--uprobe", "hit=libping.so.1:ping"];
    let recording = Marked::start(dir.path(), &options);
    pinger.ping(5);
    let ended = recording.finish().expect(0);
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(hits(&trace_cmd::report(&dir.path().join("out.dat"), &[])), 5, "{}", ended.err);
    assert!(ended.err.contains(&format!("not recorded in process {}", other.id())), "{}", ended.err);
}

#[test]
fn a_removed_library_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path(), "one", 1);
    let mut pinger = root.start();
    fs::remove_file(root.library()).unwrap();
    let path = root.library();
    for name in ["libping.so.1", path.to_str().unwrap()] {
        let probe = format!("hit={name}:ping");
        let options = ["--uprobe", &probe, "--user-stack", "-e", "syscalls:sys_enter_getppid"];
        let (ended, report) = record(dir.path(), &options, &mut [(&mut pinger, 5)]);
        assert_eq!(hits(&report), 5, "{name}: {}", ended.err);
        for function in ["version_1+0x", "ping+0x", "turn+0x"] {
            assert!(report.contains(function), "{function}: {report}");
        }
    }
}

#[test]
fn a_replaced_library_is_the_one_that_is_mapped() {
    let dir = tempfile::tempdir().unwrap();
    let (root, newer) = (Root::new(dir.path(), "one", 1), Root::new(dir.path(), "two", 2));
    let mut inside = root.start_inside();
    fs::rename(newer.library(), root.library()).unwrap();
    let options =
        ["--uprobe", "hit=libping.so.1:version_1", "--user-stack", "-e", "syscalls:sys_enter_getppid"];
    let (ended, report) = record(dir.path(), &options, &mut [(&mut inside, 5)]);
    assert_eq!(hits(&report), 5, "{}", ended.err);
    assert!(report.contains("version_1+0x") && !report.contains("version_2"), "{report}");
    let args = ["record", "-o", "refused.dat", "-P", &inside.pid(), "--uprobe", "libping.so.1:version_2"];
    run(&mut agent(dir.path(), [&args[..], &["true"]].concat())).expect(NO_SUCH).says(&["did you mean"]);
}

#[test]
fn a_removed_program_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path(), "one", 1);
    let (mut pinger, mut inside) = (root.start(), root.start_inside());
    fs::remove_file(root.program()).unwrap();
    for pinger in [&mut pinger, &mut inside] {
        let (ended, report) = record(dir.path(), &["--uprobe", "hit=pinger:turn"], &mut [(pinger, 5)]);
        assert_eq!(hits(&report), 1, "{}", ended.err);
    }
}

#[test]
fn a_file_that_no_process_maps_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (root, other) = (Root::new(dir.path(), "one", 1), Root::new(dir.path(), "two", 2));
    let mut pinger = root.start();
    let args =
        ["record", "-o", "refused.dat", "-P", &pinger.pid(), "--uprobe", "libabsent.so.9:ping", "true"];
    let told = format!(
        "no process of the recording has mapped a file named libabsent.so.9 (process {})",
        pinger.pid()
    );
    run(&mut agent(dir.path(), args)).expect(NO_SUCH).says(&[&told]);
    assert!(!dir.path().join("refused.dat").exists());
    // It may be loaded later.
    let probe = format!("hit={}:ping", other.library().display());
    let (ended, report) = record(dir.path(), &["--uprobe", &probe], &mut [(&mut pinger, 5)]);
    assert_eq!(hits(&report), 0);
    assert!(ended.err.contains("no process of the recording has mapped /"), "{}", ended.err);
}

/// A mounted overlay, as each container of an image has one.
struct Overlay(PathBuf);

impl Overlay {
    fn mount(dir: &Path, name: &str, lower: &Root) -> Root {
        let [upper, work, merged] = ["upper", "work", "merged"].map(|part| dir.join(name).join(part));
        for part in [&upper, &work, &merged] {
            fs::create_dir_all(part).unwrap();
        }
        let layers = [("lowerdir", &lower.0), ("upperdir", &upper), ("workdir", &work)];
        let layers = layers.map(|(layer, at)| format!("{layer}={}", at.display())).join(",");
        tool(dir, "mount", &["-t", "overlay", "none", "-o", &layers, merged.to_str().unwrap()]);
        Root(merged)
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// The kernel puts a probe into the file below an overlay, so that two would count each call twice.
#[test]
fn a_file_below_two_overlays_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let image = Root::new(dir.path(), "image", 1);
    let roots = ["one", "two"].map(|name| Overlay::mount(dir.path(), name, &image));
    let _mounted = roots.each_ref().map(|root| Overlay(root.0.clone()));
    let [mut one, mut two] = roots.each_ref().map(Root::start_inside);
    let mut both = [(&mut one, 3), (&mut two, 4)];
    let options = ["--uprobe", "hit=libping.so.1:ping", "--user-stack", "-e", "syscalls:sys_enter_getppid"];
    let (ended, report) = record(dir.path(), &options, &mut both);
    assert_eq!(hits(&report), 7, "{}", ended.err);
    assert!(report.contains("version_1+0x"), "{report}");
}
