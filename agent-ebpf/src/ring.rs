//! The writer of the page ring.
//!
//! One writer at a time per CPU, which [`CpuControl::busy`] marks. Tracepoint programs cannot interrupt one
//! another on a CPU (`bpf_prog_active`, `trace_call_bpf`, kernel/trace/bpf_trace.c), but raw tracepoint
//! programs can interrupt them and each other, and then find the flag set. They write to the side queue
//! (`side`), which the flag's holder empties after its own record. Interrupts nest, so a plain load and a
//! plain store take the flag: an interrupt between the two has released it when the store comes. Only where
//! another task's program may come in between (`PREEMPTIBLE`) an atomic exchange is needed.
//!
//! A writer reads the clock after it has the flag, and so the ring is in the order of the time stamps. What
//! interrupts it before that is older than its event, and goes to the ring before it.
//!
//! Nothing in a page is visible to the agent before `head` passes it, except at a stop, after the gate is
//! closed and every program has returned. Losses are counted atomically, because a writer that is interrupted
//! and the one that interrupts it may both count; everything else in the control block belongs to the holder
//! of the flag.

use agent_ebpf::{CpuControl, EventLedger, LossCause, PAGE_HEADER, PAGE_SIZE};

use crate::{
    atomic, context, diagnose, globals, hold,
    maps::{CONTROL, ENABLED, LEDGER, PAGE_META, PAGES, Page},
    owned, parts, side, wake,
};

/// Longest payload, in words, whose length fits the event header's `type_len` (include/linux/ring_buffer.h,
/// `RINGBUF_TYPE_DATA_TYPE_LEN_MAX`).
const TYPE_LEN_MAX: u32 = 28;
const TYPE_TIME_EXTEND: u32 = 30;
const DELTA_BITS: u32 = 27;
const DELTA_MASK: u64 = (1 << DELTA_BITS) - 1;
/// Bytes of the longest record that has an event header of 4 bytes.
pub const SHORT_MAX: u32 = TYPE_LEN_MAX * 4;
/// Bytes of that header.
pub const SHORT_HEADER: u32 = 4;
/// Bytes of the header of longer ones.
pub const LONG_HEADER: u32 = 8;

/// Sizes of the body copy. The verifier does not relate a position to a length, so the bytes after the common
/// fields are copied under a bound that both respect: an event fits a page only if the size class above its
/// length does.
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
/// Where a page counts as full: after it, the agent stores how many events were lost before the page (8
/// bytes, `RB_MISSED_STORED`). Only an event that fills a page by itself goes further.
const FULL: u32 = PAGE_SIZE as u32 - 8;
/// The longest body: what an empty page holds after `FRONT_MAX`.
const BODY_MAX: u32 = PAGE_SIZE as u32 - PAGE_HEADER as u32 - FRONT_MAX;

/// A CPU's ring and one event's counts on it.
pub struct Ring {
    pub ctl: *mut CpuControl,
    pub ledger: *mut EventLedger,
}

/// Space for one record, taken but not yet filled.
pub struct Reservation {
    page: *mut Page,
    /// Where the event's header goes.
    at: u32,
    delta: u32,
}

/// Where the next event goes.
pub struct Room {
    pub page: *mut Page,
    pub at: u32,
    pub delta: u32,
}

/// Whether an event is recorded by this program, where events come and go.
#[inline(always)]
fn is_enabled(cookie: u32) -> bool {
    ENABLED.get_ptr(cookie).is_some_and(|enabled| atomic::load(enabled) == u64::from(globals::changing()))
}

impl Ring {
    /// The ring of this CPU, if its gate is open and the event is recorded.
    #[inline(always)]
    pub fn open(cpu: u32, cookie: u32) -> Option<Self> {
        Self::open_row(cpu, cookie)
    }

    /// The same where users or processes have rings of their own. With `CLAIM`, for an event that is about to
    /// be recorded, one that has none yet gets some.
    #[inline(always)]
    pub fn open_own<const CLAIM: bool>(cpu: u32, cookie: u32) -> Option<Self> {
        Self::open_row(owned::row::<CLAIM>(cpu), cookie)
    }

