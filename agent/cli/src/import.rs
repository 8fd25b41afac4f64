//! `tracer-agent import`: a recording of another tracer as a trace.dat.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use clap::Args;

use super::exit::ExitCode;
use super::new_files::NewFileArgs;
use super::units::{bytes, count};
use super::{CliError, input, rewriting};
use import::ctf::CtfOptions;
use import::open::{Hints, Kind, open, open_stream};
use import::text::Formats;
use import::{ImportError, Imported, Options, Source, Target, import};

/// Where the kernel's formats are.
const TRACEFS: &str = "/sys/kernel/tracing";

/// Import a recording of another tracer as a trace.dat
///
/// All other commands, trace-cmd and KernelShark work on the file. What SOURCE is, is seen from how it
/// begins. OUT appears when it is complete. Events that were lost when SOURCE was recorded are marked and
/// counted in OUT; what a trace.dat has no place for is counted and reported at the end.
#[derive(Args, Debug)]
#[command(after_help = formats_help())]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct ImportArgs {
    /// Format of SOURCE; see below [default: by its content]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,

    /// The file to write
    #[arg(short = 'o', long, value_name = "OUT", default_value = "trace.dat")]
    pub output: PathBuf,

    #[command(flatten)]
    #[expect(missing_docs, reason = "its option is documented")]
    pub new_files: NewFileArgs,

    /// Replace an existing file
    #[arg(long)]
    pub force: bool,

    /// Show times of day, where SOURCE knows their distance to its clock
    #[arg(long)]
    pub date: bool,

    /// Take formats of events from DIR (SYSTEM/EVENT/format), for a text that they print exactly
    /// [default: those of the running kernel]
    #[arg(long, value_name = "DIR")]
    pub formats: Option<PathBuf>,

    /// Import the traces of user space of a session of LTTng, too, beside that of the kernel
    #[arg(long)]
    pub user_space: bool,

    /// Read packets of CTF whose UUID is not that of the metadata, too
    #[arg(long)]
    pub other_uuids: bool,

    /// Keep what comes before the first damage in SOURCE
    #[arg(long)]
    pub keep_going: bool,

    /// Print no summary
    #[arg(short = 'q', long)]
    pub quiet: bool,

    /// The recording; - for standard input
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,
}

fn formats_help() -> String {
    let mut text = String::from("FORMATS\n");
    for kind in Kind::ALL {
        let _ = writeln!(text, "  {:<8}{}", kind.name(), kind.summary());
    }
    text + "\n" + super::examples::IMPORT
}

fn kind(args: &ImportArgs) -> Result<Option<Kind>, CliError> {
    let Some(name) = &args.format else { return Ok(None) };
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
    kind.map(Some).ok_or_else(|| {
        let names: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        CliError::Usage(format!("no format {name:?} to import; known: {}", names.join(", ")))
    })
}

/// Formats that were asked for, or those of the running kernel as far as they can be read.
fn formats(args: &ImportArgs) -> Result<Option<Formats>, CliError> {
    match &args.formats {
        None => Ok(Formats::in_directory(Path::new(TRACEFS)).ok()),
        Some(dir) => Formats::in_directory(dir).map(Some).map_err(|source| {
            CliError::Failed(format!("cannot read the formats in {}: {source}", dir.display()))
        }),
    }
}

fn source(path: &Path, hints: Hints) -> Result<Box<dyn Source>, ImportError> {
    if !input::is_standard(path) {
        return open(path, hints);
    }
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Err(ImportError::Unknown { what: "standard input, a terminal,".to_owned() });
    }
    open_stream(Box::new(stdin), "standard input", hints)
}

pub(super) fn run(args: &ImportArgs) -> Result<u8, CliError> {
    let ctf = CtfOptions { user_space: args.user_space, foreign_packets: args.other_uuids };
    let hints = Hints { kind: kind(args)?, formats: formats(args)?, ctf };
    let failed = |error| CliError::Import { file: args.source.display().to_string(), error };
    let target = Target { path: args.output.clone(), force: args.force };
    let options = Options { keep_going: args.keep_going, date: args.date };
    let imported = rewriting::run("importing", |watch| {
        let mut source = source(&args.source, hints).map_err(failed)?;
        import(&mut *source, &target, options, watch).map_err(failed)
    })?;
    if !args.quiet {
        super::tell(summary(&imported).trim_end());
    }
    Ok(ExitCode::Ok.code())
}

fn summary(imported: &Imported) -> String {
    let Imported { path, bytes: size, events, kinds, lost, lost_unknown, span, not_carried } = imported;
    let mut text = format!("{}: {} events of {} kinds", path.display(), count(*events), count(*kinds as u64));
    if let Some((first, last)) = span {
        let micros = last.saturating_sub(*first) / 1000;
        let _ = write!(text, " in {}.{:06} s", micros / 1_000_000, micros % 1_000_000);
    }
    let _ = writeln!(text, ", {}", bytes(*size));
    match (lost, lost_unknown) {
        (0, false) => {}
        (0, true) => text += "lost when it was recorded: some events, and nobody knows how many\n",
        (lost, unknown) => {
            let more = if *unknown { " at least" } else { "" };
            let _ = writeln!(text, "lost when it was recorded: {} events{more}", count(*lost));
        }
    }
    if !not_carried.is_empty() {
        text += "not carried over:\n";
        for (what, number) in not_carried.iter() {
            let _ = writeln!(text, "  {:>12}  {what}", count(number));
        }
    }
    text
}
