//! Making the files of closed archives while the next ones are recorded, and traces of what is recorded.

use std::{
    collections::VecDeque,
    os::fd::{AsFd as _, BorrowedFd},
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::JoinHandle,
    time::Duration,
};

use rustix::{
    process::{Pid, getpriority_process, setpriority_process},
    thread::gettid,
};

use super::{
    FinishError, Finished, Recorded, Session,
    ctf::{self, CtfOutput, LiveTrace},
    finish::finish_file,
    follow::{FollowError, Follower},
    notice::Notice,
    session::Part,
};
use stdx::output::{Identity, Output};

/// How many archives may wait. Each has descriptors and the formats of all its events.
const WAITING_MAX: usize = 8;
/// So many waiting archives are no longer those that a busy moment leaves.
const WAITING_LONG: usize = WAITING_MAX / 2;
/// How far the thread steps back behind others: what is recorded needs the processor first.
const NICE: i32 = 10;

/// What has become of an archive.
#[derive(Debug)]
pub enum Done {
    /// It is a file, or in the trace.
    File(Box<Finished>),
    /// It is still in its spool.
    Failed {
        /// Why.
        error: FinishError,
        /// Where that is.
        spool: PathBuf,
    },
    /// The same of an archive that is still recorded to: no more of it is written to the trace.
    TraceEnded {
        /// Why.
        error: FinishError,
        /// Where it is.
        spool: PathBuf,
    },
    /// Of an archive that this was told of, when it is closed.
    KeptInSpool {
        /// Where it is.
        spool: PathBuf,
    },
}

/// What a [`Finisher`] is given.
enum Job {
    Make(Box<Recorded>),
    Follow(CtfOutput, Box<Follower>),
    Flush(Sender<bool>),
    Describe(Sender<bool>),
}

/// Makes of archives and snapshots what they become.
#[derive(Debug, Default)]
pub(super) struct Maker {
    files: Files,
    /// The traces that are written meanwhile: of one recording, and of the one that goes on for it.
    traces: Vec<LiveTrace>,
}

impl Maker {
    pub(super) fn make(&mut self, mut recorded: Recorded) -> Result<Finished, FinishError> {
        let Some(output) = recorded.trace.clone() else { return self.files.make(recorded) };
        match recorded.part {
            Part::Snapshot { number, ref mut name } => {
                let name = name.take();
                ctf::snapshot(&output, recorded, (number, name))
            }
            Part::Last { is_continued } => {
                let closed = self.trace_to(&output).close(recorded, !is_continued);
                self.traces.retain(|trace| !trace.is_to(&output));
                output.publication().end();
                closed
            }
            Part::Closed { .. } => self.trace_to(&output).close(recorded, false),
        }
    }

    /// Makes it, and goes on with what comes after it.
    fn make_and_go_on(&mut self, mut recorded: Recorded) -> Done {
        let spool = recorded.spool.dir().to_owned();
        let output = recorded.trace.clone();
        let (next, is_archive) = match &mut recorded.part {
            Part::Snapshot { .. } => (None, false),
            Part::Last { .. } => (None, true),
            Part::Closed { next } => (next.take(), true),
        };
        let is_told = match &output {
            Some(output) if is_archive => self.trace_to(output).take_told(),
            _ => false,
        };
        let made = self.make(recorded);
        if let (Some(next), Some(output)) = (next, &output) {
            self.trace_to(output).follow(next.map(|next| *next));
        }
        match made {
            Ok(finished) => Done::File(Box::new(finished)),
            Err(_) if is_told => Done::KeptInSpool { spool },
            Err(error) => Done::Failed { error, spool },
        }
    }

    /// The trace of a recording, which may begin here.
    fn trace_to(&mut self, output: &CtfOutput) -> &mut LiveTrace {
        let index = self.traces.iter().position(|trace| trace.is_to(output)).unwrap_or_else(|| {
            self.traces.push(LiveTrace::new(output.clone()));
            self.traces.len() - 1
        });
        &mut self.traces[index]
    }

    /// Writes what there is by now; with `all`, so that it can be read. Gives what cannot be written.
    fn go_on(&mut self, all: bool) -> Vec<Done> {
        self.of_traces(|trace| trace.go_on(all))
    }

    /// Writes what describes the traces anew. Gives what cannot be written.
    fn describe(&mut self) -> Vec<Done> {
        self.of_traces(LiveTrace::describe)
    }

