//! A recorder in a time namespace: its clocks are not those of the programs that record.

use std::{
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use integration_tests::harness::{agent, agent_path, ledger_in_info, program, run};

/// Records in a time namespace whose clocks are a day and more apart from the machine's.
fn record(dir: &Path, args: &[&str]) {
    let namespace = ["-T", "--fork", "--monotonic", "100000", "--boottime", "200000", "--"];
    let mut command = program(dir, "unshare", namespace);
    command.arg(agent_path()).args(["record", "-e", "sched:sched_switch"]).args(args).arg("true");
    run(&mut command).expect(0);
}

fn wall_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// Times of the events of a file.
fn times(dir: &Path, file: &str) -> Vec<u64> {
    let out = run(&mut agent(dir, ["report", "--json", file])).expect(0).out;
    let events = out.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    events.filter_map(|event| event["timestamp"].as_u64()).collect()
}

#[test]
fn wall_times_are_those_of_the_machine() {
    for clock in ["mono", "boot", "tai"] {
        let dir = tempfile::tempdir().unwrap();
        let before = wall_ns();
        record(dir.path(), &["-C", clock, "--date"]);
        let after = wall_ns();
        let times = times(dir.path(), "trace.dat");
        // The distance is measured with less than a second of uncertainty.
        let second = 1_000_000_000;
        assert!(!times.is_empty());
        assert!(times.iter().all(|time| (before - second..after + second).contains(time)), "{clock}");
    }
}

#[test]
fn a_recording_has_the_distances_and_times_of_one_clock() {
    let offset = |dir: &Path, clock: &str| {
        let offset = ledger_in_info(&dir.join("trace.dat"))["realtime_offset_ns"].as_i64().unwrap();
        (clock.to_owned(), offset)
    };
    for clock in ["mono", "boot"] {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        record(inside.path(), &["-C", clock]);
        run(&mut agent(outside.path(), ["record", "-e", "sched:sched_switch", "-C", clock, "true"]))
            .expect(0);
        let ((_, inside), (_, outside)) = (offset(inside.path(), clock), offset(outside.path(), clock));
        // Whoever sets the clock meanwhile does so by less than the offsets of the namespace.
        assert!(inside.abs_diff(outside) < 50_000_000_000_000, "{clock}: {inside} {outside}");
    }
}

#[test]
fn traces_in_the_format_of_lttng_have_one_clock() {
    let dir = tempfile::tempdir().unwrap();
    let before = wall_ns();
    record(dir.path(), &["--format", "ctf", "-o", "trace"]);
    let after = wall_ns();
    run(&mut agent(dir.path(), ["import", "--date", "trace", "-o", "back.dat"])).expect(0);
    let times = times(dir.path(), "back.dat");
    let second = 1_000_000_000;
    assert!(!times.is_empty());
    assert!(times.iter().all(|time| (before - second..after + second).contains(time)));
}
