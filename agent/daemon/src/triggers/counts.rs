//! What triggers count: in the kernel, where each match of a rule for one of its events is counted, and else
//! here.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use super::trigger::Entry;
use crate::descriptors::OfUser;
use crate::maps::{HandedMap, Map, Planned};
use crate::registry::{Budget, log};
use crate::sessions::spec::Tracks;
use crate::sessions::{World, rules_of};
use crate::shares::{Memory, Shares};
use api::map::{MapEntry, MapFunction, MapOwner};
use api::trigger::{Action, ActionKind, Condition, RatePolicy};
use api::{Code, ControlError, CountedMap, Domain, EventRule, NewTrigger};
use capture::HandOver;
use spec::MapSpec;

type Answer<T = ()> = Result<T, ControlError>;

/// The most actions of a trigger that the kernel counts for.
const COUNTS_MAX: usize = 8;

/// What the kernel counts for a trigger.
#[derive(Debug)]
pub(crate) struct Counted {
    /// The maps of actions, by their numbers.
    maps: Mutex<BTreeMap<usize, Map>>,
    /// The memory that they take of the user's.
    _memory: Option<Memory>,
    /// Since when they count.
    since: Instant,
}

/// What the kernel has counted for an action.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfAction {
    /// Events that match, with or without an entry in the map.
    pub(super) events: u64,
    /// Events that the kernel kept from the program, whether they match or not.
    pub(super) skipped: u64,
}

impl Default for Counted {
    fn default() -> Self {
        Self::new(BTreeMap::new(), None)
    }
}

impl Counted {
    fn new(maps: BTreeMap<usize, Map>, memory: Option<Memory>) -> Self {
        Self { maps: Mutex::new(maps), _memory: memory, since: Instant::now() }
    }

    fn maps(&self) -> MutexGuard<'_, BTreeMap<usize, Map>> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the kernel count what the actions of a trigger count there. `world` is what its rule is about.
    ///
    /// # Errors
    /// It cannot be counted, or the user has too much already.
    pub(crate) fn load(
        uid: u32,
        new: &NewTrigger,
        world: &World,
        (shares, descriptors): (&Arc<Shares>, &OfUser),
    ) -> Answer<Self> {
        let Condition::EventRuleMatches { domain: Domain::Kernel, rule, .. } = &new.condition else {
            return Ok(Self::default());
        };
        let mut planned = Vec::new();
        for (index, action) in new.actions.iter().enumerate() {
            if let Some(spec) = map_of(world, rule, action)? {
                if planned.len() >= COUNTS_MAX {
                    return Err(invalid(format!("a trigger has at most {COUNTS_MAX} actions that count")));
                }
                let map = Planned::make(spec, Tracks::new());
                planned.push((index, map.map_err(|error| invalid(error.message))?));
            }
        }
        let bytes = planned.iter().map(|(_, map)| map.bytes()).fold(0, u64::saturating_add);
        let memory = if bytes == 0 { None } else { Some(shares.take_memory(uid, bytes)?) };
        let load = |(index, map): (usize, Planned)| {
            let mut map = map.load(descriptors)?;
            map.start();
            Ok((index, map))
        };
        Ok(Self::new(planned.into_iter().map(load).collect::<Answer<_>>()?, memory))
    }

    /// Whether the kernel does all that so many actions do.
    pub(crate) fn is_all(&self, actions: usize) -> bool {
        actions != 0 && self.maps().len() == actions
    }

    /// What the kernel has counted for each action, by its number.
    pub(super) fn of_actions(&self) -> BTreeMap<usize, OfAction> {
        let counted = |(index, map): (&usize, &Map)| {
            (*index, OfAction { events: map.events(), skipped: map.skipped() })
        };
        self.maps().iter().map(counted).collect()
    }

    /// Gives it to another daemon. The kernel counts meanwhile.
    pub(super) fn hand_over(&self, trigger: &str) -> (Vec<(usize, HandedMap)>, Vec<HandOver>) {
        let maps = std::mem::take(&mut *self.maps());
        let hand_over = |(index, map): (usize, Map)| {
            let handed = map.hand_over(trigger.to_owned());
            let handed = handed.inspect_err(|error| log(&format!("trigger {trigger}: {error}"))).ok();
            handed.map(|(handed, map)| ((index, handed), map))
        };
        maps.into_iter().filter_map(hand_over).unzip()
    }

