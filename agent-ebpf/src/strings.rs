//! Copies of the strings that system calls are given, as kernels make them from 6.19 on (`sys_fault_user` and
//! `syscall_put_data`, kernel/trace/trace_syscalls.c): a location word for each after the arguments, then
//! the bytes. Characters that cannot be printed become dots; what is longer than the limit is cut and ends
//! with three of them; of what cannot be read there are no bytes at all, not even a NUL.
//!
//! The kernel can fault pages in, a program cannot: what is not resident at the entry is not copied.
//!
//! Words are read and written at any byte: these programs are for x86-64, where the verifier allows it, and
//! the compiler, knowing it, would go byte by byte. `read` and `write` ask for aligned pointers; compiled for
//! this target, which has no other instructions for them, they are a load and a store all the same.

use agent_ebpf::{STRING_CUT, SYSCALL_STRINGS, SyscallSlot};
use aya_ebpf::helpers::generated::{bpf_probe_read_user, bpf_probe_read_user_str};

use crate::{
    globals,
    ring::{clamp, clamp_to, forget},
    syscalls::{ARGS, ENTER_MAX},
};

/// Bytes of a location word: low half offset, high half length of the copy.
const WORD: u32 = 4;
/// Where the first copy begins at the latest.
const FIRST_MAX: u32 = ENTER_MAX + WORD * SYSCALL_STRINGS as u32;
/// What is written at once.
const STEP: u32 = 8;

/// Bytes that a copy takes at most.
#[inline(always)]
fn copy_max() -> u32 {
    globals::string_limit() + STRING_CUT.len() as u32
}

/// The longest record. Behind the last copy is room for what is written at once.
#[inline(always)]
pub fn record_max() -> u32 {
    FIRST_MAX + SYSCALL_STRINGS as u32 * copy_max() + STEP
}

/// Writes the copies into a record that has its arguments, and returns where they end.
///
/// # Safety
/// The record has [`record_max`] bytes, which are the caller's alone, and all six arguments are written.
#[inline(always)]
pub unsafe fn copy(record: *mut u8, slot: &SyscallSlot) -> u32 {
    let words = clamp::<ENTER_MAX>(slot.enter_len.into());
    let mut at = clamp::<FIRST_MAX>(slot.copies_at.into());
    // SAFETY: the caller has written the arguments.
    let first = unsafe { argument(record, slot.strings[0]) };
    if slot.length != 0 {
        // SAFETY: the record has room for `SYSCALL_STRINGS` copies from `FIRST_MAX` on.
        let to = unsafe { record.add(at as usize) };
        // SAFETY: the caller has written the arguments.
        let len = unsafe { argument(record, slot.length) };
        // SAFETY: as for `to`.
        let len = unsafe { bytes(to, first, len) };
        // SAFETY: a location word, of which there is room for `SYSCALL_STRINGS` from `ENTER_MAX` on.
        unsafe { put(record, words, at | len << 16) };
        at += len;
    } else {
        macro_rules! each {
            ($place:literal, $from:expr) => {
                let from = $from;
                // SAFETY: from `FIRST_MAX` on, the record has room for `SYSCALL_STRINGS` copies and a step;
                // `at` is after `$place` of them at most.
                let len = unsafe { string(record.add(at as usize), from) };
                // SAFETY: a location word, of which there is room for `SYSCALL_STRINGS` from `ENTER_MAX` on.
                unsafe { put(record, words + WORD * $place, at | len << 16) };
                // However long the copy is, the verifier continues with the same state.
                at = clamp_to(forget(at + len, from), FIRST_MAX + ($place + 1) * copy_max());
            };
        }
        each!(0, first);
        if slot.strings[1] != 0 {
            // SAFETY: the caller has written the arguments.
            each!(1, unsafe { argument(record, slot.strings[1]) });
        }
        if slot.strings[2] != 0 {
            // SAFETY: the caller has written the arguments.
            each!(2, unsafe { argument(record, slot.strings[2]) });
        }
    }
    at = clamp_to(at, record_max() - STEP);
    // The record's length is rounded up: nothing of what the page held before.
    // SAFETY: a step is left in the record.
    unsafe { put(record, at, 0) };
    at
}

