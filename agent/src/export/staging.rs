//! An export is written beside its final place and renamed when it is complete.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::error::ExportError;
use super::{Target, recognise};

/// What an archive's name ends with.
const ARCHIVE_SUFFIX: &str = ".tar.gz";

/// A directory that is removed again unless it is committed.
#[derive(Debug)]
pub struct Staging {
    /// Holds the export and, for a moment, what it replaces.
    outer: PathBuf,
    dir: PathBuf,
    target: PathBuf,
    /// Name of the directory in the archive, if an archive is made.
    archive: Option<OsString>,
    force: bool,
}

impl Staging {
    /// Creates an empty directory beside the target, which must not exist, or be an earlier export that is to be replaced.
    ///
    /// # Errors
    /// Something is in the way, or the directory cannot be created.
    pub fn create(target: &Target) -> Result<Self, ExportError> {
        let name =
            target.path.file_name().ok_or_else(|| ExportError::InTheWay { path: target.path.clone() })?;
        let text = name.to_string_lossy();
        let (path, archive) = match text.strip_suffix(ARCHIVE_SUFFIX).or_else(|| text.strip_suffix(".tgz")) {
            _ if !target.archive => (target.path.clone(), None),
            Some(stem) if !stem.is_empty() => (target.path.clone(), Some(OsString::from(stem))),
            _ => {
                let mut file = name.to_owned();
                file.push(ARCHIVE_SUFFIX);
                (target.path.with_file_name(file), Some(name.to_owned()))
            }
        };
        let force = target.force;
        check_free(&path, archive.is_some(), force)?;
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        for number in 0_u32.. {
            let mut hidden = OsString::from(".");
            hidden.push(path.file_name().unwrap_or_default());
            hidden.push(format!(".export.{}.{number}", std::process::id()));
            let outer = parent.join(hidden);
            match fs::create_dir(&outer) {
                Ok(()) => {
                    let dir = outer.join(archive.as_deref().unwrap_or(name));
                    let staging = Self { outer, dir, target: path, archive, force };
                    fs::create_dir(&staging.dir).map_err(ExportError::io("create", &staging.dir))?;
                    return Ok(staging);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(ExportError::io("create a directory beside", path)(error)),
            }
        }
        Err(ExportError::InTheWay { path })
    }

    /// Where the export is to be written.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Brings the export to its place. Returns where that is, and the bytes of its files.
    ///
    /// # Errors
    /// The disk is full, or something came in the way meanwhile. Nothing has changed then.
    pub fn commit(self) -> Result<(PathBuf, u64), ExportError> {
        let (from, bytes) = match &self.archive {
            None => (self.dir.clone(), sync_tree(&self.dir)?),
            Some(name) => {
                let file = self.outer.join("archive");
                let bytes = pack(&self.dir, name, &file)?;
                (file, bytes)
            }
        };
        check_free(&self.target, self.archive.is_some(), self.force)?;
        if fs::symlink_metadata(&self.target).is_ok_and(|meta| meta.is_dir()) {
            // A directory cannot be renamed onto one that has something in it.
            let old = self.outer.join("replaced");
            fs::rename(&self.target, &old).map_err(ExportError::io("replace", &self.target))?;
            if let Err(error) = fs::rename(&from, &self.target) {
                let _ = fs::rename(&old, &self.target);
                return Err(ExportError::io("create", &self.target)(error));
            }
        } else {
            fs::rename(&from, &self.target).map_err(ExportError::io("create", &self.target))?;
        }
        // The name is durable with its directory; a file system that cannot sync one has no such step.
        if let Some(Ok(parent)) = self.outer.parent().map(File::open) {
            let _ = parent.sync_all();
        }
        Ok((self.target.clone(), bytes))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What cannot be removed has a name that tells what it is.
        let _ = fs::remove_dir_all(&self.outer);
    }
}

fn check_free(path: &Path, archive: bool, force: bool) -> Result<(), ExportError> {
    let path = path.to_owned();
    match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(ExportError::io("look at", path)(error)),
        Ok(_) if !force => Err(ExportError::Exists { path }),
        // Whoever mistypes a name does not want a home directory replaced.
        Ok(meta) if archive && meta.is_file() => Ok(()),
        Ok(meta) if !archive && meta.is_dir() => {
            let ours = recognise::layout(&path).is_some() || recognise::is_empty(&path);
            if ours { Ok(()) } else { Err(ExportError::InTheWay { path }) }
        }
        Ok(_) => Err(ExportError::InTheWay { path }),
    }
}

/// Makes sure that the files are on the disk before their directory gets its name, and returns the bytes of them.
fn sync_tree(dir: &Path) -> Result<u64, ExportError> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir).map_err(ExportError::io("read", dir))? {
        let path = entry.map_err(ExportError::io("read", dir))?.path();
        let file = File::open(&path).map_err(ExportError::io("open", &path))?;
        let meta = file.metadata().map_err(ExportError::io("look at", &path))?;
        if meta.is_dir() {
            bytes += sync_tree(&path)?;
        } else {
            bytes += meta.len();
        }
        file.sync_all().map_err(ExportError::io("write", &path))?;
    }
    Ok(bytes)
}

/// Packs a directory. Owners and times stay out: they are those of whoever exports, not of what was recorded.
fn pack(dir: &Path, name: &OsString, archive: &Path) -> Result<u64, ExportError> {
    let pack = || {
        let file = File::options().create_new(true).write(true).open(archive)?;
        let gzip = flate2::write::GzEncoder::new(io::BufWriter::new(file), flate2::Compression::default());
        let mut tar = tar::Builder::new(gzip);
        tar.mode(tar::HeaderMode::Deterministic);
        tar.append_dir_all(name, dir)?;
        let mut writer = tar.into_inner()?.finish()?;
        writer.flush()?;
        let file = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        Ok(file.metadata()?.len())
    };
    pack().map_err(ExportError::io("write", archive))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn staged(target: &Target) -> Result<(PathBuf, u64), ExportError> {
        let staging = Staging::create(target)?;
        fs::write(staging.dir().join("metadata"), "12345").unwrap();
        fs::create_dir(staging.dir().join("index")).unwrap();
        fs::write(staging.dir().join("index/a"), "123").unwrap();
        staging.commit()
    }

    #[test]
    fn nothing_is_seen_before_it_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target { path: dir.path().join("out"), ..Target::default() };
        let staging = Staging::create(&target).unwrap();
        fs::write(staging.dir().join("metadata"), "x").unwrap();
        assert!(!target.path.exists());
        drop(staging);
        assert!(recognise::is_empty(dir.path()));
        assert_eq!(staged(&target).unwrap(), (target.path.clone(), 8));
        assert_eq!(fs::read(target.path.join("index/a")).unwrap(), b"123");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_exports_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let mut target = Target { path: dir.path().join("out"), ..Target::default() };
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
    fn an_archive_has_one_directory() {
        let dir = tempfile::tempdir().unwrap();
        for (name, file) in [("out", "out.tar.gz"), ("b.tgz", "b.tgz"), ("c.tar.gz", "c.tar.gz")] {
            let target = Target { path: dir.path().join(name), archive: true, force: false };
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
