//! Taking pages out of a CPU's ring.

use std::{
    ops::Range,
    sync::atomic::{Ordering, fence},
};

use agent_ebpf::{CpuControl, PAGE_HEADER, PAGE_SIZE, PageMeta};

use super::{Control, SharedArray};
use crate::tracedat::{Endian, page};

/// The mapped arrays that make up the rings of all CPUs.
#[derive(Debug)]
pub struct Rings {
    /// `PAGES`.
    pub pages: SharedArray<[u8; PAGE_SIZE]>,
    /// `PAGE_META`.
    pub meta: SharedArray<PageMeta>,
    /// `CONTROL`.
    pub control: SharedArray<CpuControl>,
}

/// One CPU's ring. There is one reader of a ring at a time; it owns the pages between `consumed` and `head`.
#[derive(Debug)]
pub struct CpuRing<'a> {
    rings: &'a Rings,
    control: Control<'a>,
    cpu: u32,
    base: usize,
    pages: u64,
}

/// A page as it goes into a file: its commit word and missed-events mark are in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SealedPage {
    /// Events in the page.
    pub events: u32,
    /// Events lost directly before it.
    pub lost: u64,
}

/// Pages taken out of a ring, still in its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken<'a> {
    /// The sealed pages, one after the other.
    pub bytes: &'a [u8],
    /// How many pages of the ring that is.
    pub pages: u64,
    /// Events in them.
    pub events: u64,
}

impl<'a> CpuRing<'a> {
    /// The ring of `cpu`, which consists of the `pages` elements of `PAGES` from `base` on.
    ///
    /// `None` if the arrays do not hold such a ring.
    pub fn new(rings: &'a Rings, cpu: u32, base: usize, pages: u32) -> Option<Self> {
        let control = Control::new(&rings.control, cpu)?;
        let end = base.checked_add(pages as usize)?;
        if pages == 0 || end > rings.pages.len() || end > rings.meta.len() {
            return None;
        }
        Some(Self { rings, control, cpu, base, pages: pages.into() })
    }

    /// The CPU whose events the ring holds.
    pub fn cpu(&self) -> u32 {
        self.cpu
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

    /// Takes complete pages, sealed, without releasing them: at most `max`, after the first `skip` that wait.
    /// They are contiguous, so a call takes none beyond the end of the ring. [`CpuRing::release`] releases
    /// pages once their bytes are safe.
    ///
    /// A page that the counters describe wrongly ends the run before it, and is passed over as a run without
    /// bytes.
    pub fn take(&self, skip: u64, max: u64) -> Taken<'a> {
        let waiting = self.ready().saturating_sub(skip);
        let first = (self.control.consumed() + skip) % self.pages;
        let max = max.min(waiting).min(self.pages - first);
        let start = self.base + first as usize;
        let mut taken = Taken::default();
        for index in start..start + max as usize {
            match self.seal(index) {
                Some(page) => {
                    taken.pages += 1;
                    taken.events += u64::from(page.events);
                }
                None if taken.pages == 0 => return Taken { pages: 1, ..taken },
                None => break,
            }
        }
        if let Some(bytes) = self.rings.pages.get(start).filter(|_| taken.pages != 0) {
            // SAFETY: `seal` has found all of these elements in the mapping, which outlives `'a`. The
            // programs leave pages between `consumed` and `head` alone, and this ring's one reader changes
            // them only before it makes the slice; after a release the slice is not used any more, which
            // `take`'s callers see to.
            taken.bytes = unsafe {
                std::slice::from_raw_parts(bytes.as_ptr().cast(), taken.pages as usize * PAGE_SIZE)
            };
        }
        taken
    }

    /// Seals element `index` of `PAGES` where it is. Doing so again changes nothing.
    fn seal(&self, index: usize) -> Option<SealedPage> {
        let (page, meta) = (self.rings.pages.get(index)?, self.rings.meta.read(index)?);
        let used = meta.used as usize;
        if used <= PAGE_HEADER || used > PAGE_SIZE {
            return None;
        }
        // SAFETY: a whole mapped page that the programs leave alone, as its number is between `consumed` and
        // `head`, and that nobody else refers to: see `take`.
        let page = unsafe { std::slice::from_raw_parts_mut(page.as_ptr().cast::<u8>(), PAGE_SIZE) };
        let missed = (meta.lost != 0).then_some(meta.lost);
        page::seal(page, Endian::Little, used - PAGE_HEADER, missed).ok()?;
        Some(SealedPage { events: meta.events, lost: meta.lost })
    }

    /// Gives `count` taken pages back to the programs.
    pub fn release(&self, count: u64) {
        self.control.release(self.control.consumed() + count);
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

    /// The numbers of the complete pages that an overwrite-mode ring still holds, oldest first.
    pub fn newest(&self) -> Range<u64> {
        let head = self.control.head();
        head.saturating_sub(self.pages)..head
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
        // Page `number + pages` takes the same memory. It is opened only after `head` has reached its number,
        // and then its length is 0 until it is complete.
        if page.is_none() || self.control.head() >= number + self.pages && self.is_reopened(number) {
            out.truncate(start);
            return None;
        }
        page
    }

    /// Whether the slot of page `number` holds, or may just begin to hold, a newer page.
    fn is_reopened(&self, number: u64) -> bool {
        let state = self.control.quiescent();
        let slot = self.base + (number % self.pages) as usize;
        let used = self.rings.meta.read(slot).map_or(0, |meta| meta.used);
        state.head > number + self.pages || used == 0 || state.busy != 0
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
