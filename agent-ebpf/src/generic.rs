//! The generic lane: a program that records any tracepoint event.
//!
//! The kernel builds the event's record for perf and hands it to the program as its context, with a kernel
//! pointer where the eight common bytes belong (`perf_trace_run_bpf_submit`, include/trace/perf.h). The
//! program copies what is after them and rebuilds the common fields, so the pointer never leaves the kernel.
//! The record's length follows from the event's format: the fixed part plus the longest reach of its dynamic
//! fields.
//!
//! It copies with a helper, which takes any length. For events that always have the same length the agent
//! makes programs that do without (`agent/compile/src/generic.rs`).

use core::ffi::c_void;

use agent_ebpf::{
    COMPAT_CALL, DYNAMIC_FIELDS_MAX, EventSlot, LossCause, STACKS_BYTES, begin_flags, slot_flags,
};
use aya_ebpf::{
    EbpfContext as _,
    helpers::{bpf_get_attach_cookie, bpf_probe_read_kernel, generated::bpf_probe_read_kernel as probe_read},
    programs::TracePointContext,
};

use crate::{
    context::{self, Current, Own},
    globals,
    maps::EVENTS,
    parts,
    ring::{Body, Ring, clamp},
    side::Entry,
    stack, tasks, thin,
};

/// Bytes of the common fields at the start of every record.
const COMMON: u32 = 8;
/// Frames of a stack that are the program's own: the kernel hands over the registers of the tracepoint's
/// caller.
const OWN_FRAMES: u32 = 0;

/// Records the event it fires for. Returns 1: with 0 no other perf user of the tracepoint gets the event
/// (`perf_trace_run_bpf_submit`, kernel/events/core.c). The macro that aya has for such programs makes it 0.
#[unsafe(no_mangle)]
#[unsafe(link_section = "tracepoint")]
extern "C" fn generic_event(ctx: *mut c_void) -> u32 {
    let ctx = TracePointContext::new(ctx);
    // SAFETY: the pointer is the one that the kernel has called the program with, which the verifier insists
    // on.
    let cookie = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) } as u32;
    let cpu = context::cpu();
    if let Some(slot) = EVENTS.get_ptr(cookie)
        && let Some(mut ring) = Ring::open(cpu, cookie)
    {
        // SAFETY: the map's value; the agent fills it in before it attaches the event, and not again.
        record(ctx.as_ptr().cast(), unsafe { &*slot }, cookie, &mut ring);
    }
    1
}

#[inline(always)]
fn record(ctx: *const u8, slot: &EventSlot, cookie: u32, ring: &mut Ring) {
    let current = Current::get();
    let flags = if slot.flags & slot_flags::SWITCH != 0 { begin_flags::SWITCH } else { 0 };
    if !tasks::admits(ring, cookie, &current, flags, || other_tid(ctx, slot)) {
        return;
    }
    if !parts::event_filter(ctx) {
        ring.filter_out();
        return;
    }
    if !thin::admits(ring, cookie) || !thin::takes_place(ring) {
        return;
    }
    if let Some(time) = ring.acquire() {
        if let Err(cause) = write(ctx, slot, ring, time, &current) {
            ring.abort(cause);
        }
        ring.leave();
    } else {
        queue(ctx, slot, cookie);
        // The writer that was interrupted moves the entry; after the last one nobody else would.
        if ring.is_taken() {
            return;
        }
    }
    ring.flush_side();
}

#[inline(always)]
fn write(
    ctx: *const u8,
    slot: &EventSlot,
    ring: &mut Ring,
    time: u64,
    current: &Current,
) -> Result<(), LossCause> {
    let lazy = context::lazy_count(current, OWN_MIGRATION);
    let record = Record { ctx, slot, len: record_len(ctx, slot)? - COMMON, lazy };
    let space = ring.reserve(time, record.len)?;
    let common = common(ring, slot, current);
    let end = space.fill(common, &record)?;
    ring.commit(space.delta().into(), end);
    if stack::any() {
        stack::to_ring(ring.ctl, ctx, stack::wanted(slot.flags, OWN_FRAMES), common[0], common[1]);
    }
    Ok(())
}

