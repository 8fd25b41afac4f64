//! How much memory the control groups of this process may take, in version 2 of control groups or 1.

use std::{
    fmt, fs, io,
    path::{Component, Path, PathBuf},
    sync::OnceLock,
};

use super::{super::proc, read};
use stdx::mounts::{self, Mount};

/// Directories that the search for the group of this process looks at.
const SEARCH_MAX: usize = 1 << 16;

/// The tightest limit of memory among the groups of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The directory of the group that has it.
    pub group: PathBuf,
    /// How many bytes the group may take.
    pub max: u64,
    /// How many it takes now that it cannot give back: without pages of files.
    pub used: u64,
}

/// Memory that this process can have more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Available {
    /// Bytes.
    pub bytes: u64,
    /// The control group that has no more; `None` where the machine has no more.
    pub group: Option<PathBuf>,
}

impl Available {
    /// What the machine and the control groups of this process have left now.
    ///
    /// # Errors
    /// `/proc/meminfo` cannot be read.
    pub fn read() -> io::Result<Self> {
        Ok(Self::of(proc::memory_available()?, MemoryLimit::read()))
    }

    fn of(machine: u64, limit: Option<MemoryLimit>) -> Self {
        match limit.map(|limit| (limit.max.saturating_sub(limit.used), limit.group)) {
            Some((bytes, group)) if bytes < machine => Self { bytes, group: Some(group) },
            _ => Self { bytes: machine, group: None },
        }
    }
}

impl fmt::Display for Available {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MB of memory are available", self.bytes >> 20)?;
        self.group
            .as_ref()
            .map_or(Ok(()), |group| write!(f, " in the memory control group {}", group.display()))
    }
}

/// The names of a version's files.
#[derive(Clone, Copy, Debug)]
struct Files {
    max: &'static str,
    current: &'static str,
    /// The lines of `memory.stat` about memory that the kernel gives back first.
    reclaimed_first: [&'static str; 2],
}

const SECOND: Files =
    Files { max: "memory.max", current: "memory.current", reclaimed_first: ["inactive_file", "active_file"] };
const FIRST: Files = Files {
    max: "memory.limit_in_bytes",
    current: "memory.usage_in_bytes",
    reclaimed_first: ["total_inactive_file", "total_active_file"],
};

/// The group of this process, where the hierarchy that counts memory is mounted.
#[derive(Debug)]
struct Group {
    /// Where the hierarchy is mounted.
    top: PathBuf,
    dir: PathBuf,
    files: Files,
}

impl MemoryLimit {
    /// The limit of this process now; `None` where there is none, or the groups cannot be seen.
    pub fn read() -> Option<Self> {
        static GROUP: OnceLock<Option<Group>> = OnceLock::new();
        GROUP.get_or_init(Group::find).as_ref()?.limit()
    }

    /// What is said behind an error where the limit may be its cause: empty for other errors, and where there
    /// is no limit.
    pub fn explain(error: &io::Error) -> String {
        if error.raw_os_error() != Some(libc::ENOMEM) {
            return String::new();
        }
        Self::read().map_or_else(String::new, |limit| limit.text())
    }

    fn text(&self) -> String {
        format!(
            "; the memory control group {} may take {} KiB and has {} KiB in use: choose smaller rings, fewer channels, or a \
             higher limit",
            self.group.display(),
            self.max >> 10,
            self.used >> 10
        )
    }
}

impl Group {
    fn find() -> Option<Self> {
        let mounts = mounts::of_process("self").ok()?;
        let own = String::from_utf8(read::file("/proc/self/cgroup").ok()?).ok()?;
        let first = || {
            let mount = mounts.iter().find(|mount| mount.kind == "cgroup" && mount.has_option("memory"))?;
            Self::in_hierarchy(mount, path_of(&own, |controllers| controllers == "memory")?, FIRST)
        };
        // Version 1 has the controller where it is mounted with it.
        first().or_else(|| {
            // The first one that shows the group: there may be mounts of parts.
            let mut all = mounts.iter().filter(|mount| mount.kind == "cgroup2");
            all.find_map(|mount| Self::in_hierarchy(mount, path_of(&own, str::is_empty)?, SECOND))
        })
    }

    /// The group with this path, in a hierarchy that may be mounted only in part. Both paths are those that
    /// the control group namespace of this process has; with the hierarchy of the machine in a container,
    /// that of the mount leads up from there (`/../..`), and the names on the way down are not known.
    fn in_hierarchy(mount: &Mount, own: &Path, files: Files) -> Option<Self> {
        let ups = mount.root.components().filter(|part| *part == Component::ParentDir).count();
        let own = own.strip_prefix("/").ok()?;
        let dir = if ups > 0 {
            search(&mount.point, ups, own, std::process::id())?
        } else {
            mount.point.join(own.strip_prefix(mount.root.strip_prefix("/").ok()?).ok()?)
        };
        dir.join("cgroup.procs").exists().then(|| Self { top: mount.point.clone(), dir, files })
    }

