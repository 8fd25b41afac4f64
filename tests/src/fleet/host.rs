//! A simulated host: what its CPUs record, one thing after the other.

use std::collections::{BTreeMap, VecDeque};

use super::STEP;
use super::records::Template;
use super::tape::Tape;
use super::truth::{Exec, Open, Span, Truth};
use crate::object_store::Numbers;

/// Who runs on a host from the beginning.
const NAMES: [&str; 10] = [
    "nginx",
    "postgres",
    "java",
    "redis-server",
    "python3",
    "sshd",
    "cron",
    "systemd",
    "containerd",
    "kubelet",
];
/// Threads of each of them.
const THREADS: u64 = 4;
/// System calls of x86-64, and how many of 100 fail.
const CALLS: [(i64, &str, u64); 6] = [
    (0, "read", 3),
    (1, "write", 0),
    (202, "futex", 20),
    (232, "epoll_wait", 0),
    (45, "recvfrom", 30),
    OPENAT,
];
const OPENAT: (i64, &str, u64) = (257, "openat", 10);
/// What is opened.
const PATHS: [&str; 5] =
    ["/etc/passwd", "/etc/shadow", "/var/lib/postgresql/base/1", "/usr/lib/libc.so.6", "/proc/stat"];
/// What is executed.
const PROGRAMS: [&str; 4] = ["/usr/bin/curl", "/usr/bin/tar", "/bin/sh", "/usr/bin/gcc"];
/// Interrupts: number, name, and how many nanoseconds their handlers take at most.
const INTERRUPTS: [(i64, &str, u64); 3] =
    [(24, "nvme0q1", 9_000), (28, "eth0-rx-0", 30_000), (16, "uhci_hcd", 300_000)];
/// Devices as the kernel numbers them: 259:0 and 8:0.
const DEVICES: [u32; 2] = [259 << 20, 8 << 20];
/// Requests that a host has in flight at most.
const IN_FLIGHT: usize = 64;
/// -ENOENT, the value of each call that fails.
const FAILED: i64 = -2;

/// A thread; those that have ended stay.
#[derive(Debug)]
struct Thread {
    tid: u32,
    name: String,
    state: State,
    /// The call that it is in, and the file that it opens.
    call: Option<(usize, Option<Opening>)>,
    /// When it lost its CPU, under which name.
    off: Option<(u64, String)>,
    /// When it was woken.
    woken: Option<u64>,
    parent: Parent,
    executed: bool,
}

/// Who made a thread.
#[derive(Clone, Debug)]
enum Parent {
    /// Nobody in the recording: it was there before.
    None,
    /// A thread, whose name is known if the making was recorded.
    Made(Option<String>),
}

#[derive(Clone, Copy, Debug)]
struct Opening {
    path: &'static str,
    /// When, if it was recorded.
    at: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Sleeps,
    Waits,
    Runs,
    Ended,
}

/// A request in flight.
#[derive(Debug)]
struct Request {
    dev: u32,
    sector: u64,
    /// When, if it was recorded.
    at: Option<u64>,
}

/// A CPU.
#[derive(Debug)]
struct Cpu {
    /// The thread that has it.
    runs: Option<usize>,
    /// When it switched last, if that was recorded.
    switched: Option<u64>,
    /// The name of its idle thread.
    idle: String,
}

#[derive(Debug)]
struct Templates {
    switch: Template,
    waking: Template,
    fork: Template,
    exec: Template,
    exit: Template,
    issue: Template,
    complete: Template,
    enter: Template,
    leave: Template,
    enter_open: Template,
    leave_open: Template,
    irq_entry: Template,
    irq_exit: Template,
}

/// A host.
#[derive(Debug)]
pub(super) struct Host {
    /// What is recorded.
    pub(super) tape: Tape,
    numbers: Numbers,
    cpus: Vec<Cpu>,
    threads: Vec<Thread>,
    /// Threads that have ended, whose places are free.
    ended: Vec<usize>,
    /// Names of threads whose places others have now.
    former: BTreeMap<u32, String>,
    waiting: VecDeque<usize>,
    requests: Vec<Request>,
    sectors: u64,
    next_tid: u32,
    templates: Templates,
}

