//! `tracer-agent report`: the records of files as text, JSON or folded stacks.

mod facts;

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Write};
use std::path::PathBuf;

use clap::ArgMatches;

use super::error::repair_hint;
use super::exit::ExitCode;
use super::progress::ReadingLine;
use super::tell;
use super::units::{count, nanoseconds};
use crate::event::filter::{self, FilterError};
use crate::input::glob::matches_bytes;
use crate::input::nearest;
use crate::report::{Notice, Report, Selection, Style, Summary, TraceFile};
use crate::terminal::SafeWriter;
use crate::tracedat::reader::{Corrections, ReadError};

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
    fn wanted(self) -> bool {
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
/// time.
#[derive(Debug, Default, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct Args {
    /// The files; `trace.dat` if none is named
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// A file, as trace-cmd takes it; timestamp options apply to the preceding file
    #[arg(short = 'i', long = "input", value_name = "FILE")]
    pub inputs: Vec<PathBuf>,

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

    /// Show only these CPUs: `0,2-4`
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    pub cpu: Vec<HashSet<u32>>,

    /// Show only events of these tasks, and wakeups of and switches to them
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub pid: Vec<u32>,

    /// Show only events of tasks with this name; * and ? are wildcards, as in `record --comm`
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
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
    fn chooses(&self) -> bool {
        !(self.filters.is_empty() && self.cpu.is_empty() && self.pid.is_empty() && self.comm.is_empty())
            || self.no_hard_irqs
            || self.no_soft_irqs
            || self.since.is_some()
            || self.until.is_some()
    }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A file cannot be opened.
    #[error("cannot open {path}: {source}", path = .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// It is not a trace file, or too damaged to read anything.
    #[error("cannot read {path}: {source}{}", repair_hint(.source), path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ReadError,
    },
    /// A filter with a syntax error, or of events or fields that do not exist.
    #[error("{0}")]
    Filter(#[from] FilterError),
    /// Options that do not go together.
    #[error("{0}")]
    Usage(String),
    /// The report cannot be written.
    #[error("cannot write the report: {0}")]
    Write(#[from] io::Error),
}

impl ReportError {
    /// The code to exit with.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Open { .. } | Self::Read { .. } => ExitCode::Failure,
            Self::Usage(_) | Self::Filter(_) => ExitCode::Usage,
            Self::Write(_) => ExitCode::OutputNotWritable,
        }
    }
}

/// Prints a report. `matches` tells the order of the options.
pub fn run<W: Write>(
    args: &Args,
    matches: &ArgMatches,
    out: &mut SafeWriter<W>,
) -> Result<ExitCode, ReportError> {
    let files = open(args, matches)?;
    if args.facts != Facts::default() {
        return match facts::print(args, &files, out) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::Ok),
            result => Ok(result?),
        };
    }
    if let Some(field) = &args.folded {
        return fold(args, matches, &files, field.as_deref(), out);
    }
    if args.wakeups && files.len() > 1 {
        return Err(ReportError::Usage("-w takes one file only".to_owned()));
    }
    match print(args, matches, &files, out) {
        Err(ReportError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::Ok),
        result => result,
    }
}

fn print<W: Write>(
    args: &Args,
    matches: &ArgMatches,
    files: &[TraceFile<File>],
    out: &mut SafeWriter<W>,
) -> Result<ExitCode, ReportError> {
    let report = Report::new(files)
        .style(Style {
            full_time: args.full_time,
            raw: args.raw,
            latency: args.latency,
            differences: args.ts_diff,
            plain: args.no_plugins,
            colour: args.color.wanted(),
            terminal: out.is_terminal(),
            old_states: args.old_states,
        })
        .json(args.json)
        .wakeups(args.wakeups)
        .check_times(args.ts_check)
        .select(selection(args, matches, files)?);
    if !args.json {
        out.write_all(report.header().as_bytes())?;
        out.flush()?;
    }
    let text = files.iter().map(|file| file.reader().buffer_text("")).find_map(|text| text.ok().flatten());
    if let Some(text) = text {
        // What a latency tracer has written is text already.
        out.write_all(&text)?;
        out.write_all(b"\n")?;
        return Ok(ExitCode::Ok);
    }
    let mut progress = progress(files);
    // Lines are made safe where they are made, by all threads, and have colours; objects of JSON have none.
    let lines: &mut dyn Write = if args.json { out } else { out.inner() };
    let summary = report.run(lines, |notice| match notice {
        Notice::Progress(now) => progress.show(now),
        Notice::Backwards(found) => tell(&format!(
            "WARNING: Record on cpu {} went backwards: {} to {} delta: -{}",
            found.cpu,
            found.before,
            found.time,
            found.before.wrapping_sub(found.time)
        )),
    })?;
    drop(progress);
    if args.wakeups && !summary.is_cut_off {
        out.write_all(&summary.wakeups.text())?;
        out.flush()?;
    }
    if !summary.is_cut_off {
        finish(args, &summary, files);
    }
    Ok(exit_code(&summary, files))
}

