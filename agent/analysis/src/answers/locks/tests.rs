use super::super::Wakeup;
use super::super::known::Context;
use super::*;
use ftrace_event::syscalls::SyscallTable;
use ftrace_event::{Symbol, Symbols};

/// Flags of the kernel's locks: `LCB_F_*`.
const SPIN: u64 = 1;
const MUTEX: u64 = 32;
const RWSEM_READ: u64 = 2;
const RWSEM_WRITE: u64 = 4;

/// Operations of futexes: `FUTEX_WAIT_PRIVATE`, and its like.
const WAIT: i64 = 128;
const WAKE: i64 = 129;
const WAIT_BITSET_CLOCK: i64 = 9 | 128 | 256;
const SHARED_WAIT: i64 = 0;

/// Numbers of `futex` and of another call on x86-64.
const FUTEX: i64 = 202;
const READ: i64 = 0;

struct Table;

impl Symbols for Table {
    fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
        let (name, offset) = match address {
            0x1..=0x4 => {
                let names = ["native_queued_spin_lock_slowpath", "_raw_spin_lock", "inode_work", "down"];
                (names[address as usize - 1], 7)
            }
            0x10 => ("pthread_mutex_lock", 7),
            0x11..0x13 => ("take", address - 0x10),
            0x5000..0x6000 => ("rcu_state", address - 0x5000),
            0x6000.. => ("__start_of_something", address - 0x6000),
            _ => return None,
        };
        Some(Symbol { name, offset, size: None, module: None })
    }
}

struct Story(Locks);

impl Story {
    fn new(threads: &[(Tid, Tid)]) -> Self {
        Self::of(Scope::default(), threads)
    }

    fn of(scope: Scope, threads: &[(Tid, Tid)]) -> Self {
        Self(Locks::new(scope, SyscallTable::of_machine("x86_64"), threads.iter().copied()))
    }

    fn at(&mut self, (time, cpu): (u64, u32), (context, tid): (Context, Tid), known: Known<'_>) {
        self.0.look(At { time, cpu }, &Event::whole(Some(tid), context, known));
    }

    fn of_thread(&mut self, time: u64, tid: Tid, known: Known<'_>) {
        self.at((time, 0), (Context::Thread, tid), known);
    }

    fn begin(&mut self, time: u64, tid: Tid, lock: u64, flags: u64) {
        self.of_thread(time, tid, Known::LockBegin { lock, flags });
    }

    fn end(&mut self, time: u64, tid: Tid, lock: u64, result: i64) {
        self.of_thread(time, tid, Known::LockEnd { lock, result });
    }

    fn stack(&mut self, addresses: &[u64]) {
        self.stack_of(true, addresses);
    }

    fn stack_of(&mut self, is_kernel: bool, addresses: &[u64]) {
        let of = self.0.awaits_stack().expect("a stack is wanted");
        self.0.stack(of, Frames { is_kernel, addresses: &mut addresses.iter().copied() });
    }

    fn enter(&mut self, time: u64, tid: Tid, address: i64, op: i64) {
        let known = Known::CallEnter {
            number: FUTEX,
            arguments: [Some(address), Some(op), None],
            path: None,
            is_raw: true,
        };
        self.of_thread(time, tid, known);
    }

    fn exit(&mut self, time: u64, tid: Tid, result: i64) {
        self.of_thread(time, tid, Known::CallExit { number: FUTEX, result, is_raw: true });
    }

    fn call(&mut self, (from, to): (u64, u64), tid: Tid, (address, op): (i64, i64), result: i64) {
        self.enter(from, tid, address, op);
        self.exit(to, tid, result);
    }

    fn new_task(&mut self, time: u64, parent: Tid, child: Tid, is_thread: bool) {
        let begins = Known::Begins { child, comm: b"child", is_thread, is_seen: true };
        self.of_thread(time, parent, begins);
        let known = Known::NewTask {
            child,
            comm: b"child",
            shares_files: is_thread,
            is_thread,
            shares_memory: is_thread,
        };
        self.of_thread(time, parent, known);
    }

