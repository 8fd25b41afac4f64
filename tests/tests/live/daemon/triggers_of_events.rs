//! Triggers that events fire.

use std::sync::atomic::{AtomicBool, Ordering};

use integration_tests::{
    daemon::{Daemon, ROOT},
    harness::{Caller, wait_for},
};
use serde_json::{Value, json};

use super::{
    calls, files, found, only,
    triggers::{Listening, ctl, of_trigger, state},
    users::{ALICE, BOB},
};

/// The filter for the calls of a caller.
pub(super) fn of(caller: &Caller) -> String {
    format!("id == {} && $ctx.tid == {}", libc::SYS_getppid, caller.pid())
}

/// How often a trigger has fired, and how many matches were missed.
pub(super) fn counts(state: &Value) -> (u64, u64) {
    (state["fired"].as_u64().unwrap(), state["missed"].as_u64().unwrap())
}

#[test]
fn all_clients_of_the_owner_hear_what_is_captured() {
    let daemon = Daemon::start();
    let mut caller = Caller::named("trig-caller");
    let mut hear = [ALICE, ALICE, ROOT].map(|user| Listening::start(&daemon, user));
    let bob = Listening::start(&daemon, BOB);
    let filter = format!("--filter={}", of(&caller));
    let rule = ["--condition=event-rule-matches", "--type=kernel", "--name=raw_syscalls:sys_enter", &filter];
    let captures = ["--capture=id", "--capture=args[2]", "--capture=args[77]", "--capture=$ctx.procname"];
    let words = [&["add-trigger", "--name=each"][..], &rule, &captures, &["--action=notify"]].concat();
    assert_eq!(ctl(&daemon, ALICE, &words), "Added trigger `each`.\n");
    let policies =
        ["--action=notify", "--rate-policy=every:4", "--action=notify", "--rate-policy=once-after:9"];
    ctl(&daemon, ALICE, &[&["add-trigger", "--name=some"][..], &rule, &policies].concat());
    caller.call(10);
    wait_for("all of them", || (counts(&state(&daemon, "some")).0 == 10).then_some(()));
    for listening in &mut hear {
        listening.wait_until("\"count\":10");
    }
    for name in ["each", "some"] {
        assert_eq!(counts(&state(&daemon, name)), (10, 0));
    }
    let executed: Vec<u64> = state(&daemon, "some")["actions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| of["executed"].as_u64().unwrap())
        .collect();
    assert_eq!(executed, [2, 1]);
    daemon.stop().expect(0);
    for listening in hear {
        let lines = listening.end();
        let each = of_trigger(&lines, "each");
        let numbers =
            |lines: &[&Value]| lines.iter().map(|of| of["count"].as_u64().unwrap()).collect::<Vec<_>>();
        assert_eq!(numbers(&each), (1..=10).collect::<Vec<_>>());
        assert_eq!(numbers(&of_trigger(&lines, "some")), [4, 8, 9]);
        let event = &each[0]["found"]["event"];
        assert_eq!(
            (&event["event"], &event["tid"]),
            (&json!("raw_syscalls:sys_enter"), &json!(caller.pid()))
        );
        let captured = &event["captured"];
        assert_eq!((&captured["id"], &captured["args[77]"]), (&json!(libc::SYS_getppid), &Value::Null));
        assert!(captured["args[2]"].is_u64() || captured["args[2]"].is_i64(), "{captured}");
        assert_eq!(captured["$ctx.procname"], "trig-caller");
        assert_eq!(each[0]["uid"], ALICE.uid);
        let times: Vec<u64> =
            each.iter().map(|of| of["found"]["event"]["clock_ns"].as_u64().unwrap()).collect();
        assert!(times.is_sorted(), "{times:?}");
    }
    assert!(bob.end().is_empty(), "it is not his");
}

#[test]
fn events_start_and_stop_sessions() {
    let daemon = Daemon::start();
    let mut caller = Caller::start();
    let dir = daemon.path().join("out");
    daemon.session(ROOT, "one", &dir, &[calls()]);
    daemon.tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only(caller.pid())));
    let filter = format!("--filter=$ctx.tid == {}", caller.pid());
    let rule = ["--condition=event-rule-matches", "--type=kernel:syscall:entry", "--name=getppid", &filter];
    let actions =
        ["--action=stop-session", "one", "--rate-policy=once-after:12", "--action=start-session", "one"];
    let words = [&["add-trigger"][..], &rule, &actions, &["--rate-policy=once-after:2"]].concat();
    ctl(&daemon, ROOT, &words);
    let is_active = || daemon.tell("GET", "/v1/sessions/one", None)["active"] == true;
    caller.call(1);
    wait_for("the first call", || (counts(&state(&daemon, "trigger0")).0 == 1).then_some(()));
    assert!(!is_active());
    caller.call(1);
    wait_for("the start", || is_active().then_some(()));
    caller.call(10);
    wait_for("the stop", || (!is_active()).then_some(()));
    wait_for("its end", || (state(&daemon, "trigger0")["actions"][0]["executed"] == 1).then_some(()));
    caller.call(5);
    assert_eq!(found(&files(&dir)), 10);
    let removed = ctl(&daemon, ROOT, &["remove-trigger", "trigger0"]);
    assert_eq!(removed, "Removed trigger `trigger0`.\n");
}

