//! A directory that is held open.
//!
//! Every operation is on one name in it, through its descriptor (openat(2) and the like): it stays the same
//! directory even if it is renamed or exchanged meanwhile. Symbolic links are never followed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Stat, StatxAttributes, StatxFlags, fstat,
    fstatvfs, fsync, mkdirat, openat, renameat, renameat_with, statat, statx, unlinkat,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{FileMode, libc_mode::OTHERS_WRITE, own_user};

/// Mode of a directory that is nobody else's business.
pub const MODE_PRIVATE: u32 = 0o700;
/// The deepest tree that is removed. Nothing that is written here has more than three.
const DEPTH_MAX: usize = 64;

/// What a file is, whatever its names are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The file system.
    pub dev: u64,
    /// The inode there.
    pub ino: u64,
}

impl Identity {
    /// The identity that `stat` reports.
    pub fn of(stat: &Stat) -> Self {
        Self { dev: stat.st_dev, ino: stat.st_ino }
    }

    /// The identity of an open file.
    pub fn of_file(file: impl AsFd) -> io::Result<Self> {
        Ok(Self::of(&fstat(file)?))
    }
}

/// What a directory is, for processes that come later: its inode, which another one may have when it has
/// gone, and when it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Birth {
    ino: u64,
    seconds: i64,
    nanoseconds: u32,
}

/// A directory, by descriptor. Clones share it.
#[derive(Clone, Debug)]
pub struct Directory {
    fd: Arc<OwnedFd>,
    /// For messages; empty for the working directory.
    path: PathBuf,
}

