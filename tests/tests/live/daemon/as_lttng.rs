//! Sessions of LTTng's format, where LTTng's users expect of them what its session daemon does.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use integration_tests::{
    babeltrace,
    daemon::Daemon,
    harness::{Caller, agent, wait_for},
};
use serde_json::json;

use super::{
    calls, files, only,
    traces::{begin, found},
};

const CHANNELS: &str = "/v1/sessions/one/domains/kernel/channels";

#[test]
fn a_function_is_recorded_at_its_entry_and_return() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    let new = json!({"name": "one", "format": "lttng", "mode": {"local": {"output": dir}}});
    daemon.tell("POST", "/v1/sessions", Some(&new));
    daemon.tell("POST", CHANNELS, Some(&json!({"name": "channel0"})));
    let function = json!({"function": {"location": "__x64_sys_getppid"}});
    let rule = json!({"name": "parent", "instrumentation": function});
    let (status, refused) = daemon.ask("POST", &format!("{CHANNELS}/channel0/rules"), Some(&rule));
    if !Path::new("/sys/bus/event_source/devices/kprobe").exists() {
        assert_eq!((status, &refused["code"]), (422, &json!("enable_kernel_event")), "{refused}");
        return;
    }
    assert_eq!(status, 200, "{refused}");
    daemon.tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only(caller.pid())));
    daemon.tell("POST", "/v1/sessions/one/start", None);
    caller.call(100);
    caller.settle();
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    let (text, lost) = babeltrace::printed(&dir, &["--no-delta"]);
    let count = |name: &str| text.lines().filter(|line| line.contains(name)).count();
    assert_eq!((count(" parent_entry: "), count(" parent_exit: "), lost), (100, 100, 0));
}

#[test]
fn a_rotation_after_the_stop_leaves_nothing_to_archive() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    begin(&daemon, &json!({"mode": {"local": {"output": dir}}}), &caller);
    caller.call(100);
    caller.settle();
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    let rotation = daemon.tell("POST", "/v1/sessions/one/rotations", None);
    wait_for("the archive", || {
        let rotation = daemon.tell("GET", &format!("/v1/sessions/one/rotations/{}", rotation["id"]), None);
        (rotation["state"] == "completed").then_some(())
    });
    let destroyed = daemon.tell("DELETE", "/v1/sessions/one", None);
    assert_eq!(destroyed["archive"], json!(null), "{destroyed}");
    let archives = files(&dir.join("archives"));
    assert_eq!((archives.len(), files(&dir).len()), (1, 1), "{archives:?}");
    assert_eq!(found(&archives[0]), 100);
    assert_eq!(daemon.stop().expect(0).err, "");
}

#[test]
fn a_session_without_an_output_has_snapshots() {
    let daemon = Daemon::start();
    let mut caller = Caller::start();
    begin(&daemon, &json!({"mode": {"local": {"output": null}}}), &caller);
    let one = json!({"name": "one", "attributes": {"num_subbuf": 1}});
    let (status, refused) = daemon.ask("POST", CHANNELS, Some(&one));
    assert_eq!((status, &refused["code"]), (422, &json!("invalid")), "{refused}");
    caller.call(100);
    caller.settle();
    let snapshots = "/v1/sessions/one/snapshots";
    let (status, refused) = daemon.ask("POST", snapshots, Some(&json!({})));
    assert_eq!((status, &refused["code"]), (409, &json!("no_output")), "{refused}");
    let place = daemon.path().join("here");
    let taken = daemon.tell("POST", snapshots, Some(&json!({"path": place})));
    assert_eq!(found(taken["path"].as_str().unwrap().as_ref()), 100, "{taken}");
    let added = json!({"name": "there", "path": daemon.path().join("there")});
    daemon.tell("POST", "/v1/sessions/one/snapshot-outputs", Some(&added));
    caller.call(10);
    caller.settle();
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    let taken = daemon.tell("POST", snapshots, Some(&json!({})));
    let path = taken["path"].as_str().unwrap();
    assert!(path.contains("/there/there-"), "{path}");
    assert_eq!(found(path.as_ref()), 110);
    let (_, refused) = daemon.ask("POST", "/v1/sessions/one/rotations", None);
    assert_eq!(refused["code"], "rotation_unavailable", "{refused}");
    daemon.tell("DELETE", "/v1/sessions/one", None);
    assert_eq!(fs::read_dir(daemon.path().join("state-relay")).unwrap().count(), 0, "nothing stays");
}

