//! What is watched, planned for the running kernel.

use std::sync::Arc;

use agent_ebpf::{
    CpuControl, EventLedger, EventSlot, NAMES_BYTES, PAGE_SIZE, PageMeta, SIDE_BYTES_OF_WATCH, SYSCALL_SLOTS,
    StringNote, SyscallSlot, TID_WORDS, WAKE_BYTES, rate,
};

use super::decode::Decoder;
use crate::needs::FILES_OF_ADDED;
use crate::{CaptureEvent, CaptureOptions, CaptureProbe, TaskFilter};
use attach::{KernelLayout, SharedMaps};
use compile::context::Counters;
use compile::fast::Hooks;
use compile::scope::Scope;
use spec::StringLimit;
use spec::TraceClock;

/// How is watched; made by `plan::watch_options`, or of a recording by
/// [`Session::watch_options`](crate::Session::watch_options), and of maps by
/// [`Counting::watch_options`](crate::Counting::watch_options).
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Clock of the time stamps.
    pub clock: TraceClock,
    /// Pages in each CPU's ring.
    pub ring_pages: u32,
    /// How many events there can be at a time, over all rules.
    pub events: usize,
    /// Leave out events of this process's own threads.
    pub exclude_self: bool,
    /// CPUs whose events are watched.
    pub cpus: Vec<u32>,
    /// One more than the highest possible CPU id.
    pub possible_cpus: u32,
    /// The counters that captured contexts read.
    pub counters: Arc<Counters>,
    /// Where things are in this kernel's structures.
    pub layout: KernelLayout,
    /// Whose events are watched.
    pub threads: Threads,
}

/// Whose events are watched: those of all threads, or those that a recording is of.
#[derive(Clone, Debug, Default)]
pub struct Threads {
    pub(crate) tasks: Option<TaskFilter>,
    pub(crate) scope: Option<Scope>,
    /// The sets of threads that the recording keeps.
    pub(crate) maps: Option<Arc<SharedMaps>>,
}

impl WatchOptions {
    /// Pages in each CPU's ring where nothing else is said.
    pub const RING_PAGES: u32 = 64;
    /// Events at a time where nothing else is said.
    pub const EVENTS: usize = 1024;
    /// File descriptors of a watch without rules, or some more.
    pub const FILES: u64 = 64;

    /// Bytes of memory that a watch without rules takes, but for some KB: rings, counts and sets of threads.
    pub fn bytes(&self) -> u64 {
        let size = |bytes: usize| bytes as u64;
        let (events, pages) = (size(self.events.max(1)), u64::from(self.ring_pages));
        let of_ring = pages * size(PAGE_SIZE + size_of::<PageMeta>()) + size(SIDE_BYTES_OF_WATCH);
        let of_row =
            events * size(size_of::<EventLedger>()) + size(size_of::<CpuControl>() + size_of::<StringNote>());
        // A word for places, one for the rate, and one that says whether it is recorded.
        let of_event = size(size_of::<EventSlot>() + size_of::<EventLedger>() + 3 * size_of::<u64>());
        let of_threads = 3 * size(TID_WORDS * size_of::<u64>()) + u64::from(NAMES_BYTES);
        let of_calls = size(SYSCALL_SLOTS * size_of::<SyscallSlot>());
        let of_groups = size(rate::GROUPS * size_of::<rate::Group>());
        let of_all = of_threads + of_calls + of_groups + u64::from(WAKE_BYTES);
        size(self.cpus.len()) * of_ring + u64::from(self.possible_cpus) * of_row + events * of_event + of_all
    }

    /// Of the threads, the CPUs and the clock of a recording, whose sets of threads are in these maps.
    pub(crate) fn beside(options: &CaptureOptions, maps: SharedMaps) -> Self {
        let (tasks, scope) = (options.tasks.clone(), options.scope.clone());
        Self {
            clock: options.clock,
            ring_pages: Self::RING_PAGES,
            events: Self::EVENTS,
            exclude_self: options.exclude_self,
            cpus: options.cpus.clone(),
            possible_cpus: options.possible_cpus,
            counters: Arc::clone(&options.counters),
            layout: options.layout,
            threads: Threads { tasks, scope, maps: Some(Arc::new(maps)) },
        }
    }
}

/// A rule that is ready to be watched; made by `plan::watch_rule`.
#[derive(Clone, Debug)]
pub struct WatchRule {
    /// The events.
    pub events: Vec<CaptureEvent>,
    /// The probes after those of them that take the lane [`Lane::Probe`](compile::fast::Lane::Probe).
    pub probes: Vec<CaptureProbe>,
    /// Where the fast lane's system call programs are attached, if an event needs them.
    pub hooks: Option<Hooks>,
    /// How much is told of strings that system calls are given.
    pub strings: StringLimit,
    /// What reads the records of each event, in their order.
    pub decoders: Vec<Arc<Decoder>>,
}

impl WatchRule {
    /// The events that it watches, as `system:name`.
    pub fn events(&self) -> impl ExactSizeIterator<Item = &str> {
        self.events.iter().map(|event| event.name.as_str())
    }

    /// File descriptors that it takes while it is watched, at most.
    pub fn files(&self) -> u64 {
        (self.events.len() * FILES_OF_ADDED) as u64
    }
}
