//! `cargo xtask fuzz`
//!
//! The targets are one program, `tests/fuzz`, for libFuzzer. It needs no nightly compiler: coverage is asked
//! for with flags that every compiler has, as cargo-fuzz does it, and without a sanitizer, for the code under
//! test is safe Rust.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::Task;
use crate::{Result, process, workspace};

pub(super) const TASK: Task = Task {
    name: "fuzz",
    args: "[TARGET...] [--seconds N] [--seeds]",
    about: "Fuzzes what reads foreign bytes, each target for N seconds (default 60)\n\
            Corpora are kept in target/fuzz/corpus, findings in target/fuzz/findings. --seeds writes the committed corpus\n\
            anew, with the project's writer.",
    run,
};

/// The targets, as `tests/fuzz/src/targets.rs` has them, and the longest input of each.
const TARGETS: &[(&str, u32)] = &[
    ("file", 1 << 17),
    ("repair", 1 << 15),
    ("sections", 1 << 14),
    ("options", 1 << 12),
    ("page", 1 << 13),
    ("format", 1 << 13),
    ("print", 1 << 12),
    ("filter", 1 << 12),
    ("ledger", 1 << 13),
    ("ctf", 1 << 14),
    ("perf", 1 << 13),
    ("text", 1 << 12),
    ("latency", 1 << 12),
    ("systrace", 1 << 12),
    ("spool", 1 << 15),
    ("piped", 1 << 15),
    ("recorder", 1 << 14),
    ("control", 1 << 13),
    ("saved", 1 << 13),
    ("live", 1 << 11),
    ("relayed", 1 << 13),
];

/// What cargo-fuzz gives the compiler: counters at every edge, and comparisons for the mutator to learn from.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Cllvm-args=-sanitizer-coverage-trace-compares --cfg=fuzzing";

/// The profile of a program that runs for long.
const OPTIMISED: &str = "fuzz";

/// The profile of a program that runs for less time than optimising it would take.
const QUICKLY_BUILT: &str = "smoke";

fn run(args: &[String]) -> Result {
    let mut seconds = 60;
    let mut names = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seconds" => seconds = args.next().ok_or("--seconds wants a number")?.parse()?,
            "--seeds" => return Fuzzer::build(OPTIMISED)?.seeds(),
            option if option.starts_with('-') => return Err(format!("unexpected argument: {option}").into()),
            name if TARGETS.iter().any(|(known, _)| *known == name) => names.push(name),
            other => {
                let known: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
                return Err(format!("no such target: {other} (there are {})", known.join(", ")).into());
            }
        }
    }
    let fuzzer = Fuzzer::build(OPTIMISED)?;
    for (name, max_len) in TARGETS.iter().filter(|(name, _)| names.is_empty() || names.contains(name)) {
        process::run(&mut fuzzer.command(name, *max_len, Effort::Seconds(seconds))?)?;
    }
    Ok(())
}

/// Inputs that a test run tries of each target, beside the committed ones.
const SMOKE_RUNS: u32 = 6000;

/// How long a target is fuzzed.
#[derive(Clone, Copy)]
enum Effort {
    /// For that many seconds, from what earlier runs have found, too.
    Seconds(u32),
    /// The same inputs in every run of the same program, however busy the machine is: [`SMOKE_RUNS`] from the
    /// committed ones.
    Smoke,
}

/// Commands that try some thousand inputs, one for each target whose name contains `filter`.
pub(super) fn smoke(filter: Option<&str>) -> Result<Vec<(&'static str, Command)>> {
    let wanted = TARGETS.iter().filter(|(name, _)| filter.is_none_or(|filter| name.contains(filter)));
    let fuzzer = Fuzzer::of(QUICKLY_BUILT)?;
    wanted.map(|(name, max_len)| Ok((*name, fuzzer.command(name, *max_len, Effort::Smoke)?))).collect()
}

/// The command that builds the fuzzer for [`smoke`] on one processor.
pub(super) fn build_for_smoke() -> Result<Command> {
    let mut build = Fuzzer::build_command(QUICKLY_BUILT)?;
    build.arg("--jobs=1");
    Ok(build)
}

