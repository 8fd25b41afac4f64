//! Building the eBPF object with the compiler that builds the agent.
//!
//! | module | what it does |
//! |---|---|
//! | [`toolchain`] | finds the compiler, the sources of `core`, and the compiler's LLVM tools |
//! | `compile` | makes a static library of bitcode: one cargo inside another |
//! | `link` | makes the object from that library |
//!
//! Every crate that loads programs builds this one first, so it uses the standard library alone.

mod compile;
mod error;
mod link;
pub mod toolchain;

use std::env;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

pub use error::Error;
use toolchain::Toolchain;

/// The target of the programs.
pub const TARGET: &str = "bpfel-unknown-none";

/// Names a finished object, in place of which none is built.
pub const ENV_OBJECT: &str = "TRACER_AGENT_EBPF_OBJECT";

/// The file name of the object.
pub const OBJECT: &str = "tracer-agent-ebpf.o";

/// The package of the programs.
const PACKAGE: &str = "agent-ebpf";

/// The name of the static library in it.
const LIBRARY: &str = "tracer-agent-ebpf";

/// The build script of the crate that loads the programs.
///
/// Sets `TRACER_AGENT_EBPF` for its compilation to the path of the object. Its feature `debug-programs` puts
/// messages into the programs.
pub fn build_script() -> ExitCode {
    match provide() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn provide() -> Result<(), Error> {
    println!("cargo::rerun-if-env-changed={ENV_OBJECT}");
    let out_dir = directory("OUT_DIR")?;
    let object = if let Some(given) = given_object() {
        println!("cargo::rerun-if-changed={}", given.display());
        given
    } else {
        let manifest_dir = directory("CARGO_MANIFEST_DIR")?;
        let workspace = manifest_dir.ancestors().nth(2).unwrap_or(&manifest_dir);
        // The object itself is not watched: it is newer than the start of this script, which would run a
        // second time.
        for path in ["agent-ebpf/src", "agent-ebpf/Cargo.toml", "Cargo.toml", "Cargo.lock"] {
            println!("cargo::rerun-if-changed={}", workspace.join(path).display());
        }
        let toolchain = Toolchain::find()?;
        println!("cargo::rerun-if-changed={}", toolchain.rustc.display());
        let features: &[&str] =
            if env::var_os("CARGO_FEATURE_DEBUG_PROGRAMS").is_some() { &["diagnostics"] } else { &[] };
        let triple = env::var("TARGET").unwrap_or_default();
        let target_dir = target_dir(&out_dir, &triple).unwrap_or(&out_dir);
        Build { workspace, target_dir, features }.run(&toolchain)?
    };
    let copy = out_dir.join(OBJECT);
    fs::copy(&object, &copy).map_err(|error| Error::Io(object, error))?;
    println!("cargo::rustc-env=TRACER_AGENT_EBPF={}", copy.display());
    Ok(())
}

/// The object that the environment names.
pub fn given_object() -> Option<PathBuf> {
    env::var_os(ENV_OBJECT).map(PathBuf::from)
}

fn directory(variable: &'static str) -> Result<PathBuf, Error> {
    env::var_os(variable).map(PathBuf::from).ok_or(Error::NoBuildScript(variable))
}

/// Cargo's target directory around a build script's. The object is the same for all profiles and targets of
/// the agent, and cargo marks the directory of each target as well as the one of all.
fn target_dir<'a>(out_dir: &'a Path, triple: &str) -> Option<&'a Path> {
    let is_marked = |dir: &&Path| dir.join("CACHEDIR.TAG").exists();
    let nearest = out_dir.ancestors().find(is_marked)?;
    let is_of_triple = nearest.file_name().is_some_and(|name| name == triple);
    nearest.parent().filter(|parent| is_of_triple && is_marked(parent)).or(Some(nearest))
}

/// What to build.
#[derive(Debug, Clone, Copy)]
pub struct Build<'a> {
    /// The root of the workspace.
    pub workspace: &'a Path,
    /// Cargo's target directory. The object and what it is made from go below `ebpf` there, with a directory
    /// for each compiler and set of features.
    pub target_dir: &'a Path,
    /// Features of the package `agent-ebpf` beside `bpf`.
    pub features: &'a [&'a str],
}

impl Build<'_> {
    /// Builds the object unless it is up to date, and returns its path.
    pub fn run(&self, toolchain: &Toolchain) -> Result<PathBuf, Error> {
        let mut hasher = DefaultHasher::new();
        (&toolchain.rustc, &toolchain.version, self.features, compile::FLAGS, link::OPT, link::LLC)
            .hash(&mut hasher);
        let dir = self.target_dir.join("ebpf").join(format!("{:016x}", hasher.finish()));
        let at = |path: &Path| {
            let path = path.to_owned();
            move |error| Error::Io(path, error)
        };
        fs::create_dir_all(&dir).map_err(at(&dir))?;
        // Builds of several profiles may run at once.
        let lock_path = dir.join("lock");
        let lock = File::create(&lock_path).map_err(at(&lock_path))?;
        lock.lock().map_err(at(&lock_path))?;

        let library = compile::library(self, toolchain, &dir)?;
        let object = dir.join(OBJECT);
        if !is_newer(&object, &library) {
            link::link(toolchain, &library, &object)?;
        }
        Ok(object)
    }
}

fn is_newer(made: &Path, from: &Path) -> bool {
    let modified = |path: &Path| -> Option<SystemTime> { fs::metadata(path).ok()?.modified().ok() };
    modified(made).is_some_and(|made| modified(from).is_some_and(|from| made > from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_targets_and_profiles_share_a_directory() {
        let root = env::temp_dir().join(format!("ebpf-build-target-{}", std::process::id()));
        let script = |path: &str| {
            let dir = root.join(path);
            fs::create_dir_all(&dir).expect("a directory");
            dir
        };
        let host = script("debug/build/attach-1/out");
        let musl = script("x86_64-unknown-linux-musl/dist/build/attach-2/out");
        fs::write(root.join("CACHEDIR.TAG"), "").expect("a file");
        fs::write(root.join("x86_64-unknown-linux-musl/CACHEDIR.TAG"), "").expect("a file");
        for (out_dir, triple) in [(&host, "x86_64-unknown-linux-gnu"), (&musl, "x86_64-unknown-linux-musl")] {
            assert_eq!(target_dir(out_dir, triple), Some(root.as_path()), "{triple}");
        }
        // A target directory inside another's.
        fs::create_dir_all(root.join("inner/debug/out")).expect("a directory");
        fs::write(root.join("inner/CACHEDIR.TAG"), "").expect("a file");
        let inner = root.join("inner");
        assert_eq!(target_dir(&inner.join("debug/out"), "x86_64-unknown-linux-gnu"), Some(inner.as_path()));
        fs::remove_dir_all(&root).expect("clean up");
    }
}
