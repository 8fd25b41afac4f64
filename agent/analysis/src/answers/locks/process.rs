//! Which process a thread is of: addresses of different processes are different locks.

use std::collections::HashMap;

use crate::answers::Tid;

/// Most threads whose processes are known from the start.
const MOST: usize = 1 << 18;

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Process {
    /// The id of its first thread.
    pub(super) pid: Tid,
    /// Tells processes apart that had the same id one after the other; 0 for one that was there before.
    number: u32,
}

impl Process {
    /// Whether it was there before the recording, with the program that it had then.
    pub(super) fn was_before(self) -> bool {
        self.number == 0
    }
}

/// Processes, as far as they are known: of threads that were there before, by the file's list of them, of
/// others by what they share with the one that made them.
#[derive(Clone, Debug, Default)]
pub(super) struct Processes {
    /// The processes of threads that were there before.
    before: HashMap<Tid, Tid>,
    count: u32,
}

impl Processes {
    /// Of threads that were there before: thread and process.
    pub(super) fn new(before: impl IntoIterator<Item = (Tid, Tid)>) -> Self {
        Self { before: before.into_iter().take(MOST).collect(), count: 0 }
    }

    /// The process of a thread that was not seen to begin.
    pub(super) fn before(&self, tid: Tid) -> Option<Process> {
        self.before.get(&tid).map(|pid| Process { pid: *pid, number: 0 })
    }

    /// An id belongs to another thread from now on.
    pub(super) fn forget(&mut self, tid: Tid) {
        self.before.remove(&tid);
    }

    /// A new process.
    pub(super) fn begin(&mut self, pid: Tid) -> Process {
        self.count = self.count.saturating_add(1);
        Process { pid, number: self.count }
    }
}
