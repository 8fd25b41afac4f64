//! The schema with the names, types and state dump of lttng-modules 2.13: format `lttng`.
//!
//! | module | what |
//! |---|---|
//! | `names` | what events and fields are called |
//! | `kernel_names` | what the kernel calls them, for traces that are imported |
//! | `syscalls` | events of system calls, and their table |
//! | `texts` | arguments of system calls that are texts |
//! | `state` | the state dump |

pub mod kernel_names;
mod names;
mod state;
mod syscalls;
mod texts;

use super::callstack::CallStacks;
use super::kernel::{self, inline_text, recorder};
use super::schema::{Birth, Channel, Choice, EnvValue, Event, EventNames, Field, Source};
use super::types::{Integer, Type};
use ftrace_event::{Machine, Meaning, Printer, RecordReader, context};
use recording::Recording;
use stdx::utc;
use tracedat::FileOption;
use tracedat::initial_state::InitialState;

pub use names::event as event_name;
pub use state::events as state_events;
pub(super) use state::{BUFFER as STATE_BUFFER, channel as state_channel, write as write_state};
pub use syscalls::number as call_number;
pub(super) use texts::behind as text_behind;

/// The version whose layout is written. Readers choose names of events by it.
const VERSION: [u32; 3] = [2, 13, 9];

/// What priorities of the kernel have more than those of lttng-modules: `MAX_RT_PRIO`
/// (include/linux/sched/prio.h).
const MAX_RT_PRIO: i64 = 100;

/// The context of all channels: names in the records, names in the trace and types.
pub(super) fn context() -> Vec<(String, String, Type)> {
    [
        ("common_pid", "tid", Integer::new(4, true)),
        ("common_flags", "common_flags", Integer::hex(1)),
        ("common_preempt_count", "common_preempt_count", Integer::new(1, false)),
    ]
    .into_iter()
    .map(|(kernel, name, ty)| (kernel.to_owned(), name.to_owned(), Type::Integer(ty)))
    .collect()
}

/// Declares an event of the kernel, or those that its records become. Gives whether it can be in the channel:
/// whether it has the contexts that the channel has declared.
pub(super) fn declare(channel: &mut Channel, printer: &Printer, machine: Machine) -> bool {
    let reader = RecordReader::new(printer.format(), machine);
    let (mut own, fields) = contexts(fields(printer, &reader));
    own.retain(|context| !is_common(channel, context));
    let stacks: Vec<Field> = stack_contexts(channel.stacks).collect();
    let mut shared = Vec::new();
    for (name, ty) in channel.shared.iter().take(channel.shared.len().saturating_sub(stacks.len())) {
        let is_it = |context: &Field| context.name == *name && context.ty == *ty;
        let Some(at) = own.iter().position(is_it) else { return false };
        shared.push(own.remove(at));
    }
    shared.extend(stacks);
    let is_named_by_call = is_named_by_call(channel, printer);
    let events = &mut channel.events;
    let first = events.len() as u32;
    let choice = if is_named_by_call {
        syscalls::raw(printer, &fields, events)
    } else {
        let name = name(&mut channel.names, channel.of_programs, printer).to_owned();
        events.push(Event { name, contexts: 0, fields });
        Choice::One(first)
    };
    for event in &mut events[first as usize..] {
        event.contexts = own.len();
        event.fields.splice(0..0, shared.iter().chain(&own).cloned());
    }
    let indices = channel.common.iter().map(|name| printer.field_index(name)).collect();
    let mut rule = kernel::rule(printer, reader, indices, choice);
    rule.births = births(printer);
    rule.state = printer.typed("prev_state", Meaning::State);
    channel.rules.insert(printer.format().id, rule);
    true
}

/// Names events that the channel may declare later.
pub(super) fn choose_names<'p>(channel: &mut Channel, printers: impl IntoIterator<Item = &'p Printer>) {
    for printer in printers {
        let is_context = channel.stacks.any() && printer.is_stack();
        if !is_context && !is_named_by_call(channel, printer) {
            name(&mut channel.names, channel.of_programs, printer);
        }
    }
}

