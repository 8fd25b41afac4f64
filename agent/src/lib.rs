//! tracer-agent as a library: recording kernel events with eBPF, and the `trace.dat` files they are kept in.
//!
//! | module | what it is | needs a kernel |
//! |---|---|---|
//! | [`tracedat`] | the trace.dat version 7 codec: header, sections, options, pages, chunks, writer, reader | no |
//! | [`event`] | event formats as tracefs prints them | no |
//! | `kernel` | what the running kernel offers: tracefs, kallsyms, BTF, features, /proc | yes |
//! | `probe` | attaching eBPF programs to the kernel's hooks | yes |
//! | `ring` | the consumer side of the per-CPU page rings that the eBPF programs fill | yes |
//! | `capture` | a recording from start to finished file, and its recovery after a crash | yes |
//!
//! Dependencies point down this table's list in reverse: `capture` uses `probe` and `ring`, which use `kernel`;
//! `tracedat` and `event` use nothing but the standard library and the compressor, and are what is left with
//! `--no-default-features`.

pub mod event;
pub mod tracedat;

#[cfg(feature = "record")]
pub mod capture;
#[cfg(feature = "record")]
pub mod cli;
#[cfg(feature = "record")]
pub mod kernel;
#[cfg(feature = "record")]
pub mod probe;
#[cfg(feature = "record")]
pub mod ring;
