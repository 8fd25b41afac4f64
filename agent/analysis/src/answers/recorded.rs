//! What a file says about which events were recorded.

use serde::Serialize;

use super::{Need, Scope, Topic};
use ftrace_event::EventTable;
use tracedat::ledger::{Ledger, LedgerEvent, LedgerSilent};
use tracedat::reader::{Reader, Source};

/// An event that an analysis uses, and that was not recorded each time that it fired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Partly {
    /// `system:name`.
    pub event: String,
    /// The buffer; empty for the one that every file has.
    pub buffer: String,
    /// Only what matches was recorded.
    pub filter: Option<String>,
    /// How often its filter left it out, and the choice of threads that were recorded.
    pub filtered: u64,
    /// How often sampling left it out.
    pub sampled_out: u64,
    /// From when on it was recorded, if not from the beginning.
    pub since_ns: Option<u64>,
    /// Up to when, if not to the end.
    pub until_ns: Option<u64>,
}

/// Which events were recorded, and of what.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// What our recorder says of each that fired; others say nothing.
    rows: Vec<LedgerEvent>,
    /// Those that did not.
    silent: Vec<LedgerSilent>,
    /// Which threads and CPUs were recorded, if not all.
    pub(super) only: Vec<String>,
}

/// Whether one of several events was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WasRecorded {
    Yes,
    No,
    /// The file describes it, which files do of other events as well.
    Perhaps,
}

impl Recorded {
    pub(super) fn of<S: Source>(reader: &Reader<S>) -> Self {
        let Some(Ledger { events, silent, only, .. }) = Ledger::of(reader) else { return Self::default() };
        Self { rows: events.unwrap_or_default(), silent: silent.unwrap_or_default(), only }
    }

    /// Whether an event that meets a need was recorded, of which there are no records.
    pub(super) fn meets(&self, events: &EventTable, need: &Need) -> WasRecorded {
        let mut selected =
            self.rows.iter().map(|row| &row.event).chain(self.silent.iter().flat_map(|of| &of.events));
        let is_described = || events.iter().any(|event| need.is_met_by(event.system(), event.name()));
        if selected.any(|event| is_met_by(need, event)) {
            WasRecorded::Yes
        } else if is_described() {
            WasRecorded::Perhaps
        } else {
            WasRecorded::No
        }
    }

    /// The events of an analysis that were recorded in part.
    pub(super) fn partly(&self, topic: Topic, scope: &Scope) -> Vec<Partly> {
        let rows = self.rows.iter();
        let is_used = |row: &&LedgerEvent| {
            scope.buffer.as_ref().is_none_or(|buffer| *buffer == row.channel)
                && topic.needs().iter().any(|need| is_met_by(need, &row.event))
        };
        let partly = rows.filter(is_used).map(|row| Partly {
            event: row.event.clone(),
            buffer: row.channel.clone(),
            filter: row.filter.clone(),
            filtered: row.filtered,
            sampled_out: row.sampled_out,
            since_ns: row.since_ns,
            until_ns: row.until_ns,
        });
        partly.filter(Partly::is_less).collect()
    }
}

impl Partly {
    /// Whether anything was left out.
    fn is_less(&self) -> bool {
        // What is left out without a filter of its own are threads that were not to be recorded, the
        // recorder's among them.
        let Self { event: _, buffer: _, filter, filtered: _, sampled_out, since_ns, until_ns } = self;
        filter.is_some() || *sampled_out != 0 || since_ns.is_some() || until_ns.is_some()
    }
}

fn is_met_by(need: &Need, event: &str) -> bool {
    event.split_once(':').is_some_and(|(system, name)| need.is_met_by(system, name))
}
