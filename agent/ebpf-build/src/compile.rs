//! The static library of the programs and of all that they use, as bitcode.
//!
//! A static library takes no linker, and there is none for this target in a toolchain.
//!
//! The inner cargo must see nothing of the outer one. It gets a target directory of its own (the outer cargo
//! holds the lock of its own while build scripts run), and none of the variables by which the outer one
//! passes compiler, flags and wrappers down (`cargo clippy` would have the programs checked by clippy's
//! driver instead of compiled).

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::toolchain::Toolchain;
use crate::{Build, Error, LIBRARY, PACKAGE, TARGET};

/// The compiler's flags beside those of paths: v3 (atomics, 32-bit jumps) is in every kernel since 5.12.
pub(crate) const FLAGS: [&str; 1] = ["-Ctarget-cpu=v3"];

/// Builds the library, or finds it up to date.
pub(crate) fn library(build: &Build<'_>, toolchain: &Toolchain, dir: &Path) -> Result<PathBuf, Error> {
    let features = ["bpf"].iter().chain(build.features).copied().collect::<Vec<_>>().join(",");
    let mut cargo = Command::new(&toolchain.cargo);
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(belongs_to_outer_cargo) {
            cargo.env_remove(name);
        }
    }
    cargo
        .current_dir(build.workspace)
        .args(["build", "--release", "--locked", "--package", PACKAGE, "--example", LIBRARY])
        .args(["--features", &features, "--target", TARGET, "-Zbuild-std=core"])
        .arg("--target-dir")
        .arg(dir)
        .env("RUSTC", &toolchain.rustc)
        .env("RUSTC_BOOTSTRAP", "1")
        // Empty, not unset: a user's configuration may name a wrapper too.
        .env("RUSTC_WRAPPER", "")
        .env("RUSTC_WORKSPACE_WRAPPER", "")
        .env("CARGO_ENCODED_RUSTFLAGS", flags(build, toolchain))
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3")
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        // The whole program is optimised when it is linked.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        // The programs need no BTF, and the verifier refuses its line numbers where an empty inline assembly
        // shares its neighbour's place.
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false");
    if let Some(jobs) = env::var_os("NUM_JOBS") {
        cargo.arg("--jobs").arg(jobs);
    }
    let output = cargo.output().map_err(|error| Error::Io(toolchain.cargo.clone(), error))?;
    if !output.status.success() {
        let output = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Error::Program { program: toolchain.cargo.clone(), output });
    }
    let name = format!("lib{}.a", LIBRARY.replace('-', "_"));
    Ok(dir.join(TARGET).join("release/examples").join(name))
}

/// The flags, separated as cargo wants them. No path of the machine goes into the object.
fn flags(build: &Build<'_>, toolchain: &Toolchain) -> OsString {
    let cargo_home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::home_dir().map(|home| home.join(".cargo")))
        .unwrap_or_default();
    let places = [
        (cargo_home, "/cargo"),
        (toolchain.sysroot.join("lib/rustlib/src/rust"), "/rust"),
        (build.workspace.to_owned(), "/tracer-agent"),
    ];
    let mut flags = OsString::from(FLAGS.join("\u{1f}"));
    for (from, to) in places.iter().filter(|(from, _)| !from.as_os_str().is_empty()) {
        flags.push("\u{1f}--remap-path-prefix=");
        flags.push(from);
        flags.push("=");
        flags.push(to);
    }
    flags
}

/// True for what the outer cargo sets for its children; false for what a user sets about the network and the
/// registry.
fn belongs_to_outer_cargo(name: &str) -> bool {
    const OF_THE_USER: [&str; 6] =
        ["CARGO_HOME", "CARGO_NET_", "CARGO_HTTP_", "CARGO_REGISTR", "CARGO_SOURCE_", "CARGO_TERM_"];
    const OF_CARGO: [&str; 5] = ["CARGO", "RUSTC", "RUSTDOC", "RUSTFLAGS", "__CARGO"];
    const EXACT: [&str; 9] = [
        "RUSTUP_TOOLCHAIN",
        "TARGET",
        "HOST",
        "OUT_DIR",
        "PROFILE",
        "OPT_LEVEL",
        "DEBUG",
        "NUM_JOBS",
        "MAKEFLAGS",
    ];
    let starts = |list: &[&str]| list.iter().any(|prefix| name.starts_with(prefix));
    !starts(&OF_THE_USER) && (starts(&OF_CARGO) || EXACT.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outer_cargo_is_hidden_and_the_users_settings_are_kept() {
        for name in [
            "CARGO",
            "CARGO_MAKEFLAGS",
            "CARGO_BUILD_TARGET",
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTFLAGS",
            "TARGET",
        ] {
            assert!(belongs_to_outer_cargo(name), "{name}");
        }
        for name in ["CARGO_HOME", "CARGO_NET_OFFLINE", "CARGO_HTTP_PROXY", "PATH", "TARGETS", "RUSTUP_HOME"]
        {
            assert!(!belongs_to_outer_cargo(name), "{name}");
        }
    }
}
