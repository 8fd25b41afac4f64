//! `cargo xtask check`

use super::setup::{Purpose, setup};
use super::{Task, comments, dependencies, docs, layers, no_arguments};
use crate::{Result, process};

pub(super) const TASK: Task = Task {
    name: "check",
    args: "",
    about: "Formatting, clippy, floors, documentation, dependencies: what CI wants before it tests\n\
            Also checks the library without the feature `record`, as a parser of trace files alone.",
    run: check,
};

fn check(args: &[String]) -> Result {
    const STEPS: [&[&str]; 4] = [
        &["fmt", "--all", "--check"],
        &["clippy", "--workspace", "--all-targets", "--", "-Dwarnings"],
        &["clippy", "--workspace", "--lib", "--features", "tracer-agent/debug-programs", "--", "-Dwarnings"],
        &[
            "clippy",
            "--package",
            "tracer-agent",
            "--no-default-features",
            "--all-targets",
            "--",
            "-Dwarnings",
        ],
    ];
    no_arguments(args)?;
    setup(Purpose::Run)?;
    for step in STEPS {
        process::run(&mut process::cargo(step))?;
    }
    comments::check()?;
    layers::check()?;
    docs::docs()?;
    dependencies::check()
}
