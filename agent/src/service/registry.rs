//! The sessions there are, and what is done with them.

use std::{
    collections::BTreeMap,
    io::{IsTerminal as _, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use tokio::sync::broadcast;

use super::{
    peer::Peer,
    recovery::{Note, Notes},
    sessions::{Listener, Model, Recorder, Stored, spec},
    user::Owner,
};
use crate::{
    control::{
        Code, ControlError, Created, Destroyed, NewSession, Rotation, RotationState, Session, SessionMode,
        Snapshot, Stopped, Summary,
        api::{Notification, TakeSnapshot},
    },
    kernel::{events::Catalogue, tracefs::Tracefs},
    terminal::SafeWriter,
};

/// The most sessions of all users.
const SESSIONS_MAX: usize = 1024;
/// How many notifications wait for a client that does not read them.
const NOTIFICATIONS_MAX: usize = 1024;

/// A session with its owner, as it is looked up.
type Key = (u32, String);

type Answer<T = ()> = Result<T, ControlError>;

/// All sessions of the daemon.
#[derive(Debug)]
pub(super) struct Registry {
    sessions: Mutex<BTreeMap<Key, Arc<Entry>>>,
    notifications: broadcast::Sender<(u32, Notification)>,
    notes: Notes,
}

/// A session.
#[derive(Debug)]
struct Entry {
    owner: Owner,
    /// What it is: held for moments only, so that lists never wait for what is done with a session.
    model: Mutex<Model>,
    /// Its recording while it is started. Who changes the session holds this lock.
    recorder: Mutex<Option<Recorder>>,
    /// What the next daemon would find of its recording.
    note: Mutex<Option<Note>>,
    /// Its trace chunks.
    chunks: Mutex<Chunks>,
    /// The files of it that were made.
    files: Mutex<Vec<PathBuf>>,
}

/// The trace chunks of a session.
#[derive(Debug, Default)]
struct Chunks {
    /// The number of the current one.
    current: u64,
    /// Whether there was a rotation since the session was stopped.
    rotated_since_stop: bool,
    /// The last rotation.
    last: Option<Rotation>,
}

/// What a panic leaves of what a lock protects is whole: it is replaced, not changed in steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    pub(super) fn new(notes: Notes) -> Self {
        let (notifications, _) = broadcast::channel(NOTIFICATIONS_MAX);
        Self { sessions: Mutex::default(), notifications, notes }
    }

    /// What happens from now on, with the user whose session it is about.
    pub(super) fn notifications(&self) -> broadcast::Receiver<(u32, Notification)> {
        self.notifications.subscribe()
    }

    /// The sessions of a user; of all users where none is named.
    pub(super) fn list(&self, of: Option<u32>) -> Vec<Summary> {
        let sessions = lock(&self.sessions);
        let own = sessions.iter().filter(|((uid, _), _)| of.is_none_or(|of| of == *uid));
        own.map(|(_, entry)| lock(&entry.model).session().summary.clone()).collect()
    }

    /// Creates a session of who asks.
    pub(super) fn create(&self, peer: Peer, new: NewSession) -> Answer<Created> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let model = Model::create(new, peer.uid, now)?;
        let name = model.name().to_owned();
        let output = match &model.session().summary.mode {
            SessionMode::Local { output } => output.clone(),
            _ => model.session().snapshot_outputs.first().map(|output| output.path.clone()),
        };
        let entry = Entry {
            owner: Owner::new(peer.uid, peer.gid),
            model: Mutex::new(model),
            recorder: Mutex::default(),
            note: Mutex::default(),
            chunks: Mutex::default(),
            files: Mutex::default(),
        };
        let mut sessions = lock(&self.sessions);
        if sessions.len() >= SESSIONS_MAX {
            return Err(ControlError::new(
                Code::NoMemory,
                format!("there are {SESSIONS_MAX} sessions already"),
            ));
        }
        let key = (peer.uid, name.clone());
        if sessions.contains_key(&key) {
            return Err(Code::SessionExists.into());
        }
        sessions.insert(key, Arc::new(entry));
        Ok(Created { name, output })
    }

    /// A session of a user, with counts that are of now.
    pub(super) fn get(&self, uid: u32, name: &str) -> Answer<Session> {
        let entry = self.find(uid, name)?;
        // If something is done with it, the counts are those that were known before.
        if let Ok(recorder) = entry.recorder.try_lock() {
            entry.count(recorder.as_ref());
        }
        let last_rotation = lock(&entry.chunks).last.clone();
        Ok(Session { last_rotation, ..lock(&entry.model).session().clone() })
    }

    /// Changes the description of a session, and what is recorded of it.
    pub(super) fn change<T>(
        &self,
        (uid, name): (u32, &str),
        change: impl FnOnce(&mut Model) -> Answer<T>,
    ) -> Answer<T> {
        let entry = self.find(uid, name)?;
        let recorder = lock(&entry.recorder);
        let before = lock(&entry.model).clone();
        let mut after = before.clone();
        let value = change(&mut after)?;
        if let Some(recorder) = recorder.as_ref() {
            follow(recorder, &before, &after)?;
        } else if before.channels().ne(after.channels()) {
            check_rules(&after)?;
        }
        *lock(&entry.model) = after;
        Ok(value)
    }

    /// Starts a session.
    pub(super) fn start(&self, uid: u32, name: &str) -> Answer {
        let entry = self.find(uid, name)?;
        let mut recorder = lock(&entry.recorder);
        let mut model = lock(&entry.model).clone();
        model.start()?;
        let output = output_of(&model)?;
        let spec = spec::of(&model, &catalogue()?, &output)?;
        let (period, bytes) = spec::schedule(&model);
        let told = OfSession {
            entry: Arc::clone(&entry),
            session: name.to_owned(),
            tell: self.notifications.clone(),
        };
        let note = self.notes.add(name, &entry.owner, &output).map_err(|error| {
            ControlError::new(Code::CreateFile, format!("cannot note that the session records: {error}"))
        })?;
        let started = match Recorder::start(spec, (entry.owner.clone(), output), period, Box::new(told)) {
            Ok(started) => started,
            Err(error) => {
                note.remove();
                return Err(error);
            }
        };
        *lock(&entry.note) = Some(note);
        started.schedule(period, bytes);
        *recorder = Some(started);
        lock(&entry.chunks).rotated_since_stop = false;
        *lock(&entry.model) = model;
        self.tell(uid, Notification::Activity { session: name.to_owned(), active: true, reason: None });
        Ok(())
    }

    /// Stops a session: everything that was recorded is in its files then.
    pub(super) fn stop(&self, uid: u32, name: &str) -> Answer<Stopped> {
        let entry = self.find(uid, name)?;
        let mut recorder = lock(&entry.recorder);
        lock(&entry.model).clone().stop()?;
        let counts = entry.count(recorder.as_ref());
        let stopped = entry.end(recorder.take());
        lock(&entry.model).stop()?;
        self.tell(uid, Notification::Activity { session: name.to_owned(), active: false, reason: None });
        stopped.map(|()| counts)
    }

    /// Ends a session, which is stopped first.
    pub(super) fn destroy(&self, uid: u32, name: &str) -> Answer<Destroyed> {
        let entry = self.find(uid, name)?;
        let mut recorder = lock(&entry.recorder);
        let counts = entry.count(recorder.as_ref());
        let ended = entry.end(recorder.take());
        lock(&self.sessions).remove(&(uid, name.to_owned()));
        ended?;
        let files = std::mem::take(&mut *lock(&entry.files));
        Ok(Destroyed { counts, files, archive: None })
    }

    /// Archives what was recorded until now.
    pub(super) fn rotate(&self, uid: u32, name: &str) -> Answer<Rotation> {
        let entry = self.find(uid, name)?;
        let recorder = lock(&entry.recorder);
        entry.rotate(recorder.as_ref())
    }

    /// What has become of a rotation: the last one, or one before it.
    pub(super) fn rotation(&self, uid: u32, name: &str, id: u64) -> Answer<Rotation> {
        let entry = self.find(uid, name)?;
        let chunks = lock(&entry.chunks);
        match &chunks.last {
            Some(last) if last.id == id => Ok(last.clone()),
            _ => Err(ControlError::new(
                Code::Invalid,
                format!("rotation {id} is not the last one of the session"),
            )),
        }
    }

    /// Takes a snapshot.
    pub(super) fn snapshot(&self, uid: u32, name: &str, wanted: &TakeSnapshot) -> Answer<Snapshot> {
        let entry = self.find(uid, name)?;
        let recorder = lock(&entry.recorder);
        lock(&entry.model).check_snapshot()?;
        if wanted.path.is_some() || wanted.max_size.is_some() || wanted.name.is_some() {
            return Err(ControlError::new(
                Code::NotSupported,
                "a snapshot goes to the session's first output, whole; other places, names and sizes are not \
                 there yet",
            ));
        }
        let recorder = recorder.as_ref().ok_or_else(|| ControlError::from(Code::SnapshotEmpty))?;
        let Stored { path, events, .. } = recorder.snapshot()?;
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        lock(&entry.files).push(path.clone());
        Ok(Snapshot { name, path, events })
    }

    /// Ends all sessions, because the daemon ends.
    pub(super) fn end(&self) {
        let all = std::mem::take(&mut *lock(&self.sessions));
        for ((uid, name), entry) in all {
            if let Err(error) = entry.end(lock(&entry.recorder).take()) {
                log(&format!("session {name} of user {uid}: {error}"));
            }
        }
    }

    fn tell(&self, uid: u32, notification: Notification) {
        // There may be nobody who listens.
        let _ = self.notifications.send((uid, notification));
    }

    fn find(&self, uid: u32, name: &str) -> Answer<Arc<Entry>> {
        let found = lock(&self.sessions).get(&(uid, name.to_owned())).map(Arc::clone);
        found.ok_or_else(|| Code::NoSession.into())
    }
}

