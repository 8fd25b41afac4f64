//! When the readers of the rings wake up: for a ring that fills, at their deadline, and never for an event.

use std::time::Instant;

use integration_tests::harness::{Caller, Ledger, Marked, Report, is_getppid, sleeps_of_readers, wait_for};

/// The system calls that one page of a ring holds: 64 bytes and a header of 4 each, behind the page's header
/// of 16.
const CALLS_OF_PAGE: u64 = (4096 - 16) / 68;

#[test]
fn readers_of_an_idle_machine_sleep_from_deadline_to_deadline() {
    const DEADLINE_MS: u64 = 100;
    const SLEEPS: u64 = 6;
    let dir = tempfile::tempdir().unwrap();
    let deadline = (DEADLINE_MS * 1000).to_string();
    // Hardly ever fires.
    let recording = Marked::start(dir.path(), &["-e", "sched:sched_process_hang", "-s", &deadline]);
    let pid = recording.agent.pid();
    // Until then they may have waited for other things.
    let first = sleeps_of_readers(pid);
    wait_for("readers that have slept twice", || {
        let now = sleeps_of_readers(pid);
        now.iter().all(|(tid, sleeps)| sleeps - first[tid] >= 2).then_some(())
    });
    let (start, before) = (Instant::now(), sleeps_of_readers(pid));
    let after = wait_for("readers that look at their rings at each deadline", || {
        let now = sleeps_of_readers(pid);
        now.iter().all(|(tid, sleeps)| sleeps - before[tid] >= SLEEPS).then_some(now)
    });
    let elapsed = start.elapsed();
    recording.finish().expect(0);
    // However busy the machine is, a sleep takes its time at least: this many can have begun.
    let most = elapsed.as_millis() as u64 / DEADLINE_MS + 1;
    for (tid, sleeps) in after {
        let slept = sleeps - before[&tid];
        assert!(slept <= most, "reader {tid} slept {slept} times in {elapsed:?}");
    }
}

#[test]
fn a_ring_that_fills_wakes_its_reader_long_before_the_deadline() {
    const ROUNDS: u64 = 8;
    /// A third of the ring: more than what wakes the reader, and with what it leaves behind less than all of
    /// it.
    const CALLS: u64 = 20_000;
    const RING_KB: u64 = 4096;
    const _: () = assert!(CALLS > RING_KB / 4 / 4 * CALLS_OF_PAGE && CALLS < RING_KB / 4 / 2 * CALLS_OF_PAGE);
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    caller.pin(0);
    let (pid, ring) = (caller.pid().to_string(), RING_KB.to_string());
    // A deadline of ten minutes: no test waits that long for anything.
    let args = ["-e", "raw_syscalls:sys_enter", "-P", &pid, "-b", &ring, "-s", "600000000"];
    let recording = Marked::start(dir.path(), &args);
    let agent = recording.agent.pid();
    let sleeps = || sleeps_of_readers(agent).values().sum::<u64>();
    let first = sleeps();
    for round in 0..ROUNDS {
        let before = sleeps();
        caller.call(CALLS);
        wait_for(&format!("a reader that is woken, round {round}"), || (sleeps() > before).then_some(()));
    }
    let wakeups = sleeps() - first;
    recording.finish().expect(0);
    let file = dir.path().join("trace.dat");
    assert_eq!(Ledger::of(&file).lost(), 0, "the reader has made room each time");
    assert_eq!(Report::of(&file).count(is_getppid), caller.calls());
    assert!(wakeups <= caller.calls() / 1000, "{wakeups} wakeups for {} events", caller.calls());
}
