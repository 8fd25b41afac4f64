//! What a capture is asked to record, and how.

use std::{ops::Range, sync::Arc, time::Duration};

use agent_ebpf::{EventSlot, compat_counter, slot_flags};
use serde::{Deserialize, Serialize};

use super::{CtfOptions, Destination, LeftOut, Manifest, SetOptions, StreamId, maps::MapOptions};
use attach::KernelLayout;
use compile::aggregate::Sizes;
use compile::context::Counters;
use compile::fast::{Call, FastEvent, Hooks, Kind, Lane};
use compile::filter;
use compile::hook::HookProgram;
use compile::scope::{Scope, Set};
use spec::Attribute;
use spec::Context;
use spec::EventSelector;
use spec::TraceClock;
use spec::{Kallsyms, What};
use spec::{LaneChoice, StackKind, StringLimit};

/// The smallest ring: one page that is written and one that is read.
pub const RING_PAGES_MIN: u32 = 2;

/// An event to record.
#[derive(Clone, Debug)]
pub struct CaptureEvent {
    /// `system:name`.
    pub name: String,
    /// What selects it, of several rules that do the one that says what is wanted of it; `None` of what
    /// follows other events.
    pub rule: Option<What>,
    /// The copying plan; holds the event's id.
    pub slot: EventSlot,
    /// Whether its text names kernel functions.
    pub prints_symbols: bool,
    /// Whether a refusal to attach ends the start, or leaves this event out.
    pub required: bool,
    /// How it is recorded.
    pub lane: Lane,
    /// Why it does not take the fast lane, though there is a program for it.
    pub lane_note: Option<String>,
    /// Why its records lack the strings that its system call is given, though they are wanted.
    pub string_note: Option<String>,
    /// Whether it is left alone if the fast lane cannot take it.
    pub only_fast: bool,
    /// Which of its records are wanted. In the fast lane the filter is part of the event's program.
    pub filter: Option<EventFilter>,
    /// Its program of the generic lane, if it has one of its own, because it carries contexts or strings.
    pub own: Option<OwnProgram>,
    /// When it is recorded.
    pub active: Active,
}

impl CaptureEvent {
    /// Which of the fast lane's programs records it ([`compat_counter`]), if it is of a single system call.
    pub(super) fn call_hook(&self) -> Option<u64> {
        match &self.lane {
            Lane::Fast(FastEvent(Kind::Call(Call::Enter { .. }))) => Some(compat_counter::ENTRY),
            Lane::Fast(FastEvent(Kind::Call(Call::Exit { .. }))) => Some(compat_counter::EXIT),
            _ => None,
        }
    }

    /// The system call whose strings the event's own program copies.
    pub(crate) fn own_strings(&self) -> Option<Call> {
        let own = self.own.as_ref().filter(|_| matches!(self.lane, Lane::Generic))?;
        own.strings.as_ref().map(|strings| strings.call)
    }
}

/// The program of an event of the generic lane.
#[derive(Clone, Debug)]
pub struct OwnProgram {
    /// The program.
    pub program: HookProgram,
    /// The strings that it copies.
    pub strings: Option<OwnStrings>,
}

/// Strings in the generic lane.
#[derive(Clone, Debug)]
pub struct OwnStrings {
    /// The system call that they are given to.
    pub call: Call,
    /// The program that leaves them empty, should the kernel refuse the other.
    pub without: HookProgram,
}

/// When an event is recorded, by the recording's clock in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Active {
    /// From then on every firing of it is recorded or counted; `None` from the beginning of the recording on.
    pub since: Option<u64>,
    /// Up to then; `None` to its end.
    pub until: Option<u64>,
    /// Whether that was before the archive that is recorded to: nothing of it comes any more.
    pub is_over: bool,
}

/// The filter of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFilter {
    /// As it was written.
    pub text: String,
    /// For the generic lane.
    pub program: filter::Program,
}

/// A probe: programs that record events of its own.
#[derive(Clone, Debug)]
pub struct CaptureProbe {
    /// What messages call it: `system:name` of its first event.
    pub name: String,
    /// Position of its first event among the capture's; the others follow.
    pub first_slot: u32,
    /// The programs.
    pub programs: Vec<HookProgram>,
}

