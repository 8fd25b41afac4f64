//! Saved sessions: LTTng's files of sessions (`session.xsd` of LTTng 2.13), with what LTTng does not have in
//! a namespace of our own.

#[cfg(any(test, fuzzing))]
mod fuzz;
pub(super) mod read;
pub(super) mod write;

#[cfg(any(test, fuzzing))]
pub use fuzz::{fuzz_saved, fuzz_session};

use api::requests::{NewChannel, Track};
use api::{Domain, EventRule, NewSession, Schedule, SnapshotOutput};

/// The namespace of what LTTng does not have.
const NAMESPACE: &str = "urn:tracer-agent:session:1";

/// A session of a file, as what is to be asked of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Saved {
    pub(super) session: NewSession,
    pub(super) channels: Vec<SavedChannel>,
    pub(super) trackers: Vec<(Domain, Track)>,
    pub(super) schedules: Vec<Schedule>,
    /// Those behind the first one, which a new session may have.
    pub(super) snapshot_outputs: Vec<SnapshotOutput>,
    pub(super) started: bool,
}

/// A channel of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SavedChannel {
    pub(super) domain: Domain,
    pub(super) new: NewChannel,
    pub(super) enabled: bool,
    pub(super) contexts: Vec<String>,
    pub(super) rules: Vec<EventRule>,
}
