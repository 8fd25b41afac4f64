//! The queue of archives, the thread that uploads them, and what is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::archive::Archive;
use super::config::{ConfigError, RetentionConfig, UploadConfig};
use super::content;
use super::counters::UploadCounters;
use super::failure::{Cause, StoreError};
use super::journal::{Journal, JournalError, Key, Progress, Record};
use super::pace::{Bandwidth, backoff};
use super::place::{Place, Retries};
use super::retention::{self, Held, Retained};
use super::upload::{Failure, Means, upload};

/// Uploads at a time.
const AT_ONCE: usize = 2;

/// What an uploader tells of as it happens. No text has secrets.
#[derive(Clone, Debug)]
pub enum Event {
    /// An archive is stored, and verified.
    Stored {
        /// The archive.
        archive: Archive,
        /// The address of its object.
        url: String,
        /// Bytes of the object.
        bytes: u64,
    },
    /// An attempt has failed; there will be another one.
    Failed {
        /// The archive.
        archive: Archive,
        /// The cause.
        cause: Cause,
        /// The reason.
        why: String,
    },
    /// An archive was removed or taken over by somebody before it was stored.
    Lost {
        /// The archive.
        archive: Archive,
        /// What is there instead.
        why: String,
    },
    /// A file of the journal is damaged.
    Journal {
        /// Which, and what becomes of it.
        why: String,
    },
}

/// Who is told.
pub type Observer = Box<dyn Fn(&Event) + Send + Sync>;

/// Why uploads cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// There is no thread for it.
    #[error("cannot start the thread that uploads: {0}")]
    Thread(#[source] std::io::Error),
}

/// An archive that is known.
struct Entry {
    record: Record,
    /// Which of all that were added it is: another one may come to its path.
    number: u64,
    attempts: u64,
    is_running: bool,
    /// Not before then.
    next: Option<Instant>,
}

impl Entry {
    fn new(record: Record, number: u64) -> Self {
        Self { record, number, attempts: 0, is_running: false, next: None }
    }

    fn is_stored(&self) -> bool {
        self.record.progress.stored.is_some()
    }
}

#[derive(Default)]
struct State {
    entries: BTreeMap<Key, Entry>,
    /// How many were added.
    added: u64,
    counters: UploadCounters,
    /// Failures of the store or of the way to it, in a row.
    failures: u32,
    /// Nothing is begun before then.
    pause: Option<Instant>,
    is_stopping: bool,
}

struct Shared {
    state: Mutex<State>,
    /// Something has changed: for who waits in `flush`.
    changed: Condvar,
    /// The same for the thread.
    wake: Notify,
    means: Means,
    max_backoff: Duration,
    observer: Observer,
}

/// Uploads archives in a thread of its own, one after the other until each is stored, however long that
/// takes. Whatever it has is in its state directory, and the next one goes on with it.
pub struct Uploader {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Uploader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uploader").field("place", &self.shared.means.place).finish_non_exhaustive()
    }
}

impl Uploader {
    /// Starts to upload what the journal in the directory `state` has, and what is added.
    ///
    /// # Errors
    /// The configuration is wrong, or the journal cannot be used. That a store cannot be reached is no
    /// error.
    pub fn start(config: &UploadConfig, state: &Path, observer: Observer) -> Result<Self, StartError> {
        config.check()?;
        let place = Place::open(&config.url, &config.access(), Retries::Caller)?;
        Self::start_at(place, config, state, observer)
    }

