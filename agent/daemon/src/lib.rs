//! The session daemon: recording sessions of several users, controlled over a Unix socket.
//!
//! Requests come as HTTP with JSON ([`api`]). tokio serves the connections; each session that
//! records has a thread of its own, which owns the engine's [`Session`](capture::Session) and has the
//! rights of the session's user where files are concerned. Who asks is known from the socket.
//!
//! | file | subject |
//! |---|---|
//! | `config` | what files say that is recorded, always |
//! | `configuration` | those files while the daemon runs |
//! | `daemon` | from the start to the end of the process |
//! | `listen` | the socket, from systemd or our own |
//! | `live` | the server of viewers |
//! | `peer` | who asks |
//! | `supervisor` | what systemd is told |
//! | `user` | the rights of a session's user |
//! | `http` | requests and answers |
//! | `registry` | the sessions there are |
//! | `recording` | the recording of a session, and what becomes of it when the session changes |
//! | `relay` | sessions that send to a relay daemon of LTTng |
//! | `recovery` | what a daemon that was killed has left |
//! | `handover` | sessions that the next daemon goes on with |
//! | `archives` | what configured sessions have closed: sent to a store, and kept within limits |
//! | `amounts` | how much each user has taken of something |
//! | `budget` | what the daemon may take, and doing less to keep to it |
//! | `documents` | the descriptions of the requests and of the configuration |
//! | `descriptors` | how many the recordings of a user may have open |
//! | `shares` | what the sessions of a user may take |
//! | `files` | the files that a session has made |
//! | `metrics` | what monitoring systems read |
//! | `monitor` | what is looked at each second: ages, losses, whether the daemon is ready |
//! | `notifications` | what is told to clients that listen |
//! | `triggers` | conditions of users, and what is done when they are satisfied |
//! | `sessions` | a session: its description and its recording |
//! | `fuzz` | requests of anybody, without recording |

mod amounts;
mod archives;
mod budget;
pub mod config;
mod configuration;
mod daemon;
mod descriptors;
mod documents;
mod files;
#[cfg(any(test, fuzzing))]
mod fuzz;
mod handover;
mod http;
mod listen;
mod live;
mod maps;
pub mod metrics;
mod monitor;
mod notes;
mod notifications;
mod peer;
mod recording;
mod recovery;
mod registry;
mod relay;
mod sessions;
mod shares;
mod supervisor;
mod triggers;
mod user;

pub use daemon::{DaemonError, Ended, Options, run};
pub use documents::{config_schema, openapi};
#[cfg(any(test, fuzzing))]
pub use fuzz::fuzz;
pub use recovery::DEFAULT_STATE;

/// What a panic leaves of what a lock protects is whole: it is replaced, not changed in steps.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
