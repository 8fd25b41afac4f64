//! Builds the eBPF programs and tells the crate where the object is (`TRACER_AGENT_EBPF`).
//!
//! `TRACER_AGENT_EBPF_OBJECT=/path` uses that object instead, for packagers and documentation builders that
//! have no compiler for BPF.

fn main() {
    if let Err(error) = record::run() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

mod record {
    use std::env;
    use std::error::Error;
    use std::fs;
    use std::path::{Path, PathBuf};

    use xtask::ebpf::{BINARY, Build};
    use xtask::toolchain::{ENV_LINKER, ENV_RUSTC};

    const ENV_OBJECT: &str = "TRACER_AGENT_EBPF_OBJECT";

    pub(super) fn run() -> Result<(), Box<dyn Error>> {
        for name in [ENV_OBJECT, ENV_RUSTC, ENV_LINKER] {
            println!("cargo::rerun-if-env-changed={name}");
        }
        let out_dir = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
        let object = match env::var_os(ENV_OBJECT) {
            Some(given) => {
                let given = PathBuf::from(given);
                println!("cargo::rerun-if-changed={}", given.display());
                given
            }
            // Its sources are watched. The object itself is newer than the start of this script, so to watch
            // it would run the script a second time for nothing.
            None => build(&out_dir)?,
        };
        let copy = out_dir.join(BINARY);
        fs::copy(&object, &copy).map_err(|error| format!("{}: {error}", object.display()))?;
        println!("cargo::rustc-env=TRACER_AGENT_EBPF={}", copy.display());
        Ok(())
    }

    fn build(out_dir: &Path) -> Result<PathBuf, Box<dyn Error>> {
        let manifest_dir =
            PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("CARGO_MANIFEST_DIR is not set")?);
        let workspace = manifest_dir.ancestors().nth(2).ok_or("the package is not in its workspace")?;
        for path in ["agent-ebpf/src", "agent-ebpf/Cargo.toml", "Cargo.toml", "Cargo.lock"] {
            println!("cargo::rerun-if-changed={}", workspace.join(path).display());
        }
        // One directory for all profiles and targets of the agent: the object is the same for each. Cargo
        // marks the root of its target directory, wherever that is.
        let target_dir =
            out_dir.ancestors().find(|dir| dir.join("CACHEDIR.TAG").exists()).unwrap_or(out_dir).join("ebpf");
        let features: &[&str] = if cfg!(feature = "debug-programs") { &["diagnostics"] } else { &[] };
        let object = Build { workspace, target_dir: &target_dir, features }.run()?;
        println!("cargo::rerun-if-changed={}", object.pair.compiler.rustc.display());
        println!("cargo::rerun-if-changed={}", object.pair.linker.path.display());
        Ok(object.path)
    }
}
