//! What follows an event on request: the stacks of the kernel and of the process, as records of
//! `ftrace:kernel_stack` and `ftrace:user_stack` directly after it on the same CPU, where readers look for
//! them.
//!
//! A kernel stack is one record: readers print frames until the record ends or an address is all ones
//! (`trace_stack_handler` of trace-cmd), and without their plugin the first [`FRAMES`], which are therefore
//! always there. A user stack is a record of [`FRAMES`] frames, all that readers print, and up to
//! [`USER_STACK_RECORDS`] of them if it is deeper.
//!
//! A program that writes to the page writes stacks there too, while it has the flag; one that uses the side
//! queue has them in its entry. Stacks have rows of their own in the ledger. Where there is none, such as the
//! user stack of a kernel thread, nothing is recorded, and nothing lost.

use agent_ebpf::{
    CpuControl, FRAMES, FRAMES_AT, KERNEL_FRAMES, KERNEL_STACK_MAX, LossCause, PAGE_SIZE, SideEntry,
    USER_STACK_LEN, USER_STACK_RECORDS, slot_flags,
};
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, generated::bpf_get_stack};

use crate::{
    globals,
    ring::{LONG_HEADER, Ring, Room, clamp, clamp_to, put},
};

/// `BPF_F_USER_STACK` (include/uapi/linux/bpf.h); the low eight bits are how many frames to skip.
const USER: u64 = 1 << 8;
/// Where [`wanted`] has the number of frames to skip.
const SKIP_SHIFT: u32 = 8;
/// Behind the last frame.
const NO_FRAME: u64 = u64::MAX;

/// Whether any event has stacks. A constant to the verifier.
#[inline(always)]
pub fn any() -> bool {
    globals::kernel_stack() != 0 || globals::user_stack() != 0
}

/// The stacks that follow an event whose slot has these flags, in one word that is 0 if there is none. The
/// first `own` frames of the kernel's stack belong to the program.
#[inline(always)]
pub fn wanted(flags: u32, own: u32) -> u32 {
    match flags & (slot_flags::KERNEL_STACK | slot_flags::USER_STACK) {
        0 => 0,
        which => which | own << SKIP_SHIFT,
    }
}

/// Writes the stacks `wanted` after the record that was just committed. The caller has the flag. `word` and
/// `pid` are the record's common fields.
#[inline(never)]
pub fn to_ring(ctl: *mut CpuControl, ctx: *const u8, wanted: u32, word: u32, pid: u32) -> u64 {
    let cpu = unsafe { (*ctl).cpu };
    if globals::kernel_stack() != 0
        && wanted & slot_flags::KERNEL_STACK != 0
        && let Some(mut ring) = Ring::at(ctl, cpu, globals::kernel_stack() - 1)
    {
        const NEED: u32 = LONG_HEADER + KERNEL_STACK_MAX as u32;
        write::<NEED>(&mut ring, |record| {
            kernel(record, ctx, wanted, common(word, globals::kernel_stack_id(), pid))
        });
    }
    if globals::user_stack() != 0
        && wanted & slot_flags::USER_STACK != 0
        && let Some(mut ring) = Ring::at(ctl, cpu, globals::user_stack() - 1)
    {
        const NEED: u32 = LONG_HEADER + USER_STACK_LEN as u32;
        let common = common(word, globals::user_stack_id(), pid);
        for part in 0..USER_STACK_RECORDS {
            let mut more = false;
            write::<NEED>(&mut ring, |record| {
                let (len, full) = user(record, ctx, part, common);
                more = full;
                len
            });
            if !more {
                break;
            }
        }
    }
    0
}

