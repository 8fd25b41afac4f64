//! Records as JSON, one object a line: docs/report.md describes the members, docs/report.schema.json is the
//! schema.

use super::LostBehind;
use super::batch::Item;
use super::text::{hex, signed, unsigned};
use super::view::{BufferView, EventView, FileView};
use ftrace_event::message::MESSAGE_FIELD;
use ftrace_event::stacks::{place_of_frame, symbol};
use ftrace_event::syscalls;
use ftrace_event::syscalls::SyscallTable;
use ftrace_event::{AddressKind, Field, FieldKind, NamedField, Printer, Symbol, Symbols, Value};

/// Length of an object, in bytes, from which on values are left out: a few bytes of a record can be the
/// values of many fields, and each of its addresses can have a symbol of thousands of bytes.
const MAX_OBJECT: usize = 1 << 20;

/// The largest whole number that a double has and all below it (IEEE 754): JavaScript, and many readers of
/// JSON with it, have no others.
const MOST_EXACT: u64 = (1 << 53) - 1;

/// How numbers are written that a double does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// As all others.
    Whole,
    /// As texts.
    Texts,
}

/// What JSON has of the records of an event: its fields, their names and symbols.
#[derive(Clone, Copy)]
pub struct Values<'a> {
    /// The event.
    pub printer: &'a Printer,
    /// The part that each field of it plays.
    pub roles: &'a [Role],
    /// Names of addresses.
    pub symbols: &'a dyn Symbols,
    /// Names of system calls, if the machine is known.
    pub syscalls: Option<SyscallTable>,
    /// How numbers are written.
    pub numbers: Numbers,
}

impl Values<'_> {
    /// Writes the members `fields`, and if there are any `symbols` and `names`, the first without a comma. Of
    /// what is longer than 1 MiB values are left out. Gives how many fields have no value: they are not in
    /// the record, or left out.
    pub fn write(self, out: &mut Vec<u8>, record: &[u8]) -> u64 {
        let end = out.len() + MAX_OBJECT;
        self.write_up_to(out, end, record)
    }

    fn write_up_to(self, out: &mut Vec<u8>, end: usize, record: &[u8]) -> u64 {
        let unknown = self.write_fields(out, end, record);
        self.write_symbols(out, end, record);
        self.write_names(out, end, record);
        unknown
    }
}

/// Prints a record as an object.
pub(super) fn write(
    out: &mut Vec<u8>,
    several_files: bool,
    file: &FileView<'_>,
    buffer: &BufferView<'_>,
    item: &Item,
    data: &[u8],
) {
    let start = out.len();
    let record = item.record(data);
    let pid = file.pid(record);
    out.extend_from_slice(b"{\"timestamp\":");
    unsigned(out, item.timestamp);
    out.extend_from_slice(b",\"cpu\":");
    unsigned(out, item.cpu.into());
    out.extend_from_slice(b",\"pid\":");
    signed(out, pid.cast_signed().into());
    out.extend_from_slice(b",\"comm\":");
    file.tasks.with_known_name(pid, item.number, |name| match name {
        Some(name) => string(out, name),
        None => out.extend_from_slice(b"null"),
    });
    if several_files {
        out.extend_from_slice(b",\"file\":");
        string(out, file.name.as_bytes());
    }
    out.extend_from_slice(b",\"buffer\":");
    string(out, buffer.name.as_bytes());
    out.extend_from_slice(b",\"lost\":");
    match item.missed() {
        None => out.push(b'0'),
        Some(0) => out.extend_from_slice(b"null"),
        Some(missed) => unsigned(out, missed),
    }
    if let Some(event) = file.event(record) {
        write_event(out, start, file, event, record);
    } else {
        out.extend_from_slice(b",\"system\":null,\"event\":null,\"id\":");
        let id = record.get(..2).map_or(0, |id| file.machine.number(id));
        unsigned(out, id);
        out.extend_from_slice(b",\"fields\":{}");
    }
    out.extend_from_slice(b"}\n");
}

