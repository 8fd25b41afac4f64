//! `analyze sched`, `syscalls` and `irq` against what the text of stock trace-cmd says, to the nanosecond.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use integration_tests::agent;
use integration_tests::answers::{answer, list, number, text, threads_with};
use integration_tests::stock_answers::{self as stock, Durations};
use integration_tests::trace_cmd::Line;
use integration_tests::workload::{self, Account};
use serde_json::Value;

/// Fails unless durations are these.
#[track_caller]
fn assert_times(told: &Value, expected: &Durations, of: &str) {
    let found = ["count", "total_ns", "least_ns", "most_ns"].map(|name| number(told, name));
    assert_eq!(found, expected.numbers(), "{of}: {told}");
    if found[0] == 0 {
        return;
    }
    assert_eq!(number(told, "average_ns"), found[1] / found[0], "{of}");
    for (name, percent) in [("p50_ns", 50), ("p95_ns", 95), ("p99_ns", 99)] {
        let (told, exact) = (number(told, name), expected.percentile(percent));
        assert!(told >= exact && told - exact <= exact / 100, "{of}: {name} is {told}, exactly {exact}");
    }
}

/// What a thread did.
fn compare_thread(path: &Path, told: &Value, expected: &stock::Threads, tid: u32) {
    let of = format!("thread {tid} of {}", path.display());
    let threads = threads_with(told, tid);
    let sum = |name: &str| threads.iter().map(|thread| number(thread, name)).sum::<u64>();
    assert_eq!(sum("run_ns"), expected.ran[&tid], "{of}");
    assert_eq!(sum("switches"), expected.switches.get(&tid).copied().unwrap_or(0), "{of}");
    if let [thread] = threads[..] {
        assert_times(&thread["woken"], &expected.woken(tid), &format!("{of}, woken"));
        assert_times(&thread["preempted"], &expected.preempted(tid), &format!("{of}, preempted"));
        // Each moment is one of something.
        let parts = ["run_ns", "wait_ns", "sleep_ns", "blocked_ns", "stopped_ns", "unknown_ns"];
        let whole = number(told, "covered.to_ns") - number(told, "covered.from_ns");
        assert!(parts.iter().map(|name| number(thread, name)).sum::<u64>() <= whole, "{of}: {thread}");
    }
}

/// What threads and CPUs did. Gives how many waits were compared.
pub(crate) fn compare_threads(path: &Path, lines: &[Line]) -> usize {
    let told = answer("sched", path, &[]);
    let expected = stock::threads(lines);
    assert_eq!(expected.unseen, BTreeSet::new(), "{}", path.display());
    let cpus: BTreeMap<u32, (u64, u64)> = list(&told, "cpus")
        .iter()
        .map(|cpu| (number(cpu, "cpu") as u32, (number(cpu, "busy_ns"), number(cpu, "idle_ns"))))
        .collect();
    assert_eq!(cpus, expected.cpus, "{}", path.display());
    assert!(list(&told, "cpus").iter().all(|cpu| number(cpu, "unknown_ns") == 0), "{told}");
    let tids: BTreeSet<u32> = expected.ran.keys().copied().filter(|tid| *tid != 0).collect();
    assert!(tids.len() > 5, "{tids:?}");
    for tid in tids {
        compare_thread(path, &told, &expected, tid);
    }
    assert_times(&told["woken"], &expected.durations(|wait| wait.lost_as.is_none()), "all that were woken");
    assert_times(&told["preempted"], &expected.durations(|wait| wait.lost_as.is_some()), "all others");
    let mut longest: Vec<u64> = expected.durations(|_| true).0;
    longest.sort_unstable_by(|one, other| other.cmp(one));
    longest.truncate(10);
    let worst: Vec<u64> = list(&told, "worst").iter().map(|wait| number(wait, "wait_ns")).collect();
    assert_eq!(worst, longest);
    for worst in list(&told, "worst") {
        let at = number(worst, "at_ns");
        let is_it = |wait: &stock::Wait| wait.tid == number(worst, "tid") as u32 && wait.until == at;
        let wait = expected.waits.iter().find(|wait| is_it(wait)).unwrap_or_else(|| panic!("{worst}"));
        assert_eq!(worst["is_woken"], wait.lost_as.is_none(), "{worst}");
        let switch = lines.iter().find(|line| line.event == "sched_switch" && line.time == at).unwrap();
        let ran = stock::ran_between(lines, number(worst, "cpu") as u32, (wait.since, wait.until));
        let instead = ran[&(number(worst, "instead_tid") as u32)];
        assert_eq!(number(worst, "instead_ns"), instead, "{worst}");
        assert!(ran.values().all(|time| *time <= instead), "{worst}: {ran:?}");
        assert_eq!(number(worst, "others"), ran.len() as u64 - 1, "{worst}: {ran:?}");
        assert_eq!(text(worst, "comm"), stock::name(switch, "next_comm", "next_pid"), "{worst}");
    }
    expected.waits.len()
}

