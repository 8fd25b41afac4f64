//! Values out of bytes, by their types.
//!
//! Nothing is read here: a [`Window`] is a part of a packet that was read, and what does not end in it is
//! [`Stop::Short`]. Whoever reads gives a larger one then.

use std::borrow::Cow;
use std::sync::Arc;

use super::bits;
use super::roles::Role;
use super::types::{Field, FieldPath, Float, Integer, Scope, Start, Struct, Type, Variant};
use super::value::Value;
use ftrace_event::Endian;

/// How many values an event has at most. What takes no space could have any number of them.
const VALUES_MAX: u64 = 1 << 20;

/// Why a value cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// It goes beyond the packet's content.
    #[error("{field} goes beyond the end of the packet's content, which has {content} bits")]
    Overrun {
        /// The field.
        field: String,
        /// Bits of the content.
        content: u64,
    },
    /// The tag of a variant that cannot be.
    #[error("{field} is chosen by {tag}, {why}")]
    Tag {
        /// The variant.
        field: String,
        /// The path of its tag.
        tag: String,
        /// What is wrong with it.
        why: String,
    },
    /// The length of a sequence that cannot be.
    #[error("{field} has as many elements as {length} says, which is no number before it")]
    Length {
        /// The sequence.
        field: String,
        /// The path of its length.
        length: String,
    },
    /// An integer of more than 64 bits.
    #[error("{field} has more than 64 bits")]
    Wide {
        /// The field.
        field: String,
    },
    /// More values than an event can have.
    #[error("with {field} there are more than {VALUES_MAX} values in one event")]
    Many {
        /// The field.
        field: String,
    },
}

/// Why decoding stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The window ends before the value does.
    Short,
    /// There is no such value.
    Error(DecodeError),
}

/// A part of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window<'w> {
    pub(crate) bytes: &'w [u8],
    /// Bytes of the packet before it.
    pub(crate) start: u64,
}

/// A clock's time, of which fields have the low bits (section 8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticks(pub(crate) u64);

impl Ticks {
    /// Takes the low bits of a time that is not earlier: if they are less than those before, they have turned
    /// over once.
    pub(crate) fn update(&mut self, low: u64, bits: u8) {
        if bits >= 64 {
            self.0 = low;
            return;
        }
        let turn = 1 << bits;
        let mask = turn - 1;
        let turns = if low & mask < self.0 & mask { turn } else { 0 };
        self.0 = (self.0 & !mask).wrapping_add(low & mask).wrapping_add(turns);
    }
}

/// A part of a packet or of an event that was decoded.
#[derive(Clone, Debug)]
pub(crate) struct Part<'t, 'w> {
    pub(crate) scope: Scope,
    pub(crate) of: &'t Struct,
    pub(crate) values: Vec<Value<'w>>,
}

/// The same of a packet, for the events in it.
#[derive(Clone, Debug)]
pub(crate) struct PacketPart {
    pub(crate) scope: Scope,
    pub(crate) of: Arc<Struct>,
    pub(crate) values: Vec<Value<'static>>,
}

/// A structure that is being decoded.
#[derive(Debug)]
struct Frame<'t, 'w> {
    of: &'t Struct,
    values: Vec<Value<'w>>,
}

/// Decodes the parts of a packet or of an event, one after the other.
#[derive(Debug)]
pub(crate) struct Cursor<'t, 'w> {
    window: Window<'w>,
    /// Bits of the packet before what is next.
    at: u64,
    /// Bits of the packet's content.
    end: u64,
    order: Endian,
    pub(crate) ticks: Ticks,
    scope: Scope,
    /// The packet's parts.
    packet: &'t [PacketPart],
    /// What is decoded.
    done: Vec<Part<'t, 'w>>,
    /// The structures around what is next, the innermost last.
    frames: Vec<Frame<'t, 'w>>,
    values_left: u64,
}

impl<'t, 'w> Cursor<'t, 'w> {
    /// `at` and `end` are bits of the packet: where to begin, and where its content ends.
    pub(crate) fn new(
        window: Window<'w>,
        (at, end): (u64, u64),
        order: Endian,
        ticks: Ticks,
        packet: &'t [PacketPart],
    ) -> Self {
        Self {
            window,
            at,
            end,
            order,
            ticks,
            scope: Scope::PacketHeader,
            packet,
            done: Vec::new(),
            frames: Vec::new(),
            values_left: VALUES_MAX,
        }
    }

