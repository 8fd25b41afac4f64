//! Units of systemd that fail.
//!
//! One connection to the system bus is there as long as a trigger needs it, with a thread that waits for it.
//! When it ends (systemd or the bus is started anew), it is made again, after a while that gets longer. What
//! has failed by then and had not before is told; what has failed and was started again is not known, and
//! triggers count that as an interruption.
//!
//! | file | subject |
//! |---|---|
//! | `bus` | what systemd says |
//! | `known` | which units have failed |

mod bus;
mod known;

use std::{
    io,
    sync::{Arc, Condvar, Mutex, PoisonError, Weak},
    time::Duration,
};

use tokio::sync::Notify;

use super::{Triggers, lock, trigger::Entry};
use crate::registry::log;
use api::trigger::{Condition, Finding};
use api::{Code, ControlError};
use bus::{Bus, Failure};
use known::Known;
use stdx::input::glob;

/// After which time the connection is tried again: at first, and at most.
const AGAIN: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(30);
/// How long who adds a trigger waits for the connection.
const PATIENCE: Duration = Duration::from_secs(2);
/// What is wrong before there was a connection.
const NOT_YET: &str = "the system bus has not answered yet";

/// The units that triggers are about.
#[derive(Debug, Default)]
pub(super) struct Units {
    state: Mutex<State>,
    /// The connection is there, or there is none.
    has_tried: Condvar,
}

#[derive(Debug, Default)]
struct State {
    entries: Vec<Watched>,
    /// Ends the thread that waits for the bus, if there is one.
    ends: Option<Arc<Notify>>,
    has_tried: bool,
    problem: Option<String>,
}

#[derive(Debug)]
struct Watched {
    entry: Arc<Entry>,
    /// Whether there was a connection since it is here.
    was_watched: bool,
}

/// Whether a unit is one that a condition is about.
fn means(condition: &Condition, unit: &str) -> bool {
    matches!(condition, Condition::UnitFailed { unit: pattern } if glob::matches(pattern, unit))
}

impl Units {
    /// Watches for failures of a trigger's units. If there is no bus, the trigger says so until there is one.
    ///
    /// # Errors
    /// There is no thread.
    pub(super) fn add(&self, triggers: &Arc<Triggers>, entry: &Arc<Entry>) -> Result<(), ControlError> {
        let mut state = lock(&self.state);
        if state.ends.is_none() {
            let ends = Arc::new(Notify::new());
            start(Arc::downgrade(triggers), Arc::clone(&ends)).map_err(|error| {
                ControlError::new(Code::Daemon, format!("units cannot be watched: {error}"))
            })?;
            state.ends = Some(ends);
            (state.has_tried, state.problem) = (false, Some(NOT_YET.to_owned()));
        }
        let is_there = state.has_tried && state.problem.is_none();
        state.entries.push(Watched { entry: Arc::clone(entry), was_watched: is_there });
        entry.has_problem(state.problem.clone());
        let waits = |state: &mut State| !state.has_tried && state.ends.is_some();
        drop(
            self.has_tried.wait_timeout_while(state, PATIENCE, waits).unwrap_or_else(PoisonError::into_inner),
        );
        Ok(())
    }

    /// Watches no longer for those of a trigger.
    pub(super) fn remove(&self, entry: &Arc<Entry>) {
        let mut state = lock(&self.state);
        state.entries.retain(|of| !Arc::ptr_eq(&of.entry, entry));
        if state.entries.is_empty() {
            state.end();
        }
    }

