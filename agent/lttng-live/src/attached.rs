//! A session that a viewer has attached to: the streams that it was told of, and how far it is in each.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
};

use super::{
    message::{Flags, Next, Reply, Told},
    sessions::Offered,
};
use ctf_writer::{Consumer, OpenFile, Packet, PacketFile, Published, PublishedStream};

/// Most streams in one answer: each takes four kilobytes.
const STREAMS_MAX: usize = 1 << 11;
/// Most bytes of a packet or of metadata in one answer.
const BYTES_MAX: u32 = 1 << 20;
/// Bytes of a packet of metadata: none is divided. Those of CTF 2 have no packets, and viewers read all that
/// there are before they take them apart.
const METADATA_PACKET: usize = 1 << 12;
/// How many closed trace chunks a viewer may be behind. What is in older ones is lost to it.
const CHUNKS_BEHIND: u64 = 16;
/// How often a packet is looked for again that was replaced at that moment.
const TRIES: usize = 4;

/// Where a viewer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seek {
    Beginning,
    Last,
}

/// The numbers that a viewer knows streams and traces by.
#[derive(Debug, Default)]
pub(super) struct Ids(u64);

impl Ids {
    pub(super) fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

/// A session that a viewer has attached to.
#[derive(Debug)]
pub(super) struct Attached {
    offered: Arc<Offered>,
    /// Its recordings that are not read to their end, the oldest first.
    parts: Vec<Part>,
    /// The number of the newest recording that is known.
    newest: u64,
    /// Streams that were told of.
    told: u64,
    /// Whether the viewer was told that nothing more comes.
    knows_end: bool,
}

/// One recording of a session.
#[derive(Debug)]
struct Part {
    consumer: Consumer,
    /// By the number that the trace has in the publication.
    traces: BTreeMap<u64, TraceAt>,
    /// By the viewer's number of the stream.
    streams: BTreeMap<u64, Cursor>,
    /// The streams that are known, by their numbers in the publication.
    known: BTreeSet<u64>,
    /// The oldest trace chunk that is held.
    held: u64,
}

/// What a viewer knows of a trace.
#[derive(Debug)]
struct TraceAt {
    id: u64,
    /// The viewer's number of its metadata stream.
    metadata: u64,
    /// Bytes of metadata that were sent.
    sent: usize,
}

/// How far a viewer is in a stream.
#[derive(Debug)]
struct Cursor {
    trace: u64,
    stream: u64,
    /// The number of the packet that is told of next.
    next: u64,
    /// The packet that was told of last.
    at: Option<At>,
    /// Up to when the viewer knows the stream.
    until: u64,
    /// How much earlier than known a beacon of the stream ends, in nanoseconds: no other has the same.
    /// babeltrace2 warns of beacons of several streams that are of one time, as it can tell them by nothing
    /// else.
    earlier: u64,
    has_hung_up: bool,
}

/// A packet that is read.
#[derive(Debug)]
struct At {
    file: PacketFile,
    packet: Packet,
    /// Bytes of metadata that were there when it was told of, which describe it.
    metadata: usize,
    /// Its file, from its first to its last byte.
    open: Option<OpenFile>,
}

/// What there is at a position.
enum Look {
    Packet(PacketFile),
    Nothing { is_over: bool, silent_until: u64, class: u32 },
}

impl Attached {
    /// Attaches to a session. Gives the streams that are told of at once.
    pub(super) fn new(offered: Arc<Offered>, seek: Seek, ids: &mut Ids) -> (Self, Vec<Told>) {
        offered.viewers.fetch_add(1, Ordering::Relaxed);
        let mut attached = Self { offered, parts: Vec::new(), newest: 0, told: 0, knows_end: false };
        attached.find_recordings();
        let told = attached.tell_streams(seek, ids);
        (attached, told)
    }

    pub(super) fn id(&self) -> u64 {
        self.offered.id
    }

    /// Takes the recordings that have begun since the last time.
    fn find_recordings(&mut self) {
        for (number, publication) in self.offered.recordings_after(self.newest) {
            self.newest = number;
            self.parts.push(Part::new(publication.consumer()));
        }
    }

