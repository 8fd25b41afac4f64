//! Maps: what is counted in the kernel, and what has been.

use serde::{Deserialize, Serialize};

pub use crate::counted::{Bucket, CountedMap, KeyPart, MapEntry, MapFunction, MapOwner, Number};

/// What a map counts, as `record --count` and `--time` take it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Question {
    /// Events: `[FUNCTION of] EVENT[: FILTER] [by KEY,...]`.
    Count(String),
    /// Times between two events: `[FUNCTION of] EVENT[: FILTER] -> EVENT[: FILTER] key FIELD[=FIELD],... [by
    /// KEY,...]`.
    Time(String),
}

impl Question {
    /// Its text.
    pub fn text(&self) -> &str {
        match self {
            Self::Count(text) | Self::Time(text) => text,
        }
    }
}

/// A map that is to be added to a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewMap {
    /// Its name, unique in its session.
    pub name: String,
    /// What it counts.
    pub question: Question,
    /// How many different keys there can be; 4096 where nothing is said, and 512 of histograms.
    #[serde(default)]
    pub max_keys: Option<u32>,
}
