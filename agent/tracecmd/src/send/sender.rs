//! From a recording that goes on to the listener.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd},
    time::{Duration, Instant},
};

use agent_ebpf::PAGE_SIZE;
use rustix::event::{PollFd, PollFlags};

use super::{
    super::{
        Version,
        message::{BODY_MAX, Command, Messages, message},
        socket::{Socket, wait},
    },
    Greeted, SendError,
    connect::Connected,
    lanes::Lanes,
    metadata::{Early, FILLER, version6},
};
use capture::follow::Progress;
use capture::paged::{PageFeed, Pages};
use tracedat::Compression;
use tracedat::reader::Reader;

/// How often it is looked for what the recorder has stored.
const AGAIN: Duration = Duration::from_millis(50);
/// How often a byte of the filler goes. A listener waits for five seconds.
const PULSE: Duration = Duration::from_secs(2);
/// How long nothing may go before the end is given up, and before a message is.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long a listener that has everything is waited for.
const FAREWELL: Duration = Duration::from_secs(10);
/// How long datagrams may be on their way.
const FLIGHT: Duration = Duration::from_millis(300);
/// How long a listener of version 1 has for reading what describes the events: that of trace-cmd takes the
/// end of a data connection for the end of it (the signal of a process that ends interrupts the reading).
const READING: Duration = Duration::from_secs(1);
/// The most CPUs whose ports fit in a message.
const CPUS_MAX: u32 = 1024;

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Bytes of pages.
    pub data: u64,
    /// Events in them.
    pub events: u64,
}

/// Sends a recording.
#[derive(Debug)]
pub struct Sender {
    control: Socket,
    lanes: Lanes,
    version: Version,
    feed: PageFeed,
    description: Description,
    incoming: Messages,
}

/// What describes the events, as far as it went.
#[derive(Debug)]
struct Description {
    early: Early,
    /// Bytes of the filler that are left.
    left: usize,
    next: Instant,
    is_complete: bool,
}

impl Sender {
    /// Sends what describes the events, and opens the data connections.
    ///
    /// # Errors
    /// The listener has gone, or answers nonsense.
    pub fn begin(greeted: Greeted, mut feed: PageFeed, compression: Compression) -> Result<Self, SendError> {
        let cpus = feed.cpu_count();
        if cpus > CPUS_MAX {
            return Err(SendError::Cpus(cpus));
        }
        feed.poll()?;
        let early = Early::new(feed.head(), compression, &feed.known().0)?;
        let Connected { control, lanes, version } = greeted.begin(cpus, PAGE_SIZE as u32)?;
        let description =
            Description { early, left: FILLER, next: Instant::now() + PULSE, is_complete: false };
        let mut sender = Self { control, lanes, version, feed, description, incoming: Messages::default() };
        if version == Version::V3 {
            let bytes = std::mem::take(&mut sender.description.early.bytes);
            sender.describe(&bytes)?;
            sender.description.early.bytes = bytes;
        }
        Ok(sender)
    }

    /// Sends everything until the recording has become a file, and what that has besides. It ends with what
    /// there is when the other end of `stop` is closed.
    ///
    /// # Errors
    /// Not all of it was sent.
    pub fn run(mut self, stop: BorrowedFd<'_>) -> Result<Sent, SendError> {
        loop {
            let progress = self.feed.poll()?;
            self.send_pages()?;
            match progress {
                Progress::Recording => {
                    if self.wait(Some(stop), AGAIN)? {
                        self.feed.end_here()?;
                        self.send_pages()?;
                        return Err(SendError::Unfinished);
                    }
                }
                Progress::Finished => break,
                Progress::Gone | Progress::Left => return Err(SendError::Unfinished),
            }
        }
        self.end()
    }

    /// Sends the pages that are there.
    fn send_pages(&mut self) -> Result<(), SendError> {
        while let Some(Pages { cpu, bytes }) = self.feed.next_pages() {
            if !self.lanes.add(cpu, &bytes) {
                return Err(SendError::Cpus(cpu + 1));
            }
            self.lanes.send().map_err(SendError::Broken)?;
            self.pulse()?;
            while self.lanes.is_full() {
                self.wait(None, PULSE)?;
            }
        }
        Ok(())
    }

