//! Events that match rules of a user's triggers: one watch of the engine for all of them.
//!
//! Triggers with the same rule and captures share it. A thread waits for the watch, and fires the triggers of
//! what it tells. It rests as long as it has worked: however many events match, it takes half a CPU at most,
//! and what has no place in the watch's rings meanwhile is counted by the programs.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd as _, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, TryLockError, Weak},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, poll};

use crate::descriptors::{Descriptors, Held};
use crate::lock;
use crate::registry::log;
use crate::sessions::{Key, World, rules_of};
use crate::shares::{Memory, Shares};
use crate::triggers::{Triggers, trigger::Entry};
use api::trigger::{Condition, Finding, MatchedEvent};
use api::{Code, ControlError, Domain, EventRule};
use capture::Notice;
use capture::watch::{Captured, LOOK_INTERVAL, Match, RuleId, Watch, WatchCounts, WatchError, WatchOptions};
use plan::{PlanError, Watched};
use spec::TraceClock;
use spec::{Capture, RuleSpec, What};

/// How many events there can be of root's triggers: each rule has as many as its pattern matches.
const EVENTS_OF_ROOT_MAX: usize = 4096;
/// Those of another user's.
const EVENTS_OF_USER_MAX: usize = 2048;
/// How long matches that are in the rings are read, when another daemon goes on.
const LAST_MATCHES: Duration = Duration::from_millis(500);

type Answer<T = ()> = Result<T, ControlError>;

/// The events that a user's triggers are about.
#[derive(Debug)]
pub(super) struct UserEvents {
    uid: u32,
    shares: Arc<Shares>,
    descriptors: Descriptors,
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
    /// How many plans are being made for the watch that runs.
    planning: usize,
    /// When counts were looked at last.
    looked: Option<Instant>,
}

/// A rule, for all triggers that have the same.
#[derive(Debug)]
struct Shared {
    domain: Domain,
    rule: EventRule,
    captures: Vec<String>,
    /// What the engine watches: the events that there were when a rule was added, and others that have come
    /// since. Each marker of a program is one.
    parts: Vec<Part>,
    /// Parts that are gone, whose last matches may not have been told yet.
    leaving: Vec<Leaving>,
    /// Matches of parts that are gone.
    past: Counts,
    triggers: Vec<Subscriber>,
}

#[derive(Debug)]
struct Part {
    /// `None` where the engine has refused it.
    id: Option<RuleId>,
    events: usize,
    /// The descriptors of its programs.
    files: Option<Held>,
    about: About,
}

/// A part that is gone.
#[derive(Debug)]
struct Leaving {
    id: RuleId,
    /// Its counts then.
    before: Counts,
    /// The descriptors of its programs, until the engine has closed them.
    files: Option<Held>,
}

/// What a part is about, with what was planned.
type About = Vec<(Key, What)>;

/// A part that is planned.
struct Planned {
    about: About,
    planned: Answer<Watched>,
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

impl From<WatchCounts> for Counts {
    fn from(of: WatchCounts) -> Self {
        Self { all: of.told + of.untold + of.waiting, untold: of.untold, waiting: of.waiting }
    }
}

/// A watch, with the thread that waits for it.
#[derive(Debug)]
struct Running {
    watch: Mutex<Option<HeldWatch>>,
    ends: Notice,
}

/// A watch, with what it takes.
#[derive(Debug)]
struct HeldWatch {
    // First: what it takes is given back when it is closed.
    watch: Watch,
    _held: (Memory, Held),
}

/// What a look at the counts of a trigger's rule finds.
pub(in crate::triggers) struct Look {
    pub(in crate::triggers) entry: Arc<Entry>,
    /// Matches since the last look.
    pub(in crate::triggers) events: u64,
    /// How long ago that was.
    pub(in crate::triggers) elapsed: Duration,
    /// Whether there are more of which nothing was told.
    pub(in crate::triggers) has_missed: bool,
}

/// Another thread uses the watch.
struct InUse;

/// The rule of a condition, with what it captures.
pub(crate) fn rule_of(condition: &Condition) -> Option<(Domain, &EventRule, &[String])> {
    match condition {
        Condition::EventRuleMatches { domain, rule, captures } => Some((*domain, rule, captures)),
        Condition::EventRate { domain, rule, .. } => Some((*domain, rule, &[])),
        _ => None,
    }
}

impl UserEvents {
    /// None yet.
    pub(super) fn new(uid: u32, (shares, descriptors): (Arc<Shares>, Descriptors)) -> Self {
        Self { uid, shares, descriptors, state: Mutex::default(), targets: Arc::default() }
    }

