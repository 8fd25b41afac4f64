//! `cargo xtask build`

use super::Task;
use super::setup::{Purpose, setup};
use crate::{Result, process};

pub(super) const TASK: Task = Task {
    name: "build",
    args: "[CARGO-ARGS...]",
    about: "Builds target/release/tracer-agent with its eBPF programs\n\
            Arguments go to `cargo build`.",
    run: |args| {
        setup(Purpose::Run)?;
        build(args)
    },
};

/// Builds the recorder that everything else uses.
pub(super) fn build(args: &[String]) -> Result {
    process::run(process::cargo(["build", "--release", "--package", "tracer-agent"]).args(args))
}
