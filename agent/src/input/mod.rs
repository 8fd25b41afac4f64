//! What users write: wildcards, lists of CPUs, names with typing mistakes.

pub(crate) mod cpus;
pub(crate) mod glob;
pub(crate) mod nearest;

pub use cpus::{CpuError, CpuSet};
