//! Letting another daemon go on with a session, and going on with what one has left.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Answer, Running, Schedule, stored};
use crate::descriptors::Held;
use crate::sessions::recorder::Handed;
use crate::sessions::tally::Tallies;
use api::{Code, ControlError};
use capture::{HandOverError, Refused, Session};
use stdx::handover::Moment;

/// When rotations are due, on its way to another daemon.
#[derive(Debug, Serialize, Deserialize)]
struct HandedSchedule {
    period: Option<Duration>,
    bytes: Option<u64>,
    next: Option<Moment>,
    chunk_from: u64,
    is_told: bool,
}

impl Schedule {
    fn hand_over(self) -> HandedSchedule {
        let Self { period, bytes, next, chunk_from, is_told } = self;
        HandedSchedule { period, bytes, next: next.map(Moment::from), chunk_from, is_told }
    }
}

impl HandedSchedule {
    fn take_over(self) -> Schedule {
        let Self { period, bytes, next, chunk_from, is_told } = self;
        Schedule { period, bytes, next: next.map(Instant::from), chunk_from, is_told }
    }
}

/// What of a session's thread another daemon goes on with, beside the recording.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandedRunning {
    held: Option<u64>,
    next_chunk: u64,
    counted_before: Tallies,
    snapshots: u64,
    schedule: HandedSchedule,
    /// Bytes that recordings before the one that goes on have stored.
    stored_before: u64,
}

impl Running {
    /// Lets another daemon go on. While files are made that are not made yet, it still records.
    pub(super) fn hand_over(mut self) -> Answer<Handed> {
        // The listener knows what could not be made.
        let _ = self.wait_for_files();
        let refused = |error: HandOverError| {
            let why = format!("the session cannot go on with another daemon: {error}");
            ControlError::new(Code::Daemon, why)
        };
        if let Some(session) = &mut self.session {
            if let Err(error) = session.check_hand_over() {
                self.end()?;
                return Err(refused(error));
            }
            session.leave_trace();
        }
        let Self {
            session,
            finisher,
            held,
            next_chunk,
            counted_before,
            snapshots,
            schedule,
            stored_before,
            ..
        } = self;
        drop(finisher);
        let recording = match session.map(Session::hand_over).transpose() {
            Ok(recording) => recording,
            Err(Refused { error, session }) => {
                let left = session.map(|session| session.stop()).unwrap_or_default();
                let made: Result<Vec<_>, _> = left.into_iter().map(stored).collect();
                made.map_err(|why| ControlError::new(Code::CreateFile, why))?;
                return Err(refused(error));
            }
        };
        let held = held.as_ref().map(Held::count);
        let schedule = schedule.hand_over();
        let running = HandedRunning { held, next_chunk, counted_before, snapshots, schedule, stored_before };
        Ok(Handed { running, recording })
    }

    /// Goes on with what another daemon has handed over.
    pub(in crate::sessions) fn go_on(&mut self, handed: Handed) -> Answer {
        let Handed { running, recording } = handed;
        let HandedRunning { held, next_chunk, counted_before, snapshots, schedule, stored_before } = running;
        let session = recording.map(Session::take_over).transpose();
        self.session = session.map_err(|error| ControlError::new(Code::StartKernel, error.to_string()))?;
        self.held = held.map(|count| self.descriptors.keep(count));
        (self.next_chunk, self.counted_before, self.snapshots) = (next_chunk, counted_before, snapshots);
        self.schedule = schedule.take_over();
        self.stored_before = stored_before;
        // Triggers may wait for samples, which are told when they are due.
        self.next_sample = Some(Instant::now());
        if let Some(session) = &self.session {
            self.follow(session);
        }
        Ok(())
    }
}
