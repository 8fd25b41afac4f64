//! Every event at once, under load: the kernel takes it, and stock trace-cmd reads all of it.

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

/// The most memory of its own that the agent may have, however long it records: formats, symbols, names.
const MEMORY_MAX_KB: u64 = 256 << 10;

/// Trials whose length `cargo xtask soak` sets.
mod soak {
    use super::*;

    #[test]
    fn all_events_under_load() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = dir.path();
        let log = KernelLog::from_now();

        let mut args: Vec<String> = ["-e", "all", "-b", "65536"].map(str::to_owned).into();
        args.extend(workload::command("load", scratch));
        let (recording, memory) = agent::record_and_watch(&scratch.join("agent.dat"), &args);
        println!("{}{memory} kB", recording.said);
        assert!(memory < MEMORY_MAX_KB, "{memory} kB");
        let events = recording.events();
        assert!(events > 100_000, "only {events} events");

        let printed = print(&recording.path);
        assert_eq!(printed.lines, events, "trace-cmd prints every event that the summary counts");
        let ledger = Dat::open(&recording.path).ledger();
        assert_eq!(ledger.recorded(), events, "the ledger counts what the summary counts");
        let checked = agent::run(["check".as_ref(), recording.path.as_os_str()]);
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));

        // What it cannot print of ours, it cannot print of ftrace's recording either.
        let reference = reference(&printed.not_parsed);
        println!("trace-cmd cannot print {:?}", printed.not_parsed);
        assert_eq!(printed.not_parsed, reference.not_parsed, "not parsed: of the agent's file, of ftrace's");
        assert_eq!(
            printed.complaints, reference.complaints,
            "complaints about the agent's file, about ftrace's"
        );

        assert_eq!(log.complaints(), Vec::<String>::new(), "the kernel complains");
    }

    /// Every process by its own exec, its own end and its own name, of more than there are process ids.
    #[test]
    fn every_process_of_many_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let mut args: Vec<String> = ["-e", "sched:sched_process_*", "-b", "16384"].map(str::to_owned).into();
        args.extend(workload::command("execs", dir.path()));
        let (recording, memory) = agent::record_and_watch(&dir.path().join("agent.dat"), &args);
        assert!(memory < MEMORY_MAX_KB, "{memory} kB");
        assert_eq!(Dat::open(&recording.path).ledger().lost(), 0, "{}", recording.said);

        // Several processes may have had an id, one after the other.
        let [mut execs, mut exits] = [const { BTreeMap::<u32, i32>::new() }; 2];
        let mut names: BTreeMap<u32, String> = BTreeMap::new();
        let complaints = trace_cmd::each_line(&recording.path, |line| {
            let line = Line::parse(line).expect("a line of an event");
            let count = match line.event.as_str() {
                "sched_process_exec" if line.fields.starts_with("filename=/bin/true ") => {
                    execs.entry(line.pid).or_insert(0)
                }
                "sched_process_exit" => exits.entry(line.pid).or_insert(0),
                _ => return,
            };
            *count += 1;
            names.insert(line.pid, line.comm);
        });
        assert_eq!(complaints, "");
        let mut made: BTreeMap<u32, i32> = BTreeMap::new();
        let account = workload::Account::read(dir.path());
        for tid in &account.started[1..] {
            *made.entry(*tid).or_default() += 1;
        }
        assert!(account.started.len() > 500);
        for (tid, count) in made {
            assert!(execs.get(&tid).copied() >= Some(count), "{count} processes had the id {tid}");
            assert!(exits.get(&tid).copied() >= Some(count), "{count} processes had the id {tid}");
        }
        // A file has one name for an id, that of the last one who had it. The last of these ids have had no
        // time to come round again.
        for tid in account.started.iter().rev().take(500) {
            assert_eq!(names.get(tid).map(String::as_str), Some("true"), "{tid}");
        }
    }
}

/// Records these events with ftrace during the same work, and prints that.
fn reference(names: &BTreeSet<String>) -> Printed {
    let dir = tempfile::tempdir().unwrap();
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
