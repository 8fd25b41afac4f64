//! `analyze --live` and `record --live`: answers about a recording while it goes on.

mod screen;
mod teller;

use std::{
    fs::File,
    io::{self, PipeReader, Write},
    os::fd::{AsFd as _, BorrowedFd},
    path::PathBuf,
};

use serde::Serialize;

pub(super) use self::teller::Lateness;
use self::teller::Teller;
use super::{
    Args, NO_NANOSECONDS, check_buffer, check_needs,
    chosen::{self, Ask, Text},
    damage,
    stacks::StacksArgs,
    whole,
};
use crate::exit::ExitCode;
use crate::following::is_closed_within;
use crate::report::ReportError;
use crate::signals::Signals;
use crate::{CliError, following, input, limits, tell, units};
use analysis::answers::{Analysis, Covered, Feed, Intervals, Scope, Topic};
use capture::follow::{FollowError, Follower, NewSymbols, Progress};
use report::TraceFile;
use tracedat::reader::LiveRecords as _;

/// The shortest interval, in nanoseconds.
const INTERVAL_MIN: u64 = 100_000_000;

/// How long it may take to end after a signal has asked for it, before the process is ended: whatever the
/// output is may not take any more.
const PATIENCE: i64 = 500_000_000;

/// What becomes of events.
const COUNTED: &str = "counted";

/// Nanoseconds of an interval of --live.
pub(crate) fn interval(text: &str) -> Result<u64, String> {
    match units::period(text)? {
        ..INTERVAL_MIN => Err("it must be 100ms or more".to_owned()),
        nanoseconds => Ok(nanoseconds),
    }
}

/// What is asked of a recording that goes on, and where the answers go.
#[derive(Debug)]
pub(crate) struct Live {
    /// The name that the recording will have, or its spool.
    pub(crate) path: PathBuf,
    /// What it is called.
    pub(crate) name: String,
    pub(crate) topic: Topic,
    pub(crate) stacks: StacksArgs,
    /// The part of it that is asked about; not by times.
    pub(crate) scope: Scope,
    /// Most rows of a table.
    pub(crate) limit: usize,
    pub(crate) json: bool,
    /// The length of the intervals in nanoseconds.
    pub(crate) interval: u64,
    /// Whether each answer is about all from the beginning on.
    pub(crate) is_cumulative: bool,
    /// Where the answers go.
    pub(crate) out: File,
    /// It ends when the other end of this is closed.
    pub(crate) stop: PipeReader,
}

/// What came of it.
pub(crate) enum Shown {
    /// There is no recording of that name that goes on, but perhaps a file.
    NotThere,
    /// The file of a recording whose events were in memory until its end: nothing was shown of them.
    Finished(File),
    /// It was shown up to an end, and went like this.
    Ended(ExitCode),
}

/// Refuses what is about a recording as a whole.
fn check(args: &Args) -> Result<(), CliError> {
    if args.from.is_some() || args.to.is_some() {
        return Err(CliError::usage(
            "--live answers about each interval while it is recorded, so there is no --from and no --to",
        ));
    }
    if args.flame.flame.is_some() {
        let (name, file) = (args.topic.name(), args.file.display());
        return Err(CliError::usage(format!(
            "--flame makes a graph of a whole recording, and --live shows one that goes on; when it has ended: \
             tracer-agent analyze {name} {file} --flame FILE.svg"
        )));
    }
    Ok(())
}

/// Runs `analyze --live` until the recording ends, or somebody does not want to see more.
pub(super) fn run(args: &Args, interval: u64) -> Result<Shown, CliError> {
    check(args)?;
    let out = io::stdout().as_fd().try_clone_to_owned().map_err(CliError::system("write to the output"))?;
    let pipe = || io::pipe().map_err(CliError::system("create a pipe"));
    let (stop, go_on) = pipe()?;
    let (done, working) = pipe()?;
    // Two descriptors for each CPU at most; with the usual limit that is enough for hundreds of them.
    let _as_many_as_may_be = limits::raise();
    let live = Live {
        path: args.file.clone(),
        name: args.file.display().to_string(),
        topic: args.topic,
        stacks: args.stacks.clone(),
        scope: super::scope(args)?,
        limit: args.limit,
        json: args.json,
        interval,
        is_cumulative: args.cumulative,
        out: out.into(),
        stop,
    };
    let signals = Signals::block().map_err(CliError::system("block signals"))?;
    let shown = std::thread::scope(|threads| {
        threads.spawn(|| {
            if signals.wait_or_end(&done) {
                drop(go_on);
                if !is_closed_within(PATIENCE, &[done.as_fd()]) {
                    crate::exit_now(ExitCode::Ok);
                }
            }
        });
        let shown = live.show();
        drop(working);
        shown
    });
    // What may come now has no other end.
    signals.unblock();
    shown
}

