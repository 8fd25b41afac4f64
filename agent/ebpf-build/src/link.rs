//! From the static library to the object, with LLVM's own programs.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::toolchain::Toolchain;
use crate::{Error, LIBRARY};

/// What makes one program of all bitcode. A call that is rarely reached is inlined like any other: many
/// accessors of aya return more than the 64 bits that a BPF function can.
pub(crate) const OPT: [&str; 3] =
    ["-passes=internalize,globaldce,default<O3>", "-cold-callsite-rel-freq=0", "-mcpu=v3"];

/// What makes the object.
pub(crate) const LLC: [&str; 3] = ["-march=bpfel", "-mcpu=v3", "-filetype=obj"];

/// Links a library into an object, which appears whole or not at all.
pub(crate) fn link(toolchain: &Toolchain, library: &Path, object: &Path) -> Result<(), Error> {
    let step = |name: &str| object.with_extension(name);
    let (symbols, linked, optimised, unfinished) =
        (step("symbols"), step("linked.bc"), step("optimised.bc"), step("unfinished"));

    let mut nm = Command::new(toolchain.tools.join("llvm-nm"));
    nm.args(["--defined-only", "--extern-only", "--print-file-name", "--format=posix"]).arg(library);
    let list = exported(&run(&mut nm)?);
    if list.is_empty() {
        return Err(Error::NoPrograms(library.to_owned()));
    }
    fs::write(&symbols, list.join("\n")).map_err(|error| Error::Io(symbols.clone(), error))?;

    let tool = |name: &str, args: &[&str], from: &Path, to: &Path| {
        let mut command = Command::new(toolchain.tools.join(name));
        command.args(args).arg(from).arg("-o").arg(to);
        command
    };
    // What is not bitcode in an archive is rustc's list of symbols.
    run(&mut tool("llvm-link", &["-ignore-non-bitcode"], library, &linked))?;
    let mut public = OsStr::new("-internalize-public-api-file=").to_owned();
    public.push(&symbols);
    run(tool("opt", &OPT, &linked, &optimised).arg(public))?;
    run(&mut tool("llc", &LLC, &optimised, &unfinished))?;
    fs::rename(&unfinished, object).map_err(|error| Error::Io(object.to_owned(), error))
}

fn run(command: &mut Command) -> Result<String, Error> {
    let program = Path::new(command.get_program()).to_owned();
    let output = command.output().map_err(|error| Error::Io(program.clone(), error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::Program { program, output: String::from_utf8_lossy(&output.stderr).into_owned() })
}

/// The symbols that the loader looks up, from the list of all: `LIBRARY[MEMBER]: NAME TYPE VALUE SIZE`.
///
/// Their names are not mangled. Programs are functions of our own crate, whereas functions of that kind in
/// other crates are what compilers call (`memcpy`, division). Maps and constants are data, also of crates
/// that the programs use.
fn exported(listing: &str) -> Vec<String> {
    let own = format!("{}-", LIBRARY.replace('-', "_"));
    let exported_name = |line: &str| {
        let (file, symbol) = line.rsplit_once("]: ")?;
        let (_, member) = file.rsplit_once('[')?;
        let mut words = symbol.split_whitespace();
        let (name, kind) = (words.next()?, words.next()?);
        let is_mangled = name.starts_with("_R") || name.starts_with("_ZN");
        let is_data = matches!(kind, "D" | "B" | "R");
        let is_program = kind == "T" && member.starts_with(&own);
        (!is_mangled && (is_data || is_program)).then(|| name.to_owned())
    };
    let mut names: Vec<String> = listing.lines().filter_map(exported_name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_maps_and_constants_are_exported() {
        let listing = "\
/t [1]/lib.a[tracer_agent_ebpf-1.cgu.0.rcgu.o]: fast_begin T ---------------- 0
/t [1]/lib.a[tracer_agent_ebpf-1.cgu.0.rcgu.o]: EVENTS D ---------------- 0
/t [1]/lib.a[tracer_agent_ebpf-1.cgu.0.rcgu.o]: CLOCK R ---------------- 0
/t [1]/lib.a[tracer_agent_ebpf-1.cgu.0.rcgu.o]: _RNvNtCs7_17tracer_agent_ebpf4ring4open T ---------------- 0
/t [1]/lib.a[aya_log_ebpf-2.cgu.0.rcgu.o]: AYA_LOGS D ---------------- 0
/t [1]/lib.a[aya_ebpf-3.cgu.0.rcgu.o]: memset T ---------------- 0
/t [1]/lib.a[compiler_builtins-4.cgu.0.rcgu.o]: __adddf3 W ---------------- 0
/t [1]/lib.a[core-5.cgu.0.rcgu.o]: _ZN4core9panicking5panic17h0E T ---------------- 0
";
        assert_eq!(exported(listing), ["AYA_LOGS", "CLOCK", "EVENTS", "fast_begin"]);
    }
}
