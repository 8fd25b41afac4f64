//! The programs of a channel: loaded, attached, enabled, and what they have counted.

mod handover;

use std::{
    collections::{BTreeMap, HashMap},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

pub use self::handover::{ChannelMaps, PartState, ProgramsState};
use super::{
    ProbeError,
    border::{Borders, EventCounts},
    fast::{FastError, FastLinks, FastResults, Loader},
    hook::{self, HookLinks, ToAttach},
    misses::{Misses, RecursionMisses},
    object::{ProgramOptions, calls_of, create_object, groups_of, has_late_strings, with_groups},
    switch::PageSwitch,
    tracepoint,
};
use crate::ring::{CpuCounts, RingId, Rings, Shared, SharedArray, WakeStream};
use agent_ebpf::{EventLedger, EventSlot, SYSCALL_SLOTS, SyscallSlot, sets::Owner};
use bpf::load::{LoadError, Object, SharedMaps, ToLoad, side_by_side};
use bpf::program::Recorded;
use bpf::sys;
use compile::fast::{FastEvent, Hooks, Lane, Table};
use compile::generic::GenericProgram;
use compile::hook::HookProgram;
use kernel::features;
use kernel::version::KernelVersion;

/// From here on tracepoint programs count what the recursion guard keeps from them.
const TRACEPOINT_MISSES_SINCE: KernelVersion = KernelVersion::new(6, 7, 0);

/// A program of probes, and the events that it records.
#[derive(Clone, Copy, Debug)]
pub struct ProbeToAttach<'a> {
    /// What errors call it: `system:name`.
    pub event: &'a str,
    /// Slot of its first event. The others follow.
    pub first_slot: u32,
    /// The program.
    pub program: &'a HookProgram,
}

/// Loaded programs and their memory. Dropping it frees the maps once no link holds a program any more.
#[derive(Debug)]
pub struct Programs {
    /// For programs that turn out to be needed later, and that others are added to.
    object: Option<Object>,
    /// By name.
    loaded: BTreeMap<&'static str, OwnedFd>,
    /// Those of the generic lane.
    generic: HashMap<GenericProgram, OwnedFd>,
    /// The same of those that another process has attached, by name.
    inherited: Vec<(String, OwnedFd)>,
    /// The page rings.
    pub rings: Arc<Rings>,
    /// Whose the sets of rings are, where there are several.
    owners: Option<Arc<SharedArray<Owner>>>,
    events: Arc<EventCounts>,
    wake: Vec<WakeStream>,
    /// The copying plans of the events.
    plans: Arc<SharedArray<EventSlot>>,
    /// Which events are recorded, where they come and go.
    enabled: Option<Arc<SharedArray<u64>>>,
    /// What that says of those that these programs record.
    generation: u32,
    /// How many events there can be.
    slots: usize,
    late_strings: bool,
    tracks_calls: bool,
    /// Whether they count in a map instead of recording.
    count: bool,
}

/// How large the maps are.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    rows: u32,
    pages: u32,
    ledger: u32,
    slots: usize,
}

impl Sizes {
    /// Those for so many events.
    fn of(options: &ProgramOptions, slots: usize) -> Result<Self, LoadError> {
        let too_many =
            || LoadError::TooManyPages { pages: options.ring_pages, cpus: options.ring_cpus.len() };
        let sets = options.set_count();
        let rows = options.possible_cpus.checked_mul(sets).ok_or_else(too_many)?;
        let pages = u32::try_from(options.ring_cpus.len())
            .ok()
            .and_then(|cpus| cpus.checked_mul(sets)?.checked_mul(options.ring_pages))
            .ok_or_else(too_many)?
            .max(1);
        let ledger =
            u32::try_from(slots).ok().and_then(|slots| slots.checked_mul(rows)).ok_or_else(too_many)?;
        Ok(Self { rows, pages, ledger, slots })
    }

    fn of_maps(&self) -> [u32; 3] {
        [self.pages, self.ledger, self.slots as u32]
    }
}

/// Maps that the programs of all channels of a recording use: the sets of threads, and the streams beside the
/// pages.
const OF_A_RECORDING: &[&str] = &[
    "TRACED",
    "UNTRACED",
    "SCOPED",
    "SETS",
    "NAMES",
    "WAKE",
    #[cfg(feature = "debug-programs")]
    "AYA_LOGS",
];

