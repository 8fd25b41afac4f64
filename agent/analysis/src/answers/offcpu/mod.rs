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
    Analysis, At, Event, Evidence, Frames, Known, Names, Scope, Tid, Times, Topic, Wakeup,
    parts::{Parts, StackParts},
    schedule::{Did, Does, Doing, Had, Moment, Observer, Schedule, Scheduled},
    state::Off,
    tally::Room,
    threads::{Index, Thread, Threads},
    topic::WAKEUP_EVENTS,
    who::Who,
};

/// Most combinations of a thread, a stack and a chain of wakers.
const MOST_KEYS: usize = 1 << 17;

/// A thread has no CPU.
#[derive(Clone, Copy, Debug)]
struct Open {
    off: Off,
    since: u64,
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
    doing: Doing,
    /// `None` while it has a CPU, or while that is not known.
    open: Option<Open>,
    /// Who woke it while it had a CPU.
    woken_early: Option<Woken>,
    /// When it was woken last, and by whom.
    woken: Option<(u64, Chain)>,
    unknown: u64,
    told: BTreeMap<Key, Told>,
}

impl Scheduled for State {
    fn new(doing: Doing) -> Self {
        Self { doing, open: None, woken_early: None, woken: None, unknown: 0, told: BTreeMap::new() }
    }

    fn doing(&mut self) -> &mut Doing {
        &mut self.doing
    }

    fn goes_on_as(&mut self, other: &mut Self) {
        other.woken = self.woken;
    }
}

impl State {
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
    threads: Threads<State>,
    schedule: Schedule,
    parts: Parts,
    sums: Sums,
    awaits: Option<Awaits>,
    /// How often all threads were forgotten.
    generation: u32,
    evidence: Evidence,
}

/// The counts of all threads together.
#[derive(Clone, Debug)]
struct Sums {
    scope: Scope,
    chains: Chains,
    rooms: Rooms,
    /// A thread whose stack may come next, as it has given its CPU away.
    sleeper: Option<Index>,
    /// One that was woken.
    woken: Option<Index>,
}

impl Observer<State> for Sums {
    fn did(&mut self, _: Index, thread: &mut Thread<State>, did: &Did) {
        // The end is on no CPU: where some were asked about, it is none of them.
        if did.cpu.is_none() && self.scope.cpus.is_some() {
            return;
        }
        let state = &mut thread.of;
        match did.does {
            Does::Unknown => {
                // What is unknown may be told when something else has begun.
                let open = state.open.take_if(|open| open.since < did.until);
                let since = open.map_or(did.since, |open| open.since.min(did.since));
                state.unknown += self.scope.part(since, did.until);
            }
            Does::Off(_) | Does::Woken => match (did.cpu, did.next) {
                (Some(cpu), Does::Runs(_)) => self.end(state, At { time: did.until, cpu }, did.does),
                (None, _) => self.leave_open(state, did.until),
                _ => {}
            },
            Does::Runs(_) | Does::Ended => {}
        }
    }

    fn turns(&mut self, index: Index, thread: &mut Thread<State>, at: Moment) {
        let state = &mut thread.of;
        match state.doing.does() {
            Does::Off(off) => {
                let (since, stack, woken) = (at.time, StackParts::default(), None);
                state.open = Some(Open { off, since, stack, woken });
                self.sleeper = Some(index);
            }
            Does::Woken => self.woken = Some(index),
            Does::Runs(_) => state.woken_early = None,
            Does::Unknown | Does::Ended => {}
        }
    }

    fn had(&mut self, _: &Had<'_>) {}
}

impl Sums {
    /// A thread gets a CPU.
    fn end(&mut self, state: &mut State, at: At, does: Does) {
        let Some(mut open) = state.open.take() else { return };
        if does == Does::Woken && open.woken.is_none() {
            open.woken = state.woken_early.map(|woken| Woken { at: open.since, ..woken });
        }
        let chain = open.woken.and_then(|woken| self.chains.number(woken.waker, woken.stack, woken.before));
        state.woken = open.woken.map(|woken| woken.at).zip(chain);
        if !self.scope.has(at) {
            return;
        }
        let time = self.scope.part(open.since, at.time);
        let wait = match (open.off, open.woken) {
            (Off::Preempted, _) => time,
            (_, Some(woken)) => self.scope.part(woken.at, at.time),
            (_, None) => 0,
        };
        if let Some(told) = state.told(open.key(chain), &mut self.rooms) {
            told.times.add_within(time, at.time, &mut self.rooms.sizes);
            told.waits += wait;
        }
    }

    /// The recording ends while a thread has no CPU.
    fn leave_open(&mut self, state: &mut State, end: u64) {
        if let Some(open) = state.open
            && let Some(told) = state.told(open.key(None), &mut self.rooms)
        {
            told.open += self.scope.part(open.since, end);
        }
    }
}

impl OffCpu {
    /// An analysis of a part of a recording.
    pub fn new(scope: Scope) -> Self {
        let (chains, rooms) = (Chains::default(), Rooms::default());
        Self {
            threads: Threads::default(),
            schedule: Schedule::default(),
            parts: Parts::default(),
            sums: Sums { scope, chains, rooms, sleeper: None, woken: None },
            awaits: None,
            generation: 0,
            evidence: Evidence::all(),
        }
    }

    /// Whether records say when threads are woken.
    fn knows_wakeups(&self) -> bool {
        self.evidence.has_any(WAKEUP_EVENTS)
    }

    /// Counts what has not ended at the end.
    fn close(&mut self, end: u64) {
        self.schedule.finish(end, &mut self.threads, &mut self.sums);
    }