impl Host {
    pub(super) fn new(cpus: u32, seed: u64, tape: Tape) -> Self {
        let cpu = |number| Cpu { runs: None, switched: None, idle: format!("swapper/{number}") };
        let mut host = Self {
            tape,
            // A small seed gives small numbers at first.
            numbers: Numbers::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            cpus: (0..cpus).map(cpu).collect(),
            threads: Vec::new(),
            ended: Vec::new(),
            former: BTreeMap::new(),
            waiting: VecDeque::new(),
            requests: Vec::new(),
            sectors: 0,
            next_tid: 1000,
            templates: Templates::new(),
        };
        for name in NAMES {
            for _ in 0..THREADS {
                host.thread(name, State::Sleeps);
            }
        }
        host
    }

    /// Goes on until so many events are recorded. In most of that time, some are lost now and then if it
    /// `loses` any.
    pub(super) fn run(&mut self, events: u64, loses: bool) {
        let between = (events / 6).min(100_000);
        let mut lose_at = between;
        while self.tape.recorded < events {
            self.tape.now += 1 + self.numbers.below(2 * STEP);
            let cpu = self.numbers.below(self.cpus.len() as u64) as usize;
            if loses && (lose_at..events / 5 * 4).contains(&self.tape.recorded) {
                self.tape.lose(cpu, 5 + self.numbers.below(60));
                lose_at += between;
            }
            match self.numbers.below(100) {
                0..30 => self.switch(cpu),
                30..48 => self.wake(cpu),
                48..82 => self.call(cpu),
                82..92 => self.disk(cpu),
                92..97 => self.interrupt(cpu),
                _ => self.process(cpu),
            }
        }
    }

    /// The last name of each thread.
    pub(super) fn names(&self) -> BTreeMap<u32, String> {
        let mut names = self.former.clone();
        names.extend(self.threads.iter().map(|thread| (thread.tid, thread.name.clone())));
        names
    }

    /// What happened, if it was noted.
    pub(super) fn truth(self) -> Option<Truth> {
        let names = self.names();
        let recorded = self.tape.recorded;
        Some(Truth { recorded, names, ..self.tape.into_truth()? })
    }

    fn thread(&mut self, name: &str, state: State) -> usize {
        self.next_tid += 7;
        let thread = Thread {
            tid: self.next_tid,
            name: name.to_owned(),
            state,
            call: None,
            off: None,
            woken: None,
            parent: Parent::None,
            executed: false,
        };
        let Some(place) = self.ended.pop() else {
            self.threads.push(thread);
            return self.threads.len() - 1;
        };
        let Thread { tid, name, .. } = std::mem::replace(&mut self.threads[place], thread);
        self.former.insert(tid, name);
        place
    }

    /// The thread that a CPU runs, and its number: 0 is the idle one's.
    fn running(&self, cpu: usize) -> (Option<usize>, u32) {
        let runs = self.cpus[cpu].runs;
        (runs, runs.map_or(0, |thread| self.threads[thread].tid))
    }

    fn switch(&mut self, cpu: usize) {
        let preempted = self.numbers.below(4) == 0;
        self.switch_away(cpu, if preempted { State::Waits } else { State::Sleeps });
    }

    /// Takes the CPU from whoever has it, for the one that has waited longest.
    fn switch_away(&mut self, cpu: usize, becomes: State) {
        let (prev, prev_tid) = self.running(cpu);
        let next = self.waiting.pop_front();
        if prev.is_none() && next.is_none() {
            return;
        }
        let name =
            |thread: Option<usize>| thread.map_or(&self.cpus[cpu].idle, |thread| &self.threads[thread].name);
        let next_tid = next.map_or(0, |thread| self.threads[thread].tid);
        // As the kernel tells states: running, interruptible, dead.
        let state = match (prev, becomes) {
            (None, _) | (_, State::Waits | State::Runs) => 0,
            (_, State::Sleeps) => 1,
            (_, State::Ended) => 16,
        };
        let record = self.templates.switch.by(prev_tid);
        record.text(1, name(prev).as_bytes()).number(2, prev_tid.into()).number(3, state);
        record.text(4, name(next).as_bytes()).number(5, next_tid.into());
        let at = self.tape.emit(cpu, record.bytes());
        self.note_switch(cpu, at, prev, next);
        if let Some(prev) = prev {
            self.threads[prev].state = becomes;
            if becomes == State::Waits {
                self.waiting.push_back(prev);
            } else if becomes == State::Ended {
                self.ended.push(prev);
            }
        }
        if let Some(next) = next {
            self.threads[next].state = State::Runs;
        }
        self.cpus[cpu].runs = next;
    }

