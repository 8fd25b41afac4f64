//! Compiles event descriptions, filters, probes and maps to eBPF programs.
//!
//! **Data flow:** an event's format → an [`EventSlot`](agent_ebpf::EventSlot), its copying plan ([`slot`]); a
//! description and BTF → a program of its own ([`fast`]); a probe → event shapes and programs with hooks
//! ([`plan`], [`hook`]); a condition → instructions ([`filter`]). The results are
//! [`Body`](bpf::program::Body)s with their attach points.
//!
//! **Guarantees**
//!
//! - Results are data: nothing here loads or attaches, so all of it runs in unit tests.
//! - A program reads memory only where format, BTF or verifier prove a field to be.
//! - A filter selects the same records as the kernel's filter of the same text.
//!
//! **Must not know:** sessions, rings, files. `attach` loads the results.
//!
//! # Example
//!
//! ```
//! use compile::slot::plan_slot;
//! use ftrace_event::Format;
//!
//! let format = Format::parse(
//!     "name: hello\nID: 300\nformat:\n\
//!     \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
//!     \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
//!     \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
//!     \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
//!     \tfield:u64 value;\toffset:8;\tsize:8;\tsigned:0;\n\n\
//!     print fmt: \"value=%llu\", REC->value\n",
//! )?;
//! let slot = plan_slot("demo", "hello", &format)?;
//! assert_eq!((slot.id, slot.fixed_len), (300, 16));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | [`plan`] | what a probe adds to a recording: events and programs |
//! | [`hook`] | programs of probes, and their attach points |
//! | [`shape`] | events of our own, described as tracefs describes the kernel's |
//! | [`slot`] | what programs know of an event of the kernel |
//! | [`generic`] | programs of the generic lane |
//! | [`fast`] | the fast lane: descriptions, and the programs made from them |
//! | [`aggregate`] | counting in maps |
//! | [`filter`] | filters and other conditions |
//! | [`probe_filter`] | filters of probes' events |
//! | [`scope`] | which threads are recorded, by their properties |
//! | [`context`] | facts about the current thread and CPU, as fields of any event |
//! | `task` | facts about the current thread, as instructions |
//! | [`dynamic`] | kprobes, uprobes, USDT markers, function tracers and trace_marker |
//! | [`typed`] | probes on kernel functions by name and type |

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
