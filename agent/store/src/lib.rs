//! Archives in object stores: closed recordings are uploaded, kept within limits on this machine, and found,
//! downloaded and read where they are.
//!
//! | file | subject |
//! |---|---|
//! | `config` | what a configuration says of uploads and of what is kept here |
//! | `secret` | credentials, and texts of others without them |
//! | `credentials` | files with credentials |
//! | `place` | from an address to a store and what it can do |
//! | `http` | requests: counted, and failures with their status |
//! | `failure` | why something failed, and whether it may go better later |
//! | `name` | names of objects |
//! | `content` | the bytes of an archive: a file, or a directory as a tar file |
//! | `archive` | an archive on this machine |
//! | `journal` | what is known of an upload, across restarts |
//! | `pace` | bandwidth, and times between attempts |
//! | `upload` | one archive to its object |
//! | `uploader` | the queue, and its thread |
//! | `counters` | what was sent, what waits, and what was deleted |
//! | `retention` | what is deleted here, and when |
//! | `find` | archives below an address |
//! | `download` | objects to files |
//! | `remote` | an object read by ranges |
//! | `tree` | the files of a directory, to objects of the same names |

mod archive;
pub mod config;
mod content;
mod counters;
mod credentials;
pub mod download;
pub mod failure;
pub mod find;
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
