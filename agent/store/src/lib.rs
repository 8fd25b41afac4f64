//! Archives in object stores: closed recordings are uploaded, kept within limits on this machine, and found,
//! downloaded and read where they are.
//!
//! **Data flow:** a closed archive → journal → [`Uploader`] (a thread with a queue) → object. Back: [`find`]
//! lists archives, [`download`] fetches them, [`remote`] reads one by ranges.
//!
//! **Guarantees**
//!
//! - An upload survives restarts: its journal is on disk before its first byte is sent.
//! - An archive is deleted here only after the store has confirmed it, unless [`config::Unsent`] allows more;
//!   deletions are counted.
//! - Secrets appear in no message and in no `Debug` text ([`secret`]).
//!
//! **Must not know:** sessions, eBPF, the running kernel. An archive is a file or a directory.
//!
//! # Example
//!
//! ```no_run
//! use store::{Access, find};
//!
//! let all = find::Wanted::default();
//! for archive in find::list("s3://traces/fleet", &Access::default(), &all)? {
//!     println!("{} {}", archive.bytes, archive.url);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | [`config`] | the configuration of uploads and retention |
//! | [`secret`] | credentials, and texts with credentials removed |
//! | `credentials` | files with credentials |
//! | `place` | from an address to a store and its abilities |
//! | `http` | requests: bounded answers, no redirects to other hosts, failures with their status |
//! | [`failure`] | reasons of failures, and whether a retry can help |
//! | [`name`] | names of objects |
//! | `content` | the bytes of an archive: a file, or a directory as a tar file |
//! | `archive` | an archive on this machine |
//! | `journal` | the state of an upload, across restarts |
//! | `pace` | bandwidth, and times between attempts |
//! | `upload` | one archive to its object |
//! | [`uploader`] | the queue and its thread |
//! | `counters` | sent, waiting and deleted archives |
//! | [`retention`] | deletions on this machine |
//! | [`find`] | archives below an address |
//! | [`download`] | objects to files |
//! | [`remote`] | an object read by ranges |
//! | [`tree`] | a directory's files, to objects of the same names |

#![forbid(unsafe_code)]

mod archive;
pub mod config;
mod content;
mod counters;
mod credentials;
pub mod download;
pub mod failure;
pub mod find;
#[cfg(test)]
mod hostile;
mod http;
mod journal;
pub mod name;
mod pace;
mod place;
pub mod remote;
pub mod retention;
pub mod secret;
pub mod tree;
mod upload;
pub mod uploader;

pub use archive::{Archive, ArchiveError};
pub use config::{ConfigError, RetentionConfig, UploadConfig};
pub use counters::UploadCounters;
pub use failure::{Cause, StoreError};
pub use journal::JournalError;
pub use place::is_url;
pub use place::{Access, Place, Retries};
pub use uploader::{Event, StartError, Uploader};
