//! The markers of programs and libraries that run on this machine, which rules of the user domain are about.
//!
//! LTTng's programs register with its session daemon. Programs with markers tell nobody: they are looked for
//! among what processes have mapped, again and again while a session waits for some.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use elf::usdt::{Marker, Markers};
use elf::{FileState, Identity, MappedFile, OpenBinary};
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
    /// Which file it is, whatever leads to it.
    pub identity: Identity,
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
    /// The program, if it has markers.
    program: Option<Arc<Program>>,
}

/// What is known of files that processes have mapped.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    files: BTreeMap<Identity, Known>,
    /// How many of them have markers.
    with_markers: usize,
    processes: BTreeSet<u32>,
    generation: u64,
}

impl Programs {
    /// Those that have markers, by path. They stay known when nobody has them mapped any more: who runs them
    /// again is recorded from the first event on. Only what this process's root directory does not have goes
    /// with the last process that has it.
    pub(crate) fn all(&self) -> Vec<Arc<Program>> {
        let mut all: Vec<_> = self.files.values().filter_map(|known| known.program.clone()).collect();
        all.sort_by(|one, other| one.path.cmp(&other.path));
        all
    }

    /// Looks at programs that had markers, whether they run or not.
    pub(crate) fn look_at(&mut self, paths: &[PathBuf]) {
        for path in paths {
            if let Ok(binary) = OpenBinary::open(path) {
                self.look_into(path, &binary);
            }
        }
    }

    /// The number of this state: another one if there are other markers, or they are elsewhere.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Looks at all processes.
    pub(crate) fn look(&mut self) {
        self.forget_gone();
        self.processes.clear();
        let mapped = self.look_at_new();
        // Those of files that nobody uses make room for others.
        self.files.retain(|identity, known| known.program.is_some() || mapped.contains(identity));
    }

    /// Forgets programs to which nothing leads any more, and what only a process that has ended led to.
    /// Another process may have it, too.
    fn forget_gone(&mut self) {
        let is_gone = |(&identity, known): (&Identity, &Known)| {
            let goes = known.program.is_some() || is_of_process(&known.place);
            (goes && leads_elsewhere(&known.place, identity)).then_some(identity)
        };
        let gone: Vec<Identity> = self.files.iter().filter_map(is_gone).collect();
        gone.iter().for_each(|identity| self.forget(identity));
    }

    fn forget(&mut self, identity: &Identity) {
        if self.files.remove(identity).is_some_and(|known| known.program.is_some()) {
            self.with_markers -= 1;
            self.generation += 1;
        }
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
        let identity = file.identity();
        let there =
            |known: &Known| FileState::at(&known.place).ok().filter(|there| there.identity == identity);
        let place = match self.files.get(&identity).map(|known| (known, there(known))) {
            Some((known, Some(there))) if there.changed == known.changed => return,
            // What was written to is looked into again.
            Some((known, Some(_))) => known.place.clone(),
            // It was removed, or something else is there by now.
            Some((_, None)) | None => file.place(),
        };
        if let Ok(binary) = file.open() {
            self.look_into(&place, &binary);
        }
    }

    fn look_into(&mut self, place: &Path, binary: &OpenBinary) {
        let identity = binary.identity();
        let Ok(FileState { changed, len, .. }) = binary.state() else { return };
        let is_new = !self.files.contains_key(&identity);
        if len > FILE_MAX || is_new && self.files.len() >= FILES_MAX {
            return;
        }
        let markers: BTreeSet<_> = match Markers::of_binary(binary) {
            Ok(of) => of.all().iter().filter_map(name_of).take(MARKERS_MAX).collect(),
            // It is nothing that could be recorded.
            Err(_) => BTreeSet::new(),
        };
        let before = self.files.remove(&identity).and_then(|known| known.program);
        self.with_markers -= usize::from(before.is_some());
        let is_program = !markers.is_empty() && self.with_markers < PROGRAMS_MAX;
        let program = is_program.then(|| Arc::new(Program { path: place.to_owned(), identity, markers }));
        self.with_markers += usize::from(program.is_some());
        self.generation += u64::from(before != program);
        self.files.insert(identity, Known { place: place.to_owned(), changed, program });
    }
}

/// Whether a process leads to it.
fn is_of_process(place: &Path) -> bool {
    place.starts_with("/proc")
}

