//! Interrupts and soft interrupts, as `analysis::answers::Irqs` understands them.

use std::collections::BTreeMap;

use super::{At, Part, Row, Sink};
use analysis::answers::{Interrupt, Known, Nesting, softirq_name};

/// An interrupt that has not ended.
#[derive(Clone, Copy, Debug)]
struct Open {
    label: u32,
    since: u64,
    first: u64,
}

/// What CPUs are in the middle of.
#[derive(Debug, Default)]
pub(super) struct Irqs {
    cpus: BTreeMap<u32, Nesting<Open>>,
    /// Whether some may have ended that are not there.
    end_unseen: bool,
}

impl Irqs {
    /// Of a recording that has each end, or not.
    pub(super) fn new(end_unseen: bool) -> Self {
        Self { cpus: BTreeMap::new(), end_unseen }
    }

    pub(super) fn look(&mut self, at: At, known: &Known<'_>, sink: &mut Sink) {
        match known {
            Known::IrqEntry { irq, name } => {
                let label = format!("irq {irq} {}", String::from_utf8_lossy(name));
                self.enter(at, Interrupt::Hard(*irq), label.trim_end(), sink);
            }
            Known::SoftirqEntry { vector } => {
                let name = softirq_name(*vector).map_or_else(|| vector.to_string(), str::to_owned);
                self.enter(at, Interrupt::Soft(*vector), &format!("softirq {name}"), sink);
            }
            Known::IrqExit { irq } => self.leave(at, Interrupt::Hard(*irq), sink),
            Known::SoftirqExit { vector } => self.leave(at, Interrupt::Soft(*vector), sink),
            _ => {}
        }
    }

    fn enter(&mut self, at: At, kind: Interrupt, label: &str, sink: &mut Sink) {
        let open = Open { label: sink.labels.number(label), since: at.time, first: at.event };
        for (depth, ended) in self.cpus.entry(at.cpu).or_default().enter(kind, open) {
            ended.tell(at.cpu, depth, (ended.since, 0), sink);
        }
    }

    fn leave(&mut self, at: At, kind: Interrupt, sink: &mut Sink) {
        if let Some((depth, open)) = self.cpus.entry(at.cpu).or_default().leave(kind) {
            open.tell(at.cpu, depth, (at.time, at.event), sink);
        }
    }

    /// Events of a CPU were lost: which of these have ended since is not known.
    pub(super) fn lost(&mut self, at: At, since: u64, sink: &mut Sink) {
        let open = self.cpus.remove(&at.cpu).unwrap_or_default();
        self.tell_open(at.cpu, open, since, sink);
    }

    pub(super) fn finish(&mut self, end: u64, sink: &mut Sink) {
        for (cpu, open) in std::mem::take(&mut self.cpus) {
            self.tell_open(cpu, open, end, sink);
        }
    }

    /// Tells of all that a CPU is in.
    fn tell_open(&self, cpu: u32, mut open: Nesting<Open>, end: u64, sink: &mut Sink) {
        for (depth, open) in open.forget().enumerate() {
            open.tell(cpu, depth, (if self.end_unseen { open.since } else { end }, 0), sink);
        }
    }
}

impl Open {
    fn tell(self, cpu: u32, depth: usize, (end, last): (u64, u64), sink: &mut Sink) {
        let Self { label: key, since: start, first, .. } = self;
        sink.slice(Row::Irq(cpu, depth as u32), Part { start, end, key, arg: 0, first, last });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_that_comes_once_more_has_ended() {
        let told = |end_unseen: bool| {
            let (mut irqs, mut sink) = (Irqs::new(end_unseen), Sink::default());
            let entry = Known::IrqEntry { irq: 5, name: b"disk" };
            for (time, known) in [
                (10, entry),
                (20, Known::SoftirqEntry { vector: 4 }),
                (30, entry),
                (40, Known::IrqExit { irq: 5 }),
                (50, entry),
            ] {
                irqs.look(At { time, cpu: 0, event: time }, &known, &mut sink);
            }
            irqs.finish(90, &mut sink);
            let row = |row| sink.rows.get(row).map_or(0, |row| row.told().2);
            sink.slices.iter().map(|slice| (row(slice.row), slice.start, slice.end)).collect::<Vec<_>>()
        };
        assert_eq!(told(false), [(0, 10, 10), (1, 20, 20), (0, 30, 40), (0, 50, 90)]);
        assert_eq!(told(true), [(0, 10, 10), (1, 20, 20), (0, 30, 40), (0, 50, 50)]);
    }
}
