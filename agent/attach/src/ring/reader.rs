//! Taking pages out of a CPU's ring.

use std::{
    ops::Range,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{Ordering, fence},
    },
};

use agent_ebpf::{CpuControl, PAGE_HEADER, PAGE_SIZE, PageMeta};

use super::{Control, SharedArray};
use ftrace_event::Endian;
use tracedat::page;

/// How often a program may be found writing while it is asked whether a page was reused: many times as often
/// as one that writes all the time is in between two records.
const BUSY_MAX: u32 = 10_000;

/// Which ring of a channel: that of a CPU, in one of the channel's sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingId {
    /// The CPU.
    pub cpu: u32,
    /// The set; 0 where all share one.
    pub set: u32,
}

impl From<u32> for RingId {
    /// That of a CPU in a channel with one set.
    fn from(cpu: u32) -> Self {
        Self { cpu, set: 0 }
    }
}

/// The mapped arrays that make up the rings of all CPUs.
#[derive(Debug)]
pub struct Rings {
    /// `PAGES`.
    pages: SharedArray<[u8; PAGE_SIZE]>,
    /// `PAGE_META`.
    meta: SharedArray<PageMeta>,
    /// `CONTROL`.
    control: SharedArray<CpuControl>,
    /// Elements of `CONTROL` that each set has.
    rows_of_set: u32,
    /// The rings that have a reader, with its elements of `PAGES`.
    read: Mutex<Vec<(RingId, Range<usize>)>>,
}

impl Rings {
    /// The rings in these arrays: `PAGES`, `PAGE_META`, `CONTROL`, of which each set has `rows_of_set`
    /// elements.
    pub fn new(
        pages: SharedArray<[u8; PAGE_SIZE]>,
        meta: SharedArray<PageMeta>,
        control: SharedArray<CpuControl>,
        rows_of_set: u32,
    ) -> Self {
        Self { pages, meta, control, rows_of_set, read: Mutex::default() }
    }

    /// The element of `CONTROL` that a ring has. `None` if there can be none.
    pub(crate) fn row(&self, RingId { cpu, set }: RingId) -> Option<u32> {
        if cpu >= self.rows_of_set { None } else { set.checked_mul(self.rows_of_set)?.checked_add(cpu) }
    }

    /// The control block of a ring.
    pub fn control(&self, ring: impl Into<RingId>) -> Option<Control<'_>> {
        Control::new(&self.control, self.row(ring.into())?)
    }

    /// The ring `ring`, which consists of the `pages` elements of `PAGES` from `base` on, as its control
    /// block says, for its reader.
    ///
    /// `None` if the arrays do not hold such a ring, or if it or these pages have a reader.
    pub fn reader(&self, ring: impl Into<RingId>, base: usize, pages: u32) -> Option<CpuRing<'_>> {
        let id = ring.into();
        let control = self.control(id)?;
        let end = base.checked_add(pages as usize)?;
        if pages == 0 || end > self.pages.len() || end > self.meta.len() {
            return None;
        }
        let mut read = self.read();
        if read.iter().any(|(other, pages)| *other == id || pages.start < end && base < pages.end) {
            return None;
        }
        read.push((id, base..end));
        Some(CpuRing { rings: self, control, id, base, pages: pages.into() })
    }

    fn read(&self) -> MutexGuard<'_, Vec<(RingId, Range<usize>)>> {
        // Nothing panics while it is held.
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One CPU's ring, for its only reader, which owns the pages between `consumed` and `head`.
#[derive(Debug)]
pub struct CpuRing<'a> {
    rings: &'a Rings,
    control: Control<'a>,
    id: RingId,
    base: usize,
    pages: u64,
}

impl Drop for CpuRing<'_> {
    fn drop(&mut self) {
        let id = self.id;
        self.rings.read().retain(|(other, _)| *other != id);
    }
}

/// A page as it goes into a file: its commit word and missed-events mark are in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SealedPage {
    /// Events in the page.
    pub events: u32,
    /// Events lost directly before it.
    pub lost: u64,
}

/// The pages that an overwrite-mode ring held at a moment. While programs write, the oldest of them are
/// reused, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pages: Range<u64>,
    /// What was in each; anything for a page that was reused before.
    events: Vec<u32>,
}

impl Held {
    /// The numbers of the pages, oldest first.
    pub fn pages(&self) -> Range<u64> {
        self.pages.clone()
    }

    /// How many events there are in page `number`, or were.
    pub fn events_of(&self, number: u64) -> u64 {
        let index = number.checked_sub(self.pages.start).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| self.events.get(index)).copied().unwrap_or_default().into()
    }

    /// How many events there are from page `number` on, if it was [copied](CpuRing::copy) since: then it and
    /// those after it had not been reused.
    pub fn events_from(&self, number: u64) -> u64 {
        let first = number.saturating_sub(self.pages.start) as usize;
        self.events.iter().skip(first).map(|events| u64::from(*events)).sum()
    }
}

