//! How much each user has taken of something that there is a limited amount of.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// An amount, which neither overflows nor becomes less than nothing.
pub(super) trait Amount: Copy + Default + PartialEq {
    /// With so much more.
    fn more(self, by: Self) -> Self;

    /// With so much less.
    fn less(self, by: Self) -> Self;
}

impl Amount for u64 {
    fn more(self, by: Self) -> Self {
        self.saturating_add(by)
    }

    fn less(self, by: Self) -> Self {
        self.saturating_sub(by)
    }
}

/// What the users have, by their ids; of those who have nothing there is no entry.
#[derive(Debug, Default)]
pub(super) struct Amounts<A>(Mutex<BTreeMap<u32, A>>);

impl<A: Amount> Amounts<A> {
    /// Changes what a user has, unless `change` refuses that.
    pub(super) fn try_change<E>(&self, uid: u32, change: impl FnOnce(A) -> Result<A, E>) -> Result<(), E> {
        let mut all = self.all();
        let after = change(all.get(&uid).copied().unwrap_or_default())?;
        if after == A::default() {
            all.remove(&uid);
        } else {
            all.insert(uid, after);
        }
        Ok(())
    }

    /// Changes what a user has.
    pub(super) fn change(&self, uid: u32, change: impl FnOnce(A) -> A) {
        let Ok(()) = self.try_change(uid, |before| Ok::<_, Infallible>(change(before)));
    }

    /// Whether nobody has anything.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<u32, A>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_amounts_of_their_own_until_they_have_none() {
        let amounts = Amounts::<u64>::default();
        amounts.change(1, |before| before.more(5));
        amounts.change(2, |before| before.more(u64::MAX).more(1));
        assert_eq!(amounts.try_change(1, Err::<u64, u64>), Err(5));
        amounts.change(2, |before| {
            assert_eq!(before, u64::MAX);
            0
        });
        assert!(!amounts.is_empty());
        amounts.change(1, |before| before.less(6));
        assert!(amounts.is_empty());
    }
}
