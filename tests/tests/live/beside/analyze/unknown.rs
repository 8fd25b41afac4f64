//! What answers say of recordings that do not know everything: losses, threads that were there before, ids
//! that are used again, events in two buffers, and events that are not there.

use integration_tests::answers::{answer, list, number, tables, text, thread, threads_with};
use integration_tests::harness;
use integration_tests::made_up::{Is, MadeUp};

use crate::analyze::recording;

/// `prev_state` of a thread that could go on, that sleeps, and that has ended.
const R: i64 = 0;
const S: i64 = 1;
const X: i64 = 0x10;

const MS: u64 = 1_000_000;

fn made_up(name: &str, make: impl FnOnce(&mut MadeUp)) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    let mut recording = MadeUp::new(&["sched", "task", "irq", "raw_syscalls"]);
    make(&mut recording);
    recording.write(&path);
    (dir, path)
}

#[test]
fn what_others_do_while_a_cpu_loses_events_is_unknown() {
    let (_dir, path) = made_up("lost.dat", |made| {
        made.switch((10 * MS, 0), (0, R), 7);
        made.switch((10 * MS, 1), (0, R), 9);
        // CPU 0 loses events between 20 ms and 80 ms. Meanwhile 8 sleeps, and somebody wakes it there.
        made.switch((20 * MS, 0), (7, R), 6);
        made.lost(0, 3);
        made.switch((30 * MS, 1), (9, S), 8);
        made.switch((40 * MS, 1), (8, S), 0);
        made.switch((60 * MS, 1), (0, R), 8);
        made.switch((80 * MS, 0), (6, R), 7);
        made.switch((90 * MS, 1), (8, S), 0);
        made.switch((100 * MS, 0), (7, S), 0);
    });
    let told = answer("sched", &path, &[]);
    let covered = &told["covered"];
    assert_eq!(
        ["lost_events", "losses", "losses_uncounted"].map(|name| number(covered, name)),
        [3, 1, 0],
        "{covered}"
    );
    let spans = |tid: u32| {
        let thread = thread(&told, tid);
        // There is no wakeup.
        let rest_on_wakeups = ["wait_ns", "sleep_ns", "blocked_ns", "woken"];
        assert!(rest_on_wakeups.iter().all(|name| thread[name].is_null()), "{thread}");
        ["run_ns", "unknown_ns"].map(|name| number(thread, name) / MS)
    };
    // It ran from 30 to 40 and from 60 to 90; in between it slept for a time that nobody knows.
    assert_eq!(spans(8), [40, 40]);
    assert_eq!(spans(7), [10 + 20, 60]);
    let cpus: Vec<[u64; 3]> = list(&told, "cpus")
        .iter()
        .map(|cpu| ["busy_ns", "idle_ns", "unknown_ns"].map(|name| number(cpu, name) / MS))
        .collect();
    assert_eq!(cpus, [[10 + 20, 0, 60], [20 + 10 + 30, 20 + 10, 0]]);
    let tables = tables("sched", &path, &[]);
    assert!(
        tables.contains("\n3 events were lost once; what lasted over such a loss is unknown"),
        "{tables}"
    );
}

#[test]
fn calls_and_interrupts_over_a_loss_are_not_measured() {
    let (_dir, path) = made_up("lost.dat", |made| {
        let call = |made: &mut MadeUp, time: u64, cpu: u32, event: &str| {
            made.at((time * MS, cpu), 7, event, &[("id", Is::Number(1))]);
        };
        let irq = |made: &mut MadeUp, time: u64, cpu: u32, event: &str| {
            made.at((time * MS, cpu), 0, event, &[("vec", Is::Number(1))]);
        };
        for (time, cpu) in [(10, 0), (50, 1)] {
            irq(made, time, cpu, "softirq_entry");
            irq(made, time + 1, cpu, "softirq_exit");
        }
        // A whole call before the loss, and one that lasts over it.
        call(made, 52, 1, "sys_enter");
        call(made, 55, 1, "sys_exit");
        call(made, 60, 1, "sys_enter");
        irq(made, 61, 0, "softirq_entry");
        irq(made, 61, 1, "softirq_entry");
        made.lost(0, 0);
        call(made, 70, 1, "sys_exit");
        irq(made, 75, 1, "softirq_exit");
        irq(made, 80, 0, "softirq_exit");
        call(made, 90, 1, "sys_enter");
        call(made, 92, 1, "sys_exit");
    });
    let calls = answer("syscalls", &path, &[]);
    let call = &list(&calls, "calls")[0];
    let numbers = ["times.count", "times.total_ns", "unmatched", "unfinished"].map(|name| number(call, name));
    assert_eq!(numbers, [2, 5 * MS, 1, 1], "{call}");
    assert_eq!(number(&calls, "covered.losses_uncounted"), 1);
    let irqs = answer("irq", &path, &[]);
    let softirq = &list(&irqs, "softirqs")[0];
    // An interrupt stays on its CPU: only CPU 0 has one whose end is not its own.
    let numbers = ["times.count", "times.total_ns", "unmatched"].map(|name| number(softirq, name));
    assert_eq!(numbers, [3, 16 * MS, 1], "{softirq}");
    let text = tables("irq", &path, &[]);
    assert!(text.contains("events were lost, it is not known how many, once; "), "{text}");
}

