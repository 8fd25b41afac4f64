//! Triggers that are handed over to another daemon, and come from one.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{Entry, Triggers, lock};
use crate::{
    control::{ControlError, Trigger},
    service::{registry::log, sessions::World},
};

/// How long actions that are due may take, when another daemon goes on.
const LAST_ACTIONS: Duration = Duration::from_secs(5);

/// What is known of a trigger.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::service) struct HandedTrigger {
    /// The group of its user.
    pub(super) gid: u32,
    /// Whether the level of its condition is reached.
    pub(super) is_reached: bool,
    /// What clients know of it.
    pub(super) trigger: Trigger,
}

impl Triggers {
    /// Watches for nothing any more, as another daemon goes on: what has come by now fires, and what is due
    /// is done, or counted as failed.
    pub(in crate::service) fn finish(self: &Arc<Self>) {
        self.is_finished.store(true, Ordering::SeqCst);
        self.events.finish(self);
        self.units.end();
        self.executor.finish(LAST_ACTIONS);
    }

    /// All triggers, for another daemon.
    pub(in crate::service) fn take_all(&self) -> Vec<HandedTrigger> {
        std::mem::take(&mut *lock(&self.all)).into_values().map(|entry| entry.handed()).collect()
    }

    /// Goes on with a trigger that another daemon has handed over. Events are not watched for
    /// [yet](Triggers::watch_again).
    ///
    /// # Errors
    /// This daemon takes no such trigger.
    pub(in crate::service) fn take_over(&self, handed: HandedTrigger) -> Result<(), ControlError> {
        let entry = Entry::of_handed(handed)?;
        Self::insert(&mut lock(&self.all), entry).map(drop)
    }

    /// Whether there are triggers whose events or units another daemon has watched for.
    pub(in crate::service) fn waits_for_watch(&self) -> bool {
        lock(&self.all).values().any(|entry| entry.condition.is_about_moments())
    }

    /// Watches for the events and units of triggers that another daemon has handed over. Those that
    /// cannot be watched say so.
    pub(in crate::service) fn watch_again(self: &Arc<Self>, world: &Result<World, ControlError>) {
        let all: Vec<Arc<Entry>> = lock(&self.all).values().map(Arc::clone).collect();
        for entry in all.iter().filter(|entry| entry.is_handed && entry.condition.is_about_moments()) {
            if self.is_finished.load(Ordering::SeqCst) {
                return;
            }
            let is_about_events = Self::is_about_events(&entry.condition);
            let watched = match world {
                Err(error) if is_about_events => Err(error.clone()),
                world => self.watch(entry, world.as_ref().ok()),
            };
            match watched {
                // Units have those of the bus.
                Ok(()) if is_about_events => entry.has_problem(None),
                Ok(()) => {}
                Err(error) => {
                    log(&format!("trigger {} of user {}: {error}", entry.name, entry.owner.uid));
                    entry.has_problem(Some(error.message));
                }
            }
        }
    }
}