    /// A thread may be woken. Returns who does it, and whether it had a CPU.
    fn waker(&mut self, at: At, event: &Event<'_>, wakeup: &Wakeup<'_>) -> Option<(Woken, bool)> {
        let thread = self.threads.current(wakeup.tid)?;
        let (since, runs) = match (thread.of.open, thread.of.doing.does()) {
            (_, Does::Runs(_)) => (at.time, true),
            (Some(open), Does::Off(off)) if off != Off::Preempted => (open.since, false),
            _ => return None,
        };
        let unseen = self.schedule.unseen(at.time);
        let waker = Who::wakes(event, &mut self.threads, || State::new(unseen));
        let woken = match waker {
            Who::Thread { index, .. } => self.threads.get(index).and_then(|thread| thread.of.woken),
            _ => None,
        };
        // By whom that one was woken since the sleep began.
        let before = woken.filter(|(woken, _)| *woken >= since).map(|(_, chain)| chain);
        Some((Woken { at: at.time, waker, stack: StackParts::default(), before }, runs))
    }

    /// A thread was woken. The stack of an interrupt is that of whom it interrupted.
    fn is_woken(&mut self, tid: Tid, woken: Woken, runs: bool) {
        let Some(index) = self.threads.current_index(tid) else { return };
        let Some(thread) = self.threads.get_mut(index) else { return };
        if runs {
            thread.of.woken_early = Some(woken);
        } else if self.sums.woken == Some(index)
            && let Some(open) = &mut thread.of.open
        {
            open.woken = Some(woken);
        } else {
            return;
        }
        self.awaits = matches!(woken.waker, Who::Thread { .. }).then_some(Awaits::Wakeup(index));
    }
}

impl Analysis for OffCpu {
    type Answer = OffCpuAnswer;

    const TOPIC: Option<Topic> = Some(Topic::Offcpu);

    const SEES_ALL: bool = true;

    const WANTS_STACKS: bool = true;

    fn begins(&mut self, time: u64) {
        self.schedule.begins(time);
    }

    fn look(&mut self, at: At, event: &Event<'_>) {
        self.awaits = None;
        (self.sums.sleeper, self.sums.woken) = (None, None);
        let woken = match &event.known {
            Known::Wakeup(wakeup) if wakeup.tid != 0 && event.follows.other && event.follows.every_cpu => {
                self.waker(at, event, wakeup).map(|(woken, runs)| (wakeup.tid, woken, runs))
            }
            _ => None,
        };
        let moment = Moment { time: at.time, cpu: at.cpu, event: 0 };
        self.schedule.look(moment, event, 0, &mut self.threads, &mut self.sums);
        if let Some((tid, woken, runs)) = woken {
            self.is_woken(tid, woken, runs);
        } else if let (Known::Switch(_), Some(sleeper)) = (&event.known, self.sums.sleeper) {
            self.awaits = Some(Awaits::Sleeper(sleeper));
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
        let State { open, woken_early, .. } = &mut thread.of;
        let stack = match (of.is_multiple_of(2), woken_early) {
            (true, _) => open.as_mut().map(|open| &mut open.stack),
            (false, Some(woken)) => Some(&mut woken.stack),
            (false, None) => open.as_mut().and_then(|open| Some(&mut open.woken.as_mut()?.stack)),
        };
        if let Some(stack) = stack {
            stack.add(&mut self.parts, frames.is_kernel, frames.addresses);
        }
    }

    fn lost(&mut self, at: At) {
        let at = Moment { time: at.time, cpu: at.cpu, event: 0 };
        self.schedule.lost(at, None, &mut self.threads, &mut self.sums);
    }

    fn restart(&mut self, from: u64) {
        self.sums.scope.from = Some(from);
        // Chains and stacks are told apart by numbers that stay: when there is little room left, all begin
        // anew.
        if self.threads.is_half_full() || self.parts.is_half_full() || self.sums.chains.is_half_full() {
            let generation = self.generation.wrapping_add(1);
            *self = Self { generation, ..Self::new(self.sums.scope.clone()) };
            self.schedule.begins(from);
            return;
        }
        self.sums.rooms = Rooms::default();
        for thread in self.threads.iter_mut() {
            thread.of.unknown = 0;
            thread.of.told.clear();
        }
    }

    fn rests_on(&mut self, evidence: &Evidence) {
        self.evidence = evidence.clone();
    }

    fn answer(self, end: u64, names: &Names<'_>) -> OffCpuAnswer {
        OffCpuAnswer::of(self, end, names)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Context, Switch};
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
            (pipe.kernel.join(" "), pipe.times.total_ns, pipe.wait_ns.unwrap()),
            ("schedule pipe_read".into(), 90, 20)
        );
        let chain = &pipe.wakers[0].chain;
        let wakers: Vec<_> = chain.iter().map(|link| (link.waker.as_str(), link.tid)).collect();
        assert_eq!(wakers, [("two", Some(2)), ("[interrupt]", None)]);
        assert_eq!(chain[0].kernel, ["pipe_write"]);
        let timer = stack_of(&answer, 2, Reason::Timer);
        assert_eq!((timer.times.total_ns, timer.wait_ns.unwrap(), timer.state), (50, 10, Off::Sleeping));
        let cpu = stack_of(&answer, 2, Reason::Cpu);
        assert_eq!((cpu.times.total_ns, cpu.wait_ns.unwrap(), cpu.user.join(" ")), (60, 60, "main".into()));
        let two = answer.threads.iter().find(|of| of.tid == 2).unwrap();
        assert_eq!(
            (two.times.total_ns, two.wait_ns.unwrap(), two.mostly, two.unknown_ns),
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
