//! Triggers: a condition, and what is done when it is satisfied (lttng-concepts(7), "Trigger").

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

pub use super::capture::{Capture, CaptureError};
use super::{Domain, EventRule};

/// A trigger that is to be added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewTrigger {
    /// Its name, unique among those of its user; `None` lets the daemon name it `triggerN`.
    #[serde(default)]
    pub name: Option<String>,
    /// When it fires.
    pub condition: Condition,
    /// What is done then, in this order.
    pub actions: Vec<Action>,
    /// How often its actions are done at most.
    #[serde(default, skip_serializing_if = "Pace::is_free")]
    pub pace: Pace,
    /// Whether the daemon's configuration says it. No client can.
    #[serde(skip)]
    pub configured: bool,
}

/// How often the actions of a trigger are done at most, but for those that count. When they are not done, the
/// trigger has fired nevertheless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Pace {
    /// Milliseconds after they were due in which they are not due again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cool_down_ms: Option<u64>,
    /// How often in a day (UTC).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_day: Option<u64>,
}

impl Pace {
    /// Whether it holds nothing back.
    pub fn is_free(&self) -> bool {
        *self == Self::default()
    }
}

impl NewTrigger {
    /// Whether a trigger that is there is what this one would be.
    pub fn is_like(&self, there: &Trigger) -> bool {
        let actions = there.actions.iter().map(|of| &of.action);
        (&self.condition, self.pace) == (&there.condition, there.pace) && self.actions.iter().eq(actions)
    }
}

/// A trigger that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Trigger {
    /// Its name.
    pub name: String,
    /// The user it belongs to.
    pub uid: u32,
    /// When it fires.
    pub condition: Condition,
    /// How often it has fired.
    pub fired: u64,
    /// How often its event rule has matched without that the daemon could be told. That is not in `fired`.
    pub missed: u64,
    /// How often nobody has watched for what its condition is about, after somebody had: one daemon has gone
    /// on from another, or the bus of systemd's units was away. Whether it was satisfied meanwhile is not
    /// known.
    pub interruptions: u64,
    /// How often its actions are done at most.
    #[serde(default, skip_serializing_if = "Pace::is_free")]
    pub pace: Pace,
    /// How often it has fired without that its actions were done, for that reason.
    #[serde(default)]
    pub held_back: u64,
    /// Why its condition is not looked at, if it is not.
    pub problem: Option<String>,
    /// What is done when it fires.
    pub actions: Vec<ActionState>,
    /// Whether the daemon's configuration says it, which then is where it is changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub configured: bool,
}

/// An action of a trigger that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ActionState {
    /// What it is.
    pub action: Action,
    /// How often its rate policy let it be done.
    pub executed: u64,
    /// How often of those it failed, or could not even be tried because too many others waited.
    pub failed: u64,
    /// Why it failed last.
    pub last_failure: Option<String>,
}

/// When a trigger fires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Condition {
    /// Each time that an event matches the rule.
    EventRuleMatches {
        /// Where the rule's events come from.
        domain: Domain,
        /// The rule.
        rule: EventRule,
        /// What is told of the event: a field (`prev_pid`), an element of it (`args[2]`) or a context
        /// (`$ctx.procname`).
        #[serde(default)]
        captures: Vec<String>,
    },
    /// When more than so many events have matched the rule in a second, and had not in the one before.
    EventRate {
        /// Where the rule's events come from.
        domain: Domain,
        /// The rule.
        rule: EventRule,
        /// How many in a second are not too many.
        above: u64,
    },
    /// When the fullest ring of a channel has come to hold so much, or more.
    BufferUsageHigh(BufferUsage),
    /// When the fullest ring of a channel has come to hold so little, or less.
    BufferUsageLow(BufferUsage),
    /// When a session has stored so many bytes, or more, since it was started first.
    ConsumedSize {
        /// The session.
        session: String,
        /// Bytes.
        bytes: u64,
    },
    /// When a trace chunk of a session begins to be archived.
    RotationOngoing {
        /// The session.
        session: String,
    },
    /// When a trace chunk of a session is archived.
    RotationCompleted {
        /// The session.
        session: String,
    },
    /// When tasks have come to wait for a resource for a larger share of the last ten seconds.
    Pressure {
        /// What they wait for.
        resource: Resource,
        /// How many of them.
        share: Share,
        /// The share of the time that is not too much, in hundredths of a percent.
        above: u16,
    },
    /// Each time that a unit of systemd has come to be failed.
    UnitFailed {
        /// Its name with its type (`ssh.service`), or a pattern (`nginx*`).
        unit: String,
    },
    /// Each time that the daemon is sent the signal `SIGUSR1`.
    Signal,
}

