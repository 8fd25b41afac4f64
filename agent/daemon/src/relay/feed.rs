//! What of a recording's trace has gone to the relay daemon, and what is next.

use std::{collections::BTreeMap, io, sync::Arc};

use ctf_writer::{
    Consumer, FileLimits, MetadataFile, Packet, PacketFile, Publication, Published, PublishedChunk,
};
use lttng_relay::{METADATA, RelayError, Shipment, StreamLimits, StreamName};

/// Bytes of packets that are sent between two looks at everything else.
const STEP: u64 = 4 << 20;
/// Bytes of packets, or packets, that may be on their way without being known to be stored.
const UNKNOWN_MAX: u64 = 16 << 20;
/// So many bytes more of a file have to be stored before their space is given back.
const RELEASE: u64 = 1 << 20;
/// The largest packet: the protocol has 32 bits for its size, and so has nobody a sub-buffer.
const PACKET_MAX: u64 = 1 << 31;

/// Why something was not sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum FeedError {
    #[error(transparent)]
    Relay(#[from] RelayError),
    #[error("what is to be sent cannot be read: {0}")]
    Local(#[from] io::Error),
}

/// The trace of a recording.
#[derive(Debug)]
pub(super) struct Feed {
    consumer: Consumer,
    /// The chunk that is sent, and those before are not looked at any more.
    from: u64,
    /// Chunks from this one on are not sent.
    cut: Option<u64>,
    metadata: BTreeMap<u64, SentMetadata>,
    cursors: BTreeMap<(u64, u64), Cursor>,
    /// Bytes that were sent and are not known to be stored.
    unknown: u64,
    /// The chunk that is being recorded and is not sent, as some of it cannot be read.
    skipping: Option<u64>,
    /// Bytes of packets in such chunks that are closed.
    skipped: u64,
    buffer: Vec<u8>,
}

/// Metadata of a trace that were sent in the chunk.
#[derive(Clone, Copy, Debug, Default)]
struct SentMetadata {
    version: u64,
    bytes: u64,
}

/// How far a stream is. Packets are counted over all of its files.
#[derive(Clone, Debug, Default)]
struct Cursor {
    name: StreamName,
    sent: u64,
    stored: u64,
    /// The file that `sent` is in, by the number of its first packet, and where in it.
    sent_to: (u64, u64),
    stored_to: (u64, u64),
    /// Bytes of that file that were given back.
    released: u64,
    /// Up to when the relay daemon knows that there is nothing more.
    silent_until: u64,
}

/// A chunk that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Current {
    pub(super) number: u64,
    pub(super) begin_ns: Option<u64>,
    /// Whether all of it is there.
    pub(super) is_closed: bool,
    pub(super) end_ns: Option<u64>,
}

/// What was to be sent at a moment.
struct Plan {
    metadata: Vec<(u64, String, MetadataFile)>,
    files: Vec<((u64, u64), StreamName, FileLimits, PacketFile)>,
    /// The streams that have been silent, the classes of which they are, and up to when.
    silent: Vec<((u64, u64), u64, u64)>,
}

impl Feed {
    /// Follows what a recording writes from now on. If more than `bound` bytes wait, it writes no more of it.
    pub(super) fn new(publication: &Arc<Publication>, bound: u64) -> Self {
        let consumer = publication.consumer();
        consumer.bound(bound);
        let (metadata, cursors) = (BTreeMap::new(), BTreeMap::new());
        Self {
            consumer,
            from: 0,
            cut: None,
            metadata,
            cursors,
            unknown: 0,
            skipping: None,
            skipped: 0,
            buffer: Vec::new(),
        }
    }

    pub(super) fn publication(&self) -> &Arc<Publication> {
        self.consumer.publication()
    }

    /// The chunk that is to be sent next.
    pub(super) fn current(&self) -> Option<Current> {
        self.publication().read(|state| {
            let is_next = |number: u64| number >= self.from && self.cut.is_none_or(|cut| number < cut);
            if state.is_partial {
                return None;
            }
            let chunk = state.chunks.iter().find(|chunk| is_next(chunk.number))?;
            // One that has just begun is looked at when its traces are known.
            if chunk.metadata.is_empty() && !chunk.is_closed {
                return None;
            }
            let PublishedChunk { number, begin_ns, end_ns, is_closed, .. } = *chunk;
            Some(Current { number, begin_ns, is_closed, end_ns })
        })
    }

