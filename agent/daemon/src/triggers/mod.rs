//! Triggers of users: conditions, and what is done when they are satisfied.
//!
//! Whoever sees something that a condition may be about says so here and goes on: counting, choosing what is
//! due and telling clients takes microseconds. What takes longer (sessions, other services) waits in a queue
//! of the trigger's user ([`executor`]).
//!
//! | file | subject |
//! |---|---|
//! | `mod` | the triggers there are, and who tells them what |
//! | `trigger` | one of them: its counts and its level |
//! | `check` | what is accepted |
//! | `counts` | what they count |
//! | `events` | events that match rules, a watch for each user |
//! | `executor` | actions that take their time, a queue for each user |
//! | `actions` | what they do |
//! | `post` | HTTP to a service of the user |
//! | `handover` | triggers that another daemon goes on with |
//! | `pressure` | how long tasks wait, as the kernel says it |
//! | `units` | units of systemd that fail |

mod actions;
mod check;
mod counts;
mod events;
mod executor;
mod handover;
mod post;
mod pressure;
mod trigger;
mod units;

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

pub(super) use actions::OnSessions;
pub(super) use check::check;
pub(super) use counts::Counted;
pub(super) use executor::Act;
pub(super) use handover::HandedTrigger;

pub(super) use events::rule_of;
use events::{Events, Look};
use executor::Executor;
use pressure::Pressures;
use trigger::Entry;
pub(super) use trigger::{sampled_session, waits_for_programs};
use units::Units;

use super::{
    descriptors::Descriptors,
    notifications::Notifications,
    registry::Budget,
    sessions::{Sample, World},
    shares::Shares,
    side_by_side::Work,
    user::Owner,
};
use crate::lock;
use api::requests::Notification;
use api::trigger::{Condition, Finding, Resource};
use api::{Code, ControlError, CountedMap, NewTrigger, RotationState, Trigger};

/// The most triggers of all users but root, which has its own beside them.
const TRIGGERS_MAX: usize = 8192;
/// The most triggers of one user.
const TRIGGERS_OF_USER_MAX: usize = 1024;
/// The most text of a user's triggers, as JSON.
const TEXT_MAX: usize = 16 << 20;

type Key = (u32, String);

/// All triggers of the daemon.
#[derive(Debug)]
pub(super) struct Triggers {
    all: Mutex<BTreeMap<Key, Arc<Entry>>>,
    executor: Arc<Executor>,
    events: Events,
    units: Units,
    notifications: Arc<Notifications>,
    /// Whether another daemon goes on.
    is_finished: AtomicBool,
}

impl Triggers {
    /// None yet. Clients are told through `notifications`; what watches take is of their users' `shares`.
    pub(super) fn new(notifications: Arc<Notifications>, shares: (Arc<Shares>, Descriptors)) -> Self {
        let executor = Arc::new(Executor::new(Arc::clone(&notifications)));
        Self {
            all: Mutex::default(),
            executor,
            events: Events::new(shares),
            units: Units::default(),
            notifications,
            is_finished: AtomicBool::new(false),
        }
    }

    /// Begins to do what takes its time, with the rights of the calling thread.
    ///
    /// # Errors
    /// There is no thread.
    pub(super) fn start(&self, act: Box<dyn Act>) -> io::Result<()> {
        self.executor.start(act)
    }

    /// Whether a user may have one more, as it is now.
    ///
    /// # Errors
    /// The user has one of this name, or there are too many.
    pub(super) fn check_room(&self, uid: u32, new: &NewTrigger) -> Result<(), ControlError> {
        let all = lock(&self.all);
        if new.name.as_ref().is_some_and(|name| all.contains_key(&(uid, name.clone()))) {
            return Err(Code::TriggerExists.into());
        }
        check_number(&all, uid)
    }

    /// Adds a trigger of a user that was [checked](check()), with what the kernel counts for it. What its
    /// rule is about is in the `world`; without one it is not watched for.
    ///
    /// # Errors
    /// The user has one of this name, there are too many, or its events cannot be watched.
    pub(super) fn add(
        self: &Arc<Self>,
        owner: Owner,
        (new, counted): (NewTrigger, Counted),
        world: Option<&World>,
    ) -> Result<Trigger, ControlError> {
        let entry = self.put(owner, new, counted)?;
        if let Err(error) = self.watch(&entry, world) {
            lock(&self.all).remove(&(entry.owner.uid, entry.name.clone()));
            return Err(error);
        }
        Ok(entry.told())
    }

