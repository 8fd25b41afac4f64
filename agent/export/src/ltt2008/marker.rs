//! Markers: what the trace says of its events.
//!
//! A marker has a name, a number and a format such as `pid #4d%d comm %s`: for each field its name, after `#`
//! its size in bytes and its kind in the trace, after `%` the conversion that would print it. Of kinds there
//! are signed and unsigned numbers, pointers and texts; arrays become a field for each element if they are
//! short, otherwise a text.
//!
//! The core markers 0 to 3 declare the others and mark time. The document calls the two bytes of an event
//! header that name the event `facility_id` and `event_id`; readers of version 1.0 take them as one number.
//! Numbers from 128 on are free (8 to 127 are those of compact channels).

use std::collections::HashSet;

use super::super::payload::{Payload, number_of, value_of};
use ftrace_event::Endian;
use ftrace_event::{FieldKind, Printer, Value};
use recording::error::ExportError;
use recording::survey::Recording;

/// Most elements of an array that become fields of their own.
const MAX_ELEMENTS: usize = 16;
/// First number that is free in version 1.0.
const FIRST_FREE: u16 = 128;

/// The markers that show viewers the state of CPUs and processes, by the names that they know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateMarker {
    Schedule,
    SyscallEntry,
    SyscallExit,
    TrapEntry,
    TrapExit,
    IrqEntry,
    IrqExit,
    SoftirqRaise,
    SoftirqEntry,
    SoftirqExit,
    Fork,
    KthreadCreate,
    Exit,
    Free,
    Exec,
    ProcessState,
    StatedumpEnd,
    Interrupt,
    Module,
    NetworkInterface,
    SoftirqVector,
    /// Not a state: events were lost before this one.
    Lost,
}

/// Facility, name and format of each, in the order of [`StateMarker`]. The state engine reads pids and
/// numbers of 4 bytes only (ltt_event_get_unsigned of ltt/event.c).
const STATE_MARKERS: [(&str, &str, &str); 22] = [
    ("kernel", "sched_schedule", "prev_pid #4d%d next_pid #4d%d prev_state #8d%lld"),
    ("kernel_arch", "syscall_entry", "syscall_id #4u%u ip #8x%llx"),
    ("kernel_arch", "syscall_exit", " "),
    ("kernel_arch", "trap_entry", "trap_id #4u%u ip #8x%llx"),
    ("kernel_arch", "trap_exit", " "),
    ("kernel", "irq_entry", "irq_id #4u%u"),
    ("kernel", "irq_exit", " "),
    ("kernel", "softirq_raise", "softirq_id #4u%u"),
    ("kernel", "softirq_entry", "softirq_id #4u%u"),
    ("kernel", "softirq_exit", "softirq_id #4u%u"),
    ("kernel", "process_fork", "parent_pid #4d%d child_pid #4d%d child_tgid #4d%d"),
    ("kernel_arch", "kthread_create", "pid #4d%d"),
    ("kernel", "process_exit", "pid #4d%d"),
    ("kernel", "process_free", "pid #4d%d"),
    ("fs", "exec", "filename %s"),
    (
        "list",
        "process_state",
        "pid #4d%d parent_pid #4d%d name %s type #4d%d mode #4d%d submode #4d%d status #4d%d tgid #4d%d",
    ),
    ("list", "statedump_end", " "),
    ("list", "interrupt", "name %s action %s irq_id #4u%u"),
    ("list", "module", "name %s size #8u%llu refcount #4u%u"),
    ("list", "network_ipv4_interface", "name %s address #4x%x index #4u%u"),
    ("statedump", "softirq_vec", "id #4u%u address #8x%llx symbol %s"),
    ("trace", "events_lost", "count #8u%llu"),
];

/// The core markers; declaring them too is what the text output of LTTV 0.10 needs to survive.
pub(super) const CORE: [(&str, &str); 4] = [
    (
        "core_marker_id",
        "name %s event_id #2u%hu int #1u%u long #1u%u pointer #1u%u size_t #1u%u alignment #1u%u",
    ),
    ("core_marker_format", "name %s format %s"),
    ("core_heartbeat_32", " "),
    ("core_heartbeat_64", "timestamp #8u%llu"),
];