    /// Whether nothing more is to be sent, now or later.
    pub(super) fn is_over(&self) -> bool {
        (self.cut.is_some() || self.publication().read(|state| state.is_ended)) && self.current().is_none()
    }

    /// Leaves out the chunks from this one on.
    pub(super) fn cut(&mut self, from: u64) {
        self.cut = Some(self.cut.map_or(from, |cut| cut.min(from)));
        self.skipping = self.skipping.filter(|number| *number < from);
        self.tell_waiting();
    }

    /// Whether a stream of the chunk before is in this one, too.
    pub(super) fn has(&self, chunk: u64, name: &StreamName) -> bool {
        self.publication().read(|state| {
            let there = state.chunks.iter().find(|of| of.number == chunk);
            let mut traces = there.into_iter().flat_map(|of| of.metadata.keys());
            traces.any(|number| {
                state.traces.get(number).is_some_and(|trace| {
                    let has_file = || {
                        let mut files = trace.streams.values().filter(|of| of.name == name.1);
                        files.any(|of| of.files.iter().any(|file| file.chunk == chunk))
                    };
                    trace.path == name.0 && (name.1 == METADATA || has_file())
                })
            })
        })
    }

    /// Goes on with the next chunk.
    pub(super) fn finish_chunk(&mut self, number: u64) {
        self.from = number + 1;
        self.metadata.clear();
        self.unknown = 0;
        self.tell_waiting();
        self.consumer.needs_from(self.skipping.unwrap_or(self.from));
    }

    /// Goes on with the next chunk, and sends nothing more of this one.
    pub(super) fn skip_chunk(&mut self, number: u64) {
        self.skipping = Some(number);
        self.finish_chunk(number);
    }

    /// Bytes of packets that are not stored at the relay daemon, and stay here, as their chunks were skipped.
    pub(super) fn skipped(&mut self) -> u64 {
        let Some(number) = self.skipping else { return self.skipped };
        let (bytes, is_closed) = self.publication().read(|state| {
            let open = state.chunks.iter().any(|chunk| chunk.number == number && !chunk.is_closed);
            (self.missing_of(state, |chunk| chunk == number), !open || state.is_ended)
        });
        if is_closed {
            (self.skipping, self.skipped) = (None, self.skipped.saturating_add(bytes));
            self.consumer.needs_from(self.from);
            return self.skipped;
        }
        self.skipped.saturating_add(bytes)
    }

    /// Sends again what is not known to be stored.
    pub(super) fn rewind(&mut self) {
        self.metadata.clear();
        self.unknown = 0;
        for cursor in self.cursors.values_mut() {
            cursor.sent = cursor.stored;
            cursor.sent_to = cursor.stored_to;
        }
    }

    /// Sends some of what there is of a chunk. Gives whether there was anything.
    pub(super) fn send(&mut self, chunk: u64, shipment: &mut Shipment) -> Result<bool, FeedError> {
        let mut left = if self.unknown >= UNKNOWN_MAX { 0 } else { STEP };
        let Plan { metadata, files, silent } = self.plan(chunk);
        let mut has_sent = false;
        for (trace, path, file) in metadata {
            has_sent |= self.send_metadata((trace, &path), &file, shipment)?;
        }
        for (key, name, limits, file) in files {
            let limits = StreamLimits {
                size: limits.size.unwrap_or_default(),
                count: limits.count.unwrap_or_default(),
            };
            shipment.add(&name, limits)?;
            let cursor = self.cursors.entry(key).or_default();
            cursor.name = name;
            if left > 0 {
                let sent = send_packets(cursor, &file, (&mut left, &mut self.buffer), shipment)?;
                self.unknown += sent;
                has_sent |= sent != 0;
            }
        }
        shipment.publish()?;
        for (key, class, until) in silent {
            let Some(cursor) = self.cursors.get_mut(&key) else { continue };
            if shipment.send_beacon(&cursor.name, (class, until))? {
                cursor.silent_until = until;
            }
        }
        Ok(has_sent)
    }

