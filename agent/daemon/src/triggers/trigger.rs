//! A trigger: what it is, and what has become of it.

use std::{
    sync::{Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use super::{Counted, check, handover::HandedTrigger};
use crate::user::Owner;
use api::trigger::{Action, ActionKind, ActionState, Condition, Finding, Firing, Pace};
use api::{ControlError, Domain, NewTrigger, Trigger};
use capture::HandOver;

/// The longest reason that is kept.
const REASON_MAX: usize = 1024;
/// What is wrong with a trigger that another daemon has handed over, until this one watches.
const NOT_YET: &str = "the daemon was replaced, and does not watch yet";

/// A trigger of a user.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) owner: Owner,
    pub(super) condition: Condition,
    pub(super) actions: Vec<Action>,
    pub(super) pace: Pace,
    /// Bytes of its description as JSON.
    pub(super) text: usize,
    /// What the kernel counts for it.
    pub(super) counted: Counted,
    /// Whether the configuration says it.
    pub(super) configured: bool,
    /// Whether another daemon has had it before.
    pub(super) is_handed: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    fired: u64,
    missed: u64,
    /// What was missed of it in daemons before.
    missed_before: u64,
    interruptions: u64,
    is_reached: bool,
    problem: Option<String>,
    actions: Vec<Counts>,
    paced: Paced,
}

/// When the actions of a trigger were due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Paced {
    /// The last time, in nanoseconds since 1970.
    last_ns: Option<u64>,
    /// The day of that time, since 1970, and how often in it.
    day: u64,
    in_day: u64,
    /// How often they were not, because of their pace.
    held_back: u64,
}

impl Paced {
    /// Whether actions may be due at a moment; notes that they are, or that they are not.
    fn lets(&mut self, pace: Pace, now_ns: u64) -> bool {
        const DAY_NS: u64 = 86_400_000_000_000;
        if pace.is_free() {
            return true;
        }
        let day = now_ns / DAY_NS;
        let in_day = if self.day == day { self.in_day } else { 0 };
        // A clock that was set back lets them be due.
        let since = self.last_ns.and_then(|last| now_ns.checked_sub(last));
        let is_cooling =
            since.zip(pace.cool_down_ms).is_some_and(|(since, ms)| since < ms.saturating_mul(1_000_000));
        if is_cooling || pace.per_day.is_some_and(|most| in_day >= most) {
            self.held_back = self.held_back.saturating_add(1);
            return false;
        }
        (self.last_ns, self.day, self.in_day) = (Some(now_ns), day, in_day + 1);
        true
    }
}

#[derive(Clone, Debug, Default)]
struct Counts {
    executed: u64,
    failed: u64,
    last_failure: Option<String>,
}

impl Entry {
    pub(super) fn new(name: String, owner: Owner, (new, counted): (NewTrigger, Counted)) -> Self {
        // What is plain data is JSON.
        let text = serde_json::to_vec(&new).unwrap_or_default().len() + name.len();
        let NewTrigger { name: _, condition, actions, pace, configured } = new;
        let counts = vec![Counts::default(); actions.len()];
        let state = State { actions: counts, ..State::default() };
        let is_handed = false;
        Self {
            name,
            owner,
            condition,
            actions,
            pace,
            text,
            counted,
            configured,
            is_handed,
            state: Mutex::new(state),
        }
    }

    /// One that another daemon has had. What its condition is about is not watched yet.
    ///
    /// # Errors
    /// This daemon takes no such trigger.
    pub(super) fn of_handed(handed: HandedTrigger, counted: Counted) -> Result<Self, ControlError> {
        let HandedTrigger { gid, is_reached, trigger, maps: _, paced } = handed;
        let Trigger { name, uid, condition, fired, missed, interruptions, pace, actions, configured, .. } =
            trigger;
        let counts = |of: &ActionState| Counts {
            executed: of.executed,
            failed: of.failed,
            last_failure: of.last_failure.clone().map(short),
        };
        let counts = actions.iter().map(counts).collect();
        let actions: Vec<Action> = actions.into_iter().map(|of| of.action).collect();
        // What the kernel counts it has counted meanwhile.
        let is_about_moments = condition.is_about_moments() && !counted.is_all(actions.len());
        let new = NewTrigger { name: Some(name.clone()), condition, actions, pace, configured };
        check(uid, &new)?;
        let mut entry = Self::new(name, Owner::new(uid, gid), (new, counted));
        entry.is_handed = true;
        *entry.state() = State {
            fired,
            missed,
            missed_before: missed,
            interruptions: interruptions.saturating_add(is_about_moments.into()),
            is_reached,
            problem: is_about_moments.then(|| NOT_YET.to_owned()),
            actions: counts,
            paced,
        };
        Ok(entry)
    }

