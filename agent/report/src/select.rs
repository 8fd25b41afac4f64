//! Selection of records.

use std::collections::HashSet;

use super::view::{EventView, FileView};
use ftrace_event::filter;
use ftrace_event::record::flag;

/// The records to show. An empty selection shows all of them.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Only these CPUs.
    pub cpus: Option<HashSet<u32>>,
    /// Only these buffers, by name; the one that every file has has none.
    pub buffers: Option<HashSet<String>>,
    /// Only events of these tasks, and those that wake or switch to them: `common_pid`, `pid` or `next_pid`.
    pub pids: Option<HashSet<u32>>,
    /// Only what these filters want (`-F`): those of each file, in the order of the files. A file without has
    /// none.
    pub filters: Vec<filter::Selection>,
    /// None from hard interrupts (`-I`).
    pub no_hard_irqs: bool,
    /// None from soft interrupts (`-S`).
    pub no_soft_irqs: bool,
    /// None before this time.
    pub since: Option<u64>,
    /// None behind this time.
    pub until: Option<u64>,
    /// No more than so many.
    pub limit: Option<u64>,
}

impl Selection {
    /// Whether a record is shown, as far as that does not depend on others.
    #[inline]
    pub(super) fn shows(&self, file: &FileView<'_>, event: Option<&EventView<'_>>, record: &[u8]) -> bool {
        if self.no_hard_irqs || self.no_soft_irqs {
            let flags = file.common.flags.map_or(0, |flags| flags.read(record, file.machine));
            if self.no_hard_irqs && flags & flag::HARD_IRQ != 0
                || self.no_soft_irqs && flags & flag::SOFT_IRQ != 0
            {
                return false;
            }
        }
        match &self.pids {
            Some(pids) => is_of(pids, file, event, record),
            None => true,
        }
    }

    /// Whether an event is selected, its time and number aside. `reader` is the index of its file.
    pub(super) fn selects(
        &self,
        reader: usize,
        file: &FileView<'_>,
        event: Option<&EventView<'_>>,
        id: Option<u16>,
        record: &[u8],
        origin: &filter::Origin<'_>,
    ) -> bool {
        let filters = self.filters.get(reader).filter(|filters| !filters.is_empty());
        self.shows(file, event, record)
            && filters.is_none_or(|filters| id.is_some_and(|id| filters.wants_event(id, record, origin)))
    }
}

fn is_of(pids: &HashSet<u32>, file: &FileView<'_>, event: Option<&EventView<'_>>, record: &[u8]) -> bool {
    let is = |num: super::plugin::Num| pids.contains(&(num.read(record, file.machine) as u32));
    pids.contains(&file.pid(record))
        || event.is_some_and(|event| event.pid.is_some_and(is) || event.next_pid.is_some_and(is))
}