    /// Whether something is watched for, or may be as programs come.
    pub(super) fn is_used(&self) -> bool {
        let state = lock(&self.state);
        !state.rules.is_empty() || state.running.is_some()
    }

    /// Whether there is a rule about programs that may come.
    pub(super) fn waits_for_programs(&self) -> bool {
        lock(&self.state).rules.values().any(|shared| shared.domain == Domain::User)
    }

    /// Watches for the events of a trigger. Planning takes its time, in which others are not held up.
    ///
    /// # Errors
    /// This kernel has no such event, the filter or a capture is wrong, or there are too many events.
    pub(super) fn add(&self, triggers: &Arc<Triggers>, entry: &Arc<Entry>, world: &World) -> Answer {
        let Some((domain, rule, captures)) = rule_of(&entry.condition) else { return Ok(()) };
        // Plain data.
        let key = serde_json::to_string(&(domain, rule, captures)).unwrap_or_default();
        if self.subscribe(&mut lock(&self.state), &key, entry) {
            return Ok(());
        }
        let new = parts_of(domain, rules_of(world, domain, rule)?);
        let (mut state, planned) = self.plan(triggers, captures, new);
        // Somebody else may have added the same meanwhile.
        if self.subscribe(&mut state, &key, entry) {
            return Ok(());
        }
        let mut shared = Shared {
            domain,
            rule: rule.clone(),
            captures: captures.to_vec(),
            parts: Vec::new(),
            leaving: Vec::new(),
            past: Counts::default(),
            triggers: vec![Subscriber::new(entry, Counts::default())],
        };
        let watched = planned.and_then(|new| self.watch(triggers, &mut state, &mut shared, new));
        if watched.is_ok() {
            state.rules.insert(key, shared);
        } else {
            Self::end_if_unused(&mut state);
        }
        watched
    }

    /// Adds a trigger to a rule that is watched already; `false` if the rule is not.
    fn subscribe(&self, state: &mut State, key: &str, entry: &Arc<Entry>) -> bool {
        let State { running, rules, .. } = state;
        let Some(shared) = rules.get_mut(key) else { return false };
        let before = shared.counts(lock_watch(running.as_ref()).as_deref().and_then(Option::as_ref));
        shared.triggers.push(Subscriber::new(entry, before));
        let (ids, entries) = (shared.ids(), shared.entries());
        self.change_targets(|targets| {
            targets.extend(ids.into_iter().map(|id| (id, entries.clone())));
        });
        true
    }

    /// Plans parts of a rule, with no lock held meanwhile. No file of a user is opened: those of markers are
    /// open.
    fn plan(
        &self,
        triggers: &Arc<Triggers>,
        captures: &[String],
        parts: Vec<Vec<(Key, RuleSpec)>>,
    ) -> (MutexGuard<'_, State>, Answer<Vec<Planned>>) {
        let mut state = lock(&self.state);
        if parts.is_empty() {
            // No program has such a marker yet.
            return (state, Ok(Vec::new()));
        }
        let running = self.running(triggers, &mut state);
        state.planning += 1;
        drop(state);
        let planned = running.and_then(|running| {
            let options = lock(&running.watch).as_ref().map(|of| of.watch.options().clone());
            planned(&options.ok_or_else(ended)?, captures, parts)
        });
        let mut state = lock(&self.state);
        state.planning -= 1;
        if planned.is_err() {
            Self::end_if_unused(&mut state);
        }
        (state, planned)
    }

