//! `analyze --flame`: the stacks of an answer, as a flame graph or for another viewer.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::{Args, NO_NANOSECONDS, ask, check_buffer, damage};
use crate::error::{CliError, repair_hint};
use crate::exit::ExitCode;
use crate::input::{self, Opened};
use crate::tell;
use crate::units::count;
use analysis::answers::{Covered, OffCpu, Scope, Topic};
use flame::{Difference, FlameStacks, Format, OTHERS};
use report::TraceFile;
use stdx::output::{Output, OutputError, TempFile};

/// What stands for the output.
const STDOUT: &str = "-";

/// Flame graphs.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Flame graphs")]
pub struct FlameArgs {
    /// Write the stacks of `cpu`, `offcpu` or `stacks` instead of tables
    ///
    /// The end of FILE says how: .svg a flame graph for browsers, .folded or .txt a line for each stack,
    /// .pb.gz or .pprof a profile of pprof, .speedscope.json or .json a file of speedscope; - prints lines. A
    /// file of this name is replaced.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub flame: Option<PathBuf>,

    /// Show what is different from this recording
    ///
    /// A flame graph is that of FILE, in red where there is more than in OTHER and in blue where there is
    /// less. Lines have two numbers, of OTHER and of FILE; in a profile of pprof, OTHER is taken away;
    /// speedscope gets two profiles. --from and --to are times of FILE; all of OTHER is compared.
    #[arg(long, value_name = "OTHER", requires = "flame")]
    pub flame_diff: Option<PathBuf>,

    /// Compare shares of the whole, for recordings of different length or load
    #[arg(long, requires = "flame_diff")]
    pub flame_normalize: bool,

    /// Put who wakes a thread upon its stack, behind a frame `--`; of `offcpu`
    #[arg(long, requires = "flame")]
    pub flame_wakers: bool,
}

/// Writes the stacks of an answer.
///
/// # Errors
/// An analysis without stacks, or a recording; a name that stands for no format; the file cannot be written.
pub(super) fn run(
    args: &Args,
    path: &Path,
    file: &TraceFile<Opened>,
    scope: &Scope,
    out: &mut dyn Write,
) -> Result<ExitCode, CliError> {
    let options = &args.flame;
    if options.flame_wakers && args.topic != Topic::Offcpu {
        return Err(CliError::usage("--flame-wakers is for offcpu: of others it is not known who wakes"));
    }
    let is_stdout = path.as_os_str() == STDOUT;
    let format = if is_stdout { Format::Folded } else { format(path)? };
    // Nobody should wait for a refusal.
    let output = if is_stdout { None } else { Some(output(path, args)?) };
    let other = options.flame_diff.as_deref().map(|other| open(args, other, scope)).transpose()?;
    let (now, covered) = stacks(args, file, scope)?;
    let now = now.lasting(covered.to_ns.saturating_sub(covered.from_ns));
    let mut code = damage(file.name(), covered.damaged);
    let before = match &other {
        None => None,
        Some(other) => {
            let scope = Scope { from: None, to: None, ..scope.clone() };
            let (before, covered) = stacks(args, other, &scope)?;
            if damage(other.name(), covered.damaged) != ExitCode::Ok {
                code = ExitCode::Failure;
            }
            Some((before.titled(other.name()), losses(other, &covered)))
        }
    };
    let mut bytes = Vec::new();
    let is_normalized = options.flame_normalize;
    match &before {
        None => format.write(&now, &mut bytes),
        Some((before, _)) => {
            format.write_difference(&Difference { before, now: &now, is_normalized }, &mut bytes)
        }
    }
    .map_err(CliError::system("make the flame graph"))?;
    match output {
        None => print(out, &bytes)?,
        Some(output) => {
            write(&output, &bytes).map_err(|error| CliError::Output(error.to_string()))?;
            tell(&summary(path, &now));
        }
    }
    let more = before.and_then(|(_, losses)| losses);
    for text in losses(file, &covered).into_iter().chain(more) {
        tell(&text);
    }
    Ok(code)
}

/// Another recording.
fn open(args: &Args, path: &Path, scope: &Scope) -> Result<TraceFile<Opened>, CliError> {
    let name = path.display().to_string();
    let open = input::open_source(path, &args.access).map_err(input::not_opened(path))?;
    let file = TraceFile::open(&name, open)
        .map_err(|error| CliError::Failed(format!("cannot read {name}: {error}{}", repair_hint(&error))))?;
    if !file.counts_nanoseconds() {
        return Err(CliError::Failed(format!("{name}: {NO_NANOSECONDS}")));
    }
    check_buffer(scope, &file)?;
    Ok(file)
}

