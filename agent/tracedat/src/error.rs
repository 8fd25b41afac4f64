//! What can go wrong when a file is written.

use std::io;

use super::compress::CompressError;
use super::layout::{OptionId, SectionId};
use super::page::PageError;

/// Why a file could not be written, or why something may not be in one.
///
/// After [`Io`](Self::Io), [`Source`](Self::Source), [`Page`](Self::Page), [`PageRun`](Self::PageRun) and
/// [`CopyLength`](Self::CopyLength) the output is incomplete and should be thrown away. All others are found
/// before anything is written; the writer is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The output failed.
    #[error("writing {what}: {source}")]
    Io {
        /// What was being written.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The source of a CPU's data failed.
    #[error("reading the data of CPU {cpu}: {source}")]
    Source {
        /// The CPU.
        cpu: u32,
        /// Why it failed.
        source: io::Error,
    },
    /// Compression failed.
    #[error("compressing {what}: {source}")]
    Compress {
        /// What was being compressed.
        what: &'static str,
        /// Why it failed.
        source: CompressError,
    },
    /// The format has 32 bits for this size.
    #[error("{what} of {len} bytes is longer than a file can hold")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// Its length in bytes.
        len: usize,
    },
    /// Pages of this size cannot be written.
    #[error("pages of {size} bytes cannot be written: sizes are powers of two from 4096 to 1048576")]
    PageSize {
        /// The size that was asked for.
        size: u32,
    },
    /// Readers take the layout of pages from the text `header_page` and refuse the file if it is not as they
    /// know it.
    #[error("the text of header_page cannot be used: {reason}")]
    HeaderPage {
        /// What is wrong with it.
        reason: String,
    },
    /// The page size in the text `header_page` is what readers believe, and differs from the file's.
    #[error("header_page describes pages of {described} bytes, the file has pages of {size}")]
    HeaderPageSize {
        /// Page size that follows from the text.
        described: u32,
        /// Page size of the file.
        size: u32,
    },
    /// A section was given twice.
    #[error("section {id} was given twice")]
    DuplicateSection {
        /// The section.
        id: SectionId,
    },
    /// Without this section no reader opens the file, and nothing sensible can be made up for it.
    #[error("section {id} was not given")]
    MissingSection {
        /// The section.
        id: SectionId,
    },
    /// A section was packed for a file of another byte order or compression.
    #[error("section {id} was packed for a file of another byte order or compression")]
    ForeignSection {
        /// The section.
        id: SectionId,
    },
    /// Metadata come before trace data.
    #[error("section {id} was given after the first buffer")]
    AfterData {
        /// The section.
        id: SectionId,
    },
    /// A format text without a name or a number.
    #[error("event format {index} of system {system} has no usable name and ID")]
    FormatWithoutId {
        /// The event's system.
        system: String,
        /// Its index among the system's events, from 0.
        index: usize,
    },
    /// Records start with a 16-bit number, and 0 is none.
    #[error("event {event} has ID {id}: IDs are 1 to 65535")]
    EventId {
        /// The event, `system:name`.
        event: String,
        /// Its number.
        id: u32,
    },
    /// Readers show one of two events with the same number, and the other not at all.
    #[error("events {first} and {second} both have ID {id}")]
    DuplicateEventId {
        /// The number.
        id: u16,
        /// The event that had it first, `system:name`.
        first: String,
        /// The other one.
        second: String,
    },
    /// Readers take the offsets of the common fields from one event and use them for all.
    #[error("event {event} does not start with the fields that the other events start with")]
    CommonFields {
        /// The event, `system:name`.
        event: String,
    },
    /// A name or text that readers could not find the end of, or not parse.
    #[error("{what} {text:?} cannot be stored: {reason}")]
    Text {
        /// What the text is.
        what: &'static str,
        /// Its start.
        text: String,
        /// Why it cannot be stored.
        reason: &'static str,
    },
    /// This option is written by the writer itself, or points at a section that cannot be given.
    #[error("option {id} cannot be given: the writer makes it, or it points at a section")]
    ReservedOption {
        /// The option.
        id: OptionId,
    },
    /// Of two top buffers readers show the last only.
    #[error("the file has a top buffer (name \"\") already")]
    DuplicateTopBuffer,
    /// The buffer begun before was not finished.
    #[error("buffer {name:?} was begun but not finished")]
    BufferNotFinished {
        /// The buffer's name.
        name: String,
    },
    /// A CPU twice in one buffer makes the file unreadable.
    #[error("CPU {cpu} is in buffer {buffer:?} already")]
    DuplicateCpu {
        /// The buffer's name.
        buffer: String,
        /// The CPU.
        cpu: u32,
    },
    /// The number of the CPU leaves no room for the CPU count.
    #[error("CPU number {cpu} is too high")]
    CpuNumber {
        /// The CPU.
        cpu: u32,
    },
    /// The data of a CPU are not whole pages.
    #[error("the data of CPU {cpu} are {len} bytes, which is no multiple of the page size {page_size}")]
    PageRun {
        /// The CPU.
        cpu: u32,
        /// Bytes of data.
        len: u64,
        /// Page size of the buffer.
        page_size: u32,
    },
    /// A page that would make readers give up the file.
    #[error("page {index} of CPU {cpu}: {source}")]
    Page {
        /// The CPU.
        cpu: u32,
        /// The page's index among the CPU's pages, from 0.
        index: u64,
        /// What is wrong with it.
        source: PageError,
    },
    /// The output ends before the data that were said to be copied into it.
    #[error("{said} bytes of CPU {cpu} were said to be copied, but the output grew by {found}")]
    CopyLength {
        /// The CPU.
        cpu: u32,
        /// Bytes that the copier reported.
        said: u64,
        /// Bytes that are in the output from the offset of the data on.
        found: u64,
    },
}

/// For `map_err`: an I/O error while writing `what`.
pub(crate) fn io_error(what: &'static str) -> impl Fn(io::Error) -> WriteError {
    move |source| WriteError::Io { what, source }
}

/// A text error that shows no more than the start of the text.
pub(crate) fn text_error(what: &'static str, text: &str, reason: &'static str) -> WriteError {
    WriteError::Text { what, text: text.chars().take(80).collect(), reason }
}
