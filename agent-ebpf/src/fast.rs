//! The fast lane: the two halves that every program of it is made of.
//!
//! The agent writes a program for each event (`agent/compile/src/fast`): it calls `fast_begin`, which gives
//! the space for the record with the common fields filled in, stores the event's fields there, and calls
//! `fast_end`. Both are in the object as programs, but are never loaded by themselves: the agent appends
//! their instructions to the ones that it writes. Called with constants, they are verified for each event
//! with its constants.
//!
//! Such a program may be interrupted by another one at any point (`ring`, `side`).

use agent_ebpf::{
    CpuControl, END_CUT, EventLedger, LossCause, PAGE_SIZE, SIDE_RECORD_MAX, STACKS_BYTES, SideEntry,
    begin_flags,
};

use crate::{
    context::{self, Current, Own},
    globals,
    maps::EVENTS,
    ring::{LONG_HEADER, Ring, Room, SHORT_HEADER, SHORT_MAX, clamp_to, forget, put},
    side::Entry,
    stack, tasks, thin,
};

/// Says that an event is about no thread but the current one.
const NO_OTHER: u64 = u64::MAX;
/// Frames of a stack that are not the kernel's own business: that of `stack`, `fast_end`, the program, and
/// `bpf_trace_run`.
const OWN_FRAMES: u32 = 4;

/// What the first half passes to the second, on the program's stack. Words, so that the verifier keeps track
/// of the pointers.
#[repr(C)]
pub struct Frame {
    ctl: *mut CpuControl,
    ledger: *mut EventLedger,
    /// The event's header in the page, or the entry's in the side queue.
    header: *mut u8,
    /// Time since the previous event.
    delta: u64,
    /// Position in the side queue, if the record goes there.
    position: u64,
    /// Where the record goes: one of `destination`.
    destination: u64,
    /// Which stacks follow the event (`stack::wanted`). Like the next one, used only where some event has
    /// stacks.
    stacks: u64,
    /// Where they go in the queue's entry, or null: the verifier keeps track of pointers in memory, and
    /// before 6.8 not of what a comparison says about a number there.
    stack_area: *mut u8,
}

/// Values of `Frame::destination`.
mod destination {
    /// The page, after an event header of 4 bytes.
    pub(super) const SHORT: u64 = 0;
    /// The side queue.
    pub(super) const QUEUE: u64 = 1;
    /// The page, after an event header of 8 bytes.
    pub(super) const LONG: u64 = 2;
}

/// Takes space for a record of event `cookie`, of at most `max` bytes, and writes the common fields. With
/// more than `SIDE_RECORD_MAX` the event is lost where it would go through the side queue. `id` is the
/// event's id, with `begin_flags`; `other` another thread that it is about, or `NO_OTHER`. Null if it is not
/// recorded.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/fast_begin")]
extern "C" fn fast_begin(cookie: u64, id: u64, max: u64, other: u64, frame: *mut Frame) -> *mut u8 {
    let open = |cookie| Ring::open(context::cpu(), cookie);
    begin_in::<OWN_FRAMES>(open, &Current::get(), cookie as u32, id as u32, max as u32, other, frame)
}

/// As `fast_begin`, where users or processes have rings of their own.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/fast_begin_owned")]
extern "C" fn fast_begin_owned(cookie: u64, id: u64, max: u64, other: u64, frame: *mut Frame) -> *mut u8 {
    let open = |cookie| Ring::open_own::<true>(context::cpu(), cookie);
    begin_in::<OWN_FRAMES>(open, &Current::get(), cookie as u32, id as u32, max as u32, other, frame)
}

/// Makes the record of `len` bytes, perhaps with `END_CUT`, part of the ring, and the stacks that follow it;
/// with `len` 0, a field could not be read or was too long. `ctx` is the program's context.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/fast_end")]
extern "C" fn fast_end(frame: *mut Frame, len: u64, ctx: *const u8) -> u64 {
    end(frame, len, ctx);
    0
}

/// Counts an event that its filter does not take.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/fast_reject")]
extern "C" fn fast_reject(cookie: u64) -> u64 {
    if let Some(mut ring) = Ring::open(context::cpu(), cookie as u32) {
        ring.filter_out();
    }
    0
}

/// As `fast_reject`, where users or processes have rings of their own.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/fast_reject_owned")]
extern "C" fn fast_reject_owned(cookie: u64) -> u64 {
    if let Some(mut ring) = Ring::open_own::<false>(context::cpu(), cookie as u32) {
        ring.filter_out();
    }
    0
}

/// Counts an event that the kernel will not report as lost, unless it would be left out. `id` holds
/// `begin_flags`.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/fast_miss")]
extern "C" fn fast_miss(cookie: u64, id: u64) -> u64 {
    miss(Ring::open(context::cpu(), cookie as u32), cookie as u32, id as u32);
    0
}

/// As `fast_miss`, where users or processes have rings of their own.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/fast_miss_owned")]
extern "C" fn fast_miss_owned(cookie: u64, id: u64) -> u64 {
    miss(Ring::open_own::<false>(context::cpu(), cookie as u32), cookie as u32, id as u32);
    0
}

