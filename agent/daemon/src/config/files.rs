//! The files of a configuration. Whoever could change them could let root record and run what it likes, so
//! that they have to be root's, or of who reads them, and nobody else's to change.

use std::{
    io::{self, Read as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use super::{
    MORE,
    source::{Mistake, Sources},
};
use stdx::guard::{Guard, GuardError};

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
    /// A file or directory is not there, or others than root can change it.
    #[error("cannot read the configuration: {0}")]
    Guard(#[from] GuardError),
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
        let [parent, more_path] = Self::dirs(path);
        let mut guard = Guard::default();
        // Nobody else adds a directory of more files there.
        guard.open_dir(&parent)?;
        let mut files = Self { sources: Sources::default() };
        files.add(&mut guard, path.to_owned())?;
        let more = match guard.open_dir(&more_path) {
            Err(error) if error.is_not_found() => return Ok(files),
            opened => opened?,
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
            files.add(&mut guard, more_path.join(&name))?;
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

    fn add(&mut self, guard: &mut Guard, path: PathBuf) -> Result<(), ConfigError> {
        let file = guard.open_file(&path)?;
        let room = TEXT_MAX.saturating_sub(self.sources.len());
        let mut bytes = Vec::new();
        let read = file.take(room as u64 + 1).read_to_end(&mut bytes);
        let text = read.and_then(|_| {
            if bytes.len() > room {
                let why = format!("the files have more than {} MB together", TEXT_MAX >> 20);
                return Err(io::Error::other(why));
            }
            String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
        });
        match text {
            Ok(text) => self.sources.add(path, text),
            Err(source) => return Err(ConfigError::Read { path, source }),
        }
        Ok(())
    }
}
