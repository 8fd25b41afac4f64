//! Every event at once, under load: the kernel takes it, and stock trace-cmd reads all of it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use integration_tests::{
    agent,
    dat::Dat,
    kernel_log::KernelLog,
    trace_cmd::{self, Line},
    tracefs, workload,
};

const NOT_PARSED: &str = "[FAILED TO PARSE]";

/// What trace-cmd makes of a file.
struct Printed {
    lines: u64,
    /// Events whose texts it could not make.
    not_parsed: BTreeSet<String>,
    complaints: String,
}

fn print(path: &Path) -> Printed {
    let mut printed = Printed { lines: 0, not_parsed: BTreeSet::new(), complaints: String::new() };
    printed.complaints = trace_cmd::each_line(path, |line| {
        printed.lines += 1;
        if line.contains(NOT_PARSED) {
            printed.not_parsed.insert(Line::parse(line).expect("a line of an event").event);
        }
    });
    printed
}

#[test]
fn all_events_under_load() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let scratch = dir.path();
    let log = KernelLog::from_now();

    let mut args: Vec<String> = ["-e", "all", "-b", "65536"].map(str::to_owned).into();
    args.extend(workload::command("load", scratch));
    let recording = agent::record(&scratch.join("agent.dat"), &args);
    println!("{}", recording.said);
    let events = recording.events();
    assert!(events > 100_000, "only {events} events");

    let printed = print(&recording.path);
    assert_eq!(printed.lines, events, "trace-cmd prints every event that the summary counts");
    let ledger = Dat::open(&recording.path).ledger();
    assert_eq!(ledger.recorded(), events, "the ledger counts what the summary counts");

    // What it cannot print of ours, it cannot print of ftrace's recording either.
    let reference = reference(&printed.not_parsed);
    println!("trace-cmd cannot print {:?}", printed.not_parsed);
    assert_eq!(printed.not_parsed, reference.not_parsed, "not parsed: of the agent's file, of ftrace's");
    assert_eq!(printed.complaints, reference.complaints, "complaints about the agent's file, about ftrace's");

    assert_eq!(log.complaints(), Vec::<String>::new(), "the kernel complains");
}

/// Records these events with ftrace during the same work, and prints that.
fn reference(names: &BTreeSet<String>) -> Printed {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let scratch = dir.path();
    let mut events = tracefs::events(&[]);
    events.retain(|_, event| names.contains(&*event.format.name));
    let instance = tracefs::Instance::create("everything", 65536);
    for event in events.values() {
        instance.enable(&format!("{}:{}", event.system, event.format.name));
    }
    // Little work is enough: the point is how the events print, not how many there are.
    let command = workload::command("mixed", scratch);
    let switch = instance.switch();
    let status = std::process::Command::new(&command[0]).args(&command[1..]).arg(switch).status().unwrap();
    assert!(status.success());
    instance.stop();
    let pages: BTreeMap<u32, Vec<u8>> = instance.pages();
    let path = scratch.join("ftrace.dat");
    tracefs::write_dat(&path, &events, &pages);
    print(&path)
}
