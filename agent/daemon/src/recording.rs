//! The recording of a session, and what becomes of it when the session changes.
//!
//! Rules come and go in a recording while it goes on. What is fixed in it (its channels, their rings and
//! contexts, and how many events there can be) changes with a new recording that takes over from the one
//! before, in the next trace chunk; of a session that is stopped, at its next start.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Instant,
};

use serde::{Deserialize, Serialize};

use super::{
    descriptors::{Held, OfUser},
    recovery::Note,
    registry::log,
    relay::{Forwarder, SentAll, Settled, Unsent},
    sessions::{
        Added, Halt, Handed, HandedRunning, Key, Listener, Model, NextRecording, Recorder, World,
        spec::{self, Rules, Tracks},
    },
    user::Owner,
};
use ::spec::{Known, RuleSpec, What};
use api::{Channel, Code, ControlError, Domain, EventLoss, Format};
use capture::HandOver;

type Answer<T = ()> = Result<T, ControlError>;

/// Whether a recording can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum RecordingState {
    /// It records, or pauses, what the session says.
    Current,
    /// It pauses, and the session has changed since in a way that takes a new one.
    Outdated,
    /// It is over: everything is stored.
    Closed,
}

/// The recording of a session that was started.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) recorder: Recorder,
    /// Where its files go, and its spool is.
    pub(super) output: PathBuf,
    /// What the next daemon would find of it.
    pub(super) note: Note,
    /// What is recorded into each buffer.
    pub(super) rules: BTreeMap<String, Rules>,
    /// Markers of which nothing is recorded: they are tried again where they are found elsewhere.
    pub(super) left_out: BTreeMap<String, Rules>,
    /// Whose events are.
    pub(super) tracks: Tracks,
    /// Which programs it knows of.
    pub(super) generation: u64,
    pub(super) state: RecordingState,
    /// What sends it to a relay daemon.
    pub(super) relay: Option<(Arc<Forwarder>, Held)>,
    /// Whether the output is a directory of the daemon's own.
    pub(super) is_place: bool,
}

/// The same on its way to another daemon.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HandedRecording {
    output: PathBuf,
    /// The name of the note.
    pub(super) note: String,
    rules: BTreeMap<String, Vec<RuleSpec>>,
    /// What they are about, in the same order.
    #[serde(default)]
    about: BTreeMap<String, Vec<String>>,
    tracks: Tracks,
    state: RecordingState,
    running: HandedRunning,
    #[serde(default)]
    is_place: bool,
    /// Whether there is a recording that goes on.
    pub(super) is_open: bool,
}

impl Recording {
    /// Whether there is something that can go on.
    pub(super) fn is_open(&self) -> bool {
        self.state != RecordingState::Closed
    }

    /// Records again.
    pub(super) fn start(&mut self, model: &Model, world: &World) -> Answer {
        if self.state == RecordingState::Current {
            self.recorder.resume()?;
            // As LTTng, at each start (lttng_session_enable, lttng-modules 2.13).
            if let Some(Err(error)) = model.wants_state().then(|| self.recorder.regenerate_state()) {
                log(&format!("session {}: the state of the machine is not written: {error}", model.name()));
            }
            return Ok(());
        }
        let spec = spec::of(model, world, &self.output)?;
        let recorded = spec::recorded(model, world, &spec)?;
        // What pauses ends first.
        self.state = RecordingState::Closed;
        self.recorder.start(NextRecording { spec, session: model.trace_session() })?;
        self.note(recorded, world);
        self.state = RecordingState::Current;
        Ok(())
    }

    /// Notes what a new recording has.
    fn note(&mut self, recorded: (BTreeMap<String, Rules>, Tracks), world: &World) {
        self.generation = world.generation;
        (self.rules, self.tracks) = recorded;
        self.left_out.clear();
        self.put_aside();
    }

    /// Puts aside the markers of which nothing is recorded.
    pub(super) fn put_aside(&mut self) {
        if !self.rules.values().flatten().any(is_optional_marker) {
            return;
        }
        self.rules.values_mut().for_each(forget_files);
        // That the thread has ended is said elsewhere.
        let Ok(recorded) = self.recorder.markers() else { return };
        for (buffer, rules) in &mut self.rules {
            let markers = recorded.get(buffer).map(Vec::as_slice).unwrap_or_default();
            self.left_out.entry(buffer.clone()).or_default().extend(without_events(rules, markers));
        }
    }

