//! Archives of configured sessions: sent to the store of the configuration, and kept here within its limits.
//!
//! A thread is told of what sessions close, and looks regularly what is in their directories. So nothing is
//! missed of which nobody was told, because a daemon was killed, or because it could not be noted when the
//! disk was full. What was sent is in the journal of [`Uploader`], which the next daemon goes on with.
//!
//! | file | subject |
//! |---|---|
//! | `found` | the archives in the directories of sessions |

mod found;

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use self::found::{Found, Source};
use super::{
    config::{Config, SessionKind},
    lock,
    registry::log,
};
use ctf_writer::{KERNEL, UST};
use stdx::host_name;
use store::retention::Held;
use store::{
    Archive, Cause, Event, RetentionConfig, StoreError, UploadConfig, UploadCounters, Uploader, retention,
};

/// From one look at the directories to the next.
const LOOK: Duration = Duration::from_secs(30);
/// The same after an archive was closed: the disk may be fuller than it should be.
const SOON: Duration = Duration::from_secs(5);
/// How many closed archives wait to be noted. The oldest of more are found in the directories.
const CLOSED_MAX: usize = 4096;

/// The archives of configured sessions.
#[derive(Debug)]
pub(super) struct Archives {
    /// The directory of the daemon's state, in which the journal is.
    state: PathBuf,
    work: Mutex<Work>,
    changed: Condvar,
    /// Written to only where uploads begin and end.
    running: RwLock<Option<Running>>,
    /// What uploaders before have counted, and what was deleted without one.
    before: Mutex<UploadCounters>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Work {
    /// Nothing before a configuration was read.
    wanted: Option<Arc<Wanted>>,
    closed: VecDeque<Closed>,
    looks: bool,
    ends: bool,
}

/// An archive that a session has closed.
#[derive(Debug)]
struct Closed {
    session: String,
    path: PathBuf,
}

/// What the configuration says.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    host: String,
    upload: Option<UploadConfig>,
    retention: RetentionConfig,
    sessions: BTreeMap<String, Source>,
}

impl Wanted {
    fn of(config: &Config, sessions: &Path) -> Self {
        let of_sessions = config.sessions.iter().map(|(name, session)| {
            let output = session.output.clone().unwrap_or_else(|| sessions.join(name));
            let keeps = session.mode == SessionKind::Snapshot;
            (name.clone(), Source { output, upload: session.upload, keeps })
        });
        Self {
            host: config.host.clone().unwrap_or_else(host_name),
            upload: config.upload.clone(),
            retention: config.retention.clone(),
            sessions: of_sessions.collect(),
        }
    }

    fn uploads(&self) -> bool {
        self.upload.is_some()
    }

    fn retains(&self) -> bool {
        self.retention != RetentionConfig::default()
    }
}

/// Uploads that go on.
#[derive(Debug)]
struct Running {
    uploader: Uploader,
    config: UploadConfig,
    credentials: Option<Stamp>,
}

/// What a file with credentials was when it was read: new ones come to the same path.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    dev: u64,
    ino: u64,
    size: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(config: &UploadConfig) -> Option<Self> {
        let meta = config.credentials_file.as_ref()?.metadata().ok()?;
        let modified = (meta.mtime(), meta.mtime_nsec());
        Some(Self { dev: meta.dev(), ino: meta.ino(), size: meta.len(), modified })
    }
}

/// What has come of a configuration.
#[derive(Debug, Default)]
pub(super) struct Settled {
    pub(super) changes: Vec<String>,
    pub(super) failure: Option<String>,
}

/// What is counted, for metrics.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    pub(super) counters: UploadCounters,
    /// Whether there is a store.
    pub(super) uploads: bool,
    /// Whether there are limits of what stays here.
    pub(super) retains: bool,
}

impl Archives {
    /// With the directory of the daemon's state. Nothing is sent yet.
    pub(super) fn new(state: &Path) -> Self {
        Self {
            state: state.to_owned(),
            work: Mutex::default(),
            changed: Condvar::new(),
            running: RwLock::default(),
            before: Mutex::default(),
            thread: Mutex::default(),
        }
    }

    /// Does what a configuration says. Sessions that name no directory have theirs in `sessions`.
    pub(super) fn configure(&self, config: &Config, sessions: &Path) -> Settled {
        let wanted = Arc::new(Wanted::of(config, sessions));
        let mut running = self.running_mut();
        let before = lock(&self.work).wanted.replace(Arc::clone(&wanted));
        let done = self.settle(&mut running);
        drop(running);
        let mut settled = Settled::default();
        match done {
            Ok(Some(change)) => settled.changes.push(format!("upload {change}")),
            Ok(None) => {}
            Err(why) => settled.failure = Some(format!("upload: {why}")),
        }
        let retention = before.map(|before| before.retention.clone()).unwrap_or_default();
        if retention != wanted.retention {
            settled.changes.push("retention changed".to_owned());
        }
        self.look_soon();
        settled
    }

