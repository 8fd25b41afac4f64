//! Copies of the strings that system calls are given, as kernels make them from 6.19 on (`sys_fault_user` and
//! `syscall_put_data`, kernel/trace/trace_syscalls.c): a location word for each after the arguments, then
//! the bytes. Strings longer than the limit are cut and end with three dots; of what cannot be read there are
//! no bytes at all, not even a NUL. The kernel makes dots of characters that cannot be printed; here bytes
//! stay what they are, because two names have to stay two.
//!
//! The kernel can fault pages in, a program cannot: of what is not resident at the entry there is no copy
//! yet. The record has room for it, which `late_strings` fills at the exit if it can.
//!
//! Words are read and written at any byte: these programs are for x86-64, where the verifier allows it, and
//! the compiler, knowing it, would go byte by byte. `read` and `write` ask for aligned pointers; compiled for
//! this target, which has no other instructions for them, they are a load and a store all the same.

use agent_ebpf::{
    PAGE_SIZE, STRING_CUT, STRING_STEP, SYSCALL_STRINGS, SyscallSlot, string_room, with_strings_max,
};
use aya_ebpf::helpers::generated::{bpf_probe_read_user, bpf_probe_read_user_str};

use crate::{
    context::Current,
    fast::Frame,
    globals, late_strings,
    maps::SYSCALLS,
    ring::{clamp, clamp_to, forget},
    syscalls::{ARGS, ENTER_MAX},
};

/// Bytes of a location word: low half offset, high half length of the copy.
const WORD: u32 = 4;
/// Where the first copy begins at the latest.
const FIRST_MAX: u32 = ENTER_MAX + WORD * SYSCALL_STRINGS as u32;
/// What is written at once.
const STEP: u32 = STRING_STEP;
/// Where a location word is in a page at most.
const WORD_MAX: u32 = PAGE_SIZE as u32 - WORD;
/// Where an argument is in a page at most.
const ARGUMENT_MAX: u32 = PAGE_SIZE as u32 - 8;

/// Bytes that a record has for each copy: those that follow a copy may be written with it, and are part of
/// the room of one that is missing, whose neighbours are there already when it is made.
#[inline(always)]
fn room_max() -> u32 {
    string_room(globals::string_limit())
}

/// The longest record without contexts.
#[inline(always)]
pub fn record_max() -> u32 {
    with_strings_max(FIRST_MAX, globals::string_limit())
}

/// What copying has come to.
pub struct Copied {
    /// Where the record ends.
    pub end: u32,
    /// Copies that are missing although they have room: bit 0 for the first.
    pub missing: u32,
}

/// Writes the copies into a record without contexts that has its arguments.
///
/// # Safety
/// The record has [`record_max`] bytes, which are the caller's alone, and all six arguments are written.
#[inline(always)]
pub unsafe fn copy(record: *mut u8, slot: &SyscallSlot) -> Copied {
    let words = clamp::<ENTER_MAX>(slot.enter_len.into());
    let first = clamp::<FIRST_MAX>(slot.copies_at.into());
    // SAFETY: the caller's promise.
    unsafe { copy_at(record, slot, (words, first, FIRST_MAX)) }
}

