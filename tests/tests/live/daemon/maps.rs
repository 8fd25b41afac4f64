//! Maps of sessions: counted beside recordings of the same events, over pauses and daemons.

use std::{
    io::{Read as _, Write as _},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use integration_tests::{
    daemon::{Daemon, ROOT, User},
    harness::{Caller, run, wait_for},
};
use serde_json::{Value, json};

use super::{
    calls, files, found, only,
    triggers::ctl,
    users::{ALICE, BOB},
};

const CALLS: &str = "raw_syscalls:sys_enter: id == 110 by $pid";

/// A session that writes nothing.
fn session(daemon: &Daemon, user: User, name: &str) {
    let new = json!({"name": name, "mode": {"local": {"output": null}}});
    daemon.tell_as(user, "POST", "/v1/sessions", Some(&new));
}

fn counting(name: &str, text: &str) -> Value {
    json!({"name": name, "question": {"count": text}})
}

/// The maps of a session.
fn maps(daemon: &Daemon, session: &str) -> Vec<Value> {
    daemon.tell("GET", &format!("/v1/sessions/{session}/maps"), None).as_array().unwrap().clone()
}

/// The sum of a map's counts.
fn count(map: &Value) -> u64 {
    map["entries"].as_array().unwrap().iter().map(|entry| entry["count"].as_u64().unwrap()).sum()
}

#[test]
fn a_map_counts_what_its_session_records() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    daemon.session(ROOT, "one", &dir, &[calls()]);
    daemon.tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only(caller.pid())));
    daemon.tell("POST", "/v1/sessions/one/maps", Some(&counting("before", CALLS)));
    caller.call(1000);
    let mut expected = 0;
    for turn in 1..=2 {
        daemon.tell("POST", "/v1/sessions/one/start", None);
        let before = caller.calls();
        caller.call(10_000);
        if turn == 2 {
            daemon.tell("POST", "/v1/sessions/one/maps", Some(&counting("later", CALLS)));
        }
        let later = caller.calls();
        caller.call(5000);
        caller.settle();
        daemon.tell("POST", "/v1/sessions/one/stop", None);
        expected += caller.calls() - before;
        caller.call(1000);
        let maps = maps(&daemon, "one");
        let made = files(&dir);
        assert_eq!((count(&maps[0]), found(&made)), (expected, expected), "{maps:?}");
        assert_eq!(maps[0]["entries"][0]["key"], json!([caller.pid()]));
        assert_eq!(maps[0]["of"], json!({"session": "one"}));
        if turn == 2 {
            assert_eq!(count(&maps[1]), caller.calls() - 1000 - later, "{maps:?}");
        }
    }
    // What is tracked changes for maps as for recordings.
    daemon.tell("POST", "/v1/sessions/one/start", None);
    let all = json!({"attribute": "pid", "values": "all", "add": false});
    daemon.tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&all));
    caller.call(3000);
    caller.settle();
    assert_eq!(count(&maps(&daemon, "one")[0]), expected, "nobody is tracked");
    let removed = daemon.tell("DELETE", "/v1/sessions/one/maps/before", None);
    assert_eq!((count(&removed), maps(&daemon, "one").len()), (expected, 1));
    daemon.tell("POST", "/v1/sessions/one/clear", None);
    assert_eq!(count(&maps(&daemon, "one")[0]), 0);
    daemon.tell("DELETE", "/v1/sessions/one", None);
    daemon.stop().expect(0);
}

#[test]
fn a_session_may_have_maps_only() {
    let daemon = Daemon::start();
    let mut caller = Caller::start();
    let dir = daemon.path().join("out");
    let new = json!({"name": "m", "mode": {"local": {"output": dir}}});
    daemon.tell("POST", "/v1/sessions", Some(&new));
    assert_eq!(daemon.ask("POST", "/v1/sessions/m/start", None).1["code"], "no_channel");
    daemon.tell("POST", "/v1/sessions/m/domains/kernel/trackers", Some(&only(caller.pid())));
    daemon.tell("POST", "/v1/sessions/m/maps", Some(&counting("calls", CALLS)));
    daemon.tell("POST", "/v1/sessions/m/start", None);
    caller.call(4000);
    assert_eq!(count(&maps(&daemon, "m")[0]), 4000);
    assert!(!dir.exists(), "nothing is recorded");
    // From here on something is.
    let channels = "/v1/sessions/m/domains/kernel/channels";
    daemon.tell("POST", channels, Some(&json!({"name": "channel0"})));
    daemon.tell("POST", &format!("{channels}/channel0/rules"), Some(&calls()));
    caller.call(2000);
    caller.settle();
    daemon.tell("POST", "/v1/sessions/m/stop", None);
    assert_eq!((count(&maps(&daemon, "m")[0]), found(&files(&dir))), (6000, 2000));
    // Calls are not counted while it is stopped, and a stop needs no recording.
    session(&daemon, ROOT, "n");
    daemon.tell("POST", "/v1/sessions/n/maps", Some(&counting("calls", CALLS)));
    daemon.tell("POST", "/v1/sessions/n/start", None);
    daemon.tell("POST", "/v1/sessions/n/stop", None);
    caller.call(1000);
    assert!(
        maps(&daemon, "n")[0]["entries"]
            .as_array()
            .unwrap()
            .iter()
            .all(|e| e["key"] != json!([caller.pid()]))
    );
    daemon.tell("DELETE", "/v1/sessions/n", None);
    daemon.stop().expect(0);
}