    pub(super) fn start_at(
        place: Place,
        config: &UploadConfig,
        state: &Path,
        observer: Observer,
    ) -> Result<Self, StartError> {
        let journal = Journal::open(state)?;
        let (records, damage) = journal.load()?;
        let means = Means {
            place,
            site: config.site.clone(),
            part_size: config.part_size.0,
            bandwidth: Bandwidth::new(config.bandwidth.map(|size| size.0)),
            journal,
        };
        let mut first = State::default();
        first.counters.damaged_journals = damage.len() as u64;
        for record in records {
            first.insert(record);
        }
        let shared = Arc::new(Shared {
            state: Mutex::new(first),
            changed: Condvar::new(),
            wake: Notify::new(),
            means,
            max_backoff: config.max_backoff.0,
            observer,
        });
        for error in damage {
            (shared.observer)(&Event::Journal { why: error.to_string() });
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(AT_ONCE * 2)
            .build()
            .map_err(StartError::Thread)?;
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("uploader".into())
            .spawn(move || {
                runtime.block_on(of_thread.run());
                // What is being read is not waited for.
                runtime.shutdown_background();
            })
            .map_err(StartError::Thread)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Adds an archive. When this returns, it will be uploaded, now or after a restart. One that is already
    /// known, and the same, stays what it is.
    ///
    /// # Errors
    /// It cannot be opened, or not be noted in the journal.
    pub fn add(&self, archive: Archive) -> Result<(), StoreError> {
        self.put(archive, true)
    }

    /// The same of an archive that is found again after a restart: it is also uploaded if the disk is too
    /// full to note it, or the disk would stay full.
    ///
    /// # Errors
    /// As above.
    pub fn add_found(&self, archive: Archive) -> Result<(), StoreError> {
        self.put(archive, false)
    }

    fn put(&self, archive: Archive, must_be_noted: bool) -> Result<(), StoreError> {
        let opened = content::open(&archive.path)?;
        let path = content::absolute(&archive.path)?;
        let archive = Archive { path, ..archive };
        let key = Key::of(&archive.path);
        let record = Record {
            key: key.clone(),
            archive,
            fingerprint: opened.fingerprint,
            progress: Progress::default(),
        };
        let mut state = self.shared.lock();
        if state.entries.get(&key).is_some_and(|known| {
            known.record.fingerprint == record.fingerprint && known.record.archive == record.archive
        }) {
            return Ok(());
        }
        let failed = |error| StoreError::local("note an archive")(std::io::Error::other(error));
        match self.shared.means.journal.add(&record) {
            Err(error) if must_be_noted || !error.is_full() => return Err(failed(error)),
            _ => {}
        }
        state.insert(record);
        drop(state);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// What there is to count.
    pub fn counters(&self) -> UploadCounters {
        self.shared.lock().counters()
    }

    /// Waits until everything is stored, or the time is over. Returns whether everything is.
    pub fn flush(&self, longest: Duration) -> bool {
        let deadline = Instant::now() + longest;
        let mut state = self.shared.lock();
        loop {
            if state.entries.values().all(Entry::is_stored) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.is_stopping {
                return false;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The archives that are on this machine, as far as they were handed in.
    pub fn held(&self) -> Vec<Held> {
        self.shared.lock().entries.values().map(Entry::held).collect()
    }

    /// Whether an archive was handed in, as it is.
    pub fn knows(&self, held: &Held) -> bool {
        let state = self.shared.lock();
        let known = state.entries.get(&Key::of(&held.path));
        known.is_some_and(|known| known.record.fingerprint == held.fingerprint)
    }

    /// Deletes archives as a configuration wants it: those that were handed in, and others. Of those that
    /// are stored and have been removed by somebody, nothing is known any more.
    pub fn retain(&self, config: &RetentionConfig, others: &[Held]) -> Retained {
        let mut held = self.held();
        for gone in held.iter().filter(|one| one.is_stored && !one.is_there()) {
            retention::Owner::is_gone(&*self.shared, gone);
        }
        let known: BTreeSet<_> = held.iter().map(|one| one.path.clone()).collect();
        held.extend(others.iter().filter(|one| !known.contains(&one.path)).cloned());
        let retained = retention::enforce(config, &held, now(), &*self.shared);
        self.shared.lock().counters.count_deleted(&retained);
        retained
    }

    /// Forgets what is stored, and leaves its files alone.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn forget_stored(&self) -> Result<(), JournalError> {
        let mut state = self.shared.lock();
        let stored = state.entries.values().filter(|entry| entry.is_stored());
        let keys: Vec<_> = stored.map(|entry| entry.record.key.clone()).collect();
        for key in keys {
            self.shared.means.journal.remove(&key)?;
            state.entries.remove(&key);
        }
        Ok(())
    }

    /// Ends the thread. What is not stored goes on at the next start. Gives what was counted.
    pub fn stop(mut self) -> UploadCounters {
        self.end();
        self.counters()
    }

    fn end(&mut self) {
        self.shared.lock().is_stopping = true;
        self.shared.wake.notify_one();
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // One that has panicked has ended.
            let _ = thread.join();
        }
    }
}

impl Drop for Uploader {
    fn drop(&mut self) {
        self.end();
    }
}

/// Nanoseconds since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

impl Entry {
    fn held(&self) -> Held {
        Held {
            path: self.record.archive.path.clone(),
            bytes: self.record.fingerprint.size,
            end: self.record.archive.end,
            is_stored: self.is_stored(),
            fingerprint: self.record.fingerprint.clone(),
        }
    }
}

impl State {
    fn counters(&self) -> UploadCounters {
        let mut counters = self.counters.clone();
        let waiting = || self.entries.values().filter(|entry| !entry.is_stored());
        counters.queued_archives = waiting().count() as u64;
        counters.queued_bytes = waiting().map(|entry| entry.record.fingerprint.size).sum();
        let oldest = waiting().map(|entry| entry.record.archive.end).min();
        counters.oldest_unsent_seconds = oldest.map(|end| now().saturating_sub(end) / 1_000_000_000);
        counters
    }

    /// The archive that is to be uploaded next, or when to look again.
    fn next(&self, now: Instant) -> Result<Key, Option<Instant>> {
        if let Some(pause) = self.pause.filter(|pause| *pause > now) {
            return Err(Some(pause));
        }
        let waiting = || self.entries.iter().filter(|(_, entry)| !entry.is_stored() && !entry.is_running);
        let ready = waiting().filter(|(_, entry)| entry.next.is_none_or(|next| next <= now));
        // The oldest first: those that were tried in vain do not hold up others.
        let first = ready.min_by_key(|(_, entry)| (entry.next.is_some(), entry.record.archive.end));
        first.map(|(key, _)| key.clone()).ok_or_else(|| waiting().filter_map(|(_, entry)| entry.next).min())
    }
}

/// What became of an upload.
type Outcome = (Record, u64, Result<String, Failure>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uploads until it is to stop.
    async fn run(self: Arc<Self>) {
        let mut running: JoinSet<Outcome> = JoinSet::new();
        loop {
            let mut later = None;
            {
                let mut state = self.lock();
                if state.is_stopping {
                    // Dropped requests are as those of a process that was killed: the journal has the rest.
                    return;
                }
                while running.len() < AT_ONCE {
                    match state.next(Instant::now()) {
                        Err(time) => {
                            later = time;
                            break;
                        }
                        Ok(key) => {
                            if let Some(begun) = state.begin(&key) {
                                running.spawn(Arc::clone(&self).one(begun));
                            }
                        }
                    }
                }
            }
            let pause = async {
                match later {
                    Some(time) => tokio::time::sleep_until(time.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(ended) = running.join_next() => {
                    match ended {
                        Ok(outcome) => self.end(outcome),
                        Err(error) => self.end_panicked(&error),
                    }
                }
                () = self.wake.notified() => {}
                () = pause => {}
            }
        }
    }

    async fn one(self: Arc<Self>, (mut record, number): (Record, u64)) -> Outcome {
        let sent = |bytes| self.lock().counters.bytes_sent += bytes;
        let result = upload(&self.means, &mut record, &sent).await;
        (record, number, result)
    }

    fn end(&self, (record, number, result): Outcome) {
        let event = {
            let mut state = self.lock();
            let state = &mut *state;
            let archive = record.archive.clone();
            let key = record.key.clone();
            // Another archive may have come to its path meanwhile, which is still to be uploaded.
            let is_same = state.entries.get(&key).is_some_and(|entry| entry.number == number);
            match result {
                Ok(url) => {
                    let bytes = record.fingerprint.size;
                    state.failures = 0;
                    state.pause = None;
                    state.counters.stored_archives += 1;
                    state.counters.stored_bytes += bytes;
                    state.put_back(record, None, is_same);
                    Event::Stored { archive, url, bytes }
                }
                Err(Failure::Gone(error)) => {
                    let why = error.to_string();
                    state.count(Cause::LocalFile, &why);
                    state.counters.lost_archives += 1;
                    if is_same {
                        state.entries.remove(&key);
                        if let Err(error) = self.means.journal.remove(&key) {
                            state.counters.last_error = Some(error.to_string());
                        }
                    }
                    Event::Lost { archive, why }
                }
                Err(Failure::Again(error)) => {
                    let (cause, why) = (error.cause(), error.to_string());
                    state.count(cause, &why);
                    if cause != Cause::LocalFile {
                        state.failures = state.failures.saturating_add(1);
                        let pause = backoff(state.failures, self.max_backoff, rand::random());
                        state.pause = Some(Instant::now() + pause);
                    }
                    // What the store refuses, it will hardly take in a moment.
                    let next = (!cause.is_transient()).then(|| Instant::now() + self.max_backoff);
                    state.put_back(record, next, is_same);
                    Event::Failed { archive, cause, why }
                }
            }
        };
        self.changed.notify_all();
        (self.observer)(&event);
    }

    /// A bug of ours, or of a library: the archive is tried again, as if its file could not be read.
    fn end_panicked(&self, error: &tokio::task::JoinError) {
        let mut state = self.lock();
        let why = self.means.place.filter.clean(&error.to_string());
        state.count(Cause::Other, &why);
        let next = Some(Instant::now() + self.max_backoff);
        // Which one it was is not known; another upload that runs may be done twice, under the same name.
        for entry in state.entries.values_mut().filter(|entry| entry.is_running) {
            entry.is_running = false;
            entry.next = next;
        }
    }

    /// Whether an entry is of an archive that was looked at.
    fn is_of(entry: &Entry, held: &Held) -> bool {
        entry.record.fingerprint == held.fingerprint && entry.is_stored() == held.is_stored
    }
}

impl retention::Owner for Shared {
    fn reserve(&self, held: &Held) -> bool {
        match self.lock().entries.get_mut(&Key::of(&held.path)) {
            Some(entry) if !entry.is_running && Self::is_of(entry, held) => {
                // As if it were uploaded: nobody begins to.
                entry.is_running = true;
                true
            }
            Some(_) => false,
            None => true,
        }
    }

    fn is_gone(&self, held: &Held) {
        let key = Key::of(&held.path);
        let mut state = self.lock();
        if !state.entries.get(&key).is_some_and(|entry| Self::is_of(entry, held)) {
            return;
        }
        if let Err(error) = self.means.journal.remove(&key) {
            state.counters.last_error = Some(error.to_string());
        }
        state.entries.remove(&key);
        drop(state);
        self.changed.notify_all();
    }

    fn stays(&self, held: &Held) {
        let mut state = self.lock();
        let entry = state.entries.get_mut(&Key::of(&held.path));
        if let Some(entry) = entry.filter(|entry| Self::is_of(entry, held)) {
            entry.is_running = false;
        }
        drop(state);
        self.wake.notify_one();
    }
}

impl State {
    /// Begins an attempt of an archive.
    fn begin(&mut self, key: &Key) -> Option<(Record, u64)> {
        let entry = self.entries.get_mut(key)?;
        entry.is_running = true;
        self.counters.retries += u64::from(entry.attempts > 0);
        entry.attempts += 1;
        Some((entry.record.clone(), entry.number))
    }

    fn insert(&mut self, record: Record) {
        self.added += 1;
        self.entries.insert(record.key.clone(), Entry::new(record, self.added));
    }

    fn count(&mut self, cause: Cause, why: &str) {
        *self.counters.failures.entry(cause).or_default() += 1;
        self.counters.last_error = Some(why.to_owned());
    }

    /// Notes what an attempt has found out of an archive.
    fn put_back(&mut self, record: Record, next: Option<Instant>, is_same: bool) {
        let entry = self.entries.get_mut(&record.key).filter(|_| is_same);
        let Some(entry) = entry else { return };
        entry.is_running = false;
        entry.record = record;
        entry.next = next;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicU64, Ordering};

    use object_store::ObjectStoreExt as _;
    use object_store::memory::InMemory;

    use super::super::place::block_on;
    use super::*;
    use stdx::quantity::Bytes;

    const LONG: Duration = Duration::from_mins(1);

    fn start(place: &Place, state: &Path) -> Uploader {
        let config = UploadConfig { part_size: Bytes(5 << 20), ..UploadConfig::new("s3://unused") };
        Uploader::start_at(place.clone(), &config, state, Box::new(|_| {})).unwrap()
    }

    fn names(store: &InMemory) -> Vec<String> {
        use futures_util::TryStreamExt as _;
        use object_store::ObjectStore as _;
        let found: Vec<_> = block_on(store.list(None).try_collect()).unwrap().unwrap();
        found.into_iter().map(|object| object.location.to_string()).collect()
    }

    #[test]
    fn archives_are_stored_once_and_known_after_a_restart() {
        let (place, store) = Place::in_memory();
        let dir = tempfile::tempdir().unwrap();
        let small = dir.path().join("small.dat");
        let large = dir.path().join("large.dat");
        fs::write(&small, "x").unwrap();
        fs::write(&large, vec![7; 11 << 20]).unwrap();
        let uploader = start(&place, dir.path());
        for path in [&small, &large] {
            uploader.add(Archive::at(path, "s").unwrap()).unwrap();
        }
        assert!(uploader.flush(LONG));
        let counters = uploader.counters();
        assert_eq!((counters.stored_archives, counters.queued_archives, counters.retries), (2, 0, 0));
        assert_eq!((counters.stored_bytes, counters.bytes_sent), ((11 << 20) + 1, (11 << 20) + 1));
        uploader.stop();
        assert_eq!(names(&store).len(), 2);
        let uploader = start(&place, dir.path());
        uploader.add(Archive::at(&small, "s").unwrap()).unwrap();
        assert!(uploader.flush(LONG));
        assert_eq!(uploader.counters().bytes_sent, 0);
        // An archive of which nothing is known is not sent either where the store has it.
        uploader.forget_stored().unwrap();
        uploader.add(Archive::at(&large, "s").unwrap()).unwrap();
        assert!(uploader.flush(LONG));
        assert_eq!((uploader.counters().stored_archives, uploader.counters().bytes_sent), (1, 0));
        assert_eq!(names(&store).len(), 2);
    }

    /// An archive that is stored, in a directory of its own, and who has stored it.
    fn stored(place: &Place) -> (tempfile::TempDir, std::path::PathBuf, Uploader) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.dat");
        fs::write(&path, "content").unwrap();
        let uploader = start(place, dir.path());
        uploader.add(Archive::at(&path, "s").unwrap()).unwrap();
        assert!(uploader.flush(LONG));
        (dir, path, uploader)
    }

    #[test]
    fn what_is_not_what_was_sent_is_sent_again() {
        let (place, store) = Place::in_memory();
        let (_dir, path, uploader) = stored(&place);
        let name = names(&store).remove(0);
        let location = object_store::path::Path::from(name.as_str());
        block_on(store.put(&location, "damaged".into())).unwrap().unwrap();
        uploader.forget_stored().unwrap();
        uploader.add(Archive::at(&path, "s").unwrap()).unwrap();
        assert!(uploader.flush(LONG));
        let object = block_on(place.look(&location)).unwrap().unwrap().unwrap();
        assert!(object.sha256.is_some() && names(&store).len() == 1);
    }

    #[test]
    fn an_archive_that_is_gone_is_counted_and_holds_up_nobody() {
        let (place, store) = Place::in_memory();
        let dir = tempfile::tempdir().unwrap();
        let paths = ["a.dat", "b.dat"].map(|name| dir.path().join(name));
        for path in &paths {
            fs::write(path, path.as_os_str().as_encoded_bytes()).unwrap();
        }
        let journal = Journal::open(dir.path()).unwrap();
        for path in &paths {
            let archive = Archive::at(path, "s").unwrap();
            let fingerprint = content::open(path).unwrap().fingerprint;
            let record = Record { key: Key::of(path), archive, fingerprint, progress: Progress::default() };
            journal.add(&record).unwrap();
        }
        drop(journal);
        fs::remove_file(&paths[0]).unwrap();
        let uploader = start(&place, dir.path());
        assert!(uploader.flush(LONG));
        let counters = uploader.counters();
        assert_eq!((counters.stored_archives, counters.lost_archives), (1, 1));
        assert_eq!(counters.failures.get(&Cause::LocalFile), Some(&1));
        assert_eq!(names(&store).len(), 1);
    }

    #[test]
    fn only_what_is_stored_is_deleted_unless_it_must_be() {
        let (place, _) = Place::in_memory();
        let (_dir, path, uploader) = stored(&place);
        let none =
            RetentionConfig { max_age: Some(stdx::quantity::Period(LONG)), ..RetentionConfig::default() };
        assert_eq!(uploader.retain(&none, &[]).deleted_archives, 0);
        let all = RetentionConfig { max_bytes: Some(Bytes(0)), ..RetentionConfig::default() };
        assert_eq!(uploader.retain(&all, &[]).deleted_archives, 1);
        assert!(!path.exists());
        assert_eq!((uploader.counters().deleted_archives, uploader.held().len()), (1, 0));
    }

    #[test]
    fn what_is_stored_and_removed_is_forgotten_and_other_archives_count() {
        let (place, _) = Place::in_memory();
        let (dir, path, uploader) = stored(&place);
        let other = dir.path().join("b.dat");
        fs::write(&other, "of nobody").unwrap();
        let mut other = Held::at(&other).unwrap();
        assert!(uploader.knows(&Held::at(&path).unwrap()) && !uploader.knows(&other));
        fs::remove_file(&path).unwrap();
        let all = RetentionConfig { max_bytes: Some(Bytes(0)), ..RetentionConfig::default() };
        assert_eq!(uploader.retain(&all, std::slice::from_ref(&other)).deleted.len(), 0);
        assert_eq!((uploader.held().len(), other.path.exists()), (0, true), "it is not stored");
        other.is_stored = true;
        assert_eq!(uploader.retain(&all, std::slice::from_ref(&other)).deleted_archives, 1);
        assert_eq!((uploader.counters().deleted_archives, other.path.exists()), (1, false));
    }

    /// A store that does not answer the first requests.
    #[test]
    fn a_store_that_is_down_is_asked_until_it_is_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.dat");
        fs::write(&path, "content").unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let config = UploadConfig {
            endpoint: Some(format!("http://{address}")),
            allow_http: true,
            max_backoff: stdx::quantity::Period(Duration::from_secs(1)),
            ..UploadConfig::new("s3://bucket")
        };
        let credentials = dir.path().join("credentials");
        fs::write(&credentials, "AWS_ACCESS_KEY_ID=a\nAWS_SECRET_ACCESS_KEY=b\n").unwrap();
        fs::set_permissions(&credentials, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let config = UploadConfig { credentials_file: Some(credentials), ..config };
        let failures = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&failures);
        let observer = move |event: &Event| {
            if let Event::Failed { cause: Cause::Connect, .. } = event {
                seen.fetch_add(1, Ordering::SeqCst);
            }
        };
        let uploader = Uploader::start(&config, dir.path(), Box::new(observer)).unwrap();
        uploader.add(Archive::at(&path, "s").unwrap()).unwrap();
        let start = Instant::now();
        while failures.load(Ordering::SeqCst) < 2 && start.elapsed() < LONG {
            std::thread::sleep(Duration::from_millis(20));
        }
        let counters = uploader.counters();
        assert!(counters.failures[&Cause::Connect] >= 2, "{counters:?}");
        assert!(counters.retries >= 1 && counters.queued_archives == 1, "{counters:?}");
        assert!(!uploader.flush(Duration::ZERO));
        uploader.stop();
    }
}
