//! Reading the kernel's pseudo files, whose size is not known before they have been read.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::buffer::spare_capacity;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

/// The room that a read has at least. A `seq_file` hands out at most one page per call (`fs/seq_file.c`), so
/// more would be reserved in vain for the thousands of small files that are read at start.
const STEP: usize = 8192;

/// Opens a file for reading, relative to `dir`.
pub(crate) fn open_at(dir: BorrowedFd<'_>, path: &str) -> io::Result<OwnedFd> {
    Ok(openat(dir, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Appends what is left of `file` to `into`.
pub(crate) fn append(file: impl AsFd, into: &mut Vec<u8>) -> io::Result<()> {
    loop {
        into.reserve(STEP);
        // Into memory that was not cleared: a kernel's types are 6 MB, which come in pages.
        match rustix::io::read(&file, spare_capacity(into)) {
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The whole content of a file, relative to `dir`.
pub(crate) fn file_at(dir: BorrowedFd<'_>, path: &str) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    append(open_at(dir, path)?, &mut content)?;
    Ok(content)
}

/// The whole content of a file.
pub fn file(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let file = openat(CWD, path.as_ref(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut content = Vec::new();
    append(file, &mut content)?;
    Ok(content)
}

/// The whole content of a file as text, without the white space around it.
pub fn trimmed(path: impl AsRef<Path>) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&file(path)?).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_any_size_is_read_whole() {
        let dir = tempfile::tempdir().unwrap();
        for size in [0, 1, STEP - 1, STEP, STEP + 1, 3 * STEP + 7, 500_000] {
            let path = dir.path().join(size.to_string());
            let content: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
            std::fs::write(&path, &content).unwrap();
            assert_eq!(file(&path).unwrap(), content, "{size}");
        }
    }

    #[test]
    fn text_loses_its_line_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("value");
        std::fs::write(&path, " 2\n").unwrap();
        assert_eq!(trimmed(&path).unwrap(), "2");
        assert!(trimmed(dir.path().join("none")).is_err());
    }
}
