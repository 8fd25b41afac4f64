//! Records as JSON: one object a line.

use super::batch::Item;
use super::text::{signed, unsigned};
use super::view::{BufferView, EventView, FileView};
use crate::event::Value;

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
    out.extend_from_slice(b",\"fields\":{");
    for (index, (field, value)) in printer.fields(record).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        string(out, field.name.as_bytes());
        out.push(b':');
        match value {
            // The record has all addresses, its format some of them.
            Ok(Value::Array(_)) if printer.is_kernel_stack() => {
                list(out, printer.stack(record), unsigned);
            }
            Ok(value) => write_value(out, &value),
            Err(_) => out.extend_from_slice(b"null"),
        }
    }
    out.push(b'}');
}

fn write_value(out: &mut Vec<u8>, value: &Value<'_>) {
    match value {
        Value::Signed(value) => signed(out, *value),
        Value::Unsigned(value) | Value::Pointer(value) => unsigned(out, *value),
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