/// Prints that events of a CPU were lost behind its last record. `file` is given with several files.
pub(super) fn write_lost(out: &mut Vec<u8>, file: Option<&str>, lost: &LostBehind) {
    let LostBehind { file: _, buffer, cpu, events, since } = lost;
    let number = |out: &mut Vec<u8>, number: &Option<u64>| match number {
        None => out.extend_from_slice(b"null"),
        Some(number) => unsigned(out, *number),
    };
    out.extend_from_slice(b"{\"lost_behind\":");
    number(out, events);
    out.extend_from_slice(b",\"since\":");
    number(out, since);
    out.extend_from_slice(b",\"cpu\":");
    unsigned(out, (*cpu).into());
    if let Some(file) = file {
        out.extend_from_slice(b",\"file\":");
        string(out, file.as_bytes());
    }
    out.extend_from_slice(b",\"buffer\":");
    string(out, buffer.as_bytes());
    out.extend_from_slice(b"}\n");
}

fn write_event(out: &mut Vec<u8>, start: usize, file: &FileView<'_>, event: &EventView<'_>, record: &[u8]) {
    let printer = event.printer;
    for (label, num) in [("flags", file.common.flags), ("preempt_count", file.common.preempt_count)] {
        if let Some(num) = num {
            out.push(b',');
            string(out, label.as_bytes());
            out.push(b':');
            unsigned(out, num.read(record, file.machine));
        }
    }
    out.extend_from_slice(b",\"system\":");
    string(out, printer.system().as_bytes());
    out.extend_from_slice(b",\"event\":");
    string(out, printer.name().as_bytes());
    out.push(b',');
    let values = Values {
        printer,
        roles: &event.roles,
        symbols: file.symbols,
        syscalls: file.syscalls,
        numbers: Numbers::Whole,
    };
    values.write_up_to(out, start + MAX_OBJECT, record);
}