/// System calls. Gives how many were compared.
pub(crate) fn compare_calls(path: &Path, lines: &[Line]) -> usize {
    let told = answer("syscalls", path, &[]);
    let expected = stock::calls(lines);
    let names = stock::call_names();
    let numbers: BTreeSet<u64> = list(&told, "calls").iter().map(|call| number(call, "number")).collect();
    let of_ended = expected.ended.iter().map(|call| call.number);
    let others = expected.unmatched.iter().chain(&expected.unfinished).map(|(_, number)| *number);
    assert_eq!(numbers, of_ended.chain(others).collect(), "{}", path.display());
    for call in list(&told, "calls") {
        let of = number(call, "number");
        let ended: Vec<_> = expected.ended.iter().filter(|call| call.number == of).collect();
        assert_eq!(text(call, "name"), names[&of], "{call}");
        if call["times"].is_null() {
            // One of its halves is not in the file, which does not say whether it would be.
            let has_half = ["unfinished", "unmatched"].iter().any(|half| call[half].as_u64() > Some(0));
            assert!(ended.is_empty() && has_half, "{call}");
            continue;
        }
        let times = Durations(ended.iter().map(|call| call.time).collect());
        assert_times(&call["times"], &times, text(call, "name"));
        let mut errors: BTreeMap<u64, u64> = BTreeMap::new();
        for call in ended.iter().filter(|call| (-4095..0).contains(&call.result)) {
            *errors.entry(call.result.unsigned_abs()).or_default() += 1;
        }
        let found: BTreeMap<u64, u64> = list(call, "errors")
            .iter()
            .map(|error| (number(error, "errno"), number(error, "count")))
            .collect();
        assert_eq!(found, errors, "{call}");
        assert_eq!(number(call, "failed"), errors.values().sum::<u64>(), "{call}");
        let among = |calls: &[(u32, u64)]| calls.iter().filter(|(_, number)| *number == of).count() as u64;
        assert_eq!(number(call, "unmatched"), among(&expected.unmatched), "{call}");
        assert_eq!(number(call, "unfinished"), among(&expected.unfinished), "{call}");
    }
    let mut by_thread: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for call in &expected.ended {
        let (count, total) = by_thread.entry(call.tid).or_default();
        (*count, *total) = (*count + 1, *total + call.time);
    }
    for (tid, expected) in by_thread {
        let threads = threads_with(&told, tid);
        let sum = |name: &str| threads.iter().map(|thread| number(thread, name)).sum::<u64>();
        assert_eq!((sum("count"), sum("total_ns")), expected, "thread {tid} of {}", path.display());
    }
    expected.ended.len()
}

