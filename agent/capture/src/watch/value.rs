//! Captured values.

use ftrace_event::{FieldError, FieldReader, Value};

/// A value that a rule captures, by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Captured {
    /// A signed number.
    Signed(i64),
    /// An unsigned number, or an address.
    Unsigned(u64),
    /// Characters, up to the first NUL; in no certain encoding.
    Text(Vec<u8>),
    /// The elements of an array.
    Array(Vec<Captured>),
    /// The numbers of the bits that are set.
    Bits(Vec<usize>),
    /// What the event's format does not explain.
    Bytes(Vec<u8>),
    /// The event has no such field, its array no such element, or the record does not hold it.
    Unavailable,
}

impl Captured {
    /// What a field has in a record, or one element of it.
    pub(super) fn read(field: &FieldReader, index: Option<u32>, record: &[u8]) -> Self {
        let value = field.value(record);
        match index {
            None => value.map_or(Self::Unavailable, Self::of),
            Some(index) => element(value, index as usize),
        }
    }

    fn of(value: Value<'_>) -> Self {
        match value {
            Value::Signed(value) => Self::Signed(value),
            Value::Unsigned(value) | Value::Pointer(value) => Self::Unsigned(value),
            Value::Text(text) => Self::Text(text.to_vec()),
            Value::Texts(texts) => Self::Array(texts.iter().map(text_of).collect()),
            Value::Array(numbers) => Self::Array(numbers.iter().map(Self::of).collect()),
            Value::Bitmask(bits) => Self::Bits(bits.iter().collect()),
            Value::Bytes(bytes) => Self::Bytes(bytes.to_vec()),
        }
    }
}

fn text_of(text: Result<&[u8], FieldError>) -> Captured {
    text.map_or(Captured::Unavailable, |text| Captured::Text(text.to_vec()))
}

fn element(value: Result<Value<'_>, FieldError>, index: usize) -> Captured {
    match value {
        Ok(Value::Array(numbers)) => numbers.iter().nth(index).map(Captured::of),
        Ok(Value::Texts(texts)) => texts.iter().nth(index).map(text_of),
        _ => None,
    }
    .unwrap_or(Captured::Unavailable)
}