/// Which threads are recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFilter {
    /// Processes traced from the start, with all their threads. New threads of theirs are traced too where
    /// the kernel has BTF.
    pub processes: Vec<u32>,
    /// Trace their child processes, too.
    pub follow_fork: bool,
}

/// When an archive is closed and the next one begun, beside when the session's owner says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotation {
    /// When it has so many bytes of data.
    pub bytes: Option<u64>,
    /// When it is so old.
    pub period: Option<Duration>,
    /// How many files are kept; the oldest go first. All where nothing is said.
    pub keep: Option<usize>,
}

/// When a recording that overwrites asks for a snapshot by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRule {
    /// The event each of whose records asks for one, by its index among [`ChannelOptions::events`].
    pub slot: usize,
    /// How long after it.
    pub delay: Duration,
    /// How many are taken at most.
    pub limit: Option<u64>,
}

/// A buffer of each CPU, and what is recorded into it.
#[derive(Clone, Debug)]
pub struct ChannelOptions {
    /// The name of the buffer in the trace file; empty for the one that every file has.
    pub name: String,
    /// The events.
    pub events: Vec<CaptureEvent>,
    /// The probes after those of them that take the lane [`Lane::Probe`].
    pub probes: Vec<CaptureProbe>,
    /// The sets of rings, where users or processes have rings of their own; `None` if all share them.
    pub sets: Option<SetOptions>,
    /// Pages in each CPU's ring; at least [`RING_PAGES_MIN`].
    pub ring_pages: u32,
    /// Keep the newest pages in the ring and store them at the end, instead of storing all of them meanwhile.
    pub overwrite: bool,
    /// What asks for snapshots; only where the newest pages are kept, and in one channel at most.
    pub snapshot: Option<SnapshotRule>,
    /// The maximum polling interval of the rings.
    pub poll_interval: Option<Duration>,
    /// How long an event waits at most in a page that is not full; `None` for as long as it takes.
    pub switch_period: Option<Duration>,
    /// Bytes of pages kept for each CPU.
    pub cap: Option<u64>,
    /// Where the fast lane's system call programs are attached, if an event needs them.
    pub hooks: Option<Hooks>,
    /// How much is recorded of strings that system calls are given.
    pub strings: StringLimit,
    /// How many more events there can be than those above, for
    /// [`Session::add`](super::Session::add). With none, events do not come and go.
    pub spare_events: usize,
    /// The lane of events that are added.
    pub lane: LaneChoice,
    /// The contexts of events that are added, beside those of their rules.
    pub contexts: Vec<Context>,
    /// The contexts that all of its events have, those that are added later included: the format of an event
    /// that has nothing else. Empty if there are none.
    pub shared_contexts: String,
    /// Which of them are followed by stacks, where others are from the beginning on.
    pub stacks: [(StackKind, Vec<EventSelector>); 2],
    /// The memory of the map that its events are counted in, if it has no rings but is one.
    pub map: Option<Sizes>,
    /// What is so of programs whose code is not here, as another process has attached them.
    pub inherited: ProgramFacts,
}

/// What the constants of all programs of a channel say of some of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramFacts {
    /// Whether some program writes records with preemption on.
    pub preemptible: bool,
    /// Whether some program keeps track of nested calls.
    pub tracks_calls: bool,
}

impl ChannelOptions {
    /// That of a map: its events are counted, and none is recorded.
    pub fn of_map(events: Vec<CaptureEvent>, probes: Vec<CaptureProbe>, sizes: Sizes) -> Self {
        Self { events, probes, map: Some(sizes), ..Self::without_events(RING_PAGES_MIN, 0) }
    }

    /// That of a watch, with rings of so many pages and room for so many events; there are none yet.
    pub(super) fn of_watch(ring_pages: u32, events: usize) -> Self {
        Self::without_events(ring_pages, events.max(1))
    }

