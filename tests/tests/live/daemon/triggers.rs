//! Triggers: conditions about sessions and the machine, actions, and whose they are.

use std::{
    io::{Read as _, Write as _},
    os::unix::{fs::PermissionsExt as _, net::UnixListener, process::CommandExt as _},
    path::Path,
};

use integration_tests::{
    daemon::{Daemon, ROOT, User},
    harness::{Caller, Running, agent, program, run, wait_for},
};
use serde_json::{Value, json};

use super::{
    calls, files, only,
    users::{ALICE, BOB},
};

/// The daemon's notifications as a user hears them.
pub(super) struct Listening(Running);

impl Listening {
    pub(super) fn start(daemon: &Daemon, user: User) -> Self {
        let mut curl = program(daemon.path(), "curl", ["--silent", "--no-buffer", "--dump-header", "-"]);
        curl.arg("--unix-socket").arg(daemon.socket()).arg("http://localhost/v1/notifications");
        let mut listening = Running::start(curl.gid(user.gid).uid(user.uid));
        listening.wait_until_out("application/jsonlines");
        Self(listening)
    }

    pub(super) fn wait_until(&mut self, text: &str) {
        self.0.wait_until_out(text);
    }

    /// What was heard until the daemon ended.
    pub(super) fn end(self) -> Vec<Value> {
        let out = self.0.wait().out;
        out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

/// The lines of a trigger.
pub(super) fn of_trigger<'a>(lines: &'a [Value], name: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["what"] == "trigger" && line["trigger"] == name).collect()
}

/// Runs `ctl` as a user; gives what it prints.
#[track_caller]
pub(super) fn ctl(daemon: &Daemon, user: User, words: &[&str]) -> String {
    let socket = daemon.socket();
    let mut command = agent(daemon.path(), ["ctl", "-n", "--socket", socket.to_str().unwrap()]);
    command.args(words).env("HOME", daemon.path()).gid(user.gid).uid(user.uid);
    run(&mut command).expect(0).out
}

/// A trigger as root sees it.
#[track_caller]
pub(super) fn state(daemon: &Daemon, name: &str) -> Value {
    let all = daemon.tell("GET", "/v1/triggers", None);
    all.as_array().unwrap().iter().find(|of| of["name"] == name).unwrap().clone()
}

fn is_active(daemon: &Daemon, session: &str) -> bool {
    daemon.tell("GET", &format!("/v1/sessions/{session}"), None)["active"] == true
}

fn add(daemon: &Daemon, user: User, condition: &Value, actions: &Value) -> Value {
    let new = json!({"condition": condition, "actions": actions});
    daemon.tell_as(user, "POST", "/v1/triggers", Some(&new))
}

/// A session of root that keeps its newest events, with a small ring of the caller's calls.
pub(super) fn snapshot_session(daemon: &Daemon, name: &str, dir: &Path, caller: &Caller) {
    let new = json!({"name": name, "mode": "snapshot", "snapshot_output": dir});
    daemon.tell("POST", "/v1/sessions", Some(&new));
    let channels = format!("/v1/sessions/{name}/domains/kernel/channels");
    let attributes = json!({"subbuf_size": 4096, "num_subbuf": 16, "monitor_timer_us": 20_000});
    let channel = json!({"name": "channel0", "attributes": attributes});
    daemon.tell("POST", &channels, Some(&channel));
    daemon.tell("POST", &format!("{channels}/channel0/rules"), Some(&calls()));
    let trackers = format!("/v1/sessions/{name}/domains/kernel/trackers");
    daemon.tell("POST", &trackers, Some(&only(caller.pid())));
}

