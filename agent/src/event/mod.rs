//! Event formats: the text that describes an event's record, parsed.
//!
//! An event's record is a C struct that tracefs describes in `events/<system>/<event>/format`. The same text is stored in
//! trace.dat files, where it is all that a reader knows of the event.

pub mod format;
pub mod layout;

pub use format::{Array, Field, Format, FormatError, Location};
pub use layout::{DynamicField, RecordLayout};
