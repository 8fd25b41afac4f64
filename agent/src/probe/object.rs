//! The eBPF object: its programs loaded, its maps created and mapped.

use std::{
    os::fd::{AsFd as _, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use agent_ebpf::{EventLedger, EventSlot, NameRecord, TID_WORDS, globals};
use aya::{
    Ebpf, EbpfError, EbpfLoader,
    maps::{Map, MapData, RingBuf},
    programs::{Program, ProgramError, RawTracePoint, TracePoint},
};

use super::{kernel_layout::KernelLayout, tracepoint::generic_program};
use crate::{
    kernel::features::KernelVersion,
    reason,
    ring::{Control, Rings, Shared, SharedArray},
};

/// From here on tracepoint programs count what the recursion guard keeps from them.
const TRACEPOINT_MISSES_SINCE: KernelVersion = KernelVersion::new(6, 7, 0);

/// The eBPF programs, compiled from `agent-ebpf`.
static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("TRACER_AGENT_EBPF"));

/// How the programs record; constants to them.
#[derive(Clone, Debug)]
pub struct ProgramOptions {
    /// Which clock stamps the events: one of [`agent_ebpf::clock`].
    pub clock: u32,
    /// Reuse the oldest page instead of losing the newest event.
    pub overwrite: bool,
    /// Record only threads in the traced set.
    pub filter_tasks: bool,
    /// Let new processes of traced ones be traced too.
    pub follow_fork: bool,
    /// Thread group that is not recorded.
    pub exclude_tgid: Option<u32>,
    /// Possible CPUs: rows of the control and ledger maps.
    pub possible_cpus: u32,
    /// The CPUs that get a ring, in the order of their pages.
    pub ring_cpus: Vec<u32>,
    /// Pages in each ring.
    pub ring_pages: u32,
    /// Copying plan of each event; the position is the attach cookie.
    pub slots: Vec<EventSlot>,
    /// Where things are in this kernel's structures.
    pub layout: KernelLayout,
}

/// Why the programs could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Creating maps or relocating.
    #[error("the kernel refused to create the eBPF maps: {0}")]
    Maps(#[source] EbpfError),
    /// The rings are larger than one map can be.
    #[error(
        "{pages} pages for each of {cpus} CPUs are more than one eBPF map holds; use a smaller ring (-b)"
    )]
    TooManyPages {
        /// Pages in each ring.
        pages: u32,
        /// CPUs that get a ring.
        cpus: usize,
    },
    /// The verifier or a missing permission.
    #[error("the kernel refused the eBPF program {program}: {}", brief(source))]
    Program {
        /// Name of the program.
        program: &'static str,
        /// What the kernel said; holds the verifier's log.
        #[source]
        source: ProgramError,
    },
    /// The object and this binary do not fit together: a defect of the build.
    #[error("the embedded eBPF object has no usable {0}: build the agent again")]
    Missing(&'static str),
    /// Mapping a map's memory.
    #[error("cannot map the memory of the eBPF map {map}: {source}")]
    Mmap {
        /// Name of the map.
        map: &'static str,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
}

/// A refusal with the end of the verifier's log, where the reason is. The whole log has thousands of lines.
fn brief(error: &ProgramError) -> String {
    const LINES: usize = 12;
    let ProgramError::LoadError { io_error, verifier_log } = error else { return error.to_string() };
    let log = verifier_log.to_string();
    let lines: Vec<&str> = log.lines().collect();
    let end = lines[lines.len().saturating_sub(LINES)..].join("\n  ");
    if end.is_empty() { io_error.to_string() } else { format!("{io_error}; the verifier said:\n  {end}") }
}

impl LoadError {
    /// Whether the kernel's reason was a missing permission.
    pub fn is_permission(&self) -> bool {
        reason::io_kind(self) == Some(std::io::ErrorKind::PermissionDenied)
    }
}

/// Loaded programs and their memory. Dropping it frees the maps once no link holds a program any more.
#[derive(Debug)]
pub struct Programs {
    ebpf: Ebpf,
    /// The page rings.
    pub rings: Arc<Rings>,
    ledger: SharedArray<EventLedger>,
    traced: SharedArray<u64>,
    untraced: SharedArray<u64>,
    names: Option<NameStream>,
    slots: usize,
}

/// Names of the programs in the object.
pub(super) mod program {
    pub(crate) const GENERIC: &str = "generic_event";
    pub(crate) const GENERIC_LONG: &str = "generic_event_long";
    pub(crate) const GENERICS: [&str; 2] = [GENERIC, GENERIC_LONG];
    pub(crate) const LOCATE: &str = "locate_percpu";
    pub(crate) const TASK_CREATED: &str = "task_created";
    pub(crate) const TASK_RENAMED: &str = "task_renamed";
    pub(crate) const TASK_FREED: &str = "task_freed";
}

impl Programs {
    /// Creates the maps, loads every program and sets up each CPU's ring, all gates closed.
    pub fn load(options: &ProgramOptions) -> Result<Self, LoadError> {
        let slots = options.slots.len().max(1);
        let too_many =
            || LoadError::TooManyPages { pages: options.ring_pages, cpus: options.ring_cpus.len() };
        let pages = u32::try_from(options.ring_cpus.len())
            .ok()
            .and_then(|cpus| cpus.checked_mul(options.ring_pages))
            .ok_or_else(too_many)?
            .max(1);
        let ledger = u32::try_from(slots)
            .ok()
            .and_then(|slots| slots.checked_mul(options.possible_cpus))
            .ok_or_else(too_many)?;
        let mut ebpf = load_object(options, pages, ledger, slots as u32)?;

        let rings = Arc::new(Rings {
            pages: shared(&ebpf, "PAGES", pages as usize)?,
            meta: shared(&ebpf, "PAGE_META", pages as usize)?,
            control: shared(&ebpf, "CONTROL", options.possible_cpus as usize)?,
        });
        let events = shared::<EventSlot>(&ebpf, "EVENTS", slots)?;
        for (index, slot) in options.slots.iter().enumerate() {
            events.write(index, *slot);
        }
        for (index, &cpu) in options.ring_cpus.iter().enumerate() {
            if let Some(control) = Control::new(&rings.control, cpu) {
                control.set_ring(index as u32 * options.ring_pages, options.ring_pages);
            }
        }
        let names = ebpf.take_map("NAMES").ok_or(LoadError::Missing("map NAMES"))?;
        let names = RingBuf::try_from(names).map_err(|e| LoadError::Maps(e.into()))?;
        let ledger = shared(&ebpf, "LEDGER", ledger as usize)?;
        let traced = shared(&ebpf, "TRACED", TID_WORDS)?;
        let untraced = shared(&ebpf, "UNTRACED", TID_WORDS)?;
        let mut programs =
            Self { ebpf, rings, ledger, traced, untraced, names: Some(NameStream(names)), slots };
        programs.load_programs(&options.slots)?;
        Ok(programs)
    }

    /// Loads what these events need: verifying a generic program takes the kernel longer than everything else at the start.
    fn load_programs(&mut self, slots: &[EventSlot]) -> Result<(), LoadError> {
        let used = |generic| slots.iter().any(|slot| generic_program(slot) == generic);
        for (name, program) in self.ebpf.programs_mut() {
            let program_name = known_name(name);
            if program::GENERICS.contains(&program_name) && !used(program_name) {
                continue;
            }
            let result = match program {
                Program::TracePoint(p) => TracePoint::load(p),
                Program::RawTracePoint(p) => RawTracePoint::load(p),
                _ => return Err(LoadError::Missing("program type")),
            };
            result.map_err(|source| LoadError::Program { program: program_name, source })?;
        }
        Ok(())
    }

    /// The descriptor of a loaded program.
    pub(super) fn fd(&self, name: &'static str) -> Result<BorrowedFd<'_>, LoadError> {
        let program = self.ebpf.program(name).ok_or(LoadError::Missing(name))?;
        let fd = match program {
            Program::TracePoint(p) => p.fd(),
            Program::RawTracePoint(p) => p.fd(),
            _ => return Err(LoadError::Missing(name)),
        };
        Ok(fd.map_err(|source| LoadError::Program { program: name, source })?.as_fd())
    }

    /// The stream of thread names; the first caller gets it.
    pub fn take_names(&mut self) -> Option<NameStream> {
        self.names.take()
    }

    /// Adds a thread to the traced set.
    pub fn trace_thread(&self, tid: u32) {
        set_bit(&self.traced, tid);
    }

    /// Lets a thread no longer make an event interesting as its other thread.
    pub fn untrace_thread(&self, tid: u32) {
        set_bit(&self.untraced, tid);
    }

    /// The counts of event `slot` on `cpu`.
    pub fn ledger(&self, cpu: u32, slot: usize) -> EventLedger {
        self.ledger.read(cpu as usize * self.slots + slot).unwrap_or_default()
    }

    /// How often the kernel skipped the generic programs because another tracing program was running on the CPU, or `None`
    /// where the kernel does not say: tracepoint programs count it since 6.7 (`trace_call_bpf`,
    /// kernel/trace/bpf_trace.c). The count is over all events and CPUs.
    pub fn recursion_misses(&self) -> Option<u64> {
        use std::os::fd::AsRawFd as _;
        // Earlier kernels show the line too, and it stays 0.
        if KernelVersion::running()? < TRACEPOINT_MISSES_SINCE {
            return None;
        }
        let misses = |fd: BorrowedFd<'_>| -> Option<u64> {
            let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
            let line = info.lines().find_map(|line| line.strip_prefix("recursion_misses:"))?;
            line.trim().parse().ok()
        };
        // A program that no event needed is not loaded.
        program::GENERICS.into_iter().filter_map(|name| self.fd(name).ok()).map(misses).sum()
    }
}

/// Thread names in the order in which they became known.
pub struct NameStream(RingBuf<MapData>);

impl std::fmt::Debug for NameStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NameStream")
    }
}

