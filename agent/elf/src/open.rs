//! Binaries that are open. Their directories may be somebody else's, who can put another file under a name at
//! any moment, so a path is walked once: what is read, what is looked for beside it, and what the kernel puts
//! probes into are told by descriptors.

use std::ffi::{CStr, CString, OsStr};
use std::fs::{File, Metadata};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags};

use super::{BinaryError, head, overlays};

/// What a path is followed with. Nothing happens to what it leads to: its owner may have a device there, and
/// to open one is an action, or a pipe, which waits for somebody who writes to it.
const FINDING: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
/// What a regular file is read with. It does not wait for the holder of a lease (fcntl(2), `F_SETLEASE`).
const READING: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// What is the same of two descriptors exactly if a probe in one file is a probe in the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// Device and inode.
    Inode(u64, u64),
    /// A file of an overlay that the machine's administrator has mounted. Each container of an image has an
    /// overlay with a device of its own, above the same files, into which the kernel puts probes
    /// (`d_real_inode`). Of these an overlay has the inode, the size, and the seconds and nanoseconds of the
    /// last change of status. Users can mount overlays too, above file systems that answer whatever they
    /// like: files of those are [`Self::Inode`].
    Overlaid(u64, u64, i64, i64),
}

/// File systems in which regular files are no files: to read one is an action (`/proc/kmsg`, `trace_pipe`),
/// or waits for something. Numbers of include/uapi/linux/magic.h, and of the sources of smackfs and resctrl.
const PSEUDO: [u64; 16] = [
    0x9fa0,      // PROC_SUPER_MAGIC
    0x6265_6572, // SYSFS_MAGIC
    0x6462_6720, // DEBUGFS_MAGIC
    0x7472_6163, // TRACEFS_MAGIC
    0x7363_6673, // SECURITYFS_MAGIC
    0x0027_e0eb, // CGROUP_SUPER_MAGIC
    0x6367_7270, // CGROUP2_SUPER_MAGIC
    0xcafe_4a11, // BPF_FS_MAGIC
    0x6165_676c, // PSTOREFS_MAGIC
    0x6265_6570, // CONFIGFS_MAGIC
    0xde5e_81e4, // EFIVARFS_MAGIC
    0xf97c_ff8c, // SELINUX_MAGIC
    0x4341_5d53, // SMACK_MAGIC
    0x4249_4e4d, // BINFMTFS_MAGIC
    0x6e73_6673, // NSFS_MAGIC
    0x0765_5821, // RDTGROUP_SUPER_MAGIC
];
/// `OVERLAYFS_SUPER_MAGIC` of include/uapi/linux/magic.h.
const OVERLAY: u64 = 0x794c_7630;

/// The type of a file's file system.
fn file_system_of(file: &File) -> io::Result<u64> {
    Ok(rustix::fs::fstatfs(file)?.f_type as u64)
}

impl Identity {
    fn of(file_system: u64, found: &Metadata) -> Self {
        // The descriptor keeps the device from becoming another's meanwhile.
        if file_system == OVERLAY && overlays::is_administrators(found.dev()) {
            Self::Overlaid(found.ino(), found.size(), found.ctime(), found.ctime_nsec())
        } else {
            Self::Inode(found.dev(), found.ino())
        }
    }
}

/// A regular file as it is at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Which file it is.
    pub identity: Identity,
    /// Seconds and nanoseconds of the last change of its content.
    pub changed: (i64, i64),
    /// Bytes.
    pub len: u64,
}

impl FileState {
    /// That of the file at `path`, which is the one that [`OpenBinary::open`] opens. The file is not opened.
    ///
    /// # Errors
    /// There is no regular file.
    pub fn at(path: &Path) -> io::Result<Self> {
        let held = match split_process_root(path) {
            Some((root, inside)) => Root::open(&root)?.find(inside)?,
            None => Held::of(rustix::fs::open(path, FINDING, Mode::empty()))?,
        };
        held.map(|held| held.state()).ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}

/// A regular file that a path leads to, and that is not opened.
#[derive(Debug)]
pub(super) struct Held {
    file: File,
    found: Metadata,
    pub(super) identity: Identity,
}

impl Held {
    /// What was found with [`FINDING`]; `None` if it is no regular file, or is on a [file
    /// system](PSEUDO) of the kernel.
    fn of(found: rustix::io::Result<OwnedFd>) -> io::Result<Option<Self>> {
        let file = File::from(found?);
        let found = file.metadata()?;
        if !found.is_file() {
            return Ok(None);
        }
        let file_system = file_system_of(&file)?;
        if PSEUDO.contains(&file_system) {
            return Ok(None);
        }
        let identity = Identity::of(file_system, &found);
        Ok(Some(Self { file, found, identity }))
    }

