//! Who asks, as the kernel says it of a connection (`SO_PEERCRED`, unix(7)).

use std::{io, os::fd::AsFd};

use rustix::net::sockopt::socket_peercred;

use super::user::{Group, groups_of};

/// Who is at the other end of a connection: the user that the process had when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl Peer {
    /// Who is at the other end.
    pub(super) fn of(socket: impl AsFd) -> io::Result<Self> {
        let credentials = socket_peercred(socket)?;
        Ok(Self { uid: credentials.uid.as_raw(), gid: credentials.gid.as_raw() })
    }

    /// Whether it may have sessions: root, or a member of the group. `None` if the database of users says.
    pub(super) fn may_control_by_itself(self, group: Option<&Group>) -> Option<bool> {
        match group {
            _ if self.uid == 0 => Some(true),
            None => Some(false),
            Some(group) => (self.gid == group.gid).then_some(true),
        }
    }

    /// Whether the database of users has it in the group. The database may be far away.
    pub(super) fn is_member(self, group: &Group) -> bool {
        groups_of(self.uid).contains(&group.gid)
    }

    /// Whether it is told of everyone's sessions and may control them.
    pub(super) fn is_root(self) -> bool {
        self.uid == 0
    }
}
