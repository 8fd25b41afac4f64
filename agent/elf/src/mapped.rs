//! Files whose code a process has mapped, whatever is at their paths by now: in another mount namespace,
//! below another root directory, removed, or replaced.
//!
//! The kernel has a link from each mapping to its file (`/proc/PID/map_files`,
//! Documentation/filesystems/proc.rst), and from each process to its program (`/proc/PID/exe`). The links of
//! mappings need CAP_CHECKPOINT_RESTORE. Without it a file is looked for by its path below the root directory
//! of the process, whose owner may have put another one there: it is taken only if its inode is that of the
//! mapping.
//!
//! All of this needs the right to look into the process (`PTRACE_MODE_READ_FSCREDS`), which the kernel checks
//! for the calling thread: nobody gets to files through processes of others, and no path that belongs to
//! somebody else is followed out of its root directory.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use kernel::proc::{self, Mapping};

use super::file::Segments;
use super::open::{self, Held, Root, without_mark};
use super::{BinaryError, Identity, OpenBinary};

/// The most files of a process that are looked for.
const FILES_MAX: usize = 1024;

/// A part of a file that a process has mapped as code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Code {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Where it begins in the file.
    pub(super) offset: u64,
}

/// A file whose code a process has mapped.
#[derive(Clone, Debug)]
pub struct MappedFile {
    process: u32,
    pub(super) identity: Identity,
    way: Way,
    /// Where it is, or was before it was removed, for the process.
    path: PathBuf,
    pub(super) code: Vec<Code>,
    /// All its mappings.
    memory: Vec<Range<u64>>,
}

/// What leads to a mapped file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Way {
    /// A link of the kernel.
    Link(PathBuf),
    /// The path, from the root directory of the process on.
    Path,
}

impl MappedFile {
    /// The files whose code a process has mapped, each once. Those that nothing leads to are left out.
    ///
    /// # Errors
    /// There is no such process, or this thread must not look into it.
    pub fn of(process: u32) -> io::Result<Vec<Self>> {
        Ok(Self::with_mappings(process)?.1)
    }

    /// The same with the list of the process's mappings.
    ///
    /// # Errors
    /// As of [`MappedFile::of`].
    pub fn with_mappings(process: u32) -> io::Result<(Vec<Mapping>, Vec<Self>)> {
        Self::below(proc::open_process(process)?.as_fd(), process)
    }

    /// The same of a process whose directory in `/proc` is open: all of it is of one process.
    pub(super) fn below(dir: BorrowedFd<'_>, process: u32) -> io::Result<(Vec<Mapping>, Vec<Self>)> {
        let mappings = proc::mappings(dir)?;
        // A thread of the kernel has no root directory, nor has a process that ends.
        let root = Root::of_process(dir, &root_of(process));
        let found = |root: Root| files_of(process, &mappings, |mapping| find((dir, process), &root, mapping));
        let files = root.map(found).unwrap_or_default();
        Ok((mappings, files))
    }

    /// Which file it is.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Where it is for the process, from its root directory on, or was before it was removed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens it.
    ///
    /// # Errors
    /// Nothing leads to it any more: it was unmapped, or the process has ended.
    pub fn open(&self) -> Result<OpenBinary, BinaryError> {
        self.open_at(&self.place())
    }

    /// A path that leads to it as long as nothing else is put there: its own where that is the same for this
    /// process; else one of `/proc/PID`, which ends with the process.
    pub fn place(&self) -> PathBuf {
        let path = root_of(self.process);
        let root = Root::open(&path).ok();
        let is_it = |here: Option<Held>| here.is_some_and(|here| here.identity == self.identity);
        if is_it(root.as_ref().and_then(|root| root.look_in_own(&self.path))) {
            return self.path.clone();
        }
        match &self.way {
            Way::Link(link) if !is_it(root.and_then(|root| root.look(&self.path))) => link.clone(),
            _ => path.join(self.path.strip_prefix("/").unwrap_or(&self.path)),
        }
    }

    fn open_at(&self, place: &Path) -> Result<OpenBinary, BinaryError> {
        let binary = match &self.way {
            Way::Link(link) if link == place => OpenBinary::linked(link, &root_of(self.process), &self.path)?,
            _ => OpenBinary::open(place)?,
        };
        if binary.identity() == self.identity {
            return Ok(binary);
        }
        let source = io::Error::new(io::ErrorKind::NotFound, "another file has taken its place");
        Err(BinaryError::Io { path: place.to_owned(), source })
    }