#[test]
fn rates_are_told_when_they_are_reached() {
    let daemon = Daemon::start();
    let mut caller = Caller::start();
    let mut listening = Listening::start(&daemon, ROOT);
    let filter = format!("--filter={}", of(&caller));
    let rule = ["--condition=event-rate", "--type=kernel", "--name=raw_syscalls:sys_enter", &filter];
    ctl(&daemon, ROOT, &[&["add-trigger"][..], &rule, &["--above=1000", "--action=notify"]].concat());
    caller.call(10);
    let mut called = 0;
    wait_for("the rate", || {
        caller.call(20_000);
        called += 20_000;
        (counts(&state(&daemon, "trigger0")).0 == 1).then_some(())
    });
    listening.wait_until("event_rate");
    daemon.stop().expect(0);
    let lines = listening.end();
    let told = of_trigger(&lines, "trigger0");
    let rate = told[0]["found"]["event_rate"]["events"].as_u64().unwrap();
    assert!(told.len() == 1 && rate > 1000, "{told:?}");
}

#[test]
fn what_cannot_be_watched_is_refused_and_leaves_nothing() {
    let daemon = Daemon::start();
    let ask = |rule: Value, captures: Value| {
        let condition =
            json!({"event_rule_matches": {"domain": "kernel", "rule": rule, "captures": captures}});
        let new = json!({"condition": condition, "actions": [{"do": "notify"}]});
        let (status, answer) = daemon.ask("POST", "/v1/triggers", Some(&new));
        (status, answer["code"].as_str().unwrap_or_default().to_owned())
    };
    let switch =
        |filter: &str| json!({"name": "sched_switch", "instrumentation": "tracepoint", "filter": filter});
    let none = json!({"name": "no_such_event", "instrumentation": "tracepoint"});
    assert_eq!(ask(none, json!([])), (404, "no_event".into()));
    assert_eq!(ask(switch("no_field == 1"), json!([])), (422, "filter".into()));
    assert_eq!(ask(switch("prev_pid == "), json!([])), (422, "filter".into()));
    assert_eq!(ask(switch("prev_pid == 1"), json!(["no_field"])), (422, "invalid_trigger".into()));
    assert_eq!(daemon.tell("GET", "/v1/triggers", None), json!([]));
    let threads = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
        let names =
            tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
        names.filter(|name| name == "watch\n").count()
    };
    wait_for("the watch to end", || (threads() == 0).then_some(()));
    assert_eq!(ask(switch("prev_pid == 1"), json!(["prev_pid"])).0, 200);
    assert_eq!(threads(), 1);
    daemon.tell("DELETE", "/v1/triggers/trigger0", None);
    wait_for("the watch to end again", || (threads() == 0).then_some(()));
    daemon.stop().expect(0);
}

