//! `cargo xtask fuzz`
//!
//! The targets are one program, `tests/fuzz`, for libFuzzer. It needs no nightly compiler: flags that every
//! compiler has add the counters, as in cargo-fuzz, and no sanitizer is needed, for the code under test is
//! safe Rust.
//!
//! Only this workspace's crates get counters: cargo calls this program instead of the compiler for them
//! ([`compile`]). The crates of others are those of the tests' build.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use super::Task;
use super::test::WITH_ALL_FEATURES;
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
    ("ctf2", 1 << 14),
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
/// Cargo does not see when these change: `cargo clean` then.
const FLAGS: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg=fuzzing",
];

/// Set where cargo calls this program with the compiler's command line.
const ENV_COMPILE: &str = "TRACER_AGENT_COMPILE_FOR_FUZZER";

/// The profile of a program that runs for long.
const OPTIMISED: &str = "fuzz";

/// The profile of a program that runs for less time than optimising it would take: the tests' profile.
const QUICKLY_BUILT: &str = "dev";

/// Names of build scripts, and of the crate that one of them is made of.
const OF_BUILD_SCRIPTS: [&str; 2] = ["build_script_", "ebpf_build"];

/// Replaces this process by the compiler if cargo called it for that: with [`FLAGS`], but for
/// [`OF_BUILD_SCRIPTS`].
pub(crate) fn compile() -> Option<std::io::Error> {
    std::env::var_os(ENV_COMPILE)?;
    let mut line = std::env::args_os().skip(1);
    let compiler = line.next()?;
    let rest: Vec<OsString> = line.collect();
    Some(Command::new(compiler).args(flags_for(&rest)).args(rest).exec())
}

/// What the compiler gets beside these arguments of cargo. Without a crate's name, cargo asks the compiler
/// about itself.
fn flags_for(rest: &[OsString]) -> &'static [&'static str] {
    let mut names = rest.iter().zip(rest.iter().skip(1)).filter(|(option, _)| *option == "--crate-name");
    let has_counters = names.any(|(_, name)| {
        let name = name.to_string_lossy();
        !OF_BUILD_SCRIPTS.iter().any(|prefix| name.starts_with(prefix))
    });
    if has_counters { &FLAGS } else { &[] }
}

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
    let fuzzer = Fuzzer::of(QUICKLY_BUILT);
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
    process::run(&mut cargo("check", "fuzz/fuzzer")?)
}

/// Cargo for the program, with this feature. The packages and features are those of the tests' build, so that
/// crates of others are compiled once.
fn cargo(command: &str, feature: &str) -> Result<Command> {
    let mut cargo = process::cargo([command, "--locked", "--workspace", "--bin=fuzz"]);
    cargo.arg(format!("{WITH_ALL_FEATURES},{feature}"));
    cargo.env("RUSTC_WORKSPACE_WRAPPER", std::env::current_exe()?).env(ENV_COMPILE, "1");
    Ok(cargo)
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

/// Where corpora and findings are kept.
fn corpora() -> PathBuf {
    workspace::target_dir().join("fuzz")
}

/// The program that was built.
struct Fuzzer(PathBuf);

impl Fuzzer {
    fn build(profile: &str) -> Result<Self> {
        process::run(&mut Self::build_command(profile)?)?;
        Ok(Self::of(profile))
    }

    fn build_command(profile: &str) -> Result<Command> {
        let mut build = cargo("build", "fuzz/linked")?;
        build.args(["--profile", profile]);
        Ok(build)
    }

    /// The program that is there when it was built.
    fn of(profile: &str) -> Self {
        let directory = if profile == QUICKLY_BUILT { "debug" } else { profile };
        Self(workspace::target_dir().join(directory).join("fuzz"))
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
        let findings = corpora().join("findings");
        let (corpus, effort) = match effort {
            Effort::Seconds(seconds) => {
                (corpora().join("corpus").join(target), vec![format!("-max_total_time={seconds}")])
            }
            Effort::Smoke => {
                let corpus = corpora().join("smoke").join(target);
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
    fn only_crates_that_are_fuzzed_have_counters() {
        let flags = |line: &str| flags_for(&line.split(' ').map(OsString::from).collect::<Vec<_>>()).len();
        assert_eq!(flags("--crate-name tracedat --edition=2024 lib.rs"), FLAGS.len());
        assert_eq!(flags("--crate-name build_script_build build.rs"), 0);
        assert_eq!(flags("--crate-name ebpf_build lib.rs"), 0);
        assert_eq!(flags("- --crate-name ___ --print=file-names"), FLAGS.len());
        assert_eq!(flags("-vV"), 0);
    }

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
