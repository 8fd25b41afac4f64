//! An independent reader of CTF traces, written from the specifications (diamon.org/ctf/v1.8.3, and that of
//! CTF 2 for its metadata) and from what LTTng adds to them: the index files.
//!
//! It knows nothing of the exporter, and checks whatever the layout says twice. What it does not understand
//! fails the test.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number and the base it is shown in.
    Number(i128, u32),
    /// A text, up to its NUL.
    Text(Vec<u8>),
    /// An array or a sequence.
    List(Vec<Value>),
}

/// A decoded event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Clock cycles.
    pub time: u64,
    /// Its name.
    pub name: String,
    /// Its channel.
    pub channel: String,
    /// `cpu_id` of its packet.
    pub cpu: u32,
    /// Names and values of the contexts: that of all events of the stream, then the event's own.
    pub context: Vec<(String, Value)>,
    /// Names and values of the fields. The lengths of sequences are among them: `_NAME_length`.
    pub fields: Vec<(String, Value)>,
}

/// A loss: times between which it was, and how many events.
pub type Loss = (u64, u64, u64);

/// A decoded trace.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// `env`, numbers as texts.
    pub env: BTreeMap<String, String>,
    /// Offset of the clock.
    pub clock_offset: u64,
    /// Events, by file and position in it.
    pub events: Vec<Event>,
    /// Losses by file.
    pub losses: BTreeMap<String, Vec<Loss>>,
    /// Packets by file.
    pub packets: BTreeMap<String, u64>,
    /// Names of the events that are declared.
    pub declared: Vec<String>,
    /// The metadata text.
    pub text: String,
}

/// A type of fields.
#[derive(Clone, Debug)]
pub(crate) enum Type {
    Integer { bits: u32, align: u64, signed: bool, base: u32, big_endian: bool, clock: bool, text: bool },
    String,
    Struct(Vec<(String, Type)>, u64),
    Enum(Box<Type>, Vec<(String, u64, u64)>),
    Variant(String, Vec<(String, Type)>),
    Array(Box<Type>, usize),
    Sequence(Box<Type>, String),
}

impl Type {
    fn align(&self) -> u64 {
        match self {
            Self::Integer { align, .. } => *align,
            Self::String => 8,
            Self::Struct(fields, align) => {
                fields.iter().map(|(_, ty)| ty.align()).max().unwrap_or(1).max(*align)
            }
            Self::Enum(of, _) => of.align(),
            // That of the chosen field.
            Self::Variant(..) => 1,
            Self::Array(of, _) | Self::Sequence(of, _) => of.align(),
        }
    }
}

/// Words, numbers, strings (with a quote before) and signs.
fn tokens(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        let c = bytes[at];
        if c.is_ascii_whitespace() {
            at += 1;
        } else if text[at..].starts_with("/*") {
            at += text[at..].find("*/").expect("a comment ends") + 2;
        } else if c == b'"' {
            let mut token = String::from("\"");
            at += 1;
            let mut rest = text[at..].char_indices();
            loop {
                let (offset, c) = rest.next().expect("a literal ends");
                match c {
                    '"' => {
                        at += offset + 1;
                        break;
                    }
                    '\\' => match rest.next().expect("an escape ends").1 {
                        'n' => token.push('\n'),
                        c => token.push(c),
                    },
                    c => token.push(c),
                }
            }
            found.push(token);
        } else if c.is_ascii_alphanumeric() || c == b'_' {
            let end = bytes[at..].iter().position(|c| !(c.is_ascii_alphanumeric() || *c == b'_'));
            let end = end.map_or(bytes.len(), |len| at + len);
            found.push(text[at..end].to_owned());
            at = end;
        } else {
            let sign = [":=", "..."].into_iter().find(|sign| text[at..].starts_with(sign));
            let sign = sign.unwrap_or(&text[at..=at]);
            found.push(sign.to_owned());
            at += sign.len();
        }
    }
    found
}