/// Numbers of core markers.
pub(super) const CORE_ID: u8 = 0;
pub(super) const CORE_FORMAT: u8 = 1;
pub(super) const CORE_HEARTBEAT: u8 = 2;

/// How a field is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Number {
        size: usize,
    },
    Text,
    Elements {
        size: usize,
        count: usize,
    },
    Texts {
        count: usize,
    },
    /// As text.
    Shown,
    /// The addresses of a stack, as text.
    Stack,
}

/// How the records of an event are written.
#[derive(Clone, Debug)]
pub(super) struct EventMarker {
    pub(super) id: [u8; 2],
    parts: Vec<(usize, Part)>,
}

impl EventMarker {
    /// Writes a record's fields. Returns how many of them the record does not have; zeros and empty texts
    /// stand for them.
    pub(super) fn write(&self, printer: &Printer, record: &[u8], payload: &mut Payload) -> u64 {
        let mut missing = 0;
        for (index, part) in &self.parts {
            let value = value_of(printer, *index, record);
            missing += u64::from(value.is_err());
            match (*part, value) {
                (Part::Number { size }, value) => {
                    payload.number(value.map_or(0, |value| number_of(&value)), size);
                }
                (Part::Text, Ok(Value::Text(text))) => {
                    payload.text(text);
                }
                (Part::Elements { size, count }, value) => payload.array(value.ok(), count, size),
                (Part::Texts { count }, value) => payload.texts(value.ok(), count),
                (Part::Stack, _) => {
                    let frames = printer.frames(record).into_iter().flatten();
                    let addresses: Vec<_> = frames.map(|address| format!("0x{address:x}")).collect();
                    payload.text(format!("{{{}}}", addresses.join(",")).as_bytes());
                }
                (Part::Shown, Ok(value)) => {
                    payload.shown(&value);
                }
                (Part::Text | Part::Shown, _) => {
                    payload.text(b"");
                }
            }
        }
        missing
    }
}

/// A marker as it is declared.
#[derive(Clone, Debug)]
pub(super) struct Declaration {
    pub(super) id: [u8; 2],
    pub(super) name: String,
    pub(super) format: String,
}

/// The markers of a trace.
#[derive(Debug)]
pub(super) struct Markers {
    ids: Ids,
    state: Vec<[u8; 2]>,
    declared: Vec<Declaration>,
    /// By the number that the event has in the recording.
    events: Vec<Option<EventMarker>>,
}

impl Markers {
    /// Gives a marker to every event of the recording.
    pub(super) fn new(recording: &Recording<'_>, endian: Endian, literal: bool) -> Result<Self, ExportError> {
        let mut markers = Self {
            ids: Ids { endian, literal, next: FIRST_FREE, facilities: Vec::new() },
            state: Vec::new(),
            declared: Vec::new(),
            events: Vec::new(),
        };
        for (number, (name, format)) in CORE.into_iter().enumerate() {
            let id = markers.core(number as u8);
            markers.declared.push(Declaration { id, name: name.to_owned(), format: format.to_owned() });
        }
        let mut names = HashSet::new();
        for (facility, event, format) in STATE_MARKERS {
            let id = markers.ids.next(facility)?;
            markers.state.push(id);
            let name = format!("{facility}_{event}");
            names.insert(name.clone());
            markers.declared.push(Declaration { id, name, format: format.to_owned() });
        }
        for printer in recording.events().iter() {
            let facility = identifier(printer.system());
            let id = markers.ids.next(&facility)?;
            let mut name = format!("{facility}_{}", printer.name());
            // A second event of one name would be taken for another version of the first.
            while !names.insert(name.clone()) {
                name += "_";
            }
            let (format, parts) = fields(printer);
            markers.declared.push(Declaration { id, name, format });
            let at = usize::from(printer.format().id);
            if markers.events.len() <= at {
                markers.events.resize(at + 1, None);
            }
            markers.events[at] = Some(EventMarker { id, parts });
        }
        Ok(markers)
    }