#[inline(always)]
fn miss(ring: Option<Ring>, cookie: u32, id: u32) {
    if let Some(mut ring) = ring
        && tasks::admits(&mut ring, cookie, &Current::get(), id, || None)
        && thin::admits(&mut ring, cookie)
    {
        ring.lose(LossCause::Nested);
    }
}

/// `OWN` frames of a stack that `end` takes are left out.
#[inline(always)]
pub fn begin<const OWN: u32>(
    current: &Current,
    cookie: u32,
    id: u32,
    max: u32,
    other: u64,
    frame: *mut Frame,
) -> *mut u8 {
    begin_in::<OWN>(|cookie| Ring::open(context::cpu(), cookie), current, cookie, id, max, other, frame)
}

/// The same in the ring that `open` gives.
#[inline(always)]
fn begin_in<const OWN: u32>(
    open: impl FnOnce(u32) -> Option<Ring>,
    current: &Current,
    cookie: u32,
    id: u32,
    max: u32,
    other: u64,
    frame: *mut Frame,
) -> *mut u8 {
    let Some(mut ring) = open(cookie) else { return core::ptr::null_mut() };
    let other = || if other == NO_OTHER { None } else { Some(other as u32) };
    if id & begin_flags::OF_ANYONE == 0 && !tasks::admits(&mut ring, cookie, current, id, other) {
        return core::ptr::null_mut();
    }
    if !thin::admits(&mut ring, cookie) || !thin::takes_place(&mut ring) {
        return core::ptr::null_mut();
    }
    // Before there is space for the record, because the verifier walks on from each destination by itself.
    let word = {
        // At raw tracepoints the kernel disables one of the two.
        let at_raw = id & begin_flags::MIGRATION_DISABLED == 0;
        let own = if at_raw && globals::raw_migration() != 0 {
            Own { migration: globals::raw_migration(), preemption: 0 }
        } else {
            Own { migration: u32::from(!at_raw), preemption: u32::from(id & begin_flags::PREEMPTIBLE == 0) }
        };
        forget(context::common_word(ring.ctl, id, current, own), current.tid.into())
    };
    let own = if id & begin_flags::REGISTERS != 0 { 0 } else { OWN };
    let stacks = if stack::any() { wanted_stacks(cookie, own) } else { 0 };
    if stack::any() {
        // SAFETY: the frame is on the stack of the program that calls, which has nothing else there. It may
        // be uninitialised, and is not read.
        unsafe {
            (&raw mut (*frame).stacks).write_volatile(stacks.into());
            (&raw mut (*frame).stack_area).write_volatile(core::ptr::null_mut());
        }
    }
    let record = if let Some(time) = ring.acquire() {
        begin_in_page(&mut ring, time, max, frame)
    } else if max > SIDE_RECORD_MAX as u32 {
        ring.make_room_in_queue();
        ring.lose(LossCause::Nested);
        core::ptr::null_mut()
    } else if stack::any() && stacks != 0 {
        let record = begin_in_queue(&mut ring, cookie, max + STACKS_BYTES as u32, frame);
        if !record.is_null() {
            // SAFETY: the entry has `max` bytes for the record and `STACKS_BYTES` after them.
            let area = unsafe { record.add(max as usize) };
            // SAFETY: the frame is on the calling program's stack, and is not read.
            unsafe { (&raw mut (*frame).stack_area).write_volatile(area) };
        }
        record
    } else {
        begin_in_queue(&mut ring, cookie, max, frame)
    };
    if record.is_null() {
        return record;
    }
    // SAFETY: the frame is on the calling program's stack, and is not read.
    unsafe {
        (&raw mut (*frame).ctl).write_volatile(ring.ctl);
        (&raw mut (*frame).ledger).write_volatile(ring.ledger);
    }
    // SAFETY: the space is this program's alone: in the page because it has the flag of the writer, in the
    // queue because nobody reads an entry that has no marker. Both keep records at multiples of 4 bytes, and
    // `max` has room for the common fields.
    unsafe {
        record.cast::<u32>().write(word);
        record.cast::<u32>().add(1).write(current.tid);
    }
    record
}

/// The stacks that follow the event. The first `own` frames are not the kernel's own business.
#[inline(always)]
fn wanted_stacks(cookie: u32, own: u32) -> u32 {
    match EVENTS.get_ptr(cookie) {
        // SAFETY: the map's value; the agent fills it in before it attaches the event, and not again.
        Some(slot) => stack::wanted(unsafe { (*slot).flags }, own),
        None => 0,
    }
}

#[inline(always)]
fn begin_in_page(ring: &mut Ring, time: u64, max: u32, frame: *mut Frame) -> *mut u8 {
    // A header of 8 bytes suits records of every length, so where the record goes does not depend on what it
    // will hold.
    let (destination, length) =
        if max <= SHORT_MAX { (destination::SHORT, SHORT_HEADER) } else { (destination::LONG, LONG_HEADER) };
    let Some(Room { page, at, delta }) = ring.room(time, length + max) else {
        ring.abort(LossCause::RingFull);
        ring.leave();
        return core::ptr::null_mut();
    };
    let at = clamp_to(at, PAGE_SIZE as u32 - length - max);
    // SAFETY: the map's value: a page, with room for header and record from `at` on.
    let header = unsafe { page.cast::<u8>().add(at as usize) };
    // SAFETY: the frame is on the calling program's stack, and is not read.
    unsafe {
        (&raw mut (*frame).header).write_volatile(header);
        (&raw mut (*frame).delta).write_volatile(delta.into());
        (&raw mut (*frame).destination).write_volatile(destination);
    }
    // SAFETY: as for `header`.
    unsafe { header.add(length as usize) }
}

