//! From a path to a directory and a name in it.
//!
//! The path is walked name by name, each opened below the directory before it, so that what is checked is
//! what is used. The rule for symbolic links is that of the kernel's `fs.protected_symlinks`, which not every
//! system sets and which applies to sticky directories only: a link is followed if it belongs to whoever
//! follows it, to root, or to the owner of the directory that it is in.
//!
//! Where others than the owner of a directory can write to it, sticky or not, owners prove less. A directory
//! of another user in it may have been planted, and that user owns the links in it, too: below it the owner
//! of the directory does not count. And another name of a link can be put there (link(2)), whoever the link
//! belongs to: there a link with several names is not followed.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, openat, readlinkat};
use rustix::io::Errno;

use super::libc_mode::OTHERS_WRITE;
use super::{Directory, OutputError, own_user};

/// As many links as the kernel follows (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;
/// Owner of everything whose owner has no number in this user namespace (`fs.overflowuid`): they may differ.
const UNKNOWN_OWNER: u32 = 65534;

/// Whether a link that is the path's last name is followed. Those before it always are, or the path leads
/// nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// It is.
    Follow,
    /// It is what the path names.
    Keep,
}

/// What a path leads to.
#[derive(Debug)]
pub struct Resolved {
    /// The directory.
    pub dir: Directory,
    /// A name in it, which need not be there; `None` if the path names the directory itself.
    pub name: Option<OsString>,
}

/// A name that is still to be walked.
enum Part {
    Root,
    Parent,
    Name(OsString),
}

/// Resolves a path.
///
/// # Errors
/// A directory on the way does not exist, or a link is not to be trusted.
pub fn resolve(path: &Path, links: Links) -> Result<Resolved, OutputError> {
    let mut walk = Walk { dir: open_dir(Path::new("."), "")?, planted: false, links: 0 };
    let mut pending = parts(path);
    while let Some(part) = pending.pop() {
        match part {
            Part::Root => {
                walk.dir = open_dir(Path::new("/"), "/")?;
                walk.planted = false;
            }
            Part::Parent => walk.up()?,
            Part::Name(name) => {
                let last = pending.is_empty();
                if last && links == Links::Keep {
                    return Ok(Resolved { dir: walk.dir, name: Some(name) });
                }
                match walk.step(&name, last, path)? {
                    Step::Down => {}
                    Step::End => return Ok(Resolved { dir: walk.dir, name: Some(name) }),
                    Step::Link(target) => pending.append(&mut parts(&target)),
                }
            }
        }
    }
    Ok(Resolved { dir: walk.dir, name: None })
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

fn open_dir(path: &Path, shown: &str) -> Result<Directory, OutputError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = openat(CWD, path, flags, Mode::empty()).map_err(|e| OutputError::io("open", path)(e.into()))?;
    Ok(Directory::new(fd, shown.into()))
}

/// Where a name led.
enum Step {
    /// To a directory, which is the one to go on from.
    Down,
    /// To the end of the path.
    End,
    /// To a link that leads there.
    Link(PathBuf),
}

struct Walk {
    dir: Directory,
    /// Whether the way led through a directory that its owner could put where others may: that its links
    /// belong to its owner says nothing.
    planted: bool,
    links: usize,
}

impl Walk {
    fn up(&mut self) -> Result<(), OutputError> {
        let path = self.dir.join("..");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(self.dir.as_fd(), "..", flags, Mode::empty());
        self.dir = Directory::new(fd.map_err(|e| OutputError::io("open", &path)(e.into()))?, path);
        Ok(())
    }

    fn step(&mut self, name: &OsString, last: bool, whole: &Path) -> Result<Step, OutputError> {
        let path = self.dir.join(name);
        let failed = |error: Errno| OutputError::io("open", &path)(error.into());
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match openat(self.dir.as_fd(), name, flags, Mode::empty()) {
            Err(Errno::NOENT) if last => return Ok(Step::End),
            Err(Errno::NOENT) => return Err(OutputError::NoDirectory { path }),
            other => other.map_err(failed)?,
        };
        let there = fstat(&fd).map_err(failed)?;
        match FileType::from_raw_mode(there.st_mode) {
            FileType::Symlink => {
                self.links += 1;
                if self.links > LINKS_MAX {
                    return Err(OutputError::TooManyLinks { path: whole.to_owned() });
                }
                self.follow(name, &path, &fd, &there, last)
            }
            _ if last => Ok(Step::End),
            FileType::Directory => {
                let parent = self.dir.status().map_err(OutputError::io("look at", &path))?;
                self.planted |= is_open_to_others(&parent) && !is_trusted(&there, &parent);
                self.dir = Directory::new(fd, path);
                Ok(Step::Down)
            }
            _ => Err(failed(Errno::NOTDIR)),
        }
    }

    fn follow(
        &mut self,
        name: &OsString,
        path: &Path,
        link: &OwnedFd,
        there: &Stat,
        last: bool,
    ) -> Result<Step, OutputError> {
        let failed = |error: Errno| OutputError::io("follow", path)(error.into());
        if fstatfs(link).map_err(failed)?.f_type == PROC_SUPER_MAGIC {
            // What the kernel leads to need not have a name here: the text of the link says less than
            // following it.
            if last {
                return Err(OutputError::ProcessLink { path: path.to_owned() });
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let fd = openat(self.dir.as_fd(), name, flags, Mode::empty()).map_err(failed)?;
            self.dir = Directory::new(fd, path.to_owned());
            return Ok(Step::Down);
        }
        let parent = self.dir.status().map_err(OutputError::io("look at", path))?;
        if !may_follow(there, &parent, self.planted) {
            return Err(OutputError::ForeignLink { path: path.to_owned(), owner: there.st_uid });
        }
        let target = readlinkat(link, "", Vec::new()).map_err(failed)?.into_bytes();
        if target.is_empty() {
            return Err(OutputError::io("follow", path)(io::ErrorKind::InvalidData.into()));
        }
        Ok(Step::Link(OsString::from_vec(target).into()))
    }
}

/// Whether others than its owner may put something into the directory. Without sticky bit they may also
/// rename and remove what is in it.
fn is_open_to_others(dir: &Stat) -> bool {
    dir.st_mode & OTHERS_WRITE != 0
}

fn is_ours(there: &Stat) -> bool {
    there.st_uid == own_user() || there.st_uid == 0
}

/// Whether an entry belongs to us, to root, or to the owner of its directory.
fn is_trusted(there: &Stat, dir: &Stat) -> bool {
    is_ours(there) || (there.st_uid == dir.st_uid && there.st_uid != UNKNOWN_OWNER)
}

fn may_follow(link: &Stat, dir: &Stat, planted: bool) -> bool {
    // A link of ours can be somebody else's choice: hard links to it can be put where others may write
    // (`fs.protected_hardlinks`).
    if is_open_to_others(dir) && link.st_nlink > 1 {
        return false;
    }
    if planted { is_ours(link) } else { is_trusted(link, dir) }
}
