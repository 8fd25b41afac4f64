//! The consumer side of the per-CPU page rings that the eBPF programs fill.
//!
//! [`agent_ebpf`] describes the memory. Here are its safe views: [`SharedArray`] (a mapped array map),
//! [`Control`] (a CPU's control block) and [`CpuRing`] (a CPU's pages: taken in order, in place, and released
//! in discard mode, copied out in overwrite mode). Beside the pages, the programs have two streams:
//! [`NameStream`] and [`WakeStream`].

mod control;
mod reader;
mod shared;
mod streams;

pub use control::Control;
pub use reader::{CpuRing, Rings, SealedPage, Taken};
pub use shared::{Shared, SharedArray};
pub use streams::{NameStream, WakeStream};
