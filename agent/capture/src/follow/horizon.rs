//! Up to when the records of a CPU are known.

use std::collections::VecDeque;

use crate::counts::Note;

/// Notes that wait for the data they count. A CPU that is busy all the time may never have all that a note
/// counts in the spool when the next one is written; of more than so many, the last ones are taken together.
const WAITING_MAX: usize = 16;

/// What a CPU's notes say of its records: at some time it had recorded so many events. Who has read that many
/// has all from before that time.
#[derive(Debug, Default)]
pub(super) struct Horizon {
    /// Nothing from before this time will come.
    reached: u64,
    /// Times and numbers of events of the notes after that.
    waiting: VecDeque<(u64, u64)>,
    /// Time of the newest note that was seen.
    newest: u64,
}

impl Horizon {
    /// Takes a note.
    pub(super) fn note(&mut self, note: &Note) {
        if note.time <= self.newest || !note.is_settled {
            return;
        }
        self.newest = note.time;
        if self.waiting.len() == WAITING_MAX {
            self.waiting.pop_back();
        }
        self.waiting.push_back((note.time, note.events));
    }

    /// The time from before which nothing will come, when `events` events were read, the last of them from
    /// `last_time`: a CPU's records are in the order of time.
    pub(super) fn known_until(&mut self, events: u64, last_time: u64) -> u64 {
        while let Some(&(time, counted)) = self.waiting.front()
            && counted <= events
        {
            self.reached = time;
            self.waiting.pop_front();
        }
        self.reached.max(last_time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(time: u64, events: u64, is_settled: bool) -> Note {
        Note { time, events, is_settled, ..Note::default() }
    }

    #[test]
    fn a_time_is_known_when_all_that_was_counted_was_read() {
        let mut horizon = Horizon::default();
        assert_eq!(horizon.known_until(0, 0), 0, "before any note");
        horizon.note(&note(100, 5, true));
        horizon.note(&note(200, 5, true));
        horizon.note(&note(300, 9, true));
        assert_eq!(horizon.known_until(4, 40), 40);
        assert_eq!(horizon.known_until(5, 50), 200, "an idle CPU's notes go on");
        assert_eq!(horizon.known_until(8, 250), 250);
        assert_eq!(horizon.known_until(9, 260), 300);
    }

    #[test]
    fn a_note_that_is_not_settled_says_nothing() {
        let mut horizon = Horizon::default();
        horizon.note(&note(100, 0, false));
        assert_eq!(horizon.known_until(0, 0), 0);
        horizon.note(&note(90, 0, true));
        assert_eq!(horizon.known_until(0, 0), 90);
    }

    #[test]
    fn a_cpu_that_is_always_busy_is_known_at_last() {
        let mut horizon = Horizon::default();
        for time in 1..=1000 {
            horizon.note(&note(time, 10 * time, true));
        }
        assert_eq!(horizon.known_until(9, 0), 0);
        assert_eq!(horizon.known_until(10, 0), 1);
        assert_eq!(horizon.known_until(10_000, 0), 1000);
    }
}