    fn lost(&mut self, time: u64) {
        self.0.lost(At { time, cpu: 1 });
    }

    fn answer(self, end: u64) -> LocksAnswer {
        self.0.answer(end, &Names { symbols: &Table, ..Names::none() })
    }
}

#[test]
fn a_wait_inside_another_is_of_its_own_lock() {
    let mut story = Story::new(&[]);
    // A mutex, whose waiter spins, sleeps, waits for the lock of its queue, and spins again.
    story.begin(100, 7, 0x5000, MUTEX | SPIN);
    story.stack(&[3]);
    story.begin(110, 7, 0x5000, MUTEX);
    assert_eq!(story.0.awaits_stack(), None);
    story.begin(120, 7, 0x9, SPIN);
    story.stack(&[1, 2, 4, 3]);
    // An interrupt that waits meanwhile is not the thread.
    story.at((122, 0), (Context::Irq, 7), Known::LockBegin { lock: 0xa, flags: SPIN });
    story.at((125, 0), (Context::Irq, 7), Known::LockEnd { lock: 0xa, result: 0 });
    story.end(130, 7, 0x9, 0);
    story.begin(140, 7, 0x5000, MUTEX | SPIN);
    story.end(200, 7, 0x5000, 0);
    // One that a signal ends.
    story.begin(300, 8, 0x5010, RWSEM_WRITE);
    story.end(350, 8, 0x5010, -4);
    let answer = story.answer(400);
    let told: Vec<_> = (answer.kernel.locks.iter())
        .map(|lock| {
            let waiters: Vec<_> = lock.waiters.iter().map(|waiter| (&*waiter.comm, waiter.tid)).collect();
            (
                &*lock.address,
                lock.name.as_deref(),
                lock.kind,
                lock.times.unwrap().count,
                lock.times.unwrap().total_ns,
                lock.failed.unwrap(),
                waiters,
            )
        })
        .collect();
    let expected = [
        ("0x5000", Some("rcu_state"), LockKind::Mutex, 1, 100, 0, vec![("", Some(7))]),
        ("0x5010", Some("rcu_state+0x10"), LockKind::RwsemWrite, 1, 50, 1, vec![("", Some(8))]),
        ("0x9", None, LockKind::Spinlock, 1, 10, 0, vec![("", Some(7))]),
        ("0xa", None, LockKind::Spinlock, 1, 3, 0, vec![("[interrupt]", None)]),
    ];
    assert_eq!(told, expected);
    let callers: Vec<_> = (answer.kernel.callers.iter())
        .map(|caller| (caller.function.as_deref(), caller.kind, caller.times.total_ns, caller.failed))
        .collect();
    let expected = [
        (Some("inode_work"), LockKind::Mutex, 100, 0),
        (None, LockKind::RwsemWrite, 50, 1),
        (Some("inode_work"), LockKind::Spinlock, 10, 0),
        (None, LockKind::Spinlock, 3, 0),
    ];
    assert_eq!(callers, expected);
    assert!(answer.kernel.has_stacks);
    let threads: Vec<_> = answer.threads.iter().map(|of| (of.tid, of.kernel.unwrap().total_ns)).collect();
    assert_eq!(threads, [(Some(7), 110), (Some(8), 50), (None, 3)]);
    assert_eq!(
        (answer.kernel.unmatched.unwrap(), answer.kernel.unfinished.unwrap(), answer.left_out),
        (0, 0, 0)
    );
}

#[test]
fn idle_threads_of_two_cpus_wait_at_a_time() {
    let mut story = Story::new(&[]);
    for (time, cpu, known) in [
        (10, 0, Known::LockBegin { lock: 1, flags: SPIN }),
        (20, 1, Known::LockBegin { lock: 1, flags: SPIN }),
        (25, 0, Known::LockEnd { lock: 1, result: 0 }),
        (50, 1, Known::LockEnd { lock: 1, result: 0 }),
    ] {
        story.at((time, cpu), (Context::Softirq, 0), known);
    }
    let answer = story.answer(100);
    let times = answer.kernel.locks[0].times.unwrap();
    assert_eq!((times.count, times.least_ns, times.most_ns), (2, 15, 30));
    assert_eq!(answer.kernel.locks[0].waiters[0].comm, "[soft interrupt]");
}

