//! What the headers of a binary of this machine say, read within a budget: a file may be hostile and sparse.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use object::LittleEndian;
use object::elf::{self, Dyn64, FileHeader64, ProgramHeader64, SectionHeader64};
use object::pod::{self, Pod};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _, SectionHeader as _};

use super::file::{Machine, Segments};

/// The most program headers of a file: a binary has about a dozen.
pub(super) const SEGMENTS_MAX: u16 = 64;
/// The most bytes of the dynamic section, and of notes, that are read: some kilobytes are usual.
const TABLE_MAX: u64 = 64 << 10;
/// The longest name of a library that is read.
const SONAME_MAX: u64 = 256;
/// The longest build id: a SHA-512.
const BUILD_ID_MAX: usize = 64;
/// What is read of a file for its name or its build id.
const NAME_BYTES_MAX: u64 = 1 << 20;

/// A file's bytes, up to a budget.
pub(super) struct Reader<'a> {
    file: &'a File,
    len: u64,
    /// Bytes that may still be read.
    pub(super) left: u64,
}

/// The headers of a binary of 64 bits for this machine's processor.
pub(super) struct Head {
    pub(super) machine: Machine,
    pub(super) programs: Vec<ProgramHeader64<LittleEndian>>,
    sections: (u64, u16),
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &'a File, budget: u64) -> Self {
        Self { file, len: file.metadata().map_or(0, |found| found.len()), left: budget }
    }

    /// `None` if it is beyond the file's end, or more than what may be read.
    pub(super) fn read(&mut self, offset: u64, size: u64) -> Option<Vec<u8>> {
        let is_inside = offset.checked_add(size)? <= self.len;
        if !is_inside {
            return None;
        }
        self.left = self.left.checked_sub(size)?;
        let mut bytes = vec![0; usize::try_from(size).ok()?];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }

    fn table<T: Pod>(&mut self, offset: u64, count: u16) -> Option<Vec<u8>> {
        self.read(offset, u64::from(count).checked_mul(size_of::<T>() as u64)?)
    }

    /// `None` if it is no such binary.
    pub(super) fn head(&mut self) -> Option<Head> {
        let head = self.table::<FileHeader64<LittleEndian>>(0, 1)?;
        let (head, _) = pod::from_bytes::<FileHeader64<LittleEndian>>(&head).ok()?;
        let machine = match head.e_machine(LittleEndian) {
            elf::EM_X86_64 => Machine::X86_64,
            elf::EM_AARCH64 => Machine::Aarch64,
            other => Machine::Other(other),
        };
        let is_meant = head.is_supported() && head.is_little_endian() && machine == Machine::HOST;
        if !is_meant || head.e_phnum(LittleEndian) > SEGMENTS_MAX {
            return None;
        }
        let programs = self
            .table::<ProgramHeader64<LittleEndian>>(head.e_phoff(LittleEndian), head.e_phnum(LittleEndian))?;
        let programs = pod::slice_from_all_bytes(&programs).ok()?.to_vec();
        Some(Head { machine, programs, sections: (head.e_shoff(LittleEndian), head.e_shnum(LittleEndian)) })
    }

    /// The headers of a binary's sections.
    pub(super) fn sections(&mut self, head: &Head) -> Option<Vec<SectionHeader64<LittleEndian>>> {
        let (offset, count) = head.sections;
        let sections = self.table::<SectionHeader64<LittleEndian>>(offset, count)?;
        Some(pod::slice_from_all_bytes(&sections).ok()?.to_vec())
    }

    pub(super) fn section(&mut self, section: &SectionHeader64<LittleEndian>) -> Option<Vec<u8>> {
        self.read(section.sh_offset(LittleEndian), section.sh_size(LittleEndian))
    }

    /// The segments of a kind.
    fn segments(&mut self, head: &Head, kind: u32) -> Vec<Vec<u8>> {
        let of_kind = head.programs.iter().filter(|header| header.p_type(LittleEndian) == kind);
        of_kind
            .filter_map(|header| {
                self.read(header.p_offset(LittleEndian), header.p_filesz(LittleEndian).min(TABLE_MAX))
            })
            .collect()
    }
}

