//! Actions of triggers that have fired.
//!
//! Clients are told at once. What takes its time waits in a queue of the trigger's user, which a thread works
//! off as long as there is something in it: what one user's sessions wait for holds up nobody else. What
//! comes after an action that waits waits too, as the order of actions matters. But of a trigger of which
//! many firings wait, those beyond some come after all others of the user's triggers.

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

/// How many firings of a user's triggers wait. What comes when so many do is counted as failed, unless its
/// trigger has places left.
const WAITING_MAX: usize = 1024;
/// How many firings of each trigger wait before others, whatever else does.
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
    /// What goes on at a time, in its order.
    delayed: BTreeMap<(Instant, u64), Arc<Work>>,
    /// How much was delayed so far.
    delays: u64,
    /// Whether nothing is done any more.
    is_closed: bool,
}

/// What waits of a user.
#[derive(Default)]
struct Queue {
    doing: Option<Arc<Work>>,
    /// Firings in the places of their triggers.
    first: VecDeque<Arc<Work>>,
    /// Those beyond. Of a trigger that has some, what comes is among them, too.
    then: VecDeque<Arc<Work>>,
    /// How many of each trigger are in the two, by where it is in memory, which they keep there.
    counts: BTreeMap<usize, [usize; 2]>,
}

impl Queue {
    /// Whether there is room for what a trigger does; puts it there.
    fn put(&mut self, work: &Arc<Work>) -> bool {
        let is_full = self.waiting() + usize::from(self.doing.is_some()) > WAITING_MAX;
        let [first, then] = self.counts.entry(work.trigger()).or_default();
        if *then == 0 && *first < PLACES_OF_TRIGGER {
            *first += 1;
            self.first.push_back(Arc::clone(work));
        } else if is_full {
            return false;
        } else {
            *then += 1;
            self.then.push_back(Arc::clone(work));
        }
        true
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
        if let Some(counts) = self.counts.get_mut(&work.trigger()) {
            counts[queue] = counts[queue].saturating_sub(1);
            if *counts == [0, 0] {
                self.counts.remove(&work.trigger());
            }
        }
        self.doing = Some(Arc::clone(&work));
        Some(work)
    }

    /// All that is not done.
    fn into_all(self) -> impl Iterator<Item = Arc<Work>> {
        self.doing.into_iter().chain(self.first).chain(self.then)
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
        for work in delayed.into_values() {
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
                if !of_user.get_mut().put(&work) {
                    drop(queues);
                    work.give_up(&too_many());
                }
            }
            btree_map::Entry::Vacant(free) => {
                free.insert(Queue::default()).put(&work);
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
        let uid = work.entry.owner.uid;
        let of_user = || queues.delayed.values().filter(move |other| other.entry.owner.uid == uid);
        let of_trigger = of_user().filter(|other| other.trigger() == work.trigger()).count();
        let is_full = of_trigger >= PLACES_OF_TRIGGER && of_user().count() >= WAITING_MAX;
        if queues.is_closed || is_full {
            let why = if queues.is_closed { REPLACED.to_owned() } else { too_many() };
            drop(queues);
            return work.give_up(&why);
        }
        queues.delays += 1;
        let key = (time, queues.delays);
        queues.delayed.insert(key, work);
        self.is_delayed.notify_all();
    }

    /// Lets what was delayed go on when it is time, as long as there is a daemon.
    fn let_go_on(executor: &Weak<Self>) {
        /// How often it is asked whether there is a daemon.
        const LOOK: Duration = Duration::from_secs(1);
        while let Some(of) = executor.upgrade() {
            let mut queues = of.queues();
            let now = Instant::now();
            let later = queues.delayed.split_off(&(now, u64::MAX));
            let due = std::mem::replace(&mut queues.delayed, later);
            let next = queues.delayed.keys().next().map(|(time, _)| time.saturating_duration_since(now));
            if due.is_empty() {
                let wait = next.map_or(LOOK, |next| next.min(LOOK));
                let waited = of.is_delayed.wait_timeout(queues, wait);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
                continue;
            }
            drop(queues);
            for work in due.into_values() {
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
        (0..PLACES_OF_TRIGGER).for_each(|_| fire(&seldom));
        assert_eq!(waiting(&often), WAITING_MAX + 1);
        assert_eq!((failed(&often), failed(&seldom)), (WAITING_MAX as u64 - 1, 0));
        fire(&seldom);
        assert_eq!(failed(&seldom), 1, "it has no place left");
        executor.start(Box::new(Slow(Mutex::new(waits)))).unwrap();
        // As many as are before it in the order, and it.
        (0..2 * PLACES_OF_TRIGGER).for_each(|_| go.send(()).unwrap());
        while waiting(&seldom) != 0 {
            std::thread::yield_now();
        }
        assert!(waiting(&often) >= WAITING_MAX - PLACES_OF_TRIGGER, "{}", waiting(&often));
        executor.finish(Duration::ZERO);
        drop(go);
    }

    #[test]
    fn firings_of_a_trigger_are_in_their_order() {
        let (often, seldom) = (entry(), entry());
        let work = |entry: &Arc<Entry>| {
            let (firing, due) = entry.fire(Finding::Rotation { id: 0, path: None });
            let (due, entry) = (Mutex::new(due.into()), Arc::clone(entry));
            Arc::new(Work { entry, firing, fired: Instant::now(), waits: true, due })
        };
        let mut queue = Queue::default();
        let mut done = Vec::new();
        for turn in 0..3 {
            (0..PLACES_OF_TRIGGER + 5).for_each(|_| assert!(queue.put(&work(&often))));
            assert!(queue.put(&work(&seldom)));
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
