//! Functions that choose their implementation when a program starts (`STT_GNU_IFUNC`), as `memcmp` of glibc.
//!
//! Such a symbol is the address of a resolver. The dynamic linker, or the start of a static program, calls it
//! and stores the implementation's address where callers find it: in a slot of the same binary that has an
//! `IRELATIVE` relocation with the resolver's address, and in slots of other binaries whose relocations name
//! the symbol. The memory of a process shows both.
//!
//! Processes are not trusted: only an address that the resolver's code mentions, or at which a function
//! begins, is an implementation, because a probe elsewhere would destroy an instruction.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use object::elf;
use object::read::elf::{Rela as _, SectionHeader as _};
use object::{Object as _, ObjectSection as _, SymbolIndex};

use super::file::{Bytes, Machine, Parsed, Segments, with_binary};
use super::open::Identity;
use super::symbols::{Function, Functions};
use super::{BinaryError, OpenBinary};

/// The longest resolver that is searched for addresses.
const RESOLVER_MAX: u64 = 4 << 10;
/// The most bytes of one table of relocations: some three million.
const RELOCATIONS_MAX: u64 = 64 << 20;
/// The most slots that are read of a file: a binary has one or two for a function.
const SLOTS_MAX: usize = 4096;
/// The most files of a process.
const FILES_MAX: usize = 1024;
/// The most bytes of the list of a process's mappings.
const MAPS_MAX: u64 = 16 << 20;
/// Functions begin at multiples of this where compilers choose.
const ALIGNMENT: u64 = 16;

/// The implementations of functions of one binary.
#[derive(Debug)]
pub struct Implementations {
    identity: Identity,
    segments: Segments,
    /// What procedure linkage tables take, which is no implementation: virtual addresses.
    linkage: Vec<std::ops::Range<u64>>,
    /// The functions' names, without versions.
    names: BTreeSet<String>,
    /// Slots of the binary itself: virtual addresses.
    own: Vec<u64>,
    /// The slots of other binaries, and their segments.
    others: HashMap<Identity, (Vec<u64>, Segments)>,
    /// Where implementations may begin: offsets in the file.
    possible: BTreeSet<u64>,
    /// What the resolvers mention.
    mentioned: BTreeSet<u64>,
}

impl Implementations {
    /// Those of `chosen`, which are functions of `binary`.
    ///
    /// # Errors
    /// The binary cannot be read.
    pub fn of(binary: &OpenBinary, functions: &Functions, chosen: &[&Function]) -> Result<Self, BinaryError> {
        let names: BTreeSet<String> = chosen.iter().map(|function| bare(&function.name).to_owned()).collect();
        let resolvers: BTreeSet<u64> = chosen.iter().map(|function| function.address).collect();
        with_binary(binary, |file, segments| {
            let mentioned: BTreeSet<u64> =
                chosen.iter().flat_map(|function| mentioned(file, segments, function)).collect();
            let begins = functions.all().iter().filter(|function| !function.indirect);
            let possible = begins.map(|function| function.offset).chain(mentioned.iter().copied()).collect();
            let linkage = file.sections().filter(|section| {
                section.name().is_ok_and(|name| name.starts_with(".plt") || name == ".iplt")
            });
            Ok(Self {
                identity: binary.identity(),
                segments: segments.clone(),
                linkage: linkage
                    .map(|section| section.address()..section.address().saturating_add(section.size()))
                    .collect(),
                own: slots(file, &resolvers, &names),
                names,
                others: HashMap::new(),
                possible,
                mentioned,
            })
        })
    }

    /// The offsets in the file of all implementations that the resolvers mention.
    pub fn mentioned(&self) -> &BTreeSet<u64> {
        &self.mentioned
    }

    /// The offsets in the file of those that a process has; empty if it does not have the binary, or does not
    /// show it.
    pub fn of_process(&mut self, process: u32) -> BTreeSet<u64> {
        self.read_process(process).unwrap_or_default()
    }

