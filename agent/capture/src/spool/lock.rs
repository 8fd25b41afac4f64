//! Ownership of a spool directory: its lock, and how it gets and loses its name.
//!
//! Only the holder of its lock may rename or remove the directory that has the name. A directory has a held
//! lock in it before it gets the name. So two recorders never share a directory, whatever one does between
//! two steps of the other.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::fd::OwnedFd,
    path::PathBuf,
};

use rustix::io::Errno;

use super::{RESERVE, RESERVE_RINGS, SpoolError, Step, output_of};
use stdx::output::libc_mode::OTHERS_WRITE;
use stdx::output::{Directory, FileMode, LockedFile, MODE_PRIVATE, own_user, temporary_name};

/// Name of the file that is locked.
pub(crate) const LOCK: &str = "lock";
/// What is in a spool whose recording never got as far as a manifest.
const STARTED: [&str; 4] = [RESERVE, RESERVE_RINGS, "manifest.new", LOCK];

/// A directory whose lock is held.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) files: Directory,
    pub(super) lock: Option<OwnedFd>,
    /// Whether the directory had no file to lock before.
    pub(super) created_lock: bool,
}

/// A spool that does not have its name yet.
#[derive(Debug)]
pub(super) struct NewSpool {
    parent: Directory,
    pub(super) name: OsString,
    pub(super) claim: Claim,
}

impl NewSpool {
    /// Removes it again.
    pub(super) fn discard(self) {
        let Self { parent, name, claim } = self;
        // What cannot be removed has a name that says what it is. The error at hand says more than one about
        // cleaning up.
        let _ = drop_and_remove(&parent, &name, claim);
    }
}

/// Creates a directory beside `name`, and locks it.
pub(super) fn create_claimed(
    parent: &Directory,
    name: &OsStr,
    step: &mut dyn FnMut(Step),
) -> Result<NewSpool, SpoolError> {
    let failed = |action| SpoolError::io(action, parent.join(name));
    let (new, files) = under_free_name(name, "new", |free| {
        let files = parent.create_dir_with(free, MODE_PRIVATE)?;
        Ok((free.to_owned(), files))
    })
    .map_err(failed("create"))?;
    step(Step::Created);
    let claimed = claim(files.clone());
    let claim = match claimed {
        Ok(claim) => claim,
        Err(error) => {
            // Through the descriptor: something else may have the name by now.
            let _ = parent.remove_tree(&new, &files);
            return Err(error);
        }
    };
    step(Step::Locked);
    Ok(NewSpool { parent: parent.clone(), name: new, claim })
}

/// Calls `make` with names beside `name` until one is free.
fn under_free_name<T>(
    name: &OsStr,
    purpose: &str,
    mut make: impl FnMut(&OsStr) -> io::Result<T>,
) -> io::Result<T> {
    let mut number = 0;
    loop {
        match make(&temporary_name(name, purpose, number)) {
            Err(error) if is_taken(&error) => number += 1,
            result => return result,
        }
    }
}

/// Whether a name was refused because something has it.
pub(super) fn is_taken(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR))
}

/// Opens a directory that belongs to us and that nobody else can write to. Who can write beside the output
/// can put anything under the spool's name: links are not followed, and nothing is changed. `None` if there
/// is nothing.
pub(super) fn open_ours(parent: &Directory, name: &OsStr) -> Result<Option<Directory>, SpoolError> {
    let path = || parent.join(name);
    let files = match parent.open_dir(name) {
        Ok(files) => files,
        Err(error) => {
            return match Errno::from_io_error(&error) {
                Some(Errno::NOENT) => Ok(None),
                Some(Errno::NOTDIR | Errno::LOOP) => Err(SpoolError::NotOurs(path())),
                _ => Err(SpoolError::io("open", path())(error)),
            };
        }
    };
    let status = files.status().map_err(SpoolError::io("look at", path()))?;
    if status.st_uid != own_user() || status.st_mode & OTHERS_WRITE != 0 {
        return Err(SpoolError::NotOurs(path()));
    }
    Ok(Some(files))
}

/// Locks a spool directory.
pub(super) fn claim(files: Directory) -> Result<Claim, SpoolError> {
    let (lock, created_lock) = match files.lock(LOCK, FileMode::PRIVATE) {
        Ok(Some(LockedFile { file, is_new })) => (Some(file.into()), is_new),
        Ok(None) => return Err(SpoolError::InUse(files.path().to_owned())),
        // Nobody records there.
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => (None, false),
        Err(error) => return Err(SpoolError::io("lock", files.join(LOCK))(error)),
    };
    Ok(Claim { files, lock, created_lock })
}

