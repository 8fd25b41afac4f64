//! The records of all streams in the order of time, as far as that is known.
//!
//! A record is given when every other stream has a later one, or is known to have none from before it. So a
//! stream that nothing is known of holds the others up; their records wait in their files.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashSet},
};

use agent_ebpf::PAGE_SIZE;

use super::{CpuStream, finished::FinishedFile, pages::Head, stream::Scratch};
use crate::counts::Noted;
use crate::segment::CHUNK_MAX;
use crate::user_symbols::LiveSymbols;
use crate::{SpoolError, StreamId};
use ftrace_event::Endian;
use stdx::output::Directory;
use tracedat::Compression;
use tracedat::reader::{Clock, CpuClock, LiveRecords, ReadError, Record};

/// Bytes of pages that are in memory at one time, of all CPUs together; of very many, one page each.
const MEMORY: usize = 64 << 20;

/// The streams of a recording, each with its next record.
#[derive(Debug)]
pub(super) struct Merged {
    compression: Compression,
    /// The CPUs that are followed; `None` for all.
    wanted: Option<HashSet<u32>>,
    streams: Vec<CpuStream>,
    heads: Vec<Option<Head>>,
    /// Times and indices of the heads. Of records with one time that of the first stream comes first.
    order: BinaryHeap<Reverse<(u64, usize)>>,
    scratch: Scratch,
    /// The frames of user stacks, if they can have names.
    pub(super) user: Option<LiveSymbols>,
    /// Whether there is nothing to wait for any more.
    has_ended: bool,
    /// The latest time that was given.
    latest: u64,
    /// Events that came after that.
    pub(super) late: u64,
    /// Whether the chunks that are read are asked for.
    keeps_chunks: bool,
    /// The stream that the last record was of.
    given: Option<usize>,
}

/// Records of a recording, as far as they are known when this is made.
#[derive(Debug)]
pub struct LiveStream<'a> {
    merged: &'a mut Merged,
    clocks: Vec<CpuClock<'a>>,
    /// Records from before this time are given.
    until: u64,
    /// Records from before this time are left out.
    since: u64,
    /// The ids of events that wait for something, with all that is behind them.
    held: Option<&'a HashSet<u16>>,
    /// Indices of streams whose next record is not known.
    unread: Vec<usize>,
    goes_on: bool,
}

impl Merged {
    pub(super) fn new(compression: Compression, user: Option<LiveSymbols>) -> Self {
        Self {
            compression,
            user,
            wanted: None,
            streams: Vec::new(),
            heads: Vec::new(),
            order: BinaryHeap::new(),
            scratch: Scratch::new(),
            has_ended: false,
            latest: 0,
            late: 0,
            keeps_chunks: false,
            given: None,
        }
    }

    /// Keeps the chunks that are read, for [`LiveStream::chunks_before`] and [`Merged::take_chunks`].
    pub(super) fn keep_chunks(&mut self) {
        self.keeps_chunks = true;
        self.streams.iter_mut().for_each(CpuStream::keep_chunks);
    }

    /// All chunks that were read and not taken, with their streams.
    pub(super) fn take_chunks(&mut self) -> Vec<(StreamId, Vec<Vec<u8>>)> {
        self.streams.iter_mut().map(|stream| (stream.stream, stream.take_chunks())).collect()
    }

    /// Follows only these CPUs.
    pub(super) fn select(&mut self, cpus: HashSet<u32>) {
        self.wanted = Some(cpus);
    }

    /// Starts with these streams, each in a buffer of the trace file.
    pub(super) fn start(&mut self, streams: impl IntoIterator<Item = (StreamId, usize)>) {
        let Self { compression, wanted, .. } = self;
        let is_wanted = |(stream, _): &(StreamId, usize)| {
            wanted.as_ref().is_none_or(|wanted| wanted.contains(&stream.cpu))
        };
        let open = |(stream, buffer)| CpuStream::new(stream, buffer, *compression);
        self.streams = streams.into_iter().filter(is_wanted).map(open).collect();
        if self.keeps_chunks {
            self.streams.iter_mut().for_each(CpuStream::keep_chunks);
        }
        self.heads = vec![None; self.streams.len()];
        let share = MEMORY / PAGE_SIZE / self.streams.len().max(1);
        self.scratch.keep = share.clamp(1, CHUNK_MAX / PAGE_SIZE);
    }

    /// Takes what the streams' notes say.
    pub(super) fn go_on(&mut self, files: &Directory, noted: Option<&Noted>) -> Result<(), SpoolError> {
        for stream in &mut self.streams {
            stream.go_on(files, noted.and_then(|noted| noted.notes.get(&stream.stream)))?;
        }
        Ok(())
    }

    /// What is not in the spool any more is in this file.
    pub(super) fn continue_in(&mut self, file: &FinishedFile) {
        for stream in &mut self.streams {
            stream.continue_in(file.data(stream.stream));
        }
    }

