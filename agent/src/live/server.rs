//! The sockets of the live server, and the thread that serves them all.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
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
};

use super::{
    connection::{Connection, HEAR},
    sessions::Sessions,
};

/// Most viewers at a time. Others are sent away.
const VIEWERS_MAX: usize = 64;
/// How often it is looked after viewers, and whether one has taken too long.
const LOOK: Duration = Duration::from_secs(1);
/// How long nobody is let in when there are no descriptors.
const BREATH: Duration = Duration::from_millis(200);
/// How often it is looked whether all viewers have read the end.
const DRAIN: Duration = Duration::from_millis(20);

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
    /// Viewers that have still something to read.
    reading: AtomicUsize,
    /// Readable when the thread is to end.
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
        let shared = Arc::new(Shared { reading: AtomicUsize::new(0), end });
        let sessions = Sessions::default();
        let served = Serving {
            listener,
            sessions: sessions.clone(),
            shared: Arc::clone(&shared),
            clients: Vec::new(),
        };
        let thread = std::thread::Builder::new().name("live".into()).spawn(move || served.run())?;
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
        // The thread counts them when it looks after them; who has just come is counted then.
        loop {
            std::thread::sleep(DRAIN);
            if self.shared.reading.load(Ordering::Acquire) == 0 {
                return true;
            }
            if begun.elapsed() >= longest {
                return false;
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The counter of an eventfd takes one.
        let _ = rustix::io::write(&self.shared.end, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic has been printed.
            let _ = thread.join();
        }
    }
}

/// What the thread has.
struct Serving {
    listener: TcpListener,
    sessions: Sessions,
    shared: Arc<Shared>,
    clients: Vec<Client>,
}

struct Client {
    stream: TcpStream,
    connection: Connection,
}

/// A connection that is over.
struct Over;

impl Serving {
    fn run(mut self) {
        let begun = Instant::now();
        let (mut looked, mut closed_until) = (Duration::ZERO, Duration::ZERO);
        loop {
            let is_open = begun.elapsed() >= closed_until;
            let Ok(ready) = self.wait(is_open) else {
                // There is no memory for the moment.
                std::thread::sleep(BREATH);
                continue;
            };
            let now = begun.elapsed();
            if ready.end {
                return;
            }
            let mut index = 0;
            self.clients.retain_mut(|client| {
                let is_ready = ready.clients.get(index).copied().unwrap_or(false);
                index += 1;
                !is_ready || client.serve(now, &self.sessions).is_ok()
            });
            if ready.accept && !self.accept(now) {
                closed_until = now + BREATH;
            }
            if now - looked >= LOOK {
                looked = now;
                self.clients.retain(|client| client.connection.deadline() > now);
                self.clients.iter_mut().for_each(|client| client.connection.viewer().look_after());
            }
            let reading = self.clients.iter().filter(|client| client.connection.is_reading()).count();
            self.shared.reading.store(reading, Ordering::Release);
        }
    }

    /// Waits until there is something to do.
    fn wait(&self, is_open: bool) -> Result<Ready, Errno> {
        let mut all = Vec::with_capacity(self.clients.len() + 2);
        all.push(PollFd::new(&self.shared.end, PollFlags::IN));
        let accept = if is_open { PollFlags::IN } else { PollFlags::empty() };
        all.push(PollFd::from_borrowed_fd(self.listener.as_fd(), accept));
        for Client { stream, connection } in &self.clients {
            let wanted = if connection.unsent().is_empty() { PollFlags::IN } else { PollFlags::OUT };
            all.push(PollFd::from_borrowed_fd(stream.as_fd(), wanted));
        }
        let longest = match (is_open, self.clients.is_empty()) {
            (true, true) => None,
            (true, false) => Some(LOOK),
            (false, _) => Some(BREATH),
        };
        let longest = longest.map(|longest| Timespec {
            tv_sec: longest.as_secs() as i64,
            tv_nsec: longest.subsec_nanos().into(),
        });
        match poll(&mut all, longest.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let mut ready = all.iter().map(|fd| !fd.revents().is_empty());
        let (end, accept) = (ready.next().unwrap_or(false), ready.next().unwrap_or(false));
        Ok(Ready { end, accept, clients: ready.collect() })
    }

    /// Lets in who waits. Gives whether more may come.
    fn accept(&mut self, now: Duration) -> bool {
        loop {
            match self.listener.accept() {
                // Closed at once: it sees that there is somebody who has no room.
                Ok(_) if self.clients.len() >= VIEWERS_MAX => {}
                Ok((stream, _)) => {
                    if stream.set_nonblocking(true).is_ok() {
                        // Answers are short, and waited for.
                        let _ = stream.set_nodelay(true);
                        self.clients.push(Client { stream, connection: Connection::new(now) });
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }
}

/// What there is to do.
struct Ready {
    end: bool,
    accept: bool,
    clients: Vec<bool>,
}

impl Client {
    /// Sends what is to be sent, and hears what has come.
    fn serve(&mut self, now: Duration, sessions: &Sessions) -> Result<(), Over> {
        let Self { stream, connection } = self;
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
