//! The data connections, one for each CPU.
//!
//! What does not go into one now waits here, a little of it; more waits in the spool.

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

use agent_ebpf::PAGE_SIZE;
use rustix::event::{PollFd, PollFlags};

use super::{
    super::{
        Carrier, Peer,
        socket::{Socket, wait},
    },
    SendError,
};

/// Bytes that wait for one connection at most, but for the pages that were added last.
const WAITING_MAX: usize = 1 << 20;
/// Datagrams that are sent without a pause: the listener's memory for each CPU takes some 25 (rmem_default of
/// socket(7)).
const BURST: u32 = 8;
/// The pause after them.
const PAUSE: Duration = Duration::from_millis(1);
/// How long a port that the listener has said may be closed: trace-cmd opens it in a process that may not
/// have run yet.
const OPENING: Duration = Duration::from_secs(5);
/// How often it is tried.
const AGAIN: Duration = Duration::from_millis(20);

/// Connects to a port that may not be open yet.
fn patiently<T>(connect: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let until = Instant::now() + OPENING;
    loop {
        match connect() {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && Instant::now() < until => {
                std::thread::sleep(AGAIN);
            }
            connected => return connected,
        }
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Lanes {
    cpus: Vec<Lane>,
    is_datagrams: bool,
    sent: u64,
    /// Datagrams since the last pause.
    burst: u32,
}

#[derive(Debug)]
struct Lane {
    socket: Socket,
    waiting: VecDeque<u8>,
    has_ended: bool,
}

impl Lanes {
    /// Connects to the ports of a listener, the one of CPU 0 first.
    pub(super) fn open(
        ports: &[u32],
        carrier: Carrier,
        (peer, address): (&Peer, Option<SocketAddr>),
    ) -> Result<Self, SendError> {
        let connect = |port: u32| match (address, peer) {
            (Some(mut address), _) => {
                let port = u16::try_from(port).map_err(|_| io::Error::other(format!("{port} is no port")))?;
                address.set_port(port);
                if carrier == Carrier::Udp {
                    Socket::datagrams_to(address)
                } else {
                    Socket::connect_to(address)
                }
            }
            (None, Peer::Vsock { cid, .. }) => Ok(Socket::connect(&Peer::Vsock { cid: *cid, port })?.0),
            (None, Peer::Ip { .. }) => Err(io::ErrorKind::AddrNotAvailable.into()),
        };
        let open = |port: &u32| {
            let socket = patiently(|| connect(*port)).map_err(|source| {
                let peer = match peer {
                    Peer::Ip { host, .. } => {
                        Peer::Ip { host: host.clone(), port: u16::try_from(*port).unwrap_or_default() }
                    }
                    Peer::Vsock { cid, .. } => Peer::Vsock { cid: *cid, port: *port },
                };
                SendError::Connect { peer, source }
            })?;
            Ok(Lane { socket, waiting: VecDeque::new(), has_ended: false })
        };
        let lanes = ports.iter().map(open).collect::<Result<_, SendError>>()?;
        Ok(Self { cpus: lanes, is_datagrams: carrier == Carrier::Udp, sent: 0, burst: 0 })
    }

    /// Bytes that were sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Adds pages of a CPU. Of CPUs that nobody knew of at the beginning there is no connection: `false`.
    pub(super) fn add(&mut self, cpu: u32, pages: &[u8]) -> bool {
        let lane = self.cpus.get_mut(cpu as usize);
        lane.map(|lane| lane.waiting.extend(pages)).is_some()
    }

    /// Whether one of them has as much as it should.
    pub(super) fn is_full(&self) -> bool {
        self.cpus.iter().any(|lane| lane.waiting.len() >= WAITING_MAX)
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.cpus.iter().all(|lane| lane.waiting.is_empty())
    }

    /// What to wait for.
    pub(super) fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        let waiting = self.cpus.iter().filter(|lane| !lane.waiting.is_empty());
        waiting.map(|lane| PollFd::from_borrowed_fd(lane.socket.as_fd(), PollFlags::OUT))
    }

    /// Sends what goes now. Gives how many bytes did.
    pub(super) fn send(&mut self) -> io::Result<u64> {
        let before = self.sent;
        let Self { cpus, is_datagrams, sent, burst } = self;
        for lane in cpus {
            while !lane.waiting.is_empty() {
                let (front, _) = lane.waiting.as_slices();
                // A page that goes around the end of the memory is moved together.
                let bytes = if *is_datagrams && front.len() < PAGE_SIZE {
                    &*lane.waiting.make_contiguous()
                } else {
                    front
                };
                let bytes = if *is_datagrams { bytes.get(..PAGE_SIZE).unwrap_or(bytes) } else { bytes };
                let Some(len) = lane.socket.write(bytes)? else { break };
                lane.waiting.drain(..len);
                *sent += len as u64;
                if *is_datagrams {
                    *burst += 1;
                    if *burst == BURST {
                        *burst = 0;
                        std::thread::sleep(PAUSE);
                    }
                }
            }
        }
        Ok(self.sent - before)
    }

    /// Says that nothing more comes, and waits until the listener has taken all of it. Of datagrams nobody
    /// knows.
    pub(super) fn end(&mut self, patience: Duration) -> io::Result<()> {
        if self.is_datagrams {
            return Ok(());
        }
        for lane in &self.cpus {
            lane.socket.end_writing()?;
        }
        let mut until = Instant::now() + patience;
        loop {
            for lane in self.cpus.iter_mut().filter(|lane| !lane.has_ended) {
                // It has nothing to say, and closes the connection when it has read the end of it.
                if lane.socket.read(&mut [0; 64])? == Some(0) {
                    lane.has_ended = true;
                    until = Instant::now() + patience;
                }
            }
            let open = self.cpus.iter().filter(|lane| !lane.has_ended);
            let mut fds: Vec<_> =
                open.map(|lane| PollFd::from_borrowed_fd(lane.socket.as_fd(), PollFlags::IN)).collect();
            if fds.is_empty() {
                return Ok(());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            wait(&mut fds, left)?;
        }
    }
}
