//! `tracer-agent report`: the records of files as text, JSON or folded stacks.

mod choose;
mod facts;
mod folded;
pub(super) mod follow;
mod notes;
mod options;
mod piped;

use std::borrow::Cow;
use std::fs;
use std::io::{self, IsTerminal as _, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::ArgMatches;

use super::error::repair_hint;
use super::exit::ExitCode;
use super::features::is_address;
use super::input::{Input, Opened};
use super::progress::ReadingLine;
use super::{remote, tell};
use capture::follow::FollowError;
use capture::piped::PipedError;
use choose::{selection, tell_missing};
use ftrace_event::filter::FilterError;
use notes::{exit_code, finish};
pub use options::{Args, Color, Facts};
pub use report::{Backwards, Notice, Report, Style, TraceFile};
use stdx::terminal::SafeWriter;
use tracedat::reader::{Corrections, ReadError, Source};

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
    /// A recording that cannot be followed.
    #[error("{0}")]
    Follow(#[from] FollowError),
    /// A streamed recording that cannot be read, or not to its end.
    #[error("{name}: {source}")]
    Piped {
        /// What it is called.
        name: String,
        /// The reason.
        source: Box<PipedError>,
    },
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
            Self::Open { source, .. } => ExitCode::of_opening(source),
            Self::Read { .. } | Self::Follow(_) | Self::Piped { .. } => ExitCode::Failure,
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
    if args.follow
        && let Some(ended) = follow::run(args, matches, out).transpose()
    {
        return unless_closed(ended);
    }
    let files = match &*paths(args, matches) {
        [(_, path)] if !is_address(path) => match open_one(path)? {
            Input::Streamed(stream) if piped::is_possible(args) => {
                return unless_closed(piped::run((args, matches), path, stream, out));
            }
            one => open(args, matches, Some(one))?,
        },
        _ => open(args, matches, None)?,
    };
    if args.facts != Facts::default() {
        return match facts::print(args, &files, out) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::Ok),
            result => Ok(result?),
        };
    }
    if let Some(field) = &args.folded {
        return folded::fold(args, matches, &files, field.as_deref(), out);
    }
    if args.wakeups && files.len() > 1 {
        return Err(ReportError::Usage("-w takes one file only".to_owned()));
    }
    unless_closed(print(args, matches, &files, out))
}

/// A reader of the output that has seen enough is no error.
fn unless_closed(result: Result<ExitCode, ReportError>) -> Result<ExitCode, ReportError> {
    match result {
        Err(ReportError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::Ok),
        result => result,
    }
}

/// A report of these files, of all their records.
fn report<'f, S: Source>(args: &Args, files: &'f [TraceFile<S>], terminal: bool) -> Report<'f, S> {
    Report::new(files)
        .style(Style {
            full_time: args.full_time,
            raw: args.raw,
            latency: args.latency,
            differences: args.ts_diff,
            plain: args.no_plugins,
            colour: args.color.wanted(),
            terminal,
            old_states: args.old_states,
        })
        .json(args.json)
        .wakeups(args.wakeups)
        .check_times(args.ts_check)
}

/// Says that a time goes backwards.
fn tell_backwards(found: Backwards) {
    tell(&format!(
        "WARNING: Record on cpu {} went backwards: {} to {} delta: -{}",
        found.cpu,
        found.before,
        found.time,
        found.before.wrapping_sub(found.time)
    ));
}

fn print<W: Write, S: Source>(
    args: &Args,
    matches: &ArgMatches,
    files: &[TraceFile<S>],
    out: &mut SafeWriter<W>,
) -> Result<ExitCode, ReportError> {
    let selection = selection(args, matches, files, tell_missing)?;
    let report = report(args, files, out.is_terminal()).select(selection);
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
        Notice::Written(_) => {}
        Notice::Backwards(found) => tell_backwards(found),
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

/// The line that shows how far files are read. Lines of a report on the same terminal would be torn apart by
/// it.
fn progress<S: Source>(files: &[TraceFile<S>]) -> ReadingLine {
    let on = io::stderr().is_terminal() && !io::stdout().is_terminal();
    ReadingLine::new(on, files.iter().filter_map(span).reduce(join))
}

/// The files of the command line, each with its index in it.
fn paths<'a>(args: &'a Args, matches: &ArgMatches) -> Vec<(usize, Cow<'a, Path>)> {
    let mut paths: Vec<_> = indices(matches, "inputs").into_iter().zip(&args.inputs).collect();
    paths.extend(indices(matches, "files").into_iter().zip(&args.files));
    if paths.is_empty() {
        return vec![(0, Path::new("trace.dat").into())];
    }
    paths.into_iter().map(|(index, path)| (index, path.into())).collect()
}

