//! What a name means to the processes of a recording: the files that they have mapped under that name, of
//! which there are several where they are in different containers.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use kernel::proc;

use super::mapped::root_of;
use super::open::Root;
use super::{BinaryError, Identity, MappedFile, OpenBinary, told};

/// The most files that a name means. Each takes descriptors and programs.
const BINARIES_MAX: usize = 64;
/// The most reasons that are told one by one.
const REASONS_MAX: usize = 8;

/// Where a library without a path is looked for, after where a program is.
const LIBRARIES: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// Whose names are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Processes {
    /// Everybody's: a name means what it means to this process.
    All,
    /// Those of some processes.
    Of {
        /// The processes.
        ids: Vec<u32>,
        /// Which ones may come.
        newcomers: Newcomers,
    },
}

/// Processes that are recorded and not there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Newcomers {
    /// There are none.
    None,
    /// Children of those that are there, which have the root directories of these.
    Children,
    /// Any that have an attribute.
    Any,
    /// The recording's command, which has the root directory of this process.
    Command,
}

impl Processes {
    /// Their ids, as far as they are there already.
    pub fn ids(&self) -> Vec<u32> {
        match self {
            Self::All => proc::processes().unwrap_or_default(),
            Self::Of { ids, .. } => ids.clone(),
        }
    }
}

/// What a name means.
#[derive(Debug)]
pub struct Named {
    /// The files, each once.
    pub binaries: Vec<OpenBinary>,
    /// What the user should know: which processes are left out, and why.
    pub notes: Vec<String>,
}

/// Finds the files that names mean.
#[derive(Debug)]
pub struct Resolver {
    processes: Processes,
    mapped: OnceLock<Mapped>,
}

/// What processes have mapped.
#[derive(Debug, Default)]
struct Mapped {
    processes: Vec<(u32, Vec<MappedFile>)>,
    /// Processes that do not show it, by the reason.
    hidden: BTreeMap<String, Vec<u32>>,
}

impl Resolver {
    /// One for the names of these processes.
    pub fn new(processes: Processes) -> Self {
        Self { processes, mapped: OnceLock::new() }
    }

    /// The processes.
    pub fn processes(&self) -> &Processes {
        &self.processes
    }

    /// The files that a name means: without a slash, of mapped files with that name, of libraries with that
    /// `DT_SONAME`, and of those to which a symbolic link of that name leads; with a slash, what is at the
    /// path for each of the processes, and what they had mapped from there before it was removed. Paths below
    /// `/proc` say themselves whose they are.
    ///
    /// # Errors
    /// There is no such file, or no process has it mapped and none may come that has; or there are more than
    /// 64.
    pub fn find(&self, name: &str) -> Result<Named, BinaryError> {
        let Processes::Of { ids, newcomers } = &self.processes else { return own(name).map(Named::from) };
        if name.starts_with("/proc/") {
            return own(name).map(Named::from);
        }
        let mapped = self.mapped.get_or_init(|| Mapped::of(ids));
        let mut found = Binaries::default();
        let mut of_command = None;
        if *newcomers == Newcomers::Command {
            match own(name) {
                Ok(binary) => {
                    found.take(Ok(binary));
                }
                // The command need not have it.
                Err(error) => of_command = Some(error),
            }
        }
        if name.contains('/') {
            mapped.at_path(name, &mut found);
        } else {
            mapped.named(name, &mut found);
        }
        let is_mapped = found.all.iter().any(|binary| mapped.has(binary.identity()));
        if found.all.is_empty() && *newcomers == Newcomers::Children && !name.contains('/') {
            mapped.in_usual_folders(name, &mut found);
        }
        let may_be_own = *newcomers == Newcomers::Any || ids.is_empty() || !mapped.hidden.is_empty();
        if found.all.is_empty() && may_be_own {
            found.take(own(name));
        }
        if found.is_more {
            return Err(BinaryError::TooManyFiles { name: name.to_owned(), max: BINARIES_MAX });
        }
        if found.all.is_empty() {
            let not_mapped = || BinaryError::NotMapped { name: name.to_owned(), processes: ids.clone() };
            let error = found
                .errors
                .into_iter()
                .next()
                .or(of_command)
                .filter(|_| name.contains('/') || ids.is_empty());
            return Err(error.unwrap_or_else(not_mapped));
        }
        let is_nobodys = !is_mapped && *newcomers != Newcomers::Command && mapped.hidden.is_empty();
        let mut notes = mapped.notes(name, &found, is_nobodys);
        let paths = paths(&found.all);
        if is_nobodys {
            notes.push(format!("no process of the recording has mapped {name} yet: it is {paths}"));
        }
        // Others are where they are, which may be in other containers.
        if *newcomers == Newcomers::Any
            && let Ok(here) = own(name)
            && !found.all.contains(&here)
        {
            let here = here.path().display();
            notes.push(format!(
                "processes that start later are recorded where {name} is {paths}, and not where it is {here}"
            ));
        }
        Ok(Named { binaries: found.all, notes })
    }
}

