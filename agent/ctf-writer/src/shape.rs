//! How many bytes an event takes: enough of the metadata to step over events without decoding them.
//!
//! The declarations are those that `metadata` writes, in CTF 1.8 one a line: integers of whole bytes, texts,
//! and arrays and sequences of these. A trace with other types, as LTTng itself writes some, has no shapes,
//! and its events are not counted.

use super::stream::{EventHeader, PREFIX};

/// A part of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// So many bytes.
    Bytes(usize),
    /// So many texts, each with its NUL.
    Texts(usize),
    /// A length of 32 bits, and as many elements of so many bytes.
    Sequence(usize),
}

/// The parts of some fields, one after the other.
pub(super) type Steps = Vec<Step>;

/// The shapes of a stream's events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StreamShape {
    header: EventHeader,
    context: Steps,
    /// By id.
    events: Vec<Option<Steps>>,
}

/// Most events of a stream that are looked at: no kernel has more.
const MAX_EVENTS: usize = 1 << 16;
/// Most streams of a trace that are looked at.
const MAX_STREAMS: usize = 1 << 12;

/// The shapes of all streams of a trace, by stream id. `None` if there is anything that is not understood.
pub(super) fn of_text(text: &str) -> Option<Vec<StreamShape>> {
    let mut streams: Vec<StreamShape> = Vec::new();
    let mut block = Block::default();
    for line in text.lines() {
        if !line.starts_with(char::is_whitespace) {
            match line.trim_end() {
                "stream {" => block = Block { kind: Kind::Stream, ..Block::default() },
                "event {" => block = Block { kind: Kind::Event, ..Block::default() },
                "};" => std::mem::take(&mut block).end(&mut streams)?,
                _ => block = Block::default(),
            }
            continue;
        }
        if block.kind != Kind::Other {
            block.line(line.trim())?;
        }
    }
    Some(streams)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Other,
    Stream,
    Event,
}

/// A block of the metadata that is being read.
#[derive(Debug, Default)]
struct Block {
    kind: Kind,
    id: Option<usize>,
    stream: Option<usize>,
    header: Option<EventHeader>,
    steps: Steps,
}

impl Block {
    fn line(&mut self, line: &str) -> Option<()> {
        let line = line.strip_suffix(';').unwrap_or(line);
        if let Some((name, value)) = line.split_once(" := ") {
            match (name, value) {
                ("event.header", "struct event_header_compact") => self.header = Some(EventHeader::Compact),
                ("event.header", "struct event_header_large") => self.header = Some(EventHeader::Large),
                ("packet.context", "struct packet_context")
                | ("event.context" | "context" | "fields", "struct {") => {}
                _ => return None,
            }
        } else if line.starts_with("integer") || line.starts_with("string") {
            self.field(line)?;
        } else if let Some((name, value)) = line.split_once(" = ") {
            match name {
                "id" => self.id = value.parse().ok(),
                "stream_id" => self.stream = value.parse().ok(),
                _ => {}
            }
        } else if line != "}" {
            return None;
        }
        Some(())
    }

    /// `integer { size = 32; ... } _name`, `string _name`, each with a length after the name, or none.
    fn field(&mut self, line: &str) -> Option<()> {
        let (size, name) = if let Some(name) = line.strip_prefix("string ") {
            (None, name)
        } else {
            let (attributes, name) = line.strip_prefix("integer {")?.split_once("} ")?;
            let mut attributes = attributes.split(';').filter_map(|part| part.trim().split_once(" = "));
            let bits: usize = attributes.find(|(name, _)| *name == "size")?.1.parse().ok()?;
            (Some(bits / 8).filter(|size| matches!(size, 1 | 2 | 4 | 8)), name)
        };
        let length = name.split_once('[').map(|(_, length)| length.trim_end_matches(']').trim());
        let step = match (size, length) {
            (None, None) => Step::Texts(1),
            (None, Some(count)) => Step::Texts(count.parse().ok()?),
            (Some(size), None) => Step::Bytes(size),
            (Some(size), Some(length)) => {
                if let Ok(count) = length.parse::<usize>() {
                    Step::Bytes(size.checked_mul(count)?)
                } else {
                    // The length is the field before.
                    self.steps.pop().filter(|step| *step == Step::Bytes(4))?;
                    Step::Sequence(size)
                }
            }
        };
        if line.starts_with("integer") && size.is_none() {
            return None;
        }
        self.steps.push(step);
        Some(())
    }

    fn end(self, streams: &mut Vec<StreamShape>) -> Option<()> {
        match self.kind {
            Kind::Other => {}
            Kind::Stream => StreamShape::add(streams, (self.id?, self.header?), self.steps)?,
            Kind::Event => streams.get_mut(self.stream?)?.add_event(self.id?, self.steps)?,
        }
        Some(())
    }
}

