//! Interrupts and soft interrupts: how often, for how long, and how late.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    Analysis, At, Event, Evidence, Known, Names, Scope, Times, TimesTold, Topic,
    nesting::{Interrupt, Nesting},
    tally::Room,
    threads::bounded,
};

/// Most handlers that are told apart.
const MOST: usize = 4096;

/// The kernel's soft interrupts, by number (include/linux/interrupt.h).
const VECTORS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

/// The name of a soft interrupt.
pub fn softirq_name(vector: u64) -> Option<&'static str> {
    VECTORS.get(usize::try_from(vector).ok()?).copied()
}

/// An interrupt that has not ended.
#[derive(Clone, Copy, Debug)]
struct Open {
    since: u64,
    /// For how long others interrupted it.
    inside: u64,
}

/// What is known of a CPU.
#[derive(Clone, Debug, Default)]
struct Cpu {
    open: Nesting<Open>,
    /// Since when soft interrupts are due.
    raised: BTreeMap<u64, u64>,
    hard: u64,
    soft: u64,
    count: u64,
}

#[derive(Clone, Debug, Default)]
struct Told {
    times: Times,
    own: u64,
    /// From the moment when it is due.
    late: Times,
    unmatched: u64,
}

/// The analysis.
#[derive(Clone, Debug)]
pub struct Irqs {
    scope: Scope,
    cpus: BTreeMap<u32, Cpu>,
    hard: Handlers,
    soft: BTreeMap<u64, Told>,
    left_out: u64,
    /// For the times of all handlers.
    room: Room,
    evidence: Evidence,
}

/// Handlers of hardware interrupts: several can share an interrupt.
#[derive(Clone, Debug, Default)]
struct Handlers {
    all: Vec<Handler>,
    /// By interrupt and name.
    numbers: BTreeMap<(i64, Box<[u8]>), usize>,
    /// The handler that an interrupt was entered with last, on each CPU.
    last: BTreeMap<(u32, i64), usize>,
}

#[derive(Clone, Debug)]
struct Handler {
    irq: i64,
    name: Box<[u8]>,
    told: Told,
}

impl Handlers {
    /// An interrupt was entered with a handler of this name.
    fn enter(&mut self, cpu: u32, irq: i64, name: &[u8]) {
        let name = bounded(name);
        let last = self.last.get(&(cpu, irq)).copied();
        let is_last = |number: usize| self.all.get(number).is_some_and(|handler| *handler.name == *name);
        if last.is_some_and(is_last) {
            return;
        }
        // What comes with the interrupt is not the former handler's, if there is no room for this one.
        match self.number(irq, name) {
            Some(number) if last.is_some() || self.last.len() < MOST => {
                self.last.insert((cpu, irq), number);
            }
            _ => drop(self.last.remove(&(cpu, irq))),
        }
    }

    /// What is told of the handler that an interrupt was entered with. `None` if there is no room.
    fn told(&mut self, cpu: u32, irq: i64) -> Option<&mut Told> {
        let number = match self.last.get(&(cpu, irq)) {
            Some(number) => *number,
            None => self.number(irq, &[])?,
        };
        self.all.get_mut(number).map(|handler| &mut handler.told)
    }

    fn number(&mut self, irq: i64, name: &[u8]) -> Option<usize> {
        let key = (irq, name.into());
        if let Some(number) = self.numbers.get(&key) {
            return Some(*number);
        }
        let number = self.all.len();
        if number >= MOST {
            return None;
        }
        self.all.push(Handler { irq, name: name.into(), told: Told::default() });
        self.numbers.insert(key, number);
        Some(number)
    }

    /// Forgets what was counted.
    fn restart(&mut self) {
        for handler in &mut self.all {
            handler.told = Told::default();
        }
    }
}

/// What interrupts did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IrqsAnswer {
    /// The CPUs, by number.
    pub cpus: Vec<TimeOfCpu>,
    /// Handlers of hardware interrupts, by their own time.
    pub irqs: Vec<Irq>,
    /// Soft interrupts, by their own time.
    pub softirqs: Vec<Softirq>,
    /// Records that were left out because there were too many interrupts.
    pub left_out: u64,
}