    /// Stops recording.
    pub(super) fn stop(&mut self, model: &Model) -> Answer {
        let how = if pauses(model) { Halt::Pause } else { Halt::Store };
        let halted = self.recorder.halt(how);
        if !matches!(halted, Ok(true)) {
            self.state = RecordingState::Closed;
        }
        halted?;
        self.settle(how)
    }

    /// Waits until everything that is stored is at the relay daemon, as long as that is there.
    fn settle(&self, how: Halt) -> Answer {
        let Some((relay, _)) = &self.relay else { return Ok(()) };
        let mut known = None;
        loop {
            let Settled { waiting, packets } = relay.settle()?;
            // What writes the trace may have waited for what was sent.
            let is_all = waiting != 0 || known == Some(packets);
            if is_all || how == Halt::Store {
                return Ok(());
            }
            known = Some(packets);
            self.recorder.halt(how)?;
        }
    }

    /// Removes what was recorded in the current trace chunk; `files` are what stops have made of it.
    pub(super) fn clear(&mut self, model: &Model, world: &World, files: Vec<PathBuf>) -> Answer {
        self.state = RecordingState::Closed;
        self.recorder.clear(files)?;
        if model.is_active() { self.start(model, world) } else { Ok(()) }
    }

    /// Leaves out its last trace chunk, in which nothing was recorded, before it ends.
    pub(super) fn leave_out_last(&mut self) {
        // At a relay daemon that takes none back, it is an empty one.
        let may_clear = self.relay.as_ref().is_none_or(|(relay, _)| relay.abilities().may_clear);
        if self.is_open() && may_clear {
            self.state = RecordingState::Closed;
            // What stays of it is empty, too.
            let _ = self.recorder.clear(Vec::new());
        }
    }

    /// Lets another daemon go on with it. Gives what goes with it.
    ///
    /// # Errors
    /// It cannot go on, and has ended: everything is stored.
    pub(super) fn hand_over(self) -> Answer<(HandedRecording, Option<HandOver>)> {
        let Self { recorder, output, note, rules, left_out: _, tracks, state, is_place, .. } = self;
        let Handed { running, recording } = match recorder.hand_over() {
            Ok(handed) => handed,
            Err(error) => {
                note.remove();
                return Err(error);
            }
        };
        let texts = |rules: &Rules| -> Vec<String> { rules.keys().map(|(_, text)| text.clone()).collect() };
        let about = rules.iter().map(|(buffer, rules)| (buffer.clone(), texts(rules))).collect();
        let rules = rules.into_iter().map(|(buffer, rules)| (buffer, rules.into_values().collect()));
        let handed = HandedRecording {
            output,
            note: note.name().to_owned(),
            rules: rules.collect(),
            about,
            tracks,
            state,
            running,
            is_place,
            is_open: recording.is_some(),
        };
        Ok((handed, recording))
    }

    /// Goes on with one that another daemon has handed over.
    ///
    /// # Errors
    /// It does not go on: what it has stored is in its spool.
    pub(super) fn take_over(
        (handed, recording): (HandedRecording, Option<HandOver>),
        (owner, descriptors): (Owner, OfUser),
        (keeps, note): (bool, Note),
        listener: Box<dyn Listener>,
    ) -> Answer<Self> {
        let HandedRecording {
            output,
            note: _,
            rules,
            mut about,
            tracks,
            state,
            running,
            is_place,
            is_open: _,
        } = handed;
        let handed = Handed { running, recording };
        let recorder = Recorder::take_over((owner, descriptors), (output.clone(), keeps), listener, handed)?;
        let of_buffer = |(buffer, rules): (String, Vec<RuleSpec>)| {
            // The daemon before may not have said it.
            let mut about = about.remove(&buffer).unwrap_or_default().into_iter();
            let keyed = |rule: RuleSpec| {
                let (kind, text) = spec::key_of(&rule);
                ((kind, about.next().unwrap_or(text)), rule)
            };
            let rules: Rules = rules.into_iter().map(keyed).collect();
            (buffer, rules)
        };
        let rules = rules.into_iter().map(of_buffer).collect();
        // Which programs it knows is looked at again.
        let (generation, relay, left_out) = (u64::MAX, None, BTreeMap::new());
        Ok(Self { recorder, output, note, rules, left_out, tracks, generation, state, relay, is_place })
    }

