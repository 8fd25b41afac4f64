//! Actions of triggers that have fired.
//!
//! Clients are told at once. What takes its time waits in a queue of the trigger's user, which a thread works
//! off as long as there is something in it: what one user's sessions wait for holds up nobody else. What
//! comes after an action that waits waits too, as the order of actions matters. But each trigger has places:
//! its first firings that wait come before every firing beyond another trigger's places, and take its room
//! where there is no other.

use std::{
    collections::{BTreeMap, VecDeque, btree_map},
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        mpsc::{self, Sender},
    },
    time::{Duration, Instant},
};

use super::trigger::Entry;
use crate::notifications::Notifications;
use crate::user::Owner;
use api::requests::Notification;
use api::trigger::{ActionKind, Firing};

/// How many firings of a user's triggers wait. Where so many do, the newest one beyond the places of its
/// trigger is counted as failed for one that comes within its own; else, what comes is.
const WAITING_MAX: usize = 1024;
/// How many firings of each trigger wait before others.
const PLACES_OF_TRIGGER: usize = 16;

/// What takes its time.
pub(crate) trait Act: Send + Sync {
    /// Does it for a user.
    ///
    /// # Errors
    /// Why it could not be done.
    fn act(&self, owner: &Owner, action: &ActionKind, firing: &Firing) -> Result<(), String>;
}

/// Why what waits is not done, when another daemon goes on.
const REPLACED: &str = "it was not done when the daemon was replaced";

/// Who does what triggers say.
pub(super) struct Executor {
    notifications: Arc<Notifications>,
    act: OnceLock<Box<dyn Act>>,
    /// Starts a thread for a user. Who fires a trigger may have the rights of its user only, which a thread
    /// would have from it.
    starter: OnceLock<Sender<u32>>,
    queues: Mutex<Queues>,
    /// Nothing of a user waits any more.
    is_idle: Condvar,
    /// Something was delayed.
    is_delayed: Condvar,
}

/// What waits.
#[derive(Default)]
struct Queues {
    /// For each user for whom a thread works.
    waiting: BTreeMap<u32, Queue>,
    /// What goes on at a time, of each user.
    delayed: BTreeMap<u32, Delayed>,
    /// How much was delayed so far.
    delays: u64,
    /// Whether nothing is done any more.
    is_closed: bool,
}

/// A user's firings that wait.
#[derive(Default)]
struct Queue {
    doing: Option<Arc<Work>>,
    /// Firings in the places of their triggers.
    first: VecDeque<Arc<Work>>,
    /// Those beyond. Of a trigger that has some, what comes is among them, too.
    then: VecDeque<Arc<Work>>,
    /// How many firings of each trigger the two have, by the entry's address; queued work keeps the entry
    /// alive.
    counts: BTreeMap<usize, [usize; 2]>,
}

impl Queue {
    /// Puts there what a trigger does. Gives what there is no room for: that, or what had to make room.
    fn put(&mut self, work: Arc<Work>) -> Option<Arc<Work>> {
        let [first, then] = self.counts.get(&work.trigger()).copied().unwrap_or_default();
        let has_place = then == 0 && first < PLACES_OF_TRIGGER;
        let mut without_room = None;
        if self.waiting() + usize::from(self.doing.is_some()) > WAITING_MAX {
            let newest = if has_place { self.then.pop_back() } else { None };
            let Some(newest) = newest else { return Some(work) };
            self.uncount(&newest, 1);
            without_room = Some(newest);
        }
        let counts = self.counts.entry(work.trigger()).or_default();
        if has_place {
            counts[0] += 1;
            self.first.push_back(work);
        } else {
            counts[1] += 1;
            self.then.push_back(work);
        }
        without_room
    }

    /// Counts one less in one of the two.
    fn uncount(&mut self, work: &Work, queue: usize) {
        if let Some(counts) = self.counts.get_mut(&work.trigger()) {
            counts[queue] = counts[queue].saturating_sub(1);
            if *counts == [0, 0] {
                self.counts.remove(&work.trigger());
            }
        }
    }

    fn waiting(&self) -> usize {
        self.first.len() + self.then.len()
    }

    /// Takes what is done next.
    fn next(&mut self) -> Option<Arc<Work>> {
        let (work, queue) = match self.first.pop_front() {
            Some(work) => (work, 0),
            None => (self.then.pop_front()?, 1),
        };
        self.uncount(&work, queue);
        self.doing = Some(Arc::clone(&work));
        Some(work)
    }

