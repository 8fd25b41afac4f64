//! Encoding of records into pages, in user space.

use super::super::layout::is_page_size;
use super::{DELTA_BITS, PageError, PageLayout, type_len};
use ftrace_event::endian::Endian;

/// Bytes of an event header, and of the length word or the time word after one.
const WORD: usize = 4;

/// Whether a record went onto the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Push {
    /// It did.
    Stored,
    /// It did not, the page is complete: take it with [`PageBuilder::finish`], then push the record again.
    Full,
}

/// Encodes the records of one CPU into pages.
///
/// ```
/// use tracedat::{Endian, page::{PageBuilder, Push}};
///
/// let mut pages = Vec::new();
/// let mut builder = PageBuilder::new(4096, Endian::Little)?;
/// for time in 0..1000 {
///     while builder.push(time, &[0; 40])? == Push::Full {
///         pages.extend_from_slice(builder.finish().unwrap_or_default());
///     }
/// }
/// pages.extend_from_slice(builder.finish().unwrap_or_default());
/// assert_eq!(pages.len() % 4096, 0);
/// # Ok::<(), tracedat::page::PageError>(())
/// ```
#[derive(Clone, Debug)]
pub struct PageBuilder {
    layout: PageLayout,
    /// The page being filled, header first.
    page: Vec<u8>,
    /// Bytes of events on it.
    data_len: usize,
    /// Loss before the page being filled.
    missed: Option<u64>,
    /// Loss after its last record; belongs to the next page.
    missed_after: Option<u64>,
    /// Time of the last record of this CPU, whatever its page.
    last: u64,
}

impl PageBuilder {
    /// A builder of pages of `page_size` bytes.
    ///
    /// # Errors
    /// [`PageError::PageSize`] if there are no pages of that size.
    pub fn new(page_size: usize, endian: Endian) -> Result<Self, PageError> {
        if !u32::try_from(page_size).is_ok_and(is_page_size) {
            return Err(PageError::PageSize { size: page_size });
        }
        Ok(Self::with_layout(PageLayout::native(endian, page_size as u32)))
    }

    /// A builder of pages like those of a file that was read.
    pub fn with_layout(layout: PageLayout) -> Self {
        let page = vec![0; layout.page_size as usize];
        Self { layout, page, data_len: 0, missed: None, missed_after: None, last: 0 }
    }

    /// The most bytes that a record can have: 4072 on a page of 4096.
    pub fn max_record(&self) -> usize {
        self.capacity() - 2 * WORD
    }

    /// Whether no record is on the page being filled.
    pub fn is_empty(&self) -> bool {
        self.data_len == 0
    }

    /// Appends a record: `payload` starts with the common fields of its event.
    ///
    /// Readers see the length of a record in whole words, so what is short of one is filled with zeros.
    ///
    /// # Errors
    /// The record is empty or too big, or its time is before that of the record before it. The builder is as
    /// before.
    pub fn push(&mut self, timestamp: u64, payload: &[u8]) -> Result<Push, PageError> {
        if payload.is_empty() {
            return Err(PageError::EmptyRecord);
        }
        let len = payload.len().next_multiple_of(WORD);
        if len > self.max_record() {
            return Err(PageError::RecordTooBig { len: payload.len(), max: self.max_record() });
        }
        if timestamp < self.last {
            return Err(PageError::TimeBackwards { timestamp, last: self.last });
        }
        if self.missed_after.is_some() {
            // Loss can only be marked before a page, never inside one.
            return Ok(Push::Full);
        }

        let has_length = len > type_len::MAX_DATA as usize * WORD;
        let record = if has_length { 2 * WORD + len } else { WORD + len };
        let delta = if self.is_empty() { 0 } else { timestamp - self.last };
        let extend = delta >> DELTA_BITS != 0;
        let Ok(delta_high) = u32::try_from(delta >> DELTA_BITS) else {
            // More time than an extend can hold (18 years): a new page starts with a time of its own.
            return Ok(Push::Full);
        };
        let needed = if extend { 2 * WORD + record } else { record };
        // A first record may take the room of the lost events' number: better no number than no record.
        let number_len = usize::from(self.layout.long_size);
        let reserved = if self.missed.is_some_and(|count| count != 0) { number_len } else { 0 };
        if !self.is_empty() && self.data_len + needed + reserved > self.capacity() {
            return Ok(Push::Full);
        }

        if self.is_empty() {
            let time = self.layout.endian.u64(timestamp);
            self.page[..time.len()].copy_from_slice(&time);
        }
        let mut delta_low = delta as u32 & ((1 << DELTA_BITS) - 1);
        if extend {
            self.header(type_len::TIME_EXTEND, delta_low);
            self.word(delta_high);
            delta_low = 0;
        }
        if has_length {
            self.header(type_len::DATA_WITH_LENGTH, delta_low);
            self.word((len + WORD) as u32);
        } else {
            self.header((len / WORD) as u32, delta_low);
        }
        self.append(payload);
        self.append(&[0; WORD][..len - payload.len()]);
        self.last = timestamp;
        Ok(Push::Stored)
    }

