//! The atomic operations that this target's code generator knows.
//!
//! On `bpfel-unknown-none` `AtomicU64` has no read-modify-write operations and its atomic loads are not selected, so the
//! intrinsics are wrapped here, once. The fetching forms are fully ordered (Documentation/bpf/standardization/
//! instruction-set.rst, atomic operations; kernel/bpf JITs), which is what publishing a page relies on.

use core::intrinsics::{AtomicOrdering, atomic_and, atomic_or, atomic_xchg};

/// Stores `value` with full ordering: everything written before is visible to whoever reads the new value.
#[inline(always)]
pub fn publish(target: *mut u64, value: u64) {
    // SAFETY: callers pass a pointer into a map value that the verifier has bounds-checked.
    unsafe { atomic_xchg::<u64, { AtomicOrdering::SeqCst }>(target, value) };
}

/// Sets the bits of `mask`.
#[inline(always)]
pub fn set_bits(target: *mut u64, mask: u64) {
    // SAFETY: as for `publish`.
    unsafe { atomic_or::<u64, u64, { AtomicOrdering::SeqCst }>(target, mask) };
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
    // SAFETY: as for `publish`.
    unsafe { source.read_volatile() }
}
