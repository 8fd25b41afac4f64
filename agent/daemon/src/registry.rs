//! The sessions there are, and what is done with them.

mod config;
mod ends;
mod handover;
mod left;
mod listener;
mod maps;
mod outputs;
mod throttle;
mod usage;

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize};

pub(super) use self::config::Applied;
pub(super) use self::handover::{HandedChunks, TakingOver};
use self::maps::Maps;
pub(super) use self::maps::{Budget, MapsAsked};
pub(super) use self::usage::Detail;
use self::usage::{Asked, Known};
use super::{
    archives::Archives,
    descriptors::Descriptors,
    files::Files,
    live::Live,
    lock,
    notes::RecordingNotes,
    notifications::{Listening, Notifications},
    peer::Peer,
    recording::Recording,
    recovery::{Notes, Recoveries},
    relay::{Abilities, Places},
    sessions::{Admission, Finder, KnownPrograms, Model, Programs, Selections, Wanted, World, spec},
    shares::{Share, Shares},
    triggers::{self, Counted, HandedTrigger, Triggers, rule_of, sampled_session, waits_for_programs},
    user::Owner,
};
use api::requests::{NewChannel, Notification};
use api::trigger::Condition;
use api::{
    Channel, Code, ControlError, Created, Destroyed, Domain, EventRule, Format, NewSession, NewTrigger,
    Rotation, RotationState, Session, SessionMode, Stopped, Summary, Trigger,
};
use capture::{HandOver, Notice};
use kernel::{events::Catalogue, tracefs::Tracefs};
use lttng_live::Offer;
use lttng_relay::Hangup;
use stdx::terminal;
use stdx::utc;

/// The most sessions of all users.
const SESSIONS_MAX: usize = 1024;
/// The most sessions of one user, so that nobody takes all of them.
const SESSIONS_OF_USER_MAX: usize = 128;

/// A session with its owner, as it is looked up.
type Key = (u32, String);

type Answer<T = ()> = Result<T, ControlError>;

/// All sessions of the daemon.
#[derive(Debug)]
pub(super) struct Registry {
    sessions: Mutex<BTreeMap<Key, Arc<Entry>>>,
    /// Whether the daemon ends, so that no session may be added.
    is_over: AtomicBool,
    notifications: Arc<Notifications>,
    triggers: Arc<Triggers>,
    shares: Arc<Shares>,
    descriptors: Descriptors,
    notes: Notes,
    recoveries: Recoveries,
    /// Taken by who reads maps, of a user or of all.
    reading: Mutex<BTreeMap<Option<u32>, Arc<Mutex<()>>>>,
    finder: Arc<Finder>,
    /// The kernel's events, as they were when somebody looked last.
    catalogue: Mutex<Arc<Catalogue>>,
    admission: Admission,
    /// The state of programs that triggers know of.
    followed: AtomicU64,
    live: Live,
    archives: Arc<Archives>,
    /// Where what is on its way to relay daemons is, and how many bytes of each session.
    places: Places,
    backlog: u64,
}

/// A session.
#[derive(Debug)]
struct Entry {
    owner: Owner,
    /// What it is: held for moments only, so that lists never wait for what is done with a session.
    model: Mutex<Model>,
    /// Its recording since it was started first. Who changes the session holds this lock.
    recording: Mutex<Option<Recording>>,
    /// Its trace chunks.
    chunks: Mutex<Chunks>,
    /// The files of it that were made.
    files: Mutex<Files>,
    /// What is to be known of what it records.
    notes: Mutex<RecordingNotes>,
    /// Its maps. Who changes them has the right to change the session.
    maps: Mutex<Maps>,
    /// What makes its thread look whether there is something to do.
    waker: Mutex<Option<Arc<Notice>>>,
    /// What viewers read, of a session that they can read.
    offer: Option<Offer>,
    /// What its relay daemon can do, once it was reached.
    relay: Mutex<Option<Abilities>>,
    /// Ends its connections to a relay daemon: those of its recording, or of a snapshot.
    hangup: Mutex<Hangup>,
    /// The events that its rules select.
    selections: Arc<Selections>,
    /// What was known last of how full its rings are.
    usage: Mutex<Known>,
    /// The question about them that its thread has not answered.
    asked: Mutex<Option<Asked>>,
    /// What it takes of its user's share. Who changes it has the right to change the session.
    share: Mutex<Share>,
}

