//! `analyze locks`, as text.

use super::table::{Side::Left, Side::Right, TIMES, Table, duration, no_room, perhaps, seconds, times};
use crate::units::count;
use analysis::answers::{
    Covered, Futex, FutexResults, FutexWait, FutexesAnswer, KernelLock, KernelLocksAnswer, LocksAnswer, Tid,
};

/// Tables of locks of the kernel, of the functions that wait for them, of futexes, of the longest waits and
/// of threads.
pub(super) fn text(answer: &LocksAnswer, _: &Covered, limit: usize) -> String {
    let mut text = no_room(answer.left_out, "a lock, a thread or a stack");
    text += &notes(answer);
    text += &kernel(&answer.kernel, limit);
    let results = [
        ("CHANGED", Right),
        ("TIMED OUT", Right),
        ("INTERRUPTED", Right),
        ("FAILED", Right),
        ("OPEN", Right),
    ];
    let ends = [("WAITERS", Right), ("MOSTLY", Left), ("TID", Right), ("WOKEN BY", Left), ("TID", Right)];
    let heads: [&[_]; 4] =
        [&[("PROCESS", Left), ("PID", Right), ("FUTEX", Right), ("SHARED", Left)], &TIMES, &results, &ends];
    let mut futexes = Table::new(
        "Locks of processes (futexes), by the time that threads waited; OPEN: still waiting",
        &heads,
    );
    for futex in &answer.futexes.locks {
        futexes.row(&[
            &place(&futex.comm, futex.process),
            &[called(&futex.address, futex.mapping.as_deref()), yes(futex.is_shared)],
            &times(futex.times),
            &failures(&futex.results),
            &[perhaps(futex.open, count)],
            &most(futex),
        ]);
    }
    text += &futexes.text(limit);
    text += &futex_callers(&answer.futexes, limit);
    text += &worst(&answer.futexes.worst);
    text + &threads(answer, limit)
}

/// What is not known.
fn notes(answer: &LocksAnswer) -> String {
    let mut text = String::new();
    let (kernel, futexes) = (&answer.kernel, &answer.futexes);
    for (what, unmatched, unfinished) in [
        ("locks of the kernel", kernel.unmatched, kernel.unfinished),
        ("futex calls", futexes.unmatched, futexes.unfinished),
    ] {
        let [unmatched, unfinished] = [unmatched, unfinished].map(|of| of.unwrap_or(0));
        if unmatched + unfinished != 0 {
            text += &format!(
                "{what}: {} ends without a beginning, and {} beginnings without an end, are not in the times\n",
                count(unmatched),
                count(unfinished)
            );
        }
    }
    if futexes.threads_without_process != 0 {
        text += &format!(
            "unknown: the processes of {} threads; their futexes are told apart by address alone\n",
            count(futexes.threads_without_process)
        );
    }
    if !kernel.has_stacks && !kernel.locks.is_empty() {
        text += "unknown: which functions wait for locks of the kernel; the recording has no stacks of \
                 lock:contention_begin (record -T)\n";
    }
    if !futexes.has_stacks && !futexes.locks.is_empty() {
        text += "unknown: which functions wait for futexes; the recording has no stacks of processes at \
                 futex calls (record --user-stack)\n";
    }
    text
}

/// Functions that wait for futexes, where there are stacks.
fn futex_callers(futexes: &FutexesAnswer, limit: usize) -> String {
    if !futexes.has_stacks {
        return String::new();
    }
    let heads: [&[_]; 2] = [&[("FUNCTION", Left), ("PROCESS", Left), ("PID", Right)], &TIMES];
    let mut callers = Table::new("Functions of processes that wait for futexes, by time", &heads);
    for caller in &futexes.callers {
        let function = perhaps(caller.function.clone(), |name| name);
        let [process, pid] = place(&caller.comm, caller.process);
        callers.row(&[&[function, process, pid], &times(caller.times)]);
    }
    callers.text(limit)
}