    /// A session has closed an archive, which is to be sent.
    pub(super) fn has_closed(&self, session: &str, path: &Path) {
        let mut work = lock(&self.work);
        if work.closed.len() >= CLOSED_MAX {
            work.closed.pop_front();
        }
        work.closed.push_back(Closed { session: session.to_owned(), path: path.to_owned() });
        drop(work);
        self.changed.notify_all();
    }

    /// There may be other archives in the directories of sessions.
    pub(super) fn look_soon(&self) {
        lock(&self.work).looks = true;
        self.changed.notify_all();
    }

    /// What is counted; nothing where the configuration says nothing of it.
    pub(super) fn counts(&self) -> Option<Counts> {
        let wanted = self.wanted()?;
        let (uploads, retains) = (wanted.uploads(), wanted.retains());
        if !uploads && !retains {
            return None;
        }
        let running = self.running();
        let now = running.as_ref().map(|running| running.uploader.counters()).unwrap_or_default();
        Some(Counts { counters: now.after(&lock(&self.before)), uploads, retains })
    }

    /// Works in a thread of its own.
    ///
    /// # Errors
    /// There is no thread.
    pub(super) fn start(self: &Arc<Self>) -> io::Result<()> {
        let this = Arc::clone(self);
        let thread = std::thread::Builder::new().name("archives".into()).spawn(move || this.run())?;
        *lock(&self.thread) = Some(thread);
        Ok(())
    }

    /// Notes what sessions have closed, and ends. What is not stored, the next daemon goes on with.
    pub(super) fn end(&self) {
        lock(&self.work).ends = true;
        self.changed.notify_all();
        if let Some(thread) = lock(&self.thread).take() {
            // A panic has been printed.
            let _ = thread.join();
        }
        drop(self.running_mut().take());
    }

    fn wanted(&self) -> Option<Arc<Wanted>> {
        lock(&self.work).wanted.clone()
    }

