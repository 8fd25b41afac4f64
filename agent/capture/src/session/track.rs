//! Which threads are recorded, changed while a recording goes on.

use serde::{Deserialize, Serialize};

use super::{Session, controls, wait_for_programs};
use crate::attaching::note_threads_in_scope;
use crate::needs::halves;
use crate::{SpoolError, Tracking};
use compile::scope::{Scope, ScopeError};

/// States of an archive that are told one by one.
const STATES_TOLD: usize = 16;

/// Why a change of what is tracked was not made, or not completely.
#[derive(Debug, thiserror::Error)]
pub enum TrackError {
    /// It was not said at the beginning that it would. Nothing has changed.
    #[error("the threads of this recording do not change: say that they do when the recording begins")]
    Fixed,
    /// Programs cannot ask for it. Nothing has changed.
    #[error(transparent)]
    Scope(#[from] ScopeError),
    /// It cannot be noted for whoever recovers the recording. What fires from now on obeys the new sets.
    #[error("cannot note which threads are recorded: {0}")]
    Note(#[from] SpoolError),
    /// The list of threads, which events about other threads than the current one need. What fires from now
    /// on obeys the new sets, but for such events.
    #[error("cannot read which threads there are: {0}")]
    Threads(#[source] std::io::Error),
}

/// What a file says of which threads were recorded.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Told {
    /// What does not change.
    fixed: Vec<String>,
    /// What was tracked, one after the other.
    states: Vec<String>,
    /// States after these that are not told.
    more: usize,
}

impl Told {
    pub(super) fn new(fixed: &[String], scope: Option<&Scope>) -> Self {
        let mut told = Self { fixed: fixed.to_vec(), ..Self::default() };
        match scope {
            Some(scope) if scope.changes => told.states.push(state(scope)),
            Some(scope) => told.fixed.extend(scope.told()),
            None => {}
        }
        told
    }

    /// Notes what is tracked from now on. `is_new` if nothing was recorded of the archive before.
    fn add(&mut self, scope: &Scope, is_new: bool) {
        let state = state(scope);
        if is_new {
            self.states = vec![state];
        } else if self.states.len() < STATES_TOLD {
            self.states.push(state);
        } else {
            self.more += 1;
        }
    }

    /// The lines of the file.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = self.fixed.clone();
        match self.states.as_slice() {
            [] => {}
            [state] if state == ALL => {}
            [state] => lines.push(state.clone()),
            states => {
                let more = match self.more {
                    0 => String::new(),
                    more => format!("; then {more} times others"),
                };
                lines.push(format!("what was tracked, which changed: {}{more}", states.join("; then ")));
            }
        }
        lines
    }
}

/// What is told where nothing is left out.
const ALL: &str = "all threads";

fn state(scope: &Scope) -> String {
    let told = scope.told();
    if told.is_empty() { ALL.to_owned() } else { told.join(" and ") }
}

impl Session {
    /// Records threads by other values of an attribute from now on. What fires after this returns is recorded
    /// by the new sets, what has fired before by the old ones; no program is loaded or attached anew, and
    /// nothing else that is recorded is lost or disturbed. The same again changes nothing.
    ///
    /// An event that is left out is counted as filtered, and is not lost. Events about another thread than
    /// the current one, as wakeups are, count for both, as ever: the other one by what it is now, or when it
    /// was last seen running.
    ///
    /// # Errors
    /// It was not said that threads [change](Scope::changes), or there are too many values.
    pub fn track(&mut self, tracking: Tracking) -> Result<(), TrackError> {
        let before = self.options.scope.as_ref().filter(|scope| scope.changes).ok_or(TrackError::Fixed)?;
        let halves = halves(&self.options)?.ok_or(TrackError::Fixed)?;
        let mut scope = before.clone();
        scope.only.put(tracking.attribute, tracking.set);
        if scope == *before {
            return Ok(());
        }
        self.tasks.set_scope(halves, &scope)?;
        wait_for_programs();
        // A switch to a thread that is not wanted any more owes none away from it.
        for control in controls(&self.channels, &self.options.cpus) {
            control.forget_switch();
        }
        let noted = note_threads_in_scope(&self.tasks, &scope).map_err(TrackError::Threads);
        self.told.add(&scope, self.started.is_none());
        self.options.scope = Some(scope);
        self.archive.manifest.only = self.told.lines();
        self.options.manifest.only = self.told_of_next();
        self.archive.manifest.store(&self.archive.spool)?;
        noted
    }

    /// What the next archive says of which threads are recorded, of which the first state is the last one of
    /// this archive.
    fn told_of_next(&self) -> Vec<String> {
        Told::new(&self.told.fixed, self.options.scope.as_ref()).lines()
    }

    /// Begins with what is told of another archive.
    pub(super) fn begin_told(&mut self) {
        self.told = Told::new(&std::mem::take(&mut self.told.fixed), self.options.scope.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use compile::scope::{Set, Values};
    use spec::Attribute;

    fn scope(uids: Option<&[u32]>) -> Scope {
        let mut scope = Scope { changes: true, ..Scope::default() };
        let set = uids.map(|uids| Set {
            texts: uids.iter().map(u32::to_string).collect(),
            values: Values::Ids(uids.iter().copied().collect::<BTreeSet<u32>>()),
        });
        scope.only.put(Attribute::Uid, set);
        scope
    }

    #[test]
    fn a_file_says_what_was_tracked_while_it_was_recorded() {
        let mut told = Told::new(&["CPUs 0".to_owned()], Some(&scope(None)));
        assert_eq!(told.lines(), ["CPUs 0"]);
        told.add(&scope(Some(&[1])), true);
        assert_eq!(told.lines(), ["CPUs 0", "threads of the users 1"]);
        told.add(&scope(Some(&[])), false);
        told.add(&scope(None), false);
        let changed = "what was tracked, which changed: threads of the users 1; then no threads of the users; then all \
                       threads";
        assert_eq!(told.lines(), ["CPUs 0", changed]);
        for _ in 0..STATES_TOLD {
            told.add(&scope(Some(&[2])), false);
        }
        assert!(told.lines()[1].ends_with("; then threads of the users 2; then 3 times others"));
    }
}