    /// Watches for the events or units of a trigger, as long as it is there.
    fn watch(self: &Arc<Self>, entry: &Arc<Entry>, world: Option<&World>) -> Result<(), ControlError> {
        match (&entry.condition, world) {
            (Condition::UnitFailed { .. }, _) => self.units.add(self, entry)?,
            (_, Some(world)) => self.events.add(self, entry, world)?,
            _ => return Ok(()),
        }
        let there = lock(&self.all).get(&(entry.owner.uid, entry.name.clone())).map(Arc::clone);
        if !there.is_some_and(|there| Arc::ptr_eq(&there, entry)) {
            // It was removed meanwhile.
            self.events.remove(entry);
            self.units.remove(entry);
        }
        Ok(())
    }

    /// Whether a condition is about events.
    pub(super) fn is_about_events(condition: &Condition) -> bool {
        Events::is_about(condition)
    }

    /// Whether a rule is about programs that may come.
    pub(super) fn waits_for_programs(&self) -> bool {
        self.events.waits_for_programs()
    }

    /// There are other programs.
    pub(super) fn follow(self: &Arc<Self>, world: &World) {
        self.events.follow(self, world);
    }

    /// Watches for nothing any more, because the daemon ends. Gives what is left to do for each user:
    /// programs are taken out of the kernel, which takes its time.
    pub(super) fn end(&self) -> Vec<Work<()>> {
        let all = std::mem::take(&mut *lock(&self.all));
        self.units.end();
        let mut users = BTreeMap::<u32, Vec<Arc<Entry>>>::new();
        for ((uid, _), entry) in all {
            users.entry(uid).or_default().push(entry);
        }
        let of_users = users.into_values().map(|of_user| -> Work<()> {
            Box::new(move || of_user.iter().for_each(|entry| entry.counted.end()))
        });
        self.events.end().into_iter().chain(of_users).collect()
    }

    fn put(&self, owner: Owner, new: NewTrigger, counted: Counted) -> Result<Arc<Entry>, ControlError> {
        let mut all = lock(&self.all);
        if self.is_finished.load(Ordering::SeqCst) {
            return Err(ControlError::new(Code::Daemon, "the daemon is being replaced"));
        }
        let name = new.name.clone().unwrap_or_else(|| free_name(&all, owner.uid));
        Self::insert(&mut all, Entry::new(name, owner, (new, counted)))
    }

    fn insert(all: &mut BTreeMap<Key, Arc<Entry>>, entry: Entry) -> Result<Arc<Entry>, ControlError> {
        let (uid, name) = (entry.owner.uid, entry.name.clone());
        let full = |why: String| Err(ControlError::new(Code::NoMemory, why));
        check_number(all, uid)?;
        let text = of(all, uid).map(|of| of.text).sum::<usize>();
        if all.contains_key(&(uid, name.clone())) {
            return Err(Code::TriggerExists.into());
        }
        if text + entry.text > TEXT_MAX {
            return full(format!(
                "the descriptions of user {uid}'s triggers take more than {} MB",
                TEXT_MAX >> 20
            ));
        }
        let entry = Arc::new(entry);
        all.insert((uid, name), Arc::clone(&entry));
        Ok(entry)
    }

    /// Refuses to change what only the configuration may.
    pub(super) fn check_own(&self, uid: u32, name: &str) -> Result<(), ControlError> {
        let all = lock(&self.all);
        match all.get(&(uid, name.to_owned())) {
            Some(entry) if entry.configured => Err(ControlError::new(
                Code::NotSupported,
                format!("the daemon's configuration says the trigger {name}: remove it there, and reload it"),
            )),
            _ => Ok(()),
        }
    }

    /// Removes a trigger; gives what it was.
    pub(super) fn remove(&self, uid: u32, name: &str) -> Result<Trigger, ControlError> {
        let removed = lock(&self.all).remove(&(uid, name.to_owned()));
        let entry = removed.ok_or_else(|| ControlError::from(Code::NoTrigger))?;
        self.events.remove(&entry);
        self.units.remove(&entry);
        let told = entry.told();
        entry.counted.end();
        Ok(told)
    }

