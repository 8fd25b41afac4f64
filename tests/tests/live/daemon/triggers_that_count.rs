//! Triggers whose actions count, in the kernel and in the daemon.

use integration_tests::{
    daemon::{Daemon, ROOT},
    harness::{Caller, agent, run, wait_for},
};
use serde_json::{Value, json};

use super::{
    calls, only,
    triggers::{Listening, ctl, state},
    users::ALICE,
};

/// The maps of triggers by name.
fn map(daemon: &Daemon, name: &str) -> Value {
    let all = daemon.tell("GET", "/v1/maps", None);
    let found = all.as_array().unwrap().iter().find(|map| map["map"] == name).cloned();
    found.unwrap_or_else(|| panic!("no map {name}: {all}"))
}

/// The count of the entry with this key.
fn count(map: &Value, key: &Value) -> u64 {
    let entries = map["entries"].as_array().unwrap();
    entries.iter().find(|entry| entry["key"] == *key).map_or(0, |entry| entry["count"].as_u64().unwrap())
}

#[test]
fn the_kernel_counts_each_match_whatever_comes() {
    let daemon = Daemon::start();
    let mut caller = Caller::start();
    let filter = format!("--filter=id == {} && $ctx.tid == {}", libc::SYS_getppid, caller.pid());
    let rule = ["--condition=event-rule-matches", "--type=kernel", "--name=raw_syscalls:sys_enter", &filter];
    let add = |name: &str, actions: &[&str]| {
        let name = format!("--name={name}");
        ctl(&daemon, ROOT, &[&["add-trigger", &name][..], &rule, actions].concat());
    };
    add("counts", &["--action=count", "--by=$tid, id"]);
    add("hist", &["--action=count", "--function=hist(id)", "--max-keys=4"]);
    add("both", &["--action=notify", "--action=count", "--by=$pid", "--action=count"]);
    caller.call(1_000_000);
    caller.settle();
    let all = caller.calls();
    let (pid, id) = (caller.pid(), libc::SYS_getppid);
    assert_eq!(count(&map(&daemon, "counts"), &json!([pid, id])), all);
    let counts = state(&daemon, "counts");
    assert_eq!(
        (&counts["fired"], &counts["missed"], &counts["actions"][0]["executed"]),
        (&json!(all), &json!(0), &json!(all)),
        "nobody is told, and nothing is missed: {counts}"
    );
    let hist = map(&daemon, "hist");
    assert_eq!(hist["entries"][0]["buckets"], json!([{"from": 64, "to": 128, "count": all}]), "{hist}");
    assert_eq!(hist["of"], json!({"trigger": "hist"}));
    for (name, key) in [("both.1", json!([pid])), ("both.2", json!([]))] {
        assert_eq!(count(&map(&daemon, name), &key), all, "also beside what may be missed");
    }
    let both = state(&daemon, "both");
    assert!(both["fired"].as_u64().unwrap() + both["missed"].as_u64().unwrap() <= all, "{both}");
    let shown = ctl(&daemon, ROOT, &["show-maps", "counts"]);
    assert!(shown.contains(&format!("{pid}")) && shown.contains(&all.to_string()), "{shown}");
    let metrics = ctl(&daemon, ROOT, &["show-maps", "--format=metrics", "counts"]);
    let line = format!(
        "tracer_agent_map_events_total{{map=\"counts\",trigger=\"counts\",user=\"0\",tid=\"{pid}\",id=\"{id}\"}} {all}"
    );
    assert!(metrics.contains(&line), "{metrics}");
    let listed = ctl(&daemon, ROOT, &["list-triggers"]);
    assert!(
        listed.contains("count, by: $tid,id") && listed.contains("count, function: hist(id), max keys: 4"),
        "{listed}"
    );
    let mi = ctl(&daemon, ROOT, &["--mi=xml", "list-triggers"]);
    let counts = "<action_count><keys><key>$tid</key><key>id</key></keys><rate_policy>";
    assert!(mi.contains(counts), "{mi}");
    for name in ["counts", "hist", "both"] {
        ctl(&daemon, ROOT, &["remove-trigger", name]);
    }
    assert_eq!(daemon.tell("GET", "/v1/maps", None), json!([]));
    daemon.stop().expect(0);
}