fn name<'n>(names: &'n mut EventNames, of_programs: bool, printer: &Printer) -> &'n str {
    let (system, name) = (printer.system(), printer.name());
    let preferred = if of_programs { format!("{system}:{name}") } else { names::event(system, name) };
    names.choose(printer.format().id, preferred, || format!("{system}_{name}"))
}

fn is_named_by_call(channel: &Channel, printer: &Printer) -> bool {
    channel.name_raw_calls
        && matches!((printer.system(), printer.name()), ("raw_syscalls", "sys_enter" | "sys_exit"))
}

/// Declares the contexts that all events of the channel have: the stacks, which are then no events, and the
/// fields that each of `printers` has.
pub(super) fn share_contexts<'p>(
    channel: &mut Channel,
    stacks: CallStacks,
    printers: impl IntoIterator<Item = &'p Printer>,
    machine: Machine,
) {
    channel.stacks = stacks;
    let of = |printer: &Printer| {
        let reader = RecordReader::new(printer.format(), machine);
        let (contexts, _) = contexts(fields(printer, &reader));
        let own = contexts.into_iter().filter(|context| !is_common(channel, context));
        own.map(|context| (context.name, context.ty)).collect::<Vec<_>>()
    };
    let mut all = printers.into_iter().map(of);
    let first = all.next().unwrap_or_default();
    let mut shared = all.fold(first, |mut shared, other| {
        shared.retain(|context| other.contains(context));
        shared
    });
    shared.extend(stack_contexts(channel.stacks).map(|field| (field.name, field.ty)));
    channel.shared = shared;
}

fn stack_contexts(stacks: CallStacks) -> impl Iterator<Item = Field> {
    let field = |(name, ty, of)| Field { name: String::from(name), ty, source: Source::CallStack(of) };
    stacks.fields().map(field)
}

/// Whether the channel's own context has the same: the thread.
fn is_common(channel: &Channel, context: &Field) -> bool {
    channel.context.iter().any(|(name, _)| *name == context.name)
}

/// Takes what is context out of the fields, with LTTng's names and values.
fn contexts(fields: Vec<Field>) -> (Vec<Field>, Vec<Field>) {
    let (mut contexts, mut others) = (Vec::new(), Vec::new());
    for mut field in fields {
        let Some(name) = context::lttng_name(&field.name).map(str::to_owned) else {
            others.push(field);
            continue;
        };
        match (name.as_str(), field.source) {
            ("prio", Source::Record(field_index)) => field.source = Source::Less(field_index, MAX_RT_PRIO),
            ("interruptible", _) => field.ty = Type::Integer(Integer::new(1, true)),
            _ => {}
        }
        field.name = name;
        contexts.push(field);
    }
    (contexts, others)
}

/// The index of a field, if it is a number.
pub(super) fn number_index(printer: &Printer, name: &str) -> Option<usize> {
    printer.typed(name, Meaning::Number).and(printer.field_index(name))
}

fn births(printer: &Printer) -> Option<Birth> {
    if (printer.system(), printer.name()) != ("task", "task_newtask") {
        return None;
    }
    let field_index = |name| number_index(printer, name);
    Some(Birth {
        pid: field_index("pid")?,
        clone_flags: field_index("clone_flags")?,
        parent: field_index("common_pid")?,
    })
}

