//! Events of interrupts that come while a thread has the CPU that is not recorded: they are not of that
//! thread.
//!
//! This test is the recorder, and keeps the CPUs busy with threads of its own. Interrupts come to one of them
//! nearly always then, and to somebody else's on a busy machine.
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use capture::Session;
use capture::watch::Watch;
use integration_tests::{
    agent,
    answers::{list, number},
    daemon::{Daemon, ROOT},
    dat::{Dat, Record},
    harness::{files, ledger_in_info},
    has_preempt_rt,
    hidden::HiddenEvents,
    pairs::{self, Pairs},
    session::{events, rows, start, stop},
    trace_cmd::{self, Line},
    tracefs,
    workload::{self, Account, cpus},
};
use plan::Plan;
use serde_json::{Value, json};
use spec::{ChannelSpec, LaneChoice, MapSpec, RecordingSpec, TraceClock, WatchSpec};
use tracedat::Compression;

/// What the workload does to the disk, one request after the other.
const REQUESTS: [&str; 2] = ["block:block_rq_issue", "block:block_rq_complete"];

/// How many of the workload's 300 requests it gives to the driver itself at least: others may do that for it
/// while the disk has too much to do.
const ISSUED: usize = 100;

/// Recordings that each test makes, at most.
const TIMES: usize = 5;

/// After so many requests that end while a thread has the CPU that is not recorded, no more recordings are
/// made. In a guest two recordings have as many; on a busy machine five may have fewer.
const ENOUGH: usize = 400;

/// Held by the test whose threads keep the CPUs busy: those of one are enough.
static CPUS: Mutex<()> = Mutex::new(());

/// Of the threads that keep the CPUs busy: they take the time that others leave, and a quarter of the rest,
/// so that recorders start as fast as usual.
const NICE: i32 = 5;

/// Whether a workload runs.
fn workload_runs() -> bool {
    let is_its = |process: fs::DirEntry| {
        let name = fs::read_to_string(process.path().join("comm"));
        name.is_ok_and(|name| name.trim_end() == "test-workload")
    };
    fs::read_dir("/proc").unwrap().flatten().any(is_its)
}

/// How often a thread that is to keep its CPU busy polls for the workload.
const POLL: Duration = Duration::from_millis(10);

/// Threads of this process that keep all CPUs busy, each with a system call now and then, from the time when
/// `act` has begun a workload to its end: what starts recordings has the CPUs for itself. Gives their ids,
/// with what `act` gives.
fn with_busy_threads<T>(act: impl FnOnce() -> T) -> (BTreeSet<u32>, T) {
    let _turn = CPUS.lock().unwrap_or_else(PoisonError::into_inner);
    let is_over = AtomicBool::new(false);
    let busy = |cpu: usize| {
        workload::on_cpu(cpu);
        // SAFETY: the call takes numbers; 0 is the calling thread.
        assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) }, 0);
        while !is_over.load(Ordering::Relaxed) && !workload_runs() {
            thread::sleep(POLL);
        }
        while !is_over.load(Ordering::Relaxed) {
            (0..200_000).for_each(|_| std::hint::spin_loop());
            // SAFETY: the call takes no arguments.
            unsafe { libc::getppid() };
        }
        workload::tid() as u32
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..cpus()).map(|cpu| scope.spawn(move || busy(cpu))).collect();
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        is_over.store(true, Ordering::Relaxed);
        let tids = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        (tids, done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Runs the workload in a process of its own.
fn work(scratch: &Path) -> Account {
    let line = workload::command("direct", scratch);
    assert!(Command::new(&line[0]).args(&line[1..]).status().unwrap().success());
    Account::read(scratch)
}

/// What records these events, by this process.
fn spec(path: &Path, lane: LaneChoice, names: &[&str]) -> RecordingSpec {
    let rules = names.iter().map(|name| events(name)).collect();
    let channel = ChannelSpec { rules, lane, ring_bytes: 32 << 20, ..ChannelSpec::default() };
    let mut spec = RecordingSpec { channels: vec![channel], ..RecordingSpec::default() };
    spec.file.path = path.into();
    spec.file.compression = Compression::None;
    spec
}

/// The requests of a workload's threads, by a recording.
#[derive(Debug, Default)]
struct Requests {
    issued: usize,
    completed: usize,
    /// Of those, how many while one of the threads had the CPU that are not recorded.
    in_others: usize,
}

fn word<'l>(line: &'l Line, name: &str) -> &'l str {
    let words = line.fields.split_whitespace().filter_map(|word| word.split_once('='));
    words.into_iter().find(|(of, _)| *of == name).unwrap_or_else(|| panic!("no {name} in {line:?}")).1
}