/// Answers for a file, as there is no recording of its name.
pub(super) fn once(args: &Args, name: &str, out: &mut dyn Write) -> Result<ExitCode, CliError> {
    let file = input::open(&args.file).map_err(|error| {
        CliError::Failed(format!("{name} is not being recorded, and cannot be opened as a file: {error}"))
    })?;
    tell(&format!("tracer-agent: {name} is not being recorded; this is the answer about the file"));
    whole(args, name, Box::new(file), out)
}

impl Live {
    /// Shows the answers about the recording until it ends, or nobody reads them, or `stop` is closed.
    ///
    /// # Errors
    /// The recording cannot be followed or describes none of the events, or the output cannot be written.
    pub(crate) fn show(self) -> Result<Shown, CliError> {
        let Some(mut follower) = Follower::open(&self.path).map_err(failed)? else {
            return Ok(Shown::NotThere);
        };
        let file = follower.head().map_err(failed)?;
        if !file.counts_nanoseconds() {
            return Err(CliError::Failed(format!("{}: {NO_NANOSECONDS}", self.name)));
        }
        check_buffer(&self.scope, &file)?;
        if let Some(buffer) = &self.scope.buffer {
            follower.select_buffers([buffer.clone()].into());
        }
        let described =
            if self.topic.uses_initial_state() { follower.head_with_state() } else { follower.head() };
        let described = described.map_err(failed)?;
        let mut shown = Shown::NotThere;
        let following = Following { live: &self, follower, file, shown: &mut shown };
        chosen::ask((self.topic, &self.stacks), self.scope.clone(), &described, following)?;
        Ok(shown)
    }

    /// Waits for the end of a recording that shows nothing before.
    fn wait(&self, mut follower: Follower, mut progress: Progress) -> Result<Shown, CliError> {
        while progress == Progress::Recording {
            if is_closed_within(following::AGAIN, &self.ends()) {
                return Ok(Shown::Ended(ExitCode::Ok));
            }
            progress = follower.poll().map_err(failed)?;
        }
        if let Some(file) = follower.take_finished() {
            return Ok(Shown::Finished(file));
        }
        Ok(Shown::Ended(following::tell_end(&follower, progress, COUNTED).unwrap_or(ExitCode::Ok)))
    }

    /// What is closed by those who want no more.
    fn ends(&self) -> [BorrowedFd<'_>; 2] {
        [self.out.as_fd(), self.stop.as_fd()]
    }
}

fn failed(error: FollowError) -> CliError {
    CliError::Report(ReportError::Follow(error))
}

/// A recording that is followed.
struct Following<'a> {
    live: &'a Live,
    follower: Follower,
    file: TraceFile<Vec<u8>>,
    shown: &'a mut Shown,
}

/// Why nothing more is shown.
enum Over {
    /// Nobody wants it.
    Unwanted,
    Failed(CliError),
}

impl From<CliError> for Over {
    fn from(error: CliError) -> Self {
        Self::Failed(error)
    }
}

impl From<FollowError> for Over {
    fn from(error: FollowError) -> Self {
        Self::Failed(failed(error))
    }
}

impl From<io::Error> for Over {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Unwanted,
            _ => Self::Failed(CliError::system("write the report")(error)),
        }
    }
}

