//! Metadata of CTF 2 for the reader of traces, written from the specification (CTF2-SPEC-2.0): each fragment
//! and each field class has the properties that the document gives it, and no others; what is said twice is
//! said the same. What it does not understand fails the test.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::ctf::{Declared, Events, Trace, Type};

/// What fields of headers and packet contexts are for: part, role, and what CTF 1.8 calls such a field.
const ROLES: [(Part, &str, &str); 12] = [
    (Part::PacketHeader, "packet-magic-number", "magic"),
    (Part::PacketHeader, "metadata-stream-uuid", "uuid"),
    (Part::PacketHeader, "data-stream-class-id", "stream_id"),
    (Part::PacketHeader, "data-stream-id", "stream_instance_id"),
    (Part::PacketContext, "default-clock-timestamp", "timestamp_begin"),
    (Part::PacketContext, "packet-end-default-clock-timestamp", "timestamp_end"),
    (Part::PacketContext, "packet-content-length", "content_size"),
    (Part::PacketContext, "packet-total-length", "packet_size"),
    (Part::PacketContext, "packet-sequence-number", "packet_seq_num"),
    (Part::PacketContext, "discarded-event-record-counter-snapshot", "events_discarded"),
    (Part::EventHeader, "event-record-class-id", "id"),
    (Part::EventHeader, "default-clock-timestamp", "timestamp"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    PacketHeader,
    PacketContext,
    EventHeader,
    /// Contexts and payloads.
    Event,
}

/// An object whose properties are known.
struct Object<'j>(&'j Map<String, Value>);

impl<'j> Object<'j> {
    /// With these properties, of which those with a `!` must be there.
    fn new(value: &'j Value, known: &[&str]) -> Self {
        let object = value.as_object().unwrap_or_else(|| panic!("{value}"));
        let known: BTreeMap<&str, bool> =
            known.iter().map(|name| (name.trim_end_matches('!'), name.ends_with('!'))).collect();
        let unknown = object.keys().filter(|name| !known.contains_key(&***name) && *name != "type");
        assert_eq!(unknown.collect::<Vec<_>>(), [""; 0], "{value}");
        let missing = known.iter().filter(|(name, must)| **must && !object.contains_key(**name));
        assert_eq!(missing.collect::<Vec<_>>(), [], "{value}");
        Self(object)
    }

    fn number(&self, name: &str) -> u64 {
        self.0[name].as_u64().unwrap_or_else(|| panic!("{name}"))
    }

    fn number_or(&self, name: &str, default: u64) -> u64 {
        if self.0.contains_key(name) { self.number(name) } else { default }
    }

    fn text(&self, name: &str) -> &'j str {
        self.0[name].as_str().unwrap_or_else(|| panic!("{name}"))
    }

    fn list(&self, name: &str) -> &'j [Value] {
        self.0[name].as_array().unwrap_or_else(|| panic!("{name}"))
    }
}

struct Classes<'j>(BTreeMap<&'j str, &'j Value>);

impl<'j> Classes<'j> {
    /// The structure in this property, if there is one.
    fn structure(&self, of: &Object<'j>, name: &str, part: Part) -> Option<Type> {
        let ty = self.class(of.0.get(name)?, part);
        assert!(matches!(ty, Type::Struct(..)), "{name}");
        Some(ty)
    }