/// Interrupts. Gives how many handlers and soft interrupts were compared.
pub(crate) fn compare_irqs(path: &Path, lines: &[Line]) -> [usize; 2] {
    let told = answer("irq", path, &[]);
    let expected = stock::irqs(lines);
    let mut hard = 0;
    for irq in list(&told, "irqs") {
        let key = (number(irq, "irq"), text(irq, "name").to_owned());
        let times = expected.hard.get(&key).cloned().unwrap_or_default();
        assert_times(&irq["times"], &times, &format!("{key:?}"));
        hard += times.0.len();
    }
    assert_eq!(hard, expected.hard.values().map(|times| times.0.len()).sum::<usize>());
    let mut soft = 0;
    for softirq in list(&told, "softirqs") {
        let vector = number(softirq, "vector");
        let times = expected.soft.get(&vector).cloned().unwrap_or_default();
        assert_times(&softirq["times"], &times, &format!("soft interrupt {vector}"));
        let late = expected.late.get(&vector).cloned().unwrap_or_default();
        assert_times(&softirq["latency"], &late, &format!("soft interrupt {vector}, raised"));
        soft += times.0.len();
    }
    assert_eq!(soft, expected.soft.values().map(|times| times.0.len()).sum::<usize>());
    let [has_hard, has_soft] = [!expected.hard.is_empty(), !expected.soft.is_empty()];
    // Interrupts that are not recorded may have come inside of soft ones.
    let has = [has_hard, has_hard && has_soft];
    // What is inside of others is counted once.
    for (cpu, own) in list(&told, "cpus").iter().map(|cpu| (cpu, ["irq_ns", "softirq_ns"])) {
        // Unknown where the file has no such event, and does not say whether it would have them.
        let [hard, soft] = own.map(|name| cpu[name].as_u64());
        assert_eq!([hard, soft].map(|time| time.is_some()), has, "{cpu}");
        let [hard, soft] = [hard, soft].map(Option::unwrap_or_default);
        let whole = number(&told, "covered.to_ns") - number(&told, "covered.from_ns");
        assert!(hard + soft <= whole, "{cpu}");
    }
    [hard, soft]
}

/// Records a load until no switch is missing, and gives the lines: some virtual machines hide threads of
/// their own from all tracers, and the kernel says nothing of switches to and from those.
#[track_caller]
fn recorded_whole(file: &Path, args: &[String]) -> Vec<Line> {
    const TRIES: usize = 8;
    for _ in 0..TRIES {
        // A load finds nothing of the one before.
        let scratch = tempfile::tempdir().unwrap();
        agent::record_all(file, [args, &workload::command("load", scratch.path())].concat());
        let lines = stock::lines(file);
        if stock::threads(&lines).unseen.is_empty() {
            return lines;
        }
    }
    panic!("each of {TRIES} recordings lacks switches");
}

#[test]
fn answers_of_our_recordings_are_those_of_stocks_text() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let mut args = ["-b", "65536", "--for", "sched", "--for", "irq"].map(str::to_owned).to_vec();
    args.extend(["-e", "raw_syscalls", "-e", "sched:sched_wakeup"].map(str::to_owned));
    let lines = recorded_whole(&file, &args);
    let waits = compare_threads(&file, &lines);
    let calls = compare_calls(&file, &lines);
    let [hard, soft] = compare_irqs(&file, &lines);
    println!("{waits} waits, {calls} calls, {hard} handlers, {soft} soft interrupts");
    assert!(waits > 1000 && calls > 1000 && hard > 10 && soft > 100);
}

#[test]
fn answers_of_a_commands_recording_are_those_of_stocks_text() {
    const TRIES: usize = 8;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let options = ["-b", "65536", "-F", "-c", "--for", "sched", "-e", "raw_syscalls"].map(str::to_owned);
    // Again, as long as the kernel keeps switches from the recorder.
    for _ in 0..TRIES {
        let scratch = tempfile::tempdir().unwrap();
        agent::record_all(&file, [&options[..], &workload::command("sched", scratch.path())].concat());
        let lines = stock::lines(&file);
        let (told, expected) = (answer("sched", &file, &[]), stock::threads(&lines));
        let started: BTreeSet<u32> = Account::read(scratch.path()).started.into_iter().skip(1).collect();
        let seen = started.difference(&expected.unseen).filter(|tid| expected.ran.contains_key(tid));
        let seen: Vec<u32> = seen.copied().collect();
        if seen.len() < 10 {
            continue;
        }
        for tid in seen {
            compare_thread(&file, &told, &expected, tid);
        }
        assert!(compare_calls(&file, &lines) > 100);
        return;
    }
    panic!("each of {TRIES} recordings lacks switches");
}
