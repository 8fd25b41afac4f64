//! Control groups that a test makes: of version 2, and with a limit of memory also of version 1.

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

/// A control group that may take so much memory, removed when dropped. Processes in it have to have ended.
#[derive(Debug)]
pub struct MemoryGroup(Group);

impl MemoryGroup {
    /// Makes one at the top of the hierarchy that counts memory, with so many bytes.
    #[track_caller]
    pub fn make(name: &str, bytes: u64) -> Self {
        let mounts = stdx::mounts::of_process("self").unwrap();
        let first = mounts.iter().find(|mount| mount.kind == "cgroup" && mount.has_option("memory"));
        let (top, limit) = if let Some(mount) = first {
            (mount.point.clone(), "memory.limit_in_bytes")
        } else {
            let mount = mounts.iter().find(|mount| mount.kind == "cgroup2").expect("cgroup2 is mounted");
            fs::write(mount.point.join("cgroup.subtree_control"), "+memory").unwrap();
            (mount.point.clone(), "memory.max")
        };
        let dir = top.join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let group = Group(dir);
        fs::write(group.dir().join(limit), bytes.to_string()).unwrap();
        Self(group)
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        self.0.dir()
    }
}
