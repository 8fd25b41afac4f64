//! `tracer-agent export`: a recording in the layout of another tool.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::Args;

use super::exit::ExitCode;
use super::export_ltt::LttArgs;
use super::export_tables::{self, TableArgs};
use super::features::Feature;
use super::input;
use super::new_files::NewFileArgs;
#[cfg(feature = "store")]
use super::remote::{self, AccessArgs};
use super::signals::Signals;
use super::units::{bytes, count};
use super::{CliError, info::InfoError};
use ctf_writer::Ctf;
use export::eventdefs::EventDefs;
use export::ltt2008::Lttng2008;
use export::perf_script::PerfScript;
use export::perfetto::Perfetto;
use recording::{Exported, Format, Job, Progress, Target, TraceFile, export};
#[cfg(all(feature = "store", feature = "tables"))]
use store::Access;
use tables::{TableFormat, Tables};
use tracedat::reader::{Reader, Source};
use views::chrome::Chrome;
use views::timeline;
use views::timeline::Timeline;

/// How often the progress line changes.
const EVERY: Duration = Duration::from_millis(250);

/// A format that can be named on the command line.
struct Known {
    name: &'static str,
    summary: &'static str,
    /// Which of the options that not all formats have it has.
    options: &'static [&'static str],
    make: Make,
}

/// How a format comes to be.
enum Make {
    /// With what the options say of it.
    Format(fn(&ExportArgs) -> Result<Box<dyn Format>, CliError>),
    Tables(TableFormat),
}

/// The options of tables.
const TABLES: &[&str] = &["--table"];

