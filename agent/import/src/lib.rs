//! Recordings of other tracers as trace.dat files, for all commands that read those.
//!
//! **Data flow:** a [`Source`] reads a recording once, from front to end, and passes its content to a
//! [`Sink`]: events, facts, tasks, records, losses. Records go to a nameless file beside the output, in runs
//! sorted by time; at the end [`import()`] merges them into a trace.dat. So nothing has to be known before
//! the first record, and records may come in any order.
//!
//! **Guarantees**
//!
//! - Sources may be hostile: typed errors with the place of the damage, and bounded memory.
//! - The file is complete or does not exist.
//! - Losses that the source reports are in the file; data that trace.dat cannot hold is counted.
//!
//! **Must not know:** the running kernel. Readers do not know that a file was imported.
//!
//! # Example
//!
//! ```no_run
//! use std::fs::File;
//! use std::path::PathBuf;
//! use import::{Options, Target, import, perf::PerfData};
//!
//! let mut source = PerfData::open(Box::new(File::open("perf.data")?))?;
//! let target = Target { path: PathBuf::from("trace.dat"), force: false };
//! let imported = import(&mut source, &target, Options::default(), &mut |_| true)?;
//! println!("{} events", imported.events);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | [`event`] | events without a format text: their fields, the text made from them, values as a record |
//! | [`sink`] | the receiver of events, facts, tasks, records and losses |
//! | [`open`] | from a path or a stream to a source |
//! | `ftrace` | events that ftrace itself makes, laid out as it does |
//! | `provenance` | what a source has of the recording that it was exported from |
//! | `spool` | any number of records, sorted by time |
//! | `file` | the trace.dat |
//! | [`text`] | the text of tracefs, `trace-cmd report` and `perf script` |
//! | [`perf`] | files and streams of `perf record` |
//! | [`ctf`] | traces of CTF 1.8 and 2, by LTTng and others |

#![forbid(unsafe_code)]

pub mod ctf;
mod error;
pub mod event;
mod file;
mod ftrace;
pub mod open;
pub mod perf;
mod provenance;
#[cfg(test)]
mod read_back;
pub mod sink;
mod spool;
pub mod text;

use std::io::{BufWriter, Seek, Write};
use std::path::PathBuf;

pub use error::ImportError;
pub use event::{EventSpec, FieldSpec, FieldType, Integer, Value};
pub use ftrace::StackOf;
pub use sink::{At, BufferId, Common, EventId, Facts, Sink};

use ftrace_event::Endian;
use stdx::not_carried::NotCarried;
use stdx::output::{Directory, Output, OutputError, TempFile};
use tracedat::rewrite::Watch;

/// A recording that is read once.
pub trait Source {
    /// What it is, for messages: `perf.data`.
    fn format(&self) -> &'static str;

    /// The byte order of the records that it gives.
    fn endian(&self) -> Endian;

    /// Reads everything, and gives it to `sink`. Calls [`Sink::progress`] now and then.
    ///
    /// # Errors
    /// [`ImportError::Damaged`] with the place for what is not as the format has it; what `sink` returns.
    /// What was given before stays given.
    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ImportError>;
}

/// Where an import goes.
#[derive(Clone, Debug)]
pub struct Target {
    /// The file.
    pub path: PathBuf,
    /// Replace a file that is there.
    pub force: bool,
}

/// How to import.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Keep what came before damage, and count the damage, instead of refusing the recording.
    pub keep_going: bool,
    /// Show times of day ([`Facts::wall_offset`]) rather than those of the clock.
    pub date: bool,
}

/// A finished import.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The file.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Records that are in it.
    pub events: u64,
    /// Kinds of events that it describes.
    pub kinds: usize,
    /// Events that the source tells were lost when it was recorded, as far as it says how many.
    pub lost: u64,
    /// Whether more were lost, of which nobody knows how many.
    pub lost_unknown: bool,
    /// Times of the first and the last record, in nanoseconds of the clock.
    pub span: Option<(u64, u64)>,
    /// What is not in it.
    pub not_carried: NotCarried,
}

/// Writes the trace.dat of a source. It appears under its name when it is complete; after an error nothing is
/// there that was not there before.
///
/// # Errors
/// Something is in the way, the source is damaged, the disk is full, `watch` said no.
pub fn import(
    source: &mut dyn Source,
    target: &Target,
    options: Options,
    watch: Watch<'_>,
) -> Result<Imported, ImportError> {
    // Before the work, so that a refusal comes early.
    let output = Output::at(&target.path)?;
    if output.is_taken() && !target.force {
        return Err(ImportError::Exists { path: target.path.clone() });
    }
    let (temp, file) = TempFile::beside(&output)?;
    let out = BufWriter::with_capacity(1 << 20, file);
    let (out, mut imported) = import_to(source, out, output.directory(), options, watch)?;
    let file =
        out.into_inner().map_err(|error| OutputError::io("write", &target.path)(error.into_error()))?;
    imported.bytes = temp.put_in_place(&file)?;
    imported.path.clone_from(&target.path);
    Ok(imported)
}

/// Writes the trace.dat of a source to an output, from its beginning. Records are put aside in `dir`, in a
/// file without a name. Path and length of what was written are left empty.
///
/// # Errors
/// The source is damaged, the disk is full, `watch` said no. What is in the output then is of no use.
pub fn import_to<W: Write + Seek>(
    source: &mut dyn Source,
    out: W,
    dir: &Directory,
    options: Options,
    watch: Watch<'_>,
) -> Result<(W, Imported), ImportError> {
    let mut sink = Sink::new(source.format(), source.endian(), dir.clone(), watch);
    match source.read(&mut sink) {
        Err(damage @ ImportError::Damaged { .. }) if options.keep_going => {
            sink.not_carried(format!("everything after the damage: {damage}"), 1);
        }
        done => done?,
    }
    file::write(sink, options.date, out)
}
