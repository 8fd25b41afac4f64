//! All recorders.

use std::{
    io,
    net::IpAddr,
    os::fd::{AsFd as _, BorrowedFd},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rustix::event::{PollFd, PollFlags};

use super::{
    super::{
        PortRange,
        socket::{Door, Remote, Socket, wait},
    },
    Limits, Received,
    client::Client,
};
use stdx::output::Directory;

/// How long a listener without descriptors for one more recorder waits.
const BREATH: Duration = Duration::from_millis(200);
/// How long it may wait for a recorder: for ever, in pieces that a clock can count.
const LONG: Duration = Duration::from_hours(1);

/// Where to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A port of an address of this machine; 0 for any that is free.
    Ip(IpAddr, u16),
    /// A port for virtual machines and their host; 0 for any that is free.
    Vsock(u32),
}

impl Place {
    /// Whether other machines reach it.
    pub fn is_open(&self) -> bool {
        match self {
            Self::Ip(address, _) => !address.to_canonical().is_loopback(),
            Self::Vsock(_) => false,
        }
    }
}

/// How to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What names of files begin with.
    pub prefix: String,
    /// Ports for data.
    pub ports: PortRange,
    /// What each recorder may take.
    pub limits: Limits,
}

/// What happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// A recorder has connected.
    Connected(&'a str),
    /// A recorder was sent away, as there are as many as may be.
    TooMany(&'a str),
    /// A recorder has gone.
    Received(&'a Received),
    /// One more cannot be accepted for now.
    Refused(&'a io::Error),
}

/// A port to which recorders come.
#[derive(Debug)]
pub struct Listener {
    door: Door,
    dir: Directory,
    options: Options,
    /// Held by who makes a file: what that takes, it takes once.
    making: Mutex<()>,
}

impl Listener {
    /// Opens the port. Files will be in the directory.
    ///
    /// # Errors
    /// The port is taken, or not for this user.
    pub fn open(place: Place, dir: Directory, options: Options) -> io::Result<Self> {
        let door = match place {
            Place::Ip(address, port) => Door::tcp(address, port)?,
            Place::Vsock(port) => Door::vsock(port)?,
        };
        Ok(Self { door, dir, options, making: Mutex::new(()) })
    }

    /// The port.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn port(&self) -> io::Result<u32> {
        self.door.port()
    }

    /// Listens until the other end of `stop` is closed. Files of recorders that are there are finished then.
    ///
    /// # Errors
    /// The port cannot be waited for.
    pub fn run(&self, stop: BorrowedFd<'_>, tell: &(dyn Fn(Event<'_>) + Sync)) -> io::Result<()> {
        let here = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            loop {
                let mut fds = [
                    PollFd::from_borrowed_fd(self.door.as_fd(), PollFlags::IN),
                    PollFd::from_borrowed_fd(stop, PollFlags::empty()),
                ];
                wait(&mut fds, LONG)?;
                if !fds[1].revents().is_empty() {
                    return Ok(());
                }
                let (control, remote) = match self.door.accept() {
                    Ok(Some(came)) => came,
                    Ok(None) => continue,
                    Err(error) => {
                        tell(Event::Refused(&error));
                        std::thread::sleep(BREATH);
                        continue;
                    }
                };
                let name = remote.to_string();
                if here.load(Ordering::Acquire) >= self.options.limits.clients {
                    tell(Event::TooMany(&name));
                    continue;
                }
                tell(Event::Connected(&name));
                here.fetch_add(1, Ordering::AcqRel);
                let here = &here;
                let serve = move || {
                    tell(Event::Received(&self.serve((control, remote), stop)));
                    here.fetch_sub(1, Ordering::AcqRel);
                };
                if let Err(error) =
                    std::thread::Builder::new().name("client".to_owned()).spawn_scoped(scope, serve)
                {
                    here.fetch_sub(1, Ordering::AcqRel);
                    tell(Event::Refused(&error));
                }
            }
        })
    }

    fn serve(&self, (control, remote): (Socket, Remote), stop: BorrowedFd<'_>) -> Received {
        let local = control.local();
        let Self { dir, options, making, .. } = self;
        Client { control, remote, local, options, dir, stop, making }.serve()
    }
}
