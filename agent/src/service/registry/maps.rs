//! The maps of sessions.

use std::{collections::BTreeMap, sync::Arc};

use super::{Answer, Entry, Registry, lock, log};
use crate::{
    capture::HandOver,
    control::{CountedMap, NewMap, map::MapOwner},
    service::{
        maps::{self, HandedMap, Map, Planned},
        sessions::{Model, spec},
    },
};

/// How many keys are told of a map unless more are asked for.
const KEYS_TOLD: usize = 1000;

/// Maps by name.
pub(in crate::service) type Maps = BTreeMap<String, Map>;

impl Registry {
    /// Adds a map to a session, which counts from now on if the session is active.
    pub(in crate::service) fn add_map(&self, (uid, name): (u32, &str), new: NewMap) -> Answer<NewMap> {
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
    pub(in crate::service) fn remove_map(&self, (uid, name): (u32, &str), map: &str) -> Answer<CountedMap> {
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
        counted.stop();
        counted.contents((map, removed.question.text()), of(name), KEYS_TOLD).ok_or_else(super::no_map)
    }

    /// What the maps of a session have; of a user's sessions and triggers, or all, where none is named. `most`
    /// keys of each are told.
    pub(in crate::service) fn maps(
        &self,
        uid: Option<u32>,
        session: Option<&str>,
        most: Option<u32>,
    ) -> Answer<Vec<CountedMap>> {
        // Reading takes some times the memory of what is told: not for everybody at once.
        let _turn = lock(&self.reading);
        let most = most.map_or(KEYS_TOLD, |most| most as usize);
        let entries: Vec<Arc<Entry>> = if let (Some(uid), Some(session)) = (uid, session) {
            vec![self.find(uid, session)?]
        } else {
            let sessions = lock(&self.sessions);
            let own = sessions.iter().filter(|((of, _), _)| uid.is_none_or(|uid| uid == *of));
            own.map(|(_, entry)| Arc::clone(entry)).collect()
        };
        let mut maps: Vec<CountedMap> = entries.iter().flat_map(|entry| entry.counted(most)).collect();
        if session.is_none() {
            maps.extend(self.triggers.counts(uid, most));
        }
        Ok(maps)
    }
}

fn plan(uid: u32, new: &NewMap, model: &Model) -> Answer<Planned> {
    Planned::make(maps::read(uid, &new.question, new.max_keys)?, spec::tracked_by_maps(model))
}

fn of(session: &str) -> MapOwner {
    MapOwner::Session(session.to_owned())
}

impl Entry {
    /// What its maps have.
    fn counted(&self, most: usize) -> Vec<CountedMap> {
        let model = lock(&self.model).clone();
        let maps = lock(&self.maps);
        let counted = |new: &NewMap| {
            maps.get(&new.name)?.contents((&new.name, new.question.text()), of(model.name()), most)
        };
        model.maps().iter().filter_map(counted).collect()
    }

    /// Lets its maps count, or not.
    pub(super) fn let_maps_count(&self, counts: bool) {
        for map in lock(&self.maps).values_mut() {
            if counts { map.start() } else { map.stop() }
        }
    }

    /// Lets its maps count events of the threads that the session tracks.
    pub(super) fn let_maps_track(&self, model: &Model) -> Answer {
        let tracks = spec::tracked_by_maps(model);
        lock(&self.maps).values_mut().try_for_each(|map| map.track(&tracks))
    }

    /// Empties its maps, which go on counting if they do.
    pub(super) fn clear_maps(&self, registry: &Registry, model: &Model) -> Answer {
        let descriptors = registry.descriptors.of(self.owner.uid);
        for new in model.maps() {
            let planned = plan(self.owner.uid, new, model)?;
            let mut maps = lock(&self.maps);
            // Its descriptors are those that the new one has.
            let is_counting = maps.remove(&new.name).is_some_and(|before| before.is_counting());
            let mut map = planned.load(&descriptors)?;
            if is_counting {
                map.start();
            }
            maps.insert(new.name.clone(), map);
        }
        Ok(())
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

impl Registry {
    /// Goes on with maps of a session of another daemon, as far as that is possible: the session has no
    /// others.
    pub(super) fn take_maps_over(
        &self,
        uid: u32,
        model: &mut Model,
        handed: Vec<(HandedMap, HandOver)>,
    ) -> Maps {
        let mut maps = Maps::new();
        for (handed, from) in handed {
            let name = handed.name.clone();
            match Map::take_over((handed, from), &self.descriptors.of(uid)) {
                Ok(map) => drop(maps.insert(name, map)),
                Err(error) => log(&format!(
                    "map {name} of session {} of user {uid} does not go on: {error}",
                    model.name()
                )),
            }
        }
        model.keep_maps(|name| maps.contains_key(name));
        maps
    }
}
