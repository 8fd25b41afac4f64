//! The facilities of a trace: one for each system of events, and those that every trace has.

use std::collections::HashSet;

use super::super::payload::{Payload, elements, number_of, value_of};
use super::builtin::{self, Numbers};
use super::types::{Event, Facility, Field, Type};
use ftrace_event::{FieldKind, Printer, Value};
use recording::error::ExportError;
use recording::survey::Recording;

/// Name of the type of the fields that all events have.
const COMMON: &str = "common_header";
/// States of processes, by number.
const STATES: [&str; 6] =
    ["Running", "WaitInterruptible", "WaitUninterruptible", "Zombie", "Traced", "Paging"];
/// Bytes of the number before a sequence.
const LENGTH: usize = 4;

/// Facilities and what their events are called in the trace.
#[derive(Debug)]
pub(super) struct Facilities {
    pub(super) numbers: Numbers,
    /// Each with its base code. Literally, the first is not described by a file.
    pub(super) loaded: Vec<(Facility, u32)>,
    /// Code of the first event of the facility `state`; the others follow as [`State`] counts them.
    state: u16,
    /// By the number that the event has in the recording.
    events: Vec<Option<EventType>>,
}

/// Events of the facility `state`, by their numbers in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Lost,
    Interrupt,
    Process,
    Module,
    Interface,
}

/// How the records of an event are written.
#[derive(Clone, Debug)]
pub(super) struct EventType {
    pub(super) code: u16,
    parts: Vec<(usize, Part)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Number {
        size: usize,
    },
    Text,
    Texts {
        count: usize,
    },
    Array {
        size: usize,
        count: usize,
    },
    Sequence {
        size: usize,
    },
    /// A set of bits as numbers of 4 bytes.
    Bits,
    Bytes {
        count: usize,
    },
    ByteSequence,
    /// The addresses of a stack.
    Stack {
        size: usize,
    },
}

impl Facilities {
    /// Gives every event of the recording a facility and a number.
    pub(super) fn new(recording: &Recording<'_>, literal: bool) -> Result<Self, ExportError> {
        let numbers = if literal { builtin::LITERAL } else { builtin::READABLE };
        let mut loaded = Vec::new();
        let mut base = 0_u32;
        let mut load = |facility: Facility| {
            let events = facility.events.len() as u32;
            loaded.push((facility, base));
            base += events;
            u16::try_from(base - 1).map(|_| base - events).map_err(|_| {
                ExportError::Unsupported("the recording has more than 65535 kinds of events".to_owned())
            })
        };
        if literal {
            load(builtin::builtin())?;
            load(builtin::os_events())?;
        } else {
            load(builtin::core())?;
        }
        let state = load(state_events())? as u16;

        let mut systems: Vec<&str> = recording.events().iter().map(Printer::system).collect();
        systems.sort_unstable();
        systems.dedup();
        let mut names: HashSet<String> = ["builtin", "core", "state"].map(str::to_owned).into();
        let mut events = Vec::new();
        for system in systems {
            let mut name: String =
                system.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
            while !names.insert(name.clone()) {
                name += "_";
            }
            let printers: Vec<_> =
                recording.events().iter().filter(|printer| printer.system() == system).collect();
            let mut facility =
                Facility { name, description: format!("Tracepoints of {system}"), ..Facility::default() };
            let mut types = Vec::new();
            for printer in &printers {
                let (event, parts, common) = describe(printer, literal);
                facility.events.push(event);
                if facility.types.is_empty() {
                    facility.types.push((COMMON.to_owned(), Type::Struct(common)));
                }
                types.push(parts);
            }
            let base = load(facility)?;
            for (code, (printer, parts)) in (base..).zip(printers.into_iter().zip(types)) {
                let at = usize::from(printer.format().id);
                if events.len() <= at {
                    events.resize(at + 1, None);
                }
                events[at] = Some(EventType { code: code as u16, parts });
            }
        }
        Ok(Self { numbers, loaded, state, events })
    }

    /// Code of an event of the facility `state`.
    pub(super) fn state(&self, event: State) -> u16 {
        self.state + event as u16
    }

    /// How the records of an event are written.
    pub(super) fn event(&self, id: u16) -> Option<&EventType> {
        self.events.get(usize::from(id))?.as_ref()
    }
}