    fn note_switch(&mut self, cpu: usize, at: Option<u64>, prev: Option<usize>, next: Option<usize>) {
        let since = std::mem::replace(&mut self.cpus[cpu].switched, at);
        let Some(truth) = &mut self.tape.truth else { return };
        if let (Some(from), Some(to)) = (since, at) {
            truth.on_cpu.push((cpu as u32, Span { from, to, of: prev.is_some() }));
        }
        if let Some(prev) = prev {
            let prev = &mut self.threads[prev];
            prev.off = at.map(|at| (at, prev.name.clone()));
            prev.woken = None;
        }
        if let Some(next) = next {
            let next = &mut self.threads[next];
            let (off, woken) = (next.off.take(), next.woken.take());
            if let (Some((from, of)), Some(to)) = (off, at) {
                truth.off_cpu.push(Span { from, to, of });
            }
            if let (Some(from), Some(to)) = (woken, at) {
                truth.wake_ups.push(Span { from, to, of: next.name.clone() });
            }
        }
    }

    fn wake(&mut self, cpu: usize) {
        let woken = self.numbers.below(self.threads.len() as u64) as usize;
        let thread = &mut self.threads[woken];
        if thread.state != State::Sleeps {
            return;
        }
        thread.state = State::Waits;
        self.waiting.push_back(woken);
        let (_, by) = self.running(cpu);
        let thread = &self.threads[woken];
        let record =
            self.templates.waking.by(by).text(1, thread.name.as_bytes()).number(2, thread.tid.into());
        let at = self.tape.emit(cpu, record.bytes());
        self.threads[woken].woken = at;
    }

    /// Enters a call, or comes back from one.
    fn call(&mut self, cpu: usize) {
        let (Some(thread), tid) = self.running(cpu) else { return self.wake(cpu) };
        match self.threads[thread].call.take() {
            None => self.enter(cpu, thread, tid),
            Some((call, opening)) => self.leave(cpu, tid, call, opening),
        }
    }

    fn enter(&mut self, cpu: usize, thread: usize, tid: u32) {
        // Files are opened seldom.
        let call = if self.numbers.below(30) == 0 { CALLS.len() - 1 } else { self.numbers.below(5) as usize };
        let (number, ..) = CALLS[call];
        let record = self.templates.enter.by(tid).number(1, number);
        self.tape.emit(cpu, record.bytes());
        let opening = (number == OPENAT.0).then(|| {
            let path = PATHS[self.numbers.below(PATHS.len() as u64) as usize];
            self.tape.now += 150;
            let record = self
                .templates
                .enter_open
                .by(tid)
                .number(1, number)
                .number(2, -100)
                .behind(3, path.as_bytes());
            let at = self.tape.emit(cpu, record.bytes());
            Opening { path, at }
        });
        self.threads[thread].call = Some((call, opening));
    }

    fn leave(&mut self, cpu: usize, tid: u32, call: usize, opening: Option<Opening>) {
        let (number, name, failing) = CALLS[call];
        let failed = self.numbers.below(100) < failing;
        let value = if failed { FAILED } else { self.numbers.below(4096).cast_signed() };
        if let Some(opening) = opening {
            let record = self.templates.leave_open.by(tid).number(1, number).number(2, value);
            let at = self.tape.emit(cpu, record.bytes());
            if let (Some(truth), Some(from), Some(to)) = (&mut self.tape.truth, opening.at, at) {
                truth.opens.push(Span { from, to, of: Open { path: opening.path, failed, tid } });
            }
            self.tape.now += 150;
        }
        let record = self.templates.leave.by(tid).number(1, number).number(2, value);
        let at = self.tape.emit(cpu, record.bytes());
        if let (Some(truth), Some(_)) = (&mut self.tape.truth, at) {
            let (calls, failures) = truth.calls.entry((tid, name)).or_default();
            *calls += 1;
            *failures += u64::from(failed);
        }
    }

    /// Issues a request, or completes one.
    fn disk(&mut self, cpu: usize) {
        let (_, tid) = self.running(cpu);
        let waiting = self.requests.len() as u64;
        if waiting < IN_FLIGHT as u64 && (waiting == 0 || self.numbers.below(2) == 0) {
            let dev = DEVICES[usize::from(self.numbers.below(4) == 0)];
            self.sectors += 8;
            // Sectors come again and again.
            let sector = self.sectors % 4096;
            let record = self.templates.issue.by(tid);
            record
                .number(1, dev.into())
                .number(2, sector.cast_signed())
                .number(3, 8)
                .number(4, 4096)
                .text(5, b"R");
            let at = self.tape.emit(cpu, record.bytes());
            self.requests.push(Request { dev, sector, at });
            return;
        }
        let Request { dev, sector, at: issued } =
            self.requests.swap_remove(self.numbers.below(waiting) as usize);
        let record = self.templates.complete.by(tid);
        record.number(1, dev.into()).number(2, sector.cast_signed()).number(3, 8).text(4, b"R");
        let at = self.tape.emit(cpu, record.bytes());
        if let (Some(truth), Some(from), Some(to)) = (&mut self.tape.truth, issued, at) {
            truth.requests.push(Span { from, to, of: dev });
        }
    }

