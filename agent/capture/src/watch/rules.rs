//! The programs of rules, and their slots.
//!
//! Each rule's programs are an object of their own beside those that run, with the watch's rings and counts,
//! as events that are added to a recording are. A record carries its number in the place of the event's id:
//! the number is of one event of one rule, and none is used again before all others were.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
};

use agent_ebpf::{EventLedger, LossCause, places};

use super::{Decoder, RuleId, Watch, WatchCounts, WatchError, WatchOptions, WatchRule};
use crate::attaching::attach;
use crate::channel::Links;
use crate::needs::watch_program_options;
use crate::{CaptureError, ChannelOptions, LeftOut, RING_PAGES_MIN};
use attach::detach::AttachTurn;
use attach::ring::SharedArray;
use attach::{Misses, ProgramOptions, Programs};
use bpf::LoadError;
use compile::fast::Lane;

/// The generation of the programs that are there from the beginning on, which record nothing.
const FIRST: u32 = 1;

/// Rules while they are watched.
#[derive(Debug)]
pub(super) struct Rules {
    /// By number. Their links come first: they go before the programs whose maps they use.
    added: BTreeMap<RuleId, Added>,
    /// Those that make and close pages; they record nothing.
    pub(super) programs: Programs,
    pub(super) options: WatchOptions,
    places: Places,
    channel: ChannelOptions,
    /// What a record's number means.
    numbers: HashMap<u16, Target>,
    last_number: u16,
    /// Where free slots are looked for first: those that were given up lately rest.
    next_slot: usize,
    generation: u32,
}

/// How many of the [places] are taken.
#[derive(Debug)]
struct Places {
    words: SharedArray<u64>,
    slots: u32,
}

/// What was taken of each word of [`Places`].
pub(super) type Taken = Vec<(usize, u64)>;

impl Places {
    fn of(programs: &Programs) -> Result<Self, LoadError> {
        let slots = programs.capacity() as u32;
        let words = programs.memory("RATES", places::words(slots) as usize)?;
        Ok(Self { words, slots })
    }

    fn of_rule(&self, slots: &Range<usize>) -> usize {
        places::of_rule(self.slots, slots.start as u32) as usize
    }
}

/// The programs of a rule.
#[derive(Debug)]
struct Added {
    // First, as above.
    links: Links,
    programs: Programs,
    slots: Range<usize>,
    /// What its slots had counted before.
    before: Sums,
    told: u64,
}

/// An event of a rule.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) rule: RuleId,
    pub(super) decoder: Arc<Decoder>,
}

/// Counts of some slots, on all CPUs.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    recorded: u64,
    filtered: u64,
    own: u64,
    lost: u64,
}

impl Sums {
    fn add(&mut self, row: &EventLedger) {
        let intended = row.lost[LossCause::RateLimit as usize];
        self.recorded = self.recorded.wrapping_add(row.recorded);
        self.filtered = self.filtered.wrapping_add(row.filtered);
        self.own = self.own.wrapping_add(row.own);
        self.lost = self.lost.wrapping_add(row.lost.iter().sum::<u64>().wrapping_sub(intended));
    }
}

impl Rules {
    pub(super) fn start(mut options: WatchOptions) -> Result<Self, CaptureError> {
        options.ring_pages = options.ring_pages.max(RING_PAGES_MIN);
        let channel = ChannelOptions::of_watch(options.ring_pages, options.events);
        let maps = options.threads.maps.as_deref();
        let programs = Programs::load(&watch_program_options(&options, &channel, (None, FIRST))?, maps)?;
        let places = Places::of(&programs)?;
        Ok(Self {
            added: BTreeMap::new(),
            programs,
            options,
            places,
            channel,
            numbers: HashMap::new(),
            last_number: 0,
            next_slot: 0,
            generation: FIRST,
        })
    }

    /// The places that are taken by now.
    pub(super) fn taken(&self) -> Taken {
        let shared = places::shared(self.places.slots) as usize;
        let own = self.added.values().map(|added| self.places.of_rule(&added.slots));
        let taken = |word| Some((word, self.places.words.read(word).filter(|taken| *taken != 0)?));
        own.chain([shared]).filter_map(taken).collect()
    }

    /// Gives back places that were taken before the rings were emptied.
    pub(super) fn give_back(&self, taken: &[(usize, u64)]) {
        for (word, count) in taken {
            self.places.words.subtract(*word, *count);
        }
    }

    /// Whether a rule has taken all places of its own, or all rules the shared ones.
    pub(super) fn lacks_places(&self) -> bool {
        let shared = places::shared(self.places.slots) as usize;
        let most = |word: usize| if word == shared { places::SHARED } else { places::OF_RULE };
        self.taken().into_iter().any(|(word, taken)| taken >= most(word))
    }

    /// How many places there are.
    pub(super) fn places(&self) -> usize {
        (places::SHARED + places::OF_RULE * self.added.len() as u64) as usize
    }

    /// Opens or closes the gates of all CPUs.
    pub(super) fn set_gates(&self, open: bool) {
        for ring in self.programs.rings_of(&self.options.cpus) {
            if let Some(control) = self.programs.rings.control(ring) {
                control.set_enabled(open);
            }
        }
    }

