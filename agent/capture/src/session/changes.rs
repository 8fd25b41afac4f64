//! Events that come and go while a recording goes on.

use super::{Session, wait_for_programs};
use crate::needs::wants_symbols;
use crate::symbols::SymbolReader;
use crate::{
    Active, Addition, CaptureError, CaptureEvent, CaptureOptions, ChannelOptions, LeftOut, SpoolError,
};
use compile::fast::Lane;
use kernel::clock::ReadClock as _;
use spec::What;

/// Why events are not added or removed. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// The programs.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// All slots of the channel are taken.
    #[error(
        "the channel has room for {capacity} events, and has not {wanted} free slots in a row: give it more spare events when \
         the recording begins; those of removed ones are free after the next rotation"
    )]
    NoRoom {
        /// How many events there can be.
        capacity: usize,
        /// How many were to be added.
        wanted: usize,
    },
    /// The channel was not given any spare events.
    #[error("the events of this channel do not change: give it spare ones when the recording begins")]
    Fixed,
    /// Events were added or removed since it was planned.
    #[error("the recording has changed since these events were planned; plan them again")]
    Stale,
    /// Stacks follow events, and go with them.
    #[error("{event} follows other events, and is recorded as long as they are")]
    Stacks {
        /// `system:name`.
        event: String,
    },
    /// There is no such channel.
    #[error("there is no such channel")]
    NoChannel,
    /// Nothing records such an event.
    #[error("no event {event} is recorded into this channel")]
    NotRecorded {
        /// `system:name`.
        event: String,
    },
    /// The description of the events cannot be stored for whoever recovers the recording.
    #[error("cannot describe the events: {0}")]
    Describe(#[from] SpoolError),
}

impl Session {
    /// What is recorded, and how. The index of an event in its channel is its slot; those that are
    /// over are among them.
    pub fn options(&self) -> &CaptureOptions {
        &self.options
    }

    /// Records more events into a channel that has [room](crate::ChannelOptions::spare_events) for
    /// them. Nothing that is recorded is disturbed by it, but for a few microseconds on the CPU that this
    /// runs on, in which the kernel runs no program of the generic lane: while it stores the constants of the
    /// new programs. From when this returns on, every firing of them is recorded or counted.
    ///
    /// Gives what the kernel refused of those that were asked for by a pattern.
    ///
    /// # Errors
    /// There is no room, or the kernel refuses an event that is required.
    pub fn add(&mut self, addition: Addition) -> Result<Vec<LeftOut>, AddError> {
        let Addition { changes, channel: number, events, probes, hooks, systems } = addition;
        if changes != self.changes {
            return Err(AddError::Stale);
        }
        let channel = self.channels.get(number).ok_or(AddError::NoChannel)?;
        let of = self.options.channels.get_mut(number).ok_or(AddError::NoChannel)?;
        if of.spare_events == 0 {
            return Err(AddError::Fixed);
        }
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let no_room = AddError::NoRoom { capacity: channel.programs.capacity(), wanted: events.len() };
        let slots = channel.free_slots(&of.events, events.len()).ok_or(no_room)?;
        let before = of.clone();
        of.put(&slots, events, probes);
        let begin = self.options.clock.now_ns();
        // Choices list only events that are recorded from the beginning.
        for event in of.events.get_mut(slots.clone()).into_iter().flatten() {
            event.active.since = Some(begin);
        }
        of.hooks = hooks.or(of.hooks);
        // Before it can have records: whoever recovers the recording has to know what they are.
        let described = std::mem::replace(&mut self.options.manifest.systems, systems);
        let added = self.describe().map_err(AddError::from).and_then(|()| {
            let channel = self.channels.get_mut(number).ok_or(AddError::NoChannel)?;
            Ok(channel.add((&mut self.options, number), &slots)?)
        });
        let left_out = match added {
            Ok(left_out) => left_out,
            Err(error) => {
                self.options.manifest.systems = described;
                if let Some(of) = self.options.channels.get_mut(number) {
                    *of = before;
                }
                // What is described too much does no harm.
                let _ = self.describe();
                return Err(error);
            }
        };
        self.changes += 1;
        let now = self.options.clock.now_ns();
        let added = self.options.channels.get_mut(number).and_then(|of| of.events.get_mut(slots));
        for event in added.into_iter().flatten() {
            event.active.since = Some(now);
            if left_out.iter().any(|left_out| left_out.event == event.name) {
                event.active = Active { since: None, until: Some(now), is_over: true };
            }
        }
        self.choose_compat_counter();
        self.refused.extend(left_out.iter().map(|left_out| left_out.event.clone()));
        if !left_out.is_empty() {
            // What is described too much is unknown to be refused.
            let _ = self.describe();
        }
        if self.symbols.is_none() && wants_symbols(&self.options) {
            self.symbols = Some(SymbolReader::start(&self.archive.spool));
        }
        Ok(left_out)
    }