    /// Has the engine watch parts of a rule.
    ///
    /// # Errors
    /// None of them can be watched. They are among the parts of the rule all the same.
    fn watch(
        &self,
        triggers: &Arc<Triggers>,
        state: &mut State,
        shared: &mut Shared,
        planned: Vec<Planned>,
    ) -> Answer {
        if planned.is_empty() {
            return Ok(());
        }
        let running = self.running(triggers, state)?;
        let count = planned.len() as RuleId;
        let ids: Vec<RuleId> = (state.last_id + 1..=state.last_id + count).collect();
        state.last_id += count;
        // Whoever reads matches of them finds them.
        let entries = shared.entries();
        self.change_targets(|targets| targets.extend(ids.iter().map(|id| (*id, entries.clone()))));
        let mut refused = Vec::new();
        for (id, Planned { about, planned }) in ids.into_iter().zip(planned) {
            let added = planned.and_then(|watched| self.watch_part(state, &running, shared, (id, watched)));
            let (id, events, files) = match added {
                Ok((events, files)) => (Some(id), events, Some(files)),
                Err(error) => {
                    refused.push((id, error));
                    (None, 0, None)
                }
            };
            shared.parts.push(Part { id, events, files, about });
        }
        self.change_targets(|targets| refused.iter().for_each(|(id, _)| drop(targets.remove(id))));
        if refused.len() as RuleId == count
            && let Some((_, error)) = refused.pop()
        {
            return Err(error);
        }
        for (_, error) in refused {
            log(&format!("{}: not watched: {error}", shared.told()));
        }
        Ok(())
    }

    /// Has the engine watch a part of a rule. Gives how many events it has, and its descriptors.
    fn watch_part(
        &self,
        state: &State,
        running: &Running,
        shared: &Shared,
        (id, (rule, notes)): (RuleId, Watched),
    ) -> Answer<(usize, Held)> {
        let events = rule.events().len();
        check_share(self.uid, state, shared, events)?;
        let files = self.descriptors.of(self.uid).take(rule.files())?;
        for note in notes {
            log(&format!("{}: {note}", shared.told()));
        }
        let added = lock(&running.watch).as_mut().ok_or_else(ended)?.watch.add(id, rule);
        let left_out = added.map_err(|error| {
            let code = match error {
                WatchError::NoRoom { .. } => Code::NoMemory,
                _ => Code::InvalidTrigger,
            };
            ControlError::new(code, error.to_string())
        })?;
        for left_out in left_out {
            log(&format!("{}: {} is left out: {}", shared.told(), left_out.event, left_out.reason));
        }
        Ok((events, files))
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
        let events = if self.uid == 0 { EVENTS_OF_ROOT_MAX } else { EVENTS_OF_USER_MAX };
        let options = WatchOptions { events, ..options };
        let memory = self.shares.take_memory(self.uid, options.bytes())?;
        let held = (memory, self.descriptors.of(self.uid).take(WatchOptions::FILES)?);
        let watch = Watch::start(options).map_err(|error| failed(&error))?;
        let descriptor = watch.as_fd().try_clone_to_owned().map_err(|error| failed(&error))?;
        let ends = Notice::new().map_err(|error| failed(&error))?;
        let watch = Mutex::new(Some(HeldWatch { watch, _held: held }));
        let running = Arc::new(Running { watch, ends });
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
        let State { running, rules, .. } = &mut *state;
        let Some(shared) = rules.get_mut(&key) else { return };
        shared.note(lock_watch(running.as_ref()).as_deref().and_then(Option::as_ref));
        shared.triggers.retain(|of| !Arc::ptr_eq(&of.entry, entry));
        let (mut ids, entries) = (shared.ids(), shared.entries());
        ids.extend(shared.leaving.iter().map(|of| of.id));
        if !entries.is_empty() {
            self.change_targets(|targets| {
                targets.extend(ids.into_iter().map(|id| (id, entries.clone())));
            });
            return;
        }
        let removed = rules.remove(&key);
        Self::end_if_unused(&mut state);
        if let Some(running) = &state.running
            && let Some(HeldWatch { watch, .. }) = &mut *lock(&running.watch)
        {
            for id in &ids {
                // What is not there is not watched.
                let _ = watch.remove(*id);
            }
        }
        // Its programs are closed, and its descriptors free.
        drop(removed);
        drop(state);
        self.change_targets(|targets| ids.iter().for_each(|id| drop(targets.remove(id))));
    }

