//! Work that is done for many items, on several CPUs at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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
pub fn map<T: Sync, R: Send>(items: &[T], threads: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
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

/// Most threads that one thread can keep busy.
const MOST_THREADS: usize = 8;

/// Has `give` hand over items, and works on them on up to `threads` threads, each with what `worker` makes
/// for it. What comes of an item is any number of pieces, which the work hands on one by one, and which
/// `take` takes in the order of the items: a thread that is early waits with a piece until it is its turn.
/// So of each item that is worked on there is one piece in memory. Of the items, two more than there are
/// threads are.
///
/// # Errors
/// The first one of `take`; then the one of `give`, which ends when nothing is taken any more.
///
/// # Panics
/// If one of the functions does.
pub fn in_order<I, R, E, T, W>(
    threads: usize,
    worker: &(impl Fn() -> W + Sync),
    take: impl FnMut(R) -> Result<(), E> + Send,
    give: impl FnOnce(&mut Items<I>) -> Result<T, E>,
) -> Result<T, E>
where
    I: Send,
    E: Send,
    W: FnMut(I, &mut HandOn<'_, R>) -> Result<(), Ended>,
{
    let (to, queue) = mpsc::sync_channel(1);
    // It is gone, and giving ends, when all threads have ended.
    let queue = Arc::new(Mutex::new(queue));
    let line = Line { state: Mutex::new(State { turn: 0, take, end: None }), changed: Condvar::new() };
    let given = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.clamp(1, MOST_THREADS))
            .map(|_| {
                let (queue, line) = (Arc::clone(&queue), &line);
                scope.spawn(move || line.follow(&queue, worker()))
            })
            .collect();
        drop(queue);
        let given = give(&mut Items { next: 0, to });
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        given
    });
    match line.state.into_inner().unwrap_or_else(PoisonError::into_inner).end {
        Some(End::Failed(error)) => Err(error),
        Some(End::Panic) | None => given,
    }
}

/// Where the items of [`in_order`] are handed over.
#[derive(Debug)]
pub struct Items<I> {
    next: usize,
    to: SyncSender<(usize, I)>,
}

/// Nothing is taken any more: taking has failed, and says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended;

/// Hands on a piece.
pub type HandOn<'h, R> = dyn FnMut(R) -> Result<(), Ended> + 'h;

impl<I> Items<I> {
    /// Hands an item over, when there is room for it.
    pub fn give(&mut self, item: I) -> Result<(), Ended> {
        self.to.send((self.next, item)).map_err(|_| Ended)?;
        self.next += 1;
        Ok(())
    }
}

/// The threads that work, and what takes their pieces.
struct Line<F, E> {
    state: Mutex<State<F, E>>,
    changed: Condvar,
}

struct State<F, E> {
    /// The item whose pieces are taken.
    turn: usize,
    take: F,
    end: Option<End<E>>,
}

/// Why nothing is taken any more.
enum End<E> {
    Failed(E),
    /// A thread has panicked, and will tell whoever waits for it.
    Panic,
}

impl<F, E> Line<F, E> {
    fn follow<I, R>(
        &self,
        queue: &Mutex<Receiver<(usize, I)>>,
        mut work: impl FnMut(I, &mut HandOn<'_, R>) -> Result<(), Ended>,
    ) where
        F: FnMut(R) -> Result<(), E>,
    {
        let _watch = Watch(self);
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok((number, item)) = next else { return };
            let mut hand_on = |piece| {
                let mut state = self.wait_for_turn(number)?;
                (state.take)(piece).map_err(|error| {
                    state.end = Some(End::Failed(error));
                    self.changed.notify_all();
                    Ended
                })
            };
            let done = work(item, &mut hand_on);
            let Ok(mut state) = done.and_then(|()| self.wait_for_turn(number)) else { return };
            state.turn += 1;
            self.changed.notify_all();
        }
    }

    fn wait_for_turn(&self, number: usize) -> Result<MutexGuard<'_, State<F, E>>, Ended> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_early = |state: &mut State<F, E>| state.turn != number && state.end.is_none();
        let state = self.changed.wait_while(state, is_early).unwrap_or_else(PoisonError::into_inner);
        if state.end.is_none() { Ok(state) } else { Err(Ended) }
    }
}

/// Tells the others if this thread panics: they would wait for ever.
struct Watch<'l, F, E>(&'l Line<F, E>);

impl<F, E> Drop for Watch<'_, F, E> {
    fn drop(&mut self) {
        if thread::panicking() {
            let Self(line) = self;
            line.state.lock().unwrap_or_else(PoisonError::into_inner).end = Some(End::Panic);
            line.changed.notify_all();
        }
    }
}