impl Condition {
    /// Whether it is about moments: what happens while nobody watches is not known afterwards.
    pub fn is_about_moments(&self) -> bool {
        matches!(self, Self::EventRuleMatches { .. } | Self::EventRate { .. } | Self::UnitFailed { .. })
    }
}

/// How full the rings of a channel are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BufferUsage {
    /// The session.
    pub session: String,
    /// The domain of the channel.
    pub domain: Domain,
    /// The channel.
    pub channel: String,
    /// How full.
    pub threshold: Threshold,
}

/// An amount of what a ring holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Threshold {
    /// So many bytes.
    Bytes(u64),
    /// So much of it.
    Percent(u8),
}

/// What tasks wait for (`/proc/pressure`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Processors.
    Cpu,
    /// Input and output.
    Io,
    /// Memory.
    Memory,
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Io, Self::Memory];

    /// Its name, which is also that of its file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Io => "io",
            Self::Memory => "memory",
        }
    }
}

/// How many tasks wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// At least one.
    Some,
    /// All that are not idle.
    Full,
}

impl Share {
    /// Its name in the kernel's file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Some => "some",
            Self::Full => "full",
        }
    }
}

/// What a trigger does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// What.
    #[serde(rename = "do")]
    pub kind: ActionKind,
    /// Of how many times that the trigger fires.
    #[serde(default)]
    pub rate_policy: RatePolicy,
}

/// Kinds of actions. Sessions are those of the trigger's user that have the name when it fires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ActionKind {
    /// Tells those who listen to the daemon's notifications.
    Notify,
    /// Starts a session.
    StartSession {
        /// Its name.
        session: String,
    },
    /// Stops a session.
    StopSession {
        /// Its name.
        session: String,
    },
    /// Archives the current trace chunk of a session.
    RotateSession {
        /// Its name.
        session: String,
    },
    /// Takes a snapshot of a session.
    SnapshotSession {
        /// Its name.
        session: String,
        /// Where it goes, instead of the session's outputs.
        #[serde(default)]
        output: Option<SnapshotTarget>,
        /// What it has of the time before and after the trigger fires.
        #[serde(default, skip_serializing_if = "Window::is_open")]
        window: Window,
    },
    /// Counts into a map. Where each match of a rule for one event of the kernel is counted, the kernel does
    /// it: exactly, and without telling the daemon.
    Count {
        /// What the matches are told apart by: up to three fields, contexts, or arithmetic with them. Only
        /// where the kernel counts.
        #[serde(default)]
        by: Vec<String>,
        /// What is kept of each key (`hist(FIELD)`), as `record --count` has it; how many, where nothing is
        /// said. Only where the kernel counts.
        #[serde(default)]
        function: Option<String>,
        /// How many different keys there can be.
        #[serde(default)]
        max_keys: Option<u32>,
    },
    /// Posts the notification to a service of this machine: HTTP with JSON to a Unix socket, as the trigger's
    /// user.
    Post {
        /// The socket, absolute.
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        socket: PathBuf,
    },
}

/// The part of time that a snapshot is of, around when its trigger fires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Window {
    /// Milliseconds before: older events are left out, as far as whole pages are older. Everything that the
    /// rings hold, where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before_ms: Option<u64>,
    /// Milliseconds after, which the snapshot, and what comes after it, waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u64>,
}

impl Window {
    /// Whether it leaves out nothing and waits for nothing.
    pub fn is_open(&self) -> bool {
        *self == Self::default()
    }

    /// How long the snapshot waits.
    pub fn after(&self) -> std::time::Duration {
        std::time::Duration::from_millis(self.after_ms.unwrap_or_default())
    }

    /// How old events of it may be when it is taken.
    pub fn max_age_ms(&self) -> Option<u64> {
        self.before_ms.map(|before| before.saturating_add(self.after_ms.unwrap_or_default()))
    }
}

