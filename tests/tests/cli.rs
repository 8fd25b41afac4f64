//! What users and scripts read: lists, reports, help, and the progress on a terminal.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::{fs, io::Write as _, process::Stdio};

use integration_tests::harness::{Ended, Marked, agent, agent_path, program, run};

fn tool(args: &[&str]) -> Ended {
    run(&mut agent("/".as_ref(), args))
}

/// Panics unless Python parses `json`; returns what `expression` gives for it, called `j`.
fn python(json: &str, expression: &str) -> String {
    let script = format!("import json, sys; j = json.load(sys.stdin); print({expression})");
    let mut child = program("/".as_ref(), "python3", ["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(json.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "not JSON: {json}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn list_names_every_event_of_the_kernel_once() {
    let listed = tool(&["list"]).expect(0).out;
    // Those that ftrace writes itself are listed with that remark; available_events has none of them.
    let (internal, mut listed): (Vec<&str>, Vec<&str>) =
        listed.lines().partition(|line| line.starts_with("ftrace:"));
    assert!(internal.iter().all(|line| line.contains("cannot be recorded")), "{internal:?}");
    let available = fs::read_to_string("/sys/kernel/tracing/available_events").unwrap();
    let mut available: Vec<&str> = available.lines().collect();
    listed.sort_unstable();
    available.sort_unstable();
    let missing: Vec<_> = available.iter().filter(|name| listed.binary_search(name).is_err()).collect();
    assert!(missing.is_empty(), "not listed: {missing:?}");
    let made_up: Vec<_> = listed.iter().filter(|name| available.binary_search(name).is_err()).collect();
    assert!(made_up.is_empty(), "no such events: {made_up:?}");
    assert_eq!(listed.len(), available.len());
}

#[test]
fn list_selects_by_glob_and_shows_fields() {
    let listed = tool(&["list", "-e", "sched:sched_process_*"]).expect(0).out;
    assert!(
        listed.lines().count() >= 5 && listed.lines().all(|line| line.starts_with("sched:sched_process_"))
    );
    let fields = tool(&["list", "-e", "sched:sched_switch", "--fields"]).expect(0).out;
    for field in ["prev_comm", "prev_pid", "next_comm", "next_prio"] {
        assert!(fields.contains(field), "{fields}");
    }
    tool(&["list", "-e", "sched:sched_swich"]).expect(112).says(&["sched:sched_swich", "sched:sched_switch"]);
}

#[test]
fn list_and_doctor_speak_json() {
    let json = tool(&["list", "-e", "sched:*", "--fields", "--json"]).expect(0).out;
    assert!(python(&json, "'sched_switch' in json.dumps(j) and 'next_pid' in json.dumps(j)") == "True");
    let all = tool(&["list", "--json"]).expect(0).out;
    assert!(python(&all, "len(json.dumps(j)) > 10000") == "True");
    let json = tool(&["doctor", "--json"]).out;
    assert!(python(&json, "len(j) > 0") == "True");
}

#[test]
fn doctor_finds_that_root_can_record_here() {
    let ended = tool(&["doctor"]).expect(0);
    assert!(ended.out.to_lowercase().contains("tracefs") && ended.out.contains("BTF"), "{}", ended.out);
}

#[test]
fn every_command_has_help_and_wrong_usage_is_code_2() {
    assert!(tool(&["--help"]).expect(0).out.contains("EXIT CODES"));
    for command in ["record", "recover", "list", "doctor"] {
        for flag in ["--help", "-h"] {
            let help = tool(&[command, flag]).expect(0);
            assert!(help.out.contains("Usage:") && help.err.is_empty(), "{help:?}");
        }
        let wrong = tool(&[command, "--no-such-option"]).expect(2);
        assert!(wrong.out.is_empty() && wrong.err.contains("--no-such-option"), "{wrong:?}");
    }
    assert!(tool(&["--version"]).expect(0).out.starts_with("tracer-agent "));
    tool(&[]).expect(2);
    tool(&["record"]).expect(2).says(&["-e"]);
    tool(&["recover"]).expect(2);
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    for command in
        ["list", "list --fields", "list --json", "doctor", "doctor --json", "--help", "record --help"]
    {
        let script = format!("set -o pipefail; '{}' {command} | head -n 1", agent_path().display());
        let ended = run(&mut program("/".as_ref(), "bash", ["-c", &script])).expect(0);
        assert!(ended.err.is_empty(), "{command}: {}", ended.err);
        assert_eq!(ended.out.lines().count(), 1, "{command}");
        // A pipe that nobody reads at all: the first write fails.
        let script = format!("'{}' {command} | true; echo ${{PIPESTATUS[0]}}", agent_path().display());
        let ended = run(&mut program("/".as_ref(), "bash", ["-c", &script])).expect(0);
        assert_eq!((ended.out.trim(), ended.err.as_str()), ("0", ""), "{command}");
    }
}

#[test]
fn progress_is_shown_on_a_terminal_only() {
    let dir = tempfile::tempdir().unwrap();
    let recording = Marked::start(dir.path(), &["-e", "sched:sched_switch"]);
    std::thread::sleep(std::time::Duration::from_millis(1200));
    let piped = recording.finish().expect(0);
    assert!(!piped.err.contains('\r') && !piped.err.contains('\x1b'), "{:?}", piped.err);
    assert!(!piped.err.contains("recording:"), "{:?}", piped.err);

    let on_terminal = |options: &str| {
        let line = format!(
            "'{}' record {options} -e sched:sched_switch -o t.dat sh -c 'sleep 1.8'",
            agent_path().display()
        );
        let ended = run(&mut program(dir.path(), "script", ["-qec", &line, "/dev/null"])).expect(0);
        ended.out
    };
    let shown = on_terminal("");
    assert!(shown.contains("\rrecording: ") && shown.contains("none lost"), "{shown:?}");
    assert!(shown.contains("\x1b[K") && shown.contains("t.dat: "), "wiped, then the summary: {shown:?}");
    assert_eq!(on_terminal("-q"), "", "-q is quiet there too");
}

#[test]
fn colours_are_shown_on_a_terminal_only() {
    let dir = tempfile::tempdir().unwrap();
    run(&mut agent(dir.path(), ["record", "-q", "-e", "sched:sched_process_exec", "true"])).expect(0);
    let plain = run(&mut agent(dir.path(), ["report"])).expect(0).out;
    assert!(plain.contains(" sched_process_exec: ") && !plain.contains('\x1b'), "{plain:?}");
    let coloured = run(&mut agent(dir.path(), ["report", "--color", "always"])).expect(0).out;
    assert!(coloured.contains("\x1b[36m sched_process_exec: "), "{coloured:?}");
    assert_eq!(coloured.replace("\x1b[36m", "").replace("\x1b[0m", ""), plain);
    let on_terminal = |variable: &str, options: &str| {
        let line = format!("{variable} '{}' report {options}", agent_path().display());
        run(&mut program(dir.path(), "script", ["-qec", &line, "/dev/null"])).expect(0).out.replace('\r', "")
    };
    assert_eq!(on_terminal("NO_COLOR=", ""), coloured);
    for (variable, options) in [("NO_COLOR=1", ""), ("NO_COLOR=", "--color never")] {
        assert_eq!(on_terminal(variable, options), plain, "{variable} {options}");
    }
}
