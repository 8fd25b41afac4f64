//! Names for what records have as numbers.

use super::Tid;
use ftrace_event::Cmdlines;
use ftrace_event::{EventTable, NoSymbols, Symbols};

/// Names that a file has beside its records.
#[derive(Clone, Copy)]
pub struct Names<'n> {
    /// Of functions.
    pub symbols: &'n dyn Symbols,
    /// Of threads, where no record has one.
    pub threads: Option<&'n Cmdlines>,
    /// Of events.
    pub events: Option<&'n EventTable>,
}

impl Names<'_> {
    /// No names.
    pub const fn none() -> Self {
        Self { symbols: &NoSymbols, threads: None, events: None }
    }

    /// The name of a thread: the one that records had of it, or else the file's.
    pub(super) fn of_thread<'t>(&'t self, tid: Tid, seen: &'t [u8]) -> &'t [u8] {
        if !seen.is_empty() {
            return seen;
        }
        self.threads.and_then(|threads| threads.get(tid)).unwrap_or(seen)
    }

    /// The same as a text.
    pub(super) fn thread_text(&self, tid: Tid, seen: &[u8]) -> String {
        String::from_utf8_lossy(self.of_thread(tid, seen)).into_owned()
    }
}
