//! Numbers as bytes: each takes as many as it needs, 7 bits in one, the lowest first.

/// Adds a number.
pub(super) fn number(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Adds a number with a sign, small ones of which are short.
pub(super) fn signed(value: i64, out: &mut Vec<u8>) {
    number(((value << 1) ^ (value >> 63)).cast_unsigned(), out);
}

/// Columns of a block: each has its length before it.
#[derive(Debug, Default)]
pub(super) struct Columns {
    bytes: Vec<u8>,
}

impl Columns {
    /// Adds a column.
    pub(super) fn add(&mut self, column: &[u8]) {
        number(column.len() as u64, &mut self.bytes);
        self.bytes.extend_from_slice(column);
    }

    /// All of them.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_are_short() {
        let mut bytes = Vec::new();
        for value in [0, 127, 128, 300] {
            number(value, &mut bytes);
        }
        assert_eq!(bytes, [0, 127, 0x80, 1, 0xac, 2]);
        bytes.clear();
        for value in [0, -1, 1, i64::MIN] {
            signed(value, &mut bytes);
        }
        assert_eq!(bytes[..3], [0, 1, 2]);
        assert_eq!(bytes.len(), 3 + 10);
        let mut columns = Columns::default();
        columns.add(b"ab");
        columns.add(b"");
        assert_eq!(columns.into_bytes(), b"\x02ab\0");
    }
}
