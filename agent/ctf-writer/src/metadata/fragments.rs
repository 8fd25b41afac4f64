//! Metadata of CTF 2 (CTF2-SPEC-2.0, section 5): JSON texts, before each of which there is a record separator
//! (RFC 7464).
//!
//! Fields have the names that they have for readers of CTF 1.8: JSON needs no underscore before them.
//!
//! Both languages have all of a schema. The format `ctf2` has no contexts of events, texts of fixed length or
//! numbers in network byte order.

use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap as _, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::schema::{Channel, Clock, EnvValue, Event, Field, Trace};
use super::super::shape::{Step, Steps, StreamShape};
use super::super::stream::EventHeader;
use super::super::summary;
use super::super::types::{Integer, LENGTH, Type, length_name};
use super::uuid_text;

/// What stands before each fragment.
pub(super) const SEPARATOR: u8 = 0x1e;
/// The clock, for the streams that have it.
const CLOCK: &str = "monotonic";
/// What the clock's ticks are of a second.
const FREQUENCY: u64 = 1_000_000_000;
/// The field class of all packet contexts.
const PACKET_CONTEXT: &str = "packet-context";
/// Those of the two event headers.
const COMPACT_HEADER: &str = "event-record-header-compact";
const LARGE_HEADER: &str = "event-record-header-large";
/// The role of times.
const TIME: &str = "default-clock-timestamp";
/// The role of the numbers of events.
const EVENT_CLASS: &str = "event-record-class-id";
/// The most values of a fragment of metadata that is read: an event with a hundred fields has some thousand.
pub const FRAGMENT_VALUES_MAX: usize = 1 << 18;

/// What the metadata begin with.
pub(super) fn head(trace: &Trace) -> String {
    let mut text = String::new();
    let mut add = |value: &Value| fragment(value, &mut text);
    add(&json!({ "type": "preamble", "version": 2, "uuid": trace.uuid }));
    for (name, class) in [
        (PACKET_CONTEXT, packet_context()),
        (COMPACT_HEADER, event_header(EventHeader::Compact)),
        (LARGE_HEADER, event_header(EventHeader::Large)),
    ] {
        add(&json!({ "type": "field-class-alias", "name": name, "field-class": class }));
    }
    let class = TraceClass {
        kind: "trace-class",
        uid: uuid_text(trace.uuid),
        environment: Environment(trace),
        packet_header_field_class: packet_header(),
    };
    fragment(&class, &mut text);
    fragment(&clock(&trace.clock), &mut text);
    text
}

/// Declares a stream.
pub(super) fn stream(id: usize, channel: &Channel, text: &mut String) {
    let header = match channel.header {
        EventHeader::Compact => COMPACT_HEADER,
        EventHeader::Large => LARGE_HEADER,
    };
    let mut class = json!({
        "type": "data-stream-class",
        "id": id,
        "default-clock-class-id": CLOCK,
        "packet-context-field-class": PACKET_CONTEXT,
        "event-record-header-field-class": header,
    });
    let context = channel.context.iter().chain(&channel.shared);
    let context: Vec<Value> = context.flat_map(|(name, ty)| members(ty, name)).collect();
    if !context.is_empty() {
        class["event-record-common-context-field-class"] = structure(&context);
    }
    fragment(&class, text);
}

/// Declares an event of a stream.
pub(super) fn event((stream, channel): (usize, &Channel), id: usize, event: &Event, text: &mut String) {
    let own = event.fields.get(channel.shared.len()..).unwrap_or_default();
    let (contexts, fields) = own.split_at(event.contexts.min(own.len()));
    let of = |fields: &[Field]| {
        let members: Vec<Value> = fields.iter().flat_map(|field| members(&field.ty, &field.name)).collect();
        structure(&members)
    };
    let mut class = json!({
        "type": "event-record-class",
        "id": id,
        "data-stream-class-id": stream,
        "name": event.name,
        "payload-field-class": of(fields),
    });
    if !contexts.is_empty() {
        class["specific-context-field-class"] = of(contexts);
    }
    fragment(&class, text);
}

fn fragment(class: &impl Serialize, text: &mut String) {
    text.push(SEPARATOR.into());
    // Neither maps with keys that are no texts nor writing to memory fail.
    *text += &serde_json::to_string(class).unwrap_or_default();
    text.push('\n');
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct TraceClass<'t> {
    #[serde(rename = "type")]
    kind: &'static str,
    uid: String,
    environment: Environment<'t>,
    packet_header_field_class: Value,
}

/// The environment, in its order: what names the writer comes before the provenance, which can be long.
struct Environment<'t>(&'t Trace);

impl Serialize for Environment<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Trace { env, provenance, .. } = self.0;
        let mut map = to.serialize_map(Some(env.len() + provenance.len()))?;
        for (name, value) in env {
            match value {
                EnvValue::Text(text) => map.serialize_entry(name, text)?,
                EnvValue::Number(number) => map.serialize_entry(name, number)?,
            }
        }
        for (name, text) in provenance {
            map.serialize_entry(name, text)?;
        }
        map.end()
    }
}

