//! Answers that are worked out from the text of stock trace-cmd, record by record, without any code of the
//! agent: what `analyze` has to say of a recording in which nothing was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::trace_cmd::{self, Line};

/// Durations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations(pub Vec<u64>);

impl Durations {
    /// Their number, sum, least and most; zeros if there are none.
    pub fn numbers(&self) -> [u64; 4] {
        let of = |found: Option<&u64>| found.copied().unwrap_or(0);
        [self.0.len() as u64, self.0.iter().sum(), of(self.0.iter().min()), of(self.0.iter().max())]
    }

    /// A percentile, by the nearest rank.
    pub fn percentile(&self, percent: usize) -> u64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1]
    }
}

/// A wait for a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Who waited.
    pub tid: u32,
    /// From when on.
    pub since: u64,
    /// When it got the CPU.
    pub until: u64,
    /// The state in which it lost its CPU; `None` if it was woken.
    pub lost_as: Option<u64>,
}

/// What threads and CPUs did.
#[derive(Clone, Debug, Default)]
pub struct Threads {
    /// How long each ran.
    pub ran: BTreeMap<u32, u64>,
    /// How often each got a CPU.
    pub switches: BTreeMap<u32, u64>,
    /// Their waits for a CPU, by their ends.
    pub waits: Vec<Wait>,
    /// How long each CPU was busy and idle.
    pub cpus: BTreeMap<u32, (u64, u64)>,
    /// Threads that were woken while they waited for a CPU, as they were about to sleep when they lost it, or
    /// while they had one, and by nobody when they slept then.
    pub woken_again: BTreeSet<u32>,
    /// Threads that give a CPU away that they were not seen to get, and those that had it: a switch was not
    /// recorded.
    pub unseen: BTreeSet<u32>,
}

/// The lines of `trace-cmd report -R -t`.
pub fn lines(path: &Path) -> Vec<Line> {
    trace_cmd::lines(&trace_cmd::report(path, &["-R", "-t"]))
}

/// A field of a raw line; the last of the name, for texts before it can hold anything.
pub fn field<'l>(line: &'l Line, name: &str) -> Option<&'l str> {
    let at = line.fields.rfind(&format!("{name}="))?;
    let is_whole = at == 0 || line.fields[..at].ends_with(' ');
    is_whole.then(|| line.fields[at + name.len() + 1..].split_whitespace().next().unwrap_or(""))
}

/// A name, which may have blanks: up to the field behind it.
pub fn name<'l>(line: &'l Line, name: &str, behind: &str) -> &'l str {
    let (_, rest) =
        line.fields.rsplit_once(&format!("{name}=")).unwrap_or_else(|| panic!("no {name} in {line:?}"));
    rest.rsplit_once(&format!(" {behind}=")).map_or(rest, |(name, _)| name)
}

/// A field that is a number.
#[track_caller]
pub fn number(line: &Line, name: &str) -> u64 {
    let text = field(line, name).unwrap_or_else(|| panic!("no {name} in {line:?}"));
    text.parse::<i64>().unwrap_or_else(|_| panic!("{name} in {line:?}")).cast_unsigned()
}

/// What a thread does, as far as waits for a CPU go.
enum Does {
    /// It may have been woken since.
    Runs {
        woken: bool,
    },
    /// Since when, if that was so, and it did not stop.
    Sleeps {
        woken: Option<u64>,
    },
    Waits(u64, Option<u64>),
}

