//! Parts of a file, each a file of its own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::{Cursor, Seek, Write};

use super::super::compress::Compression;
use super::super::reader::{CpuRecords, Reader, Records, Source};
use super::convert::Selection;
use super::error::RewriteError;
use super::head::Head;
use super::output::{Beginning, BufferPlan, Inputs, compression, write_file};
use super::stream::{Change, Piece, Position, last_record};
use super::{FileVersion, Rewritten, Target, Watch};

/// After how much a part ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// After this many nanoseconds, counted from the first event.
    Nanos(u64),
    /// After this many events.
    Events(u64),
    /// After this many pages of each CPU.
    Pages(u64),
    /// Before the file is longer than this many bytes. What a part takes is estimated, so that it may be a
    /// little more; one page of events is always in it.
    Bytes(u64),
}

/// Times of the first and the last event that are wanted, both included; corrected as the reader was
/// configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// Not before this.
    pub start: Option<u64>,
    /// Not after this.
    pub end: Option<u64>,
}

/// How a file is split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// What of the file is split.
    pub range: Range,
    /// After how much a part ends; without it there is one part.
    pub every: Option<Every>,
    /// Whether that holds for each CPU on its own.
    pub per_cpu: bool,
}

/// The next part: what of each CPU is in it.
#[derive(Clone, Debug)]
pub struct Part {
    /// One for each stream.
    pieces: Vec<Piece>,
}

/// The data of a CPU that are being split.
#[derive(Clone, Copy, Debug)]
struct Stream {
    buffer: usize,
    cpu: u32,
    /// Where the next part begins.
    at: Position,
    end: Position,
    /// Where parts of a duration begin, if each CPU has its own.
    zero: Option<u64>,
    /// All of it that is split, with the losses that are not in a part yet.
    whole: Piece,
    /// Where the last record is, as far as that matters for losses.
    last: Option<Position>,
}

impl Stream {
    /// The next piece, up to a position. It takes its losses along.
    fn take_up_to(&mut self, to: Position) -> Piece {
        let Self { at: from, whole, last, .. } = self;
        let mut piece = Piece { from: *from, to, before: None, behind: None, ..*whole };
        match last {
            None => (piece.before, piece.behind) = (whole.before.take(), whole.behind),
            Some(last) => {
                if *from == Position::START && *from < to {
                    piece.before = whole.before.take();
                }
                if *last < to {
                    piece.behind = whole.behind.map(|behind| if *last < *from { 0 } else { behind });
                }
            }
        }
        if piece.behind.is_some() {
            // How many of them are later is not known.
            whole.behind = Some(0);
        }
        piece
    }
}

/// Finds the parts of a file, one after the other.
///
/// Every part has the metadata and the facts of the whole, its [`TraceId`](super::super::FileOption::TraceId)
/// among them: parts are known by it as one recording. A mark of lost events is in the part that has the
/// record after it. Events that were lost behind the last record of a CPU are marked in the part that has
/// that record; later parts have a mark without a number.
#[derive(Debug)]
pub struct Splitter<'r, S> {
    reader: &'r Reader<S>,
    target: Target,
    split: Split,
    /// What every part begins with.
    beginning: Beginning,
    plan: Vec<BufferPlan>,
    change: Change,
    streams: Vec<Stream>,
    /// Where the first part of a duration begins, if all CPUs have the same.
    zero: Option<u64>,
    /// Bytes of a part that are no trace data.
    overhead: Option<u64>,
}

impl<'r, S: Source> Splitter<'r, S> {
    /// Starts with the first part.
    ///
    /// # Errors
    /// The file is damaged, or nothing can be between two cuts.
    pub fn new(
        reader: &'r Reader<S>,
        target: Target,
        selection: &Selection,
        split: Split,
    ) -> Result<Self, RewriteError> {
        if let Some(Every::Nanos(0) | Every::Events(0) | Every::Pages(0) | Every::Bytes(0)) = split.every {
            return Err(RewriteError::Nothing("parts of nothing: name a size above 0".to_owned()));
        }
        let mut head = Head::read(reader, false)?;
        if !selection.is_all() || split.every.is_some() || split.range != Range::default() {
            head.is_part();
        }
        let mut plan = selection.plan(reader);
        let beginning = Beginning::new(&target, head, &mut plan, &[reader])?;
        let pieces = plan.iter().flat_map(|plan| plan.cpus.values().flatten());
        let streams = pieces.map(|&whole| {
            let Piece { buffer, cpu, from, to, .. } = whole;
            let last = if whole.has_losses() { last_record(reader, buffer, cpu) } else { None };
            Stream { buffer, cpu, at: from, end: to, zero: None, whole, last }
        });
        let mut splitter = Self {
            reader,
            target,
            split,
            beginning,
            streams: streams.collect(),
            plan,
            change: selection.change(),
            zero: None,
            overhead: None,
        };
        for index in 0..splitter.streams.len() {
            let Stream { at, end, .. } = splitter.streams[index];
            let position = |time: Option<u64>, otherwise: Position| match time {
                Some(time) => splitter.position_of_time(index, time),
                None => Ok(otherwise),
            };
            let at = position(split.range.start, at)?.max(at);
            // The last time is included.
            let end = match split.range.end {
                Some(u64::MAX) => end,
                last => position(last.map(|last| last + 1), end)?.min(end),
            };
            splitter.streams[index].at = at;
            splitter.streams[index].end = end;
        }
        Ok(splitter)
    }