impl Values<'_> {
    /// The event's own fields and their values.
    fn write_fields(self, out: &mut Vec<u8>, end: usize, record: &[u8]) -> u64 {
        let Self { printer, roles, numbers, .. } = self;
        let mut unknown = 0;
        let message = printer.message();
        out.extend_from_slice(b"\"fields\":{");
        for (index, ((field, value), role)) in printer.fields(record).zip(roles).enumerate() {
            if index > 0 {
                out.push(b',');
            }
            string(out, field.name.as_bytes());
            out.push(b':');
            if out.len() >= end {
                out.extend_from_slice(b"null");
                unknown += 1;
                continue;
            }
            if message.is_some() && field.name == MESSAGE_FIELD {
                unknown += self.write_message(out, record);
                continue;
            }
            if printer.is_stack_field(field)
                && let Some(frames) = printer.frames(record)
            {
                list(out, frames, address);
                continue;
            }
            match value {
                Ok(Value::Array(array)) if role.address.is_some() => {
                    list(out, array.iter().filter_map(|value| value.address()), address);
                }
                Ok(value) if role.address.is_some() => match value.address() {
                    Some(value) => address(out, value),
                    None => write_value(out, &value, numbers),
                },
                Ok(value) => write_value(out, &value, numbers),
                Err(_) => {
                    out.extend_from_slice(b"null");
                    unknown += 1;
                }
            }
        }
        if message.is_some() && printer.format().field(MESSAGE_FIELD).is_none() {
            let comma = if roles.is_empty() { "" } else { "," };
            out.extend_from_slice(comma.as_bytes());
            string(out, MESSAGE_FIELD.as_bytes());
            out.push(b':');
            unknown += self.write_message(out, record);
        }
        out.push(b'}');
        unknown
    }

    /// The text that the record refers to. Gives 1 if it is not known.
    fn write_message(self, out: &mut Vec<u8>, record: &[u8]) -> u64 {
        let mut text = Vec::new();
        let message =
            self.printer.message().and_then(|message| message.write(record, self.symbols, &mut text));
        if message.is_none() {
            out.extend_from_slice(b"null");
            return 1;
        }
        string(out, &text);
        0
    }

    /// The symbols of addresses that the kernel prints by name: an object of those fields, if there are any.
    fn write_symbols(self, out: &mut Vec<u8>, end: usize, record: &[u8]) {
        let Self { printer, roles, .. } = self;
        if roles.iter().all(|role| role.address != Some(AddressKind::Symbol)) {
            return;
        }
        let mut members = Members::new(b"symbols");
        for ((field, value), role) in printer.fields(record).zip(roles) {
            if role.address != Some(AddressKind::Symbol) || out.len() >= end {
                continue;
            }
            let mut symbols = |addresses: &mut dyn Iterator<Item = u64>| {
                members.name(out, &field.name);
                list(out, addresses, |out, at| match symbol(self.symbols, at) {
                    Some(symbol) if out.len() < end => write_symbol(out, symbol),
                    _ => out.extend_from_slice(b"null"),
                });
            };
            if printer.is_stack_field(field) {
                let process = printer.process(record);
                if let Some(frames) = printer.frames(record) {
                    symbols(&mut frames.map(|at| place_of_frame(self.symbols, process, at)));
                }
                continue;
            }
            match value {
                Err(_) => {}
                Ok(Value::Array(numbers)) => symbols(&mut numbers.iter().filter_map(|value| value.address())),
                Ok(value) => {
                    if let Some(symbol) = value.address().and_then(|at| symbol(self.symbols, at)) {
                        members.name(out, &field.name);
                        write_symbol(out, symbol);
                    }
                }
            }
        }
        members.end(out);
    }

    /// The names of values that are numbers in the record: an object of those fields, if there are any.
    fn write_names(self, out: &mut Vec<u8>, end: usize, record: &[u8]) {
        let Self { printer, roles, .. } = self;
        if roles.iter().all(|role| role.naming.is_none()) {
            return;
        }
        let mut members = Members::new(b"names");
        for ((field, value), role) in printer.fields(record).zip(roles) {
            let text = match role.naming {
                _ if out.len() >= end => None,
                None => None,
                Some(Naming::Format(field)) => printer.value_text(field, record, self.symbols),
                Some(Naming::Syscall) => value
                    .ok()
                    .and_then(|value| value.address())
                    .and_then(|number| self.syscalls?.name(number))
                    .map(|name| name.as_bytes().to_vec()),
            };
            if let Some(text) = text {
                members.name(out, &field.name);
                string(out, &text);
            }
        }
        members.end(out);
    }
}

/// What a field has beside its value.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    address: Option<AddressKind>,
    naming: Option<Naming>,
}

/// Where the names of a field's values are.
#[derive(Clone, Copy, Debug)]
enum Naming {
    /// In the event's format.
    Format(NamedField),
    /// In the table of system calls.
    Syscall,
}

impl Role {
    /// Of each of an event's own fields.
    pub fn of_fields(printer: &Printer) -> Box<[Self]> {
        let first = printer.format().common.len();
        let fields = printer.format().fields.iter().enumerate();
        let role = |(index, field): (usize, &Field)| {
            let kind = printer.kind(first + index);
            let is_number = matches!(kind, Some(FieldKind::Number { .. } | FieldKind::Pointer { .. }));
            let is_array = matches!(kind, Some(FieldKind::Array { .. }));
            let naming = if syscalls::is_number(printer.system(), &field.name) {
                Some(Naming::Syscall)
            } else {
                printer.named(field).map(Naming::Format)
            };
            Self {
                address: printer.address(field).filter(|_| is_number || is_array),
                naming: naming.filter(|_| is_number),
            }
        };
        fields.map(role).collect()
    }
}

/// An object that is there only if it has members.
struct Members {
    label: &'static [u8],
    is_open: bool,
}