/// Those of them that say which threads are recorded.
const OF_THREADS: [&str; 4] = ["TRACED", "UNTRACED", "SCOPED", "SETS"];

/// Maps that all programs of a channel use beside these: the rings with what belongs to them, and the counts.
const OF_A_CHANNEL: [&str; 11] = [
    "OWNERS",
    "PAGES",
    "PAGE_META",
    "CONTROL",
    "SIDE",
    "EVENTS",
    "ENABLED",
    "LEDGER",
    "BORDER",
    "BORDER_ROWS",
    "RATES",
];

/// Maps that the programs of a map that counts use beside these.
const OF_A_COUNTING_MAP: [&str; 6] = [
    "AGGREGATE_INDEX",
    "AGGREGATE_KEYS",
    "AGGREGATE_VALUES",
    "AGGREGATE_STARTS",
    "AGGREGATE_TAKEN",
    "AGGREGATE_LOST",
];

/// Names of the programs in the object.
pub(crate) mod program {
    pub(crate) const FLUSH_SIDE: &str = "flush_side";
    pub(crate) const SWITCH_PAGE: &str = "switch_page";
    pub(crate) const MARK_BORDER: &str = "mark_border";
    pub(crate) const TASK_CREATED: &str = "task_created";
    pub(crate) const TASK_RENAMED: &str = "task_renamed";
    pub(crate) const TASK_FREED: &str = "task_freed";
    /// What every recording needs.
    pub(crate) const ALWAYS: [&str; 5] = [FLUSH_SIDE, SWITCH_PAGE, TASK_CREATED, TASK_RENAMED, TASK_FREED];
}

impl Programs {
    /// Creates the maps, loads every program and sets up each CPU's ring, all gates closed. `maps` are those
    /// of programs that belong to the same recording.
    pub fn load(options: &ProgramOptions, maps: Option<&SharedMaps>) -> Result<Self, LoadError> {
        let sizes = Sizes::of(options, (options.slots.len() + options.spare).max(1))?;
        let calls = calls_of(options, |_| true);
        let groups = groups_of(options, |_| true);
        let object = create_object(options, &calls, sizes.of_maps(), &groups, maps)?;
        let programs = Self::of_object(object, options, &sizes)?;
        for (index, slot) in options.slots.iter().enumerate() {
            programs.plans.write(index, with_groups(*slot, index as u32, &groups));
            if let Some(enabled) = &programs.enabled {
                enabled.write(index, options.generation.into());
            }
        }
        write_calls(programs.object()?, &calls)?;
        programs.set_rings(options);
        let loaded = programs.object()?.load_all(&program::ALWAYS.map(ToLoad::plain))?;
        let loaded = program::ALWAYS.into_iter().zip(loaded).collect();
        let generic = load_generic(programs.object()?, options, |_| true)?;
        let late_strings = has_late_strings(options, &calls);
        Ok(Self { loaded, generic, late_strings, tracks_calls: options.tracks_calls, ..programs })
    }

    /// Without a program, with the memory that the object's maps are.
    fn of_object(object: Object, options: &ProgramOptions, sizes: &Sizes) -> Result<Self, LoadError> {
        let slots = sizes.slots;
        let rings = Arc::new(Rings::new(
            shared(&object, "PAGES", sizes.pages as usize)?,
            shared(&object, "PAGE_META", sizes.pages as usize)?,
            shared(&object, "CONTROL", sizes.rows as usize)?,
            options.possible_cpus,
        ));
        let plans = shared::<EventSlot>(&object, "EVENTS", slots)?;
        let enabled =
            (options.spare != 0).then(|| shared::<u64>(&object, "ENABLED", slots)).transpose()?.map(Arc::new);
        let sets = options.set_count() as usize;
        let owners = options.sets.map(|_| shared::<Owner>(&object, "OWNERS", sets)).transpose()?;
        let failed = |source| LoadError::Mmap { map: "WAKE", source };
        let wake = object.inner("WAKE").iter().map(|ring| ring.try_clone().and_then(WakeStream::map));
        let wake = wake.collect::<Result<_, _>>().map_err(failed)?;
        let ids = options.slots.iter().map(|slot| slot.id);
        let ledger = shared(&object, "LEDGER", sizes.ledger as usize)?;
        let events = Arc::new(EventCounts::new(ledger, ids, slots));
        Ok(Self {
            object: Some(object),
            loaded: BTreeMap::new(),
            generic: HashMap::new(),
            inherited: Vec::new(),
            rings,
            owners: owners.map(Arc::new),
            events,
            wake,
            plans: Arc::new(plans),
            enabled,
            generation: options.generation,
            slots,
            late_strings: false,
            tracks_calls: false,
            count: options.map.is_some(),
        })
    }