    /// Tells that `count` events were lost between the last record and the next one (0 = some, not known how
    /// many).
    ///
    /// As loss can only be marked at the start of a page, the next [`push`](Self::push) asks for the page to
    /// be finished. Counts of several calls add up; one unknown among them makes the sum unknown.
    pub fn missed(&mut self, count: u64) {
        let missed = if self.is_empty() { &mut self.missed } else { &mut self.missed_after };
        *missed = Some(match *missed {
            None => count,
            Some(0) => 0,
            Some(_) if count == 0 => 0,
            Some(before) => before.saturating_add(count),
        });
    }

    /// The page, complete; `None` if there is no record on it. The next record starts a new page.
    ///
    /// Loss that was noted but has no record after it stays with the builder: readers lose the mark of an
    /// empty page.
    pub fn finish(&mut self) -> Option<&[u8]> {
        if self.is_empty() {
            return None;
        }
        let data_len = std::mem::take(&mut self.data_len);
        let missed = self.missed.take();
        self.missed = self.missed_after.take();
        // The length is right by construction: whole words, never above the capacity.
        self.layout.seal(&mut self.page, data_len, missed).ok()?;
        Some(&self.page)
    }

    /// The loss that has no record after it yet, and is forgotten by this call. For the end of a CPU's data.
    pub fn take_missed(&mut self) -> Option<u64> {
        if self.is_empty() { self.missed.take() } else { self.missed_after.take() }
    }

    /// Whether a loss was noted that has no record after it yet.
    pub fn has_missed(&self) -> bool {
        self.missed_after.is_some() || self.is_empty() && self.missed.is_some()
    }

    /// Lets the next page begin at any time, also one before that of the last record. The page must have been
    /// finished.
    pub fn restart_time(&mut self) {
        self.last = 0;
    }

    fn capacity(&self) -> usize {
        self.page.len() - self.layout.data_at as usize
    }

    /// Appends an event header. On a big-endian machine the compiler lays the bit fields out the other way
    /// round.
    fn header(&mut self, type_len: u32, delta: u32) {
        self.word(match self.layout.endian {
            Endian::Little => type_len | delta << 5,
            Endian::Big => type_len << DELTA_BITS | delta,
        });
    }

    fn word(&mut self, value: u32) {
        self.append(&self.layout.endian.u32(value));
    }

    fn append(&mut self, bytes: &[u8]) {
        let at = self.layout.data_at as usize + self.data_len;
        self.page[at..at + bytes.len()].copy_from_slice(bytes);
        self.data_len += bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HEADER_LEN, PageHeader};
    use super::*;

    fn builder() -> PageBuilder {
        PageBuilder::new(4096, Endian::Little).unwrap()
    }

    fn stored(builder: &mut PageBuilder, timestamp: u64, payload: &[u8]) {
        assert_eq!(builder.push(timestamp, payload), Ok(Push::Stored));
    }

    fn data(page: &[u8]) -> Vec<u8> {
        let header = PageHeader::read(page, Endian::Little).unwrap();
        page[HEADER_LEN..HEADER_LEN + header.data_len].to_vec()
    }

    #[test]
    fn small_records() {
        let mut builder = builder();
        stored(&mut builder, 0x1122, &[1, 2, 3, 4, 5, 6, 7, 8]);
        stored(&mut builder, 0x1125, &[9, 8, 7, 6, 5]);
        let page = builder.finish().unwrap();
        assert_eq!(page[..16], [0x22, 0x11, 0, 0, 0, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0]);
        // type_len 2, delta 0; then type_len 2, delta 3, filled up to a word.
        let expected = [2, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x62, 0, 0, 0, 9, 8, 7, 6, 5, 0, 0, 0];
        assert_eq!(data(page), expected);
    }

    #[test]
    fn big_endian_header_is_mirrored() {
        let mut builder = PageBuilder::new(4096, Endian::Big).unwrap();
        stored(&mut builder, 1, &[1, 1, 1, 1]);
        stored(&mut builder, 4, &[2, 2, 2, 2]);
        let page = builder.finish().unwrap();
        assert_eq!(page[..16], [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 16]);
        assert_eq!(page[16..32], [0x08, 0, 0, 0, 1, 1, 1, 1, 0x08, 0, 0, 3, 2, 2, 2, 2]);
    }

