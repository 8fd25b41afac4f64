//! What can stop a file from being rewritten.

use std::path::PathBuf;

use super::super::error::WriteError;
use super::super::reader::ReadError;
use stdx::output::OutputError;

/// Why no new file was made. What was written until then is no file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RewriteError {
    /// The input cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The output cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The output cannot be created, or not be brought to its place.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The output is an input. It is read while it is written, and would be gone if anything went wrong.
    #[error("{path} is the file that is read; name another one", path = .path.display())]
    IsInput {
        /// The file.
        path: PathBuf,
    },
    /// The input is damaged, and what would be made of it would hide that.
    #[error("the file is damaged: {first}{}", more(*.problems))]
    Damaged {
        /// The first thing that is wrong with it.
        first: String,
        /// How many things are.
        problems: usize,
    },
    /// One of several inputs is the reason.
    #[error("{name}: {error}")]
    Input {
        /// What it is called.
        name: String,
        /// The reason.
        #[source]
        error: Box<RewriteError>,
    },
    /// A record that does not fit the pages of the file that is made.
    #[error(
        "a record of {len} bytes of buffer {buffer:?}, CPU {cpu}, does not fit the file's pages: {reason}"
    )]
    RecordTooBig {
        /// The buffer's name.
        buffer: String,
        /// The CPU.
        cpu: u32,
        /// Bytes of the record.
        len: usize,
        /// Why the pages are so small.
        reason: &'static str,
    },
    /// Version 6 has no place for something.
    #[error("version 6 cannot hold {0}; write version 7")]
    NotInVersion6(&'static str),
    /// The caller said not to go on.
    #[error("stopped")]
    Stopped,
    /// Nothing would be in the file.
    #[error("{0}")]
    Nothing(String),
    /// Files that cannot be one.
    #[error("{0}")]
    Apart(String),
}

fn more(problems: usize) -> String {
    if problems > 1 { format!(" (and {} more)", problems - 1) } else { String::new() }
}
