//! A reader of traces of LTT of 2003, written from the document (`new-ltt-trace-format`) and from what is
//! known of its reader, not from the exporter. It decodes every block and field, and panics over whatever is
//! not as it should be.

use std::{collections::BTreeMap, fs, path::Path};

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A number, with its sign.
    Number(i128),
    /// A text.
    Text(Vec<u8>),
    /// An array or a sequence.
    List(Vec<Item>),
    /// A struct.
    Struct(Vec<(String, Item)>),
}

impl Item {
    /// A member of a struct.
    pub fn get(&self, name: &str) -> Option<&Item> {
        let Self::Struct(fields) = self else { return None };
        fields.iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }

    /// A number of a struct.
    pub fn number(&self, name: &str) -> i128 {
        match self.get(name) {
            Some(Self::Number(number)) => *number,
            other => panic!("no number {name}: {other:?}"),
        }
    }
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since 1970, or of a clock whose distance from that is not known.
    pub time: u64,
    /// `facility.event`.
    pub name: String,
    /// Its fields.
    pub data: Item,
}

/// A trace.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Attributes of `info/system.xml`.
    pub system: BTreeMap<String, String>,
    /// The locations of `info/bookmarks.xml`: attributes and text.
    pub bookmarks: Vec<(BTreeMap<String, String>, String)>,
    /// By name: `control/processes`, `cpu/0`. Without those that mark begin and end of blocks.
    pub files: BTreeMap<String, Vec<Event>>,
    /// Blocks of all files.
    pub blocks: usize,
    /// Heartbeats among the events of the CPUs.
    pub heartbeats: usize,
}

/// An element of the dialect, or the text between them.
#[derive(Clone, Debug)]
enum Node {
    Element { name: String, attributes: BTreeMap<String, String>, children: Vec<Node> },
    Text(String),
}

/// A type.
#[derive(Clone, Debug)]
enum Type {
    Int(usize),
    Uint(usize),
    Text,
    Array(usize, Box<Type>),
    Sequence(usize, Box<Type>),
    Struct(Vec<(String, Type)>),
    Union(usize, Vec<(String, Type)>),
    Named(String),
    Nothing,
}

#[derive(Clone, Debug)]
struct Facility {
    events: Vec<(String, Type)>,
    types: BTreeMap<String, Type>,
}

/// Reads a trace. `literal` is for one that was written to the letter of the document.
pub fn read(dir: &Path, literal: bool) -> Trace {
    let mut trace = Trace::default();
    let xml = |path: &str| parse(&fs::read_to_string(dir.join(path)).unwrap());
    let [Node::Element { name, attributes, .. }, ..] = &xml("info/system.xml")[..] else {
        panic!("no system")
    };
    assert_eq!(name, "system");
    trace.system.clone_from(attributes);
    let [Node::Element { children, .. }, ..] = &xml("info/bookmarks.xml")[..] else { panic!("no bookmarks") };
    for child in children {
        if let Node::Element { attributes, children, .. } = child {
            trace.bookmarks.push((attributes.clone(), text(children)));
        }
    }
    let big = match (trace.system["endian"].as_str(), literal) {
        ("LITTLE_ENDIAN", false) | ("little", true) => false,
        ("BIG_ENDIAN", false) | ("big", true) => true,
        other => panic!("endian {other:?}"),
    };
    let block_size: usize = trace.system["ltt_block_size"].parse().unwrap();
    let mut described: BTreeMap<String, Facility> = BTreeMap::new();
    for entry in fs::read_dir(dir.join("eventdefs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        for node in xml(&format!("eventdefs/{name}")) {
            let (facility, found) = facility(&node);
            assert_eq!(name, format!("{facility}.xml"));
            described.insert(facility, found);
        }
    }
    // "A small number of events are predefined, part of the builtin facility, and are not present there."
    let first = if literal { "builtin" } else { "core" };
    if literal {
        described.insert(first.into(), builtin());
    }
    let core = [(0_u32, first.to_owned())];
    let reader = Reader { described: &described, loaded: core.into(), big, literal, block_size };
    let mut loaded = BTreeMap::new();
    let (events, _) = reader.file(&fs::read(dir.join("control/facilities")).unwrap());
    for event in &events {
        assert_eq!(event.name, format!("{first}.facility_load"));
        let Some(Item::Text(name)) = event.data.get("name") else { panic!("no name") };
        loaded.insert(event.data.number("base_code") as u32, String::from_utf8(name.clone()).unwrap());
    }
    assert_eq!(loaded.len(), described.len(), "every facility is described and loaded");
    let mut next = 0;
    for (base, name) in &loaded {
        assert_eq!(*base, next, "{name} begins where the one before ends");
        next += described[name].events.len() as u32;
    }
    let reader = Reader { loaded, ..reader };
    for part in ["control", "cpu"] {
        for entry in fs::read_dir(dir.join(part)).unwrap() {
            let name = format!("{part}/{}", entry.unwrap().file_name().to_str().unwrap());
            let (mut events, blocks) = reader.file(&fs::read(dir.join(&name)).unwrap());
            trace.blocks += blocks;
            let heartbeat = format!("{first}.time_heartbeat");
            trace.heartbeats += events.iter().filter(|event| event.name == heartbeat).count();
            events.retain(|event| event.name != heartbeat);
            trace.files.insert(name, events);
        }
    }
    trace
}

