//! A file is written beside its final place and renamed when it is complete, so that no half of one ever has its name.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A step on the way that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}: {source}", path = .path.display())]
pub struct DraftError {
    /// What was tried.
    pub action: &'static str,
    /// On which path.
    pub path: PathBuf,
    /// The system's reason.
    #[source]
    pub source: io::Error,
}

impl DraftError {
    /// For `map_err`: a failure of `action` on `path`.
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self { action, path, source }
    }
}

/// A file that is removed again unless it is brought to its place.
#[derive(Debug)]
pub struct Draft {
    path: PathBuf,
    output: PathBuf,
    in_place: bool,
}

impl Draft {
    /// Creates an empty file in the directory of `output`. A symbolic link there is followed.
    ///
    /// # Errors
    /// The directory does not exist, or nothing can be created there; what is at `output` is no regular file.
    pub fn beside(output: &Path) -> Result<(Self, File), DraftError> {
        let output = match output.metadata() {
            Ok(there) if !there.is_file() => {
                let source = io::Error::other("it is not a regular file, and the new one takes its place");
                return Err(DraftError::io("replace", output)(source));
            }
            Ok(_) if output.is_symlink() => {
                output.canonicalize().map_err(DraftError::io("follow", output))?
            }
            _ => output.to_owned(),
        };
        let (path, file) = create_beside(&output)?;
        Ok((Self { path, output, in_place: false }, file))
    }

    /// Brings the file to the disk and to its place, where it replaces a file that is there. Returns its length.
    ///
    /// # Errors
    /// The disk is full, or the name cannot be given. Nothing has changed then.
    pub fn put_in_place(mut self, file: &File) -> Result<u64, DraftError> {
        file.sync_data().map_err(DraftError::io("write", &self.output))?;
        let bytes = put_in_place(&self.path, &self.output)?;
        self.in_place = true;
        Ok(bytes)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.in_place {
            // What cannot be removed has a name that tells what it is.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether both paths lead to one file, whatever their names are.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| path.metadata().map(|metadata| (metadata.dev(), metadata.ino())).ok();
    identity(one).is_some_and(|one| Some(one) == identity(other))
}

/// The directory of `path`.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Creates a file of which nobody else knows.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    File::options().create_new(true).read(true).write(true).open(path)
}

/// Creates a file beside `output`.
pub(crate) fn create_beside(output: &Path) -> Result<(PathBuf, File), DraftError> {
    for number in 0_u32.. {
        let mut name = output.as_os_str().to_owned();
        name.push(format!(".new.{}.{number}", std::process::id()));
        let path = PathBuf::from(name);
        match create_new(&path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            result => return result.map(|file| (path.clone(), file)).map_err(DraftError::io("create", path)),
        }
    }
    unreachable!("a directory does not have four thousand million files of one process")
}

/// Gives a finished file its name. Returns its length.
pub(crate) fn put_in_place(draft: &Path, output: &Path) -> Result<u64, DraftError> {
    let bytes = fs::metadata(draft).map_err(DraftError::io("read the size of", draft))?.len();
    fs::rename(draft, output).map_err(DraftError::io("create", output))?;
    // The name is durable with the directory; a file system that cannot sync one has no such step.
    if let Ok(dir) = File::open(parent(output)) {
        let _ = dir.sync_all();
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn only_a_finished_file_gets_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("out");
        let names = || fs::read_dir(dir.path()).unwrap().count();
        let (draft, mut file) = Draft::beside(&output).unwrap();
        file.write_all(b"half").unwrap();
        assert_eq!((output.exists(), names()), (false, 1));
        drop(draft);
        assert_eq!(names(), 0);
        fs::write(&output, "old").unwrap();
        let (draft, mut file) = Draft::beside(&output).unwrap();
        file.write_all(b"new one").unwrap();
        assert_eq!(fs::read(&output).unwrap(), b"old");
        assert_eq!(draft.put_in_place(&file).unwrap(), 7);
        assert_eq!((fs::read(&output).unwrap(), names()), (b"new one".to_vec(), 1));
    }

    #[test]
    fn links_are_followed_and_other_things_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        fs::write(&real, "old").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert!(is_same_file(&real, &link) && !is_same_file(&real, dir.path()));
        let (draft, file) = Draft::beside(&link).unwrap();
        draft.put_in_place(&file).unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(&real).unwrap(), b"");
        let error = Draft::beside(dir.path()).unwrap_err();
        assert_eq!(error.action, "replace");
        assert!(Draft::beside(&dir.path().join("none/out")).is_err());
    }
}
