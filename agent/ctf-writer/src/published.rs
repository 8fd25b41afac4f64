//! What of a trace can be read while it is written, for those who send it on: a relay daemon's client, a live
//! server.
//!
//! The writer tells what it has written, and waits for nobody but those who ask for it ([`Consumer::bound`]).
//! Whoever reads keeps a position of its own, and reads packets and indexes from the files of the trace,
//! which are known by their directories: their paths change when a chunk is closed.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::FileExt as _,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::fs::FallocateFlags;

use super::files::{FileLimits, INDEX_ENTRY, INDEX_HEAD, index_name};
use stdx::output::Directory;

/// A file that is written anew. Readers take no file for a stream whose name begins with a dot.
const DRAFT: &str = ".draft";
/// The name of a trace's metadata file.
pub(super) const METADATA: &str = "metadata";

/// What a recording has written of its traces by now.
#[derive(Debug, Default)]
pub struct Publication {
    state: Mutex<State>,
    changed: Condvar,
}

/// All of it at one time.
#[derive(Debug, Default)]
pub struct State {
    /// Is another one when anything has changed.
    pub generation: u64,
    /// Its traces, by a number that each keeps: that of what all share, and those of users and processes.
    pub traces: BTreeMap<u64, Trace>,
    /// The trace chunks that somebody may still read, the oldest first; the last one is the open one unless
    /// it is closed.
    pub chunks: VecDeque<Chunk>,
    /// Nothing more comes.
    pub is_ended: bool,
    /// Streams are still missing that begin as early as those that are there: who reads all of them in the
    /// order of time has to wait.
    pub is_partial: bool,
    consumers: BTreeMap<u64, Position>,
    next_number: u64,
    /// Bytes of all packets.
    bytes: u64,
}

/// A trace: in each chunk it has a directory of its own.
#[derive(Debug)]
pub struct Trace {
    /// Where it is in the directory of a chunk: `kernel`, `ust/uid/1000/64-bit`.
    pub path: String,
    /// Its UUID, which the metadata and all packets have.
    pub uuid: [u8; 16],
    /// The packets or fragments of metadata for a reader of all chunks: what was declared since the begin of
    /// the recording, each once. It is only added to.
    pub metadata: Vec<u8>,
    /// Its streams, by a number that each keeps, unique among all of the publication.
    pub streams: BTreeMap<u64, Stream>,
}

/// A stream: the packets of a CPU in a channel.
#[derive(Debug)]
pub struct Stream {
    /// The channel and the CPU: `channel0_1`.
    pub name: String,
    /// The stream class that the metadata declare (`stream_id`).
    pub class: u32,
    /// Which one of its class it is (`stream_instance_id`).
    pub instance: u64,
    /// How large its files become, and how many there are of a chunk.
    pub limits: FileLimits,
    /// Its files, the oldest first.
    pub files: VecDeque<PacketFile>,
    /// How many packets there were in all, also in files that are gone. Each has this number less one as its
    /// `packet_seq_num` when it is written.
    pub packets: u64,
    /// No event from before this time comes any more, by the trace's clock; 0 if that is not known.
    pub silent_until: u64,
}

/// A file of packets, which grows if it is the last one of its stream.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PacketFile {
    /// The number of its chunk.
    pub chunk: u64,
    /// Its name.
    pub name: String,
    /// How many packets its stream had before.
    pub first: u64,
    /// How many packets it has.
    pub packets: u64,
    /// How many bytes these have.
    pub bytes: u64,
    data: Directory,
    index: Directory,
    /// Whether another file has taken its name, or is about to.
    is_replaced: Arc<AtomicBool>,
}

/// A trace chunk.
#[derive(Debug)]
pub struct Chunk {
    /// Its number in the recording, from 1 on.
    pub number: u64,
    /// When it began, in nanoseconds since 1970; `None` of a recording that has only one.
    pub begin_ns: Option<u64>,
    /// When it ended, likewise, once it is closed.
    pub end_ns: Option<u64>,
    /// Whether all of it is written.
    pub is_closed: bool,
    /// The metadata files of its traces, by the number of the trace.
    pub metadata: BTreeMap<u64, MetadataFile>,
}

