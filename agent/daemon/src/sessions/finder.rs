//! What is known of programs with markers, between the thread that looks for them and those who ask.
//!
//! Files of users may be on file systems that answer late, or never (FUSE, or NFS whose server is gone). So
//! one thread looks at files, which holds no lock meanwhile, and others use what it has found before.

use std::{
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::programs::{Program, Programs};
use crate::lock;

/// How long a look may take before nobody waits for it. With some thousand processes it takes a second.
const LOOK_MAX: Duration = Duration::from_secs(30);
/// How long a file may keep a look before nobody waits for it.
const FILE_WAIT_MAX: Duration = Duration::from_secs(5);

/// Programs that have markers.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownPrograms {
    /// By path.
    pub programs: Arc<Vec<Arc<Program>>>,
    /// The number of this state.
    pub generation: u64,
}

impl KnownPrograms {
    fn of(programs: &Programs) -> Self {
        Self { programs: Arc::new(programs.all()), generation: programs.generation() }
    }
}

/// What the thread that looks is to do.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// Places of programs that the daemon before knew.
    pub handed: Vec<PathBuf>,
    /// Whether somebody waits for a look at all processes.
    pub is_asked: bool,
    /// The number of the newest look that was asked for.
    number: u64,
}

#[derive(Debug, Default)]
struct State {
    known: KnownPrograms,
    /// Whether there was a look.
    is_known: bool,
    handed: Vec<PathBuf>,
    /// Looks that were asked for, and how many of them are over.
    asked: u64,
    done: u64,
    /// When the look began that goes on.
    began: Option<Instant>,
    /// When it has come to the file that it is at.
    came_on: Option<Instant>,
    /// What it has found so far, where that is something else than what is known.
    found: Option<KnownPrograms>,
}

/// Where the thread that looks for programs publishes them.
#[derive(Debug, Default)]
pub(crate) struct Finder {
    state: Mutex<State>,
    changed: Condvar,
}

impl Finder {
    /// What was known after the last look.
    pub(crate) fn known(&self) -> KnownPrograms {
        lock(&self.state).known.clone()
    }

    /// What is known after a look that begins now. If this look, or the one that goes on, takes longer than
    /// 30 s, or does not come to the next file in 5 s, it is what it has found so far. `None` if none has
    /// begun yet.
    pub(crate) fn after_look(&self) -> Option<KnownPrograms> {
        self.after_look_within(LOOK_MAX, FILE_WAIT_MAX)
    }

    fn after_look_within(&self, limit: Duration, of_file: Duration) -> Option<KnownPrograms> {
        let asked = Instant::now();
        let mut state = lock(&self.state);
        state.asked += 1;
        let number = state.asked;
        self.changed.notify_all();
        while state.done < number {
            let since = |then: Option<Instant>| then.map_or(Duration::ZERO, |then| then.elapsed());
            let of_look = limit.saturating_sub(since(state.began).max(asked.elapsed()));
            let left = of_look.min(of_file.saturating_sub(since(state.came_on)));
            if left.is_zero() {
                if let Some(found) = state.found.take() {
                    (state.known, state.is_known) = (found, true);
                }
                break;
            }
            (state, _) = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_known.then(|| state.known.clone())
    }

    /// Says that the look goes on, and what it has found so far.
    pub(crate) fn come_on(&self, programs: &Programs) {
        let mut state = lock(&self.state);
        state.came_on = Some(Instant::now());
        let newest = state.found.as_ref().or_else(|| state.is_known.then_some(&state.known));
        if newest.is_none_or(|known| known.generation != programs.generation()) {
            state.found = Some(KnownPrograms::of(programs));
        }
    }

    /// Has programs looked at that the daemon before knew.
    pub(crate) fn hand(&self, places: Vec<PathBuf>) {
        lock(&self.state).handed.extend(places);
        self.changed.notify_all();
    }

    /// Waits until there is something to do, or the time has passed.
    pub(crate) fn wait(&self, limit: Duration) -> Wanted {
        let is_idle = |state: &mut State| state.asked == state.done && state.handed.is_empty();
        let mut state = lock(&self.state);
        (state.began, state.came_on) = (None, None);
        let waited = self.changed.wait_timeout_while(state, limit, is_idle);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let now = Some(Instant::now());
        (state.began, state.came_on) = (now, now);
        let handed = std::mem::take(&mut state.handed);
        Wanted { handed, is_asked: state.asked != state.done, number: state.asked }
    }

    /// Publishes what a look has found.
    pub(crate) fn publish(&self, programs: &Programs, wanted: &Wanted) {
        let mut state = lock(&self.state);
        if !state.is_known || state.known.generation != programs.generation() {
            state.known = KnownPrograms::of(programs);
        }
        state.is_known = true;
        state.done = wanted.number;
        (state.began, state.came_on, state.found) = (None, None, None);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    /// Longer than a test may take.
    const LONG: Duration = Duration::from_secs(1 << 20);

    #[test]
    fn nobody_waits_for_a_look_that_does_not_end() {
        let (finder, programs) = (Finder::default(), Programs::default());
        assert!(finder.after_look_within(Duration::ZERO, LONG).is_none(), "nothing is known yet");
        let wanted = finder.wait(Duration::ZERO);
        assert!(wanted.is_asked);
        assert!(finder.after_look_within(LONG, Duration::ZERO).is_none(), "nothing is found yet");
        // The first look is at a file that does not answer.
        finder.come_on(&programs);
        let found = finder.after_look_within(LONG, Duration::ZERO).unwrap();
        assert_eq!(found.generation, programs.generation());
        // Another one is asked for while the thread looks.
        finder.publish(&programs, &wanted);
        assert_eq!(finder.known().generation, programs.generation());
        let wanted = finder.wait(LONG);
        assert!(wanted.is_asked, "the look had begun before");
        // That one does not end.
        assert!(finder.after_look_within(Duration::ZERO, LONG).unwrap().programs.is_empty());
        finder.publish(&programs, &wanted);
        assert!(finder.wait(LONG).is_asked);
    }

    #[test]
    fn a_look_that_begins_later_is_waited_for() {
        let finder = Arc::new(Finder::default());
        let of = Arc::clone(&finder);
        let thread = std::thread::spawn(move || {
            let programs = Programs::default();
            let wanted = of.wait(LONG);
            of.publish(&programs, &wanted);
            wanted
        });
        assert!(finder.after_look_within(LONG, LONG).is_some());
        assert!(thread.join().unwrap().is_asked);
        finder.hand(vec![PathBuf::from("/one")]);
        let wanted = finder.wait(LONG);
        assert_eq!((wanted.handed, wanted.is_asked), (vec![PathBuf::from("/one")], false));
        assert_eq!(finder.wait(Duration::ZERO).handed, Vec::<PathBuf>::new());
    }
}
