//! The threads of a recording. An id is used again: what it means depends on when.

use super::known::Tid;
use stdx::fast_map::FastMap;

/// Most threads that are told apart. Those behind are left out, and counted.
pub(super) const MOST: usize = 1 << 18;

/// Ids of threads are smaller than this: `PID_MAX_LIMIT` of a machine with 64 bits (include/linux/threads.h).
pub(super) const TIDS: usize = 1 << 22;

/// Most bytes of a name: the kernel's have 15, formats of a hostile file more.
const NAME: usize = 64;

/// A thread, by its place in the order in which they were seen.
pub type Index = usize;

/// A thread.
#[derive(Clone, Debug)]
pub struct Thread<T> {
    /// Its id.
    pub tid: Tid,
    /// The last name that a record had of it; empty if none had one.
    pub name: Box<[u8]>,
    /// What an analysis knows of it.
    pub of: T,
}

/// Threads, with what an analysis knows of each.
#[derive(Clone, Debug)]
pub struct Threads<T> {
    all: Vec<Thread<T>>,
    now: Ids,
    left_out: u64,
}

/// Who has an id now.
#[derive(Clone, Debug, Default)]
struct Ids {
    /// The thread with each id, from 1 on; 0 for none. No more than 16 MiB.
    low: Vec<u32>,
    /// The same for ids that no kernel gives.
    high: FastMap<Tid, Index>,
}

impl Ids {
    #[inline]
    fn get(&self, tid: Tid) -> Option<Index> {
        match self.low.get(tid as usize) {
            Some(index) => (*index as usize).checked_sub(1),
            None => self.high.get(&tid).copied(),
        }
    }

    fn set(&mut self, tid: Tid, index: Index) {
        let at = tid as usize;
        if at >= TIDS {
            self.high.insert(tid, index);
            return;
        }
        if at >= self.low.len() {
            self.low.resize((at + 1).next_power_of_two(), 0);
        }
        // There are fewer threads than ids.
        self.low[at] = index as u32 + 1;
    }

    fn remove(&mut self, tid: Tid) {
        match self.low.get_mut(tid as usize) {
            Some(index) => *index = 0,
            None => drop(self.high.remove(&tid)),
        }
    }
}

impl<T> Default for Threads<T> {
    fn default() -> Self {
        Self { all: Vec::new(), now: Ids::default(), left_out: 0 }
    }
}

impl<T> Threads<T> {
    /// The thread that has an id now, and whether it is a new one, of which `make` says what is known. `None`
    /// for one that is left out.
    pub fn find(&mut self, tid: Tid, make: impl FnOnce() -> T) -> Option<(Index, &mut Thread<T>)> {
        let index = match self.now.get(tid) {
            Some(index) => index,
            None => self.add(tid, make())?,
        };
        Some((index, self.all.get_mut(index)?))
    }

    /// A new thread that has an id from now on.
    pub fn begin(&mut self, tid: Tid, of: T) -> Option<&mut Thread<T>> {
        let index = self.add(tid, of)?;
        self.all.get_mut(index)
    }

    fn add(&mut self, tid: Tid, of: T) -> Option<Index> {
        if self.all.len() >= MOST {
            // What comes with the id is not the former thread's.
            self.now.remove(tid);
            self.left_out += 1;
            return None;
        }
        let index = self.all.len();
        self.all.push(Thread { tid, name: Box::default(), of });
        self.now.set(tid, index);
        Some(index)
    }

    /// The thread that has an id now, if one was seen.
    pub fn current(&mut self, tid: Tid) -> Option<&mut Thread<T>> {
        let index = self.now.get(tid)?;
        self.all.get_mut(index)
    }

    /// Its place in the order in which threads were seen.
    pub fn current_index(&self, tid: Tid) -> Option<Index> {
        self.now.get(tid)
    }

    /// The thread that had an id does not have it any more.
    pub fn end(&mut self, tid: Tid) {
        self.now.remove(tid);
    }

    /// The thread that had an id has another one from now on, and under that one a row of its own. Gives both
    /// rows; `make` makes the second one unless it was seen there before.
    pub fn take(&mut self, from: Tid, to: Tid, make: impl FnOnce() -> T) -> Option<(Index, Index)> {
        let was = self.now.get(from);
        self.now.remove(from);
        let (is, _) = self.find(to, make)?;
        Some((was?, is))
    }

    /// Two different threads.
    pub fn two(&mut self, one: Index, other: Index) -> Option<(&mut Thread<T>, &mut Thread<T>)> {
        let [one, other] = self.all.get_disjoint_mut([one, other]).ok()?;
        Some((one, other))
    }

