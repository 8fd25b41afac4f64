//! What `sched_switch` says of the thread that gives its CPU away.

use serde::Serialize;

/// Bits of `prev_state` (include/linux/sched.h): those that `TASK_REPORT` has, in which `R` is none of them
/// and `R+` the one above.
mod bit {
    pub(super) const INTERRUPTIBLE: u64 = 0x1;
    pub(super) const UNINTERRUPTIBLE: u64 = 0x2;
    pub(super) const EXIT_DEAD: u64 = 0x10;
    pub(super) const EXIT_ZOMBIE: u64 = 0x20;
    pub(super) const DEAD: u64 = EXIT_DEAD | EXIT_ZOMBIE;
    /// A thread of the kernel that sleeps without being part of the load.
    pub(super) const IDLE: u64 = 0x80;
    pub(super) const REPORT: u64 = 0xff;
}

/// Why a thread has no CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Off {
    /// It could go on.
    Preempted,
    /// It waits for something, and a signal can end that.
    Sleeping,
    /// It waits for something that no signal ends: a disk, mostly (`D`).
    Blocked,
    /// It was stopped, or is traced.
    Stopped,
}

/// Why a thread gives its CPU away, by its `prev_state`. `None` if it will not run again.
pub(super) fn off(prev_state: u64) -> Option<Off> {
    match prev_state & bit::REPORT {
        0 => Some(Off::Preempted),
        bits if bits & bit::DEAD != 0 => None,
        bits if bits & bit::UNINTERRUPTIBLE != 0 && bits & bit::IDLE == 0 => Some(Off::Blocked),
        bits if bits & (bit::INTERRUPTIBLE | bit::IDLE) != 0 => Some(Off::Sleeping),
        _ => Some(Off::Stopped),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_the_kernel() {
        let states = [0, 0x100, 1, 2, 0x402, 0x82, 4, 8, 0x10, 0x20].map(off);
        let (preempted, sleeping, blocked, stopped) =
            (Some(Off::Preempted), Some(Off::Sleeping), Some(Off::Blocked), Some(Off::Stopped));
        let expected =
            [preempted, preempted, sleeping, blocked, blocked, sleeping, stopped, stopped, None, None];
        assert_eq!(states, expected);
    }
}
