//! The functions of a binary, by name.

mod collect;
mod names;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use object::{Object as _, ObjectSection as _, ObjectSegment as _};

use self::collect::Collector;
pub use self::names::nearest_names;
use self::names::{demangle, without_parameters};
use super::{
    BinaryError, OpenBinary, debug_file,
    file::{Machine, Parsed, READ_MAX, with_binary},
};
use stdx::input::glob;

/// What the linker of Go says of a program (debug/buildinfo of its library).
const GO_SECTION: &str = ".go.buildinfo";
/// Others that binaries of Go have, also those of versions without [`GO_SECTION`], or that lack it.
const GO_SECTIONS: [&str; 3] = [".gopclntab", ".data.rel.ro.gopclntab", ".note.go.buildid"];
/// How it begins. The byte after next has flags.
const GO_MAGIC: &[u8] = b"\xff Go buildinf:";
const GO_FLAGS_AT: usize = 15;
/// The version of Go is in the section itself, as from Go 1.18 on; before, its address was.
const GO_INLINE: u8 = 2;

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
        self.fits(name) == Some(Fit::Name)
    }

    /// How a text means this function.
    fn fits(&self, wanted: &str) -> Option<Fit> {
        if self.name == wanted {
            return Some(Fit::Name);
        }
        let demangled = demangle(&self.name);
        let forms = demangled.as_deref().map(|name| [name, without_parameters(name)]);
        let mut forms = forms.iter().flatten();
        // Demangled names have brackets and asterisks of their own.
        if forms.clone().any(|name| *name == wanted) {
            return Some(Fit::Name);
        }
        let matches = glob::matches(wanted, &self.name) || forms.any(|name| glob::matches(wanted, name));
        matches.then_some(Fit::Pattern)
    }
}

/// How a text means a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    /// It is its name, mangled or not, with or without parameters.
    Name,
    /// It is a pattern that one of these matches.
    Pattern,
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
    go: Option<GoCode>,
    /// Where in the file code is.
    code: Vec<Range<u64>>,
}

/// Code of Go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoCode {
    /// Whether its functions return their results in registers, as from Go 1.17 on (ABIInternal; Go 1.18 is
    /// the first that can be told apart); else they are on the stack.
    pub returns_in_registers: bool,
}

impl GoCode {
    /// That of a binary, if it has any.
    fn of(file: &Parsed<'_>) -> Option<Self> {
        let len = GO_FLAGS_AT as u64 + 1;
        let of_section = |name| {
            let section = file.section_by_name(name)?;
            Some(section.data_range(section.address(), len).ok().flatten())
        };
        // Where there are no sections, it is at the beginning of the data (debug/buildinfo of Go).
        let of_data = || {
            let heads =
                file.segments().filter_map(|segment| segment.data_range(segment.address(), len).ok()?);
            heads.into_iter().find(|head| head.starts_with(GO_MAGIC)).map(Some)
        };
        let is_other = || GO_SECTIONS.iter().any(|name| file.section_by_name(name).is_some()).then_some(None);
        let head = of_section(GO_SECTION).or_else(of_data).or_else(is_other)?;
        let is_inline =
            head.is_some_and(|head| head.starts_with(GO_MAGIC) && head[GO_FLAGS_AT] & GO_INLINE != 0);
        Some(Self { returns_in_registers: is_inline })
    }
}

/// Why a symbol that exists cannot have a probe.
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
    /// An offset in the file where no code is.
    #[error("{offset:#x} is outside the code of {}, whose offsets in the file are {}", path.display(), ranges(code))]
    OutsideCode {
        /// The binary.
        path: PathBuf,
        /// What was asked for.
        offset: u64,
        /// Where there is code.
        code: Vec<Range<u64>>,
    },
    /// It is a function that chooses its implementation, and none is known to have been chosen.
    #[error(
        "{name} of {} chooses its implementation when a program starts (IFUNC), and no process of the recording shows \
         which{}", path.display(), choices(implementations, elsewhere)
    )]
    Indirect {
        /// The binary.
        path: PathBuf,
        /// The function.
        name: String,
        /// Its implementations, as far as they are known, by name or offset.
        implementations: Vec<String>,
        /// Those that processes outside of the recording have.
        elsewhere: Vec<String>,
    },
    /// An offset in a function that chooses its implementation.
    #[error(
        "{name} of {} chooses its implementation when a program starts (IFUNC), so that an offset in it has no meaning; \
         give the offset in the file", path.display()
    )]
    IndirectOffset {
        /// The binary.
        path: PathBuf,
        /// The function.
        name: String,
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

fn choices(implementations: &[String], elsewhere: &[String]) -> String {
    let one_of = match implementations {
        [] => "; give the implementation's offset in the file: PATH:0xOFFSET".to_owned(),
        names => format!("; probe one of its implementations: {}", names.join(", ")),
    };
    match elsewhere {
        [] => one_of,
        names => format!("{one_of}. Processes outside of the recording have {}", names.join(", ")),
    }
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
        ". It was stripped of its symbols: install its debug file, or give an offset in the file"
    } else {
        ""
    };
    guess + reason
}