/// The time of a CPU in interrupts. What is `None` here and below was not recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TimeOfCpu {
    /// Its number.
    pub cpu: u32,
    /// In handlers of hardware interrupts.
    pub irq_ns: Option<u64>,
    /// In soft interrupts, without the hardware interrupts in between.
    pub softirq_ns: Option<u64>,
    /// How many of both ended.
    pub count: Option<u64>,
}

/// A handler of a hardware interrupt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Irq {
    /// The interrupt.
    pub irq: i64,
    /// The handler.
    pub name: String,
    /// From entry to exit.
    pub times: Option<TimesTold>,
    /// Of that, without others inside.
    pub own_ns: Option<u64>,
    /// Exits without an entry: at the beginning, and where events were lost.
    pub unmatched: Option<u64>,
}

/// A soft interrupt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Softirq {
    /// Its number.
    pub vector: u64,
    /// Its name, if the kernel has one.
    pub name: Option<&'static str>,
    /// From entry to exit.
    pub times: Option<TimesTold>,
    /// Of that, without others inside. `None` also if those of hardware were not recorded.
    pub own_ns: Option<u64>,
    /// From when it is raised to its entry, on the same CPU.
    pub latency: Option<TimesTold>,
    /// Exits without an entry: at the beginning, and where events were lost.
    pub unmatched: Option<u64>,
}

impl Irqs {
    /// An analysis of a part of a recording.
    pub fn new(scope: Scope) -> Self {
        let (cpus, hard, soft, room) = Default::default();
        Self { scope, cpus, hard, soft, left_out: 0, room, evidence: Evidence::all() }
    }

    fn enter(&mut self, at: At, kind: Interrupt) {
        let cpu = self.cpus.entry(at.cpu).or_default();
        drop(cpu.open.enter(kind, Open { since: at.time, inside: 0 }));
    }

    /// Ends what the CPU is in. Gives how long it took, and how much of that was its own.
    fn leave(&mut self, at: At, kind: Interrupt) -> Option<(u64, u64)> {
        let cpu = self.cpus.entry(at.cpu).or_default();
        let (_, open) = cpu.open.leave(kind)?;
        let time = at.time.saturating_sub(open.since);
        let own = time.saturating_sub(open.inside);
        if let Some(outer) = cpu.open.innermost() {
            outer.inside = outer.inside.saturating_add(time);
        }
        if self.scope.has(at) {
            cpu.count += 1;
            match kind {
                Interrupt::Hard(_) => cpu.hard = cpu.hard.saturating_add(own),
                Interrupt::Soft(_) => cpu.soft = cpu.soft.saturating_add(own),
            }
        }
        Some((time, own))
    }

    fn hard(&mut self, at: At, irq: i64) {
        let ended = self.leave(at, Interrupt::Hard(irq));
        if !self.scope.has(at) {
            return;
        }
        match self.hard.told(at.cpu, irq) {
            Some(told) => told.end(ended, at, &mut self.room),
            None => self.left_out += 1,
        }
    }

    /// What is told of a soft interrupt, and room for its times. `None` if there is no room for it.
    fn soft(&mut self, vector: u64) -> Option<(&mut Told, &mut Room)> {
        if self.soft.len() >= MOST && !self.soft.contains_key(&vector) {
            self.left_out += 1;
            return None;
        }
        Some((self.soft.entry(vector).or_default(), &mut self.room))
    }
}

impl Told {
    /// Whether there is anything to tell.
    fn is_any(&self) -> bool {
        self.times.count() != 0 || self.unmatched != 0
    }

    fn end(&mut self, ended: Option<(u64, u64)>, at: At, room: &mut Room) {
        match ended {
            Some((time, own)) => {
                self.times.add_within(time, at.time, room);
                self.own = self.own.saturating_add(own);
            }
            None => self.unmatched += 1,
        }
    }
}

impl Analysis for Irqs {
    type Answer = IrqsAnswer;

    const TOPIC: Option<Topic> = Some(Topic::Irq);