    /// Ends it. Everything is stored then, also at the relay daemon, which has time until `deadline`; without
    /// one, as long as it stores something.
    ///
    /// # Errors
    /// Something cannot be stored, or the relay daemon lacks some: the error says where that is.
    pub(super) fn end(self, deadline: Option<Instant>) -> Answer {
        let Self { recorder, note, relay, output, is_place, .. } = self;
        let ended = recorder.end();
        let sent = relay.map_or_else(|| Ok(SentAll::default()), |(relay, _held)| relay.end(deadline));
        ended?;
        note.remove();
        if is_place {
            // What is in it stays.
            let _ = std::fs::remove_dir(&output);
        }
        let SentAll { left: Some(Unsent { bytes, dir }) } = sent? else { return Ok(()) };
        let dir = dir.display();
        let why = match bytes {
            Some(bytes) => format!(
                "{bytes} bytes of packets are not at the relay daemon; {dir} has them, in a trace's layout"
            ),
            None => format!(
                "the thread that sends packets does not answer, so that the relay daemon may lack some; {dir}, a \
                 trace that babeltrace2 reads, has them"
            ),
        };
        Err(ControlError::new(Code::RelayConnect, why))
    }

    /// Lets it do what the description of its session says now.
    pub(super) fn follow(&mut self, (before, after): (&Model, &Model), world: &World) -> Answer {
        if spec::schedule(before) != spec::schedule(after) {
            let (period, bytes) = spec::schedule(after);
            self.recorder.schedule(period, bytes);
        }
        if !self.is_open() {
            return spec::check_rules(Some(before), after, world);
        }
        // Where no programs have come, a channel that is as before has the rules that are recorded.
        let base = (self.generation == world.generation).then_some(before);
        self.generation = world.generation;
        if self.state == RecordingState::Outdated || spec::shape(before) != spec::shape(after) {
            return self.replace(after, world);
        }
        let changed = match self.change_rules(base, after, world) {
            Ok(Added::NoRoom) => self.replace(after, world),
            Ok(Added::Done) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = changed {
            if before == after {
                // There are other programs: what is recorded goes on as it is.
                return Err(error);
            }
            // What was removed to be added with another filter is recorded as before.
            if !matches!(self.change_rules(None, before, world), Ok(Added::Done)) {
                self.replace(before, world)?;
            }
            return Err(error);
        }
        self.change_tracks(after)
    }

    /// Lets it record other threads.
    fn change_tracks(&mut self, model: &Model) -> Answer {
        let wanted = spec::tracked(model)?;
        let attributes: BTreeSet<_> = self.tracks.keys().chain(wanted.keys()).copied().collect();
        for attribute in attributes {
            let values = wanted.get(&attribute);
            if values != self.tracks.get(&attribute) {
                self.recorder.track(spec::tracking(attribute, values.map(Vec::as_slice))?)?;
            }
        }
        self.tracks = wanted;
        Ok(())
    }

    /// Adds and removes rules while it goes on, in the channels that are not as they were.
    fn change_rules(&mut self, before: Option<&Model>, model: &Model, world: &World) -> Answer<Added> {
        let mut has_more = false;
        for (buffer, wanted) in spec::changed_rules(before, model, world)? {
            let recorded = self.rules.entry(buffer.clone()).or_default();
            let (over, mut new): (Vec<_>, Rules) = (missing(recorded, &wanted), missing(&wanted, recorded));
            if let Some(left_out) = self.left_out.get_mut(&buffer) {
                left_out.retain(|what, _| wanted.contains_key(what));
                new.retain(|what, rule| left_out.get(what) != Some(rule));
            }
            for what in over.into_iter().map(|(what, _)| what) {
                if let Some(rule) = recorded.remove(&what) {
                    self.recorder.remove(&buffer, rule.what)?;
                }
            }
            if !new.is_empty() {
                if self.recorder.add(&buffer, new.values().cloned().collect())? == Added::NoRoom {
                    return Ok(Added::NoRoom);
                }
                recorded.extend(new);
                has_more = true;
            }
        }
        if has_more {
            self.put_aside();
        }
        Ok(Added::Done)
    }

    /// Lets a new recording take over, now or at the next start.
    fn replace(&mut self, model: &Model, world: &World) -> Answer {
        let spec = spec::of(model, world, &self.output)?;
        if model.is_active() {
            let recorded = spec::recorded(model, world, &spec)?;
            self.recorder.replace(NextRecording { spec, session: model.trace_session() })?;
            self.note(recorded, world);
            return Ok(());
        }
        self.state = RecordingState::Outdated;
        Ok(())
    }
}

/// The rules that others do not have.
fn missing<T: FromIterator<(Key, RuleSpec)>>(rules: &Rules, others: &Rules) -> T {
    let is_there =
        |(what, rule): &(&Key, &RuleSpec)| others.get(*what).is_some_and(|other| spec::is_same(rule, other));
    let not_there = rules.iter().filter(|of| !is_there(of));
    not_there.map(|(what, rule)| (what.clone(), rule.clone())).collect()
}

/// Forgets what was known of the files of rules, which are open: a recording has those that it needs.
fn forget_files(rules: &mut Rules) {
    for rule in rules.values_mut() {
        rule.known = Known::default();
    }
}

/// Whether a rule is about a marker that need not be there.
fn is_optional_marker((_, rule): (&Key, &RuleSpec)) -> bool {
    rule.optional && matches!(rule.what, What::Usdt(_))
}

/// Takes out the markers that need not be there and have no events; `recorded` have some.
fn without_events(rules: &mut Rules, recorded: &[What]) -> Rules {
    let (out, there) = std::mem::take(rules)
        .into_iter()
        .partition(|(key, rule)| is_optional_marker((key, rule)) && !recorded.contains(&rule.what));
    *rules = there;
    out
}

/// Whether a stop leaves a recording that can go on. A trace.dat is complete when it is one; what keeps its
/// newest events has them in memory.
fn pauses(model: &Model) -> bool {
    let overwrites =
        |(_, channel): (Domain, &Channel)| channel.attributes.event_loss == Some(EventLoss::Overwrite);
    match model.session().summary.format {
        _ if model.keeps() => true,
        Format::Lttng => !model.channels().any(overwrites),
        Format::TraceDat => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program of a container is found through one of its processes, and through another when that ends.
    #[test]
    fn a_program_that_is_found_elsewhere_is_recorded_as_before() {
        let rule = |path: &str, filter: Option<&str>| {
            let rule = RuleSpec::new(::spec::What::Usdt(format!("{path}:app:one")));
            let rule = RuleSpec { filter: filter.map(str::to_owned), ..rule };
            Rules::from([(("usdt", "Inode(1, 2):app:one".to_owned()), rule)])
        };
        let [one, other] = ["/proc/7/root/app", "/proc/8/root/app"].map(|path| rule(path, None));
        assert_eq!(missing::<Rules>(&one, &other), Rules::new());
        let filtered = rule("/proc/7/root/app", Some("a == 1"));
        assert_eq!(missing::<Rules>(&one, &filtered), one);
        assert_eq!(missing::<Rules>(&filtered, &one), filtered);
        assert_eq!(missing::<Rules>(&one, &Rules::new()), one);
    }

    #[test]
    fn a_marker_without_events_is_not_recorded() {
        let rule = |path: &str, optional| {
            let what = What::Usdt(format!("{path}:app:one"));
            let rule = RuleSpec { optional, ..RuleSpec::new(what) };
            (("usdt", path.to_owned()), rule)
        };
        let event = (("event", "a:b".to_owned()), RuleSpec::new(What::Events("a:b".parse().unwrap())));
        let mut rules = Rules::from([rule("/a", true), rule("/b", true), rule("/c", false), event]);
        let recorded = [What::Usdt("/b:app:one".to_owned())];
        assert_eq!(without_events(&mut rules, &recorded), Rules::from([rule("/a", true)]));
        assert_eq!(rules.len(), 3);
        // It is elsewhere by then.
        assert_ne!(rule("/a", true).1, rule("/proc/7/root/a", true).1);
    }
}