    /// All that is not done.
    fn into_all(self) -> impl Iterator<Item = Arc<Work>> {
        self.doing.into_iter().chain(self.first).chain(self.then)
    }
}

/// What goes on at a time, in its order.
#[derive(Default)]
struct Delayed(BTreeMap<(Instant, u64), Arc<Work>>);

impl Delayed {
    /// Puts there what goes on at a time, whose number is above those of all before. Gives what there is no
    /// room for: that, or what had to make room.
    fn put(&mut self, (time, number): (Instant, u64), work: Arc<Work>) -> Option<Arc<Work>> {
        let mut without_room = None;
        if self.0.len() >= WAITING_MAX {
            let newest =
                if self.of(work.trigger()) < PLACES_OF_TRIGGER { self.newest_beyond() } else { None };
            without_room = newest.and_then(|key| self.0.remove(&key));
            if without_room.is_none() {
                return Some(work);
            }
        }
        self.0.insert((time, number), work);
        without_room
    }

    fn of(&self, trigger: usize) -> usize {
        self.0.values().filter(|other| other.trigger() == trigger).count()
    }

    /// The newest one beyond the places of its trigger.
    fn newest_beyond(&self) -> Option<(Instant, u64)> {
        let mut counts = BTreeMap::<usize, usize>::new();
        for work in self.0.values() {
            *counts.entry(work.trigger()).or_default() += 1;
        }
        let is_beyond = |work: &Work| counts.get(&work.trigger()).is_some_and(|of| *of > PLACES_OF_TRIGGER);
        let beyond = self.0.iter().filter(|(_, work)| is_beyond(work)).map(|(key, _)| *key);
        beyond.max_by_key(|(_, number)| *number)
    }

    /// Takes what is to go on by now.
    fn take_due(&mut self, now: Instant) -> impl Iterator<Item = Arc<Work>> + use<> {
        let later = self.0.split_off(&(now, u64::MAX));
        std::mem::replace(&mut self.0, later).into_values()
    }

    /// When the next one goes on.
    fn next(&self) -> Option<Instant> {
        self.0.keys().next().map(|(time, _)| *time)
    }
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor").finish_non_exhaustive()
    }
}

/// A trigger that has fired.
struct Work {
    entry: Arc<Entry>,
    firing: Firing,
    /// When it has fired.
    fired: Instant,
    /// Whether actions wait for what comes after that.
    waits: bool,
    /// The numbers of the actions that are due and not done.
    due: Mutex<VecDeque<usize>>,
}

impl Executor {
    pub(super) fn new(notifications: Arc<Notifications>) -> Self {
        Self {
            notifications,
            act: OnceLock::new(),
            starter: OnceLock::new(),
            queues: Mutex::default(),
            is_idle: Condvar::new(),
            is_delayed: Condvar::new(),
        }
    }

    /// Who does what takes its time, with the rights of the calling thread. The first one counts. What has
    /// come before waits for it.
    ///
    /// # Errors
    /// There is no thread.
    pub(super) fn start(self: &Arc<Self>, act: Box<dyn Act>) -> io::Result<()> {
        let (starter, users) = mpsc::channel();
        let executor = Arc::downgrade(self);
        let start = move || users.into_iter().for_each(|uid| Self::start_for(&executor, uid));
        std::thread::Builder::new().name("starter".into()).spawn(start)?;
        let executor = Arc::downgrade(self);
        std::thread::Builder::new().name("delays".into()).spawn(move || Self::let_go_on(&executor))?;
        let _ = self.act.set(act);
        let queues = self.queues();
        // Who puts something there has the lock, too: there is one thread for each user.
        for uid in queues.waiting.keys() {
            let _ = starter.send(*uid);
        }
        let _ = self.starter.set(starter);
        Ok(())
    }

    /// Starts a thread that does what waits of a user.
    fn start_for(executor: &Weak<Self>, uid: u32) {
        let Some(executor) = executor.upgrade() else { return };
        let of = Arc::clone(&executor);
        let thread = std::thread::Builder::new().name("actions".into());
        if let Err(error) = thread.spawn(move || of.work(uid)) {
            executor.give_up(uid, &error.to_string());
        }
    }