#[inline(always)]
fn begin_in_queue(ring: &mut Ring, cookie: u32, max: u32, frame: *mut Frame) -> *mut u8 {
    let Some(entry) = Entry::append(ring.ctl, cookie, max).or_else(|| {
        ring.make_room_in_queue();
        Entry::append(ring.ctl, cookie, max)
    }) else {
        ring.lose(LossCause::Nested);
        return core::ptr::null_mut();
    };
    // SAFETY: the frame is on the calling program's stack, and is not read.
    unsafe {
        (&raw mut (*frame).header).write_volatile(entry.header.cast());
        (&raw mut (*frame).position).write_volatile(entry.position());
        (&raw mut (*frame).destination).write_volatile(destination::QUEUE);
    }
    entry.record()
}

/// Where in the open page the record is, of at most `max` bytes, that `begin` has taken space for; `None` if
/// it is in the side queue. With space in the page, the caller has the flag of the writer.
#[inline(always)]
pub fn offset_in_page(frame: *const Frame, max: u32) -> Option<(*mut CpuControl, u32)> {
    // SAFETY: the frame is on the calling program's stack. `begin`, which took the space for the record, has
    // written these for every destination; the verifier refuses to load what was not written.
    let (ctl, destination) = unsafe {
        ((&raw const (*frame).ctl).read_volatile(), (&raw const (*frame).destination).read_volatile())
    };
    if destination == destination::QUEUE {
        return None;
    }
    let header = if max <= SHORT_MAX { SHORT_HEADER } else { LONG_HEADER };
    // SAFETY: the map's value; the caller has the flag.
    Some((ctl, unsafe { (*ctl).offset } + header))
}

#[inline(always)]
pub fn end(frame: *mut Frame, len: u64, ctx: *const u8) {
    // SAFETY: the frame is on the calling program's stack. `begin`, which took the space for the record, has
    // written these for every destination; the verifier refuses to load what was not written.
    let (ctl, ledger, header, destination) = unsafe {
        (
            (&raw const (*frame).ctl).read_volatile(),
            (&raw const (*frame).ledger).read_volatile(),
            (&raw const (*frame).header).read_volatile(),
            (&raw const (*frame).destination).read_volatile(),
        )
    };
    let mut ring = Ring { ctl, ledger };
    if len & END_CUT != 0 {
        ring.note_cut();
    }
    let len = len as u32;
    let stacks = if stack::any() {
        // SAFETY: `begin` has written this under the same constant condition.
        unsafe { (&raw const (*frame).stacks).read_volatile() as u32 }
    } else {
        0
    };
    if destination == destination::QUEUE {
        let area = if stack::any() {
            // SAFETY: `begin` has written this under the same constant condition.
            unsafe { (&raw const (*frame).stack_area).read_volatile() }
        } else {
            core::ptr::null_mut()
        };
        if !area.is_null() && len != 0 {
            stack::to_entry(header.cast(), area, ctx, stacks);
        }
        // SAFETY: `begin` has written this for a record in the queue.
        let position = unsafe { (&raw const (*frame).position).read_volatile() };
        Entry::at(header.cast::<SideEntry>(), position).complete(len);
        if len == 0 {
            ring.lose(LossCause::ReadFault);
        }
        if ring.is_taken() {
            return;
        }
    } else {
        if len == 0 {
            ring.abort(LossCause::ReadFault);
        } else {
            // SAFETY: `begin` has written this for a record in the page.
            let delta = unsafe { (&raw const (*frame).delta).read_volatile() };
            let words = (len + 3) / 4;
            let length = if destination == destination::SHORT {
                put(header.cast(), 0, words | (delta as u32) << 5);
                SHORT_HEADER
            } else {
                // The length word counts itself.
                put(header.cast(), 0, (delta as u32) << 5);
                put(header.cast(), 4, words * 4 + 4);
                LONG_HEADER
            };
            let end = ring.control().offset + length + words * 4;
            ring.commit(delta, end);
            if stack::any() && stacks != 0 {
                let common = if destination == destination::SHORT {
                    // SAFETY: `begin` has written the common fields there, at a multiple of 4 bytes, and this
                    // program still has the flag of the writer.
                    unsafe { header.add(SHORT_HEADER as usize).cast::<[u32; 2]>().read() }
                } else {
                    // SAFETY: as after the short header.
                    unsafe { header.add(LONG_HEADER as usize).cast::<[u32; 2]>().read() }
                };
                stack::to_ring(ctl, ctx, stacks, common[0], common[1]);
            }
        }
        ring.leave();
    }
    ring.flush_side();
}
