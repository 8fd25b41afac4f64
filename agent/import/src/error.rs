//! Why there is no import.

use std::io;
use std::path::PathBuf;

use ftrace_event::FormatError;
use stdx::output::OutputError;
use tracedat::WriteError;

/// Why a recording was not imported. Nothing is left under the name of the target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The source cannot be read.
    #[error("cannot read {what}: {source}")]
    Read {
        /// What was being read, and where.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The source is not as its format has it.
    #[error("{format}, {at}: {problem}")]
    Damaged {
        /// What the source is.
        format: &'static str,
        /// Where: `byte 4096`, `line 7`, `stream channel0_1, byte 96`.
        at: String,
        /// What is wrong there.
        problem: String,
    },
    /// The source has something without which it cannot be understood, and which is not understood here.
    #[error("{0}")]
    Unsupported(String),
    /// What a source is cannot be told.
    #[error(
        "{what} is no recording that is known here; name what it is with --format, or convert it with the tool that recorded it"
    )]
    Unknown {
        /// The source.
        what: String,
    },
    /// A format text, or one that was made of a description, is none.
    #[error("the format of the event {event} cannot be understood: {source}")]
    EventFormat {
        /// `system:name`.
        event: String,
        /// What is wrong with it.
        source: FormatError,
    },
    /// The numbers of events have 16 bits.
    #[error("there are more than {0} kinds of events, which a trace.dat cannot number")]
    TooManyEvents(usize),
    /// Something is where the file should go.
    #[error("{path} exists; --force replaces it", path = .path.display())]
    Exists {
        /// The target.
        path: PathBuf,
    },
    /// Nothing can be written there.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The file cannot be written.
    #[error("cannot write the trace.dat: {0}")]
    Write(#[from] WriteError),
    /// Records cannot be put aside.
    #[error("cannot {action} the file that records are sorted in, in {dir}: {source}", dir = .dir.display())]
    Spool {
        /// What was tried.
        action: &'static str,
        /// Where that file is.
        dir: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It was asked to stop.
    #[error("the import was interrupted; nothing was written")]
    Cancelled,
}

impl ImportError {
    /// Whether the disk is full.
    pub fn is_disk_full(&self) -> bool {
        stdx::reason::is_disk_full(self)
    }
}
