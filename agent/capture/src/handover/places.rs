//! Directories, and names in them, on their way to another process.

use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};

use crate::manifest::raw;
use stdx::handover::{Descriptors, Missing, Number};
use stdx::output::{Directory, Output};

/// A directory.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandedDirectory {
    fd: Number,
    /// For messages.
    #[serde(with = "raw::path")]
    path: PathBuf,
}

impl HandedDirectory {
    pub(crate) fn of(dir: &Directory, to: &mut Descriptors) -> Self {
        Self { fd: to.put(dir.descriptor()), path: dir.path().to_owned() }
    }

    pub(crate) fn take_over(self, from: &mut Descriptors) -> Result<Directory, Missing> {
        Ok(Directory::of_descriptor(from.take(self.fd)?, self.path))
    }
}

/// A file's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Bytes", into = "Bytes")]
pub(crate) struct HandedName(pub(crate) OsString);

#[derive(Serialize, Deserialize)]
struct Bytes(#[serde(with = "raw")] Vec<u8>);

impl From<HandedName> for Bytes {
    fn from(HandedName(name): HandedName) -> Self {
        Self(name.as_bytes().to_vec())
    }
}

impl From<Bytes> for HandedName {
    fn from(Bytes(bytes): Bytes) -> Self {
        Self(OsString::from_vec(bytes))
    }
}

/// Where a file goes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandedOutput {
    dir: HandedDirectory,
    name: HandedName,
}

impl HandedOutput {
    pub(crate) fn of(output: &Output, to: &mut Descriptors) -> Self {
        let name = HandedName(output.name().to_owned());
        Self { dir: HandedDirectory::of(output.directory(), to), name }
    }

    pub(crate) fn take_over(self, from: &mut Descriptors) -> Result<Output, Missing> {
        let Self { dir, name: HandedName(name) } = self;
        Ok(Output::taken_over(dir.take_over(from)?, name))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn any_name_goes_over() {
        for bytes in [&b"trace.dat"[..], b"\xff\"\\ a", b""] {
            let name = HandedName(OsString::from_vec(bytes.to_vec()));
            let text = serde_json::to_vec(&name).unwrap();
            assert_eq!(serde_json::from_slice::<HandedName>(&text).unwrap(), name);
        }
    }
}
