//! `tracer-agent record`: a recording from the command line.

mod buffers;
mod debug;
pub(super) mod edges;
mod live;
mod maps;
mod net;
mod pipe;
mod probes;
pub(super) mod refused;
mod rotation;
mod snapshot;
pub(super) mod spec;
mod stacks;
mod trace;
pub(super) mod until;
mod viewers;
mod wanted;
mod when;

use std::{
    ffi::OsString,
    io::{IsTerminal as _, Write},
    path::PathBuf,
    process::Child,
    time::{Duration, Instant},
};

use clap::{
    ArgAction, ArgMatches, Args,
    builder::{PossibleValuesParser, TypedValueParser as _},
};

pub use self::refused::Refused;
use self::{
    edges::{Awaited, EdgeArgs, Work},
    live::Display,
    rotation::{RotateArgs, Writing},
    snapshot::{SnapshotArgs, Snapshots},
    trace::TraceArgs,
    until::{End, Running, Until},
    viewers::Viewers,
    wanted::{ScopeArgs, WantedArgs},
};
use super::{
    CliError,
    command::{self, Inherit},
    ending::wait_for_ends,
    new_files::NewFileArgs,
    progress::{self, ProgressLine},
    signals::{Asked, Signals},
    summary, units,
};
use crate::exit::ExitCode;
use ::spec::Attribute;
use ::spec::EventSelector;
use ::spec::TraceClock;
use ::spec::{LaneChoice, StringLimit};
use ::spec::{RecordingSpec, TraceFormat};
use analysis::answers::Topic;
use capture::{CaptureError, Ending, Finished, Recorded, Session, Stats, finish};
use plan::Plan;
use tracedat::Compression;

/// How often the wait for descriptors is interrupted to show progress.
const TICK: Duration = Duration::from_millis(500);

/// Headings of the options in the help text.
const EVENTS: &str = "Events";
const TASKS: &str = "Tasks and CPUs";
const BUFFERS: &str = "Buffers";
const OUTPUT: &str = "Output file";
const END: &str = "Begin and end of the recording";
const MAPS: &str = "Maps";
const SPEC: &str = "Specification";

/// Record kernel events into a trace.dat file
///
/// Runs COMMAND and records until it exits; without a command, until Ctrl-C or until --duration has passed.
/// Lost events are counted by CPU and cause, reported at the end, and stored in the file.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
#[command(after_help = "\
EVENTS
  sched:sched_switch   one event            sched, sched:*       all events of a system
  sched_switch         an event by name     syscalls:*open*      a glob in either part
  all                  every event

MAPS
  sched_switch by next_comm                       how many events for each value, without recording them
  hist(len) of net:net_dev_xmit by name           their sizes; also sum, min, max, avg, stats, lhist(F,MIN,MAX,STEP)
  sched_waking -> sched_switch key pid=next_pid   with --time, the time between two events

FILTERS
  prev_pid == 1 || next_comm ~ \"rust*\"      fields of the event, as in tracefs; && binds tighter than ||
  $uid == 1000 && $comm != \"bash\"           what --context names, $cpu, $timestamp
  filename.ustring ~ \"/etc/*\"               the string at a user-space address
  CPUS{0-3} & cpumask, flags & 0x40          CPU lists, bit tests

SIGNALS
  INT, QUIT, TERM, HUP   end the recording and write the file; a second one exits at once, `recover` writes the file
  USR1                   prints the progress
  USR2                   with --overwrite, stores what the buffers hold in a file of its own and goes on