/// Writes the stacks `wanted` after an entry's record, to `area`, which has
/// [`STACKS_BYTES`](agent_ebpf::STACKS_BYTES). The record's common fields are there.
#[inline(never)]
pub fn to_entry(header: *mut SideEntry, area: *mut u8, ctx: *const u8, wanted: u32) -> u64 {
    unsafe {
        let record: *const u32 = header.add(1).cast();
        let (word, pid) = (record.read(), record.add(1).read());
        (*header).stacks_at = (area as u64 - record as u64) as u32;
        if globals::kernel_stack() != 0 && wanted & slot_flags::KERNEL_STACK != 0 {
            (*header).kernel_stack =
                kernel(area, ctx, wanted, common(word, globals::kernel_stack_id(), pid)) as u16;
        }
        if globals::user_stack() != 0 && wanted & slot_flags::USER_STACK != 0 {
            let common = common(word, globals::user_stack_id(), pid);
            for part in 0..USER_STACK_RECORDS {
                let record = area.add(KERNEL_STACK_MAX + part * USER_STACK_LEN);
                let (len, more) = user(record, ctx, part, common);
                if len != 0 {
                    (*header).user_stacks = part as u16 + 1;
                }
                if !more {
                    break;
                }
            }
        }
    }
    0
}

/// The common fields of a stack: those of its event, but for the id.
#[inline(always)]
fn common(word: u32, id: u32, pid: u32) -> [u32; 2] {
    [word & 0xffff_0000 | id, pid]
}

/// Takes place for a record that needs up to `NEED` bytes with its header, and lets `fill` write it and
/// return its length.
#[inline(always)]
fn write<const NEED: u32>(ring: &mut Ring, fill: impl FnOnce(*mut u8) -> u32) {
    let time = ring.control().last_time;
    let Some(Room { page, at, delta }) = ring.room(time, NEED) else {
        ring.abort(LossCause::RingFull);
        return;
    };
    let at = clamp_to(at, PAGE_SIZE as u32 - NEED);
    let len = fill(unsafe { page.cast::<u8>().add((at + LONG_HEADER) as usize) });
    if len == 0 {
        ring.cancel();
        return;
    }
    put(page, at, delta << 5);
    put(page, at + 4, len + 4);
    ring.commit(delta.into(), at + LONG_HEADER + len);
}

/// Writes an `ftrace:kernel_stack` record and gives its length, or 0.
#[inline(always)]
fn kernel(record: *mut u8, ctx: *const u8, wanted: u32, common: [u32; 2]) -> u32 {
    let bytes = frames(record, ctx, (8 * KERNEL_FRAMES) as u32, u64::from(wanted >> SKIP_SHIFT & 0xff));
    if bytes == 0 {
        return 0;
    }
    let shown = if bytes < 8 * FRAMES as u32 { 8 * FRAMES as u32 } else { bytes };
    head(record, common, shown / 8);
    FRAMES_AT as u32 + shown
}

/// Writes part `part` of an `ftrace:user_stack`; gives the record's length, or 0, and whether there may be
/// another part.
#[inline(always)]
fn user(record: *mut u8, ctx: *const u8, part: usize, common: [u32; 2]) -> (u32, bool) {
    const BYTES: u32 = 8 * FRAMES as u32;
    let bytes = frames(record, ctx, BYTES, USER | (part * FRAMES) as u64);
    if bytes == 0 {
        return (0, false);
    }
    head(record, common, (bpf_get_current_pid_tgid() >> 32) as u32);
    (USER_STACK_LEN as u32, bytes == BYTES)
}

#[inline(always)]
fn head(record: *mut u8, common: [u32; 2], number: u32) {
    // SAFETY: callers have room for a whole record.
    unsafe {
        record.cast::<[u32; 2]>().write(common);
        record.cast::<u32>().add(2).write(number);
        // Padding.
        record.cast::<u32>().add(3).write(0);
    }
}

/// Writes up to `max` bytes of frames, marks what is missing of the first [`FRAMES`], and gives the number of
/// bytes that are frames.
#[inline(always)]
fn frames(record: *mut u8, ctx: *const u8, max: u32, flags: u64) -> u32 {
    unsafe {
        let frames = record.add(FRAMES_AT);
        let got = bpf_get_stack(ctx.cast_mut().cast(), frames.cast(), max, flags);
        if got <= 0 {
            return 0;
        }
        let bytes = clamp::<{ 8 * KERNEL_FRAMES as u32 }>(got as u32) & !7;
        for frame in 0..FRAMES {
            if bytes <= 8 * frame as u32 {
                frames.cast::<u64>().add(frame).write(NO_FRAME);
            }
        }
        bytes
    }
}