/// Looks for the end of each request, in the report of stock trace-cmd.
fn requests(file: &Path, account: &Account, others: &BTreeSet<u32>) -> Requests {
    let mut lines = trace_cmd::lines(&trace_cmd::report(file, &["-R", "-t"]));
    lines.sort_by_key(|line| line.time);
    let mut open = BTreeSet::new();
    let mut found = Requests::default();
    for line in &lines {
        let is_issue = line.event == "block_rq_issue" && account.tasks.contains(&line.pid);
        if !is_issue && line.event != "block_rq_complete" {
            continue;
        }
        let request = (word(line, "dev").to_owned(), word(line, "sector").to_owned());
        if line.event == "block_rq_complete" {
            if open.remove(&request) {
                found.completed += 1;
                found.in_others += usize::from(others.contains(&line.pid));
            }
        // A flush has no sectors when it is done.
        } else if word(line, "nr_sector") != "0" {
            found.issued += 1;
            open.insert(request);
        }
    }
    found
}

/// Compares the requests of some recordings: each has both ends, but for those that the kernel kept from the
/// programs, whose number is given, and some ended while threads had the CPU that are not recorded.
#[track_caller]
fn check(name: &str, recordings: impl IntoIterator<Item = (Requests, u64)>) {
    let (mut wrong, mut in_others, mut all) = (Vec::new(), 0, Vec::new());
    for (requests, kept) in recordings {
        assert!(requests.issued >= ISSUED, "{name}: {requests:?}");
        if (requests.completed as u64).saturating_add(kept) < requests.issued as u64 {
            wrong.push(all.len());
        }
        in_others += requests.in_others;
        all.push(requests);
    }
    println!("{name}: {all:?}");
    assert!(wrong.is_empty(), "{name}: recordings {wrong:?} of {all:?}");
    assert_ne!(in_others, 0, "{name}: nobody was interrupted who is not recorded: {all:?}");
}

/// How many events the kernel skipped because the program ran already; `u64::MAX` if it does not count them.
fn skipped(ledger: &Value) -> u64 {
    ledger["recursion_misses"].as_u64().unwrap_or(u64::MAX)
}

/// How many ends of requests the kernel kept from the programs of a recording: those that it skipped, and
/// those in interrupts of hidden threads.
fn kept(file: &Path, hidden: HiddenEvents) -> u64 {
    skipped(&ledger_in_info(file)).saturating_add(hidden.stop().len() as u64)
}

#[test]
fn requests_end_in_interrupts_of_the_recorder() {
    for lane in [LaneChoice::Auto, LaneChoice::Generic] {
        let mut recordings: Vec<(Requests, u64)> = Vec::new();
        let in_others = |recordings: &[(Requests, u64)]| -> usize {
            recordings.iter().map(|(requests, _)| requests.in_others).sum()
        };
        while recordings.len() < TIMES && in_others(&recordings) < ENOUGH {
            let dir = tempfile::tempdir().unwrap();
            let session = start(&spec(&dir.path().join("trace.dat"), lane, &REQUESTS));
            let hidden = HiddenEvents::start(&REQUESTS[1..]);
            let (others, account) = with_busy_threads(|| work(dir.path()));
            let file = stop(session);
            let ledger = ledger_in_info(&file);
            for row in ledger["events"].as_array().unwrap() {
                assert_eq!(row.get("filtered"), None, "nothing was filtered: {row}");
            }
            assert_eq!(ledger.get("leaves_out_interrupts"), None);
            recordings.push((requests(&file, &account, &others), kept(&file, hidden)));
        }
        check(&lane.to_string(), recordings);
    }
}

