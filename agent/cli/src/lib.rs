//! The command line of tracer-agent: one file per command, with its options, texts and exit codes.
//!
//! **Data flow:** words → options ([`Cli`], clap) → a call of another crate → text, JSON and an exit code
//! ([`exit`]).
//!
//! **Guarantees**
//!
//! - No functionality is only here: every command is a call that a program can make, too.
//! - Text from files and kernels is made safe before it reaches a terminal.
//! - Exit codes are documented, and the same for all commands.
//!
//! **Must not know:** how a recording works. It turns options into a [`spec::RecordingSpec`], and results
//! into text.
//!
//! # Example
//!
//! ```
//! use clap::Parser as _;
//! use cli::{Cli, Command};
//!
//! let cli = Cli::try_parse_from(["tracer-agent", "report", "trace.dat"])?;
//! assert!(matches!(cli.command, Command::Report(_)));
//! # Ok::<(), clap::Error>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | [`record`], [`stream`] | recording; printing events as they fire |
//! | [`report`], [`info`], [`list`], [`hist`], [`analyze`], [`diff`] | reading |
//! | [`check`], [`recover`], [`repair`], [`split`], [`merge`], [`convert`] | files |
//! | [`export`], [`import`] | other formats |
//! | [`listen`], [`doctor`] | trace-cmd's network; checks of this machine |
//! | `daemon`, `top`, `put`, `get`, `ls` | commands of features |
//! | `choose`, `input`, `following`, `new_files`, `units`, `rewriting` | options that several commands share |
//! | `progress`, `summary`, `json_writer`, `substitutes`, `temporary` | output that several commands share |
//! | `command`, `dispositions`, `signals`, `limits` | processes and signals |
//! | `error`, [`exit`] | errors and exit codes |

pub mod analyze;
pub mod check;
mod choose;
mod command;
pub mod completions;
pub mod convert;
#[cfg(feature = "daemon")]
pub mod daemon;
pub mod diff;
mod dispositions;
pub mod doctor;
mod ending;
mod error;
mod examples;
pub mod exit;
pub mod export;
mod export_ltt;
mod export_tables;
mod features;
mod following;
pub mod generate;
#[cfg(feature = "store")]
pub mod get;
#[cfg(feature = "daemon")]
mod health;
pub mod hist;
pub mod import;
pub mod info;
mod input;
mod json_writer;
mod limits;
pub mod list;
pub mod listen;
#[cfg(feature = "store")]
pub mod ls;
pub mod merge;
mod new_files;
mod progress;
#[cfg(feature = "store")]
pub mod put;
pub mod record;
pub mod recover;
pub mod remote;
pub mod repair;
pub mod report;
mod rewriting;
mod signals;
pub mod split;
mod stack;
pub mod stream;
mod substitutes;
mod summary;
#[cfg(feature = "store")]
mod temporary;
#[cfg(feature = "top")]
pub mod top;
mod units;

