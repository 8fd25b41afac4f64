//! Maps that events are counted in, while they are counted.
//!
//! | file | subject |
//! |---|---|
//! | `contents` | what is in a map |
//! | `alone` | a recording that has maps and nothing else |
//! | `handover` | maps that another process goes on with |
//! | `told` | what is in a map, as it is told |
//!
//! A map has a program object of its own, with a gate of each CPU as a channel has; its events are attached
//! as a channel's are. There is no ring, and nobody who reads until somebody asks.

mod alone;
mod contents;
mod handover;
mod told;

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize};

pub use alone::Counting;
pub use contents::{Entry, KeyValue, Losses, MapContents, Numbers, program_function};
pub(super) use handover::HandedMaps;
pub use told::{counted_map, kernel_symbols};

use super::{
    CaptureError, LeftOut,
    attaching::attach,
    channel::Links,
    needs::program_options,
    options::{CaptureOptions, ChannelOptions},
};
use agent_ebpf::{EventLedger, LossCause, aggregates::LOST_WORDS};
use attach::ring::{Control, SharedArray};
use attach::{Programs, SharedMaps};
use bpf::LoadError;
use compile::aggregate::{PartKind, Sizes};
use kernel::cgroup::memory::Available;
use spec::MapSpec;

/// A map to count in.
#[derive(Clone, Debug)]
pub struct MapOptions {
    /// What was asked for.
    pub spec: MapSpec,
    /// What the parts of its keys are, in the order of [`MapSpec::by`].
    pub kinds: Vec<PartKind>,
    /// Whether its values can be negative.
    pub is_signed: bool,
    /// Its memory.
    pub sizes: Sizes,
    /// Its events: the one that is counted, and the one that times begin with.
    pub channel: ChannelOptions,
}

impl MapOptions {
    /// The event that is counted, as `system:name`.
    pub fn event(&self) -> &str {
        self.channel.events.first().map_or("", |event| &event.name)
    }
}

/// The maps of a recording. Dropping it detaches their programs.
#[derive(Debug)]
pub struct Maps {
    all: Vec<Map>,
    cpus: Vec<u32>,
    left_out: Vec<LeftOut>,
}

#[derive(Debug)]
struct Map {
    // They come first: they are handed over before the programs are dropped.
    links: Vec<Links>,
    programs: Programs,
    options: MapOptions,
    memory: Memory,
    /// Times that were forgotten in pauses.
    forgotten: AtomicU64,
    /// What was counted of events without an entry when it was emptied.
    before: Mutex<Before>,
}

/// Counts that do not begin anew when a map is emptied.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Before {
    filtered: u64,
    own_threads: u64,
    rate_limited: u64,
    skipped: u64,
}

/// A map's memory, which programs change at any time.
#[derive(Debug)]
struct Memory {
    index: SharedArray<u64>,
    keys: SharedArray<u64>,
    values: SharedArray<u64>,
    starts: SharedArray<u64>,
    taken: SharedArray<u64>,
    lost: SharedArray<u64>,
    /// CPUs, each of which has values of its own.
    rows: usize,
}

impl Memory {
    fn of(programs: &Programs, sizes: Sizes, rows: u32) -> Result<Self, LoadError> {
        let words = |elements: u32, words: u32| elements as usize * words as usize;
        let shared = |name, len| programs.memory(name, len);
        Ok(Self {
            index: shared("AGGREGATE_INDEX", sizes.index() as usize)?,
            keys: shared("AGGREGATE_KEYS", words(sizes.keys, sizes.key_words.max(1)))?,
            values: shared("AGGREGATE_VALUES", words(sizes.keys, sizes.value_words) * rows as usize)?,
            starts: shared("AGGREGATE_STARTS", words(sizes.starts(), 1 + sizes.pair_words))?,
            taken: shared("AGGREGATE_TAKEN", 1)?,
            lost: shared("AGGREGATE_LOST", LOST_WORDS * rows as usize)?,
            rows: rows as usize,
        })
    }
}