    fn limit(&self) -> Option<MemoryLimit> {
        let groups = self.dir.ancestors().take_while(|dir| dir.starts_with(&self.top));
        let limits = groups.filter_map(|dir| {
            // `max` is no number, and the group at the top has no such file.
            let max = read::trimmed(dir.join(self.files.max)).ok()?.parse().ok()?;
            let current: u64 = read::trimmed(dir.join(self.files.current)).ok()?.parse().ok()?;
            let stat = read::trimmed(dir.join("memory.stat")).unwrap_or_default();
            let used = current.saturating_sub(sum(&stat, &self.files.reclaimed_first));
            Some(MemoryLimit { group: dir.to_owned(), max, used })
        });
        // Without a limit, version 1 has the largest number of pages.
        limits.filter(|limit| limit.max < i64::MAX as u64 >> 1).min_by_key(|limit| limit.max)
    }
}

/// The sum of some lines of `memory.stat`, which are names and numbers of bytes.
fn sum(stat: &str, names: &[&str]) -> u64 {
    let lines = stat.lines().filter_map(|line| line.split_once(' '));
    let numbers = lines.filter(|(name, _)| names.contains(name)).filter_map(|(_, bytes)| bytes.parse().ok());
    numbers.fold(0, u64::saturating_add)
}

/// The path of this process's group in a hierarchy, from `/proc/self/cgroup`: lines of number, controllers
/// and path.
fn path_of(text: &str, is_it: impl Fn(&str) -> bool) -> Option<&Path> {
    text.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let is_found = if controllers.is_empty() { is_it("") } else { controllers.split(',').any(&is_it) };
        is_found.then(|| Path::new(path))
    })
}

/// The directory `own` so many levels below `top` that has a process.
fn search(top: &Path, levels: usize, own: &Path, process: u32) -> Option<PathBuf> {
    let mut open = vec![(top.to_owned(), levels)];
    let mut looked = 0;
    while let Some((dir, levels)) = open.pop() {
        looked += 1;
        if levels == 0 {
            let dir = dir.join(own);
            let processes = read::trimmed(dir.join("cgroup.procs")).unwrap_or_default();
            if processes.lines().any(|line| line.parse() == Ok(process)) {
                return Some(dir);
            }
            continue;
        }
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_dir && looked + open.len() < SEARCH_MAX {
                open.push((entry.path(), levels - 1));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hierarchy of version 2 as files.
    fn group(dir: &Path, max: &str, processes: &str) {
        fs::create_dir_all(dir).unwrap();
        let stat = "anon 7\ninactive_file 1000\nactive_file 96\nshmem 5";
        let files = [
            ("memory.max", max),
            ("memory.current", "4096"),
            ("memory.stat", stat),
            ("cgroup.procs", processes),
        ];
        for (name, text) in files {
            fs::write(dir.join(name), format!("{text}\n")).unwrap();
        }
    }

    fn mount(root: &str, point: &Path) -> Mount {
        let line = format!("1 0 0:26 {root} {} ro - cgroup2 cgroup2 rw", point.display());
        mounts::parse(line.as_bytes()).unwrap().remove(0)
    }

    #[test]
    fn the_tightest_limit_on_the_way_up_counts() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path();
        fs::write(top.join("cgroup.procs"), "1\n").unwrap();
        group(&top.join("pods"), "1048576", "");
        group(&top.join("pods/pod"), "max", "");
        group(&top.join("pods/pod/own"), "8388608", "");
        let limit =
            |root: &str, own: &str| Group::in_hierarchy(&mount(root, top), Path::new(own), SECOND)?.limit();
        let of_pods = MemoryLimit { group: top.join("pods"), max: 1 << 20, used: 3000 };
        assert_eq!(limit("/", "/pods/pod/own"), Some(of_pods.clone()));
        // A part is mounted, and the path is that of the machine.
        assert_eq!(limit("/a/b", "/a/b/pods/pod"), Some(of_pods));
        assert_eq!(limit("/", "/"), None);
        assert_eq!(limit("/", "/none"), None);
        assert_eq!(limit("/c", "/a/b/pods"), None);
    }

    #[test]
    fn a_container_finds_its_group_in_the_machines_hierarchy() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path();
        let own = std::process::id().to_string();
        group(&top.join("pods/one/x"), "1000", "17");
        group(&top.join("pods/two/x"), "2000", &format!("16\n{own}"));
        group(&top.join("pods/two"), "5000", &own);
        group(&top.join("pods/two/x/y"), "900", &own);
        let found = Group::in_hierarchy(&mount("/../../..", top), Path::new("/"), SECOND).unwrap();
        assert_eq!(found.limit().unwrap().max, 2000);
        let found = Group::in_hierarchy(&mount("/../../..", top), Path::new("/y"), SECOND).unwrap();
        assert_eq!(found.limit().unwrap().max, 900);
        assert!(Group::in_hierarchy(&mount("/..", top), Path::new("/"), SECOND).is_none());
    }

    #[test]
    fn the_group_of_a_hierarchy_is_found_by_its_controllers() {
        let text = "9:name=systemd:/init\n4:cpu,memory:/a:b/c\n0::/d\n";
        assert_eq!(path_of(text, |name| name == "memory"), Some(Path::new("/a:b/c")));
        assert_eq!(path_of(text, str::is_empty), Some(Path::new("/d")));
        assert_eq!(path_of(text, |name| name == "io"), None);
    }

    #[test]
    fn what_has_less_left_is_what_counts() {
        let limit = |max| Some(MemoryLimit { group: "/x".into(), max, used: 100 });
        let of_group = Available { bytes: 400, group: Some("/x".into()) };
        let of_machine = Available { bytes: 1000, group: None };
        assert_eq!(Available::of(1000, limit(500)), of_group);
        assert_eq!(Available::of(1000, limit(50)).bytes, 0);
        assert_eq!(Available::of(1000, limit(1100)), of_machine);
        assert_eq!(Available::of(1000, None), of_machine);
    }

    #[test]
    fn only_a_lack_of_memory_is_explained() {
        let text = MemoryLimit { group: "/sys/fs/cgroup/x".into(), max: 1 << 20, used: 1 << 19 }.text();
        assert!(text.contains(" /sys/fs/cgroup/x may take 1024 KiB and has 512 KiB in use"), "{text}");
        assert_eq!(MemoryLimit::explain(&io::Error::from_raw_os_error(libc::EPERM)), "");
    }
}
