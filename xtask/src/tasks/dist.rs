//! `cargo xtask dist`

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ebpf_build::Build;
use ebpf_build::toolchain::Toolchain;

use super::setup::{Purpose, setup};
use super::{Task, docs, no_arguments};
use crate::workspace::{self, STATIC_TARGET, target_dir};
use crate::{Result, process};

pub(super) const TASK: Task = Task {
    name: "dist",
    args: "",
    about: "Makes the static binary for release, packages of it for Debian, RPM and containers, in target/artifacts\n\
            Also its sha256, the eBPF object in it, man pages, completions and the manifest for Kubernetes. The binary needs no library and no file of\n\
            the machine that it is copied to. SOURCE_DATE_EPOCH is the time in the packages (default: that of the commit).",
    run: dist,
};

/// The most bytes of the stripped binary. What makes it larger belongs behind a feature, or into a file.
const MOST_BYTES: u64 = 30 << 20;

/// A position-independent program relocates itself at its start: a bit for each address, and not 24 bytes.
const PACKED_RELOCATIONS: &str = "-C link-arg=-Wl,-z,pack-relative-relocs";

fn dist(args: &[String]) -> Result {
    no_arguments(args)?;
    setup(Purpose::Dist)?;
    let mut cargo = process::cargo(["build", "--profile=dist", "--locked", "--target", STATIC_TARGET]);
    cargo.args(["--package", "tracer-agent", "--features", "full"]);
    process::run(cargo.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS", PACKED_RELOCATIONS))?;
    let dir = target_dir().join("artifacts");
    fs::create_dir_all(&dir)?;
    let name = format!("tracer-agent-{}-{STATIC_TARGET}", env!("CARGO_PKG_VERSION"));
    let binary = dir.join(&name);
    let built = target_dir().join(STATIC_TARGET).join("dist/tracer-agent");
    process::run(Command::new("strip").arg("-o").arg(&binary).arg(built))?;
    check_static(&binary)?;
    let sum = process::output(Command::new("sha256sum").arg(&name).current_dir(&dir))?;
    fs::write(dir.join(format!("{name}.sha256")), &sum)?;
    fs::copy(ebpf_object()?, dir.join(format!("tracer-agent-ebpf-{}.o", env!("CARGO_PKG_VERSION"))))?;
    docs::manuals(&binary, &dir)?;
    packages(&binary, &dir)?;
    let bytes = fs::metadata(&binary)?.len();
    println!("{}: {bytes} bytes\n{}", binary.display(), sum.trim_end());
    // Last: what is too large is there all the same, to find out why.
    check_size(bytes)
}

/// The object that the binary has: the given one, or the one that its build has just made.
fn ebpf_object() -> Result<PathBuf> {
    if let Some(given) = ebpf_build::given_object() {
        return Ok(given);
    }
    let build = Build { workspace: workspace::root(), target_dir: &target_dir(), features: &[] };
    Ok(build.run(&Toolchain::find()?)?)
}

/// Makes the packages of a binary.
fn packages(binary: &Path, dir: &Path) -> Result {
    let time = if let Ok(time) = env::var("SOURCE_DATE_EPOCH") {
        time
    } else {
        let mut git = Command::new("git");
        process::output(git.args(["log", "-1", "--format=%ct"]).current_dir(workspace::root()))?
    };
    let mut cargo = process::cargo(["run", "--quiet", "--locked", "--package", "packaging", "--"]);
    process::run(cargo.arg(binary).arg(dir).env("SOURCE_DATE_EPOCH", time.trim()))
}

fn check_size(bytes: u64) -> Result {
    if bytes > MOST_BYTES {
        return Err(format!("the binary has {bytes} bytes, and at most {MOST_BYTES} are allowed").into());
    }
    Ok(())
}

fn check_static(binary: &Path) -> Result {
    if interpreter(&fs::read(binary)?)? {
        return Err(format!("{} is linked dynamically", binary.display()).into());
    }
    Ok(())
}

/// True if a 64-bit little-endian ELF file wants a dynamic loader (it has a `PT_INTERP` segment).
fn interpreter(elf: &[u8]) -> Result<bool> {
    const PT_INTERP: u64 = 3;
    let number = |at: u64, size: usize| -> Result<u64> {
        let at = usize::try_from(at)?;
        let bytes = elf.get(at..at + size).ok_or("the file ends inside its headers")?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    if !elf.starts_with(b"\x7fELF\x02\x01") {
        return Err("not a 64-bit little-endian ELF file".into());
    }
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for index in 0..count {
        if number(table + index * size, 4)? == PT_INTERP {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_linked_dynamically() {
        let own = env::current_exe().expect("a path");
        assert!(interpreter(&fs::read(own).expect("readable")).expect("an ELF file"));
    }

    #[test]
    fn the_size_is_limited() {
        assert!(check_size(MOST_BYTES).is_ok());
        assert!(check_size(MOST_BYTES + 1).is_err());
    }

    #[test]
    fn a_cut_file_is_an_error() {
        assert!(interpreter(b"\x7fELF\x02\x01").is_err());
        assert!(interpreter(b"#!/bin/sh").is_err());
    }
}
