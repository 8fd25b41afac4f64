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

use elf::usdt::{Marked, Marker, Markers};
use elf::{FileState, Identity, MappedFile, OpenBinary};
use kernel::proc;

/// The most files that are known. Of more, those that were found first count.
const FILES_MAX: usize = 1 << 16;
/// The most programs with markers that are known. Each has one or two descriptors.
const PROGRAMS_MAX: usize = 1 << 10;
/// The most markers of a file that are known.
const MARKERS_MAX: usize = 1 << 12;
/// The most bytes that the sites of all markers take in memory: some hundred thousand sites.
const SITES_MAX: usize = 64 << 20;
/// The largest file that is looked into: anybody may map one of any size.
const FILE_MAX: u64 = 4 << 30;
/// The most bytes of a file that are read, of which symbols are most.
const READ_MAX: u64 = 128 << 20;
/// The longest name of a marker.
const NAME_MAX: usize = 127;

/// A program or library that has markers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// Where it is: a path of this process, or one of `/proc/PID` where it is in a container or was removed.
    /// No other program has the same.
    pub path: PathBuf,
    /// Which file it is, whatever leads to it.
    pub identity: Identity,
    /// Provider and name of each, in order.
    pub markers: BTreeSet<(String, String)>,
    /// The file, for those who record it; `None` while nobody waits for programs.
    pub file: Option<Arc<Marked>>,
}

/// A file that was looked into.
#[derive(Debug)]
struct Known {
    /// What leads to it.
    place: PathBuf,
    /// Seconds and nanoseconds of its last change then.
    changed: (i64, i64),
    /// Bytes that the sites of its markers take in memory.
    sites: usize,
}

/// A process that was looked at.
#[derive(Debug)]
struct Seen {
    /// Its program then, as [`proc::program_of`].
    program: Option<(u32, u32, u64)>,
    /// Whether it is looked at again: what a program loads comes a moment after it has begun.
    again: bool,
}

/// What is known of files that processes have mapped.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    files: BTreeMap<Identity, Known>,
    /// Those of them that have markers.
    with_markers: BTreeMap<Identity, Arc<Program>>,
    processes: BTreeMap<u32, Seen>,
    /// Whether a program was found at the place of another one, which may be elsewhere by now.
    is_displaced: bool,
    generation: u64,
}

/// Who is told between two files that programs are being looked for, and what is known by then.
pub(crate) type Progress<'a> = &'a dyn Fn(&Programs);

impl Programs {
    /// Those that have markers, by path. They stay known when nobody has them mapped any more: who runs them
    /// again is recorded from the first event on. Only what this process's root directory does not have goes
    /// with the last process that has it.
    pub(crate) fn all(&self) -> Vec<Arc<Program>> {
        let mut all: Vec<_> = self.with_markers.values().cloned().collect();
        all.sort_by(|one, other| one.path.cmp(&other.path));
        all.dedup_by(|one, other| one.path == other.path);
        all
    }

    /// Looks at programs that had markers, whether they run or not.
    pub(crate) fn look_at(&mut self, paths: &[PathBuf], progress: Progress<'_>) {
        for path in paths {
            progress(self);
            if let Ok(binary) = OpenBinary::open(path) {
                self.look_into(path, &binary);
            }
        }
    }

    /// Closes the files of all programs, which would keep file systems from being unmounted. The next look
    /// opens them again. `false` if none was open.
    pub(crate) fn close(&mut self) -> bool {
        let is_open = |program: &&mut Arc<Program>| program.file.is_some();
        let mut count = 0;
        for program in self.with_markers.values_mut().filter(is_open) {
            *program = Arc::new(Program { file: None, ..Program::clone(program) });
            count += 1;
        }
        self.generation += u64::from(count != 0);
        count != 0
    }

    /// The number of this state: another one if there are other markers, or they are elsewhere.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Looks at all processes.
    pub(crate) fn look(&mut self, progress: Progress<'_>) {
        self.forget_gone();
        self.processes.clear();
        let mapped = self.look_at_new(progress);
        // Those of files that nobody uses make room for others.
        let programs = &self.with_markers;
        self.files.retain(|identity, _| programs.contains_key(identity) || mapped.contains(identity));
    }

