//! The clocks that timestamps are taken from.

use std::fmt;
use std::str::FromStr;

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
}
