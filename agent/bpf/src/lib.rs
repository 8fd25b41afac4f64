//! eBPF programs and maps, whatever they are for: written, simplified, loaded.
//!
//! aya-obj parses and relocates the object of `agent-ebpf`; creating its maps and loading its programs is
//! done here.
//!
//! | file | subject |
//! |---|---|
//! | `sys` | the system calls: bpf(2) and perf_event_open(2) |
//! | `unit` | the perf units that make probes |
//! | `insn` | instructions, and an assembler |
//! | `relocation` | what instructions leave open until they are loaded |
//! | `program` | programs that are compiled at the start, and the subprograms of the object that they call |
//! | `preemption` | how these deal with preemption |
//! | `parts` | programs put together, with functions that are verified by themselves |
//! | `simplify` | programs without what the constants of a recording make superfluous |
//! | `peek` | a look at the kernel's memory, by a program that is run once |
//! | `load` | the object: its maps created, its programs given to the verifier |
//!
//! Nothing here knows of events, of what a user asks for, or where a program goes: `compile` and `attach` do.

pub mod insn;
pub mod load;
pub mod parts;
pub mod peek;
pub mod preemption;
pub mod program;
pub mod relocation;
mod simplify;
pub mod sys;
pub mod unit;

pub use load::{LoadError, SharedMaps};
pub use preemption::PreemptionGuard;
