//! Why there is no export.

use std::io;
use std::path::PathBuf;

use stdx::output::OutputError;
use stdx::parallel::Ended;
use tracedat::reader::ReadError;

/// Why a recording was not exported. Nothing is left under the name of the target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The recording cannot be read.
    #[error(
        "the recording is damaged: {source}; --keep-going exports what can be read and counts what cannot"
    )]
    Damaged {
        /// The first damage.
        #[from]
        source: ReadError,
    },
    /// The recording has records that cannot be read.
    #[error(
        "the recording is damaged in {count} places, first {first}; \
         --keep-going exports what can be read and counts what cannot"
    )]
    DamagedData {
        /// Pages and ends of data that cannot be read.
        count: u64,
        /// What is wrong with the first.
        first: String,
    },
    /// Records of an event that the file does not describe.
    #[error(
        "the file does not describe the event with number {id}, of which it has {records} records; --keep-going leaves them out"
    )]
    UnknownEvent {
        /// Its number.
        id: u16,
        /// How many records of it there are.
        records: u64,
    },
    /// Something is where the export should go.
    #[error("{path} exists; --force replaces it", path = .path.display())]
    Exists {
        /// The target.
        path: PathBuf,
    },
    /// Something other than an export is where the export should go.
    #[error(
        "{path} exists and is no earlier export, so that --force does not replace it; remove it, or choose another name",
        path = .path.display()
    )]
    InTheWay {
        /// The target.
        path: PathBuf,
    },
    /// Nothing can be written there.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A file could not be written.
    #[error("cannot {action} {path}: {source}", path = .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The recording has something that the layout has no place for, and cannot be without.
    #[error("{0}")]
    Unsupported(String),
    /// A table is asked for that there is not.
    #[error(
        "the recording has no table {name}: no event of that name was recorded; `tracer-agent info` lists those that were"
    )]
    NoTable {
        /// What was asked for.
        name: String,
    },
    /// Something else is where a data set should be.
    #[error(
        "{path} has files, and no data set, which has directories events and sessions; name another directory, or a new one",
        path = .path.display()
    )]
    NoDataset {
        /// The directory.
        path: PathBuf,
    },
    /// The same recording is being exported to the same place.
    #[error("the same recording is being added to {path}; try again when that has ended", path = .path.display())]
    InUse {
        /// The data set.
        path: PathBuf,
    },
    /// [`Job::cancel`](super::Job::cancel) was called.
    #[error("the export was interrupted; nothing was written")]
    Cancelled,
}

impl ExportError {
    /// Puts what was tried, and where, around the system's reason.
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    /// Whether the disk is full.
    pub fn is_disk_full(&self) -> bool {
        stdx::reason::is_disk_full(self)
    }
}

impl From<Ended> for ExportError {
    /// Nothing is taken any more. Why is told by whoever has stopped, and that error comes first.
    fn from(Ended: Ended) -> Self {
        Self::Cancelled
    }
}