EXAMPLES
  tracer-agent record -e sched sleep 5
  tracer-agent record -e 'syscalls:sys_enter_open*' -F -c make
  tracer-agent record -e sched_switch -f 'next_prio < 100' -e irq --rate 10k/s
  tracer-agent record -e sched -N collector:12345 -t make
  tracer-agent record --uprobe 'malloc=libc.so.6:malloc size=$arg1:u64' -f 'size > 1000000' make
  tracer-agent record --uprobe 'libc.so.6:pthread_mutex_*' --usdt 'libstdc++.so.6:libstdcxx:*' make
  tracer-agent record -e sched:sched_process_exec --context uid,ppid,cgroup,perf:cpu:cycles make
  tracer-agent record -e all -v -e 'rcu:*' --duration 10s -o all.dat
  tracer-agent record -e irq -B calls -b 16M -e raw_syscalls -B last --overwrite -e sched make
  tracer-agent record --kprobe 'open=do_sys_openat2 dfd=%di:s32 path=+0(%si):ustring' ls
  tracer-agent record --for sched --live make
  tracer-agent record --count 'syscalls:sys_enter_openat: flags & 0x40 by $comm,filename' make
  tracer-agent record --time 'sched_waking -> sched_switch key pid=next_pid by next_comm' --interval 1s --duration 2s
  tracer-agent record -e sched -e irq --stop-on 'sched_process_exit: comm == \"cc1\"' make
  tracer-agent record -e sched --uretprobe 'line=/bin/bash:readline text=+0($retval):string'")]
pub struct RecordArgs {
    // Those without a heading come first: clap keeps a heading for whatever follows.
    /// Print neither progress nor summary
    #[arg(short = 'q', long)]
    pub quiet: bool,

    /// Command to run, with its arguments. It starts when recording has begun
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,

    /// Event to record; repeatable
    #[arg(short = 'e', long = "event", value_name = "EVENT", help_heading = EVENTS)]
    pub events: Vec<EventSelector>,