#[test]
fn waits_over_a_loss_are_not_measured_and_those_at_the_end_are_told_apart() {
    let mut story = Story::new(&[(8, 8), (9, 9)]);
    story.begin(100, 7, 1, RWSEM_READ);
    story.enter(100, 8, 0x10, WAIT);
    story.lost(150);
    story.end(200, 7, 1, 0);
    story.exit(200, 8, 0);
    // An end that was there before.
    story.end(210, 7, 2, 0);
    story.exit(215, 9, 0);
    // The first of these has ended unseen, as its thread waits for something else.
    story.begin(220, 7, 3, RWSEM_READ);
    story.begin(230, 7, 3, RWSEM_READ);
    story.enter(240, 8, 0x10, WAIT);
    story.enter(250, 9, 0x10, WAIT);
    let mut other = story.0.clone();
    let answer = story.answer(300);
    assert_eq!((answer.kernel.unmatched.unwrap(), answer.kernel.unfinished.unwrap()), (2, 1));
    assert_eq!((answer.futexes.unmatched.unwrap(), answer.futexes.unfinished.unwrap()), (2, 1));
    let [lock] = &answer.kernel.locks[..] else { panic!("{:?}", answer.kernel.locks) };
    assert_eq!((lock.times.unwrap().count, lock.open.unwrap(), lock.open_ns.unwrap()), (0, 1, 70));
    let open: Vec<_> =
        answer.futexes.locks.iter().map(|of| (of.process, of.open.unwrap(), of.open_ns.unwrap())).collect();
    assert_eq!(open, [(Some(8), 1, 60), (Some(9), 1, 50)]);
    assert_eq!(answer.threads, []);
    // What is lost at the very end ends nothing that is known.
    other.lost(At { time: 290, cpu: 0 });
    let answer = Story(other).answer(300);
    assert_eq!(
        (answer.kernel.locks.len(), answer.kernel.unfinished.unwrap(), answer.futexes.unfinished.unwrap()),
        (0, 2, 3)
    );
}

#[test]
fn a_thread_id_that_is_used_again_waits_for_nothing() {
    let mut story = Story::new(&[(7, 5), (5, 5)]);
    story.begin(100, 7, 1, MUTEX);
    story.enter(110, 7, 0x10, WAIT);
    story.of_thread(150, 2, Known::Ends { tid: 7 });
    story.new_task(160, 2, 7, false);
    story.end(200, 7, 1, 0);
    story.exit(201, 7, 0);
    story.call((210, 220), 7, (0x10, WAIT), 0);
    story.call((230, 260), 5, (0x10, WAIT), 0);
    let answer = story.answer(300);
    assert_eq!((answer.kernel.unmatched.unwrap(), answer.kernel.unfinished.unwrap()), (1, 1));
    assert_eq!((answer.futexes.unmatched.unwrap(), answer.futexes.unfinished.unwrap()), (1, 1));
    let told: Vec<_> = (answer.futexes.locks.iter())
        .map(|of| (of.process, of.comm.as_str(), of.times.unwrap().total_ns, of.waiters[0].tid))
        .collect();
    assert_eq!(told, [(Some(5), "", 30, 5), (Some(7), "child", 10, 7)]);
}

#[test]
fn the_same_address_is_another_lock_in_another_process() {
    let mut story = Story::new(&[(1, 1), (2, 1), (3, 3)]);
    // A thread of the first process, a process of its own, and one of which nothing is known.
    story.new_task(10, 2, 4, true);
    story.new_task(11, 2, 5, false);
    story.new_task(12, 5, 6, true);
    story.new_task(13, 99, 98, true);
    for (nth, tid) in [1, 2, 3, 4, 5, 6, 98, 99].into_iter().enumerate() {
        let from = 100 + nth as u64 * 100;
        story.call((from, from + 10 + u64::from(tid)), tid, (0x10, WAIT), 0);
    }
    let answer = story.answer(2000);
    let mut told: Vec<_> = (answer.futexes.locks.iter())
        .map(|of| {
            (of.process, of.times.unwrap().count, of.waiters.iter().map(|of| of.tid).collect::<Vec<_>>())
        })
        .collect();
    told.sort();
    let expected = [
        (None, 2, vec![99, 98]),
        (Some(1), 3, vec![4, 2, 1]),
        (Some(3), 1, vec![3]),
        (Some(5), 2, vec![6, 5]),
    ];
    assert_eq!(told, expected);
    assert_eq!(answer.futexes.threads_without_process, 2);
    assert!(answer.futexes.locks.iter().all(|of| !of.is_shared));
}

