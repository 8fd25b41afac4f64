//! `record --count` and `--time`: maps that are counted in, and what is printed of them.

use std::{
    io::Write as _,
    os::fd::OwnedFd,
    path::Path,
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use clap::{ArgMatches, Args};
use rustix::event::{PollFd, PollFlags};

use super::{
    super::{
        CliError,
        command::Inherit,
        exit::{ExitCode, of_command},
        signals::{Asked, Signals},
        units,
    },
    MAPS, RecordArgs, Running, forward, start, wait,
    wanted::indices,
};
use crate::{
    capture::{CaptureOptions, Counting, Maps},
    control::CountedMap,
    report,
    spec::{MapSpec, RecordingSpec},
};

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

    /// The maps, in the order of the command line.
    pub(super) fn specs(&self, matches: &ArgMatches) -> Result<Vec<MapSpec>, CliError> {
        if self.is_empty() {
            let beside = [
                ("--max-keys", self.max_keys.is_some()),
                ("--interval", self.interval.is_some()),
                ("--json", self.json),
            ];
            return match beside.into_iter().find(|(_, given)| *given) {
                Some((option, _)) => {
                    Err(CliError::Usage(format!("{option} is for maps, which --count and --time make")))
                }
                None => Ok(Vec::new()),
            };
        }
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
        Ok(specs.into_iter().map(|(_, spec)| spec).collect())
    }
}

/// Maps that are printed, in intervals if that is wanted, and at the end.
pub(super) struct Shown {
    maps: Arc<Maps>,
    began: Instant,
    json: bool,
    meanwhile: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Shown {
    pub(super) fn start(args: &RecordArgs, maps: Arc<Maps>, began: Option<Instant>) -> Self {
        let (json, began) = (args.maps.json, began.unwrap_or_else(Instant::now));
        let meanwhile = args.maps.interval.map(|interval| {
            let (end, ended) = channel();
            let maps = Arc::clone(&maps);
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
                    if print(&maps, began, json, false).is_err() {
                        return;
                    }
                    next += period;
                }
            };
            (end, std::thread::spawn(print))
        });
        Self { maps, began, json, meanwhile }
    }

    /// Prints what there is now.
    fn now(&self) -> Result<(), CliError> {
        print(&self.maps, self.began, self.json, false)
    }

    /// Prints what there is at the end.
    pub(super) fn end(self) -> Result<(), CliError> {
        if let Some((end, thread)) = self.meanwhile {
            drop(end);
            let _ = thread.join();
        }
        print(&self.maps, self.began, self.json, true)
    }
}

fn print(maps: &Maps, began: Instant, json: bool, is_last: bool) -> Result<(), CliError> {
    let elapsed = began.elapsed();
    let mut text = String::new();
    for (options, contents) in maps.all() {
        let map = CountedMap::of(options, &contents, usize::MAX, (elapsed, is_last));
        if json {
            let line = serde_json::to_string(&map);
            text +=
                &line.map_err(|error| CliError::Failed(format!("cannot write a map as JSON: {error}")))?;
            text.push('\n');
        } else {
            text += &report::maps::table(&map);
        }
    }
    let mut out = std::io::stdout().lock();
    super::super::write_all(&mut out, &text)?;
    out.flush().map_err(CliError::system("write the maps"))
}

/// Counts, and records nothing.
pub(super) fn count(
    (args, spec): (&RecordArgs, &RecordingSpec),
    options: CaptureOptions,
    (program, inherit): (Option<&Path>, Inherit),
    (signals, followed): (&Signals, Vec<OwnedFd>),
) -> Result<u8, CliError> {
    let mut counting = Counting::create(options)?;
    let mut command = start(program, args, (spec, inherit), |thread| {
        if let Some(thread) = thread {
            counting.trace_thread(thread);
        }
        counting.start();
    })?;
    let shown = Shown::start(args, counting.maps(), counting.began());
    if !args.quiet {
        let duration = spec.limits.duration_ns.map(Duration::from_nanos);
        let until = super::begun(args, duration, !followed.is_empty() && command.is_none());
        super::super::tell(&format!("tracer-agent: {}", until.replacen("recording", "counting", 1)));
    }
    let status = until_end((spec, counting.began()), signals, (&mut command, followed), &shown)?;
    drop(counting.stop());
    shown.end()?;
    Ok(status.unwrap_or(ExitCode::Ok.code()))
}

/// Waits for the end. Gives the exit code of the command, if it has ended.
fn until_end(
    (spec, began): (&RecordingSpec, Option<Instant>),
    signals: &Signals,
    (command, mut followed): (&mut Option<Running>, Vec<OwnedFd>),
    shown: &Shown,
) -> Result<Option<u8>, CliError> {
    let duration = spec.limits.duration_ns.map(Duration::from_nanos);
    let deadline = duration.zip(began).map(|(duration, began)| began + duration);
    let waits_for_followed = !followed.is_empty() && command.is_none();
    loop {
        let now = Instant::now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            return Ok(None);
        }
        let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
        fds.extend(command.iter().map(|running| PollFd::new(&running.ended, PollFlags::IN)));
        fds.extend(followed.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        wait(&mut fds, deadline.map(|deadline| deadline - now))?;
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let mut rest = ready[1..].iter();
        while let Some(asked) = signals.take() {
            match asked {
                Asked::End(signal) => {
                    forward(signal, command.as_ref().map(|running| &running.child));
                    return Ok(None);
                }
                Asked::Progress => shown.now()?,
                Asked::Snapshot => {
                    super::super::tell(
                        "tracer-agent: there is no snapshot of a recording that has maps only",
                    );
                }
            }
        }
        if let Some(running) = command
            && rest.next() == Some(&true)
        {
            let status = running.child.wait().map_err(CliError::system("wait for the command"))?;
            return Ok(Some(of_command(status)));
        }
        followed.retain(|_| rest.next() != Some(&true));
        if waits_for_followed && followed.is_empty() {
            return Ok(None);
        }
    }
}