#[test]
fn maps_that_cannot_be_are_refused() {
    let daemon = Daemon::start_with(&["--user-memory", "8M"], 0o022);
    for user in [ROOT, ALICE] {
        session(&daemon, user, "one");
    }
    let refused = |user: User, new: &Value| {
        let (status, answer) = daemon.ask_as(user, "POST", "/v1/sessions/one/maps", Some(new));
        (status, answer["code"].as_str().unwrap().to_owned(), answer["message"].as_str().unwrap().to_owned())
    };
    for (text, says) in [
        ("no_such:event", "no_such"),
        ("sched_switch by no_such_field", "no_such_field"),
        ("sched:*", "several events"),
        ("sum of sched_switch", "sum"),
        ("sched_switch by prev_pid,next_pid,prev_prio,next_prio", "three keys"),
    ] {
        let (status, code, message) = refused(ROOT, &counting("x", text));
        assert_eq!((status, code.as_str()), (422, "invalid_map"), "{text}: {message}");
        assert!(message.contains(says), "{text}: {message}");
    }
    daemon.tell("POST", "/v1/sessions/one/maps", Some(&counting("x", "sched_switch")));
    let again = refused(ROOT, &counting("x", "sched_switch"));
    assert_eq!((again.0, again.1.as_str()), (409, "map_exists"));
    assert_eq!(daemon.ask("DELETE", "/v1/sessions/one/maps/y", None).1["code"], "no_map");
    // Programs are looked up with root's rights; memory is limited.
    let of_program = json!({"name": "x", "question": {"count": "uprobe /bin/true:main"}});
    let (status, code, message) = refused(ALICE, &of_program);
    assert_eq!((status, code.as_str()), (501, "not_supported"), "{message}");
    let many = json!({"name": "x", "question": {"count": "sched_switch by next_comm"}, "max_keys": 200_000});
    let (status, code, message) = refused(ALICE, &many);
    assert_eq!((status, code.as_str()), (507, "no_memory"), "{message}");
    assert!(message.contains("--user-memory"), "{message}");
    // A probe's arguments would read any memory of the kernel.
    for text in [
        "kprobe p=do_sys_openat2 v=@jiffies:u64 by v",
        "kprobe p=do_sys_*",
        "kretprobe p=vfs_read x=$retval:u64",
    ] {
        let (status, code, message) = refused(ALICE, &counting("x", text));
        assert_eq!((status, code.as_str()), (501, "not_supported"), "{text}: {message}");
        assert!(message.contains("root's maps"), "{message}");
    }
    let few = json!({"name": "x", "question": {"count": "sched_switch by next_comm"}, "max_keys": 100});
    daemon.tell_as(ALICE, "POST", "/v1/sessions/one/maps", Some(&few));
    assert_eq!(daemon.ask_as(BOB, "GET", "/v1/sessions/one/maps", None).0, 404);
    let seen = |user| daemon.tell_as(user, "GET", "/v1/maps", None).as_array().unwrap().len();
    assert_eq!((seen(ALICE), seen(BOB), seen(ROOT)), (1, 0, 2));
    daemon.stop().expect(0);
}