    fn without_events(ring_pages: u32, spare_events: usize) -> Self {
        Self {
            name: String::new(),
            events: Vec::new(),
            probes: Vec::new(),
            sets: None,
            ring_pages,
            overwrite: false,
            snapshot: None,
            poll_interval: None,
            switch_period: None,
            cap: None,
            hooks: None,
            strings: StringLimit::default(),
            spare_events,
            lane: LaneChoice::default(),
            contexts: Vec::new(),
            shared_contexts: String::new(),
            stacks: [(StackKind::Kernel, Vec::new()), (StackKind::User, Vec::new())],
            map: None,
            inherited: ProgramFacts::default(),
        }
    }

    /// Puts events with their probes into these slots, which are free or behind the last.
    pub(super) fn put(&mut self, slots: &Range<usize>, events: Vec<CaptureEvent>, probes: Vec<CaptureProbe>) {
        self.probes.retain(|probe| !slots.contains(&(probe.first_slot as usize)));
        self.probes.extend(probes.into_iter().map(|mut probe| {
            probe.first_slot += slots.start as u32;
            probe
        }));
        for (slot, event) in slots.clone().zip(events) {
            if let Some(entry) = self.events.get_mut(slot) {
                *entry = event;
            } else {
                self.events.push(event);
            }
        }
    }

    /// How many sets of rings it has.
    pub(super) fn set_count(&self) -> u32 {
        self.sets.as_ref().map_or(1, |sets| sets.count)
    }

    /// What is so of its programs.
    pub(super) fn facts(&self) -> ProgramFacts {
        let programs = || self.probes.iter().flat_map(|probe| &probe.programs);
        ProgramFacts {
            preemptible: self.inherited.preemptible || programs().any(HookProgram::is_preemptible),
            tracks_calls: self.inherited.tracks_calls || programs().any(HookProgram::tracks_calls),
        }
    }

    /// The events that have or may have records in the archive that is recorded to.
    pub(super) fn current(&self) -> impl Iterator<Item = &CaptureEvent> {
        self.events.iter().filter(|event| !event.active.is_over)
    }
}

/// Events and probes that are added to a channel while it is recorded; made by
/// `plan::addition`.
#[derive(Debug)]
pub struct Addition {
    /// How often events had been added or removed when it was planned: it is for that state of the recording.
    pub changes: u64,
    /// The channel, by its index.
    pub channel: usize,
    /// The events.
    pub events: Vec<CaptureEvent>,
    /// The probes after those of them that take the lane [`Lane::Probe`]. Their first slots are counted from
    /// the first of the events.
    pub probes: Vec<CaptureProbe>,
    /// Where the fast lane's system call programs are attached, if an event needs them.
    pub hooks: Option<Hooks>,
    /// The formats of all events, by system: what the file describes from now on.
    pub systems: Vec<(String, Vec<String>)>,
}

/// Another set of values that threads are recorded by; made by
/// `plan::tracking`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracking {
    /// The attribute by which threads are chosen.
    pub attribute: Attribute,
    /// `None` for all values.
    pub set: Option<Set>,
}

/// What a capture does.
#[derive(Clone, Debug)]
pub struct CaptureOptions {
    /// The channels. Each has a name of its own.
    pub channels: Vec<ChannelOptions>,
    /// The maps that events are counted in.
    pub maps: Vec<MapOptions>,
    /// The counters that events carry, which programs read as long as they are here.
    pub counters: Arc<Counters>,
    /// Clock of the time stamps.
    pub clock: TraceClock,
    /// CPUs whose events are recorded; each gets a ring of each channel. One that is offline is recorded as
    /// soon as it comes online.
    pub cpus: Vec<u32>,
    /// One more than the highest possible CPU id.
    pub possible_cpus: u32,
    /// `None` records every thread.
    pub tasks: Option<TaskFilter>,
    /// Which threads are recorded, by what they are; `None` for every thread, to the end.
    pub scope: Option<Scope>,
    /// Leave out events of this process's own threads.
    pub exclude_self: bool,
    /// Where things are in this kernel's structures.
    pub layout: KernelLayout,
    /// Whether the kernel's symbols are stored.
    pub symbols: Kallsyms,
    /// Where the file or files go.
    pub destination: Destination,
    /// When an archive is closed and the next one begun; only for a [`Destination::Directory`].
    pub rotation: Option<Rotation>,
    /// The number of the first archive: 1, or what follows the last one of a recording that this one goes on
    /// for.
    pub first_archive: u64,
    /// How it is written as a trace while it goes on, into a [`Destination::Directory`] of its own; `None` if
    /// files are made of it.
    pub trace: Option<CtfOptions>,
    /// Everything else that the file needs. Its channels are those above.
    pub manifest: Manifest,
}

