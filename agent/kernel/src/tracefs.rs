//! tracefs: where it is, and what is read from it.
//!
//! A [`Tracefs`] holds the directory itself and every read is relative to it, so that a mount that goes away,
//! or one that never had a path, makes no difference. Where tracefs is not mounted the new mount calls
//! (`fsopen`, `fsmount`; Linux 5.2, `fs/fsopen.c`) give a mount that is attached to nothing: this process
//! reads it through the descriptor, no other process sees it, and the command that is traced later inherits
//! neither it nor a changed namespace.
//!
//! The agent only reads here. What it records it records with eBPF programs; ftrace's own settings stay
//! untouched.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, fstatfs, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::privileges::Lockdown;
use super::read;
use spec::EventName;

/// `TRACEFS_MAGIC` of `include/uapi/linux/magic.h`.
const TRACEFS_MAGIC: u64 = 0x7472_6163;

/// Where tracefs is on every machine whose init system mounts it, and where debugfs mounts it when it is
/// looked at.
const USUAL: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Why tracefs, or a file of it, cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TracefsError {
    /// tracefs is mounted nowhere, and could not be mounted for this process alone.
    #[error(
        "tracefs is not mounted, and mounting it privately failed: {0}; mount it with: mount -t tracefs nodev /sys/kernel/tracing"
    )]
    NotMounted(#[source] io::Error),
    /// The kernel has no tracefs: it was built without `CONFIG_TRACING`.
    #[error("this kernel has no tracefs (it was built without CONFIG_TRACING)")]
    NotInKernel,
    /// tracefs is there and this user may not read it.
    #[error("no permission to read tracefs at {}; run as root or with CAP_DAC_READ_SEARCH", .0.display())]
    NotPermitted(PathBuf),
    /// tracefs is there and kernel lockdown forbids to open its files (`tracing_check_open_get_tr` in
    /// `kernel/trace/trace.c`), or has kept them from being made (`tracefs_create_file` in
    /// `fs/tracefs/inode.c`).
    #[error("kernel lockdown (confidentiality) forbids to read tracefs at {}", .0.display())]
    LockedDown(PathBuf),
    /// A file or directory could not be read.
    #[error("cannot read {path} in tracefs: {source}")]
    Read {
        /// The path inside tracefs.
        path: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A file does not have the form that the kernel gives it.
    #[error("{path} in tracefs is not understood: {what}")]
    Malformed {
        /// The path inside tracefs.
        path: String,
        /// What was expected.
        what: &'static str,
    },
}

impl TracefsError {
    /// Whether more privileges would help.
    pub fn is_permission(&self) -> bool {
        match self {
            Self::NotPermitted(_) | Self::LockedDown(_) => true,
            Self::NotMounted(source) | Self::Read { source, .. } => {
                source.kind() == io::ErrorKind::PermissionDenied
            }
            Self::NotInKernel | Self::Malformed { .. } => false,
        }
    }

    /// Whether the thing asked for is simply not there, for instance an event whose module went away.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// How this process came by tracefs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// It is mounted at this path.
    Mounted(PathBuf),
    /// It was mounted for this process alone, at no path.
    Private,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mounted(path) => path.display().fmt(f),
            Self::Private => f.write_str("a private mount"),
        }
    }
}

/// The text that describes an event, with the number that its records carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventFormat {
    /// What the event is called.
    pub name: EventName,
    /// `common_type` of its records. Stable until the next boot, or until the event's module is unloaded.
    pub id: u16,
    /// The content of its `format` file.
    pub text: String,
}

/// An open tracefs.
#[derive(Debug)]
pub struct Tracefs {
    root: OwnedFd,
    origin: Origin,
}

/// Bits of a device's minor number in the kernel (`MINORBITS`, include/linux/kdev_t.h).
const MINOR_BITS: u32 = 20;

/// A file as the kernel tells it from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    /// The file system: `super_block.s_dev`.
    pub device: u32,
    /// The file in it: `inode.i_ino`.
    pub inode: u64,
}

