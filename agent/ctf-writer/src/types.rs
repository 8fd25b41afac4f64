//! Types of CTF fields, and how values are encoded.
//!
//! Everything is aligned to bytes and little-endian, as LTTng writes on x86 (CTF 1.8.3, sections 4.1 and
//! 4.2).

use ftrace_event::{FieldKind, Value};

/// An integer of whole bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Integer {
    /// Bytes: 1, 2, 4 or 8.
    pub(super) size: u8,
    pub(super) signed: bool,
    /// Base it is shown in: 10 or 16.
    pub(super) base: u8,
    /// Stored in network order, as LTTng stores addresses.
    pub(super) network: bool,
}

impl Integer {
    pub(super) const fn new(size: u8, signed: bool) -> Self {
        Self { size, signed, base: 10, network: false }
    }

    pub(super) const fn hex(size: u8) -> Self {
        Self { size, signed: false, base: 16, network: false }
    }

    pub(super) fn encode(self, value: u64, out: &mut Vec<u8>) {
        let bytes = value.to_le_bytes();
        let size = usize::from(self.size).min(bytes.len());
        if self.network {
            out.extend(bytes[..size].iter().rev());
        } else {
            out.extend_from_slice(&bytes[..size]);
        }
    }
}

/// The type of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Integer(Integer),
    /// Characters in so many bytes, zeros after them.
    TextArray {
        len: usize,
    },
    /// Characters and a NUL.
    String,
    /// As many texts.
    Strings {
        count: usize,
    },
    Array {
        element: Integer,
        count: usize,
    },
    /// A length of 32 bits, and as many elements.
    Sequence {
        element: Integer,
    },
}

/// The number of elements that stands before a sequence.
pub(super) const LENGTH: Integer = Integer::new(4, false);

/// The member with the length of the sequence `name`, as readers name it.
pub(super) fn length_name(name: &str) -> String {
    format!("_{name}_length")
}

impl Type {
    /// The type for the kernel's own field. `array_len` is the size of a text that stands in the record
    /// itself; LTTng keeps such texts as arrays.
    pub(super) fn of_kernel(kind: FieldKind, array_len: Option<usize>) -> Self {
        match kind {
            FieldKind::Number { size, signed } => Self::Integer(Integer::new(size, signed)),
            FieldKind::Pointer { size } => Self::Integer(Integer::hex(size)),
            FieldKind::Text => array_len.map_or(Self::String, |len| Self::TextArray { len }),
            FieldKind::Texts { count } => Self::Strings { count },
            FieldKind::Array { size, signed, count } => {
                let element = Integer::new(size, signed);
                count.map_or(Self::Sequence { element }, |count| Self::Array { element, count })
            }
            FieldKind::Bitmask => Self::Sequence { element: Integer::hex(1) },
            FieldKind::Bytes { count } => {
                let element = Integer::hex(1);
                count.map_or(Self::Sequence { element }, |count| Self::Array { element, count })
            }
        }
    }

    /// Encodes a value. Returns whether it fits: what does not is encoded as nothing, in a shape that can be
    /// read.
    pub(super) fn encode(&self, value: Option<Value<'_>>, out: &mut Vec<u8>) -> bool {
        match (self, value) {
            (Self::Integer(integer), Some(Value::Signed(number))) => integer.encode(number as u64, out),
            (Self::Integer(integer), Some(Value::Unsigned(number) | Value::Pointer(number))) => {
                integer.encode(number, out);
            }
            (Self::TextArray { len }, Some(Value::Text(text))) => {
                let text = &text[..text.len().min(*len)];
                out.extend_from_slice(text);
                out.resize(out.len() + len - text.len(), 0);
            }
            (Self::String, Some(Value::Text(text))) => string(text, out),
            (Self::Strings { count }, Some(Value::Texts(texts))) => {
                let mut complete = texts.iter().len() == *count;
                let mut texts = texts.iter();
                for _ in 0..*count {
                    let text = texts.next().and_then(Result::ok);
                    complete &= text.is_some();
                    string(text.unwrap_or_default(), out);
                }
                return complete;
            }
            (Self::Array { element, count }, Some(Value::Array(numbers))) if numbers.len() == *count => {
                self::numbers(*element, numbers.iter(), out);
            }
            (Self::Array { count, .. }, Some(Value::Bytes(bytes))) if bytes.len() == *count => {
                out.extend_from_slice(bytes);
            }
            (Self::Sequence { element }, Some(Value::Array(numbers))) => {
                out.extend_from_slice(&(numbers.len() as u32).to_le_bytes());
                self::numbers(*element, numbers.iter(), out);
            }
            (Self::Sequence { .. }, Some(Value::Bytes(bytes))) => {
                out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                out.extend_from_slice(bytes);
            }
            (Self::Sequence { .. }, Some(Value::Bitmask(bits))) => {
                let bytes = bits.capacity() / 8;
                out.extend_from_slice(&(bytes as u32).to_le_bytes());
                out.extend((0..bytes).map(|byte| {
                    (0..8).fold(0, |sum, bit| sum | u8::from(bits.contains(byte * 8 + bit)) << bit)
                }));
            }
            _ => {
                self.encode_nothing(out);
                return false;
            }
        }
        true
    }

    /// Zeros, or nothing where that is possible.
    fn encode_nothing(&self, out: &mut Vec<u8>) {
        let bytes = match self {
            Self::Integer(integer) => usize::from(integer.size),
            Self::TextArray { len } => *len,
            Self::String => 1,
            Self::Strings { count } => *count,
            Self::Array { element, count } => count * usize::from(element.size),
            Self::Sequence { .. } => 4,
        };
        out.resize(out.len() + bytes, 0);
    }
}

fn string(text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(text);
    out.push(0);
}

fn numbers(element: Integer, values: impl Iterator<Item = Value<'static>>, out: &mut Vec<u8>) {
    for value in values {
        match value {
            Value::Signed(number) => element.encode(number as u64, out),
            Value::Unsigned(number) => element.encode(number, out),
            // Arrays have numbers only.
            _ => element.encode(0, out),
        }
    }
}

/// A sequence of addresses of 64 bits.
pub(super) fn addresses(values: impl Iterator<Item = u64>, out: &mut Vec<u8>) {
    let length_at = out.len();
    out.extend_from_slice(&[0; 4]);
    let mut count = 0_u32;
    for value in values {
        Integer::hex(8).encode(value, out);
        count += 1;
    }
    out[length_at..length_at + 4].copy_from_slice(&count.to_le_bytes());
}
