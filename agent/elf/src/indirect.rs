//! Functions that choose their implementation when a program starts (`STT_GNU_IFUNC`), as `memcmp` of glibc.
//!
//! Such a symbol is the address of a resolver. The dynamic linker, or the start of a static program, calls it
//! and stores the implementation's address where callers find it: in a slot of the same binary that has an
//! `IRELATIVE` relocation with the resolver's address, and in slots of other binaries whose relocations name
//! the symbol. The memory of a process shows both.
//!
//! Processes are not trusted, nor are their files: only an address that the resolver's code mentions is an
//! implementation, or at which a function begins where it mentions none that is found, because a probe
//! elsewhere would destroy an instruction. What is beyond a limit counts as not seen.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;

use kernel::proc;
use object::{Object as _, ObjectSection as _};
use rustix::fs::{Mode, OFlags, openat};

use super::file::{Bytes, Machine, Parsed, READ_MAX, Segments, with_binary};
use super::mapped::MappedFile;
use super::slots::{Slots, Wanted};
use super::symbols::{Function, Functions};
use super::{BinaryError, Identity, OpenBinary};

/// The longest resolver that is searched for addresses.
const RESOLVER_MAX: u64 = 4 << 10;
/// The most bytes of tables that are read of all files.
const BYTES_MAX: u64 = 4 << 30;
/// The most files whose slots are read, of all processes.
const ALL_FILES_MAX: usize = 16 << 10;
/// The most times that a slot is read, of all processes.
const READS_MAX: u64 = 4 << 20;
/// Functions begin at multiples of this where compilers choose.
const ALIGNMENT: u64 = 16;

