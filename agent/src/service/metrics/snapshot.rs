//! What metrics are made of, at a moment.

use std::collections::BTreeMap;

use super::{Process, ProgramTimes};
use crate::{
    control::{Trigger, Usage, api::ConfigurationState},
    service::archives::Counts,
    service::budget::BudgetState,
};

/// What metrics are made of. What is not known is told by no metric.
#[derive(Clone, Debug, Default)]
pub(in crate::service) struct Snapshot {
    /// What this host is called.
    pub(in crate::service) host: String,
    /// What the configuration says of it.
    pub(in crate::service) labels: BTreeMap<String, String>,
    /// What sessions have counted.
    pub(in crate::service) sessions: Vec<Usage>,
    /// For how long each session has stored nothing of what its rings hold, in seconds.
    pub(in crate::service) ages: BTreeMap<(u32, String), f64>,
    /// The triggers.
    pub(in crate::service) triggers: Vec<Trigger>,
    /// The configuration.
    pub(in crate::service) configuration: Option<ConfigurationState>,
    /// What became of archives.
    pub(in crate::service) archives: Option<Counts>,
    /// Whether the daemon is ready.
    pub(in crate::service) is_ready: Option<bool>,
    /// What the daemon takes.
    pub(in crate::service) process: Option<Process>,
    /// What its programs take.
    pub(in crate::service) programs: Option<ProgramTimes>,
    /// What it may take, if that is limited.
    pub(in crate::service) budget: Option<BudgetState>,
    /// Bytes that are free where its state is.
    pub(in crate::service) disk_free: Option<u64>,
}
