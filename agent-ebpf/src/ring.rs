//! The writer of the page ring.
//!
//! One writer at a time per CPU. Tracepoint, kprobe and perf programs cannot nest on a CPU (`bpf_prog_active`,
//! `trace_call_bpf`, kernel/trace/bpf_trace.c), so plain loads and stores suffice between them; `CpuControl::busy` catches a
//! writer of another kind that interrupts one of them. Nothing in a page is visible to the agent before `head` passes it,
//! except at a stop, after the gate is closed and every program has returned.

use agent_ebpf::{CpuControl, EventLedger, LossCause, PAGE_HEADER, PAGE_SIZE};

use crate::{
    atomic, globals,
    maps::{CONTROL, LEDGER, PAGE_META, PAGES, Page},
    wake,
};

/// Longest payload, in words, whose length fits the event header's `type_len` (include/linux/ring_buffer.h,
/// `RINGBUF_TYPE_DATA_TYPE_LEN_MAX`).
const TYPE_LEN_MAX: u32 = 28;
const TYPE_TIME_EXTEND: u32 = 30;
const DELTA_BITS: u32 = 27;
const DELTA_MASK: u64 = (1 << DELTA_BITS) - 1;

/// Sizes of the body copy. The verifier does not relate a position to a length, so the bytes behind the common fields are
/// copied under a bound that both respect: an event fits a page only if the size class above its length does.
macro_rules! for_each_class {
    ($do:ident) => {
        $do!(32);
        $do!(64);
        $do!(128);
        $do!(256);
        $do!(512);
        $do!(1024);
        $do!(2048);
    };
}
/// Event header of 8 bytes and common fields of 8.
const FRONT_MAX: u32 = 16;
/// The longest body: what an empty page holds behind `FRONT_MAX`.
const BODY_MAX: u32 = PAGE_SIZE as u32 - PAGE_HEADER as u32 - FRONT_MAX;

/// A CPU's ring, held by the one program that may write to it now.
pub struct Ring {
    ctl: *mut CpuControl,
    ledger: *mut EventLedger,
}

/// Space for one record, taken but not yet filled.
pub struct Reservation {
    page: *mut Page,
    /// Where the event's header goes.
    at: u32,
    delta: u32,
}

impl Ring {
    /// The ring of this CPU, if its gate is open.
    #[inline(always)]
    pub fn open(cpu: u32, cookie: u32) -> Option<Self> {
        let ctl = CONTROL.get_ptr_mut(cpu)?;
        if atomic::load(unsafe { &raw const (*ctl).enabled }) == 0 {
            return None;
        }
        let ledger = LEDGER.get_ptr_mut(cpu * globals::slots() + cookie)?;
        Some(Self { ctl, ledger })
    }

    #[inline(always)]
    pub fn control(&mut self) -> &mut CpuControl {
        // SAFETY: the pointer comes from a map lookup; only this CPU's current writer changes these fields.
        unsafe { &mut *self.ctl }
    }

    /// Makes the caller the writer, or counts the event as lost to nesting.
    #[inline(always)]
    pub fn acquire(&mut self) -> bool {
        // Programs that interrupt one another on a CPU finish in reverse order, so a plain flag is a lock here.
        if self.control().busy != 0 {
            self.lose(LossCause::Nested);
            return false;
        }
        unsafe { (&raw mut (*self.ctl).busy).write_volatile(1) };
        true
    }

    #[inline(always)]
    pub fn release(&mut self) {
        unsafe { (&raw mut (*self.ctl).busy).write_volatile(0) };
    }

    /// Counts an event that will not be in the file.
    #[inline(always)]
    pub fn lose(&mut self, cause: LossCause) {
        let ctl = self.control();
        ctl.lost[cause as usize] += 1;
        ctl.unmarked_lost += 1;
        unsafe { (*self.ledger).lost[cause as usize] += 1 };
    }

