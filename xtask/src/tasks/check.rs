//! `cargo xtask check`

use super::setup::{Purpose, setup};
use super::test::WITH_ALL_FEATURES;
use super::{Task, comments, crates, dependencies, docs, fuzz, libraries, no_arguments};
use crate::{Result, process};

pub(super) const TASK: Task = Task {
    name: "check",
    args: "",
    about: "Formatting, clippy, documentation, crates, dependencies, the fuzzer, packages of libraries: what CI wants before it tests",
    run: check,
};

fn check(args: &[String]) -> Result {
    const STEPS: [&[&str]; 3] = [
        &["fmt", "--all", "--check"],
        // With every feature of the binary.
        &["clippy", "--workspace", "--all-targets", WITH_ALL_FEATURES, "--", "-Dwarnings"],
        // And without any, which leaves other code out.
        &["clippy", "--package=tracer-agent", "--package=cli", "--all-targets", "--", "-Dwarnings"],
    ];
    no_arguments(args)?;
    setup(Purpose::Run)?;
    for step in STEPS {
        process::run(&mut process::cargo(step))?;
    }
    comments::check()?;
    crates::check()?;
    docs::docs()?;
    dependencies::check()?;
    fuzz::check()?;
    libraries::check()
}
