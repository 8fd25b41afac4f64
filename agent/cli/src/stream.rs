//! `tracer-agent stream`: events are printed as they come, and no file is kept.
//!
//! | file | subject |
//! |---|---|
//! | `printing` | the thread that prints |
//!
//! It is a recording with a size limit, in a private directory that is removed at the end, and a thread that
//! follows it. So an output that is not read costs the recording nothing and never more than that much space;
//! what the limit removes before it was printed is counted.

mod printing;

use std::{
    fs::File,
    io::{self, IsTerminal as _},
    os::fd::AsFd as _,
    path::Path,
    time::{Duration, Instant},
};

use clap::{Arg, ArgMatches, Args};
use rustix::stdio::dup2_stdout;

use self::printing::{Outcome, Printing};
use super::{
    CliError,
    command::{self, Inherit},
    exit::ExitCode,
    input,
    progress::{self, ProgressLine},
    record::{
        self, RecordArgs,
        edges::{Awaited, Work},
        refused::Refused,
        spec,
        until::{self, End, Running, Until},
    },
    report::{self, Color},
    signals::{Asked, Signals},
    summary, tell,
    units::count,
};
use ::spec::{KEEP_BYTES_MIN, RecordingSpec};
use capture::piped::Place;
use capture::{CaptureOptions, Destination, Recorded, Session};
use kernel::cpus::Cpus;
use plan::Plan;
use stdx::output::Output;
use tracedat::Compression;

/// How much later than it fired an event is stored at most, unless the user says it.
const SWITCH_NS: u64 = 200_000_000;

/// Space for events that wait to be printed, of all CPUs together, unless the user says it.
const SPACE: u64 = 256 << 20;
/// The most of it that a CPU gets.
const SPACE_OF_CPU: u64 = 64 << 20;

/// How long what is left may take to be printed when the user has asked for the end.
const PATIENCE: Duration = Duration::from_secs(1);

/// The name of the recording in its directory.
const FILE: &str = "stream";

/// How it is printed.
const PRINT: &str = "Printing";

/// Options of `record` that this command does not have beside those that are about files, by clap's ids.
const NOT_HERE: [&str; 1] = ["interval"];

/// Print kernel events as they come
///
/// Prints events as `report` prints them, in the order of time over all CPUs, and keeps no file. Runs COMMAND
/// and goes on until it exits; without a command, until Ctrl-C or until --duration has passed. What COMMAND
/// prints goes to standard error.
///
/// Events that come faster than they can be printed wait on the disk, in TMPDIR; of more than -m, the oldest
/// are not printed, and a line says how many.
#[derive(Args, Debug)]
#[command(
    mut_args = adapted,
    after_help = "\
EXAMPLES
  tracer-agent stream -e sched_process_exec
  tracer-agent stream -e 'syscalls:sys_enter_open*' -F -c ls
  tracer-agent stream -e sched_switch -f 'next_prio < 100' --json --duration 2s
  tracer-agent stream --uretprobe 'line=/bin/bash:readline text=+0($retval):string'
  tracer-agent stream -e 'sched:*' -e irq --comm 'kworker*' --limit 100"
)]
pub struct StreamArgs {
    /// How events are printed.
    #[command(flatten)]
    pub print: PrintArgs,

    /// Which events.
    #[command(flatten)]
    pub record: RecordArgs,
}

/// How events are printed.
#[derive(Args, Debug)]
#[command(next_help_heading = PRINT)]
pub struct PrintArgs {
    /// Colour event names and lost events
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: Color,

    /// Print timestamps in nanoseconds
    #[arg(short = 't', long = "full-time")]
    pub full_time: bool,

    /// Print the raw fields instead of the formatted text
    #[arg(short = 'R', long = "raw", conflicts_with = "json")]
    pub raw: bool,

    /// Print the latency flags: interrupts off, need-resched, interrupt context, preemption count
    #[arg(short = 'l', long = "latency", conflicts_with = "json")]
    pub latency: bool,

    /// Print this many events, and end
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
}

