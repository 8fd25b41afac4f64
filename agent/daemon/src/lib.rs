//! The session daemon: recording sessions of several users, controlled over a Unix socket or by configuration
//! files.
//!
//! **Data flow:** HTTP with JSON ([`api`]) → `http` → `registry` → a session's thread, which owns a
//! [`capture::Session`] → files, uploads (`archives`), relays (`relay`), viewers (`live`), notifications,
//! metrics. Files of the configuration become sessions in the same way.
//!
//! **Guarantees**
//!
//! - A user is known by the socket's credentials, and gets only the rights that these have. Files are
//!   accessed with the user's own rights (`user`).
//! - Each resource that can run out has a limit per user (`amounts`, `shares`, `descriptors`).
//! - A session survives an upgrade of the daemon without a gap (`handover`), and a killed daemon's data is
//!   recovered (`recovery`).
//!
//! **Must not know:** the texts of the command line; eBPF, other than through [`capture`].
//!
//! # Example
//!
//! The specification of a configured session:
//!
//! ```
//! let config = daemon::config::Config::of_text(
//!     r#"
//!     [[sessions.scheduler.channels]]
//!     rules = [{ what = { events = "sched:sched_switch" } }]
//!     "#,
//! )
//! .map_err(|mistakes| format!("{mistakes:?}"))?;
//! assert!(config.sessions.contains_key("scheduler"));
//! # Ok::<(), String>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | [`config`] | configuration files: what is always recorded |
//! | `configuration` | those files while the daemon runs |
//! | `daemon` | the process from start to end |
//! | `listen` | the socket, from systemd or our own |
//! | `live` | the server of viewers |
//! | `peer` | the client's credentials |
//! | `supervisor` | messages to systemd |
//! | `user` | the rights of a session's user |
//! | `http` | requests and replies |
//! | `registry` | all sessions |
//! | `sessions` | a session: its description and its recording |
//! | `recording` | the recording of a session through its changes |
//! | `relay` | sessions that send to a relay daemon of LTTng |
//! | `recovery` | data that a killed daemon left |
//! | `handover` | sessions that the next daemon continues |
//! | `archives` | closed archives of configured sessions: uploads and limits |
//! | `amounts` | counts of what each user has taken |
//! | `budget` | the daemon's own limits, and doing less to keep them |
//! | `descriptors` | limits of open files per user |
//! | `documents` | the descriptions of the requests and of the configuration |
//! | `shares` | limits of sessions per user |
//! | `side_by_side` | work of several users at the same time |
//! | `files` | the files that a session made |
//! | `maps` | counting in the kernel |
//! | [`metrics`] | values for monitoring systems |
//! | `monitor` | checks each second: ages, losses, readiness |
//! | `notes`, `notifications` | messages to clients |
//! | `triggers` | conditions and their actions |
//! | `fuzz` | arbitrary requests, without recording |

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
mod side_by_side;
mod supervisor;
mod triggers;
mod user;

pub use daemon::{DaemonError, Ended, Options, run};
pub use documents::{config_schema, openapi};
#[cfg(any(test, fuzzing))]
pub use fuzz::fuzz;
pub use recovery::default_state;

/// What a panic leaves of what a lock protects is whole: it is replaced, not changed in steps.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
