//! What the options of a recording mean for the machine, the programs, the readers and the spool.

use agent_ebpf::{PAGE_SIZE, clock};

use super::{
    CaptureError, CaptureEvent, RecordedChannel, SetOptions, StreamId,
    archive::ArchiveOptions,
    ctf,
    options::{CaptureOptions, ChannelOptions, TaskFilter},
    readers::{CPUS_PER_THREAD, ChannelReading, ReaderOptions, wake_pages},
    spool::has_room_for,
    watch::WatchOptions,
};
use attach::{KernelLayout, ProgramOptions};
use compile::hook::HookProgram;
use compile::scope::{Halves, Scope, ScopeError};
use kernel::cgroup::memory::Available;
use spec::TraceClock;
use stdx::output::Directory;
use tracedat::Compression;

/// Descriptors beside those of events and of CPUs' spools: programs, maps, pipes, and what the agent was
/// started with.
const OTHER_FILES: u64 = 16;
/// Those of them that each channel has.
const FILES_OF_CHANNEL: u64 = 32;
/// Those of an event of a watch: its program, link and perf event, and a generic program of its own.
pub(super) const FILES_OF_ADDED: usize = 4;
/// Disk space kept back for the parts of the file that are not trace data, beside the formats and symbols
/// themselves.
const RESERVE_MARGIN: u64 = 1 << 20;
/// What the kernel's symbols take at most, compressed and as they are.
const RESERVE_SYMBOLS: (u64, u64) = (2 << 20, 12 << 20);

pub(super) fn check_memory(options: &CaptureOptions) -> Result<(), CaptureError> {
    // Of all channels together.
    let ring_of =
        |of: &ChannelOptions| u64::from(of.ring_pages) * PAGE_SIZE as u64 * u64::from(of.set_count());
    let ring = options.channels.iter().map(ring_of).sum::<u64>();
    let needed = ring.saturating_mul(options.cpus.len() as u64);
    // The kernel would rather start killing processes than refuse a large map.
    match Available::read() {
        Ok(available) if needed > available.bytes / 10 * 9 => Err(CaptureError::Memory {
            ring_kb: ring >> 10,
            channels: options.channels.len(),
            cpus: options.cpus.len(),
            needed,
            available,
        }),
        _ => Ok(()),
    }
}

/// Every attached event is a descriptor. Without enough of them hundreds of events would be refused one by
/// one, and in the end the command could not be started. Events that may be added later are not among them:
/// adding one of them fails when there are none left.
pub(super) fn check_open_files(options: &CaptureOptions) -> Result<(), CaptureError> {
    let (events, needed) = (options.events().count(), open_files(options));
    match rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        Some(limit) if limit < needed => Err(CaptureError::OpenFiles { events, needed, limit }),
        _ => Ok(()),
    }
}

/// How many descriptors a recording needs from its start on.
fn open_files(options: &CaptureOptions) -> u64 {
    // A link for each event, and its perf event or its program.
    let attach_points: usize =
        options.channels.iter().flat_map(programs).map(|program| program.hooks.len()).sum();
    let events = options.events().count();
    let others = OTHER_FILES + FILES_OF_CHANNEL * options.channels.len() as u64;
    let streams = options.cpus.len() * options.rings_of_cpu();
    // Those of the archive, and of one more: the next one, or a snapshot.
    let spools = 2 * streams;
    let trace = options.trace.as_ref().map_or(0, |_| ctf::FILES_OF_TRACE + ctf::FILES_OF_STREAM * streams);
    (2 * (events + attach_points) + spools + trace) as u64 + others
}

/// The programs of a channel's probes.
fn programs(channel: &ChannelOptions) -> impl Iterator<Item = &HookProgram> {
    channel.probes.iter().flat_map(|probe| &probe.programs)
}

pub(super) fn program_options(
    options: &CaptureOptions,
    channel: &ChannelOptions,
    generation: u32,
) -> Result<ProgramOptions, ScopeError> {
    let threads = (options.tasks.as_ref(), options.scope.as_ref(), options.exclude_self);
    let cpus = (&options.cpus[..], options.possible_cpus, CPUS_PER_THREAD);
    let all = OfAll { clock: options.clock, threads, cpus, layout: options.layout };
    all.with(channel, generation)
}

/// The same for the programs of a watch, whose rings have one reader: those of the rule with this first slot,
/// or those that record nothing.
pub(super) fn watch_program_options(
    options: &WatchOptions,
    channel: &ChannelOptions,
    (rule, generation): (Option<u32>, u32),
) -> Result<ProgramOptions, ScopeError> {
    let threads = (options.threads.tasks.as_ref(), options.threads.scope.as_ref(), options.exclude_self);
    let cpus = (&options.cpus[..], options.possible_cpus, options.cpus.len());
    let all = OfAll { clock: options.clock, threads, cpus, layout: options.layout };
    Ok(ProgramOptions { wake_each: true, rule, ..all.with(channel, generation)? })
}

/// What the programs of all channels have in common.
struct OfAll<'a> {
    clock: TraceClock,
    /// Which are recorded, and whether this process's are left out.
    threads: (Option<&'a TaskFilter>, Option<&'a Scope>, bool),
    /// Those with rings, how many there can be, and how many share a reader.
    cpus: (&'a [u32], u32, usize),
    layout: KernelLayout,
}