struct Parser {
    tokens: Vec<String>,
    at: usize,
    aliases: BTreeMap<String, Type>,
    structs: BTreeMap<String, Type>,
}

impl Parser {
    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", String::as_str)
    }

    fn next(&mut self) -> String {
        self.at += 1;
        self.tokens[self.at - 1].clone()
    }

    fn expect(&mut self, token: &str) {
        let found = self.next();
        assert_eq!(found, token, "token {} of the metadata", self.at);
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.peek() == token;
        self.at += usize::from(found);
        found
    }

    /// `{ name = value; ... }`, names with dots.
    fn attributes(&mut self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        self.expect("{");
        while !self.take("}") {
            let name = self.dotted();
            self.expect("=");
            let mut value = self.next();
            while self.peek() != ";" {
                value += &self.next();
            }
            self.expect(";");
            found.push((name, value));
        }
        found
    }

    fn dotted(&mut self) -> String {
        let mut name = self.next();
        while self.take(".") {
            name = format!("{name}.{}", self.next());
        }
        name
    }

    fn ty(&mut self) -> Type {
        match self.next().as_str() {
            "integer" => {
                let attributes: BTreeMap<_, _> = self.attributes().into_iter().collect();
                let number =
                    |name: &str, default| attributes.get(name).map_or(default, |text| text.parse().unwrap());
                let is = |name: &str, values: &[&str]| {
                    attributes.get(name).is_some_and(|value| values.contains(&value.as_str()))
                };
                Type::Integer {
                    bits: number("size", 0),
                    align: number("align", 1).into(),
                    signed: is("signed", &["1", "true"]),
                    base: number("base", 10),
                    big_endian: is("byte_order", &["be", "network"]),
                    clock: is("map", &["clock.monotonic.value"]),
                    text: is("encoding", &["UTF8", "utf8"]),
                }
            }
            "string" => Type::String,
            "struct" => {
                let name = (self.peek() != "{").then(|| self.next());
                match name {
                    Some(name) if self.peek() != "{" => self.structs[&name].clone(),
                    name => {
                        let fields = self.fields();
                        let mut align = 1;
                        if self.take("align") {
                            self.expect("(");
                            align = self.next().parse().unwrap();
                            self.expect(")");
                        }
                        let ty = Type::Struct(fields, align);
                        if let Some(name) = name {
                            self.structs.insert(name, ty.clone());
                        }
                        ty
                    }
                }
            }
            "enum" => {
                self.expect(":");
                let of = self.ty();
                self.expect("{");
                let mut labels = Vec::new();
                loop {
                    let label = self.next();
                    self.expect("=");
                    let first: u64 = self.next().parse().unwrap();
                    let last = if self.take("...") { self.next().parse().unwrap() } else { first };
                    labels.push((label, first, last));
                    if !self.take(",") {
                        self.expect("}");
                        return Type::Enum(Box::new(of), labels);
                    }
                }
            }
            "variant" => {
                self.expect("<");
                let tag = self.next();
                self.expect(">");
                Type::Variant(tag, self.fields())
            }
            "unsigned" => {
                self.expect("long");
                self.aliases["unsigned long"].clone()
            }
            alias => self.aliases.get(alias).unwrap_or_else(|| panic!("type {alias}")).clone(),
        }
    }

    fn fields(&mut self) -> Vec<(String, Type)> {
        let mut fields = Vec::new();
        self.expect("{");
        while !self.take("}") {
            let mut ty = self.ty();
            let name = self.next();
            if self.take("[") {
                let length = self.next();
                self.expect("]");
                ty = match length.parse() {
                    Ok(length) => Type::Array(Box::new(ty), length),
                    Err(_) => Type::Sequence(Box::new(ty), length),
                };
            }
            self.expect(";");
            assert!(fields.iter().all(|(other, _)| *other != name), "field {name} twice");
            fields.push((name, ty));
        }
        fields
    }

    /// `{ name = value; name := type; ... }`
    fn block(&mut self) -> (BTreeMap<String, String>, BTreeMap<String, Type>) {
        let (mut values, mut types) = (BTreeMap::new(), BTreeMap::new());
        self.expect("{");
        while !self.take("}") {
            let name = self.dotted();
            if self.take(":=") || (name == "fields" && self.take("=")) {
                types.insert(name, self.ty());
            } else {
                self.expect("=");
                values.insert(name, self.next());
            }
            self.expect(";");
        }
        (values, types)
    }
}