/// What `sched_switch` and the wakeups say.
pub fn threads(lines: &[Line]) -> Threads {
    let mut found = Threads::default();
    let Some(first) = lines.iter().find(|line| line.event == "sched_switch") else { return found };
    let end = lines.last().unwrap().time;
    let mut on_cpus: BTreeMap<u32, (u32, u64)> = BTreeMap::new();
    let mut does: BTreeMap<u32, Does> = BTreeMap::new();
    for line in lines {
        match line.event.as_str() {
            "sched_switch" => {
                let [prev, next] = ["prev_pid", "next_pid"].map(|name| number(line, name) as u32);
                let state = number(line, "prev_state") & 0xff;
                let (tid, since) = on_cpus.get(&line.cpu).copied().unwrap_or((prev, first.time));
                if tid == prev {
                    found.ran(line.cpu, tid, line.time - since);
                } else {
                    found.unseen.extend([tid, prev]);
                }
                on_cpus.insert(line.cpu, (next, line.time));
                *found.switches.entry(next).or_default() += 1;
                match state {
                    0 => does.insert(prev, Does::Waits(line.time, Some(number(line, "prev_state")))),
                    // It has ended.
                    0x10 | 0x20 => does.remove(&prev),
                    _ => {
                        let woken = matches!(does.get(&prev), Some(Does::Runs { woken: true }));
                        let woken = (woken && state & 0x83 != 0).then_some(line.time);
                        does.insert(prev, Does::Sleeps { woken })
                    }
                };
                match does.insert(next, Does::Runs { woken: false }) {
                    Some(Does::Waits(since, lost_as)) => {
                        found.waits.push(Wait { tid: next, since, until: line.time, lost_as });
                    }
                    Some(Does::Sleeps { woken: Some(since) }) => {
                        found.waits.push(Wait { tid: next, since, until: line.time, lost_as: None });
                        found.woken_again.insert(next);
                    }
                    _ => {}
                }
            }
            "sched_waking" | "sched_wakeup" | "sched_wakeup_new" => {
                let tid = number(line, "pid") as u32;
                match does.get(&tid) {
                    None | Some(Does::Sleeps { .. }) => {
                        does.insert(tid, Does::Waits(line.time, None));
                    }
                    Some(Does::Waits(_, Some(_))) => drop(found.woken_again.insert(tid)),
                    Some(Does::Runs { .. }) => drop(does.insert(tid, Does::Runs { woken: true })),
                    Some(Does::Waits(_, None)) => {}
                }
            }
            _ => {}
        }
    }
    for (cpu, (tid, since)) in on_cpus {
        found.ran(cpu, tid, end - since);
    }
    found.waits.retain(|wait| wait.tid != 0);
    found
}

/// How long each of the last 32 that ran on a CPU before the end of an interval had it in that interval.
pub fn ran_between(lines: &[Line], cpu: u32, (from, to): (u64, u64)) -> BTreeMap<u32, u64> {
    let switches = lines.iter().filter(|line| line.event == "sched_switch" && line.cpu == cpu);
    let ends: Vec<&Line> = switches.take_while(|line| line.time <= to).collect();
    let first = lines.iter().find(|line| line.event == "sched_switch").map_or(from, |line| line.time);
    let mut found = BTreeMap::new();
    for (index, end) in ends.iter().enumerate().rev().take(32).take_while(|(_, end)| end.time > from) {
        let since = index.checked_sub(1).map_or(first, |before| ends[before].time);
        *found.entry(number(end, "prev_pid") as u32).or_default() += end.time - since.clamp(from, end.time);
    }
    found
}

impl Threads {
    fn ran(&mut self, cpu: u32, tid: u32, time: u64) {
        let (busy, idle) = self.cpus.entry(cpu).or_default();
        *(if tid == 0 { idle } else { busy }) += time;
        *self.ran.entry(tid).or_default() += time;
    }

    /// How long the waits of a thread after wakeups were.
    pub fn woken(&self, tid: u32) -> Durations {
        self.durations(|wait| wait.tid == tid && wait.lost_as.is_none())
    }

    /// How long the waits of a thread were that had lost its CPU.
    pub fn preempted(&self, tid: u32) -> Durations {
        self.durations(|wait| wait.tid == tid && wait.lost_as.is_some())
    }

    /// How long the waits were for which this holds.
    pub fn durations(&self, is_wanted: impl Fn(&Wait) -> bool) -> Durations {
        let found = self.waits.iter().filter(|wait| is_wanted(wait));
        Durations(found.map(|wait| wait.until - wait.since).collect())
    }
}

