//! What the thread of a session does.

mod handover;
mod less;

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd},
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, Receiver},
    },
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub(crate) use self::handover::HandedRunning;
use self::less::Less;
use super::recorder::{
    Added, Command, Halt, Listener, Markers, NextRecording, Sample, SnapshotTo, Stored, Whose, of_system,
};
use super::tally::{self, Moment, Tallies};
use crate::descriptors::{Held, OfUser};
use crate::relay::Forwarder;
use crate::user::Owner;
use api::{Code, ControlError};
use capture::{
    AddError, CaptureError, CaptureOptions, ChannelOptions, Destination, Done, Finisher, Notice, Recorded,
    Session, SnapshotError, SnapshotLimits, StateError, Tracking, finish,
};
use plan::Plan;
use spec::{KEEP_BYTES_MIN, RuleSpec, What};
use stdx::output::{Directory, Output};
use stdx::{reason, utc};

/// How many names are tried for a snapshot, of which other files may have the first.
const NAMES_MAX: u64 = 1000;

type Answer<T = ()> = Result<T, ControlError>;

/// A session that was started.
pub(super) struct Running {
    /// Its recording: one that records or pauses. After a stop that has stored everything there is none.
    session: Option<Session>,
    /// What that may have open.
    held: Option<Held>,
    /// What the owner's recordings may have open.
    descriptors: OfUser,
    /// What makes files of trace chunks.
    finisher: Finisher,
    /// The number that the next recording begins with.
    next_chunk: u64,
    /// The numbers of the chunks that the finisher has, in the order in which it makes their files.
    in_work: std::collections::VecDeque<u64>,
    /// What recordings before this one have counted.
    counted_before: Tallies,
    snapshots: u64,
    /// Whether the newest events are kept until a snapshot is taken. Nothing else is stored then.
    keeps: bool,
    owner: Owner,
    listener: Box<dyn Listener>,
    wake: Arc<Notice>,
    schedule: Schedule,
    /// Bytes that recordings before this one have stored.
    stored_before: u64,
    /// When the listener is told next how much is stored.
    next_sample: Option<Instant>,
    reported: Reported,
    /// Whether another daemon is about to go on: what is due is due there.
    is_leaving: bool,
    less: Less,
    /// What sends the trace on, if somebody does.
    relay: Option<Arc<Forwarder>>,
}

/// What the listener knows of the recording's faults.
#[derive(Debug, Default)]
struct Reported {
    /// Nothing more can be stored.
    failure: bool,
    /// Its directory was removed.
    removal: bool,
}

/// A recording that can begin.
struct Prepared {
    session: Session,
    /// What it may have open.
    held: Held,
    /// What is to be known of it.
    notes: Vec<String>,
}

/// When rotations are due.
#[derive(Debug, Default)]
struct Schedule {
    period: Option<Duration>,
    bytes: Option<u64>,
    /// When the next one is, for its age.
    next: Option<Instant>,
    /// The bytes that were stored when the current chunk began.
    chunk_from: u64,
    /// Whether the listener was told that it is large.
    is_told: bool,
}

impl Schedule {
    fn begin_chunk(&mut self, bytes: u64) {
        self.next = self.period.map(|period| Instant::now() + period);
        self.chunk_from = bytes;
        self.is_told = false;
    }

    /// Asks again a moment later.
    fn put_off(&mut self) {
        const MOMENT: Duration = Duration::from_secs(1);
        self.next = self.period.map(|period| Instant::now() + period.max(MOMENT));
    }

    /// Whether there is to be a rotation. It says so once for each chunk that is large, and once in each
    /// period.
    fn is_due(&mut self, bytes: u64) -> bool {
        let is_old = self.next.is_some_and(|next| Instant::now() >= next);
        let is_large = self.bytes.is_some_and(|limit| bytes.saturating_sub(self.chunk_from) >= limit);
        if is_old {
            self.next = self.period.map(|period| Instant::now() + period);
        }
        let is_due = is_old || is_large && !self.is_told;
        self.is_told |= is_due;
        is_due
    }
}

