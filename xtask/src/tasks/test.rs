//! `cargo xtask test`
//!
//! Cargo prints a summary per test program; what counts is their sum, and that nothing was left out in silence: a program
//! that did not build or died without a summary is a failure, and so is a run of no tests at all.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use super::setup::{Purpose, setup};
use super::{Task, build, fuzz};
use crate::{Result, process, workspace};

pub(super) const TASK: Task = Task {
    name: "test",
    args: "[--suite unit|doc|live|fuzz|vm] [FILTER]",
    about: "Runs every test; the last line is `N passed, N failed`\n\
            unit: of the crates; doc: the examples; live: against this machine's kernel, as root, one at a time;\n\
            fuzz: each target for a few seconds; vm: in QEMU on Debian's kernels, one at a time but for those that count instructions. FILTER is a part of a test's name.",
    run,
};

const TRACEFS: &str = "/sys/kernel/tracing";

/// Tells the live tests which tracer-agent to test.
const ENV_AGENT: &str = "TRACER_AGENT_BIN";

/// Tests in guests that count instructions, whose figures are the same however busy the machine is: these run side by side.
const COUNTING: [&str; 2] = ["cost", "verifier"];

const SUITES: [&str; 5] = ["unit", "doc", "live", "fuzz", "vm"];

fn run(args: &[String]) -> Result {
    let (mut only, mut filter) = (None, None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--suite" => only = Some(args.next().ok_or("--suite wants a name")?.as_str()),
            option if option.starts_with('-') => return Err(format!("unexpected argument: {option}").into()),
            text if filter.is_none() => filter = Some(text),
            extra => return Err(format!("unexpected argument: {extra}").into()),
        }
    }
    if let Some(only) = only.filter(|only| !SUITES.contains(only)) {
        return Err(format!("no such suite: {only} (there are {})", SUITES.join(", ")).into());
    }
    // What is tested against stock tools needs them.
    let alone = only.is_some_and(|only| matches!(only, "unit" | "doc"));
    setup(if alone { Purpose::Run } else { Purpose::Test })?;

    let mut total = Totals::default();
    for suite in SUITES.into_iter().filter(|suite| only.is_none_or(|only| only == *suite)) {
        if suite == "fuzz" {
            total.fuzz(fuzz::smoke(filter)?);
            continue;
        }
        for mut command in commands(suite, filter)? {
            total.add(suite, &mut command)?;
        }
    }
    for failure in &total.notes {
        eprintln!("{failure}");
    }
    std::io::stderr().flush()?;
    println!("{} passed, {} failed", total.passed, total.failed);
    match total {
        Totals { failed: 0, passed: 0, .. } => Err("no test ran".into()),
        Totals { failed: 0, .. } => Ok(()),
        // The line above says it all, and is to be the last.
        Totals { .. } => std::process::exit(1),
    }
}

fn commands(suite: &str, filter: Option<&str>) -> Result<Vec<Command>> {
    let test = |args: &[&str], one_at_a_time: bool| {
        let mut cargo = process::cargo(["test", "--no-fail-fast"]);
        cargo.args(args).args(filter);
        if one_at_a_time {
            cargo.args(["--", "--test-threads=1"]);
        }
        cargo
    };
    Ok(match suite {
        "unit" => {
            let others = ["--workspace", "--exclude", "integration-tests", "--exclude", "vm-tests"];
            vec![test(&[&others[..], &["--lib", "--bins"]].concat(), false)]
        }
        "doc" => vec![test(&["--workspace", "--doc"], false)],
        "live" => {
            build::build(&[])?;
            mount_tracefs()?;
            let mut commands = Vec::new();
            // Cargo refuses a pattern of test targets that matches none.
            if !test_programs("agent")?.is_empty() {
                commands.push(test(&["--package", "tracer-agent", "--test", "*"], true));
            }
            commands.push(test(&["--package", "integration-tests", "--tests"], true));
            for command in &mut commands {
                command.env(ENV_AGENT, workspace::agent());
                if !process::is_root() {
                    command.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", "sudo --preserve-env --");
                }
            }
            commands
        }
        _ => {
            let programs = test_programs("vm-tests")?;
            let programs = programs.iter().map(String::as_str);
            let timed = programs.filter(|program| !COUNTING.contains(program));
            vec![
                test(&[&["--package", "vm-tests", "--lib", "--bins"], &named(timed)[..]].concat(), true),
                test(&[&["--package", "vm-tests"], &named(COUNTING)[..]].concat(), false),
            ]
        }
    })
}

