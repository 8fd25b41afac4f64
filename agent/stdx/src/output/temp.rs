//! A file under a temporary name, which is renamed when it is complete, so that no partial file ever has the
//! final name.
//!
//! The crate tempfile works on paths, which would be walked again for each step; here the directory is a
//! descriptor (`super::resolve`).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use super::directory::Identity;
use super::{Directory, Output, OutputError};

/// Bytes of a name (`NAME_MAX`).
const NAME_MAX: usize = 255;

/// A file that is removed again unless it is brought to its place.
#[derive(Debug)]
pub struct TempFile {
    name: OsString,
    output: Output,
    in_place: bool,
}

impl TempFile {
    /// Creates an empty file in the directory of `output`.
    ///
    /// # Errors
    /// Nothing can be created there.
    pub fn beside(output: &Output) -> Result<(Self, File), OutputError> {
        let mut number = 0;
        loop {
            let name = temporary_name(output.name(), "new", number);
            match output.directory().create(&name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Ok(file) => return Ok((Self { name, output: output.clone(), in_place: false }, file)),
                Err(error) => return Err(OutputError::io("create", output.directory().join(name))(error)),
            }
        }
    }

    /// Brings the file to the disk and to its place, where it replaces a file that is there. Returns its
    /// length.
    ///
    /// # Errors
    /// The disk is full, or the name cannot be given. Nothing has changed then.
    pub fn put_in_place(mut self, file: &File) -> Result<u64, OutputError> {
        file.sync_data().map_err(OutputError::io("write", self.output.path()))?;
        let bytes = put_in_place(self.output.directory(), &self.name, file, &self.output)?;
        self.in_place = true;
        Ok(bytes)
    }
}

impl TempFile {
    /// Brings the file to the disk and gives it the first of these names in the directory of its output that
    /// nothing has. Returns that output, and the file's length.
    ///
    /// # Errors
    /// As [`TempFile::put_in_place`], or all names are taken.
    pub fn put_in_new_place(
        mut self,
        file: &File,
        names: impl Iterator<Item = OsString>,
    ) -> Result<(Output, u64), OutputError> {
        let dir = self.output.directory().clone();
        file.sync_data().map_err(OutputError::io("write", self.output.path()))?;
        let bytes = file.metadata().map_err(OutputError::io("read the size of", self.output.path()))?.len();
        for name in names {
            let place = Output { dir: dir.clone(), name };
            match rename_new(&dir, &self.name, &place.name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(OutputError::io("create", place.path())(error)),
                Ok(()) => {
                    self.in_place = true;
                    let identity =
                        Identity::of_file(file).map_err(OutputError::io("look at", place.path()))?;
                    if !dir.has(&place.name, identity).map_err(OutputError::io("look at", place.path()))? {
                        return Err(OutputError::Exchanged { path: place.path() });
                    }
                    dir.sync();
                    return Ok((place, bytes));
                }
            }
        }
        Err(OutputError::io("create", self.output.path())(io::ErrorKind::AlreadyExists.into()))
    }
}

/// Gives a file another name that nothing has. Where the file system cannot do that in one step, it is looked
/// before.
fn rename_new(dir: &Directory, name: &OsStr, new: &OsStr) -> io::Result<()> {
    match dir.rename_new(name, dir, new) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => match dir.look(new)? {
            Some(_) => Err(io::ErrorKind::AlreadyExists.into()),
            None => dir.rename(name, dir, new),
        },
        done => done,
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.in_place {
            // What cannot be removed has a name that says what it is.
            let _ = self.output.directory().remove(&self.name);
        }
    }
}

/// A name beside `name` that tells what it is for, and which process it is of.
pub fn temporary_name(name: &OsStr, purpose: &str, number: u32) -> OsString {
    let end = format!(".{purpose}.{}.{number}", std::process::id());
    let mut bytes = name.as_bytes().to_vec();
    bytes.truncate(NAME_MAX - end.len());
    bytes.extend_from_slice(end.as_bytes());
    OsString::from_vec(bytes)
}

/// Gives the finished `file`, which is `name` in `dir`, its final name. Returns its length.
pub fn put_in_place(dir: &Directory, name: &OsStr, file: &File, output: &Output) -> Result<u64, OutputError> {
    let path = output.path();
    let bytes = file.metadata().map_err(OutputError::io("read the size of", &path))?.len();
    let identity = Identity::of_file(file).map_err(OutputError::io("look at", &path))?;
    let target = output.directory();
    // Who may write to a directory without sticky bit can exchange the file at any time, and finds out in
    // vain: whatever is there is renamed, never followed. But it must not be reported as the file that was
    // written.
    let is_it = |dir: &Directory, name: &OsStr| dir.has(name, identity);
    if !is_it(dir, name).map_err(OutputError::io("look at", dir.join(name)))? {
        return Err(OutputError::Exchanged { path: dir.join(name) });
    }
    dir.rename(name, target, output.name()).map_err(OutputError::io("create", &path))?;
    if !is_it(target, output.name()).map_err(OutputError::io("look at", &path))? {
        return Err(OutputError::Exchanged { path });
    }
    // The name is durable with the directory.
    target.sync();
    Ok(bytes)
}