    fn look(&mut self, at: At, event: &Event<'_>) {
        match event.known {
            Known::IrqEntry { irq, name } => {
                self.hard.enter(at.cpu, irq, name);
                self.enter(at, Interrupt::Hard(irq));
            }
            Known::IrqExit { irq } => self.hard(at, irq),
            Known::SoftirqRaise { vector } => {
                let raised = &mut self.cpus.entry(at.cpu).or_default().raised;
                // It is due since it was raised for the first time.
                if raised.len() < VECTORS.len() || raised.contains_key(&vector) {
                    raised.entry(vector).or_insert(at.time);
                }
            }
            Known::SoftirqEntry { vector } => {
                let since = self.cpus.entry(at.cpu).or_default().raised.remove(&vector);
                self.enter(at, Interrupt::Soft(vector));
                if let Some(since) = since
                    && self.scope.has(at)
                    && let Some((told, room)) = self.soft(vector)
                {
                    told.late.add_within(at.time.saturating_sub(since), at.time, room);
                }
            }
            Known::SoftirqExit { vector } => {
                let ended = self.leave(at, Interrupt::Soft(vector));
                if self.scope.has(at)
                    && let Some((told, room)) = self.soft(vector)
                {
                    told.end(ended, at, room);
                }
            }
            _ => {}
        }
    }

    fn lost(&mut self, at: At) {
        // Which of these have ended since is not known.
        let cpu = self.cpus.entry(at.cpu).or_default();
        cpu.open = Nesting::default();
        cpu.raised.clear();
    }

    fn restart(&mut self, from: u64) {
        self.scope.from = Some(from);
        self.hard.restart();
        self.soft.clear();
        self.room = Room::default();
        self.left_out = 0;
        for cpu in self.cpus.values_mut() {
            (cpu.hard, cpu.soft, cpu.count) = (0, 0, 0);
        }
    }

    fn rests_on(&mut self, evidence: &Evidence) {
        self.evidence = evidence.clone();
    }

