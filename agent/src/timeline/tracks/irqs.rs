//! Interrupts and soft interrupts, as `analysis::answers::Irqs` understands them.

use std::collections::BTreeMap;

use super::{At, Part, Row, Sink};
use crate::analysis::answers::{Known, softirq_name};

/// Most interrupts that are inside one another on a CPU.
const DEPTH: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Hard(i64),
    Soft(u64),
}

#[derive(Clone, Copy, Debug)]
struct Open {
    kind: Kind,
    label: u32,
    since: u64,
    first: u64,
}

/// What CPUs are in the middle of: the innermost is the last.
#[derive(Debug, Default)]
pub(super) struct Irqs {
    cpus: BTreeMap<u32, Vec<Open>>,
}

impl Irqs {
    pub(super) fn look(&mut self, at: At, known: &Known<'_>, sink: &mut Sink) {
        match known {
            Known::IrqEntry { irq, name } => {
                let label = format!("irq {irq} {}", String::from_utf8_lossy(name));
                self.enter(at, Kind::Hard(*irq), sink.labels.number(label.trim_end()));
            }
            Known::SoftirqEntry { vector } => {
                let name = softirq_name(*vector).map_or_else(|| vector.to_string(), str::to_owned);
                self.enter(at, Kind::Soft(*vector), sink.labels.number(&format!("softirq {name}")));
            }
            Known::IrqExit { irq } => self.leave(at, Kind::Hard(*irq), sink),
            Known::SoftirqExit { vector } => self.leave(at, Kind::Soft(*vector), sink),
            _ => {}
        }
    }

    fn enter(&mut self, at: At, kind: Kind, label: u32) {
        let open = self.cpus.entry(at.cpu).or_default();
        // Exits that are not there were lost, or never recorded.
        if open.len() >= DEPTH {
            open.clear();
        }
        open.push(Open { kind, label, since: at.time, first: at.event });
    }

    fn leave(&mut self, at: At, kind: Kind, sink: &mut Sink) {
        let open = self.cpus.entry(at.cpu).or_default();
        let Some(depth) = open.iter().rposition(|open| open.kind == kind) else { return };
        open.truncate(depth + 1);
        if let Some(open) = open.pop() {
            open.tell(at.cpu, depth, (at.time, at.event), sink);
        }
    }

    /// Events of a CPU were lost: which of these have ended since is not known.
    pub(super) fn lost(&mut self, at: At, since: u64, sink: &mut Sink) {
        for (depth, open) in self.cpus.remove(&at.cpu).unwrap_or_default().into_iter().enumerate() {
            open.tell(at.cpu, depth, (since, 0), sink);
        }
    }

    pub(super) fn finish(&mut self, end: u64, sink: &mut Sink) {
        for (cpu, open) in std::mem::take(&mut self.cpus) {
            for (depth, open) in open.into_iter().enumerate() {
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
