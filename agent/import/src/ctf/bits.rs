//! Numbers in bits (CTF 1.8.2, section 4.1.5): with the least significant bit first in little-endian order,
//! and with the most significant one first in big-endian order.

use ftrace_event::Endian;

/// The number in `size` bits (1 to 64) from bit `at` on; `None` if the bytes end before it does.
pub(crate) fn number(bytes: &[u8], at: u64, size: u8, order: Endian) -> Option<u64> {
    let first = usize::try_from(at / 8).ok()?;
    let skipped = (at % 8) as u32;
    let size = u32::from(size);
    if skipped == 0 {
        let rest = bytes.get(first..)?;
        match size {
            8 => return rest.first().map(|byte| u64::from(*byte)),
            16 => return rest.first_chunk().map(|bytes| order.read_u16(*bytes).into()),
            32 => return rest.first_chunk().map(|bytes| order.read_u32(*bytes).into()),
            64 => return rest.first_chunk().map(|bytes| order.read_u64(*bytes)),
            _ => {}
        }
    }
    let len = (skipped + size).div_ceil(8);
    let bytes = bytes.get(first..first.checked_add(len as usize)?)?;
    let mask = u128::MAX >> (128 - size);
    let join = |sum: u128, byte: &u8| sum << 8 | u128::from(*byte);
    let value = match order {
        Endian::Little => bytes.iter().rev().fold(0, join) >> skipped,
        Endian::Big => bytes.iter().fold(0, join) >> (len * 8 - skipped - size),
    };
    Some((value & mask) as u64)
}

/// The same as a number with a sign, whose highest bit it is.
pub(crate) fn signed(value: u64, size: u8) -> i64 {
    let unused = 64_u32.saturating_sub(size.into());
    (value << unused) as i64 >> unused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_both_orders() {
        let bytes = [0b1010_0101, 0b1100_0011, 0xff];
        assert_eq!(number(&bytes, 0, 5, Endian::Little), Some(0b00101));
        assert_eq!(number(&bytes, 5, 11, Endian::Little), Some(0b110_0001_1101));
        assert_eq!(number(&bytes, 0, 5, Endian::Big), Some(0b10100));
        assert_eq!(number(&bytes, 5, 11, Endian::Big), Some(0b101_1100_0011));
        assert_eq!(number(&bytes, 0, 24, Endian::Little), Some(0xff_c3a5));
        assert_eq!(number(&bytes, 0, 24, Endian::Big), Some(0xa5_c3ff));
        assert_eq!(number(&bytes, 8, 16, Endian::Big), Some(0xc3ff));
        assert_eq!((number(&bytes, 17, 8, Endian::Big), number(&bytes, 16, 64, Endian::Big)), (None, None));
        let bytes = [0xff; 9];
        assert_eq!(number(&bytes, 7, 64, Endian::Little), Some(u64::MAX));
        assert_eq!(number(&bytes, 7, 64, Endian::Big), Some(u64::MAX));
        assert_eq!((signed(0b111, 3), signed(0b011, 3), signed(u64::MAX, 64)), (-1, 3, -1));
    }
}
