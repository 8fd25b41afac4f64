//! A recording while it runs: programs attached, rings filling, reader threads storing.

mod changes;
mod handover;
mod pause;
mod regenerate;
mod rings;
mod rotation;
mod snapshot;
mod track;

use kernel::clock::ReadClock as _;
use std::{
    ffi::OsString,
    os::fd::{AsFd as _, BorrowedFd},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

#[cfg(feature = "debug-programs")]
use super::program_log::ProgramLog;
use super::{
    Ending, LedgerSnapshot, Manifest, RecordedChannel, SetOwner, Spool, SpoolError, StreamId,
    archive::{Archive, ArchiveState, Opened, Writers, open},
    attaching::{last_names, names_of_threads, trace_process},
    channel::Channel,
    closing::{Closing, Common, counted_at},
    counts::Stage,
    ctf::CtfOutput,
    follow::{FollowError, Follower},
    maps::{self, Maps},
    needs::{archive_options, check_memory, check_open_files, halves, reader_options, wants_symbols},
    notice::Notice,
    options::{Active, CaptureEvent, CaptureOptions, ChannelOptions},
    readers::{Border, ChannelSource, Drained, ReaderPool, Sources, Stored},
    sets::{owner_of, recorded_sets},
    state::StateReader,
    stats::{Counted, Stats},
    symbols::SymbolReader,
    user_symbols::MappingReader,
    watch::WatchOptions,
};
use agent_ebpf::{compat_counter, slot_flags};
use attach::detach::AttachTurn;
use attach::ring::{Control, NameStream, RingId};
use attach::{Misses, ProbeError, TaskTracker};
use bpf::LoadError;
use compile::fast::Lane;
use compile::scope::ScopeError;
use ctf_writer::Publication;
use ftrace_event::Cmdlines;
use kernel::{cgroup::memory::Available, proc};
use spec::StackKind;
use stdx::output::{Output, OutputError};
use tracedat::ledger::EventChoice;

use self::track::Told;
pub use self::{
    changes::AddError,
    pause::PauseError,
    rings::RingFill,
    rotation::RotateError,
    snapshot::{SnapshotError, SnapshotLimits},
    track::TrackError,
};

/// How long a stop waits for programs that were already running when the gates closed.
const QUIET_TIMEOUT: Duration = Duration::from_millis(500);
/// Why a recording cannot start.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Where the data goes.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The programs.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The rings would take more memory than is free.
    #[error(
        "rings of {ring_kb} KB{} for {cpus} CPUs need {} MB, but only {available}; choose a smaller -b",
        if *.channels > 1 { format!(" in {channels} buffers") } else { String::new() }, needed >> 20
    )]
    Memory {
        /// Size of one ring in KB, or of a CPU's rings of all channels.
        ring_kb: u64,
        /// Number of channels.
        channels: usize,
        /// Number of rings.
        cpus: usize,
        /// Bytes needed.
        needed: u64,
        /// What is available, and where.
        available: Available,
    },
    /// Maps would take more memory than is free.
    #[error(
        "the maps need {} MB, but only {available}; choose fewer keys (--max-keys)",
        needed >> 20
    )]
    MapMemory {
        /// Bytes needed.
        needed: u64,
        /// What is available, and where.
        available: Available,
    },
    /// There is nothing to record.
    #[error("a recording has one channel at least")]
    NoChannel,
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
    #[error("cannot choose threads: {0}")]
    Scope(#[from] ScopeError),
    /// Where the file or files go.
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

/// A recording, from attaching to stopping: created, then [active](Session::start), then
/// [stopped](Session::stop). While it is active, a [rotation](Session::rotate) closes what is stored by then
/// and goes on in another archive. A [pause](Session::pause) interrupts it.
#[derive(Debug)]
pub struct Session {
    channels: Vec<Channel>,
    tasks: TaskTracker,
    readers: ReaderPool,
    /// What is counted beside it.
    maps: Option<Arc<Maps>>,
    symbols: Option<SymbolReader>,
    archive: Archive,
    /// A rotation that failed half-way.
    half: Option<HalfRotated>,
    destination: Opened,
    /// The trace that is written of it.
    trace: Option<CtfOutput>,
    reached: Arc<Notice>,
    options: CaptureOptions,
    kept_spool: Option<PathBuf>,
    left_out: Vec<LeftOut>,
    /// The names of events that were refused when they were added.
    refused: Vec<String>,
    /// How often events were added or removed.
    changes: u64,
    /// What the archive says of which threads were recorded.
    told: Told,
    /// When recording began.
    started: Option<Instant>,
    /// Since when it is paused, by the recording's clock.
    paused: Option<u64>,
    /// Whether another recording goes on where it has ended.
    is_continued: bool,
    /// Bytes of data in the archives before this one.
    closed_bytes: u64,
    /// How many snapshots there were.
    snapshots: u64,
    #[cfg(feature = "debug-programs")]
    _program_log: Option<ProgramLog>,
}

/// What a rotation has come to when a reader failed: some CPUs are in the next archive, the others in the old
/// one.
#[derive(Debug)]
struct HalfRotated {
    old: Archive,
    borders: Vec<Border>,
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
    /// Which part of the recording it is.
    pub(super) part: Part,
    /// The trace that it becomes a part of, if it does not become a file.
    pub(super) trace: Option<CtfOutput>,
}

/// A part of a recording.
#[derive(Debug)]
pub(super) enum Part {
    /// What flight recorders held at a moment. Snapshots are counted from 1.
    Snapshot { number: u64, name: Option<OsString> },
    /// An archive that another one comes after, with what follows that one if a trace is written of it.
    Closed { next: Option<Result<Box<Follower>, FollowError>> },
    /// The last archive. Another recording may go on where it ends.
    Last { is_continued: bool },
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
        let (destination, trace) = open(&options)?;
        let number = options.first_archive;
        let begin = destination.begin(number, wall_ns(&options))?;
        let failed = SpoolError::io("create an eventfd for", begin.0.path());
        let reached = Arc::new(Notice::new().map_err(failed)?);
        let shared = ArchiveState::new(number, enough(&options, &reached));
        options.manifest.channels = recorded_channels(&options);
        let told = Told::new(&options.manifest.only, options.scope.as_ref());
        options.manifest.only = told.lines();
        options.manifest.choices = event_choices(&options, &[]);
        options.manifest.marks_compat = options.marks_compat();
        let archive_options = archive_options(&options, &options.manifest.channels, begin.0.directory());
        let (archive, kept_spool) =
            Archive::create(shared, begin, options.manifest.clone(), archive_options)?;
        match Self::prepare(&archive, &mut options, attaching) {
            Ok(prepared) => {
                let Prepared { channels, tasks, readers, maps, symbols, mappings, left_out, .. } = prepared;
                let writers = Writers { mappings, ..Writers::default() };
                let mut session = Self {
                    channels,
                    tasks,
                    readers,
                    maps,
                    symbols,
                    archive: Archive { writers, ..archive },
                    half: None,
                    destination,
                    trace,
                    reached,
                    options,
                    kept_spool,
                    left_out,
                    refused: Vec::new(),
                    changes: 0,
                    told,
                    started: None,
                    paused: None,
                    is_continued: false,
                    closed_bytes: 0,
                    snapshots: 0,
                    #[cfg(feature = "debug-programs")]
                    _program_log: prepared.program_log,
                };
                session.choose_compat_counter();
                if !session.left_out.is_empty()
                    && let Err(error) = session.describe()
                {
                    session.archive.remove();
                    return Err(error.into());
                }
                Ok(session)
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
        // Before there are programs: to print the symbols of thousands of their functions takes the kernel as
        // long as all others (`bpf_get_kallsym`, kernel/bpf/core.c, goes through the list for each).
        let with_symbols = wants_symbols(options);
        let symbols = with_symbols.then(|| SymbolReader::start(spool));
        let mut channels = load_channels(options)?;
        let (first, others) = channels.split_first_mut().ok_or(CaptureError::NoChannel)?;
        #[cfg(feature = "debug-programs")]
        let program_log = ProgramLog::start(first, spool)?;
        let halves = halves(options)?;
        let others = others.iter().map(|other| &other.programs);
        let (mut tasks, stream) = TaskTracker::attach(&first.programs, others, halves)?;
        if let Some((scope, halves)) = options.scope.as_ref().zip(halves) {
            tasks.set_scope(halves, scope)?;
        }
        for &process in options.tasks.iter().flat_map(|filter| &filter.processes) {
            trace_process(&tasks, process);
        }
        let names = names_of_threads(spool, &tasks, options)?;
        let sources = sources(&mut channels, stream)?;
        let spools = archive.spools(options.streams(|_| true))?;
        let readers =
            ReaderPool::start(spool, sources, names, (&options.cpus, spools), &reader_options(options))?;
        let mappings = follow_mappings(spool, options).map_err(CaptureError::Mappings)?;
        if options.exclude_self {
            for tid in proc::own_threads().map_err(CaptureError::Threads)? {
                tasks.untrace_thread(tid);
            }
        }
        let left_out = attach_channels(&mut channels, options, attaching)?;
        let maps =
            channels.first().map(|first| maps::beside(options, &first.programs)).transpose()?.flatten();
        Ok(Prepared {
            channels,
            tasks,
            readers,
            maps,
            symbols,
            mappings,
            left_out,
            #[cfg(feature = "debug-programs")]
            program_log,
        })
    }

    /// The names of events that the kernel refused, now or when they were added.
    fn not_attached(&self) -> Vec<&str> {
        let left_out = self.left_out.iter().map(|left_out| left_out.event.as_str());
        left_out.chain(self.refused.iter().map(String::as_str)).collect()
    }

    /// Has one of the programs that leave out calls of 32-bit programs count them, if there is one: at the
    /// entry of calls rather than at their exit.
    fn choose_compat_counter(&self) {
        let active = self.options.without_compat(&self.left_out).filter_map(|(index, slot, hook)| {
            let event = self.options.channels.get(index)?.events.get(slot)?;
            let generation = self.channels.get(index)?.generation_of(slot);
            event.active.until.is_none().then_some((hook, index, generation))
        });
        let chosen = active.min();
        for (index, channel) in self.channels.iter().enumerate() {
            let counter = match chosen {
                Some((hook, of, generation)) if of == index => compat_counter::of(generation, hook),
                _ => compat_counter::NONE,
            };
            channel.controls(&self.options.cpus).for_each(|control| control.set_compat_counter(counter));
        }
    }

    /// Events that the kernel refused and that were not requested by name.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Where an earlier, unfinished recording to the same output was moved.
    pub fn kept_spool(&self) -> Option<&Path> {
        self.kept_spool.as_deref()
    }

    /// Follows the archive that is recorded to.
    ///
    /// # Errors
    /// Its spool cannot be read.
    pub fn follow(&self) -> Result<Follower, FollowError> {
        Follower::of_spool(&self.archive.spool)
    }

    /// The spool directory of the archive that is recorded to.
    pub fn spool_dir(&self) -> &Path {
        self.archive.spool.dir()
    }

    /// How the same threads on the same CPUs are [watched](super::watch::Watch), with time stamps of the same
    /// clock.
    ///
    /// A watch that is started from it is attached after the recording: of an event of the kernel that both
    /// have, the recording's program has run when the watch's does.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn watch_options(&self) -> Result<WatchOptions, CaptureError> {
        let maps = self.channels.first().ok_or(CaptureError::NoChannel)?.programs.thread_maps()?;
        Ok(WatchOptions::beside(&self.options, maps))
    }

    /// Adds a thread to the task filter. Takes effect at once.
    pub fn trace_thread(&self, tid: u32) {
        self.tasks.trace_thread(tid);
    }

    /// The trace that it becomes, if it does not become files.
    pub(super) fn trace(&self) -> Option<&CtfOutput> {
        self.trace.as_ref()
    }

    /// What of its trace can be read while it is written, if it becomes one.
    pub fn publication(&self) -> Option<&Arc<Publication>> {
        self.trace.as_ref().map(CtfOutput::publication)
    }

    /// Starts recording on all chosen CPUs.
    pub fn start(&mut self) {
        self.begin_trace();
        for control in controls(&self.channels, &self.options.cpus).chain(self.gates_of_maps()) {
            control.set_enabled(true);
        }
        self.note_start();
    }

    /// The maps that count beside it, which can be read at any moment; what they have when it has
    /// [stopped](Session::stop) is final.
    pub fn maps(&self) -> Option<Arc<Maps>> {
        self.maps.clone()
    }

    /// The gates of their programs.
    fn gates_of_maps(&self) -> impl Iterator<Item = Control<'_>> {
        self.maps.iter().flat_map(|maps| maps.controls(&self.options.cpus))
    }

    /// Notes from when on there may be events, before a gate is open.
    fn begin_trace(&mut self) {
        if let Some(trace) = self.trace.as_mut().filter(|trace| trace.begin_ns == 0) {
            trace.begin_ns = self.options.clock.now_ns();
        }
    }

    fn note_start(&mut self) {
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

    /// The number of the archive that is recorded to.
    pub fn archive_number(&self) -> u64 {
        self.archive.shared.number
    }

    /// When recording began: when the gates were open.
    pub fn began(&self) -> Option<Instant> {
        self.started
    }

    /// Becomes readable when recording cannot go on, for example because the disk is full.
    pub fn failed(&self) -> BorrowedFd<'_> {
        self.readers.failed()
    }

    /// Why recording cannot go on, once [`failed`](Self::failed) is readable: what could not be written, and
    /// the system's reason.
    pub fn why_failed(&self) -> Option<String> {
        self.readers.why_failed()
    }

    /// Whether the directory that is recorded to was removed, with all that was stored in it: nothing more of
    /// the recording is kept then.
    pub fn is_removed(&self) -> bool {
        self.archive.spool.is_removed()
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

    /// Whether what is stored is compressed with next to no effort from now on, which takes more room.
    pub fn hurry(&self, hurries: bool) {
        self.readers.hurry(hurries);
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        let bytes = self.closed_bytes + self.archive.shared.bytes();
        let mut progress = Progress {
            bytes: (!self.options.manifest.overwrites()).then_some(bytes),
            elapsed: self.started.map(|start| start.elapsed()).unwrap_or_default(),
            ..Progress::default()
        };
        for control in controls(&self.channels, &self.options.cpus) {
            progress.events += control.events();
            progress.lost += control.lost_total();
        }
        progress
    }

    /// What it has counted by now.
    pub fn ledger(&self) -> LedgerSnapshot {
        let time_ns = self.options.clock.now_ns();
        let count = |(number, channel): (u32, &Channel)| {
            let counts = |ring: RingId| {
                Some((StreamId::in_set(number, ring.set, ring.cpu), channel.programs.counts(ring)?))
            };
            channel.programs.rings_of(&self.options.cpus).filter_map(counts).collect::<Vec<_>>()
        };
        LedgerSnapshot { time_ns, streams: (0..).zip(&self.channels).flat_map(count).collect() }
    }

    /// What marks in the spool that the end did not come by itself.
    pub fn ending(&self) -> Ending {
        self.archive.ending()
    }

    fn common<'a>(&'a self, owner: &'a dyn Fn(u32) -> Option<SetOwner>) -> Common<'a> {
        Common {
            owner,
            options: &self.options,
            left_out: &self.left_out,
            refused: &self.refused,
            destination: &self.destination,
            trace: self.trace.as_ref(),
            skips_uncounted: self.channels.iter().any(Channel::skips_uncounted),
        }
    }

    /// Stops recording and brings all data into the spool. Detaching continues in the background.
    ///
    /// Gives the last archive, after the one before it if a rotation has failed half-way.
    pub fn stop(self) -> Vec<Recorded> {
        let Self {
            mut channels,
            tasks,
            readers,
            maps,
            symbols,
            archive,
            half,
            destination,
            trace,
            options,
            left_out,
            refused,
            started,
            paused,
            is_continued,
            ..
        } = self;
        let covered_to = started.map(|_| paused.unwrap_or_else(|| options.clock.now_ns()));
        let of_maps = maps.iter().flat_map(|maps| maps.controls(&options.cpus));
        for control in controls(&channels, &options.cpus).chain(of_maps) {
            control.set_paused(false);
            control.set_enabled(false);
        }
        archive.counts.set_stage(Stage::Stopping);
        wait_until_quiet(&channels, &options.cpus);
        for channel in &channels {
            channel.programs.flush_side_queues(&options.cpus);
        }
        let misses: Vec<Misses> = channels.iter_mut().map(Channel::take_misses).collect();
        let names_missed = channels.iter().any(Channel::has_missed_names);
        let (ended, ended_ns) = (Instant::now(), wall_ns(&options));
        // Whatever ends this process from here on, it ends quickly. Names and counts change no more.
        drop(tasks);
        channels.iter_mut().for_each(Channel::detach);
        if let Some(trace) = &trace {
            trace.hold();
        }
        archive.spool.release_reserve_for_rings();
        let Drained { stored, borders, names, failure } = readers.finish();
        // Also after a failure: what the rings still hold is counted, and stays there.
        archive.counts.set_stage(Stage::Counted);
        let names_lost: u64 = controls(&channels, &options.cpus).map(|control| control.names_lost()).sum();
        let is_lossy = names_lost != 0 || names_missed;
        let cmdlines = names.map(|(_, names)| last_names(names, is_lossy)).unwrap_or_default();
        drop(symbols);
        let with_end = |stored: Stored| {
            let channel = channels.get(stored.stream.index())?;
            channel.programs.counts(stored.stream.ring()).map(|end| Counted::new(stored, Arc::new(end)))
        };
        let (last, before): (Vec<Stored>, Vec<Stored>) =
            stored.into_iter().partition(|stored| stored.archive == archive.shared.number);
        let last = last.into_iter().filter_map(with_end).collect();
        let common = Common {
            options: &options,
            left_out: &left_out,
            refused: &refused,
            destination: &destination,
            trace: trace.as_ref(),
            skips_uncounted: channels.iter().any(Channel::skips_uncounted),
            owner: &|number| owner_in(&channels, number),
        };
        let mut recorded = Vec::new();
        if let Some(HalfRotated { old, borders: found }) = half {
            let borders = found.into_iter().chain(borders);
            let mut cpus: Vec<Counted> = borders.map(counted_at).collect();
            cpus.extend(before.into_iter().filter_map(with_end));
            cpus.sort_by_key(|cpu| cpu.stored.stream);
            let (covered_to, cmdlines, misses) = (None, cmdlines.clone(), Vec::new());
            let part = Part::Closed { next: None };
            let closing =
                Closing { ended, covered_to, ended_ns, cpus, cmdlines, misses, failure: None, part };
            recorded.push(common.close(old, closing));
        }
        let part = Part::Last { is_continued };
        let closing = Closing { ended, covered_to, ended_ns, cpus: last, cmdlines, misses, failure, part };
        recorded.push(common.close(archive, closing));
        recorded
    }
}

impl Session {
    /// Ends a recording of which nothing is wanted.
    ///
    /// # Errors
    /// A spool cannot be removed, and stays.
    pub fn discard(self) -> Result<(), SpoolError> {
        let removed: Vec<_> = self.stop().into_iter().map(|recorded| recorded.spool.remove()).collect();
        removed.into_iter().collect()
    }
}

/// The parts of a recording that are not its options.
struct Prepared {
    channels: Vec<Channel>,
    tasks: TaskTracker,
    readers: ReaderPool,
    maps: Option<Arc<Maps>>,
    symbols: Option<SymbolReader>,
    mappings: Option<MappingReader>,
    left_out: Vec<LeftOut>,
    #[cfg(feature = "debug-programs")]
    program_log: Option<ProgramLog>,
}

/// Loads the programs of all channels, which share the maps of the first.
fn load_channels(options: &CaptureOptions) -> Result<Vec<Channel>, CaptureError> {
    let mut channels: Vec<Channel> = Vec::with_capacity(options.channels.len());
    for channel in &options.channels {
        let maps = channels.first().map(|first| first.programs.shared_maps()).transpose()?;
        channels.push(Channel::load(options, channel, maps.as_ref())?);
    }
    Ok(channels)
}

/// What readers need of the programs.
fn sources(channels: &mut [Channel], names: NameStream) -> Result<Sources, LoadError> {
    let wake = channels.first_mut().map(|first| first.programs.take_wake()).unwrap_or_default();
    let source = |channel: &mut Channel| {
        let switch = channel.programs.take_page_switch().ok_or(LoadError::Missing("switch_page"))?;
        let owners = channel.programs.owners().cloned();
        let source = ChannelSource { rings: Arc::clone(&channel.programs.rings), switch, owners };
        Ok::<_, LoadError>(vec![source; channel.programs.set_count() as usize])
    };
    let channels = channels.iter_mut().map(source).collect::<Result<Vec<_>, _>>()?.concat();
    Ok(Sources { channels, wake, names })
}

/// Attaches the events of all channels. Gives what the kernel refused and the recording can do without.
fn attach_channels(
    channels: &mut [Channel],
    options: &mut CaptureOptions,
    attaching: &mut dyn FnMut(usize, usize),
) -> Result<Vec<LeftOut>, CaptureError> {
    let (mut left_out, mut before, all) = (Vec::new(), 0, options.events().count());
    attaching(0, all);
    let _turn = AttachTurn::take();
    for (channel, options) in channels.iter_mut().zip(&mut options.channels) {
        left_out.append(&mut channel.attach(options, &mut |done| attaching(before + done, all))?);
        before += options.events.len();
    }
    Ok(left_out)
}

/// The stacks that follow some of these events.
fn stacks<'e>(events: impl IntoIterator<Item = &'e CaptureEvent>) -> impl Iterator<Item = StackKind> {
    let kind = |event: &CaptureEvent| match event.lane {
        Lane::Stack(kind) => Some(kind),
        _ => None,
    };
    events.into_iter().filter_map(kind)
}

