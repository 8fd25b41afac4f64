//! Fields one by one, as libtraceevent prints them raw (`print_field` and `print_field_raw` of
//! src/event-parse.c).
//!
//! A field that is no array is printed with the conversion that the `print fmt` has for it, if there is one
//! that takes the field as it is; else by its type.

use super::eval::Context;
use super::expr::{Argument, Expr, Piece};
use super::number::{self, Shape};
use super::{MAX_TEXT, PrintFmt};
use crate::format::{Array, Field, Format, Location};
use crate::message::{MESSAGE_FIELD, Message};
use crate::output::{Limited, Output, Snippet};
use crate::record::{Machine, dynamic, until_nul};
use crate::symbols::Symbols;

/// How each field of an event is printed raw.
#[derive(Clone, Debug)]
pub struct RawFields {
    fields: Box<[RawField]>,
    machine: Machine,
}

#[derive(Clone, Debug)]
struct RawField {
    /// ` name=`
    label: Snippet,
    offset: usize,
    size: usize,
    form: Form,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    /// Piece of the print fmt, and whether `0x` stands before it there.
    Conversion {
        piece: usize,
        hex: bool,
    },
    /// An array of characters: text if all of it can be printed.
    Text(Location),
    Bytes(Location),
    /// All bytes up to the end of the record.
    Rest,
    Message(Message),
    Pointer,
    Signed {
        long: bool,
    },
    Unsigned {
        long: bool,
    },
}

impl RawFields {
    /// The fields of `format`, with the conversions of its compiled `print fmt` if it has one.
    /// A text that the records refer to is the value of its field.
    pub fn new(
        format: &Format,
        machine: Machine,
        print_fmt: Option<&PrintFmt>,
        message: Option<Message>,
    ) -> Self {
        let pieces = print_fmt.map_or(&[][..], |print_fmt| &print_fmt.pieces);
        // The search continues after the conversion that was found last, and ends for good after the last
        // one.
        let mut next = Some(0);
        let fields = format.fields.iter().map(|field| {
            let message = message.filter(|_| field.name == MESSAGE_FIELD);
            let mut form = message.map_or_else(|| Form::of(field), Form::Message);
            if !matches!(form, Form::Text(_) | Form::Bytes(_) | Form::Rest | Form::Message(_))
                && let Some((piece, hex)) = next.and_then(|start| conversion(pieces, start, field))
            {
                form = Form::Conversion { piece, hex };
                next = Some(piece + 1).filter(|next| *next < pieces.len());
            }
            let label = Snippet::new(format!(" {}=", field.declared_name()).as_bytes());
            RawField { label, offset: field.offset as usize, size: field.size as usize, form }
        });
        Self { fields: fields.collect(), machine }
    }

    /// Prints the fields of a record, each with a blank before it.
    pub fn print<O: Output + ?Sized>(
        &self,
        record: &[u8],
        print_fmt: Option<&PrintFmt>,
        symbols: &dyn Symbols,
        out: &mut O,
    ) {
        let out = &mut Limited::new(out, MAX_TEXT);
        for field in &self.fields {
            out.push_snippet(&field.label);
            match (field.form, print_fmt) {
                (Form::Conversion { piece, hex }, Some(print_fmt)) => {
                    if hex {
                        out.push(b"0x");
                    }
                    let context = Context::new(record, self.machine, symbols, print_fmt.pointers);
                    context.pieces(out, print_fmt.pieces.get(piece..=piece).unwrap_or_default(), false);
                }
                (Form::Message(message), _) => {
                    if message.draw(record, symbols, out).is_none() {
                        out.push(b"?");
                    }
                }
                _ => field.print(record, self.machine, out),
            }
            if out.left() == 0 {
                return;
            }
        }
    }
}

impl Form {
    fn of(field: &Field) -> Self {
        let type_text = field.type_text.as_str();
        if field.is_raw() {
            return Self::Rest;
        }
        if field.array != Array::Single || field.is_open() {
            let text = ["char", "u8", "s8"].iter().any(|part| type_text.contains(part));
            return if text { Self::Text(field.location) } else { Self::Bytes(field.location) };
        }
        let long = type_text.contains("long");
        if type_text.contains('*') {
            Self::Pointer
        } else if field.signed {
            Self::Signed { long }
        } else {
            Self::Unsigned { long }
        }
    }
}

