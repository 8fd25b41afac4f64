//! `cargo xtask docs`

use std::path::Path;

use super::setup::{Purpose, setup};
use super::{Task, no_arguments};
use crate::workspace::target_dir;
use crate::{Result, process};

pub(super) const TASK: Task = Task {
    name: "docs",
    args: "",
    about: "Builds the API documentation, man pages and completions for shells; a warning is an error\n\
            Private items are included: the documentation is for those who work on the project. Man pages and completions\n\
            of bash, zsh and fish are in target/manuals.",
    run: |args| {
        no_arguments(args)?;
        setup(Purpose::Run)?;
        docs()?;
        let dir = target_dir().join("manuals");
        manuals(&dir)?;
        println!("{}", dir.display());
        Ok(())
    },
};

/// Builds the API documentation.
pub(super) fn docs() -> Result {
    let mut cargo = process::cargo(["doc", "--workspace", "--no-deps", "--document-private-items"]);
    process::run(cargo.env("RUSTDOCFLAGS", "-Dwarnings"))
}

/// Writes the man pages and completions below a directory.
///
/// The crate that does it links the whole program, in the profile that tests build in anyway.
pub(super) fn manuals(dir: &Path) -> Result {
    let args = ["run", "--quiet", "--locked", "--package", "manuals", "--"];
    process::run(process::cargo(args).arg(dir))
}