    /// Record the events that `analyze NAME` uses, with stacks where it is about them; repeatable
    #[arg(
        long = "for",
        value_name = "NAME",
        value_parser = PossibleValuesParser::new(Topic::recorded()).try_map(|name| name.parse::<Topic>()),
        help_heading = EVENTS
    )]
    pub topics: Vec<Topic>,

    /// Exclude the events of the -e options that follow
    #[arg(
        short = 'v',
        long = "exclude-events",
        action = ArgAction::Append,
        num_args = 0,
        default_missing_value = "true",
        help_heading = EVENTS
    )]
    pub exclude: Vec<bool>,

    /// Continue when an -e matches no known event
    #[arg(short = 'i', long = "ignore-unknown", help_heading = EVENTS)]
    pub ignore_unknown: bool,

    /// Maximum length of the copied strings (paths, names) that system calls are given, or off; 63 unless
    /// told otherwise, and 165 for --for io, which tells files by their paths
    #[arg(long, value_name = "BYTES|off", help_heading = EVENTS)]
    pub strings: Option<StringLimit>,

    /// Use the specialized programs of events (fast), the one program for all events (generic), or what each
    /// event allows (auto)
    #[arg(
        long,
        value_name = "LANE",
        default_value = "auto",
        value_parser = PossibleValuesParser::new(LaneChoice::NAMES.map(|(name, _)| name)).try_map(|name| name.parse::<LaneChoice>()),
        help_heading = EVENTS
    )]
    pub lane: LaneChoice,

    /// What is wanted of them
    #[command(flatten)]
    pub wanted: WantedArgs,

    /// Probes to record beside them.
    #[command(flatten)]
    pub probes: probes::ProbeArgs,

    /// Stacks.
    #[command(flatten)]
    pub stacks: stacks::StackArgs,

    /// Record only this process with all its threads; repeatable, or a list: 12,34
    #[arg(short = 'P', long = "pid", value_name = "PID", value_delimiter = ',', help_heading = TASKS)]
    pub pids: Vec<u32>,

    /// With -P or -F: record child processes too
    #[arg(short = 'c', long = "children", help_heading = TASKS)]
    pub children: bool,

    /// Record only the command
    #[arg(short = 'F', long = "only-command", help_heading = TASKS)]
    pub only_command: bool,

    /// Which threads
    #[command(flatten)]
    pub scope: ScopeArgs,

    /// CPUs to record: a hexadecimal mask as in trace-cmd, or a list such as 0-3,8
    #[arg(short = 'M', long = "cpus", value_name = "CPUMASK", help_heading = TASKS)]
    pub cpu_mask: Option<String>,

    /// Do not record the agent's own threads (the default)
    #[arg(long, overrides_with = "with_self", help_heading = TASKS)]
    pub no_self: bool,

    /// Record the agent's own threads too
    #[arg(long = "self", alias = "no-filter", overrides_with = "no_self", help_heading = TASKS)]
    pub with_self: bool,

    /// Record what follows into a buffer of this name, with its own -b, --overwrite, -m, -s, --switch-timer,
    /// stacks, --snapshot-when, and sizes of packets and trace files. An event can be in several buffers
    #[arg(short = 'B', long = "buffer", value_name = "NAME", help_heading = BUFFERS)]
    pub buffers: Vec<String>,

    /// Size of each CPU's ring buffer: 8M, 512K; plain numbers are KB [default: 4M]
    #[arg(
        short = 'b',
        long = "buffer-size",
        value_name = "SIZE",
        value_parser = units::kilobytes,
        help_heading = BUFFERS
    )]
    pub ring_kb: Vec<u64>,

    /// Keep only the newest events that fit the ring buffers (flight recorder), and store them at the end. At
    /// SIGUSR2 store them in a file of its own (trace-TIME-snapshot-N.dat) and go on
    #[arg(
        long,
        action = ArgAction::Append,
        num_args = 0,
        default_missing_value = "true",
        help_heading = BUFFERS
    )]
    pub overwrite: Vec<bool>,

    /// Store what was recorded at most this much later, also where a page of events is not full yet: 50ms,
    /// 10s, or off [default: 1s, or -s if that is longer]. It does not apply to --overwrite
    #[arg(
        long,
        value_name = "TIME|off",
        value_parser = units::period_or_off,
        help_heading = BUFFERS
    )]
    pub switch_timer: Vec<u64>,

    /// Maximum time that a full page of events waits to be stored, in microseconds [default: 1000000]
    #[arg(short = 's', long = "poll-interval", value_name = "USEC", help_heading = BUFFERS)]
    pub poll_us: Vec<u64>,

    /// File to write, or - for standard output, which `report -` and others read as it comes; with
    /// --rotate-size or --rotate-time the directory of the files [default then: traces], with --format lttng,
    /// ctf or ctf2 that of the trace [default then: trace]
    #[arg(
        short = 'o',
        long = "output",
        value_name = "FILE",
        default_value = "trace.dat",
        help_heading = OUTPUT
    )]
    pub output: PathBuf,

    #[command(flatten, next_help_heading = OUTPUT)]
    #[expect(missing_docs, reason = "its option is documented")]
    pub new_files: NewFileArgs,

    /// Keep at most this much of each CPU's newest data: 512K, 100M; plain numbers are KB
    #[arg(
        short = 'm',
        long = "max-size",
        value_name = "SIZE",
        value_parser = units::kilobytes,
        help_heading = OUTPUT
    )]
    pub max_kb: Vec<u64>,

    /// Maps to count in.
    #[command(flatten)]
    pub maps: maps::MapArgs,

    /// Answers meanwhile.
    #[command(flatten)]
    pub live: live::LiveArgs,

    /// Files of what a flight recorder holds.
    #[command(flatten)]
    pub snapshots: SnapshotArgs,

    /// Files that are closed while recording goes on.
    #[command(flatten)]
    pub rotate: RotateArgs,

    /// A listener on another machine.
    #[command(flatten)]
    pub net: net::NetArgs,

    /// A trace of another layout.
    #[command(flatten)]
    pub trace: TraceArgs,

    /// Compression: none, zstd, zstd:LEVEL, or auto (next to none while a ring is more than half full)
    #[arg(
        long,
        value_name = "HOW",
        default_value = "zstd",
        help_heading = OUTPUT
    )]
    pub compression: Compression,

    /// Trace clock: mono, boot or tai
    #[arg(short = 'C', long = "clock", value_name = "CLOCK", default_value = "mono", help_heading = OUTPUT)]
    pub clock: TraceClock,

    /// Store the offset of the clock to wall-clock time, which reports then show
    #[arg(long, help_heading = OUTPUT)]
    pub date: bool,

    /// Store the formats of all events, not only those of the recorded systems
    #[arg(short = 'a', long = "all-formats", help_heading = OUTPUT)]
    pub all_formats: bool,

    /// Store the kernel's symbols: full, none, or auto (if a recorded event prints a symbol)
    #[arg(long, value_name = "WHEN", default_value = "auto", help_heading = OUTPUT)]
    pub kallsyms: spec::KallsymsMode,

    /// Store the memory maps of the processes given with -P
    #[arg(long, help_heading = OUTPUT)]
    pub proc_map: bool,

    /// Stop after this time: 10, 1.5, 500ms, 2m, 1h. It starts when recording begins, after all events are
    /// attached
    #[arg(long, value_name = "TIME", value_parser = units::period, help_heading = END)]
    pub duration: Option<u64>,

    /// Events that begin and end it.
    #[command(flatten)]
    pub edges: EdgeArgs,

    /// Exit with code 115 if more than this many events were lost
    #[arg(long, value_name = "EVENTS", help_heading = END)]
    pub max_loss: Option<u64>,

    /// Record what FILE specifies, as --print-spec prints it. Only -q, -o, --mode, -N, -V, --duration,
    /// --interval, --json and COMMAND can be added
    #[arg(long, value_name = "FILE", help_heading = SPEC)]
    pub spec: Option<PathBuf>,

    /// Print what the eBPF programs say of themselves, if they were built to do so
    #[arg(long, hide = cfg!(not(feature = "debug-programs")))]
    pub debug_programs: bool,

    /// Print what the other options specify as JSON, and record nothing
    #[arg(long, help_heading = SPEC)]
    pub print_spec: bool,
}

