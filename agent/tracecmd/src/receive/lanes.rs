//! The data, one port and one file for each CPU.

use std::{
    fs,
    io::{self, Write as _},
    net::{IpAddr, UdpSocket},
    os::fd::AsFd as _,
};

use rustix::{
    event::{PollFd, PollFlags},
    net::sockopt,
};

use super::{
    super::{
        Carrier, PortRange,
        socket::{Door, Remote, Socket},
    },
    ReceiveError,
};
use stdx::output::Directory;

/// Bytes that are read at once.
const STEP: usize = 256 << 10;
/// What the kernel may keep of datagrams that were not read, of each CPU; most systems allow less to who is
/// not root.
const BUFFERED: usize = 8 << 20;
/// Bytes after which it is looked whether the disk has room for more.
const LOOK: u64 = 4 << 20;
/// Room that is left beside what came and its file.
const ROOM: u64 = 32 << 20;
/// How often one CPU is read before the others have their turn.
const TURNS: usize = 8;

/// All of them.
#[derive(Debug)]
pub(super) struct Lanes {
    cpus: Vec<Lane>,
    remote: Remote,
    page_size: usize,
    /// Where files are.
    dir: Directory,
    total: u64,
    limit: u64,
    /// Where it is looked for room again.
    look_at: u64,
    /// Connections and datagrams of others.
    foreign: u64,
    /// Datagrams that are no page.
    odd: u64,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Lane {
    source: From,
    /// Its data; there is no file before there are some.
    file: Option<fs::File>,
    len: u64,
}

/// Where data come from.
#[derive(Debug)]
enum From {
    /// A connection that is waited for.
    Door(Door),
    Connection(Socket),
    /// Datagrams, once the first has come only those of its sender.
    Datagrams {
        socket: UdpSocket,
        is_bound: bool,
    },
    /// Nothing more comes.
    Ended,
}

/// What came of one CPU.
#[derive(Debug)]
pub(super) struct CpuData {
    pub(super) cpu: u32,
    pub(super) file: fs::File,
    pub(super) len: u64,
}

impl Lanes {
    /// Opens ports for so many CPUs, at the address that the recorder has connected to.
    pub(super) fn open(
        (cpus, page_size, carrier): (u32, u32, Carrier),
        (local, remote): (Option<IpAddr>, Remote),
        ports: PortRange,
        (dir, limit): (&Directory, u64),
    ) -> Result<(Self, Vec<u32>), ReceiveError> {
        let mut lanes = Vec::new();
        let mut numbers = Vec::new();
        let mut next = ports.first;
        for cpu in 0..cpus as usize {
            let (source, port) = match local {
                None => vsock_door()?,
                Some(local) => loop {
                    if next > ports.last || next == 0 {
                        return Err(ReceiveError::NoPort { ports, cpu });
                    }
                    let port = next;
                    next = port.wrapping_add(1);
                    match From::open(local, port, carrier) {
                        Ok(source) => break (source, port.into()),
                        Err(error) if is_taken(&error) => {}
                        Err(error) => return Err(ReceiveError::Broken(error)),
                    }
                },
            };
            numbers.push(port);
            lanes.push(Lane { source, file: None, len: 0 });
        }
        let page_size = page_size as usize;
        // A datagram that is too long shows.
        let buffer = vec![0; STEP.max(page_size + 1)];
        let dir = dir.clone();
        let lanes = Self {
            cpus: lanes,
            remote,
            page_size,
            dir,
            total: 0,
            limit,
            look_at: 0,
            foreign: 0,
            odd: 0,
            buffer,
        };
        Ok((lanes, numbers))
    }

    /// What to wait for.
    pub(super) fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        let fds = self.cpus.iter().filter_map(|lane| match &lane.source {
            From::Door(door) => Some(door.as_fd()),
            From::Connection(socket) => Some(socket.as_fd()),
            From::Datagrams { socket, .. } => Some(socket.as_fd()),
            From::Ended => None,
        });
        fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
    }

    /// Whether nothing more can come. Of datagrams nobody knows.
    pub(super) fn have_ended(&self) -> bool {
        self.cpus.iter().all(|lane| matches!(lane.source, From::Ended))
    }

    /// Whether pages are datagrams.
    pub(super) fn are_datagrams(&self) -> bool {
        self.cpus.iter().any(|lane| matches!(lane.source, From::Datagrams { .. }))
    }

