//! What is told of a thread's memory, or of that of interrupts.

use std::collections::BTreeMap;

use crate::answers::Times;
use crate::answers::tally::Room;

/// Pages of an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OfOrder {
    /// Blocks that were allocated.
    pub(super) allocated: u64,
    /// How often there was none.
    pub(super) failed: u64,
    /// Blocks that were freed.
    pub(super) freed: u64,
}

impl OfOrder {
    pub(super) fn merge(&mut self, other: &Self) {
        self.allocated += other.allocated;
        self.failed += other.failed;
        self.freed += other.freed;
    }
}

/// A number of pages that grows and shrinks, and the most that it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Growth {
    now: i64,
    pub(super) peak: u64,
    pub(super) peak_at: Option<u64>,
}

impl Growth {
    pub(super) fn grow(&mut self, pages: u64, now: u64) {
        self.now = self.now.saturating_add(pages.cast_signed());
        if let Ok(grown) = u64::try_from(self.now)
            && grown > self.peak
        {
            (self.peak, self.peak_at) = (grown, Some(now));
        }
    }

    pub(super) fn shrink(&mut self, pages: u64) {
        self.now = self.now.saturating_sub(pages.cast_signed());
    }
}

/// Time in which pages were looked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Reclaimed {
    pub(super) times: Times,
    pub(super) pages: u64,
}

impl Reclaimed {
    /// Counts one that ended now.
    pub(super) fn add(&mut self, time: u64, now: u64, pages: u64, sizes: &mut Room) {
        self.times.add_within(time, now, sizes);
        self.pages = self.pages.saturating_add(pages);
    }
}

/// What is told of a thread, or of interrupts.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    /// Blocks that it allocated and freed.
    pub(super) orders: BTreeMap<u8, OfOrder>,
    /// Pages that it allocated and nobody has freed.
    pub(super) growth: Growth,
    /// Pages that it allocated and of which no end may be recorded.
    pub(super) unfollowed: u64,
    pub(super) user_faults: u64,
    pub(super) kernel_faults: u64,
    /// As the machine had no pages, and as its control group had none.
    pub(super) reclaimed: [Reclaimed; 2],
}

/// A thread that looks for pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reclaims {
    pub(super) since: u64,
    pub(super) losses: u64,
    pub(super) is_of_group: bool,
}
