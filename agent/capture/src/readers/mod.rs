//! The reader threads: from the rings through the compressor into the spools of the archives.
//!
//! A thread serves a few CPUs, with their rings of all channels. It sleeps until one of these is filled to a
//! quarter, which the programs signal once, or until a deadline passes. Woken, it moves whole chunks; at the
//! deadline all pages that are complete, however few. At the ticks of the switch timer it has the pages
//! closed that programs are filling, and moves everything. So what fired is in the spool a period of that
//! timer and a round of the reader later at most.
//!
//! A page's memory is released only after its bytes are in the spool.
//!
//! At a rotation each reader gets the spools of the next archive. Of each of its rings it finds the border,
//! moves the pages before it, goes over to the next spool, and acknowledges that with what the CPU had
//! counted at the border. It waits for nobody else, and recording goes on meanwhile.

mod streams;
mod timer;
mod worker;

use agent_ebpf::sets::Owner;
use std::{
    collections::VecDeque,
    os::fd::{AsFd as _, BorrowedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver},
    },
    thread::JoinHandle,
    time::Duration,
};

use self::worker::{Finished, Worker};
use super::{
    Spool, SpoolError, StreamId,
    names::{Journal, NameTable},
    notice::Notice,
    spool::{CpuSpool, SpoolTotals},
};
use attach::ring::{CpuCounts, NameStream, Rings, SharedArray, WakeStream};
use attach::{Borders, PageSwitch};
use ftrace_event::Cmdlines;
use tracedat::Compression;

pub(super) use self::streams::wake_pages;

/// CPUs served by one thread.
pub(super) const CPUS_PER_THREAD: usize = 4;

/// How the rings are read.
#[derive(Clone, Debug)]
pub(super) struct ReaderOptions {
    /// Those of each channel.
    pub channels: Vec<ChannelReading>,
    /// Compression of the chunks.
    pub compression: Compression,
    /// Bytes that an archive may have, as the trace file could not be larger (`ulimit -f`).
    pub most_bytes: Option<u64>,
}

/// How the rings of a channel, or of one of its sets, are read.
#[derive(Clone, Debug)]
pub(super) struct ChannelReading {
    /// The number of the channel, or of its set of rings.
    pub number: u32,
    /// The index of its first ring among those of the channel.
    pub first_ring: usize,
    /// Pages in each ring.
    pub ring_pages: u32,
    /// How long a complete page may wait, if the user chose a time.
    pub deadline: Option<Duration>,
    /// How long an event may wait in a page that is not complete; `None` for as long as it takes.
    pub switch: Option<Duration>,
    /// Overwrite mode: nothing is read before the end.
    pub overwrite: bool,
}

/// What readers need of the programs that fill the rings.
pub(super) struct Sources {
    pub channels: Vec<ChannelSource>,
    /// What wakes each thread.
    pub wake: Vec<WakeStream>,
    pub names: NameStream,
}

/// The same of a channel.
#[derive(Clone, Debug)]
pub(super) struct ChannelSource {
    pub rings: Arc<Rings>,
    pub switch: PageSwitch,
    /// Whose the sets of the channel's rings are, where there are several.
    pub owners: Option<Arc<SharedArray<Owner>>>,
}

/// What one stream has stored in an archive.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub stream: StreamId,
    /// The archive's number.
    pub archive: u64,
    pub totals: SpoolTotals,
    /// What the CPU had counted where the archive begins.
    pub begin: Arc<CpuCounts>,
}

/// A stream that has gone over to the next archive, or whose ring was copied.
#[derive(Clone, Debug)]
pub(super) struct Border {
    pub stored: Stored,
    /// What the CPU had counted where the archive ends.
    pub end: Arc<CpuCounts>,
}

/// A spool for what comes before or after the next border of its stream.
#[derive(Debug)]
pub(super) struct ToBorder {
    /// What finds the border.
    pub borders: Arc<Borders>,
    pub spool: CpuSpool,
    /// Of a copy, the time from which on events are wanted; all of them where nothing is said.
    pub since: Option<u64>,
}