/// As on a kernel without type information: programs find no preempt count. The ends of requests that are
/// missing are counted as the recorder's own, and the ledger says what that means.
#[test]
fn without_the_preempt_count_the_ledger_says_that_interrupts_are_left_out() {
    let (mut left_out, mut in_others) = (0, 0);
    for _ in 0..TIMES {
        let dir = tempfile::tempdir().unwrap();
        let spec = spec(&dir.path().join("trace.dat"), LaneChoice::Auto, &REQUESTS);
        let mut options = Plan::make(&spec).unwrap().options;
        options.layout.preempt_count = None;
        let mut session = Session::create(options, &mut |_, _| ()).unwrap();
        session.start();
        let hidden = HiddenEvents::start(&REQUESTS[1..]);
        let (others, account) = with_busy_threads(|| work(dir.path()));
        let file = stop(session);
        let ledger = ledger_in_info(&file);
        assert_eq!(ledger["leaves_out_interrupts"], true);
        let row = &rows(&file, REQUESTS[1])[0];
        assert_eq!(row.get("filtered"), None, "{row}");
        let own = row["own_threads"].as_u64().unwrap_or(0);
        let requests = requests(&file, &account, &others);
        let found = (requests.completed as u64).saturating_add(own).saturating_add(kept(&file, hidden));
        assert!(found >= requests.issued as u64, "{requests:?}, {row}");
        left_out += requests.issued - requests.completed;
        in_others += requests.in_others;
    }
    println!("{left_out} requests have no end");
    assert!(
        left_out != 0 && in_others == 0,
        "{left_out} left out, {in_others} in interrupts of the recorder"
    );
}

/// As users do it. The recorder has enough to do at the beginning.
#[test]
fn requests_have_two_ends_in_a_recording_of_nothing_else() {
    for time in 0..TIMES {
        let dir = tempfile::tempdir().unwrap();
        let mut args: Vec<String> = Vec::from(["-e", REQUESTS[0], "-e", REQUESTS[1]].map(str::to_owned));
        args.extend(workload::command("direct", dir.path()));
        let hidden = HiddenEvents::start(&REQUESTS[1..]);
        let recording = agent::record(&dir.path().join("trace.dat"), args);
        let requests = requests(&recording.path, &Account::read(dir.path()), &BTreeSet::new());
        assert!(requests.issued >= ISSUED, "{requests:?}");
        let kept = kept(&recording.path, hidden);
        assert!(
            (requests.completed as u64).saturating_add(kept) >= requests.issued as u64,
            "{time}: {requests:?}"
        );
        assert!(!recording.said.contains("left out by filters"), "{}", recording.said);
    }
}

/// Records with options that exclude this process, in both lanes.
fn excluding(options: &[&str]) {
    let recordings = ["auto", "generic"].map(|lane| {
        let dir = tempfile::tempdir().unwrap();
        let mut args: Vec<String> = ["--lane", lane, "-b", "32768", "-e", "raw_syscalls:sys_enter"]
            .iter()
            .chain(REQUESTS.iter().flat_map(|event| [&"-e", event]))
            .chain(options)
            .map(|&word| word.to_owned())
            .collect();
        args.extend(workload::command("direct", dir.path()));
        let hidden = HiddenEvents::start(&REQUESTS[1..]);
        let (others, recording) = with_busy_threads(|| agent::record(&dir.path().join("trace.dat"), &args));
        let lines = trace_cmd::lines(&trace_cmd::report(&recording.path, &["-R", "-t"]));
        let called = lines.iter().filter(|line| line.event == "sys_enter");
        let own = called.clone().filter(|line| others.contains(&line.pid)).count();
        assert!(own == 0 && called.count() > 300, "{options:?}: {own} calls of threads that were excluded");
        let requests = requests(&recording.path, &Account::read(dir.path()), &others);
        (requests, kept(&recording.path, hidden))
    });
    check(&options.join(" "), recordings);
}

#[test]
fn requests_end_in_interrupts_of_excluded_threads() {
    let pid = std::process::id().to_string();
    excluding(&["--exclude-pid", &pid]);
    // Threads have the name of the one that made them, which the test's harness has named after the test.
    let name = fs::read_to_string("/proc/thread-self/comm").unwrap();
    excluding(&["--exclude-comm", name.trim_end()]);
    // With a set of what is wanted beside it.
    excluding(&["--uid", "0", "--exclude-pid", &pid]);
}

