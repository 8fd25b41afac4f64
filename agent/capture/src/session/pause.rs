//! Pauses: a recording that is interrupted, and goes on.

use std::time::Instant;

use super::{Session, controls, wait_until_quiet};
use crate::SpoolError;
use crate::channel::Channel;
use crate::readers::ReaderFailed;
use kernel::clock::ReadClock as _;

/// Why there is no pause.
#[derive(Debug, thiserror::Error)]
pub enum PauseError {
    /// It does not record: it has not been started, or is paused.
    #[error("nothing is being recorded")]
    NotRecording,
    /// It is not paused.
    #[error("the recording is not paused")]
    NotPaused,
    /// The pause cannot be noted for whoever recovers the recording, which goes on.
    #[error("cannot note when the recording pauses: {0}")]
    Note(#[from] SpoolError),
    /// The kernel refuses to attach again what was detached in the pause, which goes on.
    #[error("cannot attach again what was detached in the pause: {0}")]
    Attach(#[source] std::io::Error),
    /// A reader has failed: the recording is at its end, and says why then.
    #[error("a reader has failed")]
    Reader,
}

impl Session {
    /// Records nothing from now on, until [`Session::resume`]. What was recorded is stored when this returns,
    /// also what was in pages that were not full, so that whoever follows the recording has it; what flight
    /// recorders hold stays in their rings. (A CPU that is offline keeps its last page until it is back.)
    ///
    /// Everything stays attached: a firing costs what it takes to call a program that finds its gate closed,
    /// as much as one of a thread that is not recorded. It is not recorded and not counted. Names of threads,
    /// and which threads are recorded, are followed as before. In a pause, as without one, events can be
    /// [added](Session::add) and [removed](Session::remove), and there can be a [rotation](Session::rotate),
    /// a [snapshot](Session::snapshot), and the [end](Session::stop).
    ///
    /// # Errors
    /// It does not record, and nothing changes. After [`PauseError::Note`] it goes on; after
    /// [`PauseError::Reader`] it is at its end.
    pub fn pause(&mut self) -> Result<(), PauseError> {
        if self.started.is_none() || self.paused.is_some() {
            return Err(PauseError::NotRecording);
        }
        // Before a gate is closed: nobody may take what follows for a time in which nothing happened.
        let from = self.options.clock.now_ns();
        self.archive.pauses.begin(&self.archive.spool, from)?;
        self.paused = Some(from);
        for control in controls(&self.channels, &self.options.cpus).chain(self.gates_of_maps()) {
            control.set_paused(true);
            control.set_enabled(false);
        }
        wait_until_quiet(&self.channels, &self.options.cpus);
        self.channels.iter_mut().for_each(Channel::pause_misses);
        self.readers.empty_rings().map_err(|ReaderFailed { .. }| PauseError::Reader)?;
        self.archive.pauses.stored();
        Ok(())
    }

    /// The same, and detaches the programs of the fast lane meanwhile, of which firings cost nothing then.
    /// Those of the generic lane and of probes stay attached, for the kernel takes tens of milliseconds for
    /// each that it detaches.
    ///
    /// # Errors
    /// As of a pause, after which nothing is detached.
    pub fn suspend(&mut self) -> Result<(), PauseError> {
        self.pause()?;
        self.channels.iter_mut().for_each(Channel::suspend);
        Ok(())
    }

    /// Ends a [pause](Session::pause): every firing is recorded or counted again when this returns.
    ///
    /// # Errors
    /// It is not paused, or what was [suspended](Session::suspend) cannot be attached.
    pub fn resume(&mut self) -> Result<(), PauseError> {
        if self.paused.is_none() {
            return Err(PauseError::NotPaused);
        }
        // Before what they have missed since the pause began is left out.
        self.channels.iter_mut().try_for_each(Channel::attach_suspended).map_err(PauseError::Attach)?;
        self.paused = None;
        self.channels.iter_mut().for_each(Channel::resume_misses);
        self.maps.iter().for_each(|maps| maps.forget_open());
        for control in controls(&self.channels, &self.options.cpus).chain(self.gates_of_maps()) {
            control.forget_switch();
            control.set_enabled(true);
            control.set_paused(false);
        }
        let to = self.options.clock.now_ns();
        self.archive.pauses.end(to);
        // The first of an archive that began meanwhile.
        self.archive.began.get_or_insert_with(Instant::now);
        self.archive.covered_from.get_or_insert(to);
        Ok(())
    }

    /// Starts recording where another recording leaves off, which records nothing from now on and waits for
    /// its [end](Session::stop). On each CPU what fires is in one of both, but for the moment between two
    /// stores to memory: the time between the end of one and the beginning of the other, which their files
    /// tell, is that in which nobody knows.
    ///
    /// # Errors
    /// The other one does not record. Nothing has changed then.
    pub fn start_after(&mut self, before: &mut Self) -> Result<(), PauseError> {
        if before.started.is_none() || before.paused.is_some() {
            return Err(PauseError::NotRecording);
        }
        self.begin_trace();
        before.paused = Some(before.options.clock.now_ns());
        before.is_continued = true;
        for cpu in &before.options.cpus {
            let of_maps = before.maps.iter().flat_map(|maps| maps.controls(std::slice::from_ref(cpu)));
            for control in controls(&before.channels, std::slice::from_ref(cpu)).chain(of_maps) {
                control.set_paused(true);
                control.set_enabled(false);
            }
            for control in controls(&self.channels, std::slice::from_ref(cpu)) {
                control.set_enabled(true);
            }
        }
        // CPUs that the other one did not record.
        self.start();
        Ok(())
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// Up to when every firing is recorded or counted: now, or when the pause began.
    pub(super) fn covered_to(&self) -> u64 {
        self.paused.unwrap_or_else(|| self.options.clock.now_ns())
    }
}