/// The implementations of functions of one binary.
#[derive(Debug)]
pub struct Implementations {
    identity: Identity,
    segments: Segments,
    /// What procedure linkage tables take, which is no implementation: virtual addresses.
    linkage: Vec<Range<u64>>,
    /// What is meant in other binaries.
    wanted: Wanted,
    /// Slots of the binary itself.
    own: Slots,
    /// Those of other binaries.
    others: HashMap<Identity, Slots>,
    /// How much may still be read: bytes of files, and slots.
    bytes_left: u64,
    reads_left: u64,
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
        with_binary(binary, READ_MAX, |file, segments| {
            let begins = functions.all().iter().filter(|function| !function.indirect);
            let begins: BTreeSet<u64> = begins.map(|function| function.offset).collect();
            let mentioned: BTreeSet<u64> =
                chosen.iter().flat_map(|function| mentioned(file, segments, function, &begins)).collect();
            // A process could otherwise lead the probe to any function.
            let possible = if mentioned.is_empty() { begins } else { mentioned.clone() };
            let mut wanted = Wanted { resolvers, names };
            let mut bytes_left = BYTES_MAX;
            let own = Slots::of(&binary.reopen()?, &wanted, &mut bytes_left);
            // Addresses in other binaries are of something else.
            wanted.resolvers.clear();
            let linkage = file.sections().filter(|section| {
                section.name().is_ok_and(|name| name.starts_with(".plt") || name == ".iplt")
            });
            Ok(Self {
                identity: binary.identity(),
                segments: segments.clone(),
                wanted,
                bytes_left,
                reads_left: READS_MAX,
                linkage: linkage
                    .map(|section| section.address()..section.address().saturating_add(section.size()))
                    .collect(),
                own,
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
        let dir = proc::open_process(process)?;
        let (_, files) = MappedFile::below(dir.as_fd(), process)?;
        let Some(here) = files.iter().find(|file| file.identity == self.identity) else {
            return Ok(BTreeSet::new());
        };
        let Some(here_bias) = here.bias(&self.segments) else { return Ok(BTreeSet::new()) };
        let memory = openat(&dir, "mem", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let memory = File::from(memory);
        let mut found = BTreeSet::new();
        for file in &files {
            if file.identity != self.identity {
                self.read_slots(file);
            }
            let slots = if file.identity == self.identity {
                &self.own
            } else if let Some(slots) = self.others.get(&file.identity) {
                slots
            } else {
                continue;
            };
            if slots.addresses.is_empty() {
                continue;
            }
            let Some(bias) = file.bias(&slots.segments) else { continue };
            for slot in &slots.addresses {
                let address = bias.wrapping_add(*slot);
                // Another mapping's memory may wait for its owner.
                if !file.contains(address) {
                    continue;
                }
                let Some(left) = self.reads_left.checked_sub(1) else { return Ok(found) };
                self.reads_left = left;
                let mut word = [0; 8];
                if memory.read_exact_at(&mut word, address).is_ok() {
                    found.extend(self.implementation(here, here_bias, u64::from_le_bytes(word)));
                }
            }
        }
        Ok(found)
    }

    /// The offset of the implementation at an address of a process that has the binary there, with this bias.
    fn implementation(&self, here: &MappedFile, bias: u64, value: u64) -> Option<u64> {
        let index = here.code.partition_point(|code| code.end <= value);
        here.code.get(index).filter(|code| code.start <= value)?;
        let address = value.wrapping_sub(bias);
        if self.linkage.iter().any(|table| table.contains(&address)) {
            return None;
        }
        let offset = self.segments.code_offset(address)?;
        self.possible.contains(&offset).then_some(offset)
    }

    /// Reads the slots of another binary, once.
    fn read_slots(&mut self, file: &MappedFile) {
        if self.others.contains_key(&file.identity) || self.others.len() >= ALL_FILES_MAX {
            return;
        }
        let read = file.open().and_then(|binary| binary.reopen());
        // What cannot be read has no slots that are known.
        let slots = read.map(|read| Slots::of(&read, &self.wanted, &mut self.bytes_left));
        self.others.insert(file.identity, slots.unwrap_or_default());
    }
}

/// A symbol's name without its version.
fn bare(name: &str) -> &str {
    name.split_once('@').map_or(name, |(name, _)| name)
}

/// What the code of a resolver mentions of the binary's code: offsets in the file. Only where it can be told
/// from other numbers, on x86-64: `lea OFFSET(%rip),REGISTER` and, where addresses are fixed,
/// `mov $ADDRESS,REGISTER`.
fn mentioned(
    file: &Parsed<'_>,
    segments: &Segments,
    function: &Function,
    begins: &BTreeSet<u64>,
) -> Vec<u64> {
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
        .filter(|address| *address != function.address)
        .filter_map(|address| Some((address, segments.code_offset(address)?)))
        .filter(|(address, offset)| address.is_multiple_of(ALIGNMENT) || begins.contains(offset))
        .map(|(_, offset)| offset)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::fs;
    use std::io::{BufRead as _, BufReader};
    use std::path::Path;
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

    /// A program that waits, with a function that chooses: one of two, by its argument's environment.
    const SOURCE: &str = r#"
        #include <stdio.h>
        int first(int n) { return n + 1; }
        static int second(int n) { return n + 2; }
        static int (*choose(void))(int) { return 1 ? second : first; }
        int chosen(int n) __attribute__((ifunc("choose")));
        int main(void) { printf("%d\n", chosen(40)); fflush(stdout); return getchar(); }
    "#;

    /// As if the process had written a function into its slot that its resolver does not mention.
    const HOSTILE: &str = r#"
        #include <stdio.h>
        #define FAR __attribute__((used, noinline, aligned(16)))
        FAR static int third(int n) { return n + 2; }
        FAR static int second(int n) { return n + 3; }
        extern long distance __attribute__((visibility("hidden")));
        __asm__(".data\n.globl distance\ndistance: .quad third - second\n.text");
        static int (*choose(void))(int) { return (int (*)(int))((char *)second + distance); }
        int chosen(int n) __attribute__((ifunc("choose")));
        int main(void) { printf("%d\n", chosen(40)); fflush(stdout); return getchar(); }
    "#;

    const COMPARING: &str = r#"
        #include <stdio.h>
        #include <string.h>
        int main(int count, char **words) {
            printf("%d\n", memcmp(words[0], words[0], count));
            fflush(stdout);
            return getchar();
        }
    "#;

    fn implementations(code: &str, options: &[&str]) -> (BTreeSet<u64>, Functions) {
        let dir = tempfile::tempdir().unwrap();
        let (source, program) = (dir.path().join("p.c"), dir.path().join("p"));
        fs::write(&source, code).unwrap();
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
            let (here, functions) = implementations(SOURCE, options);
            let expected = functions.find("second").unwrap()[0].offset;
            assert_eq!(here, BTreeSet::from([expected]), "{options:?}");
        }
    }

    #[test]
    fn a_function_that_the_resolver_does_not_mention_is_none() {
        if Machine::HOST != Machine::X86_64 {
            return;
        }
        let (here, functions) = implementations(HOSTILE, &["-O1", "-fPIE", "-pie"]);
        assert_eq!(functions.find("third").unwrap().len(), 1);
        assert_eq!(here, BTreeSet::new());
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
        // A program that has called it: its slot shows the implementation.
        let dir = tempfile::tempdir().unwrap();
        let (source, program) = (dir.path().join("p.c"), dir.path().join("p"));
        fs::write(&source, COMPARING).unwrap();
        let built = Command::new("cc").args(["-O0", "-fno-builtin", "-o"]).args([&program, &source]).status();
        assert!(built.unwrap().success());
        let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "0\n");
        let here = found.of_process(child.id());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(here.len(), 1);
        assert!(here.is_subset(found.mentioned()));
    }
}
