//! Sessions that end or are handed over because the daemon ends: side by side, with one deadline for all.
//!
//! A relay daemon or a file system that does not answer costs other sessions nothing: at the deadline its
//! session is left as it is, and the log and the session's notes name the place of the data.

use std::{
    path::PathBuf,
    sync::{Arc, MutexGuard, atomic::Ordering},
    time::{Duration, Instant},
};

use super::{Entry, HandedChunks, Known, Registry, lock, log};
use crate::handover::HandedSession;
use crate::maps::HandedMap;
use crate::recording::{HandedRecording, Recording};
use crate::sessions::{Listener as _, Whose};
use crate::side_by_side::{Work, lock_until, within};
use crate::user::Owner;
use capture::HandOver;

/// How long all sessions together wait for relay daemons, when the daemon ends.
const RELAYS_MAX: Duration = Duration::from_secs(30);
/// The same before they are handed over, and later for everything that is left, when the daemon serves nobody
/// any more.
const HAND_OVER_MAX: Duration = Duration::from_secs(10);
/// How long all sessions together wait for their files: less than the 5 minutes of systemd and Kubernetes.
const FILES_MAX: Duration = Duration::from_mins(4);
/// How long the hand-over of prepared sessions takes at most: nobody reads their rings meanwhile.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// Why a session that sends is not handed over.
const NOT_HANDED_OVER: &str = "sessions that send to a relay daemon are not handed over: it is stopped, and can \
                               be started again";

/// A session with its name.
struct Taken {
    name: String,
    entry: Arc<Entry>,
}

/// A session on its way to another daemon.
struct Left {
    usage: Known,
    recording: Option<(HandedRecording, Option<HandOver>)>,
    maps: (Vec<HandedMap>, Vec<HandOver>),
}

impl Registry {
    /// Ends all sessions, because the daemon ends. Each of them begins to end before one is given up.
    pub(crate) fn end(&self) {
        let relays = Instant::now() + RELAYS_MAX;
        let files = Instant::now() + FILES_MAX;
        let sessions = self.take_sessions();
        let end = |taken: &Taken| -> Work<bool> {
            let (name, entry) = (taken.name.clone(), Arc::clone(&taken.entry));
            let is_silent = entry.is_silent();
            let end: Work<bool> = Box::new(move || {
                entry.end(&name, relays);
                true
            });
            // A thread that has not answered before has no longer than relay daemons have.
            if is_silent { Box::new(move || within(vec![end], relays) == [Some(true)]) } else { end }
        };
        let mut works: Vec<_> = sessions.iter().map(end).collect();
        let of_triggers = self.triggers.end();
        works.push(Box::new(move || !within(of_triggers, files).contains(&None)));
        let ended = within(works, files);
        for (taken, _) in sessions.iter().zip(ended).filter(|(_, ended)| *ended != Some(true)) {
            taken.log("it has not ended in time; the next daemon recovers the data in its spool");
        }
    }

    /// Prepares sessions to be handed over, while they record: makes the files of closed trace chunks, and
    /// ends sessions that send to relay daemons.
    pub(crate) fn prepare_hand_over(&self) {
        let sends = |taken: &Taken| lock(&taken.entry.relay).is_some();
        let (sending, local): (Vec<_>, Vec<_>) = self.named().into_iter().partition(sends);
        // Sessions that are not ready by then are prepared once more.
        let files = Instant::now() + FILES_MAX;
        self.prepare(local, (files, files));
        // They do not record any more, so that this comes last.
        let relays = Instant::now() + HAND_OVER_MAX;
        self.prepare(sending, (relays, relays + HAND_OVER_MAX));
    }

    /// Prepares them again, when the daemon serves nobody any more.
    pub(crate) fn finish_files(&self) {
        let deadline = Instant::now() + HAND_OVER_MAX;
        self.prepare(self.named(), (deadline, deadline));
    }

