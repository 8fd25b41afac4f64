//! Control groups of version 2 that a test makes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::harness::Caller;

/// A control group of its own, removed when dropped.
#[derive(Debug)]
pub struct Group(PathBuf);

impl Group {
    /// Makes one at the top of the hierarchy, whose name begins with this.
    #[track_caller]
    pub fn make(name: &str) -> Self {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
        let root = mount.expect("cgroup2 is mounted").split(' ').nth(1).unwrap();
        let dir = Path::new(root).join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    /// Makes one of this name in it.
    #[must_use]
    #[track_caller]
    pub fn inside(&self, name: &str) -> Self {
        let dir = self.0.join(name);
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    /// Moves a process into it.
    #[track_caller]
    pub fn take(&self, caller: &Caller) {
        fs::write(self.0.join("cgroup.procs"), caller.pid().to_string()).unwrap();
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.0
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It may have been removed by its test.
        let _ = fs::remove_dir(&self.0);
    }
}
