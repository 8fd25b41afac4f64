//! Metadata of CTF 1.8 (CTF 1.8.3, section 7 and appendix C), laid out as lttng-modules does
//! (`_lttng_session_metadata_statedump`, src/lttng-events.c): text in packets.

use std::fmt::Write as _;

use super::super::schema::{Channel, Clock, EnvValue, Event, Field, Trace};
use super::super::stream::EventHeader;
use super::super::types::{Integer, LENGTH, Type};
use super::uuid_text;

/// What the text begins with.
pub(super) const SIGNATURE: &str = "/* CTF 1.8";
/// First word of a metadata packet.
const MAGIC: u32 = 0x75d1_1d57;
/// Bytes of a packet, header included.
const PACKET: usize = 4096;
/// magic, uuid, checksum, content size, packet size, compression, encryption, checksum scheme, major, minor.
const HEADER: usize = 37;

const TYPES: &str = "typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 16; align = 8; signed = false; } := uint16_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
typealias integer { size = 64; align = 8; signed = false; } := unsigned long;
typealias integer { size = 5; align = 1; signed = false; } := uint5_t;
typealias integer { size = 27; align = 1; signed = false; } := uint27_t;

";

const STRUCTURES: &str = "struct packet_context {
\tuint64_clock_monotonic_t timestamp_begin;
\tuint64_clock_monotonic_t timestamp_end;
\tuint64_t content_size;
\tuint64_t packet_size;
\tuint64_t packet_seq_num;
\tunsigned long events_discarded;
\tuint32_t cpu_id;
};

struct event_header_compact {
\tenum : uint5_t { compact = 0 ... 30, extended = 31 } id;
\tvariant <id> {
\t\tstruct {
\t\t\tuint27_clock_monotonic_t timestamp;
\t\t} compact;
\t\tstruct {
\t\t\tuint32_t id;
\t\t\tuint64_clock_monotonic_t timestamp;
\t\t} extended;
\t} v;
} align(8);

struct event_header_large {
\tenum : uint16_t { compact = 0 ... 65534, extended = 65535 } id;
\tvariant <id> {
\t\tstruct {
\t\t\tuint32_clock_monotonic_t timestamp;
\t\t} compact;
\t\tstruct {
\t\t\tuint32_t id;
\t\t\tuint64_clock_monotonic_t timestamp;
\t\t} extended;
\t} v;
} align(8);

";

/// What the metadata begin with.
pub(super) fn head(trace: &Trace) -> String {
    let mut text = format!("{SIGNATURE} */\n\n");
    text += TYPES;
    let _ = write!(
        text,
        "trace {{
\tmajor = 1;
\tminor = 8;
\tuuid = \"{}\";
\tbyte_order = le;
\tpacket.header := struct {{
\t\tuint32_t magic;
\t\tuint8_t  uuid[16];
\t\tuint32_t stream_id;
\t\tuint64_t stream_instance_id;
\t}};
}};

env {{
",
        uuid_text(trace.uuid)
    );
    for (name, value) in &trace.env {
        let _ = match value {
            EnvValue::Text(value) => writeln!(text, "\t{name} = {};", quoted(value)),
            EnvValue::Number(value) => writeln!(text, "\t{name} = {value};"),
        };
    }
    for (name, value) in &trace.provenance {
        let _ = writeln!(text, "\t{name} = {};", quoted(value));
    }
    text += "};\n\n";
    clock(&trace.clock, &mut text);
    text += STRUCTURES;
    text
}

fn clock(clock: &Clock, text: &mut String) {
    *text += "clock {\n\tname = \"monotonic\";\n";
    if let Some(uuid) = &clock.uuid {
        let _ = writeln!(text, "\tuuid = {};", quoted(uuid));
    }
    let _ = writeln!(text, "\tdescription = {};", quoted(&clock.description));
    *text += "\tfreq = 1000000000; /* Frequency, in Hz */\n";
    if clock.absolute {
        *text += "\tabsolute = true;\n";
    }
    let _ = writeln!(
        text,
        "\t/* clock value offset from Epoch is: offset * (1/freq) */\n\toffset = {};\n}};\n",
        clock.offset
    );
    for (bits, align) in [(27, 1), (32, 8), (64, 8)] {
        let _ = writeln!(
            text,
            "typealias integer {{\n\tsize = {bits}; align = {align}; signed = false;\n\tmap = clock.monotonic.value;\n}} \
             := uint{bits}_clock_monotonic_t;\n"
        );
    }
}

/// Declares a stream.
pub(super) fn stream(id: usize, channel: &Channel, text: &mut String) {
    let header = match channel.header {
        EventHeader::Compact => "compact",
        EventHeader::Large => "large",
    };
    let _ = writeln!(
        text,
        "stream {{\n\tid = {id};\n\tevent.header := struct event_header_{header};\n\tpacket.context := struct packet_context;"
    );
    if !channel.context.is_empty() || !channel.shared.is_empty() {
        *text += "\tevent.context := struct {\n";
        for (name, ty) in channel.context.iter().chain(&channel.shared) {
            declare(ty, name, text);
        }
        *text += "\t};\n";
    }
    *text += "};\n\n";
}

