//! What a viewer says and is answered: nothing here knows of sockets or of the time.

use std::sync::atomic::Ordering;

use super::{
    attached::{Attached, Ids, Seek},
    message::{Attach, Detach, Flags, Listed, NewStreams, Next, Reply, Request, VERSION},
    sessions::Sessions,
};

/// Most sessions that a viewer attaches to.
const ATTACHED_MAX: usize = 64;

/// A viewer speaks of what it may not speak of: nothing more is to be heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused;

/// A viewer.
#[derive(Debug, Default)]
pub(super) struct Viewer {
    is_connected: bool,
    /// Whether it has created the session that it attaches others to.
    has_session: bool,
    attached: Vec<Attached>,
    ids: Ids,
}

impl Viewer {
    /// Whether both sides know which version they speak.
    pub(super) fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Whether it has still something to read of a session.
    pub(super) fn is_reading(&self) -> bool {
        self.attached.iter().any(Attached::is_read)
    }

    /// Does what is to be done now and then.
    pub(super) fn look_after(&mut self) {
        self.attached.iter_mut().for_each(Attached::let_go);
    }

    /// Answers a request.
    pub(super) fn answer(
        &mut self,
        request: Request,
        sessions: &Sessions,
        out: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        let mut reply = Reply(out);
        if !self.is_connected && !matches!(request, Request::Connect { .. }) {
            return Err(Refused);
        }
        match request {
            Request::Connect { major, minor: _, kind } => self.connect(major, kind, &mut reply)?,
            Request::ListSessions => list(sessions, &mut reply),
            Request::CreateSession => {
                self.has_session = true;
                reply.viewer_session();
            }
            Request::Attach { session, seek } => self.attach((session, seek), sessions, &mut reply),
            Request::Detach { session } => self.detach(session, &mut reply),
            Request::NewStreams { session } => self.new_streams(session, &mut reply),
            Request::NextIndex { stream } => {
                let next = self.attached.iter_mut().find_map(|attached| attached.next(stream));
                let (next, flags) = next.unwrap_or((Next::Error, Flags::default()));
                reply.next(next, flags);
            }
            Request::Packet { stream, offset, bytes } => {
                let wanted = (stream, offset, bytes);
                let sent = self.attached.iter_mut().find_map(|of| of.packet(wanted, &mut reply));
                if sent.is_none() {
                    reply.no_packet(Flags::default());
                }
            }
            Request::Metadata { stream } => {
                let sent = self.attached.iter_mut().find_map(|of| of.metadata(stream, &mut reply));
                if sent.is_none() {
                    reply.no_metadata();
                }
            }
        }
        Ok(())
    }

    /// Both speak the older one of their versions; viewers know what an older one does not have.
    fn connect(&mut self, major: u32, kind: u32, reply: &mut Reply<'_>) -> Result<(), Refused> {
        // Commands, or notifications, of which there are none.
        if major != VERSION.0 || !matches!(kind, 1 | 2) {
            return Err(Refused);
        }
        self.is_connected = true;
        reply.connected(self.ids.next(), kind);
        Ok(())
    }

    fn attach(&mut self, (session, seek): (u64, u32), sessions: &Sessions, reply: &mut Reply<'_>) {
        let seek = match seek {
            1 => Some(Seek::Beginning),
            2 => Some(Seek::Last),
            _ => None,
        };
        if !self.has_session {
            return reply.attached(Attach::NoViewerSession, &[]);
        }
        let Some(offered) = sessions.find(session) else { return reply.attached(Attach::Unknown, &[]) };
        let Some(seek) = seek else { return reply.attached(Attach::WrongSeek, &[]) };
        if self.attached.len() >= ATTACHED_MAX || self.attached.iter().any(|of| of.id() == session) {
            return reply.attached(Attach::Already, &[]);
        }
        let (attached, streams) = Attached::new(offered, seek, &mut self.ids);
        reply.attached(Attach::Ok, &streams);
        self.attached.push(attached);
    }

    fn detach(&mut self, session: u64, reply: &mut Reply<'_>) {
        let before = self.attached.len();
        self.attached.retain(|attached| attached.id() != session);
        reply.detached(if self.attached.len() < before { Detach::Ok } else { Detach::Unknown });
    }

    fn new_streams(&mut self, session: u64, reply: &mut Reply<'_>) {
        let Self { attached, ids, .. } = self;
        let Some(attached) = attached.iter_mut().find(|attached| attached.id() == session) else {
            return reply.new_streams(NewStreams::Error, &[]);
        };
        // Nothing of them was missed since it has attached.
        let streams = attached.tell_streams(Seek::Beginning, ids);
        let status = match streams.as_slice() {
            [] if attached.ends() => NewStreams::HungUp,
            [] => NewStreams::None,
            _ => NewStreams::Ok,
        };
        reply.new_streams(status, &streams);
    }
}

fn list(sessions: &Sessions, reply: &mut Reply<'_>) {
    let all = sessions.all();
    let listed: Vec<Listed<'_>> = all
        .iter()
        .map(|offered| Listed {
            id: offered.id,
            timer_us: offered.timer_us,
            clients: offered.viewers.load(Ordering::Relaxed),
            streams: u32::try_from(offered.stream_count()).unwrap_or(u32::MAX),
            host: &offered.host,
            name: &offered.name,
        })
        .collect();
    reply.sessions(&listed);
}
