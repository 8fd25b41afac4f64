//! `analyze cpu`, as text.

use super::{
    stacks::{Of, no_room},
    table::{Side::Right, Table, percent, perhaps},
};
use crate::units::count;
use analysis::answers::{Covered, CpuAnswer};
use flame::Unit;

/// Tables of CPUs, threads, functions and stacks.
pub(super) fn text(answer: &CpuAnswer, _: &Covered, limit: usize) -> String {
    let mut text = format!("{} samples of threads\n", perhaps(answer.samples, count));
    if let Some(samples) = answer.without_stack.filter(|samples| *samples != 0) {
        text += &format!("{} of them have no stack; `record --for cpu` records them\n", count(samples));
    }
    if let Some(stacks) = answer.without_entry.filter(|stacks| *stacks != 0) {
        text += &format!(
            "{} kernel stacks have no interrupt in which they begin, and are shown whole\n",
            count(stacks)
        );
    }
    if answer.unknown_timers != 0 {
        text += &format!(
            "{} timers have a function without a symbol: it is not known whether they are ticks\n",
            count(answer.unknown_timers)
        );
    }
    text += &no_room(answer.others);
    let heads = [("CPU", Right), ("BUSY", Right), ("%", Right), ("IDLE", Right)];
    let mut cpus = Table::new("CPUs, by samples; one that is idle stops its tick", &[&heads]);
    for of in answer.cpus.iter().flatten() {
        let whole = of.busy.saturating_add(of.idle);
        cpus.row(&[&[of.cpu.to_string(), count(of.busy), percent(of.busy, whole), count(of.idle)]]);
    }
    text += &cpus.text(usize::MAX);
    let of = Of { unit: &Unit::Samples, all: answer.samples.unwrap_or(0) };
    let threads = answer.threads.as_deref().unwrap_or_default();
    let functions = answer.functions.as_deref().unwrap_or_default();
    text + &of.tables(threads, functions, answer.stacks.as_deref().unwrap_or_default(), limit)
}