/// Where a snapshot goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SnapshotTarget {
    /// The directory, absolute, or the address of a relay daemon.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub path: PathBuf,
    /// Where the relay daemon takes data, where the address is only where it takes commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_url: Option<String>,
    /// The begin of its name.
    #[serde(default)]
    pub name: Option<String>,
    /// The most bytes.
    #[serde(default)]
    pub max_size: Option<u64>,
}

/// Of how many times that a trigger fires an action is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RatePolicy {
    /// Each of so many times.
    Every(u64),
    /// Once, at this time.
    OnceAfter(u64),
}

impl Default for RatePolicy {
    fn default() -> Self {
        Self::Every(1)
    }
}

impl RatePolicy {
    /// Whether the action is done at this of the times, which are counted from 1 on.
    pub fn allows(self, time: u64) -> bool {
        match self {
            Self::Every(interval) => interval != 0 && time.is_multiple_of(interval),
            Self::OnceAfter(threshold) => time == threshold,
        }
    }
}

/// What a trigger has found when it fired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Firing {
    /// The trigger.
    pub trigger: String,
    /// The user it belongs to.
    pub uid: u32,
    /// How often the trigger has fired, this time included.
    pub count: u64,
    /// When, in nanoseconds since 1970.
    pub time_ns: u64,
    /// What was found.
    pub found: Finding,
}

/// What satisfied a condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// An event.
    Event(Box<MatchedEvent>),
    /// Events in a second.
    EventRate {
        /// How many.
        events: u64,
    },
    /// What the fullest ring of the channel holds.
    BufferUsage {
        /// Bytes.
        bytes: u64,
        /// Those of the whole ring.
        capacity: u64,
    },
    /// What the session has stored.
    ConsumedSize {
        /// Bytes.
        bytes: u64,
    },
    /// A rotation.
    Rotation {
        /// The number of the chunk.
        id: u64,
        /// Where the archived chunk is, when it is there.
        #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
        path: Option<PathBuf>,
    },
    /// How much of the last ten seconds tasks have waited.
    Pressure {
        /// In hundredths of a percent.
        hundredths: u16,
    },
    /// The daemon was sent the signal.
    Signal,
    /// A unit of systemd has failed.
    UnitFailed {
        /// Its name.
        unit: String,
        /// How, in systemd's words (`exit-code`, `signal`, `oom-kill`, `timeout`); nothing of units that do
        /// not have it, or are not there any more.
        result: Option<String>,
        /// When, as systemd says it, in nanoseconds since 1970; nothing if it has failed while nobody has
        /// watched.
        since_ns: Option<u64>,
    },
}

/// An event that matched a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MatchedEvent {
    /// Its name.
    pub event: String,
    /// Its time by the kernel's monotonic clock, in nanoseconds.
    pub clock_ns: u64,
    /// The CPU.
    pub cpu: u32,
    /// The process of the thread that ran there.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The thread's name at that moment.
    pub comm: String,
    /// The values of what is captured, by what was asked for: numbers, texts and arrays; `null` where the
    /// event does not have it.
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, Object>))]
    pub captured: BTreeMap<String, serde_json::Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_policies_choose_times() {
        let times = |policy: RatePolicy| (1..=9).filter(|time| policy.allows(*time)).collect::<Vec<_>>();
        assert_eq!(times(RatePolicy::default()), (1..=9).collect::<Vec<_>>());
        assert_eq!(times(RatePolicy::Every(4)), [4, 8]);
        assert_eq!(times(RatePolicy::OnceAfter(3)), [3]);
        assert_eq!(times(RatePolicy::Every(0)), [0; 0]);
    }

    #[test]
    fn triggers_are_json() {
        let text = r#"{"condition":{"rotation_completed":{"session":"s"}},"actions":[{"do":"notify"},
            {"do":{"start_session":{"session":"t"}},"rate_policy":{"once_after":3}}]}"#;
        let new: NewTrigger = serde_json::from_str(text).unwrap();
        assert_eq!(new.actions[0], Action { kind: ActionKind::Notify, rate_policy: RatePolicy::Every(1) });
        assert_eq!(new.actions[1].rate_policy, RatePolicy::OnceAfter(3));
        assert!(serde_json::from_str::<NewTrigger>(r#"{"condition":"never","actions":[]}"#).is_err());
    }
}
