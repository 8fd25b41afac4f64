//! `analyze sched` and `analyze syscalls` beside `perf sched` and `perf trace`: on the same events, and on
//! recordings that are made side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use integration_tests::answers::{answer, list, number, thread, threads_with};
use integration_tests::perf;
use integration_tests::stock_answers::{self as stock, Durations, Wait};
use integration_tests::trace_cmd::Line;
use integration_tests::workload::{self, Account};
use integration_tests::{agent, harness};
use serde_json::Value;

const EVENTS: [&str; 9] = [
    "sched:sched_switch",
    WAKING,
    "sched:sched_wakeup",
    "sched:sched_wakeup_new",
    "sched:sched_migrate_task",
    "sched:sched_process_fork",
    "sched:sched_stat_runtime",
    "raw_syscalls:sys_enter",
    "raw_syscalls:sys_exit",
];

/// The wakeups that `perf sched latency` does not look at.
const WAKING: &str = "sched:sched_waking";

/// What a number of nanoseconds can differ from what perf prints in milliseconds with three digits.
const ROUNDED: u64 = 500;

/// A recording of perf, and its events as a trace.dat.
struct Recording {
    perf: PathBuf,
    dat: PathBuf,
    lines: Vec<Line>,
}

impl Recording {
    /// Records the command, and again as long as this is not a recording to compare: the kernel keeps
    /// switches of some threads from every recorder, more of them on a busy machine.
    fn find(dir: &Path, events: &[&str], command: &[String], is_comparable: impl Fn(&Self) -> bool) -> Self {
        let mut recordings = (0..10).map(|_| Self::of(dir, events, command));
        let found = recordings.find(is_comparable);
        found.expect("the kernel keeps events from the recorders each time")
    }

    fn of(dir: &Path, events: &[&str], command: &[String]) -> Self {
        let (perf, dat) = (dir.join("perf.data"), dir.join("perf.dat"));
        perf::record(&perf, events, command);
        perf::to_dat(&perf, &["sched", "raw_syscalls"], &dat);
        let lines = stock::lines(&dat);
        Self { perf, dat, lines }
    }

    /// Each time when a thread lost its CPU, in microseconds.
    fn ends(&self, tid: u32) -> Vec<u64> {
        let is_its =
            |line: &&Line| line.event == "sched_switch" && stock::number(line, "prev_pid") == u64::from(tid);
        self.lines.iter().filter(is_its).map(|line| line.time / 1000).collect()
    }

    /// The first records of a thread and about it, for a failure.
    fn story(&self, tid: u32) -> String {
        const MOST: usize = 30;
        let number = tid.to_string();
        let is_about = |line: &&Line| {
            line.pid == tid || line.fields.split(|c: char| !c.is_ascii_digit()).any(|word| word == number)
        };
        let text = |Line { pid, cpu, time, event, fields, .. }: &Line| {
            format!("[{cpu}] {time} {pid} {event}: {fields}\n")
        };
        self.lines.iter().filter(is_about).take(MOST).map(text).collect()
    }
}

/// Threads that were started by the workload, each with an id that no other one had.
fn born(account: &Account) -> BTreeSet<u32> {
    let mut seen = BTreeMap::new();
    for tid in &account.started {
        *seen.entry(*tid).or_insert(0) += 1;
    }
    seen.remove(&account.started[0]);
    seen.into_iter().filter(|(_, times)| *times == 1).map(|(tid, _)| tid).collect()
}

/// Those of them whose switches perf has seen all: some kernels do not tell it of those of every thread, and
/// then neither of the ones that get the CPU after these.
fn seen(account: &Account, expected: &stock::Threads) -> BTreeSet<u32> {
    born(account).difference(&expected.unseen).copied().collect()
}

/// Whether these are the waits that perf counts.
fn is_latency(told: perf::Latency, waits: &Durations) -> bool {
    let [count, total, _, most] = waits.numbers();
    told.count == count
        && (told.average_us * 1000).abs_diff(total.checked_div(count).unwrap_or(0)) <= ROUNDED
        && (told.most_us * 1000).abs_diff(most) <= ROUNDED
}

