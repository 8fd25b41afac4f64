//! A machine for tests, on which threads come, go, run other programs and get the numbers of others at
//! random, make system calls, wait for locks, take memory and disks, and are interrupted; and the recordings
//! that are made of it.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | the machine, and what its tracepoints say |
//! | `says` | events, their fields and bytes |
//! | `cut` | recordings of it: whole, or of a part, with the metadata that such a recording has |
//! | `spans` | what it did that has a begin and an end |

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a helper of tests fails the test")]

mod cut;
mod says;
mod spans;

use std::collections::BTreeMap;

#[cfg(test)]
pub(crate) use self::cut::OF_LIVES;
pub use self::cut::{HOWS, How, Part, UNEVEN_HOWS};
pub(crate) use self::says::{Kind, Says};
pub use self::spans::{Span, Takes, What};
use crate::answers::{Random, Tid};

/// How many CPUs the machine has.
pub const CPUS: usize = 3;
/// When the machine begins, by the clock of its recordings.
pub const BEGIN: u64 = 1_000;
/// Numbers are few: they are used again soon.
const NUMBERS: u32 = 12;
/// Places on the disk, locks and pages are few, too.
const PLACES: u64 = 4;
/// The interrupt of the disk.
const DISK: i64 = 5;
/// `common_flags` of what interrupts say.
const HARD_IRQ: u8 = 0x08;
const SOFT_IRQ: u8 = 0x10;
/// `futex` on x86-64, with `FUTEX_WAIT` and `FUTEX_WAKE`.
const FUTEX: i64 = 202;
const EXECVE: i64 = 59;
const NUMBERS_OF_CALLS: [i64; 4] = [0, 1, 3, FUTEX];

const R: u64 = 0;
const S: u64 = 1;
const D: u64 = 2;
const X: u64 = 0x10;

/// A record, with all that it says.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) time: u64,
    pub(crate) cpu: u32,
    /// The thread that it is of, and its name.
    pub(crate) tid: Tid,
    pub(crate) name: String,
    /// The other one that it is about, as recorders see it, and its name.
    pub(crate) other: Option<(Tid, String)>,
    /// `common_flags`.
    pub(crate) flags: u8,
    pub(crate) says: Says,
    /// Whether the current thread, or the other one, is of the process that was there first and its children.
    pub(crate) is_other_chosen: bool,
    pub(crate) is_current_chosen: bool,
}

/// What a thread did under one number, in nanoseconds, from the first switch on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// The number.
    pub tid: Tid,
    /// How long it ran.
    pub runs: u64,
    /// How long it waited for a CPU.
    pub waits: u64,
    /// How long it slept, or was blocked.
    pub sleeps: u64,
    /// How often it got a CPU.
    pub switches: u64,
    /// For how long it had another number before a record said that it was the same thread.
    pub untold: u64,
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
    /// The system call that it is in.
    call: Option<i64>,
    /// The lock that it waits for.
    lock: Option<u64>,
}

/// The machine.
pub struct World {
    random: Random,
    tasks: Vec<Task>,
    /// By their places in the list; `None` for the idle thread.
    current: [Option<usize>; CPUS],
    time: u64,
    first_switch: Option<u64>,
    names: u64,
    /// Which numbers will be told of as freed, and when.
    owed: Vec<(u64, Tid)>,
    /// Requests that the disk works on: place, and what is done.
    requests: Vec<(u64, &'static str)>,
    /// Pages and memory that are taken.
    pages: Vec<u64>,
    slabs: Vec<u64>,
    /// `common_flags` of what happens now.
    flags: u8,
    pub(crate) made: Vec<Made>,
    /// What threads did, each under one number.
    pub truth: Vec<Truth>,
    /// Which of them had a name: no two had the same one.
    pub rows: BTreeMap<String, usize>,
}

impl World {
    /// A machine on which nothing has happened yet; another seed makes another one.
    pub fn new(seed: u64) -> Self {
        let mut world = Self {
            random: Random(seed),
            tasks: Vec::new(),
            current: [None; CPUS],
            time: 0,
            first_switch: None,
            names: 0,
            owed: Vec::new(),
            requests: Vec::new(),
            pages: Vec::new(),
            slabs: Vec::new(),
            flags: 0,
            made: Vec::new(),
            truth: Vec::new(),
            rows: BTreeMap::new(),
        };
        for tid in 1..5 {
            let name = world.new_row(tid);
            let (does, is_chosen) = (Does::Waits, tid == 1);
            let (call, lock) = (None, None);
            world.tasks.push(Task { tid, leader: tid, name, does, since: 0, is_chosen, call, lock });
        }
        world
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.random.below(end)
    }