/// The trace chunks of a session.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Chunks {
    /// What stops have closed and no rotation has archived: the number of each, and its file if it could be
    /// made.
    stopped: Vec<(u64, Option<PathBuf>)>,
    /// Whether there was a rotation since the session was stopped.
    is_done_since_stop: bool,
    /// Whether it was cleared since then.
    is_cleared_since_stop: bool,
    /// The last rotation.
    last: Option<Rotation>,
}

impl Registry {
    pub(super) fn new(
        notes: Notes,
        recoveries: Recoveries,
        (shares, descriptors): (Shares, Descriptors),
        (live, archives): (Live, Arc<Archives>),
        (places, backlog): (Places, u64),
    ) -> Self {
        let notifications = Arc::<Notifications>::default();
        let shares = Arc::new(shares);
        let of_triggers = (Arc::clone(&shares), descriptors.clone());
        Self {
            sessions: Mutex::default(),
            is_over: AtomicBool::new(false),
            triggers: Arc::new(Triggers::new(Arc::clone(&notifications), of_triggers)),
            notifications,
            shares,
            descriptors,
            notes,
            recoveries,
            reading: Mutex::default(),
            finder: Arc::default(),
            catalogue: Mutex::default(),
            admission: Admission::default(),
            followed: AtomicU64::new(0),
            live,
            archives,
            places,
            backlog,
        }
    }

    /// What happens from now on in a user's sessions; in all where no user is named.
    pub(super) fn listen(&self, of: Option<u32>) -> Listening {
        self.notifications.listen(of)
    }

    /// The archives of configured sessions.
    pub(super) fn archives(&self) -> &Archives {
        &self.archives
    }

    /// The triggers.
    pub(super) fn triggers(&self) -> &Arc<Triggers> {
        &self.triggers
    }

    /// Adds a trigger of a user.
    pub(super) fn add_trigger(&self, owner: Owner, new: NewTrigger) -> Answer<Trigger> {
        triggers::check(owner.uid, &new)?;
        let uid = owner.uid;
        let sampled = sampled_session(&new.condition).map(str::to_owned);
        let world = if Triggers::is_about_events(&new.condition) {
            Some(self.world_of_programs(waits_for_programs(&new.condition), &Arc::default())?)
        } else {
            None
        };
        // Before what takes its time.
        self.triggers.check_room(uid, &new)?;
        if let (Some(world), Some((domain, rule, _))) = (&world, rule_of(&new.condition)) {
            // Triggers have no state of the machine.
            self.admission.check(world, (domain, std::slice::from_ref(rule)), Format::TraceDat)?;
        }
        let counted = match &world {
            Some(world) => Counted::load(uid, &new, world, (&self.shares, &self.descriptors.of(uid)))?,
            None => Counted::default(),
        };
        // Of what the kernel counts nobody need be told. Whether there is what is captured is known when that
        // is watched for.
        let watched = world.filter(|_| !counted.is_all(new.actions.len()) || captures(&new.condition));
        let added = self.triggers.add(owner, (new, counted), watched.as_ref())?;
        if let Some(entry) = sampled.and_then(|session| self.find(uid, &session).ok())
            && let Some(waker) = &*lock(&entry.waker)
        {
            waker.tell();
        }
        Ok(added)
    }

    /// Removes a trigger of a user, unless the configuration says it; gives what it was.
    pub(super) fn remove_trigger(&self, uid: u32, name: &str) -> Answer<Trigger> {
        self.triggers.check_own(uid, name)?;
        self.triggers.remove(uid, name)
    }