/// The options of `record`, as they are here.
fn adapted(arg: Arg) -> Arg {
    let id = arg.get_id().as_str().to_owned();
    match id.as_str() {
        // Its letter is another one's here.
        "tcp" => arg.hide(true).short(None),
        id if spec::refused(&NOT_HERE).any(|of| of == id) => arg.hide(true),
        "quiet" => arg.help("Print neither messages nor summary"),
        "json" => {
            arg.help("Print JSON: one object a line, as docs/report.md describes it").help_heading(PRINT)
        }
        "max_kb" => arg.help(
            "Let at most this much of each CPU's events wait to be printed: 512K, 100M; plain numbers are KB \
             [default: 64M, and 256M of all CPUs]",
        ),
        "switch_timer" => {
            arg.help("Print events at most this much later: 50ms, 10s, or off [default: 200ms]")
        }
        "duration" => {
            arg.help("Stop after this time: 10, 1.5, 500ms, 2m, 1h. It starts when all events are attached")
        }
        "date" => arg.help("Print wall-clock time"),
        _ => arg,
    }
}

impl StreamArgs {
    /// What `report` would be told.
    fn report(&self) -> report::Args {
        let PrintArgs { color, full_time, raw, latency, limit } = self.print;
        let (json, quiet) = (self.record.maps.json, self.record.quiet);
        report::Args { full_time, raw, latency, json, color, limit, quiet, ..report::Args::default() }
    }

    /// What is recorded, into a file that is not kept.
    fn spec(&self, matches: &ArgMatches) -> Result<RecordingSpec, CliError> {
        if let Some(option) = spec::given_of(matches, &NOT_HERE) {
            return Err(CliError::Usage(format!(
                "{option} is an option of record, and stream has no use for it: it keeps no file"
            )));
        }
        let mut spec = spec::of_options(&self.record, matches)?;
        let cpus = Cpus::read().map_err(CliError::kernel)?.possible.iter().count().max(1) as u64;
        let parts = cpus * spec.channels.len().max(1) as u64;
        let space = (SPACE / parts).clamp(KEEP_BYTES_MIN, SPACE_OF_CPU);
        // What waits is soon gone, mostly before the disk has it.
        spec.file.compression = Compression::None;
        for channel in &mut spec.channels {
            channel.keep_bytes.get_or_insert(space);
            if self.record.switch_timer.is_empty() {
                channel.switch_ns = SWITCH_NS;
            }
        }
        Ok(spec)
    }
}

/// The place of the recording until its end.
struct Meanwhile(Place);

impl Meanwhile {
    fn create() -> Result<Self, CliError> {
        let parent = input::temporary();
        Place::create_in(&parent).map(Self).map_err(|error| no_place(&parent, &error))
    }

    /// Has the recording go there.
    fn receive(&self, options: &mut CaptureOptions) -> Result<(), CliError> {
        let dir = self.0.dir();
        let output = Output::in_directory(dir.clone(), FILE.into());
        options.destination = Destination::File(output.map_err(|error| no_place(dir.path(), &error))?);
        Ok(())
    }
}

impl Drop for Meanwhile {
    fn drop(&mut self) {
        if let Err(error) = self.0.remove() {
            tell(&format!("tracer-agent: cannot remove {}: {error}", self.0.dir().path().display()));
        }
    }
}

fn no_place(parent: &Path, error: &dyn std::fmt::Display) -> CliError {
    CliError::Output(format!(
        "events wait in {} until they are printed: {error}; TMPDIR names another directory",
        parent.display()
    ))
}

/// Takes standard output for the events. What else is written there, by COMMAND for example, goes to standard
/// error from now on.
fn take_stdout() -> Result<File, CliError> {
    let taken = io::stdout().as_fd().try_clone_to_owned();
    let out = taken.map_err(CliError::system("use standard output"))?.into();
    dup2_stdout(io::stderr()).map_err(|error| CliError::system("use standard error")(error.into()))?;
    Ok(out)
}