/// Complete pages of a ring, taken in their order and still in its memory. They are the reader's until
/// [`Claim::commit`] gives them back to the programs; a claim that is dropped gives nothing back, so that the
/// next one begins with the same pages.
#[derive(Debug)]
pub struct Claim<'r, 'a> {
    ring: &'r mut CpuRing<'a>,
    pages: u64,
}

/// Sealed pages that stand one after the other in a ring's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run<'c> {
    /// The pages.
    pub bytes: &'c [u8],
    /// How many pages of the ring that is.
    pub pages: u64,
    /// Events in them.
    pub events: u64,
}

impl Claim<'_, '_> {
    /// Takes the next run: at most `max` pages, none beyond the end of the ring, and none if no more are
    /// complete.
    ///
    /// A page that the counters describe wrongly ends the run before it, and is passed over as a run without
    /// bytes.
    pub fn next_run(&mut self, max: u64) -> Run<'_> {
        let ring = &*self.ring;
        let waiting = ring.ready().saturating_sub(self.pages);
        let first = (ring.control.consumed().wrapping_add(self.pages)) % ring.pages;
        let max = max.min(waiting).min(ring.pages - first);
        let start = ring.base + first as usize;
        let mut run = Run::default();
        for index in start..start + max as usize {
            match ring.seal(index) {
                Some(page) => {
                    run.pages += 1;
                    run.events += u64::from(page.events);
                }
                None if run.pages == 0 => {
                    self.pages += 1;
                    return Run { pages: 1, ..run };
                }
                None => break,
            }
        }
        self.pages += run.pages;
        if let Some(bytes) = ring.rings.pages.get(start).filter(|_| run.pages != 0) {
            // SAFETY: `seal` has found all of these elements in the mapping, which outlives the ring. The
            // programs leave pages between `consumed` and `head` alone; only this ring, which is the only
            // one with these pages, moves `consumed`, and only when the claim is committed, which ends the
            // slice's life. Pages are changed by `seal` only, in runs that are taken after this one's life.
            run.bytes =
                unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), run.pages as usize * PAGE_SIZE) };
        }
        run
    }

    /// How many pages were taken.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Gives the pages back to the programs, once their bytes are safe.
    pub fn commit(self) {
        let control = self.ring.control;
        control.release(control.consumed().wrapping_add(self.pages));
    }
}

impl<'a> CpuRing<'a> {
    /// The CPU whose events the ring holds.
    pub fn cpu(&self) -> u32 {
        self.id.cpu
    }

    /// Which ring of its channel it is.
    pub fn id(&self) -> RingId {
        self.id
    }

    /// The element of `CONTROL` that it has.
    pub(crate) fn row(&self) -> u32 {
        self.rings.row(self.id).unwrap_or(self.id.cpu)
    }