/// A metadata file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MetadataFile {
    /// Bytes of whole packets or fragments.
    pub bytes: u64,
    /// How often it was written again from its begin.
    pub version: u64,
    dir: Directory,
}

impl MetadataFile {
    /// Opens it. It may be a later version by now.
    ///
    /// # Errors
    /// It is gone.
    pub fn open(&self) -> io::Result<File> {
        self.dir.open_file(METADATA)
    }
}

/// The files of a [`PacketFile`], open.
#[derive(Debug)]
pub struct OpenFile {
    data: File,
    index: File,
}

/// A packet, as the index has it (LTTng `src/common/index/ctf-index.h`, version 1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Where it begins in its file, in bytes.
    pub offset: u64,
    /// Bits of the packet.
    pub packet_bits: u64,
    /// Bits that have something in them.
    pub content_bits: u64,
    /// The first time that it covers.
    pub begin: u64,
    /// The last one.
    pub end: u64,
    /// Events that its stream has lost in all until its end.
    pub discarded: u64,
    /// The stream class.
    pub class: u64,
    /// Which stream of the class.
    pub instance: u64,
    /// The number of the packet in its stream, from 0 on.
    pub sequence: u64,
}

impl PacketFile {
    /// Opens it with its index.
    ///
    /// # Errors
    /// It is gone, for newer ones.
    pub fn open(&self) -> io::Result<OpenFile> {
        let index = self.index.open_file(index_name(&self.name))?;
        let data = self.data.open_file(&self.name)?;
        self.check()?;
        Ok(OpenFile { data, index })
    }

    /// Whether what was opened by its name is this file: the writer says that it is replaced before it
    /// removes it.
    fn check(&self) -> io::Result<()> {
        if self.is_replaced.load(Ordering::SeqCst) { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
    }

    /// Gives the space of its first bytes back, which nobody needs any more: they are zeros then.
    ///
    /// # Errors
    /// It is gone, or its file system has no files with holes.
    pub fn release(&self, bytes: u64) -> io::Result<()> {
        let file = self.data.open_for_writing(&self.name)?;
        self.check()?;
        rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, bytes)?;
        Ok(())
    }

    /// Leaves only the packets from this one on, and their entries in the index.
    ///
    /// # Errors
    /// It cannot be read or written; it may have less in it then.
    pub fn leave_from(&self, number: u64) -> io::Result<()> {
        let open = self.open()?;
        let from = if number < self.packets { open.packet(number)?.offset } else { self.bytes };
        let mut data = self.data.replace(DRAFT)?;
        let mut rest = &open.data;
        rest.seek(io::SeekFrom::Start(from))?;
        io::copy(&mut rest.take(self.bytes.saturating_sub(from)), &mut data)?;
        let mut head = [0; INDEX_HEAD as usize];
        open.index.read_exact_at(&mut head, 0)?;
        let mut index = self.index.replace(DRAFT)?;
        index.write_all(&head)?;
        for number in number..self.packets {
            let Packet { offset, packet_bits, content_bits, begin, end, discarded, .. } =
                open.packet(number)?;
            let Packet { class, instance, sequence, .. } = open.packet(number)?;
            let offset = offset.saturating_sub(from);
            let words = [offset, packet_bits, content_bits, begin, end, discarded, class, instance, sequence];
            index.write_all(&words.map(u64::to_be_bytes).concat())?;
        }
        let to = |dir: &Directory, name: &str| dir.rename(DRAFT.as_ref(), dir, name.as_ref());
        // An index never has what is not there.
        self.index.remove(index_name(&self.name))?;
        to(&self.data, &self.name)?;
        to(&self.index, &index_name(&self.name))
    }
}

