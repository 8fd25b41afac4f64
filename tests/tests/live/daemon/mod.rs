//! Recording sessions of the daemon.

mod analyses;
mod archives;
mod as_lttng;
mod budget;
mod changes;
mod configuration;
mod endurance;
mod fleet;
mod flight;
mod handover;
mod hostile;
mod limits;
mod listeners;
mod maps;
mod markers;
mod metrics;
mod monitoring;
mod random;
mod recovery;
mod regenerate;
mod rules;
mod traces;
mod triggers;
mod triggers_handed_over;
mod triggers_of_events;
mod triggers_that_count;
mod units;
mod usage;
mod users;

use std::{
    fs,
    path::{Path, PathBuf},
};

use integration_tests::{
    daemon::{Daemon, ROOT},
    harness::{Caller, Report, is_getppid, wait_for, wait_for_readers},
    trace_cmd,
};
use serde_json::{Value, json};

/// A rule for the calls of a [`Caller`].
fn calls() -> Value {
    json!({"name": "raw_syscalls:sys_enter", "instrumentation": "tracepoint", "filter": "id == 110"})
}

fn only(pid: u32) -> Value {
    json!({"attribute": "pid", "values": {"only": [pid.to_string()]}, "add": true})
}

/// The files of a directory, by name.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

/// What a daemon has in the directory of its state but for its lock: notes of sessions.
fn notes(daemon: &Daemon) -> Vec<PathBuf> {
    let mut all = files(&daemon.path().join("state"));
    all.retain(|path| !path.ends_with("lock"));
    all
}

fn found(files: &[PathBuf]) -> u64 {
    files.iter().map(|file| Report::of(file).count(is_getppid)).sum()
}

#[test]
fn a_session_records_from_its_start_to_its_stop_and_again() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out/of/it");
    let mut caller = Caller::start();
    daemon.session(ROOT, "one", &dir, &[calls()]);
    daemon.tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only(caller.pid())));
    caller.call(1000);
    assert!(!dir.exists(), "nothing is recorded before the start");
    let mut expected = 0;
    for turn in 1..=2 {
        daemon.tell("POST", "/v1/sessions/one/start", None);
        let before = caller.calls();
        caller.call(20_000);
        caller.settle();
        let stopped = daemon.tell("POST", "/v1/sessions/one/stop", None);
        expected += caller.calls() - before;
        assert_eq!(stopped["discarded"], 0, "{stopped}");
        let there = files(&dir);
        assert_eq!(there.len(), turn, "{there:?}");
        assert_eq!(found(&there), expected);
        // Nobody listens now.
        caller.call(1000);
        caller.settle();
    }
    let stock = files(&dir).iter().map(|file| trace_cmd::report(file, &[])).collect::<String>();
    assert_eq!(stock.lines().filter(|line| is_getppid(line)).count() as u64, expected);
    let destroyed = daemon.tell("DELETE", "/v1/sessions/one", None);
    assert_eq!(destroyed["files"].as_array().unwrap().len(), 2, "{destroyed}");
    assert_eq!(daemon.ask("GET", "/v1/sessions/one", None).0, 404);
    let ended = daemon.stop().expect(0);
    assert_eq!(ended.err, "", "there was nothing to complain of");
}

#[test]
fn a_rotation_loses_nothing_and_doubles_nothing() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    daemon.session(ROOT, "one", &dir, &[calls()]);
    daemon.tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only(caller.pid())));
    let refused = daemon.ask("POST", "/v1/sessions/one/rotations", None);
    assert_eq!((refused.0, &refused.1["code"]), (409, &json!("never_started")));
    daemon.tell("POST", "/v1/sessions/one/start", None);
    let before = caller.calls();
    for id in 0..3 {
        caller.call(5000);
        caller.settle();
        let rotation = daemon.tell("POST", "/v1/sessions/one/rotations", None);
        assert_eq!(rotation["id"], id);
        wait_for("the archive", || {
            let rotation = daemon.tell("GET", &format!("/v1/sessions/one/rotations/{id}"), None);
            (rotation["state"] == "completed").then_some(())
        });
    }
    caller.call(5000);
    caller.settle();
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    let there = files(&dir);
    assert_eq!((there.len(), found(&there)), (4, caller.calls() - before), "{there:?}");
    // Once more after the stop, as in LTTng: the chunk is closed already.
    let rotation = daemon.tell("POST", "/v1/sessions/one/rotations", None);
    assert_eq!((&rotation["id"], &rotation["state"]), (&json!(3), &json!("completed")));
    let again = daemon.ask("POST", "/v1/sessions/one/rotations", None);
    assert_eq!((again.0, &again.1["code"]), (409, &json!("rotated_after_stop")));
}

