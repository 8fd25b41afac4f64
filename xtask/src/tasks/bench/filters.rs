//! `cargo xtask bench filters`: what each kind of predicate costs in the kernel.

use crate::tasks::setup::{Purpose, setup};
use crate::{Result, process, workspace};

/// The program that measures, an example of the library's use.
const EXAMPLE: &str = "filter_cost";

pub(super) fn run() -> Result {
    setup(Purpose::Run)?;
    process::run(&mut process::cargo([
        "build",
        "--profile=dist",
        "--package",
        "attach",
        "--example",
        EXAMPLE,
    ]))?;
    let program = workspace::target_dir().join("dist/examples").join(EXAMPLE);
    let mut root =
        process::as_root(program).ok_or("loading filters needs root, and there is no sudo to become it")?;
    process::run(&mut root)
}
