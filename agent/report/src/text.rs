//! Fast formatting of numbers and padding.

use ftrace_event::digits;
use ftrace_event::output::{BLOCK, append_composed};

/// A number in decimal, right-aligned in `width`, which is no more than a block, filled up with `fill`.
#[inline]
pub fn decimal(out: &mut Vec<u8>, value: u64, width: usize, fill: u8) {
    let len = digits::decimal_len(value).max(width.min(BLOCK));
    append_composed(out, len, fill, |block: &mut [u8; BLOCK]| digits::decimal(&mut block[..len], value));
}

/// `%u`
#[inline]
pub fn unsigned(out: &mut Vec<u8>, value: u64) {
    decimal(out, value, 0, b' ');
}

/// `%d`
#[inline]
pub fn signed(out: &mut Vec<u8>, value: i64) {
    let len = digits::decimal_len(value.unsigned_abs()) + usize::from(value < 0);
    append_composed(out, len, b'-', |block: &mut [u8; BLOCK]| {
        digits::decimal(&mut block[..len], value.unsigned_abs());
    });
}

/// `%-5d`
#[inline]
pub(crate) fn signed_left(out: &mut Vec<u8>, value: i64, width: usize) {
    let start = out.len();
    signed(out, value);
    for _ in out.len() - start..width {
        out.push(b' ');
    }
}

/// `%x`
#[inline]
pub fn hex(out: &mut Vec<u8>, value: u64) {
    hex_filled(out, value, 0, b' ');
}

/// `%0*x`
pub(crate) fn hex_zeros(out: &mut Vec<u8>, value: u64, width: usize) {
    hex_filled(out, value, width, b'0');
}

/// `%*x`
pub fn hex_right(out: &mut Vec<u8>, value: u64, width: usize) {
    hex_filled(out, value, width, b' ');
}

#[inline]
fn hex_filled(out: &mut Vec<u8>, value: u64, width: usize, fill: u8) {
    let len = digits::hex_len(value).max(width.min(BLOCK));
    append_composed(out, len, fill, |block: &mut [u8; BLOCK]| digits::hex(&mut block[..len], value, false));
}

/// Text, right-aligned in `width`.
pub fn right(out: &mut Vec<u8>, text: &[u8], width: usize) {
    out.extend(std::iter::repeat_n(b' ', width.saturating_sub(text.len())));
    out.extend_from_slice(text);
}

/// Microseconds with their nanoseconds: `12.034`.
pub fn micros(out: &mut Vec<u8>, nanos: u64) {
    unsigned(out, nanos / 1000);
    out.push(b'.');
    decimal(out, nanos % 1000, 3, b'0');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let text = |print: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            print(&mut out);
            String::from_utf8(out).unwrap()
        };
        for value in [0, 7, 10, 99, 100, 12345, 1_000_000, u64::MAX] {
            assert_eq!(text(&|out| unsigned(out, value)), value.to_string());
            assert_eq!(text(&|out| hex(out, value)), format!("{value:x}"));
            assert_eq!(text(&|out| hex_zeros(out, value, 8)), format!("{value:08x}"));
            assert_eq!(text(&|out| decimal(out, value, 6, b'0')), format!("{value:06}"));
        }
        assert_eq!(text(&|out| signed(out, i64::MIN)), i64::MIN.to_string());
        assert_eq!(text(&|out| signed_left(out, -7, 5)), "-7   ");
        assert_eq!(text(&|out| right(out, b"ab", 4)), "  ab");
        assert_eq!(text(&|out| micros(out, 12_034)), "12.034");
    }
}
