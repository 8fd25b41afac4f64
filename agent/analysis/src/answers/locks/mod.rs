//! What threads wait for that others hold: locks of the kernel, and futexes, of which locks of processes are
//! made.
//!
//! | file | subject |
//! |---|---|
//! | `kind` | kinds of the kernel's locks |
//! | `kernel` | waits for locks of the kernel |
//! | `process` | which process a thread is of |
//! | `futex` | waits for futexes, and who wakes at them |
//! | `mapping` | what a process has mapped where a futex is |
//! | `caller` | which function waits for a lock or a futex, and what a lock is called |
//! | `answer` | what is told at the end |

mod answer;
mod caller;
mod futex;
mod kernel;
mod kind;
mod mapping;
mod process;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

pub use self::{
    answer::{
        Futex, FutexCaller, FutexResults, FutexWait, FutexWaiter, FutexWaker, FutexesAnswer, KernelLock,
        KernelLockCaller, KernelLockWaiter, KernelLocksAnswer, LocksAnswer, LocksOfThread,
    },
    futex::FutexResult,
    kind::LockKind,
};
use self::{
    futex::{Does, Futexes, Open},
    kernel::{KernelLocks, Wait, Waits},
    mapping::Mappings,
    process::{Process, Processes},
};
use super::{
    Analysis, Arguments, At, Event, Evidence, Frames, Known, Names, Scope, Tid, Topic,
    parts::{Parts, StackParts},
    threads::Threads,
    who::Who,
};
use ftrace_event::syscalls::{ANY_CALL, CallNames};
use tracedat::option::ProcMaps;

/// What is known of a thread.
#[derive(Clone, Debug, Default)]
struct State {
    process: Option<Process>,
    waits: Waits,
    /// The futex call that it is in.
    call: Option<Open>,
    /// By which of two events the end of its last futex call was seen.
    ended_by_raw: Option<bool>,
}

/// Whose stack may come next.
#[derive(Clone, Copy, Debug)]
struct Awaits {
    is_idle: bool,
    /// Number of the thread, or of the CPU of an idle one.
    index: u64,
    /// The depth of a wait for a lock of the kernel, or [`OF_CALL`].
    depth: u64,
}

/// In place of a depth: the futex call of the thread.
const OF_CALL: u64 = bits::DEPTHS;

/// Bits of [`Awaits`] as a number; a stack that comes after a restart has another generation.
mod bits {
    pub(super) const IDLE: u64 = 1 << 63;
    pub(super) const GENERATION: u32 = 48;
    pub(super) const GENERATIONS: u64 = 0x7fff;
    pub(super) const INDEX: u32 = 8;
    pub(super) const INDICES: u64 = (1 << (GENERATION - INDEX)) - 1;
    pub(super) const DEPTHS: u64 = (1 << INDEX) - 1;
}

/// The analysis.
#[derive(Clone, Debug)]
pub struct Locks {
    scope: Scope,
    threads: Threads<State>,
    processes: Processes,
    mappings: Mappings,
    kernel: KernelLocks,
    futexes: Futexes,
    parts: Parts,
    losses: u64,
    awaits: Option<Awaits>,
    generation: u64,
    evidence: Evidence,
}

impl Locks {
    /// An analysis of a part of a recording, of a machine with these system calls. `threads` are those that
    /// were there when the recording began, each with the process that it is of; futexes of other threads are
    /// of a process that is not known, unless it is seen how they begin.
    pub fn new(
        scope: Scope,
        calls: impl Into<CallNames>,
        threads: impl IntoIterator<Item = (Tid, Tid)>,
    ) -> Self {
        Self {
            scope,
            threads: Threads::default(),
            processes: Processes::new(threads),
            mappings: Mappings::default(),
            kernel: KernelLocks::default(),
            futexes: Futexes::new(&calls.into()),
            parts: Parts::default(),
            losses: 0,
            awaits: None,
            generation: 0,
            evidence: Evidence::all(),
        }
    }

    /// The same, with what processes have mapped: a futex is named by that.
    #[must_use]
    pub fn with_mappings(mut self, processes: impl IntoIterator<Item = ProcMaps>) -> Self {
        self.mappings = Mappings::new(processes);
        self
    }