/// The CPUs that this process may use, of which there is one at least.
pub fn available() -> usize {
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
    fn what_is_handed_over_is_taken_in_its_order() {
        for threads in [0, 1, 3, 100] {
            let mut taken = Vec::new();
            let worker = || {
                let mut before = 0;
                move |item: u64, hand_on: &mut HandOn<'_, (u64, u64, u64)>| {
                    before += 1;
                    // Some come to nothing, others to many pieces.
                    (0..item % 4).try_for_each(|piece| {
                        thread::sleep(std::time::Duration::from_micros(100 * (item % 3)));
                        hand_on((item, piece, before))
                    })
                }
            };
            let take = |piece| {
                taken.push(piece);
                Ok(())
            };
            let given = in_order(threads, &worker, take, |items| {
                (0..200).try_for_each(|item| items.give(item)).map_err(|Ended| "ended").map(|()| "all")
            });
            assert_eq!(given, Ok("all"));
            let all = (0..200).flat_map(|item| (0..item % 4).map(move |piece| (item, piece)));
            assert!(taken.iter().map(|(item, piece, _)| (*item, *piece)).eq(all));
            // Each thread has what it has made for itself.
            let most = taken.iter().map(|(_, _, before)| *before).max().unwrap();
            assert!(if threads < 2 { most == 200 } else { most <= 200 }, "{most}");
        }
    }

    fn as_it_is<I>() -> impl FnMut(I, &mut HandOn<'_, I>) -> Result<(), Ended> {
        |item, hand_on| hand_on(item)
    }

    #[test]
    fn what_cannot_be_taken_ends_the_giving() {
        for threads in [1, 2] {
            let mut given = 0_u64;
            let take = |item: u64| if item == 5 { Err("full") } else { Ok(()) };
            let result = in_order(threads, &as_it_is, take, |items| {
                (0..).try_for_each(|item| {
                    given += 1;
                    items.give(item).map_err(|Ended| "ended")
                })
            });
            assert_eq!(result, Err("full"));
            assert!((6..=12).contains(&given), "{given}");
        }
        // Of two errors, the one of taking is why.
        let result = in_order(1, &as_it_is, |_: u64| Ok(()), |_| Err::<(), _>("cannot read"));
        assert_eq!(result, Err("cannot read"));
    }

    #[test]
    fn pieces_are_few_at_a_time() {
        // The first item is late; of the others, which have very many pieces, there is one piece each.
        let (made, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let worker = || {
            |item: usize, hand_on: &mut HandOn<'_, ()>| {
                if item == 0 {
                    thread::sleep(std::time::Duration::from_millis(50));
                }
                (0..1000).try_for_each(|_| {
                    let in_memory = made.fetch_add(1, Ordering::SeqCst) + 1 - taken.load(Ordering::SeqCst);
                    assert!(in_memory <= 4, "{in_memory}");
                    hand_on(())
                })
            }
        };
        let take = |()| {
            taken.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        let given = in_order(4, &worker, take, |items| {
            (0..20).try_for_each(|item| items.give(item)).map_err(|Ended| "ended")
        });
        assert_eq!((given, taken.into_inner()), (Ok(()), 20_000));
    }

    #[test]
    fn a_panic_of_any_function_ends_all() {
        let run = |worker: usize, taking: usize, giving: usize| {
            std::panic::catch_unwind(|| {
                let work = || {
                    move |item: usize, hand_on: &mut HandOn<'_, usize>| {
                        assert_ne!(item, worker, "seven");
                        hand_on(item)
                    }
                };
                let take = |item| {
                    assert_ne!(item, taking, "seven");
                    Ok(())
                };
                in_order(2, &work, take, |items| {
                    (0..1000).try_for_each(|item| {
                        assert_ne!(item, giving, "seven");
                        items.give(item).map_err(|Ended| "ended")
                    })
                })
            })
        };
        for (worker, taking, giving) in [(7, 9999, 9999), (9999, 7, 9999), (9999, 9999, 7)] {
            let panic = run(worker, taking, giving).unwrap_err();
            let text = panic.downcast_ref::<String>().unwrap();
            assert!(text.contains("seven"), "{text}");
        }
        assert_eq!(run(9999, 9999, 9999).unwrap(), Ok(()));
    }

    #[test]
    fn a_panic_reaches_the_caller() {
        let work = |item: &u8| assert_ne!(*item, 7, "seven");
        let result = std::panic::catch_unwind(|| map(&(0..20).collect::<Vec<u8>>(), 2, work));
        assert!(result.is_err());
    }
}
