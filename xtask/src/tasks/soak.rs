//! `cargo xtask soak`
//!
//! What `cargo xtask test` does for seconds, for as long as wanted: the trials in modules named `soak` of the
//! test programs, the tests of guests on the kernels that `cargo xtask test` leaves out, the fuzz targets of
//! what a recorder reads back after a crash and of what a kernel's formats make readers do, and whether the
//! metamorphic tests find what they are for.

use super::Task;
use super::test::LONG;
use crate::{Result, process};

pub(super) const TASK: Task = Task {
    name: "soak",
    args: "[live|audit|guests|fuzz|mutations] [--minutes N]",
    about: "Long trials: every event under load, more processes than there are ids, a storm with a profiler, a daemon with\n\
            everything on, damaged spools\n\
            Each trial and each fuzz target takes about N minutes (default 10). `live` runs the trials, `audit` only the one that\n\
            compares recordings with the kernel's counters, `guests` the tests that CI runs on one of several kernels on the\n\
            others, `fuzz` the targets spool, print and format, `mutations` the metamorphic tests of answers and slices with each\n\
            patch of tests/mutations, where they have to fail (half an hour); without a name, all.",
    run,
};

const KINDS: [&str; 5] = ["live", "audit", "guests", "fuzz", "mutations"];

/// What multiplies the work of a trial, as `integration_tests::ENV_SOAK` says.
const ENV_SOAK: &str = "TRACER_AGENT_SOAK";

/// The short form of a trial takes about three seconds.
const TIMES_A_MINUTE: u64 = 20;

/// What is read of others here: spools, and the texts and records of events.
const TARGETS: [&str; 3] = ["spool", "print", "format"];

fn run(args: &[String]) -> Result {
    let mut minutes: u64 = 10;
    let mut kinds = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--minutes" => minutes = args.next().ok_or("--minutes wants a number")?.parse()?,
            kind if KINDS.contains(&kind) => kinds.push(kind),
            other => {
                return Err(format!("unexpected argument: {other} (there are {})", KINDS.join(", ")).into());
            }
        }
    }
    let times = (minutes * TIMES_A_MINUTE).max(1).to_string();
    let wanted = |kind: &str| kinds.is_empty() || kinds.contains(&kind);
    if wanted("fuzz") {
        let seconds = (minutes * 60).max(1).to_string();
        let arguments = TARGETS.map(str::to_owned).into_iter().chain(["--seconds".to_owned(), seconds]);
        (super::fuzz::TASK.run)(&arguments.collect::<Vec<_>>())?;
    }
    if wanted("mutations") {
        super::mutations::run()?;
    }
    if wanted("guests") {
        process::run(&mut process::cargo(["xtask", "test", "--suite", "vm", LONG]))?;
    }
    let trials = match (wanted("live"), wanted("audit")) {
        (true, _) => LONG,
        (false, true) => "audit::soak::",
        (false, false) => return Ok(()),
    };
    // A process of its own: the variable is for it.
    process::run(process::cargo(["xtask", "test", "--suite", "live", trials]).env(ENV_SOAK, times))
}
