//! `tracer-agent top`: how often events fire, by event, process and CPU.
//!
//! | file | subject |
//! |---|---|
//! | `choose` | which events are counted |
//! | `rates` | from counts to rows |
//! | `text` | rows as text |
//! | `view` | rows on a terminal, and what keys do |
//! | `screen` | the terminal |
//! | `sessions` | the same for rings and counts of the daemon's sessions |
//!
//! Events are counted in the kernel, in a map for each of them, and the maps are read once in an interval:
//! nothing is recorded, and nobody is woken by an event.

mod choose;
mod rates;
mod screen;
#[cfg(feature = "daemon")]
mod sessions;
mod text;
mod view;

use std::{
    io::{self, IsTerminal as _, Write as _},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use clap::{Arg, ArgMatches, Args};

use self::{
    rates::{Counted, Rates, Table},
    screen::{Awoken, Page, Screen},
    view::View,
};
use super::{
    CliError,
    command::{self, Inherit},
    progress::ProgressLine,
    record::{
        self, RecordArgs,
        edges::Work,
        refused::Refused,
        spec,
        until::{self, End, Running, Until},
    },
    report::Color,
    signals::{Asked, Signals},
    tell, units,
};
use ::spec::RecordingSpec;
use capture::{Counting, KeyValue, Maps};
use plan::Plan;

/// The interval, unless the user says it.
const INTERVAL: Duration = Duration::from_secs(1);
/// The shortest interval: reading the maps takes time, too.
const INTERVAL_MIN: Duration = Duration::from_millis(50);

/// What is printed.
const PRINT: &str = "Printing";

/// Options of `record` that are about recording beside those that are about files, by clap's ids.
const NOT_HERE: [&str; 23] = [
    "topics",
    "strings",
    "lane",
    "contexts",
    "kernel_stacks",
    "kernel_stack",
    "user_stack",
    "fentry",
    "fexit",
    "function",
    "function_graph",
    "max_graph_depth",
    "graph_filter",
    "graph_hooks",
    "buffers",
    "ring_kb",
    "switch_timer",
    "max_kb",
    "clock",
    "date",
    "start_on",
    "stop_on",
    "max_loss",
];

/// Show how often events fire, by event, by process and by CPU
///
/// Counts events in the kernel, without recording them, and shows once in a while how many came: on a
/// terminal in place, elsewhere as tables one after the other. Without -e and probes it counts what says most
/// of a machine: switches and wakeups, new processes, system calls, page faults, interrupts, requests of
/// disks and packets. An event is counted for the process that runs when it fires. Runs COMMAND and goes on
/// until it exits; without a command, until q or Ctrl-C.
///
/// With --session it shows, instead, how full the rings of a session of the daemon are and what it records
/// and loses, by channel, CPU and event; with --sessions, the sums of all sessions.
#[derive(Args, Debug)]
#[command(
    mut_args = adapted,
    after_help = "\
KEYS
  1 2 3, Tab      events, processes, CPUs        s, r     sort by rate, total or name; reverse
  / TEXT Enter    rows with TEXT only; Esc all   Space    stop and go on showing
  + -             shorter and longer interval    h, ?     these keys
  Up Down PgUp PgDn Home End  scroll             q        quit

EXAMPLES
  tracer-agent top
  tracer-agent top -e 'sched:*' --interval 500ms
  tracer-agent top -e syscalls:sys_enter_openat -f 'flags & 0x40' --comm 'rust*'
  tracer-agent top --uprobe 'malloc=libc.so.6:malloc' --batch -n 3
  tracer-agent top --batch --json --duration 2s
  tracer-agent top --session web
  tracer-agent top --sessions --batch -n 2"
)]
pub struct TopArgs {
    /// How it is shown.
    #[command(flatten)]
    pub shown: ShownArgs,

    /// Which sessions, instead of events.
    #[cfg(feature = "daemon")]
    #[command(flatten)]
    pub sessions: sessions::SessionsArgs,

    /// Which events.
    #[command(flatten)]
    pub record: RecordArgs,
}

/// How it is shown.
#[derive(Args, Debug)]
#[command(next_help_heading = PRINT)]
pub struct ShownArgs {
    /// Print tables one after the other, also on a terminal
    #[arg(short = 'b', long)]
    pub batch: bool,

    /// End after so many intervals
    #[arg(short = 'n', long = "iterations", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: Option<u64>,

