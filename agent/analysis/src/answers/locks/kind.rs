//! Kinds of the kernel's locks.

use serde::Serialize;

/// `LCB_F_*` of include/trace/events/lock.h.
mod flag {
    pub(super) const SPIN: u64 = 1 << 0;
    pub(super) const READ: u64 = 1 << 1;
    pub(super) const WRITE: u64 = 1 << 2;
    pub(super) const RT: u64 = 1 << 3;
    pub(super) const PERCPU: u64 = 1 << 4;
    pub(super) const MUTEX: u64 = 1 << 5;
}

/// A kind of lock of the kernel, and what it is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LockKind {
    /// A spinlock.
    Spinlock,
    /// A spinning lock of readers and writers, to read.
    RwlockRead,
    /// The same, to write.
    RwlockWrite,
    /// A sleeping lock of readers and writers, to read.
    RwsemRead,
    /// The same, to write.
    RwsemWrite,
    /// A mutex with inheritance of priority.
    RtMutex,
    /// A lock of readers and writers of a kernel with `PREEMPT_RT`, to read.
    RtRead,
    /// The same, to write.
    RtWrite,
    /// A sleeping lock whose readers are counted by CPU, to read.
    PercpuRead,
    /// The same, to write.
    PercpuWrite,
    /// A mutex, waited for by spinning or sleeping.
    Mutex,
    /// A counting semaphore: the one kind that has no flag.
    Semaphore,
    /// Flags that are not known here.
    Unknown,
}

impl LockKind {
    /// The kind that flags stand for.
    pub(super) fn of(flags: u64) -> Self {
        use flag::{MUTEX, PERCPU, READ, RT, SPIN, WRITE};
        const KINDS: [(u64, LockKind); 13] = [
            (0, LockKind::Semaphore),
            (SPIN, LockKind::Spinlock),
            (SPIN | READ, LockKind::RwlockRead),
            (SPIN | WRITE, LockKind::RwlockWrite),
            (READ, LockKind::RwsemRead),
            (WRITE, LockKind::RwsemWrite),
            (RT, LockKind::RtMutex),
            (RT | READ, LockKind::RtRead),
            (RT | WRITE, LockKind::RtWrite),
            (PERCPU | READ, LockKind::PercpuRead),
            (PERCPU | WRITE, LockKind::PercpuWrite),
            (MUTEX, LockKind::Mutex),
            (MUTEX | SPIN, LockKind::Mutex),
        ];
        KINDS.iter().find(|(of, _)| *of == flags).map_or(Self::Unknown, |(_, kind)| *kind)
    }

    /// Its name, as `perf lock contention` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spinlock => "spinlock",
            Self::RwlockRead => "rwlock:R",
            Self::RwlockWrite => "rwlock:W",
            Self::RwsemRead => "rwsem:R",
            Self::RwsemWrite => "rwsem:W",
            Self::RtMutex => "rt-mutex",
            Self::RtRead => "rwlock-rt:R",
            Self::RtWrite => "rwlock-rt:W",
            Self::PercpuRead => "pcpu-sem:R",
            Self::PercpuWrite => "pcpu-sem:W",
            Self::Mutex => "mutex",
            Self::Semaphore => "semaphore",
            Self::Unknown => "?",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_kinds() {
        let flags = [0, 1, 3, 5, 2, 4, 8, 10, 12, 18, 20, 32, 33, 6, 64, u64::MAX];
        let names = flags.map(|flags| LockKind::of(flags).name());
        let expected = [
            "semaphore",
            "spinlock",
            "rwlock:R",
            "rwlock:W",
            "rwsem:R",
            "rwsem:W",
            "rt-mutex",
            "rwlock-rt:R",
            "rwlock-rt:W",
            "pcpu-sem:R",
            "pcpu-sem:W",
            "mutex",
            "mutex",
            "?",
            "?",
            "?",
        ];
        assert_eq!(names, expected);
    }
}
