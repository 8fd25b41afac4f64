//! Connections and datagrams, of both kinds of networks. None of them ever waits, except where it is polled.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _, UdpSocket},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::ioctl_fionbio,
    net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt},
};

use super::Peer;

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(30);
/// How long nothing comes before it is asked whether the other machine is still there.
const ASK_AFTER: Duration = Duration::from_mins(1);
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 16;

/// A connection, or the socket of datagrams with one other.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

impl Socket {
    /// Connects to a listener, by any of its addresses.
    pub(super) fn connect(peer: &Peer) -> io::Result<(Self, Option<SocketAddr>)> {
        match peer {
            Peer::Vsock { cid, port } => Ok((vsock::connect(*cid, *port)?, None)),
            Peer::Ip { host, port } => {
                let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match Self::connect_to(address) {
                        Ok(socket) => return Ok((socket, Some(address))),
                        Err(error) => failed = error,
                    }
                }
                Err(failed)
            }
        }
    }

    /// Connects to an address.
    pub(super) fn connect_to(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, CONNECT)?;
        stream.set_nodelay(true)?;
        Self::of(stream.into())
    }

    /// Sends datagrams to an address.
    pub(super) fn datagrams_to(address: SocketAddr) -> io::Result<Self> {
        let any: IpAddr = if address.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(address)?;
        Self::of(socket.into())
    }

    /// Takes a socket, which does not wait from now on.
    pub(super) fn of(fd: OwnedFd) -> io::Result<Self> {
        ioctl_fionbio(&fd, true)?;
        Ok(Self(fd))
    }

    /// Has the kernel ask the other machine now and then whether it is still there.
    pub(super) fn keep_alive(&self) -> io::Result<()> {
        sockopt::set_socket_keepalive(&self.0, true)?;
        Ok(sockopt::set_tcp_keepidle(&self.0, ASK_AFTER)?)
    }

    /// Reads what is there; 0 at the end. `None` if nothing is there now.
    pub(super) fn read(&self, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match recv(&self.0, &mut *bytes, RecvFlags::empty()) {
                Ok((_, len)) => return Ok(Some(len)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes as much as goes now; `None` if nothing does.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        loop {
            match send(&self.0, bytes, SendFlags::NOSIGNAL) {
                Ok(len) => return Ok(Some(len)),
                Err(rustix::io::Errno::INTR) => {}
                // Of datagrams the kernel may have no memory for one more (udp(7)).
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes all of it. Fails if nothing goes for so long.
    pub(super) fn write_all(&self, mut bytes: &[u8], patience: Duration) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write(bytes)? {
                Some(len) => bytes = bytes.get(len..).unwrap_or_default(),
                None if ready(self.as_fd(), PollFlags::OUT, patience)? => {}
                None => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        Ok(())
    }

    /// Reads until so many bytes are there. Fails if that is not so at the time.
    pub(super) fn read_exact(&self, mut bytes: &mut [u8], until: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.read(bytes)? {
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(len) => bytes = bytes.get_mut(len..).unwrap_or_default(),
                None => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() || !ready(self.as_fd(), PollFlags::IN, left)? && Instant::now() >= until
                    {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
            }
        }
        Ok(())
    }

    /// Which address of this machine it is at, of a network.
    pub(super) fn local(&self) -> Option<IpAddr> {
        let address = rustix::net::getsockname(&self.0).ok()?;
        SocketAddr::try_from(address).ok().map(|address| address.ip())
    }

    /// Says that nothing more is written.
    pub(super) fn end_writing(&self) -> io::Result<()> {
        Ok(shutdown(&self.0, Shutdown::Write)?)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether something is so within this time. An interrupted wait is a short one.
fn ready(fd: BorrowedFd<'_>, flags: PollFlags, within: Duration) -> io::Result<bool> {
    wait(&mut [PollFd::from_borrowed_fd(fd, flags)], within).map(|ready| ready > 0)
}

/// Waits until one of them is ready. Gives how many are.
pub(super) fn wait(fds: &mut [PollFd<'_>], within: Duration) -> io::Result<usize> {
    let time = Timespec {
        tv_sec: within.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: within.subsec_nanos().into(),
    };
    match poll(fds, Some(&time)) {
        Ok(ready) => Ok(ready),
        Err(rustix::io::Errno::INTR) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remote {
    Ip(SocketAddr),
    Vsock { cid: u32, port: u32 },
}

impl Remote {
    /// Whether both are of one machine.
    pub(super) fn is_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ip(one), Self::Ip(other)) => one.ip() == other.ip(),
            (Self::Vsock { cid: one, .. }, Self::Vsock { cid: other, .. }) => one == other,
            _ => false,
        }
    }
}

impl std::fmt::Display for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ip(address) => write!(f, "{}:{}", address.ip(), address.port()),
            Self::Vsock { cid, port } => write!(f, "V{cid}:{port}"),
        }
    }
}

/// What connections come to.
#[derive(Debug)]
pub(super) enum Door {
    Tcp(TcpListener),
    Vsock(OwnedFd),
}

impl Door {
    /// Opens a port of an address; 0 for any that is free.
    pub(super) fn tcp(address: IpAddr, port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((address, port))?;
        listener.set_nonblocking(true)?;
        Ok(Self::Tcp(listener))
    }

    /// Opens a port for virtual machines and their host.
    pub(super) fn vsock(port: u32) -> io::Result<Self> {
        Ok(Self::Vsock(vsock::listen(port)?))
    }

    /// The port.
    pub(super) fn port(&self) -> io::Result<u32> {
        match self {
            Self::Tcp(listener) => Ok(listener.local_addr()?.port().into()),
            Self::Vsock(fd) => vsock::port(fd),
        }
    }

    /// Who has come; `None` if nobody has.
    pub(super) fn accept(&self) -> io::Result<Option<(Socket, Remote)>> {
        let accepted = match self {
            Self::Tcp(listener) => listener.accept().and_then(|(stream, address)| {
                stream.set_nodelay(true)?;
                Ok((stream.into(), Remote::Ip(SocketAddr::new(address.ip().to_canonical(), address.port()))))
            }),
            Self::Vsock(fd) => vsock::accept(fd),
        };
        match accepted {
            Ok((fd, remote)) => Ok(Some((Socket::of(fd)?, remote))),
            // Who has gone again before has not come.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Vsock(fd) => fd.as_fd(),
        }
    }
}

/// Sockets of virtual machines (vsock(7)), which the standard library does not know.
mod vsock {
    use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _};

    use super::{BACKLOG, CONNECT, OwnedFd, PollFlags, Remote, Socket, io, ready};

    const LEN: libc::socklen_t = size_of::<libc::sockaddr_vm>() as libc::socklen_t;

    fn address(cid: u32, port: u32) -> libc::sockaddr_vm {
        // SAFETY: all bytes 0 are a valid value of this structure of numbers.
        let mut address: libc::sockaddr_vm = unsafe { std::mem::zeroed() };
        address.svm_family = libc::AF_VSOCK as libc::sa_family_t;
        (address.svm_cid, address.svm_port) = (cid, port);
        address
    }

    fn socket() -> io::Result<OwnedFd> {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: takes plain numbers; a descriptor that it gives is nobody else's.
        unsafe {
            let fd = libc::socket(libc::AF_VSOCK, kind, 0);
            if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
        }
    }

    pub(super) fn connect(cid: u32, port: u32) -> io::Result<Socket> {
        let fd = socket()?;
        let to = address(cid, port);
        // SAFETY: the address is a valid object of the size given.
        let done = unsafe { libc::connect(fd.as_raw_fd(), (&raw const to).cast(), LEN) };
        if done != 0 {
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EINPROGRESS) {
                return Err(error);
            }
            if !ready(fd.as_fd(), PollFlags::OUT, CONNECT)? {
                return Err(io::ErrorKind::TimedOut.into());
            }
            rustix::net::sockopt::socket_error(&fd)??;
        }
        Socket::of(fd)
    }

    pub(super) fn listen(port: u32) -> io::Result<OwnedFd> {
        let fd = socket()?;
        let at = address(libc::VMADDR_CID_ANY, if port == 0 { libc::VMADDR_PORT_ANY } else { port });
        // SAFETY: the address is a valid object of the size given.
        let done = unsafe { libc::bind(fd.as_raw_fd(), (&raw const at).cast(), LEN) };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        rustix::net::listen(&fd, BACKLOG)?;
        Ok(fd)
    }

    pub(super) fn port(fd: &OwnedFd) -> io::Result<u32> {
        let (mut found, mut len) = (address(0, 0), LEN);
        // SAFETY: both are valid objects to write to, the first of the size given.
        let done = unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut found).cast(), &raw mut len) };
        if done == 0 { Ok(found.svm_port) } else { Err(io::Error::last_os_error()) }
    }

    pub(super) fn accept(fd: &OwnedFd) -> io::Result<(OwnedFd, Remote)> {
        let (mut from, mut len) = (address(0, 0), LEN);
        // SAFETY: both are valid objects to write to, the first of the size given; a descriptor that it gives
        // is nobody else's.
        let accepted = unsafe {
            let to = (&raw mut from).cast();
            let accepted = libc::accept4(fd.as_raw_fd(), to, &raw mut len, libc::SOCK_CLOEXEC);
            if accepted < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(accepted)) }
        };
        Ok((accepted?, Remote::Vsock { cid: from.svm_cid, port: from.svm_port }))
    }
}
