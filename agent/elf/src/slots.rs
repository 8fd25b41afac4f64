//! Where a binary has its loader store the addresses of implementations, by its relocations.
//!
//! A file may be hostile and sparse, so each of its tables is read as one part of a budget, and none is kept.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;

use object::LittleEndian;
use object::elf::{self, Rela64, SectionHeader64, Sym64};
use object::pod;
use object::read::elf::{Rela as _, SectionHeader as _, Sym as _};

use super::file::{Machine, Segments};
use super::head::Reader;

/// The most bytes of tables that are read of a file: relocations of 24 bytes are some three million.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// The most tables of relocations of a file: a binary has two.
const TABLES_MAX: usize = 8;
/// The most slots that are read of a file: a binary has one or two for a function.
const SLOTS_MAX: usize = 256;

/// The functions whose slots are meant.
#[derive(Debug)]
pub(super) struct Wanted {
    /// The addresses of resolvers, for `IRELATIVE` relocations.
    pub(super) resolvers: BTreeSet<u64>,
    /// Names without versions.
    pub(super) names: BTreeSet<String>,
}

/// A file's slots, as virtual addresses, and its segments.
#[derive(Debug, Default)]
pub(super) struct Slots {
    pub(super) addresses: Vec<u64>,
    pub(super) segments: Segments,
}

impl Slots {
    /// Reads those of a file of this machine, and takes the bytes from `budget`. A file without them, or that
    /// needs more, has none.
    pub(super) fn of(file: &File, wanted: &Wanted, budget: &mut u64) -> Self {
        let given = FILE_BYTES_MAX.min(*budget);
        let mut reader = Reader::new(file, given);
        let found = Self::read(&mut reader, wanted);
        *budget -= given - reader.left;
        found.unwrap_or_default()
    }
}

/// The kinds of relocations that say where implementations are stored: by the resolver's address, and by
/// name.
fn kinds(machine: Machine) -> Option<(u32, [u32; 3])> {
    match machine {
        Machine::X86_64 => Some((
            elf::R_X86_64_IRELATIVE,
            [elf::R_X86_64_JUMP_SLOT, elf::R_X86_64_GLOB_DAT, elf::R_X86_64_64],
        )),
        Machine::Aarch64 => Some((
            elf::R_AARCH64_IRELATIVE,
            [elf::R_AARCH64_JUMP_SLOT, elf::R_AARCH64_GLOB_DAT, elf::R_AARCH64_ABS64],
        )),
        _ => None,
    }
}

/// A table of symbols and its names.
type Symbols = (Vec<u8>, Vec<u8>);

impl Slots {
    fn read(reader: &mut Reader<'_>, wanted: &Wanted) -> Option<Self> {
        let head = reader.head()?;
        let kinds = kinds(head.machine)?;
        let sections = reader.sections(&head)?;
        let addresses = addresses(reader, &sections, kinds, wanted);
        Some(Self { addresses, segments: Segments::of_headers(&head.programs) })
    }
}

fn addresses(
    reader: &mut Reader<'_>,
    sections: &[SectionHeader64<LittleEndian>],
    (relative, named): (u32, [u32; 3]),
    wanted: &Wanted,
) -> Vec<u64> {
    let mut found = Vec::new();
    let mut symbols: HashMap<u32, Option<Symbols>> = HashMap::new();
    let is_table = |section: &&SectionHeader64<LittleEndian>| {
        section.sh_type(LittleEndian) == elf::SHT_RELA
            && section.sh_flags(LittleEndian) & u64::from(elf::SHF_ALLOC) != 0
    };
    for section in sections.iter().filter(is_table).take(TABLES_MAX) {
        let Some(bytes) = reader.section(section) else { continue };
        let Ok(relocations) = pod::slice_from_all_bytes::<Rela64<LittleEndian>>(&bytes) else { continue };
        let link = section.sh_link(LittleEndian);
        for relocation in relocations {
            let kind = relocation.r_type(LittleEndian, false);
            let is_meant = if kind == relative {
                wanted.resolvers.contains(&relocation.r_addend(LittleEndian).cast_unsigned())
            } else if named.contains(&kind) {
                let symbols = symbols.entry(link).or_insert_with(|| symbols_of(reader, sections, link));
                let symbol = relocation.r_sym(LittleEndian, false);
                symbols.as_ref().is_some_and(|symbols| is_named(symbols, symbol, &wanted.names))
            } else {
                false
            };
            if is_meant {
                if found.len() == SLOTS_MAX {
                    return found;
                }
                found.push(relocation.r_offset(LittleEndian));
            }
        }
    }
    found
}