/// Writes a word.
///
/// # Safety
/// The record has four bytes at `at`, and is the caller's alone.
#[inline(always)]
unsafe fn put(record: *mut u8, at: u32, word: u32) {
    // SAFETY: the caller's promise. Where a word is not aligned, see the top of this file.
    unsafe { record.add(at as usize).cast::<u32>().write(word) };
}

/// An argument by its position plus 1.
///
/// # Safety
/// The record has all six arguments, written by the caller.
#[inline(always)]
unsafe fn argument(record: *const u8, position: u8) -> u64 {
    let position = clamp::<5>(u32::from(position) - 1);
    // SAFETY: the caller's promise; the position is one of six. In a page arguments may be at a multiple of 4
    // only: see the top of this file.
    unsafe { record.add(ARGS + 8 * position as usize).cast::<u64>().read() }
}

/// Copies a string, and gives the length of the copy, NUL included; 0 if it cannot be read.
///
/// # Safety
/// At `to` are [`copy_max`] bytes and a [`STEP`], which are the caller's alone.
#[inline(always)]
unsafe fn string(to: *mut u8, from: u64) -> u32 {
    let limit = globals::string_limit();
    if limit == 0 {
        return 0;
    }
    // One character more than is kept, to know whether there is one.
    // SAFETY: `limit + 2` is less than `copy_max`. The helper takes only addresses of user space and catches
    // faults.
    let read = unsafe { bpf_probe_read_user_str(to.cast(), limit + 2, from as *const _) };
    if read <= 0 {
        return 0;
    }
    let is_cut = read as u32 > limit + 1;
    let len = clamp_to(read as u32 - 1, limit);
    // What the verifier learns of the length from each turn of the loop would make it go on from each by
    // itself.
    // SAFETY: after `len`, which is `limit` at most, there is a step.
    unsafe { printable(to, forget(len, from)) };
    if is_cut {
        // SAFETY: `copy_max` is `limit` and these bytes.
        unsafe { put(to, limit, u32::from_le_bytes(STRING_CUT)) };
        limit + STRING_CUT.len() as u32
    } else {
        // SAFETY: `len` is `limit` at most, which is less than `copy_max`.
        unsafe { to.add(len as usize).write(0) };
        len + 1
    }
}

/// Copies so many bytes as they are, or up to the limit. Gives how many; 0 if they cannot be read.
///
/// # Safety
/// At `to` are [`copy_max`] bytes, which are the caller's alone.
#[inline(always)]
unsafe fn bytes(to: *mut u8, from: u64, len: u64) -> u32 {
    let limit = globals::string_limit();
    let len = if len > u64::from(limit) { limit } else { len as u32 };
    let len = clamp_to(len, limit);
    // SAFETY: the length is clamped to `limit`, which is less than `copy_max`. The helper takes only
    // addresses of user space and catches faults.
    if len != 0 && unsafe { bpf_probe_read_user(to.cast(), len, from as *const _) } == 0 { len } else { 0 }
}

/// Makes dots of what the kernel's `isprint` (lib/ctype.c) does not take: 0x00 to 0x1f, 0x7f to 0x9f. Goes a
/// word at a time, up to 7 bytes beyond the end.
///
/// # Safety
/// At `text` are `len` bytes and a [`STEP`], or as many as the limit and a step, which are the caller's
/// alone.
#[inline(always)]
unsafe fn printable(text: *mut u8, len: u32) {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const LOW: u64 = 0x7f * ONES;
    let mut at = 0;
    while at < globals::string_limit() && at < len {
        // SAFETY: `at` is below both lengths, so there is a step: the caller's promise.
        let place = unsafe { text.add(at as usize).cast::<u64>() };
        // SAFETY: as above. What is after the end was written by others or never; any bytes are a `u64`.
        // Where the word is not aligned, see the top of this file.
        let word = unsafe { place.read() };
        // Of 0x00 to 0x1f and 0x80 to 0x9f, both bits are 0.
        let control = !(word >> 5 | word >> 6) & ONES;
        // 0x7f is the only one of which adding 1 to the low bits gives 0x80 and which is below that.
        let delete = ((((word & LOW) + ONES) & !word) >> 7) & ONES;
        let dots = control | delete;
        if dots != 0 {
            // SAFETY: as for the read.
            unsafe { place.write(word & !(dots * 0xff) | (dots * u64::from(b'.'))) };
        }
        at += STEP;
    }
}