impl Members {
    fn new(label: &'static [u8]) -> Self {
        Self { label, is_open: false }
    }

    /// Begins a member, whose value has to be written next.
    fn name(&mut self, out: &mut Vec<u8>, name: &str) {
        out.push(b',');
        if !self.is_open {
            string(out, self.label);
            out.extend_from_slice(b":{");
            self.is_open = true;
        }
        string(out, name.as_bytes());
        out.push(b':');
    }

    fn end(self, out: &mut Vec<u8>) {
        if self.is_open {
            out.push(b'}');
        }
    }
}

/// `"0xffffffff81000000"`: not all readers of JSON have numbers of 64 bits.
fn address(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(b"\"0x");
    hex(out, value);
    out.push(b'"');
}

/// `"vfs_read+0x12"`
fn write_symbol(out: &mut Vec<u8>, symbol: Symbol<'_>) {
    string(out, symbol.name.as_bytes());
    if symbol.offset != 0 {
        out.pop();
        out.extend_from_slice(b"+0x");
        hex(out, symbol.offset);
        out.push(b'"');
    }
}

fn write_value(out: &mut Vec<u8>, value: &Value<'_>, numbers: Numbers) {
    let quote = |magnitude: u64| numbers == Numbers::Texts && magnitude > MOST_EXACT;
    match value {
        Value::Signed(value) if quote(value.unsigned_abs()) => quoted(out, |out| signed(out, *value)),
        Value::Unsigned(value) if quote(*value) => quoted(out, |out| unsigned(out, *value)),
        Value::Signed(value) => signed(out, *value),
        Value::Unsigned(value) => unsigned(out, *value),
        Value::Pointer(value) => address(out, *value),
        Value::Text(text) => string(out, text),
        Value::Texts(texts) => list(out, texts.iter(), |out, text| match text {
            Ok(text) => string(out, text),
            Err(_) => out.extend_from_slice(b"null"),
        }),
        Value::Array(array) => list(out, array.iter(), |out, value| write_value(out, &value, numbers)),
        Value::Bitmask(bits) => list(out, bits.iter(), |out, bit| unsigned(out, bit as u64)),
        Value::Bytes(bytes) => list(out, bytes.iter(), |out, byte| unsigned(out, u64::from(*byte))),
    }
}

fn quoted(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    write(out);
    out.push(b'"');
}

fn list<T>(out: &mut Vec<u8>, items: impl Iterator<Item = T>, mut write: impl FnMut(&mut Vec<u8>, T)) {
    out.push(b'[');
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(b']');
}