#[test]
fn stocks_recording_with_losses_says_how_many() {
    let path = recording("k6.12-lost.dat");
    let told = answer("syscalls", &path, &[]);
    // What `trace-cmd report` says of it.
    let report = integration_tests::trace_cmd::report_said(&path, &[]).out;
    let lost = report.lines().filter(|line| line.contains("EVENTS DROPPED")).count() as u64;
    assert!(lost > 0 && number(&told, "covered.losses") == lost, "{lost}: {}", told["covered"]);
}

#[test]
fn threads_that_were_there_before_are_known_from_their_first_event_on() {
    let (_dir, path) = made_up("before.dat", |made| {
        made.switch((10 * MS, 0), (7, S), 0);
        made.wake((30 * MS, 0), 0, 8);
        made.switch((35 * MS, 0), (0, R), 8);
        // On CPU 1 nothing but 9 has run since the first switch anywhere.
        made.switch((50 * MS, 1), (9, R), 10);
        // The end of a call that was there before.
        made.at((60 * MS, 0), 8, "sys_exit", &[("id", Is::Number(0)), ("ret", Is::Number(-4))]);
        made.at((70 * MS, 0), 8, "sys_enter", &[("id", Is::Number(1))]);
        made.at((75 * MS, 1), 10, "softirq_exit", &[("vec", Is::Number(9))]);
        made.at((76 * MS, 1), 10, "softirq_entry", &[("vec", Is::Number(9))]);
    });
    let told = answer("sched", &path, &[]);
    let spans = |tid: u32| {
        let thread = thread(&told, tid);
        ["run_ns", "wait_ns", "sleep_ns", "unknown_ns"].map(|name| number(thread, name) / MS)
    };
    assert_eq!(spans(7), [0, 0, 66, 0]);
    assert_eq!(spans(8), [41, 5, 0, 20]);
    assert_eq!(spans(9), [40, 26, 0, 0]);
    assert_eq!(spans(10), [26, 0, 0, 40]);
    let calls = answer("syscalls", &path, &[]);
    let of = |nr: u64| list(&calls, "calls").iter().find(|call| call["number"] == nr).unwrap();
    let numbers = ["times.count", "failed", "unmatched", "unfinished"];
    assert_eq!(numbers.map(|name| number(of(0), name)), [0, 0, 1, 0]);
    assert_eq!(numbers.map(|name| number(of(1), name)), [0, 0, 0, 1]);
    let irqs = answer("irq", &path, &[]);
    let softirq = &list(&irqs, "softirqs")[0];
    assert_eq!((number(softirq, "times.count"), number(softirq, "unmatched")), (0, 1));
}

#[test]
fn an_id_that_is_used_again_is_another_thread() {
    let (_dir, path) = made_up("again.dat", |made| {
        let fork = |made: &mut MadeUp, time: u64| {
            let child = [("child_pid", Is::Number(7)), ("child_comm", Is::Text(b"second"))];
            made.at((time * MS, 0), 1, "sched_process_fork", &child);
            made.at((time * MS, 0), 1, "sched_wakeup_new", &[("pid", Is::Number(7))]);
        };
        // Wakeups are recorded.
        made.wake((9 * MS, 1), 1, 5);
        made.switch_names((10 * MS, 0), (0, R, b"idle"), (7, b"first"));
        made.at((11 * MS, 0), 7, "sys_enter", &[("id", Is::Number(60))]);
        made.switch_names((20 * MS, 0), (7, X, b"first"), (0, b"idle"));
        made.at((25 * MS, 0), 0, "sched_process_free", &[("pid", Is::Number(7))]);
        fork(made, 30);
        made.switch_names((34 * MS, 0), (0, R, b"idle"), (7, b"second"));
        made.at((35 * MS, 0), 7, "sys_exit", &[("id", Is::Number(57))]);
        made.at((36 * MS, 0), 7, "sys_enter", &[("id", Is::Number(1))]);
        made.at((37 * MS, 0), 7, "sys_exit", &[("id", Is::Number(1))]);
        made.switch_names((40 * MS, 0), (7, S, b"second"), (0, b"idle"));
    });
    let told = answer("sched", &path, &[]);
    let threads: Vec<(&str, u64, u64)> = threads_with(&told, 7)
        .iter()
        .map(|thread| (text(thread, "comm"), number(thread, "run_ns") / MS, number(thread, "wait_ns") / MS))
        .collect();
    assert_eq!(threads, [("first", 10, 0), ("second", 6, 4)]);
    let calls = answer("syscalls", &path, &[]);
    // The first one's call has not become one of the second.
    let threads: Vec<(&str, u64)> = threads_with(&calls, 7)
        .iter()
        .map(|thread| (text(thread, "comm"), number(thread, "count")))
        .collect();
    assert_eq!(threads, [("second", 1), ("first", 0)]);
    let exit = list(&calls, "calls").iter().find(|call| call["number"] == 60).unwrap();
    assert_eq!((number(exit, "times.count"), number(exit, "unfinished")), (0, 1));
    let second = answer("syscalls", &path, &["--comm", "second"]);
    assert!(list(&second, "calls").iter().all(|call| call["number"] != 60), "{second}");
}

