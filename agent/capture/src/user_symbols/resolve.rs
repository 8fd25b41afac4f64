//! From addresses to entries of the file's table of symbols.
//!
//! Readers know one address space, and recordings have many processes. So an entry is made for each address
//! that some stack has, and only for those: exact, named `function+0x12`, which `%ps` prints as it is. Where
//! two processes have different code at one address, the entry has both names, and each process has an entry
//! for itself where no code is (`place_of_process`), which our readers go by. Another entry ends each
//! address, because readers take the nearest name below for everything that is not in a stack.
//!
//! A file is that of the mapping of its process, as long as that runs, whatever is at its path by now. Of a
//! process that has ended, it is one with the same path and build id that another process has mapped, or that
//! is at the path.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ffi::OsStr,
    fmt::Write as _,
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use super::journal::{Mapping, Processes, inode_text};
use elf::symbols::{Function, Functions};
use elf::{Identity, MappedFile, OpenBinary, without_mark};
use ftrace_event::stacks::place_of_process;
use rustix::fs::{major, minor};

/// The name of addresses that are in no user stack.
const UNKNOWN: &str = "[unknown]";
/// The name of frames that a stack does not have: readers print a fixed number.
const NO_FRAME: &str = "-";

/// What a file gets so that its user stacks can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UserSymbols {
    /// Lines for the table of symbols.
    pub(crate) lines: Vec<u8>,
    /// The files that addresses are in.
    pub(crate) binaries: Vec<Binary>,
}

impl UserSymbols {
    /// The text of the option that names the files.
    pub(crate) fn option_text(&self) -> Vec<u8> {
        let mut text = serde_json::json!({ "binaries": self.binaries }).to_string().into_bytes();
        text.push(0);
        text
    }
}

/// A file of code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub(crate) struct Binary {
    path: String,
    /// As hexadecimal digits.
    #[serde(skip_serializing_if = "String::is_empty")]
    build_id: String,
}

/// Names every one of `frames`, which are addresses with their processes.
pub(super) fn resolve(processes: &Processes<'_>, frames: &BTreeSet<(u32, u64)>) -> UserSymbols {
    let mut resolver = Resolver::default();
    resolver.add(processes, frames.clone());
    resolver.finish()
}

/// A file's path, and which file it is, as the journal has them.
type Name = (Vec<u8>, String);

/// Names of addresses, with the processes in which they have them.
type Names = BTreeMap<u64, BTreeMap<String, BTreeSet<u32>>>;

/// Names frames, and remembers the files that they are in.
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    files: Vec<File>,
    /// The files of processes, by path and build id.
    of_process: HashMap<(u32, Name), usize>,
    /// Files that were read, by which they are.
    known: HashMap<Identity, usize>,
    /// What is at paths here, if it has the build id.
    at_path: HashMap<Name, Option<usize>>,
    /// Files for processes that have ended, as others have them; without functions if none has.
    by_name: HashMap<Name, usize>,
    /// With the processes that have them.
    names: Names,
    /// Frames that are in no known mapping.
    unmapped: BTreeSet<(u32, u64)>,
}

impl Resolver {
    /// Names these frames, too, and those that were in no mapping before.
    pub(super) fn add(&mut self, processes: &Processes<'_>, mut frames: BTreeSet<(u32, u64)>) {
        frames.append(&mut self.unmapped);
        let ids: BTreeSet<u32> = frames.iter().map(|&(process, _)| process).collect();
        let ended: BTreeSet<u32> = ids.into_iter().filter(|&process| has_ended(process)).collect();
        // Those that have ended get the files of others.
        let (last, first): (Vec<_>, Vec<_>) =
            frames.into_iter().partition(|(process, _)| ended.contains(process));
        let mut mapped = HashMap::new();
        for (process, address) in first.into_iter().chain(last) {
            let Some(mapping) = processes.find(process, address) else {
                self.unmapped.insert((process, address));
                continue;
            };
            let offset = address - mapping.start + mapping.offset;
            let name = self.file(process, mapping, &mut mapped).name(offset);
            self.names.entry(address).or_default().entry(name).or_default().insert(process);
        }
    }

    /// Whether there are frames that are in no known mapping.
    pub(super) fn has_unmapped(&self) -> bool {
        !self.unmapped.is_empty()
    }