/// The builtin events as the document lists them.
fn builtin() -> Facility {
    let named = |name: &str| Type::Named(name.into());
    let of = |fields: Vec<(&str, Type)>| {
        Type::Struct(fields.into_iter().map(|(name, of)| (name.to_owned(), of)).collect())
    };
    let load = of(vec![("name", Type::Text), ("checksum", Type::Uint(4)), ("base_code", Type::Uint(4))]);
    let events = [
        ("facility_load", load),
        ("block_start", named("block_timestamp")),
        ("block_end", named("block_timestamp")),
        ("time_heartbeat", named("timestamp")),
    ];
    let types = [
        ("block_timestamp", of(vec![("timestamp", named("timestamp")), ("block_id", Type::Uint(4))])),
        ("timestamp", of(vec![("time", named("timespec")), ("cycle_count", Type::Uint(8))])),
        ("timespec", of(vec![("seconds", Type::Uint(4)), ("nanoseconds", Type::Uint(4))])),
    ];
    Facility {
        events: events.map(|(name, of)| (name.to_owned(), of)).into(),
        types: types.map(|(name, of)| (name.to_owned(), of)).into(),
    }
}

struct Reader<'d> {
    described: &'d BTreeMap<String, Facility>,
    /// By base code.
    loaded: BTreeMap<u32, String>,
    big: bool,
    literal: bool,
    block_size: usize,
}

impl Reader<'_> {
    fn file(&self, bytes: &[u8]) -> (Vec<Event>, usize) {
        assert_eq!(bytes.len() % self.block_size, 0);
        assert!(!bytes.is_empty());
        let mut events = Vec::new();
        for (number, block) in bytes.chunks(self.block_size).enumerate() {
            let decoded = self.block(block);
            let [start, inner @ .., end] = &decoded[..] else { panic!("a block has two events at least") };
            assert!(start.name.ends_with(".block_start") && end.name.ends_with(".block_end"));
            for edge in [start, end] {
                let stamp = edge.data.get("timestamp").unwrap();
                assert_eq!(edge.data.number("block_id"), number as i128);
                let time = stamp.get("time").unwrap();
                assert!(time.number("nanoseconds") < 1_000_000_000);
                assert_eq!(wall(time), edge.time);
            }
            assert!(end.time > start.time, "the reader divides by the length of a block");
            let cycles = |edge: &Event| edge.data.get("timestamp").unwrap().number("cycle_count");
            assert_eq!(
                i128::from(end.time - start.time),
                cycles(end) - cycles(start),
                "a cycle is a nanosecond"
            );
            events.extend_from_slice(inner);
        }
        (events, bytes.len() / self.block_size)
    }

    fn block(&self, block: &[u8]) -> Vec<Event> {
        let mut cursor = Cursor { bytes: block, at: self.block_size - 4, big: self.big };
        let trailer = cursor.number(4) as usize;
        let mut events: Vec<Event> = Vec::new();
        let mut at = 0;
        let mut clock = None::<Clock>;
        loop {
            let mut cursor = Cursor { bytes: block, at, big: self.big };
            let (code, stamp) = (cursor.number(2) as u32, cursor.number(4));
            let (first, facility) = self.loaded.range(..=code).next_back().unwrap();
            let facility_name = facility;
            let facility = &self.described[facility];
            let (name, of) = &facility.events[(code - first) as usize];
            let data = decode(&mut cursor, of, &facility.types);
            let told = match name.as_str() {
                "block_start" | "block_end" => data.get("timestamp"),
                "time_heartbeat" => Some(&data),
                _ => None,
            };
            let told = told.map(|told| (told.number("cycle_count") as u64, wall(told.get("time").unwrap())));
            let clock = clock.get_or_insert_with(|| {
                let (cycles, time) = told.expect("a block begins with block_start");
                Clock { cycles, time, base: cycles, last: cycles & LOW, turns: 0 }
            });
            let time = if self.literal { clock.literal(stamp) } else { clock.readable(stamp) };
            assert!(told.is_none_or(|(_, wall)| wall == time), "{name}: {told:?} and {time}");
            clock.base = told.map_or(clock.base, |(cycles, _)| cycles);
            events.push(Event { time, name: format!("{facility_name}.{name}"), data });
            if name == "block_end" {
                let expected = if self.literal { at } else { self.block_size - 4 - cursor.at };
                assert_eq!(trailer, expected, "the last 4 bytes of the block");
                assert!(block[cursor.at..self.block_size - 4].iter().all(|byte| *byte == 0));
                return events;
            }
            at = cursor.at;
        }
    }
}

