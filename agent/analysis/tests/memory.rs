//! What an analysis holds in memory has a bound, whatever records it is fed with.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test fails the test")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use analysis::answers::{
    Analysis, At, Calls, Context, Event, Frames, Irqs, Known, Names, OffCpu, Sched, Scope, Switch, Tid,
    Wakeup,
};

/// Bytes that are allocated now, and the most there were since that was last set.
static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, watched.
struct Watched;

impl Watched {
    fn more(bytes: usize) {
        PEAK.fetch_max(NOW.fetch_add(bytes, Ordering::Relaxed) + bytes, Ordering::Relaxed);
    }

    fn less(bytes: usize) {
        NOW.fetch_sub(bytes, Ordering::Relaxed);
    }
}

// SAFETY: everything is done by the system's allocator, which keeps the promises.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::more(layout.size());
        // SAFETY: the caller's promises are those that it wants.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::more(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::less(layout.size());
        Self::more(size);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Self::less(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// Twice as many threads as there is room for, and what else is told apart.
const THREADS: u64 = 1 << 19;

/// How often each of them is seen.
const TIMES: u64 = 4;

/// Feeds an analysis with what is meant to fill memory: everything is always another one.
struct Hostile<A> {
    analysis: A,
    time: u64,
    number: u64,
}

impl<A: Analysis> Hostile<A> {
    fn look(&mut self, tid: u64, known: Known<'_>) {
        // Times of all sizes, so that a size hardly ever comes twice to one thread.
        self.number += 1;
        self.time += self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (30 + self.number % 32);
        let at = At { time: self.time, cpu: (self.number % 64) as u32 };
        let event = Event::whole(Some(tid as Tid), Context::Thread, known);
        self.analysis.look(at, &event);
        if let Some(of) = self.analysis.awaits_stack() {
            let number = self.number;
            let addresses = &mut (0..40).map(|frame| number.wrapping_mul(frame + 1));
            self.analysis.stack(of, Frames { is_kernel: number.is_multiple_of(2), addresses });
        }
    }

    fn feed(&mut self) {
        for round in 0..TIMES {
            for thread in 1..=THREADS {
                let number = thread.to_string();
                let mut name = [b'0'; 64];
                name[64 - number.len()..].copy_from_slice(number.as_bytes());
                let comm = &name[..];
                let (tid, other) = (thread as Tid, (thread ^ 1) as Tid);
                self.look(thread, Known::Wakeup(Wakeup { tid: other, comm, is_new: false }));
                let prev_state = round % 3;
                let switch = Switch { prev: tid, prev_comm: comm, prev_state, next: other, next_comm: comm };
                self.look(thread, Known::Switch(switch));
                let number = (thread * TIMES + round) as i64;
                self.look(
                    thread,
                    Known::CallEnter { number, arguments: [None; 3], path: None, is_raw: true },
                );
                self.look(thread, Known::CallExit { number, result: -(number % 4096), is_raw: true });
                self.look(thread, Known::IrqEntry { irq: number, name: comm });
                self.look(thread, Known::IrqExit { irq: number });
                self.look(thread, Known::SoftirqRaise { vector: thread });
                self.look(thread, Known::SoftirqEntry { vector: thread });
                self.look(thread, Known::SoftirqExit { vector: thread });
            }
        }
    }
}

/// The most bytes that an analysis has while it looks at records, and while it answers.
fn peaks<A: Analysis>(analysis: A) -> [usize; 2] {
    let before = NOW.load(Ordering::Relaxed);
    let since = |()| PEAK.load(Ordering::Relaxed).saturating_sub(before);
    PEAK.store(before, Ordering::Relaxed);
    let mut hostile = Hostile { analysis, time: 0, number: 0 };
    hostile.feed();
    let looking = since(());
    PEAK.store(NOW.load(Ordering::Relaxed), Ordering::Relaxed);
    let Hostile { analysis, time, .. } = hostile;
    drop(analysis.answer(time, &Names::none()));
    [looking, since(())]
}

/// One after the other: what is measured is all of this process.
#[test]
fn records_of_a_hostile_file_take_no_more_than_so_much() {
    let scope = Scope::default;
    for (name, [looking, answering], most) in [
        ("sched", peaks(Sched::new(scope())), [200, 320]),
        ("syscalls", peaks(Calls::new(scope(), None)), [200, 320]),
        ("irq", peaks(Irqs::new(scope())), [64, 64]),
        ("offcpu", peaks(OffCpu::new(scope())), [320, 640]),
    ] {
        let megabytes = [looking, answering].map(|bytes| bytes >> 20);
        eprintln!("{name}: {megabytes:?} MiB");
        assert!(
            megabytes[0] < most[0] && megabytes[1] < most[1],
            "{name}: {megabytes:?} MiB, bound {most:?}"
        );
    }
}
