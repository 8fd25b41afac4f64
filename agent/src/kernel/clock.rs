//! The clocks that timestamps are taken from.
//!
//! An eBPF program can read three of ftrace's clocks with the very function ftrace uses, so that files of
//! both merge exactly: `bpf_ktime_get_ns` is `mono`, `bpf_ktime_get_boot_ns` is `boot`, and, from Linux 6.1,
//! `bpf_ktime_get_tai_ns` is `tai` (`kernel/bpf/helpers.c`, `trace_clocks` in `kernel/trace/trace.c`). There
//! is no helper for `local`, `global`, `perf`, `mono_raw` or the cycle counter.

use std::fmt;
use std::str::FromStr;

use rustix::time::{ClockId, DynamicClockId, clock_gettime, clock_gettime_dynamic};

use super::version::KernelVersion;

/// The clocks that ftrace has on kernels of today (`trace_clocks` in `kernel/trace/trace.c`), without those
/// of one architecture. For files, when tracefs cannot be asked.
const FTRACE_CLOCKS: &str = "local global counter uptime perf mono mono_raw boot tai";

/// A clock that timestamps can be taken from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum TraceClock {
    /// `CLOCK_MONOTONIC`: never steps, stands still while the machine is suspended.
    #[default]
    Mono,
    /// `CLOCK_BOOTTIME`: like `mono`, and goes on while the machine is suspended.
    Boot,
    /// `CLOCK_TAI`: wall time without leap seconds. Needs Linux 6.1.
    Tai,
}

/// A name that is no clock of this agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no clock {name:?}: an eBPF program can read mono, boot and tai{}", self.hint())]
pub struct UnknownClock {
    /// What was asked for.
    pub name: String,
}

impl UnknownClock {
    fn hint(&self) -> &'static str {
        match self.name.as_str() {
            "local" | "global" | "perf" | "uptime" | "counter" | "x86-tsc" | "mono_raw" | "ppc-tb" => {
                "; the kernel gives it no other clock of ftrace, mono is the nearest to this one"
            }
            "realtime" | "wall" => "; record with mono, the file has what a reader needs to show wall time",
            _ => "",
        }
    }
}

/// The difference between a clock and wall time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RealtimeOffset {
    /// What to add to the clock's time to get `CLOCK_REALTIME`, in nanoseconds.
    pub offset_ns: i64,
    /// How wrong that can be: half the time between the two readings of the clock around the one of wall
    /// time.
    pub uncertainty_ns: u64,
}

impl TraceClock {
    /// Every clock.
    pub const ALL: [Self; 3] = [Self::Mono, Self::Boot, Self::Tai];

    /// The name that ftrace has for it, and that a BUFFER option of a file carries.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mono => "mono",
            Self::Boot => "boot",
            Self::Tai => "tai",
        }
    }

    /// The first kernel whose eBPF programs can read it.
    pub fn since(self) -> KernelVersion {
        match self {
            Self::Mono | Self::Boot => KernelVersion::new(5, 15, 0),
            Self::Tai => KernelVersion::new(6, 1, 0),
        }
    }

    /// The clock's time now, in nanoseconds.
    pub fn now_ns(self) -> u64 {
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

    /// Measures how far the clock is from wall time: reads it, wall time, and it again, many times, and keeps
    /// the round in which the two readings of it were closest, which is the one that nothing interrupted.
    pub fn realtime_offset(self) -> RealtimeOffset {
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

    /// What a TRACECLOCK option should say: the content of `trace_clock` with this clock in brackets, without
    /// a line end. `available` is tracefs' own text, where it could be read.
    ///
    /// Nothing for `boot`: libtraceevent does not know that it counts nanoseconds, and with `[boot]` every
    /// reader prints raw integers. Without the option, and with the clock named in the BUFFER option only,
    /// they print seconds.
    pub fn trace_clock_text(self, available: Option<&str>) -> Option<String> {
        if self == Self::Boot {
            return None;
        }
        let mut words: Vec<&str> = available
            .unwrap_or(FTRACE_CLOCKS)
            .split_whitespace()
            .map(|word| word.trim_start_matches('[').trim_end_matches(']'))
            .collect();
        let chosen = format!("[{}]", self.name());
        match words.iter_mut().find(|word| **word == self.name()) {
            Some(word) => *word = &chosen,
            None => words.insert(0, &chosen),
        }
        Some(words.join(" "))
    }
}

fn nanoseconds(time: &rustix::time::Timespec) -> i64 {
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

impl fmt::Display for TraceClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TraceClock {
    type Err = UnknownClock;

    fn from_str(name: &str) -> Result<Self, UnknownClock> {
        Self::ALL
            .into_iter()
            .find(|clock| clock.name() == name)
            .ok_or_else(|| UnknownClock { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_clock_is_in_brackets() {
        let kernel = "[local] global counter uptime perf mono mono_raw boot tai x86-tsc\n";
        assert_eq!(
            TraceClock::Mono.trace_clock_text(Some(kernel)).unwrap(),
            "local global counter uptime perf [mono] mono_raw boot tai x86-tsc"
        );
        assert_eq!(
            TraceClock::Tai.trace_clock_text(None).unwrap(),
            "local global counter uptime perf mono mono_raw boot [tai]"
        );
        assert_eq!(TraceClock::Tai.trace_clock_text(Some("[local]")).unwrap(), "[tai] local");
        assert_eq!(TraceClock::Tai.trace_clock_text(Some("")).unwrap(), "[tai]");
        assert_eq!(TraceClock::Boot.trace_clock_text(Some(kernel)), None);
    }

    #[test]
    fn names_are_read_and_strangers_explained() {
        for clock in TraceClock::ALL {
            assert_eq!(clock.name().parse(), Ok(clock));
        }
        let local = "local".parse::<TraceClock>().unwrap_err().to_string();
        assert!(local.contains("mono, boot and tai") && local.contains("nearest"), "{local}");
        assert!("".parse::<TraceClock>().is_err());
    }

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
