//! A session at a relay daemon: from the agreement on a version to the end of its last stream.

use std::net::TcpStream;

use super::{
    RelayAddress, RelayError,
    connection::{Connection, Hangup, Patience, Socket},
    wire::Command,
    wire::{
        HOST_2_4, HOST_MAX, NAME_2_4, NAME_MAX, OK, PATH_2_2, PATH_MAX, Payload, STREAM_2_2, Text, u32_at,
        u64_at,
    },
};
use stdx::utc;

/// The version of the protocol that is spoken, if the relay daemon does.
const MAJOR: u32 = 2;
/// What is asked for. From 14 on, nothing is known of it.
const MINOR_NEWEST: u32 = 13;
/// From here on sessions have names.
const MINOR_OLDEST: u32 = 4;
/// From here on an index says whose packet it is, and its number.
const MINOR_PACKETS: u32 = 8;
/// From here on there are trace chunks.
const MINOR_CHUNKS: u32 = 11;
/// From here on it can be asked whether chunks can be removed.
const MINOR_CONFIGURATION: u32 = 12;
/// How many commands may be on their way without their answers: of each, only a few bytes come back.
const OWED_MAX: usize = 64;

/// A session that is to be created.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// Its name, `CHANNEL_CPU`.
    pub name: String,
    /// The host that sends: the first part of where its files go.
    pub host: String,
    /// Where they go below that, if that was said.
    pub base_path: String,
    /// In seconds since 1970.
    pub created_at: u64,
    /// Whether the name has the time.
    pub has_time_in_name: bool,
    /// Whether it is for one snapshot, whose streams have no indexes.
    pub is_snapshot: bool,
    /// How late those who read it there meanwhile read events, in microseconds; 0 if nobody does.
    pub live_timer_us: u32,
    /// Of who sends; not all zeros.
    pub sender: [u8; 16],
    /// A number of the session, which that has given to no other one.
    pub id: u64,
}

/// How large the files of a stream become, and how many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamLimits {
    /// Bytes of a file at most.
    pub size: u64,
    /// Files at most; the oldest is written again.
    pub count: u64,
}

/// What an index says of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// Size of the packet in bits.
    pub size_bits: u64,
    /// Size of its content in bits.
    pub content_bits: u64,
    /// Time of its first event, in cycles of the trace's clock.
    pub begin: u64,
    /// Time of its last event.
    pub end: u64,
    /// Events discarded in the stream so far.
    pub discarded: u64,
    /// Number of the stream's class in the metadata.
    pub stream: u64,
    /// Number of the stream among those of its class: the CPU.
    pub instance: u64,
    /// Number of the packet in its stream.
    pub sequence: u64,
}

/// What becomes of a chunk that is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkEnd {
    /// It goes to the archived ones.
    Archive = 0,
    /// It stays where it is.
    Stay = 1,
    /// It is removed.
    Remove = 2,
}

/// A session at a relay daemon.
#[derive(Debug)]
pub struct RelaySession<S = TcpStream> {
    connection: Connection<S>,
    minor: u32,
    may_clear: bool,
    has_indexes: bool,
    /// Where its files go, below the relay daemon's directory.
    path: String,
    /// The directory of the chunk that is written, where there are no chunks.
    chunk_dir: String,
    chunk: u64,
    streams: Vec<Stream>,
    /// Answers of indexes that are still to come.
    owed: usize,
}

/// A stream there.
#[derive(Clone, Copy, Debug)]
struct Stream {
    handle: u64,
    /// How many packets were sent.
    sent: u64,
    /// The number of the packet that would be next, for what begins with it.
    next: u64,
    is_open: bool,
}

/// Which stream of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId(pub usize);

impl RelaySession {
    /// Connects, agrees on a version and creates a session.
    pub fn open(
        address: &RelayAddress,
        new: &NewSession,
        (patience, hangup): (Patience, &Hangup),
    ) -> Result<Self, RelayError> {
        Self::begin(Connection::open(address, patience, hangup)?, new)
    }
}

#[expect(private_bounds, reason = "sockets are a matter of this module, and of its tests")]
impl<S: Socket> RelaySession<S> {
    /// The same by connections that there are.
    pub(super) fn begin(mut connection: Connection<S>, new: &NewSession) -> Result<Self, RelayError> {
        let minor = agree(&mut connection)?;
        let may_clear = minor >= MINOR_CONFIGURATION && configuration(&mut connection)? & 1 != 0;
        let path = create(&mut connection, minor, new)?;
        Ok(Self {
            connection,
            minor,
            may_clear,
            has_indexes: !new.is_snapshot,
            path,
            chunk_dir: String::new(),
            chunk: 0,
            streams: Vec::new(),
            owed: 0,
        })
    }

