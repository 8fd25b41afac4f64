//! Where threads are without a CPU, what for, and who wakes them.
//!
//! | file | subject |
//! |---|---|
//! | `chain` | who wakes a thread, who woke that one before, and so on |
//! | `reason` | what a thread sleeps for, by the kernel's functions |
//! | `answer` | what is told at the end |
//! | `flame` | the same as a flame graph |
//!
//! An interval begins when `sched_switch` takes the CPU from a thread, and ends when one gives it the next
//! CPU. Of that, what comes behind the wakeup is time in which it waits for a CPU. Its stack is that of its
//! `sched_switch`; the waker's is that of the `sched_waking` that ends the sleep.

mod answer;
mod chain;
mod flame;
mod reason;

use std::collections::{BTreeMap, btree_map::Entry};

use self::chain::{Chain, Chains};
pub use self::{
    answer::{OffCpuAnswer, OffCpuOfThread, OffCpuStack, ReasonTime, WakerLink, Wakers},
    reason::Reason,
};
use super::{
    Analysis, At, Event, Follows, Frames, Known, Names, Scope, Switch, Tid, Times, Topic, Wakeup,
    parts::{Parts, StackParts},
    state::{self, Off},
    tally::Room,
    threads::Threads,
    who::Who,
};

/// Most combinations of a thread, a stack and a chain of wakers.
const MOST_KEYS: usize = 1 << 17;

/// A thread has no CPU.
#[derive(Clone, Copy, Debug)]
struct Open {
    off: Off,
    since: u64,
    losses: u64,
    stack: StackParts,
    woken: Option<Woken>,
}

impl Open {
    /// What of the thread is told apart, when it was woken by a chain.
    fn key(&self, chain: Option<Chain>) -> Key {
        Key { stack: self.stack, chain, off: self.off }
    }
}

/// A thread has been woken.
#[derive(Clone, Copy, Debug)]
struct Woken {
    at: u64,
    waker: Who,
    stack: StackParts,
    /// What woke the waker while this thread slept.
    before: Option<Chain>,
}

/// What is known of a thread.
#[derive(Clone, Debug)]
struct State {
    /// `None` while it has a CPU, or while that is not known.
    open: Option<Open>,
    /// When it was woken last, and by whom.
    woken: Option<(u64, Chain)>,
    unknown: u64,
    /// Since when nothing is known of it.
    unknown_since: Option<u64>,
    told: BTreeMap<Key, Told>,
}

impl State {
    fn new(unknown_since: Option<u64>) -> Self {
        Self { open: None, woken: None, unknown: 0, unknown_since, told: BTreeMap::new() }
    }

    /// It has a CPU, and if it was without one before, nothing says since when.
    fn runs_unseen(&mut self, at: At, scope: &Scope) {
        if let Some(open) = self.open.take() {
            self.unknown += scope.part(open.since, at.time);
        }
    }

    /// What is told of intervals. `None` if there is no room.
    fn told(&mut self, key: Key, rooms: &mut Rooms) -> Option<&mut Told> {
        match self.told.entry(key) {
            Entry::Occupied(told) => Some(told.into_mut()),
            Entry::Vacant(_) if rooms.keys == 0 => {
                rooms.left_out += 1;
                None
            }
            Entry::Vacant(place) => {
                rooms.keys -= 1;
                Some(place.insert(Told::default()))
            }
        }
    }
}

/// How much more can be told apart.
#[derive(Clone, Copy, Debug)]
struct Rooms {
    keys: usize,
    /// What has no room among them.
    left_out: u64,
    /// For the times of all of them.
    sizes: Room,
}

impl Default for Rooms {
    fn default() -> Self {
        Self { keys: MOST_KEYS, left_out: 0, sizes: Room::default() }
    }
}

/// What is told apart of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    stack: StackParts,
    chain: Option<Chain>,
    off: Off,
}

/// What is told of it.
#[derive(Clone, Debug, Default)]
struct Told {
    times: Times,
    /// Of that, behind the wakeup.
    waits: u64,
    /// Time of what has not ended.
    open: u64,
}

