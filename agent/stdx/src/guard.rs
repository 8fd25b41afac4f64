//! Files that nobody can change but root and the user that runs this, whatever leads to them.
//!
//! A path is walked name by name, and symbolic links are walked as their text says. Each directory and file
//! on the way belongs to root or to this user. What is in a directory can be exchanged by those who may write
//! to it, so that a directory on the way is one of these:
//!
//! - Nobody else may write to it.
//! - It is sticky, and what leads on is root's or this user's and has no other name. That is enough on the
//!   way; a directory whose entries are listed must be one of the others, as anybody may add some.
//! - It is *sealed*: others may write to it by its mode, and cannot in effect. kubelet makes such directories
//!   (0777 for a `ConfigMap`, 1777 for a `Secret`).
//!
//! A directory is sealed if this process sees it by a read-only mount and nobody else can reach it by another
//! one:
//!
//! - the file system itself is read-only, for all of its mounts; or
//! - for each mount of the same file system that is writable and has the directory in it, one of the
//!   directories on the way to it is closed to others. That holds for the mounts of this process's mount
//!   namespace, and for those of the first process's, in which users log in and container runtimes mount. The
//!   numbers of processes have to be those of the machine, or the first process is another one.
//!
//! A read-only mount alone proves nothing: the directory may be writable elsewhere. Mount namespaces that
//! root has made with other mounts (containers) are not searched: who may write to a directory there, may do
//! so by root's decision. Users can have mount namespaces themselves, whose mounts lead only to what they
//! could reach before. Only file systems of this machine count, as others (NFS, FUSE, overlays) can change
//! without any mount.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, getxattr, openat, readlinkat,
};
use rustix::io::Errno;

use crate::mounts::{self, Mount};
use crate::output::{Directory, Identity};

/// As many links as the kernel follows (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;
/// `S_IWGRP | S_IWOTH` (inode(7)).
const OTHERS_WRITE: u32 = 0o022;
/// `S_ISVTX`: only owners remove and rename.
const STICKY: u32 = 0o1000;
/// The pid namespace of the machine (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const FIRST_PIDS: &str = "pid:[4026531836]";
/// Processes that have the machine's mounts: init, and the parent of the kernel's threads.
const MACHINE: [&str; 2] = ["1", "2"];
/// File systems whose content nothing changes but their own mounts.
const LOCAL: [&str; 11] =
    ["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "bcachefs", "tmpfs", "ramfs", "squashfs", "erofs"];

/// Why a path is not to be trusted, or leads nowhere.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// A system call failed.
    #[error("cannot {action} {path}: {source}", path = .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// Another user owns something on the way, or what is at its end.
    #[error("{path}: user {user} owns it, and could put anything in its place; `chown root` it", path = .path.display())]
    Owner {
        /// What.
        path: PathBuf,
        /// The owner.
        user: u32,
    },
    /// Others than the owner can change something on the way, or what is at its end.
    #[error("{path}: other users can change it ({reason}); `chmod go-w` it", path = .path.display())]
    Writable {
        /// What.
        path: PathBuf,
        /// Why they are not kept from it.
        reason: Unsealed,
    },
    /// A link of procfs, which leads to an open file and not to a name.
    #[error("{path} leads to a file of a process, not to a name in a directory; name the file itself", path = .path.display())]
    ProcessLink {
        /// The link.
        path: PathBuf,
    },
    /// Links that lead to links.
    #[error("{path} leads through too many symbolic links", path = .path.display())]
    TooManyLinks {
        /// The path.
        path: PathBuf,
    },
}

impl GuardError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }

    /// Whether nothing is there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Why others can change what they may write to by its mode.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unsealed {
    /// It is not mounted read-only.
    #[error("its mode lets them write, and it is not mounted read-only")]
    Mounted,
    /// Files with several names.
    #[error("its mode lets them write, and it has other names")]
    Names,
    /// Other machines, processes or directories can change the file system.
    #[error("its mode lets them write, and {0} can change without a mount here")]
    Kind(String),
    /// Another mount is writable.
    #[error("it is read-only here, and writable for all at {}", .0.display())]
    Elsewhere(PathBuf),
    /// What is mounted elsewhere is not known.
    #[error("it is read-only here, and whether it is writable elsewhere cannot be seen: {0}")]
    Unknown(Unseen),
}