fn clock(of: &Clock) -> Value {
    let mut class = json!({
        "type": "clock-class",
        "id": CLOCK,
        "name": CLOCK,
        "description": of.description,
        "frequency": FREQUENCY,
    });
    if let Some(uuid) = &of.uuid {
        class["uid"] = uuid.as_str().into();
    }
    if of.absolute {
        class["origin"] = "unix-epoch".into();
        class["offset-from-origin"] =
            json!({ "seconds": of.offset / FREQUENCY, "cycles": of.offset % FREQUENCY });
    }
    class
}

fn packet_header() -> Value {
    let uuid = json!({ "type": "static-length-blob", "length": 16, "roles": ["metadata-stream-uuid"] });
    structure(&[
        member("magic", &unsigned(32, Some("packet-magic-number"))),
        member("uuid", &uuid),
        member("stream_id", &unsigned(32, Some("data-stream-class-id"))),
        member("stream_instance_id", &unsigned(64, Some("data-stream-id"))),
    ])
}

fn packet_context() -> Value {
    structure(&[
        member("timestamp_begin", &unsigned(64, Some(TIME))),
        member("timestamp_end", &unsigned(64, Some("packet-end-default-clock-timestamp"))),
        member("content_size", &unsigned(64, Some("packet-content-length"))),
        member("packet_size", &unsigned(64, Some("packet-total-length"))),
        member("packet_seq_num", &unsigned(64, Some("packet-sequence-number"))),
        member("events_discarded", &unsigned(64, Some("discarded-event-record-counter-snapshot"))),
        member("cpu_id", &unsigned(32, None)),
    ])
}

/// A short number and the low bits of the time, or after a number that stands for none, both as a whole.
fn event_header(of: EventHeader) -> Value {
    let (id_bits, time_bits) = match of {
        EventHeader::Compact => (5, 27),
        EventHeader::Large => (16, 32),
    };
    let none = (1_u64 << id_bits) - 1;
    let (short, long) = (json!([[0, none - 1]]), json!([[none, none]]));
    let mut id = unsigned(id_bits, Some(EVENT_CLASS));
    id["mappings"] = json!({ "compact": short, "extended": long });
    let option = |name: &str, ranges: &Value, members: &[Value]| json!({ "name": name, "selector-field-ranges": ranges, "field-class": structure(members) });
    let whole =
        [member("id", &unsigned(32, Some(EVENT_CLASS))), member("timestamp", &unsigned(64, Some(TIME)))];
    let choice = json!({
        "type": "variant",
        "selector-field-location": { "path": ["id"] },
        "options": [
            option("compact", &short, &[member("timestamp", &unsigned(time_bits, Some(TIME)))]),
            option("extended", &long, &whole),
        ],
    });
    let mut header = structure(&[member("id", &id), member("v", &choice)]);
    header["minimum-alignment"] = 8.into();
    header
}

/// An integer of a header, aligned to bytes if it has whole ones.
fn unsigned(bits: u32, role: Option<&str>) -> Value {
    let mut class = json!({
        "type": "fixed-length-unsigned-integer",
        "length": bits,
        "byte-order": "little-endian",
    });
    if bits.is_multiple_of(8) {
        class["alignment"] = 8.into();
    }
    if let Some(role) = role {
        class["roles"] = json!([role]);
    }
    class
}

fn integer(of: Integer) -> Value {
    let Integer { size, signed, base, network } = of;
    let mut class = json!({
        "type": if signed { "fixed-length-signed-integer" } else { "fixed-length-unsigned-integer" },
        "length": u32::from(size) * 8,
        "byte-order": if network { "big-endian" } else { "little-endian" },
        "alignment": 8,
    });
    if base != 10 {
        class["preferred-display-base"] = base.into();
    }
    class
}

fn structure(members: &[Value]) -> Value {
    json!({ "type": "structure", "member-classes": members })
}

fn member(name: &str, class: &Value) -> Value {
    json!({ "name": name, "field-class": class })
}

/// A field, with the number of its elements before it if it has one.
fn members(ty: &Type, name: &str) -> Vec<Value> {
    let text = || json!({ "type": "null-terminated-string" });
    let array = |count: &usize, element: Value| json!({ "type": "static-length-array", "length": count, "element-field-class": element });
    let class = match ty {
        Type::Integer(of) => integer(*of),
        Type::TextArray { len } => json!({ "type": "static-length-string", "length": len }),
        Type::String => text(),
        Type::Strings { count } => array(count, text()),
        Type::Array { element, count } => array(count, integer(*element)),
        Type::Sequence { element } => {
            let length = length_name(name);
            let class = json!({
                "type": "dynamic-length-array",
                "length-field-location": { "path": [length] },
                "element-field-class": integer(*element),
            });
            return vec![member(&length, &integer(LENGTH)), member(name, &class)];
        }
    };
    vec![member(name, &class)]
}