    fn of_traces(&mut self, act: impl Fn(&mut LiveTrace) -> Result<(), FinishError>) -> Vec<Done> {
        let ended = |trace: &mut LiveTrace| {
            let spool = trace.spool()?;
            let error = act(trace).err()?;
            Some(Done::TraceEnded { error, spool })
        };
        self.traces.iter_mut().filter_map(ended).collect()
    }

    /// After what time there is more to do, if ever.
    fn patience(&self) -> Option<Duration> {
        self.traces.iter().filter_map(LiveTrace::patience).min()
    }
}

/// Makes trace files, and keeps the newest.
#[derive(Debug, Default)]
struct Files {
    files: VecDeque<(Identity, Output)>,
    keep: Option<usize>,
}

impl Files {
    fn make(&mut self, recorded: Recorded) -> Result<Finished, FinishError> {
        let output = recorded.output.clone();
        let finished = finish_file(recorded);
        if finished.is_ok() && self.keep.is_some() {
            let there = output.directory().look(output.name()).ok().flatten();
            self.files.extend(there.map(|there| (Identity::of(&there), output)));
        }
        remove_oldest(&mut self.files, self.keep);
        finished
    }
}

/// Makes files in a thread of its own, one after the other.
#[derive(Debug)]
pub struct Finisher {
    jobs: Option<Sender<Job>>,
    done: Receiver<Done>,
    /// Archives that are no files yet.
    waiting: Arc<AtomicUsize>,
    pace: Arc<OnceLock<Pace>>,
    /// Readable when something is done.
    wake: Arc<Notice>,
    thread: Option<JoinHandle<()>>,
}