    /// Tells of streams that the viewer does not know.
    pub(super) fn tell_streams(&mut self, seek: Seek, ids: &mut Ids) -> Vec<Told> {
        self.find_recordings();
        let Self { offered, parts, told, .. } = self;
        let mut streams = Vec::new();
        for part in parts {
            part.tell_streams((offered, seek), (ids, told), &mut streams);
        }
        streams
    }

    /// Whether all was told, and nothing more comes. The viewer knows that then.
    pub(super) fn ends(&mut self) -> bool {
        self.knows_end = self.offered.has_ended()
            && self.offered.recordings_after(self.newest).is_empty()
            && self.parts.iter().all(Part::is_over);
        self.knows_end
    }

    /// Whether the viewer may still want something.
    pub(super) fn is_read(&self) -> bool {
        !self.knows_end
    }

    /// The next packet of a stream. `None` if it is none of this session.
    pub(super) fn next(&mut self, id: u64) -> Option<(Next, Flags)> {
        self.find_recordings();
        let has_new_streams = self.parts.iter().any(Part::has_new_streams_now);
        let is_held = self.offered.is_held();
        let offered = &self.offered;
        self.parts.iter_mut().find_map(|part| part.next(offered, id, (has_new_streams, is_held)))
    }

    /// Answers with a part of the packet that was told of last. `None` if it is of no stream of this session.
    pub(super) fn packet(&mut self, wanted: (u64, u64, u32), reply: &mut Reply<'_>) -> Option<()> {
        let offered = &self.offered;
        self.parts.iter_mut().find_map(|part| part.packet(offered, wanted, reply))
    }

    /// Answers with the metadata of a trace that were not sent yet. `None` if it is none of this session.
    pub(super) fn metadata(&mut self, id: u64, reply: &mut Reply<'_>) -> Option<()> {
        self.parts.iter_mut().find_map(|part| part.metadata(id, reply))
    }

    /// Lets go of what the viewer has read, or is too far behind to read.
    pub(super) fn let_go(&mut self) {
        self.find_recordings();
        self.parts.retain(|part| !part.is_over());
        self.parts.iter_mut().for_each(Part::let_go);
    }
}

impl Part {
    fn new(consumer: Consumer) -> Self {
        let (traces, streams, known) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { consumer, traces, streams, known, held: 0 }
    }

    fn tell_streams(
        &mut self,
        (offered, seek): (&Offered, Seek),
        (ids, count): (&mut Ids, &mut u64),
        told: &mut Vec<Told>,
    ) {
        let Self { consumer, traces, streams, known, .. } = self;
        consumer.publication().read(|state| {
            if state.is_partial {
                // A viewer takes nothing of earlier than what it has.
                return;
            }
            for (&number, trace) in &state.traces {
                let path = format!("{}/{}/{}", offered.host, offered.name, trace.path);
                for (&stream, of) in &trace.streams {
                    if known.contains(&stream) {
                        continue;
                    }
                    if told.len() + 1 >= STREAMS_MAX {
                        return;
                    }
                    // Viewers forget a trace all of whose streams have ended.
                    let mut known_ones = streams.values().filter(|cursor: &&Cursor| cursor.trace == number);
                    if known_ones.all(|cursor| cursor.has_hung_up) {
                        let at = TraceAt { id: ids.next(), metadata: ids.next(), sent: 0 };
                        told.push(at.told(&path));
                        traces.insert(number, at);
                    }
                    let Some(at) = traces.get(&number) else { continue };
                    let id = ids.next();
                    told.push(Told {
                        id,
                        trace: at.id,
                        is_metadata: false,
                        path: path.clone(),
                        channel: of.name.clone(),
                    });
                    let next = match seek {
                        Seek::Beginning => of.files.front().map_or(of.packets, |file| file.first),
                        Seek::Last => of.packets,
                    };
                    streams.insert(id, Cursor::new((number, stream), next, *count));
                    *count += 1;
                    known.insert(stream);
                }
            }
        });
    }

