//! Triggers that are always there.

use serde::{Deserialize, Serialize};

use super::check::{Way, Wrong};
use crate::triggers;
use api::NewTrigger;
use api::trigger::{Action, Condition, Pace};
use stdx::quantity::Period;

/// A condition, and what is done when it is satisfied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct TriggerConfig {
    /// Whether it is there at all.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// When it fires.
    pub condition: Condition,
    /// What is done then, in this order.
    pub actions: Vec<Action>,
    /// After the actions were done, they are not done again for so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    pub cool_down: Option<Period>,
    /// How often they are done in a day (UTC) at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_day: Option<u64>,
}

fn yes() -> bool {
    true
}

impl TriggerConfig {
    /// The trigger, as a client would add it.
    pub fn trigger(&self, name: &str) -> NewTrigger {
        NewTrigger {
            name: Some(name.to_owned()),
            condition: self.condition.clone(),
            actions: self.actions.clone(),
            pace: Pace {
                cool_down_ms: self.cool_down.map(|time| time.nanoseconds() / 1_000_000),
                per_day: self.per_day,
            },
            configured: true,
        }
    }

    /// Looks for what contradicts itself.
    pub(super) fn check(&self, at: &Way, name: &str, wrong: &mut Vec<Wrong>) {
        if let Err(error) = triggers::check(0, &self.trigger(name)) {
            wrong.push((at.clone(), error.message));
        }
    }
}