#[test]
fn the_kernel_counts_on_while_a_daemon_is_replaced() {
    let mut daemon = Daemon::start_supervised();
    let mut caller = Caller::start();
    let filter = format!("--filter=id == {} && $ctx.tid == {}", libc::SYS_getppid, caller.pid());
    let rule = ["--condition=event-rule-matches", "--type=kernel", "--name=raw_syscalls:sys_enter", &filter];
    let add = |name: &str, actions: &[&str]| {
        let name = format!("--name={name}");
        ctl(&daemon, ROOT, &[&["add-trigger", &name][..], &rule, actions].concat());
    };
    add("counts", &["--action=count", "--by=$tid"]);
    add("both", &["--action=count", "--by=$tid", "--action=notify"]);
    let pid = caller.pid();
    let calling = std::thread::spawn(move || {
        for _ in 0..60 {
            caller.call(1000);
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        caller.settle();
        caller.calls()
    });
    for _ in 0..2 {
        daemon.replace();
        daemon.tell("GET", "/v1/maps", None);
    }
    let all = calling.join().unwrap();
    for name in ["counts", "both"] {
        assert_eq!(count(&map(&daemon, name), &json!([pid])), all, "{name}");
    }
    let counts = state(&daemon, "counts");
    assert_eq!(
        (&counts["fired"], &counts["interruptions"], &counts["problem"]),
        (&json!(all), &json!(0), &Value::Null)
    );
    // What clients are told of was not watched meanwhile.
    let both = state(&daemon, "both");
    assert_eq!((&both["interruptions"], &both["actions"][0]["executed"]), (&json!(2), &json!(all)), "{both}");
    assert!(both["fired"].as_u64().unwrap() <= all, "{both}");
    for name in ["counts", "both"] {
        ctl(&daemon, ROOT, &["remove-trigger", name]);
    }
    assert_eq!(daemon.tell("GET", "/v1/maps", None), json!([]));
    daemon.stop().expect(0);
}

#[test]
fn the_daemon_counts_what_it_is_told() {
    let daemon = Daemon::start();
    let mut caller = Caller::start();
    daemon.session(ROOT, "one", &daemon.path().join("out"), &[calls()]);
    let rotations = ["--condition=session-rotation-completed", "--session=one"];
    let words = ["--action=count", "--rate-policy=every:2", "--action=count"];
    ctl(&daemon, ROOT, &[&["add-trigger", "--name=rotations"][..], &rotations, &words].concat());
    // Entry and exit are two events.
    let filter = format!("--filter=$ctx.tid == {}", caller.pid());
    let rule = ["--condition=event-rule-matches", "--type=kernel:syscall", "--name=getppid", &filter];
    ctl(&daemon, ROOT, &[&["add-trigger", "--name=both"][..], &rule, &["--action=count"]].concat());
    daemon.tell("POST", "/v1/sessions/one/start", None);
    for done in 1..=3 {
        daemon.tell("POST", "/v1/sessions/one/rotations", None);
        wait_for("the rotation", || (state(&daemon, "rotations")["fired"] == done).then_some(()));
    }
    assert_eq!(["rotations.0", "rotations.1"].map(|name| count(&map(&daemon, name), &json!([]))), [1, 3]);
    caller.call(50);
    wait_for("the calls", || (count(&map(&daemon, "both"), &json!([])) == 100).then_some(()));
    assert_eq!(state(&daemon, "both")["missed"], 0);
    daemon.stop().expect(0);
}

#[test]
fn counts_that_cannot_be_are_refused() {
    let daemon = Daemon::start_with(&["--user-memory", "8M"], 0o022);
    let refused = |user, condition: &[&str], action: &[&str]| {
        let socket = daemon.socket();
        let mut command =
            agent(daemon.path(), ["ctl", "-n", "--socket", socket.to_str().unwrap(), "add-trigger"]);
        let user: integration_tests::daemon::User = user;
        std::os::unix::process::CommandExt::uid(
            std::os::unix::process::CommandExt::gid(&mut command, user.gid),
            user.uid,
        );
        run(command.args(condition).args(action)).expect(1).err
    };
    let switch = ["--condition=event-rule-matches", "--type=kernel", "--name=sched_switch"];
    let several = ["--condition=event-rule-matches", "--type=kernel", "--name=sched_*"];
    let rotation = ["--condition=session-rotation-ongoing", "--session=one"];
    let by = ["--action=count", "--by=next_pid"];
    for (condition, action, says) in [
        (&several[..], &by[..], "counts one event"),
        (&rotation, &by, "of the kernel"),
        (&switch, &["--action=count", "--by=next_pid", "--rate-policy=every:2"], "rate policy"),
        (&switch, &["--action=count", "--by=a,b,c,d"], "at most 3 keys"),
        (&switch, &["--action=count", "--by=nothing"], "nothing"),
        (&switch, &["--action=count", "--function=median(next_pid)"], "median"),
        (&switch, &["--action=count", "--by=next_pid,"], "by"),
        (&switch, &["--action=count", "--max-keys=9"], "number of keys"),
    ] {
        let why = refused(ROOT, condition, action);
        assert!(why.contains(says), "{action:?}: {why}");
    }
    // What is refused takes nothing, and what is removed gives it back.
    let large = ["--action=count", "--by=next_comm", "--max-keys=200000"];
    assert!(refused(ALICE, &switch, &large).contains("--user-memory"));
    for _ in 0..3 {
        let fits = ["--action=count", "--by=next_comm", "--max-keys=1000"];
        ctl(&daemon, ALICE, &[&["add-trigger", "--name=fits"][..], &switch, &fits].concat());
        ctl(&daemon, ALICE, &["remove-trigger", "fits"]);
    }
    daemon.stop().expect(0);
}

/// Conditions of triggers of a name's begin, for a machine as [`every_condition_does_all_actions`] makes it.
fn conditions(caller: &Caller) -> Vec<(&'static str, Vec<String>, Value)> {
    let filter = format!("id == {} && $ctx.tid == {}", libc::SYS_getppid, caller.pid());
    let rule = json!({"name": "raw_syscalls:sys_enter", "instrumentation": "tracepoint", "filter": filter});
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let of_rule = |text: &str| {
        let mut all = words(text);
        all.extend(words("--type=kernel --name=raw_syscalls:sys_enter"));
        all.push(format!("--filter={filter}"));
        all
    };
    let mut rate = of_rule("--condition=event-rate");
    rate.push("--above=1000".to_owned());
    let usage = |threshold: Value| json!({"session": "ring", "domain": "kernel", "channel": "channel0", "threshold": threshold});
    let of_ring = "--session=ring --domain=kernel --channel=channel0";
    vec![
        (
            "event",
            of_rule("--condition=event-rule-matches"),
            json!({"event_rule_matches": {"domain": "kernel", "rule": rule, "captures": []}}),
        ),
        ("rate", rate, json!({"event_rate": {"domain": "kernel", "rule": rule, "above": 1000}})),
        (
            "high",
            words(&format!("--condition=buffer-usage-high {of_ring} --threshold=1%")),
            json!({"buffer_usage_high": usage(json!({"percent": 1}))}),
        ),
        (
            "low",
            words(&format!("--condition=buffer-usage-low {of_ring} --threshold=100%")),
            json!({"buffer_usage_low": usage(json!({"percent": 100}))}),
        ),
        (
            "size",
            words("--condition=session-consumed-size --session=source --threshold=4K"),
            json!({"consumed_size": {"session": "source", "bytes": 4096}}),
        ),
        (
            "ongoing",
            words("--condition=session-rotation-ongoing --session=source"),
            json!({"rotation_ongoing": {"session": "source"}}),
        ),
        (
            "completed",
            words("--condition=session-rotation-completed --session=source"),
            json!({"rotation_completed": {"session": "source"}}),
        ),
        (
            "pressure",
            words("--condition=pressure --resource=cpu --share=some --above=0.05"),
            json!({"pressure": {"resource": "cpu", "share": "some", "above": 5}}),
        ),
    ]
}

#[test]
fn every_condition_does_all_actions() {
    use std::{
        io::{Read as _, Write as _},
        os::unix::net::UnixListener,
    };

    use integration_tests::harness::{Running, program};

    let daemon = Daemon::start();
    let mut caller = Caller::start();
    for name in ["source", "target"] {
        daemon.session(ROOT, name, &daemon.path().join(name), &[calls()]);
        let trackers = format!("/v1/sessions/{name}/domains/kernel/trackers");
        daemon.tell("POST", &trackers, Some(&only(caller.pid())));
    }
    super::triggers::snapshot_session(&daemon, "ring", &daemon.path().join("snapshots"), &caller);
    let socket = daemon.path().join("hook");
    let hook = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        for mut posted in hook.incoming().flatten() {
            let mut request = Vec::new();
            let mut chunk = [0; 4096];
            while !request.ends_with(b"}}")
                && posted.read(&mut chunk).is_ok_and(|count| {
                    count != 0 && {
                        request.extend_from_slice(&chunk[..count]);
                        true
                    }
                })
            {}
            let _ = posted.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
        }
    });
    // The last one is done after all others.
    let socket = socket.to_str().unwrap();
    let kinds: [(&[&str], Value); 7] = [
        (&["--action=start-session", "target"], json!({"start_session": {"session": "target"}})),
        (&["--action=rotate-session", "target"], json!({"rotate_session": {"session": "target"}})),
        (&["--action=stop-session", "target"], json!({"stop_session": {"session": "target"}})),
        (&["--action=snapshot-session", "ring"], json!({"snapshot_session": {"session": "ring"}})),
        (&["--action=post", socket], json!({"post": {"socket": socket}})),
        (&["--action=count"], json!({"count": {}})),
        (&["--action=notify"], json!("notify")),
    ];
    let once = "--rate-policy=once-after:1";
    let actions: Vec<&str> =
        kinds.iter().flat_map(|(words, _)| words.iter().copied().chain([once])).collect();
    let action = |(_, kind): &(_, Value)| json!({"do": kind, "rate_policy": {"once_after": 1}});
    let told: Vec<Value> = kinds.iter().map(action).collect();
    let all = conditions(&caller);
    // Once by the command line, and once by the API: they are the same, also in the machine interface.
    for (name, words, condition) in &all {
        let name_of = format!("--name=cli-{name}");
        let mut command = vec!["add-trigger", &name_of];
        command.extend(words.iter().map(String::as_str));
        command.extend(&actions);
        ctl(&daemon, ROOT, &command);
        let new = json!({"name": format!("api-{name}"), "condition": condition, "actions": told});
        daemon.tell("POST", "/v1/triggers", Some(&new));
        let [cli, api] = ["cli", "api"].map(|by| state(&daemon, &format!("{by}-{name}")));
        let of = |state: &Value| {
            let actions = state["actions"].as_array().unwrap().iter().map(|of| of["action"].clone());
            (state["condition"].clone(), actions.collect::<Vec<_>>())
        };
        assert_eq!(of(&cli), of(&api));
    }
    let mi = ctl(&daemon, ROOT, &["--mi=xml", "list-triggers"]);
    let of = |by: &str, name: &str| {
        let begin = format!("<trigger><name>{by}-{name}</name>");
        let from = mi.find(&begin).unwrap_or_else(|| panic!("{by}-{name}: {mi}")) + begin.len();
        let text = &mi[from..];
        text[..text.find("</trigger>").unwrap()].to_owned()
    };
    for (name, ..) in &all {
        let cli = of("cli", name);
        assert_eq!(cli, of("api", name));
        for action in
            ["start_session", "rotate_session", "stop_session", "snapshot_session", "post", "count", "notify"]
        {
            assert!(cli.contains(&format!("<action_{action}>")), "{cli}");
        }
    }
    let mut listening = Listening::start(&daemon, ROOT);
    // All of them are satisfied, each by what it is about.
    for session in ["ring", "source"] {
        daemon.tell("POST", &format!("/v1/sessions/{session}/start"), None);
    }
    caller.call(5);
    daemon.tell("POST", "/v1/sessions/source/rotations", None);
    let mut spinning = Vec::new();
    for (name, ..) in &all {
        if *name == "pressure" {
            let busy = std::thread::available_parallelism().unwrap().get() + 2;
            let spin = ["-c", "while :; do :; done"];
            spinning.extend((0..busy).map(|_| Running::start(&mut program(daemon.path(), "sh", spin))));
        }
        for by in ["cli", "api"] {
            let name = format!("{by}-{name}");
            wait_for("its condition", || {
                caller.call(20_000);
                (state(&daemon, &name)["fired"] != 0).then_some(())
            });
            listening.wait_until(&format!("\"trigger\":\"{name}\""));
        }
    }
    for of in spinning {
        of.signal(libc::SIGKILL);
        of.wait();
    }
    for state in daemon.tell("GET", "/v1/triggers", None).as_array().unwrap() {
        assert_eq!(state["problem"], Value::Null, "{state}");
        for action in state["actions"].as_array().unwrap() {
            assert_eq!((&action["executed"], &action["failed"]), (&json!(1), &json!(0)), "{state}");
        }
        let name = state["name"].as_str().unwrap();
        assert_eq!(count(&map(&daemon, name), &json!([])), 1, "{name}");
    }
    daemon.stop().expect(0);
}