    /// Forgets programs to which nothing leads any more, and what only a process that has ended led to.
    /// Another process may have it, too.
    fn forget_gone(&mut self) {
        let is_gone = |(identity, known): (&Identity, &Known)| {
            let goes = self.with_markers.contains_key(identity) || is_of_process(&known.place);
            (goes && leads_elsewhere(&known.place, *identity)).then_some(*identity)
        };
        let gone: Vec<Identity> = self.files.iter().filter_map(is_gone).collect();
        for identity in &gone {
            self.forget(identity);
        }
    }

    fn forget(&mut self, identity: &Identity) {
        self.files.remove(identity);
        self.generation += u64::from(self.with_markers.remove(identity).is_some());
    }

    /// Looks at the processes that were not there the last time, or have another program since. Gives the
    /// files that they have mapped.
    pub(crate) fn look_at_new(&mut self, progress: Progress<'_>) -> BTreeSet<Identity> {
        let closed = self.with_markers.values().filter(|program| program.file.is_none());
        let closed: Vec<PathBuf> = closed.map(|program| program.path.clone()).collect();
        self.look_at(&closed, progress);
        let mut mapped = self.look_at_changed(progress);
        if std::mem::take(&mut self.is_displaced) {
            // Processes that have run for long may have what was there before.
            self.forget_gone();
            self.processes.clear();
            mapped.append(&mut self.look_at_changed(progress));
            self.is_displaced = false;
        }
        mapped
    }

    fn look_at_changed(&mut self, progress: Progress<'_>) -> BTreeSet<Identity> {
        let mut mapped = BTreeSet::new();
        let before = std::mem::take(&mut self.processes);
        // Where /proc cannot be read, nothing is known of programs.
        for pid in proc::processes().unwrap_or_default() {
            // Before its mappings are: if it has another one by then, it is looked at again.
            let program = proc::program_of(pid);
            let seen = before.get(&pid).filter(|seen| seen.program == program);
            if seen.is_none_or(|seen| seen.again) {
                progress(self);
                // It may have ended, or be a thread of the kernel.
                for file in MappedFile::of(pid).unwrap_or_default() {
                    if mapped.insert(file.identity()) {
                        progress(self);
                        self.look_at_mapped(&file);
                    }
                }
            }
            self.processes.insert(pid, Seen { program, again: seen.is_none() });
        }
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
        self.files.insert(identity, Known { place: place.to_owned(), changed, sites: 0 });
        let before = self.with_markers.remove(&identity);
        // What cannot be read is nothing that could be recorded.
        let program = Markers::of_binary_within(binary, READ_MAX).ok().and_then(|markers| {
            let names: BTreeSet<_> = markers.all().iter().filter_map(name_of).take(MARKERS_MAX).collect();
            let has_room = !names.is_empty() && self.with_markers.len() < PROGRAMS_MAX;
            let sites = Some(markers.size()).filter(|&sites| has_room && self.has_room(sites))?;
            self.files.get_mut(&identity)?.sites = sites;
            let file = Some(Arc::new(Marked { binary: binary.clone(), markers }));
            Some(Arc::new(Program { path: place.to_owned(), identity, markers: names, file }))
        });
        self.generation += u64::from(before != program);
        if let Some(program) = program {
            self.is_displaced |= self.with_markers.values().any(|other| other.path == program.path);
            self.with_markers.insert(identity, program);
        }
    }

