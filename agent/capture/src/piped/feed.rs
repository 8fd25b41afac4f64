//! From a recording that goes on to frames.
//!
//! It reads the recording's spool as everybody does who follows it, so that whoever reads the frames slowly
//! costs the recording nothing: what was not sent waits in the spool.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs::File,
    io::{self, Read as _, Write},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    time::Duration,
};

use super::frame::{FrameWriter, Subject, Totals};
use crate::follow::{FollowError, Follower, NewSymbols, Progress};
use crate::{StreamId, counts, pauses};
use report::TraceFile;
use tracedat::reader::{Corrections, LiveRecords as _};

/// How often it is looked for what the recorder has stored.
const AGAIN: Duration = Duration::from_millis(50);
/// Bytes of the finished file that are in memory.
const STEP: usize = 1 << 18;
/// The longest small file of a spool that is sent: of longer ones a recording that is cut off has nothing.
const SMALL_MAX: u64 = 16 << 20;

/// Why not all of a recording was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FeedError {
    /// It cannot be written: its reader may have gone.
    #[error("cannot write the recording to the pipe: {0}")]
    Write(#[from] io::Error),
    /// The spool cannot be read.
    #[error(transparent)]
    Follow(#[from] FollowError),
    /// The finished file cannot be read.
    #[error("cannot read the finished file: {0}")]
    Finished(#[source] io::Error),
    /// The recording did not become a file.
    #[error("the recording has not come to its end, and what was sent of it is not complete")]
    Unfinished,
}

impl FeedError {
    /// Whether the reader of the pipe has closed it.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Write(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fed {
    /// Bytes of data.
    pub data: u64,
    /// Events in them.
    pub events: u64,
}

/// Sends a recording of one file, none of whose channels overwrites or has a size limit.
#[derive(Debug)]
pub struct Feed<W> {
    follower: Follower,
    head: TraceFile<Vec<u8>>,
    out: FrameWriter<W>,
    fed: Fed,
    /// Bytes sent of each stream.
    sent: BTreeMap<StreamId, u64>,
    /// Up to when all records were sent.
    reached: u64,
    user: BTreeSet<Vec<u8>>,
    /// Symbols that are sent when the first event is that prints them, and those events.
    kernel: (Option<Vec<u8>>, HashSet<u16>),
    /// The small files as they were sent: their inodes, lengths and times.
    small: BTreeMap<Subject, (u64, u64, (i64, i64))>,
}

impl<W: Write> Feed<W> {
    /// Sends what describes the events.
    ///
    /// # Errors
    /// It cannot be written, or it makes no sense.
    pub fn begin(mut follower: Follower, out: W) -> Result<Self, FeedError> {
        let mut head = follower.head()?;
        // Times go as the pages have them.
        head.reader_mut().set_corrections(Corrections::NONE);
        follower.keep_chunks();
        let mut out = FrameWriter::begin(out)?;
        // The spool of a short recording may be gone by now, with what was read of it when it was opened.
        follower.read_again()?;
        out.text(Subject::Manifest, &follower.manifest().encoded()?)?;
        out.flush()?;
        let kernel = (None, follower.print_symbols().clone());
        let (fed, sent, reached) = (Fed::default(), BTreeMap::new(), 0);
        let (user, small) = (BTreeSet::new(), BTreeMap::new());
        Ok(Self { follower, head, out, fed, sent, reached, user, kernel, small })
    }

    /// Sends everything until the recording has become a file, and then what the file has besides. Between
    /// two looks `wait` is called, which says whether it is to go on: otherwise what is there by then is the
    /// last.
    ///
    /// # Errors
    /// Not all of it was sent.
    pub fn run(mut self, mut wait: impl FnMut(Duration) -> io::Result<bool>) -> Result<Fed, FeedError> {
        loop {
            let progress = self.follower.poll()?;
            self.send_what_is_there()?;
            match progress {
                Progress::Recording if wait(AGAIN)? => {}
                Progress::Recording => {
                    self.follower.end_here()?;
                    self.send_what_is_there()?;
                    return Err(FeedError::Unfinished);
                }
                Progress::Finished => return self.end(),
                Progress::Gone | Progress::Left => return Err(FeedError::Unfinished),
            }
        }
    }

    fn send_what_is_there(&mut self) -> Result<(), FeedError> {
        self.send_small()?;
        loop {
            self.send_names()?;
            self.send_symbols()?;
            self.send_records()?;
            if !self.follower.has_new_symbols() {
                break;
            }
        }
        Ok(self.out.flush()?)
    }

    /// Sends the small files of the spool that have changed. After the end they are not there any more.
    fn send_small(&mut self) -> Result<(), FeedError> {
        let files = [
            (Subject::Counts, counts::NAME),
            (Subject::Pauses, pauses::NAME),
            (Subject::State, crate::state::NAME),
        ];
        for (subject, name) in files {
            // What is not there may come.
            let Ok(file) = self.follower.files().open_file(name) else { continue };
            let Ok(there) = file.metadata() else { continue };
            let state = (there.ino(), there.len(), (there.mtime(), there.mtime_nsec()));
            if there.len() == 0 || self.small.get(&subject) == Some(&state) {
                continue;
            }
            if let Some(bytes) = read_at_most(file, SMALL_MAX) {
                self.out.text(subject, &bytes)?;
            }
            self.small.insert(subject, state);
        }
        Ok(())
    }

    fn send_names(&mut self) -> Result<(), FeedError> {
        let names = self.follower.take_names();
        Ok(self.out.names(names.iter().map(|(tid, name)| (*tid, &**name)))?)
    }

    fn send_symbols(&mut self) -> Result<(), FeedError> {
        let NewSymbols { kernel, user } = self.follower.take_symbols();
        if let Some(kernel) = kernel {
            self.kernel.0 = Some(kernel);
        }
        let Some(user) = user else { return Ok(()) };
        let lines: BTreeSet<Vec<u8>> =
            user.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect();
        if self.user.is_subset(&lines) {
            let more: Vec<&[u8]> = lines.difference(&self.user).map(Vec::as_slice).collect();
            if !more.is_empty() {
                self.out.text(Subject::MoreUser, &more.join(&b'\n'))?;
            }
        } else {
            self.out.text(Subject::User, &user)?;
        }
        self.user = lines;
        Ok(())
    }

    /// Sends the chunks whose first records come next in the order of time.
    fn send_records(&mut self) -> Result<(), FeedError> {
        let Self { follower, head, out, fed, sent, reached, kernel: (kernel, print_it), .. } = self;
        let mut put = |out: &mut FrameWriter<W>, stream, time, chunks: Vec<Vec<u8>>| {
            chunks.into_iter().try_for_each(|chunk| {
                fed.data += chunk.len() as u64;
                *sent.entry(stream).or_default() += chunk.len() as u64;
                out.data(stream, time, &chunk)
            })
        };
        let mut records = follower.records(head.reader().clock());
        let mut time = *reached;
        let mut events = 0;
        loop {
            match records.next_record() {
                Ok(Some(record)) => {
                    events += 1;
                    time = record.timestamp;
                    if kernel.is_some()
                        && record.event_id().is_some_and(|id| print_it.contains(&id))
                        && let Some(kernel) = kernel.take()
                    {
                        out.text(Subject::Kernel, &kernel)?;
                    }
                }
                Ok(None) => break,
                // Whoever reads the chunk finds the same.
                Err(_) => continue,
            }
            if let Some((stream, chunks)) = records.chunks_before() {
                put(out, stream, time, chunks)?;
            }
        }
        let (now, goes_on) = (records.reached().max(time), records.goes_on());
        if !goes_on {
            // What has no records, or damaged ones.
            for (stream, chunks) in follower.take_chunks() {
                put(out, stream, time, chunks)?;
            }
        }
        fed.events += events;
        if now > *reached {
            *reached = now;
            out.time(now)?;
        }
        Ok(())
    }

    /// Sends what the finished file has besides the data.
    fn end(mut self) -> Result<Fed, FeedError> {
        let (file, layout) = self.follower.finished_layout().ok_or(FeedError::Unfinished)?;
        let len = file.metadata().map_err(FeedError::Finished)?.len();
        let mut at = 0;
        for (stream, data) in layout {
            // What is not as it was sent is sent as the file has it.
            if self.sent.get(&stream) == Some(&(data.end - data.start)) && data.start >= at {
                self.send_bytes(&file, at, data.start)?;
                self.out.data_of(stream, data.end - data.start)?;
                at = data.end;
            }
        }
        self.send_bytes(&file, at, len)?;
        let Fed { data, events } = self.fed;
        self.out.end(Totals { frames: 0, data, events, file: len })?;
        Ok(self.fed)
    }

    fn send_bytes(&mut self, file: &File, from: u64, to: u64) -> Result<(), FeedError> {
        let mut bytes = vec![0; STEP];
        let mut at = from;
        while at < to {
            let part = &mut bytes[..(to - at).min(STEP as u64) as usize];
            file.read_exact_at(part, at).map_err(FeedError::Finished)?;
            self.out.bytes(part)?;
            at += part.len() as u64;
        }
        Ok(())
    }
}

/// A file's bytes, if it has no more than so many.
fn read_at_most(file: File, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= most).then_some(bytes)
}
