//! What is told of locks.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use super::{
    FutexResult, LockKind, Locks,
    caller::{caller, caller_in_process, lock_name},
    futex::{Caller, Place, Waited},
    kernel::{Key, Told},
    process::Process,
};
use crate::answers::who::Who;
use crate::answers::{Names, Tid, Times, TimesTold};

/// Waits that are named: the longest ones.
const WORST: usize = 10;

/// Who waited for locks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LocksAnswer {
    /// Locks of the kernel.
    pub kernel: KernelLocksAnswer,
    /// Locks of processes.
    pub futexes: FutexesAnswer,
    /// Threads and interrupts, by the time that they waited.
    pub threads: Vec<LocksOfThread>,
    /// Waits, wakes and stacks that were left out because there were too many locks, threads or stacks.
    pub left_out: u64,
}

/// Waits for locks of the kernel. What is `None` here and below was not recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelLocksAnswer {
    /// By lock and what it is wanted for, by the time that was waited.
    pub locks: Vec<KernelLock>,
    /// By the function that waits, by the time that was waited.
    pub callers: Vec<KernelLockCaller>,
    /// Whether there were stacks, without which no function is known.
    pub has_stacks: bool,
    /// Ends without a beginning: of waits that were there before, and where events were lost.
    pub unmatched: Option<u64>,
    /// Beginnings without an end, where events were lost. Waits that go on at the end are none of them.
    pub unfinished: Option<u64>,
}

/// A lock of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelLock {
    /// Its address, in hexadecimal.
    pub address: String,
    /// The variable that it is or is a part of; `None` if it is one of an object, or if the recording does
    /// not have its name.
    pub name: Option<String>,
    /// Its kind, and what it is wanted for.
    pub kind: LockKind,
    /// From the beginning of waits to their end.
    pub times: Option<TimesTold>,
    /// How many ended without the lock: a signal came, or the time was over.
    pub failed: Option<u64>,
    /// How many go on at the end; not in `times`.
    pub open: Option<u64>,
    /// For how long they have.
    pub open_ns: Option<u64>,
    /// Who waited, by the time.
    pub waiters: Vec<KernelLockWaiter>,
}

/// One that waits for a lock of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelLockWaiter {
    /// Its name, or `[interrupt]`, `[soft interrupt]`, `[unknown]`.
    pub comm: String,
    /// Its id, if it is a thread.
    pub tid: Option<Tid>,
    /// From the beginning of its waits to their end.
    pub times: TimesTold,
}

/// A function of the kernel that waits for locks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelLockCaller {
    /// The innermost function that is not of locking itself. `None` where stack or name were not recorded.
    pub function: Option<String>,
    /// The kind of the locks.
    pub kind: LockKind,
    /// From the beginning of waits to their end.
    pub times: TimesTold,
    /// How many ended without the lock.
    pub failed: u64,
}

/// Waits for locks of processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FutexesAnswer {
    /// By process and address, by the time that was waited.
    pub locks: Vec<Futex>,
    /// By process and the function that waits, by the time that was waited.
    pub callers: Vec<FutexCaller>,
    /// Whether there were stacks of processes, without which no function is known.
    pub has_stacks: bool,
    /// The longest waits, no more than one of a thread for a lock.
    pub worst: Vec<FutexWait>,
    /// Threads whose process is not known. Their locks are told apart by address alone, and can be several.
    pub threads_without_process: u64,
    /// Ends without a beginning: of calls that were there before, and where events were lost.
    pub unmatched: Option<u64>,
    /// Waits without an end, where events were lost. Those that go on at the end are none of them.
    pub unfinished: Option<u64>,
}

