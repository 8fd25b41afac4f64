//! Counting events in maps instead of recording them.
//!
//! An event that a map counts has a program which makes the fields that its keys and values are made of, as a
//! filter's are made, and calls a function that finds the key's values in the map and changes them
//! (`agent_ebpf::aggregates`). For the time between two events both have programs: that of the first notes
//! when it was, under what both have in common.
//!
//! | module | subject |
//! |---|---|
//! | `function` | the function |
//! | `generic` | programs at tracepoints, with the records that the kernel makes for perf |

mod function;
mod generic;

use agent_ebpf::aggregates::{INDEX_PER_KEY, KEY_WORDS_MAX, POWERS, STARTS_PER_KEY, value};

use serde::{Deserialize, Serialize};

pub use function::{Counter, Target};
pub use generic::program;

use super::filter::Uncompiled;
use ftrace_event::filter::program::{Number, Text, Value};
use ftrace_event::filter::{Filter, FilterError};
use ftrace_event::{AddressKind, EventTable, Location};

/// Bytes of a text in a key: what is longer is cut.
pub const TEXT_MAX: u32 = 64;
/// Words of what the two events of a time have in common.
pub const PAIR_WORDS_MAX: usize = 4;
/// Bytes of a text there, and of a thread's name.
const NAME_BYTES: u32 = 16;
/// Times that can be open at least, whatever the number of entries.
const MOST_OPEN: u32 = 4096;
/// How many words keys have.
const CLASSES: [usize; 7] = [0, 1, 2, 3, 4, 8, KEY_WORDS_MAX];

/// Why events cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum CountError {
    /// A key, or the value.
    #[error(transparent)]
    Field(#[from] FilterError),
    /// A part that the kernel cannot evaluate.
    #[error("the kernel cannot evaluate a key or value: {0}")]
    Uncompiled(#[from] Uncompiled),
    /// A text that has no place in a key.
    #[error(
        "`{0}` cannot be a key: only texts of the event, names of threads, and strings in user memory can"
    )]
    Text(String),
    /// What is to be a number and is none.
    #[error("`{0}` is no number")]
    NoNumber(String),
    /// Too many words.
    #[error("the keys have {0} bytes, and a map takes {max}: use fewer texts", max = KEY_WORDS_MAX * 8)]
    Keys(usize),
    /// The same of a pair's.
    #[error("what pairs the events has {0} bytes, and can have {max}", max = PAIR_WORDS_MAX * 8)]
    Pair(usize),
    /// One side has a text where the other has a number.
    #[error("the events cannot be paired: one has a text where the other has a number")]
    Kinds,
}

/// What is done with the values of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// They are counted, and added up or compared.
    Numbers {
        /// Their sum.
        sum: bool,
        /// The smallest.
        least: bool,
        /// The largest.
        most: bool,
    },
    /// They are counted by their powers of two.
    Powers,
    /// They are counted by ranges of equal width.
    Steps {
        /// Where the first range begins.
        from: i64,
        /// How wide each is; not 0.
        step: u64,
        /// How many there are; 1 or more.
        count: u32,
    },
}

impl Function {
    /// Words of an entry's values.
    pub fn words(self) -> usize {
        match self {
            Self::Numbers { .. } => value::NUMBERS,
            Self::Powers => value::BUCKETS + POWERS,
            Self::Steps { count, .. } => value::BUCKETS + count as usize + 2,
        }
    }
}

/// The memory of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Entries.
    pub keys: u32,
    /// Words of a key.
    pub key_words: u32,
    /// Words of an entry's values.
    pub value_words: u32,
    /// Words of what pairs the events of times; 0 if it has none.
    pub pair_words: u32,
}

impl Sizes {
    /// Words of the index.
    pub fn index(self) -> u32 {
        self.keys.saturating_mul(INDEX_PER_KEY).next_power_of_two()
    }

    /// Times that can be open.
    pub fn starts(self) -> u32 {
        let starts = self.keys.max(MOST_OPEN).saturating_mul(STARTS_PER_KEY).next_power_of_two();
        if self.pair_words == 0 { 1 } else { starts }
    }

    /// Bytes of all of it, for so many CPUs.
    pub fn bytes(self, cpus: u32) -> u64 {
        let words = u64::from(self.index())
            + u64::from(self.keys) * u64::from(self.key_words)
            + u64::from(self.keys) * u64::from(self.value_words) * u64::from(cpus)
            + u64::from(self.starts()) * u64::from(1 + self.pair_words);
        words * 8
    }
}

/// What a map asks of the events of one side.
#[derive(Clone, Debug)]
pub struct Question {
    /// Which side.
    pub role: Role,
    /// What pairs the events of a time.
    pub pair: Vec<Filter>,
    /// What entries are told apart by.
    pub keys: Vec<Filter>,
    /// What is counted or added up; nothing where events themselves are counted, or times.
    pub value: Option<Filter>,
    /// What is done with it.
    pub function: Function,
}

/// What an event is for a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It is counted.
    Counted,
    /// A time begins with it.
    Begins,
    /// A time ends with it, and that is counted.
    Ends,
}

/// A part of a key.
#[derive(Clone, Debug)]
pub struct Part {
    pub(crate) value: Value,
    /// What it is to whoever reads the key.
    pub kind: PartKind,
}

