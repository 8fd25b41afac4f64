//! A recording in a pipe: what `record -o -` writes while it records, and what reads it.
//!
//! A trace file points at parts that are written last, so that it cannot go through a pipe while it grows.
//! The streamed form is a sequence of frames, each of which is of use when it is there. It begins with what
//! describes the events, goes on with chunks of pages as they are in the spool, and ends with what the
//! finished file has besides: whoever has all of it can make that very file, byte for byte.
//!
//! # Layout
//!
//! All numbers are little-endian. First 16 bytes: the eight of [`MAGIC`], u32 version (1), u32 size of a page
//! (4096). Then frames:
//!
//! | bytes | what |
//! |---|---|
//! | 4 | kind |
//! | 4 | length of the body, at most 1 MiB |
//! | 4 | CRC-32 (IEEE 802.3) of these eight bytes and of the body |
//! | | body |
//!
//! Kinds of frames; readers skip others:
//!
//! | kind | body |
//! |---|---|
//! | 1 | part of a text: u8 subject, u8 1 in the last part and 0 in others, bytes |
//! | 2 | names of threads: each u32 thread id, 16 bytes name, padded with NULs |
//! | 3 | data: u32 channel, u32 CPU, u64 time, a chunk |
//! | 4 | u64 time: all records from before it are in frames that came already |
//! | 5 | the next bytes of the finished file |
//! | 6 | data in the finished file: u32 channel, u32 CPU, u64 length |
//! | 7 | the end: u64 frames before this one, u64 bytes of data, u64 events, u64 length of the file |
//!
//! - All parts of a text together are a zstd frame.
//! - Of several names of a thread, the last one counts.
//! - The time of data is that of the first record in them. A chunk is u32 compressed size, u32 size, and a
//!   zstd frame of 16 pages or fewer; without compression it is the pages.
//! - The next bytes of the finished file that a frame of kind 6 stands for are all data of that stream, one
//!   chunk after the other. Their number is there to be compared.
//!
//! Subjects of texts:
//!
//! | subject | text |
//! |---|---|
//! | 1 | the manifest of the spool, JSON; it is the first text |
//! | 2 | the state of the machine at the beginning, as in a spool |
//! | 3 | symbols as in `/proc/kallsyms`, if an event comes that prints them |
//! | 4 | lines of the same form for addresses in user stacks: all that are known |
//! | 5 | lines that are added to those |
//! | 6 | what the recorder has counted by now, as the file `counts` of a spool |
//! | 7 | the pauses, as the file `pauses` of a spool |
//!
//! Symbols are those of the kernel; of a recording that has ended, all that its file has.
//!
//! # Order
//!
//! Frames with data are in the order of the times in them, and a chunk is there before a record of any stream
//! with a later time. So who reads has all records from before the time of the last frame of kind 3 or 4, and
//! needs memory for one chunk of each stream. Names and symbols come before the records that they are known
//! to be for. All data are there before the first frame of kind 5 or 6. The streams' numbers are those of
//! spools: the channel's index, and the CPU.
//!
//! A stream that does not end with a frame of kind 7 was cut off, at whatever byte: everything until then is
//! right and can be used. [`whole()`] makes the file of such a stream that `recover` would make of the spool.
//!
//! | file | subject |
//! |---|---|
//! | `frame` | frames, written and read |
//! | `feed` | from a recording that goes on to frames |
//! | `records` | from frames to records in the order of time |
//! | `whole` | from frames to a trace file |
//! | `place` | a private directory for what has to be stored meanwhile |

mod feed;
mod frame;
mod place;
mod records;
mod whole;

#[cfg(test)]
mod tests;

use std::{io, path::PathBuf};

pub use self::{
    feed::{Fed, Feed, FeedError},
    frame::{MAGIC, Totals},
    place::Place,
    records::{PipedRecording, PipedRecords, Step},
    whole::{Scratch, Whole, spooled, whole},
};
use super::{FinishError, SpoolError, follow::HeadError};
use stdx::output::OutputError;

/// Why a recording cannot be read from a pipe.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PipedError {
    /// The input cannot be read.
    #[error("cannot read it: {0}")]
    Read(#[source] io::Error),
    /// It does not begin as a streamed recording does.
    #[error("it is no streamed recording")]
    NotPiped,
    /// It is of a later version.
    #[error("it has version {found} of the streamed form, and this program knows version {known}", known = frame::VERSION)]
    Version {
        /// That version.
        found: u32,
    },
    /// It makes no sense.
    #[error("the streamed recording is damaged at byte {at}: {what}")]
    Damaged {
        /// Where.
        at: u64,
        /// What is wrong.
        what: String,
    },
    /// It ends before it says which events it has.
    #[error("the streamed recording was cut off before the first event")]
    Empty,
    /// It does not fit on the disk.
    #[error(
        "more than {limit} bytes come through the pipe, which is half of the free space in {dir}; TMPDIR names another \
         directory",
        dir = .dir.display()
    )]
    TooLarge {
        /// How many bytes are stored at most.
        limit: u64,
        /// Where.
        dir: PathBuf,
    },
    /// It cannot be stored.
    #[error("cannot store it in {dir}: {source}", dir = .dir.display())]
    Store {
        /// Where.
        dir: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// What describes the events makes no trace file.
    #[error("what describes the events is damaged: {0}")]
    Head(#[from] HeadError),
    /// No spool can be made of it.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// There is no place for the file.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// No trace file can be made of what was not cut off.
    #[error(transparent)]
    Recover(#[from] FinishError),
}
