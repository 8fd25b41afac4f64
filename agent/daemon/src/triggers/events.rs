//! Events that match rules of triggers: one watch of the engine for all of them.
//!
//! Triggers with the same rule and captures share it. A thread waits for the watch, and fires the triggers of
//! what it tells. It rests as long as it has worked: however many events match, it takes half a CPU at most,
//! and what does not fit the watch's rings meanwhile is counted by the programs.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd as _, OwnedFd},
    sync::{Arc, Mutex, Weak},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, poll};

use super::{Triggers, trigger::Entry};
use crate::lock;
use crate::registry::log;
use crate::sessions::{Key, World, rules_of};
use api::trigger::{Condition, Finding, MatchedEvent};
use api::{Code, ControlError, Domain, EventRule};
use capture::Notice;
use capture::watch::{Captured, LOOK_INTERVAL, Match, RuleId, Watch, WatchError, WatchOptions};
use spec::TraceClock;
use spec::{RuleSpec, WatchSpec};

/// How many events there can be of all triggers: each rule has as many as its pattern matches.
const EVENTS_MAX: usize = 4096;
/// Those of a user other than root.
const EVENTS_OF_USER_MAX: usize = 2048;
/// How long matches that are in the rings are read, when another daemon goes on.
const LAST_MATCHES: Duration = Duration::from_millis(500);

type Answer<T = ()> = Result<T, ControlError>;

/// The events that triggers are about.
#[derive(Debug, Default)]
pub(super) struct Events {
    state: Mutex<State>,
    /// Whose each rule is. It is never held with another lock that comes after it.
    targets: Arc<Mutex<Arc<Targets>>>,
}

type Targets = BTreeMap<RuleId, Vec<Arc<Entry>>>;

#[derive(Debug, Default)]
struct State {
    running: Option<Arc<Running>>,
    rules: BTreeMap<String, Shared>,
    last_id: RuleId,
}

/// A rule, for all triggers that have the same.
#[derive(Debug)]
struct Shared {
    domain: Domain,
    rule: EventRule,
    captures: Vec<String>,
    /// What the engine watches: the events that there were when a rule was added, and others that have come
    /// since.
    parts: Vec<Part>,
    triggers: Vec<Subscriber>,
}

#[derive(Debug)]
struct Part {
    /// `None` where the engine has refused it.
    id: Option<RuleId>,
    events: usize,
    /// What it is about.
    keys: Vec<Key>,
}

#[derive(Debug)]
struct Subscriber {
    entry: Arc<Entry>,
    /// What the counts of the rule were before.
    before: Counts,
    /// What they were at the last look.
    last: Counts,
}

/// Matches of a rule.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    all: u64,
    untold: u64,
    waiting: u64,
}

/// A watch, with the thread that waits for it.
#[derive(Debug)]
struct Running {
    watch: Mutex<Option<Watch>>,
    ends: Notice,
}

/// What a look at the counts of a trigger's rule finds.
pub(super) struct Look {
    pub(super) entry: Arc<Entry>,
    /// Matches since the last look.
    pub(super) events: u64,
    /// Whether there are more of which nothing was told.
    pub(super) has_missed: bool,
}

/// The rule of a condition, with what it captures.
fn rule_of(condition: &Condition) -> Option<(Domain, &EventRule, &[String])> {
    match condition {
        Condition::EventRuleMatches { domain, rule, captures } => Some((*domain, rule, captures)),
        Condition::EventRate { domain, rule, .. } => Some((*domain, rule, &[])),
        _ => None,
    }
}

impl Events {
    /// Whether a condition is about events.
    pub(super) fn is_about(condition: &Condition) -> bool {
        rule_of(condition).is_some()
    }

    /// Whether there is a rule about programs that may come.
    pub(super) fn waits_for_programs(&self) -> bool {
        lock(&self.state).rules.values().any(|shared| shared.domain == Domain::User)
    }