/// Why it is not known where a file system is mounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unseen {
    /// The first process is not the machine's.
    #[error("this process has a pid namespace of its own (`hostPID: true`, `--pid host`)")]
    Processes,
    /// This process may not see the files of the machine.
    #[error("this process may not see the root directory of the first process (CAP_SYS_PTRACE)")]
    Machine,
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Opens directories and files, and remembers which directories are sealed: kernels' lists of mounts are
/// long.
#[derive(Debug, Default)]
pub struct Guard {
    sealed: BTreeSet<(u64, u64, u64)>,
}

/// A name that is still to be walked.
enum Part {
    Root,
    Parent,
    Name(OsString),
}

/// What a path leads to.
enum Found {
    Directory(Directory),
    Other(Directory, OsString),
}

impl Guard {
    /// Opens the directory that a path leads to, which nobody else can add files to.
    ///
    /// # Errors
    /// There is none, or others can change it or what leads to it.
    pub fn open_dir(&mut self, path: &Path) -> Result<Directory, GuardError> {
        let dir = match self.walk(path)? {
            Found::Directory(dir) => dir,
            Found::Other(dir, name) => {
                return Err(GuardError::io("open", &dir.join(name))(Errno::NOTDIR.into()));
            }
        };
        let status = dir.status().map_err(GuardError::io("look at", dir.path()))?;
        if status.st_mode & OTHERS_WRITE != 0 {
            self.check_sealed(dir.descriptor(), &status, dir.path())?;
        }
        Ok(dir)
    }

    /// Opens the regular file that a path leads to, for reading. Nobody else can write to it.
    ///
    /// # Errors
    /// There is none, or others can change it or what leads to it.
    pub fn open_file(&mut self, path: &Path) -> Result<File, GuardError> {
        let (dir, name) = match self.walk(path)? {
            Found::Other(dir, name) => (dir, name),
            Found::Directory(dir) => {
                return Err(GuardError::io("open", dir.path())(io::ErrorKind::IsADirectory.into()));
            }
        };
        let path = dir.join(&name);
        let file = dir.open_file(&name).map_err(GuardError::io("open", &path))?;
        let status = fstat(&file).map_err(|error| GuardError::io("look at", &path)(error.into()))?;
        check_owner(&status, &path)?;
        if status.st_mode & OTHERS_WRITE != 0 {
            self.check_sealed(&file, &status, &path)?;
        }
        Ok(file)
    }

    fn walk(&mut self, path: &Path) -> Result<Found, GuardError> {
        let mut dir = if path.is_absolute() {
            enter(CWD, "/", Path::new("/"))?
        } else {
            enter(CWD, ".", Path::new(""))?
        };
        let mut pending = parts(path);
        let mut links = 0;
        while let Some(part) = pending.pop() {
            let name = match part {
                Part::Root => {
                    dir = enter(CWD, "/", Path::new("/"))?;
                    continue;
                }
                Part::Parent => {
                    dir = enter(dir.descriptor(), "..", &dir.join(".."))?;
                    continue;
                }
                Part::Name(name) => name,
            };
            let shown = dir.join(&name);
            let failed = |error: Errno| GuardError::io("open", &shown)(error.into());
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let entry = openat(dir.descriptor(), &name, flags, Mode::empty()).map_err(failed)?;
            let status = fstat(&entry).map_err(failed)?;
            self.check_entry(&dir, &status)?;
            match FileType::from_raw_mode(status.st_mode) {
                FileType::Symlink => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(GuardError::TooManyLinks { path: path.to_owned() });
                    }
                    if fstatfs(&entry).map_err(failed)?.f_type == PROC_SUPER_MAGIC {
                        return Err(GuardError::ProcessLink { path: shown });
                    }
                    let target = readlinkat(&entry, "", Vec::new()).map_err(failed)?.into_bytes();
                    pending.append(&mut parts(Path::new(&OsString::from_vec(target))));
                }
                FileType::Directory => {
                    check_owner(&status, &shown)?;
                    dir = Directory::of_descriptor(entry, shown);
                }
                _ if pending.is_empty() => return Ok(Found::Other(dir, name)),
                _ => return Err(failed(Errno::NOTDIR)),
            }
        }
        Ok(Found::Directory(dir))
    }

    /// Fails where others can exchange an entry of a directory.
    fn check_entry(&mut self, dir: &Directory, entry: &Stat) -> Result<(), GuardError> {
        let status = dir.status().map_err(GuardError::io("look at", dir.path()))?;
        let is_directory = FileType::from_raw_mode(entry.st_mode) == FileType::Directory;
        let is_kept =
            status.st_mode & STICKY != 0 && is_trusted(entry) && (is_directory || entry.st_nlink == 1);
        if status.st_mode & OTHERS_WRITE == 0 || is_kept {
            return Ok(());
        }
        self.check_sealed(dir.descriptor(), &status, dir.path())
    }

    /// Fails where others can write to something in effect, which they may by its mode.
    fn check_sealed(&mut self, file: impl AsFd, status: &Stat, path: &Path) -> Result<(), GuardError> {
        let failed = |reason| GuardError::Writable { path: path.to_owned(), reason };
        let mounts = mounts::of_process("self").map_err(|error| failed(Unsealed::Unknown(error.into())))?;
        let mount =
            mounts::of_file(&mounts, &file).map_err(|error| failed(Unsealed::Unknown(error.into())))?;
        let key = (mount.id, status.st_dev, status.st_ino);
        if !self.sealed.contains(&key) {
            check_sealed(&mounts, mount, file, status).map_err(failed)?;
            self.sealed.insert(key);
        }
        Ok(())
    }
}

