//! System calls that open, read, write and close files, by their numbers.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::answers::known::Arguments;
use ftrace_event::syscalls::{CallNames, without_compat};

/// Numbers of calls are below this on all machines that are known.
const NUMBERS: u32 = 1024;

/// `O_CLOEXEC` of include/uapi/asm-generic/fcntl.h; the flags of `socket`, `eventfd2` and the like have the
/// same value.
const CLOEXEC: i64 = 0o2_000_000;
/// `CLONE_FILES` of include/uapi/linux/sched.h.
const CLONE_FILES: i64 = 0x400;

/// Values of include/uapi/linux/fcntl.h and its asm-generic part.
mod fcntl {
    pub(super) const DUPFD: i64 = 0;
    pub(super) const SETFD: i64 = 2;
    pub(super) const DUPFD_CLOEXEC: i64 = 1030;
    pub(super) const FD_CLOEXEC: i64 = 1;
}

/// Values of include/uapi/linux/close_range.h.
mod close_range {
    pub(super) const UNSHARE: i64 = 2;
    pub(super) const CLOEXEC: i64 = 4;
}

/// The number of an open file in its process.
pub(super) type Fd = i32;

/// What an open file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// It was opened by its path: a file, a directory, a device or a named pipe.
    File,
    /// A pipe.
    Pipe,
    /// A socket.
    Socket,
    /// Of `eventfd`.
    Eventfd,
    /// Of `timerfd_create`.
    Timerfd,
    /// Of `signalfd`.
    Signalfd,
    /// Of `inotify_init`.
    Inotify,
    /// Of `memfd_create`: a file in memory.
    Memfd,
    /// It was not seen to be opened: a new pipe, what was open or inherited before, or events were lost.
    Unknown,
}

/// Whether a new descriptor stays open when its process runs another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtExec {
    Stays,
    /// This argument has a flag for it.
    Flags(usize),
    Unknown,
}

impl AtExec {
    /// Whether it is known to stay.
    pub(super) fn stays(self, arguments: &Arguments) -> bool {
        match self {
            Self::Stays => true,
            Self::Flags(nth) => {
                arguments.get(nth).copied().flatten().is_some_and(|flags| flags & CLOEXEC == 0)
            }
            Self::Unknown => false,
        }
    }
}

/// A system call that says something of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Opens a path, in a directory that is the first argument if `is_at`.
    Open {
        is_at: bool,
        at_exec: AtExec,
    },
    /// Opens something else.
    Make {
        kind: FileKind,
        at_exec: AtExec,
    },
    Close,
    CloseRange,
    /// A second number for an open file.
    Dup {
        at_exec: AtExec,
    },
    Fcntl,
    Read,
    Write,
    /// The same of sockets.
    Receive,
    Send,
    /// Reads from the file that is this argument, and writes to another.
    Copy {
        from: usize,
        to: usize,
    },
    /// Waits until what was written is on the disk; `sync` has no file.
    Sync {
        has_file: bool,
    },
    Unshare,
}

/// Calls that open files.
pub(super) const OPENS: &[&str] = &["open", "openat", "openat2", "creat"];
/// Calls that read.
pub(super) const READS: &[&str] = &[
    "read",
    "pread64",
    "readv",
    "preadv",
    "preadv2",
    "recvfrom",
    "recvmsg",
    "sendfile64",
    "sendfile",
    "copy_file_range",
    "splice",
];
/// Calls that write.
pub(super) const WRITES: &[&str] = &[
    "write",
    "pwrite64",
    "writev",
    "pwritev",
    "pwritev2",
    "sendto",
    "sendmsg",
    "sendfile64",
    "sendfile",
    "copy_file_range",
    "splice",
];
/// Calls that close files.
pub(super) const CLOSES: &[&str] = &["close", "close_range"];
/// Calls that wait for the disk.
pub(super) const SYNCS: &[&str] = &["fsync", "fdatasync", "sync_file_range", "syncfs", "sync"];

impl Call {
    fn of(name: &str) -> Option<Self> {
        let open = |is_at, at_exec| Self::Open { is_at, at_exec };
        let make = |kind, at_exec| Self::Make { kind, at_exec };
        Some(match name {
            "open" => open(false, AtExec::Flags(1)),
            "openat" => open(true, AtExec::Flags(2)),
            "openat2" => open(true, AtExec::Unknown),
            "creat" => open(false, AtExec::Stays),
            "socket" => make(FileKind::Socket, AtExec::Flags(1)),
            "accept" => make(FileKind::Socket, AtExec::Stays),
            "accept4" => make(FileKind::Socket, AtExec::Unknown),
            "eventfd" => make(FileKind::Eventfd, AtExec::Stays),
            "eventfd2" => make(FileKind::Eventfd, AtExec::Flags(1)),
            "timerfd_create" => make(FileKind::Timerfd, AtExec::Flags(1)),
            "signalfd" => make(FileKind::Signalfd, AtExec::Stays),
            "signalfd4" => make(FileKind::Signalfd, AtExec::Unknown),
            "inotify_init" => make(FileKind::Inotify, AtExec::Stays),
            "inotify_init1" => make(FileKind::Inotify, AtExec::Flags(0)),
            "memfd_create" => make(FileKind::Memfd, AtExec::Unknown),
            "close" => Self::Close,
            "close_range" => Self::CloseRange,
            "dup" | "dup2" => Self::Dup { at_exec: AtExec::Stays },
            "dup3" => Self::Dup { at_exec: AtExec::Flags(2) },
            "fcntl" | "fcntl64" => Self::Fcntl,
            "read" | "pread64" | "readv" | "preadv" | "preadv2" => Self::Read,
            "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" => Self::Write,
            "recvfrom" | "recvmsg" => Self::Receive,
            "sendto" | "sendmsg" => Self::Send,
            "sendfile" | "sendfile64" => Self::Copy { from: 1, to: 0 },
            "copy_file_range" | "splice" => Self::Copy { from: 0, to: 2 },
            "fsync" | "fdatasync" | "sync_file_range" | "syncfs" => Self::Sync { has_file: true },
            "sync" => Self::Sync { has_file: false },
            "unshare" => Self::Unshare,
            _ => return None,
        })
    }

