//! Ring buffer pages: the unit in which trace data are recorded, stored and read.
//!
//! Layout, as tracefs' `events/header_page` and `events/header_event` have it for a 64-bit kernel:
//!
//! | bytes | meaning |
//! |---|---|
//! | 0..8 | u64 timestamp: time of the first event, clock units (nanoseconds) |
//! | 8..16 | u64 commit: low 27 bits = bytes of data; bit 31 = events were lost before this page; bit 30 = a u64 after the data tells how many |
//! | 16.. | events, each with a u32 header of 5 bits `type_len` and 27 bits time since the previous event, every one a multiple of 4 bytes |
//!
//! Rules that readers rely on without saying so:
//! - The first thing on a page is a data event whose time is the page's timestamp (delta 0). On a page that
//!   starts with a time extend, or that is empty, readers lose the flag and the count of missed events.
//! - The count of missed events is stored only where 8 more bytes fit after the data; otherwise only the
//!   flag.
//! - Time cannot go backwards inside a page, for deltas are unsigned.

//!
//! Pages of 32-bit kernels have a commit word of 4 bytes, so that their data begin at 12. [`PageLayout`]
//! knows which they are.

mod builder;
mod events;
mod layout;

pub use builder::{PageBuilder, Push};
pub(crate) use events::Step;
pub use events::{Event, EventCursor};
pub use events::{each_record, each_timed_record};
pub use layout::{LayoutError, PageLayout};

use ftrace_event::endian::Endian;

/// Bytes before the first event of a page: u64 timestamp, u64 commit.
pub const HEADER_LEN: usize = 16;

/// Offset of the u64 commit word.
const COMMIT_AT: usize = 8;

/// Commit flag: events were lost between the page before and this one.
pub const MISSED_EVENTS: u64 = 1 << 31;

/// Commit flag: the number of lost events is stored after the data.
pub const MISSED_STORED: u64 = 1 << 30;

/// The bits of the commit word that hold the length of the data.
pub const DATA_LEN_MASK: u64 = (1 << 27) - 1;

/// The 5-bit `type_len` of an event header.
///
/// Values 1 to [`MAX_DATA`](type_len::MAX_DATA) are a data event of that many 32-bit words.
pub mod type_len {
    /// A data event whose length (4 more than its payload's) is in the u32 after the header.
    pub const DATA_WITH_LENGTH: u32 = 0;
    /// Largest payload that `type_len` itself can hold, in words of 4 bytes.
    pub const MAX_DATA: u32 = 28;
    /// Nothing: the u32 after the header tells how many bytes to skip after the header.
    pub const PADDING: u32 = 29;
    /// The u32 after the header is bits 27.. of the time since the previous event.
    pub const TIME_EXTEND: u32 = 30;
    /// The u32 after the header is bits 27.. of the time itself (59 bits).
    pub const TIME_STAMP: u32 = 31;
}

/// Bits of time that an event header holds.
pub const DELTA_BITS: u32 = 27;

/// What makes a page or a record impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// Page sizes are powers of two from 4096 to 1048576.
    #[error("a page of {size} bytes cannot be written: sizes are powers of two from 4096 to 1048576")]
    PageSize {
        /// The size that was asked for.
        size: usize,
    },
    /// The record does not fit even on an empty page.
    #[error("a record of {len} bytes is too big: a page holds {max} at most")]
    RecordTooBig {
        /// Bytes of the record.
        len: usize,
        /// Most bytes that a record can have on a page of this size.
        max: usize,
    },
    /// A record starts with the number of its event, so none is empty.
    #[error("a record without bytes")]
    EmptyRecord,
    /// Deltas cannot be negative: records of a CPU must come sorted by time.
    #[error("timestamp {timestamp} is before {last}, the one of the record before")]
    TimeBackwards {
        /// The record's time.
        timestamp: u64,
        /// Time of the record before it on this CPU.
        last: u64,
    },
    /// The data length does not fit the page, or is not a multiple of 4.
    #[error("{data_len} bytes of data on a page of {page_len} bytes")]
    DataLen {
        /// Bytes of data that the page is said to have.
        data_len: u64,
        /// Bytes of the page.
        page_len: usize,
    },
    /// An event does not fit the data: what follows on the page cannot be read.
    #[error("the event at byte {at} of the page's {data_len} bytes of data does not end inside them")]
    Event {
        /// Where the event's header is, counted from the first byte of the data.
        at: usize,
        /// Bytes of data.
        data_len: usize,
    },
}

/// What the first 16 bytes of a page say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageHeader {
    /// Time of the first event.
    pub timestamp: u64,
    /// Bytes of events after the header.
    pub data_len: usize,
    /// Whether events were lost before this page; 0 = some, how many is not known.
    pub missed: Option<u64>,
}

impl PageHeader {
    /// Reads the header of `page` (a whole page, for the number of lost events follows the data).
    ///
    /// # Errors
    /// [`PageError::DataLen`] if the data would end past the page. Readers give up a whole file for one such
    /// page.
    pub fn read(page: &[u8], endian: Endian) -> Result<Self, PageError> {
        let short = PageError::DataLen { data_len: 0, page_len: page.len() };
        let timestamp = word(page, 0, endian).ok_or(short)?;
        let commit = word(page, COMMIT_AT, endian).ok_or(short)?;
        let data_len = (commit & DATA_LEN_MASK) as usize;
        let wrong = PageError::DataLen { data_len: data_len as u64, page_len: page.len() };
        if HEADER_LEN + data_len > page.len() {
            return Err(wrong);
        }
        let missed = match (commit & MISSED_EVENTS != 0, commit & MISSED_STORED != 0) {
            (false, _) => None,
            (true, false) => Some(0),
            (true, true) => Some(word(page, HEADER_LEN + data_len, endian).ok_or(wrong)?),
        };
        Ok(Self { timestamp, data_len, missed })
    }
}

