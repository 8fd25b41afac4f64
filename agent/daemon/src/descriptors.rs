//! How many file descriptors the recordings and triggers of a user may have, so that others find some left.

use std::sync::Arc;

use rustix::process::{Resource, getrlimit};

use super::amounts::{Amount as _, Amounts};
use api::{Code, ControlError};

/// The descriptors that the recordings of all users have.
#[derive(Clone, Debug)]
pub(super) struct Descriptors {
    max: u64,
    used: Arc<Amounts<u64>>,
}

/// Those of a user. Root may have all that there are.
#[derive(Clone, Debug)]
pub(super) struct OfUser {
    all: Descriptors,
    uid: u32,
}

/// Descriptors that a recording may open, given back when this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    of: OfUser,
    count: u64,
}

impl Descriptors {
    /// So many for each user; a quarter of what this process may open where nothing is said.
    pub(super) fn new(max: Option<u64>) -> Self {
        let quarter = || getrlimit(Resource::Nofile).current.map_or(u64::MAX, |limit| limit / 4);
        Self { max: max.unwrap_or_else(quarter), used: Arc::default() }
    }

    /// Those of a user.
    pub(super) fn of(&self, uid: u32) -> OfUser {
        OfUser { all: self.clone(), uid }
    }
}

impl OfUser {
    /// Takes so many.
    ///
    /// # Errors
    /// The user has too many then.
    pub(super) fn take(&self, count: u64) -> Result<Held, ControlError> {
        self.all.used.try_change(self.uid, |before| {
            let (after, max) = (before.more(count), self.all.max);
            if self.uid == 0 || after <= max {
                return Ok(after);
            }
            Err(ControlError::new(
                Code::NoMemory,
                format!(
                    "this would open up to {count} descriptors, user {}'s other recordings and the watch of \
                     its triggers have up to {before}, and a user may have {max}: stop a session, remove \
                     triggers about events, or choose fewer events or channels; root starts the daemon with \
                     --user-descriptors to allow more",
                    self.uid
                ),
            ))
        })?;
        Ok(Held { of: self.clone(), count })
    }

    /// Takes so many that another daemon has let the user have.
    pub(super) fn keep(&self, count: u64) -> Held {
        self.all.used.change(self.uid, |before| before.more(count));
        Held { of: self.clone(), count }
    }
}

impl Held {
    /// How many they are.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Holds those of another one, too.
    pub(super) fn join(&mut self, mut other: Self) {
        self.count = self.count.saturating_add(std::mem::take(&mut other.count));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.of.all.used.change(self.of.uid, |before| before.less(self.count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_so_many_and_others_have_their_own() {
        let descriptors = Descriptors::new(Some(100));
        let (alice, bob, root) = (descriptors.of(1000), descriptors.of(1001), descriptors.of(0));
        let mut first = alice.take(60).unwrap();
        let refused = alice.take(41).unwrap_err();
        assert_eq!(refused.code, Code::NoMemory);
        let values = ["up to 41 descriptors", "user 1000's", "have up to 60", "may have 100"];
        assert!(values.iter().all(|value| refused.message.contains(value)), "{refused}");
        drop((bob.take(100).unwrap(), root.take(1000).unwrap()));
        first.join(alice.take(40).unwrap());
        assert!(alice.take(1).is_err());
        drop(first);
        drop(alice.take(100).unwrap());
        assert!(descriptors.used.is_empty());
    }
}
