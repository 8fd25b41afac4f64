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
        let had_it = prev.filter(|_| follows.from_begin);
        let cpu = self.cpus.entry(at.cpu).or_insert_with(|| Cpu::new(first, had_it));
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
mod tests;