impl Entry {
    /// Brings the counts of the model up to date; gives their sums.
    fn count(&self, recorder: Option<&Recorder>) -> Stopped {
        let losses = recorder.and_then(|recorder| recorder.losses().ok());
        let mut model = lock(&self.model);
        let mut sums = Stopped::default();
        let mut of = losses.into_iter().flatten();
        for (_, channel) in model.channels_mut() {
            if let Some(lost) = of.next() {
                channel.discarded = lost;
            }
            sums.discarded += channel.discarded;
            sums.lost_packets += channel.lost_packets;
        }
        sums
    }

    /// Ends its recording, if there is one.
    fn end(&self, recorder: Option<Recorder>) -> Answer {
        let Some(recorder) = recorder else { return Ok(()) };
        let stored = recorder.stop()?;
        if let Some(note) = lock(&self.note).take() {
            note.remove();
        }
        lock(&self.files).extend(stored.into_iter().map(|file| file.path));
        Ok(())
    }

    fn rotate(&self, recorder: Option<&Recorder>) -> Answer<Rotation> {
        let rotation = self.begin_rotation()?;
        // A stop has stored the chunk.
        if let Some(recorder) = recorder {
            recorder.rotate()?;
        }
        Ok(rotation)
    }

    fn begin_rotation(&self) -> Answer<Rotation> {
        let is_active = {
            let model = lock(&self.model);
            model.check_rotation()?;
            model.is_active()
        };
        let mut chunks = lock(&self.chunks);
        if !is_active && chunks.rotated_since_stop {
            return Err(Code::RotatedAfterStop.into());
        }
        chunks.rotated_since_stop = !is_active;
        let rotation = match is_active {
            true => Rotation { id: chunks.current, state: RotationState::Ongoing, path: None },
            false => {
                let path = lock(&self.files).last().cloned();
                Rotation { id: chunks.current, state: RotationState::Completed, path }
            }
        };
        chunks.current += 1;
        chunks.last = Some(rotation.clone());
        Ok(rotation)
    }
}

