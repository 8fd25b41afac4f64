//! A recording that has maps and nothing else: no ring, no spool, no file.

use std::{sync::Arc, time::Instant};

use super::{Maps, threads};
use crate::{
    attach::{Programs, TaskTracker, detach::AttachTurn},
    capture::{
        CaptureError,
        attaching::{note_threads_in_scope, trace_process},
        needs::halves,
        options::CaptureOptions,
        session::wait_for_programs,
        watch::WatchOptions,
    },
    kernel::proc,
    ring::NameStream,
};

/// Counting in maps, from attaching to the end.
#[derive(Debug)]
pub struct Counting {
    maps: Arc<Maps>,
    tasks: TaskTracker,
    /// Names of threads, which nobody wants.
    _names: NameStream,
    began: Option<Instant>,
    options: CaptureOptions,
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
        Ok(Self { maps: Arc::new(maps), tasks, _names: names, began: None, options })
    }

    /// How a [watch](crate::capture::watch) tells of events of the same threads, on the same CPUs and clock.
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

    /// Starts counting.
    pub fn start(&mut self) {
        self.maps.set_enabled(true);
        self.began = Some(Instant::now());
    }

    /// When that was.
    pub fn began(&self) -> Option<Instant> {
        self.began
    }

    /// The maps, which can be read at any moment.
    pub fn maps(&self) -> Arc<Maps> {
        Arc::clone(&self.maps)
    }

    /// Ends counting: what the maps have is final. Detaching goes on in the background once they are dropped.
    pub fn stop(self) -> Arc<Maps> {
        self.maps.set_enabled(false);
        wait_for_programs();
        self.maps
    }
}
