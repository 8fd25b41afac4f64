//! The functions of a binary, by name.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use object::{
    Object as _, ObjectSection as _, ObjectSymbol as _, SectionFlags, SymbolFlags, SymbolSection, elf,
};

use super::elf::{Machine, Parsed, Segments, with_binary, with_elf};
use super::{BinaryError, debug_file};
use crate::input::{glob, nearest};

/// The table that a function was found in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SymbolTable {
    /// `.symtab` of the binary: all functions, unless it was stripped.
    Symtab,
    /// `.dynsym`: what the dynamic linker needs, which strip leaves.
    Dynsym,
    /// A separate debug file.
    DebugFile,
    /// The compressed `.gnu_debugdata`.
    MiniDebugInfo,
}

impl fmt::Display for SymbolTable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Symtab => ".symtab",
            Self::Dynsym => ".dynsym",
            Self::DebugFile => "debug file",
            Self::MiniDebugInfo => ".gnu_debugdata",
        })
    }
}

/// A function that a uprobe can be placed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// The name as the table has it, mangled where the language mangles.
    pub name: String,
    /// Its first byte's virtual address, as linked.
    pub address: u64,
    /// Its first byte's offset in the file, which is what the kernel wants.
    pub offset: u64,
    /// Its length in bytes; 0 where the table does not tell.
    pub size: u64,
    /// Where it was found.
    pub table: SymbolTable,
    /// Whether it is a resolver (`STT_GNU_IFUNC`), run once to choose the function that callers then reach.
    pub indirect: bool,
}

impl Function {
    /// The name as its language writes it, without a hash; the name itself where it is not mangled.
    pub fn demangled(&self) -> String {
        demangle(&self.name).unwrap_or_else(|| self.name.clone())
    }

    /// The same without the parameters that C++ names carry, and without a symbol's version.
    pub fn plain_name(&self) -> String {
        let name = self.demangled();
        let name = without_parameters(&name);
        name.split_once('@').map_or(name, |(name, _)| name).to_owned()
    }

    /// Whether it is the rarely run part of a function, which GCC puts elsewhere
    /// (`-freorder-blocks-and-partition`): jumped to from its middle and never called, so that nothing is
    /// known of its registers.
    pub fn is_cold_part(&self) -> bool {
        self.name.split('.').skip(1).any(|suffix| suffix == "cold")
    }

    /// Whether this is its name, and no pattern that matches it: mangled or not, with or without parameters.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || {
            let demangled = self.demangled();
            demangled == name || without_parameters(&demangled) == name
        }
    }
}

/// The functions of one binary.
#[derive(Debug, Clone)]
pub struct Functions {
    path: PathBuf,
    machine: Machine,
    entries: Vec<Function>,
    /// Names that are no functions of this file's code, and why: for errors.
    others: HashMap<String, NotCode>,
    debug_file: Option<PathBuf>,
    build_id: String,
    stripped: bool,
    /// Where in the file code is.
    code: Vec<Range<u64>>,
}

/// Why a symbol that exists is no place for a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotCode {
    /// It is data, or code in no executable section: the section's name.
    Section(String),
    /// Another library defines it.
    Undefined,
}

/// Why a name means no function.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// There is no such function.
    #[error("{} has no function {name}{}", path.display(), self::advice(*stripped, nearest))]
    NotFound {
        /// The binary.
        path: PathBuf,
        /// What was asked for.
        name: String,
        /// The names most like it, best first.
        nearest: Vec<String>,
        /// Whether the binary has no table but the dynamic linker's.
        stripped: bool,
    },
    /// The name is one of data.
    #[error("{name} of {} is in section {section}, which is not executable: it is not a function", path.display())]
    NotExecutable {
        /// The binary.
        path: PathBuf,
        /// The symbol.
        name: String,
        /// Its section.
        section: String,
    },
    /// A pattern that matches nothing.
    #[error(
        "no function of {} matches {pattern}{}; `tracer-agent list --symbols {}` shows all of them",
        path.display(), self::advice(*stripped, &[]), path.display()
    )]
    NoMatch {
        /// The binary.
        path: PathBuf,
        /// The pattern.
        pattern: String,
        /// Whether the binary has no table but the dynamic linker's.
        stripped: bool,
    },
    /// A place in the file where no code is.
    #[error("{offset:#x} is outside the code of {}, whose offsets in the file are {}", path.display(), ranges(code))]
    OutsideCode {
        /// The binary.
        path: PathBuf,
        /// What was asked for.
        offset: u64,
        /// Where there is code.
        code: Vec<Range<u64>>,
    },
    /// The binary only uses the function.
    #[error("{} only imports {name} from another library; probe the library that defines it (see ldd)", path.display())]
    Undefined {
        /// The binary.
        path: PathBuf,
        /// The symbol.
        name: String,
    },
}