/// Prints what would be recorded.
pub(super) fn print_spec(
    args: &RecordArgs,
    matches: &ArgMatches,
    out: &mut impl Write,
) -> Result<(), CliError> {
    let spec = spec::make(args, matches)?;
    let json = spec.to_json().map_err(|error| CliError::Usage(format!("--print-spec: {error}")))?;
    super::write_all(out, &(json + "\n"))
}

/// Runs the command. `matches` are the raw arguments of this subcommand, for the order of -e and -v.
pub(super) fn run(args: &RecordArgs, matches: &ArgMatches) -> Result<u8, CliError> {
    if args.debug_programs {
        debug::print_messages()?;
    }
    let spec = spec::make(args, matches)?;
    let wanted = live::wanted(args, &spec)?;
    let target = pipe::Target::take(&spec, &args.net, wanted.is_some())?;
    let program = match args.command.first() {
        Some(program) => Some(command::find(program)?),
        None => None,
    };
    // Before the first thread starts, so that no thread takes a signal from the descriptor. Who asks for
    // progress need not know whether the recording has begun; who asks for the end of a recording that has
    // not is obeyed at once.
    let signals = Signals::block_others().map_err(CliError::system("block signals"))?;
    let mut meanwhile = target.map(pipe::Target::place).transpose()?;
    let planned = meanwhile.as_ref().map(|meanwhile| meanwhile.planned(&spec));
    let planned = planned.as_ref().unwrap_or(&spec);
    let plan = Plan::make(planned).map_err(|error| Refused::error(error, args.spec.is_none()))?;
    if !plan.options.channels.is_empty() {
        wait_for_ends(&planned.file.path).map_err(CaptureError::Spool)?;
    }
    signals.block_ends().map_err(CliError::system("block signals"))?;
    // From here on its thread takes no signal.
    let mut viewers = Viewers::listen(&spec, args.live.live_bind)?;
    let open_files = super::limits::raise().map_err(CliError::system("raise the limits of this process"))?;
    let say = |text: String| {
        if !args.quiet {
            super::tell(&text);
        }
    };
    for note in &plan.notes {
        say(format!("tracer-agent: {note}"));
    }
    let Plan { mut options, followed, edges, .. } = plan;
    if let Some(meanwhile) = &meanwhile {
        meanwhile.receive(&mut options)?;
    }

    let inherit = Inherit { mask: signals.old_mask(), open_files };
    if options.channels.is_empty() {
        let command = (program.as_deref(), inherit);
        return maps::count((args, &spec), (options, edges), command, (signals, followed));
    }
    let rule = options.snapshot().map(|(_, rule)| rule);
    let mut snapshots = Snapshots::new(rule, args.quiet);
    let mut writing = Writing::start(&options, args.quiet)?;
    let mut line = ProgressLine::new(shows_progress(args));
    let created = Session::create(options, &mut |done, all| line.attaching(done, all));
    // What is said next begins a line.
    drop(line);
    let mut session = created?;
    if let Some(kept) = session.kept_spool() {
        let kept = kept.display();
        say(format!(
            "tracer-agent: an unfinished recording to the same file is kept as {kept}; \
             `tracer-agent recover {kept}` recovers it"
        ));
    }
    // Who asked for an event and for no progress wants to know that it is not there.
    for left_out in session.left_out() {
        super::tell(&format!("tracer-agent: not recorded: {}: {}", left_out.event, left_out.reason));
    }

    if let Some(viewers) = &mut viewers {
        viewers.offer(&session, &spec.file.path, args.quiet);
    }
    let sending = meanwhile.as_mut().map(|meanwhile| meanwhile.send(&session)).transpose();
    let watch = (Work::Recording, || session.watch_options());
    let awaited = Awaited::attach(watch, edges, &spec.limits, args.quiet);
    let started = sending.and_then(|sending| awaited.map(|awaited| (sending, awaited)));
    let started = started.and_then(|(sending, awaited)| {
        let is_now = !awaited.as_ref().is_some_and(Awaited::delays_start);
        let command = Running::start(program.as_deref(), args, (&spec, inherit), |thread| {
            if let Some(thread) = thread {
                session.trace_thread(thread);
            }
            if is_now {
                session.start();
            }
        })?;
        Ok((sending, awaited, command))
    });
    let (sending, mut awaited, command) = match started {
        Ok(started) => started,
        Err(error) => {
            for recorded in session.stop() {
                // Nothing was recorded that anybody could want.
                let _ = recorded.spool.remove();
            }
            return Err(error);
        }
    };
    let mut until = Until::new(signals, command, followed);
    let instead = begin(&mut session, awaited.as_mut(), &mut until, shows_progress(args))?;
    if let Some(writing) = &writing {
        writing.follow(&session);
    }
    let display = wanted.and_then(|wanted| Display::start(wanted, (session.spool_dir(), &spec.file.path)));
    let maps = session.maps().map(|maps| maps::Shown::start(args, maps, session.began()));
    let written = (writing.as_mut(), &mut snapshots);
    let end = if let Some(end) = instead {
        end
    } else {
        let others = (awaited.as_mut(), sending.as_ref());
        wait_for_end((&mut session, written), others, &mut until, (args, &spec))?
    };
    if let Some(mut awaited) = awaited.filter(|awaited| !awaited.is_over()) {
        awaited.tell_missing();
    }

    snapshots.end(&session);
    let (ending, spool_dir) = (session.ending(), session.spool_dir().to_owned());
    // Of several archives, others may wait there for their turn.
    let dir = match (&spec.rotation, spool_dir.parent()) {
        (Some(_), Some(parent)) => parent.to_owned(),
        (None, Some(parent)) if snapshots.is_busy() => parent.to_owned(),
        _ => spool_dir.clone(),
    };
    let (signals, command) = until.into_parts();
    let sent_from = sending.as_ref().and_then(|_| spool_dir.parent()).map(std::path::Path::to_owned);
    std::thread::spawn(move || {
        until_second_signal(&signals, &ending, (&spool_dir, &dir), sent_from.as_deref())
    });
    let recorded = session.stop();
    if end == End::Unsent && sending.as_ref().is_some_and(pipe::Sending::is_unread) {
        for recorded in recorded {
            // Nobody is there who wants it.
            let _ = recorded.spool.remove();
        }
        return Err(pipe::unread());
    }
    maps.map(maps::Shown::end).transpose()?;
    let without_snapshot = snapshots.finish();
    let end = (end, command, without_snapshot);
    let sent_to = meanwhile.as_ref().map(pipe::Meanwhile::name);
    let concluded = conclude((args, &spec, sent_to), (recorded, writing, display), end);
    if let Some(viewers) = viewers {
        viewers.end();
    }
    if let (Some(meanwhile), Some(sending)) = (&mut meanwhile, sending) {
        let sent = meanwhile.finish(sending, concluded.is_ok());
        return concluded.and_then(|code| sent.map(|()| code));
    }
    concluded
}

