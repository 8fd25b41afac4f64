//! The bytes of a viewer: requests out of what has come, answers as far as they are taken, and how long
//! either may take. The time is told by whoever calls, counted from any moment on.

use std::time::Duration;

use super::{
    message::{self, Parsed, REQUEST_MAX},
    sessions::Sessions,
    viewer::{Refused, Viewer},
};

/// How long a viewer may take to say who it is, and for the rest of a request that has begun.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one may say nothing, or take nothing of an answer: whoever looks at a page of events may come
/// back.
const SILENCE: Duration = Duration::from_hours(1);
/// Most bytes that are heard at once.
pub(super) const HEAR: usize = 1 << 12;
/// Room for answers that is kept for the next one.
const KEEP: usize = 1 << 16;

/// A viewer's connection.
#[derive(Debug)]
pub(super) struct Connection {
    viewer: Viewer,
    /// What has come and was not answered: less than a request, or what came together with one.
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    begun: Duration,
    /// When something came or was taken last.
    heard: Duration,
    /// Since when there is a part of a request.
    part_since: Option<Duration>,
}

impl Connection {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            viewer: Viewer::default(),
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            begun: now,
            heard: now,
            part_since: None,
        }
    }

    /// Takes what has come. To be called when nothing is unsent.
    pub(super) fn hear(&mut self, bytes: &[u8], now: Duration, sessions: &Sessions) -> Result<(), Refused> {
        self.input.extend_from_slice(bytes);
        self.heard = now;
        self.go_on(now, sessions)
    }

    /// What is to be sent.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.output[self.sent..]
    }

    /// So many bytes of that were sent.
    pub(super) fn sent(&mut self, bytes: usize, now: Duration, sessions: &Sessions) -> Result<(), Refused> {
        self.heard = now;
        self.sent = (self.sent + bytes).min(self.output.len());
        self.go_on(now, sessions)
    }

    /// Answers the next request when the answer before is sent.
    fn go_on(&mut self, now: Duration, sessions: &Sessions) -> Result<(), Refused> {
        if self.sent < self.output.len() {
            return Ok(());
        }
        self.sent = 0;
        self.output.clear();
        self.output.shrink_to(KEEP);
        match message::parse(&self.input) {
            Parsed::Whole(request, bytes) => {
                self.input.drain(..bytes);
                self.part_since = None;
                self.viewer.answer(request, sessions, &mut self.output)
            }
            Parsed::Part => {
                debug_assert!(self.input.len() < REQUEST_MAX);
                self.part_since =
                    if self.input.is_empty() { None } else { Some(self.part_since.unwrap_or(now)) };
                Ok(())
            }
            Parsed::Wrong => Err(Refused),
        }
    }

    /// When it has taken too long.
    pub(super) fn deadline(&self) -> Duration {
        let silent = self.heard.saturating_add(SILENCE);
        let since = if self.viewer.is_connected() { self.part_since } else { Some(self.begun) };
        since.map_or(silent, |since| silent.min(since.saturating_add(PATIENCE)))
    }

    pub(super) fn viewer(&mut self) -> &mut Viewer {
        &mut self.viewer
    }

    /// Whether the viewer has still something to read.
    pub(super) fn is_reading(&self) -> bool {
        self.sent < self.output.len() || self.viewer.is_reading()
    }
}

/// Bytes of the answers to what a viewer sends, of which the first are how it is cut into pieces.
#[cfg(any(test, fuzzing))]
pub(super) fn answered(data: &[u8]) -> usize {
    let Some((piece, rest)) = data.split_first() else { return 0 };
    let sessions = Sessions::default();
    let offer = sessions.offer(("host", "session"), 1_000_000, Box::new(ctf_writer::PacketFile::open));
    offer.add(std::sync::Arc::default());
    let mut connection = Connection::new(Duration::ZERO);
    let mut answered = 0;
    for (piece, now) in rest.chunks(usize::from(*piece).clamp(1, HEAR)).zip(0..) {
        let now = Duration::from_secs(now);
        let mut heard = connection.hear(piece, now, &sessions);
        while heard.is_ok() && !connection.unsent().is_empty() {
            let bytes = connection.unsent().len();
            answered += bytes;
            heard = connection.sent(bytes, now, &sessions);
        }
        if heard.is_err() {
            break;
        }
        assert!(connection.input.len() < REQUEST_MAX, "what is left is a part of a request");
        assert!(connection.deadline() > Duration::ZERO, "there is a last moment");
    }
    answered
}
