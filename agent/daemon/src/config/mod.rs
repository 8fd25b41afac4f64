//! What the configuration of a daemon says: one TOML file, and those of a directory `conf.d` beside it.
//!
//! The files are read as one: tables are joined key by key, and of what two say the later one counts. What is
//! wrong in them is told with its place, all of it at once; a configuration with a mistake is none.
//!
//! | file | subject |
//! |---|---|
//! | `session` | what is recorded |
//! | `trigger` | conditions, and what is done then |
//! | `budget` | what all of it may take |
//! | `files` | which files there are, and whose |
//! | `source` | texts, and places in them |
//! | `merge` | several texts as one tree |
//! | `decode` | the tree as these types, and what it has that they do not |
//! | `check` | what contradicts itself |
//! | `reference` | their keys, for who writes one |

mod budget;
mod check;
mod decode;
mod files;
mod merge;
mod reference;
mod session;
mod source;
mod trigger;

use std::{collections::BTreeMap, net::SocketAddr, path::Path};

use serde::{Deserialize, Serialize};

pub use self::{
    budget::BudgetConfig,
    check::is_host_name,
    files::{ConfigError, ReadFiles},
    reference::{Key, Type, reference},
    session::{KeepConfig, RotateConfig, SessionConfig, SessionKind},
    source::Mistake,
    trigger::TriggerConfig,
};
use self::{merge::merged, source::Sources};
use store::{RetentionConfig, UploadConfig};

/// The name of the directory of more files, beside the first one.
pub const MORE: &str = "conf.d";

/// The configuration of a daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Config {
    /// What this host is called, in traces, names of archives and labels of metrics, where neither `--host`
    /// nor `$NODE_NAME` says it; the kernel's name of it where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// What is said of this host: labels of the metric `tracer_agent_host_info`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What is recorded, by name. The sessions are root's, and those that other clients see.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sessions: BTreeMap<String, SessionConfig>,
    /// Conditions and what is done when they are satisfied, by name. They are root's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub triggers: BTreeMap<String, TriggerConfig>,
    /// Where archives of sessions are sent: what rotations and stops have closed, and snapshots. Nowhere
    /// where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload: Option<UploadConfig>,
    /// How long archives of sessions stay on this machine, and how much room they may take.
    pub retention: RetentionConfig,
    /// Who may read metrics.
    pub metrics: MetricsConfig,
    /// When the daemon calls itself ready.
    pub health: HealthConfig,
    /// What it may take of the machine.
    pub budget: BudgetConfig,
}

/// Who may read metrics, beside the clients of the control socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct MetricsConfig {
    /// Where `/metrics`, `/live` and `/ready` are served over TCP (`127.0.0.1:9464`), without encryption, to
    /// whoever can connect; nowhere where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    pub listen: Option<SocketAddr>,
}

/// When the daemon calls itself ready: all configured sessions record, and none of the following is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct HealthConfig {
    /// Nothing of a session that stores its events was stored for so long, although its rings hold some.
    #[cfg_attr(test, schema(value_type = String))]
    pub max_data_age: stdx::quantity::Period,
    /// Of a million events of the last minute, more than so many were lost.
    pub max_lost_per_million: u32,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            max_data_age: stdx::quantity::Period(std::time::Duration::from_secs(30)),
            max_lost_per_million: 1000,
        }
    }
}

impl Config {
    /// Reads the file at `path` and those of `conf.d` beside it, in the order of their names, and checks
    /// them. Files and directories have to be this user's or root's, and nobody else's to change.
    ///
    /// # Errors
    /// There is no such file, or others may change one of them, or something is wrong in them: then all of
    /// it is told.
    pub fn read(path: &Path) -> Result<(Self, ReadFiles), ConfigError> {
        let files = ReadFiles::read(path)?;
        let config = Self::of(files.sources()).map_err(ConfigError::Mistakes)?;
        Ok((config, files))
    }

    /// The configuration that texts say together.
    fn of(sources: &Sources) -> Result<Self, Vec<Mistake>> {
        let (tree, mut mistakes) = merged(sources);
        // What a text that is no TOML says is not known.
        let is_toml = mistakes.is_empty();
        let decoded: Option<(Self, _)> = if is_toml { decode::decode(&tree, &mut mistakes) } else { None };
        if let Some((config, left_out)) = decoded {
            check::check(&config, &tree, &left_out, &mut mistakes);
            if mistakes.is_empty() {
                return Ok(config);
            }
        }
        mistakes.sort_by_key(|found| found.span.start);
        Err(mistakes.into_iter().map(|found| found.at(sources)).collect())
    }

