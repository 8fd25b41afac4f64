//! Reads, writes, checks, repairs and rewrites trace.dat files of trace-cmd, versions 6 and 7.
//!
//! A file is a header, then sections in any order. Options sections hold small facts and the offsets of all
//! other sections; they are chained, and the header points at the first. trace-cmd.dat.v7(5) describes the
//! format; `docs/file-format.md` adds what readers require beyond it.
//!
//! **Data flow:** pages and metadata → [`Writer`] → file → [`Reader`](reader::Reader) → pages or records in
//! the order of time. [`rewrite`] makes new files out of files that were read.
//!
//! **Guarantees**
//!
//! - Files may be hostile or damaged: reading gives typed errors, uses bounded memory, and never panics.
//! - [`rewrite`] and [`check`] lose nothing silently; losses are counted.
//! - trace-cmd and KernelShark open all files that are written here.
//!
//! **Must not know:** eBPF, the running kernel, processes, terminals.
//!
//! # Example
//!
//! The records of each event:
//!
//! ```no_run
//! use std::collections::BTreeMap;
//! use std::fs::File;
//! use tracedat::reader::Reader;
//!
//! let reader = Reader::open(File::open("trace.dat")?)?;
//! let mut counts = BTreeMap::new();
//! let mut records = reader.records()?;
//! while let Some(record) = records.next_record()? {
//!     let event = record.event_id().and_then(|id| reader.metadata().event(id));
//!     *counts.entry(event.map_or("unknown", |event| event.name)).or_insert(0_u64) += 1;
//! }
//! for (name, count) in counts {
//!     println!("{count:>10} {name}");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Writer`] has an example of a whole file.
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | [`layout`] | ids, sizes and the section header |
//! | [`page`] | ring-buffer pages, and a builder of them |
//! | `compress` | chunks of pages and blocks of metadata |
//! | `section` | the six metadata sections, and packing them in advance |
//! | [`option`] | file options |
//! | [`initial_state`] | the option with the tasks and devices at the start of a recording |
//! | `writer` | writing a file |
//! | [`reader`] | reading files of any recorder |
//! | [`ledger`] | losses as this recorder stores them |
//! | [`provenance`] | the conditions that a recording was made under, as texts for formats of others |
//! | [`losses`] | what each CPU lost, and where, by the ledger and the marks on pages |
//! | [`checksum`] | checksums, for damage that breaks no structure |
//! | [`check`] | finds the faults of a file |
//! | [`rewrite`] | new files: other versions, parts, several files in one |

#![forbid(unsafe_code)]

pub mod check;
pub mod checksum;
mod compress;
mod error;
pub mod initial_state;
pub mod layout;
pub mod ledger;
pub mod losses;
pub mod option;
pub mod page;
pub mod provenance;
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

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
