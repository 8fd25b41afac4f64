//! Running other programs.

use std::env;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::Command;

use crate::Result;
use crate::workspace;

/// Cargo, at the root of the workspace.
pub(crate) fn cargo<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // `cargo run` describes this package to its child, and what is run from here is about other ones.
    for (name, _) in env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
        {
            command.env_remove(name);
        }
    }
    command.current_dir(workspace::root()).args(args);
    command
}

/// Shows the command, runs it and fails if it fails.
pub(crate) fn run(command: &mut Command) -> Result {
    eprintln!("$ {}", line(command));
    let status = command.status().map_err(|error| format!("{}: {error}", line(command)))?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", line(command)).into()) }
}

/// Runs the command and returns what it prints.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|error| format!("{}: {error}", line(command)))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}\n{}", line(command), output.status, stderr.trim()).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The command as one would type it.
pub(crate) fn line(command: &Command) -> String {
    let program = PathBuf::from(command.get_program());
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let args = command.get_args().map(|arg| quoted(&arg.to_string_lossy()));
    [name].into_iter().chain(args).collect::<Vec<_>>().join(" ")
}

fn quoted(arg: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=./,:@+~%".contains(&byte);
    if !arg.is_empty() && arg.bytes().all(plain) {
        arg.to_owned()
    } else {
        format!("'{}'", arg.replace('\'', r"'\''"))
    }
}

/// Where a program is on `PATH`.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(program)).find(|path| path.is_file())
}

/// True for root.
pub(crate) fn is_root() -> bool {
    // The owner of this directory is the user that the process runs as.
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// A program to be run as root: by itself, or through sudo; `None` if neither can be done.
pub(crate) fn as_root(program: impl AsRef<OsStr>) -> Option<Command> {
    if is_root() {
        return Some(Command::new(program));
    }
    let mut command = Command::new(find("sudo")?);
    command.arg("--").arg(program);
    Some(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_can_be_pasted() {
        let mut command = Command::new("/usr/bin/tracer-agent");
        command.args(["record", "-e", "sched:*", "it's", ""]);
        assert_eq!(line(&command), r"tracer-agent record -e 'sched:*' 'it'\''s' ''");
    }
}
