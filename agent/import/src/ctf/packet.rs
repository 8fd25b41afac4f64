//! Packets and the events in them (CTF 1.8.2, sections 5 and 6).
//!
//! A [`Decoder`] is of one stream. It is given windows of packets, and reads nothing itself.

use std::sync::Arc;

use super::decode::{Cursor, DecodeError, PacketPart, Stop, Ticks, Window};
use super::roles::{Role, last};
use super::schema::{Event as EventClass, Stream, Trace};
use super::types::Scope;
use super::value::{Value, field};
use crate::sink::MAX_CPUS;

/// First word of a packet.
const MAGIC: u64 = 0xc1fc_1fc1;

/// What is wrong with a packet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// It begins with something else.
    #[error("a packet should begin here with 0xc1fc1fc1, and {0:#x} is there")]
    Magic(u64),
    /// It is of another trace.
    #[error("the packet is of another trace: its UUID is not that of the metadata")]
    Uuid,
    /// It is of a CPU that no machine has.
    #[error("the packet is of CPU {0}, and no machine has more than {MAX_CPUS}")]
    Cpu(u64),
    /// The metadata do not say how it is made.
    #[error("the packet is of stream {0}, which the metadata do not declare")]
    UnknownStream(u64),
    /// Sizes that cannot be.
    #[error(
        "the packet says that it has {size} bits, {content} of them used, of which its own header takes {header}"
    )]
    Size {
        /// Bits of all of it.
        size: u64,
        /// Bits that are used.
        content: u64,
        /// Bits of header and context.
        header: u64,
    },
    /// A packet that ends before it is complete.
    #[error("the packet has {size} bytes, and the file ends after {left} of them: it is cut off")]
    Cut {
        /// Bytes of all of it.
        size: u64,
        /// Bytes that are there.
        left: u64,
    },
    /// An event that the metadata do not declare.
    #[error("there is an event with number {id} of stream {stream}, which the metadata do not declare")]
    UnknownEvent {
        /// Its number.
        id: u64,
        /// Its stream.
        stream: u64,
    },
    /// An event without anything.
    #[error("event {0} takes no space, and could be there any number of times")]
    Nothing(String),
    /// An event that is longer than any is.
    #[error("the event has more than {0} bytes")]
    Long(u64),
    /// A value that cannot be decoded.
    #[error("{0}")]
    Value(#[from] DecodeError),
}

/// Why decoding stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PacketStop {
    /// The window must be larger.
    Short,
    /// Something is wrong, so many bytes from the packet's begin.
    Error(PacketError, u64),
}

/// What a packet says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    /// Number of its kind of streams.
    pub stream: u64,
    /// Bytes of all of it.
    pub(crate) len: u64,
    /// Bits that are used.
    content: u64,
    /// Time of its begin, in ticks.
    pub begin: Option<u64>,
    /// Time of its end, in ticks.
    pub end: Option<u64>,
    /// How many events its stream has lost by its end, and how many bits that number has.
    pub discarded: Option<(u64, u8)>,
    pub(crate) cpu: Option<u32>,
    /// Its number in the stream.
    pub sequence: Option<u64>,
    /// Whether its UUID is not that of the metadata.
    pub(crate) is_foreign: bool,
    parts: Vec<PacketPart>,
    /// Bits before what is next.
    at: u64,
}

impl Packet {
    /// Whether there are events left.
    pub(crate) fn has_more(&self) -> bool {
        self.at < self.content
    }

    /// Bytes before what is next.
    pub(crate) fn position(&self) -> u64 {
        self.at / 8
    }

    /// Bytes that are used.
    pub(crate) fn content_len(&self) -> u64 {
        self.content.div_ceil(8)
    }
}

/// An event.
#[derive(Debug)]
pub(crate) struct Event<'t, 'w> {
    pub(crate) class: &'t EventClass,
    /// Its place among those of its stream.
    pub(crate) index: usize,
    /// Its time, in ticks.
    pub(crate) ticks: u64,
    /// Values of the stream's context.
    pub(crate) stream_context: Option<Vec<Value<'w>>>,
    /// Values of the event's own context.
    pub(crate) context: Option<Vec<Value<'w>>>,
    pub(crate) fields: Option<Vec<Value<'w>>>,
}

/// Decodes the packets of a stream.
#[derive(Debug)]
pub(crate) struct Decoder<'t> {
    trace: &'t Trace,
    /// Whether packets may have another UUID than the metadata.
    takes_foreign: bool,
    ticks: Ticks,
}