    fn file(
        &mut self,
        process: u32,
        mapping: &Mapping<'_>,
        mapped: &mut HashMap<u32, Vec<MappedFile>>,
    ) -> &File {
        let name = (mapping.path.to_vec(), mapping.file.to_owned());
        let key = (process, name.clone());
        let index = if let Some(&index) = self.of_process.get(&key) {
            index
        } else {
            let files = mapped.entry(process).or_insert_with(|| MappedFile::of(process).unwrap_or_default());
            let index = self.find(name, mapping, files);
            self.of_process.insert(key, index);
            index
        };
        &self.files[index]
    }

    fn find(&mut self, name: Name, mapping: &Mapping<'_>, files: &[MappedFile]) -> usize {
        let path = Path::new(OsStr::from_bytes(mapping.path));
        let path = without_mark(path).unwrap_or(path);
        let is_mapped = |file: &&MappedFile| {
            file.has_code_at(mapping.start) && file.path().file_name() == path.file_name()
        };
        if let Some(Ok(binary)) = files.iter().find(is_mapped).map(MappedFile::open)
            // What is mapped there is the file, if its build id is not known to be another one.
            && let Some(index) = self.read(&binary, mapping, true)
        {
            // Containers may have other files of the same path without a build id.
            if mapping.build_id() != Some("") {
                self.by_name.insert(name, index);
            }
            return index;
        }
        let here = if let Some(&here) = self.at_path.get(&name) {
            here
        } else {
            let here = Some(path).filter(|path| path.is_absolute()).map(OpenBinary::open);
            let here = here.and_then(Result::ok).and_then(|binary| {
                let is_noted = inode_of(&binary).is_some_and(|inode| inode == mapping.file);
                self.read(&binary, mapping, is_noted)
            });
            self.at_path.insert(name.clone(), here);
            here
        };
        // Users choose build ids: what is at the path counts before what another process has from there.
        if let Some(index) = here.or_else(|| self.by_name.get(&name).copied()) {
            return index;
        }
        let index = self.files.len();
        self.files.push(File::new(mapping, None));
        self.by_name.insert(name, index);
        index
    }

    /// Reads a file, if it is the one that was mapped: another one may have been installed in its place.
    /// `is_same` says whether it is where that is not known by its build id.
    fn read(&mut self, binary: &OpenBinary, mapping: &Mapping<'_>, is_same: bool) -> Option<usize> {
        let is_it = |build_id: &str| mapping.build_id().map_or(is_same, |noted| noted == build_id);
        if let Some(&index) = self.known.get(&binary.identity()) {
            return self.files.get(index).filter(|file| is_it(&file.binary.build_id)).map(|_| index);
        }
        let functions = Functions::of_binary(binary).ok().filter(|found| is_it(found.build_id()))?;
        let index = self.files.len();
        self.files.push(File::new(mapping, Some(&functions)));
        self.known.insert(binary.identity(), index);
        Some(index)
    }

    /// Lines for the table of symbols, of all frames so far.
    pub(crate) fn lines(&self) -> Vec<u8> {
        let mut names = self.names.clone();
        for &(process, address) in &self.unmapped {
            let here = names.entry(address).or_default();
            here.entry(format!("{address:#x}")).or_default().insert(process);
        }
        lines(&names)
    }

    fn finish(self) -> UserSymbols {
        let lines = self.lines();
        let mut binaries: Vec<Binary> = self.files.into_iter().map(|file| file.binary).collect();
        binaries.sort();
        binaries.dedup();
        UserSymbols { lines, binaries }
    }
}

fn lines(names: &Names) -> Vec<u8> {
    if names.is_empty() {
        return Vec::new();
    }
    let mut text = String::new();
    let mut line = |address: u64, name: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{address:016x} t {name}");
    };
    let mut of_processes = BTreeMap::new();
    for (&address, here) in names {
        line(address, &here.keys().map(String::as_str).collect::<Vec<_>>().join("|"));
        if let Some(next) = address.checked_add(1)
            && !names.contains_key(&next)
        {
            line(next, UNKNOWN);
        }
        for (name, processes) in here.iter().filter(|_| here.len() > 1) {
            let places = processes.iter().filter_map(|process| place_of_process(*process, address));
            of_processes.extend(places.map(|place| (place, name)));
        }
    }
    for (&place, name) in &of_processes {
        line(place, name);
        if !of_processes.contains_key(&(place + 1)) {
            line(place + 1, UNKNOWN);
        }
    }
    line(u64::MAX, NO_FRAME);
    text.into_bytes()
}