    /// Whether it has trace chunks.
    pub fn has_chunks(&self) -> bool {
        self.minor >= MINOR_CHUNKS
    }

    /// Whether chunks can be removed.
    pub fn may_clear(&self) -> bool {
        self.may_clear
    }

    /// Whether metadata can be written anew.
    pub fn may_reset_metadata(&self) -> bool {
        self.minor >= MINOR_PACKETS
    }

    /// Where its files go, below the relay daemon's directory.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Begins a chunk, by a number that no chunk of the session had, at a time in seconds since 1970. The
    /// first one is in the session's own directory unless it has a name. Where there are no chunks, streams
    /// that are added from now on go to a directory of this name.
    pub(crate) fn begin_chunk(&mut self, id: u64, begin: u64, name: Option<&str>) -> Result<(), RelayError> {
        self.chunk = id;
        if !self.has_chunks() {
            self.chunk_dir = name.map(|name| format!("/{name}")).unwrap_or_default();
            return Ok(());
        }
        let name = Text::optional("the name of a trace chunk", name.unwrap_or_default(), NAME_MAX)?;
        let payload = Payload::default().u64(id).u64(begin).u32(name.len()).text(&name);
        self.ask(Command::CreateTraceChunk, payload)?;
        self.connection.done("begin a trace chunk")
    }

    /// Adds a stream to the chunk: in a directory of it (`kernel`), with the name that its file has.
    pub(crate) fn add_stream(
        &mut self,
        dir: &str,
        name: &str,
        limits: StreamLimits,
    ) -> Result<StreamId, RelayError> {
        let StreamLimits { size, count } = limits;
        let payload = if self.has_chunks() {
            let name = Text::new("the name of a stream", name, STREAM_2_2)?;
            let dir = Text::new("the directory of a stream", dir, NAME_MAX)?;
            let lengths = Payload::default().u32(name.len()).u32(dir.len());
            lengths.u64(size).u64(count).u64(self.chunk).text(&name).text(&dir)
        } else {
            let dir = format!("{}{}/{dir}", self.path, self.chunk_dir);
            let name = Text::new("the name of a stream", name, STREAM_2_2)?;
            let dir = Text::new("the directory of a stream", &dir, PATH_2_2)?;
            Payload::default().padded(&name, STREAM_2_2).padded(&dir, PATH_2_2).u64(size).u64(count)
        };
        self.ask(Command::AddStream, payload)?;
        let answer = self.connection.answer::<12>()?;
        match u32_at(&answer, 8) {
            OK => {
                let handle = u64_at(&answer, 0);
                self.streams.push(Stream { handle, sent: 0, next: 0, is_open: true });
                Ok(StreamId(self.streams.len() - 1))
            }
            code => Err(RelayError::Refused { what: "add a stream", code }),
        }
    }

    /// Lets others see the streams that were added.
    pub(crate) fn publish_streams(&mut self) -> Result<(), RelayError> {
        self.ask(Command::StreamsSent, Payload::default())?;
        self.connection.done("show streams")
    }

    /// Sends whole packets of metadata.
    pub(crate) fn send_metadata(&mut self, stream: StreamId, bytes: &[u8]) -> Result<(), RelayError> {
        let handle = self.handle(stream)?;
        let payload = Payload::default().u64(handle).u32(0).into_bytes();
        // There is no answer.
        self.connection.send_parts(Command::SendMetadata, &payload, bytes)
    }

    /// Lets the metadata of a stream begin anew, in its place.
    pub(crate) fn reset_metadata(&mut self, stream: StreamId, version: u64) -> Result<(), RelayError> {
        let payload = Payload::default().u64(self.handle(stream)?).u64(version);
        self.ask(Command::ResetMetadata, payload)?;
        self.connection.done("write metadata anew")
    }

