//! The header of a file or stream, and the sections that it names.
//!
//! ```text
//! u64 magic, u64 bytes of the header
//! of a file also: u64 bytes of an attr and its ids' section; sections of attrs, data, event types;
//!                 256 bits of features, whose sections follow the data
//! ```
//! A section is u64 offset, u64 bytes.

use super::bytes::Bytes;
use super::input::Input;
use super::{FORMAT, damaged};
use crate::ImportError;
use ftrace_event::Endian;

/// `PERFILE2`, as a number in the byte order of the machine.
const MAGIC: &[u8; 8] = b"PERFILE2";
const MAGIC_SWAPPED: &[u8; 8] = b"2ELIFREP";

/// What files of perf before Linux 2.6.32 begin with.
const OLD_MAGIC: &[u8; 8] = b"PERFFILE";

/// Bytes of the header of a stream, and of a file.
const STREAM_LEN: u64 = 16;
const FILE_LEN: u64 = 104;

/// A feature is a bit among these.
const FEATURES: u32 = 256;

/// A part of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// A header.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub(super) endian: Endian,
    /// Its bytes: where the records of a stream begin.
    pub(super) size: u64,
    /// What only files have.
    pub(super) file: Option<FileHeader>,
}

/// What the header of a file has more.
#[derive(Clone, Debug)]
pub(super) struct FileHeader {
    /// Bytes of an attr with the section of its ids.
    pub(super) attr_size: u64,
    pub(super) attrs: Section,
    pub(super) data: Section,
    /// Features that are there, by number, and where they are.
    pub(super) features: Vec<(u32, Section)>,
}

/// The byte order of what begins with these bytes.
pub(super) fn endian(beginning: &[u8]) -> Option<Endian> {
    match beginning.first_chunk()? {
        MAGIC => Some(Endian::Little),
        MAGIC_SWAPPED => Some(Endian::Big),
        _ => None,
    }
}

impl Header {
    /// The header of a file.
    pub(super) fn read(input: &Input) -> Result<Self, ImportError> {
        let len = input.len().unwrap_or(0);
        let first = Section { offset: 0, size: STREAM_LEN.min(len) };
        let mut header = Self::beginning(&input.section("the header", first)?)?;
        if header.size == STREAM_LEN {
            return Ok(header);
        }
        let whole = input.section("the header", Section { offset: 0, size: header.size.min(1 << 16) })?;
        let mut bytes = Bytes::new(whole.get(STREAM_LEN as usize..).unwrap_or_default(), header.endian);
        let cut = || damaged(0, format!("the header has {} bytes, {FILE_LEN} are needed", header.size));
        let attr_size = bytes.u64().ok_or_else(cut)?;
        let mut section = || Some(Section { offset: bytes.u64()?, size: bytes.u64()? });
        let attrs = section().ok_or_else(cut)?;
        let data = section().ok_or_else(cut)?;
        section().ok_or_else(cut)?;
        let mut bits = [0; (FEATURES / 64) as usize];
        for word in &mut bits {
            *word = bytes.u64().ok_or_else(cut)?;
        }
        if data.size == 0 {
            return Err(damaged(
                40,
                "the header tells of no events: perf record was killed before it wrote where they are, or recorded none",
            ));
        }
        let set = (0..FEATURES)
            .filter(|bit| bits.get((bit / 64) as usize).is_some_and(|word| word >> (bit % 64) & 1 == 1));
        let set: Vec<u32> = set.collect();
        let table =
            Section { offset: data.offset.saturating_add(data.size), size: set.len() as u64 * STREAM_LEN };
        let table = input.section("the table of features", table)?;
        let mut bytes = Bytes::new(&table, header.endian);
        let mut features = Vec::with_capacity(set.len());
        for feature in set {
            let section = bytes.u64().zip(bytes.u64());
            let (offset, size) = section.ok_or_else(|| damaged(0, "the table of features is cut short"))?;
            features.push((feature, Section { offset, size }));
        }
        header.file = Some(FileHeader { attr_size, attrs, data, features });
        Ok(header)
    }

    /// The header of a stream.
    pub(super) fn of_stream(input: &mut Input) -> Result<Self, ImportError> {
        let header = Self::beginning(input.beginning(STREAM_LEN as usize)?)?;
        if header.size != STREAM_LEN {
            return Err(ImportError::Unsupported(format!(
                "a {FORMAT} that was written to a file cannot be read from a pipe, because its end describes it: name the \
                 file, or record to the pipe (perf record -o -)"
            )));
        }
        Ok(header)
    }

    fn beginning(bytes: &[u8]) -> Result<Self, ImportError> {
        let Some(endian) = endian(bytes) else {
            if bytes.starts_with(OLD_MAGIC) {
                return Err(ImportError::Unsupported(
                    "files of perf before Linux 2.6.32 (PERFFILE) are not read".to_owned(),
                ));
            }
            return Err(damaged(0, "it does not begin with PERFILE2"));
        };
        let size = bytes.get(8..).and_then(|bytes| Bytes::new(bytes, endian).u64());
        let size = size.ok_or_else(|| damaged(0, format!("it ends after {} bytes", bytes.len())))?;
        if size != STREAM_LEN && size < FILE_LEN {
            return Err(damaged(8, format!("the header claims to have {size} bytes")));
        }
        Ok(Self { endian, size, file: None })
    }
}
