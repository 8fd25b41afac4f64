//! The schema with the kernel's own names: formats `ctf` and `ctf2`.

use super::schema::{Channel, Choice, EnvValue, Event, Field, Rule, Source};
use super::types::{Integer, Type, length_name};
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
        let field = &fields[index];
        let name = identifier(&field.name);
        let is_taken = fields[..index].iter().any(|other| are_same(other, &name, &field.ty));
        fields[index].name = if is_taken { format!("{name}_{index}") } else { name };
    }
    fields
}

/// Whether a field of this name and type would have a member of `other`. A sequence has one more, for its
/// length.
fn are_same(other: &Field, name: &str, ty: &Type) -> bool {
    let of = |name: &str, ty: &Type| {
        let length = matches!(ty, Type::Sequence { .. }).then(|| length_name(name));
        [Some(name.to_owned()), length]
    };
    let (others, own) = (of(&other.name, &other.ty), of(name, ty));
    own.iter().flatten().any(|name| others.iter().flatten().any(|other| other == name))
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
pub(super) fn env(recording: &Recording<'_>, state: Option<&InitialState>) -> Vec<(&'static str, EnvValue)> {
    let mut env = machine_env(recording, state);
    env.push(("tracer_name", "tracer-agent".into()));
    let mut version = env!("CARGO_PKG_VERSION").split('.');
    for name in ["tracer_major", "tracer_minor", "tracer_patchlevel"] {
        let number = version.next().and_then(|part| part.parse::<u32>().ok()).unwrap_or(0);
        env.push((name, EnvValue::Number(number)));
    }
    env.push(("recorded_by", recorder(recording).into()));
    env.extend(machine(recording, state));
    env
}

/// The machine: by the state at the start, or else by the option with the texts of uname(2).
pub(super) fn machine_env(
    recording: &Recording<'_>,
    state: Option<&InitialState>,
) -> Vec<(&'static str, EnvValue)> {
    let host = recording.host(state);
    vec![
        ("hostname", host.hostname.into()),
        ("domain", "kernel".into()),
        ("sysname", host.sysname.into()),
        ("kernel_release", host.release.into()),
        ("kernel_version", host.version.into()),
    ]
}

/// The architecture, for which LTTng has no name, so that what is imported again knows the table of its
/// system calls.
pub(super) fn machine(
    recording: &Recording<'_>,
    state: Option<&InitialState>,
) -> Option<(&'static str, EnvValue)> {
    let machine = recording.host(state).machine;
    (!machine.is_empty()).then(|| ("machine", machine.into()))
}

/// The program that recorded.
pub(super) fn recorder(recording: &Recording<'_>) -> String {
    let version = recording.file().facts().find_map(|fact| match fact {
        FileOption::Version(text) => Some(Recorder::first(text.trim()).to_owned()),
        _ => None,
    });
    version.unwrap_or_else(|| "unknown".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_sequences_are_names_too() {
        let sequence = || Type::Sequence { element: Integer::new(4, false) };
        let field = |name: &str, ty: Type| Field { name: name.to_owned(), ty, source: Source::Record(0) };
        let number = || Type::Integer(Integer::new(4, false));
        assert!(are_same(&field("x", sequence()), "_x_length", &number()));
        assert!(are_same(&field("_x_length", number()), "x", &sequence()));
        assert!(are_same(&field("x", number()), "x", &sequence()));
        assert!(!are_same(&field("x", number()), "_x_length", &number()));
    }
}