    /// Forgets threads that have ended, and who was left out: the numbers of the others change. All are
    /// forgotten if the rest leaves no room: of so many, most have ended without a record that says so.
    /// Returns whether it is so.
    pub(super) fn forget_ended(&mut self) -> bool {
        let (mut index, now) = (0, &self.now);
        self.all.retain(|thread| {
            index += 1;
            now.get(thread.tid) == Some(index - 1)
        });
        self.left_out = 0;
        if self.all.len() >= MOST {
            *self = Self::default();
            return true;
        }
        for (index, thread) in self.all.iter().enumerate() {
            self.now.set(thread.tid, index);
        }
        false
    }

    /// All of them, in the order in which they were seen.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Thread<T>> {
        self.all.iter_mut()
    }

    /// The same, to look at.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Thread<T>> {
        self.all.iter()
    }

    /// A thread by its place in that order.
    pub fn get(&self, index: Index) -> Option<&Thread<T>> {
        self.all.get(index)
    }

    /// The same.
    pub fn get_mut(&mut self, index: Index) -> Option<&mut Thread<T>> {
        self.all.get_mut(index)
    }

    /// How often a thread was seen for which there was no room.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Whether half of the room is taken.
    pub(super) fn is_half_full(&self) -> bool {
        self.all.len() >= MOST / 2
    }

    /// The same, and who was left out: how often a thread was seen for which there was no room.
    pub fn into_parts(self) -> (Vec<Thread<T>>, u64) {
        (self.all, self.left_out)
    }
}

/// As much of a name as is kept.
pub(super) fn bounded(name: &[u8]) -> &[u8] {
    &name[..name.len().min(NAME)]
}

impl<T> Thread<T> {
    /// Takes a name from a record.
    pub fn is_called(&mut self, name: &[u8]) {
        let name = bounded(name);
        if !name.is_empty() && *self.name != *name {
            self.name = name.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_used_again() {
        let mut threads = Threads::default();
        let first = threads.find(7, || 'a').map(|(index, _)| index);
        assert_eq!(
            threads.find(7, || 'b').map(|(index, thread)| (index, thread.of)),
            first.map(|at| (at, 'a'))
        );
        threads.end(7);
        assert_eq!(threads.find(7, || 'c').map(|(_, thread)| thread.of), Some('c'));
        threads.begin(7, 'd');
        threads.find(8, || 'e');
        threads.end(8);
        let mut rest = threads.clone();
        rest.forget_ended();
        assert_eq!(rest.find(7, || 'x').map(|(index, thread)| (index, thread.of)), Some((0, 'd')));
        assert_eq!(rest.into_parts().0.len(), 1);
        let (all, left_out) = threads.into_parts();
        assert_eq!(all.iter().map(|thread| thread.of).collect::<String>(), "acde");
        assert_eq!(left_out, 0);
    }

    #[test]
    fn ids_that_no_kernel_gives_are_ids_as_well() {
        let mut threads = Threads::default();
        for (nth, tid) in [0, 1, TIDS as Tid - 1, TIDS as Tid, Tid::MAX].into_iter().enumerate() {
            let found = threads.find(tid, || tid).map(|(index, thread)| (index, thread.of));
            assert_eq!(found, Some((nth, tid)));
            assert_eq!(threads.find(tid, || 7).map(|(_, thread)| thread.of), Some(tid));
        }
        assert_eq!(threads.now.low.len(), TIDS);
        threads.end(Tid::MAX);
        threads.end(1);
        threads.forget_ended();
        assert_eq!(threads.find(Tid::MAX, || 8).map(|(index, _)| index), Some(3));
        assert_eq!(threads.find(TIDS as Tid, || 9).map(|(index, _)| index), Some(2));
    }

    #[test]
    fn there_is_room_for_so_many_threads_and_no_more() {
        let mut threads = Threads::default();
        for tid in 0..MOST as Tid + 10 {
            assert_eq!(threads.find(tid, || ()).is_some(), (tid as usize) < MOST);
        }
        let (all, left_out) = threads.into_parts();
        assert_eq!((all.len(), left_out), (MOST, 10));
    }

    #[test]
    fn threads_whose_end_is_not_told_are_forgotten_when_there_is_no_room() {
        let mut threads = Threads::default();
        for tid in 0..MOST as Tid - 1 {
            threads.find(tid, || 'a');
        }
        assert!(!threads.forget_ended());
        threads.find(MOST as Tid - 1, || 'b');
        assert!(threads.find(MOST as Tid, || 'c').is_none());
        assert!(threads.forget_ended());
        assert_eq!(threads.find(7, || 'd').map(|(index, thread)| (index, thread.of)), Some((0, 'd')));
        assert_eq!(threads.left_out(), 0);
    }

    #[test]
    fn names_are_bounded_and_the_last_one_counts() {
        let mut threads = Threads::default();
        let (_, thread) = threads.find(1, || ()).unwrap();
        thread.is_called(b"one");
        thread.is_called(b"");
        assert_eq!(&*thread.name, b"one");
        thread.is_called(&[b'x'; 1000]);
        assert_eq!(thread.name.len(), NAME);
    }
}