    /// Goes on with a trigger that another daemon has handed over, with what the kernel counts for it.
    pub(super) fn take_trigger_over(&self, handed: HandedTrigger, maps: Vec<HandOver>) -> Answer {
        let descriptors = self.descriptors.of(handed.uid());
        self.triggers.take_over(handed, maps, (&self.shares, &descriptors))
    }

    /// Watches for the events of triggers that another daemon has handed over: each of them takes its time.
    ///
    /// # Errors
    /// There is no thread.
    pub(super) fn watch_triggers_again(self: &Arc<Self>) -> io::Result<()> {
        if !self.triggers.waits_for_watch() {
            return Ok(());
        }
        let registry = Arc::clone(self);
        let watch = move || {
            let waits = registry.triggers.waits_for_programs();
            let world = registry.world_of_programs(waits, &Arc::default());
            registry.triggers.watch_again(&world);
        };
        std::thread::Builder::new().name("watch-again".into()).spawn(watch).map(drop)
    }

    /// The sessions of a user; of all users where none is named.
    pub(super) fn list(&self, of: Option<u32>) -> Vec<Summary> {
        self.entries(of).iter().map(|entry| lock(&entry.model).session().summary.clone()).collect()
    }

    /// The sessions of a user, or of all, for something that takes its time.
    fn entries(&self, of: Option<u32>) -> Vec<Arc<Entry>> {
        let sessions = lock(&self.sessions);
        let own = sessions.iter().filter(|((uid, _), _)| of.is_none_or(|of| of == *uid));
        own.map(|(_, entry)| Arc::clone(entry)).collect()
    }

    /// Creates a session of who asks.
    pub(super) fn create(&self, peer: Peer, new: NewSession) -> Answer<Created> {
        let model = Model::create(new, peer.uid, utc::seconds_now())?;
        let name = model.name().to_owned();
        let output = match &model.session().summary.mode {
            SessionMode::Local { output } => output.clone(),
            SessionMode::Served { output, .. } => Some(output.clone()),
            _ => model.session().snapshot_outputs.first().map(|output| output.path.clone()),
        };
        let viewers = self.insert(Owner::new(peer.uid, peer.gid), model)?;
        Ok(Created { name, output, viewers })
    }

    /// Adds a session of a user. Gives where viewers read it, if they can.
    fn insert(&self, owner: Owner, model: Model) -> Answer<Option<String>> {
        let (uid, name) = (owner.uid, model.name().to_owned());
        let taken = self.shares.take(uid, Share::default(), &model)?;
        let offer = self.offer(&owner, &model)?;
        let viewers = offer.as_ref().map(|offer| self.live.address_of(offer));
        let entry = Entry::new(owner, model, offer);
        let mut sessions = lock(&self.sessions);
        if self.is_over.load(Ordering::Relaxed) {
            return Err(ControlError::new(Code::Daemon, "the daemon ends"));
        }
        if sessions.len() >= SESSIONS_MAX {
            return Err(ControlError::new(
                Code::NoMemory,
                format!("there are {SESSIONS_MAX} sessions already"),
            ));
        }
        if sessions.keys().filter(|(of, _)| *of == uid).count() >= SESSIONS_OF_USER_MAX {
            return Err(ControlError::new(
                Code::NoMemory,
                format!("user {uid} has {SESSIONS_OF_USER_MAX} sessions already"),
            ));
        }
        let key = (uid, name);
        if sessions.contains_key(&key) {
            return Err(Code::SessionExists.into());
        }
        *lock(&entry.share) = taken.keep();
        sessions.insert(key, Arc::new(entry));
        Ok(viewers)
    }

    /// Lets viewers read a session, if they are to.
    fn offer(&self, owner: &Owner, model: &Model) -> Answer<Option<Offer>> {
        match model.session().summary.mode {
            SessionMode::Served { timer_us, .. } => self.live.offer(owner, model.name(), timer_us).map(Some),
            _ => Ok(None),
        }
    }

    /// A session of a user, with counts that are of now.
    pub(super) fn get(&self, uid: u32, name: &str) -> Answer<Session> {
        let entry = self.find(uid, name)?;
        // If something is done with it, the counts are those that were known before.
        if let Ok(recording) = entry.recording.try_lock() {
            entry.count(recording.as_ref());
        }
        let last_rotation = lock(&entry.chunks).last.clone();
        let notes = lock(&entry.notes).all();
        Ok(Session { last_rotation, notes, ..lock(&entry.model).session().clone() })
    }