    fn read_process(&mut self, process: u32) -> io::Result<BTreeSet<u64>> {
        let files = mapped_files(process)?;
        let Some(here) = files.iter().find(|file| file.identity == self.identity) else {
            return Ok(BTreeSet::new());
        };
        let memory = File::open(format!("/proc/{process}/mem"))?;
        let mut found = BTreeSet::new();
        for file in &files {
            if file.identity != self.identity {
                self.read_slots(file);
            }
            let (slots, segments) = match self.others.get(&file.identity) {
                Some((slots, segments)) => (slots, segments),
                None => (&self.own, &self.segments),
            };
            let Some(bias) = file.bias(segments) else { continue };
            for slot in slots {
                let mut word = [0; 8];
                if memory.read_exact_at(&mut word, bias.wrapping_add(*slot)).is_ok() {
                    found.extend(self.implementation(here, u64::from_le_bytes(word)));
                }
            }
        }
        Ok(found)
    }

    /// The offset of the implementation at an address of a process that has the binary there.
    fn implementation(&self, here: &MappedFile, value: u64) -> Option<u64> {
        here.code.iter().find(|code| (code.start..code.end).contains(&value))?;
        let address = value.wrapping_sub(here.bias(&self.segments)?);
        if self.linkage.iter().any(|table| table.contains(&address)) {
            return None;
        }
        let offset = self.segments.code_offset(address)?;
        self.possible.contains(&offset).then_some(offset)
    }

    /// Reads the slots of another binary, once.
    fn read_slots(&mut self, file: &MappedFile) {
        if self.others.contains_key(&file.identity) {
            return;
        }
        let names = &self.names;
        let read = OpenBinary::open(&file.path).and_then(|binary| {
            with_binary(&binary, |parsed, segments| {
                Ok((slots(parsed, &BTreeSet::new(), names), segments.clone()))
            })
        });
        // What cannot be read has no slots that are known.
        self.others.insert(file.identity, read.unwrap_or_default());
    }
}

/// A symbol's name without its version.
fn bare(name: &str) -> &str {
    name.split_once('@').map_or(name, |(name, _)| name)
}

/// What the code of a resolver mentions of the binary's code: offsets in the file. Only where it can be told
/// from other numbers, on x86-64: `lea OFFSET(%rip),REGISTER` and, where addresses are fixed,
/// `mov $ADDRESS,REGISTER`.
fn mentioned(file: &Parsed<'_>, segments: &Segments, function: &Function) -> Vec<u64> {
    if super::file::machine_of(file) != Machine::X86_64 {
        return Vec::new();
    }
    let size = function.size.min(RESOLVER_MAX);
    let of_section = |section: object::Section<'_, '_, &Bytes>| {
        section.data_range(function.address, size).ok().flatten().map(<[u8]>::to_vec)
    };
    let Some(code) = file.sections().find_map(of_section) else { return Vec::new() };
    let is_fixed = file.kind() == object::ObjectKind::Executable;
    addresses(&code, function.address, is_fixed)
        .into_iter()
        .filter(|address| address.is_multiple_of(ALIGNMENT) && *address != function.address)
        .filter_map(|address| segments.code_offset(address))
        .collect()
}

