//! `analyze irq`, as text.

use super::table::{
    Side::Left, Side::Right, TIMES, Table, duration, no_room, percent, perhaps, perhaps_duration, times,
};
use crate::units::count;
use analysis::answers::{Covered, IrqsAnswer};

/// Tables of CPUs, of handlers and of soft interrupts.
pub(super) fn text(answer: &IrqsAnswer, covered: &Covered, limit: usize) -> String {
    let mut text = no_room(answer.left_out, "an interrupt");
    let whole = covered.to_ns.saturating_sub(covered.from_ns);
    let heads =
        [("CPU", Right), ("IRQ", Right), ("%", Right), ("SOFTIRQ", Right), ("%", Right), ("COUNT", Right)];
    let of_whole = |time| percent(time, whole);
    let mut cpus = Table::new("CPUs", &[&heads]);
    for cpu in &answer.cpus {
        cpus.row(&[&[
            cpu.cpu.to_string(),
            perhaps(cpu.irq_ns, duration),
            perhaps(cpu.irq_ns, of_whole),
            perhaps(cpu.softirq_ns, duration),
            perhaps(cpu.softirq_ns, of_whole),
            perhaps(cpu.count, count),
        ]]);
    }
    text += &cpus.text(usize::MAX);
    let heads: [&[_]; 3] = [&[("IRQ", Right), ("HANDLER", Left)], &TIMES, &[("OWN", Right)]];
    let mut irqs = Table::new("Interrupts, by their own time", &heads);
    for irq in &answer.irqs {
        let name = [irq.irq.to_string(), irq.name.clone()];
        irqs.row(&[&name, &times(irq.times), &[perhaps(irq.own_ns, duration)]]);
    }
    text += &irqs.text(limit);
    let late = [("RAISED", Right), ("LATE P50", Right), ("LATE P99", Right), ("LATE MAX", Right)];
    let heads: [&[_]; 4] = [&[("SOFTIRQ", Left)], &TIMES, &[("OWN", Right)], &late];
    let mut softirqs = Table::new("Soft interrupts, by their own time; LATE: from raise to entry", &heads);
    for softirq in &answer.softirqs {
        let late = softirq.latency;
        softirqs.row(&[
            &[softirq.name.map_or_else(|| softirq.vector.to_string(), str::to_owned)],
            &times(softirq.times),
            &[perhaps(softirq.own_ns, duration), perhaps(late, |late| count(late.count))],
            &[
                perhaps_duration(late.and_then(|late| late.p50_ns)),
                perhaps_duration(late.and_then(|late| late.p99_ns)),
                perhaps_duration(late.map(|late| late.most_ns)),
            ],
        ]);
    }
    text + &softirqs.text(limit)
}