    /// Tells each CPU which ring it has.
    fn set_rings(&self, options: &ProgramOptions) {
        let cpus = options.ring_cpus.len() as u32;
        for (set, (index, &cpu)) in
            (0..options.set_count()).flat_map(|set| (0..).zip(&options.ring_cpus).map(move |of| (set, of)))
        {
            let id = RingId { cpu, set };
            if let Some((control, row)) = self.rings.control(id).zip(self.rings.row(id)) {
                let reader = index / (options.cpus_per_reader.max(1) as u32);
                let (pages, wake) = (options.ring_pages, options.wake_pages.max(1));
                control.set_ring((cpu, row), set * cpus + index, pages, reader, wake);
                control.set_self(options.exclude_tgid.unwrap_or(0));
            }
        }
    }

    /// The object that programs are loaded from.
    fn object(&self) -> Result<&Object, LoadError> {
        self.object.as_ref().ok_or(LoadError::Missing("maps, which were given up"))
    }

    /// Loads programs for more events of the same channel, into its rings. `options` are those of the channel
    /// with these events, which have the slots `added`. They are recorded once they are attached and
    /// [enabled](Self::enable).
    ///
    /// # Errors
    /// The kernel refuses something, or there are no such slots.
    pub fn extend(&self, options: &ProgramOptions, added: &[u32]) -> Result<Self, LoadError> {
        let enabled = self.enabled.clone().ok_or(LoadError::NoSlots)?;
        if added.iter().any(|&slot| slot as usize >= self.slots) {
            return Err(LoadError::NoSlots);
        }
        let is_added = |slot: u32| added.contains(&slot);
        let calls = calls_of(options, is_added);
        let names: Vec<&'static str> = OF_A_RECORDING.iter().copied().chain(OF_A_CHANNEL).collect();
        let maps = self.object()?.share(&names)?;
        // The sizes are those of maps that there are.
        let groups = groups_of(options, is_added);
        let object = create_object(options, &calls, [1, 1, self.slots as u32], &groups, Some(&maps))?;
        let rates = shared::<u64>(self.object()?, "RATES", self.slots)?;
        for &slot in added {
            enabled.store(slot as usize, 0);
            // What the event before it had in this second.
            rates.store(slot as usize, 0);
            if let Some(plan) = options.slots.get(slot as usize) {
                self.plans.write(slot as usize, with_groups(*plan, slot, &groups));
                self.events.set_id(slot as usize, plan.id);
            }
        }
        write_calls(&object, &calls)?;
        let generic = load_generic(&object, options, is_added)?;
        let late_strings = has_late_strings(options, &calls);
        Ok(Self { object: Some(object), generic, late_strings, ..self.part(options.generation) })
    }

    /// Other programs of the same channel, of which there are none yet.
    fn part(&self, generation: u32) -> Self {
        Self {
            object: None,
            loaded: BTreeMap::new(),
            generic: HashMap::new(),
            inherited: Vec::new(),
            rings: Arc::clone(&self.rings),
            owners: self.owners.clone(),
            events: Arc::clone(&self.events),
            wake: Vec::new(),
            plans: Arc::clone(&self.plans),
            enabled: self.enabled.clone(),
            generation,
            slots: self.slots,
            late_strings: false,
            tracks_calls: false,
            count: self.count,
        }
    }

    /// Gives up what is only needed to attach programs: maps that the programs themselves keep.
    pub fn release_object(&mut self) {
        self.object = None;
    }

    /// Has an event of these programs recorded from now on. For programs whose events come and go.
    pub fn enable(&self, slot: u32) {
        if let Some(enabled) = &self.enabled {
            enabled.store(slot as usize, self.generation.into());
        }
    }

    /// Has an event of the channel recorded no longer.
    pub fn disable(&self, slot: u32) {
        if let Some(enabled) = &self.enabled {
            enabled.store(slot as usize, 0);
        }
    }

