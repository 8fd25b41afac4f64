//! `analyze sched`, as text.

use super::table::{
    Side::Left, Side::Right, TIMES, Table, duration, no_room, percent, perhaps, perhaps_duration, seconds,
    times,
};
use crate::units::count;
use analysis::answers::{Covered, SchedAnswer};

/// Tables of CPUs, of threads, of the time to the CPU and of the longest waits.
pub(super) fn text(answer: &SchedAnswer, covered: &Covered, limit: usize) -> String {
    let mut text = no_room(answer.threads_left_out, "a thread");
    let whole = covered.to_ns.saturating_sub(covered.from_ns);
    let heads = [("CPU", Right), ("BUSY", Right), ("%", Right), ("IDLE", Right), ("UNKNOWN", Right)];
    let mut cpus = Table::new("CPUs", &[&heads, &[("SWITCHES", Right)]]);
    for cpu in &answer.cpus {
        cpus.row(&[&[
            cpu.cpu.to_string(),
            duration(cpu.busy_ns),
            percent(cpu.busy_ns, whole),
            duration(cpu.idle_ns),
            duration(cpu.unknown_ns),
            count(cpu.switches),
        ]]);
    }
    text += &cpus.text(usize::MAX);
    let heads = [
        ("THREAD", Left),
        ("TID", Right),
        ("RUN", Right),
        ("%", Right),
        ("WAIT", Right),
        ("SLEEP", Right),
        ("BLOCKED", Right),
        ("UNKNOWN", Right),
        ("SWITCHES", Right),
        ("MOVES", Right),
        ("WAKEUPS", Right),
        ("P50", Right),
        ("P99", Right),
        ("MAX", Right),
    ];
    let mut threads =
        Table::new("Threads, by the time that they ran; P50 to MAX: from wakeup to CPU", &[&heads]);
    threads.leave_out(answer.threads.len().saturating_sub(limit));
    for thread in answer.threads.iter().take(limit) {
        let woken = thread.woken;
        threads.row(&[&[
            thread.comm.clone(),
            thread.tid.to_string(),
            duration(thread.run_ns),
            percent(thread.run_ns, whole),
            perhaps_duration(thread.wait_ns),
            perhaps_duration(
                thread.sleep_ns.zip(thread.stopped_ns).map(|(sleep, stop)| sleep.saturating_add(stop)),
            ),
            perhaps_duration(thread.blocked_ns),
            duration(thread.unknown_ns),
            count(thread.switches),
            perhaps(thread.migrations, count),
            perhaps(woken, |woken| count(woken.count)),
            perhaps_duration(woken.and_then(|woken| woken.p50_ns)),
            perhaps_duration(woken.and_then(|woken| woken.p99_ns)),
            perhaps_duration(woken.map(|woken| woken.most_ns)),
        ]]);
    }
    text += &threads.text(limit);
    text += &waits(answer);
    let heads = [
        ("THREAD", Left),
        ("TID", Right),
        ("WAIT", Right),
        ("AFTER", Left),
        ("UNTIL", Right),
        ("CPU", Right),
        ("THERE RAN", Left),
        ("TID", Right),
        ("FOR", Right),
        ("OTHERS", Right),
    ];
    let mut worst = Table::new("Longest waits for a CPU", &[&heads]);
    for waited in &answer.worst {
        let (instead, instead_tid) = match waited.instead_tid {
            None => ("unknown".to_owned(), String::new()),
            Some(0) => ("(idle)".to_owned(), "0".to_owned()),
            Some(tid) => (waited.instead.clone(), tid.to_string()),
        };
        worst.row(&[&[
            waited.comm.clone(),
            waited.tid.to_string(),
            duration(waited.wait_ns),
            if waited.is_woken { "wakeup" } else { "preemption" }.to_owned(),
            seconds(waited.at_ns),
            waited.cpu.to_string(),
            instead,
            instead_tid,
            duration(waited.instead_ns),
            waited.others.to_string(),
        ]]);
    }
    text + &worst.text(limit)
}

fn waits(answer: &SchedAnswer) -> String {
    let mut table = Table::new("Waits for a CPU", &[&[("AFTER", Left)], &TIMES]);
    for (after, waits) in [("wakeup", answer.woken), ("preemption", Some(answer.preempted))] {
        table.row(&[&[after.to_owned()], &times(waits)]);
    }
    table.text(usize::MAX)
}