    /// Print at most this many rows of a table
    #[arg(long, value_name = "N", default_value = "20")]
    pub rows: usize,

    /// Use colours on a terminal
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
}

/// The options of `record`, as they are here.
fn adapted(arg: Arg) -> Arg {
    let id = arg.get_id().as_str().to_owned();
    match id.as_str() {
        // Its letter is another one's here.
        "ring_kb" => arg.hide(true).short(None),
        id if spec::refused(&NOT_HERE).any(|of| of == id) => arg.hide(true),
        "quiet" => arg.help("Print no messages"),
        "events" => arg.help("Event to count; repeatable. There are 64 at most"),
        "json" => {
            arg.help("Print an object of JSON for each interval; it goes with --batch").help_heading(PRINT)
        }
        "interval" => arg.help("Show it each TIME [default: 1s]").help_heading(PRINT),
        "duration" => {
            arg.help("Stop after this time: 10, 1.5, 500ms, 2m, 1h. It starts when all events are attached")
        }
        _ => arg,
    }
}

impl TopArgs {
    /// Whether tables are printed, and nothing is drawn.
    pub(super) fn is_batch(&self) -> bool {
        self.shown.batch || self.record.maps.json || !io::stdout().is_terminal()
    }

    fn interval(&self) -> Result<Duration, CliError> {
        let interval = self.record.maps.interval.map_or(INTERVAL, Duration::from_nanos);
        if interval < INTERVAL_MIN {
            return Err(CliError::usage("--interval is 50ms at least"));
        }
        Ok(interval)
    }

    fn spec(&self, matches: &ArgMatches) -> Result<RecordingSpec, CliError> {
        if let Some(option) = spec::given_of(matches, &NOT_HERE) {
            return Err(CliError::Usage(format!(
                "{option} is an option of record, and top has no use for it: it counts events, and records none"
            )));
        }
        choose::spec(&self.record, matches)
    }
}

/// What ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// What ends a recording, too, or the last interval.
    By(End),
    /// Nobody reads the tables any more.
    Unread,
}

/// What is counted.
struct Counts {
    counting: Counting,
    maps: Arc<Maps>,
    rates: Rates,
}

impl Counts {
    fn new(counting: Counting) -> Self {
        let maps = counting.maps();
        let rates = Rates::of(maps.all().map(|(options, _)| options.event().to_owned()));
        Self { counting, maps, rates }
    }

    /// What came since the last look. Maps that are nearly full are emptied.
    fn look(&mut self, is_last: bool) -> Table {
        let mut keys = (0, 0);
        let mut now = Vec::new();
        let is_full = |(used, room): (u64, u64)| used >= room / 4 * 3;
        if !is_last && is_full(self.keys()) {
            // What is read is all that was counted, before it is gone.
            self.counting.pause();
        }
        for (map, (options, contents)) in self.maps.all().enumerate() {
            let room = u64::from(options.sizes.keys);
            keys = keys.max((contents.entries.len() as u64, room));
            let processes = contents.entries.iter().filter_map(|entry| match entry.key.as_slice() {
                [KeyValue::Number(pid), KeyValue::Text(name)] => {
                    Some(((u32::try_from(*pid).unwrap_or_default(), name.clone()), entry.numbers.count))
                }
                _ => None,
            });
            let losses = contents.losses;
            now.push(Counted {
                processes: processes.collect(),
                cpus: self.maps.by_cpu(map),
                unnamed: losses.overflow + losses.unreadable,
                skipped: losses.skipped.unwrap_or(0),
            });
        }
        let mut table = self.rates.look(now, self.counting.counted(), keys);
        table.last = is_last;
        if !is_last && !self.counting.is_counting() {
            self.counting.clear();
            self.rates.begin_anew();
            self.counting.start();
        }
        table
    }

    /// Keys of the fullest map, and the room there.
    fn keys(&self) -> (u64, u64) {
        let of = |(options, contents): (&capture::MapOptions, capture::MapContents)| {
            (contents.entries.len() as u64, u64::from(options.sizes.keys))
        };
        self.maps.all().map(of).max().unwrap_or((0, 1))
    }

    /// Ends counting, and gives what came since the last look.
    fn end(mut self) -> Table {
        self.counting.pause();
        self.look(true)
    }
}

