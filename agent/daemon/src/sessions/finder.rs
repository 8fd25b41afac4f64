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

/// Programs that have markers.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownPrograms {
    /// By path.
    pub programs: Arc<Vec<Arc<Program>>>,
    /// The number of this state.
    pub generation: u64,
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

    /// What is known after a look that begins now; or what was known before, if this look, or the one that
    /// goes on, takes longer than 30 s. `None` if there was none yet.
    pub(crate) fn after_look(&self) -> Option<KnownPrograms> {
        self.after_look_within(LOOK_MAX)
    }

    fn after_look_within(&self, limit: Duration) -> Option<KnownPrograms> {
        let mut state = lock(&self.state);
        state.asked += 1;
        let number = state.asked;
        self.changed.notify_all();
        let limit = limit.saturating_sub(state.began.map_or(Duration::ZERO, |began| began.elapsed()));
        let waited = self.changed.wait_timeout_while(state, limit, |state| state.done < number);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.is_known.then(|| state.known.clone())
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
        state.began = None;
        let waited = self.changed.wait_timeout_while(state, limit, is_idle);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.began = Some(Instant::now());
        let handed = std::mem::take(&mut state.handed);
        Wanted { handed, is_asked: state.asked != state.done, number: state.asked }
    }

    /// Publishes what a look has found.
    pub(crate) fn publish(&self, programs: &Programs, wanted: &Wanted) {
        let mut state = lock(&self.state);
        if !state.is_known || state.known.generation != programs.generation() {
            let (all, generation) = (Arc::new(programs.all()), programs.generation());
            state.known = KnownPrograms { programs: all, generation };
        }
        state.is_known = true;
        state.done = wanted.number;
        state.began = None;
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
        assert!(finder.after_look_within(Duration::ZERO).is_none(), "nothing is known yet");
        let wanted = finder.wait(Duration::ZERO);
        assert!(wanted.is_asked);
        // Another one is asked for while the thread looks.
        assert!(finder.after_look_within(Duration::ZERO).is_none());
        finder.publish(&programs, &wanted);
        assert_eq!(finder.known().generation, programs.generation());
        let wanted = finder.wait(LONG);
        assert!(wanted.is_asked, "the look had begun before");
        // That one does not end.
        assert!(finder.after_look_within(Duration::ZERO).unwrap().programs.is_empty());
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
        assert!(finder.after_look_within(LONG).is_some());
        assert!(thread.join().unwrap().is_asked);
        finder.hand(vec![PathBuf::from("/one")]);
        let wanted = finder.wait(LONG);
        assert_eq!((wanted.handed, wanted.is_asked), (vec![PathBuf::from("/one")], false));
        assert_eq!(finder.wait(Duration::ZERO).handed, Vec::<PathBuf>::new());
    }
}
