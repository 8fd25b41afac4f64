//! Sessions in LTTng's format: what babeltrace2 reads of them while they record, when they pause, and when
//! they are over.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use integration_tests::{
    babeltrace,
    daemon::Daemon,
    harness::{Caller, wait_for},
};
use serde_json::{Value, json};

use super::{calls, files, only};

const CHANNELS: &str = "/v1/sessions/one/domains/kernel/channels";

/// How many calls babeltrace2 finds in a trace, which it reads without a warning.
pub(super) fn found(trace: &Path) -> u64 {
    babeltrace::calls(trace).len() as u64
}

/// Waits until babeltrace2 finds so many calls in a trace that is being written.
pub(super) fn wait_for_calls(trace: &Path, count: usize) {
    wait_for("a trace that has all calls", || {
        babeltrace::calls_by_now(trace).filter(|calls| calls.len() == count).map(drop)
    });
}

pub(super) fn begin(daemon: &Daemon, mode: &Value, caller: &Caller) {
    let mut new = json!({"name": "one", "format": "lttng"});
    for (key, value) in mode.as_object().unwrap() {
        new[key] = value.clone();
    }
    daemon.tell("POST", "/v1/sessions", Some(&new));
    daemon.tell("POST", CHANNELS, Some(&json!({"name": "channel0", "attributes": {"subbuf_size": 65536}})));
    daemon.tell("POST", &format!("{CHANNELS}/channel0/rules"), Some(&calls()));
    daemon.tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only(caller.pid())));
    daemon.tell("POST", "/v1/sessions/one/start", None);
}

fn names(dir: &Path) -> BTreeSet<String> {
    files(dir).iter().map(|file| file.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn a_trace_grows_from_start_to_start_and_is_archived_by_rotations() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    begin(&daemon, &json!({"mode": {"local": {"output": dir}}}), &caller);
    let mut call = |count: u64| {
        caller.call(count);
        caller.settle();
    };
    call(1000);
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    assert_eq!(found(&dir), 1000, "a stop makes it readable");
    daemon.tell("POST", "/v1/sessions/one/start", None);
    call(500);
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    assert_eq!(found(&dir), 1500, "a start goes on in the same trace");
    daemon.tell("POST", "/v1/sessions/one/start", None);
    call(500);
    let rotation = daemon.tell("POST", "/v1/sessions/one/rotations", None);
    let archive = wait_for("the archive", || {
        let rotation = daemon.tell("GET", &format!("/v1/sessions/one/rotations/{}", rotation["id"]), None);
        (rotation["state"] == "completed").then(|| PathBuf::from(rotation["path"].as_str().unwrap()))
    });
    assert_eq!(archive.parent().unwrap(), dir.join("archives"));
    assert!(archive.to_str().unwrap().ends_with("-0"), "{archive:?}");
    assert_eq!(found(&archive), 2000);
    call(300);
    // As with LTTng, a trace that has begun gets no more channels.
    let late = json!({"name": "late", "attributes": {"subbuf_size": 65536}});
    let (status, refused) = daemon.ask("POST", CHANNELS, Some(&late));
    assert_eq!((status, &refused["code"]), (409, &json!("already_started")), "{refused}");
    call(200);
    daemon.tell("DELETE", "/v1/sessions/one", None);
    assert_eq!(names(&dir), BTreeSet::from(["archives".to_owned()]));
    let archives = files(&dir.join("archives"));
    let counts: Vec<u64> = archives.iter().map(|chunk| found(chunk)).collect();
    assert_eq!(counts, [2000, 500], "{archives:?}");
    assert_eq!(daemon.stop().expect(0).err, "");
}

#[test]
fn a_clear_leaves_an_empty_trace() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    begin(&daemon, &json!({"mode": {"local": {"output": dir}}}), &caller);
    let mut call = |count: u64| {
        caller.call(count);
        caller.settle();
    };
    call(1000);
    daemon.tell("POST", "/v1/sessions/one/clear", None);
    call(100);
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    assert_eq!(found(&dir), 100);
    daemon.tell("POST", "/v1/sessions/one/clear", None);
    daemon.tell("POST", "/v1/sessions/one/start", None);
    call(50);
    daemon.tell("DELETE", "/v1/sessions/one", None);
    assert_eq!((found(&dir), names(&dir)), (50, BTreeSet::from(["kernel".to_owned()])));
}

#[test]
fn snapshots_are_traces_of_their_own() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    begin(&daemon, &json!({"mode": "snapshot", "snapshot_output": dir}), &caller);
    let mut call = |count: u64| {
        caller.call(count);
        caller.settle();
    };
    let take = |wanted: Value| {
        let snapshot = daemon.tell("POST", "/v1/sessions/one/snapshots", Some(&wanted));
        PathBuf::from(snapshot["path"].as_str().unwrap())
    };
    call(200);
    let first = take(json!({}));
    call(100);
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    let elsewhere = daemon.path().join("else/where");
    let second = take(json!({"name": "mine", "path": elsewhere}));
    assert_eq!((found(&first), found(&second)), (200, 300));
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(name(&first).starts_with("snapshot-1-") && name(&first).ends_with("-0"), "{first:?}");
    assert!(name(&second).starts_with("mine-") && name(&second).ends_with("-1"), "{second:?}");
    daemon.tell("DELETE", "/v1/sessions/one", None);
    assert_eq!(
        (names(&dir), names(&elsewhere)),
        (BTreeSet::from([name(&first)]), BTreeSet::from([name(&second)]))
    );
}
