//! What is run: a test program, a single test of one that boots a guest, a target of the fuzzer.

use std::process::Command;

use super::build::{Built, ENV_PROGRAMS, ENV_STATICS, Program, tests_of};
use crate::{Result, process};

/// Tells the live tests which tracer-agent to test.
const ENV_AGENT: &str = "TRACER_AGENT_BIN";

/// Beside what a job may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runs {
    /// Beside anything but a recording.
    Anywhere,
    /// Beside anything: it records in a machine of its own, and is one busy process of this one.
    Guest,
    /// It records this machine's events, and what else runs here is in its recording: only guests run beside
    /// it.
    Recording,
}

/// How a job's result is told by what it prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tells {
    /// By the last summary. Those before it are a guest's.
    LastSummary,
    /// By all of its summaries.
    AllSummaries,
    /// By its exit code alone: it is one test.
    ExitCode,
}

/// Something to run.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) suite: String,
    pub(super) program: String,
    /// The only test that is run of the program.
    pub(super) test: Option<String>,
    pub(super) command: Command,
    pub(super) runs: Runs,
    pub(super) tells: Tells,
}

impl Job {
    /// All tests of a program, or those with `filter` in their names.
    pub(super) fn of_program(program: &Program, built: &Built, filter: Option<&str>) -> Result<Self> {
        let mut command = command(program, built)?;
        command.args(filter).arg("--test-threads=1");
        let runs = if program.suite() == "live" { Runs::Recording } else { Runs::Anywhere };
        Ok(Self::new(program, None, command, runs))
    }

    /// A job for each test of a program.
    pub(super) fn of_each_test(program: &Program, built: &Built, filter: Option<&str>) -> Result<Vec<Self>> {
        let job = |test: String| {
            let mut command = command(program, built)?;
            command.args(["--exact", &test, "--test-threads=1"]);
            Ok(Self::new(program, Some(test), command, Runs::Guest))
        };
        tests_of(program, filter)?.into_iter().map(job).collect()
    }

    /// The examples in the documentation.
    pub(super) fn doc(filter: Option<&str>) -> Self {
        let mut command = process::cargo(["test", "--locked", "--workspace", "--doc", "--no-fail-fast"]);
        command.args(filter);
        Self {
            suite: "doc".to_owned(),
            program: "doc".to_owned(),
            test: None,
            command,
            runs: Runs::Anywhere,
            tells: Tells::AllSummaries,
        }
    }

    /// A target of the fuzzer.
    pub(super) fn fuzz(name: &str, command: Command) -> Self {
        Self {
            suite: "fuzz".to_owned(),
            program: name.to_owned(),
            test: None,
            command,
            runs: Runs::Anywhere,
            tells: Tells::ExitCode,
        }
    }

    fn new(program: &Program, test: Option<String>, command: Command, runs: Runs) -> Self {
        Self {
            suite: program.suite().to_owned(),
            program: program.name.clone(),
            test,
            command,
            runs,
            tells: Tells::LastSummary,
        }
    }

    /// What it is called in reports: `live oracle`, `vm boot k6_12_cloud::boots`.
    pub(super) fn name(&self) -> String {
        let mut name = format!("{} {}", self.suite, self.program);
        if let Some(test) = &self.test {
            name.push(' ');
            name.push_str(test);
        }
        name
    }
}

/// The program as cargo would run it, as root where it needs to be.
fn command(program: &Program, built: &Built) -> Result<Command> {
    let as_root = matches!(program.suite(), "files" | "live");
    let mut command = if as_root && !process::is_root() {
        let mut sudo =
            Command::new(process::find("sudo").ok_or("these tests need root, and there is no sudo")?);
        sudo.args(["--preserve-env", "--"]).arg(&program.path);
        sudo
    } else {
        Command::new(&program.path)
    };
    command.current_dir(&program.dir).env("CARGO_MANIFEST_DIR", &program.dir);
    if let Some(statics) = &built.statics {
        command.env(ENV_STATICS, statics).env(ENV_AGENT, statics.join("tracer-agent"));
    }
    if let Some(list) = &built.list {
        command.env(ENV_PROGRAMS, list);
    }
    Ok(command)
}
