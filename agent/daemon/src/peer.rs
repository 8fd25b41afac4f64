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

    /// Whether it may have sessions: root, or a member of the group.
    pub(super) fn may_control(self, group: Option<&Group>) -> bool {
        let Some(group) = group else { return self.uid == 0 };
        self.uid == 0 || self.gid == group.gid || groups_of(self.uid).contains(&group.gid)
    }

    /// Whether it is told of everyone's sessions and may control them.
    pub(super) fn is_root(self) -> bool {
        self.uid == 0
    }
}
