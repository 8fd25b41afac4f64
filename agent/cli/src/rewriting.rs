//! What the commands that write trace files anew have in common: opening, progress, stopping, and telling
//! what came of it.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::json_line;
use super::progress::clear_line;
use super::signals::Signals;
use super::units::{bytes, count};
use super::{CliError, info::InfoError};
use stdx::output::Output;
use stdx::terminal::SafeWriter;
use tracedat::reader::Reader;
use tracedat::rewrite::{Loss, Progress, RewriteError, Rewritten, WrittenBuffer, WrittenCpu};

/// How often the progress line changes.
const EVERY: Duration = Duration::from_millis(250);

/// Most losses that are told one by one.
const MAX_LOSSES: usize = 20;

/// How to tell what came of it.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Telling {
    /// Print a summary as JSON: one object
    #[arg(long)]
    pub json: bool,

    /// Print no summary
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

/// Opens a trace file.
pub(super) fn open(path: &Path) -> Result<Reader<File>, CliError> {
    let file = super::input::open(path)
        .map_err(|source| CliError::from(InfoError::Open { path: path.to_owned(), source }))?;
    Ok(Reader::open(file).map_err(|source| InfoError::Read { path: path.to_owned(), source })?)
}

/// Where the file goes, before any work is done: nobody should wait for a refusal. `input` is for the
/// message.
pub(super) fn output(path: &Path, input: &Path) -> Result<Output, CliError> {
    Output::at(path).map_err(|error| failed(input)(error.into()))
}

/// Runs `work` with something to tell its progress to. Ctrl-C stops it.
pub(super) fn run<T>(
    what: &'static str,
    work: impl FnOnce(&mut dyn FnMut(Progress) -> bool) -> Result<T, CliError>,
) -> Result<T, CliError> {
    stoppable(|stopped| {
        let mut line = Line::new(what);
        work(&mut |progress| {
            line.show(progress);
            !stopped.load(Ordering::Relaxed)
        })
    })
}

/// Runs `work` with a flag that is set when a signal asks for the end, so that nothing half-written stays
/// behind.
pub(super) fn stoppable<T>(work: impl FnOnce(&AtomicBool) -> Result<T, CliError>) -> Result<T, CliError> {
    let signals = Signals::block().map_err(CliError::system("block signals"))?;
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (done, end) = std::io::pipe().map_err(CliError::system("create a pipe"))?;
        let (signals, stopped) = (&signals, &stopped);
        scope.spawn(move || {
            if signals.wait_or_end(&done) {
                stopped.store(true, Ordering::Relaxed);
            }
        });
        let result = work(stopped);
        drop(end);
        result
    })
}

/// An error of rewriting `input`, for the user.
pub(super) fn failed(input: &Path) -> impl FnOnce(RewriteError) -> CliError {
    let input = input.to_owned();
    move |error| CliError::Rewrite { input, error }
}

/// The line on a terminal that tells how far it is.
struct Line {
    what: &'static str,
    on: bool,
    last: Instant,
    shown: bool,
}

impl Line {
    fn new(what: &'static str) -> Self {
        Self { what, on: std::io::stderr().is_terminal(), last: Instant::now(), shown: false }
    }

    fn show(&mut self, Progress { done, total }: Progress) {
        if !self.on || self.last.elapsed() < EVERY {
            return;
        }
        self.last = Instant::now();
        self.shown = true;
        let percent = (u128::from(done.min(total)) * 100).checked_div(total.into()).unwrap_or(100);
        let line = format!("{}: {} of {} ({percent} %)", self.what, bytes(done), bytes(total));
        // A terminal that is gone is noticed by the signal that comes with it.
        let _ = write!(std::io::stderr(), "\r{line}\x1b[K");
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.shown {
            clear_line();
        }
    }
}

/// A file that was written.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) written: Rewritten,
}

/// Tells what was written.
pub(super) fn tell(telling: Telling, made: &[Made]) -> Result<(), CliError> {
    if telling.json {
        let files = made.iter().map(MadeFile::of).collect();
        let text = json_line(&Summary { files })?;
        let stdout = std::io::stdout().lock();
        let is_terminal = stdout.is_terminal();
        return super::write_all(&mut SafeWriter::new(stdout, is_terminal).json(true), &text);
    }
    if !telling.quiet {
        let text: String = made.iter().map(text).collect();
        super::tell(text.trim_end());
    }
    Ok(())
}