fn fields(printer: &Printer, reader: &RecordReader) -> Vec<Field> {
    let (system, event) = (printer.system(), printer.name());
    let mut fields = kernel::fields(printer, reader, inline_text);
    if system == "syscalls" {
        return syscalls::fields(printer, fields);
    }
    for field in &mut fields {
        let kernel_name = std::mem::take(&mut field.name);
        names::field(system, event, &kernel_name).clone_into(&mut field.name);
        let Source::Record(field_index) = field.source else { continue };
        let is_number = matches!(field.ty, Type::Integer(_));
        if (system, event, &*kernel_name, is_number) == ("sched", "sched_switch", "prev_state", false) {
            field.source = Source::State;
            field.ty = Type::Integer(Integer::new(8, true));
        } else if names::is_priority(system, &kernel_name) && is_number {
            field.source = Source::Less(field_index, MAX_RT_PRIO);
        } else if system == "block" && kernel_name == "rwbs" && !is_number {
            field.source = Source::OperationBits(field_index);
            field.ty = Type::Integer(Integer::new(4, false));
        }
    }
    let int = || Type::Integer(Integer::new(4, true));
    let mut add = |name: &str, source| {
        if fields.iter().all(|field| field.name != name) {
            fields.push(Field { name: name.to_owned(), ty: int(), source });
        }
    };
    match (system, event) {
        ("sched", "sched_process_fork") => {
            let field_index = |name| number_index(printer, name);
            if let (Some(parent), Some(child)) = (field_index("parent_pid"), field_index("child_pid")) {
                add("parent_pid", Source::ProcessOf(parent));
                add("child_pid", Source::ProcessOfNew(child));
            }
        }
        // What lttng-modules asks the current task for.
        ("block", _) if printer.field_index("comm").is_some() => {
            if let Some(field_index) = printer.field_index("common_pid") {
                add("tid", Source::Record(field_index));
            }
        }
        _ => {}
    }
    fields
}

/// The bits of `rwbs` in lttng-modules, from the letters of `blk_fill_rwbs` (block/blk-core.c): an F for a
/// flush before, the operation, and what goes with it. `None` if a letter is not known.
pub(super) fn operation_bits(letters: &[u8]) -> Option<u32> {
    const WRITE: u32 = 1 << 0;
    const DISCARD: u32 = 1 << 1;
    const READ: u32 = 1 << 2;
    const READ_AHEAD: u32 = 1 << 3;
    const SYNC: u32 = 1 << 5;
    const META: u32 = 1 << 6;
    const SECURE: u32 = 1 << 7;
    const FLUSH: u32 = 1 << 8;
    const FUA: u32 = 1 << 9;
    const PREFLUSH: u32 = 1 << 10;
    let operation = |letter: u8| match letter {
        b'W' => Some(WRITE),
        b'D' => Some(DISCARD),
        b'R' => Some(READ),
        b'F' => Some(FLUSH),
        b'N' => Some(0),
        _ => None,
    };
    let (&first, rest) = letters.split_first()?;
    let (mut bits, mut rest) = match rest.split_first() {
        // A second operation letter, so that the first stands before it.
        Some((&second, rest)) if first == b'F' && operation(second).is_some() => {
            (PREFLUSH | operation(second)?, rest)
        }
        _ => (operation(first)?, rest),
    };
    if bits & DISCARD != 0
        && let Some(after) = rest.strip_prefix(b"E")
    {
        bits |= SECURE;
        rest = after;
    }
    for letter in rest {
        bits |= match letter {
            b'F' => FUA,
            b'A' => READ_AHEAD,
            b'S' => SYNC,
            b'M' => META,
            _ => return None,
        };
    }
    Some(bits)
}

/// Whether an event is of a state dump, in an import of a trace.
pub(super) fn is_of_state(event: &Printer) -> bool {
    event.system() == "lttng" && event.name().starts_with("lttng_statedump_")
}