/// A position in a packet.
struct Bits<'a> {
    bytes: &'a [u8],
    at: u64,
    clock: u64,
}

/// Values by name while a struct is read.
type Scope = Vec<(String, Value)>;

impl Bits<'_> {
    fn read(&mut self, ty: &Type, scope: &Scope) -> Value {
        self.at = self.at.next_multiple_of(ty.align());
        match ty {
            Type::Integer { bits, signed, base, big_endian, clock, .. } => {
                let mut value: u64 = 0;
                for shift in 0..u64::from(*bits) {
                    let bit = self.at + shift;
                    let byte = if *big_endian {
                        self.bytes[(self.at / 8 + u64::from(bits / 8) - 1 - shift / 8) as usize]
                    } else {
                        self.bytes[(bit / 8) as usize]
                    };
                    value |= u64::from(byte >> (bit % 8) & 1) << shift;
                }
                self.at += u64::from(*bits);
                if *clock {
                    // The low bits of the clock, which went on since by less than a turn of them.
                    self.clock = if *bits == 64 {
                        value
                    } else {
                        let low = (1 << bits) - 1;
                        let turned = value < self.clock & low;
                        (self.clock & !low) + value + (u64::from(turned) << bits)
                    };
                }
                let value = i128::from(value);
                let negative = *signed && value >> (bits - 1) & 1 != 0;
                Value::Number(if negative { value - (1 << bits) } else { value }, *base)
            }
            Type::String => {
                let start = (self.at / 8) as usize;
                let len = self.bytes[start..].iter().position(|byte| *byte == 0).expect("a text ends");
                self.at += (len as u64 + 1) * 8;
                Value::Text(self.bytes[start..start + len].to_vec())
            }
            // Only headers nest; their leaves are all that is wanted.
            Type::Struct(fields, _) => {
                Value::List(self.members(fields).into_iter().map(|(_, value)| value).collect())
            }
            Type::Enum(of, _) => self.read(of, scope),
            Type::Variant(tag, options) => {
                let Some((_, Value::Text(label))) =
                    scope.iter().find(|(name, _)| *name == format!("<{tag}>"))
                else {
                    panic!("no tag {tag}")
                };
                let chosen = options
                    .iter()
                    .find(|(name, _)| name.as_bytes() == label)
                    .expect("an option of that name");
                self.read(&chosen.1, scope)
            }
            Type::Array(of, length) => self.list(of, *length, scope),
            Type::Sequence(of, length) => {
                let Some((_, Value::Number(length, _))) = scope.iter().find(|(name, _)| name == length)
                else {
                    panic!("no length {length}")
                };
                self.list(of, *length as usize, scope)
            }
        }
    }

    fn list(&mut self, of: &Type, length: usize, scope: &Scope) -> Value {
        let list: Vec<Value> = (0..length).map(|_| self.read(of, scope)).collect();
        if !matches!(of, Type::Integer { text: true, .. }) {
            return Value::List(list);
        }
        let byte = |value: &Value| if let Value::Number(byte, _) = value { *byte as u8 } else { 0 };
        Value::Text(list.iter().map(byte).take_while(|byte| *byte != 0).collect())
    }

    fn members(&mut self, fields: &[(String, Type)]) -> Scope {
        let (mut found, mut scope) = (Vec::new(), Scope::new());
        for (name, ty) in fields {
            let value = self.read(ty, &scope);
            if let (Type::Enum(_, labels), Value::Number(number, _)) = (ty, &value) {
                let label = labels
                    .iter()
                    .find(|(_, first, last)| (i128::from(*first)..=i128::from(*last)).contains(number));
                scope
                    .push((format!("<{name}>"), Value::Text(label.expect("a label").0.clone().into_bytes())));
            }
            scope.push((name.clone(), value.clone()));
            found.push((name.clone(), value));
        }
        found
    }

    /// The fields of a struct by name.
    fn named(&mut self, ty: &Type) -> Vec<(String, Value)> {
        let Type::Struct(fields, _) = ty else { panic!("{ty:?} is no struct") };
        self.at = self.at.next_multiple_of(ty.align());
        let strip = |name: String| name.strip_prefix('_').map(str::to_owned).unwrap_or(name);
        self.members(fields).into_iter().map(|(name, value)| (strip(name), value)).collect()
    }
}

