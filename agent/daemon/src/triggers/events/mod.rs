//! Events that match rules of triggers, of each user by itself.
//!
//! A user with such triggers has a watch, with rings, a thread that takes half a CPU at most, and programs:
//! whatever matches the rules of one user, those of others are found as if it did not. Within a watch, a rule
//! that matches all the time leaves room to others ([`capture::watch`]). A watch's memory and descriptors are
//! of its user's share.

mod of_user;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

pub(super) use of_user::Look;

use super::{Triggers, side_by_side, trigger::Entry};
use crate::descriptors::Descriptors;
use crate::lock;
use crate::sessions::World;
use crate::shares::Shares;
use api::trigger::Condition;
use api::{Code, ControlError};
use of_user::{UserEvents, rule_of};

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

    /// Whether there is a rule about programs that may come.
    pub(super) fn waits_for_programs(&self) -> bool {
        self.all().iter().any(|of| of.waits_for_programs())
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
        if uid != 0 && users.keys().filter(|uid| **uid != 0).count() >= USERS_MAX {
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

    /// Notes for the triggers of a user, or of all, what they have missed.
    pub(super) fn note(&self, uid: Option<u32>) {
        match uid {
            Some(uid) => self.of(uid).iter().for_each(|of| of.note()),
            None => self.all().iter().for_each(|of| of.note()),
        }
    }

    /// Looks at the counts of all rules, and notes what was missed. Gives what is found of each trigger, but
    /// not of users whose rules are being changed at this moment.
    pub(super) fn look(&self) -> Vec<Look> {
        forget_unused(&mut lock(&self.users));
        self.all().iter().flat_map(|of| of.look()).collect()
    }

    /// There are other programs: watches for those of their markers that rules mean, and no longer for those
    /// of programs that are gone.
    pub(super) fn follow(&self, triggers: &Arc<Triggers>, world: &World) {
        side_by_side(&self.all(), |of| of.follow(triggers, world));
    }

    /// Watches for nothing any more. What has come by now fires, or is noted as missed. Users are finished
    /// with side by side.
    pub(super) fn finish(&self, triggers: &Arc<Triggers>) {
        side_by_side(&self.all(), |of| of.finish(triggers));
    }

    /// Ends all of it, because the daemon ends.
    pub(super) fn end(&self) {
        let all = std::mem::take(&mut *lock(&self.users));
        all.values().for_each(|of| of.end());
    }
}

/// Forgets users without rules, with whom nobody is busy: who is has got them under the same lock.
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
        assert!(events.look().is_empty() && events.all().is_empty());
    }
}