impl<'t> Decoder<'t> {
    pub(crate) fn new(trace: &'t Trace, takes_foreign: bool) -> Self {
        Self { trace, takes_foreign, ticks: Ticks::default() }
    }

    /// Decodes header and context of a packet. `left` is how many bytes the file has from its begin on.
    pub(crate) fn packet(&mut self, bytes: &[u8], left: u64) -> Result<Packet, PacketStop> {
        let window = Window { bytes, start: 0 };
        let all = left.saturating_mul(8);
        let mut cursor = Cursor::new(window, (0, all), self.trace.order, self.ticks, &[]);
        if let Some(of) = &self.trace.packet_header {
            step(&mut cursor, |cursor| cursor.decode(Scope::PacketHeader, of))?;
        }
        let wrong = |error| PacketStop::Error(error, 0);
        let header = cursor.part(Scope::PacketHeader);
        let in_header =
            |role| header.and_then(|part| last(part.of, &part.values, role)).map(|(value, _)| value);
        if let Some(magic) = in_header(Role::Magic).and_then(Value::unsigned)
            && magic != MAGIC
        {
            return Err(wrong(PacketError::Magic(magic)));
        }
        let is_foreign = match (in_header(Role::Uuid), self.trace.uuid) {
            (Some(Value::Numbers(bytes)), Some(uuid)) => {
                !bytes.iter().copied().eq(uuid.iter().map(|byte| u64::from(*byte)))
            }
            _ => false,
        };
        if is_foreign && !self.takes_foreign {
            return Err(wrong(PacketError::Uuid));
        }
        let streams = &self.trace.streams;
        let only = streams.keys().next().copied().filter(|_| streams.len() == 1);
        let id = in_header(Role::StreamClass).and_then(Value::unsigned).or(only).unwrap_or(0);
        let stream = streams.get(&id).ok_or(wrong(PacketError::UnknownStream(id)))?;
        if let Some(of) = &stream.packet_context {
            step(&mut cursor, |cursor| cursor.decode(Scope::PacketContext, of))?;
        }
        let packet = self.described(cursor, id, stream, left)?;
        Ok(Packet { is_foreign, ..packet })
    }

    /// What a packet says of itself, which was decoded.
    fn described(
        &mut self,
        cursor: Cursor<'_, '_>,
        id: u64,
        stream: &Stream,
        left: u64,
    ) -> Result<Packet, PacketStop> {
        let at = cursor.position();
        let context = cursor.part(Scope::PacketContext);
        let counted = |role| {
            let (value, bits) = context.and_then(|part| last(part.of, &part.values, role))?;
            Some((value.unsigned()?, bits))
        };
        let value = |role| counted(role).map(|(value, _)| value);
        let whole = left.saturating_mul(8);
        let (content, size) = match (value(Role::ContentSize), value(Role::PacketSize)) {
            (Some(content), Some(size)) => (content, size),
            (Some(one), None) | (None, Some(one)) => (one, one),
            (None, None) => (whole, whole),
        };
        if size == 0 || !size.is_multiple_of(8) || content > size || content < at {
            return Err(PacketStop::Error(PacketError::Size { size, content, header: at }, 0));
        }
        if size > whole {
            return Err(PacketStop::Error(PacketError::Cut { size: size / 8, left }, 0));
        }
        self.ticks = cursor.ticks;
        let begin = value(Role::Time).map(|_| self.ticks.0);
        let end = counted(Role::EndTime).map(|(low, bits)| {
            let mut end = self.ticks;
            end.update(low, bits);
            end.0
        });
        let discarded = counted(Role::Discarded);
        let cpu = context.and_then(|part| {
            let bits = part.of.fields.iter().find(|field| field.shown() == "cpu_id")?.ty.as_integer()?.bits;
            field(part.of, &part.values, "cpu_id")?.unsigned().filter(|cpu| !is_no_cpu(*cpu, bits))
        });
        if let Some(cpu) = cpu.filter(|cpu| *cpu >= u64::from(MAX_CPUS)) {
            return Err(PacketStop::Error(PacketError::Cpu(cpu), 0));
        }
        let cpu = cpu.map(|cpu| cpu as u32);
        let sequence = value(Role::Sequence);
        let structures = [
            (Scope::PacketHeader, &self.trace.packet_header),
            (Scope::PacketContext, &stream.packet_context),
        ];
        let parts = cursor.into_parts().into_iter().filter_map(|part| {
            let (_, of) = structures.iter().find(|(scope, _)| *scope == part.scope)?;
            let values = part.values.into_iter().map(Value::into_owned).collect();
            Some(PacketPart { scope: part.scope, of: Arc::clone(of.as_ref()?), values })
        });
        let parts = parts.collect();
        Ok(Packet {
            stream: id,
            len: size / 8,
            content,
            begin,
            end,
            discarded,
            cpu,
            sequence,
            is_foreign: false,
            parts,
            at,
        })
    }

