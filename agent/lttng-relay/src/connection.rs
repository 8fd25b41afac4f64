//! The connections to a relay daemon: one for commands and their answers, one for packets.
//!
//! Whatever is waited for has a deadline: an answer as a whole, however few bytes of it come at a time, and
//! the sending of a command or packet.

use std::{
    io::{self, ErrorKind, IoSlice, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{
    RelayAddress, RelayError,
    wire::{self, Command},
};

/// How many addresses of a host are tried.
const ADDRESSES_MAX: usize = 8;

/// How long a relay daemon is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For a connection.
    pub(crate) connect: Duration,
    /// For an answer, and until it takes a command or a packet.
    pub(crate) answer: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), answer: Duration::from_secs(10) }
    }
}

/// Ends connections of another thread, whatever that waits for.
#[derive(Clone, Debug, Default)]
pub struct Hangup(Arc<Mutex<HangupState>>);

#[derive(Debug, Default)]
struct HangupState {
    is_over: bool,
    sockets: Vec<TcpStream>,
}

impl Hangup {
    /// Ends what there is, and what is connected later.
    pub fn hang_up(&self) {
        let mut state = self.lock();
        state.is_over = true;
        for socket in state.sockets.drain(..) {
            // It may have ended by itself.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Whether [`hang_up`](Self::hang_up) was called.
    pub fn is_over(&self) -> bool {
        self.lock().is_over
    }

    fn add(&self, socket: &TcpStream) -> io::Result<()> {
        let mut state = self.lock();
        if state.is_over {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        state.sockets.push(socket.try_clone()?);
        Ok(())
    }

    /// Forgets connections that are over.
    fn clear(&self) {
        self.lock().sockets.clear();
    }

    fn lock(&self) -> MutexGuard<'_, HangupState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a connection reads from and writes to, with an end to both.
pub(super) trait Socket: Read + Write {
    /// How long a read waits at most.
    fn set_read_timeout(&self, time: Option<Duration>) -> io::Result<()>;
    /// How long a write waits at most.
    fn set_write_timeout(&self, time: Option<Duration>) -> io::Result<()>;
}

impl Socket for TcpStream {
    fn set_read_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        Self::set_read_timeout(self, time)
    }

    fn set_write_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        Self::set_write_timeout(self, time)
    }
}

/// Both connections.
#[derive(Debug)]
pub(super) struct Connection<S = TcpStream> {
    control: S,
    data: S,
    answer: Duration,
    hangup: Hangup,
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        self.hangup.clear();
    }
}

impl Connection {
    pub(crate) fn open(
        address: &RelayAddress,
        patience: Patience,
        hangup: &Hangup,
    ) -> Result<Self, RelayError> {
        let control = connect(address, address.control, (patience, hangup))?;
        // The same host, whatever else its name leads to.
        let peer = control.peer_addr()?.ip();
        hangup.add(&control)?;
        let data = connect_to(SocketAddr::new(peer, address.data), patience);
        let data = data.inspect_err(|_| hangup.clear())?;
        hangup.add(&data)?;
        Ok(Self::of(control, data, (patience.answer, hangup)))
    }
}

impl<S: Socket> Connection<S> {
    /// That of sockets that are connected.
    pub(super) fn of(control: S, data: S, (answer, hangup): (Duration, &Hangup)) -> Self {
        Self { control, data, answer, hangup: hangup.clone() }
    }

    /// Sends a command. Its answer, if it has one, is asked for in the order of commands.
    pub(super) fn send(&mut self, command: Command, payload: &[u8]) -> Result<(), RelayError> {
        self.send_parts(command, payload, &[])
    }

    /// The same with a payload in two parts.
    pub(super) fn send_parts(
        &mut self,
        command: Command,
        payload: &[u8],
        rest: &[u8],
    ) -> Result<(), RelayError> {
        let header = wire::header(command, payload.len() as u64 + rest.len() as u64);
        write_all(&mut self.control, [&header, payload, rest], self.answer)
    }

