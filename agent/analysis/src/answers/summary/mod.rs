//! What happened, in short: what is busy, what is slow, and what is odd.
//!
//! It is made of the other analyses, and shows the first of what each of them has.

mod odd;

use serde::Serialize;

pub use self::odd::Oddity;
use super::{
    Analysis, At, Call, Calls, CpuTime, Event, Evidence, Io, IoDevice, Irq, Irqs, Known, Names, Sched, Scope,
    Softirq, ThreadTime, Tid, TimesTold, Topic, threads::bounded,
};
use ftrace_event::syscalls::CallNames;
use report::TraceFile;
use tracedat::reader::Source;

/// Most rows of each kind.
const ROWS: usize = 5;

/// Most events that are counted by name.
const EVENTS: usize = 10;

/// Most processes that are named because they were killed.
const KILLED: usize = 16;

/// Events that say which threads are new.
const NEW: &[&str] = &["sched:sched_process_fork", "task:task_newtask", "sched:sched_wakeup_new"];

/// A process that was killed because there was no memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Killed {
    tid: Tid,
    name: Box<[u8]>,
    at: u64,
}

/// The analysis.
#[derive(Clone, Debug)]
pub struct Summary {
    scope: Scope,
    /// Records by the number of their event.
    events: Vec<u64>,
    sched: Sched,
    calls: Calls,
    irqs: Irqs,
    /// With nothing about files.
    disks: Io,
    started: u64,
    killed: Vec<Killed>,
    killed_more: u64,
    evidence: Evidence,
}

/// What happened, in short.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SummaryAnswer {
    /// The events that there are most of.
    pub events: Vec<EventCount>,
    /// Records of all others.
    pub other_events: u64,
    /// The CPUs, by number.
    pub cpus: Vec<CpuTime>,
    /// How many threads did something that the events tell.
    pub threads: u64,
    /// How many of them were started meanwhile. `None` if no event tells it.
    pub started: Option<u64>,
    /// The threads that ran for the longest time.
    pub busiest: Vec<ThreadTime>,
    /// From a wakeup to the CPU, of all threads.
    pub woken: Option<TimesTold>,
    /// The system calls that took the longest time together.
    pub calls: Vec<Call>,
    /// The interrupts that took the longest time together.
    pub irqs: Vec<Irq>,
    /// The soft interrupts that took the longest time together.
    pub softirqs: Vec<Softirq>,
    /// The block devices whose requests took the longest time together.
    pub disks: Vec<IoDevice>,
    /// What is out of the ordinary, the gravest first.
    pub odd: Vec<Oddity>,
}

/// How many records an event has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EventCount {
    /// `system:name`; empty if the file does not describe it.
    pub event: String,
    /// Its number.
    pub id: u16,
    /// How many.
    pub count: u64,
}

impl Summary {
    /// An analysis of a part of a recording, of a machine with these system calls.
    pub fn new(scope: Scope, names: impl Into<CallNames>) -> Self {
        Self {
            events: Vec::new(),
            sched: Sched::new(scope.clone()),
            calls: Calls::new(scope.clone(), names),
            irqs: Irqs::new(scope.clone()),
            disks: Io::new(scope.clone(), CallNames::default()),
            started: 0,
            killed: Vec::new(),
            killed_more: 0,
            evidence: Evidence::all(),
            scope,
        }
    }

    /// An analysis of a part of a file, with the names of its devices if it has them.
    pub fn of<S: Source>(file: &TraceFile<S>, scope: Scope) -> Self {
        let disks = Io::of_devices(file, scope.clone());
        Self { disks, ..Self::new(scope, file.call_names()) }
    }

    fn kill(&mut self, at: At, tid: Tid, name: &[u8]) {
        if self.killed.len() >= KILLED {
            self.killed_more += 1;
            return;
        }
        let name = bounded(name).into();
        self.killed.push(Killed { tid, name, at: at.time });
    }

    /// The events with the most records, and how many the others have.
    fn counts(&self, names: &Names<'_>) -> (Vec<EventCount>, u64) {
        let name = |id| {
            let event = names.events.and_then(|events| events.get(id));
            event.map_or(String::new(), |event| format!("{}:{}", event.system(), event.name()))
        };
        let counted = self.events.iter().enumerate().filter(|(_, count)| **count != 0);
        let mut counts: Vec<EventCount> = counted
            .map(|(id, count)| EventCount { event: name(id as u16), id: id as u16, count: *count })
            .collect();
        // By name, as files of the same records may number events otherwise.
        counts.sort_by(|one, other| (other.count, &one.event).cmp(&(one.count, &other.event)));
        let rest = counts.split_off(counts.len().min(EVENTS));
        let more = rest.iter().map(|of| of.count).sum();
        (counts, more)
    }
}

