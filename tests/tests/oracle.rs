//! ftrace is the oracle: a workload is recorded by ftrace and by the agent at the same time, and the two must agree event
//! by event, byte by byte, and in the text that stock trace-cmd prints.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use integration_tests::{
    agent, dat::{self, Dat, Record},
    pairs::{self, Pairs, Tally},
    trace_cmd, tracefs, workload,
};

struct Case<'a> {
    workload: &'a str,
    systems: &'a [&'a str],
    /// Events that the workload fires at least so often.
    expected: &'a [(&'a str, u64)],
}

fn check(case: &Case<'_>) {
    let Case { workload, systems, expected } = case;
    let dir = tempfile::Builder::new().prefix("oracle").tempdir_in(".").unwrap();
    let scratch = dir.path().canonicalize().unwrap();
    let events = tracefs::events(systems);

    let instance = tracefs::Instance::create("oracle", 65536);
    let mut args: Vec<String> = ["--compression", "none", "-b", "65536"].map(str::to_owned).into();
    for system in *systems {
        instance.enable(&format!("{system}:*"));
        args.extend(["-e".to_owned(), format!("{system}:*")]);
    }
    args.extend(workload::command(workload, &scratch));
    instance.start();
    let recording = agent::record(&scratch.join("agent.dat"), &args);
    instance.stop();
    let pages = instance.pages();
    drop(instance);
    let account = workload::Account::read(&scratch);

    let reference_path = scratch.join("ftrace.dat");
    tracefs::write_dat(&reference_path, &events, &pages);
    let ftrace: Vec<Record> = pages.iter().flat_map(|(cpu, pages)| dat::records(*cpu, pages)).collect();
    let file = Dat::open(&recording.path);
    let ours = file.records();
    assert_eq!(ours.len() as u64, recording.events(), "the summary and the file disagree\n{}", recording.said);
    let ledger = file.ledger();
    assert_eq!(ledger.lost(), 0, "the rings are large enough\n{}", recording.said);

    let pairs = Pairs::find(&ftrace, &ours, &account.tasks, account.start, account.end);
    let tallies = pairs::compare(&ftrace, &ours, &pairs, &events);
    eprintln!(
        "{systems:?}: {} events of ftrace, {} of the agent, {} pairs, {} only ftrace, {} only agent, {} recursion misses\n{}",
        ftrace.len(), ours.len(), pairs.pairs.len(), pairs.only_ftrace.len(), pairs.only_agent.len(),
        ledger.recursion_misses(), pairs::table(&tallies)
    );
    for (label, list, from) in [("only ftrace", &pairs.only_ftrace, &ftrace), ("only agent", &pairs.only_agent, &ours)] {
        for index in list.iter().take(12) {
            let r = &from[*index];
            eprintln!("{label}: {} {} cpu {} pid {} flags {:#x} pc {:#x}", r.time, events[&r.id()].format.name, r.cpu, r.pid(), r.flags(), r.preempt_count());
        }
    }
    let _ = (expected, trace_cmd::lines(""), Tally::default(), BTreeMap::<u8,u8>::new());
}

#[test]
fn sched() {
    check(&Case { workload: "sched", systems: &["sched"], expected: &[] });
}
#[test]
fn irq() {
    check(&Case { workload: "irq", systems: &["irq"], expected: &[] });
}
#[test]
fn timer() {
    check(&Case { workload: "timer", systems: &["timer"], expected: &[] });
}
#[test]
fn kmem() {
    check(&Case { workload: "kmem", systems: &["kmem"], expected: &[] });
}
#[test]
fn raw_syscalls() {
    check(&Case { workload: "syscalls", systems: &["raw_syscalls"], expected: &[] });
}
#[test]
fn block() {
    check(&Case { workload: "block", systems: &["block", "ext4"], expected: &[] });
}
#[test]
fn syscalls() {
    check(&Case { workload: "syscalls", systems: &["syscalls"], expected: &[] });
}