    /// Whether it returns a number that stands for something else from then on.
    pub(super) fn is_new(self) -> bool {
        matches!(self, Self::Open { .. } | Self::Make { .. } | Self::Dup { .. })
    }

    /// Whether a thread that is in it does something with the content of a file, opens or closes one.
    pub(super) fn is_io(self) -> bool {
        !matches!(self, Self::Make { .. } | Self::Dup { .. } | Self::Fcntl | Self::Unshare)
    }
}

/// The calls of a machine or a file.
#[derive(Clone, Debug, Default)]
pub(super) struct CallTable {
    /// Those with the machine's numbers.
    calls: Vec<Option<Call>>,
    /// Those that go by their names alone.
    named: BTreeMap<i64, Call>,
}

impl CallTable {
    /// None, if it is not known which calls there are.
    pub(super) fn of(names: &CallNames) -> Self {
        let mut table = Self::default();
        for (number, name) in names.iter(NUMBERS) {
            let call = Call::of(without_compat(name));
            match usize::try_from(number) {
                Ok(place) if place < NUMBERS as usize => {
                    table.calls.resize(place + 1, None);
                    table.calls[place] = call;
                }
                _ => table.named.extend(call.map(|call| (number, call))),
            }
        }
        table
    }

    /// Whether it is not known which calls there are.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.named.is_empty()
    }

    /// The call with a number, if it says something of files.
    pub(super) fn get(&self, number: i64) -> Option<Call> {
        match usize::try_from(number).ok().and_then(|place| self.calls.get(place)) {
            Some(call) => *call,
            None => self.named.get(&number).copied(),
        }
    }
}

/// An argument that is an open file's number: the kernel looks at 32 bits of it.
pub(super) fn fd(arguments: &Arguments, nth: usize) -> Option<Fd> {
    arguments.get(nth).copied().flatten().map(|number| number as Fd)
}

/// What `fcntl` does to the table of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fcntl {
    Dup { stays: bool },
    Stays(bool),
    Nothing,
}

impl Fcntl {
    pub(super) fn of(arguments: &Arguments) -> Self {
        match arguments[1] {
            Some(fcntl::DUPFD) => Self::Dup { stays: true },
            Some(fcntl::DUPFD_CLOEXEC) => Self::Dup { stays: false },
            Some(fcntl::SETFD) => {
                Self::Stays(arguments[2].is_some_and(|flags| flags & fcntl::FD_CLOEXEC == 0))
            }
            _ => Self::Nothing,
        }
    }
}

/// What `close_range` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CloseRange {
    pub(super) first: u32,
    pub(super) last: u32,
    /// The process has a table of its own from now on.
    pub(super) unshares: bool,
    /// They are closed only when the process runs another program.
    pub(super) at_exec: bool,
}

impl CloseRange {
    /// By its arguments. What is not known may be closed.
    pub(super) fn of(arguments: &Arguments) -> Self {
        let flags = arguments[2].unwrap_or(0);
        Self {
            first: arguments[0].unwrap_or(0) as u32,
            last: arguments[1].map_or(u32::MAX, |last| last as u32),
            unshares: flags & close_range::UNSHARE != 0,
            at_exec: flags & close_range::CLOEXEC != 0,
        }
    }
}

/// Whether `unshare` gives a thread a table of its own.
pub(super) fn unshares_files(arguments: &Arguments) -> bool {
    arguments[0].is_some_and(|flags| flags & CLONE_FILES != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftrace_event::syscalls::SyscallTable;

    #[test]
    fn calls_are_known_by_their_numbers() {
        let calls = CallTable::of(&SyscallTable::of_machine("x86_64").into());
        assert_eq!(calls.get(0), Some(Call::Read));
        assert_eq!(calls.get(40), Some(Call::Copy { from: 1, to: 0 }));
        assert_eq!(calls.get(257), Some(Call::Open { is_at: true, at_exec: AtExec::Flags(2) }));
        assert_eq!([39, -1, i64::MAX, 5000].map(|number| calls.get(number)), [None; 4]);
        let calls = CallTable::of(&SyscallTable::of_machine("aarch64").into());
        assert_eq!([56, 63, 71].map(|number| calls.get(number).is_some()), [true; 3]);
        assert_eq!(CallTable::default().get(0), None);
    }

    #[test]
    fn what_is_not_known_of_a_descriptor_is_not_taken_for_granted() {
        let flags = AtExec::Flags(2);
        assert!(!flags.stays(&[None; 3]) && !AtExec::Unknown.stays(&[Some(0); 3]));
        assert!(!flags.stays(&[None, None, Some(CLOEXEC | 1)]));
        assert!(flags.stays(&[None, None, Some(1)]));
        let range = CloseRange::of(&[None; 3]);
        assert_eq!((range.first, range.last, range.unshares, range.at_exec), (0, u32::MAX, false, false));
        assert_eq!(fd(&[Some(0xffff_ff9c), None, None], 0), Some(-100));
    }
}
