//! `cargo xtask build`

use std::path::PathBuf;

use super::Task;
use super::setup::{Purpose, setup};
use crate::{Result, process, workspace};

pub(super) const TASK: Task = Task {
    name: "build",
    args: "[CARGO-ARGS...]",
    about: "Builds target/release/tracer-agent with its eBPF programs and all features\n\
            Arguments go to `cargo build`.",
    run: |args| {
        announce();
        setup(Purpose::Run)?;
        build(&["full"], args)
    },
};

/// Prints how long it takes, where that is long: before anything is installed or built.
pub(super) fn announce() {
    if !workspace::agent().exists() {
        eprintln!("xtask: the first build takes 3 to 10 minutes on 2 cores, later ones take seconds");
    }
}

/// Builds the recorder for people at work: fast to make. `args` are cargo's.
pub(super) fn build(features: &[&str], args: &[String]) -> Result {
    let mut cargo =
        process::cargo(["build", "--release", "--package", "tracer-agent", "--bin", "tracer-agent"]);
    if !features.is_empty() {
        cargo.arg("--features").arg(features.join(","));
    }
    process::run(cargo.args(args))
}

/// Builds the recorder as it is given to users, for measuring, and says where it is.
pub(super) fn measured() -> Result<PathBuf> {
    process::run(&mut process::cargo([
        "build",
        "--profile=dist",
        "--package=tracer-agent",
        "--bin=tracer-agent",
        "--features=full",
    ]))?;
    Ok(workspace::target_dir().join("dist/tracer-agent"))
}

/// Builds the recorder with all features in the profile of tests; its path.
pub(super) fn unoptimised() -> Result<PathBuf> {
    process::run(&mut process::cargo([
        "build",
        "--locked",
        "--package=tracer-agent",
        "--bin=tracer-agent",
        "--features=full",
    ]))?;
    Ok(workspace::target_dir().join("debug/tracer-agent"))
}