/// What the document has beside the builtin events, and what it has no event for.
fn state_events() -> Facility {
    let word = |name| (name, Type::Uint(4));
    let text = |name| (name, Type::String);
    let labels = (0..).zip(STATES).map(|(value, name)| (name.to_owned(), value)).collect();
    let events = vec![
        builtin::event("events_lost", "Events lost before the next one", [("count", Type::Uint(8))]),
        builtin::event(
            "interrupt",
            "Interrupt request number assignment",
            [word("number"), word("count"), text("controller"), text("name")],
        ),
        builtin::event(
            "process",
            "Existing process",
            [
                text("name"),
                word("pid"),
                word("ppid"),
                word("tracer_pid"),
                word("uid"),
                word("euid"),
                word("suid"),
                word("fsuid"),
                word("gid"),
                word("egid"),
                word("sgid"),
                word("fsgid"),
                ("state", Type::Enum { size: 4, labels }),
            ],
        ),
        builtin::event(
            "module",
            "Loaded module",
            [text("name"), ("size", Type::Uint(8)), word("references")],
        ),
        builtin::event(
            "interface",
            "Address of a network interface",
            [text("name"), word("index"), word("ipv4")],
        ),
    ];
    Facility {
        name: "state".to_owned(),
        description: "State of the system and of the trace".to_owned(),
        events,
        types: Vec::new(),
    }
}

/// The type of an event, how its fields are written, and the type of the fields that all events have.
///
/// Common fields are a struct of their own; the event's number is left out, because its code has it.
fn describe(printer: &Printer, literal: bool) -> (Event, Vec<(usize, Part)>, Vec<Field>) {
    let format = printer.format();
    let mut parts = Vec::new();
    let mut common = Vec::new();
    let mut fields = vec![Field::new("common", Type::Named(COMMON.to_owned()))];
    let labels = Labels { text: &format.print_fmt, literal };
    let all = format.common.iter().chain(&format.fields).enumerate();
    for (index, field) in all.filter(|(_, field)| field.name != "common_type") {
        let (part, of) = if printer.is_stack_field(field) {
            let size = printer.machine().long_size;
            (Part::Stack { size: size.into() }, sequence(Type::Address(size)))
        } else {
            part(printer.kind(index), &field.name, &labels)
        };
        parts.push((index, part));
        let list = if index < format.common.len() { &mut common } else { &mut fields };
        list.push(Field::new(field.name.clone(), of));
    }
    let name = printer.name().to_owned();
    let description = format!("{}:{name}", printer.system());
    (Event { name, description, of: Some(Type::Struct(fields)) }, parts, common)
}

fn part(kind: Option<FieldKind>, name: &str, labels: &Labels<'_>) -> (Part, Type) {
    let number = |size, signed| if signed { Type::Int(size) } else { Type::Uint(size) };
    let array = |count, of| Type::Array { count, of: Box::new(of) };
    match kind {
        Some(FieldKind::Number { size, signed }) => {
            let of = match labels.of(name, size) {
                Some(labels) => Type::Enum { size, labels },
                None => number(size, signed),
            };
            (Part::Number { size: size.into() }, of)
        }
        Some(FieldKind::Pointer { size }) => (Part::Number { size: size.into() }, Type::Address(size)),
        Some(FieldKind::Text) => (Part::Text, Type::String),
        Some(FieldKind::Texts { count }) => (Part::Texts { count }, array(count, Type::String)),
        Some(FieldKind::Array { size, signed, count: Some(count) }) => {
            (Part::Array { size: size.into(), count }, array(count, number(size, signed)))
        }
        Some(FieldKind::Array { size, signed, count: None }) => {
            (Part::Sequence { size: size.into() }, sequence(number(size, signed)))
        }
        Some(FieldKind::Bitmask) => (Part::Bits, sequence(Type::Uint(4))),
        Some(FieldKind::Bytes { count: Some(count) }) => (Part::Bytes { count }, array(count, Type::Uint(1))),
        Some(FieldKind::Bytes { count: None }) | None => (Part::ByteSequence, sequence(Type::Uint(1))),
    }
}

fn sequence(of: Type) -> Type {
    Type::Sequence { length_size: LENGTH as u8, of: Box::new(of) }
}

impl EventType {
    /// Writes a record's fields. Returns how many of them the record does not have; zeros and nothing stand
    /// for them.
    pub(super) fn write(&self, printer: &Printer, record: &[u8], payload: &mut Payload) -> u64 {
        let mut missing = 0;
        for (index, part) in &self.parts {
            let value = value_of(printer, *index, record);
            missing += u64::from(value.is_err());
            write(*part, value.ok(), printer, record, payload);
        }
        missing
    }
}

