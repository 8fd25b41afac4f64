//! `view`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use super::super::address::is_relay;
use super::super::at::{At, Done, Failure};
use super::OfSession;
use super::program::find;
use api::{Format, SessionMode};

/// Print what a session recorded
#[derive(Args, Debug)]
pub struct View {
    #[command(flatten)]
    pub of: OfSession,

    /// The program to print with [default: babeltrace2, or `tracer-agent report` for trace.dat files]
    #[arg(short = 'e', long, value_name = "READER")]
    pub viewer: Option<String>,

    /// A directory or file instead of the session's
    #[arg(short, long, value_name = "PATH")]
    pub trace_path: Option<PathBuf>,
}

/// The readers of CTF, the first that is there.
const READERS: [&str; 2] = ["babeltrace2", "babeltrace"];

impl View {
    pub fn run(&self, at: &mut At) -> Done {
        let (path, format) = self.place(at)?;
        let files = match format {
            Format::Lttng => vec![path.clone()],
            Format::TraceDat => recordings(&path),
        };
        if files.is_empty() {
            return Err(Failure::new(format!("There is no recording in {}", path.display())));
        }
        let mut command = self.reader(format)?;
        command.args(&files);
        let name = command.get_program().to_string_lossy().into_owned();
        match command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Failure::new(format!("{name}: {status}"))),
            Err(error) => Err(Failure::new(format!("Cannot start {name}: {error}"))),
        }
    }

    fn place(&self, at: &mut At) -> Result<(PathBuf, Format), Failure> {
        if let Some(path) = &self.trace_path {
            let is_dat = path.is_file() || !recordings(path).is_empty();
            return Ok((path.clone(), if is_dat { Format::TraceDat } else { Format::Lttng }));
        }
        let name = at.session(self.of.session.as_deref())?;
        let session = at.client()?.session(&name)?;
        let path = match (session.summary.mode, session.snapshot_outputs.into_iter().next()) {
            (SessionMode::Local { output: Some(path) } | SessionMode::Served { output: path, .. }, _) => path,
            (SessionMode::Snapshot | SessionMode::Local { output: None }, Some(output))
                if !is_relay(&output.path) =>
            {
                output.path
            }
            _ => {
                let what = format!("Session {name} writes no files here");
                return Err(Failure::new(format!(
                    "{what}; what a relay daemon has is read with babeltrace2 there"
                )));
            }
        };
        Ok((path, session.summary.format))
    }

    fn reader(&self, format: Format) -> Result<Command, Failure> {
        if let Some(viewer) = &self.viewer {
            let mut words = viewer.split_whitespace();
            let program = words.next().ok_or_else(|| Failure::new("No program in --viewer"))?;
            let mut command = Command::new(program);
            command.args(words);
            return Ok(command);
        }
        match format {
            Format::Lttng => {
                let reader = READERS.into_iter().find_map(find);
                let none = || Failure::new("Install babeltrace2, or name another program with --viewer");
                Ok(Command::new(reader.ok_or_else(none)?))
            }
            Format::TraceDat => {
                let own = std::env::current_exe();
                let mut command = Command::new(own.map_err(|error| Failure::new(error.to_string()))?);
                command.arg("report");
                Ok(command)
            }
        }
    }
}

/// The trace.dat files at a place, or in a directory and in the one of its archives, in the order of their
/// names.
fn recordings(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let inside = |dir: &Path| {
        let entries = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let mut files = inside(path);
    files.extend(inside(&path.join("archives")));
    files.retain(|file| file.extension().is_some_and(|of| of == "dat") && file.is_file());
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_are_found() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("archives")).unwrap();
        for name in ["trace.dat", "other", "archives/one.dat"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let found = recordings(dir.path());
        assert_eq!(found, ["archives/one.dat", "trace.dat"].map(|name| dir.path().join(name)));
        assert_eq!(recordings(&dir.path().join("other")).len(), 1);
        assert!(recordings(&dir.path().join("none")).is_empty());
    }
}
