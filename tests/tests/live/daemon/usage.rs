//! How full rings are and what was counted, told while a session records.

use integration_tests::{
    daemon::{Daemon, GID, ROOT, User},
    harness::{Caller, Ledger, Report, is_getppid},
};
use serde_json::{Value, json};

use super::{calls, files, only};

const CHANNELS: &str = "/v1/sessions/one/domains/kernel/channels";
const USAGE: &str = "/v1/sessions/one/usage";

/// A session named `one` with a channel like this that records the calls of a caller, and is started.
fn started(daemon: &Daemon, mode: &Value, attributes: &Value, caller: &Caller) {
    daemon.tell("POST", "/v1/sessions", Some(mode));
    daemon.tell("POST", CHANNELS, Some(&json!({"name": "channel0", "attributes": attributes})));
    daemon.tell("POST", &format!("{CHANNELS}/channel0/rules"), Some(&calls()));
    daemon.tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only(caller.pid())));
    daemon.tell("POST", "/v1/sessions/one/start", None);
}

/// A number of all CPUs of the only channel.
fn of_cpus(usage: &Value, pointer: &str) -> u64 {
    let cpus = usage["channels"][0]["cpus"].as_array().unwrap();
    let number = |cpu: &Value| cpu.pointer(pointer).unwrap_or_else(|| panic!("{pointer}: {cpu}")).as_u64();
    cpus.iter().map(|cpu| number(cpu).unwrap()).sum()
}

fn lost(usage: &Value) -> u64 {
    let causes = ["ring_full", "oversize", "read_fault", "nested", "rate_limit"];
    causes.iter().map(|cause| of_cpus(usage, &format!("/lost/{cause}"))).sum()
}

#[test]
fn what_is_told_meanwhile_is_what_the_file_says_at_the_end() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    let new = json!({"name": "one", "mode": {"local": {"output": &dir}}});
    started(&daemon, &new, &json!({"subbuf_size": 4096, "num_subbuf": 8}), &caller);
    caller.call(100);
    daemon.signal(libc::SIGSTOP);
    caller.call(20_000);
    daemon.signal(libc::SIGCONT);
    caller.settle();
    let usage = daemon.tell("GET", USAGE, None);
    assert_eq!(
        (&usage["session"], &usage["uid"], &usage["active"]),
        (&json!("one"), &json!(0), &json!(true))
    );
    assert!(lost(&usage) > 10_000, "32 KB cannot hold 20 000 events: {usage}");
    assert_eq!(of_cpus(&usage, "/lost/ring_full"), lost(&usage), "{usage}");
    assert_eq!(of_cpus(&usage, "/events") + lost(&usage), caller.calls(), "{usage}");
    let event = &usage["channels"][0]["events"][0];
    assert_eq!(event["name"], "raw_syscalls:sys_enter");
    assert_eq!(event["recorded"].as_u64().unwrap(), of_cpus(&usage, "/events"));
    assert_eq!(event["lost"]["ring_full"].as_u64().unwrap(), lost(&usage));
    assert_eq!(usage["channels"][0]["cpus"][0]["rings"]["room_bytes"], 8 * 4096);

    let stopped = daemon.tell("POST", "/v1/sessions/one/stop", None);
    let usage = daemon.tell("GET", USAGE, None);
    let [file] = &files(&dir)[..] else { panic!("{:?}", files(&dir)) };
    let ledger = Ledger::of(file);
    assert_eq!(
        (lost(&usage), of_cpus(&usage, "/events")),
        (ledger.lost(), ledger.cpus("recorded")),
        "{usage}"
    );
    assert_eq!(stopped["discarded"], lost(&usage));
    assert_eq!(Report::of(file).count(is_getppid), of_cpus(&usage, "/events"), "as the stock reader finds");
    assert_eq!(usage["active"], false);
    assert_eq!(usage["channels"][0]["cpus"][0]["rings"], Value::Null, "{usage}");
    // The next recording counts on.
    daemon.tell("POST", "/v1/sessions/one/start", None);
    caller.call(50);
    caller.settle();
    let next = daemon.tell("GET", USAGE, None);
    assert_eq!(of_cpus(&next, "/events") + lost(&next), caller.calls(), "{next}");
}