    fn answer(self, _: u64, _: &Names<'_>) -> IrqsAnswer {
        let has = |event: &str| self.evidence.has(event);
        let (hard_ends, soft_ends) = (has("irq:irq_handler_exit"), has("irq:softirq_exit"));
        let knows_hard = has("irq:irq_handler_entry") && hard_ends;
        let knows_soft = has("irq:softirq_entry") && soft_ends;
        let knows_late = has("irq:softirq_raise") && has("irq:softirq_entry");
        // They come while soft ones are handled.
        let knows_own = knows_hard && knows_soft;
        let cpus = self.cpus.into_iter().filter(|(number, _)| self.scope.has_cpu(*number));
        let mut answer = IrqsAnswer {
            cpus: cpus
                .map(|(cpu, of)| TimeOfCpu {
                    cpu,
                    irq_ns: knows_hard.then_some(of.hard),
                    softirq_ns: knows_own.then_some(of.soft),
                    count: knows_own.then_some(of.count),
                })
                .collect(),
            irqs: (self.hard.all.into_iter())
                .filter(|handler| handler.told.is_any())
                .map(|Handler { irq, name, told }| Irq {
                    irq,
                    name: String::from_utf8_lossy(&name).into_owned(),
                    times: knows_hard.then(|| told.times.told()),
                    own_ns: knows_hard.then_some(told.own),
                    unmatched: hard_ends.then_some(told.unmatched),
                })
                .collect(),
            softirqs: (self.soft.into_iter())
                .map(|(vector, told)| Softirq {
                    vector,
                    name: softirq_name(vector),
                    times: knows_soft.then(|| told.times.told()),
                    own_ns: knows_own.then_some(told.own),
                    latency: knows_late.then(|| told.late.told()),
                    unmatched: soft_ends.then_some(told.unmatched),
                })
                .collect(),
            left_out: self.left_out,
        };
        answer.irqs.sort_by(|one, other| {
            let by_time = other.own_ns.cmp(&one.own_ns);
            by_time.then_with(|| (one.irq, &one.name).cmp(&(other.irq, &other.name)))
        });
        answer.softirqs.sort_by_key(|softirq| {
            let total = softirq.times.map(|times| times.total_ns);
            std::cmp::Reverse(softirq.own_ns.or(total))
        });
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::super::Context;
    use super::*;

    fn look(irqs: &mut Irqs, time: u64, cpu: u32, known: Known<'_>) {
        irqs.look(At { time, cpu }, &Event::whole(None, Context::Thread, known));
    }

    #[test]
    fn an_interrupt_inside_another_is_not_its_own_time() {
        let scope = Scope::default();
        let mut irqs = Irqs::new(scope);
        look(&mut irqs, 0, 0, Known::SoftirqRaise { vector: 1 });
        look(&mut irqs, 5, 0, Known::SoftirqRaise { vector: 1 });
        look(&mut irqs, 10, 0, Known::SoftirqEntry { vector: 1 });
        look(&mut irqs, 20, 0, Known::IrqEntry { irq: 9, name: b"disk" });
        look(&mut irqs, 50, 0, Known::IrqExit { irq: 9 });
        look(&mut irqs, 100, 0, Known::SoftirqExit { vector: 1 });
        // Another CPU is not in an interrupt.
        look(&mut irqs, 110, 1, Known::IrqExit { irq: 9 });
        let answer = irqs.answer(200, &Names::none());
        let softirq = &answer.softirqs[0];
        assert_eq!(
            (softirq.name, softirq.times.unwrap().total_ns, softirq.own_ns),
            (Some("TIMER"), 90, Some(60))
        );
        assert_eq!(softirq.latency.map(|late| (late.count, late.most_ns)), Some((1, 10)));
        let disk = answer.irqs.iter().find(|irq| irq.name == "disk").unwrap();
        assert_eq!(
            (disk.irq, disk.times.unwrap().count, disk.own_ns, disk.unmatched),
            (9, 1, Some(30), Some(0))
        );
        assert_eq!(answer.irqs.iter().filter_map(|irq| irq.unmatched).sum::<u64>(), 1);
        assert_eq!(
            answer.cpus[0],
            TimeOfCpu { cpu: 0, irq_ns: Some(30), softirq_ns: Some(60), count: Some(2) }
        );
    }

    #[test]
    fn what_rests_on_events_that_were_not_recorded_is_unknown() {
        let told = |events: &[&str]| {
            let mut irqs = Irqs::new(Scope::default());
            look(&mut irqs, 10, 0, Known::SoftirqEntry { vector: 1 });
            look(&mut irqs, 100, 0, Known::SoftirqExit { vector: 1 });
            look(&mut irqs, 110, 0, Known::IrqEntry { irq: 9, name: b"disk" });
            look(&mut irqs, 120, 0, Known::IrqExit { irq: 9 });
            let events = events.iter().map(|event| format!("irq:{event}"));
            irqs.rests_on(&Evidence::of(events, []));
            let answer = irqs.answer(200, &Names::none());
            let (softirq, disk) = (&answer.softirqs[0], &answer.irqs[0]);
            assert_eq!(softirq.own_ns, answer.cpus[0].softirq_ns);
            (softirq.times.is_some(), softirq.own_ns, softirq.unmatched, disk.own_ns, disk.unmatched)
        };
        let (soft, hard) = (["softirq_entry", "softirq_exit"], ["irq_handler_entry", "irq_handler_exit"]);
        assert_eq!(told(&[soft, hard].concat()), (true, Some(90), Some(0), Some(10), Some(0)));
        assert_eq!(told(&soft), (true, None, Some(0), None, None));
        assert_eq!(told(&[soft[0], hard[0]]), (false, None, None, None, None));
    }

    #[test]
    fn times_of_a_hostile_file_are_not_too_many() {
        let mut irqs = Irqs::new(Scope::default());
        for cpu in 0..3 {
            look(&mut irqs, 0, cpu, Known::IrqEntry { irq: 9, name: b"disk" });
        }
        for cpu in 0..3 {
            look(&mut irqs, u64::MAX, cpu, Known::IrqExit { irq: 9 });
        }
        let answer = irqs.answer(u64::MAX, &Names::none());
        assert_eq!(
            (answer.irqs[0].times.unwrap().total_ns, answer.irqs[0].own_ns),
            (u64::MAX, Some(u64::MAX))
        );
    }

    #[test]
    fn a_loss_ends_what_its_cpu_was_in() {
        let scope = Scope::default();
        let mut irqs = Irqs::new(scope);
        look(&mut irqs, 0, 0, Known::IrqEntry { irq: 9, name: b"disk" });
        look(&mut irqs, 0, 1, Known::IrqEntry { irq: 9, name: b"disk" });
        irqs.lost(At { time: 5, cpu: 0 });
        look(&mut irqs, 10, 0, Known::IrqExit { irq: 9 });
        look(&mut irqs, 10, 1, Known::IrqExit { irq: 9 });
        let answer = irqs.answer(20, &Names::none());
        assert_eq!((answer.irqs[0].times.unwrap().count, answer.irqs[0].unmatched), (1, Some(1)));
    }
}