    /// Takes space for a record whose body, behind the 8 common bytes, has `body` bytes.
    #[inline(always)]
    pub fn reserve(&mut self, time: u64, body: u32) -> Result<Reservation, LossCause> {
        if body > BODY_MAX {
            return Err(LossCause::Oversize);
        }
        // Deltas cannot be negative. The monotonic clocks step back only as seen from an NMI; CLOCK_TAI does when it is set.
        let last_time = self.control().last_time;
        let time = if time < last_time { last_time } else { time };
        let mut delta = time - last_time;
        let extend = if delta > DELTA_MASK { 8 } else { 0 };
        let mut offset = self.control().offset;
        if offset != 0 && offset + extend + FRONT_MAX + class(body) > PAGE_SIZE as u32 {
            self.close_page(offset);
            offset = 0;
        }
        if offset == 0 {
            let page = self.open_page(time)?;
            return Ok(Reservation { page, at: PAGE_HEADER as u32, delta: 0 });
        }
        let ctl = self.control();
        let page = PAGES.get_ptr_mut(ctl.ring_base + ctl.slot).ok_or(LossCause::RingFull)?;
        if delta > DELTA_MASK {
            offset = clamp::<{ PAGE_SIZE as u32 - 8 }>(offset);
            put(page, offset, TYPE_TIME_EXTEND | ((delta & DELTA_MASK) as u32) << 5);
            put(page, offset + 4, (delta >> DELTA_BITS) as u32);
            offset += 8;
            delta = 0;
        }
        Ok(Reservation { page, at: offset, delta: delta as u32 })
    }

    /// Makes a filled record part of the page.
    #[inline(always)]
    pub fn commit(&mut self, time: u64, end: u32) {
        let ctl = self.control();
        if ctl.offset == 0 {
            // The page's first event carries the mark. Had this event failed, the page would be opened once more.
            ctl.unmarked_lost = 0;
        }
        ctl.offset = end;
        if time > ctl.last_time {
            ctl.last_time = time;
        }
        ctl.events += 1;
        unsafe { (*self.ledger).recorded += 1 };
    }

    /// Hands the page that is being filled to the agent.
    #[inline(always)]
    fn close_page(&mut self, used: u32) {
        let ctl = self.control();
        if let Some(meta) = PAGE_META.get_ptr_mut(ctl.ring_base + ctl.slot) {
            unsafe {
                (*meta).events = (ctl.events - ctl.page_start_events) as u32;
                (*meta).used = used;
            }
        }
        ctl.offset = 0;
        ctl.slot += 1;
        if ctl.slot >= ctl.ring_pages {
            ctl.slot = 0;
        }
        let head = ctl.head + 1;
        atomic::publish(&raw mut ctl.head, head);
        wake::after_page(ctl, head);
    }

    #[inline(always)]
    fn open_page(&mut self, time: u64) -> Result<*mut Page, LossCause> {
        let ctl = self.control();
        let index = ctl.ring_base + ctl.slot;
        let meta = PAGE_META.get_ptr_mut(index).ok_or(LossCause::RingFull)?;
        let page = PAGES.get_ptr_mut(index).ok_or(LossCause::RingFull)?;
        let full = ctl.head - atomic::load(&raw const ctl.consumed) >= u64::from(ctl.ring_pages);
        if full {
            if globals::overwrite() == 0 {
                return Err(LossCause::RingFull);
            }
            ctl.overwritten += u64::from(unsafe { (*meta).events });
        }
        unsafe {
            (*meta).lost = ctl.unmarked_lost;
            (*meta).events = 0;
            // Whoever copies the page now must notice that it is not whole.
            (*meta).used = 0;
            page.cast::<u64>().write(time);
            page.cast::<u64>().add(1).write(0);
        }
        ctl.page_start_events = ctl.events;
        Ok(page)
    }
}