#[test]
fn threads_that_are_asked_for_bring_their_own_interrupts_only() {
    let dir = tempfile::tempdir().unwrap();
    let name = fs::read_to_string("/proc/thread-self/comm").unwrap();
    for (option, value) in
        [("-P", &*std::process::id().to_string()), ("--comm", name.trim_end()), ("--uid", "4242")]
    {
        let args = ["-e", "irq:softirq_entry", option, value].map(str::to_owned);
        let args: Vec<String> = args.into_iter().chain(workload::command("direct", dir.path())).collect();
        let file = dir.path().join(format!("{}.dat", option.trim_start_matches('-')));
        let (busy, recording) = with_busy_threads(|| agent::record(&file, args));
        let lines = trace_cmd::lines(&trace_cmd::report(&recording.path, &["-R", "-t"]));
        let of_busy = lines.iter().filter(|line| busy.contains(&line.pid)).count();
        assert_eq!(of_busy == 0, option == "--uid", "{option}: {of_busy} of {}", lines.len());
        let others = lines.iter().filter(|line| !is_thread_of(std::process::id(), line.pid, &busy));
        assert_eq!(others.count(), 0, "{option}: {lines:?}");
        let row = &rows(&file, "irq:softirq_entry")[0];
        assert!(row["filtered"].as_u64() > Some(0), "{option}: {row}");
    }
}

/// Whether a thread is of a process, or one of those that were before.
fn is_thread_of(pid: u32, tid: u32, before: &BTreeSet<u32>) -> bool {
    before.contains(&tid) || Path::new(&format!("/proc/{pid}/task/{tid}")).exists()
}

/// The analysis of requests has what it needs whatever threads were chosen. The last choice leaves out the
/// ends, which leaves nothing to be told of the requests.
#[test]
fn requests_of_chosen_threads_end_in_interrupts_of_others() {
    let name = Path::new(&workload::command("direct", Path::new("/"))[0]).to_owned();
    let name = name.file_name().unwrap().to_str().unwrap().to_owned();
    // The kernel keeps 15 bytes of a name.
    let name = &name[..name.len().min(15)];
    let requests_only: Vec<&str> = REQUESTS.iter().flat_map(|event| ["-e", event]).chain(["-F"]).collect();
    let scopes = [
        &["--for", "io", "-F", "-c"][..],
        &["--for", "io", "--lane", "generic", "-F", "-c"],
        &["--for", "io", "-e", "block", "--comm", name],
        &requests_only,
    ];
    for options in scopes {
        let mut in_others = 0;
        for _ in 0..TIMES {
            in_others += requests_in_scope(options, options == requests_only);
            if in_others != 0 {
                break;
            }
        }
        assert!(
            in_others != 0 || options == requests_only,
            "{options:?}: nobody was interrupted but the threads"
        );
    }
}

/// Records the workload by these options, and checks the answer. Gives how many requests ended while others
/// had the CPU.
fn requests_in_scope(options: &[&str], has_no_ends: bool) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let args: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    let command = workload::command("direct", dir.path());
    // Its pages are in memory then: the kernel would read ahead more than one at a time.
    fs::read(&command[0]).unwrap();
    let args: Vec<String> = args.into_iter().chain(command).collect();
    let hidden = HiddenEvents::start(&REQUESTS[1..]);
    let (others, recording) = with_busy_threads(|| agent::record(&dir.path().join("trace.dat"), args));
    let kept = kept(&recording.path, hidden);
    let account = Account::read(dir.path());
    let analyzed = agent::run(["analyze", "io", "--json", recording.path.to_str().unwrap()]);
    let answer: Value = serde_json::from_slice(&analyzed.stdout).unwrap();
    let is_task = |row: &&Value| row["tid"].as_u64().is_some_and(|tid| account.tasks.contains(&(tid as u32)));
    let of_tasks = list(&answer, "requesters").iter().filter(is_task);
    let operations: Vec<&Value> = of_tasks.flat_map(|row| list(row, "operations")).collect();
    let sum = |name: &str| operations.iter().map(|of| number(of, name)).sum::<u64>();
    let unjoined = list(&answer["covered"], "unjoined");
    if has_no_ends {
        assert_eq!((operations.len(), unjoined), (0, &[json!(REQUESTS[0])][..]), "{options:?}");
        return 0;
    }
    assert!(unjoined.is_empty(), "{options:?}: {unjoined:?}");
    let requests = requests(&recording.path, &account, &others);
    println!("{options:?}: {requests:?}, {kept} kept");
    assert!(requests.issued >= ISSUED, "{options:?}: {requests:?}");
    assert!(sum("times.count") + kept >= requests.issued as u64, "{options:?}: {answer}");
    assert!(sum("unfinished") <= kept, "{options:?}: {answer}");
    // One request after the other. What others do at the same time is not recorded.
    for device in list(&answer, "devices") {
        assert!(device["average_depth"].as_f64().unwrap() <= 1.0, "{options:?}: {device}");
        assert_eq!(number(device, "unmatched"), 0, "{options:?}: {device}");
    }
    requests.in_others
}