    fn find(&mut self, tid: Tid) -> Option<(usize, &mut State)> {
        find(&mut self.threads, &self.processes, tid)
    }

    fn who(&mut self, event: &Event<'_>) -> Who {
        let processes = &self.processes;
        let process = event.tid.and_then(|tid| processes.before(tid));
        Who::of(event, &mut self.threads, || State { process, ..State::default() })
    }

    /// The waits of the thread that a record is of, and what is to be said of its stack but for the depth.
    fn waits(&mut self, at: At, tid: Tid) -> Option<(&mut Waits, Awaits)> {
        // Every CPU has an idle thread.
        if tid == 0 {
            let awaits = Awaits { is_idle: true, index: u64::from(at.cpu), depth: 0 };
            return Some((self.kernel.idle.entry(at.cpu).or_default(), awaits));
        }
        let (index, state) = self.find(tid)?;
        Some((&mut state.waits, Awaits { is_idle: false, index: index as u64, depth: 0 }))
    }

    fn begin(&mut self, at: At, event: &Event<'_>, lock: u64, flags: u64) {
        let (Some(tid), who, losses) = (event.tid, self.who(event), self.losses) else { return };
        let kind = LockKind::of(flags);
        let Some((waits, awaits)) = self.waits(at, tid) else { return };
        let stack = StackParts::default();
        let (depth, unseen) = waits.begin(Wait { lock, kind, since: at.time, losses, who, stack });
        self.awaits = depth.map(|depth| Awaits { depth: depth as u64, ..awaits });
        self.kernel.unfinished += if self.scope.has(at) { unseen } else { 0 };
    }

    fn end(&mut self, at: At, tid: Tid, lock: u64, result: i64) {
        let Some((waits, _)) = self.waits(at, tid) else { return };
        let (wait, unseen) = waits.end(lock);
        if !self.scope.has(at) {
            return;
        }
        self.kernel.unfinished += unseen;
        match wait.filter(|wait| wait.losses == self.losses) {
            Some(wait) => self.kernel.tell(at, &wait, result, &self.scope),
            None => self.kernel.unmatched += 1,
        }
    }

    fn enter(&mut self, at: At, event: &Event<'_>, call: (i64, Arguments, bool)) {
        let (number, _, is_raw) = call;
        let (Some(tid), losses, is_asked) = (event.tid, self.losses, self.scope.has(at)) else { return };
        // Most calls are of something else, and most threads in none of a futex.
        let state = if self.futexes.is_futex(number) {
            find(&mut self.threads, &self.processes, tid).map(|(index, state)| (Some(index), state))
        } else {
            self.threads.current(tid).map(|thread| (None, &mut thread.of))
        };
        let Some((index, state)) = state else { return };
        if let Some(open) = state.call {
            // The other event of the same entry.
            if open.number == number && open.is_raw != is_raw && open.losses == losses {
                return;
            }
            state.call = None;
            self.futexes.unseen(&open, is_asked);
        }
        state.ended_by_raw = None;
        if let Some(index) = index {
            let who = Who::Thread { tid, index };
            state.call = self.futexes.enter(at, state.process, who, call, losses);
            if state.call.as_ref().is_some_and(|open| open.does == Does::Waits) {
                self.awaits = Some(Awaits { is_idle: false, index: index as u64, depth: OF_CALL });
            }
        }
    }

    fn exit(&mut self, at: At, tid: Tid, (number, result): (i64, i64), is_raw: bool) {
        let number = match (number, self.find(tid)) {
            (ANY_CALL, Some((_, state))) => state.call.as_ref().map_or(number, |open| open.number),
            _ => number,
        };
        if !self.futexes.is_futex(number) {
            return;
        }
        let (losses, is_asked) = (self.losses, self.scope.has(at));
        let Some((index, state)) = self.find(tid) else { return };
        let open = state.call.take();
        let is_told = open.is_none() && state.ended_by_raw == Some(!is_raw);
        state.ended_by_raw = Some(is_raw);
        match open {
            Some(open) if open.losses == losses && open.number == number => {
                self.futexes.exit(at, &open, (tid, index), result, &self.scope);
            }
            // Its beginning was not seen: what was open is another one.
            Some(open) => {
                self.futexes.unseen(&open, is_asked);
                self.futexes.unmatched += u64::from(is_asked);
            }
            None if is_told => {}
            None => self.futexes.unmatched += u64::from(is_asked),
        }
    }

