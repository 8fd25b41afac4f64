//! A recording that has maps and nothing else: no ring, no spool, no file.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{HandedMaps, Maps, threads};
use crate::attaching::{note_threads_in_scope, trace_process};
use crate::ctf::CtfOutput;
use crate::handover::HandedOptions;
use crate::needs::halves;
use crate::options::CaptureOptions;
use crate::session::wait_for_programs;
use crate::watch::WatchOptions;
use crate::{CaptureError, Destination, HandOver, HandOverError, TakeOverError, TrackError, Tracking};
use attach::detach::AttachTurn;
use attach::ring::NameStream;
use attach::{Programs, TaskTracker, TasksState};
use kernel::proc;
use stdx::handover::{Descriptors, Moment};

/// Counting in maps, from attaching to the end.
#[derive(Debug)]
pub struct Counting {
    maps: Arc<Maps>,
    tasks: TaskTracker,
    /// Names of threads, which nobody wants.
    _names: NameStream,
    options: CaptureOptions,
    began: Option<Instant>,
    /// Since when it has counted, if it does.
    since: Option<Instant>,
    /// For how long it had counted before.
    before: Duration,
}

/// Counting on its way to another process.
#[derive(Debug, Serialize, Deserialize)]
struct HandedCounting {
    options: HandedOptions,
    maps: HandedMaps,
    tasks: TasksState,
    /// Since when it counts.
    since: Option<Moment>,
    /// For how long it had counted before.
    before: Duration,
}

impl Counting {
    /// Loads and attaches everything; nothing is counted before [`Counting::start`].
    ///
    /// # Errors
    /// There is no map, or the kernel refuses something.
    pub fn create(options: CaptureOptions) -> Result<Self, CaptureError> {
        let mut maps = Maps::load(&options, None)?;
        let halves = halves(&options)?;
        let first = maps.first().ok_or(CaptureError::NoChannel)?;
        let others: [&Programs; 0] = [];
        let (mut tasks, names) = TaskTracker::attach(first, others, halves)?;
        if let Some((scope, halves)) = options.scope.as_ref().zip(halves) {
            tasks.set_scope(halves, scope)?;
            note_threads_in_scope(&tasks, scope).map_err(threads)?;
        }
        for &process in options.tasks.iter().flat_map(|filter| &filter.processes) {
            trace_process(&tasks, process);
        }
        if options.exclude_self {
            for tid in proc::own_threads().map_err(threads)? {
                tasks.untrace_thread(tid);
            }
        }
        let _turn = AttachTurn::take();
        maps.attach()?;
        let (began, since, before) = (None, None, Duration::ZERO);
        Ok(Self { maps: Arc::new(maps), tasks, _names: names, options, began, since, before })
    }