    /// Adds a channel to a session, with its first rules.
    pub(super) fn add_channel(&self, who: (u32, &str), domain: Domain, new: &NewChannel) -> Answer<Channel> {
        self.change_rules(who, (domain, &new.rules), |model| model.add_channel(domain, new))
    }

    /// Adds rules to a channel of a session: all, or none.
    pub(super) fn add_rules(
        &self,
        who: (u32, &str),
        (domain, channel): (Domain, &str),
        rules: &[EventRule],
    ) -> Answer {
        self.change_rules(who, (domain, rules), |model| model.add_rules(domain, channel, rules))
    }

    /// Makes a change that adds rules. Whether this machine has what they name is looked at before anything
    /// is locked, as that takes its time.
    fn change_rules<T>(
        &self,
        (uid, name): (u32, &str),
        (domain, rules): (Domain, &[EventRule]),
        change: impl Fn(&mut Model) -> Answer<T>,
    ) -> Answer<T> {
        let entry = self.find(uid, name)?;
        let mut model = lock(&entry.model).clone();
        change(&mut model)?;
        if !rules.is_empty() {
            let world = self.world_with(self.finder.known(), &entry.selections)?;
            let format = model.session().summary.format;
            if let Err(error) = self.admission.check(&world, (domain, rules), format) {
                entry.selections.retain(&lock(&entry.model).clone());
                return Err(error);
            }
        }
        self.change((uid, name), change)
    }

    /// Changes the description of a session, and its recording. Rules are expanded before the session is
    /// locked: `change` may be called several times.
    pub(super) fn change<T>(
        &self,
        (uid, name): (u32, &str),
        change: impl Fn(&mut Model) -> Answer<T>,
    ) -> Answer<T> {
        let entry = self.find(uid, name)?;
        let mut expected = lock(&entry.model).clone();
        change(&mut expected)?;
        loop {
            let world = self.expanded(&entry, &expected)?;
            let mut recording = self.lock(&entry, name)?;
            let before = lock(&entry.model).clone();
            let mut after = before.clone();
            let value = change(&mut after)?;
            if before == after {
                return Ok(value);
            }
            if !spec::has_same_rules(&after, &expected) {
                // Somebody else has changed it meanwhile.
                expected = after;
                continue;
            }
            let share = *lock(&entry.share);
            let taken = self.shares.take(uid, share, &after)?;
            entry.check_tracks_of_maps(&after)?;
            match recording.as_mut() {
                Some(recording) => recording.follow((&before, &after), &world)?,
                // Until now it had maps only.
                None if after.is_active() && after.channels().next().is_some() => {
                    *recording = Some(self.begin(&entry, &after, (&world, before.was_started()))?);
                }
                None => spec::check_rules(Some(&before), &after, &world)?,
            }
            entry.let_maps_track(&after)?;
            *lock(&entry.share) = taken.keep();
            *lock(&entry.model) = after;
            return Ok(value);
        }
    }

    /// The world of a session that is about to be described so, with its rules expanded. This takes its time,
    /// and locks nothing.
    fn expanded(&self, entry: &Entry, expected: &Model) -> Answer<World> {
        let before = lock(&entry.model).clone();
        entry.selections.retain(&before);
        let world = self.world(entry, expected)?;
        spec::expand(&before, expected, &world);
        Ok(world)
    }