    /// Decodes the next event of a packet, which has more.
    pub(crate) fn event<'w>(
        &mut self,
        packet: &mut Packet,
        window: Window<'w>,
    ) -> Result<Event<'t, 'w>, PacketStop> {
        let start = packet.at;
        let wrong = |error| PacketStop::Error(error, start / 8);
        let stream = self.trace.streams.get(&packet.stream);
        let stream = stream.ok_or(wrong(PacketError::UnknownStream(packet.stream)))?;
        let bounds = (start, packet.content);
        let order = self.trace.order;
        let mut cursor = Cursor::new(window, bounds, order, self.ticks, &packet.parts);
        let (class, index) = decode_event(&mut cursor, stream, packet.stream)?;
        let (at, ticks) = (cursor.position(), cursor.ticks);
        let mut parts = cursor.into_parts();
        let mut take = |scope| {
            let part = parts.iter_mut().find(|part| part.scope == scope)?;
            Some(std::mem::take(&mut part.values))
        };
        let stream_context = take(Scope::StreamContext);
        let (context, fields) = (take(Scope::EventContext), take(Scope::Fields));
        let event = Event { class, index, ticks: ticks.0, stream_context, context, fields };
        if at == start {
            return Err(wrong(PacketError::Nothing(event.class.name.clone())));
        }
        packet.at = at;
        self.ticks = ticks;
        Ok(event)
    }
}

/// Whether a number of so many bits is what tracers without a CPU write: all ones of it, or of 32 bits. In
/// less than 16 bits, all ones are the number of a CPU that machines have.
fn is_no_cpu(cpu: u64, bits: u8) -> bool {
    cpu == u64::from(u32::MAX) || bits >= 16 && cpu == u64::MAX >> u64::BITS.saturating_sub(bits.into())
}

/// Decodes the parts of an event. Gives what it is, and its place among those of its stream.
fn decode_event<'c, 't: 'c>(
    cursor: &mut Cursor<'c, '_>,
    stream: &'t Stream,
    stream_id: u64,
) -> Result<(&'t EventClass, usize), PacketStop> {
    let start = cursor.position();
    if let Some(of) = &stream.event_header {
        step(cursor, |cursor| cursor.decode(Scope::EventHeader, of))?;
    }
    let header = cursor.part(Scope::EventHeader);
    let id = header.and_then(|part| last(part.of, &part.values, Role::EventClass)?.0.unsigned());
    // One that is alone needs no number; else it is 0 (CTF 2, section 6.2).
    let only = match &stream.events[..] {
        [only] => Some(only.id),
        _ => None,
    };
    let id = id.or(only).unwrap_or(0);
    let unknown = || PacketStop::Error(PacketError::UnknownEvent { id, stream: stream_id }, start / 8);
    let index = *stream.by_id.get(&id).ok_or_else(unknown)?;
    let class = stream.events.get(index).ok_or_else(unknown)?;
    if let Some(of) = &stream.event_context {
        step(cursor, |cursor| cursor.decode(Scope::StreamContext, of))?;
    }
    if let Some(of) = &class.context {
        step(cursor, |cursor| cursor.decode(Scope::EventContext, of))?;
    }
    if let Some(of) = &class.fields {
        step(cursor, |cursor| cursor.decode(Scope::Fields, of))?;
    }
    Ok((class, index))
}

/// Decodes a part, with the place where it fails.
fn step<'t, 'w>(
    cursor: &mut Cursor<'t, 'w>,
    decode: impl FnOnce(&mut Cursor<'t, 'w>) -> Result<(), Stop>,
) -> Result<(), PacketStop> {
    decode(cursor).map_err(|stop| match stop {
        Stop::Short => PacketStop::Short,
        Stop::Error(error) => PacketStop::Error(error.into(), cursor.position() / 8),
    })
}
