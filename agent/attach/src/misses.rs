//! What the kernel kept from programs: because the same or another tracing program was running on the CPU, a
//! probe was inside another one, or more calls were open than the kernel has room to watch the returns of.

use serde::{Deserialize, Serialize};

/// What the kernel kept from the programs of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misses {
    /// Events, by the programs that record them.
    pub programs: Vec<RecursionMisses>,
    /// Thread names, as far as the kernel says so.
    pub names: u64,
}

impl Misses {
    /// Adds what was kept from other programs. Those of one name count as one.
    pub fn add(&mut self, other: Self) {
        for RecursionMisses { program, misses } in other.programs {
            match self.programs.iter_mut().find(|of| of.program == program) {
                Some(of) => of.misses = of.misses.zip(misses).map(|(sum, more)| sum.saturating_add(more)),
                None => self.programs.push(RecursionMisses { program, misses }),
            }
        }
        self.names = self.names.saturating_add(other.names);
    }

    /// What has come since `earlier`. A program that was not there then has all of it.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut before: Vec<Option<&RecursionMisses>> = earlier.programs.iter().map(Some).collect();
        let mut since = |of: &RecursionMisses| {
            // Programs of one name are in the same order.
            let same =
                before.iter_mut().find(|before| before.is_some_and(|before| before.program == of.program));
            let before = same.and_then(Option::take).and_then(|before| before.misses).unwrap_or_default();
            let misses = of.misses.map(|now| now.saturating_sub(before));
            RecursionMisses { program: of.program.clone(), misses }
        };
        Self {
            programs: self.programs.iter().map(&mut since).collect(),
            names: self.names.saturating_sub(earlier.names),
        }
    }
}

/// How often the kernel skipped a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecursionMisses {
    /// The event that it is for, or the name of a program for many events.
    pub program: String,
    /// `None` where the kernel does not say: programs at tracepoints and kprobes count it since 6.7
    /// (`trace_call_bpf`, kernel/trace/bpf_trace.c).
    pub misses: Option<u64>,
}