    /// Sends a packet of a stream.
    pub(crate) fn send_packet(
        &mut self,
        stream: StreamId,
        packet: &Packet,
        bytes: &[u8],
    ) -> Result<(), RelayError> {
        let Stream { handle, sent, .. } = *self.stream(stream)?;
        self.connection.send_packet(handle, sent, bytes)?;
        if self.has_indexes {
            let Packet { size_bits, content_bits, begin, end, discarded, stream: of, instance, sequence } =
                *packet;
            let payload = Payload::default().u64(handle).u64(sent).u64(size_bits).u64(content_bits);
            let payload = payload.u64(begin).u64(end).u64(discarded).u64(of);
            let payload =
                if self.minor >= MINOR_PACKETS { payload.u64(instance).u64(sequence) } else { payload };
            self.connection.send(Command::SendIndex, &payload.into_bytes())?;
            self.owed += 1;
            if self.owed >= OWED_MAX {
                self.settle()?;
            }
        }
        let of = self.stream(stream)?;
        (of.sent, of.next) = (sent + 1, packet.sequence.wrapping_add(1));
        Ok(())
    }

    /// Says that a stream of this class has no event from before a time any more, by the trace's clock. A
    /// relay daemon takes that for a stream that has packets, all of which are stored.
    pub(crate) fn send_beacon(&mut self, stream: StreamId, class: u64, until: u64) -> Result<(), RelayError> {
        let Stream { handle, sent, .. } = *self.stream(stream)?;
        // An index of nothing: neither bits nor a begin nor losses.
        let payload =
            Payload::default().u64(handle).u64(sent).u64(0).u64(0).u64(0).u64(until).u64(0).u64(class);
        let payload = if self.minor >= MINOR_PACKETS { payload.u64(0).u64(0) } else { payload };
        self.connection.send(Command::SendIndex, &payload.into_bytes())?;
        self.owed += 1;
        if self.owed >= OWED_MAX { self.settle() } else { Ok(()) }
    }

    /// Whether all packets that were sent to a stream are stored there. Without any there is nothing to ask.
    pub(crate) fn is_stored(&mut self, stream: StreamId) -> Result<bool, RelayError> {
        let Stream { handle, sent, .. } = *self.stream(stream)?;
        let Some(last) = sent.checked_sub(1) else { return Ok(true) };
        self.ask(Command::DataPending, Payload::default().u64(handle).u64(last))?;
        match self.connection.code()? {
            0 => Ok(true),
            1 => Ok(false),
            code => Err(RelayError::Refused { what: "say whether packets are stored", code }),
        }
    }

    /// Lets streams go on in the chunk that was begun last. All of their packets are stored, and there are
    /// some.
    pub(crate) fn rotate(&mut self, streams: &[StreamId]) -> Result<(), RelayError> {
        let mut positions = Payload::default();
        for id in streams {
            let Stream { handle, next, .. } = *self.stream(*id)?;
            positions = positions.u64(handle).u64(next);
        }
        // Padded as relay daemons on 64 bits have read it since there is the command.
        let head = Payload::default().u32(streams.len() as u32).u8(1).bytes(&[0; 7]).u64(self.chunk);
        self.ask(Command::RotateStreams, head.bytes(&positions.into_bytes()))?;
        self.connection.done("let streams go on in the next trace chunk")
    }

    /// Closes a chunk, at a time in seconds since 1970. Gives where it is or will be.
    pub(crate) fn close_chunk(&mut self, id: u64, at: u64, end: ChunkEnd) -> Result<String, RelayError> {
        let payload = Payload::default().u64(id).u64(at).u8(1).u32(end as u32);
        self.ask(Command::CloseTraceChunk, payload)?;
        let answer = self.connection.answer::<8>()?;
        match u32_at(&answer, 0) {
            OK => self.connection.path(u32_at(&answer, 4)),
            code => Err(RelayError::Refused { what: "close a trace chunk", code }),
        }
    }

    /// Whether a chunk that was closed is not yet what it becomes.
    pub(crate) fn is_closing(&mut self, id: u64) -> Result<bool, RelayError> {
        self.ask(Command::TraceChunkExists, Payload::default().u64(id))?;
        let answer = self.connection.answer::<5>()?;
        match (u32_at(&answer, 0), answer[4]) {
            (OK, exists) => Ok(exists != 0),
            (code, _) => Err(RelayError::Refused { what: "say whether a trace chunk is closed", code }),
        }
    }

    /// Ends a stream. Nothing more of it is asked.
    pub(crate) fn close_stream(&mut self, stream: StreamId) -> Result<(), RelayError> {
        let Stream { handle, sent, .. } = *self.stream(stream)?;
        // One less than none is what streams without packets are closed with.
        let payload = Payload::default().u64(handle).u64(sent.wrapping_sub(1));
        self.ask(Command::CloseStream, payload)?;
        self.connection.done("close a stream")?;
        self.stream(stream)?.is_open = false;
        Ok(())
    }

