//! Triggers that go from one daemon to the next.

use std::os::unix::net::UnixListener;

use integration_tests::{
    daemon::{Daemon, ROOT},
    harness::{Caller, wait_for},
};
use serde_json::{Value, json};

use super::{
    calls, only,
    triggers::{Listening, ctl, of_trigger, state},
    triggers_of_events::{counts, of},
    users::{ALICE, BOB},
};

/// Waits until a daemon watches for events of a trigger.
fn wait_for_watch(daemon: &Daemon, name: &str) {
    wait_for("the watch", || state(daemon, name)["problem"].is_null().then_some(()));
}

/// How often a trigger's actions were due, and how often they have failed.
fn done(state: &Value) -> Vec<(u64, u64)> {
    let number = |of: &Value, what: &str| of[what].as_u64().unwrap();
    state["actions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| (number(of, "executed"), number(of, "failed")))
        .collect()
}

#[test]
fn counts_and_rate_policies_go_on() {
    let mut daemon = Daemon::start_supervised();
    let mut caller = Caller::start();
    let filter = format!("--filter={}", of(&caller));
    let rule = ["--condition=event-rule-matches", "--type=kernel", "--name=raw_syscalls:sys_enter", &filter];
    let policies =
        ["--action=notify", "--rate-policy=every:4", "--action=notify", "--rate-policy=once-after:9"];
    ctl(&daemon, ALICE, &[&["add-trigger", "--name=some"][..], &rule, &policies].concat());
    ctl(&daemon, ROOT, &[&["add-trigger"][..], &rule, &["--action=notify"]].concat());
    let about_rotations = ["add-trigger", "--condition=session-rotation-ongoing", "--session=s"];
    ctl(&daemon, ROOT, &[&about_rotations[..], &["--action=notify"]].concat());
    caller.call(6);
    wait_for("all of them", || (state(&daemon, "some")["fired"] == 6).then_some(()));
    wait_for("all of them", || (state(&daemon, "trigger0")["fired"] == 6).then_some(()));
    let before = daemon.tell("GET", "/v1/triggers", None);
    let interrupted = Listening::start(&daemon, ALICE);
    daemon.replace();
    assert!(interrupted.end().is_empty());
    let mut listening = Listening::start(&daemon, ALICE);
    wait_for_watch(&daemon, "some");
    wait_for_watch(&daemon, "trigger0");
    // All is as before, but that nobody has watched for a while.
    let mut after = daemon.tell("GET", "/v1/triggers", None);
    for (trigger, interruptions) in after.as_array_mut().unwrap().iter_mut().zip([1, 0, 1]) {
        assert_eq!(trigger["interruptions"], interruptions, "{trigger}");
        trigger["interruptions"] = 0.into();
    }
    assert_eq!(after, before);
    let listed = ctl(&daemon, ROOT, &["list-triggers"]);
    let document = ctl(&daemon, ROOT, &["--mi", "xml", "list-triggers"]);
    let all = ["trigger0", "trigger1", "some"];
    let in_list: Vec<_> = listed.lines().filter_map(|line| line.strip_prefix("- name: ")).collect();
    assert_eq!(in_list, all, "{listed}");
    assert!(listed.contains("    errors:\n      interruptions of the watch: 1\n"), "{listed}");
    let in_document = document.split("<trigger><name>").skip(1).filter_map(|of| of.split('<').next());
    let in_document: Vec<_> = in_document.collect();
    assert_eq!(in_document, all, "{document}");
    assert_eq!(document.matches("<name>interruptions of the watch</name>").count(), 2, "{document}");
    caller.call(6);
    listening.wait_until("\"count\":12");
    assert_eq!(done(&state(&daemon, "some")), [(3, 0), (1, 0)]);
    assert_eq!(state(&daemon, "some")["fired"], 12);
    // A name that is free is free there, too.
    let added = ctl(&daemon, ROOT, &[&about_rotations[..], &["--action=notify"]].concat());
    assert_eq!(added, "Added trigger `trigger2`.\n");
    daemon.replace();
    wait_for_watch(&daemon, "some");
    assert_eq!(state(&daemon, "some")["interruptions"], 2);
    let lines = listening.end();
    let numbers: Vec<u64> =
        of_trigger(&lines, "some").iter().map(|line| line["count"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [8, 9, 12]);
    daemon.tell("DELETE", &format!("/v1/triggers/some?uid={}", ALICE.uid), None);
    daemon.stop().expect(0);
}

#[test]
fn what_has_come_of_the_events_of_each_user_is_told_or_missed() {
    const CALLS: u64 = 500;
    let mut daemon = Daemon::start_supervised();
    let mut caller = Caller::start();
    let filter = format!("--filter={}", of(&caller));
    let rule = ["--condition=event-rule-matches", "--type=kernel", "--name=raw_syscalls:sys_enter", &filter];
    let users = [(ALICE, "of-alice"), (BOB, "of-bob"), (ROOT, "of-root")];
    for (user, name) in users {
        let name = format!("--name={name}");
        ctl(&daemon, user, &[&["add-trigger", &name][..], &rule, &["--action=notify"]].concat());
    }
    caller.call(CALLS);
    // What is in the rings is read before another daemon goes on.
    daemon.replace();
    for (_, name) in &users {
        wait_for_watch(&daemon, name);
    }
    let known = |daemon: &Daemon, name: &str| {
        let (fired, missed) = counts(&state(daemon, name));
        fired + missed
    };
    for (_, name) in users {
        assert_eq!(known(&daemon, name), CALLS, "{name}");
        assert_eq!(state(&daemon, name)["interruptions"], 1, "{name}");
    }
    caller.call(10);
    for (_, name) in users {
        wait_for("all of them", || (known(&daemon, name) == CALLS + 10).then_some(()));
    }
    daemon.stop().expect(0);
}

#[test]
fn a_level_that_was_reached_does_not_fire_again() {
    let mut daemon = Daemon::start_supervised();
    let mut caller = Caller::start();
    daemon.session(ROOT, "one", &daemon.path().join("out"), &[calls()]);
    daemon.tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only(caller.pid())));
    let add = |name: &str, threshold: &str| {
        let condition = ["--condition=session-consumed-size", "--session=one", "--threshold", threshold];
        ctl(
            &daemon,
            ROOT,
            &[&["add-trigger", "--name", name][..], &condition, &["--action=notify"]].concat(),
        );
    };
    add("less", "64K");
    // Far more than is stored until the smaller one is seen to have been reached.
    add("more", "4M");
    daemon.tell("POST", "/v1/sessions/one/start", None);
    // How much calls take depends on how well their times can be compressed.
    wait_for("the size", || {
        caller.call(1000);
        (state(&daemon, "less")["fired"] == 1).then_some(())
    });
    daemon.replace();
    let mut listening = Listening::start(&daemon, ROOT);
    // What this daemon stores counts with what the one before has stored.
    wait_for("more", || {
        caller.call(100_000);
        (state(&daemon, "more")["fired"] == 1).then_some(())
    });
    listening.wait_until("\"trigger\":\"more\"");
    let state = ["less", "more"].map(|name| state(&daemon, name));
    assert_eq!([&state[0]["fired"], &state[1]["fired"]], [1, 1]);
    assert_eq!(state[0]["interruptions"], 0, "sizes are looked at, whoever has watched");
    daemon.stop().expect(0);
    assert!(of_trigger(&listening.end(), "less").is_empty());
}

