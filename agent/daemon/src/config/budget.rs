//! What the daemon and what it records may take of the machine.

use serde::{Deserialize, Serialize};

use super::{
    Config,
    check::{Way, Wrong},
};
use stdx::quantity::{Bytes, Share};

/// The least share of a CPU that can be kept to: what the daemon itself takes when it does nothing is near
/// it.
const CPU_MIN: Share = Share { millionths: 5_000 };

/// What the daemon and what it records may take of the machine. Over it, it does less, step by step: what
/// it stores is compressed with next to no effort, one of 10 events is recorded of those that were, then one
/// of 100, the events of `drop_first` are not recorded any more, then it records for a part of each second
/// only, and at last it stops. When it takes less again, it comes back, slowly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct BudgetConfig {
    /// CPU time of the daemon and of its programs in the kernel together: `2%` is two hundredths of one CPU.
    /// 0.5 % or more; without a limit where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    pub cpu: Option<Share>,
    /// Memory of the rings of all sessions of the configuration. Those that would exceed it, in the order of
    /// their names, are not recorded. Half of what the control group of the daemon may take, where it has a
    /// limit and nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    pub memory: Option<Bytes>,
    /// The widest sampling: one of so many events, beside the sampling that rules have; 1 for none.
    pub widest_sample: u32,
    /// What is dropped first, the first one first: the events of rules as rules name them (`sched`,
    /// `irq:irq_handler_entry`). The last rule of a channel stays.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drop_first: Vec<String>,
}

impl Default for BudgetConfig {
    fn default() -> Self {
        Self { cpu: None, memory: None, widest_sample: 100, drop_first: Vec::new() }
    }
}

/// Looks for what contradicts itself.
pub(super) fn check(config: &Config, wrong: &mut Vec<Wrong>) {
    let at = |key: &str| Way::of(["budget"]).key(key);
    let budget = &config.budget;
    if budget.cpu.is_some_and(|cpu| cpu < CPU_MIN) {
        wrong.push((
            at("cpu"),
            format!("the daemon takes about that much to look at itself: {CPU_MIN} or more"),
        ));
    }
    if budget.widest_sample == 0 {
        wrong.push((at("widest_sample"), "one of 0 is none; 1 is for no sampling".to_owned()));
    }
    let channels = || config.sessions.values().flat_map(|session| &session.channels);
    for (number, name) in budget.drop_first.iter().enumerate() {
        if !channels().flat_map(|channel| &channel.rules).any(|rule| rule.what.text() == *name) {
            wrong.push((at("drop_first").index(number), format!("no rule of a session is about {name:?}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_about_what_is_recorded() {
        let text = "[budget]\ncpu = \"2%\"\nmemory = \"64M\"\ndrop_first = [\"irq\"]\n\
                    [[sessions.s.channels]]\nrules = [{ what = { events = \"sched\" } }, { what = { events = \"irq\" } }]\n";
        let budget = Config::of_text(text).unwrap().budget;
        assert_eq!(budget.cpu.unwrap().millionths, 20_000);
        let wrong = text.replace("[\"irq\"]", "[\"irq\", \"block\"]").replace("2%", "0.1%");
        let told: Vec<_> = Config::of_text(&wrong).unwrap_err().iter().map(ToString::to_string).collect();
        assert!(told[0].starts_with("agent.toml:2:1: budget.cpu: "), "{told:#?}");
        assert!(told[1].starts_with("agent.toml:4:22: budget.drop_first[1]: no rule"), "{told:#?}");
        assert_eq!(told.len(), 2, "{told:#?}");
    }
}
