//! A recording while it runs: programs attached, rings filling, reader threads storing.

mod snapshot;

use std::{
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Ending, Manifest, Spool, SpoolError,
    archive::{Archive, ArchiveState, Opened, Writers},
    attaching::{attach, last_names, names_of_threads, trace_process},
    closing::{Closing, Common, counted_at},
    counts::Stage,
    names::Journal,
    needs::{
        archive_options, check_memory, check_open_files, program_options, reader_options, wants_symbols,
    },
    notice::Notice,
    options::CaptureOptions,
    readers::{Border, Drained, ReaderFailed, ReaderPool, Sources, Stored},
    spool::CpuSpool,
    state::StateReader,
    stats::{Counted, Stats, misses_since},
    symbols::SymbolReader,
    user_symbols::MappingReader,
};
use crate::{
    attach::{
        Attachment, Borders, Misses, ProbeError, Programs, detach::detach_in_background, fast::FastLinks,
        hook::HookLinks, tasks,
    },
    bpf::LoadError,
    compile::{
        fast::{Lane, StackKind},
        filter::Uncompiled,
    },
    kernel::proc,
    output::{Output, OutputError},
    ring::{Control, Rings},
    tracedat::Cmdlines,
};

pub use self::snapshot::SnapshotError;

/// How long a stop waits for programs that were already running when the gates closed.
const QUIET_TIMEOUT: Duration = Duration::from_millis(500);
/// Why a recording cannot start.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The place for the data.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The programs.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The rings would take more memory than is free.
    #[error(
        "rings of {ring_kb} KB for {cpus} CPUs need {} MB, but only {} MB of memory are available; choose a smaller -b",
        needed >> 20, available >> 20
    )]
    Memory {
        /// Size of one ring in KB.
        ring_kb: u64,
        /// Number of rings.
        cpus: usize,
        /// Bytes needed.
        needed: u64,
        /// Bytes available.
        available: u64,
    },
    /// More events than descriptors.
    #[error(
        "{events} events need {needed} open files, but the limit of this process is {limit}; \
         raise the limit (`ulimit -n {needed}`, `prlimit`) or record fewer events"
    )]
    OpenFiles {
        /// Number of events.
        events: usize,
        /// Descriptors needed.
        needed: u64,
        /// The limit.
        limit: u64,
    },
    /// The scope.
    #[error("the selection of threads cannot be evaluated in the kernel: {0}")]
    Scope(#[from] Uncompiled),
    /// The place of the file or files.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The list of running threads.
    #[error("cannot read the names of running threads: {0}")]
    Threads(#[source] std::io::Error),
    /// What processes map, for the names of their functions.
    #[error("cannot follow the code mappings of processes, which user stacks need: {0}")]
    Mappings(#[source] std::io::Error),
}

impl From<LoadError> for CaptureError {
    fn from(error: LoadError) -> Self {
        Self::Probe(ProbeError::Load(error))
    }
}

/// An event that was left out because the kernel refused to attach to it.
#[derive(Debug)]
pub struct LeftOut {
    /// `system:name`.
    pub event: String,
    /// The kernel's reason.
    pub reason: ProbeError,
}

/// Why there is no rotation. Recording goes on in the archive that there is, unless a reader has failed.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// The recording goes to one file.
    #[error("this recording is one file; a directory is needed for several")]
    OneFile,
    /// A flight recorder has its events in the rings.
    #[error("a recording that overwrites stores nothing before its end")]
    Overwrites,
    /// The program that finds where an archive ends.
    #[error("cannot find where a file ends and the next one begins: {0}")]
    Borders(#[from] LoadError),
    /// The next archive cannot be created.
    #[error("cannot begin the next file: {0}")]
    Next(#[from] SpoolError),
    /// Neither can its output.
    #[error("cannot begin the next file: {0}")]
    Output(#[from] OutputError),
    /// What processes map cannot be followed in the next archive.
    #[error("cannot begin the next file: cannot follow the code mappings of processes: {0}")]
    Mappings(#[source] std::io::Error),
    /// A reader has failed: the recording is at its end, and says why then.
    #[error("a reader has failed")]
    Reader,
}

/// A recording, from attaching to stopping: created, then [active](Session::start), then
/// [stopped](Session::stop). While it is active, a [rotation](Session::rotate) closes what is stored by then
/// and goes on in another archive.
#[derive(Debug)]
pub struct Session {
    // The links come first: they are handed over before the programs are dropped.
    links: Links,
    programs: Programs,
    readers: ReaderPool,
    symbols: Option<SymbolReader>,
    archive: Archive,
    /// A rotation that failed half-way.
    half: Option<HalfRotated>,
    borders: Option<Arc<Borders>>,
    /// What the kernel had kept from the programs when the archive began; nothing of the first one.
    misses: Misses,
    place: Opened,
    reached: Arc<Notice>,
    options: CaptureOptions,
    kept_spool: Option<PathBuf>,
    left_out: Vec<LeftOut>,
    /// When recording began.
    started: Option<Instant>,
    /// Bytes of data in the archives before this one.
    closed_bytes: u64,
    /// How many snapshots there were.
    snapshots: u64,
}

/// What a rotation has come to when a reader failed: some CPUs are in the next archive, the others in the old
/// one.
#[derive(Debug)]
struct HalfRotated {
    old: Archive,
    borders: Vec<Border>,
}

/// The descriptors that keep programs attached. However a capture ends, they go to the background detacher:
/// closing them here would take seconds to minutes.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) events: Vec<Attachment>,
    pub(super) fast: FastLinks,
    pub(super) probes: HookLinks,
    tasks: Vec<OwnedFd>,
}

impl Drop for Links {
    fn drop(&mut self) {
        // Raw tracepoints are detached at once.
        self.tasks.clear();
        self.fast = FastLinks::default();
        let mut attachments = self.probes.take_attachments();
        attachments.append(&mut self.events);
        // Without a child process the descriptors are closed right here, which only takes longer.
        let _ = detach_in_background(attachments);
    }
}

/// A moment's state of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Events recorded.
    pub events: u64,
    /// Events lost.
    pub lost: u64,
    /// Bytes stored. `None` for a flight recorder, whose events are in the rings until it ends.
    pub bytes: Option<u64>,
    /// Since the gates opened.
    pub elapsed: Duration,
}

/// An archive that is closed: all its data is in the spool.
#[derive(Debug)]
pub struct Recorded {
    /// Where the data is.
    pub spool: Spool,
    /// Where the trace file goes.
    pub output: Output,
    /// What the trace file needs beside it.
    pub manifest: Manifest,
    /// Thread names.
    pub cmdlines: Cmdlines,
    /// Whether the symbols in the spool belong in the file.
    pub with_symbols: bool,
    /// Counts.
    pub stats: Stats,
    /// What ended the recording early, if something did.
    pub failure: Option<SpoolError>,
}

impl Session {
    /// Creates the spool, loads and attaches everything; nothing is recorded before [`Session::start`].
    ///
    /// `attaching` is told how many of how many kinds of events are done, which with thousands of them takes
    /// seconds.
    ///
    /// # Errors
    /// There is no room for the data or the rings, or the kernel refuses a program that is required.
    pub fn create(
        mut options: CaptureOptions,
        attaching: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, CaptureError> {
        check_memory(&options)?;
        check_open_files(&options)?;
        let place = options.destination.open()?;
        let begin = place.begin(1, wall_ns(&options))?;
        let failed = SpoolError::io("create an eventfd for", begin.0.path());
        let reached = Arc::new(Notice::new().map_err(failed)?);
        let shared = ArchiveState::new(1, enough(&options, &reached));
        let archive_options = archive_options(&options, begin.0.directory());
        let (archive, kept_spool) =
            Archive::create(shared, begin, options.manifest.clone(), archive_options)?;
        match Self::prepare(&archive, &mut options, attaching) {
            Ok(Prepared { links, programs, readers, symbols, mappings, borders, left_out }) => {
                let writers = Writers { state: None, mappings };
                Ok(Self {
                    links,
                    programs,
                    readers,
                    symbols,
                    archive: Archive { writers, ..archive },
                    half: None,
                    borders,
                    misses: Misses::default(),
                    place,
                    reached,
                    options,
                    kept_spool,
                    left_out,
                    started: None,
                    closed_bytes: 0,
                    snapshots: 0,
                })
            }
            Err(error) => {
                archive.remove();
                Err(error)
            }
        }
    }

    fn prepare(
        archive: &Archive,
        options: &mut CaptureOptions,
        attaching: &mut dyn FnMut(usize, usize),
    ) -> Result<Prepared, CaptureError> {
        let spool = &archive.spool;
        let mut programs = Programs::load(&program_options(options)?)?;
        let borders = options.rotation.map(|_| programs.borders().map(Arc::new)).transpose()?;
        let mut links = Links::default();
        links.tasks = tasks::attach(&programs)?;
        for &process in options.tasks.iter().flat_map(|filter| &filter.processes) {
            trace_process(&programs, process);
        }
        let names = names_of_threads(spool, &programs, options)?;
        let stream = programs.take_names().ok_or(LoadError::Missing("map NAMES"))?;
        let switch = programs.take_page_switch().ok_or(LoadError::Missing("switch_page"))?;
        let sources = Sources {
            rings: &programs.rings.clone(),
            wake: programs.take_wake(),
            switch: &switch,
            names: stream,
        };
        let spools = archive.cpu_spools(&options.cpus, options.cap)?;
        let readers = ReaderPool::start(spool, sources, names, spools, &reader_options(options))?;
        let with_symbols = wants_symbols(options);
        let symbols = with_symbols.then(|| SymbolReader::start(spool));
        let mappings = follow_mappings(spool, options).map_err(CaptureError::Mappings)?;
        if options.exclude_self {
            for tid in proc::own_threads().map_err(CaptureError::Threads)? {
                programs.untrace_thread(tid);
            }
        }
        let left_out = attach(&mut programs, &mut links, options, attaching)?;
        Ok(Prepared { links, programs, readers, symbols, mappings, borders, left_out })
    }

    /// Events that the kernel refused and that were not requested by name.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Where an earlier, unfinished recording to the same output was moved.
    pub fn kept_spool(&self) -> Option<&Path> {
        self.kept_spool.as_deref()
    }

    /// The spool directory of the archive that is recorded to.
    pub fn spool_dir(&self) -> &Path {
        self.archive.spool.dir()
    }

    /// Adds a thread to the task filter. Takes effect at once.
    pub fn trace_thread(&self, tid: u32) {
        self.programs.trace_thread(tid);
    }

    /// Starts recording on all chosen CPUs.
    pub fn start(&mut self) {
        for control in controls(&self.programs.rings, &self.options.cpus) {
            control.set_enabled(true);
        }
        let now = Instant::now();
        self.started = Some(now);
        self.archive.began = Some(now);
        self.archive.covered_from = Some(self.options.clock.now_ns());
        if let Some(name) = &mut self.archive.manifest.archive {
            name.begin_ns = wall_ns(&self.options);
        }
        // From here on what changes is in the events: the state and the events leave no gap between them.
        self.archive.writers.state = Some(StateReader::start(&self.archive.spool, self.options.clock));
    }

    /// When recording began: when the gates were open.
    pub fn began(&self) -> Option<Instant> {
        self.started
    }

    /// Becomes readable when recording cannot go on, for example because the disk is full.
    pub fn failed(&self) -> BorrowedFd<'_> {
        self.readers.failed()
    }

    /// Becomes readable when the archive is as large as [`Rotation::bytes`](super::Rotation::bytes) says.
    pub fn is_large(&self) -> BorrowedFd<'_> {
        self.reached.as_fd()
    }

    /// Whether it is so now. Makes the descriptor unreadable until the archive has become large again.
    pub fn is_large_now(&self) -> bool {
        self.reached.clear();
        self.archive.shared.is_enough()
    }

    /// Lets the archive become as much larger before it counts as large.
    pub fn put_off_rotation(&self) {
        if let Some(bytes) = self.options.rotation.and_then(|rotation| rotation.bytes) {
            self.archive.shared.want_more(bytes);
        }
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        let bytes = self.closed_bytes + self.archive.shared.bytes();
        let mut progress = Progress {
            bytes: (!self.options.overwrite).then_some(bytes),
            elapsed: self.started.map(|start| start.elapsed()).unwrap_or_default(),
            ..Progress::default()
        };
        for control in controls(&self.programs.rings, &self.options.cpus) {
            progress.events += control.events();
            progress.lost += control.lost_total();
        }
        progress
    }

    /// What marks in the spool that the end did not come by itself.
    pub fn ending(&self) -> Ending {
        self.archive.ending()
    }

    /// Closes the archive and goes on in the next one: gives what was stored by now, from which
    /// [`finish`](super::finish()) makes a file. Every event is in one of both, and so is every count.
    /// Recording goes on meanwhile; on each CPU in turn, the border is where one page ends.
    ///
    /// # Errors
    /// There is no next archive, for example because the disk is full, and recording goes on in this one.
    /// After [`RotateError::Reader`] it does not.
    pub fn rotate(&mut self) -> Result<Recorded, RotateError> {
        // If this rotation comes to nothing, the next one comes as much later.
        self.put_off_rotation();
        if self.half.is_some() {
            return Err(RotateError::Reader);
        }
        if self.options.overwrite {
            return Err(RotateError::Overwrites);
        }
        if let Opened::File(_) = self.place {
            return Err(RotateError::OneFile);
        }
        let borders = self.borders()?;
        let (next, spools, journal) = self.next_archive()?;
        let to = self.options.clock.now_ns();
        let ended = wall_ns(&self.options);
        let rotated = self.readers.rotate(spools, &borders).and_then(|borders| {
            let from = self.options.clock.now_ns();
            match self.readers.rotate_names(journal) {
                Ok(names) => Ok((borders, from, names)),
                Err(_) => Err(ReaderFailed { borders }),
            }
        });
        let misses = self.programs.misses(&self.links.fast, &self.links.probes);
        let old = std::mem::replace(&mut self.archive, next);
        let (borders, from, names) = match rotated {
            Ok(rotated) => rotated,
            Err(ReaderFailed { borders }) => {
                self.half = Some(HalfRotated { old, borders });
                return Err(RotateError::Reader);
            }
        };
        let now = Instant::now();
        self.archive.began = Some(now);
        self.archive.covered_from = Some(from);
        // Of what changed before the borders, the events are in the archive before.
        self.archive.writers.state = Some(StateReader::start(&self.archive.spool, self.options.clock));
        if let Some(name) = &mut self.archive.manifest.archive {
            name.begin_ns = ended;
        }
        self.closed_bytes += old.shared.bytes();
        let kept = std::mem::replace(&mut self.misses, misses);
        let closing = Closing {
            ended: now,
            covered_to: Some(to),
            ended_ns: ended,
            cpus: borders.into_iter().map(counted_at).collect(),
            cmdlines: names,
            misses: misses_since(&self.misses, &kept),
            failure: None,
        };
        Ok(self.common().close(old, closing))
    }

    /// What finds borders, which not every recording needs.
    fn borders(&mut self) -> Result<Arc<Borders>, LoadError> {
        Ok(match &self.borders {
            Some(borders) => Arc::clone(borders),
            None => Arc::clone(self.borders.insert(Arc::new(self.programs.borders()?))),
        })
    }

    /// The archive that comes next, with everything that it has from the beginning.
    fn next_archive(&mut self) -> Result<(Archive, Vec<CpuSpool>, Journal), RotateError> {
        let number = self.archive.shared.number + 1;
        let begin_ns = wall_ns(&self.options);
        let begin = self.place.begin(number, begin_ns)?;
        let shared = ArchiveState::new(number, enough(&self.options, &self.reached));
        let options = archive_options(&self.options, begin.0.directory());
        let (mut next, _) = Archive::create(shared, begin, self.options.manifest.clone(), options)?;
        let filled = next
            .cpu_spools(&self.options.cpus, self.options.cap)
            .and_then(|spools| Ok((spools, Journal::create(&next.spool)?)));
        let filled = filled.map_err(RotateError::Next).and_then(|filled| {
            next.writers.mappings =
                follow_mappings(&next.spool, &self.options).map_err(RotateError::Mappings)?;
            Ok(filled)
        });
        match filled {
            Ok((spools, journal)) => {
                if let Some(symbols) = &mut self.symbols {
                    symbols.put_into(&next.spool);
                }
                Ok((next, spools, journal))
            }
            Err(error) => {
                next.remove();
                Err(error)
            }
        }
    }

    fn common(&self) -> Common<'_> {
        Common {
            options: &self.options,
            left_out: &self.left_out,
            place: &self.place,
            skips_uncounted: self.programs.skips_uncounted(),
        }
    }

    /// Stops recording and brings all data into the spool. Detaching continues in the background.
    ///
    /// Gives the last archive, after the one before it if a rotation has failed half-way.
    pub fn stop(self) -> Vec<Recorded> {
        let Self {
            links,
            programs,
            readers,
            symbols,
            archive,
            half,
            misses,
            place,
            options,
            left_out,
            started,
            ..
        } = self;
        let rings = Arc::clone(&programs.rings);
        let covered_to = started.map(|_| options.clock.now_ns());
        for control in controls(&rings, &options.cpus) {
            control.set_enabled(false);
        }
        archive.counts.set_stage(Stage::Stopping);
        wait_until_quiet(&rings, &options.cpus);
        programs.flush_side_queues(&options.cpus);
        let all_misses = programs.misses(&links.fast, &links.probes);
        let misses = misses_since(&all_misses, &misses);
        let (ended, ended_ns) = (Instant::now(), wall_ns(&options));
        // Whatever ends this process from here on, it ends quickly. Names and counts change no more.
        drop(links);
        let Drained { stored, borders, names, failure } = readers.finish();
        // Also after a failure: what the rings still hold is counted, and stays there.
        archive.counts.set_stage(Stage::Counted);
        let names_lost: u64 = controls(&rings, &options.cpus).map(|control| control.names_lost()).sum();
        let is_lossy = names_lost != 0 || all_misses.names != 0;
        let cmdlines = names.map(|(_, names)| last_names(names, is_lossy)).unwrap_or_default();
        drop(symbols);
        let with_end =
            |stored: Stored| programs.counts(stored.cpu).map(|end| Counted::new(stored, Arc::new(end)));
        let (last, before): (Vec<Stored>, Vec<Stored>) =
            stored.into_iter().partition(|stored| stored.archive == archive.shared.number);
        let last = last.into_iter().filter_map(with_end).collect();
        let common = Common {
            options: &options,
            left_out: &left_out,
            place: &place,
            skips_uncounted: programs.skips_uncounted(),
        };
        let mut recorded = Vec::new();
        if let Some(HalfRotated { old, borders: found }) = half {
            let borders = found.into_iter().chain(borders);
            let mut cpus: Vec<Counted> = borders.map(counted_at).collect();
            cpus.extend(before.into_iter().filter_map(with_end));
            cpus.sort_by_key(|cpu| cpu.stored.cpu);
            let (covered_to, cmdlines, misses) = (None, cmdlines.clone(), Misses::default());
            let closing = Closing { ended, covered_to, ended_ns, cpus, cmdlines, misses, failure: None };
            recorded.push(common.close(old, closing));
        }
        let closing = Closing { ended, covered_to, ended_ns, cpus: last, cmdlines, misses, failure };
        recorded.push(common.close(archive, closing));
        recorded
    }
}

/// The parts of a recording that are not its options.
struct Prepared {
    links: Links,
    programs: Programs,
    readers: ReaderPool,
    symbols: Option<SymbolReader>,
    mappings: Option<MappingReader>,
    borders: Option<Arc<Borders>>,
    left_out: Vec<LeftOut>,
}

/// Now, by the wall clock, in nanoseconds since 1970: as the recording's clock stood to it at the start.
fn wall_ns(options: &CaptureOptions) -> u64 {
    options.clock.now_ns().saturating_add_signed(options.manifest.realtime_offset)
}

/// When an archive is large, and who is told.
fn enough(options: &CaptureOptions, reached: &Arc<Notice>) -> Option<(u64, Arc<Notice>)> {
    options.rotation?.bytes.map(|bytes| (bytes, Arc::clone(reached)))
}

/// Notes what processes map, if user stacks are recorded.
fn follow_mappings(spool: &Spool, options: &CaptureOptions) -> std::io::Result<Option<MappingReader>> {
    let with_stacks = options.events.iter().any(|event| matches!(event.lane, Lane::Stack(StackKind::User)));
    let wanted = wants_symbols(options) && with_stacks;
    wanted.then(|| MappingReader::start(spool, options.possible_cpus)).transpose()
}

fn controls<'a>(rings: &'a Rings, cpus: &[u32]) -> impl Iterator<Item = Control<'a>> {
    cpus.iter().filter_map(|&cpu| rings.control(cpu))
}

/// Waits until every program that passed an open gate has returned.
///
/// Programs run with preemption disabled, so a grace period, which `membarrier` waits for
/// (kernel/sched/membarrier.c), outlasts them. Kernels with nohz_full CPUs refuse that command; there the
/// busy flags and a moment's patience, far longer than any program runs, do the same.
fn wait_until_quiet(rings: &Rings, cpus: &[u32]) {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: membarrier takes plain numbers.
    let waited = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) } == 0;
    if !waited {
        std::thread::sleep(Duration::from_millis(20));
    }
    let deadline = Instant::now() + QUIET_TIMEOUT;
    while controls(rings, cpus).any(|control| control.is_busy()) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}