use std::{
    ffi::OsString,
    fs::File,
    io::{IsTerminal as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{
    CommandFactory as _, FromArgMatches as _, Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};

pub use command::CommandError;
pub use dispositions::{ignore_file_size_signal, note_dispositions};
pub use error::CliError;
pub use stack::on_known_stack;

use features::Feature;
use new_files::NewFileArgs;
pub use report::TraceFile;
use stdx::terminal::SafeWriter;

/// The program's name.
pub const PROGRAM: &str = "tracer-agent";

/// Records kernel events with eBPF into trace.dat files that trace-cmd and KernelShark open.
///
/// Events of the kernel and of programs (tracepoints, probes of functions, markers, calls) are recorded
/// without loss or with a count of every lost event, and stored in the format of trace-cmd, version 7. The
/// other commands print, count, check, split and convert such files, whichever recorder wrote them.
/// `tracer-agent COMMAND --help` describes each.
#[derive(Parser, Debug)]
#[command(name = PROGRAM, version, max_term_width = 100, after_help = exit_codes())]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The commands. Their texts are those of their arguments: a text here would replace them, descriptions and
/// all.
#[derive(Subcommand, Debug)]
#[expect(missing_docs, reason = "the arguments' documentation is that of the command")]
pub enum Command {
    Record(Box<record::RecordArgs>),
    Stream(Box<stream::StreamArgs>),
    #[cfg(feature = "top")]
    Top(Box<top::TopArgs>),
    #[command(after_help = examples::RECOVER)]
    Recover(recover::RecoverArgs),
    #[command(after_help = examples::LIST)]
    List(list::Args),
    #[command(after_help = examples::REPORT)]
    Report(report::Args),
    #[command(after_help = examples::INFO)]
    Info(info::Args),
    Export(export::ExportArgs),
    Import(import::ImportArgs),
    Hist(hist::Args),
    Analyze(analyze::Args),
    #[command(after_help = examples::DIFF)]
    Diff(diff::Args),
    #[command(after_help = examples::CHECK)]
    Check(check::Args),
    #[command(after_help = examples::CONVERT)]
    Convert(convert::ConvertArgs),
    #[command(after_help = examples::SPLIT)]
    Split(split::SplitArgs),
    #[command(after_help = examples::MERGE)]
    Merge(merge::MergeArgs),
    #[command(after_help = examples::REPAIR)]
    Repair(repair::RepairArgs),
    #[command(after_help = examples::DOCTOR)]
    Doctor(doctor::Args),
    #[command(after_help = examples::LISTEN)]
    Listen(listen::ListenArgs),
    #[cfg(feature = "store")]
    #[command(after_help = examples::PUT)]
    Put(put::PutArgs),
    #[cfg(feature = "store")]
    #[command(after_help = examples::GET)]
    Get(get::GetArgs),
    #[cfg(feature = "store")]
    #[command(after_help = examples::LS)]
    Ls(ls::LsArgs),
    #[cfg(feature = "daemon")]
    #[command(after_help = examples::DAEMON)]
    Daemon(daemon::DaemonArgs),
    #[cfg(feature = "daemon")]
    #[command(after_help = examples::CTL, disable_help_subcommand = true)]
    Ctl(Box<ctl::CtlArgs>),
    #[cfg(feature = "daemon")]
    #[command(after_help = examples::HEALTH)]
    Health(health::HealthArgs),
    #[command(after_help = examples::COMPLETIONS)]
    Completions(completions::Args),
}

impl Command {
    /// What it says about the files that it creates.
    fn new_files(&self) -> Option<NewFileArgs> {
        Some(match self {
            Self::Record(args) => args.new_files,
            Self::Recover(args) => args.new_files,
            Self::Export(args) => args.new_files,
            Self::Import(args) => args.new_files,
            Self::Analyze(args) => args.new_files,
            Self::Convert(args) => args.new_files,
            Self::Split(args) => args.new_files,
            Self::Merge(args) => args.new_files,
            Self::Repair(args) => args.new_files,
            Self::Listen(args) => args.new_files,
            #[cfg(feature = "store")]
            Self::Get(args) => args.new_files,
            _ => return None,
        })
    }

    /// Whether what goes to stdout is JSON.
    fn speaks_json(&self) -> bool {
        match self {
            Self::Record(args) => args.print_spec,
            Self::Stream(args) => args.record.maps.json,
            #[cfg(feature = "top")]
            Self::Top(args) => args.record.maps.json,
            Self::List(args) => args.json,
            Self::Report(args) => args.json,
            Self::Info(args) => args.json,
            Self::Hist(args) => args.json,
            Self::Analyze(args) => args.json,
            Self::Diff(args) => args.json,
            Self::Check(args) => args.json,
            #[cfg(feature = "store")]
            Self::Ls(args) => args.json,
            Self::Doctor(args) => args.json,
            #[cfg(feature = "daemon")]
            Self::Health(args) => args.json,
            _ => false,
        }
    }
}

fn exit_codes() -> String {
    let mut text = String::from("EXIT CODES\n");
    for code in exit::ExitCode::ALL {
        text += &format!("  {:>3}  {}\n", code.code(), code.meaning());
    }
    text += "  `record COMMAND` exits with the command's own status when the recording is complete.\n\n";
    text + examples::ALL
}

/// Runs the command line `args`, the program's name first.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<_> = args.into_iter().collect();
    #[cfg(feature = "daemon")]
    if ctl::is_lttng(args.first()) {
        return ctl::run_as_lttng(args.get(1..).unwrap_or_default());
    }
    let parser = Cli::command().subcommand(generate::parser());
    let parsed = parser.try_get_matches_from(&args).and_then(|matches| Ok((Parsed::of(&matches)?, matches)));
    let (parsed, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            if error.use_stderr() {
                if let Some(feature) = Feature::missing(&error, &args) {
                    tell(&format!("tracer-agent: {}", feature.absence()));
                    return exit::ExitCode::Usage.into();
                }
                // It repeats what was typed.
                tell(error.render().to_string().trim_end());
                if let Some(instead) = substitute(&error, &args) {
                    tell(&format!("\ninstead: {instead}"));
                }
                return exit::ExitCode::Usage.into();
            }
            // Help and version go to stdout and are no errors. A closed pipe after them is none either.
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
    };
    let arguments = matches.subcommand().map(|(_, arguments)| arguments);
    let ended = match &parsed {
        Parsed::Command(command) => dispatch(command, arguments),
        Parsed::Generate(args) => generate::run(args, &mut std::io::stdout().lock()),
    };
    match ended {
        // Of what was not all there, not all can have been done.
        Ok(0) if input::was_cut_off() => exit::ExitCode::Failure.into(),
        Ok(code) => code.into(),
        Err(error) => {
            tell(&format!("tracer-agent: {error}"));
            error.exit_code().into()
        }
    }
}

/// A command line.
enum Parsed {
    Command(Box<Command>),
    Generate(generate::GenerateArgs),
}

impl Parsed {
    fn of(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        match matches.subcommand() {
            Some((generate::NAME, arguments)) => {
                generate::GenerateArgs::from_arg_matches(arguments).map(Self::Generate)
            }
            _ => Cli::from_arg_matches(matches).map(|cli| Self::Command(Box::new(cli.command))),
        }
    }
}

/// What to use instead of an option of trace-cmd's that is not here.
fn substitute(error: &clap::Error, args: &[OsString]) -> Option<&'static str> {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) if error.kind() == ErrorKind::UnknownArgument => {
            substitutes::of(args.get(1)?.to_str()?, option)
        }
        _ => None,
    }
}