#[test]
fn maps_go_on_counting_while_a_daemon_is_replaced() {
    let mut daemon = Daemon::start_supervised();
    let mut caller = Caller::start();
    let dir = daemon.path().join("out");
    daemon.session(ROOT, "one", &dir, &[calls()]);
    let trackers = "/v1/sessions/one/domains/kernel/trackers";
    daemon.tell("POST", trackers, Some(&only(caller.pid())));
    daemon.tell("POST", "/v1/sessions/one/maps", Some(&counting("calls", CALLS)));
    session(&daemon, ALICE, "maps");
    let new = json!({"name": "times", "max_keys": 1000, "question": {
        "time": "stats of raw_syscalls:sys_enter: id == 110 -> raw_syscalls:sys_exit: id == 110 key $tid by $pid"}});
    daemon.tell_as(ALICE, "POST", "/v1/sessions/maps/maps", Some(&new));
    daemon.tell("POST", "/v1/sessions/one/start", None);
    daemon.tell_as(ALICE, "POST", "/v1/sessions/maps/start", None);
    let pid = caller.pid();
    let is_over = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&is_over);
    let calling = std::thread::spawn(move || {
        let start = caller.calls();
        while !until.load(Ordering::Relaxed) {
            caller.call(1000);
            std::thread::sleep(Duration::from_millis(5));
        }
        caller.settle();
        (caller.calls() - start, caller)
    });
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(200));
        daemon.replace();
        daemon.tell("GET", "/v1/maps", None);
    }
    is_over.store(true, Ordering::Relaxed);
    let (all, mut caller) = calling.join().unwrap();
    assert_eq!(count(&maps(&daemon, "one")[0]), all);
    let times = daemon.tell("GET", "/v1/sessions/maps/maps?uid=54321", None);
    let of_caller: Vec<&Value> =
        times[0]["entries"].as_array().unwrap().iter().filter(|entry| entry["key"] == json!([pid])).collect();
    assert_eq!(of_caller[0]["count"], all, "{times}");
    // They change as before: stopped and started, tracked, and removed.
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    daemon.replace();
    caller.call(500);
    daemon.tell("POST", "/v1/sessions/one/start", None);
    caller.call(700);
    caller.settle();
    assert_eq!(count(&maps(&daemon, "one")[0]), all + 700);
    let none = json!({"attribute": "pid", "values": "all", "add": false});
    daemon.tell("POST", trackers, Some(&none));
    caller.call(300);
    assert_eq!(count(&daemon.tell("DELETE", "/v1/sessions/one/maps/calls", None)), all + 700);
    daemon.tell_as(ALICE, "DELETE", "/v1/sessions/maps", None);
    daemon.tell("DELETE", "/v1/sessions/one", None);
    daemon.stop().expect(0);
}

#[test]
fn a_time_is_forgotten_in_a_pause() {
    let daemon = Daemon::start();
    session(&daemon, ROOT, "one");
    // One that sleeps, for as long as it reads nothing.
    let mut reader = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    daemon.tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only(reader.id())));
    let reads = "raw_syscalls:sys_enter: id == 0 -> raw_syscalls:sys_exit: id == 0 key $tid by $pid";
    daemon.tell(
        "POST",
        "/v1/sessions/one/maps",
        Some(&json!({"name": "reads", "question": {"time": reads}})),
    );
    daemon.tell("POST", "/v1/sessions/one/start", None);
    let mut input = reader.stdin.take().unwrap();
    let mut output = reader.stdout.take().unwrap();
    // After each answer it begins to read again, from which on it waits.
    let mut read = || {
        input.write_all(b"x").unwrap();
        output.read_exact(&mut [0]).unwrap();
    };
    let state = || maps(&daemon, "one").remove(0);
    read();
    wait_for("a read to begin", || (state()["open"] == 1).then_some(()));
    let before = state();
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    assert_eq!(state()["open"], 1, "it is told what was open when it stopped");
    daemon.tell("POST", "/v1/sessions/one/start", None);
    assert_eq!((&state()["open"], &state()["forgotten"]), (&json!(0), &json!(1)));
    read();
    wait_for("the next read to begin", || (state()["open"] == 1).then_some(()));
    let after = state();
    assert_eq!(count(&after), count(&before), "the read over the pause is no time: {after}");
    assert_eq!(
        after["unmatched"].as_u64(),
        before["unmatched"].as_u64().map(|of| of + 1),
        "{before} {after}"
    );
    drop(input);
    reader.wait().unwrap();
    daemon.stop().expect(0);
}

#[test]
fn of_many_keys_those_with_the_largest_values_are_told() {
    let daemon = Daemon::start();
    let mut caller = Caller::start();
    session(&daemon, ROOT, "one");
    daemon.tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only(caller.pid())));
    daemon.tell("POST", "/v1/sessions/one/maps", Some(&counting("m", "raw_syscalls:sys_enter by id")));
    daemon.tell("POST", "/v1/sessions/one/start", None);
    caller.call(1000);
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    let all = maps(&daemon, "one").remove(0);
    let keys = all["entries"].as_array().unwrap().len();
    assert!(keys > 1 && all["more"] == 0, "it reads what it is to do, too: {all}");
    let one = daemon.tell("GET", "/v1/maps?keys=1", None);
    assert_eq!(one[0]["entries"], json!([{"key": [libc::SYS_getppid], "count": 1000}]));
    assert_eq!(one[0]["more"], keys - 1);
    let table = ctl(&daemon, ROOT, &["show-maps", "--keys", "1"]);
    assert!(table.contains(&format!("{} more keys (--keys)", keys - 1)), "{table}");
    daemon.stop().expect(0);
}