    #[inline(always)]
    fn open_row(row: u32, cookie: u32) -> Option<Self> {
        let ctl = CONTROL.get_ptr_mut(row, globals::control_len())?;
        // SAFETY: the map's value, of which this is a member.
        if atomic::load(unsafe { &raw const (*ctl).enabled }) == 0 {
            return None;
        }
        if globals::changing() != 0 && !is_enabled(cookie) {
            return None;
        }
        Self::at(ctl, row, cookie)
    }

    #[inline(always)]
    pub fn at(ctl: *mut CpuControl, row: u32, cookie: u32) -> Option<Self> {
        let ledger = LEDGER.get_ptr_mut(row * globals::slots() + cookie, globals::ledger_len())?;
        Some(Self { ctl, ledger })
    }

    /// The control block, for the holder of the flag.
    #[inline(always)]
    pub fn control(&mut self) -> &mut CpuControl {
        // SAFETY: the map's value, and the caller has the flag of the writer: no interrupt and no other CPU
        // changes what is used through the reference. What others change meanwhile (the agent `enabled`,
        // `consumed` and `wake_asked`, interrupts `side_tail` and `lost`) is only accessed atomically or by
        // single volatile loads and stores.
        unsafe { &mut *self.ctl }
    }

    /// Counts an event that a filter rejects.
    #[inline(always)]
    pub fn filter_out(&mut self) {
        // SAFETY: the map's value, of which this is a member.
        count(unsafe { &raw mut (*self.ledger).filtered });
    }

    /// Counts an event of the agent's own threads.
    #[inline(always)]
    pub fn leave_out_own(&mut self) {
        // SAFETY: the map's value, of which this is a member.
        count(unsafe { &raw mut (*self.ledger).own });
    }

    /// Counts a record in which a text was cut.
    #[inline(always)]
    pub fn note_cut(&mut self) {
        // SAFETY: the map's value, of which this is a member.
        atomic::increment(unsafe { &raw mut (*self.ledger).cut });
    }

    /// Makes the caller the writer, and gives the time of its event. `None` if it has to use the side queue:
    /// because it interrupted the writer, or because the queue holds older events. Those may be of interrupts
    /// that came before the clock was read, so that is looked at last: such an event would otherwise follow
    /// this one in the ring, with this one's time.
    #[inline(always)]
    pub fn acquire(&mut self) -> Option<u64> {
        if !take(self.ctl) {
            return None;
        }
        let time = context::now();
        if !side::is_empty(self.ctl) {
            self.leave();
            return None;
        }
        Some(time)
    }

    /// Lets the next one write. What interrupting programs have left stays until [`Ring::flush_side`].
    #[inline(always)]
    pub fn leave(&mut self) {
        give_up(self.ctl);
    }

    /// Moves to the ring what interrupting programs have left, and wakes the reader where each event does. A
    /// program has one place for this, after both the page and the queue, because the verifier walks through
    /// it for each.
    #[inline(always)]
    pub fn flush_side(&self) {
        if !side::is_empty(self.ctl) {
            parts::flush(row_of(self.ctl));
        }
        wake::after_event(self.ctl);
    }

    /// Moves entries of the side queue to the ring, for an event that has no room there: one that is lost
    /// moves none. A writer that the caller has interrupted does that itself. Where events have stacks,
    /// moving them from here takes more of the program's stack than there is.
    #[inline(always)]
    pub fn make_room_in_queue(&self) {
        if !crate::stack::any() && !self.is_taken() {
            parts::flush(row_of(self.ctl));
        }
    }

    /// Whether some writer, below the caller, has not finished its record.
    #[inline(always)]
    pub fn is_taken(&self) -> bool {
        // SAFETY: the map's value, of which this is a member.
        atomic::load(unsafe { &raw const (*self.ctl).busy }) != 0
    }

    /// Counts an event that will not be in the file.
    #[inline(always)]
    pub fn lose(&mut self, cause: LossCause) {
        // SAFETY: the map's value, of which this is an element.
        atomic::increment(unsafe { &raw mut (*self.ctl).lost[cause as usize] });
        // SAFETY: the map's value, of which this is an element.
        atomic::increment(unsafe { &raw mut (*self.ledger).lost[cause as usize] });
    }