    /// Forgets whose slot it was. Nothing of that event may be in an open page.
    pub fn forget(&self, slot: usize) {
        self.events.clear_id(slot);
    }

    /// What tells them from other programs of the channel.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// How many events there can be.
    pub fn capacity(&self) -> usize {
        self.slots
    }

    /// A program of the generic lane; loaded, if it is not yet.
    pub(crate) fn generic(&mut self, program: &GenericProgram) -> Result<BorrowedFd<'_>, LoadError> {
        if !self.generic.contains_key(program) {
            self.generic.insert(program.clone(), tracepoint::load(program, self.object()?)?);
        }
        self.generic.get(program).map(|fd| fd.as_fd()).ok_or(LoadError::Missing("generic program"))
    }

    /// Loads and attaches the programs of fast events, each to record under its slot, and what completes the
    /// strings of other events, whose slots are `own_strings`.
    pub fn attach_fast(
        &self,
        events: &[(&str, &FastEvent, u32)],
        own_strings: &[u32],
        hooks: Option<Hooks>,
    ) -> Result<(FastLinks, FastResults), LoadError> {
        Ok(self.loader(hooks)?.attach(events, own_strings))
    }

    /// Loads and attaches programs of probes. `slots` are those of the recording. Gives the links, and the
    /// attach points that were left out, with the reasons.
    pub fn attach_probes(
        &self,
        probes: &[ProbeToAttach<'_>],
        slots: &[EventSlot],
    ) -> Result<(HookLinks, Vec<(String, ProbeError)>), ProbeError> {
        let to_attach: Vec<ToAttach<'_>> = (probes.iter())
            .map(|&ProbeToAttach { event, first_slot, program }| {
                let following = slots.iter().enumerate().skip(first_slot as usize);
                let events = following.map(|(slot, plan)| Recorded { slot: slot as u32, id: plan.id });
                ToAttach { events: events.collect(), event, program }
            })
            .collect();
        hook::attach(self.object()?, &to_attach)
    }

    /// The same for programs that can do without one another: each has a result of its own.
    pub fn attach_each(
        &self,
        probes: &[ProbeToAttach<'_>],
        slots: &[EventSlot],
    ) -> Vec<Result<HookLinks, ProbeError>> {
        side_by_side(probes, |probe| self.attach_probes(&[*probe], slots).map(|(links, _)| links))
    }

    /// Moves what is left in the side queues of these CPUs to their rings. Only after the gates are closed
    /// and all programs have returned.
    pub fn flush_side_queues(&self, cpus: &[u32]) {
        self.rings_of(cpus)
            .filter_map(|ring| self.rings.row(ring))
            .for_each(|row| self.flush_side_queue(row));
    }

    fn flush_side_queue(&self, row: u32) {
        let Ok(program) = self.fd(program::FLUSH_SIDE) else { return };
        let mut left = i32::MAX;
        // Each run moves some. One that moves nothing has met an entry that will not be completed.
        while let Ok(now) = sys::run_with(program, row.into())
            && now > 0
            && now < left
        {
            left = now;
        }
    }

    /// Loads the programs of fast events without attaching them. The results are in the order of the events.
    pub(crate) fn try_out_fast(
        &self,
        events: &[(&str, &FastEvent)],
        hooks: Option<Hooks>,
    ) -> Result<Vec<Result<OwnedFd, FastError>>, LoadError> {
        Ok(self.loader(hooks)?.try_out(events))
    }

    fn loader(&self, hooks: Option<Hooks>) -> Result<Loader<'_>, LoadError> {
        Loader::new(self.object()?, hooks, self.late_strings)
    }

    /// The loaded programs by name, without those of the fast lane and of probes.
    pub(crate) fn loaded(&self) -> impl Iterator<Item = (String, BorrowedFd<'_>)> {
        let always = self.loaded.iter().map(|(name, fd)| ((*name).to_owned(), fd.as_fd()));
        always.chain(self.generics())
    }

    /// Those of the generic lane, by name.
    pub(crate) fn generics(&self) -> impl Iterator<Item = (String, BorrowedFd<'_>)> {
        let inherited = self.inherited.iter().map(|(name, fd)| (name.clone(), fd.as_fd()));
        self.generic.iter().map(|(program, fd)| (program.name(), fd.as_fd())).chain(inherited)
    }

    /// The descriptor of a loaded program.
    pub(crate) fn fd(&self, name: &'static str) -> Result<BorrowedFd<'_>, LoadError> {
        self.loaded.get(name).map(|program| program.as_fd()).ok_or(LoadError::Missing(name))
    }

    /// What reads the messages of these programs and of all that share their maps, and hands them to whatever
    /// takes those of the crate `log`.
    ///
    /// They say nothing below the level [`log::LevelFilter::Warn`], for which they were loaded if that was
    /// the crate's [`log::max_level`] then.
    ///
    /// # Errors
    /// aya-log does not find their map, for which it looks through all programs of the kernel: that needs
    /// `CAP_SYS_ADMIN`.
    #[cfg(feature = "debug-programs")]
    pub fn messages(&self) -> Result<aya_log::EbpfLogger<&'static dyn log::Log>, LoadError> {
        // The kernel knows which maps a program uses; this one has a warning.
        let program = self.fd(program::TASK_RENAMED)?;
        let id = sys::told_of_program(program, "prog_id").ok_or(LoadError::Missing("prog_id"))?;
        aya_log::EbpfLogger::init_from_id(id as u32).map_err(|error| LoadError::Messages(error.to_string()))
    }

    /// What closes open pages; the first caller gets it.
    pub fn take_page_switch(&mut self) -> Option<PageSwitch> {
        self.loaded.remove(program::SWITCH_PAGE).map(PageSwitch::new)
    }

    /// Loads the program that marks borders.
    pub(super) fn load_marker(&self) -> Result<OwnedFd, LoadError> {
        self.object()?.load(ToLoad::plain(program::MARK_BORDER))
    }

    /// What finds borders between archives.
    ///
    /// # Errors
    /// The kernel refuses the program, as it does if there are more events than it looks at.
    pub fn borders(&self) -> Result<Borders, LoadError> {
        let program = self.load_marker()?;
        let (counts, rows) =
            (shared(self.object()?, "BORDER", 1)?, shared(self.object()?, "BORDER_ROWS", self.slots)?);
        Ok(Borders::new(program, counts, rows, Arc::clone(&self.events)))
    }

    /// The maps that the other channels' programs of the recording share with these.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn shared_maps(&self) -> Result<SharedMaps, LoadError> {
        self.object()?.share(OF_A_RECORDING)
    }

    /// The maps that say which threads are recorded, for programs that tell of the same ones elsewhere.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn thread_maps(&self) -> Result<SharedMaps, LoadError> {
        self.object()?.share(&OF_THREADS)
    }

    /// A map of the programs.
    pub(super) fn map(&self, name: &'static str) -> Result<BorrowedFd<'_>, LoadError> {
        self.object()?.map(name)
    }

    /// The elements of a map of the programs.
    pub(super) fn shared<T: Shared>(
        &self,
        name: &'static str,
        len: usize,
    ) -> Result<SharedArray<T>, LoadError> {
        shared(self.object()?, name, len)
    }

    /// The words of a map of the programs, of which there are so many.
    pub fn memory(&self, name: &'static str, len: usize) -> Result<SharedArray<u64>, LoadError> {
        shared(self.object()?, name, len)
    }

    /// Whether some program keeps track of nested calls.
    pub(super) fn tracks_calls(&self) -> bool {
        self.tracks_calls
    }

    /// What wakes each reader, in the order of the readers; the first caller gets them. Programs that were
    /// loaded with maps of others wake theirs.
    pub fn take_wake(&mut self) -> Vec<WakeStream> {
        std::mem::take(&mut self.wake)
    }

    /// How many sets of rings there are.
    pub fn set_count(&self) -> u32 {
        self.owners.as_ref().map_or(1, |owners| owners.len() as u32)
    }

    /// Whose the sets of rings are, where there are several.
    pub fn owners(&self) -> Option<&Arc<SharedArray<Owner>>> {
        self.owners.as_ref()
    }

    /// The rings of these CPUs, in all sets.
    pub fn rings_of<'c>(&self, cpus: &'c [u32]) -> impl Iterator<Item = RingId> + use<'c> {
        (0..self.set_count()).flat_map(move |set| cpus.iter().map(move |&cpu| RingId { cpu, set }))
    }

    /// What was counted of a ring. Unless the gates are closed and all programs have returned, each of the
    /// numbers is of another moment during this call.
    pub fn counts(&self, ring: RingId) -> Option<CpuCounts> {
        let control = self.rings.control(ring)?.quiescent();
        Some(CpuCounts::of_control(&control, self.events.of_row(self.rings.row(ring)?)))
    }

    /// What was counted of an event in a ring, by its slot.
    pub fn event_counts(&self, ring: RingId, slot: usize) -> Option<EventLedger> {
        self.events.of(self.rings.row(ring)?, slot)
    }

    /// How many records there are of an event in a ring, by its slot.
    pub fn recorded(&self, ring: RingId, slot: usize) -> u64 {
        self.rings.row(ring).map_or(0, |row| self.events.recorded(row, slot))
    }

    /// How often the kernel skipped each program, over all its events and CPUs: a generic one because another
    /// tracing program was running on the CPU, one of the fast lane because the same was running, one at a
    /// kprobe for either, or because more calls were open than it watches the returns of.
    pub fn misses(&self, links: &FastLinks, probes: &HookLinks) -> Misses {
        // Earlier kernels show the line for all programs, and for those of tracepoints and kprobes it stays
        // 0.
        let counts_all = KernelVersion::running().is_some_and(|version| version >= TRACEPOINT_MISSES_SINCE);
        let read = |(program, fd): (&str, BorrowedFd<'_>), counts| RecursionMisses {
            program: program.to_owned(),
            misses: if counts { sys::told_of_program(fd, "recursion_misses") } else { None },
        };
        let generic = self.generics().map(|(name, fd)| read((&name, fd), counts_all));
        let fast = links.programs().map(|program| read(program, true));
        let probes = probes.misses(counts_all);
        let of_names = [program::TASK_CREATED, program::TASK_RENAMED].into_iter();
        let of_names =
            of_names.filter_map(|name| sys::told_of_program(self.fd(name).ok()?, "recursion_misses"));
        Misses { programs: generic.chain(fast).chain(probes).collect(), names: of_names.sum() }
    }

    /// Whether the kernel may have kept events from programs without counting them.
    ///
    /// While perf handles an event of the generic lane, it leaves out those that fire meanwhile in the same
    /// context (a thread, a soft interrupt, a hard one), before programs are called (`perf_trace_buf_alloc`,
    /// kernel/trace/trace_event_perf.c). Code of one context does not come on top of itself, but for the end
    /// of hard interrupts.
    pub fn skips_uncounted(&self) -> bool {
        self.generics().next().is_some() && features::interrupts_end_with_events()
    }
}