/// Prints stacks with their counts.
fn fold<W: Write>(
    args: &Args,
    matches: &ArgMatches,
    files: &[TraceFile<File>],
    field: Option<&str>,
    out: &mut SafeWriter<W>,
) -> Result<ExitCode, ReportError> {
    if let Some(field) = field {
        has_field(files, field)?;
    }
    let report = Report::new(files).select(selection(args, matches, files)?);
    let mut progress = progress(files);
    let (folded, summary) = report.fold(field, |notice| {
        if let Notice::Progress(now) = notice {
            progress.show(now);
        }
    });
    drop(progress);
    match out.write_all(&folded.text()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(ExitCode::Ok),
        result => result?,
    }
    finish(args, &summary, files);
    if !args.quiet {
        let events = |number: u64| count(number);
        if folded.is_empty() && folded.without_stack != 0 {
            tell("tracer-agent: no event has a stack; `record -T` and `record --user-stack` record them");
        } else if folded.without_stack != 0 {
            tell(&format!(
                "tracer-agent: {} events have no stack and are not counted",
                events(folded.without_stack)
            ));
        }
        if let (Some(field), 1..) = (field, folded.without_value) {
            let number = events(folded.without_value);
            tell(&format!("tracer-agent: {number} events have no positive {field} and are not counted"));
        }
        if folded.others != 0 {
            tell("tracer-agent: too many different stacks: the last ones are counted as [other stacks]");
        }
    }
    Ok(exit_code(&summary, files))
}

/// Whether an event of the files has a field of this name.
fn has_field(files: &[TraceFile<File>], field: &str) -> Result<(), ReportError> {
    let events = || files.iter().flat_map(|file| file.events().iter());
    if events().any(|event| event.field_index(field).is_some()) {
        return Ok(());
    }
    let names = events().flat_map(|event| &event.format().fields).map(|field| field.name.as_str());
    let near = names.filter_map(|name| Some((nearest::score(field, name)?, name))).min();
    let hint = near.map_or(String::new(), |(_, name)| format!("; did you mean {name}?"));
    Err(ReportError::Usage(format!("--folded={field}: no event of the file has such a field{hint}")))
}

/// The line that shows how far files are read. Lines of a report on the same terminal would be torn apart by
/// it.
fn progress(files: &[TraceFile<File>]) -> ReadingLine {
    let on = io::stderr().is_terminal() && !io::stdout().is_terminal();
    ReadingLine::new(on, files.iter().filter_map(span).reduce(join))
}

/// Says on stderr what users should know of what was read.
fn finish(args: &Args, summary: &Summary, files: &[TraceFile<File>]) {
    if args.quiet {
        return;
    }
    notes(summary, files);
    if summary.shown == 0 && args.chooses() {
        let read = count(summary.records);
        tell(&format!("tracer-agent: no event matches; {read} were read"));
    }
}

fn exit_code(summary: &Summary, files: &[TraceFile<File>]) -> ExitCode {
    let damaged = files.iter().any(|file| !file.reader().problems().is_empty()) || summary.damage.count != 0;
    if damaged { ExitCode::Failure } else { ExitCode::Ok }
}

/// Warnings about the report, on stderr.
fn notes(summary: &Summary, files: &[TraceFile<File>]) {
    for file in files {
        for problem in file.reader().problems() {
            tell(&format!("tracer-agent: {}: {problem}", file.name()));
        }
    }
    for text in &summary.damage.texts {
        tell(&format!("tracer-agent: damaged: {text}"));
    }
    let more = summary.damage.count - summary.damage.texts.len() as u64;
    if more != 0 {
        tell(&format!("tracer-agent: {} more damaged places", count(more)));
    }
    for found in &summary.not_understood {
        let events = count(found.records);
        tell(&match &found.event {
            Some((name, why)) => {
                format!(
                    "tracer-agent: {events} {name} events are printed as raw fields, as their print format cannot \
                     be parsed: {why}"
                )
            }
            None => format!("tracer-agent: {events} events have no format in the file"),
        });
    }
}

