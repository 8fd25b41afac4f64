//! The thread that records a session, from its first start until the session is destroyed.

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread::JoinHandle,
    time::Duration,
};

pub(crate) use super::running::HandedRunning;
use super::{
    running::Running,
    spec::buffer_name,
    tally::{Moment, Tallies},
};
use crate::descriptors::OfUser;
use crate::relay::Forwarder;
use crate::user::Owner;
use ::spec::{RecordingSpec, RuleSpec, What};
use api::trigger::BufferUsage;
use api::{Code, ControlError};
use capture::{HandOver, Notice, Tracking};
use ctf_writer::{Publication, TraceSession};

/// A file that was made of what was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Where it is.
    pub path: PathBuf,
    /// Events in it.
    pub events: u64,
}

/// A recording that is to be made.
#[derive(Debug)]
pub(crate) struct NextRecording {
    pub(crate) spec: RecordingSpec,
    /// What its traces have of the session.
    pub(crate) session: TraceSession,
}

/// Who is told of what the thread does. It waits for nothing that waits for the thread.
pub(crate) trait Listener: Send {
    /// It is time for a rotation: whether there is to be one.
    fn is_due(&self) -> bool;
    /// What follows is in the next trace chunk; that of this number is being made a file.
    fn has_rotated(&self, chunk: u64);
    /// What becomes of a trace chunk: a file, or what was recorded is still in its spool.
    fn has_chunk(&self, chunk: u64, result: Result<Stored, String>);
    /// What is to be known of what is recorded from now on: of all of it, or of what is added to it.
    fn has_notes(&self, notes: Vec<String>, of: Whose);
    /// How often it is to be told how much is stored, and in the rings; `None` for not at all.
    fn sample_period(&self) -> Option<Duration>;
    /// How much is stored, and in the rings.
    fn has_sample(&self, sample: &Sample);
    /// A trace is written, which others may read meanwhile.
    fn has_trace(&self, recording: &Arc<Publication>);
    /// Whether another trace is about to be written before the one there is has all that it will have; it is
    /// told of next, unless it cannot be.
    fn trace_follows(&self, is_so: bool);
    /// The recording, or something that it was to do, cannot go on.
    fn has_failed(&self, why: &str);
}

/// How much of a session is stored, and in its rings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Bytes that were stored since the session was started first; nothing of one that keeps its newest
    /// events.
    pub stored: Option<u64>,
    /// Bytes in the fullest ring of each buffer, and those that there is room for.
    pub held: BTreeMap<String, (u64, u64)>,
}

impl Sample {
    /// Bytes in the fullest ring of a channel, and those that there is room for; nothing where there is no
    /// such channel.
    pub(crate) fn held(&self, of: &BufferUsage) -> Option<(u64, u64)> {
        self.held.get(&buffer_name(of.domain, &of.channel)).copied()
    }
}

/// What notes are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// A new recording.
    Recording,
    /// What was added to it.
    Addition,
}

/// A snapshot that is to be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotTo {
    /// The directory, which is made if it is not there.
    pub dir: PathBuf,
    /// The begin of its name.
    pub name: String,
    /// The most bytes.
    pub max_size: Option<u64>,
    /// How old events may be.
    pub max_age: Option<Duration>,
}

/// How a stop leaves the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// It can go on: what the rings hold stays there.
    Pause,
    /// Everything is stored, and what was recorded is a file.
    Store,
}

/// Whether events could be added to what is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// They are recorded.
    Done,
    /// A channel has no room for so many more: a new recording has.
    NoRoom,
}

/// A session on its way to another daemon.
pub(crate) struct Handed {
    pub(crate) running: HandedRunning,
    /// Its recording, if there is one.
    pub(crate) recording: Option<HandOver>,
}

/// Markers of programs that are recorded, by the buffer.
pub(crate) type Markers = BTreeMap<String, Vec<What>>;

pub(super) type Reply<T> = Sender<Result<T, ControlError>>;

/// What the thread is asked to do.
pub(super) enum Command {
    Start(Box<NextRecording>, Reply<()>),
    Resume(Reply<()>),
    Halt(Halt, Reply<bool>),
    Clear(Vec<PathBuf>, Reply<()>),
    Replace(Box<NextRecording>, Reply<()>),
    Add(String, Vec<RuleSpec>, Reply<Added>),
    Remove(String, What, Reply<()>),
    Markers(Reply<Markers>),
    Track(Tracking, Reply<()>),
    Rotate(Reply<()>),
    Snapshot(SnapshotTo, Reply<Stored>),
    Schedule(Option<Duration>, Option<u64>),
    Tallies(Reply<Tallies>),
    Moment(Reply<Moment>),
    RegenerateState(Reply<()>),
    RegenerateMetadata(Reply<()>),
    FinishFiles(Reply<()>),
    Suspend(Reply<()>),
    GoOn(Reply<()>),
    Hurry(bool),
    HandOver(Reply<Handed>),
    End(Reply<()>),
}