/// The low 32 bits, which is what events have of the counter.
const LOW: u64 = 0xffff_ffff;

/// Nanoseconds of a time value.
fn wall(time: &Item) -> u64 {
    (time.number("seconds") * 1_000_000_000 + time.number("nanoseconds")) as u64
}

/// The time in a block.
struct Clock {
    /// The cycles of block_start, and its time.
    cycles: u64,
    time: u64,
    /// The cycles of the last event that tells all of them.
    base: u64,
    /// The stamp of the last event, and how often it began anew.
    last: u64,
    turns: u64,
}

impl Clock {
    /// "Time delta since the last time value, in the block header or in a time_heartbeat event." Those of
    /// time values themselves are 0, or what they are later than the one before.
    fn literal(&mut self, stamp: u64) -> u64 {
        self.time + (self.base - self.cycles) + stamp
    }

    /// As the reader of the time has it when it goes back to the begin of the block that it is in, the first
    /// one for example (updateTracefile of LTTV 0.4): what the stamp, counted on where it began anew, has
    /// more than all bits of the cycles of block_start.
    fn readable(&mut self, stamp: u64) -> u64 {
        self.turns += u64::from(stamp < self.last);
        self.last = stamp;
        self.time.wrapping_add((self.turns << 32) + stamp).wrapping_sub(self.cycles)
    }
}

struct Cursor<'b> {
    bytes: &'b [u8],
    at: usize,
    big: bool,
}

impl Cursor<'_> {
    fn number(&mut self, size: usize) -> u64 {
        let mut bytes = self.bytes[self.at..self.at + size].to_vec();
        self.at += size;
        if self.big {
            bytes.reverse();
        }
        bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }
}

fn decode(cursor: &mut Cursor<'_>, of: &Type, types: &BTreeMap<String, Type>) -> Item {
    match of {
        Type::Uint(size) => Item::Number(cursor.number(*size).into()),
        Type::Int(size) => {
            let number = i128::from(cursor.number(*size));
            Item::Number(if number >> (size * 8 - 1) == 1 { number - (1 << (size * 8)) } else { number })
        }
        Type::Text => {
            let len = cursor.bytes[cursor.at..].iter().position(|byte| *byte == 0).unwrap();
            cursor.at += len + 1;
            Item::Text(cursor.bytes[cursor.at - len - 1..cursor.at - 1].to_vec())
        }
        Type::Array(count, of) => Item::List((0..*count).map(|_| decode(cursor, of, types)).collect()),
        Type::Sequence(size, of) => {
            let count = cursor.number(*size);
            Item::List((0..count).map(|_| decode(cursor, of, types)).collect())
        }
        Type::Struct(fields) => {
            Item::Struct(fields.iter().map(|(name, of)| (name.clone(), decode(cursor, of, types))).collect())
        }
        Type::Union(size, fields) => {
            let (name, of) = &fields[cursor.number(*size) as usize];
            Item::Struct(vec![(name.clone(), decode(cursor, of, types))])
        }
        Type::Named(name) => decode(cursor, &types[name], types),
        Type::Nothing => Item::Struct(vec![]),
    }
}

