//! The maps (their contents are documented in `agent_ebpf`). Sizes of 1 are replaced by the agent at load.

use agent_ebpf::{
    CpuControl, EventLedger, EventSlot, NAMES_BYTES, PAGE_SIZE, PageMeta, SIDE_BYTES, SYSCALL_SLOTS,
    SyscallSlot, TID_WORDS,
    calls::{CALL_WAYS, CallThread},
};
use aya_ebpf::{
    bindings::BPF_F_MMAPABLE,
    macros::map,
    maps::{Array, RingBuf},
};

/// A sub-buffer page.
#[repr(C, align(4096))]
pub struct Page(pub [u8; PAGE_SIZE]);

#[map]
pub static PAGES: Array<Page> = Array::with_max_entries(1, BPF_F_MMAPABLE);

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
pub static CONTROL: Array<CpuControl> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub static EVENTS: Array<EventSlot> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub static LEDGER: Array<EventLedger> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub static TRACED: Array<u64> = Array::with_max_entries(TID_WORDS as u32, BPF_F_MMAPABLE);

#[map]
pub static UNTRACED: Array<u64> = Array::with_max_entries(TID_WORDS as u32, BPF_F_MMAPABLE);

#[map]
pub static SCOPED: Array<u64> = Array::with_max_entries(TID_WORDS as u32, BPF_F_MMAPABLE);

#[map]
pub static RATES: Array<u64> = Array::with_max_entries(1, 0);

#[map]
pub static CALL_OWNERS: Array<[u64; CALL_WAYS]> = Array::with_max_entries(1, 0);

#[map]
pub static CALLS: Array<CallThread> = Array::with_max_entries(1, 0);

#[map]
pub static NAMES: RingBuf = RingBuf::with_byte_size(NAMES_BYTES, 0);
