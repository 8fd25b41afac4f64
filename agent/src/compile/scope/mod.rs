//! The scope of a recording: which threads are recorded, by what they are.
//!
//! It becomes sets of values in a map (`agent_ebpf::tracking`), which every recording program asks about the
//! current thread, so that it can change while programs run. Scheduler events are about another thread, too,
//! and that one's name, users and groups are not at hand: it counts by what was found when it was last seen
//! running, or when the scope was set.
//!
//! | file | subject |
//! |---|---|
//! | `image` | sets as the lines of the map |
//! | `names` | patterns of names as an automaton |
//! | `thread` | whether a thread of this moment is within a scope |

mod image;
mod names;
mod thread;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use agent_ebpf::tracking::attribute;
use serde::{Deserialize, Serialize};

pub(crate) use image::Image;
pub use image::{Halves, ScopeError};

use crate::kernel::cgroup::Cgroup;

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

    /// The number of its set.
    fn number(self) -> u32 {
        match self {
            Self::Pid => attribute::PID,
            Self::Vpid => attribute::VPID,
            Self::Uid => attribute::UID,
            Self::Vuid => attribute::VUID,
            Self::Gid => attribute::GID,
            Self::Vgid => attribute::VGID,
            Self::Cgroup => attribute::CGROUP,
            Self::Comm => attribute::COMM,
        }
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

/// Values of an attribute, found on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Values {
    /// Ids of processes, users or groups.
    Ids(BTreeSet<u32>),
    /// Control groups, with those inside of them.
    Groups(Vec<Cgroup>),
    /// Names, with wildcards.
    Names(Vec<String>),
}

/// Values as they were written, and what they mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Set {
    pub(crate) texts: Vec<String>,
    pub(crate) values: Values,
}

/// Values of some attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sets(BTreeMap<Attribute, Set>);

impl Sets {
    /// Says which values of an attribute are meant; with `None` threads are not asked for it.
    pub(crate) fn put(&mut self, attribute: Attribute, set: Option<Set>) {
        match set {
            Some(set) => self.0.insert(attribute, set),
            None => self.0.remove(&attribute),
        };
    }

    fn groups(&self) -> impl Iterator<Item = &Cgroup> {
        self.0.values().flat_map(|set| match &set.values {
            Values::Groups(groups) => groups.as_slice(),
            Values::Ids(_) | Values::Names(_) => &[],
        })
    }

    /// The bits of their numbers.
    fn bits(&self) -> u32 {
        self.0.keys().fold(0, |bits, attribute| bits | 1 << attribute.number())
    }
}

/// Which threads are recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// What a thread has to be: one of each of these sets, of which an empty one leaves no thread.
    pub only: Sets,
    /// What it must not be: any of these.
    pub except: Sets,
    /// Whether `only` changes while the recording goes on.
    pub changes: bool,
}

impl Scope {
    /// The sets that programs ask for, now or ever, as bits of `globals::SCOPE`.
    pub(crate) fn bits(&self) -> u32 {
        let changing = Attribute::ALL.into_iter().fold(0, |bits, attribute| bits | 1 << attribute.number());
        let only = if self.changes { changing } else { self.only.bits() };
        only | self.except.bits() << agent_ebpf::tracking::EXCEPT
    }

    /// What is recorded, in a few words: each leaves out others.
    pub(crate) fn told(&self) -> Vec<String> {
        let only = self.only.0.iter().map(|(attribute, set)| match set.texts.as_slice() {
            [] => format!("no {}", attribute.threads()),
            texts => format!("{} {}", attribute.threads(), texts.join(", ")),
        });
        let except = self.except.0.iter().filter(|(_, set)| !set.texts.is_empty());
        let except = except
            .map(|(attribute, set)| format!("all but {} {}", attribute.threads(), set.texts.join(", ")));
        only.chain(except).collect()
    }

    /// Its control groups that are no more.
    pub(crate) fn vanished(&self) -> Vec<String> {
        let groups = self.only.groups().chain(self.except.groups());
        groups.filter(|group| !group.is_there()).map(|group| group.path.clone()).collect()
    }
}