    /// Notes for triggers what they have missed. Waits for rules that are being changed, and matches that are
    /// being told.
    pub(super) fn note(&self) {
        let state = lock(&self.state);
        let watch = lock_watch(state.running.as_ref());
        let watch = watch.as_deref().and_then(Option::as_ref);
        for shared in state.rules.values() {
            shared.note(watch);
        }
    }

    /// The same, unless that would have to wait.
    pub(super) fn note_at_once(&self) {
        if let Some(state) = try_lock(&self.state)
            && let Ok(watch) = try_lock_watch(state.running.as_ref())
        {
            let watch = watch.as_deref().and_then(Option::as_ref);
            for shared in state.rules.values() {
                shared.note(watch);
            }
        }
    }

    /// Looks at the counts of all rules, and notes what was missed. Gives what is found of each trigger;
    /// nothing if that would have to wait.
    pub(super) fn look(&self) -> Option<Vec<Look>> {
        let mut state = try_lock(&self.state)?;
        let State { running, rules, looked, .. } = &mut *state;
        let watch = try_lock_watch(running.as_ref()).ok()?;
        let watch = watch.as_deref().and_then(Option::as_ref);
        let now = Instant::now();
        let elapsed = looked.replace(now).map_or(Duration::from_secs(1), |before| now - before);
        Some(rules.values_mut().flat_map(|shared| shared.look(watch, elapsed)).collect())
    }

    /// There are other programs: watches for those of their markers that rules mean, and no longer for those
    /// of programs that are gone.
    pub(super) fn follow(&self, triggers: &Arc<Triggers>, world: &World) {
        let mut state = lock(&self.state);
        Self::end_if_unused(&mut state);
        let running = state.running.clone();
        let (mut gone, mut wanted) = (Vec::new(), Vec::new());
        for (key, shared) in state.rules.iter_mut().filter(|(_, shared)| shared.domain == Domain::User) {
            let Ok(rules) = rules_of(world, shared.domain, &shared.rule) else { continue };
            // Their last matches have been told by now.
            let told = std::mem::take(&mut shared.leaving);
            if !told.is_empty() {
                self.change_targets(|targets| told.iter().for_each(|of| drop(targets.remove(&of.id))));
            }
            let watch = lock_watch(running.as_ref());
            let new = shared.follow(rules, watch.as_deref().and_then(Option::as_ref));
            drop(watch);
            gone.extend(shared.leaving.iter().map(|of| (key.clone(), of.id, of.before)));
            if !new.is_empty() {
                wanted.push((key.clone(), shared.captures.clone(), parts_of(Domain::User, new)));
            }
        }
        drop(state);
        if let Some(running) = &running {
            self.let_go(running, gone);
        }
        for (key, captures, parts) in wanted {
            let (mut state, planned) = self.plan(triggers, &captures, parts);
            // It may have been removed meanwhile.
            let Some(mut shared) = state.rules.remove(&key) else { continue };
            let watched = planned.and_then(|mut planned| {
                planned.retain(|new| !new.about.iter().any(|(key, _)| shared.is_about(key)));
                self.watch(triggers, &mut state, &mut shared, planned)
            });
            if let Err(error) = watched {
                shared.has_problem(&error.to_string());
            }
            state.rules.insert(key, shared);
        }
    }

