//! Sessions and triggers that the configuration says.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Answer, Entry, Registry, left, lock, log};
use crate::archives::Settled;
use crate::config::{Config, SessionConfig, SessionKind};
use crate::sessions::Model;
use crate::user::Owner;
use api::{Code, ControlError, Format, NewTrigger};
use kernel::cgroup::memory::MemoryLimit;
use stdx::utc;

/// Root, whose all of it is.
const UID: u32 = 0;
const GID: u32 = 0;

/// What is done so that the daemon does what a configuration says, and what could not be done.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// What has changed, in words.
    pub(crate) changes: Vec<String>,
    /// What does not do what the configuration says, and why.
    pub(crate) failures: Vec<String>,
}

impl Applied {
    fn note(&mut self, what: &str, done: Answer<Option<&'static str>>) {
        match done {
            Ok(Some(change)) => self.changes.push(format!("{what} {change}")),
            Ok(None) => {}
            Err(error) => self.failures.push(format!("{what}: {error}")),
        }
    }
}

impl Registry {
    /// Lets sessions and triggers be what a configuration says. Directories that it does not name are in
    /// `sessions`. What is as before goes on as it is; of what cannot be done, the rest is done.
    pub(crate) fn configure(&self, config: &Config, sessions: &Path, cpus: u64) -> Applied {
        let mut applied = Applied::default();
        // What sessions close when they change goes where it is to go now.
        let Settled { changes, failure } = self.archives.configure(config, sessions);
        applied.changes.extend(changes);
        applied.failures.extend(failure);
        let wanted: BTreeMap<&String, &SessionConfig> =
            config.sessions.iter().filter(|(_, session)| session.enabled).collect();
        // First what goes, whose names and rings others may want. Triggers are about sessions.
        let triggers: BTreeMap<&String, NewTrigger> = config
            .triggers
            .iter()
            .filter(|(_, trigger)| trigger.enabled)
            .map(|(name, trigger)| (name, trigger.trigger(name)))
            .collect();
        let mut kept = BTreeSet::new();
        for there in self.triggers.list(Some(UID)).into_iter().filter(|there| there.configured) {
            if triggers.get(&there.name).is_some_and(|wanted| wanted.is_like(&there)) {
                kept.insert(there.name);
            } else {
                let removed = self.triggers.remove(UID, &there.name);
                applied.note(&format!("trigger {}", there.name), removed.map(|_| Some("removed")));
            }
        }
        for name in self.configured() {
            if !wanted.contains_key(&name) {
                let removed = self.find(UID, &name).and_then(|entry| self.end_session((UID, &name), &entry));
                applied.note(&format!("session {name}"), removed.map(|_| Some("removed")));
            }
        }
        let mut room = Room::of(config);
        for (name, session) in wanted {
            if let Err(why) = room.as_mut().map_or(Ok(()), |room| room.take(session.rings_bytes(cpus))) {
                self.leave_out(name, why, &mut applied);
                continue;
            }
            let default = sessions.join(name);
            let done = self.configure_session(name, session, (&default, cpus));
            applied.note(&format!("session {name}"), done);
        }
        for (name, new) in triggers.into_iter().filter(|(name, _)| !kept.contains(*name)) {
            let added = self.add_trigger(Owner::new(UID, GID), new);
            applied.note(&format!("trigger {name}"), added.map(|_| Some("added")));
        }
        applied
    }

    /// The names of the sessions that a configuration has said.
    pub(crate) fn configured(&self) -> Vec<String> {
        let name = |entry: &Arc<Entry>| {
            let model = lock(&entry.model);
            model.configured().map(|_| model.name().to_owned())
        };
        self.entries(Some(UID)).iter().filter_map(name).collect()
    }

    /// Ends a session that there is no memory for, if it is there.
    fn leave_out(&self, name: &str, why: ControlError, applied: &mut Applied) {
        if let Some(entry) = self.configured_entry(name) {
            let ended = self.end_session((UID, name), &entry);
            applied.note(&format!("session {name}"), ended.map(|_| Some("removed")));
        }
        applied.note(&format!("session {name}"), Err(why));
    }

