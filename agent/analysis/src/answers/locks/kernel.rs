//! Waits for locks of the kernel.
//!
//! A wait begins with `lock:contention_begin` and ends with the `lock:contention_end` of the same thread and
//! lock. Others can be inside: for the spinlock that guards the queue of a mutex, or of an interrupt. A mutex
//! begins again whenever its waiter goes from spinning to sleeping and back (`__mutex_lock_common`,
//! kernel/locking/mutex.c): that is one wait.

use std::collections::{BTreeMap, btree_map::Entry};

use super::LockKind;
use crate::answers::parts::{Part, StackParts};
use crate::answers::tally::Room;
use crate::answers::who::Who;
use crate::answers::{At, Scope, Times};

/// Most combinations of a lock, a waiter and a stack.
const MOST_KEYS: usize = 1 << 17;

/// Most waits that are inside one another.
pub(super) const DEPTH: usize = 16;

/// A wait that goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub(super) lock: u64,
    pub(super) kind: LockKind,
    pub(super) since: u64,
    pub(super) losses: u64,
    pub(super) who: Who,
    pub(super) stack: StackParts,
}

/// The waits of a thread, or of a CPU's idle thread, the innermost last.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits(Vec<Wait>);

impl Waits {
    /// A wait begins. Gives its depth, unless it is one that goes on, and how many have ended unseen.
    pub(super) fn begin(&mut self, wait: Wait) -> (Option<usize>, u64) {
        let same = self.0.iter().rposition(|open| open.lock == wait.lock);
        let mut unseen = 0;
        if let Some(index) = same {
            let open = &self.0[index];
            let goes_on =
                (open.kind, open.losses) == (LockKind::Mutex, wait.losses) && wait.kind == open.kind;
            let left = index + usize::from(goes_on);
            unseen = self.0.len() - left;
            self.0.truncate(left);
            if goes_on {
                return (None, unseen as u64);
            }
        }
        if self.0.len() >= DEPTH {
            self.0.remove(0);
            unseen += 1;
        }
        self.0.push(wait);
        (Some(self.0.len() - 1), unseen as u64)
    }

    /// A wait ends. Gives it, if its beginning was seen, and how many others have ended unseen.
    pub(super) fn end(&mut self, lock: u64) -> (Option<Wait>, u64) {
        let Some(index) = self.0.iter().rposition(|open| open.lock == lock) else { return (None, 0) };
        let unseen = self.0.len() - index - 1;
        self.0.truncate(index + 1);
        (self.0.pop(), unseen as u64)
    }

    /// The wait of this depth.
    pub(super) fn get_mut(&mut self, depth: usize) -> Option<&mut Wait> {
        self.0.get_mut(depth)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Wait> {
        self.0.iter()
    }

    /// The same, to change.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Wait> {
        self.0.iter_mut()
    }
}

/// What is told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) lock: u64,
    pub(super) kind: LockKind,
    pub(super) who: Who,
    pub(super) stack: Option<Part>,
}

/// What is told of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    pub(super) times: Times,
    /// Waits that ended without the lock.
    pub(super) failed: u64,
    /// Waits that go on at the end, and for how long they have.
    pub(super) open: u64,
    pub(super) open_time: u64,
}

impl Told {
    pub(super) fn merge(&mut self, other: &Self) {
        self.times.merge(&other.times);
        self.failed += other.failed;
        self.open += other.open;
        self.open_time = self.open_time.saturating_add(other.open_time);
    }
}

/// Locks of the kernel.
#[derive(Clone, Debug, Default)]
pub(super) struct KernelLocks {
    /// What idle threads wait for, by CPU.
    pub(super) idle: BTreeMap<u32, Waits>,
    pub(super) told: BTreeMap<Key, Told>,
    /// For the times of all of these.
    sizes: Room,
    pub(super) left_out: u64,
    /// Ends without a beginning.
    pub(super) unmatched: u64,
    /// Beginnings without an end.
    pub(super) unfinished: u64,
}

impl KernelLocks {
    /// What is told of a wait, and room for times. `None` if there is no room for it.
    fn told(&mut self, wait: &Wait) -> Option<(&mut Told, &mut Room)> {
        let key = Key { lock: wait.lock, kind: wait.kind, who: wait.who, stack: wait.stack.kernel };
        let is_full = self.told.len() >= MOST_KEYS;
        match self.told.entry(key) {
            Entry::Occupied(told) => Some((told.into_mut(), &mut self.sizes)),
            Entry::Vacant(_) if is_full => {
                self.left_out += 1;
                None
            }
            Entry::Vacant(place) => Some((place.insert(Told::default()), &mut self.sizes)),
        }
    }

    /// Counts a wait that has ended.
    pub(super) fn tell(&mut self, at: At, wait: &Wait, result: i64, scope: &Scope) {
        let Some((told, sizes)) = self.told(wait) else { return };
        told.times.add_within(scope.part(wait.since, at.time), at.time, sizes);
        told.failed += u64::from(result != 0);
    }

    /// Counts a wait that goes on at the end.
    pub(super) fn close(&mut self, wait: &Wait, losses: u64, scope: &Scope, end: u64) {
        if wait.losses != losses {
            self.unfinished += 1;
            return;
        }
        let time = scope.part(wait.since, end);
        if let Some((told, _)) = self.told(wait) {
            told.open += 1;
            told.open_time = told.open_time.saturating_add(time);
        }
    }

    /// Forgets what was counted. What is left are the stacks of waits that go on.
    pub(super) fn restart(&mut self) {
        self.told.clear();
        self.sizes = Room::default();
        (self.left_out, self.unmatched, self.unfinished) = (0, 0, 0);
    }
}
