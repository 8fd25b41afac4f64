//! The daemon's directories for what is on its way to relay daemons: one of each session, which is the
//! session's user's and nobody else's.
//!
//! Users reach theirs by path, so the directory above them lets everybody pass. It is not below that of the
//! daemon's state, which stays closed, and holds nothing else.

use std::{
    ffi::OsString,
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::fs::{Gid, Mode, Uid, fchmod, fchown};

use crate::user::Owner;
use stdx::output::{Directory, MODE_PRIVATE};

/// How its name ends, behind that of the directory of the state.
const SUFFIX: &str = "-relay";
/// Users get to what is theirs in it, and see no names.
const PASSED: u32 = 0o711;

/// Where the directories are made.
#[derive(Debug)]
pub(crate) struct Places {
    /// The directory above, and its name there.
    above: Directory,
    name: OsString,
    made: AtomicU64,
}

impl Places {
    /// Beside the directory of the daemon's state. One that is there lets users pass again: service managers
    /// give their own mode to it at each start.
    ///
    /// # Errors
    /// The directory of the state has no name, or the one beside it is another user's.
    pub(crate) fn beside(state: &Path) -> io::Result<Self> {
        let state = std::path::absolute(state)?;
        let mut name = state.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_owned();
        name.push(SUFFIX);
        let above = Directory::open(state.parent().unwrap_or(Path::new("/")))?;
        let places = Self { above, name, made: AtomicU64::new(0) };
        if places.above.look(&places.name)?.is_some() {
            places.open()?;
        }
        Ok(places)
    }

    /// Opens the directory, and lets users pass.
    fn open(&self) -> io::Result<Directory> {
        let dir = match self.above.create_dir_with(&self.name, PASSED) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.above.open_dir(&self.name)?,
            created => created?,
        };
        let there = dir.metadata()?;
        if there.uid() != rustix::process::geteuid().as_raw() || there.mode() & 0o022 != 0 {
            let why = format!("{}: other users can change this directory", dir.path().display());
            return Err(io::Error::other(why));
        }
        fchmod(dir.open_itself()?, Mode::from_raw_mode(PASSED))?;
        Ok(dir)
    }

    /// Makes one for a session. Nothing in it is opened with root's rights.
    ///
    /// # Errors
    /// The directory cannot be made, or is another user's.
    pub(crate) fn make(&self, owner: &Owner) -> io::Result<PathBuf> {
        let dir = self.open()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let place = dir.create_dir_with(format!("{}-{now}-{number}", owner.uid).as_ref(), MODE_PRIVATE)?;
        fchown(place.open_itself()?, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))?;
        Ok(place.path().to_owned())
    }

    /// Removes one that has nothing in it.
    pub(crate) fn remove_empty(place: &Path) {
        // What is in it stays.
        let _ = std::fs::remove_dir(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};

    #[test]
    fn a_place_is_its_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        std::fs::DirBuilder::new().mode(0o700).create(&state).unwrap();
        let places = Places::beside(&state).unwrap();
        let root = Owner::new(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let [first, second] = [(); 2].map(|()| places.make(&root).unwrap());
        assert_ne!(first, second);
        let there = first.metadata().unwrap();
        assert_eq!((there.mode() & 0o777, there.uid()), (0o700, root.uid));
        assert_eq!(first.parent(), Some(&*dir.path().join("state-relay")));
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        assert_eq!([mode(first.parent().unwrap()), mode(&state)], [0o711, 0o700]);
        // As systemd does it at each start.
        let relay = dir.path().join("state-relay");
        std::fs::set_permissions(&relay, std::fs::Permissions::from_mode(0o700)).unwrap();
        Places::beside(&state).unwrap();
        assert_eq!(mode(&relay), 0o711);
        std::fs::write(second.join("a"), "b").unwrap();
        Places::remove_empty(&first);
        Places::remove_empty(&second);
        assert_eq!((first.exists(), second.exists()), (false, true));
    }
}
