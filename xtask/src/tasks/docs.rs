//! `cargo xtask docs`

use super::setup::{Purpose, setup};
use super::{Task, no_arguments};
use crate::{Result, process};

pub(super) const TASK: Task = Task {
    name: "docs",
    args: "",
    about: "Builds the API documentation; a warning is an error\n\
            Private items are included: the documentation is for those who work on the project.",
    run: |args| {
        no_arguments(args)?;
        setup(Purpose::Run)?;
        docs()
    },
};

/// Builds the documentation.
pub(super) fn docs() -> Result {
    let mut cargo = process::cargo(["doc", "--workspace", "--no-deps", "--document-private-items"]);
    process::run(cargo.env("RUSTDOCFLAGS", "-Dwarnings"))
}
