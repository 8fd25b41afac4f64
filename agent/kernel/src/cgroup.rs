//! Control groups of version 2, as their file system shows them (Documentation/admin-guide/cgroup-v2.rst).
//! The memory of this process is in [`memory`].

pub mod memory;

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::read;
use stdx::mounts::{self, Mount};

/// The control group namespace that sees the whole hierarchy (`PROC_CGROUP_INIT_INO`,
/// include/linux/proc_ns.h).
const INITIAL_NAMESPACE: &str = "cgroup:[4026531835]";
/// Directories that a search for a container looks at, and how deep.
const SEARCH_MAX: usize = 1 << 16;
const DEPTH_MAX: u32 = 32;
/// The least characters of a container's id.
const ID_MIN: usize = 6;
/// Characters of a whole id.
const ID_LEN: usize = 64;
/// What runtimes write before an id (runc and crun under systemd).
const RUNTIMES: [&str; 5] = ["docker-", "libpod-", "cri-containerd-", "crio-", "nerdctl-"];

/// Why a control group cannot be found.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// There is no hierarchy to look in.
    #[error("no cgroup2 file system is mounted; mount one: mount -t cgroup2 none /sys/fs/cgroup")]
    NotMounted,
    /// Levels are not known.
    #[error(
        "this process is in a control group namespace of its own and does not see where groups are; run it outside of the container"
    )]
    Namespace,
    /// A path that is none.
    #[error("there is no control group {}: {source}; groups are the directories below {}", path.display(), root.display())]
    NoGroup {
        /// What was looked for.
        path: PathBuf,
        /// Where the hierarchy is mounted.
        root: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// A container that is none.
    #[error(
        "no container, machine or unit {0} runs here: no control group is named after it (ids need {ID_MIN} characters or more)"
    )]
    NoContainer(String),
    /// Several containers.
    #[error("{name} means several: {}; give more of the id, or the path with --cgroup", found.join(", "))]
    Ambiguous {
        /// What was looked for.
        name: String,
        /// Their groups.
        found: Vec<String>,
    },
}

/// The hierarchy of version 2.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    root: PathBuf,
}

/// A control group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    /// Its path from the root of the hierarchy: `/system.slice/ssh.service`.
    pub path: String,
    /// Its number, which its directory's inode has too.
    pub id: u64,
    /// How many groups it is in.
    pub level: u32,
    dir: PathBuf,
}

impl Hierarchy {
    /// Looks for the mounted file system.
    ///
    /// # Errors
    /// There is none, or it does not show the whole hierarchy.
    pub fn find() -> Result<Self, CgroupError> {
        let mounts = mounts::of_process("self").unwrap_or_default();
        let root = mount_point(&mounts).ok_or(CgroupError::NotMounted)?;
        let namespace = fs::read_link("/proc/self/ns/cgroup");
        if namespace.is_ok_and(|namespace| namespace.as_os_str() != INITIAL_NAMESPACE) {
            return Err(CgroupError::Namespace);
        }
        Ok(Self { root })
    }

    /// The group of a path: from the root of the hierarchy, or of the file system.
    ///
    /// # Errors
    /// There is no such group.
    pub fn group(&self, path: &str) -> Result<Cgroup, CgroupError> {
        let below = Path::new(path).strip_prefix(&self.root).unwrap_or(Path::new(path));
        let parts: Vec<&str> = below
            .components()
            .filter_map(|part| match part {
                std::path::Component::Normal(part) => part.to_str(),
                _ => None,
            })
            .collect();
        let dir = parts.iter().fold(self.root.clone(), |dir, part| dir.join(part));
        // Other file systems can be mounted below it.
        let is_group = dir.join("cgroup.procs").metadata().and_then(|_| dir.metadata());
        match is_group {
            Ok(found) => Ok(Cgroup {
                path: format!("/{}", parts.join("/")),
                id: found.ino(),
                level: parts.len() as u32,
                dir,
            }),
            Err(source) => Err(CgroupError::NoGroup { path: dir, root: self.root.clone(), source }),
        }
    }

    /// The group of a container, by its id or the beginning of it, or by its name; of a machine, or of a unit
    /// of systemd.
    ///
    /// # Errors
    /// There is none, or several.
    pub fn container(&self, name: &str) -> Result<Cgroup, CgroupError> {
        let ids = ids_of_name(name);
        let mut found = Vec::new();
        let mut open = vec![(self.root.clone(), 0)];
        let mut looked = 0;
        while let Some((dir, depth)) = open.pop() {
            looked += 1;
            let Ok(entries) = fs::read_dir(&dir) else { continue };
            for entry in entries.flatten() {
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                let base = entry.file_name();
                if is_of(&base.to_string_lossy(), name, &ids) {
                    // What is inside of it belongs to it.
                    found.push(entry.path());
                } else if depth < DEPTH_MAX && looked + open.len() < SEARCH_MAX {
                    open.push((entry.path(), depth + 1));
                }
            }
        }
        match found.as_slice() {
            [] => Err(CgroupError::NoContainer(name.to_owned())),
            [only] => self.group(&only.to_string_lossy()),
            _ => {
                let found = found.iter().map(|dir| dir.display().to_string()).collect();
                Err(CgroupError::Ambiguous { name: name.to_owned(), found })
            }
        }
    }
}

