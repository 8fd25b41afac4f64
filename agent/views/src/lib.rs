//! Recordings as timelines: one page of HTML, or the JSON of Chrome's trace viewer.
//!
//! **Data flow:** [`recording::export`] → rows of slices for threads, CPUs and devices (`tracks`) →
//! [`timeline`] or [`chrome`].
//!
//! **Guarantees**
//!
//! - A page of HTML needs no network and no other file.
//! - Names from recordings are data in the page, never markup or code.
//! - Data beyond the limit of a page is summarised, and the page shows that.
//!
//! **Must not know:** the running kernel, command lines.
//!
//! # Example
//!
//! ```no_run
//! use std::fs::File;
//! use recording::{Job, Target, TraceFile, export};
//! use views::timeline::Timeline;
//!
//! let file = TraceFile::open(Box::new(File::open("trace.dat")?))?;
//! let target = Target { path: "trace.html".into(), ..Target::default() };
//! export(&file, &Timeline::default(), &target, &Job::new(&|_| {}))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | [`timeline`] | a timeline in one page of HTML |
//! | [`chrome`] | the JSON that Chrome's trace viewer and Perfetto's open |
//! | `tracks` | threads, CPUs and devices as rows of slices, for both |

#![forbid(unsafe_code)]

pub mod chrome;
#[cfg(test)]
mod metamorphic;
pub mod timeline;
mod tracks;
