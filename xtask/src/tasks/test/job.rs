//! What is run: a test program, a subject of one that is a whole suite, a test that boots a guest, a target
//! of the fuzzer.

use std::collections::BTreeMap;
use std::process::Command;

use super::build::{Built, Program, WITH_ALL_FEATURES, tests_of};
use super::timings::quickest;
use crate::{Result, process};

/// Tests of a program run one after the other: libtest would have their output in no order.
const ONE_BY_ONE: &str = "--test-threads=1";

/// Beside what a job may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runs {
    /// Beside anything but a recording: it counts no events of this machine.
    Anywhere,
    /// Beside anything: it is one busy process at a time, and records nothing of this machine. Guests are.
    Busy,
    /// It records this machine's events, and what else runs here is in its recording: only one busy process
    /// runs beside it.
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
    /// By its exit code: it is no test, but its failure is one.
    Step,
}

/// Something to run.
pub(super) struct Job {
    pub(super) suite: String,
    /// A module of a program that is a whole suite, or a program.
    pub(super) subject: String,
    /// The only test that is run, without its subject.
    pub(super) test: Option<String>,
    pub(super) command: Command,
    pub(super) runs: Runs,
    pub(super) tells: Tells,
    /// The jobs that can run when it has succeeded.
    pub(super) then: Option<Then>,
}

/// Makes jobs.
pub(super) type Then = Box<dyn FnOnce() -> Result<Vec<Job>> + Send>;

/// Which tests of a program are run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Choice<'a> {
    /// A part of their names.
    pub(super) filter: Option<&'a str>,
    /// Only the quickest of a program that is a suite.
    pub(super) is_quick: bool,
}

impl Job {
    /// The jobs of a program.
    pub(super) fn of_program(program: &Program, built: &Built, choice: Choice<'_>) -> Result<Vec<Self>> {
        if !program.has_subjects() {
            let mut command = command(program, built)?;
            command.args(choice.filter).arg(ONE_BY_ONE);
            return Ok(vec![Self::new(program, &program.name, None, command, Runs::Anywhere)]);
        }
        let tests = tests_of(program)?;
        let is_long = |test: &str| program.suite() == "vm" && test.contains(LONG);
        let is_wanted = |test: &str| match choice.filter {
            None => !is_long(test),
            Some(filter) => test.contains(filter) && (filter.contains(LONG) || !is_long(test)),
        };
        let places =
            tests.iter().filter(|test| is_wanted(test)).map(|test| (test.as_str(), place(program, test)));
        let mut places: Vec<_> = places.collect();
        if choice.is_quick && program.suite() == "live" {
            let all: Vec<_> = places.iter().map(|(_, place)| (place.subject, place.test)).collect();
            let quick = quickest(program.suite(), &all);
            places.retain(|(_, place)| quick.contains(&(place.subject, place.test)));
        }
        let mut jobs = Vec::new();
        let mut alone: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, Place { subject, runs, .. }) in places {
            match runs {
                Runs::Recording => alone.entry(subject).or_default().push(name),
                Runs::Anywhere | Runs::Busy => jobs.push(Self::of_test(program, built, name)?),
            }
        }
        for (subject, wanted) in alone {
            let mut command = command(program, built)?;
            command.args(selection(&tests, subject, &wanted)).arg(ONE_BY_ONE);
            jobs.push(Self::new(program, subject, None, command, Runs::Recording));
        }
        Ok(jobs)
    }

    /// A test of a program that is a suite.
    fn of_test(program: &Program, built: &Built, name: &str) -> Result<Self> {
        let Place { subject, test, runs } = place(program, name);
        let mut command = command(program, built)?;
        command.args(["--exact", name, ONE_BY_ONE]);
        Ok(Self::new(program, subject, Some(test.to_owned()), command, runs))
    }

    /// The examples in the documentation.
    pub(super) fn doc(filter: Option<&str>) -> Self {
        let mut command =
            process::cargo(["test", "--locked", "--workspace", WITH_ALL_FEATURES, "--doc", "--no-fail-fast"]);
        command.args(filter);
        Self {
            suite: "doc".to_owned(),
            subject: "doc".to_owned(),
            test: None,
            command,
            runs: Runs::Anywhere,
            tells: Tells::AllSummaries,
            then: None,
        }
    }

    /// A target of the fuzzer.
    pub(super) fn fuzz(name: &str, command: Command) -> Self {
        Self {
            suite: "fuzz".to_owned(),
            subject: name.to_owned(),
            test: None,
            command,
            runs: Runs::Busy,
            tells: Tells::ExitCode,
            then: None,
        }
    }

    /// What has to be done before other jobs can run.
    pub(super) fn step(suite: &str, name: &str, command: Command, then: Then) -> Self {
        Self {
            suite: suite.to_owned(),
            subject: name.to_owned(),
            test: None,
            command,
            runs: Runs::Busy,
            tells: Tells::Step,
            then: Some(then),
        }
    }

    fn new(program: &Program, subject: &str, test: Option<String>, command: Command, runs: Runs) -> Self {
        Self {
            suite: program.suite().to_owned(),
            subject: subject.to_owned(),
            test,
            command,
            runs,
            tells: Tells::LastSummary,
            then: None,
        }
    }

    /// What it is called in reports: `live oracle`, `vm boot k6_12_cloud::boots`.
    pub(super) fn name(&self) -> String {
        let mut name = format!("{} {}", self.suite, self.subject);
        if let Some(test) = &self.test {
            name.push(' ');
            name.push_str(test);
        }
        name
    }
}

