//! The event types that every trace has.
//!
//! The document has a facility `builtin` of four events. The reader of its time (LTTV 0.4) wants a facility
//! `core` instead, with the events of its convert/core.xml in that order: it takes 17, 18 and 19 for begin
//! and end of blocks and for heartbeats, and stops without the fields by which it follows the state of
//! processes. Sizes of fields are for the trace to choose.

use super::types::{Event, Facility, Field, Type};

/// Numbers of the builtin events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) facility_load: u16,
    pub(super) block_start: u16,
    pub(super) block_end: u16,
    pub(super) heartbeat: u16,
    /// What has to be added to the number of [`Core`] to get that in the trace.
    core: i16,
}

/// Events of the facility `core`, by their numbers in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Core {
    SyscallEntry = 1,
    SyscallExit = 2,
    TrapEntry = 3,
    TrapExit = 4,
    IrqEntry = 5,
    IrqExit = 6,
    Schedule = 7,
    SoftIrq = 9,
    Process = 10,
    FileSystem = 11,
}

/// Values of `event_sub_id`.
pub(super) const SOFT_IRQ: u8 = 2;
pub(super) const PROCESS_KTHREAD: u8 = 1;
pub(super) const PROCESS_FORK: u8 = 2;
pub(super) const PROCESS_EXIT: u8 = 3;
pub(super) const PROCESS_RELEASE: u8 = 7;
pub(super) const FILE_SYSTEM_EXEC: u8 = 3;

/// As the reader wants them.
pub(super) const READABLE: Numbers =
    Numbers { facility_load: 0, block_start: 17, block_end: 18, heartbeat: 19, core: 0 };
/// As the document lists them. What else `core` has comes in a facility of its own, which begins with
/// `syscall_entry`.
pub(super) const LITERAL: Numbers =
    Numbers { facility_load: 0, block_start: 1, block_end: 2, heartbeat: 3, core: LITERAL_EVENTS as i16 - 1 };
/// How many events the document's `builtin` has.
pub(super) const LITERAL_EVENTS: usize = 4;

impl Numbers {
    pub(super) fn core(self, event: Core) -> u16 {
        (event as u16).wrapping_add_signed(self.core)
    }
}

/// The facility `core` as the reader wants it.
pub(super) fn core() -> Facility {
    let mut facility = os_events();
    facility.events.insert(0, facility_load());
    // Behind `network`, the last of those that it shares with the other way of numbering.
    facility.events.splice(17..17, time_events());
    facility.types = time_types();
    facility
}

/// The facility `builtin` of the document.
pub(super) fn builtin() -> Facility {
    let mut events = vec![facility_load()];
    events.extend(time_events());
    let description = "Events that every trace has".to_owned();
    Facility { name: "builtin".to_owned(), description, events, types: time_types() }
}

/// The events of `core` that are not in the document's `builtin`.
pub(super) fn os_events() -> Facility {
    let sub = |labels: &[(&str, u64)]| {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        ("event_sub_id", Type::Enum { size: 1, labels })
    };
    let data = |name| (name, Type::Uint(4));
    let events = vec![
        event(
            "syscall_entry",
            "Entry in a system call",
            [("syscall_id", Type::Uint(1)), ("address", Type::Address(8))],
        ),
        event("syscall_exit", "Exit from a system call", []),
        event("trap_entry", "Entry in a trap", [("trap_id", Type::Uint(2)), ("address", Type::Address(8))]),
        event("trap_exit", "Exit from a trap", []),
        event("irq_entry", "Entry in an interrupt", [("irq_id", Type::Uint(1)), ("kernel", Type::Uint(1))]),
        event("irq_exit", "Exit from an interrupt", []),
        event("schedchange", "Scheduling change", [data("out"), data("in"), data("out_state")]),
        event("kernel_timer", "The kernel's timer routine", []),
        event("soft_irq", "Soft interrupts", [sub(&[("SOFT_IRQ", SOFT_IRQ.into())]), data("event_data")]),
        event(
            "process",
            "Processes",
            [
                sub(&[
                    ("KTHREAD", PROCESS_KTHREAD.into()),
                    ("FORK", PROCESS_FORK.into()),
                    ("EXIT", PROCESS_EXIT.into()),
                    ("RELEASE", PROCESS_RELEASE.into()),
                ]),
                data("event_data1"),
                data("event_data2"),
            ],
        ),
        event(
            "file_system",
            "File systems",
            [
                sub(&[("EXEC", FILE_SYSTEM_EXEC.into())]),
                data("event_data1"),
                data("event_data2"),
                ("file_name", Type::String),
            ],
        ),
        event(
            "timer",
            "Timers",
            [
                ("event_sub_id", Type::Uint(1)),
                ("event_sdata", Type::Uint(1)),
                data("event_data1"),
                data("event_data2"),
            ],
        ),
        event("memory", "Memory", [("event_sub_id", Type::Uint(1)), data("event_data")]),
        event(
            "socket",
            "Sockets",
            [("event_sub_id", Type::Uint(1)), data("event_data1"), data("event_data2")],
        ),
        event(
            "ipc",
            "System V IPC",
            [("event_sub_id", Type::Uint(1)), data("event_data1"), data("event_data2")],
        ),
        event("network", "Network", [("event_sub_id", Type::Uint(1)), data("event_data")]),
        event("process_fork", "Fork a new process", [data("child_pid"), data("event_data2")]),
        event("process_exit", "Exit from a process", [data("event_data1"), data("event_data2")]),
    ];
    let description = "Scheduling, interrupts, faults, system calls".to_owned();
    Facility { name: "core".to_owned(), description, events, types: Vec::new() }
}

