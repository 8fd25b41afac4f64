//! Events that match rules of triggers, of each user by itself.
//!
//! A user with such triggers has a watch, with rings, a thread that takes half a CPU at most, and programs:
//! whatever matches the rules of one user, those of others are found as if it did not. Within a watch, a rule
//! that matches all the time leaves room to others ([`capture::watch`]). A watch's memory and descriptors are
//! of its user's share.

mod of_user;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

pub(super) use of_user::Look;
pub(crate) use of_user::rule_of;

use super::{Triggers, trigger::Entry};
use crate::descriptors::Descriptors;
use crate::lock;
use crate::sessions::World;
use crate::shares::Shares;
use crate::side_by_side::{self, Work};
use api::trigger::Condition;
use api::{Code, ControlError};
use of_user::UserEvents;

const ROOT: u32 = 0;
/// How often a user whose rules are in use is tried at each look, and how long apart.
const LOOKS: u32 = 5;
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long apart users whose rules are being changed are tried, when another daemon goes on.
const FINISH_AGAIN: Duration = Duration::from_millis(5);
/// How many users other than root can have a watch.
const USERS_MAX: usize = 256;

/// The events that triggers are about, by users.
#[derive(Debug)]
pub(super) struct Events {
    users: Mutex<BTreeMap<u32, Arc<UserEvents>>>,
    /// What watches take a part of.
    shares: (Arc<Shares>, Descriptors),
}

impl Events {
    /// None yet.
    pub(super) fn new(shares: (Arc<Shares>, Descriptors)) -> Self {
        Self { users: Mutex::default(), shares }
    }

    /// Whether a condition is about events.
    pub(super) fn is_about(condition: &Condition) -> bool {
        rule_of(condition).is_some()
    }

    /// Those of each user.
    fn all(&self) -> Vec<Arc<UserEvents>> {
        lock(&self.users).values().map(Arc::clone).collect()
    }

    /// Those of a user.
    fn of(&self, uid: u32) -> Option<Arc<UserEvents>> {
        lock(&self.users).get(&uid).map(Arc::clone)
    }

    /// Whether there is a rule about programs that may come. Such rules are root's alone.
    pub(super) fn waits_for_programs(&self) -> bool {
        self.of(ROOT).is_some_and(|of| of.waits_for_programs())
    }

    /// Watches for the events of a trigger. Planning takes its time, in which others are not held up.
    ///
    /// # Errors
    /// This kernel has no such event, the filter or a capture is wrong, or the user has too much already.
    pub(super) fn add(
        &self,
        triggers: &Arc<Triggers>,
        entry: &Arc<Entry>,
        world: &World,
    ) -> Result<(), ControlError> {
        self.of_new(entry.owner.uid)?.add(triggers, entry, world)
    }

    /// Those of a user who may have none yet.
    fn of_new(&self, uid: u32) -> Result<Arc<UserEvents>, ControlError> {
        let mut users = lock(&self.users);
        if let Some(of) = users.get(&uid) {
            return Ok(Arc::clone(of));
        }
        forget_unused(&mut users);
        if uid != ROOT && users.keys().filter(|uid| **uid != ROOT).count() >= USERS_MAX {
            let why = format!("{USERS_MAX} users have triggers about events already");
            return Err(ControlError::new(Code::NoMemory, why));
        }
        let of = Arc::new(UserEvents::new(uid, self.shares.clone()));
        users.insert(uid, Arc::clone(&of));
        Ok(of)
    }

    /// Watches no longer for the events of a trigger.
    pub(super) fn remove(&self, entry: &Arc<Entry>) {
        if let Some(of) = self.of(entry.owner.uid) {
            of.remove(entry);
        }
    }

    /// Notes for the triggers of a user what they have missed, or for those of all whose rules are not in use
    /// at this moment.
    pub(super) fn note(&self, uid: Option<u32>) {
        match uid {
            Some(uid) => self.of(uid).iter().for_each(|of| of.note()),
            None => self.all().iter().for_each(|of| of.note_at_once()),
        }
    }

    /// Looks at the counts of all rules, notes what was missed, and gives what is found of each trigger to
    /// `each`, for one user after the other. Users whose rules are in use all the time have their turn when
    /// this is called again.
    pub(super) fn look(&self, each: &mut dyn FnMut(Look)) {
        forget_unused(&mut lock(&self.users));
        let mut left = self.all();
        for _ in 0..LOOKS {
            left.retain(|of| match of.look() {
                Some(found) => {
                    found.into_iter().for_each(&mut *each);
                    false
                }
                None => true,
            });
            if left.is_empty() {
                return;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// There are other programs: watches for those of their markers that rules mean, and no longer for those
    /// of programs that are gone.
    pub(super) fn follow(&self, triggers: &Arc<Triggers>, world: &World) {
        if let Some(of) = self.of(ROOT) {
            of.follow(triggers, world);
        }
    }

    /// Watches for nothing any more. What has come by now fires, or is noted as missed. Gives the users whose
    /// rules were still being changed at the deadline: what has come of their events is not known.
    pub(super) fn finish(&self, triggers: &Arc<Triggers>, deadline: Instant) -> Vec<u32> {
        let mut users: Vec<_> = lock(&self.users).iter().map(|(uid, of)| (*uid, Arc::clone(of))).collect();
        loop {
            let left = Mutex::new(Vec::new());
            side_by_side::for_all(&users, |(uid, of)| {
                if !of.finish(triggers, deadline) {
                    lock(&left).push((*uid, Arc::clone(of)));
                }
            });
            users = left.into_inner().unwrap_or_else(PoisonError::into_inner);
            if users.is_empty() || Instant::now() >= deadline {
                return users.into_iter().map(|(uid, _)| uid).collect();
            }
            std::thread::sleep(FINISH_AGAIN);
        }
    }

    /// Ends all of it, because the daemon ends. Gives what is left to do for each user.
    pub(super) fn end(&self) -> Vec<Work<()>> {
        let all = std::mem::take(&mut *lock(&self.users));
        all.into_values().map(|of| -> Work<()> { Box::new(move || of.end()) }).collect()
    }
}

/// Forgets users without rules that no thread uses. Threads take them under the same lock.
fn forget_unused(users: &mut BTreeMap<u32, Arc<UserEvents>>) {
    users.retain(|_, of| Arc::strong_count(of) > 1 || of.is_used());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_users_have_watches_and_root_has_one_in_any_case() {
        let events = Events::new((Arc::new(Shares::new(u64::MAX, 2)), Descriptors::new(None)));
        let last = USERS_MAX as u32;
        let mut busy: Vec<_> = (1..=last).map(|uid| events.of_new(uid).unwrap()).collect();
        assert_eq!(events.of_new(last + 1).unwrap_err().code, Code::NoMemory);
        assert!(Arc::ptr_eq(&events.of_new(last).unwrap(), &busy[USERS_MAX - 1]));
        drop(events.of_new(0).unwrap());
        // Of those without rules, nobody is busy with this one.
        busy.pop();
        assert!(events.of_new(last + 1).is_ok());
        assert!(events.of(last).is_none());
        drop(busy);
        events.look(&mut |_| unreachable!());
        assert!(events.all().is_empty());
    }
}
