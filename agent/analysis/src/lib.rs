//! Analyses of whole recordings: counts, latencies, distributions, scheduling, I/O, locks, differences.
//!
//! **Data flow:** records of a [`report::TraceFile`] in time order, one pass → a result as plain data (such
//! as [`histogram::Histogram`], or an implementation of [`answers::Analysis`]) → text by the caller, or JSON
//! by [`json`].
//!
//! **Guarantees**
//!
//! - A result contains only what events prove; everything else is unknown, and shown as such.
//! - Memory is bounded for any file: keys without room are counted together.
//! - Gaps in the recording end everything that was in progress.
//!
//! **Must not know:** terminals, command lines, the running kernel.
//!
//! # Example
//!
//! How often each thread was switched to:
//!
//! ```no_run
//! use std::fs::File;
//! use analysis::histogram::{self, Histogram, Order, Question};
//! use analysis::key::Key;
//! use report::TraceFile;
//!
//! let file = TraceFile::open("trace.dat", File::open("trace.dat")?)?;
//! let question = Question {
//!     events: histogram::events("sched_switch")?,
//!     keys: vec![Key::parse("next_comm")?],
//!     values: Vec::new(),
//!     most_rows: 10_000,
//! };
//! let mut switches = Histogram::of(&file, &question, &mut |_| {})?;
//! switches.sort(Order::Count, false);
//! for row in switches.rows.iter().take(10) {
//!     println!("{:>8} {}", row.count, row.keys[0]);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | [`answers`] | threads, CPUs, system calls, interrupts, I/O, locks, memory |
//! | [`key`] | fields as keys: their place in a record, and how their values are shown |
//! | [`histogram`] | records counted by keys, with sums of values |
//! | [`latency`] | times between two events |
//! | [`spread`] | the distribution of a field's values |
//! | [`groups`] | a distribution for each value of a key |
//! | [`stack_tree`] | records counted by their stacks, as a tree |
//! | [`buckets`] | numbers counted by size, and percentiles |
//! | [`diff`] | differences of two recordings |
//! | [`json`] | results as JSON |

#![forbid(unsafe_code)]

pub mod answers;
pub mod buckets;
pub mod diff;
pub mod groups;
pub mod histogram;
pub mod json;
pub mod key;
pub mod latency;
pub mod spread;
pub mod stack_tree;
#[cfg(any(test, feature = "world"))]
pub mod world;

use ftrace_event::filter::{FilterError, Origin};
use report::{Progress, TraceFile};
use tracedat::reader::{ReadError, Record, Source};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
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

/// Called with the progress every few thousand records.
pub type Watch<'a> = &'a mut dyn FnMut(Progress);

/// What stands between two keys while they are one text.
const SEPARATOR: u8 = 0x1f;

/// Most bytes of keys that are told apart: each can be a string of the length of a record.
const MAX_KEY_BYTES: usize = 256 << 20;

/// Ends a value that is part of a key: what begins at `from`. A separator in it would move what follows to
/// another key.
fn end_value(text: &mut [u8], from: usize) {
    for byte in text.iter_mut().skip(from).filter(|byte| **byte == SEPARATOR) {
        *byte = b'?';
    }
}

/// The values of a key.
fn values(text: &[u8]) -> Vec<String> {
    let values = text.split(|byte| *byte == SEPARATOR);
    values.map(|value| String::from_utf8_lossy(value).into_owned()).collect()
}

/// Room for keys.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Keys for which there still is room.
    keys: usize,
    /// And their bytes.
    bytes: usize,
}

impl Room {
    fn new(most_keys: usize) -> Self {
        Self { keys: most_keys, bytes: MAX_KEY_BYTES }
    }

    /// Takes room for a key of this many bytes, if there is enough.
    fn take(&mut self, bytes: usize) -> bool {
        let is_enough = self.keys > 0 && self.bytes >= bytes;
        if is_enough {
            self.keys -= 1;
            self.bytes -= bytes;
        }
        is_enough
    }

    fn give_back(&mut self, bytes: usize) {
        self.keys += 1;
        self.bytes += bytes;
    }
}

/// Records between two calls of the [`Watch`].
const WATCH_EVERY: u64 = 1 << 14;

/// Counts records and reports progress.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_ends_with_the_keys_or_with_their_bytes() {
        let mut room = Room::new(3);
        assert!(room.take(MAX_KEY_BYTES - 1) && !room.take(2) && room.take(1) && !room.take(1));
        room.give_back(1);
        assert!(room.take(0) && room.take(0) && !room.take(0));
    }

    #[test]
    fn values_stay_apart() {
        let mut text = b"A\x1fB".to_vec();
        end_value(&mut text, 0);
        text.push(SEPARATOR);
        let from = text.len();
        text.extend(b"C\x1f\xff");
        end_value(&mut text, from);
        assert_eq!(values(&text), ["A?B", "C?\u{fffd}"]);
    }
}