impl OfAll<'_> {
    fn with(&self, channel: &ChannelOptions, generation: u32) -> Result<ProgramOptions, ScopeError> {
        let (tasks, scope, exclude_self) = self.threads;
        let (cpus, possible_cpus, cpus_per_reader) = self.cpus;
        Ok(ProgramOptions {
            clock: match self.clock {
                TraceClock::Mono => clock::MONO,
                TraceClock::Boot => clock::BOOT,
                TraceClock::Tai => clock::TAI,
            },
            overwrite: channel.overwrite,
            wake_each: false,
            rule: None,
            asking: channel.snapshot.map(|rule| rule.slot as u32),
            filter_tasks: tasks.is_some(),
            follow_fork: tasks.is_some_and(|filter| filter.follow_fork),
            exclude_tgid: exclude_self.then(std::process::id),
            possible_cpus,
            ring_cpus: cpus.to_vec(),
            ring_pages: channel.ring_pages,
            sets: channel.sets.as_ref().map(SetOptions::of_programs),
            wake_pages: wake_pages(channel.ring_pages),
            cpus_per_reader,
            slots: channel.events.iter().map(|event| event.slot).collect(),
            spare: channel.spare_events,
            generation,
            lanes: channel.events.iter().map(|event| event.lane.clone()).collect(),
            filters: channel
                .events
                .iter()
                // Programs of events' own have their filters.
                .map(|event| event.filter.as_ref().filter(|_| event.own.is_none()))
                .map(|filter| filter.map(|filter| filter.program.clone()))
                .collect(),
            own_strings: channel.events.iter().map(CaptureEvent::own_strings).collect(),
            scope: scope.map_or(0, Scope::bits),
            set_lines: scope.map(Halves::of).transpose()?.map_or(1, Halves::all_lines),
            hooks: channel.hooks,
            strings: channel.strings,
            layout: self.layout,
            preemptible: channel.facts().preemptible,
            tracks_calls: channel.facts().tracks_calls,
            map: channel.map,
        })
    }
}

/// The halves of the map of sets that programs ask threads for; `None` if they are not asked.
pub(super) fn halves(options: &CaptureOptions) -> Result<Option<Halves>, ScopeError> {
    options.scope.as_ref().map(Halves::of).transpose()
}

pub(super) fn reader_options(options: &CaptureOptions) -> ReaderOptions {
    let reading = |of: &ChannelOptions, number, set| ChannelReading {
        number: StreamId::in_set(number, set, 0).channel,
        first_ring: set as usize * options.cpus.len(),
        ring_pages: of.ring_pages,
        deadline: of.poll_interval,
        switch: of.switch_period,
        overwrite: of.overwrite,
    };
    let of_channel = |(number, of): (u32, _)| {
        let of: &ChannelOptions = of;
        (0..of.set_count()).map(move |set| reading(of, number, set))
    };
    ReaderOptions {
        channels: options.numbered().flat_map(of_channel).collect(),
        compression: options.manifest.compression,
        // A quarter is for what comes to the data.
        most_bytes: (rustix::process::getrlimit(rustix::process::Resource::Fsize).current)
            .map(|limit| limit / 4 * 3),
    }
}

/// What an archive of these channels needs.
pub(super) fn archive_options(
    options: &CaptureOptions,
    channels: &[RecordedChannel],
    dir: &Directory,
) -> ArchiveOptions {
    ArchiveOptions {
        streams: options.cpus.len() * channels.len(),
        clock: options.clock,
        reserve: reserve(options, dir),
        reserve_for_rings: reserve_for_rings(options, channels, dir),
    }
}

/// The space that is set aside for what flight recorders hold until the end, beside others.
fn reserve_for_rings(options: &CaptureOptions, channels: &[RecordedChannel], dir: &Directory) -> u64 {
    /// Pages are compressed to less than a part of so many, nearly always.
    const COMPRESSED: u64 = 4;
    if channels.iter().all(|channel| channel.overwrite) {
        return 0;
    }
    let rings = options.channels.iter().filter(|of| of.overwrite);
    let pages = rings.map(|of| u64::from(of.ring_pages) * u64::from(of.set_count())).sum::<u64>()
        * options.cpus.len() as u64;
    let bytes = pages * PAGE_SIZE as u64;
    let bytes = match options.manifest.compression {
        Compression::None => bytes,
        Compression::Zstd { .. } => bytes / COMPRESSED,
    };
    // Half of the disk at most: what the others store comes to it.
    if dir.free_bytes().is_ok_and(|free| bytes <= free / 2) { bytes } else { 0 }
}

/// The space that is set aside in the spool.
fn reserve(options: &CaptureOptions, dir: &Directory) -> u64 {
    let formats: usize = options.manifest.systems.iter().flat_map(|(_, f)| f).map(String::len).sum();
    let for_symbols = match (wants_symbols(options), options.manifest.compression) {
        (false, _) => 0,
        (true, Compression::None) => RESERVE_SYMBOLS.1,
        (true, Compression::Zstd { .. }) => RESERVE_SYMBOLS.0,
    };
    // What is left of a disk that is nearly full is the data's.
    let for_symbols = if has_room_for(dir, for_symbols) { for_symbols } else { 0 };
    RESERVE_MARGIN + for_symbols + formats as u64
}

pub(super) fn wants_symbols(options: &CaptureOptions) -> bool {
    options.symbols.wanted(|| options.events().any(|event| event.prints_symbols))
}
