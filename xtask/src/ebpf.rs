//! Building the eBPF object: one cargo inside another.
//!
//! The inner cargo must see nothing of the outer one. It gets a target directory of its own (the outer cargo
//! holds the lock of its own while build scripts run), and none of the variables by which the outer one
//! passes compiler, flags and wrappers down (`cargo clippy` would have the programs checked by clippy's
//! driver instead of compiled).

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::toolchain::{Core, Missing, Pair, TARGET};

/// The package of the programs.
pub const PACKAGE: &str = "agent-ebpf";

/// The object's name.
pub const BINARY: &str = "tracer-agent-ebpf";

/// Why there is no object.
#[derive(Debug)]
pub enum BuildError {
    /// The compiler or the linker is missing.
    Toolchain(Missing),
    /// A file could not be written.
    Io(PathBuf, io::Error),
    /// The inner cargo failed.
    Cargo {
        /// The pair that it used.
        pair: Box<Pair>,
        /// Everything that it printed.
        output: String,
    },
}

impl Error for BuildError {}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Toolchain(missing) => missing.fmt(f),
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Cargo { pair, output } => {
                writeln!(f, "{}", output.trim_end())?;
                writeln!(f, "the eBPF programs did not build")?;
                writeln!(f, "  compiler: {}", pair.compiler.title())?;
                write!(f, "  linker:   {}", pair.linker.title())
            }
        }
    }
}

/// A finished object.
#[derive(Debug)]
pub struct Object {
    /// The file.
    pub path: PathBuf,
    /// What made it.
    pub pair: Pair,
}

/// What to build.
#[derive(Debug, Clone, Copy)]
pub struct Build<'a> {
    /// The root of the workspace.
    pub workspace: &'a Path,
    /// Where the inner cargo works; a directory for each pair and set of features is made in it.
    pub target_dir: &'a Path,
    /// Features of the package beside `bpf`.
    pub features: &'a [&'a str],
}

impl Build<'_> {
    /// Builds the object, or finds it up to date.
    pub fn run(&self) -> Result<Object, BuildError> {
        let pair = Pair::find().map_err(BuildError::Toolchain)?;
        // Cargo does not notice another linker, and the object has one name whatever its features are: so
        // each has its own directory.
        let mut hasher = DefaultHasher::new();
        (pair.stamp(), self.features).hash(&mut hasher);
        let target_dir = self.target_dir.join(format!("{:016x}", hasher.finish()));
        let features = ["bpf"].iter().chain(self.features).copied().collect::<Vec<_>>().join(",");

        let mut cargo = Command::new(pair.compiler.cargo.clone().unwrap_or_else(outer_cargo));
        for (name, _) in env::vars_os() {
            if name.to_str().is_some_and(belongs_to_outer_cargo) {
                cargo.env_remove(name);
            }
        }
        cargo
            .current_dir(self.workspace)
            .args(["build", "--release", "--locked", "--package", PACKAGE, "--bin", BINARY])
            .args(["--features", &features, "--target", TARGET])
            .arg("--target-dir")
            .arg(&target_dir)
            .env("RUSTC", &pair.compiler.rustc)
            .env("RUSTC_BOOTSTRAP", "1")
            // Empty, not unset: a user's configuration may name a wrapper too.
            .env("RUSTC_WRAPPER", "")
            .env("RUSTC_WORKSPACE_WRAPPER", "")
            .env("CARGO_ENCODED_RUSTFLAGS", flags(&pair))
            .env("CARGO_INCREMENTAL", "0")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
            // bpf-linker links bitcode: it is the whole-program optimizer.
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            // DWARF is what the linker makes BTF from: map types, and source lines in the verifier's log.
            .env("CARGO_PROFILE_RELEASE_DEBUG", "2");
        if pair.compiler.core == Core::Source {
            cargo.args(["-Z", "build-std=core"]);
        }
        if let Some(library) = pair.llvm_library() {
            let dir = target_dir.join("llvm");
            lone_link(&dir, &library).map_err(|error| BuildError::Io(dir.clone(), error))?;
            cargo.env("LD_LIBRARY_PATH", dir);
        }
        let output =
            cargo.output().map_err(|error| BuildError::Io(PathBuf::from(cargo.get_program()), error))?;
        if !output.status.success() {
            let output = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(BuildError::Cargo { pair: Box::new(pair), output });
        }
        Ok(Object { path: target_dir.join(TARGET).join("release").join(BINARY), pair })
    }
}

fn flags(pair: &Pair) -> OsString {
    let mut flags = OsString::from("-Clinker=");
    flags.push(&pair.linker.path);
    // v3 (atomics, 32-bit jumps) is in every kernel since 5.12. No type information is put in: the programs
    // do not need it, and the verifier refuses the line numbers that come with it where an empty inline
    // assembly shares its neighbour's place.
    flags.push("\u{1f}-Ctarget-cpu=v3");
    flags
}

fn outer_cargo() -> PathBuf {
    env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
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

/// Makes `dir` a directory that holds a link to `library` and nothing else.
fn lone_link(dir: &Path, library: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let link = dir.join("libLLVM.so");
    if fs::read_link(&link).is_ok_and(|target| target == library) {
        return Ok(());
    }
    // Two builds may come here at once: make it beside, then rename.
    let beside = dir.join(format!("new-{}", std::process::id()));
    symlink(library, &beside)?;
    fs::rename(&beside, &link)
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

    #[test]
    fn the_link_follows_the_compiler() {
        let dir = env::temp_dir().join(format!("xtask-link-{}", std::process::id()));
        for library in ["/lib/a.so", "/lib/b.so"] {
            lone_link(&dir, Path::new(library)).expect("link");
            assert_eq!(fs::read_link(dir.join("libLLVM.so")).expect("read"), Path::new(library));
        }
        assert_eq!(fs::read_dir(&dir).expect("list").count(), 1);
        fs::remove_dir_all(&dir).expect("clean up");
    }
}
