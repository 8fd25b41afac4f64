//! Typed access to the fields of a record.
//!
//! A record comes from an untrusted file: each access is checked against the record's length, and dynamic
//! data that reaches beyond its end is an error. Nothing is copied; texts and arrays are slices of the
//! record.

use super::format::{Array, Field, Format, Location};
use super::int::IntType;
use super::typed::state;
pub use crate::Endian;

/// The kind of machine that wrote a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Byte order of its numbers.
    pub endian: Endian,
    /// Bytes of its `long` and of its pointers: 4 or 8.
    pub long_size: u8,
}

impl Default for Machine {
    /// Little-endian with 64 bits, as all machines are that the agent records on.
    fn default() -> Self {
        Self { endian: Endian::Little, long_size: 8 }
    }
}

impl Machine {
    /// The unsigned number in the first up to 8 bytes.
    #[inline]
    pub fn number(self, bytes: &[u8]) -> u64 {
        match self.endian {
            Endian::Little => match bytes.len() {
                1 => u64::from(bytes[0]),
                8 => bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)),
                4 => bytes.first_chunk().map_or(0, |bytes| u64::from(u32::from_le_bytes(*bytes))),
                2 => bytes.first_chunk().map_or(0, |bytes| u64::from(u16::from_le_bytes(*bytes))),
                _ => bytes.iter().take(8).rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
            },
            Endian::Big => bytes.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        }
    }
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'r> {
    /// A signed number of 1, 2, 4 or 8 bytes.
    Signed(i64),
    /// An unsigned number of 1, 2, 4 or 8 bytes.
    Unsigned(u64),
    /// An address.
    Pointer(u64),
    /// Characters up to the first NUL.
    Text(&'r [u8]),
    /// Texts, of a probe's argument.
    Texts(Texts<'r>),
    /// Numbers.
    Array(Numbers<'r>),
    /// A set of CPUs or other bits, as longs of the machine.
    Bitmask(Bits<'r>),
    /// A struct, or anything else that the format does not explain.
    Bytes(&'r [u8]),
}

impl Value<'_> {
    /// The bits of a number, as an address or a set of flags has them. `None` for what is no number.
    pub fn address(&self) -> Option<u64> {
        match *self {
            Self::Unsigned(value) | Self::Pointer(value) => Some(value),
            Self::Signed(value) => Some(value.cast_unsigned()),
            _ => None,
        }
    }
}

/// Why a field has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// The record ends before the field does.
    #[error("the field ends at byte {end} and the record at {len}")]
    Short {
        /// Where the field ends.
        end: usize,
        /// How long the record is.
        len: usize,
    },
    /// The field's dynamic data is not all in the record.
    #[error("dynamic data of {size} bytes at {offset} is not in a record of {len}")]
    Outside {
        /// Where the data starts.
        offset: usize,
        /// How long it is.
        size: usize,
        /// How long the record is.
        len: usize,
    },
}

/// An array of numbers in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers<'r> {
    bytes: &'r [u8],
    machine: Machine,
    size: u8,
    signed: bool,
}

impl<'r> Numbers<'r> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.bytes.len() / usize::from(self.size)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers as [`Value::Signed`] or [`Value::Unsigned`].
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Value<'static>> + use<'r> {
        let Self { bytes, machine, size, signed } = *self;
        bytes.chunks_exact(usize::from(size)).map(move |bytes| number(machine.number(bytes), size, signed))
    }

    /// The bytes as they are stored.
    pub fn bytes(&self) -> &'r [u8] {
        self.bytes
    }
}

/// An array of texts in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Texts<'r> {
    record: &'r [u8],
    start: usize,
    count: usize,
    location: Location,
    machine: Machine,
}

impl<'r> Texts<'r> {
    /// The texts, each up to its first NUL.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Result<&'r [u8], FieldError>> + use<'r> {
        let Self { record, start, count, location, machine } = *self;
        (0..count).map(move |index| {
            let (from, end) = (start + index * 4, start + index * 4 + 4);
            let word = record.get(from..end).ok_or(FieldError::Short { end, len: record.len() })?;
            let (offset, size) = dynamic(machine.number(word) as u32, location, end);
            let outside = FieldError::Outside { offset, size, len: record.len() };
            record.get(offset..offset + size).map(until_nul).ok_or(outside)
        })
    }
}