impl Ask for Following<'_> {
    fn ask<A>(self, analysis: A, text: Text<A>) -> Result<ExitCode, CliError>
    where
        A: Analysis,
        A::Answer: Serialize,
    {
        let Self { live, mut follower, file, shown } = self;
        let feed = Feed::new(&file, live.scope.clone(), analysis);
        let (missing, _) = feed.lacks(&file, live.topic);
        check_needs(&file, live.topic, (&live.scope, &Covered { missing, ..Covered::default() }))?;
        if !A::WANTS_STACKS {
            follower.leave_out_user_symbols();
        }
        let progress = follower.poll().map_err(failed)?;
        following::tell_not_followed(&follower, COUNTED);
        if follower.is_overwriting() {
            *shown = live.wait(follower, progress)?;
            return Ok(ExitCode::Ok);
        }
        let mut answers = Answers {
            live,
            follower,
            file,
            intervals: Intervals::new(feed, live.topic, live.interval, live.is_cumulative),
            teller: Teller::new(live, text)?,
        };
        *shown = match answers.follow().and_then(|progress| answers.end(progress)) {
            Ok(code) => Shown::Ended(code),
            Err(Over::Unwanted) => Shown::Ended(ExitCode::Ok),
            Err(Over::Failed(error)) => return Err(error),
        };
        Ok(ExitCode::Ok)
    }
}

/// A recording that is followed, and the answers about it.
struct Answers<'a, A: Analysis> {
    live: &'a Live,
    follower: Follower,
    file: TraceFile<Vec<u8>>,
    intervals: Intervals<A>,
    teller: Teller<A>,
}

impl<A> Answers<'_, A>
where
    A: Analysis,
    A::Answer: Serialize,
{
    /// Shows all intervals that end while the recording goes on. Gives what has become of it.
    fn follow(&mut self) -> Result<Progress, Over> {
        let pause = following::AGAIN.min((self.live.interval / 2).cast_signed());
        let mut is_told = false;
        loop {
            let progress = self.follower.poll()?;
            self.take(progress == Progress::Recording)?;
            self.teller.flush()?;
            following::tell_behind(&self.follower, &mut is_told, COUNTED);
            if progress != Progress::Recording {
                return Ok(progress);
            }
            if is_closed_within(pause, &self.live.ends()) {
                return Err(Over::Unwanted);
            }
        }
    }

    /// Takes the records that are there, and tells of the intervals that have ended by now.
    fn take(&mut self, goes_on: bool) -> Result<(), Over> {
        let Self { live, follower, file, intervals, teller } = self;
        loop {
            for (tid, name) in follower.take_names() {
                file.add_name(tid, &name);
            }
            let NewSymbols { kernel, user } = follower.take_symbols();
            if let Some(kernel) = kernel {
                file.set_kallsyms(kernel);
            }
            if let Some(user) = user {
                file.set_user_symbols(user);
            }
            intervals.know_pauses(file, follower.pauses());
            intervals.know_choice(file, follower.only(), follower.choices());
            teller.note(follower);
            let mut records = follower.records(file.reader().clock());
            let reached = loop {
                let late = records.late();
                match records.next_record() {
                    Ok(Some(record)) => {
                        while let Some(answered) = intervals.close(file, record.timestamp) {
                            teller.tell(live, file, &answered, late)?;
                        }
                        intervals.take(file, &record);
                    }
                    Ok(None) => break records.reached(),
                    Err(_) => intervals.damaged(),
                }
            };
            let late = records.late();
            // The last interval ends with the last record.
            while goes_on && let Some(answered) = intervals.close(file, reached) {
                teller.tell(live, file, &answered, late)?;
            }
            if !follower.has_new_symbols() {
                return Ok(());
            }
        }
    }

    /// Tells of the last interval, and how it ended.
    fn end(self, progress: Progress) -> Result<ExitCode, Over> {
        let Self { live, follower, file, intervals, mut teller } = self;
        let damaged = intervals.damages();
        teller.note(&follower);
        if let Some(answered) = intervals.finish(&file) {
            teller.tell(live, &file, &answered, follower.late())?;
        }
        teller.flush()?;
        following::tell_inexact(&follower, COUNTED);
        let damage = damage(&live.name, damaged);
        Ok(following::tell_end(&follower, progress, COUNTED).unwrap_or(damage))
    }
}