    /// Takes space for a record whose body, after the 8 common bytes, has `body` bytes.
    #[inline(always)]
    pub fn reserve(&mut self, time: u64, body: u32) -> Result<Reservation, LossCause> {
        if body > BODY_MAX {
            return Err(LossCause::Oversize);
        }
        let Room { page, at, delta } = self.room(time, FRONT_MAX + class(body)).ok_or(LossCause::RingFull)?;
        Ok(Reservation { page, at, delta })
    }

    /// Where an event of `need` bytes, header included, goes.
    #[inline(always)]
    pub fn room(&mut self, time: u64, need: u32) -> Option<Room> {
        let ctl = self.control();
        let mut at = ctl.offset;
        // Time that stepped back is a huge delta here.
        let mut delta = time.wrapping_sub(ctl.last_time);
        if at == 0 || at + need > FULL || delta > DELTA_MASK {
            at = parts::make_room(row_of(self.ctl), time, need) as u32;
            if at == 0 {
                return None;
            }
            delta = 0;
        }
        let ctl = self.control();
        let page = PAGES.get_ptr_mut(ctl.ring_base + ctl.page, globals::pages_len())?;
        Some(Room { page, at, delta: delta as u32 })
    }

    /// Makes a filled record, which ends at `end`, part of the page.
    #[inline(always)]
    pub fn commit(&mut self, delta: u64, end: u32) {
        let ctl = self.control();
        ctl.offset = end;
        ctl.last_time += delta;
        ctl.events += 1;
        // SAFETY: the map's value. Only the holder of the flag changes this count in the rows of its CPU.
        unsafe { (*self.ledger).recorded += 1 };
    }

    /// Gives up what [`Ring::room`] gave.
    #[inline(always)]
    pub fn abort(&mut self, cause: LossCause) {
        self.cancel();
        self.lose(cause);
    }

    /// As [`Ring::abort`], where there is nothing to record after all.
    #[inline(always)]
    pub fn cancel(&mut self) {
        if self.control().offset == PAGE_HEADER as u32 {
            close_empty(self.ctl);
        }
    }
}

/// Adds 1 to a word of the event's own row. No program is interrupted by itself, so without preemption that
/// needs no atomic operation.
#[inline(always)]
fn count(word: *mut u64) {
    if globals::preemptible() == 0 {
        // SAFETY: the event's own row, which only this program changes, and nothing preempts it.
        unsafe { *word += 1 };
    } else {
        atomic::increment(word);
    }
}

/// Takes the flag of the writer.
#[inline(always)]
pub fn take(ctl: *mut CpuControl) -> bool {
    // SAFETY: the map's value, of which this is a member.
    let busy = unsafe { &raw mut (*ctl).busy };
    if globals::preemptible() != 0 {
        return atomic::exchange(busy, 1) == 0;
    }
    if atomic::load(busy) != 0 {
        return false;
    }
    atomic::store(busy, 1);
    true
}

/// Gives up the flag of the writer, for its holder.
#[inline(always)]
pub fn give_up(ctl: *mut CpuControl) {
    // SAFETY: the map's value, of which this is a member.
    atomic::store(unsafe { &raw mut (*ctl).busy }, 0);
}

/// Which element of the control map this is.
#[inline(always)]
pub fn row_of(ctl: *mut CpuControl) -> u32 {
    // SAFETY: the map's value; the agent has set the row before it opened the gate.
    unsafe { (*ctl).row }
}

/// The rarer half of [`Ring::room`], in the ring of this row: a time extend, another page, time that stepped
/// back. The event's delta is 0 after it. Gives 0 if the ring is full.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/ring_make_room")]
extern "C" fn ring_make_room(row: u64, time: u64, need: u64) -> u64 {
    match CONTROL.get_ptr_mut(row as u32, globals::control_len()) {
        Some(ctl) => make_room(ctl, time, need as u32),
        None => 0,
    }
}