impl Running {
    /// Takes the rights of the owner, for this thread and those that it starts.
    pub(super) fn new(
        (owner, descriptors): (Owner, OfUser),
        (dir, keeps): (&Path, bool),
        (listener, wake): (Box<dyn Listener>, Arc<Notice>),
        relay: Option<Arc<Forwarder>>,
    ) -> Answer<Self> {
        owner.take_rights().map_err(|error| {
            ControlError::new(
                Code::Permission,
                format!("cannot take the rights of user {}: {error}", owner.uid),
            )
        })?;
        Directory::create_all(dir).map_err(|error| {
            let why = format!("cannot create {}: {error}", dir.display());
            ControlError::new(of_disk(&error, Code::CreateDirectory), why)
        })?;
        let finisher = Finisher::start(None).map_err(of_system)?;
        Ok(Self {
            session: None,
            held: None,
            descriptors,
            finisher,
            next_chunk: 1,
            in_work: std::collections::VecDeque::new(),
            counted_before: Tallies::new(),
            snapshots: 0,
            keeps,
            owner,
            listener,
            wake,
            schedule: Schedule::default(),
            stored_before: 0,
            next_sample: None,
            reported: Reported::default(),
            is_leaving: false,
            less: Less::default(),
            relay,
        })
    }

    /// Does what it is asked until it is asked to end, or nobody is left who could ask.
    pub(super) fn run(mut self, commands: &Receiver<Command>) {
        loop {
            self.wait();
            self.wake.clear();
            loop {
                match commands.try_recv() {
                    Ok(Command::HandOver(reply)) => {
                        self.go_on_or_tell();
                        // As below.
                        let _ = reply.send(self.hand_over());
                        return;
                    }
                    Ok(Command::End(reply)) => {
                        // Who asked waits for it.
                        let _ = reply.send(self.end());
                        return;
                    }
                    Ok(command) => self.obey(command),
                    Err(mpsc::TryRecvError::Empty) => break,
                    Err(mpsc::TryRecvError::Disconnected) => {
                        let _ = self.end();
                        return;
                    }
                }
            }
            // The listener knows.
            let _ = self.tell_done();
            self.tell_due();
            self.tell_removed();
            self.tell_sample();
        }
    }

    fn wait(&mut self) {
        /// How often the size of a chunk is looked at, and whether its directory is there.
        const LOOK: Duration = Duration::from_secs(1);
        let recording = self.session.as_ref().filter(|session| !session.is_paused());
        let mut timeout = None;
        if recording.is_some() {
            let now = Instant::now();
            let until_next = self.schedule.next.map(|next| next.saturating_duration_since(now));
            let until_sample = self.next_sample.map(|next| next.saturating_duration_since(now));
            let looks = Some(LOOK).filter(|_| self.schedule.bytes.is_some() || !self.reported.removal);
            timeout = until_next.into_iter().chain(looks).chain(until_sample).min();
        }
        let timeout = timeout.map(|time| Timespec {
            tv_sec: time.as_secs().cast_signed(),
            tv_nsec: time.subsec_nanos().into(),
        });
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![self.wake.as_fd(), self.finisher.is_done()];
        if !self.reported.failure {
            descriptors.extend(self.session.as_ref().map(Session::failed));
        }
        let mut fds: Vec<PollFd<'_>> =
            descriptors.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // After a signal it is as if nothing had come.
        let _ = poll(&mut fds, timeout.as_ref());
        let failed = fds.get(2).is_some_and(|fd| !fd.revents().is_empty());
        drop(fds);
        if failed {
            self.reported.failure = true;
            let why = self.session.as_ref().and_then(Session::why_failed);
            self.listener.has_failed(&format!(
                "what is recorded cannot be stored any more: {}; stop it to keep what is there",
                why.as_deref().unwrap_or("a reader has ended")
            ));
        }
    }