impl Analysis for Summary {
    type Answer = SummaryAnswer;

    const TOPIC: Option<Topic> = Some(Topic::Summary);

    const SEES_ALL: bool = true;

    fn begins(&mut self, time: u64) {
        self.sched.begins(time);
        self.calls.begins(time);
        self.irqs.begins(time);
        self.disks.begins(time);
    }

    fn count(&mut self, at: At, id: u16) {
        if !self.scope.has(at) {
            return;
        }
        let id = usize::from(id);
        if self.events.len() <= id {
            self.events.resize(id + 1, 0);
        }
        self.events[id] += 1;
    }

    fn look(&mut self, at: At, event: &Event<'_>) {
        self.sched.look(at, event);
        self.calls.look(at, event);
        self.irqs.look(at, event);
        match event.known {
            Known::Begins { is_seen: true, .. } if self.scope.has(at) => self.started += 1,
            Known::OomVictim { tid, comm } if self.scope.has(at) => self.kill(at, tid, comm),
            Known::BlockInsert(_)
            | Known::BlockIssue(_)
            | Known::BlockRequeue { .. }
            | Known::BlockComplete { .. } => self.disks.look(at, event),
            _ => {}
        }
    }

    fn lost(&mut self, at: At) {
        self.sched.lost(at);
        self.calls.lost(at);
        self.irqs.lost(at);
        self.disks.lost(at);
    }

    fn restart(&mut self, from: u64) {
        self.scope.from = Some(from);
        self.events.clear();
        self.sched.restart(from);
        self.calls.restart(from);
        self.irqs.restart(from);
        self.disks.restart(from);
        self.started = 0;
        self.killed.clear();
        self.killed_more = 0;
    }

    fn rests_on(&mut self, evidence: &Evidence) {
        self.sched.rests_on(evidence);
        self.calls.rests_on(evidence);
        self.irqs.rests_on(evidence);
        self.disks.rests_on(evidence);
        self.evidence = evidence.clone();
    }

    fn answer(self, end: u64, names: &Names<'_>) -> SummaryAnswer {
        let knows_new = self.evidence.has_any(NEW);
        let (events, other_events) = self.counts(names);
        let Self { sched, calls, irqs, disks, started, killed, killed_more, .. } = self;
        let (sched, calls, irqs) =
            (sched.answer(end, names), calls.answer(end, names), irqs.answer(end, names));
        let disks = disks.answer(end, names).devices;
        let killed: Vec<_> = (killed.into_iter())
            .map(|of| Oddity::Killed { tid: of.tid, comm: names.thread_text(of.tid, &of.name), at_ns: of.at })
            .collect();
        let mut odd = odd::found(&sched, &calls, &irqs, &disks, killed);
        if killed_more != 0 {
            odd.insert(0, Oddity::MoreKilled { count: killed_more });
        }
        SummaryAnswer {
            events,
            other_events,
            cpus: sched.cpus,
            threads: sched.threads.len() as u64,
            started: knows_new.then_some(started),
            busiest: first(sched.threads, |of| of.run_ns != 0),
            woken: sched.woken,
            calls: first(calls.calls, |_| true),
            irqs: first(irqs.irqs, |_| true),
            softirqs: first(irqs.softirqs, |_| true),
            disks: first(disks, |_| true),
            odd,
        }
    }
}

