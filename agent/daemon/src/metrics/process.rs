//! What this process takes.

use procfs::WithCurrentSystemInfo as _;
use rustix::time::{ClockId, clock_gettime};

/// What this process takes, as the kernel counts it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Process {
    /// Time that its threads have run, in seconds.
    pub(crate) cpu_seconds: f64,
    /// Bytes of memory that it has.
    pub(crate) resident_bytes: u64,
    /// Descriptors that it has open.
    pub(crate) descriptors: u64,
    /// Its threads.
    pub(crate) threads: u64,
    /// When it was started, in seconds since 1970.
    pub(crate) started: f64,
}

impl Process {
    /// Those of now. `None` where `/proc` does not say.
    pub(crate) fn read() -> Option<Self> {
        let own = procfs::process::Process::myself().ok()?;
        let stat = own.stat().ok()?;
        let since_boot = stat.starttime as f64 / procfs::ticks_per_second() as f64;
        let boot = seconds_of(ClockId::Realtime) - seconds_of(ClockId::Boottime);
        Some(Self {
            cpu_seconds: cpu_seconds(),
            resident_bytes: stat.rss_bytes().get(),
            descriptors: own.fd_count().ok()? as u64,
            threads: u64::try_from(stat.num_threads).ok()?,
            started: boot + since_boot,
        })
    }
}

/// Time that the threads of this process have run, in seconds: more exact than the ticks of `/proc`.
pub(crate) fn cpu_seconds() -> f64 {
    seconds_of(ClockId::ProcessCPUTime)
}

fn seconds_of(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