/// A set of bits in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits<'r> {
    bytes: &'r [u8],
    machine: Machine,
}

impl<'r> Bits<'r> {
    pub(super) fn new(bytes: &'r [u8], machine: Machine) -> Self {
        Self { bytes, machine }
    }

    /// How many bits the set can hold.
    pub fn capacity(&self) -> usize {
        self.bytes.len() * 8
    }

    /// Whether a bit is set.
    pub fn contains(&self, bit: usize) -> bool {
        self.byte(bit / 8) >> (bit % 8) & 1 != 0
    }

    /// The numbers of the bits that are set.
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<'r> {
        let set = *self;
        (0..self.capacity()).filter(move |bit| set.contains(*bit))
    }

    /// 32 bits of the set.
    pub(super) fn word(&self, index: usize) -> u32 {
        u32::from_le_bytes([0, 1, 2, 3].map(|byte| self.byte(index * 4 + byte)))
    }

    /// 8 bits of the set. The kernel stores it as longs: on a big-endian machine the bytes of each are in
    /// reverse.
    fn byte(&self, index: usize) -> u8 {
        let long = usize::from(self.machine.long_size);
        let at = match self.machine.endian {
            Endian::Little => index,
            Endian::Big => index / long * long + (long - 1 - index % long),
        };
        self.bytes.get(at).copied().unwrap_or(0)
    }
}

/// What the values of a field are, as far as its format says without a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// [`Value::Signed`] or [`Value::Unsigned`].
    Number {
        /// Bytes: 1, 2, 4 or 8.
        size: u8,
        /// Whether it is [`Value::Signed`].
        signed: bool,
    },
    /// [`Value::Pointer`].
    Pointer {
        /// Bytes: 4 or 8.
        size: u8,
    },
    /// [`Value::Text`].
    Text,
    /// [`Value::Texts`].
    Texts {
        /// How many.
        count: usize,
    },
    /// [`Value::Array`].
    Array {
        /// Bytes of an element: 1, 2, 4 or 8.
        size: u8,
        /// Whether the elements are [`Value::Signed`].
        signed: bool,
        /// How many elements every record has; `None` if that is up to the record.
        count: Option<usize>,
    },
    /// [`Value::Bitmask`].
    Bitmask,
    /// [`Value::Bytes`].
    Bytes {
        /// How many every record has; `None` if that is up to the record.
        count: Option<usize>,
    },
}

/// Where a field's value is and what it is, found out once.
#[derive(Clone, Copy, Debug)]
struct Slot {
    offset: usize,
    size: usize,
    location: Location,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Number {
        signed: bool,
    },
    Pointer,
    Text,
    Texts {
        count: usize,
    },
    Array {
        size: u8,
        signed: bool,
    },
    Bitmask,
    Bytes,
    /// A text of a task's state, read as its bits.
    StateLetters,
    /// A number of a task's state, of which each bit stands for another one.
    StateNumber {
        signed: bool,
        bits: StateBits,
    },
}

/// What each bit of a task's state stands for; 0 for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StateBits(pub(super) [u8; 16]);

impl StateBits {
    fn of(self, state: u64) -> u64 {
        let bits = self.0.iter().enumerate().filter(|(place, _)| state >> place & 1 != 0);
        bits.fold(0, |bits, (_, bit)| bits | u64::from(*bit))
    }
}

/// Reads the fields of the records of one event.
#[derive(Clone, Debug)]
pub struct RecordReader {
    machine: Machine,
    common: usize,
    slots: Box<[Slot]>,
}

impl RecordReader {
    /// A reader of the records that `format` describes. Fields are numbered in its order, the common ones
    /// first.
    pub fn new(format: &Format, machine: Machine) -> Self {
        let slots =
            format.common.iter().chain(&format.fields).map(|field| Slot::of(field, machine)).collect();
        Self { machine, common: format.common.len(), slots }
    }

