//! Why a package could not be made.

use std::{
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Output},
};

/// Why a package could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory cannot be read or written.
    #[error("cannot {action} {}: {cause}", path.display())]
    File {
        /// What was to be done with it.
        action: &'static str,
        /// Which one.
        path: PathBuf,
        /// The system's answer.
        cause: io::Error,
    },
    /// A program that makes packages cannot be run.
    #[error("cannot run {program}: {cause}; `cargo xtask setup --for dist` installs it")]
    Start {
        /// Its name.
        program: String,
        /// The system's answer.
        cause: io::Error,
    },
    /// A program has failed.
    #[error("{program} failed ({status}):\n{output}")]
    Program {
        /// Its name.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// What it said.
        output: String,
    },
    /// The time is none that dates are written for.
    #[error("{0} s since 1970 is not a time that a package can have")]
    Time(u64),
}

impl Error {
    /// For what an action on a file has as its error.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |cause| Self::File { action, path, cause }
    }
}

/// Runs a program of this machine to its end; what it printed.
pub(crate) fn run(command: &mut Command) -> Result<String, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.output() {
        Ok(output) => printed(program, output),
        Err(cause) => Err(Error::Start { program, cause }),
    }
}

/// Runs a file to its end; what it printed.
pub(crate) fn run_file(file: &Path, args: &[&OsStr]) -> Result<String, Error> {
    // A name without a directory would be looked for in PATH.
    let program = std::path::absolute(file).map_err(Error::file("find", file))?;
    let output = Command::new(program).args(args).output().map_err(Error::file("run", file))?;
    printed(file.display().to_string(), output)
}

fn printed(program: String, Output { status, stdout, stderr }: Output) -> Result<String, Error> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if status.success() {
        return Ok(text(&stdout));
    }
    let output = text(&stdout) + &text(&stderr);
    Err(Error::Program { program, status, output: output.trim_end().to_owned() })
}
