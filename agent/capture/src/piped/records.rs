//! From frames to records in the order of time, with memory for one chunk of each stream.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap, HashSet, VecDeque},
    io::Read,
};

use agent_ebpf::PAGE_SIZE;

use super::{
    PipedError,
    frame::{Frame, FrameReader, Subject, TEXT_MAX, Totals},
};
use crate::follow::pages::{Head, PageRecords};
use crate::follow::{HeadError, NewSymbols, head};
use crate::segment::CHUNK_MAX;
use crate::{Manifest, StreamId, names};
use ftrace_event::Endian;
use report::TraceFile;
use tracedat::reader::{Clock, CpuClock, LiveRecords, ReadError, Record};
use tracedat::{BLOCK_HEADER_LEN, Codec, Compression, Decompressor};

/// Most bytes of pages that wait for one another: 64 KB of 4096 CPUs.
const WAITING_MAX: usize = 256 << 20;
/// Most streams of a recording.
const STREAMS_MAX: usize = 1 << 16;
/// Linux has no thread ids above (`PID_MAX_LIMIT` of include/linux/threads.h).
const PID_MAX: u32 = 4 << 20;

/// How far a streamed recording was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// More may come.
    GoesOn,
    /// All records are here.
    Ended(Totals),
    /// It was cut off: nothing more comes, and something is missing.
    CutOff,
}

/// A recording that is read from a pipe, in whatever pieces it comes.
#[derive(Debug)]
pub struct PipedRecording<R> {
    frames: FrameReader<R>,
    manifest: Manifest,
    /// The buffers and CPUs that are wanted; `None` for all.
    wanted: (Option<HashSet<String>>, Option<HashSet<u32>>),
    names: BTreeMap<u32, Vec<u8>>,
    symbols: NewSymbols,
    user: Vec<u8>,
    has_new_user: bool,
    /// Whether what only the finished file has has come, behind all data.
    is_behind: bool,
    step: Step,
    merge: Merge,
}

/// The streams, each with what waits to be given.
#[derive(Debug)]
struct Merge {
    compression: Compression,
    decompressor: Decompressor,
    indices: HashMap<StreamId, usize>,
    streams: Vec<Stream>,
    /// Times and streams of the next records, with their indices. Of records with one time that of the first
    /// stream comes first.
    order: BinaryHeap<Reverse<(u64, StreamId, usize)>>,
    /// Streams whose next record is not known.
    unread: Vec<usize>,
    /// All records from before this time are here.
    floor: u64,
    has_ended: bool,
    waiting: usize,
    latest: u64,
    late: u64,
    since: u64,
}

#[derive(Debug)]
struct Stream {
    id: StreamId,
    buffer: usize,
    chunks: VecDeque<Vec<u8>>,
    pages: PageRecords,
    head: Option<Head>,
}

impl<R: Read> PipedRecording<R> {
    /// Reads what describes the events.
    ///
    /// # Errors
    /// It is no streamed recording, or is damaged.
    pub fn open(input: R) -> Result<Self, PipedError> {
        let mut frames = FrameReader::begin(input)?;
        let text = match frames.next()? {
            Some(Frame::Text(Subject::Manifest, text)) => text,
            Some(_) => return Err(frames.damaged("it does not begin with what describes the events")),
            None => return Err(PipedError::Empty),
        };
        let manifest = Manifest::decode(&text).map_err(|what| frames.damaged(what))?;
        let merge = Merge {
            compression: manifest.compression,
            decompressor: Decompressor::new(Codec::Zstd),
            indices: HashMap::new(),
            streams: Vec::new(),
            order: BinaryHeap::new(),
            unread: Vec::new(),
            floor: 0,
            has_ended: false,
            waiting: 0,
            latest: 0,
            late: 0,
            since: 0,
        };
        let (names, symbols) = (BTreeMap::new(), NewSymbols::default());
        let (user, wanted, step) = (Vec::new(), (None, None), Step::GoesOn);
        let (has_new_user, is_behind) = (false, false);
        Ok(Self { frames, manifest, wanted, names, symbols, user, has_new_user, is_behind, step, merge })
    }

    /// The events of the recording, in a trace file without data that is in memory.
    ///
    /// # Errors
    /// What describes them makes no sense.
    pub fn head(&self, name: &str) -> Result<TraceFile<Vec<u8>>, PipedError> {
        let bytes = head::bytes(&self.manifest, None).map_err(HeadError::from)?;
        Ok(TraceFile::open(name, bytes).map_err(HeadError::from)?)
    }

    /// Gives only records of these buffers and CPUs from now on; `None` for all.
    pub fn select(&mut self, buffers: Option<HashSet<String>>, cpus: Option<HashSet<u32>>) {
        self.wanted = (buffers, cpus);
    }

    /// Where it is read from.
    pub fn input(&self) -> &R {
        self.frames.input()
    }

    /// How far it was read.
    pub fn step(&self) -> Step {
        self.step
    }