    /// Whether it says that there is nothing in it. Some file systems that are not [known](PSEUDO) for it say
    /// so of what is no file.
    fn is_empty(&self) -> bool {
        self.found.size() == 0
    }

    pub(super) fn inode(&self) -> u64 {
        self.found.ino()
    }

    fn state(&self) -> FileState {
        let changed = (self.found.mtime(), self.found.mtime_nsec());
        FileState { identity: self.identity, changed, len: self.found.size() }
    }

    /// Opens it for reading.
    fn open(&self) -> io::Result<File> {
        open_again(&self.file)
    }
}

/// Opens a regular file that a descriptor is of, with an offset of its own.
fn open_again(file: &File) -> io::Result<File> {
    Ok(rustix::fs::open(link_of(file.as_fd()), READING, Mode::empty())?.into())
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
        let root = Root::own().map_err(failed)?;
        Self::new(&root, path, Held::of(rustix::fs::open(path, FINDING, Mode::empty())))
    }

    /// Opens the file at `inside` of the file system that begins at `root`.
    ///
    /// # Errors
    /// It cannot be opened, or is no regular file.
    pub fn below(root: &Path, inside: &Path) -> Result<Self, BinaryError> {
        let path = below(root, inside);
        let failed = |source| BinaryError::Io { path: path.clone(), source };
        let root = Root::open(root).map_err(failed)?;
        let held = root.find(inside);
        Self::new(&root, &path, held)
    }

    fn new(root: &Root, path: &Path, held: io::Result<Option<Held>>) -> Result<Self, BinaryError> {
        let failed = |source| BinaryError::Io { path: path.to_owned(), source };
        let not_regular = || BinaryError::NotRegular { path: path.to_owned() };
        let held = held.map_err(failed)?.ok_or_else(not_regular)?;
        if held.is_empty() {
            return Err(BinaryError::NotElf { path: path.to_owned(), interpreter: None });
        }
        let (file, identity) = (held.open().map_err(failed)?, held.identity);
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
        Self::new(&root, &path, Held::of(rustix::fs::open(link, FINDING, Mode::empty())))
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

    /// Its state now.
    ///
    /// # Errors
    /// Its file system has none.
    pub fn state(&self) -> io::Result<FileState> {
        let found = self.file.metadata()?;
        let changed = (found.mtime(), found.mtime_nsec());
        Ok(FileState { identity: self.identity, changed, len: found.size() })
    }

    /// Its build id; empty if it has none, and `None` if it is no 64-bit binary for this machine, or cannot
    /// be read. Little of the file is read, whatever it is.
    pub fn build_id(&self) -> Option<Vec<u8>> {
        head::build_id(&self.reopen().ok()?)
    }

    /// The name that other binaries have for it, if it is a shared library.
    pub(super) fn soname(&self) -> Option<Vec<u8>> {
        head::soname(&self.reopen().ok()?)
    }

    /// The same file, with an offset of its own.
    pub(super) fn reopen(&self) -> Result<File, BinaryError> {
        let failed = |source| BinaryError::Io { path: self.path.clone(), source };
        open_again(&self.file).map_err(failed)
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
    /// This process's, which is opened once.
    pub(super) fn own() -> io::Result<Self> {
        static OWN: OnceLock<Root> = OnceLock::new();
        if let Some(own) = OWN.get() {
            return Ok(own.clone());
        }
        let own = Self::open(Path::new("/"))?;
        Ok(OWN.get_or_init(|| own).clone())
    }

    /// Whether it is this process's, by the mount that it is of, too.
    fn is_own(&self) -> bool {
        let of = |root: &Self| {
            let wanted = StatxFlags::INO | StatxFlags::MNT_ID;
            let found = rustix::fs::statx(&root.dir, "", AtFlags::EMPTY_PATH, wanted).ok()?;
            // Since Linux 5.8.
            let has_mount = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID);
            let device = (found.stx_dev_major, found.stx_dev_minor);
            has_mount.then_some((device, found.stx_ino, found.stx_mnt_id))
        };
        let own = Self::own().ok().and_then(|own| of(&own));
        own.is_some() && own == of(self)
    }

    /// The file that is at a path of this root for this process, too. Where this is another root, the path is
    /// one that others choose: it does not leave the mount of the own root, as what is mounted below may not
    /// answer, or be mounted because somebody looks.
    pub(super) fn look_in_own(&self, inside: &Path) -> Option<Held> {
        let own = Self::own().ok()?;
        if self.is_own() {
            return own.look(inside);
        }
        let flags = ResolveFlags::IN_ROOT | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
        own.find_by(inside, flags).ok()?
    }

    /// A path without symbolic links in front of its last part.
    pub(super) fn canonical(&self, inside: &Path) -> Option<PathBuf> {
        let parent = inside.parent()?;
        let parent =
            parent.strip_prefix("/").ok().filter(|path| path != &Path::new("")).unwrap_or(Path::new("."));
        let flags = FINDING | OFlags::DIRECTORY;
        let dir = rustix::fs::openat2(&self.dir, parent, flags, Mode::empty(), ResolveFlags::IN_ROOT).ok()?;
        Some(self.inside(&File::from(dir))?.join(inside.file_name()?))
    }

    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let dir = rustix::fs::open(path, FINDING | OFlags::DIRECTORY, Mode::empty())?;
        Ok(Self { dir: Arc::new(dir.into()), path: path.to_owned() })
    }

