//! perf's counters: one of each kind on every CPU, which programs read through a map.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

use bpf::sys;
use ftrace_event::counters::SOFTWARE;
pub use spec::Counter;
use stdx::handover::{Descriptors, Missing, Number};

/// include/uapi/linux/bpf.h, `BPF_MAP_TYPE_PERF_EVENT_ARRAY`.
const PERF_EVENT_ARRAY: u32 = 4;

/// Why a counter cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CounterError {
    /// The processor has none.
    #[error(
        "this machine has no counter {0}: its processor's counters cannot be used, as in many virtual machines; those of the kernel \
         work everywhere: perf:cpu-clock, perf:page-faults, perf:context-switches"
    )]
    Missing(String),
    /// The kernel refuses it.
    #[error("cannot open the counter {name} on CPU {cpu}: {source}")]
    Refused {
        /// The counter.
        name: String,
        /// The CPU.
        cpu: u32,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The map.
    #[error("the kernel refused to create the eBPF map of counters: {0}")]
    Map(#[source] io::Error),
}

/// The counters of a recording. They count, and programs that read them can be loaded, as long as this is
/// there.
#[derive(Debug, Default)]
pub struct Counters {
    cpus: Vec<u32>,
    possible_cpus: u32,
    /// With the map that programs read each through.
    open: Mutex<Vec<(Counter, OwnedFd)>>,
}

/// Counters on their way to another process.
#[derive(Debug, Serialize, Deserialize)]
pub struct CountersState {
    cpus: Vec<u32>,
    possible_cpus: u32,
    /// The kernel takes the counters out of a map when the descriptor is closed that they were put in through
    /// (`perf_event_fd_array_release`, kernel/bpf/arraymap.c): it is that one which goes on.
    open: Vec<(Counter, Number)>,
}

impl Counters {
    /// None yet, of these CPUs.
    pub fn new(cpus: Vec<u32>, possible_cpus: u32) -> Self {
        Self { cpus, possible_cpus, open: Mutex::default() }
    }

    /// How many descriptors it has open: of each counter a map, and one for each CPU.
    pub fn descriptors(&self) -> u64 {
        let each = self.cpus.len().saturating_add(1);
        self.opened().len().saturating_mul(each) as u64
    }

    /// Gives away those that are open: programs go on reading them.
    pub fn hand_over(&self, to: &mut Descriptors) -> CountersState {
        let open = std::mem::take(&mut *self.opened());
        let open = open.into_iter().map(|(counter, map)| (counter, to.put(map))).collect();
        CountersState { cpus: self.cpus.clone(), possible_cpus: self.possible_cpus, open }
    }

    /// Those that another process has given away.
    ///
    /// # Errors
    /// A descriptor is missing.
    pub fn take_over(state: CountersState, from: &mut Descriptors) -> Result<Self, Missing> {
        let CountersState { cpus, possible_cpus, open } = state;
        let open = open.into_iter().map(|(counter, map)| Ok((counter, from.take(map)?)));
        Ok(Self { cpus, possible_cpus, open: Mutex::new(open.collect::<Result<_, _>>()?) })
    }

    fn opened(&self) -> MutexGuard<'_, Vec<(Counter, OwnedFd)>> {
        // Nothing panics while it is held.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a counter on every CPU, if it is not open yet.
    pub(super) fn open(&self, counter: &Counter) -> Result<(), CounterError> {
        let mut open = self.opened();
        if open.iter().any(|(known, _)| known == counter) {
            return Ok(());
        }
        let map = sys::create_map(&sys::MapDefinition {
            kind: PERF_EVENT_ARRAY,
            key_size: 4,
            value_size: 4,
            max_entries: self.possible_cpus,
            flags: 0,
            name: c"counters",
            inner: None,
        })
        .map_err(CounterError::Map)?;
        for &cpu in &self.cpus {
            let event = sys::open_counter(counter.kind(), counter.config(), cpu)
                .map_err(|source| refused(counter, cpu, source))?;
            // The map keeps the event.
            sys::set_element(map.as_fd(), cpu, &event.as_raw_fd().to_ne_bytes())
                .map_err(|source| refused(counter, cpu, source))?;
        }
        open.push((counter.clone(), map));
        Ok(())
    }

    /// The map of an open counter.
    pub(super) fn map_of(&self, counter: &Counter) -> Option<RawFd> {
        self.opened().iter().find(|(known, _)| known == counter).map(|(_, map)| map.as_raw_fd())
    }
}

fn refused(counter: &Counter, cpu: u32, source: io::Error) -> CounterError {
    let name = counter.name().to_owned();
    match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP | libc::EINVAL | libc::ENXIO)
            if counter.kind() != SOFTWARE =>
        {
            CounterError::Missing(name)
        }
        _ => CounterError::Refused { name, cpu, source },
    }
}