#[test]
fn counts_go_on_with_the_next_daemon() {
    let mut daemon = Daemon::start_supervised();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    let new = json!({"name": "one", "mode": {"local": {"output": dir}}});
    started(&daemon, &new, &json!({}), &caller);
    for calls in [300, 500] {
        caller.call(calls);
        caller.settle();
        let usage = daemon.tell("GET", USAGE, None);
        assert_eq!((of_cpus(&usage, "/events"), lost(&usage)), (caller.calls(), 0), "{usage}");
        // What is counted before a stop is told by the next daemon, too.
        daemon.tell("POST", "/v1/sessions/one/stop", None);
        daemon.tell("POST", "/v1/sessions/one/start", None);
        daemon.replace();
    }
    assert_eq!(of_cpus(&daemon.tell("GET", USAGE, None), "/events"), caller.calls());
}

#[test]
fn rings_hold_what_is_not_stored() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    let new = json!({"name": "one", "mode": {"local": {"output": &dir}}});
    // Nobody looks for full pages for an hour, unless a quarter of a ring, which is 32 pages, is full.
    let attributes = json!({"subbuf_size": 65536, "num_subbuf": 8, "read_timer_us": 3_600_000_000_u64});
    started(&daemon, &new, &attributes, &caller);
    caller.pin(0);
    caller.call(1000);
    caller.settle();
    let usage = daemon.tell("GET", USAGE, None);
    // A record has 64 bytes of the event's own, as its format says, and a page 4096.
    let held = of_cpus(&usage, "/rings/held_bytes");
    assert!(held > 8 * 4096 && held.is_multiple_of(4096), "{usage}");
    assert!(of_cpus(&usage, "/rings/fullest_held_bytes") <= held, "{usage}");
    assert_eq!((of_cpus(&usage, "/events"), lost(&usage)), (caller.calls(), 0), "{usage}");
    assert_eq!(of_cpus(&usage, "/stored_bytes"), 0, "{usage}");
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    let usage = daemon.tell("GET", USAGE, None);
    assert!(of_cpus(&usage, "/stored_bytes") >= held, "{usage}");
    // It is compressed.
    assert!(usage["stored_bytes"].as_u64().unwrap() > 0, "{usage}");
}

#[test]
fn what_is_overwritten_is_told_and_what_is_not_known_is_left_out() {
    let daemon = Daemon::start();
    let mut caller = Caller::start();
    caller.pin(0);
    let new = json!({"name": "one", "mode": "snapshot", "snapshot_output": daemon.path()});
    started(&daemon, &new, &json!({"subbuf_size": 4096, "num_subbuf": 4}), &caller);
    caller.call(10_000);
    caller.settle();
    let usage = daemon.tell("GET", USAGE, None);
    let channel = &usage["channels"][0];
    assert_eq!((&channel["overwrites"], &usage["stored_bytes"]), (&json!(true), &Value::Null), "{usage}");
    assert_eq!((of_cpus(&usage, "/events"), lost(&usage)), (caller.calls(), 0), "{usage}");
    let cpu = &channel["cpus"][0];
    assert_eq!((&cpu["cpu"], &cpu["stored_bytes"]), (&json!(0), &Value::Null), "{usage}");
    // What there is left is what a snapshot has, up to pages that are reused meanwhile.
    let taken = daemon.tell("POST", "/v1/sessions/one/snapshots", Some(&json!({})));
    let left = caller.calls() - cpu["overwritten_events"].as_u64().unwrap();
    assert_eq!(taken["events"].as_u64().unwrap(), left, "{usage}");
    assert!(cpu["overwritten_bytes"].as_u64().unwrap() > 16 * 4096, "{usage}");
}

#[test]
fn users_are_told_of_their_own_sessions() {
    let daemon = Daemon::start();
    let user = User { uid: 61_001, gid: GID };
    let dir = daemon.directory_of(user, "out");
    daemon.session(user, "one", &dir, &[]);
    daemon.session(ROOT, "two", &daemon.path().join("two"), &[]);
    let names = |answer: &Value| -> Vec<String> {
        answer.as_array().unwrap().iter().map(|of| of["session"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&daemon.tell_as(user, "GET", "/v1/usage", None)), ["one"]);
    assert_eq!(names(&daemon.tell("GET", "/v1/usage", None)), ["two", "one"]);
    assert_eq!(names(&daemon.tell("GET", "/v1/usage?uid=61001", None)), ["one"]);
    assert_eq!(daemon.ask_as(user, "GET", "/v1/sessions/two/usage", None).0, 404);
    assert_eq!(daemon.ask_as(user, "GET", "/v1/sessions/two/usage?uid=0", None).0, 403);
    assert_eq!(daemon.ask("GET", USAGE, None).0, 404);
    let never = daemon.tell("GET", "/v1/sessions/one/usage?uid=61001", None);
    assert_eq!((&never["active"], &never["stored_bytes"]), (&json!(false), &Value::Null));
    assert_eq!(never["channels"][0]["cpus"], json!([]));
}