#[test]
fn waits_are_those_of_perf_sched_latency() {
    let dir = tempfile::tempdir().unwrap();
    let events: Vec<&str> = EVENTS.into_iter().filter(|event| *event != WAKING).collect();
    // perf takes a thread that was woken while it waited for a CPU for one that had slept.
    let counted = |expected: &stock::Threads| -> Vec<u32> {
        let seen = seen(&Account::read(dir.path()), expected);
        seen.difference(&expected.woken_again).copied().collect()
    };
    let waits_of = |expected: &stock::Threads| -> usize {
        let of = |tid| expected.durations(|wait| wait.tid == tid).0.len();
        counted(expected).into_iter().map(of).sum()
    };
    let command = workload::command("sched", dir.path());
    let recording = Recording::find(dir.path(), &events, &command, |recording| {
        let expected = stock::threads(&recording.lines);
        counted(&expected).len() >= 10 && waits_of(&expected) >= 20
    });
    let told = answer("sched", &recording.dat, &[]);
    let expected = stock::threads(&recording.lines);
    let latencies = perf::latencies(&recording.perf);
    let born = counted(&expected);
    // Until Linux 6.7 perf takes a thread that lost its CPU to another one (`R+`) for one that sleeps, and
    // does not count its wait; one that gave way by itself (`R`) is counted.
    let is_known: [fn(&Wait) -> bool; 2] = [|_| true, |wait| wait.lost_as.is_none_or(|state| state == 0)];
    let mut others = [Vec::new(), Vec::new()];
    for tid in &born {
        let thread = thread(&told, *tid);
        for (name, waits) in [("woken", expected.woken(*tid)), ("preempted", expected.preempted(*tid))] {
            let found = ["count", "total_ns", "least_ns", "most_ns"].map(|of| number(&thread[name], of));
            assert_eq!(found, waits.numbers(), "{name} of {thread}");
        }
        for (others, is_known) in others.iter_mut().zip(is_known) {
            let waits = expected.durations(|wait| wait.tid == *tid && is_known(wait));
            let told = latencies.get(tid).copied();
            if !told.map_or(waits.0.is_empty(), |told| is_latency(told, &waits)) {
                others.push((*tid, told, waits.numbers()));
            }
        }
    }
    println!("{} threads with {} waits", born.len(), waits_of(&expected));
    assert!(others.iter().any(Vec::is_empty), "{others:?}");
}

#[test]
fn times_are_those_of_perf_sched_timehist() {
    let dir = tempfile::tempdir().unwrap();
    // perf takes a thread that was woken while it waited for a CPU for one that had slept.
    let is_delay_known = |expected: &stock::Threads, tid| !expected.woken_again.contains(&tid);
    let command = workload::command("sched", dir.path());
    let recording = Recording::find(dir.path(), &EVENTS, &command, |recording| {
        let expected = stock::threads(&recording.lines);
        let intervals = perf::intervals(&recording.perf);
        let seen = seen(&Account::read(dir.path()), &expected);
        let is_whole = |tid| {
            let found = intervals.get(&i64::from(tid)).into_iter().flatten();
            found.map(|interval| interval.at_us).eq(recording.ends(tid))
        };
        seen.into_iter().filter(|&tid| is_whole(tid) && is_delay_known(&expected, tid)).count() >= 10
    });
    let told = answer("sched", &recording.dat, &[]);
    let expected = stock::threads(&recording.lines);
    let intervals = perf::intervals(&recording.perf);
    for tid in seen(&Account::read(dir.path()), &expected) {
        let rows = threads_with(&told, tid);
        let [thread] = rows[..] else { panic!("{rows:?}\n{}", recording.story(tid)) };
        let found = intervals.get(&i64::from(tid)).map_or(&[][..], Vec::as_slice);
        let ends = recording.ends(tid);
        assert_eq!(number(thread, "switches"), ends.len() as u64, "{thread}");
        let told: Vec<u64> = found.iter().map(|interval| interval.at_us).collect();
        // A thread without a parent that waits for it has no number any more when it gives its CPU away last.
        let is_whole = told == ends;
        assert!(is_whole || told == ends[..ends.len() - 1], "{told:?} {ends:?}");
        if !is_whole {
            continue;
        }
        // perf cuts what is less than a microsecond.
        let cut = |us: &dyn Fn(&perf::Interval) -> u64| {
            let least = found.iter().map(|interval| us(interval) * 1000).sum::<u64>();
            least..=least + 1000 * found.len() as u64
        };
        let ran = cut(&|interval| interval.run_us);
        assert!(ran.contains(&number(thread, "run_ns")), "{ran:?} {thread}");
        if is_delay_known(&expected, tid) {
            let late = cut(&|interval| interval.delay_us);
            assert!(late.contains(&number(thread, "woken.total_ns")), "{late:?} {thread}");
        }
    }
}