    /// What a core marker is called in event headers.
    pub(super) fn core(&self, number: u8) -> [u8; 2] {
        if self.ids.literal { [0, number] } else { self.ids.endian.u16(number.into()) }
    }

    /// What a marker of states is called in event headers.
    pub(super) fn state(&self, marker: StateMarker) -> [u8; 2] {
        self.state[marker as usize]
    }

    /// How the records of an event are written.
    pub(super) fn event(&self, id: u16) -> Option<&EventMarker> {
        self.events.get(usize::from(id))?.as_ref()
    }

    /// All markers, the core ones first.
    pub(super) fn declared(&self) -> &[Declaration] {
        &self.declared
    }
}

/// Gives out what markers are called in event headers.
#[derive(Debug)]
struct Ids {
    endian: Endian,
    literal: bool,
    next: u16,
    /// Literally: name of each facility from 1 on, and how many events it has.
    facilities: Vec<(String, u16)>,
}

impl Ids {
    fn next(&mut self, facility: &str) -> Result<[u8; 2], ExportError> {
        if !self.literal {
            let id = self.next;
            self.next = id.checked_add(1).ok_or_else(too_many)?;
            return Ok(self.endian.u16(id));
        }
        // A facility has numbers for 256 events; one that has more gets another number.
        let open = self.facilities.iter().rposition(|(name, events)| name == facility && *events < 256);
        let index = open.unwrap_or_else(|| {
            self.facilities.push((facility.to_owned(), 0));
            self.facilities.len() - 1
        });
        let number = u8::try_from(index + 1).map_err(|_| too_many())?;
        let events = &mut self.facilities[index].1;
        *events += 1;
        Ok([number, (*events - 1) as u8])
    }
}

fn too_many() -> ExportError {
    ExportError::Unsupported(
        "the recording has more kinds of events than the layout has numbers for".to_owned(),
    )
}

/// A name of letters, digits and `_`; what else there is becomes `_`.
pub(super) fn identifier(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// Format of the marker of an event, and how to write it. The event's number is left out, because the marker
/// has it.
fn fields(printer: &Printer) -> (String, Vec<(usize, Part)>) {
    let mut format = Vec::new();
    let mut parts = Vec::new();
    let all = printer.format().common.iter().chain(&printer.format().fields).enumerate();
    for (index, field) in all.filter(|(_, field)| field.name != "common_type") {
        let name = &field.name;
        let part = match printer.kind(index) {
            _ if printer.is_stack_field(field) => Part::Stack,
            Some(FieldKind::Number { size, .. } | FieldKind::Pointer { size }) => {
                Part::Number { size: size.into() }
            }
            Some(FieldKind::Text) => Part::Text,
            Some(FieldKind::Texts { count }) if count <= MAX_ELEMENTS => Part::Texts { count },
            Some(FieldKind::Array { size, count: Some(count), .. }) if count <= MAX_ELEMENTS => {
                Part::Elements { size: size.into(), count }
            }
            _ => Part::Shown,
        };
        let number = match printer.kind(index) {
            Some(FieldKind::Number { size, signed } | FieldKind::Array { size, signed, .. }) => {
                conversion(size, if signed { 'd' } else { 'u' })
            }
            Some(FieldKind::Pointer { size }) => conversion(size, 'x'),
            _ => String::new(),
        };
        match part {
            Part::Number { .. } => format.push(format!("{name} {number}")),
            Part::Text | Part::Shown | Part::Stack => format.push(format!("{name} %s")),
            Part::Elements { count, .. } => format.extend((0..count).map(|n| format!("{name}_{n} {number}"))),
            Part::Texts { count } => format.extend((0..count).map(|n| format!("{name}_{n} %s"))),
        }
        parts.push((index, part));
    }
    (if format.is_empty() { " ".to_owned() } else { format.join(" ") }, parts)
}

/// Kind and conversion of a number. LTTV does not know the size `8` after `#`, and takes that of the
/// conversion.
fn conversion(size: u8, letter: char) -> String {
    if size == 8 { format!("#8{letter}%ll{letter}") } else { format!("#{size}{letter}%{letter}") }
}