impl Map {
    /// What its events have counted since it was made.
    fn ledgers(&self, cpus: &[u32]) -> impl Iterator<Item = EventLedger> {
        let slots = self.options.channel.events.len();
        let counted = self.programs.rings_of(cpus).filter_map(|ring| self.programs.counts(ring));
        counted.flat_map(move |counts| counts.rows.into_iter().take(slots))
    }

    /// Events that were refused since it was made.
    fn refused(&self, cpus: &[u32]) -> Before {
        let mut refused = Before::default();
        for event in self.ledgers(cpus) {
            refused.filtered += event.filtered;
            refused.own_threads += event.own;
            refused.rate_limited += event.lost[LossCause::RateLimit as usize];
        }
        refused
    }

    /// How often the kernel did not call its programs since it was made, if it counts that: those that it
    /// skipped, and returns that it does not report.
    fn skipped(&self, cpus: &[u32]) -> Option<u64> {
        let programs =
            self.links.iter().flat_map(|links| self.programs.misses(&links.fast, &links.probes).programs);
        let skipped: Option<u64> = programs.map(|of| of.misses).sum();
        let unreported: u64 = self.ledgers(cpus).map(|event| event.lost[LossCause::Nested as usize]).sum();
        skipped.map(|skipped| skipped + unreported)
    }

    fn before(&self) -> Before {
        *self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Empties it. Nothing is counted, and all programs have returned.
    fn clear(&self, cpus: &[u32]) {
        let Memory { index, keys, values, starts, taken, lost, rows: _ } = &self.memory;
        // Programs that run later find no key without its values, and no word without its key.
        for memory in [index, taken, lost, starts, values, keys] {
            (0..memory.len()).for_each(|at| memory.store(at, 0));
        }
        self.forgotten.store(0, Ordering::Relaxed);
        let before = Before { skipped: self.skipped(cpus).unwrap_or_default(), ..self.refused(cpus) };
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = before;
    }
}

impl Maps {
    /// Creates the maps and loads their programs, with maps of programs that were loaded before.
    pub(super) fn load(options: &CaptureOptions, given: Option<&SharedMaps>) -> Result<Self, CaptureError> {
        let needed = options.maps.iter().map(|map| map.sizes.bytes(options.possible_cpus)).sum::<u64>();
        // The kernel would rather start killing processes than refuse a large map.
        match Available::read() {
            Ok(available) if needed > available.bytes / 10 * 9 => {
                return Err(CaptureError::MapMemory { needed, available });
            }
            _ => {}
        }
        let mut maps: Vec<Map> = Vec::with_capacity(options.maps.len());
        for map in &options.maps {
            let of_first = match (given, maps.first()) {
                (None, Some(first)) => Some(first.programs.shared_maps()?),
                _ => None,
            };
            let programs =
                Programs::load(&program_options(options, &map.channel, 0)?, given.or(of_first.as_ref()))?;
            let memory = Memory::of(&programs, map.sizes, options.possible_cpus)?;
            maps.push(Map {
                links: Vec::new(),
                programs,
                options: map.clone(),
                memory,
                forgotten: AtomicU64::new(0),
                before: Mutex::default(),
            });
        }
        Ok(Self { all: maps, cpus: options.cpus.clone(), left_out: Vec::new() })
    }

    /// Attaches their events. Nothing is counted before the gates are open.
    pub(super) fn attach(&mut self) -> Result<(), CaptureError> {
        for map in &mut self.all {
            // What ends a time comes before what begins the next one, where both are of one event.
            for slot in 0..map.options.channel.events.len() {
                let mut links = Links::default();
                let slots = slot..slot + 1;
                let attached =
                    attach(&mut map.programs, &mut links, &mut map.options.channel, &slots, &mut |_| ())?;
                self.left_out.extend(attached);
                map.links.push(links);
            }
        }
        Ok(())
    }