#[test]
fn system_calls_are_those_of_perf_trace() {
    let dir = tempfile::tempdir().unwrap();
    let recording = Recording::of(dir.path(), &EVENTS, &workload::command("mixed", dir.path()));
    let expected = stock::calls(&recording.lines);
    let told = perf::calls(&recording.perf);
    let names = stock::call_names();
    let mut compared = 0;
    for tid in born(&Account::read(dir.path())).into_iter().take(12) {
        // perf counts an exit without an entry, as a new thread begins with, as a call of no time.
        let unmatched: BTreeSet<u64> =
            expected.unmatched.iter().filter(|(of, _)| *of == tid).map(|(_, number)| *number).collect();
        let ours = answer("syscalls", &recording.dat, &["--pid", &tid.to_string()]);
        for call in list(&ours, "calls").iter().filter(|call| number(call, "times.count") != 0) {
            if unmatched.contains(&number(call, "number")) {
                continue;
            }
            let perf = told
                .get(&(tid, names[&number(call, "number")].clone()))
                .unwrap_or_else(|| panic!("{tid} {call}"));
            assert_eq!(
                (perf.count, perf.failed),
                (number(call, "times.count"), number(call, "failed")),
                "{call}"
            );
            for (us, name) in [
                (perf.least_us, "least_ns"),
                (perf.average_us, "average_ns"),
                (perf.most_us, "most_ns"),
                (perf.total_us, "total_ns"),
            ] {
                // perf calculates the mean, and from that the sum, in floating point; ours is cut to whole
                // nanoseconds.
                let found = number(&call["times"], name);
                assert!((us * 1000).abs_diff(found) <= ROUNDED + 1, "{name}: {perf:?} {call}");
            }
            compared += 1;
        }
        let calls = told.keys().filter(|(of, _)| *of == tid).count();
        let numbers: BTreeSet<u64> =
            expected.ended.iter().filter(|call| call.tid == tid).map(|call| call.number).collect();
        assert_eq!(calls, numbers.union(&unmatched).count(), "{tid}");
    }
    println!("{compared} calls of threads");
    assert!(compared > 50);
}

/// How long each thread of both recordings ran by their own switches may differ by what their clocks say of
/// these.
fn apart(one: &[Line], other: &[Line], tid: u32) -> u64 {
    let times = |lines: &[Line]| -> Vec<u64> {
        let tid = u64::from(tid);
        let is_its = |line: &&Line| {
            line.event == "sched_switch"
                && ["prev_pid", "next_pid"].iter().any(|name| stock::number(line, name) == tid)
        };
        lines.iter().filter(is_its).map(|line| line.time).collect()
    };
    let (one, other) = (times(one), times(other));
    assert_eq!(one.len(), other.len(), "switches of thread {tid}");
    one.iter().zip(&other).map(|(one, other)| one.abs_diff(*other)).sum()
}

/// Records the workload with perf, which records all, and beside it with these options: both have the same
/// answers of its threads.
#[track_caller]
fn compare_side_by_side(scope: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let (ours, said) = (dir.path().join("trace.dat"), dir.path().join("said.txt"));
    let mut command = ["sh", "-c", "exec \"$0\" \"$@\" 2> said.txt"].map(str::to_owned).to_vec();
    command[2] = command[2].replace("said.txt", said.to_str().unwrap());
    command.extend([harness::agent_path().display().to_string(), "record".to_owned(), "-o".to_owned()]);
    command.push(ours.display().to_string());
    let args =
        ["-C", "mono", "-b", "32768", "--for", "sched", "-e", "sched:sched_wakeup", "-e", "raw_syscalls"];
    command.extend(args.iter().chain(scope).map(|arg| (*arg).to_owned()));
    command.extend(workload::command("mixed", dir.path()));
    let recording = Recording::find(dir.path(), &EVENTS, &command, |recording| {
        let said = std::fs::read_to_string(&said).unwrap();
        let misses = agent::Recording { path: ours.clone(), said }.recursion_misses();
        misses == 0 && seen(&Account::read(dir.path()), &stock::threads(&recording.lines)).len() >= 10
    });
    let lines = stock::lines(&ours);
    let files = [&ours, &recording.dat];
    let threads = files.map(|file| answer("sched", file, &[]));
    let calls = files.map(|file| answer("syscalls", file, &[]));
    let born = seen(&Account::read(dir.path()), &stock::threads(&recording.lines));
    for tid in born {
        let both = |answers: &[Value; 2], name: &str| -> [u64; 2] {
            [0, 1].map(|of| threads_with(&answers[of], tid).iter().map(|thread| number(thread, name)).sum())
        };
        for name in ["switches", "woken.count", "preempted.count"] {
            let [one, other] = both(&threads, name);
            assert_eq!(one, other, "{name} of thread {tid}");
        }
        for name in ["count", "failed"] {
            let [one, other] = both(&calls, name);
            assert_eq!(one, other, "{name} of the calls of thread {tid}");
        }
        let [one, other] = both(&threads, "run_ns");
        let most = apart(&lines, &recording.lines, tid);
        assert!(one.abs_diff(other) <= most, "thread {tid} ran {one} and {other}, {most} apart");
    }
}

#[test]
fn recordings_side_by_side_have_the_same_answers() {
    compare_side_by_side(&[]);
}

#[test]
fn recordings_of_a_command_have_the_answers_of_whole_ones() {
    compare_side_by_side(&["-F", "-c"]);
}
