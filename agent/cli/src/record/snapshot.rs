//! Snapshots of a recording with `--overwrite`: SIGUSR2 asks for them, and events do.

use std::{
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use clap::Args;

use super::{
    super::{CliError, progress::ProgressLine, summary, units, units::count},
    when::When,
};
use crate::exit::ExitCode;
use capture::{Done, Finisher, Session, SnapshotError, SnapshotRule};
use spec::SnapshotSpec;
use stdx::reason;

/// How often the counts of the event are looked at. On a CPU that is busy enough to overwrite it, a program
/// keeps it and says so at once.
const LOOK: Duration = Duration::from_millis(100);

/// What takes snapshots.
#[derive(Args, Debug)]
#[command(next_help_heading = "Snapshots")]
pub struct SnapshotArgs {
    /// With --overwrite, store what the buffers hold in a file of its own (trace-TIME-snapshot-N.dat) when
    /// this event is recorded, and go on. With FILTER, when it matches; no other option may select the event
    /// then
    #[arg(id = "snapshot_when", long = "snapshot-when", value_name = "EVENT[: FILTER]")]
    pub when: Option<When>,

    /// Take it this long after the event: 50ms, 10s
    #[arg(
        id = "snapshot_delay",
        long = "snapshot-delay",
        value_name = "TIME",
        value_parser = units::period,
        requires = "snapshot_when"
    )]
    pub delay: Option<u64>,

    /// Take this many at most
    #[arg(id = "snapshot_limit", long = "snapshot-limit", value_name = "N", requires = "snapshot_when")]
    pub limit: Option<u64>,
}

impl SnapshotArgs {
    /// What the options say, if they say something.
    pub(super) fn spec(&self) -> Option<SnapshotSpec> {
        let Self { when, delay, limit } = self;
        let When { event, filter } = when.clone()?;
        Some(SnapshotSpec { when: event, filter, delay_ns: delay.unwrap_or(0), limit: *limit })
    }
}

/// The snapshots of a recording. One is made at a time.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    /// Makes the files, from the first request on.
    finisher: Option<Finisher>,
    quiet: bool,
    /// Requests by signals that came while one was made.
    left_out: u64,
    asking: Option<Asking>,
    /// Of the first that could not be stored.
    failed: Option<ExitCode>,
}

/// The event that asks for snapshots.
#[derive(Debug)]
struct Asking {
    rule: SnapshotRule,
    /// How many it got.
    taken: u64,
    /// How many records of it there are.
    asked: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// What asks now gets none: one is being made.
    Busy,
    /// The next record gets one. There were so many before.
    Armed(u64),
    /// One has asked, and gets its snapshot then.
    Due(Instant),
    /// There are as many as are wanted.
    Over,
}

impl Snapshots {
    pub(super) fn new(rule: Option<SnapshotRule>, quiet: bool) -> Self {
        let asking = rule.map(|rule| Asking { rule, taken: 0, asked: 0, state: State::Armed(0) });
        Self { quiet, asking, ..Self::default() }
    }