/// The form that the name of a file stands for.
fn format(path: &Path) -> Result<Format, CliError> {
    Format::of(path).ok_or_else(|| {
        let endings: Vec<&str> = Format::ENDINGS.iter().map(|(ending, _)| *ending).collect();
        CliError::usage(format!(
            "--flame {}: the end of the name says what is written; there are {}",
            path.display(),
            endings.join(" ")
        ))
    })
}

fn output(path: &Path, args: &Args) -> Result<Output, CliError> {
    let output = Output::at(path).map_err(|error| CliError::Output(error.to_string()))?;
    let inputs = std::iter::once(&args.file).chain(&args.flame.flame_diff);
    match inputs.into_iter().find(|input| output.is_same_file(input)) {
        Some(input) => {
            Err(CliError::usage(format!("--flame would replace {}, which is read", input.display())))
        }
        None => Ok(output),
    }
}

/// The stacks of an answer.
fn stacks(args: &Args, file: &TraceFile<Opened>, scope: &Scope) -> Result<(FlameStacks, Covered), CliError> {
    let name = file.name();
    let (stacks, covered, record) = match args.topic {
        Topic::Cpu => {
            let (answer, covered) = ask(args, file, scope, args.stacks.cpu(file, scope)?)?;
            (answer.flame(&format!("On CPU: {name}")), covered, "--for cpu".to_owned())
        }
        Topic::Offcpu => {
            let (answer, covered) = ask(args, file, scope, OffCpu::new(scope.clone()))?;
            let title = format!("Off CPU: {name}");
            let stacks = if answer.has_stacks() {
                answer.flame(&title, args.flame.flame_wakers)
            } else {
                FlameStacks::new(&title, flame::Unit::Nanoseconds)
            };
            (stacks, covered, "--for offcpu".to_owned())
        }
        Topic::Stacks => {
            let event = args.stacks.event.as_deref().unwrap_or_default();
            let (answer, covered) = ask(args, file, scope, args.stacks.stacks(file, scope)?)?;
            let title = format!("{event} by {}: {name}", answer.unit.name());
            let event = event.split_once(' ').map_or(event, |(event, _)| event.trim_end_matches(':'));
            (answer.flame(&title), covered, format!("-e {event} -T --user-stack"))
        }
        topic => {
            return Err(CliError::usage(format!(
                "--flame: {} has no stacks; cpu, offcpu and stacks have",
                topic.name()
            )));
        }
    };
    if stacks.is_empty() {
        return Err(CliError::Failed(format!(
            "{name} has no stacks of what is asked about; `tracer-agent record {record}` records them"
        )));
    }
    Ok((stacks, covered))
}

/// Writes a file, which has its name when it is complete.
fn write(output: &Output, bytes: &[u8]) -> Result<(), OutputError> {
    let (temp, mut file) = TempFile::beside(output)?;
    file.write_all(bytes).map_err(OutputError::io("write", output.path()))?;
    temp.put_in_place(&file).map(drop)
}

/// Prints lines. A reader that has seen enough is no error.
fn print(out: &mut dyn Write, bytes: &[u8]) -> Result<(), CliError> {
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(CliError::system("write the stacks")),
    }
}

/// What was written.
fn summary(path: &Path, stacks: &FlameStacks) -> String {
    let number = |weight: u128| count(u64::try_from(weight).unwrap_or(u64::MAX));
    let mut text = format!(
        "{}: {} {} in {} stacks",
        path.display(),
        number(stacks.total()),
        stacks.unit().name(),
        count(stacks.len() as u64)
    );
    if stacks.others() != 0 {
        text += &format!("; {} of them found no room, as {OTHERS}", number(stacks.others()));
    }
    text
}

/// What the stacks do not have.
fn losses(file: &TraceFile<Opened>, covered: &Covered) -> Option<String> {
    (covered.losses != 0).then(|| {
        let more = if covered.losses_uncounted == 0 { "" } else { " or more" };
        format!(
            "tracer-agent: {}: {}{more} events were lost at {} places; their stacks and what lasted over one of these are \
             not in it",
            file.name(),
            count(covered.lost_events),
            count(covered.losses)
        )
    })
}