#[test]
fn actions_that_take_too_long_have_failed() {
    const TIMES: u64 = 6;
    let mut daemon = Daemon::start_supervised();
    let mut caller = Caller::start();
    let socket = daemon.path().join("silent");
    // It never answers: each time takes two seconds.
    let _silent = UnixListener::bind(&socket).unwrap();
    let filter = format!("--filter={}", of(&caller));
    let rule = ["--condition=event-rule-matches", "--type=kernel", "--name=raw_syscalls:sys_enter", &filter];
    let actions = ["--action=post", socket.to_str().unwrap(), "--action=notify"];
    ctl(&daemon, ROOT, &[&["add-trigger", "--name=slow"][..], &rule, &actions].concat());
    caller.call(TIMES);
    wait_for("all of them", || (state(&daemon, "slow")["fired"] == TIMES).then_some(()));
    daemon.replace();
    let state = state(&daemon, "slow");
    let done = done(&state);
    assert_eq!(done[0], (TIMES, TIMES), "{state}");
    assert_eq!(done[1].0, TIMES, "{state}");
    // Those behind one that had its time were done.
    assert!((1..=TIMES - 1).contains(&done[1].1), "{state}");
    let why = state["actions"][0]["last_failure"].as_str().unwrap();
    assert_eq!(why, "it was not done when the daemon was replaced");
    daemon.stop().expect(0);
}

