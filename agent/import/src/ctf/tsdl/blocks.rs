//! The blocks `trace`, `env`, `clock`, `stream` and `event` (CTF 1.8.2, section 7 and appendix C.2).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::attributes;
use super::declaration::Parser;
use super::error::Problem;
use super::lexer::shortened;
use super::words::{Word, Wrong};
use crate::ctf::roles::MOST_COPIED;
use crate::ctf::schema::{Clock, Event, Stream, Trace};
use crate::ctf::types::{Scope, Struct, Type};
use ftrace_event::Endian;

/// What stands in a block.
struct Block {
    at: usize,
    /// Values by name, each with its place.
    values: Vec<(String, Word, usize)>,
    /// Types by name, each with its place.
    types: Vec<(String, Type, usize)>,
}

impl Block {
    fn value(&self, name: &str) -> Option<(&Word, usize)> {
        let value = self.values.iter().find(|(known, ..)| known == name);
        value.map(|(_, value, at)| (value, *at))
    }

    /// A structure.
    fn structure(&self, name: &'static str) -> Result<Option<Arc<Struct>>, Wrong> {
        match self.types.iter().find(|(known, ..)| known == name) {
            None => Ok(None),
            Some((_, Type::Struct(structure), _)) => Ok(Some(structure.clone())),
            Some((_, _, at)) => Err((Problem::NotAStructure(name), *at)),
        }
    }

    /// A structure whose fields have the roles of their names.
    fn part(
        &self,
        scope: Scope,
        name: &'static str,
        copied: &mut usize,
    ) -> Result<Option<Arc<Struct>>, Wrong> {
        let part = self.structure(name)?.map(|of| of.with_roles(scope, copied));
        if *copied > MOST_COPIED { Err((Problem::Many(MOST_COPIED), self.at)) } else { Ok(part) }
    }

    /// A number that is not negative.
    fn number(&self, name: &'static str) -> Result<Option<u64>, Wrong> {
        let Some((value, at)) = self.value(name) else { return Ok(None) };
        let number = match value {
            Word::Number(number) => u64::try_from(*number).ok(),
            Word::Text(_) | Word::Name(_) => None,
        };
        number.map(Some).ok_or_else(|| (wrong_value(name, value, "a number of 64 bits"), at))
    }

    /// A number with a sign.
    fn signed(&self, name: &'static str) -> Result<Option<i64>, Wrong> {
        let Some((value, at)) = self.value(name) else { return Ok(None) };
        let number = match value {
            Word::Number(number) => i64::try_from(*number).ok(),
            Word::Text(_) | Word::Name(_) => None,
        };
        number.map(Some).ok_or_else(|| (wrong_value(name, value, "a number of 64 bits with a sign"), at))
    }

    /// A text, or a word where a text should be.
    fn text(&self, name: &'static str) -> Result<Option<String>, Wrong> {
        match self.value(name) {
            None => Ok(None),
            Some((Word::Text(text) | Word::Name(text), _)) => Ok(Some(text.clone())),
            Some((value, at)) => Err((wrong_value(name, value, "a text"), at)),
        }
    }

    fn uuid(&self) -> Result<Option<[u8; 16]>, Wrong> {
        let Some(text) = self.text("uuid")? else { return Ok(None) };
        let wrong = || {
            let at = self.value("uuid").map_or(self.at, |(_, at)| at);
            let value = shortened(&text);
            (Problem::Value { name: "uuid", value, rule: "32 hexadecimal digits with dashes" }, at)
        };
        uuid(&text).map(Some).ok_or_else(wrong)
    }
}

/// The bytes of a UUID.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let mut uuid = [0; 16];
    let mut digits = text.chars().filter(|c| *c != '-').map(|c| c.to_digit(16));
    for byte in &mut uuid {
        *byte = (digits.next()?? << 4 | digits.next()??) as u8;
    }
    digits.next().is_none().then_some(uuid)
}

