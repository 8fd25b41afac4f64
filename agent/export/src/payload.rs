//! The payload of an event: numbers in the byte order of the target, at its alignment.

use std::io::Write as _;

use ftrace_event::Endian;
use ftrace_event::{FieldError, Printer, Texts, Value};

/// Bytes of one payload after another; the memory is used again.
#[derive(Debug)]
pub(super) struct Payload {
    bytes: Vec<u8>,
    endian: Endian,
    alignment: usize,
}

impl Payload {
    /// Numbers are aligned to their size, but to no more than `alignment` bytes, counted from the start of
    /// the payload; 0 packs them.
    pub(super) fn new(endian: Endian, alignment: usize) -> Self {
        Self { bytes: Vec::new(), endian, alignment }
    }

    pub(super) fn clear(&mut self) -> &mut Self {
        self.bytes.clear();
        self
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The low bytes of a number: 1, 2, 4 or 8 of them.
    pub(super) fn number(&mut self, value: u64, size: usize) -> &mut Self {
        if self.alignment > 1 {
            let at = self.bytes.len().next_multiple_of(size.min(self.alignment));
            self.bytes.resize(at, 0);
        }
        match self.endian {
            Endian::Little => self.bytes.extend_from_slice(&value.to_le_bytes()[..size]),
            Endian::Big => self.bytes.extend_from_slice(&value.to_be_bytes()[8 - size..]),
        }
        self
    }

    /// A text and the NUL that ends it. What follows a NUL in the text is cut off.
    pub(super) fn text(&mut self, text: &[u8]) -> &mut Self {
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        self.raw(&text[..end]).raw(&[0])
    }

    /// So many numbers: the elements of an array, and zeros for those that it does not have.
    pub(super) fn array(&mut self, value: Option<Value<'_>>, count: usize, size: usize) {
        for number in elements(value).chain(std::iter::repeat(0)).take(count) {
            self.number(number, size);
        }
    }

    /// So many texts, empty ones for those that there are not.
    pub(super) fn texts(&mut self, value: Option<Value<'_>>, count: usize) {
        let texts = if let Some(Value::Texts(texts)) = value { Some(texts) } else { None };
        let mut texts = texts.iter().flat_map(Texts::iter);
        for _ in 0..count {
            self.text(texts.next().and_then(Result::ok).unwrap_or_default());
        }
    }

    /// Bytes as they are.
    pub(super) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// A value as text, with the NUL that ends it.
    pub(super) fn shown(&mut self, value: &Value<'_>) -> &mut Self {
        // Writing to memory does not fail.
        let _ = write!(self.bytes, "{value}");
        self.raw(&[0])
    }
}

/// The number of a field; 0 for what is none.
pub(super) fn number_of(value: &Value<'_>) -> u64 {
    match value {
        Value::Signed(value) => *value as u64,
        Value::Unsigned(value) | Value::Pointer(value) => *value,
        _ => 0,
    }
}

/// The elements of an array; none of what is no array.
pub(super) fn elements(value: Option<Value<'_>>) -> impl Iterator<Item = u64> {
    let numbers = if let Some(Value::Array(numbers)) = value { Some(numbers) } else { None };
    numbers.into_iter().flat_map(|numbers| numbers.iter()).map(|number| number_of(&number))
}

/// The value of a field of a record, by its index in the event's format.
pub(super) fn value_of<'r>(
    printer: &Printer,
    index: usize,
    record: &'r [u8],
) -> Result<Value<'r>, FieldError> {
    printer.value(index, record).unwrap_or(Err(FieldError::Short { end: 0, len: record.len() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_aligned_to_their_size_and_no_further() {
        for (alignment, expected) in [
            (0, vec![1, 0, 0, 0, 2, b'a', 0, 0, 3]),
            (4, vec![1, 0, 0, 0, 0, 0, 0, 2, b'a', 0, 0, 3]),
            (1, vec![1, 0, 0, 0, 2, b'a', 0, 0, 3]),
        ] {
            let mut payload = Payload::new(Endian::Big, alignment);
            payload.number(1, 1).number(2, 4).text(b"a\0b").number(3, 2);
            assert_eq!(payload.bytes(), expected, "{alignment}");
        }
        let mut payload = Payload::new(Endian::Little, 8);
        payload.number(9, 1).clear().number(1, 1).number(u64::MAX - 1, 8);
        assert_eq!(payload.bytes(), [1, 0, 0, 0, 0, 0, 0, 0, 254, 255, 255, 255, 255, 255, 255, 255]);
    }
}