    /// Gives the sessions that could be prepared, and those that could not.
    fn prepare(&self, sessions: Vec<Taken>, (relays, files): (Instant, Instant)) -> (Vec<Taken>, Vec<Taken>) {
        let prepare = |Taken { name, entry }: &Taken| -> Work<()> {
            let (entry, listener) = (Arc::clone(entry), self.listener(entry, name));
            Box::new(move || {
                if let Some(why) = entry.prepare(relays) {
                    listener.has_notes(vec![why.clone()], Whose::Addition);
                    listener.has_stopped(why);
                }
            })
        };
        let prepared = within(sessions.iter().map(prepare).collect(), files);
        let (ready, late): (Vec<_>, Vec<_>) =
            sessions.into_iter().zip(prepared).partition(|(_, prepared)| prepared.is_some());
        let sessions = |of: Vec<(Taken, Option<()>)>| of.into_iter().map(|(taken, _)| taken).collect();
        (sessions(ready), sessions(late))
    }

    /// Gives all sessions to another daemon, and the places of programs that have markers. Sessions that
    /// cannot go on have ended, or are left as they are.
    pub(crate) fn hand_over(&self) -> (Vec<(HandedSession, Vec<HandOver>)>, Vec<PathBuf>) {
        let sessions = self.take_sessions();
        let known = self.finder.known();
        let programs = known.programs.iter().map(|program| program.path.clone()).collect();
        // Triggers may have rotated some. A session that is not ready holds up no other.
        let deadline = Instant::now() + HAND_OVER_MAX;
        let (ready, late) = self.prepare(sessions, (deadline, deadline));
        let leave = |taken: &Taken| -> Work<Left> {
            let (name, entry) = (taken.name.clone(), Arc::clone(&taken.entry));
            Box::new(move || entry.leave(&name))
        };
        let left = within(ready.iter().map(leave).collect(), Instant::now() + LEAVE_MAX);
        let all = ready.into_iter().zip(left).chain(late.into_iter().map(|taken| (taken, None)));
        let handed = |(taken, left): (Taken, Option<Left>)| {
            if left.is_none() {
                taken.log(
                    "the next daemon does not go on with it, as it was not ready in time, and recovers the data \
                     in its spool",
                );
            }
            taken.entry.handed(left)
        };
        (all.map(handed).collect(), programs)
    }

    /// Takes all sessions. No others come afterwards.
    fn take_sessions(&self) -> Vec<Taken> {
        let mut sessions = lock(&self.sessions);
        self.is_over.store(true, Ordering::Relaxed);
        let all = std::mem::take(&mut *sessions).into_iter();
        all.map(|((_, name), entry)| Taken { name, entry }).collect()
    }

    /// All sessions with their names.
    fn named(&self) -> Vec<Taken> {
        let sessions = lock(&self.sessions);
        let named = |((_, name), entry): (&super::Key, &Arc<Entry>)| Taken {
            name: name.clone(),
            entry: Arc::clone(entry),
        };
        sessions.iter().map(named).collect()
    }
}

impl Taken {
    fn log(&self, text: &str) {
        self.entry.log(&self.name, text);
    }
}

impl Entry {
    fn log(&self, name: &str, text: &str) {
        log(&format!("session {name} of user {}: {text}", self.owner.uid));
    }

