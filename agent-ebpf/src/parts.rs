//! Calls of code that the agent appends to programs (`agent_ebpf::parts`): filters, which it writes at the
//! start, and functions of this object that the verifier is to check by themselves.
//!
//! The verifier goes through an ordinary function once for each call, and on from there for each way through
//! it. What is seldom needed, a new page or the side queue, would be most of its work for every program.

use agent_ebpf::parts;

/// Whether the filter of this program's event takes the record in the context.
#[inline(always)]
pub fn event_filter(ctx: *const u8) -> bool {
    let wanted: u64;
    // SAFETY: the agent makes this a call of a function that it appends to the program and that the verifier
    // checks with it, or of "yes". The operands have all registers that the calling convention lets a
    // function change, R0 to R5. Without options, the compiler expects it to access any memory.
    unsafe {
        core::arch::asm!(
            "call {part}",
            part = const parts::EVENT_FILTER,
            inlateout("r1") ctx => _,
            lateout("r0") wanted,
            lateout("r2") _,
            lateout("r3") _,
            lateout("r4") _,
            lateout("r5") _,
        );
    }
    wanted != 0
}

/// Calls a function of `parts::APART` with numbers.
macro_rules! call_apart {
    ($part:path, $first:expr, $second:expr, $third:expr) => {{
        let result: u64;
        // SAFETY: the agent makes this a call of the function, whose arguments these are, which it appends to
        // the program and which the verifier checks with it. The operands have all registers that the calling
        // convention lets a function change, R0 to R5. Without options, the compiler expects it to access any
        // memory.
        unsafe {
            core::arch::asm!(
                "call {part}",
                part = const $part,
                inlateout("r1") u64::from($first) => _,
                inlateout("r2") u64::from($second) => _,
                inlateout("r3") u64::from($third) => _,
                lateout("r0") result,
                lateout("r4") _,
                lateout("r5") _,
            );
        }
        result
    }};
}

/// `ring::ring_make_room`.
#[inline(always)]
pub fn make_room(row: u32, time: u64, need: u32) -> u64 {
    call_apart!(parts::MAKE_ROOM, row, time, need)
}

/// `side::side_try_append`.
#[inline(always)]
pub fn try_append(row: u32, size: u32, cookie: u32) -> u64 {
    call_apart!(parts::TRY_APPEND, row, size, cookie)
}

/// `side::side_flush`.
#[inline(always)]
pub fn flush(row: u32) {
    call_apart!(parts::FLUSH, row, 0_u64, 0_u64);
}

/// `side::side_move_entry`.
#[inline(always)]
pub fn move_entry(row: u32) -> u64 {
    call_apart!(parts::MOVE_ENTRY, row, 0_u64, 0_u64)
}
