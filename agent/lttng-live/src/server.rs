//! The sockets of the live server: a thread lets viewers in, and each of them has a thread of its own, so
//! that nobody waits for the disk of somebody else's session.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::fd::{AsFd as _, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::Errno,
    net::sockopt::{set_socket_keepalive, set_tcp_keepidle},
};
use stdx::clients::{Connections, Held, Limits, THIS_MACHINE, client_of};

use super::{
    connection::{Connection, HEAR},
    sessions::Sessions,
};

/// Most viewers at a time, by the machine that they connect from. Others are sent away.
const VIEWERS: Limits = Limits { all: 64, of_each: 16, reserved: 64 };
/// How long nothing comes before the kernel probes the viewer's machine.
const ASK_AFTER: Duration = Duration::from_mins(1);
/// How often it is looked after a viewer, and whether it has taken too long.
const LOOK: Duration = Duration::from_secs(1);
/// How long nobody is let in when there are no descriptors.
const BREATH: Duration = Duration::from_millis(200);
/// How often it is looked whether all viewers have read the end.
const DRAIN: Duration = Duration::from_millis(20);
/// How long viewers may take to leave when they have read the end.
const LEAVE: Duration = Duration::from_secs(1);

/// A live server: it serves until this is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    sessions: Sessions,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// Viewers that are connected.
    viewers: Connections<IpAddr>,
    /// Those that have still something to read.
    reading: AtomicUsize,
    /// Readable when all threads are to end.
    end: OwnedFd,
}

impl Server {
    /// Listens at this address, and serves viewers in a thread.
    ///
    /// # Errors
    /// The address cannot be had, or there are no threads or descriptors left.
    pub fn start(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let end = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let viewers = Connections::new(VIEWERS, THIS_MACHINE);
        let shared = Arc::new(Shared { viewers, reading: AtomicUsize::new(0), end });
        let sessions = Sessions::default();
        let door = Door { listener, sessions: sessions.clone(), shared: Arc::clone(&shared) };
        let thread = std::thread::Builder::new().name("live".into()).spawn(move || door.serve())?;
        Ok(Self { address, sessions, shared, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it offers.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Waits until all viewers have read what they have attached to, which has ended, but not longer than
    /// this. Gives whether they have.
    pub fn drain(&self, longest: Duration) -> bool {
        let begun = Instant::now();
        loop {
            std::thread::sleep(DRAIN);
            if self.shared.reading.load(Ordering::Acquire) == 0 {
                break;
            }
            if begun.elapsed() >= longest {
                return false;
            }
        }
        // Who has read the end asks whether there is another session, and leaves by itself then, or stays.
        let read = Instant::now();
        while self.shared.viewers.count() != 0 && read.elapsed() < LEAVE {
            std::thread::sleep(DRAIN);
        }
        true
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The counter of an eventfd takes one.
        let _ = rustix::io::write(&self.shared.end, &1_u64.to_ne_bytes());
        // Those of viewers are not waited for: a disk may not answer.
        if let Some(thread) = self.thread.take() {
            // A panic has been printed.
            let _ = thread.join();
        }
    }
}

/// Where viewers are let in.
struct Door {
    listener: TcpListener,
    sessions: Sessions,
    shared: Arc<Shared>,
}

impl Door {
    fn serve(&self) {
        loop {
            let mut fds = [
                PollFd::new(&self.shared.end, PollFlags::IN),
                PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN),
            ];
            let waited = poll(&mut fds, None);
            if !fds[0].revents().is_empty() {
                return;
            }
            if !waited.is_ok_and(|_| self.let_in()) {
                // Memory and descriptors may come back.
                std::thread::sleep(BREATH);
            }
        }
    }

    /// Lets in who waits. Gives whether more may come.
    fn let_in(&self) -> bool {
        loop {
            match self.listener.accept() {
                Ok((stream, address)) => self.begin(stream, client_of(address)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }

    /// Serves a viewer in a thread of its own. Where there is no room it is closed at once, so that it sees
    /// that there is somebody.
    fn begin(&self, stream: TcpStream, client: IpAddr) {
        let Ok(held) = self.shared.viewers.hold(client) else { return };
        let counted = Counted { shared: Arc::clone(&self.shared), _held: held, is_reading: false };
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        // Answers are short, and waited for.
        let _ = stream.set_nodelay(true);
        // Without that, a viewer whose machine is gone is noticed when its silence ends.
        let _ = set_socket_keepalive(&stream, true);
        let _ = set_tcp_keepidle(&stream, ASK_AFTER);
        let client =
            Client { stream, connection: Connection::new(Duration::ZERO), begun: Instant::now(), counted };
        let sessions = self.sessions.clone();
        // Without a thread the viewer is closed.
        let _ = std::thread::Builder::new().name("live-viewer".into()).spawn(move || client.run(&sessions));
    }
}

/// A viewer that is counted.
struct Counted {
    shared: Arc<Shared>,
    _held: Held<IpAddr>,
    is_reading: bool,
}

impl Counted {
    fn reads(&mut self, is_reading: bool) {
        match (self.is_reading, is_reading) {
            (false, true) => drop(self.shared.reading.fetch_add(1, Ordering::AcqRel)),
            (true, false) => drop(self.shared.reading.fetch_sub(1, Ordering::AcqRel)),
            _ => {}
        }
        self.is_reading = is_reading;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.reads(false);
    }
}

/// A connection that is over.
struct Over;

/// A viewer's connection.
struct Client {
    stream: TcpStream,
    connection: Connection,
    begun: Instant,
    counted: Counted,
}

impl Client {
    fn run(mut self, sessions: &Sessions) {
        let mut looked = Duration::ZERO;
        while self.wait().is_ok() {
            let now = self.begun.elapsed();
            if self.serve(now, sessions).is_err() || self.connection.deadline() <= now {
                return;
            }
            if now.saturating_sub(looked) >= LOOK {
                looked = now;
                self.connection.viewer().look_after();
            }
            self.counted.reads(self.connection.is_reading());
        }
    }

    /// Waits until there is something to do, but not for long.
    fn wait(&self) -> Result<(), Over> {
        let wanted = if self.connection.unsent().is_empty() { PollFlags::IN } else { PollFlags::OUT };
        let mut fds = [
            PollFd::new(&self.counted.shared.end, PollFlags::IN),
            PollFd::from_borrowed_fd(self.stream.as_fd(), wanted),
        ];
        let longest = Timespec { tv_sec: LOOK.as_secs() as i64, tv_nsec: 0 };
        match poll(&mut fds, Some(&longest)) {
            Ok(_) | Err(Errno::INTR) if fds[0].revents().is_empty() => Ok(()),
            _ => Err(Over),
        }
    }

    /// Sends what is to be sent, and hears what has come.
    fn serve(&mut self, now: Duration, sessions: &Sessions) -> Result<(), Over> {
        let Self { stream, connection, .. } = self;
        if connection.unsent().is_empty() {
            let mut bytes = [0; HEAR];
            match stream.read(&mut bytes) {
                Ok(0) => return Err(Over),
                Ok(count) => connection.hear(&bytes[..count], now, sessions).map_err(|_| Over)?,
                Err(error) if again(&error) => return Ok(()),
                Err(_) => return Err(Over),
            }
        }
        while !connection.unsent().is_empty() {
            match stream.write(connection.unsent()) {
                Ok(0) => return Err(Over),
                Ok(count) => connection.sent(count, now, sessions).map_err(|_| Over)?,
                Err(error) if again(&error) => return Ok(()),
                Err(_) => return Err(Over),
            }
        }
        Ok(())
    }
}

fn again(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
