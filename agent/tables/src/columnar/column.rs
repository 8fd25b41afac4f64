//! Values of one column on their way to Arrow's arrays.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Int32Array, ListArray, PrimitiveArray, StringArray,
};
use arrow_buffer::{BooleanBufferBuilder, Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;

use super::super::encoding::Changed;
use super::super::value::{Cell, Type};
use super::schema::{self, Names};
use stdx::fast_map::FastMap;

/// What an entry of a dictionary needs besides its text, about.
const ENTRY: usize = 64;

/// The values of a column.
pub(super) struct ColumnRows {
    nulls: NullBufferBuilder,
    values: Values,
}

enum Values {
    I8(Vec<i8>),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    /// Nanoseconds that come unsigned.
    Time(Vec<i64>),
    Moment(Vec<i64>),
    Bool(BooleanBufferBuilder),
    Text(Texts),
    Name(Dictionary),
    List {
        ends: Vec<i32>,
        items: Box<ColumnRows>,
        ty: Type,
    },
}

/// Texts, one after the other.
struct Texts {
    ends: Vec<i32>,
    bytes: Vec<u8>,
}

impl Default for Texts {
    fn default() -> Self {
        Self { ends: vec![0], bytes: Vec::new() }
    }
}

impl Texts {
    fn push(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
        // Rows are written long before there are so many.
        self.ends.push(i32::try_from(self.bytes.len()).unwrap_or(i32::MAX));
    }

    fn get(&self, index: usize) -> Option<&[u8]> {
        let (start, end) = (*self.ends.get(index)?, *self.ends.get(index + 1)?);
        self.bytes.get(start as usize..end as usize)
    }

    fn take(&mut self, nulls: Option<NullBuffer>) -> Result<StringArray, ArrowError> {
        let Self { ends, bytes } = std::mem::take(self);
        let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
        StringArray::try_new(ends, Buffer::from_vec(bytes), nulls)
    }
}

/// Texts, each of which is there once.
#[derive(Default)]
struct Dictionary {
    keys: Vec<i32>,
    texts: Texts,
    /// The key of each text as it came, and whether it is UTF-8.
    known: FastMap<Box<[u8]>, (i32, bool)>,
    /// The key of the row before, which often has the same text.
    last: i32,
}

impl Dictionary {
    /// Gives how much memory it needs.
    fn push(&mut self, text: &[u8], changed: &mut Changed) -> usize {
        if self.texts.get(self.last as usize) == Some(text) {
            self.keys.push(self.last);
            return size_of::<i32>();
        }
        let mut size = size_of::<i32>();
        let (key, is_utf8) = self.known.get(text).copied().unwrap_or_else(|| {
            let new = (self.known.len() as i32, std::str::from_utf8(text).is_ok());
            self.texts.push(&String::from_utf8_lossy(text));
            self.known.insert(text.into(), new);
            size += text.len() * 2 + ENTRY;
            new
        });
        changed.replaced += u64::from(!is_utf8);
        self.last = key;
        self.keys.push(key);
        size
    }
}

impl ColumnRows {
    pub(super) fn new(ty: Type, names: Names) -> Self {
        let values = match ty {
            Type::Signed(1) => Values::I8(Vec::new()),
            Type::Signed(2) => Values::I16(Vec::new()),
            Type::Signed(4) => Values::I32(Vec::new()),
            Type::Signed(_) | Type::Wall => Values::I64(Vec::new()),
            Type::Unsigned(1) => Values::U8(Vec::new()),
            Type::Unsigned(2) => Values::U16(Vec::new()),
            Type::Unsigned(4) => Values::U32(Vec::new()),
            Type::Unsigned(_) | Type::Address => Values::U64(Vec::new()),
            Type::Time => Values::Time(Vec::new()),
            Type::Moment => Values::Moment(Vec::new()),
            Type::Bool => Values::Bool(BooleanBufferBuilder::new(0)),
            Type::Name if names == Names::Dictionary => Values::Name(Dictionary::default()),
            Type::Text | Type::Name => Values::Text(Texts::default()),
            Type::List(element) => Values::List {
                ends: vec![0],
                items: Box::new(Self::new(element.ty(), names)),
                ty: element.ty(),
            },
        };
        Self { nulls: NullBufferBuilder::new(0), values }
    }

    /// Appends a value; one of another type is null. Gives how much memory it needs.
    pub(super) fn push(&mut self, cell: Cell<'_>, changed: &mut Changed) -> usize {
        /// A number, if it is one and the column's type can have it.
        macro_rules! number {
            ($values:expr, $cell:expr) => {{
                let number = match $cell {
                    Cell::Signed(number) => number.try_into().ok(),
                    Cell::Unsigned(number) | Cell::Address(number) => number.try_into().ok(),
                    _ => None,
                };
                $values.push(number.unwrap_or_default());
                (number.is_some(), size_of_val(&$values[0]))
            }};
        }
        let (is_known, size) = match &mut self.values {
            Values::I8(values) => number!(values, cell),
            Values::I16(values) => number!(values, cell),
            Values::I32(values) => number!(values, cell),
            Values::I64(values) | Values::Moment(values) => number!(values, cell),
            Values::U8(values) => number!(values, cell),
            Values::U16(values) => number!(values, cell),
            Values::U32(values) => number!(values, cell),
            Values::U64(values) => number!(values, cell),
            Values::Time(values) => {
                let (is_known, size) = number!(values, cell);
                changed.times += u64::from(!is_known && matches!(cell, Cell::Unsigned(_)));
                (is_known, size)
            }
            Values::Bool(values) => {
                values.append(matches!(cell, Cell::Bool(true)));
                (matches!(cell, Cell::Bool(_)), 1)
            }
            Values::Text(texts) => {
                let text = match cell {
                    Cell::Text(text) => Some(String::from_utf8_lossy(text)),
                    _ => None,
                };
                changed.replaced += u64::from(matches!(&text, Some(Cow::Owned(_))));
                texts.push(text.as_deref().unwrap_or_default());
                (text.is_some(), size_of::<i32>() + text.map_or(0, |text| text.len()))
            }
            Values::Name(dictionary) => {
                if let Cell::Text(text) = cell {
                    (true, dictionary.push(text, changed))
                } else {
                    dictionary.keys.push(0);
                    (false, size_of::<i32>())
                }
            }
            Values::List { ends, items, .. } => {
                let mut size = size_of::<i32>();
                if let Cell::List(list) = cell {
                    list.each(&mut |item| size += items.push(item, changed));
                }
                ends.push(i32::try_from(items.len()).unwrap_or(i32::MAX));
                (matches!(cell, Cell::List(_)), size)
            }
        };
        self.nulls.append(is_known);
        size
    }

    fn len(&self) -> usize {
        self.nulls.len()
    }

    /// Takes the values away.
    pub(super) fn take(&mut self, names: Names) -> Result<ArrayRef, ArrowError> {
        let nulls = self.nulls.finish();
        Ok(match &mut self.values {
            Values::I8(values) => Arc::new(array::<Int8Type>(values, nulls)?),
            Values::I16(values) => Arc::new(array::<Int16Type>(values, nulls)?),
            Values::I32(values) => Arc::new(array::<Int32Type>(values, nulls)?),
            Values::I64(values) | Values::Time(values) => Arc::new(array::<Int64Type>(values, nulls)?),
            Values::U8(values) => Arc::new(array::<UInt8Type>(values, nulls)?),
            Values::U16(values) => Arc::new(array::<UInt16Type>(values, nulls)?),
            Values::U32(values) => Arc::new(array::<UInt32Type>(values, nulls)?),
            Values::U64(values) => Arc::new(array::<UInt64Type>(values, nulls)?),
            Values::Moment(values) => {
                let values = array::<TimestampMicrosecondType>(values, nulls)?;
                Arc::new(values.with_timezone(schema::UTC))
            }
            Values::Bool(values) => Arc::new(BooleanArray::new(values.finish(), nulls)),
            Values::Text(texts) => Arc::new(texts.take(nulls)?),
            Values::Name(dictionary) => {
                let Dictionary { keys, mut texts, .. } = std::mem::take(dictionary);
                let keys = Int32Array::try_new(ScalarBuffer::from(keys), nulls)?;
                Arc::new(DictionaryArray::try_new(keys, Arc::new(texts.take(None)?))?)
            }
            Values::List { ends, items, ty } => {
                let ends = std::mem::replace(ends, vec![0]);
                let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
                let item = schema::item(*ty, names);
                Arc::new(ListArray::try_new(item, ends, items.take(names)?, nulls)?)
            }
        })
    }
}

/// An array of numbers.
fn array<T: ArrowPrimitiveType>(
    values: &mut Vec<T::Native>,
    nulls: Option<NullBuffer>,
) -> Result<PrimitiveArray<T>, ArrowError> {
    PrimitiveArray::try_new(ScalarBuffer::from(std::mem::take(values)), nulls)
}

#[cfg(test)]
mod tests {
    use arrow_array::Array as _;
    use arrow_array::cast::AsArray as _;

    use super::*;

    fn column(ty: Type, cells: &[Cell<'_>]) -> (ArrayRef, Changed) {
        let (mut rows, mut changed) = (ColumnRows::new(ty, Names::Dictionary), Changed::default());
        for cell in cells {
            rows.push(*cell, &mut changed);
        }
        let array = rows.take(Names::Dictionary).unwrap();
        assert_eq!(array.data_type(), &schema::data_type(ty, Names::Dictionary));
        assert_eq!(rows.take(Names::Dictionary).unwrap().len(), 0);
        (array, changed)
    }

    #[test]
    fn numbers_that_a_type_cannot_have_are_null() {
        let cells =
            [Cell::Signed(-1), Cell::Unsigned(255), Cell::Address(256), Cell::Unknown, Cell::Bool(true)];
        let (array, _) = column(Type::Unsigned(1), &cells);
        let numbers: Vec<_> = array.as_primitive::<UInt8Type>().iter().collect();
        assert_eq!(numbers, [None, Some(255), None, None, None]);
        let (array, changed) =
            column(Type::Time, &[Cell::Unsigned(1 << 63), Cell::Unknown, Cell::Unsigned(7)]);
        assert_eq!(array.as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), [None, None, Some(7)]);
        assert_eq!(changed.times, 1);
    }

    #[test]
    fn texts_are_utf8_and_dictionaries_have_each_once() {
        let texts = [&b"a"[..], b"\xff", b"a", b"\xff", b"b", b"b"].map(Cell::Text);
        for ty in [Type::Text, Type::Name] {
            let (array, changed) = column(ty, &[&texts[..], &[Cell::Unknown]].concat());
            assert_eq!((array.len(), array.null_count(), changed.replaced), (7, 1, 2));
            let texts: Vec<Option<String>> = match array.as_any_dictionary_opt() {
                None => array.as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect(),
                Some(dictionary) => {
                    let texts = dictionary.values().as_string::<i32>();
                    assert_eq!(texts.len(), 3);
                    let keys = dictionary.keys().as_primitive::<Int32Type>();
                    keys.iter().map(|key| key.map(|key| texts.value(key as usize).to_owned())).collect()
                }
            };
            let texts: Vec<Option<&str>> = texts.iter().map(Option::as_deref).collect();
            let wrong = Some("\u{fffd}");
            assert_eq!(texts, [Some("a"), wrong, Some("a"), wrong, Some("b"), Some("b"), None]);
        }
    }
}