    fn obey(&mut self, command: Command) {
        if !command.only_looks() {
            self.go_on_or_tell();
        }
        // Who asked waits for each answer.
        match command {
            Command::Start(wanted, reply) => drop(reply.send(self.start(&wanted))),
            Command::Resume(reply) => drop(reply.send(self.resume())),
            Command::Halt(how, reply) => drop(reply.send(self.halt(how))),
            Command::Clear(files, reply) => drop(reply.send(self.clear(&files))),
            Command::Replace(wanted, reply) => drop(reply.send(self.replace(&wanted))),
            Command::Add(buffer, rules, reply) => drop(reply.send(self.add(&buffer, &rules))),
            Command::Remove(buffer, rule, reply) => drop(reply.send(self.remove(&buffer, &rule))),
            Command::Markers(reply) => drop(reply.send(Ok(self.markers()))),
            Command::Track(tracking, reply) => drop(reply.send(self.track(tracking))),
            Command::Rotate(reply) => drop(reply.send(self.rotate())),
            Command::Snapshot(to, reply) => drop(reply.send(self.snapshot(&to))),
            Command::Tallies(reply) => drop(reply.send(Ok(self.tallies()))),
            Command::Moment(reply) => drop(reply.send(Ok(self.moment()))),
            Command::FinishFiles(reply) => {
                self.is_leaving = true;
                // The listener knows what could not be made.
                let _ = self.wait_for_files();
                drop(reply.send(Ok(())));
            }
            Command::Suspend(reply) => drop(reply.send(self.suspend())),
            Command::GoOn(reply) => drop(reply.send(self.end_suspension())),
            Command::Hurry(hurries) => self.hurry(hurries),
            Command::RegenerateState(reply) => drop(reply.send(self.regenerate_state())),
            Command::RegenerateMetadata(reply) => drop(reply.send(self.regenerate_metadata())),
            Command::Schedule(period, bytes) => {
                self.schedule.period = period;
                self.schedule.bytes = bytes;
                self.begin_chunk();
            }
            // They are the caller's.
            Command::HandOver(reply) => drop(reply.send(Err(Code::Daemon.into()))),
            Command::End(reply) => drop(reply.send(Ok(()))),
        }
    }

    fn start(&mut self, wanted: &NextRecording) -> Answer {
        if self.session.is_some() {
            self.halt(Halt::Store)?;
        }
        let mut next = self.create(wanted)?;
        next.session.start();
        self.take(next);
        Ok(())
    }

    /// Lets a trace be written of what is recorded from now on, if it becomes one.
    fn follow(&self, session: &Session) {
        // Snapshots are traces of their own.
        if self.keeps {
            return;
        }
        if let Some(recording) = session.publication() {
            self.listener.has_trace(recording);
        }
        if let Err(error) = self.finisher.follow(session) {
            self.listener.has_failed(&format!("the trace is written when its chunk is closed: {error}"));
        }
    }

    /// Prepares a recording, whose chunks are counted on from the ones before.
    fn create(&self, NextRecording { spec, session }: &NextRecording) -> Answer<Prepared> {
        // Planning reads what only root may, and no path of the user: what the session's files are called is
        // looked up with the user's rights.
        let mut spec = spec.clone();
        let mut path = std::mem::replace(&mut spec.file.path, PathBuf::from("/session"));
        let planned = self.owner.as_root(|| Plan::make(&spec)).map_err(of_system)?;
        let refused = |why: String| ControlError::new(Code::StartKernel, why);
        let Plan { mut options, notes, followed: _, edges: _ } =
            planned.map_err(|error| refused(format!("the session cannot be recorded here: {error}")))?;
        options.destination = match options.destination {
            Destination::Directory(_) => Destination::Directory(path.clone()),
            Destination::File(_) => {
                path = numbered(&path, self.next_chunk);
                let output = Output::at(&path);
                Destination::File(
                    output.map_err(|error| ControlError::new(Code::CreateFile, error.to_string()))?,
                )
            }
        };
        options.manifest.output = path;
        options.first_archive = self.next_chunk;
        if let Some(trace) = &mut options.trace {
            trace.session = Some(session.clone());
        }
        self.bound_spool(&mut options);
        let held = self.descriptors.take(options.descriptors())?;
        let session = Session::create(options, &mut |_, _| ()).map_err(|error| of_capture(&error))?;
        Ok(Prepared { session, held, notes })
    }

