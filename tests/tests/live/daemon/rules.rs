//! Rules are checked when they are made, and nothing of a rule that is refused stays.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use integration_tests::{
    binaries::Link,
    daemon::Daemon,
    harness::{Report, agent},
    probe_program,
};
use serde_json::{Value, json};

use super::files;

const CHANNELS: &str = "/v1/sessions/one/domains/kernel/channels";
const RULES: &str = "/v1/sessions/one/domains/kernel/channels/channel0/rules";

/// A session named `one` with an empty channel.
fn session(daemon: &Daemon, dir: &Path) {
    daemon.tell("POST", "/v1/sessions", Some(&json!({"name": "one", "mode": {"local": {"output": dir}}})));
    daemon.tell("POST", CHANNELS, Some(&json!({"name": "channel0"})));
}

fn with_filter(name: &str, filter: &str) -> Value {
    json!({"name": name, "instrumentation": "tracepoint", "filter": filter})
}

fn probe(name: &str, place: &Value) -> Value {
    json!({"name": name, "instrumentation": place})
}

fn function(path: &Path, symbol: &str) -> Value {
    json!({"user_probe": {"elf": {"path": path, "symbol": symbol}}})
}

/// Rules that no session gets, each with the code of its refusal.
fn refused(dir: &Path) -> Vec<(Value, &'static str)> {
    let text = dir.join("text");
    fs::write(&text, "no program").unwrap();
    let program = fs::canonicalize("/bin/true").unwrap();
    let marker =
        |path: &Path| json!({"user_probe": {"sdt": {"path": path, "provider": "no", "name": "such"}}});
    let kprobe = |location: &str| json!({"kprobe": {"location": location}});
    vec![
        (with_filter("sched_switch", "prev_pid =="), "filter"),
        (with_filter("sched_switch", "prev_pid + 1"), "filter"),
        (with_filter("sched_switch", "no_field == 1"), "filter"),
        (with_filter("sched_switch", "prev_comm < \"a\""), "filter"),
        (with_filter("sched_switch", "prev_pid == \"a\""), "filter"),
        (with_filter("sched_switch", "common_flags == 1"), "filter"),
        (with_filter("sched_switch", "$ctx.nothing == 1"), "filter"),
        (with_filter("sched_*", "no_field == 1"), "filter"),
        (with_filter("no_such_event", "prev_pid == 1"), "no_event"),
        (
            json!({"name": "openat", "instrumentation": {"syscall": "both"}, "filter": "no_field == 1"}),
            "filter",
        ),
        (json!({"name": "x".repeat(300), "instrumentation": "tracepoint"}), "event_name"),
        (probe(&"x".repeat(65), &kprobe("do_exit")), "event_name"),
        (probe("k", &kprobe("no_such_function_of_the_kernel")), "enable_kernel_event"),
        (probe("k", &kprobe("no function")), "invalid"),
        (probe("u", &function(&dir.join("nothing"), "main")), "user_probe_location"),
        (probe("u", &function(dir, "main")), "user_probe_location"),
        (probe("u", &function(&text, "main")), "user_probe_location"),
        (probe("u", &function(&program, "no_such_function")), "user_probe_location"),
        (probe("u", &function(Path::new("relative"), "main")), "user_probe_location"),
        (probe("u", &marker(&text)), "user_probe_location"),
        (probe("u", &marker(&program)), "user_probe_location"),
    ]
}

/// Sees that a request with a rule that is refused changes nothing.
fn check_refused(daemon: &Daemon, rules: &[(Value, &'static str)]) {
    let before = daemon.tell("GET", "/v1/sessions/one", None);
    let right = json!({"name": "sched_process_exit", "instrumentation": "tracepoint"});
    for (rule, code) in rules {
        let new = json!({"name": "other", "rules": [right, rule]});
        for (path, body) in [(RULES, rule.clone()), (RULES, json!([right, rule])), (CHANNELS, new)] {
            let (status, answer) = daemon.ask("POST", path, Some(&body));
            assert_eq!(answer["code"], **code, "{path} {body}: {answer}");
            assert!((400..500).contains(&status), "{status} for {body}");
        }
    }
    assert_eq!(daemon.tell("GET", "/v1/sessions/one", None)["domains"], before["domains"]);
}

#[test]
fn rules_that_cannot_be_recorded_are_refused() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    session(&daemon, &dir);
    let rules = refused(daemon.path());
    check_refused(&daemon, &rules);
    // Those that can be are taken: of a pattern, some event has the field, and has it as a number.
    let right = [with_filter("sched_*", "prio < 100"), with_filter("irq_handler_entry", "$ctx.tid == 1")];
    daemon.tell("POST", RULES, Some(&json!(right)));
    daemon.tell("POST", "/v1/sessions/one/start", None);
    check_refused(&daemon, &rules);
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    check_refused(&daemon, &rules);
}

#[test]
fn two_probes_of_a_channel_have_different_names() {
    let daemon = Daemon::start();
    session(&daemon, &daemon.path().join("out"));
    let probed = probe_program::build(daemon.path(), Link::Pie);
    daemon.tell("POST", RULES, Some(&probe("a-b", &function(&probed.file, "work"))));
    for name in ["a-b", "a_b"] {
        let (status, answer) =
            daemon.ask("POST", RULES, Some(&probe(name, &function(&probed.file, "named"))));
        assert_eq!((status, &answer["code"]), (409, &json!("kernel_event_exists")), "{name}: {answer}");
    }
    daemon.tell("POST", RULES, Some(&probe("other", &function(&probed.file, "named"))));
    daemon.tell("POST", "/v1/sessions/one/start", None);
}

/// LTTng's users give probes any names, and files may have any characters.
#[test]
fn probes_have_any_names_in_files_with_any() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let probed = probe_program::build(daemon.path(), Link::Pie);
    let path = daemon.path().join("a b:c=d");
    fs::copy(&probed.program, &path).unwrap();
    session(&daemon, &dir);
    let place = format!("{}:work", path.display().to_string().replace(':', "\\:"));
    let probe = format!("--userspace-probe={place}");
    let mut ctl = agent(daemon.path(), ["ctl", "--socket", daemon.socket().to_str().unwrap()]);
    ctl.args(["enable-event", "-k", "-s", "one", "-c", "channel0", &probe, "ma-probe"]);
    let added = ctl.output().unwrap();
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    daemon.tell("POST", "/v1/sessions/one/start", None);
    let run = Command::new(&path).args(["100", "1"]).stdout(Stdio::null()).status().unwrap();
    assert!(run.success());
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    let count = |file: &PathBuf| Report::of(file).count(|line| line.contains(" ma_probe:"));
    // Two more calls have other texts.
    assert_eq!(files(&dir).iter().map(count).sum::<u64>(), 102);
}