/// Replaces a daemon, with what it hands over changed: the head, and the triggers.
fn replace_with(daemon: &mut Daemon, change: impl FnOnce(&mut [Value])) {
    daemon.let_go();
    let parcels = daemon.supervisor().parcels();
    let mut all = parcels.receive().unwrap().unwrap();
    let mut documents: Vec<Value> =
        all.iter().map(|(document, _)| serde_json::from_slice(document).unwrap()).collect();
    change(&mut documents);
    for ((of, _), document) in all.iter_mut().zip(documents) {
        *of = document.to_string().into_bytes();
    }
    let parts: Vec<_> =
        all.iter().map(|(document, descriptors)| (document.as_slice(), descriptors)).collect();
    parcels.send(&parts).unwrap();
    drop(parts);
    drop((all, parcels));
    daemon.start_again();
}

#[test]
fn what_comes_from_another_build_is_checked() {
    let mut daemon = Daemon::start_supervised();
    let rotation = json!({"rotation_ongoing": {"session": "s"}});
    let rule = json!({"name": "sched_process_exec", "instrumentation": "tracepoint"});
    let event = json!({"event_rule_matches": {"domain": "kernel", "rule": rule}});
    for (name, condition) in
        [("a", &rotation), ("b", &rotation), ("c", &event), ("d", &event), ("e", &rotation)]
    {
        let new = json!({"name": name, "condition": condition, "actions": [{"do": "notify"}]});
        daemon.tell("POST", "/v1/triggers", Some(&new));
    }
    let names = |daemon: &Daemon| {
        let all = daemon.tell("GET", "/v1/triggers", None);
        all.as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    replace_with(&mut daemon, |all| {
        assert_eq!(all.len(), 6, "the head, and the triggers");
        all[1]["trigger"]["actions"] = json!([]);
        all[2]["trigger"]["condition"] = json!({"of_another_build": {}});
        all[3]["trigger"]["condition"]["event_rule_matches"]["rule"]["name"] = "no_such_event".into();
        all[5]["trigger"]["name"] = "c".into();
    });
    assert_eq!(names(&daemon), ["c", "d"]);
    assert!(daemon.has_said("handed over is left out: a trigger has 1 to 64 actions"));
    assert!(daemon.has_said("of_another_build"));
    // One whose event this kernel does not have says so, and can be removed.
    wait_for_watch(&daemon, "d");
    wait_for("the problem", || {
        let problem = state(&daemon, "c")["problem"].as_str()?.to_owned();
        problem.contains("no_such_event").then_some(())
    });
    let listed = ctl(&daemon, ROOT, &["list-triggers"]);
    assert!(listed.contains("      not looked at: ") && listed.contains("no_such_event"), "{listed}");
    daemon.tell("DELETE", "/v1/triggers/c", None);
    replace_with(&mut daemon, |all| all[0]["version"] = 99.into());
    assert!(names(&daemon).is_empty());
    assert!(daemon.has_said("it is of version 99"));
    daemon.stop().expect(0);
}