/// A futex.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Futex {
    /// The process, by the id of its first thread; `None` if it is not known.
    pub process: Option<Tid>,
    /// Its name; empty if that is not known.
    pub comm: String,
    /// The address in the process, in hexadecimal.
    pub address: String,
    /// What the file says that the process has mapped there, and the offset in it:
    /// `/usr/lib/libc.so.6+0x1d3c20`, `[heap]+0x2a0`. `None` if that is not known.
    pub mapping: Option<String>,
    /// Whether it was used without `FUTEX_PRIVATE_FLAG`: other processes may use it too, at addresses of
    /// their own.
    pub is_shared: bool,
    /// From entry to exit of calls that wait.
    pub times: Option<TimesTold>,
    /// How the waits ended.
    #[serde(flatten)]
    pub results: FutexResults,
    /// Waits that go on at the end; not in `times`.
    pub open: Option<u64>,
    /// For how long they have.
    pub open_ns: Option<u64>,
    /// Who waits, by the time.
    pub waiters: Vec<FutexWaiter>,
    /// Who wakes, by how many were woken, whichever threads are asked about.
    pub wakers: Vec<FutexWaker>,
}

/// A function of a process that waits for futexes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FutexCaller {
    /// The innermost function with a name that is not of waiting itself. `None` where stack or name were not
    /// recorded.
    pub function: Option<String>,
    /// The process, as in [`Futex`].
    pub process: Option<Tid>,
    /// The process's name; empty if that is not known.
    pub comm: String,
    /// From entry to exit of calls that wait.
    pub times: TimesTold,
}

/// How waits for a futex ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FutexResults {
    /// Woken, or with the lock.
    pub woken: Option<u64>,
    /// Without a wait, as the value had changed: `EAGAIN`.
    pub changed: Option<u64>,
    /// As the time was over: `ETIMEDOUT`.
    pub timed_out: Option<u64>,
    /// By a signal: `EINTR`, or the call is restarted.
    pub interrupted: Option<u64>,
    /// With another error.
    pub failed: Option<u64>,
}

/// A thread that waits for a futex.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FutexWaiter {
    /// Its id.
    pub tid: Tid,
    /// Its last name.
    pub comm: String,
    /// From entry to exit of its calls that wait.
    pub times: TimesTold,
    /// How they ended.
    #[serde(flatten)]
    pub results: FutexResults,
}

/// A thread that wakes others at a futex.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FutexWaker {
    /// Its id.
    pub tid: Tid,
    /// Its last name.
    pub comm: String,
    /// How many of its calls are to wake others.
    pub calls: u64,
    /// How many threads they say that they woke, or had wait for another futex.
    pub woken: Option<u64>,
}

/// A wait for a futex.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FutexWait {
    /// Who waited.
    pub tid: Tid,
    /// Its last name.
    pub comm: String,
    /// The process, as in [`Futex`].
    pub process: Option<Tid>,
    /// The address, as in [`Futex`].
    pub address: String,
    /// The mapping, as in [`Futex`].
    pub mapping: Option<String>,
    /// For how long.
    pub wait_ns: u64,
    /// When it ended.
    pub at_ns: u64,
    /// How.
    pub result: FutexResult,
    /// Who woke it: by its wakeup, or else the only one that called to wake somebody there meanwhile. `None`
    /// if that is not known, or if it was not woken.
    pub waker: Option<String>,
    /// Its id, if it is a thread.
    pub waker_tid: Option<Tid>,
}

/// What a thread or an interrupt waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LocksOfThread {
    /// Its name, or `[interrupt]`, `[soft interrupt]`, `[unknown]`.
    pub comm: String,
    /// Its id, if it is a thread.
    pub tid: Option<Tid>,
    /// Its process, if that is known.
    pub process: Option<Tid>,
    /// Its waits for locks of the kernel. One that is inside of another is in both.
    pub kernel: Option<TimesTold>,
    /// Its waits for locks of its process.
    pub futexes: Option<TimesTold>,
    /// Calls to wake others.
    pub wakes: Option<u64>,
}

#[derive(Debug, Default)]
struct OfWho {
    kernel: Times,
    futexes: Times,
    wakes: u64,
}

