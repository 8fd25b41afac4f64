//! Values of fields.

use std::borrow::Cow;

use super::types::Struct;

/// A value. What kind it is, its type says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value<'w> {
    /// An integer or an enumeration without a sign.
    Unsigned(u64),
    /// One with a sign.
    Signed(i64),
    Float(f64),
    /// A string, or an array or sequence of characters: what is before the first NUL.
    Text(Cow<'w, [u8]>),
    /// An array or sequence of integers or enumerations; those with a sign are extended to 64 bits.
    Numbers(Vec<u64>),
    /// One of anything else.
    List(Vec<Value<'w>>),
    /// The fields of a structure, in its order.
    Fields(Vec<Value<'w>>),
    /// The place of the field of a variant that there is, and its value.
    Chosen(usize, Box<Value<'w>>),
    /// A variant of which no field is there.
    Absent,
}

impl Value<'_> {
    /// The number that it is.
    pub(crate) fn number(&self) -> Option<i128> {
        match self {
            Self::Unsigned(number) => Some((*number).into()),
            Self::Signed(number) => Some((*number).into()),
            _ => None,
        }
    }

    /// The number, without a sign.
    pub(crate) fn unsigned(&self) -> Option<u64> {
        self.number().and_then(|number| u64::try_from(number).ok())
    }

    /// The same without what it borrows.
    pub(crate) fn into_owned(self) -> Value<'static> {
        let all = |values: Vec<Self>| values.into_iter().map(Self::into_owned).collect();
        match self {
            Self::Unsigned(number) => Value::Unsigned(number),
            Self::Signed(number) => Value::Signed(number),
            Self::Float(number) => Value::Float(number),
            Self::Text(text) => Value::Text(Cow::Owned(text.into_owned())),
            Self::Numbers(numbers) => Value::Numbers(numbers),
            Self::List(values) => Value::List(all(values)),
            Self::Fields(values) => Value::Fields(all(values)),
            Self::Chosen(place, value) => Value::Chosen(place, Box::new(value.into_owned())),
            Self::Absent => Value::Absent,
        }
    }
}

/// Fields of a structure or a variant by name.
pub(crate) fn field<'v, 'w>(of: &Struct, values: &'v [Value<'w>], name: &str) -> Option<&'v Value<'w>> {
    let place = of.fields.iter().position(|field| field.shown() == name)?;
    values.get(place)
}