#[test]
fn rotations_start_sessions() {
    let daemon = Daemon::start();
    let (one, two) = (daemon.path().join("one"), daemon.path().join("two"));
    daemon.session(ROOT, "one", &one, &[calls()]);
    daemon.session(ROOT, "two", &two, &[calls()]);
    let mut listening = Listening::start(&daemon, ROOT);
    let condition = "--condition=session-rotation-completed";
    let actions = ["--action=start-session", "two", "--action=notify"];
    let words = [&["add-trigger", "--name=done", condition, "--session=one"][..], &actions].concat();
    assert_eq!(ctl(&daemon, ROOT, &words), "Added trigger `done`.\n");
    add(&daemon, ROOT, &json!({"rotation_ongoing": {"session": "one"}}), &json!([{"do": "notify"}]));
    daemon.tell("POST", "/v1/sessions/one/start", None);
    daemon.tell("POST", "/v1/sessions/one/rotations", None);
    listening.wait_until("\"trigger\":\"done\"");
    assert!(is_active(&daemon, "two"), "the notification comes after the start, as the actions say");
    let done = state(&daemon, "done");
    assert_eq!((&done["fired"], &done["actions"][0]["executed"]), (&json!(1), &json!(1)), "{done}");
    // It is started already: that is no failure.
    daemon.tell("POST", "/v1/sessions/one/rotations", None);
    wait_for("the second time", || (state(&daemon, "done")["fired"] == 2).then_some(()));
    wait_for("its actions", || (state(&daemon, "done")["actions"][1]["executed"] == 2).then_some(()));
    assert_eq!(state(&daemon, "done")["actions"][0]["failed"], 0);
    for name in ["one", "two"] {
        daemon.tell("DELETE", &format!("/v1/sessions/{name}"), None);
    }
    assert_eq!(files(&two).len(), 1);
    daemon.stop().expect(0);
    let lines = listening.end();
    let [ongoing, done] = ["trigger0", "done"].map(|name| of_trigger(&lines, name));
    assert_eq!(ongoing[0]["found"]["rotation"], json!({"id": 0, "path": null}));
    let path = done[0]["found"]["rotation"]["path"].as_str().unwrap();
    assert!(path.starts_with(one.to_str().unwrap()), "{path}");
}

#[test]
fn what_is_stored_rotates_and_full_rings_take_snapshots() {
    let daemon = Daemon::start();
    let (out, snapshots, elsewhere) =
        (daemon.path().join("out"), daemon.path().join("snapshots"), daemon.path().join("elsewhere"));
    let mut caller = Caller::start();
    daemon.session(ROOT, "one", &out, &[calls()]);
    daemon.tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only(caller.pid())));
    snapshot_session(&daemon, "ring", &snapshots, &caller);
    let size = ["--condition=session-consumed-size", "--session=one", "--threshold=16K"];
    let rotate = ["--action=rotate-session", "one"];
    ctl(&daemon, ROOT, &[&["add-trigger", "--name=size"][..], &size, &rotate].concat());
    let high = ["--condition=buffer-usage-high", "--session=ring", "--channel=channel0", "--threshold=50%"];
    let path = format!("--path={}", elsewhere.display());
    let snapshot = ["--action=snapshot-session", "ring", &path, "--name=full"];
    ctl(&daemon, ROOT, &[&["add-trigger", "--name=high"][..], &high, &snapshot].concat());
    for session in ["one", "ring"] {
        daemon.tell("POST", &format!("/v1/sessions/{session}/start"), None);
    }
    // They are looked at, and nothing has come yet.
    let low = ["--condition=buffer-usage-low", "--session=ring", "--channel=channel0", "--threshold=0"];
    ctl(&daemon, ROOT, &[&["add-trigger", "--name=low"][..], &low, &["--action=notify"]].concat());
    wait_for("the empty ring", || (state(&daemon, "low")["fired"] == 1).then_some(()));
    assert_eq!([&state(&daemon, "size")["fired"], &state(&daemon, "high")["fired"]], [0, 0]);
    caller.call(60_000);
    wait_for("the rotation", || {
        let rotation = daemon.ask("GET", "/v1/sessions/one/rotations/0", None).1;
        (rotation["state"] == "completed").then_some(())
    });
    wait_for("the snapshot", || (state(&daemon, "high")["actions"][0]["executed"] == 1).then_some(()));
    wait_for("its file", || {
        elsewhere.exists().then(|| files(&elsewhere).pop())?.filter(|of| of.extension().is_some())
    });
    let name = files(&elsewhere)[0].file_name().unwrap().to_str().unwrap().to_owned();
    assert!(name.starts_with("full-"), "{name}");
    for name in ["size", "high", "low"] {
        let state = state(&daemon, name);
        assert_eq!((&state["fired"], &state["actions"][0]["failed"]), (&json!(1), &json!(0)), "{state}");
    }
    // A session that is not there is nothing to do, and one of another mode a failure.
    add(
        &daemon,
        ROOT,
        &json!({"rotation_ongoing": {"session": "one"}}),
        &json!([{"do": {"stop_session": {"session": "none"}}}, {"do": {"snapshot_session": {"session": "one"}}},
            {"do": {"stop_session": {"session": "ring"}}}]),
    );
    daemon.tell("POST", "/v1/sessions/one/rotations", None);
    wait_for("the stop", || (!is_active(&daemon, "ring")).then_some(()));
    let actions = state(&daemon, "trigger0")["actions"].clone();
    let failed: Vec<_> = actions.as_array().unwrap().iter().map(|of| of["failed"].clone()).collect();
    assert_eq!(failed, [0, 1, 0], "{actions}");
    let why = actions[1]["last_failure"].as_str().unwrap();
    assert!(why.contains("non-snapshot"), "{why}");
    let listed = ctl(&daemon, ROOT, &["list-triggers"]);
    assert!(listed.contains("      errors:\n        total execution failures: 1\n"), "{listed}");
}