/// Has the compiler check the program: it uses what other crates have for it alone.
pub(super) fn check() -> Result {
    let mut check = cargo(&["check", "--features=fuzzer", "--target", &host()?])?;
    process::run(check.env("RUSTFLAGS", "--cfg=fuzzing").env_remove("CARGO_ENCODED_RUSTFLAGS"))
}

/// The target whose committed corpus and dictionary a target has.
fn seeds_of(target: &str) -> &str {
    match target {
        "repair" => "file",
        own => own,
    }
}

fn crate_dir() -> PathBuf {
    workspace::root().join("tests/fuzz")
}

fn target_dir() -> PathBuf {
    workspace::target_dir().join("fuzz")
}

/// Cargo for the crate. No program for eBPF is built: none is loaded.
fn cargo(args: &[&str]) -> Result<Command> {
    fs::create_dir_all(target_dir())?;
    let object = target_dir().join("no-ebpf");
    if !object.exists() {
        fs::write(&object, "")?;
    }
    let mut cargo = process::cargo(args);
    cargo
        .args(["--locked", "--package=fuzz", "--bin=fuzz", "--target-dir"])
        .arg(target_dir())
        .env("TRACER_AGENT_EBPF_OBJECT", object);
    Ok(cargo)
}

/// The target of the compiler itself.
fn host() -> Result<String> {
    let version = process::output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.ok_or("rustc -vV prints no host")?.trim().to_owned())
}

/// The program that was built.
struct Fuzzer(PathBuf);

impl Fuzzer {
    fn build(profile: &str) -> Result<Self> {
        process::run(&mut Self::build_command(profile)?)?;
        Self::of(profile)
    }

    fn build_command(profile: &str) -> Result<Command> {
        // With a target, the flags are not for build scripts.
        let mut build = cargo(&["build", "--features=linked", "--profile", profile, "--target", &host()?])?;
        build.env("RUSTFLAGS", FLAGS).env_remove("CARGO_ENCODED_RUSTFLAGS");
        Ok(build)
    }

    /// The program that is there when it was built.
    fn of(profile: &str) -> Result<Self> {
        Ok(Self(target_dir().join(host()?).join(profile).join("fuzz")))
    }

    /// Writes the committed corpus.
    fn seeds(&self) -> Result {
        let corpus = crate_dir().join("corpus");
        if corpus.exists() {
            fs::remove_dir_all(&corpus)?;
        }
        process::run(Command::new(&self.0).env("FUZZ_SEEDS", corpus))
    }

    /// Runs a target. New inputs go to the first corpus, the committed one stays as it is.
    fn command(&self, target: &str, max_len: u32, effort: Effort) -> Result<Command> {
        let findings = target_dir().join("findings");
        let (corpus, effort) = match effort {
            Effort::Seconds(seconds) => {
                (target_dir().join("corpus").join(target), vec![format!("-max_total_time={seconds}")])
            }
            Effort::Smoke => {
                let corpus = target_dir().join("smoke").join(target);
                if corpus.exists() {
                    fs::remove_dir_all(&corpus)?;
                }
                (corpus, vec![format!("-runs={SMOKE_RUNS}"), "-seed=1".to_owned()])
            }
        };
        fs::create_dir_all(&corpus)?;
        fs::create_dir_all(&findings)?;
        let seeds = seeds_of(target);
        let mut command = Command::new(&self.0);
        command
            .env("FUZZ_TARGET", target)
            .args(effort)
            .arg(format!("-max_len={max_len}"))
            .args(["-timeout=20", "-rss_limit_mb=2048", "-print_final_stats=1", "-verbosity=0"])
            .arg(format!("-artifact_prefix={}/{target}-", findings.display()))
            .arg(format!("-dict={}", crate_dir().join("dict").join(format!("{seeds}.dict")).display()))
            .arg(corpus)
            .arg(crate_dir().join("corpus").join(seeds));
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_has_inputs_to_begin_with_and_words_of_its_language() {
        for (target, _) in TARGETS {
            let seeds = seeds_of(target);
            let dict = crate_dir().join(format!("dict/{seeds}.dict"));
            let corpus = crate_dir().join("corpus").join(seeds);
            assert!(dict.is_file(), "{} is missing", dict.display());
            let inputs = fs::read_dir(&corpus).map(Iterator::count).unwrap_or_default();
            assert!(inputs > 0, "{} is missing or empty", corpus.display());
        }
    }
}