/// The name that other binaries have for a shared library (`DT_SONAME`).
pub(super) fn soname(file: &File) -> Option<Vec<u8>> {
    let mut reader = Reader::new(file, NAME_BYTES_MAX);
    let head = reader.head()?;
    let dynamic = reader.segments(&head, elf::PT_DYNAMIC).into_iter().next()?;
    let entries = dynamic.len() / size_of::<Dyn64<LittleEndian>>();
    let (entries, _) = pod::slice_from_bytes::<Dyn64<LittleEndian>>(&dynamic, entries).ok()?;
    let value = |tag| {
        let entry = entries.iter().find(|entry| entry.d_tag(LittleEndian) == tag)?;
        Some(entry.d_val(LittleEndian))
    };
    let at = value(elf::DT_STRTAB)?.checked_add(value(elf::DT_SONAME)?)?;
    let offset = Segments::of_headers(&head.programs).data_offset(at)?;
    let mut name = reader.read(offset, SONAME_MAX.min(reader.len.checked_sub(offset)?))?;
    let end = name.iter().position(|&byte| byte == 0)?;
    name.truncate(end);
    Some(name)
}

/// The build id of a file: the description of a note of owner `GNU` and type 3 (`NT_GNU_BUILD_ID`); empty if
/// it has none.
pub(super) fn build_id(file: &File) -> Option<Vec<u8>> {
    let mut reader = Reader::new(file, NAME_BYTES_MAX);
    let head = reader.head()?;
    let found = reader.segments(&head, elf::PT_NOTE).iter().find_map(|notes| build_id_of(notes));
    Some(found.unwrap_or_default())
}

fn build_id_of(mut notes: &[u8]) -> Option<Vec<u8>> {
    loop {
        let (sizes, rest) = notes.split_at_checked(12)?;
        let word = |at: usize| Some(u32::from_le_bytes(*sizes.get(at..)?.first_chunk()?));
        let padded = |size: u32| usize::try_from(size).ok()?.checked_next_multiple_of(4);
        let (owner, description, kind) = (word(0)?, word(4)?, word(8)?);
        let (name, rest) = rest.split_at_checked(padded(owner)?)?;
        let id = rest.get(..usize::try_from(description).ok()?)?;
        if kind == elf::NT_GNU_BUILD_ID && name == b"GNU\0" {
            return (id.len() <= BUILD_ID_MAX).then(|| id.to_vec());
        }
        notes = rest.get(padded(description)?..)?;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use object::Object as _;
    use std::process::Command;

    #[test]
    fn names_and_build_ids_are_those_that_the_linker_wrote() {
        let dir = tempfile::tempdir().unwrap();
        let (source, library) = (dir.path().join("l.c"), dir.path().join("l"));
        std::fs::write(&source, "int one(void) { return 1; }\n").unwrap();
        let options = ["-shared", "-fPIC", "-Wl,-soname,libone.so.1", "-Wl,--build-id=sha1", "-o"];
        assert!(Command::new("cc").args(options).args([&library, &source]).status().unwrap().success());
        let file = File::open(&library).unwrap();
        assert_eq!(soname(&file).unwrap(), b"libone.so.1");
        let bytes = std::fs::read(&library).unwrap();
        let expected = object::File::parse(&*bytes).unwrap();
        assert_eq!(build_id(&file).unwrap(), expected.build_id().unwrap().unwrap());
        let program = File::open(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(soname(&program), None);
        // Wherever the file ends.
        for len in (0..bytes.len() as u64).step_by(64) {
            let cut = tempfile::tempfile().unwrap();
            cut.write_all_at(&bytes[..usize::try_from(len).unwrap()], 0).unwrap();
            let _ = (soname(&cut), build_id(&cut));
        }
    }

    #[test]
    fn notes_that_claim_more_than_there_is_have_no_build_id() {
        let note = |owner: u32, description: u32, kind: u32| {
            [owner, description, kind].map(u32::to_le_bytes).concat()
        };
        let other = [&note(4, 2, 1), &b"GNU\0ab\0\0"[..]].concat();
        let id = [&note(4, 3, elf::NT_GNU_BUILD_ID), &b"GNU\0\x01\x02\x03"[..]].concat();
        assert_eq!(build_id_of(&[&other[..], &id].concat()), Some(vec![1, 2, 3]));
        assert_eq!(build_id_of(&id[..id.len() - 1]), None);
        for owner in [5, u32::MAX] {
            assert_eq!(build_id_of(&note(owner, u32::MAX, elf::NT_GNU_BUILD_ID)), None);
        }
    }
}
