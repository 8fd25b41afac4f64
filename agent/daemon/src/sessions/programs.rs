//! The markers of programs and libraries that run on this machine, which rules of the user domain are about.
//!
//! LTTng's programs register with its session daemon. Programs with markers tell nobody: they are looked for
//! among what processes have mapped, again and again while a session waits for some.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use elf::usdt::{Marker, Markers};
use elf::{Identity, MappedFile, OpenBinary};
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
    /// Where it is: a path of this process, or one of `/proc/PID` where it is in a container or was removed.
    pub path: PathBuf,
    /// Provider and name of each, in order.
    pub markers: BTreeSet<(String, String)>,
}

/// A file that was looked into.
#[derive(Debug)]
struct Known {
    /// What leads to it.
    place: PathBuf,
    /// Seconds and nanoseconds of its last change then.
    changed: (i64, i64),
}

/// What is known of files that processes have mapped.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    files: BTreeMap<Identity, Known>,
    with_markers: BTreeMap<PathBuf, Arc<Program>>,
    processes: BTreeSet<u32>,
    generation: u64,
}

impl Programs {
    /// Those that have markers, by path. They stay known when nobody has them mapped any more: who runs them
    /// again is recorded from the first event on. Only what this process's root directory does not have goes
    /// with the last process that has it.
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
            if let Ok(binary) = OpenBinary::open(path) {
                self.look_into(path, &binary);
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
        // What is told by a process ends with it. Another one may have it, too.
        let is_gone = |(identity, known): (&Identity, &Known)| {
            let is_of_process = known.place.starts_with("/proc");
            (is_of_process && !leads_to(&known.place, *identity)).then_some(*identity)
        };
        let gone: Vec<Identity> = self.files.iter().filter_map(is_gone).collect();
        for known in gone.iter().filter_map(|identity| self.files.remove(identity)) {
            self.generation += u64::from(self.with_markers.remove(&known.place).is_some());
        }
        let mapped = self.look_at_new();
        // Those of files that nobody uses make room for others.
        let with_markers = &self.with_markers;
        self.files
            .retain(|identity, known| mapped.contains(identity) || with_markers.contains_key(&known.place));
    }

    /// Looks at the processes that were not there the last time. Gives the files that they have mapped.
    pub(crate) fn look_at_new(&mut self) -> BTreeSet<Identity> {
        // Where /proc cannot be read, nothing is known of programs.
        let now: BTreeSet<u32> = proc::processes().unwrap_or_default().into_iter().collect();
        let mut mapped = BTreeSet::new();
        for &pid in now.difference(&std::mem::take(&mut self.processes)) {
            // It may have ended, or be a thread of the kernel.
            for file in MappedFile::of(pid).unwrap_or_default() {
                if mapped.insert(file.identity()) {
                    self.look_at_mapped(&file);
                }
            }
        }
        self.processes = now;
        mapped
    }

    fn look_at_mapped(&mut self, file: &MappedFile) {
        let place = match self.files.get(&file.identity()) {
            // What is written to later is looked into again.
            Some(known) if changed_at(&known.place).is_none_or(|changed| changed == known.changed) => return,
            Some(known) => known.place.clone(),
            None => file.place(),
        };
        if let Ok(binary) = OpenBinary::open(&place)
            && binary.identity() == file.identity()
        {
            self.look_into(&place, &binary);
        }
    }

    fn look_into(&mut self, place: &Path, binary: &OpenBinary) {
        let link = Path::new(OsStr::from_bytes(binary.to_bytes()));
        let Ok(found) = std::fs::metadata(link) else { return };
        let is_new = !self.files.contains_key(&binary.identity());
        if found.len() > FILE_MAX || is_new && self.files.len() >= FILES_MAX {
            return;
        }
        let changed = (found.mtime(), found.mtime_nsec());
        self.files.insert(binary.identity(), Known { place: place.to_owned(), changed });
        let markers: BTreeSet<_> = match Markers::of_binary(binary) {
            Ok(of) => of.all().iter().filter_map(name_of).take(MARKERS_MAX).collect(),
            // It is nothing that could be recorded.
            Err(_) => BTreeSet::new(),
        };
        let before = self.with_markers.remove(place);
        if !markers.is_empty() && self.with_markers.len() < PROGRAMS_MAX {
            let program = Program { path: place.to_owned(), markers };
            self.with_markers.insert(place.to_owned(), Arc::new(program));
        }
        self.generation += u64::from(before.as_ref() != self.with_markers.get(place));
    }
}

fn leads_to(place: &Path, identity: Identity) -> bool {
    OpenBinary::open(place).is_ok_and(|binary| binary.identity() == identity)
}

/// When a file was changed, by its path in this process's root directory.
fn changed_at(place: &Path) -> Option<(i64, i64)> {
    let found = std::fs::metadata(place).ok().filter(|_| !place.starts_with("/proc"))?;
    Some((found.mtime(), found.mtime_nsec()))
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