    fn configure_session(
        &self,
        name: &str,
        config: &SessionConfig,
        (default, cpus): (&Path, u64),
    ) -> Answer<Option<&'static str>> {
        let Ok(entry) = self.find(UID, name) else {
            self.create_configured(name, config, (default, cpus))?;
            return Ok(Some("added"));
        };
        let before = lock(&entry.model).configured().map(|configured| configured.config.clone());
        let before = before.ok_or_else(|| {
            ControlError::new(
                Code::SessionExists,
                "root has a session of this name that is not the configuration's: destroy it, or choose another name",
            )
        })?;
        if before == *config {
            return Ok(None);
        }
        if (&before.mode, &before.output, before.format) == (&config.mode, &config.output, config.format) {
            self.change((UID, name), |model| {
                model.configure(config, cpus);
                Ok(())
            })?;
            return Ok(Some("changed"));
        }
        self.end_session((UID, name), &entry)?;
        self.create_configured(name, config, (default, cpus))?;
        Ok(Some("begun anew"))
    }

    fn create_configured(&self, name: &str, config: &SessionConfig, (default, cpus): (&Path, u64)) -> Answer {
        let output: PathBuf = config.output.clone().unwrap_or_else(|| default.to_owned());
        let is_trace = config.mode == SessionKind::Files && config.format == Format::Lttng;
        if is_trace && !self.recoveries.is_under_way(UID, &output) {
            left::archive(&output).map_err(|error| {
                ControlError::new(
                    Code::CreateDirectory,
                    format!("cannot archive what was recorded in {} before: {error}", output.display()),
                )
            })?;
        }
        let model = Model::of_config(name, config, &output, (cpus, utc::seconds_now()))?;
        self.insert(Owner::new(UID, GID), model)?;
        let started = self.start(UID, name);
        if started.is_err()
            && let Ok(entry) = self.find(UID, name)
        {
            // It is as if it had never been there.
            let ended = self.end_session((UID, name), &entry);
            ended.map_or_else(|error| log(&format!("session {name}: {error}")), drop);
        }
        started
    }
}

/// Memory for the rings of sessions.
#[derive(Debug)]
struct Room {
    left: u64,
    /// The limit that it is a part of, where the configuration has no budget.
    limit: Option<MemoryLimit>,
}

impl Room {
    /// What the budget allows; without one, half of what the control group of this process may take, so that
    /// rings leave the daemon memory to work with.
    fn of(config: &Config) -> Option<Self> {
        match config.budget.memory {
            Some(most) => Some(Self { left: most.0, limit: None }),
            None => MemoryLimit::read().map(Self::of_limit),
        }
    }

    fn of_limit(limit: MemoryLimit) -> Self {
        Self { left: limit.max / 2, limit: Some(limit) }
    }

    /// Takes what the rings of a session need.
    fn take(&mut self, bytes: u64) -> Answer {
        let Some(left) = self.left.checked_sub(bytes) else {
            let budget = match &self.limit {
                None => "the budget".to_owned(),
                Some(limit) => format!(
                    "half of the {} KiB that the control group {} may take",
                    limit.max >> 10,
                    limit.group.display()
                ),
            };
            return Err(ControlError::new(
                Code::NoMemory,
                format!(
                    "its rings would take {} KiB of memory, of which {budget} leaves {} KiB: choose smaller rings \
                     (`ring_bytes`, `keep.size`) or a larger `budget.memory`",
                    bytes >> 10,
                    self.left >> 10
                ),
            ));
        };
        self.left = left;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_take_half_of_what_the_control_group_may_have_or_the_budget() {
        let limit = MemoryLimit { group: "/sys/fs/cgroup/pod".into(), max: 64 << 20, used: 0 };
        let mut room = Room::of_limit(limit);
        room.take(20 << 20).unwrap();
        let refused = room.take(13 << 20).unwrap_err();
        assert_eq!(refused.code, Code::NoMemory);
        assert!(refused.message.contains("/sys/fs/cgroup/pod"), "{refused}");
        room.take(12 << 20).unwrap();
        let config = Config::of_text("budget.memory = \"1M\"").unwrap();
        let mut room = Room::of(&config).unwrap();
        assert_eq!(room.take((1 << 20) + 1).unwrap_err().code, Code::NoMemory);
        room.take(1 << 20).unwrap();
    }
}
