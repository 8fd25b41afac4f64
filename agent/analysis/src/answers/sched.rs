//! How long threads ran, waited for a CPU, and slept.
//!
//! A thread is runnable from the moment when it is woken (`sched_waking` or `sched_wakeup`, whichever comes
//! first) or loses its CPU while it could go on, and waits until `sched_switch` gives it one. Where events
//! were lost between the ends of an interval, what happened in it is not known. Who runs on a CPU is told by
//! events of that CPU alone, so that for the time that threads run losses elsewhere do not matter.
//!
//! Any event shows that its thread has the CPU. Where that is another thread than the one that got the CPU
//! last, a switch is missing: the former thread ran up to the last event that shows it there, and what both
//! did from then on is unknown. So no CPU has two threads at a time.
//!
//! Of threads that the recording does not follow, nothing is known from one record to the next: they are in
//! no row, and a CPU that goes to one of them is unknown until the next switch.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    Analysis, At, Event, Follows, Known, Names, Scope, Switch, Tid, Times, TimesTold, Topic,
    ran::{Instead, Ran, Run},
    state::{self, Off},
    tally::Room,
    threads::Threads,
};

/// Waits that are named: the longest ones.
const WORST: usize = 10;

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// What it did before it was seen is not known.
    Unknown,
    /// On this CPU.
    Runs(u32),
    /// It waits for a CPU.
    Waits(Reason),
    /// It waits for an event that a signal can end.
    Sleeps,
    /// It waits for an event that nothing else ends: a disk, mostly.
    Blocked,
    /// It was stopped or is traced.
    Stopped,
    /// It will not run again.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Woken,
    Preempted,
}

/// What is known of a thread.
#[derive(Clone, Debug)]
struct State {
    does: Does,
    since: u64,
    /// Since when it was not known what it did before; the same time if that was known.
    unknown_since: u64,
    /// The number of losses when that began.
    losses: u64,
    told: Told,
}

#[derive(Clone, Debug, Default)]
struct Told {
    runs: u64,
    waits: u64,
    sleeps: u64,
    blocked: u64,
    stopped: u64,
    unknown: u64,
    switches: u64,
    migrations: u64,
    woken: Times,
    preempted: Times,
}

/// What is known of a CPU.
#[derive(Clone, Debug)]
struct Cpu {
    /// Who ran there last.
    ran: Ran,
    since: u64,
    /// Who runs there; `None` if that is not known.
    current: Option<Tid>,
    /// The time of the last event that shows this.
    seen: u64,
    busy: u64,
    idle: u64,
    unknown: u64,
    switches: u64,
}

/// The analysis.
#[derive(Clone, Debug)]
pub struct Sched {
    scope: Scope,
    threads: Threads<State>,
    cpus: BTreeMap<u32, Cpu>,
    /// When the recording begins.
    begin: Option<u64>,
    /// The time of the first switch on any CPU. Whether there were switches before is not known: a recorder
    /// begins with one event after the other.
    first_switch: Option<u64>,
    losses: u64,
    worst: Vec<Waited>,
    /// For the times of threads.
    room: Room,
}

/// What threads and CPUs did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SchedAnswer {
    /// The CPUs, by number.
    pub cpus: Vec<CpuTime>,
    /// The threads that were asked about, by the time that they ran. The idle threads are none of them.
    pub threads: Vec<ThreadTime>,
    /// From a wakeup to the CPU, of all threads that were asked about.
    pub woken: TimesTold,
    /// From the loss of a CPU to the next one, of the same.
    pub preempted: TimesTold,
    /// The longest waits.
    pub worst: Vec<Waited>,
    /// Threads that were left out because there were too many.
    pub threads_left_out: u64,
}

/// What a CPU did, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CpuTime {
    /// Its number.
    pub cpu: u32,
    /// Threads ran.
    pub busy_ns: u64,
    /// The idle thread ran.
    pub idle_ns: u64,
    /// Events were lost.
    pub unknown_ns: u64,
    /// How often it went to another thread.
    pub switches: u64,
}

/// What a thread did, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ThreadTime {
    /// Its id.
    pub tid: Tid,
    /// Its last name.
    pub comm: String,
    /// It had a CPU.
    pub run_ns: u64,
    /// It could have run.
    pub wait_ns: u64,
    /// It waited for something, and a signal could end that.
    pub sleep_ns: u64,
    /// It waited for something that no signal ends, such as a disk (`D`).
    pub blocked_ns: u64,
    /// It was stopped, or is traced.
    pub stopped_ns: u64,
    /// Before it was seen for the first time, and where events were lost.
    pub unknown_ns: u64,
    /// How often it got a CPU.
    pub switches: u64,
    /// How often it was moved to another CPU.
    pub migrations: u64,
    /// From wakeups to the CPU.
    pub woken: TimesTold,
    /// From the loss of the CPU, while it could have run, to the next one.
    pub preempted: TimesTold,
}

/// A wait for a CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Waited {
    /// Who waited.
    pub tid: Tid,
    /// Its name.
    pub comm: String,
    /// For how long.
    pub wait_ns: u64,
    /// When it got the CPU.
    pub at_ns: u64,
    /// Which.
    pub cpu: u32,
    /// Whether it was woken; otherwise it had lost its CPU.
    pub is_woken: bool,
    /// Who ran there for the longest part of it, as far as the last 32 that are known to have run there tell;
    /// 0 is the idle thread.
    pub instead_tid: Option<Tid>,
    /// Its name.
    pub instead: String,
    /// For how much of the wait.
    pub instead_ns: u64,
    /// How many others ran there meanwhile, as far as that.
    pub others: usize,
}