    /// How many fields there are, the common ones with them.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// How many of them are the common ones.
    pub fn common(&self) -> usize {
        self.common
    }

    /// The value of a field, by its index in the format. `None` if there is no such field.
    pub fn value<'r>(&self, index: usize, record: &'r [u8]) -> Option<Result<Value<'r>, FieldError>> {
        self.slots.get(index).map(|slot| slot.value(record, self.machine))
    }

    /// The bytes of a field, by its index in the format, or of the data that it points to: a text with its
    /// NUL, which an empty one has and one that was not recorded has not. `None` if there is no such field.
    pub fn bytes<'r>(&self, index: usize, record: &'r [u8]) -> Option<Result<&'r [u8], FieldError>> {
        let Slot { offset, size, location, .. } = *self.slots.get(index)?;
        Some(bytes(record, offset, size, location, self.machine))
    }

    /// What the values of a field are, by its index in the format. `None` if there is no such field.
    pub fn kind(&self, index: usize) -> Option<FieldKind> {
        self.slots.get(index).map(Slot::kind)
    }

    /// A field by its index in the format, to read it in many records. `None` if there is no such field.
    pub fn field(&self, index: usize) -> Option<FieldReader> {
        self.slots.get(index).map(|slot| FieldReader { slot: *slot, machine: self.machine })
    }
}

/// Reads one field of the records of an event.
#[derive(Clone, Copy, Debug)]
pub struct FieldReader {
    slot: Slot,
    machine: Machine,
}

impl FieldReader {
    /// How many bytes of the record the field has, dynamic data not included.
    pub fn size(&self) -> usize {
        self.slot.size
    }

    /// The bits of a number or an address, with its sign. `None` for another field, and if the record ends
    /// before it.
    #[inline]
    pub fn number(&self, record: &[u8]) -> Option<u64> {
        let Slot { offset, size, kind, .. } = self.slot;
        // Numbers are never dynamic data: those would be arrays.
        let signed = match kind {
            Kind::Number { signed } => signed,
            Kind::Pointer => false,
            Kind::StateLetters | Kind::StateNumber { .. } => return self.state(record),
            _ => return None,
        };
        let number = self.machine.number(record.get(offset..offset + size)?);
        Some(IntType { size: size as u8, signed }.wrap(number))
    }

    /// The same field, whose text is that of a task's state.
    pub(super) fn of_letters(mut self) -> Self {
        self.slot.kind = Kind::StateLetters;
        self
    }

    /// The same field, whose number is a task's state in which bits stand for others.
    pub(super) fn of_bits(mut self, bits: StateBits) -> Self {
        if let Kind::Number { signed } = self.slot.kind {
            self.slot.kind = Kind::StateNumber { signed, bits };
        }
        self
    }

    #[cold]
    fn state(&self, record: &[u8]) -> Option<u64> {
        let Slot { offset, size, location, kind } = self.slot;
        let bytes = bytes(record, offset, size, location, self.machine).ok()?;
        match kind {
            Kind::StateLetters => state::of_letters(until_nul(bytes)),
            Kind::StateNumber { bits, .. } => Some(bits.of(self.machine.number(bytes))),
            _ => None,
        }
    }

    /// The number that has all the bits that the field has room for.
    pub fn all_ones(&self) -> u64 {
        IntType { size: self.slot.size as u8, signed: false }.wrap(u64::MAX)
    }

    /// The characters of a text up to the first NUL. `None` for another field, and if the record does not
    /// have it.
    #[inline]
    pub fn text<'r>(&self, record: &'r [u8]) -> Option<&'r [u8]> {
        let Slot { offset, size, location, kind } = self.slot;
        if !matches!(kind, Kind::Text) {
            return None;
        }
        bytes(record, offset, size, location, self.machine).ok().map(until_nul)
    }

    /// The value, whatever it is.
    ///
    /// # Errors
    /// The record does not have the field.
    pub fn value<'r>(&self, record: &'r [u8]) -> Result<Value<'r>, FieldError> {
        let value = self.slot.value(record, self.machine)?;
        match self.slot.kind {
            Kind::StateLetters | Kind::StateNumber { .. } => {
                Ok(self.state(record).map_or(value, Value::Unsigned))
            }
            _ => Ok(value),
        }
    }
}

