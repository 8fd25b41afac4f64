//! Markers of programs, which rules of the user domain are about.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use integration_tests::{
    binaries::{Link, tool},
    daemon::Daemon,
    harness::{Report, agent_path, wait_for},
    probe_program,
};
use serde_json::{Value, json};

use super::files;

const CHANNELS: &str = "/v1/sessions/one/domains/user/channels";
const RULES: &str = "/v1/sessions/one/domains/user/channels/ust/rules";

/// Bytes on disk in a directory and those below it.
pub(super) fn bytes_below(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    // What has gone meanwhile has no size.
    let of = |entry: fs::DirEntry| {
        let found = entry.metadata().ok()?;
        Some(if found.is_dir() { bytes_below(&entry.path()) } else { found.blocks() * 512 })
    };
    entries.flatten().filter_map(of).sum()
}

/// A process that has a program mapped, and does nothing.
struct Held(Child);

impl Held {
    fn start(program: &Path) -> Self {
        let mut command = Command::new(program);
        let child = command.args(["-1", "1"]).stdout(Stdio::null()).spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        // Before that it maps what it needs.
        let maps = format!("/proc/{}/maps", child.id());
        let is_mapped =
            || fs::read_to_string(&maps).unwrap().contains(program.to_str().unwrap()).then_some(());
        wait_for("the program", is_mapped);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        let stat = format!("/proc/{}/stat", child.id());
        wait_for("the program to stop", || fs::read_to_string(&stat).unwrap().contains(") T ").then_some(()));
        Self(child)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn run(program: &Path, count: u32) {
    let ended = Command::new(program).args([&count.to_string(), "1"]).stdout(Stdio::null()).status();
    assert!(ended.unwrap().success());
}

/// A session named `one` with a channel of the user domain and rules about markers of these names.
fn session(daemon: &Daemon, dir: &Path, rules: &[&str]) {
    let new = json!({"name": "one", "mode": {"local": {"output": dir}}});
    daemon.tell("POST", "/v1/sessions", Some(&new));
    daemon.tell("POST", CHANNELS, Some(&json!({"name": "ust"})));
    for name in rules {
        daemon.tell("POST", RULES, Some(&rule(name)));
    }
}

fn rule(name: &str) -> Value {
    json!({"name": name, "instrumentation": "tracepoint"})
}

fn switch(daemon: &Daemon, name: &str, on: bool) {
    let changed = daemon.tell("PATCH", RULES, Some(&json!({"name": name, "enabled": on})));
    assert_eq!(changed["rules"], 1, "{name}");
}

/// How many records there are of each marker of these programs. Other tests have programs with the same
/// markers, and the daemon finds all.
fn recorded(dir: &Path, programs: &[&Path]) -> BTreeMap<String, u64> {
    let threads = programs.iter().map(|program| format!("{}-", program.file_name().unwrap().display()));
    let threads: Vec<String> = threads.collect();
    let mut counts = counts(0, 0);
    for file in files(dir) {
        for (marker, count) in &mut counts {
            let needle = format!(" {marker}:");
            let is_meant =
                |line: &str| line.contains(&needle) && threads.iter().any(|thread| line.contains(thread));
            *count += Report::of(&file).count(is_meant);
        }
    }
    counts
}

/// Copies of a program, under names that no other test has.
fn copies<const N: usize>(daemon: &Daemon) -> [PathBuf; N] {
    let program = probe_program::build(daemon.path(), Link::Pie).program;
    std::array::from_fn(|number| {
        let copy = daemon.path().join(format!("m{number}x{}{N}", std::process::id()));
        fs::copy(&program, &copy).unwrap();
        copy
    })
}

fn counts(plain: u64, guarded: u64) -> BTreeMap<String, u64> {
    [("plain".to_owned(), plain), ("guarded".to_owned(), guarded)].into()
}

#[test]
fn a_marker_goes_with_the_last_of_its_rules() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let [program] = copies(&daemon);
    let held = Held::start(&program);
    session(&daemon, &dir, &["probed:*", "probed:plain"]);
    daemon.tell("POST", "/v1/sessions/one/start", None);
    // Its file is known from now on.
    drop(held);
    run(&program, 100);
    switch(&daemon, "probed:*", false);
    run(&program, 200);
    switch(&daemon, "probed:plain", false);
    run(&program, 300);
    switch(&daemon, "probed:*", true);
    run(&program, 400);
    switch(&daemon, "probed:plain", true);
    daemon.tell("DELETE", RULES, Some(&rule("probed:*")));
    run(&program, 500);
    daemon.tell("DELETE", RULES, Some(&rule("probed:plain")));
    run(&program, 600);
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    assert_eq!(files(&dir).len(), 1, "{:?}", files(&dir));
    assert_eq!(recorded(&dir, &[&program]), counts(100 + 200 + 400 + 500, 100 + 400));
}

#[test]
fn programs_with_markers_of_one_name_are_recorded_together() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let [first, second, third] = copies(&daemon);
    let held = [Held::start(&first), Held::start(&second)];
    session(&daemon, &dir, &["probed:*"]);
    daemon.tell("POST", "/v1/sessions/one/start", None);
    run(&first, 100);
    run(&second, 10);
    let late = Held::start(&third);
    // Programs are looked for when rules change, too.
    daemon.tell("POST", RULES, Some(&rule("probed:plain")));
    drop((held, late));
    run(&first, 200);
    run(&third, 20);
    switch(&daemon, "probed:*", false);
    for program in [&first, &second, &third] {
        run(program, 300);
    }
    switch(&daemon, "probed:plain", false);
    for program in [&first, &second, &third] {
        run(program, 400);
    }
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    assert_eq!(files(&dir).len(), 1, "{:?}", files(&dir));
    assert_eq!(recorded(&dir, &[&first, &second, &third]), counts(330 + 900, 330));
}