/// What metadata say, as far as a summary has it, and the shapes of the streams' events, if these are known.
/// `None` for what is damaged.
pub(super) fn read(bytes: &[u8]) -> Option<(summary::Trace, Option<Vec<StreamShape>>)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut trace = summary::Trace { version: "2", ..summary::Trace::default() };
    let mut shapes = Some(Vec::new());
    for text in text.split(char::from(SEPARATOR)).filter(|text| !text.trim().is_empty()) {
        if stdx::json::values(text) > FRAGMENT_VALUES_MAX {
            return None;
        }
        let fragment: Value = serde_json::from_str(text).ok()?;
        match fragment["type"].as_str()? {
            "trace-class" => {
                let class: ReadTraceClass = serde_json::from_str(text).ok()?;
                trace.take_env(class.environment.0.into_iter().filter_map(|(name, value)| match value {
                    Value::String(text) => Some((name, text)),
                    Value::Number(number) => Some((name, number.to_string())),
                    _ => None,
                }));
            }
            "clock-class" if fragment["origin"] == "unix-epoch" && fragment["frequency"] == FREQUENCY => {
                let offset = &fragment["offset-from-origin"];
                let of = |name: &str| offset[name].as_u64().unwrap_or(0);
                trace.clock_offset_ns = of("seconds").saturating_mul(FREQUENCY).saturating_add(of("cycles"));
            }
            "data-stream-class" => shapes = shapes.and_then(|shapes| stream_shape(&fragment, shapes)),
            "event-record-class" => {
                trace.events.push(fragment["name"].as_str().unwrap_or_default().to_owned());
                shapes = shapes.and_then(|shapes| event_shape(&fragment, shapes));
            }
            _ => {}
        }
    }
    Some((trace, shapes))
}

/// What is read of a trace class in its order, which [`Value`] does not keep.
#[derive(Deserialize)]
struct ReadTraceClass {
    #[serde(default)]
    environment: Entries,
}

/// The entries of an object in their order.
#[derive(Default)]
struct Entries(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Entering;

        impl<'de> Visitor<'de> for Entering {
            type Value = Entries;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        from.deserialize_map(Entering)
    }
}

/// Takes a stream, if it is one as they are written here.
fn stream_shape(class: &Value, mut shapes: Vec<StreamShape>) -> Option<Vec<StreamShape>> {
    let header = match class["event-record-header-field-class"].as_str()? {
        COMPACT_HEADER => EventHeader::Compact,
        LARGE_HEADER => EventHeader::Large,
        _ => return None,
    };
    let is_packet = class["packet-context-field-class"] == PACKET_CONTEXT;
    let context = steps(&class["event-record-common-context-field-class"])?;
    let id = usize::try_from(class["id"].as_u64()?).ok()?;
    StreamShape::add(&mut shapes, (id, header), context).filter(|()| is_packet).map(|()| shapes)
}

fn event_shape(class: &Value, mut shapes: Vec<StreamShape>) -> Option<Vec<StreamShape>> {
    let mut parts = steps(&class["specific-context-field-class"])?;
    parts.extend(steps(&class["payload-field-class"])?);
    let stream = usize::try_from(class["data-stream-class-id"].as_u64()?).ok()?;
    let id = usize::try_from(class["id"].as_u64()?).ok()?;
    shapes.get_mut(stream)?.add_event(id, parts).map(|()| shapes)
}

/// The parts of a structure, or of none.
fn steps(structure: &Value) -> Option<Steps> {
    let mut steps = Steps::new();
    if structure.is_null() {
        return Some(steps);
    }
    for member in structure["member-classes"].as_array()? {
        let class = &member["field-class"];
        let step = match class["type"].as_str()? {
            "static-length-string" => Step::Bytes(length(class)?),
            "static-length-array" => match element(class)? {
                Step::Bytes(size) => Step::Bytes(size.checked_mul(length(class)?)?),
                _ => Step::Texts(length(class)?),
            },
            "dynamic-length-array" => match (steps.pop()?, element(class)?) {
                // Its length is the field before.
                (Step::Bytes(4), Step::Bytes(size)) => Step::Sequence(size),
                _ => return None,
            },
            _ => scalar(class)?,
        };
        steps.push(step);
    }
    Some(steps)
}

fn length(class: &Value) -> Option<usize> {
    usize::try_from(class["length"].as_u64()?).ok()
}

fn element(class: &Value) -> Option<Step> {
    scalar(&class["element-field-class"])
}

/// An integer of whole bytes, or a text.
fn scalar(class: &Value) -> Option<Step> {
    match class["type"].as_str()? {
        "null-terminated-string" => Some(Step::Texts(1)),
        "fixed-length-unsigned-integer" | "fixed-length-signed-integer" if class["alignment"] == 8 => {
            match length(class)? {
                bits @ (8 | 16 | 32 | 64) => Some(Step::Bytes(bits / 8)),
                _ => None,
            }
        }
        _ => None,
    }
}