impl Told {
    fn merge(&mut self, other: &Self) {
        self.times.merge(&other.times);
        self.waits += other.waits;
        self.open += other.open;
    }

    fn total(&self) -> u64 {
        self.times.sum().saturating_add(self.open)
    }
}

/// Whose stack may come next.
#[derive(Clone, Copy, Debug)]
enum Awaits {
    Sleeper(usize),
    Wakeup(usize),
}

/// The analysis.
#[derive(Clone, Debug)]
pub struct OffCpu {
    scope: Scope,
    threads: Threads<State>,
    parts: Parts,
    chains: Chains,
    rooms: Rooms,
    begin: Option<u64>,
    losses: u64,
    awaits: Option<Awaits>,
    /// How often all threads were forgotten.
    generation: u32,
}

impl OffCpu {
    /// An analysis of a part of a recording.
    pub fn new(scope: Scope) -> Self {
        Self {
            scope,
            threads: Threads::default(),
            parts: Parts::default(),
            chains: Chains::default(),
            rooms: Rooms::default(),
            begin: None,
            losses: 0,
            awaits: None,
            generation: 0,
        }
    }

    fn switch(&mut self, at: At, switch: &Switch<'_>, follows: Follows) {
        let begin = self.begin;
        for (tid, is_followed) in [(switch.prev, follows.current), (switch.next, follows.other)] {
            if !is_followed {
                self.forget(tid, at);
            }
        }
        if switch.next != 0
            && follows.other
            && let Some((index, thread)) = self.threads.find(switch.next, || State::new(begin))
        {
            thread.is_called(switch.next_comm);
            self.on_cpu(index, at);
        }
        if switch.prev == 0 || !follows.current {
            return;
        }
        let losses = self.losses;
        let Some((index, thread)) = self.threads.find(switch.prev, || State::new(None)) else { return };
        thread.is_called(switch.prev_comm);
        thread.of.unknown_since = None;
        thread.of.runs_unseen(at, &self.scope);
        match state::off(switch.prev_state) {
            // It may run on another CPU.
            Some(_) if !follows.every_cpu => thread.of.unknown_since = Some(at.time),
            Some(off) => {
                let (since, stack, woken) = (at.time, StackParts::default(), None);
                thread.of.open = Some(Open { off, since, losses, stack, woken });
                self.awaits = Some(Awaits::Sleeper(index));
            }
            None => self.threads.end(switch.prev),
        }
    }

    /// What a thread does is not known any more.
    fn forget(&mut self, tid: Tid, at: At) {
        if let Some(thread) = self.threads.current(tid) {
            thread.of.runs_unseen(at, &self.scope);
        }
    }

    /// A thread gets a CPU.
    fn on_cpu(&mut self, index: usize, at: At) {
        let (losses, scope) = (self.losses, &self.scope);
        let Some(thread) = self.threads.get_mut(index) else { return };
        let state = &mut thread.of;
        if let Some(since) = state.unknown_since.take() {
            state.unknown += scope.part(since, at.time);
        }
        let Some(open) = state.open.take() else { return };
        let chain = open.woken.and_then(|woken| self.chains.number(woken.waker, woken.stack, woken.before));
        state.woken = open.woken.map(|woken| woken.at).zip(chain);
        if open.losses != losses {
            state.unknown += scope.part(open.since, at.time);
            return;
        }
        if scope.has(at) {
            let time = scope.part(open.since, at.time);
            let wait = match (open.off, open.woken) {
                (Off::Preempted, _) => time,
                (_, Some(woken)) => scope.part(woken.at, at.time),
                (_, None) => 0,
            };
            if let Some(told) = state.told(open.key(chain), &mut self.rooms) {
                told.times.add_within(time, at.time, &mut self.rooms.sizes);
                told.waits += wait;
            }
        }
    }