    /// Bits of the packet before what is next.
    pub(crate) fn position(&self) -> u64 {
        self.at
    }

    /// What was decoded.
    pub(crate) fn into_parts(self) -> Vec<Part<'t, 'w>> {
        self.done
    }

    /// A part that was decoded.
    pub(crate) fn part(&self, scope: Scope) -> Option<&Part<'t, 'w>> {
        self.done.iter().find(|part| part.scope == scope)
    }

    /// Decodes a part.
    pub(crate) fn decode(&mut self, scope: Scope, of: &'t Struct) -> Result<(), Stop> {
        self.scope = scope;
        let values = self.structure(of)?;
        self.done.push(Part { scope, of, values });
        Ok(())
    }

    fn structure(&mut self, of: &'t Struct) -> Result<Vec<Value<'w>>, Stop> {
        self.align(of.align);
        // One without fields can be at the end, and no further.
        if self.at > self.end {
            return Err(self.fault(0));
        }
        self.frames.push(Frame { of, values: Vec::with_capacity(of.fields.len()) });
        for field in &of.fields {
            let value = self.value(&field.ty, self.is_time(field))?;
            if let Some(frame) = self.frames.last_mut() {
                frame.values.push(value);
            }
        }
        Ok(self.frames.pop().map(|frame| frame.values).unwrap_or_default())
    }

    fn value(&mut self, ty: &'t Type, is_time: bool) -> Result<Value<'w>, Stop> {
        self.count(1)?;
        match ty {
            Type::Integer(integer) => self.integer(integer, is_time),
            Type::Enum(enumeration) => self.integer(&enumeration.of, is_time),
            Type::Float(float) => self.float(*float),
            Type::String => self.string(),
            Type::Struct(of) => self.structure(of).map(Value::Fields),
            Type::Variant(variant) => self.variant(variant),
            Type::Array(array) => {
                self.align(ty.align());
                self.elements(&array.element, array.count)
            }
            Type::Sequence(sequence) => {
                let length = self.find(&sequence.length).and_then(|(_, value)| value.unsigned());
                let length = length.ok_or_else(|| {
                    let (field, length) = (self.place(), sequence.length.text());
                    Stop::Error(DecodeError::Length { field, length })
                })?;
                self.align(ty.align());
                self.elements(&sequence.element, length)
            }
        }
    }

    fn integer(&mut self, integer: &Integer, is_time: bool) -> Result<Value<'w>, Stop> {
        self.align(integer.align);
        let start = self.at;
        let number = self.number(integer)?;
        let is_time = is_time || self.scope == Scope::EventHeader && integer.clock.is_some();
        if is_time {
            // One of any length has seven bits in each of its bytes, however few its value needs.
            let variable = ((self.at - start) / 8 * 7).min(64) as u8;
            self.ticks.update(number, if integer.is_variable { variable } else { integer.bits });
        }
        Ok(if integer.signed { Value::Signed(number.cast_signed()) } else { Value::Unsigned(number) })
    }

    /// The next integer; one with a sign is extended to 64 bits.
    fn number(&mut self, integer: &Integer) -> Result<u64, Stop> {
        self.align(integer.align);
        if integer.is_variable {
            return self.variable(integer.signed);
        }
        let number = self.bits(integer.bits, integer.order)?;
        Ok(if integer.signed { bits::signed(number, integer.bits).cast_unsigned() } else { number })
    }

    /// Groups of seven bits, the lowest first, of which all but the last have the highest bit.
    fn variable(&mut self, signed: bool) -> Result<u64, Stop> {
        let wide = |cursor: &Self| Stop::Error(DecodeError::Wide { field: cursor.place() });
        let (mut value, mut shift) = (0_u128, 0_u32);
        loop {
            // The tenth group has the last of 64 bits.
            if shift >= 70 {
                return Err(wide(self));
            }
            let byte = self.bits(8, Some(Endian::Little))?;
            value |= u128::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let unused = u128::BITS - shift;
        let extended = (value << unused).cast_signed() >> unused;
        let number =
            if signed { i64::try_from(extended).map(i64::cast_unsigned) } else { u64::try_from(value) };
        number.map_err(|_| wide(self))
    }

    /// Whether a field is the time of an event or of a packet's begin. In CTF 1.8 it is by its name alone if
    /// the metadata have no clock for it, as those of babeltrace2.
    fn is_time(&self, field: &Field) -> bool {
        matches!(self.scope, Scope::PacketContext | Scope::EventHeader) && field.roles.has(Role::Time)
    }

    fn float(&mut self, float: Float) -> Result<Value<'w>, Stop> {
        self.align(float.align);
        let bits = self.bits(float.bits, float.order)?;
        let short = || f64::from(f32::from_bits(bits as u32));
        Ok(Value::Float(if float.bits == 32 { short() } else { f64::from_bits(bits) }))
    }

    fn string(&mut self) -> Result<Value<'w>, Stop> {
        self.align(8);
        let rest = self.rest()?;
        let Some(len) = rest.iter().position(|byte| *byte == 0) else {
            // All that is left of the content, or of the window.
            return Err(self.fault(rest.len() as u64 * 8 + 8));
        };
        self.at += (len as u64 + 1) * 8;
        Ok(Value::Text(Cow::Borrowed(rest.get(..len).unwrap_or_default())))
    }

