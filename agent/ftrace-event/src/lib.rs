//! Event formats: the text that describes an event's record, parsed, and records turned into values and text
//! by it.
//!
//! An event's record is a C struct that tracefs describes in `events/<system>/<event>/format`. The same text
//! is stored in trace.dat files, where it is all that a reader knows of the event.
//!
//! [`EventTable`] is the entry for a program that prints records; [`Printer`] is one event of it. [`Filter`]
//! chooses records.

mod cmdlines;
pub mod context;
pub mod copies;
pub mod counters;
pub mod digits;
pub mod endian;
pub mod filter;
pub mod format;
pub mod int;
pub mod layout;
pub mod output;
pub mod print;
pub mod record;
pub mod stacks;
pub mod symbol_table;
pub mod symbols;
pub mod syscalls;
pub mod table;

pub use cmdlines::Cmdlines;
pub use endian::Endian;
pub use filter::{Filter, FilterError, ResolvedFilter};
pub use format::{Array, Field, Format, FormatError, Location, name_and_id};
pub use layout::{DynamicField, RecordLayout};
pub use output::{FmtOutput, Output};
pub use print::{
    AddressKind, NamedField, PointerStyle, PrintFmt, PrintFmtError, PrintFmtErrorKind, RawFields, Unprinted,
    Unprinter, resolve_names,
};
pub use record::{Bits, FieldError, FieldKind, FieldReader, Machine, Numbers, RecordReader, Texts, Value};
pub use symbol_table::SymbolTable;
pub use symbols::{Names, NoNames, NoSymbols, Symbol, Symbols};
pub use table::{EventTable, Printer, RecordError};
