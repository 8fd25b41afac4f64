//! The mode of new files, one for the whole process, as the umask is: whatever writes gets it.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Gid, Mode, fchmod, fchown};
use rustix::io::Errno;

/// Bits that a file may have.
const FILE_MAX: u32 = 0o666;
/// The owner reads what it writes.
const OWNER: u32 = 0o600;
/// The owner's bits of a directory.
const OWNER_DIR: u32 = 0o700;
/// Others read.
const OTHERS_READ: u32 = 0o044;
/// The group writes.
const GROUP_WRITE: u32 = 0o020;
/// The group reads.
const GROUP_READ: u32 = 0o040;

/// The bits, and above them the group plus one.
static OF_PROCESS: AtomicU64 = AtomicU64::new(FileMode::PRIVATE.bits as u64);

/// The mode of new files, less the umask. Recordings hold addresses of the kernel and paths of other users,
/// so the default is [`FileMode::PRIVATE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMode {
    bits: u32,
    /// The group that new files get.
    readers: Option<u32>,
}

/// A text that is no mode of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is an octal number from 0600 to 0666 in which the owner may read and write, such as 0640")]
pub struct FileModeError;

impl FileMode {
    /// Nobody else reads or writes.
    pub const PRIVATE: Self = Self::new(OWNER);

    const fn new(bits: u32) -> Self {
        Self { bits, readers: None }
    }

    /// Members of a group read, whatever the umask is. Files stay private where their owner cannot give them
    /// to the group: a user can do so only as a member.
    pub fn readable_by(gid: u32) -> Self {
        Self { bits: OWNER | GROUP_READ, readers: Some(gid) }
    }

    /// The mode that new files of this process get.
    pub fn of_process() -> Self {
        let packed = OF_PROCESS.load(Ordering::Relaxed);
        let [bits, group] = [packed, packed >> 32].map(|half| half as u32);
        Self { bits, readers: group.checked_sub(1) }
    }

    /// Gives this mode to all files that this process creates from now on.
    pub fn set(self) {
        let group = self.readers.map_or(0, |gid| u64::from(gid) + 1);
        OF_PROCESS.store(group << 32 | u64::from(self.bits), Ordering::Relaxed);
    }

    /// The bits of a file.
    pub fn file(self) -> u32 {
        self.bits
    }

    /// The bits of a directory. Readers of the files can list it, and a group that writes the files can add
    /// some, as to a data set that several users export to.
    pub fn directory(self) -> u32 {
        let read = self.bits & OTHERS_READ;
        OWNER_DIR | read | read >> 2 | self.bits & GROUP_WRITE
    }

    /// The bits of this mode that a file or directory is created with: the owner's alone, where a group gets
    /// it afterwards.
    pub(super) fn at_first(self, bits: u32) -> Mode {
        let kept = if self.readers.is_some() { OWNER_DIR } else { !0 };
        Mode::from_raw_mode(bits & kept)
    }

    /// Gives a new file or directory to the group of this mode, if it has one.
    ///
    /// # Errors
    /// Those of fchown(2) and fchmod(2), but for that the owner is not of the group: it stays private.
    pub(super) fn give(self, created: impl AsFd, bits: u32) -> io::Result<()> {
        let Some(gid) = self.readers else { return Ok(()) };
        match fchown(&created, None, Some(Gid::from_raw(gid))) {
            Ok(()) => Ok(fchmod(&created, Mode::from_raw_mode(bits))?),
            Err(Errno::PERM) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl FromStr for FileMode {
    type Err = FileModeError;

    fn from_str(text: &str) -> Result<Self, FileModeError> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let mode = u32::from_str_radix(text, 8).ok().filter(|_| digits).ok_or(FileModeError)?;
        let is_file = mode & !FILE_MAX == 0 && mode & OWNER == OWNER;
        if is_file { Ok(Self::new(mode)) } else { Err(FileModeError) }
    }
}

impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    #[test]
    fn new_files_are_a_groups_where_their_owner_is_of_it() {
        let file = tempfile::tempfile().unwrap();
        let there = |file: &std::fs::File| {
            let there = file.metadata().unwrap();
            (there.gid(), there.mode() & 0o777)
        };
        let (own, _) = there(&file);
        FileMode::readable_by(own).give(&file, 0o640).unwrap();
        assert_eq!(there(&file), (own, 0o640));
        file.set_permissions(std::fs::Permissions::from_mode(0o600)).unwrap();
        FileMode::PRIVATE.give(&file, 0o640).unwrap();
        assert_eq!(there(&file), (own, 0o600));
        // A thread of another user, who is of no other group.
        let nobody = (Gid::from_raw(65_534), rustix::fs::Uid::from_raw(65_534));
        if fchown(&file, Some(nobody.1), Some(nobody.0)).is_ok() {
            let given = std::thread::scope(|scope| {
                let give = || {
                    rustix::thread::set_thread_groups(&[]).unwrap();
                    rustix::thread::set_thread_res_gid(nobody.0, nobody.0, nobody.0).unwrap();
                    rustix::thread::set_thread_res_uid(nobody.1, nobody.1, nobody.1).unwrap();
                    FileMode::readable_by(0).give(&file, 0o640)
                };
                scope.spawn(give).join().unwrap()
            });
            given.unwrap();
            assert_eq!(there(&file), (65_534, 0o600));
        }
    }

    #[test]
    fn modes_are_octal_and_the_owner_reads_and_writes() {
        let parsed = |text: &str| text.parse::<FileMode>().ok().map(|mode| (mode.file(), mode.directory()));
        for (text, mode) in [
            ("600", Some((0o600, 0o700))),
            ("0600", Some((0o600, 0o700))),
            ("0640", Some((0o640, 0o750))),
            ("644", Some((0o644, 0o755))),
            ("0660", Some((0o660, 0o770))),
            ("0666", Some((0o666, 0o775))),
            ("0400", None),
            ("0700", None),
            ("4600", None),
            ("0680", None),
            ("+600", None),
            ("", None),
            ("u=rw", None),
        ] {
            assert_eq!(parsed(text), mode, "{text}");
        }
        let of_group = FileMode::readable_by(7);
        assert_eq!((of_group.file(), of_group.directory()), (0o640, 0o750));
        assert_eq!("640".parse::<FileMode>().map(|mode| mode.to_string()), Ok("0640".to_owned()));
    }
}
