//! The data that clients and the session daemon exchange: JSON in HTTP/1.1 on a Unix socket.
//!
//! The objects are those of LTTng's concepts (lttng-concepts(7)): recording sessions have channels, channels
//! have event rules and contexts. [`requests`] lists the requests with method and path.
//!
//! **Data flow:** client (`ctl`, or any HTTP client) ⇄ these types ⇄ `daemon`.
//!
//! **Guarantees**
//!
//! - Every request and reply is a type of this crate; a reply that is not `2xx` is a [`ControlError`].
//! - Unknown fields of a request are errors.
//!
//! **Must not know:** how the daemon records, the running kernel, sockets. Plain data only, so that clients
//! build without the recorder.
//!
//! # Example
//!
//! ```
//! use api::{NewSession, SessionMode};
//!
//! let session: NewSession = serde_json::from_str(r#"{"name": "boot", "mode": "snapshot"}"#)?;
//! assert_eq!(session.mode, SessionMode::Snapshot);
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | [`session`] | sessions, their outputs, rotations and snapshots |
//! | [`channel`] | channels and their attributes |
//! | [`rule`] | event rules |
//! | [`track`] | the processes that are recorded |
//! | [`instrumentation`] | the events that can be recorded |
//! | [`map`], [`maps`], [`counted`] | counts in the kernel |
//! | [`trigger`] | conditions and their actions |
//! | [`usage`] | fill levels of rings, recorded and lost events |
//! | [`capture`] | the content of notifications |
//! | [`error`] | reasons of a refused request |
//! | [`requests`] | the requests |

#![forbid(unsafe_code)]

pub mod capture;
pub mod channel;
pub mod counted;
pub mod error;
pub mod instrumentation;
pub mod map;
pub mod maps;
pub mod requests;
pub mod rule;
pub mod session;
pub mod track;
pub mod trigger;
pub mod usage;

use serde::{Deserialize, Serialize};

pub use channel::{Buffers, Channel, ChannelAttributes, EventLoss, OutputMethod};
pub use error::{Code, ControlError};
pub use instrumentation::{FieldInfo, InstrumentationPoint};
pub use map::{CountedMap, NewMap};
pub use rule::{EventRule, Instrumentation, LogLevel, SyscallPart, UserProbe};
pub use session::{
    Created, Destroyed, Format, NewSession, Rotation, RotationState, Schedule, Session, SessionMode,
    Snapshot, SnapshotOutput, Stopped, Summary,
};
pub use track::{Tracked, Tracker};
pub use trigger::{NewTrigger, Trigger};
pub use usage::Usage;

/// Where the daemon listens unless it is told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/tracer-agent/daemon.sock";

/// A kind of tracer (lttng-concepts(7), "Tracing domain").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Domain {
    /// The kernel: tracepoints, system calls, functions, and user-space probes that the kernel places.
    Kernel,
    /// User space: markers (USDT) and functions of programs and libraries.
    User,
}

impl Domain {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Kernel, Self::User];

    /// Its name in paths of requests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::User => "user",
        }
    }
}
