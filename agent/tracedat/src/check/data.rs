//! Trace data: chunks, pages, events and records. The data of each CPU are checked separately.

use std::num::NonZeroUsize;

use super::super::page::{EventCursor, MISSED_EVENTS, MISSED_STORED, PageError, PageLayout, Step};
use super::super::reader::cursor::Cursor;
use super::super::reader::pages::CpuPages;
use super::super::reader::{BufferInfo, CpuExtent, ReadError, Reader, Source};
use super::metadata::{Events, Shape};
use super::report::{At, Checked, Faults};
use super::rule::Rule;
use super::{Check, buffer_name};
use ftrace_event::Location;
use ftrace_event::endian::Endian;
use stdx::parallel;

/// The bits of a commit word that mean something: the length of the data and the two marks of lost events.
const KNOWN_COMMIT_BITS: u64 = super::super::page::DATA_LEN_MASK | MISSED_EVENTS | MISSED_STORED;

/// What is there of one CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuFound {
    pub(super) buffer: usize,
    pub(super) cpu: u32,
    pub(super) pages: u64,
    pub(super) events: u64,
    /// Whether all of it could be read, so that the numbers are those of the file.
    pub(super) whole: bool,
}

/// Checks the data of all CPUs.
pub(super) fn check<S: Source>(
    check: &mut Check<'_>,
    reader: &Reader<S>,
    threads: Option<NonZeroUsize>,
) -> Vec<CpuFound> {
    let cpus = |(buffer, info): (usize, &'_ BufferInfo)| {
        info.cpus.iter().map(|extent| (buffer, *extent)).collect::<Vec<_>>()
    };
    let jobs: Vec<(usize, CpuExtent)> = reader.buffers().iter().enumerate().flat_map(cpus).collect();
    let threads = threads.map_or_else(parallel::available, NonZeroUsize::get);
    let events = &check.events;
    let table = events.table();
    let mut results = parallel::map(&jobs, threads, |(buffer, extent)| {
        let mut job = Job::new(reader, *buffer, *extent, events, &table);
        job.run();
        let Job { faults, checked, found, .. } = job;
        (*extent, faults, checked, found)
    });
    results.sort_by_key(|(extent, ..)| extent.offset);
    let mut all = Vec::new();
    for (_, faults, Checked { chunks, pages, events, .. }, found) in results {
        check.faults.append(faults);
        check.checked.chunks += chunks;
        check.checked.pages += pages;
        check.checked.events += events;
        all.push(found);
    }
    all
}

/// The check of one CPU.
struct Job<'j, S> {
    reader: &'j Reader<S>,
    info: Option<&'j BufferInfo>,
    extent: CpuExtent,
    events: &'j Events,
    /// The shapes of the events by number.
    table: &'j [Option<&'j Shape>],
    faults: Faults,
    checked: Checked,
    found: CpuFound,
    /// Time of the previous event.
    last: Option<u64>,
    /// The last page without events that marks lost events, while no event is behind it.
    behind: Option<(u64, At)>,
}

