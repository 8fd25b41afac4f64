//! Where things are.

use std::env;
use std::path::{Path, PathBuf};

/// The root of the workspace.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// Cargo's target directory.
pub(crate) fn target_dir() -> PathBuf {
    // A relative one counts from where the caller is, as cargo has it.
    env::var_os("CARGO_TARGET_DIR")
        .map(PathBuf::from)
        .and_then(|dir| std::path::absolute(dir).ok())
        .unwrap_or_else(|| root().join("target"))
}

/// The target of binaries that run on any distribution.
pub(crate) const STATIC_TARGET: &str = "x86_64-unknown-linux-musl";

/// The recorder that `cargo xtask build` makes.
pub(crate) fn agent() -> PathBuf {
    target_dir().join("release/tracer-agent")
}
