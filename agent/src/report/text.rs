//! Fast formatting of numbers and padding.

/// Two digits of each number below 100.
const PAIRS: &[u8; 200] = b"0001020304050607080910111213141516171819\
2021222324252627282930313233343536373839\
4041424344454647484950515253545556575859\
6061626364656667686970717273747576777879\
8081828384858687888990919293949596979899";

/// The decimal digits of a number, at the end of a buffer that holds the longest.
#[inline]
fn digits(buffer: &mut [u8; 20], mut value: u64) -> usize {
    let mut at = buffer.len();
    while value >= 100 {
        let pair = (value % 100) as usize * 2;
        value /= 100;
        at -= 2;
        buffer[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }
    if value >= 10 {
        at -= 2;
        buffer[at..at + 2].copy_from_slice(&PAIRS[value as usize * 2..value as usize * 2 + 2]);
    } else {
        at -= 1;
        buffer[at] = b'0' + value as u8;
    }
    at
}

/// A number in decimal, right-aligned in `width`, filled up with `fill`.
#[inline]
pub(crate) fn decimal(out: &mut Vec<u8>, value: u64, width: usize, fill: u8) {
    let mut buffer = [0; 20];
    let at = digits(&mut buffer, value);
    for _ in buffer.len() - at..width {
        out.push(fill);
    }
    out.extend_from_slice(&buffer[at..]);
}

/// `%u`
#[inline]
pub(crate) fn unsigned(out: &mut Vec<u8>, value: u64) {
    decimal(out, value, 0, b' ');
}

/// `%d`
#[inline]
pub(crate) fn signed(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    unsigned(out, value.unsigned_abs());
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
pub(crate) fn hex(out: &mut Vec<u8>, value: u64) {
    let count = (64 - value.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..count).rev() {
        out.push(b"0123456789abcdef"[(value >> (digit * 4) & 15) as usize]);
    }
}

/// `%0*x`
pub(crate) fn hex_zeros(out: &mut Vec<u8>, value: u64, width: usize) {
    let start = out.len();
    hex(out, value);
    let missing = width.saturating_sub(out.len() - start);
    out.splice(start..start, std::iter::repeat_n(b'0', missing));
}

/// `%*x`
pub(crate) fn hex_right(out: &mut Vec<u8>, value: u64, width: usize) {
    let digits = (64 - value.leading_zeros()).div_ceil(4).max(1) as usize;
    out.extend(std::iter::repeat_n(b' ', width.saturating_sub(digits)));
    hex(out, value);
}

/// Text, right-aligned in `width`.
pub(crate) fn right(out: &mut Vec<u8>, text: &[u8], width: usize) {
    out.extend(std::iter::repeat_n(b' ', width.saturating_sub(text.len())));
    out.extend_from_slice(text);
}

/// Microseconds with their nanoseconds: `12.034`.
pub(crate) fn micros(out: &mut Vec<u8>, nanos: u64) {
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