    /// Starts a session.
    pub(super) fn start(&self, uid: u32, name: &str) -> Answer {
        let entry = self.find(uid, name)?;
        let mut expected = lock(&entry.model).clone();
        expected.start()?;
        loop {
            let world = self.expanded(&entry, &expected)?;
            let mut recording = self.lock(&entry, name)?;
            let mut model = lock(&entry.model).clone();
            let was_started = model.was_started();
            model.start()?;
            if !spec::has_same_rules(&model, &expected) {
                expected = model;
                continue;
            }
            if let Some(recording) = recording.as_mut() {
                recording.start(&model, &world)?;
            } else if model.channels().next().is_some() {
                *recording = Some(self.begin(&entry, &model, (&world, was_started))?);
            }
            entry.let_maps_count(true);
            let mut chunks = lock(&entry.chunks);
            chunks.is_done_since_stop = false;
            chunks.is_cleared_since_stop = false;
            drop(chunks);
            *lock(&entry.model) = model;
            self.tell(uid, &Notification::Activity { session: name.to_owned(), active: true, reason: None });
            return Ok(());
        }
    }

    /// Stops a session: everything that was recorded is in its files then, or, of a session that keeps its
    /// newest events, can be had by a snapshot.
    pub(super) fn stop(&self, uid: u32, name: &str) -> Answer<Stopped> {
        let entry = self.find(uid, name)?;
        let mut recording = self.lock(&entry, name)?;
        let mut model = lock(&entry.model).clone();
        model.stop()?;
        entry.let_maps_count(false);
        let stopped = recording.as_mut().map_or(Ok(()), |recording| recording.stop(&model));
        let counts = entry.count(recording.as_ref());
        entry.end_activity()?;
        self.tell(uid, &Notification::Activity { session: name.to_owned(), active: false, reason: None });
        stopped.map(|()| counts)
    }

    /// Ends a session, which is stopped first.
    pub(super) fn destroy(&self, uid: u32, name: &str) -> Answer<Destroyed> {
        let entry = self.find(uid, name)?;
        lock(&entry.model).check_own()?;
        self.end_session((uid, name), &entry)
    }

    fn end_session(&self, (uid, name): (u32, &str), entry: &Arc<Entry>) -> Answer<Destroyed> {
        let mut recording = self.lock(entry, name)?;
        let counts = entry.count(recording.as_ref());
        let is_archived = lock(&entry.chunks).is_done_since_stop;
        let ended = recording.take().map_or(Ok(()), |mut recording| {
            if is_archived {
                recording.leave_out_last();
            }
            recording.end(None)
        });
        lock(&self.sessions).remove(&(uid, name.to_owned()));
        lock(&entry.maps).clear();
        self.shares.give_back(uid, std::mem::take(&mut *lock(&entry.share)));
        ended?;
        let (files, earlier_files) = std::mem::take(&mut *lock(&entry.files)).into_parts();
        // One that is stopped and rotated has nothing more to archive.
        let last = lock(&entry.chunks).last.take().filter(|_| !is_archived);
        let archive = last.and_then(|_| files.last().cloned());
        Ok(Destroyed { counts, files, earlier_files, archive })
    }