    /// The next part; `None` if there are no more events.
    ///
    /// # Errors
    /// The file is damaged, or parts cannot be so small.
    pub fn next_part(&mut self) -> Result<Option<Part>, RewriteError> {
        let firsts = self.firsts()?;
        let Some(first) = firsts.iter().flatten().min().copied() else { return Ok(None) };
        let cuts = match self.split.every {
            None => self.streams.iter().map(|stream| stream.end).collect(),
            Some(Every::Nanos(nanos)) => self.cut_by_time(nanos, first, &firsts)?,
            Some(Every::Events(events)) if self.split.per_cpu => self.cut_each_by_events(events)?,
            Some(Every::Events(events)) => self.cut_by_events(events)?,
            Some(Every::Pages(pages)) => {
                let cut = |stream: &Stream| Position::of_page(stream.at.page.saturating_add(pages));
                self.streams.iter().map(cut).collect()
            }
            Some(Every::Bytes(bytes)) => self.cut_by_size(bytes)?,
        };
        let mut pieces = Vec::new();
        for (stream, cut) in self.streams.iter_mut().zip(cuts) {
            let cut: Position = cut;
            let to = cut.max(stream.at).min(stream.end);
            pieces.push(stream.take_up_to(to));
            stream.at = to;
        }
        Ok(Some(Part { pieces }))
    }

    /// Writes a part.
    ///
    /// # Errors
    /// The file is damaged, or the part cannot be written.
    pub fn write<W: Write + Seek>(
        &self,
        part: &Part,
        out: W,
        watch: Watch<'_>,
    ) -> Result<(W, Rewritten), RewriteError> {
        let mut plan = self.plan.clone();
        let pieces = plan.iter_mut().flat_map(|plan| plan.cpus.values_mut().flatten());
        for (piece, of_part) in pieces.zip(&part.pieces) {
            *piece = *of_part;
        }
        let inputs =
            Inputs { readers: &[self.reader], changes: std::slice::from_ref(&self.change), tolerant: false };
        write_file(out, &self.beginning, &plan, &inputs, watch)
    }

