//! What becomes of the fields of an event: those of a record.
//!
//! Structures are taken apart, `outer.inner` becomes `outer_inner`; of variants all fields are there, and
//! those that are not chosen are empty. What a record has no field for is text.

use std::sync::Arc;

use super::lttng::Naming;
use super::packet::Event;
use super::render::render;
use super::schema::{Event as EventClass, Stream};
use super::types::{Integer as CtfInteger, Struct, Type};
use super::value::Value as CtfValue;
use crate::event::{FieldSpec, FieldType, Integer, Show, Value};
use ftrace_event::context;
use ftrace_event::context::Context;

/// The most fields that a field of an event is taken apart into. LTTng's have less than thirty.
const PARTS_MAX: usize = 256;
/// The most bytes of an array that is a field as a whole; longer ones are lists of any length.
const ARRAY_MAX: u64 = 4096;
/// The most values of a range that each get its name.
const RANGE_MAX: i128 = 256;
/// The most names of an enumeration.
const LABELS_MAX: usize = 1024;

/// A part of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    StreamContext,
    Context,
    Fields,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A field of a structure.
    Field(usize),
    /// A field of a variant.
    Choice(usize),
}

/// Where a value is in an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    root: Root,
    steps: Vec<Step>,
}

/// How a value becomes that of a field.
#[derive(Clone, Debug)]
enum Get {
    /// A number, with something added.
    Number(i64),
    Text,
    Numbers,
    /// Bits of `rwbs`, as the kernel's letters.
    Letters,
    /// Anything, as text.
    Rendered(Type),
    /// What no value says.
    Constant(i64),
}

/// A field of a record.
#[derive(Clone, Debug)]
struct Column {
    place: Place,
    get: Get,
}

/// The fields of an event of a trace.
#[derive(Clone, Debug, Default)]
pub(super) struct Columns {
    values: Vec<Column>,
    /// How many of them are numbers of IEEE 754.
    pub(super) floats: u64,
    /// What they are in the file.
    pub(super) specs: Vec<FieldSpec>,
}

/// What a value of a record is made of: itself, or text that was made of it.
enum Made<'v> {
    Value(Value<'v>),
    Text(std::ops::Range<usize>),
}

impl Place {
    /// A field of a part, by the name that readers have for it.
    pub(super) fn of(root: Root, of: Option<&Arc<Struct>>, name: &str) -> Option<Self> {
        let place = of?.fields.iter().position(|field| field.shown() == name)?;
        Some(Self { root, steps: vec![Step::Field(place)] })
    }

    /// The value that is there.
    pub(super) fn value<'v, 'w>(&self, event: &'v Event<'_, 'w>) -> Option<&'v CtfValue<'w>> {
        let values = match self.root {
            Root::StreamContext => &event.stream_context,
            Root::Context => &event.context,
            Root::Fields => &event.fields,
        };
        let (Step::Field(first) | Step::Choice(first), rest) = self.steps.split_first()?;
        let mut value = values.as_ref()?.get(*first)?;
        for step in rest {
            value = match (step, value) {
                (Step::Field(place), CtfValue::Fields(values)) => values.get(*place)?,
                (Step::Choice(place), CtfValue::Chosen(chosen, value)) if place == chosen => value,
                _ => return None,
            };
        }
        Some(value)
    }

    /// Whether it is a list of numbers.
    pub(super) fn is_numbers(&self, stream: &Stream, class: &EventClass) -> bool {
        let of = match self.root {
            Root::StreamContext => &stream.event_context,
            Root::Context => &class.context,
            Root::Fields => &class.fields,
        };
        let [Step::Field(index)] = self.steps[..] else { return false };
        let field = of.as_ref().and_then(|of| of.fields.get(index));
        field.is_some_and(|field| match &field.ty {
            Type::Sequence(sequence) => sequence.element.as_integer().is_some(),
            Type::Array(array) => array.element.as_integer().is_some(),
            _ => false,
        })
    }

    /// The number that is there.
    pub(super) fn number(&self, event: &Event<'_, '_>) -> Option<i128> {
        self.value(event)?.number()
    }

    /// The text that is there.
    pub(super) fn text<'v>(&self, event: &'v Event<'_, '_>) -> Option<&'v [u8]> {
        match self.value(event)? {
            CtfValue::Text(text) => Some(text),
            _ => None,
        }
    }

    fn then(&self, step: Step) -> Self {
        let mut steps = self.steps.clone();
        steps.push(step);
        Self { root: self.root, steps }
    }
}

