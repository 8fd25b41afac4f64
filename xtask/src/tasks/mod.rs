//! The tasks, one module each. A new one is a module and a line in [`TASKS`].

mod bench;
mod build;
mod check;
mod comments;
mod crates;
mod dependencies;
mod dist;
mod docs;
mod fuzz;
mod golden;
mod libraries;
mod mutations;
mod room;
mod run;
mod setup;
mod soak;
mod test;
mod vm;

use crate::Result;
pub(crate) use fuzz::compile as compile_for_fuzzer;

/// A task as the command line knows it.
pub(crate) struct Task {
    /// What it is called by.
    pub(crate) name: &'static str,
    /// Its arguments, for the help.
    pub(crate) args: &'static str,
    /// What it does; the first line is its summary. Tasks without one are for other tasks, and not in the
    /// help.
    pub(crate) about: &'static str,
    /// Does it.
    pub(crate) run: fn(&[String]) -> Result,
}

/// All tasks, in the order of the help.
pub(crate) const TASKS: &[Task] = &[
    setup::TASK,
    build::TASK,
    run::TASK,
    test::TASK,
    vm::TASK,
    fuzz::TASK,
    soak::TASK,
    golden::TASK,
    bench::TASK,
    bench::LOAD_TASK,
    check::TASK,
    crates::TASK,
    docs::TASK,
    dist::TASK,
];

/// Fails if a task that takes no arguments got some.
fn no_arguments(args: &[String]) -> Result {
    match args.first() {
        None => Ok(()),
        Some(arg) => Err(format!("unexpected argument: {arg}").into()),
    }
}
