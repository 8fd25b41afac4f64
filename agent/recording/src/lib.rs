//! A recording as exporters read it, and the directory or file that an export becomes.
//!
//! | module | what |
//! |---|---|
//! | [`survey`] | the events of a recording, and its records by channel and CPU |
//! | [`job`] | threads, progress, cancelling, and counts of data that a format has no place for |
//! | [`staging`] | the directory that is written beside its final place, and replaces an earlier export |
//!
//! A target layout implements [`Format`]; [`export`] does everything around it. No format holds more of a
//! recording in memory than a few blocks for each CPU that is being processed. This crate knows no layout:
//! the caller passes the function that recognises an earlier export ([`Target::is_export`]).

pub mod error;
pub mod job;
mod processes;
pub mod snapshot;
pub mod staging;
pub mod survey;

use std::path::PathBuf;

pub use error::ExportError;
pub use job::{Job, Progress};
pub use processes::Processes;
pub use snapshot::Snapshot;
pub use staging::create_file;
pub use staging::sync_tree;
pub use survey::{CpuStream, Recording, TraceFile, full_name};

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
    format.write(&recording, staging.dir(), job)?;
    let (path, bytes) = staging.commit()?;
    Ok(Exported { path, bytes, events: job.progress().events, not_carried: job.take_not_carried() })
}