#[test]
fn notifications_are_posted_as_the_user() {
    let daemon = Daemon::start();
    let home = daemon.directory_of(ALICE, "home");
    let path = home.join("hook");
    let hook = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&path, Some(ALICE.uid), Some(ALICE.gid)).unwrap();
    let not_hers = daemon.path().join("of-root");
    let of_root = UnixListener::bind(&not_hers).unwrap();
    std::fs::set_permissions(&not_hers, std::fs::Permissions::from_mode(0o600)).unwrap();
    of_root.set_nonblocking(true).unwrap();
    daemon.session(ALICE, "one", &home.join("out"), &[calls()]);
    let add = |name: &str, socket: &Path| {
        let socket = socket.to_str().unwrap();
        let condition = ["--condition=session-rotation-ongoing", "--session=one"];
        let name = format!("--name={name}");
        ctl(&daemon, ALICE, &[&["add-trigger", &name][..], &condition, &["--action=post", socket]].concat());
    };
    add("hers", &path);
    add("of-root", &not_hers);
    daemon.tell_as(ALICE, "POST", "/v1/sessions/one/start", None);
    daemon.tell_as(ALICE, "POST", "/v1/sessions/one/rotations", None);
    let (mut posted, _) = hook.accept().unwrap();
    let peer = rustix::net::sockopt::socket_peercred(&posted).unwrap();
    assert_eq!(peer.uid.as_raw(), ALICE.uid, "the service sees who it is for");
    assert_eq!(peer.gid.as_raw(), ALICE.gid);
    let mut request = Vec::new();
    while !request.ends_with(b"}}}") {
        let mut chunk = [0; 4096];
        let count = posted.read(&mut chunk).unwrap();
        assert_ne!(count, 0, "{}", String::from_utf8_lossy(&request));
        request.extend_from_slice(&chunk[..count]);
    }
    posted.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    let request = String::from_utf8(request).unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST / HTTP/1.1\r\n") && head.contains("application/json"), "{head}");
    let told: Value = serde_json::from_str(body).unwrap();
    assert_eq!((&told["trigger"], &told["found"]["rotation"]["id"]), (&json!("hers"), &json!(0)));
    wait_for("the refusal", || (state(&daemon, "of-root")["actions"][0]["failed"] == 1).then_some(()));
    let why = state(&daemon, "of-root")["actions"][0]["last_failure"].clone();
    assert!(why.as_str().unwrap().contains("Permission denied"), "{why}");
    assert!(of_root.accept().is_err(), "nobody has connected with the rights of root");
    // What answers otherwise is a failure.
    daemon.tell_as(ALICE, "POST", "/v1/sessions/one/rotations", None);
    let (mut posted, _) = hook.accept().unwrap();
    posted.write_all(b"HTTP/1.1 500 No\r\n\r\n").unwrap();
    wait_for("the failure", || (state(&daemon, "hers")["actions"][0]["failed"] == 1).then_some(()));
    assert_eq!(daemon.tell_as(ALICE, "GET", "/v1/daemon", None)["uid"], ALICE.uid);
}