/// Removes the directory `name`, which is claimed. First it loses its name: nobody finds it half-removed.
pub(super) fn discard(parent: &Directory, name: &OsStr, claim: Claim) -> Result<(), SpoolError> {
    let failed = || SpoolError::io("remove", parent.join(name));
    let moved = take_name(parent, name).map_err(failed())?;
    drop_and_remove(parent, &moved, claim).map_err(failed())
}

/// Removes the directory `name`, which is claimed, and of what is in it only what a recording starts with:
/// that nothing else was in it when it was looked at does not make the rest ours to delete.
pub(super) fn discard_started(parent: &Directory, name: &OsStr, claim: Claim) -> Result<(), SpoolError> {
    let moved = take_name(parent, name).map_err(SpoolError::io("remove", parent.join(name)))?;
    let Claim { files, lock, .. } = claim;
    drop(lock);
    for name in STARTED {
        let _ = files.remove(name);
    }
    // If something is in it, it stays, under a name that says what it is.
    let _ = parent.remove_empty(&moved, &files);
    Ok(())
}

/// Takes the name from a directory. Returns the one that it has then.
fn take_name(parent: &Directory, name: &OsStr) -> io::Result<OsString> {
    under_free_name(name, "removed", |free| {
        parent.rename(name, parent, free)?;
        Ok(free.to_owned())
    })
}

pub(super) fn drop_and_remove(parent: &Directory, name: &OsStr, claim: Claim) -> io::Result<()> {
    let Claim { files, lock, .. } = claim;
    // A network file system keeps a file that is open under another name, and the directory with it.
    drop(lock);
    parent.remove_tree(name, &files)
}

/// Moves an earlier recording's spool out of the way, or removes it if it never got as far as a manifest. A
/// directory that only has the name of a spool is moved like one: nothing in it is ours to delete. Returns
/// where it was moved.
pub(super) fn set_aside(
    parent: &Directory,
    name: &OsStr,
    step: &mut dyn FnMut(Step),
) -> Result<Option<PathBuf>, SpoolError> {
    let path = parent.join(name);
    let failed = |action| SpoolError::io(action, &path);
    let Some(files) = open_ours(parent, name)? else { return Ok(None) };
    step(Step::Found);
    let claim = claim(files)?;
    let is_there = claim.files.identity().and_then(|identity| parent.has(name, identity));
    if !is_there.map_err(failed("look at"))? {
        // Another recorder was faster. What has the name now is checked again.
        forget_lock(&claim);
        return Ok(None);
    }
    step(Step::Claimed);
    if is_started(&claim)? {
        discard_started(parent, name, claim)?;
        return Ok(None);
    }
    let mut number = 1_u32;
    loop {
        let mut free = name.to_owned();
        free.push(format!(".{number}"));
        // A recovery writes it to a file with the same number.
        let output = output_of(&free);
        let is_free = |name: &OsStr| parent.look(name).map(|there| there.is_none());
        let mut all_free = is_free(&free).map_err(failed("rename"))?;
        if let Some(output) = output {
            all_free &= is_free(&output).map_err(failed("rename"))?;
        }
        if all_free {
            match parent.rename(name, parent, &free) {
                Ok(()) => {
                    forget_lock(&claim);
                    return Ok(Some(parent.join(free)));
                }
                Err(error) if is_taken(&error) => {}
                Err(error) => return Err(failed("rename")(error)),
            }
        }
        number += 1;
    }
}

/// Whether a recording never got as far as a manifest there.
fn is_started(claim: &Claim) -> Result<bool, SpoolError> {
    let names = claim.files.names().map_err(SpoolError::io("list", claim.files.path()))?;
    Ok(names.iter().all(|name| STARTED.iter().any(|ours| name == ours)))
}

/// Removes a spool whose recording never got as far as a manifest. Gives whether it was one.
pub(super) fn remove_started(parent: &Directory, name: &OsStr) -> Result<bool, SpoolError> {
    let Some(files) = open_ours(parent, name)? else { return Ok(false) };
    let claim = claim(files)?;
    let has_name = claim.files.identity().and_then(|identity| parent.has(name, identity));
    let has_name = has_name.map_err(SpoolError::io("look at", claim.files.path()))?;
    if !has_name || !is_started(&claim)? {
        forget_lock(&claim);
        return Ok(false);
    }
    discard_started(parent, name, claim)?;
    Ok(true)
}

/// Ends the claim to a directory, and leaves it as it was.
fn forget_lock(claim: &Claim) {
    if claim.created_lock {
        // It is empty, and means nothing to anybody.
        let _ = claim.files.remove(LOCK);
    }
}