/// Whether a place does not lead to a file any more. A file system may fail for a moment.
fn leads_elsewhere(place: &Path, identity: Identity) -> bool {
    match FileState::at(place) {
        Ok(there) => there.identity != identity,
        Err(error) => {
            let is_elsewhere = matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidInput
            );
            is_elsewhere || is_of_process(place)
        }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::fs;
    use std::process::{Child, Command};

    use super::*;

    /// A program that waits and has a marker `app:NAME`.
    fn program(dir: &Path, name: &str) -> PathBuf {
        let code = format!(
            r#"#include <unistd.h>
            int main(void)
            {{
                __asm__ volatile("990: nop\n.pushsection .note.stapsdt,\"\",\"note\"\n.balign 4\n"
                    ".4byte 992f-991f, 994f-993f, 3\n991: .asciz \"stapsdt\"\n992: .balign 4\n"
                    "993: .8byte 990b\n.8byte 0\n.8byte 0\n"
                    ".asciz \"app\"\n.asciz \"{name}\"\n.asciz \"\"\n994: .balign 4\n.popsection");
                return pause();
            }}"#
        );
        let dir = dir.canonicalize().unwrap();
        let (path, source) = (dir.join(name), dir.join(format!("{name}.c")));
        fs::write(&source, code).unwrap();
        assert!(Command::new("cc").arg("-o").args([&path, &source]).status().unwrap().success());
        path
    }

    struct Running(Child);

    impl Running {
        fn start(program: &Path) -> Self {
            Self(Command::new(program).spawn().unwrap())
        }

        /// Has programs look at this process.
        fn show(&self, programs: &mut Programs) {
            for file in MappedFile::of(self.0.id()).unwrap() {
                programs.look_at_mapped(&file);
            }
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Paths and names of the markers.
    fn known(programs: &Programs) -> Vec<(PathBuf, String)> {
        let all = programs.all();
        let of = |program: &Arc<Program>| {
            let markers = program.markers.iter().filter(|(provider, _)| provider == "app");
            markers.map(|(_, name)| (program.path.clone(), name.clone())).collect::<Vec<_>>()
        };
        all.iter().flat_map(of).collect()
    }

    #[test]
    fn a_program_that_is_replaced_is_known_by_its_processes() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| program(dir.path(), name));
        let mut programs = Programs::default();
        let first = Running::start(&one);
        first.show(&mut programs);
        assert_eq!(known(&programs), [(one.clone(), "one".to_owned())]);
        let generation = programs.generation();
        first.show(&mut programs);
        programs.forget_gone();
        assert_eq!(programs.generation(), generation, "nothing has changed");
        fs::rename(&two, &one).unwrap();
        let second = Running::start(&one);
        second.show(&mut programs);
        first.show(&mut programs);
        programs.forget_gone();
        let of_both = known(&programs);
        let [(path, name), (newer, of_newer)] = &of_both[..] else { panic!("{of_both:?}") };
        // Sorted by path: /proc is behind /tmp, or not.
        let ((removed, of_removed), (there, of_there)) =
            if newer == &one { ((path, name), (newer, of_newer)) } else { ((newer, of_newer), (path, name)) };
        assert!(removed.starts_with(format!("/proc/{}", first.0.id())), "{}", removed.display());
        assert_eq!((there, of_there.as_str(), of_removed.as_str()), (&one, "two", "one"));
        // What only a process leads to goes with it.
        drop(first);
        programs.forget_gone();
        assert_eq!(known(&programs), [(one.clone(), "two".to_owned())]);
        drop(second);
        programs.forget_gone();
        assert_eq!(known(&programs), [(one.clone(), "two".to_owned())]);
        fs::remove_file(&one).unwrap();
        programs.forget_gone();
        assert!(known(&programs).is_empty());
        assert_eq!(programs.with_markers, programs.all().len());
    }

    #[test]
    fn a_program_that_is_removed_before_it_is_found_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let one = program(dir.path(), "one");
        let running = Running::start(&one);
        fs::remove_file(&one).unwrap();
        let mut programs = Programs::default();
        running.show(&mut programs);
        let all = known(&programs);
        let [(path, name)] = &all[..] else { panic!("{all:?}") };
        assert!(path.starts_with("/proc") && name == "one", "{}", path.display());
        drop(running);
        programs.forget_gone();
        assert!(known(&programs).is_empty());
    }
}