    /// Stores what the file describes.
    pub(super) fn describe(&mut self) -> Result<(), SpoolError> {
        let choices = super::event_choices(&self.options, &self.not_attached());
        self.options.manifest.choices = choices;
        self.options.manifest.marks_compat = self.options.marks_compat();
        self.archive.manifest.marks_compat = self.options.manifest.marks_compat;
        self.archive.manifest.systems.clone_from(&self.options.manifest.systems);
        self.archive.manifest.choices.clone_from(&self.options.manifest.choices);
        self.archive.manifest.store(&self.archive.spool)
    }

    /// How often events were added or removed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Records an event (`system:name`) of a channel no longer. Nothing else that is recorded is lost or
    /// disturbed by it. What it has recorded stays, and its counts are in the ledger, with the time up to
    /// which it was recorded.
    ///
    /// # Errors
    /// It is not recorded into this channel, or the channel was not given any spare events.
    pub fn remove(&mut self, channel: &str, event: &str) -> Result<(), AddError> {
        let (number, of) = self.changing(channel)?;
        let is_it = |of: &CaptureEvent| of.name == event && of.active.until.is_none();
        let slot = of.events.iter().position(is_it);
        let slot = slot.ok_or_else(|| AddError::NotRecorded { event: event.to_owned() })?;
        // Their programs do not ask whether they are recorded: the events that they follow are.
        if matches!(of.events[slot].lane, Lane::Stack(_)) {
            return Err(AddError::Stacks { event: event.to_owned() });
        }
        self.remove_slots(number, &[slot]);
        Ok(())
    }

    /// The same for all events of a rule: those for which it was the one that says [what is
    /// wanted](CaptureEvent::rule). Gives how many there were; a pattern, or what a recording does without,
    /// may have none.
    ///
    /// # Errors
    /// There is no such channel, or it was not given any spare events.
    pub fn remove_rule(&mut self, channel: &str, rule: &What) -> Result<usize, AddError> {
        let (number, of) = self.changing(channel)?;
        let is_of_rule = |event: &CaptureEvent| event.rule.as_ref() == Some(rule);
        let events = of.events.iter().enumerate();
        let recorded = events.filter(|(_, event)| event.active.until.is_none() && is_of_rule(event));
        let slots: Vec<usize> = recorded.map(|(slot, _)| slot).collect();
        self.remove_slots(number, &slots);
        Ok(slots.len())
    }

    /// A channel whose events may change, with its number.
    fn changing(&self, channel: &str) -> Result<(usize, &ChannelOptions), AddError> {
        let mut channels = self.options.channels.iter().enumerate();
        let (number, of) = channels.find(|(_, of)| of.name == channel).ok_or(AddError::NoChannel)?;
        if of.spare_events == 0 { Err(AddError::Fixed) } else { Ok((number, of)) }
    }

    fn remove_slots(&mut self, channel: usize, slots: &[usize]) {
        let now = self.options.clock.now_ns();
        for &slot in slots {
            self.changes += 1;
            let of = self.options.channels.get_mut(channel);
            if let Some(event) = of.and_then(|of| of.events.get_mut(slot)) {
                event.active.until = Some(now);
            }
        }
        // Before the one that counts is detached.
        self.choose_compat_counter();
        if let Some(channel) = self.channels.get_mut(channel) {
            for slot in slots {
                channel.remove(*slot);
            }
        }
        // What is described too much is unknown to be removed, and recorded for all that.
        let _ = self.describe();
    }

    /// Waits until nothing more comes of events that were removed: programs that have looked at `ENABLED`
    /// before it was cleared have returned then.
    pub(super) fn wait_for_removed(&self) {
        if self.options.events().any(is_removed) {
            wait_for_programs();
        }
    }

    /// Lets the slots of events be used again that were removed before an archive began, which is recorded to
    /// now, and of which all records are before it.
    pub(super) fn free_removed(&mut self) {
        for (channel, of) in self.channels.iter().zip(&mut self.options.channels) {
            for (slot, event) in of.events.iter_mut().enumerate().filter(|(_, event)| is_removed(event)) {
                event.active.is_over = true;
                channel.programs.forget(slot);
            }
        }
    }
}

/// Whether an event was removed in the archive that is recorded to.
fn is_removed(event: &CaptureEvent) -> bool {
    event.active.until.is_some() && !event.active.is_over
}