impl Columns {
    /// Adds a number that is the same in all records.
    pub(super) fn constant(&mut self, name: &str, integer: Integer, value: i64) {
        let place = Place { root: Root::Fields, steps: Vec::new() };
        self.values.push(Column { place, get: Get::Constant(value) });
        self.specs.push(FieldSpec { name: name.to_owned(), kind: FieldType::Integer(integer) });
    }

    /// Adds the contexts of a part, but for those that records have elsewhere.
    pub(super) fn contexts(&mut self, root: Root, of: Option<&Arc<Struct>>, taken: &[&Place]) {
        let Some(of) = of else { return };
        for (index, field) in of.fields.iter().enumerate() {
            let place = Place { root, steps: vec![Step::Field(index)] };
            if taken.contains(&&place) || is_length(of, index) {
                continue;
            }
            let name = context_name(field.shown());
            let more = if name == Context::Prio.field() { super::lttng::more_priority() } else { 0 };
            self.add(&name, &field.ty, place, more);
        }
    }

    /// Adds the event's own fields, but for those that records have elsewhere.
    pub(super) fn fields(&mut self, of: Option<&Arc<Struct>>, naming: &Naming, taken: &[&Place]) {
        let Some(of) = of else { return };
        for (index, field) in of.fields.iter().enumerate() {
            let place = Place { root: Root::Fields, steps: vec![Step::Field(index)] };
            if is_length(of, index) || taken.contains(&&place) {
                continue;
            }
            let (name, more) = naming.field(of, field.shown());
            if naming.is_operation(&name) && field.ty.as_integer().is_some() {
                self.push(&name, FieldType::TextArray(12), Column { place, get: Get::Letters });
            } else {
                self.add(&name, &field.ty, place, more);
            }
        }
    }

    fn push(&mut self, name: &str, kind: FieldType, column: Column) {
        self.values.push(column);
        self.specs.push(FieldSpec { name: name.to_owned(), kind });
    }

    /// Adds a field, as several if it has several parts.
    fn add(&mut self, name: &str, ty: &Type, place: Place, more: i64) {
        let before = (self.values.len(), self.floats);
        // Structures without fields, and such in them, are parts as well.
        let mut left = PARTS_MAX;
        if !self.take_apart(name, ty, place.clone(), more, &mut left) {
            self.values.truncate(before.0);
            self.specs.truncate(before.0);
            self.floats = before.1;
            self.rendered(name, ty, place);
        }
    }

    fn rendered(&mut self, name: &str, ty: &Type, place: Place) {
        self.push(name, FieldType::Text, Column { place, get: Get::Rendered(ty.clone()) });
    }

    /// Gives whether there are not too many parts.
    fn take_apart(&mut self, name: &str, ty: &Type, place: Place, more: i64, left: &mut usize) -> bool {
        if *left == 0 {
            return false;
        }
        *left -= 1;
        match ty {
            Type::Struct(of) => {
                return of.fields.iter().enumerate().all(|(index, field)| {
                    is_length(of, index)
                        || self.take_apart(
                            &format!("{name}_{}", field.shown()),
                            &field.ty,
                            place.then(Step::Field(index)),
                            0,
                            left,
                        )
                });
            }
            Type::Variant(variant) => {
                return variant.options.fields.iter().enumerate().all(|(index, field)| {
                    let option = field.shown();
                    let name = if option.is_empty() { name.to_owned() } else { format!("{name}_{option}") };
                    self.take_apart(&name, &field.ty, place.then(Step::Choice(index)), 0, left)
                });
            }
            Type::Integer(integer) => {
                let kind = FieldType::Integer(number(integer));
                self.push(name, kind, Column { place, get: Get::Number(more) });
            }
            Type::Enum(of) => {
                let mut integer = number(&of.of);
                integer.show = Show::Labels(labels(of));
                self.push(name, FieldType::Integer(integer), Column { place, get: Get::Number(more) });
            }
            Type::Float(_) => {
                self.floats += 1;
                self.rendered(name, ty, place);
            }
            Type::String => self.push(name, FieldType::Text, Column { place, get: Get::Text }),
            Type::Array(array) => self.elements((name, ty), &array.element, Some(array.count), place),
            Type::Sequence(sequence) => self.elements((name, ty), &sequence.element, None, place),
        }
        true
    }