impl LocksAnswer {
    pub(super) fn of(mut locks: Locks, end: u64, names: &Names<'_>) -> Self {
        locks.close(end);
        let evidence = &locks.evidence;
        let knows = Knows {
            kernel: evidence.has_all(&["lock:contention_begin", "lock:contention_end"]),
            futexes: evidence.has_calls("futex"),
        };
        let mut teller = Teller { locks: &locks, names, knows, threads: BTreeMap::new() };
        let (kernel, futexes) = (teller.kernel(), teller.futexes());
        let left_out = locks.kernel.left_out
            + locks.parts.left_out()
            + locks.futexes.left_out
            + locks.threads.left_out();
        Self { kernel, futexes, threads: teller.threads(), left_out }
    }
}

/// What is known of locks, by the events that there are.
#[derive(Clone, Copy, Debug)]
struct Knows {
    /// Waits for locks of the kernel, from beginning to end.
    kernel: bool,
    /// Calls of futexes, from beginning to end.
    futexes: bool,
}

/// Sums up what is asked about.
struct Teller<'t, 'n> {
    locks: &'t Locks,
    names: &'t Names<'n>,
    knows: Knows,
    threads: BTreeMap<Who, OfWho>,
}

/// The waits for a lock of the kernel.
#[derive(Default)]
struct OfLock {
    sum: Told,
    waiters: BTreeMap<Who, Times>,
}

/// What happens at a futex.
#[derive(Default)]
struct OfFutex {
    sum: Waited,
    is_asked: bool,
    waiters: Vec<FutexWaiter>,
    wakers: Vec<FutexWaker>,
}

impl Teller<'_, '_> {
    fn is_asked(&self, who: Who) -> bool {
        who.is_asked(&self.locks.scope, &self.locks.threads, self.names)
    }

    fn told(&self, who: Who) -> (String, Option<Tid>) {
        who.told(&self.locks.threads, self.names)
    }