#[test]
fn futexes_are_named_by_what_their_processes_have_mapped() {
    let map = |start, end, path: &str| tracedat::option::ProcMap { start, end, path: path.to_owned() };
    let of = |pid, maps| ProcMaps { pid, name: String::new(), maps };
    let lib = map(0x7000, 0x9000, "/lib/libc.so.6");
    let mut story = Story::new(&[(7, 7), (8, 7), (9, 9), (20, 20)]);
    story.0 = story.0.with_mappings([
        of(7, vec![lib.clone(), map(0x1000, 0x2000, "/bin/a b"), map(0x3000, 0x5000, "[heap]")]),
        of(20, vec![lib]),
    ]);
    for (time, tid, address) in
        [(1, 7, 0x1000), (2, 8, 0x1fff), (3, 8, 0x2000), (4, 7, 0x8010), (5, 7, 0x9000), (6, 9, 0x7000)]
    {
        story.call((10 * time, 10 * time + 5), tid, (address, WAIT), 0);
    }
    story.call((100, 110), 20, (0x7004, WAIT), 0);
    story.of_thread(120, 20, Known::Exec { tid: 20, from: None });
    story.call((130, 140), 20, (0x7004, WAIT), 0);
    let answer = story.answer(400);
    let mut told: Vec<_> = (answer.futexes.locks.iter())
        .map(|lock| (lock.process.unwrap(), &*lock.address, lock.mapping.as_deref()))
        .collect();
    told.sort_unstable();
    let expected = [
        (7, "0x1000", Some("/bin/a b")),
        (7, "0x1fff", Some("/bin/a b+0xfff")),
        (7, "0x2000", None),
        (7, "0x8010", Some("/lib/libc.so.6+0x1010")),
        (7, "0x9000", None),
        (9, "0x7000", None),
        (20, "0x7004", None),
        (20, "0x7004", Some("/lib/libc.so.6+0x4")),
    ];
    assert_eq!(told, expected);
    assert!(answer.futexes.worst.iter().any(|wait| wait.mapping.as_deref() == Some("/bin/a b")));
}

#[test]
fn waits_end_in_different_ways() {
    let mut story = Story::new(&[(1, 1), (2, 1)]);
    for (nth, result) in [0, -11, -110, -4, -512, -516, -22].into_iter().enumerate() {
        let from = 100 * (nth as u64 + 1);
        story.call((from, from + 10), 1, (0x10, WAIT_BITSET_CLOCK), result);
    }
    // Of neither kind, and of another call.
    story.call((900, 990), 1, (0x10, 8), 0);
    story.of_thread(
        1000,
        2,
        Known::CallEnter { number: READ, arguments: [Some(0x10), Some(0), None], path: None, is_raw: true },
    );
    story.of_thread(1010, 2, Known::CallExit { number: READ, result: 0, is_raw: true });
    story.call((1100, 1101), 2, (0x10, SHARED_WAIT), -11);
    let answer = story.answer(2000);
    let [futex] = &answer.futexes.locks[..] else { panic!("{:?}", answer.futexes.locks) };
    assert_eq!((futex.times.unwrap().count, futex.times.unwrap().total_ns, futex.is_shared), (8, 71, true));
    let results = FutexResults {
        woken: Some(1),
        changed: Some(2),
        timed_out: Some(1),
        interrupted: Some(3),
        failed: Some(1),
    };
    assert_eq!(futex.results, results);
    assert_eq!(futex.waiters.iter().map(|of| (of.tid, of.times.count)).collect::<Vec<_>>(), [(1, 7), (2, 1)]);
    assert_eq!(answer.futexes.worst.iter().map(|wait| wait.wait_ns).collect::<Vec<_>>(), [10, 1]);
}