fn dispatch(command: &Command, arguments: Option<&clap::ArgMatches>) -> Result<u8, CliError> {
    if let Some(new_files) = command.new_files() {
        new_files.apply();
    }
    let stdout = std::io::stdout().lock();
    let is_terminal = stdout.is_terminal();
    let mut stdout = SafeWriter::new(stdout, is_terminal).json(command.speaks_json());
    match command {
        Command::Record(args) => {
            let matches = arguments.cloned().unwrap_or_default();
            if args.print_spec {
                record::print_spec(args, &matches, &mut stdout)?;
                return Ok(exit::ExitCode::Ok.code());
            }
            // The recorded command shares stdout; nothing here writes to it.
            drop(stdout);
            record::run(args, &matches)
        }
        Command::Stream(args) => {
            let matches = arguments.cloned().unwrap_or_default();
            writes_files(stdout, || stream::run(args, &matches))
        }
        #[cfg(feature = "top")]
        Command::Top(args) => {
            let matches = arguments.cloned().unwrap_or_default();
            writes_files(stdout, || top::run(args, &matches))
        }
        Command::Recover(args) => recover::run(args),
        Command::List(args) => {
            list::run(args, &mut stdout)?;
            Ok(exit::ExitCode::Ok.code())
        }
        Command::Report(args) => {
            Feature::refuse_stores(args.inputs.iter().chain(&args.files).map(PathBuf::as_path))?;
            let matches = arguments.cloned().unwrap_or_default();
            Ok(report::run(args, &matches, &mut stdout)?.code())
        }
        Command::Info(args) => {
            Feature::refuse_stores([args.file.as_path()])?;
            Ok(info::run(args, &mut stdout)?.code())
        }
        Command::Hist(args) => Ok(hist::run(args, &mut stdout)?.code()),
        Command::Analyze(args) => {
            let before = args.flame.flame_diff.as_deref();
            Feature::refuse_stores([args.file.as_path()].into_iter().chain(before))?;
            Ok(analyze::run(args, &mut stdout)?.code())
        }
        Command::Diff(args) => Ok(diff::run(args, &mut stdout)?.code()),
        Command::Export(args) => export::run(args),
        Command::Import(args) => import::run(args),
        Command::Check(args) => {
            Ok(check::run(args, &mut stdout).map_err(CliError::system("write the report"))?.code())
        }
        Command::Convert(args) => writes_files(stdout, || convert::run(args)),
        Command::Split(args) => writes_files(stdout, || split::run(args)),
        Command::Merge(args) => writes_files(stdout, || merge::run(args)),
        Command::Repair(args) => writes_files(stdout, || repair::run(args)),
        Command::Listen(args) => writes_files(stdout, || listen::run(args)),
        #[cfg(feature = "store")]
        Command::Put(args) => writes_files(stdout, || put::run(args)),
        #[cfg(feature = "store")]
        Command::Get(args) => writes_files(stdout, || Ok(get::run(args))),
        #[cfg(feature = "store")]
        Command::Ls(args) => ls::run(args, &mut stdout),
        #[cfg(feature = "daemon")]
        Command::Ctl(args) => writes_files(stdout, || Ok(ctl::run(args))),
        #[cfg(feature = "daemon")]
        Command::Health(args) => Ok(health::run(args, &mut stdout)?.code()),
        #[cfg(feature = "daemon")]
        Command::Daemon(args) => writes_files(stdout, || daemon::run(args)),
        Command::Completions(args) => {
            write_all(&mut stdout, &completions::script(args.shell))?;
            Ok(exit::ExitCode::Ok.code())
        }
        Command::Doctor(args) => {
            let code = doctor::run(args, &mut stdout).map_err(CliError::system("write the report"))?;
            Ok(code.code())
        }
    }
}

