//! A filter's expression, compiled for the records of one event, and its evaluation.
//!
//! Nothing is looked up by name any more and nothing is allocated. What has no value (a record that ends
//! before the field, division by zero) makes the comparison it is in false.

use regex::bytes::Regex;

use super::Origin;
use crate::context::Context;
use crate::format::Location;
use crate::int::{IntType, Op};
use crate::record;
use crate::record::{Bits, Machine};
use stdx::input::{CpuSet, glob};

/// A condition of the records of one event.
#[derive(Clone, Debug)]
pub enum Test {
    /// Always the same.
    Const(bool),
    /// Every one of these.
    All(Box<[Test]>),
    /// Any of these.
    Any(Box<[Test]>),
    /// Not this.
    Not(Box<Test>),
    /// The number is not 0: a comparison, or bits.
    Number(Number),
    /// A text is as the pattern says.
    Text {
        /// Where the text is.
        text: Text,
        /// What it must be.
        pattern: Pattern,
        /// Or must not.
        negated: bool,
    },
    /// Two texts are the same.
    SameText {
        /// Where they are.
        texts: Box<(Text, Text)>,
        /// Or are not.
        negated: bool,
    },
    /// The name of the function that holds an address is as the pattern says.
    Function {
        /// The address.
        address: Number,
        /// What the name must be. An address without a name is called by its number, `0x1f`.
        pattern: Pattern,
        /// Or must not.
        negated: bool,
    },
    /// CPUs of the record compared with a set.
    Cpus {
        /// Those of the record.
        cpus: Cpus,
        /// How they are compared.
        test: CpuTest,
        /// The set.
        set: CpuSet,
    },
}

/// What an expression is worth in the records of one event.
#[derive(Clone, Debug)]
pub enum Value {
    /// A number.
    Number {
        /// Which.
        number: Number,
        /// Whether it can be negative.
        signed: bool,
    },
    /// A text.
    Text(Text),
}

impl Value {
    /// Calls `visit` with the offset of each field that it looks at.
    pub fn for_each_offset(&mut self, visit: &mut dyn FnMut(&mut u32)) {
        match self {
            Self::Number { number, .. } => number.for_each_offset(visit),
            Self::Text(text) => text.for_each_offset(visit),
        }
    }
}

/// A number out of a record, of 64 bits.
#[derive(Clone, Debug)]
pub enum Number {
    /// Always the same.
    Const(u64),
    /// A field.
    Field {
        /// Bytes from the start of the record.
        offset: u32,
        /// Its type; extended to 64 bits by it.
        int: IntType,
    },
    /// Something besides the record, about its thread.
    Context {
        /// What.
        context: Context,
        /// The thread's number, where it is needed.
        tid: Option<Box<Number>>,
    },
    /// What an operator makes of two numbers.
    Binary {
        /// The operator.
        op: Op,
        /// The type that it works in: 64 bits with or without a sign.
        int: IntType,
        /// The numbers.
        operands: Box<(Number, Number)>,
    },
    /// The number with the other sign.
    Negate(Box<Number>),
    /// All bits turned over.
    Complement(Box<Number>),
}

/// Where a text is.
#[derive(Clone, Debug)]
pub enum Text {
    /// A field, up to its first NUL.
    Field(Bytes),
    /// The name of the thread with this number.
    Comm(Number),
    /// A text that is known of the current thread, which a file does not hold.
    Known(Context),
    /// At this address of the process, which a file does not hold.
    User(Number),
}

/// The bytes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// Offset of its fixed part from the start of the record.
    pub offset: u32,
    /// Length of its fixed part; 0 if it extends to the end of the record.
    pub size: u32,
    /// Whether the fixed part refers to bytes elsewhere.
    pub location: Location,
}

/// What a text is compared with.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// The very text.
    Equal(Box<[u8]>),
    /// Wildcards that describe all of it.
    Glob(Box<[u8]>),
    /// A regular expression that is found in it.
    Regex(Regex),
}

/// CPUs of a record.
#[derive(Clone, Debug)]
pub enum Cpus {
    /// One.
    One(Number),
    /// Those of a mask.
    Mask(Bytes),
}

/// How CPUs are compared with a set, as in ftrace's filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuTest {
    /// `==`: the same.
    Equal,
    /// `!=`: not the same.
    NotEqual,
    /// `&`: one at least is in the set.
    Intersects,
}

impl Test {
    /// Gives the offset of each field that the condition looks at to `visit`, which may move it: for
    /// conditions of records whose fields are elsewhere.
    pub fn for_each_offset(&mut self, visit: &mut dyn FnMut(&mut u32)) {
        match self {
            Self::Const(_) => {}
            Self::All(tests) | Self::Any(tests) => {
                tests.iter_mut().for_each(|test| test.for_each_offset(visit));
            }
            Self::Not(inner) => inner.for_each_offset(visit),
            Self::Number(number) | Self::Function { address: number, .. } => number.for_each_offset(visit),
            Self::Text { text, .. } => text.for_each_offset(visit),
            Self::SameText { texts, .. } => {
                texts.0.for_each_offset(visit);
                texts.1.for_each_offset(visit);
            }
            Self::Cpus { cpus: Cpus::One(number), .. } => number.for_each_offset(visit),
            Self::Cpus { cpus: Cpus::Mask(field), .. } => visit(&mut field.offset),
        }
    }