    /// Sends a packet.
    pub(super) fn send_packet(
        &mut self,
        stream: u64,
        sequence: u64,
        packet: &[u8],
    ) -> Result<(), RelayError> {
        let header = wire::data_header(stream, sequence, packet.len() as u32);
        write_all(&mut self.data, [&header, packet, &[]], self.answer)
    }

    /// The answer that is next, which has so many bytes.
    pub(super) fn answer<const SIZE: usize>(&mut self) -> Result<[u8; SIZE], RelayError> {
        let mut bytes = [0; SIZE];
        read_exact(&mut self.control, &mut bytes, self.answer)?;
        Ok(bytes)
    }

    /// The answer that is next: a code.
    pub(super) fn code(&mut self) -> Result<u32, RelayError> {
        Ok(u32::from_be_bytes(self.answer()?))
    }

    /// The same, which says that it was done.
    pub(super) fn done(&mut self, what: &'static str) -> Result<(), RelayError> {
        match self.code()? {
            wire::OK => Ok(()),
            code => Err(RelayError::Refused { what, code }),
        }
    }

    /// The rest of an answer: a path of so many bytes, its end included.
    pub(super) fn path(&mut self, size: u32) -> Result<String, RelayError> {
        let size = usize::try_from(size).ok().filter(|size| *size <= wire::PATH_MAX);
        let size = size.ok_or(RelayError::Nonsense("a path that is longer than paths are"))?;
        let mut bytes = vec![0; size];
        read_exact(&mut self.control, &mut bytes, self.answer)?;
        if bytes.pop().is_some_and(|end| end != 0) || bytes.contains(&0) {
            return Err(RelayError::Nonsense("a path without an end"));
        }
        let path = String::from_utf8(bytes).ok().filter(|path| !path.contains(char::is_control));
        path.ok_or(RelayError::Nonsense("a path that is no text"))
    }
}

fn connect(
    address: &RelayAddress,
    port: u16,
    (patience, hangup): (Patience, &Hangup),
) -> Result<TcpStream, RelayError> {
    let RelayAddress { host, version, .. } = address;
    let found = (host.as_str(), port).to_socket_addrs();
    let found = found.map_err(|source| RelayError::Resolve { host: host.clone(), source })?;
    let mut last = RelayError::NoAddress { host: host.clone(), version: *version };
    for address in found.filter(|found| found.is_ipv6() == (*version == 6)).take(ADDRESSES_MAX) {
        if hangup.is_over() {
            return Err(io::Error::from(ErrorKind::ConnectionAborted).into());
        }
        match connect_to(address, patience) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn connect_to(address: SocketAddr, patience: Patience) -> Result<TcpStream, RelayError> {
    let connected = TcpStream::connect_timeout(&address, patience.connect).and_then(|socket| {
        // Commands are small, and each is waited for.
        socket.set_nodelay(true)?;
        Ok(socket)
    });
    connected.map_err(|source| RelayError::Connect { address, source })
}

/// What is left until a deadline.
struct Deadline {
    end: Instant,
    all: Duration,
}

impl Deadline {
    fn new(all: Duration) -> Self {
        Self { end: Instant::now() + all, all }
    }

    fn left(&self) -> Result<Option<Duration>, RelayError> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(RelayError::Silent(self.all)) } else { Ok(Some(left)) }
    }

    /// What an error means that came while this was waited for; nothing if it is to be tried again.
    fn failed(&self, error: io::Error) -> Result<(), RelayError> {
        match error.kind() {
            ErrorKind::Interrupted => Ok(()),
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Err(RelayError::Silent(self.all)),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => {
                Err(RelayError::Closed)
            }
            _ => Err(RelayError::Lost(error)),
        }
    }
}

fn read_exact(socket: &mut impl Socket, bytes: &mut [u8], limit: Duration) -> Result<(), RelayError> {
    let deadline = Deadline::new(limit);
    let mut read = 0;
    while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
        socket.set_read_timeout(deadline.left()?)?;
        match socket.read(rest) {
            Ok(0) => return Err(RelayError::Closed),
            Ok(size) => read += size,
            Err(error) => deadline.failed(error)?,
        }
    }
    Ok(())
}

