//! The daemon's directories for what is on its way to relay daemons: one of each session, which is the
//! session's user's and nobody else's.

use std::{
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use crate::user::Owner;

/// The directory in that of the daemon's state.
const NAME: &str = "relay";

/// Where the directories are made.
#[derive(Debug)]
pub(crate) struct Places {
    dir: PathBuf,
    made: AtomicU64,
}

impl Places {
    /// Below the directory of the daemon's state, which nobody else can write to.
    pub(crate) fn new(state: &Path) -> Self {
        Self { dir: state.join(NAME), made: AtomicU64::new(0) }
    }

    /// Makes one for a session. Nothing in it is opened with root's rights.
    pub(crate) fn make(&self, owner: &Owner) -> io::Result<PathBuf> {
        if let Some(state) = self.dir.parent()
            && owner.uid != 0
        {
            // Users get to what is theirs in it, and see no names.
            let mode = state.metadata()?.mode();
            std::fs::set_permissions(state, std::fs::Permissions::from_mode(mode & 0o7777 | 0o011))?;
        }
        std::fs::DirBuilder::new().mode(0o711).recursive(true).create(&self.dir)?;
        std::fs::set_permissions(&self.dir, std::fs::Permissions::from_mode(0o711))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let place = self.dir.join(format!("{}-{now}-{number}", owner.uid));
        std::fs::DirBuilder::new().mode(0o700).create(&place)?;
        chown(&place, Some(owner.uid), Some(owner.gid))?;
        Ok(place)
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

    #[test]
    fn a_place_is_its_owners_alone() {
        let state = tempfile::tempdir().unwrap();
        let places = Places::new(state.path());
        let root = Owner::new(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let [first, second] = [(); 2].map(|()| places.make(&root).unwrap());
        assert_ne!(first, second);
        let there = first.metadata().unwrap();
        assert_eq!((there.mode() & 0o777, there.uid()), (0o700, root.uid));
        assert_eq!(first.parent().unwrap().metadata().unwrap().mode() & 0o777, 0o711);
        std::fs::write(second.join("a"), "b").unwrap();
        Places::remove_empty(&first);
        Places::remove_empty(&second);
        assert_eq!((first.exists(), second.exists()), (false, true));
    }
}