fn number(fields: &[(String, Value)], name: &str) -> u64 {
    match fields.iter().find(|(field, _)| field == name) {
        Some((_, Value::Number(number, _))) => u64::try_from(*number).unwrap(),
        other => panic!("{name}: {other:?}"),
    }
}

/// The text of packetised metadata, whose packets are checked.
fn metadata(bytes: &[u8]) -> (String, Vec<u8>) {
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut text, mut uuid, mut at) = (Vec::new(), Vec::new(), 0);
    while at < bytes.len() {
        let packet = &bytes[at..];
        assert_eq!(word(packet, 0), 0x75d1_1d57, "magic of the metadata packet at {at}");
        if uuid.is_empty() {
            uuid = packet[4..20].to_vec();
        }
        assert_eq!(packet[4..20], uuid, "one UUID in all packets");
        let (content, size) = (word(packet, 24) as usize / 8, word(packet, 28) as usize / 8);
        assert_eq!(packet[32..37], [0, 0, 0, 1, 8], "no compression, encryption, checksum; version 1.8");
        assert!(content > 37 && content <= size && size <= packet.len());
        text.extend_from_slice(&packet[37..content]);
        assert!(packet[content..size].iter().all(|byte| *byte == 0));
        at += size;
    }
    (String::from_utf8(text).unwrap(), uuid)
}

/// What metadata declare of packets and events.
pub(crate) struct Declared {
    pub(crate) uuid: Vec<u8>,
    /// Of packets.
    pub(crate) header: Type,
    /// The parts of each stream's packets and events.
    pub(crate) streams: BTreeMap<u64, BTreeMap<String, Type>>,
    pub(crate) events: Events,
}

/// Decodes `dir/kernel`.
pub fn read(dir: &Path) -> Trace {
    decode(dir, true)
}

/// The same of a chunk, whose packets go on counting where the chunk before ended.
pub fn read_chunk(dir: &Path) -> Trace {
    decode(dir, false)
}

fn decode(dir: &Path, is_first: bool) -> Trace {
    let dir = dir.join("kernel");
    let bytes = fs::read(dir.join("metadata")).unwrap();
    let mut trace = Trace::default();
    let declared = if bytes.first() == Some(&0x1e) {
        trace.text = String::from_utf8(bytes).unwrap();
        crate::ctf2::declared(&trace.text.clone(), &mut trace)
    } else {
        let (text, uuid) = metadata(&bytes);
        trace.text.clone_from(&text);
        declared(&text, uuid, &mut trace)
    };
    let mut files: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name != "metadata" && name != "index" {
            let index = fs::read(dir.join("index").join(format!("{name}.idx"))).unwrap();
            stream((&name, is_first), &fs::read(&path).unwrap(), &index, &declared, &mut trace);
        }
    }
    trace
}

