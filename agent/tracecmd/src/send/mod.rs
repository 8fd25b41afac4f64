//! The recorder's side: a recording goes to a listener while it is made.
//!
//! | file | subject |
//! |---|---|
//! | `connect` | the conversation until the listener has said its ports |
//! | `lanes` | the data connections, one for each CPU |
//! | `metadata` | what describes the events, and the order in which it goes |
//! | `sender` | from a recording that goes on to the listener |

mod connect;
mod lanes;
mod metadata;
mod sender;

use std::io;

pub use self::{connect::Greeted, sender::Sender};
use super::Peer;
use capture::follow::FollowError;
use tracedat::reader::ReadError;
use tracedat::{CompressError, WriteError};

/// Why a recording cannot be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The listener cannot be reached.
    #[error("cannot connect to {peer}: {source}")]
    Connect {
        /// Where.
        peer: Peer,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// What is there is no listener of trace-cmd.
    #[error("{peer} is no listener of trace-cmd: {what}")]
    NoListener {
        /// Who.
        peer: Peer,
        /// What it said or did.
        what: String,
    },
    /// A connection broke.
    #[error("the connection to the listener broke: {0}")]
    Broken(#[source] io::Error),
    /// The listener has closed the connection.
    #[error("the listener has closed the connection")]
    Closed,
    /// The listener has given up.
    #[error("the listener has given the recording up before its end")]
    GivenUp,
    /// More CPUs than a listener can be told of.
    #[error("this machine has {0} CPUs, and there is no room for so many in the protocol")]
    Cpus(u32),
    /// The spool cannot be read.
    #[error(transparent)]
    Follow(#[from] FollowError),
    /// The finished file cannot be read.
    #[error("cannot read the finished file: {0}")]
    Finished(#[from] ReadError),
    /// What describes the events cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// What describes the events cannot be compressed.
    #[error(transparent)]
    Compress(#[from] CompressError),
    /// The recording did not become a file.
    #[error("the recording has not come to its end, and what was sent of it is not complete")]
    Unfinished,
}

impl SendError {
    /// Whether the listener has gone, or has given up.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Broken(_) | Self::Closed | Self::GivenUp)
    }
}