/// The channels, for the file.
fn recorded_channels(options: &CaptureOptions) -> Vec<RecordedChannel> {
    let channel = |(number, of): (u32, &ChannelOptions)| RecordedChannel {
        number,
        name: of.name.clone(),
        overwrite: of.overwrite,
        set: None,
        contexts: of.shared_contexts.clone(),
        stacks: stacks(&of.events).collect(),
    };
    let with_sets = |of: (u32, &ChannelOptions)| recorded_sets(channel(of), of.1.sets.as_ref());
    options.numbered().flat_map(with_sets).collect()
}

/// The events that are recorded from the beginning on, and those of which not each firing is recorded, or
/// that of every thread in any scope; without those that the kernel refused, and that are over.
fn event_choices(options: &CaptureOptions, refused: &[&str]) -> Vec<EventChoice> {
    let of_channel = |channel: &ChannelOptions| {
        let choices = channel.events.iter().map(|event| {
            let choice = EventChoice {
                channel: channel.name.clone(),
                event: event.name.clone(),
                every_thread: event.slot.flags & slot_flags::EVERY_THREAD != 0,
                filter: event.filter.as_ref().map(|filter| filter.text.clone()),
                is_sampled: event.slot.sample > 1,
            };
            if refused.contains(&event.name.as_str()) || event.active.is_over {
                return None;
            }
            let is_whole = event.active == Active::default();
            (is_whole || choice.every_thread || choice.is_chosen()).then_some(choice)
        });
        choices.flatten().collect::<Vec<_>>()
    };
    options.channels.iter().flat_map(of_channel).collect()
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
    let with_stacks = stacks(options.events()).any(|kind| kind == StackKind::User);
    let wanted = wants_symbols(options) && with_stacks;
    wanted.then(|| MappingReader::start(spool, options)).transpose()
}