/// A rule that is about every thread in a recording of others: this process, the recorder, is not among them.
#[test]
fn events_of_every_thread_are_not_those_of_the_recorder() {
    for lane in [LaneChoice::Auto, LaneChoice::Generic] {
        let dir = tempfile::tempdir().unwrap();
        let mut spec = spec(&dir.path().join("trace.dat"), lane, &["raw_syscalls:sys_enter"]);
        spec.channels[0].rules[0].every_thread = true;
        spec.scope.pids = vec![1];
        let session = start(&spec);
        let (own, account) = with_busy_threads(|| work(dir.path()));
        let file = stop(session);
        let lines = trace_cmd::lines(&trace_cmd::report(&file, &["-t"]));
        let of = |tids: &BTreeSet<u32>| lines.iter().filter(|line| tids.contains(&line.pid)).count();
        assert!(of(&account.tasks) > 300, "{lane}: {} calls of others", of(&account.tasks));
        assert_eq!(of(&own), 0, "{lane}: calls of the recorder");
        let row = &rows(&file, "raw_syscalls:sys_enter")[0];
        assert!(row["own_threads"].as_u64() > Some(0), "{lane}: {row}");
        assert_eq!(row["every_thread"], true);
    }
}

/// How often each soft interrupt was served since the machine started, over all CPUs.
fn softirqs() -> BTreeMap<String, u64> {
    let text = fs::read_to_string("/proc/softirqs").unwrap();
    let row = |line: &str| {
        let (name, counts) = line.split_once(':').unwrap();
        let counts = counts.split_whitespace().map(|count| count.parse::<u64>().unwrap());
        (name.trim().to_owned(), counts.sum())
    };
    text.lines().skip(1).map(row).collect()
}

/// The kernel counts a soft interrupt and fires the event in one line after the other (`handle_softirqs`).
#[test]
fn soft_interrupts_are_as_many_as_the_kernel_counts() {
    // With it, soft interrupts are served in threads.
    if has_preempt_rt() {
        return;
    }
    for lane in [LaneChoice::Auto, LaneChoice::Generic] {
        let dir = tempfile::tempdir().unwrap();
        let before = softirqs();
        let session = start(&spec(&dir.path().join("trace.dat"), lane, &["irq:softirq_entry"]));
        let hidden = HiddenEvents::start(&["irq:softirq_entry"]);
        let begun = softirqs();
        with_busy_threads(|| work(dir.path()));
        let ending = softirqs();
        let file = stop(session);
        let after = softirqs();
        let by_name = |fields: &mut dyn Iterator<Item = String>| {
            let mut counts: BTreeMap<String, u64> = BTreeMap::new();
            for fields in fields {
                let name = fields.rsplit_once("action=").unwrap().1.trim_end_matches(']');
                *counts.entry(name.to_owned()).or_default() += 1;
            }
            counts
        };
        let hidden = by_name(&mut hidden.stop().into_iter().map(|event| event.fields));
        let lines = trace_cmd::lines(&trace_cmd::report(&file, &["-t"]));
        let recorded = by_name(&mut lines.into_iter().map(|line| line.fields));
        let ledger = ledger_in_info(&file);
        let mut skipped = skipped(&ledger);
        for (name, end) in ending {
            let found = recorded.get(&name).copied().unwrap_or(0);
            let (least, most) = (end - begun[&name], after[&name] - before[&name]);
            assert!(found <= most, "{lane}: {name}: {found} of {least} to {most}");
            let hidden = hidden.get(&name).copied().unwrap_or(0);
            let missing = least.saturating_sub(found.saturating_add(hidden));
            assert!(
                missing <= skipped,
                "{lane}: {name}: {found} of {least} to {most}, {hidden} hidden, {skipped} skipped"
            );
            skipped = skipped.saturating_sub(missing);
        }
        let row = &rows(&file, "irq:softirq_entry")[0];
        assert_eq!(row.get("own_threads"), None, "no soft interrupt is a thread's: {row}");
    }
}

