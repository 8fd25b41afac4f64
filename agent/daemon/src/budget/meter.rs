//! What is taken: CPU time of this process, and of its programs in the kernel.
//!
//! The kernel measures programs only while it is asked to, which costs each run of each program of the
//! machine two reads of a clock. Far below a budget it is asked for a second of each ten, and what programs
//! took then stands for the time between; near it, and over it, all the time.

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use crate::metrics::{cpu_seconds, own_programs};
use bpf::sys::{RunTimes, enable_run_times, run_times};

/// From one listing of programs to the next.
const LIST: Duration = Duration::from_secs(10);
/// Of so many readings, programs are measured in one, far below a budget.
const ONE_OF: u32 = 10;

/// What was taken in a time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Taken {
    /// How long it was, in seconds.
    pub(crate) seconds: f64,
    /// CPU seconds of the process.
    pub(crate) process: f64,
    /// CPU seconds of its programs; from an earlier time, where they were not measured.
    pub(crate) programs: f64,
    /// Whether programs were measured in it.
    pub(crate) is_measured: bool,
}

impl Taken {
    /// CPU seconds of both.
    pub(crate) fn all(&self) -> f64 {
        self.process + self.programs
    }

    /// CPU time to the length of the time: 1 is a whole CPU.
    pub(crate) fn ratio(&self) -> f64 {
        if self.seconds > 0.0 { self.all() / self.seconds } else { 0.0 }
    }

    /// That of two times, one after the other.
    pub(super) fn and(self, next: Self) -> Self {
        Self {
            seconds: self.seconds + next.seconds,
            process: self.process + next.process,
            programs: self.programs + next.programs,
            is_measured: next.is_measured,
        }
    }
}

/// Measures what is taken from one reading to the next.
#[derive(Debug)]
pub(super) struct Meter {
    at: Instant,
    cpu: f64,
    /// The programs, by the numbers of their descriptors.
    programs: BTreeMap<i32, RunTimes>,
    listed: Option<Instant>,
    /// The kernel measures as long as it is open.
    window: Option<OwnedFd>,
    readings: u32,
    /// What programs took when they were measured last: 1 is a whole CPU.
    ratio: f64,
    /// Of the last time, in which they were not measured: its seconds, and the CPU seconds that it was taken
    /// for.
    guessed: Option<(f64, f64)>,
}

impl Meter {
    pub(super) fn new() -> Self {
        Self {
            at: Instant::now(),
            cpu: cpu_seconds(),
            programs: BTreeMap::new(),
            listed: None,
            window: None,
            readings: 0,
            ratio: 0.0,
            guessed: None,
        }
    }

    /// What was taken since the last reading. `always` measures programs until the next one in any case.
    pub(super) fn read(&mut self, always: bool) -> Taken {
        let (now, cpu) = (Instant::now(), cpu_seconds());
        let seconds = now.duration_since(self.at).as_secs_f64();
        let ran = self.programs_ran(now);
        let is_measured = self.window.is_some();
        let programs = if is_measured {
            self.ratio = if seconds > 0.0 { ran / seconds } else { self.ratio };
            // The time before was as this one, as far as is known.
            let (before, guess) = self.guessed.take().unwrap_or_default();
            ran + (self.ratio * before - guess).max(0.0)
        } else {
            let guess = self.ratio * seconds;
            self.guessed = Some((seconds, guess));
            guess
        };
        let taken = Taken { seconds, process: cpu - self.cpu, programs, is_measured };
        (self.at, self.cpu) = (now, cpu);
        self.readings = self.readings.wrapping_add(1);
        match (always || self.readings.is_multiple_of(ONE_OF), &self.window) {
            (true, None) => self.measure(),
            (false, Some(_)) => self.window = None,
            _ => {}
        }
        taken
    }

    /// Measures programs until the next reading.
    pub(super) fn measure(&mut self) {
        if self.window.is_none() {
            // Where it is not allowed, nothing is known of programs.
            self.window = enable_run_times().ok();
        }
    }

    /// What was taken since the last reading to its length, as far as it is measured: 1 is a whole CPU.
    pub(super) fn peek(&self) -> f64 {
        let seconds = self.at.elapsed().as_secs_f64();
        let ran = |(number, before): (&i32, &RunTimes)| {
            let after = run_times(*number).ok().filter(|after| after.id == before.id);
            after.map_or(0, |after| after.time_ns.saturating_sub(before.time_ns))
        };
        let programs = self.programs.iter().map(ran).sum::<u64>() as f64 / 1e9;
        if seconds > 0.0 { (cpu_seconds() - self.cpu + programs) / seconds } else { 0.0 }
    }

    /// Says that there are other programs now.
    pub(super) fn list_again(&mut self) {
        self.listed = None;
    }

    /// Seconds that programs ran since the last reading, of those that there were then.
    fn programs_ran(&mut self, now: Instant) -> f64 {
        let mut time_ns = 0_u64;
        self.programs.retain(|number, before| match run_times(*number) {
            Ok(after) if after.id == before.id => {
                time_ns += after.time_ns.saturating_sub(before.time_ns);
                *before = after;
                true
            }
            // Another program's, or nothing's.
            _ => false,
        });
        if self.listed.is_none_or(|listed| now.duration_since(listed) >= LIST) {
            self.listed = Some(now);
            for (number, times) in own_programs() {
                // Several descriptors are of one program.
                if self.programs.values().all(|known| known.id != times.id) {
                    self.programs.insert(number, times);
                }
            }
        }
        time_ns as f64 / 1e9
    }
}