fn ranges(code: &[Range<u64>]) -> String {
    let ranges: Vec<String> =
        code.iter().map(|code| format!("{:#x} to {:#x}", code.start, code.end)).collect();
    ranges.join(", ")
}

fn advice(stripped: bool, nearest: &[String]) -> String {
    let guess = match nearest.split_last() {
        None => String::new(),
        Some((only, [])) => format!("; did you mean {only}?"),
        Some((last, others)) => format!("; did you mean {} or {last}?", others.join(", ")),
    };
    let reason = if stripped {
        ". It was stripped of its symbols: install its debug file, or give the place as an offset into the file"
    } else {
        ""
    };
    guess + reason
}

impl Functions {
    /// Reads the functions of the binary at `path`, from all tables.
    pub fn of(path: &Path) -> Result<Self, BinaryError> {
        Self::below(Path::new("/"), path)
    }

    /// The same for a binary of another file system, such as a container's `/proc/PID/root`, where debug
    /// files are looked for, too. `path` begins with `root`.
    pub fn below(root: &Path, path: &Path) -> Result<Self, BinaryError> {
        with_binary(path, |file, segments| {
            let mut collector = Collector::new(segments);
            collector.take(file, file.symbols(), SymbolTable::Symtab);
            let stripped = collector.functions.is_empty();
            collector.take(file, file.dynamic_symbols(), SymbolTable::Dynsym);
            let mut debug_file = None;
            if stripped {
                debug_file = collector.take_debug_file(root, path, file);
                if let Some(unpacked) = debug_file::mini(file)
                    && let Ok(mini) = object::File::parse(unpacked.as_slice())
                {
                    collector.take(&mini, mini.symbols(), SymbolTable::MiniDebugInfo);
                }
            }
            let complete = collector.functions.iter().any(|function| function.table != SymbolTable::Dynsym);
            let machine = super::elf::machine_of(file);
            let Collector { functions, others, .. } = collector;
            let path = path.to_owned();
            let build_id = debug_file::hex(file.build_id().ok().flatten().unwrap_or_default());
            let (entries, stripped, code) = (functions, !complete, segments.code());
            Ok(Self { path, machine, entries, others, debug_file, build_id, stripped, code })
        })
    }

    /// The binary.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The processor it is for.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// The separate debug file that was used.
    pub fn debug_file(&self) -> Option<&Path> {
        self.debug_file.as_deref()
    }

    /// The binary's build id as hexadecimal digits; empty if it has none.
    pub fn build_id(&self) -> &str {
        &self.build_id
    }

    /// Whether only the dynamic linker's names are known.
    pub fn is_stripped(&self) -> bool {
        self.stripped
    }

    /// All functions, ordered by address, then name.
    pub fn all(&self) -> &[Function] {
        &self.entries
    }

    /// Whether a function begins at this offset of the file.
    pub fn begins_at(&self, offset: u64) -> bool {
        self.all().iter().any(|function| function.offset == offset)
    }

    /// The functions that a name or a pattern with `*`, `?` and `[]` means: as the table has it, or
    /// demangled, with or without the parameters that C++ names carry. Several functions may share a name;
    /// aliases of one place count once, under the plainest name that is meant (`open`, not `__open64`).
    /// Ordered by place.
    pub fn find(&self, name: &str) -> Result<Vec<&Function>, LookupError> {
        let found = |wanted: &dyn Fn(&Function) -> bool| -> Vec<&Function> {
            let mut found: Vec<_> = self.entries.iter().filter(|function| wanted(function)).collect();
            found.sort_by_cached_key(|function| {
                let underscores = function.name.bytes().take_while(|byte| *byte == b'_').count();
                (function.offset, underscores, function.name.len(), function.name.as_str())
            });
            found.dedup_by_key(|function| function.offset);
            found
        };
        // The name of the table is exact, and looking at it costs nothing.
        let exact = found(&|function| function.name == name);
        if !exact.is_empty() {
            return Ok(exact);
        }
        let matching = found(&|function| matches(name, function));
        if matching.is_empty() { Err(self.no(name)) } else { Ok(matching) }
    }

