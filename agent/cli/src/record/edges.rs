//! Events that begin and end a recording: `--start-on`, `--stop-on`.

use std::{
    fmt,
    os::fd::{AsFd as _, BorrowedFd},
};

use clap::Args;
use kernel::clock::ReadClock as _;

use super::{
    super::{CliError, progress::ProgressLine, signals::Asked},
    until::{End, Until},
    when::When,
};
use capture::watch::{LOOK_INTERVAL, Match, RuleId, Watch, WatchError, WatchOptions};
use capture::{CaptureError, wait_for_programs};
use plan::Edges;
use spec::TraceClock;
use spec::{LimitSpec, WhenSpec};
use stdx::terminal;

const START: RuleId = 0;
const STOP: RuleId = 1;
/// One of each.
const EVENTS: usize = 2;

/// The events at which a recording begins and ends.
#[derive(Args, Debug)]
#[command(next_help_heading = super::END)]
pub struct EdgeArgs {
    /// Attach everything, and begin to record or count when this event fires; with FILTER, when it matches
    #[arg(long, value_name = "EVENT[: FILTER]")]
    pub start_on: Option<When>,

    /// Stop when this event fires, which need not be recorded or counted; with FILTER, when it matches. If it
    /// is recorded, it is in the file, and if it is counted, in its map
    #[arg(long, value_name = "EVENT[: FILTER]")]
    pub stop_on: Option<When>,
}

/// What begins and ends with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A recording.
    Recording,
    /// Maps alone.
    Counting,
}

impl Work {
    /// What was done with events.
    fn done(self) -> &'static str {
        match self {
            Self::Recording => "recorded",
            Self::Counting => "counted",
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Recording => "recording",
            Self::Counting => "counting",
        })
    }
}

/// Waits for these events.
#[derive(Debug)]
pub(crate) struct Awaited {
    work: Work,
    watch: Watch,
    clock: TraceClock,
    /// What the user calls them.
    start_on: Option<String>,
    stop_on: Option<String>,
    /// From this time of the clock on, the event counts that ends the recording.
    begun_ns: Option<u64>,
    quiet: bool,
    /// The first match of each.
    start: Option<Match>,
    stop: Option<Match>,
}

impl Awaited {
    /// Attaches what tells of them, after the events that are recorded or counted; `None` if there are none.
    /// `options` are those of a watch beside these.
    pub(crate) fn attach(
        (work, options): (Work, impl FnOnce() -> Result<WatchOptions, CaptureError>),
        edges: Edges,
        limits: &LimitSpec,
        quiet: bool,
    ) -> Result<Option<Self>, CliError> {
        let Edges { start, stop } = edges;
        if start.is_none() && stop.is_none() {
            return Ok(None);
        }
        let mut options = options()?;
        options.events = EVENTS;
        let clock = options.clock;
        let mut watch = Watch::start(options).map_err(failed)?;
        for (id, rule) in [(START, start), (STOP, stop)] {
            if let Some(rule) = rule {
                watch.add(id, rule).map_err(failed)?;
            }
        }
        let text = |when: &Option<WhenSpec>| when.as_ref().map(text_of);
        let (start_on, stop_on) = (text(&limits.start_on), text(&limits.stop_on));
        // The command may be faster than whoever would note when it began.
        let begun_ns = start_on.is_none().then_some(0);
        Ok(Some(Self { work, watch, clock, start_on, stop_on, begun_ns, quiet, start: None, stop: None }))
    }

    /// Readable when one of them may have come.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Whether the recording has not begun, as the event has not come that it begins with.
    pub(crate) fn delays_start(&self) -> bool {
        self.start_on.is_some() && self.begun_ns.is_none()
    }

    /// What the event is called that ends it.
    pub(crate) fn stop_on(&self) -> Option<&str> {
        self.stop_on.as_deref()
    }

    /// Begins it with `open`: what fired before ends nothing, and nothing else begins it.
    pub(crate) fn begin(&mut self, open: impl FnOnce()) -> Result<(), CliError> {
        self.begun_ns = Some(self.clock.now_ns());
        open();
        self.watch.remove(START).map(drop).map_err(failed)
    }