    /// The root directory of a process, whose directory in `/proc` is open; `path` is what it is called.
    pub(super) fn of_process(process: BorrowedFd<'_>, path: &Path) -> io::Result<Self> {
        let flags = FINDING | OFlags::DIRECTORY;
        let dir = rustix::fs::openat(process, "root", flags, Mode::empty())?;
        Ok(Self { dir: Arc::new(dir.into()), path: path.to_owned() })
    }

    /// Finds a file as whoever has this root would, whose symbolic links do not lead out of it.
    fn find(&self, inside: &Path) -> io::Result<Option<Held>> {
        self.find_by(inside, ResolveFlags::IN_ROOT)
    }

    fn find_by(&self, inside: &Path, how: ResolveFlags) -> io::Result<Option<Held>> {
        let inside = inside.strip_prefix("/").unwrap_or(inside);
        Held::of(rustix::fs::openat2(&self.dir, inside, FINDING, Mode::empty(), how))
    }

    /// Opens a regular file; `None` where there is none. The path is how it is shown.
    pub(super) fn open_regular(&self, inside: &Path) -> Option<Found> {
        let held = self.look(inside).filter(|held| !held.is_empty())?;
        Some(Found { identity: held.identity, file: held.open().ok()?, path: below(&self.path, inside) })
    }

    /// The regular file at a path; `None` where there is none.
    pub(super) fn look(&self, inside: &Path) -> Option<Held> {
        self.find(inside).ok()?
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
            let identity = || Some(Identity::of(file_system_of(file).ok()?, &file.metadata().ok()?));
            self.look(&inside).is_none_or(|here| identity() != Some(here.identity))
        });
        Some(bare.map_or_else(|| inside.clone(), Path::to_owned))
    }

    fn path_of(&self, file: &File) -> Option<PathBuf> {
        self.inside(file).map(|inside| below(&self.path, &inside))
    }
}