impl Command {
    /// Whether it changes nothing of what is recorded, or is about suspensions itself.
    pub(super) fn only_looks(&self) -> bool {
        matches!(
            self,
            Self::Suspend(_)
                | Self::GoOn(_)
                | Self::Hurry(_)
                | Self::Tallies(_)
                | Self::Markers(_)
                | Self::Moment(_)
                | Self::Schedule(..)
                | Self::FinishFiles(_)
        )
    }
}

/// A session that was started.
#[derive(Debug)]
pub(crate) struct Recorder {
    commands: Sender<Command>,
    wake: Arc<Notice>,
    thread: Option<JoinHandle<()>>,
}

impl Recorder {
    /// Starts the thread, which has the rights of the owner where files are concerned, and opens what the
    /// owner may have. Its files go to a
    /// directory, which is made if it is not there; of a session that `keeps` its newest events, only
    /// snapshots are files. What `relay` sends is removed from there. Nothing is recorded yet.
    ///
    /// # Errors
    /// The directory cannot be used, or there are no threads or descriptors left.
    pub(crate) fn new(
        owner: (Owner, OfUser),
        (dir, keeps): (PathBuf, bool),
        (listener, relay): (Box<dyn Listener>, Option<Arc<Forwarder>>),
    ) -> Result<Self, ControlError> {
        Self::spawn(owner, (dir, keeps), (listener, relay), |_| Ok(()))
    }

    fn spawn(
        owner: (Owner, OfUser),
        (dir, keeps): (PathBuf, bool),
        (listener, relay): (Box<dyn Listener>, Option<Arc<Forwarder>>),
        begin: impl FnOnce(&mut Running) -> Result<(), ControlError> + Send + 'static,
    ) -> Result<Self, ControlError> {
        let (commands, received) = mpsc::channel();
        let (begun, begins) = mpsc::channel();
        let wake = Arc::new(Notice::new().map_err(of_system)?);
        let waker = Arc::clone(&wake);
        let begin = move |mut running: Running| begin(&mut running).map(|()| running);
        let record =
            move || match Running::new(owner, (&dir, keeps), (listener, waker), relay).and_then(begin) {
                Ok(running) => {
                    // Who starts this waits for it.
                    let _ = begun.send(Ok(()));
                    running.run(&received);
                }
                Err(error) => {
                    let _ = begun.send(Err(error));
                }
            };
        let thread = std::thread::Builder::new().name("session".into()).spawn(record).map_err(of_system)?;
        match begins.recv() {
            Ok(Ok(())) => Ok(Self { commands, wake, thread: Some(thread) }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ended()),
        }
    }

    /// Records from now on. If there is a recording that pauses, it ends.
    ///
    /// # Errors
    /// The kernel does not have or allow what is asked for, or the output cannot be created.
    pub(crate) fn start(&self, recording: NextRecording) -> Result<(), ControlError> {
        self.ask(|reply| Command::Start(Box::new(recording), reply))
    }

    /// Goes on with the recording that pauses.
    pub(crate) fn resume(&self) -> Result<(), ControlError> {
        self.ask(Command::Resume)
    }

    /// Stops recording. Returns when that is done, with what was recorded in a file or spool as was asked:
    /// whether there is something left that can go on. After an error there is not.
    pub(crate) fn halt(&self, how: Halt) -> Result<bool, ControlError> {
        self.ask(|reply| Command::Halt(how, reply))
    }

    /// Stops recording, and removes what was recorded in the current trace chunk, with the files that stops
    /// have made of it.
    pub(crate) fn clear(&self, files: Vec<PathBuf>) -> Result<(), ControlError> {
        self.ask(|reply| Command::Clear(files, reply))
    }

    /// Records something else from now on, in the next trace chunk. On each CPU nothing of what both record
    /// is left out between them, but what fires between two stores to memory.
    pub(crate) fn replace(&self, recording: NextRecording) -> Result<(), ControlError> {
        self.ask(|reply| Command::Replace(Box::new(recording), reply))
    }

    /// Records more events into a channel from now on.
    pub(crate) fn add(&self, buffer: &str, rules: Vec<RuleSpec>) -> Result<Added, ControlError> {
        self.ask(|reply| Command::Add(buffer.to_owned(), rules, reply))
    }

    /// Records the events of a rule no more.
    pub(crate) fn remove(&self, buffer: &str, rule: What) -> Result<(), ControlError> {
        self.ask(|reply| Command::Remove(buffer.to_owned(), rule, reply))
    }

