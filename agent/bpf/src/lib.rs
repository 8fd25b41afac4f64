//! eBPF programs and maps, for any purpose: written, simplified, loaded.
//!
//! aya-obj parses and relocates the object of `agent-ebpf`; this crate creates its maps and loads its
//! programs.
//!
//! **Data flow:** instructions ([`insn::Assembler`]) → [`program::Body`] → linked with subprograms of the
//! object → simplified for a recording's constants (`simplify`) → verified by the kernel ([`load`]) →
//! descriptors.
//!
//! **Guarantees**
//!
//! - A simplified program computes the same as the original; tests compare random programs.
//! - A refused program gives the end of the verifier's log.
//! - Every system call of bpf(2) and perf_event_open(2) is in [`sys`].
//!
//! **Must not know:** events, recordings, attach points. `compile` and `attach` know those.
//!
//! # Example
//!
//! ```
//! use bpf::insn::{Assembler, Reg};
//!
//! let mut code = Assembler::default();
//! code.load_imm(Reg(0), 0);
//! code.exit();
//! let (instructions, _) = code.finish().ok_or("a jump without a target")?;
//! assert_eq!(instructions.len(), 2);
//! # Ok::<(), &str>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | [`sys`] | the system calls |
//! | [`mod@unit`] | the perf units of probes |
//! | [`insn`] | instructions, and an assembler |
//! | [`relocation`] | values that are known at loading |
//! | [`program`] | generated programs, and the object's subprograms that they call |
//! | [`preemption`] | preemption in generated programs |
//! | [`parts`] | programs made of separately verified functions |
//! | `simplify` | constants propagated, dead code removed |
//! | [`peek`] | reads kernel memory with a program that runs once |
//! | [`load`] | the object: its maps created, its programs verified |

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