    fn variant(&mut self, variant: &'t Variant) -> Result<Value<'w>, Stop> {
        let wrong = |cursor: &Self, why: String| {
            let (field, tag) = (cursor.place(), variant.tag.text());
            Stop::Error(DecodeError::Tag { field, tag, why })
        };
        let Some((ty, value)) = self.find(&variant.tag) else {
            return Err(wrong(self, "which is not before it".to_owned()));
        };
        let options = &variant.options;
        let is_tag = options.ranges.is_some() || matches!(ty, Type::Enum(_));
        let Some(number) = value.number().filter(|_| is_tag) else {
            return Err(wrong(self, "which is no enumeration".to_owned()));
        };
        let chosen = options.chosen(ty, number).and_then(|place| Some((place, options.fields.get(place)?)));
        let Some((place, field)) = chosen else {
            if options.is_optional {
                return Ok(Value::Absent);
            }
            return Err(wrong(self, format!("whose value {number} names none of its fields")));
        };
        let value = self.value(&field.ty, self.is_time(field))?;
        Ok(Value::Chosen(place, Box::new(value)))
    }

    fn elements(&mut self, element: &'t Type, count: u64) -> Result<Value<'w>, Stop> {
        if let Some(integer) = element.as_integer() {
            return self.numbers(integer, element.is_character(), count);
        }
        // Even those without any elements are aligned.
        self.align(element.align());
        self.count(count)?;
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(self.value(element, false)?);
        }
        Ok(Value::List(values))
    }

    fn numbers(&mut self, integer: &Integer, is_text: bool, count: u64) -> Result<Value<'w>, Stop> {
        self.align(integer.align);
        // Of those of any length, each has a byte at least.
        let bits = if integer.is_variable { 8 } else { u64::from(integer.bits) };
        let size = bits.next_multiple_of(integer.align);
        self.available(count.saturating_mul(size).saturating_sub(size - bits))?;
        if is_text && integer.align == 8 {
            let text = self.rest()?.get(..count as usize).ok_or(Stop::Short)?;
            self.at += count * 8;
            let len = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
            return Ok(Value::Text(Cow::Borrowed(text.get(..len).unwrap_or_default())));
        }
        self.count(count)?;
        let mut numbers = Vec::with_capacity(count as usize);
        for _ in 0..count {
            numbers.push(self.number(integer)?);
        }
        if is_text {
            let text = numbers.into_iter().map(|byte| byte as u8).take_while(|byte| *byte != 0);
            return Ok(Value::Text(Cow::Owned(text.collect())));
        }
        Ok(Value::Numbers(numbers))
    }

    /// The field of a path, which was decoded before.
    fn find(&self, path: &FieldPath) -> Option<(&'t Type, &Value<'w>)> {
        match path.start {
            Start::Scope(scope) if scope == self.scope => self.find_from(0, &path.names),
            Start::Scope(scope) => self.find_in_part(scope, &path.names),
            Start::Parent(up) => {
                let innermost = self.frames.len().checked_sub(1)?;
                self.find_from(innermost.checked_sub(up)?, &path.names)
            }
            Start::Outwards => {
                let mut frames = (0..self.frames.len()).rev();
                frames.find_map(|frame| self.find_from(frame, &path.names)).or_else(|| {
                    let before = Scope::ALL.into_iter().rev().filter(|scope| *scope < self.scope);
                    before.into_iter().find_map(|scope| self.find_in_part(scope, &path.names))
                })
            }
        }
    }

