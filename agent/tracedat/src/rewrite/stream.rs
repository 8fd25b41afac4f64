//! The data of one CPU on their way from one file to another.

use std::io::{Seek, Write};
use std::ops::Range;

use super::super::page::{EventCursor, PageBuilder, PageError, PageHeader, PageLayout, Push};
use super::super::reader::{CpuClock, CpuPages, PackedChunk, ReadError, Reader, Record, Records, Source};
use super::error::RewriteError;
use super::output::{BufferPlan, CpuOut, Inputs};
use super::{Loss, Progress, Watch, WrittenCpu};

/// Longest chunk that is copied as it is; real ones are far shorter.
const MAX_COPY: u64 = 64 << 20;

/// Records between two reports of the progress.
const LOOK_UP: u32 = 4096;

/// A position between two records of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) page: u64,
    /// Records of the page that are before it.
    pub(super) record: usize,
}

impl Position {
    pub(super) const START: Self = Self { page: 0, record: 0 };
    pub(super) const END: Self = Self { page: u64::MAX, record: 0 };

    /// Before the first record of a page.
    pub(super) const fn of_page(page: u64) -> Self {
        Self { page, record: 0 }
    }
}

/// Data of a CPU of one reader, from one position to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) reader: usize,
    pub(super) buffer: usize,
    pub(super) cpu: u32,
    pub(super) from: Position,
    pub(super) to: Position,
    /// Events lost before its first record, beside those that are marked: 0 = not known how many.
    pub(super) before: Option<u64>,
    /// The same behind its last record.
    pub(super) behind: Option<u64>,
}

impl Piece {
    /// All data of a CPU, of whose losses the marks are all.
    pub(super) const fn all(reader: usize, buffer: usize, cpu: u32) -> Self {
        let (from, to) = (Position::START, Position::END);
        Self { reader, buffer, cpu, from, to, before: None, behind: None }
    }

    /// Whether anything was lost at its ends that is not marked.
    pub(super) const fn has_losses(&self) -> bool {
        self.before.is_some() || self.behind.is_some()
    }

    /// All data of each CPU in a buffer of a file, with its losses. CPUs that lost all are among them.
    pub(super) fn of_buffer<S: Source>(number: usize, reader: &Reader<S>, buffer: usize) -> Vec<Self> {
        let info = reader.buffers().get(buffer);
        let stored = info.into_iter().flat_map(|info| &info.cpus).map(|extent| extent.cpu);
        let silent = reader.silent_cpus().into_iter().filter(|(of, _)| *of == buffer).map(|(_, cpu)| cpu);
        let piece = |cpu| {
            let (before, behind) = reader.losses_of(buffer, cpu);
            Self { before, behind, ..Self::all(number, buffer, cpu) }
        };
        stored.chain(silent).map(piece).collect()
    }
}

/// Where the last record of a CPU is; `None` if there is none that can be read.
pub(super) fn last_record<S: Source>(reader: &Reader<S>, buffer: usize, cpu: u32) -> Option<Position> {
    let mut records = reader.cpu_records(buffer, cpu).ok()?;
    records.fast_forward();
    records.prev_record().ok().flatten()?;
    let (page, record) = records.position();
    Some(Position { page, record })
}

/// What changes in the records of a reader.
#[derive(Clone, Debug, Default)]
pub(super) struct Change {
    /// New numbers of events by their old ones, 0 for those that are left out; none if all stay.
    pub(super) ids: Option<Box<[u16]>>,
    /// Whether the corrected times are stored, so that they need no corrections any more.
    pub(super) correct: bool,
}

impl Change {
    fn is_none(&self) -> bool {
        self.ids.is_none() && !self.correct
    }

    /// The new number of an event; `None` if it is left out.
    pub(super) fn id(&self, id: u16) -> Option<u16> {
        let Some(ids) = &self.ids else { return Some(id) };
        // Numbers that no format describes stay as they are, unless they are named.
        Some(ids.get(usize::from(id)).copied().unwrap_or(id)).filter(|id| *id != 0)
    }
}

/// What is to be known of a page before it is copied.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    records: u64,
    /// Times of the first and the last record, as the page has them.
    span: Option<(u64, u64)>,
    /// Whether every record stays as it is.
    same: bool,
}

