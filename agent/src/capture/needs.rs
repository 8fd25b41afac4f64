//! What the options of a recording mean for the machine, the programs, the readers and the spool.

use agent_ebpf::{PAGE_SIZE, clock};

use super::{
    CaptureError,
    archive::ArchiveOptions,
    options::CaptureOptions,
    readers::{CPUS_PER_THREAD, ReaderOptions, wake_pages},
    spool::has_room_for,
};
use crate::{
    attach::ProgramOptions,
    compile::{filter::Uncompiled, hook::HookProgram, scope::Scope},
    kernel::{clock::TraceClock, proc},
    output::Directory,
    tracedat::Compression,
};

/// Descriptors beside those of events and of CPUs' spools: programs, maps, pipes, and what the agent was
/// started with.
const OTHER_FILES: u64 = 48;
/// Disk space kept back for the parts of the file that are not trace data, beside the formats and symbols
/// themselves.
const RESERVE_MARGIN: u64 = 1 << 20;
/// What the kernel's symbols take at most, compressed and as they are.
const RESERVE_SYMBOLS: (u64, u64) = (2 << 20, 12 << 20);

pub(super) fn check_memory(options: &CaptureOptions) -> Result<(), CaptureError> {
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
pub(super) fn check_open_files(options: &CaptureOptions) -> Result<(), CaptureError> {
    // A link for each event, and its perf event or its program.
    let places: usize =
        options.probes.iter().flat_map(|probe| &probe.programs).map(|program| program.hooks.len()).sum();
    // Those of the archive, and of one more: the next one, or a snapshot.
    let spools = 2 * options.cpus.len();
    let needed = (2 * (options.events.len() + places) + spools) as u64 + OTHER_FILES;
    match rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        Some(limit) if limit < needed => {
            Err(CaptureError::OpenFiles { events: options.events.len(), needed, limit })
        }
        _ => Ok(()),
    }
}

pub(super) fn program_options(options: &CaptureOptions) -> Result<ProgramOptions, Uncompiled> {
    Ok(ProgramOptions {
        clock: match options.clock {
            TraceClock::Mono => clock::MONO,
            TraceClock::Boot => clock::BOOT,
            TraceClock::Tai => clock::TAI,
        },
        overwrite: options.overwrite,
        asking: options.snapshot.map(|rule| rule.slot as u32),
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

pub(super) fn reader_options(options: &CaptureOptions) -> ReaderOptions {
    ReaderOptions {
        ring_pages: options.ring_pages,
        compression: options.manifest.compression,
        deadline: options.poll_interval,
        switch: options.switch_period,
        overwrite: options.overwrite,
        // A quarter is for what comes to the data.
        most_bytes: (rustix::process::getrlimit(rustix::process::Resource::Fsize).current)
            .map(|limit| limit / 4 * 3),
    }
}

pub(super) fn archive_options(options: &CaptureOptions, dir: &Directory) -> ArchiveOptions {
    ArchiveOptions {
        cpus: options.cpus.len(),
        overwrite: options.overwrite,
        clock: options.clock,
        reserve: reserve(options, dir),
    }
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
    options.symbols.wanted(|| options.events.iter().any(|event| event.prints_symbols))
}