/// Runs the command. `matches` are the raw arguments of this subcommand, for the order of options.
pub(super) fn run(args: &StreamArgs, matches: &ArgMatches) -> Result<u8, CliError> {
    let spec = args.spec(matches)?;
    let mut report = args.report();
    if report.color == Color::Auto {
        // Decided before standard output is another one.
        report.color = if report.color.wanted() { Color::Always } else { Color::Never };
    }
    let program = args.record.command.first().map(command::find).transpose()?;
    // Before the first thread starts, so that no thread takes a signal from the descriptor.
    let signals = Signals::block_others().map_err(CliError::system("block signals"))?;
    let plan = Plan::make(&spec).map_err(|error| Refused::error(error, true))?;
    signals.block_ends().map_err(CliError::system("block signals"))?;
    let open_files = super::limits::raise().map_err(CliError::system("raise the limits of this process"))?;
    let Plan { mut options, followed, edges, notes, .. } = plan;
    if !args.record.quiet {
        for note in &notes {
            tell(&format!("tracer-agent: {note}"));
        }
    }
    let out = take_stdout()?;
    let place = Meanwhile::create()?;
    place.receive(&mut options)?;
    let mut line = ProgressLine::new(!args.record.quiet && io::stderr().is_terminal());
    let created = Session::create(options, &mut |done, all| line.attaching(done, all));
    drop(line);
    let mut session = created?;
    for left_out in session.left_out() {
        tell(&format!("tracer-agent: not recorded: {}: {}", left_out.event, left_out.reason));
    }
    let inherit = Inherit { mask: signals.old_mask(), open_files };
    let started = Printing::start(&session, report, out).and_then(|printing| {
        let watch = (Work::Recording, || session.watch_options());
        let awaited = Awaited::attach(watch, edges, &spec.limits, args.record.quiet)?;
        let is_now = !awaited.as_ref().is_some_and(Awaited::delays_start);
        let command = Running::start(program.as_deref(), &args.record, (&spec, inherit), |thread| {
            if let Some(thread) = thread {
                session.trace_thread(thread);
            }
            if is_now {
                session.start();
            }
        })?;
        Ok((printing, awaited, command))
    });
    let (printing, mut awaited, command) = match started {
        Ok(started) => started,
        Err(error) => {
            session.discard().map_err(|error| CliError::Failed(error.to_string()))?;
            return Err(error);
        }
    };
    let mut until = Until::new(signals, command, followed);
    let end = match record::begin(&mut session, awaited.as_mut(), &mut until, false)? {
        Some(end) => end,
        None => wait_for_end((&session, &printing), awaited.as_mut(), &mut until, (args, &spec))?,
    };
    if let Some(mut awaited) = awaited.filter(|awaited| !awaited.is_over()) {
        awaited.tell_missing();
    }
    conclude((args, &spec), (session, printing, place), (end, until))
}

fn wait_for_end(
    (session, printing): (&Session, &Printing),
    mut awaited: Option<&mut Awaited>,
    until: &mut Until,
    (args, spec): (&StreamArgs, &RecordingSpec),
) -> Result<End, CliError> {
    let duration = spec.limits.duration_ns.map(Duration::from_nanos);
    let deadline = duration.zip(session.began()).map(|(duration, began)| began + duration);
    // Events are printed on the terminal, and no line of progress.
    let mut line = ProgressLine::new(false);
    if !args.record.quiet {
        let stop_on = awaited.as_ref().and_then(|awaited| awaited.stop_on());
        line.begin(&record::begun((Work::Recording, stop_on), (&args.record, spec), until));
    }
    loop {
        if let Some(awaited) = &mut awaited
            && awaited.has_ended(&mut line)?
        {
            return Ok(End::Asked);
        }
        let now = Instant::now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            return Ok(End::Asked);
        }
        let mut fds = vec![session.failed(), printing.ended()];
        fds.extend(awaited.iter().map(|awaited| awaited.fd()));
        let ready = until.wait(&fds, deadline.map(|deadline| deadline - now))?;
        drop(fds);
        if ready.first() == Some(&true) {
            return Ok(End::Failure);
        }
        while let Some(asked) = until.asked() {
            match asked {
                Asked::End(_) => {
                    printing.hurry();
                    return Ok(End::Asked);
                }
                Asked::Progress => {
                    tell(&progress::text(session.progress()));
                    tell(&format!("tracer-agent: {} of them are printed", count(printing.printed())));
                }
                Asked::Snapshot => tell("tracer-agent: stream keeps nothing that could be stored"),
            }
        }
        if ready.get(1) == Some(&true) {
            return Ok(End::Unsent);
        }
        if let Some(end) = until.ended()? {
            return Ok(end);
        }
    }
}

