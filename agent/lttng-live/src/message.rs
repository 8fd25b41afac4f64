//! The messages of the viewer protocol, version 2.4: integers are big-endian, and nothing is padded
//! (lttng-tools `src/bin/lttng-relayd/lttng-viewer-abi.h`).

use ctf_writer::Packet;

/// The version that is spoken.
pub(super) const VERSION: (u32, u32) = (2, 4);
/// Bytes of the header of a request: of what follows, the command, its version.
const HEADER: usize = 16;
/// The longest request: a header and three numbers.
pub(super) const REQUEST_MAX: usize = HEADER + 20;
/// Room for names, with the zero at their end.
const HOST: usize = 64;
const NAME: usize = 255;
const PATH: usize = 4096;

/// What a viewer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Connect { major: u32, minor: u32, kind: u32 },
    ListSessions,
    Attach { session: u64, seek: u32 },
    NextIndex { stream: u64 },
    Packet { stream: u64, offset: u64, bytes: u32 },
    Metadata { stream: u64 },
    NewStreams { session: u64 },
    CreateSession,
    Detach { session: u64 },
}

/// What the bytes that have come begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// A request, and its bytes.
    Whole(Request, usize),
    /// A part of one.
    Part,
    /// Nothing of this protocol.
    Wrong,
}

/// Takes a request from the begin of what has come.
pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let Some((header, rest)) = bytes.split_at_checked(HEADER) else { return Parsed::Part };
    let (told, command) = (long(header, 0), word(header, 8));
    let size: usize = match command {
        1 | 3 | 5 => 20,
        4 | 6 | 7 | 9 => 8,
        2 | 8 => 0,
        _ => return Parsed::Wrong,
    };
    // Old viewers have told it in their own byte order; relay daemons do not look at it.
    if told != size as u64 && told.swap_bytes() != size as u64 {
        return Parsed::Wrong;
    }
    let Some(payload) = rest.get(..size) else { return Parsed::Part };
    let request = match command {
        1 => Request::Connect { major: word(payload, 8), minor: word(payload, 12), kind: word(payload, 16) },
        2 => Request::ListSessions,
        3 => Request::Attach { session: long(payload, 0), seek: word(payload, 16) },
        4 => Request::NextIndex { stream: long(payload, 0) },
        5 => Request::Packet { stream: long(payload, 0), offset: long(payload, 8), bytes: word(payload, 16) },
        6 => Request::Metadata { stream: long(payload, 0) },
        7 => Request::NewStreams { session: long(payload, 0) },
        8 => Request::CreateSession,
        _ => Request::Detach { session: long(payload, 0) },
    };
    Parsed::Whole(request, HEADER + size)
}

/// The number at a place of bytes that were counted before.
fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_be_bytes(*word))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_be_bytes(*word))
}

/// What has become of an attempt to attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attach {
    Ok = 1,
    Already = 2,
    Unknown = 3,
    WrongSeek = 5,
    NoViewerSession = 6,
}

/// The same of detaching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detach {
    Ok = 1,
    Unknown = 2,
}

/// Whether there are new streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewStreams {
    Ok = 1,
    None = 2,
    Error = 3,
    HungUp = 4,
}

/// What comes next in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Packet(Packet),
    Retry,
    HungUp,
    Error,
    /// Nothing until this time: a beacon, of a stream of this class.
    Inactive(u64, u64),
}

/// What is new beside an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    pub(super) metadata: bool,
    pub(super) streams: bool,
}

impl Flags {
    fn bits(self) -> u32 {
        u32::from(self.metadata) | u32::from(self.streams) << 1
    }
}

/// How a session is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed<'a> {
    pub(super) id: u64,
    pub(super) timer_us: u32,
    pub(super) clients: u32,
    pub(super) streams: u32,
    pub(super) host: &'a str,
    pub(super) name: &'a str,
}

/// How a stream is told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) id: u64,
    pub(super) trace: u64,
    pub(super) is_metadata: bool,
    pub(super) path: String,
    pub(super) channel: String,
}

/// An answer that is being put together.
#[derive(Debug)]
pub(super) struct Reply<'a>(pub(super) &'a mut Vec<u8>);

impl Reply<'_> {
    fn word(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    fn long(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    /// A text, cut at a character so that the zero at its end has room.
    fn text(&mut self, text: &str, room: usize) {
        let text = text.split('\0').next().unwrap_or_default();
        let mut len = text.len().min(room - 1);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        let end = self.0.len() + room;
        self.0.extend_from_slice(&text.as_bytes()[..len]);
        self.0.resize(end, 0);
    }

    pub(super) fn connected(&mut self, viewer: u64, kind: u32) {
        self.long(viewer);
        self.word(VERSION.0);
        self.word(VERSION.1);
        self.word(kind);
    }

    pub(super) fn sessions(&mut self, sessions: &[Listed<'_>]) {
        self.word(sessions.len() as u32);
        for &Listed { id, timer_us, clients, streams, host, name } in sessions {
            self.long(id);
            self.word(timer_us);
            self.word(clients);
            self.word(streams);
            self.text(host, HOST);
            self.text(name, NAME);
        }
    }

    pub(super) fn attached(&mut self, status: Attach, streams: &[Told]) {
        self.word(status as u32);
        self.streams(streams);
    }

    pub(super) fn new_streams(&mut self, status: NewStreams, streams: &[Told]) {
        self.word(status as u32);
        self.streams(streams);
    }

    fn streams(&mut self, streams: &[Told]) {
        self.word(streams.len() as u32);
        for Told { id, trace, is_metadata, path, channel } in streams {
            self.long(*id);
            self.long(*trace);
            self.word((*is_metadata).into());
            self.text(path, PATH);
            self.text(channel, NAME);
        }
    }

    pub(super) fn next(&mut self, next: Next, flags: Flags) {
        let (status, words) = match next {
            Next::Packet(packet) => {
                let Packet { offset, packet_bits, content_bits, begin, end, discarded, class, .. } = packet;
                (1, [offset, packet_bits, content_bits, begin, end, discarded, class])
            }
            Next::Retry => (2, [0; 7]),
            Next::HungUp => (3, [0; 7]),
            Next::Error => (4, [0; 7]),
            Next::Inactive(until, class) => (5, [0, 0, 0, 0, until, 0, class]),
        };
        for word in words {
            self.long(word);
        }
        self.word(status);
        self.word(flags.bits());
    }

    /// A part of a packet, which `read` puts into its place.
    ///
    /// # Errors
    /// It cannot be read; nothing is in the answer then.
    pub(super) fn packet<E>(
        &mut self,
        bytes: u32,
        read: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.0.len();
        self.word(1);
        self.word(bytes);
        self.word(0);
        let data = self.0.len();
        self.0.resize(data + bytes as usize, 0);
        let done = read(&mut self.0[data..]);
        if done.is_err() {
            self.0.truncate(start);
        }
        done
    }

    pub(super) fn no_packet(&mut self, flags: Flags) {
        self.word(3);
        self.word(0);
        self.word(flags.bits());
    }

    pub(super) fn metadata(&mut self, bytes: &[u8]) {
        self.long(bytes.len() as u64);
        self.word(if bytes.is_empty() { 2 } else { 1 });
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn no_metadata(&mut self) {
        self.long(0);
        self.word(3);
    }

    pub(super) fn viewer_session(&mut self) {
        self.word(1);
    }

    pub(super) fn detached(&mut self, status: Detach) {
        self.word(status as u32);
    }
}