    /// Counts what has not ended at the end. That is on no CPU: where some were asked about, it is none of
    /// them.
    fn close(&mut self, end: u64) {
        if self.scope.cpus.is_some() {
            return;
        }
        let losses = self.losses;
        for thread in self.threads.iter_mut() {
            let state = &mut thread.of;
            let unknown_since = match state.open {
                Some(open) if open.losses != losses => Some(open.since),
                _ => state.unknown_since,
            };
            state.unknown += unknown_since.map_or(0, |since| self.scope.part(since, end));
            if let Some(open) = state.open.filter(|open| open.losses == losses)
                && let Some(told) = state.told(open.key(None), &mut self.rooms)
            {
                told.open += self.scope.part(open.since, end);
            }
        }
    }

    fn wakeup(&mut self, at: At, event: &Event<'_>, wakeup: &Wakeup<'_>) {
        let begin = self.begin;
        let Some((index, thread)) = self.threads.find(wakeup.tid, || State::new(begin)) else { return };
        thread.is_called(wakeup.comm);
        let Some(open) = thread.of.open else { return };
        if open.woken.is_some() || open.off == Off::Preempted {
            return;
        }
        let (waker, before) = self.waker(event, open.since);
        let stack = StackParts::default();
        if let Some(thread) = self.threads.get_mut(index)
            && let Some(open) = &mut thread.of.open
        {
            open.woken = Some(Woken { at: at.time, waker, stack, before });
            // The stack of an interrupt is that of whom it interrupted.
            self.awaits = matches!(waker, Who::Thread { .. }).then_some(Awaits::Wakeup(index));
        }
    }

    /// Who wakes, and by whom that one was woken since the sleep began.
    fn waker(&mut self, event: &Event<'_>, since: u64) -> (Who, Option<Chain>) {
        let begin = self.begin;
        let waker = Who::wakes(event, &mut self.threads, || State::new(begin));
        let Who::Thread { index, .. } = waker else { return (waker, None) };
        let woken = self.threads.get(index).and_then(|thread| thread.of.woken);
        (waker, woken.filter(|(woken, _)| *woken >= since).map(|(_, chain)| chain))
    }
}

impl Analysis for OffCpu {
    type Answer = OffCpuAnswer;

    const TOPIC: Option<Topic> = Some(Topic::Offcpu);

    const WANTS_STACKS: bool = true;

    fn begins(&mut self, time: u64) {
        self.begin = Some(time);
    }

    fn look(&mut self, at: At, event: &Event<'_>) {
        self.begin.get_or_insert(at.time);
        self.awaits = None;
        if let Some(tid) = event.tid.filter(|_| !matches!(event.known, Known::Switch(_))) {
            self.forget(tid, at);
        }
        match &event.known {
            Known::Switch(switch) => self.switch(at, switch, event.follows),
            Known::Wakeup(wakeup) if wakeup.tid != 0 && event.follows.other => self.wakeup(at, event, wakeup),
            Known::Fork { child, comm } if event.follows.other => {
                if let Some(thread) = self.threads.begin(*child, State::new(None)) {
                    thread.is_called(comm);
                }
            }
            Known::Wakeup(wakeup) => self.forget(wakeup.tid, at),
            Known::Fork { child, .. } => self.threads.end(*child),
            Known::Renamed { tid, comm: Some(comm) } if event.follows.other => {
                let begin = self.begin;
                if let Some((_, thread)) = self.threads.find(*tid, || State::new(begin)) {
                    thread.is_called(comm);
                }
            }
            Known::Freed { tid } => self.threads.end(*tid),
            _ => {}
        }
    }

    fn awaits_stack(&self) -> Option<u64> {
        let awaited = match self.awaits? {
            Awaits::Sleeper(index) => index as u64 * 2,
            Awaits::Wakeup(index) => index as u64 * 2 + 1,
        };
        Some(u64::from(self.generation) << 32 | awaited)
    }

    fn stack(&mut self, of: u64, frames: Frames<'_>) {
        // That of a thread that was forgotten: another may have its number.
        if of >> 32 != u64::from(self.generation) {
            return;
        }
        // One that comes after its thread got a CPU again has no interval any more.
        let Some(thread) = self.threads.get_mut((of as u32 / 2) as usize) else { return };
        let Some(open) = &mut thread.of.open else { return };
        if of.is_multiple_of(2) {
            open.stack.add(&mut self.parts, frames.is_kernel, frames.addresses);
        } else if let Some(woken) = &mut open.woken {
            woken.stack.add(&mut self.parts, frames.is_kernel, frames.addresses);
        }
    }