/// Prints what is left, and says how it was.
fn conclude(
    (args, spec): (&StreamArgs, &RecordingSpec),
    (session, printing, place): (Session, Printing, Meanwhile),
    (end, until): (End, Until),
) -> Result<u8, CliError> {
    let recorded = session.stop().pop();
    let (signals, child) = until.into_parts();
    let Recorded { spool, stats, failure, .. } =
        recorded.ok_or_else(|| CliError::Failed("nothing was recorded".to_owned()))?;
    let outcome = printing.finish(&signals, PATIENCE)?;
    drop(spool);
    drop(place);
    let Outcome { printed, is_cut_off, is_limited, is_damaged } = outcome;
    let code = until::exit_code(end, child);
    if is_cut_off {
        // Nobody reads it any more, which is no error.
        return Ok(code);
    }
    if !args.record.quiet && is_limited {
        tell(&format!("tracer-agent: {} events printed, as --limit says", count(printed)));
    } else if !args.record.quiet {
        tell(summary::of_stream(&stats, printed, record::is_filtered(spec)).trim_end());
        record::tell_no_name_matched(&stats, spec);
    }
    if let Some(failure) = failure {
        tell(&format!("tracer-agent: recording ended early: {failure}"));
        let code = if failure.is_disk_full() { ExitCode::DiskFull } else { ExitCode::Failure };
        return Ok(code.code());
    }
    let missing = stats.missing_total();
    if let Some(max) = spec.limits.max_lost
        && missing > max
    {
        tell(summary::too_much_lost(missing, max, Some(&stats)).trim_end());
        return Ok(ExitCode::TooMuchLost.code());
    }
    Ok(if is_damaged { ExitCode::Failure.code() } else { code })
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches as _};

    use super::*;

    fn parsed(args: &[&str]) -> (StreamArgs, ArgMatches) {
        let command = StreamArgs::augment_args(Command::new("stream"));
        let matches = command.get_matches_from([&["stream"], args].concat());
        (StreamArgs::from_arg_matches(&matches).unwrap(), matches)
    }

    #[test]
    fn what_is_about_files_is_neither_shown_nor_taken() {
        let command = StreamArgs::augment_args(Command::new("stream"));
        for id in spec::refused(&NOT_HERE) {
            let found = command.get_arguments().find(|arg| arg.get_id() == id);
            assert!(found.is_some_and(Arg::is_hide_set), "{id}");
        }
        for args in
            [&["-o", "x"][..], &["--overwrite"], &["--count", "sched_switch"], &["--rotate-size", "1M"]]
        {
            let (stream, matches) = parsed(&[&["-e", "sched_switch"], args].concat());
            let error = stream.spec(&matches).unwrap_err();
            assert_eq!(error.exit_code(), ExitCode::Usage, "{args:?}");
            assert!(error.to_string().contains("stream has no use for it"), "{error}");
        }
    }

    #[test]
    fn events_wait_in_bounded_space_and_not_for_long() {
        let spec = |args: &[&str]| {
            let (stream, matches) = parsed(args);
            stream.spec(&matches).unwrap()
        };
        let usual = spec(&["-e", "sched_switch", "--json"]);
        let channel = &usual.channels[0];
        assert_eq!(channel.switch_ns, SWITCH_NS);
        assert!((KEEP_BYTES_MIN..=SPACE_OF_CPU).contains(&channel.keep_bytes.unwrap()));
        let told = spec(&["-e", "sched_switch", "-m", "1M", "--switch-timer", "50ms"]);
        assert_eq!((told.channels[0].keep_bytes, told.channels[0].switch_ns), (Some(1 << 20), 50_000_000));
    }

    #[test]
    fn it_is_printed_as_report_is_told() {
        let (stream, _) = parsed(&["-e", "irq", "-t", "-l", "-R", "--color", "always", "--limit", "7", "-q"]);
        let report = stream.report();
        assert!(report.full_time && report.latency && report.raw && report.quiet && !report.json);
        assert_eq!((report.color, report.limit), (Color::Always, Some(7)));
        assert!(parsed(&["-e", "irq", "--json"]).0.report().json);
    }
}
