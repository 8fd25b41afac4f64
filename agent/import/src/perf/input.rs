//! The source as a stream of records.
//!
//! A record begins with `struct perf_event_header`: u32 type, u16 misc, u16 size, the header included. Some
//! are followed by more bytes than that.

use std::io::{self, Read};

use super::header::Section;
use super::{FORMAT, MAX_SECTION, damaged};
use crate::ImportError;
use ftrace_event::Endian;
use tracedat::reader::Source as ReadAt;

/// Bytes of `struct perf_event_header`.
const HEAD: usize = 8;

/// Bytes that are read at a time.
const BUFFER: usize = 256 << 10;

/// Where the bytes are.
pub(super) enum Input {
    File { file: Box<dyn ReadAt>, len: u64 },
    Stream { beginning: Vec<u8>, rest: Box<dyn Read + Send> },
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::File { .. } => "File",
            Self::Stream { .. } => "Stream",
        })
    }
}

impl Input {
    pub(super) fn file(file: Box<dyn ReadAt>) -> Result<Self, ImportError> {
        let len = file.size().map_err(|source| read_error("its length", source))?;
        Ok(Self::File { file, len })
    }

    pub(super) fn stream(beginning: Vec<u8>, rest: Box<dyn Read + Send>) -> Self {
        Self::Stream { beginning, rest }
    }

    /// How long it is, if that is known.
    pub(super) fn len(&self) -> Option<u64> {
        match self {
            Self::File { len, .. } => Some(*len),
            Self::Stream { .. } => None,
        }
    }

    /// Makes sure that the first bytes of a stream are in memory, and returns them.
    pub(super) fn beginning(&mut self, len: usize) -> Result<&[u8], ImportError> {
        match self {
            Self::File { .. } => Ok(&[]),
            Self::Stream { beginning, rest } => {
                let missing = len.saturating_sub(beginning.len()) as u64;
                rest.take(missing)
                    .read_to_end(beginning)
                    .map_err(|source| read_error("its header", source))?;
                Ok(beginning)
            }
        }
    }

    /// The bytes of a section of a file.
    pub(super) fn section(&self, what: &str, section: Section) -> Result<Vec<u8>, ImportError> {
        let Section { offset, size } = section;
        let Self::File { file, len } = self else { return Ok(Vec::new()) };
        if size > MAX_SECTION {
            return Err(damaged(offset, format!("{what} has {size} bytes, more than is believed")));
        }
        if offset.checked_add(size).is_none_or(|end| end > *len) {
            let problem =
                format!("{what} of {size} bytes goes beyond the end of the file, {len}: it was cut short");
            return Err(damaged(offset, problem));
        }
        let mut bytes = vec![0; size as usize];
        file.read_exact_at(&mut bytes, offset).map_err(|source| read_error(what, source))?;
        Ok(bytes)
    }
}

fn read_error(what: &str, source: io::Error) -> ImportError {
    ImportError::Read { what: format!("{what} of the {FORMAT}"), source }
}

/// A record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    /// Where in the source it begins; of one that was compressed, where the compressed one does.
    pub(super) at: u64,
    /// `enum perf_event_type`, or `enum perf_user_event_type` from 64 on.
    pub(super) kind: u32,
    pub(super) misc: u16,
    /// What follows the header.
    pub(super) body: &'a [u8],
}

/// Bytes that are read front to back.
pub(super) struct Records<'i> {
    from: From<'i>,
    endian: Endian,
    /// Where `buffer` begins.
    at: u64,
    buffer: Vec<u8>,
    /// How much of it is used.
    used: usize,
    start: u64,
}