/// Opens a directory to walk on from.
fn enter(at: impl AsFd, name: &str, shown: &Path) -> Result<Directory, GuardError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(at, name, flags, Mode::empty());
    let dir = Directory::of_descriptor(
        opened.map_err(|error| GuardError::io("open", shown)(error.into()))?,
        shown.to_owned(),
    );
    check_owner(&dir.status().map_err(GuardError::io("look at", dir.path()))?, dir.path())?;
    Ok(dir)
}

/// The names of a path, the last one first.
fn parts(path: &Path) -> Vec<Part> {
    let part = |component| match component {
        Component::RootDir => Some(Part::Root),
        Component::ParentDir => Some(Part::Parent),
        Component::Normal(name) => Some(Part::Name(name.to_owned())),
        Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(part).collect()
}

fn is_trusted(status: &Stat) -> bool {
    status.st_uid == 0 || status.st_uid == rustix::process::geteuid().as_raw()
}

fn check_owner(status: &Stat, path: &Path) -> Result<(), GuardError> {
    if is_trusted(status) {
        return Ok(());
    }
    Err(GuardError::Owner { path: path.to_owned(), user: status.st_uid })
}

fn check_sealed(mounts: &[Mount], mount: &Mount, file: impl AsFd, status: &Stat) -> Result<(), Unsealed> {
    if !mount.is_read_only && !mount.is_file_system_read_only() {
        return Err(Unsealed::Mounted);
    }
    if !LOCAL.contains(&mount.kind.as_str()) {
        return Err(Unsealed::Kind(mount.kind.clone()));
    }
    if mount.is_file_system_read_only() {
        return Ok(());
    }
    if FileType::from_raw_mode(status.st_mode) != FileType::Directory && status.st_nlink > 1 {
        return Err(Unsealed::Names);
    }
    let unknown = |error: io::Error| Unsealed::Unknown(error.into());
    let path = fs::read_link(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())).map_err(unknown)?;
    let below = path.strip_prefix(&mount.point).map_err(|_| unknown(io::ErrorKind::NotFound.into()))?;
    let inside = mount.root.join(below);
    if fs::read_link("/proc/self/ns/pid").map_err(unknown)?.as_os_str() != FIRST_PIDS {
        return Err(Unsealed::Unknown(Unseen::Processes));
    }
    let of_machine = MACHINE.iter().find(|process| {
        // Init can be closed to others; the kernel's threads have its mounts, too.
        let root = format!("/proc/{process}/root");
        openat(CWD, root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).is_ok()
    });
    let process = of_machine.ok_or(Unsealed::Unknown(Unseen::Machine))?;
    let root = PathBuf::from(format!("/proc/{process}/root"));
    let machine = mounts::of_process(process).map_err(unknown)?;
    for (root, mounts) in [(Path::new("/"), mounts), (&root, &machine)] {
        for way in ways(mounts, mount.device, &inside) {
            if !is_closed(root, &way, Identity::of(status)).map_err(unknown)? {
                return Err(Unsealed::Elsewhere(way));
            }
        }
    }
    Ok(())
}

/// The paths by which something of a file system can be written.
fn ways(mounts: &[Mount], device: (u32, u32), inside: &Path) -> Vec<PathBuf> {
    let writable = mounts.iter().filter(|mount| mount.device == device && !mount.is_read_only);
    let way = |mount: &Mount| {
        let below = inside.strip_prefix(&mount.root).ok()?;
        Some(if below.as_os_str().is_empty() { mount.point.clone() } else { mount.point.join(below) })
    };
    writable.filter_map(way).collect()
}