    /// Takes the right to end it. A request that has the right loses its connections to a relay daemon at the
    /// deadline.
    fn recording_by(&self, deadline: Instant) -> MutexGuard<'_, Option<Recording>> {
        lock_until(&self.recording, deadline).unwrap_or_else(|| {
            lock(&self.hangup).hang_up();
            lock(&self.recording)
        })
    }

    /// Ends it. The relay daemon has time until `deadline`.
    fn end(&self, name: &str, deadline: Instant) {
        let recording = self.recording_by(deadline).take();
        if let Some(Err(error)) = recording.map(|recording| recording.end(Some(deadline))) {
            self.log(name, &error.message);
        }
    }

    /// Prepares it to be handed over, or ends it if it sends, until `deadline`. Gives the reason if it has
    /// ended.
    fn prepare(&self, deadline: Instant) -> Option<String> {
        let mut recording = self.recording_by(deadline);
        if recording.as_ref()?.relay.is_none() {
            recording.as_ref()?.recorder.finish_files();
            return None;
        }
        self.count(recording.as_ref());
        let ended = recording.take()?.end(Some(deadline));
        Some(ended.map_or_else(
            |error| format!("{NOT_HANDED_OVER}; {}", error.message),
            |()| NOT_HANDED_OVER.into(),
        ))
    }

    /// Leaves its recording to another daemon, if it goes on.
    fn leave(&self, name: &str) -> Left {
        let usage = self.usage_by(Instant::now() + LEAVE_MAX);
        let mut recording = lock(&self.recording);
        self.count(recording.as_ref());
        let left = recording.take().map(Recording::hand_over).transpose();
        let recording = left.unwrap_or_else(|error| {
            self.log(name, &error.message);
            None
        });
        Left { usage, recording, maps: self.hand_maps_over() }
    }

    /// Its state for another daemon.
    fn handed(&self, left: Option<Left>) -> (HandedSession, Vec<HandOver>) {
        let Left { usage, recording, maps: (maps, counting) } = left.unwrap_or_else(|| Left {
            usage: lock(&self.usage).clone(),
            recording: None,
            // They are the kernel's, whatever a file system does.
            maps: self.hand_maps_over(),
        });
        let (recording, goes_on) = recording.unzip();
        // After the recording, which may have told of more.
        let of_session = HandedChunks {
            model: lock(&self.model).clone(),
            chunks: std::mem::take(&mut *lock(&self.chunks)),
            files: std::mem::take(&mut *lock(&self.files)),
            notes: std::mem::take(&mut *lock(&self.notes)),
            usage,
        };
        let Owner { uid, gid, .. } = self.owner;
        let session = HandedSession { uid, gid, of_session, recording, maps };
        (session, goes_on.flatten().into_iter().chain(counting).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archives::Archives;
    use crate::descriptors::Descriptors;
    use crate::live::Live;
    use crate::recovery::{Notes, Recoveries};
    use crate::relay::Places;
    use crate::sessions::Model;
    use crate::shares::Shares;
    use api::{Code, Format, NewSession, SessionMode};

    fn model(name: &str) -> Model {
        let new = NewSession {
            name: Some(name.to_owned()),
            mode: SessionMode::Snapshot,
            snapshot_output: None,
            format: Format::TraceDat,
            state_by_rule: false,
        };
        Model::create(new, 0, 0).unwrap()
    }

    #[test]
    fn a_request_that_waits_for_a_relay_daemon_is_cut_off_at_the_deadline() {
        let entry = Entry::new(Owner::new(0, 0), model("one"), None);
        let hangup = entry.next_hangup();
        let request = lock(&entry.recording);
        std::thread::scope(|scope| {
            let end = scope.spawn(|| entry.recording_by(Instant::now()).is_none());
            while !hangup.is_over() {
                std::thread::yield_now();
            }
            assert!(!end.is_finished(), "the request still has the right");
            drop(request);
            assert!(end.join().unwrap());
        });
        // Later connections go on.
        assert!(!entry.next_hangup().is_over());
    }

    #[test]
    fn no_session_comes_after_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let registry = Registry::new(
            Notes::open(&state).unwrap(),
            Recoveries::default(),
            (Shares::new(u64::MAX, 1), Descriptors::new(None)),
            (Live::new(([127, 0, 0, 1], 0).into()), Arc::new(Archives::new(&state))),
            (Places::beside(&state).unwrap(), 0),
        );
        let owner = || Owner::new(0, 0);
        registry.insert(owner(), model("one")).unwrap();
        assert_eq!(registry.list(None).len(), 1);
        registry.end();
        assert!(registry.list(None).is_empty());
        let late = registry.insert(owner(), model("two"));
        assert_eq!(late.map(drop).map_err(|error| error.code), Err(Code::Daemon));
    }
}
