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
    USER_STACK_LEN, USER_STACK_RECORDS, slot_flags, user_entry,
};
use aya_ebpf::helpers::{
    bpf_get_current_pid_tgid, bpf_probe_read_user,
    generated::{bpf_get_current_task_btf, bpf_get_stack, bpf_task_pt_regs},
};

use crate::{
    globals,
    ring::{LONG_HEADER, Ring, Room, clamp, clamp_to, put, row_of},
};

/// `BPF_F_USER_STACK` (include/uapi/linux/bpf.h); the low eight bits are how many frames to skip.
const USER: u64 = 1 << 8;
/// Where [`wanted`] has the number of frames to skip.
const SKIP_SHIFT: u32 = 8;
/// Where `struct pt_regs` of x86-64 has the stack pointer (arch/x86/include/asm/ptrace.h).
const REGISTERS_SP: usize = 152;
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
        which => which | flags & slot_flags::FUNCTION_ENTRY | own << SKIP_SHIFT,
    }
}

/// Writes the stacks `wanted` after the record that was just committed. The caller has the flag. `word` and
/// `pid` are the record's common fields.
#[inline(never)]
pub fn to_ring(ctl: *mut CpuControl, ctx: *const u8, wanted: u32, word: u32, pid: u32) -> u64 {
    let row = row_of(ctl);
    if globals::kernel_stack() != 0
        && wanted & slot_flags::KERNEL_STACK != 0
        && let Some(mut ring) = Ring::at(ctl, row, globals::kernel_stack() - 1)
    {
        const NEED: u32 = LONG_HEADER + KERNEL_STACK_MAX as u32;
        write::<NEED>(&mut ring, |record| {
            kernel(record, ctx, wanted, common(word, globals::kernel_stack_id(), pid))
        });
    }
    if globals::user_stack() != 0
        && wanted & slot_flags::USER_STACK != 0
        && let Some(mut ring) = Ring::at(ctl, row, globals::user_stack() - 1)
    {
        const NEED: u32 = LONG_HEADER + USER_STACK_LEN as u32;
        let common = common(word, globals::user_stack_id(), pid);
        let caller = direct_caller(ctx, wanted);
        for part in 0..USER_STACK_RECORDS {
            let mut more = false;
            write::<NEED>(&mut ring, |record| {
                let (len, full) = user(record, ctx, part, caller, common);
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
    // SAFETY: the map's value: a record follows the header.
    let record: *const u32 = unsafe { header.add(1).cast() };
    // SAFETY: the map's value. The caller has written the common fields of a record at a multiple of
    // `SIDE_ALIGN`; nobody else uses the entry before it has its marker.
    let (word, pid) = unsafe { (record.read(), record.add(1).read()) };
    // SAFETY: the map's value: the caller's entry, which has no marker yet.
    unsafe { (*header).stacks_at = (area as u64 - record as u64) as u32 };
    if globals::kernel_stack() != 0 && wanted & slot_flags::KERNEL_STACK != 0 {
        let len = kernel(area, ctx, wanted, common(word, globals::kernel_stack_id(), pid));
        // SAFETY: the map's value: the caller's entry, which has no marker yet.
        unsafe { (*header).kernel_stack = len as u16 };
    }
    if globals::user_stack() != 0 && wanted & slot_flags::USER_STACK != 0 {
        let common = common(word, globals::user_stack_id(), pid);
        let caller = direct_caller(ctx, wanted);
        for part in 0..USER_STACK_RECORDS {
            // SAFETY: the area has `STACKS_BYTES`: a kernel stack and `USER_STACK_RECORDS` after it.
            let record = unsafe { area.add(KERNEL_STACK_MAX + part * USER_STACK_LEN) };
            let (len, more) = user(record, ctx, part, caller, common);
            if len != 0 {
                // SAFETY: the map's value: the caller's entry, which has no marker yet.
                unsafe { (*header).user_stacks = part as u16 + 1 };
            }
            if !more {
                break;
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

/// Takes space for a record that needs up to `NEED` bytes with its header, and lets `fill` write it and
/// return its length.
#[inline(always)]
fn write<const NEED: u32>(ring: &mut Ring, fill: impl FnOnce(*mut u8) -> u32) {
    let time = ring.control().last_time;
    let Some(Room { page, at, delta }) = ring.room(time, NEED) else {
        ring.abort(LossCause::RingFull);
        return;
    };
    let at = clamp_to(at, PAGE_SIZE as u32 - NEED);
    // SAFETY: the map's value: a page, which has `NEED` bytes from `at` on, of which the header takes the
    // first.
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
    let bytes =
        frames::<FRAMES>(record, ctx, (8 * KERNEL_FRAMES) as u32, u64::from(wanted >> SKIP_SHIFT & 0xff));
    if bytes == 0 {
        return 0;
    }
    let shown = if bytes < 8 * FRAMES as u32 { 8 * FRAMES as u32 } else { bytes };
    head(record, common, shown / 8);
    FRAMES_AT as u32 + shown
}

/// The address that the function which was just entered returns to, or 0 where that is not asked for or the
/// kernel's own walk has it.
#[inline(always)]
fn direct_caller(ctx: *const u8, wanted: u32) -> u64 {
    // A constant, so that the helpers are not there where the kernel does not have them.
    if globals::user_entry() == user_entry::NONE || wanted & slot_flags::FUNCTION_ENTRY == 0 {
        return 0;
    }
    // SAFETY: the helpers take nothing, and a task: the current one, which is not freed while this program
    // runs.
    let registers = unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) } as *const u8;
    // SAFETY: the registers with which the current task left user space; they are at the end of its stack,
    // and change when it comes back. The verifier checks by the kernel's BTF that the load is of a member.
    let sp = unsafe { registers.add(REGISTERS_SP).cast::<u64>().read() };
    // SAFETY: the helper takes only addresses of user space and catches faults; any eight bytes are a `u64`.
    let Ok(caller) = (unsafe { bpf_probe_read_user(sp as *const u64) }) else { return 0 };
    if globals::user_entry() == user_entry::ADDED_IF_MISSING {
        let mut first = [0_u64; 2];
        // SAFETY: the helper writes 16 bytes at most, which `first` has; the context is the program's.
        let got = unsafe { bpf_get_stack(ctx.cast_mut().cast(), first.as_mut_ptr().cast(), 16, USER) };
        if got == 16 && first[1] == caller {
            return 0;
        }
    }
    caller
}

/// Writes part `part` of an `ftrace:user_stack`, in which `caller` is the second frame if there is one; gives
/// the record's length, or 0, and whether there may be another part.
#[inline(always)]
fn user(record: *mut u8, ctx: *const u8, part: usize, caller: u64, common: [u32; 2]) -> (u32, bool) {
    const BYTES: u32 = 8 * FRAMES as u32;
    let skipped = (part * FRAMES) as u64;
    let bytes = if caller == 0 {
        frames::<FRAMES>(record, ctx, BYTES, USER | skipped)
    } else if part == 0 {
        called(record, ctx, BYTES, caller)
    } else {
        frames::<FRAMES>(record, ctx, BYTES, USER | (skipped - 1))
    };
    if bytes == 0 {
        return (0, false);
    }
    head(record, common, (bpf_get_current_pid_tgid() >> 32) as u32);
    (USER_STACK_LEN as u32, bytes == BYTES)
}

/// Writes the first frames of a user stack with `caller` between the first two that the kernel finds; gives
/// the number of their bytes.
#[inline(always)]
fn called(record: *mut u8, ctx: *const u8, max: u32, caller: u64) -> u32 {
    // One later than they belong.
    // SAFETY: callers have room for a whole record, and `max` is what it has beside its head.
    let later = unsafe { record.add(8) };
    let bytes = frames::<{ FRAMES - 1 }>(later, ctx, max - 8, USER);
    if bytes == 0 {
        return 0;
    }
    // SAFETY: callers have room for a whole record.
    let frames = unsafe { record.add(FRAMES_AT).cast::<u64>() };
    // SAFETY: the space is the caller's alone, and `frames` above has written from the second frame on. In a
    // page frames may be at a multiple of 4 only, which is less than `read` and `write` ask for: compiled for
    // this target they are a load and a store, which x86-64 and the verifier take at any byte.
    unsafe {
        frames.write(frames.add(1).read());
        frames.add(1).write(caller);
    }
    bytes + 8
}

/// Writes the common fields of a stack, and the number after them.
#[inline(always)]
fn head(record: *mut u8, common: [u32; 2], number: u32) {
    // SAFETY: callers have room for a whole record, at a multiple of 4 bytes, in space that is theirs
    // alone.
    unsafe {
        record.cast::<[u32; 2]>().write(common);
        record.cast::<u32>().add(2).write(number);
        // Padding.
        record.cast::<u32>().add(3).write(0);
    }
}

/// Writes up to `max` bytes of frames, marks what is missing of the first `SHOWN`, and gives the number of
/// bytes that are frames.
#[inline(always)]
fn frames<const SHOWN: usize>(record: *mut u8, ctx: *const u8, max: u32, flags: u64) -> u32 {
    // SAFETY: callers have room for a whole record.
    let frames = unsafe { record.add(FRAMES_AT) };
    // SAFETY: callers have room for `max` bytes, which the verifier compares with what is left of the page or
    // entry; the context is the one that the kernel has called the program with.
    let got = unsafe { bpf_get_stack(ctx.cast_mut().cast(), frames.cast(), max, flags) };
    if got <= 0 {
        return 0;
    }
    let bytes = clamp::<{ 8 * KERNEL_FRAMES as u32 }>(got as u32) & !7;
    for frame in 0..SHOWN {
        if bytes <= 8 * frame as u32 {
            // SAFETY: callers have room for `SHOWN` frames. They may be at a multiple of 4 only, as in
            // `called`.
            unsafe { frames.cast::<u64>().add(frame).write(NO_FRAME) };
        }
    }
    bytes
}