/// Runs the command. `matches` are the raw arguments of this subcommand, for the order of options.
pub(super) fn run(args: &TopArgs, matches: &ArgMatches) -> Result<u8, CliError> {
    let interval = args.interval()?;
    #[cfg(feature = "daemon")]
    if let Some(asked) = args.sessions.asked(matches)? {
        return sessions::run((args, interval), &asked);
    }
    let spec = args.spec(matches)?;
    let program = args.record.command.first().map(command::find).transpose()?;
    // Before the first thread starts, so that no thread takes a signal from the descriptor.
    let signals = Signals::block_others().map_err(CliError::system("block signals"))?;
    let plan = Plan::make(&spec).map_err(|error| Refused::error(error, true))?;
    signals.block_ends().map_err(CliError::system("block signals"))?;
    let open_files = super::limits::raise().map_err(CliError::system("raise the limits of this process"))?;
    let Plan { options, followed, notes, .. } = plan;
    if !args.record.quiet {
        for note in &notes {
            tell(&format!("tracer-agent: {note}"));
        }
    }
    let mut counting = Counting::create(options)?;
    let screen = if args.is_batch() { None } else { Some(Screen::prepare(args.shown.color.wanted())?) };
    let inherit = Inherit { mask: signals.old_mask(), open_files };
    let command =
        start_command((args, &spec), (program.as_deref(), inherit), screen.as_ref(), &mut counting)?;
    let mut until = Until::new(signals, command, followed);
    let deadline = spec.limits.duration_ns.map(Duration::from_nanos).zip(counting.began());
    let deadline = deadline.map(|(duration, began)| began + duration);
    let mut counts = Counts::new(counting);
    let over = match screen {
        None => {
            if !args.record.quiet {
                let begun = record::begun((Work::Counting, None), (&args.record, &spec), &until);
                ProgressLine::new(false).begin(&begun);
            }
            let mut each = || print(args, &counts.look(false));
            let over = in_batch((&args.shown, interval), &mut each, &mut until, deadline)?;
            match over {
                Over::Unread => over,
                Over::By(_) => {
                    if print(args, &counts.end())? {
                        over
                    } else {
                        Over::Unread
                    }
                }
            }
        }
        Some(screen) => {
            let page = View::new(interval, screen.has_colour());
            let mut look = || Ok(counts.look(false));
            let over = on_screen((&args.shown, interval), &mut look, (&mut until, deadline), (screen, page));
            let table = counts.end();
            if !args.record.quiet {
                tell(&text::head(&table));
            }
            over?
        }
    };
    let (_, child) = until.into_parts();
    Ok(match over {
        Over::By(end) => until::exit_code(end, child),
        Over::Unread => until::exit_code(End::Asked, child),
    })
}

/// Begins to count, and starts the command. On a terminal that is drawn on, it neither reads nor writes.
fn start_command(
    (args, spec): (&TopArgs, &RecordingSpec),
    (program, inherit): (Option<&Path>, Inherit),
    screen: Option<&Screen>,
    counting: &mut Counting,
) -> Result<Option<Running>, CliError> {
    let elsewhere = match (screen, program) {
        (Some(_), Some(_)) => Some(screen::Elsewhere::begin().map_err(CliError::system("use /dev/null"))?),
        _ => None,
    };
    let started = Running::start(program, &args.record, (spec, inherit), |thread| {
        if let Some(thread) = thread {
            counting.trace_thread(thread);
        }
        counting.start();
    });
    drop(elsewhere);
    started
}

/// Whether something has ended it.
fn has_ended(until: &mut Until, deadline: Option<Instant>) -> Result<Option<End>, CliError> {
    while let Some(asked) = until.asked() {
        if let Asked::End(_) = asked {
            return Ok(Some(End::Asked));
        }
    }
    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
        return Ok(Some(End::Asked));
    }
    until.ended()
}

/// Prints tables: `each` prints one, and says whether somebody reads it.
fn in_batch(
    (shown, interval): (&ShownArgs, Duration),
    each: &mut dyn FnMut() -> Result<bool, CliError>,
    until: &mut Until,
    deadline: Option<Instant>,
) -> Result<Over, CliError> {
    let mut next = Instant::now() + interval;
    let mut left = shown.iterations;
    loop {
        let now = Instant::now();
        let at = deadline.map_or(next, |deadline| deadline.min(next));
        until.wait(&[], Some(at.saturating_duration_since(now)))?;
        if let Some(end) = has_ended(until, deadline)? {
            return Ok(Over::By(end));
        }
        if Instant::now() < next {
            continue;
        }
        next += interval;
        left = left.map(|left| left - 1);
        if left == Some(0) {
            // The last one is printed with what is counted up to the end.
            return Ok(Over::By(End::Asked));
        }
        if !each()? {
            return Ok(Over::Unread);
        }
    }
}

