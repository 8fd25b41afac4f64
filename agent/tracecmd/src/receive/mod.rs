//! The listener's side: recordings of others become files here.
//!
//! Whoever can connect can write files, as many bytes as the limits allow, and nothing else: what comes is
//! believed as little as a file from somebody else. Everything that waits has an end, and everything that is
//! kept in memory a size.
//!
//! | file | subject |
//! |---|---|
//! | `dialogue` | what the recorder says, and the answers: neither sockets nor files |
//! | `lanes` | the data, one port and one file for each CPU |
//! | `client` | a recorder, from its first word to its file |
//! | `assemble` | the file, of what describes it and the data |
//! | `listener` | all recorders |

mod assemble;
mod client;
mod dialogue;
mod lanes;
mod listener;

use std::{io, path::PathBuf, time::Duration};

pub use self::{
    dialogue::{Dialogue, DialogueError, Said},
    listener::{Event, Listener, Options, Place},
};
use super::PortRange;
use stdx::output::OutputError;
use tracedat::reader::ReadError;
use tracedat::rewrite::RewriteError;

/// What each recorder may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Recorders at one time.
    pub clients: usize,
    /// Bytes of pages of one recording.
    pub data: u64,
    /// Bytes of what describes its events.
    pub metadata: u64,
    /// How long a recorder may take to say what comes.
    pub greeting: Duration,
    /// How long nothing may come of a recording.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 16,
            data: 16 << 30,
            metadata: 64 << 20,
            greeting: Duration::from_mins(1),
            idle: Duration::from_hours(24),
        }
    }
}

/// Why a recording did not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The recorder has gone.
    #[error("the recorder has gone before the end")]
    Gone,
    /// A connection broke.
    #[error("the connection broke: {0}")]
    Broken(#[source] io::Error),
    /// It says what nobody understands.
    #[error(transparent)]
    Dialogue(#[from] DialogueError),
    /// It did not say what comes in time.
    #[error("it said nothing that makes sense for {} s", .0.as_secs_f64())]
    Silent(Duration),
    /// Nothing came for too long.
    #[error("nothing came for {} s", .0.as_secs_f64())]
    Idle(Duration),
    /// There are more data than one recording may have.
    #[error("it has more than {0} bytes of pages, which is the limit")]
    TooLarge(u64),
    /// The disk has no room for more of it: a file is to be made of it, too.
    #[error("the disk has no room for more of it")]
    NoRoom,
    /// There is no port for it.
    #[error("no port from {first} to {last} is free for CPU {cpu}", first = .ports.first, last = .ports.last)]
    NoPort {
        /// The ports that may be used.
        ports: PortRange,
        /// Whose it would be.
        cpu: usize,
    },
    /// The data cannot be stored.
    #[error("cannot store it: {0}")]
    Store(#[source] io::Error),
    /// The listener ends.
    #[error("the listener was told to end")]
    Stopped,
}

/// Why there is no file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoFile {
    /// Nothing describes the events.
    #[error("nothing came that describes events")]
    Nothing,
    /// What describes them makes no sense.
    #[error("what describes the events makes no sense: {0}")]
    Read(#[from] ReadError),
    /// The file cannot be written.
    #[error(transparent)]
    Rewrite(#[from] RewriteError),
    /// The file cannot be there.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// What came cannot be read back.
    #[error("cannot read back what came: {0}")]
    Store(#[source] io::Error),
}

/// What became of a recorder.
#[derive(Debug)]
pub struct Received {
    /// Who it was.
    pub name: String,
    /// Its file.
    pub file: Result<File, NoFile>,
    /// Why it did not come to its end, if it did not.
    pub ended: Result<(), ReceiveError>,
}

/// A file that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Where it is.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// The events in it.
    pub events: u64,
    /// What is missing in it or different, in words.
    pub notes: Vec<String>,
}

impl Received {
    /// Whether there is a file with everything that was recorded, as far as the recorder has said.
    pub fn is_complete(&self) -> bool {
        self.ended.is_ok() && self.file.as_ref().is_ok_and(|file| file.notes.is_empty())
    }
}