    fn look(&mut self) -> Result<(), CliError> {
        let Self { watch, start, stop, begun_ns, .. } = self;
        let taken = watch.take(&mut |one| {
            if one.rule == START {
                start.get_or_insert(one);
            } else if begun_ns.is_some_and(|begun| one.time >= begun) {
                stop.get_or_insert(one);
            }
        });
        taken.map_err(failed)
    }

    /// Whether the event has come that ends it; says so. The programs that record or count and run with it
    /// have returned then.
    pub(crate) fn has_ended(&mut self, line: &mut ProgressLine) -> Result<bool, CliError> {
        self.look()?;
        let Some(stop) = &self.stop else { return Ok(false) };
        // On most kernels they have run before those that told of it.
        wait_for_programs();
        if !self.quiet {
            line.say(&format!("tracer-agent: {} ended the {} (--stop-on)", told(stop), self.work));
        }
        Ok(true)
    }

    /// Waits for the event that it begins with; says so. Gives what came instead. `failed` becomes readable
    /// when it cannot go on.
    pub(crate) fn wait_for_start(
        &mut self,
        failed: Option<BorrowedFd<'_>>,
        until: &mut Until,
        line: &mut ProgressLine,
    ) -> Result<Option<End>, CliError> {
        let event = self.start_on.clone().unwrap_or_default();
        let waiting = format!("tracer-agent: {} begins with {event} (--start-on)", self.work);
        if !self.quiet {
            line.say(&waiting);
        }
        loop {
            self.look()?;
            if let Some(start) = &self.start {
                if !self.quiet {
                    line.say(&format!("tracer-agent: {} began the {}", told(start), self.work));
                }
                return Ok(None);
            }
            let fds: Vec<_> = [self.fd()].into_iter().chain(failed).collect();
            if until.wait(&fds, None)?.get(1) == Some(&true) {
                return Ok(Some(End::Failure));
            }
            while let Some(asked) = until.asked() {
                match asked {
                    Asked::End(_) => return Ok(Some(End::Asked)),
                    Asked::Progress | Asked::Snapshot => line.say(&waiting),
                }
            }
            if let Some(end) = until.ended()? {
                // What the command did last may be what is waited for.
                std::thread::sleep(2 * LOOK_INTERVAL);
                self.look()?;
                if self.start.is_none() {
                    return Ok(Some(end));
                }
            }
        }
    }

    /// Whether all of them have come.
    pub(crate) fn is_over(&self) -> bool {
        (self.start_on.is_none() || self.start.is_some()) && (self.stop_on.is_none() || self.stop.is_some())
    }

    /// Says which of them has not come, once something else has ended the recording.
    pub(crate) fn tell_missing(&mut self) {
        // What came last may have ended the command, too.
        std::thread::sleep(2 * LOOK_INTERVAL);
        if self.quiet || self.look().is_err() {
            return;
        }
        let (event, what) = match (&self.start_on, &self.start, &self.stop_on, &self.stop) {
            (Some(event), None, ..) => (event, format!("nothing was {} (--start-on)", self.work.done())),
            (.., Some(event), None) => (event, format!("something else ended the {} (--stop-on)", self.work)),
            _ => return,
        };
        super::super::tell(&format!("tracer-agent: {event} did not come: {what}"));
    }
}

fn failed(error: WatchError) -> CliError {
    match error {
        WatchError::Capture(source) => source.into(),
        error => CliError::Failed(error.to_string()),
    }
}

fn text_of(WhenSpec { when, filter }: &WhenSpec) -> String {
    match filter {
        Some(filter) => format!("{when}: {filter}"),
        None => when.to_string(),
    }
}

/// A match in a few words: what, when, where and who.
fn told(of: &Match) -> String {
    let (seconds, micros) = (of.time / 1_000_000_000, of.time % 1_000_000_000 / 1000);
    let comm = terminal::name(&String::from_utf8_lossy(&of.comm));
    format!("{} of {comm}-{} at {seconds}.{micros:06} on CPU {}", of.event, of.tid, of.cpu)
}
