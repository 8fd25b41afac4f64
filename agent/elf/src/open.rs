//! Binaries that are open. Their directories may be somebody else's, who can put another file under a name at
//! any moment, so a path is walked once: what is read, what is looked for beside it, and what the kernel puts
//! probes into are told by descriptors.

use std::ffi::{CStr, CString, OsStr};
use std::fs::{File, Metadata};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::{BinaryError, head};

/// What a binary is opened with. Its owner may have a pipe under its name, and opening that would wait for
/// somebody to write to it: so it is opened without waiting, and what was opened is looked at.
const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// What is the same of two descriptors exactly if a probe in one file is a probe in the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// Device and inode.
    Inode(u64, u64),
    /// A file of an overlay. Each container of an image has an overlay with a device of its own, above the
    /// same files, into which the kernel puts probes (`d_real_inode`). Of these an overlay tells the inode,
    /// the size, and the seconds and nanoseconds of the last change, which nobody can set.
    Overlaid(u64, u64, i64, i64),
}

impl Identity {
    fn of(file: &File) -> io::Result<Self> {
        /// `OVERLAYFS_SUPER_MAGIC` of include/uapi/linux/magic.h.
        const OVERLAY: u64 = 0x794c_7630;
        let found = file.metadata()?;
        let is_overlaid = rustix::fs::fstatfs(file)?.f_type as u64 == OVERLAY;
        Ok(if is_overlaid {
            Self::Overlaid(found.ino(), found.size(), found.ctime(), found.ctime_nsec())
        } else {
            Self::Inode(found.dev(), found.ino())
        })
    }
}

/// An open binary. As a [`CStr`] it is a path that leads to this file and no other, for the kernel to open
/// while this is there.
#[derive(Clone, Debug)]
pub struct OpenBinary {
    file: Arc<File>,
    identity: Identity,
    root: Root,
    path: PathBuf,
    link: CString,
}

/// The directory that a binary's file system begins at: this process's root, or that of a container.
#[derive(Clone, Debug)]
pub(super) struct Root {
    dir: Arc<File>,
    /// What it is below here.
    path: PathBuf,
}

impl OpenBinary {
    /// Opens the file at `path`. `/proc/PID/root/...` is a file of that process, which may be in a container:
    /// its symbolic links lead to where they lead that process.
    ///
    /// # Errors
    /// It cannot be opened, or is no regular file.
    pub fn open(path: &Path) -> Result<Self, BinaryError> {
        if let Some((root, inside)) = split_process_root(path) {
            return Self::below(&root, inside);
        }
        let failed = |source| BinaryError::Io { path: path.to_owned(), source };
        let root = Root::open(Path::new("/")).map_err(failed)?;
        let file = rustix::fs::open(path, FLAGS, Mode::empty());
        Self::new(&root, path, file.map(File::from).map_err(io::Error::from))
    }

    /// Opens the file at `inside` of the file system that begins at `root`.
    ///
    /// # Errors
    /// It cannot be opened, or is no regular file.
    pub fn below(root: &Path, inside: &Path) -> Result<Self, BinaryError> {
        let path = below(root, inside);
        let failed = |source| BinaryError::Io { path: path.clone(), source };
        let root = Root::open(root).map_err(failed)?;
        let file = root.open_file(inside);
        Self::new(&root, &path, file)
    }

    fn new(root: &Root, path: &Path, file: io::Result<File>) -> Result<Self, BinaryError> {
        let failed = |source| BinaryError::Io { path: path.to_owned(), source };
        let file = file.map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() {
            return Err(BinaryError::NotRegular { path: path.to_owned() });
        }
        let identity = Identity::of(&file).map_err(failed)?;
        let link = CString::new(link_of(file.as_fd())).map_err(|error| failed(error.into()))?;
        let path = root.path_of(&file).unwrap_or_else(|| path.to_owned());
        Ok(Self { file: Arc::new(file), identity, root: root.clone(), path, link })
    }

