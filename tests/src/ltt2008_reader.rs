//! A reader of traces of LTTng of 2008, written from the document (`lttng-trace-format-2008`) and from what
//! is known of the readers of that month, not from the exporter. It decodes every block, header and field,
//! and panics over whatever is not as it should be.

use std::{collections::BTreeMap, fs, path::Path};

/// A value in a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// A number, with its sign.
    Number(i128),
    /// A text.
    Text(Vec<u8>),
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// All 64 bits of its stamp.
    pub cycles: u64,
    /// Name of its marker.
    pub name: String,
    /// Its fields, by name.
    pub fields: Vec<(String, Field)>,
}

impl Event {
    /// A field by name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }

    /// A number by name.
    pub fn number(&self, name: &str) -> i128 {
        match self.field(name) {
            Some(Field::Number(number)) => *number,
            other => panic!("{} has no number {name}: {other:?}", self.name),
        }
    }
}

/// What the trace headers say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whether numbers are big-endian.
    pub big: bool,
    /// Number of the architecture.
    pub arch_type: u32,
    /// Bytes of a pointer.
    pub arch_size: u8,
    /// Whether the recorder overwrote old data.
    pub flight_recorder: bool,
    /// Whether stamps have 32 bits.
    pub heartbeat: bool,
    /// Alignment of event headers.
    pub alignment: u8,
    /// Stamp of the start.
    pub start_tsc: u64,
    /// Nanoseconds since 1970 of the start, in whole microseconds where the header has no more.
    pub start_time: u64,
}

/// A file of a trace.
#[derive(Clone, Debug)]
pub struct Tracefile {
    /// Bytes of its blocks.
    pub block_size: usize,
    /// Its blocks.
    pub blocks: usize,
    /// Its events.
    pub events: Vec<Event>,
}

/// A trace.
#[derive(Clone, Debug)]
pub struct Trace {
    /// What every block of every file says.
    pub header: Header,
    /// By name, `control/` before those that are there.
    pub files: BTreeMap<String, Tracefile>,
}

/// A marker: its name, and name, bytes and kind of each field.
#[derive(Clone, Debug)]
struct Marker {
    name: String,
    alignment: usize,
    fields: Vec<(String, Kind)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Signed(usize),
    Unsigned(usize),
    Text,
}

/// The two bytes of an event header that name the event.
type Id = [u8; 2];

/// Reads a trace. `literal` is for one that was written to the letter of the document.
pub fn read(dir: &Path, literal: bool) -> Trace {
    let mut names = files(dir, "");
    names.extend(files(&dir.join("control"), "control/"));
    names.sort();
    let first = fs::read(dir.join("control/facilities_0")).expect("every trace has control/facilities_0");
    let header = Blocks::new(&first, literal).header;
    let core = |number: u8| match (literal, header.big) {
        (true, _) | (false, true) => [0, number],
        (false, false) => [number, 0],
    };
    let mut markers: BTreeMap<Id, Marker> = BTreeMap::new();
    for (number, name, fields) in [
        (0, "core_marker_id", core_id_fields()),
        (1, "core_marker_format", vec![("name".into(), Kind::Text), ("format".into(), Kind::Text)]),
        (2, "core_heartbeat_32", vec![]),
        (3, "core_heartbeat_64", vec![("timestamp".into(), Kind::Unsigned(8))]),
    ] {
        let marker = Marker { name: name.into(), alignment: header.alignment.into(), fields };
        markers.insert(core(number), marker);
    }
    let facilities = names.iter().filter(|name| name.starts_with("control/facilities_"));
    let mut declared = BTreeMap::new();
    for name in facilities {
        let bytes = fs::read(dir.join(name)).unwrap();
        for event in Blocks::new(&bytes, literal).read(&markers).events {
            declare(&event, header.big, header.alignment.into(), &mut declared);
        }
    }
    markers.extend(declared);
    let mut trace = Trace { header: header.clone(), files: BTreeMap::new() };
    for name in names {
        let bytes = fs::read(dir.join(&name)).unwrap();
        let blocks = Blocks::new(&bytes, literal);
        assert_eq!(blocks.header, header, "{name}");
        trace.files.insert(name, blocks.read(&markers));
    }
    trace
}

fn core_id_fields() -> Vec<(String, Kind)> {
    let sizes = ["int", "long", "pointer", "size_t", "alignment"];
    let mut fields = vec![("name".into(), Kind::Text), ("event_id".into(), Kind::Unsigned(2))];
    fields.extend(sizes.map(|name| (name.to_owned(), Kind::Unsigned(1))));
    fields
}