impl NameStream {
    /// The next name that has arrived, if any. Makes no system call.
    pub fn next_name(&mut self) -> Option<NameRecord> {
        let item = self.0.next()?;
        let (tid, comm) = item.split_first_chunk::<4>()?;
        Some(NameRecord { tid: u32::from_ne_bytes(*tid), comm: *comm.first_chunk()? })
    }
}

fn set_bit(set: &SharedArray<u64>, tid: u32) {
    if let Some(word) = set.get(tid as usize / 64) {
        // SAFETY: the word is an aligned u64 in the mapping, and the programs change it atomically too.
        let word = unsafe { AtomicU64::from_ptr(word.as_ptr()) };
        word.fetch_or(1 << (tid % 64), Ordering::SeqCst);
    }
}

fn known_name(name: &str) -> &'static str {
    use program::{GENERIC, GENERIC_LONG, LOCATE, TASK_CREATED, TASK_FREED, TASK_RENAMED};
    [GENERIC, GENERIC_LONG, LOCATE, TASK_CREATED, TASK_RENAMED, TASK_FREED]
        .into_iter()
        .find(|known| *known == name)
        .unwrap_or("(unknown)")
}

fn load_object(options: &ProgramOptions, pages: u32, ledger: u32, slots: u32) -> Result<Ebpf, LoadError> {
    let layout = &options.layout;
    let preempt = layout.preempt_count.unwrap_or_default();
    let words = [
        (globals::CLOCK, options.clock),
        (globals::OVERWRITE, options.overwrite.into()),
        (globals::FILTER_TASKS, options.filter_tasks.into()),
        (globals::FOLLOW_FORK, options.follow_fork.into()),
        (globals::SELF_TGID, options.exclude_tgid.unwrap_or(0)),
        (globals::SLOTS, slots),
        (globals::TASK_PID, layout.task_pid),
        (globals::TASK_TGID, layout.task_tgid),
        (globals::TASK_COMM, layout.task_comm),
        (globals::TASK_MIGRATION, layout.task_migration),
        (globals::TASK_CFS_RQ, preempt.task_cfs_rq),
        (globals::CFS_RQ_RQ, preempt.cfs_rq_rq),
        (globals::RQ_CPU, preempt.rq_cpu),
        (globals::PREEMPT_NEED_RESCHED, cfg!(any(target_arch = "x86", target_arch = "x86_64")).into()),
    ];
    let mut loader = EbpfLoader::new();
    // The programs use no CO-RE relocations: offsets come as globals. This also loads on kernels without BTF.
    loader.btf(None);
    for (name, value) in &words {
        loader.override_global(name, value, true);
    }
    loader.override_global(globals::RQ_TO_PREEMPT, &preempt.rq_to_count, true);
    loader
        .map_max_entries("PAGES", pages)
        .map_max_entries("PAGE_META", pages)
        .map_max_entries("CONTROL", options.possible_cpus)
        .map_max_entries("EVENTS", slots)
        .map_max_entries("LEDGER", ledger);
    loader.load(OBJECT).map_err(LoadError::Maps)
}

fn shared<T: Shared>(ebpf: &Ebpf, name: &'static str, len: usize) -> Result<SharedArray<T>, LoadError> {
    match ebpf.map(name) {
        Some(Map::Array(data)) => {
            SharedArray::map(data.fd().as_fd(), len).map_err(|source| LoadError::Mmap { map: name, source })
        }
        _ => Err(LoadError::Missing(name)),
    }
}