/// While the recording comes to its end, a second signal that asks for it ends the process at once; the spool
/// stays.
fn until_second_signal(
    signals: &Signals,
    ending: &Ending,
    (spool, dir): (&std::path::Path, &std::path::Path),
    sent_from: Option<&std::path::Path>,
) -> ! {
    loop {
        match signals.wait() {
            // The kernel repeats it every second, so that it is no second signal.
            Asked::End(libc::SIGXCPU) => {}
            // The manifest is the first that goes when the file is in its place: there is nothing left to be
            // kept.
            Asked::End(_) if !spool.join("manifest").exists() => {
                if let Some(dir) = sent_from {
                    super::tell(&pipe::interrupted(dir));
                    super::exit_now(ExitCode::Interrupted);
                }
            }
            Asked::End(_) => break,
            Asked::Progress => {
                super::tell("tracer-agent: the recording has ended; the file is being written");
            }
            Asked::Snapshot => super::tell(
                "tracer-agent: there is no snapshot of a recording that has ended; the file is being written",
            ),
        }
    }
    ending.interrupted();
    super::tell(&format!(
        "\ntracer-agent: interrupted before the file was finished; the stored part of the recording is in {dir}\n\
         tracer-agent: run `tracer-agent recover {dir}` to recover it",
        dir = dir.display()
    ));
    super::exit_now(ExitCode::Interrupted)
}

