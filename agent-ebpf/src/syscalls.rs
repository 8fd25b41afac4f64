//! System calls in the fast lane: one program at the entry and one at the exit of every system call, for
//! `raw_syscalls:*` and all of `syscalls:*`. What is recorded of each call is in `SYSCALLS`, by number;
//! `strings` adds copies of arguments that are strings, and `late_strings` those that cannot be read before
//! the exit.
//!
//! Registers are those of x86-64. The agent does not load these programs elsewhere.

use agent_ebpf::{COMPAT_CALL, SYSCALL_SLOTS, SyscallSlot, compat_counter};
use core::mem::MaybeUninit;

use crate::{
    atomic,
    context::{self, Current},
    fast::{self, Frame},
    globals, late_strings,
    maps::{CONTROL, SYSCALLS},
    strings,
    tasks::{self, Verdict},
};

/// Bytes of a record with six arguments.
pub(crate) const ENTER_MAX: u32 = 64;
const EXIT_MAX: u32 = 24;
/// Where the arguments are in a record of `syscalls:sys_enter_*`.
pub(crate) const ARGS: usize = 16;
const NO_OTHER: u64 = u64::MAX;
/// Frames of a stack that are not the kernel's own business: that of `stack`, the program, and
/// `bpf_trace_run`.
const OWN_FRAMES: u32 = 3;
/// The same in a function of the program.
const OWN_FRAMES_CALLED: u32 = OWN_FRAMES + 1;

/// Offsets in `struct pt_regs` (arch/x86/include/uapi/asm/ptrace.h), in words. An ABI, which the agent checks
/// all the same.
mod reg {
    pub(super) const BP: usize = 4;
    pub(super) const BX: usize = 5;
    pub(super) const R10: usize = 7;
    pub(super) const R9: usize = 8;
    pub(super) const R8: usize = 9;
    pub(super) const AX: usize = 10;
    pub(super) const CX: usize = 11;
    pub(super) const DX: usize = 12;
    pub(super) const SI: usize = 13;
    pub(super) const DI: usize = 14;
    pub(super) const ORIG_AX: usize = 15;
}

/// `sys_enter(struct pt_regs *regs, long id)`.
///
/// The only record is made in the program itself. Of two, the first is made in a function: nothing of it is
/// left then but that it was called, and the verifier goes through the second one once. Otherwise it would
/// for each way through the first.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/syscall_enter")]
extern "C" fn syscall_enter(ctx: *const u64) -> u64 {
    if globals::named_enter() == 0 {
        enter::<OWN_FRAMES>(ctx);
        return 0;
    }
    if globals::raw_enter() != 0 {
        enter_first(ctx);
    }
    enter_named(ctx);
    0
}

#[inline(never)]
fn enter_first(ctx: *const u64) -> u64 {
    enter::<OWN_FRAMES_CALLED>(ctx);
    0
}

/// The registers, and the second argument: the call's number or what it returns.
#[inline(always)]
pub(crate) fn arguments(ctx: *const u64) -> (*const u64, u64) {
    // SAFETY: the context of a program on a raw tracepoint are its arguments, a word each, of which both
    // tracepoints have two. The verifier refuses loads beyond them.
    unsafe { (ctx.cast::<*const u64>().read_volatile(), ctx.add(1).read_volatile()) }
}

#[inline(always)]
fn enter<const OWN: u32>(ctx: *const u64) {
    let mut frame = MaybeUninit::<Frame>::uninit();
    let (cookie, id) = (globals::raw_enter() - 1, globals::raw_enter_id());
    let current = Current::get();
    let record = fast::begin::<OWN>(&current, cookie, id, ENTER_MAX, NO_OTHER, frame.as_mut_ptr());
    if record.is_null() {
        return;
    }
    let (regs, nr) = arguments(ctx);
    // SAFETY: `begin` has given this program room for `ENTER_MAX` bytes: six words are left.
    let args = unsafe { record.add(16).cast::<u64>() };
    if current.in_compat_syscall() {
        // SAFETY: as above.
        unsafe { put(record, 8, u64::from(nr as u32) | COMPAT_CALL) };
        // `syscall_get_arguments`, arch/x86/include/asm/syscall.h.
        // SAFETY: the tracepoint's registers, and six words.
        unsafe { copy(args, regs, [reg::BX, reg::CX, reg::DX, reg::SI, reg::DI, reg::BP]) };
        stay_apart();
    } else {
        // SAFETY: as above.
        unsafe { put(record, 8, nr) };
        // SAFETY: the tracepoint's registers, and six words.
        unsafe { copy(args, regs, [reg::DI, reg::SI, reg::DX, reg::R10, reg::R8, reg::R9]) };
    }
    fast::end(frame.as_mut_ptr(), ENTER_MAX.into(), ctx.cast());
}