    fn has_new_streams_now(&self) -> bool {
        self.consumer.publication().read(|state| self.has_new_streams(state))
    }

    /// Whether there are streams that the viewer does not know.
    fn has_new_streams(&self, state: &Published) -> bool {
        if state.is_partial {
            return false;
        }
        let newest = self.known.last().copied().unwrap_or(0);
        // Their numbers only grow; of more than one answer tells of, some are older.
        state.traces.values().any(|trace| trace.streams.last_key_value().is_some_and(|(of, _)| *of > newest))
            || state.traces.values().map(|trace| trace.streams.len()).sum::<usize>() > self.known.len()
    }

    /// Whether all was told, and nothing more comes.
    fn is_over(&self) -> bool {
        self.streams.values().all(|cursor| cursor.has_hung_up)
            && self.consumer.publication().read(|state| state.is_ended && !self.has_new_streams(state))
    }

    fn next(&mut self, offered: &Offered, id: u64, now: (bool, bool)) -> Option<(Next, Flags)> {
        if self.traces.values().any(|trace| trace.metadata == id) {
            // As relay daemons answer.
            return Some((Next::HungUp, Flags::default()));
        }
        let mut cursor = self.streams.remove(&id)?;
        let answer = self.next_of(offered, &mut cursor, now);
        self.streams.insert(id, cursor);
        Some(answer)
    }

    /// What comes next; nothing while the next recording of the session begins (`is_held`).
    fn next_of(
        &self,
        offered: &Offered,
        cursor: &mut Cursor,
        (has_new_streams, is_held): (bool, bool),
    ) -> (Next, Flags) {
        if is_held {
            return (Next::Retry, Flags::default());
        }
        cursor.at = None;
        for _ in 0..TRIES {
            let (look, metadata, streams) = self.consumer.publication().read(|state| {
                let trace = state.traces.get(&cursor.trace);
                let stream = trace.and_then(|trace| trace.streams.get(&cursor.stream));
                let metadata = trace.map_or(0, |trace| trace.metadata.len());
                // It may have become so since the others were asked.
                let streams = has_new_streams || self.has_new_streams(state);
                (cursor.look(stream, state.is_ended), metadata, streams)
            });
            let sent = self.traces.get(&cursor.trace).map_or(0, |trace| trace.sent);
            let flags = Flags { metadata: metadata > sent, streams };
            let file = match look {
                Look::Packet(file) => file,
                Look::Nothing { is_over: true, .. } => {
                    cursor.has_hung_up = true;
                    return (Next::HungUp, flags);
                }
                // What is new in streams that the viewer does not know may be from before that.
                Look::Nothing { silent_until, class, .. } => {
                    let until = silent_until.saturating_sub(cursor.earlier);
                    if until <= cursor.until || streams {
                        return (Next::Retry, flags);
                    }
                    cursor.until = until;
                    return (Next::Inactive(until, class.into()), flags);
                }
            };
            if let Some((packet, open)) = cursor.open(offered, &file) {
                cursor.next += 1;
                cursor.until = cursor.until.max(packet.end);
                cursor.at = Some(At { file, packet, metadata, open: Some(open) });
                return (Next::Packet(packet), flags);
            }
            // It is gone, for newer ones.
            cursor.next = file.first.saturating_add(file.packets);
        }
        (Next::Retry, Flags::default())
    }

    fn packet(
        &mut self,
        offered: &Offered,
        (id, offset, bytes): (u64, u64, u32),
        reply: &mut Reply<'_>,
    ) -> Option<()> {
        let cursor = self.streams.get_mut(&id)?;
        let Some(at) = &mut cursor.at else {
            reply.no_packet(Flags::default());
            return Some(());
        };
        if self.traces.get(&cursor.trace).is_none_or(|trace| trace.sent < at.metadata) {
            // It cannot be understood without them.
            reply.no_packet(Flags { metadata: true, streams: false });
            return Some(());
        }
        if at.read(offered, (offset, bytes), reply).is_none() {
            reply.no_packet(Flags::default());
        }
        Some(())
    }