    /// Watches for the events of a trigger.
    ///
    /// # Errors
    /// This kernel has no such event, the filter or a capture is wrong, or there are too many events.
    pub(super) fn add(&self, triggers: &Arc<Triggers>, entry: &Arc<Entry>, world: &World) -> Answer {
        let Some((domain, rule, captures)) = rule_of(&entry.condition) else { return Ok(()) };
        // Plain data.
        let key = serde_json::to_string(&(domain, rule, captures)).unwrap_or_default();
        let mut state = lock(&self.state);
        if !state.rules.contains_key(&key) {
            let rules = rules_of(world, domain, rule)?;
            let mut shared = Shared {
                domain,
                rule: rule.clone(),
                captures: captures.to_vec(),
                parts: Vec::new(),
                triggers: vec![Subscriber::new(entry, Counts::default())],
            };
            if rules.is_empty() {
                // No program has such a marker yet.
                state.rules.insert(key, shared);
                return Ok(());
            }
            let part = self.watch(triggers, &mut state, (&shared, rules))?;
            shared.parts.push(part);
            state.rules.insert(key, shared);
            return Ok(());
        }
        let running = state.running.clone();
        if let Some(shared) = state.rules.get_mut(&key) {
            let before = shared.counts(running.as_deref());
            shared.triggers.push(Subscriber::new(entry, before));
            let (ids, entries) = (shared.ids(), shared.entries());
            self.change_targets(|targets| {
                targets.extend(ids.into_iter().map(|id| (id, entries.clone())));
            });
        }
        Ok(())
    }

    /// Has the engine watch events of a rule.
    fn watch(
        &self,
        triggers: &Arc<Triggers>,
        state: &mut State,
        (shared, rules): (&Shared, Vec<(Key, RuleSpec)>),
    ) -> Answer<Part> {
        let (keys, rules): (Vec<Key>, Vec<RuleSpec>) = rules.into_iter().unzip();
        let captures = shared.captures.iter().map(|text| text.parse());
        let captures = captures.collect::<Result<_, _>>().map_err(invalid)?;
        let spec = WatchSpec { rules, captures };
        let running = self.running(triggers, state)?;
        let ended = || ControlError::new(Code::Daemon, "events cannot be watched any more; the log says why");
        let options = lock(&running.watch).as_ref().map(|watch| watch.options().clone()).ok_or_else(ended)?;
        let planned = plan::watch_rule(&options, &spec);
        let (rule, notes) = planned.map_err(|error| {
            Self::end_if_unused(state);
            of_plan(&error.to_string())
        })?;
        let events = rule.events().len();
        if let Err(error) = check_share(state, shared, events) {
            Self::end_if_unused(state);
            return Err(error);
        }
        for note in notes {
            log(&format!("{}: {note}", shared.told()));
        }
        state.last_id += 1;
        let id = state.last_id;
        // Whoever reads matches of it finds it.
        let entries = shared.entries();
        self.change_targets(|targets| drop(targets.insert(id, entries)));
        let added = lock(&running.watch).as_mut().ok_or_else(ended)?.add(id, rule);
        match added {
            Ok(left_out) => {
                for left_out in left_out {
                    log(&format!("{}: {} is left out: {}", shared.told(), left_out.event, left_out.reason));
                }
                Ok(Part { id: Some(id), events, keys })
            }
            Err(error) => {
                self.change_targets(|targets| drop(targets.remove(&id)));
                Self::end_if_unused(state);
                let code = match error {
                    WatchError::NoRoom { .. } => Code::NoMemory,
                    _ => Code::InvalidTrigger,
                };
                Err(ControlError::new(code, error.to_string()))
            }
        }
    }