    /// Opens the file that a link of `/proc/PID` leads to, such as `/proc/PID/exe`. `path` is where it is, or
    /// was before it was removed, below the root directory of the process.
    pub(super) fn linked(link: &Path, root: &Path, path: &Path) -> Result<Self, BinaryError> {
        let path = below(root, path);
        let failed = |source| BinaryError::Io { path: path.clone(), source };
        let root = Root::open(root).map_err(failed)?;
        let file = rustix::fs::open(link, FLAGS, Mode::empty());
        Self::new(&root, &path, file.map(File::from).map_err(io::Error::from))
    }

    /// Where the file was when it was opened, without symbolic links; or before it was removed. Another file
    /// may be there since.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn root(&self) -> &Root {
        &self.root
    }

    /// The directory that the file was in, from the root of its file system.
    pub(super) fn dir_inside(&self) -> Option<PathBuf> {
        Some(self.root.inside(&self.file)?.parent()?.to_owned())
    }

    /// Which file it is.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Its build id; empty if it has none, or is no 64-bit binary for this machine. Little of the file is
    /// read, whatever it is.
    pub fn build_id(&self) -> Vec<u8> {
        self.reopen().ok().and_then(|file| head::build_id(&file)).unwrap_or_default()
    }

    /// The name that other binaries have for it, if it is a shared library.
    pub(super) fn soname(&self) -> Option<Vec<u8>> {
        head::soname(&self.reopen().ok()?)
    }

    /// The same file, with an offset of its own.
    pub(super) fn reopen(&self) -> Result<File, BinaryError> {
        let failed = |source| BinaryError::Io { path: self.path.clone(), source };
        File::open(link_of(self.file.as_fd())).map_err(failed)
    }
}

/// Whether they are the same file.
impl PartialEq for OpenBinary {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity
    }
}

impl Eq for OpenBinary {}

impl Deref for OpenBinary {
    type Target = CStr;

    fn deref(&self) -> &CStr {
        &self.link
    }
}

impl Root {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { dir: Arc::new(dir.into()), path: path.to_owned() })
    }

    /// Opens a file as whoever has this root would, whose symbolic links do not lead out of it.
    fn open_file(&self, inside: &Path) -> io::Result<File> {
        let inside = inside.strip_prefix("/").unwrap_or(inside);
        Ok(rustix::fs::openat2(&self.dir, inside, FLAGS, Mode::empty(), ResolveFlags::IN_ROOT)?.into())
    }

    /// Opens a regular file; `None` where there is none. The path is how it is shown.
    pub(super) fn open_regular(&self, inside: &Path) -> Option<Found> {
        let file = self.open_file(inside).ok()?;
        file.metadata().ok().filter(Metadata::is_file)?;
        Some(Found { identity: Identity::of(&file).ok()?, file, path: below(&self.path, inside) })
    }

    /// Which file is at a path, and its inode. It is not opened for reading, so that nothing happens to it.
    pub(super) fn look(&self, inside: &Path) -> Option<(Identity, u64)> {
        let inside = inside.strip_prefix("/").unwrap_or(inside);
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let file =
            rustix::fs::openat2(&self.dir, inside, flags, Mode::empty(), ResolveFlags::IN_ROOT).ok()?;
        let file = File::from(file);
        let inode = file.metadata().ok().filter(Metadata::is_file)?.ino();
        Some((Identity::of(&file).ok()?, inode))
    }

    /// A path as a list of mappings has it, which begins at the root directory of whoever reads the list, or
    /// of the process's own mount namespace: from this root on.
    pub(super) fn within(&self, path: &Path) -> PathBuf {
        let root = std::fs::read_link(link_of(self.dir.as_fd())).unwrap_or_default();
        Path::new("/").join(path.strip_prefix(root).unwrap_or(path))
    }

    /// The path inside of the root at which a file is, from what the kernel tells of its descriptor. It is
    /// only a hint: the file may have been renamed, and another one put there.
    fn inside(&self, file: &File) -> Option<PathBuf> {
        let root = std::fs::read_link(link_of(self.dir.as_fd())).ok()?;
        let path = std::fs::read_link(link_of(file.as_fd())).ok()?;
        let inside = Path::new("/").join(path.strip_prefix(root).ok()?);
        let bare = without_mark(&inside).filter(|_| {
            let here = self.look(&inside).map(|(identity, _)| identity);
            here.is_none() || here != Identity::of(file).ok()
        });
        Some(bare.map_or_else(|| inside.clone(), Path::to_owned))
    }

    fn path_of(&self, file: &File) -> Option<PathBuf> {
        self.inside(file).map(|inside| below(&self.path, &inside))
    }
}