impl Tracefs {
    /// Finds tracefs, or mounts it where no other process sees it.
    pub fn open() -> Result<Self, TracefsError> {
        // Mounts at unusual paths come before debugfs, which would mount tracefs just because it was looked
        // at.
        let mounts = read::file("/proc/self/mounts").unwrap_or_default();
        let mounted = mount_points(&mounts);
        let (first, last) = (PathBuf::from(USUAL[0]), PathBuf::from(USUAL[1]));
        for path in std::iter::once(first).chain(mounted).chain(std::iter::once(last)) {
            // An unmounted mount point is an empty directory of another file system.
            match Self::open_if_tracefs(&path) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(error) => return Err(error),
            }
        }
        Self::mount_privately()
    }

    /// Uses the directory at `path`, whatever file system it is on.
    pub fn open_at(path: &Path) -> Result<Self, TracefsError> {
        let root = open_dir(path)
            .map_err(|error| TracefsError::Read { path: path.display().to_string(), source: error.into() })?;
        Ok(Self { root, origin: Origin::Mounted(path.to_owned()) })
    }

    /// Mounts tracefs for this process alone. Needs `CAP_SYS_ADMIN`, and a user namespace that may mount it.
    pub fn mount_privately() -> Result<Self, TracefsError> {
        let mount = || -> Result<OwnedFd, Errno> {
            let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(context.as_fd())?;
            let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
                | MountAttrFlags::MOUNT_ATTR_NOSUID
                | MountAttrFlags::MOUNT_ATTR_NODEV
                | MountAttrFlags::MOUNT_ATTR_NOEXEC;
            fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        };
        match mount() {
            Ok(root) => Ok(Self { root, origin: Origin::Private }),
            // fs/fsopen.c: no file system type of that name.
            Err(Errno::NODEV) => Err(TracefsError::NotInKernel),
            Err(error) => Err(TracefsError::NotMounted(error.into())),
        }
    }

    fn open_if_tracefs(path: &Path) -> Result<Option<Self>, TracefsError> {
        let refused = || TracefsError::NotPermitted(path.to_owned());
        let root = match open_dir(path) {
            Ok(root) => root,
            // Below /sys/kernel/debug, which only root may search, there need not be anything: try the rest.
            Err(Errno::ACCESS | Errno::PERM) if path != Path::new(USUAL[1]) => return Err(refused()),
            Err(_) => return Ok(None),
        };
        let magic = fstatfs(&root).map(|stat| stat.f_type as u64);
        if magic != Ok(TRACEFS_MAGIC) {
            return Ok(None);
        }
        let found = Self { root, origin: Origin::Mounted(path.to_owned()) };
        // The directory was opened without asking for any right on it; a file shows whether there is one.
        match read::open_at(found.root.as_fd(), "events/header_page") {
            Ok(_) => Ok(Some(found)),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::ACCESS) => Err(refused()),
                Some(Errno::PERM) => Err(TracefsError::LockedDown(path.to_owned())),
                Some(Errno::NOENT) if Lockdown::now() == Some(Lockdown::Confidentiality) => {
                    Err(TracefsError::LockedDown(path.to_owned()))
                }
                _ => Err(TracefsError::Read { path: "events/header_page".to_owned(), source: error }),
            },
        }
    }

    /// How this process came by tracefs.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Whether tracefs has a file or directory of this name.
    pub fn exists(&self, path: &str) -> bool {
        rustix::fs::accessat(&self.root, path, rustix::fs::Access::EXISTS, rustix::fs::AtFlags::empty())
            .is_ok()
    }

    /// What the file is for the kernel, however many mounts of tracefs show it.
    pub fn file_id(&self, path: &str) -> Result<FileId, TracefsError> {
        let stat = rustix::fs::statat(&self.root, path, rustix::fs::AtFlags::empty())
            .map_err(|error| TracefsError::Read { path: path.to_owned(), source: error.into() })?;
        let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
        Ok(FileId { device: major << MINOR_BITS | minor, inode: stat.st_ino })
    }

    /// The content of a file, as the kernel gives it.
    pub fn read(&self, path: &str) -> Result<Vec<u8>, TracefsError> {
        read::file_at(self.root.as_fd(), path)
            .map_err(|source| TracefsError::Read { path: path.to_owned(), source })
    }

    /// The content of a file as text.
    pub fn text(&self, path: &str) -> Result<String, TracefsError> {
        into_text(path, self.read(path)?)
    }

    /// The content of a file as text, or nothing when the kernel does not have the file.
    pub fn text_if_there(&self, path: &str) -> Result<Option<String>, TracefsError> {
        match self.text(path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Every event that can be enabled, in the kernel's order, and then the internal ones of the `ftrace`
    /// system.
    ///
    /// `available_events` leaves the internal ones out, since nothing can enable them through their files
    /// (`t_next` in `kernel/trace/trace_events.c`); their formats are needed all the same.
    pub fn event_names(&self) -> Result<Vec<EventName>, TracefsError> {
        let path = "available_events";
        let mut names = match self.text(path) {
            Ok(text) => text.lines().filter_map(EventName::parse).collect(),
            // Some sandboxes hide the files of the top directory and leave the events.
            Err(_) => self.event_names_by_directory()?,
        };
        if !names.iter().any(EventName::is_ftrace_internal) {
            names.extend(self.events_of_system("ftrace").unwrap_or_default());
        }
        Ok(names)
    }

    fn event_names_by_directory(&self) -> Result<Vec<EventName>, TracefsError> {
        let mut names = Vec::new();
        for system in self.directories("events")? {
            names.extend(self.events_of_system(&system)?);
        }
        Ok(names)
    }

    /// The events of one system, sorted by name.
    pub fn events_of_system(&self, system: &str) -> Result<Vec<EventName>, TracefsError> {
        let names = self.directories(&format!("events/{system}"))?;
        Ok(names.iter().map(|name| EventName::new(system, name)).collect())
    }

    fn directories(&self, path: &str) -> Result<Vec<String>, TracefsError> {
        let failed = |error: Errno| TracefsError::Read { path: path.to_owned(), source: error.into() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(&self.root, path, flags, Mode::empty()).map_err(failed)?;
        let mut names = Vec::new();
        for entry in Dir::new(dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // A file system that does not return the type leaves it to the reads that follow to find out.
            if matches!(entry.file_type(), FileType::Directory | FileType::Unknown)
                && let Ok(name) = entry.file_name().to_str()
                && !name.starts_with('.')
            {
                names.push(name.to_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The description of one event.
    pub fn event_format(&self, name: &EventName) -> Result<EventFormat, TracefsError> {
        let path = format!("events/{}/{}/format", name.system(), name.name());
        let text = self.text(&path)?;
        // The format has the number too (f_show in kernel/trace/trace_events.c), which saves reading the id
        // file.
        let id = format_id(&text).ok_or(TracefsError::Malformed { path, what: "no line `ID: number`" })?;
        Ok(EventFormat { name: name.clone(), id, text })
    }

    /// The descriptions of many events. An event that went away since it was listed is left out.
    pub fn event_formats<'a>(
        &self,
        names: impl IntoIterator<Item = &'a EventName>,
    ) -> Result<Vec<EventFormat>, TracefsError> {
        let mut formats = Vec::new();
        for name in names {
            match self.event_format(name) {
                Ok(format) => formats.push(format),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(formats)
    }

    /// The descriptions of the internal events: function entries, stacks, prints.
    pub fn ftrace_formats(&self) -> Result<Vec<EventFormat>, TracefsError> {
        self.event_formats(&self.events_of_system("ftrace")?)
    }

    /// The layout of a ring buffer page's header.
    pub fn header_page(&self) -> Result<String, TracefsError> {
        self.text("events/header_page")
    }

    /// The layout of an event's header inside a page.
    pub fn header_event(&self) -> Result<String, TracefsError> {
        self.text("events/header_event")
    }

    /// The format strings that records name by address only. Empty where the kernel has none.
    pub fn printk_formats(&self) -> Result<Vec<u8>, TracefsError> {
        match self.read("printk_formats") {
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            other => other,
        }
    }

    /// The clocks that ftrace has, the chosen one in brackets, as one line without its end.
    pub fn trace_clock(&self) -> Result<String, TracefsError> {
        Ok(self.text("trace_clock")?.trim().to_owned())
    }
}

impl AsFd for Tracefs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

fn open_dir(path: &Path) -> Result<OwnedFd, Errno> {
    openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn into_text(path: &str, bytes: Vec<u8>) -> Result<String, TracefsError> {
    String::from_utf8(bytes)
        .map_err(|_| TracefsError::Malformed { path: path.to_owned(), what: "it is not text" })
}

/// The number in a format's `ID:` line, which comes before its fields.
fn format_id(format: &str) -> Option<u16> {
    let line = format.lines().take(4).find_map(|line| line.strip_prefix("ID:"))?;
    line.trim().parse().ok()
}

/// Where `/proc/mounts` says that a tracefs is.
fn mount_points(mounts: &[u8]) -> Vec<PathBuf> {
    let mut points = Vec::new();
    for line in mounts.split(|&byte| byte == b'\n') {
        let mut words = line.split(|&byte| byte == b' ');
        if let (Some(_), Some(path), Some(b"tracefs")) = (words.next(), words.next(), words.next()) {
            points.push(PathBuf::from(unescape(path)));
        }
    }
    points
}

/// Undoes the octal escapes that `/proc/mounts` has for blanks (`mangle` in `fs/seq_file.c`).
fn unescape(path: &[u8]) -> std::ffi::OsString {
    use std::os::unix::ffi::OsStringExt as _;
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, tail)) = rest.split_first() {
        if byte == b'\\'
            && let [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] = tail
        {
            plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
            rest = tail;
        } else {
            plain.push(byte);
            rest = tail;
        }
    }
    std::ffi::OsString::from_vec(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_type_and_unescaped() {
        let mounts = b"proc /proc proc rw 0 0\n\
            nodev /sys/kernel/tracing tracefs rw,relatime 0 0\n\
            tracefs /mnt/with\\040blank tracefs ro 0 0\n\
            tracefs /mnt/other ext4 ro 0 0\ntracefs\n\n";
        assert_eq!(
            mount_points(mounts),
            [PathBuf::from("/sys/kernel/tracing"), PathBuf::from("/mnt/with blank")]
        );
        assert_eq!(unescape(b"a\\04"), "a\\04");
        assert_eq!(unescape(b"\\134x"), "\\x");
    }

    #[test]
    fn the_id_is_read_from_the_head_of_a_format_only() {
        assert_eq!(format_id("name: x\nID: 314\nformat:\n"), Some(314));
        assert_eq!(format_id("name: x\nID: 70000\nformat:\n"), None);
        assert_eq!(format_id("name: x\nformat:\n\n\nID: 3\n"), None);
        assert_eq!(format_id(""), None);
    }

    #[test]
    fn a_directory_stands_in_for_tracefs() {
        let dir = tempfile::tempdir().unwrap();
        let event = dir.path().join("events/sched/sched_switch");
        std::fs::create_dir_all(&event).unwrap();
        std::fs::create_dir_all(dir.path().join("events/ftrace/function")).unwrap();
        std::fs::write(event.join("format"), "name: sched_switch\nID: 314\nformat:\n").unwrap();
        std::fs::write(dir.path().join("events/header_page"), "\tfield: u64 timestamp;\n").unwrap();
        std::fs::write(dir.path().join("trace_clock"), "[local] mono\n").unwrap();

        let tracefs = Tracefs::open_at(dir.path()).unwrap();
        let names: Vec<String> = tracefs.event_names().unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["ftrace:function", "sched:sched_switch"]);
        assert_eq!(tracefs.event_format(&EventName::new("sched", "sched_switch")).unwrap().id, 314);
        assert!(tracefs.event_format(&EventName::new("sched", "gone")).unwrap_err().is_not_found());
        assert_eq!(tracefs.trace_clock().unwrap(), "[local] mono");
        assert_eq!(tracefs.header_page().unwrap(), "\tfield: u64 timestamp;\n");
        assert!(tracefs.printk_formats().unwrap().is_empty());
        assert_eq!(tracefs.text_if_there("dynamic_events").unwrap(), None);
        assert!(!tracefs.exists("kprobe_events"));

        std::fs::write(dir.path().join("available_events"), "irq:irq_handler_entry\nbroken\n").unwrap();
        let names: Vec<String> = tracefs.event_names().unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["irq:irq_handler_entry", "ftrace:function"]);
    }
}
