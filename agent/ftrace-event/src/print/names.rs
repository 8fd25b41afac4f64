//! Names that a `print fmt` has for the values of a field: the tables of `__print_symbolic` and
//! `__print_flags`.

use super::expr::{Argument, Expr, HexDump, Piece};

/// The names of values of the field at an offset, from all tables that print it and no other field.
pub(super) fn of_field(pieces: &[Piece], offset: u32) -> Vec<(&[u8], u64)> {
    let mut names = Vec::new();
    in_pieces(pieces, &mut |expr| {
        if let Expr::Symbolic { value, table } | Expr::Flags { value, table, .. } = expr
            && loads_only(value, offset)
        {
            names.extend(table.iter().map(|(value, name)| (&**name, *value)));
        }
    });
    names
}

/// Whether an expression has the field at an offset in it, and no other.
pub(super) fn loads_only(expr: &Expr, wanted: u32) -> bool {
    let mut found = false;
    let mut others = false;
    each(expr, &mut |expr| {
        if let Expr::Load { offset, .. } | Expr::Bytes { offset, .. } | Expr::Dynamic { offset, .. } = expr {
            found |= *offset == wanted;
            others |= *offset != wanted;
        }
    });
    found && !others
}

fn in_pieces<'e>(pieces: &'e [Piece], visit: &mut dyn FnMut(&'e Expr)) {
    for piece in pieces {
        if let Piece::Argument(Argument { direct: _, spec: _, width, precision, value }) = piece {
            for expr in [width.as_ref(), precision.as_ref(), Some(value)].into_iter().flatten() {
                each(expr, visit);
            }
        }
    }
}

/// Visits an expression and all in it. It is no deeper than the parser lets it be.
pub(super) fn each<'e>(expr: &'e Expr, visit: &mut dyn FnMut(&'e Expr)) {
    visit(expr);
    match expr {
        Expr::Const(_)
        | Expr::Unknown
        | Expr::Text(_)
        | Expr::Load { .. }
        | Expr::Bytes { .. }
        | Expr::Dynamic { .. }
        | Expr::DynamicLen { .. }
        | Expr::Local(_) => {}
        Expr::Not(inner)
        | Expr::Complement(_, inner)
        | Expr::Negate(_, inner)
        | Expr::Cast(_, inner)
        | Expr::BitField { value: inner, .. }
        | Expr::Pick { index: inner, .. }
        | Expr::StringLength(inner)
        | Expr::SwapBytes { value: inner, .. }
        | Expr::Symbolic { value: inner, .. }
        | Expr::Flags { value: inner, .. }
        | Expr::Bitmask(inner)
        | Expr::Stack(inner)
        | Expr::Jiffies(inner)
        | Expr::NvmeDisk(inner)
        | Expr::ScsiCommand(inner) => each(inner, visit),
        Expr::Binary(_, _, pair)
        | Expr::And(pair)
        | Expr::Or(pair)
        | Expr::Element { operands: pair, .. }
        | Expr::Advance { operands: pair, .. }
        | Expr::NvmeCommand { operands: pair, .. } => {
            each(&pair.0, visit);
            each(&pair.1, visit);
        }
        Expr::Choice(three) => {
            each(&three.0, visit);
            each(&three.1, visit);
            each(&three.2, visit);
        }
        Expr::Block { lets, result } => {
            lets.iter().for_each(|(_, expr)| each(expr, visit));
            each(result, visit);
        }
        Expr::Hex { bytes, len, .. } => {
            each(bytes, visit);
            each(len, visit);
        }
        Expr::Array { bytes, count, size } => {
            for expr in [Some(bytes), count.as_ref(), Some(size)].into_iter().flatten() {
                each(expr, visit);
            }
        }
        Expr::HexDump(dump) => {
            let HexDump { prefix: _, prefix_type, row, group, bytes, len, ascii } = &**dump;
            for expr in [prefix_type, row, group, bytes, len, ascii] {
                each(expr, visit);
            }
        }
        Expr::Printf(pieces) => in_pieces(pieces, visit),
    }
}