/// What the metadata of CTF 1.8 declare.
fn declared(text: &str, uuid: Vec<u8>, trace: &mut Trace) -> Declared {
    assert!(text.starts_with("/* CTF 1.8 */"));
    let mut parser =
        Parser { tokens: tokens(text), at: 0, aliases: BTreeMap::new(), structs: BTreeMap::new() };
    let mut header = None;
    let mut streams: BTreeMap<u64, BTreeMap<String, Type>> = BTreeMap::new();
    let mut events = Events::new();
    while parser.at < parser.tokens.len() {
        match parser.peek() {
            "typealias" => {
                parser.next();
                let ty = parser.ty();
                parser.expect(":=");
                let mut name = parser.next();
                while parser.peek() != ";" {
                    name = format!("{name} {}", parser.next());
                }
                parser.aliases.insert(name, ty);
            }
            "struct" => drop(parser.ty()),
            "env" => {
                parser.next();
                trace.env = parser.attributes().into_iter().collect();
            }
            "clock" => {
                parser.next();
                let clock: BTreeMap<_, _> = parser.attributes().into_iter().collect();
                assert_eq!((clock["name"].as_str(), clock["freq"].as_str()), ("\"monotonic", "1000000000"));
                trace.clock_offset = clock["offset"].parse().unwrap();
            }
            "trace" => {
                parser.next();
                let (values, mut types) = parser.block();
                assert_eq!((values["major"].as_str(), values["minor"].as_str()), ("1", "8"));
                assert_eq!(values["byte_order"], "le");
                let hex: String = uuid.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
                assert_eq!(values["uuid"].replace(['-', '"'], ""), hex);
                header = types.remove("packet.header");
            }
            "stream" => {
                parser.next();
                let (values, types) = parser.block();
                assert!(streams.insert(values["id"].parse().unwrap(), types).is_none());
            }
            "event" => {
                parser.next();
                let (values, mut types) = parser.block();
                let key = (values["stream_id"].parse().unwrap(), values["id"].parse().unwrap());
                let name = values["name"].strip_prefix('"').unwrap().to_owned();
                trace.declared.push(name.clone());
                let (context, fields) = (types.remove("context"), types.remove("fields").unwrap());
                assert!(events.insert(key, (name, context, fields)).is_none());
            }
            other => panic!("{other} at the top of the metadata"),
        }
        parser.expect(";");
    }
    Declared { uuid, header: header.unwrap(), streams, events }
}

/// Events by stream and id: their names, contexts and fields.
pub(crate) type Events = BTreeMap<(u64, u64), (String, Option<Type>, Type)>;