    /// Limits what is stored here of what is sent to somebody who may be away: the newest data stay. The
    /// sizes and counts of files are kept to there: nothing is overwritten before it is sent.
    fn bound_spool(&self, options: &mut CaptureOptions) {
        let Some(relay) = &self.relay else { return };
        if let Some(trace) = &mut options.trace {
            trace.shapes = trace.shapes.limited_elsewhere();
        }
        let cpus = options.cpus.len().max(1) as u64;
        let stored = || options.channels.iter().filter(|channel| !channel.overwrite);
        let sets = |channel: &ChannelOptions| channel.sets.as_ref().map_or(1, |sets| sets.count.into());
        let streams = stored().map(sets).sum::<u64>().saturating_mul(cpus);
        let cap = (relay.spool / streams.max(1)).max(KEEP_BYTES_MIN);
        for channel in options.channels.iter_mut().filter(|channel| !channel.overwrite) {
            channel.cap = Some(cap);
        }
    }

    /// Goes on with a recording that has begun.
    fn take(&mut self, recording: Prepared) {
        let Prepared { session, held, notes } = recording;
        self.listener.has_notes(notes, Whose::Recording);
        if let (Some(relay), Some(publication)) = (&self.relay, session.publication()) {
            // Before anything is written.
            relay.follow(publication);
        }
        self.follow(&session);
        self.next_chunk = session.archive_number() + 1;
        session.hurry(self.less.hurries);
        self.session = Some(session);
        self.held = Some(held);
        self.reported = Reported::default();
        self.begin_chunk();
    }

    fn resume(&mut self) -> Answer {
        let session = self.session.as_mut().ok_or_else(not_recording)?;
        session.resume().map_err(|error| ControlError::new(Code::StartKernel, error.to_string()))?;
        // Time counts from here on.
        self.schedule.next = self.schedule.period.map(|period| Instant::now() + period);
        Ok(())
    }

    /// Gives whether there is something left that can go on. After an error there is not.
    fn halt(&mut self, how: Halt) -> Answer<bool> {
        let Some(mut session) = self.session.take() else { return Ok(false) };
        if !session.is_paused()
            && let Err(error) = session.pause()
        {
            // A reader has failed, for example: the end says what there is.
            self.listener.has_failed(&error.to_string());
        }
        if how == Halt::Pause && session.is_paused() {
            self.session = Some(session);
            self.finisher.flush();
            // The listener knows.
            let _ = self.tell_done();
            return Ok(true);
        }
        self.counted_before = tally::with(&self.counted_before, &session);
        self.note_stored(&session);
        let _held = self.held.take();
        for recorded in session.stop() {
            if self.keeps {
                // What is in the rings is all that there was. A spool that stays has nothing in it.
                let _ = recorded.spool.remove();
            } else {
                self.make_file(recorded);
            }
        }
        self.wait_for_files().map_err(|why| ControlError::new(Code::CreateFile, why))?;
        Ok(false)
    }