/// The module of the live tests that may run beside others.
pub(super) const BESIDE: &str = "beside";

/// In the names of guests' tests that `cargo xtask soak guests` runs, and others only when they are named.
pub(in crate::tasks) const LONG: &str = "soak::";

/// Where a test of a program that is a suite belongs.
struct Place<'n> {
    /// The module that it is in. A test in no module is a subject.
    subject: &'n str,
    /// The rest of its name.
    test: &'n str,
    runs: Runs,
}

fn place<'n>(program: &Program, name: &'n str) -> Place<'n> {
    let halves = |name: &'n str| name.split_once("::").unwrap_or((name, name));
    let (first, rest) = halves(name);
    let (subject, test, runs) = match program.suite() {
        "vm" => (first, rest, Runs::Busy),
        "files" => (first, rest, Runs::Anywhere),
        _ if first != BESIDE => (first, rest, Runs::Recording),
        _ => {
            let (subject, test) = halves(rest);
            (subject, test, Runs::Anywhere)
        }
    };
    Place { subject, test, runs }
}

/// Arguments for a program that has `tests`: it runs those of `subject` that are `wanted`. The name of the
/// module suffices where no other test has it in its name.
fn selection(tests: &[String], subject: &str, wanted: &[&str]) -> Vec<String> {
    let module = format!("{subject}::");
    if tests.iter().filter(|test| test.contains(&module)).eq(wanted) {
        return vec![module];
    }
    let names = wanted.iter().map(|test| (*test).to_owned());
    ["--exact".to_owned()].into_iter().chain(names).collect()
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
    command.envs(built.environment());
    Ok(command)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::super::build::Kind;
    use super::*;
    use crate::workspace;

    #[test]
    fn a_subject_is_run_without_those_that_have_its_name_in_theirs() {
        let tests = ["analyze::each::a", "analyze::b", "daemon::analyze::c", "live::d", "pipe::e", "whole"]
            .map(str::to_owned);
        let select =
            |wanted: &[&str]| selection(&tests, wanted[0].split("::").next().unwrap_or_default(), wanted);
        assert_eq!(select(&["pipe::e"]), ["pipe::"]);
        assert_eq!(
            select(&["analyze::each::a", "analyze::b"]),
            ["--exact", "analyze::each::a", "analyze::b"]
        );
        assert_eq!(select(&["analyze::b"]), ["--exact", "analyze::b"]);
        assert_eq!(select(&["whole"]), ["--exact", "whole"]);
    }

    /// Words of what records or watches this machine, holds it, or has a clock of its own.
    const FORBIDDEN: [&str; 18] = [
        "\"record\"",
        "\"start\"",
        "\"watch\"",
        "\"stream\"",
        "\"top\"",
        "\"listen\"",
        "\"daemon\"",
        "\"doctor\"",
        "agent::record",
        "perf::",
        "Marked",
        "Caller",
        "Daemon",
        "Session",
        "Tmpfs",
        "workload",
        "cgroup",
        "sleep(",
    ];

    fn check(dir: &Path) -> usize {
        let mut files = 0;
        for entry in fs::read_dir(dir).expect("a folder of tests").flatten() {
            let path = entry.path();
            if path.is_dir() {
                files += check(&path);
                continue;
            }
            let text = fs::read_to_string(&path).expect("a test");
            let found: Vec<_> = FORBIDDEN.iter().filter(|word| text.contains(**word)).collect();
            assert!(found.is_empty(), "{} has {found:?}: its tests have to run alone", path.display());
            files += 1;
        }
        files
    }

    #[test]
    fn tests_that_run_beside_others_only_read_files() {
        assert!(check(&workspace::root().join("tests/tests/live").join(BESIDE)) > 1);
    }

    #[test]
    fn a_test_says_whether_it_runs_beside_others() {
        let of = |package: &str, program: &str, name: &'static str| {
            let program = Program {
                package: package.to_owned(),
                dir: PathBuf::new(),
                kind: Kind::Integration,
                name: program.to_owned(),
                path: PathBuf::new(),
            };
            let Place { subject, test, runs } = place(&program, name);
            (subject, test, runs)
        };
        let live = |name| of("integration-tests", "live", name);
        assert_eq!(live("stop::soak::a"), ("stop", "soak::a", Runs::Recording));
        assert_eq!(live("beside::report::a"), ("report", "a", Runs::Anywhere));
        assert_eq!(live("report::beside::a"), ("report", "beside::a", Runs::Recording));
        let files = of("integration-tests", "files", "compare::exports::ctf");
        assert_eq!(files, ("compare", "exports::ctf", Runs::Anywhere));
        let vm = of("vm-tests", "guests", "boot::k6_1_cloud::a");
        assert_eq!(vm, ("boot", "k6_1_cloud::a", Runs::Busy));
    }
}
