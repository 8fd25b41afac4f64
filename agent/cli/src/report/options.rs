//! The options of `tracer-agent report`.

use std::collections::HashSet;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser as _};

use super::super::units::nanoseconds;
use stdx::input::glob;

/// When to use colours.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl Color {
    pub(crate) fn wanted(self) -> bool {
        match self {
            // https://no-color.org: set, and not empty.
            Self::Auto => {
                io::stdout().is_terminal()
                    && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            }
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// Print the events of trace.dat files
///
/// The output is that of `trace-cmd report`, including the texts of its plugins. Several files are merged by
/// time. `-` is standard input: a trace file, or what `record -o -` writes, whose events are printed as they
/// come. A file can be an object in a store (s3://BUCKET/NAME and others), of which only what is needed is
/// fetched.
#[derive(Debug, Default, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct Args {
    /// The files; `trace.dat` if none is named
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// A file, as trace-cmd takes it; timestamp options apply to the preceding file
    #[arg(short = 'i', long = "input", value_name = "FILE")]
    pub inputs: Vec<PathBuf>,

    /// Print the events of a recording while it goes on, and end with it
    ///
    /// FILE is the name that the recording will have, or its spool. Events are printed in the order of time,
    /// as soon as it is known that no CPU has an older one: a second or two after they fired, unless `record
    /// --switch-timer` has another time. A recording that has ended is printed as without this option.
    #[arg(long)]
    pub follow: bool,

    /// Print timestamps in nanoseconds
    #[arg(short = 't', long = "full-time")]
    pub full_time: bool,

    /// Print the raw fields instead of the formatted text
    #[arg(short = 'R', long = "raw", conflicts_with = "json")]
    pub raw: bool,

    /// Print the latency flags: interrupts off, need-resched, interrupt context, preemption count
    #[arg(short = 'l', long = "latency", conflicts_with = "json")]
    pub latency: bool,

    /// Format events by their print formats only, without plugins
    #[arg(short = 'N', long = "no-plugins")]
    pub no_plugins: bool,

    /// Print task states with the letters of trace-cmd 3.1 (`SDTtZXxW`) instead of those of the recorded
    /// kernel
    ///
    /// By default `sched_switch` has the letters of the recording's own format, as with `trace-cmd report -N`
    /// and trace-cmd 3.2 with libtraceevent 1.8. Older versions use one table for all kernels, in which a
    /// zombie is an X and an idle thread a W.
    #[arg(long, conflicts_with_all = ["json", "raw", "no_plugins"])]
    pub old_states: bool,

    /// Print JSON: one object a line, as docs/report.md describes it
    #[arg(long)]
    pub json: bool,

    /// Print one line per stack, `comm;outermost;...;innermost count`, the input of flame graphs
    /// (flamegraph.pl, inferno, speedscope)
    ///
    /// Counts the events that have a stack of the kernel (`record -T`), of the process (`record
    /// --user-stack`), or both. With FIELD, adds up the field's positive values instead, bytes_alloc for
    /// example. Events can be selected as for the report.
    #[arg(
        long,
        value_name = "FIELD",
        num_args = 0..=1,
        require_equals = true,
        conflicts_with_all = [
            "json", "raw", "latency", "wakeups", "ts_diff", "ts_check", "no_plugins", "old_states"
        ]
    )]
    pub folded: Option<Option<String>>,

    /// Colour event names and lost events
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: Color,

    /// Show only events that match a filter of trace-cmd's syntax: `sched_switch: prev_state == 0 && next_pid
    /// != 7`
    ///
    /// Multiple filters are ORed.
    #[arg(short = 'F', long = "filter", value_name = "FILTER")]
    pub filters: Vec<String>,

    /// Hide events that match the filters after this option
    #[arg(short = 'v', long = "invert")]
    pub invert: bool,

    /// Show only this buffer, one that was recorded with `record -B NAME`; "" is the one that has no name
    #[arg(short = 'B', long = "buffer", value_name = "NAME")]
    pub buffers: Vec<String>,

    /// Show only these CPUs: `0,2-4`
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    pub cpu: Vec<HashSet<u32>>,

    /// Show only events of these tasks, and wakeups of and switches to them
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub pid: Vec<u32>,

    /// Show only events of tasks with this name; * and ? are wildcards, as in `record --comm`
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = OsStringValueParser::new().map(glob::argument))]
    pub comm: Vec<String>,

    /// Hide events in hard interrupt context
    #[arg(short = 'I', long = "no-hard-irqs")]
    pub no_hard_irqs: bool,

    /// Hide events in soft interrupt context
    #[arg(short = 'S', long = "no-soft-irqs")]
    pub no_soft_irqs: bool,

    /// Start at this time: seconds, as times are printed, or with a unit: 12.345678, 500ms, 2m
    #[arg(long, value_name = "TIME", value_parser = nanoseconds)]
    pub since: Option<u64>,

    /// End at this time
    #[arg(long, value_name = "TIME", value_parser = nanoseconds)]
    pub until: Option<u64>,

    /// Show at most this many events
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,

    /// Print wakeup latencies: the time from a task's wakeup to its running
    #[arg(short = 'w', long = "wakeups", conflicts_with = "json")]
    pub wakeups: bool,

    /// Print the time since the previous line
    #[arg(long, conflicts_with = "json")]
    pub ts_diff: bool,

    /// Warn about timestamps that go backwards
    #[arg(long)]
    pub ts_check: bool,

    /// Add this many clock units to the timestamps of the preceding file
    #[arg(long, value_name = "OFFSET", allow_negative_numbers = true)]
    pub ts_offset: Vec<i64>,

    /// Print timestamps as recorded, without corrections
    #[arg(long)]
    pub raw_ts: bool,

    /// Print timestamps relative to the first event
    #[arg(long)]
    pub align_ts: bool,

    /// Do not convert timestamps to wall time, for files recorded with --date
    #[arg(long)]
    pub nodate: bool,

    /// Also look up function names in this copy of /proc/kallsyms
    #[arg(long, value_name = "FILE")]
    pub kallsyms: Option<PathBuf>,

    /// Suppress warnings
    #[arg(short = 'q', long = "quiet")]
    pub quiet: bool,

    /// Print something else instead of the events
    #[command(flatten)]
    pub facts: Facts,

    #[command(flatten)]
    #[expect(missing_docs, reason = "its options are documented")]
    pub access: super::super::remote::AccessArgs,
}