/// Keeps the compiler from making one of two ways that differ in their offsets only: the address of each word
/// would be computed.
#[inline(always)]
fn stay_apart() {
    // SAFETY: there is no instruction in it.
    unsafe { core::arch::asm!("", options(nostack)) };
}

/// Which event it is is found here, and the record made there, because records with strings take more room.
#[inline(always)]
fn enter_named(ctx: *const u64) {
    let (_, nr) = arguments(ctx);
    let current = Current::get();
    if globals::counts_compat() != 0 && current.in_compat_syscall() {
        leave_out(compat_counter::ENTRY);
        return;
    }
    if nr >= SYSCALL_SLOTS as u64 {
        return;
    }
    let Some(slot) = SYSCALLS.get(nr as u32).filter(|slot| slot.enter != 0) else { return };
    if globals::counts_compat() == 0 && current.in_compat_syscall() {
        return;
    }
    if globals::named_strings() != 0 && slot.strings[0] != 0 {
        enter_with_strings(ctx, slot);
        return;
    }
    let mut frame = MaybeUninit::<Frame>::uninit();
    if named_record::<OWN_FRAMES>(ctx, slot, &current, ENTER_MAX, frame.as_mut_ptr()).is_null() {
        return;
    }
    fast::end(frame.as_mut_ptr(), slot.enter_len.into(), ctx.cast());
}

/// Counts a 32-bit call, of which `syscalls:*` has no event, as in the kernel (`trace_get_syscall_nr`,
/// kernel/trace/trace_syscalls.c).
#[inline(never)]
fn leave_out(hook: u64) -> u64 {
    let Some(ctl) = CONTROL.get_ptr_mut(context::cpu(), globals::control_len()) else { return 0 };
    // SAFETY: the map's value, of which this is a member.
    let counter = atomic::load(unsafe { &raw const (*ctl).compat_counter });
    if counter != compat_counter::of(globals::counts_compat(), hook) {
        return 0;
    }
    // SAFETY: the map's value, of which this is a member.
    let is_recorded = atomic::load(unsafe { &raw const (*ctl).enabled }) != 0;
    if is_recorded && tasks::judge(ctl, &Current::get(), 0, || None) == Verdict::Wanted {
        // Atomic, as programs of two threads can be on their way here on one CPU.
        // SAFETY: the map's value, of which this is a member.
        atomic::increment(unsafe { &raw mut (*ctl).compat_calls });
    }
    0
}

/// A function of its own, so that the verifier goes through it once.
#[inline(never)]
fn enter_with_strings(ctx: *const u64, slot: *const SyscallSlot) -> u64 {
    let mut frame = MaybeUninit::<Frame>::uninit();
    // SAFETY: the map's value, which the caller has looked up; the agent fills it in before it attaches the
    // program, and not again.
    let slot = unsafe { &*slot };
    let max = strings::record_max();
    let current = Current::get();
    late_strings::drop_note(&current);
    let record = named_record::<OWN_FRAMES_CALLED>(ctx, slot, &current, max, frame.as_mut_ptr());
    if record.is_null() {
        return 0;
    }
    // SAFETY: `begin` has given this program room for `max` bytes; `named_record` has written all six
    // arguments.
    let copied = unsafe { strings::copy(record, slot) };
    if copied.missing != 0 {
        let of = (arguments(ctx).1 as u32, max);
        late_strings::note(frame.as_ptr(), of, copied.missing, &current);
    }
    fast::end(frame.as_mut_ptr(), copied.end.into(), ctx.cast());
    0
}

/// Takes space for a record of at most `max` bytes and writes number and arguments: all six, as many of
/// which belong to the record as the call has.
#[inline(always)]
fn named_record<const OWN: u32>(
    ctx: *const u64,
    slot: &SyscallSlot,
    current: &Current,
    max: u32,
    frame: *mut Frame,
) -> *mut u8 {
    let (cookie, id) = (slot.enter - 1, u32::from(slot.enter_id) | globals::named_flags());
    let record = fast::begin::<OWN>(current, cookie, id, max, NO_OTHER, frame);
    if !record.is_null() {
        let (regs, nr) = arguments(ctx);
        // The number is an `int`; what is after it is padding.
        // SAFETY: `begin` has given this program room for `max` bytes, which is `ENTER_MAX` or more.
        unsafe { put(record, 8, nr) };
        // SAFETY: as above: after `ARGS` there are six words. The registers are the tracepoint's.
        unsafe {
            copy(record.add(ARGS).cast(), regs, [reg::DI, reg::SI, reg::DX, reg::R10, reg::R8, reg::R9]);
        }
    }
    record
}

