//! The rights of a session's user: what this daemon does with files for a user, a thread with that user's
//! rights does.

use std::io;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use nix::unistd::{Gid, Uid, User, getgrouplist, setfsgid, setfsuid};

/// A group of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// Its name.
    pub name: String,
    /// Its number.
    pub gid: u32,
}

impl Group {
    /// The group of this name, if there is one.
    pub(super) fn find(name: &str) -> io::Result<Option<Self>> {
        let found = nix::unistd::Group::from_name(name)?;
        Ok(found.map(|group| Self { name: group.name, gid: group.gid.as_raw() }))
    }
}

/// The groups of a user; none where nothing is known of it.
pub(super) fn groups_of(uid: u32) -> Vec<u32> {
    let Ok(Some(user)) = User::from_uid(Uid::from_raw(uid)) else { return Vec::new() };
    let Ok(name) = std::ffi::CString::new(user.name) else { return Vec::new() };
    let groups = getgrouplist(&name, user.gid).unwrap_or_default();
    groups.into_iter().map(Gid::as_raw).collect()
}

/// Who owns a session's files, and with whose rights they are opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// The user.
    pub uid: u32,
    /// The group of new files.
    pub gid: u32,
    groups: Vec<u32>,
}

impl Owner {
    /// A user with its groups.
    pub(super) fn new(uid: u32, gid: u32) -> Self {
        Self { uid, gid, groups: groups_of(uid) }
    }

    /// A user that did not ask: its group is that of the database of users.
    pub(super) fn of_user(uid: u32) -> Self {
        /// The group of nobody (Debian Policy, section 9.2.2).
        const NOGROUP: u32 = 65534;
        let known = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        Self::new(uid, known.map_or(NOGROUP, |user| user.gid.as_raw()))
    }

    /// Gives the calling thread, and those that it starts from now on, the rights of the user where files are
    /// concerned: the file system's user and groups, without the capabilities that go around them
    /// (capabilities(7), "Effect of user ID changes on capabilities"). What it may do with the kernel's
    /// tracing stays.
    ///
    /// # Errors
    /// The thread has no right to that; it must not touch the user's files then.
    pub(super) fn take_rights(&self) -> io::Result<()> {
        if self.uid == 0 {
            return Ok(());
        }
        let groups: Vec<_> = self.groups.iter().map(|gid| rustix::thread::Gid::from_raw(*gid)).collect();
        // Of this thread only, unlike the C library's.
        rustix::thread::set_thread_groups(&groups)?;
        // Quotas, and what file systems keep for root.
        let mut sets = capabilities(None)?;
        for set in [&mut sets.effective, &mut sets.permitted] {
            set.remove(CapabilitySet::SYS_RESOURCE);
        }
        set_capabilities(None, sets)?;
        self.put_rights()
    }

    fn put_rights(&self) -> io::Result<()> {
        set_processes_of_others(false)?;
        set_file_rights(self.uid, self.gid)
    }

    /// Makes the calling thread the user's for all that others see of it (`SO_PEERCRED`, rights to files),
    /// with no rights of root. Its real user stays this daemon's, so that the user cannot send it signals.
    /// Such a thread does nothing else afterwards.
    ///
    /// # Errors
    /// The thread has no right to that; it must do nothing for the user then.
    pub(super) fn take_identity(&self) -> io::Result<()> {
        use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

        if self.uid == 0 {
            return Ok(());
        }
        let groups: Vec<_> = self.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        set_thread_groups(&groups)?;
        set_thread_res_gid(None, Some(Gid::from_raw(self.gid)), None)?;
        // Without a user that is root in one of the three ids nothing of root's would come back; with one,
        // effective capabilities go (capabilities(7)), and nothing here takes them again.
        set_thread_res_uid(None, Some(Uid::from_raw(self.uid)), None)?;
        Ok(())
    }

    /// Does something with the rights of the user where files are concerned, in a thread of root.
    ///
    /// # Errors
    /// They cannot be taken, or given back: the thread must not touch files then.
    pub(super) fn with_rights<T>(&self, act: impl FnOnce() -> T) -> io::Result<T> {
        if self.uid == 0 {
            return Ok(act());
        }
        let own = rustix::process::getgroups()?;
        let groups = |all: &mut dyn Iterator<Item = u32>| {
            let groups: Vec<_> = all.map(rustix::thread::Gid::from_raw).collect();
            rustix::thread::set_thread_groups(&groups)
        };
        groups(&mut self.groups.iter().copied())?;
        let done = set_file_rights(self.uid, self.gid).map(|()| act());
        set_file_rights(0, 0)?;
        groups(&mut own.iter().map(|gid| gid.as_raw()))?;
        done
    }

    /// Does something of the daemon's own with the rights of root, such as reading tracefs, in a thread that
    /// has those of the user. Nothing in it may follow a path of the user.
    ///
    /// # Errors
    /// The rights of the user cannot be taken again: the thread must not touch the user's files then.
    pub(super) fn as_root<T>(&self, act: impl FnOnce() -> T) -> io::Result<T> {
        if self.uid == 0 {
            return Ok(act());
        }
        set_file_rights(0, 0)?;
        let back = Back(self);
        set_processes_of_others(true)?;
        let done = act();
        drop(back);
        self.put_rights()?;
        Ok(done)
    }
}

/// Gives the rights of the user back, also after a panic.
struct Back<'a>(&'a Owner);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        // It is looked at again where it matters.
        let _ = self.0.put_rights();
    }
}

/// Whether the calling thread may look into processes of others: with that, links of `/proc/PID` lead to
/// their files, past the rights of a user.
fn set_processes_of_others(may: bool) -> io::Result<()> {
    let mut sets = capabilities(None)?;
    // Where root itself does not have it, it has none to give.
    sets.effective.set(CapabilitySet::SYS_PTRACE, may && sets.permitted.contains(CapabilitySet::SYS_PTRACE));
    Ok(set_capabilities(None, sets)?)
}

/// Sets the file system's user and group of the calling thread.
fn set_file_rights(uid: u32, gid: u32) -> io::Result<()> {
    let set = || (setfsuid(Uid::from_raw(uid)).as_raw(), setfsgid(Gid::from_raw(gid)).as_raw());
    set();
    // They tell what was before, and no errors. A second time that is what the first has done.
    if set() == (uid, gid) { Ok(()) } else { Err(io::Error::from(io::ErrorKind::PermissionDenied)) }
}