#[test]
fn who_wakes_is_who_was_seen_to_or_the_only_one_that_called_to() {
    let mut story = Story::new(&[(1, 1), (2, 1), (3, 1), (4, 1), (5, 5)]);
    // Of one caller.
    story.enter(100, 1, 0x10, WAIT);
    // Another process, another address.
    story.call((110, 111), 5, (0x10, WAKE), 0);
    story.call((112, 113), 3, (0x20, WAKE), 0);
    story.call((150, 155), 2, (0x10, WAKE), 1);
    story.exit(160, 1, 0);
    // Of two.
    story.enter(200, 3, 0x30, WAIT);
    story.call((210, 211), 2, (0x30, WAKE), 0);
    story.call((220, 221), 4, (0x30, WAKE), 1);
    story.exit(225, 3, 0);
    // Of two, but one of them was seen to.
    story.enter(300, 4, 0x40, WAIT);
    story.enter(310, 2, 0x40, WAKE);
    story.of_thread(311, 2, Known::Wakeup(Wakeup { tid: 4, comm: b"four", is_new: false }));
    story.at((312, 1), (Context::Irq, 0), Known::Wakeup(Wakeup { tid: 4, comm: b"four", is_new: false }));
    story.exit(313, 2, 1);
    story.call((314, 315), 3, (0x40, WAKE), 0);
    story.exit(390, 4, 0);
    // One that called before the wait began, and a wait whose time was over.
    story.enter(400, 3, 0x50, WAIT);
    story.call((401, 402), 2, (0x50, WAKE), 0);
    story.enter(410, 1, 0x50, WAIT);
    story.exit(450, 1, 0);
    story.exit(460, 3, -110);
    let answer = story.answer(500);
    let mut worst: Vec<_> = (answer.futexes.worst.iter())
        .map(|wait| (&*wait.address, wait.tid, wait.wait_ns, wait.result, wait.waker_tid))
        .collect();
    worst.sort_by_key(|(address, tid, ..)| (*address, *tid));
    let expected = [
        ("0x10", 1, 60, FutexResult::Woken, Some(2)),
        ("0x30", 3, 25, FutexResult::Woken, None),
        ("0x40", 4, 90, FutexResult::Woken, Some(2)),
        ("0x50", 1, 40, FutexResult::Woken, None),
        ("0x50", 3, 60, FutexResult::TimedOut, None),
    ];
    assert_eq!(worst, expected);
    let lock = answer.futexes.locks.iter().find(|of| of.address == "0x30").unwrap();
    let wakers: Vec<_> = lock.wakers.iter().map(|of| (of.tid, of.calls, of.woken.unwrap())).collect();
    assert_eq!(wakers, [(4, 1, 1), (2, 1, 0)]);
    let two = answer.threads.iter().find(|of| of.tid == Some(2)).unwrap();
    assert_eq!((two.wakes.unwrap(), two.process, two.futexes.unwrap().count), (4, Some(1), 0));
}

#[test]
fn two_events_of_one_call_are_one_wait() {
    let mut story = Story::new(&[(1, 1)]);
    for time in [10, 100] {
        let enter = |is_raw| Known::CallEnter {
            number: FUTEX,
            arguments: [Some(0x10), Some(WAIT), None],
            path: None,
            is_raw,
        };
        let exit = |is_raw| Known::CallExit { number: FUTEX, result: 0, is_raw };
        story.of_thread(time, 1, enter(true));
        story.of_thread(time + 1, 1, enter(false));
        story.of_thread(time + 5, 1, exit(false));
        story.of_thread(time + 6, 1, exit(true));
    }
    let answer = story.answer(200);
    let times = answer.futexes.locks[0].times.unwrap();
    assert_eq!((times.count, times.total_ns), (2, 10));
    assert_eq!((answer.futexes.unmatched.unwrap(), answer.futexes.unfinished.unwrap()), (0, 0));
}