fn write_all(socket: &mut impl Socket, parts: [&[u8]; 3], limit: Duration) -> Result<(), RelayError> {
    let deadline = Deadline::new(limit);
    let mut slices = parts.map(IoSlice::new);
    let mut rest = &mut slices[..];
    // Empty ones at the front are nothing to write.
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        socket.set_write_timeout(deadline.left()?)?;
        match socket.write_vectored(rest) {
            Ok(0) => return Err(RelayError::Closed),
            Ok(size) => IoSlice::advance_slices(&mut rest, size),
            Err(error) => deadline.failed(error)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    const MOMENT: Duration = Duration::from_millis(300);

    /// Both connections to somebody who writes this, one byte at a time, and then nothing more.
    fn connection(answer: &'static [u8], pause: Duration) -> Connection {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [control, data] = listeners.each_ref().map(|of| of.local_addr().unwrap().port());
        thread::spawn(move || {
            let mut sockets = listeners.map(|listener| listener.accept().unwrap().0);
            for byte in answer.chunks(1) {
                if sockets[0].write_all(byte).is_err() {
                    return;
                }
                thread::sleep(pause);
            }
            // Until the other side is gone.
            let _ = sockets[1].read(&mut [0]);
        });
        let address = RelayAddress::parse(&format!("net://127.0.0.1:{control}:{data}")).unwrap();
        let patience = Patience { connect: MOMENT, answer: MOMENT };
        Connection::open(&address, patience, &Hangup::default()).unwrap()
    }

    #[test]
    fn answers_come_in_time_or_not_at_all() {
        let mut whole = connection(&[0, 0, 0, 10], Duration::ZERO);
        assert!(whole.done("do it").is_ok());
        assert!(matches!(whole.done("do it"), Err(RelayError::Silent(_))));
        // Each byte is in time, but not the answer.
        let begun = Instant::now();
        let mut slow = connection(&[0; 64], MOMENT / 4);
        assert!(matches!(slow.answer::<64>(), Err(RelayError::Silent(_))));
        assert!(begun.elapsed() < MOMENT * 8, "{:?}", begun.elapsed());
        let mut other = connection(&[0, 0, 0, 97], Duration::ZERO);
        assert!(matches!(other.done("do it"), Err(RelayError::Refused { what: "do it", code: 97 })));
    }

    #[test]
    fn paths_of_answers_are_paths() {
        assert_eq!(connection(b"a/b\0", Duration::ZERO).path(4).unwrap(), "a/b");
        for (answer, size) in
            [(&b"a/b\0"[..], u32::MAX), (b"abcd", 4), (b"a\0b\0", 4), (b"\xff\xff\0", 3), (b"\x1b[m\0", 4)]
        {
            let read = connection(answer, Duration::ZERO).path(size);
            assert!(matches!(read, Err(RelayError::Nonsense(_))), "{read:?}");
        }
        assert!(matches!(connection(b"ab", Duration::ZERO).path(4), Err(RelayError::Silent(_))));
    }

    #[test]
    fn who_waits_can_be_told_not_to() {
        let mut connection = connection(&[], Duration::ZERO);
        let hangup = connection.hangup.clone();
        connection.answer = Duration::from_mins(1);
        let waiting = thread::spawn(move || connection.code());
        thread::sleep(MOMENT / 4);
        hangup.hang_up();
        assert!(matches!(waiting.join().unwrap(), Err(RelayError::Closed)));
        let address = RelayAddress::parse("net://127.0.0.1:1:1").unwrap();
        let refused = Connection::open(&address, Patience::default(), &hangup);
        assert!(matches!(refused, Err(RelayError::Lost(_))), "nobody is connected to");
    }
}