/// Writes the data of one CPU.
pub(super) struct CpuStream<'b, 'w, W> {
    out: CpuOut<'b, 'w, W>,
    buffer: String,
    layout: PageLayout,
    builder: PageBuilder,
    /// Whether chunks may be copied as they are compressed.
    chunks: bool,
    /// A record whose number is changed.
    scratch: Vec<u8>,
    /// Time of the last record.
    last: u64,
    pages: u64,
    written: WrittenCpu,
    lost: Vec<Loss>,
}

/// Where records are read from.
struct From<'a, 'r> {
    piece: &'a Piece,
    change: &'a Change,
    /// What corrects times for the account of what is written.
    clock: CpuClock<'r>,
    tolerant: bool,
}

impl<'b, 'w, W: Write + Seek> CpuStream<'b, 'w, W> {
    pub(super) fn new(out: CpuOut<'b, 'w, W>, plan: &BufferPlan, cpu: u32, chunks: bool) -> Self {
        Self {
            out,
            buffer: plan.name.clone(),
            layout: plan.layout,
            builder: PageBuilder::with_layout(plan.layout),
            chunks,
            scratch: Vec::new(),
            last: 0,
            pages: 0,
            written: WrittenCpu { cpu, ..WrittenCpu::default() },
            lost: Vec::new(),
        }
    }

    /// Writes these pieces: one after the other if they are so in time, otherwise merged by time.
    pub(super) fn pieces<S: Source>(
        &mut self,
        inputs: &Inputs<'_, S>,
        pieces: &[Piece],
        progress: &mut Progress,
        watch: Watch<'_>,
    ) -> Result<(), RewriteError> {
        if pieces.len() > 1 && !one_behind_the_other(inputs, pieces)? {
            return self.merged(inputs, pieces, progress, watch);
        }
        for piece in pieces {
            self.piece(inputs, piece, progress, watch)?;
        }
        Ok(())
    }

    /// Completes the CPU.
    pub(super) fn finish(mut self) -> Result<(WrittenCpu, Vec<Loss>), RewriteError> {
        self.flush()?;
        if let Some(missed) = self.builder.take_missed() {
            // There is no record after the loss, so that it gets a page of its own.
            let mut page = vec![0; self.layout.page_size as usize];
            let time = self.layout.endian.u64(self.last);
            page[..time.len()].copy_from_slice(&time);
            if self.layout.seal(&mut page, 0, Some(missed)).is_ok() {
                self.out.push_page(&page)?;
            }
        }
        self.written.bytes = self.out.finish()?;
        Ok((self.written, self.lost))
    }

    fn piece<S: Source>(
        &mut self,
        inputs: &Inputs<'_, S>,
        piece: &Piece,
        progress: &mut Progress,
        watch: Watch<'_>,
    ) -> Result<(), RewriteError> {
        let Some((reader, change)) = inputs.readers.get(piece.reader).zip(inputs.changes.get(piece.reader))
        else {
            return Ok(());
        };
        let clock = reader.clock().for_cpu(piece.cpu);
        let from = From { piece, change, clock, tolerant: inputs.tolerant };
        if let Some(before) = piece.before {
            self.builder.missed(before);
        }
        let result = self.pages_of(reader, &from, progress, watch);
        if let Some(behind) = piece.behind {
            self.builder.missed(behind);
        }
        result
    }

