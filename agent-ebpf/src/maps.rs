//! The maps (their contents are documented in `agent_ebpf`). Sizes of 1 are replaced by the agent at load.

use agent_ebpf::{
    CpuBorder, CpuControl, EventLedger, EventSlot, NAMES_BYTES, PAGE_SIZE, PageMeta, SIDE_BYTES,
    SYSCALL_SLOTS, StringNote, SyscallSlot, TID_WORDS,
    aggregates::LOST_WORDS,
    calls::{CALL_WAYS, CallThread},
    rate,
    sets::Owner,
    tracking::Line,
};
use core::{arch::asm, intrinsics::cold_path};

use aya_ebpf::{
    bindings::BPF_F_MMAPABLE,
    macros::map,
    maps::{Array, RingBuf},
};

/// An array that programs reach without a lookup, of which the kernel makes a dozen instructions.
///
/// Where all elements together are the only value of a map, the address of that is a constant of the program
/// (`BPF_PSEUDO_MAP_VALUE`, include/uapi/linux/bpf.h), and that of an element is a sum. The agent makes such
/// maps, unless the kernel refuses a value of that size; then it is an ordinary array.
#[repr(transparent)]
pub struct Table<T>(Array<T>);

impl<T> Table<T> {
    const fn new() -> Self {
        Self(Array::with_max_entries(1, BPF_F_MMAPABLE))
    }

    /// An element. `len` is the constant that says how many there are, or 0 for an ordinary array.
    #[inline(always)]
    #[allow(clippy::pointers_in_nomem_asm_block, reason = "nothing is accessed through the pointer")]
    pub fn get_ptr_mut(&self, index: u32, len: u32) -> Option<*mut T> {
        if len == 0 {
            cold_path();
            return self.0.get_ptr_mut(index);
        }
        let mut index = u64::from(index);
        let mut first = (&raw const *self).cast_mut().cast::<T>();
        // The compiler shall neither take the first element for what is at the address, nor compute with
        // another copy of the index than the one that is compared.
        // SAFETY: a comment to the assembler: no instruction, no memory, and both registers stay as they are.
        unsafe { asm!("/* {0} {1} */", inout(reg) first, inout(reg) index, options(pure, nomem, nostack)) };
        if index >= u64::from(len) {
            return None;
        }
        Some(first.wrapping_add(index as usize))
    }
}

/// A sub-buffer page.
#[repr(C, align(4096))]
pub struct Page(pub [u8; PAGE_SIZE]);

#[map]
pub static PAGES: Table<Page> = Table::new();

#[map]
pub static PAGE_META: Array<PageMeta> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// A side queue. The agent makes it as large as `globals::side_bytes` says.
#[repr(C, align(8))]
pub struct Side(pub [u8; SIDE_BYTES]);

#[map]
pub static SIDE: Array<Side> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub static SYSCALLS: Array<SyscallSlot> = Array::with_max_entries(SYSCALL_SLOTS as u32, BPF_F_MMAPABLE);

#[map]
pub static STRING_NOTES: Table<StringNote> = Table::new();

#[map]
pub static CONTROL: Table<CpuControl> = Table::new();

#[map]
pub static EVENTS: Array<EventSlot> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub static ENABLED: Array<u64> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub static LEDGER: Table<EventLedger> = Table::new();

#[map]
pub static BORDER: Array<CpuBorder> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub static BORDER_ROWS: Array<EventLedger> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub static TRACED: Array<u64> = Array::with_max_entries(TID_WORDS as u32, BPF_F_MMAPABLE);

#[map]
pub static UNTRACED: Array<u64> = Array::with_max_entries(TID_WORDS as u32, BPF_F_MMAPABLE);

#[map]
pub static SCOPED: Array<u64> = Array::with_max_entries(TID_WORDS as u32, BPF_F_MMAPABLE);

#[map]
pub static OWNERS: Array<Owner> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub static SETS: Table<Line> = Table::new();

#[map]
pub static RATES: Array<u64> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub static RATE_GROUPS: Array<[rate::Group; rate::GROUPS]> = Array::with_max_entries(1, 0);

#[map]
pub static CALL_OWNERS: Array<[u64; CALL_WAYS]> = Array::with_max_entries(1, 0);

#[map]
pub static CALLS: Array<CallThread> = Array::with_max_entries(1, 0);

#[map]
pub static NAMES: RingBuf = RingBuf::with_byte_size(NAMES_BYTES, 0);

#[map]
pub static AGGREGATE_INDEX: Table<u64> = Table::new();

#[map]
pub static AGGREGATE_KEYS: Array<u64> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub static AGGREGATE_VALUES: Array<u64> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub static AGGREGATE_STARTS: Array<u64> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub static AGGREGATE_TAKEN: Array<u64> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub static AGGREGATE_LOST: Array<[u64; LOST_WORDS]> = Array::with_max_entries(1, BPF_F_MMAPABLE);
