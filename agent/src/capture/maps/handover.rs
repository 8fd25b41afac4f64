//! Maps on their way to another process, while their programs go on counting.

use serde::{Deserialize, Serialize};

use super::{Map, MapOptions, Maps, Memory};
use crate::{
    attach::{ChannelMaps, Programs, ProgramsState},
    bpf::LoadError,
    capture::{
        CaptureError, CaptureOptions,
        channel::{HandedLinks, Links},
        handover::{ChannelState, put_plans},
        needs::program_options,
    },
    compile::aggregate::{PartKind, Sizes},
    handover::Descriptors,
    spec::MapSpec,
};

/// The maps of a recording.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::capture) struct HandedMaps(Vec<HandedMap>);

#[derive(Debug, Serialize, Deserialize)]
struct HandedMap {
    spec: MapSpec,
    kinds: Vec<PartKind>,
    is_signed: bool,
    sizes: Sizes,
    channel: ChannelState,
    links: Vec<HandedLinks>,
    programs: ProgramsState,
}

impl Maps {
    /// Gives them away. Their programs go on counting.
    pub(in crate::capture) fn hand_over(self, to: &mut Descriptors) -> HandedMaps {
        // What was left out was told when they were made.
        let Self { all, cpus: _, left_out: _ } = self;
        let hand_over = |map: Map| {
            let Map { links, programs, options, memory: _ } = map;
            let MapOptions { spec, kinds, is_signed, sizes, channel } = options;
            HandedMap {
                spec,
                kinds,
                is_signed,
                sizes,
                channel: ChannelState::of(channel),
                links: links.into_iter().map(|links| links.hand_over(to)).collect(),
                programs: programs.hand_over(false, to),
            }
        };
        HandedMaps(all.into_iter().map(hand_over).collect())
    }

    /// Goes on with those of another process. `first` are the programs of the recording's first channel.
    ///
    /// # Errors
    /// A descriptor is missing, or the kernel refuses a program.
    pub(in crate::capture) fn take_over(
        HandedMaps(all): HandedMaps,
        options: &CaptureOptions,
        first: &Programs,
        from: &mut Descriptors,
    ) -> Result<Self, CaptureError> {
        let mut maps = Vec::with_capacity(all.len());
        for map in all {
            let HandedMap { spec, kinds, is_signed, sizes, channel, links, mut programs } = map;
            let links = links.into_iter().map(|links| Links::take_over(links, from));
            let links = links.collect::<Result<_, _>>().map_err(LoadError::from)?;
            let of_channel = ChannelMaps::take_over(&mut programs, from).map_err(LoadError::from)?;
            let mut channel = channel.into_options();
            put_plans(&mut channel, &of_channel.plans()?);
            let program_options = program_options(options, &channel, 0)?;
            let programs = Programs::take_over((programs, of_channel), &program_options, Some(first), from)?;
            let memory = Memory::of(&programs, sizes, options.possible_cpus)?;
            let options = MapOptions { spec, kinds, is_signed, sizes, channel };
            maps.push(Map { links, programs, options, memory });
        }
        Ok(Self { all: maps, cpus: options.cpus.clone(), left_out: Vec::new() })
    }
}
