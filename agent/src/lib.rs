//! tracer-agent as a library: recording kernel events with eBPF, and the `trace.dat` files they are kept in.
//!
//! | module | what it is | needs a kernel |
//! |---|---|---|
//! | [`tracedat`] | the trace.dat version 7 codec: header, sections, options, pages, chunks, writer, reader | no |
//! | [`output`] | where files are written, and files that get their name when they are complete | no |
//! | [`event`] | event formats as tracefs prints them | no |
//! | [`export`] | recordings as directories of other tracers' layouts | no |
//! | [`import`] | recordings of other tracers as trace.dat files | no |
//! | [`not_carried`] | what could not be carried over from one format to another | no |
//! | [`timeline`] | recordings as timelines in a page of HTML | no |
//! | [`chrome`] | recordings in the JSON of Chrome's trace viewer | no |
//! | [`analysis`] | questions about whole recordings: how often, how long, what is different | no |
//! | [`report`] | records as text and JSON, as `trace-cmd report` prints them | no |
//! | [`flame`] | weighted stacks as flame graphs, folded stacks, profiles of pprof and speedscope | no |
//! | [`input`] | what users write: wildcards, lists of CPUs, names with typing mistakes | no |
//! | [`terminal`] | text of others, made safe for a terminal | no |
//! | `kernel` | what the running kernel offers: tracefs, kallsyms, BTF, features, /proc | yes |
//! | `elf` | what a binary of user space offers to probes: functions, USDT markers | no |
//! | `bpf` | eBPF programs and maps, whatever they are for: written, simplified, loaded | yes |
//! | `compile` | programs and events out of what a user asks for | yes |
//! | `attach` | programs in the kernel: loaded, attached, detached | yes |
//! | `ring` | the consumer side of the per-CPU page rings that the eBPF programs fill | yes |
//! | `capture` | a recording from start to finished file, and its recovery after a crash | yes |
//! | `live` | traces as viewers read them while they are written, by LTTng's viewer protocol | no |
//! | `handover` | what goes from one process to the next one: descriptors, and a state | yes |
//! | `spec` | what is to be recorded, as plain data | no |
//! | `plan` | from a specification to what a capture does on this kernel | yes |
//! | `control` | what clients and the session daemon say to each other | no |
//! | `counted` | what maps have counted | no |
//! | `tracecmd` | recordings over a network, to and from trace-cmd | no |
//! | `store` | archives in object stores: uploaded, kept within limits, listed, downloaded, read where they are | no |
//! | `ctl` | the client of the session daemon, also under the name `lttng` | no |
//!
//! Dependencies point down this table's list in reverse: `plan` uses `capture`, which uses `spec`, `attach`
//! and `ring`; `attach` uses `compile`, which uses `bpf`, `elf` and `kernel`; `export` and `report` use
//! `event` and `tracedat`. These four know of no running kernel, and are what is left with
//! `--no-default-features`.
//!
//! How many times each CPU switched tasks, in a file of any recorder:
//!
//! ```no_run
//! use std::collections::BTreeMap;
//! use std::fs::File;
//! use tracer_agent::tracedat::reader::Reader;
//!
//! let reader = Reader::open(File::open("trace.dat")?)?;
//! let switch = reader.metadata().event_id("sched", "sched_switch");
//! let mut switches = BTreeMap::new();
//! let mut records = reader.records()?;
//! while let Some(record) = records.next_record()? {
//!     if record.event_id() == switch {
//!         *switches.entry(record.cpu).or_insert(0) += 1;
//!     }
//! }
//! println!("{switches:?}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A recording, while it goes on (`examples/live.rs`):
//!
#![cfg_attr(feature = "record", doc = "```no_run")]
#![cfg_attr(feature = "record", doc = include_str!("../examples/live.rs"))]
#![cfg_attr(feature = "record", doc = "```")]

pub mod analysis;
pub mod chrome;
pub mod event;
pub mod export;
mod fast_map;
pub mod flame;
pub mod import;
pub mod input;
pub mod not_carried;
pub mod output;
mod parallel;
#[cfg(feature = "record")]
pub mod quantity;
mod reason;
pub mod report;
pub mod terminal;
pub mod timeline;
pub mod tracedat;
mod tracks;
mod utc;

#[cfg(feature = "record")]
pub mod attach;
#[cfg(feature = "record")]
pub mod bpf;
#[cfg(feature = "record")]
pub mod capture;
#[cfg(feature = "record")]
pub mod cli;
#[cfg(feature = "record")]
pub mod compile;
#[cfg(feature = "service")]
pub mod control;
#[cfg(feature = "record")]
pub mod counted;
#[cfg(feature = "service")]
pub mod ctl;
#[cfg(feature = "record")]
pub mod elf;
#[cfg(feature = "record")]
pub mod handover;
#[cfg(feature = "record")]
pub mod kernel;
#[cfg(feature = "record")]
pub mod live;
#[cfg(feature = "record")]
pub mod plan;
#[cfg(feature = "service")]
mod relay;
#[cfg(feature = "record")]
pub mod ring;
#[cfg(feature = "service")]
pub mod service;
#[cfg(feature = "record")]
pub mod spec;
#[cfg(feature = "store")]
pub mod store;
#[cfg(feature = "record")]
pub mod tracecmd;