fn symbols_of(
    reader: &mut Reader<'_>,
    sections: &[SectionHeader64<LittleEndian>],
    index: u32,
) -> Option<Symbols> {
    let table = sections.get(usize::try_from(index).ok()?)?;
    let is_symbols = matches!(table.sh_type(LittleEndian), elf::SHT_DYNSYM | elf::SHT_SYMTAB);
    let names = sections.get(usize::try_from(table.sh_link(LittleEndian)).ok()?)?;
    let is_names = names.sh_type(LittleEndian) == elf::SHT_STRTAB;
    (is_symbols && is_names).then_some(())?;
    Some((reader.section(table)?, reader.section(names)?))
}

/// Whether a symbol has one of these names, with any version. It takes no longer if the name has no end.
fn is_named((symbols, strings): &Symbols, index: u32, names: &BTreeSet<String>) -> bool {
    let symbol = || {
        let at = usize::try_from(index).ok()?.checked_mul(size_of::<Sym64<LittleEndian>>())?;
        let (symbol, _) = pod::from_bytes::<Sym64<LittleEndian>>(symbols.get(at..)?).ok()?;
        strings.get(usize::try_from(symbol.st_name(LittleEndian)).ok()?..)
    };
    symbol().is_some_and(|text| {
        names
            .iter()
            .any(|name| matches!(text.strip_prefix(name.as_bytes()).and_then(<[u8]>::first), Some(0 | b'@')))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::os::unix::fs::FileExt as _;

    use super::super::head::SEGMENTS_MAX;
    use super::*;

    /// A sparse file with this many tables of relocations, each of `size` bytes; the last entry of each is
    /// meant.
    fn sparse(tables: u16, size: u64) -> File {
        let file = tempfile::tempfile().unwrap();
        let mut head = [0; 64];
        head[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        let (machine, relative) = match Machine::HOST {
            Machine::Aarch64 => (elf::EM_AARCH64, elf::R_AARCH64_IRELATIVE),
            _ => (elf::EM_X86_64, elf::R_X86_64_IRELATIVE),
        };
        head[16] = 3;
        head[18..20].copy_from_slice(&machine.to_le_bytes());
        head[40] = 64;
        head[60..62].copy_from_slice(&tables.to_le_bytes());
        file.write_all_at(&head, 0).unwrap();
        for table in 0..u64::from(tables) {
            let offset = 1 << 20;
            let mut section = [0; 64];
            section[4..8].copy_from_slice(&elf::SHT_RELA.to_le_bytes());
            section[8..16].copy_from_slice(&u64::from(elf::SHF_ALLOC).to_le_bytes());
            section[24..32].copy_from_slice(&u64::to_le_bytes(offset));
            section[32..40].copy_from_slice(&size.to_le_bytes());
            file.write_all_at(&section, 64 + table * 64).unwrap();
            let relocation = [0x5000, u64::from(relative), 0x1000].map(u64::to_le_bytes).concat();
            file.write_all_at(&relocation, offset + size - 24).unwrap();
        }
        file
    }

    #[test]
    fn a_hostile_file_takes_no_more_than_its_budget() {
        let wanted = Wanted { resolvers: BTreeSet::from([0x1000]), names: BTreeSet::new() };
        let read = |tables, size, mut budget: u64| {
            let before = budget;
            let found = Slots::of(&sparse(tables, size), &wanted, &mut budget);
            (found.addresses.len(), before - budget)
        };
        let heads = |tables: u64| 64 + tables * 64;
        assert_eq!(read(2, 48, u64::MAX), (2, heads(2) + 96));
        // More tables than a binary has.
        assert_eq!(read(100, 24, u64::MAX), (TABLES_MAX, heads(100) + 24 * TABLES_MAX as u64));
        // Tables larger than what may be read.
        let half = FILE_BYTES_MAX / 48 * 24;
        assert_eq!(read(8, half, u64::MAX), (1, heads(8) + half));
        assert_eq!(read(8, FILE_BYTES_MAX + 8, u64::MAX), (0, heads(8)));
        // What all files may have is used up.
        assert_eq!(read(2, 48, heads(2) + 50), (1, heads(2) + 48));
        assert_eq!(read(2, 48, 63), (0, 0));
        let file = sparse(2, 48);
        file.write_all_at(&(SEGMENTS_MAX + 1).to_le_bytes(), 56).unwrap();
        assert_eq!(Slots::of(&file, &wanted, &mut { FILE_BYTES_MAX }).addresses, [0_u64; 0]);
    }

    #[test]
    fn names_end_at_their_version() {
        let names = BTreeSet::from(["cmp".to_owned()]);
        let mut symbol = [0; 24];
        symbol[0] = 1;
        for (strings, is) in [
            (&b"\0cmp\0"[..], true),
            (b"\0cmp@V\0", true),
            (b"\0cmp2\0", false),
            (b"\0cmp", false),
            (b"", false),
        ] {
            assert_eq!(is_named(&(symbol.to_vec(), strings.to_vec()), 0, &names), is, "{strings:?}");
            assert!(!is_named(&(symbol.to_vec(), strings.to_vec()), u32::MAX, &names));
        }
    }
}
