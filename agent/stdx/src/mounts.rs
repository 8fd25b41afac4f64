//! Mounted file systems, as the kernel lists them (proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// The most bytes of a list: mounts without number are an attack.
const LIST_MAX: u64 = 64 << 20;

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its number, which fits one mount at a time.
    pub id: u64,
    /// Major and minor number of the file system. stat(2) has others on file systems that number their parts
    /// (btrfs).
    pub device: (u32, u32),
    /// The directory or file of the file system that is mounted.
    pub root: PathBuf,
    /// Where it is mounted, from the root directory of the process whose list it is.
    pub point: PathBuf,
    /// Whether nothing can be written through this mount.
    pub is_read_only: bool,
    /// The type of the file system.
    pub kind: String,
    /// Options of the file system, of all of its mounts.
    pub options: Vec<String>,
}

impl Mount {
    /// Whether nothing can be written through any mount of the file system.
    pub fn is_file_system_read_only(&self) -> bool {
        self.has_option("ro")
    }

    /// Whether the file system has an option, such as the name of a controller of control groups.
    pub fn has_option(&self, name: &str) -> bool {
        self.options.iter().any(|option| option == name)
    }

    /// From a line `ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAG...] - TYPE SOURCE OPTIONS`.
    fn parse(line: &[u8]) -> Option<Self> {
        let mut words = line.split(|&byte| byte == b' ');
        let id = number(words.next()?)?;
        let device = text(words.nth(1)?)?;
        let (major, minor) = device.split_once(':')?;
        let root = path(words.next()?);
        let point = path(words.next()?);
        let is_read_only = has_ro(words.next()?);
        words.find(|word| *word == b"-")?;
        let kind = text(words.next()?)?.to_owned();
        let options = String::from_utf8_lossy(words.nth(1)?).split(',').map(str::to_owned).collect();
        let device = (major.parse().ok()?, minor.parse().ok()?);
        Some(Self { id, device, root, point, is_read_only, kind, options })
    }
}

fn text(word: &[u8]) -> Option<&str> {
    std::str::from_utf8(word).ok()
}

fn number(word: &[u8]) -> Option<u64> {
    text(word)?.parse().ok()
}

fn has_ro(options: &[u8]) -> bool {
    options.split(|&byte| byte == b',').any(|option| option == b"ro")
}

/// A path in which the kernel has written blanks and the like as three octal digits.
fn path(word: &[u8]) -> PathBuf {
    let mut plain = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, after)) = rest.split_first() {
        let code = (byte == b'\\').then(|| after.get(..3)).flatten();
        let code = code.and_then(text).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(code.unwrap_or(byte));
        rest = code.and_then(|_| after.get(3..)).unwrap_or(after);
    }
    OsString::from_vec(plain).into()
}

/// All mounts of a text.
///
/// # Errors
/// A line is no mount: without it, less than all would be known.
pub fn parse(text: &[u8]) -> io::Result<Vec<Mount>> {
    let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    lines.map(Mount::parse).collect::<Option<_>>().ok_or_else(|| invalid("a line of a mountinfo is no mount"))
}

/// The mounts in the mount namespace of a process: `self`, or its number.
///
/// # Errors
/// There is no such process, this one may not read the list, or it is too long.
pub fn of_process(process: &str) -> io::Result<Vec<Mount>> {
    let mut text = Vec::new();
    let list = File::open(Path::new("/proc").join(process).join("mountinfo"))?;
    if list.take(LIST_MAX).read_to_end(&mut text)? as u64 == LIST_MAX {
        return Err(invalid("there are too many mounts"));
    }
    parse(&text)
}

/// The mount by which a file was opened.
///
/// # Errors
/// It was unmounted since, or procfs is not mounted.
pub fn of_file(mounts: &[Mount], file: impl AsFd) -> io::Result<&Mount> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_fd().as_raw_fd()))?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    let id: u64 = id.ok_or_else(|| invalid("/proc/self/fdinfo does not name the mount of a file"))?;
    let found = mounts.iter().find(|mount| mount.id == id);
    found.ok_or_else(|| invalid("/proc/self/mountinfo has no mount of that number"))
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn mounts_are_read_with_their_options_and_names() {
        let text = b"36 35 98:0 /mnt1 /my\\040mnt2\\134x ro,noatime shared:1 master:2 - ext3 /dev/root rw,errors=continue\n\
            37 36 0:41 / /x rw - overlay none ro,lowerdir=/rw\n";
        let mounts = parse(text).unwrap();
        let facts = |mount: &Mount| {
            (mount.id, mount.device, mount.is_read_only, mount.is_file_system_read_only(), mount.kind.clone())
        };
        assert_eq!(
            mounts.iter().map(facts).collect::<Vec<_>>(),
            [(36, (98, 0), true, false, "ext3".to_owned()), (37, (0, 41), false, true, "overlay".to_owned())]
        );
        assert_eq!((mounts[0].root.to_str(), mounts[0].point.to_str()), (Some("/mnt1"), Some("/my mnt2\\x")));
        for wrong in
            ["36", "36 35 98 / / rw - ext4 x rw", "36 35 98:0 / / rw ext4 x rw", "x 1 0:1 / / rw - a b rw"]
        {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_mount_of_a_file_is_found() {
        let mounts = of_process("self").unwrap();
        let found = of_file(&mounts, File::open("/proc/self/status").unwrap()).unwrap();
        assert_eq!((found.kind.as_str(), found.point.to_str()), ("proc", Some("/proc")));
    }
}
