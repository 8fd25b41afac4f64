//! `perf.data`: what `perf record` writes to a file or a pipe.
//!
//! Only samples of tracepoints become records: they hold what ftrace would have recorded, byte by byte, and
//! the file has the formats of their events. Everything else is counted.
//!
//! | file | subject |
//! |---|---|
//! | `bytes` | numbers and texts of either byte order, out of slices |
//! | `input` | the source as a stream of records |
//! | `attr` | `perf_event_attr`: what samples of an event have |
//! | `header` | the header, the sections that it names, and features |
//! | `tracing` | formats of events, in the layout of trace-cmd's old files |
//! | `sample` | a sample, and what records of other kinds end with |
//! | `state` | what the records mean |
//! | `threads` | names and processes of threads |
//! | `unpack` | records that are compressed |
//!
//! Layouts: tools/perf/Documentation/perf.data-file-format.txt, include/uapi/linux/perf_event.h and
//! tools/lib/perf/include/perf/event.h of the kernel. Android's simpleperf writes the same layout, with
//! records of other kinds in it (`input::simpleperf`).
//!
//! perf empties its ring buffers in turns, so that records of one CPU are in the order of time, but for those
//! that perf makes itself; the sink sorts them. Memory is bounded but for the facts: a record has at most 64
//! KiB, and formats, the other sections and records of simpleperf at most 64 MiB.

mod attr;
mod bytes;
mod header;
mod input;
mod sample;
mod state;
mod threads;
mod tracing;
mod unpack;

use std::io::Read;

use self::header::Header;
use self::input::{Input, Records};
use self::state::State;
use super::{ImportError, Sink, Source};
use ftrace_event::Endian;
use tracedat::reader::Source as ReadAt;

/// What the source is, in messages.
const FORMAT: &str = "perf.data";

/// Most bytes of a section that describes: formats of all events of a kernel take 3 MB.
const MAX_SECTION: u64 = 64 << 20;

/// After how many records progress is told.
const STEP: u64 = 4096;

/// A file or a stream of `perf record`, whose header was read.
#[derive(Debug)]
pub struct PerfData {
    input: Input,
    header: Header,
}

impl PerfData {
    /// Whether bytes of the beginning of a file are those of a `perf.data`.
    pub fn recognise(beginning: &[u8]) -> bool {
        header::endian(beginning).is_some()
    }

    /// Opens a file, of `perf record -o FILE` or one that a pipe was written to.
    ///
    /// # Errors
    /// It cannot be read, or is no perf.data of the second version.
    pub fn open(file: Box<dyn ReadAt>) -> Result<Self, ImportError> {
        let input = Input::file(file)?;
        let header = Header::read(&input)?;
        Ok(Self { input, header })
    }

    /// Opens a stream, as `perf record -o -` writes it, which begins with `beginning`: bytes that were read
    /// already.
    ///
    /// # Errors
    /// As [`open`](Self::open), or what comes is a file, which cannot be read front to back.
    pub fn stream(beginning: &[u8], rest: Box<dyn Read + Send>) -> Result<Self, ImportError> {
        let mut input = Input::stream(beginning.to_vec(), rest);
        let header = Header::of_stream(&mut input)?;
        Ok(Self { input, header })
    }
}

impl Source for PerfData {
    fn format(&self) -> &'static str {
        FORMAT
    }

    fn endian(&self) -> Endian {
        self.header.endian
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ImportError> {
        let Self { input, header } = self;
        let mut state = State::new(header.endian);
        let (mut records, total) = if let Some(file) = &header.file {
            state.describe(input, file, sink)?;
            (Records::section(input, file.data, header.endian)?, file.data.size)
        } else {
            let total = input.len().unwrap_or(0);
            (Records::rest(input, header.size, header.endian), total)
        };
        let mut count = 0;
        while let Some(record) = records.next()? {
            state.record(record, sink)?;
            if let Some(payload) = state.wants() {
                let bytes = records.payload(payload)?;
                state.payload(&bytes, sink)?;
            }
            count += 1;
            if count % STEP == 0 {
                sink.progress(records.done(), total.max(records.done()))?;
            }
        }
        state.finish(sink)
    }
}

/// An error at a byte of the source.
fn damaged(at: u64, problem: impl Into<String>) -> ImportError {
    ImportError::Damaged { format: FORMAT, at: format!("byte {at}"), problem: problem.into() }
}

#[cfg(test)]
mod tests;