    /// Whether events or units are watched for it: not if the kernel does all that it does.
    pub(super) fn is_watched(&self) -> bool {
        self.condition.is_about_moments() && !self.counted.is_all(self.actions.len())
    }

    /// What another daemon goes on with.
    pub(super) fn handed(&self) -> (HandedTrigger, Vec<HandOver>) {
        let (is_reached, paced) = {
            let state = self.state();
            (state.is_reached, state.paced)
        };
        let trigger = self.told();
        let (maps, counting) = self.counted.hand_over(&self.name);
        (HandedTrigger { gid: self.owner.gid, is_reached, trigger, maps, paced }, counting)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The trigger as clients are told of it.
    pub(super) fn told(&self) -> Trigger {
        // Before the state, which whoever fires waits for.
        let counted = self.counted.of_actions();
        // Where it does nothing else, nobody is told that it fires.
        let only_counts = self.counted.is_all(self.actions.len());
        let of_kernel = counted.get(&0).copied().filter(|_| only_counts);
        let state = self.state();
        let action = |(index, (action, counts)): (usize, (&Action, &Counts))| ActionState {
            action: action.clone(),
            executed: counted.get(&index).map_or(counts.executed, |counted| counted.events),
            failed: counts.failed,
            last_failure: counts.last_failure.clone(),
        };
        Trigger {
            name: self.name.clone(),
            uid: self.owner.uid,
            condition: self.condition.clone(),
            fired: of_kernel.map_or(state.fired, |counted| counted.events),
            missed: of_kernel.map_or(state.missed, |counted| counted.skipped),
            interruptions: state.interruptions,
            pace: self.pace,
            held_back: state.paced.held_back,
            problem: state.problem.clone(),
            actions: self.actions.iter().zip(&state.actions).enumerate().map(action).collect(),
            configured: self.configured,
        }
    }

    /// Counts that it fires. Gives what is told of it, and the numbers of the actions whose rate policy lets
    /// them be done.
    pub(super) fn fire(&self, found: Finding) -> (Firing, Vec<usize>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let mut state = self.state();
        state.fired = state.fired.saturating_add(1);
        let count = state.fired;
        let is_let = |action: &Action| action.rate_policy.allows(count);
        let counts = |action: &Action| matches!(action.kind, ActionKind::Count { .. });
        // What is not due at all is not held back.
        let is_wanted = self.actions.iter().any(|action| is_let(action) && !counts(action));
        let goes_on = is_wanted && state.paced.lets(self.pace, time_ns);
        let is_due = |(_, action): &(usize, &Action)| is_let(action) && (goes_on || counts(action));
        let due: Vec<usize> =
            self.actions.iter().enumerate().filter(is_due).map(|(index, _)| index).collect();
        for index in &due {
            if let Some(counts) = state.actions.get_mut(*index) {
                counts.executed = counts.executed.saturating_add(1);
            }
        }
        drop(state);
        let firing = Firing { trigger: self.name.clone(), uid: self.owner.uid, count, time_ns, found };
        (firing, due)
    }

    /// Notes whether the level of its condition is reached; gives whether it was not before.
    pub(super) fn rises(&self, is_reached: bool) -> bool {
        !std::mem::replace(&mut self.state().is_reached, is_reached) && is_reached
    }

    /// Why its condition cannot be looked at; nothing where it can.
    pub(super) fn has_problem(&self, problem: Option<String>) {
        self.state().problem = problem.map(short);
    }

    /// Nobody has watched for a while.
    pub(super) fn was_interrupted(&self) {
        let mut state = self.state();
        state.interruptions = state.interruptions.saturating_add(1);
    }

    /// So many matches were not told since this daemon watches for them.
    pub(super) fn has_missed(&self, missed: u64) {
        let mut state = self.state();
        state.missed = state.missed_before.saturating_add(missed);
    }

    /// Whether clients are told when it fires.
    pub(super) fn notifies(&self) -> bool {
        self.actions.iter().any(|action| action.kind == ActionKind::Notify)
    }

    /// An action has failed.
    pub(super) fn has_failed(&self, index: usize, why: String) {
        if let Some(counts) = self.state().actions.get_mut(index) {
            counts.failed = counts.failed.saturating_add(1);
            counts.last_failure = Some(short(why));
        }
    }
}

fn short(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(REASON_MAX));
    text
}

