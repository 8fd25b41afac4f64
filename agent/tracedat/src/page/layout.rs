//! The layout of pages, as the text `header_page` has it.

use super::{DATA_LEN_MASK, MISSED_EVENTS, MISSED_STORED, PageError, PageHeader};
use ftrace_event::endian::Endian;
use ftrace_event::format::Field;

/// Largest page that is read. A commit word has 27 bits for the length of the data; the kernel's largest
/// sub-buffers are far smaller, and a number beyond them is more likely damage than a page.
const MAX_READ_PAGE: u32 = 16 << 20;

/// Where things are on a page.
///
/// The commit word is a `long` of the recorded kernel: 8 bytes, and on 32-bit kernels 4. Its size is what the
/// text `header_page` says, not what the byte in the file header says, which is of the recording program
/// (trace-cmd.dat.v7(5), HEADER INFO SECTION).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLayout {
    /// Byte order.
    pub endian: Endian,
    /// Bytes of a page.
    pub page_size: u32,
    /// Bytes of the commit word and of the number of lost events: 4 or 8.
    pub long_size: u8,
    /// Where the commit word is.
    pub commit_at: u32,
    /// Where the events begin.
    pub data_at: u32,
}

/// What makes a `header_page` text useless.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A line that is no field.
    #[error("line {0:?} is no field")]
    Line(String),
    /// A character that no kernel writes there.
    #[error("it has the character {character:?} at {at}, where stock readers stop reading it")]
    Character {
        /// Byte of the text.
        at: usize,
        /// The character; U+FFFD for bytes that are no UTF-8.
        character: char,
    },
    /// A field that must be there.
    #[error("it has no field {0}")]
    Missing(&'static str),
    /// A field is not where, or not as long, as pages of any kernel have it.
    #[error("its field {name} is {size} bytes at {offset}, which is no kernel's page")]
    Field {
        /// The field.
        name: &'static str,
        /// Where it is said to be.
        offset: u32,
        /// How long it is said to be.
        size: u32,
    },
}

impl PageLayout {
    /// Layout of 64-bit pages, as this crate writes them.
    pub const fn native(endian: Endian, page_size: u32) -> Self {
        Self { endian, page_size, long_size: 8, commit_at: 8, data_at: super::HEADER_LEN as u32 }
    }