/// A marker whose argument no program of the kernel can read, and one without such.
const ODD: &str = r"
#include <sys/sdt.h>
#include <stdlib.h>
int main(int count, char **words)
{
    double number = atof(words[1]);
    for (unsigned i = 0; i != (unsigned)atoi(words[1]); i++) {
        STAP_PROBE1(odd, real, number * i);
        STAP_PROBE1(odd, whole, i);
    }
    return count > 100;
}
";

#[test]
fn a_marker_that_cannot_be_recorded_is_told() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let program = daemon.path().join(format!("odd{}", std::process::id()));
    fs::write(daemon.path().join("odd.c"), ODD).unwrap();
    tool(daemon.path(), "gcc", &["-O1", "-o", program.to_str().unwrap(), "odd.c"]);
    session(&daemon, &dir, &["odd:*"]);
    daemon.tell("POST", "/v1/sessions/one/start", None);
    assert_eq!(daemon.tell("GET", "/v1/sessions/one", None).get("notes"), None, "nothing runs yet");
    let held = Held::start(&program);
    let notes = wait_for("the program to be found", || {
        daemon.tell("GET", "/v1/sessions/one", None).get("notes").cloned()
    });
    drop(held);
    let notes: Vec<String> = serde_json::from_value(notes).unwrap();
    let says = |note: &String| note.contains(":odd:real") && note.contains("argument 1 is a floating-point");
    assert!(notes.len() == 1 && says(&notes[0]), "{notes:?}");
    run(&program, 100);
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    // Markers are found when a session is started, too.
    daemon.tell("POST", "/v1/sessions/one/start", None);
    run(&program, 100);
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    let told = daemon.tell("GET", "/v1/sessions/one", None)["notes"].clone();
    assert_eq!(serde_json::from_value::<Vec<String>>(told).unwrap(), notes);
    let named = format!("{}-", program.file_name().unwrap().display());
    let of =
        |file: &PathBuf| Report::of(file).count(|line| line.contains(&named) && line.contains(" whole:"));
    assert_eq!(files(&dir).iter().map(of).sum::<u64>(), 200);
    let listed = Command::new(agent_path())
        .args(["ctl", "list", "one"])
        .env("TRACER_AGENT_SOCKET", daemon.socket())
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains(&format!("\nNotes:\n    {}\n", notes[0])), "{listed}");
}

#[test]
fn rules_of_user_space_wait_for_programs() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let [program] = copies(&daemon);
    session(&daemon, &dir, &[]);
    let rule = json!({"name": "probed:*", "instrumentation": "tracepoint", "exclusions": ["*:guarded"]});
    daemon.tell("POST", RULES, Some(&rule));
    daemon.tell("POST", "/v1/sessions/one/start", None);
    let mut long = Command::new(&program).args(["-1", "1"]).stdout(Stdio::null()).spawn().unwrap();
    wait_for("records of the program", || (bytes_below(&dir) > 4 << 20).then_some(()));
    long.kill().unwrap();
    long.wait().unwrap();
    // Rings are empty before what is counted.
    std::thread::sleep(Duration::from_secs(1));
    run(&program, 100);
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    let own = format!("{}-", program.file_name().unwrap().display());
    let mut threads: BTreeMap<String, u64> = BTreeMap::new();
    for file in files(&dir) {
        for line in &Report::of(&file).events {
            if let Some((head, _)) = line.split_once(" plain:").filter(|(head, _)| head.contains(&own)) {
                let thread = head.split(" [").next().unwrap_or_default();
                *threads.entry(thread.trim().to_owned()).or_default() += 1;
            }
        }
    }
    assert!(
        threads.len() == 2 && threads.values().any(|count| *count == 100),
        "from the first event on: {threads:?}"
    );
    assert_eq!(recorded(&dir, &[&program])["guarded"], 0, "it is excluded");
}