impl CaptureOptions {
    /// The channel that asks for snapshots by itself, by its index, and when.
    pub fn snapshot(&self) -> Option<(usize, SnapshotRule)> {
        self.channels.iter().enumerate().find_map(|(index, channel)| Some((index, channel.snapshot?)))
    }

    /// Whether threads that are left out leave out interrupts that come while they have a CPU: where programs
    /// cannot read the preempt count, they do not know of interrupts.
    pub(super) fn leaves_out_interrupts(&self) -> bool {
        let excludes = self.exclude_self || self.scope.as_ref().is_some_and(Scope::excludes);
        excludes && self.layout.preempt_count.is_none()
    }

    /// The events whose programs leave out calls of 32-bit programs, but for those that the kernel refused:
    /// the index of the channel, the slot and the [hook](CaptureEvent::call_hook).
    pub(super) fn without_compat<'o>(
        &'o self,
        left_out: &'o [LeftOut],
    ) -> impl Iterator<Item = (usize, usize, u64)> {
        let is_refused = |event: &CaptureEvent| {
            event.active.since.is_none() && left_out.iter().any(|left_out| left_out.event == event.name)
        };
        let of_channel = move |(index, channel): (usize, &'o ChannelOptions)| {
            let events = channel.events.iter().enumerate().filter(|(_, event)| !event.active.is_over);
            let events = events.filter(move |(_, event)| !is_refused(event));
            events.filter_map(move |(slot, event)| Some((index, slot, event.call_hook()?)))
        };
        self.channels.iter().enumerate().flat_map(of_channel)
    }

    /// Whether numbers of 32-bit system calls are marked in events of all calls. `None` if there are no such
    /// events, and on other machines than x86-64.
    pub(super) fn marks_compat(&self) -> Option<bool> {
        let events = self.channels.iter().flat_map(ChannelOptions::current);
        let mut of_all = events.filter(|event| event.name.starts_with("raw_syscalls:")).peekable();
        of_all.peek().filter(|_| cfg!(target_arch = "x86_64"))?;
        let KernelLayout { task_pid, task_tgid, task_status, .. } = self.layout;
        let is_known = [task_pid, task_tgid, task_status].iter().all(|offset| *offset != 0);
        Some(is_known && of_all.all(|event| event.slot.flags & slot_flags::ANY_SYSCALL != 0))
    }

    /// The rings of each CPU, over all channels.
    pub(super) fn rings_of_cpu(&self) -> usize {
        self.channels.iter().map(|channel| channel.set_count() as usize).sum()
    }

    /// The channels with their numbers.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (u32, &ChannelOptions)> {
        (0..).zip(&self.channels)
    }

    /// The streams of the channels that `wanted` chooses, in their order, each with the limit of its size.
    pub(super) fn streams(
        &self,
        wanted: impl Fn(&ChannelOptions) -> bool,
    ) -> impl Iterator<Item = (StreamId, Option<u64>)> {
        let channels = self.numbered().filter(move |(_, channel)| wanted(channel));
        channels.flat_map(move |(number, channel)| {
            let of_set = move |set| {
                let stream = move |&cpu: &u32| (StreamId::in_set(number, set, cpu), channel.cap);
                self.cpus.iter().map(stream)
            };
            (0..channel.set_count()).flat_map(of_set)
        })
    }

    /// The events of all channels.
    pub(super) fn events(&self) -> impl Iterator<Item = &CaptureEvent> {
        self.channels.iter().flat_map(|channel| &channel.events)
    }
}