impl<'j, S: Source> Job<'j, S> {
    fn new(
        reader: &'j Reader<S>,
        buffer: usize,
        extent: CpuExtent,
        events: &'j Events,
        table: &'j [Option<&'j Shape>],
    ) -> Self {
        let found = CpuFound { buffer, cpu: extent.cpu, whole: true, ..CpuFound::default() };
        Self {
            reader,
            info: reader.buffers().get(buffer),
            extent,
            events,
            table,
            faults: Faults::default(),
            checked: Checked::default(),
            found,
            last: None,
            behind: None,
        }
    }

    fn data_name(&self) -> String {
        let buffer = self.info.map_or(String::new(), |info| buffer_name(&info.name));
        format!("data of CPU {} of {buffer}", self.extent.cpu)
    }

    fn run(&mut self) {
        if self.info.is_some_and(|info| info.compressed) {
            self.chunks();
        }
        match self.reader.cpu_pages(self.found.buffer, self.extent.cpu) {
            Ok(mut pages) => self.pages(&mut pages),
            Err(error) => {
                self.found.whole = false;
                self.unreadable(Rule::Unreadable, At::plain(self.extent.offset), &error);
            }
        }
    }

    fn unreadable(&mut self, rule: Rule, at: At, error: &ReadError) {
        let rule = match error {
            ReadError::Io { .. } => Rule::Source,
            ReadError::Decompress { .. } => Rule::Decompress,
            _ => rule,
        };
        let data_name = self.data_name();
        self.faults.add(rule, at, || data_name, || error.to_string());
    }

    /// Chunks are whole pages and follow one another to the end of the data.
    fn chunks(&mut self) {
        let (reader, CpuExtent { offset, size, .. }) = (self.reader, self.extent);
        let page_size = self.info.map_or(0, |info| info.layout.page_size);
        let len = reader.file_len();
        let end = offset.saturating_add(size);
        let data_name = self.data_name();
        // The chunk count may be left out of the size.
        let mut cursor =
            Cursor::new(reader.source(), reader.header().endian, offset, end.saturating_add(4).min(len));
        let what = "a chunk of trace data";
        let Ok(count) = cursor.u32(what) else { return };
        for number in 0..count {
            let at = At::plain(cursor.at());
            let chunk_name = || format!("chunk {number} of the {data_name}");
            let sizes = cursor.u32(what).and_then(|packed| Ok((packed, cursor.u32(what)?)));
            let plain = sizes.and_then(|(packed, plain)| cursor.skip(what, packed.into()).map(|()| plain));
            match plain {
                Ok(plain) => {
                    self.checked.chunks += 1;
                    if plain == 0 || !plain.is_multiple_of(page_size) {
                        let detail =
                            || format!("{plain} bytes uncompressed are not whole pages of {page_size}");
                        self.faults.add(Rule::Chunk, at, chunk_name, detail);
                    }
                }
                Err(error) => {
                    let left = count - number;
                    let detail =
                        || format!("{error}; it and those behind it, {left} together, cannot be read");
                    self.faults.add(Rule::Chunk, at, chunk_name, detail);
                    return;
                }
            }
        }
        let at = cursor.at();
        if at == end.saturating_add(4) {
            let detail = || format!("{size} bytes are said, {} are used", size.saturating_add(4));
            self.faults.add(Rule::ExtentOld, At::plain(offset), || data_name, detail);
        } else if at != end {
            let detail = || format!("{count} chunks end at {at}, the data at {end}");
            self.faults.add(Rule::Chunk, At::plain(offset), || data_name, detail);
        }
    }

    fn pages(&mut self, pages: &mut CpuPages<'_>) {
        let layout = pages.layout();
        let mut index = 0;
        while index < pages.len() {
            match pages.locate(index) {
                Ok((header, data)) => {
                    self.checked.pages += 1;
                    self.found.pages += 1;
                    let (offset, inside) = pages.file_offset(index);
                    let start = data.start - layout.data_at as usize;
                    let size = layout.page_size as usize;
                    let bytes = pages.bytes();
                    let page = bytes.get(start..bytes.len().min(start + size)).unwrap_or_default();
                    self.commit(index, At { offset, inside }, page, layout);
                    let events = bytes.get(data).unwrap_or_default();
                    self.events(
                        index,
                        At { offset, inside },
                        events,
                        (header.timestamp, header.missed),
                        layout,
                    );
                    index += 1;
                }
                Err(error) => {
                    self.found.whole = false;
                    let (offset, inside) = pages.file_offset(index);
                    if let ReadError::Page { source, .. } = &error {
                        let at = At { offset, inside }.plus(layout.commit_at.into());
                        self.page_fault(Rule::PageCommit, index, at, source);
                    } else {
                        self.unreadable(Rule::Chunk, At::plain(offset), &error);
                    }
                    index = pages.lost_with(index).end;
                }
            }
        }
        // Of compressed data this was reported with the chunks.
        if let Some(error) = pages.take_tail_error() {
            self.found.whole = false;
            let compressed = self.info.is_some_and(|info| info.compressed);
            if !compressed {
                self.unreadable(Rule::Extent, At::plain(self.extent.offset), &error);
            } else if self.faults.is_empty() {
                // A size that fits the pages and is more than the compression can do.
                let at = At::plain(error.offset().unwrap_or(self.extent.offset));
                self.unreadable(Rule::Chunk, at, &error);
            }
        }
        if let Some((index, page)) = self.behind.take() {
            let page_name = self.page_name(index);
            self.faults.add(Rule::LossBehind, page, || page_name, || "no event is behind it".to_owned());
        }
        let (size, page_size) = (self.extent.size, u64::from(layout.page_size));
        if self.info.is_some_and(|info| !info.compressed) && !size.is_multiple_of(page_size) {
            let at = At::plain(self.extent.offset.saturating_add(size / page_size * page_size));
            let data_name = self.data_name();
            self.faults.add(
                Rule::PartPage,
                at,
                || data_name,
                || format!("{} bytes of {page_size}", size % page_size),
            );
        }
    }

    fn page_name(&self, index: u64) -> String {
        format!("page {index} of the {}", self.data_name())
    }

    fn page_fault(&mut self, rule: Rule, index: u64, at: At, error: &PageError) {
        let page_name = self.page_name(index);
        self.faults.add(rule, at, || page_name, || error.to_string());
    }

    /// A commit word is a length of whole words and two marks.
    fn commit(&mut self, index: u64, at: At, page: &[u8], layout: PageLayout) {
        let Some(commit) = layout.long(page, layout.commit_at as usize) else { return };
        let at = at.plus(layout.commit_at.into());
        if page.len() < layout.page_size as usize {
            let page_name = self.page_name(index);
            let detail = || format!("{} bytes of {}", page.len(), layout.page_size);
            self.faults.add(Rule::PartPage, at, || page_name, detail);
        }
        let unknown = commit & !KNOWN_COMMIT_BITS;
        let stored_alone = commit & (MISSED_EVENTS | MISSED_STORED) == MISSED_STORED;
        if unknown != 0 || stored_alone {
            let page_name = self.page_name(index);
            self.faults.add(Rule::PageFlags, at, || page_name, || format!("the commit word is {commit:#x}"));
        }
        let data_len = commit & super::super::page::DATA_LEN_MASK;
        if !data_len.is_multiple_of(4) {
            let page_name = self.page_name(index);
            self.faults.add(
                Rule::PageCommit,
                at,
                || page_name,
                || format!("{data_len} bytes of data are no whole words"),
            );
        }
    }

    /// The events of a page, whose time and mark of losses are `header`.
    fn events(
        &mut self,
        index: u64,
        page: At,
        data: &[u8],
        (time, missed): (u64, Option<u64>),
        layout: PageLayout,
    ) {
        let endian = layout.endian;
        let at = |offset: usize| page.plus(u64::from(layout.data_at) + offset as u64);
        let mut cursor = EventCursor::new(time);
        let mut first = true;
        loop {
            let before = cursor;
            match cursor.step(data, endian) {
                Ok(Some(step)) => {
                    let last = self.last.unwrap_or(0);
                    // Times are numbers that turn over; half of all is far more than a recording lasts.
                    if cursor.time < last || cursor.time < before.time {
                        let (now, last) = (cursor.time, last.max(before.time));
                        let page_name = self.page_name(index);
                        let detail = || format!("an event at {now}, after one at {last}");
                        self.faults.add(Rule::Time, at(before.at), || page_name, detail);
                    }
                    self.last = Some(cursor.time);
                    if first && missed.is_some() && !matches!(step, Step::Data(_)) {
                        self.missed_mark(index, page);
                    }
                    first = false;
                    if let Step::Data(event) = step {
                        if let Some((index, page)) = self.behind.take() {
                            self.missed_mark(index, page);
                        }
                        self.found.events += 1;
                        self.checked.events += 1;
                        let record = data.get(event.start..event.start + event.len).unwrap_or_default();
                        self.record(index, at(event.start), record, endian);
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    self.found.whole = false;
                    self.page_fault(Rule::EventLength, index, at(before.at), &error);
                    break;
                }
            }
        }
        if first
            && missed.is_some()
            && let Some((index, page)) = self.behind.replace((index, page))
        {
            self.missed_mark(index, page);
        }
    }

    fn missed_mark(&mut self, index: u64, page: At) {
        let page_name = self.page_name(index);
        let detail = || "the page begins with no event, and events are behind".to_owned();
        self.faults.add(Rule::MissedMark, page, || page_name, detail);
    }

    /// A record against its event's format.
    fn record(&mut self, index: u64, at: At, record: &[u8], endian: Endian) {
        let len = record.len();
        let Some(id) = record.first_chunk().map(|bytes| endian.read_u16(*bytes)) else {
            let page_name = self.page_name(index);
            return self.faults.add(
                Rule::EventEmpty,
                at,
                || page_name,
                || format!("a record of {len} bytes"),
            );
        };
        let Some(shape) = self.table.get(usize::from(id)).copied().flatten() else {
            let page_name = self.page_name(index);
            return self.faults.add(
                Rule::UnknownEvent,
                at,
                || page_name,
                || format!("a record of event {id}"),
            );
        };
        if len < shape.min {
            let (page_name, name) = (self.page_name(index), self.events.name(id));
            let detail = || format!("a record of {name} has {len} bytes, and its fields {}", shape.min);
            return self.faults.add(Rule::RecordShort, at, || page_name, detail);
        }
        if let Some(max) = shape.max.filter(|max| len > *max) {
            let (page_name, name) = (self.page_name(index), self.events.name(id));
            let detail = || format!("a record of {name} has {len} bytes, and {max} at most");
            self.faults.add(Rule::RecordLong, at, || page_name, detail);
        }
        for field in &shape.dynamic {
            let from = field.offset as usize;
            let word = record.get(from..).and_then(<[u8]>::first_chunk).map(|bytes| endian.read_u32(*bytes));
            let Some(word) = word else { continue };
            let (offset, size) = ((word & 0xffff) as usize, (word >> 16) as usize);
            let offset = if field.location == Location::RelLoc { from + 4 + offset } else { offset };
            if size != 0 && offset + size > len {
                let (page_name, name) = (self.page_name(index), self.events.name(id));
                let detail = || {
                    format!(
                        "a record of {name} has {len} bytes, and {size} bytes of a field at byte {offset}"
                    )
                };
                self.faults.add(Rule::Dynamic, at.plus(from as u64), || page_name, detail);
            }
        }
    }
}
