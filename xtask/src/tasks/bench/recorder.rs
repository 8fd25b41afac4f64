//! The recorders that are compared. A new one is a function here that makes its [`Recorder`].

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{probe, sys};
use crate::{Result, process};

/// Size of each CPU's ring, for all recorders.
pub(super) const RING_KB: u32 = 4096;

/// Recorders besides the two that ratios are taken of.
const OPTIONAL: [&str; 2] = ["perf", "bpftrace"];

/// Said where there is nothing to compare with.
pub(super) const NO_TRACE_CMD: &str =
    "there is no trace-cmd on this machine to compare with; `cargo xtask setup --for bench` installs it";

/// The name of a recorder that may be left out.
pub(super) fn optional(name: Option<&String>) -> Result<&'static str> {
    let found = OPTIONAL.into_iter().find(|optional| name.is_some_and(|name| name == optional));
    found.ok_or_else(|| format!("--without wants one of: {}", OPTIONAL.join(", ")).into())
}

/// A program that records events while it runs a command.
pub(super) struct Recorder {
    pub(super) name: String,
    program: PathBuf,
    /// Its arguments before the command: the events to record, and the file to write.
    arguments: fn(&[&str], &Path) -> Result<Vec<OsString>>,
    /// What the file holds, or what the recorder has printed says.
    count: fn(file: &Path, log: &Path) -> Result<Counts>,
    /// Whether the command is one argument, for a shell.
    one_argument: bool,
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
        Self {
            name: name.to_owned(),
            program,
            arguments: agent_arguments,
            count: |file, _| trace_cmd_counts(file),
            one_argument: false,
        }
    }

    /// The `trace-cmd` of this machine.
    pub(super) fn trace_cmd() -> Result<Self> {
        let program = process::find("trace-cmd").ok_or(NO_TRACE_CMD)?;
        Ok(Self {
            name: "trace-cmd".into(),
            program,
            arguments: |events, file| Ok(trace_cmd_arguments(events, file)),
            count: |file, _| trace_cmd_counts(file),
            one_argument: false,
        })
    }

    /// `perf record` of all CPUs, if this machine has perf. Its files are not compressed, as is its default.
    pub(super) fn perf() -> Option<Self> {
        let program = process::find("perf")?;
        Some(Self {
            name: "perf".into(),
            program,
            arguments: |events, file| Ok(perf_arguments(events, file)),
            count: perf_counts,
            one_argument: false,
        })
    }

    /// bpftrace, if this machine has it. It prints a line for each event into a file, the time and the thread
    /// of it.
    pub(super) fn bpftrace() -> Option<Self> {
        let program = process::find("bpftrace")?;
        Some(Self {
            name: "bpftrace".into(),
            program,
            arguments: |events, file| Ok(bpftrace_arguments(events, file)),
            count: bpftrace_counts,
            one_argument: true,
        })
    }

    /// Whether its counts of recorded and lost events make up what fired, so that too few of them mean a
    /// disturbance.
    pub(super) fn is_exact(&self) -> bool {
        !OPTIONAL.contains(&self.name.as_str())
    }

    /// The command line that records `events` into `file` while `load` runs.
    pub(super) fn command(&self, events: &[&str], file: &Path, load: &Command) -> Result<Command> {
        let mut command = Command::new(&self.program);
        command.args((self.arguments)(events, file)?);
        if self.one_argument {
            // Split at spaces by its reader; in the arguments of a load there are none.
            let words: Vec<_> = [load.get_program()].into_iter().chain(load.get_args()).collect();
            command.arg("-c").arg(words.join(std::ffi::OsStr::new(" ")));
        } else {
            command.arg(load.get_program()).args(load.get_args());
        }
        Ok(command)
    }

    pub(super) fn count(&self, file: &Path, log: &Path) -> Result<Counts> {
        (self.count)(file, log)
    }
}

/// tracer-agent and trace-cmd take the same ones, but for probes, which trace-cmd finds in tracefs.
fn agent_arguments(events: &[&str], file: &Path) -> Result<Vec<OsString>> {
    let (probes, events): (Vec<&str>, Vec<&str>) = events.iter().partition(|event| probe::is_probe(event));
    let mut args = trace_cmd_arguments(&events, file);
    for event in probes {
        args.extend(probe::option(event)?);
    }
    Ok(args)
}