#[inline(always)]
fn make_room(ctl: *mut CpuControl, time: u64, need: u32) -> u64 {
    // SAFETY: as in `Ring::control`, whose reference the caller does not use any more.
    let ctl = unsafe { &mut *ctl };
    // Deltas cannot be negative. The monotonic clocks step back only as seen from an NMI; CLOCK_TAI does when
    // it is set.
    let time = if time < ctl.last_time { ctl.last_time } else { time };
    let offset = ctl.offset;
    if offset != 0 {
        let delta = time - ctl.last_time;
        let extend = if delta > DELTA_MASK { 8 } else { 0 };
        if offset + extend + need <= FULL {
            if extend == 0 {
                return offset.into();
            }
            let Some(page) = PAGES.get_ptr_mut(ctl.ring_base + ctl.page, globals::pages_len()) else {
                return 0;
            };
            let at = clamp::<{ PAGE_SIZE as u32 - 8 }>(offset);
            put(page, at, TYPE_TIME_EXTEND | ((delta & DELTA_MASK) as u32) << 5);
            put(page, at + 4, (delta >> DELTA_BITS) as u32);
            ctl.offset = offset + extend;
            ctl.last_time = time;
            return (offset + extend).into();
        }
        close_page(ctl, offset);
    }
    open_page(ctl, time)
}

/// Hands the page that is being filled to the agent.
#[inline(always)]
fn close_page(ctl: &mut CpuControl, used: u32) {
    if let Some(meta) = PAGE_META.get_ptr_mut(ctl.ring_base + ctl.page) {
        // SAFETY: the map's value, of the page that is open: the holder's of the flag until `head` passes it.
        unsafe {
            (*meta).events = (ctl.events - ctl.page_start_events) as u32;
            (*meta).used = used;
        }
    }
    ctl.offset = 0;
    ctl.page += 1;
    if ctl.page >= ctl.ring_pages {
        ctl.page = 0;
    }
    let number = ctl.head;
    let head = number + 1;
    atomic::publish(&raw mut ctl.head, head);
    wake::after_page(ctl, head);
    hold::after_page(ctl, number);
}

/// Hands the page that is open to the agent, if it has events; for the holder of the flag.
#[inline(always)]
pub fn close_open(ctl: *mut CpuControl) {
    // SAFETY: as in `Ring::control`.
    let ctl = unsafe { &mut *ctl };
    let used = ctl.offset;
    if used > PAGE_HEADER as u32 {
        close_page(ctl, used);
    }
}

#[inline(always)]
fn open_page(ctl: &mut CpuControl, time: u64) -> u64 {
    let index = ctl.ring_base + ctl.page;
    let (Some(meta), Some(page)) =
        (PAGE_META.get_ptr_mut(index), PAGES.get_ptr_mut(index, globals::pages_len()))
    else {
        return 0;
    };
    let full = ctl.head - atomic::load(&raw const ctl.consumed) >= u64::from(ctl.ring_pages);
    if full {
        if globals::overwrite() == 0 {
            diagnose::ring_is_full(ctl);
            return 0;
        }
        if hold::is_held(ctl, ctl.head - u64::from(ctl.ring_pages)) {
            diagnose::page_is_kept(ctl);
            return 0;
        }
        // SAFETY: the map's value. Of a page that is complete the agent only reads it, and the holder of the
        // flag is who reuses the page.
        ctl.overwritten += u64::from(unsafe { (*meta).events });
    }
    let lost = lost_total(ctl);
    if lost != ctl.marked_lost {
        diagnose::page_after_loss(ctl, lost - ctl.marked_lost);
    }
    // SAFETY: the map's value, of the page that the holder of the flag opens. In discard mode the agent has
    // released the page; in overwrite mode it compares `head` after it has copied one, and drops what was
    // reused.
    unsafe {
        (*meta).lost = lost - ctl.marked_lost;
        (*meta).events = 0;
        // Whoever copies the page now must notice that it is not whole: before its first byte changes.
        (&raw mut (*meta).used).write_volatile(0);
    }
    // SAFETY: as for the page's description; the header is at the start of the page, which is aligned.
    unsafe {
        page.cast::<u64>().write_volatile(time);
        page.cast::<u64>().add(1).write_volatile(0);
    }
    ctl.marked_lost = lost;
    ctl.page_start_events = ctl.events;
    ctl.last_time = time;
    ctl.offset = PAGE_HEADER as u32;
    PAGE_HEADER as u64
}

