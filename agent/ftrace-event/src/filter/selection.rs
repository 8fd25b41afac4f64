//! Several filters together, as `trace-cmd report` has them.

use std::collections::HashMap;

use super::{FilterError, Origin, ResolvedFilter};
use crate::table::EventTable;

/// Several filters: a record is wanted if any of the first kind wants it, or there are none of that kind, and
/// none of the second kind does (`-F`, and `-F` after `-v`).
///
/// Stacks belong to the event before them: they are wanted if that one is.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    wanted: Vec<ResolvedFilter>,
    unwanted: Vec<ResolvedFilter>,
    /// The numbers of `ftrace:kernel_stack` and `ftrace:user_stack`.
    stacks: Vec<u16>,
}

/// What was shown last on each CPU, for the stacks after it. One for each stream of records that is read in
/// order.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    by_cpu: HashMap<(usize, u32), bool>,
}

impl Selection {
    /// No filters: everything is wanted.
    pub fn new(events: &EventTable) -> Self {
        let stacks = events.iter().filter(|event| event.is_stack()).map(|event| event.format().id).collect();
        Self { stacks, ..Self::default() }
    }

    /// Adds a filter; `negated` for one whose records are not wanted.
    pub fn add(&mut self, filter: ResolvedFilter, negated: bool) {
        if negated { self.unwanted.push(filter) } else { self.wanted.push(filter) }
    }

    /// Parses, resolves and adds a filter.
    ///
    /// # Errors
    /// Those of [`Filter::parse`](super::Filter::parse) and [`Filter::resolve`](super::Filter::resolve).
    pub fn add_text(&mut self, text: &str, negated: bool, events: &EventTable) -> Result<(), FilterError> {
        let filter = super::Filter::parse(text, super::Dialect::TraceCmd)?;
        self.add(filter.resolve(events, super::ResolveOptions::default())?, negated);
        Ok(())
    }

    /// Whether there are no filters.
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty() && self.unwanted.is_empty()
    }

    /// Whether a record is wanted. Records of one CPU have to come in their order. `buffer` keeps the CPUs of
    /// several buffers apart.
    pub fn wants(
        &self,
        event: u16,
        record: &[u8],
        buffer: usize,
        origin: &Origin<'_>,
        shown: &mut Shown,
    ) -> bool {
        if self.is_empty() {
            return true;
        }
        let matches = |filter: &ResolvedFilter| filter.matches(event, record, origin);
        if self.stacks.contains(&event) {
            // One that was asked for by itself is shown whatever is before it.
            let follows = shown.by_cpu.get(&(buffer, origin.cpu)).copied().unwrap_or(self.wanted.is_empty());
            return !self.unwanted.iter().any(matches) && (follows || self.wanted.iter().any(matches));
        }
        let wanted = self.wants_event(event, record, origin);
        shown.by_cpu.insert((buffer, origin.cpu), wanted);
        wanted
    }

    /// Whether a record is wanted for itself, whatever is before it.
    pub fn wants_event(&self, event: u16, record: &[u8], origin: &Origin<'_>) -> bool {
        let matches = |filter: &ResolvedFilter| filter.matches(event, record, origin);
        !self.unwanted.iter().any(matches) && (self.wanted.is_empty() || self.wanted.iter().any(matches))
    }
}