/// A mapped file and its functions.
#[derive(Debug)]
struct File {
    /// For offsets that are in no function.
    base: String,
    /// By offset in the file.
    functions: Vec<Function>,
    binary: Binary,
}

impl File {
    fn new(mapping: &Mapping<'_>, found: Option<&Functions>) -> Self {
        let path = Path::new(OsStr::from_bytes(mapping.path));
        let path = without_mark(path).unwrap_or(path).to_string_lossy().into_owned();
        let base = path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(&path).to_owned();
        let noted = || mapping.build_id().unwrap_or_default();
        let build_id = found.map_or_else(noted, Functions::build_id).to_owned();
        let mut functions = found.map(|found| found.all().to_vec()).unwrap_or_default();
        functions.sort_by(|a, b| a.offset.cmp(&b.offset).then_with(|| plainer(b, a)));
        Self { base: word(&base), functions, binary: Binary { path, build_id } }
    }

    fn name(&self, offset: u64) -> String {
        let behind = self.functions.partition_point(|function| function.offset <= offset);
        // Of several names for one offset, the plainest is the last.
        let found = behind.checked_sub(1).and_then(|index| self.functions.get(index));
        let end = |function: &Function| match function.size {
            // Up to the next one.
            0 => u64::MAX,
            size => function.offset.saturating_add(size),
        };
        match found.filter(|function| offset < end(function)) {
            Some(function) => format!("{}+{:#x}", word(&function.demangled()), offset - function.offset),
            None => format!("{}+{offset:#x}", self.base),
        }
    }
}

/// Which file it is, as the journal has it of one whose build id is not known.
fn inode_of(binary: &OpenBinary) -> Option<String> {
    let Identity::Inode(device, inode) = binary.identity() else { return None };
    Some(inode_text(major(device), minor(device), inode))
}

/// Whether a process has no program any more.
fn has_ended(process: u32) -> bool {
    std::fs::read_link(format!("/proc/{process}/exe")).is_err()
}

/// Which of two names for one offset is the plainer: the one that has a length, with fewer underscores, and
/// shorter.
fn plainer(a: &Function, b: &Function) -> std::cmp::Ordering {
    let key = |function: &Function| {
        let underscores = function.name.bytes().take_while(|&byte| byte == b'_').count();
        (function.size == 0, underscores, function.name.len(), function.name.clone())
    };
    key(a).cmp(&key(b))
}

