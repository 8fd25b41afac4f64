use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::ENV_OBJECT;

/// Why there is no object.
#[derive(Debug)]
pub enum Error {
    /// The compiler does not run.
    NoCompiler {
        /// Its path or name.
        rustc: PathBuf,
        /// The reason.
        why: String,
    },
    /// The toolchain is one of rustup's and lacks components.
    Components {
        /// rustup's name of it.
        toolchain: String,
        /// The components.
        missing: Vec<&'static str>,
    },
    /// The compiler lacks the sources of `core` or LLVM's tools, and rustup does not manage it.
    Unmanaged {
        /// The compiler.
        rustc: PathBuf,
        /// What rustup calls that.
        missing: Vec<&'static str>,
    },
    /// A variable that cargo sets for build scripts is missing.
    NoBuildScript(&'static str),
    /// A file could not be read or written.
    Io(PathBuf, io::Error),
    /// A program that takes part in the build failed.
    Program {
        /// Its path.
        program: PathBuf,
        /// Its messages.
        output: String,
    },
    /// The static library has no programs.
    NoPrograms(PathBuf),
}

impl Error {
    /// The arguments of `rustup` that add components.
    pub fn rustup_args<'a>(toolchain: &'a str, missing: &[&'a str]) -> Vec<&'a str> {
        [&["component", "add", "--toolchain", toolchain][..], missing].concat()
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCompiler { rustc, why } => write!(f, "{}: {why}", rustc.display()),
            Self::Components { toolchain, missing } => write!(
                f,
                "the eBPF programs need components that the toolchain {toolchain} lacks. Run:\n  rustup {}",
                Self::rustup_args(toolchain, missing).join(" ")
            ),
            Self::Unmanaged { rustc, missing } => write!(
                f,
                "the eBPF programs need {}, which {} has not, and rustup does not manage that compiler.\n\
                 Install rustup (https://rustup.rs) and run:\n  rustup component add {}\n\
                 Or set {ENV_OBJECT} to the path of a finished object.",
                missing.join(" and "),
                rustc.display(),
                missing.join(" ")
            ),
            Self::NoBuildScript(variable) => write!(f, "{variable} is not set: this is no build script"),
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Program { program, output } => {
                writeln!(f, "{}", output.trim_end())?;
                write!(f, "the eBPF programs did not build: {} failed", program.display())
            }
            Self::NoPrograms(library) => write!(f, "{}: no programs", library.display()),
        }
    }
}