/// Prints a table. `false` if nobody reads it.
fn print(args: &TopArgs, table: &Table) -> Result<bool, CliError> {
    let text = if args.record.maps.json {
        super::json_line(table)?
    } else {
        format!("{}\n", text::text(table, args.shown.rows))
    };
    write(&text)
}

/// Writes what is printed. `false` if nobody reads it.
fn write(text: &str) -> Result<bool, CliError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true).map_err(CliError::system("write the tables")),
    }
}

/// Draws them.
fn on_screen<P: Page>(
    (args, mut interval): (&ShownArgs, Duration),
    look: &mut dyn FnMut() -> Result<P::Table, CliError>,
    (until, deadline): (&mut Until, Option<Instant>),
    (screen, page): (Screen, P),
) -> Result<Over, CliError> {
    let failed = |error| CliError::system("use the terminal")(error);
    let mut shown = screen.begin(page).map_err(failed)?;
    let mut next = Instant::now() + interval;
    let mut left = args.iterations;
    loop {
        // Which processes have ended is noticed by waiting.
        until.wait(&[], Some(Duration::ZERO))?;
        if let Some(end) = has_ended(until, deadline)? {
            return Ok(Over::By(end));
        }
        match shown.wait(next.saturating_duration_since(Instant::now())).map_err(failed)? {
            Awoken::Quit => return Ok(Over::By(End::Asked)),
            Awoken::Interval(longer) => {
                interval = changed(interval, longer);
                next = Instant::now() + interval;
                shown.set_interval(interval);
            }
            Awoken::Nothing => {}
        }
        if Instant::now() < next {
            continue;
        }
        next = Instant::now() + interval;
        shown.show(look()?).map_err(failed)?;
        left = left.map(|left| left - 1);
        if left == Some(0) {
            return Ok(Over::By(End::Asked));
        }
    }
}

/// The next longer or shorter interval.
fn changed(interval: Duration, longer: bool) -> Duration {
    let next = if longer { interval * 2 } else { interval / 2 };
    next.clamp(INTERVAL_MIN, units::LONGEST_INTERVAL)
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches as _};

    use super::*;
    use crate::exit::ExitCode;

    fn parsed(args: &[&str]) -> (TopArgs, ArgMatches) {
        let command = TopArgs::augment_args(Command::new("top"));
        let matches = command.get_matches_from([&["top"], args].concat());
        (TopArgs::from_arg_matches(&matches).unwrap(), matches)
    }

    #[test]
    fn what_is_about_recording_is_neither_shown_nor_taken() {
        let command = TopArgs::augment_args(Command::new("top"));
        for id in spec::refused(&NOT_HERE) {
            let found = command.get_arguments().find(|arg| arg.get_id() == id);
            assert!(found.is_some_and(Arg::is_hide_set), "{id}");
        }
        for args in [&["--output", "x"][..], &["--count", "sched_switch"], &["--buffer-size", "1M"]] {
            let (top, matches) = parsed(args);
            let error = top.spec(&matches).unwrap_err();
            assert_eq!(error.exit_code(), ExitCode::Usage, "{args:?}");
            assert!(error.to_string().contains("top has no use for it"), "{error}");
        }
    }

    #[test]
    fn intervals_stay_within_reason() {
        assert_eq!(parsed(&[]).0.interval().unwrap(), INTERVAL);
        assert_eq!(parsed(&["--interval", "50ms"]).0.interval().unwrap(), INTERVAL_MIN);
        assert!(parsed(&["--interval", "49ms"]).0.interval().is_err());
        let many = |longer| (0..20).fold(INTERVAL, |interval, _| changed(interval, longer));
        assert_eq!((many(true), many(false)), (units::LONGEST_INTERVAL, INTERVAL_MIN));
    }

    #[test]
    fn the_letters_are_those_of_top() {
        let (top, _) = parsed(&["-b", "-n", "3", "--json"]);
        assert!(top.shown.batch && top.record.maps.json && top.is_batch());
        assert_eq!(top.shown.iterations, Some(3));
    }
}