/// Levels of disabled migration that running the program adds (`bpf_prog_run_array`, include/linux/bpf.h).
const OWN_MIGRATION: u32 = 1;

/// The common fields.
#[inline(always)]
fn common(ring: &mut Ring, slot: &EventSlot, current: &Current) -> [u32; 2] {
    let is_call = slot.flags & slot_flags::SYSCALL != 0;
    let counts_hook = is_call && globals::named_flags() & begin_flags::PREEMPTIBLE != 0;
    let own = Own { migration: OWN_MIGRATION, preemption: u32::from(!counts_hook) };
    let irqs_off = if slot.flags & slot_flags::SWITCH != 0 { begin_flags::IRQS_OFF } else { 0 };
    [context::common_word(ring.ctl, u32::from(slot.id) | irqs_off, current, own), current.tid]
}

/// Records the event in the side queue.
#[inline(never)]
fn queue(ctx: *const u8, slot: *const EventSlot, cookie: u32) -> u64 {
    if let Some(mut ring) = Ring::open(context::cpu(), cookie) {
        // SAFETY: the map's value, which the caller has looked up; the agent fills it in before it attaches
        // the event, and not again.
        let slot = unsafe { &*slot };
        if let Err(cause) = write_queued(ctx, slot, cookie, &mut ring) {
            ring.lose(cause);
        }
    }
    0
}

#[inline(always)]
fn write_queued(ctx: *const u8, slot: &EventSlot, cookie: u32, ring: &mut Ring) -> Result<(), LossCause> {
    let len = record_len(ctx, slot)?;
    let current = Current::get();
    let lazy = context::lazy_count(&current, OWN_MIGRATION);
    let record = Record { ctx, slot, len: len - COMMON, lazy };
    macro_rules! queue_class {
        ($class:literal) => {
            if len <= $class {
                let wanted = stack::wanted(slot.flags, OWN_FRAMES);
                let mut area = core::ptr::null_mut();
                let entry = if stack::any() && wanted != 0 {
                    let entry = Entry::append(ring.ctl, cookie, $class + STACKS_BYTES as u32)
                        .ok_or(LossCause::Nested)?;
                    // SAFETY: the entry has `STACKS_BYTES` after the `$class` bytes of the record.
                    area = unsafe { entry.record().add($class) };
                    entry
                } else {
                    Entry::append(ring.ctl, cookie, $class).ok_or(LossCause::Nested)?
                };
                let common = common(ring, slot, &current);
                let target = entry.record();
                // SAFETY: every class has room for the common fields; entries are at multiples of
                // `SIDE_ALIGN`, and nobody reads one that has no marker.
                unsafe { target.cast::<[u32; 2]>().write(common) };
                // SAFETY: within the `$class` bytes of the record.
                let body = unsafe { target.add(COMMON as usize) };
                let done =
                    record.write::<{ $class - COMMON }>(body, clamp::<{ $class - COMMON }>(record.len));
                if stack::any() && !area.is_null() && done {
                    stack::to_entry(entry.header, area, ctx, wanted);
                }
                entry.complete(if done { len } else { 0 });
                return if done { Ok(()) } else { Err(LossCause::ReadFault) };
            }
        };
    }
    queue_class!(128);
    queue_class!(1024);
    Err(LossCause::Nested)
}

/// The record in a tracepoint's context.
struct Record<'a> {
    ctx: *const u8,
    slot: &'a EventSlot,
    len: u32,
    /// The fifth common field, where there is one.
    lazy: u32,
}

impl Record<'_> {
    /// Copies `len` bytes after the common fields.
    #[inline(always)]
    fn copy(&self, destination: *mut u8, len: u32) -> bool {
        // SAFETY: the context is a record of the kernel's, and each has the common fields.
        let source = unsafe { self.ctx.add(COMMON as usize) };
        // SAFETY: callers have room for `len` bytes, which the verifier compares with what is left of the
        // page or entry. The helper catches faults at the source.
        unsafe { probe_read(destination.cast(), len, source.cast::<c_void>()) == 0 }
    }
}

