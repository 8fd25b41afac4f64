//! What systemd is told: that the daemon is ready, that it is alive, and that it ends (sd_notify(3)).

use std::{
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::net::UnixDatagram,
    },
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
};

/// How long systemd is waited for.
const BARRIER_TIME: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// The way to systemd, if it started this process.
#[derive(Debug)]
pub(super) struct Supervisor {
    socket: Option<UnixDatagram>,
}

impl Supervisor {
    /// The socket that the environment names.
    pub(super) fn of_environment() -> Self {
        Self { socket: connect() }
    }

    /// Tells something, such as `READY=1`.
    pub(super) fn tell(&self, state: &str) {
        if let Some(socket) = &self.socket {
            // Who does not listen does not want to know.
            let _ = socket.send(state.as_bytes());
        }
    }

    /// Has these stored for the next daemon under their names, in the place of what was stored under them,
    /// and also if their other ends are closed. Returns when that is done.
    ///
    /// # Errors
    /// systemd does not store so many for this service, or does not answer.
    pub(super) fn store(&self, named: &[(&str, BorrowedFd<'_>)]) -> io::Result<()> {
        let unsupported = || io::Error::from(io::ErrorKind::Unsupported);
        let socket = self.socket.as_ref().filter(|_| stores(named.len())).ok_or_else(unsupported)?;
        for (name, fd) in named {
            socket.send(format!("FDSTOREREMOVE=1\nFDNAME={name}").as_bytes())?;
            send_with(socket, &format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0"), *fd)?;
        }
        // It is closed when everything before it was dealt with (sd_notify_barrier(3)).
        let (done, barrier) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        send_with(socket, "BARRIER=1", barrier.as_fd())?;
        drop(barrier);
        let mut fds = [PollFd::new(&done, PollFlags::empty())];
        match poll(&mut fds, Some(&BARRIER_TIME))? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }

    /// How often systemd wants to be told that the process is alive: twice in the time after which it would
    /// end it.
    pub(super) fn watchdog(&self) -> Option<Duration> {
        self.socket.as_ref()?;
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        if number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id())) {
            return None;
        }
        number("WATCHDOG_USEC").filter(|period| *period > 1).map(|period| Duration::from_micros(period / 2))
    }
}

/// Whether so many can be stored: systemd says how many (since version 254).
fn stores(count: usize) -> bool {
    std::env::var("FDSTORE").is_ok_and(|most| most.parse::<usize>().is_ok_and(|most| most >= count))
}

fn send_with(socket: &UnixDatagram, text: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(socket, &[IoSlice::new(text.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn connect() -> Option<UnixDatagram> {
    use std::os::{linux::net::SocketAddrExt as _, unix::net::SocketAddr};

    let name = std::env::var("NOTIFY_SOCKET").ok()?;
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name).ok()?,
        None => SocketAddr::from_pathname(&name).ok()?,
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect_addr(&address).ok()?;
    Some(socket)
}