#[test]
fn triggers_belong_to_users() {
    let daemon = Daemon::start();
    let words = ["add-trigger", "--condition=session-rotation-ongoing", "--session=s", "--action=notify"];
    assert_eq!(ctl(&daemon, ALICE, &words), "Added trigger `trigger0`.\n");
    assert_eq!(ctl(&daemon, BOB, &words), "Added trigger `trigger0`.\n", "each has names of its own");
    let of_alice = format!("--owner-uid={}", ALICE.uid);
    let words = [&["add-trigger", &of_alice, "--name=more"][..], &words[1..]].concat();
    assert_eq!(ctl(&daemon, ROOT, &words), "Added trigger `more`.\n");
    let owners = |user: User| {
        let all = daemon.tell_as(user, "GET", "/v1/triggers", None);
        let of = |trigger: &Value| {
            (trigger["uid"].as_u64().unwrap(), trigger["name"].as_str().unwrap().to_owned())
        };
        all.as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    let (alice, bob) = (u64::from(ALICE.uid), u64::from(BOB.uid));
    let first = "trigger0".to_owned();
    assert_eq!(owners(ALICE), [(alice, "more".into()), (alice, first.clone())]);
    assert_eq!(owners(BOB), [(bob, first.clone())]);
    assert_eq!(owners(ROOT), [(alice, "more".into()), (alice, first.clone()), (bob, first)]);
    let of_bob = format!("/v1/triggers/trigger0?uid={}", BOB.uid);
    assert_eq!(daemon.ask_as(ALICE, "DELETE", &of_bob, None).0, 403);
    let refused = ["ctl", "-n", "remove-trigger", "--owner-uid=54322", "trigger0"];
    let mut command = agent(daemon.path(), refused);
    command.env("TRACER_AGENT_SOCKET", daemon.socket()).gid(ALICE.gid).uid(ALICE.uid);
    run(&mut command).expect(1).says(&["Couldn't find trigger with name `trigger0`."]);
    let removed = ctl(&daemon, ROOT, &["remove-trigger", "--owner-uid=54322", "trigger0"]);
    assert_eq!(removed, "Removed trigger `trigger0`.\n");
    assert!(owners(BOB).is_empty());
}

#[test]
fn actions_are_on_sessions_of_the_owner() {
    let daemon = Daemon::start();
    for (user, name) in [(ALICE, "alice"), (BOB, "bob")] {
        daemon.session(user, "same", &daemon.directory_of(user, name), &[calls()]);
    }
    daemon.session(ALICE, "cause", &daemon.directory_of(ALICE, "cause"), &[calls()]);
    let actions = json!([{"do": {"start_session": {"session": "same"}}}, {"do": "notify"}]);
    add(&daemon, ALICE, &json!({"rotation_ongoing": {"session": "cause"}}), &actions);
    // Bob's is about a session that only Alice has.
    add(&daemon, BOB, &json!({"rotation_ongoing": {"session": "cause"}}), &actions);
    let (mut alice, bob) = (Listening::start(&daemon, ALICE), Listening::start(&daemon, BOB));
    daemon.tell_as(ALICE, "POST", "/v1/sessions/cause/start", None);
    daemon.tell_as(ALICE, "POST", "/v1/sessions/cause/rotations", None);
    alice.wait_until("\"trigger\":\"trigger0\"");
    let all = daemon.tell("GET", "/v1/triggers", None);
    let active = |user| daemon.tell_as(user, "GET", "/v1/sessions/same", None)["active"].clone();
    assert_eq!((active(ALICE), active(BOB)), (json!(true), json!(false)), "{all}");
    daemon.stop().expect(0);
    assert_eq!(of_trigger(&alice.end(), "trigger0").len(), 1);
    assert!(bob.end().is_empty());
}

#[test]
fn pressure_is_told() {
    let daemon = Daemon::start();
    let mut listening = Listening::start(&daemon, ROOT);
    let condition = ["--condition=pressure", "--resource=cpu", "--share=some", "--above=0.05"];
    ctl(&daemon, ROOT, &[&["add-trigger"][..], &condition, &["--action=notify"]].concat());
    let busy = std::thread::available_parallelism().unwrap().get() + 2;
    let spin = ["-c", "while :; do :; done"];
    let all: Vec<_> = (0..busy).map(|_| Running::start(&mut program(daemon.path(), "sh", spin))).collect();
    listening.wait_until("\"trigger\":\"trigger0\"");
    for of in all {
        of.signal(libc::SIGKILL);
        of.wait();
    }
    daemon.stop().expect(0);
    let told = listening.end();
    let hundredths = told[0]["found"]["pressure"]["hundredths"].as_u64().unwrap();
    assert!((6..=10_000).contains(&hundredths), "{told:?}");
}

/// Sends a request again and again, as a user of the group would; gives the statuses.
fn ask_often(daemon: &Daemon, body: &Value, times: usize) -> Vec<u16> {
    let body = body.to_string();
    let head = "POST /v1/triggers HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    let status = |_| {
        let mut stream = std::os::unix::net::UnixStream::connect(daemon.socket()).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.strip_prefix("HTTP/1.1 ").unwrap()[..3].parse().unwrap()
    };
    (0..times).map(status).collect()
}

