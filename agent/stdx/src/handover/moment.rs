//! Points in time that processes of one boot mean the same by.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A point in time: nanoseconds of the monotonic clock, as [`Instant`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment(u64);

impl From<Instant> for Moment {
    fn from(instant: Instant) -> Self {
        let age = u64::try_from(instant.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Self(now().saturating_sub(age))
    }
}

impl From<Moment> for Instant {
    /// One from before anything that this clock can say is now.
    fn from(Moment(moment): Moment) -> Self {
        let present = Self::now();
        present.checked_sub(Duration::from_nanos(now().saturating_sub(moment))).unwrap_or(present)
    }
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_an_instant() {
        let before = Instant::now();
        std::thread::sleep(Duration::from_millis(20));
        let again = Instant::from(Moment::from(before));
        let apart = before.max(again) - before.min(again);
        assert!(apart < Duration::from_millis(100), "{apart:?}");
    }
}