/// The arguments of cargo for these test programs.
fn named<'a>(programs: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    programs.into_iter().flat_map(|program| ["--test", program]).collect()
}

/// The names of a package's test programs.
fn test_programs(package: &str) -> Result<Vec<String>> {
    let mut programs = Vec::new();
    for entry in fs::read_dir(workspace::root().join(package).join("tests"))? {
        let path = entry?.path();
        let is_program =
            path.extension().is_some_and(|extension| extension == "rs") || path.join("main.rs").exists();
        programs
            .extend(path.file_stem().filter(|_| is_program).map(|name| name.to_string_lossy().into_owned()));
    }
    programs.sort();
    Ok(programs)
}

fn mount_tracefs() -> Result {
    if Path::new(TRACEFS).join("events").exists() {
        return Ok(());
    }
    // To someone who is not root, a mounted one looks the same as none.
    if fs::read_to_string("/proc/mounts")?.lines().any(|line| line.split(' ').nth(1) == Some(TRACEFS)) {
        return Ok(());
    }
    let mut mount =
        process::as_root("mount").ok_or("tests of the live kernel need root, and there is no sudo")?;
    process::run(mount.args(["-t", "tracefs", "nodev", TRACEFS]))
}

/// The sum of all summaries.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    passed: u64,
    failed: u64,
    notes: Vec<String>,
}

impl Totals {
    /// Runs a `cargo test`, shows what it prints and adds it up.
    fn add(&mut self, suite: &str, command: &mut Command) -> Result {
        eprintln!("$ {}", process::line(command));
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let failed_before = self.failed;
        if let Some(stdout) = child.stdout.take() {
            for line in BufReader::new(stdout).split(b'\n') {
                let line = line?;
                let line = String::from_utf8_lossy(&line);
                println!("{line}");
                self.line(suite, &line);
            }
        }
        let status = child.wait()?;
        if !status.success() && self.failed == failed_before {
            self.failed += 1;
            self.notes
                .push(format!("{suite}: no test failed, yet cargo did ({status}): counted as one failure"));
        }
        Ok(())
    }

    /// Each target is a test.
    fn fuzz(&mut self, targets: Vec<(&'static str, Result)>) {
        for (name, result) in targets {
            match result {
                Ok(()) => self.passed += 1,
                Err(error) => {
                    self.failed += 1;
                    self.notes.push(format!("fuzz: failed: {name}: {error}"));
                }
            }
        }
    }

    /// Takes a line of a test program: `test result: ok. 3 passed; 0 failed; ...`, `test NAME ... FAILED`.
    fn line(&mut self, suite: &str, line: &str) {
        let line = without_colours(line);
        if let Some(summary) = line.strip_prefix("test result: ") {
            let count = |what: &str| -> Option<u64> {
                summary.split([';', '.']).find_map(|part| part.trim().strip_suffix(what)?.trim().parse().ok())
            };
            self.passed += count("passed").unwrap_or(0);
            self.failed += count("failed").unwrap_or(0);
        } else if let Some(name) =
            line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.notes.push(format!("{suite}: failed: {name}"));
        }
    }
}

/// The text without escape sequences for colours.
fn without_colours(line: &str) -> String {
    let mut parts = line.split("\u{1b}[");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(part.split_once('m').map_or("", |(_, rest)| rest));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_added_up() {
        let mut totals = Totals::default();
        for line in [
            "running 4 tests",
            "test a::b ... ok",
            "test a::c ... FAILED",
            "test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 7 filtered out; finished in 0.00s",
            "test result: \u{1b}[32mok\u{1b}[m. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
            "  test result: ok. 100 passed; 0 failed;",
        ] {
            totals.line("unit", line);
        }
        let notes = vec!["unit: failed: a::c".to_owned()];
        assert_eq!(totals, Totals { passed: 15, failed: 1, notes });
    }

    #[test]
    fn a_command_that_fails_without_a_summary_counts() {
        let mut totals = Totals::default();
        totals.add("unit", &mut Command::new("false")).expect("it can be run");
        assert_eq!((totals.passed, totals.failed), (0, 1));
    }
}
