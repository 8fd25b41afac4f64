//! What tables are made of: columns with types, and values, whatever they are written as.

use std::borrow::Cow;

use ftrace_event::stacks::{self, Frames};
use ftrace_event::{Numbers, Symbols, Value};

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// A signed number of so many bytes: 1, 2, 4 or 8.
    Signed(u8),
    /// An unsigned number of so many bytes: 1, 2, 4 or 8.
    Unsigned(u8),
    Address,
    Bool,
    Text,
    /// A text of which there are few different ones.
    Name,
    /// Nanoseconds of the recording's clock, or a time span in them.
    Time,
    /// Nanoseconds since 1970.
    Wall,
    /// A moment as databases have it: microseconds since 1970, UTC. Text has [`Type::Wall`] only.
    Moment,
    /// Of elements of one type, which is no list.
    List(Element),
}

/// The type of a list's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    Signed(u8),
    Unsigned(u8),
    Address,
    Text,
}

impl Element {
    /// The same as a type of columns.
    pub(super) fn ty(self) -> Type {
        match self {
            Self::Signed(size) => Type::Signed(size),
            Self::Unsigned(size) => Type::Unsigned(size),
            Self::Address => Type::Address,
            Self::Text => Type::Text,
        }
    }
}

/// A column's name and type.
pub(super) type Column = (Cow<'static, str>, Type);

/// A value of a row.
#[derive(Clone, Copy)]
pub(super) enum Cell<'a> {
    Unknown,
    Signed(i64),
    Unsigned(u64),
    Address(u64),
    Bool(bool),
    /// Bytes that should be UTF-8.
    Text(&'a [u8]),
    List(&'a dyn Items),
}

impl From<u64> for Cell<'_> {
    fn from(number: u64) -> Self {
        Self::Unsigned(number)
    }
}

impl From<u32> for Cell<'_> {
    fn from(number: u32) -> Self {
        Self::Unsigned(number.into())
    }
}

impl From<i64> for Cell<'_> {
    fn from(number: i64) -> Self {
        Self::Signed(number)
    }
}

impl From<bool> for Cell<'_> {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text.as_bytes())
    }
}

impl<'a> From<&'a [u8]> for Cell<'a> {
    fn from(text: &'a [u8]) -> Self {
        Self::Text(text)
    }
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Unknown, Into::into)
    }
}

impl<'a> From<&'a Value<'_>> for Cell<'a> {
    fn from(value: &'a Value<'_>) -> Self {
        match *value {
            Value::Signed(number) => Self::Signed(number),
            Value::Unsigned(number) => Self::Unsigned(number),
            Value::Pointer(address) => Self::Address(address),
            Value::Text(text) => Self::Text(text),
            Value::Texts(_) | Value::Array(_) | Value::Bitmask(_) | Value::Bytes(_) => Self::List(value),
        }
    }
}

/// The elements of a list.
pub(super) trait Items {
    /// Gives each of them, in their order.
    fn each(&self, give: &mut dyn FnMut(Cell<'_>));
}

impl Items for Value<'_> {
    fn each(&self, give: &mut dyn FnMut(Cell<'_>)) {
        match self {
            Value::Array(numbers) => numbers.iter().for_each(|number| give(Cell::from(&number))),
            Value::Bitmask(bits) => bits.iter().for_each(|bit| give(Cell::Unsigned(bit as u64))),
            Value::Bytes(bytes) => bytes.iter().for_each(|byte| give(Cell::Unsigned(u64::from(*byte)))),
            Value::Texts(texts) => texts.iter().for_each(|text| give(text.ok().into())),
            one => give(one.into()),
        }
    }
}

impl Items for Vec<&str> {
    fn each(&self, give: &mut dyn FnMut(Cell<'_>)) {
        for text in self {
            give((*text).into());
        }
    }
}

/// The addresses of a field that has several: of a stack, or of another array.
pub(super) enum Addresses<'a> {
    Stack(Frames<'a>),
    Array(Numbers<'a>),
}

impl Addresses<'_> {
    fn each_address(&self, give: impl FnMut(u64)) {
        match self {
            Self::Stack(frames) => frames.clone().for_each(give),
            Self::Array(numbers) => numbers.iter().filter_map(|number| number.address()).for_each(give),
        }
    }
}

impl Items for Addresses<'_> {
    fn each(&self, give: &mut dyn FnMut(Cell<'_>)) {
        self.each_address(|address| give(Cell::Address(address)));
    }
}

/// The symbols that addresses are in, with offsets.
pub(super) struct SymbolsOf<'a> {
    pub(super) addresses: Addresses<'a>,
    /// Of frames, the process that they are of.
    pub(super) process: Option<u32>,
    pub(super) symbols: &'a dyn Symbols,
}

impl Items for SymbolsOf<'_> {
    fn each(&self, give: &mut dyn FnMut(Cell<'_>)) {
        self.addresses.each_address(|address| {
            let place = stacks::place_of_frame(self.symbols, self.process, address);
            let text = symbol_text(self.symbols, place);
            give(Cell::from(text.as_deref()));
        });
    }
}

/// The symbol that an address is in, with the offset of the address in it.
pub(super) fn symbol_text(symbols: &dyn Symbols, address: u64) -> Option<Cow<'_, str>> {
    let symbol = stacks::symbol(symbols, address)?;
    Some(match symbol.offset {
        0 => Cow::Borrowed(symbol.name),
        offset => Cow::Owned(format!("{}+{offset:#x}", symbol.name)),
    })
}