impl State {
    /// A thread that is seen for the first time.
    fn new(does: Does, since: u64, losses: u64) -> Self {
        Self { does, since, unknown_since: since, losses, told: Told::default() }
    }
}

impl Sched {
    /// An analysis of a part of a recording.
    pub fn new(scope: Scope) -> Self {
        let (threads, cpus, worst) = (Threads::default(), BTreeMap::new(), Vec::new());
        let (begin, first_switch, room) = (None, None, Room::default());
        Self { scope, threads, cpus, begin, first_switch, losses: 0, worst, room }
    }

    /// A thread changes what it does. Gives what it did until now, if that is known, and for how long.
    fn turn(&mut self, tid: Tid, name: &[u8], does: Does, at: At) -> Option<(Does, u64)> {
        let (begin, losses, scope) = (self.begin.unwrap_or(at.time), self.losses, &self.scope);
        let (_, thread) = self.threads.find(tid, || State::new(Does::Unknown, begin, losses))?;
        thread.is_called(name);
        let state = &mut thread.of;
        let did = if state.losses == losses { state.does } else { Does::Unknown };
        let part = if scope.has_cpu(at.cpu) { scope.part(state.since, at.time) } else { 0 };
        state.told.add(did, part);
        let time = at.time.saturating_sub(state.since);
        state.unknown_since = if did == Does::Unknown { state.since } else { at.time };
        (state.does, state.since, state.losses) = (does, at.time, losses);
        Some((did, time))
    }

    fn switch(&mut self, at: At, switch: &Switch<'_>, follows: Follows) {
        self.vacate(at.cpu, switch.prev);
        for (tid, name, is_followed) in
            [(switch.prev, switch.prev_comm, follows.current), (switch.next, switch.next_comm, follows.other)]
        {
            if !is_followed {
                self.show_other(at, tid, name);
            }
        }
        let on_cpu = self.take_cpu(at, switch, follows);
        if switch.prev != 0 && follows.current {
            self.put_off(at, switch, on_cpu, follows.every_cpu);
        }
        if switch.next != 0 && follows.other {
            self.put_on(at, switch);
        }
    }

    /// A thread is there that the recording does not follow; perhaps not any more, as it has another name.
    fn show_other(&mut self, at: At, tid: Tid, name: &[u8]) {
        self.forget(tid);
        if self.scope.others && tid != 0 {
            self.turn(tid, name, Does::Unknown, at);
        }
    }

    /// A thread has a CPU: any other that was thought to have it has not.
    fn vacate(&mut self, cpu: u32, tid: Tid) {
        let current = self.cpus.get(&cpu).and_then(|cpu| cpu.current);
        if let Some(other) = current.filter(|other| *other != tid && *other != 0) {
            self.leave_unseen(other);
        }
    }

    /// A thread has left its CPU without a record. It ran up to the last event that shows it there.
    fn leave_unseen(&mut self, tid: Tid) {
        let Some(thread) = self.threads.current(tid) else { return };
        let Does::Runs(number) = thread.of.does else { return };
        let Some(cpu) = self.cpus.get_mut(&number).filter(|cpu| cpu.current == Some(tid)) else {
            thread.of.does = Does::Unknown;
            return;
        };
        let (since, seen) = (cpu.since, cpu.seen.max(cpu.since));
        cpu.count(seen, &self.scope);
        cpu.current = None;
        let at = At { time: seen, cpu: number };
        self.has_run(at, tid, since);
        self.turn(tid, b"", Does::Unknown, at);
    }

    /// What a thread did up to now is not known.
    fn forget(&mut self, tid: Tid) {
        self.leave_unseen(tid);
        if let Some(thread) = self.threads.current(tid) {
            thread.of.does = Does::Unknown;
        }
    }

    /// An event shows that a thread has the CPU.
    fn see(&mut self, at: At, tid: Tid, is_followed: bool) {
        // Before the first switch there is nobody else. An event of the same time may come from another
        // buffer, whose order is not known.
        let Some(cpu) = self.cpus.get_mut(&at.cpu).filter(|cpu| at.time > cpu.since) else { return };
        if cpu.current == Some(tid) {
            cpu.seen = at.time;
            return;
        }
        // 0 is also the thread of events whose thread is not known.
        if tid == 0 {
            return;
        }
        self.vacate(at.cpu, tid);
        self.forget(tid);
        if let Some(cpu) = self.cpus.get_mut(&at.cpu) {
            // Also of the idle thread it is not known how long it stayed.
            cpu.current = None;
            cpu.count(at.time, &self.scope);
            (cpu.seen, cpu.current) = (at.time, is_followed.then_some(tid));
        }
        if is_followed {
            self.turn(tid, b"", Does::Runs(at.cpu), at);
        }
    }

