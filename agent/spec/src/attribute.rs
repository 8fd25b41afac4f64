//! Attributes of threads that a recording can choose by.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An attribute of threads that a recording can choose by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attribute {
    /// The process, by the id of the initial pid namespace. Processes that it makes have others.
    Pid,
    /// The process, by the id that its own pid namespace gives it.
    Vpid,
    /// The real user.
    Uid,
    /// The real user, by the id that its own user namespace gives it.
    Vuid,
    /// The real group.
    Gid,
    /// The real group, by the id that its own user namespace gives it.
    Vgid,
    /// The control group of version 2, with those in it.
    Cgroup,
    /// The thread's name, with wildcards.
    Comm,
}

impl Attribute {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::Pid, Self::Vpid, Self::Uid, Self::Vuid, Self::Gid, Self::Vgid, Self::Cgroup, Self::Comm];

    /// Its name in specifications: `vuid`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pid => "pid",
            Self::Vpid => "vpid",
            Self::Uid => "uid",
            Self::Vuid => "vuid",
            Self::Gid => "gid",
            Self::Vgid => "vgid",
            Self::Cgroup => "cgroup",
            Self::Comm => "comm",
        }
    }

    /// What threads are called that have one of these values: `threads of the users`.
    pub fn threads(self) -> &'static str {
        match self {
            Self::Pid => "threads of the processes",
            Self::Vpid => "threads of the processes with the virtual ids",
            Self::Uid => "threads of the users",
            Self::Vuid => "threads of the users with the virtual ids",
            Self::Gid => "threads of the groups",
            Self::Vgid => "threads of the groups with the virtual ids",
            Self::Cgroup => "control groups",
            Self::Comm => "threads named",
        }
    }

    /// Whether it is an id of the thread's own namespace.
    pub fn is_virtual(self) -> bool {
        matches!(self, Self::Vpid | Self::Vuid | Self::Vgid)
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Attribute {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|attribute| attribute.name() == text);
        named.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("{text} is no attribute of threads; they are {names}")
        })
    }
}
