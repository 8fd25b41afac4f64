//! What users write: wildcards, lists of CPUs, names with typing mistakes.

pub mod cpus;
pub mod glob;
pub mod nearest;

pub use cpus::{CpuError, CpuSet};