/// What a reader is asked to do.
enum Command {
    /// To go over to these spools.
    Rotate(Vec<ToBorder>),
    /// To copy what the rings of overwriting channels hold to these spools.
    Copy(Vec<ToBorder>),
    /// To store everything that was recorded, also what is in pages that are not full, while the gates are
    /// closed.
    Store,
    /// To go over to the next journal of thread names.
    Names(Journal),
    /// To tell the thread names until now.
    CopyNames,
}

/// What a reader says.
enum Answer {
    Border(Border),
    /// Or why it could not be copied; the recording goes on.
    Copied(Result<Border, SpoolError>),
    Names(Cmdlines),
    /// Everything is stored.
    Emptied,
    /// It has failed, and answers no more.
    Failed,
}

/// What the threads of a recording share.
#[derive(Debug)]
struct Shared {
    /// Written once to make every thread finish.
    stop: Notice,
    /// Whether others go on then.
    lets_go: AtomicBool,
    /// Written by a thread that failed.
    failed: Notice,
    /// Whether one has: it answers once more and then never again.
    has_failed: AtomicBool,
    /// Written when a page is kept because an event asks for a snapshot.
    asked: Notice,
    /// The first failure.
    failure: Mutex<Option<SpoolError>>,
    /// Whether chunks are made with next to no effort.
    hurries: AtomicBool,
}

impl Shared {
    fn tell_failed(&self) {
        self.has_failed.store(true, Ordering::Release);
        self.failed.tell();
    }

    fn failure(&self) -> std::sync::MutexGuard<'_, Option<SpoolError>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one thread is asked, and what wakes it for that.
struct Mailbox {
    wake: Notice,
    commands: Mutex<VecDeque<Command>>,
}

impl Mailbox {
    fn put(&self, command: Command) {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push_back(command);
        self.wake.tell();
    }

    fn take(&self) -> Option<Command> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn has_some(&self) -> bool {
        !self.commands.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// The CPUs that a thread serves.
#[derive(Clone, Debug)]
struct Cpus {
    /// The index of the first of them among all.
    first: usize,
    ids: Vec<u32>,
}

/// A running reader thread.
struct Reader {
    thread: JoinHandle<Finished>,
    mailbox: Arc<Mailbox>,
    cpus: Vec<u32>,
}

/// The running reader threads.
pub(super) struct ReaderPool {
    shared: Arc<Shared>,
    readers: Vec<Reader>,
    answers: Receiver<Answer>,
}

impl std::fmt::Debug for ReaderPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReaderPool").field("readers", &self.readers.len()).finish_non_exhaustive()
    }
}

/// What the threads leave when they end.
#[derive(Debug, Default)]
pub(super) struct Drained {
    /// What each stream has stored in the archive that it was at.
    pub stored: Vec<Stored>,
    /// Borders that nobody has waited for.
    pub borders: Vec<Border>,
    pub names: Option<(NameStream, NameTable)>,
    /// What a thread failed with.
    pub failure: Option<SpoolError>,
}

/// What the threads leave to others that go on.
#[derive(Debug, Default)]
pub(super) struct LetGo {
    pub spools: Vec<CpuSpool>,
    pub names: Option<NameTable>,
}

/// Why the rings were not copied.
#[derive(Debug)]
pub(super) enum CopyFailed {
    /// What they hold could not be stored.
    Spool(SpoolError),
    /// A reader has failed: the recording cannot go on.
    Reader,
}

/// A reader has failed: the recording cannot go on.
#[derive(Debug)]
pub(super) struct ReaderFailed {
    /// Borders that were found before.
    pub borders: Vec<Border>,
}

impl ReaderPool {
    /// Starts the threads. The first of them also collects thread names. The CPUs are in the order of their
    /// rings, and each has a spool of each channel.
    pub(super) fn start(
        spool: &Spool,
        sources: Sources,
        names: NameTable,
        (cpus, mut spools): (&[u32], Vec<CpuSpool>),
        options: &ReaderOptions,
    ) -> Result<Self, SpoolError> {
        let notice = || Notice::new().map_err(SpoolError::io("create an eventfd for", spool.dir()));
        let shared = Arc::new(Shared {
            stop: notice()?,
            lets_go: AtomicBool::new(false),
            failed: notice()?,
            has_failed: AtomicBool::new(false),
            asked: notice()?,
            failure: Mutex::new(None),
            hurries: AtomicBool::new(false),
        });
        let (answer, answers) = mpsc::channel();
        let Sources { channels, wake, names: stream } = sources;
        let mut names = Some((stream, names));
        let mut pool = Self { shared, readers: Vec::new(), answers };
        for (number, (wake, served)) in wake.into_iter().zip(cpus.chunks(CPUS_PER_THREAD)).enumerate() {
            let (own, others) = spools.into_iter().partition(|spool| served.contains(&spool.stream().cpu));
            spools = others;
            let served = Cpus { first: number * CPUS_PER_THREAD, ids: served.to_vec() };
            let mailbox = Arc::new(Mailbox { wake: notice()?, commands: Mutex::default() });
            let outside = worker::Outside {
                channels: channels.clone(),
                wake,
                names: names.take(),
                shared: Arc::clone(&pool.shared),
                mailbox: Arc::clone(&mailbox),
                answer: answer.clone(),
            };
            let worker = Worker::new(outside, options, spool)?;
            let thread = std::thread::Builder::new()
                .name(format!("reader-{number}"))
                .spawn({
                    let served = served.clone();
                    move || worker.run(&served, own)
                })
                .map_err(SpoolError::io("start a reader thread for", spool.dir()))?;
            pool.readers.push(Reader { thread, mailbox, cpus: served.ids });
        }
        Ok(pool)
    }