fn trace_cmd_arguments(events: &[&str], file: &Path) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["record".into(), "-b".into(), RING_KB.to_string().into()];
    args.extend(events.iter().flat_map(|event| ["-e".into(), OsString::from(event)]));
    args.extend(["-o".into(), file.into()]);
    args
}

/// perf sizes its buffers in bytes, a power of two of pages.
fn perf_arguments(events: &[&str], file: &Path) -> Vec<OsString> {
    let mut args: Vec<OsString> =
        ["record", "-a", "-q", "-m", &format!("{RING_KB}K"), "-c", "1"].map(OsString::from).to_vec();
    args.extend(events.iter().flat_map(|event| ["-e".into(), OsString::from(event)]));
    args.extend(["-o".into(), file.into(), "--".into()]);
    args
}

/// perf's own statistics of its file.
fn perf_counts(file: &Path, _log: &Path) -> Result<Counts> {
    let text = process::output(Command::new("perf").args(["report", "--stats", "-i"]).arg(file))?;
    perf_counts_in(&text).ok_or_else(|| format!("no statistics in {}:\n{text}", file.display()).into())
}

fn perf_counts_in(statistics: &str) -> Option<Counts> {
    // The first section is the sum of all events.
    let total = statistics.split("\n\n").find(|section| section.contains("TOTAL events"))?;
    let number = |name: &str| -> u64 {
        let line =
            total.lines().find_map(|line| line.trim().strip_prefix(name)?.trim().strip_prefix("events:"));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    Some(Counts { recorded: number("SAMPLE"), lost: number("LOST_SAMPLES") })
}

fn bpftrace_arguments(events: &[&str], file: &Path) -> Vec<OsString> {
    let probes: Vec<String> = events.iter().map(|event| format!("tracepoint:{event}")).collect();
    let program = format!("{} {{ printf(\"%llu %d %s\\n\", nsecs, tid, probe); }}", probes.join(", "));
    let output = file.as_os_str();
    vec!["-q".into(), "-o".into(), output.into(), "-e".into(), program.into()]
}

/// A line for each event; what was lost is said in between.
fn bpftrace_counts(file: &Path, log: &Path) -> Result<Counts> {
    let lost = lost_by_bpftrace(&fs::read_to_string(log)?);
    let mut counts = Counts { recorded: 0, lost };
    for line in io::BufRead::split(io::BufReader::new(File::open(file)?), b'\n') {
        let line = line?;
        match line.first() {
            Some(byte) if byte.is_ascii_digit() => counts.recorded += 1,
            _ => counts.lost += lost_by_bpftrace(&String::from_utf8_lossy(&line)),
        }
    }
    Ok(counts)
}

/// `Lost 12 events`, as often as it stands there.
fn lost_by_bpftrace(text: &str) -> u64 {
    let numbers = text.lines().filter_map(|line| line.trim().strip_prefix("Lost ")?.strip_suffix(" events"));
    numbers.filter_map(|number| number.parse::<u64>().ok()).sum()
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
        // trace-cmd notes its numbers when it stops tracing: what its recorders had read by then, and the
        // entries that they read after that.
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

/// Lets trace-cmd run where the files of ftrace's function tracer are refused even to root, which it takes
/// for fatal although recording events does not need them: this process and its children see empty files in
/// their places. Elsewhere nothing is changed.
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

/// Processes, by name and how many, that are tracing now. Their programs run at the same events: everything
/// is slower, and what two of them share costs the second one nothing. A detached recorder counts until its
/// last event is detached.
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

    #[test]
    fn other_recorders_statistics_are_read() {
        let text = "\nAggregated stats:\n           TOTAL events:       1042\n            MMAP events:         33  ( 3.2%)\n          \
                    SAMPLE events:       1000  (96.0%)\n    LOST_SAMPLES events:          9  ( 0.1%)\n\n\
                    sched:sched_switch stats:\n          SAMPLE events:       1000\n";
        assert_eq!(perf_counts_in(text), Some(Counts { recorded: 1000, lost: 9 }));
        assert_eq!(perf_counts_in("nothing"), None);
        assert_eq!(lost_by_bpftrace("Lost 12 events\nx\n Lost 3 events\n"), 15);
    }
}
