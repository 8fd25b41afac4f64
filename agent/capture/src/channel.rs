//! A channel while it is recorded: a ring of each CPU, and the programs that fill it.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    CaptureError, LeftOut,
    attaching::attach,
    options::{CaptureEvent, CaptureOptions, ChannelOptions},
};
use crate::needs::program_options;
use attach::detach::{AttachTurn, detach_in_background};
use attach::fast::{FastLinks, FastState};
use attach::hook::{HookLinks, HooksState};
use attach::ring::{Control, RingId};
use attach::{
    Attachment, AttachmentState, Borders, ChannelMaps, Misses, PartState, Programs, ProgramsState, SharedMaps,
};
use bpf::LoadError;
use stdx::handover::{Descriptors, Missing};

/// A channel.
#[derive(Debug)]
pub(super) struct Channel {
    // The links come first: they are handed over before the programs are dropped.
    links: Links,
    pub(super) programs: Programs,
    /// What finds borders in its rings, once it was needed.
    borders: Option<Arc<Borders>>,
    /// What the kernel had kept from the programs when the archive began; nothing of the first one.
    misses: Misses,
    /// What the kernel kept from the programs in pauses, without names.
    in_pauses: Misses,
    /// What it had kept from them when the pause began that goes on.
    paused: Option<Misses>,
    /// Programs of events that were added.
    added: Vec<Added>,
    /// What the kernel kept from added programs that are gone.
    gone: Misses,
    /// That of the newest programs.
    generation: u32,
    /// Whether programs that are gone may have missed events without a count.
    skipped_uncounted: bool,
}

/// The generation of the programs that are there from the beginning on.
const FIRST: u32 = 1;

/// What was added at a time.
#[derive(Debug)]
struct Added {
    // First, as above.
    links: Links,
    programs: Programs,
    /// The slots of its events that are recorded.
    slots: BTreeSet<usize>,
}

/// A channel on its way to another process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HandedChannel {
    links: HandedLinks,
    programs: ProgramsState,
    misses: Misses,
    in_pauses: Misses,
    paused: Option<Misses>,
    added: Vec<HandedAddition>,
    gone: Misses,
    generation: u32,
    skipped_uncounted: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct HandedAddition {
    links: HandedLinks,
    programs: PartState,
    generation: u32,
    slots: BTreeSet<usize>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HandedLinks {
    events: Vec<(usize, AttachmentState)>,
    fast: FastState,
    probes: HooksState,
}

impl Links {
    pub(super) fn hand_over(mut self, to: &mut Descriptors) -> HandedLinks {
        // What is not here any more is not detached when this is dropped.
        let events = self.events.drain(..).map(|(slot, of)| (slot, of.hand_over(to))).collect();
        let fast = std::mem::take(&mut self.fast).hand_over(to);
        HandedLinks { events, fast, probes: std::mem::take(&mut self.probes).hand_over(to) }
    }

    pub(super) fn take_over(handed: HandedLinks, from: &mut Descriptors) -> Result<Self, Missing> {
        let HandedLinks { events, fast, probes } = handed;
        let event = |(slot, of)| Ok((slot, Attachment::take_over(of, from)?));
        let events = events.into_iter().map(event).collect::<Result<_, _>>()?;
        let fast = FastLinks::take_over(fast, from)?;
        Ok(Self { events, fast, probes: HookLinks::take_over(probes, from)? })
    }
}

impl Added {
    fn hand_over(self, to: &mut Descriptors) -> HandedAddition {
        let Self { links, programs, slots } = self;
        let generation = programs.generation();
        HandedAddition {
            links: links.hand_over(to),
            generation,
            programs: programs.hand_over_part(to),
            slots,
        }
    }

    fn take_over(handed: HandedAddition, of: &Programs, from: &mut Descriptors) -> Result<Self, Missing> {
        let HandedAddition { links, programs, generation, slots } = handed;
        let links = Links::take_over(links, from)?;
        Ok(Self { links, programs: of.take_over_part(programs, generation, from)?, slots })
    }
}

/// The descriptors that keep programs attached. However a capture ends, they go to the background detacher:
/// closing them here would take seconds to minutes.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// With the slots of their events.
    pub(super) events: Vec<(usize, Attachment)>,
    pub(super) fast: FastLinks,
    pub(super) probes: HookLinks,
}

impl Drop for Links {
    fn drop(&mut self) {
        // Raw tracepoints are detached at once.
        self.fast = FastLinks::default();
        let mut attachments = self.probes.take_attachments();
        attachments.extend(self.events.drain(..).map(|(_, attachment)| attachment));
        // Without a child process the descriptors are closed right here, which only takes longer.
        let _ = detach_in_background(attachments);
    }
}

impl HandedChannel {
    /// The maps of its programs.
    pub(super) fn maps(&mut self, from: &mut Descriptors) -> Result<ChannelMaps, Missing> {
        ChannelMaps::take_over(&mut self.programs, from)
    }
}