    /// Archives what was recorded until now.
    pub(super) fn rotate(&self, uid: u32, name: &str) -> Answer<Rotation> {
        let entry = self.find(uid, name)?;
        let recording = self.lock(&entry, name)?;
        let is_active = entry.check_rotation()?;
        match &*recording {
            Some(recording) if recording.is_open() => recording.recorder.rotate()?,
            // What was recorded is a file since the stop.
            of => {
                let mut chunks = lock(&entry.chunks);
                let closed = std::mem::take(&mut chunks.stopped).pop();
                let (id, path) = closed.ok_or_else(|| {
                    ControlError::new(
                        Code::RotatedAfterStop,
                        "nothing was recorded since the session was cleared",
                    )
                })?;
                if let Some((relay, _)) = of.as_ref().and_then(|recording| recording.relay.as_ref()) {
                    relay.archive(chunk_of(id));
                }
                let state = if path.is_some() { RotationState::Completed } else { RotationState::Failed };
                chunks.last = Some(Rotation { id, state, path });
            }
        }
        let mut chunks = lock(&entry.chunks);
        chunks.is_done_since_stop = !is_active;
        chunks.last.clone().ok_or_else(|| Code::RotationFailed.into())
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

    /// Removes what was recorded since the session was created or rotated.
    pub(super) fn clear(&self, uid: u32, name: &str) -> Answer {
        let entry = self.find(uid, name)?;
        let expected = lock(&entry.model).clone();
        let world = self.world(&entry, &expected)?;
        if expected.is_active() {
            spec::expand_all(&expected, &world);
        }
        let mut recording = self.lock(&entry, name)?;
        let model = lock(&entry.model).clone();
        let mut chunks = lock(&entry.chunks);
        if recording.is_none() {
            entry.clear_maps();
            return Ok(());
        }
        if !model.is_active() && chunks.is_cleared_since_stop && model.maps().is_empty() {
            return Err(Code::ClearedAfterStop.into());
        }
        match *lock(&entry.relay) {
            Some(Abilities { has_chunks: false, .. }) => return Err(Code::ClearUnavailableRelay.into()),
            Some(Abilities { may_clear: false, .. }) => return Err(Code::ClearDisallowedRelay.into()),
            _ => {}
        }
        chunks.is_cleared_since_stop = !model.is_active();
        let stopped = std::mem::take(&mut chunks.stopped);
        drop(chunks);
        entry.clear_maps();
        let files: Vec<PathBuf> = stopped.iter().filter_map(|(_, path)| path.clone()).collect();
        let Some(of) = recording.as_mut() else { return Ok(()) };
        let cleared = of.clear(&model, &world, files.clone());
        if let Err(error) = &cleared {
            // Some of them may be there still.
            let mut chunks = lock(&entry.chunks);
            chunks.stopped = stopped;
            chunks.is_cleared_since_stop = false;
            drop(chunks);
            if model.is_active() && !of.is_open() {
                entry.end_activity()?;
                let (session, reason) = (name.to_owned(), Some(error.to_string()));
                self.tell(uid, &Notification::Activity { session, active: false, reason });
            }
        } else {
            lock(&entry.files).forget(&files);
        }
        cleared
    }

    /// Writes a part of the trace again (`metadata` or `statedump`).
    pub(super) fn regenerate(&self, uid: u32, name: &str, what: &str) -> Answer {
        let entry = self.find(uid, name)?;
        let recording = self.lock(&entry, name)?;
        let is_active = lock(&entry.model).is_active();
        let recording = recording.as_ref().filter(|recording| is_active && recording.is_open());
        let of = recording.ok_or_else(|| ControlError::from(Code::NotStarted))?;
        // Copied: what is asked here asks for it, too.
        let abilities = *lock(&entry.relay);
        match what {
            "metadata" => match abilities {
                Some(Abilities { may_regenerate: false, .. }) => Err(ControlError::new(
                    Code::NotSupported,
                    "the relay daemon is older than LTTng 2.8, and takes metadata only once",
                )),
                _ => of.recorder.regenerate_metadata(),
            },
            "statedump" => of.recorder.regenerate_state(),
            _ => Err(Code::Invalid.into()),
        }
    }

    /// What the rules of a session are about, now.
    fn world(&self, entry: &Entry, model: &Model) -> Answer<World> {
        self.world_of_programs(model.waits_for_programs(), &entry.selections)
    }

    /// What rules are about, after another look at programs if they wait for some.
    fn world_of_programs(&self, waits: bool, selections: &Arc<Selections>) -> Answer<World> {
        if !waits {
            return self.world_with(self.finder.known(), selections);
        }
        let unknown = || {
            ControlError::new(
                Code::Daemon,
                "the programs of this machine are not known yet: the daemon has not been there for long, or \
                 the file system of one of them does not answer",
            )
        };
        self.world_with(self.finder.after_look().ok_or_else(unknown)?, selections)
    }

    /// What rules are about, with what is known of programs.
    fn world_with(&self, known: KnownPrograms, selections: &Arc<Selections>) -> Answer<World> {
        Ok(World::new(self.catalogue()?, known, Arc::clone(selections)))
    }

    /// The events of this kernel: the same catalogue as before as long as these are the same.
    fn catalogue(&self) -> Answer<Arc<Catalogue>> {
        let unreadable = |error: String| ControlError::new(Code::StartKernel, error);
        let tracefs = Tracefs::open().map_err(|error| unreadable(error.to_string()))?;
        let now = Catalogue::read(&tracefs).map_err(|error| unreadable(error.to_string()))?;
        let mut known = lock(&self.catalogue);
        if **known != now {
            *known = Arc::new(now);
        }
        Ok(Arc::clone(&known))
    }

    /// Where programs are published that are found.
    pub(super) fn finder(&self) -> &Arc<Finder> {
        &self.finder
    }

    /// Looks for programs that have come, if somebody asked for that or a session that records waits for
    /// some, and lets it record them. A file may keep this from ending, and no lock is held meanwhile.
    pub(super) fn look_for_programs(&self, programs: &mut Programs, wanted: &Wanted, everywhere: bool) {
        let waits = |entry: &Arc<Entry>| {
            let model = lock(&entry.model);
            model.is_active() && model.waits_for_programs()
        };
        let waiting: Vec<Arc<Entry>> = self.entries(None).into_iter().filter(waits).collect();
        let triggers_wait = self.triggers.waits_for_programs();
        if waiting.is_empty() && !triggers_wait && !wanted.is_asked && wanted.handed.is_empty() {
            if programs.close() {
                self.finder.publish(programs, wanted);
            }
            return;
        }
        let progress = |programs: &Programs| self.finder.come_on(programs);
        programs.look_at(&wanted.handed, &progress);
        if everywhere {
            programs.look(&progress);
        } else {
            programs.look_at_new(&progress);
        }
        self.finder.publish(programs, wanted);
        let generation = programs.generation();
        if triggers_wait {
            self.let_triggers_follow(generation);
        }
        for entry in waiting {
            if let Err(error) = self.let_session_follow(&entry, generation) {
                let name = lock(&entry.model).name().to_owned();
                log(&format!(
                    "session {name} of user {}: new programs are not recorded: {error}",
                    entry.owner.uid
                ));
            }
        }
    }

    /// Lets a session record programs that have come, if it does not know them.
    fn let_session_follow(&self, entry: &Entry, generation: u64) -> Answer {
        // Who does something with it at this moment does it with the programs that there are.
        let is_behind = entry.recording.try_lock().is_ok_and(|recording| {
            recording.as_ref().is_some_and(|recording| recording.generation != generation)
        });
        if !is_behind {
            return Ok(());
        }
        let model = lock(&entry.model).clone();
        let world = self.world_with(self.finder.known(), &entry.selections)?;
        spec::expand_all(&model, &world);
        let Ok(mut recording) = entry.recording.try_lock() else { return Ok(()) };
        let model = lock(&entry.model).clone();
        // It may have been stopped meanwhile.
        match recording.as_mut().filter(|_| model.is_active()) {
            Some(recording) => recording.follow((&model, &model), &world),
            None => Ok(()),
        }
    }

    /// Lets triggers know of programs that have come.
    fn let_triggers_follow(&self, generation: u64) {
        if self.followed.swap(generation, Ordering::Relaxed) == generation {
            return;
        }
        match self.world_with(self.finder.known(), &Arc::default()) {
            Ok(world) => self.triggers.follow(&world),
            Err(error) => log(&format!("triggers do not know of new programs: {error}")),
        }
    }

    fn tell(&self, uid: u32, notification: &Notification) {
        self.notifications.tell(uid, notification);
    }

    /// Takes the right to change a session.
    ///
    /// # Errors
    /// It was destroyed by somebody who had the right before.
    fn lock<'a>(&self, entry: &'a Arc<Entry>, name: &str) -> Answer<MutexGuard<'a, Option<Recording>>> {
        let recording = lock(&entry.recording);
        let there = lock(&self.sessions).get(&(entry.owner.uid, name.to_owned())).map(Arc::clone);
        match there {
            Some(there) if Arc::ptr_eq(&there, entry) => Ok(recording),
            _ => Err(Code::NoSession.into()),
        }
    }

    fn find(&self, uid: u32, name: &str) -> Answer<Arc<Entry>> {
        let found = lock(&self.sessions).get(&(uid, name.to_owned())).map(Arc::clone);
        found.ok_or_else(|| Code::NoSession.into())
    }
}

