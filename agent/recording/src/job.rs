//! What every export does while it runs: work on several CPUs at a time, report progress, stop when asked,
//! and count what the target layout has no place for.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::error::ExportError;
use stdx::not_carried::NotCarried;
use stdx::parallel;

/// How far an export is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Records written.
    pub events: u64,
    /// Records to write; 0 while they are still being counted.
    pub total: u64,
}

/// An export that runs.
pub struct Job<'a> {
    threads: usize,
    keep_going: bool,
    observer: &'a (dyn Fn(Progress) + Sync),
    events: AtomicU64,
    total: AtomicU64,
    cancelled: AtomicBool,
    not_carried: Mutex<NotCarried>,
}

impl fmt::Debug for Job<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("threads", &self.threads).field("progress", &self.progress()).finish()
    }
}

impl<'a> Job<'a> {
    /// A job for as many threads as the machine has CPUs. `observer` is called now and then, on any of them.
    pub fn new(observer: &'a (dyn Fn(Progress) + Sync)) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            threads,
            keep_going: false,
            observer,
            events: AtomicU64::new(0),
            total: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            not_carried: Mutex::default(),
        }
    }

    /// Whether what is damaged is left out and counted, instead of ending the export.
    #[must_use]
    pub fn keep_going(mut self, keep_going: bool) -> Self {
        self.keep_going = keep_going;
        self
    }

    /// How many threads work, at most.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// How many threads work, at most.
    pub fn thread_count(&self) -> usize {
        self.threads
    }

    /// Ends the export soon, with [`ExportError::Cancelled`].
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether it is to end.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        Progress { events: self.events.load(Ordering::Relaxed), total: self.total.load(Ordering::Relaxed) }
    }

    pub(super) fn set_total(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    /// Tells that this many more records are written. To be called every few thousand records.
    ///
    /// # Errors
    /// [`ExportError::Cancelled`].
    pub fn advance(&self, events: u64) -> Result<(), ExportError> {
        self.events.fetch_add(events, Ordering::Relaxed);
        (self.observer)(self.progress());
        if self.is_cancelled() { Err(ExportError::Cancelled) } else { Ok(()) }
    }

    /// Counts what cannot be carried over.
    pub fn not_carried(&self, what: impl Into<Cow<'static, str>>, count: u64) {
        self.lock().add(what, count);
    }

    /// Counts what a thread could not carry over.
    pub fn merge_not_carried(&self, other: NotCarried) {
        self.lock().merge(other);
    }

    /// What could not be carried over so far; it is forgotten here.
    pub fn take_not_carried(&self) -> NotCarried {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, NotCarried> {
        // Counts are whole after every change.
        self.not_carried.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes an error on, or counts it as `what` where the job keeps going.
    ///
    /// # Errors
    /// `error`.
    pub fn tolerate(
        &self,
        what: impl Into<Cow<'static, str>>,
        count: u64,
        error: impl FnOnce() -> ExportError,
    ) -> Result<(), ExportError> {
        if !self.keep_going {
            return Err(error());
        }
        self.not_carried(what, count);
        Ok(())
    }

    /// Does `work` for each of these, several at a time, and returns the results in their order. The first
    /// error ends it.
    ///
    /// # Errors
    /// The first one of `work`.
    pub fn parallel<T: Sync, R: Send>(
        &self,
        items: &[T],
        work: impl Fn(&T) -> Result<R, ExportError> + Sync,
    ) -> Result<Vec<R>, ExportError> {
        let failed = AtomicBool::new(false);
        let done = parallel::map(items, self.threads, |item| {
            // What comes after an error is not begun any more.
            if failed.load(Ordering::Relaxed) {
                return None;
            }
            let result = work(item);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            Some(result)
        });
        done.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_divided_and_comes_back_in_order() {
        let job = Job::new(&|_| {}).threads(3);
        let items: Vec<u64> = (0..100).collect();
        let squares = job.parallel(&items, |n| job.advance(1).map(|()| n * n)).unwrap();
        assert!(squares.iter().enumerate().all(|(n, square)| *square == (n * n) as u64));
        assert_eq!(job.progress().events, 100);
        let error = job.parallel(&items, |n| if *n == 7 { Err(ExportError::Cancelled) } else { Ok(()) });
        assert!(matches!(error, Err(ExportError::Cancelled)));
        job.cancel();
        assert!(matches!(job.parallel(&items, |_| job.advance(1)), Err(ExportError::Cancelled)));
    }

    #[test]
    fn what_is_not_carried_over_is_summed() {
        let job = Job::new(&|_| {});
        job.not_carried("apples", 2);
        job.not_carried("nothing", 0);
        let mut other = NotCarried::default();
        other.add(format!("{}s", "apple"), 3);
        job.merge_not_carried(other);
        assert_eq!(job.take_not_carried().iter().collect::<Vec<_>>(), [("apples", 5)]);
        assert!(job.tolerate("x", 1, || ExportError::Cancelled).is_err());
        let job = job.keep_going(true);
        assert!(job.tolerate("x", 1, || ExportError::Cancelled).is_ok());
        assert!(!job.take_not_carried().is_empty());
    }
}