    /// Waits for something to do. Gives whether it is to stop.
    fn wait(&mut self, stop: Option<BorrowedFd<'_>>, within: Duration) -> Result<bool, SendError> {
        self.pulse()?;
        let mut fds = vec![PollFd::from_borrowed_fd(self.control.as_fd(), PollFlags::IN)];
        fds.extend(stop.map(|stop| PollFd::from_borrowed_fd(stop, PollFlags::empty())));
        fds.extend(self.lanes.polled());
        wait(&mut fds, within).map_err(SendError::Broken)?;
        let said = !fds[0].revents().is_empty();
        let is_stopped = stop.is_some() && fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
        if said && self.listen()? {
            return Err(SendError::Closed);
        }
        self.lanes.send().map_err(SendError::Broken)?;
        Ok(is_stopped)
    }

    /// Hears what the listener says, which is nothing unless it has given up. Gives whether it has closed the
    /// connection.
    fn listen(&mut self) -> Result<bool, SendError> {
        let mut bytes = [0; 256];
        loop {
            match self.control.read(&mut bytes).map_err(SendError::Broken)? {
                None => return Ok(false),
                Some(0) => return Ok(true),
                Some(len) => {
                    let mut said = &bytes[..len];
                    while let Some(message) = self.incoming.take(&mut said).map_err(|_| SendError::GivenUp)? {
                        if message.command == Some(Command::NotSupported) {
                            return Err(SendError::GivenUp);
                        }
                    }
                }
            }
        }
    }

    /// Sends a byte of the filler if it is time, so that the listener does not take what describes the events
    /// for complete.
    fn pulse(&mut self) -> Result<(), SendError> {
        let now = Instant::now();
        if self.version != Version::V3 || self.description.is_complete || now < self.description.next {
            return Ok(());
        }
        self.description.next = now + PULSE;
        if self.description.left > 1 {
            self.description.left -= 1;
            return self.describe(&[0]);
        }
        // Names that become known later are missing. There is no more room for waiting.
        let (names, symbols) = self.feed.known();
        let tail = self.description.early.end(&names, &symbols)?;
        self.complete(tail)
    }

    /// Sends the end of what describes the events.
    fn complete(&mut self, tail: Vec<u8>) -> Result<(), SendError> {
        let mut rest = vec![0; self.description.left];
        rest.extend(tail);
        self.description.left = 0;
        self.description.is_complete = true;
        self.describe(&rest)?;
        self.say(Command::FinData)
    }

    fn describe(&self, bytes: &[u8]) -> Result<(), SendError> {
        let send = |part| self.control.write_all(&message(Command::SendData, &[], part), PATIENCE);
        bytes.chunks(BODY_MAX).try_for_each(send).map_err(SendError::Broken)
    }

    fn say(&self, command: Command) -> Result<(), SendError> {
        self.control.write_all(&message(command, &[], &[]), PATIENCE).map_err(SendError::Broken)
    }

    /// Sends what is left, and the end of the finished file.
    fn end(mut self) -> Result<Sent, SendError> {
        let mut until = Instant::now() + PATIENCE;
        while !self.lanes.is_empty() {
            let before = self.lanes.sent();
            self.wait(None, PULSE)?;
            if self.lanes.sent() > before {
                until = Instant::now() + PATIENCE;
            } else if Instant::now() >= until {
                return Err(SendError::Broken(io::ErrorKind::TimedOut.into()));
            }
        }
        let finished = self.feed.take_finished().ok_or(SendError::Unfinished)?;
        let finished = Reader::open(finished)?;
        match self.version {
            Version::V3 if !self.description.is_complete => {
                let tail = self.description.early.end_of(&finished)?;
                self.complete(tail)?;
            }
            Version::V3 => {}
            Version::V1 => {
                let bytes = version6(&finished)?;
                self.control.write_all(&bytes, PATIENCE).map_err(SendError::Broken)?;
                std::thread::sleep(READING);
            }
        }
        self.lanes.end(PATIENCE).map_err(SendError::Broken)?;
        std::thread::sleep(FLIGHT);
        match self.version {
            Version::V3 => self.say(Command::Close)?,
            Version::V1 => self.control.end_writing().map_err(SendError::Broken)?,
        }
        self.part()?;
        Ok(Sent { data: self.lanes.sent(), events: self.feed.events() })
    }

    /// Waits a while for the listener to have made its file, after which it closes the connection.
    fn part(&mut self) -> Result<(), SendError> {
        let until = Instant::now() + FAREWELL;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            // Whoever makes a large file takes its time, and has everything.
            if left.is_zero() {
                return Ok(());
            }
            let mut fds = [PollFd::from_borrowed_fd(self.control.as_fd(), PollFlags::IN)];
            wait(&mut fds, left).map_err(SendError::Broken)?;
            match self.listen() {
                Ok(false) => {}
                // One that ends without having read everything resets it.
                Ok(true) | Err(SendError::Broken(_)) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}
