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
}

impl Irqs {
    pub(super) fn look(&mut self, at: At, known: &Known<'_>, sink: &mut Sink) {
        match known {
            Known::IrqEntry { irq, name } => {
                let label = format!("irq {irq} {}", String::from_utf8_lossy(name));
                self.enter(at, Interrupt::Hard(*irq), sink.labels.number(label.trim_end()));
            }
            Known::SoftirqEntry { vector } => {
                let name = softirq_name(*vector).map_or_else(|| vector.to_string(), str::to_owned);
                self.enter(at, Interrupt::Soft(*vector), sink.labels.number(&format!("softirq {name}")));
            }
            Known::IrqExit { irq } => self.leave(at, Interrupt::Hard(*irq), sink),
            Known::SoftirqExit { vector } => self.leave(at, Interrupt::Soft(*vector), sink),
            _ => {}
        }
    }

    fn enter(&mut self, at: At, kind: Interrupt, label: u32) {
        let open = Open { label, since: at.time, first: at.event };
        self.cpus.entry(at.cpu).or_default().enter(kind, open);
    }

    fn leave(&mut self, at: At, kind: Interrupt, sink: &mut Sink) {
        if let Some((depth, open)) = self.cpus.entry(at.cpu).or_default().leave(kind) {
            open.tell(at.cpu, depth, (at.time, at.event), sink);
        }
    }

    /// Events of a CPU were lost: which of these have ended since is not known.
    pub(super) fn lost(&mut self, at: At, since: u64, sink: &mut Sink) {
        for (depth, open) in self.cpus.remove(&at.cpu).unwrap_or_default().forget().enumerate() {
            open.tell(at.cpu, depth, (since, 0), sink);
        }
    }

    pub(super) fn finish(&mut self, end: u64, sink: &mut Sink) {
        for (cpu, mut open) in std::mem::take(&mut self.cpus) {
            for (depth, open) in open.forget().enumerate() {
                open.tell(cpu, depth, (end, 0), sink);
            }
        }
    }
}

impl Open {
    fn tell(self, cpu: u32, depth: usize, (end, last): (u64, u64), sink: &mut Sink) {
        let Self { label: key, since: start, first, .. } = self;
        sink.slice(Row::Irq(cpu, depth as u32), Part { start, end, key, arg: 0, first, last });
    }
}