/// The same by event and byte, beside ftrace, of what comes in interrupts of this process.
#[test]
fn interrupts_of_the_recorder_are_those_that_ftrace_records() {
    const SYSTEMS: [&str; 5] = ["irq", "irq_vectors", "block", "timer", "sched"];
    // With it, ftrace and the agent mark other soft interrupts.
    if has_preempt_rt() {
        return;
    }
    let known = tracefs::events(&SYSTEMS);
    let is_known = |system: &&str| known.values().any(|event| event.system == **system);
    let wanted: Vec<String> =
        SYSTEMS.iter().filter(|system| is_known(system)).map(|system| format!("{system}:*")).collect();
    for lane in [LaneChoice::Auto, LaneChoice::Generic] {
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<&str> = wanted.iter().map(String::as_str).collect();
        let instance = tracefs::Instance::create("interrupts", 65536);
        for pattern in &wanted {
            instance.enable(pattern);
        }
        let session = start(&spec(&dir.path().join("trace.dat"), lane, &names));
        fs::write(instance.switch(), "1").unwrap();
        let (own, account) = with_busy_threads(|| work(dir.path()));
        instance.stop();
        let file = Dat::open(&stop(session));
        let pages = instance.pages();
        drop(instance);

        let ftrace = pages.iter().flat_map(|(cpu, pages)| integration_tests::dat::records(*cpu, pages));
        let ftrace: Vec<Record> = ftrace.filter(pairs::in_interrupt).collect();
        let ours = file.records();
        let ledger = file.ledger();
        assert_eq!(ledger.lost(), 0);
        // A switch is also that of another thread, as is a wakeup.
        let is_own = |record: &&Record| own.contains(&record.pid());
        let event = |record: &Record| {
            let event = &known[&record.id()];
            format!("{}:{}", event.system, event.format.name)
        };
        for record in ours.iter().filter(is_own).filter(|record| !pairs::in_interrupt(record)) {
            let name = event(record);
            assert!(name.starts_with("sched:"), "{lane}: {name} of a thread of the recorder");
        }
        let ours: Vec<Record> = ours.into_iter().filter(pairs::in_interrupt).collect();
        let pairs = Pairs::find(&ftrace, &ours, &own, account.start, account.end);
        let tallies = pairs::compare(&ftrace, &ours, &pairs, &known);
        println!("{lane}: {} pairs\n{}", pairs.pairs.len(), pairs::table(&tallies));
        let name = |of: &[Record], indexes: &[usize]| -> Vec<String> {
            indexes.iter().map(|&index| event(&of[index])).collect()
        };
        assert_eq!(name(&ours, &pairs.only_agent), [""; 0], "{lane}: what ftrace did not see");
        let missing = name(&ftrace, &pairs.only_ftrace);
        let may_lack = ledger.recursion_misses().unwrap_or(u64::MAX);
        assert!(
            missing.len() as u64 <= may_lack,
            "{lane}: {may_lack} were skipped, and are missing: {missing:?}"
        );
        for (name, tally) in &tallies {
            assert!(tally.fields.is_empty(), "{lane}: {name}: {:?} {:?}", tally.fields, tally.example);
            assert!(tally.flags.is_empty(), "{lane}: {name}: {:x?}", tally.flags);
        }
        for name in ["irq:softirq_entry", "irq:softirq_exit", "sched:sched_waking"] {
            assert!(tallies.get(name).is_some_and(|tally| tally.pairs != 0), "{lane}: {name}");
        }
    }
}

