//! Programs and events out of what a user asks for.
//!
//! | file | subject |
//! |---|---|
//! | [`plan`] | what a probe adds to a recording: events, and the programs that record them |
//! | [`hook`] | these programs, and the attach points that they are for |
//! | [`shape`] | events of our own, described as tracefs describes the kernel's |
//! | [`slot`] | what programs get to know of an event of the kernel |
//! | `generic` | the programs of the generic lane |
//! | [`fast`] | the fast lane: its descriptions, and the programs made of them |
//! | [`aggregate`] | counting in maps as instructions |
//! | [`filter`] | filters and other conditions as instructions |
//! | [`probe_filter`] | filters of the events of probes |
//! | [`scope`] | which threads are recorded, by what they are |
//! | [`context`] | what is known of the current thread and CPU, as fields of any event |
//! | `task` | facts about the current thread as instructions |
//! | [`dynamic`] | kprobes, uprobes, USDT markers and function tracers |
//! | [`typed`] | probes on functions of the kernel by name and type |
//!
//! What comes out is a `Body` with what it is for. Nothing is loaded or attached
//! here: [`attach`](attach) does that.

pub mod aggregate;
pub mod context;
pub mod dynamic;
pub mod fast;
pub mod filter;
pub mod generic;
pub mod hook;
pub mod plan;
pub mod probe_filter;
pub mod scope;
pub mod shape;
pub mod slot;
mod task;
pub mod typed;