    /// What waits of a user is not done.
    fn give_up(&self, uid: u32, why: &str) {
        let given_up = self.queues().waiting.remove(&uid);
        given_up.into_iter().flat_map(Queue::into_all).for_each(|work| work.give_up(why));
        self.is_idle.notify_all();
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits so long until nothing waits, and does nothing any more then: what is not done, or is due
    /// afterwards, is counted as failed.
    pub(super) fn finish(&self, within: Duration) {
        // A snapshot now has less of what comes after, and one that is never taken nothing.
        let delayed = std::mem::take(&mut self.queues().delayed);
        for work in delayed.into_values().flat_map(|Delayed(of_user)| of_user.into_values()) {
            self.put(Arc::new(work.at_once()));
        }
        let is_busy = |queues: &mut Queues| !queues.waiting.is_empty();
        let waited = self.is_idle.wait_timeout_while(self.queues(), within, is_busy);
        let (mut queues, _) = waited.unwrap_or_else(PoisonError::into_inner);
        queues.is_closed = true;
        let left = std::mem::take(&mut queues.waiting);
        drop(queues);
        left.into_values().flat_map(Queue::into_all).for_each(|work| work.give_up(REPLACED));
    }

    /// Does the actions that are due, in order.
    pub(super) fn execute(&self, entry: &Arc<Entry>, firing: Firing, due: &[usize]) {
        let takes_time =
            |index: &usize| entry.actions.get(*index).is_some_and(|action| !is_done_at_once(&action.kind));
        let at_once = due.iter().position(takes_time).unwrap_or(due.len());
        for index in &due[..at_once] {
            if entry.actions.get(*index).is_some_and(|action| action.kind == ActionKind::Notify) {
                self.notify(&firing);
            }
        }
        if at_once < due.len() {
            let due = Mutex::new(due[at_once..].iter().copied().collect());
            self.put(Arc::new(Work {
                entry: Arc::clone(entry),
                firing,
                fired: Instant::now(),
                waits: true,
                due,
            }));
        }
    }

    fn notify(&self, firing: &Firing) {
        self.notifications.tell(firing.uid, &Notification::Trigger(firing.clone()));
    }

    fn put(&self, work: Arc<Work>) {
        let uid = work.entry.owner.uid;
        let mut queues = self.queues();
        if queues.is_closed {
            drop(queues);
            return work.give_up(REPLACED);
        }
        match queues.waiting.entry(uid) {
            btree_map::Entry::Occupied(mut of_user) => {
                if let Some(without_room) = of_user.get_mut().put(work) {
                    drop(queues);
                    without_room.give_up(&too_many());
                }
            }
            btree_map::Entry::Vacant(free) => {
                // There is room for one.
                let _ = free.insert(Queue::default()).put(work);
                let Some(starter) = self.starter.get() else { return };
                let is_started = starter.send(uid).is_ok();
                drop(queues);
                if !is_started {
                    self.give_up(uid, "the daemon ends");
                }
            }
        }
    }

    /// Does what waits of a user, until nothing does.
    fn work(&self, uid: u32) {
        while let Some(work) = self.next(uid) {
            // What panics is no reason to do nothing more for this user.
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.do_all(&work)));
            if done.is_err() {
                work.give_up("the daemon failed at it; its log says why");
            }
            let mut queues = self.queues();
            if let Some(of_user) = queues.waiting.get_mut(&uid) {
                of_user.doing = None;
            }
            if let Ok(Some(time)) = done {
                self.delay(queues, time, work);
            }
        }
    }

    /// What comes next of a user. The last of its threads gets nothing.
    fn next(&self, uid: u32) -> Option<Arc<Work>> {
        let mut queues = self.queues();
        let next = queues.waiting.get_mut(&uid).and_then(Queue::next);
        if next.is_none() {
            queues.waiting.remove(&uid);
            drop(queues);
            self.is_idle.notify_all();
        }
        next
    }

    /// Lets something go on at a time.
    fn delay(&self, mut queues: MutexGuard<'_, Queues>, time: Instant, work: Arc<Work>) {
        if queues.is_closed {
            drop(queues);
            return work.give_up(REPLACED);
        }
        queues.delays += 1;
        let key = (time, queues.delays);
        let without_room = queues.delayed.entry(work.entry.owner.uid).or_default().put(key, work);
        self.is_delayed.notify_all();
        drop(queues);
        if let Some(without_room) = without_room {
            without_room.give_up(&too_many());
        }
    }

    /// Lets what was delayed go on when it is time, as long as there is a daemon.
    fn let_go_on(executor: &Weak<Self>) {
        /// How often it is asked whether there is a daemon.
        const LOOK: Duration = Duration::from_secs(1);
        while let Some(of) = executor.upgrade() {
            let mut queues = of.queues();
            let now = Instant::now();
            let due: Vec<_> = queues.delayed.values_mut().flat_map(|of_user| of_user.take_due(now)).collect();
            queues.delayed.retain(|_, of_user| of_user.next().is_some());
            let next = queues.delayed.values().filter_map(Delayed::next).min();
            let next = next.map(|time| time.saturating_duration_since(now));
            if due.is_empty() {
                let wait = next.map_or(LOOK, |next| next.min(LOOK));
                let waited = of.is_delayed.wait_timeout(queues, wait);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
                continue;
            }
            drop(queues);
            for work in due {
                of.put(work);
            }
        }
    }

    /// Does what is due, in order; gives when the next of it is, if that is not now.
    fn do_all(&self, work: &Work) -> Option<Instant> {
        while let Some(index) = work.next() {
            if let Some(time) = work.waits_until(index) {
                return Some(time);
            }
            let failed = match work.entry.actions.get(index).map(|action| &action.kind) {
                Some(ActionKind::Notify) => {
                    self.notify(&work.firing);
                    None
                }
                Some(action) => {
                    let act = self.act.get().map(|act| act.act(&work.entry.owner, action, &work.firing));
                    act.and_then(Result::err)
                }
                None => None,
            };
            work.is_done(index, failed);
        }
        None
    }
}

