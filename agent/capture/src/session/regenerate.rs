//! What describes a recording, written again while it goes on.

use super::Session;
use crate::state::StateError;
use crate::{SpoolError, state};
use kernel::clock::ReadClock as _;

impl Session {
    /// Stores the state of the machine as it is now (threads, open files, interrupts, devices), beside the
    /// one at the start: what was missed of what came between, for example because events were lost, is known
    /// from here on. Recording goes on meanwhile. Takes some milliseconds, and more on machines with many
    /// threads.
    ///
    /// The file has it in the order of time ([`states`](tracedat::reader::Reader::states)), a trace
    /// in LTTng's format as events of its state dump.
    ///
    /// # Errors
    /// It is not stored, and recording goes on.
    pub fn regenerate_state(&mut self) -> Result<(), StateError> {
        if self.started.is_none() || self.paused.is_some() {
            return Err(StateError::NotRecording);
        }
        let writers = &mut self.archive.writers;
        // The one at the start comes first.
        if let Some(first) = &mut writers.state {
            first.wait();
        }
        let number = writers.later_states.saturating_add(1);
        state::store_later(&self.archive.spool, number, self.options.clock)?;
        writers.later_states = number;
        Ok(())
    }

    /// Measures again how far the recording's clock is from wall time, which is another distance when wall
    /// time was set meanwhile, and notes it for what describes the recording. Times are told by the new
    /// distance, also those of events before. A trace is described anew by
    /// [`Finisher::describe`](crate::Finisher::describe).
    ///
    /// # Errors
    /// It cannot be noted, and nothing changes.
    pub fn measure_clock(&mut self) -> Result<(), SpoolError> {
        let measured = self.options.clock.realtime_offset();
        let mut manifest = self.archive.manifest.clone();
        manifest.realtime_offset = measured.offset_ns;
        manifest.realtime_uncertainty = measured.uncertainty_ns;
        manifest.store(&self.archive.spool)?;
        self.archive.manifest = manifest;
        self.options.manifest.realtime_offset = measured.offset_ns;
        self.options.manifest.realtime_uncertainty = measured.uncertainty_ns;
        Ok(())
    }
}