impl Slot {
    fn of(field: &Field, machine: Machine) -> Self {
        let words = || field.type_text.split_whitespace();
        let is_array = field.array != Array::Single || field.location != Location::Inline || field.is_open();
        let composite = words().any(|word| word == "struct" || word == "union");
        let pointer = field.type_text.contains('*');
        let kind = if let Some(count) = field.strings() {
            Kind::Texts { count: count as usize }
        } else if words().any(|word| matches!(word, "cpumask_t" | "bitmask_t")) || is_bitmask(field) {
            Kind::Bitmask
        } else if is_array && words().next_back() == Some("char") && !words().any(|word| word == "unsigned") {
            Kind::Text
        } else if is_array {
            let size = if pointer {
                Some(u32::from(machine.long_size))
            } else if words().any(|word| word == "long") && !words().any(|word| word == "int64") {
                Some(long_size(&field.type_text, machine))
            } else {
                field.element_size()
            };
            match size {
                Some(size @ (1 | 2 | 4 | 8)) if !composite || pointer => {
                    Kind::Array { size: size as u8, signed: field.signed }
                }
                _ => Kind::Bytes,
            }
        } else if pointer && matches!(field.size, 4 | 8) {
            Kind::Pointer
        } else if matches!(field.size, 1 | 2 | 4 | 8) && !composite {
            Kind::Number { signed: field.signed }
        } else {
            Kind::Bytes
        };
        let (offset, size) = (field.offset as usize, field.size as usize);
        Self { offset, size, location: field.location, kind }
    }

    fn kind(&self) -> FieldKind {
        let fixed = self.location == Location::Inline && self.size != 0;
        match self.kind {
            Kind::Number { signed } | Kind::StateNumber { signed, .. } => {
                FieldKind::Number { size: self.size as u8, signed }
            }
            Kind::Pointer => FieldKind::Pointer { size: self.size as u8 },
            Kind::Text | Kind::StateLetters => FieldKind::Text,
            Kind::Texts { count } => FieldKind::Texts { count },
            Kind::Array { size, signed } => {
                let count = fixed.then_some(self.size / usize::from(size));
                FieldKind::Array { size, signed, count }
            }
            Kind::Bitmask => FieldKind::Bitmask,
            Kind::Bytes => FieldKind::Bytes { count: fixed.then_some(self.size) },
        }
    }

    fn value<'r>(&self, record: &'r [u8], machine: Machine) -> Result<Value<'r>, FieldError> {
        if let Kind::Texts { count } = self.kind {
            let Self { offset: start, size, location, .. } = *self;
            let end = start + size;
            record.get(start..end).ok_or(FieldError::Short { end, len: record.len() })?;
            return Ok(Value::Texts(Texts { record, start, count, location, machine }));
        }
        let bytes = bytes(record, self.offset, self.size, self.location, machine)?;
        Ok(match self.kind {
            Kind::Number { signed } | Kind::StateNumber { signed, .. } => {
                number(machine.number(bytes), self.size as u8, signed)
            }
            Kind::Pointer => Value::Pointer(machine.number(bytes)),
            Kind::Text | Kind::StateLetters | Kind::Texts { .. } => Value::Text(until_nul(bytes)),
            Kind::Array { size, signed } => Value::Array(Numbers { bytes, machine, size, signed }),
            Kind::Bitmask => Value::Bitmask(Bits::new(bytes, machine)),
            Kind::Bytes => Value::Bytes(bytes),
        })
    }
}

/// The bytes of a field: those at its offset, or those that they point to.
pub(super) fn bytes(
    record: &[u8],
    offset: usize,
    size: usize,
    location: Location,
    machine: Machine,
) -> Result<&[u8], FieldError> {
    let end = offset + size;
    let fixed = record.get(offset..end).ok_or(FieldError::Short { end, len: record.len() })?;
    match location {
        // An array of open length extends to the end of the record.
        Location::Inline if size == 0 => Ok(&record[offset..]),
        Location::Inline => Ok(fixed),
        Location::DataLoc | Location::RelLoc => {
            let word = machine.number(fixed) as u32;
            let (offset, size) = dynamic(word, location, end);
            let outside = FieldError::Outside { offset, size, len: record.len() };
            record.get(offset..offset + size).ok_or(outside)
        }
    }
}