impl OpenFile {
    /// What the index says of a packet, by its number in the file.
    ///
    /// # Errors
    /// The index cannot be read, or does not have it.
    pub fn packet(&self, number: u64) -> io::Result<Packet> {
        let mut bytes = [0; INDEX_ENTRY as usize];
        let at = number.saturating_mul(INDEX_ENTRY.into()).saturating_add(INDEX_HEAD);
        self.index.read_exact_at(&mut bytes, at)?;
        let mut words = bytes.as_chunks().0.iter().map(|word| u64::from_be_bytes(*word));
        let mut word = || words.next().unwrap_or_default();
        Ok(Packet {
            offset: word(),
            packet_bits: word(),
            content_bits: word(),
            begin: word(),
            end: word(),
            discarded: word(),
            class: word(),
            instance: word(),
            sequence: word(),
        })
    }

    /// Reads bytes of the file from an offset on.
    ///
    /// # Errors
    /// The file does not have them.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.data.read_exact_at(into, offset)
    }
}

/// How far somebody is who reads.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    /// The oldest chunk that is still needed.
    chunk: u64,
    /// Bytes of packets that are behind.
    bytes: u64,
    /// How many bytes may wait.
    bound: Option<u64>,
}

/// Somebody who reads: as long as this is there, the chunks that were not read stay in the publication.
#[derive(Debug)]
pub struct Consumer {
    publication: Arc<Publication>,
    number: u64,
}

impl Consumer {
    /// Lets the writer take no more events as long as more bytes than these wait for this reader. What the
    /// recorder stores meanwhile stays where it is, within the bounds of that.
    pub fn bound(&self, bytes: u64) {
        self.position(|position| position.bound = Some(bytes));
    }

    /// Says how many bytes of packets wait, of all that there are: also of packets that are gone without
    /// having been read.
    pub fn waits(&self, bytes: u64) {
        self.publication.change(|state| {
            let taken = state.bytes.saturating_sub(bytes);
            if let Some(position) = state.consumers.get_mut(&self.number) {
                position.bytes = taken;
            }
        });
    }

    /// Says that no chunk before this one is needed.
    pub fn needs_from(&self, chunk: u64) {
        self.position(|position| position.chunk = position.chunk.max(chunk));
        self.publication.change(State::forget);
    }

    /// What it reads.
    pub fn publication(&self) -> &Arc<Publication> {
        &self.publication
    }

    fn position(&self, act: impl FnOnce(&mut Position)) {
        if let Some(position) = self.publication.lock().consumers.get_mut(&self.number) {
            act(position);
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.publication.change(|state| {
            state.consumers.remove(&self.number);
            state.forget();
        });
    }
}

impl Publication {
    /// Somebody reads from now on, from the oldest chunk on that is still there.
    pub fn consumer(self: &Arc<Self>) -> Consumer {
        let mut state = self.lock();
        let number = state.number();
        let chunk = state.chunks.front().map_or(0, |chunk| chunk.number);
        // What the files have that are there is what waits.
        let files = state.traces.values().flat_map(|of| of.streams.values()).flat_map(|of| &of.files);
        let there: u64 = files.map(|file| file.bytes).sum();
        let bytes = state.bytes.saturating_sub(there);
        state.consumers.insert(number, Position { chunk, bytes, bound: None });
        drop(state);
        Consumer { publication: Arc::clone(self), number }
    }

    /// Looks at it. The writer waits meanwhile.
    pub fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.lock())
    }

    /// Waits until it is another generation than this one, but not longer than this. Gives which one it is.
    pub fn wait(&self, generation: u64, longest: Duration) -> u64 {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), longest, |state| state.generation == generation)
            .unwrap_or_else(PoisonError::into_inner);
        waited.0.generation
    }

    /// Whether somebody who reads has all to read that it may have.
    pub fn is_full(&self) -> bool {
        let state = self.lock();
        let waits = |position: &Position| state.bytes.saturating_sub(position.bytes);
        state.consumers.values().any(|position| position.bound.is_some_and(|bound| waits(position) > bound))
    }

    /// There will be more streams, which begin as early as the first ones.
    pub fn begin_partial(&self) {
        self.change(|state| state.is_partial = true);
    }

    /// All streams are there that begin with the first ones; so they are when a chunk is closed.
    pub fn complete(&self) {
        if self.read(|state| state.is_partial) {
            self.change(|state| state.is_partial = false);
        }
    }

    /// A chunk begins.
    pub fn begin_chunk(&self, number: u64, begin_ns: Option<u64>) {
        let metadata = BTreeMap::new();
        self.change(|state| {
            state.chunks.push_back(Chunk { number, begin_ns, end_ns: None, is_closed: false, metadata });
            state.forget();
        });
    }

    /// All of the open chunk is written.
    pub fn close_chunk(&self, end_ns: Option<u64>) {
        self.change(|state| {
            if let Some(chunk) = state.chunks.back_mut() {
                (chunk.end_ns, chunk.is_closed) = (end_ns, true);
            }
            state.is_partial = false;
        });
    }

    /// Nothing more comes.
    pub fn end(&self) {
        self.change(|state| (state.is_ended, state.is_partial) = (true, false));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic of another thread leaves counts that may miss the last packet, and nothing worse.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let done = act(&mut state);
        state.generation += 1;
        drop(state);
        self.changed.notify_all();
        done
    }
}