    /// The CPU goes to another thread. Gives for how long the one before had it, if that is known.
    fn take_cpu(&mut self, at: At, switch: &Switch<'_>, follows: Follows) -> Option<u64> {
        let first = *self.first_switch.get_or_insert(at.time);
        // Nobody else ran there before: there was no switch.
        let prev = follows.current.then_some(switch.prev);
        let cpu = self.cpus.entry(at.cpu).or_insert_with(|| match prev.filter(|_| follows.from_begin) {
            Some(prev) => Cpu::new(first, Some(prev)),
            None => Cpu::new(first, None),
        });
        cpu.current = cpu.current.filter(|current| Some(*current) == prev);
        let (is_known, since) = (cpu.current.is_some(), cpu.since);
        cpu.count(at.time, &self.scope);
        if is_known {
            cpu.ran.push(Run::new(switch, since, at.time));
        }
        (cpu.seen, cpu.current) = (at.time, follows.other.then_some(switch.next));
        cpu.switches += u64::from(self.scope.has(at));
        is_known.then(|| at.time.saturating_sub(since))
    }

    /// A thread gives its CPU away.
    fn put_off(&mut self, at: At, switch: &Switch<'_>, on_cpu: Option<u64>, sees_every_cpu: bool) {
        let next = match state::off(switch.prev_state) {
            // It may run on another one.
            Some(_) if !sees_every_cpu => Does::Unknown,
            Some(Off::Preempted) => Does::Waits(Reason::Preempted),
            Some(Off::Sleeping) => Does::Sleeps,
            Some(Off::Blocked) => Does::Blocked,
            Some(Off::Stopped) => Does::Stopped,
            None => Does::Ended,
        };
        match on_cpu {
            Some(time) => self.has_run(at, switch.prev, at.time.saturating_sub(time)),
            None => self.forget(switch.prev),
        }
        self.turn(switch.prev, switch.prev_comm, next, at);
        if next == Does::Ended {
            self.threads.end(switch.prev);
        }
    }

    /// A thread has run since then: its CPU says so, whatever else is known of it.
    fn has_run(&mut self, at: At, tid: Tid, since: u64) {
        let (begin, losses, scope) = (self.begin.unwrap_or(since), self.losses, &self.scope);
        let Some((_, thread)) = self.threads.find(tid, || State::new(Does::Unknown, begin, losses)) else {
            return;
        };
        let state = &mut thread.of;
        let part = |from, to| if scope.has_cpu(at.cpu) { scope.part(from, to) } else { 0 };
        // It was seen to do something else meanwhile.
        if since < state.unknown_since {
            state.does = Does::Unknown;
            return;
        }
        // One that was woken before it was seen to run, or after a loss: what it did until then was not
        // known.
        let seen_late = part(since, state.since);
        state.told.unknown = state.told.unknown.saturating_sub(seen_late);
        state.told.add(Does::Runs(at.cpu), seen_late);
        state.told.add(Does::Unknown, part(state.since, since));
        (state.does, state.since, state.losses) = (Does::Runs(at.cpu), since.max(state.since), losses);
    }

    /// A thread gets a CPU.
    fn put_on(&mut self, at: At, switch: &Switch<'_>) {
        self.leave_unseen(switch.next);
        let did = self.turn(switch.next, switch.next_comm, Does::Runs(at.cpu), at);
        if !self.scope.has(at) {
            return;
        }
        let Some((_, thread)) = self.threads.find(switch.next, || State::new(Does::Unknown, at.time, 0))
        else {
            return;
        };
        thread.of.told.switches += 1;
        let Some((Does::Waits(reason), wait)) = did else { return };
        let times = match reason {
            Reason::Woken => &mut thread.of.told.woken,
            Reason::Preempted => &mut thread.of.told.preempted,
        };
        times.add_within(wait, at.time, &mut self.room);
        let is_worst =
            self.worst.len() < WORST || self.worst.last().is_some_and(|least| wait > least.wait_ns);
        if !is_worst || !self.scope.has_thread(switch.next, &thread.name) {
            return;
        }
        self.worst.truncate(WORST - 1);
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let instead = self
            .cpus
            .get(&at.cpu)
            .map_or_else(Instead::default, |cpu| cpu.ran.most_since(at.time.saturating_sub(wait)));
        self.worst.push(Waited {
            tid: switch.next,
            comm: text(&thread.name),
            wait_ns: wait,
            at_ns: at.time,
            cpu: at.cpu,
            is_woken: reason == Reason::Woken,
            instead_tid: instead.tid,
            instead: text(&instead.name),
            instead_ns: instead.ns,
            others: instead.others,
        });
        self.worst.sort_by_key(|waited| std::cmp::Reverse(waited.wait_ns));
    }

    /// A thread is woken.
    fn wake(&mut self, at: At, tid: Tid, name: &[u8]) {
        let losses = self.losses;
        let (begin, scope_at) = (self.begin.unwrap_or(at.time), at);
        let Some((_, thread)) = self.threads.find(tid, || State::new(Does::Unknown, begin, losses)) else {
            return;
        };
        let state = &thread.of;
        // One that runs or was woken already is only told so again.
        if state.losses == losses && matches!(state.does, Does::Runs(_) | Does::Waits(_)) {
            thread.is_called(name);
            return;
        }
        self.turn(tid, name, Does::Waits(Reason::Woken), scope_at);
    }
}

impl Cpu {
    /// Counts the time up to now as that of who runs there.
    fn count(&mut self, until: u64, scope: &Scope) {
        let sum = match self.current {
            None => &mut self.unknown,
            Some(0) => &mut self.idle,
            Some(_) => &mut self.busy,
        };
        *sum = sum.saturating_add(scope.part(self.since, until));
        self.since = until;
    }

