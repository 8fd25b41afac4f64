//! Walking over the events of a page.

use super::{DELTA_BITS, PageError, type_len};
use super::{HEADER_LEN, PageHeader};
use ftrace_event::endian::Endian;

/// The 5 bits of an absolute time stamp that do not fit its 59.
const STAMP_HIGH: u64 = 0xf8 << 56;

/// A position between two events of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCursor {
    /// Where the next event's header is, counted from the first byte of the data.
    pub at: usize,
    /// Time of the previous event; at the start of the data, of the page.
    pub time: u64,
}

/// A data event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its time in units of the clock, as the page has it.
    pub time: u64,
    /// Where its record begins, counted from the first byte of the data.
    pub start: usize,
    /// Bytes of the record, a multiple of 4.
    pub len: usize,
}

/// Shows `each` the records of a page in their order, up to where the page is damaged.
pub fn each_record(page: &[u8], endian: Endian, mut each: impl FnMut(&[u8])) {
    each_timed_record(page, endian, |_, record| each(record));
}

/// The same with the time of each.
pub fn each_timed_record(page: &[u8], endian: Endian, mut each: impl FnMut(u64, &[u8])) {
    let Ok(header) = PageHeader::read(page, endian) else { return };
    let Some(data) = page.get(HEADER_LEN..HEADER_LEN + header.data_len) else { return };
    let mut cursor = EventCursor::new(header.timestamp);
    while let Ok(Some(event)) = cursor.next(data, endian) {
        if let Some(record) = data.get(event.start..event.start + event.len) {
            each(event.time, record);
        }
    }
}

impl EventCursor {
    /// The first event of a page of this time.
    pub const fn new(page_time: u64) -> Self {
        Self { at: 0, time: page_time }
    }

    /// The next data event of `data`, which is what the page holds after its header; `None` at the end.
    ///
    /// The kinds of event are those of tracefs' `events/header_event`; see [`type_len`]. Padding counts with
    /// its time, as in libtraceevent: an event that the kernel discarded becomes padding, and those after it
    /// count from there. Of an absolute stamp, the bits that do not fit are those of the time before it.
    ///
    /// # Errors
    /// [`PageError::Event`] for an event that does not end inside the data. The cursor stays before it.
    #[inline]
    pub fn next(&mut self, data: &[u8], endian: Endian) -> Result<Option<Event>, PageError> {
        let mut cursor = *self;
        loop {
            match cursor.step(data, endian)? {
                Some(Step::Data(event)) => {
                    *self = cursor;
                    return Ok(Some(event));
                }
                Some(Step::Padding | Step::Time) => {}
                None => {
                    *self = cursor;
                    return Ok(None);
                }
            }
        }
    }

    /// As [`next`](Self::next), and stops at what is no data, too.
    #[inline]
    pub(crate) fn step(&mut self, data: &[u8], endian: Endian) -> Result<Option<Step>, PageError> {
        let Self { at, time } = *self;
        let broken = PageError::Event { at, data_len: data.len() };
        let Some(header) = word(data, at, endian) else {
            return if at == data.len() { Ok(None) } else { Err(broken) };
        };
        // The five bits are the first ones of the word in the file's own bit order.
        let (kind, delta) = match endian {
            Endian::Little => (header & 0x1f, u64::from(header >> 5)),
            Endian::Big => (header >> DELTA_BITS, u64::from(header & ((1 << DELTA_BITS) - 1))),
        };
        let body = at + 4;
        if (1..=type_len::MAX_DATA).contains(&kind) {
            let len = kind as usize * 4;
            if len > data.len() - body {
                return Err(broken);
            }
            *self = Self { at: body + len, time: time.wrapping_add(delta) };
            return Ok(Some(Step::Data(Event { time: self.time, start: body, len })));
        }
        let second = word(data, body, endian).ok_or(broken)?;
        match kind {
            type_len::DATA_WITH_LENGTH => {
                let start = body + 4;
                // The length counts its own word.
                let len = (second as usize).checked_sub(4).ok_or(broken)?;
                let len = len.checked_next_multiple_of(4).filter(|len| *len <= data.len() - start);
                let len = len.ok_or(broken)?;
                *self = Self { at: start + len, time: time.wrapping_add(delta) };
                Ok(Some(Step::Data(Event { time: self.time, start, len })))
            }
            type_len::PADDING => {
                let len = second as usize;
                if len > data.len() - body {
                    return Err(broken);
                }
                *self = Self { at: body + len, time: time.wrapping_add(delta) };
                Ok(Some(Step::Padding))
            }
            _ => {
                let long = u64::from(second) << DELTA_BITS | delta;
                let extend = kind == type_len::TIME_EXTEND;
                let time = if extend { time.wrapping_add(long) } else { time & STAMP_HIGH | long };
                *self = Self { at: body + 4, time };
                Ok(Some(Step::Time))
            }
        }
    }
}