/// Ends what runs beside a test, also if that fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_trigger_that_fires_all_the_time_takes_nothing_from_others() {
    const FIRINGS: u64 = 200;
    const AT_ONCE: u64 = 8;
    let daemon = Daemon::start();
    let cpus = std::thread::available_parallelism().unwrap().get();
    let mut hot: Vec<Caller> = (0..cpus).map(|_| Caller::start()).collect();
    for (cpu, caller) in hot.iter().enumerate() {
        caller.pin(cpu);
    }
    let mut rare = Caller::start();
    let add = |user, name: &str, filter: &str| {
        let (name, filter) = (format!("--name={name}"), format!("--filter={filter}"));
        let rule =
            ["--condition=event-rule-matches", "--type=kernel", "--name=raw_syscalls:sys_enter", &filter];
        ctl(&daemon, user, &[&["add-trigger", &name][..], &rule, &["--action=notify"]].concat());
    };
    let of_hot = hot.iter().map(of).map(|filter| format!("({filter})")).collect::<Vec<_>>().join(" || ");
    add(ALICE, "hot", &of_hot);
    let names = ["of-alice", "of-bob", "of-root"];
    for (user, name) in [ALICE, BOB, ROOT].into_iter().zip(names) {
        add(user, name, &of(&rare));
    }
    let is_over = &AtomicBool::new(false);
    let mut fired = 0;
    std::thread::scope(|scope| {
        let _over = Over(is_over);
        for caller in &mut hot {
            scope.spawn(move || {
                while !is_over.load(Ordering::Acquire) {
                    caller.call(20_000);
                }
            });
        }
        wait_for("more than can be told", || (counts(&state(&daemon, "hot")).1 != 0).then_some(()));
        while fired < FIRINGS {
            rare.call(AT_ONCE);
            fired += AT_ONCE;
            wait_for("all of them", || {
                let is_known = |name: &&str| {
                    let (told, missed) = counts(&state(&daemon, name));
                    told + missed == fired
                };
                names.iter().all(is_known).then_some(())
            });
        }
    });
    for name in names {
        assert_eq!(counts(&state(&daemon, name)), (fired, 0), "{name}");
    }
    let all: u64 = hot.iter().map(Caller::calls).sum();
    wait_for("every match to be told or counted", || {
        let (told, missed) = counts(&state(&daemon, "hot"));
        (told + missed == all).then_some(())
    });
    daemon.stop().expect(0);
}

#[test]
fn a_watch_takes_of_its_users_share() {
    let daemon = Daemon::start_with(&["--user-memory", "1M"], 0o022);
    let rule = json!({"name": "sched_process_exec", "instrumentation": "tracepoint"});
    let condition = json!({"event_rule_matches": {"domain": "kernel", "rule": rule, "captures": []}});
    let new = json!({"condition": condition, "actions": [{"do": "notify"}]});
    let (status, answer) = daemon.ask_as(ALICE, "POST", "/v1/triggers", Some(&new));
    assert_eq!((status, &answer["code"]), (507, &json!("no_memory")), "{answer}");
    assert_eq!(daemon.tell("GET", "/v1/triggers", None), json!([]));
    assert_eq!(daemon.ask("POST", "/v1/triggers", Some(&new)).0, 200, "root has what there is");
    daemon.stop().expect(0);
}