fn files(dir: &Path, prefix: &str) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    files.map(|entry| format!("{prefix}{}", entry.file_name().to_str().unwrap())).collect()
}

/// Takes a declaration in. A marker's id comes before its format.
fn declare(event: &Event, big: bool, alignment: usize, markers: &mut BTreeMap<Id, Marker>) {
    let text = |name| match event.field(name) {
        Some(Field::Text(text)) => String::from_utf8(text.clone()).unwrap(),
        other => panic!("{other:?}"),
    };
    match event.name.as_str() {
        "core_marker_id" => {
            let number = event.number("event_id") as u16;
            let id = if big { number.to_be_bytes() } else { number.to_le_bytes() };
            assert_eq!(event.number("alignment"), alignment as i128);
            assert_eq!(event.number("int"), 4);
            let marker = Marker { name: text("name"), alignment, fields: vec![] };
            if let Some(other) = markers.insert(id, marker) {
                assert_eq!(other.name, text("name"), "two markers have the id {id:?}");
            }
        }
        "core_marker_format" => {
            let name = text("name");
            let fields = parse_format(&text("format"));
            let marker = markers.values_mut().find(|marker| marker.name == name);
            marker.expect("the id of a marker comes before its format").fields = fields;
        }
        "core_heartbeat_32" | "core_heartbeat_64" => {}
        other => panic!("a facilities file holds core events only, not {other}"),
    }
}

/// `name #4d%d name2 %s`
fn parse_format(format: &str) -> Vec<(String, Kind)> {
    let words: Vec<&str> = format.split_whitespace().collect();
    let field = |pair: &[&str]| {
        let kind = match pair[1].split_once('%').unwrap() {
            (_, "s") => Kind::Text,
            (size, conversion) => {
                let size: usize =
                    size.trim_start_matches('#').trim_end_matches(['d', 'u', 'x']).parse().unwrap();
                assert_eq!(
                    conversion.starts_with("ll"),
                    size == 8,
                    "LTTV goes by the conversion for 8 bytes"
                );
                if conversion.ends_with('d') { Kind::Signed(size) } else { Kind::Unsigned(size) }
            }
        };
        (pair[0].to_owned(), kind)
    };
    words.chunks(2).map(field).collect()
}

/// The bytes of a file, and what its first block says.
struct Blocks<'b> {
    bytes: &'b [u8],
    literal: bool,
    header: Header,
    block_size: usize,
}

/// Reads numbers one after the other.
struct Cursor<'b> {
    bytes: &'b [u8],
    at: usize,
    big: bool,
}

impl Cursor<'_> {
    fn take(&mut self, size: usize) -> &[u8] {
        self.at += size;
        &self.bytes[self.at - size..self.at]
    }

    fn number(&mut self, size: usize) -> u64 {
        let big = self.big;
        let mut bytes = self.take(size).to_vec();
        if big {
            bytes.reverse();
        }
        bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }

    fn align(&mut self, from: usize, alignment: usize) {
        if alignment > 1 {
            self.at = from + (self.at - from).next_multiple_of(alignment);
        }
    }
}

impl<'b> Blocks<'b> {
    fn new(bytes: &'b [u8], literal: bool) -> Self {
        let magic: [u8; 4] = bytes[40..44].try_into().unwrap();
        let big = match u32::from_le_bytes(magic) {
            0x00D6_B7ED => false,
            0xEDB7_D600 => true,
            other => panic!("magic number {other:#x}"),
        };
        let mut blocks = Blocks {
            bytes,
            literal,
            header: Header {
                big,
                arch_type: 0,
                arch_size: 0,
                flight_recorder: false,
                heartbeat: false,
                alignment: 0,
                start_tsc: 0,
                start_time: 0,
            },
            block_size: 0,
        };
        let mut cursor = Cursor { bytes, at: 36, big };
        blocks.block_size = cursor.number(4) as usize;
        blocks.header = blocks.trace_header(&mut cursor);
        assert_eq!(blocks.block_size % 4096, 0, "readers map blocks");
        assert_eq!(bytes.len() % blocks.block_size, 0);
        blocks
    }

