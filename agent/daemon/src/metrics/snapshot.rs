//! What metrics are made of, at a moment.

use std::collections::BTreeMap;

use super::{Process, ProgramTimes};
use crate::archives::Counts;
use crate::budget::BudgetState;
use api::requests::ConfigurationState;
use api::{Trigger, Usage};

/// What metrics are made of. What is not known is told by no metric.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// What this host is called.
    pub(crate) host: String,
    /// What the configuration says of it.
    pub(crate) labels: BTreeMap<String, String>,
    /// What sessions have counted.
    pub(crate) sessions: Vec<Usage>,
    /// For how long each session has stored nothing of what its rings hold, in seconds.
    pub(crate) ages: BTreeMap<(u32, String), f64>,
    /// The triggers.
    pub(crate) triggers: Vec<Trigger>,
    /// The configuration.
    pub(crate) configuration: Option<ConfigurationState>,
    /// What became of archives.
    pub(crate) archives: Option<Counts>,
    /// Whether the daemon is ready.
    pub(crate) is_ready: Option<bool>,
    /// What the daemon takes.
    pub(crate) process: Option<Process>,
    /// What its programs take.
    pub(crate) programs: Option<ProgramTimes>,
    /// What it may take, if that is limited.
    pub(crate) budget: Option<BudgetState>,
    /// Bytes that are free where its state is.
    pub(crate) disk_free: Option<u64>,
}