    /// The watch, which is started if there is none.
    fn running(&self, triggers: &Arc<Triggers>, state: &mut State) -> Answer<Arc<Running>> {
        if let Some(running) = &state.running {
            return Ok(Arc::clone(running));
        }
        let failed = |error: &dyn std::fmt::Display| {
            ControlError::new(Code::Daemon, format!("events cannot be watched: {error}"))
        };
        let options = plan::watch_options(TraceClock::Mono).map_err(|error| failed(&error))?;
        let options = WatchOptions { events: EVENTS_MAX, ..options };
        let watch = Watch::start(options).map_err(|error| failed(&error))?;
        let descriptor = watch.as_fd().try_clone_to_owned().map_err(|error| failed(&error))?;
        let ends = Notice::new().map_err(|error| failed(&error))?;
        let running = Arc::new(Running { watch: Mutex::new(Some(watch)), ends });
        let (of, targets) = (Arc::clone(&running), Arc::clone(&self.targets));
        let triggers = Arc::downgrade(triggers);
        let thread = std::thread::Builder::new().name("watch".into());
        let read = move || of.read(&descriptor, &targets, &triggers);
        thread.spawn(read).map_err(|error| failed(&error))?;
        state.running = Some(Arc::clone(&running));
        Ok(running)
    }

    fn change_targets(&self, change: impl FnOnce(&mut Targets)) {
        change(Arc::make_mut(&mut lock(&self.targets)));
    }

    /// Watches no longer for the events of a trigger.
    pub(super) fn remove(&self, entry: &Arc<Entry>) {
        let Some((domain, rule, captures)) = rule_of(&entry.condition) else { return };
        let key = serde_json::to_string(&(domain, rule, captures)).unwrap_or_default();
        let mut state = lock(&self.state);
        let running = state.running.clone();
        let Some(shared) = state.rules.get_mut(&key) else { return };
        shared.note(running.as_deref());
        shared.triggers.retain(|of| !Arc::ptr_eq(&of.entry, entry));
        let (ids, entries) = (shared.ids(), shared.entries());
        if !entries.is_empty() {
            self.change_targets(|targets| {
                targets.extend(ids.into_iter().map(|id| (id, entries.clone())));
            });
            return;
        }
        state.rules.remove(&key);
        Self::end_if_unused(&mut state);
        if let Some(running) = &state.running
            && let Some(watch) = &mut *lock(&running.watch)
        {
            for id in &ids {
                // What is not there is not watched.
                let _ = watch.remove(*id);
            }
        }
        drop(state);
        self.change_targets(|targets| ids.iter().for_each(|id| drop(targets.remove(id))));
    }

    /// Notes for triggers what they have missed.
    pub(super) fn note(&self) {
        let state = lock(&self.state);
        for shared in state.rules.values() {
            shared.note(state.running.as_deref());
        }
    }

    /// Looks at the counts of all rules, and notes what was missed. Gives what is found of each trigger.
    pub(super) fn look(&self) -> Vec<Look> {
        let mut state = lock(&self.state);
        let running = state.running.clone();
        state.rules.values_mut().flat_map(|shared| shared.look(running.as_deref())).collect()
    }

    /// There are other programs: watches for those of their markers that rules mean.
    pub(super) fn follow(&self, triggers: &Arc<Triggers>, world: &World) {
        let mut state = lock(&self.state);
        let of_programs = state.rules.iter().filter(|(_, shared)| shared.domain == Domain::User);
        let keys: Vec<String> = of_programs.map(|(key, _)| key.clone()).collect();
        for key in keys {
            let Some(mut shared) = state.rules.remove(&key) else { continue };
            let rules = rules_of(world, shared.domain, &shared.rule).unwrap_or_default();
            // A program is watched wherever it is: once.
            let is_new =
                |(key, _): &(Key, RuleSpec)| !shared.parts.iter().any(|part| part.keys.contains(key));
            let new: Vec<(Key, RuleSpec)> = rules.into_iter().filter(is_new).collect();
            if !new.is_empty() {
                let keys = new.iter().map(|(key, _)| key.clone()).collect();
                let part = self.watch(triggers, &mut state, (&shared, new));
                shared.parts.push(part.unwrap_or_else(|error| {
                    shared.has_problem(&error.to_string());
                    Part { id: None, events: 0, keys }
                }));
            }
            state.rules.insert(key, shared);
        }
    }

