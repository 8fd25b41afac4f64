//! The trace.dat file format, version 7 (version 6 is read, too): what `trace-cmd`, KernelShark and others
//! open.
//!
//! A file is a header, then sections in any order. Options sections hold small facts and the offsets of all
//! other sections; they are chained, and the header points at the first. The format is described in
//! trace-cmd.dat.v7(5); what readers require beyond it is explained at the code concerned, and as a whole in
//! `docs/file-format.md`.
//!
//! | module | what |
//! |---|---|
//! | [`layout`] | ids, sizes and the section header |
//! | [`page`] | ring buffer pages, and a builder of them |
//! | `compress` | chunks of pages and blocks of metadata |
//! | `section` | the six metadata sections, and packing them ahead of time |
//! | `option` | file options |
//! | [`initial_state`] | the option with the tasks and devices at the start of a recording |
//! | `writer` | the file as a whole |
//! | [`reader`] | the way back, for files of any recorder |
//! | [`ledger`] | what our recorder says of losses |
//! | [`checksum`] | what makes damage known that breaks no structure |
//! | [`check`] | whether a file is what it should be |
//! | [`rewrite`] | new files out of ones that were read: other versions, parts, several in one |
//!
//! Nothing here depends on eBPF, processes or terminals. For an example of a whole file see [`Writer`], for
//! reading one [`Reader`](reader::Reader).

pub mod check;
pub mod checksum;
mod compress;
mod error;
pub mod initial_state;
pub mod layout;
pub mod ledger;
pub mod option;
pub mod page;
pub mod reader;
pub mod rewrite;
mod section;
mod uname;
mod writer;

pub use compress::Decompressor;
pub use compress::{
    BLOCK_HEADER_LEN, ChunkCompressor, Codec, CompressError, Compression, DecompressError, FinderChoice,
};
pub use error::WriteError;
pub use ftrace_event::{Cmdlines, Endian};
pub use layout::{OptionId, SectionId};
pub use option::FileOption;
pub use section::{EventSystem, Section};
pub use uname::Uname;
pub use writer::{Buffer, BufferWriter, CpuWriter, Setup, Writer};