    fn wakeup(&mut self, event: &Event<'_>, tid: Tid) {
        // Who wakes matters where a thread waits for a futex.
        let is_awaited = |open: &Open| open.does == Does::Waits && open.waker.is_none();
        let call = self.threads.current(tid).and_then(|thread| thread.of.call.as_ref());
        if !call.is_some_and(is_awaited) {
            return;
        }
        let processes = &self.processes;
        let process = event.tid.and_then(|tid| processes.before(tid));
        let waker = Who::wakes(event, &mut self.threads, || State { process, ..State::default() });
        if let Some(open) = self.threads.current(tid).and_then(|thread| thread.of.call.as_mut()) {
            open.waker = Some(waker);
        }
    }

    /// A new thread has an id.
    fn begin_thread(&mut self, at: At, tid: Tid, name: &[u8]) {
        self.end_thread(at, tid);
        if let Some(thread) = self.threads.begin(tid, State::default()) {
            thread.is_called(name);
        }
    }

    /// A thread has another id from now on.
    fn take(&mut self, from: Tid, to: Tid) {
        self.processes.forget(from);
        if let Some((was, is)) = self.threads.take(from, to, State::default)
            && let Some((was, is)) = self.threads.two(was, is)
        {
            (is.of.process, is.of.call) = (was.of.process, was.of.call.take());
            is.of.waits = std::mem::take(&mut was.of.waits);
        }
    }

    /// Nobody has an id any more, or somebody else.
    fn end_thread(&mut self, at: At, tid: Tid) {
        self.processes.forget(tid);
        self.end_waits(at, tid);
        self.threads.end(tid);
    }

    /// A thread waits for nothing any more.
    fn end_waits(&mut self, at: At, tid: Tid) {
        let is_asked = self.scope.has(at);
        let Some(thread) = self.threads.current(tid) else { return };
        let unseen = thread.of.waits.iter().count() as u64;
        if let Some(open) = thread.of.call.take() {
            self.futexes.unseen(&open, is_asked);
        }
        thread.of.waits = Waits::default();
        self.kernel.unfinished += if is_asked { unseen } else { 0 };
    }

    /// Counts what goes on at the end. That is on no CPU: where some were asked about, it is none of them.
    fn close(&mut self, end: u64) {
        if self.scope.cpus.is_some() {
            return;
        }
        let Self { threads, kernel, futexes, scope, losses, .. } = self;
        for wait in std::mem::take(&mut kernel.idle).values().flat_map(Waits::iter) {
            kernel.close(wait, *losses, scope, end);
        }
        for (index, thread) in threads.iter().enumerate() {
            for wait in thread.of.waits.iter() {
                kernel.close(wait, *losses, scope, end);
            }
            if let Some(open) = &thread.of.call {
                futexes.close(open, index, *losses, scope, end);
            }
        }
    }
}

/// What is known of the thread that has an id.
fn find<'t>(
    threads: &'t mut Threads<State>,
    processes: &Processes,
    tid: Tid,
) -> Option<(usize, &'t mut State)> {
    let make = || State { process: processes.before(tid), ..State::default() };
    threads.find(tid, make).map(|(index, thread)| (index, &mut thread.of))
}

impl Analysis for Locks {
    type Answer = LocksAnswer;

    const WANTS_STACKS: bool = true;

    const TOPIC: Option<Topic> = Some(Topic::Locks);