impl Entry {
    /// A session that was not started.
    fn new(owner: Owner, model: Model, offer: Option<Offer>) -> Self {
        Self {
            owner,
            model: Mutex::new(model),
            recording: Mutex::default(),
            chunks: Mutex::default(),
            files: Mutex::default(),
            notes: Mutex::default(),
            maps: Mutex::default(),
            waker: Mutex::default(),
            offer,
            relay: Mutex::default(),
            hangup: Mutex::default(),
            selections: Arc::default(),
            usage: Mutex::default(),
            asked: Mutex::default(),
            share: Mutex::default(),
        }
    }

    /// A handle that ends the next connections to a relay daemon.
    fn next_hangup(&self) -> Hangup {
        let hangup = Hangup::default();
        *lock(&self.hangup) = hangup.clone();
        hangup
    }

    /// An archive of it is closed: it is sent, if the configuration says so.
    fn has_closed(&self, archives: &Archives, path: &Path) {
        let model = lock(&self.model);
        let of_config = model.configured().filter(|configured| configured.config.upload);
        if of_config.is_some() {
            archives.has_closed(model.name(), path);
        }
    }

    /// Brings the counts of the model up to date; gives their sums.
    fn count(&self, recording: Option<&Recording>) -> Stopped {
        let tallies = recording.and_then(|recording| recording.recorder.tallies().ok());
        let mut model = lock(&self.model);
        let mut sums = Stopped::default();
        for (domain, channel) in model.channels_mut() {
            let buffer = spec::buffer_name(domain, &channel.name);
            if let Some(tally) = tallies.as_ref().and_then(|tallies| tallies.get(&buffer)) {
                let (discarded, overwritten) = tally.losses();
                channel.discarded = discarded;
                // As LTTng counts them: sub-buffers.
                let packet = channel.attributes.subbuf_size.unwrap_or(1).max(1);
                channel.lost_packets = overwritten.div_ceil(packet);
            }
            sums.discarded += channel.discarded;
            sums.lost_packets += channel.lost_packets;
        }
        sums
    }

