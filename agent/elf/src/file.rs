//! The ELF file itself: what it is for, and where its code lies.

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::ops::Range;
use std::path::Path;

use object::read::elf::{ElfFile, ProgramHeader as _};
use object::{
    Architecture, LittleEndian, Object as _, ObjectKind, ObjectSegment as _, ReadCache, ReadRef,
    SegmentFlags, elf,
};

use super::{BinaryError, OpenBinary};

/// The processor that a binary is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Machine {
    /// x86-64.
    X86_64,
    /// 32-bit x86, which an x86-64 kernel runs too.
    X86,
    /// 64-bit Arm.
    Aarch64,
    /// Any other, by its `e_machine`.
    Other(u16),
}

impl Machine {
    /// The processor this program was built for, which is the one it runs on.
    pub const HOST: Self = if cfg!(target_arch = "x86_64") {
        Self::X86_64
    } else if cfg!(target_arch = "aarch64") {
        Self::Aarch64
    } else {
        Self::Other(0)
    };

    fn runs_here(self) -> bool {
        self == Self::HOST || (self == Self::X86 && Self::HOST == Self::X86_64)
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::X86_64 => out.write_str("x86-64"),
            Self::X86 => out.write_str("x86 (32 bits)"),
            Self::Aarch64 => out.write_str("arm64"),
            Self::Other(number) => write!(out, "another processor (ELF machine {number})"),
        }
    }
}

/// The largest page of a processor here.
const PAGE_MAX: u64 = 64 << 10;

/// The most bytes of a file that are read for its symbols. The largest debug files, of browsers, have half as
/// many.
pub(super) const READ_MAX: u64 = 512 << 20;

/// The bytes of a binary, read where they are asked for. Every read is checked against the file's size, and
/// against what may still be read: a hostile file may be sparse, and say anything of its tables.
#[derive(Debug)]
pub(super) struct Bytes {
    cache: ReadCache<File>,
    /// Bytes that may still be read.
    left: Cell<u64>,
}

impl Bytes {
    fn new(file: File, max: u64) -> Self {
        Self { cache: ReadCache::new(file), left: Cell::new(max) }
    }

    fn take(&self, size: u64) -> Result<(), ()> {
        self.left.set(self.left.get().checked_sub(size).ok_or(())?);
        Ok(())
    }
}

impl<'a> ReadRef<'a> for &'a Bytes {
    fn len(self) -> Result<u64, ()> {
        (&self.cache).len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.take(size)?;
        (&self.cache).read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        // The cache gives up after so many bytes without a delimiter.
        const TEXT_MAX: u64 = 4096;
        let found = (&self.cache).read_bytes_at_until(range, delimiter);
        self.take(found.map_or(TEXT_MAX, |found| found.len() as u64))?;
        found
    }
}

/// A parsed file over its bytes.
pub(super) type Parsed<'a> = object::File<'a, &'a Bytes>;

/// A segment of the program headers that is loaded from the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    address: u64,
    offset: u64,
    size: u64,
    executable: bool,
}

/// The loaded parts of a binary: from virtual addresses to file offsets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Segments(Vec<Segment>);

impl Segments {
    fn of(file: &Parsed<'_>) -> Self {
        let segment = |segment: object::Segment<'_, '_, &Bytes>| {
            let (offset, size) = segment.file_range();
            let executable = match segment.flags() {
                SegmentFlags::Elf { p_flags } => p_flags & elf::PF_X != 0,
                _ => false,
            };
            Segment { address: segment.address(), offset, size, executable }
        };
        Self(file.segments().map(segment).collect())
    }

    /// Those of program headers.
    pub(super) fn of_headers(headers: &[elf::ProgramHeader64<LittleEndian>]) -> Self {
        let loaded = headers.iter().filter(|header| header.p_type(LittleEndian) == elf::PT_LOAD);
        let segment = |header: &elf::ProgramHeader64<LittleEndian>| Segment {
            address: header.p_vaddr(LittleEndian),
            offset: header.p_offset(LittleEndian),
            size: header.p_filesz(LittleEndian),
            executable: header.p_flags(LittleEndian) & elf::PF_X != 0,
        };
        Self(loaded.map(segment).collect())
    }

    /// The file offset of the code at a virtual address; none when no executable segment of the file holds
    /// it.
    pub(super) fn code_offset(&self, address: u64) -> Option<u64> {
        self.offset_in(address, |segment| segment.executable)
    }

    /// What is added to virtual addresses in a process that has mapped code at `start`, from `offset` of the
    /// file on. Mappings begin at the page that has the segment's first byte.
    pub(super) fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        self.0.iter().filter(|segment| segment.executable).find_map(|segment| {
            let page = segment.offset & !(PAGE_MAX - 1);
            let end = segment.offset.saturating_add(segment.size);
            let address = segment.address.wrapping_add(offset.wrapping_sub(segment.offset));
            (page..end).contains(&offset).then(|| start.wrapping_sub(address))
        })
    }

    /// Where in the file the code is.
    pub(super) fn code(&self) -> Vec<Range<u64>> {
        let code = self.0.iter().filter(|segment| segment.executable);
        code.map(|segment| segment.offset..segment.offset.saturating_add(segment.size)).collect()
    }

    /// The file offset of the data at a virtual address. What only exists in memory (`.bss`) has none.
    pub(super) fn data_offset(&self, address: u64) -> Option<u64> {
        self.offset_in(address, |_| true)
    }

    fn offset_in(&self, address: u64, wanted: impl Fn(&Segment) -> bool) -> Option<u64> {
        self.0.iter().filter(|segment| wanted(segment)).find_map(|segment| {
            let distance = address.checked_sub(segment.address)?;
            (distance < segment.size).then(|| segment.offset.checked_add(distance))?
        })
    }
}