/// Takes back the opening of a page that did not get its first event: a page starts with the time of its
/// first event.
#[inline(never)]
fn close_empty(ctl: *mut CpuControl) -> u64 {
    // SAFETY: as in `Ring::control`, whose reference the caller does not use any more.
    let ctl = unsafe { &mut *ctl };
    if let Some(meta) = PAGE_META.get_ptr_mut(ctl.ring_base + ctl.page) {
        // SAFETY: the map's value, of the page that is open: the holder's of the flag.
        ctl.marked_lost -= unsafe { (*meta).lost };
    }
    ctl.offset = 0;
    0
}

#[inline(always)]
fn lost_total(ctl: &CpuControl) -> u64 {
    let mut sum = 0;
    for cause in 0..LossCause::COUNT {
        sum += atomic::load(&raw const ctl.lost[cause]);
    }
    sum
}

/// What follows a record's common fields.
pub trait Body {
    /// Its length in bytes.
    fn len(&self) -> u32;

    /// Writes it to `destination`, which has room for `MAX` bytes; `len` is not more. `false` if the kernel
    /// refused.
    fn write<const MAX: u32>(&self, destination: *mut u8, len: u32) -> bool;
}

impl Reservation {
    /// The time since the previous event.
    #[inline(always)]
    pub fn delta(&self) -> u32 {
        self.delta
    }

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

    /// Writes a body of at most `MAX` bytes at `at`, which is not after `LAST`.
    #[inline(always)]
    fn write<const MAX: u32, const LAST: u32>(
        &self,
        at: u32,
        len: u32,
        body: &impl Body,
    ) -> Result<(), LossCause> {
        let at = clamp::<LAST>(at);
        // SAFETY: the map's value: a page, which has `MAX` bytes from `LAST` on.
        let destination = unsafe { self.page.cast::<u8>().add(at as usize) };
        if body.write::<MAX>(destination, clamp::<MAX>(len)) { Ok(()) } else { Err(LossCause::ReadFault) }
    }
}

/// As [`clamp`], with a bound that is a constant only after inlining.
#[inline(always)]
pub fn clamp_to(value: u32, max: u32) -> u32 {
    let mut value = u64::from(value);
    // SAFETY: no memory and no register but its operand changes, and the jumps end within or directly after
    // it.
    unsafe {
        core::arch::asm!(
            "if {0} > {1} goto +1",
            "goto +1",
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
/// Callers have made sure of the bound already. But the compiler may test one copy of a value and use
/// another, or test what it loads from the stack and load it again, and verifiers before 6.8 do not connect
/// the two. The result of the assembly is a new value to the compiler, and a bounded one to the verifier.
#[inline(always)]
pub fn clamp<const MAX: u32>(value: u32) -> u32 {
    let mut value = u64::from(value);
    // SAFETY: as in `clamp_to`.
    unsafe {
        core::arch::asm!(
            "if {0} > {max} goto +1",
            "goto +1",
            "{0} = {max}",
            inout(reg) value,
            max = const MAX,
            options(pure, nomem, nostack),
        );
    }
    value as u32
}

/// The same value, of which the verifier knows nothing any more, with a number of which it knows nothing
/// either. It then takes the ways that led here for one; before 6.4 it tells them apart by every bit that it
/// knows of numbers which do not matter.
#[inline(always)]
pub fn forget(value: u32, unknown: u64) -> u32 {
    let mut value = u64::from(value);
    // SAFETY: two instructions on registers, after which even the operand is what it was.
    unsafe {
        core::arch::asm!(
            "{0} ^= {1}",
            "{0} ^= {1}",
            inout(reg) value,
            in(reg) unknown,
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

/// Writes a word at `at`, a multiple of 4 within the page, for the holder of the flag.
#[inline(always)]
pub fn put(page: *mut Page, at: u32, word: u32) {
    // SAFETY: the map's value: the verifier checks that `at + 4` is within the page. Events begin at
    // multiples of 4 bytes, and what is after the last one is the holder's of the flag.
    unsafe { page.cast::<u8>().add(at as usize).cast::<u32>().write(word) };
}
