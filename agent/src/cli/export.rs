//! `tracer-agent export`: a recording in the layout of another tool.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::Args;

use super::exit::ExitCode;
use super::export_ltt::LttArgs;
use super::input;
use super::signals::Signals;
use super::units::{bytes, count};
use super::{CliError, info::InfoError};
use crate::export::ctf::Ctf;
use crate::export::eventdefs::EventDefs;
use crate::export::ltt2008::Lttng2008;
use crate::export::perfetto::Perfetto;
use crate::export::tables::Tables;
use crate::export::{Exported, Format, Job, Progress, Target, export};
use crate::timeline::{self, Timeline};
use crate::tracedat::reader::{Reader, Source};

/// How often the progress line changes.
const EVERY: Duration = Duration::from_millis(250);

/// A format that can be named on the command line.
struct Known {
    name: &'static str,
    summary: &'static str,
    /// Which of the options that not all formats have it has.
    options: &'static [&'static str],
    /// The format with what the other options say of it.
    make: fn(&ExportArgs) -> Result<Box<dyn Format>, CliError>,
}

/// The formats, in the order in which they are listed.
const KNOWN: &[Known] = &[
    Known {
        name: "ctf",
        summary: "Common Trace Format 1.8, with the kernel's own names",
        options: &[],
        make: |_| Ok(Box::new(Ctf::Kernel)),
    },
    Known {
        name: "lttng",
        summary: "CTF 1.8 as LTTng 2.13 records a kernel, with the names of lttng-modules and a state dump",
        options: &[],
        make: |_| Ok(Box::new(Ctf::Lttng)),
    },
    Known {
        name: "perfetto",
        summary: "one file for Perfetto's viewer (ui.perfetto.dev, which opens it in the browser) and trace_processor",
        options: &[],
        make: |_| Ok(Box::new(Perfetto)),
    },
    Known {
        name: "html",
        summary: "a timeline in one page that any browser opens without a network",
        options: &["--max-events"],
        make: |args| Ok(Box::new(Timeline::new(args.timeline_options()))),
    },
    Known {
        name: "csv",
        summary: "a table of each event in a file of comma-separated values, with views for DuckDB",
        options: &[],
        make: |_| Ok(Box::new(Tables::Csv)),
    },
    Known {
        name: "jsonl",
        summary: "the same as a JSON object a line",
        options: &[],
        make: |_| Ok(Box::new(Tables::JsonLines)),
    },
    Known {
        name: "ltt-eventdefs",
        summary: "LTT of 2003, events described in XML, for LTTV 0.4",
        options: &["--block-size", "--endian", "--literal"],
        make: |args| Ok(Box::new(EventDefs::new(args.ltt.options_eventdefs()).map_err(CliError::usage)?)),
    },
    Known {
        name: "lttng-2008",
        summary: "LTTng of 2008, trace version 1.0, for LTTV 0.10",
        options: &["--block-size", "--endian", "--literal", "--alignment", "--heartbeat"],
        make: |args| Ok(Box::new(Lttng2008::new(args.ltt.options_2008()).map_err(CliError::usage)?)),
    },
];

/// Export a trace.dat to the format of another tool
///
/// It takes any trace.dat, whichever recorder wrote it. OUT appears when it is complete: a directory, or a
/// file for a format of one file. What the format cannot represent is counted and reported at the end.
#[derive(Args, Debug)]
#[command(after_help = formats_help(), allow_missing_positional = true)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct ExportArgs {
    /// Format of the export; see below
    #[arg(long, value_name = "FORMAT")]
    pub format: String,

    /// Replace an existing export
    #[arg(long)]
    pub force: bool,

    /// Write an archive OUT.tar.gz instead of a directory
    #[arg(long)]
    pub tar: bool,

    /// Export the readable part of a damaged recording, and count the rest
    #[arg(long)]
    pub keep_going: bool,

    /// Have details of the first N events in a page of format html, and only an overview of the rest
    /// [default: 5 million]
    #[arg(long, value_name = "N")]
    pub max_events: Option<u64>,

    /// Print no summary
    #[arg(short = 'q', long)]
    pub quiet: bool,

    /// The recording
    #[arg(value_name = "FILE", default_value = "trace.dat")]
    pub file: PathBuf,

    /// The directory or file to create
    #[arg(value_name = "OUT")]
    pub out: PathBuf,

    // They have a heading, which clap keeps for whatever follows.
    #[command(flatten)]
    pub(super) ltt: LttArgs,
}

