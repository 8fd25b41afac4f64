//! When the readers of the rings wake up: for a ring that fills, at their deadline, and never for an event.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    fs,
    time::{Duration, Instant},
};

use integration_tests::harness::{Caller, Ledger, Marked};

/// How often each reader thread of the process went to sleep of its own will, by thread name.
fn sleeps(pid: u32) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a field of /proc");
            line.trim().to_owned()
        };
        let name = field("Name:");
        if name.starts_with("reader-") {
            found.push((name, field("voluntary_ctxt_switches:").parse().unwrap()));
        }
    }
    found.sort();
    found
}

#[test]
fn readers_of_an_idle_machine_sleep_from_deadline_to_deadline() {
    let dir = tempfile::tempdir().unwrap();
    // Hardly ever fires.
    let recording = Marked::start(dir.path(), &["-e", "sched:sched_process_hang", "-s", "500000"]);
    let (before, start) = (sleeps(recording.agent.pid()), Instant::now());
    assert!(!before.is_empty());
    std::thread::sleep(Duration::from_secs(3));
    let (after, elapsed) = (sleeps(recording.agent.pid()), start.elapsed());
    recording.finish().expect(0);
    let deadlines = elapsed.as_millis() as u64 / 500 + 1;
    for ((name, before), (same, after)) in before.iter().zip(&after) {
        assert_eq!(name, same);
        assert!(after - before <= deadlines, "{name} slept {} times in {elapsed:?}", after - before);
    }
}

#[test]
fn a_ring_that_fills_wakes_its_reader_long_before_the_deadline() {
    const CALLS: u64 = 400_000;
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    caller.pin(0);
    let pid = caller.pid().to_string();
    let args = ["-e", "raw_syscalls:sys_enter", "-P", &pid, "-b", "4096", "-s", "600000000"];
    let recording = Marked::start(dir.path(), &args);
    let before = sleeps(recording.agent.pid());
    // Six rings full, with pauses in which a reader that nobody woke would still sleep.
    for _ in 0..CALLS / 20_000 {
        caller.call(20_000);
        std::thread::sleep(Duration::from_millis(20));
    }
    let after = sleeps(recording.agent.pid());
    recording.finish().expect(0);
    let ledger = Ledger::of(&dir.path().join("trace.dat"));
    assert_eq!(ledger.lost(), 0, "the ring holds a sixth of what was made");
    assert!(ledger.cpus("stored") >= CALLS);
    let wakeups: u64 = before.iter().zip(&after).map(|((_, before), (_, after))| after - before).sum();
    assert!(wakeups >= 6, "{wakeups}: it cannot have read all that otherwise");
    assert!(wakeups <= CALLS / 1000, "{wakeups} wakeups for {CALLS} events");
}
