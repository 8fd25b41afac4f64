//! Switches of threads make a chain: whoever gets a CPU is who gives it away next. What is left out of a
//! recording leaves nobody on a CPU that it recorded to be there.
//!
//! ftrace, which records beside, tells what the kernel itself leaves out: some sandboxes keep the events of
//! their first process back.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use integration_tests::{
    agent,
    dat::{self, Dat, Record, le_u32},
    hidden::is_hidden,
    tracefs, workload,
};

/// A place in the chain that lacks something: on this CPU one thread came, and another one went.
type Gap = (u32, u32, u32);

struct Switches {
    id: u16,
    prev: usize,
    next: usize,
}

impl Switches {
    fn find() -> Self {
        let events = tracefs::events(&["sched"]);
        let (id, event) = events.iter().find(|(_, event)| event.format.name == "sched_switch").unwrap();
        let place = |name| event.format.field(name).unwrap().offset as usize;
        Self { id: *id, prev: place("prev_pid"), next: place("next_pid") }
    }

    /// The switches of each CPU: who went, and who came.
    fn of(&self, records: &[Record]) -> BTreeMap<u32, Vec<(u32, u32)>> {
        let mut found: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
        for record in records.iter().filter(|record| record.id() == self.id) {
            let switch = (le_u32(&record.bytes, self.prev), le_u32(&record.bytes, self.next));
            found.entry(record.cpu).or_default().push(switch);
        }
        found
    }
}

fn gaps(switches: &BTreeMap<u32, Vec<(u32, u32)>>) -> Vec<Gap> {
    let of_cpu = |(cpu, switches): (&u32, &Vec<(u32, u32)>)| -> Vec<Gap> {
        let pairs = switches.windows(2).map(|pair| (*cpu, pair[0].1, pair[1].0));
        pairs.filter(|(_, came, went)| came != went).collect()
    };
    switches.iter().flat_map(of_cpu).collect()
}

/// A recording of the sleeper on one CPU, with the agent's own threads.
struct Recorded {
    switches: BTreeMap<u32, Vec<(u32, u32)>>,
    gaps: Vec<Gap>,
    /// The gaps of the kernel's own recording.
    of_ftrace: Vec<Gap>,
    sleeper: u32,
    /// How often a hidden thread gave a CPU to the sleeper, which no program sees.
    hidden: usize,
}

fn record(args: &[&str]) -> Recorded {
    let switches = Switches::find();
    let dir = tempfile::tempdir().unwrap();
    let ftrace = tracefs::Instance::create("switches", 16384);
    ftrace.enable("sched:sched_switch");
    fs::write(ftrace.switch(), "1").unwrap();
    let file = dir.path().join("trace.dat");
    // On one CPU the agent's threads follow one another.
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(agent::binary()).args(["record", "-b", "4096", "--compression", "none"]);
    command.args(["-e", "sched:sched_switch", "-o"]).arg(&file).args(args);
    command.args(workload::command("sleeper", dir.path())).stdout(Stdio::null());
    let output = command.output().unwrap();
    ftrace.stop();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    let sleeper = workload::Account::read(dir.path()).started[0];
    let (ours, theirs) = (read(&file), ftrace.pages());
    let theirs: Vec<Record> = theirs.iter().flat_map(|(cpu, pages)| dat::records(*cpu, pages)).collect();
    let theirs = switches.of(&theirs);
    let hidden =
        theirs.values().flatten().filter(|(prev, next)| is_hidden(*prev) && *next == sleeper).count();
    let switches = switches.of(&ours);
    Recorded { gaps: gaps(&switches), switches, of_ftrace: gaps(&theirs), sleeper, hidden }
}

fn read(file: &Path) -> Vec<Record> {
    let dat = Dat::open(file);
    assert_eq!(dat.ledger().lost(), 0);
    dat.records()
}

impl Recorded {
    /// How often a thread got and gave away a CPU.
    fn turns(&self, tid: u32) -> (usize, usize) {
        let all = || self.switches.values().flatten();
        (all().filter(|(_, next)| *next == tid).count(), all().filter(|(prev, _)| *prev == tid).count())
    }
}

#[test]
fn a_recording_of_every_thread_has_a_chain_without_gaps() {
    for args in [
        &[][..],
        &["--lane", "fast"],
        &["--lane", "generic"],
        &["--overwrite"],
        &["--self"],
        &["--context", "prio"],
        &["--context", "prio", "--lane", "generic"],
    ] {
        let recorded = record(args);
        // Where the kernel hides threads of process 1 from tracers, not every one of them hides the same
        // events.
        let is_ours =
            |gap: &&Gap| !recorded.of_ftrace.contains(gap) && !is_hidden(gap.1) && !is_hidden(gap.2);
        let ours: Vec<_> = recorded.gaps.iter().filter(is_ours).collect();
        assert!(ours.is_empty(), "{args:?}: {ours:?}");
        let (came, went) = recorded.turns(recorded.sleeper);
        assert!(came >= 60 && went >= 60, "{args:?}: {came} {went}");
    }
}

#[test]
fn a_thread_that_is_recorded_comes_and_goes() {
    let other = std::process::id().to_string();
    for (args, lane) in
        [&["-F"][..], &["-F", "-c"], &["--exclude-pid", &other], &["--exclude-comm", "no-*"], &["--uid", "0"]]
            .into_iter()
            .flat_map(|args| [(args, "fast"), (args, "generic")])
    {
        let recorded = record(&[args, &["--lane", lane]].concat());
        let sleeper = recorded.sleeper;
        // Who was there before may have been left out, so that only the numbers can be compared.
        let lacking = |gaps: &[Gap]| {
            let count = |lacks: fn(&Gap) -> u32| gaps.iter().filter(|gap| lacks(gap) == sleeper).count();
            (count(|(_, came, _)| *came), count(|(_, _, went)| *went))
        };
        let (ours, theirs) = (lacking(&recorded.gaps), lacking(&recorded.of_ftrace));
        let hidden = recorded.hidden;
        assert!(
            ours.0 <= theirs.0 && ours.1 <= theirs.1 + hidden,
            "{args:?} {lane}: {sleeper}, {hidden} hidden: {:?}",
            recorded.gaps
        );
        let (came, went) = recorded.turns(sleeper);
        assert!(came >= 60 && went >= 60, "{args:?}: {came} {went}");
    }
}

/// What a thread is may change while it runs: whoever was switched to as one that is wanted is still switched
/// away from.
#[test]
fn a_thread_that_leaves_the_scope_while_it_runs_is_switched_away_from() {
    for lane in ["fast", "generic"] {
        let recorded = record(&["--comm", "switch-in", "--lane", lane]);
        // It falls asleep under the name, wakes as one that had it, and falls asleep under another name.
        let (came, went) = recorded.turns(recorded.sleeper);
        assert!(came >= 55 && went >= came + 55, "{lane}: {came} {went}");
    }
}