fn write(part: Part, value: Option<Value<'_>>, printer: &Printer, record: &[u8], payload: &mut Payload) {
    match part {
        Part::Number { size } => {
            payload.number(value.map_or(0, |value| number_of(&value)), size);
        }
        Part::Text => {
            payload.text(if let Some(Value::Text(text)) = value { text } else { b"" });
        }
        Part::Texts { count } => payload.texts(value, count),
        Part::Array { size, count } => payload.array(value, count, size),
        Part::Sequence { size } => {
            payload.number(elements(value).count() as u64, LENGTH);
            for number in elements(value) {
                payload.number(number, size);
            }
        }
        Part::Bits => {
            let bits = if let Some(Value::Bitmask(bits)) = value { Some(bits) } else { None };
            let words = bits.map_or(0, |bits| bits.capacity().div_ceil(32));
            payload.number(words as u64, LENGTH);
            for word in 0..words {
                let set = |bit: &usize| bits.is_some_and(|bits| bits.contains(word * 32 + bit));
                payload.number((0..32).filter(set).map(|bit| 1_u64 << bit).sum(), 4);
            }
        }
        Part::Bytes { count } => {
            let bytes = if let Some(Value::Bytes(bytes)) = value { bytes } else { &[] };
            for at in 0..count {
                payload.raw(&[bytes.get(at).copied().unwrap_or(0)]);
            }
        }
        Part::ByteSequence => {
            let bytes = if let Some(Value::Bytes(bytes)) = value { bytes } else { &[] };
            payload.number(bytes.len() as u64, LENGTH).raw(bytes);
        }
        Part::Stack { size } => {
            let frames = printer.frames(record);
            payload.number(frames.clone().into_iter().flatten().count() as u64, LENGTH);
            for address in frames.into_iter().flatten() {
                payload.number(address, size);
            }
        }
    }
}

/// The names that an event's `print fmt` has for the values of fields.
struct Labels<'f> {
    text: &'f str,
    literal: bool,
}

impl Labels<'_> {
    /// Names and values of a field of so many bytes, as in `__print_symbolic(REC->vec, { 0, "HI" }, { 1,
    /// "TIMER" })`; `None` if there are none, or none that an enum can have.
    fn of(&self, field: &str, size: u8) -> Option<Vec<(String, u64)>> {
        let call = format!("__print_symbolic(REC->{field},");
        let (_, mut rest) = self.text.split_once(&call)?;
        let mut labels = Vec::new();
        loop {
            let inner = rest.trim_start().strip_prefix('{')?;
            let (value, after) = inner.split_once(',')?;
            let (name, after) = after.trim_start().strip_prefix('"')?.split_once('"')?;
            let after = after.trim_start().strip_prefix('}')?.trim_start();
            let value = value.trim();
            let value = match value.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok()?,
                None => value.parse().ok()?,
            };
            // Signed numbers keep their sign.
            let fits = value < 1 << (u32::from(size) * 8 - 1);
            if !fits || name.is_empty() || labels.len() == 1000 {
                return None;
            }
            labels.push((name.to_owned(), value));
            match after.strip_prefix(',') {
                Some(after) => rest = after,
                None if after.starts_with(')') => break,
                None => return None,
            }
        }
        let word = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let counted = (0..).zip(&labels).all(|(number, (name, value))| *value == number && word(name));
        (counted || !self.literal).then_some(labels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_values_become_enums() {
        let text = r#""vec=%u [action=%s]", REC->vec, __print_symbolic(REC->vec, { 0, "HI" }, { 1, "TIMER" },{0x3,"RX"})"#;
        let labels = |literal| Labels { text, literal };
        let expected = [("HI", 0), ("TIMER", 1), ("RX", 3)].map(|(name, value)| (name.to_owned(), value));
        assert_eq!(labels(false).of("vec", 4), Some(expected.to_vec()));
        // The document has no values for labels.
        assert_eq!(labels(true).of("vec", 4), None);
        assert_eq!(labels(false).of("other", 4), None);
        for text in ["{ A, \"x\" })", "{ 1, \"x\"", "{ 200, \"x\" })", "{ (-1), \"x\" })", ")"] {
            let text = format!("__print_symbolic(REC->v, {text}");
            assert_eq!(Labels { text: &text, literal: false }.of("v", 1), None, "{text}");
        }
    }
}