    /// Whether it can be rotated now. Gives whether it is active.
    fn check_rotation(&self) -> Answer<bool> {
        let is_active = {
            let model = lock(&self.model);
            model.check_rotation()?;
            model.is_active()
        };
        if matches!(*lock(&self.relay), Some(Abilities { has_chunks: false, .. })) {
            return Err(Code::RotationUnavailableRelay.into());
        }
        if !is_active && lock(&self.chunks).is_done_since_stop {
            return Err(Code::RotatedAfterStop.into());
        }
        Ok(is_active)
    }
}

/// The number of the rotation that archives a chunk: chunks are counted from 1 on, rotations from 0.
fn rotation_id(chunk: u64) -> u64 {
    chunk.saturating_sub(1)
}

/// The chunk that a rotation archives.
fn chunk_of(rotation: u64) -> u64 {
    rotation.saturating_add(1)
}

/// Writes a line to the log, wherever stderr goes. Names are those of users: a line feed in one would begin a
/// line of its own, which could pass for the daemon's, and readers of logs have terminals.
pub(super) fn log(text: &str) {
    // Where stderr is closed nobody can be told, and nothing else fails for it.
    let _ = io::stderr().lock().write_all(line(text).as_bytes());
}

fn line(text: &str) -> String {
    format!("tracer-agent daemon: {}\n", terminal::name(text))
}

fn no_map() -> ControlError {
    Code::NoMap.into()
}

/// Whether something of events is told.
fn captures(condition: &Condition) -> bool {
    matches!(condition, Condition::EventRuleMatches { captures, .. } if !captures.is_empty())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_line_of_the_log_is_one_line() {
        let line = super::line("session a\nforged\t\u{1b}[31m of user 1000");
        assert_eq!(line, "tracer-agent daemon: session a\\x0aforged\\x09\\x1b[31m of user 1000\n");
    }
}
