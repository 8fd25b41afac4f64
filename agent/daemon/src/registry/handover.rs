//! Sessions that come from another daemon.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use serde::{Deserialize, Serialize};

use super::{Chunks, Entry, Known, Registry, listener::OfSession, lock, log};
use crate::files::Files;
use crate::handover::HandedSession;
use crate::notes::RecordingNotes;
use crate::recording::Recording;
use crate::sessions::Model;
use crate::side_by_side::Work;
use crate::user::Owner;
use api::{Code, ControlError};
use capture::HandOver;

impl Registry {
    /// Has programs looked at that have had markers, before there is another look.
    pub(crate) fn know_programs(&self, paths: Vec<PathBuf>) {
        self.finder.hand(paths);
    }

    /// Adds a session that another daemon has handed over. Its recording is taken over by the work that this
    /// gives, which may wait for a file system of its user; without a recording there is none.
    pub(crate) fn take_over(
        self: &Arc<Self>,
        session: HandedSession,
        recording: Option<HandOver>,
    ) -> Option<TakingOver> {
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
        lock(&self.sessions).insert((uid, name.clone()), Arc::clone(&entry));
        let Some(handed) = handed else {
            if is_active {
                has_ended(&self.listener(&entry, &name), &Code::NotStarted.into());
            }
            return None;
        };
        let (registry, note, session) = (Arc::clone(self), handed.note.clone(), name.clone());
        let work = move || {
            // Who asks for something of the session waits for it.
            let mut there = lock(&entry.recording);
            let owner = (entry.owner.clone(), registry.descriptors.of(uid));
            let of_notes = (keeps, registry.notes.again(handed.note.clone()));
            let listener = Box::new(registry.listener(&entry, &name));
            match Recording::take_over((handed, recording), owner, of_notes, listener) {
                Ok(recording) => {
                    *lock(&entry.waker) = Some(recording.recorder.waker());
                    *there = Some(recording);
                    true
                }
                Err(error) => {
                    has_ended(&registry.listener(&entry, &name), &error);
                    false
                }
            }
        };
        Some(TakingOver { uid, session, note, work: Box::new(work) })
    }
}

/// A session that was active does not record any more.
fn has_ended(listener: &OfSession, error: &ControlError) {
    let reason = format!("the session has ended with the daemon before: {error}");
    listener.log(&reason);
    listener.has_stopped(reason);
}

/// A recording that is about to be taken over.
pub(crate) struct TakingOver {
    /// Its session's user.
    pub(crate) uid: u32,
    /// Its session.
    pub(crate) session: String,
    /// The name of its note.
    pub(crate) note: String,
    /// Takes it over; gives whether it goes on. If it does not, what it has stored is recovered.
    pub(crate) work: Work<bool>,
}

/// What is known of a session beside its recording.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandedChunks {
    pub(super) model: Model,
    pub(super) chunks: Chunks,
    pub(super) files: Files,
    pub(super) notes: RecordingNotes,
    /// What was known last: the next daemon knows no more while something is done with the recording.
    #[serde(default)]
    pub(super) usage: Known,
}

impl HandedChunks {
    /// The session's name.
    pub(crate) fn name(&self) -> &str {
        self.model.name()
    }
}
