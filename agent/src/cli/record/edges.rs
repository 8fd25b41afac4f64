//! Events that begin and end a recording: `--start-on`, `--stop-on`.

use std::{
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    time::Duration,
};

use clap::Args;
use rustix::event::{PollFd, PollFlags};

use super::{
    super::{
        CliError,
        progress::ProgressLine,
        signals::{Asked, Signals},
    },
    End, Running, forward,
    when::When,
};
use crate::{
    capture::{
        Session,
        watch::{LOOK_INTERVAL, Match, RuleId, Watch, WatchError},
    },
    cli::exit::of_command,
    kernel::clock::TraceClock,
    plan::Edges,
    spec::{LimitSpec, WhenSpec},
    terminal,
};

const START: RuleId = 0;
const STOP: RuleId = 1;
/// One of each.
const EVENTS: usize = 2;

/// The events at which a recording begins and ends.
#[derive(Args, Debug)]
#[command(next_help_heading = super::END)]
pub struct EdgeArgs {
    /// Attach everything, and begin to record when this event fires; with FILTER, when it matches
    #[arg(long, value_name = "EVENT[: FILTER]")]
    pub start_on: Option<When>,

    /// Stop when this event fires, which need not be recorded; with FILTER, when it matches. If it is
    /// recorded, it is in the file
    #[arg(long, value_name = "EVENT[: FILTER]")]
    pub stop_on: Option<When>,
}

/// Waits for these events.
#[derive(Debug)]
pub(super) struct Awaited {
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
    /// Attaches what tells of them, after the events of the recording; `None` if there are none.
    pub(super) fn attach(
        session: &Session,
        edges: Edges,
        limits: &LimitSpec,
        quiet: bool,
    ) -> Result<Option<Self>, CliError> {
        let Edges { start, stop } = edges;
        if start.is_none() && stop.is_none() {
            return Ok(None);
        }
        let mut options = session.watch_options()?;
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
        Ok(Some(Self { watch, clock, start_on, stop_on, begun_ns, quiet, start: None, stop: None }))
    }

    /// Readable when one of them may have come.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Whether the recording has not begun, as the event has not come that it begins with.
    pub(super) fn delays_start(&self) -> bool {
        self.start_on.is_some() && self.begun_ns.is_none()
    }

    /// Begins to record: what fired before ends nothing, and nothing else begins it.
    pub(super) fn begin(&mut self, session: &mut Session) -> Result<(), CliError> {
        self.begun_ns = Some(self.clock.now_ns());
        session.start();
        self.watch.remove(START).map(drop).map_err(failed)
    }

    /// What is said of how long recording goes on, with the event that ends it.
    pub(super) fn until(&self, text: &str) -> String {
        match (&self.stop_on, text.strip_prefix("recording until "), text.strip_prefix("recording")) {
            (Some(event), Some(others), _) => format!("recording until {event} or {others}"),
            (Some(event), None, Some(rest)) => format!("recording until {event}{rest}"),
            _ => text.to_owned(),
        }
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

    /// Whether the event has come that ends the recording; says so. The programs of the recording that run
    /// with it have returned then.
    pub(super) fn has_ended(&mut self, session: &Session, line: &mut ProgressLine) -> Result<bool, CliError> {
        self.look()?;
        let Some(stop) = &self.stop else { return Ok(false) };
        // On most kernels they have run before those that told of it.
        session.wait_for_programs();
        if !self.quiet {
            line.say(&format!("tracer-agent: {} ended the recording (--stop-on)", told(stop)));
        }
        Ok(true)
    }

    /// Waits for the event that begins the recording; says so. Gives what came instead.
    pub(super) fn wait_for_start(
        &mut self,
        session: &Session,
        (signals, command, followed): (&Signals, &mut Option<Running>, &mut Vec<OwnedFd>),
        line: &mut ProgressLine,
    ) -> Result<Option<End>, CliError> {
        let event = self.start_on.clone().unwrap_or_default();
        let waiting = format!("tracer-agent: recording begins with {event} (--start-on)");
        if !self.quiet {
            line.say(&waiting);
        }
        let waits_for_followed = !followed.is_empty() && command.is_none();
        loop {
            self.look()?;
            if let Some(start) = &self.start {
                if !self.quiet {
                    line.say(&format!("tracer-agent: {} began the recording", told(start)));
                }
                return Ok(None);
            }
            let mut fds = vec![
                PollFd::new(signals, PollFlags::IN),
                PollFd::from_borrowed_fd(session.failed(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.fd(), PollFlags::IN),
            ];
            fds.extend(command.iter().map(|running| PollFd::new(&running.ended, PollFlags::IN)));
            fds.extend(followed.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
            super::wait(&mut fds, None::<Duration>)?;
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            if ready[1] {
                return Ok(Some(End::Failure));
            }
            while let Some(asked) = signals.take() {
                match asked {
                    Asked::End(signal) => {
                        forward(signal, command.as_ref().map(|running| &running.child));
                        return Ok(Some(End::Asked));
                    }
                    Asked::Progress | Asked::Snapshot => line.say(&waiting),
                }
            }
            let mut rest = ready[3..].iter();
            if let Some(running) = command
                && rest.next() == Some(&true)
            {
                // What it did last may be what is waited for.
                std::thread::sleep(2 * LOOK_INTERVAL);
                self.look()?;
                if self.start.is_some() {
                    continue;
                }
                let status = running.child.wait().map_err(CliError::system("wait for the command"))?;
                return Ok(Some(End::Command(of_command(status))));
            }
            followed.retain(|_| rest.next() != Some(&true));
            if waits_for_followed && followed.is_empty() {
                return Ok(Some(End::Asked));
            }
        }
    }

    /// Whether all of them have come.
    pub(super) fn is_over(&self) -> bool {
        (self.start_on.is_none() || self.start.is_some()) && (self.stop_on.is_none() || self.stop.is_some())
    }

    /// Says which of them has not come, once something else has ended the recording.
    pub(super) fn tell_missing(&mut self) {
        // What came last may have ended the command, too.
        std::thread::sleep(2 * LOOK_INTERVAL);
        if self.quiet || self.look().is_err() {
            return;
        }
        let say =
            |event: &str, what| super::super::tell(&format!("tracer-agent: {event} did not come: {what}"));
        match (&self.start_on, &self.start, &self.stop_on, &self.stop) {
            (Some(event), None, ..) => say(event, "nothing was recorded (--start-on)"),
            (.., Some(event), None) => say(event, "something else ended the recording (--stop-on)"),
            _ => {}
        }
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
