//! `cargo xtask test`
//!
//! Everything is built once: the unit tests, the other test programs in the dev profile, the recorder as
//! users get it (static, optimised) for this machine's tests and for the guests' alike, and the fuzzer. The
//! programs run as jobs, as many side by side as there are processors; beside those that record this
//! machine's events, only one busy process: a guest, a target of the fuzzer, or the compiler that builds it.
//! Jobs begin as soon as they are built: they leave a processor for what is built still, and those that
//! record wait for the end of that.
//!
//! What counts is the sum of all summaries, and that nothing was left out in silence: a program that did not
//! build or died without a summary is a failure, and so is a run of no tests at all.

mod build;
mod changed;
mod job;
mod schedule;
mod scratch;
mod timings;
mod totals;

use std::fs;
use std::io::Write as _;
use std::path::Path;

use self::build::Built;
pub(super) use self::build::{ENV_STATICS, WITH_ALL_FEATURES, static_programs};
pub(super) use self::job::LONG;
use self::job::{Choice, Job};
use self::timings::{Steps, Timings};
use self::totals::Totals;
use super::setup::{Purpose, setup};
use super::{Task, fuzz};
use crate::{Result, process};

pub(super) const TASK: Task = Task {
    name: "test",
    args: "[--suite unit|doc|files|live|fuzz|vm] [--quick] [--changed[=REVISION]] [--timings] [FILTER]",
    about: "Runs every test; the last line is `N passed, N failed`\n\
            unit: of the crates; doc: the examples; files: of what reads and writes files; live: against this machine's kernel, as\n\
            root, one at a time but for those of the module `beside`; fuzz: each target for a number of inputs; vm: in QEMU on\n\
            Debian's kernels. FILTER is a part of a test's name. --quick: unit, files, and the live tests that took least\n\
            in earlier runs, four minutes of them. --changed: only what can fail because of what changed since REVISION\n\
            (default: HEAD, and what is not committed). --timings: how long each suite, subject and test took.",
    run,
};

const TRACEFS: &str = "/sys/kernel/tracing";

/// The suites, in the order in which they begin.
pub(super) const SUITES: [&str; 6] = ["unit", "doc", "files", "fuzz", "live", "vm"];

/// Those that a quick run has something of: all of the first two, and of the last one the quickest tests.
const QUICK: [&str; 3] = ["unit", "files", "live"];

/// What is to be run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    suite: Option<String>,
    changed_since: Option<String>,
    is_quick: bool,
    timings: bool,
    filter: Option<String>,
}

impl Wanted {
    fn parse(args: &[String]) -> Result<Self> {
        let mut wanted = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--suite" => wanted.suite = Some(args.next().ok_or("--suite wants a name")?.clone()),
                "--quick" => wanted.is_quick = true,
                "--timings" => wanted.timings = true,
                "--changed" => wanted.changed_since = Some("HEAD".to_owned()),
                option if option.starts_with("--changed=") => {
                    wanted.changed_since = option.split_once('=').map(|(_, revision)| revision.to_owned());
                }
                option if option.starts_with('-') => {
                    return Err(format!("unexpected argument: {option}").into());
                }
                text if wanted.filter.is_none() => wanted.filter = Some(text.to_owned()),
                extra => return Err(format!("unexpected argument: {extra}").into()),
            }
        }
        if let Some(suite) = wanted.suite.as_deref().filter(|suite| !SUITES.contains(suite)) {
            return Err(format!("no such suite: {suite} (there are {})", SUITES.join(", ")).into());
        }
        if let Some(suite) = wanted.suite.as_deref().filter(|suite| wanted.is_quick && !QUICK.contains(suite))
        {
            return Err(format!("a quick run has nothing of {suite}").into());
        }
        Ok(wanted)
    }

    fn choice(&self) -> Choice<'_> {
        Choice { filter: self.filter.as_deref(), is_quick: self.is_quick }
    }

    fn has_suite(&self, suite: &str) -> bool {
        self.suite.as_deref().is_none_or(|only| only == suite) && (!self.is_quick || QUICK.contains(&suite))
    }
}