    fn lost(&mut self, at: At) {
        self.begin.get_or_insert(at.time);
        self.losses += 1;
    }

    fn restart(&mut self, from: u64) {
        self.scope.from = Some(from);
        // Chains and stacks are told apart by numbers that stay: when there is little room left, all begin
        // anew.
        if self.threads.is_half_full() || self.parts.is_half_full() || self.chains.is_half_full() {
            let generation = self.generation.wrapping_add(1);
            *self = Self { begin: Some(from), generation, ..Self::new(self.scope.clone()) };
            return;
        }
        self.rooms = Rooms::default();
        for thread in self.threads.iter_mut() {
            thread.of.unknown = 0;
            thread.of.told.clear();
        }
    }

    fn answer(self, end: u64, names: &Names<'_>) -> OffCpuAnswer {
        OffCpuAnswer::of(self, end, names)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Context;
    use super::*;
    use ftrace_event::{Symbol, Symbols};

    struct Table;

    impl Symbols for Table {
        fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
            const TRACER: &str = "__traceiter_sched_switch";
            let name = *["", "schedule", "do_nanosleep", "pipe_read", "pipe_write", "main", TRACER]
                .get(address as usize)?;
            (!name.is_empty()).then_some(Symbol { name, offset: 1, size: None, module: None })
        }
    }

    const S: u64 = 1;
    const X: u64 = 0x10;

    struct Story(OffCpu);

    impl Story {
        fn new() -> Self {
            Self(OffCpu::new(Scope::default()))
        }

        fn at(&mut self, time: u64, (context, tid): (Context, Tid), known: Known<'_>, stack: &[u64]) {
            self.0.look(At { time, cpu: 0 }, &Event::whole(Some(tid), context, known));
            if let Some(of) = self.0.awaits_stack()
                && !stack.is_empty()
            {
                let is_kernel = stack != [5];
                self.0.stack(of, Frames { is_kernel, addresses: &mut stack.iter().copied() });
            }
        }

        fn switch(&mut self, time: u64, (prev, prev_state): (Tid, u64), next: Tid, stack: &[u64]) {
            let name =
                |tid: Tid| ["idle", "one", "two", "three"].get(tid as usize).unwrap_or(&"?").as_bytes();
            let (prev_comm, next_comm) = (name(prev), name(next));
            let switch = Switch { prev, prev_comm, prev_state, next, next_comm };
            self.at(time, (Context::Thread, prev), Known::Switch(switch), stack);
        }

        fn wake(&mut self, time: u64, by: (Context, Tid), tid: Tid, stack: &[u64]) {
            self.at(time, by, Known::Wakeup(Wakeup { tid, comm: b"", is_new: false }), stack);
        }

        fn answer(self, end: u64) -> OffCpuAnswer {
            self.0.answer(end, &Names { symbols: &Table, ..Names::none() })
        }
    }

    fn stack_of(answer: &OffCpuAnswer, tid: Tid, reason: Reason) -> &OffCpuStack {
        answer.stacks.iter().find(|of| of.tid == tid && of.reason == reason).unwrap()
    }

    /// 1 reads from a pipe that 2 writes to, which a timer woke before that.
    fn story() -> Story {
        let mut story = Story::new();
        story.switch(100, (1, S), 2, &[6, 1, 3]);
        story.switch(110, (2, S), 0, &[6, 1, 2]);
        story.wake(150, (Context::Irq, 0), 2, &[]);
        story.switch(160, (0, 0), 2, &[]);
        story.wake(170, (Context::Thread, 2), 1, &[4]);
        // It is awake already.
        story.wake(175, (Context::Irq, 2), 1, &[]);
        story.switch(190, (2, 0), 1, &[5]);
        story.switch(250, (1, X), 2, &[]);
        story
    }