    /// What is to be sent of a chunk: metadata before the packets that need them.
    fn plan(&self, chunk: u64) -> Plan {
        self.publication().read(|state| {
            let mut plan = Plan { metadata: Vec::new(), files: Vec::new(), silent: Vec::new() };
            let Some(chunk) = state.chunks.iter().find(|of| of.number == chunk) else { return plan };
            for (number, file) in &chunk.metadata {
                let Some(trace) = state.traces.get(number) else { continue };
                plan.metadata.push((*number, trace.path.clone(), file.clone()));
                for (stream_number, stream) in &trace.streams {
                    let key = (*number, *stream_number);
                    let sent = self.cursors.get(&key).map(|cursor| (cursor.sent, cursor.sent_to.0));
                    // A file is known at the relay daemon, too, before there is anything in it.
                    let is_new = |file: &&PacketFile| {
                        file.chunk == chunk.number
                            && sent
                                .is_none_or(|(sent, at)| sent < file.first + file.packets || at < file.first)
                    };
                    for file in stream.files.iter().filter(is_new) {
                        let name = (trace.path.clone(), stream.name.clone());
                        plan.files.push((key, name, stream.limits, file.clone()));
                    }
                    let cursor = self.cursors.get(&key).filter(|cursor| cursor.stored >= stream.packets);
                    // babeltrace2 warns of beacons of several streams that are of one time, as it can tell
                    // them by nothing else: each is a few nanoseconds earlier.
                    let until = stream.silent_until.saturating_sub(*stream_number);
                    if cursor.is_some_and(|cursor| cursor.silent_until < until) {
                        plan.silent.push((key, stream.class.into(), until));
                    }
                }
            }
            plan
        })
    }

    /// Sends the metadata of a trace that were not sent. Gives whether there were any.
    fn send_metadata(
        &mut self,
        (trace, path): (u64, &str),
        file: &MetadataFile,
        shipment: &mut Shipment,
    ) -> Result<bool, FeedError> {
        let sent = self.metadata.entry(trace).or_insert(SentMetadata { version: file.version, bytes: 0 });
        if sent.version != file.version {
            shipment.reset_metadata(path, file.version)?;
            *sent = SentMetadata { version: file.version, bytes: 0 };
        }
        // Of a trace that has just begun, there is no file yet.
        if sent.bytes >= file.bytes {
            return Ok(false);
        }
        let mut bytes = vec![0; usize::try_from(file.bytes - sent.bytes).unwrap_or_default()];
        std::os::unix::fs::FileExt::read_exact_at(&file.open()?, &mut bytes, sent.bytes)?;
        // If it has been written anew meanwhile, that is seen next, and all of it is sent again.
        shipment.send_metadata(path, &bytes)?;
        sent.bytes = file.bytes;
        Ok(true)
    }

    /// Notes what is stored at the relay daemon. Gives whether that is everything that was sent.
    pub(super) fn confirm(&mut self, shipment: &mut Shipment) -> Result<bool, RelayError> {
        let mut stored = Vec::new();
        let is_all = shipment.confirm(&mut |name| stored.push(name.clone()))?;
        for cursor in self.cursors.values_mut().filter(|cursor| stored.contains(&cursor.name)) {
            cursor.stored = cursor.sent;
            if cursor.stored_to.0 != cursor.sent_to.0 {
                cursor.released = 0;
            }
            cursor.stored_to = cursor.sent_to;
        }
        if is_all {
            self.unknown = 0;
        }
        if !stored.is_empty() {
            self.tell_waiting();
            self.release();
        }
        Ok(is_all)
    }

    /// Whether as much is on its way as may be.
    pub(super) fn must_wait(&self) -> bool {
        self.unknown >= UNKNOWN_MAX
    }

    /// Bytes of packets that are not stored at the relay daemon.
    pub(super) fn waiting(&self) -> u64 {
        self.publication().read(|state| self.waiting_of(state))
    }

    fn waiting_of(&self, state: &Published) -> u64 {
        self.missing_of(state, |chunk| chunk >= self.from && self.cut.is_none_or(|cut| chunk < cut))
    }

    /// Bytes of packets in these chunks that are not stored at the relay daemon.
    fn missing_of(&self, state: &Published, is_meant: impl Fn(u64) -> bool) -> u64 {
        let streams = state.traces.iter().flat_map(|(number, trace)| {
            trace.streams.iter().map(move |(stream, of)| ((*number, *stream), of))
        });
        let of_file = |key: (u64, u64), file: &PacketFile| match self.cursors.get(&key) {
            Some(cursor) if cursor.stored >= file.first + file.packets => 0,
            Some(cursor) if cursor.stored_to.0 == file.first => file.bytes.saturating_sub(cursor.stored_to.1),
            _ => file.bytes,
        };
        let wanted = |file: &&PacketFile| is_meant(file.chunk) && file.packets != 0;
        streams.flat_map(|(key, of)| of.files.iter().filter(wanted).map(move |file| of_file(key, file))).sum()
    }

