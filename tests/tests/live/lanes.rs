//! Which programs record an event.

use std::path::Path;

use integration_tests::agent;
use kernel::features::tracepoints_are_preemptible;
use kernel::version::KernelVersion;

#[test]
fn the_fast_lane_can_be_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let events =
        ["--lane", "fast", "-e", "sched:sched_switch", "-e", "sched:sched_waking", "-e", "raw_syscalls"];
    agent::record(&file, events.into_iter().chain(["true"]));
    assert_eq!((lanes(&file, "generic"), lanes(&file, "fast")), (0, 4));
    // What the kernel kept from each program is known for all of them.
    let ledger = ledger(&file);
    for program in ["sched:sched_switch", "sched:sched_waking", "syscall_enter", "syscall_exit"] {
        let (_, misses) = ledger
            .split_once(&format!("{{\"program\":\"{program}\",\"recursion_misses\":"))
            .unwrap_or_else(|| panic!("{ledger}"));
        assert!(misses.starts_with(|digit: char| digit.is_ascii_digit()), "{program}: {ledger}");
    }
}

#[test]
fn where_there_are_many_events_programs_have_several() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let record = |systems: &[&str]| {
        let events = systems.iter().flat_map(|system| ["-e", system]);
        agent::record(&file, events.chain(["true"]));
        ledger(&file).matches("others\",\"recursion_misses\":").count()
    };
    assert_eq!(record(&["filelock"]), 0);
    let together = record(&["ext4", "filelock", "jbd2", "writeback"]);
    // Raw tracepoints have cookies since 6.10.
    let can_share = KernelVersion::running().unwrap() >= KernelVersion::new(6, 10, 0);
    assert_eq!(together > 0, can_share && !tracepoints_are_preemptible(), "{together}");
}

#[test]
fn the_generic_lane_can_be_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let events = ["--lane", "generic", "-e", "raw_syscalls", "-F", "true"];
    agent::record(&file, events);
    assert_eq!((lanes(&file, "generic"), lanes(&file, "fast")), (2, 0));
}

#[test]
fn an_event_without_a_program_is_refused_when_only_the_fast_lane_is_wanted() {
    let dir = tempfile::tempdir().unwrap();
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

#[test]
fn what_takes_the_generic_lane_is_told_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    // As on a kernel newer than the descriptions: events that have a program in general, and not as they are
    // here.
    let calls = ["openat", "close", "read", "write"].map(|call| format!("syscalls:sys_enter_{call}"));
    let events = calls.iter().flat_map(|call| ["-e", call, "--context", "uid"]);
    let said = agent::record(&file, events.chain(["-F", "true"])).said;
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("generic lane")).collect();
    let [line] = lines.as_slice() else { panic!("{said}") };
    assert!(line.starts_with("4 kinds of events took the generic lane ("), "{line}");
    // And those that have not changed are as fast as ever.
    let said =
        agent::record(&file, ["-e", "sched:*", "-e", "syscalls:*", "-e", "net:net_dev_queue", "-F", "true"])
            .said;
    assert!(!said.contains("generic lane"), "{said}");
}

/// What `info --json` tells, without spaces.
fn ledger(file: &Path) -> String {
    let output = agent::run([Path::new("info"), Path::new("--json"), file]);
    String::from_utf8_lossy(&output.stdout).replace(' ', "")
}

/// How many events that fired took this lane, by the file's ledger.
fn lanes(file: &Path, lane: &str) -> usize {
    ledger(file).matches(&format!("\"lane\":\"{lane}\"")).count()
}
