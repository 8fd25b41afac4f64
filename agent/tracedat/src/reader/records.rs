//! The records of one CPU.

use std::ops::Range;

use super::super::page::{Event, EventCursor};
use super::error::ReadError;
use super::pages::CpuPages;
use super::time::CpuClock;
use ftrace_event::endian::Endian;

/// A record: one event that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The reader that it comes from: its index among those that are merged, otherwise 0.
    pub reader: usize,
    /// The buffer that it comes from: its index in [`Reader::buffers`](super::Reader::buffers).
    pub buffer: usize,
    /// The CPU that it was recorded on.
    pub cpu: u32,
    /// Its time, corrected as the reader was configured; nanoseconds for the usual clocks.
    pub timestamp: u64,
    /// Events of this CPU were lost right before this one: how many, 0 = not known.
    pub missed: Option<u64>,
    /// The record's bytes. There may be up to 3 more than the event's format has, for records are whole
    /// words.
    pub data: &'a [u8],
    /// Byte order of the numbers in it.
    pub endian: Endian,
}

impl Record<'_> {
    /// The number of its event, which every record begins with. `None` if the record is empty.
    #[inline]
    pub fn event_id(&self) -> Option<u16> {
        self.data.first_chunk().map(|bytes| self.endian.read_u16(*bytes))
    }
}

/// The records of one CPU, from any position forwards and backwards.
///
/// It is a position between two records. Errors are no end: what comes after a damaged page is still to be
/// had.
#[derive(Debug)]
pub struct CpuRecords<'r> {
    pages: CpuPages<'r>,
    clock: CpuClock<'r>,
    /// What the records say of where they are from.
    origin: Origin,
    /// The page that the position is on. If it is not loaded, the position is before its first record.
    page: u64,
    loaded: bool,
    /// Where the page's events are.
    data: Range<usize>,
    cursor: EventCursor,
    /// Records of the page that are before the position.
    before: usize,
    /// Events lost before the page.
    missed: Option<u64>,
    /// Events lost before empty pages that were skipped.
    carried: Option<u64>,
    /// Events lost at both ends that no page marks.
    ends: (Option<u64>, Option<u64>),
    /// Where the page's records are, if they had to be known all; kept for the memory.
    index: Vec<(EventCursor, Event)>,
    indexed: bool,
}

/// Where records are from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) reader: usize,
    pub(crate) buffer: usize,
    pub(crate) cpu: u32,
}

/// A record before its bytes are looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// Corrected.
    pub(crate) timestamp: u64,
    pub(crate) missed: Option<u64>,
    start: usize,
    len: usize,
}

impl<'r> CpuRecords<'r> {
    pub(crate) fn new(pages: CpuPages<'r>, clock: CpuClock<'r>, origin: Origin) -> Self {
        Self {
            pages,
            clock,
            origin,
            page: 0,
            loaded: false,
            data: 0..0,
            cursor: EventCursor::default(),
            before: 0,
            missed: None,
            carried: None,
            ends: (None, None),
            index: Vec::new(),
            indexed: false,
        }
    }

    /// The CPU.
    pub fn cpu(&self) -> u32 {
        self.origin.cpu
    }

    /// The same, with events that were lost before the first record and behind the last one, beside those
    /// that pages mark: 0 = not known how many.
    #[must_use]
    pub fn with_losses(mut self, before: Option<u64>, behind: Option<u64>) -> Self {
        self.ends = (before, behind);
        self.rewind();
        self
    }

    /// Events lost behind the last record: 0 = not known how many. Known when the end was reached.
    pub fn lost_behind(&self) -> Option<u64> {
        // Without any page all of it is behind.
        let marked = if self.pages.is_empty() { self.ends.0 } else { self.carried };
        sum_of_losses(marked.filter(|_| self.page >= self.pages.len()), self.ends.1)
    }

