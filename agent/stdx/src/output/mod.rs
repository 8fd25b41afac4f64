//! Where files are written: directories by descriptor, and files that are renamed into place when they are
//! complete.
//!
//! | file | subject |
//! |---|---|
//! | `directory` | a directory that is held open, and what is done in it |
//! | `lock` | files that one process at a time locks |
//! | `mode` | the mode of new files and directories |
//! | `resolve` | from a path to a directory and a name, and whose symbolic links are followed |
//! | `temp` | a file beside its final place, which is renamed when it is complete |
//!
//! Whoever may write to a directory can put a symbolic link, a directory or a pipe under the name that is
//! about to be written, and exchange it for something else at any moment. So a path is resolved once; from
//! there on only names in open directories are used, none of which is ever followed.

mod directory;
mod lock;
mod mode;
pub mod resolve;
mod temp;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat, StatxAttributes};
use rustix::thread::CapabilitySet;

pub use directory::Directory;
pub use directory::{Birth, Identity, MODE_PRIVATE};
pub use lock::{LockedFile, is_ending};
pub use mode::{FileMode, FileModeError};
pub use resolve::{Links, Resolved, resolve};
pub use temp::TempFile;
pub use temp::put_in_place;
pub use temp::temporary_name;

/// Why nothing can be written there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
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
    /// The directory of the output is not there.
    #[error("the directory {path} does not exist; create it, or name another file", path = .path.display())]
    NoDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// A directory has the name.
    #[error("{path} is a directory; name a file in it", path = .path.display())]
    IsDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// Something else has the name of a directory that is to be used.
    #[error("{path} is not a directory, and the files of a recording that rotates go into one; name another with -o", path = .path.display())]
    NotADirectory {
        /// What is there.
        path: PathBuf,
    },
    /// There is something in a directory that is to be a trace.
    #[error("{path} is not empty, and a trace needs a directory of its own; name another with -o", path = .path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// A device, a pipe or the like has the name.
    #[error("{path} is not a regular file, and the finished one takes its place; name another file", path = .path.display())]
    NotRegular {
        /// What is there.
        path: PathBuf,
    },
    /// A symbolic link that somebody else may have put there.
    #[error(
        "{path} is a symbolic link of user {owner}, and somebody else than the user that runs this may have put it there: it may lead \
         to a file that is not to be overwritten, and is not followed; remove it, or name another file",
        path = .path.display()
    )]
    ForeignLink {
        /// The link.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// A link of procfs, which leads to an open file and not to a name.
    #[error("{path} leads to an open file of a process, not to a name in a directory; name the file itself", path = .path.display())]
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
    /// The file that is there can be removed by nobody, or not by us.
    #[error("{path} cannot be replaced: {why}", path = .path.display())]
    Fixed {
        /// The file.
        path: PathBuf,
        /// Why, and what helps.
        why: String,
    },
    /// Somebody else who may write to the directory was faster.
    #[error(
        "{path} is not the file that was written: somebody else who may write to its directory exchanged it",
        path = .path.display()
    )]
    Exchanged {
        /// The output.
        path: PathBuf,
    },
}

impl OutputError {
    /// For `map_err`: a failure of `action` on `path`.
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}

/// Where a file is to be written: a name in a directory that is open.
#[derive(Clone, Debug)]
pub struct Output {
    dir: Directory,
    name: OsString,
}

impl Output {
    /// The output that `path` names. Symbolic links are followed if they belong to the user that runs this,
    /// to root, or to the owner of the directory that they are in; what they lead to is resolved by the same
    /// rules. What is there must be something that can be replaced when the file is complete.
    ///
    /// # Errors
    /// The directory does not exist; a link is not to be trusted; what is there is no regular file, or cannot
    /// be replaced.
    pub fn at(path: &Path) -> Result<Self, OutputError> {
        if path.as_os_str().as_bytes().ends_with(b"/") {
            return Err(OutputError::IsDirectory { path: path.to_owned() });
        }
        let Resolved { dir, name } = resolve(path, Links::Follow)?;
        match name {
            Some(name) => Self::in_directory(dir, name),
            None => Err(OutputError::IsDirectory { path: path.to_owned() }),
        }
    }

    /// The output `name` in `dir`. A symbolic link of that name is replaced, not followed.
    ///
    /// # Errors
    /// What is there is no file, or cannot be replaced.
    pub fn in_directory(dir: Directory, name: OsString) -> Result<Self, OutputError> {
        let output = Self { dir, name };
        let there = output.existing().map_err(OutputError::io("look at", output.path()))?;
        match there.map(|there| (FileType::from_raw_mode(there.st_mode), there)) {
            None => output.check_directory()?,
            Some((FileType::Directory, _)) => return Err(OutputError::IsDirectory { path: output.path() }),
            Some((FileType::RegularFile | FileType::Symlink, there)) => {
                output.check_directory()?;
                output.check_replaceable(&there)?;
            }
            Some(_) => return Err(OutputError::NotRegular { path: output.path() }),
        }
        Ok(output)
    }