/// Whether one of the directories on a way from a root directory is closed to others, so that only root gets
/// to its end, which has to be this.
fn is_closed(root: &Path, way: &Path, end: Identity) -> io::Result<bool> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let mut at = openat(CWD, root, flags | OFlags::DIRECTORY, Mode::empty())?;
    let mut is_closed = is_wall(&at)?;
    for part in way.components().filter(|part| matches!(part, Component::Normal(_))) {
        at = openat(&at, part.as_os_str(), flags | OFlags::NOFOLLOW, Mode::empty())?;
        is_closed |= is_wall(&at)?;
    }
    // What is mounted over it hides it now, and may not always.
    Ok(is_closed && Identity::of_file(&at)? == end)
}

/// Whether a directory lets nobody pass but its owner, who is trusted, and the group of root.
fn is_wall(dir: &OwnedFd) -> io::Result<bool> {
    let status = fstat(dir)?;
    let others = status.st_mode & 0o001 != 0;
    let group = status.st_mode & 0o010 != 0;
    let is_directory = FileType::from_raw_mode(status.st_mode) == FileType::Directory;
    if !is_directory || !is_trusted(&status) || others {
        return Ok(false);
    }
    // The bits of the group are the mask of a list, which may let users pass (acl(5)).
    Ok(!group || status.st_gid == 0 && !has_list(dir)?)
}