    /// Lets it go on for so many steps, after which its truth is told up to the time that this gives.
    pub fn run(&mut self, steps: usize) -> u64 {
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
        // Recorders choose by the first letter.
        let letter = if self.below(3) == 0 { 'c' } else { 'n' };
        let name = format!("{letter}{}", self.names);
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
        let is_other_chosen = other.is_some_and(|index| self.tasks[index].is_chosen);
        // A name is the new one behind the event that says so.
        let name = match (&says, current) {
            (Says::Renamed { before, .. }, _) => before.clone(),
            (_, Some(task)) => task.name.clone(),
            (_, None) => format!("swapper/{cpu}"),
        };
        let tid = current.map_or(0, |task| task.tid);
        let other = other.map(|index| (self.tasks[index].tid, self.tasks[index].name.clone()));
        let (time, cpu, flags) = (self.time, cpu as u32, self.flags);
        self.made.push(Made { time, cpu, tid, name, other, flags, says, is_other_chosen, is_current_chosen });
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
        if self.below(8) == 0 {
            self.interrupt(cpu);
        }
        let Some(current) = self.current[cpu] else {
            if self.below(2) == 0 {
                self.interrupt(cpu);
            }
            if let Some(next) = self.waiting() {
                self.switch(cpu, R, Some(next));
            }
            return;
        };
        let does = self.below(18);
        // One that waits for a lock does nothing else.
        if let Some(lock) = self.tasks[current].lock
            && does < 12
        {
            if does < 4 {
                self.tasks[current].lock = None;
                self.say(cpu, Says::LockEnd { lock, result: 0 }, None);
            }
            return;
        }
        match does {
            0 => self.fork(cpu, current),
            1 => self.exit(cpu, current),
            2 => self.exec(cpu, current),
            3 => {
                let before = self.tasks[current].name.clone();
                let name = self.name(self.rows[&before]);
                self.tasks[current].name.clone_from(&name);
                self.say(cpu, Says::Renamed { tid: self.tasks[current].tid, name, before }, None);
            }
            4..=6 => self.call(cpu, current),
            7 => self.issue(cpu),
            8 => {
                let lock = 0x1000 + self.below(PLACES);
                self.tasks[current].lock = Some(lock);
                self.say(cpu, Says::LockBegin { lock, flags: 2 }, None);
            }
            9 => self.memory(cpu),
            10 | 11 => self.wake(cpu),
            _ => {
                let state = [R, S, D][self.below(3) as usize];
                let next = self.waiting();
                if next.is_some() || state != R {
                    self.switch(cpu, state, next);
                }
            }
        }
    }

    /// A thread begins a system call, or ends the one that it is in.
    fn call(&mut self, cpu: usize, current: usize) {
        if let Some(number) = self.tasks[current].call.take() {
            let result = [0, 1, -2, -11][self.below(4) as usize];
            self.say(cpu, Says::CallExit { number, result }, None);
        } else {
            let number = NUMBERS_OF_CALLS[self.below(4) as usize];
            let (first, second) = (0x2000 + self.below(PLACES), self.below(2));
            self.tasks[current].call = Some(number);
            self.say(cpu, Says::CallEnter { number, arguments: [first, second] }, None);
        }
    }

    /// A thread gives a request to the disk. No two are at one place.
    fn issue(&mut self, cpu: usize) {
        let (place, rwbs) = (self.below(PLACES) * 8, ["R", "W", "FF"][self.below(3) as usize]);
        let (sector, bytes) = if rwbs == "FF" { (0, 0) } else { (64 + place, 4096) };
        if self.requests.iter().any(|(other, of)| *other == sector && (*of == "FF") == (rwbs == "FF")) {
            return;
        }
        if self.below(2) == 0 {
            self.say(cpu, Says::Insert { sector, bytes, rwbs }, None);
            self.time += self.below(9);
        }
        self.requests.push((sector, rwbs));
        self.say(cpu, Says::Issue { sector, bytes, rwbs }, None);
    }

