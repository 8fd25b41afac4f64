//! The clocks that timestamps are taken from.
//!
//! An eBPF program can read three of ftrace's clocks with the very function ftrace uses, so that files of
//! both merge exactly: `bpf_ktime_get_ns` is `mono`, `bpf_ktime_get_boot_ns` is `boot`, and, from Linux 6.1,
//! `bpf_ktime_get_tai_ns` is `tai` (`kernel/bpf/helpers.c`, `trace_clocks` in `kernel/trace/trace.c`). There
//! is no helper for `local`, `global`, `perf`, `mono_raw` or the cycle counter.

use rustix::time::{ClockId, DynamicClockId, clock_gettime, clock_gettime_dynamic};

use spec::TraceClock;

use super::version::KernelVersion;

/// The difference between a clock and wall time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RealtimeOffset {
    /// What to add to the clock's time to get `CLOCK_REALTIME`, in nanoseconds.
    pub offset_ns: i64,
    /// How wrong that can be: half the time between the two readings of the clock around the one of wall
    /// time.
    pub uncertainty_ns: u64,
}

/// The readings of a clock on this machine.
pub trait ReadClock {
    /// The first kernel whose eBPF programs can read it.
    fn since(self) -> KernelVersion;

    /// The clock's time now, in nanoseconds.
    fn now_ns(self) -> u64;

    /// Measures how far the clock is from wall time: reads it, wall time, and it again, many times, and keeps
    /// the round in which the two readings of it were closest, which is the one that nothing interrupted.
    fn realtime_offset(self) -> RealtimeOffset;
}

impl ReadClock for TraceClock {
    fn since(self) -> KernelVersion {
        match self {
            Self::Mono | Self::Boot => KernelVersion::new(5, 15, 0),
            Self::Tai => KernelVersion::new(6, 1, 0),
        }
    }

    fn now_ns(self) -> u64 {
        let time = match self {
            Self::Mono => clock_gettime(ClockId::Monotonic),
            Self::Boot => clock_gettime(ClockId::Boottime),
            // Every kernel that has eBPF has it (3.10); rustix counts it among the clocks that may be
            // missing.
            Self::Tai => clock_gettime_dynamic(DynamicClockId::Tai)
                .unwrap_or_else(|_| clock_gettime(ClockId::Realtime)),
        };
        nanoseconds(&time) as u64
    }

    fn realtime_offset(self) -> RealtimeOffset {
        const ROUNDS: usize = 32;
        let round = || {
            let before = self.now_ns();
            let wall = nanoseconds(&clock_gettime(ClockId::Realtime));
            // tai steps back when the leap seconds are set; a reading of that moment is of no use.
            let apart = self.now_ns().checked_sub(before)?;
            let middle = before + apart / 2;
            Some(RealtimeOffset { offset_ns: wall - middle as i64, uncertainty_ns: apart.div_ceil(2) })
        };
        let best = (0..ROUNDS).filter_map(|_| round()).min_by_key(|offset| offset.uncertainty_ns);
        best.unwrap_or_else(|| {
            let offset_ns = nanoseconds(&clock_gettime(ClockId::Realtime)) - self.now_ns() as i64;
            RealtimeOffset { offset_ns, uncertainty_ns: 1_000_000_000 }
        })
    }
}

fn nanoseconds(time: &rustix::time::Timespec) -> i64 {
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_turns_the_clock_into_wall_time() {
        for clock in TraceClock::ALL {
            let RealtimeOffset { offset_ns, uncertainty_ns } = clock.realtime_offset();
            let wall = nanoseconds(&clock_gettime(ClockId::Realtime));
            let computed = clock.now_ns() as i64 + offset_ns;
            // Only that it is the right one of the clocks: how fast this machine is does not matter.
            assert!((computed - wall).abs() < 10_000_000_000, "{clock}: {computed} {wall}");
            assert!(uncertainty_ns < 1_000_000_000);
        }
    }
}