impl Finisher {
    /// Starts the thread. Of files, it keeps the newest `keep`, and removes the others as newer ones come; of
    /// the chunks of a trace, as many as its options say.
    ///
    /// # Errors
    /// There are no descriptors or threads left.
    pub fn start(keep: Option<usize>) -> std::io::Result<Self> {
        let wake = Arc::new(Notice::new()?);
        let (jobs, received) = mpsc::channel::<Job>();
        let (tell, done) = mpsc::channel();
        let waker = Arc::clone(&wake);
        let waiting = Arc::new(AtomicUsize::new(0));
        let still_waiting = Arc::clone(&waiting);
        let pace = Arc::new(OnceLock::new());
        let own_pace = Arc::clone(&pace);
        let mut maker = Maker { files: Files { keep, ..Files::default() }, ..Maker::default() };
        let thread = std::thread::Builder::new().name("finisher".into()).spawn(move || {
            let pace = own_pace.get_or_init(Pace::of_this_thread);
            pace.step_back();
            let tell_all = |all: Vec<Done>| {
                for done in all {
                    // Who no longer asks has no use for it.
                    let _ = tell.send(done);
                    waker.tell();
                }
            };
            loop {
                let job = match maker.patience() {
                    None => received.recv().map_err(|_| RecvTimeoutError::Disconnected),
                    Some(wait) => received.recv_timeout(wait),
                };
                match job {
                    Ok(Job::Make(recorded)) => {
                        let done = maker.make_and_go_on(*recorded);
                        if still_waiting.fetch_sub(1, Ordering::Relaxed) <= 1 {
                            pace.step_back();
                        }
                        tell_all(vec![done]);
                    }
                    Ok(Job::Follow(output, follower)) => {
                        maker.trace_to(&output).follow(Ok(*follower));
                        tell_all(maker.go_on(false));
                    }
                    Ok(Job::Flush(flushed)) => {
                        let failed = maker.go_on(true);
                        let is_done = failed.is_empty();
                        tell_all(failed);
                        // Who no longer waits has no use for it.
                        let _ = flushed.send(is_done);
                    }
                    Ok(Job::Describe(described)) => {
                        let failed = maker.describe();
                        let is_done = failed.is_empty();
                        tell_all(failed);
                        // As above.
                        let _ = described.send(is_done);
                    }
                    Err(RecvTimeoutError::Timeout) => tell_all(maker.go_on(false)),
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        })?;
        Ok(Self { jobs: Some(jobs), done, waiting, pace, wake, thread: Some(thread) })
    }

    /// Writes the trace of a recording from now on, while it goes on, if it becomes one. To be called when it
    /// has started; archives that come after the one that it records to are followed by themselves.
    ///
    /// # Errors
    /// What it stores cannot be read. Then its archive is written when it is closed.
    pub fn follow(&self, session: &Session) -> Result<(), FollowError> {
        if let (Some(jobs), Some(output)) = (&self.jobs, session.trace()) {
            // The thread ends only when nothing can be added any more.
            let _ = jobs.send(Job::Follow(output.clone(), Box::new(session.follow()?)));
        }
        Ok(())
    }

    /// Brings to the trace what its recording has stored by now, so that it can be read, and waits for that.
    /// In a [pause](Session::pause) that is all that was recorded before it. Without a trace there is nothing
    /// to do.
    ///
    /// That it cannot be written is told by [`Finisher::next_done`].
    pub fn flush(&self) {
        self.ask(Job::Flush);
    }

    /// Writes what describes the trace of a recording anew, whatever has become of the file, and waits for
    /// that: all that is known of events, and how far the clock is from wall time by
    /// [`Session::measure_clock`]. Without a trace there is nothing to do. Gives whether that is done; why it
    /// is not is told by [`Finisher::next_done`].
    pub fn describe(&self) -> bool {
        self.ask(Job::Describe)
    }

    /// Waits until something is done. Gives whether it could be.
    fn ask(&self, job: impl FnOnce(Sender<bool>) -> Job) -> bool {
        let mut is_done = true;
        let (done, when) = mpsc::channel();
        if let Some(jobs) = &self.jobs
            && jobs.send(job(done)).is_ok()
        {
            // Somebody waits for it.
            if let Some(pace) = self.pace.get() {
                pace.keep_up();
            }
            // An error means that the thread has ended, which is told when it is joined.
            is_done = when.recv().unwrap_or(false);
            if let Some(pace) = self.pace.get().filter(|_| !self.is_busy()) {
                pace.step_back();
            }
        }
        is_done
    }

    /// Makes what an archive or a snapshot becomes when its turn comes.
    pub fn add(&self, recorded: Recorded) {
        if let Some(jobs) = &self.jobs {
            if self.waiting.fetch_add(1, Ordering::Relaxed) + 1 == WAITING_LONG
                && let Some(pace) = self.pace.get()
            {
                pace.keep_up();
            }
            // The thread ends only when nothing can be added any more.
            let _ = jobs.send(Job::Make(Box::new(recorded)));
        }
    }

    /// Whether so many archives wait that the next one should be larger instead: the disk or the processor is
    /// not fast enough for so many files.
    pub fn is_behind(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) >= WAITING_MAX
    }

    /// Whether an archive is no file yet.
    pub fn is_busy(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }

    /// Becomes readable when [`Finisher::next_done`] has something.
    pub fn is_done(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// What is done and has not been told.
    pub fn next_done(&self) -> Option<Done> {
        // Cleared first, so that what comes meanwhile makes it readable again.
        self.wake.clear();
        self.done.try_recv().ok()
    }

    /// Whether the thread has ended, which it does by itself only when it panics: nothing more is made.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until all files are made. Gives what has not been told.
    pub fn finish(mut self) -> Vec<Done> {
        self.join();
        self.done.try_iter().collect()
    }

    fn join(&mut self) {
        self.jobs = None;
        // Somebody waits for it.
        if let Some(pace) = self.pace.get() {
            pace.keep_up();
        }
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Waits for the files that are being made: half of one is of no use.
impl Drop for Finisher {
    fn drop(&mut self) {
        self.join();
    }
}

/// How the thread stands among others for the processor.
///
/// Behind threads that never sleep it gets a tenth of a processor, and what it has to do grows faster than it
/// is done. Then each file is larger than the one before, without an end.
#[derive(Debug)]
struct Pace {
    thread: Pid,
    /// The nice value that the process was given.
    own: i32,
}

impl Pace {
    fn of_this_thread() -> Self {
        Self { thread: gettid(), own: getpriority_process(None).unwrap_or(0) }
    }

    fn step_back(&self) {
        self.set(self.own.saturating_add(NICE));
    }

    fn keep_up(&self) {
        self.set(self.own);
    }

    /// The nice value of this thread only (sched(7)). Without the right to, it stays as it is.
    fn set(&self, nice: i32) {
        let _ = setpriority_process(Some(self.thread), nice);
    }
}

fn remove_oldest(files: &mut VecDeque<(Identity, Output)>, keep: Option<usize>) {
    let Some(keep) = keep else { return };
    while files.len() > keep {
        // Somebody may have taken it away already, or put another file there.
        if let Some((identity, oldest)) = files.pop_front()
            && oldest.directory().has(oldest.name(), identity).unwrap_or(false)
        {
            let _ = oldest.directory().remove(oldest.name());
        }
    }
}