    /// The triggers of a user, or of all, by user and name.
    pub(super) fn list(&self, uid: Option<u32>) -> Vec<Trigger> {
        // What a user's have missed is known as of now. Of all users', it is known as of the last look where
        // that would have to wait.
        self.events.note(uid);
        self.of_user(uid).iter().map(|entry| entry.told()).collect()
    }

    /// What the triggers of a user have counted, or those of all, in the maps that are meant.
    pub(super) fn counted(
        &self,
        uid: Option<u32>,
        is_meant: &dyn Fn(&str) -> bool,
        budget: &mut Budget,
    ) -> Vec<CountedMap> {
        self.of_user(uid).iter().flat_map(|entry| entry.counts(is_meant, budget)).collect()
    }

    /// The triggers of a user, or those of all.
    fn of_user(&self, uid: Option<u32>) -> Vec<Arc<Entry>> {
        let all = lock(&self.all);
        all.values().filter(|entry| uid.is_none_or(|uid| entry.owner.uid == uid)).map(Arc::clone).collect()
    }

    /// The triggers of a user whose condition is of some kind.
    fn meant(&self, uid: u32, is_meant: impl Fn(&Condition) -> bool) -> Vec<Arc<Entry>> {
        of(&lock(&self.all), uid).filter(|entry| is_meant(&entry.condition)).map(Arc::clone).collect()
    }

    /// Whether a condition is about how much a session has stored, and its rings hold.
    pub(super) fn wants_samples(&self, uid: u32, session: &str) -> bool {
        of(&lock(&self.all), uid).any(|entry| sampled_session(&entry.condition) == Some(session))
    }

    /// A session has been looked at.
    pub(super) fn has_sample(&self, uid: u32, session: &str, sample: &Sample) {
        if self.is_finished.load(Ordering::SeqCst) {
            // The next daemon looks at it.
            return;
        }
        for entry in self.meant(uid, |condition| sampled_session(condition) == Some(session)) {
            let reached = match &entry.condition {
                Condition::ConsumedSize { bytes, .. } => {
                    sample.stored.map(|stored| (stored >= *bytes, Finding::ConsumedSize { bytes: stored }))
                }
                Condition::BufferUsageHigh(usage) => sample.held(usage).map(|(held, capacity)| {
                    (held >= threshold(usage.threshold, capacity), used(held, capacity))
                }),
                Condition::BufferUsageLow(usage) => sample.held(usage).map(|(held, capacity)| {
                    (held <= threshold(usage.threshold, capacity), used(held, capacity))
                }),
                _ => None,
            };
            if let Some((reached, found)) = reached {
                self.has_level(&entry, reached, found);
            }
        }
    }

    /// A trace chunk of a session begins to be archived, or is.
    pub(super) fn has_rotation(
        &self,
        (uid, session): (u32, &str),
        state: RotationState,
        (id, path): (u64, Option<PathBuf>),
    ) {
        let is_meant = |condition: &Condition| match (condition, state) {
            (Condition::RotationOngoing { session: of }, RotationState::Ongoing)
            | (Condition::RotationCompleted { session: of }, RotationState::Completed) => of == session,
            _ => false,
        };
        for entry in self.meant(uid, is_meant) {
            self.fire(&entry, Finding::Rotation { id, path: path.clone() });
        }
    }

    /// The daemon was sent the signal that triggers of any user may be about.
    pub(super) fn has_signal(&self) {
        if self.is_finished.load(Ordering::SeqCst) {
            return;
        }
        let all: Vec<Arc<Entry>> = lock(&self.all).values().map(Arc::clone).collect();
        for entry in all.iter().filter(|entry| entry.condition == Condition::Signal) {
            self.fire(entry, Finding::Signal);
        }
    }

    /// Looks at what nobody tells: once a second.
    pub(super) fn look(&self) {
        if self.is_finished.load(Ordering::SeqCst) {
            return;
        }
        // First: what is found of events, and how soon, is up to users.
        self.look_at_pressure();
        self.look_at_events();
    }