impl State {
    /// The number of the stream, which is given out when it is first asked for.
    pub fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Forgets the chunks that nobody needs any more, with the traces that have nothing in any other.
    fn forget(&mut self) {
        let open = self.chunks.back().map_or(0, |chunk| chunk.number);
        let needed = self.consumers.values().map(|position| position.chunk).min();
        let first = needed.unwrap_or(open).min(open);
        while self.chunks.front().is_some_and(|chunk| chunk.number < first) {
            self.chunks.pop_front();
        }
        for trace in self.traces.values_mut() {
            for stream in trace.streams.values_mut() {
                stream.files.retain(|file| file.chunk >= first);
            }
        }
        let Self { traces, chunks, .. } = self;
        // Those of the chunk that has just begun have no directory there yet.
        let is_there = |number: &u64| chunks.iter().any(|chunk| chunk.metadata.contains_key(number));
        if chunks.back().is_some_and(|chunk| chunk.is_closed) {
            traces.retain(|number, _| is_there(number));
        }
    }
}

/// A trace that tells what is written of it.
#[derive(Clone, Debug)]
pub(super) struct Publisher {
    publication: Arc<Publication>,
    trace: u64,
}

impl Publisher {
    /// That of the trace of this path, which has a directory in the open chunk.
    pub(super) fn of(
        publication: &Arc<Publication>,
        (path, uuid): (&str, [u8; 16]),
        dir: &Directory,
    ) -> Self {
        let trace = publication.change(|state| {
            let known = state.traces.iter().find(|(_, trace)| trace.path == path && trace.uuid == uuid);
            let number = match known {
                Some((number, _)) => *number,
                None => state.number(),
            };
            state.traces.entry(number).or_insert_with(|| Trace {
                path: path.to_owned(),
                uuid,
                metadata: Vec::new(),
                streams: BTreeMap::new(),
            });
            if let Some(chunk) = state.chunks.back_mut() {
                let file = MetadataFile { bytes: 0, version: 0, dir: dir.clone() };
                chunk.metadata.insert(number, file);
            }
            number
        });
        Self { publication: Arc::clone(publication), trace }
    }

    /// The metadata file has so many bytes; `again` if it is another file than before. `new` are those
    /// of what was not declared in any chunk before.
    pub(super) fn metadata(&self, bytes: u64, again: bool, new: &[u8]) {
        self.publication.change(|state| {
            if let Some(trace) = state.traces.get_mut(&self.trace) {
                trace.metadata.extend_from_slice(new);
            }
            let chunk = state.chunks.back_mut();
            if let Some(file) = chunk.and_then(|chunk| chunk.metadata.get_mut(&self.trace)) {
                file.bytes = bytes;
                file.version += u64::from(again);
            }
        });
    }

    /// The file of this name gives way to a newer one of its stream: nobody may take that for it.
    pub(super) fn replaced(&self, stream: u64, name: &str) {
        self.publication.change(|state| {
            let chunk = state.chunks.back().map_or(0, |chunk| chunk.number);
            let trace = state.traces.get_mut(&self.trace);
            let Some(stream) = trace.and_then(|trace| trace.streams.get_mut(&stream)) else { return };
            stream.files.retain(|file| {
                let stays = file.chunk != chunk || file.name != name;
                file.is_replaced.fetch_or(!stays, Ordering::SeqCst);
                stays
            });
        });
    }