fn run(args: &[String]) -> Result {
    let wanted = Wanted::parse(args)?;
    let selection = match &wanted.changed_since {
        Some(revision) => changed::Selection::since(revision)?,
        None => changed::Selection::everything(),
    };
    let suites: Vec<&str> =
        SUITES.into_iter().filter(|suite| wanted.has_suite(suite) && selection.has_suite(suite)).collect();
    if suites.is_empty() {
        println!("0 passed, 0 failed");
        eprintln!("nothing that changed has a test: {}", selection.reason());
        return Ok(());
    }
    // What is tested against stock tools needs them.
    let alone = suites.iter().all(|suite| matches!(*suite, "unit" | "doc"));
    setup(if alone { Purpose::Run } else { Purpose::Test })?;
    if let Err(error) = scratch::sweep() {
        eprintln!("cannot remove what an earlier run has left: {error}");
    }

    let mut totals = Totals::default();
    let mut timings = Timings::default();
    let mut steps = Steps::default();
    let jobs = |suite: &str, built: &Built| -> Result<Vec<Job>> {
        let mut jobs = jobs_of(suite, built, wanted.choice())?;
        jobs.retain(|job| selection.has_subject(&job.suite, &job.subject));
        Ok(jobs)
    };
    schedule::run(|add| build(&suites, &mut steps, jobs, add), &mut totals, &mut timings)?;
    timings.save(wanted.is_quick || wanted.filter.is_some());
    if wanted.timings {
        eprint!("{steps}{timings}");
    }
    conclude(&totals)
}

/// Builds what the suites need, and hands their jobs over as soon as they can run.
fn build(
    suites: &[&str],
    steps: &mut Steps,
    jobs: impl Fn(&str, &Built) -> Result<Vec<Job>>,
    add: &dyn Fn(Vec<Job>),
) -> Result {
    let wants = |of: &[&str]| suites.iter().any(|suite| of.contains(suite));
    let add = |of: &[&str], built: &Built| {
        suites.iter().filter(|suite| of.contains(suite)).try_for_each(|suite| {
            add(jobs(suite, built)?);
            Ok(())
        })
    };
    if wants(&["unit"]) {
        let units = steps.run("build unit tests", || Built::units(suites))?;
        add(&["unit"], &units)?;
    }
    let mut built = Built::default();
    if wants(&["files", "live", "vm"]) {
        built = steps.run("build test programs", Built::all)?;
    }
    add(&["doc", "fuzz"], &built)?;
    if wants(&["files", "live", "vm"]) {
        steps.run("build the recorder", || built.add_statics())?;
    }
    add(&["files", "vm"], &built)?;
    if wants(&["live"]) {
        steps.run("build an example", build::with_messages)?;
        mount_tracefs()?;
    }
    add(&["live"], &built)
}

/// The jobs of a suite. That of the fuzzer is to build it.
fn jobs_of(suite: &str, built: &Built, choice: Choice<'_>) -> Result<Vec<Job>> {
    Ok(match suite {
        "doc" => vec![Job::doc(choice.filter)],
        "fuzz" => {
            let targets = fuzz::smoke(choice.filter)?;
            if targets.is_empty() {
                return Ok(Vec::new());
            }
            let jobs = move || Ok(targets.into_iter().map(|(name, run)| Job::fuzz(name, run)).collect());
            vec![Job::step("fuzz", "build the fuzzer", fuzz::build_for_smoke()?, Box::new(jobs))]
        }
        _ => {
            let mut jobs = Vec::new();
            for program in built.programs.iter().filter(|program| program.suite() == suite) {
                jobs.append(&mut Job::of_program(program, built, choice)?);
            }
            jobs
        }
    })
}

fn conclude(totals: &Totals) -> Result {
    for failure in &totals.notes {
        eprintln!("{failure}");
    }
    std::io::stderr().flush()?;
    println!("{} passed, {} failed", totals.passed, totals.failed);
    match totals {
        Totals { failed: 0, passed: 0, .. } => Err("no test ran".into()),
        Totals { failed: 0, .. } => Ok(()),
        // The line above says it all, and is to be the last.
        Totals { .. } => std::process::exit(1),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(args: &[&str]) -> Result<Wanted> {
        Wanted::parse(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_understood_or_refused() {
        let all = wanted(&["--suite", "vm", "--changed=main", "--timings", "boots"]).expect("it is right");
        let text = |text: &str| Some(text.to_owned());
        let expected = Wanted {
            suite: text("vm"),
            changed_since: text("main"),
            timings: true,
            filter: text("boots"),
            ..Wanted::default()
        };
        assert_eq!(all, expected);
        assert_eq!(wanted(&["--changed"]).expect("it is right").changed_since, text("HEAD"));
        let quick = wanted(&["--quick"]).expect("it is right");
        let suites: Vec<_> = SUITES.into_iter().filter(|suite| quick.has_suite(suite)).collect();
        assert_eq!(suites, QUICK);
        for wrong in
            [&["--suite"][..], &["--suite", "none"], &["a", "b"], &["--fast"], &["--quick", "--suite", "vm"]]
        {
            assert!(wanted(wrong).is_err(), "{wrong:?}");
        }
    }
}