    /// Removes parts that are no longer among those of their rules, whose counts by then are among those of
    /// their rules.
    fn let_go(&self, running: &Running, gone: Vec<(String, RuleId, Counts)>) {
        for (key, id, before) in gone {
            // Locked for each part, so that triggers fire in between.
            let mut watch = lock(&running.watch);
            let Some(of) = watch.as_mut() else { return };
            let Ok(last) = of.watch.remove(id) else { continue };
            drop(watch);
            if let Some(shared) = lock(&self.state).rules.get_mut(&key) {
                let last = Counts::from(last);
                shared.past.all += last.all.saturating_sub(before.all);
                shared.past.untold += last.untold.saturating_sub(before.untold);
                // Its programs are closed.
                shared.leaving.iter_mut().filter(|of| of.id == id).for_each(|of| of.files = None);
            }
        }
    }

    /// Watches for nothing any more. What has come by now fires, or is noted as missed if it is not read at
    /// the deadline. `false` if rules are being changed at this moment: then all is as before.
    pub(super) fn finish(&self, triggers: &Arc<Triggers>, deadline: Instant) -> bool {
        let Some(state) = try_lock(&self.state) else { return false };
        let Some(running) = &state.running else { return true };
        if let Some(of) = lock(&running.watch).as_mut() {
            of.watch.silence();
        }
        let targets = Arc::clone(&lock(&self.targets));
        let deadline = deadline.min(Instant::now() + LAST_MATCHES);
        let counts = |shared: &Shared| shared.counts(lock(&running.watch).as_ref());
        let waits = || state.rules.values().any(|shared| counts(shared).waiting != 0);
        while waits() && Instant::now() < deadline {
            let Some(Ok(())) = lock(&running.watch)
                .as_mut()
                .map(|of| of.watch.take(&mut |found| fire(triggers, &targets, found)))
            else {
                break;
            };
            std::thread::sleep(LOOK_INTERVAL);
        }
        for shared in state.rules.values() {
            let now = counts(shared);
            shared.note_as(Counts { untold: now.untold + now.waiting, ..now });
        }
        drop(state);
        self.end();
        true
    }

    /// Ends the watch if no rule has events.
    fn end_if_unused(state: &mut State) {
        let is_used = state.rules.values().any(|shared| !shared.ids().is_empty());
        if !is_used
            && state.planning == 0
            && let Some(running) = state.running.take()
        {
            running.end();
        }
    }

    /// Ends all of it, because the daemon ends.
    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        if let Some(running) = state.running.take() {
            running.end();
        }
        state.rules.clear();
    }
}

/// Whether a rule of a user may have so many events more. Root's watch itself says when it is full.
fn check_share(uid: u32, state: &State, new: &Shared, events: usize) -> Answer {
    let own = state.rules.values().chain([new]);
    let taken: usize = own.flat_map(|shared| &shared.parts).map(|part| part.events).sum();
    if uid != 0 && taken + events > EVENTS_OF_USER_MAX {
        return Err(ControlError::new(
            Code::NoMemory,
            format!("the rules of user {uid}'s triggers have more than {EVENTS_OF_USER_MAX} events"),
        ));
    }
    Ok(())
}

/// The parts in which rules are watched: programs come and go, and the kernel's events do not.
fn parts_of(domain: Domain, rules: Vec<(Key, RuleSpec)>) -> Vec<Vec<(Key, RuleSpec)>> {
    match domain {
        Domain::User => rules.into_iter().map(|rule| vec![rule]).collect(),
        Domain::Kernel => vec![rules],
    }
}

