//! The thread that records a session, from its start to its stop.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd},
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{
    capture::{Destination, Done, Finisher, Notice, Recorded, Session, finish},
    control::{Code, ControlError},
    output::Output,
    plan::{Addition, Plan},
    service::user::Owner,
    spec::{RecordingSpec, RuleSpec, What},
};

/// A file that was made of what was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::service) struct Stored {
    /// Where it is.
    pub path: PathBuf,
    /// Events in it.
    pub events: u64,
    /// Events that fired and are not in it.
    pub missing: u64,
}

/// Who is told of what the thread does without being asked. It waits for nothing that waits for the thread.
pub(in crate::service) trait Listener: Send {
    /// It is time for a rotation: whether there is to be one.
    fn is_due(&self) -> bool;
    /// A trace chunk is a file, or could not be made one; what was recorded is in its spool then.
    fn has_chunk(&self, result: Result<Stored, String>);
    /// The recording, or something that it was to do, cannot go on.
    fn has_failed(&self, why: &str);
}

/// Events of a channel that were lost.
pub(in crate::service) type Losses = Vec<u64>;

type Reply<T> = Sender<Result<T, ControlError>>;

enum Command {
    Add(String, Vec<RuleSpec>, Reply<()>),
    Remove(String, RuleSpec, Reply<()>),
    Rotate(Reply<()>),
    Snapshot(Reply<Stored>),
    Schedule(Option<Duration>, Option<u64>),
    Losses(Reply<Losses>),
    Stop(Reply<Vec<Stored>>),
}

/// A session that records.
#[derive(Debug)]
pub(in crate::service) struct Recorder {
    commands: Sender<Command>,
    wake: Arc<Notice>,
    thread: Option<JoinHandle<()>>,
}

impl Recorder {
    /// Starts recording into a directory, with the rights of the owner where files are concerned. Returns when
    /// events are recorded.
    ///
    /// # Errors
    /// The kernel does not have or allow what is asked for, or the output cannot be created.
    pub(in crate::service) fn start(
        spec: RecordingSpec,
        (owner, dir): (Owner, PathBuf),
        period: Option<Duration>,
        listener: Box<dyn Listener>,
    ) -> Result<Self, ControlError> {
        let (commands, received) = mpsc::channel();
        let (begun, begins) = mpsc::channel();
        let wake = Arc::new(Notice::new().map_err(of_system)?);
        let waker = Arc::clone(&wake);
        let record = move || {
            let running = match Running::start(&spec, (owner, &dir), period, (listener, waker)) {
                Ok(running) => running,
                Err(error) => {
                    // Who started this waits for it.
                    let _ = begun.send(Err(error));
                    return;
                }
            };
            let _ = begun.send(Ok(()));
            running.run(&received);
        };
        let thread = std::thread::Builder::new().name("session".into()).spawn(record).map_err(of_system)?;
        match begins.recv() {
            Ok(Ok(())) => Ok(Self { commands, wake, thread: Some(thread) }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ended()),
        }
    }

    /// Records more events into a channel from now on.
    pub(in crate::service) fn add(&self, buffer: &str, rules: Vec<RuleSpec>) -> Result<(), ControlError> {
        self.ask(|reply| Command::Add(buffer.to_owned(), rules, reply))
    }

    /// Records the events of a rule no more.
    pub(in crate::service) fn remove(&self, buffer: &str, rule: RuleSpec) -> Result<(), ControlError> {
        self.ask(|reply| Command::Remove(buffer.to_owned(), rule, reply))
    }

    /// Begins the next trace chunk. What becomes of the one before is told to the listener.
    pub(in crate::service) fn rotate(&self) -> Result<(), ControlError> {
        self.ask(Command::Rotate)
    }

    /// Stores what the rings hold.
    pub(in crate::service) fn snapshot(&self) -> Result<Stored, ControlError> {
        self.ask(Command::Snapshot)
    }

    /// When the listener is told that a rotation is due.
    pub(in crate::service) fn schedule(&self, period: Option<Duration>, bytes: Option<u64>) {
        // If the thread has ended, there is nothing to rotate.
        let _ = self.commands.send(Command::Schedule(period, bytes));
        self.wake.tell();
    }

    /// How many events each channel has lost since the start, in their order.
    pub(in crate::service) fn losses(&self) -> Result<Losses, ControlError> {
        self.ask(Command::Losses)
    }

    /// Stops recording, and waits until everything is stored. Gives the files that nobody was told of.
    pub(in crate::service) fn stop(mut self) -> Result<Vec<Stored>, ControlError> {
        let stored = self.ask(Command::Stop);
        self.join();
        stored
    }

    fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, ControlError> {
        let (reply, answer) = mpsc::channel();
        self.commands.send(command(reply)).map_err(|_| ended())?;
        self.wake.tell();
        answer.recv().map_err(|_| ended())?
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

fn of_system(error: io::Error) -> ControlError {
    ControlError::new(Code::NoMemory, format!("the daemon has no threads or descriptors left: {error}"))
}

/// A recording while it goes on.
struct Running {
    session: Session,
    finisher: Finisher,
    owner: Owner,
    listener: Box<dyn Listener>,
    wake: Arc<Notice>,
    period: Option<Duration>,
    bytes: Option<u64>,
    /// When the next rotation is due, for its age.
    next: Option<Instant>,
    /// The bytes that were stored when the current chunk began.
    chunk_from: u64,
    /// Whether the listener was told that it is large.
    is_told: bool,
    has_failed: bool,
}

impl Running {
    fn start(
        spec: &RecordingSpec,
        (owner, dir): (Owner, &Path),
        period: Option<Duration>,
        (listener, wake): (Box<dyn Listener>, Arc<Notice>),
    ) -> Result<Self, ControlError> {
        // Planning reads what only root may, and no path of the user: what the session's files are called is
        // looked up with the user's rights.
        let mut spec = spec.clone();
        let path = std::mem::replace(&mut spec.file.path, PathBuf::from("/session"));
        let plan = Plan::make(&spec).map_err(|error| {
            ControlError::new(Code::StartKernel, format!("the session cannot be recorded here: {error}"))
        })?;
        owner.take_rights().map_err(|error| {
            ControlError::new(Code::Permission, format!("cannot take the rights of user {}: {error}", owner.uid))
        })?;
        std::fs::create_dir_all(dir).map_err(|error| {
            ControlError::new(Code::CreateDirectory, format!("cannot create {}: {error}", dir.display()))
        })?;
        let mut options = plan.options;
        options.destination = match options.destination {
            Destination::Directory(_) => Destination::Directory(path.clone()),
            Destination::File(_) => {
                let output = Output::at(&path);
                Destination::File(output.map_err(|error| ControlError::new(Code::CreateFile, error.to_string()))?)
            }
        };
        options.manifest.output = path;
        let finisher = Finisher::start(None).map_err(of_system)?;
        let mut session = Session::create(options, &mut |_, _| ())
            .map_err(|error| ControlError::new(Code::StartKernel, error.to_string()))?;
        session.start();
        let next = period.map(|period| Instant::now() + period);
        Ok(Self {
            session,
            finisher,
            owner,
            listener,
            wake,
            period,
            bytes: None,
            next,
            chunk_from: 0,
            is_told: false,
            has_failed: false,
        })
    }

    /// Does what it is asked until it is asked to stop, or nobody is left who could ask.
    fn run(mut self, commands: &Receiver<Command>) {
        loop {
            self.wait();
            self.wake.clear();
            loop {
                match commands.try_recv() {
                    Ok(Command::Stop(reply)) => {
                        // Who asked waits for it.
                        let _ = reply.send(self.stop());
                        return;
                    }
                    Ok(command) => self.obey(command),
                    Err(mpsc::TryRecvError::Empty) => break,
                    Err(mpsc::TryRecvError::Disconnected) => {
                        let _ = self.stop();
                        return;
                    }
                }
            }
            self.tell_done();
            self.tell_due();
        }
    }

    fn wait(&mut self) {
        /// How often the size of a chunk is looked at.
        const LOOK: Duration = Duration::from_secs(1);
        let now = Instant::now();
        let until_next = self.next.map(|next| next.saturating_duration_since(now));
        let timeout = until_next.into_iter().chain(self.bytes.map(|_| LOOK)).min();
        let timeout = timeout.map(|time| Timespec {
            tv_sec: time.as_secs().cast_signed(),
            tv_nsec: time.subsec_nanos().into(),
        });
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![self.wake.as_fd(), self.finisher.is_done()];
        if !self.has_failed {
            descriptors.push(self.session.failed());
        }
        let mut fds: Vec<PollFd<'_>> =
            descriptors.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // After a signal it is as if nothing had come.
        let _ = poll(&mut fds, timeout.as_ref());
        let failed = fds.get(2).is_some_and(|fd| !fd.revents().is_empty());
        drop(fds);
        if failed {
            self.has_failed = true;
            self.listener
                .has_failed("what is recorded cannot be stored any more; stop it to keep what is there");
        }
    }

    fn obey(&mut self, command: Command) {
        // Who asked waits for each answer.
        match command {
            Command::Add(buffer, rules, reply) => {
                let _ = reply.send(self.add(&buffer, &rules));
            }
            Command::Remove(buffer, rule, reply) => {
                let _ = reply.send(self.remove(&buffer, &rule));
            }
            Command::Rotate(reply) => {
                let _ = reply.send(self.rotate());
            }
            Command::Snapshot(reply) => {
                let _ = reply.send(self.snapshot());
            }
            Command::Schedule(period, bytes) => {
                self.period = period;
                self.bytes = bytes;
                self.next = period.map(|period| Instant::now() + period);
                self.is_told = false;
            }
            Command::Losses(reply) => {
                let _ = reply.send(Ok(self.losses()));
            }
            // It is the caller's.
            Command::Stop(reply) => {
                let _ = reply.send(Ok(Vec::new()));
            }
        }
    }

    fn add(&mut self, buffer: &str, rules: &[RuleSpec]) -> Result<(), ControlError> {
        let session = &self.session;
        let planned = self.owner.as_root(|| Addition::plan(session, buffer, rules)).map_err(of_system)?;
        let refused = |why: String| ControlError::new(Code::EnableKernelEvent, why);
        let (addition, _) = planned.map_err(|error| refused(error.to_string()))?;
        self.session.add(addition).map_err(|error| refused(error.to_string()))?;
        Ok(())
    }

    fn remove(&mut self, buffer: &str, rule: &RuleSpec) -> Result<(), ControlError> {
        let channels = &self.session.options().channels;
        let recorded = channels.iter().filter(|channel| channel.name == buffer);
        let recorded = recorded.flat_map(|channel| &channel.events);
        let recorded = recorded.filter(|event| event.active.until.is_none());
        let is_meant = |name: &str| match &rule.what {
            What::Events(selector) => name == selector.as_str(),
            // `[NAME=]PLACE`: the event has the name in a system of its own.
            other => {
                let text = other.text();
                text.split_once('=').is_some_and(|(wanted, _)| name.rsplit(':').next() == Some(wanted))
            }
        };
        let names: Vec<String> =
            recorded.map(|event| event.name.clone()).filter(|name| is_meant(name)).collect();
        for name in names {
            let removed = self.session.remove(buffer, &name);
            removed.map_err(|error| ControlError::new(Code::NoEvent, error.to_string()))?;
        }
        Ok(())
    }

    fn rotate(&mut self) -> Result<(), ControlError> {
        let failed = |error: String| ControlError::new(Code::RotationFailed, error);
        if self.finisher.is_behind() {
            return Err(Code::RotationPending.into());
        }
        let recorded = self.session.rotate().map_err(|error| failed(error.to_string()))?;
        self.finisher.add(recorded);
        self.next = self.period.map(|period| Instant::now() + period);
        self.chunk_from = self.session.progress().bytes.unwrap_or_default();
        self.is_told = false;
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Stored, ControlError> {
        let failed = |error: String| ControlError::new(Code::SnapshotFailed, error);
        let recorded = self.session.snapshot().map_err(|error| failed(error.to_string()))?;
        stored(recorded).map_err(failed)
    }

    fn losses(&self) -> Losses {
        let ledger = self.session.ledger();
        let channels = 0..self.session.options().channels.len() as u32;
        let of = |channel: u32| {
            let streams = ledger.streams.iter().filter(move |(stream, _)| stream.channel == channel);
            streams.flat_map(|(_, counts)| counts.lost).sum()
        };
        channels.map(of).collect()
    }

    fn tell_done(&self) {
        while let Some(done) = self.finisher.next_done() {
            self.listener.has_chunk(of_done(done));
        }
    }

    fn tell_due(&mut self) {
        let is_old = self.next.is_some_and(|next| Instant::now() >= next);
        let bytes = self.session.progress().bytes.unwrap_or_default().saturating_sub(self.chunk_from);
        let is_large = self.bytes.is_some_and(|limit| bytes >= limit);
        if is_old {
            // If this comes to nothing, the next one comes as much later.
            self.next = self.period.map(|period| Instant::now() + period);
        }
        if is_old || is_large && !self.is_told {
            self.is_told = true;
            if self.listener.is_due()
                && let Err(error) = self.rotate()
            {
                self.listener.has_failed(&error.message);
            }
        }
    }

    fn stop(self) -> Result<Vec<Stored>, ControlError> {
        let keeps = self.session.options().channels.iter().all(|channel| channel.overwrite);
        let recorded = self.session.stop();
        for done in self.finisher.finish() {
            self.listener.has_chunk(of_done(done));
        }
        let mut files = Vec::new();
        for recorded in recorded {
            if keeps {
                // Of a session of snapshots nothing else is stored.
                let _ = recorded.spool.remove();
                continue;
            }
            files.push(stored(recorded).map_err(|why| ControlError::new(Code::CreateFile, why))?);
        }
        Ok(files)
    }
}

fn of_done(done: Done) -> Result<Stored, String> {
    match done {
        Done::File(finished) => Ok(Stored {
            path: finished.path,
            events: finished.stats.stored_events(),
            missing: finished.stats.missing_total(),
        }),
        Done::Failed { error, spool } => Err(kept(&error.to_string(), &spool)),
    }
}

fn stored(recorded: Recorded) -> Result<Stored, String> {
    let spool = recorded.spool.dir().to_owned();
    let finished = finish(recorded).map_err(|error| kept(&error.to_string(), &spool))?;
    Ok(Stored {
        path: finished.path,
        events: finished.stats.stored_events(),
        missing: finished.stats.missing_total(),
    })
}

fn kept(error: &str, spool: &Path) -> String {
    let spool = spool.display();
    format!("{error}; what was recorded is in {spool}, and `tracer-agent recover {spool}` makes a file of it")
}