/// Waits for the event that opens the gates, if one does. Gives what came instead.
pub(super) fn begin(
    session: &mut Session,
    awaited: Option<&mut Awaited>,
    until: &mut Until,
    shows_progress: bool,
) -> Result<Option<End>, CliError> {
    let Some(awaited) = awaited else { return Ok(None) };
    if awaited.delays_start() {
        let mut line = ProgressLine::new(shows_progress);
        if let Some(end) = awaited.wait_for_start(Some(session.failed()), until, &mut line)? {
            return Ok(Some(end));
        }
        awaited.begin(|| session.start())?;
    }
    Ok(None)
}

fn shows_progress(args: &RecordArgs) -> bool {
    // It would be in the way of the answers.
    // So it would be of those that standard output is read for, on the same terminal.
    let is_alone = !live::is_shown(args) && !super::input::is_standard(&args.output);
    !args.quiet && is_alone && std::io::stderr().is_terminal()
}

/// Says what has begun, and what ends it.
pub(super) fn begun(
    (work, stop_on): (Work, Option<&str>),
    (args, spec): (&RecordArgs, &RecordingSpec),
    until: &Until,
) -> String {
    let ends = [
        stop_on,
        (!args.command.is_empty()).then_some("the command exits"),
        until.waits_for_followed().then_some("the processes of -P exit"),
        spec.limits.duration_ns.map(|_| "--duration has passed"),
    ];
    let ends: Vec<&str> = ends.into_iter().flatten().collect();
    let until = if ends.is_empty() { "" } else { " until " };
    format!("{work}{until}{}; Ctrl-C stops it", ends.join(" or "))
}

/// Whether the user chose among the events of a kind, by what they hold or by whose they are.
pub(super) fn is_filtered(spec: &RecordingSpec) -> bool {
    let mut rules = spec.channels.iter().flat_map(|channel| &channel.rules);
    let scope = &spec.scope;
    rules.any(|rule| rule.filter.is_some())
        || !scope.pids.is_empty()
        || scope.only_command
        || scope.has_traits()
}