enum From<'i> {
    File { file: &'i dyn ReadAt, next: u64, end: u64 },
    Stream { rest: &'i mut dyn Read },
}

impl<'i> Records<'i> {
    /// The records of a section.
    pub(super) fn section(
        input: &'i mut Input,
        section: Section,
        endian: Endian,
    ) -> Result<Self, ImportError> {
        let Section { offset, size } = section;
        let len = input.len().unwrap_or(0);
        let end = offset.checked_add(size).filter(|end| *end <= len).ok_or_else(|| {
            let problem =
                format!("the events of {size} bytes go beyond the end of the file, {len}: it was cut short");
            damaged(offset, problem)
        })?;
        Ok(Self::new(input, offset, end, endian))
    }

    /// The records up to the end of the source.
    pub(super) fn rest(input: &'i mut Input, offset: u64, endian: Endian) -> Self {
        let end = input.len().unwrap_or(0);
        Self::new(input, offset, end, endian)
    }

    fn new(input: &'i mut Input, start: u64, end: u64, endian: Endian) -> Self {
        let (from, buffer, at) = match input {
            Input::File { file, .. } => (From::File { file: &**file, next: start, end }, Vec::new(), start),
            Input::Stream { beginning, rest } => (From::Stream { rest }, std::mem::take(beginning), 0),
        };
        let used = usize::try_from(start - at).unwrap_or(0).min(buffer.len());
        Self { from, endian, at, buffer, used, start }
    }

    /// How many bytes were read.
    pub(super) fn done(&self) -> u64 {
        self.position() - self.start.min(self.position())
    }

    fn position(&self) -> u64 {
        self.at + self.used as u64
    }

    /// The next record, if there is one.
    pub(super) fn next(&mut self) -> Result<Option<Record<'_>>, ImportError> {
        let at = self.position();
        if self.fill(HEAD)? < HEAD {
            let left = self.buffer.len() - self.used;
            if left == 0 {
                return Ok(None);
            }
            return Err(damaged(
                at,
                format!("the source ends in the header of a record, after {left} bytes"),
            ));
        }
        let (kind, misc, size) = head(self.unused(), self.endian).unwrap_or_default();
        let len = size as usize;
        if len < HEAD || u64::from(size) > MAX_SECTION {
            return Err(damaged(at, format!("a record of type {kind} claims to have {size} bytes")));
        }
        let found = self.fill(len)?;
        if found < len {
            let problem = format!("a record of type {kind} has {size} bytes, of which {found} are there");
            return Err(damaged(at, problem));
        }
        let start = self.used;
        self.used += len;
        let body = self.buffer.get(start + HEAD..self.used).unwrap_or_default();
        Ok(Some(Record { at, kind, misc, body }))
    }

    /// The bytes that follow the record that was the last one.
    pub(super) fn payload(&mut self, wanted: Payload) -> Result<Vec<u8>, ImportError> {
        let at = self.position();
        let cut = |left| damaged(at, format!("{} bytes should follow, and {left} less do", wanted.len));
        let mut left = wanted.len;
        let mut bytes = Vec::new();
        if wanted.keep && wanted.len > MAX_SECTION {
            return Err(damaged(at, format!("{} bytes of descriptions, more than is believed", wanted.len)));
        }
        while left > 0 {
            let step = left.min(BUFFER as u64) as usize;
            let found = self.fill(step)?.min(step);
            if found == 0 {
                return Err(cut(left));
            }
            if wanted.keep {
                bytes.extend_from_slice(self.unused().get(..found).unwrap_or_default());
            }
            self.used += found;
            left -= found as u64;
        }
        Ok(bytes)
    }

    fn unused(&self) -> &[u8] {
        self.buffer.get(self.used..).unwrap_or_default()
    }

    /// Makes sure that so many bytes are there, unless the source ends. Returns how many there are.
    fn fill(&mut self, len: usize) -> Result<usize, ImportError> {
        let there = self.buffer.len() - self.used;
        if there >= len {
            return Ok(there);
        }
        self.at += self.used as u64;
        self.buffer.drain(..std::mem::take(&mut self.used));
        let wanted = len.max(BUFFER) - there;
        let result = match &mut self.from {
            From::File { file, next, end } => {
                let step = (*end - *next).min(wanted as u64) as usize;
                self.buffer.resize(there + step, 0);
                let into = self.buffer.get_mut(there..).unwrap_or_default();
                let result = file.read_exact_at(into, *next);
                *next += step as u64;
                result
            }
            From::Stream { rest } => {
                // A pipe gives what it has: what is there already need not wait for more.
                let mut result = Ok(());
                while result.is_ok() && self.buffer.len() < len {
                    let end = self.buffer.len();
                    self.buffer.resize(there + wanted, 0);
                    match rest.read(self.buffer.get_mut(end..).unwrap_or_default()) {
                        Ok(0) => {
                            self.buffer.truncate(end);
                            break;
                        }
                        Ok(found) => self.buffer.truncate(end + found),
                        Err(error) => {
                            self.buffer.truncate(end);
                            if error.kind() != io::ErrorKind::Interrupted {
                                result = Err(error);
                            }
                        }
                    }
                }
                result
            }
        };
        result.map_err(|source| read_error(&format!("byte {} and what follows", self.at), source))?;
        Ok(self.buffer.len())
    }
}

/// Bytes that follow a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Payload {
    pub(super) len: u64,
    /// Whether they are wanted.
    pub(super) keep: bool,
}

/// Records that only simpleperf writes (system/extras/simpleperf/record.h of Android).
pub(super) mod simpleperf {
    /// Types from here on are simpleperf's. They have no misc, but sizes of 32 bits.
    pub(in super::super) const START: u32 = 32768;
    /// u32 bytes, lines of `/proc/kallsyms`.
    pub(in super::super) const KERNEL_SYMBOL: u32 = 32769;
    /// A piece of a record, header and all, that is longer than 64 KiB.
    pub(in super::super) const SPLIT: u32 = 32772;
    /// Behind the last piece.
    pub(in super::super) const SPLIT_END: u32 = 32773;
    /// u64 count, each u64 index of an attribute, u64 id: of CPUs that came while it recorded.
    pub(in super::super) const EVENT_ID: u32 = 32774;
    /// u32 bytes, descriptions of the events.
    pub(in super::super) const TRACING_DATA: u32 = 32777;
}

/// Type, misc and size of a record.
pub(super) fn head(bytes: &[u8], endian: Endian) -> Option<(u32, u16, u32)> {
    let kind = endian.read_u32(*bytes.first_chunk()?);
    let misc = endian.read_u16(*bytes.get(4..)?.first_chunk()?);
    let size = endian.read_u16(*bytes.get(6..)?.first_chunk()?);
    Some(if kind < simpleperf::START {
        (kind, misc, size.into())
    } else {
        (kind, 0, u32::from(misc) << 16 | u32::from(size))
    })
}