/// Checks that this machine can run a binary, and hands its structures to `look`. At most `max` bytes are
/// read.
pub(super) fn with_binary<T>(
    binary: &OpenBinary,
    max: u64,
    look: impl FnOnce(&Parsed<'_>, &Segments) -> Result<T, BinaryError>,
) -> Result<T, BinaryError> {
    let path = binary.path();
    with_elf((binary.reopen()?, max), path, |file| {
        if let Some(what) = not_runnable(file) {
            return Err(BinaryError::NotRunnable { path: path.to_owned(), what });
        }
        let machine = machine_of(file);
        if !machine.runs_here() {
            let host = Machine::HOST;
            return Err(BinaryError::WrongMachine { path: path.to_owned(), machine, host });
        }
        look(file, &Segments::of(file))
    })
}

/// Reads at most `max` bytes of an ELF file of any kind, and hands its structures to `look`. `path` is for
/// errors.
pub(super) fn with_elf<T>(
    (mut file, max): (File, u64),
    path: &Path,
    look: impl FnOnce(&Parsed<'_>) -> Result<T, BinaryError>,
) -> Result<T, BinaryError> {
    let failed = |source| BinaryError::Io { path: path.to_owned(), source };
    let mut head = Vec::with_capacity(256);
    (&mut file).take(256).read_to_end(&mut head).map_err(failed)?;
    if !head.starts_with(&elf::ELFMAG) {
        return Err(BinaryError::NotElf { path: path.to_owned(), interpreter: interpreter_of(&head) });
    }
    file.seek(io::SeekFrom::Start(0)).map_err(failed)?;
    let bytes = Bytes::new(file, max);
    let parsed = object::File::parse(&bytes).map_err(|reason| malformed(path, &reason))?;
    look(&parsed)
}

pub(super) fn malformed(path: &Path, reason: &dyn fmt::Display) -> BinaryError {
    BinaryError::Malformed { path: path.to_owned(), reason: reason.to_string() }
}

/// The interpreter that a script's first line names.
fn interpreter_of(head: &[u8]) -> Option<String> {
    let line = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let name = line.split_whitespace().next()?;
    Some(name.chars().filter(|character| !character.is_control()).collect())
}

fn not_runnable(file: &Parsed<'_>) -> Option<&'static str> {
    match file.kind() {
        ObjectKind::Executable | ObjectKind::Dynamic => None,
        ObjectKind::Relocatable => Some("an object file"),
        ObjectKind::Core => Some("a core dump"),
        _ => Some("an ELF file of an unknown type"),
    }
}

pub(super) fn machine_of(file: &Parsed<'_>) -> Machine {
    match file.architecture() {
        Architecture::X86_64 => Machine::X86_64,
        Architecture::I386 => Machine::X86,
        Architecture::Aarch64 => Machine::Aarch64,
        _ => Machine::Other(match file {
            object::File::Elf32(ElfFile { .. }) | object::File::Elf64(ElfFile { .. }) => e_machine(file),
            _ => 0,
        }),
    }
}

fn e_machine(file: &Parsed<'_>) -> u16 {
    use object::read::elf::FileHeader as _;
    match file {
        object::File::Elf32(file) => file.elf_header().e_machine(file.endian()),
        object::File::Elf64(file) => file.elf_header().e_machine(file.endian()),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::os::unix::fs::FileExt as _;

    use super::*;

    /// A sparse file with a table of symbols of so many bytes.
    fn with_symbols(bytes: u64) -> File {
        const SECTIONS_AT: u64 = 0x1000;
        let half = |value: u16| value.to_le_bytes();
        let word = |value: u32| value.to_le_bytes();
        let long = |value: u64| value.to_le_bytes();
        let mut head = [&elf::ELFMAG[..], &[2, 1, 1], &[0; 9]].concat();
        head.extend([half(elf::ET_DYN), half(elf::EM_X86_64)].concat());
        head.extend(word(1));
        head.extend([long(0), long(0), long(SECTIONS_AT)].concat());
        head.extend(word(0));
        head.extend([64, 56, 0, 64, 3, 2].map(half).concat());
        // Name, type, flags, address, offset, size, link, info, alignment, size of an entry.
        let section = |kind: u32, offset: u64, size: u64, link: u32, entry: u64| {
            let numbers = [long(0), long(0), long(offset), long(size)].concat();
            let link = [word(link), word(0)].concat();
            [[word(0), word(kind)].concat(), numbers, link, long(8).to_vec(), long(entry).to_vec()].concat()
        };
        let sections = [
            section(elf::SHT_NULL, 0, 0, 0, 0),
            section(elf::SHT_SYMTAB, 0x2000, bytes, 2, 24),
            section(elf::SHT_STRTAB, 0x1800, 1, 0, 0),
        ];
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&head, 0).unwrap();
        file.write_all_at(&sections.concat(), SECTIONS_AT).unwrap();
        file.set_len(0x2000 + bytes).unwrap();
        file
    }

    #[test]
    fn tables_that_are_too_large_are_not_read() {
        let read = |bytes, max| {
            let count = |file: &Parsed<'_>| Ok(file.symbols().count() as u64);
            with_elf((with_symbols(bytes), max), Path::new("file"), count)
        };
        // The first symbol is none.
        assert_eq!(read(24 * 100, READ_MAX).unwrap(), 99);
        assert!(matches!(read(24 * 100, 24 * 100), Err(BinaryError::Malformed { .. })));
        assert!(matches!(read(24 << 36, READ_MAX), Err(BinaryError::Malformed { .. })));
    }
}