/// Files that were found.
#[derive(Default)]
struct Binaries {
    all: Vec<OpenBinary>,
    /// Whether there are more than there may be.
    is_more: bool,
    /// Why others could not be opened, of those that are told.
    errors: Vec<BinaryError>,
    /// How many there are.
    errors_count: usize,
    /// Processes that do not have such a file.
    without: Vec<u32>,
}

impl Binaries {
    /// Takes a file that is not there yet. `true` if it is there now.
    fn take(&mut self, opened: Result<OpenBinary, BinaryError>) -> bool {
        match opened {
            Ok(binary) if self.all.contains(&binary) => true,
            Ok(_) if self.all.len() == BINARIES_MAX => {
                self.is_more = true;
                true
            }
            Ok(binary) => {
                self.all.push(binary);
                true
            }
            Err(error) => {
                self.errors_count += 1;
                if self.errors.len() < REASONS_MAX {
                    self.errors.push(error);
                }
                false
            }
        }
    }

    /// Takes a mapped file, which is opened only if it is not there yet.
    fn take_mapped(&mut self, file: &MappedFile) -> bool {
        let is_there = self.all.iter().any(|binary| binary.identity() == file.identity());
        is_there || self.take(file.open())
    }
}

impl Mapped {
    fn of(ids: &[u32]) -> Self {
        let mut mapped = Self::default();
        for &id in ids {
            match MappedFile::of(id) {
                Ok(files) => mapped.processes.push((id, files)),
                // It has ended.
                Err(error) if is_gone(&error) => {}
                Err(error) => mapped.hidden.entry(error.to_string()).or_default().push(id),
            }
        }
        mapped
    }

    fn files(&self) -> impl Iterator<Item = &MappedFile> {
        self.processes.iter().flat_map(|(_, files)| files)
    }

    fn has(&self, identity: Identity) -> bool {
        self.files().any(|file| file.identity() == identity)
    }

    /// Opens what is at a path for each process.
    fn at_path(&self, name: &str, found: &mut Binaries) {
        let path = Path::new(name);
        if path.is_relative() {
            // A working directory is that of one process.
            found.take(own(name));
            return;
        }
        for (process, files) in &self.processes {
            let there = for_process(*process, path);
            // What is there by now may be another file.
            let mut has_mapped = false;
            for file in before_at(path, (*process, files), there.as_ref().ok()) {
                has_mapped |= found.take_mapped(file);
            }
            match there {
                Err(_) if has_mapped => {}
                opened => {
                    found.take(opened);
                }
            }
        }
    }

    /// Opens what a name without a slash leads to where each process's programs and libraries are.
    fn in_usual_folders(&self, name: &str, found: &mut Binaries) {
        for (process, _) in &self.processes {
            let mut paths = usual_folders().map(|folder| folder.join(name));
            if let Some(binary) = paths.find_map(|path| for_process(*process, &path).ok()) {
                found.take(Ok(binary));
            }
        }
    }

    /// Opens what a name without a slash means to each process.
    fn named(&self, name: &str, found: &mut Binaries) {
        // Each file is read once: most processes have the same.
        let mut by_soname: BTreeMap<Identity, bool> = BTreeMap::new();
        let mut has_soname = |file: &&MappedFile| {
            if let Some(&is_it) = by_soname.get(&file.identity()) {
                return is_it;
            }
            let Ok(binary) = file.open() else { return false };
            let is_it = binary.soname().is_some_and(|soname| soname == name.as_bytes());
            by_soname.insert(file.identity(), is_it);
            is_it
        };
        for (process, files) in &self.processes {
            let is_called = |file: &&MappedFile| file.path().file_name() == Some(OsStr::new(name));
            let mut meant: Vec<&MappedFile> = files.iter().filter(is_called).collect();
            if meant.is_empty() {
                let linked = linked(*process, files, name);
                meant.extend(files.iter().filter(|file| linked.contains(&file.identity())));
            }
            if meant.is_empty() {
                meant.extend(files.iter().filter(&mut has_soname));
            }
            // A thread of the kernel has no files.
            if meant.is_empty() && !files.is_empty() {
                found.without.push(*process);
            }
            for file in meant {
                found.take_mapped(file);
            }
        }
    }