    /// The same of one text, for tests and checks of examples.
    ///
    /// # Errors
    /// Something is wrong in it.
    pub fn of_text(text: &str) -> Result<Self, Vec<Mistake>> {
        let mut sources = Sources::default();
        sources.add("agent.toml".into(), text.to_owned());
        Self::of(&sources)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str) -> Vec<String> {
        Config::of_text(text).unwrap_err().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn nothing_is_a_configuration() {
        assert_eq!(Config::of_text("").unwrap(), Config::default());
    }

    #[test]
    fn all_mistakes_are_told_with_their_places() {
        let text = "\
hots = \"a\"

[metrics]
listen = \"nowhere\"

[sessions.one]
mode = \"file\"
rotate = { period = \"1x\" }

[[sessions.one.channels]]
ring_bytes = -1
rules = [
    { what = { event = \"sched\" } },
    { what = { events = \"sched:a:b\" } },
]

[sessions.two]
[[sessions.two.channels]]
rules = [{ what = { events = \"sched\" }, sample = 0 }]
";
        let told = mistakes(text);
        let says = [
            "agent.toml:1:1: unknown field `hots`, expected one of `host`,",
            "agent.toml:4:10: invalid socket address syntax",
            "agent.toml:7:8: unknown variant `file`, expected",
            "agent.toml:8:21: unknown unit \"x\"",
            "agent.toml:11:14: invalid value: integer `-1`, expected u64",
            "agent.toml:13:16: unknown variant `event`",
            "agent.toml:14:14: \"sched:a:b\"",
            "agent.toml:19:41: sessions.two.channels[0].rules[0].sample: ",
        ];
        for says in says {
            assert!(told.iter().any(|one| one.starts_with(says)), "{says} is not in {told:#?}");
        }
        assert_eq!(told.len(), says.len(), "{told:#?}");
    }

    #[test]
    fn what_lacks_a_mistake_is_no_other_one() {
        let told = mistakes("[triggers.a]\nactions = []\ncondition = 7\n\n[triggers.b]\nactions = []\n");
        let says = ["agent.toml:3:13: ", "agent.toml:5:1: missing field `condition`"];
        assert_eq!(told.len(), says.len(), "{told:#?}");
        assert!(told.iter().zip(says).all(|(one, says)| one.starts_with(says)), "{told:#?}");
    }

    #[test]
    fn what_is_not_toml_is_told() {
        let told = mistakes("host = \n[sessions.a\nlabels = { a = \"b\" }\nlabels = 3\n");
        assert!(told.iter().any(|one| one.starts_with("agent.toml:1:8: ")), "{told:#?}");
        assert!(told.iter().any(|one| one.starts_with("agent.toml:2:")), "{told:#?}");
    }

    #[test]
    fn what_is_wrong_with_uploads_is_told_with_its_place_and_without_secrets() {
        let text =
            "[upload]\nurl = \"s3://SWORDFISH:SWORDFISH@bucket\"\n\n[retention]\nmin_free_percent = 100\n";
        let told = mistakes(text);
        let says = [
            "agent.toml:2:1: upload.url: credentials do not belong",
            "agent.toml:5:1: retention.min_free_percent: ",
        ];
        assert!(
            told.len() == 2 && told.iter().zip(says).all(|(one, says)| one.starts_with(says)),
            "{told:#?}"
        );
        assert!(!told[0].contains("SWORDFISH"), "{told:#?}");
        let told = mistakes("[upload]\nurl = \"s3://bucket\"\ncredentials_file = \"keys\"\n");
        assert!(
            told.len() == 1 && told[0].starts_with("agent.toml:3:1: upload.credentials_file: "),
            "{told:#?}"
        );
        let told = mistakes("[upload]\nsite = \"lab\"\nsecret_access_key = \"SWORDFISH\"\n");
        assert!(told.len() == 1 && told[0].starts_with("agent.toml:3:1: unknown field"), "{told:#?}");
        assert!(!told[0].contains("SWORDFISH"), "{told:#?}");
    }

    #[test]
    fn later_texts_add_and_replace() {
        let mut sources = Sources::default();
        sources.add(
            "a".into(),
            "host = \"x\"\n[sessions.s]\nenabled = true\n[[sessions.s.channels]]\nrules = [{what = {events = \"sched\"}}]\n"
                .to_owned(),
        );
        sources.add("b".into(), "host = \"y\"\n[sessions.s]\nenabled = false\n".to_owned());
        let config = Config::of(&sources).unwrap();
        assert_eq!(config.host.as_deref(), Some("y"));
        let session = &config.sessions["s"];
        assert!(!session.enabled && session.channels.len() == 1, "{session:?}");
        sources.add("c".into(), "[sessions]\ns = 3\n".to_owned());
        let told = Config::of(&sources).unwrap_err();
        assert_eq!((told.len(), told[0].path.to_str(), told[0].line), (1, Some("c"), 2), "{told:?}");
    }
}