impl Directory {
    /// Opens the directory that `path` leads to, following all links.
    ///
    /// # Errors
    /// There is none.
    pub fn open(path: &Path) -> io::Result<Self> {
        let fd = openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self::new(fd, path.to_owned()))
    }

    /// Creates a directory and those above it that are missing, with the mode of this process ([`FileMode`]).
    ///
    /// # Errors
    /// Something else has a name, or nothing can be created there.
    pub fn create_all(path: &Path) -> io::Result<()> {
        if path.as_os_str().is_empty() || path.is_dir() {
            return Ok(());
        }
        let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Self::create_all(above)?;
        match Self::open(above)?.create_dir(name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            created => created.map(drop),
        }
    }

    /// `fd` must be a directory's.
    pub(super) fn new(fd: OwnedFd, path: PathBuf) -> Self {
        Self { fd: Arc::new(fd), path }
    }

    /// Where it was found, for messages.
    pub fn path(&self) -> &Path {
        if self.path.as_os_str().is_empty() { Path::new(".") } else { &self.path }
    }

    /// Where `name` in it is, for messages.
    pub fn join(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path.join(name.as_ref())
    }

    /// A path to a name in it, for libraries that open files themselves: it leads here as long as this is
    /// open (proc_pid_fd(5)).
    pub fn path_by_descriptor(&self, name: &str) -> PathBuf {
        let fd = std::os::fd::AsRawFd::as_raw_fd(&*self.fd);
        PathBuf::from(format!("/proc/self/fd/{fd}/{name}"))
    }

    /// The same directory, which is now found under another name.
    #[must_use]
    pub fn moved_to(self, path: PathBuf) -> Self {
        Self { fd: self.fd, path }
    }

    /// Its descriptor, for another process.
    pub fn descriptor(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    /// The one whose descriptor another process had.
    pub fn of_descriptor(fd: OwnedFd, path: PathBuf) -> Self {
        Self::new(fd, path)
    }

    /// The status of the directory.
    pub fn status(&self) -> io::Result<Stat> {
        Ok(fstat(&self.fd)?)
    }

    /// What the standard library knows of it.
    pub fn metadata(&self) -> io::Result<std::fs::Metadata> {
        File::from(self.open_itself()?).metadata()
    }

    /// The identity of the directory.
    pub fn identity(&self) -> io::Result<Identity> {
        Identity::of_file(&self.fd)
    }

    /// What it is, for processes that come later; `None` if its file system does not know when it was made.
    ///
    /// # Errors
    /// Its status cannot be read.
    pub fn birth(&self) -> io::Result<Option<Birth>> {
        let wanted = StatxFlags::INO | StatxFlags::BTIME;
        let found = statx(&self.fd, "", AtFlags::EMPTY_PATH, wanted)?;
        let is_known = StatxFlags::from_bits_retain(found.stx_mask).contains(wanted);
        let (ino, at) = (found.stx_ino, found.stx_btime);
        Ok(is_known.then_some(Birth { ino, seconds: at.tv_sec, nanoseconds: at.tv_nsec }))
    }

    /// Bytes that are free on its file system.
    ///
    /// # Errors
    /// The file system does not say.
    pub fn free_bytes(&self) -> io::Result<u64> {
        let stat = fstatvfs(&self.fd)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// What has this name, be it a link to nothing.
    pub fn look(&self, name: &OsStr) -> io::Result<Option<Stat>> {
        match statat(&self.fd, one_name(name)?, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether this very file has the name.
    pub fn has(&self, name: &OsStr, identity: Identity) -> io::Result<bool> {
        Ok(self.look(name)?.is_some_and(|there| Identity::of(&there) == identity))
    }

    /// The attributes of an entry, or of the directory itself; none where the file system has none.
    pub(super) fn attributes(&self, name: Option<&OsStr>) -> io::Result<StatxAttributes> {
        let found = match name {
            Some(name) => statx(&self.fd, one_name(name)?, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty())?,
            None => statx(&self.fd, "", AtFlags::EMPTY_PATH, StatxFlags::empty())?,
        };
        Ok(found.stx_attributes)
    }

    /// Opens a directory in it.
    ///
    /// # Errors
    /// There is none of that name, or it is a link.
    pub fn open_dir(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = one_name(name.as_ref())?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self::new(openat(&self.fd, name, flags, Mode::empty())?, self.join(name)))
    }

    /// Creates a directory in it, with the mode of this process ([`FileMode`]).
    ///
    /// # Errors
    /// The name is taken, or nothing can be created here.
    pub fn create_dir(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let mode = FileMode::of_process();
        let bits = mode.directory();
        let created = self.create_dir_with(name.as_ref(), mode.at_first(bits).as_raw_mode())?;
        mode.give(created.open_itself()?, bits)?;
        Ok(created)
    }

    /// Creates a directory with this mode, and opens it.
    pub fn create_dir_with(&self, name: &OsStr, mode: u32) -> io::Result<Self> {
        mkdirat(&self.fd, one_name(name)?, Mode::from_raw_mode(mode))?;
        self.open_created(name, mode)
    }

    /// Opens a directory that was just created with this mode. Where others may rename what is in here,
    /// another one may have come in its place, of theirs or of ours: it must be as a new one is, for whoever
    /// created it clears it in the end.
    pub(super) fn open_created(&self, name: &OsStr, mode: u32) -> io::Result<Self> {
        let dir = self.open_dir(name)?;
        let own = own_user();
        let parent = self.status()?;
        let shared = parent.st_mode & OTHERS_WRITE != 0 || (parent.st_uid != own && parent.st_uid != 0);
        if !shared {
            return Ok(dir);
        }
        let status = dir.status()?;
        let is_new = status.st_uid == own && status.st_mode & OTHERS_WRITE & !mode == 0;
        if !is_new || !dir.names()?.is_empty() {
            return Err(io::Error::other(
                "another user put a directory in the place of the one that was created",
            ));
        }
        Ok(dir)
    }

    /// Creates a file of which nobody else knows, for reading and writing, with the mode of this process
    /// ([`FileMode`]).
    ///
    /// # Errors
    /// The name is taken, or nothing can be created here.
    pub fn create(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        self.create_with(name, FileMode::of_process())
    }

    /// As [`Directory::create`], with this mode.
    pub(super) fn create_with(&self, name: impl AsRef<OsStr>, mode: FileMode) -> io::Result<File> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let created = openat(&self.fd, one_name(name.as_ref())?, flags, mode.at_first(mode.file()))?;
        mode.give(&created, mode.file())?;
        Ok(created.into())
    }

    /// Whether files can be created in it.
    ///
    /// # Errors
    /// They cannot.
    pub fn check_writable(&self) -> io::Result<()> {
        self.create_unnamed().map(drop)
    }

    /// Creates a file without a name on its file system, which is gone when it is closed.
    ///
    /// # Errors
    /// Nothing can be created here.
    pub fn create_unnamed(&self) -> io::Result<File> {
        const MODE: Mode = Mode::RUSR.union(Mode::WUSR);
        match openat(&self.fd, ".", OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, MODE) {
            Ok(fd) => return Ok(fd.into()),
            // The file system does not have it (open(2)).
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut number = 0;
        loop {
            let name = super::temporary_name(OsStr::new("tracer-agent"), "tmp", number);
            match openat(&self.fd, &name, flags, MODE) {
                Ok(fd) => {
                    self.remove(&name)?;
                    return Ok(fd.into());
                }
                Err(Errno::EXIST) => number += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Creates a file in the place of one that may be there.
    ///
    /// # Errors
    /// That one cannot be removed, or nothing can be created here.
    pub fn replace(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        match self.remove(name.as_ref()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => self.create(name),
        }
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// There is none of that name, or something that is no regular file.
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        self.open_regular(name.as_ref(), OFlags::RDONLY)
    }

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// As [`Directory::open_file`], or it cannot be written.
    pub fn open_for_writing(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        self.open_regular(name.as_ref(), OFlags::RDWR)
    }

    fn open_regular(&self, name: &OsStr, access: OFlags) -> io::Result<File> {
        // A pipe would wait for its other end.
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = openat(&self.fd, one_name(name)?, flags, Mode::empty())?;
        if FileType::from_raw_mode(fstat(&fd)?.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        Ok(fd.into())
    }

    /// The content of a file.
    ///
    /// # Errors
    /// As [`Directory::open_file`], or it cannot be read.
    pub fn read(&self, name: impl AsRef<OsStr>) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open_file(name)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// The content of a file of at most `max` bytes.
    ///
    /// # Errors
    /// As for [`Directory::read`], or it is longer.
    pub fn read_within(&self, name: impl AsRef<OsStr>, max: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open_file(name)?.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > max {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {max} bytes")));
        }
        Ok(bytes)
    }

    /// Writes a new file.
    ///
    /// # Errors
    /// The name is taken, or the disk is full; part of the file may be there then.
    pub fn write(&self, name: impl AsRef<OsStr>, bytes: &[u8]) -> io::Result<()> {
        self.create(name)?.write_all(bytes)
    }

    /// Lets `write` write a file, which has its name when it is complete, or is not there at all: a file that
    /// was cut short must not be taken for whole.
    ///
    /// # Errors
    /// Those of `write`, or the file cannot be created or named.
    pub fn write_whole<T>(
        &self,
        name: &str,
        write: impl FnOnce(&mut File) -> io::Result<T>,
    ) -> io::Result<T> {
        let temporary = format!("{name}.new");
        let mut file = self.replace(&temporary)?;
        let written = write(&mut file).and_then(|result| {
            self.rename(temporary.as_ref(), self, name.as_ref())?;
            Ok(result)
        });
        if written.is_err() {
            // It has no name that anybody looks for.
            let _ = self.remove(&temporary);
        }
        written
    }

    /// The names in it, in no order.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::new(self.open_itself()?)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    /// Gives an entry another name, in `to`, where it replaces a file or an empty directory.
    ///
    /// # Errors
    /// Those of renameat(2).
    pub fn rename(&self, name: &OsStr, to: &Self, new: &OsStr) -> io::Result<()> {
        Ok(renameat(&self.fd, one_name(name)?, &to.fd, one_name(new)?)?)
    }

    /// Gives an entry another name, in `to`, which nothing has there.
    ///
    /// # Errors
    /// Those of renameat2(2) with `RENAME_NOREPLACE`, which some network file systems do not have.
    pub fn rename_new(&self, name: &OsStr, to: &Self, new: &OsStr) -> io::Result<()> {
        Ok(renameat_with(&self.fd, one_name(name)?, &to.fd, one_name(new)?, RenameFlags::NOREPLACE)?)
    }

    /// Removes an entry that is no directory.
    ///
    /// # Errors
    /// Those of unlinkat(2).
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(unlinkat(&self.fd, one_name(name.as_ref())?, AtFlags::empty())?)
    }

    /// Removes `dir` and everything in it. It has this name here; if something else has it by now, that
    /// stays.
    ///
    /// # Errors
    /// Something cannot be removed; the rest may be gone.
    pub fn remove_tree(&self, name: impl AsRef<OsStr>, dir: &Self) -> io::Result<()> {
        let name = one_name(name.as_ref())?;
        dir.clear(DEPTH_MAX)?;
        self.remove_empty(name, dir)
    }

    /// Removes `dir`, in which nothing is. It has this name here; if something else has it by now, that
    /// stays.
    ///
    /// # Errors
    /// Something is in it, or it cannot be removed.
    pub fn remove_empty(&self, name: &OsStr, dir: &Self) -> io::Result<()> {
        let name = one_name(name)?;
        if self.has(name, dir.identity()?)? {
            unlinkat(&self.fd, name, AtFlags::REMOVEDIR)?;
        }
        Ok(())
    }

    fn clear(&self, depth: usize) -> io::Result<()> {
        if depth == 0 {
            return Err(io::Error::other("its directories are nested too deeply"));
        }
        for entry in self.names()? {
            match unlinkat(&self.fd, &entry, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR) => {
                    self.open_dir(&entry)?.clear(depth - 1)?;
                    unlinkat(&self.fd, &entry, AtFlags::REMOVEDIR)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Brings its names to the disk. A file system that cannot do so has no such step.
    pub fn sync(&self) {
        if let Ok(dir) = self.open_itself() {
            let _ = fsync(dir);
        }
    }

    /// A descriptor that can be read. A directory that one may only write to has none.
    pub fn open_itself(&self) -> io::Result<OwnedFd> {
        Ok(openat(&self.fd, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A name, which must not lead anywhere else. Some come from recordings.
fn one_name(name: &OsStr) -> io::Result<&OsStr> {
    let bytes = name.as_bytes();
    if matches!(bytes, b"" | b"." | b"..") || bytes.contains(&b'/') {
        let text = format!("{:?} is not a name in a directory", name.to_string_lossy());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(name)
}