    /// What is left out of what a name means.
    fn notes(&self, name: &str, found: &Binaries, is_nobodys: bool) -> Vec<String> {
        let mut notes = Vec::new();
        for (reason, ids) in &self.hidden {
            let paths = paths(&found.all);
            let whose = told(ids);
            notes.push(format!("the mappings of {whose} cannot be read ({reason}): {name} is {paths} there"));
        }
        if !is_nobodys && !found.without.is_empty() {
            notes.push(format!(
                "{name} is not recorded in {}: no such file is mapped there",
                told(&found.without)
            ));
        }
        notes.extend(found.errors.iter().map(|error| format!("{name} is left out: {error}")));
        let more = found.errors_count - found.errors.len();
        if more > 0 {
            notes.push(format!("{name} is left out {more} more times"));
        }
        notes
    }
}

/// The files that a process has mapped from a path, which may have links; `there` is what it leads to now. A
/// versioned library, to which the last link has led, has its name as `DT_SONAME`.
fn before_at<'a>(
    path: &Path,
    (process, files): (u32, &'a [MappedFile]),
    there: Option<&OpenBinary>,
) -> Vec<&'a MappedFile> {
    let canonical = Root::open(&root_of(process)).ok().and_then(|root| root.canonical(path));
    let canonical = canonical.unwrap_or_else(|| path.to_owned());
    let at = files.iter().filter(|file| file.path() == path || file.path() == canonical);
    let found: Vec<&MappedFile> = at.collect();
    let is_mapped = there.is_some_and(|there| files.iter().any(|file| file.identity() == there.identity()));
    if !found.is_empty() || is_mapped {
        return found;
    }
    let name = path.file_name().map(OsStr::as_bytes);
    let is_called = |file: &&MappedFile| {
        file.path().parent() == canonical.parent()
            && file.open().ok().and_then(|binary| binary.soname()).as_deref() == name
    };
    files.iter().filter(|_| name.is_some()).filter(is_called).collect()
}

fn paths(binaries: &[OpenBinary]) -> String {
    let paths: Vec<String> = binaries.iter().map(|binary| binary.path().display().to_string()).collect();
    paths.join(", ")
}

/// Opens what is at a path for a process.
fn for_process(process: u32, path: &Path) -> Result<OpenBinary, BinaryError> {
    let there = OpenBinary::below(&root_of(process), path)?;
    // Where it is the same file for this process, its path needs no other process.
    Ok(OpenBinary::open(path).ok().filter(|own| *own == there).unwrap_or(there))
}