    /// One of which nothing else is known.
    fn new(since: u64, current: Option<Tid>) -> Self {
        Self { ran: Ran::default(), since, current, seen: since, busy: 0, idle: 0, unknown: 0, switches: 0 }
    }
}

impl Told {
    fn add(&mut self, did: Does, time: u64) {
        let sum = match did {
            Does::Unknown => &mut self.unknown,
            Does::Runs(_) => &mut self.runs,
            Does::Waits(_) => &mut self.waits,
            Does::Sleeps => &mut self.sleeps,
            Does::Blocked => &mut self.blocked,
            Does::Stopped => &mut self.stopped,
            Does::Ended => return,
        };
        *sum = sum.saturating_add(time);
    }
}

impl Analysis for Sched {
    type Answer = SchedAnswer;

    const TOPIC: Option<Topic> = Some(Topic::Sched);

    fn begins(&mut self, time: u64) {
        self.begin = Some(time);
    }

    fn look(&mut self, at: At, event: &Event<'_>) {
        self.begin.get_or_insert(at.time);
        if let Some(tid) = event.tid.filter(|_| !matches!(event.known, Known::Switch(_))) {
            self.see(at, tid, event.follows.current);
        }
        match &event.known {
            Known::Switch(switch) => self.switch(at, switch, event.follows),
            Known::Wakeup(wakeup) if wakeup.tid != 0 => match event.follows {
                Follows { other: true, every_cpu: true, .. } => self.wake(at, wakeup.tid, wakeup.comm),
                Follows { other: true, .. } => {}
                Follows { .. } => self.show_other(at, wakeup.tid, wakeup.comm),
            },
            Known::Migrate { tid } if event.follows.other => {
                let (begin, losses, is_asked) =
                    (self.begin.unwrap_or(at.time), self.losses, self.scope.has(at));
                if let Some((_, thread)) =
                    self.threads.find(*tid, || State::new(Does::Unknown, begin, losses))
                {
                    thread.of.told.migrations += u64::from(is_asked);
                }
            }
            Known::Fork { child, comm } if event.follows.other => {
                // Until it is woken for the first time, it is being made.
                let does = if event.follows.every_cpu { Does::Sleeps } else { Does::Unknown };
                let state = State::new(does, at.time, self.losses);
                if let Some(thread) = self.threads.begin(*child, state) {
                    thread.is_called(comm);
                }
            }
            Known::Fork { child, .. } => self.threads.end(*child),
            Known::Renamed { tid, comm: Some(comm) } if event.follows.other => {
                let (begin, losses) = (self.begin.unwrap_or(at.time), self.losses);
                if let Some((_, thread)) =
                    self.threads.find(*tid, || State::new(Does::Unknown, begin, losses))
                {
                    thread.is_called(comm);
                }
            }
            Known::Freed { tid } => self.threads.end(*tid),
            _ => {}
        }
    }

    fn lost(&mut self, at: At) {
        self.begin.get_or_insert(at.time);
        self.losses += 1;
        let since = self.first_switch.unwrap_or(at.time);
        self.cpus.entry(at.cpu).or_insert(Cpu::new(since, None)).current = None;
    }

    fn restart(&mut self, from: u64) {
        self.scope.from = Some(from);
        self.worst.clear();
        self.room = Room::default();
        self.threads.forget_ended();
        for thread in self.threads.iter_mut() {
            thread.of.told = Told::default();
        }
        for cpu in self.cpus.values_mut() {
            (cpu.busy, cpu.idle, cpu.unknown, cpu.switches) = (0, 0, 0, 0);
        }
    }

    fn answer(self, end: u64, names: &Names<'_>) -> SchedAnswer {
        let Self { scope, threads, cpus, losses, worst, .. } = self;
        let (mut woken, mut preempted) = (Times::default(), Times::default());
        let mut answer = SchedAnswer { worst, ..SchedAnswer::default() };
        for (number, mut cpu) in cpus {
            if !scope.has_cpu(number) {
                continue;
            }
            cpu.count(end, &scope);
            answer.cpus.push(CpuTime {
                cpu: number,
                busy_ns: cpu.busy,
                idle_ns: cpu.idle,
                unknown_ns: cpu.unknown,
                switches: cpu.switches,
            });
        }
        let (all, left_out) = threads.into_parts();
        for thread in all {
            let name = names.of_thread(thread.tid, &thread.name);
            if thread.tid == 0 || !scope.has_thread(thread.tid, name) {
                continue;
            }
            let State { does, since, losses: known, mut told, .. } = thread.of;
            // The end is on no CPU; where some were asked about, it is none of them.
            if scope.cpus.is_none() {
                told.add(if known == losses { does } else { Does::Unknown }, scope.part(since, end));
            }
            woken.merge(&told.woken);
            preempted.merge(&told.preempted);
            answer.threads.push(ThreadTime {
                tid: thread.tid,
                comm: names.thread_text(thread.tid, &thread.name),
                run_ns: told.runs,
                wait_ns: told.waits,
                sleep_ns: told.sleeps,
                blocked_ns: told.blocked,
                stopped_ns: told.stopped,
                unknown_ns: told.unknown,
                switches: told.switches,
                migrations: told.migrations,
                woken: told.woken.told(),
                preempted: told.preempted.told(),
            });
        }
        answer.threads.sort_by(|one, other| other.run_ns.cmp(&one.run_ns).then(one.tid.cmp(&other.tid)));
        (answer.woken, answer.preempted, answer.threads_left_out) =
            (woken.told(), preempted.told(), left_out);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Context, Followed, Wakeup, random::Random};
    use super::*;