impl Functions {
    /// Reads the functions of the binary at `path`, from all tables.
    pub fn of(path: &Path) -> Result<Self, BinaryError> {
        Self::of_binary(&OpenBinary::open(path)?)
    }

    /// The same for a binary of another file system, such as a container's `/proc/PID/root`, where debug
    /// files are looked for, too. `path` begins with `root`.
    pub fn below(root: &Path, path: &Path) -> Result<Self, BinaryError> {
        Self::of_binary(&OpenBinary::below(root, path.strip_prefix(root).unwrap_or(path))?)
    }

    /// The same for a binary that is open.
    pub fn of_binary(binary: &OpenBinary) -> Result<Self, BinaryError> {
        with_binary(binary, READ_MAX, |file, segments| {
            let mut collector = Collector::new(segments);
            collector.take(file, file.symbols(), SymbolTable::Symtab);
            let stripped = collector.functions.is_empty();
            collector.take(file, file.dynamic_symbols(), SymbolTable::Dynsym);
            let mut debug_file = None;
            if stripped {
                debug_file = collector.take_debug_file(binary, file);
                if let Some(unpacked) = debug_file::mini(file)
                    && let Ok(mini) = object::File::parse(unpacked.as_slice())
                {
                    collector.take(&mini, mini.symbols(), SymbolTable::MiniDebugInfo);
                }
            }
            let complete = collector.functions.iter().any(|function| function.table != SymbolTable::Dynsym);
            let machine = super::file::machine_of(file);
            let Collector { functions, others, .. } = collector;
            let path = binary.path().to_owned();
            let build_id = debug_file::hex(file.build_id().ok().flatten().unwrap_or_default());
            let (entries, stripped, code) = (functions, !complete, segments.code());
            let go = GoCode::of(file);
            Ok(Self { path, machine, entries, others, debug_file, build_id, stripped, go, code })
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

    /// Its code of Go, whose stacks move.
    pub fn go(&self) -> Option<GoCode> {
        self.go
    }

    /// All functions, ordered by address, then name.
    pub fn all(&self) -> &[Function] {
        &self.entries
    }

    /// The offsets in the file at which functions begin that are called, so that the address they return to
    /// is at the stack pointer. Cold parts are jumped to, and the kernel starts a program at `_start`.
    pub fn entries(&self) -> HashSet<u64> {
        let is_called = |function: &&Function| !function.is_cold_part() && function.name != "_start";
        let mut offsets: HashSet<u64> =
            self.all().iter().filter(is_called).map(|function| function.offset).collect();
        for other in self.all().iter().filter(|function| !is_called(function)) {
            offsets.remove(&other.offset);
        }
        offsets
    }

    /// The functions that a name or a pattern with `*`, `?` and `[]` means: as the table has it, or
    /// demangled, with or without the parameters that C++ names carry. Several functions may share a name;
    /// aliases of one offset count once, under the plainest name that is meant (`open`, not `__open64`).
    /// Ordered by offset.
    pub fn find(&self, name: &str) -> Result<Vec<&Function>, LookupError> {
        // The name of the table is exact, and looking at it costs nothing.
        let exact: Vec<_> = self.entries.iter().filter(|function| function.name == name).collect();
        if !exact.is_empty() {
            return Ok(by_offset(exact));
        }
        let fit = |function| Some((function, Function::fits(function, name)?));
        let mut fitting: Vec<(&Function, Fit)> = self.entries.iter().filter_map(fit).collect();
        let is_name = fitting.iter().any(|(_, fit)| *fit == Fit::Name);
        fitting.retain(|(_, fit)| !is_name || *fit == Fit::Name);
        if fitting.is_empty() {
            return Err(self.no(name));
        }
        Ok(by_offset(fitting.into_iter().map(|(function, _)| function).collect()))
    }

    /// The name of the function that begins at an offset in the file, or the offset.
    pub fn name_at(&self, offset: u64) -> String {
        let here = self.entries.iter().filter(|function| function.offset == offset).collect();
        by_offset(here).first().map_or_else(|| format!("{offset:#x}"), |function| function.name.clone())
    }

    /// Whether there is code from an offset in the file on, so many bytes long.
    pub(super) fn is_code(&self, offset: u64, len: u64) -> bool {
        let end = offset.checked_add(len);
        self.code.iter().any(|code| code.contains(&offset) && end.is_some_and(|end| end <= code.end))
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

/// One function of each offset, under its plainest name.
fn by_offset(mut functions: Vec<&Function>) -> Vec<&Function> {
    functions.sort_by_cached_key(|function| {
        let underscores = function.name.bytes().take_while(|byte| *byte == b'_').count();
        (function.offset, underscores, function.name.len(), function.name.as_str())
    });
    functions.dedup_by_key(|function| function.offset);
    functions
}
