//! A capture while it runs: programs attached, rings filling, reader threads storing.

use std::{
    os::fd::{BorrowedFd, OwnedFd},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use agent_ebpf::{EventLedger, EventSlot, LossCause, NameRecord, PAGE_SIZE, clock};

use super::{
    Ending, Manifest, Spool, SpoolError,
    counts::{CountsFile, Stage},
    drain::{CPUS_PER_THREAD, Drain, DrainOptions, wake_pages},
    names::NameTable,
    options::{CaptureEvent, CaptureOptions, CaptureProbe},
    spool::has_room_for,
    state::StateReader,
    stats::{CpuStats, EventStats, Stats},
    symbols::SymbolReader,
    user_symbols::MappingReader,
};
use crate::{
    attach::{
        Attachment, ProbeError, ProbeToAttach, ProgramOptions, Programs,
        detach::{AttachTurn, detach_in_background},
        fast::FastLinks,
        hook::HookLinks,
        tasks, tracepoint,
    },
    bpf::LoadError,
    compile::{
        fast::{Lane, StackKind},
        filter::Uncompiled,
        hook::HookProgram,
        scope::Scope,
    },
    kernel::{clock::TraceClock, proc},
    output::Output,
    ring::{Control, Rings},
    tracedat::{Cmdlines, Compression},
};

/// How long a stop waits for programs that were already running when the gates closed.
const QUIET_TIMEOUT: Duration = Duration::from_millis(500);
/// Descriptors beside those of events and of CPUs' spools: programs, maps, pipes, and what the agent was
/// started with.
const OTHER_FILES: u64 = 48;
/// Disk space kept back for the parts of the file that are not trace data, beside the formats and symbols
/// themselves.
const RESERVE_MARGIN: u64 = 1 << 20;
/// What the kernel's symbols take at most, compressed and as they are.
const RESERVE_SYMBOLS: (u64, u64) = (2 << 20, 12 << 20);

/// Why a capture cannot start.
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

/// A capture, from attaching to stopping.
#[derive(Debug)]
pub struct Capture {
    // The links come first: they are handed over before the programs are dropped.
    links: Links,
    programs: Programs,
    drain: Drain,
    counts: CountsFile,
    symbols: Option<SymbolReader>,
    state: Option<StateReader>,
    mappings: Option<MappingReader>,
    spool: Spool,
    options: CaptureOptions,
    kept_spool: Option<PathBuf>,
    left_out: Vec<LeftOut>,
    /// When the gates were open, by the system and by the recording's clock.
    started: Option<(Instant, u64)>,
}

/// The descriptors that keep programs attached. However a capture ends, they go to the background detacher:
/// closing them here would take seconds to minutes.
#[derive(Debug, Default)]
struct Links {
    events: Vec<Attachment>,
    fast: FastLinks,
    probes: HookLinks,
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

/// A moment's state of a running capture.
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

/// A capture that has stopped: all data is in the spool.
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
    /// What ended the capture early, if something did.
    pub failure: Option<SpoolError>,
}

impl Capture {
    /// Creates the spool, loads and attaches everything; nothing is recorded before [`Capture::open_gates`].
    ///
    /// `attaching` is told how many of how many kinds of events are done, which with thousands of them takes
    /// seconds.
    pub fn prepare(
        mut options: CaptureOptions,
        attaching: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, CaptureError> {
        check_memory(&options)?;
        check_open_files(&options)?;
        let (spool, kept_spool) = Spool::create(&options.output)?;
        match Self::prepare_in(&spool, &mut options, attaching) {
            Ok(Prepared { links, programs, drain, counts, symbols, mappings, left_out }) => Ok(Self {
                links,
                programs,
                drain,
                counts,
                symbols,
                mappings,
                state: None,
                spool,
                options,
                kept_spool,
                left_out,
                started: None,
            }),
            Err(error) => {
                // There is nothing in it; the error at hand says more than one about cleaning up.
                let _ = spool.remove();
                Err(error)
            }
        }
    }

    fn prepare_in(
        spool: &Spool,
        options: &mut CaptureOptions,
        attaching: &mut dyn FnMut(usize, usize),
    ) -> Result<Prepared, CaptureError> {
        options.manifest.store(spool)?;
        let formats: usize = options.manifest.systems.iter().flat_map(|(_, f)| f).map(String::len).sum();
        let with_symbols = options.symbols.wanted(|| options.events.iter().any(|event| event.prints_symbols));
        let for_symbols = match (with_symbols, options.manifest.compression) {
            (false, _) => 0,
            (true, Compression::None) => RESERVE_SYMBOLS.1,
            (true, Compression::Zstd { .. }) => RESERVE_SYMBOLS.0,
        };
        // What is left of a disk that is nearly full is the data's.
        let for_symbols = if has_room_for(spool.files(), for_symbols) { for_symbols } else { 0 };
        spool.reserve(RESERVE_MARGIN + for_symbols + formats as u64)?;
        let mut programs = Programs::load(&program_options(options)?)?;
        let mut links = Links::default();
        links.tasks = tasks::attach(&programs)?;
        for &process in options.tasks.iter().flat_map(|filter| &filter.processes) {
            trace_process(&programs, process);
        }
        // Threads that are born while /proc is read announce themselves; these names must not replace theirs.
        let mut names = NameTable::create(spool)?;
        for thread in proc::threads().map_err(CaptureError::Threads)? {
            names.insert_if_absent(NameRecord { tid: thread.tid, comm: padded(&thread.comm) })?;
            if options.scope.as_ref().is_some_and(|scope| scope.takes(&thread)) {
                programs.note_in_scope(thread.tid);
            }
        }
        names.flush()?;
        let stream = programs.take_names().ok_or(LoadError::Missing("map NAMES"))?;
        let switch = programs.take_page_switch().ok_or(LoadError::Missing("switch_page"))?;
        let wake = (programs.take_wake(), &switch);
        let counts = CountsFile::create(spool, options.cpus.len(), options.overwrite, options.clock)?;
        let drain =
            Drain::start(spool, &programs.rings, wake, (stream, names), &counts, &drain_options(options))?;
        let symbols = with_symbols.then(|| SymbolReader::start(spool));
        let with_stacks =
            options.events.iter().any(|event| matches!(event.lane, Lane::Stack(StackKind::User)));
        let mappings = (with_symbols && with_stacks)
            .then(|| MappingReader::start(spool, options.possible_cpus))
            .transpose()
            .map_err(CaptureError::Mappings)?;
        if options.exclude_self {
            for tid in proc::own_threads().map_err(CaptureError::Threads)? {
                programs.untrace_thread(tid);
            }
        }
        let mut left_out = Vec::new();
        attaching(0, options.events.len());
        let turn = AttachTurn::take();
        links.fast = attach_fast(&programs, options)?;
        for (index, event) in options.events.iter().enumerate() {
            attaching(index, options.events.len());
            if !matches!(event.lane, Lane::Generic) || event.own.is_some() {
                continue;
            }
            let filter = event.filter.as_ref().map(|filter| &filter.program);
            match tracepoint::attach(&mut programs, &event.name, &event.slot, filter, index as u32) {
                Ok(link) => links.events.push(link),
                Err(error) if event.required => return Err(error.into()),
                Err(reason) => left_out.push(LeftOut { event: event.name.clone(), reason }),
            }
        }
        links.probes = attach_probes(&programs, options, &mut left_out)?;
        links.probes.append(attach_own(&programs, options, &mut left_out)?);
        drop(turn);
        if links.events.is_empty()
            && links.fast.is_empty()
            && links.probes.is_empty()
            && let Some(LeftOut { reason, .. }) = left_out.pop()
        {
            return Err(reason.into());
        }
        Ok(Prepared { links, programs, drain, counts, symbols, mappings, left_out })
    }

    /// Events that the kernel refused and that were not requested by name.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Where an earlier, unfinished recording to the same output was moved.
    pub fn kept_spool(&self) -> Option<&std::path::Path> {
        self.kept_spool.as_deref()
    }

    /// The spool directory.
    pub fn spool_dir(&self) -> &std::path::Path {
        self.spool.dir()
    }

    /// Adds a thread to the task filter. Takes effect at once.
    pub fn trace_thread(&self, tid: u32) {
        self.programs.trace_thread(tid);
    }

    /// Starts recording on all chosen CPUs.
    pub fn open_gates(&mut self) {
        for control in controls(&self.programs.rings, &self.options.cpus) {
            control.set_enabled(true);
        }
        self.started = Some((Instant::now(), self.options.clock.now_ns()));
        // What happens from here on is recorded, so that the state and the events leave no gap between them.
        self.state = Some(StateReader::start(&self.spool, self.options.clock));
    }

    /// When recording began: when the gates were open.
    pub fn began(&self) -> Option<Instant> {
        self.started.map(|(instant, _)| instant)
    }

    /// Becomes readable when recording cannot go on, for example because the disk is full.
    pub fn failed(&self) -> BorrowedFd<'_> {
        self.drain.failed()
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        let mut progress = Progress {
            bytes: (!self.options.overwrite).then(|| self.drain.bytes()),
            elapsed: self.started.map(|(start, _)| start.elapsed()).unwrap_or_default(),
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
        Ending(self.counts.clone())
    }

    /// Stops recording and brings all data into the spool. Detaching continues in the background.
    pub fn stop(self) -> Recorded {
        let Self {
            links,
            programs,
            drain,
            counts,
            symbols,
            state,
            mappings,
            spool,
            options,
            started,
            left_out,
            ..
        } = self;
        let rings = Arc::clone(&programs.rings);
        let covered = started.map(|(_, from)| (from, options.clock.now_ns()));
        for control in controls(&rings, &options.cpus) {
            control.set_enabled(false);
        }
        counts.set_stage(Stage::Stopping);
        wait_until_quiet(&rings, &options.cpus);
        programs.flush_side_queues(&options.cpus);
        let recursion_misses = programs.recursion_misses(&links.fast, &links.probes);
        let skips_uncounted = programs.skips_uncounted();
        let duration = started.map(|(start, _)| start.elapsed()).unwrap_or_default();
        // Whatever ends this process from here on, it ends quickly. Names and counts change no more.
        drop(links);
        let (drained, names, failure) = drain.finish();
        // Also after a failure: what the rings still hold is counted, and stays there.
        counts.set_stage(Stage::Counted);
        let names_lost: u64 = controls(&rings, &options.cpus).map(|control| control.names_lost()).sum();
        let mut cmdlines = Cmdlines::new();
        if let Some((_, mut names)) = names {
            if names_lost != 0 {
                for thread in proc::threads().unwrap_or_default() {
                    // A failure to journal does not matter any more: the table itself is what is used from
                    // here on.
                    let _ =
                        names.insert_if_absent(NameRecord { tid: thread.tid, comm: padded(&thread.comm) });
                }
            }
            cmdlines = names.into_cmdlines();
        }
        let mut cpus = Vec::new();
        for done in drained {
            if let Some(control) = rings.control(done.cpu) {
                cpus.push(CpuStats {
                    cpu: done.cpu,
                    events: control.events(),
                    stored: done.totals,
                    lost: LossCause::ALL.map(|cause| control.lost(cause)),
                    overwritten: control.overwritten(),
                    filtered: (0..options.events.len())
                        .map(|slot| programs.ledger(done.cpu, slot).filtered)
                        .sum(),
                    ..CpuStats::default()
                });
            }
        }
        let events = event_stats(&programs, &options);
        drop(programs);
        let with_symbols = options.symbols.wanted(|| {
            options
                .events
                .iter()
                .zip(&events)
                .any(|(event, stats)| event.prints_symbols && stats.recorded != 0)
        });
        drop((symbols, state, mappings));
        let not_attached = left_out.into_iter().map(|left_out| left_out.event).collect();
        let stats = Stats {
            duration,
            covered,
            not_attached,
            cpus,
            events,
            recursion_misses,
            skips_uncounted,
            names_lost: Some(names_lost),
            vanished_cgroups: options.scope.as_ref().map(Scope::vanished).unwrap_or_default(),
            recovered: None,
        };
        Recorded {
            spool,
            output: options.output,
            manifest: options.manifest,
            cmdlines,
            with_symbols,
            stats,
            failure,
        }
    }
}

/// The parts of a capture that are not its options.
struct Prepared {
    links: Links,
    programs: Programs,
    drain: Drain,
    counts: CountsFile,
    symbols: Option<SymbolReader>,
    mappings: Option<MappingReader>,
    left_out: Vec<LeftOut>,
}

/// Attaches the fast events. One that the kernel refuses goes to the generic lane.
fn attach_fast(programs: &Programs, options: &mut CaptureOptions) -> Result<FastLinks, ProbeError> {
    let mut fast = Vec::new();
    for (index, event) in options.events.iter().enumerate() {
        if let Lane::Fast(program) = &event.lane {
            fast.push((event.name.as_str(), program, index as u32));
        }
    }
    if fast.is_empty() {
        return Ok(FastLinks::default());
    }
    let slots: Vec<u32> = fast.iter().map(|&(.., slot)| slot).collect();
    let (links, results) = programs.attach_fast(&fast, options.hooks)?;
    for (slot, result) in slots.into_iter().zip(results) {
        let Err(error) = result else { continue };
        let event = &mut options.events[slot as usize];
        if event.only_fast {
            return Err(ProbeError::Fast(error));
        }
        event.lane = Lane::Generic;
        event.lane_note = Some(error.to_string());
    }
    Ok(links)
}

/// Attaches the probes. Places that the kernel refuses are left out where a probe has many of them.
fn attach_probes(
    programs: &Programs,
    options: &CaptureOptions,
    left_out: &mut Vec<LeftOut>,
) -> Result<HookLinks, ProbeError> {
    let mut to_attach = Vec::new();
    for CaptureProbe { name, first_slot, programs } in &options.probes {
        let of = |program| ProbeToAttach { event: name, first_slot: *first_slot, program };
        to_attach.extend(programs.iter().map(of));
    }
    if to_attach.is_empty() {
        return Ok(HookLinks::default());
    }
    let slots: Vec<EventSlot> = options.events.iter().map(|event| event.slot).collect();
    let (links, refused) = programs.attach_probes(&to_attach, &slots)?;
    left_out.extend(refused.into_iter().map(|(event, reason)| LeftOut { event, reason }));
    Ok(links)
}

/// Attaches the events of the generic lane that have programs of their own.
fn attach_own(
    programs: &Programs,
    options: &CaptureOptions,
    left_out: &mut Vec<LeftOut>,
) -> Result<HookLinks, ProbeError> {
    let slots: Vec<EventSlot> = options.events.iter().map(|event| event.slot).collect();
    let mut to_attach: Vec<(&CaptureEvent, ProbeToAttach<'_>)> = Vec::new();
    for (slot, event) in options.events.iter().enumerate() {
        if let (Lane::Generic, Some(program)) = (&event.lane, &event.own) {
            to_attach.push((event, ProbeToAttach { event: &event.name, first_slot: slot as u32, program }));
        }
    }
    let (events, to_attach): (Vec<_>, Vec<_>) = to_attach.into_iter().unzip();
    let mut links = HookLinks::default();
    for (event, attached) in events.into_iter().zip(programs.attach_each(&to_attach, &slots)) {
        match attached {
            Ok(more) => links.append(more),
            Err(error) if event.required => return Err(error),
            Err(reason) => left_out.push(LeftOut { event: event.name.clone(), reason }),
        }
    }
    Ok(links)
}

/// Traces every thread of a process. The programs add what its traced threads create from now on; a thread
/// that one of the others creates while /proc is read shows in the next look.
fn trace_process(programs: &Programs, process: u32) {
    let mut known = std::collections::BTreeSet::new();
    loop {
        // A process that has ended has no threads; its pidfd ends the recording.
        let threads = proc::threads_of(process).unwrap_or_default();
        let before = known.len();
        for tid in threads {
            programs.trace_thread(tid);
            known.insert(tid);
        }
        if known.len() == before {
            return;
        }
    }
}

fn check_memory(options: &CaptureOptions) -> Result<(), CaptureError> {
    let ring = u64::from(options.ring_pages) * PAGE_SIZE as u64;
    let needed = ring.saturating_mul(options.cpus.len() as u64);
    // The kernel would rather start killing processes than refuse a large map.
    match proc::memory_available() {
        Ok(available) if needed > available / 10 * 9 => {
            Err(CaptureError::Memory { ring_kb: ring >> 10, cpus: options.cpus.len(), needed, available })
        }
        _ => Ok(()),
    }
}

/// Every attached event is a descriptor. Without enough of them hundreds of events would be refused one by
/// one, and in the end the command could not be started.
fn check_open_files(options: &CaptureOptions) -> Result<(), CaptureError> {
    // A link for each event, and its perf event or its program.
    let places: usize =
        options.probes.iter().flat_map(|probe| &probe.programs).map(|program| program.hooks.len()).sum();
    let needed = (2 * (options.events.len() + places) + options.cpus.len()) as u64 + OTHER_FILES;
    match rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        Some(limit) if limit < needed => {
            Err(CaptureError::OpenFiles { events: options.events.len(), needed, limit })
        }
        _ => Ok(()),
    }
}

fn program_options(options: &CaptureOptions) -> Result<ProgramOptions, Uncompiled> {
    Ok(ProgramOptions {
        clock: match options.clock {
            TraceClock::Mono => clock::MONO,
            TraceClock::Boot => clock::BOOT,
            TraceClock::Tai => clock::TAI,
        },
        overwrite: options.overwrite,
        filter_tasks: options.tasks.is_some(),
        follow_fork: options.tasks.as_ref().is_some_and(|filter| filter.follow_fork),
        exclude_tgid: options.exclude_self.then(std::process::id),
        possible_cpus: options.possible_cpus,
        ring_cpus: options.cpus.clone(),
        ring_pages: options.ring_pages,
        wake_pages: wake_pages(options.ring_pages),
        cpus_per_reader: CPUS_PER_THREAD,
        slots: options.events.iter().map(|event| event.slot).collect(),
        lanes: options.events.iter().map(|event| event.lane.clone()).collect(),
        filters: options
            .events
            .iter()
            // Programs of events' own have their filters.
            .map(|event| event.filter.as_ref().filter(|_| event.own.is_none()))
            .map(|filter| filter.map(|filter| filter.program.clone()))
            .collect(),
        scope: options.scope.as_ref().map(Scope::compile).transpose()?,
        hooks: options.hooks,
        strings: options.strings,
        layout: options.layout,
        preemptible: (options.probes.iter())
            .flat_map(|probe| &probe.programs)
            .any(HookProgram::is_preemptible),
        tracks_calls: (options.probes.iter())
            .flat_map(|probe| &probe.programs)
            .any(HookProgram::tracks_calls),
    })
}

fn drain_options(options: &CaptureOptions) -> DrainOptions {
    DrainOptions {
        cpus: options.cpus.clone(),
        ring_pages: options.ring_pages,
        compression: options.manifest.compression,
        cap: options.cap,
        deadline: options.poll_interval,
        switch: options.switch_period,
        overwrite: options.overwrite,
        // A quarter is for what comes to the data.
        most_bytes: (rustix::process::getrlimit(rustix::process::Resource::Fsize).current)
            .map(|limit| limit / 4 * 3),
    }
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

fn event_stats(programs: &Programs, options: &CaptureOptions) -> Vec<EventStats> {
    let mut stats = Vec::with_capacity(options.events.len());
    for (index, event) in options.events.iter().enumerate() {
        let mut sum = EventLedger::default();
        let mut sampled_out = 0;
        let mut lost_on = Vec::new();
        for &cpu in &options.cpus {
            let row = programs.ledger(cpu, index);
            sum.recorded += row.recorded;
            sum.cut += row.cut;
            sum.filtered += row.filtered;
            // One of each group is kept, the first.
            let group = u64::from(event.slot.sample.max(1));
            sampled_out += row.arrived - row.arrived.div_ceil(group);
            if row.lost.iter().any(|&lost| lost != 0) {
                lost_on.push((cpu, row.lost));
            }
            for (total, lost) in sum.lost.iter_mut().zip(row.lost) {
                *total += lost;
            }
        }
        stats.push(EventStats {
            name: event.name.clone(),
            id: event.slot.id,
            recorded: sum.recorded,
            filtered: sum.filtered,
            sampled_out,
            filter: event.filter.as_ref().map(|filter| filter.text.clone()),
            lost: sum.lost,
            lost_on,
            cut: sum.cut,
            lane: event.lane.name(),
            lane_note: event.lane_note.clone(),
        });
    }
    stats
}

fn padded(name: &[u8]) -> [u8; agent_ebpf::COMM_LEN] {
    let mut comm = [0; agent_ebpf::COMM_LEN];
    let len = name.len().min(comm.len() - 1);
    comm[..len].copy_from_slice(&name[..len]);
    comm
}