/// What a part of a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartKind {
    /// A number of 64 bits.
    Number {
        /// Whether it can be negative.
        signed: bool,
    },
    /// The address of a function of the kernel, which the event prints by its name.
    Address,
    /// A text, with zeros after it.
    Text {
        /// Bytes, a multiple of 8.
        bytes: u32,
    },
}

impl PartKind {
    /// Words that it takes.
    pub fn words(self) -> usize {
        match self {
            Self::Number { .. } | Self::Address => 1,
            Self::Text { bytes } => bytes as usize / 8,
        }
    }
}

/// A question made for the records of an event.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub(crate) role: Role,
    pub(crate) pair: Vec<Part>,
    pub(crate) keys: Vec<Part>,
    /// With whether it can be negative.
    pub(crate) value: Option<(Number, bool)>,
    pub(crate) function: Function,
}

impl Question {
    /// Makes it for the event number `id`.
    ///
    /// # Errors
    /// The event lacks a field, or a part is of the wrong kind or too long.
    pub fn resolve(&self, table: &EventTable, id: u16) -> Result<Resolved, CountError> {
        let part = |filter: &Filter, longest: u32| {
            let value = filter.value(table, id)?;
            let kind = kind_of(&value, longest).ok_or_else(|| CountError::Text(filter.text().to_owned()))?;
            Ok::<_, CountError>(Part { value, kind })
        };
        let key = |filter: &Filter| {
            let part = part(filter, TEXT_MAX)?;
            let is_address = matches!(part.kind, PartKind::Number { .. }) && is_symbol(table, id, filter);
            Ok::<_, CountError>(if is_address { Part { kind: PartKind::Address, ..part } } else { part })
        };
        let pair: Vec<Part> =
            self.pair.iter().map(|filter| part(filter, NAME_BYTES)).collect::<Result<_, _>>()?;
        let keys: Vec<Part> = self.keys.iter().map(key).collect::<Result<_, _>>()?;
        if words(&pair) > PAIR_WORDS_MAX {
            return Err(CountError::Pair(words(&pair) * 8));
        }
        if words(&keys) > KEY_WORDS_MAX {
            return Err(CountError::Keys(words(&keys) * 8));
        }
        let number = |filter: &Filter| match filter.value(table, id)? {
            Value::Number { number, signed } => Ok((number, signed)),
            Value::Text(_) => Err(CountError::NoNumber(filter.text().to_owned())),
        };
        let value = self.value.as_ref().map(number).transpose()?;
        Ok(Resolved { role: self.role, pair, keys, value, function: self.function })
    }
}

impl Resolved {
    /// Calls `visit` with the offset of each field that it looks at.
    pub(crate) fn for_each_offset(&mut self, visit: &mut dyn FnMut(&mut u32)) {
        for part in self.pair.iter_mut().chain(&mut self.keys) {
            part.value.for_each_offset(visit);
        }
        if let Some((number, _)) = &mut self.value {
            number.for_each_offset(visit);
        }
    }

    /// What the parts of the keys are.
    pub fn key_kinds(&self) -> Vec<PartKind> {
        self.keys.iter().map(|part| part.kind).collect()
    }

    /// Whether the values can be negative.
    pub fn is_signed(&self) -> bool {
        self.value.as_ref().is_some_and(|(_, signed)| *signed)
    }

    /// Words of an entry's key, with those that fill it up.
    pub fn key_words(&self) -> usize {
        let words = words(&self.keys);
        CLASSES.into_iter().find(|class| *class >= words).unwrap_or(KEY_WORDS_MAX)
    }

    /// Words of what pairs the events of a time.
    pub fn pair_words(&self) -> usize {
        words(&self.pair)
    }

    /// Whether the events of both sides are paired by the same kinds of values.
    ///
    /// # Errors
    /// They are not.
    pub fn check_pair(&self, other: &Self) -> Result<(), CountError> {
        let is_text = |part: &Part| matches!(part.kind, PartKind::Text { .. });
        let same =
            self.pair.len() == other.pair.len()
                && self.pair.iter().zip(&other.pair).all(|(one, other)| {
                    is_text(one) == is_text(other) && one.kind.words() == other.kind.words()
                });
        if same { Ok(()) } else { Err(CountError::Kinds) }
    }
}

/// Whether a value is a field that the event prints as a symbol of the kernel.
fn is_symbol(table: &EventTable, id: u16, value: &Filter) -> bool {
    let Some(printer) = table.get(id) else { return false };
    let field = printer.format().field(value.text().trim());
    field.is_some_and(|field| printer.address(field) == Some(AddressKind::Symbol))
}

fn words(parts: &[Part]) -> usize {
    parts.iter().map(|part| part.kind.words()).sum()
}

/// What a value is as a part of a key; `None` for a text that is no such part.
fn kind_of(value: &Value, longest: u32) -> Option<PartKind> {
    let bytes = match value {
        Value::Number { signed, .. } => return Some(PartKind::Number { signed: *signed }),
        Value::Text(Text::Comm(_)) => NAME_BYTES,
        Value::Text(Text::User(_)) => longest,
        Value::Text(Text::Field(bytes)) if bytes.location == Location::Inline => {
            bytes.size.next_multiple_of(8).clamp(8, longest)
        }
        Value::Text(Text::Field(_)) => longest,
        Value::Text(Text::Known(_)) => return None,
    };
    // In what pairs events, names of one and of the other have to be the same number of words.
    Some(PartKind::Text { bytes: if longest == NAME_BYTES { NAME_BYTES } else { bytes } })
}
