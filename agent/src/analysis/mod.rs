//! Questions about whole recordings: how often, how long, what is different.
//!
//! | file | subject |
//! |---|---|
//! | `key` | fields as keys: which, and how they are written |
//! | `histogram` | records counted by keys, with sums of values |
//! | `latency` | times between two events |
//! | `buckets` | numbers counted by size, and percentiles |
//! | `diff` | what two recordings do not have in common |
//!
//! Memory is bounded, whatever the file has in it: what does not fit is counted and told.

pub mod buckets;
pub mod diff;
pub mod histogram;
pub mod key;
pub mod latency;

use crate::event::filter::{FilterError, Origin};
use crate::report::{Progress, TraceFile};
use crate::tracedat::reader::{ReadError, Record, Source};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnalysisError {
    /// The events or their filter.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// A key or a value.
    #[error("{0}")]
    Field(String),
    /// The file.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// What is told how far it has come: every few thousand records.
pub type Watch<'a> = &'a mut dyn FnMut(Progress);

/// Records between two times that the [`Watch`] is told.
const WATCH_EVERY: u64 = 1 << 14;

/// Counts records and tells of them.
struct Pace<'a> {
    watch: Watch<'a>,
    records: u64,
}

impl<'a> Pace<'a> {
    fn new(watch: Watch<'a>) -> Self {
        Self { watch, records: 0 }
    }

    fn step(&mut self, timestamp: u64) {
        self.records += 1;
        if self.records.is_multiple_of(WATCH_EVERY) {
            (self.watch)(Progress { records: self.records, timestamp });
        }
    }
}

/// Calls `look` with every record of a file by time, and returns how many pages or chunks could not be read.
fn each_record<S: Source>(
    file: &TraceFile<S>,
    watch: Watch<'_>,
    mut look: impl FnMut(u16, &Record<'_>, &Origin<'_>),
) -> Result<u64, ReadError> {
    let mut records = file.reader().records()?;
    let (tasks, symbols) = (&file.reader().metadata().cmdlines, file.symbols());
    let (mut damaged, mut pace) = (0, Pace::new(watch));
    loop {
        match records.next_record() {
            Ok(None) => return Ok(damaged),
            Ok(Some(record)) => {
                pace.step(record.timestamp);
                if let Some(event) = record.event_id() {
                    let origin = Origin { cpu: record.cpu, timestamp: record.timestamp, tasks, symbols };
                    look(event, &record, &origin);
                }
            }
            Err(_) => damaged += 1,
        }
    }
}