/// Runs a command that takes stdout when it has something to say.
fn writes_files(
    stdout: SafeWriter<std::io::StdoutLock<'_>>,
    run: impl FnOnce() -> Result<u8, CliError>,
) -> Result<u8, CliError> {
    drop(stdout);
    run()
}

/// Writes a line to stderr, without anything that a terminal obeys. Where that is closed nobody can be told,
/// and nothing else may fail for it: `eprintln!` would end a recording with a panic.
fn tell(text: &str) {
    let stderr = std::io::stderr().lock();
    let is_terminal = stderr.is_terminal();
    let _ = SafeWriter::new(stderr, is_terminal).write_all(format!("{text}\n").as_bytes());
}

/// Opens a trace file with its events and symbols.
fn open_trace(path: &Path) -> Result<TraceFile<File>, CliError> {
    let file = input::open(path).map_err(|source| info::InfoError::Open { path: path.to_owned(), source })?;
    Ok(TraceFile::open(&path.display().to_string(), file)
        .map_err(|source| info::InfoError::Read { path: path.to_owned(), source })?)
}

/// An answer as one line of JSON.
fn json_line(answer: &impl serde::Serialize) -> Result<String, CliError> {
    json_writer::text(answer, json_writer::Lines::One).map_err(CliError::system("write the report"))
}

/// The same with the members of each object in the order of their names: where parts are flattened into an
/// object, those of its definition would not be together.
fn sorted_json_line(answer: &impl serde::Serialize) -> Result<String, CliError> {
    let answer = serde_json::to_value(answer).map_err(|error| CliError::Failed(error.to_string()))?;
    json_line(&answer)
}

/// Writes a text to the output. A reader that has seen enough is no error.
fn write_all(out: &mut dyn std::io::Write, text: &str) -> Result<(), CliError> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(CliError::system("write the report")),
    }
}

/// Ends the process without destructors: they could take long, and the user does not want to wait.
fn exit_now(code: exit::ExitCode) -> ! {
    // SAFETY: takes a plain number and does not return.
    unsafe { libc::_exit(code.code().into()) }
}