    /// A CPU is interrupted: by its tick, or by the disk, and does what is due then.
    fn interrupt(&mut self, cpu: usize) {
        self.flags = HARD_IRQ;
        if self.below(3) == 0 {
            self.say(cpu, Says::Tick, None);
            self.say(cpu, Says::Stack, None);
            self.flags = 0;
            return;
        }
        self.say(cpu, Says::IrqEntry { irq: DISK }, None);
        self.time += self.below(9);
        let is_due = self.below(2) == 0;
        if is_due {
            self.say(cpu, Says::SoftirqRaise { vector: 4 }, None);
        } else {
            self.complete(cpu);
        }
        self.say(cpu, Says::IrqExit { irq: DISK }, None);
        if is_due {
            self.flags = SOFT_IRQ;
            self.time += self.below(9);
            self.say(cpu, Says::SoftirqEntry { vector: 4 }, None);
            self.complete(cpu);
            self.wake(cpu);
            self.time += self.below(9);
            self.say(cpu, Says::SoftirqExit { vector: 4 }, None);
        }
        self.flags = 0;
    }

    fn complete(&mut self, cpu: usize) {
        if !self.requests.is_empty() {
            let index = self.below(self.requests.len() as u64) as usize;
            let (sector, rwbs) = self.requests.remove(index);
            let (sector, sectors) = if rwbs == "FF" { (u64::MAX, 0) } else { (sector, 8) };
            self.say(cpu, Says::Complete { sector, sectors, rwbs }, None);
        }
    }

    /// A thread takes memory, or gives some back.
    fn memory(&mut self, cpu: usize) {
        let place = self.below(PLACES);
        match self.below(4) {
            0 if self.pages.contains(&place) => {
                self.pages.retain(|page| *page != place);
                self.say(cpu, Says::PageFree { pfn: 0x100 + place * 4 }, None);
            }
            0 => {
                self.pages.push(place);
                self.say(cpu, Says::PageAlloc { pfn: 0x100 + place * 4 }, None);
            }
            1 if self.slabs.contains(&place) => {
                self.slabs.retain(|slab| *slab != place);
                self.say(cpu, Says::Kfree { address: 0x5000 + place * 64 }, None);
            }
            1 => {
                self.slabs.push(place);
                self.say(cpu, Says::Kmalloc { address: 0x5000 + place * 64 }, None);
            }
            2 => {
                self.say(cpu, Says::ReclaimBegin, None);
                self.time += self.below(9);
                self.say(cpu, Says::ReclaimEnd { pages: 3 }, None);
            }
            _ if place == 0 => self.say(cpu, Says::Fault { address: 0x7000 }, None),
            // Nobody knows what it is, but whose it is.
            _ => self.say(cpu, Says::Other, None),
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
        let (does, since, call, lock) = (Does::Sleeps, self.time, None, None);
        let task = Task { tid, leader, name: name.clone(), does, since, is_chosen, call, lock };
        self.tasks.push(task);
        let child = self.tasks.len() - 1;
        self.say(cpu, Says::NewTask { child: tid, name: name.clone(), is_thread }, Some(child));
        // Workers of io_uring have no fork.
        if !is_thread || self.below(2) == 0 {
            self.say(cpu, Says::Fork { child: tid, name }, Some(child));
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
        if !may_be || self.tasks[index].call.is_some() {
            return;
        }
        self.say(cpu, Says::CallEnter { number: EXECVE, arguments: [0x2000, 0] }, None);
        self.tasks[index].call = Some(EXECVE);
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
            self.say(cpu, Says::Other, None);
        }
        self.say(cpu, Says::Exec { tid: leader, from: tid }, None);
        if !is_first {
            self.truth[row].untold = self.time - since;
            self.owe(tid);
            self.remove(others[0]);
        }
    }
}
