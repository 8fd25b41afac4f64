//! Events of ftrace itself that readers take apart by the fields that ftrace has, whatever the format says of
//! them.
//!
//! An imported event has such a name only if its fields are of these types, and is laid out as ftrace does
//! it.

use super::event::{EventSpec, FieldSpec, FieldType, Integer, Show, Value, identifier};
use ftrace_event::stacks::STACK_FIELD;
use ftrace_event::{Format, Location};

/// The system of these events.
pub(super) const SYSTEM: &str = "ftrace";

/// Frames that the format of a stack has (`FTRACE_STACK_ENTRIES`, kernel/trace/trace.h).
pub(super) const FRAMES: usize = 8;

/// What a field is in ftrace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A `long`.
    Long,
    /// A number of any size.
    Number,
    /// [`FRAMES`] addresses, after which the record goes on with more.
    Frames,
    /// [`FRAMES`] addresses.
    FramesOfPart,
    /// Numbers of 32 bits up to the record's end.
    Words,
    /// A text at the record's end.
    Text,
    /// Bytes up to the record's end.
    Bytes,
}

/// An event of ftrace.
#[derive(Debug)]
pub(super) struct Event {
    name: &'static str,
    /// The number that it has in all kernels.
    pub(super) id: Option<u16>,
    fields: &'static [(&'static str, Kind)],
    /// What it prints. `None`: its fields.
    pub(super) print_fmt: Option<&'static str>,
}

const STACK: &str = "\"\\t=> %ps\\n\\t=> %ps\\n\\t=> %ps\\n\\t=> %ps\\n\\t=> %ps\\n\\t=> %ps\\n\\t=> %ps\\n\\t=> %ps\\n\", \
     (void *)REC->caller[0], (void *)REC->caller[1], (void *)REC->caller[2], (void *)REC->caller[3], \
     (void *)REC->caller[4], (void *)REC->caller[5], (void *)REC->caller[6], (void *)REC->caller[7]";

/// From `kernel/trace/trace_entries.h`.
const EVENTS: [Event; 10] = [
    event("function", None, &[("ip", Kind::Long), ("parent_ip", Kind::Long)], None),
    event("funcgraph_entry", None, &[("func", Kind::Long), ("depth", Kind::Number)], None),
    event(
        "funcgraph_exit",
        None,
        &[
            ("func", Kind::Long),
            ("depth", Kind::Number),
            ("calltime", Kind::Number),
            ("rettime", Kind::Number),
        ],
        None,
    ),
    event("kernel_stack", Some(4), &[("caller", Kind::Frames)], Some(STACK)),
    event("user_stack", None, &[("caller", Kind::FramesOfPart)], Some(STACK)),
    event(
        "bprint",
        Some(6),
        &[("ip", Kind::Long), ("fmt", Kind::Long), ("buf", Kind::Words)],
        Some("\"%ps: %s\", (void *)REC->ip, REC->fmt"),
    ),
    event(
        "print",
        Some(5),
        &[("ip", Kind::Long), ("buf", Kind::Text)],
        Some("\"%ps: %s\", (void *)REC->ip, REC->buf"),
    ),
    event("bputs", None, &[("ip", Kind::Long), ("str", Kind::Long)], None),
    event(
        "raw_data",
        None,
        &[("id", Kind::Number), ("buf", Kind::Bytes)],
        Some("\"id:%04x %08x\", REC->id, (int)REC->buf[0]"),
    ),
    event(
        "func_repeats",
        None,
        &[
            ("ip", Kind::Long),
            ("parent_ip", Kind::Long),
            ("count", Kind::Number),
            ("top_delta_ts", Kind::Number),
            ("bottom_delta_ts", Kind::Number),
        ],
        None,
    ),
];

const fn event(
    name: &'static str,
    id: Option<u16>,
    fields: &'static [(&'static str, Kind)],
    print_fmt: Option<&'static str>,
) -> Event {
    Event { name, id, fields, print_fmt }
}

/// The event of ftrace that has this name.
pub(super) fn named(system: &str, name: &str) -> Option<&'static Event> {
    EVENTS.iter().find(|event| system == SYSTEM && event.name == name)
}

