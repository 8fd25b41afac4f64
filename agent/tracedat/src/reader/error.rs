//! What can be wrong with a file that is read.

use std::io;

use super::super::compress::DecompressError;
use super::super::layout::SectionId;
use super::super::page::{LayoutError, PageError};

impl ReadError {
    /// Whether it is a trace file of a known kind, and damaged.
    pub fn is_damage(&self) -> bool {
        !matches!(
            self,
            Self::Io { .. }
                | Self::NotATrace
                | Self::Version { .. }
                | Self::Compression { .. }
                | Self::NoSuchCpu { .. }
        )
    }
}

/// Why a file, or a part of it, cannot be read.
///
/// Offsets count from the first byte of the file, except inside a compressed section: there they count from
/// the first byte of the section as it is uncompressed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The source failed.
    #[error("reading {what} at byte {offset}: {source}")]
    Io {
        /// What was being read.
        what: &'static str,
        /// Where.
        offset: u64,
        /// Why it failed.
        source: io::Error,
    },
    /// The file does not begin as a trace file does.
    #[error("this is no trace.dat file: it does not begin with the ten bytes of one")]
    NotATrace,
    /// A version of the format that is not known.
    #[error("the file has format version {found:?}: 6 and 7 are known")]
    Version {
        /// What stands in the header.
        found: String,
    },
    /// Something ends before it should.
    #[error("{what} at byte {offset} needs {wanted} bytes, but there are {left}")]
    Short {
        /// What was being read.
        what: &'static str,
        /// Where it begins.
        offset: u64,
        /// Bytes that it needs.
        wanted: u64,
        /// Bytes that are left.
        left: u64,
    },
    /// Something is other than it can be.
    #[error("{what} at byte {offset} should be {expected} and is {found}")]
    Invalid {
        /// What it is.
        what: &'static str,
        /// Where it is.
        offset: u64,
        /// What can be there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A size that is more than any real file has. It is not tried, for memory may not be enough.
    #[error("{what} at byte {offset} has {size} bytes: more than {limit} are not read")]
    TooBig {
        /// What it is.
        what: &'static str,
        /// Where it is.
        offset: u64,
        /// Its size.
        size: u64,
        /// The largest size that is read.
        limit: u64,
    },
    /// A compression that is not known here.
    #[error("the file is compressed with {name:?}: zstd and zlib are known")]
    Compression {
        /// Its name in the header.
        name: String,
    },
    /// Compressed data are damaged.
    #[error("{what} at byte {offset} cannot be decompressed: {source}")]
    Decompress {
        /// What it is.
        what: &'static str,
        /// Where it begins.
        offset: u64,
        /// What is wrong.
        source: DecompressError,
    },
    /// A section that a reader needs is not in the file.
    #[error("the file has no section {id}")]
    MissingSection {
        /// The section.
        id: SectionId,
    },
    /// The layout of pages is unknown.
    #[error("the text of header_page cannot be used: {source}")]
    Layout {
        /// What is wrong with it.
        source: LayoutError,
    },
    /// No such buffer, or no such CPU in it.
    #[error("the file has no data of CPU {cpu} in buffer number {buffer}")]
    NoSuchCpu {
        /// Number of the buffer in the list of buffers.
        buffer: usize,
        /// The CPU.
        cpu: u32,
    },
    /// A page is damaged.
    #[error("page {page} of CPU {cpu}, in the data at byte {offset}: {source}")]
    Page {
        /// The CPU.
        cpu: u32,
        /// The page's index among the CPU's pages, from 0.
        page: u64,
        /// Where the page is; of compressed data, where its chunk is.
        offset: u64,
        /// What is wrong.
        source: PageError,
    },
}

impl ReadError {
    /// Where in the file it is, if it is at one offset. Inside a compressed section it is where that is when
    /// uncompressed.
    pub fn offset(&self) -> Option<u64> {
        match self {
            Self::Io { offset, .. }
            | Self::Short { offset, .. }
            | Self::Invalid { offset, .. }
            | Self::TooBig { offset, .. }
            | Self::Decompress { offset, .. }
            | Self::Page { offset, .. } => Some(*offset),
            Self::NotATrace | Self::Version { .. } => Some(0),
            Self::Compression { .. }
            | Self::MissingSection { .. }
            | Self::Layout { .. }
            | Self::NoSuchCpu { .. } => None,
        }
    }
}
