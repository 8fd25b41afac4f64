//! Metadata of CTF 2 (CTF2-SPEC-2.0, section 5): JSON texts, before each of which there is a record separator
//! (RFC 7464).
//!
//! | module | what |
//! |---|---|
//! | `fields` | field classes |
//! | `object` | properties of JSON objects |
//! | `error` | what is wrong, and where |
//!
//! A fragment is read at a time. What it costs in memory is a small multiple of it: field classes with names
//! are shared, and nothing is expanded. Properties that are not known say nothing that changes how a trace is
//! read, but for extensions, which are refused.

mod error;
mod fields;
mod object;
#[cfg(test)]
mod tests;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

pub use error::{FragmentError, FragmentProblem};

use super::roles::MOST_COPIED;
use super::schema::{Clock, Event, Stream, Trace};
use super::types::{Struct, Type};
use FragmentProblem as Problem;
use ctf_writer::FRAGMENT_VALUES_MAX;
use fields::FieldClasses;
use ftrace_event::Endian;
use object::{Object, shown, wrong};

/// What stands before each fragment.
pub(crate) const SEPARATOR: char = '\x1e';

/// Reads metadata.
///
/// # Errors
/// What is not understood, with its fragment.
pub(crate) fn parse(text: &str) -> Result<Trace, FragmentError> {
    let mut declared = Declared::default();
    let (mut at, mut number) = (0, 0);
    let end = text.len();
    for fragment in text.split(SEPARATOR) {
        // Separators may be repeated (RFC 7464, section 2.1).
        if !fragment.trim().is_empty() {
            let fail = |problem| FragmentError { number: number.max(1), at, problem };
            declared.fragment(fragment).map_err(fail)?;
        }
        at += fragment.len() + SEPARATOR.len_utf8();
        number += 1;
    }
    let fail = |problem| FragmentError { number: number.saturating_sub(1), at: end, problem };
    declared.finish().map_err(fail)
}

/// What fragments have declared so far.
#[derive(Debug, Default)]
struct Declared {
    has_preamble: bool,
    uuid: Option<[u8; 16]>,
    trace: Option<Head>,
    classes: FieldClasses,
    clocks: Vec<Clock>,
    /// Whether there is a clock of an id.
    clock_ids: HashSet<String>,
    streams: BTreeMap<u64, Stream>,
    /// Fields that were made for parts of streams.
    copied: usize,
}

/// What the trace class has.
#[derive(Debug, Default)]
struct Head {
    packet_header: Option<Arc<Struct>>,
    env: Vec<(String, String)>,
    identity: Option<String>,
}

impl Declared {
    fn fragment(&mut self, text: &str) -> Result<(), Problem> {
        if stdx::json::values(text) > FRAGMENT_VALUES_MAX {
            return Err(Problem::Many);
        }
        let value: Value = serde_json::from_str(text).map_err(|error| Problem::Json(error.to_string()))?;
        let fragment = Object::new("fragment", &value)?;
        let kind = fragment.required("type")?;
        let extensions = fragment.object("extensions")?;
        if let Some((name, _)) = extensions.and_then(|of| of.properties().next()) {
            return Err(Problem::Unsupported(format!(
                "the extension {}",
                shown(&Value::from(name.as_str()))
            )));
        }
        let kind_name = kind.as_str().unwrap_or_default();
        if kind_name != "preamble" && !self.has_preamble {
            return Err(Problem::NoPreamble);
        }
        match kind_name {
            "preamble" => self.preamble(fragment.called("preamble")),
            "field-class-alias" => self.classes.name(fragment.called("field class alias")),
            "trace-class" => self.trace(fragment.called("trace class")),
            "clock-class" => self.clock(fragment.called("clock class")),
            "data-stream-class" => self.stream(fragment.called("data stream class")),
            "event-record-class" => self.event(fragment.called("event record class")),
            _ => Err(Problem::Unsupported(format!("a fragment of the type {}", shown(kind)))),
        }
    }

    fn preamble(&mut self, of: Object<'_>) -> Result<(), Problem> {
        if std::mem::replace(&mut self.has_preamble, true) {
            return Err(Problem::Twice("the preamble".to_owned()));
        }
        let missing = Problem::Missing { of: "preamble", name: "version" };
        match of.number("version")?.ok_or(missing)? {
            2 => {}
            other => return Err(Problem::Version(other)),
        }
        if let Some(value) = of.value("uuid") {
            let byte = |byte: &Value| byte.as_u64().and_then(|byte| u8::try_from(byte).ok());
            let bytes = value.as_array().and_then(|bytes| bytes.iter().map(byte).collect::<Option<Vec<_>>>());
            let uuid = bytes.and_then(|bytes| bytes.try_into().ok());
            self.uuid = Some(uuid.ok_or_else(|| wrong("uuid", value, "16 numbers below 256"))?);
        }
        Ok(())
    }

