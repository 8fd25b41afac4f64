//! Sessions that are handed over to another daemon, and come from one.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{Chunks, Entry, Known, Registry, listener::OfSession, lock, log};
use crate::files::Files;
use crate::handover::HandedSession;
use crate::notes::RecordingNotes;
use crate::recording::Recording;
use crate::sessions::Model;
use crate::user::Owner;
use api::requests::Notification;
use api::{Code, ControlError};
use capture::HandOver;

/// How long a relay daemon is waited for when the daemon ends.
const END_MAX: Duration = Duration::from_secs(30);

impl Registry {
    /// Waits until no file is being made.
    pub(crate) fn finish_files(&self) {
        let entries: Vec<Arc<Entry>> = lock(&self.sessions).values().map(Arc::clone).collect();
        for entry in entries {
            if let Some(recording) = &*lock(&entry.recording) {
                recording.recorder.finish_files();
            }
        }
    }

    /// All sessions, for another daemon, and where programs are that have markers.
    pub(crate) fn take_all(&self) -> (Vec<Taken>, Vec<PathBuf>) {
        let all = std::mem::take(&mut *lock(&self.sessions));
        let sessions = all.into_values().map(Taken).collect();
        let known = self.finder.known();
        (sessions, known.programs.iter().map(|program| program.path.clone()).collect())
    }

    /// Has programs looked at that have had markers, before there is another look.
    pub(crate) fn know_programs(&self, paths: Vec<PathBuf>) {
        self.finder.hand(paths);
    }

    /// Goes on with a session that another daemon has handed over. If its recording does not go on, it is
    /// stopped, and what it has stored is recovered. Gives the name of the recording's note if it goes on.
    pub(crate) fn take_over(&self, session: HandedSession, recording: Option<HandOver>) -> Option<String> {
        let HandedSession { uid, gid, of_session, recording: handed, maps: _ } = session;
        let HandedChunks { model, chunks, files, notes, usage } = of_session;
        let name = model.name().to_owned();
        let share = self.shares.keep(uid, &model);
        let (keeps, is_active) = (model.keeps(), model.is_active() && model.channels().next().is_some());
        let owner = Owner::new(uid, gid);
        let offer = self.offer(&owner, &model).unwrap_or_else(|error| {
            log(&format!("session {name} is not read by viewers any more: {error}"));
            None
        });
        let entry = Arc::new(Entry {
            chunks: Mutex::new(chunks),
            files: Mutex::new(files),
            notes: Mutex::new(notes),
            usage: Mutex::new(usage),
            share: Mutex::new(share),
            ..Entry::new(owner, model, offer)
        });
        let listener = || self.listener(&entry, &name);
        let mut going_on = None;
        match handed {
            Some(handed) => {
                let note = handed.note.clone();
                let owner = (entry.owner.clone(), self.descriptors.of(uid));
                let of_notes = (keeps, self.notes.again(note.clone()));
                match Recording::take_over((handed, recording), owner, of_notes, Box::new(listener())) {
                    Ok(recording) => {
                        *lock(&entry.waker) = Some(recording.recorder.waker());
                        *lock(&entry.recording) = Some(recording);
                        going_on = Some(note);
                    }
                    Err(error) => self.has_ended(&entry, &listener(), &error),
                }
            }
            None if is_active => self.has_ended(&entry, &listener(), &Code::NotStarted.into()),
            None => {}
        }
        lock(&self.sessions).insert((uid, name), entry);
        going_on
    }

    /// A session that was active does not record any more.
    fn has_ended(&self, entry: &Entry, listener: &OfSession, error: &ControlError) {
        let reason = format!("the session has ended with the daemon before: {error}");
        listener.log(&reason);
        // It may have been stopped.
        let _ = entry.end_activity();
        let session = listener.session.clone();
        self.tell(entry.owner.uid, &Notification::Activity { session, active: false, reason: Some(reason) });
    }
}

/// A session that is not there any more for who asks: it is about to be handed over, or to end.
pub(crate) struct Taken(pub(super) Arc<Entry>);

/// What is known of a session beside its recording.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandedChunks {
    model: Model,
    chunks: Chunks,
    files: Files,
    notes: RecordingNotes,
    /// What was known last: the next daemon knows no more while something is done with the recording.
    #[serde(default)]
    usage: Known,
}

impl HandedChunks {
    /// The session's name.
    pub(crate) fn name(&self) -> &str {
        self.model.name()
    }
}

impl Taken {
    /// Ends it.
    pub(crate) fn end(self) {
        let Self(entry) = self;
        let recording = lock(&entry.recording).take();
        if let Some(Err(error)) = recording.map(|recording| recording.end(Some(Instant::now() + END_MAX))) {
            let name = lock(&entry.model).name().to_owned();
            log(&format!("session {name} of user {}: {error}", entry.owner.uid));
        }
    }

    /// Gives it to another daemon, with its recording if that goes on.
    pub(crate) fn hand_over(self) -> (HandedSession, Option<HandOver>, Vec<HandOver>) {
        let Self(entry) = self;
        let usage = entry.known();
        let mut recording = lock(&entry.recording);
        entry.count(recording.as_ref());
        let (recording, goes_on) = match recording.take().map(Recording::hand_over) {
            Some(Ok((recording, goes_on))) => (Some(recording), goes_on),
            Some(Err(error)) => {
                let name = lock(&entry.model).name().to_owned();
                log(&format!("session {name} of user {}: {error}", entry.owner.uid));
                (None, None)
            }
            None => (None, None),
        };
        let (maps, counting) = entry.hand_maps_over();
        // After the recording, which may have told of more.
        let of_session = HandedChunks {
            model: lock(&entry.model).clone(),
            chunks: std::mem::take(&mut *lock(&entry.chunks)),
            files: std::mem::take(&mut *lock(&entry.files)),
            notes: std::mem::take(&mut *lock(&entry.notes)),
            usage,
        };
        let Owner { uid, gid, .. } = entry.owner;
        (HandedSession { uid, gid, of_session, recording, maps }, goes_on, counting)
    }
}
