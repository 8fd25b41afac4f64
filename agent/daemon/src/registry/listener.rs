//! What becomes known of the recording of a session by itself.

use std::{path::PathBuf, sync::Arc, time::Duration};

use super::{Entry, Registry, lock, log, rotation_id};
use crate::archives::Archives;
use crate::notifications::Notifications;
use crate::sessions::{Listener, Sample, Stored, Whose};
use crate::triggers::Triggers;
use api::requests::Notification;
use api::{Rotation, RotationState};
use ctf_writer::Publication;

/// How many trace chunks are known that stops have closed and no rotation has archived. Of more, the oldest
/// ones are as if they had been archived.
const STOPPED_MAX: usize = 1024;

/// The shortest time between two looks at how full a session's rings are.
const SAMPLE_MIN: Duration = Duration::from_millis(10);

impl Registry {
    pub(super) fn listener(&self, entry: &Arc<Entry>, session: &str) -> OfSession {
        OfSession {
            entry: Arc::clone(entry),
            session: session.to_owned(),
            tell: Arc::clone(&self.notifications),
            triggers: Arc::clone(&self.triggers),
            archives: Arc::clone(&self.archives),
        }
    }
}

/// Hears what the recording of a session does by itself.
pub(super) struct OfSession {
    entry: Arc<Entry>,
    pub(super) session: String,
    tell: Arc<Notifications>,
    triggers: Arc<Triggers>,
    archives: Arc<Archives>,
}

impl OfSession {
    fn tell(&self, notification: &Notification) {
        self.tell.tell(self.entry.owner.uid, notification);
    }

    fn tell_rotation(&self, id: u64, state: RotationState, path: Option<PathBuf>) {
        self.tell(&Notification::Rotation { session: self.session.clone(), id, state, path: path.clone() });
        self.triggers.has_rotation((self.entry.owner.uid, &self.session), state, (id, path));
    }

    /// The daemon has stopped it.
    pub(super) fn has_stopped(&self, reason: String) {
        // It may have been stopped before.
        let _ = self.entry.end_activity();
        let session = self.session.clone();
        self.tell(&Notification::Activity { session, active: false, reason: Some(reason) });
    }

    pub(super) fn log(&self, text: &str) {
        log(&format!("session {} of user {}: {text}", self.session, self.entry.owner.uid));
    }
}

impl Listener for OfSession {
    fn is_due(&self) -> bool {
        match self.entry.check_rotation() {
            Ok(_) => true,
            Err(error) => {
                self.log(&format!("no rotation: {error}"));
                false
            }
        }
    }

    fn has_rotated(&self, chunk: u64) {
        let id = rotation_id(chunk);
        let mut chunks = lock(&self.entry.chunks);
        chunks.last = Some(Rotation { id, state: RotationState::Ongoing, path: None });
        chunks.stopped.clear();
        drop(chunks);
        self.tell_rotation(id, RotationState::Ongoing, None);
    }

    fn has_chunk(&self, chunk: u64, result: Result<Stored, String>) {
        let id = rotation_id(chunk);
        let path = match result {
            Ok(stored) => Some(stored.path),
            Err(error) => {
                self.log(&format!("trace chunk {id}: {error}"));
                None
            }
        };
        if let Some(path) = &path {
            lock(&self.entry.files).add(path.clone());
            self.entry.has_closed(&self.archives, path);
        }
        let state = if path.is_some() { RotationState::Completed } else { RotationState::Failed };
        let mut chunks = lock(&self.entry.chunks);
        match &mut chunks.last {
            Some(last) if last.id >= id => {
                if last.id == id {
                    *last = Rotation { id, state, path: path.clone() };
                }
                drop(chunks);
                self.tell_rotation(id, state, path);
            }
            // A stop has closed it.
            _ => {
                if chunks.stopped.len() >= STOPPED_MAX {
                    chunks.stopped.remove(0);
                }
                chunks.stopped.push((id, path));
            }
        }
    }

    fn has_notes(&self, notes: Vec<String>, of: Whose) {
        let new = lock(&self.entry.notes).add(notes, of);
        for text in new {
            self.log(&text);
            self.tell(&Notification::Note { session: self.session.clone(), text });
        }
    }

    fn sample_period(&self) -> Option<Duration> {
        if !self.triggers.wants_samples(self.entry.owner.uid, &self.session) {
            return None;
        }
        let model = lock(&self.entry.model);
        let timers = model.channels().filter_map(|(_, channel)| channel.attributes.monitor_timer_us);
        let shortest = timers.filter(|period| *period != 0).min();
        shortest.map(|period| Duration::from_micros(period).max(SAMPLE_MIN))
    }

    fn has_trace(&self, recording: &Arc<Publication>) {
        if let Some(offer) = &self.entry.offer {
            offer.add(Arc::clone(recording));
        }
    }

    fn trace_follows(&self, is_so: bool) {
        match &self.entry.offer {
            Some(offer) if is_so => offer.hold(),
            Some(offer) => offer.release(),
            None => {}
        }
    }

    fn has_sample(&self, sample: &Sample) {
        self.triggers.has_sample(self.entry.owner.uid, &self.session, sample);
    }

    fn has_failed(&self, why: &str) {
        self.log(why);
        let (session, reason) = (self.session.clone(), Some(why.to_owned()));
        self.tell(&Notification::Activity { session, active: true, reason });
    }
}
