//! A directory for one run of a command.

use std::ffi::{OsStr, OsString};

use super::{CliError, input};
use stdx::output::{Directory, MODE_PRIVATE, directory_at, temporary_name};

/// A directory that nobody else can read, and that is removed in the end.
pub(super) struct Temporary {
    parent: Directory,
    dir: Directory,
    name: OsString,
}

impl Temporary {
    /// Creates it where temporary files are, for a command.
    pub(super) fn create(command: &str) -> Result<Self, CliError> {
        let failed = || CliError::system("create a temporary directory");
        let parent = directory_at(&input::temporary()).map_err(std::io::Error::other).map_err(failed())?;
        let mut number = 0;
        loop {
            let name = temporary_name(OsStr::new("tracer-agent"), command, number);
            match parent.create_dir_with(&name, MODE_PRIVATE) {
                Ok(dir) => return Ok(Self { parent, dir, name }),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(failed()(error)),
            }
        }
    }

    pub(super) fn dir(&self) -> &Directory {
        &self.dir
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // It says what it was in its name.
        let _ = self.parent.remove_tree(&self.name, &self.dir);
    }
}