#[test]
fn made_up_buffers_count_once_each() {
    let (_dir, path) = made_up("two.dat", |made| {
        made.switch((10 * MS, 0), (0, R), 7);
        made.switch((30 * MS, 0), (7, S), 0);
        made.buffer("other");
        made.switch((11 * MS, 0), (0, R), 7);
        made.wake((20 * MS, 0), 7, 8);
        made.switch((31 * MS, 0), (7, S), 0);
    });
    let told = answer("sched", &path, &[]);
    assert_eq!(number(thread(&told, 7), "run_ns"), 20 * MS);
    assert_eq!(number(thread(&told, 8), "wait_ns"), 11 * MS);
    assert_eq!(number(&told, "covered.of_other_buffers"), 2);
    let other = answer("sched", &path, &["-B", "other"]);
    assert_eq!(number(thread(&other, 7), "run_ns"), 20 * MS);
    assert_eq!((number(&other, "covered.from_ns"), number(&other, "covered.to_ns")), (11 * MS, 31 * MS));
    let top = answer("sched", &path, &["-B", ""]);
    assert_eq!((number(&top, "covered.from_ns"), number(&top, "covered.to_ns")), (10 * MS, 30 * MS));
    assert!(threads_with(&top, 8).is_empty(), "{top}");
}

#[test]
fn what_is_unknown_for_want_of_events_is_said() {
    // Without what it is all about there is no answer, but a way to get one.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wakeups.dat");
    let mut made = MadeUp::new(&["sched"]);
    made.without("sched_switch");
    made.wake((10 * MS, 0), 1, 7);
    made.write(&path);
    for (analysis, text) in [
        ("sched", "has no sched:sched_switch, which sched needs"),
        ("offcpu", "has no sched:sched_switch, which offcpu needs"),
        ("syscalls", "has no raw_syscalls:sys_enter or syscalls:sys_enter_*, which syscalls needs"),
        ("irq", "has no irq:irq_handler_entry or irq:softirq_entry, which irq needs"),
    ] {
        let mut command = harness::agent("/".as_ref(), ["analyze", analysis, path.to_str().unwrap()]);
        let ended = harness::run(&mut command).expect(1);
        assert_eq!(ended.out, "");
        ended.says(&[text, &format!("record with: tracer-agent record --for {analysis}")]);
    }
    // Without some of it there is a part of the answer.
    let (_dir, path) = made_up("switches.dat", |made| {
        made.switch((10 * MS, 0), (0, R), 7);
        made.at((11 * MS, 0), 7, "irq_handler_entry", &[("irq", Is::Number(4))]);
        made.at((13 * MS, 0), 7, "irq_handler_exit", &[("irq", Is::Number(4))]);
    });
    // They may be behind what is asked about, where recording again would not help.
    let args = ["analyze", "sched", path.to_str().unwrap(), "--to", "0.005"];
    let ended = harness::run(&mut harness::agent("/".as_ref(), args)).expect(1);
    let ended = ended.says(&["there is no sched:sched_switch in what is asked about of "]);
    assert!(!ended.err.contains("record --for"), "{}", ended.err);
    let told = answer("sched", &path, &[]);
    let unknown = |told: &serde_json::Value| -> Vec<String> {
        let needs =
            ["missing", "unseen"].into_iter().filter_map(|list| told["covered"][list].as_array()).flatten();
        needs.map(|need| text(need, "tells").to_owned()).collect()
    };
    for tells in ["when threads are woken", "moves to other CPUs", "which threads are new"] {
        assert!(unknown(&told).iter().any(|other| other == tells), "{tells}: {}", told["covered"]);
        assert!(tables("sched", &path, &[]).contains(&format!("unknown: {tells}; ")), "{tells}");
    }
    let irqs = answer("irq", &path, &[]);
    assert_eq!(number(&list(&irqs, "irqs")[0], "times.total_ns"), 2 * MS);
    assert!(unknown(&irqs).contains(&"when soft interrupts are due".to_owned()), "{irqs}");
    assert!(list(&irqs, "softirqs").is_empty());
}