fn stream(
    (name, is_first): (&str, bool),
    bytes: &[u8],
    index: &[u8],
    declared: &Declared,
    trace: &mut Trace,
) {
    let Declared { uuid, header, streams, events } = declared;
    let (channel, file_cpu) = name.rsplit_once('_').unwrap();
    let be32 = |at: usize| u32::from_be_bytes(index[at..at + 4].try_into().unwrap());
    assert_eq!([be32(0), be32(4), be32(8), be32(12)], [0xc1f1_dcc1, 1, 1, 72], "header of the index");
    let (mut at, mut packets, mut first, mut discarded, mut end, mut clock) =
        (0_usize, 0, is_first.then_some(0), None, 0, 0);
    while at < bytes.len() {
        let mut bits = Bits { bytes: &bytes[at..], at: 0, clock };
        let head = bits.named(header);
        assert_eq!(number(&head, "magic"), 0xc1fc_1fc1);
        let Some((_, Value::List(id))) = head.iter().find(|(field, _)| field == "uuid") else {
            panic!("{head:?}")
        };
        assert!(id.iter().zip(uuid).all(|(value, byte)| *value == Value::Number((*byte).into(), 10)));
        let id = number(&head, "stream_id");
        let types = &streams[&id];
        let context = bits.named(&types["packet.context"]);
        let get = |name| number(&context, name);
        let (begin, finish) = (get("timestamp_begin"), get("timestamp_end"));
        let (content, size) = (get("content_size"), get("packet_size"));
        let now = get("events_discarded");
        let sequence = *first.get_or_insert_with(|| get("packet_seq_num")) + packets;
        let entry: Vec<u64> = (0..9)
            .map(|word| 16 + packets as usize * 72 + word * 8)
            .map(|at| u64::from_be_bytes(index[at..at + 8].try_into().unwrap()))
            .collect();
        let instance = number(&head, "stream_instance_id");
        let expected = [at as u64, size, content, begin, finish, now, id, instance, sequence];
        assert_eq!(entry, expected, "{name}: entry {sequence} of the index");
        assert_eq!(get("packet_seq_num"), sequence);
        assert_eq!(get("cpu_id").to_string(), file_cpu);
        assert!(begin <= finish && begin >= end, "{name}: packet {sequence}: {begin} {finish} {end}");
        assert!(content <= size && size % 8 == 0 && at as u64 + size / 8 <= bytes.len() as u64);
        if let Some(before) = discarded
            && now != before
        {
            assert!(now > before);
            trace.losses.entry(name.to_owned()).or_default().push((end, finish, now - before));
        } else if discarded.is_none() && is_first {
            assert_eq!(now, 0, "{name}: the first packet has nothing to compare with");
        }
        bits.clock = begin;
        while bits.at < content {
            // { id, v { timestamp } } or { id, v { id, timestamp } }
            let Type::Struct(..) = &types["event.header"] else { panic!("no header") };
            let head = bits.named(&types["event.header"]);
            let number_of = match &head[1].1 {
                Value::List(list) if list.len() == 2 => &list[0],
                _ => &head[0].1,
            };
            let Value::Number(number_of, _) = number_of else { panic!("{head:?}") };
            let time = bits.clock;
            assert!(time >= begin && time <= finish, "{name}: {time} in packet {begin} to {finish}");
            let (event, own, fields) = &events[&(id, *number_of as u64)];
            let contexts = types.get("event.context").into_iter().chain(own);
            let context = contexts.flat_map(|ty| bits.named(ty)).collect();
            let fields = bits.named(fields);
            trace.events.push(Event {
                time,
                name: event.clone(),
                channel: channel.to_owned(),
                cpu: file_cpu.parse().unwrap(),
                context,
                fields,
            });
        }
        assert_eq!(bits.at, content, "{name}: the last event ends where the content does");
        assert!(bytes[at + (content / 8) as usize..at + (size / 8) as usize].iter().all(|byte| *byte == 0));
        (discarded, end, clock) = (Some(now), finish, bits.clock);
        at += (size / 8) as usize;
        packets += 1;
    }
    assert_eq!(index.len(), 16 + packets as usize * 72, "{name}: the index has no more entries");
    *trace.packets.entry(name.to_owned()).or_default() += packets;
}

/// An event as babeltrace2 prints it with `--clock-cycles --no-delta`, without the host's name.
pub fn line(event: &Event) -> String {
    let mut text = format!("[{:020}] {}: {{ cpu_id = {} }}, ", event.time, event.name, event.cpu);
    if !event.context.is_empty() {
        let _ = write!(text, "{{ {} }}, ", members(&event.context));
    }
    match members(&event.fields) {
        none if none.is_empty() => text + "{ }",
        members => text + &format!("{{ {members} }}"),
    }
}

fn members(fields: &[(String, Value)]) -> String {
    let member = |(name, value): &(String, Value)| format!("{name} = {}", printed(value));
    fields.iter().map(member).collect::<Vec<_>>().join(", ")
}

fn printed(value: &Value) -> String {
    match value {
        Value::Number(number, 16) => format!("0x{number:X}"),
        Value::Number(number, _) => number.to_string(),
        Value::Text(text) => {
            let mut printed = String::from("\"");
            for c in String::from_utf8_lossy(text).chars() {
                match c {
                    '\n' => printed += "\\n",
                    '\t' => printed += "\\t",
                    '"' => printed += "\\\"",
                    '\\' => printed += "\\\\",
                    c => printed.push(c),
                }
            }
            printed + "\""
        }
        Value::List(list) if list.is_empty() => "[ ]".to_owned(),
        Value::List(list) => {
            let items =
                list.iter().enumerate().map(|(index, value)| format!("[{index}] = {}", printed(value)));
            format!("[ {} ]", items.collect::<Vec<_>>().join(", "))
        }
    }
}