/// The same into any record: the location words begin at `words`, and the first copy at `first`, which is
/// `first_max` or less.
///
/// # Safety
/// After `first_max`, the record has [`room_max`] bytes for each copy and a step, and the words are before.
/// All of it is the caller's alone, and the arguments are written.
#[inline(always)]
unsafe fn copy_at(
    record: *mut u8,
    slot: &SyscallSlot,
    (words, mut at, first_max): (u32, u32, u32),
) -> Copied {
    let mut missing = 0;
    // SAFETY: the caller has written the arguments.
    let first = unsafe { argument(record, slot.strings[0]) };
    if slot.length != 0 {
        // SAFETY: the record has room for `SYSCALL_STRINGS` copies from `first_max` on.
        let to = unsafe { record.add(at as usize) };
        // SAFETY: the caller has written the arguments.
        let room = within_limit(unsafe { argument(record, slot.length) });
        // SAFETY: as for `to`.
        let len = unsafe { bytes(to, first, room) };
        // SAFETY: a location word, of which there is room for `SYSCALL_STRINGS` from `ENTER_MAX` on.
        unsafe { put(record, words, at | len << 16) };
        if len != 0 {
            at += len;
        } else if globals::late_strings() != 0 && room != 0 && first != 0 {
            // The helper has zeroed it.
            at += room;
            missing = 1;
        }
    } else {
        macro_rules! each {
            ($index:literal, $from:expr) => {
                let from = $from;
                // SAFETY: from `first_max` on, the record has `room_max` bytes for each of
                // `SYSCALL_STRINGS` copies; `at` is after `$index` of them at most.
                let to = unsafe { record.add(at as usize) };
                // SAFETY: as for `to`.
                let len = unsafe { string(to, from) };
                // SAFETY: a location word, of which there is room for `SYSCALL_STRINGS` from `ENTER_MAX` on.
                unsafe { put(record, words + WORD * $index, at | len << 16) };
                let taken = if len == 0 && globals::late_strings() != 0 && from != 0 {
                    missing |= 1 << $index;
                    // SAFETY: as for `to`.
                    unsafe { clear_end(to) };
                    room_max()
                } else {
                    len
                };
                // However long the copy is, the verifier continues with the same state.
                missing = forget(missing, from);
                at = clamp_to(forget(at + taken, from), first_max + ($index + 1) * room_max());
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
    at = clamp_to(at, with_strings_max(first_max, globals::string_limit()) - STEP);
    // The record's length is rounded up: nothing of what the page held before.
    // SAFETY: a step is left in the record.
    unsafe { put(record, at, 0) };
    Copied { end: at, missing }
}

/// Tries the copies again that are `missing` from the record that begins at `record` in a page.
///
/// Whatever the record's own bounds are, every place in it is within the page: the verifier has nothing else
/// to go by, because the bounds are those of the event.
///
/// # Safety
/// The page is the caller's. The record in it is one that [`copy`] or [`fast_strings`] has written for the
/// same `slot` and said this is missing of.
#[inline(always)]
pub unsafe fn complete(page: *mut u8, record: u32, slot: &SyscallSlot, missing: u32) {
    let words = record + clamp::<ENTER_MAX>(slot.enter_len.into());
    let word_at = |index: u32| clamp::<WORD_MAX>(words + WORD * index);
    let argument_at = |position: u8| {
        let offset = ARGS as u32 + 8 * clamp::<5>(u32::from(position) - 1);
        let at = clamp::<ARGUMENT_MAX>(record + offset);
        // SAFETY: an argument of the record. In a page it may be at a multiple of 4 only: see the top of this
        // file.
        unsafe { page.add(at as usize).cast::<u64>().read() }
    };
    // Where the room of a copy is, by its location word: not more than lets the room end with the page.
    let room_at = |word: u32| clamp_to(record + (word & 0xffff), PAGE_SIZE as u32 - room_max());
    if slot.length != 0 {
        // SAFETY: the location word that was written with the record.
        let word = unsafe { get(page, word_at(0)) };
        let (from, len) = (argument_at(slot.strings[0]), argument_at(slot.length));
        // SAFETY: the room that was left for as many bytes.
        let len = unsafe { bytes(page.add(room_at(word) as usize), from, within_limit(len)) };
        // SAFETY: as for `word`.
        unsafe { put(page, word_at(0), word & 0xffff | len << 16) };
        return;
    }
    let unknown = argument_at(slot.strings[0]);
    macro_rules! each {
        ($index:literal) => {
            // The verifier shall not learn from one bit what the others are.
            if forget(missing, unknown) & 1 << $index != 0 {
                // SAFETY: the location word that was written with the record.
                let word = unsafe { get(page, word_at($index)) };
                let from = argument_at(slot.strings[$index]);
                // SAFETY: the room that was left, of `room_max` bytes.
                let len = unsafe { string(page.add(room_at(word) as usize), from) };
                // SAFETY: as for `word`.
                unsafe { put(page, word_at($index), word & 0xffff | len << 16) };
            }
        };
    }
    each!(0);
    each!(1);
    each!(2);
}

/// Copies the strings of system call `nr` into a record of a program that the agent writes, which has its
/// arguments and contexts, and gives its length. In `at` are the place of the first location word and, 16
/// bits above, that of the first copy, as a constant; `max` is what space was taken for.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/fast_strings")]
extern "C" fn fast_strings(record: *mut u8, nr: u64, at: u64, max: u64, frame: *const Frame) -> u64 {
    let Some(slot) = SYSCALLS.get(nr as u32) else { return 0 };
    let (words, first) = (at as u32 & 0xffff, at as u32 >> 16);
    // SAFETY: the program has taken space for `SYSCALL_STRINGS` copies after `first`, which the verifier
    // makes sure of, and written what is before.
    let copied = unsafe { copy_at(record, slot, (words, first, first)) };
    if copied.missing != 0 {
        late_strings::note(frame, (nr as u32, max as u32), copied.missing, &Current::get());
    }
    copied.end.into()
}

/// Forgets what an earlier call of the thread may have left to its exit.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/fast_strings_drop")]
extern "C" fn fast_strings_drop() -> u64 {
    late_strings::drop_note(&Current::get());
    0
}

/// Zeroes the rest of the room of a copy that is missing: what the helper, which zeroes as much as it was to
/// read (`bpf_probe_read_user_str_common`, kernel/trace/bpf_trace.c), has not.
///
/// # Safety
/// At `to` are [`room_max`] bytes, which are the caller's alone.
#[inline(always)]
unsafe fn clear_end(to: *mut u8) {
    const REST: u32 = STRING_CUT.len() as u32 + STEP;
    // SAFETY: `room_max` is `limit` and `REST`.
    let rest = unsafe { to.add(globals::string_limit() as usize) };
    for at in (0..REST).step_by(4) {
        // SAFETY: as for `rest`.
        unsafe { put(rest, at, 0) };
    }
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

/// Reads a word.
///
/// # Safety
/// The record has four bytes at `at`, which somebody has written.
#[inline(always)]
unsafe fn get(record: *const u8, at: u32) -> u32 {
    // SAFETY: the caller's promise. Where a word is not aligned, see the top of this file.
    unsafe { record.add(at as usize).cast::<u32>().read() }
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

/// Copies a string, and gives the length of the copy, NUL included; 0 if it cannot be read. A step after the
/// copy is zeroed.
///
/// # Safety
/// At `to` are [`room_max`] bytes, which are the caller's alone.
#[inline(always)]
unsafe fn string(to: *mut u8, from: u64) -> u32 {
    let limit = globals::string_limit();
    if limit == 0 {
        return 0;
    }
    // One character more than is kept, to know whether there is one.
    // SAFETY: `limit + 2` is less than `room_max`. The helper takes only addresses of user space and catches
    // faults.
    let read = unsafe { bpf_probe_read_user_str(to.cast(), limit + 2, from as *const _) };
    if read <= 0 {
        return 0;
    }
    let is_cut = read as u32 > limit + 1;
    let len = clamp_to(read as u32 - 1, limit);
    if is_cut {
        // SAFETY: `room_max` is more than `limit` and these bytes.
        unsafe { end(to, limit, u32::from_le_bytes(STRING_CUT)) };
        limit + STRING_CUT.len() as u32
    } else {
        // SAFETY: `len` is `limit` at most.
        unsafe { end(to, len, 0) };
        len + 1
    }
}

/// Ends a string after `len` bytes with a `mark`, and zeroes the rest of the step.
///
/// # Safety
/// At `to` are `len` bytes and a [`STEP`], which are the caller's alone.
#[inline(always)]
unsafe fn end(to: *mut u8, len: u32, mark: u32) {
    // SAFETY: the caller's promise. Where the word is not aligned, see the top of this file.
    unsafe { to.add(len as usize).cast::<u64>().write(mark.into()) };
}

/// How many bytes of so many are copied.
#[inline(always)]
fn within_limit(len: u64) -> u32 {
    let limit = globals::string_limit();
    clamp_to(if len > u64::from(limit) { limit } else { len as u32 }, limit)
}

/// Copies so many bytes as they are, which are within the limit. Gives how many; 0 if they cannot be read,
/// and then the room for them is zeroed.
///
/// # Safety
/// At `to` are [`room_max`] bytes, which are the caller's alone.
#[inline(always)]
unsafe fn bytes(to: *mut u8, from: u64, len: u32) -> u32 {
    // SAFETY: the length is at most `limit`, which is less than `room_max`. The helper takes only addresses
    // of user space and catches faults.
    if len != 0 && unsafe { bpf_probe_read_user(to.cast(), len, from as *const _) } == 0 { len } else { 0 }
}