/// The first conversion from `start` on, round to it again, whose argument is the field.
fn conversion(pieces: &[Piece], start: usize, field: &Field) -> Option<(usize, bool)> {
    let mut hex = false;
    for index in (start..pieces.len()).chain(0..start) {
        match &pieces[index] {
            Piece::Text(text) => hex = text.text().ends_with(b"0x"),
            Piece::Argument(Argument { value, .. }) => {
                if is_field(value, field) {
                    return Some((index, hex));
                }
                hex = false;
            }
        }
    }
    None
}

/// Whether an expression is the field itself, if cast to another type.
pub(super) fn is_field(expr: &Expr, field: &Field) -> bool {
    match expr {
        Expr::Load { offset, .. } => *offset == field.offset,
        Expr::Cast(_, inner) => is_field(inner, field),
        _ => false,
    }
}

impl RawField {
    fn print<O: Output + ?Sized>(&self, record: &[u8], machine: Machine, out: &mut Limited<'_, O>) {
        match self.form {
            // Of no length, as libtraceevent takes it, all of it can be printed.
            Form::Text(Location::Inline) if self.size == 0 => {
                out.push(until_nul(record.get(self.offset..).unwrap_or_default()));
            }
            Form::Text(location) => {
                let bytes = self.array(record, location, machine);
                let text = until_nul(bytes);
                if text.iter().all(|byte| matches!(byte, 0x20..=0x7e | b'\t'..=b'\r')) {
                    out.push(text);
                } else {
                    array(out, bytes);
                }
            }
            Form::Bytes(location) => array(out, self.array(record, location, machine)),
            Form::Rest => array(out, record.get(self.offset..).unwrap_or_default()),
            Form::Message(_) => {}
            Form::Conversion { .. } | Form::Pointer | Form::Signed { .. } | Form::Unsigned { .. } => {
                let bytes = record.get(self.offset..self.offset + self.size).unwrap_or_default();
                let value = if matches!(self.size, 1 | 2 | 4 | 8) { machine.number(bytes) } else { 0 };
                self.number(value, out);
            }
        }
    }

    fn number<O: Output + ?Sized>(&self, value: u64, out: &mut Limited<'_, O>) {
        let hex = Shape { alternate: false, ..Shape::PLAIN };
        let mut in_hex = |value| {
            out.push(b"0x");
            number::unsigned(out, hex, value, 16, false);
        };
        match (self.form, self.size) {
            (Form::Pointer | Form::Unsigned { long: true }, _) => in_hex(value),
            (Form::Signed { long: true }, 4) => in_hex(value & 0xffff_ffff),
            (Form::Signed { .. }, size) => {
                let width = if size == 2 { 2 } else { 0 };
                let unused = 64 - 8 * size.clamp(1, 8) as u32;
                let value = (value << unused) as i64 >> unused;
                number::signed(out, Shape { width, ..Shape::PLAIN }, value);
            }
            _ => number::unsigned(out, Shape::PLAIN, value, 10, false),
        }
    }

    fn array<'r>(&self, record: &'r [u8], location: Location, machine: Machine) -> &'r [u8] {
        let end = self.offset + self.size;
        let (offset, size) = match location {
            Location::Inline => (self.offset, self.size),
            Location::DataLoc | Location::RelLoc => {
                let word = machine.number(record.get(self.offset..end).unwrap_or_default()) as u32;
                dynamic(word, location, end)
            }
        };
        record.get(offset..offset + size).unwrap_or_default()
    }
}

fn array<O: Output + ?Sized>(out: &mut Limited<'_, O>, bytes: &[u8]) {
    out.push(b"ARRAY[");
    for (index, byte) in bytes.iter().enumerate() {
        if out.left() == 0 {
            return;
        }
        if index > 0 {
            out.push(b", ");
        }
        number::unsigned(out, Shape::zeros(2), u64::from(*byte), 16, false);
    }
    out.push(b"]");
}
