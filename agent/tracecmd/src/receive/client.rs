//! A recorder, from its first word to its file.

use std::{
    fs,
    io::{self, Write as _},
    net::IpAddr,
    os::fd::{AsFd as _, BorrowedFd},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags};

use super::{
    super::{
        Version,
        socket::{Remote, Socket, wait},
    },
    Dialogue, NoFile, Options, ReceiveError, Received, Said,
    assemble::{Collected, make},
    lanes::Lanes,
};
use stdx::output::Directory;

/// How long an answer may take to be taken.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the connections of CPUs may say nothing after the recorder has said that all was sent.
const GRACE: Duration = Duration::from_secs(2);
/// The same of datagrams, which are on their way or lost.
const FLIGHT: Duration = Duration::from_millis(500);
/// Bytes that are read at once.
const STEP: usize = 64 << 10;

/// A recorder that has connected.
pub(super) struct Client<'a> {
    pub(super) control: Socket,
    pub(super) remote: Remote,
    /// Which address it has connected to, of a network.
    pub(super) local: Option<IpAddr>,
    pub(super) options: &'a Options,
    pub(super) dir: &'a Directory,
    /// Closed at its other end when the listener ends.
    pub(super) stop: BorrowedFd<'a>,
    pub(super) making: &'a Mutex<()>,
}

/// What has come of a recorder.
struct Session {
    dialogue: Dialogue,
    lanes: Option<Lanes>,
    page_size: u32,
    metadata: Option<fs::File>,
    has_metadata: bool,
}

impl Client<'_> {
    /// Listens until its end, and makes a file of what came. The connection is closed when the file is there.
    pub(super) fn serve(self) -> Received {
        let name = self.remote.to_string();
        let (dialogue, greeting) =
            Dialogue::begin(self.options.limits.metadata, matches!(self.remote, Remote::Vsock { .. }));
        let mut session =
            Session { dialogue, lanes: None, page_size: 0, metadata: None, has_metadata: false };
        let ended = self.greet(greeting).and_then(|()| self.listen(&mut session));
        let drained = self.drain(&mut session, matches!(ended, Err(ReceiveError::Stopped)));
        let file = self.make_file(session, &name);
        // What ended it comes first.
        Received { name, file, ended: ended.and(drained) }
    }

    fn greet(&self, greeting: &[u8]) -> Result<(), ReceiveError> {
        if matches!(self.remote, Remote::Ip(_)) {
            self.control.keep_alive().map_err(ReceiveError::Broken)?;
        }
        self.control.write_all(greeting, PATIENCE).map_err(ReceiveError::Broken)
    }

    fn listen(&self, session: &mut Session) -> Result<(), ReceiveError> {
        let limits = self.options.limits;
        let begun = Instant::now();
        let mut last = begun;
        let mut bytes = vec![0; STEP];
        loop {
            let is_greeting = session.dialogue.is_greeting();
            let until = if is_greeting { begun + limits.greeting } else { last + limits.idle };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(if is_greeting {
                    ReceiveError::Silent(limits.greeting)
                } else {
                    ReceiveError::Idle(limits.idle)
                });
            }
            let mut fds = vec![
                PollFd::from_borrowed_fd(self.control.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.stop, PollFlags::empty()),
            ];
            fds.extend(session.lanes.iter().flat_map(Lanes::polled));
            wait(&mut fds, left).map_err(ReceiveError::Broken)?;
            if !fds[1].revents().is_empty() {
                return Err(ReceiveError::Stopped);
            }
            let has_said = !fds[0].revents().is_empty();
            drop(fds);
            if session.read()? {
                last = Instant::now();
            }
            if !has_said {
                continue;
            }
            match self.control.read(&mut bytes).map_err(ReceiveError::Broken)? {
                None => {}
                // The end of a file of version 6 is that of the connection.
                Some(0) if session.dialogue.version() == Some(Version::V1) && !is_greeting => return Ok(()),
                Some(0) => return Err(ReceiveError::Gone),
                Some(len) => {
                    last = Instant::now();
                    if self.hear(session, bytes.get(..len).unwrap_or_default())? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Takes what was said. Gives whether it was the end.
    fn hear(&self, session: &mut Session, mut bytes: &[u8]) -> Result<bool, ReceiveError> {
        while let Some(said) = session.dialogue.take(&mut bytes)? {
            match said {
                Said::Answer(answer) => self.answer(&answer)?,
                Said::Begin { cpus, page_size, carrier } => {
                    let (lanes, ports) = Lanes::open(
                        (cpus, page_size, carrier),
                        (self.local, self.remote),
                        self.options.ports,
                        (self.dir, self.options.limits.data),
                    )?;
                    (session.lanes, session.page_size) = (Some(lanes), page_size);
                    let answer = session.dialogue.ports(&ports);
                    self.answer(&answer)?;
                }
                Said::Metadata(bytes) => session.store(self.dir, &bytes).map_err(ReceiveError::Store)?,
                Said::MetadataEnd => {}
                Said::Close => return Ok(true),
            }
        }
        Ok(false)
    }

    fn answer(&self, bytes: &[u8]) -> Result<(), ReceiveError> {
        self.control.write_all(bytes, PATIENCE).map_err(ReceiveError::Broken)
    }

    /// Stores what is still on its way; what is there only if it `is_stopped`.
    fn drain(&self, session: &mut Session, is_stopped: bool) -> Result<(), ReceiveError> {
        let Some(lanes) = &mut session.lanes else { return Ok(()) };
        let patience = if is_stopped {
            Duration::ZERO
        } else if lanes.are_datagrams() {
            FLIGHT
        } else {
            GRACE
        };
        let mut until = Instant::now() + patience;
        while !lanes.have_ended() {
            if lanes.read()? {
                until = Instant::now() + patience;
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let mut fds: Vec<_> = lanes.polled().collect();
            fds.push(PollFd::from_borrowed_fd(self.stop, PollFlags::empty()));
            wait(&mut fds, left).map_err(ReceiveError::Broken)?;
            if fds.last().is_some_and(|stop| !stop.revents().is_empty()) {
                drop(fds);
                lanes.read()?;
                break;
            }
        }
        Ok(())
    }

    fn make_file(&self, session: Session, name: &str) -> Result<super::File, NoFile> {
        let Session { lanes, page_size, metadata, has_metadata, .. } = session;
        let metadata = metadata.filter(|_| has_metadata).ok_or(NoFile::Nothing)?;
        let (cpus, mut notes) = lanes.map(Lanes::finish).unwrap_or_default();
        let collected = Collected { metadata, cpus, page_size };
        let _alone = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = make(collected, self.dir, &format!("{}.{name}", self.options.prefix))?;
        notes.append(&mut file.notes);
        Ok(super::File { notes, ..file })
    }
}

impl Session {
    fn read(&mut self) -> Result<bool, ReceiveError> {
        self.lanes.as_mut().map_or(Ok(false), Lanes::read)
    }

    fn store(&mut self, dir: &Directory, bytes: &[u8]) -> io::Result<()> {
        let file = match &mut self.metadata {
            Some(file) => file,
            none => none.insert(dir.create_unnamed()?),
        };
        self.has_metadata = true;
        file.write_all(bytes)
    }
}
