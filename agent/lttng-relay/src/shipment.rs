//! What goes to a relay daemon: chunks with their traces, streams and packets, by name.

use std::{
    collections::BTreeMap,
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use super::{
    ChunkEnd, Hangup, NewSession, Packet, Patience, RelayAddress, RelayError, StreamLimits,
    connection::Socket,
    session::{RelaySession, StreamId},
};

/// How often it is asked whether a chunk is closed.
const LOOK: Duration = Duration::from_millis(20);
/// How long that takes at most: viewers may hold a chunk, which becomes what it becomes without us.
const CLOSING_MAX: Duration = Duration::from_secs(5);

/// What the stream of metadata is called.
pub const METADATA: &str = "metadata";

/// The directory of a trace in a chunk, and the name of a stream in it.
pub type StreamName = (String, String);

/// A chunk that begins.
#[derive(Clone, Debug)]
pub struct ChunkBegin {
    /// When, in seconds since 1970.
    pub at: u64,
    /// Its directory, where it is for who sends to say: in sessions of snapshots, and where the relay daemon
    /// knows of no chunks.
    pub name: Option<String>,
}

/// How a chunk ends.
#[derive(Clone, Copy, Debug)]
pub struct ChunkClose {
    /// When, in seconds since 1970.
    pub at: u64,
    /// How the chunk ends.
    pub end: ChunkEnd,
}

/// A session at a relay daemon with what was sent there.
#[derive(Debug)]
pub struct Shipment<S = TcpStream> {
    session: RelaySession<S>,
    /// The numbers that chunks have had.
    next_chunk: u64,
    chunk: Option<u64>,
    streams: BTreeMap<StreamName, Shipped>,
    /// Whether there are streams that others cannot see yet.
    has_new: bool,
    /// The time between two looks whether a chunk is closed.
    look: Duration,
}

/// A stream with what was sent to it.
#[derive(Debug)]
struct Shipped {
    id: StreamId,
    /// Whether packets are not known to be stored.
    is_pending: bool,
}

impl Shipment {
    /// Begins a session. If one has been there before, nothing of that is written over: what comes is in
    /// chunks with directories of their own.
    pub fn open(
        address: &RelayAddress,
        new: &NewSession,
        first_chunk: u64,
        waits: (Patience, &Hangup),
    ) -> Result<Self, RelayError> {
        Self::begin_in(RelaySession::open(address, new, waits)?, (new, first_chunk), LOOK)
    }
}

#[expect(private_bounds, reason = "sockets are a matter of this module, and of its tests")]
impl<S: Socket> Shipment<S> {
    /// The same in a session that there is.
    pub(super) fn begin_in(
        session: RelaySession<S>,
        (new, first_chunk): (&NewSession, u64),
        look: Duration,
    ) -> Result<Self, RelayError> {
        let mut shipment = Self {
            session,
            next_chunk: first_chunk,
            chunk: None,
            streams: BTreeMap::new(),
            has_new: false,
            look,
        };
        if first_chunk > 0 && shipment.session.has_chunks() {
            shipment.skip_first_directory(new.created_at)?;
        }
        Ok(shipment)
    }

    /// Only the first chunk of a session is in the session's own directory. Where another session has written
    /// there, an empty one takes its place, and is archived.
    fn skip_first_directory(&mut self, at: u64) -> Result<(), RelayError> {
        self.begin(&ChunkBegin { at, name: None }, None, &|_| false)?;
        self.end(ChunkClose { at, end: ChunkEnd::Archive })?;
        Ok(())
    }

    /// The session.
    pub fn session(&self) -> &RelaySession<S> {
        &self.session
    }

    /// The number that no chunk has had.
    pub fn next_chunk(&self) -> u64 {
        self.next_chunk
    }

    /// Begins a chunk. One that was begun before is closed; all of it is stored. Those of its streams for
    /// which `go_on` goes on in the new one. Gives where the one before is, if there was one.
    pub fn begin(
        &mut self,
        begin: &ChunkBegin,
        close: Option<ChunkClose>,
        goes_on: &dyn Fn(&StreamName) -> bool,
    ) -> Result<Option<String>, RelayError> {
        let before = self.chunk;
        let id = self.next_chunk;
        self.session.begin_chunk(id, begin.at, begin.name.as_deref())?;
        self.next_chunk = id + 1;
        self.chunk = Some(id);
        let mut rotated = Vec::new();
        for (name, stream) in std::mem::take(&mut self.streams) {
            // A stream without packets would go on with its first one, and the chunk be closed no sooner.
            let is_used = name.1 == METADATA || self.session.has_packets(stream.id);
            if self.session.has_chunks() && is_used && goes_on(&name) {
                rotated.push(stream.id);
                self.streams.insert(name, stream);
            } else {
                self.session.close_stream(stream.id)?;
            }
        }
        if !rotated.is_empty() {
            self.session.rotate(&rotated)?;
        }
        match (before, close) {
            (Some(before), Some(close)) => self.close(before, close).map(Some),
            _ => Ok(None),
        }
    }

    /// Ends the chunk; all of it is stored. Gives where it is, if there was one.
    pub fn end(&mut self, close: ChunkClose) -> Result<Option<String>, RelayError> {
        for stream in std::mem::take(&mut self.streams).into_values() {
            self.session.close_stream(stream.id)?;
        }
        self.chunk.take().map(|chunk| self.close(chunk, close)).transpose()
    }

    fn close(&mut self, chunk: u64, close: ChunkClose) -> Result<String, RelayError> {
        if !self.session.has_chunks() {
            return Ok(self.session.path().to_owned());
        }
        let path = self.session.close_chunk(chunk, close.at, close.end)?;
        let begun = Instant::now();
        while self.session.is_closing(chunk)? && begun.elapsed() < CLOSING_MAX {
            thread::sleep(self.look);
        }
        Ok(path)
    }

    /// Makes sure that there is a stream.
    pub fn add(&mut self, name: &StreamName, limits: StreamLimits) -> Result<StreamId, RelayError> {
        if let Some(there) = self.streams.get(name) {
            return Ok(there.id);
        }
        let id = self.session.add_stream(&name.0, &name.1, limits)?;
        self.streams.insert(name.clone(), Shipped { id, is_pending: false });
        self.has_new = true;
        Ok(id)
    }

    /// Sends whole packets of metadata, of a trace in this directory.
    pub fn send_metadata(&mut self, dir: &str, bytes: &[u8]) -> Result<(), RelayError> {
        let id = self.add(&(dir.to_owned(), METADATA.to_owned()), StreamLimits::default())?;
        self.publish()?;
        self.session.send_metadata(id, bytes)
    }

    /// Lets the metadata of the trace in this directory begin anew.
    pub fn reset_metadata(&mut self, dir: &str, version: u64) -> Result<(), RelayError> {
        let id = self.add(&(dir.to_owned(), METADATA.to_owned()), StreamLimits::default())?;
        self.session.reset_metadata(id, version)
    }

    /// Sends a packet of a stream that there is.
    pub fn send_packet(
        &mut self,
        name: &StreamName,
        packet: &Packet,
        bytes: &[u8],
    ) -> Result<(), RelayError> {
        self.publish()?;
        let stream = self.streams.get_mut(name).ok_or(RelayError::Nonsense("a stream that is not there"))?;
        stream.is_pending = true;
        let id = stream.id;
        self.session.send_packet(id, packet, bytes)
    }

    /// Says that a stream of this class has no event from before a time any more, if all of its packets are
    /// known to be stored. Gives whether it was said.
    pub fn send_beacon(&mut self, name: &StreamName, (class, until): (u64, u64)) -> Result<bool, RelayError> {
        let Some(&Shipped { id, is_pending: false }) = self.streams.get(name) else { return Ok(false) };
        let is_taken = self.session.has_packets(id);
        if is_taken {
            self.session.send_beacon(id, class, until)?;
        }
        Ok(is_taken)
    }

    /// Lets viewers see streams that are new.
    pub fn publish(&mut self) -> Result<(), RelayError> {
        if std::mem::take(&mut self.has_new) {
            self.session.publish_streams()?;
        }
        Ok(())
    }

    /// Asks what is stored. Tells of each stream of which everything that was sent is, and gives whether
    /// that is so of all.
    pub fn confirm(&mut self, is_stored: &mut dyn FnMut(&StreamName)) -> Result<bool, RelayError> {
        let mut all = true;
        for (name, stream) in self.streams.iter_mut().filter(|(_, stream)| stream.is_pending) {
            if self.session.is_stored(stream.id)? {
                stream.is_pending = false;
                is_stored(name);
            } else {
                all = false;
            }
        }
        Ok(all)
    }
}
