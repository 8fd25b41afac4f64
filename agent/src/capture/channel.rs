//! A channel while it is recorded: a ring of each CPU, and the programs that fill it.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use super::{
    CaptureError, LeftOut,
    attaching::attach,
    options::{CaptureEvent, CaptureOptions, ChannelOptions},
};
use crate::{
    attach::{
        Attachment, Borders, Misses, Programs, SharedMaps,
        detach::{AttachTurn, detach_in_background},
        fast::FastLinks,
        hook::HookLinks,
    },
    bpf::LoadError,
    capture::needs::program_options,
    ring::{Control, RingId},
};

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

    /// Has an event not recorded any more. What it shares with others that came with it stays attached as
    /// long as they do, and what was there from the beginning, but for programs of the generic lane, until
    /// the recording ends; none of it records.
    pub(super) fn remove(&mut self, slot: usize) {
        self.programs.disable(slot as u32);
        let own = self.links.events.extract_if(.., |(of, _)| *of == slot);
        let attachments: Vec<Attachment> = own.map(|(_, attachment)| attachment).collect();
        for added in &mut self.added {
            added.slots.remove(&slot);
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

    /// Ends attaching; detaching continues in the background.
    pub(super) fn detach(&mut self) {
        drop(std::mem::take(&mut self.links));
        self.added.clear();
    }
}
