//! `print fmt`: how the kernel prints an event, as a format string and arguments in C.
//!
//! [`PrintFmt`] is compiled once from the text; records are printed from that without allocation. The language is what
//! remains of the kernel's `TP_printk` after its macros were expanded (include/trace/stages/stage3_trace_output.h): C
//! expressions over the record's fields, a handful of functions, and printf conversions of lib/vsprintf.c.
//!
//! The text may come from a file of anyone: nesting is limited, tables and loops are bounded by the text and by the
//! record, and the text of one record is at most [`MAX_TEXT`] bytes.
//!
//! | file | subject |
//! |---|---|
//! | `token` | words |
//! | `ctype` | types |
//! | `parse`, `cast` | C expressions |
//! | `call` | functions |
//! | `statement` | statement expressions |
//! | `expr` | what all that becomes |
//! | `spec` | printf conversions |
//! | `eval` | values, and the text of a record |
//! | `number`, `pointer`, `nvme` | how values are written |

mod call;
mod cast;
mod ctype;
mod error;
mod eval;
mod expr;
mod number;
mod nvme;
mod parse;
mod pointer;
mod spec;
mod statement;
#[cfg(test)]
mod tests;
mod token;

pub use error::{PrintFmtError, PrintFmtErrorKind};

use super::format::Format;
use super::output::{Limited, Output};
use super::record::Machine;
use super::symbols::{Names, Symbols};

/// Longest text of a record, bytes. The kernel's own limit is 8 KiB (TRACE_SEQ_BUFFER_SIZE of include/linux/trace_seq.h)
/// and a record of 64 KiB printed as an array of bytes is longer than this.
pub const MAX_TEXT: usize = 256 << 10;

/// A compiled `print fmt`.
#[derive(Clone, Debug)]
pub struct PrintFmt {
    pieces: Box<[expr::Piece]>,
    unresolved: Box<[String]>,
    machine: Machine,
}

impl PrintFmt {
    /// Compiles the `print fmt` of an event whose records `machine` writes.
    ///
    /// # Errors
    /// What is not understood, and where.
    pub fn compile(format: &Format, machine: Machine, names: &dyn Names) -> Result<Self, PrintFmtError> {
        let mut parser = parse::Parser::new(format, machine, names)?;
        let pieces = parser.print_fmt()?.into();
        Ok(Self { pieces, unresolved: parser.unresolved.into(), machine })
    }

    /// Names that the text mentions and `names` did not know. What is calculated from one is printed as `?`; a value that
    /// has its text in such an entry of a table is printed as a number.
    pub fn unresolved(&self) -> &[String] {
        &self.unresolved
    }

    /// Prints a record.
    pub fn print<O: Output + ?Sized>(&self, record: &[u8], symbols: &dyn Symbols, out: &mut O) {
        let context = eval::Context::new(record, self.machine, symbols);
        context.pieces(&mut Limited::new(out, MAX_TEXT), &self.pieces, false);
    }
}