/// A name as the table can hold it: lines are split at blanks, and names that begin with a dollar sign are
/// dropped.
fn word(name: &str) -> String {
    let name: String =
        name.chars().map(|c| if c.is_whitespace() || c.is_control() { '_' } else { c }).collect();
    if name.starts_with('$') { format!("_{name}") } else { name }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn addresses_get_the_names_of_their_functions() {
        let exe = std::env::current_exe().unwrap();
        let functions = Functions::of(&exe).unwrap();
        let function =
            functions.all().iter().find(|function| function.name.contains("addresses_get")).unwrap();
        let offset = function.offset;
        let noted = inode_of(&OpenBinary::open(&exe).unwrap()).unwrap();
        let journal = format!("m 7 10000000 50000000 0 {noted} {}\n", exe.display());
        let frames = [(7, 0x1000_0000 + offset + 3), (7, 0x1000_0001), (8, 0x42)];
        let found = resolve(&Processes::parse(journal.as_bytes()), &frames.into_iter().collect());
        let text = String::from_utf8(found.lines).unwrap();
        let name = word(&function.demangled());
        assert!(text.contains(&format!("{:016x} t {name}+0x3\n", 0x1000_0000 + offset + 3)), "{text}");
        let base = exe.file_name().unwrap().display();
        assert!(text.contains(&format!("0000000010000001 t {base}+0x1\n")), "{text}");
        assert!(text.contains("0000000000000042 t 0x42\n0000000000000043 t [unknown]\n"), "{text}");
        assert!(text.ends_with("ffffffffffffffff t -\n"));
        assert_eq!(found.binaries.len(), 1);
        assert_eq!(found.binaries[0].build_id, functions.build_id());
    }

    /// By its build id; by its inode where that is not known; and one without a build id is no file with one.
    #[test]
    fn a_file_that_was_replaced_names_nothing() {
        let exe = std::env::current_exe().unwrap();
        let offset = Functions::of(&exe).unwrap().all()[0].offset;
        for noted in ["abcd", "fe:0:1", "-"] {
            let journal = format!("m 7 10000000 50000000 0 {noted} {}\n", exe.display());
            let frames = [(7, 0x1000_0000 + offset)].into_iter().collect();
            let found = resolve(&Processes::parse(journal.as_bytes()), &frames);
            let base = exe.file_name().unwrap().display().to_string();
            let expected = format!(" t {base}+{offset:#x}\n");
            assert!(String::from_utf8(found.lines).unwrap().contains(&expected), "{noted}");
        }
    }

    #[test]
    fn a_file_without_build_id_has_names() {
        let dir = tempfile::tempdir().unwrap();
        let (source, program) = (dir.path().join("p.c"), dir.path().join("p"));
        std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let mut cc = std::process::Command::new("cc");
        let built = cc.arg("-Wl,--build-id=none").arg("-o").args([&program, &source]).status().unwrap();
        assert!(built.success());
        let functions = Functions::of(&program).unwrap();
        let offset = functions.find("main").unwrap()[0].offset;
        let journal = format!("m 7 10000000 50000000 0 - {}\n", program.display());
        let frames = [(7, 0x1000_0000 + offset)].into_iter().collect();
        let found = resolve(&Processes::parse(journal.as_bytes()), &frames);
        assert!(String::from_utf8(found.lines).unwrap().contains(" t main+0x0\n"));
    }

    /// A process that has ended has the names of the files of others, whatever the numbers of both are.
    #[test]
    fn a_process_that_has_ended_has_files_of_others() {
        let (dir, own) = (tempfile::tempdir().unwrap(), std::process::id());
        let exe = std::env::current_exe().unwrap();
        let functions = Functions::of(&exe).unwrap();
        let (offset, id) = (functions.all()[0].offset, functions.build_id());
        let files = MappedFile::of(own).unwrap();
        let start = files.iter().find(|file| file.path() == exe).unwrap().code_starts().next().unwrap();
        let end = start + (1 << 32);
        let elsewhere = dir.path().join(exe.file_name().unwrap());
        // No process has a number so high.
        let (before, after) = (0, 1 << 30);
        let lines = [before, own, after]
            .map(|process| format!("m {process:x} {start:x} {end:x} 0 {id} {}\n", elsewhere.display()));
        let journal = lines.concat();
        let frames: BTreeSet<(u32, u64)> = [before, own, after].map(|id| (id, start + offset)).into();
        let names = |frames: BTreeSet<(u32, u64)>| {
            let mut resolver = Resolver::default();
            resolver.add(&Processes::parse(journal.as_bytes()), frames);
            resolver.names[&(start + offset)].clone()
        };
        let base = format!("{}+{offset:#x}", word(&exe.file_name().unwrap().to_string_lossy()));
        let named = names(frames);
        assert_eq!(named.values().collect::<Vec<_>>(), [&BTreeSet::from([before, own, after])]);
        assert!(!named.contains_key(&base), "{named:?}");
        // Nobody has it.
        let unnamed = names([(before, start + offset), (after, start + offset)].into());
        assert_eq!(unnamed, [(base, [before, after].into())].into());
    }

    #[test]
    fn different_code_at_one_address_is_not_mistaken() {
        let journal = b"m 1 1000 2000 0 - //one\nm 2 1000 2000 100 - //two\n";
        let frames = [(1, 0x1010), (2, 0x1010), (2, 0x1011)].into_iter().collect();
        let found = resolve(&Processes::parse(journal), &frames);
        let expected = "0000000000001010 t one+0x10|two+0x110\n\
                        0000000000001011 t two+0x111\n\
                        0000000000001012 t [unknown]\n\
                        4000001000001010 t one+0x10\n\
                        4000001000001011 t [unknown]\n\
                        4000002000001010 t two+0x110\n\
                        4000002000001011 t [unknown]\n\
                        ffffffffffffffff t -\n";
        assert_eq!(String::from_utf8(found.lines).unwrap(), expected);
        assert_eq!(resolve(&Processes::parse(journal), &BTreeSet::new()), UserSymbols::default());
    }

    #[test]
    fn names_are_single_words() {
        assert_eq!(word("<Vec<T> as Trait>::call"), "<Vec<T>_as_Trait>::call");
        assert_eq!(word("$x"), "_$x");
    }
}