#[test]
fn a_schedule_rotates_by_itself() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    daemon.session(ROOT, "one", &dir, &[json!({"name": "sched_switch", "instrumentation": "tracepoint"})]);
    daemon.tell("POST", "/v1/sessions/one/schedules", Some(&json!({"period_us": 50_000})));
    let twice = daemon.ask("POST", "/v1/sessions/one/schedules", Some(&json!({"period_us": 70_000})));
    assert_eq!(twice.1["code"], "schedule_set");
    daemon.tell("POST", "/v1/sessions/one/start", None);
    wait_for("three chunks", || (files(&dir).len() > 5).then_some(()));
    daemon.tell("DELETE", "/v1/sessions/one/schedules", Some(&json!({"period_us": 1})));
    daemon.tell("DELETE", "/v1/sessions/one", None);
    let there = files(&dir);
    assert!(there.iter().all(|file| file.extension().is_some_and(|name| name == "dat")), "{there:?}");
}

#[test]
fn rules_come_and_go_while_a_session_records() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    daemon.session(
        ROOT,
        "one",
        &dir,
        &[json!({"name": "sched_process_exit", "instrumentation": "tracepoint"})],
    );
    daemon.tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only(caller.pid())));
    daemon.tell("POST", "/v1/sessions/one/start", None);
    let rules = "/v1/sessions/one/domains/kernel/channels/channel0/rules";
    caller.call(1000);
    caller.settle();
    let before = caller.calls();
    daemon.tell("POST", rules, Some(&calls()));
    caller.call(1000);
    caller.settle();
    let named = json!({"name": "raw_syscalls:sys_enter", "enabled": false});
    assert_eq!(daemon.tell("PATCH", rules, Some(&named))["rules"], 1);
    let expected = caller.calls() - before;
    caller.call(1000);
    caller.settle();
    let before = caller.calls();
    daemon.tell("POST", rules, Some(&calls()));
    // Another rule for the same event: what matches both is recorded once.
    let other = json!({"name": "raw_syscalls:sys_enter", "instrumentation": "tracepoint",
        "filter": "id > 109 && id < 111"});
    daemon.tell("POST", rules, Some(&other));
    caller.call(1000);
    caller.settle();
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    let least = expected + 1000;
    let most = expected + caller.calls() - before;
    let there = found(&files(&dir));
    // While the event gets its other filter, it is not recorded.
    assert!((least..=most).contains(&there), "{least} {there} {most}");
    let twice = daemon.ask("POST", rules, Some(&other));
    assert_eq!((twice.0, &twice.1["code"]), (409, &json!("kernel_event_exists")));
    let unknown = json!({"name": "sched_swotch", "instrumentation": "tracepoint"});
    let unknown = daemon.ask("POST", rules, Some(&unknown));
    assert_eq!((unknown.0, &unknown.1["code"]), (404, &json!("no_event")));
}

#[test]
fn a_channel_that_is_switched_off_records_nothing() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    daemon.session(ROOT, "one", &dir, &[calls()]);
    daemon.tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only(caller.pid())));
    daemon.tell("POST", "/v1/sessions/one/start", None);
    let channel = "/v1/sessions/one/domains/kernel/channels/channel0";
    let before = caller.calls();
    caller.call(1000);
    caller.settle();
    daemon.tell("PATCH", channel, Some(&json!({"enabled": false})));
    let expected = caller.calls() - before;
    caller.call(1000);
    caller.settle();
    daemon.tell("PATCH", channel, Some(&json!({"enabled": true})));
    let before = caller.calls();
    caller.call(1000);
    caller.settle();
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    assert_eq!(found(&files(&dir)), expected + caller.calls() - before);
}

#[test]
fn a_snapshot_has_what_the_rings_hold() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("snapshots");
    let mut caller = Caller::start();
    let new = json!({"name": "one", "mode": "snapshot", "snapshot_output": dir});
    daemon.tell("POST", "/v1/sessions", Some(&new));
    let channels = "/v1/sessions/one/domains/kernel/channels";
    daemon.tell("POST", channels, Some(&json!({"name": "channel0", "attributes": {"subbuf_size": 65536}})));
    daemon.tell("POST", &format!("{channels}/channel0/rules"), Some(&calls()));
    daemon.tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only(caller.pid())));
    let early = daemon.ask("POST", "/v1/sessions/one/snapshots", Some(&json!({})));
    assert_eq!((early.0, &early.1["code"]), (409, &json!("never_started")));
    daemon.tell("POST", "/v1/sessions/one/start", None);
    caller.call(100_000);
    caller.settle();
    let snapshot = daemon.tell("POST", "/v1/sessions/one/snapshots", Some(&json!({})));
    let file = PathBuf::from(snapshot["path"].as_str().unwrap());
    let events = Report::of(&file).count(is_getppid);
    assert_eq!(snapshot["events"], events);
    assert!((1000..100_000).contains(&events), "the newest ones: {events}");
    daemon.tell("DELETE", "/v1/sessions/one", None);
    assert_eq!(files(&dir), [file], "nothing else is stored");
}

