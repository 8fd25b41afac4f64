//! Which programs record an event, and what these programs are to the verifier.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use integration_tests::agent;

/// Instructions that the verifier walks through for the largest program of a single event, and of the system calls: 7009 and 42 802 on
/// Linux 6.18. What is more is room for other kernels and compilers.
const EVENT_INSNS: u64 = 9_500;
const CALL_INSNS: u64 = 48_000;
/// `BPF_PROG_TYPE_TRACING`.
const TRACING: u64 = 26;

/// `verified_insns` of each program of the fast lane that a process holds.
fn verified(pid: u32) -> Vec<u64> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("the agent runs");
    let mut found = Vec::new();
    for descriptor in descriptors.flatten() {
        let text = fs::read_to_string(descriptor.path()).unwrap_or_default();
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse::<u64>().ok()
        };
        if number("prog_type:") == Some(TRACING) {
            found.extend(number("verified_insns:"));
        }
    }
    found
}

#[test]
fn programs_of_the_fast_lane_are_small_to_the_verifier() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = dir.path().join("trace.dat");
    let events =
        ["sched:sched_switch", "sched:sched_waking", "irq:irq_handler_entry", "raw_syscalls", "signal"];
    let mut command = agent::command(["record", "-q", "--lane", "fast", "-o"]);
    command.arg(&file).args(events.iter().flat_map(|event| ["-e", *event]));
    // It ends when its standard input does.
    let mut recorder = command.arg("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_mins(2);
    // Seven events, of which two are system calls' programs.
    let expected = 7;
    let mut insns = verified(recorder.id());
    while insns.len() < expected && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
        insns = verified(recorder.id());
    }
    drop(recorder.stdin.take());
    assert!(recorder.wait().unwrap().success());
    insns.sort_unstable();
    assert_eq!(insns.len(), expected, "{insns:?}");
    let (events, calls) = insns.split_at(expected - 2);
    assert!(events.iter().all(|count| (1..=EVENT_INSNS).contains(count)), "{insns:?}");
    assert!(calls.iter().all(|count| (1..=CALL_INSNS).contains(count)), "{insns:?}");
    assert_eq!(lanes(&file, "generic"), 0);
    assert!(lanes(&file, "fast") >= 3);
}

#[test]
fn the_generic_lane_can_be_asked_for() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = dir.path().join("trace.dat");
    let events = ["--lane", "generic", "-e", "raw_syscalls", "-F", "true"];
    agent::record(&file, events);
    assert_eq!((lanes(&file, "generic"), lanes(&file, "fast")), (2, 0));
}

#[test]
fn an_event_without_a_program_is_refused_when_only_the_fast_lane_is_wanted() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = dir.path().join("trace.dat");
    let mut command = agent::command(["record", "--lane", "fast", "-e", "sched:sched_process_exec", "-o"]);
    let output = command.arg(&file).arg("true").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("cannot record sched:sched_process_exec: the fast lane does not have it"),
        "{said}"
    );
    assert!(!file.exists());
}

/// How many events that fired took this lane, by the file's ledger.
fn lanes(file: &Path, lane: &str) -> usize {
    let output = agent::run([Path::new("info"), Path::new("--json"), file]);
    let text = String::from_utf8_lossy(&output.stdout).replace(' ', "");
    text.matches(&format!("\"lane\":\"{lane}\"")).count()
}
