//! `cargo xtask docs`

use std::fs;
use std::path::Path;
use std::process::Command;

use super::setup::{Purpose, setup};
use super::test::WITH_ALL_FEATURES;
use super::{Task, build, no_arguments};
use crate::workspace::target_dir;
use crate::{Result, process};

pub(super) const TASK: Task = Task {
    name: "docs",
    args: "",
    about: "Builds the API documentation, man pages and completions for shells; a warning is an error\n\
            Private items are included: the documentation is for those who work on the project. Man pages and completions\n\
            of bash, zsh and fish are in target/manuals, and parts of docs in target/manuals/reference.",
    run: |args| {
        no_arguments(args)?;
        setup(Purpose::Run)?;
        docs()?;
        let dir = target_dir().join("manuals");
        let agent = build::unoptimised()?;
        manuals(&agent, &dir)?;
        reference(&agent, &dir)?;
        println!("{}", dir.display());
        Ok(())
    },
};

/// Builds the API documentation.
pub(super) fn docs() -> Result {
    // The features of other builds: with others, crates of others would be checked once more.
    let mut cargo = process::cargo(["doc", "--workspace", "--no-deps", "--document-private-items"]);
    cargo.arg(WITH_ALL_FEATURES);
    process::run(cargo.env("RUSTDOCFLAGS", "-Dwarnings"))
}

/// Writes the man pages and completions of a program below a directory.
pub(super) fn manuals(agent: &Path, dir: &Path) -> Result {
    process::run(Command::new(agent).args(["generate", "man"]).arg(dir.join("man")))?;
    let scripts = [("bash", "tracer-agent.bash"), ("zsh", "_tracer-agent"), ("fish", "tracer-agent.fish")];
    for (shell, name) in scripts {
        write(agent, &["completions", shell], &dir.join("completions").join(name))?;
    }
    Ok(())
}

/// Writes the parts of documents that the program generates below a directory.
fn reference(agent: &Path, dir: &Path) -> Result {
    for (document, name) in [("config", "configuration.md"), ("metrics", "metrics.md")] {
        write(agent, &["generate", document], &dir.join("reference").join(name))?;
    }
    Ok(())
}

/// Writes the output of a command line to a file, in a directory that is created if need be.
fn write(agent: &Path, args: &[&str], file: &Path) -> Result {
    let text = process::output(Command::new(agent).args(args))?;
    fs::create_dir_all(file.parent().ok_or("a file without a directory")?)?;
    Ok(fs::write(file, text)?)
}
