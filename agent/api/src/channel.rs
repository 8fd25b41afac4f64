//! Channels.

use serde::{Deserialize, Serialize};

use super::EventRule;

/// What happens to events for which there is no room (lttng-concepts(7), "Event record loss mode").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EventLoss {
    /// The new ones are dropped and counted.
    #[default]
    Discard,
    /// The oldest ones are overwritten.
    Overwrite,
}

/// How LTTng hands over data of the kernel. It is kept and shown; rings here are always mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OutputMethod {
    /// `splice(2)`.
    Splice,
    /// `mmap(2)`.
    #[default]
    Mmap,
}

/// Whose events share rings (lttng-concepts(7), "Buffering scheme").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Buffers {
    /// Everyone's. The only one of the kernel domain; in user space, what LTTng does not have.
    #[default]
    Global,
    /// Those of a user: what the user domain has where nothing is said.
    Uid,
    /// Those of a process.
    Pid,
}

/// What is chosen of a channel when it is created. `None` is the default of its domain and session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ChannelAttributes {
    /// What happens to events for which there is no room.
    pub event_loss: Option<EventLoss>,
    /// Bytes of a sub-buffer; rounded up to a power of two.
    pub subbuf_size: Option<u64>,
    /// Sub-buffers of each CPU; rounded up to a power of two.
    pub num_subbuf: Option<u64>,
    /// Microseconds that an event waits at most in a sub-buffer that is not full; 0 for no limit.
    pub switch_timer_us: Option<u64>,
    /// Microseconds between two looks for full sub-buffers; 0 to be woken for each.
    pub read_timer_us: Option<u64>,
    /// Microseconds between two looks at how full the rings are; 0 for none.
    pub monitor_timer_us: Option<u64>,
    /// Microseconds that a program waits for room (`None` in here: for ever).
    pub blocking_timeout_us: Option<i64>,
    /// How LTTng hands over data.
    pub output: Option<OutputMethod>,
    /// Bytes of a trace file, after which the next one is begun; 0 for no limit.
    pub tracefile_size: Option<u64>,
    /// How many trace files of each stream are kept; 0 for all.
    pub tracefile_count: Option<u64>,
    /// Whose events share rings.
    pub buffers: Option<Buffers>,
}

/// A channel of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Channel {
    /// Its name, unique in its domain.
    pub name: String,
    /// Whether its rules record.
    pub enabled: bool,
    /// What it is like: all of them are there.
    pub attributes: ChannelAttributes,
    /// Events that were not recorded because it was full.
    pub discarded: u64,
    /// Packets that were overwritten.
    pub lost_packets: u64,
    /// The fields that each of its records has beside its own, as `lttng add-context --list` names them.
    pub contexts: Vec<String>,
    /// Its event rules, in the order in which they were added.
    pub rules: Vec<EventRule>,
}
