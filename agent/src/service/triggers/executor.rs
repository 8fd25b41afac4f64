//! Actions of triggers that have fired.
//!
//! Clients are told at once. What takes its time waits in a queue of the trigger's user, which a thread works
//! off as long as there is something in it: what one user's sessions wait for holds up nobody else. What
//! comes after an action that waits waits too, as the order of actions matters.

use std::{
    collections::{BTreeMap, VecDeque, btree_map},
    io,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        mpsc::{self, Sender},
    },
};

use super::trigger::Entry;
use crate::{
    control::{
        api::Notification,
        trigger::{ActionKind, Firing},
    },
    service::{notifications::Notifications, user::Owner},
};

/// How many firings of a user's triggers wait. What comes when so many do is counted as failed.
const WAITING_MAX: usize = 1024;

/// What takes its time.
pub(in crate::service) trait Act: Send + Sync {
    /// Does it for a user.
    ///
    /// # Errors
    /// Why it could not be done.
    fn act(&self, owner: &Owner, action: &ActionKind, firing: &Firing) -> Result<(), String>;
}

/// Who does what triggers say.
pub(super) struct Executor {
    notifications: Arc<Notifications>,
    act: OnceLock<Box<dyn Act>>,
    /// Starts a thread for a user. Who fires a trigger may have the rights of its user only, which a thread
    /// would have from it.
    starter: OnceLock<Sender<u32>>,
    /// What waits of each user for whom a thread works.
    waiting: Mutex<BTreeMap<u32, VecDeque<Work>>>,
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor").finish_non_exhaustive()
    }
}

/// A trigger that has fired, with the numbers of the actions that are due.
struct Work {
    entry: Arc<Entry>,
    firing: Firing,
    due: Vec<usize>,
}

impl Executor {
    pub(super) fn new(notifications: Arc<Notifications>) -> Self {
        Self { notifications, act: OnceLock::new(), starter: OnceLock::new(), waiting: Mutex::default() }
    }

    /// Who does what takes its time, with the rights of the calling thread. The first one counts.
    ///
    /// # Errors
    /// There is no thread.
    pub(super) fn start(self: &Arc<Self>, act: Box<dyn Act>) -> io::Result<()> {
        let (starter, users) = mpsc::channel();
        let executor = Arc::downgrade(self);
        let start = move || users.into_iter().for_each(|uid| Self::start_for(&executor, uid));
        std::thread::Builder::new().name("starter".into()).spawn(start)?;
        let _ = self.act.set(act);
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
        let given_up = self.waiting().remove(&uid);
        given_up.into_iter().flatten().for_each(|work| work.fail(why));
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<u32, VecDeque<Work>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
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
            let due = due[at_once..].to_vec();
            self.put(Work { entry: Arc::clone(entry), firing, due });
        }
    }

    fn notify(&self, firing: &Firing) {
        self.notifications.tell(firing.uid, &Notification::Trigger(firing.clone()));
    }

    fn put(&self, work: Work) {
        let uid = work.entry.owner.uid;
        let mut waiting = self.waiting();
        match waiting.entry(uid) {
            btree_map::Entry::Occupied(mut of_user) if of_user.get().len() < WAITING_MAX => {
                of_user.get_mut().push_back(work);
            }
            btree_map::Entry::Occupied(_) => {
                drop(waiting);
                work.fail(&format!("{WAITING_MAX} firings of the user's triggers wait already"));
            }
            btree_map::Entry::Vacant(free) => {
                free.insert(VecDeque::from([work]));
                drop(waiting);
                let started = self.starter.get().is_some_and(|starter| starter.send(uid).is_ok());
                if !started {
                    self.give_up(uid, "the daemon ends");
                }
            }
        }
    }

    /// Does what waits of a user, until nothing does.
    fn work(&self, uid: u32) {
        loop {
            let next = {
                let mut waiting = self.waiting();
                let next = waiting.get_mut(&uid).and_then(VecDeque::pop_front);
                if next.is_none() {
                    waiting.remove(&uid);
                }
                next
            };
            let Some(work) = next else { return };
            // What panics is no reason to do nothing more for this user.
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.do_all(&work)));
            if done.is_err() {
                work.fail("the daemon failed at it; its log says why");
            }
        }
    }

    fn do_all(&self, work: &Work) {
        for &index in &work.due {
            match work.entry.actions.get(index).map(|action| &action.kind) {
                Some(ActionKind::Notify) => self.notify(&work.firing),
                Some(action) => {
                    let act = self.act.get().map(|act| act.act(&work.entry.owner, action, &work.firing));
                    if let Some(Err(why)) = act {
                        work.entry.has_failed(index, why);
                    }
                }
                None => {}
            }
        }
    }
}

/// Whether an action takes no time: those that count have counted when they are due.
fn is_done_at_once(kind: &ActionKind) -> bool {
    matches!(kind, ActionKind::Notify | ActionKind::Count { .. })
}

impl Work {
    fn fail(&self, why: &str) {
        for &index in &self.due {
            self.entry.has_failed(index, why.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::control::{
        NewTrigger,
        trigger::{Action, Condition, Finding, RatePolicy},
    };

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
        let new = NewTrigger { name: None, condition, actions: kinds.map(action).into() };
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
        while executor.waiting().get(&0).is_none_or(|queue| !queue.is_empty()) {
            std::thread::yield_now();
        }
        let all = WAITING_MAX as u64 + 5;
        (1..=all).for_each(fire);
        let counts = |index: usize| {
            let told = entry.told();
            (told.actions[index].executed, told.actions[index].failed)
        };
        assert_eq!([counts(0), counts(1)], [(all + 1, 5), (all + 1, 5)]);
        (0..=WAITING_MAX).for_each(|_| go.send(()).unwrap());
        while !executor.waiting().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!([counts(0), counts(1)], [(all + 1, 5), (all + 1, 5)], "all that waited was done");
    }
}