    /// Ends all of it, because the daemon ends.
    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        state.entries.clear();
        state.end();
        self.has_tried.notify_all();
    }

    /// There is a connection, or a reason for that there is none; gives the triggers that had one before.
    fn has_tried(&self, of: &Arc<Notify>, problem: Option<String>) -> Vec<Arc<Entry>> {
        let mut state = lock(&self.state);
        if !state.is_of(of) {
            return Vec::new();
        }
        let mut before = Vec::new();
        for Watched { entry, was_watched } in &mut state.entries {
            entry.has_problem(problem.clone());
            if problem.is_none() && std::mem::replace(was_watched, true) {
                entry.was_interrupted();
                before.push(Arc::clone(entry));
            }
        }
        (state.has_tried, state.problem) = (true, problem);
        self.has_tried.notify_all();
        before
    }

    /// The triggers that are about a unit.
    fn of(&self, unit: &str) -> Vec<Arc<Entry>> {
        let state = lock(&self.state);
        let all = state.entries.iter().map(|of| &of.entry);
        all.filter(|entry| means(&entry.condition, unit)).map(Arc::clone).collect()
    }

    fn is_meant(&self, unit: &str) -> bool {
        lock(&self.state).entries.iter().any(|of| means(&of.entry.condition, unit))
    }
}

impl State {
    fn is_of(&self, ends: &Arc<Notify>) -> bool {
        self.ends.as_ref().is_some_and(|of| Arc::ptr_eq(of, ends))
    }

    fn end(&mut self) {
        if let Some(ends) = self.ends.take() {
            ends.notify_one();
        }
    }
}

/// Starts a thread that waits for the bus.
fn start(triggers: Weak<Triggers>, ends: Arc<Notify>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let watch = move || {
        runtime.block_on(async {
            tokio::select! {
                () = ends.notified() => {}
                () = watch(&triggers, &ends) => {}
            }
        });
    };
    std::thread::Builder::new().name("units".into()).spawn(watch).map(drop)
}

/// Fires triggers as long as there are some.
async fn watch(triggers: &Weak<Triggers>, ends: &Arc<Notify>) {
    let (mut known, mut again) = (Known::default(), AGAIN);
    loop {
        let mut is_connected = false;
        let Err(error) = listen(triggers, ends, &mut known, &mut is_connected).await else { return };
        let Some(triggers) = triggers.upgrade() else { return };
        let why = format!("the system bus does not tell of units: {error}");
        if is_connected || again == AGAIN {
            log(&format!("triggers about units wait: {why}"));
        }
        triggers.units.has_tried(ends, Some(why));
        drop(triggers);
        again = if is_connected { AGAIN } else { again };
        tokio::time::sleep(again).await;
        again = (again * 2).min(AGAIN_MAX);
    }
}

/// Fires triggers until the connection ends, which is the error, or there are no triggers any more.
async fn listen(
    triggers: &Weak<Triggers>,
    ends: &Arc<Notify>,
    known: &mut Known,
    is_connected: &mut bool,
) -> zbus::Result<()> {
    let mut bus = Bus::connect().await?;
    let failed = bus.failed().await?;
    *is_connected = true;
    let new = known.are_failed(failed);
    let Some(of) = triggers.upgrade() else { return Ok(()) };
    let before = of.units.has_tried(ends, None);
    drop(of);
    for unit in new {
        let meant: Vec<_> = before.iter().filter(|entry| means(&entry.condition, &unit)).collect();
        if !meant.is_empty() {
            let failure = bus.failure(unit, None).await?;
            let Some(triggers) = triggers.upgrade() else { return Ok(()) };
            for entry in meant {
                triggers.fire(entry, finding(&failure));
            }
        }
    }
    loop {
        let is_meant = |unit: &str| triggers.upgrade().is_some_and(|of| of.units.is_meant(unit));
        let Some(failure) = bus.next(known, is_meant).await? else { continue };
        let Some(triggers) = triggers.upgrade() else { return Ok(()) };
        for entry in triggers.units.of(&failure.unit) {
            triggers.fire(&entry, finding(&failure));
        }
    }
}

fn finding(failure: &Failure) -> Finding {
    let Failure { unit, result, since } = failure;
    let since_ns = since.and_then(|since| since.checked_mul(1000));
    Finding::UnitFailed { unit: unit.clone(), result: result.clone(), since_ns }
}

/// Whether a text may say which units are meant: the name of one, or a pattern.
pub(super) fn is_pattern(text: &str) -> bool {
    let without: String = text.chars().filter(|of| !"*?[]!^".contains(*of)).collect();
    let is_name = without.is_empty() || known::is_name(&without);
    is_name && !text.is_empty() && text.len() <= known::NAME_MAX
}
