//! Maps: events that are counted in the kernel instead of being recorded.

use serde::{Deserialize, Serialize};

use super::{Field, Problem, RuleSpec, What, check::why, is_default};

/// Fields that keys are made of at most.
pub const KEYS_MAX: usize = 3;
/// Buckets of equal width at most, beside those for smaller and larger values.
pub const STEPS_MAX: u64 = 1000;
/// The most maps of a recording. Each has programs and memory of its own.
pub const MAPS_MAX: usize = 64;
/// Entries of a map of numbers where nothing else is said.
pub const MAX_KEYS: u32 = 4096;
/// The same of histograms, which take more memory.
pub const MAX_KEYS_OF_HISTOGRAMS: u32 = 512;
/// The most entries of a map.
const MAX_KEYS_MAX: u32 = 1 << 20;
/// The longest name.
const NAME_MAX: usize = 4096;

/// Events that are counted, or times between two events, told apart by fields.
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapSpec {
    /// What it is called where its entries are shown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The event that is counted: one of the kernel, or of a probe. With `from`, the one that times end with.
    pub event: RuleSpec,
    /// The event that times begin with, where times are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<RuleSpec>,
    /// What pairs the two events of a time: fields of both that have the same value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pair: Vec<PairSpec>,
    /// Fields of `event`, contexts (`$pid`), or arithmetic with them, that entries are told apart by. Without
    /// any there is one entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<String>,
    /// What is kept of each entry.
    #[serde(default, skip_serializing_if = "is_default")]
    pub function: FunctionSpec,
    /// The field of `event` that `function` is about; nothing for `count`, and for times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// How many entries there can be; 4096 where nothing is said, and 512 of histograms. Events beyond them
    /// are counted together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_keys: Option<u32>,
}

/// Fields that have the same value in both events of a time.
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairSpec {
    /// That of the first event.
    pub from: String,
    /// That of the second.
    pub to: String,
}

/// What a map keeps of each of its entries.
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FunctionSpec {
    /// How many events.
    #[default]
    Count,
    /// And their sum.
    Sum,
    /// And the smallest.
    Min,
    /// And the largest.
    Max,
    /// And the average.
    Avg,
    /// All of these.
    Stats,
    /// How many by power of two.
    Hist,
    /// How many by ranges of equal width.
    Lhist {
        /// Where the first range begins.
        min: i64,
        /// Where the last one ends.
        max: i64,
        /// How wide each is.
        step: u64,
    },
}

impl FunctionSpec {
    /// Whether it has buckets.
    pub fn is_histogram(self) -> bool {
        matches!(self, Self::Hist | Self::Lhist { .. })
    }
}

impl MapSpec {
    /// How many entries there can be.
    pub fn keys(&self) -> u32 {
        let default = if self.function.is_histogram() { MAX_KEYS_OF_HISTOGRAMS } else { MAX_KEYS };
        self.max_keys.unwrap_or(default)
    }

    pub(super) fn check(&self, map: usize) -> Result<(), Problem> {
        let problem =
            |name, why| Err(Problem { at: Field::OfMap { map, text: self.name.clone(), name }, why });
        if self.name.len() > NAME_MAX || self.name.chars().any(char::is_control) {
            return problem("name", "it has a control character, or more than 4096 bytes");
        }
        for (name, rule) in [("event", Some(&self.event)), ("from", self.from.as_ref())] {
            let Some(rule) = rule else { continue };
            if !may_be_counted(&rule.what) {
                return problem(
                    name,
                    "a map counts an event of the kernel, or a kprobe, uprobe or USDT marker",
                );
            }
            if rule.optional || !rule.contexts.is_empty() {
                return problem(
                    name,
                    "an event of a map is not optional, and has no contexts; keys can be contexts",
                );
            }
            if rule.sample == Some(0) || rule.rate == Some(0) {
                return problem(name, "a sample or a rate of 0 would count nothing; use 1 or more");
            }
            if rule.has_rate_by_only() {
                return problem(name, why::NO_RATE);
            }
        }
        if self.from.is_some() && self.pair.is_empty() {
            return problem("pair", "nothing says which events belong together");
        }
        if self.from.is_none() && !self.pair.is_empty() {
            return problem("pair", "there is no event that times begin with");
        }
        if self.by.len() > KEYS_MAX {
            return problem("by", "there are more than three keys");
        }
        match (self.function, &self.field, &self.from) {
            (_, Some(_), Some(_)) => return problem("field", "the value is the time"),
            (FunctionSpec::Count, Some(_), None) => {
                return problem("field", "`count` counts events; use `sum`, `stats` or `hist`");
            }
            (FunctionSpec::Count, ..) | (_, Some(_), None) | (_, None, Some(_)) => {}
            (_, None, None) => return problem("field", "nothing says which field the function is about"),
        }
        if let FunctionSpec::Lhist { min, max, step } = self.function {
            let width = max.checked_sub(min).and_then(|width| u64::try_from(width).ok()).unwrap_or(0);
            if step == 0 || width == 0 || width.div_ceil(step) > STEPS_MAX {
                return problem("function", "`lhist` has 1 to 1000 ranges from `min` up to `max`");
            }
            if i64::try_from(step).is_err() {
                return problem("function", "the ranges of `lhist` are too wide");
            }
        }
        if !(1..=MAX_KEYS_MAX).contains(&self.keys()) {
            return problem("max_keys", "a map has 1 to 1048576 entries");
        }
        Ok(())
    }
}

fn may_be_counted(what: &What) -> bool {
    match what {
        What::Events(_)
        | What::Kprobe(_)
        | What::Kretprobe(_)
        | What::Uprobe(_)
        | What::Uretprobe(_)
        | What::Usdt(_) => true,
        What::Exclude(_) | What::Fentry(_) | What::Fexit(_) | What::Function(_) | What::FunctionGraph(_) => {
            false
        }
    }
}