/// The files to which a name leads in the directories of a process's mapped files, and in those of programs
/// and libraries.
fn linked(process: u32, files: &[MappedFile], name: &str) -> BTreeSet<Identity> {
    let Ok(root) = Root::open(&root_of(process)) else { return BTreeSet::new() };
    let beside = files.iter().filter_map(|file| file.path().parent()).map(Path::to_owned);
    let folders: BTreeSet<PathBuf> = beside.chain(usual_folders()).collect();
    let look = |folder: &PathBuf| root.look(&folder.join(name)).map(|here| here.identity);
    folders.iter().filter_map(look).collect()
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

impl From<OpenBinary> for Named {
    fn from(binary: OpenBinary) -> Self {
        Self { binaries: vec![binary], notes: Vec::new() }
    }
}

/// What a name means to this process.
fn own(name: &str) -> Result<OpenBinary, BinaryError> {
    match find_by_name(name) {
        Some(found) => Ok(found),
        None => OpenBinary::open(Path::new(name)),
    }
}

/// The program or library that a name without a slash means to this process: in PATH, then where libraries
/// are.
pub fn find_by_name(name: &str) -> Option<OpenBinary> {
    if name.contains('/') {
        return None;
    }
    usual_folders().map(|folder| folder.join(name)).find_map(|path| OpenBinary::open(&path).ok())
}

/// Where programs and libraries are.
fn usual_folders() -> impl Iterator<Item = PathBuf> {
    let programs = std::env::var_os("PATH").unwrap_or_default();
    let programs: Vec<PathBuf> = std::env::split_paths(&programs).collect();
    programs.into_iter().chain(LIBRARIES.iter().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    use super::*;

    struct Sleeper(Child);

    impl Sleeper {
        /// Starts a program that waits, and returns when it has its file mapped.
        fn start(program: &Path) -> Self {
            let sleeper = Self(Command::new(program).arg("1000").spawn().unwrap());
            sleeper.wait_for(&fs::canonicalize(program).unwrap());
            sleeper
        }

        /// Waits until it has a file mapped.
        fn wait_for(&self, file: &Path) {
            let deadline = Instant::now() + Duration::from_mins(1);
            let is_it = |mapped: &MappedFile| mapped.path() == file;
            while !MappedFile::of(self.id()).is_ok_and(|files| files.iter().any(is_it)) {
                assert!(Instant::now() < deadline, "{} is not mapped", file.display());
                std::thread::sleep(Duration::from_millis(1));
            }
        }

        fn id(&self) -> u32 {
            self.0.id()
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A program that sleeps, under a name that no other has.
    fn sleeper(dir: &Path, name: &str) -> PathBuf {
        let dir = dir.canonicalize().unwrap();
        let (path, source) = (dir.join(name), dir.join(format!("{name}.c")));
        // Files with different contents.
        let code = format!("#include <unistd.h>\nint main(void) {{ sleep(1000); return {}; }}\n", name.len());
        fs::write(&source, code).unwrap();
        assert!(Command::new("cc").arg("-o").args([&path, &source]).status().unwrap().success());
        path
    }

    fn resolver(processes: &[&Sleeper], newcomers: Newcomers) -> Resolver {
        Resolver::new(Processes::Of { ids: processes.iter().map(|of| of.id()).collect(), newcomers })
    }

    #[test]
    fn a_file_of_several_processes_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let program = sleeper(dir.path(), "sleeper");
        let [one, two] = [(); 2].map(|()| Sleeper::start(&program));
        // Nobody has it mapped: children may run it.
        let found = resolver(&[&one, &two], Newcomers::Children).find("cat").unwrap();
        assert_eq!((found.binaries.len(), found.notes.len()), (1, 1), "{:?}", found.notes);
        for name in ["sleeper", program.to_str().unwrap()] {
            let found = resolver(&[&one, &two], Newcomers::None).find(name).unwrap();
            assert_eq!(found.binaries, [OpenBinary::open(&program).unwrap()], "{name}");
            assert_eq!(found.notes, [""; 0], "{name}");
        }
    }

    #[test]
    fn processes_that_are_left_out_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two] = ["sleeper", "other"].map(|name| sleeper(dir.path(), name));
        let [first, second] = [&one, &two].map(|program| Sleeper::start(program));
        let found = resolver(&[&first, &second], Newcomers::None).find("sleeper").unwrap();
        assert_eq!(found.binaries, [OpenBinary::open(&one).unwrap()]);
        let [note] = &found.notes[..] else { panic!("{:?}", found.notes) };
        assert!(note.contains(&format!("process {}", second.id())), "{note}");
        // The command need not have it.
        let found = resolver(&[&first], Newcomers::Command).find("sleeper").unwrap();
        assert_eq!((found.binaries.len(), found.notes.len()), (1, 0), "{:?}", found.notes);
        // It may have what the others do not.
        let found = resolver(&[&first], Newcomers::Command).find("cat").unwrap();
        assert_eq!((found.binaries.len(), found.notes.len()), (1, 1), "{:?}", found.notes);
        // Both have this path. What was there before is still the first one's.
        let before = OpenBinary::open(&one).unwrap();
        fs::rename(&two, &one).unwrap();
        let found = resolver(&[&first, &second], Newcomers::None).find(one.to_str().unwrap()).unwrap();
        assert_eq!(found.binaries, [before, OpenBinary::open(&one).unwrap()]);
        assert_eq!(found.notes, [""; 0]);
        fs::remove_file(&one).unwrap();
        let third = Sleeper::start(&sleeper(dir.path(), "third"));
        let found = resolver(&[&first, &third], Newcomers::None).find(one.to_str().unwrap()).unwrap();
        assert_eq!(found.binaries.len(), 1);
        let [note] = &found.notes[..] else { panic!("{:?}", found.notes) };
        assert!(note.contains(&format!("/proc/{}/root", third.id())), "{note}");
    }

    /// As after the update of a library: the path has links, and what they lead to now nobody has mapped.
    #[test]
    fn a_path_with_links_means_what_was_mapped_from_there() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().canonicalize().unwrap();
        let libraries = inside.join("usr/lib");
        fs::create_dir_all(&libraries).unwrap();
        symlink("usr/lib", inside.join("lib")).unwrap();
        let source = inside.join("l.c");
        let build = |file: &Path, value: u32| {
            fs::write(&source, format!("int one(void) {{ return {value}; }}\n")).unwrap();
            let options = ["-shared", "-fPIC", "-Wl,-soname,libone.so.1", "-o"];
            assert!(Command::new("cc").args(options).args([file, &source]).status().unwrap().success());
        };
        let [old, new] = ["libone.so.1.2", "libone.so.1.3"].map(|name| libraries.join(name));
        build(&old, 1);
        let link = libraries.join("libone.so.1");
        symlink("libone.so.1.2", &link).unwrap();
        let program = inside.join("program");
        fs::write(
            &source,
            "#include <unistd.h>\nint one(void);\nint main(void) { sleep(1000); return one(); }\n",
        )
        .unwrap();
        let mut cc = Command::new("cc");
        cc.arg("-o").args([&program, &source, &link]).arg(format!("-Wl,-rpath,{}", libraries.display()));
        assert!(cc.status().unwrap().success());
        let one = Sleeper::start(&program);
        one.wait_for(&old);
        let path = inside.join("lib/libone.so.1");
        let find = || resolver(&[&one], Newcomers::None).find(path.to_str().unwrap()).unwrap().binaries;
        let before = OpenBinary::open(&old).unwrap();
        assert_eq!(find(), std::slice::from_ref(&before));
        // The link leads to another version.
        build(&new, 2);
        fs::remove_file(&link).unwrap();
        symlink("libone.so.1.3", &link).unwrap();
        assert_eq!(find(), [before.clone(), OpenBinary::open(&new).unwrap()]);
        fs::remove_file(&old).unwrap();
        fs::remove_file(&link).unwrap();
        assert_eq!(find(), [before]);
        // By its whole name, which has a link in front.
        let path = inside.join("lib/libone.so.1.2");
        let found = resolver(&[&one], Newcomers::None).find(path.to_str().unwrap()).unwrap();
        assert_eq!(found.binaries.len(), 1);
    }

    #[test]
    fn processes_that_come_later_may_have_another_file() {
        let dir = tempfile::tempdir().unwrap();
        let program = sleeper(dir.path(), "cat");
        let one = Sleeper::start(&program);
        let found = resolver(&[&one], Newcomers::Any).find("cat").unwrap();
        assert_eq!(found.binaries, [OpenBinary::open(&program).unwrap()]);
        let [note] = &found.notes[..] else { panic!("{:?}", found.notes) };
        let other = find_by_name("cat").unwrap();
        assert!(note.contains(&other.path().display().to_string()), "{note}");
        assert_eq!(resolver(&[&one], Newcomers::None).find("cat").unwrap().notes, [""; 0]);
    }

    #[test]
    fn a_name_means_no_more_files_than_there_may_be() {
        let dir = tempfile::tempdir().unwrap();
        let program = sleeper(dir.path(), "sleeper");
        let sleepers: Vec<Sleeper> = (0..=BINARIES_MAX)
            .map(|number| {
                let folder = dir.path().join(number.to_string());
                fs::create_dir(&folder).unwrap();
                // By another process: a descriptor for writing would keep other tests' children from it.
                let copied = Command::new("cp").args([&program, &folder.join("sleeper")]).status();
                assert!(copied.unwrap().success());
                Sleeper::start(&folder.join("sleeper"))
            })
            .collect();
        let all: Vec<&Sleeper> = sleepers.iter().collect();
        let found = resolver(&all[1..], Newcomers::None).find("sleeper").unwrap();
        assert_eq!(found.binaries.len(), BINARIES_MAX);
        let refused = resolver(&all, Newcomers::None).find("sleeper").unwrap_err();
        assert!(matches!(refused, BinaryError::TooManyFiles { max: BINARIES_MAX, .. }), "{refused}");
    }
}
