//! Triggers that are handed over to another daemon, and come from one.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{Counted, Entry, Triggers, lock, trigger::Paced};
use crate::descriptors::OfUser;
use crate::maps::HandedMap;
use crate::registry::log;
use crate::sessions::World;
use crate::shares::Shares;
use crate::side_by_side;
use api::{ControlError, Trigger};
use capture::HandOver;

/// How long users whose rules are being changed are waited for, and events that have come are read, when
/// another daemon goes on.
const LAST_EVENTS: Duration = Duration::from_secs(2);
/// How long actions that are due may take then.
const LAST_ACTIONS: Duration = Duration::from_secs(5);

/// What is known of a trigger.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandedTrigger {
    /// The group of its user.
    pub(super) gid: u32,
    /// Whether the level of its condition is reached.
    pub(super) is_reached: bool,
    /// What clients know of it.
    pub(super) trigger: Trigger,
    /// What the kernel counts for it, by the numbers of actions.
    pub(super) maps: Vec<(usize, HandedMap)>,
    /// When its actions were due.
    #[serde(default)]
    pub(super) paced: Paced,
}

impl HandedTrigger {
    /// Whose it is.
    pub(crate) fn uid(&self) -> u32 {
        self.trigger.uid
    }
}

impl Triggers {
    /// Watches for nothing any more, as another daemon goes on: what has come by now fires, and what is due
    /// is done, or counted as failed.
    pub(crate) fn finish(self: &Arc<Self>) {
        self.is_finished.store(true, Ordering::SeqCst);
        let left = self.events.finish(self, Instant::now() + LAST_EVENTS);
        for uid in left {
            log(&format!(
                "the last events of user {uid}'s triggers are not known: its rules are being changed"
            ));
            let about_events = self.meant(uid, Self::is_about_events);
            for entry in about_events {
                entry.was_interrupted();
            }
        }
        self.units.end();
        self.executor.finish(LAST_ACTIONS);
    }

    /// All triggers, for another daemon.
    pub(crate) fn take_all(&self) -> Vec<(HandedTrigger, Vec<HandOver>)> {
        std::mem::take(&mut *lock(&self.all)).into_values().map(|entry| entry.handed()).collect()
    }

    /// Goes on with a trigger that another daemon has handed over. Events are not watched for
    /// [yet](Triggers::watch_again).
    ///
    /// # Errors
    /// This daemon takes no such trigger.
    pub(crate) fn take_over(
        &self,
        mut handed: HandedTrigger,
        maps: Vec<HandOver>,
        (shares, descriptors): (&Arc<Shares>, &OfUser),
    ) -> Result<(), ControlError> {
        let maps = std::mem::take(&mut handed.maps).into_iter().zip(maps);
        let maps = maps.map(|((index, handed), map)| (index, handed, map)).collect();
        let (counted, problem) = Counted::take_over(handed.uid(), maps, (shares, descriptors));
        let entry = Self::insert(&mut lock(&self.all), Entry::of_handed(handed, counted)?)?;
        if problem.is_some() {
            entry.has_problem(problem);
        }
        Ok(())
    }

    /// Whether there are triggers whose events or units another daemon has watched for.
    pub(crate) fn waits_for_watch(&self) -> bool {
        lock(&self.all).values().any(|entry| entry.condition.is_about_moments())
    }

    /// Watches for the events and units of triggers that another daemon has handed over: root's first, then
    /// those of a few other users at a time. Those that cannot be watched say so.
    pub(crate) fn watch_again(self: &Arc<Self>, world: &Result<World, ControlError>) {
        let mut users = BTreeMap::<u32, Vec<Arc<Entry>>>::new();
        let is_left = |entry: &&Arc<Entry>| entry.is_handed && entry.is_watched();
        for entry in lock(&self.all).values().filter(is_left) {
            users.entry(entry.owner.uid).or_default().push(Arc::clone(entry));
        }
        self.watch_all_again(&users.remove(&0).unwrap_or_default(), world);
        let others: Vec<_> = users.into_values().collect();
        side_by_side::for_all(&others, |of_user| self.watch_all_again(of_user, world));
    }

    fn watch_all_again(self: &Arc<Self>, all: &[Arc<Entry>], world: &Result<World, ControlError>) {
        for entry in all {
            if self.is_finished.load(Ordering::SeqCst) {
                return;
            }
            let is_about_events = Self::is_about_events(&entry.condition);
            let watched = match world {
                Err(error) if is_about_events => Err(error.clone()),
                world => self.watch(entry, world.as_ref().ok()),
            };
            match watched {
                // Units have those of the bus.
                Ok(()) if is_about_events => entry.has_problem(None),
                Ok(()) => {}
                Err(error) => {
                    log(&format!("trigger {} of user {}: {error}", entry.name, entry.owner.uid));
                    entry.has_problem(Some(error.message));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{TRIGGERS_MAX, TRIGGERS_OF_USER_MAX};
    use super::*;
    use crate::descriptors::Descriptors;
    use crate::user::Owner;
    use api::trigger::{Action, ActionKind, Condition, Pace, RatePolicy};
    use api::{Code, NewTrigger};

    fn triggers() -> (Triggers, Arc<Shares>, Descriptors) {
        let (shares, descriptors) = (Arc::new(Shares::new(u64::MAX, 2)), Descriptors::new(None));
        (Triggers::new(Arc::default(), (Arc::clone(&shares), descriptors.clone())), shares, descriptors)
    }

    fn put(triggers: &Triggers, uid: u32, number: usize) -> Result<(), Code> {
        let new = NewTrigger {
            name: Some(number.to_string()),
            condition: Condition::Signal,
            actions: vec![Action { kind: ActionKind::Notify, rate_policy: RatePolicy::default() }],
            pace: Pace::default(),
            configured: false,
        };
        let added = triggers.put(Owner::new(uid, uid), new, Counted::default());
        added.map(drop).map_err(|error| error.code)
    }

    #[test]
    fn as_many_triggers_as_there_may_be_are_handed_over() {
        let (before, ..) = triggers();
        let users = TRIGGERS_MAX / TRIGGERS_OF_USER_MAX;
        // Root's come first, as they do when they are handed over.
        for uid in 0..=users as u32 {
            (0..TRIGGERS_OF_USER_MAX).for_each(|number| put(&before, uid, number).unwrap());
            assert_eq!(put(&before, uid, TRIGGERS_OF_USER_MAX), Err(Code::NoMemory));
        }
        let other = users as u32 + 1;
        assert_eq!(put(&before, other, 0), Err(Code::NoMemory), "there are enough of all users but root");
        let name = "0".to_owned();
        before.remove(0, &name).unwrap();
        assert_eq!(put(&before, other, 0), Err(Code::NoMemory));
        put(&before, 0, 0).unwrap();
        before.remove(1, &name).unwrap();
        put(&before, other, 0).unwrap();

        let (after, shares, descriptors) = triggers();
        let all = before.take_all();
        assert_eq!(all.len(), TRIGGERS_MAX + TRIGGERS_OF_USER_MAX);
        for (handed, maps) in all {
            let of_user = descriptors.of(handed.uid());
            after.take_over(handed, maps, (&shares, &of_user)).unwrap();
        }
        assert_eq!(after.list(None).len(), TRIGGERS_MAX + TRIGGERS_OF_USER_MAX);
    }
}
