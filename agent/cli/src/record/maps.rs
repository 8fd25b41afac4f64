//! `record --count` and `--time`: maps that are counted in, and what is printed of them.

use std::{
    io::Write as _,
    os::fd::OwnedFd,
    path::Path,
    sync::{
        Arc, OnceLock,
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use clap::{ArgMatches, Args};

use super::{
    super::{
        CliError,
        command::Inherit,
        progress::ProgressLine,
        signals::{Asked, Signals},
        units,
    },
    MAPS, RecordArgs,
    edges::{Awaited, Work},
    until::{self, End, Running, Until},
    wanted::indices,
};
use api::maps::table;
use capture::{CaptureOptions, Counting, Maps, counted_map, kernel_symbols};
use ftrace_event::SymbolTable;
use plan::Edges;
use spec::{MapSpec, RecordingSpec};

/// What is counted.
#[derive(Args, Debug)]
pub struct MapArgs {
    /// Count events in the kernel, without recording them: '[FUNCTION of] EVENT[: FILTER] [by KEY,...]'. A
    /// KEY is a field, a context such as $comm, or arithmetic with them; repeatable
    #[arg(long, value_name = "MAP", help_heading = MAPS)]
    pub count: Vec<String>,

    /// Measure the time between two events in the kernel: '[FUNCTION of] EVENT[: FILTER] -> EVENT[: FILTER]
    /// key FIELD[=FIELD],... [by KEY,...]'. What is equal in both is the key; repeatable
    #[arg(long, value_name = "MAP", help_heading = MAPS)]
    pub time: Vec<String>,

    /// Maximum number of different keys in a map [default: 4096, of histograms 512]
    #[arg(long, value_name = "N", help_heading = MAPS)]
    pub max_keys: Option<u32>,

    /// Print the maps each TIME, and not only at the end
    #[arg(long, value_name = "TIME", value_parser = units::period, help_heading = MAPS)]
    pub interval: Option<u64>,

    /// Print the maps as JSON, an object in each line
    #[arg(long, help_heading = MAPS)]
    pub json: bool,
}

impl MapArgs {
    /// Whether nothing is to be counted.
    pub(super) fn is_empty(&self) -> bool {
        self.count.is_empty() && self.time.is_empty()
    }

    /// Refuses what is about maps where there are none.
    pub(super) fn check(&self) -> Result<(), CliError> {
        let beside = [
            ("--max-keys", self.max_keys.is_some()),
            ("--interval", self.interval.is_some()),
            ("--json", self.json),
        ];
        match beside.into_iter().find(|(_, given)| *given && self.is_empty()) {
            Some((option, _)) => {
                Err(CliError::Usage(format!("{option} is for maps, which --count and --time make")))
            }
            None => Ok(()),
        }
    }

    /// The maps, in the order of the command line. `force` makes probes that may end processes.
    pub(super) fn specs(&self, matches: &ArgMatches, force: bool) -> Result<Vec<MapSpec>, CliError> {
        let read = |option: &'static str, parse: fn(&str) -> Result<MapSpec, _>, texts: &[String]| {
            let read = |(index, text): (usize, &String)| {
                let spec =
                    parse(text).map_err(|error| CliError::Usage(format!("{option} '{text}': {error}")))?;
                Ok((index, MapSpec { max_keys: self.max_keys, ..spec }))
            };
            let id = option.trim_start_matches('-');
            indices(matches, id).zip(texts).map(read).collect::<Result<Vec<_>, CliError>>()
        };
        let mut specs = read("--count", MapSpec::of_events, &self.count)?;
        specs.extend(read("--time", MapSpec::of_times, &self.time)?);
        specs.sort_by_key(|(index, _)| *index);
        let forced = |mut spec: MapSpec| {
            for event in std::iter::once(&mut spec.event).chain(&mut spec.from) {
                event.force = force;
            }
            spec
        };
        Ok(specs.into_iter().map(|(_, spec)| forced(spec)).collect())
    }
}

/// Maps that are printed, in intervals if that is wanted, and at the end.
pub(super) struct Shown {
    maps: Arc<Maps>,
    began: Instant,
    json: bool,
    symbols: Arc<Symbols>,
    meanwhile: Option<(Sender<()>, JoinHandle<()>)>,
}

/// The kernel's, read once, when a map wants them.
type Symbols = OnceLock<Option<SymbolTable>>;

impl Shown {
    pub(super) fn start(args: &RecordArgs, maps: Arc<Maps>, began: Option<Instant>) -> Self {
        let (json, began) = (args.maps.json, began.unwrap_or_else(Instant::now));
        let symbols = Arc::new(Symbols::new());
        let meanwhile = args.maps.interval.map(|interval| {
            let (end, ended) = channel();
            let (maps, symbols) = (Arc::clone(&maps), Arc::clone(&symbols));
            let print = move || {
                let period = Duration::from_nanos(interval);
                let mut next = began + period;
                loop {
                    let until = next.saturating_duration_since(Instant::now());
                    match ended.recv_timeout(until) {
                        Err(RecvTimeoutError::Timeout) => {}
                        _ => return,
                    }
                    // Whoever does not read any more gets nothing.
                    if print(&maps, &symbols, began, json, false).is_err() {
                        return;
                    }
                    next += period;
                }
            };
            (end, std::thread::spawn(print))
        });
        Self { maps, began, json, symbols, meanwhile }
    }

    /// Prints what there is now.
    fn now(&self) -> Result<(), CliError> {
        print(&self.maps, &self.symbols, self.began, self.json, false)
    }

    /// Prints what there is at the end.
    pub(super) fn end(self) -> Result<(), CliError> {
        if let Some((end, thread)) = self.meanwhile {
            drop(end);
            let _ = thread.join();
        }
        print(&self.maps, &self.symbols, self.began, self.json, true)
    }
}

fn print(maps: &Maps, symbols: &Symbols, began: Instant, json: bool, is_last: bool) -> Result<(), CliError> {
    let elapsed = began.elapsed();
    let mut text = String::new();
    for (options, contents) in maps.all() {
        let symbols = || symbols.get_or_init(kernel_symbols).as_ref();
        let map = counted_map(options, &contents, usize::MAX, (elapsed, is_last), symbols);
        if json {
            let line = serde_json::to_string(&map);
            text +=
                &line.map_err(|error| CliError::Failed(format!("cannot write a map as JSON: {error}")))?;
            text.push('\n');
        } else {
            text += &table(&map);
        }
    }
    let mut out = std::io::stdout().lock();
    super::super::write_all(&mut out, &text)?;
    out.flush().map_err(CliError::system("write the maps"))
}

/// Counts, and records nothing.
pub(super) fn count(
    (args, spec): (&RecordArgs, &RecordingSpec),
    (options, edges): (CaptureOptions, Edges),
    (program, inherit): (Option<&Path>, Inherit),
    (signals, followed): (Signals, Vec<OwnedFd>),
) -> Result<u8, CliError> {
    let mut counting = Counting::create(options)?;
    let watch = (Work::Counting, || counting.watch_options());
    let mut awaited = Awaited::attach(watch, edges, &spec.limits, args.quiet)?;
    let is_now = !awaited.as_ref().is_some_and(Awaited::delays_start);
    let command = Running::start(program, args, (spec, inherit), |thread| {
        if let Some(thread) = thread {
            counting.trace_thread(thread);
        }
        if is_now {
            counting.start();
        }
    })?;
    let mut until = Until::new(signals, command, followed);
    // On a terminal the maps are printed, and no line of progress.
    let mut line = ProgressLine::new(false);
    let mut instead = None;
    if let Some(awaited) = awaited.as_mut().filter(|awaited| awaited.delays_start()) {
        instead = awaited.wait_for_start(None, &mut until, &mut line)?;
        if instead.is_none() {
            awaited.begin(|| counting.start())?;
        }
    }
    let shown = Shown::start(args, counting.maps(), counting.began());
    let end = match instead {
        Some(end) => end,
        None => wait_for_end((&counting, &shown, &mut line), awaited.as_mut(), &mut until, (args, spec))?,
    };
    if let Some(mut awaited) = awaited.filter(|awaited| !awaited.is_over()) {
        awaited.tell_missing();
    }
    drop(counting.stop());
    shown.end()?;
    let (_, command) = until.into_parts();
    Ok(until::exit_code(end, command))
}

fn wait_for_end(
    (counting, shown, line): (&Counting, &Shown, &mut ProgressLine),
    mut awaited: Option<&mut Awaited>,
    until: &mut Until,
    (args, spec): (&RecordArgs, &RecordingSpec),
) -> Result<End, CliError> {
    if !args.quiet {
        let stop_on = awaited.as_ref().and_then(|awaited| awaited.stop_on());
        line.begin(&super::begun((Work::Counting, stop_on), (args, spec), until));
    }
    let duration = spec.limits.duration_ns.map(Duration::from_nanos);
    let deadline = duration.zip(counting.began()).map(|(duration, began)| began + duration);
    loop {
        if let Some(awaited) = &mut awaited
            && awaited.has_ended(line)?
        {
            return Ok(End::Asked);
        }
        let now = Instant::now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            return Ok(End::Asked);
        }
        let fds: Vec<_> = awaited.iter().map(|awaited| awaited.fd()).collect();
        until.wait(&fds, deadline.map(|deadline| deadline - now))?;
        while let Some(asked) = until.asked() {
            match asked {
                Asked::End(_) => return Ok(End::Asked),
                Asked::Progress => shown.now()?,
                Asked::Snapshot => {
                    line.say("tracer-agent: there is no snapshot of a recording that has maps only");
                }
            }
        }
        if let Some(end) = until.ended()? {
            return Ok(end);
        }
    }
}