    /// Brings the pages of a piece over.
    fn pages_of<S: Source>(
        &mut self,
        reader: &Reader<S>,
        from: &From<'_, '_>,
        progress: &mut Progress,
        watch: Watch<'_>,
    ) -> Result<(), RewriteError> {
        let piece = from.piece;
        let extent = reader.buffers().get(piece.buffer).and_then(|buffer| buffer.cpu(piece.cpu));
        // A CPU that lost all has no data.
        let Some(extent) = extent else { return Ok(()) };
        let mut pages = match reader.cpu_pages(piece.buffer, piece.cpu) {
            Ok(pages) => pages,
            Err(error) => return self.lose(from, 0..0, (extent.offset, extent.size), 0, &error),
        };
        let start = progress.done;
        let end = piece.to.page.saturating_add(u64::from(piece.to.record > 0)).min(pages.len());
        let mut page = piece.from.page;
        while page < end {
            let chunk = pages.packed_chunk(page).filter(|chunk| self.may_copy(&pages, chunk, page, from));
            page = match chunk {
                Some(chunk) if self.copy_chunk(reader, &mut pages, &chunk, from)? => chunk.pages.end,
                _ => self.page(&mut pages, page, from)?,
            };
            let part = u128::from(extent.size) * u128::from(page) / u128::from(pages.len());
            progress.done = start.saturating_add(part as u64);
            go_on(watch, *progress)?;
        }
        progress.done = start.saturating_add(extent.size);
        if piece.to.page >= pages.len()
            && let Some(error) = pages.take_tail_error()
        {
            let (offset, bytes) = tail(&error, extent.offset);
            self.lose(from, pages.len()..pages.len(), (offset, bytes), 0, &error)?;
        }
        Ok(())
    }

    /// Whether a chunk may be copied as a whole, as far as is known before looking at its pages.
    fn may_copy(&self, pages: &CpuPages<'_>, chunk: &PackedChunk, page: u64, from: &From<'_, '_>) -> bool {
        self.chunks
            && chunk.pages.start == page
            && chunk.len <= MAX_COPY
            && from.piece.from <= Position::of_page(page)
            && Position::of_page(chunk.pages.end) <= from.piece.to
            && pages.layout() == self.layout
            && from.change.is_none()
            && !self.builder.has_missed()
    }

    /// Copies a chunk, unless something is wrong in it. Returns whether it did.
    fn copy_chunk<S: Source>(
        &mut self,
        reader: &Reader<S>,
        pages: &mut CpuPages<'_>,
        chunk: &PackedChunk,
        from: &From<'_, '_>,
    ) -> Result<bool, RewriteError> {
        let mut looks = Vec::new();
        for page in chunk.pages.clone() {
            let Ok((header, data)) = pages.locate(page) else { return Ok(false) };
            let events = pages.bytes().get(data).unwrap_or_default();
            match look(&header, events, self.layout, from.change) {
                Ok(look) if look.same => looks.push(look),
                _ => return Ok(false),
            }
        }
        self.flush()?;
        let mut bytes = vec![0; chunk.len as usize];
        reader.bytes_at(chunk.offset, &mut bytes)?;
        self.out.push_chunk(&bytes)?;
        for look in &looks {
            self.count_copied(look, from);
        }
        Ok(true)
    }

    /// Brings a page over, and returns the next one.
    fn page(
        &mut self,
        pages: &mut CpuPages<'_>,
        page: u64,
        from: &From<'_, '_>,
    ) -> Result<u64, RewriteError> {
        let (header, data) = match pages.locate(page) {
            Ok(found) => found,
            Err(error) => {
                let lost = pages.lost_with(page);
                let stored = pages.stored(page);
                let next = lost.end;
                self.lose(from, lost, stored, 0, &error)?;
                return Ok(next);
            }
        };
        let piece = from.piece;
        let first = if page == piece.from.page { piece.from.record } else { 0 };
        let end = if page == piece.to.page { piece.to.record } else { usize::MAX };
        let is_whole = first == 0 && end == usize::MAX;
        if is_whole && pages.layout() == self.layout && !from.change.correct && !self.builder.has_missed() {
            let events = pages.bytes().get(data.clone()).unwrap_or_default();
            if let Ok(look) = look(&header, events, self.layout, from.change)
                && look.same
            {
                self.flush()?;
                let bytes = pages.whole(&data);
                if bytes.len() == self.layout.page_size as usize {
                    self.out.push_page(bytes)?;
                } else {
                    // The last page of a file that was cut off.
                    let mut full = bytes.to_vec();
                    full.resize(self.layout.page_size as usize, 0);
                    self.out.push_page(&full)?;
                }
                self.count_copied(&look, from);
                return Ok(page + 1);
            }
        }
        let events = pages.bytes().get(data).unwrap_or_default();
        let source = pages.layout();
        if let Some(missed) = header.missed.filter(|_| first == 0) {
            self.builder.missed(missed);
        }
        let mut cursor = EventCursor::new(header.timestamp);
        let mut index = 0;
        while index < end {
            match cursor.next(events, source.endian) {
                Ok(Some(event)) => {
                    if index >= first {
                        let record = events.get(event.start..event.start + event.len).unwrap_or_default();
                        let shown = from.clock.correct(event.time);
                        let stored = if from.change.correct { shown } else { event.time };
                        self.record((stored, shown), record, from.change)?;
                    }
                    index += 1;
                }
                Ok(None) => break,
                Err(error) => {
                    let error = pages.page_error(page, error);
                    self.lose(from, page..page + 1, pages.stored(page), index as u64, &error)?;
                    break;
                }
            }
        }
        Ok(page + 1)
    }