#[test]
fn one_user_has_a_thousand_and_not_many_more() {
    let daemon = Daemon::start();
    let mut listening = Listening::start(&daemon, ROOT);
    let rule = json!({"name": "sched_process_exec", "instrumentation": "tracepoint",
        "filter": "filename == \"/bin/true\""});
    let of_events = json!({"condition": {"event_rule_matches": {"domain": "kernel", "rule": rule,
        "captures": ["filename"]}}, "actions": [{"do": "notify"}]});
    assert_eq!(ask_often(&daemon, &of_events, 1000), [200; 1000]);
    let of_rotations =
        json!({"condition": {"rotation_ongoing": {"session": "s"}}, "actions": [{"do": "notify"}]});
    let statuses = ask_often(&daemon, &of_rotations, 30);
    assert_eq!((&statuses[..24], &statuses[24..]), (&[200; 24][..], &[507; 6][..]));
    run(&mut program(daemon.path(), "/bin/true", [""; 0])).expect(0);
    listening.wait_until("\"trigger\":\"trigger999\"");
    daemon.tell("DELETE", "/v1/triggers/trigger5", None);
    assert_eq!(ask_often(&daemon, &of_rotations, 2), [200, 507]);
    daemon.stop().expect(0);
    let lines = listening.end();
    let names: std::collections::BTreeSet<_> =
        lines.iter().map(|line| line["trigger"].as_str().unwrap().to_owned()).collect();
    assert_eq!(
        (names.len(), lines[0]["found"]["event"]["captured"]["filename"].as_str()),
        (1000, Some("/bin/true"))
    );
}
