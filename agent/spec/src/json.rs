//! A specification as JSON.

use serde::Deserialize;

use super::{Problem, RecordingSpec, VERSION};

/// The longest text that is read as one: far more than anybody writes, and little memory.
pub const TEXT_MAX: usize = 16 << 20;

/// Why a text is no specification.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// It is longer than a specification can be.
    #[error("it has {0} bytes, and a specification has at most {TEXT_MAX}")]
    Long(usize),
    /// It was written for types that are not known yet.
    #[error(
        "it is of version {0}, and this tracer-agent understands versions up to {VERSION}; use a newer tracer-agent"
    )]
    Newer(u64),
    /// It is no JSON, or not of this type.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// Nothing can be recorded by it.
    #[error(transparent)]
    Problem(#[from] Problem),
}

/// What every version has.
#[derive(Deserialize)]
struct Version {
    version: u64,
}

impl RecordingSpec {
    /// Reads a specification, and [checks](Self::check) it.
    ///
    /// # Errors
    /// It is not JSON, has a field that is not known, is of a newer version, or contradicts itself.
    pub fn from_json(text: &[u8]) -> Result<Self, SpecError> {
        let spec = Self::parse(text)?;
        spec.check()?;
        Ok(spec)
    }

    /// Reads a specification that is changed before it is checked.
    ///
    /// # Errors
    /// As [`RecordingSpec::from_json`], but for contradictions.
    pub fn parse(text: &[u8]) -> Result<Self, SpecError> {
        if text.len() > TEXT_MAX {
            return Err(SpecError::Long(text.len()));
        }
        // First, because a newer version may have fields that are not known.
        let Version { version } = serde_json::from_slice(text)?;
        if version > VERSION.into() {
            return Err(SpecError::Newer(version));
        }
        Ok(serde_json::from_slice(text)?)
    }

    /// Writes it, with every field that has a value and with line breaks.
    ///
    /// # Errors
    /// The file's path is not UTF-8.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ChannelSpec, FileSpec, GraphSpec, RateBy, RuleSpec, ScopeSpec, What};
    use super::*;

    fn refusal(text: &str) -> String {
        RecordingSpec::from_json(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_written_is_read() {
        let rule = |what| RuleSpec::new(what);
        let text = || "vfs_read".to_owned();
        let graph = GraphSpec { roots: vec![text()], max_depth: Some(3), ..GraphSpec::default() };
        let mut spec = RecordingSpec {
            channels: vec![ChannelSpec {
                rules: vec![
                    RuleSpec {
                        filter: Some("prev_pid == 1".to_owned()),
                        sample: Some(100),
                        rate: Some(5),
                        rate_by: RateBy::Cgroup,
                        contexts: ["uid", "perf:cpu:cycles"].map(|name| name.parse().unwrap()).into(),
                        ..rule(What::Events("sched:*".parse().unwrap()))
                    },
                    RuleSpec {
                        optional: true,
                        ..rule(What::Events("lock:contention_begin".parse().unwrap()))
                    },
                    rule(What::Exclude("sched_switch".parse().unwrap())),
                    rule(What::Kprobe(text())),
                    rule(What::Kretprobe(text())),
                    rule(What::Fentry(text())),
                    rule(What::Fexit(text())),
                    rule(What::Function(text())),
                    rule(What::FunctionGraph(graph)),
                    rule(What::Uprobe(text())),
                    rule(What::Uretprobe(text())),
                    rule(What::Usdt(text())),
                ],
                kernel_stacks: vec!["all".parse().unwrap()],
                strings: "off".parse().unwrap(),
                lane: "generic".parse().unwrap(),
                poll_ns: Some(1),
                ..ChannelSpec::default()
            }],
            scope: ScopeSpec { cpus: Some("0-3,8".parse().unwrap()), pids: vec![1], ..ScopeSpec::default() },
            file: FileSpec { compression: "zstd:7".parse().unwrap(), ..FileSpec::default() },
            ..RecordingSpec::default()
        };
        spec.channels.push(ChannelSpec {
            name: "more".to_owned(),
            rules: vec![rule(What::Usdt(text()))],
            contexts: ["vpid", "callstack-kernel"].map(|name| name.parse().unwrap()).into(),
            ..ChannelSpec::default()
        });
        let text = spec.to_json().unwrap();
        assert_eq!(RecordingSpec::from_json(text.as_bytes()).unwrap(), spec, "{text}");
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let rules = |rule: &str| format!(r#"{{"version": 1, "channels": [{{"rules": [{rule}]}}]}}"#);
        for (text, says) in [
            ("", "EOF while parsing"),
            ("{}", "missing field `version`"),
            (r#"{"version": 2, "channels": [], "news": 1}"#, "of version 2"),
            (r#"{"version": 1, "channels": [], "news": 1}"#, "unknown field `news`"),
            (r#"{"version": 1, "channels": [{"ring": 1}]}"#, "unknown field `ring`"),
            (&rules(r#"{"what": {"events": "a:b:c"}}"#), "more than one separator"),
            (&rules(r#"{"what": {"event": "sched"}}"#), "unknown variant `event`"),
            (&rules(r#"{"what": {"events": "sched"}, "contexts": ["x"]}"#), "there is no context \"x\""),
            (&rules(r#"{"what": {"events": "sched"}, "sample": 0}"#), "rules[0]"),
            (
                &rules(r#"{"what": {"events": "sched"}, "rate_by": "cgroup"}"#),
                "rules[0].rate_by: it says who",
            ),
            (&rules(r#"{"what": {"events": "sched"}, "rate": 1, "rate_by": "user"}"#), "variant `user`"),
            (
                r#"{"version": 1, "channels": [], "maps": [{"event": {"what": {"events": "irq"}, "rate_by": "cgroup"}}]}"#,
                "maps[0].event: it says who",
            ),
            (
                r#"{"version": 1, "channels": [{"rules": [{"what": {"function": "x"}}], "contexts": ["pid"]}]}"#,
                "channels[0].contexts",
            ),
        ] {
            let refusal = refusal(text);
            assert!(refusal.contains(says), "{text}: {refusal}");
        }
    }
}