/// Whether ftrace has an event of this name.
pub(super) fn is_named(name: &str) -> bool {
    named(SYSTEM, name).is_some()
}

impl Event {
    /// What a field is in ftrace. `None` for one that the event does not have there.
    pub(super) fn kind(&self, field: &str) -> Option<Kind> {
        self.fields.iter().find(|(name, _)| *name == field).map(|(_, kind)| *kind)
    }

    /// Whether these fields are what readers expect, on a machine with longs of so many bytes.
    pub(super) fn has(&self, fields: &[FieldSpec], long_size: u8) -> bool {
        self.fields.iter().all(|(name, kind)| {
            let mut named = fields.iter().filter(|field| identifier(&field.name) == *name);
            matches!((named.next(), named.next()), (Some(field), None) if kind.holds(&field.kind, long_size))
        })
    }
}

impl Kind {
    /// Whether a field of this kind can have the values of another tracer's field.
    fn holds(self, of: &FieldType, long_size: u8) -> bool {
        match (self, of) {
            (Self::Long, FieldType::Integer(integer)) => integer.size == long_size,
            (Self::Number, FieldType::Integer(_)) => true,
            (
                Self::Frames | Self::FramesOfPart,
                FieldType::Sequence(integer) | FieldType::Array(integer, _),
            ) => integer.size == long_size,
            (Self::Words, FieldType::Sequence(integer)) => integer.size == 4,
            (Self::Text, FieldType::Text | FieldType::TextArray(_)) => true,
            (Self::Bytes, FieldType::Text) => true,
            (Self::Bytes, FieldType::Sequence(integer) | FieldType::Array(integer, _)) => integer.size == 1,
            _ => false,
        }
    }

    /// Whether its values go on to the end of the record.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::Frames | Self::Words | Self::Text | Self::Bytes)
    }
}

/// Whose frames a stack has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackOf {
    /// The kernel's.
    Kernel,
    /// A process's. 0: it is not known which.
    Process(u32),
}

impl StackOf {
    pub(super) fn index(self) -> usize {
        usize::from(self != Self::Kernel)
    }

    /// The event that has them, on a machine with longs of so many bytes.
    pub(super) fn spec(self, long_size: u8) -> EventSpec {
        let (name, first) = match self {
            Self::Kernel => ("kernel_stack", ("size", Integer::new(4, true))),
            Self::Process(_) => ("user_stack", ("tgid", Integer::new(4, false))),
        };
        let address = Integer { size: long_size, signed: false, show: Show::Address };
        let field = |name: &str, kind| FieldSpec { name: name.to_owned(), kind };
        let fields = vec![
            field(first.0, FieldType::Integer(first.1)),
            field(STACK_FIELD, FieldType::Sequence(address)),
        ];
        EventSpec { system: SYSTEM.to_owned(), name: name.to_owned(), fields, print_fmt: None }
    }

    /// The value of the event's first field.
    pub(super) fn number(self, frames: usize) -> Value<'static> {
        match self {
            Self::Kernel => Value::Unsigned(frames as u64),
            Self::Process(process) => Value::Unsigned(process.into()),
        }
    }
}

/// The addresses of a stack up to what ends it: 0, or all ones.
pub(super) fn frames(addresses: &[u64], long_size: u8) -> &[u64] {
    let end = if long_size == 4 { u64::from(u32::MAX) } else { u64::MAX };
    let len = addresses.iter().position(|address| *address == 0 || *address == end);
    addresses.get(..len.unwrap_or(addresses.len())).unwrap_or_default()
}

/// Whether stacks are in the same place in two events, by the texts of their formats behind their numbers.
pub(super) fn has_same_stacks(one: &str, other: &str) -> bool {
    let places = |body: &str| {
        let format = Format::parse(&super::event::text("stack", 1, body)).ok()?;
        let offsets = format.fields.iter().map(|field| (field.offset, field.location == Location::Inline));
        (format.fields.last()?.name == STACK_FIELD).then(|| offsets.collect::<Vec<_>>())
    };
    places(one).is_some_and(|one| Some(one) == places(other))
}
