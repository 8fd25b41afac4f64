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

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.in_place {
            // What cannot be removed has a name that says what it is.
            let _ = self.output.directory().remove(&self.name);
        }
    }
}

/// A name beside `name` that tells what it is for, and which process it is of.
pub(crate) fn temporary_name(name: &OsStr, purpose: &str, number: u32) -> OsString {
    let end = format!(".{purpose}.{}.{number}", std::process::id());
    let mut bytes = name.as_bytes().to_vec();
    bytes.truncate(NAME_MAX - end.len());
    bytes.extend_from_slice(end.as_bytes());
    OsString::from_vec(bytes)
}

/// Gives the finished `file`, which is `name` in `dir`, its final name. Returns its length.
pub(crate) fn put_in_place(
    dir: &Directory,
    name: &OsStr,
    file: &File,
    output: &Output,
) -> Result<u64, OutputError> {
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