    const R: u64 = 0;
    const S: u64 = 1;
    const D: u64 = 2;
    const X: u64 = 0x10;

    struct Story(Sched);

    impl Story {
        fn at(&mut self, time: u64, cpu: u32, known: Known<'_>) {
            self.0.look(At { time, cpu }, &Event::whole(None, Context::Thread, known));
        }

        fn switch(&mut self, time: u64, cpu: u32, (prev, prev_state): (Tid, u64), next: Tid) {
            let name = |tid: Tid| match tid {
                0 => &b"swapper"[..],
                7 => b"seven",
                8 => b"eight",
                _ => b"other",
            };
            let (prev_comm, next_comm) = (name(prev), name(next));
            self.at(time, cpu, Known::Switch(Switch { prev, prev_comm, prev_state, next, next_comm }));
        }

        fn wake(&mut self, time: u64, cpu: u32, tid: Tid) {
            self.at(time, cpu, Known::Wakeup(Wakeup { tid, comm: b"", is_new: false }));
        }
    }

    fn of(answer: &SchedAnswer, tid: Tid) -> ThreadTime {
        answer.threads.iter().find(|thread| thread.tid == tid).cloned().unwrap()
    }

    fn spans(thread: &ThreadTime) -> [u64; 5] {
        [thread.run_ns, thread.wait_ns, thread.sleep_ns, thread.blocked_ns, thread.unknown_ns]
    }

    /// 7 runs, is preempted by 8, runs again, sleeps, is woken and waits for 8, and ends.
    fn story(scope: &Scope) -> SchedAnswer {
        let mut story = Story(Sched::new(scope.clone()));
        story.wake(100, 0, 8);
        story.switch(110, 0, (7, R), 8);
        story.switch(150, 0, (8, D), 7);
        story.switch(180, 0, (7, S), 0);
        story.wake(200, 1, 8);
        story.switch(205, 0, (0, R), 8);
        story.wake(210, 1, 7);
        // Of one that is awake nothing is new.
        story.wake(220, 1, 7);
        story.wake(225, 1, 8);
        story.switch(260, 0, (8, S), 7);
        story.switch(300, 0, (7, X), 0);
        story.0.answer(400, &Names::none())
    }

    #[test]
    fn what_threads_did_adds_up_to_the_recording() {
        let answer = story(&Scope::default());
        let (seven, eight) = (of(&answer, 7), of(&answer, 8));
        // What it did before the first switch is not known.
        assert_eq!(spans(&seven), [30 + 40, 40 + 50, 30, 0, 10]);
        assert_eq!(spans(&eight), [40 + 55, 10 + 5, 140, 50, 0]);
        assert_eq!((seven.comm.as_str(), seven.switches, eight.switches), ("seven", 2, 2));
        assert_eq!((seven.woken.count, seven.woken.most_ns, seven.woken.most_at_ns), (1, 50, Some(260)));
        assert_eq!((seven.preempted.count, seven.preempted.total_ns), (1, 40));
        assert_eq!((eight.woken.count, eight.woken.total_ns, eight.woken.least_ns), (2, 15, 5));
        assert_eq!((answer.woken.count, answer.preempted.count), (3, 1));
        let cpu = CpuTime { cpu: 0, busy_ns: 70 + 95, idle_ns: 25 + 100, unknown_ns: 0, switches: 6 };
        assert_eq!(answer.cpus, [cpu]);
        let worst = &answer.worst[0];
        assert_eq!((worst.tid, worst.wait_ns, worst.at_ns, worst.is_woken), (7, 50, 260, true));
        let instead = (worst.instead_tid, worst.instead.as_str(), worst.instead_ns, worst.others);
        assert_eq!(instead, (Some(8), "eight", 50, 0));
    }

    #[test]
    fn a_part_of_it_is_cut_at_its_ends() {
        let scope = Scope { from: Some(140), to: Some(265), ..Scope::default() };
        let mut answer = story(&scope);
        // What comes behind the end is not looked at: here it was.
        answer = SchedAnswer { threads: answer.threads, ..SchedAnswer::default() };
        let (seven, eight) = (of(&answer, 7), of(&answer, 8));
        assert_eq!(spans(&seven), [30 + 5, 10 + 50, 30, 0, 0]);
        assert_eq!(spans(&eight), [10 + 55, 5, 5, 50, 0]);
    }

    #[test]
    fn what_lasted_over_a_loss_is_unknown() {
        let scope = Scope::default();
        let mut story = Story(Sched::new(scope));
        story.switch(0, 0, (0, R), 7);
        story.switch(10, 0, (7, S), 8);
        story.0.lost(At { time: 30, cpu: 1 });
        story.switch(40, 0, (8, R), 7);
        story.switch(50, 0, (7, S), 8);
        let answer = story.0.answer(60, &Names::none());
        // What happened on CPU 1 cannot change who ran on CPU 0; it can change who slept.
        assert_eq!(spans(&of(&answer, 7)), [10 + 10, 0, 10, 0, 30]);
        assert_eq!(spans(&of(&answer, 8)), [30 + 10, 10, 0, 0, 10]);
        let unknown: Vec<_> = answer.cpus.iter().map(|cpu| (cpu.cpu, cpu.busy_ns, cpu.unknown_ns)).collect();
        assert_eq!(unknown, [(0, 60, 0), (1, 0, 60)]);
        assert_eq!(answer.woken.count + answer.preempted.count, 1, "the wait of 8 after the loss");
    }