    /// The markers that have events.
    pub(crate) fn markers(&self) -> Result<Markers, ControlError> {
        self.ask(Command::Markers)
    }

    /// Records other threads from now on.
    pub(crate) fn track(&self, tracking: Tracking) -> Result<(), ControlError> {
        self.ask(|reply| Command::Track(tracking, reply))
    }

    /// Begins the next trace chunk. The listener is told of it, and of what becomes of the one before.
    pub(crate) fn rotate(&self) -> Result<(), ControlError> {
        self.ask(Command::Rotate)
    }

    /// Stores what the rings hold.
    pub(crate) fn snapshot(&self, to: SnapshotTo) -> Result<Stored, ControlError> {
        self.ask(|reply| Command::Snapshot(to, reply))
    }

    /// Records nothing until [`Recorder::go_on`], with as much detached as is attached again quickly; a
    /// session that is stopped stays so. Whatever else it is asked to do first lets it go on.
    pub(crate) fn suspend(&self) -> Result<(), ControlError> {
        self.ask(Command::Suspend)
    }

    /// Ends that.
    pub(crate) fn go_on(&self) -> Result<(), ControlError> {
        self.ask(Command::GoOn)
    }

    /// Whether what is stored is compressed with next to no effort from now on.
    pub(crate) fn hurry(&self, hurries: bool) {
        // If the thread has ended, nothing is stored any more.
        let _ = self.commands.send(Command::Hurry(hurries));
        self.wake.tell();
    }

    /// When the listener is told that a rotation is due.
    pub(crate) fn schedule(&self, period: Option<Duration>, bytes: Option<u64>) {
        // If the thread has ended, there is nothing to rotate.
        let _ = self.commands.send(Command::Schedule(period, bytes));
        self.wake.tell();
    }

    /// What makes the thread look whether there is something to do.
    pub(crate) fn waker(&self) -> Arc<Notice> {
        Arc::clone(&self.wake)
    }

    /// What was counted since the session was created.
    pub(crate) fn tallies(&self) -> Result<Tallies, ControlError> {
        self.ask(Command::Tallies)
    }

    /// The same, and how full the rings are, when the thread comes to answer.
    ///
    /// # Errors
    /// The thread has ended.
    pub(crate) fn moment(&self) -> Result<Receiver<Result<Moment, ControlError>>, ControlError> {
        self.send(Command::Moment)
    }

    /// Stores the state of the machine as it is now.
    pub(crate) fn regenerate_state(&self) -> Result<(), ControlError> {
        self.ask(Command::RegenerateState)
    }

    /// Writes what describes the recording again, with how far its clock is from wall time now.
    pub(crate) fn regenerate_metadata(&self) -> Result<(), ControlError> {
        self.ask(Command::RegenerateMetadata)
    }

    /// Waits until the files are made that are being made, while it goes on recording. Scheduled rotations
    /// are left to another daemon from then on.
    pub(crate) fn finish_files(&self) {
        // What could not be made is told.
        let _ = self.ask(Command::FinishFiles);
    }

    /// Lets another daemon go on. Files that are being made are made first.
    ///
    /// # Errors
    /// It cannot go on, and has ended: everything is stored.
    pub(crate) fn hand_over(mut self) -> Result<Handed, ControlError> {
        let handed = self.ask(Command::HandOver);
        self.join();
        handed
    }

    /// Goes on with a session that another daemon has handed over.
    ///
    /// # Errors
    /// It does not go on: what was recorded is in its spool.
    pub(crate) fn take_over(
        owner: (Owner, OfUser),
        (dir, keeps): (PathBuf, bool),
        listener: Box<dyn Listener>,
        handed: Handed,
    ) -> Result<Self, ControlError> {
        Self::spawn(owner, (dir, keeps), (listener, None), |running| running.go_on(handed))
    }

    /// Stops recording for good, and waits until everything is stored.
    pub(crate) fn end(mut self) -> Result<(), ControlError> {
        let ended = self.ask(Command::End);
        self.join();
        ended
    }

    fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, ControlError> {
        self.send(command)?.recv().map_err(|_| ended())?
    }

    fn send<T>(
        &self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<Receiver<Result<T, ControlError>>, ControlError> {
        let (reply, answer) = mpsc::channel();
        self.commands.send(command(reply)).map_err(|_| ended())?;
        self.wake.tell();
        Ok(answer)
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic has been printed.
            let _ = thread.join();
        }
    }
}

fn ended() -> ControlError {
    ControlError::new(
        Code::Daemon,
        "the thread that records the session has ended; the daemon's log says why",
    )
}

#[allow(clippy::needless_pass_by_value, reason = "it is for map_err")]
pub(super) fn of_system(error: io::Error) -> ControlError {
    ControlError::new(Code::NoMemory, format!("the daemon has no threads or descriptors left: {error}"))
}