    fn tell_waiting(&self) {
        self.consumer.waits(self.waiting());
    }

    /// Gives the space of what is stored back.
    fn release(&mut self) {
        let Self { consumer, cursors, .. } = self;
        let mut files = Vec::new();
        consumer.publication().read(|state| {
            for (key, cursor) in cursors.iter() {
                let (first, to) = cursor.stored_to;
                let stream = state.traces.get(&key.0).and_then(|trace| trace.streams.get(&key.1));
                if to.saturating_sub(cursor.released) >= RELEASE
                    && let Some(file) = stream.and_then(|of| of.files.iter().find(|file| file.first == first))
                {
                    files.push((*key, file.clone(), to));
                }
            }
        });
        for (key, file, to) in files {
            // Where files have no holes, it is given back when the chunk is removed.
            let _ = file.release(to);
            if let Some(cursor) = cursors.get_mut(&key) {
                cursor.released = to;
            }
        }
    }

    /// How many packets were sent, and how many are stored at the relay daemon.
    pub(super) fn progress(&self) -> (u64, u64) {
        let sum = |count: fn(&Cursor) -> u64| self.cursors.values().map(count).sum();
        (sum(|cursor| cursor.sent), sum(|cursor| cursor.stored))
    }

    /// How many packets there are.
    pub(super) fn packets(&self) -> u64 {
        self.publication().read(|state| {
            state.traces.values().flat_map(|trace| trace.streams.values()).map(|stream| stream.packets).sum()
        })
    }

    /// Leaves in the files what is not stored at the relay daemon. After an error with one, the others have
    /// been done.
    pub(super) fn leave_rest(&self) -> io::Result<()> {
        let mut files = Vec::new();
        self.publication().read(|state| {
            for ((trace, stream), cursor) in &self.cursors {
                let of = state.traces.get(trace).and_then(|trace| trace.streams.get(stream));
                let begun = of.into_iter().flat_map(|of| &of.files).filter(|file| file.first < cursor.stored);
                files.extend(begun.map(|file| (file.clone(), cursor.stored - file.first)));
            }
        });
        let left = files.into_iter().map(|(file, stored)| file.leave_from(stored.min(file.packets)));
        left.fold(Ok(()), io::Result::and)
    }
}

/// Sends packets of a file as long as there is room. Gives their bytes.
fn send_packets(
    cursor: &mut Cursor,
    file: &PacketFile,
    (left, buffer): (&mut u64, &mut Vec<u8>),
    shipment: &mut Shipment,
) -> Result<u64, FeedError> {
    if cursor.sent < file.first || cursor.sent_to.0 != file.first {
        // What is before it was left out.
        cursor.sent = cursor.sent.max(file.first);
        cursor.sent_to = (file.first, 0);
    }
    let end = file.first + file.packets;
    if cursor.sent >= end {
        return Ok(0);
    }
    let open = file.open()?;
    let mut sent = 0;
    while cursor.sent < end && *left > 0 {
        let packet = open.packet(cursor.sent - file.first)?;
        let size = packet.packet_bits / 8;
        let is_there =
            size <= PACKET_MAX && packet.offset.checked_add(size).is_some_and(|to| to <= file.bytes);
        let size = usize::try_from(size).ok().filter(|_| is_there);
        let size = size.ok_or_else(|| io::Error::other("an index that is not that of its packets"))?;
        buffer.resize(size, 0);
        open.read(packet.offset, buffer)?;
        shipment.send_packet(&cursor.name, &told(&packet), buffer)?;
        cursor.sent += 1;
        cursor.sent_to.1 = packet.offset + size as u64;
        sent += size as u64;
        *left = left.saturating_sub(size as u64);
    }
    Ok(sent)
}

/// A packet as the relay daemon is told of it.
fn told(packet: &Packet) -> lttng_relay::Packet {
    let &Packet { packet_bits, content_bits, begin, end, discarded, class, instance, sequence, .. } = packet;
    lttng_relay::Packet {
        size_bits: packet_bits,
        content_bits,
        begin,
        end,
        discarded,
        stream: class,
        instance,
        sequence,
    }
}
