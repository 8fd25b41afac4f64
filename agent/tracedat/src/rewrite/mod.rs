//! New files out of old ones: other versions and compressions, parts, several in one.
//!
//! | module | what |
//! |---|---|
//! | `head` | what a file has beside trace data, carried over |
//! | `output` | a file of version 6 or 7 that is being written |
//! | `stream` | the data of one CPU: chunks and pages copied as they are, or made again record by record |
//! | `convert` | one file from one: version, compression, fewer buffers, CPUs, events or pages |
//! | `split` | where to cut a file |
//! | `merge` | several files in one |
//! | `repair` | what is intact of a damaged file |
//!
//! Only what changes is processed: chunks in which nothing changes are copied as they are compressed, though
//! they are checked, so that damage is not passed on; pages in which nothing changes are copied as they are;
//! only records of other pages are rewritten. Marks of lost events stay before the record that they were
//! before.
//!
//! One chunk of the input and one of the output are in memory at a time, plus the metadata.

mod convert;
mod error;
mod head;
mod merge;
mod output;
mod repair;
mod split;
mod stream;

use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;
use std::path::Path;

pub use convert::{Selection, convert};
pub use error::RewriteError;
pub use merge::{Join, MergeInput, MergeOptions, merge};
pub use repair::repair;
pub use split::{Every, Part, Range as TimeRange, Split, Splitter};

use super::compress::Compression;
use stdx::output::{Output, TempFile};

/// What a file is written through: pages are small, and files of version 6 are written page by page.
pub type FileOut = BufWriter<File>;

/// Lets `write` write a file that gets the name of `output` when it is complete; until then what is there
/// stays. Returns also the file's length.
///
/// ```no_run
/// use std::fs::File;
/// use std::path::Path;
/// use stdx::output::Output;
/// use tracedat::reader::Reader;
/// use tracedat::rewrite::{FileVersion, Selection, Target, convert, to_file};
///
/// let (input, output) = (Path::new("trace.dat"), Output::at(Path::new("old.dat"))?);
/// let reader = Reader::open(File::open(input)?)?;
/// let target = Target { version: FileVersion::V6, compression: None };
/// let (written, _) = to_file(&output, &[input], |out| {
///     convert(&reader, &target, &Selection::default(), out, &mut |_| true)
/// })?;
/// println!("{} events", written.events());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The output is one of the inputs, which would be gone if anything went wrong; it cannot be written; `write`
/// failed.
pub fn to_file<T>(
    output: &Output,
    inputs: &[&Path],
    write: impl FnOnce(FileOut) -> Result<(FileOut, T), RewriteError>,
) -> Result<(T, u64), RewriteError> {
    if inputs.iter().any(|input| output.is_same_file(input)) {
        return Err(RewriteError::IsInput { path: output.path() });
    }
    let (temp, file) = TempFile::beside(output)?;
    let (out, written) = write(BufWriter::with_capacity(1 << 20, file))?;
    let file = out
        .into_inner()
        .map_err(|error| super::error::io_error("the end of the file")(error.into_error()))?;
    let bytes = temp.put_in_place(&file)?;
    Ok((written, bytes))
}

/// The version of the format that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileVersion {
    /// Version 6, without compression: for readers from before 2022.
    V6,
    /// Version 7.
    #[default]
    V7,
}

/// What kind of file is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Its version.
    pub version: FileVersion,
    /// Its compression; as that of the input if not given. What is compressed with zlib, which common readers
    /// cannot read, or comes from version 6, which has no compression, becomes zstd.
    pub compression: Option<Compression>,
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of trace data that were read.
    pub done: u64,
    /// All bytes of trace data that will be.
    pub total: u64,
}

/// Something that is told the progress, and says whether to go on.
pub type Watch<'a> = &'a mut dyn FnMut(Progress) -> bool;

/// What is in a file that was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rewritten {
    /// Its buffers, in the order of the file.
    pub buffers: Vec<WrittenBuffer>,
    /// What was left out of the metadata or is different there, in words.
    pub notes: Vec<String>,
    /// What could not be read and is missing, if that was allowed.
    pub lost: Vec<Loss>,
}

/// A buffer of a file that was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenBuffer {
    /// Its name, empty for the top one.
    pub name: String,
    /// Its CPUs.
    pub cpus: Vec<WrittenCpu>,
}

/// What of one CPU was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenCpu {
    /// The CPU.
    pub cpu: u32,
    /// Records that are in the file.
    pub events: u64,
    /// Records that were left out because that was asked for.
    pub left_out: u64,
    /// Pages that were copied as they were.
    pub copied_pages: u64,
    /// Bytes in the file.
    pub bytes: u64,
    /// Times of the first and the last record, corrected as the reader was configured.
    pub span: Option<(u64, u64)>,
}

/// A piece of trace data that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The buffer, empty for the top one.
    pub buffer: String,
    /// The CPU.
    pub cpu: u32,
    /// The pages that were lost or cut short, counted from the CPU's first.
    pub pages: Range<u64>,
    /// Where in the file the lost bytes begin; of compressed data, where their chunk does.
    pub offset: u64,
    /// How many bytes of the file these are.
    pub bytes: u64,
    /// Records before the damage on the same page, which are saved.
    pub saved_records: u64,
    /// What is wrong.
    pub reason: String,
}

impl Rewritten {
    /// All records that are in the file.
    pub fn events(&self) -> u64 {
        self.cpus().map(|cpu| cpu.events).sum()
    }

    /// All records that were left out because that was asked for.
    pub fn left_out(&self) -> u64 {
        self.cpus().map(|cpu| cpu.left_out).sum()
    }

    /// Times of the first and the last record.
    pub fn span(&self) -> Option<(u64, u64)> {
        let spans = || self.cpus().filter_map(|cpu| cpu.span);
        Some((spans().map(|span| span.0).min()?, spans().map(|span| span.1).max()?))
    }

    fn cpus(&self) -> impl Iterator<Item = &WrittenCpu> {
        self.buffers.iter().flat_map(|buffer| &buffer.cpus)
    }
}