    fn look_at_pressure(&self) {
        let waiting: Vec<Arc<Entry>> = {
            let all = lock(&self.all);
            let about = |entry: &&Arc<Entry>| matches!(entry.condition, Condition::Pressure { .. });
            all.values().filter(about).map(Arc::clone).collect()
        };
        if waiting.is_empty() {
            return;
        }
        let known: BTreeMap<Resource, Pressures> =
            Resource::ALL.into_iter().filter_map(|of| Some((of, Pressures::read(of).ok()?))).collect();
        for entry in waiting {
            let Condition::Pressure { resource, share, above } = entry.condition else { continue };
            match known.get(&resource).and_then(|pressures| pressures.of(share)) {
                Some(hundredths) => {
                    entry.has_problem(None);
                    self.has_level(&entry, hundredths > above, Finding::Pressure { hundredths });
                }
                None => entry.has_problem(Some(format!(
                    "the kernel does not say how long tasks wait for {} (/proc/pressure)",
                    resource.name()
                ))),
            }
        }
    }

    /// Compares the rates of events with what conditions say, and tells what was missed.
    fn look_at_events(&self) {
        self.events.look(&mut |Look { entry, events, elapsed, has_missed }| {
            if let Condition::EventRate { above, .. } = entry.condition {
                let rate = u128::from(events) * 1_000_000_000 / elapsed.as_nanos().max(1);
                let events = u64::try_from(rate).unwrap_or(u64::MAX);
                self.has_level(&entry, events > above, Finding::EventRate { events });
            } else if has_missed && entry.notifies() {
                let trigger = entry.name.clone();
                let missed = entry.told().missed;
                self.notifications.tell(entry.owner.uid, &Notification::TriggerMissed { trigger, missed });
            }
        });
    }

    /// What a condition is about has reached the level that satisfies it, or has not: it fires when it comes
    /// to be so.
    fn has_level(&self, entry: &Arc<Entry>, is_reached: bool, found: Finding) {
        if entry.rises(is_reached) {
            self.fire(entry, found);
        }
    }

    /// A condition is satisfied.
    fn fire(&self, entry: &Arc<Entry>, found: Finding) {
        let (firing, due) = entry.fire(found);
        if !due.is_empty() {
            self.executor.execute(entry, firing, &due);
        }
    }
}

/// Looks each second at what nobody tells, as long as there is a daemon.
///
/// # Errors
/// There is no thread.
pub(super) fn look_each_second(triggers: &Arc<Triggers>) -> io::Result<()> {
    let triggers = Arc::downgrade(triggers);
    let look = move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let Some(triggers) = triggers.upgrade() else { return };
            triggers.look();
        }
    };
    std::thread::Builder::new().name("triggers".into()).spawn(look).map(drop)
}

/// Whether there can be one more.
fn check_number(all: &BTreeMap<Key, Arc<Entry>>, uid: u32) -> Result<(), ControlError> {
    let full = |why: String| Err(ControlError::new(Code::NoMemory, why));
    if uid != 0 && all.len() - of(all, 0).count() >= TRIGGERS_MAX {
        return full(format!("users other than root have {TRIGGERS_MAX} triggers already"));
    }
    if of(all, uid).count() >= TRIGGERS_OF_USER_MAX {
        return full(format!("user {uid} has {TRIGGERS_OF_USER_MAX} triggers already; remove some"));
    }
    Ok(())
}

fn of(all: &BTreeMap<Key, Arc<Entry>>, uid: u32) -> impl Iterator<Item = &Arc<Entry>> {
    let from = all.range((uid, String::new())..);
    from.take_while(move |((of, _), _)| *of == uid).map(|(_, entry)| entry)
}

/// `triggerN` with the lowest number that no trigger of the user has.
fn free_name(all: &BTreeMap<Key, Arc<Entry>>, uid: u32) -> String {
    let names = (0..=TRIGGERS_OF_USER_MAX).map(|number| format!("trigger{number}"));
    let mut free = names.filter(|name| !all.contains_key(&(uid, name.clone())));
    // One of so many names is not taken.
    free.next().unwrap_or_default()
}

fn threshold(of: api::trigger::Threshold, capacity: u64) -> u64 {
    match of {
        api::trigger::Threshold::Bytes(bytes) => bytes,
        api::trigger::Threshold::Percent(percent) => {
            (u128::from(capacity) * u128::from(percent)).div_ceil(100) as u64
        }
    }
}

fn used(bytes: u64, capacity: u64) -> Finding {
    Finding::BufferUsage { bytes, capacity }
}
