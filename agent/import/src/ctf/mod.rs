//! Traces of the Common Trace Format 1.8 and 2: what LTTng, babeltrace2 and barectf write.
//!
//! A trace is a directory: a file `metadata`, whose text describes all others, and a file or several for each
//! stream, which are packets of events. The format is that of the documents CTF 1.8.2, 1.8.3 and
//! CTF2-SPEC-2.0 (diamon.org/ctf); sections are cited where the code relies on them.
//!
//! | module | what |
//! |---|---|
//! | `text` | the text of the metadata, out of packets |
//! | `tsdl` | the language of the metadata of CTF 1.8 |
//! | `fragments` | the metadata of CTF 2 |
//! | `types`, `roles`, `schema` | what they declare |
//! | `bits`, `value`, `decode` | values out of bytes, by their types |
//! | `packet` | packets and events, out of windows of bytes |
//! | `stream` | the files of streams |
//! | `directory` | traces, chunks and sessions in directories |
//! | `lttng`, `formats` | names of the kernel for those of lttng-modules, and how it prints events |
//! | `columns`, `render` | the fields of records, out of values |
//! | `plan`, `threads` | what becomes of the events of a kind |
//! | `source` | the import |
//! | `error` | why a trace cannot be read |
//!
//! Everything in a trace is hostile until it is checked. Memory has a bound: the metadata, a window of a
//! packet, the names of threads.

mod bits;
mod columns;
mod decode;
mod directory;
mod error;
mod formats;
mod fragments;
mod lttng;
mod packet;
mod plan;
mod render;
mod roles;
mod schema;
mod source;
mod stream;
#[cfg(test)]
mod tests;
mod text;
mod threads;
mod tsdl;
mod types;
mod value;

pub use decode::DecodeError;
pub use error::CtfError;
pub use fragments::{FragmentError, FragmentProblem};
pub use packet::PacketError;
pub use source::{CtfOptions, CtfSource};
pub use text::TextError;
pub use tsdl::{Problem, TsdlError};
