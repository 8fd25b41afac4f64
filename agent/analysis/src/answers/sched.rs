//! How long threads ran, waited for a CPU, and slept, and how long CPUs were busy: sums of what
//! [`Schedule`] tells.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    Analysis, At, Event, Evidence, Known, Names, Scope, Tid, Times, TimesTold, Topic,
    ran::{Instead, Ran, Run},
    schedule::{Did, Does, Doing, Had, Moment, Observer, Schedule, Scheduled},
    state::Off,
    tally::Room,
    threads::{Index, Thread, Threads},
    topic::WAKEUP_EVENTS,
};

/// Waits that are named: the longest ones.
const WORST: usize = 10;

/// What is known of a thread.
#[derive(Clone, Debug)]
struct State {
    doing: Doing,
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
    /// It was seen to begin.
    is_new: bool,
}

/// The counts of a CPU.
#[derive(Clone, Debug, Default)]
struct Cpu {
    /// Who ran there last.
    ran: Ran,
    busy: u64,
    idle: u64,
    unknown: u64,
    switches: u64,
}

/// The analysis.
#[derive(Clone, Debug)]
pub struct Sched {
    threads: Threads<State>,
    schedule: Schedule,
    sums: Sums,
    evidence: Evidence,
}

/// The counts of CPUs, and of all threads together.
#[derive(Clone, Debug)]
struct Sums {
    scope: Scope,
    cpus: BTreeMap<u32, Cpu>,
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
    /// From a wakeup to the CPU, of all threads that were asked about. `None` if wakeups were not recorded.
    pub woken: Option<TimesTold>,
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
    /// It could have run. This and the next two are `None` if wakeups were not recorded, or of a new thread
    /// if the first one was not: when it sleeps no longer is not known.
    pub wait_ns: Option<u64>,
    /// It waited for something, and a signal could end that.
    pub sleep_ns: Option<u64>,
    /// It waited for something that no signal ends, such as a disk (`D`).
    pub blocked_ns: Option<u64>,
    /// It was stopped, or is traced.
    pub stopped_ns: Option<u64>,
    /// Before it was seen for the first time, and where events were lost.
    pub unknown_ns: u64,
    /// How often it got a CPU.
    pub switches: u64,
    /// How often it was moved to another CPU. `None` if that was not recorded.
    pub migrations: Option<u64>,
    /// From wakeups to the CPU. `None` if these were not recorded, or the first one of a new thread was not.
    pub woken: Option<TimesTold>,
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

impl Scheduled for State {
    fn new(doing: Doing) -> Self {
        Self { doing, told: Told::default() }
    }

    fn doing(&mut self) -> &mut Doing {
        &mut self.doing
    }
}

impl Sched {
    /// An analysis of a part of a recording.
    pub fn new(scope: Scope) -> Self {
        let schedule = Schedule::new(scope.others);
        let sums = Sums { scope, cpus: BTreeMap::new(), worst: Vec::new(), room: Room::default() };
        Self { threads: Threads::default(), schedule, sums, evidence: Evidence::all() }
    }

    /// What is counted of the thread with an id.
    fn told(&mut self, at: At, tid: Tid) -> Option<&mut Told> {
        let unseen = self.schedule.unseen(at.time);
        let found = self.threads.find(tid, || State::new(unseen));
        found.filter(|_| self.sums.scope.has(at)).map(|(_, thread)| &mut thread.of.told)
    }
}

impl Sums {
    /// A thread gets a CPU for which it has waited.
    fn waited(&mut self, thread: &mut Thread<State>, (time, cpu): (u64, u32), wait: u64, is_woken: bool) {
        let told = &mut thread.of.told;
        let times = if is_woken { &mut told.woken } else { &mut told.preempted };
        times.add_within(wait, time, &mut self.room);
        let is_worst =
            self.worst.len() < WORST || self.worst.last().is_some_and(|least| wait > least.wait_ns);
        if !is_worst || !self.scope.has_thread(thread.tid, &thread.name) {
            return;
        }
        self.worst.truncate(WORST - 1);
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let instead = (self.cpus.get(&cpu))
            .map_or_else(Instead::default, |cpu| cpu.ran.most_since(time.saturating_sub(wait)));
        self.worst.push(Waited {
            tid: thread.tid,
            comm: text(&thread.name),
            wait_ns: wait,
            at_ns: time,
            cpu,
            is_woken,
            instead_tid: instead.tid,
            instead: text(&instead.name),
            instead_ns: instead.ns,
            others: instead.others,
        });
        self.worst.sort_by_key(|waited| std::cmp::Reverse(waited.wait_ns));
    }
}

impl Observer<State> for Sums {
    fn did(&mut self, _: Index, thread: &mut Thread<State>, did: &Did) {
        let Did { does, since, until, .. } = *did;
        // The end is on no CPU; where some were asked about, it is none of them.
        let is_asked = did.cpu.map_or(self.scope.cpus.is_none(), |cpu| self.scope.has_cpu(cpu));
        if !is_asked {
            return;
        }
        thread.of.told.add(does, self.scope.part(since, until));
        let Some(cpu) = did.cpu else { return };
        if let (Does::Woken | Does::Off(Off::Preempted), Does::Runs(_)) = (does, did.next)
            && self.scope.has(At { time: until, cpu })
        {
            self.waited(thread, (until, cpu), until - since, does == Does::Woken);
        }
    }

