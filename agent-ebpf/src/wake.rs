//! Waking the reader of a CPU's ring: once when enough pages are pending, or, for a watch, once there is an
//! event; and not again before it has run.
//!
//! The reader sleeps on a tiny BPF ring buffer. A record in it with a forced wakeup reaches it from any
//! context: the wakeup itself is done by an `irq_work` (`bpf_ringbuf_commit`, kernel/bpf/ringbuf.c), so
//! neither a held run queue lock nor an NMI is in its way.

use agent_ebpf::CpuControl;
use aya_ebpf::{
    bindings::{BPF_RB_FORCE_WAKEUP, bpf_map_def, bpf_map_type::BPF_MAP_TYPE_ARRAY_OF_MAPS},
    helpers::generated::{bpf_map_lookup_elem, bpf_ringbuf_output},
    macros::map,
};

use crate::{atomic, diagnose, globals};

/// Ring buffers by reader. The agent makes them when it loads the object.
#[repr(transparent)]
pub struct ReaderRings(core::cell::UnsafeCell<bpf_map_def>);

// SAFETY: nobody accesses what is in it: programs only use its address, which the loader replaces by the
// map's.
unsafe impl Sync for ReaderRings {}

#[map]
pub static WAKE: ReaderRings = ReaderRings(core::cell::UnsafeCell::new(bpf_map_def {
    type_: BPF_MAP_TYPE_ARRAY_OF_MAPS,
    key_size: 4,
    value_size: 4,
    max_entries: 1,
    map_flags: 0,
    id: 0,
    pinning: 0,
}));

/// Called with every page that is completed: `head` is the number of pages since the start, published
/// already.
#[inline(always)]
pub fn after_page(ctl: &mut CpuControl, head: u64) {
    // A flight recorder's pages stay where they are.
    if globals::overwrite() != 0 {
        return;
    }
    let waiting = head - atomic::load(&raw const ctl.consumed);
    if waiting < u64::from(ctl.wake_pages) || atomic::load(&raw const ctl.wake_asked) != 0 {
        return;
    }
    ask(ctl);
}

/// Called after each record, also one that was given up, when the ring has no writer. An event that finds no
/// room wakes nobody: the reader was woken for what takes the room. Where pages wake the reader, the verifier
/// drops it.
#[inline(always)]
pub fn after_event(ctl: *mut CpuControl) {
    // SAFETY: the map's value, of which this is a member.
    if globals::wake_each() == 0 || atomic::load(unsafe { &raw const (*ctl).wake_asked }) != 0 {
        return;
    }
    ask(ctl);
}

/// Wakes the reader of a ring, which nobody has yet since it has looked.
#[inline(always)]
fn ask(ctl: *mut CpuControl) {
    // SAFETY: the map's value, of which these are members; the agent has set the second before the start.
    let (asked, reader) = unsafe { (&raw mut (*ctl).wake_asked, (*ctl).reader) };
    // Before the record: the reader may be awake and have cleared it before this program goes on.
    // SAFETY: the map's value. The reader clears the word by a single store; `wake_asked` tells which order
    // the two rely on.
    unsafe { asked.write_volatile(1) };
    if !wake(reader) {
        diagnose::not_woken(reader);
        // The next page or event tries again; at last there is the reader's deadline.
        // SAFETY: as above.
        unsafe { asked.write_volatile(0) };
    }
}

/// Wakes a reader. `false` if its ring buffer is full.
#[inline(always)]
pub fn wake(reader: u32) -> bool {
    let mut record = 0_u32;
    // SAFETY: the loader has put the map there, whose keys are a `u32`.
    let ring = unsafe { bpf_map_lookup_elem(WAKE.0.get().cast(), (&raw const reader).cast()) };
    if ring.is_null() {
        return false;
    }
    let len = size_of::<u32>() as u64;
    // SAFETY: the loader makes all elements of the map ring buffers, and none is taken out while programs
    // run; the helper copies `len` bytes, those of `record`.
    unsafe { bpf_ringbuf_output(ring, (&raw mut record).cast(), len, BPF_RB_FORCE_WAKEUP.into()) == 0 }
}