fn wrong_value(name: &'static str, value: &Word, rule: &'static str) -> Problem {
    Problem::Value { name, value: value.shown(), rule }
}

/// What was declared so far.
#[derive(Default)]
struct Declared {
    trace: Option<Head>,
    env: Vec<(String, String)>,
    clocks: Vec<Clock>,
    streams: BTreeMap<u64, Stream>,
    /// Events, by the streams that they name, each with its place.
    events: Vec<(Option<u64>, Event, usize)>,
    /// Fields that were made for parts of streams.
    copied: usize,
}

/// What the block `trace` says.
struct Head {
    uuid: Option<[u8; 16]>,
    order: Endian,
    packet_header: Option<Arc<Struct>>,
}

/// Reads metadata.
pub(super) fn parse(text: &str) -> Result<Trace, Wrong> {
    let mut parser = Parser::new(text)?;
    let mut declared = Declared::default();
    while *parser.words.peek() != super::lexer::Token::End {
        if parser.words.take_sign(";")? || parser.declares()? {
            continue;
        }
        let at = parser.words.at();
        let word = parser.words.name("a block or a declaration")?;
        match word.as_str() {
            "trace" => declared.trace(&block(&mut parser)?)?,
            "env" => declared.env(&block(&mut parser)?),
            "clock" => declared.clock(&block(&mut parser)?)?,
            "stream" => declared.stream(&block(&mut parser)?)?,
            "event" => declared.event(&block(&mut parser)?)?,
            // Where in a program events are: nothing that is needed to read them.
            "callsite" => drop(block(&mut parser)?),
            _ => {
                let wanted = "trace, env, clock, stream, event, callsite or a declaration";
                return Err((Problem::Expected { wanted, found: format!("`{}`", shortened(&word)) }, at));
            }
        }
        parser.words.sign(";")?;
    }
    declared.finish(parser.words.at())
}

/// `{ name = value; name := type; ... }`
fn block(parser: &mut Parser<'_>) -> Result<Block, Wrong> {
    let at = parser.words.at();
    parser.scoped(|parser| {
        let mut block = Block { at, values: Vec::new(), types: Vec::new() };
        let mut names = std::collections::HashSet::new();
        parser.words.sign("{")?;
        while !parser.words.take_sign("}")? {
            if parser.declares()? {
                continue;
            }
            let at = parser.words.at();
            let name = parser.words.dotted("the name of a value")?;
            if !names.insert(name.clone()) {
                return Err((Problem::Twice(shortened(&name)), at));
            }
            if parser.words.take_sign(":=")? {
                let ty = parser.specifiers()?;
                block.types.push((name, ty, at));
            } else {
                parser.words.sign("=")?;
                let at = parser.words.at();
                let value = parser.words.value()?;
                block.values.push((name, value, at));
            }
            parser.words.sign(";")?;
        }
        Ok(block)
    })
}

impl Declared {
    fn trace(&mut self, block: &Block) -> Result<(), Wrong> {
        if self.trace.is_some() {
            return Err((Problem::Twice("the trace".to_owned()), block.at));
        }
        let version = |name| match block.value(name) {
            Some((Word::Number(number), _)) => Ok(*number),
            _ => Err((Problem::Missing { of: "trace", name }, block.at)),
        };
        let (major, minor) = (version("major")?, version("minor")?);
        if (major, minor) != (1, 8) {
            return Err((Problem::Version(major, minor), block.at));
        }
        let missing = (Problem::Missing { of: "trace", name: "byte_order" }, block.at);
        let (order, at) = block.value("byte_order").ok_or_else(|| missing.clone())?;
        let order = attributes::byte_order(order).map_err(|problem| (problem, at))?.ok_or(missing)?;
        let packet_header = block.part(Scope::PacketHeader, "packet.header", &mut self.copied)?;
        self.trace = Some(Head { uuid: block.uuid()?, order, packet_header });
        Ok(())
    }