/// Whether a condition is about programs that may come.
pub(crate) fn waits_for_programs(condition: &Condition) -> bool {
    matches!(
        condition,
        Condition::EventRuleMatches { domain: Domain::User, .. }
            | Condition::EventRate { domain: Domain::User, .. }
    )
}

/// The session whose stored bytes or rings a condition is about.
pub(crate) fn sampled_session(condition: &Condition) -> Option<&str> {
    match condition {
        Condition::BufferUsageHigh(usage) | Condition::BufferUsageLow(usage) => Some(&usage.session),
        Condition::ConsumedSize { session, .. } => Some(session),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::trigger::RatePolicy;

    #[test]
    fn what_is_due_is_counted() {
        let action = |rate_policy| Action { kind: ActionKind::Notify, rate_policy };
        let new = NewTrigger {
            name: None,
            condition: Condition::RotationOngoing { session: "s".into() },
            actions: vec![action(RatePolicy::Every(2)), action(RatePolicy::OnceAfter(3))],
            pace: Pace::default(),
            configured: false,
        };
        let entry = Entry::new("t".into(), Owner::new(0, 0), (new, Counted::default()));
        let due: Vec<_> =
            (0..6).map(|id| entry.fire(Finding::Rotation { id, path: None })).map(|(_, due)| due).collect();
        assert_eq!(due, [vec![], vec![0], vec![1], vec![0], vec![], vec![0]]);
        entry.has_failed(1, "x".repeat(5000));
        let told = entry.told();
        let counts: Vec<_> = told.actions.iter().map(|of| (of.executed, of.failed)).collect();
        assert_eq!((told.fired, counts), (6, vec![(3, 0), (1, 1)]));
        assert_eq!(told.actions[1].last_failure.as_ref().map(String::len), Some(REASON_MAX));
    }

    #[test]
    fn a_pace_holds_actions_back() {
        let pace = Pace { cool_down_ms: Some(1000), per_day: Some(3) };
        let day = 86_400_000_000_000;
        let mut paced = Paced::default();
        let mut lets = |ms: u64| paced.lets(pace, day + ms * 1_000_000);
        assert!(lets(0) && !lets(999) && lets(1000) && lets(2000), "after a second again");
        assert!(!lets(4000), "three times a day");
        let tomorrow = 86_400_000;
        assert!(lets(tomorrow) && !lets(tomorrow + 1) && lets(tomorrow + 1000));
        assert_eq!((paced.held_back, paced.in_day), (3, 2));
        let free = Pace::default();
        assert!(paced.lets(free, 0) && paced.lets(free, 0));
    }

    #[test]
    fn a_level_counts_when_it_is_reached() {
        let new = NewTrigger {
            name: None,
            condition: Condition::ConsumedSize { session: "s".into(), bytes: 1 },
            actions: Vec::new(),
            pace: Pace::default(),
            configured: false,
        };
        let entry = Entry::new("t".into(), Owner::new(0, 0), (new, Counted::default()));
        let rises = [true, true, false, true, false, false].map(|is_reached| entry.rises(is_reached));
        assert_eq!(rises, [true, false, false, true, false, false]);
    }
}