impl Cgroup {
    /// Whether a group, by its path, is this one or inside of it.
    pub fn holds(&self, path: &str) -> bool {
        let rest = path.strip_prefix(self.path.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Whether it still is what it was.
    pub fn is_there(&self) -> bool {
        self.dir.metadata().is_ok_and(|found| found.ino() == self.id)
    }
}

/// The path of a thread's group from the root of the hierarchy.
pub fn of_thread(tid: u32) -> Option<String> {
    let text = read::file(format!("/proc/{tid}/cgroup")).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned)
}

/// Where the whole hierarchy is mounted.
fn mount_point(mounts: &[Mount]) -> Option<PathBuf> {
    let whole = mounts.iter().find(|mount| mount.kind == "cgroup2" && mount.root == Path::new("/"));
    whole.map(|mount| mount.point.clone())
}

/// Whether a directory is named after a container, a machine or a unit.
fn is_of(base: &str, name: &str, ids: &[String]) -> bool {
    let plain = base.strip_suffix(".scope").unwrap_or(base);
    let id = RUNTIMES.iter().find_map(|runtime| plain.strip_prefix(runtime)).unwrap_or(plain);
    let is_id = id.len() == ID_LEN && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id && (name.len() >= ID_MIN && id.starts_with(name) || ids.iter().any(|known| known == id)) {
        return true;
    }
    let named = [".service", ".scope", ".slice"].iter().any(|kind| base.strip_suffix(kind) == Some(name));
    let machine = plain.strip_prefix("machine-").or_else(|| base.strip_prefix("lxc.payload."));
    base == name || named || machine == Some(name)
}

/// The ids of containers of this name, from the files of docker and podman.
fn ids_of_name(name: &str) -> Vec<String> {
    let mut ids = Vec::new();
    for entry in fs::read_dir("/var/lib/docker/containers").into_iter().flatten().flatten() {
        let config = json(&entry.path().join("config.v2.json"));
        if config["Name"].as_str().is_some_and(|known| known.trim_start_matches('/') == name) {
            ids.extend(entry.file_name().to_str().map(str::to_owned));
        }
    }
    let podman = json(Path::new("/var/lib/containers/storage/overlay-containers/containers.json"));
    for container in podman.as_array().into_iter().flatten() {
        let names = container["names"].as_array().into_iter().flatten();
        if names.into_iter().any(|known| known.as_str() == Some(name)) {
            ids.extend(container["id"].as_str().map(str::to_owned));
        }
    }
    ids
}

/// A file's content, or null.
fn json(path: &Path) -> serde_json::Value {
    fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_is_found_among_mounts() {
        let found = |text: &[u8]| mount_point(&mounts::parse(text).unwrap());
        let mounts = b"22 1 254:1 / / rw - ext4 /dev/vda rw\n\
            31 22 0:26 /inner /x rw shared:1 - cgroup2 cgroup2 rw\n\
            32 22 0:26 / /sys/fs/my\\040cgroup rw,nosuid - cgroup2 none rw\n\
            33 22 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        assert_eq!(found(mounts), Some(PathBuf::from("/sys/fs/my cgroup")));
        assert_eq!(found(b"22 1 254:1 / / rw - ext4 /dev/vda rw\n"), None);
    }

    #[test]
    fn containers_are_known_by_the_names_of_their_groups() {
        let id = "0123456789abcdef".repeat(4);
        for (base, name) in [
            (format!("docker-{id}.scope"), "0123456789ab"),
            (format!("libpod-{id}.scope"), &*id),
            (id.clone(), "012345"),
            ("ssh.service".to_owned(), "ssh"),
            ("ssh.service".to_owned(), "ssh.service"),
            ("machine-web.scope".to_owned(), "web"),
            ("lxc.payload.web".to_owned(), "web"),
        ] {
            assert!(is_of(&base, name, &[]), "{base} {name}");
        }
        assert!(is_of(&format!("docker-{id}.scope"), "web", std::slice::from_ref(&id)));
        for (base, name) in [(&*id, "01234"), ("ssh.service", "ss"), ("docker-01.scope", "01")] {
            assert!(!is_of(base, name, &[]), "{base} {name}");
        }
    }

    #[test]
    fn groups_hold_what_is_inside_of_them() {
        let group = |path: &str| Cgroup { path: path.to_owned(), id: 1, level: 1, dir: PathBuf::new() };
        assert!(group("/a").holds("/a") && group("/a").holds("/a/b") && group("/").holds("/x"));
        assert!(!group("/a").holds("/ab") && !group("/a/b").holds("/a"));
    }
}