    /// Writes pieces whose records are between each other's.
    fn merged<S: Source>(
        &mut self,
        inputs: &Inputs<'_, S>,
        pieces: &[Piece],
        progress: &mut Progress,
        watch: Watch<'_>,
    ) -> Result<(), RewriteError> {
        let mut streams = Vec::new();
        let mut size = 0_u64;
        for piece in pieces {
            let Some((reader, change)) =
                inputs.readers.get(piece.reader).zip(inputs.changes.get(piece.reader))
            else {
                continue;
            };
            let buffer = reader.buffers().get(piece.buffer).and_then(|buffer| buffer.cpu(piece.cpu));
            size = buffer.map_or(0, |extent| extent.size).saturating_add(size);
            if buffer.is_none() {
                continue;
            }
            let records = if change.correct {
                reader.cpu_records_of(piece.reader, piece.buffer, piece.cpu)?
            } else {
                reader.raw_records(piece.reader, piece.buffer, piece.cpu)?
            };
            streams.push(records.with_losses(piece.before, piece.behind));
        }
        let mut records = Records::merge(streams);
        let (mut read, mut since) = (0_u64, 0);
        while let Some(Record { reader, cpu, timestamp, missed, data, .. }) = records.next_record()? {
            if let Some(missed) = missed {
                self.builder.missed(missed);
            }
            let Some((reader, change)) = inputs.readers.get(reader).zip(inputs.changes.get(reader)) else {
                continue;
            };
            let clock = if change.correct { CpuClock::RAW } else { reader.clock().for_cpu(cpu) };
            self.record((timestamp, clock.correct(timestamp)), data, change)?;
            read += data.len() as u64;
            since += 1;
            if since == LOOK_UP {
                since = 0;
                go_on(
                    watch,
                    Progress { done: progress.done.saturating_add(read.min(size)), total: progress.total },
                )?;
            }
            self.ends_of(&records);
        }
        self.ends_of(&records);
        progress.done = progress.done.saturating_add(size);
        Ok(())
    }

    /// Takes over what was lost behind records that have ended.
    fn ends_of(&mut self, records: &Records<'_>) {
        for missed in records.ends().filter_map(|end| end.missed) {
            self.builder.missed(missed);
        }
    }

