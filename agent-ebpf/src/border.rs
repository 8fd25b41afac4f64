//! Where one archive of a recording ends and the next one begins, on a CPU.

use agent_ebpf::{CpuControl, EventLedger, LossCause, border};
use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};

use crate::{
    atomic, globals,
    maps::{BORDER, BORDER_ROWS, LEDGER},
    ring::row_of,
    switch::close_page,
};

/// `mark_border`: closes the open page of this CPU as `switch_page` does, and notes what the CPU has counted
/// by then, before another event can follow: interrupts that come meanwhile find the writer's flag taken and
/// go to the side queue. Run by the agent through `BPF_PROG_TEST_RUN` on the CPU that it means, for one CPU
/// at a time. Gives one of [`agent_ebpf::switched`] or [`border`]; only [`agent_ebpf::switched::DONE`] has
/// noted something.
#[raw_tracepoint(tracepoint = "sys_enter")]
pub fn mark_border(ctx: RawTracePointContext) -> i32 {
    close_page(&ctx, note).unwrap_or(border::CLOSED)
}

/// Copies the counts of the CPU, for the holder of its flag.
#[inline(always)]
fn note(ctl: *mut CpuControl) {
    let Some(to) = BORDER.get_ptr_mut(0) else { return };
    let row = row_of(ctl);
    // SAFETY: the maps' values. What is read belongs to the holder of the flag, but for the counts of losses,
    // which are read one by one as they are changed atomically; what is written is the caller's alone, as the
    // agent asks for one border at a time.
    unsafe {
        (*to).head = (*ctl).head;
        (*to).events = (*ctl).events;
        (*to).marked_lost = (*ctl).marked_lost;
        (*to).overwritten = (*ctl).overwritten;
        (*to).names_lost = atomic::load(&raw const (*ctl).names_lost);
        (*to).compat_calls = atomic::load(&raw const (*ctl).compat_calls);
        for cause in 0..LossCause::COUNT {
            (*to).lost[cause] = atomic::load(&raw const (*ctl).lost[cause]);
        }
    }
    let slots = globals::slots();
    let mut slot = 0;
    while slot < slots {
        let from = LEDGER.get_ptr_mut(row * slots + slot, globals::ledger_len());
        let (Some(from), Some(to)) = (from, BORDER_ROWS.get_ptr_mut(slot)) else { return };
        let (from, to) = (from.cast::<u64>(), to.cast::<u64>());
        // By words: a copy of the whole is a call of a loop over bytes.
        for word in 0..size_of::<EventLedger>() / size_of::<u64>() {
            // SAFETY: as above: only programs on this CPU change the rows, and the agent reads the copies
            // after this program. A row consists of words.
            unsafe { to.add(word).write_volatile(from.add(word).read_volatile()) };
        }
        slot += 1;
    }
    // SAFETY: as above.
    atomic::publish(unsafe { &raw mut (*to).noted }, u64::from(row) + 1);
}