fn formats_help() -> String {
    let mut text = String::from("FORMATS\n");
    for Known { name, summary, .. } in KNOWN {
        let _ = writeln!(text, "  {name:<14}{summary}");
    }
    text + "\n" + super::examples::EXPORT
}

impl ExportArgs {
    fn timeline_options(&self) -> timeline::Options {
        let default = timeline::Options::default();
        timeline::Options { max_events: self.max_events.unwrap_or(default.max_events) }
    }
}

fn choose(args: &ExportArgs) -> Result<Box<dyn Format>, CliError> {
    let known = KNOWN.iter().find(|known| known.name == args.format).ok_or_else(|| {
        let names: Vec<_> = KNOWN.iter().map(|known| known.name).collect();
        CliError::Usage(format!("no export format {:?}; known: {}", args.format, names.join(", ")))
    })?;
    args.ltt.refuse(known.name, known.options)?;
    if args.max_events.is_some() && !known.options.contains(&"--max-events") {
        return Err(CliError::Usage(format!("the format {} has no --max-events", known.name)));
    }
    let format = (known.make)(args)?;
    if args.tar && format.file().is_some() {
        return Err(CliError::Usage(format!("--tar: {} is one file, not a directory", known.name)));
    }
    Ok(format)
}

pub(super) fn run(args: &ExportArgs) -> Result<u8, CliError> {
    let format = choose(args)?;
    let path = || args.file.clone();
    let file = input::open(&args.file).map_err(|source| InfoError::Open { path: path(), source })?;
    let file = Reader::open(Box::new(file) as Box<dyn Source>)
        .map_err(|source| InfoError::Read { path: path(), source })?;
    let target = Target { path: args.out.clone(), force: args.force, archive: args.tar };
    // Ctrl-C leaves nothing behind.
    let signals = Signals::block().map_err(CliError::system("block signals"))?;
    let line = Line::new();
    let observer = |progress| line.show(progress);
    let job = Job::new(&observer).keep_going(args.keep_going);
    let result = std::thread::scope(|scope| {
        let (done, end) = std::io::pipe().map_err(CliError::system("create a pipe"))?;
        let (job, signals) = (&job, &signals);
        scope.spawn(move || {
            if signals.wait_or_end(&done) {
                job.cancel();
            }
        });
        let result = export(&file, &*format, &target, job);
        drop(end);
        result.map_err(|error| CliError::Export { file: args.file.display().to_string(), error })
    });
    line.clear();
    let exported = result?;
    if !args.quiet {
        super::tell(summary(&exported).trim_end());
    }
    Ok(ExitCode::Ok.code())
}

fn summary(exported: &Exported) -> String {
    let Exported { path, bytes: size, events, not_carried } = exported;
    let mut text = format!("{}: {} events, {}\n", path.display(), count(*events), bytes(*size));
    if !not_carried.is_empty() {
        text += "not carried over:\n";
        for (what, number) in not_carried.iter() {
            let _ = writeln!(text, "  {:>12}  {what}", count(number));
        }
    }
    text
}

/// The line on a terminal that tells how far the export is.
struct Line {
    on: bool,
    last: Mutex<(Instant, bool)>,
}

impl Line {
    fn new() -> Self {
        let on = std::io::IsTerminal::is_terminal(&std::io::stderr());
        Self { on, last: Mutex::new((Instant::now(), false)) }
    }

    fn show(&self, progress: Progress) {
        // Whoever finds another thread at it need not wait.
        let Some(mut last) = self.last.try_lock().ok().filter(|last| self.on && last.0.elapsed() >= EVERY)
        else {
            return;
        };
        *last = (Instant::now(), true);
        let Progress { events, total } = progress;
        let line = match (events * 100).checked_div(total) {
            None => "counting events".to_owned(),
            Some(percent) => format!("exporting: {} of {} events ({percent} %)", count(events), count(total)),
        };
        let _ = write!(std::io::stderr(), "\r{line}\x1b[K");
    }

    fn clear(&self) {
        if self.last.lock().is_ok_and(|last| last.1) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
