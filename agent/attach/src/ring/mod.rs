//! The consumer side of the per-CPU page rings that the eBPF programs fill.
//!
//! [`agent_ebpf`] describes the memory. Here are its safe views: [`SharedArray`] (a mapped array map),
//! [`Control`] (a CPU's control block) and [`CpuRing`] (a CPU's pages: in discard mode [claimed](Claim) in
//! order, in place, in overwrite mode copied out). [`CpuCounts`] are the counts of a CPU at the end of a
//! page. Beside the pages, the programs have two streams: [`NameStream`] and [`WakeStream`].

mod control;
mod counts;
mod reader;
mod shared;
mod streams;

pub use control::Control;
pub use counts::{CountNumbers, CpuCounts};
pub use reader::{Claim, CpuRing, Held, RingId, Rings, Run, SealedPage};
pub use shared::{Shared, SharedArray};
pub use streams::{NameStream, WakeStream};