fn text(made: &Made) -> String {
    let Made { path, bytes: size, written } = made;
    let mut text = format!("{}: {} events, {}", path.display(), count(written.events()), bytes(*size));
    if written.left_out() > 0 {
        let _ = write!(text, "; {} left out", count(written.left_out()));
    }
    text.push('\n');
    for note in &written.notes {
        let _ = writeln!(text, "  {note}");
    }
    if !written.lost.is_empty() {
        let lost = written.lost.iter().map(|loss| loss.bytes).fold(0, u64::saturating_add);
        let pages = written.lost.iter().map(|loss| loss.pages.end - loss.pages.start);
        let pages = pages.fold(0, u64::saturating_add);
        let _ = writeln!(
            text,
            "lost: {} in {} places, {} pages",
            bytes(lost),
            count(written.lost.len() as u64),
            count(pages)
        );
        for loss in written.lost.iter().take(MAX_LOSSES) {
            let Loss { buffer, cpu, pages, offset, bytes: size, saved_records, reason } = loss;
            let buffer = if buffer.is_empty() { String::new() } else { format!("buffer {buffer}, ") };
            let saved = if *saved_records > 0 {
                format!(", {} events before it are saved", count(*saved_records))
            } else {
                String::new()
            };
            let _ = writeln!(
                text,
                "  {buffer}CPU {cpu}, {} pages from {}, {} at byte {offset}: {reason}{saved}",
                pages.end - pages.start,
                pages.start,
                bytes(*size),
            );
        }
        if let more @ 1.. = written.lost.len().saturating_sub(MAX_LOSSES) {
            let _ = writeln!(text, "  and {more} more; --json lists all of them");
        }
    }
    text
}

/// The summary as JSON.
#[derive(Serialize)]
struct Summary<'a> {
    files: Vec<MadeFile<'a>>,
}

/// A file that was written.
#[derive(Serialize)]
struct MadeFile<'a> {
    path: String,
    bytes: u64,
    events: u64,
    left_out: u64,
    #[serde(flatten)]
    span: Span,
    buffers: Vec<MadeBuffer<'a>>,
    notes: &'a [String],
    lost: Vec<LostPages<'a>>,
}

/// Times of the first and the last event.
#[derive(Serialize)]
struct Span {
    first: Option<u64>,
    last: Option<u64>,
}

#[derive(Serialize)]
struct MadeBuffer<'a> {
    name: &'a str,
    cpus: Vec<MadeCpu>,
}

#[derive(Serialize)]
struct MadeCpu {
    cpu: u32,
    events: u64,
    left_out: u64,
    copied_pages: u64,
    bytes: u64,
    #[serde(flatten)]
    span: Span,
}

/// A piece of the input that could not be read.
#[derive(Serialize)]
struct LostPages<'a> {
    buffer: &'a str,
    cpu: u32,
    page: u64,
    pages: u64,
    offset: u64,
    bytes: u64,
    saved_events: u64,
    reason: &'a str,
}

impl<'a> MadeFile<'a> {
    fn of(Made { path, bytes, written }: &'a Made) -> Self {
        Self {
            path: path.display().to_string(),
            bytes: *bytes,
            events: written.events(),
            left_out: written.left_out(),
            span: Span::of(written.span()),
            buffers: written.buffers.iter().map(MadeBuffer::of).collect(),
            notes: &written.notes,
            lost: written.lost.iter().map(LostPages::of).collect(),
        }
    }
}

impl Span {
    fn of(span: Option<(u64, u64)>) -> Self {
        Self { first: span.map(|(first, _)| first), last: span.map(|(_, last)| last) }
    }
}

impl<'a> MadeBuffer<'a> {
    fn of(WrittenBuffer { name, cpus }: &'a WrittenBuffer) -> Self {
        Self { name, cpus: cpus.iter().map(MadeCpu::of).collect() }
    }
}

impl MadeCpu {
    fn of(cpu: &WrittenCpu) -> Self {
        let WrittenCpu { cpu, events, left_out, copied_pages, bytes, span } = *cpu;
        Self { cpu, events, left_out, copied_pages, bytes, span: Span::of(span) }
    }
}

impl<'a> LostPages<'a> {
    fn of(loss: &'a Loss) -> Self {
        let Loss { buffer, cpu, pages, offset, bytes, saved_records, reason } = loss;
        Self {
            buffer,
            cpu: *cpu,
            page: pages.start,
            pages: pages.end - pages.start,
            offset: *offset,
            bytes: *bytes,
            saved_events: *saved_records,
            reason,
        }
    }
}
