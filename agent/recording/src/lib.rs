//! A recording as exporters read it, and the directory or file that an export becomes.
//!
//! **Data flow:** a [`TraceFile`] is surveyed once ([`Recording::survey`]: counts, events, clocks), then a
//! [`Format`] reads it again and writes into an empty staging directory, which replaces the target when it is
//! complete. [`export`] does all of this; a target layout only implements [`Format`].
//!
//! **Guarantees**
//!
//! - An export is complete or does not exist. An earlier export is replaced only if the caller asks for that,
//!   and another directory never.
//! - A format holds a few blocks per CPU in memory, not a recording.
//! - Data that a format cannot hold is counted ([`Job::not_carried`]).
//!
//! **Must not know:** any layout. The caller passes the function that recognises an earlier export
//! ([`Target::is_export`]).
//!
//! # Example
//!
//! A format of one file:
//!
//! ```no_run
//! use std::fs::File;
//! use std::io::Write as _;
//! use recording::{ExportError, Format, Job, Recording, Target, TraceFile, export};
//! use stdx::output::Directory;
//!
//! struct CpuList;
//!
//! impl Format for CpuList {
//!     fn name(&self) -> &'static str {
//!         "cpus"
//!     }
//!
//!     fn write(&self, recording: &Recording<'_>, dir: &Directory, _: &Job<'_>) -> Result<(), ExportError> {
//!         let (mut file, path) = recording::create_file(dir, "cpus.txt")?;
//!         for stream in recording.cpu_streams() {
//!             writeln!(file, "{}", stream.cpu).map_err(ExportError::io("write", &path))?;
//!         }
//!         Ok(())
//!     }
//! }
//!
//! let file = TraceFile::open(Box::new(File::open("trace.dat")?))?;
//! let target = Target { path: "cpus".into(), ..Target::default() };
//! let exported = export(&file, &CpuList, &target, &Job::new(&|_| {}))?;
//! println!("{} bytes", exported.bytes);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | [`survey`] | the events of a recording, and its records by channel and CPU |
//! | [`job`] | threads, progress, cancelling, counts of data that a format cannot hold |
//! | [`staging`] | the directory that replaces the target when it is complete |
//! | [`description`] | what a recording has beside its records, and which formats keep it |
//! | [`snapshot`] | the state of the machine at the start, for formats that have such events |
//! | `messages` | texts that records refer to |
//! | `processes` | names of processes and threads |
//! | [`error`] | reasons of failures |

#![forbid(unsafe_code)]

pub mod description;
pub mod error;
pub mod job;
mod messages;
mod processes;
pub mod snapshot;
pub mod staging;
pub mod survey;

use std::path::PathBuf;

pub use description::Description;
pub use error::ExportError;
pub use job::{Job, Progress};
pub use messages::TextRecords;
pub use processes::Processes;
pub use snapshot::Snapshot;
pub use staging::create_file;
pub use staging::sync_tree;
pub use survey::{CpuStream, Recording, Seen, TraceFile, full_name};

pub use stdx::not_carried::NotCarried;
use stdx::output::Directory;

/// From so many bytes on, records that are to become text go to the threads that make it.
pub const MOST_RECORDS: usize = 256 << 10;
/// From so many bytes on, such text is written: a record may have very much.
pub const MOST_TEXT: usize = 4 << 20;

/// A layout that recordings can be written in.
pub trait Format: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// The file in the directory that is the export, for a format of one file. The target is that file then.
    fn file(&self) -> Option<&'static str> {
        None
    }

    /// What it keeps of a recording beside records. Of the others, [`export`] counts what the recording has.
    fn keeps(&self) -> &'static [Description] {
        &[]
    }

    /// Writes the recording into `dir`, an empty directory. Nobody sees the directory before this returns;
    /// after an error it is removed.
    ///
    /// # Errors
    /// Anything that keeps the export from being complete.
    fn write(&self, recording: &Recording<'_>, dir: &Directory, job: &Job<'_>) -> Result<(), ExportError>;
}

/// Where an export goes.
#[derive(Clone, Debug)]
pub struct Target {
    /// The directory, or the file for a format of one file; of an archive the file, whose name becomes one
    /// that ends in `.tar.gz`.
    pub path: PathBuf,
    /// Replace an earlier export.
    pub force: bool,
    /// Make a tar.gz archive of the directory instead of the directory.
    pub archive: bool,
    /// Recognises a directory that an export wrote, which `force` may replace.
    pub is_export: fn(&Directory) -> bool,
}

impl Default for Target {
    /// No path, and nothing that may be replaced but an empty directory.
    fn default() -> Self {
        Self { path: PathBuf::new(), force: false, archive: false, is_export: |_| false }
    }
}

/// The file that every directory of tables has.
pub const TABLES: &str = "tables.sql";

/// A finished export.
#[derive(Clone, Debug)]
pub struct Exported {
    /// The directory or archive.
    pub path: PathBuf,
    /// Bytes of its files.
    pub bytes: u64,
    /// Records that are in it.
    pub events: u64,
    /// What is not in it.
    pub not_carried: NotCarried,
}

/// Writes `file` in the layout of `format`.
///
/// # Errors
/// The recording is damaged (unless `job` keeps going), something is in the way, the disk is full, the job
/// was cancelled. Nothing is left behind then.
pub fn export(
    file: &TraceFile,
    format: &dyn Format,
    target: &Target,
    job: &Job<'_>,
) -> Result<Exported, ExportError> {
    // Before the work, so that a refusal comes early.
    let staging = staging::Staging::create(target, format.file())?;
    let recording = Recording::survey(file, job)?;
    description::count_others(&recording, format.keeps(), job);
    format.write(&recording, staging.dir(), job)?;
    let (path, bytes) = staging.commit()?;
    Ok(Exported { path, bytes, events: job.progress().events, not_carried: job.take_not_carried() })
}
