//! The metadata stream: TSDL text (CTF 1.8.3, section 7 and appendix C) in packets, laid out as lttng-modules
//! does (`_lttng_session_metadata_statedump`, src/lttng-events.c).

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use super::files::TraceDirectory;
use super::published::METADATA as NAME;
use super::schema::{Channel, Clock, Event, Field, Trace};
use super::stream::EventHeader;
use recording::ExportError;
use recording::staging::create_file;

/// The same while it is written again.
const DRAFT: &str = ".metadata";
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

/// The metadata of a trace, which get longer as more is declared.
#[derive(Debug)]
pub(super) struct Metadata {
    file: File,
    path: PathBuf,
    dir: TraceDirectory,
    /// What is in it.
    told: Told,
    /// What is in it or in the metadata of the chunks before.
    told_ever: Told,
    /// Bytes of whole packets.
    len: u64,
}

/// What somebody was told of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Told {
    /// Whether it is anything.
    is_begun: bool,
    /// How many events of each stream that was declared.
    events: Vec<usize>,
}

impl Told {
    /// What was declared since the last time.
    fn more(&mut self, trace: &Trace) -> String {
        let mut text = if self.is_begun { String::new() } else { head(trace) };
        self.is_begun = true;
        for (id, channel) in trace.channels.iter().enumerate() {
            if id == self.events.len() {
                stream(id, channel, &mut text);
                self.events.push(0);
            }
            for (number, event) in channel.events.iter().enumerate().skip(self.events[id]) {
                self::event((id, channel), number, event, &mut text);
            }
            self.events[id] = channel.events.len();
        }
        text
    }
}

impl Metadata {
    /// Creates the file, with nothing in it.
    pub(super) fn create(dir: &TraceDirectory) -> Result<Self, ExportError> {
        let (file, path) = create_file(&dir.kernel, NAME)?;
        let (told, told_ever) = (Told::default(), Told::default());
        Ok(Self { file, path, dir: dir.clone(), told, told_ever, len: 0 })
    }

    /// Goes on in another directory, with all of it again.
    pub(super) fn move_to(&mut self, dir: &TraceDirectory, trace: &Trace) -> Result<(), ExportError> {
        let told_ever = std::mem::take(&mut self.told_ever);
        *self = Self { told_ever, ..Self::create(dir)? };
        self.tell(trace)
    }

    /// Writes all of it again, in the place of what is there.
    pub(super) fn rewrite(&mut self, trace: &Trace) -> Result<(), ExportError> {
        // Readers take no file for a stream whose name begins with a dot.
        let dir = &self.dir.kernel;
        let failed = |action| ExportError::io(action, &self.path);
        let file = dir.replace(DRAFT).map_err(failed("write"))?;
        let path = dir.join(DRAFT);
        let (trace_dir, told_ever) = (self.dir.clone(), self.told_ever.clone());
        let mut new = Self { file, path, dir: trace_dir, told: Told::default(), told_ever, len: 0 };
        let written = new
            .write(trace)
            .and_then(|_| dir.rename(DRAFT.as_ref(), dir, NAME.as_ref()).map_err(failed("replace")));
        if let Err(error) = written {
            // It is ours, and has no name that anybody looks for.
            let _ = dir.remove(DRAFT);
            return Err(error);
        }
        *self = Self { path: dir.join(NAME), ..new };
        self.publish(trace, true);
        Ok(())
    }

    /// Writes what was declared since the last time, before the first event of it is written.
    pub(super) fn tell(&mut self, trace: &Trace) -> Result<(), ExportError> {
        if self.write(trace)? {
            self.publish(trace, false);
        }
        Ok(())
    }

    /// Gives whether there was anything to write.
    fn write(&mut self, trace: &Trace) -> Result<bool, ExportError> {
        let text = self.told.more(trace);
        if text.is_empty() {
            return Ok(false);
        }
        let packets = packets(&text, trace.uuid);
        let written = self.file.write_all(&packets).map_err(ExportError::io("write", &self.path));
        if written.is_ok() {
            self.len += packets.len() as u64;
        } else {
            // Part of a packet would be no metadata.
            let _ = self.file.set_len(self.len);
        }
        written.map(|()| true)
    }

    /// Tells those who read meanwhile; `again` if it is another file than before.
    fn publish(&mut self, trace: &Trace, again: bool) {
        if let Some(publisher) = &self.dir.publisher {
            let new = self.told_ever.more(trace);
            publisher.metadata(self.len, again, &packets(&new, trace.uuid));
        }
    }
}

/// What the metadata begin with.
fn head(trace: &Trace) -> String {
    let mut text = String::from("/* CTF 1.8 */\n\n");
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
        let _ = writeln!(text, "\t{name} = {value};");
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

fn stream(id: usize, channel: &Channel, text: &mut String) {
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
            ty.declare(name, 2, text);
        }
        *text += "\t};\n";
    }
    *text += "};\n\n";
}

fn event((stream, channel): (usize, &Channel), id: usize, event: &Event, text: &mut String) {
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
        field.ty.declare(&field.name, 2, text);
    }
    *text += "\t};\n";
}

/// A string literal.
pub(super) fn quoted(text: &str) -> String {
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

/// `01234567-89ab-...`
pub(super) fn uuid_text(uuid: [u8; 16]) -> String {
    let mut text = String::new();
    for (index, byte) in uuid.iter().enumerate() {
        let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
        let _ = write!(text, "{dash}{byte:02x}");
    }
    text
}

/// The text in packets.
fn packets(text: &str, uuid: [u8; 16]) -> Vec<u8> {
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
    if bytes.starts_with(b"/* CTF 1.8") {
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
        assert_eq!(uuid_text([0xab; 16]), "abababab-abab-abab-abab-abababababab");
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