    /// Whether the condition matches a record.
    pub(super) fn holds(&self, record: &[u8], machine: Machine, origin: &Origin<'_>) -> bool {
        let test = |test: &Self| test.holds(record, machine, origin);
        match self {
            Self::Const(value) => *value,
            Self::All(tests) => tests.iter().all(test),
            Self::Any(tests) => tests.iter().any(test),
            Self::Not(inner) => !test(inner),
            Self::Number(number) => number.value(record, machine, origin).is_some_and(|value| value != 0),
            Self::Text { text, pattern, negated } => {
                text.bytes(record, machine, origin).is_some_and(|text| pattern.matches(text) != *negated)
            }
            Self::SameText { texts, negated } => {
                let texts = [&texts.0, &texts.1].map(|text| text.bytes(record, machine, origin));
                matches!(texts, [Some(one), Some(other)] if (one == other) != *negated)
            }
            Self::Function { address, pattern, negated } => {
                let Some(address) = address.value(record, machine, origin) else { return false };
                let found = match origin.symbols.lookup(address) {
                    Some(symbol) => pattern.matches(symbol.name.as_bytes()),
                    None => pattern.matches(hex(address, &mut [0; 18])),
                };
                found != *negated
            }
            Self::Cpus { cpus, test, set } => cpus.compare(*test, set, record, machine, origin),
        }
    }
}

impl Number {
    /// Calls `visit` with each offset into the record.
    pub fn for_each_offset(&mut self, visit: &mut dyn FnMut(&mut u32)) {
        match self {
            Self::Const(_) | Self::Context { tid: None, .. } => {}
            Self::Field { offset, .. } => visit(offset),
            Self::Context { tid: Some(inner), .. } | Self::Negate(inner) | Self::Complement(inner) => {
                inner.for_each_offset(visit);
            }
            Self::Binary { operands, .. } => {
                operands.0.for_each_offset(visit);
                operands.1.for_each_offset(visit);
            }
        }
    }

    pub(super) fn value(&self, record: &[u8], machine: Machine, origin: &Origin<'_>) -> Option<u64> {
        let value = |number: &Self| number.value(record, machine, origin);
        match self {
            Self::Const(value) => Some(*value),
            Self::Field { offset, int } => {
                let offset = *offset as usize;
                let bytes = record.get(offset..offset + usize::from(int.size))?;
                Some(int.wrap(machine.number(bytes)))
            }
            Self::Context { context: Context::Cpu, .. } => Some(origin.cpu.into()),
            Self::Context { context: Context::Timestamp, .. } => Some(origin.timestamp),
            Self::Context { context, tid } => origin.tasks.number(value(tid.as_deref()?)? as u32, *context),
            Self::Binary { op, int, operands } => op.apply(*int, value(&operands.0)?, value(&operands.1)?),
            Self::Negate(inner) => Some(value(inner)?.wrapping_neg()),
            Self::Complement(inner) => Some(!value(inner)?),
        }
    }
}

impl Text {
    fn for_each_offset(&mut self, visit: &mut dyn FnMut(&mut u32)) {
        match self {
            Self::Field(field) => visit(&mut field.offset),
            Self::Comm(number) | Self::User(number) => number.for_each_offset(visit),
            Self::Known(_) => {}
        }
    }

    fn bytes<'a>(&self, record: &'a [u8], machine: Machine, origin: &Origin<'a>) -> Option<&'a [u8]> {
        match self {
            Self::Field(field) => Some(record::until_nul(field.of(record, machine)?)),
            Self::Comm(tid) => origin.tasks.comm(tid.value(record, machine, origin)? as u32),
            Self::Known(_) => None,
            Self::User(address) => origin.tasks.user_text(address.value(record, machine, origin)?),
        }
    }
}

impl Bytes {
    fn of(self, record: &[u8], machine: Machine) -> Option<&[u8]> {
        let Self { offset, size, location } = self;
        record::bytes(record, offset as usize, size as usize, location, machine).ok()
    }
}

impl Pattern {
    fn matches(&self, text: &[u8]) -> bool {
        match self {
            Self::Equal(other) => **other == *text,
            Self::Glob(pattern) => glob::matches_bytes(pattern, text),
            Self::Regex(regex) => regex.is_match(text),
        }
    }
}

impl Cpus {
    fn compare(
        &self,
        test: CpuTest,
        set: &CpuSet,
        record: &[u8],
        machine: Machine,
        origin: &Origin<'_>,
    ) -> bool {
        let (equal, intersects) = match self {
            Self::One(number) => {
                let Some(cpu) = number.value(record, machine, origin) else { return false };
                let inside = u32::try_from(cpu).is_ok_and(|cpu| set.contains(cpu));
                (inside && set.len() == 1, inside)
            }
            Self::Mask(field) => {
                let Some(bytes) = field.of(record, machine) else { return false };
                let (mut common, mut others) = (0, 0_usize);
                for cpu in Bits::new(bytes, machine).iter() {
                    let inside = set.contains(cpu as u32);
                    common += usize::from(inside);
                    others += usize::from(!inside);
                }
                (others == 0 && common == set.len(), common != 0)
            }
        };
        match test {
            CpuTest::Equal => equal,
            CpuTest::NotEqual => !equal,
            CpuTest::Intersects => intersects,
        }
    }
}

/// `0x1f`, as printf(3) has `0x%llx`.
fn hex(mut value: u64, buffer: &mut [u8; 18]) -> &[u8] {
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b"0123456789abcdef"[value as usize & 15];
        value >>= 4;
        if value == 0 {
            break;
        }
    }
    at -= 2;
    buffer[at..at + 2].copy_from_slice(b"0x");
    &buffer[at..]
}
