//! What changes while a session records, and what becomes of it at its next start.

use std::path::Path;

use integration_tests::{
    daemon::{Daemon, ROOT},
    harness::{Caller, Report, Tmpfs, is_getppid},
};
use serde_json::json;

use super::{calls, files, found, only};

const CHANNELS: &str = "/v1/sessions/one/domains/kernel/channels";
const TRACKERS: &str = "/v1/sessions/one/domains/kernel/trackers";

/// A session named `one` that records the calls of a caller, and is started.
fn started(daemon: &Daemon, dir: &Path, caller: &Caller) {
    daemon.session(ROOT, "one", dir, &[calls()]);
    daemon.tell("POST", TRACKERS, Some(&only(caller.pid())));
    daemon.tell("POST", "/v1/sessions/one/start", None);
}

#[test]
fn channels_and_contexts_come_while_a_session_records() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    started(&daemon, &dir, &caller);
    let mut expected = 0;
    let mut call = |channels: u64| {
        caller.call(1000);
        caller.settle();
        expected += channels * 1000;
    };
    call(1);
    daemon.tell("POST", CHANNELS, Some(&json!({"name": "late"})));
    call(1);
    let returns =
        json!({"name": "raw_syscalls:sys_exit", "instrumentation": "tracepoint", "filter": "id == 110"});
    daemon.tell("POST", &format!("{CHANNELS}/late/rules"), Some(&returns));
    call(2);
    daemon.tell("POST", &format!("{CHANNELS}/late/contexts"), Some(&json!({"contexts": ["uid"]})));
    call(2);
    let twice = daemon.ask("POST", &format!("{CHANNELS}/late/contexts"), Some(&json!({"contexts": ["uid"]})));
    assert_eq!((twice.0, &twice.1["code"]), (409, &json!("context_exists")));
    call(2);
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    let there = files(&dir);
    // Each of the two changes of what is fixed begins another trace chunk.
    let of_returns = |file: &Path| Report::of(file).count(|line| line.contains(" sys_exit:"));
    let returned: u64 = there.iter().map(|file| of_returns(file)).sum();
    assert_eq!((there.len(), found(&there) + returned), (3, expected), "{there:?}");
    let with_uid = |file: &Path| Report::of(file).count(|line| line.contains("ctx_uid="));
    assert_eq!(there.iter().map(|file| with_uid(file)).collect::<Vec<_>>(), [0, 0, 2000]);
}

#[test]
fn what_takes_over_leaves_no_gap_under_load() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    caller.pin(0);
    started(&daemon, &dir, &caller);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| caller.call(300_000));
        for number in 0..3 {
            let channel = format!("late{number}");
            let small = json!({"name": channel, "attributes": {"subbuf_size": 65536}});
            daemon.tell("POST", CHANNELS, Some(&small));
        }
        load.join().unwrap();
    });
    caller.settle();
    let stopped = daemon.tell("POST", "/v1/sessions/one/stop", None);
    let there = files(&dir);
    assert_eq!(there.len(), 4, "{there:?}");
    let missing = caller.calls() - found(&there) - stopped["discarded"].as_u64().unwrap();
    // What fires between two stores to memory is in neither recording: at most one call each time.
    assert!(missing <= 3, "{missing} calls are missing");
}

#[test]
fn what_cannot_take_over_leaves_the_recording_as_it_was() {
    let daemon = Daemon::start();
    let disk = Tmpfs::mount("size=64m");
    let dir = disk.path().join("out");
    let mut caller = Caller::start();
    started(&daemon, &dir, &caller);
    caller.call(1000);
    caller.settle();
    let before = files(&dir);
    disk.fill_but(256 << 10);
    let channel = json!({"name": "late"});
    let (status, answer) = daemon.ask("POST", CHANNELS, Some(&channel));
    assert!(status >= 400 && answer["message"].as_str().unwrap().contains("No space left"), "{answer}");
    // As many events at once are another recording's.
    let all = json!({"name": "*", "instrumentation": {"syscall": "entry"}});
    let (status, answer) = daemon.ask("POST", &format!("{CHANNELS}/channel0/rules"), Some(&all));
    assert!(status >= 400 && answer["message"].as_str().unwrap().contains("No space left"), "{answer}");
    assert_eq!(files(&dir), before);
    std::fs::remove_file(disk.path().join("filler")).unwrap();
    caller.call(500);
    caller.settle();
    daemon.tell("POST", CHANNELS, Some(&channel));
    caller.call(200);
    caller.settle();
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    let there = files(&dir);
    assert_eq!((there.len(), found(&there)), (2, 1700), "{there:?}");
}

#[test]
fn what_is_tracked_changes_while_a_session_records() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let mut callers = [Caller::start(), Caller::start()];
    started(&daemon, &dir, &callers[0]);
    let pid = |caller: &Caller| json!({"only": [caller.pid().to_string()]});
    let mut expected = [0, 0];
    let mut call = |callers: &mut [Caller; 2], recorded: [bool; 2]| {
        for ((caller, is_recorded), expected) in callers.iter_mut().zip(recorded).zip(&mut expected) {
            caller.call(500);
            caller.settle();
            *expected += 500 * u64::from(is_recorded);
        }
    };
    let track = |values: serde_json::Value, add: bool| {
        daemon.tell("POST", TRACKERS, Some(&json!({"attribute": "pid", "values": values, "add": add})));
    };
    call(&mut callers, [true, false]);
    track(pid(&callers[1]), true);
    call(&mut callers, [true, true]);
    track(pid(&callers[0]), false);
    call(&mut callers, [false, true]);
    track(pid(&callers[1]), false);
    call(&mut callers, [false, false]);
    track(pid(&callers[0]), true);
    let nobody = json!({"attribute": "vuid", "values": {"only": ["65534"]}, "add": true});
    daemon.tell("POST", TRACKERS, Some(&nobody));
    call(&mut callers, [false, false]);
    daemon.tell(
        "POST",
        TRACKERS,
        Some(&json!({"attribute": "vuid", "values": {"only": ["root"]}, "add": true})),
    );
    call(&mut callers, [true, false]);
    let unknown = json!({"attribute": "vuid", "values": {"only": ["nosuchuser"]}, "add": true});
    let unknown = daemon.ask("POST", TRACKERS, Some(&unknown));
    assert_eq!((unknown.0, &unknown.1["code"]), (422, &json!("no_user")));
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    let there = files(&dir);
    assert_eq!(there.len(), 1, "{there:?}");
    let of = |caller: &Caller| {
        let from = format!("-{} ", caller.pid());
        Report::of(&there[0]).count(|line| is_getppid(line) && line.contains(&from))
    };
    assert_eq!([of(&callers[0]), of(&callers[1])], expected);
}

