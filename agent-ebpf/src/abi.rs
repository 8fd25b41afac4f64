//! Whether two builds agree on the memory that programs and agent share: programs of one may be loaded and
//! recording while the agent of another reads what they write.

use core::mem::offset_of;

use crate::{
    CpuBorder, CpuControl, DynamicField, EventLedger, EventSlot, NameRecord, PageMeta, SideEntry, StringNote,
    SyscallSlot, calls::Call, rate::Group, sets::Owner,
};

/// Raised when the same memory means something else, or when programs and agent do something else with it.
const VERSION: u64 = 2;

/// A number that builds have in common which agree on it: what the memory means, and where everything is.
pub const ABI: u64 = layout();

/// FNV-1a, with whole numbers in the place of bytes.
const fn mix(sum: u64, number: usize) -> u64 {
    (sum ^ number as u64).wrapping_mul(0x0100_0000_01b3)
}

macro_rules! mix_fields {
    ($sum:ident, $($type:ident { $($field:ident),* })*) => {$(
        // A field that is not listed does not compile.
        let _ = |$type { $($field: _),* }: $type| ();
        $sum = mix($sum, size_of::<$type>());
        $($sum = mix($sum, offset_of!($type, $field));)*
    )*};
}

const fn layout() -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325 ^ VERSION;
    mix_fields!(sum,
        CpuControl {
            enabled, consumed, ring_base, ring_pages, preempt_count, wake_pages, reader, wake_asked, side, cpu,
            switch_owed, hold, asked_seen, paused, row, self_tgid, compat_calls, compat_counter, agent_line_end, head,
            page, offset, last_time, events, busy, side_tail, side_head, page_start_events, marked_lost, overwritten, lost, names_lost
        }
        CpuBorder { head, events, lost, marked_lost, overwritten, names_lost, compat_calls, noted }
        SideEntry { marker, time, cookie, size, stacks_at, kernel_stack, user_stacks }
        PageMeta { lost, events, used }
        DynamicField { offset, base }
        EventSlot {
            id, fixed_len, fields_end, copy_len, other_tid, dynamic_len, flags, sample, rate, dynamic
        }
        Group { owner, window }
        SyscallSlot { enter, exit, enter_id, exit_id, enter_len, copies_at, strings, length }
        StringNote { thread, migrations, memory, head, nr, record, missing }
        EventLedger { recorded, filtered, own, arrived, lost, cut }
        NameRecord { tid, comm }
        Owner { key, since, comm }
        Call { function, stack, start, depth, cpu_and_flag }
    );
    let sizes = [
        crate::PAGE_SIZE,
        crate::PAGE_HEADER,
        crate::TID_WORDS,
        crate::SIDE_ALIGN,
        crate::SYSCALL_SLOTS,
        crate::rate::GROUPS,
        crate::rate::PROBES as usize,
        crate::tracking::LINE_WORDS,
        crate::tracking::SETS as usize,
        crate::aggregates::KEY_WORDS_MAX,
        crate::aggregates::PROBES as usize,
        crate::aggregates::INDEX_PER_KEY as usize,
        crate::aggregates::WAYS as usize,
        crate::aggregates::STARTS_PER_KEY as usize,
        crate::aggregates::LOST_WORDS,
        crate::aggregates::value::NUMBERS,
        crate::aggregates::value::BUCKETS,
        crate::aggregates::POWERS,
    ];
    let mut at = 0;
    while at < sizes.len() {
        sum = mix(sum, sizes[at]);
        at += 1;
    }
    sum
}