    /// Watches for nothing any more. What has come by now fires, or is noted as missed.
    pub(super) fn finish(&self, triggers: &Arc<Triggers>) {
        let state = lock(&self.state);
        let Some(running) = &state.running else { return };
        if let Some(watch) = lock(&running.watch).as_mut() {
            watch.silence();
        }
        let targets = Arc::clone(&lock(&self.targets));
        let deadline = Instant::now() + LAST_MATCHES;
        let waits = || state.rules.values().any(|shared| shared.counts(Some(running)).waiting != 0);
        while waits() && Instant::now() < deadline {
            let Some(Ok(())) = lock(&running.watch)
                .as_mut()
                .map(|watch| watch.take(&mut |found| fire(triggers, &targets, found)))
            else {
                break;
            };
            std::thread::sleep(LOOK_INTERVAL);
        }
        for shared in state.rules.values() {
            let now = shared.counts(Some(running));
            shared.note_as(Counts { untold: now.untold + now.waiting, ..now });
        }
        drop(state);
        self.end();
    }

    /// Ends the watch if no rule has events.
    fn end_if_unused(state: &mut State) {
        let is_used = state.rules.values().any(|shared| !shared.ids().is_empty());
        if !is_used && let Some(running) = state.running.take() {
            running.ends.tell();
        }
    }

    /// Ends all of it, because the daemon ends.
    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        state.rules.clear();
        if let Some(running) = state.running.take() {
            running.ends.tell();
            drop(lock(&running.watch).take());
        }
    }
}

/// Whether a rule of some user may have so many events more.
fn check_share(state: &State, new: &Shared, events: usize) -> Answer {
    let of = |shared: &Shared| shared.triggers.first().map(|of| of.entry.owner.uid);
    let Some(uid) = of(new).filter(|uid| *uid != 0) else { return Ok(()) };
    let own = state.rules.values().chain([new]).filter(|shared| of(shared) == Some(uid));
    let taken: usize = own.flat_map(|shared| &shared.parts).map(|part| part.events).sum();
    if taken + events > EVENTS_OF_USER_MAX {
        return Err(ControlError::new(
            Code::NoMemory,
            format!("the rules of user {uid}'s triggers have more than {EVENTS_OF_USER_MAX} events"),
        ));
    }
    Ok(())
}

fn invalid(error: impl std::fmt::Display) -> ControlError {
    ControlError::new(Code::InvalidTrigger, error.to_string())
}

/// Why a rule cannot be watched, without the place that it has in what is planned: a trigger has one rule.
fn of_plan(text: &str) -> ControlError {
    let (place, why) = match text.split_once(": ") {
        Some((place, why)) if place.starts_with("channels[0].") => (place, why),
        _ => ("", text),
    };
    let code = if place.ends_with(".filter") { Code::Filter } else { Code::InvalidTrigger };
    ControlError::new(code, why)
}

impl Subscriber {
    fn new(entry: &Arc<Entry>, before: Counts) -> Self {
        Self { entry: Arc::clone(entry), before, last: before }
    }
}

impl Shared {
    fn ids(&self) -> Vec<RuleId> {
        self.parts.iter().filter_map(|part| part.id).collect()
    }

    fn entries(&self) -> Vec<Arc<Entry>> {
        self.triggers.iter().map(|of| Arc::clone(&of.entry)).collect()
    }

    /// Which triggers it is of, for a log.
    fn told(&self) -> String {
        let of = |entry: &Arc<Entry>| format!("trigger {} of user {}", entry.name, entry.owner.uid);
        self.triggers.first().map(|subscriber| of(&subscriber.entry)).unwrap_or_default()
    }

    fn has_problem(&self, why: &str) {
        log(&format!("{}: {why}", self.told()));
        self.triggers.iter().for_each(|of| of.entry.has_problem(Some(why.to_owned())));
    }

    /// What is known of its matches.
    fn counts(&self, running: Option<&Running>) -> Counts {
        let mut sums = Counts::default();
        let Some(running) = running else { return sums };
        let watch = lock(&running.watch);
        let Some(watch) = watch.as_ref() else { return sums };
        for counts in self.ids().into_iter().filter_map(|id| watch.counts(id)) {
            sums.all += counts.told + counts.untold + counts.waiting;
            sums.untold += counts.untold;
            sums.waiting += counts.waiting;
        }
        sums
    }

