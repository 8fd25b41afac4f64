//! When the pages that programs are filling are to be closed.

use std::time::{Duration, Instant};

/// When a page is tried again that could not be closed, because a program was writing to it.
const SWITCH_AGAIN: Duration = Duration::from_millis(10);

/// When open pages are to be closed.
pub(super) struct SwitchTimer {
    period: Duration,
    due: Instant,
    /// CPUs whose page could not be closed, because a program was writing to it.
    pub(super) busy: Vec<u32>,
    /// When those are tried again.
    again: Instant,
}

/// Whose pages are to be closed.
pub(super) enum ToClose {
    /// Those of all CPUs.
    All,
    /// Those that could not be closed before.
    Busy(Vec<u32>),
}

impl ToClose {
    pub(super) fn has(&self, cpu: u32) -> bool {
        match self {
            Self::All => true,
            Self::Busy(cpus) => cpus.contains(&cpu),
        }
    }
}

impl SwitchTimer {
    pub(super) fn start(period: Duration) -> Self {
        let due = Instant::now() + period;
        Self { period, due, busy: Vec::new(), again: due }
    }

    /// When there is something to do.
    pub(super) fn next(&self) -> Instant {
        if self.busy.is_empty() { self.due } else { self.again.min(self.due) }
    }

    /// What there is to do now.
    pub(super) fn take(&mut self, now: Instant) -> Option<ToClose> {
        if now < self.next() {
            return None;
        }
        self.again = now + SWITCH_AGAIN;
        let busy = std::mem::take(&mut self.busy);
        if now < self.due {
            return Some(ToClose::Busy(busy));
        }
        self.due = now + self.period;
        Some(ToClose::All)
    }
}