    fn look(&mut self, at: At, event: &Event<'_>) {
        self.awaits = None;
        match (&event.known, event.tid) {
            (Known::LockBegin { lock, flags }, _) => self.begin(at, event, *lock, *flags),
            (Known::LockEnd { lock, result }, Some(tid)) => self.end(at, tid, *lock, *result),
            (Known::CallEnter { number, arguments, is_raw, .. }, _) => {
                self.enter(at, event, (*number, *arguments, *is_raw));
            }
            (Known::CallExit { number, result, is_raw }, Some(tid)) => {
                self.exit(at, tid, (*number, *result), *is_raw);
            }
            (Known::Wakeup(wakeup), _) => self.wakeup(event, wakeup.tid),
            (Known::Begins { child, comm, is_seen: true, .. }, _) => self.begin_thread(at, *child, comm),
            (Known::NewTask { child, is_thread, shares_memory, .. }, parent) => {
                let process = if *is_thread || *shares_memory {
                    parent.and_then(|parent| self.find(parent)?.1.process)
                } else {
                    Some(self.processes.begin(*child))
                };
                if let Some(thread) = self.threads.current(*child) {
                    thread.of.process = process;
                }
            }
            (Known::Exec { tid, .. }, _) => {
                // Its memory is another process's from now on.
                let process = self.processes.begin(*tid);
                if let Some((_, state)) = self.find(*tid) {
                    state.process = Some(process);
                }
            }
            (Known::Takes { from, to }, _) => self.take(*from, *to),
            (Known::Renamed { tid, comm: Some(comm), .. }, _) => {
                self.find(*tid);
                if let Some(thread) = self.threads.current(*tid) {
                    thread.is_called(comm);
                }
            }
            (Known::Exit { tid }, _) => self.end_waits(at, *tid),
            (Known::Ends { tid }, _) => self.end_thread(at, *tid),
            _ => {}
        }
    }

    fn awaits_stack(&self) -> Option<u64> {
        let Awaits { is_idle, index, depth } = self.awaits?;
        let idle = if is_idle { bits::IDLE } else { 0 };
        let generation = (self.generation & bits::GENERATIONS) << bits::GENERATION;
        Some(idle | generation | (index & bits::INDICES) << bits::INDEX | depth & bits::DEPTHS)
    }

    fn stack(&mut self, of: u64, frames: Frames<'_>) {
        let is_of_call = of & bits::DEPTHS == OF_CALL;
        if of >> bits::GENERATION & bits::GENERATIONS != self.generation & bits::GENERATIONS
            || frames.is_kernel == is_of_call
        {
            return;
        }
        let (index, depth) = (of >> bits::INDEX & bits::INDICES, (of & bits::DEPTHS) as usize);
        let thread = |threads| Threads::get_mut(threads, index as usize).map(|thread| &mut thread.of);
        // A stack that comes after its wait has none any more.
        let stack = if is_of_call {
            thread(&mut self.threads).and_then(|state| Some(&mut state.call.as_mut()?.stack))
        } else {
            let waits = if of & bits::IDLE == 0 {
                thread(&mut self.threads).map(|state| &mut state.waits)
            } else {
                self.kernel.idle.get_mut(&(index as u32))
            };
            waits.and_then(|waits| Some(&mut waits.get_mut(depth)?.stack))
        };
        if let Some(stack) = stack {
            stack.add(&mut self.parts, frames.is_kernel, frames.addresses);
        }
    }

    fn lost(&mut self, _: At) {
        self.losses += 1;
    }

    fn restart(&mut self, from: u64) {
        self.scope.from = Some(from);
        self.generation += 1;
        let are_all_forgotten = self.threads.forget_ended();
        self.kernel.restart();
        self.futexes.restart(are_all_forgotten);
        // Stacks are told apart by numbers that stay: when there is little room left, all begin anew.
        let is_full = self.parts.is_half_full();
        if is_full {
            self.parts = Parts::default();
        }
        // Threads have other numbers from now on.
        let mut indices = HashMap::new();
        for (index, thread) in self.threads.iter_mut().enumerate() {
            indices.insert(thread.tid, index);
            if let Some(open) = &mut thread.of.call {
                open.waker = None;
                if is_full {
                    open.stack = StackParts::default();
                }
            }
        }
        let of_threads = self.threads.iter_mut().flat_map(|thread| thread.of.waits.iter_mut());
        for wait in of_threads.chain(self.kernel.idle.values_mut().flat_map(Waits::iter_mut)) {
            if let Who::Thread { tid, index } = &mut wait.who {
                *index = indices.get(tid).copied().unwrap_or(usize::MAX);
            }
            if is_full {
                wait.stack = StackParts::default();
            }
        }
    }

    fn rests_on(&mut self, evidence: &Evidence) {
        self.evidence = evidence.clone();
    }

    fn answer(self, end: u64, names: &Names<'_>) -> LocksAnswer {
        LocksAnswer::of(self, end, names)
    }
}