    /// Bytes of pages whose records were not given.
    pub fn waiting(&self) -> usize {
        self.merge.waiting
    }

    /// Events that came after others with later times had been given.
    pub fn late(&self) -> u64 {
        self.merge.late
    }

    /// Reads the next frame. Waits for it.
    ///
    /// # Errors
    /// It cannot be read, or makes no sense. Nothing more can be read then.
    pub fn read(&mut self) -> Result<Step, PipedError> {
        if self.step != Step::GoesOn {
            return Ok(self.step);
        }
        let frame = match self.frames.next() {
            Ok(frame) => frame,
            Err(error) => {
                self.end(Step::CutOff);
                return Err(error);
            }
        };
        match frame {
            None => self.end(Step::CutOff),
            Some(Frame::End(totals)) => self.end(Step::Ended(totals)),
            Some(Frame::Names(entries)) => {
                for (tid, name) in names::entries(entries) {
                    if (1..PID_MAX).contains(&tid) {
                        let len = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
                        self.names.insert(tid, name[..len].to_vec());
                    }
                }
            }
            Some(Frame::Time(time)) => self.merge.floor = self.merge.floor.max(time),
            Some(Frame::Data { .. }) if self.is_behind => {
                self.end(Step::CutOff);
                return Err(self.frames.damaged("data behind the last of them"));
            }
            Some(Frame::Data { stream, time, chunk }) => {
                self.merge.floor = self.merge.floor.max(time);
                if let Some(buffer) = wanted_buffer(&self.manifest, &self.wanted, stream)
                    && let Err(what) = self.merge.add(stream, buffer, chunk)
                {
                    self.end(Step::CutOff);
                    return Err(self.frames.damaged(what));
                }
            }
            Some(Frame::Text(subject, text)) => {
                if let Err(what) = self.take_text(subject, text) {
                    self.end(Step::CutOff);
                    return Err(self.frames.damaged(what));
                }
            }
            // What only the finished file has: no record follows.
            Some(Frame::Bytes(_) | Frame::DataOf { .. }) => {
                self.is_behind = true;
                self.merge.floor = u64::MAX;
            }
        }
        Ok(self.step)
    }

    fn take_text(&mut self, subject: Subject, text: Vec<u8>) -> Result<(), &'static str> {
        match subject {
            Subject::Kernel => self.symbols.kernel = Some(text),
            Subject::User => {
                self.user = text;
                self.has_new_user = true;
            }
            Subject::MoreUser => {
                append_lines(&mut self.user, &text)?;
                self.has_new_user = true;
            }
            Subject::Manifest => return Err("what describes the events comes twice"),
            // The file that is made of all frames has them.
            Subject::State | Subject::Counts | Subject::Pauses => {}
        }
        Ok(())
    }

    /// Whether nothing follows the recording that has [ended](Step::Ended); waits for the end of the input.
    ///
    /// # Errors
    /// Something follows, or it cannot be read.
    pub fn expect_end(&mut self) -> Result<(), PipedError> {
        self.frames.expect_end()
    }

    fn end(&mut self, step: Step) {
        self.step = step;
        self.merge.floor = u64::MAX;
        self.merge.has_ended = true;
    }

    /// Names of threads that became known.
    pub fn take_names(&mut self) -> BTreeMap<u32, Vec<u8>> {
        std::mem::take(&mut self.names)
    }

    /// Symbols that became known.
    pub fn take_symbols(&mut self) -> NewSymbols {
        if std::mem::take(&mut self.has_new_user) {
            self.symbols.user = Some(self.user.clone());
        }
        std::mem::take(&mut self.symbols)
    }

    /// The records that are known by now, in the order of time.
    pub fn records<'a>(&'a mut self, clock: &'a Clock) -> PipedRecords<'a> {
        PipedRecords { merge: &mut self.merge, clock, clocks: HashMap::new() }
    }
}

/// Puts lines behind others, of which there are as many bytes as a text has at most.
pub(super) fn append_lines(lines: &mut Vec<u8>, more: &[u8]) -> Result<(), &'static str> {
    if (lines.len() + more.len()) as u64 >= TEXT_MAX {
        return Err("more text than there can be");
    }
    if !lines.is_empty() && !lines.ends_with(b"\n") {
        lines.push(b'\n');
    }
    lines.extend(more);
    Ok(())
}

/// The buffer in the trace file that the data of a stream are in; `None` if nobody wants them.
fn wanted_buffer(
    manifest: &Manifest,
    (buffers, cpus): &(Option<HashSet<String>>, Option<HashSet<u32>>),
    stream: StreamId,
) -> Option<usize> {
    if cpus.as_ref().is_some_and(|cpus| !cpus.contains(&stream.cpu)) {
        return None;
    }
    let is_it = |(name, channel): (&str, Option<&crate::RecordedChannel>)| {
        channel.is_some_and(|channel| channel.number == stream.channel)
            && buffers.as_ref().is_none_or(|wanted| wanted.contains(name))
    };
    manifest.buffers().position(is_it)
}