/// What an event header introduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A data event.
    Data(Event),
    /// Bytes that are skipped.
    Padding,
    /// Nothing but time: an extend or an absolute stamp.
    Time,
}

#[inline]
fn word(data: &[u8], at: usize, endian: Endian) -> Option<u32> {
    data.get(at..)?.first_chunk().map(|bytes| endian.read_u32(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: u32, delta: u32) -> u32 {
        kind | delta << 5
    }

    /// Time, start and length of each event, and how it ended.
    type Walked = (Vec<(u64, usize, usize)>, Result<(), PageError>);

    fn walk(words: &[u32], endian: Endian) -> Walked {
        let mut data = Vec::new();
        for (at, word) in words.iter().enumerate() {
            // Headers are given little endian; in the other order the bits stand mirrored.
            let word =
                if endian == Endian::Big && at % 2 == 0 { (word & 0x1f) << 27 | word >> 5 } else { *word };
            data.extend_from_slice(&endian.u32(word));
        }
        let mut cursor = EventCursor::new((0xa8 << 56) + 100);
        let mut events = Vec::new();
        loop {
            match cursor.next(&data, endian) {
                Ok(Some(Event { time, start, len })) => events.push((time, start, len)),
                Ok(None) => return (events, Ok(())),
                Err(error) => return (events, Err(error)),
            }
        }
    }

    #[test]
    fn every_kind_of_event() {
        let high = 0xa8 << 56;
        for endian in [Endian::Little, Endian::Big] {
            let words = [
                header(1, 5),
                7,
                header(type_len::TIME_EXTEND, 1),
                2,
                header(type_len::PADDING, 3),
                4,
                header(type_len::DATA_WITH_LENGTH, 10),
                4 + 5,
                1,
                1,
                header(type_len::TIME_STAMP, 9),
                1,
                header(1, 1),
                7,
            ];
            let second = high + 105 + (2 << 27) + 1 + 3 + 10;
            let third = high + (1 << 27) + 9 + 1;
            let expected = vec![(high + 105, 4, 4), (second, 32, 8), (third, 52, 4)];
            assert_eq!(walk(&words, endian), (expected, Ok(())));
        }
    }

    #[test]
    fn events_that_do_not_end() {
        for words in [
            &[header(2, 0), 1][..],
            &[header(0, 0)],
            &[header(0, 0), 3],
            &[header(0, 0), u32::MAX],
            &[header(0, 0), 9, 1],
            &[header(29, 1), 5],
            &[header(29, 1), u32::MAX],
            &[header(30, 1)],
            &[header(31, 1)],
        ] {
            let (events, result) = walk(words, Endian::Little);
            assert_eq!(events, []);
            assert_eq!(result, Err(PageError::Event { at: 0, data_len: words.len() * 4 }), "{words:?}");
        }
        assert_eq!(
            EventCursor::new(0).next(&[1, 2], Endian::Little),
            Err(PageError::Event { at: 0, data_len: 2 })
        );
    }
}