/// Plans parts of a rule.
fn planned(
    options: &WatchOptions,
    captures: &[String],
    parts: Vec<Vec<(Key, RuleSpec)>>,
) -> Answer<Vec<Planned>> {
    let captures = captures.iter().map(|text| text.parse());
    let captures: Vec<Capture> = captures.collect::<Result<_, _>>().map_err(invalid)?;
    let (about, rules): (Vec<About>, Vec<Vec<RuleSpec>>) = parts
        .into_iter()
        .map(|part| part.into_iter().map(|(key, rule)| ((key, rule.what.clone()), rule)).unzip())
        .unzip();
    let planned =
        plan::watch_parts(options, rules, &captures).map_err(|error| of_plan(&error.to_string()))?;
    let of = |(about, planned): (_, Result<Watched, PlanError>)| Planned {
        about,
        planned: planned.map_err(|error| of_plan(&error.to_string())),
    };
    Ok(about.into_iter().zip(planned).map(of).collect())
}

fn ended() -> ControlError {
    ControlError::new(Code::Daemon, "events cannot be watched any more; the log says why")
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
    /// Those that are watched.
    fn ids(&self) -> Vec<RuleId> {
        self.parts.iter().filter_map(|part| part.id).collect()
    }

    fn is_about(&self, key: &Key) -> bool {
        self.parts.iter().any(|part| part.about.iter().any(|(known, _)| known == key))
    }

    /// Takes out the parts that are about nothing of these rules. Gives the rules that no part is about: a
    /// program is watched wherever it is, once. One that was refused is tried again where it is elsewhere.
    fn follow(&mut self, rules: Vec<(Key, RuleSpec)>, watch: Option<&HeldWatch>) -> Vec<(Key, RuleSpec)> {
        let now: BTreeMap<&Key, &What> = rules.iter().map(|(key, rule)| (key, &rule.what)).collect();
        let stays = |part: &Part| {
            let is_there =
                |(key, what): &(Key, What)| now.get(key).is_some_and(|now| part.id.is_some() || *now == what);
            part.about.iter().any(is_there)
        };
        let (stay, gone): (Vec<Part>, Vec<Part>) =
            std::mem::take(&mut self.parts).into_iter().partition(stays);
        self.parts = stay;
        for Part { id, files, .. } in gone {
            let Some(id) = id else { continue };
            // What waits is told yet, or counted when the part is removed.
            let before = Self::counts_of([id].into_iter(), watch);
            self.past.all += before.all;
            self.past.untold += before.untold;
            self.leaving.push(Leaving { id, before, files });
        }
        rules.into_iter().filter(|(key, _)| !self.is_about(key)).collect()
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
    fn counts(&self, watch: Option<&HeldWatch>) -> Counts {
        let now = Self::counts_of(self.ids().into_iter(), watch);
        Counts { all: self.past.all + now.all, untold: self.past.untold + now.untold, waiting: now.waiting }
    }

    fn counts_of(ids: impl Iterator<Item = RuleId>, watch: Option<&HeldWatch>) -> Counts {
        let mut sums = Counts::default();
        let Some(HeldWatch { watch, .. }) = watch else { return sums };
        for counts in ids.filter_map(|id| watch.counts_without_skips(id)).map(Counts::from) {
            sums.all += counts.all;
            sums.untold += counts.untold;
            sums.waiting += counts.waiting;
        }
        sums
    }

    /// Notes for its triggers what they have missed; gives the counts.
    fn note(&self, watch: Option<&HeldWatch>) -> Counts {
        let now = self.counts(watch);
        self.note_as(now);
        now
    }

    fn note_as(&self, now: Counts) {
        for of in &self.triggers {
            of.entry.has_missed(now.untold.saturating_sub(of.before.untold));
        }
    }

    /// The same; gives what has become of its triggers since the last look.
    fn look(&mut self, watch: Option<&HeldWatch>, elapsed: Duration) -> Vec<Look> {
        let now = self.note(watch);
        let look = |of: &mut Subscriber| {
            let look = Look {
                entry: Arc::clone(&of.entry),
                events: now.all.saturating_sub(of.last.all),
                elapsed,
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
            let taken = of.watch.take(&mut |found| fire(&triggers, &targets, found));
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

    /// Detaches the programs, gives back what the watch takes, and ends the thread.
    fn end(&self) {
        self.ends.tell();
        drop(lock(&self.watch).take());
    }
}

/// What a lock protects, unless it is in use at this moment.
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

type WatchGuard<'a> = MutexGuard<'a, Option<HeldWatch>>;

/// The watch, if there is one, when nobody else uses it.
fn lock_watch(running: Option<&Arc<Running>>) -> Option<WatchGuard<'_>> {
    running.map(|running| lock(&running.watch))
}

/// The same at once.
///
/// # Errors
/// It is in use at this moment.
fn try_lock_watch(running: Option<&Arc<Running>>) -> Result<Option<WatchGuard<'_>>, InUse> {
    running.map(|running| try_lock(&running.watch).ok_or(InUse)).transpose()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(path: &str, inode: u64) -> (Key, RuleSpec) {
        let key = ("usdt", format!("Inode(1, {inode}):app:one"));
        (key, RuleSpec::new(What::Usdt(format!("{path}:app:one"))))
    }

    #[test]
    fn markers_are_watched_as_long_as_their_programs_are_there() {
        let part = |id: Option<RuleId>, (key, rule): (Key, RuleSpec)| Part {
            id,
            events: 1,
            files: None,
            about: vec![(key, rule.what)],
        };
        let event_rule = serde_json::json!({"name": "app:*", "instrumentation": "tracepoint"});
        let mut shared = Shared {
            domain: Domain::User,
            rule: serde_json::from_value(event_rule).unwrap(),
            captures: Vec::new(),
            parts: vec![
                part(Some(1), rule("/proc/7/root/a", 1)),
                part(Some(2), rule("/b", 2)),
                part(None, rule("/proc/7/root/c", 3)),
                part(None, rule("/d", 4)),
            ],
            leaving: Vec::new(),
            past: Counts { all: 5, untold: 2, waiting: 0 },
            triggers: Vec::new(),
        };
        // The first is found through another process, and so is the third, which was refused; the second is
        // gone, and the fifth new.
        let now = [("/proc/8/root/a", 1), ("/proc/8/root/c", 3), ("/d", 4), ("/e", 5)];
        let now: Vec<_> = now.iter().map(|(path, inode)| rule(path, *inode)).collect();
        let new = shared.follow(now.clone(), None);
        assert_eq!(new, [now[1].clone(), now[3].clone()]);
        assert_eq!(shared.ids(), [1]);
        assert_eq!(shared.leaving.iter().map(|of| of.id).collect::<Vec<_>>(), [2]);
        assert_eq!(shared.parts.len(), 2);
        let counts = shared.counts(None);
        assert_eq!((counts.all, counts.untold), (5, 2));
    }

    #[test]
    fn each_marker_is_a_part_and_events_of_the_kernel_are_one() {
        let rules = || vec![rule("/a", 1), rule("/b", 2)];
        assert_eq!(parts_of(Domain::User, rules()).len(), 2);
        assert_eq!(parts_of(Domain::Kernel, rules()).len(), 1);
        assert!(parts_of(Domain::User, Vec::new()).is_empty());
    }

    #[test]
    fn nobody_waits_for_rules_that_are_being_changed() {
        let shares = || (Arc::new(Shares::new(u64::MAX, 2)), Descriptors::new(None));
        let triggers = Arc::new(Triggers::new(Arc::default(), shares()));
        let of = UserEvents::new(1000, shares());
        let changing = lock(&of.state);
        assert!(of.look().is_none());
        of.note_at_once();
        assert!(!of.finish(&triggers, Instant::now()));
        drop(changing);
        assert!(of.look().is_some_and(|found| found.is_empty()));
        assert!(of.finish(&triggers, Instant::now()));
    }
}
