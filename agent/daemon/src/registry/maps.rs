//! The maps of sessions.

use std::{collections::BTreeMap, sync::Arc};

use super::{Answer, Entry, Registry, lock, log};
use crate::maps;
use crate::maps::{HandedMap, Map, Planned};
use crate::sessions::{Listener as _, Model, Whose, spec};
use api::map::MapOwner;
use api::{Code, ControlError, CountedMap, NewMap};
use capture::HandOver;

/// How many keys are told of a map unless more are asked for.
const KEYS_TOLD: usize = 1000;
/// Keys and buckets of an answer.
const PARTS_TOLD: usize = 100_000;

/// Maps by name.
pub(crate) type Maps = BTreeMap<String, Map>;

/// Which maps are asked for.
pub(crate) struct MapsAsked {
    /// Those of this session.
    pub(crate) session: Option<String>,
    /// Those of this name.
    pub(crate) map: Option<String>,
    /// The most keys of each.
    pub(crate) keys: Option<u32>,
}

/// How much is told in an answer.
pub(crate) struct Budget {
    /// Keys and buckets, over all maps.
    left: usize,
    /// Keys of each map.
    most: usize,
}

impl Budget {
    /// How many keys of the next map are told at most.
    pub(crate) fn keys(&self) -> usize {
        self.most.min(self.left)
    }

    /// Leaves out of a map what is too much.
    pub(crate) fn cut(&mut self, mut map: CountedMap) -> CountedMap {
        let mut kept = 0;
        for entry in &map.entries {
            let Some(left) = self.left.checked_sub(1 + entry.buckets.len()) else { break };
            (self.left, kept) = (left, kept + 1);
        }
        map.more += (map.entries.len() - kept) as u64;
        map.entries.truncate(kept);
        map
    }
}

impl Registry {
    /// Adds a map to a session, which counts from now on if the session is active.
    pub(crate) fn add_map(&self, (uid, name): (u32, &str), new: NewMap) -> Answer<NewMap> {
        let entry = self.find(uid, name)?;
        let _recording = self.lock(&entry, name)?;
        let mut model = lock(&entry.model).clone();
        model.check_map(&new)?;
        let map = plan(uid, &new, &model)?;
        model.add_map(new.clone(), map.bytes())?;
        let share = *lock(&entry.share);
        let taken = self.shares.take(uid, share, &model)?;
        let mut map = map.load(&self.descriptors.of(uid))?;
        if model.is_active() {
            map.start();
        }
        lock(&entry.maps).insert(new.name.clone(), map);
        *lock(&entry.share) = taken.keep();
        *lock(&entry.model) = model;
        Ok(new)
    }

    /// Removes a map from a session; gives what it had.
    pub(crate) fn remove_map(&self, (uid, name): (u32, &str), map: &str) -> Answer<CountedMap> {
        let entry = self.find(uid, name)?;
        let _recording = self.lock(&entry, name)?;
        let mut model = lock(&entry.model).clone();
        let removed = model.remove_map(map)?;
        let share = *lock(&entry.share);
        let taken = self.shares.take(uid, share, &model)?;
        let counted = lock(&entry.maps).remove(map);
        *lock(&entry.share) = taken.keep();
        *lock(&entry.model) = model;
        let mut counted = counted.ok_or_else(super::no_map)?;
        Map::stop_all([&mut counted]);
        let turn = self.turn(Some(uid));
        let _turn = lock(&turn);
        let of = (uid, MapOwner::Session(name.to_owned()));
        let contents = counted.contents((map, removed.question.text()), of, KEYS_TOLD);
        Ok(CountedMap { last: true, ..contents.ok_or_else(super::no_map)? })
    }

    /// What maps have, as JSON: those of a session; of a user's sessions and triggers, or all, where none is
    /// named.
    pub(crate) fn maps(&self, uid: Option<u32>, asked: &MapsAsked) -> Answer<Vec<u8>> {
        let MapsAsked { session, map, keys } = asked;
        let entries: Vec<Arc<Entry>> = if let (Some(uid), Some(session)) = (uid, session) {
            vec![self.find(uid, session)?]
        } else {
            self.entries(uid)
        };
        let turn = self.turn(uid);
        let _turn = lock(&turn);
        let most = keys.map_or(KEYS_TOLD, |most| most as usize);
        let mut budget = Budget { left: PARTS_TOLD, most };
        let is_meant = |name: &str| map.as_ref().is_none_or(|map| map == name);
        let mut told: Vec<CountedMap> = Vec::new();
        for entry in entries {
            told.extend(entry.counted(&is_meant, &mut budget));
        }
        if session.is_none() {
            told.extend(self.triggers.counted(uid, &is_meant, &mut budget));
        }
        if map.is_some() && told.is_empty() {
            return Err(super::no_map());
        }
        serde_json::to_vec(&told).map_err(|error| ControlError::new(Code::Daemon, error.to_string()))
    }