impl Channel {
    /// Creates the rings and loads the programs, with `maps` of a channel that has been loaded before.
    pub(super) fn load(
        options: &CaptureOptions,
        channel: &ChannelOptions,
        maps: Option<&SharedMaps>,
    ) -> Result<Self, CaptureError> {
        let programs = Programs::load(&program_options(options, channel, FIRST)?, maps)?;
        let mut loaded = Self {
            links: Links::default(),
            programs,
            borders: None,
            misses: Misses::default(),
            in_pauses: Misses::default(),
            paused: None,
            added: Vec::new(),
            gone: Misses::default(),
            generation: FIRST,
            skipped_uncounted: false,
        };
        if options.rotation.is_some() {
            // A kernel that refuses the program says so before anything is recorded.
            loaded.borders()?;
        }
        Ok(loaded)
    }

    /// Gives it away. Its programs go on. `is_first` of the one whose maps the others share.
    pub(super) fn hand_over(self, is_first: bool, to: &mut Descriptors) -> HandedChannel {
        let Self {
            links,
            programs,
            borders: _,
            misses,
            in_pauses,
            paused,
            added,
            gone,
            generation,
            skipped_uncounted,
        } = self;
        HandedChannel {
            links: links.hand_over(to),
            programs: programs.hand_over(is_first, to),
            misses,
            in_pauses,
            paused,
            added: added.into_iter().map(|added| added.hand_over(to)).collect(),
            gone,
            generation,
            skipped_uncounted,
        }
    }

    /// Goes on with one that another process has loaded; `first` is the first one, of those after it.
    pub(super) fn take_over(
        (mut handed, maps): (HandedChannel, ChannelMaps),
        (options, number): (&CaptureOptions, usize),
        first: Option<&Self>,
        from: &mut Descriptors,
    ) -> Result<Self, CaptureError> {
        let channel = options.channels.get(number).ok_or(CaptureError::NoChannel)?;
        let program_options = program_options(options, channel, FIRST)?;
        let first = first.map(|first| &first.programs);
        // Whatever fails from here on, what was attached is detached.
        let links = Links::take_over(handed.links, from).map_err(LoadError::from)?;
        let programs = Programs::take_over((handed.programs, maps), &program_options, first, from)?;
        for (slot, _) in channel.events.iter().enumerate().filter(|(_, event)| event.active.is_over) {
            programs.forget(slot);
        }
        let added = std::mem::take(&mut handed.added).into_iter();
        let added = added.map(|added| Added::take_over(added, &programs, from));
        let added = added.collect::<Result<_, _>>().map_err(LoadError::from)?;
        let mut channel = Self {
            links,
            programs,
            borders: None,
            misses: handed.misses,
            in_pauses: handed.in_pauses,
            paused: handed.paused,
            added,
            gone: handed.gone,
            generation: handed.generation,
            skipped_uncounted: handed.skipped_uncounted,
        };
        if options.rotation.is_some() {
            channel.borders()?;
        }
        Ok(channel)
    }

    /// Attaches its events and probes. Gives what the kernel refused and the recording can do without.
    pub(super) fn attach(
        &mut self,
        options: &mut ChannelOptions,
        attaching: &mut dyn FnMut(usize),
    ) -> Result<Vec<LeftOut>, CaptureError> {
        let all = 0..options.events.len();
        attach(&mut self.programs, &mut self.links, options, &all, attaching)
    }

    /// Loads and attaches programs for the events with these slots of the channel number `number`, and has
    /// them recorded. Gives what the kernel refused and the recording can do without.
    pub(super) fn add(
        &mut self,
        (options, number): (&mut CaptureOptions, usize),
        slots: &Range<usize>,
    ) -> Result<Vec<LeftOut>, CaptureError> {
        let channel = options.channels.get(number).ok_or(CaptureError::NoChannel)?;
        let numbers: Vec<u32> = slots.clone().map(|slot| slot as u32).collect();
        self.generation += 1;
        let program_options = program_options(options, channel, self.generation)?;
        let mut programs = self.programs.extend(&program_options, &numbers)?;
        let mut links = Links::default();
        let channel = options.channels.get_mut(number).ok_or(CaptureError::NoChannel)?;
        let left_out = {
            let _turn = AttachTurn::take();
            attach(&mut programs, &mut links, channel, slots, &mut |_| ())?
        };
        // A library has few descriptors.
        programs.release_object();
        let is_refused = |slot: &usize| {
            let name = channel.events.get(*slot).map(|event| &event.name);
            left_out.iter().any(|left_out| Some(&left_out.event) == name)
        };
        let slots: BTreeSet<usize> = slots.clone().filter(|slot| !is_refused(slot)).collect();
        for &slot in &slots {
            programs.enable(slot as u32);
        }
        self.added.push(Added { links, programs, slots });
        Ok(left_out)
    }