    /// Nothing more comes.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
    }

    /// The buffers and CPUs of the streams.
    pub(super) fn streams(&self) -> impl Iterator<Item = (usize, u32)> {
        self.streams.iter().map(|stream| (stream.buffer, stream.stream.cpu))
    }

    pub(super) fn fell_behind(&self) -> u64 {
        self.streams.iter().map(|stream| stream.fell_behind).sum()
    }

    /// Of so many events of a stream, those that were not read.
    pub(super) fn unread(&self, of: StreamId, events: u64) -> u64 {
        let stream = self.streams.iter().find(|stream| stream.stream == of);
        stream.map_or(0, |stream| events.saturating_sub(stream.events))
    }

    /// Whether records wait for the names of their frames.
    pub(super) fn has_new_frames(&self) -> bool {
        self.user.as_ref().is_some_and(LiveSymbols::has_new)
    }

    /// The records from before `until`; of those, as many as are known. Of those with the ids `held`, none.
    pub(super) fn records<'a>(
        &'a mut self,
        clock: &'a Clock,
        until: u64,
        held: Option<&'a HashSet<u16>>,
        goes_on: bool,
    ) -> LiveStream<'a> {
        let clocks = self.streams.iter().map(|stream| clock.for_cpu(stream.stream.cpu)).collect();
        let unread = (0..self.streams.len()).rev().filter(|index| self.heads[*index].is_none()).collect();
        LiveStream { merged: self, clocks, until, since: 0, held, unread, goes_on }
    }
}

impl LiveStream<'_> {
    /// When there is no next record for now: the time from before which there will be none.
    pub fn reached(&self) -> u64 {
        let next = self.merged.order.peek().map_or(u64::MAX, |Reverse((time, _))| *time);
        let until = self.until.min(next);
        // Before the streams are known nothing is.
        self.clocks.iter().map(|clock| clock.correct(until)).min().unwrap_or(0)
    }

    /// Events so far that came after others with later times had been given.
    pub fn late(&self) -> u64 {
        self.merged.late
    }

    /// What the last record came in, and what was read of its stream before it, as far as that was not given
    /// here before: chunks as they are in the spool.
    pub(crate) fn chunks_before(&mut self) -> Option<(StreamId, Vec<Vec<u8>>)> {
        let stream = self.merged.streams.get_mut(self.merged.given.take()?)?;
        Some((stream.stream, stream.take_chunks()))
    }

    /// Whether the next record of a stream waits for something.
    fn is_held(&self, index: usize) -> bool {
        let Some(held) = self.held else { return false };
        let head = self.merged.heads[index].as_ref();
        let id = head.and_then(|head| self.merged.streams[index].record(head).first_chunk());
        id.is_some_and(|id| held.contains(&u16::from_le_bytes(*id)))
    }

    /// Finds the next record of every stream.
    fn fill(&mut self) -> Result<(), ReadError> {
        let Self { merged, goes_on, until, unread, .. } = self;
        let Merged { streams, heads, order, scratch, user, has_ended, .. } = &mut **merged;
        while let Some(&index) = unread.last() {
            let stream = &mut streams[index];
            let next = stream.advance(scratch);
            if let Some(user) = user {
                stream.new_pages().for_each(|page| user.note(page));
            }
            match next? {
                Some(head) => {
                    order.push(Reverse((head.time, index)));
                    heads[index] = Some(head);
                }
                None if *has_ended || !*goes_on => {}
                None => *until = (*until).min(stream.known_until()),
            }
            unread.pop();
        }
        Ok(())
    }
}

impl LiveRecords for LiveStream<'_> {
    fn next_record(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        let (index, head, timestamp) = loop {
            self.fill()?;
            let merged = &*self.merged;
            let Some(&Reverse((time, index))) = merged.order.peek() else { return Ok(None) };
            if time >= self.until || merged.has_new_frames() || self.is_held(index) {
                return Ok(None);
            }
            let merged = &mut *self.merged;
            merged.order.pop();
            merged.late += u64::from(time < merged.latest);
            merged.latest = merged.latest.max(time);
            self.unread.push(index);
            let Some(head) = merged.heads[index].take() else { continue };
            let timestamp = self.clocks[index].correct(time);
            if timestamp >= self.since {
                break (index, head, timestamp);
            }
        };
        self.merged.given = Some(index);
        let stream = &self.merged.streams[index];
        let (buffer, cpu) = (stream.buffer, stream.stream.cpu);
        let (missed, data) = (head.missed, stream.record(&head));
        Ok(Some(Record { reader: 0, buffer, cpu, timestamp, missed, data, endian: Endian::Little }))
    }

    fn seek(&mut self, timestamp: u64) {
        self.since = timestamp;
    }

    fn goes_on(&self) -> bool {
        self.goes_on || self.merged.has_new_frames()
    }
}