impl StreamShape {
    /// Adds a stream with its event header and the parts of its context. `None` if it is not the next one.
    pub(super) fn add(
        streams: &mut Vec<Self>,
        (id, header): (usize, EventHeader),
        context: Steps,
    ) -> Option<()> {
        let is_next = id == streams.len() && id < MAX_STREAMS;
        is_next.then(|| streams.push(Self { header, context, events: Vec::new() }))
    }

    /// Adds an event with its parts. `None` if there are no events with such numbers.
    pub(super) fn add_event(&mut self, id: usize, parts: Steps) -> Option<()> {
        if id >= MAX_EVENTS {
            return None;
        }
        if self.events.len() <= id {
            self.events.resize(id + 1, None);
        }
        self.events[id] = Some(parts);
        Some(())
    }

    /// The events of a packet, of which `packet` is the content. `None` if it does not end where its last
    /// event does.
    pub(super) fn count(&self, packet: &[u8]) -> Option<u64> {
        let mut rest = packet.get(PREFIX..)?;
        let mut count = 0;
        while !rest.is_empty() {
            let id = self.skip_header(&mut rest)?;
            let event = self.events.get(id as usize)?.as_ref()?;
            for step in self.context.iter().chain(event) {
                rest = step.skip(rest)?;
            }
            count += 1;
        }
        Some(count)
    }

    /// Steps over an event header, which holds the event's id.
    fn skip_header(&self, rest: &mut &[u8]) -> Option<u32> {
        let (id, len) = match self.header {
            EventHeader::Compact => (u32::from(rest.first()? & 31), 4),
            EventHeader::Large => (u16::from_le_bytes(*rest.first_chunk()?).into(), 6),
        };
        let extended = match self.header {
            EventHeader::Compact => (id == 31).then_some(1),
            EventHeader::Large => (id == 0xffff).then_some(2),
        };
        let (id, len) = match extended {
            // The id in 32 bits, the time in 64.
            Some(at) => (u32::from_le_bytes(*rest.get(at..)?.first_chunk()?), at + 12),
            None => (id, len),
        };
        *rest = rest.get(len..)?;
        Some(id)
    }
}

impl Step {
    fn skip(self, bytes: &[u8]) -> Option<&[u8]> {
        match self {
            Self::Bytes(len) => bytes.get(len..),
            Self::Texts(count) => (0..count).try_fold(bytes, |bytes, _| {
                let end = bytes.iter().position(|byte| *byte == 0)?;
                bytes.get(end + 1..)
            }),
            Self::Sequence(size) => {
                let len = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
                bytes.get(len.checked_mul(size)?.checked_add(4)?..)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::metadata::declare;
    use super::super::types::{Integer, Type};
    use super::*;

    fn text(fields: &[Type]) -> String {
        let mut text = "stream {\n\tid = 0;\n\tevent.header := struct event_header_compact;\n\
            \tpacket.context := struct packet_context;\n\tevent.context := struct {\n"
            .to_owned();
        declare(&Type::Integer(Integer::new(4, true)), "pid", &mut text);
        text += "\t};\n};\n\nevent {\n\tname = \"a:b\";\n\tid = 0;\n\tstream_id = 0;\n\tfields := struct {\n";
        for (index, field) in fields.iter().enumerate() {
            declare(field, &format!("f{index}"), &mut text);
        }
        text + "\t};\n};\n"
    }

    #[test]
    fn declarations_become_steps() {
        let element = Integer::new(2, false);
        let fields = [
            Type::Integer(Integer::hex(8)),
            Type::String,
            Type::Strings { count: 2 },
            Type::TextArray { len: 16 },
            Type::Array { element, count: 3 },
            Type::Sequence { element },
        ];
        let shapes = of_text(&text(&fields)).unwrap();
        assert_eq!(shapes[0].context, [Step::Bytes(4)]);
        let steps = [
            Step::Bytes(8),
            Step::Texts(1),
            Step::Texts(2),
            Step::Bytes(16),
            Step::Bytes(6),
            Step::Sequence(2),
        ];
        assert_eq!(shapes[0].events, [Some(steps.to_vec())]);
        assert_eq!(of_text(&text(&[]).replace("\tfields := struct {", "\tenum : uint8_t { a } _x;")), None);
    }

    #[test]
    fn events_are_counted() {
        let shape = &of_text(&text(&[Type::String, Type::Sequence { element: Integer::hex(1) }])).unwrap()[0];
        let mut packet = vec![0; PREFIX];
        assert_eq!(shape.count(&packet), Some(0));
        for (header, text) in [(vec![0; 4], "ab"), ([&[31][..], &[0; 12]].concat(), "")] {
            packet.extend(header);
            packet.extend([0; 4]);
            packet.extend(text.bytes());
            packet.extend([0, 3, 0, 0, 0, 9, 9, 9]);
        }
        assert_eq!(shape.count(&packet), Some(2));
        for end in PREFIX + 1..packet.len() {
            assert!(shape.count(&packet[..end]).is_none_or(|count| count == 1), "{end}");
        }
        packet[PREFIX] = 5;
        assert_eq!(shape.count(&packet), None);
    }
}
