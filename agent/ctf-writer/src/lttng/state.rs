//! The state dump: what existed at the start, as events `lttng_statedump_*` (lttng-modules
//! `src/lttng-statedump-impl.c`, `include/instrumentation/events/lttng-statedump.h`).
//!
//! They have a channel of their own, so that their times, those at which the recorder looked, need not be
//! merged with others. None is outside of the recorded time span.

use super::super::callstack::CallStacks;
use super::super::schema::{Channel, Event, EventNames, Field, Rules, Source, Trace};
use super::super::stream::{EventHeader, StreamWriter};
use super::super::types::{Integer, Type};
use ftrace_event::Value;
use recording::{ExportError, NotCarried};
use tracedat::initial_state::{InitialState, Thread};

const INT: Type = Type::Integer(Integer::new(4, true));
const UINT: Type = Type::Integer(Integer::new(4, false));
const U16: Type = Type::Integer(Integer::new(2, false));
const U8: Type = Type::Integer(Integer::new(1, false));
const HEX64: Type = Type::Integer(Integer::hex(8));
const ADDRESS: Type = Type::Integer(Integer { size: 4, signed: false, base: 16, network: true });
const COMM: Type = Type::TextArray { len: 16 };

/// Names and fields; an event's id is its index.
const EVENTS: &[(&str, &[(&str, Type)])] = &[
    ("start", &[]),
    (
        "process_state",
        &[
            ("tid", INT),
            ("pid", INT),
            ("ppid", INT),
            ("name", COMM),
            ("type", INT),
            ("mode", INT),
            ("submode", INT),
            ("status", INT),
            ("cpu", UINT),
            ("file_table_address", HEX64),
            ("vtid", INT),
            ("vpid", INT),
        ],
    ),
    ("process_pid_ns", &[("tid", INT), ("vtid", INT), ("vpid", INT), ("ns_level", INT), ("ns_inum", UINT)]),
    ("process_cgroup_ns", &[("tid", INT), ("ns_inum", UINT)]),
    ("process_ipc_ns", &[("tid", INT), ("ns_inum", UINT)]),
    ("process_mnt_ns", &[("tid", INT), ("ns_inum", UINT)]),
    ("process_net_ns", &[("tid", INT), ("ns_inum", UINT)]),
    ("process_time_ns", &[("tid", INT), ("ns_inum", UINT)]),
    ("process_uts_ns", &[("tid", INT), ("ns_inum", UINT)]),
    (
        "process_user_ns",
        &[("tid", INT), ("vuid", UINT), ("vgid", UINT), ("ns_level", INT), ("ns_inum", UINT)],
    ),
    (
        "file_descriptor",
        &[
            ("file_table_address", HEX64),
            ("fd", INT),
            ("flags", UINT),
            ("fmode", UINT),
            ("filename", Type::String),
            ("pid", INT),
        ],
    ),
    ("network_interface", &[("name", Type::String), ("address_ipv4", ADDRESS)]),
    ("block_device", &[("dev", UINT), ("diskname", Type::String)]),
    ("interrupt", &[("irq", UINT), ("name", Type::String), ("action", Type::String), ("tid", INT)]),
    (
        "cpu_topology",
        &[
            ("architecture", Type::String),
            ("cpu_id", U16),
            ("vendor", Type::String),
            ("family", U8),
            ("model", U8),
            ("model_name", Type::String),
            ("physical_id", U16),
            ("core_id", U16),
            ("cores", U16),
        ],
    ),
    ("end", &[]),
];

/// The names of its events.
pub fn events() -> impl Iterator<Item = String> {
    EVENTS.iter().map(|(name, _)| format!("lttng_statedump_{name}"))
}

/// What the channel has for a buffer. No recorded one has such a name.
pub(in super::super) const BUFFER: &str = "\0statedump";

/// The channel of the state dump.
pub(in super::super) fn channel(name: String) -> Channel {
    let field = |(name, ty): &(&str, Type)| Field {
        name: (*name).to_owned(),
        ty: ty.clone(),
        // It is not made of records.
        source: Source::Record(0),
    };
    let event = |(name, fields): &(&str, &[(&str, Type)])| Event {
        name: format!("lttng_statedump_{name}"),
        contexts: 0,
        fields: fields.iter().map(field).collect(),
    };
    let events = EVENTS.iter().map(event).collect();
    Channel {
        buffer: BUFFER.to_owned(),
        name,
        header: EventHeader::of(EVENTS.len()),
        context: Vec::new(),
        common: Vec::new(),
        of_programs: false,
        shared: Vec::new(),
        stacks: CallStacks::default(),
        names: EventNames::default(),
        name_raw_calls: false,
        events,
        rules: Rules::default(),
    }
}

