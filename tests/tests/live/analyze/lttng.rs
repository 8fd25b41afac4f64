//! `analyze sched`, `syscalls` and `irq` beside LTTng's analyses, of one recording that they read as an
//! export.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use integration_tests::agent;
use integration_tests::analyses::{rows, tables};
use integration_tests::answers::{answer, list, number, text, thread};
use integration_tests::harness::{self, run};
use integration_tests::stock_answers::{self as stock};
use integration_tests::trace_cmd::Line;
use integration_tests::workload::{self, Account};
use serde_json::Value;

/// A recording, its export, and what stock trace-cmd says of it.
struct Recording {
    dat: PathBuf,
    export: PathBuf,
    lines: Vec<Line>,
    account: Account,
}

/// All threads, and the workload with all that it starts.
const SCOPES: [&[&str]; 2] = [&[], &["-F", "-c"]];

impl Recording {
    /// Records again as long as this is not a recording to compare: the kernel keeps switches of some threads
    /// from every recorder, more of them on a busy machine, and LTTng's analyses take the times and calls of
    /// a thread for those of the one before it on the CPU where a switch is missing.
    fn find(dir: &Path, kind: &str, scope: &[&str], is_comparable: impl Fn(&Self) -> bool) -> Self {
        let found = (0..10).map(|_| Self::of(dir, kind, scope)).find(is_comparable);
        found.expect("the kernel keeps events from the recorder each time")
    }

    fn of(dir: &Path, kind: &str, scope: &[&str]) -> Self {
        let (dat, export) = (dir.join("trace.dat"), dir.join("export"));
        let options = ["-b", "65536", "--for", "sched", "--for", "syscalls", "--for", "irq"];
        let mut args: Vec<String> = options.iter().chain(scope).map(|arg| (*arg).to_owned()).collect();
        args.extend(workload::command(kind, dir));
        agent::record_all(&dat, &args);
        run(harness::agent("/".as_ref(), ["export", "--force", "--format", "lttng"]).arg(&dat).arg(&export))
            .expect(0);
        let (lines, account) = (stock::lines(&dat), Account::read(dir));
        Self { dat, export, lines, account }
    }

    /// Threads of the workload, each with an id that no other one had. Those that were there before the
    /// recording are none of them.
    fn born(&self) -> BTreeSet<u32> {
        let times = |tid: &u32| self.account.started.iter().filter(|other| *other == tid).count();
        self.account.started.iter().skip(1).copied().filter(|tid| times(tid) == 1).collect()
    }

    /// Those of them whose switches were all recorded.
    fn seen(&self, expected: &stock::Threads) -> BTreeSet<u32> {
        self.born().difference(&expected.unseen).copied().collect()
    }
}

fn value(cell: &Value) -> f64 {
    cell["value"].as_f64().unwrap_or_else(|| panic!("no number in {cell}"))
}

/// How often, the least, the mean and the most, which are in this order from a column on. The mean is rounded
/// down, as ours.
fn times(row: &Value, from: usize) -> [u64; 4] {
    [0, 1, 2, 3].map(|column| value(&row[from + column]) as u64)
}

/// Fails unless a row says the same of durations.
#[track_caller]
fn assert_times(ours: &Value, theirs: [u64; 4]) {
    let found = ["count", "least_ns", "average_ns", "most_ns"].map(|name| number(ours, name));
    assert_eq!(found, theirs, "{ours}");
}

/// The rows of a table by the threads in the first column.
fn by_thread(table: &Value) -> BTreeMap<u32, &Value> {
    rows(table).iter().map(|row| (row[0]["tid"].as_u64().unwrap() as u32, row)).collect()
}

#[test]
fn threads_ran_and_waited_as_long() {
    for scope in SCOPES {
        compare_threads(scope);
    }
}

fn compare_threads(scope: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    // A wakeup of a thread that waits for a CPU already, because it lost one while it was about to sleep,
    // begins a wait of its own for them.
    let are_waits_known = |expected: &stock::Threads, tid| !expected.woken_again.contains(&tid);
    let recording = Recording::find(dir.path(), "sched", scope, |recording| {
        let expected = stock::threads(&recording.lines);
        let seen = recording.seen(&expected).into_iter().filter(|&tid| are_waits_known(&expected, tid));
        seen.map(|tid| expected.woken(tid).0.len()).sum::<usize>() >= 10
    });
    let told = answer("sched", &recording.dat, &[]);
    let stats = &tables(&recording.export, "lttng-schedstats-mi", &["--limit", "100000"])[0];
    let usage = tables(&recording.export, "lttng-cputop-mi", &["--limit", "100000"]);
    let (stats, of_threads) = (by_thread(stats), by_thread(&usage[0]));
    let whole = number(&told, "covered.to_ns") - number(&told, "covered.from_ns");
    let expected = stock::threads(&recording.lines);
    for tid in recording.seen(&expected) {
        let thread = thread(&told, tid);
        // They know no time but a share of the whole.
        let ran = value(&of_threads[&tid][3]) * whole as f64;
        assert!((ran - number(thread, "run_ns") as f64).abs() < 2.0, "{ran}: {thread}");
        assert_eq!(value(&of_threads[&tid][1]) as u64, number(thread, "migrations"), "{thread}");
        if !are_waits_known(&expected, tid) {
            continue;
        }
        match stats.get(&tid) {
            Some(row) => assert_times(&thread["woken"], times(row, 1)),
            None => assert_eq!(number(thread, "woken.count"), 0, "{thread}"),
        }
    }
    if !scope.is_empty() {
        // They take a CPU for idle, or for that of the last thread that was recorded there, when others run.
        assert!(list(&told, "cpus").iter().all(|cpu| number(cpu, "idle_ns") == 0), "{told}");
        return;
    }
    // Who runs on a CPU before its first switch is a thread for them, also if it is the idle one; and it is
    // the last one that got the CPU, also if the kernel kept a switch from the recorder since.
    let begin = number(&told, "covered.from_ns");
    for row in rows(&usage[1]) {
        let id = row[0]["id"].as_u64().unwrap();
        let cpu = list(&told, "cpus").iter().find(|cpu| number(cpu, "cpu") == id).unwrap();
        let first =
            recording.lines.iter().find(|line| line.event == "sched_switch" && u64::from(line.cpu) == id);
        let before = first.map_or(whole, |line| line.time - begin) + number(cpu, "unknown_ns");
        let busy = value(&row[1]) * whole as f64 - number(cpu, "busy_ns") as f64;
        assert!((-2.0..=before as f64 + 2.0).contains(&busy), "{busy}, at most {before}: {cpu}");
    }
    // The longest waits after wakeups are among theirs.
    let top = &tables(&recording.export, "lttng-schedtop-mi", &["--limit", "100000"])[0];
    let theirs: BTreeSet<(u64, u64)> =
        rows(top).iter().map(|row| (row[5]["tid"].as_u64().unwrap(), value(&row[2]) as u64)).collect();
    let worst = list(&told, "worst").iter().filter(|wait| wait["is_woken"] == true);
    for wait in worst {
        assert!(theirs.contains(&(number(wait, "tid"), number(wait, "wait_ns"))), "{wait}");
    }
}