    fn clear(&mut self, files: &[PathBuf]) -> Answer {
        let failed = |what: &Path, error: String| {
            ControlError::new(Code::ClearFailed, format!("cannot remove {}: {error}", what.display()))
        };
        let mut files = files.to_vec();
        let mut cleared = Ok(());
        if let Some(relay) = &self.relay {
            // What a stop has closed is the last chunk there.
            let from = self.session.as_ref().map_or(self.next_chunk - 1, Session::archive_number);
            cleared = relay.clear(from);
            files.clear();
        }
        if let Some(session) = self.session.take() {
            // What was lost is what there was no room for, whether it is kept or not.
            self.counted_before = tally::with(&self.counted_before, &session);
            self.note_stored(&session);
            self.next_chunk = session.archive_number();
            let is_trace = session.options().trace.is_some();
            let _held = self.held.take();
            for recorded in session.stop() {
                if is_trace && !self.keeps {
                    // Much of it is in the trace.
                    self.make_file(recorded);
                } else {
                    let dir = recorded.spool.dir().to_owned();
                    recorded.spool.remove().map_err(|error| failed(&dir, error.to_string()))?;
                }
            }
            files.extend(self.wait_for_traces());
        }
        for file in &files {
            match remove(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed(file, error.to_string()));
                }
                _ => {}
            }
        }
        cleared
    }

    /// Waits for what is being made, and tells of all but the chunk that the next recording begins with:
    /// gives where that is.
    fn wait_for_traces(&mut self) -> Vec<PathBuf> {
        let mut cleared = Vec::new();
        let next = self.next_chunk;
        while self.wait_for_done() {
            while let Some((chunk, result)) = self.next_done() {
                match (chunk, result) {
                    (Some(chunk), Ok(stored)) if chunk >= next => cleared.push(stored.path),
                    (chunk, result) => self.tell(chunk, result),
                }
            }
        }
        cleared
    }

    fn replace(&mut self, wanted: &NextRecording) -> Answer {
        if self.finisher.is_behind() {
            return Err(Code::RotationPending.into());
        }
        let mut next = self.create(wanted)?;
        self.listener.trace_follows(true);
        let Some(mut before) = self.session.take() else {
            next.session.start();
            self.take(next);
            return Ok(());
        };
        if let Err(error) = next.session.start_after(&mut before) {
            self.session = Some(before);
            self.listener.trace_follows(false);
            // The error at hand says more than one about cleaning up.
            let _ = next.session.discard();
            return Err(ControlError::new(Code::Daemon, error.to_string()));
        }
        self.counted_before = tally::with(&self.counted_before, &before);
        self.note_stored(&before);
        // Until all that is left of it is stored.
        let _held = self.held.take();
        self.take(next);
        let chunk = self.next_chunk.saturating_sub(2);
        for recorded in before.stop() {
            if self.keeps {
                let _ = recorded.spool.remove();
            } else {
                self.archive(chunk);
                self.make_file(recorded);
                self.listener.has_rotated(chunk);
            }
        }
        Ok(())
    }

    fn add(&mut self, buffer: &str, rules: &[RuleSpec]) -> Answer<Added> {
        let session = self.session.as_mut().ok_or_else(not_recording)?;
        let planned = self.owner.as_root(|| plan::addition(session, buffer, rules)).map_err(of_system)?;
        let refused = |why: String| ControlError::new(Code::EnableKernelEvent, why);
        let (addition, notes) = planned.map_err(|error| refused(error.to_string()))?;
        let more = self.descriptors.take(addition.descriptors())?;
        match session.add(addition) {
            Ok(_) => {
                if let Some(held) = &mut self.held {
                    held.join(more);
                }
                self.listener.has_notes(notes, Whose::Addition);
                Ok(Added::Done)
            }
            Err(AddError::NoRoom { .. }) => Ok(Added::NoRoom),
            Err(error) => Err(refused(error.to_string())),
        }
    }

    fn remove(&mut self, buffer: &str, rule: &What) -> Answer {
        let session = self.session.as_mut().ok_or_else(not_recording)?;
        let removed = session.remove_rule(buffer, rule);
        // A rule may have no events: those of a program that is not there any more, for example.
        removed.map(drop).map_err(|error| ControlError::new(Code::NoEvent, error.to_string()))
    }

    fn markers(&self) -> Markers {
        let channels = self.session.iter().flat_map(|session| &session.options().channels);
        let of = |channel: &ChannelOptions| {
            let current = channel.events.iter().filter(|event| event.active.until.is_none());
            let rules = current.filter_map(|event| event.rule.clone());
            (channel.name.clone(), rules.filter(|rule| matches!(rule, What::Usdt(_))).collect())
        };
        channels.map(of).collect()
    }

    fn track(&mut self, tracking: Tracking) -> Answer {
        let session = self.session.as_mut().ok_or_else(not_recording)?;
        session.track(tracking).map_err(|error| ControlError::new(Code::TrackerPolicy, error.to_string()))
    }

    fn rotate(&mut self) -> Answer {
        if self.finisher.is_behind() {
            return Err(Code::RotationPending.into());
        }
        let session = self.session.as_mut().ok_or_else(not_recording)?;
        let chunk = session.archive_number();
        let recorded = session
            .rotate()
            .map_err(|error| ControlError::new(of_disk(&error, Code::RotationFailed), error.to_string()))?;
        self.next_chunk = session.archive_number() + 1;
        self.begin_chunk();
        self.listener.has_rotated(chunk);
        self.archive(chunk);
        self.in_work.push_back(chunk);
        self.finisher.add(recorded);
        Ok(())
    }

    /// A chunk is archived by who gets it, too.
    fn archive(&self, chunk: u64) {
        if let Some(relay) = &self.relay {
            relay.archive(chunk);
        }
    }

    fn snapshot(&mut self, to: &SnapshotTo) -> Answer<Stored> {
        let failed = |error: String| ControlError::new(Code::SnapshotFailed, error);
        let session = self.session.as_mut().ok_or_else(|| ControlError::from(Code::SnapshotEmpty))?;
        Directory::create_all(&to.dir).map_err(|error| {
            ControlError::new(Code::CreateDirectory, format!("cannot create {}: {error}", to.dir.display()))
        })?;
        let time = utc::date_and_time(utc::seconds_now());
        let at = |number: u64| {
            Output::at(&to.dir.join(format!("{}-{time}-{number}.dat", to.name)))
                .map_err(|error| ControlError::new(Code::CreateFile, error.to_string()))
        };
        let mut output = at(self.snapshots)?;
        for number in self.snapshots..self.snapshots.saturating_add(NAMES_MAX) {
            output = at(number)?;
            if !output.is_taken() {
                break;
            }
        }
        let limits = SnapshotLimits { max_bytes: to.max_size, max_age: to.max_age };
        let recorded = session.snapshot_to(output, limits).map_err(|error| match error {
            SnapshotError::TooSmall { .. } => ControlError::new(Code::SnapshotSize, error.to_string()),
            error => ControlError::new(of_disk(&error, Code::SnapshotFailed), error.to_string()),
        })?;
        self.snapshots += 1;
        stored(recorded).map_err(failed)
    }

    fn regenerate_state(&mut self) -> Answer {
        let session = self.session.as_mut().ok_or_else(not_recording)?;
        session.regenerate_state().map_err(|error| match error {
            StateError::NotRecording => not_recording(),
            error => ControlError::new(Code::StateDump, error.to_string()),
        })
    }

    fn regenerate_metadata(&mut self) -> Answer {
        let session = self.session.as_mut().ok_or_else(not_recording)?;
        session.measure_clock().map_err(|error| ControlError::new(Code::CreateFile, error.to_string()))?;
        if self.finisher.describe() {
            return Ok(());
        }
        // The listener knows why.
        let _ = self.tell_done();
        Err(ControlError::new(Code::CreateFile, "the metadata cannot be written; the daemon's log says why"))
    }

    /// What was counted since the session was created.
    fn tallies(&self) -> Tallies {
        let before = || self.counted_before.clone();
        self.session.as_ref().map_or_else(before, |session| tally::with(&self.counted_before, session))
    }

    fn moment(&self) -> Moment {
        let bytes = self.session.as_ref().and_then(|session| session.progress().bytes).unwrap_or_default();
        Moment {
            tallies: self.tallies(),
            rings: self.session.as_ref().map(tally::rings).unwrap_or_default(),
            stored: (!self.keeps).then(|| self.stored_before + bytes),
        }
    }

    /// Notes what a recording has stored that ends.
    fn note_stored(&mut self, session: &Session) {
        self.stored_before += session.progress().bytes.unwrap_or_default();
    }

    fn begin_chunk(&mut self) {
        let bytes = self.session.as_ref().and_then(|session| session.progress().bytes);
        self.schedule.begin_chunk(bytes.unwrap_or_default());
    }

    /// Makes a file of the current chunk.
    fn make_file(&mut self, recorded: Recorded) {
        self.in_work.push_back(recorded.manifest.archive.map_or(0, |name| name.number));
        self.finisher.add(recorded);
    }

    /// Waits until the finisher has nothing more to do. Gives why a file could not be made.
    fn wait_for_files(&mut self) -> Result<(), String> {
        // What came before is not what is waited for.
        let _ = self.tell_done();
        let mut told = Ok(());
        while self.wait_for_done() {
            told = told.and(self.tell_done());
        }
        told
    }

    /// Waits until something more is made. Gives whether something is to come.
    fn wait_for_done(&mut self) -> bool {
        /// How often it is asked whether the thread that makes it is there.
        const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
        if self.in_work.is_empty() {
            return false;
        }
        let mut fds = [PollFd::from_borrowed_fd(self.finisher.is_done(), PollFlags::IN)];
        // After a signal it is as if something had come.
        if poll(&mut fds, Some(&LOOK)) == Ok(0) && self.finisher.has_ended() {
            for chunk in std::mem::take(&mut self.in_work) {
                let why = "the thread that makes files has ended; what was recorded is in its spool";
                self.listener.has_chunk(chunk, Err(why.to_owned()));
            }
        }
        true
    }

    /// What is made: of a chunk, or of the trace that is still written to.
    fn next_done(&mut self) -> Option<(Option<u64>, Result<Stored, String>)> {
        Some(match self.finisher.next_done()? {
            Done::TraceEnded { error, spool } => (None, Err(kept(&error.to_string(), &spool))),
            done => {
                // Of what is sent, what was dropped is told here only.
                if let (Done::File(finished), Some(_)) = (&done, &self.relay) {
                    self.listener.has_notes(finished.notes.clone(), Whose::Addition);
                }
                (self.in_work.pop_front(), of_done(done))
            }
        })
    }

    fn tell(&self, chunk: Option<u64>, result: Result<Stored, String>) {
        match (chunk, result) {
            (Some(chunk), result) => match &self.relay {
                // It tells of it when it is where it goes.
                Some(relay) => relay.made(chunk, result),
                None => self.listener.has_chunk(chunk, result),
            },
            (None, Err(why)) => self.listener.has_failed(&why),
            (None, Ok(_)) => {}
        }
    }

    /// Tells of the files that are made. Gives why one of them could not be.
    fn tell_done(&mut self) -> Result<(), String> {
        let mut told = Ok(());
        while let Some((chunk, result)) = self.next_done() {
            told = told.and(result.as_ref().map(drop).map_err(Clone::clone));
            self.tell(chunk, result);
        }
        told
    }

    fn tell_due(&mut self) {
        let Some(session) = self.session.as_ref().filter(|session| !session.is_paused()) else { return };
        let bytes = session.progress().bytes.unwrap_or_default();
        if !self.is_leaving
            && self.schedule.is_due(bytes)
            && self.listener.is_due()
            && let Err(error) = self.rotate()
        {
            // Disks that are not fast enough for so many files get time, and the log does not overflow.
            self.schedule.put_off();
            if error.code != Code::RotationPending {
                self.listener.has_failed(&error.message);
            }
        }
    }

    /// Tells once that the directory is gone that is recorded to.
    fn tell_removed(&mut self) {
        let recording =
            self.session.as_ref().filter(|session| !self.reported.removal && !session.is_paused());
        let Some(session) = recording.filter(|session| session.is_removed()) else { return };
        self.reported.removal = true;
        self.listener.has_failed(&format!(
            "{} was removed, and what is recorded is lost until the session is stopped and started again",
            session.spool_dir().display()
        ));
    }

    /// Tells how much is stored, and in the rings, if that is due.
    fn tell_sample(&mut self) {
        let Some(session) = self.session.as_ref().filter(|session| !session.is_paused()) else { return };
        let Some(period) = self.listener.sample_period() else {
            self.next_sample = None;
            return;
        };
        let now = Instant::now();
        if self.next_sample.is_some_and(|next| now < next) {
            return;
        }
        let stored = session.progress().bytes.map(|bytes| self.stored_before + bytes);
        let held = session.held().map(|(name, held, room)| (name.to_owned(), (held, room))).collect();
        self.listener.has_sample(&Sample { stored, held });
        self.next_sample = Some(now + period);
    }

    fn end(mut self) -> Answer {
        let ended = self.halt(Halt::Store).map(drop);
        let Self { finisher, listener, mut in_work, relay, .. } = self;
        for done in finisher.finish() {
            if matches!(done, Done::TraceEnded { .. }) {
                continue;
            }
            let (chunk, result) = (in_work.pop_front().unwrap_or_default(), of_done(done));
            match &relay {
                Some(relay) => relay.made(chunk, result),
                None => listener.has_chunk(chunk, result),
            }
        }
        ended
    }
}

