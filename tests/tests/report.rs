//! `report` prints what stock trace-cmd prints of the same recording of the running kernel.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use integration_tests::{agent, stock_lines, trace_cmd, workload};

/// Systems of events that fire in the workload. Those of `tcp` have addresses as bytes: libtraceevent's -R prints such a field as
/// bytes for ever once it has met one that is no text.
const SYSTEMS: [&str; 13] = [
    "sched",
    "irq",
    "timer",
    "kmem",
    "raw_syscalls",
    "syscalls",
    "signal",
    "task",
    "workqueue",
    "exceptions",
    "net",
    "maple_tree",
    "writeback",
];

#[test]
fn lines_are_those_of_trace_cmd() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut args: Vec<String> =
        SYSTEMS.iter().flat_map(|system| ["-e".to_owned(), (*system).to_owned()]).collect();
    args.extend(workload::command("mixed", dir.path()));
    let recording = agent::record(&dir.path().join("live.dat"), &args);
    let path = recording.path.to_str().unwrap();
    for options in [&[][..], &["-R", "-t"], &["-N", "-t"], &["-l", "--ts-diff"], &["-w"]] {
        let theirs = trace_cmd::report(&recording.path, options);
        // This stock reader has one table of task states for all kernels, except where it prints by the format.
        let states = if matches!(options, ["-R" | "-N", ..]) { &[][..] } else { &["--old-states"] };
        let output = agent::run([&["report", path], options, states].concat());
        assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
        let ours = String::from_utf8_lossy(&output.stdout);
        assert_eq!(ours.lines().count(), theirs.lines().count(), "{options:?}");
        for (ours, theirs) in ours.lines().zip(theirs.lines()) {
            let (a, b) = (stock_lines::comparable(ours), stock_lines::comparable(theirs));
            assert_eq!(a, b, "{options:?}\nours:   {ours}\ntheirs: {theirs}");
        }
        println!("{} lines, {options:?}", ours.lines().count());
        if options.is_empty() {
            let events = ours.lines().filter_map(trace_cmd::Line::parse).map(|line| line.event);
            let kinds: BTreeSet<_> = events.collect();
            assert!(kinds.len() > 50, "only {kinds:?}");
        }
    }
    a_reader_that_goes_away_is_no_error(path);
}

fn a_reader_that_goes_away_is_no_error(path: &str) {
    let mut command = agent::command(["report", path]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("cpus="));
    assert!(trace_cmd::Line::parse(&lines.next().unwrap().unwrap()).is_some());
    drop(lines);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn what_cannot_be_reported_is_told() {
    let run = |args: &[&str]| {
        let output = agent::run(["report"].iter().chain(args));
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, error) = run(&["/nowhere/trace.dat"]);
    assert_eq!((code, error.contains("cannot open /nowhere/trace.dat")), (Some(1), true), "{error}");
    let (code, error) = run(&["/proc/self/exe"]);
    assert_eq!((code, error.contains("cannot read /proc/self/exe")), (Some(1), true), "{error}");
    for wrong in [&["--cpu", "2-1"][..], &["--since", "soon"], &["-R", "--json"]] {
        assert_eq!(run(wrong).0, Some(2), "{wrong:?}");
    }
}