/// Which regular file a path leads to. It is not opened for reading, so that nothing happens to it.
pub(super) fn look(path: &Path) -> io::Result<Identity> {
    let file = File::from(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Identity::of(&file)
}

/// A path without what the kernel writes behind that of a removed file; `None` if it has no such mark.
pub fn without_mark(path: &Path) -> Option<&Path> {
    let bytes = path.as_os_str().as_bytes().strip_suffix(b" (deleted)")?;
    Some(Path::new(OsStr::from_bytes(bytes)))
}

/// A file beside a binary.
pub(super) struct Found {
    pub(super) file: File,
    pub(super) identity: Identity,
    pub path: PathBuf,
}

/// The file that a descriptor is of, whatever its name is by now.
fn link_of(file: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// `path` as seen from a root directory that is not necessarily this process's.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Splits `/proc/PID/root/PATH`.
fn split_process_root(path: &Path) -> Option<(PathBuf, &Path)> {
    let mut components = path.components();
    let root: PathBuf = components.by_ref().take(4).collect();
    let is_root = root.starts_with("/proc") && root.file_name() == Some(OsStr::new("root"));
    (is_root && root.components().count() == 4).then_some((root, components.as_path()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_put_under_a_name_later_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("name");
        fs::write(&path, "first").unwrap();
        let binary = OpenBinary::open(&path).unwrap();
        let first = fs::metadata(&path).unwrap();
        fs::rename(&path, dir.path().join("aside")).unwrap();
        fs::write(&path, "second").unwrap();
        assert_eq!(io::read_to_string(binary.reopen().unwrap()).unwrap(), "first");
        // The path that the kernel is given leads to the same file.
        let given = fs::metadata(Path::new(binary.to_str().unwrap())).unwrap();
        assert_eq!((given.dev(), given.ino()), (first.dev(), first.ino()));
        assert_ne!(binary, OpenBinary::open(&path).unwrap());
        assert_eq!(binary, OpenBinary::open(&dir.path().join("aside")).unwrap());
        assert_eq!(binary.path().file_name(), Some(OsStr::new("name")));
    }

    #[test]
    fn links_lead_to_where_they_lead_below_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("lib")).unwrap();
        fs::write(root.join("lib/real"), "inside").unwrap();
        symlink("/lib/real", root.join("absolute")).unwrap();
        symlink("../../../../lib/real", root.join("lib/upwards")).unwrap();
        for inside in ["absolute", "lib/upwards", "/lib/real"] {
            let binary = OpenBinary::below(&root, Path::new(inside)).unwrap();
            assert_eq!(io::read_to_string(binary.reopen().unwrap()).unwrap(), "inside", "{inside}");
            assert_eq!(binary.path(), root.join("lib/real"), "{inside}");
        }
    }

    #[test]
    fn paths_into_other_roots_are_told() {
        let split = |path| split_process_root(Path::new(path));
        assert_eq!(split("/proc/12/root/bin/x"), Some(("/proc/12/root".into(), Path::new("bin/x"))));
        for path in ["/proc/12/exe", "/proc/root", "/proc/12/cwd/root/x", "/home/12/root/x", "proc/12/root/x"]
        {
            assert_eq!(split(path), None, "{path}");
        }
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(matches!(OpenBinary::open(&pipe), Err(BinaryError::NotRegular { .. })));
        assert!(matches!(OpenBinary::open(dir.path()), Err(BinaryError::NotRegular { .. })));
        let root = Root::open(dir.path()).unwrap();
        assert!(
            root.open_regular(Path::new("pipe")).is_none() && root.open_regular(Path::new("no")).is_none()
        );
    }
}