/// Removes a file, or a trace: of one that others are in, only what is its own.
fn remove(path: &Path) -> io::Result<()> {
    if !path.symlink_metadata()?.is_dir() {
        return std::fs::remove_file(path);
    }
    for domain in ["kernel", "ust"] {
        match std::fs::remove_dir_all(path.join(domain)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    match std::fs::remove_dir(path) {
        // Archived chunks are beside it.
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        removed => removed,
    }
}

/// Where the spool of a recording is, by its number: the next one begins before this one has ended.
fn numbered(path: &Path, number: u64) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number}.dat"));
    path.with_file_name(name)
}

/// Why a recording cannot begin.
fn of_capture(error: &CaptureError) -> ControlError {
    let code = match error {
        CaptureError::Memory { .. } | CaptureError::MapMemory { .. } | CaptureError::OpenFiles { .. } => {
            Code::NoMemory
        }
        _ if reason::io_kind(error) == Some(io::ErrorKind::OutOfMemory) => Code::NoMemory,
        _ => of_disk(error, Code::StartKernel),
    };
    ControlError::new(code, error.to_string())
}

/// The code of an error, unless it is the full disk's.
fn of_disk(error: &(dyn std::error::Error + 'static), code: Code) -> Code {
    if reason::is_disk_full(error) { Code::DiskFull } else { code }
}

fn not_recording() -> ControlError {
    Code::NotStarted.into()
}

fn of_done(done: Done) -> Result<Stored, String> {
    match done {
        Done::File(finished) => Ok(Stored { path: finished.path, events: finished.stats.stored_events() }),
        Done::Failed { error, spool } | Done::TraceEnded { error, spool } => {
            Err(kept(&error.to_string(), &spool))
        }
        Done::KeptInSpool { spool } => Err(kept("the trace has ended before", &spool)),
    }
}

fn stored(recorded: Recorded) -> Result<Stored, String> {
    let spool = recorded.spool.dir().to_owned();
    let finished = finish(recorded).map_err(|error| kept(&error.to_string(), &spool))?;
    Ok(Stored { path: finished.path, events: finished.stats.stored_events() })
}

fn kept(error: &str, spool: &Path) -> String {
    if matches!(spool.try_exists(), Ok(false)) {
        return format!("{error}; what was recorded was removed with {}", spool.display());
    }
    let spool = spool.display();
    format!("{error}; what was recorded is in {spool}, and `tracer-agent recover {spool}` makes a file of it")
}