fn facility_load() -> Event {
    let fields = [("name", Type::String), ("checksum", Type::Uint(4)), ("base_code", Type::Uint(4))];
    event("facility_load", "Facility used in the trace", fields)
}

fn time_events() -> [Event; 3] {
    let typed = |name: &str, description: &str, of: &str| Event {
        name: name.to_owned(),
        description: description.to_owned(),
        of: Some(Type::Named(of.to_owned())),
    };
    [
        typed("block_start", "Block start timestamp", "block_timestamp"),
        typed("block_end", "Block end timestamp", "block_timestamp"),
        typed("time_heartbeat", "Time, sent where 32 bits of it would not be enough", "timestamp"),
    ]
}

fn time_types() -> Vec<(String, Type)> {
    let named = |name: &str| Type::Named(name.to_owned());
    let of = |name: &str, fields: [Field; 2]| (name.to_owned(), Type::Struct(fields.into()));
    vec![
        of(
            "block_timestamp",
            [Field::new("timestamp", named("timestamp")), Field::new("block_id", Type::Uint(4))],
        ),
        of("timestamp", [Field::new("time", named("timespec")), Field::new("cycle_count", Type::Uint(8))]),
        of("timespec", [Field::new("seconds", Type::Uint(4)), Field::new("nanoseconds", Type::Uint(4))]),
    ]
}

/// An event of a struct; of nothing without fields.
pub(super) fn event<const N: usize>(name: &str, description: &str, fields: [(&str, Type); N]) -> Event {
    let fields: Vec<_> = fields.into_iter().map(|(name, of)| Field::new(name, of)).collect();
    let of = (!fields.is_empty()).then_some(Type::Struct(fields));
    Event { name: name.to_owned(), description: description.to_owned(), of }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reader_finds_its_events() {
        let core = core();
        let name = |number: u16| core.events[usize::from(number)].name.as_str();
        assert_eq!(name(READABLE.facility_load), "facility_load");
        assert_eq!(name(READABLE.block_start), "block_start");
        assert_eq!(name(READABLE.block_end), "block_end");
        assert_eq!(name(READABLE.heartbeat), "time_heartbeat");
        let literal = [builtin().events, os_events().events].concat();
        for (event, expected) in [
            (Core::SyscallEntry, "syscall_entry"),
            (Core::SyscallExit, "syscall_exit"),
            (Core::TrapEntry, "trap_entry"),
            (Core::TrapExit, "trap_exit"),
            (Core::IrqEntry, "irq_entry"),
            (Core::IrqExit, "irq_exit"),
            (Core::Schedule, "schedchange"),
            (Core::SoftIrq, "soft_irq"),
            (Core::Process, "process"),
            (Core::FileSystem, "file_system"),
        ] {
            assert_eq!(name(READABLE.core(event)), expected);
            assert_eq!(literal[usize::from(LITERAL.core(event))].name, expected);
        }
        assert_eq!(literal[usize::from(LITERAL.heartbeat)].name, "time_heartbeat");
        assert_eq!(core.events.len(), 22);
    }
}
