//! The options of a recording on their way to another process.
//!
//! The code of programs stays behind: they are attached, and are not loaded again. So do the copying plans of
//! events, which are in memory that goes with the programs. Maps go with theirs.

use std::{sync::Arc, time::Duration};

use agent_ebpf::EventSlot;
use serde::{Deserialize, Serialize};

use crate::ctf::CtfOutput;
use crate::{
    Active, CaptureEvent, CaptureOptions, ChannelOptions, Destination, EventFilter, Manifest, ProgramFacts,
    Rotation, SetOptions, SnapshotRule, TaskFilter,
};
use attach::KernelLayout;
use attach::ring::SharedArray;
use compile::aggregate::Sizes;
use compile::context::{Counters, CountersState};
use compile::fast::{Call, FastEvent, Hooks, Kind, Lane};
use compile::filter;
use compile::scope::Scope;
use spec::Context;
use spec::EventSelector;
use spec::TraceClock;
use spec::{Kallsyms, What, text};
use spec::{LaneChoice, StackKind, StringLimit};
use stdx::handover::{Descriptors, Missing};

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandedOptions {
    channels: Vec<ChannelState>,
    counters: CountersState,
    #[serde(with = "text")]
    clock: TraceClock,
    cpus: Vec<u32>,
    possible_cpus: u32,
    tasks: Option<TaskFilter>,
    scope: Option<Scope>,
    exclude_self: bool,
    layout: KernelLayout,
    symbols: Kallsyms,
    rotation: Option<Rotation>,
    first_archive: u64,
    manifest: Manifest,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ChannelState {
    name: String,
    events: Vec<EventState>,
    sets: Option<SetOptions>,
    ring_pages: u32,
    overwrite: bool,
    snapshot: Option<SnapshotRule>,
    poll_interval: Option<Duration>,
    switch_period: Option<Duration>,
    cap: Option<u64>,
    hooks: Option<Hooks>,
    #[serde(with = "text")]
    strings: StringLimit,
    spare_events: usize,
    #[serde(with = "text")]
    lane: LaneChoice,
    #[serde(with = "text::list")]
    contexts: Vec<Context>,
    shared_contexts: String,
    stacks: [StacksState; 2],
    map: Option<Sizes>,
    facts: ProgramFacts,
}

#[derive(Debug, Serialize, Deserialize)]
struct StacksState {
    kind: StackKind,
    #[serde(with = "text::list")]
    of: Vec<EventSelector>,
}

#[derive(Debug, Serialize, Deserialize)]
struct EventState {
    name: String,
    rule: Option<What>,
    prints_symbols: bool,
    required: bool,
    lane: LaneState,
    lane_note: Option<String>,
    string_note: Option<String>,
    only_fast: bool,
    filter: Option<String>,
    active: Active,
}

#[derive(Debug, Serialize, Deserialize)]
enum LaneState {
    Generic,
    Fast,
    Call(Call),
    Probe,
    Stack(StackKind),
}

impl HandedOptions {
    /// Where the files go, and how a trace is written, is told elsewhere.
    pub(crate) fn of(options: CaptureOptions, to: &mut Descriptors) -> Self {
        // Destructured so that a new field is not forgotten here.
        let CaptureOptions {
            channels,
            counters,
            clock,
            cpus,
            possible_cpus,
            tasks,
            scope,
            exclude_self,
            layout,
            symbols,
            destination: _,
            rotation,
            first_archive,
            trace: _,
            manifest,
            maps: _,
        } = options;
        Self {
            channels: channels.into_iter().map(ChannelState::of).collect(),
            counters: counters.hand_over(to),
            clock,
            cpus,
            possible_cpus,
            tasks,
            scope,
            exclude_self,
            layout,
            symbols,
            rotation,
            first_archive,
            manifest,
        }
    }

    pub(crate) fn take_over(
        self,
        (destination, trace): (Destination, Option<&CtfOutput>),
        from: &mut Descriptors,
    ) -> Result<CaptureOptions, Missing> {
        let Self {
            channels,
            counters,
            clock,
            cpus,
            possible_cpus,
            tasks,
            scope,
            exclude_self,
            layout,
            symbols,
            rotation,
            first_archive,
            manifest,
        } = self;
        Ok(CaptureOptions {
            channels: channels.into_iter().map(ChannelState::into_options).collect(),
            counters: Arc::new(Counters::take_over(counters, from)?),
            clock,
            cpus,
            possible_cpus,
            tasks,
            scope,
            exclude_self,
            layout,
            symbols,
            destination,
            rotation,
            first_archive,
            trace: trace.map(|trace| trace.options().clone()),
            manifest,
            maps: Vec::new(),
        })
    }
}

impl ChannelState {
    pub(crate) fn of(options: ChannelOptions) -> Self {
        let facts = options.facts();
        let ChannelOptions {
            name,
            events,
            probes: _,
            sets,
            ring_pages,
            overwrite,
            snapshot,
            poll_interval,
            switch_period,
            cap,
            hooks,
            strings,
            spare_events,
            lane,
            contexts,
            shared_contexts,
            stacks,
            map,
            inherited: _,
        } = options;
        Self {
            name,
            events: events.into_iter().map(EventState::of).collect(),
            sets,
            ring_pages,
            overwrite,
            snapshot,
            poll_interval,
            switch_period,
            cap,
            hooks,
            strings,
            spare_events,
            lane,
            contexts,
            shared_contexts,
            stacks: stacks.map(|(kind, of)| StacksState { kind, of }),
            map,
            facts,
        }
    }

    pub(crate) fn into_options(self) -> ChannelOptions {
        ChannelOptions {
            name: self.name,
            events: self.events.into_iter().map(EventState::into_event).collect(),
            probes: Vec::new(),
            sets: self.sets,
            ring_pages: self.ring_pages,
            overwrite: self.overwrite,
            snapshot: self.snapshot,
            poll_interval: self.poll_interval,
            switch_period: self.switch_period,
            cap: self.cap,
            hooks: self.hooks,
            strings: self.strings,
            spare_events: self.spare_events,
            lane: self.lane,
            contexts: self.contexts,
            shared_contexts: self.shared_contexts,
            stacks: self.stacks.map(|StacksState { kind, of }| (kind, of)),
            map: self.map,
            inherited: self.facts,
        }
    }
}

impl EventState {
    fn of(event: CaptureEvent) -> Self {
        let CaptureEvent {
            name,
            rule,
            slot: _,
            prints_symbols,
            required,
            lane,
            lane_note,
            string_note,
            only_fast,
            filter,
            own: _,
            active,
        } = event;
        let lane = match lane {
            Lane::Generic => LaneState::Generic,
            Lane::Fast(FastEvent(Kind::Call(call))) => LaneState::Call(call),
            Lane::Fast(FastEvent(Kind::Own { .. } | Kind::Attached)) => LaneState::Fast,
            Lane::Probe => LaneState::Probe,
            Lane::Stack(kind) => LaneState::Stack(kind),
        };
        let filter = filter.map(|filter| filter.text);
        Self { name, rule, prints_symbols, required, lane, lane_note, string_note, only_fast, filter, active }
    }

    /// Its copying plan is filled in by [`put_plans`].
    fn into_event(self) -> CaptureEvent {
        CaptureEvent {
            name: self.name,
            rule: self.rule,
            slot: EventSlot::default(),
            prints_symbols: self.prints_symbols,
            required: self.required,
            lane: match self.lane {
                LaneState::Generic => Lane::Generic,
                LaneState::Fast => Lane::Fast(FastEvent(Kind::Attached)),
                LaneState::Call(call) => Lane::Fast(FastEvent(Kind::Call(call))),
                LaneState::Probe => Lane::Probe,
                LaneState::Stack(kind) => Lane::Stack(kind),
            },
            lane_note: self.lane_note,
            string_note: self.string_note,
            only_fast: self.only_fast,
            // Its text is for the file.
            filter: self.filter.map(|text| EventFilter { text, program: filter::Program::default() }),
            own: None,
            active: self.active,
        }
    }
}

/// Gives the events of a channel their copying plans.
pub(crate) fn put_plans(channel: &mut ChannelOptions, plans: &SharedArray<EventSlot>) {
    for (slot, event) in channel.events.iter_mut().enumerate() {
        event.slot = plans.read(slot).unwrap_or_default();
    }
}