    /// The programs of the first map.
    fn first(&self) -> Option<&Programs> {
        self.all.first().map(|map| &map.programs)
    }

    /// The gates of these CPUs.
    pub(super) fn controls<'a>(&'a self, cpus: &[u32]) -> impl Iterator<Item = Control<'a>> {
        let cpus = cpus.to_vec();
        self.all.iter().flat_map(move |map| {
            let rings: Vec<_> = map.programs.rings_of(&cpus).collect();
            rings.into_iter().filter_map(|ring| map.programs.rings.control(ring))
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Attach points of their events that the kernel refused, and that were not required.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// What is in the map of this number now. It can be asked at any moment, also while events are counted:
    /// then what is counted at this very moment may be in one number and not in another.
    pub fn contents(&self, map: usize) -> Option<MapContents> {
        let map = self.all.get(map)?;
        let mut contents = contents::read(&map.options, &map.memory);
        let (now, before) = (map.refused(&self.cpus), map.before());
        let skipped = map.skipped(&self.cpus);
        contents.losses.skipped = skipped.map(|skipped| skipped.saturating_sub(before.skipped));
        contents.losses.filtered = now.filtered.saturating_sub(before.filtered);
        contents.losses.own_threads = now.own_threads.saturating_sub(before.own_threads);
        contents.losses.rate_limited = now.rate_limited.saturating_sub(before.rate_limited);
        contents.losses.forgotten += map.forgotten.load(Ordering::Relaxed);
        Some(contents)
    }

    /// How many events the map of this number has counted: those of all keys, and those whose key there was
    /// no room for, or could not be read. 0 where there is no such map.
    pub fn events(&self, map: usize) -> u64 {
        self.all.get(map).map_or(0, |map| contents::events(&map.options, &map.memory))
    }

    /// How many events of all keys each CPU has counted in the map of this number, by the CPU's id. It is
    /// there without a key for it, as each CPU has values of its own.
    pub fn by_cpu(&self, map: usize) -> Vec<u64> {
        self.all.get(map).map_or_else(Vec::new, |map| contents::by_cpu(&map.options, &map.memory))
    }

    /// What is in all maps, in their order, with what was asked for.
    pub fn all(&self) -> impl Iterator<Item = (&MapOptions, MapContents)> {
        self.all.iter().enumerate().filter_map(|(index, map)| Some((&map.options, self.contents(index)?)))
    }

    /// Forgets the times that have begun, after a pause in which they may have ended. Nothing is counted, and
    /// all programs have returned.
    pub(super) fn forget_open(&self) {
        for map in &self.all {
            let forgotten = contents::forget_open(&map.options, &map.memory);
            map.forgotten.fetch_add(forgotten, Ordering::Relaxed);
        }
    }

    /// Empties all of them. Nothing is counted, and all programs have returned.
    fn clear(&self) {
        self.all.iter().for_each(|map| map.clear(&self.cpus));
    }

    /// How often the kernel did not call the programs of the map of this number; `None` where it does not
    /// count that.
    pub fn skipped(&self, map: usize) -> Option<u64> {
        let map = self.all.get(map)?;
        Some(map.skipped(&self.cpus)?.saturating_sub(map.before().skipped))
    }

    fn set_enabled(&self, enabled: bool) {
        for control in self.controls(&self.cpus) {
            control.set_enabled(enabled);
        }
    }
}

/// Loads and attaches the maps of a recording that has channels, too; `None` if it has none.
pub(super) fn beside(options: &CaptureOptions, first: &Programs) -> Result<Option<Arc<Maps>>, CaptureError> {
    if options.maps.is_empty() {
        return Ok(None);
    }
    let mut maps = Maps::load(options, Some(&first.shared_maps()?))?;
    maps.attach()?;
    Ok(Some(Arc::new(maps)))
}

/// Why threads could not be looked at.
fn threads(error: io::Error) -> CaptureError {
    CaptureError::Threads(error)
}
