//! The programs of a channel on their way to another process.
//!
//! What is attached goes on recording, and what it counts stays known: those programs go, with the maps. What
//! the agent runs itself ([`PageSwitch`](super::PageSwitch), [`Borders`](super::Borders), the side queues) is
//! loaded anew, for the same maps.

use std::os::fd::OwnedFd;

use agent_ebpf::EventSlot;
use serde::{Deserialize, Serialize};

use super::{OF_A_CHANNEL, OF_A_COUNTING_MAP, OF_A_RECORDING, Programs, Sizes, program};
use crate::NamedState;
use crate::object::{ProgramOptions, RateGroups, calls_of, create_object};
use crate::ring::SharedArray;
use bpf::load::{LoadError, MapsState, SharedMaps, ToLoad};
use stdx::handover::{Descriptors, Missing, Number};

/// What of a channel's programs goes on without this process.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProgramsState {
    /// The channel's maps; of the first channel also those of the recording.
    maps: MapsState,
    /// The ring buffers that wake readers; of the first channel.
    wake: Vec<Number>,
    /// Programs that are about threads.
    tasks: NamedState,
    /// Those of the generic lane.
    generic: PartState,
    /// How many events there can be.
    slots: usize,
}

/// Programs of the generic lane, by name, that are part of a channel's.
#[derive(Debug, Serialize, Deserialize)]
pub struct PartState(NamedState);

/// The maps of a channel whose programs another process has loaded.
#[derive(Debug)]
pub struct ChannelMaps {
    maps: SharedMaps,
    wake: Vec<OwnedFd>,
    slots: usize,
}

/// Programs that are attached, and are about threads.
const OF_TASKS: [&str; 3] = [program::TASK_CREATED, program::TASK_RENAMED, program::TASK_FREED];

impl Programs {
    /// Gives them away. `is_first` of those whose maps the programs of other channels share.
    pub fn hand_over(mut self, is_first: bool, to: &mut Descriptors) -> ProgramsState {
        let generic = self.take_generic(to);
        let of_recording = OF_A_RECORDING.iter().filter(|_| is_first);
        let of_map = OF_A_COUNTING_MAP.iter().filter(|_| self.count);
        let names: Vec<&'static str> =
            OF_A_CHANNEL.iter().chain(of_map).chain(of_recording).copied().collect();
        let (maps, wake) = match self.object {
            Some(object) => object.give_away(&names, "WAKE"),
            None => (SharedMaps::default(), Vec::new()),
        };
        let tasks =
            OF_TASKS.into_iter().filter_map(|name| Some((name.to_owned(), self.loaded.remove(name)?)));
        ProgramsState {
            maps: maps.hand_over(to),
            wake: wake.into_iter().map(|ring| to.put(ring)).collect(),
            tasks: NamedState::of(tasks.collect(), to),
            generic,
            slots: self.slots,
        }
    }

    /// Gives away what was added to others.
    pub fn hand_over_part(mut self, to: &mut Descriptors) -> PartState {
        self.take_generic(to)
    }

    fn take_generic(&mut self, to: &mut Descriptors) -> PartState {
        let own = self.generic.drain().map(|(program, fd)| (program.name(), fd));
        let all = own.chain(self.inherited.drain(..));
        PartState(NamedState::of(all.collect(), to))
    }

    /// Goes on with what another process has loaded. `options` are those of the channel; with `first`, of one
    /// after the first.
    ///
    /// # Errors
    /// A descriptor is missing, or the kernel refuses a program.
    pub fn take_over(
        (state, maps): (ProgramsState, ChannelMaps),
        options: &ProgramOptions,
        first: Option<&Self>,
        from: &mut Descriptors,
    ) -> Result<Self, LoadError> {
        let ProgramsState { tasks, generic, .. } = state;
        let ChannelMaps { mut maps, wake, slots } = maps;
        if let Some(first) = first {
            maps.append(first.shared_maps()?);
        }
        let sizes = Sizes::of(options, slots)?;
        let calls = calls_of(options, |_| true);
        // Those of the events that there are belong to programs which are loaded.
        let groups = RateGroups::new();
        let mut object = create_object(options, &calls, sizes.of_maps(), &groups, Some(&maps))?;
        object.set_inner("WAKE", wake);
        let mut programs = Self::of_object(object, options, &sizes)?;
        let own = [program::FLUSH_SIDE, program::SWITCH_PAGE];
        let loaded = programs.object()?.load_all(&own.map(ToLoad::plain))?;
        programs.loaded = own.into_iter().zip(loaded).collect();
        for (name, program) in tasks.take(from)? {
            if let Some(name) = OF_TASKS.into_iter().find(|known| *known == name) {
                programs.loaded.insert(name, program);
            }
        }
        programs.inherited = generic.0.take(from)?;
        // What is not recorded is what this process does from now on.
        for ring in programs.rings_of(&options.ring_cpus) {
            if let Some(control) = programs.rings.control(ring) {
                control.set_self(options.exclude_tgid.unwrap_or(0));
            }
        }
        Ok(programs)
    }

    /// Goes on with what another process has added to these.
    ///
    /// # Errors
    /// A descriptor is missing.
    pub fn take_over_part(
        &self,
        state: PartState,
        generation: u32,
        from: &mut Descriptors,
    ) -> Result<Self, Missing> {
        Ok(Self { inherited: state.0.take(from)?, ..self.part(generation) })
    }
}

impl ChannelMaps {
    /// Takes those that the state names.
    ///
    /// # Errors
    /// A descriptor is missing.
    pub fn take_over(state: &mut ProgramsState, from: &mut Descriptors) -> Result<Self, Missing> {
        let maps = SharedMaps::take_over(std::mem::take(&mut state.maps), from)?;
        let wake = std::mem::take(&mut state.wake).into_iter().map(|ring| from.take(ring));
        Ok(Self { maps, wake: wake.collect::<Result<_, _>>()?, slots: state.slots })
    }

    /// The copying plans of the events.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn plans(&self) -> Result<SharedArray<EventSlot>, LoadError> {
        let failed = |source| LoadError::Mmap { map: "EVENTS", source };
        SharedArray::map(self.maps.map("EVENTS")?, self.slots).map_err(failed)
    }
}
