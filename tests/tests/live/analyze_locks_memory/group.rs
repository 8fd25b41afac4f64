//! A control group with little memory.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
};

/// A control group that may have no more than some memory. It is removed in the end.
pub(crate) struct Group(PathBuf);

impl Group {
    /// A new one, of whichever version has the machine's memory.
    pub(crate) fn with_limit(bytes: u64) -> Self {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mounts = || mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let first =
            mounts().find(|mount| mount[2] == "cgroup" && mount[3].split(',').any(|of| of == "memory"));
        let name = format!("analyze-{}", process::id());
        if let Some(mount) = first {
            let group = Self(Path::new(mount[1]).join(name));
            fs::create_dir(&group.0).unwrap();
            group.write("memory.limit_in_bytes", &bytes.to_string());
            group.write("memory.swappiness", "0");
            return group;
        }
        let root =
            mounts().find(|mount| mount[2] == "cgroup2").expect("a control group of memory is mounted");
        let root = Path::new(root[1]);
        fs::write(root.join("cgroup.subtree_control"), "+memory").expect("control groups have memory");
        let group = Self(root.join(name));
        fs::create_dir(&group.0).unwrap();
        group.write("memory.max", &bytes.to_string());
        // Only kernels that can swap have it.
        if group.0.join("memory.swap.max").exists() {
            group.write("memory.swap.max", "0");
        }
        group
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Where the numbers of processes that go into it are written to.
    pub(crate) fn processes(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What is left of its processes is none of this test's.
        let _ = fs::remove_dir(&self.0);
    }
}
