//! Values out of bytes, by their types.
//!
//! Nothing is read here: a [`Window`] is a part of a packet that was read, and what does not end in it is
//! [`Stop::Short`]. Whoever reads gives a larger one then.

use std::borrow::Cow;
use std::sync::Arc;

use super::bits;
use super::types::{FieldPath, Float, Integer, Scope, Struct, Type, Variant};
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
            // By its name alone if the metadata have no clock for it, as babeltrace2 does.
            let is_time = self.scope == Scope::EventHeader && *field.name == *"timestamp";
            let value = self.value(&field.ty, is_time)?;
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
            Type::Array(array) => self.elements(&array.element, array.count),
            Type::Sequence(sequence) => {
                let length = self.find(&sequence.length).and_then(|(_, value)| value.unsigned());
                let length = length.ok_or_else(|| {
                    let (field, length) = (self.place(), sequence.length.text());
                    Stop::Error(DecodeError::Length { field, length })
                })?;
                self.elements(&sequence.element, length)
            }
        }
    }

    fn integer(&mut self, integer: &Integer, is_time: bool) -> Result<Value<'w>, Stop> {
        self.align(integer.align);
        let number = self.bits(integer.bits, integer.order)?;
        let is_time = is_time || self.scope == Scope::EventHeader && integer.clock.is_some();
        if is_time {
            self.ticks.update(number, integer.bits);
        }
        Ok(if integer.signed {
            Value::Signed(bits::signed(number, integer.bits))
        } else {
            Value::Unsigned(number)
        })
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
        let (Type::Enum(enumeration), Some(number)) = (ty, value.number()) else {
            return Err(wrong(self, "which is no enumeration".to_owned()));
        };
        let labels = enumeration.labels.iter().filter(|label| (label.first..=label.last).contains(&number));
        let place = labels.into_iter().find_map(|label| variant.options.position(&label.name));
        let chosen = place.and_then(|place| Some((place, variant.options.fields.get(place)?)));
        let Some((place, field)) = chosen else {
            return Err(wrong(self, format!("whose value {number} names none of its fields")));
        };
        let is_time = self.scope == Scope::EventHeader && *field.name == *"timestamp";
        let value = self.value(&field.ty, is_time)?;
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
        let size = u64::from(integer.bits).next_multiple_of(integer.align);
        self.available(count.saturating_mul(size).saturating_sub(size - u64::from(integer.bits)))?;
        if is_text && integer.align == 8 {
            let text = self.rest()?.get(..count as usize).ok_or(Stop::Short)?;
            self.at += count * 8;
            let len = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
            return Ok(Value::Text(Cow::Borrowed(text.get(..len).unwrap_or_default())));
        }
        self.count(count)?;
        let mut numbers = Vec::with_capacity(count as usize);
        for _ in 0..count {
            self.align(integer.align);
            let number = self.bits(integer.bits, integer.order)?;
            let extended = || bits::signed(number, integer.bits) as u64;
            numbers.push(if integer.signed { extended() } else { number });
        }
        if is_text {
            let text = numbers.into_iter().map(|byte| byte as u8).take_while(|byte| *byte != 0);
            return Ok(Value::Text(Cow::Owned(text.collect())));
        }
        Ok(Value::Numbers(numbers))
    }

    /// The field of a path, which was decoded before.
    fn find(&self, path: &FieldPath) -> Option<(&'t Type, &Value<'w>)> {
        match path.scope {
            Some(scope) if scope == self.scope => {
                let frame = self.frames.first()?;
                descend(frame.of, &frame.values, &path.names)
            }
            Some(scope) => self.find_in_part(scope, &path.names),
            None => {
                let mut frames = self.frames.iter().rev();
                frames.find_map(|frame| descend(frame.of, &frame.values, &path.names)).or_else(|| {
                    let before = Scope::ALL.into_iter().rev().filter(|scope| *scope < self.scope);
                    before.into_iter().find_map(|scope| self.find_in_part(scope, &path.names))
                })
            }
        }
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
    let (ty, value) = (&of.fields.get(place)?.ty, values.get(place)?);
    if rest.is_empty() {
        return Some((ty, value));
    }
    match (ty, value) {
        (Type::Struct(of), Value::Fields(values)) => descend(of, values, rest),
        (Type::Variant(variant), Value::Chosen(place, value)) => {
            match (&variant.options.fields.get(*place)?.ty, &**value) {
                (Type::Struct(of), Value::Fields(values)) => descend(of, values, rest),
                (ty, value) if rest.len() == 1 => {
                    let is_it = variant.options.fields.get(*place)?.name == rest[0];
                    is_it.then_some((ty, value))
                }
                _ => None,
            }
        }
        _ => None,
    }
}