    /// The one that another process had, which has looked at what is there.
    pub fn taken_over(dir: Directory, name: OsString) -> Self {
        Self { dir, name }
    }

    /// The directory.
    pub fn directory(&self) -> &Directory {
        &self.dir
    }

    /// The name in the directory.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// The path, for messages. Links that were followed are not in it.
    pub fn path(&self) -> PathBuf {
        self.dir.join(&self.name)
    }

    /// Whether the file at `path` is the one that is there now, whatever its name is.
    pub fn is_same_file(&self, path: &Path) -> bool {
        let identity = path.metadata().map(|meta| Identity { dev: meta.dev(), ino: meta.ino() });
        let there = self.existing().ok().flatten();
        there.is_some_and(|there| identity.is_ok_and(|identity| identity == Identity::of(&there)))
    }

    /// Whether something has the name now. What cannot be looked at counts as there.
    pub fn is_taken(&self) -> bool {
        self.existing().map_or(true, |there| there.is_some())
    }

    fn existing(&self) -> io::Result<Option<Stat>> {
        self.dir.look(&self.name)
    }

    /// Whether names in the directory can be given and taken. Whether this user may do so shows when the
    /// first file is created.
    fn check_directory(&self) -> Result<(), OutputError> {
        check_names(&self.dir)
    }

    fn check_replaceable(&self, there: &Stat) -> Result<(), OutputError> {
        check_entry(&self.dir, &self.name, there)
    }
}

/// The directory that a path leads to, by the rules of [`Output::at`].
pub fn directory_at(path: &Path) -> Result<Directory, OutputError> {
    let Resolved { dir, name } = resolve(path, Links::Follow)?;
    let Some(name) = name else { return Ok(dir) };
    match dir.open_dir(&name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(OutputError::NoDirectory { path: path.to_owned() })
        }
        opened => opened.map_err(OutputError::io("open", path)),
    }
}

/// Fails for a directory whose names are fixed by an attribute (chattr(1)).
pub fn check_names(dir: &Directory) -> Result<(), OutputError> {
    let attributes = dir.attributes(None).unwrap_or(StatxAttributes::empty());
    let fixed = |why: &str| Err(OutputError::Fixed { path: dir.path().to_owned(), why: why.to_owned() });
    if attributes.contains(StatxAttributes::IMMUTABLE) {
        return fixed("the directory is immutable; `chattr -i` changes that");
    }
    if attributes.contains(StatxAttributes::APPEND) {
        return fixed(
            "the directory is append-only, and nothing in it can be renamed; `chattr -a` changes that",
        );
    }
    Ok(())
}

/// Fails for an entry of `dir` that cannot be replaced by renaming.
pub fn check_entry(dir: &Directory, name: &OsStr, there: &Stat) -> Result<(), OutputError> {
    let fixed = |why: String| Err(OutputError::Fixed { path: dir.join(name), why });
    let attributes = dir.attributes(Some(name)).unwrap_or(StatxAttributes::empty());
    if attributes.contains(StatxAttributes::IMMUTABLE) {
        return fixed("it is immutable; `chattr -i` changes that, or name another file".to_owned());
    }
    if attributes.contains(StatxAttributes::APPEND) {
        return fixed("it is append-only; `chattr -a` changes that, or name another file".to_owned());
    }
    if attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return fixed("something is mounted there; unmount it, or name another file".to_owned());
    }
    let parent = dir.status().map_err(OutputError::io("look at", dir.path()))?;
    let own = own_user();
    let sticky = parent.st_mode & libc_mode::STICKY != 0;
    if sticky && there.st_uid != own && parent.st_uid != own && !may_act_as_owner() {
        return fixed(format!(
            "it belongs to user {}, and only owners may replace files in this directory (its sticky bit is set); name another file",
            there.st_uid
        ));
    }
    Ok(())
}

/// The user that files which this thread creates belong to: the file system's user id of the thread, which in
/// a session daemon is that of a session's user (credentials(7)).
pub fn own_user() -> u32 {
    // An id that no user can have changes nothing and tells what there is (setfsuid(2)).
    nix::unistd::setfsuid(nix::unistd::Uid::from_raw(u32::MAX)).as_raw()
}

/// Whether a directory belongs to the user that files of this thread belong to, and nobody else can write to
/// it.
pub fn is_own(dir: &Directory) -> io::Result<bool> {
    let status = dir.status()?;
    Ok(status.st_uid == own_user() && status.st_mode & libc_mode::OTHERS_WRITE == 0)
}

/// Bits of `st_mode` (inode(7)).
pub mod libc_mode {
    /// `S_ISVTX`: only owners remove and rename.
    pub(crate) const STICKY: u32 = 0o1000;
    /// `S_IWGRP | S_IWOTH`: others than the owner may write.
    pub const OTHERS_WRITE: u32 = 0o022;
}

/// `CAP_FOWNER` (capabilities(7)). Where it cannot be asked for, the kernel refuses at the end.
fn may_act_as_owner() -> bool {
    rustix::thread::capabilities(None).map_or(true, |sets| sets.effective.contains(CapabilitySet::FOWNER))
}

#[cfg(test)]
mod tests;