/// What options say of each file's times and symbols.
struct Settings<'a> {
    args: &'a Args,
    /// Options with what is added to times, each with its index in the command line.
    offsets: Vec<(usize, i64)>,
    symbols: Vec<u8>,
}

impl<'a> Settings<'a> {
    fn read(args: &'a Args, matches: &ArgMatches) -> Result<Self, ReportError> {
        let symbols = match &args.kallsyms {
            Some(path) => {
                fs::read(path).map_err(|source| ReportError::Open { path: path.clone(), source })?
            }
            None => Vec::new(),
        };
        let offsets = indices(matches, "ts_offset").into_iter().zip(args.ts_offset.iter().copied()).collect();
        Ok(Self { args, offsets, symbols })
    }

    /// Applies them to the file that stands in this range of the command line.
    fn apply<S: Source>(&self, file: &mut TraceFile<S>, range: Range<usize>) {
        let reader = file.reader_mut();
        if self.args.raw_ts {
            reader.set_corrections(Corrections::NONE);
        } else if self.args.nodate {
            reader.set_corrections(Corrections { date: false, ..Corrections::ALL });
        }
        if let Some((_, offset)) = self.offsets.iter().rev().find(|(at, _)| range.contains(at)) {
            reader.shift_times(*offset);
        }
        if !self.symbols.is_empty() {
            file.add_kallsyms(&self.symbols);
        }
    }
}

fn open_one(path: &Path) -> Result<Input, ReportError> {
    Input::open(path).map_err(|source| ReportError::Open { path: path.to_owned(), source })
}

/// What a path names, for the readers of trace files. It may be open already.
fn source(args: &Args, path: &Path, open: Option<Input>) -> Result<Opened, ReportError> {
    let failed = |source| ReportError::Open { path: path.to_owned(), source };
    if let Some(object) = remote::open(path, &args.access) {
        return object.map_err(failed);
    }
    let input = open.map_or_else(|| open_one(path), Ok)?;
    Ok(Box::new(input.into_file(path).map_err(failed)?))
}

/// Opens the files. The first one may be open already.
fn open(
    args: &Args,
    matches: &ArgMatches,
    mut first_input: Option<Input>,
) -> Result<Vec<TraceFile<Opened>>, ReportError> {
    let paths = paths(args, matches);
    let settings = Settings::read(args, matches)?;
    let mut files = Vec::new();
    for (number, (index, path)) in paths.iter().enumerate() {
        let source = source(args, path, first_input.take())?;
        let mut file = TraceFile::open(&path.to_string_lossy(), source)
            .map_err(|source| ReportError::Read { path: path.to_path_buf(), source })?;
        let next = paths.get(number + 1).map_or(usize::MAX, |(index, _)| *index);
        // An option before all files counts for the first.
        let first = if number == 0 { 0 } else { *index };
        settings.apply(&mut file, first..next);
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

/// Where the values of an option stand in the command line; of a command without this option, nowhere.
fn indices(matches: &ArgMatches, id: &str) -> Vec<usize> {
    if matches.try_contains_id(id).is_err() {
        return Vec::new();
    }
    matches.indices_of(id).map_or_else(Vec::new, Iterator::collect)
}

/// Times of the first and last event.
fn span<S: Source>(file: &TraceFile<S>) -> Option<(u64, u64)> {
    file.reader().span()
}

fn join(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    (a.0.min(b.0), a.1.max(b.1))
}
