//! The schema with the kernel's own names: format `ctf`.

use super::metadata::quoted;
use super::schema::{Channel, Choice, Event, Field, Rule, Source};
use super::types::{Integer, Type};
use ftrace_event::{Array, Format, Location, Machine, Printer, RecordReader};
use recording::survey::full_name;
use recording::{CpuStream, Recording};
use tracedat::FileOption;
use tracedat::initial_state::InitialState;
use tracedat::provenance::Recorder;

/// The context of a channel, which is what all events have: names in the records, names in the trace and
/// types. The event header has the event's number.
pub(super) fn context(printer: &Printer, machine: Machine) -> Vec<(String, String, Type)> {
    let reader = RecordReader::new(printer.format(), machine);
    let fields = printer.format().common.iter().enumerate();
    fields
        .filter(|(_, field)| field.name != "common_type")
        .filter_map(|(index, field)| {
            let ty = Type::of_kernel(reader.kind(index)?, None);
            Some((field.name.clone(), identifier(&field.name), ty))
        })
        .collect()
}

/// Declares an event of the kernel.
pub(super) fn declare(channel: &mut Channel, printer: &Printer, machine: Machine) {
    let reader = RecordReader::new(printer.format(), machine);
    let fields = fields(printer, &reader, |_| None);
    let context = channel.common.iter().map(|name| printer.field_index(name)).collect();
    let choice = Choice::One(channel.events.len() as u32);
    channel.rules.insert(printer.format().id, rule(printer, reader, context, choice));
    channel.events.push(Event { name: full_name(printer), contexts: 0, fields });
}

/// The events of these streams, in the order of their numbers.
pub(super) fn printers<'r>(
    recording: &'r Recording<'_>,
    cpu_streams: impl Iterator<Item = &'r CpuStream>,
) -> Vec<&'r Printer> {
    let mut ids: Vec<u16> = cpu_streams.flat_map(|cpu_stream| &cpu_stream.by_id).map(|(id, _)| *id).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.into_iter().filter_map(|id| recording.events().get(id)).collect()
}

pub(super) fn rule(
    printer: &Printer,
    reader: RecordReader,
    context: Vec<Option<usize>>,
    choice: Choice,
) -> Rule {
    Rule { reader, stack: printer.stack_reader(), context, choice, births: None, state: None }
}

/// The event's own fields. `array_len` has the lengths of the texts that are to stay arrays.
pub(super) fn fields(
    printer: &Printer,
    reader: &RecordReader,
    array_len: impl Fn(&ftrace_event::Field) -> Option<usize>,
) -> Vec<Field> {
    let Format { fields, .. } = printer.format();
    let field = |(index, field): (usize, &ftrace_event::Field)| {
        let index = reader.common() + index;
        let (ty, source) = if printer.is_stack_field(field) {
            (Type::Sequence { element: Integer::hex(8) }, Source::Stack)
        } else {
            (Type::of_kernel(reader.kind(index)?, array_len(field)), Source::Record(index))
        };
        Some(Field { name: field.name.clone(), ty, source })
    };
    let mut fields: Vec<Field> = fields.iter().enumerate().filter_map(field).collect();
    for index in 0..fields.len() {
        let name = identifier(&fields[index].name);
        let taken = fields[..index].iter().any(|other| other.name == name);
        fields[index].name = if taken { format!("{name}_{index}") } else { name };
    }
    fields
}

/// The name of a field comes from the recording; in the metadata it must be an identifier.
fn identifier(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect()
}

/// The length of a text that stands in the record itself.
pub(super) fn inline_text(field: &ftrace_event::Field) -> Option<usize> {
    let inline = field.location == Location::Inline && field.array != Array::Open;
    (inline && field.size > 0).then_some(field.size as usize)
}

/// What the metadata say of the trace.
pub(super) fn env(recording: &Recording<'_>, state: Option<&InitialState>) -> Vec<(&'static str, String)> {
    let mut env = machine_env(recording, state);
    env.push(("tracer_name", quoted("tracer-agent")));
    let mut version = env!("CARGO_PKG_VERSION").split('.');
    for name in ["tracer_major", "tracer_minor", "tracer_patchlevel"] {
        let number = version.next().and_then(|part| part.parse::<u32>().ok()).unwrap_or(0);
        env.push((name, number.to_string()));
    }
    env.push(("recorded_by", quoted(&recorder(recording))));
    env.extend(machine(recording, state));
    env
}

/// The machine: by the state at the start, or else by the option with the texts of uname(2).
pub(super) fn machine_env(
    recording: &Recording<'_>,
    state: Option<&InitialState>,
) -> Vec<(&'static str, String)> {
    let host = recording.host(state);
    vec![
        ("hostname", quoted(&host.hostname)),
        ("domain", quoted("kernel")),
        ("sysname", quoted(&host.sysname)),
        ("kernel_release", quoted(&host.release)),
        ("kernel_version", quoted(&host.version)),
    ]
}

/// The architecture, for which LTTng has no name, so that what is imported again knows the table of its
/// system calls.
pub(super) fn machine(
    recording: &Recording<'_>,
    state: Option<&InitialState>,
) -> Option<(&'static str, String)> {
    let machine = recording.host(state).machine;
    (!machine.is_empty()).then(|| ("machine", quoted(&machine)))
}

/// The program that recorded.
pub(super) fn recorder(recording: &Recording<'_>) -> String {
    let version = recording.file().facts().find_map(|fact| match fact {
        FileOption::Version(text) => Some(Recorder::first(text.trim()).to_owned()),
        _ => None,
    });
    version.unwrap_or_else(|| "unknown".to_owned())
}
