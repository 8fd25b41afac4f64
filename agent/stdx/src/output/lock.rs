//! Files that one process at a time locks (flock(2)), and which process that is.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read as _},
    os::fd::AsFd,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
    process::Signal,
};

use super::{Directory, FileMode, Identity};
use crate::mounts;

/// How often a file is locked that another process removes meanwhile.
const ATTEMPTS: usize = 8;

/// The longest list of locks that is read.
const LOCKS_MAX: u64 = 64 << 20;

/// How often the list is read before a lock is taken for absent.
const READS: u32 = 3;

/// A locked file. The lock ends with the last descriptor of it, in whatever process that is.
#[derive(Debug)]
pub struct LockedFile {
    /// It can be read and written.
    pub file: File,
    /// Whether it was created for this lock.
    pub is_new: bool,
}

impl Directory {
    /// Locks the file `name`, which is created with this mode if it is missing. `None` if another process has
    /// it locked.
    ///
    /// # Errors
    /// The file cannot be opened or created, or something else has the name.
    pub fn lock(&self, name: impl AsRef<OsStr>, mode: FileMode) -> io::Result<Option<LockedFile>> {
        let name = name.as_ref();
        for _ in 0..ATTEMPTS {
            let (file, is_new) = match self.open_for_writing(name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => match self.create_with(name, mode) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                    created => (created?, true),
                },
                opened => (opened?, false),
            };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => return Ok(None),
                locked => locked?,
            }
            // The process that had it may have removed it: the next one would lock another file.
            if self.has(name, Identity::of_file(&file)?)? {
                return Ok(Some(LockedFile { file, is_new }));
            }
        }
        Ok(None)
    }

    /// The process that locked the file `name`; others may have the lock from it. The file is not locked for
    /// that even for a moment: a process that locks it then would be refused.
    ///
    /// `None` if no process has it, or one that /proc/locks (proc_locks(5)) does not show to this process:
    /// those of other PID namespaces.
    ///
    /// # Errors
    /// The file or the list cannot be read.
    pub fn lock_holder(&self, name: impl AsRef<OsStr>) -> io::Result<Option<u32>> {
        let file = match self.open_file(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let Identity { ino, .. } = Identity::of_file(&file)?;
        let device = device_of(&file)?;
        // The kernel gives the list in parts: where locks come and go between two of them, one that is held
        // all the time may be missing (kernel seq_file.rst, "the iterator interface").
        for _ in 0..READS {
            let mut locks = String::new();
            File::open("/proc/locks")?.take(LOCKS_MAX).read_to_string(&mut locks)?;
            let process = locks.lines().find_map(|line| holder_in(line, device, ino));
            if process.is_some() {
                return Ok(process);
            }
        }
        Ok(None)
    }
}

/// Whether a process is about to end, or has ended: what it holds goes with it. Closing thousands of perf
/// events takes a process many seconds.
pub fn is_ending(process: u32) -> bool {
    let read = |name: &str| match fs::read(format!("/proc/{process}/{name}")) {
        Ok(text) => Some(String::from_utf8_lossy(&text).into_owned()),
        // It is gone, or ended meanwhile.
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::SRCH) => None,
            _ => Some(String::new()),
        },
    };
    read("status").zip(read("stat")).is_none_or(|(status, stat)| shows_end(&status, &stat))
}

/// Whether proc_pid_status(5) and proc_pid_stat(5) of a process show that it ends: it is dead, a deadly
/// signal is on its way, or it has the flag PF_EXITING (include/linux/sched.h).
fn shows_end(status: &str, stat: &str) -> bool {
    const PF_EXITING: u32 = 4;
    const KILLED: u64 = 1 << (Signal::KILL.as_raw() - 1);
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let is_dead = value("State:").is_some_and(|state| state.starts_with(['Z', 'X']));
    let is_killed = ["SigPnd:", "ShdPnd:"].into_iter().any(|name| {
        let pending = value(name).and_then(|mask| u64::from_str_radix(mask, 16).ok());
        pending.is_some_and(|mask| mask & KILLED != 0)
    });
    // The name may have anything in it, brackets too. Flags are the seventh value behind it.
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(6));
    let is_exiting = flags.and_then(|flags| flags.parse::<u32>().ok()).is_some_and(|of| of & PF_EXITING != 0);
    is_dead || is_killed || is_exiting
}