fn kernel(kernel: &KernelLocksAnswer, limit: usize) -> String {
    let ends = [("FAILED", Right), ("OPEN", Right), ("WAITERS", Right), ("MOSTLY", Left), ("TID", Right)];
    let heads: [&[_]; 3] = [&[("LOCK", Left), ("KIND", Left)], &TIMES, &ends];
    let mut locks =
        Table::new("Locks of the kernel, by the time that was waited; OPEN: still waiting", &heads);
    for lock in &kernel.locks {
        let waiter = lock.waiters.first();
        locks.row(&[
            &[name(lock), lock.kind.name().to_owned()],
            &times(lock.times),
            &[perhaps(lock.failed, count), perhaps(lock.open, count), lock.waiters.len().to_string()],
            &waiter.map_or_else(Default::default, |waiter| [waiter.comm.clone(), id(waiter.tid)]),
        ]);
    }
    let mut text = locks.text(limit);
    if kernel.has_stacks {
        let heads: [&[_]; 3] = [&[("FUNCTION", Left), ("KIND", Left)], &TIMES, &[("FAILED", Right)]];
        let mut callers = Table::new("Functions of the kernel that wait for locks, by time", &heads);
        for caller in &kernel.callers {
            let function = perhaps(caller.function.clone(), |name| name);
            callers.row(&[
                &[function, caller.kind.name().to_owned()],
                &times(caller.times),
                &[count(caller.failed)],
            ]);
        }
        text += &callers.text(limit);
    }
    text
}

fn worst(waits: &[FutexWait]) -> String {
    let heads = [
        ("THREAD", Left),
        ("TID", Right),
        ("WAIT", Right),
        ("UNTIL", Right),
        ("PID", Right),
        ("FUTEX", Right),
        ("END", Left),
        ("WOKEN BY", Left),
        ("TID", Right),
    ];
    let mut worst = Table::new("Longest waits for futexes, one of a thread and a futex", &[&heads]);
    for wait in waits {
        worst.row(&[&[
            wait.comm.clone(),
            wait.tid.to_string(),
            duration(wait.wait_ns),
            seconds(wait.at_ns),
            id(wait.process),
            called(&wait.address, wait.mapping.as_deref()),
            wait.result.name().to_owned(),
            perhaps(wait.waker.clone(), |name| name),
            id(wait.waker_tid),
        ]]);
    }
    worst.text(usize::MAX)
}

fn threads(answer: &LocksAnswer, limit: usize) -> String {
    let heads = [
        ("THREAD", Left),
        ("TID", Right),
        ("PID", Right),
        ("KERNEL", Right),
        ("TOTAL", Right),
        ("MAX", Right),
        ("FUTEX", Right),
        ("TOTAL", Right),
        ("MAX", Right),
        ("WAKES", Right),
    ];
    let mut threads = Table::new(
        "Threads, by the time that they waited for locks of the kernel and for futexes",
        &[&heads],
    );
    for thread in &answer.threads {
        let [kernel_count, kernel_total, .., kernel_most] = times(thread.kernel);
        let [futex_count, futex_total, .., futex_most] = times(thread.futexes);
        threads.row(&[&[
            thread.comm.clone(),
            id(thread.tid),
            id(thread.process),
            kernel_count,
            kernel_total,
            kernel_most,
            futex_count,
            futex_total,
            futex_most,
            perhaps(thread.wakes, count),
        ]]);
    }
    threads.text(limit)
}

fn name(lock: &KernelLock) -> String {
    lock.name.clone().unwrap_or_else(|| lock.address.clone())
}

/// A futex by the name of what is mapped there, without its directory, or by its address.
fn called(address: &str, mapping: Option<&str>) -> String {
    mapping.and_then(|path| path.rsplit('/').next()).unwrap_or(address).to_owned()
}

fn place(comm: &str, process: Option<Tid>) -> [String; 2] {
    [perhaps(process, |_| comm.to_owned()), id(process)]
}

fn id(tid: Option<Tid>) -> String {
    perhaps(tid, |tid| tid.to_string())
}

fn yes(is_so: bool) -> String {
    if is_so { "yes" } else { "no" }.to_owned()
}

fn failures(results: &FutexResults) -> [String; 4] {
    [results.changed, results.timed_out, results.interrupted, results.failed].map(|of| perhaps(of, count))
}

/// How many wait, who waits for the longest time, and who wakes most.
fn most(futex: &Futex) -> [String; 5] {
    let named = |found: Option<(&str, Tid)>| {
        found.map_or_else(Default::default, |(comm, tid)| [comm.to_owned(), tid.to_string()])
    };
    let [waiter, waiter_tid]: [String; 2] =
        named(futex.waiters.first().map(|waiter| (waiter.comm.as_str(), waiter.tid)));
    let [waker, waker_tid]: [String; 2] =
        named(futex.wakers.first().map(|waker| (waker.comm.as_str(), waker.tid)));
    [futex.waiters.len().to_string(), waiter, waiter_tid, waker, waker_tid]
}
