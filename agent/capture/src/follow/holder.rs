//! Whether a recorder holds a spool, found out without taking its lock even for a moment: whoever recovers or
//! replaces the spool at that moment would be refused.

use std::{
    fs,
    io::{self, Read as _},
    os::fd::{AsFd, AsRawFd as _},
};

use crate::spool::LOCK;
use stdx::output::{Directory, Identity};

/// The longest list of locks that is read.
const LOCKS_MAX: u64 = 64 << 20;

/// How often the list is read before it is believed that a lock is not in it.
const LOOKS: u32 = 3;

/// Whether somebody holds the lock of the spool `files`.
///
/// /proc/locks (proc_locks(5)) has the holders that this process can see: of a recorder outside its PID
/// namespace it tells nothing.
pub(super) fn is_held(files: &Directory) -> io::Result<bool> {
    let lock = match files.open_file(LOCK) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        lock => lock?,
    };
    let Identity { ino, .. } = Identity::of_file(&lock)?;
    let device = device_of(&lock)?;
    // The list is read in parts, between which the kernel lets go of it: where locks come and go meanwhile,
    // it may leave out one that is held all the time (kernel seq_file.rst, "the iterator interface").
    for _ in 0..LOOKS {
        let mut locks = String::new();
        fs::File::open("/proc/locks")?.take(LOCKS_MAX).read_to_string(&mut locks)?;
        if locks.lines().any(|line| is_lock_of(line, device, ino)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`: number, kind, how it binds, access, process, device and
/// inode, range. Locks that are waited for have an arrow behind the number.
fn is_lock_of(line: &str, device: (u32, u32), ino: u64) -> bool {
    let mut words = line.split_ascii_whitespace().skip(1);
    let is_held = words.next() == Some("FLOCK");
    let Some(file) = words.nth(3) else { return false };
    let mut parts = file.split(':');
    let mut number = || u32::from_str_radix(parts.next()?, 16).ok();
    let found = number().zip(number());
    is_held && found == Some(device) && parts.next().and_then(|ino| ino.parse().ok()) == Some(ino)
}

/// The number of the device that a file's file system is on, as the list of locks has it: that of its mount.
/// stat(2) has another on file systems that number their parts (btrfs).
fn device_of(file: impl AsFd) -> io::Result<(u32, u32)> {
    let no = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_fd().as_raw_fd()))?;
    let mount = info.lines().find_map(|line| line.strip_prefix("mnt_id:")).map(str::trim);
    let mount = mount.ok_or_else(|| no("/proc/self/fdinfo does not name the mount of a file"))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    // mount id, parent id, major:minor (proc_pid_mountinfo(5)).
    let of_mount = |line: &str| {
        let mut words = line.split(' ');
        let device = (words.next() == Some(mount)).then(|| words.nth(1)).flatten()?;
        let (major, minor) = device.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    mounts.lines().find_map(of_mount).ok_or_else(|| no("/proc/self/mountinfo has no mount of that number"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use rustix::fs::{FlockOperation, flock};

    use super::*;

    #[test]
    fn lines_of_the_list() {
        let of = |line| is_lock_of(line, (0xfe, 0x1), 5678);
        assert!(of("1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF"));
        assert!(!of("1: -> FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF"), "it is only waited for");
        assert!(!of("1: POSIX  ADVISORY  WRITE 1234 fe:01:5678 0 EOF"));
        assert!(!of("1: FLOCK  ADVISORY  WRITE 1234 fe:02:5678 0 EOF"));
        assert!(!of("1: FLOCK  ADVISORY  WRITE 1234 fe:01:567 0 EOF"));
        assert!(!of("") && !of("1: FLOCK") && !of("1: FLOCK a b c d:e:f g"));
    }

    #[test]
    fn a_lock_shows_while_it_is_held() {
        let dir = tempfile::tempdir().unwrap();
        let files = Directory::open(dir.path()).unwrap();
        assert!(!is_held(&files).unwrap(), "there is nothing to lock");
        let lock = files.create(LOCK).unwrap();
        assert!(!is_held(&files).unwrap());
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        assert!(is_held(&files).unwrap());
        drop(lock);
        assert!(!is_held(&files).unwrap());
    }
}
