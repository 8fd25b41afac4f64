//! What a CPU has counted, which can be subtracted: the difference of two such counts is the ledger of what
//! was recorded between them.

use agent_ebpf::{CpuBorder, CpuControl, EventLedger, LossCause};
use serde::{Deserialize, Serialize};

/// A CPU's counts since the start of a recording, where one of its pages ends.
#[derive(Clone, Debug, Default)]
pub struct CpuCounts {
    /// Pages completed: the number of the first page after these counts.
    pub head: u64,
    /// Events written to the pages before.
    pub events: u64,
    /// Events lost, by [`LossCause`].
    pub lost: [u64; LossCause::COUNT],
    /// Those of them that the next page will be marked with, as it follows them.
    pub unmarked: u64,
    /// Events in pages that overwrite mode reused.
    pub overwritten: u64,
    /// Thread names that were not noted because the agent did not read them in time.
    pub names_lost: u64,
    /// System calls of 32-bit programs that events of single calls left out.
    pub compat_calls: u64,
    /// The counts of each event, by slot.
    pub rows: Vec<EventLedger>,
}

impl CpuCounts {
    /// What a program has noted.
    pub(crate) fn of_border(border: &CpuBorder, rows: Vec<EventLedger>) -> Self {
        let CpuBorder { head, events, lost, marked_lost, overwritten, names_lost, compat_calls, noted: _ } =
            *border;
        let unmarked = unmarked(&lost, marked_lost);
        Self { head, events, lost, unmarked, overwritten, names_lost, compat_calls, rows }
    }

    /// What a control block says that nothing changes any more.
    pub(crate) fn of_control(control: &CpuControl, rows: Vec<EventLedger>) -> Self {
        let CpuControl { head, events, lost, marked_lost, overwritten, names_lost, compat_calls, .. } =
            *control;
        let unmarked = unmarked(&lost, marked_lost);
        Self { head, events, lost, unmarked, overwritten, names_lost, compat_calls, rows }
    }

    /// What was counted since `earlier` counts of the same CPU. The number of the page and what is not marked
    /// stay what they are.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let row = |slot: usize, now: &EventLedger| {
            let before = earlier.rows.get(slot).copied().unwrap_or_default();
            EventLedger {
                recorded: now.recorded.saturating_sub(before.recorded),
                filtered: now.filtered.saturating_sub(before.filtered),
                own: now.own.saturating_sub(before.own),
                arrived: now.arrived.saturating_sub(before.arrived),
                lost: difference(now.lost, before.lost),
                cut: now.cut.saturating_sub(before.cut),
            }
        };
        Self {
            head: self.head,
            events: self.events.saturating_sub(earlier.events),
            lost: difference(self.lost, earlier.lost),
            unmarked: self.unmarked,
            overwritten: self.overwritten.saturating_sub(earlier.overwritten),
            names_lost: self.names_lost.saturating_sub(earlier.names_lost),
            compat_calls: self.compat_calls.saturating_sub(earlier.compat_calls),
            rows: self.rows.iter().enumerate().map(|(slot, now)| row(slot, now)).collect(),
        }
    }
}

/// Counts as plain numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountNumbers {
    head: u64,
    events: u64,
    lost: [u64; LossCause::COUNT],
    unmarked: u64,
    overwritten: u64,
    names_lost: u64,
    compat_calls: u64,
    /// Of each slot: recorded, filtered, own, arrived, cut; lost.
    rows: Vec<([u64; 5], [u64; LossCause::COUNT])>,
}

impl From<&CpuCounts> for CountNumbers {
    fn from(counts: &CpuCounts) -> Self {
        let CpuCounts { head, events, lost, unmarked, overwritten, names_lost, compat_calls, rows } = counts;
        let row = |of: &EventLedger| ([of.recorded, of.filtered, of.own, of.arrived, of.cut], of.lost);
        Self {
            head: *head,
            events: *events,
            lost: *lost,
            unmarked: *unmarked,
            overwritten: *overwritten,
            names_lost: *names_lost,
            compat_calls: *compat_calls,
            rows: rows.iter().map(row).collect(),
        }
    }
}

impl From<CountNumbers> for CpuCounts {
    fn from(numbers: CountNumbers) -> Self {
        let CountNumbers { head, events, lost, unmarked, overwritten, names_lost, compat_calls, rows } =
            numbers;
        let row = |([recorded, filtered, own, arrived, cut], lost): ([u64; 5], _)| EventLedger {
            recorded,
            filtered,
            own,
            arrived,
            lost,
            cut,
        };
        Self {
            head,
            events,
            lost,
            unmarked,
            overwritten,
            names_lost,
            compat_calls,
            rows: rows.into_iter().map(row).collect(),
        }
    }
}

fn unmarked(lost: &[u64; LossCause::COUNT], marked: u64) -> u64 {
    lost.iter().sum::<u64>().saturating_sub(marked)
}

fn difference(now: [u64; LossCause::COUNT], before: [u64; LossCause::COUNT]) -> [u64; LossCause::COUNT] {
    let mut left = now;
    for (left, before) in left.iter_mut().zip(before) {
        *left = left.saturating_sub(before);
    }
    left
}