    fn trace(&mut self, of: Object<'_>) -> Result<(), Problem> {
        let packet_header = self.classes.structure(of, "packet-header-field-class")?;
        let mut env = Vec::new();
        for (name, value) in of.object("environment")?.into_iter().flat_map(Object::properties) {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => return Err(wrong("environment", value, "texts and numbers")),
            };
            env.push((name.clone(), text));
        }
        let part = |name| Ok(of.text(name)?.unwrap_or_default());
        // All three say which trace it is, if there is the last one.
        let identity = match of.text("uid")? {
            Some(uid) => Some([part("namespace")?, part("name")?, uid].join("\0")),
            None => None,
        };
        match self.trace.replace(Head { packet_header, env, identity }) {
            None => Ok(()),
            Some(_) => Err(Problem::Twice("the trace class".to_owned())),
        }
    }

    fn clock(&mut self, of: Object<'_>) -> Result<(), Problem> {
        let missing = |name| Problem::Missing { of: "clock class", name };
        let id = of.text("id")?.ok_or(missing("id"))?.to_owned();
        let frequency = of.number("frequency")?.ok_or(missing("frequency"))?;
        if frequency == 0 {
            let rule = "at least one tick a second";
            return Err(Problem::Value { name: "frequency", value: "0".to_owned(), rule });
        }
        // From another origin than the epoch, it is no distance to wall time.
        let absolute = of.value("origin").and_then(Value::as_str) == Some("unix-epoch");
        let offset = of.object("offset-from-origin")?.filter(|_| absolute);
        let offset = |name| offset.map_or(Ok(None), |offset| offset.signed(name));
        let clock = Clock {
            name: of.text("name")?.unwrap_or(&id).to_owned(),
            uuid: of.text("uid")?.map(str::to_owned),
            description: of.text("description")?.map(str::to_owned),
            frequency,
            offset_seconds: offset("seconds")?.unwrap_or(0),
            offset: offset("cycles")?.unwrap_or(0),
            absolute,
            id,
        };
        if !self.clock_ids.insert(clock.id.clone()) {
            return Err(Problem::Twice(format!("clock class {}", shown(&Value::from(clock.id)))));
        }
        self.clocks.push(clock);
        Ok(())
    }

    fn stream(&mut self, of: Object<'_>) -> Result<(), Problem> {
        let clock: Option<Arc<str>> = of.text("default-clock-class-id")?.map(Arc::from);
        if let Some(id) = clock.as_deref().filter(|id| !self.clock_ids.contains(*id)) {
            return Err(Problem::UnknownClock(shown(&Value::from(id))));
        }
        let structure = |name| self.classes.structure(of, name);
        let copied = &mut self.copied;
        let mut timed = |structure: Option<Arc<Struct>>| match (structure, &clock) {
            (Some(structure), Some(clock)) => Some(structure.with_clock(clock, copied)),
            (structure, _) => structure,
        };
        let stream = Stream {
            packet_context: timed(structure("packet-context-field-class")?),
            event_header: timed(structure("event-record-header-field-class")?),
            event_context: structure("event-record-common-context-field-class")?,
            ..Stream::default()
        };
        if self.copied > MOST_COPIED {
            return Err(Problem::Many);
        }
        let id = of.number("id")?.unwrap_or(0);
        match self.streams.entry(id) {
            Entry::Vacant(vacant) => {
                vacant.insert(stream);
                Ok(())
            }
            Entry::Occupied(_) => Err(Problem::Twice(format!("data stream class {id}"))),
        }
    }

    fn event(&mut self, of: Object<'_>) -> Result<(), Problem> {
        let id = of.number("id")?.unwrap_or(0);
        let event = Event {
            name: of.text("name")?.map_or_else(|| format!("event_{id}"), str::to_owned),
            id,
            context: self.classes.structure(of, "specific-context-field-class")?,
            fields: self.classes.structure(of, "payload-field-class")?,
        };
        let stream_id = of.number("data-stream-class-id")?.unwrap_or(0);
        let stream = self.streams.get_mut(&stream_id).ok_or(Problem::UnknownStream(stream_id))?;
        if stream.by_id.insert(id, stream.events.len()).is_some() {
            return Err(Problem::Twice(format!("event record class {id} of data stream class {stream_id}")));
        }
        stream.events.push(event);
        Ok(())
    }

    fn finish(self) -> Result<Trace, Problem> {
        if !self.has_preamble {
            return Err(Problem::NoPreamble);
        }
        let Self { uuid, clocks, streams, .. } = self;
        let Head { packet_header, env, identity } = self.trace.unwrap_or_default();
        let identity = identity.or_else(|| uuid.map(|uuid| format!("{:x}", u128::from_be_bytes(uuid))));
        let order = order(packet_header.as_deref(), &streams);
        Ok(Trace { uuid, identity, order, packet_header, env, clocks, streams })
    }
}

/// The byte order of the numbers that all packets have: each number has its own, and the file gets one.
fn order(packet_header: Option<&Struct>, streams: &BTreeMap<u64, Stream>) -> Endian {
    let contexts = streams.values().filter_map(|stream| stream.packet_context.as_deref());
    let headers = streams.values().filter_map(|stream| stream.event_header.as_deref());
    let fields = packet_header.into_iter().chain(contexts).chain(headers).flat_map(|of| &of.fields);
    let mut orders = fields.filter_map(|field| match &field.ty {
        Type::Integer(integer) => integer.order.filter(|_| integer.bits > 8),
        _ => None,
    });
    orders.next().unwrap_or(Endian::Little)
}