    fn running(&self) -> RwLockReadGuard<'_, Option<Running>> {
        self.running.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn running_mut(&self) -> RwLockWriteGuard<'_, Option<Running>> {
        self.running.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the uploader be what is wanted now; says what has changed.
    fn settle(&self, running: &mut Option<Running>) -> Result<Option<&'static str>, String> {
        let wanted = self.wanted();
        let config = wanted.as_ref().and_then(|wanted| wanted.upload.as_ref());
        let credentials = config.and_then(Stamp::of);
        let is_as_wanted = match (&*running, config) {
            (Some(there), Some(config)) => there.config == *config && there.credentials == credentials,
            (None, None) => true,
            _ => false,
        };
        if is_as_wanted {
            return Ok(None);
        }
        let was_there = running.take().map(|there| self.stop(there)).is_some();
        let Some(config) = config else { return Ok(Some("ended")) };
        let teller = Teller::default();
        let observer = Box::new(move |event: &Event| teller.tell(event));
        let uploader = Uploader::start(config, &self.state, observer).map_err(|error| error.to_string())?;
        *running = Some(Running { uploader, config: config.clone(), credentials });
        Ok(Some(if was_there { "changed" } else { "begun" }))
    }

    /// Ends uploads; what they have counted stays.
    fn stop(&self, running: Running) {
        let counted = running.uploader.stop();
        let mut before = lock(&self.before);
        *before = counted.at_rest().after(&before);
    }

    fn run(&self) {
        let mut looked: Option<Instant> = None;
        let mut period = LOOK;
        let mut problems = Problems::default();
        loop {
            let (closed, looks, ends) = self.wait(looked.map(|looked| looked + period));
            match self.settle(&mut self.running_mut()) {
                Ok(Some(_)) => log("archives are sent with the credentials that there are now"),
                Ok(None) => problems.tell("upload", Vec::new()),
                Err(why) => problems.tell("upload", vec![why]),
            }
            if !closed.is_empty() {
                period = SOON;
            }
            let left = self.note(closed);
            if ends {
                return;
            }
            if looks || looked.is_none_or(|looked| looked.elapsed() >= period) {
                problems.tell("archives", self.look());
                (looked, period) = (Some(Instant::now()), LOOK);
            }
            if !left.is_empty() {
                let mut work = lock(&self.work);
                left.into_iter().rev().for_each(|closed| work.closed.push_front(closed));
                work.closed.truncate(CLOSED_MAX);
            }
        }
    }

    /// Waits for something to do, until then at most. What was closed and could not be noted is no reason
    /// not to wait.
    fn wait(&self, until: Option<Instant>) -> (VecDeque<Closed>, bool, bool) {
        let mut work = lock(&self.work);
        let known = work.closed.len();
        loop {
            let left = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
            if work.closed.len() != known || work.looks || work.ends || left.is_zero() {
                let closed = std::mem::take(&mut work.closed);
                return (closed, std::mem::take(&mut work.looks), work.ends);
            }
            let waited = self.changed.wait_timeout(work, left);
            work = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Notes closed archives in the journal. Gives those that it could not.
    fn note(&self, closed: VecDeque<Closed>) -> VecDeque<Closed> {
        // Before there is a configuration, nobody knows.
        let Some(wanted) = self.wanted() else { return closed };
        if !wanted.uploads() {
            return VecDeque::new();
        }
        let running = self.running();
        let Some(Running { uploader, .. }) = &*running else { return closed };
        let mut left = VecDeque::new();
        for one in closed {
            let output = wanted.sessions.get(&one.session).map(|of| &of.output);
            let paths = if output == Some(&one.path) { parts_of(&one.path) } else { vec![one.path.clone()] };
            let of_session = (wanted.host.as_str(), one.session.as_str());
            let noted = paths.iter().try_for_each(|path| add(uploader, of_session, &Held::at(path)?));
            match noted {
                Ok(()) => {}
                Err(StoreError::Local { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    log(&format!(
                        "{} of session {} is not sent: it was removed",
                        one.path.display(),
                        one.session
                    ));
                }
                Err(_) => left.push_back(one),
            }
        }
        left
    }

    /// Looks what there is in the directories: hands in what is not known, and deletes what is not to stay.
    /// Gives what could not be done.
    fn look(&self) -> Vec<String> {
        let Some(wanted) = self.wanted().filter(|wanted| wanted.uploads() || wanted.retains()) else {
            return Vec::new();
        };
        let running = self.running();
        let uploader = running.as_ref().map(|running| &running.uploader);
        let (found, mut problems) = found::look(&wanted.sessions);
        let mut others = Vec::new();
        for Found { session, upload, mut held } in found {
            // What nobody is to send is as if it were stored.
            held.is_stored = !wanted.uploads() || !upload;
            if let Some(uploader) = uploader.filter(|_| !held.is_stored)
                && let Err(error) = add(uploader, (&wanted.host, session), &held)
            {
                problems.push(error.to_string());
            }
            others.push(held);
        }
        let retained = if let Some(uploader) = uploader {
            uploader.retain(&wanted.retention, &others)
        } else {
            let retained = retention::retain(&wanted.retention, &others);
            lock(&self.before).count_deleted(&retained);
            retained
        };
        for deleted in retained.deleted.iter().filter(|deleted| !deleted.is_stored) {
            let path = deleted.path.display();
            log(&format!("{path} was deleted before it was stored: the disk is too full"));
        }
        problems.extend(retained.problems);
        problems
    }
}

/// The traces of a session in LTTng's format that was never rotated. What comes after them, and archives, are
/// beside them.
fn parts_of(output: &Path) -> Vec<PathBuf> {
    [KERNEL, UST].map(|domain| output.join(domain)).into_iter().filter(|path| path.exists()).collect()
}

/// Hands an archive in, unless it is known.
fn add(uploader: &Uploader, (host, session): (&str, &str), held: &Held) -> Result<(), StoreError> {
    if uploader.knows(held) {
        return Ok(());
    }
    let archive = Archive::at(&held.path, session)?;
    uploader.add_found(Archive { host: host.to_owned(), ..archive })
}

/// What cannot be done, as long as it is the same: the log has it once.
#[derive(Debug, Default)]
struct Problems(BTreeMap<&'static str, Vec<String>>);

impl Problems {
    fn tell(&mut self, of: &'static str, now: Vec<String>) {
        let before = self.0.get(of).map(Vec::as_slice).unwrap_or_default();
        for text in now.iter().filter(|text| !before.contains(text)) {
            log(&format!("{of}: {text}"));
        }
        self.0.insert(of, now);
    }
}

/// Tells the log of uploads: of failures when they begin, and when they are over.
#[derive(Debug, Default)]
struct Teller(Mutex<Option<Cause>>);

impl Teller {
    fn tell(&self, event: &Event) {
        match event {
            Event::Stored { .. } => {
                if lock(&self.0).take().is_some() {
                    log("archives are stored again");
                }
            }
            Event::Failed { archive, cause, why } => {
                if lock(&self.0).replace(*cause) != Some(*cause) {
                    let path = archive.path.display();
                    log(&format!("{path} is not stored yet: {why}; it is tried again"));
                }
            }
            Event::Lost { archive, why } => {
                log(&format!("{} is lost before it was stored: {why}", archive.path.display()));
            }
            Event::Journal { why } => log(&format!("uploads: {why}")),
        }
    }
}