    #[test]
    fn a_loss_on_a_cpu_leaves_open_who_ran_there() {
        let mut story = Story(Sched::new(Scope::default()));
        story.switch(0, 0, (0, R), 7);
        // A recording of a CPU that begins with a loss.
        story.0.lost(At { time: 5, cpu: 1 });
        story.switch(5, 1, (9, S), 0);
        story.0.lost(At { time: 20, cpu: 0 });
        story.switch(20, 0, (7, R), 8);
        story.switch(30, 0, (8, S), 0);
        let answer = story.0.answer(40, &Names::none());
        assert_eq!(spans(&of(&answer, 7)), [0, 20, 0, 0, 20]);
        assert_eq!(spans(&of(&answer, 8)), [10, 0, 10, 0, 20]);
        let times: Vec<_> =
            answer.cpus.iter().map(|cpu| [cpu.busy_ns, cpu.idle_ns, cpu.unknown_ns]).collect();
        assert_eq!(times, [[10, 10, 20], [0, 35, 5]]);
    }

    #[test]
    fn one_that_is_woken_before_it_is_seen_to_run_has_run() {
        let mut story = Story(Sched::new(Scope::default()));
        story.switch(0, 0, (0, R), 8);
        // It was about to sleep on CPU 1, where it has run all the time.
        story.wake(30, 0, 7);
        story.switch(50, 1, (7, R), 9);
        story.switch(60, 1, (9, S), 7);
        let answer = story.0.answer(60, &Names::none());
        assert_eq!(spans(&of(&answer, 7)), [50, 10, 0, 0, 0]);
        assert_eq!((answer.woken.count, answer.preempted.count), (0, 1));
    }

    #[test]
    fn times_of_a_hostile_file_are_not_too_many() {
        let mut story = Story(Sched::new(Scope::default()));
        for cpu in 0..4 {
            story.switch(0, cpu, (0, R), 7);
        }
        for cpu in (0..4).rev() {
            story.switch(u64::MAX, cpu, (7, R), 0);
        }
        story.0.lost(At { time: 3, cpu: 0 });
        story.switch(5, 0, (7, R), 0);
        let answer = story.0.answer(u64::MAX, &Names::none());
        assert_eq!(of(&answer, 7).run_ns, u64::MAX);
    }

    #[test]
    fn an_id_of_a_new_thread_is_not_the_old_one() {
        let scope = Scope::default();
        let mut story = Story(Sched::new(scope));
        story.switch(0, 0, (0, R), 7);
        story.switch(10, 0, (7, X), 0);
        story.at(20, 1, Known::Fork { child: 7, comm: b"new" });
        story.at(20, 1, Known::Wakeup(Wakeup { tid: 7, comm: b"new", is_new: true }));
        story.switch(25, 0, (0, R), 7);
        let answer = story.0.answer(30, &Names::none());
        let seven: Vec<_> = answer.threads.iter().map(|thread| (thread.run_ns, thread.wait_ns)).collect();
        assert_eq!(seven, [(10, 0), (5, 5)]);
    }

    #[test]
    fn a_thread_runs_up_to_the_last_event_that_shows_it() {
        let mut story = Story(Sched::new(Scope::default()));
        story.switch(0, 0, (0, R), 7);
        // 7 wakes somebody, and was never seen to leave.
        let wakeup = Known::Wakeup(Wakeup { tid: 9, comm: b"", is_new: false });
        story.0.look(At { time: 20, cpu: 0 }, &Event::whole(Some(7), Context::Thread, wakeup));
        story.switch(50, 0, (8, S), 0);
        story.switch(80, 0, (0, R), 7);
        story.switch(90, 0, (7, S), 0);
        let answer = story.0.answer(100, &Names::none());
        assert_eq!(spans(&of(&answer, 7)), [20 + 10, 0, 10, 0, 60]);
        assert_eq!(spans(&of(&answer, 8)), [0, 0, 50, 0, 50]);
        let cpu = answer.cpus[0];
        assert_eq!([cpu.busy_ns, cpu.idle_ns, cpu.unknown_ns], [20 + 10, 30 + 10, 30]);
    }

    #[test]
    fn an_event_of_another_thread_ends_the_time_of_the_former_one() {
        let mut story = Story(Sched::new(Scope::default()));
        story.switch(0, 0, (0, R), 7);
        let wakeup = Known::Wakeup(Wakeup { tid: 9, comm: b"", is_new: false });
        let event = |tid| Event::whole(Some(tid), Context::Thread, wakeup);
        story.0.look(At { time: 40, cpu: 0 }, &event(8));
        story.0.look(At { time: 60, cpu: 0 }, &event(8));
        // An event without a thread says nothing.
        story.0.look(At { time: 70, cpu: 0 }, &event(0));
        story.switch(90, 1, (7, S), 0);
        let answer = story.0.answer(100, &Names::none());
        assert_eq!(spans(&of(&answer, 7)), [90, 0, 10, 0, 0], "as CPU 1 says");
        assert_eq!(spans(&of(&answer, 8)), [60, 0, 0, 0, 40]);
        let cpu = answer.cpus[0];
        assert_eq!([cpu.busy_ns, cpu.idle_ns, cpu.unknown_ns], [60, 0, 40]);
    }