#[test]
fn maps_are_shown_as_tables_json_and_metrics() {
    let daemon = Daemon::start();
    let mut caller = Caller::start();
    session(&daemon, ALICE, "one");
    let ask = |words: &[&str]| ctl(&daemon, ALICE, words);
    let add = |name: &str, kind: &str, text: &str| ask(&["add-map", "-s", "one", name, kind, text]);
    assert_eq!(add("calls", "--count", CALLS), "Map calls added to session one\n");
    add("names", "--count", "hist(id) of raw_syscalls:sys_enter: id == 110 by $comm");
    add(
        "times",
        "--time",
        "raw_syscalls:sys_enter: id == 110 -> raw_syscalls:sys_exit: id == 110 key $tid by $pid",
    );
    daemon.tell_as(ALICE, "POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only(caller.pid())));
    ask(&["start", "one"]);
    caller.call(3000);
    caller.settle();
    ask(&["stop", "one"]);
    let table = ask(&["show-maps", "calls"]);
    let pid = caller.pid().to_string();
    let row = table.lines().find(|line| line.trim_start().starts_with(&pid)).unwrap();
    assert!(table.starts_with("calls (session one of user 54321)\n") && row.ends_with(" 3000"), "{table}");
    let bars = ask(&["show-maps", "-s", "one", "names"]);
    assert!(bars.contains("[64, 128)") && bars.contains("@@@@"), "{bars}");
    let json = ask(&["show-maps", "--format", "json"]);
    let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        lines.iter().map(|map| map["map"].as_str().unwrap()).collect::<Vec<_>>(),
        ["calls", "names", "times"]
    );
    assert_eq!(lines, *daemon.tell_as(ALICE, "GET", "/v1/maps", None).as_array().unwrap());
    assert_eq!((count(&lines[0]), count(&lines[2]), &lines[2]["unit"]), (3000, 3000, &json!("ns")));
    let mi = ask(&["--json", "show-maps", "calls"]);
    assert!(mi.contains("3000"), "{mi}");
    assert!(ask(&["list", "one"]).contains(&format!("    calls: {CALLS}\n")));
    // Prometheus' own parser reads the metrics.
    let metrics = ask(&["show-maps", "--format", "metrics"]);
    let file = daemon.path().join("metrics");
    std::fs::write(&file, &metrics).unwrap();
    let script = "import sys, json\n\
                  from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse\n\
                  for family in parse(open(sys.argv[1]).read()):\n  \
                    for sample in family.samples:\n    \
                      print(json.dumps([family.type, sample.name, sample.labels, sample.value]))";
    let read = run(Command::new("/usr/bin/python3").args(["-c", script]).arg(&file)).expect(0).out;
    let samples: Vec<Value> = read.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |name: &str, map: &str| -> Vec<&Value> {
        samples.iter().filter(|of| of[1] == name && of[2]["map"] == map).collect()
    };
    let calls = of("tracer_agent_map_events_total", "calls");
    assert_eq!(
        calls[0][2],
        json!({"map": "calls", "session": "one", "user": "54321", "pid": pid}),
        "{metrics}"
    );
    assert_eq!((calls.len(), calls[0][3].as_f64()), (1, Some(3000.0)));
    for (map, sum) in [("names", Some(3000.0 * 110.0)), ("times", None)] {
        assert_eq!(of("tracer_agent_map_value_count", map)[0][3].as_f64(), Some(3000.0), "{metrics}");
        let buckets = of("tracer_agent_map_value_bucket", map);
        let last = buckets.last().unwrap();
        assert_eq!((&last[2]["le"], last[3].as_f64()), (&json!("+Inf"), Some(3000.0)));
        if let Some(sum) = sum {
            assert_eq!(of("tracer_agent_map_value_sum", map)[0][3].as_f64(), Some(sum));
        }
    }
    assert_eq!(of("tracer_agent_map_uncounted_total", "calls").len(), 9, "{metrics}");
    ask(&["remove-map", "-s", "one", "calls"]);
    assert!(!ask(&["list", "one"]).contains("    calls: "));
    daemon.stop().expect(0);
}