/// Maps have programs of their own.
#[test]
fn maps_count_interrupts_of_the_recorder() {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = spec(&dir.path().join("trace.dat"), LaneChoice::Auto, &REQUESTS);
    spec.maps = REQUESTS.iter().map(|event| MapSpec::of_events(event).unwrap()).collect();
    let session = start(&spec);
    let hidden = HiddenEvents::start(&REQUESTS[1..]);
    with_busy_threads(|| work(dir.path()));
    let maps = session.maps().unwrap();
    let counted: Vec<u64> = (0..REQUESTS.len()).map(|index| maps.events(index)).collect();
    let skipped = maps.skipped(1).unwrap_or(u64::MAX);
    let hidden = hidden.stop().len() as u64;
    stop(session);
    let kept = skipped.saturating_add(hidden);
    // Others use the disk, too, and may have requests that have not ended.
    assert!(counted[0] >= 300, "{counted:?}");
    assert!(
        counted[1].saturating_add(kept) >= counted[0] - 100,
        "{counted:?}, {skipped} skipped, {hidden} hidden"
    );
}

/// What is told at once has programs of its own, too.
#[test]
fn a_watch_tells_of_interrupts_of_its_process() {
    let dir = tempfile::tempdir().unwrap();
    let mut watch = Watch::start(plan::watch_options(TraceClock::Mono).unwrap()).unwrap();
    for (id, event) in (0..).zip(REQUESTS) {
        let (rule, _) = plan::watch_rule(
            watch.options(),
            &WatchSpec { rules: vec![events(event)], captures: Vec::new() },
        )
        .unwrap();
        assert!(watch.add(id, rule).unwrap().is_empty());
    }
    let is_over = AtomicBool::new(false);
    let (busy, completed) = with_busy_threads(|| {
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                work(dir.path());
                is_over.store(true, Ordering::Relaxed);
            });
            let mut completed = Vec::new();
            loop {
                let is_last = is_over.load(Ordering::Relaxed);
                watch.take(&mut |told| completed.extend((told.rule == 1).then_some(told.tid))).unwrap();
                if is_last {
                    break;
                }
                thread::sleep(Duration::from_millis(1));
            }
            worker.join().unwrap();
            completed
        })
    });
    let [issues, ends] = [0, 1].map(|id| watch.counts(id).unwrap());
    println!("{issues:?}\n{ends:?}");
    assert!(issues.told + issues.untold >= ISSUED as u64, "{issues:?}");
    assert!(completed.iter().any(|tid| busy.contains(tid)), "nobody was interrupted who is not watched");
    assert_eq!((issues.filtered, ends.filtered), (0, 0));
}

/// Whether this kernel can record it: else the recorder says so with exit code 111.
fn try_record(file: &Path, args: &[String]) -> bool {
    let output = agent::command(["record", "-o"]).arg(file).args(args).output().unwrap();
    match output.status.code() {
        Some(0) => true,
        Some(111) => false,
        _ => panic!("{args:?}: {}", String::from_utf8_lossy(&output.stderr)),
    }
}

