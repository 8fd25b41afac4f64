//! The compiler that builds the agent, and the parts of its toolchain that BPF needs.
//!
//! No release of Rust has `core` for BPF: it is built from the component `rust-src`. `build-std` and the BPF
//! intrinsics in the programs are unstable, and `RUSTC_BOOTSTRAP=1` opens them in any compiler. The component
//! `llvm-tools` has the compiler's own LLVM, which reads its bitcode whatever the version.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;

/// The file that the component `rust-src` is recognised by, in the sysroot.
const CORE: &str = "lib/rustlib/src/rust/library/core/src/lib.rs";

/// LLVM's programs that make the object.
const TOOLS: [&str; 4] = ["llvm-link", "llvm-nm", "opt", "llc"];

/// A compiler that can build for BPF.
#[derive(Debug, Clone)]
pub struct Toolchain {
    /// The compiler itself, not a proxy of rustup.
    pub rustc: PathBuf,
    /// Its cargo.
    pub cargo: PathBuf,
    /// The output of `rustc -vV`.
    pub version: String,
    /// The directory of its libraries and sources.
    pub sysroot: PathBuf,
    /// The directory of its LLVM tools.
    pub tools: PathBuf,
}

impl Toolchain {
    /// Finds the compiler of the cargo that runs this process, else the one on `PATH`. It has all that BPF
    /// needs.
    pub fn find() -> Result<Self, Error> {
        let toolchain = Self::find_any()?;
        toolchain.check()?;
        Ok(toolchain)
    }

    /// Finds the same compiler, whatever it lacks.
    pub fn find_any() -> Result<Self, Error> {
        let cargo = env::var_os("CARGO").map(PathBuf::from);
        let beside = cargo.as_ref().map(|cargo| cargo.with_file_name("rustc")).filter(|path| path.is_file());
        let rustc = env::var_os("RUSTC").map(PathBuf::from).or(beside).unwrap_or_else(|| "rustc".into());
        let version = stdout_of(&rustc, &["-vV"])?;
        let sysroot = PathBuf::from(stdout_of(&rustc, &["--print", "sysroot"])?.trim());
        let rustc = Some(sysroot.join("bin/rustc")).filter(|path| path.is_file()).unwrap_or(rustc);
        let cargo = Some(sysroot.join("bin/cargo"))
            .filter(|path| path.is_file())
            .or(cargo)
            .unwrap_or_else(|| "cargo".into());
        let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
        let tools = sysroot.join("lib/rustlib").join(host).join("bin");
        Ok(Self { rustc, cargo, version, sysroot, tools })
    }

    fn check(&self) -> Result<(), Error> {
        let mut missing = Vec::new();
        if !self.sysroot.join(CORE).is_file() {
            missing.push("rust-src");
        }
        if TOOLS.iter().any(|tool| !self.tools.join(tool).is_file()) {
            missing.push("llvm-tools");
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(match rustup_name(&self.sysroot) {
            Some(toolchain) => Error::Components { toolchain, missing },
            None => Error::Unmanaged { rustc: self.rustc.clone(), missing },
        })
    }

    /// One line for messages.
    pub fn title(&self) -> String {
        format!("{} ({})", self.rustc.display(), self.version.lines().next().unwrap_or("rustc"))
    }
}

/// rustup keeps its toolchains in a directory of that name.
fn rustup_name(sysroot: &Path) -> Option<String> {
    let parent = sysroot.parent()?.file_name()?;
    (parent == "toolchains").then(|| sysroot.file_name().unwrap_or_default().to_string_lossy().into_owned())
}

fn stdout_of(rustc: &Path, args: &[impl AsRef<OsStr>]) -> Result<String, Error> {
    let failed = |why: String| Error::NoCompiler { rustc: rustc.to_owned(), why };
    let output = Command::new(rustc).args(args).output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn toolchain(sysroot: &Path) -> Toolchain {
        Toolchain {
            rustc: sysroot.join("bin/rustc"),
            cargo: sysroot.join("bin/cargo"),
            version: String::new(),
            sysroot: sysroot.to_owned(),
            tools: sysroot.join("tools"),
        }
    }

    #[test]
    fn a_toolchain_of_rustup_names_the_command_that_completes_it() {
        let root = env::temp_dir().join(format!("ebpf-build-toolchain-{}", std::process::id()));
        let sysroot = root.join("toolchains/stable-x86_64-unknown-linux-gnu");
        let toolchain = toolchain(&sysroot);
        let create = |path: &Path| {
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(path, "").expect("a file");
        };
        let command =
            |names: &str| format!("rustup component add --toolchain stable-x86_64-unknown-linux-gnu {names}");
        let text = |result: Result<(), Error>| result.expect_err("incomplete").to_string();

        assert!(text(toolchain.check()).ends_with(&command("rust-src llvm-tools")));
        create(&sysroot.join(CORE));
        assert!(text(toolchain.check()).ends_with(&command("llvm-tools")));
        for tool in TOOLS {
            create(&toolchain.tools.join(tool));
        }
        toolchain.check().expect("complete");
        fs::remove_dir_all(&root).expect("clean up");
    }

    #[test]
    fn another_toolchain_names_the_way_without_a_compiler() {
        let error = toolchain(Path::new("/nonexistent/usr")).check().expect_err("incomplete");
        assert!(matches!(&error, Error::Unmanaged { missing, .. } if missing == &["rust-src", "llvm-tools"]));
        assert!(error.to_string().contains("TRACER_AGENT_EBPF_OBJECT"));
    }
}