/// Writes a word to a record.
///
/// # Safety
/// The record has eight bytes at `at`, and is the caller's alone.
#[inline(always)]
unsafe fn put(record: *mut u8, at: usize, word: u64) {
    // SAFETY: the caller's promise. In a page the word may be at a multiple of 4 only, which is less than
    // `write` asks for: compiled for this target it is a store, which x86-64 and the verifier take at any
    // byte.
    unsafe { record.add(at).cast::<u64>().write(word) };
}

/// Writes six registers to a record.
///
/// # Safety
/// `regs` is the tracepoint's argument. `to` has room for six words and is the caller's alone.
#[inline(always)]
unsafe fn copy(to: *mut u64, regs: *const u64, words: [usize; 6]) {
    for (index, word) in words.into_iter().enumerate() {
        // SAFETY: `word` is one of `reg`, the offsets in the kernel's `struct pt_regs`, which is on the
        // current thread's stack during the call. The kernel catches the load's fault.
        let value = unsafe { regs.add(word).read_volatile() };
        // SAFETY: the caller's promise; `index` is one of six. Where it is not aligned: as in `put`.
        unsafe { to.add(index).write(value) };
    }
}

/// `sys_exit(struct pt_regs *regs, long ret)`. As [`syscall_enter`]; strings of the entry's record come
/// first, because a record of the exit could close its page. Where only entries are recorded, they are all
/// there is.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/syscall_exit")]
extern "C" fn syscall_exit(ctx: *const u64) -> u64 {
    let current = Current::get();
    late_strings::at_exit(ctx, &current);
    if globals::named_exit() == 0 {
        if globals::raw_exit() != 0 {
            exit_raw::<OWN_FRAMES>(ctx, &current);
        }
        return 0;
    }
    if globals::raw_exit() != 0 {
        exit_first(ctx);
    }
    exit_named(ctx, &current);
    0
}

#[inline(never)]
fn exit_first(ctx: *const u64) -> u64 {
    exit_raw::<OWN_FRAMES_CALLED>(ctx, &Current::get());
    0
}

#[inline(always)]
fn exit_raw<const OWN: u32>(ctx: *const u64, current: &Current) {
    let (regs, ret) = arguments(ctx);
    let (cookie, id) = (globals::raw_exit() - 1, globals::raw_exit_id());
    let nr = match current.call_mark() {
        0 => i64::from(number(regs)) as u64,
        mark => u64::from(number(regs) as u32) | mark,
    };
    exit::<OWN>(ctx, current, cookie, id, nr, ret);
}

/// The number of a call that ends (`syscall_get_nr`): an `int`.
#[inline(always)]
pub(crate) fn number(regs: *const u64) -> i32 {
    // SAFETY: the tracepoint's registers, with an offset in the kernel's `struct pt_regs`.
    unsafe { regs.add(reg::ORIG_AX).read_volatile() as i32 }
}

#[inline(always)]
fn exit_named(ctx: *const u64, current: &Current) {
    let (regs, _) = arguments(ctx);
    let nr = number(regs);
    if globals::counts_compat() != 0 && current.in_compat_syscall() {
        leave_out(compat_counter::EXIT);
        return;
    }
    if nr as u32 >= SYSCALL_SLOTS as u32 {
        return;
    }
    let Some(slot) = SYSCALLS.get(nr as u32).filter(|slot| slot.exit != 0) else { return };
    if globals::counts_compat() == 0 && current.in_compat_syscall() {
        return;
    }
    // `syscall_get_return_value`.
    // SAFETY: the tracepoint's registers, with an offset in the kernel's `struct pt_regs`.
    let ret = unsafe { regs.add(reg::AX).read_volatile() };
    let id = u32::from(slot.exit_id) | globals::named_flags();
    exit::<OWN_FRAMES>(ctx, current, slot.exit - 1, id, u64::from(nr as u32), ret);
}

#[inline(always)]
fn exit<const OWN: u32>(ctx: *const u64, current: &Current, cookie: u32, id: u32, nr: u64, ret: u64) {
    let mut frame = MaybeUninit::<Frame>::uninit();
    let record = fast::begin::<OWN>(current, cookie, id, EXIT_MAX, NO_OTHER, frame.as_mut_ptr());
    if record.is_null() {
        return;
    }
    // SAFETY: `begin` has given this program room for `EXIT_MAX` bytes.
    unsafe {
        put(record, 8, nr);
        put(record, 16, ret);
    }
    fast::end(frame.as_mut_ptr(), EXIT_MAX.into(), ctx.cast());
}