impl Merge {
    /// Takes a chunk of a stream.
    fn add(&mut self, id: StreamId, buffer: usize, chunk: &[u8]) -> Result<(), &'static str> {
        let pages = self.unpack(chunk)?;
        if self.waiting + pages.len() > WAITING_MAX {
            return Err("too many pages wait for those of other CPUs");
        }
        self.waiting += pages.len();
        let index = match self.indices.get(&id) {
            Some(index) => *index,
            None if self.streams.len() == STREAMS_MAX => return Err("too many streams"),
            None => {
                let (chunks, pages) = (VecDeque::new(), PageRecords::default());
                self.streams.push(Stream { id, buffer, chunks, pages, head: None });
                self.indices.insert(id, self.streams.len() - 1);
                self.streams.len() - 1
            }
        };
        let stream = &mut self.streams[index];
        if stream.head.is_none() && stream.chunks.is_empty() {
            self.unread.push(index);
        }
        stream.chunks.push_back(pages);
        Ok(())
    }

    /// The pages of a chunk.
    fn unpack(&mut self, chunk: &[u8]) -> Result<Vec<u8>, &'static str> {
        let (packed, len) = match self.compression {
            Compression::None => (chunk, chunk.len()),
            Compression::Zstd { .. } => {
                let Some((header, packed)) = chunk.split_at_checked(BLOCK_HEADER_LEN) else {
                    return Err("a chunk without a header");
                };
                let number = |at: usize| header.get(at..).and_then(|bytes| bytes.first_chunk());
                let number = |at| number(at).map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize);
                if number(0) != packed.len() {
                    return Err("a chunk of another length than it says");
                }
                (packed, number(4))
            }
        };
        if len == 0 || len > CHUNK_MAX || !len.is_multiple_of(PAGE_SIZE) {
            return Err("a chunk of another length than that of pages");
        }
        let mut pages = Vec::new();
        match self.compression {
            Compression::None => pages.extend_from_slice(packed),
            Compression::Zstd { .. } => {
                let unpacked = self.decompressor.decompress(packed, len, &mut pages);
                unpacked.map_err(|_| "a chunk that does not decompress")?;
                pages.truncate(len);
            }
        }
        Ok(pages)
    }

    /// Finds the next record of every stream that has one.
    fn fill(&mut self) -> Result<(), ReadError> {
        let Self { streams, order, unread, waiting, .. } = self;
        while let Some(&index) = unread.last() {
            let stream = &mut streams[index];
            if let Some(head) = stream.advance(waiting)? {
                order.push(Reverse((head.time, stream.id, index)));
                stream.head = Some(head);
            }
            unread.pop();
        }
        Ok(())
    }
}

impl Stream {
    /// The next record; `None` if there is none for now.
    fn advance(&mut self, waiting: &mut usize) -> Result<Option<Head>, ReadError> {
        loop {
            match self.pages.advance(&mut 0) {
                Ok(Some(head)) => return Ok(Some(head)),
                Ok(None) => {
                    *waiting = waiting.saturating_sub(self.pages.len());
                    let next = self.pages.replace();
                    let Some(chunk) = self.chunks.pop_front() else { return Ok(None) };
                    *next = chunk;
                }
                Err(source) => {
                    let (cpu, page) = (self.id.cpu, self.pages.number());
                    return Err(ReadError::Page { cpu, page, offset: 0, source });
                }
            }
        }
    }
}

/// Records of a streamed recording, as far as they are known.
#[derive(Debug)]
pub struct PipedRecords<'a> {
    merge: &'a mut Merge,
    clock: &'a Clock,
    clocks: HashMap<u32, CpuClock<'a>>,
}

impl LiveRecords for PipedRecords<'_> {
    fn next_record(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        let Self { merge, clock, clocks } = self;
        loop {
            merge.fill()?;
            let Some(&Reverse((time, _, index))) = merge.order.peek() else { return Ok(None) };
            // At the end there are no more of the last moment.
            if time >= merge.floor && !merge.has_ended {
                return Ok(None);
            }
            merge.order.pop();
            merge.unread.push(index);
            merge.late += u64::from(time < merge.latest);
            merge.latest = merge.latest.max(time);
            let Some(head) = merge.streams[index].head.take() else { continue };
            let cpu = merge.streams[index].id.cpu;
            let timestamp = clocks.entry(cpu).or_insert_with(|| clock.for_cpu(cpu)).correct(time);
            if timestamp < merge.since {
                continue;
            }
            let stream = &merge.streams[index];
            let (buffer, missed, data) = (stream.buffer, head.missed, stream.pages.record(&head));
            return Ok(Some(Record {
                reader: 0,
                buffer,
                cpu,
                timestamp,
                missed,
                data,
                endian: Endian::Little,
            }));
        }
    }

    fn seek(&mut self, timestamp: u64) {
        self.merge.since = timestamp;
    }

    fn goes_on(&self) -> bool {
        !self.merge.has_ended
    }
}
