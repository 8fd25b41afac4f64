//! Event formats, records, print formats and filters of Linux ftrace, as libtraceevent reads them.
//!
//! An event's record is a C struct that tracefs describes in `events/SYSTEM/EVENT/format`. trace.dat files
//! store the same text, and it is all that a reader knows of an event.
//!
//! **Data flow:** a format text becomes a [`Format`] and a [`Printer`] in an [`EventTable`]; the bytes of a
//! record become [`Value`]s ([`RecordReader`]) or text ([`EventTable::print`]); the text of a condition
//! becomes a [`Filter`], which is [resolved](Filter::resolve) for a table and then selects records.
//!
//! **Guarantees**
//!
//! - Texts and records may be hostile: parsing gives typed errors, and reading outside a record gives none of
//!   its neighbours' bytes.
//! - The printed text is libtraceevent's.
//! - A number that a record does not contain is an error, never 0.
//!
//! **Must not know:** files, tracefs, the running kernel. This crate does no I/O.
//!
//! # Example
//!
//! ```
//! use ftrace_event::{EventTable, Machine, NoNames, NoSymbols};
//!
//! let format = "name: hello\nID: 300\nformat:\n\
//!     \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
//!     \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
//!     \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
//!     \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
//!     \tfield:u64 value;\toffset:8;\tsize:8;\tsigned:0;\n\n\
//!     print fmt: \"value=%llu\", REC->value\n";
//! let mut events = EventTable::new(Machine::default());
//! events.add("demo", format, &NoNames)?;
//!
//! // The event's number, no flags, thread 42, the value 7.
//! let mut record = 300_u32.to_le_bytes().to_vec();
//! record.extend(42_u32.to_le_bytes());
//! record.extend(7_u64.to_le_bytes());
//! let event = events.of_record(&record)?;
//! let mut text = String::new();
//! event.print(&record, &NoSymbols, &mut text);
//! assert_eq!((event.name(), text.as_str()), ("hello", "value=7"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | [`mod@format`], [`layout`] | format texts, and where fields are in a record |
//! | [`record`], [`endian`] | fields as values |
//! | [`mod@print`] | print formats, and the values behind their names |
//! | [`table`] | the events of a file or a kernel |
//! | [`typed`] | fields by what they are in the kernel, for whoever reads their meaning |
//! | [`filter`] | conditions in the grammars of trace-cmd, the kernel and LTTng |
//! | [`symbols`], [`symbol_table`] | names of addresses |
//! | [`syscalls`] | names of system calls |
//! | [`context`], [`counters`] | fields that this recorder adds to events |
//! | [`stacks`] | records that hold stacks |
//! | [`message`] | texts that records refer to |
//! | [`output`] | receivers of text |
//! | [`int`] | integers and their arithmetic as in C |
//! | `copies`, `digits` | for the other crates of tracer-agent only |

#![forbid(unsafe_code)]

mod cmdlines;
pub mod context;
#[doc(hidden)]
pub mod copies;
pub mod counters;
#[doc(hidden)]
pub mod digits;
pub mod endian;
pub mod filter;
pub mod format;
pub mod int;
pub mod layout;
pub mod message;
pub mod output;
pub mod print;
pub mod record;
pub mod stacks;
pub mod symbol_table;
pub mod symbols;
pub mod syscalls;
pub mod table;
pub mod typed;

pub use cmdlines::Cmdlines;
pub use endian::Endian;
pub use filter::{Filter, FilterError, ResolvedFilter};
pub use format::{Array, Field, Format, FormatError, Location, name_and_id};
pub use layout::{DynamicField, RecordLayout};
pub use message::{MESSAGE_FIELD, Message};
pub use output::{FmtOutput, Output};
pub use print::{
    AddressKind, NamedField, PointerStyle, PrintFmt, PrintFmtError, PrintFmtErrorKind, RawFields, Unprinted,
    Unprinter, resolve_names,
};
pub use record::{Bits, FieldError, FieldKind, FieldReader, Machine, Numbers, RecordReader, Texts, Value};
pub use symbol_table::SymbolTable;
pub use symbols::{Names, NoNames, NoSymbols, Symbol, Symbols};
pub use table::{EventTable, Printer, RecordError};
pub use typed::Meaning;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