    /// The records of a stream, from where the next part begins.
    fn records(&self, stream: &Stream) -> Result<CpuRecords<'r>, RewriteError> {
        let mut records = self.reader.cpu_records_if_any(stream.buffer, stream.cpu)?;
        records.go_to_position((stream.at.page, stream.at.record));
        Ok(records)
    }

    fn position_of_time(&self, stream: usize, time: u64) -> Result<Position, RewriteError> {
        let Stream { buffer, cpu, .. } = self.streams[stream];
        let mut records = self.reader.cpu_records_if_any(buffer, cpu)?;
        records.seek(time);
        Ok(position(&records))
    }

    /// Positions of a time in all streams.
    fn positions_of_time(&self, time: u64) -> Result<Vec<Position>, RewriteError> {
        (0..self.streams.len()).map(|stream| self.position_of_time(stream, time)).collect()
    }

    /// Time of the next record of each stream that has one.
    fn firsts(&self) -> Result<Vec<Option<u64>>, RewriteError> {
        let first = |stream: &Stream| {
            if stream.at >= stream.end {
                return Ok(None);
            }
            let mut records = self.records(stream)?;
            let time = records.next_record()?.map(|record| record.timestamp);
            // It may be after empty pages, and the end among these.
            let (page, before) = records.position();
            let is_before = Position { page, record: before } <= stream.end;
            Ok(time.filter(|_| is_before))
        };
        self.streams.iter().map(first).collect()
    }

    fn cut_by_time(
        &mut self,
        nanos: u64,
        first: u64,
        firsts: &[Option<u64>],
    ) -> Result<Vec<Position>, RewriteError> {
        // The end of the stretch that a time is in.
        let end = |zero: u64, time: u64| {
            let stretches = time.saturating_sub(zero) / nanos + 1;
            zero.saturating_add(stretches.saturating_mul(nanos))
        };
        let start = self.split.range.start;
        if !self.split.per_cpu {
            let zero = *self.zero.get_or_insert(start.unwrap_or(first));
            return self.positions_of_time(end(zero, first));
        }
        let mut cuts = Vec::new();
        for (index, first) in firsts.iter().enumerate() {
            cuts.push(match *first {
                None => self.streams[index].end,
                Some(first) => {
                    let zero = *self.streams[index].zero.get_or_insert(start.unwrap_or(first));
                    self.position_of_time(index, end(zero, first))?
                }
            });
        }
        Ok(cuts)
    }

    fn cut_by_events(&self, events: u64) -> Result<Vec<Position>, RewriteError> {
        let streams: Result<Vec<_>, _> = self.streams.iter().map(|stream| self.records(stream)).collect();
        let mut records = Records::merge(streams?);
        let mut counted = 0;
        while counted < events {
            let Some(record) = records.next_record()? else { break };
            if self.split.range.end.is_some_and(|end| record.timestamp > end) {
                break;
            }
            counted += u64::from(record.event_id().is_some_and(|id| self.change.id(id).is_some()));
        }
        if counted < events {
            return Ok(self.streams.iter().map(|stream| stream.end).collect());
        }
        Ok(records.into_streams().iter().map(position).collect())
    }

    fn cut_each_by_events(&self, events: u64) -> Result<Vec<Position>, RewriteError> {
        let cut = |stream: &Stream| {
            let mut records = self.records(stream)?;
            let mut counted = 0;
            while counted < events {
                let Some(record) = records.next_record()? else { return Ok(stream.end) };
                counted += u64::from(record.event_id().is_some_and(|id| self.change.id(id).is_some()));
            }
            Ok(position(&records))
        };
        self.streams.iter().map(cut).collect()
    }

    /// Takes pages in the order of their times until they are as long as wanted; the part ends where the next
    /// one begins.
    fn cut_by_size(&mut self, bytes: u64) -> Result<Vec<Position>, RewriteError> {
        let overhead = self.overhead()?;
        if bytes <= overhead {
            return Err(RewriteError::Nothing(format!(
                "a part cannot be {bytes} bytes: formats, symbols and names alone take {overhead}"
            )));
        }
        let header = self.reader.header();
        let packed = compression(&self.target, header.version, header.codec) != Compression::None;
        let mut streams = Vec::new();
        let mut heap = BinaryHeap::new();
        for (index, stream) in self.streams.iter().enumerate() {
            let mut records = self.reader.cpu_records_if_any(stream.buffer, stream.cpu)?;
            if let Some(time) = records.page_time(stream.at.page).filter(|_| stream.at < stream.end) {
                heap.push(Reverse((time, index, stream.at.page)));
            }
            streams.push(records);
        }
        // At both ends of a part a page is not full, and a chunk not of all pages.
        let page = u64::from(self.reader.layout().page_size);
        let mut budget =
            (bytes - overhead).saturating_sub(streams.len() as u64 * if packed { page / 4 } else { page });
        let mut taken = 0_u64;
        while let Some(Reverse((time, index, number))) = heap.pop() {
            let stream = &self.streams[index];
            let pages = streams[index].pages();
            let cost = match pages.packed_chunk(number).filter(|_| packed) {
                Some(chunk) => chunk.len.div_ceil((chunk.pages.end - chunk.pages.start).max(1)),
                None => pages.layout().page_size.into(),
            };
            if taken > 0 && cost > budget {
                let cuts = self.positions_of_time(time)?;
                let moves = self.streams.iter().zip(&cuts).any(|(stream, cut)| *cut > stream.at);
                if moves {
                    return Ok(cuts);
                }
                // All pages begin at one time, so that only their order can tell them apart.
                let cut = |(other, stream): (usize, &Stream)| {
                    if other == index { Position::of_page(stream.at.page + 1) } else { stream.at }
                };
                return Ok(self.streams.iter().enumerate().map(cut).collect());
            }
            taken += 1;
            budget = budget.saturating_sub(cost);
            let next = number + 1;
            if Position::of_page(next) < stream.end
                && next < streams[index].pages().len()
                && let Some(time) = streams[index].page_time(next)
            {
                heap.push(Reverse((time, index, next)));
            }
        }
        Ok(self.streams.iter().map(|stream| stream.end).collect())
    }

    /// Bytes of a part without events.
    fn overhead(&mut self) -> Result<u64, RewriteError> {
        if let Some(overhead) = self.overhead {
            return Ok(overhead);
        }
        let empty = |plan: &BufferPlan| BufferPlan { cpus: BTreeMap::new(), ..plan.clone() };
        let plan: Vec<_> = self.plan.iter().map(empty).collect();
        let inputs =
            Inputs { readers: &[self.reader], changes: std::slice::from_ref(&self.change), tolerant: false };
        let out = Cursor::new(Vec::new());
        let (out, _) = write_file(out, &self.beginning, &plan, &inputs, &mut |_| true)?;
        // Each CPU has an entry in its buffer's list.
        let list = if self.target.version == FileVersion::V6 { 0 } else { 20 };
        let overhead = out.into_inner().len() as u64 + self.streams.len() as u64 * list;
        self.overhead = Some(overhead);
        Ok(overhead)
    }
}

fn position(records: &CpuRecords<'_>) -> Position {
    let (page, record) = records.position();
    Position { page, record }
}