#[test]
fn what_is_asked_about() {
    let names = vec!["t*".to_owned()];
    let mut story = Story::of(Scope { from: Some(100), names, ..Scope::default() }, &[(1, 1), (2, 1)]);
    story.of_thread(1, 1, Known::Renamed { tid: 1, comm: Some(b"one"), before: b"" });
    story.of_thread(1, 2, Known::Renamed { tid: 2, comm: Some(b"two"), before: b"" });
    story.call((10, 90), 2, (0x10, WAIT), 0);
    // Of what ends in the time that is asked about, what is in it.
    story.call((95, 105), 2, (0x10, WAIT), 0);
    story.call((110, 190), 1, (0x10, WAIT), 0);
    story.call((191, 192), 1, (0x10, WAKE), 1);
    story.call((191, 192), 1, (0x20, WAKE), 1);
    for tid in [1, 2] {
        story.begin(200, tid, 1, MUTEX);
        story.end(210, tid, 1, 0);
    }
    story.at((220, 0), (Context::Irq, 2), Known::LockBegin { lock: 1, flags: SPIN });
    story.at((230, 0), (Context::Irq, 2), Known::LockEnd { lock: 1, result: 0 });
    let answer = story.answer(300);
    let [futex] = &answer.futexes.locks[..] else { panic!("{:?}", answer.futexes.locks) };
    assert_eq!((futex.times.unwrap().count, futex.times.unwrap().total_ns, futex.wakers[0].tid), (1, 5, 1));
    let [lock] = &answer.kernel.locks[..] else { panic!("{:?}", answer.kernel.locks) };
    assert_eq!((lock.times.unwrap().count, lock.waiters[0].tid), (1, Some(2)));
    assert_eq!(answer.threads.iter().map(|of| of.tid).collect::<Vec<_>>(), [Some(2)]);

    let cpus = Some([1].into());
    let mut story = Story::of(Scope { cpus, ..Scope::default() }, &[]);
    story.at((10, 0), (Context::Thread, 1), Known::LockBegin { lock: 1, flags: MUTEX });
    story.at((20, 1), (Context::Thread, 1), Known::LockEnd { lock: 1, result: 0 });
    story.at((30, 1), (Context::Thread, 1), Known::LockBegin { lock: 1, flags: MUTEX });
    story.at((50, 0), (Context::Thread, 1), Known::LockEnd { lock: 1, result: 0 });
    story.at((60, 1), (Context::Thread, 1), Known::LockBegin { lock: 1, flags: MUTEX });
    let answer = story.answer(100);
    let lock = &answer.kernel.locks[0];
    assert_eq!((lock.times.unwrap().count, lock.times.unwrap().total_ns, lock.open.unwrap()), (1, 10, 0));
}

#[test]
fn a_new_count_has_what_goes_on() {
    let mut story = Story::new(&[(1, 1), (2, 1)]);
    story.of_thread(1, 3, Known::Ends { tid: 3 });
    story.call((10, 20), 2, (0x10, WAIT), 0);
    story.of_thread(30, 9, Known::Renamed { tid: 9, comm: Some(b"gone"), before: b"" });
    story.of_thread(31, 9, Known::Ends { tid: 9 });
    story.enter(40, 1, 0x10, WAIT);
    story.begin(50, 2, 1, MUTEX);
    let of = story.0.awaits_stack().unwrap();
    story.0.restart(100);
    // The stack of one that came before is not that of another.
    story.0.stack(of, Frames { is_kernel: true, addresses: &mut [3].into_iter() });
    story.call((110, 111), 2, (0x10, WAKE), 1);
    story.exit(120, 1, 0);
    story.end(130, 2, 1, 0);
    let answer = story.answer(200);
    let futex = &answer.futexes.locks[0];
    assert_eq!((futex.times.unwrap().count, futex.times.unwrap().total_ns, futex.waiters[0].tid), (1, 20, 1));
    assert_eq!(answer.futexes.worst[0].waker_tid, Some(2));
    let lock = &answer.kernel.locks[0];
    assert_eq!(
        (lock.times.unwrap().count, lock.times.unwrap().total_ns, lock.waiters[0].tid),
        (1, 30, Some(2))
    );
    assert!(!answer.kernel.has_stacks);
}