    fn kernel(&mut self) -> KernelLocksAnswer {
        let of = &self.locks.kernel;
        let mut locks: BTreeMap<(u64, LockKind), OfLock> = BTreeMap::new();
        let mut callers: BTreeMap<(Option<Cow<'_, str>>, LockKind), Told> = BTreeMap::new();
        let mut has_stacks = false;
        for (Key { lock, kind, who, stack }, told) in &of.told {
            if !self.is_asked(*who) {
                continue;
            }
            let of_lock = locks.entry((*lock, *kind)).or_default();
            of_lock.sum.merge(told);
            of_lock.waiters.entry(*who).or_default().merge(&told.times);
            self.threads.entry(*who).or_default().kernel.merge(&told.times);
            has_stacks |= stack.is_some();
            let function = caller(self.names.symbols, self.locks.parts.of(*stack));
            callers.entry((function, *kind)).or_default().merge(told);
        }
        let mut locks: Vec<KernelLock> =
            locks.into_iter().map(|((address, kind), of)| self.kernel_lock(address, kind, of)).collect();
        locks.sort_by_key(|lock| Reverse(total(lock.times, lock.open_ns)));
        let mut callers: Vec<KernelLockCaller> = (callers.into_iter())
            .filter(|(_, told)| told.times.count() != 0)
            .map(|((function, kind), told)| KernelLockCaller {
                function: function.map(Cow::into_owned),
                kind,
                times: told.times.told(),
                failed: told.failed,
            })
            .collect();
        callers.sort_by_key(|caller| Reverse(caller.times.total_ns));
        let of_both = |count: u64| self.knows.kernel.then_some(count);
        let [unmatched, unfinished] = [of.unmatched, of.unfinished].map(of_both);
        KernelLocksAnswer { locks, callers, has_stacks, unmatched, unfinished }
    }

    fn kernel_lock(&self, address: u64, kind: LockKind, of: OfLock) -> KernelLock {
        let waiters = of.waiters.into_iter().filter(|(_, times)| times.count() != 0);
        let mut waiters: Vec<KernelLockWaiter> = waiters
            .map(|(who, times)| {
                let (comm, tid) = self.told(who);
                KernelLockWaiter { comm, tid, times: times.told() }
            })
            .collect();
        waiters.sort_by_key(|waiter| Reverse(waiter.times.total_ns));
        KernelLock {
            address: hexadecimal(address),
            name: lock_name(self.names.symbols, address),
            kind,
            times: self.knows.kernel.then(|| of.sum.times.told()),
            failed: self.knows.kernel.then_some(of.sum.failed),
            open: self.knows.kernel.then_some(of.sum.open),
            open_ns: self.knows.kernel.then_some(of.sum.open_time),
            waiters,
        }
    }

    fn futexes(&mut self) -> FutexesAnswer {
        let of = &self.locks.futexes;
        let mut futexes: BTreeMap<Place, OfFutex> = BTreeMap::new();
        let mut worst = Vec::new();
        let mut without_process = HashSet::new();
        for ((place, index), waited) in &of.waits {
            let Some(thread) = self.locks.threads.get(*index) else { continue };
            let who = Who::Thread { tid: thread.tid, index: *index };
            if !self.is_asked(who) {
                continue;
            }
            if place.process.is_none() {
                without_process.insert(*index);
            }
            let comm = self.names.thread_text(thread.tid, &thread.name);
            worst.extend(self.worst(*place, (thread.tid, &comm), waited));
            self.threads.entry(who).or_default().futexes.merge(&waited.times);
            let futex = futexes.entry(*place).or_default();
            futex.is_asked = true;
            futex.sum.merge(waited);
            if waited.times.count() != 0 {
                let (times, results) = (waited.times.told(), FutexResults::of(waited, true));
                futex.waiters.push(FutexWaiter { tid: thread.tid, comm, times, results });
            }
        }
        for ((place, index), woke) in &of.wakes {
            let who = Who::Thread { tid: woke.tid, index: *index };
            let futex = futexes.entry(*place).or_default();
            futex.sum.is_shared |= woke.is_shared;
            let (comm, _) = self.told(who);
            let woken = self.knows.futexes.then_some(woke.woken);
            futex.wakers.push(FutexWaker { tid: woke.tid, comm, calls: woke.calls, woken });
            if self.is_asked(who) {
                futex.is_asked = true;
                self.threads.entry(who).or_default().wakes += woke.calls;
                if place.process.is_none() {
                    without_process.insert(*index);
                }
            }
        }
        let names = self.process_names();
        let (callers, has_stacks) = self.futex_callers(&names);
        let asked = futexes.into_iter().filter(|(_, futex)| futex.is_asked);
        let mut locks: Vec<Futex> = asked.map(|(place, of)| self.futex(place, of, &names)).collect();
        locks.sort_by_key(|lock| Reverse(total(lock.times, lock.open_ns)));
        worst.sort_by_key(|wait| (Reverse(wait.wait_ns), wait.at_ns));
        worst.truncate(WORST);
        FutexesAnswer {
            locks,
            callers,
            has_stacks,
            worst,
            threads_without_process: without_process.len() as u64,
            unmatched: self.knows.futexes.then_some(of.unmatched),
            unfinished: self.knows.futexes.then_some(of.unfinished),
        }
    }

    /// Functions that wait for futexes, and whether there are stacks.
    fn futex_callers(&self, names: &HashMap<Tid, &[u8]>) -> (Vec<FutexCaller>, bool) {
        let (of, mut has_stacks) = (&self.locks.futexes, false);
        let mut callers: BTreeMap<(Option<Cow<'_, str>>, Option<Process>), Times> = BTreeMap::new();
        for (Caller { process, stack, index }, times) in &of.callers {
            let Some(thread) = self.locks.threads.get(*index) else { continue };
            if !self.is_asked(Who::Thread { tid: thread.tid, index: *index }) {
                continue;
            }
            has_stacks |= stack.is_some();
            let function = caller_in_process(self.names.symbols, self.locks.parts.of(*stack));
            callers.entry((function, *process)).or_default().merge(times);
        }
        let mut callers: Vec<FutexCaller> = (callers.into_iter())
            .map(|((function, process), times)| FutexCaller {
                function: function.map(Cow::into_owned),
                process: process.map(|process| process.pid),
                comm: self.process_name(process, names),
                times: times.told(),
            })
            .collect();
        callers.sort_by_key(|caller| Reverse(caller.times.total_ns));
        (callers, has_stacks)
    }

    /// The name of a process; empty if it is not known.
    fn process_name(&self, process: Option<Process>, names: &HashMap<Tid, &[u8]>) -> String {
        let name = |pid| self.names.thread_text(pid, names.get(&pid).copied().unwrap_or_default());
        process.map(|process| name(process.pid)).unwrap_or_default()
    }

    /// The last names of threads, by their ids.
    fn process_names(&self) -> HashMap<Tid, &[u8]> {
        self.locks.threads.iter().map(|thread| (thread.tid, &*thread.name)).collect()
    }

    fn futex(&self, place: Place, mut of: OfFutex, names: &HashMap<Tid, &[u8]>) -> Futex {
        of.waiters.sort_by_key(|waiter| Reverse(waiter.times.total_ns));
        of.wakers.sort_by_key(|waker| Reverse((waker.woken, waker.calls)));
        Futex {
            process: place.process.map(|process| process.pid),
            comm: self.process_name(place.process, names),
            address: hexadecimal(place.address),
            mapping: self.locks.mappings.of(place),
            is_shared: of.sum.is_shared,
            times: self.knows.futexes.then(|| of.sum.times.told()),
            results: FutexResults::of(&of.sum, self.knows.futexes),
            open: self.knows.futexes.then_some(of.sum.open),
            open_ns: self.knows.futexes.then_some(of.sum.open_time),
            waiters: of.waiters,
            wakers: of.wakers,
        }
    }

    fn worst(&self, place: Place, (tid, comm): (Tid, &str), waited: &Waited) -> Option<FutexWait> {
        let longest = waited.longest?;
        let (waker, waker_tid) = longest.waker.map(|who| self.told(who)).unzip();
        Some(FutexWait {
            tid,
            comm: comm.to_owned(),
            process: place.process.map(|process| process.pid),
            address: hexadecimal(place.address),
            mapping: self.locks.mappings.of(place),
            wait_ns: longest.time,
            at_ns: longest.at,
            result: longest.result,
            waker,
            waker_tid: waker_tid.flatten(),
        })
    }

    fn threads(self) -> Vec<LocksOfThread> {
        let process = |who: Who| match who {
            Who::Thread { index, .. } => Some(self.locks.threads.get(index)?.of.process?.pid),
            _ => None,
        };
        let mut threads: Vec<LocksOfThread> = (self.threads.iter())
            .map(|(who, of)| {
                let (comm, tid) = self.told(*who);
                LocksOfThread {
                    comm,
                    tid,
                    process: process(*who),
                    kernel: self.knows.kernel.then(|| of.kernel.told()),
                    futexes: self.knows.futexes.then(|| of.futexes.told()),
                    wakes: self.knows.futexes.then_some(of.wakes),
                }
            })
            .filter(|of| {
                let waits = [of.kernel, of.futexes].into_iter().flatten().any(|times| times.count != 0);
                waits || of.wakes.is_some_and(|wakes| wakes != 0)
            })
            .collect();
        threads.sort_by_key(|of| Reverse(total(of.kernel, of.futexes.map(|times| times.total_ns))));
        threads
    }
}

impl FutexResults {
    fn of(waited: &Waited, is_known: bool) -> Self {
        let [woken, changed, timed_out, interrupted, failed] =
            waited.results.map(|count| is_known.then_some(count));
        Self { woken, changed, timed_out, interrupted, failed }
    }
}

/// What is known of two times, together.
fn total(times: Option<TimesTold>, more: Option<u64>) -> u64 {
    times.map_or(0, |times| times.total_ns).saturating_add(more.unwrap_or(0))
}

fn hexadecimal(address: u64) -> String {
    format!("{address:#x}")
}