/// The control blocks of these CPUs in all channels.
fn controls<'a>(channels: &'a [Channel], cpus: &[u32]) -> impl Iterator<Item = Control<'a>> {
    channels.iter().flat_map(|channel| channel.controls(cpus))
}

/// Whose the set of rings with this number is, if it is taken.
fn owner_in(channels: &[Channel], number: u32) -> Option<SetOwner> {
    let stream = StreamId { channel: number, cpu: 0 };
    owner_of(channels.get(stream.index())?.programs.owners()?, stream.ring().set)
}

/// Waits until every program that runs now has returned.
///
/// Programs run in a read-side critical section of RCU, preemptible or not (`__bpf_trace_run` and
/// `trace_call_bpf`, kernel/trace/bpf_trace.c; `uprobe_prog_run`), so a grace period, which `membarrier`
/// waits for (kernel/sched/membarrier.c), outlasts them. Kernels with nohz_full CPUs refuse that command;
/// there a moment's patience, far longer than any program runs, does the same.
pub fn wait_for_programs() {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: membarrier takes plain numbers.
    let waited = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) } == 0;
    if !waited {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until every program that passed an open gate has returned, and no CPU says that one is busy.
fn wait_until_quiet(channels: &[Channel], cpus: &[u32]) {
    wait_for_programs();
    let deadline = Instant::now() + QUIET_TIMEOUT;
    while controls(channels, cpus).any(|control| control.is_busy()) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}