/// Writes the state dump into the stream of its channel. Gives what LTTng's does not have.
pub(in super::super) fn write(
    state: &InitialState,
    trace: &Trace,
    channel: &Channel,
    stream: &mut StreamWriter,
) -> Result<NotCarried, ExportError> {
    // Readers take the time of the last event for the end of all that they saw.
    let from = trace.span.0.max(stream.last());
    let within = |time: u64| trace.clock.shifted(time).min(trace.span.1).max(from);
    let (began, ended) = (within(state.began_ns), within(state.ended_ns));
    let mut emit = |name: &str, values: &[Value<'_>]| {
        let Some(id) = EVENTS.iter().position(|(known, _)| *known == name) else { return Ok(()) };
        let time = if name == "end" { ended.max(began) } else { began };
        let out = stream.event(id as u32, time)?;
        for (field, value) in channel.events[id].fields.iter().zip(values) {
            field.ty.encode(Some(*value), out);
        }
        Ok::<(), ExportError>(())
    };
    emit("start", &[])?;
    for thread in &state.threads {
        self::thread(thread, &mut emit)?;
    }
    for file in &state.files {
        let values = [
            number(file.tgid),
            number(file.fd),
            number(0),
            number(0),
            Value::Text(file.path.as_bytes()),
            number(file.tgid),
        ];
        emit("file_descriptor", &values)?;
    }
    for interface in &state.interfaces {
        let name = Value::Text(interface.name.as_bytes());
        // An interface without an address has one event, too.
        let none = [std::net::Ipv4Addr::UNSPECIFIED];
        let addresses = if interface.ipv4.is_empty() { &none } else { interface.ipv4.as_slice() };
        for address in addresses {
            emit("network_interface", &[name, number(u32::from(*address))])?;
        }
    }
    for device in &state.block_devices {
        // dev_t of the kernel: 20 bits are the minor number (include/linux/kdev_t.h).
        let dev = device.major << 20 | device.minor & 0xf_ffff;
        emit("block_device", &[number(dev), Value::Text(device.name.as_bytes())])?;
    }
    for interrupt in &state.interrupts {
        for action in &interrupt.actions {
            let texts = [&interrupt.chip, action].map(|text| Value::Text(text.as_bytes()));
            emit("interrupt", &[number(interrupt.irq), texts[0], texts[1], number(0)])?;
        }
    }
    if matches!(state.host.machine.as_str(), "x86_64" | "i386" | "i686") {
        for cpu in &state.cpus {
            let cores = state.cpus.iter().filter(|other| other.package == cpu.package).count();
            emit(
                "cpu_topology",
                &[
                    Value::Text(b"x86"),
                    number(cpu.id),
                    Value::Text(cpu.vendor.as_bytes()),
                    number(0),
                    number(0),
                    Value::Text(cpu.model.as_bytes()),
                    number(cpu.package),
                    number(cpu.core),
                    number(cores as u32),
                ],
            )?;
        }
    }
    emit("end", &[])?;
    let mut not_carried = NotCarried::default();
    not_carried.add(
        "modules of the state at the start, which LTTng's state dump does not have",
        state.modules.len() as u64,
    );
    not_carried.add(
        "flags of open files in the state at the start, which the recorder does not know",
        state.files.len() as u64,
    );
    Ok(not_carried)
}

pub(crate) fn number(number: u32) -> Value<'static> {
    Value::Unsigned(number.into())
}

fn thread(
    thread: &Thread,
    emit: &mut impl FnMut(&str, &[Value<'_>]) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    let inner = |numbers: &[u32], outer: u32| numbers.last().copied().unwrap_or(outer);
    let (vtid, vpid) = (inner(&thread.tids, thread.tid), inner(&thread.tgids, thread.tgid));
    let tid = number(thread.tid);
    emit(
        "process_state",
        &[
            tid,
            number(thread.tgid),
            number(thread.ppid),
            Value::Text(thread.comm.as_bytes()),
            number(thread.kernel.into()),
            // The mode is not known, as in lttng-modules.
            number(5),
            number(1),
            number(status(&thread.state)),
            number(thread.cpu),
            // What identifies the table: no address, but the same for all threads of a process.
            number(if thread.kernel { 0 } else { thread.tgid }),
            number(vtid),
            number(vpid),
        ],
    )?;
    let spaces = thread.namespaces;
    let level = number(thread.tids.len().saturating_sub(1) as u32);
    if spaces.pid != 0 {
        emit("process_pid_ns", &[tid, number(vtid), number(vpid), level, number(spaces.pid)])?;
    }
    if spaces.user != 0 {
        let ids = [tid, number(thread.uid), number(thread.gid), number(0), number(spaces.user)];
        emit("process_user_ns", &ids)?;
    }
    for (name, inode) in [
        ("process_cgroup_ns", spaces.cgroup),
        ("process_ipc_ns", spaces.ipc),
        ("process_mnt_ns", spaces.mnt),
        ("process_net_ns", spaces.net),
        ("process_time_ns", spaces.time),
        ("process_uts_ns", spaces.uts),
    ] {
        if inode != 0 {
            emit(name, &[tid, number(inode)])?;
        }
    }
    Ok(())
}

/// `enum lttng_process_status`, from the letter of /proc/PID/stat.
fn status(letter: &str) -> u32 {
    match letter {
        "R" => 2,
        "S" | "D" | "I" => 5,
        "Z" => 4,
        "X" | "x" => 7,
        _ => 0,
    }
}