/// Offset and size of dynamic data, from the word that holds them and the end of that word in the record.
pub(super) fn dynamic(word: u32, location: Location, end: usize) -> (usize, usize) {
    let base = if location == Location::RelLoc { end } else { 0 };
    (base + (word & 0xffff) as usize, (word >> 16) as usize)
}

/// The bytes before the first NUL.
#[inline]
pub fn until_nul(bytes: &[u8]) -> &[u8] {
    // Names of threads, which most texts are, have 16 bytes.
    let end = match <&[u8; 16]>::try_from(bytes) {
        Ok(name) => len_until_nul(name),
        Err(_) => bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len()),
    };
    &bytes[..end]
}

/// How many bytes are before the first NUL.
#[inline]
pub fn len_until_nul(bytes: &[u8; 16]) -> usize {
    const LOWEST: u128 = u128::from_ne_bytes([0x01; 16]);
    const HIGHEST: u128 = u128::from_ne_bytes([0x80; 16]);
    // Of the bytes from which 1 is borrowed, the first one is 0; those behind may be 1.
    let word = u128::from_le_bytes(*bytes);
    let zeros = word.wrapping_sub(LOWEST) & !word & HIGHEST;
    (zeros.trailing_zeros() / 8) as usize
}

/// `__bitmask` of include/trace/stages/stage1_struct_define.h declares dynamic data of `unsigned long`s with
/// no brackets after the type.
fn is_bitmask(field: &Field) -> bool {
    field.location != Location::Inline && field.array == Array::Single && field.type_text == "unsigned long"
}

pub(super) fn long_size(type_text: &str, machine: Machine) -> u32 {
    let longs = type_text.split_whitespace().filter(|word| *word == "long").count();
    if longs > 1 { 8 } else { u32::from(machine.long_size) }
}

#[inline]
fn number(value: u64, size: u8, signed: bool) -> Value<'static> {
    if !signed {
        return Value::Unsigned(value);
    }
    let unused = 64 - 8 * u32::from(size);
    Value::Signed((value << unused) as i64 >> unused)
}

/// Bits of `common_flags` (include/linux/trace_events.h, enum trace_flag_type).
pub mod flag {
    /// Interrupts are off.
    pub const IRQS_OFF: u64 = 0x01;
    /// Its meaning depends on the kernel's version.
    pub const SECOND: u64 = 0x02;
    /// The thread is to give up the CPU.
    pub const NEED_RESCHED: u64 = 0x04;
    /// In a hard interrupt.
    pub const HARD_IRQ: u64 = 0x08;
    /// In a soft interrupt.
    pub const SOFT_IRQ: u64 = 0x10;
    /// In a non-maskable interrupt.
    pub const NMI: u64 = 0x40;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(declaration: &str, offset: u32, size: u32, signed: u8) -> Field {
        Field::parse(&format!("{declaration};\toffset:{offset};\tsize:{size};\tsigned:{signed};")).unwrap()
    }