/// How long what has ended the reader of the recording may take to come here, too.
const TOGETHER: Duration = Duration::from_millis(100);

fn wait_for_end(
    (session, (mut writing, snapshots)): (&mut Session, (Option<&mut Writing>, &mut Snapshots)),
    (mut awaited, sending): (Option<&mut Awaited>, Option<&pipe::Sending>),
    until: &mut Until,
    (args, spec): (&RecordArgs, &RecordingSpec),
) -> Result<End, CliError> {
    // Attaching, which takes seconds with thousands of events, is no part of it.
    let duration = spec.limits.duration_ns.map(Duration::from_nanos);
    let deadline = duration.zip(session.began()).map(|(duration, began)| began + duration);
    let mut progress = ProgressLine::new(shows_progress(args));
    if !args.quiet {
        let stop_on = awaited.as_ref().and_then(|awaited| awaited.stop_on());
        progress.begin(&begun((Work::Recording, stop_on), (args, spec), until));
    }
    if let Some(writing) = &mut writing {
        writing.begin(session.began());
    }
    loop {
        progress.show(session.progress());
        if let Some(awaited) = &mut awaited
            && awaited.has_ended(&mut progress)?
        {
            return Ok(End::Asked);
        }
        let now = Instant::now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            return Ok(End::Asked);
        }
        let until_deadline = deadline.map(|deadline| deadline - now);
        let tick = if progress.is_on() { Some(TICK) } else { None };
        let until_rotation = writing.as_ref().and_then(|writing| writing.next());
        let until_rotation = until_rotation.map(|next| next.saturating_duration_since(now));
        snapshots.look(session, &mut progress);
        let until_snapshot = snapshots.patience(now);
        let timeout = [until_deadline, until_rotation, until_snapshot, tick].into_iter().flatten().min();

        let mut fds = vec![session.failed(), session.asks()];
        fds.extend(sending.map(pipe::Sending::ended));
        fds.extend(writing.iter().flat_map(|writing| [session.is_large(), writing.is_done()]));
        let of_snapshots = snapshots.is_done();
        fds.extend(of_snapshots);
        let has_snapshots = of_snapshots.is_some();
        fds.extend(awaited.iter().map(|awaited| awaited.fd()));
        let ready = until.wait(&fds, timeout)?;
        drop(fds);

        if ready.first() == Some(&true) {
            return Ok(End::Failure);
        }
        if sending.is_some() && ready.get(2) == Some(&true) {
            // Ctrl-C ends the reader, too: who asked for the end wants what there is.
            until.wait(&[], Some(TOGETHER))?;
            let is_asked = until.asked().is_some_and(|asked| matches!(asked, Asked::End(_)));
            return Ok(if is_asked { End::Asked } else { End::Unsent });
        }
        let mut rest = ready.iter().skip(2 + usize::from(sending.is_some()));
        if let Some(writing) = &mut writing {
            let is_large = rest.next() == Some(&true) && session.is_large_now();
            if rest.next() == Some(&true) {
                writing.tell_done(&mut progress);
            }
            writing.rotate_if_due(session, is_large, &mut progress);
        }
        if has_snapshots && rest.next() == Some(&true) {
            // Who is told of one may ask for the next one.
            snapshots.look(session, &mut progress);
            snapshots.tell_done(&mut progress);
        }
        while let Some(asked) = until.asked() {
            match asked {
                Asked::End(_) => return Ok(End::Asked),
                Asked::Progress => progress.say(&progress::text(session.progress())),
                Asked::Snapshot => snapshots.take(session, &mut progress),
            }
        }
        if let Some(end) = until.ended()? {
            return Ok(end);
        }
    }
}

