//! What a name means to the processes of a recording: the files that they have mapped under that name, of which
//! there are several where they are in different containers.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use kernel::proc;

use super::mapped::root_of;
use super::open::Root;
use super::{BinaryError, Identity, MappedFile, OpenBinary};

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
    /// What the user should know.
    pub note: Option<String>,
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
    /// A process that does not show it.
    hidden: Option<(u32, io::Error)>,
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
    /// There is no such file, or no process has it mapped and none may come that has.
    pub fn find(&self, name: &str) -> Result<Named, BinaryError> {
        let Processes::Of { ids, newcomers } = &self.processes else { return own(name).map(Named::from) };
        if name.starts_with("/proc/") {
            return own(name).map(Named::from);
        }
        let mapped = self.mapped.get_or_init(|| Mapped::of(ids));
        let mut found = Binaries::default();
        if *newcomers == Newcomers::Command {
            found.take(own(name));
        }
        if name.contains('/') {
            mapped.at_path(name, &mut found)
        } else {
            mapped.named(name, &mut found)
        }
        let is_mapped = found.all.iter().any(|binary| mapped.has(binary.identity()));
        if found.all.is_empty() && *newcomers == Newcomers::Children && !name.contains('/') {
            mapped.in_usual_folders(name, &mut found);
        }
        if found.all.is_empty() && (*newcomers == Newcomers::Any || ids.is_empty() || mapped.hidden.is_some())
        {
            found.take(own(name));
        }
        if found.all.is_empty() {
            let not_mapped = || BinaryError::NotMapped { name: name.to_owned(), processes: ids.clone() };
            let error = found.error.filter(|_| name.contains('/') || ids.is_empty());
            return Err(error.unwrap_or_else(not_mapped));
        }
        let note = (!is_mapped && *newcomers != Newcomers::Command).then(|| mapped.note(name, &found.all));
        Ok(Named { binaries: found.all, note })
    }
}

/// Files that were found.
#[derive(Default)]
struct Binaries {
    all: Vec<OpenBinary>,
    /// Why the first of others could not be opened.
    error: Option<BinaryError>,
}

impl Binaries {
    fn take(&mut self, opened: Result<OpenBinary, BinaryError>) {
        match opened {
            Ok(binary) if self.all.contains(&binary) => {}
            Ok(binary) => self.all.push(binary),
            Err(error) => drop(self.error.get_or_insert(error)),
        }
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
                Err(error) => drop(mapped.hidden.get_or_insert((id, error))),
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
            return found.take(own(name));
        }
        for (process, files) in &self.processes {
            found.take(for_process(*process, path));
            // What is there by now may be another file.
            files.iter().filter(|file| file.path() == path).for_each(|file| found.take(file.open()));
        }
    }

    /// Opens what a name without a slash leads to where each process's programs and libraries are.
    fn in_usual_folders(&self, name: &str, found: &mut Binaries) {
        for (process, _) in &self.processes {
            let mut paths = usual_folders().map(|folder| folder.join(name));
            found.all.extend(paths.find_map(|path| for_process(*process, &path).ok()));
        }
    }

    /// Opens what a name without a slash means to each process.
    fn named(&self, name: &str, found: &mut Binaries) {
        for (process, files) in &self.processes {
            let is_called = |file: &&MappedFile| file.path().file_name() == Some(OsStr::new(name));
            let mut meant: Vec<&MappedFile> = files.iter().filter(is_called).collect();
            if meant.is_empty() {
                let linked = linked(*process, files, name);
                meant.extend(files.iter().filter(|file| linked.contains(&file.identity())));
            }
            if meant.is_empty() {
                let is_called = |file: &&MappedFile| {
                    let soname = file.open().ok().and_then(|binary| binary.soname());
                    soname.is_some_and(|soname| soname == name.as_bytes())
                };
                meant.extend(files.iter().filter(is_called));
            }
            meant.into_iter().for_each(|file| found.take(file.open()));
        }
    }

    /// What is said of files that nobody has mapped.
    fn note(&self, name: &str, binaries: &[OpenBinary]) -> String {
        let paths: Vec<String> = binaries.iter().map(|binary| binary.path().display().to_string()).collect();
        let paths = paths.join(", ");
        match &self.hidden {
            Some((process, error)) => {
                format!("what process {process} has mapped cannot be read ({error}): {name} is {paths}")
            }
            None => format!("no process of the recording has mapped {name} yet: it is {paths}"),
        }
    }
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
        Self { binaries: vec![binary], note: None }
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