#[test]
fn there_is_room_for_all_system_calls_at_once() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    started(&daemon, &dir, &caller);
    caller.call(1000);
    caller.settle();
    let all = json!({"name": "*", "instrumentation": {"syscall": "entry"}});
    daemon.tell("POST", &format!("{CHANNELS}/channel0/rules"), Some(&all));
    caller.call(1000);
    caller.settle();
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    let there = files(&dir);
    assert_eq!((there.len(), found(&there)), (2, 2000), "{there:?}");
    let named = |file: &Path| Report::of(file).count(|line| line.contains(" sys_enter_getppid:"));
    assert_eq!(there.iter().map(|file| named(file)).collect::<Vec<_>>(), [0, 1000]);
}

#[test]
fn a_clear_removes_what_was_recorded() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    started(&daemon, &dir, &caller);
    let mut call = |count: u64| {
        caller.call(count);
        caller.settle();
    };
    call(1000);
    daemon.tell("POST", "/v1/sessions/one/clear", None);
    call(500);
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    let there = files(&dir);
    assert_eq!((there.len(), found(&there)), (1, 500), "{there:?}");
    daemon.tell("POST", "/v1/sessions/one/clear", None);
    assert!(files(&dir).is_empty(), "{:?}", files(&dir));
    let again = daemon.ask("POST", "/v1/sessions/one/clear", None);
    assert_eq!((again.0, &again.1["code"]), (409, &json!("cleared_after_stop")));
    daemon.tell("POST", "/v1/sessions/one/start", None);
    call(300);
    // What was archived is not cleared.
    daemon.tell("POST", "/v1/sessions/one/rotations", None);
    call(200);
    daemon.tell("POST", "/v1/sessions/one/clear", None);
    let destroyed = daemon.tell("DELETE", "/v1/sessions/one", None);
    let there = files(&dir);
    assert_eq!((there.len(), found(&there)), (2, 300), "{there:?} {destroyed}");
    daemon.stop().expect(0);
}

#[test]
fn snapshots_go_where_they_are_asked_to() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("snapshots");
    let mut caller = Caller::start();
    let new = json!({"name": "one", "mode": "snapshot", "snapshot_output": dir});
    daemon.tell("POST", "/v1/sessions", Some(&new));
    let large = json!({"name": "channel0", "attributes": {"subbuf_size": 1 << 20, "num_subbuf": 8}});
    daemon.tell("POST", CHANNELS, Some(&large));
    daemon.tell("POST", &format!("{CHANNELS}/channel0/rules"), Some(&calls()));
    daemon.tell("POST", TRACKERS, Some(&only(caller.pid())));
    daemon.tell("POST", "/v1/sessions/one/start", None);
    let mut call = |count: u64| {
        caller.call(count);
        caller.settle();
    };
    let take = |wanted| {
        let snapshot = daemon.tell("POST", "/v1/sessions/one/snapshots", Some(&wanted));
        let file = std::path::PathBuf::from(snapshot["path"].as_str().unwrap());
        let events = Report::of(&file).count(is_getppid);
        assert_eq!(snapshot["events"], events);
        (file, events)
    };
    call(1000);
    // What the rings hold stays there when the session is stopped, and when it goes on.
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    let (file, events) = take(json!({}));
    let name = file.file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!((events, file.parent().unwrap()), (1000, dir.as_path()));
    assert!(name.starts_with("snapshot-1-") && name.ends_with("-0.dat"), "{name}");
    daemon.tell("POST", "/v1/sessions/one/start", None);
    call(500);
    let elsewhere = daemon.path().join("else/where");
    let (file, events) = take(json!({"name": "mine", "path": elsewhere}));
    let name = file.file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!((events, file.parent().unwrap()), (1500, elsewhere.as_path()));
    assert!(name.starts_with("mine-") && name.ends_with("-1.dat"), "{name}");
    call(100_000);
    let cpus = std::thread::available_parallelism().unwrap().get() as u64;
    let limit = cpus << 20;
    let (_, all) = take(json!({}));
    let (_, some) = take(json!({"max_size": limit}));
    // A call takes 24 bytes and more.
    assert!(some < all && some <= limit / 24 && some > 1000, "{some} of {all}");
    let small = daemon.ask("POST", "/v1/sessions/one/snapshots", Some(&json!({"max_size": 1000})));
    assert_eq!((small.0, &small.1["code"]), (422, &json!("snapshot_size")));
    // A clear empties the rings.
    daemon.tell("POST", "/v1/sessions/one/clear", None);
    call(100);
    assert_eq!(take(json!({})).1, 100);
    daemon.tell("DELETE", "/v1/sessions/one", None);
    assert_eq!((files(&dir).len(), files(&elsewhere).len()), (4, 1));
}
