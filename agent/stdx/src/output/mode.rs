//! The mode of new files, one for the whole process, as the umask is: whatever writes gets it.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};

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

static OF_PROCESS: AtomicU32 = AtomicU32::new(FileMode::PRIVATE.0);

/// The mode of new files, less the umask. Recordings hold addresses of the kernel and paths of other users,
/// so the default is [`FileMode::PRIVATE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMode(u32);

/// A text that is no mode of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is an octal number from 0600 to 0666 in which the owner may read and write, such as 0640")]
pub struct FileModeError;

impl FileMode {
    /// Nobody else reads or writes.
    pub const PRIVATE: Self = Self(OWNER);
    /// The umask alone decides.
    pub const UMASK: Self = Self(FILE_MAX);

    /// The mode that new files of this process get.
    pub fn of_process() -> Self {
        Self(OF_PROCESS.load(Ordering::Relaxed))
    }

    /// Gives this mode to all files that this process creates from now on.
    pub fn set(self) {
        OF_PROCESS.store(self.0, Ordering::Relaxed);
    }

    /// The bits of a file.
    pub fn file(self) -> u32 {
        self.0
    }

    /// The bits of a directory. Readers of the files can list it, and a group that writes the files can add
    /// some, as to a data set that several users export to.
    pub fn directory(self) -> u32 {
        let read = self.0 & OTHERS_READ;
        OWNER_DIR | read | read >> 2 | self.0 & GROUP_WRITE
    }
}

impl FromStr for FileMode {
    type Err = FileModeError;

    fn from_str(text: &str) -> Result<Self, FileModeError> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let mode = u32::from_str_radix(text, 8).ok().filter(|_| digits).ok_or(FileModeError)?;
        let is_file = mode & !FILE_MAX == 0 && mode & OWNER == OWNER;
        if is_file { Ok(Self(mode)) } else { Err(FileModeError) }
    }
}

impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!("640".parse::<FileMode>().map(|mode| mode.to_string()), Ok("0640".to_owned()));
    }
}
