//! Recordings in the layouts of other tracers: Perfetto, `perf script`, LTTng of 2008, LTT of 2003.
//!
//! **Data flow:** [`recording::export`] surveys a file and calls one of the formats of this crate, which
//! writes a directory or a file.
//!
//! **Guarantees**
//!
//! - The tools that belong to a layout open it; tests run them.
//! - Data that a layout cannot hold is counted, and the user gets the counts.
//!
//! **Must not know:** the running kernel, command lines. Staging and replacing are the work of [`recording`].
//!
//! # Example
//!
//! ```no_run
//! use std::fs::File;
//! use export::{perfetto::Perfetto, recognise};
//! use recording::{Job, Target, TraceFile};
//!
//! let file = TraceFile::open(Box::new(File::open("trace.dat")?))?;
//! let target = Target { path: "trace.perfetto".into(), is_export: recognise::is_export, ..Target::default() };
//! recording::export(&file, &Perfetto, &target, &Job::new(&|_| {}))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | [`perfetto`] | format `perfetto` |
//! | [`perf_script`] | format `perf-script` |
//! | [`ltt2008`] | format `ltt2008`: LTTng of 2008 |
//! | [`eventdefs`] | format `eventdefs`: LTT of 2003 |
//! | [`recognise`] | recognises the layout of a directory |
//! | [`blocks`] | block headers of both historic layouts |

#![forbid(unsafe_code)]

pub mod blocks;
pub mod eventdefs;
pub mod ltt2008;
mod payload;
pub mod perf_script;
pub mod perfetto;
pub mod recognise;
mod state;
