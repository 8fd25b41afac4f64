//! Work that is done for many items, on several CPUs at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Does `work` for each item on up to `threads` threads, one of which is the caller's, and returns the
/// results in the order of the items. A thread takes the next item whenever it is done with one, so items may
/// differ in what they cost.
///
/// A pool that outlives the call, as rayon has one, would leave its threads in a process that forks and that
/// measures what it does itself.
///
/// # Panics
/// If `work` does.
pub(crate) fn map<T: Sync, R: Send>(items: &[T], threads: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let worker = || -> Vec<(usize, R)> {
        let take = || {
            let index = next.fetch_add(1, Ordering::Relaxed);
            items.get(index).map(|item| (index, work(item)))
        };
        std::iter::from_fn(take).collect()
    };
    let mut done = thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(items.len())).map(|_| scope.spawn(worker)).collect();
        let mut done = worker();
        for other in others {
            match other.join() {
                Ok(part) => done.extend(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// The CPUs that this process may use, of which there is one at least.
pub(crate) fn available() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_order_of_the_items() {
        let items: Vec<usize> = (0..1000).collect();
        for threads in [0, 1, 3, 2000] {
            let doubled = map(&items, threads, |item| item * 2);
            assert!(doubled.iter().enumerate().all(|(index, double)| *double == index * 2));
            assert_eq!(doubled.len(), items.len());
        }
        assert!(map(&[], 4, |item: &u8| *item).is_empty());
    }

    #[test]
    fn a_panic_reaches_the_caller() {
        let work = |item: &u8| assert_ne!(*item, 7, "seven");
        let result = std::panic::catch_unwind(|| map(&(0..20).collect::<Vec<u8>>(), 2, work));
        assert!(result.is_err());
    }
}