/// `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`: number, kind, how it binds, access, process, device and
/// inode, range. Locks that are waited for have an arrow behind the number.
fn holder_in(line: &str, device: (u32, u32), ino: u64) -> Option<u32> {
    let mut words = line.split_ascii_whitespace().skip(1);
    words.next().filter(|kind| *kind == "FLOCK")?;
    let process = words.nth(2)?.parse().ok()?;
    let mut parts = words.next()?.split(':');
    let mut number = || u32::from_str_radix(parts.next()?, 16).ok();
    let found = number().zip(number());
    let is_it = found == Some(device) && parts.next().and_then(|ino| ino.parse().ok()) == Some(ino);
    is_it.then_some(process)
}

/// The number of the device that a file's file system is on, as the list of locks has it: that of its mount.
fn device_of(file: impl AsFd) -> io::Result<(u32, u32)> {
    Ok(mounts::of_file(&mounts::of_process("self")?, file)?.device)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn lines_of_the_list() {
        let of = |line| holder_in(line, (0xfe, 0x1), 5678);
        assert_eq!(of("1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF"), Some(1234));
        for line in [
            // It is only waited for.
            "1: -> FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF",
            "1: POSIX  ADVISORY  WRITE 1234 fe:01:5678 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 1234 fe:02:5678 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 1234 fe:01:567 0 EOF",
            "",
            "1: FLOCK",
            "1: FLOCK a b c d:e:f g",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[test]
    fn processes_that_end_show_it() {
        let status = |state: &str, own: &str| {
            format!("Name:\tx\nState:\t{state}\nSigPnd:\t{own}\nShdPnd:\t0000000000000000\n")
        };
        let stat = |flags: u32| format!("7 (a) b) S 1 7 7 0 -1 {flags} 0 0");
        let (none, kill) = ("0000000000000000", "0000000000000100");
        assert!(!shows_end(&status("S (sleeping)", none), &stat(0x40_0000)));
        assert!(shows_end(&status("Z (zombie)", none), &stat(0x40_0000)));
        assert!(shows_end(&status("R (running)", kill), &stat(0x40_0000)));
        assert!(shows_end(&status("D (disk sleep)", none), &stat(0x40_0004)));
        assert!(!shows_end("", ""));
        assert!(!is_ending(std::process::id()));
    }

    #[test]
    fn a_lock_excludes_others_and_shows_its_holder() {
        const LOCK: &str = "lock";
        let dir = tempfile::tempdir().unwrap();
        let files = Directory::open(dir.path()).unwrap();
        assert_eq!(files.lock_holder(LOCK).unwrap(), None, "there is no file");
        let lock = files.lock(LOCK, FileMode::PRIVATE).unwrap().unwrap();
        assert!(lock.is_new);
        assert_eq!(files.lock_holder(LOCK).unwrap(), Some(std::process::id()));
        assert!(files.lock(LOCK, FileMode::PRIVATE).unwrap().is_none());
        // One that was removed while it was held is no lock of the name.
        files.remove(LOCK).unwrap();
        assert!(files.lock(LOCK, FileMode::PRIVATE).unwrap().unwrap().is_new);
        drop(lock);
        assert_eq!(files.lock_holder(LOCK).unwrap(), None);
        assert!(!files.lock(LOCK, FileMode::PRIVATE).unwrap().unwrap().is_new);
        files.remove(LOCK).unwrap();
        std::os::unix::fs::symlink("elsewhere", dir.path().join(LOCK)).unwrap();
        assert!(files.lock(LOCK, FileMode::PRIVATE).is_err());
    }
}
