//! A machine for tests, on which threads come, go, run other programs and get the numbers of others at
//! random, and what its recorder writes.

use std::collections::BTreeMap;

use super::{Known, Switch, Tid, Wakeup, random::Random};

pub(super) const CPUS: usize = 3;
/// Numbers are few: they are used again soon.
const NUMBERS: u32 = 12;

pub(super) const R: u64 = 0;
const S: u64 = 1;
const D: u64 = 2;
const X: u64 = 0x10;

/// A record, with all that it says.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) time: u64,
    pub(super) cpu: u32,
    /// The thread that it is of.
    pub(super) tid: Tid,
    pub(super) says: Says,
    /// Whether the current thread, or the other one, is of the process that was there first and its children.
    pub(super) is_chosen: bool,
    pub(super) is_current_chosen: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Says {
    Switch { prev: Tid, prev_name: String, prev_state: u64, next: Tid, next_name: String },
    Wakeup { tid: Tid, name: String, is_new: bool },
    NewTask { child: Tid, name: String, is_thread: bool },
    Fork { child: Tid, name: String },
    Renamed { tid: Tid, name: String, before: String },
    Exec { tid: Tid, from: Tid },
    Exit { tid: Tid },
    Freed { tid: Tid },
    Call,
}

impl Made {
    pub(super) fn known(&self) -> Known<'_> {
        match &self.says {
            Says::Switch { prev, prev_name, prev_state, next, next_name } => Known::Switch(Switch {
                prev: *prev,
                prev_comm: prev_name.as_bytes(),
                prev_state: *prev_state,
                next: *next,
                next_comm: next_name.as_bytes(),
            }),
            Says::Wakeup { tid, name, is_new } => {
                Known::Wakeup(Wakeup { tid: *tid, comm: name.as_bytes(), is_new: *is_new })
            }
            Says::NewTask { child, name, is_thread } => Known::NewTask {
                child: *child,
                comm: name.as_bytes(),
                shares_files: *is_thread,
                is_thread: *is_thread,
                shares_memory: *is_thread,
            },
            Says::Fork { child, name } => Known::Fork { child: *child, comm: name.as_bytes() },
            Says::Renamed { tid, name, before } => {
                Known::Renamed { tid: *tid, comm: Some(name.as_bytes()), before: before.as_bytes() }
            }
            Says::Exec { tid, from } => Known::Exec { tid: *tid, from: Some(*from) },
            Says::Exit { tid } => Known::Exit { tid: *tid },
            Says::Freed { tid } => Known::Freed { tid: *tid },
            Says::Call => Known::CallExit { number: 0, result: 0, is_raw: true },
        }
    }

    /// Which kind of record it is.
    pub(super) fn kind(&self) -> usize {
        match self.says {
            Says::Switch { .. } => 0,
            Says::Wakeup { is_new: false, .. } => 1,
            Says::Wakeup { is_new: true, .. } => 2,
            Says::NewTask { .. } => 3,
            Says::Fork { .. } => 4,
            Says::Renamed { .. } => 5,
            Says::Exec { .. } => 6,
            Says::Exit { .. } => 7,
            Says::Freed { .. } => 8,
            Says::Call => 9,
        }
    }
}

/// What a thread did under one number, in nanoseconds, from the first switch on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Truth {
    pub(super) tid: Tid,
    pub(super) runs: u64,
    pub(super) waits: u64,
    /// With what is blocked.
    pub(super) sleeps: u64,
    pub(super) switches: u64,
    /// For how long it had another number before a record said that it was the same thread.
    pub(super) untold: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Runs,
    Waits,
    Sleeps,
    /// Its number is still its own.
    IsZombie,
}

#[derive(Clone, Debug)]
struct Task {
    tid: Tid,
    leader: Tid,
    /// Unlike that of any other, and of the same one under another number.
    name: String,
    does: Does,
    since: u64,
    is_chosen: bool,
}