/// The filters of each file.
fn filters(
    args: &Args,
    matches: &ArgMatches,
    files: &[TraceFile<File>],
) -> Result<Vec<filter::Selection>, FilterError> {
    let invert = if args.invert { matches.index_of("invert") } else { None };
    let filters: Vec<_> = places(matches, "filters").into_iter().zip(&args.filters).collect();
    let of_file = |file: &TraceFile<File>| {
        let mut selection = filter::Selection::new(file.events());
        for (place, text) in &filters {
            let negated = invert.is_some_and(|invert| invert < *place);
            selection.add_text(text, negated, file.events())?;
        }
        Ok(selection)
    };
    if filters.is_empty() { Ok(Vec::new()) } else { files.iter().map(of_file).collect() }
}

fn selection(args: &Args, matches: &ArgMatches, files: &[TraceFile<File>]) -> Result<Selection, ReportError> {
    let cpus = args.cpu.iter().flatten().copied().collect::<HashSet<_>>();
    let mut pids: HashSet<u32> = args.pid.iter().copied().collect();
    for comm in &args.comm {
        let tasks = files.iter().flat_map(|file| file.reader().metadata().cmdlines.iter());
        let before = pids.len();
        pids.extend(tasks.filter(|(_, name)| matches_bytes(comm.as_bytes(), name)).map(|(pid, _)| pid));
        if pids.len() == before {
            tell(&format!("tracer-agent: the file has no task named {comm:?}"));
        }
    }
    Ok(Selection {
        filters: filters(args, matches, files)?,
        cpus: Some(cpus).filter(|_| !args.cpu.is_empty()),
        pids: Some(pids).filter(|_| !args.pid.is_empty() || !args.comm.is_empty()),
        no_hard_irqs: args.no_hard_irqs,
        no_soft_irqs: args.no_soft_irqs,
        since: args.since,
        until: args.until,
        limit: args.limit,
    })
}

fn open(args: &Args, matches: &ArgMatches) -> Result<Vec<TraceFile<File>>, ReportError> {
    let default = PathBuf::from("trace.dat");
    let mut paths: Vec<_> = places(matches, "inputs").into_iter().zip(&args.inputs).collect();
    paths.extend(places(matches, "files").into_iter().zip(&args.files));
    if paths.is_empty() {
        paths.push((0, &default));
    }
    let symbols = match &args.kallsyms {
        Some(path) => fs::read(path).map_err(|source| ReportError::Open { path: path.clone(), source })?,
        None => Vec::new(),
    };
    let offsets: Vec<_> = places(matches, "ts_offset").into_iter().zip(&args.ts_offset).collect();
    let mut files = Vec::new();
    for (number, (place, path)) in paths.iter().enumerate() {
        let source =
            File::open(path).map_err(|source| ReportError::Open { path: (*path).clone(), source })?;
        let mut file = TraceFile::open(&path.to_string_lossy(), source)
            .map_err(|source| ReportError::Read { path: (*path).clone(), source })?;
        let reader = file.reader_mut();
        if args.raw_ts {
            reader.set_corrections(Corrections::NONE);
        } else if args.nodate {
            reader.set_corrections(Corrections { date: false, ..Corrections::ALL });
        }
        let next = paths.get(number + 1).map_or(usize::MAX, |(place, _)| *place);
        // An option before all files counts for the first.
        let first = if number == 0 { 0 } else { *place };
        if let Some((_, offset)) = offsets.iter().rev().find(|(at, _)| (first..next).contains(at)) {
            reader.shift_times(**offset);
        }
        if !symbols.is_empty() {
            file.add_kallsyms(&symbols);
        }
        files.push(file);
    }
    if args.align_ts {
        let first = files.iter().filter_map(span).map(|(first, _)| first).min().unwrap_or(0);
        let shift = first.cast_signed().wrapping_neg();
        for file in &mut files {
            file.reader_mut().shift_times(shift);
        }
    }
    Ok(files)
}

/// Where the values of an option stand in the command line.
fn places(matches: &ArgMatches, id: &str) -> Vec<usize> {
    matches.indices_of(id).map_or_else(Vec::new, Iterator::collect)
}

/// Times of the first and last event.
fn span(file: &TraceFile<File>) -> Option<(u64, u64)> {
    file.reader().span()
}

fn join(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    (a.0.min(b.0), a.1.max(b.1))
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