    /// Loads and attaches the programs of a rule. From when this returns on, every firing that matches is
    /// recorded or counted.
    pub(super) fn add(&mut self, id: RuleId, rule: WatchRule) -> Result<Vec<LeftOut>, WatchError> {
        if self.added.contains_key(&id) {
            return Err(WatchError::Taken(id));
        }
        let WatchRule { mut events, probes, hooks, strings, decoders } = rule;
        let capacity = self.programs.capacity();
        let slots = self.free_slots(events.len());
        let slots = slots.ok_or(WatchError::NoRoom { capacity, wanted: events.len() })?;
        let mut numbers = Vec::with_capacity(events.len());
        for event in &mut events {
            let number = self.free_number().ok_or(WatchError::NoRoom { capacity, wanted: slots.len() })?;
            event.slot.id = number;
            if let Lane::Fast(program) = &mut event.lane {
                program.set_id(number);
            }
            numbers.push(number);
        }
        let before = self.sums(&slots);
        self.channel.put(&slots, events, probes);
        self.channel.hooks = hooks;
        self.channel.strings = strings;
        let (programs, links, left_out) = self.attach(&slots)?;
        for (number, decoder) in numbers.into_iter().zip(decoders) {
            self.numbers.insert(number, Target { rule: id, decoder });
        }
        for slot in slots.clone() {
            let name = self.channel.events.get(slot).map(|event| &event.name);
            if !left_out.iter().any(|left_out| Some(&left_out.event) == name) {
                programs.enable(slot as u32);
            }
        }
        self.next_slot = slots.end;
        self.added.insert(id, Added { links, programs, slots, before, told: 0 });
        Ok(left_out)
    }

    fn attach(&mut self, slots: &Range<usize>) -> Result<(Programs, Links, Vec<LeftOut>), CaptureError> {
        self.generation = self.generation.wrapping_add(1).max(FIRST + 1);
        let of = (Some(slots.start as u32), self.generation);
        let options: ProgramOptions = watch_program_options(&self.options, &self.channel, of)?;
        // What the rule before it had taken.
        self.places.words.store(self.places.of_rule(slots), 0);
        let numbers: Vec<u32> = slots.clone().map(|slot| slot as u32).collect();
        let mut programs = self.programs.extend(&options, &numbers)?;
        let mut links = Links::default();
        let left_out = {
            let _turn = AttachTurn::take();
            attach(&mut programs, &mut links, &mut self.channel, slots, &mut |_| ())?
        };
        // A daemon has few descriptors.
        programs.release_object();
        Ok((programs, links, left_out))
    }

    /// Has nothing of a rule recorded from now on, once programs that run have returned; what is recorded
    /// stays in the rings. `false` if there is no such rule.
    pub(super) fn silence(&mut self, id: RuleId) -> bool {
        let Some(added) = self.added.get(&id) else { return false };
        added.slots.clone().for_each(|slot| added.programs.disable(slot as u32));
        true
    }

    /// Forgets a rule that is silent and has no records left.
    pub(super) fn forget(&mut self, id: RuleId) {
        if let Some(added) = self.added.remove(&id) {
            self.numbers.retain(|_, target| target.rule != id);
            added.slots.clone().for_each(|slot| self.programs.forget(slot));
        }
    }

    /// What is known of the events of a rule.
    pub(super) fn counts(&self, id: RuleId) -> Option<WatchCounts> {
        let added = self.added.get(&id)?;
        let Misses { programs, .. } = added.programs.misses(&added.links.fast, &added.links.probes);
        let skipped = programs.iter().map(|program| program.misses).sum();
        Some(WatchCounts { skipped, ..self.counts_without_skips(id)? })
    }

    /// The same without what the kernel has skipped.
    pub(super) fn counts_without_skips(&self, id: RuleId) -> Option<WatchCounts> {
        let added = self.added.get(&id)?;
        let now = self.sums(&added.slots);
        let Sums { recorded, filtered, own, lost } = added.before;
        Some(WatchCounts {
            told: added.told,
            untold: now.lost.wrapping_sub(lost),
            waiting: now.recorded.wrapping_sub(recorded).saturating_sub(added.told),
            filtered: now.filtered.wrapping_sub(filtered),
            own_threads: now.own.wrapping_sub(own),
            skipped: None,
        })
    }

    /// What a number in a record means; nothing, of a rule that is gone.
    pub(super) fn target(&self, number: u16) -> Option<&Target> {
        self.numbers.get(&number)
    }

    /// Counts a match of a rule that is told.
    pub(super) fn count(&mut self, id: RuleId) {
        if let Some(added) = self.added.get_mut(&id) {
            added.told += 1;
        }
    }

    fn sums(&self, slots: &Range<usize>) -> Sums {
        let mut sums = Sums::default();
        for ring in self.programs.rings_of(&self.options.cpus) {
            for row in slots.clone().filter_map(|slot| self.programs.event_counts(ring, slot)) {
                sums.add(&row);
            }
        }
        sums
    }

    /// So many slots in a row that no rule has.
    fn free_slots(&self, count: usize) -> Option<Range<usize>> {
        let last = self.programs.capacity().checked_sub(count)?;
        let is_free = |slots: &Range<usize>| {
            let mut taken = self.added.values().map(|added| &added.slots);
            taken.all(|taken| taken.end <= slots.start || slots.end <= taken.start)
        };
        let from = self.next_slot.min(last);
        (from..=last).chain(0..from).map(|first| first..first + count).find(is_free)
    }

    /// A number that no event has.
    fn free_number(&mut self) -> Option<u16> {
        for _ in 0..=u16::MAX {
            self.last_number = self.last_number.wrapping_add(1).max(1);
            // Of the events of this call, those before have lower ones: there are fewer events than numbers.
            if !self.numbers.contains_key(&self.last_number) {
                return Some(self.last_number);
            }
        }
        None
    }
}

impl Watch {
    /// The numbers of its rules.
    pub fn rules(&self) -> impl Iterator<Item = RuleId> {
        self.rules.added.keys().copied()
    }
}