    #[test]
    fn an_interval_in_which_the_thread_runs_is_unknown() {
        let mut story = Story::new();
        story.switch(100, (1, S), 2, &[1, 3]);
        story.wake(130, (Context::Thread, 1), 3, &[]);
        story.switch(150, (1, S), 2, &[1, 3]);
        // The switch back is missing here, too.
        story.switch(170, (1, S), 2, &[1, 3]);
        story.switch(175, (2, 0), 1, &[]);
        let answer = story.answer(200);
        let pipe = stack_of(&answer, 1, Reason::Pipe);
        assert_eq!((pipe.times.count, pipe.times.total_ns), (1, 5));
        let one = answer.threads.iter().find(|of| of.tid == 1).unwrap();
        assert_eq!(one.unknown_ns, 30 + 20);
    }

    #[test]
    fn sleeps_have_stacks_reasons_and_chains_of_wakers() {
        let answer = story().answer(300);
        let pipe = stack_of(&answer, 1, Reason::Pipe);
        assert_eq!(
            (pipe.kernel.join(" "), pipe.times.total_ns, pipe.wait_ns),
            ("schedule pipe_read".into(), 90, 20)
        );
        let chain = &pipe.wakers[0].chain;
        let wakers: Vec<_> = chain.iter().map(|link| (link.waker.as_str(), link.tid)).collect();
        assert_eq!(wakers, [("two", Some(2)), ("[interrupt]", None)]);
        assert_eq!(chain[0].kernel, ["pipe_write"]);
        let timer = stack_of(&answer, 2, Reason::Timer);
        assert_eq!((timer.times.total_ns, timer.wait_ns, timer.state), (50, 10, Off::Sleeping));
        let cpu = stack_of(&answer, 2, Reason::Cpu);
        assert_eq!((cpu.times.total_ns, cpu.wait_ns, cpu.user.join(" ")), (60, 60, "main".into()));
        let two = answer.threads.iter().find(|of| of.tid == 2).unwrap();
        assert_eq!(
            (two.times.total_ns, two.wait_ns, two.mostly, two.unknown_ns),
            (110, 70, Some(Reason::Cpu), 0)
        );
        assert_eq!(answer.threads.len(), 2);
        assert_eq!(answer.left_out, 0);
    }

    #[test]
    fn a_waker_that_was_awake_before_the_sleep_began_is_the_first_of_the_chain() {
        let mut story = Story::new();
        story.wake(90, (Context::Irq, 0), 2, &[]);
        story.switch(95, (0, 0), 2, &[]);
        story.switch(100, (1, S), 2, &[1, 3]);
        story.wake(170, (Context::Thread, 2), 1, &[]);
        story.switch(190, (2, 0), 1, &[]);
        let answer = story.answer(200);
        assert_eq!(stack_of(&answer, 1, Reason::Pipe).wakers[0].chain.len(), 1);
    }

    #[test]
    fn what_is_open_at_the_end_or_over_a_loss_is_told_apart() {
        let mut story = story();
        story.switch(300, (2, S), 3, &[1, 3]);
        let sleeping = story.0.clone();
        let answer = Story(sleeping).answer(400);
        let open = stack_of(&answer, 2, Reason::Pipe);
        assert_eq!((open.times.count, open.open_ns, open.wakers.len()), (0, 100, 0));
        story.0.lost(At { time: 310, cpu: 1 });
        story.switch(350, (3, S), 2, &[]);
        let answer = story.answer(400);
        let two = answer.threads.iter().find(|of| of.tid == 2).unwrap();
        assert_eq!((two.unknown_ns, two.open_ns), (50, 0));
        // It slept from the beginning until it was seen, for all that is known.
        let three = answer.threads.iter().find(|of| of.tid == 3).unwrap();
        assert_eq!((three.unknown_ns, three.open_ns), (200, 50));
    }

    #[test]
    fn a_new_count_has_what_goes_on() {
        let mut story = story();
        story.switch(300, (2, S), 3, &[1, 3]);
        story.0.restart(320);
        story.switch(350, (3, S), 2, &[]);
        let answer = story.answer(400);
        let pipe = stack_of(&answer, 2, Reason::Pipe);
        assert_eq!((pipe.times.count, pipe.times.total_ns), (1, 30));
        assert!(answer.stacks.iter().all(|of| of.tid != 1));
    }
}
