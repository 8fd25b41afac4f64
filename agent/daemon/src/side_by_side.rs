//! Work for several users at the same time: a slow user holds up no other.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, TryLockError,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread::Builder,
    time::{Duration, Instant},
};

use super::lock;

/// How often a lock is tried that another thread holds.
const LOCK_POLL: Duration = Duration::from_millis(5);

/// Threads of work that all wait for.
const THREADS: usize = 8;

/// The work of a thread.
pub(super) type Work<R> = Box<dyn FnOnce() -> R + Send>;

/// Does each of `works` in a thread, all at the same time, and returns the results in the order of the works.
/// A work that is not done at `deadline` has `None`: its thread is not joined, and ends with the process at
/// the latest. Where the system has fewer threads, each does one work after the other.
pub(super) fn within<R: Send + 'static>(works: Vec<Work<R>>, deadline: Instant) -> Vec<Option<R>> {
    let count = works.len();
    let queue = Arc::new(Mutex::new(works.into_iter().enumerate().collect::<VecDeque<_>>()));
    let (done, results) = mpsc::channel();
    let worker = || {
        let (queue, done) = (Arc::clone(&queue), done.clone());
        move || loop {
            let next = lock(&queue).pop_front();
            let Some((index, work)) = next else { return };
            // After the deadline nobody needs the result.
            let _ = done.send((index, work()));
        }
    };
    for started in 0..count {
        if Builder::new().name("beside".into()).spawn(worker()).is_err() {
            if started == 0 {
                worker()();
            }
            break;
        }
    }
    drop(done);
    let mut all: Vec<Option<R>> = std::iter::repeat_with(|| None).take(count).collect();
    // A work that panics has no result either, and has printed why.
    while let Ok((index, result)) = results.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        all[index] = Some(result);
    }
    all
}

/// Does `work` for each item in a few threads, and waits for all of it. What the system has no thread for,
/// the others do.
pub(super) fn for_all<T: Sync>(all: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let run = || {
        while let Some(of) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(of);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..all.len().min(THREADS) {
            if Builder::new().name("beside".into()).spawn_scoped(scope, run).is_err() {
                break;
            }
        }
        run();
    });
}

/// Takes a lock before `deadline`; `None` if another thread holds it until then.
pub(super) fn lock_until<T>(mutex: &Mutex<T>, deadline: Instant) -> Option<MutexGuard<'_, T>> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(error)) => return Some(error.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_POLL),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Barrier};

    use super::*;

    /// Longer than a test may take.
    const LONG: Duration = Duration::from_secs(1 << 20);

    #[test]
    fn all_works_begin_before_one_is_given_up() {
        // Each waits for all others: one after the other, none of them would end.
        let barrier = Arc::new(Barrier::new(8));
        let meet = |number: usize| {
            let barrier = Arc::clone(&barrier);
            Box::new(move || {
                barrier.wait();
                number
            }) as Work<usize>
        };
        let met = within((0..8).map(meet).collect(), Instant::now() + LONG);
        assert_eq!(met, (0..8).map(Some).collect::<Vec<_>>());
    }

    #[test]
    fn slow_work_is_left_and_finished_work_counts() {
        let results = |limit: Duration| {
            let (go_on, waits) = mpsc::channel::<()>();
            let (begun, begins) = mpsc::channel();
            let works: Vec<Work<u32>> = vec![
                Box::new(move || {
                    begun.send(()).unwrap();
                    // Until the test is over with it.
                    let _ = waits.recv();
                    1
                }),
                Box::new(|| 2),
                Box::new(move || {
                    // The first one has begun, and keeps no other from its result.
                    begins.recv().unwrap();
                    3
                }),
            ];
            let results = within(works, Instant::now() + limit);
            drop(go_on);
            results
        };
        // A busy machine may take longer for the others.
        let limits = (0..20).map(|power| Duration::from_millis(1 << power));
        let found = limits.map(results).find(|results| results[1..].iter().all(Option::is_some));
        assert_eq!(found, Some(vec![None, Some(2), Some(3)]));
    }

    #[test]
    fn each_is_done_once_and_a_few_at_a_time() {
        let done = Mutex::new(Vec::new());
        let all: Vec<u32> = (0..1000).collect();
        for_all(&all, |number| lock(&done).push((*number, format!("{:?}", std::thread::current().id()))));
        let (mut numbers, threads): (Vec<u32>, BTreeSet<String>) =
            done.into_inner().unwrap().into_iter().unzip();
        numbers.sort_unstable();
        assert_eq!(numbers, all);
        assert!((1..=THREADS).contains(&threads.len()), "{threads:?}");
        for_all(&[], |never: &u32| unreachable!("{never}"));
    }

    #[test]
    fn nothing_to_do_takes_no_time() {
        assert!(within(Vec::<Work<()>>::new(), Instant::now() + LONG).is_empty());
    }

    #[test]
    fn a_work_that_panics_has_no_result() {
        let works: Vec<Work<()>> = vec![Box::new(|| panic!("as it is meant")), Box::new(|| ())];
        assert_eq!(within(works, Instant::now() + LONG), [None, Some(())]);
    }

    #[test]
    fn a_lock_that_is_held_is_given_up() {
        let mutex = Mutex::new(7);
        let held = mutex.lock().unwrap();
        assert!(lock_until(&mutex, Instant::now()).is_none());
        drop(held);
        assert_eq!(lock_until(&mutex, Instant::now()).map(|guard| *guard), Some(7));
    }
}
