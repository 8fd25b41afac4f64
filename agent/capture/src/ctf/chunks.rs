//! The directories of a trace's chunks, as LTTng has them: the open one, and those that are closed.
//!
//! Each is held open from its creation on, and known by that: another user may be able to change what is in
//! the directory of the trace.

use std::{collections::VecDeque, io, path::PathBuf};

use super::{CtfOutput, begun::Places};
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

    /// The same, which another process has begun to write: its files are removed, as the spool has all of
    /// their events. `places` are its directories; without a note of them, or on a file system without times
    /// of birth, directories of ours are taken for them.
    pub(super) fn create_again(
        output: &CtfOutput,
        archive: Option<ArchiveName>,
        places: Option<&Places>,
    ) -> Result<Self, ExportError> {
        let Some(name) = archive.filter(|name| name.number > 1).map(Self::name_of) else {
            for domain in [KERNEL, UST] {
                let removed = open_begun(&output.dir, domain, places)
                    .and_then(|dir| dir.map_or(Ok(()), |dir| output.dir.remove_tree(domain, &dir)));
                removed.map_err(ExportError::io("remove", output.dir.join(domain)))?;
            }
            return Ok(Self { name: None, dir: output.dir.clone() });
        };
        let begun = open_begun(&output.dir, &name, places);
        let Some(dir) = begun.map_err(ExportError::io("open", output.dir.join(&name)))? else {
            return Self::create(output, archive);
        };
        for domain in [KERNEL, UST] {
            let removed = match dir.open_dir(domain) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                opened => opened.and_then(|of| dir.remove_tree(domain, &of)),
            };
            removed.map_err(ExportError::io("remove", dir.join(domain)))?;
        }
        Ok(Self { name: Some(name), dir })
    }

    /// Whether the directories that the chunk of an archive has in that of the trace are its own, or not
    /// there.
    pub(super) fn can_be_again(trace: &Directory, archive: Option<ArchiveName>, places: &Places) -> bool {
        let is_own = |name: &str| open_begun(trace, name, Some(places)).is_ok();
        match archive.filter(|name| name.number > 1) {
            Some(archive) => is_own(&Self::name_of(archive)),
            None => is_own(KERNEL) && is_own(UST),
        }
    }

    /// Its name and directory, if it has one that is not the trace's.
    pub(super) fn own(&self) -> Option<(&str, &Directory)> {
        self.name.as_deref().map(|name| (name, &self.dir))
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
        let closed = closed_name(name);
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

/// What the chunk of an archive is called among those that are closed.
pub(super) fn closed_name(archive: ArchiveName) -> String {
    let end = archive.end_ns.unwrap_or(archive.begin_ns);
    let number = archive.number.saturating_sub(1);
    format!("{}-{}-{number}", utc::compact(archive.begin_ns), utc::compact(end))
}

/// Whether there is a closed chunk of this name, which is ours.
pub(super) fn is_closed(trace: &Directory, closed: &str) -> bool {
    let opened = trace.open_dir(ARCHIVES).and_then(|archives| archives.open_dir(closed));
    opened.and_then(|dir| is_own(&dir)).is_ok_and(|is_own| is_own)
}

/// Brings the directories of a chunk, all of which is written, to those that are closed, as far as that has
/// not been done.
pub(super) fn finish_closing(
    trace: &Directory,
    archive: ArchiveName,
    (closed, places): (&str, &Places),
) -> io::Result<()> {
    let mut left = Vec::new();
    for (name, birth) in places {
        match trace.open_dir(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // Another trace's has its name.
            Ok(dir) if dir.birth()? != Some(*birth) => {}
            opened => left.push((name, opened?)),
        }
    }
    if left.is_empty() {
        return Ok(());
    }
    let archives = open_archives(trace)?;
    let of_first = || match archives.create_dir(closed) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => archives.open_dir(closed),
        created => created,
    };
    let to = if archive.number > 1 { None } else { Some(of_first()?) };
    for (name, dir) in left {
        let new = to.as_ref().map_or((&archives, closed), |to| (to, name.as_str()));
        bring((trace, name), &dir, new)?;
    }
    archives.sync();
    trace.sync();
    Ok(())
}

/// Opens a directory of a chunk that was begun; `None` if it is not there.
fn open_begun(trace: &Directory, name: &str, places: Option<&Places>) -> io::Result<Option<Directory>> {
    let dir = match trace.open_dir(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let is_begun = match places {
        None => is_own(&dir)?,
        Some(places) => {
            let birth = dir.birth()?;
            let is_noted = places.iter().any(|(of, noted)| of == name && birth == Some(*noted));
            is_noted || is_own(&dir)? && dir.names()?.is_empty()
        }
    };
    if is_begun { Ok(Some(dir)) } else { Err(io::Error::other("it is not what was begun there")) }
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