fn has_list(dir: &OwnedFd) -> io::Result<bool> {
    let path = format!("/proc/self/fd/{}", dir.as_raw_fd());
    match getxattr(path, "system.posix_acl_access", &mut [0_u8; 0][..]) {
        Ok(_) => Ok(true),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};

    use super::*;

    /// Somebody else. Giving files away takes root, as which the project's tests run.
    const OTHER: u32 = 12345;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn dir(path: &Path, bits: u32) {
        fs::create_dir_all(path).unwrap();
        mode(path, bits);
    }

    fn writable(opened: Result<impl std::fmt::Debug, GuardError>) -> PathBuf {
        match opened.unwrap_err() {
            GuardError::Writable { path, reason: Unsealed::Mounted } => path,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn what_leads_to_a_file_is_nobody_elses() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        let (a, b) = (top.join("a"), top.join("a/b"));
        dir(&b, 0o755);
        fs::write(b.join("x"), "text").unwrap();
        mode(&b.join("x"), 0o644);
        symlink("a/b/../b", top.join("link")).unwrap();
        lchown(top.join("link"), Some(OTHER), None).unwrap();
        let mut guard = Guard::default();
        for path in ["a/b/x", "link/x", "a/../link/./x"] {
            guard.open_file(&top.join(path)).unwrap();
        }
        // Each on the way, as its group and all can write to it, or another user owns it.
        for path in [&a, &b] {
            for bits in [0o775, 0o757, 0o1777] {
                mode(path, bits);
                // Nobody exchanges root's in a sticky directory.
                if bits == 0o1777 {
                    guard.open_file(&b.join("x")).unwrap();
                } else {
                    assert_eq!(writable(guard.open_file(&b.join("x"))), *path);
                }
            }
            assert_eq!(writable(guard.open_dir(path)), *path, "others add entries");
            mode(path, 0o755);
            chown(path, Some(OTHER), None).unwrap();
            let error = guard.open_file(&top.join("link/x")).unwrap_err();
            assert!(matches!(&error, GuardError::Owner { path: at, user: OTHER } if at == path), "{error}");
            chown(path, Some(0), None).unwrap();
        }
        mode(&b.join("x"), 0o664);
        assert_eq!(writable(guard.open_file(&b.join("x"))), b.join("x"));
    }

    #[test]
    fn links_and_other_names_in_sticky_directories_are_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        let sticky = top.join("sticky");
        dir(&sticky, 0o1777);
        dir(&top.join("of-root"), 0o755);
        fs::write(top.join("of-root/x"), "").unwrap();
        symlink("../of-root", sticky.join("link")).unwrap();
        let mut guard = Guard::default();
        guard.open_file(&sticky.join("link/x")).unwrap();
        fs::hard_link(sticky.join("link"), top.join("second")).unwrap();
        assert_eq!(writable(guard.open_file(&sticky.join("link/x"))), sticky);
        fs::remove_file(top.join("second")).unwrap();
        lchown(sticky.join("link"), Some(OTHER), None).unwrap();
        assert_eq!(writable(guard.open_file(&sticky.join("link/x"))), sticky);
        fs::hard_link(top.join("of-root/x"), sticky.join("x")).unwrap();
        assert_eq!(writable(guard.open_file(&sticky.join("x"))), sticky);
    }

    #[test]
    fn paths_that_lead_nowhere_have_their_reasons() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        symlink("loop", top.join("loop")).unwrap();
        fs::write(top.join("file"), "").unwrap();
        let mut guard = Guard::default();
        assert!(matches!(guard.open_file(&top.join("loop")), Err(GuardError::TooManyLinks { .. })));
        assert!(matches!(guard.open_dir(Path::new("/proc/self")), Err(GuardError::ProcessLink { .. })));
        assert!(guard.open_dir(&top.join("none/more")).unwrap_err().is_not_found());
        let kind = |error: GuardError| match error {
            GuardError::Io { source, .. } => source.kind(),
            other => panic!("{other}"),
        };
        assert_eq!(kind(guard.open_dir(&top.join("file")).unwrap_err()), io::ErrorKind::NotADirectory);
        assert_eq!(kind(guard.open_file(&top.join("file/x")).unwrap_err()), io::ErrorKind::NotADirectory);
        assert_eq!(kind(guard.open_file(&top).unwrap_err()), io::ErrorKind::IsADirectory);
    }

    #[test]
    fn all_writable_mounts_that_have_it_are_ways_to_it() {
        let mounts = mounts::parse(
            b"1 0 8:1 / / rw - ext4 a rw\n2 1 8:1 /var/lib /mnt/a\\040b rw - ext4 a rw\n\
              3 1 8:1 /var/lib/x /ro ro - ext4 a rw\n4 1 8:1 /var/library /other rw - ext4 a rw\n\
              5 1 8:2 / /second rw - ext4 b rw\n6 1 8:1 /var/lib/x /exact rw - ext4 a rw\n\
              7 1 8:1 /var/lib/x/y /below rw - ext4 a rw\n",
        )
        .unwrap();
        let found = ways(&mounts, (8, 1), Path::new("/var/lib/x"));
        let expected = ["/var/lib/x", "/mnt/a b/x", "/exact"].map(PathBuf::from);
        assert_eq!(found, expected);
    }

    #[test]
    fn a_way_is_closed_by_a_directory_of_root_that_nobody_passes() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        mode(&top, 0o755);
        let (wall, end) = (top.join("wall"), top.join("wall/x/end"));
        dir(&end, 0o777);
        let identity = || Identity::of_file(File::open(&end).unwrap()).unwrap();
        let closed = |path: &Path| is_closed(Path::new("/"), path, identity()).unwrap();
        for (bits, owner, group, expected) in [
            (0o700, 0, OTHER, true),
            (0o750, 0, 0, true),
            (0o766, 0, 0, true),
            (0o750, 0, OTHER, false),
            (0o700, OTHER, 0, false),
            (0o755, 0, 0, false),
            (0o701, 0, 0, false),
        ] {
            chown(&wall, Some(owner), Some(group)).unwrap();
            mode(&wall, bits);
            assert_eq!(closed(&end), expected, "{bits:o} {owner} {group}");
        }
        chown(&wall, Some(0), Some(0)).unwrap();
        mode(&wall, 0o700);
        assert!(!closed(&top.join("wall/x")), "another directory is at the end");
        assert!(is_closed(Path::new("/"), &wall.join("none"), identity()).is_err());
    }

    #[test]
    fn a_list_that_lets_users_pass_opens_a_wall() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        mode(&top, 0o750);
        chown(&top, Some(0), Some(0)).unwrap();
        let open = || openat(CWD, &top, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        assert!(is_wall(&open()).unwrap());
        // Version 2; tag, bits, id: the owner, a user, the group, the mask, others (acl(5)).
        let entries = [
            (0x01_u16, 7_u16, u32::MAX),
            (0x02, 1, OTHER),
            (0x04, 5, u32::MAX),
            (0x10, 5, u32::MAX),
            (0x20, 0, u32::MAX),
        ];
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, bits, id) in entries {
            list.extend([tag.to_le_bytes(), bits.to_le_bytes()].concat());
            list.extend(id.to_le_bytes());
        }
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&top, "system.posix_acl_access", &list, flags).unwrap();
        assert!(!is_wall(&open()).unwrap());
    }
}
