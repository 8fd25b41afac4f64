//! Taking numbers and texts from unchecked bytes.

use super::error::ReadError;
use super::source::Source;
use ftrace_event::endian::Endian;

/// Longest text that is looked for an end of.
const MAX_C_STRING: u64 = 64 << 10;

/// A position in a source, and the end past which it must not go. Nothing is allocated before it is known to
/// be there.
pub(crate) struct Cursor<'a> {
    source: &'a dyn Source,
    endian: Endian,
    at: u64,
    end: u64,
}

impl<'a> Cursor<'a> {
    /// Reads from `at` up to `end`, which is inside the source.
    pub(crate) fn new(source: &'a dyn Source, endian: Endian, at: u64, end: u64) -> Self {
        Self { source, endian, at: at.min(end), end }
    }

    /// Where the next byte is.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Bytes up to the end.
    pub(crate) fn left(&self) -> u64 {
        self.end - self.at
    }

    /// From now on numbers are in this order.
    pub(crate) fn set_endian(&mut self, endian: Endian) {
        self.endian = endian;
    }

    fn check(&self, what: &'static str, wanted: u64) -> Result<(), ReadError> {
        let left = self.left();
        if wanted > left { Err(ReadError::Short { what, offset: self.at, wanted, left }) } else { Ok(()) }
    }

    fn fill(&mut self, what: &'static str, buffer: &mut [u8]) -> Result<(), ReadError> {
        let wanted = buffer.len() as u64;
        self.check(what, wanted)?;
        let offset = self.at;
        self.source.read_exact_at(buffer, offset).map_err(|source| ReadError::Io { what, offset, source })?;
        self.at += wanted;
        Ok(())
    }

    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], ReadError> {
        let mut bytes = [0; N];
        self.fill(what, &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, ReadError> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, ReadError> {
        let endian = self.endian;
        self.array(what).map(|bytes| endian.read_u16(bytes))
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, ReadError> {
        let endian = self.endian;
        self.array(what).map(|bytes| endian.read_u32(bytes))
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, ReadError> {
        let endian = self.endian;
        self.array(what).map(|bytes| endian.read_u64(bytes))
    }

    /// The next `len` bytes.
    pub(crate) fn take(&mut self, what: &'static str, len: u64) -> Result<Vec<u8>, ReadError> {
        self.check(what, len)?;
        let short = ReadError::TooBig { what, offset: self.at, size: len, limit: usize::MAX as u64 };
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| short)?];
        self.fill(what, &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn skip(&mut self, what: &'static str, len: u64) -> Result<(), ReadError> {
        self.check(what, len)?;
        self.at += len;
        Ok(())
    }

    /// A text up to its NUL. Bytes that are no UTF-8 become replacement characters.
    pub(crate) fn c_string(&mut self, what: &'static str) -> Result<String, ReadError> {
        let offset = self.at;
        let mut text = Vec::new();
        loop {
            let mut piece = [0; 64];
            let len = self.left().min(piece.len() as u64) as usize;
            if len == 0 || text.len() as u64 > MAX_C_STRING {
                let found = format!("{:?}...", String::from_utf8_lossy(&text[..text.len().min(40)]));
                return Err(ReadError::Invalid {
                    what,
                    offset,
                    expected: "a text that ends with NUL",
                    found,
                });
            }
            let start = self.at;
            self.fill(what, &mut piece[..len])?;
            if let Some(end) = piece[..len].iter().position(|byte| *byte == 0) {
                text.extend_from_slice(&piece[..end]);
                self.at = start + end as u64 + 1;
                return Ok(lossy(text));
            }
            text.extend_from_slice(&piece[..len]);
        }
    }

    /// A text of known length.
    pub(crate) fn text(&mut self, what: &'static str, len: u64) -> Result<String, ReadError> {
        self.take(what, len).map(lossy)
    }
}

/// The text in `bytes`, without a copy where it is one.
pub(crate) fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts() {
        let bytes: &[u8] = b"\x01\x02\x03\x04\x05\x06\x07hello\0\xff\0tail";
        let mut cursor = Cursor::new(&bytes, Endian::Big, 0, bytes.len() as u64);
        assert_eq!(cursor.u8("").unwrap(), 1);
        assert_eq!(cursor.u16("").unwrap(), 0x0203);
        assert_eq!(cursor.u32("").unwrap(), 0x0405_0607);
        assert_eq!(cursor.c_string("").unwrap(), "hello");
        assert_eq!(cursor.c_string("").unwrap(), "\u{fffd}");
        assert_eq!((cursor.at(), cursor.left()), (15, 4));
        let error = cursor.u64("a number").unwrap_err();
        assert!(matches!(error, ReadError::Short { what: "a number", offset: 15, wanted: 8, left: 4 }));
        assert!(matches!(cursor.take("", u64::MAX), Err(ReadError::Short { .. })));
        assert!(matches!(cursor.c_string("t"), Err(ReadError::Invalid { offset: 15, .. })));
    }
}
