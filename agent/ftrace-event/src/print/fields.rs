//! What a `print fmt` says about single fields: which of them are addresses, and which have a text for their
//! values.

use super::expr::{Argument, Expr, Piece};
use super::names::{each, loads_only};
use super::raw::is_field;
use super::spec::{Kind, Pointer};
use crate::format::Field;

/// What an address is printed as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressKind {
    /// As a number: it can be an address of data, or of user space.
    Number,
    /// As the function or variable that it is in (`%pS`, `%ps`, `%pB`).
    Symbol,
}

/// The conversions that print the name of a field's value, for
/// [`PrintFmt::value_text`](super::PrintFmt::value_text).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedField {
    /// The one that has a table of names.
    named: usize,
    /// It, and those around it that add to its text.
    first: usize,
    len: usize,
}

/// Whether a conversion prints the field as an address.
pub(super) fn address(pieces: &[Piece], field: &Field) -> Option<AddressKind> {
    let kinds = pieces.iter().filter_map(|piece| match piece {
        Piece::Argument(Argument { spec, value, .. }) if is_field(value, field) => match spec.kind {
            Kind::Pointer(Pointer::Symbol { .. }) => Some(AddressKind::Symbol),
            Kind::Pointer(Pointer::Address) => Some(AddressKind::Number),
            _ => None,
        },
        _ => None,
    });
    // One of several may tell more than the others.
    kinds.fold(None, |best, kind| if best == Some(AddressKind::Symbol) { best } else { Some(kind) })
}

/// The first conversion whose text has a table of names for the values of the field at an offset, and depends
/// on no other field. Texts of the same field without anything between them are one name: `prev_state=%s%s`
/// has the state, and a `+` for a thread that was preempted.
pub(super) fn named(pieces: &[Piece], offset: u32) -> Option<NamedField> {
    let is_of_field = |piece: &&Piece| match piece {
        Piece::Argument(Argument { spec, value, .. }) => spec.kind == Kind::Text && loads_only(value, offset),
        Piece::Text(_) => false,
    };
    let has_names = |piece: &Piece| {
        let Piece::Argument(Argument { value, .. }) = piece else { return false };
        let mut found = false;
        each(value, &mut |expr| found |= matches!(expr, Expr::Symbolic { .. } | Expr::Flags { .. }));
        found && is_of_field(&piece)
    };
    let named = pieces.iter().position(has_names)?;
    let before = pieces[..named].iter().rev().take_while(is_of_field).count();
    let from_here = pieces[named..].iter().take_while(is_of_field).count();
    Some(NamedField { named, first: named - before, len: before + from_here })
}

impl NamedField {
    /// The conversion with the table of names.
    pub(super) fn table(self, pieces: &[Piece]) -> &[Piece] {
        pieces.get(self.named..=self.named).unwrap_or_default()
    }

    /// All conversions of the name.
    pub(super) fn pieces(self, pieces: &[Piece]) -> &[Piece] {
        pieces.get(self.first..self.first + self.len).unwrap_or_default()
    }
}

/// Whether a text is a number, as tables print values that they have no name for.
pub(super) fn is_number(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"0x").map_or_else(
        || text.strip_prefix(b"-").unwrap_or(text).iter().all(u8::is_ascii_digit),
        |hex| hex.iter().all(u8::is_ascii_hexdigit),
    );
    digits || text == b"?"
}
