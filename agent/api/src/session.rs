//! Recording sessions.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Channel, Domain, NewMap, Tracker};

/// What is written of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// A trace.dat file for each trace chunk.
    #[default]
    TraceDat,
    /// A CTF trace as LTTng 2.13 lays it out.
    Lttng,
}

/// What a session does with its events (lttng-concepts(7), "Recording session modes").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SessionMode {
    /// Writes them to a directory.
    Local {
        /// The directory, absolute; `None` where only snapshots are written (`lttng create --no-output`).
        #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
        output: Option<PathBuf>,
    },
    /// Keeps the newest in memory until a snapshot is taken.
    Snapshot,
    /// Sends them to a relay daemon of LTTng, in the format [`Format::Lttng`]. The protocol has neither
    /// encryption nor authentication.
    Network {
        /// Where to (`net://host/path`), as it was given.
        url: String,
    },
    /// Writes them to a directory, and lets viewers read them meanwhile from the daemon itself, in the format
    /// [`Format::Lttng`]. Whoever can connect to where it listens can read them: by default, all users of
    /// the machine.
    Served {
        /// The directory, absolute.
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        output: PathBuf,
        /// Microseconds that an event waits at most.
        timer_us: u64,
    },
    /// Sends them to a relay daemon that others read from meanwhile.
    Live {
        /// Where to, as it was given.
        url: String,
        /// Microseconds that an event waits at most.
        timer_us: u64,
    },
}

impl SessionMode {
    /// Microseconds that an event waits at most for those who read meanwhile, if the session has such.
    pub fn live_timer_us(&self) -> Option<u64> {
        match self {
            Self::Served { timer_us, .. } | Self::Live { timer_us, .. } => Some(*timer_us),
            Self::Local { .. } | Self::Snapshot | Self::Network { .. } => None,
        }
    }
}

/// A session that is to be created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewSession {
    /// Its name; `None` lets the daemon name it `auto-YYYYmmdd-HHMMSS`.
    #[serde(default)]
    pub name: Option<String>,
    /// Its mode. The output of a snapshot session is given as [`NewSession::snapshot_output`].
    pub mode: SessionMode,
    /// Where snapshots go by default: a directory, or a relay daemon (`net://host/path`).
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub snapshot_output: Option<PathBuf>,
    /// What is written.
    #[serde(default)]
    pub format: Format,
    /// Writes the machine's state into LTTng's traces only if a rule matches `lttng_statedump_*`.
    #[serde(default)]
    pub state_by_rule: bool,
}

/// A session that was created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Created {
    /// Its name.
    pub name: String,
    /// Where its files go, if there is such a place before it is started.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub output: Option<PathBuf>,
    /// Where viewers read it, if the daemon lets them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub viewers: Option<String>,
}

/// A session in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Summary {
    /// Its name.
    pub name: String,
    /// Whether it is started.
    pub active: bool,
    /// Its mode.
    pub mode: SessionMode,
    /// What is written of it.
    pub format: Format,
    /// When it was created, in seconds since 1970.
    pub created_at: u64,
    /// The user it belongs to.
    pub uid: u32,
}

/// A session with all that it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Session {
    /// What a list says of it.
    #[serde(flatten)]
    pub summary: Summary,
    /// Its domains that have a channel, in the order of [`Domain`].
    pub domains: Vec<SessionDomain>,
    /// When it rotates by itself.
    pub schedules: Vec<Schedule>,
    /// Where snapshots go.
    pub snapshot_outputs: Vec<SnapshotOutput>,
    /// Its last rotation, if there was one.
    pub last_rotation: Option<Rotation>,
    /// The maps that count while it is active.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub maps: Vec<NewMap>,
    /// What is to be known of what it records: events that are left out, and why. Those of the recording that
    /// goes on, the newest 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The part of a session that is of one domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SessionDomain {
    /// Which domain.
    pub domain: Domain,
    /// Which processes are recorded.
    pub trackers: Vec<Tracker>,
    /// Its channels, in the order in which they were created.
    pub channels: Vec<Channel>,
}

/// What a stop found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Stopped {
    /// Events that were not recorded because the channels were full, since the session was created.
    pub discarded: u64,
    /// Packets that were overwritten, since the session was created.
    pub lost_packets: u64,
}

/// What a session left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Destroyed {
    /// The last counts.
    pub counts: Stopped,
    /// Its files or directories, the newest 1024.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    pub files: Vec<PathBuf>,
    /// How many others it made before them.
    #[serde(default)]
    pub earlier_files: u64,
    /// Where its last trace chunk went, if it had been rotated before.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub archive: Option<PathBuf>,
}

/// When a session rotates by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Schedule {
    /// Every so many microseconds.
    PeriodUs(u64),
    /// Each time that the current trace chunk has so many bytes.
    SizeBytes(u64),
}

/// How far a rotation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RotationState {
    /// The archived chunk is being written.
    Ongoing,
    /// It is there.
    Completed,
    /// It could not be written; the daemon's log says why.
    Failed,
}

/// A rotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Rotation {
    /// The number of the chunk that it archives, counted from 0.
    pub id: u64,
    /// How far it is.
    pub state: RotationState,
    /// Where the archived chunk is, when it is there.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub path: Option<PathBuf>,
}

/// A place for snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SnapshotOutput {
    /// Its number in the session, from 1 on. What a request says of it does not matter.
    #[serde(default)]
    pub id: u32,
    /// Its name; `snapshot-ID` where a request says none.
    #[serde(default)]
    pub name: Option<String>,
    /// The directory, absolute, or a relay daemon (`net://host/path`).
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub path: PathBuf,
    /// The most bytes of one snapshot; `None` for no limit.
    #[serde(default)]
    pub max_size: Option<u64>,
}

/// A snapshot that was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// The file or directory, or where it is at the relay daemon (`net://host:ports/path`).
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub path: PathBuf,
    /// How many events it has.
    pub events: u64,
}
