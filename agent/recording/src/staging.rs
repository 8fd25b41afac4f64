//! An export is written under a temporary name and renamed when it is complete.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};

use super::Target;
use super::error::ExportError;
use stdx::output::{
    Directory, FileMode, Identity, Links, MODE_PRIVATE, Resolved, check_entry, check_names, resolve,
    temporary_name,
};
use tracedat::layout::MAGIC;

/// What an archive's name ends with.
const ARCHIVE_SUFFIX: &str = ".tar.gz";
/// Name of the export before it has its own.
const EXPORT: &str = "export";
/// Name of the archive before it has its own.
const ARCHIVE: &str = "archive";
/// Name of what is replaced, until the export is in its place.
const REPLACED: &str = "replaced";

/// A directory that is removed again unless it is committed.
#[derive(Debug)]
pub struct Staging {
    /// What the target is in.
    parent: Directory,
    /// Name of the target there.
    name: OsString,
    /// Holds the export and, for a moment, what it replaces. Nobody else can write to it.
    outer: Directory,
    /// Its name.
    outer_name: OsString,
    dir: Directory,
    /// Name of the directory in an archive.
    dir_name: OsString,
    becomes: Becomes,
    force: bool,
    is_export: fn(&Directory) -> bool,
    /// Whether `outer` has something that is not ours to remove: what is to be replaced, and nothing is in
    /// its place.
    keeps: bool,
}

/// What comes to the target's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Becomes {
    Directory,
    /// An archive of the directory.
    Archive,
    /// The file of this name in the directory.
    File(&'static str),
}

impl Becomes {
    fn is_directory(self) -> bool {
        self == Self::Directory
    }
}

impl Staging {
    /// Creates an empty directory beside the target, which must not exist, or be an earlier export that is to
    /// be replaced. With `file`, the target becomes what is in the directory under that name, unless an
    /// archive is asked for.
    ///
    /// # Errors
    /// Something is in the way, or the directory cannot be created.
    pub fn create(target: &Target, file: Option<&'static str>) -> Result<Self, ExportError> {
        let becomes = match file {
            _ if target.archive => Becomes::Archive,
            Some(file) => Becomes::File(file),
            None => Becomes::Directory,
        };
        let in_the_way = || ExportError::InTheWay { path: target.path.clone() };
        // A link under the name of the target is in the way, wherever it leads.
        let Resolved { dir: parent, name } = resolve(&target.path, Links::Keep)?;
        let given = name.ok_or_else(in_the_way)?;
        let (name, dir_name) = names(&given, target.archive);
        let force = target.force;
        check_names(&parent)?;
        check_free(&parent, &name, (force, target.is_export), becomes)?;
        let failed = || ExportError::io("create a directory beside", parent.join(&name));
        let mut hidden = OsString::from(".");
        hidden.push(&name);
        let mut number = 0;
        let (outer_name, outer) = loop {
            let free = temporary_name(&hidden, "export", number);
            match parent.create_dir_with(&free, MODE_PRIVATE) {
                Ok(outer) => break (free, outer),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(failed()(error)),
            }
        };
        match outer.create_dir(EXPORT) {
            Ok(dir) => Ok(Self {
                parent,
                name,
                outer,
                outer_name,
                dir,
                dir_name,
                becomes,
                force,
                is_export: target.is_export,
                keeps: false,
            }),
            Err(error) => {
                // It is empty, and its name says what it is.
                let _ = parent.remove_tree(&outer_name, &outer);
                Err(failed()(error))
            }
        }
    }

    /// Where the export is to be written.
    pub fn dir(&self) -> &Directory {
        &self.dir
    }

