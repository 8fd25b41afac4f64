//! The atomic operations that this target's code generator knows.
//!
//! On `bpfel-unknown-none` `AtomicU64` has no read-modify-write operations and its atomic loads are not
//! selected, so the intrinsics are wrapped here, once. The fetching forms are fully ordered
//! (Documentation/bpf/standardization/instruction-set.rst, atomic operations; kernel/bpf JITs), which is what
//! publishing a page relies on.
//!
//! All take pointers to aligned words in the values of maps, to which whoever else accesses them meanwhile
//! does so atomically, too, or by a single load or store of the whole word.

use core::intrinsics::{AtomicOrdering, atomic_and, atomic_cxchg, atomic_or, atomic_xadd, atomic_xchg};

/// Stores `value` with full ordering: everything written before is visible to whoever reads the new value.
#[inline(always)]
pub fn publish(target: *mut u64, value: u64) {
    // SAFETY: the map's value: the verifier refuses an atomic operation on anything but that and the stack,
    // and on a word that is not aligned. It is no data race with the programs and the agent's threads that
    // use the word, as they do so atomically, too.
    unsafe { atomic_xchg::<u64, { AtomicOrdering::SeqCst }>(target, value) };
}

/// Stores `value` and gives what was there.
#[inline(always)]
pub fn exchange(target: *mut u64, value: u64) -> u64 {
    // SAFETY: as for `publish`.
    unsafe { atomic_xchg::<u64, { AtomicOrdering::SeqCst }>(target, value) }
}

/// Replaces `old` by `new`; false if something else was there.
#[inline(always)]
pub fn replace(target: *mut u64, old: u64, new: u64) -> bool {
    // SAFETY: as for `publish`.
    unsafe {
        atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(target, old, new).0 == old
    }
}

/// Adds 1, also where an interrupting program may do the same.
#[inline(always)]
pub fn increment(target: *mut u64) {
    // SAFETY: as for `publish`.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(target, 1) };
}

/// Adds 1 and gives what was there.
#[inline(always)]
pub fn take_number(target: *mut u64) -> u64 {
    // SAFETY: as for `publish`.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(target, 1) }
}

/// Sets the bits of `mask`.
#[inline(always)]
pub fn set_bits(target: *mut u64, mask: u64) {
    // SAFETY: as for `publish`.
    unsafe { atomic_or::<u64, u64, { AtomicOrdering::SeqCst }>(target, mask) };
}

/// A store that the compiler neither moves across other volatile ones nor omits.
#[inline(always)]
pub fn store(target: *mut u64, value: u64) {
    // SAFETY: the map's value, as for `publish`. An aligned word is stored by one instruction, so others see
    // the old or the new value.
    unsafe { target.write_volatile(value) };
}

/// Clears the bits of `mask`.
#[inline(always)]
pub fn clear_bits(target: *mut u64, mask: u64) {
    // SAFETY: as for `publish`.
    unsafe { atomic_and::<u64, u64, { AtomicOrdering::SeqCst }>(target, !mask) };
}

/// A load that the compiler neither repeats nor omits: the agent writes the other side.
#[inline(always)]
pub fn load(source: *const u64) -> u64 {
    // SAFETY: the map's value, as for `publish`. An aligned word is loaded by one instruction, so it is never
    // half of what another one writes meanwhile.
    unsafe { source.read_volatile() }
}