/// The addresses that instructions load into registers, in code that is at `start`.
fn addresses(code: &[u8], start: u64, is_fixed: bool) -> Vec<u64> {
    let mut found = Vec::new();
    for at in 0..code.len() {
        let operand = |skip: usize| {
            let bytes: [u8; 4] = code.get(at + skip..at + skip + 4)?.try_into().ok()?;
            Some(i32::from_le_bytes(bytes))
        };
        match code.get(at..at + 3) {
            // REX.W, the opcode, and a ModR/M byte of RIP with a displacement.
            Some([0x48 | 0x4c, 0x8d, modrm]) if modrm & 0xc7 == 0x05 => {
                let next = start.wrapping_add(at as u64 + 7);
                found.extend(operand(3).map(|distance| next.wrapping_add_signed(distance.into())));
            }
            Some([0x48, 0xc7, 0xc0..=0xc7]) if is_fixed => {
                found.extend(operand(3).and_then(|address| u64::try_from(address).ok()));
            }
            Some([0xb8..=0xbf, ..]) if is_fixed => {
                found.extend(operand(1).and_then(|address| u64::try_from(address).ok()));
            }
            _ => {}
        }
    }
    found
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

/// Where the implementations of functions are stored in memory: virtual addresses.
fn slots(file: &Parsed<'_>, resolvers: &BTreeSet<u64>, names: &BTreeSet<String>) -> Vec<u64> {
    let (object::File::Elf64(parsed), Some((relative, named))) = (file, kinds(super::file::machine_of(file)))
    else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for section in parsed.elf_section_table().iter() {
        let endian = parsed.endian();
        let is_small = section.sh_size(endian) <= RELOCATIONS_MAX;
        let is_loaded = section.sh_flags(endian) & u64::from(elf::SHF_ALLOC) != 0;
        if !is_small || !is_loaded {
            continue;
        }
        let Ok(Some((relocations, table))) = section.rela(endian, parsed.data()) else { continue };
        let symbols = parsed.elf_section_table().symbol_table_by_index(endian, parsed.data(), table).ok();
        let is_named = |symbol: u32| {
            symbols.as_ref().is_some_and(|symbols| {
                let symbol = symbols.symbol(SymbolIndex(symbol as usize));
                let name = symbol.and_then(|symbol| symbols.symbol_name(endian, symbol));
                name.is_ok_and(|name| std::str::from_utf8(name).is_ok_and(|name| names.contains(bare(name))))
            })
        };
        for relocation in relocations {
            let kind = relocation.r_type(endian, false);
            let is_meant = if kind == relative {
                resolvers.contains(&relocation.r_addend(endian).cast_unsigned())
            } else {
                named.contains(&kind) && is_named(relocation.r_sym(endian, false))
            };
            if is_meant && found.len() < SLOTS_MAX {
                found.push(relocation.r_offset(endian));
            }
        }
    }
    found
}

/// A part of a file that a process has mapped as code.
#[derive(Debug)]
struct Code {
    start: u64,
    end: u64,
    /// Where it begins in the file.
    offset: u64,
}

/// A file whose code a process has mapped.
#[derive(Debug)]
struct MappedFile {
    identity: Identity,
    /// A path that leads to it, whatever is at its name by now.
    path: PathBuf,
    code: Vec<Code>,
}

impl MappedFile {
    /// What is added to the file's virtual addresses in this process.
    fn bias(&self, segments: &Segments) -> Option<u64> {
        self.code.iter().find_map(|code| segments.bias(code.start, code.offset))
    }
}

/// The files whose code a process has mapped, each once.
fn mapped_files(process: u32) -> io::Result<Vec<MappedFile>> {
    let mut text = Vec::new();
    File::open(format!("/proc/{process}/maps"))?.take(MAPS_MAX).read_to_end(&mut text)?;
    let mut files: Vec<MappedFile> = Vec::new();
    let mut of_line: HashMap<(String, String), Option<usize>> = HashMap::new();
    for line in text.split(|&byte| byte == b'\n') {
        let Some(mapping) = Mapping::parse(line) else { continue };
        let Mapping { range, offset, device, inode, path } = mapping;
        let index = *of_line.entry((device.to_owned(), inode.to_owned())).or_insert_with(|| {
            let link = PathBuf::from(format!("/proc/{process}/map_files/{range}"));
            let inside = || Path::new(&format!("/proc/{process}/root")).join(path.trim_start_matches('/'));
            // The links need more rights than the list.
            let found = [link, inside()].into_iter().find_map(|path| {
                let found = fs::metadata(&path).ok()?;
                Some((path, (found.dev(), found.ino())))
            });
            let (path, identity) = found.filter(|_| files.len() < FILES_MAX)?;
            files.push(MappedFile { identity, path, code: Vec::new() });
            Some(files.len() - 1)
        });
        if let Some(file) = index.and_then(|index| files.get_mut(index))
            && let Some((start, end)) = ends(range)
        {
            file.code.push(Code { start, end, offset });
        }
    }
    Ok(files)
}

fn ends(range: &str) -> Option<(u64, u64)> {
    let (start, end) = range.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

/// A line of `/proc/PID/maps`: of code, in a file.
struct Mapping<'a> {
    range: &'a str,
    offset: u64,
    device: &'a str,
    inode: &'a str,
    path: &'a str,
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        // Names of files are at the end, of any bytes: other mappings are found without them.
        let text = match std::str::from_utf8(line) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(line.get(..error.valid_up_to())?).ok()?,
        };
        let mut words = text.splitn(6, ' ');
        let (range, flags) = (words.next()?, words.next()?);
        let offset = u64::from_str_radix(words.next()?, 16).ok()?;
        let (device, inode) = (words.next()?, words.next()?);
        let path = words.next()?.trim_start();
        (flags.contains('x') && inode != "0").then_some(Self { range, offset, device, inode, path })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn addresses_are_those_that_instructions_load() {
        // lea 0x10(%rip),%rcx; lea -0x10(%rip),%r9; mov $0x401000,%eax; mov $0x402000,%rdx
        let code = [
            0x48, 0x8d, 0x0d, 0x10, 0, 0, 0, 0x4c, 0x8d, 0x0d, 0xf0, 0xff, 0xff, 0xff, 0xb8, 0, 0x10, 0x40,
            0, 0x48, 0xc7, 0xc2, 0, 0x20, 0x40, 0, 0x48, 0x8d,
        ];
        let relative = [0x1000 + 7 + 0x10, 0x1000 + 14 - 0x10];
        assert_eq!(addresses(&code, 0x1000, false), relative);
        assert_eq!(addresses(&code, 0x1000, true), [&relative[..], &[0x40_1000, 0x40_2000]].concat());
        for len in 0..code.len() {
            addresses(&code[..len], u64::MAX, true);
        }
    }

    #[test]
    fn lines_of_maps_are_read() {
        let parse = |line: &'static str| {
            Mapping::parse(line.as_bytes())
                .map(|found| (found.range, found.offset, found.device, found.inode, found.path))
        };
        assert_eq!(
            parse("7f00-7f10 r-xp 00002000 08:01 1234    /lib/a b (deleted)"),
            Some(("7f00-7f10", 0x2000, "08:01", "1234", "/lib/a b (deleted)"))
        );
        for line in ["", "7f00", "7f00-7f10 rw-p 0 08:01 1234 /lib/a", "7f00-7f10 r-xp 0 00:00 0  [vdso]"] {
            assert_eq!(parse(line), None, "{line}");
        }
        let damaged = Mapping::parse(b"7f00-7f10 r-xp 0 08:01 1234 /lib/\xff").unwrap();
        assert_eq!(damaged.path, "/lib/");
    }

    /// A program that waits, with a function that chooses: one of two, by its argument's environment.
    const SOURCE: &str = r#"
        #include <stdio.h>
        int first(int n) { return n + 1; }
        static int second(int n) { return n + 2; }
        static int (*choose(void))(int) { return 1 ? second : first; }
        int chosen(int n) __attribute__((ifunc("choose")));
        int main(void) { printf("%d\n", chosen(40)); fflush(stdout); return getchar(); }
    "#;

    fn implementations(options: &[&str]) -> (BTreeSet<u64>, Functions) {
        let dir = tempfile::tempdir().unwrap();
        let (source, program) = (dir.path().join("p.c"), dir.path().join("p"));
        fs::write(&source, SOURCE).unwrap();
        let built = Command::new("cc").args(options).arg("-o").args([&program, &source]).status().unwrap();
        assert!(built.success());
        let binary = OpenBinary::open(&program).unwrap();
        let functions = Functions::of_binary(&binary).unwrap();
        let chosen = functions.find("chosen").unwrap();
        assert!(chosen.iter().all(|function| function.indirect));
        let mut found = Implementations::of(&binary, &functions, &chosen).unwrap();
        let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "42\n");
        let here = found.of_process(child.id());
        assert_eq!(found.of_process(std::process::id()), BTreeSet::new());
        drop(child.stdin.take());
        child.wait().unwrap();
        (here, functions)
    }

    #[test]
    fn a_process_shows_the_implementation_that_was_chosen() {
        for options in [
            &["-O1", "-fPIE", "-pie"][..],
            &["-O1", "-fno-pie", "-no-pie"],
            &["-O0", "-static"],
            &["-O1", "-fPIE", "-pie", "-Wl,-z,now"],
        ] {
            let (here, functions) = implementations(options);
            let expected = functions.find("second").unwrap()[0].offset;
            assert_eq!(here, BTreeSet::from([expected]), "{options:?}");
        }
    }

    #[test]
    fn resolvers_of_the_c_library_mention_implementations() {
        let libc = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
        if !libc.exists() {
            return;
        }
        let binary = OpenBinary::open(libc).unwrap();
        let functions = Functions::of_binary(&binary).unwrap();
        let chosen = functions.find("memcmp").unwrap();
        let mut found = Implementations::of(&binary, &functions, &chosen).unwrap();
        assert!(found.mentioned().len() > 1);
        // A program that calls it: its slot shows the implementation.
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let here = loop {
            let here = found.of_process(child.id());
            if !here.is_empty() || child.try_wait().unwrap().is_some() {
                break here;
            }
        };
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(here.len(), 1);
        assert!(here.is_subset(found.mentioned()));
    }
}