    /// Becomes readable when a file is made.
    pub(super) fn is_done(&self) -> Option<BorrowedFd<'_>> {
        self.finisher.as_ref().map(Finisher::is_done)
    }

    /// How long nothing is to be done at most.
    pub(super) fn patience(&self, now: Instant) -> Option<Duration> {
        match self.asking.as_ref()?.state {
            State::Busy | State::Armed(_) => Some(LOOK),
            // Another one may be in the making then.
            State::Due(due) if due <= now => Some(LOOK),
            State::Due(due) => Some(due - now),
            State::Over => None,
        }
    }

    /// Takes one for a signal, or says why there is none.
    pub(super) fn take(&mut self, session: &mut Session, line: &mut ProgressLine) {
        if self.is_busy() {
            self.left_out += 1;
            if !self.quiet {
                line.say("tracer-agent: no snapshot for this SIGUSR2: the one before is still being written");
            }
        } else {
            self.take_now(session, line);
        }
    }

    /// Takes one if an event has asked for it.
    pub(super) fn look(&mut self, session: &mut Session, line: &mut ProgressLine) {
        let is_busy = self.is_busy();
        let Some(asking) = &mut self.asking else { return };
        asking.asked = session.snapshots_asked();
        let is_asked = session.is_asked();
        let over = asking.rule.limit.is_some_and(|limit| asking.taken >= limit);
        let now = Instant::now();
        asking.state = match asking.state {
            // Also what a program has kept since.
            State::Over => {
                session.keep_asking(false);
                State::Over
            }
            State::Due(due) => State::Due(due),
            _ if over => State::Over,
            _ if is_busy => {
                session.keep_asking(false);
                State::Busy
            }
            State::Busy => {
                session.keep_asking(true);
                State::Armed(session.snapshots_asked())
            }
            State::Armed(before) if is_asked || asking.asked > before => State::Due(now + asking.rule.delay),
            State::Armed(before) => State::Armed(before),
        };
        if let State::Due(due) = asking.state
            && due <= now
            && !is_busy
        {
            asking.state = State::Busy;
            if self.take_now(session, line)
                && let Some(asking) = &mut self.asking
            {
                asking.taken += 1;
            }
            session.keep_asking(false);
        }
    }

    /// Notes what is known of the session before it ends.
    pub(super) fn end(&mut self, session: &Session) {
        if let Some(asking) = &mut self.asking {
            asking.asked = session.snapshots_asked();
        }
    }

    /// Whether a file is being made.
    pub(super) fn is_busy(&self) -> bool {
        self.finisher.as_ref().is_some_and(Finisher::is_busy)
    }

    /// Takes one, or says why there is none.
    fn take_now(&mut self, session: &mut Session, line: &mut ProgressLine) -> bool {
        match self.store(session) {
            Ok(()) => return true,
            // That the recording is at its end is seen by who waits for that.
            Err(Failed::Snapshot(SnapshotError::Reader)) => {}
            Err(Failed::Snapshot(SnapshotError::Stores)) => line.say(
                "tracer-agent: SIGUSR2 takes a snapshot of a recording with --overwrite; this one stores all \
                 its events; recording continues\n\
                 tracer-agent: SIGUSR1 prints the progress, SIGINT ends the recording and writes the file",
            ),
            Err(Failed::Snapshot(error)) => {
                self.failed.get_or_insert(exit_code(&error));
                line.say(&format!("tracer-agent: {error}; recording continues"));
            }
            Err(Failed::Thread(error)) => {
                self.failed.get_or_insert(error.exit_code());
                line.say(&format!("tracer-agent: {error}; recording continues"));
            }
        }
        false
    }

    fn store(&mut self, session: &mut Session) -> Result<(), Failed> {
        // Before the snapshot, which would be nobody's without it.
        let finisher = match self.finisher.take() {
            Some(finisher) => finisher,
            None => Finisher::start(None)
                .map_err(CliError::system("start a thread that makes the file of a snapshot"))
                .map_err(Failed::Thread)?,
        };
        let finisher = self.finisher.insert(finisher);
        finisher.add(session.snapshot().map_err(Failed::Snapshot)?);
        Ok(())
    }

    /// Tells which files were made.
    pub(super) fn tell_done(&mut self, line: &mut ProgressLine) {
        while let Some(done) = self.finisher.as_ref().and_then(Finisher::next_done) {
            self.tell(done, &mut |text| line.say(text));
        }
    }

    /// Waits for the file that is being made, and tells who got none. Gives how the program ends if one could
    /// not be stored.
    pub(super) fn finish(mut self) -> Option<ExitCode> {
        for done in self.finisher.take().map(Finisher::finish).unwrap_or_default() {
            self.tell(done, &mut super::super::tell);
        }
        if self.quiet {
            return self.failed;
        }
        if self.left_out != 0 {
            let requests = count(self.left_out);
            super::super::tell(&format!(
                "tracer-agent: {requests} SIGUSR2 came while a snapshot was being written, and took none"
            ));
        }
        if let Some(Asking { taken, asked, .. }) = self.asking {
            super::super::tell(&format!(
                "tracer-agent: snapshots: {} asked for by events, {} taken",
                count(asked),
                count(taken)
            ));
        }
        self.failed
    }

    fn tell(&mut self, done: Done, say: &mut dyn FnMut(&str)) {
        match done {
            Done::File(finished) if self.quiet => drop(finished),
            Done::File(finished) => say(summary::line(&finished).trim_end()),
            // It was told when the trace ended.
            Done::KeptInSpool { .. } => {}
            Done::Failed { error, spool } | Done::TraceEnded { error, spool } => {
                let error = CliError::Finish { error, spool };
                self.failed.get_or_insert(error.exit_code());
                say(&format!("tracer-agent: {error}"));
            }
        }
    }
}

fn exit_code(error: &SnapshotError) -> ExitCode {
    match error {
        _ if reason::is_disk_full(error) => ExitCode::DiskFull,
        SnapshotError::Store(_) | SnapshotError::Output(_) => ExitCode::OutputNotWritable,
        _ => ExitCode::Failure,
    }
}

/// Why there is no snapshot.
enum Failed {
    Snapshot(SnapshotError),
    Thread(CliError),
}