    /// Becomes readable when a thread has failed.
    pub(super) fn failed(&self) -> BorrowedFd<'_> {
        self.shared.failed.as_fd()
    }

    /// Why a thread has failed, if one has.
    pub(super) fn why_failed(&self) -> Option<String> {
        self.shared.failure().as_ref().map(ToString::to_string)
    }

    /// Told when an event asks for a snapshot whose page is kept.
    pub(super) fn asked(&self) -> &Notice {
        &self.shared.asked
    }

    /// Has every stream go over to its spool in the next archive, and waits until all have.
    pub(super) fn rotate(&self, spools: Vec<ToBorder>) -> Result<Vec<Border>, ReaderFailed> {
        let mut found = Vec::new();
        if self.has_failed() {
            return Err(ReaderFailed { borders: found });
        }
        let waiting = self.ask_all(spools, Command::Rotate);
        while found.len() < waiting {
            match self.answers.recv() {
                Ok(Answer::Border(border)) => found.push(border),
                Ok(Answer::Copied(_) | Answer::Names(_) | Answer::Emptied) => {}
                Ok(Answer::Failed) | Err(mpsc::RecvError) => return Err(ReaderFailed { borders: found }),
            }
        }
        Ok(found)
    }

    /// Has what the rings of overwriting channels hold copied to these spools, and waits for it. What is
    /// recorded meanwhile is not in them.
    pub(super) fn copy(&self, spools: Vec<ToBorder>) -> Result<Vec<Border>, CopyFailed> {
        if self.has_failed() {
            return Err(CopyFailed::Reader);
        }
        let waiting = self.ask_all(spools, Command::Copy);
        let mut copied = Vec::new();
        let mut failed = None;
        // All of them, also after one has failed: nobody writes to the spools any more then.
        for _ in 0..waiting {
            match self.answers.recv() {
                Ok(Answer::Copied(Ok(border))) => copied.push(border),
                Ok(Answer::Copied(Err(error))) => failed = failed.or(Some(error)),
                Ok(Answer::Border(_) | Answer::Names(_) | Answer::Emptied) => {}
                Ok(Answer::Failed) | Err(mpsc::RecvError) => return Err(CopyFailed::Reader),
            }
        }
        copied.sort_by_key(|border| border.stored.stream);
        failed.map_or(Ok(copied), |error| Err(CopyFailed::Spool(error)))
    }

