//! Doing less of what the configuration says.

use std::sync::Arc;

use super::{Entry, Registry, lock, log};
use crate::sessions::Recorder;
use api::ControlError;

impl Registry {
    /// Lets these sessions of the configuration record nothing until they go on, but for those of which
    /// something else is done at the moment.
    pub(crate) fn suspend<'a>(&self, sessions: impl Iterator<Item = &'a str>) {
        for name in sessions {
            let Some(entry) = self.configured_entry(name) else { continue };
            if let Ok(recording) = entry.recording.try_lock()
                && let Some(recording) = &*recording
            {
                told(name, recording.recorder.suspend());
            }
        }
    }

    /// Lets them go on.
    pub(crate) fn go_on<'a>(&self, sessions: impl Iterator<Item = &'a str>) {
        for name in sessions {
            self.with_recorder(name, |recorder| told(name, recorder.go_on()));
        }
    }

    /// Whether these sessions of the configuration compress with next to no effort.
    pub(crate) fn hurry<'a>(&self, sessions: impl Iterator<Item = &'a str>, hurries: bool) {
        for name in sessions {
            self.with_recorder(name, |recorder| recorder.hurry(hurries));
        }
    }

    /// Does something with what records a session of the configuration, when nobody else does.
    fn with_recorder(&self, name: &str, act: impl FnOnce(&Recorder)) {
        let Some(entry) = self.configured_entry(name) else { return };
        if let Some(recording) = &*lock(&entry.recording) {
            act(&recording.recorder);
        }
    }

    /// A session of the configuration.
    pub(super) fn configured_entry(&self, name: &str) -> Option<Arc<Entry>> {
        let entry = self.find(0, name).ok()?;
        let is_configured = lock(&entry.model).configured().is_some();
        is_configured.then_some(entry)
    }
}

fn told(name: &str, done: Result<(), ControlError>) {
    if let Err(error) = done {
        log(&format!("budget: session {name}: {error}"));
    }
}