    /// A field class, or the name of one.
    fn resolved(&self, value: &'j Value) -> &'j Value {
        match value {
            Value::String(name) => self.0.get(&**name).unwrap_or_else(|| panic!("no alias {name}")),
            class => class,
        }
    }

    fn class(&self, value: &'j Value, part: Part) -> Type {
        let value = self.resolved(value);
        match value["type"].as_str().expect("a type") {
            kind @ ("fixed-length-unsigned-integer" | "fixed-length-signed-integer") => {
                let signed = kind == "fixed-length-signed-integer";
                integer(value, signed, part)
            }
            "null-terminated-string" => {
                Object::new(value, &[]);
                Type::String
            }
            kind @ ("static-length-string" | "static-length-blob") => {
                let of = Object::new(value, &["length!", "roles"]);
                assert!(kind == "static-length-blob" || !of.0.contains_key("roles"));
                let text = kind == "static-length-string";
                let byte = Type::Integer {
                    bits: 8,
                    align: 8,
                    signed: false,
                    base: 10,
                    big_endian: false,
                    clock: false,
                    text,
                };
                Type::Array(Box::new(byte), of.number("length") as usize)
            }
            "static-length-array" => {
                let of = Object::new(value, &["length!", "element-field-class!"]);
                let element = self.class(&of.0["element-field-class"], Part::Event);
                Type::Array(Box::new(element), of.number("length") as usize)
            }
            "dynamic-length-array" => {
                let of = Object::new(value, &["length-field-location!", "element-field-class!"]);
                let element = self.class(&of.0["element-field-class"], Part::Event);
                Type::Sequence(Box::new(element), format!("_{}", location(&of.0["length-field-location"])))
            }
            "structure" => self.members(value, part),
            other => panic!("a field class of the type {other}"),
        }
    }

    fn members(&self, value: &'j Value, part: Part) -> Type {
        let of = Object::new(value, &["member-classes", "minimum-alignment"]);
        let (mut fields, mut names): (Vec<(String, Type)>, BTreeSet<&str>) = (Vec::new(), BTreeSet::new());
        for member in of.list("member-classes") {
            let member = Object::new(member, &["name!", "field-class!"]);
            let (name, class) = (member.text("name"), self.resolved(&member.0["field-class"]));
            assert!(names.insert(name), "{name} twice");
            if class["type"] == "variant" {
                let ty = self.variant(class, &mut fields, part);
                fields.push((name.to_owned(), ty));
                continue;
            }
            // In headers, the role says what a field is, not its name.
            let role = class["roles"].as_array().map(|roles| {
                let [role] = &roles[..] else { panic!("{roles:?}") };
                let found = ROLES.iter().find(|(of, known, _)| *of == part && role == known);
                found.unwrap_or_else(|| panic!("{role} in {part:?}")).2
            });
            let shown = match (part, role) {
                (_, Some(role)) => role.to_owned(),
                // As CTF 1.8 has them, whose names begin with a sign that is none of theirs.
                (Part::Event, None) => format!("_{name}"),
                (_, None) => {
                    assert!(ROLES.iter().all(|(of, _, known)| *of != part || name != *known), "{name}");
                    name.to_owned()
                }
            };
            fields.push((shown, self.class(class, part)));
        }
        Type::Struct(fields, of.number_or("minimum-alignment", 1))
    }

    /// A choice by the ranges of an earlier field, which gets the names of the options for them.
    fn variant(&self, value: &'j Value, fields: &mut [(String, Type)], part: Part) -> Type {
        let of = Object::new(value, &["selector-field-location!", "options!"]);
        let tag = location(&of.0["selector-field-location"]);
        let (mut labels, mut options) = (Vec::new(), Vec::new());
        for option in of.list("options") {
            let option = Object::new(option, &["name", "field-class!", "selector-field-ranges!"]);
            let name = option.text("name").to_owned();
            for (first, last) in ranges(&option.0["selector-field-ranges"]) {
                assert!(
                    labels.iter().all(|(_, from, to)| first > *to || last < *from),
                    "ranges are distinct"
                );
                labels.push((name.clone(), first, last));
            }
            options.push((name, self.class(&option.0["field-class"], part)));
        }
        let (_, selector) = fields.iter_mut().find(|(name, _)| *name == tag).expect("a selector before it");
        *selector = Type::Enum(Box::new(selector.clone()), labels);
        Type::Variant(tag, options)
    }
}

fn integer(value: &Value, signed: bool, part: Part) -> Type {
    let known = ["length!", "byte-order!", "alignment", "preferred-display-base", "mappings", "roles"];
    let of = Object::new(value, &known);
    let big_endian = match of.text("byte-order") {
        "little-endian" => false,
        "big-endian" => true,
        other => panic!("the byte order {other}"),
    };
    if let Some(mappings) = of.0.get("mappings") {
        mappings.as_object().expect("names").values().for_each(|value| drop(ranges(value)));
    }
    let (bits, align) = (of.number("length"), of.number_or("alignment", 1));
    assert!((1..=64).contains(&bits) && align.is_power_of_two());
    let base = of.number_or("preferred-display-base", 10);
    assert!([2, 8, 10, 16].contains(&base));
    let roles = of.0.get("roles").map_or(&[][..], |_| of.list("roles"));
    assert!(roles.is_empty() || !signed && part != Part::Event, "{value}");
    if roles.contains(&"packet-magic-number".into()) {
        assert_eq!(bits, 32);
    }
    Type::Integer {
        bits: bits as u32,
        align,
        signed,
        base: base as u32,
        big_endian,
        // The times of events go on from one to the next.
        clock: part == Part::EventHeader && roles.contains(&"default-clock-timestamp".into()),
        text: false,
    }
}

/// Pairs of the first and the last.
fn ranges(value: &Value) -> Vec<(u64, u64)> {
    let pair = |range: &Value| match range.as_array().map(Vec::as_slice) {
        Some([first, last]) => (first.as_u64().expect("a number"), last.as_u64().expect("a number")),
        _ => panic!("{value}"),
    };
    let ranges: Vec<_> = value.as_array().expect("ranges").iter().map(pair).collect();
    assert!(!ranges.is_empty() && ranges.iter().all(|(first, last)| first <= last), "{value}");
    ranges
}

/// The field before in the same structure.
fn location(value: &Value) -> String {
    match Object::new(value, &["path!"]).list("path") {
        [name] => name.as_str().expect("a name").to_owned(),
        path => panic!("{path:?}"),
    }
}

/// Reads metadata.
pub(crate) fn declared(text: &str, trace: &mut Trace) -> Declared {
    let texts = text.strip_prefix('\x1e').expect("a separator").split('\x1e');
    let fragments: Vec<Value> = texts
        .map(|text| {
            let text = text.strip_suffix('\n').expect("each ends with its line");
            serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
        })
        .collect();
    let mut classes = Classes(BTreeMap::new());
    let (mut uuid, mut header, mut clock) = (None, None, None);
    let mut streams: BTreeMap<u64, BTreeMap<String, Type>> = BTreeMap::new();
    let mut events = Events::new();
    for (place, fragment) in fragments.iter().enumerate() {
        let kind = fragment["type"].as_str().expect("a type");
        assert_eq!(kind == "preamble", place == 0, "the first one is the preamble");
        match kind {
            "preamble" => {
                let of = Object::new(fragment, &["version!", "uuid"]);
                assert_eq!(of.number("version"), 2);
                let byte = |byte: &Value| u8::try_from(byte.as_u64().expect("a number")).expect("a byte");
                uuid = Some(of.list("uuid").iter().map(byte).collect::<Vec<_>>());
            }
            "field-class-alias" => {
                let of = Object::new(fragment, &["name!", "field-class!"]);
                assert!(classes.0.insert(of.text("name"), &of.0["field-class"]).is_none());
            }
            "trace-class" => {
                let of = Object::new(
                    fragment,
                    &["namespace", "name", "uid", "environment", "packet-header-field-class"],
                );
                assert!(header.is_none(), "one trace class");
                header = classes.structure(&of, "packet-header-field-class", Part::PacketHeader);
                for (name, value) in of.0["environment"].as_object().expect("an environment") {
                    let text = match value {
                        Value::String(text) => format!("\"{text}"),
                        Value::Number(number) => number.as_i64().expect("an integer").to_string(),
                        other => panic!("{name}: {other}"),
                    };
                    trace.env.insert(name.clone(), text);
                }
            }
            "clock-class" => {
                let of = Object::new(
                    fragment,
                    &["id!", "name", "uid", "description", "frequency!", "origin", "offset-from-origin"],
                );
                assert_eq!(of.number("frequency"), 1_000_000_000);
                assert!(clock.replace(of.text("id")).is_none(), "one clock");
                let has_origin = of.0.get("origin").is_some_and(|origin| origin == "unix-epoch");
                assert_eq!(has_origin, of.0.contains_key("offset-from-origin"));
                if has_origin {
                    let offset = Object::new(&of.0["offset-from-origin"], &["seconds", "cycles"]);
                    assert!(offset.number("cycles") < 1_000_000_000);
                    trace.clock_offset = offset.number("seconds") * 1_000_000_000 + offset.number("cycles");
                }
            }
            "data-stream-class" => {
                let of = Object::new(
                    fragment,
                    &[
                        "id",
                        "default-clock-class-id",
                        "packet-context-field-class",
                        "event-record-header-field-class",
                        "event-record-common-context-field-class",
                    ],
                );
                assert_eq!(Some(of.text("default-clock-class-id")), clock);
                let parts = [
                    ("packet.context", "packet-context-field-class", Part::PacketContext),
                    ("event.header", "event-record-header-field-class", Part::EventHeader),
                    ("event.context", "event-record-common-context-field-class", Part::Event),
                ];
                let types = parts.into_iter().filter_map(|(name, property, part)| {
                    Some((name.to_owned(), classes.structure(&of, property, part)?))
                });
                assert!(streams.insert(of.number("id"), types.collect()).is_none());
            }
            "event-record-class" => {
                let of = Object::new(
                    fragment,
                    &[
                        "id",
                        "data-stream-class-id",
                        "name",
                        "specific-context-field-class",
                        "payload-field-class",
                    ],
                );
                let stream = of.number("data-stream-class-id");
                assert!(streams.contains_key(&stream), "its stream is declared before");
                trace.declared.push(of.text("name").to_owned());
                let context = classes.structure(&of, "specific-context-field-class", Part::Event);
                let fields = classes.structure(&of, "payload-field-class", Part::Event).expect("a payload");
                let event = (of.text("name").to_owned(), context, fields);
                assert!(events.insert((stream, of.number("id")), event).is_none());
            }
            other => panic!("a fragment of the type {other}"),
        }
    }
    assert!(!streams.is_empty(), "one data stream class at least");
    Declared { uuid: uuid.expect("a UUID"), header: header.expect("a packet header"), streams, events }
}