    #[test]
    fn length_word_above_112_bytes() {
        let mut builder = builder();
        stored(&mut builder, 1, &[5; 112]);
        stored(&mut builder, 1, &[6; 113]);
        let page = data(builder.finish().unwrap());
        assert_eq!(page[..4], [28, 0, 0, 0]);
        // type_len 0; the length counts its own word and the fill.
        assert_eq!(page[116..124], [0, 0, 0, 0, 120, 0, 0, 0]);
        assert_eq!(page[124..], [[6; 113].as_slice(), &[0; 3]].concat());
    }

    #[test]
    fn time_extend_from_2_to_the_27() {
        let mut builder = builder();
        stored(&mut builder, 0, &[1; 4]);
        stored(&mut builder, (1 << 27) - 1, &[2; 4]);
        let page = data(builder.finish().unwrap());
        assert_eq!(page[8..12], [0xe1, 0xff, 0xff, 0xff]);

        let start = 1 << 40;
        stored(&mut builder, start, &[1; 4]);
        stored(&mut builder, start + (3 << 27) + 5, &[2; 4]);
        let page = builder.finish().unwrap();
        assert_eq!(page[..8], start.to_le_bytes());
        let expected = [1, 0, 0, 0, 1, 1, 1, 1, 0xbe, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 2, 2, 2, 2];
        assert_eq!(data(page), expected);
    }

    #[test]
    fn time_beyond_an_extend_starts_a_page() {
        let mut builder = builder();
        stored(&mut builder, 0, &[1; 4]);
        assert_eq!(builder.push(1 << 59, &[1; 4]), Ok(Push::Full));
        builder.finish().unwrap();
        stored(&mut builder, 1 << 59, &[1; 4]);
        assert_eq!(builder.finish().unwrap()[..8], (1u64 << 59).to_le_bytes());
    }

    #[test]
    fn biggest_record_fills_a_page() {
        for size in [4096, 8192, 65536] {
            let mut builder = PageBuilder::new(size, Endian::Little).unwrap();
            assert_eq!(builder.max_record(), size - 24);
            stored(&mut builder, 1, &vec![3; size - 24]);
            assert_eq!(builder.push(1, &[1]), Ok(Push::Full));
            let header = PageHeader::read(builder.finish().unwrap(), Endian::Little).unwrap();
            assert_eq!(header.data_len, size - 16);
            let error = builder.push(1, &vec![3; size - 23]);
            assert_eq!(error, Err(PageError::RecordTooBig { len: size - 23, max: size - 24 }));
        }
    }

    #[test]
    fn errors_leave_the_page_alone() {
        let mut builder = builder();
        stored(&mut builder, 10, &[1; 4]);
        assert_eq!(builder.push(9, &[1; 4]), Err(PageError::TimeBackwards { timestamp: 9, last: 10 }));
        assert_eq!(builder.push(11, &[]), Err(PageError::EmptyRecord));
        assert_eq!(data(builder.finish().unwrap()).len(), 8);
        // Time continues from page to page.
        assert!(builder.push(9, &[1; 4]).is_err());
        assert!(matches!(PageBuilder::new(6000, Endian::Little), Err(PageError::PageSize { size: 6000 })));
    }

    #[test]
    fn loss_is_told_at_the_start_of_a_page() {
        let missed = |page: &[u8]| PageHeader::read(page, Endian::Little).unwrap().missed;
        let mut builder = builder();
        builder.missed(2);
        builder.missed(3);
        stored(&mut builder, 1, &[1; 8]);
        builder.missed(7);
        assert_eq!(builder.push(2, &[1; 8]), Ok(Push::Full));
        assert_eq!(builder.finish().map(missed), Some(Some(5)));
        // Nothing is on the page yet; the loss waits for a record.
        assert_eq!(builder.finish(), None);
        stored(&mut builder, 2, &[1; 8]);
        assert_eq!(builder.finish().map(missed), Some(Some(7)));
        stored(&mut builder, 3, &[1; 8]);
        assert_eq!(builder.finish().map(missed), Some(None));
        builder.missed(4);
        builder.missed(0);
        stored(&mut builder, 4, &[1; 8]);
        assert_eq!(builder.finish().map(missed), Some(Some(0)));
    }

    #[test]
    fn room_is_kept_for_the_count_but_not_at_the_price_of_a_record() {
        let mut builder = builder();
        builder.missed(7);
        let mut records = 0;
        while builder.push(1, &[1; 4]) == Ok(Push::Stored) {
            records += 1;
        }
        let header = PageHeader::read(builder.finish().unwrap(), Endian::Little).unwrap();
        assert_eq!((records, header.missed), (509, Some(7)));
        builder.missed(7);
        stored(&mut builder, 1, &[1; 4072]);
        let header = PageHeader::read(builder.finish().unwrap(), Endian::Little).unwrap();
        assert_eq!((header.data_len, header.missed), (4080, Some(0)));
    }
}
