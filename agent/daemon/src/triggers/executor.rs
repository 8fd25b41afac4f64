//! Actions of triggers that have fired.
//!
//! Clients are told at once. What takes its time waits in a queue of the trigger's user, which a thread works
//! off as long as there is something in it: what one user's sessions wait for holds up nobody else. What
//! comes after an action that waits waits too, as the order of actions matters.

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

/// How many firings of a user's triggers wait. What comes when so many do is counted as failed.
const WAITING_MAX: usize = 1024;

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
    /// For each user for whom a thread works: first what it is about.
    waiting: BTreeMap<u32, VecDeque<Arc<Work>>>,
    /// What goes on at a time, in its order.
    delayed: BTreeMap<(Instant, u64), Arc<Work>>,
    /// How much was delayed so far.
    delays: u64,
    /// Whether nothing is done any more.
    is_closed: bool,
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
        given_up.into_iter().flatten().for_each(|work| work.give_up(why));
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
        left.into_values().flatten().for_each(|work| work.give_up(REPLACED));
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
            // One of them does not wait.
            btree_map::Entry::Occupied(mut of_user) if of_user.get().len() <= WAITING_MAX => {
                of_user.get_mut().push_back(work);
            }
            btree_map::Entry::Occupied(_) => {
                drop(queues);
                work.give_up(&too_many());
            }
            btree_map::Entry::Vacant(free) => {
                free.insert(VecDeque::from([work]));
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
                of_user.pop_front();
            }
            if let Ok(Some(time)) = done {
                self.delay(queues, time, work);
            }
        }
    }

    /// What comes next of a user. The last of its threads gets nothing.
    fn next(&self, uid: u32) -> Option<Arc<Work>> {
        let mut queues = self.queues();
        let next = queues.waiting.get(&uid).and_then(VecDeque::front).map(Arc::clone);
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
        let of_user = queues.delayed.values().filter(|other| other.entry.owner.uid == uid).count();
        if queues.is_closed || of_user >= WAITING_MAX {
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
