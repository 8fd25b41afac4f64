//! Recordings in the layouts of other tracers: directories, or a file.
//!
//! | module | what |
//! |---|---|
//! | [`ctf`] | formats `ctf` and `lttng` |
//! | [`perfetto`] | format `perfetto` |
//! | [`tables`] | tables: formats `csv`, `jsonl`, `parquet` and `arrow` |
//! | [`perf_script`] | format `perf-script` |
//! | [`recording`] | the recording as every format wants it: its events, and its records by channel and CPU |
//! | [`job`] | what all exports share while they run: threads, progress, cancelling, what could not be carried over |
//! | [`staging`] | the directory that is written beside its final place, and what may be replaced by it |
//! | [`recognise`] | which layout a directory has |
//!
//! A target layout implements [`Format`]; [`export`] does everything around it. No format holds more of a
//! recording in memory than a few blocks for each CPU that is being processed.

pub mod blocks;
pub mod ctf;
mod error;
pub mod eventdefs;
pub mod job;
pub mod ltt2008;
mod payload;
pub mod perf_script;
pub mod perfetto;
mod processes;
pub mod recognise;
pub mod recording;
mod snapshot;
pub mod staging;
mod state;
pub mod tables;

use std::path::PathBuf;

pub use error::ExportError;
pub use job::{Job, Progress};
pub(crate) use processes::Processes;
pub use recording::{CpuStream, Recording, TraceFile, full_name};
pub(crate) use snapshot::Snapshot;
pub(crate) use staging::create_file;
#[cfg(feature = "record")]
pub(crate) use staging::sync_tree;

pub use crate::not_carried::NotCarried;
use crate::output::Directory;

/// From so many bytes on, records that are to become text go to the threads that make it.
pub(crate) const MOST_RECORDS: usize = 256 << 10;
/// From so many bytes on, such text is written: a record may have very much.
pub(crate) const MOST_TEXT: usize = 4 << 20;

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
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// The directory, or the file for a format of one file; of an archive the file, whose name becomes one
    /// that ends in `.tar.gz`.
    pub path: PathBuf,
    /// Replace an earlier export.
    pub force: bool,
    /// Make a tar.gz archive of the directory instead of the directory.
    pub archive: bool,
}

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
