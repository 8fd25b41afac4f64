//! Maps on their way to another process, while their programs go on counting.

use std::sync::{Mutex, PoisonError, atomic::AtomicU64};

use serde::{Deserialize, Serialize};

use super::{Before, Map, MapOptions, Maps, Memory};
use crate::channel::{HandedLinks, Links};
use crate::handover::{ChannelState, put_plans};
use crate::needs::program_options;
use crate::{CaptureError, CaptureOptions};
use attach::{ChannelMaps, Programs, ProgramsState};
use bpf::LoadError;
use compile::aggregate::{PartKind, Sizes};
use spec::MapSpec;
use stdx::handover::Descriptors;

/// The maps of a recording.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandedMaps(Vec<HandedMap>);

#[derive(Debug, Serialize, Deserialize)]
struct HandedMap {
    spec: MapSpec,
    kinds: Vec<PartKind>,
    is_signed: bool,
    sizes: Sizes,
    channel: ChannelState,
    links: Vec<HandedLinks>,
    programs: ProgramsState,
    forgotten: u64,
    before: Before,
}

impl Maps {
    /// Gives them away. Their programs go on counting.
    /// `alone` if no channel has programs whose maps theirs share: then those of the first map do.
    pub(crate) fn hand_over(self, alone: bool, to: &mut Descriptors) -> HandedMaps {
        // What was left out was told when they were made.
        let Self { all, cpus: _, left_out: _ } = self;
        let mut left = usize::from(alone);
        let mut is_first = || std::mem::take(&mut left) != 0;
        let hand_over = |map: Map| {
            let Map { links, programs, options, memory: _, forgotten, before } = map;
            let MapOptions { spec, kinds, is_signed, sizes, channel } = options;
            HandedMap {
                spec,
                kinds,
                is_signed,
                sizes,
                channel: ChannelState::of(channel),
                links: links.into_iter().map(|links| links.hand_over(to)).collect(),
                programs: programs.hand_over(is_first(), to),
                forgotten: forgotten.into_inner(),
                before: before.into_inner().unwrap_or_else(PoisonError::into_inner),
            }
        };
        HandedMaps(all.into_iter().map(hand_over).collect())
    }

    /// Goes on with those of another process. `of_channel` are the programs of the recording's first channel,
    /// if it has any.
    ///
    /// # Errors
    /// A descriptor is missing, or the kernel refuses a program.
    pub(crate) fn take_over(
        HandedMaps(all): HandedMaps,
        options: &CaptureOptions,
        of_channel: Option<&Programs>,
        from: &mut Descriptors,
    ) -> Result<Self, CaptureError> {
        let mut maps: Vec<Map> = Vec::with_capacity(all.len());
        for map in all {
            let HandedMap { spec, kinds, is_signed, sizes, channel, links, mut programs, forgotten, before } =
                map;
            let links = links.into_iter().map(|links| Links::take_over(links, from));
            let links = links.collect::<Result<_, _>>().map_err(LoadError::from)?;
            let own = ChannelMaps::take_over(&mut programs, from).map_err(LoadError::from)?;
            let mut channel = channel.into_options();
            put_plans(&mut channel, &own.plans()?);
            let program_options = program_options(options, &channel, 0)?;
            let first = of_channel.or_else(|| maps.first().map(|map| &map.programs));
            let programs = Programs::take_over((programs, own), &program_options, first, from)?;
            let memory = Memory::of(&programs, sizes, options.possible_cpus)?;
            let options = MapOptions { spec, kinds, is_signed, sizes, channel };
            maps.push(Map {
                links,
                programs,
                options,
                memory,
                forgotten: AtomicU64::new(forgotten),
                before: Mutex::new(before),
            });
        }
        Ok(Self { all: maps, cpus: options.cpus.clone(), left_out: Vec::new() })
    }
}