/// What stands behind a record's common fields.
pub trait Body {
    /// Its length in bytes.
    fn len(&self) -> u32;

    /// Writes it to `destination`, which has room for `MAX` bytes; `len` is not more. `false` if the kernel refused.
    fn write<const MAX: u32>(&self, destination: *mut u8, len: u32) -> bool;
}

impl Reservation {
    /// Writes the event header, the common fields and the body, and returns where the event ends.
    #[inline(always)]
    pub fn fill(&self, common: [u32; 2], body: &impl Body) -> Result<u32, LossCause> {
        let len = body.len();
        let words = (8 + len + 3) / 4;
        let mut at = clamp::<{ PAGE_SIZE as u32 - FRONT_MAX }>(self.at);
        if words <= TYPE_LEN_MAX {
            put(self.page, at, words | self.delta << 5);
            at += 4;
        } else {
            // The length word counts itself and the payload, not the rounding.
            put(self.page, at, self.delta << 5);
            put(self.page, at + 4, words * 4 + 4);
            at += 8;
        }
        put(self.page, at, common[0]);
        put(self.page, at + 4, common[1]);
        at += 8;
        let end = at + words * 4 - 8;
        macro_rules! write_class {
            ($class:literal) => {
                if len <= $class {
                    return self.write::<$class, { PAGE_SIZE as u32 - $class }>(at, len, body).map(|()| end);
                }
            };
        }
        for_each_class!(write_class);
        self.write::<BODY_MAX, { PAGE_SIZE as u32 - BODY_MAX }>(at, len, body).map(|()| end)
    }

    /// Writes a body of at most `MAX` bytes at `at`, which is not behind `LAST`.
    #[inline(always)]
    fn write<const MAX: u32, const LAST: u32>(
        &self,
        at: u32,
        len: u32,
        body: &impl Body,
    ) -> Result<(), LossCause> {
        let at = clamp::<LAST>(at);
        let destination = unsafe { self.page.cast::<u8>().add(at as usize) };
        if body.write::<MAX>(destination, clamp::<MAX>(len)) { Ok(()) } else { Err(LossCause::ReadFault) }
    }
}

/// As [`clamp`], with a bound that is a constant only after inlining.
#[inline(always)]
pub fn clamp_to(value: u32, max: u32) -> u32 {
    let mut value = u64::from(value);
    // SAFETY: changes nothing but its operand.
    unsafe {
        core::arch::asm!(
            "if {0} <= {1} goto +1",
            "{0} = {1}",
            inout(reg) value,
            in(reg) u64::from(max),
            options(pure, nomem, nostack),
        );
    }
    value as u32
}

/// A value that is not more than `MAX`, in a way that the verifier of every kernel follows.
///
/// Callers have made sure of the bound already. But the compiler may test one copy of a value and use another, or test what
/// it loads from the stack and load it again, and verifiers before 6.8 do not connect the two. The result of the assembly
/// is a new value to the compiler, and a bounded one to the verifier.
#[inline(always)]
pub fn clamp<const MAX: u32>(value: u32) -> u32 {
    let mut value = u64::from(value);
    // SAFETY: changes nothing but its operand.
    unsafe {
        core::arch::asm!(
            "if {0} <= {max} goto +1",
            "{0} = {max}",
            inout(reg) value,
            max = const MAX,
            options(pure, nomem, nostack),
        );
    }
    value as u32
}

/// The size class that a body is copied under.
#[inline(always)]
fn class(body: u32) -> u32 {
    macro_rules! pick_class {
        ($class:literal) => {
            if body <= $class {
                return $class;
            }
        };
    }
    for_each_class!(pick_class);
    BODY_MAX
}

#[inline(always)]
fn put(page: *mut Page, at: u32, word: u32) {
    // SAFETY: callers keep `at + 4` within the page, which the verifier checks.
    unsafe { page.cast::<u8>().add(at as usize).cast::<u32>().write(word) };
}