/// Finishes the files, tells what is in them and decides the exit code.
fn conclude(
    (args, spec, sent_to): (&RecordArgs, &RecordingSpec, Option<&str>),
    (mut recorded, writing, display): (Vec<Recorded>, Option<Writing>, Option<Display>),
    (end, child, without_snapshot): (End, Option<Child>, Option<ExitCode>),
) -> Result<u8, CliError> {
    let failure = recorded.iter_mut().find_map(|recorded| recorded.failure.take());
    let finished = match writing {
        None => finish_one((args, spec, sent_to), recorded, display),
        Some(writing) => finish_written((args, spec), writing, recorded),
    };
    if let Some(failure) = failure {
        let stored = match &finished {
            Ok(finished) => finished.path.display().to_string(),
            Err(_) => "what was stored".to_owned(),
        };
        super::tell(&format!(
            "tracer-agent: recording ended early: {failure}\n\
             tracer-agent: {stored} contains everything up to then",
        ));
        finished?;
        let code = if failure.is_disk_full() { ExitCode::DiskFull } else { ExitCode::Failure };
        return Ok(code.code());
    }
    let finished = finished?;
    if let Some(max) = spec.limits.max_lost
        && finished.missing > max
    {
        super::tell(summary::too_much_lost(finished.missing, max, finished.stats.as_ref()).trim_end());
        return Ok(ExitCode::TooMuchLost.code());
    }
    if let Some(code) = without_snapshot {
        return Ok(code.code());
    }
    Ok(until::exit_code(end, child))
}

/// What a recording has come to.
struct Ended {
    /// The file, or the directory of the files.
    path: PathBuf,
    /// Events that fired and are not there.
    missing: u64,
    /// What is known of the one file.
    stats: Option<Stats>,
}

fn finish_one(
    (args, spec, sent_to): (&RecordArgs, &RecordingSpec, Option<&str>),
    mut recorded: Vec<Recorded>,
    display: Option<Display>,
) -> Result<Ended, CliError> {
    // Without a rotation there is one.
    let recorded = recorded.pop().ok_or_else(|| CliError::Usage("nothing was recorded".to_owned()))?;
    let spool = recorded.spool.dir().to_owned();
    let mut finished = finish(recorded).map_err(|error| CliError::Finish { error, spool })?;
    if let Some(sent_to) = sent_to {
        finished.path = sent_to.into();
    }
    if let Some(display) = display {
        display.finish(&finished.path);
    }
    Ok(told((args, spec), finished))
}

/// Says that no thread had one of the names that were asked for, as far as the recording knows.
pub(super) fn tell_no_name_matched(stats: &Stats, spec: &RecordingSpec) {
    let names = spec.scope.track.get(&Attribute::Comm).map(Vec::as_slice).unwrap_or_default();
    if let Some(text) = summary::no_name_matched(stats, names) {
        super::tell(&format!("tracer-agent: {text}"));
    }
}

/// Tells what is in the only file, or in a trace.
fn told((args, spec): (&RecordArgs, &RecordingSpec), finished: Finished) -> Ended {
    if !args.quiet {
        super::tell(summary::text(&finished, is_filtered(spec)).trim_end());
        tell_no_name_matched(&finished.stats, spec);
    }
    let missing = finished.stats.missing_total();
    Ended { path: finished.path, missing, stats: Some(finished.stats) }
}

fn finish_written(
    (args, spec): (&RecordArgs, &RecordingSpec),
    writing: Writing,
    last: Vec<Recorded>,
) -> Result<Ended, CliError> {
    let files = writing.finish(last);
    if spec.rotation.is_none() {
        return match (files.failed, files.last) {
            (Some(error), _) => Err(error),
            (None, Some(finished)) => Ok(told((args, spec), finished)),
            (None, None) => Err(CliError::Usage("nothing was recorded".to_owned())),
        };
    }
    let is_file = spec.file.format == TraceFormat::Dat;
    let path = files.directory().filter(|_| is_file).unwrap_or_else(|| spec.file.path.clone());
    if !args.quiet {
        super::tell(summary::of_files(&path, files.count, files.events, files.missing).trim_end());
    }
    match files.failed {
        Some(error) => Err(error),
        None => Ok(Ended { path, missing: files.missing, stats: None }),
    }
}