    /// Brings the export to its place. Returns where that is, and the bytes of its files.
    ///
    /// # Errors
    /// The disk is full, or something came in the way meanwhile. Nothing has changed then, or the error says
    /// where the earlier export is.
    pub fn commit(mut self) -> Result<(PathBuf, u64), ExportError> {
        let bytes = if self.becomes == Becomes::Archive { self.pack()? } else { sync_tree(&self.dir)? };
        let path = self.parent.join(&self.name);
        let there = check_free(&self.parent, &self.name, (self.force, self.is_export), self.becomes)?;
        let is_dir = |there: &Stat| FileType::from_raw_mode(there.st_mode) == FileType::Directory;
        if let Some(there) = there.filter(|there| self.becomes.is_directory() || is_dir(there)) {
            // A directory can be renamed only onto one that is empty, and nothing else onto one.
            self.take_away(&there)?;
        }
        let (holder, from) = match self.becomes {
            Becomes::Directory => (&self.outer, EXPORT),
            Becomes::Archive => (&self.outer, ARCHIVE),
            Becomes::File(name) => (&self.dir, name),
        };
        if let Err(error) = holder.rename(from.as_ref(), &self.parent, &self.name) {
            let error = ExportError::io("create", path)(error);
            return Err(if self.keeps { self.put_back(error) } else { error });
        }
        // What was replaced goes with the directory that it is in.
        self.keeps = false;
        // The name is durable with its directory.
        self.parent.sync();
        Ok((path, bytes))
    }

    /// Brings what is to be replaced to where nobody else can exchange it.
    fn take_away(&mut self, there: &Stat) -> Result<(), ExportError> {
        let path = self.parent.join(&self.name);
        self.parent
            .rename(&self.name, &self.outer, REPLACED.as_ref())
            .map_err(ExportError::io("replace", &path))?;
        self.keeps = true;
        if self.outer.has(REPLACED.as_ref(), Identity::of(there)).unwrap_or(false) {
            return Ok(());
        }
        // It is not what was looked at.
        Err(self.put_back(ExportError::InTheWay { path }))
    }

    /// Brings what was taken away back to its name. Returns `why`, or an error that says where it is.
    fn put_back(&mut self, why: ExportError) -> ExportError {
        match self.outer.rename_new(REPLACED.as_ref(), &self.parent, &self.name) {
            Ok(()) => {
                self.keeps = false;
                why
            }
            Err(error) => {
                let text = format!(
                    "{error}; it is what {path} was, and stays where it is now: move it back by hand. It was to go back because: {why}",
                    path = self.parent.join(&self.name).display()
                );
                let source = io::Error::new(error.kind(), text);
                ExportError::io("put back", self.outer.join(REPLACED))(source)
            }
        }
    }

    /// Packs the export. Owners and times stay out: they are those of whoever exports, not of what was
    /// recorded.
    fn pack(&self) -> Result<u64, ExportError> {
        let pack = || {
            let file = self.outer.create(ARCHIVE)?;
            let gzip =
                flate2::write::GzEncoder::new(io::BufWriter::new(file), flate2::Compression::default());
            let mut tar = tar::Builder::new(gzip);
            append_tree(&mut tar, &self.dir, Path::new(&self.dir_name))?;
            let mut writer = tar.into_inner()?.finish()?;
            writer.flush()?;
            let file = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.sync_all()?;
            Ok(file.metadata()?.len())
        };
        pack().map_err(ExportError::io("write", self.outer.join(ARCHIVE)))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What cannot be removed has a name that says what it is.
        if self.keeps {
            let _ = self.outer.remove_tree(EXPORT, &self.dir);
            let _ = self.outer.remove(ARCHIVE);
        } else {
            let _ = self.parent.remove_tree(&self.outer_name, &self.outer);
        }
    }
}

/// Creates a directory of an export.
pub fn create_dir(dir: &Directory, name: &str) -> Result<Directory, ExportError> {
    dir.create_dir(name).map_err(ExportError::io("create", dir.join(name)))
}

/// Creates a file of an export, and returns its path for messages.
pub fn create_file(dir: &Directory, name: &str) -> Result<(File, PathBuf), ExportError> {
    let path = dir.join(name);
    let file = dir.create(name).map_err(ExportError::io("create", &path))?;
    Ok((file, path))
}