    /// Whether packets were sent to a stream.
    pub(crate) fn has_packets(&self, stream: StreamId) -> bool {
        self.streams.get(stream.0).is_some_and(|of| of.sent != 0)
    }

    /// Sends a command whose answer is read next: those that are owed come before it.
    fn ask(&mut self, command: Command, payload: Payload) -> Result<(), RelayError> {
        self.settle()?;
        self.connection.send(command, &payload.into_bytes())
    }

    /// Takes the answers of indexes.
    fn settle(&mut self) -> Result<(), RelayError> {
        while self.owed > 0 {
            self.owed -= 1;
            self.connection.done("take the index of a packet")?;
        }
        Ok(())
    }

    fn stream(&mut self, id: StreamId) -> Result<&mut Stream, RelayError> {
        let stream = self.streams.get_mut(id.0).filter(|stream| stream.is_open);
        stream.ok_or(RelayError::Nonsense("a stream that is closed"))
    }

    fn handle(&mut self, id: StreamId) -> Result<u64, RelayError> {
        self.stream(id).map(|stream| stream.handle)
    }
}

/// Gives the minor version that both speak.
fn agree(connection: &mut Connection<impl Socket>) -> Result<u32, RelayError> {
    let payload = Payload::default().u32(MAJOR).u32(MINOR_NEWEST).into_bytes();
    connection.send(Command::Version, &payload)?;
    let answer = connection.answer::<8>()?;
    let (major, minor) = (u32_at(&answer, 0), u32_at(&answer, 4));
    if major != MAJOR || minor < MINOR_OLDEST {
        return Err(RelayError::Version { major, minor });
    }
    Ok(minor.min(MINOR_NEWEST))
}

fn configuration(connection: &mut Connection<impl Socket>) -> Result<u64, RelayError> {
    connection.send(Command::GetConfiguration, &Payload::default().u64(0).into_bytes())?;
    let answer = connection.answer::<12>()?;
    match u32_at(&answer, 0) {
        OK => Ok(u64_at(&answer, 4)),
        code => Err(RelayError::Refused { what: "tell its configuration", code }),
    }
}

/// Creates a session. Gives where its files go.
fn create(
    connection: &mut Connection<impl Socket>,
    minor: u32,
    new: &NewSession,
) -> Result<String, RelayError> {
    let is_new = minor >= MINOR_CHUNKS;
    let (name_max, host_max) = if is_new { (NAME_MAX, HOST_MAX) } else { (NAME_2_4, HOST_2_4) };
    let name = Text::new("the name of the session", &new.name, name_max)?;
    let host = Text::new("the name of this host", &new.host, host_max)?;
    let base = Text::optional("the path in the address", &new.base_path, PATH_MAX)?;
    let payload = if is_new {
        let head = Payload::default().u32(name.len()).u32(host.len()).u32(base.len()).u32(new.live_timer_us);
        let head = head.u8(new.is_snapshot.into()).u8(new.has_time_in_name.into()).bytes(&new.sender);
        // There is no chunk yet.
        let head = head.u64(new.id).u64(new.created_at).u8(0).u64(0);
        head.text(&name).text(&host).text(&base)
    } else {
        let names = Payload::default().padded(&name, NAME_2_4).padded(&host, HOST_2_4);
        names.u32(new.live_timer_us).u32(new.is_snapshot.into())
    };
    connection.send(Command::CreateSession, &payload.into_bytes())?;
    let answer = connection.answer::<12>()?;
    match (u32_at(&answer, 8), is_new) {
        (OK, true) => {
            let size = u32::from_be_bytes(connection.answer()?);
            connection.path(size)
        }
        (OK, false) => Ok(old_path(new)),
        (code, _) => Err(RelayError::Refused { what: "create a session", code }),
    }
}

/// Where the files of a session go if it is for who sends them to say.
fn old_path(new: &NewSession) -> String {
    let NewSession { name, host, base_path, created_at, has_time_in_name, .. } = new;
    match (base_path.is_empty(), has_time_in_name) {
        (false, _) => format!("{host}/{base_path}"),
        (true, true) => format!("{host}/{name}"),
        (true, false) => format!("{host}/{name}-{}", utc::date_and_time(*created_at)),
    }
}