    /// Notes for its triggers what they have missed; gives the counts.
    fn note(&self, running: Option<&Running>) -> Counts {
        let now = self.counts(running);
        self.note_as(now);
        now
    }

    fn note_as(&self, now: Counts) {
        for of in &self.triggers {
            of.entry.has_missed(now.untold.saturating_sub(of.before.untold));
        }
    }

    /// The same; gives what has become of its triggers since the last look.
    fn look(&mut self, running: Option<&Running>) -> Vec<Look> {
        let now = self.note(running);
        let look = |of: &mut Subscriber| {
            let look = Look {
                entry: Arc::clone(&of.entry),
                events: now.all.saturating_sub(of.last.all),
                has_missed: now.untold > of.last.untold,
            };
            of.last = now;
            look
        };
        self.triggers.iter_mut().map(look).collect()
    }
}

impl Running {
    /// Fires triggers until the watch is no longer needed.
    fn read(&self, descriptor: &OwnedFd, targets: &Mutex<Arc<Targets>>, triggers: &Weak<Triggers>) {
        loop {
            let fds = [descriptor.as_fd(), self.ends.as_fd()];
            let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            // After a signal it is as if something had come.
            let _ = poll(&mut fds, None);
            let is_over = !fds[1].revents().is_empty();
            let Some(triggers) = triggers.upgrade().filter(|_| !is_over) else { break };
            let began = Instant::now();
            let mut watch = lock(&self.watch);
            let Some(of) = watch.as_mut() else { break };
            // Those of all rules that may be told: who adds one has put it there before.
            let targets = Arc::clone(&lock(targets));
            let taken = of.take(&mut |found| fire(&triggers, &targets, found));
            drop(watch);
            if let Err(error) = taken {
                log(&format!("triggers do not fire for events any more: {error}"));
                let problem = |entry: &Arc<Entry>| entry.has_problem(Some(error.to_string()));
                targets.values().flatten().for_each(problem);
                break;
            }
            std::thread::sleep(began.elapsed().min(Duration::from_millis(100)));
        }
        // Programs are detached.
        drop(lock(&self.watch).take());
    }
}

/// Fires the triggers of a rule.
fn fire(triggers: &Arc<Triggers>, targets: &Targets, found: Match) {
    let Some(entries) = targets.get(&found.rule) else { return };
    let captures = entries.first().and_then(|entry| rule_of(&entry.condition)).map_or(&[][..], |of| of.2);
    let mut event = Some(matched(found, captures));
    for (index, entry) in entries.iter().enumerate() {
        if matches!(entry.condition, Condition::EventRate { .. }) {
            continue;
        }
        let is_last = index + 1 == entries.len();
        let of = if is_last { event.take() } else { event.clone() };
        if let Some(of) = of {
            triggers.fire(entry, Finding::Event(Box::new(of)));
        }
    }
}

/// An event, with what was captured under the names that it was asked for by.
fn matched(found: Match, captures: &[String]) -> MatchedEvent {
    let Match { rule: _, event, time, cpu, pid, tid, comm, captured } = found;
    MatchedEvent {
        event: event.as_ref().to_owned(),
        clock_ns: time,
        cpu,
        pid,
        tid,
        comm: String::from_utf8_lossy(&comm).into_owned(),
        captured: captures.iter().cloned().zip(captured.into_iter().map(|(_, value)| json(value))).collect(),
    }
}

/// A value as JSON; what is not text becomes numbers.
fn json(value: Captured) -> serde_json::Value {
    match value {
        Captured::Signed(value) => value.into(),
        Captured::Unsigned(value) => value.into(),
        Captured::Text(text) => String::from_utf8_lossy(&text).into(),
        Captured::Array(values) => values.into_iter().map(json).collect(),
        Captured::Bits(bits) => bits.into(),
        Captured::Bytes(bytes) => bytes.into(),
        Captured::Unavailable => serde_json::Value::Null,
    }
}
