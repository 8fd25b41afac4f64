//! A directory for a while, which nobody else can look into.

use std::{
    ffi::{OsStr, OsString},
    io,
    path::Path,
};

use stdx::output::{Directory, MODE_PRIVATE, temporary_name};

/// How many names are tried for it, of which others may have the first.
const NAMES_MAX: u32 = 1000;

/// A private directory. It stays until it is removed.
#[derive(Debug)]
pub struct Place {
    parent: Directory,
    name: OsString,
    dir: Directory,
}

impl Place {
    /// Creates one in this directory.
    ///
    /// # Errors
    /// Nothing can be created there.
    pub fn create_in(parent: &Path) -> io::Result<Self> {
        Self::create(&Directory::open(parent)?)
    }

    /// Whether there is something of this name in it.
    pub fn has(&self, name: &str) -> bool {
        // What cannot be looked at may be there.
        !matches!(self.dir.look(OsStr::new(name)), Ok(None))
    }

    pub(super) fn create(parent: &Directory) -> io::Result<Self> {
        let mut number = 0;
        loop {
            let name = temporary_name(OsStr::new("tracer-agent"), "pipe", number);
            match parent.create_dir_with(&name, MODE_PRIVATE) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < NAMES_MAX => {
                    number += 1;
                }
                created => return created.map(|dir| Self { parent: parent.clone(), name, dir }),
            }
        }
    }

    /// The directory.
    pub fn dir(&self) -> &Directory {
        &self.dir
    }

    /// Removes it, with what is in it.
    ///
    /// # Errors
    /// Something cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        self.parent.remove_tree(&self.name, &self.dir)
    }
}