#[test]
fn system_calls_took_as_long_and_failed_as_often() {
    for scope in SCOPES {
        compare_calls(scope);
    }
}

fn compare_calls(scope: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let seen = |recording: &Recording| recording.seen(&stock::threads(&recording.lines));
    let recording = Recording::find(dir.path(), "mixed", scope, |recording| seen(recording).len() >= 10);
    let theirs = tables(&recording.export, "lttng-syscallstats-mi", &[]);
    let mut compared = 0;
    for tid in seen(&recording).into_iter().take(12) {
        let ours = answer("syscalls", &recording.dat, &["--pid", &tid.to_string()]);
        let title = |table: &&Value| {
            table["class"]["title"].as_str().is_some_and(|title| title.ends_with(&format!("TID: {tid})]")))
        };
        let Some(table) = theirs.iter().find(title) else {
            assert!(list(&ours, "calls").iter().all(|call| number(call, "times.count") == 0), "{ours}");
            continue;
        };
        let rows: BTreeMap<&str, &Value> =
            rows(table).iter().map(|row| (row[0]["name"].as_str().unwrap(), row)).collect();
        for call in list(&ours, "calls").iter().filter(|call| number(call, "times.count") != 0) {
            // LTTng has the names of the kernel's functions: `newfstat` for `fstat`.
            let name = text(call, "name");
            let row = rows.get(name).or_else(|| rows.get(format!("new{name}").as_str()));
            let row = row.unwrap_or_else(|| panic!("no {name} of {tid} in {table}"));
            assert_times(&call["times"], times(row, 1));
            // The first result of a kind counts twice for them.
            let errors = list(call, "errors")
                .iter()
                .map(|error| format!("'{}': {}", text(error, "name"), number(error, "count") + 1));
            let results = row[6]["value"].as_str().unwrap();
            let mut failed = 0;
            for error in errors {
                assert!(results.contains(&error), "{error} of {name}: {results}");
                failed += 1;
            }
            let kinds = results.matches(": ").count() - results.matches("'success'").count();
            assert_eq!(failed, kinds, "{name}: {results}");
            compared += 1;
        }
    }
    assert!(compared > 50, "{compared}");
}

#[test]
fn interrupts_took_as_long_and_were_as_late() {
    let dir = tempfile::tempdir().unwrap();
    let recording = Recording::of(dir.path(), "load", &[]);
    let ours = answer("irq", &recording.dat, &[]);
    let theirs = tables(&recording.export, "lttng-irqstats-mi", &[]);
    let table = |class: &str| theirs.iter().find(|table| table["class"] == class).map_or(&[][..], rows);
    let (hard, soft) = (table("hard-stats"), table("soft-stats"));
    let ended = |of: &&Value| number(of, "times.count") != 0;
    // Handlers that share an interrupt are one row of theirs.
    let mut by_irq: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    for irq in list(&ours, "irqs").iter().filter(ended) {
        by_irq.entry(number(irq, "irq")).or_default().push(irq);
    }
    assert_eq!(hard.len(), by_irq.len(), "{ours}");
    let mut compared = [0, 0];
    for row in hard {
        let irqs = &by_irq[&row[0]["nr"].as_u64().unwrap()];
        let count: u64 = irqs.iter().map(|irq| number(irq, "times.count")).sum();
        assert_eq!(value(&row[1]) as u64, count, "{row}");
        if let [irq] = irqs[..] {
            assert_eq!(row[0]["name"], irq["name"]);
            assert_times(&irq["times"], times(row, 1));
        }
        compared[0] += count;
    }
    let softirqs: Vec<&Value> = list(&ours, "softirqs").iter().filter(ended).collect();
    assert_eq!(soft.len(), softirqs.len(), "{ours}");
    for row in soft {
        let vector = row[0]["nr"].as_u64().unwrap();
        let of = softirqs.iter().find(|of| number(of, "vector") == vector).unwrap();
        assert_times(&of["times"], times(row, 1));
        compared[1] += number(of, "times.count");
        if value(&row[6]) as u64 == 0 {
            assert_eq!(number(of, "latency.count"), 0, "{of}");
        } else {
            assert_times(&of["latency"], times(row, 6));
        }
    }
    assert!(compared[0] > 10 && compared[1] > 100, "{compared:?}");
}
