//! Which CPUs lack events between their last record and their next one.

use std::collections::BTreeMap;

use super::Lives;

/// The gaps that are open. Of what begins and ends within one nothing is known, on any CPU.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    /// By buffer and CPU, the time of the last record before.
    open: BTreeMap<(usize, u32), u64>,
}

/// A gap that a record lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassedGap {
    /// The CPU that lacks events.
    pub cpu: u32,
    /// The time of its last record before.
    pub since: u64,
    /// Whether the record is this CPU's, and ends the gap.
    pub has_ended: bool,
}

impl Gaps {
    /// Opens the gap of a CPU of a buffer, whose last record has this time.
    pub fn open(&mut self, stream: (usize, u32), since: u64, lives: &mut Lives) {
        if self.open.insert(stream, since).is_none() {
            lives.gap(true);
        }
    }

    /// The gap that a record of a CPU lies in, if any: that of this CPU, which ends, or the first of others.
    /// Which of the others does not matter to what is lost.
    #[inline]
    pub fn pass(&mut self, stream: (usize, u32), lives: &mut Lives) -> Option<PassedGap> {
        if self.open.is_empty() {
            return None;
        }
        if let Some(since) = self.open.remove(&stream) {
            lives.gap(!self.open.is_empty());
            return Some(PassedGap { cpu: stream.1, since, has_ended: true });
        }
        self.first()
    }

    /// The first of the gaps that are open.
    pub fn first(&self) -> Option<PassedGap> {
        let ((_, cpu), since) = self.open.first_key_value()?;
        Some(PassedGap { cpu: *cpu, since: *since, has_ended: false })
    }
}
