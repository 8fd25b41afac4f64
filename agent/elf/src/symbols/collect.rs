//! The functions of symbol tables, put together.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;

use object::{
    Object as _, ObjectSection as _, ObjectSymbol as _, SectionFlags, SymbolFlags, SymbolSection, elf,
};

use super::super::file::{Parsed, READ_MAX, Segments, with_elf};
use super::super::{OpenBinary, debug_file};
use super::{Function, NotCode, SymbolTable};

pub(super) struct Collector<'a> {
    segments: &'a Segments,
    pub(super) functions: Vec<Function>,
    pub(super) others: HashMap<String, NotCode>,
    /// Names as hashes with a key of their own: they are only compared.
    seen: HashSet<(u64, u64)>,
    hasher: RandomState,
    /// Bytes that names may still take.
    left: usize,
}

/// Bytes that the names of a binary's symbols may take. They can overlap in the file, so that its size is no
/// bound; those of a browser with debug information take some 200 MB.
const NAMES_MAX: usize = 512 << 20;

impl<'a> Collector<'a> {
    pub(super) fn new(segments: &'a Segments) -> Self {
        Self {
            segments,
            functions: Vec::new(),
            others: HashMap::new(),
            seen: HashSet::new(),
            hasher: RandomState::new(),
            left: NAMES_MAX,
        }
    }

    pub(super) fn take_debug_file(&mut self, binary: &OpenBinary, file: &Parsed<'_>) -> Option<PathBuf> {
        let found = debug_file::separate(binary, file)?;
        let before = self.functions.len();
        with_elf((found.file, READ_MAX), &found.path, |debug| {
            self.take(debug, debug.symbols(), SymbolTable::DebugFile);
            Ok(())
        })
        // A debug file that cannot be read adds nothing; the binary's own names are still good.
        .ok()?;
        (self.functions.len() > before).then_some(found.path)
    }

    /// Takes the functions of a table of `file`. File offsets are those of the binary itself: the segments of
    /// a debug file have the same addresses and none of the contents.
    pub(super) fn take<'data, R: object::ReadRef<'data>>(
        &mut self,
        file: &object::File<'data, R>,
        symbols: object::SymbolIterator<'data, '_, R>,
        table: SymbolTable,
    ) {
        for symbol in symbols {
            let SymbolFlags::Elf { st_info, .. } = symbol.flags() else { continue };
            let kind = st_info & 0xf;
            let Ok(name) = symbol.name() else { continue };
            if name.is_empty() || matches!(kind, elf::STT_SECTION | elf::STT_FILE | elf::STT_TLS) {
                continue;
            }
            // A symbol itself takes some, however short its name.
            let Some(left) = self.left.checked_sub(name.len() + size_of::<Function>()) else { break };
            self.left = left;
            match self.code_offset(file, &symbol) {
                Ok(offset) if matches!(kind, elf::STT_FUNC | elf::STT_GNU_IFUNC) => {
                    if self.seen.insert((self.hasher.hash_one(name), offset)) {
                        self.functions.push(Function {
                            name: name.to_owned(),
                            address: symbol.address(),
                            offset,
                            size: symbol.size(),
                            table,
                            indirect: kind == elf::STT_GNU_IFUNC,
                        });
                    }
                }
                // A label of hand-written code: no function, and no data either.
                Ok(_) => {}
                Err(reason) => {
                    self.others.entry(name.to_owned()).or_insert(reason);
                }
            }
        }
        self.functions.sort_by(|a, b| (a.address, &a.name).cmp(&(b.address, &b.name)));
    }

    /// The file offset of a symbol of code.
    fn code_offset<'data, R: object::ReadRef<'data>>(
        &self,
        file: &object::File<'data, R>,
        symbol: &object::Symbol<'data, '_, R>,
    ) -> Result<u64, NotCode> {
        let SymbolSection::Section(index) = symbol.section() else { return Err(NotCode::Undefined) };
        let section = file.section_by_index(index);
        let executable = section.as_ref().is_ok_and(|section| match section.flags() {
            SectionFlags::Elf { sh_flags } => sh_flags & u64::from(elf::SHF_EXECINSTR) != 0,
            _ => false,
        });
        let name = || {
            let name = section.as_ref().ok().and_then(|section| section.name().ok()).unwrap_or("?");
            NotCode::Section(name.to_owned())
        };
        if !executable {
            return Err(name());
        }
        self.segments.code_offset(symbol.address()).ok_or_else(name)
    }
}
