//! Calls of code that the agent writes at the start: filters (`agent_ebpf::parts`).

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