    /// Rewrites a record, unless it is to be left out. Its times are the one that is stored, and the one that
    /// is shown.
    fn record(
        &mut self,
        (stored, shown): (u64, u64),
        record: &[u8],
        change: &Change,
    ) -> Result<(), RewriteError> {
        let Some(id) = record.first_chunk().map(|bytes| self.layout.endian.read_u16(*bytes)) else {
            // A record without bytes has no number, and readers can do nothing with it.
            self.written.left_out += 1;
            return Ok(());
        };
        let Some(new) = change.id(id) else {
            self.written.left_out += 1;
            return Ok(());
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        let record = if new == id {
            record
        } else {
            scratch.clear();
            scratch.extend_from_slice(record);
            scratch[..2].copy_from_slice(&self.layout.endian.u16(new));
            &scratch
        };
        loop {
            match self.builder.push(stored, record) {
                Ok(Push::Stored) => break,
                Ok(Push::Full) => self.flush()?,
                Err(PageError::TimeBackwards { .. }) => {
                    // Only a page can begin at an earlier time.
                    self.flush()?;
                    self.builder.restart_time();
                }
                Err(_) => {
                    let (buffer, cpu) = (self.buffer.clone(), self.written.cpu);
                    let reason = "those of the file it comes from are larger";
                    return Err(RewriteError::RecordTooBig { buffer, cpu, len: record.len(), reason });
                }
            }
        }
        self.scratch = scratch;
        self.last = stored;
        self.written.events += 1;
        self.span(shown, shown);
        Ok(())
    }

    /// Writes the page that is being filled.
    fn flush(&mut self) -> Result<(), RewriteError> {
        if let Some(page) = self.builder.finish() {
            self.out.push_page(page)?;
            self.pages += 1;
        }
        Ok(())
    }

    fn count_copied(&mut self, look: &Look, from: &From<'_, '_>) {
        self.pages += 1;
        self.written.copied_pages += 1;
        self.written.events += look.records;
        if let Some((first, last)) = look.span {
            self.last = last;
            self.span(from.clock.correct(first), from.clock.correct(last));
        }
        // What comes next may begin at any time, as it did in the input.
        self.builder.restart_time();
    }

    fn span(&mut self, first: u64, last: u64) {
        let (start, end) = self.written.span.unwrap_or((first, last));
        self.written.span = Some((start.min(first), end.max(last)));
    }

    /// Takes note of a loss, or fails for it.
    fn lose(
        &mut self,
        from: &From<'_, '_>,
        pages: Range<u64>,
        (offset, bytes): (u64, u64),
        saved_records: u64,
        error: &ReadError,
    ) -> Result<(), RewriteError> {
        if !from.tolerant {
            return Err(RewriteError::Damaged { first: error.to_string(), problems: 1 });
        }
        self.builder.missed(0);
        let (buffer, cpu, reason) = (self.buffer.clone(), from.piece.cpu, error.to_string());
        self.lost.push(Loss { buffer, cpu, pages, offset, bytes, saved_records, reason });
        Ok(())
    }
}

/// Tells how far it is.
fn go_on(watch: Watch<'_>, progress: Progress) -> Result<(), RewriteError> {
    if watch(progress) { Ok(()) } else { Err(RewriteError::Stopped) }
}

/// Looks through the events of a page.
fn look(header: &PageHeader, data: &[u8], layout: PageLayout, change: &Change) -> Result<Look, PageError> {
    let mut look = Look { same: true, ..Look::default() };
    let mut cursor = EventCursor::new(header.timestamp);
    while let Some(event) = cursor.next(data, layout.endian)? {
        look.records += 1;
        look.span = Some((look.span.map_or(event.time, |span| span.0), event.time));
        if change.ids.is_some() {
            let id = data.get(event.start..).and_then(<[u8]>::first_chunk);
            let id = id.filter(|_| event.len > 0).map(|bytes| layout.endian.read_u16(*bytes));
            look.same &= id.is_some_and(|id| change.id(id) == Some(id));
        }
    }
    // A mark on an empty page goes to the record after it, should that one be left out.
    look.same &= look.records > 0 || change.is_none();
    Ok(look)
}

/// Where a tail is that cannot be read, and how long it is.
fn tail(error: &ReadError, extent: u64) -> (u64, u64) {
    match error {
        ReadError::Short { offset, wanted, left, .. } if *offset == extent => {
            (offset.saturating_add(*left), wanted.saturating_sub(*left))
        }
        ReadError::Short { offset, left, .. } => (*offset, *left),
        ReadError::TooBig { offset, .. } | ReadError::Io { offset, .. } => (*offset, 0),
        _ => (extent, 0),
    }
}

/// Whether each piece ends before the next one begins.
fn one_behind_the_other<S: Source>(inputs: &Inputs<'_, S>, pieces: &[Piece]) -> Result<bool, RewriteError> {
    let mut end = None;
    for piece in pieces {
        let Some(reader) = inputs.readers.get(piece.reader) else { continue };
        let correct = inputs.changes.get(piece.reader).is_some_and(|change| change.correct);
        let mut records = if correct {
            reader.cpu_records_if_any(piece.buffer, piece.cpu)?
        } else {
            reader.raw_records(piece.reader, piece.buffer, piece.cpu)?
        };
        let Some(first) = records.next_record()?.map(|record| record.timestamp) else { continue };
        if end.is_some_and(|end| first < end) {
            return Ok(false);
        }
        records.fast_forward();
        end = records.prev_record()?.map(|record| record.timestamp);
    }
    Ok(true)
}