    /// Whether the process has code of it at an address.
    pub fn has_code_at(&self, address: u64) -> bool {
        // The list is in the order of addresses.
        let index = self.code.partition_point(|code| code.end <= address);
        self.code.get(index).is_some_and(|code| code.start <= address)
    }

    /// Where its mappings of code begin.
    pub fn code_starts(&self) -> impl Iterator<Item = u64> + '_ {
        self.code.iter().map(|code| code.start)
    }

    /// Whether 8 bytes are in a mapping of this file.
    pub(super) fn contains(&self, address: u64) -> bool {
        let Some(end) = address.checked_add(8) else { return false };
        // The list is in the order of addresses.
        let index = self.memory.partition_point(|mapping| mapping.end <= address);
        self.memory.get(index).is_some_and(|mapping| mapping.start <= address && end <= mapping.end)
    }

    /// What is added to the file's virtual addresses in this process.
    pub(super) fn bias(&self, segments: &Segments) -> Option<u64> {
        self.code.iter().find_map(|code| segments.bias(code.start, code.offset))
    }
}

/// The root directory of a process, as a path of this one.
pub(super) fn root_of(process: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{process}/root"))
}

type Found = (Way, Identity, PathBuf);

/// The file of a mapping of a process whose directory in `/proc` is open.
fn find((dir, process): (BorrowedFd<'_>, u32), root: &Root, mapping: &Mapping) -> Option<Found> {
    let shown = PathBuf::from(OsString::from_vec(mapping.path.clone()));
    let inside = root.within(&shown);
    let is_at = |path: &Path| root.look(path).is_some_and(|here| here.inode() == mapping.inode);
    // A name may end like the kernel's mark of removed files.
    let path = match without_mark(&inside) {
        Some(bare) if !is_at(&inside) => bare.to_owned(),
        _ => inside,
    };
    let way = |link: &str| Way::Link(PathBuf::from(format!("/proc/{process}/{link}")));
    let link = format!("map_files/{:x}-{:x}", mapping.start, mapping.end);
    if let Some(here) = open::look_at(dir, Path::new(&link)) {
        return Some((way(&link), here.identity, path));
    }
    let is_program = || {
        let program = rustix::fs::readlinkat(dir, "exe", Vec::new());
        program.is_ok_and(|program| mapping.path == program.as_bytes())
    };
    if is_program()
        && let Some(here) = open::look_at(dir, Path::new("exe"))
        && here.inode() == mapping.inode
    {
        return Some((way("exe"), here.identity, path));
    }
    let here = root.look(&path)?;
    (here.inode() == mapping.inode).then_some((Way::Path, here.identity, path))
}

/// The files with code among mappings, with all their mappings.
fn files_of(process: u32, mappings: &[Mapping], find: impl Fn(&Mapping) -> Option<Found>) -> Vec<MappedFile> {
    // Subvolumes of btrfs have one device in this list, and each has inodes from the first on.
    let key = |mapping: &Mapping| (mapping.device.clone(), mapping.inode, mapping.path.clone());
    let of_files = || mappings.iter().filter(|mapping| mapping.inode != 0);
    let mut files: Vec<MappedFile> = Vec::new();
    let mut known: HashMap<(String, u64, Vec<u8>), Option<usize>> = HashMap::new();
    // A file may have several paths.
    let mut by_identity: HashMap<Identity, usize> = HashMap::new();
    let mut looked = 0;
    for mapping in of_files().filter(|mapping| mapping.executable) {
        known.entry(key(mapping)).or_insert_with(|| {
            looked += 1;
            let (way, identity, path) = (looked <= FILES_MAX).then(|| find(mapping))??;
            let index = *by_identity.entry(identity).or_insert(files.len());
            if index == files.len() {
                files.push(MappedFile { process, identity, way, path, code: Vec::new(), memory: Vec::new() });
            }
            Some(index)
        });
    }
    for mapping in of_files() {
        let index = known.get(&key(mapping)).copied().flatten();
        if let Some(file) = index.and_then(|index| files.get_mut(index)) {
            let &Mapping { start, end, offset, executable, .. } = mapping;
            file.memory.push(start..end);
            if executable {
                file.code.push(Code { start, end, offset });
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn mapping(start: u64, executable: bool, offset: u64, device: &str, inode: u64, path: &str) -> Mapping {
        let (device, path) = (device.to_owned(), path.as_bytes().to_vec());
        Mapping { start, end: start + 0x1000, executable, offset, device, inode, path }
    }

    #[test]
    fn slots_are_read_in_mappings_of_their_file_only() {
        let mappings = [
            mapping(0x1000, false, 0, "08:01", 7, "/a"),
            mapping(0x2000, true, 0x1000, "08:01", 7, "/a"),
            mapping(0x3000, false, 0, "00:30", 7, "/f"),
            mapping(0x4000, false, 0x2000, "08:01", 7, "/a"),
            mapping(0x5000, true, 0, "00:00", 0, "[vdso]"),
        ];
        let files = files_of(1, &mappings, |mapping| {
            let found = (Way::Path, Identity::Inode(1, 7), PathBuf::from("/a"));
            (mapping.start == 0x2000).then_some(found)
        });
        let [file] = &files[..] else { panic!("{files:?}") };
        assert_eq!(file.code.len(), 1);
        for (address, is) in [(0x1000, true), (0x1ff8, true), (0x3000, false), (0x4ff8, true)] {
            assert_eq!(file.contains(address), is, "{address:#x}");
        }
        for address in [0xfff, 0x3ffc, 0x4ff9, 0x5000, u64::MAX] {
            assert!(!file.contains(address), "{address:#x}");
        }
        for (address, is) in [(0x1fff, false), (0x2000, true), (0x2fff, true), (0x3000, false)] {
            assert_eq!(file.has_code_at(address), is, "{address:#x}");
        }
        assert_eq!(file.code_starts().collect::<Vec<_>>(), [0x2000]);
    }

    /// Subvolumes have files of the same device and inode; and one file may have two paths.
    #[test]
    fn files_are_told_apart_by_what_they_are() {
        let mappings = [
            mapping(0x1000, true, 0, "00:1f", 257, "/one/a"),
            mapping(0x2000, true, 0, "00:1f", 257, "/two/a"),
            mapping(0x3000, true, 0x1000, "00:1f", 257, "/one/link"),
            mapping(0x4000, false, 0x2000, "00:1f", 257, "/two/a"),
        ];
        let files = files_of(1, &mappings, |mapping| {
            let device = if mapping.path.starts_with(b"/one") { 1 } else { 2 };
            Some((Way::Path, Identity::Inode(device, 257), PathBuf::from("/any")))
        });
        let starts: Vec<Vec<u64>> = files.iter().map(|file| file.code_starts().collect()).collect();
        assert_eq!(starts, [vec![0x1000, 0x3000], vec![0x2000]]);
        assert!(files[1].contains(0x4000) && !files[0].contains(0x4000));
    }

    /// A process may have any number of files mapped, of which nothing is found.
    #[test]
    fn so_many_files_are_looked_for() {
        let count = 2 * FILES_MAX as u64;
        let of = |number: u64| mapping(number << 12, true, 0, "08:01", number, "/gone");
        let mappings: Vec<Mapping> = (1..=count).map(of).collect();
        let looked = std::cell::Cell::new(0);
        let files = files_of(1, &mappings, |_| {
            looked.set(looked.get() + 1);
            None
        });
        assert_eq!((files.len(), looked.get()), (0, FILES_MAX));
    }

    #[test]
    fn a_process_has_its_program_mapped() {
        let program = std::env::current_exe().unwrap().canonicalize().unwrap();
        let files = MappedFile::of(std::process::id()).unwrap();
        let of_program: Vec<&MappedFile> = files.iter().filter(|file| file.path() == program).collect();
        let [file] = of_program[..] else { panic!("{of_program:?}") };
        assert_eq!(file.place(), program);
        let binary = file.open().unwrap();
        assert_eq!(binary, OpenBinary::open(&program).unwrap());
        assert!(file.has_code_at(file.code[0].start) && !file.has_code_at(0));
        let (mappings, files) = MappedFile::with_mappings(std::process::id()).unwrap();
        let found = files.iter().find(|file| file.path() == program).unwrap();
        for start in found.code_starts() {
            assert!(mappings.iter().any(|mapping| mapping.start == start && mapping.executable));
        }
    }

    /// Its number may be another process's by then.
    #[test]
    fn a_directory_is_that_of_its_process() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let dir = proc::open_process(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(MappedFile::below(dir.as_fd(), std::process::id()).is_err());
        assert!(MappedFile::of(child.id()).is_err());
    }
}
