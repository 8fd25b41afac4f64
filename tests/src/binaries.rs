//! User-space programs for probes, compiled by the machine's own compiler, and what binutils says of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::harness::{program, run};

/// Functions, data, aliases, names as C++ and Rust mangle them, and markers with every kind of argument.
const SOURCE: &str = r#"
#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>

__extension__ unsigned short tests_guarded_semaphore __attribute__((unused, section(".probes")));
__extension__ unsigned short tests_plain_semaphore __attribute__((unused, section(".probes")));

int table[4] = {1, 2, 3, 4};
int cleared[64];

__attribute__((noinline)) int work(int depth, const char *text, long far)
{
    STAP_PROBE3(tests, plain, depth, text, far);
    if (tests_guarded_semaphore)
        STAP_PROBE4(tests, guarded, 7, (unsigned char)depth, table[depth & 3], -far);
    return depth + table[depth & 3];
}

int alias(int, const char *, long) __attribute__((alias("work")));
__attribute__((noinline)) int member(int a) __asm__("_ZN5outer5inner6memberEi");
int member(int a) { return a * 3; }
__attribute__((noinline)) int mangled(int a) __asm__("_ZN4test5rusty17h0123456789abcdefE");
int mangled(int a) { return a * 5; }
static __attribute__((noinline)) int hidden(int a) { STAP_PROBE(tests, plain); return a * 7; }

int entry(int count)
{
    return work(count, "text", count) + member(count) + mangled(count) + hidden(count) + alias(1, "", 2) + cleared[count & 63];
}

#ifndef LIBRARY
int main(int argc, char **argv) { (void)argv; return entry(argc) == 0; }
#endif
"#;

/// Ways in which a binary can be linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// Position independent, as distributions link programs.
    Pie,
    /// At a fixed address.
    Fixed,
    /// A shared library.
    Library,
}

/// Compiles the test program in `dir`.
#[track_caller]
pub fn compile(dir: &Path, name: &str, link: Link) -> PathBuf {
    let source = dir.join("program.c");
    std::fs::write(&source, SOURCE).unwrap();
    let flags: &[&str] = match link {
        Link::Pie => &["-fPIE", "-pie"],
        Link::Fixed => &["-fno-pie", "-no-pie"],
        Link::Library => &["-fPIC", "-shared", "-DLIBRARY"],
    };
    tool(dir, "cc", &[&["-O2", "-g", "-Wl,--build-id", "-o", name, "program.c"], flags].concat());
    dir.join(name)
}

/// Runs a program of binutils or the compiler and gives what it prints.
#[track_caller]
pub fn tool(dir: &Path, name: &str, args: &[&str]) -> String {
    run(&mut program(dir, name, args)).expect(0).out
}

/// The functions that `nm` names: address by name.
#[track_caller]
pub fn nm(dir: &Path, args: &[&str]) -> BTreeMap<String, u64> {
    let mut functions = BTreeMap::new();
    for line in tool(dir, "nm", args).lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [address, "t" | "T" | "W" | "i", name] = words[..] {
            let name = name.split('@').next().unwrap();
            functions.insert(name.to_owned(), u64::from_str_radix(address, 16).unwrap());
        }
    }
    functions
}

/// The bytes of a function as `objdump` disassembles them.
#[track_caller]
pub fn code_of(dir: &Path, binary: &str, function: &str) -> Vec<u8> {
    let listing =
        tool(dir, "objdump", &["-d", "-z", "--insn-width=16", &format!("--disassemble={function}"), binary]);
    let mut code = Vec::new();
    for line in listing.lines() {
        let mut columns = line.split('\t');
        let (Some(address), Some(bytes)) = (columns.next(), columns.next()) else { continue };
        if address.trim().ends_with(':') {
            code.extend(bytes.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()));
        }
    }
    code
}
