//! The markers of programs and libraries that run on this machine, which rules of the user domain are about.
//!
//! LTTng's programs register with its session daemon. Programs with markers tell nobody: they are looked for
//! among what processes have mapped, again and again while a session waits for some.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    os::{fd::AsRawFd as _, unix::ffi::OsStringExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{FileType, Mode, OFlags};

use elf::usdt::{Marker, Markers};
use kernel::proc;

/// The most files that are known. Of more, those that were found first count.
const FILES_MAX: usize = 1 << 16;
/// The most programs with markers that are known.
const PROGRAMS_MAX: usize = 1 << 12;
/// The most markers of a file that are known.
const MARKERS_MAX: usize = 1 << 12;
/// The largest file that is looked into: anybody may map one of any size.
const FILE_MAX: u64 = 1 << 30;
/// The longest name of a marker.
const NAME_MAX: usize = 127;

/// A program or library that has markers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// Where it is.
    pub path: PathBuf,
    /// Provider and name of each, in order.
    pub markers: BTreeSet<(String, String)>,
}

/// A file, as it was when it was read: device, inode, and when it was changed.
type Version = (u64, u64, i64, u64);

/// What is known of files that processes have mapped.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    files: BTreeMap<PathBuf, Version>,
    with_markers: BTreeMap<PathBuf, Arc<Program>>,
    processes: BTreeSet<u32>,
    generation: u64,
}

impl Programs {
    /// Those that have markers, by path. They stay known when nobody has them mapped any more: who runs them
    /// again is recorded from the first event on.
    pub(crate) fn all(&self) -> Vec<Arc<Program>> {
        self.with_markers.values().map(Arc::clone).collect()
    }

    /// Where those are that have markers.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.with_markers.keys().cloned().collect()
    }

    /// Looks at programs that had markers, whether they run or not.
    pub(crate) fn look_at(&mut self, paths: &[PathBuf]) {
        for path in paths {
            if self.look_at_file(path) {
                self.generation += 1;
            }
        }
    }

    /// The number of this state: another one if there are other markers.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Looks at all processes.
    pub(crate) fn look(&mut self) {
        self.processes.clear();
        let mapped = self.look_at_new();
        // Those of files that nobody uses make room for others.
        self.files.retain(|path, _| mapped.contains(path) || self.with_markers.contains_key(path));
    }

    /// Looks at the processes that were not there the last time. Gives the files that they have mapped.
    pub(crate) fn look_at_new(&mut self) -> BTreeSet<PathBuf> {
        // Where /proc cannot be read, nothing is known of programs.
        let now: BTreeSet<u32> = proc::processes().unwrap_or_default().into_iter().collect();
        let mut paths = BTreeSet::new();
        for &pid in now.difference(&self.processes) {
            // It may have ended, or be a thread of the kernel.
            for mapping in proc::code_mappings(pid).unwrap_or_default() {
                if mapping.path.starts_with(b"/") {
                    paths.insert(PathBuf::from(OsString::from_vec(mapping.path)));
                }
            }
        }
        self.processes = now;
        for path in &paths {
            if self.look_at_file(path) {
                self.generation += 1;
            }
        }
        paths
    }

    fn look_at_file(&mut self, path: &Path) -> bool {
        // What is mapped may be another file, of another root directory, or be removed. Nothing happens to
        // what is opened so, whatever it is.
        let Ok(file) = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) else {
            return false;
        };
        let Ok(found) = rustix::fs::fstat(&file) else { return false };
        let version = (found.st_dev, found.st_ino, found.st_mtime, found.st_mtime_nsec);
        let is_regular = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        if !is_regular || u64::try_from(found.st_size).is_ok_and(|size| size > FILE_MAX) {
            return false;
        }
        if self.files.get(path) == Some(&version)
            || self.files.len() >= FILES_MAX && !self.files.contains_key(path)
        {
            return false;
        }
        self.files.insert(path.to_owned(), version);
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        let markers: BTreeSet<_> = match Markers::of(Path::new(&link)) {
            Ok(of) => of.all().iter().filter_map(name_of).take(MARKERS_MAX).collect(),
            // It is nothing that could be recorded.
            Err(_) => BTreeSet::new(),
        };
        let before = self.with_markers.remove(path);
        if !markers.is_empty() && self.with_markers.len() < PROGRAMS_MAX {
            let program = Program { path: path.to_owned(), markers };
            self.with_markers.insert(path.to_owned(), Arc::new(program));
        }
        before.as_ref() != self.with_markers.get(path)
    }
}

/// Provider and name of a marker, if they are names.
fn name_of(marker: &Marker) -> Option<(String, String)> {
    let is_name = |name: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'$');
        (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_part)
    };
    (is_name(&marker.provider) && is_name(&marker.name))
        .then(|| (marker.provider.clone(), marker.name.clone()))
}