    fn metadata(&mut self, id: u64, reply: &mut Reply<'_>) -> Option<()> {
        let (number, at) = self.traces.iter_mut().find(|(_, at)| at.metadata == id)?;
        self.consumer.publication().read(|state| {
            let all = state.traces.get(number).map_or(&[][..], |trace| &trace.metadata);
            let new = all.get(at.sent..).unwrap_or_default();
            let most = BYTES_MAX as usize / METADATA_PACKET * METADATA_PACKET;
            let now = &new[..new.len().min(most)];
            at.sent += now.len();
            reply.metadata(now);
        });
        Some(())
    }

    /// Lets go of the trace chunks that the viewer has read, or is too far behind to read.
    fn let_go(&mut self) {
        let Self { consumer, streams, held, .. } = self;
        let needed = consumer.publication().read(|state| {
            let newest = state.chunks.back().map_or(0, |chunk| chunk.number);
            let of = |cursor: &Cursor| {
                let stream = state.traces.get(&cursor.trace)?.streams.get(&cursor.stream)?;
                let next = |file: &&PacketFile| cursor.next < file.first.saturating_add(file.packets);
                Some(stream.files.iter().find(next)?.chunk)
            };
            let oldest = streams.values().filter_map(of).min().unwrap_or(newest);
            oldest.max(newest.saturating_sub(CHUNKS_BEHIND))
        });
        if needed > *held {
            *held = needed;
            consumer.needs_from(needed);
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.offered.viewers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TraceAt {
    fn told(&self, path: &str) -> Told {
        let (path, channel) = (path.to_owned(), "metadata".to_owned());
        Told { id: self.metadata, trace: self.id, is_metadata: true, path, channel }
    }
}

impl Cursor {
    fn new((trace, stream): (u64, u64), next: u64, earlier: u64) -> Self {
        Self { trace, stream, next, at: None, until: 0, earlier, has_hung_up: false }
    }

    /// Looks what there is, and passes over what is gone.
    fn look(&mut self, stream: Option<&PublishedStream>, is_ended: bool) -> Look {
        let Some(stream) = stream else {
            return Look::Nothing { is_over: true, silent_until: 0, class: 0 };
        };
        let is_there = |file: &&PacketFile| self.next < file.first.saturating_add(file.packets);
        match stream.files.iter().find(is_there) {
            Some(file) => {
                self.next = self.next.max(file.first);
                Look::Packet(file.clone())
            }
            None => {
                Look::Nothing { is_over: is_ended, silent_until: stream.silent_until, class: stream.class }
            }
        }
    }

    /// Opens the next packet in its file, if it is still there.
    fn open(&self, offered: &Offered, file: &PacketFile) -> Option<(Packet, OpenFile)> {
        let open = offered.open(file).ok()?;
        let packet = open.packet(self.next.checked_sub(file.first)?).ok()?;
        // A newer file may have got the name.
        let is_same = packet.sequence == self.next;
        let ends = packet.offset.checked_add(packet.packet_bits / 8)?;
        (is_same && packet.packet_bits >= 8 && ends <= file.bytes).then_some((packet, open))
    }
}

impl At {
    /// Answers with a part of it. `None` if it does not have that, or cannot be read any more.
    fn read(&mut self, offered: &Offered, (offset, bytes): (u64, u32), reply: &mut Reply<'_>) -> Option<()> {
        let Self { file, packet, open, .. } = self;
        let left = packet.offset.checked_add(packet.packet_bits / 8)?.checked_sub(offset)?;
        let bytes = u64::from(bytes.min(BYTES_MAX)).min(left);
        if offset < packet.offset || bytes == 0 {
            return None;
        }
        let source = if let Some(source) = open.take() {
            source
        } else {
            // It was read to its end before.
            let source = offered.open(file).ok()?;
            let there = source.packet(packet.sequence.checked_sub(file.first)?).ok()?;
            (there == *packet).then_some(source)?
        };
        reply.packet(bytes as u32, |into| source.read(offset, into)).ok()?;
        *open = (bytes < left).then_some(source);
        Some(())
    }
}
