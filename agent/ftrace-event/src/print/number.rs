//! Numbers and padding as lib/vsprintf.c prints them.

use super::spec::{Amount, MAX_WIDTH, Spec};
use crate::digits;
use crate::output::{BLOCK, Count, Limited, Output};

/// A conversion's flags with the width and the precision that hold for one record.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are printf's flags")]
pub(super) struct Shape {
    pub(super) left: bool,
    pub(super) plus: bool,
    pub(super) space: bool,
    pub(super) zero: bool,
    pub(super) alternate: bool,
    pub(super) width: usize,
    pub(super) precision: Option<usize>,
}

impl Shape {
    /// The shape of a conversion, with the values of the arguments that `*` asks for.
    pub(super) fn new(spec: &Spec, width: Option<i32>, precision: Option<i32>) -> Self {
        let mut left = spec.left;
        let width = match (spec.width, width) {
            (Amount::Fixed(width), _) => width,
            (Amount::Argument, Some(width)) => {
                left |= width < 0;
                width.unsigned_abs().min(MAX_WIDTH)
            }
            _ => 0,
        };
        let precision = match (spec.precision, precision) {
            (Amount::Fixed(precision), _) => Some(precision),
            // set_precision of lib/vsprintf.c: a negative one is 0.
            (Amount::Argument, Some(precision)) => Some(precision.max(0).cast_unsigned().min(1 << 16)),
            _ => None,
        };
        Self {
            left,
            plus: spec.plus,
            space: spec.space,
            zero: spec.zero && !left,
            alternate: spec.alternate,
            width: width as usize,
            precision: precision.map(|precision| precision as usize),
        }
    }

    /// No flags, no width.
    pub(super) const PLAIN: Self = Self {
        left: false,
        plus: false,
        space: false,
        zero: false,
        alternate: false,
        width: 0,
        precision: None,
    };

    /// Zeros in front up to a width.
    pub(super) const fn zeros(width: usize) -> Self {
        Self { zero: true, width, ..Self::PLAIN }
    }
}

/// Digits of the longest number, which is one in base 8.
const MOST_DIGITS: usize = 22;

/// A signed number.
#[inline]
pub(super) fn signed<O: Output + ?Sized>(out: &mut Limited<'_, O>, shape: Shape, value: i64) {
    let sign = if value < 0 {
        Some(b'-')
    } else if shape.plus {
        Some(b'+')
    } else if shape.space {
        Some(b' ')
    } else {
        None
    };
    number(out, shape, sign, value.unsigned_abs(), 10, false);
}

/// A number without a sign.
#[inline]
pub(super) fn unsigned<O: Output + ?Sized>(
    out: &mut Limited<'_, O>,
    shape: Shape,
    value: u64,
    base: u8,
    upper: bool,
) {
    number(out, shape, None, value, base, upper);
}

/// `number` of lib/vsprintf.c: unlike C's it pads with zeros also where a precision is given, prints a digit
/// for a zero of precision 0 and `0x` before a zero.
#[inline]
fn number<O: Output + ?Sized>(
    out: &mut Limited<'_, O>,
    shape: Shape,
    sign: Option<u8>,
    value: u64,
    base: u8,
    upper: bool,
) {
    let count = match base {
        10 => digits::decimal_len(value),
        16 => digits::hex_len(value),
        _ => digits::octal_len(value),
    };
    let write = |place: &mut [u8]| match base {
        10 => digits::decimal(place, value),
        16 => digits::hex(place, value, upper),
        _ => digits::octal(place, value),
    };
    let prefix: &[u8] = match base {
        16 if shape.alternate && upper => b"0X",
        16 if shape.alternate => b"0x",
        8 if shape.alternate && value != 0 => b"0",
        _ => b"",
    };
    let before = usize::from(sign.is_some()) + prefix.len();
    let len = shape.width.max(before + count);
    let is_left = shape.left && len > before + count;
    if shape.precision.is_none() && !is_left && len <= BLOCK {
        return out.push_composed(len, if shape.zero { b'0' } else { b' ' }, |block| {
            write(&mut block[..len]);
            let start = if shape.zero { 0 } else { len - count - before };
            if let Some(sign) = sign {
                block[start] = sign;
            }
            if !prefix.is_empty() {
                block[start + before - prefix.len()..start + before].copy_from_slice(prefix);
            }
        });
    }
    let mut buffer = [0; MOST_DIGITS];
    write(&mut buffer);
    let digits = &buffer[MOST_DIGITS - count..];
    let precision = shape.precision.unwrap_or(0).max(count);
    let padding = shape.width.saturating_sub(before + precision);
    if !shape.left && !shape.zero {
        out.fill(b' ', padding);
    }
    if let Some(sign) = sign {
        out.push(&[sign]);
    }
    out.push(prefix);
    if shape.zero {
        out.fill(b'0', padding);
    }
    out.fill(b'0', precision - count);
    out.push(digits);
    if shape.left {
        out.fill(b' ', padding);
    }
}

/// Bytes, cut to the precision.
pub(super) fn text<O: Output + ?Sized>(out: &mut Limited<'_, O>, shape: Shape, bytes: &[u8]) {
    let bytes = shape.precision.map_or(bytes, |precision| &bytes[..precision.min(bytes.len())]);
    let padding = shape.width.saturating_sub(bytes.len());
    if !shape.left {
        out.fill(b' ', padding);
    }
    out.push(bytes);
    if shape.left {
        out.fill(b' ', padding);
    }
}

/// Something that is printed in pieces.
pub(super) trait Draw {
    fn draw<O: Output + ?Sized>(&self, out: &mut Limited<'_, O>);
}

/// Something printed in pieces, padded to a width.
pub(super) fn padded<O: Output + ?Sized>(out: &mut Limited<'_, O>, shape: Shape, thing: &impl Draw) {
    if shape.width == 0 {
        return thing.draw(out);
    }
    let mut count = Count::default();
    thing.draw(&mut Limited::new(&mut count, out.left()));
    let padding = shape.width.saturating_sub(count.0);
    if !shape.left {
        out.fill(b' ', padding);
    }
    thing.draw(out);
    if shape.left {
        out.fill(b' ', padding);
    }
}