    fn elements(&mut self, (name, ty): (&str, &Type), element: &Type, count: Option<u64>, place: Place) {
        if element.is_character() {
            let kind = match count {
                Some(count @ 1..ARRAY_MAX) => FieldType::TextArray(count as u32),
                _ => FieldType::Text,
            };
            return self.push(name, kind, Column { place, get: Get::Text });
        }
        let Some(integer) = element.as_integer() else { return self.rendered(name, ty, place) };
        let integer = number(integer);
        let kind = match count {
            Some(count @ 1..ARRAY_MAX) if count * u64::from(integer.size) <= ARRAY_MAX => {
                FieldType::Array(integer, count as u32)
            }
            _ => FieldType::Sequence(integer),
        };
        self.push(name, kind, Column { place, get: Get::Numbers });
    }

    /// Gives the values of an event to `take`, in the order of the fields.
    pub(super) fn values<T>(&self, event: &Event<'_, '_>, take: impl FnOnce(&[Value<'_>]) -> T) -> T {
        let mut texts = String::new();
        let made: Vec<Made<'_>> = self.values.iter().map(|column| column.made(event, &mut texts)).collect();
        let texts = texts.as_bytes();
        let values: Vec<Value<'_>> = made
            .into_iter()
            .map(|made| match made {
                Made::Value(value) => value,
                Made::Text(range) => Value::Text(texts.get(range).unwrap_or_default()),
            })
            .collect();
        take(&values)
    }
}

impl Column {
    fn made<'v>(&self, event: &'v Event<'_, '_>, texts: &mut String) -> Made<'v> {
        if let Get::Constant(value) = self.get {
            return Made::Value(Value::Signed(value));
        }
        let Some(value) = self.place.value(event) else { return Made::Value(Value::Absent) };
        let from = texts.len();
        Made::Value(match (&self.get, value) {
            (Get::Number(0), CtfValue::Unsigned(number)) => Value::Unsigned(*number),
            (Get::Number(more), value) => {
                let number = value.number().unwrap_or_default() as i64;
                Value::Signed(number.saturating_add(*more))
            }
            (Get::Text, CtfValue::Text(text)) => Value::Text(text),
            (Get::Numbers, CtfValue::Numbers(numbers)) => Value::Numbers(numbers),
            (Get::Letters, value) => {
                let bits = value.unsigned().unwrap_or_default();
                texts.extend(super::lttng::operation_letters(bits).into_iter().map(char::from));
                return Made::Text(from..texts.len());
            }
            (Get::Rendered(ty), value) => {
                render(ty, value, texts);
                return Made::Text(from..texts.len());
            }
            _ => Value::Absent,
        })
    }
}

/// Whether a field is the length of the sequence that follows it, as LTTng has them: `_NAME_length`.
fn is_length(of: &Struct, index: usize) -> bool {
    let (Some(field), Some(next)) = (of.fields.get(index), of.fields.get(index + 1)) else { return false };
    let Type::Sequence(sequence) = &next.ty else { return false };
    let is_named = field.shown().strip_prefix('_').and_then(|name| name.strip_suffix("_length"));
    is_named == Some(next.shown()) && sequence.length.names.last() == Some(&field.name)
}

/// The name of a context's field.
fn context_name(name: &str) -> String {
    match Context::named(name).filter(|context| context.is_field()) {
        Some(context) => context.field(),
        None => format!("{}{name}", context::PREFIX),
    }
}

/// A number of whole bytes.
fn number(integer: &CtfInteger) -> Integer {
    let mut number = Integer::new(integer.bits.div_ceil(8), integer.signed);
    number.show = match (integer.base, number.size) {
        (16, 8) if !integer.signed => Show::Address,
        (16, _) => Show::Hex,
        _ => Show::Decimal,
    };
    number
}

/// The names of values. Ranges of many values have none.
fn labels(of: &super::types::Enumeration) -> Vec<(i64, String)> {
    let ranges = of.labels.iter().filter(|label| label.last - label.first < RANGE_MAX);
    let values = ranges
        .flat_map(|label| (label.first..=label.last).map(|value| (value as i64, label.name.to_string())));
    values.take(LABELS_MAX).collect()
}
