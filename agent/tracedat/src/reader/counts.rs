//! Counting events without looking at them.

use super::super::page::EventCursor;
use super::error::ReadError;
use super::pages::CpuPages;
use super::records::sum_of_losses;
use super::time::CpuClock;

/// What the pages of one CPU hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuCounts {
    /// The CPU.
    pub cpu: u32,
    /// Pages, empty ones included.
    pub pages: u64,
    /// Bytes of events, their headers included.
    pub data_bytes: u64,
    /// Events.
    pub events: u64,
    /// Time of the first event, corrected as the reader was configured.
    pub first: Option<u64>,
    /// Time of the last event, corrected as the reader was configured.
    pub last: Option<u64>,
    /// Records before which events were lost.
    pub missed_marks: u64,
    /// Of these, those of which it is not known how many.
    pub missed_unknown: u64,
    /// Events lost before records, as far as that is known.
    pub missed_events: u64,
    /// Events lost before the first record, which are among the others: 0 = not known how many.
    pub missed_first: Option<u64>,
    /// Events lost behind the last record, as an empty page marks it: 0 = not known how many.
    pub missed_behind: Option<u64>,
    /// Pages and ends of data that could not be read.
    pub damaged: u64,
}

/// What the pages of several CPUs hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By CPU, in the order of the buffer.
    pub cpus: Vec<CpuCounts>,
    /// Events by number, without those of which there are none.
    pub by_id: Vec<(u16, u64)>,
    /// The first things that could not be read.
    pub damage: Vec<String>,
}

/// Most damages that are kept in words.
const MAX_DAMAGE: usize = 20;

/// Counts by number: a table, for there are millions of events and at most 65536 numbers.
pub(crate) struct Counter {
    /// As long as the largest number that was found needs.
    by_id: Vec<u64>,
    counts: Counts,
}

impl Counter {
    pub(crate) fn new() -> Self {
        Self { by_id: Vec::new(), counts: Counts::default() }
    }

    pub(crate) fn count(&mut self, cpu: u32, pages: &mut CpuPages<'_>, clock: CpuClock<'_>) {
        let mut counts = CpuCounts { cpu, pages: pages.len(), ..CpuCounts::default() };
        let endian = pages.layout().endian;
        let (mut first, mut last) = (None, None);
        let mut waiting = None;
        let mut index = 0;
        while index < pages.len() {
            let result = pages.locate(index).and_then(|(header, data)| {
                waiting = sum_of_losses(waiting, header.missed);
                counts.data_bytes += header.data_len as u64;
                let data = pages.bytes().get(data).unwrap_or_default();
                let mut cursor = EventCursor::new(header.timestamp);
                loop {
                    match cursor.next(data, endian) {
                        Ok(Some(event)) => {
                            if let Some(missed) = waiting.take() {
                                counts.missed(missed, first.is_none());
                            }
                            if first.is_none() {
                                first = Some(event.time);
                            }
                            last = Some(event.time);
                            counts.events += 1;
                            if let Some(id) = data.get(event.start..).and_then(<[u8]>::first_chunk) {
                                add_one(&mut self.by_id, endian.read_u16(*id));
                            }
                        }
                        Ok(None) => return Ok(()),
                        Err(error) => return Err(pages.page_error(index, error)),
                    }
                }
            });
            index += 1;
            if let Err(error) = result {
                counts.damaged += 1;
                self.damage(&error);
                index = pages.lost_with(index - 1).end;
            }
        }
        if let Some(error) = pages.take_tail_error() {
            counts.damaged += 1;
            self.damage(&error);
        }
        counts.missed_behind = waiting;
        counts.first = first.map(|time| clock.correct(time));
        counts.last = last.map(|time| clock.correct(time));
        self.counts.cpus.push(counts);
    }

    /// Keeps what is wrong with a CPU or a page.
    pub(crate) fn damage(&mut self, error: &ReadError) {
        if self.counts.damage.len() < MAX_DAMAGE {
            self.counts.damage.push(error.to_string());
        }
    }

    pub(crate) fn finish(mut self) -> Counts {
        let by_id = self.by_id.iter().enumerate().filter(|(_, events)| **events != 0);
        self.counts.by_id = by_id.map(|(id, events)| (id as u16, *events)).collect();
        self.counts
    }
}

/// Counts an event of that number.
#[inline]
fn add_one(by_id: &mut Vec<u64>, id: u16) {
    let id = usize::from(id);
    if by_id.len() <= id {
        // Numbers are small and close to each other.
        by_id.resize((id + 1).next_power_of_two(), 0);
    }
    by_id[id] += 1;
}

impl CpuCounts {
    /// Counts a loss before a record.
    fn missed(&mut self, missed: u64, is_first: bool) {
        self.missed_marks += 1;
        self.missed_unknown += u64::from(missed == 0);
        self.missed_events = self.missed_events.saturating_add(missed);
        if is_first {
            self.missed_first = Some(missed);
        }
    }

    /// Adds what other pages of the same CPU hold, as those of another buffer of the same name.
    pub fn add(&mut self, other: &Self) {
        let is_earlier = match (self.first, other.first) {
            (Some(first), Some(other)) => other < first,
            (first, _) => first.is_none(),
        };
        if is_earlier {
            self.missed_first = other.missed_first;
        }
        self.pages += other.pages;
        self.data_bytes += other.data_bytes;
        self.events += other.events;
        self.first = self.first.into_iter().chain(other.first).min();
        self.last = self.last.max(other.last);
        self.missed_marks += other.missed_marks;
        self.missed_unknown += other.missed_unknown;
        self.missed_events = self.missed_events.saturating_add(other.missed_events);
        self.missed_behind = sum_of_losses(self.missed_behind, other.missed_behind);
        self.damaged += other.damaged;
    }
}

impl Counts {
    /// All events.
    pub fn events(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.events).sum()
    }

    /// Times of the first and the last event.
    pub fn span(&self) -> Option<(u64, u64)> {
        let first = self.cpus.iter().filter_map(|cpu| cpu.first).min()?;
        let last = self.cpus.iter().filter_map(|cpu| cpu.last).max()?;
        Some((first, last))
    }
}