/// A system call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Whose.
    pub tid: u32,
    /// Its number.
    pub number: u64,
    /// How long it took.
    pub time: u64,
    /// What it returned.
    pub result: i64,
}

/// The calls of a recording, by `raw_syscalls`.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// Those that have an entry and an exit.
    pub ended: Vec<Call>,
    /// Threads and numbers of exits without an entry.
    pub unmatched: Vec<(u32, u64)>,
    /// Threads and numbers of entries without an exit.
    pub unfinished: Vec<(u32, u64)>,
}

/// The system calls that raw lines tell of.
pub fn calls(lines: &[Line]) -> Calls {
    let (mut found, mut open) = (Calls::default(), BTreeMap::new());
    for line in lines {
        match line.event.as_str() {
            "sys_enter" => {
                let other = open.insert(line.pid, (line.time, number(line, "id")));
                found.unfinished.extend(other.map(|(_, number)| (line.pid, number)));
            }
            "sys_exit" => {
                let result = number(line, "ret").cast_signed();
                match open.remove(&line.pid) {
                    // rt_sigreturn comes back with the number -1.
                    Some((since, entered)) if number(line, "id") == u64::MAX => {
                        let time = line.time - since;
                        found.ended.push(Call { tid: line.pid, number: entered, time, result: 0 });
                    }
                    Some((since, entered)) => {
                        assert_eq!(entered, number(line, "id"), "{line:?}");
                        found.ended.push(Call {
                            tid: line.pid,
                            number: entered,
                            time: line.time - since,
                            result,
                        });
                    }
                    None => found.unmatched.push((line.pid, number(line, "id"))),
                }
            }
            _ => {}
        }
    }
    found.unfinished.extend(open.into_iter().map(|(tid, (_, number))| (tid, number)));
    found
}

/// How long interrupts took, and how late soft interrupts were.
#[derive(Clone, Debug, Default)]
pub struct Irqs {
    /// By number and handler.
    pub hard: BTreeMap<(u64, String), Durations>,
    /// By number.
    pub soft: BTreeMap<u64, Durations>,
    /// From raise to entry, by number.
    pub late: BTreeMap<u64, Durations>,
}

/// The interrupts that raw lines tell of.
pub fn irqs(lines: &[Line]) -> Irqs {
    let mut found = Irqs::default();
    let mut hard: BTreeMap<(u32, u64), (u64, String)> = BTreeMap::new();
    let (mut soft, mut raised) = (BTreeMap::new(), BTreeMap::new());
    for line in lines {
        match line.event.as_str() {
            "irq_handler_entry" => {
                let name = field(line, "name").unwrap().to_owned();
                hard.insert((line.cpu, number(line, "irq")), (line.time, name));
            }
            "irq_handler_exit" => {
                let irq = number(line, "irq");
                if let Some((since, name)) = hard.remove(&(line.cpu, irq)) {
                    found.hard.entry((irq, name)).or_default().0.push(line.time - since);
                }
            }
            "softirq_raise" => {
                raised.entry((line.cpu, number(line, "vec"))).or_insert(line.time);
            }
            "softirq_entry" => {
                let vector = number(line, "vec");
                if let Some(since) = raised.remove(&(line.cpu, vector)) {
                    found.late.entry(vector).or_default().0.push(line.time - since);
                }
                soft.insert((line.cpu, vector), line.time);
            }
            "softirq_exit" => {
                let vector = number(line, "vec");
                if let Some(since) = soft.remove(&(line.cpu, vector)) {
                    found.soft.entry(vector).or_default().0.push(line.time - since);
                }
            }
            _ => {}
        }
    }
    found
}

/// The names of the system calls of this machine, by number, from the C library's header.
pub fn call_names() -> BTreeMap<u64, String> {
    let header = std::fs::read_to_string("/usr/include/x86_64-linux-gnu/asm/unistd_64.h").unwrap();
    let names = header.lines().filter_map(|line| {
        let (name, number) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
        Some((number.trim().parse().ok()?, name.to_owned()))
    });
    names.collect()
}
