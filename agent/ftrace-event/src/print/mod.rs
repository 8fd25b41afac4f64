//! `print fmt`: how the kernel prints an event, as a format string and arguments in C.
//!
//! [`PrintFmt`] is compiled once from the text; records are printed from that without allocation. The
//! language is what remains of the kernel's `TP_printk` after its macros were expanded
//! (include/trace/stages/stage3_trace_output.h): C expressions over the record's fields, a handful of
//! functions, and printf conversions of lib/vsprintf.c.
//!
//! The text may come from an untrusted file: nesting is limited, tables and loops are bounded by the text and
//! by the record, and the text of one record is at most [`MAX_TEXT`] bytes.
//!
//! | file | subject |
//! |---|---|
//! | `token` | words |
//! | `ctype` | types |
//! | `parse`, `cast` | C expressions |
//! | `call` | functions |
//! | `statement` | statement expressions |
//! | `expr` | what all that becomes |
//! | `direct` | conversions of numbers of the record |
//! | `spec` | printf conversions |
//! | `resolve` | numbers for names, in the text itself |
//! | `names` | names that a text has for values of a field |
//! | `fields` | which fields are addresses, and which have a text for their values |
//! | `eval` | values, and the text of a record |
//! | `number`, `pointer`, `nvme`, `scsi` | how values are written |
//! | `raw` | fields one by one |
//! | `unprint` | back from a text to the values that it was printed from |
//! | `binary` | `trace_printk`: a format string that is not the event's |

mod binary;
mod call;
mod cast;
mod ctype;
mod direct;
mod error;
mod eval;
mod expr;
mod fields;
mod names;
mod number;
mod nvme;
mod parse;
mod pointer;
mod raw;
mod resolve;
mod scsi;
mod spec;
mod statement;
#[cfg(test)]
mod tests;
mod token;
mod unprint;

pub use error::{PrintFmtError, PrintFmtErrorKind};
pub use fields::{AddressKind, NamedField};
pub use raw::RawFields;
pub use resolve::resolve_names;
pub use unprint::{Unprinted, Unprinter};

use super::format::{Field, Format};
use super::output::{Limited, Output};
use super::record::Machine;
use super::symbols::{Names, Symbols};

/// Longest text of a record, bytes. The kernel's own limit is 8 KiB (TRACE_SEQ_BUFFER_SIZE of
/// include/linux/trace_seq.h) and a record of 64 KiB printed as an array of bytes is longer than this.
pub const MAX_TEXT: usize = 256 << 10;

/// Longest `print fmt` that is compiled. The longest of Linux 6.18 has 5 KB; each part of a text can cost the
/// time of a look at the whole record.
pub const MAX_PRINT_FMT: usize = 64 << 10;

/// How `%p` prints an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PointerStyle {
    /// As the kernel does where it does not hash them: all digits, without `0x`.
    #[default]
    Kernel,
    /// As trace-cmd does: `0x` and as many digits as needed, `(nil)` for none.
    TraceCmd,
}

/// A compiled `print fmt`.
#[derive(Clone, Debug)]
pub struct PrintFmt {
    pieces: Box<[expr::Piece]>,
    unresolved: Box<[String]>,
    machine: Machine,
    pointers: PointerStyle,
}

impl PrintFmt {
    /// Compiles the `print fmt` of an event whose records `machine` writes.
    ///
    /// # Errors
    /// What is not understood, and where.
    pub fn compile(format: &Format, machine: Machine, names: &dyn Names) -> Result<Self, PrintFmtError> {
        if format.print_fmt.len() > MAX_PRINT_FMT {
            return Err(PrintFmtError { at: MAX_PRINT_FMT, kind: PrintFmtErrorKind::TooLong });
        }
        let mut parser = parse::Parser::new(format, machine, names)?;
        let pieces = parser.print_fmt()?.into();
        Ok(Self { pieces, unresolved: parser.unresolved.into(), machine, pointers: PointerStyle::default() })
    }

    /// Names that the text mentions and `names` did not know. What is calculated from one is printed as `?`;
    /// a value that has its text in such an entry of a table is printed as a number.
    pub fn unresolved(&self) -> &[String] {
        &self.unresolved
    }

    /// Chooses how `%p` prints an address.
    pub fn set_pointers(&mut self, pointers: PointerStyle) {
        self.pointers = pointers;
    }

    /// The names that the text has for the values of the field at an offset.
    pub fn value_names(&self, offset: u32) -> Vec<(&[u8], u64)> {
        names::of_field(&self.pieces, offset)
    }

    /// Whether the text prints the field as an address.
    pub fn address(&self, field: &Field) -> Option<AddressKind> {
        fields::address(&self.pieces, field)
    }

    /// Whether the text prints names for the values of the field at an offset.
    pub fn named(&self, offset: u32) -> Option<NamedField> {
        fields::named(&self.pieces, offset)
    }

    /// The name of a field's value in a record, as the kernel prints it: one name, or those of all flags that
    /// are set. `None` for a value without a name.
    pub fn value_text(&self, field: NamedField, record: &[u8], symbols: &dyn Symbols) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        let context = eval::Context::new(record, self.machine, symbols, self.pointers);
        let table = field.table(&self.pieces);
        context.pieces(&mut Limited::new(&mut text, MAX_TEXT), table, false);
        if fields::is_number(text.trim_ascii()) {
            return None;
        }
        let all = field.pieces(&self.pieces);
        if all.len() > table.len() {
            text.clear();
            context.pieces(&mut Limited::new(&mut text, MAX_TEXT), all, false);
        }
        // The layout of the line is not part of the name.
        let name = text.trim_ascii();
        let start = text.len() - text.trim_ascii_start().len();
        let len = name.len();
        text.truncate(start + len);
        text.drain(..start);
        Some(text)
    }

    /// Prints a record.
    pub fn print<O: Output + ?Sized>(&self, record: &[u8], symbols: &dyn Symbols, out: &mut O) {
        let context = eval::Context::new(record, self.machine, symbols, self.pointers);
        context.pieces(&mut Limited::new(out, MAX_TEXT), &self.pieces, false);
    }
}

/// Prints the stack that follows an event, as `trace_stack_print` of kernel/trace/trace_output.c does: a line
/// for each address, up to the end or to one that is all ones.
pub(super) fn print_stack<O: Output + ?Sized>(
    title: &str,
    addresses: impl Iterator<Item = u64>,
    machine: Machine,
    symbols: &dyn Symbols,
    out: &mut O,
) {
    let out = &mut Limited::new(out, MAX_TEXT);
    let end = if machine.long_size == 4 { u64::from(u32::MAX) } else { u64::MAX };
    out.push(title.as_bytes());
    for address in addresses.take_while(|address| *address != end) {
        out.push(b"\n => ");
        pointer::function(out, address, symbols);
    }
}

/// Prints a format string with arguments that are packed as the kernel packs those of `trace_printk`.
pub(super) fn print_arguments<O: Output + ?Sized>(
    format: &[u8],
    arguments: &[u8],
    machine: Machine,
    symbols: &dyn Symbols,
    out: &mut Limited<'_, O>,
) {
    binary::print(out, format, arguments, machine, symbols);
}

/// Prints the function that an address is in, or the address.
pub(super) fn print_function<O: Output + ?Sized>(address: u64, symbols: &dyn Symbols, out: &mut O) {
    pointer::function(&mut Limited::new(out, MAX_TEXT), address, symbols);
}