/// Hears what the recording of a session does by itself.
struct OfSession {
    entry: Arc<Entry>,
    session: String,
    tell: broadcast::Sender<(u32, Notification)>,
}

impl OfSession {
    fn tell(&self, notification: Notification) {
        // There may be nobody who listens.
        let _ = self.tell.send((self.entry.owner.uid, notification));
    }

    fn log(&self, text: &str) {
        log(&format!("session {} of user {}: {text}", self.session, self.entry.owner.uid));
    }
}

impl Listener for OfSession {
    fn is_due(&self) -> bool {
        match self.entry.begin_rotation() {
            Ok(_) => true,
            Err(error) => {
                self.log(&format!("no rotation: {error}"));
                false
            }
        }
    }

    fn has_chunk(&self, result: Result<Stored, String>) {
        let mut chunks = lock(&self.entry.chunks);
        let id = chunks.last.as_ref().map_or(0, |rotation| rotation.id);
        let rotation = match result {
            Ok(stored) => {
                lock(&self.entry.files).push(stored.path.clone());
                Rotation { id, state: RotationState::Completed, path: Some(stored.path) }
            }
            Err(error) => {
                self.log(&format!("trace chunk {id}: {error}"));
                Rotation { id, state: RotationState::Failed, path: None }
            }
        };
        chunks.last = Some(rotation.clone());
        let Rotation { id, state, path } = rotation;
        self.tell(Notification::Rotation { session: self.session.clone(), id, state, path });
    }