    /// The field of a path that begins in a structure around what is next. As long as the path leads to what
    /// is being decoded, it goes on in the structure within.
    fn find_from(&self, frame: usize, names: &[Arc<str>]) -> Option<(&'t Type, &Value<'w>)> {
        let mut names = names;
        for frame in self.frames.get(frame..)? {
            let place = frame.of.position(names.first()?)?;
            if place != frame.values.len() || names.len() == 1 {
                return descend(frame.of, &frame.values, names);
            }
            names = names.get(1..)?;
        }
        None
    }

    fn find_in_part(&self, scope: Scope, names: &[Arc<str>]) -> Option<(&'t Type, &Value<'w>)> {
        if let Some(part) = self.part(scope) {
            return descend(part.of, &part.values, names);
        }
        let part = self.packet.iter().find(|part| part.scope == scope)?;
        descend(&part.of, &part.values, names)
    }

    fn align(&mut self, align: u64) {
        self.at = self.at.next_multiple_of(align.max(1));
    }

    /// Counts values that are about to be decoded.
    fn count(&mut self, values: u64) -> Result<(), Stop> {
        match self.values_left.checked_sub(values) {
            Some(left) => {
                self.values_left = left;
                Ok(())
            }
            None => Err(Stop::Error(DecodeError::Many { field: self.place() })),
        }
    }

    /// Fails if there are not so many bits.
    fn available(&self, bits: u64) -> Result<(), Stop> {
        let window_end = (self.window.start + self.window.bytes.len() as u64) * 8;
        let needed = self.at.saturating_add(bits);
        if needed > self.end || needed > window_end { Err(self.fault(bits)) } else { Ok(()) }
    }

    /// Why there are not so many bits.
    fn fault(&self, bits: u64) -> Stop {
        if self.at.saturating_add(bits) > self.end {
            return Stop::Error(DecodeError::Overrun { field: self.place(), content: self.end });
        }
        Stop::Short
    }

    fn bits(&mut self, size: u8, order: Option<Endian>) -> Result<u64, Stop> {
        self.available(size.into())?;
        let at = self.at.checked_sub(self.window.start * 8).ok_or(Stop::Short)?;
        let order = order.unwrap_or(self.order);
        let number = bits::number(self.window.bytes, at, size, order).ok_or(Stop::Short)?;
        self.at += u64::from(size);
        Ok(number)
    }

    /// The bytes from here on to the end of the window, or of the content.
    fn rest(&self) -> Result<&'w [u8], Stop> {
        self.available(0)?;
        let skipped = (self.at / 8).checked_sub(self.window.start).ok_or(Stop::Short)?;
        let rest = self.window.bytes.get(skipped as usize..).ok_or(Stop::Short)?;
        let left = usize::try_from(self.end.saturating_sub(self.at) / 8).unwrap_or(usize::MAX);
        Ok(rest.get(..left).unwrap_or(rest))
    }

    /// The name of what is decoded, for messages.
    fn place(&self) -> String {
        let mut place = self.scope.name().to_owned();
        for frame in &self.frames {
            if let Some(field) = frame.of.fields.get(frame.values.len()) {
                place.push('.');
                place += &field.name;
            }
        }
        place
    }
}

/// The field of a path in a structure.
fn descend<'t, 'v, 'w>(
    of: &'t Struct,
    values: &'v [Value<'w>],
    names: &[Arc<str>],
) -> Option<(&'t Type, &'v Value<'w>)> {
    let (first, rest) = names.split_first()?;
    let place = of.position(first)?;
    let (mut ty, mut value) = (&of.fields.get(place)?.ty, values.get(place)?);
    let mut rest = rest;
    // The field that there is of a variant stands for it; CTF 1.8 may name it.
    while let (Type::Variant(variant), Value::Chosen(place, chosen)) = (ty, value) {
        let field = variant.options.fields.get(*place)?;
        (ty, value) = (&field.ty, chosen);
        if rest.len() == 1 && rest.first() == Some(&field.name) && ty.as_integer().is_some() {
            rest = &[];
        }
    }
    match (ty, value) {
        (ty, value) if rest.is_empty() => Some((ty, value)),
        (Type::Struct(of), Value::Fields(values)) => descend(of, values, rest),
        _ => None,
    }
}
