//! The clocks that timestamps are taken from.
//!
//! An eBPF program can read three of ftrace's clocks with the very function ftrace uses, so that files of
//! both merge exactly: `bpf_ktime_get_ns` is `mono`, `bpf_ktime_get_boot_ns` is `boot`, and, from Linux 6.1,
//! `bpf_ktime_get_tai_ns` is `tai` (`kernel/bpf/helpers.c`, `trace_clocks` in `kernel/trace/trace.c`). There
//! is no helper for `local`, `global`, `perf`, `mono_raw` or the cycle counter.
//!
//! Programs read the clocks of the machine. In a time namespace (time_namespaces(7)) `mono` and `boot` of a
//! process have an offset, which is taken away here: every reading is one of the machine's clock.

use std::sync::OnceLock;

use rustix::time::{ClockId, DynamicClockId, clock_gettime, clock_gettime_dynamic};

use spec::TraceClock;

use super::read;
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

    /// The machine's clock now, in nanoseconds, whatever time namespace this process is in.
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
        let offsets = NamespaceOffsets::of_process();
        let (time, offset) = match self {
            Self::Mono => (clock_gettime(ClockId::Monotonic), offsets.monotonic),
            Self::Boot => (clock_gettime(ClockId::Boottime), offsets.boottime),
            // Every kernel that has eBPF has it (3.10); rustix counts it among the clocks that may be
            // missing.
            Self::Tai => {
                let tai = clock_gettime_dynamic(DynamicClockId::Tai);
                (tai.unwrap_or_else(|_| clock_gettime(ClockId::Realtime)), 0)
            }
        };
        nanoseconds(&time).wrapping_sub(offset) as u64
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

/// What the time namespace of a process adds to the machine's clocks, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NamespaceOffsets {
    monotonic: i64,
    boottime: i64,
}

impl NamespaceOffsets {
    /// Those of this process: they stay the same from its first instruction on.
    fn of_process() -> Self {
        static READ: OnceLock<NamespaceOffsets> = OnceLock::new();
        *READ.get_or_init(Self::read)
    }

    /// The file has the offsets of the namespace of future children, which nearly always is that of the
    /// process, too. Where it is not, the process is still in the one that it was started in, which is
    /// nearly always the first.
    fn read() -> Self {
        let namespace = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).ok();
        let is_own = namespace("time") == namespace("time_for_children");
        let text = read::file("/proc/self/timens_offsets").ok().filter(|_| is_own);
        text.map(|text| Self::parse(&String::from_utf8_lossy(&text))).unwrap_or_default()
    }

    /// Lines of a clock's name or number, seconds, and nanoseconds (`proc_timens_show_offsets`).
    fn parse(text: &str) -> Self {
        let mut offsets = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [clock, seconds, nanoseconds] = *words.as_slice() else { continue };
            let (Ok(seconds), Ok(nanoseconds)) = (seconds.parse::<i64>(), nanoseconds.parse::<i64>()) else {
                continue;
            };
            let offset = seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds);
            match clock {
                "monotonic" | "1" => offsets.monotonic = offset,
                "boottime" | "7" => offsets.boottime = offset,
                _ => {}
            }
        }
        offsets
    }
}

fn nanoseconds(time: &rustix::time::Timespec) -> i64 {
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offsets_of_a_namespace_are_read() {
        let parse = NamespaceOffsets::parse;
        let shown = "monotonic      100000         5\nboottime          -2 999999999\n";
        assert_eq!(
            parse(shown),
            NamespaceOffsets { monotonic: 100_000_000_000_005, boottime: -1_000_000_001 }
        );
        assert_eq!(
            parse("1 3 0\n7 4 0\n"),
            NamespaceOffsets { monotonic: 3_000_000_000, boottime: 4_000_000_000 }
        );
        assert_eq!(parse("monotonic x 0\nrealtime 1 0\nboottime 1\n"), NamespaceOffsets::default());
    }

    /// Runs itself in a time namespace. Users without privileges have none, and test the first one.
    #[test]
    fn a_time_namespace_does_not_change_a_reading() {
        const INSIDE: &str = "TRACER_AGENT_TEST_TIME_NAMESPACE";
        let readings = || TraceClock::ALL.map(ReadClock::now_ns);
        if std::env::var_os(INSIDE).is_some() {
            let text = readings().map(|reading| reading.to_string()).join(" ");
            println!("\nreadings {text}");
            return;
        }
        let before = readings();
        let inside = std::process::Command::new("unshare")
            .args(["-T", "--fork", "--monotonic", "100000", "--boottime", "200000", "--"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "clock::tests::a_time_namespace_does_not_change_a_reading"])
            .env(INSIDE, "1")
            .output();
        let after = readings();
        let output = inside.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let line = output.unwrap_or_default();
        let Some(line) = line.lines().find_map(|line| line.strip_prefix("readings ")) else {
            assert!(!rustix::process::geteuid().is_root(), "unshare gave no time namespace");
            return;
        };
        let inside: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        for ((before, inside), after) in before.iter().zip(inside).zip(after) {
            assert!((*before..=after).contains(&inside), "{before} {inside} {after}");
        }
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