    /// Whole recordings, of which switches are missing at random without a mark, as where threads are hidden
    /// or the recording has some threads only.
    #[test]
    fn no_cpu_is_busy_for_longer_than_it_is_there() {
        const CPUS: u32 = 3;
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut below = |end| random.below(end);
        for round in 0..400 {
            let dropped = below(100);
            let mut story = Story(Sched::new(Scope::default()));
            let (mut current, mut time) = ([0; CPUS as usize], 0);
            for _ in 0..200 {
                time += below(20);
                let cpu = below(CPUS.into()) as usize;
                let free: Vec<Tid> = (1..8).filter(|tid| !current.contains(tid)).chain([0]).collect();
                let next = free[below(free.len() as u64) as usize];
                let (prev, state) = (current[cpu], [R, S, D][below(3) as usize]);
                let is_kept = below(100) >= dropped;
                if below(3) == 0 {
                    let known = Known::Wakeup(Wakeup { tid: 1 + below(7) as Tid, comm: b"", is_new: false });
                    let event = Event::whole(Some(prev), Context::Thread, known);
                    if is_kept {
                        story.0.look(At { time, cpu: cpu as u32 }, &event);
                    }
                } else if next != prev {
                    current[cpu] = next;
                    if is_kept {
                        story.switch(time, cpu as u32, (prev, state), next);
                    }
                }
            }
            let begin = story.0.begin.unwrap_or(time);
            let answer = story.0.answer(time, &Names::none());
            let first = answer.cpus.iter().map(|cpu| cpu.busy_ns + cpu.idle_ns + cpu.unknown_ns).max();
            for cpu in &answer.cpus {
                let sum = cpu.busy_ns + cpu.idle_ns + cpu.unknown_ns;
                assert!(sum <= time - begin && Some(sum) == first, "{round}: {cpu:?}");
            }
            let busy: u64 = answer.cpus.iter().map(|cpu| cpu.busy_ns).sum();
            let ran: u64 = answer.threads.iter().map(|thread| thread.run_ns).sum();
            assert!(ran <= busy, "{round}: {dropped} % dropped: {ran} of {busy}: {answer:?}");
            if dropped == 0 {
                assert_eq!(ran, busy, "{round}");
            }
            for thread in &answer.threads {
                let all = spans(thread).iter().sum::<u64>() + thread.stopped_ns;
                assert!(all <= time - begin, "{round}: {thread:?}");
            }
        }
    }

    /// Whole recordings, and of each the records that it would have of some threads.
    #[test]
    fn a_recording_of_some_threads_says_no_more_than_the_whole_one() {
        const CPUS: u32 = 3;
        let mut random = Random(0x2545_f491_4f6c_dd1d);
        let mut below = |end| random.below(end);
        let (mut known, mut all) = (0, 0);
        for round in 0..400 {
            let chosen: Vec<bool> = (0..8).map(|tid| tid != 0 && below(2) == 0).collect();
            let has = |tid: Tid| chosen[tid as usize];
            let (mut whole, mut part) =
                (Story(Sched::new(Scope::default())), Story(Sched::new(Scope::default())));
            let mut followed = Followed::told(&["the command"]);
            let (mut current, mut time) = ([0; CPUS as usize], 0);
            for _ in 0..300 {
                time += 1 + below(20);
                let cpu = below(CPUS.into()) as usize;
                let free: Vec<Tid> = (1..8).filter(|tid| !current.contains(tid)).chain([0]).collect();
                let other = free[below(free.len() as u64) as usize];
                let (prev, prev_state) = (current[cpu], [R, S, D][below(3) as usize]);
                let (known, is_kept) = match below(4) {
                    0 if prev != 0 => {
                        if has(prev) {
                            followed.show(prev);
                        }
                        (Known::Exec { tid: prev }, has(prev))
                    }
                    1 if other != 0 => {
                        let wakeup = Wakeup { tid: other, comm: b"", is_new: false };
                        (Known::Wakeup(wakeup), has(prev) || has(other))
                    }
                    _ if other != prev => {
                        current[cpu] = other;
                        let (prev_comm, next_comm) = (b"", b"");
                        let switch = Switch { prev, prev_comm, prev_state, next: other, next_comm };
                        (Known::Switch(switch), has(prev) || has(other))
                    }
                    _ => continue,
                };
                let at = At { time, cpu: cpu as u32 };
                let mut event = Event::whole(Some(prev), Context::Thread, known);
                whole.0.look(at, &event);
                if is_kept {
                    followed.mark(&mut event);
                    part.0.look(at, &event);
                }
            }
            let (whole, part) = (whole.0.answer(time, &Names::none()), part.0.answer(time, &Names::none()));
            for thread in &part.threads {
                assert!(has(thread.tid), "{round}: {thread:?}");
                let (some, whole) = (spans(thread), spans(&of(&whole, thread.tid)));
                // What is unknown to the whole one as well is the time before the first event.
                let is_less = some[..4].iter().zip(&whole[..4]).all(|(some, whole)| some <= whole);
                assert!(is_less, "{round}: {} is {some:?} of {whole:?}", thread.tid);
                known += some[..4].iter().sum::<u64>();
                all += whole[..4].iter().sum::<u64>();
            }
            for cpu in &part.cpus {
                let whole = whole.cpus.iter().find(|of| of.cpu == cpu.cpu).unwrap();
                assert!(cpu.busy_ns <= whole.busy_ns && cpu.idle_ns == 0, "{round}: {cpu:?} {whole:?}");
            }
            for (some, whole) in [(&part.woken, &whole.woken), (&part.preempted, &whole.preempted)] {
                assert!(
                    some.count <= whole.count && some.most_ns <= whole.most_ns,
                    "{round}: {some:?} {whole:?}"
                );
            }
        }
        assert!(known > all / 2, "{known} of {all}");
    }