#[test]
fn a_watch_takes_of_its_users_descriptors_until_it_ends() {
    let rule = json!({"name": "sched_process_exec", "instrumentation": "tracepoint"});
    let condition = json!({"event_rule_matches": {"domain": "kernel", "rule": rule, "captures": []}});
    let new = json!({"condition": condition, "actions": [{"do": "notify"}]});
    // A watch has 64, and each event 4.
    for limit in ["63", "67"] {
        let daemon = Daemon::start_with(&["--user-descriptors", limit], 0o022);
        let (status, answer) = daemon.ask_as(ALICE, "POST", "/v1/triggers", Some(&new));
        assert_eq!((status, &answer["code"]), (507, &json!("no_memory")), "{answer}");
        assert_eq!(daemon.tell("GET", "/v1/triggers", None), json!([]));
        daemon.stop().expect(0);
    }
    let daemon = Daemon::start_with(&["--user-descriptors", "68"], 0o022);
    for _ in 0..10 {
        let (status, answer) = daemon.ask_as(ALICE, "POST", "/v1/triggers", Some(&new));
        assert_eq!(status, 200, "{answer}");
        let more = daemon.ask_as(ALICE, "POST", "/v1/triggers", Some(&of_another_event(&new)));
        assert_eq!((more.0, &more.1["code"]), (507, &json!("no_memory")), "{more:?}");
        // All of it is free at once.
        assert_eq!(daemon.ask_as(ALICE, "DELETE", "/v1/triggers/trigger0", None).0, 200);
    }
    daemon.stop().expect(0);
}

/// The same trigger for another event.
fn of_another_event(new: &Value) -> Value {
    let mut new = new.clone();
    new["condition"]["event_rule_matches"]["rule"]["name"] = "sched_process_exit".into();
    new
}

/// Kilobytes of memory that a process has.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

mod soak {
    use super::*;

    #[test]
    fn a_storm_is_told_or_counted_and_disturbs_no_recording() {
        const CALLS: u64 = 1_000_000;
        let turns =
            std::env::var("TRACER_AGENT_SOAK").ok().and_then(|of| of.parse::<u64>().ok()).unwrap_or(1);
        let daemon = Daemon::start();
        let mut caller = Caller::start();
        let dir = daemon.path().join("out");
        daemon.session(ROOT, "one", &dir, &[calls()]);
        let channel = json!({"name": "more", "attributes": {"subbuf_size": 4 << 20, "num_subbuf": 8}});
        daemon.tell("POST", "/v1/sessions/one/domains/kernel/channels", Some(&channel));
        daemon.tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only(caller.pid())));
        daemon.tell("POST", "/v1/sessions/one/start", None);
        let listening = Listening::start(&daemon, ROOT);
        let filter = format!("--filter={}", of(&caller));
        let rule =
            ["--condition=event-rule-matches", "--type=kernel", "--name=raw_syscalls:sys_enter", &filter];
        ctl(&daemon, ROOT, &[&["add-trigger"][..], &rule, &["--action=notify"]].concat());
        let mut all = 0;
        let mut storm = |calls: u64| {
            caller.call(calls);
            all += calls;
            wait_for("every match to be told or counted", || {
                let (fired, missed) = counts(&state(&daemon, "trigger0"));
                (fired + missed == all).then_some(())
            });
        };
        storm(CALLS);
        let before = resident(daemon.pid());
        for _ in 0..2 * turns {
            storm(CALLS);
        }
        let grown = resident(daemon.pid()).saturating_sub(before);
        assert!(grown < 32 << 10, "{grown} KB more");
        let state = state(&daemon, "trigger0");
        let (fired, missed) = counts(&state);
        assert_eq!(state["actions"][0]["executed"], fired);
        assert_eq!(fired + missed, all);
        let stopped = daemon.tell("POST", "/v1/sessions/one/stop", None);
        // On a busy machine the session loses events, too: it counts these.
        assert_eq!(found(&files(&dir)) + stopped["discarded"].as_u64().unwrap(), all, "{stopped}");
        daemon.stop().expect(0);
        // Whoever listens is told each time that it fired, or how often that was left out.
        let lines = listening.end();
        let told = of_trigger(&lines, "trigger0").len() as u64;
        let others =
            lines.iter().filter(|line| line["what"] != "trigger" && line["what"] != "left_out").count();
        let left_out: u64 = lines
            .iter()
            .filter_map(|line| line["count"].as_u64().filter(|_| line["what"] == "left_out"))
            .sum();
        let missed_lines = lines.iter().filter(|line| line["what"] == "trigger_missed").count() as u64;
        assert!(
            told + left_out >= fired && told + left_out <= fired + others as u64 + missed_lines + 64,
            "{told} + {left_out}, {fired}"
        );
    }
}
