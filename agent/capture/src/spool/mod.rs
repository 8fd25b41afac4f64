//! The spool: where a recording's data is until the finished file exists, and what a crash leaves behind.
//!
//! A directory beside the output file, `NAME.spool`:
//!
//! | file | content |
//! |---|---|
//! | `manifest` | everything else that the trace file needs: [`super::Manifest`] |
//! | `counts` | what the control blocks said when a reader last looked: [`super::counts`] |
//! | `names` | thread names as they became known: [`super::names`] |
//! | `kallsyms` | the kernel's symbols, written while recording, as one zstd frame; empty if the disk had no room for them |
//! | `state` | the state of the machine at the start |
//! | `state.N` | the same at later moments |
//! | `mappings` | what processes map, for the names in user stacks |
//! | `cpuN.K` | segment K of CPU N's data, exactly as it will be in the trace file: chunks, or bare pages; of the channels after the first, `channelC-cpuN.K` |
//! | `reserve` | disk space set aside, so that a full disk leaves room to finish the file |
//! | `reserve-rings` | the same for what flight recorders hold, where others fill the disk meanwhile |
//! | `trace.dat` | the trace file, until it is complete and goes to its place |
//! | `moved` | what of the data is in `trace.dat` only, as the disk had no room for a copy |
//! | `lock` | locked while the recording runs |
//!
//! Pages are written before their memory is released to the programs, so a `kill -9` loses only what was
//! still in the rings. A partly written last chunk is recognised by its length and cut off.
//!
//! The directory is created and locked under another name, and gets its own in that state. So whoever finds
//! it under its name without a held lock knows that no recording is in it, nor about to be. It belongs to the
//! user that records, nobody else can write to it, and its files are opened below its descriptor.

mod data;
mod left;
mod lock;

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
};
use serde::{Deserialize, Serialize};

pub use self::data::SpoolTotals;
pub(super) use self::data::{CpuSpool, HandedStream, SegmentFile, parse_segment, segment_name};
pub(super) use self::lock::LOCK;
use self::lock::{Claim, claim, create_claimed, discard, is_taken, set_aside};
use super::{
    StreamId,
    handover::{HandedDirectory, HandedName},
};
use stdx::handover::{Descriptors, Missing, Number};
use stdx::output::{Directory, Links, Output, OutputError, Resolved, is_ending, resolve};
use stdx::reason;

/// Names of the files that keep disk space.
const RESERVE: &str = "reserve";
const RESERVE_RINGS: &str = "reserve-rings";

/// Suffix of the spool directory's name.
const SUFFIX: &str = ".spool";
/// How often creating a spool is retried because another recorder changed what is there.
const ATTEMPTS: usize = 8;
/// Of the disk space that is free, what is stored beside the data while recording takes one part in this many
/// at most.
const OPTIONAL_SHARE: u64 = 16;

/// Why a spool cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// A system call on a file of the spool failed.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The recording that writes to the spool has not ended.
    #[error("{0} belongs to a recording that is still running; let that one end first")]
    InUse(PathBuf),
    /// The same, of a process that is known.
    #[error("{path} belongs to a recording that is still running, process {process}; let that one end first")]
    InUseBy {
        /// The spool.
        path: PathBuf,
        /// The process that records.
        process: u32,
    },
    /// The process that recorded is ending, and has not let go of the spool.
    #[error("{path} is held by process {process}, which is ending; try again when that has ended")]
    Ending {
        /// The spool.
        path: PathBuf,
        /// The process.
        process: u32,
    },
    /// A directory of another user, or one that others can write to, or none at all: what is in it may be a
    /// trap.
    #[error(
        "{0} does not belong to this user, or others can write to it; remove it, or take their rights away (chmod go-w), or name another \
         file"
    )]
    NotOurs(PathBuf),
    /// Where the spool is.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A file of the spool does not hold what it should.
    #[error("{path} is damaged: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Compressing a chunk failed.
    #[error("cannot compress trace pages: {0}")]
    Compress(#[from] tracedat::CompressError),
}

impl SpoolError {
    pub(super) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    /// Whether the disk, or the user's part of it, is full.
    pub fn is_disk_full(&self) -> bool {
        reason::is_disk_full(self)
    }
}

/// A spool directory that this process has locked.
#[derive(Debug)]
pub struct Spool {
    /// What it is in.
    parent: Directory,
    /// Its name there.
    name: OsString,
    /// The directory itself.
    files: Directory,
    /// `None` where nobody can lock, on a file system that cannot be written. No recording runs there.
    lock: Option<OwnedFd>,
}