/// The name of the target, and that of the directory in it if it is an archive.
fn names(given: &OsStr, archive: bool) -> (OsString, OsString) {
    let text = given.to_string_lossy();
    match text.strip_suffix(ARCHIVE_SUFFIX).or_else(|| text.strip_suffix(".tgz")) {
        _ if !archive => (given.to_owned(), given.to_owned()),
        Some(stem) if !stem.is_empty() => (given.to_owned(), OsString::from(stem)),
        _ => {
            let mut file = given.to_owned();
            file.push(ARCHIVE_SUFFIX);
            (file, given.to_owned())
        }
    }
}

/// Fails unless the name is free or has what may be replaced, which is returned.
fn check_free(
    parent: &Directory,
    name: &OsStr,
    (force, is_export_dir): (bool, fn(&Directory) -> bool),
    becomes: Becomes,
) -> Result<Option<Stat>, ExportError> {
    let path = parent.join(name);
    let Some(there) = parent.look(name).map_err(ExportError::io("look at", &path))? else {
        return Ok(None);
    };
    if !force {
        return Err(ExportError::Exists { path });
    }
    // Whoever mistypes a name does not want a home directory replaced.
    let ours = match FileType::from_raw_mode(there.st_mode) {
        // A file may be anything, and only another file is what it may have been.
        FileType::RegularFile => !becomes.is_directory() && !is_recording(parent, name)?,
        FileType::Directory => is_export(parent, name, &there, is_export_dir)?,
        _ => false,
    };
    if !ours {
        return Err(ExportError::InTheWay { path });
    }
    check_entry(parent, name, &there)?;
    Ok(Some(there))
}

/// Whether `there`, which was seen under the name, still has it and is an export, or empty.
fn is_export(
    parent: &Directory,
    name: &OsStr,
    there: &Stat,
    is_export_dir: fn(&Directory) -> bool,
) -> Result<bool, ExportError> {
    let failed = |action| ExportError::io(action, parent.join(name));
    let dir = parent.open_dir(name).map_err(failed("open"))?;
    // Otherwise what is opened here would speak for what was seen, which is what is replaced.
    let is_it = dir.identity().map_err(failed("look at"))? == Identity::of(there);
    Ok(is_it && (is_export_dir(&dir) || is_empty(&dir)))
}

/// Whether a file is a recording, which no export is.
fn is_recording(parent: &Directory, name: &OsStr) -> Result<bool, ExportError> {
    let failed = || ExportError::io("look at", parent.join(name));
    let file = match parent.open_file(name) {
        Ok(file) => file,
        // What cannot be read may be one.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(true),
        Err(error) => return Err(failed()(error)),
    };
    let mut head = Vec::new();
    file.take(MAGIC.len() as u64).read_to_end(&mut head).map_err(failed())?;
    Ok(head == MAGIC)
}

/// Whether a directory is empty.
fn is_empty(dir: &Directory) -> bool {
    dir.names().is_ok_and(|names| names.is_empty())
}

/// A directory, or a file that is open.
enum Entry {
    Dir(Directory),
    File(File),
}

/// What is in a directory of an export, by name. Each is opened when it is its turn: there may be more of
/// them than descriptors.
fn entries(
    dir: &Directory,
) -> Result<impl Iterator<Item = Result<(OsString, Entry), ExportError>>, ExportError> {
    let mut names = dir.names().map_err(ExportError::io("read", dir.path()))?;
    names.sort();
    let open = |name: OsString| {
        let entry = match dir.open_dir(&name) {
            Ok(dir) => Ok(Entry::Dir(dir)),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                dir.open_file(&name).map(Entry::File)
            }
            Err(error) => Err(error),
        };
        entry.map_err(ExportError::io("open", dir.join(&name))).map(|entry| (name, entry))
    };
    Ok(names.into_iter().map(open))
}