/// The regular file that a link in the open directory of a process leads to.
pub(super) fn look_at(process: BorrowedFd<'_>, link: &Path) -> Option<Held> {
    Held::of(rustix::fs::openat(process, link, FINDING, Mode::empty())).ok()?
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

    /// What is no regular file is not even opened: a device could take that for something.
    #[test]
    fn nothing_happens_to_what_is_no_file() {
        use rustix::fs::inotify;
        let dir = tempfile::tempdir().unwrap();
        let (pipe, link) = (dir.path().join("pipe"), dir.path().join("link"));
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        symlink("pipe", &link).unwrap();
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&watch, &pipe, inotify::WatchFlags::OPEN).unwrap();
        let mut event = [0_u8; 256];
        let mut is_seen = || rustix::io::read(&watch, &mut event).is_ok();
        // Kernels before 6.8 announce an opening also where nothing is opened.
        drop(rustix::fs::open(&pipe, FINDING, Mode::empty()).unwrap());
        let is_always_seen = is_seen();
        let root = Root::open(dir.path()).unwrap();
        for name in ["pipe", "link"] {
            let path = dir.path().join(name);
            assert!(matches!(OpenBinary::open(&path), Err(BinaryError::NotRegular { .. })));
            let below = OpenBinary::below(dir.path(), Path::new(name));
            assert!(matches!(below, Err(BinaryError::NotRegular { .. })));
            let linked = OpenBinary::linked(&path, dir.path(), Path::new(name));
            assert!(matches!(linked, Err(BinaryError::NotRegular { .. })));
            assert!(root.open_regular(Path::new(name)).is_none());
            assert_eq!(FileState::at(&path).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        assert!(is_always_seen || !is_seen());
        // It would have been seen.
        drop(rustix::fs::open(&pipe, READING, Mode::empty()).unwrap());
        assert!(is_seen());
    }

    #[test]
    fn a_file_is_looked_at_as_it_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "content").unwrap();
        let state = FileState::at(&path).unwrap();
        let binary = OpenBinary::open(&path).unwrap();
        assert_eq!((state.identity, state.len), (binary.identity(), 7));
        assert_eq!(state, binary.state().unwrap());
        let inside = path.canonicalize().unwrap();
        let by_process = format!("/proc/{}/root{}", std::process::id(), inside.display());
        assert_eq!(FileState::at(Path::new(&by_process)).unwrap(), state);
        fs::remove_file(&path).unwrap();
        assert_eq!(FileState::at(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    /// They would be regular files by their type.
    #[test]
    fn files_of_the_kernel_are_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::own().unwrap();
        let mut targets =
            vec!["/proc/version", "/proc/self/maps", "/sys/kernel/mm/transparent_hugepage/enabled"];
        targets.extend(["/sys/kernel/tracing/trace_pipe", "/sys/kernel/debug/tracing/trace_pipe"]);
        // Not everybody may see all of them.
        for target in targets.into_iter().filter(|target| Path::new(target).exists()) {
            let link = dir.path().join(target.replace('/', "_"));
            symlink(target, &link).unwrap();
            for path in [Path::new(target), &link] {
                assert!(matches!(OpenBinary::open(path), Err(BinaryError::NotRegular { .. })), "{target}");
                assert!(root.open_regular(path).is_none(), "{target}");
                assert!(FileState::at(path).is_err(), "{target}");
            }
        }
    }

    #[test]
    fn an_empty_file_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("empty");
        fs::write(&path, "").unwrap();
        assert!(matches!(OpenBinary::open(&path), Err(BinaryError::NotElf { .. })));
        assert!(Root::open(dir.path()).unwrap().open_regular(Path::new("empty")).is_none());
    }

    #[test]
    fn links_in_front_of_a_name_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().canonicalize().unwrap();
        fs::create_dir_all(inside.join("usr/lib")).unwrap();
        symlink("/usr/lib", inside.join("lib")).unwrap();
        let root = Root::open(&inside).unwrap();
        let canonical = |path: &str| root.canonical(Path::new(path));
        // Whether it is there or not.
        assert_eq!(canonical("/lib/gone"), Some(PathBuf::from("/usr/lib/gone")));
        assert_eq!(canonical("/gone"), Some(PathBuf::from("/gone")));
        assert_eq!(canonical("/no/gone"), None);
        assert!(Root::own().unwrap().is_own() && !root.is_own());
        fs::write(inside.join("usr/lib/file"), "content").unwrap();
        let path = inside.join("usr/lib/file");
        let found = Root::own().unwrap().look_in_own(&path).unwrap();
        assert_eq!(found.identity, root.look(Path::new("/lib/file")).unwrap().identity);
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