    fn env(&mut self, block: &Block) {
        for (name, value, _) in &block.values {
            let value = match value {
                Word::Number(number) => number.to_string(),
                Word::Text(text) | Word::Name(text) => text.clone(),
            };
            self.env.push((name.clone(), value));
        }
    }

    fn clock(&mut self, block: &Block) -> Result<(), Wrong> {
        let missing = (Problem::Missing { of: "clock", name: "name" }, block.at);
        let name = block.text("name")?.ok_or(missing)?;
        let frequency = block.number("freq")?.unwrap_or(1_000_000_000);
        if frequency == 0 {
            let rule = "at least one tick a second";
            return Err((Problem::Value { name: "freq", value: "0".to_owned(), rule }, block.at));
        }
        let absolute = match block.value("absolute") {
            Some((value, at)) => attributes::absolute(value).map_err(|problem| (problem, at))?,
            None => false,
        };
        let clock = Clock {
            id: name.clone(),
            name,
            uuid: block.text("uuid")?,
            description: block.text("description")?,
            frequency,
            offset_seconds: block.signed("offset_s")?.unwrap_or(0),
            offset: block.signed("offset")?.unwrap_or(0),
            absolute,
        };
        match self.clocks.iter().find(|known| known.name == clock.name) {
            // babeltrace2 declares a clock once for each stream.
            Some(known) if *known == clock => {}
            Some(_) => return Err((Problem::Twice(format!("clock {}", shortened(&clock.name))), block.at)),
            None => self.clocks.push(clock),
        }
        Ok(())
    }

    fn stream(&mut self, block: &Block) -> Result<(), Wrong> {
        let stream = Stream {
            packet_context: block.part(Scope::PacketContext, "packet.context", &mut self.copied)?,
            event_header: block.part(Scope::EventHeader, "event.header", &mut self.copied)?,
            event_context: block.structure("event.context")?,
            ..Stream::default()
        };
        let id = block.number("id")?.unwrap_or(0);
        match self.streams.entry(id) {
            Entry::Vacant(vacant) => {
                vacant.insert(stream);
                Ok(())
            }
            Entry::Occupied(_) => Err((Problem::Twice(format!("stream {id}")), block.at)),
        }
    }

    fn event(&mut self, block: &Block) -> Result<(), Wrong> {
        let missing = (Problem::Missing { of: "event", name: "name" }, block.at);
        let event = Event {
            name: block.text("name")?.ok_or(missing)?,
            id: block.number("id")?.unwrap_or(0),
            context: block.structure("context")?,
            fields: block.structure("fields")?,
        };
        self.events.push((block.number("stream_id")?, event, block.at));
        Ok(())
    }

    /// Gives the events to their streams.
    fn finish(mut self, end: usize) -> Result<Trace, Wrong> {
        let head = self.trace.take().ok_or((Problem::Missing { of: "text", name: "trace block" }, end))?;
        let only = self.streams.keys().next().copied().filter(|_| self.streams.len() == 1);
        // A trace of a single stream need not declare it (section 7.3.1).
        if self.streams.is_empty() {
            self.streams.insert(0, Stream::default());
        }
        for (stream_id, event, at) in self.events {
            let id = stream_id.or(only).unwrap_or(0);
            let stream = self.streams.get_mut(&id).ok_or((Problem::UnknownStream(id), at))?;
            if stream.by_id.insert(event.id, stream.events.len()).is_some() {
                let name = shortened(&event.name);
                return Err((Problem::Twice(format!("event {} ({name}) of stream {id}", event.id)), at));
            }
            stream.events.push(event);
        }
        let Head { uuid, order, packet_header } = head;
        let (env, clocks, streams) = (self.env, self.clocks, self.streams);
        let identity = uuid.map(|uuid| format!("{:x}", u128::from_be_bytes(uuid)));
        Ok(Trace { uuid, identity, order, packet_header, env, clocks, streams })
    }
}
