//! The sessions that viewers can attach to.

use std::{
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, atomic::AtomicU32},
};

use ctf_writer::{OpenFile, PacketFile, Publication, Published, PublishedTrace};

/// The sessions of this process that are offered.
#[derive(Clone, Debug, Default)]
pub struct Sessions(Arc<Mutex<All>>);

#[derive(Debug, Default)]
struct All {
    offered: Vec<Arc<Offered>>,
    last_id: u64,
}

/// A session that is offered.
#[derive(Debug)]
pub struct Offered {
    /// Its number among those of this process, which no later one gets.
    pub(super) id: u64,
    /// The machine that it is of.
    pub host: String,
    /// Its name.
    pub name: String,
    /// How late its events can be read.
    pub timer_us: u32,
    /// How many have attached to it.
    pub(super) viewers: AtomicU32,
    recordings: Mutex<Recordings>,
    opener: Rights,
}

/// How files are opened.
struct Rights(Opener);

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rights")
    }
}

/// Opens files of packets with the rights of whoever they are of.
pub type Opener = Box<dyn Fn(&PacketFile) -> io::Result<OpenFile> + Send + Sync>;

/// What is recorded of a session.
#[derive(Debug, Default)]
struct Recordings {
    /// With their numbers, the oldest first. Those that have ended are forgotten when another one begins.
    all: Vec<(u64, Arc<Publication>)>,
    last: u64,
    /// Whether another one is about to begin, before the last one has ended.
    is_held: bool,
    /// Whether none comes any more.
    has_ended: bool,
}

/// Offers a session as long as it is there. Whoever has attached to it by then reads what there is.
#[derive(Debug)]
pub struct Offer {
    all: Weak<Mutex<All>>,
    offered: Arc<Offered>,
}

impl Sessions {
    /// Offers a session from now on, of which nothing is recorded yet.
    /// Files are opened by `opener`.
    pub fn offer(&self, (host, name): (&str, &str), timer_us: u64, opener: Opener) -> Offer {
        let mut all = lock(&self.0);
        all.last_id += 1;
        let offered = Arc::new(Offered {
            id: all.last_id,
            host: host.to_owned(),
            name: name.to_owned(),
            timer_us: u32::try_from(timer_us).unwrap_or(u32::MAX),
            viewers: AtomicU32::new(0),
            recordings: Mutex::default(),
            opener: Rights(opener),
        });
        all.offered.push(Arc::clone(&offered));
        Offer { all: Arc::downgrade(&self.0), offered }
    }

    /// Whether one of this name is offered.
    pub fn is_taken(&self, name: &str) -> bool {
        lock(&self.0).offered.iter().any(|offered| offered.name == name)
    }

    /// Those that are offered now.
    pub(super) fn all(&self) -> Vec<Arc<Offered>> {
        lock(&self.0).offered.clone()
    }

    pub(super) fn find(&self, id: u64) -> Option<Arc<Offered>> {
        lock(&self.0).offered.iter().find(|offered| offered.id == id).cloned()
    }
}

impl Offered {
    /// Opens a file of one of its recordings.
    pub(super) fn open(&self, file: &PacketFile) -> io::Result<OpenFile> {
        (self.opener.0)(file)
    }

    /// The recordings that have begun after the one of this number.
    pub(super) fn recordings_after(&self, number: u64) -> Vec<(u64, Arc<Publication>)> {
        let recordings = lock(&self.recordings);
        recordings.all.iter().filter(|(of, _)| *of > number).cloned().collect()
    }

    /// Whether nothing is told for now: until the streams of the next recording are known, as they may have
    /// events from before others of this one.
    pub(super) fn is_held(&self) -> bool {
        let mut recordings = lock(&self.recordings);
        if recordings.is_held
            && let Some((number, newest)) = recordings.all.last()
            && *number == recordings.last
        {
            recordings.is_held = !newest.read(|state| state.is_ended || state.traces.values().any(has_begun));
        }
        recordings.is_held
    }

    /// Whether nothing is recorded any more.
    pub(super) fn has_ended(&self) -> bool {
        lock(&self.recordings).has_ended
    }

    /// How many streams it has.
    pub(super) fn stream_count(&self) -> usize {
        let count = |state: &Published| state.traces.values().map(|trace| trace.streams.len()).sum::<usize>();
        self.recordings_after(0).iter().map(|(_, recording)| recording.read(count)).sum()
    }
}

/// Whether all streams that a trace begins with are known: then they say until when they have nothing.
fn has_begun(trace: &PublishedTrace) -> bool {
    trace.streams.values().any(|stream| stream.silent_until != 0 || stream.packets != 0)
}

impl Offer {
    /// The machine that viewers are told.
    pub fn host(&self) -> &str {
        &self.offered.host
    }

    /// The name that viewers know it by.
    pub fn name(&self) -> &str {
        &self.offered.name
    }

    /// Tells nothing more of the session until its next recording has begun: it will have events from before
    /// the last ones of the one that goes on. To be called before it begins.
    pub fn hold(&self) {
        let mut recordings = lock(&self.offered.recordings);
        recordings.is_held = true;
        // The one that is meant is not there yet.
        recordings.last += 1;
    }

    /// There is no next recording: goes on with the one there is.
    pub fn release(&self) {
        lock(&self.offered.recordings).is_held = false;
    }

    /// A recording of the session begins.
    pub fn add(&self, recording: Arc<Publication>) {
        let mut recordings = lock(&self.offered.recordings);
        if !recordings.is_held {
            recordings.last += 1;
        }
        let number = recordings.last;
        recordings.all.retain(|(_, of)| !of.read(|state| state.is_ended));
        recordings.all.push((number, recording));
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        lock(&self.offered.recordings).has_ended = true;
        if let Some(all) = self.all.upgrade() {
            lock(&all).offered.retain(|offered| offered.id != self.offered.id);
        }
    }
}

/// Nothing is done under these locks that can panic between two changes.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
