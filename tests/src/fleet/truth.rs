//! What a generated recording is made of, noted while it is made: what answers about it are compared with.

use std::collections::BTreeMap;

/// A time from a record to another one, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span<K> {
    /// Time of the first record.
    pub from: u64,
    /// Time of the second one.
    pub to: u64,
    /// Whose it is.
    pub of: K,
}

/// The events that a CPU did not record: those after a record of it and before the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The CPU.
    pub cpu: u32,
    /// Time of the record before.
    pub from: u64,
    /// Time of the record behind.
    pub to: u64,
    /// How many are missing.
    pub missed: u64,
}

/// A call to open a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The file.
    pub path: &'static str,
    /// Whether it failed.
    pub failed: bool,
    /// Who.
    pub tid: u32,
}

/// A program that a thread began to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exec {
    /// The program.
    pub filename: &'static str,
    /// Name of the thread that made the thread, if its record is there.
    pub parent: Option<String>,
}

/// A recording, as it was made. Times are those of its clock, in nanoseconds; only what both ends are
/// recorded of is there, whether or not something is missing between them.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// Records that are in the file.
    pub recorded: u64,
    /// What is missing, but not where nothing is recorded behind it.
    pub gaps: Vec<Gap>,
    /// Times without a CPU, by the thread's name when it lost it.
    pub off_cpu: Vec<Span<String>>,
    /// Times from being woken to having a CPU, by the thread's name when it gets it.
    pub wake_ups: Vec<Span<String>>,
    /// Times between two switches of a CPU, and whether a thread ran.
    pub on_cpu: Vec<(u32, Span<bool>)>,
    /// Requests of block devices, by device.
    pub requests: Vec<Span<u32>>,
    /// Interrupt handlers, by CPU and name.
    pub interrupts: Vec<(u32, Span<&'static str>)>,
    /// Returns from system calls and failures among them, by thread and name of the call.
    pub calls: BTreeMap<(u32, &'static str), (u64, u64)>,
    /// Files that were opened.
    pub opens: Vec<Span<Open>>,
    /// Programs that were executed.
    pub execs: Vec<Exec>,
    /// The last name of each thread, which is the one in the file.
    pub names: BTreeMap<u32, String>,
}

impl Truth {
    /// Whether nothing is missing between two records of any CPUs.
    pub fn is_whole<K>(&self, span: &Span<K>) -> bool {
        self.gaps.iter().all(|gap| span.to < gap.from || gap.to <= span.from)
    }

    /// Whether nothing is missing between two records of one CPU.
    pub fn is_whole_on<K>(&self, cpu: u32, span: &Span<K>) -> bool {
        self.gaps.iter().all(|gap| gap.cpu != cpu || span.to <= gap.from || gap.to <= span.from)
    }
}