    /// Goes on with what another daemon has handed over: maps by the numbers of actions. Gives what went
    /// wrong with it.
    pub(super) fn take_over(
        uid: u32,
        handed: Vec<(usize, HandedMap, HandOver)>,
        (shares, descriptors): (&Arc<Shares>, &OfUser),
    ) -> (Self, Option<String>) {
        let (mut maps, mut problem, mut bytes) = (BTreeMap::new(), None, 0_u64);
        for (index, handed, from) in handed {
            match Map::take_over((handed, from), descriptors) {
                Ok(map) => {
                    bytes = bytes.saturating_add(map.bytes());
                    maps.insert(index, map);
                }
                Err(error) => problem = Some(format!("its map has ended with the daemon before: {error}")),
            }
        }
        let memory = (bytes != 0).then(|| shares.keep_memory(uid, bytes));
        (Self::new(maps, memory), problem)
    }

    /// Ends it.
    pub(super) fn end(&self) {
        self.maps().clear();
    }
}

fn invalid(why: impl Into<String>) -> ControlError {
    ControlError::new(Code::InvalidTrigger, why)
}

/// What the kernel counts for an action, if it does. Rules for several events are told to the daemon, which
/// counts.
fn map_of(world: &World, rule: &EventRule, action: &Action) -> Answer<Option<MapSpec>> {
    let ActionKind::Count { by, function, max_keys } = &action.kind else { return Ok(None) };
    let mut rules = rules_of(world, Domain::Kernel, rule)?;
    let is_one = rules.len() == 1 && action.rate_policy == RatePolicy::default();
    let Some((_, event)) = rules.pop().filter(|_| is_one) else {
        if by.is_empty() && function.is_none() {
            return Ok(None);
        }
        let events = rules.len() + 1;
        return Err(invalid(format!(
            "a map with keys or a function counts one event, and {} are {events}: name one of them",
            rule.name
        )));
    };
    // The name of an event stands for that of the rule.
    let text = format!("{} of event:event", function.as_deref().unwrap_or("count"));
    let spec = MapSpec::of_events(&text).map_err(|error| invalid(error.to_string()))?;
    Ok(Some(MapSpec { name: String::new(), event, by: by.clone(), max_keys: *max_keys, ..spec }))
}

impl Entry {
    /// What those of its actions have counted whose maps are meant.
    pub(crate) fn counts(&self, is_meant: &dyn Fn(&str) -> bool, budget: &mut Budget) -> Vec<CountedMap> {
        let told = self.told();
        let actions = self.actions.iter().zip(&told.actions).enumerate();
        let counting = actions.filter_map(|(index, (action, state))| match &action.kind {
            ActionKind::Count { by, function, .. } => Some((index, by, function, state.executed)),
            _ => None,
        });
        let counting: Vec<_> = counting.collect();
        let is_only = counting.len() == 1;
        let counted = |(index, by, function, executed): (usize, &Vec<String>, &Option<String>, u64)| {
            let name = if is_only { self.name.clone() } else { format!("{}.{index}", self.name) };
            if !is_meant(&name) {
                return None;
            }
            let question = self.question(by, function.as_deref());
            let of = MapOwner::Trigger(self.name.clone());
            match self.counted.maps().get(&index) {
                Some(map) => {
                    let contents = map.contents((&name, &question), (self.owner.uid, of), budget.keys());
                    contents.map(|contents| budget.cut(contents))
                }
                None => Some(self.counted_here((name, question, of), executed)),
            }
        };
        counting.into_iter().filter_map(counted).collect()
    }

    fn question(&self, by: &[String], function: Option<&str>) -> String {
        let what = match &self.condition {
            Condition::EventRuleMatches { rule, .. } => match &rule.filter {
                Some(filter) => format!("{}: {filter}", rule.name),
                None => rule.name.clone(),
            },
            _ => "the condition".to_owned(),
        };
        let by = if by.is_empty() { String::new() } else { format!(" by {}", by.join(",")) };
        format!("{} of {what}{by}", function.unwrap_or("count"))
    }

    /// A map without keys.
    fn counted_here(&self, (map, question, of): (String, String, MapOwner), count: u64) -> CountedMap {
        let entry = MapEntry {
            key: Vec::new(),
            count,
            sum: None,
            avg: None,
            min: None,
            max: None,
            buckets: Vec::new(),
        };
        CountedMap {
            map,
            question: Some(question),
            uid: Some(self.owner.uid),
            of: Some(of),
            function: MapFunction::Count,
            unit: None,
            by: Vec::new(),
            elapsed_ns: u64::try_from(self.counted.since.elapsed().as_nanos()).unwrap_or(u64::MAX),
            last: false,
            entries: Vec::from_iter((count != 0).then_some(entry)),
            more: 0,
            overflow: 0,
            unreadable: 0,
            unmatched: 0,
            restarted: 0,
            forgotten: 0,
            open: 0,
            filtered: 0,
            own_threads: 0,
            rate_limited: 0,
            // Matches that the daemon could not be told are the trigger's `missed`.
            skipped: None,
        }
    }
}
