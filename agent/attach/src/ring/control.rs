//! A CPU's control block, seen from user space.

use std::{
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use agent_ebpf::{CpuControl, LossCause, hold};

/// A view of one [`CpuControl`] with the access each field allows.
#[derive(Clone, Copy, Debug)]
pub struct Control<'a> {
    block: NonNull<CpuControl>,
    _map: std::marker::PhantomData<&'a CpuControl>,
}

// SAFETY: every access is an atomic or volatile one.
unsafe impl Send for Control<'_> {}
// SAFETY: as above.
unsafe impl Sync for Control<'_> {}

macro_rules! atomic {
    ($self:ident . $field:ident) => {
        // SAFETY: the block outlives the view, the field is an aligned u64 and is only ever accessed
        // atomically here.
        unsafe { AtomicU64::from_ptr(&raw mut (*$self.block.as_ptr()).$field) }
    };
}

impl<'a> Control<'a> {
    /// The view of element `row`.
    pub(super) fn new(map: &'a super::SharedArray<CpuControl>, row: u32) -> Option<Self> {
        Some(Self { block: map.get(row as usize)?, _map: std::marker::PhantomData })
    }

    /// Opens or closes this CPU's gate. Programs that have passed it finish their event; see `capture`'s
    /// stop.
    pub fn set_enabled(&self, enabled: bool) {
        atomic!(self.enabled).store(enabled.into(), Ordering::SeqCst);
    }

    /// Says whether the gate is closed for a pause, in which programs hand over the open page.
    pub fn set_paused(&self, paused: bool) {
        atomic!(self.paused).store(paused.into(), Ordering::SeqCst);
    }

    /// Sets whose events are not recorded, where the agent's own are not.
    pub fn set_self(&self, tgid: u32) {
        // SAFETY: the block outlives the view; an aligned word, which programs load with single loads.
        unsafe { (&raw mut (*self.block.as_ptr()).self_tgid).write_volatile(tgid) }
    }

    /// Chooses the programs that count 32-bit system calls ([`agent_ebpf::compat_counter`]).
    pub fn set_compat_counter(&self, counter: u64) {
        atomic!(self.compat_counter).store(counter, Ordering::Relaxed);
    }

    /// Forgets to whom the last switch gave the CPU, which may have given it to others since. Only while the
    /// gate is closed.
    pub fn forget_switch(&self) {
        atomic!(self.switch_owed).store(0, Ordering::Relaxed);
    }

    /// Pages completed since the start; everything written to them is visible.
    pub fn head(&self) -> u64 {
        atomic!(self.head).load(Ordering::Acquire)
    }

    /// Pages released since the start.
    pub fn consumed(&self) -> u64 {
        atomic!(self.consumed).load(Ordering::Relaxed)
    }

    /// Gives all pages before page number `page` back to the programs.
    pub(super) fn release(&self, page: u64) {
        atomic!(self.consumed).store(page, Ordering::Release);
    }

    /// Lets the programs wake the reader again. Whatever they complete before that shows in [`Control::head`]
    /// afterwards.
    pub fn listen(&self) {
        // Sequentially consistent with the load of `head` after it: see `CpuControl::wake_asked`.
        atomic!(self.wake_asked).store(0, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Whether there are events that no complete page has: in the page that programs are filling, as far as
    /// they have come, or in the side queue.
    pub fn has_open_page(&self) -> bool {
        // SAFETY: the block outlives the view; an aligned word, which programs change by single stores.
        let offset = unsafe { (&raw const (*self.block.as_ptr()).offset).read_volatile() };
        let queued = atomic!(self.side_tail).load(Ordering::Relaxed)
            != atomic!(self.side_head).load(Ordering::Relaxed);
        offset as usize > agent_ebpf::PAGE_HEADER || queued
    }

    /// Whether a program is writing in this ring at the moment.
    pub fn is_busy(&self) -> bool {
        atomic!(self.busy).load(Ordering::Acquire) != 0
    }

    /// Whether all events that have their time by now are counted: no program is writing in this ring, and
    /// nothing waits in the side queue.
    pub fn is_settled(&self) -> bool {
        !self.is_busy()
            && atomic!(self.side_tail).load(Ordering::Acquire)
                == atomic!(self.side_head).load(Ordering::Acquire)
    }

    /// The number of the page that is kept because an event in it asks for a snapshot.
    pub fn held_page(&self) -> Option<u64> {
        match atomic!(self.hold).load(Ordering::Acquire) {
            hold::ARMED | hold::OFF => None,
            held => Some(held - 1),
        }
    }

    /// Lets programs keep the page of the next event that asks for a snapshot, or no page. What they keep now
    /// may be reused.
    pub fn hold_pages(&self, hold: bool) {
        let value = if hold { hold::ARMED } else { hold::OFF };
        atomic!(self.hold).store(value, Ordering::Release);
    }

    /// Events recorded since the start.
    pub fn events(&self) -> u64 {
        atomic!(self.events).load(Ordering::Relaxed)
    }

    /// Events in pages that overwrite mode reused.
    pub fn overwritten(&self) -> u64 {
        atomic!(self.overwritten).load(Ordering::Relaxed)
    }

    /// Thread names that were not noted because the agent did not read them in time.
    pub fn names_lost(&self) -> u64 {
        atomic!(self.names_lost).load(Ordering::Relaxed)
    }

    /// Events lost for `cause` since the start.
    pub fn lost(&self, cause: LossCause) -> u64 {
        // SAFETY: as in `atomic!`; the index is an enum discriminant below the array's length.
        let field =
            unsafe { AtomicU64::from_ptr((&raw mut (*self.block.as_ptr()).lost[cause as usize]).cast()) };
        field.load(Ordering::Relaxed)
    }

    /// Events lost for any cause since the start.
    pub fn lost_total(&self) -> u64 {
        LossCause::ALL.iter().map(|&cause| self.lost(cause)).sum()
    }

    /// The whole block, for the fields that change only while programs run. They fit together after the gate
    /// is closed and all programs have returned; before, each of them is what it was at a moment during this
    /// call.
    pub fn quiescent(&self) -> CpuControl {
        // SAFETY: the block outlives the view and any bytes are a valid value.
        unsafe { self.block.as_ptr().read_volatile() }
    }

    /// Sets that this CPU, whose block is element `row`, has the ring and the side queue number `index`, of
    /// `pages` pages, and that its reader, number `reader`, is woken when `wake_pages` of them wait. Only
    /// before its gate is opened for the first time.
    pub(crate) fn set_ring(
        &self,
        (cpu, row): (u32, u32),
        index: u32,
        pages: u32,
        reader: u32,
        wake_pages: u32,
    ) {
        // SAFETY: no program uses the ring yet, so nothing else accesses these fields.
        unsafe {
            (&raw mut (*self.block.as_ptr()).reader).write_volatile(reader);
            (&raw mut (*self.block.as_ptr()).wake_pages).write_volatile(wake_pages);
            (&raw mut (*self.block.as_ptr()).ring_base).write_volatile(index * pages);
            (&raw mut (*self.block.as_ptr()).ring_pages).write_volatile(pages);
            (&raw mut (*self.block.as_ptr()).side).write_volatile(index);
            (&raw mut (*self.block.as_ptr()).cpu).write_volatile(cpu);
            (&raw mut (*self.block.as_ptr()).row).write_volatile(row);
        }
    }
}
