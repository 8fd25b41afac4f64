//! Which processes a session records (lttng-track(1)).

use serde::{Deserialize, Serialize};

/// An attribute of processes that sessions can choose by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Attribute {
    /// The process.
    Pid,
    /// The process, by the id that its own pid namespace gives it.
    Vpid,
    /// The user.
    Uid,
    /// The user, by the id that its own user namespace gives it.
    Vuid,
    /// The group.
    Gid,
    /// The group, by the id that its own user namespace gives it.
    Vgid,
    /// The control group of version 2, with those in it: a path.
    Cgroup,
    /// The thread's name, with wildcards.
    Comm,
}

/// What is recorded of an attribute. The sets of all attributes are ANDed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Tracked {
    /// Whatever its value is.
    #[default]
    All,
    /// These values, as they were given (`1000`, `root`); nothing where there are none.
    Only(Vec<String>),
}

/// An attribute and what is recorded of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Tracker {
    /// The attribute.
    pub attribute: Attribute,
    /// What is recorded.
    pub tracked: Tracked,
}