    /// How a [watch](crate::watch) tells of events of the same threads, on the same CPUs and clock.
    /// One that is started from it is attached after the maps: of an event of the kernel that both have, the
    /// map's program has run when the watch's does.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn watch_options(&self) -> Result<WatchOptions, CaptureError> {
        let first = self.maps.first().ok_or(CaptureError::NoChannel)?;
        Ok(WatchOptions::beside(&self.options, first.thread_maps()?))
    }

    /// Adds a thread to those whose events are counted. Takes effect at once.
    pub fn trace_thread(&self, tid: u32) {
        self.tasks.trace_thread(tid);
    }

    /// Starts counting, or goes on after a [pause](Self::pause): times that had begun before it are
    /// forgotten, as they may have ended in it.
    pub fn start(&mut self) {
        if self.since.is_some() {
            return;
        }
        self.maps.forget_open();
        self.maps.set_enabled(true);
        let now = Instant::now();
        self.began.get_or_insert(now);
        self.since = Some(now);
    }

    /// Counts nothing from now on. What the maps have can be read, and does not change.
    pub fn pause(&mut self) {
        Self::pause_all([self]);
    }

    /// Lets several count nothing from now on, all from the same moment on.
    pub fn pause_all<'c>(all: impl IntoIterator<Item = &'c mut Self>) {
        let mut has_counted = false;
        for counting in all.into_iter().filter(|counting| counting.since.is_some()) {
            counting.maps.set_enabled(false);
            counting.before = counting.counted();
            counting.since = None;
            has_counted = true;
        }
        if has_counted {
            wait_for_programs();
        }
    }

    /// Empties the maps, and goes on counting if it does.
    pub fn clear(&mut self) {
        let is_counting = self.is_counting();
        self.pause();
        self.maps.clear();
        self.before = Duration::ZERO;
        if is_counting {
            self.start();
        }
    }

    /// Whether it counts.
    pub fn is_counting(&self) -> bool {
        self.since.is_some()
    }

    /// When it began first.
    pub fn began(&self) -> Option<Instant> {
        self.began
    }

    /// For how long it has counted, without pauses.
    pub fn counted(&self) -> Duration {
        self.since.map_or(self.before, |since| self.before + since.elapsed())
    }

    /// Counts events of threads by other values of an attribute from now on.
    ///
    /// # Errors
    /// It was not said that threads [change](compile::scope::Scope::changes), or there are too many
    /// values.
    pub fn track(&mut self, tracking: Tracking) -> Result<(), TrackError> {
        let before = self.options.scope.as_ref().filter(|scope| scope.changes).ok_or(TrackError::Fixed)?;
        let halves = halves(&self.options)?.ok_or(TrackError::Fixed)?;
        let mut scope = before.clone();
        scope.only.put(tracking.attribute, tracking.set);
        self.tasks.set_scope(halves, &scope)?;
        wait_for_programs();
        let noted = note_threads_in_scope(&self.tasks, &scope).map_err(TrackError::Threads);
        self.options.scope = Some(scope);
        noted
    }

    /// The maps, which can be read at any moment.
    pub fn maps(&self) -> Arc<Maps> {
        Arc::clone(&self.maps)
    }

    /// Ends counting: what the maps have is final. Detaching goes on in the background once they are dropped.
    pub fn stop(mut self) -> Arc<Maps> {
        self.pause();
        self.maps
    }

    /// Lets another process go on counting. It is counted meanwhile, as long as somebody has the descriptors.
    ///
    /// # Errors
    /// Somebody reads the maps at this moment; they are detached.
    pub fn hand_over(self) -> Result<HandOver, HandOverError> {
        let Self { maps, tasks, options, since, before, .. } = self;
        let maps = Arc::into_inner(maps).ok_or(HandOverError::Maps)?;
        let mut descriptors = Descriptors::default();
        let to = &mut descriptors;
        let counting = HandedCounting {
            maps: maps.hand_over(true, to),
            options: HandedOptions::of(options, to),
            tasks: tasks.hand_over(to),
            since: since.map(Moment::from),
            before,
        };
        HandOver::new((Path::new(""), None), &counting, descriptors)
    }

    /// Goes on with what was [handed over](Self::hand_over), with the same counts.
    ///
    /// # Errors
    /// It does not go on, and is detached.
    pub fn take_over(mut from: HandOver) -> Result<Self, TakeOverError> {
        let taken =
            from.read().and_then(|handed: HandedCounting| Self::of_handed(handed, from.descriptors()));
        if taken.is_err() {
            from.give_up();
        }
        taken
    }

    fn of_handed(handed: HandedCounting, from: &mut Descriptors) -> Result<Self, TakeOverError> {
        let HandedCounting { options, maps, tasks, since, before } = handed;
        let nowhere = (Destination::Directory("/".into()), None::<&CtfOutput>);
        let options = options.take_over(nowhere, from)?;
        let maps = Maps::take_over(maps, &options, None, from)?;
        let first = maps.first().ok_or(CaptureError::NoChannel)?;
        let halves = halves(&options).map_err(CaptureError::from)?;
        let (mut tasks, names) = TaskTracker::take_over(tasks, first, halves, from)?;
        if options.exclude_self {
            // Without them, events about these threads are counted.
            for tid in proc::own_threads().unwrap_or_default() {
                tasks.untrace_thread(tid);
            }
        }
        let since = since.map(Instant::from);
        let began = since.or_else(|| Some(Instant::now()));
        Ok(Self { maps: Arc::new(maps), tasks, _names: names, options, began, since, before })
    }
}
