//! Whether a thread of this moment is within a scope, as the programs would find.

use super::{Scope, Sets, Values};
use kernel::ids::Owner;
use kernel::proc::Thread;
use kernel::{cgroup, ids};
use spec::Attribute;
use stdx::input::glob;

impl Scope {
    /// Whether a thread of this moment is within it. One that has ended is not.
    pub fn takes(&self, thread: &Thread) -> bool {
        !self.except.0.iter().any(|(&attribute, set)| set.values.hold(attribute, thread))
            && self.only.0.iter().all(|(&attribute, set)| set.values.hold(attribute, thread))
    }

    /// Whether threads have to be something, which stays as it is.
    pub fn chooses(&self) -> bool {
        !self.changes && !self.only.0.is_empty()
    }

    /// Whether it is that of every thread.
    pub fn is_everything(&self) -> bool {
        let Self { only: Sets(only), except: Sets(except), changes: _ } = self;
        only.is_empty() && except.values().all(|set| set.values.is_empty())
    }
}

impl Values {
    fn is_empty(&self) -> bool {
        match self {
            Self::Ids(ids) => ids.is_empty(),
            Self::Groups(groups) => groups.is_empty(),
            Self::Names(names) => names.is_empty(),
        }
    }

    fn hold(&self, attribute: Attribute, thread: &Thread) -> bool {
        match self {
            Self::Ids(ids) => id_of(attribute, thread).is_some_and(|id| ids.contains(&id)),
            Self::Groups(groups) => cgroup::of_thread(thread.tid)
                .is_some_and(|path| groups.iter().any(|group| group.holds(&path))),
            Self::Names(names) => names.iter().any(|name| glob::matches_name(name, &thread.comm)),
        }
    }
}

fn id_of(attribute: Attribute, thread: &Thread) -> Option<u32> {
    let ids = || ids::of_thread(thread.tid);
    match attribute {
        Attribute::Pid => Some(thread.tgid),
        Attribute::Vpid => ids()?.virtual_process,
        Attribute::Uid => Some(ids()?.uid),
        Attribute::Gid => Some(ids()?.gid),
        Attribute::Vuid => ids::virtual_owner(thread.tid, Owner::User, ids()?.uid),
        Attribute::Vgid => ids::virtual_owner(thread.tid, Owner::Group, ids()?.gid),
        Attribute::Cgroup | Attribute::Comm => None,
    }
}