    /// Taken by who reads maps of a user, or of all: that takes some times the memory of what is told, which
    /// a user has once at a time.
    fn turn(&self, uid: Option<u32>) -> Arc<std::sync::Mutex<()>> {
        Arc::clone(lock(&self.reading).entry(uid).or_default())
    }

    /// Goes on with maps of a session of another daemon: the session has no others. Those that do not go on
    /// are told.
    pub(crate) fn take_maps_over(&self, (uid, name): (u32, &str), handed: Vec<(HandedMap, HandOver)>) {
        let Ok(entry) = self.find(uid, name) else {
            return handed.into_iter().for_each(|(_, map)| map.give_up());
        };
        let mut notes = Vec::new();
        let mut maps = Maps::new();
        for (handed, from) in handed {
            let map = handed.name.clone();
            match Map::take_over((handed, from), &self.descriptors.of(uid)) {
                Ok(taken) => drop(maps.insert(map, taken)),
                Err(error) => notes.push(format!("map {map} has ended with the daemon before: {error}")),
            }
        }
        let share = {
            let mut model = lock(&entry.model);
            model.keep_maps(|map| maps.contains_key(map));
            self.shares.keep(uid, &model)
        };
        self.shares.give_back(uid, std::mem::replace(&mut *lock(&entry.share), share));
        *lock(&entry.maps) = maps;
        // Its recording may not have gone on.
        let is_active = lock(&entry.model).is_active();
        if !is_active {
            entry.let_maps_count(false);
        }
        if !notes.is_empty() {
            self.listener(&entry, name).has_notes(notes, Whose::Addition);
        }
    }
}

fn plan(uid: u32, new: &NewMap, model: &Model) -> Answer<Planned> {
    Planned::make(maps::read(uid, &new.question, new.max_keys)?, spec::tracked_by_maps(model))
}

impl Entry {
    /// What those of its maps have that are meant.
    fn counted(&self, is_meant: &dyn Fn(&str) -> bool, budget: &mut Budget) -> Vec<CountedMap> {
        let model = lock(&self.model).clone();
        let maps = lock(&self.maps);
        let mut told = Vec::new();
        for new in model.maps().iter().filter(|new| is_meant(&new.name)) {
            let of = (self.owner.uid, MapOwner::Session(model.name().to_owned()));
            let question = (new.name.as_str(), new.question.text());
            let contents = maps.get(&new.name).and_then(|map| map.contents(question, of, budget.keys()));
            told.extend(contents.map(|contents| budget.cut(contents)));
        }
        told
    }

    /// The session is not active any more.
    pub(super) fn end_activity(&self) -> Answer {
        self.let_maps_count(false);
        lock(&self.model).stop()
    }

    /// Lets its maps count, or not.
    pub(super) fn let_maps_count(&self, counts: bool) {
        let mut maps = lock(&self.maps);
        if counts {
            maps.values_mut().for_each(Map::start);
        } else {
            Map::stop_all(maps.values_mut());
        }
    }

    /// Whether its maps could count events of the threads that the session tracks.
    pub(super) fn check_tracks_of_maps(&self, model: &Model) -> Answer {
        let tracks = spec::tracked_by_maps(model);
        lock(&self.maps).values().try_for_each(|map| map.check_tracks(&tracks))
    }

    /// Lets its maps count events of the threads that the session tracks.
    pub(super) fn let_maps_track(&self, model: &Model) -> Answer {
        let tracks = spec::tracked_by_maps(model);
        lock(&self.maps).values_mut().try_for_each(|map| map.track(&tracks))
    }

    /// Empties its maps, which go on counting if they do.
    pub(super) fn clear_maps(&self) {
        lock(&self.maps).values_mut().for_each(Map::clear);
    }

    /// Gives its maps to another daemon.
    pub(super) fn hand_maps_over(&self) -> (Vec<HandedMap>, Vec<HandOver>) {
        let maps = std::mem::take(&mut *lock(&self.maps));
        let hand_over = |(name, map): (String, Map)| {
            let told = format!("map {name} of user {}", self.owner.uid);
            let handed = map.hand_over(name);
            handed.inspect_err(|error| log(&format!("{told} cannot go on: {error}"))).ok()
        };
        maps.into_iter().filter_map(hand_over).unzip()
    }
}