/// Bytes of events on `page`, or `None` if the page is shorter than its header.
///
/// The value is what the commit word says; see [`PageHeader::read`] for one that is checked against the page.
pub fn data_len(page: &[u8], endian: Endian) -> Option<usize> {
    Some((word(page, COMMIT_AT, endian)? & DATA_LEN_MASK) as usize)
}

/// What a whole page holds, as [`EventCursor`] walks over it: who counts by other rules than those who read
/// later counts what they do not see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageSummary {
    /// What stands before the events.
    pub header: PageHeader,
    /// Number of data events.
    pub events: u64,
    /// Time of the last of them in units of the clock.
    pub last_time: Option<u64>,
}

impl PageSummary {
    /// Walks over all events of `page`.
    ///
    /// # Errors
    /// Those of [`PageHeader::read`], and [`PageError::Event`] for an event that does not end inside the
    /// page's data.
    pub fn read(page: &[u8], endian: Endian) -> Result<Self, PageError> {
        let header = PageHeader::read(page, endian)?;
        let wrong = PageError::DataLen { data_len: header.data_len as u64, page_len: page.len() };
        let data = page.get(HEADER_LEN..).and_then(|rest| rest.get(..header.data_len)).ok_or(wrong)?;
        let (mut cursor, mut events, mut last_time) = (EventCursor::new(header.timestamp), 0, None);
        while let Some(event) = cursor.next(data, endian)? {
            events += 1;
            last_time = Some(event.time);
        }
        Ok(Self { header, events, last_time })
    }
}

/// Finishes a page that holds `data_len` bytes of events: writes the commit word, and zeroes what is after
/// the data.
///
/// `missed` says that events were lost before this page: `Some(n)` of them, `Some(0)` = not known how many.
/// The number is stored if 8 bytes fit after the data.
///
/// The rest is zeroed because a page that is used again still holds old events there: they would cost space
/// when compressed and would leak into the file.
///
/// # Errors
/// [`PageError::DataLen`] if that many bytes are not on the page, or are not whole words.
pub fn seal(page: &mut [u8], endian: Endian, data_len: usize, missed: Option<u64>) -> Result<(), PageError> {
    PageLayout::native(endian, page.len() as u32).seal(page, data_len, missed)
}

/// The u64 at `at`.
fn word(page: &[u8], at: usize, endian: Endian) -> Option<u64> {
    page.get(at..)?.first_chunk().map(|bytes| endian.read_u64(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(data: &[u8]) -> Vec<u8> {
        let mut page = vec![0xee; 4096];
        page[..8].copy_from_slice(&77u64.to_le_bytes());
        page[HEADER_LEN..HEADER_LEN + data.len()].copy_from_slice(data);
        page
    }

    #[test]
    fn seal_writes_the_length_and_clears_the_rest() {
        let mut page = page(&[1; 12]);
        seal(&mut page, Endian::Little, 12, None).unwrap();
        assert_eq!(page[..16], [77, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(page[16..28], [1; 12]);
        assert!(page[28..].iter().all(|byte| *byte == 0));
        let header = PageHeader { timestamp: 77, data_len: 12, missed: None };
        assert_eq!(PageHeader::read(&page, Endian::Little), Ok(header));
        assert_eq!(data_len(&page, Endian::Little), Some(12));
    }

    #[test]
    fn missed_count_goes_behind_the_data() {
        let mut page = page(&[1; 8]);
        seal(&mut page, Endian::Little, 8, Some(0x0102)).unwrap();
        assert_eq!(page[8..16], [8, 0, 0, 0xc0, 0, 0, 0, 0]);
        assert_eq!(page[24..34], [2, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(PageHeader::read(&page, Endian::Little).unwrap().missed, Some(0x0102));
    }

    #[test]
    fn missed_count_needs_room() {
        for (data_len, stored) in [(4072, true), (4076, false), (4080, false)] {
            let mut page = vec![0; 4096];
            seal(&mut page, Endian::Little, data_len, Some(9)).unwrap();
            let missed = PageHeader::read(&page, Endian::Little).unwrap().missed;
            assert_eq!(missed, Some(if stored { 9 } else { 0 }), "{data_len}");
        }
        // A number that is not known is not stored, though it would fit.
        let mut page = vec![0; 4096];
        seal(&mut page, Endian::Little, 4, Some(0)).unwrap();
        assert_eq!(page[8..16], [4, 0, 0, 0x80, 0, 0, 0, 0]);
    }

    #[test]
    fn wrong_lengths() {
        let mut page = vec![0; 4096];
        assert!(seal(&mut page, Endian::Little, 4084, None).is_err());
        assert!(seal(&mut page, Endian::Little, 3, None).is_err());
        page[8..12].copy_from_slice(&4084u32.to_le_bytes());
        assert!(PageHeader::read(&page, Endian::Little).is_err());
        // Flagged as stored, but past the end of the page.
        page[8..16].copy_from_slice(&(0xfec | MISSED_EVENTS | MISSED_STORED).to_le_bytes());
        assert!(PageHeader::read(&page, Endian::Little).is_err());
        assert!(PageHeader::read(&page[..12], Endian::Little).is_err());
        assert_eq!(data_len(&[], Endian::Little), None);
    }
}
