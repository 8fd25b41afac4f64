//! The thread that prints what a recording has stored.

use std::{
    fs::File,
    io::{self, IsTerminal as _, PipeReader, PipeWriter, Write as _},
    os::fd::{AsFd as _, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use clap::ArgMatches;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::nice,
};

use super::super::{
    CliError,
    report::{self, ReportError, follow::Following},
    signals::{Asked, Signals},
    tell,
    units::count,
};
use ::report::Printed;
use capture::Session;
use capture::follow::Follower;
use stdx::terminal::SafeWriter;

/// How often it is looked for what the recording has stored.
const AGAIN: Duration = Duration::from_millis(50);
/// How much less urgent printing is than the recording and the rest of the machine.
const NICE: i32 = 5;

/// What became of the events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    /// How many were printed.
    pub(super) printed: u64,
    /// Whether the reader of the output has closed it.
    pub(super) is_cut_off: bool,
    /// Whether no more were to be printed.
    pub(super) is_limited: bool,
    /// Whether some could not be read.
    pub(super) is_damaged: bool,
}

/// What both threads know.
#[derive(Debug, Default)]
struct Shared {
    /// Events that are printed.
    printed: AtomicU64,
    /// Whether the user has asked for the end.
    hurries: AtomicBool,
}

/// The thread, for the one that records.
pub(super) struct Printing {
    thread: JoinHandle<Result<Outcome, ReportError>>,
    shared: Arc<Shared>,
    /// It ends with what is stored by then when this is closed.
    go_on: PipeWriter,
    /// Closed by its end.
    ended: PipeReader,
}

impl Printing {
    /// Begins to print what this recording stores.
    pub(super) fn start(session: &Session, args: report::Args, out: File) -> Result<Self, CliError> {
        let follower = session.follow().map_err(ReportError::from)?;
        let pipes = io::pipe().and_then(|stop| Ok((stop, io::pipe()?)));
        let ((stop, go_on), (ended, end)) = pipes.map_err(CliError::system("create a pipe"))?;
        let shared = Arc::<Shared>::default();
        let told = Arc::clone(&shared);
        let print = move || {
            // Linux has it for each thread. Without it printing is only more in the way.
            let _ = nice(NICE);
            let _closed_at_the_end = end;
            print(follower, &args, out, (&stop, &told))
        };
        let thread = std::thread::Builder::new().name("print".to_owned()).spawn(print);
        let thread = thread.map_err(CliError::system("start a thread"))?;
        Ok(Self { thread, shared, go_on, ended })
    }

    /// Becomes readable when nothing more is printed.
    pub(super) fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// How many events are printed by now.
    pub(super) fn printed(&self) -> u64 {
        self.shared.printed.load(Ordering::Acquire)
    }

    /// Says that the user has asked for the end.
    pub(super) fn hurry(&self) {
        self.shared.hurries.store(true, Ordering::Release);
    }

    /// Waits until all is printed that was recorded, which has ended. When the user asks for the end, or has
    /// asked for it, it may take so long; what is not printed by then is not printed at all.
    pub(super) fn finish(self, signals: &Signals, patience: Duration) -> Result<Outcome, CliError> {
        let Self { thread, shared, go_on, ended } = self;
        drop(go_on);
        let mut deadline = shared.hurries.load(Ordering::Acquire).then(|| Instant::now() + patience);
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                // It may wait for whoever does not read, and ends with the process.
                let printed = shared.printed.load(Ordering::Acquire);
                return Ok(Outcome { printed, ..Outcome::default() });
            }
            let mut fds = [PollFd::new(&ended, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
            // An interrupted wait is a short one.
            let _ = poll(&mut fds, left.map(timespec).as_ref());
            if !fds[0].revents().is_empty() {
                break;
            }
            if let Some(Asked::End(_)) = signals.take() {
                // Who asks again does not want to wait.
                let again = deadline.is_some();
                deadline = Some(Instant::now() + if again { Duration::ZERO } else { patience });
            }
        }
        let result = thread.join();
        let result =
            result.map_err(|_| CliError::Failed("the thread that prints has ended by a panic".to_owned()))?;
        Ok(result?)
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() }
}

/// What ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waited {
    /// Nothing: there may be more events.
    Again,
    /// The recording has ended.
    Ended,
    /// Nobody reads the output.
    Closed,
}

/// Waits a while.
fn wait(stop: &PipeReader, out: &File) -> Waited {
    let mut fds =
        [PollFd::new(stop, PollFlags::empty()), PollFd::from_borrowed_fd(out.as_fd(), PollFlags::empty())];
    // An interrupted wait is a short one.
    let _ = poll(&mut fds, Some(&timespec(AGAIN)));
    let is_closed = |fd: &PollFd<'_>| fd.revents().intersects(PollFlags::ERR | PollFlags::HUP);
    match (is_closed(&fds[0]), is_closed(&fds[1])) {
        (_, true) => Waited::Closed,
        (true, false) => Waited::Ended,
        (false, false) => Waited::Again,
    }
}

/// Prints everything up to the end of the recording.
fn print(
    follower: Follower,
    args: &report::Args,
    out: File,
    (stop, shared): (&PipeReader, &Shared),
) -> Result<Outcome, ReportError> {
    let matches = ArgMatches::default();
    let mut following = Following::of(args, &matches, follower)?;
    let is_terminal = out.is_terminal();
    let ends = out.try_clone()?;
    let mut out = SafeWriter::new(out, is_terminal).json(args.json);
    let mut behind = Behind { told: 0, args };
    let mut printed = Printed::default();
    let closed = |result: Result<(), ReportError>| match result {
        Err(ReportError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(true),
        Err(error) => Err(error),
        Ok(()) => Ok(false),
    };
    let mut is_cut_off = closed(out.write_all(following.header().as_bytes()).map_err(Into::into))?;
    let mut has_ended = false;
    while !is_cut_off {
        following.follower.poll()?;
        following.print(&mut printed, &mut out, |written| {
            shared.printed.store(written, Ordering::Release);
        })?;
        let told = behind.tell(following.follower.fell_behind(), &mut out);
        is_cut_off = closed(told.map_err(Into::into))?;
        if has_ended || printed.is_over() || is_cut_off {
            break;
        }
        match wait(stop, &ends) {
            Waited::Again => {}
            Waited::Ended => {
                following.follower.end_here()?;
                has_ended = true;
            }
            Waited::Closed => is_cut_off = true,
        }
    }
    let summary = following.summary(printed);
    is_cut_off |= summary.is_cut_off;
    if !is_cut_off {
        following.tell(&summary);
    }
    Ok(Outcome {
        printed: summary.written,
        is_cut_off,
        is_limited: args.limit.is_some_and(|limit| summary.shown >= limit),
        is_damaged: summary.damage.count != 0,
    })
}

/// What is said of events that were not printed, at their place.
struct Behind<'a> {
    /// Of how many it was said.
    told: u64,
    args: &'a report::Args,
}

impl Behind<'_> {
    /// Says how many more there are.
    fn tell(&mut self, all: u64, out: &mut SafeWriter<File>) -> io::Result<()> {
        let more = all.saturating_sub(self.told);
        self.told = all;
        if more == 0 {
            return Ok(());
        }
        if self.args.json {
            return writeln!(out, "{{\"not_printed\":{more}}}");
        }
        if !self.args.quiet {
            tell(&format!("... {} events not printed (the output was slow)", count(more)));
        }
        Ok(())
    }
}