/// What the metadata say of the trace. It claims the version of lttng-modules whose names it has, because
/// readers choose names by it, and says who made it.
pub(super) fn env(recording: &Recording<'_>, state: Option<&InitialState>) -> Vec<(&'static str, EnvValue)> {
    let mut env = kernel::machine_env(recording, state);
    env.push(("tracer_name", "lttng-modules".into()));
    for (name, number) in ["tracer_major", "tracer_minor", "tracer_patchlevel"].into_iter().zip(VERSION) {
        env.push((name, EnvValue::Number(number)));
    }
    env.push(("trace_buffering_scheme", "global".into()));
    let trace_id = recording.file().facts().find_map(|fact| match fact {
        FileOption::TraceId(id) => Some(*id),
        _ => None,
    });
    let name = trace_id.map_or_else(|| "trace".to_owned(), |id| format!("trace-{id:016x}"));
    env.push(("trace_name", name.into()));
    if let Some(datetime) = creation(recording) {
        env.push(("trace_creation_datetime", datetime.into()));
    }
    let uuid = recording.host(state).product_uuid;
    if !uuid.is_empty() {
        env.push(("product_uuid", uuid.into()));
    }
    env.push(("exporter", concat!("tracer-agent ", env!("CARGO_PKG_VERSION")).into()));
    env.push(("exporter_note", "made of records of ftrace's layout; lttng-modules did not record it".into()));
    env.push(("recorded_by", recorder(recording).into()));
    env.extend(kernel::machine(recording, state));
    env
}

/// Wall time of the first record, as `20260131T120000+0000`.
fn creation(recording: &Recording<'_>) -> Option<String> {
    let (first, _) = recording.span()?;
    Some(utc::compact(first.checked_add_signed(recording.wall_offset()?)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::collections::BTreeSet;

    use super::super::{ChannelContexts, Ctf};
    use super::*;
    use ftrace_event::{EventTable, NoNames};

    fn format(id: u32, fields: &[&str]) -> String {
        let fields = fields.iter().zip(0..).map(|(name, number)| {
            format!("\tfield:int {name};\toffset:{};\tsize:4;\tsigned:1;\n", 8 + number * 4)
        });
        let common = "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";
        let fields: String = fields.collect();
        format!("name: e{id}\nID: {id}\nformat:\n{common}{fields}\nprint fmt: \"\"\n")
    }

    #[test]
    fn events_have_what_their_channel_declares() {
        let machine = Machine::default();
        let mut events = EventTable::new(machine);
        for (id, fields) in [
            (1, &["x", "ctx_vtid", "ctx_pid", "ctx_tid", "ctx_vpid"][..]),
            (2, &["ctx_pid", "ctx_vtid"]),
            (3, &["x", "ctx_pid"]),
            (4, &["vtid", "pid"]),
        ] {
            events.add("s", &format(id, fields), &NoNames).unwrap();
        }
        let mut channel = Ctf::Lttng.channel("", &[], machine, &mut BTreeSet::new());
        let format_of_contexts = format(0, &["ctx_tid", "ctx_pid", "ctx_vtid"]);
        let contexts = ChannelContexts { fields: &format_of_contexts, ..ChannelContexts::default() };
        Ctf::Lttng.declare_contexts(&mut channel, contexts, machine).unwrap();
        let shared: Vec<_> = channel.shared.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(shared, ["pid", "vtid"], "all events have the thread");
        let declared = [1, 2, 3, 4].map(|id| declare(&mut channel, events.get(id).unwrap(), machine));
        assert_eq!(declared, [true, true, false, false]);
        let names = |event: &Event| event.fields.iter().map(|field| field.name.clone()).collect::<Vec<_>>();
        let fields: Vec<_> = channel.events.iter().map(|event| (event.contexts, names(event))).collect();
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(fields, [(1, names(&["pid", "vtid", "vpid", "x"])), (0, names(&["pid", "vtid"]))]);
        let damaged = ChannelContexts { fields: "name: x", ..contexts };
        assert!(Ctf::Lttng.declare_contexts(&mut channel, damaged, machine).is_err());
    }

    #[test]
    fn operations_become_bits() {
        for (letters, bits) in [
            ("R", 0x4),
            ("WS", 0x21),
            ("FF", 0x500),
            ("F", 0x100),
            ("FWFSM", 0x661),
            ("RA", 0xc),
            ("DE", 0x82),
            ("WFSM", 0x261),
            ("N", 0),
        ] {
            assert_eq!(operation_bits(letters.as_bytes()), Some(bits), "{letters}");
        }
        for letters in ["", "X", "WX", "E"] {
            assert_eq!(operation_bits(letters.as_bytes()), None, "{letters}");
        }
    }
}