/// Makes sure that the files are on the disk before their directory gets its name, and returns the bytes of
/// them.
pub fn sync_tree(dir: &Directory) -> Result<u64, ExportError> {
    let mut bytes = 0;
    for entry in entries(dir)? {
        let (name, entry) = entry?;
        bytes += match entry {
            Entry::Dir(dir) => sync_tree(&dir)?,
            Entry::File(file) => file
                .sync_all()
                .and_then(|()| Ok(file.metadata()?.len()))
                .map_err(ExportError::io("write", dir.join(name)))?,
        };
    }
    dir.sync();
    Ok(bytes)
}

fn append_tree(tar: &mut tar::Builder<impl io::Write>, dir: &Directory, path: &Path) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_metadata_in_mode(&dir.metadata()?, tar::HeaderMode::Deterministic);
    // Unpacked files are as private as the archive.
    header.set_mode(FileMode::of_process().directory());
    tar.append_data(&mut header, path, io::empty())?;
    for entry in entries(dir).map_err(io::Error::other)? {
        let (name, entry) = entry.map_err(io::Error::other)?;
        let path = path.join(name);
        match entry {
            Entry::Dir(dir) => append_tree(tar, &dir, &path)?,
            Entry::File(file) => {
                let mut header = tar::Header::new_gnu();
                header.set_metadata_in_mode(&file.metadata()?, tar::HeaderMode::Deterministic);
                header.set_mode(FileMode::of_process().file());
                tar.append_data(&mut header, &path, file)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn has_metadata(dir: &Directory) -> bool {
        dir.open_file(OsStr::new("metadata")).is_ok()
    }

    fn staged(target: &Target) -> Result<(PathBuf, u64), ExportError> {
        let staging = Staging::create(target, None)?;
        staging.dir().write("metadata", b"12345").unwrap();
        staging.dir().create_dir("index").unwrap().write("a", b"123").unwrap();
        staging.commit()
    }

    #[test]
    fn nothing_is_seen_before_it_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target { path: dir.path().join("out"), is_export: has_metadata, ..Target::default() };
        let staging = Staging::create(&target, None).unwrap();
        staging.dir().write("metadata", b"x").unwrap();
        assert!(!target.path.exists());
        drop(staging);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(staged(&target).unwrap(), (target.path.clone(), 8));
        assert_eq!(fs::read(target.path.join("index/a")).unwrap(), b"123");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_exports_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let mut target =
            Target { path: dir.path().join("out"), is_export: has_metadata, ..Target::default() };
        fs::create_dir(&target.path).unwrap();
        assert!(matches!(staged(&target), Err(ExportError::Exists { .. })));
        target.force = true;
        staged(&target).unwrap();
        fs::write(target.path.join("old"), "").unwrap();
        staged(&target).unwrap();
        assert!(!target.path.join("old").exists());
        fs::remove_file(target.path.join("metadata")).unwrap();
        assert!(matches!(staged(&target), Err(ExportError::InTheWay { .. })));
        assert!(target.path.join("index/a").exists());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn exports_are_replaced_by_those_of_other_formats() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target {
            path: dir.path().join("out"),
            force: true,
            is_export: has_metadata,
            ..Target::default()
        };
        let as_file = || {
            let staging = Staging::create(&target, Some("text"))?;
            staging.dir().write("text", b"text").unwrap();
            staging.commit()
        };
        staged(&target).unwrap();
        assert!(target.path.join("metadata").exists());
        as_file().unwrap();
        as_file().unwrap();
        assert_eq!(fs::read(&target.path).unwrap(), b"text");
        // A file that somebody named by mistake is not made a directory.
        assert!(matches!(staged(&target), Err(ExportError::InTheWay { .. })));
        assert_eq!(fs::read(&target.path).unwrap(), b"text");
        // A recording is no export.
        let recording = [&MAGIC[..], b"7"].concat();
        fs::write(&target.path, &recording).unwrap();
        assert!(matches!(as_file(), Err(ExportError::InTheWay { .. })));
        assert!(matches!(staged(&target), Err(ExportError::InTheWay { .. })));
        assert_eq!(fs::read(&target.path).unwrap(), recording);
        // Neither is a directory of something else.
        fs::remove_file(&target.path).unwrap();
        fs::create_dir(&target.path).unwrap();
        fs::write(target.path.join("thesis"), "years").unwrap();
        assert!(matches!(as_file(), Err(ExportError::InTheWay { .. })));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    fn look(staging: &Staging, name: &str) -> Stat {
        staging.parent.look(OsStr::new(name)).unwrap().unwrap()
    }

    #[test]
    fn what_was_not_looked_at_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target {
            path: dir.path().join("out"),
            force: true,
            is_export: has_metadata,
            ..Target::default()
        };
        let mut staging = Staging::create(&target, None).unwrap();
        fs::create_dir(dir.path().join("thesis")).unwrap();
        fs::write(dir.path().join("thesis/text"), "years").unwrap();
        staged(&target).unwrap();
        // The thesis was seen under the name, the export was opened.
        let seen = look(&staging, "thesis");
        assert!(!is_export(&staging.parent, OsStr::new("out"), &seen, has_metadata).unwrap());
        assert!(is_export(&staging.parent, OsStr::new("out"), &look(&staging, "out"), has_metadata).unwrap());
        // The export was seen, the thesis was taken away: it goes back.
        let seen = look(&staging, "out");
        fs::rename(&target.path, dir.path().join("moved")).unwrap();
        fs::rename(dir.path().join("thesis"), &target.path).unwrap();
        assert!(matches!(staging.take_away(&seen), Err(ExportError::InTheWay { .. })));
        drop(staging);
        assert_eq!(fs::read(target.path.join("text")).unwrap(), b"years");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_cannot_be_put_back_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target {
            path: dir.path().join("out"),
            force: true,
            is_export: has_metadata,
            ..Target::default()
        };
        staged(&target).unwrap();
        let mut staging = Staging::create(&target, None).unwrap();
        staging.dir().write("metadata", b"new").unwrap();
        let seen = look(&staging, "out");
        staging.take_away(&seen).unwrap();
        // Something that is not to be replaced comes in between.
        fs::write(&target.path, "theirs").unwrap();
        let error = staging.put_back(ExportError::Cancelled).to_string();
        let kept = staging.outer.path().to_owned();
        drop(staging);
        let old = kept.join(REPLACED);
        assert!(error.contains(old.to_str().unwrap()) && error.contains("put back"), "{error}");
        assert_eq!(fs::read(old.join("index/a")).unwrap(), b"123");
        assert_eq!(fs::read_dir(&kept).unwrap().count(), 1, "what is ours is gone");
        assert_eq!(fs::read(&target.path).unwrap(), b"theirs");
    }

    #[test]
    fn no_name_is_taken_by_what_is_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        for name in [EXPORT, ARCHIVE, REPLACED] {
            for archive in [false, true] {
                let target =
                    Target { path: dir.path().join(name), archive, force: true, is_export: has_metadata };
                staged(&target).unwrap();
                staged(&target).unwrap();
            }
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 6);
    }

    #[test]
    fn an_archive_has_one_directory() {
        let dir = tempfile::tempdir().unwrap();
        for (name, file) in [("out", "out.tar.gz"), ("b.tgz", "b.tgz"), ("c.tar.gz", "c.tar.gz")] {
            let target =
                Target { path: dir.path().join(name), archive: true, force: false, is_export: has_metadata };
            assert_eq!(staged(&target).unwrap().0, dir.path().join(file));
            let gzip = flate2::read::GzDecoder::new(File::open(dir.path().join(file)).unwrap());
            let mut archive = tar::Archive::new(gzip);
            let mut paths: Vec<_> =
                archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().into_owned()).collect();
            paths.sort();
            let stem = Path::new(name.split('.').next().unwrap());
            assert!(paths.contains(&stem.join("index/a")) && paths.contains(&stem.join("metadata")));
            assert!(matches!(staged(&target), Err(ExportError::Exists { .. })));
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    }
}
