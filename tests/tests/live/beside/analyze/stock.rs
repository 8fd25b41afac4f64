//! Answers about stock trace-cmd's recordings beside its text of them.

use std::collections::BTreeSet;

use integration_tests::answers::{answer, list, number, text};
use integration_tests::stock_answers as stock;

use crate::analyze::recording;
use crate::analyze::stock::{compare_calls, compare_irqs, compare_threads};

#[test]
fn answers_of_stocks_recordings_are_those_of_its_text() {
    let sched = recording("k6.12-sched-irq-timer-zstd.dat");
    let lines = stock::lines(&sched);
    assert!(compare_threads(&sched, &lines) > 50);
    let [_, soft] = compare_irqs(&sched, &lines);
    assert!(soft > 100);
    let calls = recording("k6.12-instances.dat");
    assert!(compare_calls(&calls, &stock::lines(&calls)) > 100);
}

#[test]
fn a_part_of_a_recording_is_that_part() {
    let path = recording("k6.12-sched-irq-timer-zstd.dat");
    let lines = stock::lines(&path);
    let whole = answer("sched", &path, &[]);
    let (begin, end) = (number(&whole, "covered.from_ns"), number(&whole, "covered.to_ns"));
    assert_eq!((begin, end), (lines[0].time, lines.last().unwrap().time));
    // Two halves are the whole: what lasts over the middle is cut there.
    let time = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    let middle = time(begin.midpoint(end));
    let halves = [answer("sched", &path, &["--to", &middle]), answer("sched", &path, &["--from", &middle])];
    for (index, cpu) in list(&whole, "cpus").iter().enumerate() {
        for name in ["busy_ns", "idle_ns"] {
            let parts: u64 = halves.iter().map(|half| number(&list(half, "cpus")[index], name)).sum();
            assert_eq!(parts, number(cpu, name), "{name} of {cpu}");
        }
    }
    // An end behind the recording's is the recording's.
    let beyond = answer("sched", &path, &["--from", "0", "--to", &time(end + 5_000_000_000)]);
    assert_eq!(beyond, whole);
    // Each CPU has its own records.
    let mut switches = 0;
    for cpu in ["0", "1"] {
        let part = answer("sched", &path, &["--cpu", cpu]);
        let cpus = list(&part, "cpus");
        assert_eq!(cpus, [list(&whole, "cpus")[cpu.parse::<usize>().unwrap()].clone()]);
        switches += list(&part, "threads").iter().map(|thread| number(thread, "switches")).sum::<u64>();
    }
    let all: u64 = list(&whole, "threads").iter().map(|thread| number(thread, "switches")).sum();
    assert_eq!(switches, all);
    // Threads by number and by name.
    let some = answer("sched", &path, &["--comm", "ls", "--comm", "rcu_*"]);
    let names: BTreeSet<&str> = list(&some, "threads").iter().map(|thread| text(thread, "comm")).collect();
    assert_eq!(names, BTreeSet::from(["ls", "rcu_preempt"]));
    let tid = number(&list(&some, "threads")[0], "tid").to_string();
    let one = answer("sched", &path, &["--pid", &tid]);
    assert_eq!(list(&one, "threads"), &list(&some, "threads")[..1]);
}