    /// The same of a choice by names, which threads change while they run: what a recorder of a name has, the
    /// switch away from whoever got a CPU as one that is recorded included.
    #[test]
    fn threads_that_change_their_names_are_known_while_they_are_recorded() {
        const CPUS: u32 = 3;
        let mut random = Random(0x9e6c_63d0_876a_3f6b);
        let mut below = |end| random.below(end);
        let (mut known, mut all) = (0, 0);
        for round in 0..400 {
            let mut chosen: Vec<bool> = (0..8).map(|tid| tid != 0 && below(2) == 0).collect();
            let (mut whole, mut part) =
                (Story(Sched::new(Scope::default())), Story(Sched::new(Scope::default())));
            let mut followed = Followed::told(&["threads named in"]);
            let (mut current, mut owed, mut time) = ([0; CPUS as usize], [None; CPUS as usize], 0);
            for _ in 0..300 {
                time += 1 + below(20);
                let cpu = below(CPUS.into()) as usize;
                let free: Vec<Tid> = (1..8).filter(|tid| !current.contains(tid)).chain([0]).collect();
                let other = free[below(free.len() as u64) as usize];
                let (prev, prev_state) = (current[cpu], [R, S, D][below(3) as usize]);
                let name = |is_chosen: bool| if is_chosen { &b"in"[..] } else { b"out" };
                let [of_prev, of_other] = [prev, other].map(|tid| chosen[tid as usize]);
                let (known, is_kept) = match below(6) {
                    0 if prev != 0 => {
                        chosen[prev as usize] = below(2) == 0;
                        let comm = Some(name(chosen[prev as usize]));
                        (Known::Renamed { tid: prev, comm }, of_prev)
                    }
                    1 if other != 0 => {
                        let wakeup = Wakeup { tid: other, comm: name(of_other), is_new: false };
                        (Known::Wakeup(wakeup), of_prev || of_other)
                    }
                    _ if other != prev => {
                        let is_owed = owed[cpu] == Some(prev);
                        (current[cpu], owed[cpu]) = (other, of_other.then_some(other));
                        let (prev_comm, next_comm) = (name(of_prev), name(of_other));
                        let switch = Switch { prev, prev_comm, prev_state, next: other, next_comm };
                        (Known::Switch(switch), of_prev || of_other || is_owed)
                    }
                    _ => continue,
                };
                let at = At { time, cpu: cpu as u32 };
                let mut event = Event::whole(Some(prev), Context::Thread, known);
                whole.0.look(at, &event);
                if is_kept {
                    followed.mark(&mut event);
                    part.0.look(at, &event);
                }
            }
            let (whole, part) = (whole.0.answer(time, &Names::none()), part.0.answer(time, &Names::none()));
            for thread in &part.threads {
                let (some, whole) = (thread.run_ns, of(&whole, thread.tid).run_ns);
                assert!(some <= whole, "{round}: {} ran {some} of {whole}", thread.tid);
                known += some;
                all += whole;
            }
            let sum = |answer: &SchedAnswer| answer.threads.iter().map(|thread| thread.run_ns).sum::<u64>();
            let busy = |answer: &SchedAnswer| answer.cpus.iter().map(|cpu| cpu.busy_ns).sum::<u64>();
            assert!(sum(&part) <= busy(&part) && busy(&part) <= busy(&whole), "{round}: {part:?}");
        }
        assert!(known > all / 3, "{known} of {all}");
    }

    #[test]
    fn on_some_cpus_nothing_is_known_of_threads_without_one() {
        let mut story = Story(Sched::new(Scope::default()));
        let mut followed = Followed::told(&["CPUs 0"]);
        let mut look = |time, known| {
            let mut event = Event::whole(Some(7), Context::Thread, known);
            followed.mark(&mut event);
            story.0.look(At { time, cpu: 0 }, &event);
        };
        let switch = |prev, prev_state, next| {
            Known::Switch(Switch { prev, prev_comm: b"", prev_state, next, next_comm: b"" })
        };
        look(0, Known::Fork { child: 9, comm: b"" });
        look(10, Known::Wakeup(Wakeup { tid: 9, comm: b"", is_new: true }));
        look(20, switch(7, S, 8));
        look(60, switch(8, S, 7));
        let answer = story.0.answer(100, &Names::none());
        assert_eq!(spans(&of(&answer, 7)), [40, 0, 0, 0, 60]);
        assert_eq!(spans(&of(&answer, 8)), [40, 0, 0, 0, 60]);
        assert_eq!(spans(&of(&answer, 9)), [0, 0, 0, 0, 100]);
    }
}