    fn has_failed(&self, why: &str) {
        self.log(why);
        let (session, reason) = (self.session.clone(), Some(why.to_owned()));
        self.tell(Notification::Activity { session, active: true, reason });
    }
}

/// Lets a recording do what the description of its session says now.
fn follow(recorder: &Recorder, before: &Model, after: &Model) -> Answer {
    if trackers(before) != trackers(after) {
        return Err(ControlError::new(
            Code::Running,
            "which processes are recorded is changed while the session is stopped",
        ));
    }
    if spec::schedule(before) != spec::schedule(after) {
        let (period, bytes) = spec::schedule(after);
        recorder.schedule(period, bytes);
    }
    let catalogue = catalogue()?;
    for ((domain, was), (_, is)) in before.channels().zip(after.channels()) {
        if was == is {
            continue;
        }
        let buffer = spec::buffer_name(domain, &is.name);
        let (mut old, mut new) = (spec::rules(&catalogue, was)?, spec::rules(&catalogue, is)?);
        new.retain(|what, rule| match old.get(what) {
            Some(there) if there == rule => {
                old.remove(what);
                false
            }
            _ => true,
        });
        for rule in old.into_values() {
            recorder.remove(&buffer, rule)?;
        }
        if !new.is_empty() {
            recorder.add(&buffer, new.into_values().collect())?;
        }
    }
    Ok(())
}

fn trackers(model: &Model) -> Vec<&crate::control::Tracker> {
    model.session().domains.iter().flat_map(|of| &of.trackers).collect()
}

/// Whether this kernel has what the rules of a session name, before it is started.
fn check_rules(model: &Model) -> Answer {
    let catalogue = catalogue()?;
    model.channels().try_for_each(|(_, channel)| spec::rules(&catalogue, channel).map(drop))
}

fn catalogue() -> Answer<Catalogue> {
    let unreadable = |error: String| ControlError::new(Code::StartKernel, error);
    let tracefs = Tracefs::open().map_err(|error| unreadable(error.to_string()))?;
    Catalogue::read(&tracefs).map_err(|error| unreadable(error.to_string()))
}

/// Where a session is recorded to.
fn output_of(model: &Model) -> Answer<PathBuf> {
    let session = model.session();
    let path = match &session.summary.mode {
        SessionMode::Local { output } => output.as_deref(),
        SessionMode::Snapshot => session.snapshot_outputs.first().map(|output| output.path.as_path()),
        SessionMode::Network { .. } | SessionMode::Live { .. } => None,
    };
    path.map(Path::to_owned).ok_or_else(|| Code::NoOutput.into())
}

/// Tells who looks after the daemon, without anything that a terminal obeys: names are those of users.
pub(super) fn log(text: &str) {
    let stderr = std::io::stderr().lock();
    let is_terminal = stderr.is_terminal();
    let line = format!("tracer-agent daemon: {text}\n");
    // Where stderr is closed nobody can be told, and nothing else fails for it.
    let _ = SafeWriter::new(stderr, is_terminal).write_all(line.as_bytes());
}
