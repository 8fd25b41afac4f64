//! Names and processes of threads, in the order of time: records of different CPUs, and those that perf makes
//! itself, come in another one, and a trace.dat has one name of a thread, which is its last.

use std::collections::HashSet;

use crate::Sink;

/// Bytes of a name with its NUL (`TASK_COMM_LEN`).
const COMM_LEN: usize = 16;
/// Changes that are kept to be sorted. perf writes what is older than a round before what is newer, so that
/// half of them suffices for any order.
const KEPT: usize = 1 << 20;
/// A kernel has no more threads at a time (`PID_MAX_LIMIT` of include/linux/threads.h).
const SEEN_MAX: usize = 1 << 22;
/// The process of a thread that has ended.
const GONE: u32 = u32::MAX;

/// A change at a time.
#[derive(Clone, Copy, Debug)]
struct Change {
    time: u64,
    tid: u32,
    process: u32,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// The thread has this name from then on.
    Named([u8; COMM_LEN]),
    /// Another thread has made it.
    MadeBy(u32),
}

/// The changes that are not with the sink yet.
#[derive(Debug, Default)]
pub(super) struct Threads {
    changes: Vec<Change>,
    /// Threads whose process samples have shown.
    seen: HashSet<u32>,
}

impl Threads {
    /// A thread of a process gets a name. Without a time it had it before everything else.
    pub(super) fn named(
        &mut self,
        time: Option<u64>,
        (process, tid): (u32, u32),
        name: &[u8],
        sink: &mut Sink<'_>,
    ) {
        let mut comm = [0; COMM_LEN];
        let len = name.len().min(COMM_LEN - 1);
        if let Some((to, from)) = comm.get_mut(..len).zip(name.get(..len)) {
            to.copy_from_slice(from);
        }
        self.push(Change { time: time.unwrap_or(0), tid, process, what: What::Named(comm) }, sink);
    }

    /// A thread is made.
    pub(super) fn made(
        &mut self,
        time: Option<u64>,
        (process, tid): (u32, u32),
        parent: u32,
        sink: &mut Sink<'_>,
    ) {
        self.push(Change { time: time.unwrap_or(0), tid, process, what: What::MadeBy(parent) }, sink);
    }

    /// A sample shows the process of a thread. Records about threads overrule it.
    pub(super) fn seen(&mut self, (process, tid): (u32, u32), sink: &mut Sink<'_>) {
        if tid != 0 && process != GONE && self.seen.len() < SEEN_MAX && self.seen.insert(tid) {
            sink.process(tid, process);
        }
    }

    fn push(&mut self, change: Change, sink: &mut Sink<'_>) {
        if self.changes.len() >= KEPT {
            self.give(KEPT / 2, sink);
        }
        self.changes.push(change);
    }

    /// Gives the oldest changes to the sink.
    fn give(&mut self, count: usize, sink: &mut Sink<'_>) {
        self.changes.sort_by_key(|change| change.time);
        for Change { tid, process, what, .. } in self.changes.drain(..count.min(self.changes.len())) {
            match what {
                What::Named(comm) => sink.task(tid, super::bytes::up_to_nul(&comm)),
                // A new thread has the name of the one that made it, until it gets another.
                What::MadeBy(parent) => {
                    if let Some(name) = sink.task_name(parent).map(<[u8]>::to_vec) {
                        sink.task(tid, &name);
                    }
                }
            }
            if process != GONE {
                sink.process(tid, process);
                if self.seen.len() < SEEN_MAX {
                    self.seen.insert(tid);
                }
            }
        }
    }

    /// Gives all changes to the sink.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        self.give(usize::MAX, sink);
    }
}