/// Tells the programs which system calls are recorded.
fn write_calls(object: &Object, calls: &Table) -> Result<(), LoadError> {
    if !calls.calls.is_empty() {
        let table = shared::<SyscallSlot>(object, "SYSCALLS", SYSCALL_SLOTS)?;
        for (&nr, slot) in &calls.calls {
            table.write(nr as usize, *slot);
        }
    }
    Ok(())
}

/// Loads the generic lane's programs of the events that `chosen` takes by their slots.
fn load_generic(
    object: &Object,
    options: &ProgramOptions,
    chosen: impl Fn(u32) -> bool,
) -> Result<HashMap<GenericProgram, OwnedFd>, LoadError> {
    let mut wanted: Vec<GenericProgram> = Vec::new();
    let events = options.slots.iter().zip(&options.lanes).zip(&options.filters);
    for (index, ((slot, lane), filter)) in (0..).zip(events) {
        if !matches!(lane, Lane::Generic) || !chosen(index) {
            continue;
        }
        let program = GenericProgram::of(slot, filter.as_ref().map(|filter| filter.code.as_slice()));
        if !wanted.contains(&program) {
            wanted.push(program);
        }
    }
    let loaded: Result<Vec<OwnedFd>, _> =
        side_by_side(&wanted, |program| tracepoint::load(program, object)).into_iter().collect();
    Ok(wanted.into_iter().zip(loaded?).collect())
}

fn shared<T: Shared>(object: &Object, name: &'static str, len: usize) -> Result<SharedArray<T>, LoadError> {
    SharedArray::map(object.map(name)?, len).map_err(|source| LoadError::Mmap { map: name, source })
}