    /// Layout that the text `header_page` describes. The page ends with the field `data`.
    pub fn parse(endian: Endian, header_page: &str) -> Result<Self, LayoutError> {
        let mut fields = Vec::new();
        for line in header_page.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let parsed = line.strip_prefix("field:").and_then(|text| Field::parse(text).ok());
            fields.push(parsed.ok_or_else(|| LayoutError::Line(line.chars().take(80).collect()))?);
        }
        let field = |name: &'static str, fits: &dyn Fn(u32, u32) -> bool| {
            let field = fields.iter().find(|field| field.name == name).ok_or(LayoutError::Missing(name))?;
            let (offset, size) = (field.offset, field.size);
            if fits(offset, size) {
                Ok((offset, size))
            } else {
                Err(LayoutError::Field { name, offset, size })
            }
        };
        field("timestamp", &|offset, size| (offset, size) == (0, 8))?;
        let (commit_at, long_size) =
            field("commit", &|offset, size| (8..256).contains(&offset) && matches!(size, 4 | 8))?;
        let data_starts = commit_at + long_size;
        let (data_at, data_len) = field("data", &|offset, size| {
            (data_starts..512).contains(&offset) && size >= 8 && size <= MAX_READ_PAGE - offset
        })?;
        Ok(Self { endian, page_size: data_at + data_len, long_size: long_size as u8, commit_at, data_at })
    }

    /// Finds what a text has that no kernel writes, although the layout can be read from it: to libtraceevent
    /// a byte above 0x7f is the end of the text (`__read_char` and `get_type` of event-parse.c: a negative
    /// `char`), so that trace-cmd refuses the file or reads pages where they are not.
    ///
    /// # Errors
    /// The first such character.
    pub fn check_characters(header_page: &str) -> Result<(), LayoutError> {
        let is_foreign = |c: &(usize, char)| !matches!(c.1, ' '..='~' | '\t' | '\n');
        match header_page.char_indices().find(is_foreign) {
            Some((at, character)) => Err(LayoutError::Character { at, character }),
            None => Ok(()),
        }
    }

    /// The text `header_page` of pages of this layout.
    pub fn header_page_text(&self) -> String {
        let &Self { endian: _, page_size, long_size, commit_at, data_at } = self;
        format!(
            "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
             \tfield: local_t commit;\toffset:{commit_at};\tsize:{long_size};\tsigned:1;\n\
             \tfield: int overwrite;\toffset:{commit_at};\tsize:1;\tsigned:1;\n\
             \tfield: char data;\toffset:{data_at};\tsize:{};\tsigned:0;\n",
            page_size.saturating_sub(data_at)
        )
    }

    /// The same with pages of another size, as a named buffer may have them; `None` if that is no size of a
    /// page.
    pub fn with_page_size(self, page_size: u32) -> Option<Self> {
        let fits = page_size > self.data_at + 8 && page_size <= MAX_READ_PAGE;
        fits.then_some(Self { page_size, ..self })
    }

    /// Reads the header of `page`. A page at the end of a damaged file may be shorter than the others.
    ///
    /// # Errors
    /// [`PageError::DataLen`] if the data, or the number of lost events, would end past the page.
    pub fn header(&self, page: &[u8]) -> Result<PageHeader, PageError> {
        let wrong = |data_len| PageError::DataLen { data_len, page_len: page.len() };
        let timestamp =
            page.first_chunk().map(|bytes| self.endian.read_u64(*bytes)).ok_or_else(|| wrong(0))?;
        let commit = self.long(page, self.commit_at as usize).ok_or_else(|| wrong(0))?;
        let data_len = commit & DATA_LEN_MASK;
        let end = self.data_at as usize + data_len as usize;
        if end > page.len() {
            return Err(wrong(data_len));
        }
        let missed = match (commit & MISSED_EVENTS != 0, commit & MISSED_STORED != 0) {
            (false, _) => None,
            (true, false) => Some(0),
            (true, true) => Some(self.long(page, end).ok_or_else(|| wrong(data_len))?),
        };
        Ok(PageHeader { timestamp, data_len: data_len as usize, missed })
    }

    /// Finishes a page that holds `data_len` bytes of events: [`seal`](super::seal) for pages of this layout.
    /// The time is not touched.
    ///
    /// # Errors
    /// [`PageError::DataLen`] if that many bytes are not on the page, or are not whole words.
    pub fn seal(&self, page: &mut [u8], data_len: usize, missed: Option<u64>) -> Result<(), PageError> {
        let end = self.data_at as usize + data_len;
        if end > page.len() || data_len as u64 > DATA_LEN_MASK || !data_len.is_multiple_of(4) {
            return Err(PageError::DataLen { data_len: data_len as u64, page_len: page.len() });
        }
        page[end..].fill(0);
        let mut commit = data_len as u64;
        if let Some(count) = missed {
            commit |= MISSED_EVENTS;
            if count != 0 && end + usize::from(self.long_size) <= page.len() && self.fits_long(count) {
                commit |= MISSED_STORED;
                self.put_long(page, end, count);
            }
        }
        self.put_long(page, self.commit_at as usize, commit);
        Ok(())
    }

    /// Adds to a finished page that an unknown number of events was lost before it. A number that it had is
    /// no longer the whole.
    ///
    /// # Errors
    /// As [`header`](Self::header).
    pub fn mark_missed(&self, page: &mut [u8]) -> Result<(), PageError> {
        let data_len = self.header(page)?.data_len;
        self.seal(page, data_len, Some(0))
    }

    /// Whether a `long` can hold the number.
    fn fits_long(&self, value: u64) -> bool {
        self.long_size == 8 || u32::try_from(value).is_ok()
    }

    /// Writes a `long` that is known to fit, at an offset that is known to be on the page.
    fn put_long(&self, page: &mut [u8], at: usize, value: u64) {
        if self.long_size == 4 {
            page[at..at + 4].copy_from_slice(&self.endian.u32(value as u32));
        } else {
            page[at..at + 8].copy_from_slice(&self.endian.u64(value));
        }
    }

    /// The `long` at `at`.
    pub(crate) fn long(&self, page: &[u8], at: usize) -> Option<u64> {
        let bytes = page.get(at..)?;
        if self.long_size == 4 {
            bytes.first_chunk().map(|bytes| u64::from(self.endian.read_u32(*bytes)))
        } else {
            bytes.first_chunk().map(|bytes| self.endian.read_u64(*bytes))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::layout::header_page_text;
    use super::*;

    /// As a 32-bit kernel prints it.
    const PAGE_32: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
        \tfield: local_t commit;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
        \tfield: char data;\toffset:12;\tsize:4084;\tsigned:1;\n";

    #[test]
    fn both_sizes_of_long() {
        let native = PageLayout::parse(Endian::Big, &header_page_text(8192));
        assert_eq!(native, Ok(PageLayout::native(Endian::Big, 8192)));
        let short = PageLayout::parse(Endian::Little, PAGE_32).unwrap();
        assert_eq!((short.page_size, short.long_size, short.data_at), (4096, 4, 12));
    }

    #[test]
    fn texts_that_describe_no_page() {
        let text = header_page_text(4096);
        for (from, to) in [
            ("field: u64", "u64"),
            ("timestamp", "time"),
            ("size:8", "size:16"),
            ("offset:16", "offset:9"),
            ("size:4080", "size:4294967295"),
            ("size:4080", "size:0"),
        ] {
            assert!(PageLayout::parse(Endian::Little, &text.replace(from, to)).is_err(), "{from} -> {to}");
        }
        assert_eq!(PageLayout::parse(Endian::Little, ""), Err(LayoutError::Missing("timestamp")));
    }

    #[test]
    fn header_of_a_short_long() {
        let layout = PageLayout::parse(Endian::Little, PAGE_32).unwrap();
        let mut page = vec![0; 4096];
        page[..8].copy_from_slice(&77u64.to_le_bytes());
        page[8..12].copy_from_slice(&(8u32 | 3 << 30).to_le_bytes());
        page[20..24].copy_from_slice(&5u32.to_le_bytes());
        assert_eq!(layout.header(&page), Ok(PageHeader { timestamp: 77, data_len: 8, missed: Some(5) }));
        page[8..12].copy_from_slice(&4085u32.to_le_bytes());
        assert!(layout.header(&page).is_err());
        assert!(layout.header(&page[..11]).is_err());
    }
}
