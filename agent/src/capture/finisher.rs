//! Making the files of closed archives while the next ones are recorded.

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

use super::{FinishError, Finished, Recorded, finish, follow::Follower, notice::Notice};
use crate::output::{Identity, Output};

/// How many archives may wait. Each has descriptors and the formats of all its events.
const WAITING_MAX: usize = 8;
/// So many waiting archives are no longer those that a busy moment leaves.
const WAITING_LONG: usize = WAITING_MAX / 2;
/// How far the thread steps back behind others: what is recorded needs the processor first.
const NICE: i32 = 10;

/// What has become of an archive.
#[derive(Debug)]
pub enum Done {
    /// It is a file.
    File(Box<Finished>),
    /// It is still in its spool.
    Failed {
        /// Why.
        error: FinishError,
        /// Where that is.
        spool: PathBuf,
    },
}

/// What makes something of archives, in the thread of a [`Finisher`].
pub trait Make: Send {
    /// Makes it of a closed one. `is_last` tells that none comes after it.
    ///
    /// # Errors
    /// It is still in its spool.
    fn make(&mut self, recorded: Recorded, is_last: bool) -> Result<Finished, FinishError>;

    /// Takes what follows the archive that is recorded to after those that were given so far.
    fn follow(&mut self, _follower: Follower) {}

    /// Does what can be done while no archive waits. Gives after what time there is more to do, if ever.
    fn meanwhile(&mut self) -> Option<Duration> {
        None
    }
}

/// What a [`Finisher`] is given.
enum Job {
    Make { recorded: Box<Recorded>, is_last: bool },
    Follow(Box<Follower>),
}

/// Makes trace files, and keeps the newest.
struct Files {
    files: VecDeque<(Identity, Output)>,
    keep: Option<usize>,
}

impl Make for Files {
    fn make(&mut self, recorded: Recorded, _is_last: bool) -> Result<Finished, FinishError> {
        let output = recorded.output.clone();
        let finished = finish(recorded);
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
    /// Starts the thread. It keeps the newest `keep` of its files, and removes the others as newer ones come.
    ///
    /// # Errors
    /// There are no descriptors or threads left.
    pub fn start(keep: Option<usize>) -> std::io::Result<Self> {
        Self::start_with(Files { files: VecDeque::new(), keep })
    }

    /// Starts the thread, in which `make` works.
    ///
    /// # Errors
    /// There are no descriptors or threads left.
    pub fn start_with(mut make: impl Make + 'static) -> std::io::Result<Self> {
        let wake = Arc::new(Notice::new()?);
        let (jobs, received) = mpsc::channel::<Job>();
        let (tell, done) = mpsc::channel();
        let waker = Arc::clone(&wake);
        let waiting = Arc::new(AtomicUsize::new(0));
        let still_waiting = Arc::clone(&waiting);
        let pace = Arc::new(OnceLock::new());
        let own_pace = Arc::clone(&pace);
        let thread = std::thread::Builder::new().name("finisher".into()).spawn(move || {
            let pace = own_pace.get_or_init(Pace::of_this_thread);
            pace.step_back();
            loop {
                let job = match make.meanwhile() {
                    None => received.recv().map_err(|_| RecvTimeoutError::Disconnected),
                    Some(wait) => received.recv_timeout(wait),
                };
                let (recorded, is_last) = match job {
                    Ok(Job::Make { recorded, is_last }) => (*recorded, is_last),
                    Ok(Job::Follow(follower)) => {
                        make.follow(*follower);
                        continue;
                    }
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => break,
                };
                let spool = recorded.spool.dir().to_owned();
                let result = match make.make(recorded, is_last) {
                    Ok(finished) => Done::File(Box::new(finished)),
                    Err(error) => Done::Failed { error, spool },
                };
                if still_waiting.fetch_sub(1, Ordering::Relaxed) <= 1 {
                    pace.step_back();
                }
                // Who no longer asks has no use for it.
                let _ = tell.send(result);
                waker.tell();
            }
        })?;
        Ok(Self { jobs: Some(jobs), done, waiting, pace, wake, thread: Some(thread) })
    }

    /// Makes the file of an archive when its turn comes.
    pub fn add(&self, recorded: Recorded) {
        self.add_job(recorded, false);
    }

    /// The same of the last one.
    pub fn add_last(&self, recorded: Recorded) {
        self.add_job(recorded, true);
    }

    /// Lets the archive be followed that is recorded to after those that were added.
    pub fn follow(&self, follower: Follower) {
        if let Some(jobs) = &self.jobs {
            // The thread ends only when nothing can be added any more.
            let _ = jobs.send(Job::Follow(Box::new(follower)));
        }
    }

    fn add_job(&self, recorded: Recorded, is_last: bool) {
        if let Some(jobs) = &self.jobs {
            if self.waiting.fetch_add(1, Ordering::Relaxed) + 1 == WAITING_LONG
                && let Some(pace) = self.pace.get()
            {
                pace.keep_up();
            }
            // The thread ends only when nothing can be added any more.
            let _ = jobs.send(Job::Make { recorded: Box::new(recorded), is_last });
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