/// Declares an event of a stream.
pub(super) fn event((stream, channel): (usize, &Channel), id: usize, event: &Event, text: &mut String) {
    let _ =
        writeln!(text, "event {{\n\tname = {};\n\tid = {id};\n\tstream_id = {stream};", quoted(&event.name));
    let own = event.fields.get(channel.shared.len()..).unwrap_or_default();
    let (contexts, fields) = own.split_at(event.contexts.min(own.len()));
    if !contexts.is_empty() {
        structure("context", contexts, text);
    }
    structure("fields", fields, text);
    *text += "};\n\n";
}

fn structure(name: &str, fields: &[Field], text: &mut String) {
    let _ = writeln!(text, "\t{name} := struct {{");
    for field in fields {
        declare(&field.ty, &field.name, text);
    }
    *text += "\t};\n";
}

const CHARACTER: &str = "integer { size = 8; align = 8; signed = 0; encoding = UTF8; base = 10; }";

fn integer(of: Integer) -> String {
    let Integer { size, signed, base, network } = of;
    let bits = u32::from(size) * 8;
    let order = if network { " byte_order = be;" } else { "" };
    format!(
        "integer {{ size = {bits}; align = 8; signed = {};{order} encoding = none; base = {base}; }}",
        u8::from(signed)
    )
}

/// Declares a field.
pub(in super::super) fn declare(ty: &Type, name: &str, out: &mut String) {
    // Names have a leading underscore, which readers take away, so that none is a word of the language.
    let _ = match ty {
        Type::Integer(of) => writeln!(out, "\t\t{} _{name};", integer(*of)),
        Type::TextArray { len } => writeln!(out, "\t\t{CHARACTER} _{name}[{len}];"),
        Type::String => writeln!(out, "\t\tstring _{name};"),
        Type::Strings { count } => writeln!(out, "\t\tstring _{name}[{count}];"),
        Type::Array { element, count } => writeln!(out, "\t\t{} _{name}[{count}];", integer(*element)),
        Type::Sequence { element } => writeln!(
            out,
            "\t\t{} __{name}_length;\n\t\t{} _{name}[ __{name}_length ];",
            integer(LENGTH),
            integer(*element)
        ),
    };
}

/// A string literal.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted += "\\\"",
            '\\' => quoted += "\\\\",
            '\n' => quoted += "\\n",
            // Octal escapes are not understood by every reader.
            c if c.is_control() => quoted.push('?'),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// The text in packets.
pub(super) fn packets(text: &str, uuid: [u8; 16]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len().next_multiple_of(PACKET));
    for content in text.as_bytes().chunks(PACKET - HEADER) {
        let start = out.len();
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&uuid);
        out.extend_from_slice(&0_u32.to_le_bytes());
        out.extend_from_slice(&((HEADER + content.len()) as u32 * 8).to_le_bytes());
        out.extend_from_slice(&(PACKET as u32 * 8).to_le_bytes());
        out.extend_from_slice(&[0, 0, 0, 1, 8]);
        out.extend_from_slice(content);
        out.resize(start + PACKET, 0);
    }
    out
}

/// The text in packets, or as it is. `None` for what is neither.
pub(super) fn unpack(bytes: &[u8]) -> Option<String> {
    if bytes.starts_with(SIGNATURE.as_bytes()) {
        return Some(String::from_utf8_lossy(bytes).into_owned());
    }
    let (mut text, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let word = |at: usize| Some(u32::from_le_bytes(*rest.get(at..)?.first_chunk()?));
        let (content, size) = (word(24)? as usize / 8, word(28)? as usize / 8);
        if word(0)? != MAGIC || size < HEADER {
            return None;
        }
        text.extend_from_slice(rest.get(HEADER..content)?);
        rest = rest.get(size..)?;
    }
    Some(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_stay_literals() {
        assert_eq!(quoted("a\"; b\\\n\u{7}\u{e9}"), "\"a\\\"; b\\\\\\n?\u{e9}\"");
    }

    #[test]
    fn text_in_packets() {
        let packets = packets(&"x".repeat(5000), [7; 16]);
        assert_eq!(unpack(&packets), Some("x".repeat(5000)));
        assert_eq!((unpack(&packets[..6000]), unpack(b"x")), (None, None));
        assert_eq!(packets.len(), 2 * PACKET);
        let second = &packets[PACKET..];
        assert_eq!(second[..4], MAGIC.to_le_bytes());
        let content = 5000 - (PACKET - HEADER) + HEADER;
        assert_eq!(second[24..28], (content as u32 * 8).to_le_bytes());
        assert_eq!((second[content - 1], second[content]), (b'x', 0));
    }
}