    /// A stream has a new file. Gives the stream's number.
    pub(super) fn file(
        &self,
        (stream, class, instance, limits): (&str, u32, u64, FileLimits),
        ([data, index], name): ([&Directory; 2], &str),
    ) -> u64 {
        self.publication.change(|state| {
            let chunk = state.chunks.back().map_or(0, |chunk| chunk.number);
            let next = state.number();
            let Some(trace) = state.traces.get_mut(&self.trace) else { return next };
            let known = trace.streams.iter().find(|(_, of)| of.name == stream && of.class == class);
            let number = known.map_or(next, |(number, _)| *number);
            let stream = trace.streams.entry(number).or_insert_with(|| Stream {
                name: stream.to_owned(),
                class,
                instance,
                limits,
                files: VecDeque::new(),
                packets: 0,
                silent_until: 0,
            });
            let (first, data, index) = (stream.packets, data.clone(), index.clone());
            let (name, is_replaced) = (name.to_owned(), Arc::default());
            let file = PacketFile { chunk, name, first, packets: 0, bytes: 0, data, index, is_replaced };
            stream.files.push_back(file);
            number
        })
    }

    /// A packet of so many bytes is in the last file of a stream.
    pub(super) fn packet(&self, stream: u64, bytes: u64) {
        self.publication.change(|state| {
            state.bytes = state.bytes.saturating_add(bytes);
            let trace = state.traces.get_mut(&self.trace);
            let Some(stream) = trace.and_then(|trace| trace.streams.get_mut(&stream)) else { return };
            stream.packets += 1;
            if let Some(file) = stream.files.back_mut() {
                file.packets += 1;
                file.bytes = file.bytes.saturating_add(bytes);
            }
        });
    }