impl Body for Record<'_> {
    #[inline(always)]
    fn len(&self) -> u32 {
        self.len
    }

    #[inline(always)]
    fn write<const MAX: u32>(&self, destination: *mut u8, len: u32) -> bool {
        if self.slot.flags & slot_flags::SYSCALL == 0 {
            let done = self.copy(destination, len);
            if globals::task_status() != 0 && done && self.slot.flags & slot_flags::ANY_SYSCALL != 0 {
                mark_call(destination);
            }
            if globals::task_lazy_count() != 0 && self.slot.flags & slot_flags::LAZY_COUNT != 0 {
                // SAFETY: every class has room for these bytes. The body follows the common fields, at a
                // multiple of 4 bytes.
                unsafe { destination.cast::<u32>().write(self.lazy) };
            }
            return done;
        }
        let held = u32::from(self.slot.copy_len).saturating_sub(COMMON);
        let mut copied = len;
        if held < len {
            // A refused read fills its destination with zeros (`bpf_probe_read_kernel_common`,
            // kernel/trace/bpf_trace.c).
            // SAFETY: `len` is not more than `MAX`, for which the destination has room.
            unsafe { probe_read(destination.cast(), len, core::ptr::null()) };
            copied = clamp::<MAX>(held);
        }
        let done = self.copy(destination, copied);
        // SAFETY: every class has room for these bytes. The body follows the common fields, at a multiple of
        // 4 bytes.
        unsafe { destination.add(4).cast::<u32>().write(0) };
        done
    }
}

/// Marks the number of a 32-bit call, an `int` and its sign, at the start of an event's own fields.
#[inline(always)]
fn mark_call(fields: *mut u8) {
    if Current::get().in_compat_syscall() {
        // SAFETY: callers have room for eight bytes there, at a multiple of 4, and have filled them.
        let upper = unsafe { &mut *fields.add(4).cast::<u32>() };
        *upper = (COMPAT_CALL >> 32) as u32;
    }
}

/// `Current::call_mark`, for programs that the agent makes.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/call_mark")]
extern "C" fn call_mark() -> u64 {
    Current::get().call_mark()
}

/// The record's length, common fields included: the structure's size plus the dynamic data after its last
/// field.
#[inline(always)]
fn record_len(ctx: *const u8, slot: &EventSlot) -> Result<u32, LossCause> {
    let fields_end = u32::from(slot.fields_end);
    let mut dynamic_end = fields_end;
    for i in 0..DYNAMIC_FIELDS_MAX {
        if i >= slot.dynamic_len as usize {
            break;
        }
        let field = slot.dynamic[i];
        let location = read_u32(ctx, field.offset).ok_or(LossCause::ReadFault)?;
        let end = (location & 0xffff) + (location >> 16) + u32::from(field.base);
        if end > dynamic_end {
            dynamic_end = end;
        }
    }
    Ok(u32::from(slot.fixed_len) + dynamic_end - fields_end)
}

/// The thread, beside the current one, that the event is about.
#[inline(always)]
fn other_tid(ctx: *const u8, slot: &EventSlot) -> Option<u32> {
    if slot.other_tid == 0 { None } else { read_u32(ctx, slot.other_tid) }
}

/// Reads a field. A direct load would be refused: the offset is not a constant, and attaching compares the
/// furthest constant offset with every event's size (`perf_event_set_bpf_prog`, kernel/events/core.c).
#[inline(always)]
fn read_u32(ctx: *const u8, offset: u16) -> Option<u32> {
    // SAFETY: the agent has the offset of this `u32` from the event's format, which describes the context.
    let field = unsafe { ctx.add(offset as usize).cast::<u32>() };
    // SAFETY: the helper catches the fault of a wrong address; any four bytes are a `u32`.
    unsafe { bpf_probe_read_kernel(field) }.ok()
}