    /// Has an event not recorded any more. What it shares with others stays attached as long as they do, and
    /// probes that were there from the beginning, or came with others, until the recording ends or those go;
    /// none of it records.
    pub(super) fn remove(&mut self, slot: usize) {
        self.programs.disable(slot as u32);
        self.links.fast.release(slot as u32);
        let own = self.links.events.extract_if(.., |(of, _)| *of == slot);
        let attachments: Vec<Attachment> = own.map(|(_, attachment)| attachment).collect();
        for added in &mut self.added {
            added.slots.remove(&slot);
            added.links.fast.release(slot as u32);
        }
        for over in self.added.extract_if(.., |added| added.slots.is_empty()) {
            let misses = over.programs.misses(&over.links.fast, &over.links.probes);
            self.gone.add(misses);
            self.skipped_uncounted |= over.programs.skips_uncounted();
            // Dropping its links detaches them.
        }
        // Without a child process the descriptors are closed right here, which only takes longer.
        let _ = detach_in_background(attachments);
    }

    /// Whether the kernel may have kept events from the programs without counting them.
    pub(super) fn skips_uncounted(&self) -> bool {
        let added = self.added.iter().any(|added| added.programs.skips_uncounted());
        self.skipped_uncounted || added || self.programs.skips_uncounted()
    }

    /// The first of so many slots that are free, one after the other; `events` are those of the channel.
    pub(super) fn free_slots(&self, events: &[CaptureEvent], count: usize) -> Option<Range<usize>> {
        let is_free = |slot: usize| events.get(slot).is_none_or(|event| event.active.is_over);
        let capacity = self.programs.capacity();
        (0..=capacity.checked_sub(count)?)
            .map(|first| first..first + count)
            .find(|slots| slots.clone().all(is_free))
    }

    /// The generation of the programs that record the event with this slot.
    pub(super) fn generation_of(&self, slot: usize) -> u32 {
        let added = self.added.iter().find(|added| added.slots.contains(&slot));
        added.map_or(FIRST, |added| added.programs.generation())
    }

    /// The control blocks of these CPUs, in all sets of rings.
    pub(super) fn controls<'a>(&'a self, cpus: &[u32]) -> impl Iterator<Item = Control<'a>> {
        let rings: Vec<RingId> = self.programs.rings_of(cpus).collect();
        rings.into_iter().filter_map(|ring| self.programs.rings.control(ring))
    }

    /// What finds borders, which not every recording needs.
    pub(super) fn borders(&mut self) -> Result<Arc<Borders>, LoadError> {
        Ok(match &self.borders {
            Some(borders) => Arc::clone(borders),
            None => Arc::clone(self.borders.insert(Arc::new(self.programs.borders()?))),
        })
    }

    /// Leaves out of what the kernel keeps from the programs what it does from now on, in a pause: those that
    /// record would not have recorded it.
    pub(super) fn pause_misses(&mut self) {
        self.paused = Some(self.misses_of_programs());
    }

    /// Ends that.
    pub(super) fn resume_misses(&mut self) {
        self.in_pauses = self.misses_in_pauses();
        self.paused = None;
    }

    fn misses_in_pauses(&self) -> Misses {
        let mut misses = self.in_pauses.clone();
        if let Some(before) = &self.paused {
            // Names are noted in a pause, too.
            misses.add(Misses { names: 0, ..self.misses_of_programs().since(before) });
        }
        misses
    }

    /// What the kernel has kept from the programs since they were attached, but in pauses.
    pub(super) fn all_misses(&self) -> Misses {
        self.misses_of_programs().since(&self.misses_in_pauses())
    }

    fn misses_of_programs(&self) -> Misses {
        let mut misses = self.programs.misses(&self.links.fast, &self.links.probes);
        for added in &self.added {
            misses.add(added.programs.misses(&added.links.fast, &added.links.probes));
        }
        misses.add(self.gone.clone());
        misses
    }

    /// The same since the archive began, which ends now.
    pub(super) fn take_misses(&mut self) -> Misses {
        let now = self.all_misses();
        let before = std::mem::replace(&mut self.misses, now);
        self.misses.since(&before)
    }

    /// Whether it has kept the programs from noting names, by the end of the last archive.
    pub(super) fn has_missed_names(&self) -> bool {
        self.misses.names != 0
    }

    /// Detaches what is attached again quickly, in a pause.
    pub(super) fn suspend(&mut self) {
        self.links.fast.suspend();
        self.added.iter_mut().for_each(|added| added.links.fast.suspend());
    }

    /// Attaches that again.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(super) fn attach_suspended(&mut self) -> std::io::Result<()> {
        self.links.fast.resume()?;
        self.added.iter_mut().try_for_each(|added| added.links.fast.resume())
    }

    /// Ends attaching; detaching continues in the background.
    pub(super) fn detach(&mut self) {
        drop(std::mem::take(&mut self.links));
        self.added.clear();
    }
}