    fn had(&mut self, had: &Had<'_>) {
        let part = self.scope.part(had.since, had.until);
        let cpu = self.cpus.entry(had.cpu).or_default();
        let sum = match had.tid {
            None => &mut cpu.unknown,
            Some(0) => &mut cpu.idle,
            Some(_) => &mut cpu.busy,
        };
        *sum = sum.saturating_add(part);
        if let Some(tid) = had.tid {
            cpu.ran.push(Run::new(tid, had.name, had.since, had.until));
        }
    }
}

impl Told {
    fn add(&mut self, did: Does, time: u64) {
        let sum = match did {
            Does::Unknown => &mut self.unknown,
            Does::Runs(_) => &mut self.runs,
            Does::Woken | Does::Off(Off::Preempted) => &mut self.waits,
            Does::Off(Off::Sleeping) => &mut self.sleeps,
            Does::Off(Off::Blocked) => &mut self.blocked,
            Does::Off(Off::Stopped) => &mut self.stopped,
            Does::Ended => return,
        };
        *sum = sum.saturating_add(time);
    }
}

impl Analysis for Sched {
    type Answer = SchedAnswer;

    const TOPIC: Option<Topic> = Some(Topic::Sched);

    const SEES_ALL: bool = true;

    fn begins(&mut self, time: u64) {
        self.schedule.begins(time);
    }

    fn look(&mut self, at: At, event: &Event<'_>) {
        let moment = Moment { time: at.time, cpu: at.cpu, event: 0 };
        self.schedule.look(moment, event, 0, &mut self.threads, &mut self.sums);
        match &event.known {
            Known::Switch(switch) => {
                self.sums.cpus.entry(at.cpu).or_default().switches += u64::from(self.sums.scope.has(at));
                if switch.next != 0
                    && event.follows.other
                    && let Some(told) = self.told(at, switch.next)
                {
                    told.switches += 1;
                }
            }
            Known::Begins { child, is_seen: true, .. } => {
                if let Some(told) = self.told(at, *child) {
                    told.is_new = true;
                }
            }
            Known::Migrate { tid } if event.follows.other => {
                if let Some(told) = self.told(at, *tid) {
                    told.migrations += 1;
                }
            }
            _ => {}
        }
    }

    fn lost(&mut self, at: At) {
        let at = Moment { time: at.time, cpu: at.cpu, event: 0 };
        self.schedule.lost(at, None, &mut self.threads, &mut self.sums);
    }

    fn restart(&mut self, from: u64) {
        self.sums.scope.from = Some(from);
        self.sums.worst.clear();
        self.sums.room = Room::default();
        self.threads.forget_ended();
        for thread in self.threads.iter_mut() {
            thread.of.told = Told::default();
        }
        for cpu in self.sums.cpus.values_mut() {
            (cpu.busy, cpu.idle, cpu.unknown, cpu.switches) = (0, 0, 0, 0);
        }
    }

    fn rests_on(&mut self, evidence: &Evidence) {
        self.evidence = evidence.clone();
    }

    fn answer(self, end: u64, names: &Names<'_>) -> SchedAnswer {
        let Self { schedule, mut threads, mut sums, evidence } = self;
        let knows_wakeups = evidence.has_any(WAKEUP_EVENTS) && evidence.has("sched:sched_switch");
        let knows_first = evidence.has("sched:sched_wakeup_new");
        let knows_moves = evidence.has("sched:sched_migrate_task");
        schedule.finish(end, &mut threads, &mut sums);
        let Sums { scope, cpus, worst, .. } = sums;
        let (mut woken, mut preempted) = (Times::default(), Times::default());
        let mut knows_all = knows_wakeups;
        let mut answer = SchedAnswer { worst, ..SchedAnswer::default() };
        for (number, cpu) in cpus.into_iter().filter(|(number, _)| scope.has_cpu(*number)) {
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
            let told = thread.of.told;
            let knows_wakeups = knows_wakeups && (knows_first || !told.is_new);
            knows_all &= knows_wakeups;
            woken.merge(&told.woken);
            preempted.merge(&told.preempted);
            answer.threads.push(ThreadTime {
                tid: thread.tid,
                comm: names.thread_text(thread.tid, &thread.name),
                run_ns: told.runs,
                wait_ns: knows_wakeups.then_some(told.waits),
                sleep_ns: knows_wakeups.then_some(told.sleeps),
                blocked_ns: knows_wakeups.then_some(told.blocked),
                stopped_ns: knows_wakeups.then_some(told.stopped),
                unknown_ns: told.unknown,
                switches: told.switches,
                migrations: knows_moves.then_some(told.migrations),
                woken: knows_wakeups.then(|| told.woken.told()),
                preempted: told.preempted.told(),
            });
        }
        answer.threads.sort_by(|one, other| other.run_ns.cmp(&one.run_ns).then(one.tid.cmp(&other.tid)));
        (answer.woken, answer.preempted, answer.threads_left_out) =
            (knows_all.then(|| woken.told()), preempted.told(), left_out);
        answer
    }
}

#[cfg(test)]
mod tests;
