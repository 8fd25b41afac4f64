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

use spec::Attribute;
use std::collections::{BTreeMap, BTreeSet};

use agent_ebpf::tracking::attribute;
use serde::{Deserialize, Serialize};

pub use image::Image;
pub use image::{Halves, ScopeError};

use kernel::cgroup::Cgroup;

/// The number of an attribute's set (`agent_ebpf::tracking`).
fn number(of: Attribute) -> u32 {
    match of {
        Attribute::Pid => attribute::PID,
        Attribute::Vpid => attribute::VPID,
        Attribute::Uid => attribute::UID,
        Attribute::Vuid => attribute::VUID,
        Attribute::Gid => attribute::GID,
        Attribute::Vgid => attribute::VGID,
        Attribute::Cgroup => attribute::CGROUP,
        Attribute::Comm => attribute::COMM,
    }
}

/// Values of an attribute, found on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Values {
    /// Ids of processes, users or groups.
    Ids(BTreeSet<u32>),
    /// Control groups, with those inside of them.
    Groups(Vec<Cgroup>),
    /// Names, with wildcards.
    Names(Vec<String>),
}

/// Values as they were written, and what they mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Set {
    /// The values as the user wrote them.
    pub texts: Vec<String>,
    /// Their meaning on this machine.
    pub values: Values,
}

/// Values of some attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sets(BTreeMap<Attribute, Set>);

impl Sets {
    /// Says which values of an attribute are meant; with `None` threads are not asked for it.
    pub fn put(&mut self, attribute: Attribute, set: Option<Set>) {
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
        self.0.keys().fold(0, |bits, attribute| bits | 1 << number(*attribute))
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
    pub fn bits(&self) -> u32 {
        let changing = Attribute::ALL.into_iter().fold(0, |bits, attribute| bits | 1 << number(attribute));
        let only = if self.changes { changing } else { self.only.bits() };
        only | self.except.bits() << agent_ebpf::tracking::EXCEPT
    }

    /// Whether there is something that threads must not be.
    pub fn excludes(&self) -> bool {
        self.except.bits() != 0
    }

    /// What is recorded, in a few words: each leaves out others.
    pub fn told(&self) -> Vec<String> {
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
    pub fn vanished(&self) -> Vec<String> {
        let groups = self.only.groups().chain(self.except.groups());
        groups.filter(|group| !group.is_there()).map(|group| group.path.clone()).collect()
    }
}