    /// Stores what is there. Gives whether there was something.
    pub(super) fn read(&mut self) -> Result<bool, ReceiveError> {
        let before = (self.total, self.foreign, self.odd);
        let Self { cpus, remote, page_size, dir, total, limit, look_at, foreign, odd, buffer } = self;
        let mut has_come = false;
        for lane in cpus {
            for _ in 0..TURNS {
                let len = match lane.source.read(buffer, (remote, *page_size), (&mut *foreign, &mut *odd)) {
                    Ok(Came::Bytes(len)) => len,
                    Ok(Came::Connection | Came::End) => {
                        has_come = true;
                        continue;
                    }
                    Ok(Came::Nothing) => break,
                    // The others may go on.
                    Err(_) => {
                        lane.source = From::Ended;
                        break;
                    }
                };
                if *total + len as u64 > *limit {
                    return Err(ReceiveError::TooLarge(*limit));
                }
                if *total >= *look_at {
                    *look_at = *total + LOOK;
                    // A file system that does not say how much is free is written to until it is full.
                    if dir.free_bytes().is_ok_and(|free| free < *total + ROOM) {
                        return Err(ReceiveError::NoRoom);
                    }
                }
                let file = match &mut lane.file {
                    Some(file) => file,
                    none => none.insert(dir.create_unnamed().map_err(ReceiveError::Store)?),
                };
                file.write_all(buffer.get(..len).unwrap_or_default()).map_err(ReceiveError::Store)?;
                lane.len += len as u64;
                *total += len as u64;
            }
        }
        Ok(has_come || before != (self.total, self.foreign, self.odd))
    }

    /// What came, and what is to be said of it.
    pub(super) fn finish(self) -> (Vec<CpuData>, Vec<String>) {
        let mut notes = Vec::new();
        if self.foreign > 0 {
            notes.push(format!(
                "{} connections or datagrams of other machines were passed over",
                self.foreign
            ));
        }
        if self.odd > 0 {
            notes.push(format!("{} datagrams that are no page were passed over", self.odd));
        }
        let lanes = self.cpus.into_iter().zip(0..);
        let data = lanes.filter_map(|(lane, cpu)| Some(CpuData { cpu, file: lane.file?, len: lane.len }));
        (data.collect(), notes)
    }
}

/// What was there.
enum Came {
    Bytes(usize),
    Connection,
    End,
    Nothing,
}

impl From {
    fn open(local: IpAddr, port: u16, carrier: Carrier) -> io::Result<Self> {
        if carrier == Carrier::Udp {
            let socket = UdpSocket::bind((local, port))?;
            socket.set_nonblocking(true)?;
            // Whoever may not have so much has what is allowed.
            if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFERED).is_err() {
                let _ = sockopt::set_socket_recv_buffer_size(&socket, BUFFERED);
            }
            Ok(Self::Datagrams { socket, is_bound: false })
        } else {
            Door::tcp(local, port).map(Self::Door)
        }
    }

    fn read(
        &mut self,
        buffer: &mut [u8],
        (remote, page_size): (&Remote, usize),
        (foreign, odd): (&mut u64, &mut u64),
    ) -> io::Result<Came> {
        match self {
            Self::Ended => Ok(Came::Nothing),
            Self::Door(door) => match door.accept()? {
                None => Ok(Came::Nothing),
                Some((_, from)) if !from.is_with(remote) => {
                    *foreign += 1;
                    Ok(Came::Nothing)
                }
                Some((socket, from)) => {
                    if matches!(from, Remote::Ip(_)) {
                        socket.keep_alive()?;
                    }
                    *self = Self::Connection(socket);
                    Ok(Came::Connection)
                }
            },
            Self::Connection(socket) => match socket.read(buffer)? {
                None => Ok(Came::Nothing),
                Some(0) => {
                    // Whoever waits for all of it to be read sees that it was.
                    *self = Self::Ended;
                    Ok(Came::End)
                }
                Some(len) => Ok(Came::Bytes(len)),
            },
            Self::Datagrams { socket, is_bound } => {
                let (len, from) = match socket.recv_from(buffer) {
                    Ok(came) => came,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Came::Nothing),
                    // What was answered to a datagram of ours, of which there are none.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        return Ok(Came::Nothing);
                    }
                    Err(error) => return Err(error),
                };
                if !remote.is_with(&Remote::Ip((from.ip().to_canonical(), from.port()).into())) {
                    *foreign += 1;
                    return Ok(Came::Nothing);
                }
                if len != page_size {
                    *odd += 1;
                    return Ok(Came::Nothing);
                }
                if !*is_bound {
                    socket.connect(from)?;
                    *is_bound = true;
                }
                Ok(Came::Bytes(len))
            }
        }
    }
}

fn vsock_door() -> Result<(From, u32), ReceiveError> {
    let door = Door::vsock(0).map_err(ReceiveError::Broken)?;
    let port = door.port().map_err(ReceiveError::Broken)?;
    Ok((From::Door(door), port))
}

fn is_taken(error: &io::Error) -> bool {
    // Those below 1024 may be for others only.
    matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied)
}