    /// Whether sites that take so many bytes can be known beside the others.
    fn has_room(&self, sites: usize) -> bool {
        self.files.values().map(|known| known.sites).sum::<usize>().saturating_add(sites) <= SITES_MAX
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
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

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
        /// Starts a program, and returns when it has its file mapped, which is a moment after `spawn`.
        fn start(program: &Path) -> Self {
            let running = Self(Command::new(program).spawn().unwrap());
            let deadline = Instant::now() + Duration::from_mins(1);
            let has_it = |file: &MappedFile| file.path() == program;
            while !MappedFile::of(running.0.id()).is_ok_and(|files| files.iter().any(has_it)) {
                assert!(Instant::now() < deadline, "{} does not run", program.display());
                std::thread::sleep(Duration::from_millis(1));
            }
            running
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
        assert_eq!(programs.with_markers.len(), programs.all().len());
    }

    /// A file that is open keeps its file system from being unmounted.
    #[test]
    fn files_are_closed_while_nobody_waits_for_programs() {
        let dir = tempfile::tempdir().unwrap();
        let one = program(dir.path(), "closed");
        let mut programs = Programs::default();
        Running::start(&one).show(&mut programs);
        let file = |programs: &Programs| {
            let all = programs.all();
            let program = all.iter().find(|program| program.path == one).unwrap();
            program.file.as_ref().map(Arc::downgrade)
        };
        let before = file(&programs).unwrap();
        assert!(programs.close());
        assert!(before.upgrade().is_none() && file(&programs).is_none());
        let generation = programs.generation();
        assert!(!programs.close());
        assert_eq!(programs.generation(), generation);
        // Nobody runs it.
        programs.look_at_new(&|_| ());
        assert!(file(&programs).unwrap().upgrade().is_some());
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

    /// Users can make any number of files with markers.
    #[test]
    fn sites_take_so_much_memory() {
        let dir = tempfile::tempdir().unwrap();
        let one = program(dir.path(), "sites");
        let binary = OpenBinary::open(&one).unwrap();
        let sites = Markers::of_binary(&binary).unwrap().size();
        assert!(sites > "appsites".len());
        for (others, is_known) in [(SITES_MAX - sites, true), (SITES_MAX - sites + 1, false)] {
            let mut programs = Programs::default();
            let known = Known { place: PathBuf::from("/other"), changed: (0, 0), sites: others };
            programs.files.insert(Identity::Inode(0, 0), known);
            for _ in ["first", "again"] {
                programs.look_into(&one, &binary);
                assert_eq!(programs.all().len(), usize::from(is_known), "{others}");
            }
        }
    }

    /// Where the programs with these markers are. Other tests have others.
    fn places(programs: &Programs, names: &[&str]) -> BTreeMap<String, PathBuf> {
        let all = known(programs).into_iter().map(|(path, name)| (name, path));
        all.filter(|(name, _)| names.contains(&name.as_str())).collect()
    }

    /// What a process has that began before is still recorded when another file is at the place.
    #[test]
    fn programs_that_follow_each_other_at_a_place_are_both_known() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["displaced", "displacing"];
        let [one, two] = names.map(|name| program(dir.path(), name));
        let mut programs = Programs::default();
        let _first = Running::start(&one);
        programs.look_at_new(&|_| ());
        fs::rename(&two, &one).unwrap();
        let _second = Running::start(&one);
        // The first process is known, and would not be looked at but for the second one.
        programs.look_at_new(&|_| ());
        let places = places(&programs, &names);
        assert_eq!(places["displacing"], one);
        assert_ne!(places["displaced"], one);
        for program in programs.all().iter().filter(|program| places.values().any(|of| *of == program.path)) {
            assert_eq!(program.file.as_ref().unwrap().binary.identity(), program.identity);
        }
    }

    #[test]
    fn a_process_is_looked_at_again_when_its_program_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let one = program(dir.path(), "later");
        // It waits for the end of its input, and then is the program.
        let mut shell = Command::new("sh");
        shell.args(["-c", "read line; exec \"$0\""]).arg(&one).stdin(Stdio::piped());
        let mut child = Running(shell.spawn().unwrap());
        let mut programs = Programs::default();
        // After the second look it is known.
        programs.look_at_new(&|_| ());
        programs.look_at_new(&|_| ());
        assert!(places(&programs, &["later"]).is_empty());
        drop(child.0.stdin.take());
        let deadline = Instant::now() + Duration::from_mins(1);
        while places(&programs, &["later"]).is_empty() {
            assert!(Instant::now() < deadline, "it is not found");
            programs.look_at_new(&|_| ());
        }
        assert_eq!(places(&programs, &["later"])["later"], one);
    }
}