fn too_many() -> String {
    format!("{WAITING_MAX} firings of the user's triggers wait already")
}

/// Whether an action takes no time: those that count have counted when they are due.
fn is_done_at_once(kind: &ActionKind) -> bool {
    matches!(kind, ActionKind::Notify | ActionKind::Count { .. })
}

impl Work {
    /// Which trigger it is of, among those that are there.
    fn trigger(&self) -> usize {
        Arc::as_ptr(&self.entry).addr()
    }

    fn due(&self) -> MutexGuard<'_, VecDeque<usize>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<usize> {
        self.due().front().copied()
    }

    /// When an action is due, if that is not now: a snapshot may wait for what comes after the trigger.
    fn waits_until(&self, index: usize) -> Option<Instant> {
        match self.entry.actions.get(index).map(|action| &action.kind) {
            Some(ActionKind::SnapshotSession { window, .. }) if self.waits => {
                self.fired.checked_add(window.after()).filter(|time| *time > Instant::now())
            }
            _ => None,
        }
    }

    /// The same, which waits for nothing.
    fn at_once(&self) -> Self {
        let due = Mutex::new(std::mem::take(&mut *self.due()));
        let (entry, firing) = (Arc::clone(&self.entry), self.firing.clone());
        Self { entry, firing, fired: self.fired, waits: false, due }
    }

    /// What was next is done, or has failed. If it was given up meanwhile, that counts.
    fn is_done(&self, index: usize, failed: Option<String>) {
        let mut due = self.due();
        if due.front() == Some(&index) {
            due.pop_front();
            if let Some(why) = failed {
                self.entry.has_failed(index, why);
            }
        }
    }

    /// All that is not done has failed.
    fn give_up(&self, why: &str) {
        for index in self.due().drain(..) {
            self.entry.has_failed(index, why.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use api::NewTrigger;
    use api::trigger::{Action, Condition, Finding, Pace, RatePolicy};

    /// Does something when it is let.
    struct Slow(Mutex<mpsc::Receiver<()>>);

    impl Act for Slow {
        fn act(&self, _: &Owner, _: &ActionKind, _: &Firing) -> Result<(), String> {
            self.0.lock().unwrap().recv().map_err(|error| error.to_string())
        }
    }

    fn entry() -> Arc<Entry> {
        let kinds = [ActionKind::StartSession { session: "s".into() }, ActionKind::Notify];
        let action = |kind| Action { kind, rate_policy: RatePolicy::default() };
        let condition = Condition::RotationOngoing { session: "s".into() };
        let new = NewTrigger {
            name: None,
            condition,
            actions: kinds.map(action).into(),
            pace: Pace::default(),
            configured: false,
        };
        Arc::new(Entry::new("t".into(), Owner::new(0, 0), (new, super::super::Counted::default())))
    }

    fn work(entry: &Arc<Entry>) -> Arc<Work> {
        let (firing, due) = entry.fire(Finding::Rotation { id: 0, path: None });
        let (due, entry) = (Mutex::new(due.into()), Arc::clone(entry));
        Arc::new(Work { entry, firing, fired: Instant::now(), waits: true, due })
    }

    #[test]
    fn what_waits_is_bounded_and_the_rest_is_counted() {
        let executor = Arc::new(Executor::new(Arc::default()));
        let (go, waits) = mpsc::channel();
        executor.start(Box::new(Slow(Mutex::new(waits)))).unwrap();
        let entry = entry();
        let fire = |id| {
            let (firing, due) = entry.fire(Finding::Rotation { id, path: None });
            executor.execute(&entry, firing, &due);
        };
        fire(0);
        let all = WAITING_MAX as u64 + 5;
        (1..=all).for_each(fire);
        let counts = |index: usize| {
            let told = entry.told();
            (told.actions[index].executed, told.actions[index].failed)
        };
        assert_eq!([counts(0), counts(1)], [(all + 1, 5), (all + 1, 5)]);
        (0..=WAITING_MAX).for_each(|_| go.send(()).unwrap());
        while !executor.queues().waiting.is_empty() {
            std::thread::yield_now();
        }
        assert_eq!([counts(0), counts(1)], [(all + 1, 5), (all + 1, 5)], "all that waited was done");
    }

    #[test]
    fn a_trigger_that_fires_all_the_time_holds_up_no_other() {
        let executor = Arc::new(Executor::new(Arc::default()));
        let (go, waits) = mpsc::channel();
        let [often, seldom] = [entry(), entry()];
        let fire = |entry: &Arc<Entry>| {
            let (firing, due) = entry.fire(Finding::Rotation { id: 0, path: None });
            executor.execute(entry, firing, &due);
        };
        let failed = |entry: &Arc<Entry>| entry.told().actions[0].failed;
        let waiting = |of: &Arc<Entry>| {
            let queues = executor.queues();
            let queue = queues.waiting.get(&0).unwrap();
            let is_of = |work: &&Arc<Work>| Arc::ptr_eq(&work.entry, of);
            queue.first.iter().chain(&queue.then).filter(is_of).count()
        };
        (0..2 * WAITING_MAX).for_each(|_| fire(&often));
        assert_eq!((waiting(&often), failed(&often)), (WAITING_MAX + 1, WAITING_MAX as u64 - 1));
        (0..PLACES_OF_TRIGGER).for_each(|_| fire(&seldom));
        let (left, places) = (WAITING_MAX + 1 - PLACES_OF_TRIGGER, PLACES_OF_TRIGGER as u64);
        assert_eq!([waiting(&often), waiting(&seldom)], [left, PLACES_OF_TRIGGER]);
        assert_eq!([failed(&often), failed(&seldom)], [WAITING_MAX as u64 - 1 + places, 0]);
        fire(&seldom);
        assert_eq!([failed(&often), failed(&seldom)], [WAITING_MAX as u64 - 1 + places, 1]);
        executor.start(Box::new(Slow(Mutex::new(waits)))).unwrap();
        // As many as are before it in the order, and it.
        (0..2 * PLACES_OF_TRIGGER).for_each(|_| go.send(()).unwrap());
        while waiting(&seldom) != 0 {
            std::thread::yield_now();
        }
        // One more may be done at this moment.
        assert!(waiting(&often) + 1 >= left - PLACES_OF_TRIGGER, "{}", waiting(&often));
        executor.finish(Duration::ZERO);
        drop(go);
    }

    #[test]
    fn places_of_many_triggers_are_bounded_by_all_that_waits() {
        let entries: Vec<_> = (0..2 * WAITING_MAX / PLACES_OF_TRIGGER).map(|_| entry()).collect();
        let mut queue = Queue::default();
        let mut refused = Vec::new();
        for entry in &entries {
            refused.extend((0..PLACES_OF_TRIGGER).filter_map(|_| queue.put(work(entry))));
        }
        assert_eq!((queue.first.len(), queue.then.len()), (WAITING_MAX + 1, 0));
        assert_eq!(refused.len(), WAITING_MAX - 1);
        let last = &entries[entries.len() - 1];
        assert_eq!(refused.iter().filter(|work| Arc::ptr_eq(&work.entry, last)).count(), PLACES_OF_TRIGGER);
        while queue.next().is_some() {}
        assert!(queue.counts.is_empty());
    }

    #[test]
    fn what_is_delayed_makes_room_for_triggers_with_places() {
        let [often, seldom] = [entry(), entry()];
        let begin = Instant::now();
        let mut delayed = Delayed::default();
        let mut numbers = 0..;
        // What comes later goes on earlier: the newest is not the last one.
        let mut put = |delayed: &mut Delayed, entry: &Arc<Entry>| {
            let number = numbers.next().unwrap();
            delayed.put((begin + Duration::from_secs(10_000 - number), number), work(entry))
        };
        let is_of = |work: &Arc<Work>, entry: &Arc<Entry>| Arc::ptr_eq(&work.entry, entry);
        (0..WAITING_MAX).for_each(|_| assert!(put(&mut delayed, &often).is_none()));
        let refused = put(&mut delayed, &often).unwrap();
        assert_eq!((is_of(&refused, &often), refused.firing.count), (true, WAITING_MAX as u64 + 1));
        for place in 0..PLACES_OF_TRIGGER as u64 {
            let given_up = put(&mut delayed, &seldom).unwrap();
            assert_eq!((is_of(&given_up, &often), given_up.firing.count), (true, WAITING_MAX as u64 - place));
        }
        assert!(is_of(&put(&mut delayed, &seldom).unwrap(), &seldom), "it has no place left");
        assert_eq!(delayed.0.len(), WAITING_MAX);
        assert_eq!(delayed.of(work(&seldom).trigger()), PLACES_OF_TRIGGER);
        let next = delayed.next().unwrap();
        assert_eq!(delayed.take_due(next).count(), 1);
        assert_eq!(delayed.take_due(begin + Duration::from_secs(10_000)).count(), WAITING_MAX - 1);
        assert_eq!(delayed.next(), None);
    }

    #[test]
    fn firings_of_a_trigger_are_in_their_order() {
        let (often, seldom) = (entry(), entry());
        let mut queue = Queue::default();
        let mut done = Vec::new();
        for turn in 0..3 {
            (0..PLACES_OF_TRIGGER + 5).for_each(|_| assert!(queue.put(work(&often)).is_none()));
            assert!(queue.put(work(&seldom)).is_none());
            // Places come to be free, and what waits beyond them is older than what comes.
            for _ in 0..PLACES_OF_TRIGGER + turn {
                done.extend(queue.next());
            }
        }
        done.extend(std::iter::from_fn(|| queue.next()));
        assert!(queue.counts.is_empty() && queue.waiting() == 0);
        for entry in [&often, &seldom] {
            let of = done.iter().filter(|work| Arc::ptr_eq(&work.entry, entry));
            let counts: Vec<u64> = of.map(|work| work.firing.count).collect();
            assert!(counts.is_sorted() && counts.len() as u64 == entry.told().fired, "{counts:?}");
        }
    }

    #[test]
    fn what_is_not_done_in_time_has_failed_once() {
        let executor = Arc::new(Executor::new(Arc::default()));
        let entry = entry();
        let fire = |id| {
            let (firing, due) = entry.fire(Finding::Rotation { id, path: None });
            executor.execute(&entry, firing, &due);
        };
        let counts = || entry.told().actions.iter().map(|of| (of.executed, of.failed)).collect::<Vec<_>>();
        // Before there is anybody who does it, it waits.
        fire(0);
        let (go, waits) = mpsc::channel();
        executor.start(Box::new(Slow(Mutex::new(waits)))).unwrap();
        go.send(()).unwrap();
        while !executor.queues().waiting.is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(counts(), [(1, 0), (1, 0)]);
        fire(1);
        fire(2);
        executor.finish(Duration::from_millis(10));
        fire(3);
        assert_eq!(counts(), [(4, 3), (4, 3)]);
        assert_eq!(entry.told().actions[0].last_failure.as_deref(), Some(REPLACED));
        // What becomes of it afterwards is not counted again.
        drop(go);
        while Arc::strong_count(&entry) > 1 {
            std::thread::yield_now();
        }
        assert_eq!(counts(), [(4, 3), (4, 3)]);
    }
}
