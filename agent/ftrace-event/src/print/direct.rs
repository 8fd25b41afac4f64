//! Conversions of a number that is a field of the record and nothing else, as most are: where it is, what
//! casts and the conversion leave of it, and how it looks are found out once.

use super::expr::Expr;
use super::number::{self, Shape};
use super::pointer::UNKNOWN;
use super::spec::{Amount, Kind, Spec};
use crate::int::IntType;
use crate::output::{Limited, Output};
use crate::record::Machine;

/// A number of the record, and how it is printed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direct {
    offset: u32,
    /// Bytes of it in the record.
    size: u8,
    /// What of it is printed.
    int: IntType,
    /// 0 for a signed number in decimal.
    base: u8,
    upper: bool,
    shape: Shape,
}

impl Direct {
    /// `None` for what is no such conversion.
    pub(super) fn of(spec: &Spec, value: &Expr) -> Option<Self> {
        if spec.width == Amount::Argument || spec.precision == Amount::Argument {
            return None;
        }
        let (int, base, upper) = match spec.kind {
            Kind::Signed { size } => (IntType { size, signed: true }, 0, false),
            Kind::Unsigned { size, base, upper } => (IntType { size, signed: false }, base, upper),
            Kind::Char | Kind::Text | Kind::Pointer(_) => return None,
        };
        let (offset, size, loaded) = load(value)?;
        let shape = Shape::new(spec, None, None);
        Some(Self { offset, size, int: both(loaded, int)?, base, upper, shape })
    }

    /// Prints it.
    #[inline]
    pub(super) fn print<O: Output + ?Sized>(
        &self,
        out: &mut Limited<'_, O>,
        record: &[u8],
        machine: Machine,
    ) {
        let Self { offset, size, int, base, upper, shape } = *self;
        let start = offset as usize;
        match record.get(start..start + usize::from(size)) {
            Some(bytes) => {
                let value = int.wrap(machine.number(bytes));
                if base == 0 {
                    number::signed(out, shape, value.cast_signed());
                } else {
                    number::unsigned(out, shape, value, base, upper);
                }
            }
            None => number::text(out, shape, UNKNOWN),
        }
    }
}

/// Offset and size of a number in the record, and what casts leave of it.
fn load(expr: &Expr) -> Option<(u32, u8, IntType)> {
    match expr {
        Expr::Load { offset, int } => Some((*offset, int.size, *int)),
        Expr::Cast(int, inner) => {
            let (offset, size, loaded) = load(inner)?;
            Some((offset, size, both(loaded, *int)?))
        }
        _ => None,
    }
}

/// The type that leaves of a number what these two leave of it, one after the other. `None` if none does.
fn both(first: IntType, second: IntType) -> Option<IntType> {
    if second.size <= first.size {
        return Some(second);
    }
    // What the first one leaves fits the second one, unless it is negative there.
    (!first.signed || second.signed || second.size == 8).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_types_are_as_one() {
        let types =
            [1, 2, 4, 8].into_iter().flat_map(|size| [true, false].map(|signed| IntType { size, signed }));
        let values = [0, 1, 0x7f, 0x80, 0xff, 0x8000, 0xffff, 0x8000_0000, 0xffff_ffff, u64::MAX, 1 << 63];
        for first in types.clone() {
            for second in types.clone() {
                let as_one = both(first, second);
                for value in values {
                    let expected = second.wrap(first.wrap(value));
                    assert_eq!(
                        as_one.map_or(expected, |int| int.wrap(value)),
                        expected,
                        "{first:?} {second:?}"
                    );
                }
                assert!(as_one.is_some() || first.signed && !second.signed, "{first:?} {second:?}");
            }
        }
    }
}