    /// Has everything stored that was recorded, and waits for it: the gates are closed, for a pause. Channels
    /// that overwrite have it in complete pages then, in their rings.
    pub(super) fn empty_rings(&self) -> Result<(), ReaderFailed> {
        let failed = || ReaderFailed { borders: Vec::new() };
        if self.has_failed() {
            return Err(failed());
        }
        for reader in &self.readers {
            reader.mailbox.put(Command::Store);
        }
        let mut waiting = self.readers.len();
        while waiting != 0 {
            match self.answers.recv() {
                Ok(Answer::Emptied) => waiting -= 1,
                Ok(Answer::Border(_) | Answer::Copied(_) | Answer::Names(_)) => {}
                Ok(Answer::Failed) | Err(mpsc::RecvError) => return Err(failed()),
            }
        }
        Ok(())
    }

    /// Whether a reader has failed, so that it gives no answers. One that fails from here on says so in the
    /// place of an answer.
    pub(super) fn has_failed(&self) -> bool {
        self.shared.has_failed.load(Ordering::Acquire)
    }

    /// Asks each reader something about its streams, with the spools for them. Gives how many answers come.
    fn ask_all(&self, spools: Vec<ToBorder>, command: impl Fn(Vec<ToBorder>) -> Command) -> usize {
        let mut answers = 0;
        let mut left = spools;
        for reader in &self.readers {
            let is_own = |of: &ToBorder| reader.cpus.contains(&of.spool.stream().cpu);
            let (own, others): (Vec<_>, Vec<_>) = left.into_iter().partition(is_own);
            left = others;
            answers += own.len();
            reader.mailbox.put(command(own));
        }
        answers
    }

    /// Has the names that come from now on go to the next archive's journal, and gives those until now.
    pub(super) fn rotate_names(&self, journal: Journal) -> Result<Cmdlines, ReaderFailed> {
        self.ask_names(Command::Names(journal))
    }

    /// The names until now.
    pub(super) fn names(&self) -> Result<Cmdlines, ReaderFailed> {
        self.ask_names(Command::CopyNames)
    }

    fn ask_names(&self, command: Command) -> Result<Cmdlines, ReaderFailed> {
        let failed = || ReaderFailed { borders: Vec::new() };
        if self.has_failed() {
            return Err(failed());
        }
        self.readers.first().ok_or_else(failed)?.mailbox.put(command);
        loop {
            match self.answers.recv() {
                Ok(Answer::Names(names)) => return Ok(names),
                Ok(Answer::Border(_) | Answer::Copied(_) | Answer::Emptied) => {}
                Ok(Answer::Failed) | Err(mpsc::RecvError) => return Err(failed()),
            }
        }
    }

    /// Empties the rings and ends the threads. Only after the gates are closed and all programs have
    /// returned.
    ///
    /// Gives what is in the spools even when something failed on the way.
    pub(super) fn finish(mut self) -> Drained {
        self.tell_to_stop();
        let mut drained = Drained::default();
        for reader in std::mem::take(&mut self.readers) {
            match reader.thread.join() {
                Ok(finished) => {
                    drained.stored.extend(finished.stored);
                    drained.names = drained.names.or(finished.names);
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        drained.stored.sort_by_key(|stored| stored.stream);
        for answer in self.answers.try_iter() {
            if let Answer::Border(border) = answer {
                drained.borders.push(border);
            }
        }
        drained.failure = self.shared.failure().take();
        drained
    }

    /// Ends the threads while programs go on writing. What they have not stored is in the rings.
    pub(super) fn let_go(mut self) -> LetGo {
        self.shared.lets_go.store(true, Ordering::Release);
        self.tell_to_stop();
        let mut left = LetGo::default();
        for reader in std::mem::take(&mut self.readers) {
            match reader.thread.join() {
                Ok(finished) => {
                    left.spools.extend(finished.spools);
                    left.names = left.names.or(finished.names.map(|(_, names)| names));
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        left
    }

    fn tell_to_stop(&self) {
        self.shared.stop.tell();
    }

    /// Whether chunks are made with next to no effort from now on.
    pub(super) fn hurry(&self, hurries: bool) {
        self.shared.hurries.store(hurries, Ordering::Relaxed);
    }
}

impl Drop for ReaderPool {
    fn drop(&mut self) {
        self.tell_to_stop();
        for reader in self.readers.drain(..) {
            // A panic of theirs has been printed; this one is on its way out already.
            let _ = reader.thread.join();
        }
    }
}