/// A spool on its way to another process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HandedSpool {
    parent: HandedDirectory,
    name: HandedName,
    files: HandedDirectory,
    lock: Option<Number>,
}

impl HandedSpool {
    pub(super) fn lock(&self) -> Option<Number> {
        self.lock
    }
}

/// A moment at which another recorder may do something: tests let one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A directory was created under a temporary name.
    Created,
    /// It is locked; next it gets its name.
    Locked,
    /// There is a directory of that name, and it was opened.
    Found,
    /// The lock of that directory is held; next it is removed or renamed.
    Claimed,
    /// That directory is out of the way.
    SetAside,
}

impl Spool {
    /// Creates the spool of `output`. One that a crashed recording left behind is kept under another name,
    /// which is the second value.
    pub fn create(output: &Output) -> Result<(Self, Option<PathBuf>), SpoolError> {
        Self::create_with(output, &mut |_| ())
    }

    fn create_with(
        output: &Output,
        step: &mut dyn FnMut(Step),
    ) -> Result<(Self, Option<PathBuf>), SpoolError> {
        let (parent, name) = (output.directory().clone(), name_for(output.name()));
        let path = parent.join(&name);
        let failed = |action| SpoolError::io(action, &path);
        // Before anything is created, so that a name that cannot be is refused.
        let mut there = parent.look(&name).map_err(failed("create"))?.is_some();
        let new = create_claimed(&parent, &name, step)?;
        let mut kept = None;
        for _ in 0..ATTEMPTS {
            if there {
                let result = set_aside(&parent, &name, step);
                kept = match result {
                    Ok(moved) => moved.or(kept),
                    Err(error) => {
                        new.discard();
                        return Err(error);
                    }
                };
                step(Step::SetAside);
            }
            // It replaces an empty directory, which has nothing of anybody's. One with a lock in it is not
            // empty.
            match parent.rename(&new.name, &parent, &name) {
                Ok(()) => {
                    let files = new.claim.files.moved_to(path.clone());
                    return Ok((Self { parent, name, files, lock: new.claim.lock }, kept));
                }
                Err(error) if is_taken(&error) => there = true,
                Err(error) => {
                    new.discard();
                    return Err(failed("create")(error));
                }
            }
        }
        new.discard();
        Err(SpoolError::InUse(path))
    }

    /// Opens the spool that a recording left behind. `path` is the spool directory or the trace file it
    /// belongs to.
    pub fn open(path: &Path) -> Result<Self, SpoolError> {
        let (parent, name) = find(path)?;
        let (path, lost) = (parent.join(&name), || io::Error::from(Errno::NOENT));
        let failed = || SpoolError::io("find a recording in", &path);
        let Some(files) = lock::open_ours(&parent, &name)? else { return Err(failed()(lost())) };
        let manifest = files.look(OsStr::new("manifest")).and_then(|found| found.ok_or_else(lost));
        manifest.map_err(failed())?;
        let Claim { files, lock, .. } = claim(files)?;
        // It was set aside meanwhile.
        if !files.identity().and_then(|identity| parent.has(&name, identity)).map_err(failed())? {
            return Err(SpoolError::InUse(path));
        }
        Ok(Self { parent, name, files, lock })
    }

    /// Waits for the end of a process that is ending and holds a spool: closing its events may take seconds.
    /// `wait` is called with the process until then, and returns whether to go on. A spool without a known
    /// holder needs no wait.
    ///
    /// # Errors
    /// Another process holds it, or `wait` has had enough.
    pub fn wait_for_end(path: &Path, mut wait: impl FnMut(u32) -> bool) -> Result<(), SpoolError> {
        let (parent, name) = find(path)?;
        let Some(files) = lock::open_ours(&parent, &name)? else { return Ok(()) };
        // A holder that is not known refuses the lock.
        while let Ok(Some(process)) = files.lock_holder(LOCK) {
            let path = || files.path().to_owned();
            if !is_ending(process) {
                return Err(SpoolError::InUseBy { path: path(), process });
            }
            if !wait(process) {
                return Err(SpoolError::Ending { path: path(), process });
            }
        }
        Ok(())
    }