    /// The control block.
    pub fn control(&self) -> Control<'a> {
        self.control
    }

    /// Size of the ring in pages.
    pub fn capacity(&self) -> u64 {
        self.pages
    }

    /// Complete pages that wait to be taken. A programs' counter that runs ahead of the ring is cut to its
    /// size.
    pub fn ready(&self) -> u64 {
        self.control.head().wrapping_sub(self.control.consumed()).min(self.pages)
    }

    /// Begins to take complete pages.
    pub fn claim(&mut self) -> Claim<'_, 'a> {
        Claim { ring: self, pages: 0 }
    }

    /// Seals element `index` of `PAGES` where it is. Doing so again changes nothing.
    fn seal(&self, index: usize) -> Option<SealedPage> {
        let (page, meta) = (self.rings.pages.get(index)?, self.rings.meta.read(index)?);
        let used = meta.used as usize;
        if used <= PAGE_HEADER || used > PAGE_SIZE {
            return None;
        }
        // SAFETY: a whole mapped page that the programs leave alone, as its number is between `consumed` and
        // `head`, and that nobody else refers to: see `Claim::next_run`.
        let page = unsafe { std::slice::from_raw_parts_mut(page.as_ptr().cast::<u8>(), PAGE_SIZE) };
        let missed = (meta.lost != 0).then_some(meta.lost);
        page::seal(page, Endian::Little, used - PAGE_HEADER, missed).ok()?;
        Some(SealedPage { events: meta.events, lost: meta.lost })
    }

    /// Appends the page that was being filled when recording stopped, if it holds events.
    ///
    /// Only after the gate is closed and all programs have returned.
    pub fn take_partial(&self, out: &mut Vec<u8>) -> Option<SealedPage> {
        let state = self.control.quiescent();
        if state.offset as usize <= PAGE_HEADER {
            return None;
        }
        let open = PageMeta {
            used: state.offset,
            events: state.events.wrapping_sub(state.page_start_events) as u32,
            ..PageMeta::default()
        };
        self.copy_page(state.head, Some(open), 0, out)
    }

    /// The pages that an overwrite-mode ring still holds of those before page `end`.
    pub fn held(&self, end: u64) -> Held {
        let pages = end.saturating_sub(self.pages)..end;
        let events = |number: u64| {
            let index = self.base + (number % self.pages) as usize;
            self.rings.meta.read(index).map_or(0, |meta| meta.events)
        };
        Held { events: pages.clone().map(events).collect(), pages }
    }

    /// The time of the first event of page `number`, by the clock of the recording, in nanoseconds. While
    /// programs write, it may be that of a newer page in the same place.
    pub fn begin_of(&self, number: u64) -> Option<u64> {
        let page = self.rings.pages.read(self.base + (number % self.pages) as usize)?;
        page.first_chunk().map(|time| u64::from_le_bytes(*time))
    }

    /// The oldest page before page `end` that programs do not reuse before they have written an eighth of the
    /// ring from now on, or the one that is kept for a snapshot.
    pub fn safe_from(&self, end: u64) -> u64 {
        let oldest = self.control.head().saturating_sub(self.pages);
        let safe = oldest.saturating_add((self.pages / 8).max(1)).min(end);
        self.control.held_page().map_or(safe, |held| held.min(safe))
    }

    /// The end of the complete pages once nothing writes any more: the number of the page after them, and
    /// how many events were recorded in them and in those before.
    pub fn end_of_complete(&self) -> (u64, u64) {
        let state = self.control.quiescent();
        let is_open = state.offset as usize > PAGE_HEADER;
        (state.head, if is_open { state.page_start_events } else { state.events })
    }

    /// Appends page `number` of an overwrite-mode ring, sealed and marked with `missed` lost events more than
    /// it has itself.
    ///
    /// May run while programs write: `None` if the page was reused before or during the copy.
    pub fn copy(&self, number: u64, missed: u64, out: &mut Vec<u8>) -> Option<SealedPage> {
        let start = out.len();
        let page = self.copy_page(number, None, missed, out);
        // The copy must be complete before the check of what happened meanwhile.
        fence(Ordering::Acquire);
        // Page `number + pages` takes the same memory. It is opened only after `head` has reached its number.
        if page.is_none() || self.control.head() >= number + self.pages && self.is_reopened(number) {
            out.truncate(start);
            return None;
        }
        page
    }

    /// Whether the memory of page `number` has held a newer page before this was called.
    ///
    /// The length of such a page is 0 from before its first byte is written until it is complete; then `head`
    /// passes its number. Both come from one program, which is busy in between: so the three are read in this
    /// order, and a page is the old one if nothing is busy between its length and `head`.
    fn is_reopened(&self, number: u64) -> bool {
        let index = self.base + (number % self.pages) as usize;
        for _ in 0..BUSY_MAX {
            let used = self.rings.meta.read(index).map_or(0, |meta| meta.used);
            fence(Ordering::Acquire);
            let is_busy = self.control.is_busy();
            if used == 0 || self.control.head() > number + self.pages {
                return true;
            }
            if !is_busy {
                return false;
            }
            std::hint::spin_loop();
        }
        true
    }

    /// Copies page `number` and seals the copy: the commit word, the missed-events mark, zeros after the
    /// data.
    ///
    /// The ring's own page stays as it is: programs may be writing to it.
    fn copy_page(
        &self,
        number: u64,
        open: Option<PageMeta>,
        overwritten: u64,
        out: &mut Vec<u8>,
    ) -> Option<SealedPage> {
        let index = self.base + (number % self.pages) as usize;
        let (source, meta) = (self.rings.pages.get(index)?, self.rings.meta.read(index)?);
        let lost = meta.lost + overwritten;
        let meta = open.unwrap_or(meta);
        if meta.used as usize <= PAGE_HEADER {
            return None;
        }
        let used = (meta.used as usize).min(PAGE_SIZE);
        let start = out.len();
        out.resize(start + PAGE_SIZE, 0);
        // SAFETY: the source is a whole mapped page and the destination has `PAGE_SIZE >= used` bytes; they
        // are different memory. The programs leave pages between `consumed` and `head` alone; in overwrite
        // mode the caller checks afterwards whether the page was reused meanwhile.
        unsafe {
            std::ptr::copy_nonoverlapping(source.as_ptr().cast::<u8>(), out[start..].as_mut_ptr(), used);
        }
        let missed = (lost != 0).then_some(lost);
        if page::seal(&mut out[start..], Endian::Little, used - PAGE_HEADER, missed).is_err() {
            // The programs write multiples of four.
            out.truncate(start);
            return None;
        }
        Some(SealedPage { events: meta.events, lost })
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