/// The formats, in the order in which they are listed.
const KNOWN: &[Known] = &[
    Known {
        name: "ctf",
        summary: "Common Trace Format 1.8, with the kernel's own names",
        options: &[],
        make: Make::Format(|_| Ok(Box::new(Ctf::Kernel))),
    },
    Known {
        name: "ctf2",
        summary: "the same in CTF 2, for babeltrace2 2.1 and what else reads it",
        options: &[],
        make: Make::Format(|_| Ok(Box::new(Ctf::Kernel2))),
    },
    Known {
        name: "lttng",
        summary: "CTF 1.8 as LTTng 2.13 records a kernel, with the names of lttng-modules and a state dump",
        options: &[],
        make: Make::Format(|_| Ok(Box::new(Ctf::Lttng))),
    },
    Known {
        name: "perfetto",
        summary: "one file for Perfetto's viewer (ui.perfetto.dev, which opens it in the browser) and trace_processor",
        options: &[],
        make: Make::Format(|_| Ok(Box::new(Perfetto))),
    },
    Known {
        name: "html",
        summary: "a timeline in one page that any browser opens without a network",
        options: &["--max-events"],
        make: Make::Format(|args| Ok(Box::new(Timeline::new(args.timeline_options())))),
    },
    Known {
        name: "chrome",
        summary: "one file for Chrome's trace viewer and what else reads its JSON",
        options: &[],
        make: Make::Format(|_| Ok(Box::new(Chrome))),
    },
    Known {
        name: "perf-script",
        summary: "the text of perf script, for flame graphs, speedscope, Firefox Profiler",
        options: &[],
        make: Make::Format(|_| Ok(Box::new(PerfScript))),
    },
    Known {
        name: "csv",
        summary: "a table of each event in a file of comma-separated values, with views for DuckDB",
        options: TABLES,
        make: Make::Tables(TableFormat::Csv),
    },
    Known {
        name: "jsonl",
        summary: "the same as a JSON object a line",
        options: TABLES,
        make: Make::Tables(TableFormat::JsonLines),
    },
    #[cfg(feature = "tables")]
    Known {
        name: "parquet",
        summary: "the same as files of Apache Parquet, with the kernel's types",
        options: &["--table", "--partition"],
        make: Make::Tables(TableFormat::Parquet),
    },
    #[cfg(feature = "tables")]
    Known {
        name: "sqlite",
        summary: "the same in one file of SQLite",
        options: TABLES,
        make: Make::Tables(TableFormat::Sqlite),
    },
    #[cfg(feature = "tables")]
    Known {
        name: "arrow",
        summary: "the same in Arrow's IPC format; one table also as a stream on standard output",
        options: TABLES,
        make: Make::Tables(TableFormat::Arrow),
    },
    Known {
        name: "ltt-eventdefs",
        summary: "LTT of 2003, events described in XML, for LTTV 0.4",
        options: &["--block-size", "--endian", "--literal"],
        make: Make::Format(|args| {
            Ok(Box::new(EventDefs::new(args.ltt.options_eventdefs()).map_err(CliError::usage)?))
        }),
    },
    Known {
        name: "lttng-2008",
        summary: "LTTng of 2008, trace version 1.0, for LTTV 0.10",
        options: &["--block-size", "--endian", "--literal", "--alignment", "--heartbeat"],
        make: Make::Format(|args| {
            Ok(Box::new(Lttng2008::new(args.ltt.options_2008()).map_err(CliError::usage)?))
        }),
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

    #[command(flatten)]
    #[expect(missing_docs, reason = "its option is documented")]
    pub new_files: NewFileArgs,

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

    /// The directory or file to create; - is standard output, for one table (--table) in the formats csv,
    /// jsonl and arrow
    #[arg(value_name = "OUT")]
    pub out: PathBuf,

    // They have a heading, which clap keeps for whatever follows.
    #[command(flatten)]
    pub(super) ltt: LttArgs,

    #[command(flatten)]
    pub(super) tables: TableArgs,

    #[cfg(feature = "store")]
    #[command(flatten)]
    pub(super) access: AccessArgs,
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

fn choose(args: &ExportArgs) -> Result<&'static Known, CliError> {
    let known = KNOWN.iter().find(|known| known.name == args.format).ok_or_else(|| {
        if let Some(feature) = Feature::of_format(&args.format) {
            return CliError::Usage(feature.absence());
        }
        let names: Vec<_> = KNOWN.iter().map(|known| known.name).collect();
        CliError::Usage(format!("no export format {:?}; known: {}", args.format, names.join(", ")))
    })?;
    args.ltt.refuse(known.name, known.options)?;
    let given = [
        ("--max-events", args.max_events.is_some()),
        ("--table", !args.tables.tables.is_empty()),
        ("--partition", args.tables.partition),
    ];
    if let Some((name, _)) = given.iter().find(|(name, given)| *given && !known.options.contains(name)) {
        return Err(CliError::Usage(format!("the format {} has no {name}", known.name)));
    }
    Ok(known)
}

/// Where a recording goes.
enum Way {
    Export(Box<dyn Format>, Target),
    Stdout(Tables),
    #[cfg(feature = "tables")]
    Dataset(Tables, PathBuf),
    #[cfg(all(feature = "store", feature = "tables"))]
    Store(Tables, (String, Access)),
}

impl Way {
    fn of(args: &ExportArgs) -> Result<Self, CliError> {
        let known = choose(args)?;
        let to_stdout = export_tables::is_stdout(&args.out);
        let format = match known.make {
            Make::Tables(format) if to_stdout && !args.tables.partition => {
                return args.tables.for_stdout(format, &args.file).map(Self::Stdout);
            }
            _ if to_stdout => {
                let why = format!(
                    "the format {} is not written to standard output; name a file, such as ./-",
                    known.name
                );
                return Err(CliError::Usage(why));
            }
            #[cfg(feature = "tables")]
            Make::Tables(format) if args.tables.partition => {
                if args.tar || args.force {
                    let why = "--partition adds to a data set, which is neither replaced (--force) nor packed (--tar)";
                    return Err(CliError::Usage(why.to_owned()));
                }
                Feature::refuse_stores([args.out.as_path()])?;
                #[cfg(feature = "store")]
                if let Some(url) = remote::url(&args.out) {
                    let access = (url.to_owned(), args.access.access());
                    return Ok(Self::Store(args.tables.tables(format, &args.file), access));
                }
                return Ok(Self::Dataset(args.tables.tables(format, &args.file), args.out.clone()));
            }
            Make::Tables(format) => Box::new(args.tables.tables(format, &args.file)),
            Make::Format(make) => make(args)?,
        };
        if args.tar && format.file().is_some() {
            return Err(CliError::Usage(format!("--tar: {} is one file, not a directory", known.name)));
        }
        let target = Target {
            path: args.out.clone(),
            force: args.force,
            archive: args.tar,
            is_export: export::recognise::is_export,
        };
        Ok(Self::Export(format, target))
    }

    fn go(&self, file: &TraceFile, job: &Job<'_>, name: &Path) -> Result<Option<Exported>, CliError> {
        let exported = match self {
            Self::Export(format, target) => export(file, &**format, target, job).map(Some),
            Self::Stdout(tables) => export_tables::to_stdout(tables, file, job).map(|()| None),
            #[cfg(feature = "tables")]
            Self::Dataset(tables, root) => tables.add_to(file, root, job).map(Some),
            #[cfg(all(feature = "store", feature = "tables"))]
            Self::Store(tables, place) => {
                return export_tables::to_store(tables, file, place, job).map(Some);
            }
        };
        exported.map_err(|error| CliError::Export { file: name.display().to_string(), error })
    }
}

pub(super) fn run(args: &ExportArgs) -> Result<u8, CliError> {
    let way = Way::of(args)?;
    let path = || args.file.clone();
    let file = input::open(&args.file).map_err(|source| InfoError::Open { path: path(), source })?;
    let file = Reader::open(Box::new(file) as Box<dyn Source>)
        .map_err(|source| InfoError::Read { path: path(), source })?;
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
        let result = way.go(&file, job, &args.file);
        drop(end);
        result
    });
    line.clear();
    if let Some(exported) = result?.filter(|_| !args.quiet) {
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

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::{Cli, Command};
    use super::*;

    #[test]
    fn formats_of_a_feature_are_known_or_name_it() {
        for format in ["parquet", "sqlite", "arrow"] {
            let line = ["tracer-agent", "export", "--format", format, "trace.dat", "OUT"];
            let Command::Export(args) = Cli::try_parse_from(line).unwrap().command else {
                panic!("{line:?}");
            };
            match choose(&args) {
                Ok(known) => assert!(known.name == format && cfg!(feature = "tables"), "{format}"),
                Err(CliError::Usage(text)) => assert!(text.ends_with("`--features tables`"), "{text}"),
                Err(error) => panic!("{error}"),
            }
        }
    }
}