/// A JSON string (RFC 8259, section 7); what is no UTF-8 becomes U+FFFD.
///
/// Perfetto's reader refuses DEL as it is, and takes a quotation mark behind `\\` for an escaped one (as of
/// version 52): one name would keep it from opening a file. So these have another of the escapes of JSON.
pub fn string(out: &mut Vec<u8>, text: &[u8]) {
    // Nearly all names are plain.
    if text.iter().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')) {
        out.push(b'"');
        out.extend_from_slice(text);
        out.push(b'"');
        return;
    }
    let (text, ends_with_backslash) = match text.strip_suffix(b"\\") {
        Some(text) => (text, true),
        None => (text, false),
    };
    out.push(b'"');
    for chunk in text.utf8_chunks() {
        for byte in chunk.valid().bytes() {
            match byte {
                b'"' | b'\\' => out.extend([b'\\', byte]),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\t' => out.extend_from_slice(b"\\t"),
                0..=0x1f | 0x7f => {
                    out.extend_from_slice(b"\\u");
                    super::text::hex_zeros(out, byte.into(), 4);
                }
                _ => out.push(byte),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    if ends_with_backslash {
        out.extend_from_slice(b"\\u005c");
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::super::Report;
    use super::super::crafted::{self, Entry, ev, stack};
    use super::*;

    #[test]
    fn strings_are_those_that_every_reader_takes() {
        for (text, expected) in [
            ("", r#""""#),
            ("a\\b \"c\"", r#""a\\b \"c\"""#),
            ("a\\", r#""a\u005c""#),
            ("a\\\\", r#""a\\\u005c""#),
            ("\u{7f}\u{1b}\n\t\u{1}\u{e4}", "\"\\u007f\\u001b\\n\\t\\u0001\u{e4}\""),
        ] {
            let mut out = Vec::new();
            string(&mut out, text.as_bytes());
            assert_eq!(std::str::from_utf8(&out).unwrap(), expected);
            assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }
        let mut out = Vec::new();
        string(&mut out, b"a\xff");
        assert_eq!(out, "\"a\u{fffd}\"".as_bytes());
    }

    /// The objects of stacks of the kernel that follow an event each.
    fn objects(stacks: &[&[u64]], symbols: &str) -> Vec<serde_json::Value> {
        let entries: Vec<Entry> =
            stacks.iter().flat_map(|frames| [ev(1, 0, 1, 0), stack(1, 0, frames)]).collect();
        let file = [crafted::file(&entries, symbols, "1 one\n", "[local]")];
        let mut out = Vec::new();
        Report::new(&file).json(true).run(&mut out, |_| {}).unwrap();
        let lines = out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let objects = lines.map(|line| serde_json::from_slice(line).unwrap());
        objects.filter(|object: &serde_json::Value| object["event"] == "kernel_stack").collect()
    }

    #[test]
    fn stacks_have_all_their_frames_and_no_more() {
        let short: &[u64] = &[0x1004, 0x2000, 0x9_0000];
        let ended = &[0x1000, 0x2000, u64::MAX, 0x1000, 0, 0, 0, 0, 0x2000];
        let symbols = "1000 t f1\n2000 t f2\n3000 t 0x3000\n90000 t end\n";
        let found = objects(&[short, ended, &[0x3001; 9]], symbols);
        let expected = serde_json::json!(["0x1004", "0x2000", "0x90000"]);
        assert_eq!(found[0]["fields"]["caller"], expected);
        assert_eq!(found[0]["symbols"]["caller"], serde_json::json!(["f1+0x4", "f2", "end"]));
        assert_eq!(found[1]["fields"]["caller"], serde_json::json!(["0x1000", "0x2000"]));
        assert_eq!(found[1]["symbols"]["caller"], serde_json::json!(["f1", "f2"]));
        // An entry that only repeats the address is no symbol.
        assert_eq!(
            found[2]["symbols"]["caller"],
            serde_json::json!([null, null, null, null, null, null, null, null, null])
        );
    }

    #[test]
    fn objects_of_hostile_files_stay_small() {
        // Each byte becomes six.
        let symbols = format!("1000 t {}\n2000 t end\n", "\x01".repeat(60_000));
        let found = objects(&[&vec![0x1001; 8000]], &symbols);
        let frames = found[0]["fields"]["caller"].as_array().unwrap();
        assert_eq!(
            (frames.len(), frames.len()),
            (1024, found[0]["symbols"]["caller"].as_array().unwrap().len())
        );
        let len = found[0].to_string().len();
        assert!(len > MAX_OBJECT && len < MAX_OBJECT + (64 << 10), "{len}");
    }

    #[test]
    fn text_of_hostile_files_stays_small() {
        let symbols = format!("1000 t {}\n2000 t end\n", "a".repeat(60_000));
        let file = [crafted::file(
            &[ev(1, 0, 1, 0), stack(1, 0, &vec![0x1001; 8000])],
            &symbols,
            "1 one\n",
            "[local]",
        )];
        for plain in [false, true] {
            let mut out = Vec::new();
            let style = super::super::Style { plain, ..Default::default() };
            Report::new(&file).style(style).run(&mut out, |_| {}).unwrap();
            assert!(out.len() < ftrace_event::print::MAX_TEXT + (8 << 10), "{}", out.len());
        }
    }
}
