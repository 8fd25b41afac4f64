//! The directories of a trace's chunks, as LTTng has them: the open one, and those that are closed.
//!
//! Each is held open from its creation on, and known by that: another user may be able to change what is in
//! the directory of the trace.

use std::{collections::VecDeque, io, path::PathBuf};

use super::CtfOutput;
use crate::ArchiveName;
use ctf_writer::{ARCHIVES, KERNEL, UST};
use recording::ExportError;
use stdx::output::{Directory, Identity, is_own};
use stdx::utc;

/// The chunk that is written to.
#[derive(Debug)]
pub(super) struct OpenChunk {
    /// Its name, if it has a directory of its own: the first one has that of the trace.
    name: Option<String>,
    dir: Directory,
}

impl OpenChunk {
    /// The one of an archive; `None` of a recording that has only one.
    pub(super) fn create(output: &CtfOutput, archive: Option<ArchiveName>) -> Result<Self, ExportError> {
        let Some(archive) = archive.filter(|name| name.number > 1) else {
            return Ok(Self { name: None, dir: output.dir.clone() });
        };
        let name = Self::name_of(archive);
        let dir = output.dir.create_dir(&name);
        let dir = dir.map_err(ExportError::io("create", output.dir.join(&name)))?;
        Ok(Self { name: Some(name), dir })
    }

    /// The same, which another process may have begun to write: what it has written is removed. All of it is
    /// in the spool.
    pub(super) fn create_again(
        output: &CtfOutput,
        archive: Option<ArchiveName>,
    ) -> Result<Self, ExportError> {
        let of_its_own = archive.filter(|name| name.number > 1).map(Self::name_of);
        let dir = match &of_its_own {
            None => output.dir.clone(),
            Some(name) => match output.dir.open_dir(name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Self::create(output, archive);
                }
                opened => opened.map_err(ExportError::io("open", output.dir.join(name)))?,
            },
        };
        for domain in [KERNEL, UST] {
            remove_own(&dir, domain).map_err(ExportError::io("remove", dir.join(domain)))?;
        }
        Ok(Self { name: of_its_own, dir })
    }

    fn name_of(archive: ArchiveName) -> String {
        format!("{}-{}", utc::compact(archive.begin_ns), archive.number.saturating_sub(1))
    }

    pub(super) fn dir(&self) -> &Directory {
        &self.dir
    }
}

/// The chunks that are closed.
#[derive(Debug, Default)]
pub(super) struct Archives {
    dir: Option<Directory>,
    /// Those that are kept, the oldest first.
    closed: VecDeque<(String, Identity)>,
}

impl Archives {
    /// Brings a closed chunk, whose files are in the directories `domains`, to the others, under the name
    /// that LTTng gives it. Of more than are kept the oldest is removed.
    pub(super) fn add(
        &mut self,
        output: &CtfOutput,
        (chunk, domains): (OpenChunk, &[(String, Directory)]),
        name: ArchiveName,
    ) -> Result<PathBuf, ExportError> {
        let archives = match self.dir.take() {
            Some(dir) => dir,
            None => {
                open_archives(&output.dir).map_err(ExportError::io("create", output.dir.join(ARCHIVES)))?
            }
        };
        let archives = self.dir.insert(archives);
        let end = name.end_ns.unwrap_or(name.begin_ns);
        let number = name.number.saturating_sub(1);
        let closed = format!("{}-{}-{number}", utc::compact(name.begin_ns), utc::compact(end));
        let path = archives.join(&closed);
        let moved = match &chunk.name {
            Some(open) => bring((&output.dir, open), &chunk.dir, (archives, &closed)),
            None => archives.create_dir(&closed).and_then(|to| {
                for (name, dir) in domains {
                    bring((&output.dir, name), dir, (&to, name))?;
                }
                to.identity()
            }),
        };
        let identity = moved.map_err(ExportError::io("move a closed chunk to", &path))?;
        archives.sync();
        output.dir.sync();
        self.closed.push_back((closed, identity));
        while output.options.keep.is_some_and(|keep| self.closed.len() > keep) {
            let Some((oldest, identity)) = self.closed.pop_front() else { break };
            // Somebody may have taken it away already, or put something else there.
            if let Ok(dir) = archives.open_dir(&oldest)
                && dir.identity().is_ok_and(|found| found == identity)
            {
                let _ = archives.remove_tree(&oldest, &dir);
            }
        }
        Ok(path)
    }
}

/// Removes a directory that is ours, if it is there.
fn remove_own(from: &Directory, name: &str) -> io::Result<()> {
    let dir = match from.open_dir(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    if !is_own(&dir)? {
        return Err(io::Error::other("others can write to it"));
    }
    from.remove_tree(name, &dir)
}

/// Creates the directory of closed chunks. One that is there has to be ours.
pub fn open_archives(trace: &Directory) -> io::Result<Directory> {
    match trace.create_dir(ARCHIVES) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let dir = trace.open_dir(ARCHIVES)?;
            if is_own(&dir)? {
                Ok(dir)
            } else {
                Err(io::Error::other("it is there already, and others can write to it"))
            }
        }
        created => created,
    }
}

/// Gives a directory another name. It replaces nothing that has something in it (rename(2)). Gives which one
/// has the name then, and fails if that is not the one that was meant.
fn bring(
    (from, name): (&Directory, &str),
    dir: &Directory,
    (to, new): (&Directory, &str),
) -> io::Result<Identity> {
    let identity = dir.identity()?;
    from.rename(name.as_ref(), to, new.as_ref())?;
    if to.has(new.as_ref(), identity)? {
        Ok(identity)
    } else {
        Err(io::Error::other("another user put something in the place of what was written"))
    }
}