    /// Makes sure that there is code at an offset in the file.
    pub fn check_offset(&self, offset: u64) -> Result<(), LookupError> {
        if self.code.iter().any(|code| code.contains(&offset)) {
            return Ok(());
        }
        Err(LookupError::OutsideCode { path: self.path.clone(), offset, code: self.code.clone() })
    }

    fn no(&self, name: &str) -> LookupError {
        let (path, name) = (self.path.clone(), name.to_owned());
        match self.others.get(&name) {
            Some(NotCode::Section(section)) => {
                LookupError::NotExecutable { path, name, section: section.clone() }
            }
            Some(NotCode::Undefined) => LookupError::Undefined { path, name },
            None if name.contains(['*', '?', '[']) => {
                LookupError::NoMatch { path, pattern: name, stripped: self.stripped }
            }
            None => {
                let nearest =
                    nearest_names(&name, self.entries.iter().map(|function| function.name.as_str()));
                LookupError::NotFound { path, name, nearest, stripped: self.stripped }
            }
        }
    }
}

fn matches(pattern: &str, function: &Function) -> bool {
    if glob::matches(pattern, &function.name) {
        return true;
    }
    let Some(demangled) = demangle(&function.name) else { return false };
    glob::matches(pattern, &demangled) || glob::matches(pattern, without_parameters(&demangled))
}

/// `ns::function(int, char)` without its parameters. A name such as `operator()(int)` keeps its own
/// parentheses.
fn without_parameters(name: &str) -> &str {
    let name = name.strip_suffix(" const").unwrap_or(name);
    if !name.ends_with(')') {
        return name;
    }
    let mut depth = 0_u32;
    for (place, byte) in name.bytes().enumerate().rev() {
        match byte {
            b')' => depth += 1,
            b'(' if depth == 1 => return &name[..place],
            b'(' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    name
}

/// The name that a Rust or C++ compiler made a symbol of.
fn demangle(name: &str) -> Option<String> {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        // The alternate form leaves the hash out.
        return Some(format!("{rust:#}"));
    }
    if !name.starts_with("_Z") {
        return None;
    }
    // Its default limits keep hostile names from expanding without end.
    cpp_demangle::Symbol::new(name).ok()?.demangle().ok()
}

/// At most five of `names` that are most like `wanted`, best first.
pub(crate) fn nearest_names<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut scored: Vec<(usize, &str)> =
        names.filter_map(|name| Some((nearest::score(wanted, name)?, name))).collect();
    scored.sort_unstable();
    scored.dedup();
    let best = scored.first().map_or(0, |(best, _)| *best);
    scored
        .into_iter()
        .take_while(|(score, _)| *score <= best + 2)
        .take(5)
        .map(|(_, name)| name.to_owned())
        .collect()
}

struct Collector<'a> {
    segments: &'a Segments,
    functions: Vec<Function>,
    others: HashMap<String, NotCode>,
    seen: HashSet<(String, u64)>,
}

impl<'a> Collector<'a> {
    fn new(segments: &'a Segments) -> Self {
        Self { segments, functions: Vec::new(), others: HashMap::new(), seen: HashSet::new() }
    }

    fn take_debug_file(&mut self, root: &Path, path: &Path, file: &Parsed<'_>) -> Option<PathBuf> {
        let found = debug_file::separate(path, root, file)?;
        let before = self.functions.len();
        with_elf(&found, |debug| {
            self.take(debug, debug.symbols(), SymbolTable::DebugFile);
            Ok(())
        })
        // A debug file that cannot be read adds nothing; the binary's own names are still good.
        .ok()?;
        (self.functions.len() > before).then_some(found)
    }

    /// Takes the functions of a table of `file`. File offsets are those of the binary itself: the segments of
    /// a debug file have the same addresses and none of the contents.
    fn take<'data, R: object::ReadRef<'data>>(
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
            match self.place(file, &symbol) {
                Ok(offset) if matches!(kind, elf::STT_FUNC | elf::STT_GNU_IFUNC) => {
                    if self.seen.insert((name.to_owned(), offset)) {
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
    fn place<'data, R: object::ReadRef<'data>>(
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