    /// What its records say of where they are from.
    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// The record after this position, and moves past it; `None` at the end.
    ///
    /// # Errors
    /// A damaged page or chunk. The next call continues with the page after it. What is wrong with the end of
    /// the data, if anything, is reported once, after the last record.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        let found = self.advance()?;
        Ok(found.map(|found| self.view(&found)))
    }

    /// The record before this position, and moves before it; `None` at the start.
    ///
    /// # Errors
    /// As [`next_record`](Self::next_record). Of a page that is damaged somewhere in the middle the records
    /// before the damage come after the error.
    pub fn prev_record(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        let found = self.retreat()?;
        Ok(found.map(|found| self.view(&found)))
    }

    /// Goes before the first record.
    pub fn rewind(&mut self) {
        self.go_to(0);
    }

    /// Goes past the last record.
    pub fn fast_forward(&mut self) {
        self.go_to(self.pages.len());
    }

    /// Goes before the first record that is not before `timestamp` (a corrected time). Looks at O(log n)
    /// pages.
    ///
    /// Pages that cannot be read are passed over; reading on from here reports them.
    pub fn seek(&mut self, timestamp: u64) {
        let (mut low, mut high) = (0, self.pages.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.first_readable(middle, high) {
                Some((page, time)) if time < timestamp => low = page + 1,
                _ => high = middle,
            }
        }
        // The page before may have later records. Damaged ones have no times, so it may be farther back.
        let mut page = low.saturating_sub(1);
        while page > 0 && self.pages.locate(page).is_err() {
            page = self.pages.lost_with(page).start.saturating_sub(1);
        }
        self.go_to(page);
        loop {
            let (page, cursor, before, carried) = (self.page, self.cursor, self.before, self.carried);
            let was_loaded = self.loaded;
            if !was_loaded && page >= self.pages.len() {
                return;
            }
            match self.advance() {
                Ok(None) => return,
                Ok(Some(found)) if found.timestamp >= timestamp => {
                    if was_loaded && self.page == page {
                        (self.cursor, self.before, self.carried) = (cursor, before, carried);
                    } else {
                        // It is the first of its page.
                        self.go_to(self.page);
                    }
                    return;
                }
                Ok(Some(_)) | Err(_) => {}
            }
        }
    }

    /// The position: a page, and how many of its records are before it.
    pub(crate) fn position(&self) -> (u64, usize) {
        (self.page, if self.loaded { self.before } else { 0 })
    }

    /// Goes to a position that [`position`](Self::position) returned, or to the end of its page if there are
    /// fewer records.
    pub(crate) fn go_to_position(&mut self, (page, record): (u64, usize)) {
        self.go_to(page);
        while self.page == page && self.page < self.pages.len() && self.position().1 < record {
            // A damaged record ends its page.
            let _ = self.advance();
        }
    }

    /// The page that the position is on, and bytes of the file that it takes.
    pub(crate) fn pages(&mut self) -> &mut CpuPages<'r> {
        &mut self.pages
    }

    /// The time of a page, corrected; `None` if it cannot be read.
    pub(crate) fn page_time(&mut self, page: u64) -> Option<u64> {
        let (header, _) = self.pages.locate(page).ok()?;
        self.loaded = false;
        Some(self.clock.correct(header.timestamp))
    }

    /// The first page of these that can be read, and its time.
    fn first_readable(&mut self, mut page: u64, end: u64) -> Option<(u64, u64)> {
        while page < end {
            match self.pages.locate(page) {
                Ok((header, _)) => return Some((page, self.clock.correct(header.timestamp))),
                Err(_) => page = self.pages.lost_with(page).end,
            }
        }
        None
    }

    fn go_to(&mut self, page: u64) {
        self.page = page;
        self.loaded = false;
        self.carried = None;
    }

    /// Loads the current page and goes before its first record.
    fn load(&mut self) -> Result<(), ReadError> {
        self.loaded = false;
        let (header, data) = self.pages.locate(self.page)?;
        self.data = data;
        self.cursor = EventCursor::new(header.timestamp);
        self.before = 0;
        self.missed = sum_of_losses(self.ends.0.filter(|_| self.page == 0), header.missed);
        self.indexed = false;
        self.loaded = true;
        Ok(())
    }

    #[inline]
    pub(crate) fn advance(&mut self) -> Result<Option<Found>, ReadError> {
        let mut found = None;
        self.advance_to(&mut found).map(|()| found)
    }

    /// As [`advance`](Self::advance), with the place for what is found: it is not copied from one place to
    /// another. After an error there is nothing in it.
    pub(crate) fn advance_to(&mut self, next: &mut Option<Found>) -> Result<(), ReadError> {
        *next = None;
        loop {
            if !self.loaded {
                if self.page >= self.pages.len() {
                    return self.pages.take_tail_error().map_or(Ok(()), Err);
                }
                if let Err(error) = self.load() {
                    self.page = self.pages.lost_with(self.page).end;
                    return Err(error);
                }
            }
            let data = self.pages.bytes().get(self.data.clone()).unwrap_or_default();
            match self.cursor.next(data, self.pages.layout().endian) {
                Ok(Some(event)) => {
                    let missed =
                        if self.before == 0 { sum_of_losses(self.carried.take(), self.missed) } else { None };
                    self.before += 1;
                    *next = Some(self.found(&event, missed));
                    return Ok(());
                }
                Ok(None) => {
                    if self.before == 0 {
                        self.carried = sum_of_losses(self.carried, self.missed);
                    }
                    self.page += 1;
                    self.loaded = false;
                }
                Err(error) => {
                    let error = self.pages.page_error(self.page, error);
                    self.page += 1;
                    self.loaded = false;
                    return Err(error);
                }
            }
        }
    }

    pub(crate) fn retreat(&mut self) -> Result<Option<Found>, ReadError> {
        self.carried = None;
        loop {
            if self.loaded && self.before > 0 {
                if !self.indexed {
                    // The page was read from its start to here, so that what is needed of it is whole.
                    let _ = self.make_index();
                }
                self.before -= 1;
                if let Some(&(cursor, event)) = self.index.get(self.before) {
                    self.cursor = cursor;
                    let missed = if self.before == 0 { self.missed } else { None };
                    return Ok(Some(self.found(&event, missed)));
                }
                continue;
            }
            if self.page == 0 {
                self.loaded = false;
                return Ok(None);
            }
            self.page -= 1;
            if let Err(error) = self.load() {
                self.page = self.pages.lost_with(self.page).start;
                return Err(error);
            }
            let result = self.make_index();
            self.before = self.index.len();
            self.cursor.at = self.data.len();
            result?;
        }
    }

    /// Finds all records of the page that is loaded.
    fn make_index(&mut self) -> Result<(), ReadError> {
        self.index.clear();
        self.indexed = true;
        let (header, data) = self.pages.locate(self.page)?;
        let endian = self.pages.layout().endian;
        let data = self.pages.bytes().get(data).unwrap_or_default();
        let mut cursor = EventCursor::new(header.timestamp);
        loop {
            let event_cursor = cursor;
            match cursor.next(data, endian) {
                Ok(Some(event)) => self.index.push((event_cursor, event)),
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.pages.page_error(self.page, error)),
            }
        }
    }

    #[inline]
    fn found(&self, event: &Event, missed: Option<u64>) -> Found {
        let timestamp = self.clock.correct(event.time);
        Found { timestamp, missed, start: self.data.start + event.start, len: event.len }
    }

    /// The record, until the position is moved.
    #[inline]
    pub(crate) fn view(&self, found: &Found) -> Record<'_> {
        let Origin { reader, buffer, cpu } = self.origin;
        let data = self.pages.bytes().get(found.start..found.start + found.len).unwrap_or_default();
        let Found { timestamp, missed, .. } = *found;
        Record { reader, buffer, cpu, timestamp, missed, data, endian: self.pages.layout().endian }
    }
}

/// Two losses as one. 0 is a number that is not known, and so is a sum with one.
pub fn sum_of_losses(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(0), Some(_)) | (Some(_), Some(0)) => Some(0),
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        (one, other) => one.or(other),
    }
}
