//! The files of a configuration. Whoever could change them could let root record and run what it likes, so
//! that they have to be root's, or of who reads them, and nobody else's to write.

use std::{
    fs::{File, Metadata},
    io::{self, Read as _},
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags, openat};

use super::{
    MORE,
    source::{Mistake, Sources},
};
use stdx::output::Directory;

/// The most bytes of all files together.
const TEXT_MAX: usize = 16 << 20;
/// The most files in the directory of more files.
const FILES_MAX: usize = 1024;

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file or directory.
    #[error("cannot read the configuration {path}: {source}", path = path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What they say.
    #[error("{}", told(.0))]
    Mistakes(Vec<Mistake>),
}

fn told(mistakes: &[Mistake]) -> String {
    mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The files that were read.
#[derive(Clone, Debug)]
pub struct ReadFiles {
    sources: Sources,
}

impl ReadFiles {
    /// Reads the file at `path`, and those of the directory beside it.
    ///
    /// # Errors
    /// One of them cannot be read, others may change it, or they are too large.
    pub(super) fn read(path: &Path) -> Result<Self, ConfigError> {
        let of = |path: &Path| {
            let path = path.to_owned();
            move |source| ConfigError::Read { path, source }
        };
        let name = path.file_name().ok_or_else(|| of(path)(io::ErrorKind::IsADirectory.into()))?;
        let [parent, more_path] = Self::dirs(path);
        let dir = open_dir(&parent).map_err(of(&parent))?;
        let mut files = Self { sources: Sources::default() };
        files.add(&dir, name.as_ref(), path.to_owned()).map_err(of(path))?;
        let more = match open_dir(&more_path) {
            Ok(more) => more,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
            Err(error) => return Err(of(&more_path)(error)),
        };
        let mut names = more.names().map_err(of(&more_path))?;
        // Editors keep others beside them, and begin those of their own with a dot.
        names.retain(|name| name.as_bytes().ends_with(b".toml") && !name.as_bytes().starts_with(b"."));
        if names.len() > FILES_MAX {
            let error = io::Error::other(format!("it has more than {FILES_MAX} files"));
            return Err(of(&more_path)(error));
        }
        names.sort();
        for name in names {
            let path = more_path.join(&name);
            files.add(&more, name.as_ref(), path.clone()).map_err(of(&path))?;
        }
        Ok(files)
    }

    pub(super) fn sources(&self) -> &Sources {
        &self.sources
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.sources.iter().count()
    }

    /// The directories that the files of a configuration are in, whose first one is this: its own, and that
    /// of more files, which need not be there.
    pub fn dirs(path: &Path) -> [PathBuf; 2] {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        [parent.to_owned(), parent.join(MORE)]
    }

    fn add(&mut self, dir: &Directory, name: &Path, path: PathBuf) -> io::Result<()> {
        let file = open_file(dir, name)?;
        let room = TEXT_MAX.saturating_sub(self.sources.len());
        let mut bytes = Vec::new();
        file.take(room as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > room {
            return Err(io::Error::other(format!("the files have more than {} MB together", TEXT_MAX >> 20)));
        }
        let text = String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))?;
        self.sources.add(path, text);
        Ok(())
    }
}

/// Opens a directory in which nobody else can put other files.
fn open_dir(path: &Path) -> io::Result<Directory> {
    let dir = Directory::open(path)?;
    check_owner(&dir.metadata()?)?;
    Ok(dir)
}

/// Opens a file. A link in a directory that is nobody else's is followed: mounted configuration has some.
fn open_file(dir: &Directory, name: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(dir.open_itself()?, name, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    check_owner(&metadata)?;
    Ok(file)
}

fn check_owner(metadata: &Metadata) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    if metadata.uid() != 0 && metadata.uid() != own {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("user {} owns it, who could have anything recorded; `chown root` it", metadata.uid()),
        ));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "other users can change it, and could have anything recorded; `chmod go-w` it",
        ));
    }
    Ok(())
}
