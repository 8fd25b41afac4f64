//! What this process' programs in the kernel take. The kernel measures that only while it is asked to, which
//! costs each run of each program of the machine two reads of a clock: so it is asked in short windows.

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use bpf::sys::{RunTimes, enable_run_times, run_times};

/// How long a window is.
pub(crate) const WINDOW: Duration = Duration::from_secs(1);
/// From the end of one window to the begin of the next.
pub(crate) const PAUSE: Duration = Duration::from_secs(29);

/// What the programs took in a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ProgramTimes {
    /// How many there are.
    pub(crate) programs: u64,
    /// Time that they ran, to the length of the window: 1 is one CPU.
    pub(crate) cpu_ratio: f64,
    /// How often they ran in a second.
    pub(crate) runs_per_second: f64,
}

/// Windows in which the kernel measures.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    window: Option<Window>,
    next: Option<Instant>,
    last: Option<ProgramTimes>,
}

#[derive(Debug)]
struct Window {
    /// The kernel measures as long as it is open.
    _measures: OwnedFd,
    began: Instant,
    before: BTreeMap<u32, RunTimes>,
}

impl Programs {
    /// Begins a window, or ends one, if it is time. Gives what is known from the last one.
    pub(crate) fn look(&mut self) -> Option<ProgramTimes> {
        let now = Instant::now();
        match self.window.take() {
            Some(window) if now.duration_since(window.began) < WINDOW => self.window = Some(window),
            Some(window) => {
                self.last = Some(window.end(now));
                self.next = Some(now + PAUSE);
            }
            None if self.next.is_none_or(|next| now >= next) => {
                // Where this is not allowed, nothing is known.
                self.window = enable_run_times().ok().map(|measures| Window {
                    _measures: measures,
                    began: now,
                    before: own_programs_by_id(),
                });
                if self.window.is_none() {
                    self.next = Some(now + PAUSE);
                }
            }
            None => {}
        }
        self.last
    }
}

impl Window {
    fn end(self, now: Instant) -> ProgramTimes {
        let after = own_programs_by_id();
        let (mut time, mut runs) = (0_u64, 0_u64);
        for (id, after) in &after {
            let before = self.before.get(id).copied().unwrap_or_default();
            time = time.saturating_add(after.time_ns.saturating_sub(before.time_ns));
            runs = runs.saturating_add(after.runs.saturating_sub(before.runs));
        }
        let length = now.duration_since(self.began).as_secs_f64();
        ProgramTimes {
            programs: after.len() as u64,
            cpu_ratio: time as f64 / 1e9 / length,
            runs_per_second: runs as f64 / length,
        }
    }
}

/// What was measured of each program that this process has a descriptor of, by its id: several descriptors
/// are of one.
fn own_programs_by_id() -> BTreeMap<u32, RunTimes> {
    own_programs().into_iter().map(|(_, times)| (times.id, times)).collect()
}

/// The descriptors of programs that this process has, and what was measured of the programs.
pub(crate) fn own_programs() -> Vec<(i32, RunTimes)> {
    let Ok(own) = procfs::process::Process::myself().and_then(|own| own.fd()) else { return Vec::new() };
    let programs = own.flatten().filter(
        |open| matches!(&open.target, procfs::process::FDTarget::AnonInode(kind) if kind == "bpf-prog"),
    );
    programs.filter_map(|open| Some((open.fd, run_times(open.fd).ok()?))).collect()
}