fn first<T>(all: Vec<T>, is_wanted: impl Fn(&T) -> bool) -> Vec<T> {
    all.into_iter().filter(is_wanted).take(ROWS).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{CallsAnswer, Context, IrqsAnswer, Operation, Request, SchedAnswer, Switch};
    use super::*;
    use ftrace_event::syscalls::SyscallTable;

    fn look(summary: &mut Summary, time: u64, known: Known<'_>) {
        summary.look(At { time, cpu: 0 }, &Event::whole(Some(2), Context::Thread, known));
    }

    fn switch(prev: Tid, prev_state: u64, next: Tid) -> Known<'static> {
        Known::Switch(Switch { prev, prev_comm: b"one", prev_state, next, next_comm: b"two" })
    }

    #[test]
    fn what_is_odd_is_told() {
        const MS: u64 = 1_000_000;
        let mut summary = Summary::new(Scope::default(), SyscallTable::of_machine("x86_64"));
        // 2 waits for 1, which then is at a disk for long.
        look(&mut summary, 0, switch(2, 0, 1));
        look(&mut summary, 30 * MS, switch(1, 2, 2));
        let request = Request { device: 8 << 20, sector: 64, bytes: 512, rwbs: b"R", comm: b"one" };
        look(&mut summary, 30 * MS, Known::BlockIssue(request));
        look(&mut summary, 31 * MS, Known::IrqEntry { irq: 9, name: b"disk" });
        look(&mut summary, 33 * MS, Known::IrqExit { irq: 9 });
        look(&mut summary, 40 * MS, Known::SoftirqRaise { vector: 3 });
        look(&mut summary, 60 * MS, Known::SoftirqEntry { vector: 3 });
        look(&mut summary, 66 * MS, Known::SoftirqExit { vector: 3 });
        for call in 0..100 {
            let time = 70 * MS + call * 10;
            let (arguments, path) = ([None; 3], None);
            look(&mut summary, time, Known::CallEnter { number: 257, arguments, path, is_raw: true });
            look(&mut summary, time + 5, Known::CallExit { number: 257, result: -2, is_raw: true });
        }
        look(&mut summary, 80 * MS, Known::OomVictim { tid: 1, comm: b"one" });
        let (device, sector, sectors) = (8 << 20, 64, 1);
        let done = Known::BlockComplete { device, sector, sectors, rwbs: b"R", is_failed: false };
        look(&mut summary, 131 * MS, done);
        for id in [7, 7, 9] {
            summary.count(At { time: 90 * MS, cpu: 0 }, id);
        }
        let again = summary.clone();
        let answer = summary.answer(131 * MS, &Names::none());
        let kinds: Vec<String> = (answer.odd.iter())
            .map(|odd| serde_json::to_value(odd).unwrap()["kind"].as_str().unwrap().to_owned())
            .collect();
        let expected = [
            "killed",
            "long_wait",
            "blocked",
            "long_request",
            "long_irq",
            "long_softirq",
            "late_softirq",
            "failing",
        ];
        assert_eq!(kinds, expected);
        assert!(answer.odd.contains(&Oddity::LongRequest {
            device: "8:0".to_owned(),
            name: None,
            operation: Operation::Read,
            most_ns: 101 * MS,
            at_ns: Some(131 * MS),
        }));
        assert_eq!(
            (answer.disks[0].busy_ns, answer.disks[0].operations[0].bytes),
            (Some(101 * MS), Some(512))
        );
        assert!(answer.odd.contains(&Oddity::LongWait {
            tid: 2,
            comm: "two".to_owned(),
            wait_ns: 30 * MS,
            at_ns: 30 * MS,
            cpu: 0,
            instead_tid: Some(1),
            instead: "one".to_owned(),
        }));
        assert!(answer.odd.contains(&Oddity::Failing {
            number: Some(257),
            name: Some("openat".to_owned()),
            failed: 100,
            count: 100,
            errno: 2,
            error: Some("ENOENT"),
        }));
        let counts: Vec<_> = answer.events.iter().map(|of| (of.id, of.count)).collect();
        assert_eq!((counts, answer.other_events), (vec![(7, 2), (9, 1)], 0));
        assert_eq!((answer.busiest[0].tid, answer.busiest[0].run_ns), (2, 101 * MS));
        assert_eq!(answer.threads, 2);
        // Of a new count nothing is odd but what goes on.
        let mut again = again;
        again.restart(131 * MS);
        let odd = again.answer(132 * MS, &Names::none()).odd;
        assert_eq!(odd, [Oddity::Blocked { tid: 1, comm: "one".to_owned(), blocked_ns: MS }]);
    }

    #[test]
    fn who_may_have_been_woken_is_not_blocked() {
        let story = |events: &[&str]| {
            let mut summary = Summary::new(Scope::default(), SyscallTable::of_machine("x86_64"));
            look(&mut summary, 0, switch(2, 2, 1));
            look(&mut summary, 90, switch(1, 1, 2));
            let events = events.iter().map(|event| format!("sched:{event}"));
            summary.rests_on(&Evidence::of(events, []));
            summary.answer(100, &Names::none()).odd.len()
        };
        let recorded = ["sched_switch", "sched_waking", "sched_wakeup_new"];
        assert_eq!((story(&recorded), story(&recorded[..1])), (1, 0));
    }

    #[test]
    fn a_cpu_beside_a_free_one_is_odd() {
        let cpu = |cpu, busy_ns| CpuTime { cpu, busy_ns, idle_ns: 100 - busy_ns, ..CpuTime::default() };
        let sched = |cpus: [CpuTime; 2]| SchedAnswer { cpus: cpus.to_vec(), ..Default::default() };
        let found =
            |cpus| odd::found(&sched(cpus), &CallsAnswer::default(), &IrqsAnswer::default(), &[], Vec::new());
        let unbalanced = Oddity::Unbalanced { cpu: 1, busy_ns: 96, free_cpu: 0, free_busy_ns: 20 };
        assert_eq!(found([cpu(0, 20), cpu(1, 96)]), [unbalanced]);
        assert_eq!(found([cpu(0, 50), cpu(1, 96)]), []);
        assert_eq!(found([cpu(0, 20), cpu(1, 94)]), []);
    }
}
