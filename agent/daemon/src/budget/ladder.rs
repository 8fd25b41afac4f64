//! What is done less, step by step.

use std::fmt;

use super::marker;
use crate::config::{Config, SessionConfig, SessionKind};
use api::Format;
use spec::{ChannelSpec, What};
use tracedat::Compression;

/// One of the things that are done less while more is taken than the budget allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// What is stored is compressed with next to no effort.
    Compression,
    /// One of so many events is recorded of those that were.
    Sample(u32),
    /// The events of a rule are not recorded.
    Drop(String),
    /// Recorded is a part of each second only, as much as the budget allows.
    Part,
    /// Nothing is recorded.
    Stop,
}

impl Step {
    /// Its name, as metrics have it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Compression => "compression",
            Self::Sample(_) => "sample",
            Self::Drop(_) => "drop",
            Self::Part => "part",
            Self::Stop => "stop",
        }
    }

    /// Whether other rules are recorded for it.
    fn changes_rules(&self) -> bool {
        matches!(self, Self::Sample(_) | Self::Drop(_))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compression => f.write_str("compress with next to no effort"),
            Self::Sample(of) => write!(f, "record one of {of} events"),
            Self::Drop(name) => write!(f, "do not record {name}"),
            Self::Part => f.write_str("record for a part of each second"),
            Self::Stop => f.write_str("record nothing"),
        }
    }
}

/// The names of the sessions that do less.
pub(super) fn throttled(config: &Config) -> impl Iterator<Item = &str> {
    may_do_less(config).map(|(name, _)| name.as_str())
}

fn may_do_less(config: &Config) -> impl Iterator<Item = (&String, &SessionConfig)> {
    config.sessions.iter().filter(|(_, session)| session.enabled && session.throttled)
}

/// All steps of a configuration, in the order in which they are taken.
pub(crate) fn ladder(config: &Config) -> Vec<Step> {
    /// By how much sampling becomes wider from one step to the next.
    const WIDER: u32 = 10;
    let compresses = |(_, session): (&String, &SessionConfig)| {
        session.mode == SessionKind::Files
            && session.format == Format::TraceDat
            && session.compression != Compression::None
    };
    let mut steps = Vec::new();
    steps.extend(may_do_less(config).any(compresses).then_some(Step::Compression));
    let mut of = WIDER;
    while of <= config.budget.widest_sample {
        steps.push(Step::Sample(of));
        let Some(wider) = of.checked_mul(WIDER) else { break };
        of = wider;
    }
    steps.extend(config.budget.drop_first.iter().cloned().map(Step::Drop));
    steps.extend([Step::Part, Step::Stop]);
    steps
}

/// The steps that change rules, of some.
pub(super) fn of_rules(steps: &[Step]) -> Vec<Step> {
    steps.iter().filter(|step| step.changes_rules()).cloned().collect()
}

/// What is recorded of a configuration after these steps. Where there is a budget of CPU time, sessions that
/// may be throttled have the event that says so.
pub(crate) fn reduced(config: &Config, steps: &[Step]) -> Config {
    let mut config = config.clone();
    let is_limited = config.budget.cpu.is_some();
    let sample = steps.iter().filter_map(|step| match step {
        Step::Sample(of) => Some(*of),
        _ => None,
    });
    let sample = sample.max().unwrap_or(1);
    let is_dropped = |what: &What| {
        let text = what.text();
        steps.iter().any(|step| matches!(step, Step::Drop(name) if *name == text))
    };
    for session in config.sessions.values_mut().filter(|session| session.throttled) {
        for channel in &mut session.channels {
            drop_rules(channel, is_dropped);
        }
        if sample > 1 {
            sample_more(session, sample);
        }
        if let Some(first) = session.channels.first_mut().filter(|_| is_limited) {
            first.rules.push(marker::rule());
        }
    }
    config
}

/// A channel has one rule at least that is about events.
fn drop_rules(channel: &mut ChannelSpec, is_dropped: impl Fn(&What) -> bool) {
    let selects = |what: &What| !matches!(what, What::Exclude(_));
    let stays = |what: &What| selects(what) && !is_dropped(what);
    if channel.rules.iter().any(|rule| stays(&rule.what)) {
        channel.rules.retain(|rule| !is_dropped(&rule.what));
    }
}

/// Lets each rule of a session record one of `of` events of those that it did; those of which not all events
/// can be left out stay as they are.
fn sample_more(session: &mut SessionConfig, of: u32) {
    for channel in 0..session.channels.len() {
        for rule in 0..session.channels[channel].rules.len() {
            let at = |session: &mut SessionConfig, sample| {
                std::mem::replace(&mut session.channels[channel].rules[rule].sample, sample)
            };
            let before = at(session, None);
            let wider = before.unwrap_or(1).saturating_mul(of);
            at(session, Some(wider));
            if session.spec(1).check().is_err() {
                at(session, before);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
[budget]
cpu = "2%"
widest_sample = 1000
drop_first = ["irq"]

[sessions.a]
[[sessions.a.channels]]
rules = [{ what = { events = "sched" }, sample = 3 }, { what = { events = "irq" } }, { what = { exclude = "sched:sched_stat_*" } }]
[[sessions.a.channels]]
name = "only"
rules = [{ what = { events = "irq" } }]

[sessions.b]
throttled = false
[[sessions.b.channels]]
rules = [{ what = { events = "irq" } }]
"#;

    #[test]
    fn steps_are_taken_in_their_order() {
        let config = Config::of_text(TEXT).unwrap();
        let names: Vec<String> = ladder(&config).iter().map(ToString::to_string).collect();
        let expected = [
            "compress with next to no effort",
            "record one of 10 events",
            "record one of 100 events",
            "record one of 1000 events",
            "do not record irq",
            "record for a part of each second",
            "record nothing",
        ];
        assert_eq!(names, expected);
        let mut plain = config;
        plain.budget.widest_sample = 1;
        plain.budget.drop_first.clear();
        plain.sessions.get_mut("a").unwrap().compression = Compression::None;
        assert_eq!(ladder(&plain), [Step::Part, Step::Stop]);
    }

    #[test]
    fn less_is_recorded_after_steps() {
        let config = Config::of_text(TEXT).unwrap();
        let mut unlimited = config.clone();
        unlimited.budget.cpu = None;
        assert_eq!(reduced(&unlimited, &[Step::Compression, Step::Part]), unlimited);
        let marked = reduced(&config, &[]);
        assert_eq!(marked.sessions["a"].channels[0].rules.last(), Some(&marker::rule()));
        let rules = |config: &Config, channel: usize| {
            let rules = &config.sessions["a"].channels[channel].rules;
            let rules = rules.iter().filter(|rule| **rule != marker::rule());
            rules.map(|rule| (rule.what.text(), rule.sample)).collect::<Vec<_>>()
        };
        let text = str::to_owned;
        let sampled = reduced(&config, &[Step::Sample(10), Step::Sample(100)]);
        assert_eq!(
            rules(&sampled, 0),
            [(text("sched"), Some(300)), (text("irq"), Some(100)), (text("sched:sched_stat_*"), None)]
        );
        let dropped = reduced(&config, &[Step::Drop("irq".into())]);
        assert_eq!(rules(&dropped, 0), [(text("sched"), Some(3)), (text("sched:sched_stat_*"), None)]);
        assert_eq!(rules(&dropped, 1), [(text("irq"), None)], "the last rule of a channel");
        assert_eq!(dropped.sessions["b"], config.sessions["b"], "it is not throttled");
    }
}