/// What can be printed instead of the events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
#[group(multiple = true)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct Facts {
    /// Print the ring buffer statistics at the end of the recording, and exit
    #[arg(long)]
    pub stat: bool,

    /// Print the kernel (uname) of the recording, and exit
    #[arg(long)]
    pub uname: bool,

    /// Print the version of the recorder, and exit
    #[arg(long)]
    pub version: bool,

    /// Print the CPUs that have events, and exit
    #[arg(long)]
    pub cpus: bool,

    /// Print the time of the first event of each CPU, and exit
    #[arg(long)]
    pub first_event: bool,

    /// Print the time of the last event of each CPU, and exit
    #[arg(long)]
    pub last_event: bool,

    /// Print the formats of all events, and exit
    #[arg(long)]
    pub events: bool,

    /// Print the names of all events, and exit
    #[arg(short = 'E', long = "event-names")]
    pub event_names: bool,

    /// Print the event formats that cannot be parsed, and exit with 1 if there are any
    #[arg(long)]
    pub check_events: bool,

    /// Print the function symbols of the file, and exit
    #[arg(short = 'f', long = "functions")]
    pub functions: bool,

    /// Print the printk format strings of the file, and exit
    #[arg(short = 'P', long = "printk")]
    pub printk: bool,

    /// Print the byte order, and exit
    #[arg(short = 'e', long = "endian")]
    pub endian: bool,
}

impl Args {
    /// Whether some events of the file may be left out.
    pub(super) fn chooses(&self) -> bool {
        !(self.filters.is_empty() && self.cpu.is_empty() && self.pid.is_empty() && self.comm.is_empty())
            || self.no_hard_irqs
            || self.no_soft_irqs
            || self.since.is_some()
            || self.until.is_some()
    }
}

/// `0,2-4`, or with colons.
fn cpu_list(text: &str) -> Result<HashSet<u32>, String> {
    let mut cpus = HashSet::new();
    for part in text.split([',', ':']) {
        let number =
            |text: &str| text.trim().parse::<u32>().map_err(|_| format!("{text:?} is not a CPU number"));
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if first > last || last - first > 1 << 16 {
            return Err(format!("{part:?} is not a range of CPUs"));
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpu_list("0,2-4:7").unwrap(), HashSet::from([0, 2, 3, 4, 7]));
        assert!(cpu_list("3-1").is_err() && cpu_list("x").is_err() && cpu_list("0-99999999").is_err());
    }
}
