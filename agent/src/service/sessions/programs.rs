//! The markers of programs and libraries that run on this machine, which rules of the user domain are about.
//!
//! LTTng's programs register with its session daemon. Programs with markers tell nobody: they are looked for
//! among what processes have mapped, again and again while a session waits for some.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{elf::usdt::Markers, kernel::proc};

/// The most files that are known. Of more, those that were found first count.
const FILES_MAX: usize = 1 << 16;
/// The most markers of a file that are known.
const MARKERS_MAX: usize = 1 << 12;

/// A program or library that has markers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::service) struct Program {
    /// Where it is.
    pub path: PathBuf,
    /// Provider and name of each, in order.
    pub markers: BTreeSet<(String, String)>,
}

/// A file, as it was when it was read: device, inode, and when it was changed.
type Version = (u64, u64, i64, i64);

/// What is known of files that processes have mapped.
#[derive(Debug, Default)]
pub(in crate::service) struct Programs {
    files: BTreeMap<PathBuf, Version>,
    with_markers: BTreeMap<PathBuf, Arc<Program>>,
    processes: BTreeSet<u32>,
}

impl Programs {
    /// Those that have markers, by path. They stay known when nobody has them mapped any more: who runs them
    /// again is recorded from the first event on.
    pub(in crate::service) fn all(&self) -> Vec<Arc<Program>> {
        self.with_markers.values().map(Arc::clone).collect()
    }

    /// Looks at all processes. Gives whether there are other markers than before.
    pub(in crate::service) fn look(&mut self) -> bool {
        self.processes.clear();
        self.look_at_new()
    }

    /// Looks at the processes that were not there the last time. Gives whether there are other markers than
    /// before.
    pub(in crate::service) fn look_at_new(&mut self) -> bool {
        // Where /proc cannot be read, nothing is known of programs.
        let now: BTreeSet<u32> = proc::processes().unwrap_or_default().into_iter().collect();
        let mut paths = BTreeSet::new();
        for &pid in now.difference(&self.processes) {
            // It may have ended, or be a thread of the kernel.
            for mapping in proc::code_mappings(pid).unwrap_or_default() {
                if mapping.path.starts_with(b"/") {
                    paths.insert(mapping.path);
                }
            }
        }
        self.processes = now;
        let mut has_changed = false;
        for path in paths {
            has_changed |= self.look_at_file(Path::new(std::ffi::OsStr::from_bytes(&path)));
        }
        has_changed
    }

    fn look_at_file(&mut self, path: &Path) -> bool {
        // What is mapped may be another file, of another root directory, or be removed.
        let Ok(found) = std::fs::metadata(path) else { return false };
        let version = (found.dev(), found.ino(), found.mtime(), found.mtime_nsec());
        if !found.is_file() || self.files.get(path) == Some(&version) {
            return false;
        }
        if self.files.len() >= FILES_MAX && !self.files.contains_key(path) {
            return false;
        }
        self.files.insert(path.to_owned(), version);
        let markers: BTreeSet<_> = match Markers::of(path) {
            Ok(of) => {
                of.all().iter().map(|of| (of.provider.clone(), of.name.clone())).take(MARKERS_MAX).collect()
            }
            // It is nothing that could be recorded.
            Err(_) => BTreeSet::new(),
        };
        let before = self.with_markers.remove(path);
        if !markers.is_empty() {
            let program = Program { path: path.to_owned(), markers };
            self.with_markers.insert(path.to_owned(), Arc::new(program));
        }
        before.as_ref() != self.with_markers.get(path)
    }
}