#[test]
fn hostile_numbers_of_locks_and_depths_are_bounded() {
    let mut story = Story::new(&[(1, 1)]);
    for number in 0..200_000 {
        story.begin(number, 1, 1 << 40 | number, SPIN);
        story.end(number, 1, 1 << 40 | number, 0);
        story.call((number, number), 1, (number as i64, WAIT), 0);
        story.call((number, number), 1, (number as i64, WAKE), 0);
    }
    let deep = 100;
    for number in 0..deep {
        story.begin(200_000, 1, number, SPIN);
    }
    let answer = story.answer(200_000);
    let (kernel, futexes) = (answer.kernel.locks.len() as u64, answer.futexes.locks.len() as u64);
    assert!(kernel < 200_000 && futexes < 200_000, "{kernel} {futexes}");
    // Waits that are open at the end have no room either.
    let open = kernel::DEPTH as u64;
    assert_eq!(answer.left_out, (200_000 + open - kernel) + 2 * (200_000 - futexes));
    assert_eq!(answer.kernel.unfinished.unwrap(), deep - open);
    // What is no futex's call, without arguments, or of nobody is not counted.
    let mut story = Story::new(&[]);
    let known =
        Known::CallEnter { number: FUTEX, arguments: [None, Some(WAIT), None], path: None, is_raw: true };
    story.of_thread(1, 1, known);
    for number in [i64::MIN, -1, i64::MAX] {
        let known = Known::CallExit { number, result: 0, is_raw: true };
        story.of_thread(2, 1, known);
    }
    story.0.look(At { time: 3, cpu: 0 }, &Event::whole(None, Context::Thread, known));
    let none = Event::whole(None, Context::Thread, Known::LockBegin { lock: 1, flags: 0 });
    story.0.look(At { time: 4, cpu: 0 }, &none);
    let answer = story.answer(10);
    let counts = [answer.kernel.unmatched, answer.kernel.unfinished, answer.futexes.unmatched];
    assert_eq!((counts, answer.futexes.unfinished), ([Some(0); 3], Some(0)));
    assert!(answer.kernel.locks.is_empty() && answer.futexes.locks.is_empty() && answer.threads.is_empty());
}

#[test]
fn callers_of_futexes_are_functions_of_processes() {
    let mut story = Story::new(&[(7, 7), (8, 7), (9, 9)]);
    // Two places of one function; the kernel's part of the stack is no part of it, and 0x99 has no name.
    for (begin, tid, place) in [(100, 7, 0x11), (200, 8, 0x12), (300, 9, 0x12)] {
        story.enter(begin, tid, 0x1000, WAIT);
        story.stack_of(true, &[1]);
        story.stack_of(false, &[0x99, 0x10]);
        story.stack_of(false, &[place, 0x1]);
        story.exit(begin + 10, tid, 0);
    }
    // One without a stack, one whose stack is of waiting alone, and one that wakes.
    story.call((400, 420), 7, (0x1000, WAIT), 0);
    story.enter(500, 7, 0x1000, WAIT);
    story.stack_of(false, &[0x10]);
    story.exit(540, 7, 0);
    story.enter(600, 7, 0x1000, WAKE);
    assert_eq!(story.0.awaits_stack(), None);
    story.exit(610, 7, 1);
    let answer = story.answer(1000).futexes;
    let callers: Vec<_> = (answer.callers.iter())
        .map(|of| (of.function.as_deref(), of.process, of.times.count, of.times.total_ns))
        .collect();
    let expected = [(None, Some(7), 2, 60), (Some("take"), Some(7), 2, 20), (Some("take"), Some(9), 1, 10)];
    assert_eq!((&*callers, answer.has_stacks), (&expected[..], true));

    let mut story = Story::new(&[(7, 7)]);
    story.call((400, 420), 7, (0x1000, WAIT), 0);
    let answer = story.answer(1000).futexes;
    assert_eq!((answer.callers.len(), answer.has_stacks), (1, false));
}