    fn value<'r>(field: &Field, record: &'r [u8], machine: Machine) -> Result<Value<'r>, FieldError> {
        Slot::of(field, machine).value(record, machine)
    }

    const LITTLE: Machine = Machine { endian: Endian::Little, long_size: 8 };
    const BIG: Machine = Machine { endian: Endian::Big, long_size: 8 };

    #[test]
    fn texts_end_at_their_first_nul() {
        assert_eq!(until_nul(b"abc\0d"), b"abc");
        assert_eq!(until_nul(b"abc"), b"abc");
        let full = *b"\x01\xff\x80sixteen bytes";
        assert_eq!(len_until_nul(&full), 16);
        for end in 0..16 {
            let mut text = full;
            text[end] = 0;
            assert_eq!(until_nul(&text), &full[..end]);
            // What is behind it does not count.
            text[end + 1..].fill(0);
            assert_eq!(len_until_nul(&text), end);
            text[end + 1..].fill(1);
            assert_eq!(len_until_nul(&text), end);
        }
    }

    #[test]
    fn numbers_of_all_sizes_in_both_orders() {
        let record = [0xff, 0xfe, 0, 0, 0, 0, 0, 1, 2];
        for (declaration, size, signed, little, big) in [
            ("char c", 1, 1, Value::Signed(-1), Value::Signed(-1)),
            ("u8 c", 1, 0, Value::Unsigned(0xff), Value::Unsigned(0xff)),
            ("short c", 2, 1, Value::Signed(-257), Value::Signed(-2)),
            ("int c", 4, 1, Value::Signed(0xfeff), Value::Signed(-0x0002_0000)),
            ("u64 c", 8, 0, Value::Unsigned(0x0100_0000_0000_feff), Value::Unsigned(0xfffe_0000_0000_0001)),
            ("void * c", 8, 0, Value::Pointer(0x0100_0000_0000_feff), Value::Pointer(0xfffe_0000_0000_0001)),
            ("struct x c", 2, 0, Value::Bytes(&[0xff, 0xfe]), Value::Bytes(&[0xff, 0xfe])),
            ("odd_t c", 3, 0, Value::Bytes(&[0xff, 0xfe, 0]), Value::Bytes(&[0xff, 0xfe, 0])),
        ] {
            let field = field(declaration, 0, size, signed);
            assert_eq!(value(&field, &record, LITTLE), Ok(little), "{declaration}");
            assert_eq!(value(&field, &record, BIG), Ok(big), "{declaration}");
            let short = value(&field, &record[..size as usize - 1], LITTLE);
            assert_eq!(short, Err(FieldError::Short { end: size as usize, len: size as usize - 1 }));
        }
    }

    #[test]
    fn arrays_texts_and_bits() {
        let record = [8, 0, 4, 0, 12, 0, 8, 0, b'a', b'b', 0, b'c', 1, 0, 2, 0, 5, 0, 0, 0];
        let numbers = |field: &Field| match value(field, &record, LITTLE) {
            Ok(Value::Array(numbers)) => numbers.iter().collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        let name = field("__data_loc char[] name", 0, 4, 0);
        assert_eq!(value(&name, &record, LITTLE), Ok(Value::Text(b"ab")));
        let fixed = field("char name[4]", 8, 4, 0);
        assert_eq!(value(&fixed, &record, LITTLE), Ok(Value::Text(b"ab")));
        assert_eq!(
            numbers(&field("__data_loc u16[] n", 4, 4, 0))[..2],
            [Value::Unsigned(1), Value::Unsigned(2)]
        );
        assert_eq!(numbers(&field("int n[2]", 12, 8, 1)), [Value::Signed(0x0002_0001), Value::Signed(5)]);
        assert_eq!(numbers(&field("u32 n[]", 16, 0, 0)), [Value::Unsigned(5)]);
        assert_eq!(numbers(&field("void *n[1]", 8, 8, 0)).len(), 1);
        let texts = field("__data_loc char[][2] t", 0, 8, 1);
        let record = [8, 0, 4, 0, 12, 0, 90, 0, b'a', b'b', 0, b'c', 1, 0, 2, 0, 5, 0, 0, 0];
        let Ok(Value::Texts(texts)) = value(&texts, &record, LITTLE) else { panic!("no texts") };
        let outside = FieldError::Outside { offset: 12, size: 90, len: 20 };
        assert_eq!(texts.iter().collect::<Vec<_>>(), [Ok(&b"ab"[..]), Err(outside)]);
        let record = [8, 0, 4, 0, 12, 0, 8, 0, b'a', b'b', 0, b'c', 1, 0, 2, 0, 5, 0, 0, 0];
        let Ok(Value::Bitmask(bits)) = value(&field("__data_loc cpumask_t m", 4, 4, 0), &record, LITTLE)
        else {
            panic!("no bits")
        };
        assert_eq!((bits.capacity(), bits.iter().collect::<Vec<_>>()), (64, vec![0, 17, 32, 34]));
        // The same numbers, as a machine of the other order stores the long.
        let bits = Bits::new(&[0, 0, 0, 5, 0, 2, 0, 1], BIG);
        assert_eq!(bits.iter().collect::<Vec<_>>(), [0, 17, 32, 34]);
    }

    #[test]
    fn a_field_is_read_as_its_value_is() {
        let record = [0xff, 0xfe, 0, 0, 12, 0, 3, 0, b'a', b'b', 0, 0, b'c', b'd', b'e'];
        for machine in [LITTLE, BIG] {
            for (declaration, offset, size, signed) in [
                ("char c", 0, 1, 1),
                ("short c", 0, 2, 1),
                ("unsigned int c", 0, 4, 0),
                ("int c", 0, 4, 1),
                ("void * c", 0, 8, 0),
                ("u64 c", 8, 8, 0),
                ("char c[4]", 8, 4, 0),
                ("char c[]", 8, 0, 0),
                ("__data_loc char[] c", 4, 4, 0),
                ("int c[2]", 0, 8, 1),
            ] {
                let slot = Slot::of(&field(declaration, offset, size, signed), machine);
                let reader = FieldReader { slot, machine };
                let value = slot.value(&record, machine).ok();
                assert_eq!(reader.number(&record), value.and_then(|value| value.address()), "{declaration}");
                let text =
                    value.and_then(|value| if let Value::Text(text) = value { Some(text) } else { None });
                assert_eq!(reader.text(&record), text, "{declaration}");
            }
        }
    }

    #[test]
    fn kinds_tell_what_values_there_will_be() {
        for (declaration, size, signed, kind) in [
            ("char c", 1, 1, FieldKind::Number { size: 1, signed: true }),
            ("void * c", 8, 0, FieldKind::Pointer { size: 8 }),
            ("char c[16]", 16, 0, FieldKind::Text),
            ("__data_loc char[][2] c", 8, 1, FieldKind::Texts { count: 2 }),
            ("u16 c[3]", 6, 0, FieldKind::Array { size: 2, signed: false, count: Some(3) }),
            ("__data_loc int[] c", 4, 1, FieldKind::Array { size: 4, signed: true, count: None }),
            ("u32 c[]", 0, 0, FieldKind::Array { size: 4, signed: false, count: None }),
            ("__data_loc cpumask_t c", 4, 0, FieldKind::Bitmask),
            ("struct x c", 12, 0, FieldKind::Bytes { count: Some(12) }),
        ] {
            let slot = Slot::of(&field(declaration, 8, size, signed), LITTLE);
            assert_eq!(slot.kind(), kind, "{declaration}");
        }
    }

    #[test]
    fn longs_are_those_of_the_machine() {
        let small = Machine { endian: Endian::Little, long_size: 4 };
        let count = |field: &Field, machine| match value(field, &[0; 16], machine) {
            Ok(Value::Array(numbers)) => numbers.len(),
            other => panic!("{other:?}"),
        };
        for (declaration, on_64, on_32) in [
            ("unsigned long n[]", 2, 4),
            ("unsigned long long n[]", 2, 2),
            ("void *n[]", 2, 4),
            ("int n[]", 4, 4),
        ] {
            let field = field(declaration, 0, 0, 0);
            assert_eq!((count(&field, LITTLE), count(&field, small)), (on_64, on_32), "{declaration}");
        }
    }

    #[test]
    fn data_outside_is_an_error() {
        let data = field("__data_loc char[] s", 0, 4, 0);
        let relative = field("__rel_loc char[] s", 0, 4, 0);
        let record = [4, 0, 3, 0, b'x', b'y', b'z'];
        assert_eq!(value(&data, &record, LITTLE), Ok(Value::Text(b"xyz")));
        assert_eq!(
            value(&relative, &record, LITTLE),
            Err(FieldError::Outside { offset: 8, size: 3, len: 7 })
        );
        assert_eq!(
            value(&data, &record[..6], LITTLE),
            Err(FieldError::Outside { offset: 4, size: 3, len: 6 })
        );
        assert_eq!(value(&relative, &[0, 0, 3, 0, b'x', b'y', b'z'], LITTLE), Ok(Value::Text(b"xyz")));
    }
}
