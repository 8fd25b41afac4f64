//! The requests. Bodies and answers are JSON; an answer that is not `2xx` is a
//! [`ControlError`](super::ControlError).
//!
//! docs/openapi.json describes all of them. Names in paths are percent-encoded. Sessions and triggers are
//! those of the user who asks; root adds `?uid=N` for another user's, and sees all in the lists.

use std::fmt;
use std::path::PathBuf;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::{ChannelAttributes, EventRule, RotationState, track::Attribute, trigger::Firing};

/// The daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Daemon {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Who asks, as the daemon sees it.
    pub uid: u32,
}

/// A snapshot that is to be taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct TakeSnapshot {
    /// The begin of its name, instead of the output's.
    pub name: Option<String>,
    /// A directory instead of the session's outputs, absolute.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub path: Option<PathBuf>,
    /// The most bytes of it.
    pub max_size: Option<u64>,
    /// Milliseconds: older events are left out, as far as whole pages are older.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age_ms: Option<u64>,
}

/// The configuration of a daemon, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ConfigurationState {
    /// The first of its files.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub path: PathBuf,
    /// When that which is in force was read, in seconds since 1970.
    pub read_at: u64,
    /// How often it was read again since the daemon was started.
    pub reloads: u64,
    /// How often it was refused, and the one before stayed in force.
    pub refused: u64,
    /// What the last reading has led to.
    pub last: Reload,
}

/// Whether a daemon is alive, and does what its configuration says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Health {
    /// Its threads answer. If not, it helps to start it again.
    pub live: bool,
    /// All configured sessions record, their data are younger than their bound, and losses are below theirs.
    pub ready: bool,
    /// Why it is not ready.
    pub reasons: Vec<String>,
}

/// Whether a daemon is alive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Liveness {
    /// Its threads answer. If not, it helps to start it again.
    pub live: bool,
    /// Why it is not alive.
    pub reasons: Vec<String>,
}

/// What reading a configuration has led to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Reload {
    /// What is wrong in it, with the places. If there is something, nothing else was done.
    pub mistakes: Vec<String>,
    /// What was added, changed and removed.
    pub changes: Vec<String>,
    /// What of the configuration in force could not be done, and why. It is tried again each 30 seconds.
    pub failures: Vec<String>,
}

/// A channel that is to be created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewChannel {
    /// Its name.
    pub name: String,
    /// What it is like.
    #[serde(default)]
    pub attributes: ChannelAttributes,
    /// Its first rules. Where one of them is refused, there is no channel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<EventRule>,
}

/// Rules for a channel: one, or a list. All of a list are added, or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum NewRules {
    /// One.
    One(Box<EventRule>),
    /// Several.
    All(Vec<EventRule>),
}

impl NewRules {
    /// All of them.
    pub fn into_all(self) -> Vec<EventRule> {
        match self {
            Self::One(rule) => vec![*rule],
            Self::All(rules) => rules,
        }
    }
}

impl From<Vec<EventRule>> for NewRules {
    fn from(mut rules: Vec<EventRule>) -> Self {
        match (rules.pop(), rules.is_empty()) {
            (Some(only), true) => Self::One(Box::new(only)),
            (last, _) => {
                rules.extend(last);
                Self::All(rules)
            }
        }
    }
}

impl<'de> Deserialize<'de> for NewRules {
    /// An untagged enum would not report which field of a rule is wrong.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrAll;

        impl<'de> Visitor<'de> for OneOrAll {
            type Value = NewRules;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event rule, or a list of them")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<NewRules, A::Error> {
                EventRule::deserialize(MapAccessDeserializer::new(map))
                    .map(|rule| NewRules::One(Box::new(rule)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<NewRules, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(NewRules::All)
            }
        }

        deserializer.deserialize_any(OneOrAll)
    }
}

/// Switches something on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Enable {
    /// On.
    pub enabled: bool,
}

/// Switches rules on or off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct EnableRules {
    /// The name that they have, literally; `None` for all of the channel.
    #[serde(default)]
    pub name: Option<String>,
    /// Only those of this kind: `tracepoint`, `syscall`, `kprobe`, `function` or `user_probe`.
    #[serde(default)]
    pub kind: Option<String>,
    /// On.
    pub enabled: bool,
}

/// How many rules were switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RulesChanged {
    /// Their number.
    pub rules: u32,
}

/// Contexts that are added to a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewContexts {
    /// As `lttng add-context --list` names them.
    pub contexts: Vec<String>,
}

/// Changes what is recorded of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Track {
    /// The attribute.
    pub attribute: Attribute,
    /// Values, or all.
    pub values: super::Tracked,
    /// Whether they are added; removed otherwise.
    pub add: bool,
}

/// What happened in the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum Notification {
    /// A rotation.
    Rotation {
        /// The session.
        session: String,
        /// The number of the chunk.
        id: u64,
        /// How far it is.
        state: RotationState,
        /// Where the archived chunk is.
        #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
        path: Option<PathBuf>,
    },
    /// A session was started or stopped, by a request or because it cannot go on.
    Activity {
        /// The session.
        session: String,
        /// Whether it is started.
        active: bool,
        /// Why, if nobody asked for it.
        reason: Option<String>,
    },
    /// Something is to be known of what a session records: events that are left out, and why.
    Note {
        /// The session.
        session: String,
        /// What.
        text: String,
    },
    /// Events were lost since the notification before.
    Lost {
        /// The session.
        session: String,
        /// The channel.
        channel: String,
        /// How many since the session was created.
        discarded: u64,
    },
    /// A trigger with the action `notify` has fired.
    Trigger(Firing),
    /// The event rule of a trigger matches more often than the daemon can be told.
    TriggerMissed {
        /// The trigger.
        trigger: String,
        /// How many matches nothing was told of since the trigger was added.
        missed: u64,
    },
    /// So many notifications were left out here, because this client did not read them.
    LeftOut {
        /// How many.
        count: u64,
    },
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn rules_are_one_or_a_list() {
        let one = r#"{"name":"a","instrumentation":"tracepoint"}"#;
        let rules: NewRules = serde_json::from_str(one).unwrap();
        assert!(matches!(&rules, NewRules::One(rule) if rule.name == "a"), "{rules:?}");
        let all = rules.into_all();
        assert_eq!(NewRules::from(all.clone()), NewRules::One(Box::new(all[0].clone())));
        let list: NewRules = serde_json::from_str(&format!("[{one},{one}]")).unwrap();
        assert_eq!(list, NewRules::from(vec![all[0].clone(), all[0].clone()]));
        let again: NewRules = serde_json::from_str(&serde_json::to_string(&list).unwrap()).unwrap();
        assert_eq!(again, list);
        for wrong in [r#"{"name":"a"}"#, r#"[{"name":"a","instrumentation":"tracepoint","no":1}]"#, "7"] {
            assert!(serde_json::from_str::<NewRules>(wrong).is_err(), "{wrong}");
        }
    }
}