    fn interrupt(&mut self, cpu: usize) {
        let (_, tid) = self.running(cpu);
        let (irq, name, longest) = INTERRUPTS[self.numbers.below(INTERRUPTS.len() as u64) as usize];
        let record = self.templates.irq_entry.by(tid).number(1, irq).behind(2, name.as_bytes());
        let from = self.tape.emit(cpu, record.bytes());
        self.tape.now += 1 + self.numbers.below(longest);
        let record = self.templates.irq_exit.by(tid).number(1, irq).number(2, 1);
        let to = self.tape.emit(cpu, record.bytes());
        if let (Some(truth), Some(from), Some(to)) = (&mut self.tape.truth, from, to) {
            truth.interrupts.push((cpu as u32, Span { from, to, of: name }));
        }
    }

    /// A new thread, a new program, or the end of a thread that had one.
    fn process(&mut self, cpu: usize) {
        let (Some(thread), tid) = self.running(cpu) else { return };
        let Thread { parent, executed, name, .. } = &self.threads[thread];
        match (parent.clone(), *executed) {
            (Parent::None, _) => self.fork(cpu, tid, &name.clone()),
            (Parent::Made(parent), false) => self.exec(cpu, thread, tid, parent),
            (Parent::Made(_), true) => {
                let record =
                    self.templates.exit.by(tid).text(1, name.as_bytes()).number(2, tid.into()).number(3, 1);
                self.tape.emit(cpu, record.bytes());
                self.tape.now += 1000;
                self.switch_away(cpu, State::Ended);
            }
        }
    }

    fn fork(&mut self, cpu: usize, tid: u32, name: &str) {
        let child = self.thread(name, State::Waits);
        self.waiting.push_back(child);
        let child_tid = self.threads[child].tid;
        let record = self.templates.fork.by(tid).behind(1, name.as_bytes()).number(2, tid.into());
        record.behind(3, name.as_bytes()).number(4, child_tid.into());
        let at = self.tape.emit(cpu, record.bytes());
        self.threads[child].parent = Parent::Made(at.map(|_| name.to_owned()));
    }

    fn exec(&mut self, cpu: usize, thread: usize, tid: u32, parent: Option<String>) {
        let filename = PROGRAMS[self.numbers.below(PROGRAMS.len() as u64) as usize];
        let record = self
            .templates
            .exec
            .by(tid)
            .behind(1, filename.as_bytes())
            .number(2, tid.into())
            .number(3, tid.into());
        let at = self.tape.emit(cpu, record.bytes());
        let thread = &mut self.threads[thread];
        thread.executed = true;
        filename.rsplit('/').next().unwrap().clone_into(&mut thread.name);
        if let (Some(truth), Some(_)) = (&mut self.tape.truth, at) {
            truth.execs.push(Exec { filename, parent });
        }
    }
}

impl Templates {
    fn new() -> Self {
        let switch = ["prev_comm", "prev_pid", "prev_state", "next_comm", "next_pid"];
        Self {
            switch: Template::of("sched_switch", &switch),
            waking: Template::of("sched_waking", &["comm", "pid"]),
            fork: Template::of(
                "sched_process_fork",
                &["parent_comm", "parent_pid", "child_comm", "child_pid"],
            ),
            exec: Template::of("sched_process_exec", &["filename", "pid", "old_pid"]),
            exit: Template::of("sched_process_exit", &["comm", "pid", "group_dead"]),
            issue: Template::of("block_rq_issue", &["dev", "sector", "nr_sector", "bytes", "rwbs"]),
            complete: Template::of("block_rq_complete", &["dev", "sector", "nr_sector", "rwbs"]),
            enter: Template::of("sys_enter", &["id"]),
            leave: Template::of("sys_exit", &["id", "ret"]),
            enter_open: Template::of("sys_enter_openat", &["__syscall_nr", "dfd", "__filename_val"]),
            leave_open: Template::of("sys_exit_openat", &["__syscall_nr", "ret"]),
            irq_entry: Template::of("irq_handler_entry", &["irq", "name"]),
            irq_exit: Template::of("irq_handler_exit", &["irq", "ret"]),
        }
    }
}