fn facility(node: &Node) -> (String, Facility) {
    let Node::Element { name, attributes, children } = node else { panic!("{node:?}") };
    assert_eq!(name, "facility");
    let mut facility = Facility { events: vec![], types: BTreeMap::new() };
    for child in children {
        let Node::Element { name, attributes, children } = child else { continue };
        match name.as_str() {
            "event" => facility.events.push((attributes["name"].clone(), first_type(children))),
            "type" => drop(facility.types.insert(attributes["name"].clone(), first_type(children))),
            "description" => {}
            other => panic!("{other}"),
        }
    }
    (attributes["name"].clone(), facility)
}

/// The type among these, if there is one.
fn first_type(nodes: &[Node]) -> Type {
    let mut elements = nodes.iter().filter_map(|node| match node {
        Node::Element { name, attributes, children } if name != "description" => {
            Some((name, attributes, children))
        }
        _ => None,
    });
    let Some((name, attributes, children)) = elements.next() else { return Type::Nothing };
    let number = |name: &str| match attributes[name].as_str() {
        "short" => 2,
        "medium" => 4,
        "long" => 8,
        number => number.parse().unwrap(),
    };
    let inner = || Box::new(first_type(children));
    let fields = || {
        let fields = children.iter().filter_map(|node| match node {
            Node::Element { name, attributes, children } if name == "field" => {
                Some((attributes["name"].clone(), first_type(children)))
            }
            _ => None,
        });
        fields.collect()
    };
    match name.as_str() {
        "int" => Type::Int(number("size")),
        "uint" | "enum" => Type::Uint(number("size")),
        "string" => Type::Text,
        "array" => Type::Array(number("size"), inner()),
        "sequence" => Type::Sequence(number("lengthsize"), inner()),
        "struct" => Type::Struct(fields()),
        "union" => Type::Union(number("typecodesize"), fields()),
        "typeref" => Type::Named(attributes["name"].clone()),
        other => panic!("type {other}"),
    }
}

fn text(nodes: &[Node]) -> String {
    let texts = nodes.iter().filter_map(|node| match node {
        Node::Text(text) => Some(text.as_str()),
        Node::Element { .. } => None,
    });
    texts.collect::<String>().trim().to_owned()
}

/// Parses "a simple subset of XML", with or without quotes around values.
fn parse(text: &str) -> Vec<Node> {
    let mut rest = text;
    let nodes = nodes(&mut rest);
    assert_eq!(rest, "");
    nodes.into_iter().filter(|node| matches!(node, Node::Element { .. })).collect()
}

/// Nodes up to an end tag or the end.
fn nodes(rest: &mut &str) -> Vec<Node> {
    let mut nodes = Vec::new();
    while !rest.is_empty() && !rest.starts_with("</") {
        if !rest.starts_with('<') {
            let (text, after) = rest.split_at(rest.find('<').unwrap_or(rest.len()));
            nodes.push(Node::Text(text.to_owned()));
            *rest = after;
            continue;
        }
        let (mut tag, after) = rest[1..].split_once('>').unwrap();
        *rest = after;
        let empty = tag.strip_suffix('/').inspect(|shorter| tag = shorter).is_some();
        let (name, attributes) = tag.split_at(tag.find(char::is_whitespace).unwrap_or(tag.len()));
        let children = if empty { vec![] } else { self::nodes(rest) };
        if !empty {
            *rest = rest.strip_prefix(&format!("</{name}>")).unwrap_or_else(|| panic!("no end of {name}"));
        }
        nodes.push(Node::Element {
            name: name.to_owned(),
            attributes: self::attributes(attributes),
            children,
        });
    }
    nodes
}

fn attributes(mut text: &str) -> BTreeMap<String, String> {
    let mut attributes = BTreeMap::new();
    while let Some((name, after)) = text.split_once('=') {
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap(),
            None => after.split_at(after.find(char::is_whitespace).unwrap_or(after.len())),
        };
        attributes.insert(name.trim().to_owned(), value.to_owned());
        text = after;
    }
    attributes
}