/// The machine.
pub(super) struct World {
    random: Random,
    tasks: Vec<Task>,
    /// By their places in the list; `None` for the idle thread.
    current: [Option<usize>; CPUS],
    time: u64,
    first_switch: Option<u64>,
    names: u64,
    /// Which numbers will be told of as freed, and when.
    owed: Vec<(u64, Tid)>,
    pub(super) made: Vec<Made>,
    /// What threads did, each under one number.
    pub(super) truth: Vec<Truth>,
    /// Which of them had a name: no two had the same one.
    pub(super) rows: BTreeMap<String, usize>,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut world = Self {
            random: Random(seed),
            tasks: Vec::new(),
            current: [None; CPUS],
            time: 0,
            first_switch: None,
            names: 0,
            owed: Vec::new(),
            made: Vec::new(),
            truth: Vec::new(),
            rows: BTreeMap::new(),
        };
        for tid in 1..5 {
            let name = world.new_row(tid);
            let (does, is_chosen) = (Does::Waits, tid == 1);
            world.tasks.push(Task { tid, leader: tid, name, does, since: 0, is_chosen });
        }
        world
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.random.below(end)
    }

    /// Lets it go on for so many steps, after which its truth is told up to the time that this gives.
    pub(super) fn run(&mut self, steps: usize) -> u64 {
        for _ in 0..steps {
            self.time += 1 + self.below(20);
            self.step();
        }
        for index in 0..self.tasks.len() {
            self.count(index);
        }
        self.time
    }

    /// A name for a row.
    fn name(&mut self, row: usize) -> String {
        self.names += 1;
        let name = format!("n{}", self.names);
        self.rows.insert(name.clone(), row);
        name
    }

    fn new_row(&mut self, tid: Tid) -> String {
        self.truth.push(Truth { tid, ..Truth::default() });
        self.name(self.truth.len() - 1)
    }

    fn say(&mut self, cpu: usize, says: Says, other: Option<usize>) {
        let current = self.current[cpu].map(|index| &self.tasks[index]);
        let is_current_chosen = current.is_some_and(|task| task.is_chosen);
        let is_chosen = is_current_chosen || other.is_some_and(|index| self.tasks[index].is_chosen);
        let tid = current.map_or(0, |task| task.tid);
        let (time, cpu) = (self.time, cpu as u32);
        self.made.push(Made { time, cpu, tid, says, is_chosen, is_current_chosen });
        self.time += 1;
    }

    /// Counts what a thread did up to now.
    fn count(&mut self, index: usize) {
        let task = &mut self.tasks[index];
        let since = task.since.max(self.first_switch.unwrap_or(self.time));
        let time = self.time.saturating_sub(since);
        task.since = self.time;
        let truth = &mut self.truth[self.rows[&task.name]];
        match task.does {
            Does::Runs => truth.runs += time,
            Does::Waits => truth.waits += time,
            Does::Sleeps => truth.sleeps += time,
            Does::IsZombie => {}
        }
    }

    fn turn(&mut self, index: usize, does: Does) {
        self.count(index);
        self.tasks[index].does = does;
    }

    fn switch(&mut self, cpu: usize, state: u64, next: Option<usize>) {
        self.first_switch.get_or_insert(self.time);
        let name = |index: Option<usize>| index.map_or("swapper", |index| &self.tasks[index].name).to_owned();
        let tid = |index: Option<usize>| index.map_or(0, |index| self.tasks[index].tid);
        let prev = self.current[cpu];
        let says = Says::Switch {
            prev: tid(prev),
            prev_name: name(prev),
            prev_state: state,
            next: tid(next),
            next_name: name(next),
        };
        if let Some(index) = prev {
            let does = match state {
                R => Does::Waits,
                X => Does::IsZombie,
                _ => Does::Sleeps,
            };
            self.turn(index, does);
        }
        if let Some(index) = next {
            self.turn(index, Does::Runs);
            let row = self.rows[&self.tasks[index].name];
            self.truth[row].switches += 1;
        }
        let time = self.time;
        self.say(cpu, says, next);
        self.time = time;
        self.current[cpu] = next;
    }

    fn waiting(&mut self) -> Option<usize> {
        let waits: Vec<usize> =
            (0..self.tasks.len()).filter(|index| self.tasks[*index].does == Does::Waits).collect();
        if waits.is_empty() || self.below(4) == 0 {
            return None;
        }
        Some(waits[self.below(waits.len() as u64) as usize])
    }

    fn step(&mut self) {
        self.free();
        let cpu = self.below(CPUS as u64) as usize;
        let Some(current) = self.current[cpu] else {
            if let Some(next) = self.waiting() {
                self.switch(cpu, R, Some(next));
            }
            return;
        };
        match self.below(12) {
            0 => self.fork(cpu, current),
            1 => self.exit(cpu, current),
            2 => self.exec(cpu, current),
            3 => {
                let before = self.tasks[current].name.clone();
                let name = self.name(self.rows[&before]);
                self.tasks[current].name.clone_from(&name);
                self.say(cpu, Says::Renamed { tid: self.tasks[current].tid, name, before }, None);
            }
            4 | 5 => self.say(cpu, Says::Call, None),
            6 | 7 => self.wake(cpu),
            _ => {
                let state = [R, S, D][self.below(3) as usize];
                let next = self.waiting();
                if next.is_some() || state != R {
                    self.switch(cpu, state, next);
                }
            }
        }
    }

    /// The kernel forgets threads: later than it gives their numbers away.
    fn free(&mut self) {
        while let Some(at) = self.owed.iter().position(|(when, _)| *when <= self.time) {
            let (_, tid) = self.owed.remove(at);
            let cpu = self.below(CPUS as u64) as usize;
            self.say(cpu, Says::Freed { tid }, None);
        }
    }

    fn wake(&mut self, cpu: usize) {
        let sleeps: Vec<usize> =
            (0..self.tasks.len()).filter(|index| self.tasks[*index].does == Does::Sleeps).collect();
        if sleeps.is_empty() {
            return;
        }
        let index = sleeps[self.below(sleeps.len() as u64) as usize];
        self.wake_it(cpu, index, false);
    }

    fn wake_it(&mut self, cpu: usize, index: usize, is_new: bool) {
        self.turn(index, Does::Waits);
        let (tid, name) = (self.tasks[index].tid, self.tasks[index].name.clone());
        let time = self.time;
        self.say(cpu, Says::Wakeup { tid, name, is_new }, Some(index));
        self.time = time;
    }

    fn fork(&mut self, cpu: usize, parent: usize) {
        let is_taken = |tid: &Tid| self.tasks.iter().any(|task| task.tid == *tid);
        let free: Vec<Tid> = (1..=NUMBERS).filter(|tid| !is_taken(tid)).collect();
        if free.is_empty() {
            return;
        }
        let tid = free[self.below(free.len() as u64) as usize];
        let is_thread = self.below(2) == 0;
        let leader = if is_thread { self.tasks[parent].leader } else { tid };
        let (name, is_chosen) = (self.new_row(tid), self.tasks[parent].is_chosen);
        let task = Task { tid, leader, name: name.clone(), does: Does::Sleeps, since: self.time, is_chosen };
        self.tasks.push(task);
        let child = self.tasks.len() - 1;
        self.say(cpu, Says::NewTask { child: tid, name: name.clone(), is_thread }, None);
        // Workers of io_uring have no fork.
        if !is_thread || self.below(2) == 0 {
            self.say(cpu, Says::Fork { child: tid, name }, None);
        }
        self.wake_it(cpu, child, true);
    }

    fn remove(&mut self, index: usize) {
        self.tasks.swap_remove(index);
        let moved = self.tasks.len();
        for current in self.current.iter_mut().flatten().filter(|current| **current == moved) {
            *current = index;
        }
    }

    fn exit(&mut self, cpu: usize, index: usize) {
        if self.tasks.len() < 4 {
            return;
        }
        let Task { tid, leader, .. } = self.tasks[index];
        self.say(cpu, Says::Exit { tid }, None);
        let next = self.waiting();
        self.switch(cpu, X, next);
        let is_last = self.tasks.iter().filter(|task| task.leader == leader).count() == 1;
        // The first thread of a process keeps its number until the others have ended.
        if tid != leader || is_last {
            self.owe(tid);
            self.remove(index);
            let left: Vec<usize> = (0..self.tasks.len())
                .filter(|index| {
                    self.tasks[*index].leader == leader && self.tasks[*index].does == Does::IsZombie
                })
                .collect();
            let is_alone = self.tasks.iter().filter(|task| task.leader == leader).count() == 1;
            if is_alone && let Some(first) = left.first() {
                self.owe(leader);
                self.remove(*first);
            }
        }
    }

    fn owe(&mut self, tid: Tid) {
        let later = self.below(120);
        self.owed.push((self.time + later, tid));
    }

    fn exec(&mut self, cpu: usize, index: usize) {
        let Task { tid, leader, .. } = self.tasks[index];
        let of_process: Vec<usize> =
            (0..self.tasks.len()).filter(|index| self.tasks[*index].leader == leader).collect();
        let others: Vec<usize> = of_process.into_iter().filter(|other| *other != index).collect();
        let is_first = tid == leader;
        // All others have ended by then, but for the first one, whose number is taken.
        let may_be = if is_first {
            others.is_empty()
        } else {
            others.len() == 1 && self.tasks[others[0]].does == Does::IsZombie
        };
        if !may_be {
            return;
        }
        self.count(index);
        // It is the same row by another name, or that of another number.
        let name =
            if is_first { self.name(self.rows[&self.tasks[index].name]) } else { self.new_row(leader) };
        let since = self.time;
        let before = std::mem::replace(&mut self.tasks[index].name, name.clone());
        let row = self.rows[&before];
        self.tasks[index].tid = leader;
        self.say(cpu, Says::Renamed { tid: leader, name, before }, None);
        if self.below(3) == 0 {
            self.say(cpu, Says::Call, None);
        }
        self.say(cpu, Says::Exec { tid: leader, from: tid }, None);
        if !is_first {
            self.truth[row].untold = self.time - since;
            self.owe(tid);
            self.remove(others[0]);
        }
    }
}