#[test]
fn markers_go_on_with_the_next_daemon() {
    let mut daemon = Daemon::start_supervised();
    let dir = daemon.path().join("out");
    let [program] = copies(&daemon);
    let held = Held::start(&program);
    session(&daemon, &dir, &["probed:*"]);
    daemon.tell("POST", "/v1/sessions/one/start", None);
    drop(held);
    run(&program, 100);
    daemon.replace();
    // Nobody runs the program when the next daemon looks for some, which it does each second.
    std::thread::sleep(Duration::from_millis(2500));
    run(&program, 200);
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    let (expected, found) = (counts(300, 300), recorded(&dir, &[&program]));
    assert_eq!(found["plain"], expected["plain"], "{found:?}");
    assert_eq!(files(&dir).len(), 1, "nothing has taken over");
    daemon.stop().expect(0);
}

#[test]
fn markers_fire_triggers_also_those_of_programs_that_come() {
    let daemon = Daemon::start();
    let [known, later] = copies(&daemon);
    // What has it mapped makes it known. Other tests have programs with the same markers.
    let _held = Held::start(&known);
    for program in [&known, &later] {
        let name = program.file_name().unwrap().to_str().unwrap();
        let rule = json!({"name": "probed:plain", "instrumentation": "tracepoint",
            "filter": format!("$ctx.procname == \"{name}\"")});
        let condition = json!({"event_rule_matches": {"domain": "user", "rule": rule}});
        let new = json!({"name": name, "condition": condition, "actions": [{"do": "notify"}]});
        daemon.tell("POST", "/v1/triggers", Some(&new));
    }
    let fired = |program: &Path| {
        let all = daemon.tell("GET", "/v1/triggers", None);
        let name = program.file_name().unwrap().to_str().unwrap();
        all.as_array().unwrap().iter().find(|of| of["name"] == name).unwrap()["fired"].as_u64().unwrap()
    };
    run(&known, 100);
    wait_for("each of a run", || (fired(&known) == 100).then_some(()));
    assert_eq!(fired(&later), 0);
    let _held = Held::start(&later);
    wait_for("the program to be found", || {
        run(&later, 10);
        (fired(&later) > 0).then_some(())
    });
    assert_eq!(fired(&known), 100);
}

/// A file that no path of the daemon's leads to.
#[test]
fn programs_of_containers_and_removed_ones_are_recorded() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let [program, removed] = copies(&daemon);
    let inside = daemon.path().join("inside");
    fs::create_dir(&inside).unwrap();
    let name = format!("{}c", program.file_name().unwrap().display());
    let contained = inside.join(&name);
    // In a mount namespace of its own, which is a container as far as files are concerned.
    let script = r#"mount -t tmpfs none "$1" && cp "$2" "$3" && exec "$3" -1 1"#;
    let mut container = Command::new("unshare");
    container.args(["-m", "sh", "-c", script, "sh"]).args([&inside, &program, &contained]);
    let mut container = container.stdout(Stdio::null()).spawn().unwrap();
    let mut other = Command::new(&removed).args(["-1", "1"]).stdout(Stdio::null()).spawn().unwrap();
    for (child, name) in [(&container, &name), (&other, &removed.file_name().unwrap().display().to_string())]
    {
        let maps = format!("/proc/{}/maps", child.id());
        let is_mapped = || fs::read_to_string(&maps).is_ok_and(|text| text.contains(name)).then_some(());
        wait_for("the program", is_mapped);
    }
    fs::remove_file(&removed).unwrap();
    session(&daemon, &dir, &["probed:*"]);
    // One of them may have no CPU for a while.
    wait_for("records of both", || {
        record_more(&daemon, &dir);
        let is_recorded = |program: &&PathBuf| recorded(&dir, &[program]).values().all(|count| *count > 0);
        [&contained, &removed].iter().all(is_recorded).then_some(())
    });
    for child in [&mut container, &mut other] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// Records for a while, until there are more bytes.
fn record_more(daemon: &Daemon, dir: &Path) {
    let bytes = bytes_below(dir);
    daemon.tell("POST", "/v1/sessions/one/start", None);
    wait_for("records", || (bytes_below(dir) > bytes + (1 << 20)).then_some(()));
    daemon.tell("POST", "/v1/sessions/one/stop", None);
}

#[test]
fn a_program_that_is_replaced_while_it_runs_is_recorded() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let [program, newer, _, _, _] = copies(&daemon);
    let mut long = Command::new(&program).args(["-1", "1"]).stdout(Stdio::null()).spawn().unwrap();
    session(&daemon, &dir, &["probed:*"]);
    let more_than = |before: u64| {
        wait_for("records of the program", || {
            record_more(&daemon, &dir);
            let plain = recorded(&dir, &[&program])["plain"];
            (plain > before).then_some(plain)
        })
    };
    let before = more_than(0);
    fs::rename(&newer, &program).unwrap();
    more_than(before);
    long.kill().unwrap();
    long.wait().unwrap();
}
