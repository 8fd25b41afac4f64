//! Records as JSON, one object a line: docs/report.md describes the members, docs/report.schema.json is the
//! schema.

use super::batch::Item;
use super::stacks::symbol;
use super::text::{hex, signed, unsigned};
use super::view::{BufferView, EventView, FileView};
use crate::event::{AddressKind, Field, FieldKind, NamedField, Printer, Symbol, Value, syscalls};

/// Prints a record as an object.
pub(super) fn write(
    out: &mut Vec<u8>,
    several_files: bool,
    file: &FileView<'_>,
    buffer: &BufferView<'_>,
    item: &Item,
    data: &[u8],
) {
    let record = item.record(data);
    let pid = file.pid(record);
    out.extend_from_slice(b"{\"timestamp\":");
    unsigned(out, item.timestamp);
    out.extend_from_slice(b",\"cpu\":");
    unsigned(out, item.cpu.into());
    out.extend_from_slice(b",\"pid\":");
    signed(out, pid.cast_signed().into());
    out.extend_from_slice(b",\"comm\":");
    file.tasks.with_name(pid, item.number, |name| string(out, name));
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
        write_event(out, file, event, record);
    } else {
        out.extend_from_slice(b",\"system\":null,\"event\":null,\"id\":");
        let id = record.get(..2).map_or(0, |id| file.machine.number(id));
        unsigned(out, id);
        out.extend_from_slice(b",\"fields\":{}");
    }
    out.extend_from_slice(b"}\n");
}

fn write_event(out: &mut Vec<u8>, file: &FileView<'_>, event: &EventView<'_>, record: &[u8]) {
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
    write_fields(out, event, record);
    write_symbols(out, file, event, record);
    write_names(out, file, event, record);
}

/// The event's own fields and their values.
fn write_fields(out: &mut Vec<u8>, event: &EventView<'_>, record: &[u8]) {
    let printer = event.printer;
    out.extend_from_slice(b",\"fields\":{");
    for (index, ((field, value), role)) in printer.fields(record).zip(&event.roles).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        string(out, field.name.as_bytes());
        out.push(b':');
        match value {
            // The record has all addresses, its format some of them.
            Ok(Value::Array(_)) if printer.is_kernel_stack() => list(out, printer.stack(record), address),
            Ok(Value::Array(numbers)) if role.address.is_some() => {
                list(out, numbers.iter().filter_map(|value| value.address()), address);
            }
            Ok(value) if role.address.is_some() => match value.address() {
                Some(value) => address(out, value),
                None => write_value(out, &value),
            },
            Ok(value) => write_value(out, &value),
            Err(_) => out.extend_from_slice(b"null"),
        }
    }
    out.push(b'}');
}

/// The symbols of addresses that the kernel prints by name: an object of those fields, if there are any.
fn write_symbols(out: &mut Vec<u8>, file: &FileView<'_>, event: &EventView<'_>, record: &[u8]) {
    if event.roles.iter().all(|role| role.address != Some(AddressKind::Symbol)) {
        return;
    }
    let printer = event.printer;
    let mut members = Members::new(b"symbols");
    for ((field, value), role) in printer.fields(record).zip(&event.roles) {
        let (Some(AddressKind::Symbol), Ok(value)) = (role.address, value) else { continue };
        match value {
            Value::Array(numbers) => {
                members.name(out, &field.name);
                let of_record: &mut dyn Iterator<Item = u64> = if printer.is_kernel_stack() {
                    &mut printer.stack(record)
                } else {
                    &mut numbers.iter().filter_map(|value| value.address())
                };
                list(out, of_record, |out, at| match symbol(file.symbols, at) {
                    Some(symbol) => write_symbol(out, symbol),
                    None => out.extend_from_slice(b"null"),
                });
            }
            value => {
                if let Some(symbol) = value.address().and_then(|at| symbol(file.symbols, at)) {
                    members.name(out, &field.name);
                    write_symbol(out, symbol);
                }
            }
        }
    }
    members.end(out);
}

/// The names of values that are numbers in the record: an object of those fields, if there are any.
fn write_names(out: &mut Vec<u8>, file: &FileView<'_>, event: &EventView<'_>, record: &[u8]) {
    if event.roles.iter().all(|role| role.naming.is_none()) {
        return;
    }
    let printer = event.printer;
    let mut members = Members::new(b"names");
    for ((field, value), role) in printer.fields(record).zip(&event.roles) {
        let text = match role.naming {
            None => None,
            Some(Naming::Format(field)) => printer.value_text(field, record, file.symbols),
            Some(Naming::Syscall) => value
                .ok()
                .and_then(|value| value.address())
                .and_then(|number| file.syscalls?.name(number))
                .map(|name| name.as_bytes().to_vec()),
        };
        if let Some(text) = text {
            members.name(out, &field.name);
            string(out, &text);
        }
    }
    members.end(out);
}

/// What a field has beside its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Role {
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
    pub(super) fn of_fields(printer: &Printer) -> Box<[Self]> {
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

fn write_value(out: &mut Vec<u8>, value: &Value<'_>) {
    match value {
        Value::Signed(value) => signed(out, *value),
        Value::Unsigned(value) => unsigned(out, *value),
        Value::Pointer(value) => address(out, *value),
        Value::Text(text) => string(out, text),
        Value::Texts(texts) => list(out, texts.iter(), |out, text| match text {
            Ok(text) => string(out, text),
            Err(_) => out.extend_from_slice(b"null"),
        }),
        Value::Array(numbers) => list(out, numbers.iter(), |out, value| write_value(out, &value)),
        Value::Bitmask(bits) => list(out, bits.iter(), |out, bit| unsigned(out, bit as u64)),
        Value::Bytes(bytes) => list(out, bytes.iter(), |out, byte| unsigned(out, u64::from(*byte))),
    }
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
fn string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for chunk in text.utf8_chunks() {
        for byte in chunk.valid().bytes() {
            match byte {
                b'"' | b'\\' => out.extend([b'\\', byte]),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\t' => out.extend_from_slice(b"\\t"),
                0..=0x1f => {
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
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped() {
        let mut out = Vec::new();
        string(&mut out, b"a\"\\\n\t\x01\x7f\xc3\xa4\xff");
        assert_eq!(out, "\"a\\\"\\\\\\n\\t\\u0001\u{7f}\u{e4}\u{fffd}\"".as_bytes());
    }
}
