//! The recorders that are compared. A new one is a function here that makes its [`Recorder`].

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::sys;
use crate::{Result, process};

/// Size of each CPU's ring, for all recorders.
pub(super) const RING_KB: u32 = 4096;

/// A program that records events while it runs a command.
pub(super) struct Recorder {
    pub(super) name: String,
    program: PathBuf,
    /// Its arguments before the command: the events to record, and the file to write.
    arguments: fn(&[&str], &Path) -> Vec<OsString>,
    /// What the file holds.
    count: fn(&Path) -> Result<Counts>,
}

/// Events, as a recorder's file counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) recorded: u64,
    pub(super) lost: u64,
}

impl Recorder {
    /// A build of tracer-agent.
    pub(super) fn agent(name: &str, program: PathBuf) -> Self {
        Self { name: name.to_owned(), program, arguments: trace_cmd_arguments, count: trace_cmd_counts }
    }

    /// The `trace-cmd` of this machine.
    pub(super) fn trace_cmd() -> Result<Self> {
        let program =
            process::find("trace-cmd").ok_or("there is no trace-cmd on this machine to compare with")?;
        Ok(Self {
            name: "trace-cmd".into(),
            program,
            arguments: trace_cmd_arguments,
            count: trace_cmd_counts,
        })
    }

    /// The command line that records `events` into `file` while `load` runs.
    pub(super) fn command(&self, events: &[&str], file: &Path, load: &Command) -> Command {
        let mut command = Command::new(&self.program);
        command.args((self.arguments)(events, file)).arg(load.get_program()).args(load.get_args());
        command
    }

    pub(super) fn count(&self, file: &Path) -> Result<Counts> {
        (self.count)(file)
    }
}

/// tracer-agent and trace-cmd take the same ones.
fn trace_cmd_arguments(events: &[&str], file: &Path) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["record".into(), "-b".into(), RING_KB.to_string().into()];
    args.extend(events.iter().flat_map(|event| ["-e".into(), OsString::from(event)]));
    args.extend(["-o".into(), file.into()]);
    args
}

/// The per-CPU statistics in the file, by stock trace-cmd whoever wrote it.
pub(super) fn trace_cmd_counts(file: &Path) -> Result<Counts> {
    let text = process::output(Command::new("trace-cmd").args(["dump", "--options", "-i"]).arg(file))?;
    counts_in(&text).ok_or_else(|| format!("no per-CPU statistics in {}:\n{text}", file.display()).into())
}

fn counts_in(statistics: &str) -> Option<Counts> {
    let mut counts = Counts::default();
    let mut seen = false;
    for line in statistics.lines() {
        let Some((name, value)) = line.trim().rsplit_once(": ") else { continue };
        let Ok(value) = value.trim().parse::<u64>() else { continue };
        // trace-cmd notes its numbers when it stops tracing: what its recorders had read by then, and the entries that
        // they read after that.
        match name {
            "entries" | "read events" => (counts.recorded, seen) = (counts.recorded + value, true),
            "overrun" | "commit overrun" | "dropped events" => counts.lost += value,
            _ => {}
        }
    }
    seen.then_some(counts)
}

/// Files that trace-cmd opens for writing whatever it records.
const WANTED_BY_TRACE_CMD: [&str; 5] = [
    "/proc/sys/kernel/ftrace_enabled",
    "/sys/kernel/tracing/set_ftrace_pid",
    "/sys/kernel/tracing/set_ftrace_notrace_pid",
    "/sys/kernel/tracing/set_ftrace_filter",
    "/sys/kernel/tracing/set_ftrace_notrace",
];

/// Lets trace-cmd run where the files of ftrace's function tracer are refused even to root, which it takes for fatal although
/// recording events does not need them: this process and its children see empty files in their places. Elsewhere nothing is
/// changed.
pub(super) fn admit_trace_cmd(dir: &Path) -> Result {
    let refused: Vec<&Path> =
        WANTED_BY_TRACE_CMD.iter().map(Path::new).filter(|path| is_refused(path)).collect();
    if refused.is_empty() {
        return Ok(());
    }
    sys::own_mounts().map_err(|error| format!("cannot make a private mount namespace: {error}"))?;
    for path in refused {
        let stand_in = dir.join(path.file_name().unwrap_or_default());
        let content = if path.ends_with("ftrace_enabled") { "1\n" } else { "" };
        fs::write(&stand_in, content)?;
        sys::bind(&stand_in, path)
            .map_err(|error| format!("cannot put a stand-in for {}: {error}", path.display()))?;
    }
    Ok(())
}

/// Processes, by name and how many, that are tracing now. Their programs run at the same events: everything is slower, and what
/// two of them share costs the second one nothing. A detached recorder counts until its last event is detached.
pub(super) fn others() -> Vec<String> {
    const NAMES: [&str; 5] = ["tracer-agent", "tracer-detach", "trace-cmd", "perf", "bpftrace"];
    let running: Vec<String> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("comm")).ok())
        .collect();
    let count = |name: &str| running.iter().filter(|comm| comm.trim() == name).count();
    NAMES
        .iter()
        .map(|name| (name, count(name)))
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{count} {name}"))
        .collect()
}

fn is_refused(path: &Path) -> bool {
    let refused = |error: &io::Error| {
        error.raw_os_error() == Some(1) || error.kind() == io::ErrorKind::PermissionDenied
    };
    match File::options().append(true).open(path) {
        // sysctl files are refused at the write; what is there already changes nothing.
        Ok(mut file) if path.starts_with("/proc/sys") => fs::read(path)
            .and_then(|value| io::Write::write_all(&mut file, &value))
            .is_err_and(|error| refused(&error)),
        Ok(_) => false,
        Err(error) => refused(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_summed_over_cpus() {
        let text = "[Option CPUSTAT, 90 bytes]\nCPU: 0\nentries: 3\noverrun: 1\ncommit overrun: 2\nbytes: 24616\n\
                    oldest event ts:  4173.155127\nnow ts:  4173.656675\ndropped events: 4\nread events: 10\n\
                    CPU: 1\nentries: 0\noverrun: 0\ncommit overrun: 0\nbytes: 0\ndropped events: 0\nread events: 5\n";
        assert_eq!(counts_in(text), Some(Counts { recorded: 18, lost: 7 }));
        assert_eq!(counts_in("nothing"), None);
    }
}
