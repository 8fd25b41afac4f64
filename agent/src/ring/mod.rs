//! The consumer side of the per-CPU page rings.