    /// The spools in a directory that is none itself, by name: those of a recording of several files. `None`
    /// if `path` names no such directory.
    ///
    /// # Errors
    /// The path leads nowhere, or the directory cannot be read.
    pub fn all_in(path: &Path) -> Result<Option<Vec<PathBuf>>, SpoolError> {
        let failed = || SpoolError::io("find recordings in", path);
        // What it is else is told by who opens it.
        let Some(dir) = directory_at(path)? else { return Ok(None) };
        if dir.look(OsStr::new("manifest")).map_err(failed())?.is_some() {
            return Ok(None);
        }
        let mut names = dir.names().map_err(failed())?;
        names.retain(|name| output_of(name).is_some());
        names.sort();
        Ok((!names.is_empty()).then(|| names.iter().map(|name| dir.join(name)).collect()))
    }

    /// Removes the spool of a recording that was killed before it had a manifest: nothing was recorded. Gives
    /// whether it was one.
    ///
    /// # Errors
    /// It belongs to somebody else, or to a recording that runs.
    pub fn remove_started(path: &Path) -> Result<bool, SpoolError> {
        let (parent, name) = find(path)?;
        lock::remove_started(&parent, &name)
    }

    /// Removes from a directory what killed processes have left of spools that were not there yet, or not any
    /// more.
    ///
    /// # Errors
    /// The directory cannot be read, or something cannot be removed.
    pub fn remove_left(path: &Path) -> Result<(), SpoolError> {
        directory_at(path)?.map_or(Ok(()), |dir| left::remove(&dir))
    }

    /// The directory's path, for messages.
    pub fn dir(&self) -> &Path {
        self.files.path()
    }

    /// The directory: what is in it is created and opened through this.
    pub fn files(&self) -> &Directory {
        &self.files
    }

    /// Whether somebody has removed it: what is written goes to files without names then.
    pub(super) fn is_removed(&self) -> bool {
        let has_name = self.files.identity().and_then(|identity| self.parent.has(&self.name, identity));
        has_name.is_ok_and(|has_name| !has_name)
    }

    /// What the spool is in.
    pub(super) fn parent(&self) -> &Directory {
        &self.parent
    }

    /// The directory's name there.
    pub(super) fn name(&self) -> &OsStr {
        &self.name
    }

    /// The name of the trace file that belongs to the spool by its name: `trace.dat.spool` has `trace.dat`,
    /// and `trace.dat.spool.1`, which a later recording moved out of its way, `trace.dat.1`. `None` for a
    /// directory that was renamed.
    pub fn output_name(&self) -> Option<OsString> {
        output_of(&self.name)
    }

    /// Path of the file `name` in the spool, for messages.
    pub fn file(&self, name: &str) -> PathBuf {
        self.files.join(name)
    }

    /// Gives it away, as it is: its lock is held all the time.
    pub(super) fn hand_over(self, to: &mut Descriptors) -> HandedSpool {
        let Self { parent, name, files, lock } = self;
        HandedSpool {
            parent: HandedDirectory::of(&parent, to),
            name: HandedName(name),
            files: HandedDirectory::of(&files, to),
            lock: lock.map(|lock| to.put(lock)),
        }
    }

    /// The one that another process has given away.
    pub(super) fn take_over(handed: HandedSpool, from: &mut Descriptors) -> Result<Self, Missing> {
        let HandedSpool { parent, name, files, lock } = handed;
        Ok(Self {
            parent: parent.take_over(from)?,
            name: name.0,
            files: files.take_over(from)?,
            lock: lock.map(|lock| from.take(lock)).transpose()?,
        })
    }

    /// Copies a file to another spool, if it is there.
    pub(super) fn copy_file(&self, name: &str, to: &Self) -> Result<(), SpoolError> {
        let mut file = match self.files.open_file(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened.map_err(SpoolError::io("open", self.file(name)))?,
        };
        let copied = to.files.write_whole(name, |copy| io::copy(&mut file, copy).map(drop));
        copied.map_err(SpoolError::io("write", to.file(name)))
    }

    /// Sets `bytes` of disk space aside for finishing the file. A file system that cannot do so is not an
    /// error, nor is a limit on the size of a file that is smaller: then a full disk may leave the recording
    /// in the spool.
    pub fn reserve(&self, bytes: u64) -> Result<(), SpoolError> {
        self.set_aside(RESERVE, bytes)
    }

    /// The same for what flight recorders hold until the end, beside what is stored meanwhile.
    pub(super) fn reserve_for_rings(&self, bytes: u64) -> Result<(), SpoolError> {
        if bytes == 0 { Ok(()) } else { self.set_aside(RESERVE_RINGS, bytes) }
    }