/// Functions of the kernel that interrupts call, and one that threads call: at its beginning, and behind it,
/// where the probe is a breakpoint, which counts as an interrupt itself.
#[test]
fn probes_of_the_kernel_tell_interrupts_from_threads() {
    let pid = std::process::id().to_string();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    // How many records are of excluded threads and how many of the workload, by function; `None` if the
    // kernel cannot record them.
    let record = |option: &str, functions: &[&str]| {
        let mut args = ["--exclude-pid", &pid].map(str::to_owned).to_vec();
        args.extend(functions.iter().flat_map(|function| [option.to_owned(), (*function).to_owned()]));
        args.extend(workload::command("syscalls", dir.path()));
        let (busy, is_recorded) = with_busy_threads(|| try_record(&file, &args));
        is_recorded.then(|| {
            let lines = trace_cmd::lines(&trace_cmd::report(&file, &["-t"]));
            let tasks = Account::read(dir.path()).tasks;
            let of = move |tids: &BTreeSet<u32>, name: &str| {
                let is_named = |line: &&Line| line.event.contains(name) || line.fields.contains(name);
                let is_of = |line: &&Line| tids.contains(&line.pid) && is_named(line);
                lines.iter().filter(is_of).count()
            };
            move |name: &str| (of(&busy, name), of(&tasks, name))
        })
    };
    let is_call = |option: &str, (busy, tasks): (usize, usize)| {
        assert!(busy == 0 && tasks > 100, "{option}: {busy} calls of threads that are excluded, {tasks}");
    };
    for option in ["--kprobe", "--kretprobe", "--function", "--function-graph", "--fentry", "--fexit"] {
        // A system call without arguments has several names at one address, of which ftrace lists one.
        let call = if option.starts_with("--function") { "*_sys_getppid" } else { "__x64_sys_getppid" };
        // The kernel's type information does not have the functions of all system calls.
        let has_call = !["--fentry", "--fexit"].contains(&option);
        let functions = if has_call { &["hrtimer_interrupt", call][..] } else { &["hrtimer_interrupt"] };
        let Some(records) = record(option, functions) else { continue };
        let (busy, _) = records("hrtimer_interrupt");
        println!("{option}: {busy} interrupts of threads that are excluded");
        assert_ne!(busy, 0, "{option}");
        if has_call {
            is_call(option, records("sys_getppid"));
        }
    }
    if !Path::new("/sys/bus/event_source/devices/kprobe").exists() {
        return;
    }
    // No instruction begins at most of them: behind the call of ftrace, which is behind `endbr64` or not.
    let is_probed = |offset: &u32| {
        let probe = format!("__x64_sys_getppid+{offset}");
        agent::run(["record", "-o", file.to_str().unwrap(), "--kprobe", &probe, "true"]).status.success()
    };
    let offset = [9, 5].into_iter().chain(6..20).find(is_probed);
    let probe =
        format!("__x64_sys_getppid+{}", offset.expect("an instruction behind the function's first one"));
    is_call(&probe, record("--kprobe", &[&probe]).unwrap()("sys_getppid"));
}

/// The daemon's threads are asked for its metrics while the disk is used.
#[test]
fn requests_end_in_interrupts_of_the_daemon() {
    let daemon = Daemon::start();
    let rules = REQUESTS.map(|event| json!({"name": event, "instrumentation": "tracepoint"}));
    // Until one of its threads is interrupted, which it need not be on a busy machine.
    let mut recordings: Vec<(Requests, u64)> = Vec::new();
    while recordings.len() < TIMES || recordings.iter().all(|(requests, _)| requests.in_others == 0) {
        assert!(recordings.len() < 10 * TIMES, "no thread of the daemon is interrupted: {recordings:?}");
        let scratch = tempfile::tempdir().unwrap();
        let name = format!("disk{}", recordings.len());
        let dir = daemon.path().join(&name);
        daemon.session(ROOT, &name, &dir, &rules);
        daemon.tell("POST", &format!("/v1/sessions/{name}/start"), None);
        let hidden = HiddenEvents::start(&REQUESTS[1..]);
        let is_over = AtomicBool::new(false);
        let account = thread::scope(|scope| {
            for _ in 0..cpus() {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        daemon.metrics_as(ROOT, false);
                    }
                });
            }
            let account = work(scratch.path());
            is_over.store(true, Ordering::Relaxed);
            account
        });
        let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
        let tasks = tasks.map(|task| task.unwrap().file_name().to_str().unwrap().parse().unwrap());
        let others: BTreeSet<u32> = tasks.collect();
        daemon.tell("POST", &format!("/v1/sessions/{name}/stop"), None);
        let file = only_file(&dir);
        let ledger = ledger_in_info(&file);
        for row in ledger["events"].as_array().unwrap() {
            assert_eq!(row.get("filtered"), None, "nothing was filtered: {row}");
        }
        recordings.push((requests(&file, &account, &others), kept(&file, hidden)));
        daemon.tell("DELETE", &format!("/v1/sessions/{name}"), None);
    }
    check("the daemon", recordings);
}

/// The recording below a directory.
fn only_file(dir: &Path) -> PathBuf {
    let names = files(dir);
    let mut found = names.iter().filter(|name| Path::new(name).extension().is_some_and(|of| of == "dat"));
    match (found.next(), found.next()) {
        (Some(name), None) => dir.join(name),
        _ => panic!("{names:?}"),
    }
}
