//! The "newc" archive that the kernel unpacks as its first root file system
//! (`Documentation/driver-api/early-userspace/buffer-format.rst`).
//!
//! An entry is a header of 14 fields with 8 hexadecimal digits each, the name with a zero byte, and the data;
//! name and data are padded to 4 bytes. The kernel makes no directory that is not in the archive, and wants
//! it before what it holds, so the writer adds missing parents itself.

use std::collections::BTreeSet;

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const CHAR_DEVICE: u32 = 0o020_000;

/// An archive in memory.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    names: BTreeSet<String>,
    inodes: u32,
}

impl Archive {
    /// An empty archive.
    pub fn new() -> Self {
        Self::default()
    }

    /// True if there is an entry of that name.
    pub fn contains(&self, path: &str) -> bool {
        self.names.contains(path.trim_start_matches('/'))
    }

    /// Adds a directory and its parents, where they are not there yet.
    pub fn directory(&mut self, path: &str) {
        let path = path.trim_matches('/');
        if path.is_empty() || self.contains(path) {
            return;
        }
        self.entry(path, DIRECTORY | 0o755, (0, 0), b"");
    }

    /// Adds a file; a second one of the same name is ignored.
    pub fn file(&mut self, path: &str, permissions: u32, data: &[u8]) {
        self.entry(path, REGULAR | permissions, (0, 0), data);
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, target: &str) {
        self.entry(path, LINK | 0o777, (0, 0), target.as_bytes());
    }

    /// Adds a character device.
    pub fn char_device(&mut self, path: &str, major: u32, minor: u32) {
        self.entry(path, CHAR_DEVICE | 0o600, (major, minor), b"");
    }

    /// The finished archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.header("TRAILER!!!", 0, (0, 0), b"");
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), data: &[u8]) {
        let path = path.trim_start_matches('/');
        if self.contains(path) {
            return;
        }
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        self.names.insert(path.to_owned());
        self.header(path, mode, device, data);
    }

    fn header(&mut self, name: &str, mode: u32, device: (u32, u32), data: &[u8]) {
        self.inodes += 1;
        let fields = [
            self.inodes,
            mode,
            0, // owner
            0, // group
            1, // links
            0, // modification time: the same archive for the same content
            data.len() as u32,
            0, // device that the file is on
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            0, // checksum, unused in this variant
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(archive: &[u8]) -> Vec<String> {
        let number = |at: usize| {
            let text = std::str::from_utf8(&archive[at..at + 8]).expect("hexadecimal digits");
            usize::from_str_radix(text, 16).expect("a number")
        };
        let mut names = Vec::new();
        let mut at = 0;
        while at < archive.len() {
            assert_eq!(at % 4, 0);
            assert_eq!(&archive[at..at + 6], b"070701");
            let (size, name_size) = (number(at + 6 + 6 * 8), number(at + 6 + 11 * 8));
            let name = &archive[at + 110..at + 110 + name_size - 1];
            names.push(String::from_utf8(name.to_vec()).expect("a name"));
            at = (at + 110 + name_size).next_multiple_of(4) + size.next_multiple_of(4);
        }
        names
    }

    #[test]
    fn parents_come_first_and_once() {
        let mut archive = Archive::new();
        archive.file("/a/b/file", 0o644, b"12345");
        archive.link("a/link", "b/file");
        archive.file("a/b/file", 0o644, b"ignored");
        assert_eq!(names(&archive.finish()), ["a", "a/b", "a/b/file", "a/link", "TRAILER!!!"]);
    }

    #[test]
    fn the_empty_archive_is_its_trailer() {
        assert_eq!(names(&Archive::new().finish()), ["TRAILER!!!"]);
    }
}