    /// No event from before this time comes any more in a stream.
    pub(super) fn silent(&self, stream: u64, until: u64) {
        self.publication.change(|state| {
            let trace = state.traces.get_mut(&self.trace);
            if let Some(stream) = trace.and_then(|trace| trace.streams.get_mut(&stream)) {
                stream.silent_until = stream.silent_until.max(until);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::{
        super::{
            files::{FileLimits, TraceDirectory},
            stream::{EventHeader, StreamOptions, StreamWriter},
        },
        *,
    };

    const UUID: [u8; 16] = [3; 16];

    fn trace(dir: &std::path::Path, chunk: &str, publication: &Arc<Publication>) -> TraceDirectory {
        let dir = Directory::open(dir).unwrap().create_dir(chunk).unwrap();
        let trace = TraceDirectory::create(&dir, "kernel", true).unwrap();
        trace.published(Some(publication), ("kernel", UUID))
    }

    fn stream(dir: &TraceDirectory, limits: FileLimits) -> StreamWriter {
        let options = StreamOptions {
            uuid: UUID,
            stream_id: 4,
            instance_id: 1,
            cpu: 1,
            header: EventHeader::Compact,
            begin: 0,
            packet: 4096,
            limits,
            exact: true,
        };
        StreamWriter::create(dir, "a_1", options).unwrap()
    }

    fn packet(stream: &mut StreamWriter, time: u64) {
        stream.event(1, time).unwrap().push(7);
        stream.flush().unwrap();
    }

    /// The chunk, the first packet and how many there are of each file, with the times when all of them end.
    fn files(publication: &Publication) -> (Vec<(u64, u64, u64)>, Vec<u64>) {
        let files: Vec<PacketFile> = publication.read(|state| {
            let streams = state.traces.values().flat_map(|trace| trace.streams.values());
            streams.flat_map(|stream| stream.files.iter().cloned()).collect()
        });
        let ends = files.iter().flat_map(|file| {
            let open = file.open().unwrap();
            (0..file.packets).map(move |number| {
                let packet = open.packet(number).unwrap();
                let mut bytes = vec![0; packet.packet_bits as usize / 8];
                open.read(packet.offset, &mut bytes).unwrap();
                assert_eq!((packet.class, packet.instance, &bytes[4..20]), (4, 1, &UUID[..]));
                packet.end
            })
        });
        (files.iter().map(|file| (file.chunk, file.first, file.packets)).collect(), ends.collect())
    }

    #[test]
    fn packets_are_read_where_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let publication = Arc::new(Publication::default());
        publication.begin_chunk(1, None);
        let first = trace(dir.path(), "one", &publication);
        let reader = publication.consumer();
        let limits = FileLimits { size: Some(2 * 4096), count: Some(2), is_elsewhere: false };
        let mut stream = stream(&first, limits);
        packet(&mut stream, 1);
        let oldest = publication.read(|state| {
            state.traces.values().flat_map(|trace| trace.streams.values()).next().unwrap().files[0].clone()
        });
        assert!(oldest.open().is_ok());
        (2..=5).for_each(|time| packet(&mut stream, time));
        // There is a file of its name.
        let gone = [oldest.open().map(drop), oldest.release(4096)];
        assert_eq!(gone.map(|of| of.unwrap_err().kind()), [io::ErrorKind::NotFound; 2]);
        // The third file has the place of the first.
        assert_eq!(files(&publication), (vec![(1, 2, 2), (1, 4, 1)], vec![3, 4, 5]));
        publication.close_chunk(Some(9));
        publication.begin_chunk(2, Some(9));
        // Its path is another one when it is closed.
        std::fs::rename(dir.path().join("one"), dir.path().join("archived")).unwrap();
        stream.move_to(&trace(dir.path(), "two", &publication)).unwrap();
        packet(&mut stream, 6);
        assert_eq!(files(&publication), (vec![(1, 2, 2), (1, 4, 1), (2, 5, 1)], vec![3, 4, 5, 6]));
        reader.needs_from(2);
        assert_eq!(files(&publication), (vec![(2, 5, 1)], vec![6]));
        stream.tell_silence(8, false).unwrap();
        let streams = publication.read(|state| {
            let streams = state.traces.values().flat_map(|trace| trace.streams.values());
            streams.map(|of| (of.name.clone(), of.packets, of.silent_until)).collect::<Vec<_>>()
        });
        assert_eq!(streams, [("a_1".to_owned(), 6, 8)]);
        assert_eq!(publication.read(|state| state.chunks.len()), 1);
    }

    /// What is sent to somebody who keeps to the limits is not overwritten before it is sent.
    #[test]
    fn limits_that_others_keep_to_limit_no_file_here() {
        let dir = tempfile::tempdir().unwrap();
        let publication = Arc::new(Publication::default());
        publication.begin_chunk(1, None);
        let limits = FileLimits { size: Some(4096), count: Some(2), is_elsewhere: true };
        let mut stream = stream(&trace(dir.path(), "one", &publication), limits);
        (1..=5).for_each(|time| packet(&mut stream, time));
        assert_eq!(files(&publication), (vec![(1, 0, 5)], vec![1, 2, 3, 4, 5]));
        let told = publication.read(|state| {
            let streams = state.traces.values().flat_map(|trace| trace.streams.values());
            streams.map(|of| (of.limits.size, of.limits.count)).collect::<Vec<_>>()
        });
        assert_eq!(told, [(Some(4096), Some(2))]);
    }

    #[test]
    fn who_asks_for_it_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let publication = Arc::new(Publication::default());
        publication.begin_chunk(1, None);
        let mut stream = stream(&trace(dir.path(), "one", &publication), FileLimits::default());
        let slow = publication.consumer();
        packet(&mut stream, 1);
        assert!(!publication.is_full());
        slow.bound(4096);
        assert!(!publication.is_full());
        packet(&mut stream, 2);
        assert!(publication.is_full());
        // Who comes later has as much to read.
        let late = publication.consumer();
        late.bound(4096);
        slow.waits(4096);
        assert!(publication.is_full());
        drop(late);
        assert!(!publication.is_full());
        let generation = publication.read(|state| state.generation);
        assert_eq!(publication.wait(generation, Duration::from_millis(1)), generation);
        assert_ne!(publication.wait(generation - 1, Duration::from_mins(1)), generation - 1);
    }
}
