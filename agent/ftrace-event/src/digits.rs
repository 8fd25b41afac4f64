//! Numbers as text.
//!
//! Their digits come from the last to the first. How many there will be is known before, so that they are
//! written to where they belong: a copy of bytes that were written one by one waits until all of them are in
//! the cache.

/// Two digits of each number below 100.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut value = 0;
    while value < 100 {
        pairs[value] = [b'0' + value as u8 / 10, b'0' + value as u8 % 10];
        value += 1;
    }
    pairs
};

/// Two digits of each byte in base 16.
const LOWER: [[u8; 2]; 256] = hex_pairs(*b"0123456789abcdef");
const UPPER: [[u8; 2]; 256] = hex_pairs(*b"0123456789ABCDEF");

const fn hex_pairs(digits: [u8; 16]) -> [[u8; 2]; 256] {
    let mut pairs = [[0; 2]; 256];
    let mut value = 0;
    while value < 256 {
        pairs[value] = [digits[value >> 4], digits[value & 15]];
        value += 1;
    }
    pairs
}

/// How many digits a number has in decimal.
#[inline]
pub fn decimal_len(value: u64) -> usize {
    value.checked_ilog10().unwrap_or(0) as usize + 1
}

/// How many digits a number has in base 16.
#[inline]
pub fn hex_len(value: u64) -> usize {
    ((u64::BITS - value.leading_zeros()).div_ceil(4) as usize).max(1)
}

/// How many digits a number has in base 8.
#[inline]
pub(crate) fn octal_len(value: u64) -> usize {
    ((u64::BITS - value.leading_zeros()).div_ceil(3) as usize).max(1)
}

/// Writes all digits of a number in decimal, the last one at the end of `place`, and nothing before the
/// first. Digits that there is no room for are left out.
#[inline]
pub fn decimal(place: &mut [u8], mut value: u64) {
    let mut end = place.len();
    while value >= 100 && end >= 2 {
        place[end - 2..end].copy_from_slice(&PAIRS[(value % 100) as usize]);
        value /= 100;
        end -= 2;
    }
    let pair = PAIRS[(value % 100) as usize];
    if value >= 10 && end >= 2 {
        place[end - 2..end].copy_from_slice(&pair);
    } else if end >= 1 {
        place[end - 1] = pair[1];
    }
}

/// Fills `place` with the last digits of a number in decimal.
#[inline]
pub fn decimal_all<const N: usize>(place: &mut [u8; N], mut value: u64) {
    for pair in place.rchunks_exact_mut(2) {
        pair.copy_from_slice(&PAIRS[(value % 100) as usize]);
        value /= 100;
    }
    if N % 2 == 1 {
        place[0] = b'0' + (value % 10) as u8;
    }
}

/// Writes all digits of a number in base 16, as [`decimal`] does.
#[inline]
pub fn hex(place: &mut [u8], mut value: u64, upper: bool) {
    let pairs = if upper { &UPPER } else { &LOWER };
    let mut end = place.len();
    while value >= 16 && end >= 2 {
        place[end - 2..end].copy_from_slice(&pairs[(value & 255) as usize]);
        value >>= 8;
        end -= 2;
        // A number with an even number of digits has none left.
        if value == 0 {
            return;
        }
    }
    if end >= 1 {
        place[end - 1] = pairs[(value & 15) as usize][1];
    }
}

/// Writes all digits of a number in base 8, as [`decimal`] does.
#[inline]
pub(crate) fn octal(place: &mut [u8], mut value: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (value & 7) as u8;
        value >>= 3;
        if value == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_where_they_shall() {
        let powers = (0..20).map(|power| 10_u64.pow(power)).chain((0..64).map(|power| 1 << power));
        for value in powers.flat_map(|value| [value - 1, value, value + 1]).chain([0, u64::MAX]) {
            let check = |len: usize, digits: String, write: &dyn Fn(&mut [u8])| {
                assert_eq!(len, digits.len(), "{digits}");
                for room in [len, len + 1, 32] {
                    let mut place = vec![b'-'; room];
                    write(&mut place);
                    assert_eq!(String::from_utf8(place).unwrap(), format!("{digits:->room$}"));
                }
                // Where there is too little room, nothing is written before it.
                write(&mut vec![0; len - 1]);
            };
            check(decimal_len(value), format!("{value}"), &|place| decimal(place, value));
            check(hex_len(value), format!("{value:x}"), &|place| hex(place, value, false));
            check(hex_len(value), format!("{value:X}"), &|place| hex(place, value, true));
            check(octal_len(value), format!("{value:o}"), &|place| octal(place, value));
            let (mut six, mut nine) = ([0; 6], [0; 9]);
            decimal_all(&mut six, value);
            decimal_all(&mut nine, value);
            assert_eq!(six.as_slice(), format!("{:06}", value % 1_000_000).as_bytes());
            assert_eq!(nine.as_slice(), format!("{:09}", value % 1_000_000_000).as_bytes());
        }
    }
}