    fn set_aside(&self, name: &str, bytes: u64) -> Result<(), SpoolError> {
        let path = self.file(name);
        let file = self.files.create(name).map_err(SpoolError::io("create", &path))?;
        match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            Err(e) if e == Errno::NOSPC || e == Errno::DQUOT => {
                Err(SpoolError::io("reserve space in", path)(e.into()))
            }
            _ => Ok(()),
        }
    }

    /// Gives the reserved space back to the file system.
    pub fn release_reserve(&self) {
        // It may never have been there; a failure to remove it shows when the space is needed.
        let _ = self.files.remove(RESERVE);
        self.release_reserve_for_rings();
    }

    /// Gives back what was reserved for flight recorders.
    pub(super) fn release_reserve_for_rings(&self) {
        let _ = self.files.remove(RESERVE_RINGS);
    }

    /// The data segments of every stream, by stream and in recording order.
    pub(super) fn segments(&self) -> Result<BTreeMap<StreamId, Vec<SegmentFile>>, SpoolError> {
        let mut found = Vec::new();
        for name in self.files.names().map_err(SpoolError::io("list", self.dir()))? {
            if let Some(name) = name.to_str()
                && let Some((stream, index)) = parse_segment(name)
            {
                found.push((stream, index, name.to_owned()));
            }
        }
        found.sort();
        let mut streams: BTreeMap<StreamId, Vec<SegmentFile>> = BTreeMap::new();
        for (stream, index, name) in found {
            streams.entry(stream).or_default().push(SegmentFile { index, name });
        }
        Ok(streams)
    }

    /// Deletes the spool.
    pub fn remove(self) -> Result<(), SpoolError> {
        let Self { parent, name, files, lock } = self;
        discard(&parent, &name, Claim { files, lock, created_lock: false })
    }
}

/// Whether there is something else than a directory, or nothing.
fn is_no_directory(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

/// Whether `bytes` may be stored beside the data while recording. On a disk that is nearly full all of it is
/// the data's.
pub(super) fn has_room_for(dir: &Directory, bytes: u64) -> bool {
    dir.free_bytes().is_ok_and(|free| bytes.saturating_mul(OPTIONAL_SHARE) <= free)
}

/// Name of the spool of the trace file `output`.
fn name_for(output: &OsStr) -> OsString {
    let mut name = output.to_owned();
    name.push(SUFFIX);
    name
}

/// The directory and the name of the spool that `path` names: its own, or that of its trace file.
pub(super) fn find(path: &Path) -> Result<(Directory, OsString), SpoolError> {
    let Resolved { dir, name } = resolve(path, Links::Follow)?;
    let failed = || SpoolError::io("find a recording in", path);
    let Some(name) = name else { return named(&dir).map_err(failed()) };
    let there = dir.look(&name).map_err(failed())?;
    let is_dir = there.is_some_and(|there| {
        rustix::fs::FileType::from_raw_mode(there.st_mode) == rustix::fs::FileType::Directory
    });
    Ok(if is_dir {
        (dir, name)
    } else {
        let name = name_for(&name);
        (dir, name)
    })
}

/// The name of a directory that was found as `.` or the like, and what it is in.
fn named(dir: &Directory) -> io::Result<(Directory, OsString)> {
    use std::os::fd::{AsFd as _, AsRawFd as _};
    let path = std::fs::read_link(format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd()))?;
    let (parent, name) = path.parent().zip(path.file_name()).ok_or(Errno::NOENT)?;
    let parent = Directory::open(parent)?;
    // The path is only a hint.
    if parent.has(name, dir.identity()?)? { Ok((parent, name.to_owned())) } else { Err(Errno::NOENT.into()) }
}

/// The directory at a path; `None` if something else is there.
fn directory_at(path: &Path) -> Result<Option<Directory>, SpoolError> {
    let Resolved { dir, name } = resolve(path, Links::Follow)?;
    let Some(name) = name else { return Ok(Some(dir)) };
    match dir.open_dir(&name) {
        Ok(dir) => Ok(Some(dir)),
        Err(error) if is_no_directory(&error) => Ok(None),
        Err(error) => Err(SpoolError::io("find recordings in", path)(error)),
    }
}

pub(super) fn output_of(name: &OsStr) -> Option<OsString> {
    let (base, number) = name.to_str()?.rsplit_once(SUFFIX)?;
    let kept = number.strip_prefix('.').is_some_and(|n| n.parse::<u32>().is_ok());
    let ours = !base.is_empty() && (number.is_empty() || kept);
    ours.then(|| format!("{base}{number}").into())
}

#[cfg(test)]
mod tests;
