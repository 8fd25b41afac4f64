//! The state of the machine at the start of a recording, at a time of the recording's clock.

use super::job::Job;
use super::survey::Recording;
use tracedat::initial_state::{InitialState, Thread};

/// What the recorder saw when it looked.
#[derive(Debug)]
pub struct Snapshot {
    /// When it had looked at everything: by then, whatever forked before is in it.
    pub time: u64,
    /// The tasks and devices.
    pub state: InitialState,
}

impl Snapshot {
    /// The recording's snapshot; only recordings of this recorder have one. A damaged one is counted as not
    /// carried over.
    pub fn of(recording: &Recording<'_>, job: &Job<'_>) -> Option<Self> {
        let file = recording.file();
        let state = match file.initial_state() {
            Ok(state) => state?,
            Err(error) => {
                job.not_carried(error.to_string(), 1);
                return None;
            }
        };
        let clock = file.clock();
        let wanted = clock.corrections();
        let part = |on, value| if on { value } else { 0 };
        let add = part(wanted.offset, clock.offset()).wrapping_add(part(wanted.date, clock.date()));
        Some(Self { time: state.ended_ns.wrapping_add_signed(add), state })
    }

    /// The number that a thread's parent has.
    pub fn parent(thread: &Thread) -> u32 {
        // Threads of a process are children of its first one.
        if thread.tid == thread.tgid { thread.ppid } else { thread.tgid }
    }
}