#[test]
fn a_daemon_that_is_killed_leaves_what_was_stored_to_the_next_one() {
    let mut daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    daemon.session(ROOT, "one", &dir, &[calls()]);
    daemon.tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only(caller.pid())));
    daemon.tell("POST", "/v1/sessions/one/start", None);
    caller.call(20_000);
    caller.settle();
    wait_for_readers(daemon.pid());
    daemon.kill();
    daemon.start_again();
    let there = wait_for("the recovered file", || {
        let there = files(&dir);
        there.iter().all(|file| file.extension().is_some_and(|name| name == "dat")).then_some(there)
    });
    assert_eq!(there.len(), 1);
    let events = found(&there);
    assert!(events > 10_000 && events <= caller.calls(), "{events} of {}", caller.calls());
    wait_for("its note to go", || notes(&daemon).is_empty().then_some(()));
    assert_eq!(daemon.tell("GET", "/v1/sessions", None), json!([]), "sessions end with their daemon");
    daemon.session(ROOT, "one", &dir, &[calls()]);
    daemon.tell("POST", "/v1/sessions/one/start", None);
}

/// How often a thread was switched away from, as the kernel tells it.
fn switches(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let counts = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
    counts.map(|(_, count)| count.trim().parse::<u64>().unwrap()).sum()
}

#[test]
fn many_sessions_at_once_have_the_same_events() {
    let daemon = Daemon::start();
    let mut caller = Caller::start();
    let names: Vec<String> = (0..18).map(|number| format!("s{number}")).collect();
    for name in &names {
        let dir = daemon.path().join(name);
        let new = json!({"name": name, "mode": {"local": {"output": dir}}});
        daemon.tell("POST", "/v1/sessions", Some(&new));
        let channels = format!("/v1/sessions/{name}/domains/kernel/channels");
        for channel in ["a", "b", "c", "d"] {
            let attributes = json!({"subbuf_size": 65536, "num_subbuf": 4});
            daemon.tell("POST", &channels, Some(&json!({"name": channel, "attributes": attributes})));
            let switch = json!({"name": "sched_switch", "instrumentation": "tracepoint"});
            daemon.tell("POST", &format!("{channels}/{channel}/rules"), Some(&switch));
        }
        daemon.tell(
            "POST",
            &format!("/v1/sessions/{name}/domains/kernel/trackers"),
            Some(&only(caller.pid())),
        );
        daemon.tell("POST", &format!("/v1/sessions/{name}/start"), None);
    }
    caller.settle();
    let before = switches(caller.pid());
    for _ in 0..200 {
        caller.call(10);
    }
    caller.settle();
    let expected = switches(caller.pid()) - before;
    for name in &names {
        let stopped = daemon.tell("POST", &format!("/v1/sessions/{name}/stop"), None);
        assert_eq!(stopped["discarded"], 0);
    }
    // Switches to it are recorded, too: those are of another thread.
    let from = format!("-{} ", caller.pid());
    for name in &names {
        let there = files(&daemon.path().join(name));
        let found: u64 = there.iter().map(|file| Report::of(file).count(|line| line.contains(&from))).sum();
        assert_eq!(found, 4 * expected, "{name}");
    }
    daemon.stop().expect(0);
}

#[test]
fn notifications_come_line_by_line() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    daemon.session(ROOT, "one", &dir, &[calls()]);
    let mut listening = std::process::Command::new("curl");
    listening.args(["--silent", "--no-buffer", "--unix-socket"]).arg(daemon.socket());
    listening.args(["--dump-header", "-", "http://localhost/v1/notifications"]);
    let mut listening = integration_tests::harness::Running::start(&mut listening);
    listening.wait_until_out("application/jsonlines");
    daemon.tell("POST", "/v1/sessions/one/start", None);
    daemon.tell("POST", "/v1/sessions/one/rotations", None);
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    listening.wait_until_out("\"active\":false");
    daemon.stop().expect(0);
    let heard = listening.wait().out;
    let lines: Vec<Value> = heard.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let what = |line: &Value| (line["what"].as_str().unwrap().to_owned(), line["session"].clone());
    let kinds: Vec<_> = lines.iter().map(what).collect();
    let of = |kind: &str| (kind.to_owned(), json!("one"));
    assert_eq!(kinds, [of("activity"), of("rotation"), of("rotation"), of("activity")], "{heard}");
    assert_eq!([&lines[1]["state"], &lines[2]["state"]], ["ongoing", "completed"]);
}