#[test]
fn what_is_in_the_output_stays() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("notes"), "mine").unwrap();
    let mut caller = Caller::start();
    begin(&daemon, &json!({"mode": {"local": {"output": dir}}}), &caller);
    caller.call(100);
    caller.settle();
    daemon.tell("DELETE", "/v1/sessions/one", None);
    assert_eq!(found(&dir), 100);
    assert_eq!(fs::read(dir.join("notes")).unwrap(), b"mine");
    // Two traces in one directory would be one to their readers.
    for (name, loss) in [("two", "discard"), ("three", "overwrite")] {
        let new = json!({"name": name, "format": "lttng", "mode": {"local": {"output": dir}}});
        daemon.tell("POST", "/v1/sessions", Some(&new));
        let channels = format!("/v1/sessions/{name}/domains/kernel/channels");
        let channel = json!({"name": "channel0", "attributes": {"event_loss": loss}});
        daemon.tell("POST", &channels, Some(&channel));
        daemon.tell("POST", &format!("{channels}/channel0/rules"), Some(&calls()));
        let (status, refused) = daemon.ask("POST", &format!("/v1/sessions/{name}/start"), None);
        assert_eq!((status, &refused["code"]), (500, &json!("start_kernel")), "{loss}: {refused}");
    }
    assert_eq!(found(&dir), 100);
}

#[test]
fn a_trace_has_the_name_and_time_of_its_session() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    begin(&daemon, &json!({"mode": {"local": {"output": dir}}}), &caller);
    let session = daemon.tell("GET", "/v1/sessions/one", None);
    let created_at = session["created_at"].as_u64().unwrap();
    caller.call(1);
    caller.settle();
    daemon.tell("DELETE", "/v1/sessions/one", None);
    let metadata = fs::read(dir.join("kernel/metadata")).unwrap();
    let metadata = String::from_utf8_lossy(&metadata);
    let created_at = stdx::utc::compact(created_at * 1_000_000_000);
    for line in ["trace_name = \"one\";".to_owned(), format!("trace_creation_datetime = \"{created_at}\";")] {
        assert_eq!(metadata.matches(&line).count(), 1, "{line}");
    }
}

#[test]
fn the_state_is_in_the_trace_if_it_was_asked_for() {
    let daemon = Daemon::start();
    let mut caller = Caller::start();
    for (name, asks, count) in [("none", true, 0), ("asked", true, 2), ("api", false, 1)] {
        let dir = daemon.path().join(name);
        let mode = json!({"local": {"output": dir}});
        let new = json!({"name": name, "format": "lttng", "mode": mode, "state_by_rule": asks});
        daemon.tell("POST", "/v1/sessions", Some(&new));
        let channels = format!("/v1/sessions/{name}/domains/kernel/channels");
        daemon.tell("POST", &channels, Some(&json!({"name": "channel0"})));
        let rules = format!("{channels}/channel0/rules");
        daemon.tell("POST", &rules, Some(&calls()));
        if name == "asked" {
            let state = json!({"name": "lttng_statedump_*", "instrumentation": "tracepoint"});
            daemon.tell("POST", &rules, Some(&state));
        }
        let trackers = format!("/v1/sessions/{name}/domains/kernel/trackers");
        daemon.tell("POST", &trackers, Some(&only(caller.pid())));
        // LTTng writes it at each start.
        for calls in [4, 6] {
            daemon.tell("POST", &format!("/v1/sessions/{name}/start"), None);
            caller.call(calls);
            caller.settle();
            daemon.tell("POST", &format!("/v1/sessions/{name}/stop"), None);
        }
        daemon.tell("DELETE", &format!("/v1/sessions/{name}"), None);
        let (text, _) = babeltrace::printed(&dir, &["--no-delta"]);
        let found = |event: &str| text.lines().filter(|line| line.contains(event)).count();
        let state = [" lttng_statedump_start: ", " lttng_statedump_end: "].map(found);
        let calls = found(" sys_enter: ") + found(" syscall_entry_getppid: ");
        assert_eq!((state, calls), ([count; 2], 10), "{name}");
    }
}

#[test]
fn the_environment_names_the_daemon_that_is_started() {
    let dir = tempfile::tempdir().unwrap();
    let (program, socket) = (dir.path().join("sessiond"), dir.path().join("daemon.sock"));
    fs::write(&program, "#!/bin/sh\necho \"$@\" > arguments\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut list = agent(dir.path(), ["ctl", "--socket", socket.to_str().unwrap(), "list"]);
    let ended = list.env("LTTNG_SESSIOND_PATH", &program).output().unwrap();
    assert!(!ended.status.success(), "it has started nothing: {ended:?}");
    let arguments = fs::read_to_string(dir.path().join("arguments")).unwrap();
    assert_eq!(arguments, format!("daemon --background --socket {}\n", socket.display()));
}