    fn trace_header(&self, cursor: &mut Cursor<'_>) -> Header {
        let start = cursor.at;
        assert_eq!(cursor.number(4), 0x00D6_B7ED);
        let arch_type = cursor.number(4) as u32;
        assert_eq!((cursor.number(4), cursor.number(4)), (0, 0), "variant and order of floats");
        let mut byte = || cursor.number(1) as u8;
        let arch_size = byte();
        assert_eq!((byte(), byte()), (1, 0), "version");
        let (flight_recorder, heartbeat, alignment) = (byte() == 1, byte() == 1, byte());
        assert_eq!([byte(), byte(), byte()], [0; 3], "compact channels");
        assert_eq!((cursor.number(4), cursor.number(8)), (1, 1_000_000_000), "frequency");
        let start_tsc = cursor.number(8);
        assert_eq!(cursor.number(8), 0, "start_monotonic");
        let start_time = if self.literal {
            cursor.number(4) * 1_000_000_000 + cursor.number(4)
        } else {
            cursor.number(8) * 1_000_000_000 + cursor.number(8) * 1000
        };
        assert_eq!(cursor.at - start, if self.literal { 61 } else { 69 });
        let big = self.header.big;
        Header { big, arch_type, arch_size, flight_recorder, heartbeat, alignment, start_tsc, start_time }
    }

    fn read(&self, markers: &BTreeMap<Id, Marker>) -> Tracefile {
        let mut events = Vec::new();
        for block in self.bytes.chunks(self.block_size) {
            self.block(block, markers, &mut events);
        }
        Tracefile { block_size: self.block_size, blocks: self.bytes.len() / self.block_size, events }
    }

    fn block(&self, block: &[u8], markers: &BTreeMap<Id, Marker>, events: &mut Vec<Event>) {
        let mut cursor = Cursor { bytes: block, at: 0, big: self.header.big };
        let (begin, begin_freq) = (cursor.number(8), cursor.number(8));
        let (end, end_freq) = (cursor.number(8), cursor.number(8));
        assert_eq!((begin_freq, end_freq), (1_000_000_000, 1_000_000_000));
        let lost = cursor.number(4) as usize;
        assert_eq!(cursor.number(4) as usize, self.block_size, "all blocks have one size");
        assert_eq!(self.trace_header(&mut cursor), self.header);
        let data_end = self.block_size - lost;
        let Header { arch_size, alignment, heartbeat, .. } = self.header;
        let header_alignment = if self.literal { alignment } else { alignment.min(arch_size) };
        let payload_alignment = match alignment {
            0 => 0,
            _ if self.literal => arch_size,
            _ => alignment.min(arch_size),
        };
        let (mut tsc, before) = (begin, events.len());
        while cursor.at < data_end {
            cursor.align(0, header_alignment.into());
            tsc = if heartbeat {
                let low = cursor.number(4);
                let wrapped = if low < tsc & 0xffff_ffff { 1 << 32 } else { 0 };
                (tsc & !0xffff_ffff) + wrapped + low
            } else {
                cursor.number(8)
            };
            let id: Id = cursor.take(2).try_into().unwrap();
            let size = cursor.number(2) as usize;
            cursor.align(0, payload_alignment.into());
            let marker = markers.get(&id).unwrap_or_else(|| panic!("no marker {id:?}"));
            let payload = cursor.at;
            let mut fields = Vec::new();
            for (name, kind) in &marker.fields {
                fields.push((name.clone(), field(&mut cursor, payload, marker.alignment, *kind)));
            }
            let len = cursor.at - payload;
            assert!(
                size == len || size == 0xffff && len >= 0xffff,
                "{}: {size} bytes, fields {len}",
                marker.name
            );
            if let ("core_heartbeat_64", [(_, Field::Number(full))]) = (marker.name.as_str(), &fields[..]) {
                tsc = *full as u64;
            }
            events.push(Event { cycles: tsc, name: marker.name.clone(), fields });
        }
        assert_eq!(cursor.at, data_end, "events end where the unused bytes begin");
        assert!(events.len() > before, "no empty blocks");
        assert!(block[data_end..].iter().all(|byte| *byte == 0), "unused bytes are zero");
        assert_eq!((events[before].cycles, events.last().unwrap().cycles), (begin, end));
    }
}

fn field(cursor: &mut Cursor<'_>, payload: usize, alignment: usize, kind: Kind) -> Field {
    match kind {
        Kind::Text => {
            let len = cursor.bytes[cursor.at..].iter().position(|byte| *byte == 0).unwrap();
            let text = cursor.take(len).to_vec();
            cursor.take(1);
            Field::Text(text)
        }
        Kind::Signed(size) | Kind::Unsigned(size) => {
            cursor.align(payload, alignment.min(size));
            let number = i128::from(cursor.number(size));
            let negative = matches!(kind, Kind::Signed(_)) && number >> (size * 8 - 1) == 1;
            Field::Number(if negative { number - (1 << (size * 8)) } else { number })
        }
    }
}
