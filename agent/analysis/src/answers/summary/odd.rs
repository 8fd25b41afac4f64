//! What is out of the ordinary.

use serde::Serialize;

use super::super::{CallsAnswer, CpuTime, IoDevice, IrqsAnswer, Operation, SchedAnswer, Tid, TimesTold};

/// Waits for a CPU of this many nanoseconds and more are odd: the slices of the kernel's scheduler are a few
/// milliseconds.
const LONG_WAIT: u64 = 20_000_000;

/// Handlers of interrupts that take so long: nothing else happens on their CPU meanwhile.
const LONG_IRQ: u64 = 1_000_000;

/// Soft interrupts that take so long: the kernel lets others run after 2 ms (`MAX_SOFTIRQ_TIME`,
/// kernel/softirq.c).
const LONG_SOFTIRQ: u64 = 5_000_000;

/// Soft interrupts that begin so late.
const LATE_SOFTIRQ: u64 = 10_000_000;

/// Requests to disks that take so long: one that turns needs 10 to 20 ms.
const LONG_REQUEST: u64 = 100_000_000;

/// System calls that fail at least so often, and in at least this part of all cases, in percent.
const FAILURES: u64 = 100;
const FAILED: u64 = 50;

/// Threads that wait for something no signal ends for this part of the time, in percent.
const BLOCKED: u64 = 25;

/// A CPU is overloaded at this part of the time, in percent, if another one has at most that.
const BUSY: u64 = 95;
const FREE: u64 = 50;

/// Most of each kind.
const ROWS: usize = 3;

/// Something out of the ordinary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Oddity {
    /// More processes were killed because there was no memory than are named.
    MoreKilled {
        /// How many more.
        count: u64,
    },
    /// A process was killed because there was no memory.
    Killed {
        /// Its first thread.
        tid: Tid,
        /// Its name.
        comm: String,
        /// When.
        at_ns: u64,
    },
    /// A thread waited for a CPU for 20 ms or more.
    LongWait {
        /// Which thread.
        tid: Tid,
        /// Its name.
        comm: String,
        /// For how long.
        wait_ns: u64,
        /// When it got the CPU.
        at_ns: u64,
        /// Which.
        cpu: u32,
        /// Who ran there for at least half of it, if that is known; 0 is the idle thread.
        instead_tid: Option<Tid>,
        /// Its name.
        instead: String,
    },
    /// A CPU was busy for 95 % of the time or more, and another one for less than half of it.
    Unbalanced {
        /// The busy one.
        cpu: u32,
        /// For how long it was busy.
        busy_ns: u64,
        /// The other one.
        free_cpu: u32,
        /// For how long that was busy.
        free_busy_ns: u64,
    },
    /// A thread waited for something that no signal ends, such as a disk, for a quarter of the time or more.
    Blocked {
        /// Which thread.
        tid: Tid,
        /// Its name.
        comm: String,
        /// For how long.
        blocked_ns: u64,
    },
    /// A request to a block device took 100 ms or more.
    LongRequest {
        /// The device's number: `8:0`.
        device: String,
        /// Its name, if the recording has it.
        name: Option<String>,
        /// What the request did.
        operation: Operation,
        /// For how long, at most.
        most_ns: u64,
        /// When that one ended.
        at_ns: Option<u64>,
    },
    /// A handler of an interrupt took 1 ms or more.
    LongIrq {
        /// The interrupt.
        irq: i64,
        /// The handler.
        name: String,
        /// How long the longest one took.
        most_ns: u64,
        /// When it ended.
        at_ns: Option<u64>,
    },
    /// A soft interrupt took 5 ms or more.
    LongSoftirq {
        /// Its number.
        vector: u64,
        /// Its name, if the kernel has one.
        name: Option<&'static str>,
        /// How long the longest one took.
        most_ns: u64,
        /// When it ended.
        at_ns: Option<u64>,
    },
    /// A soft interrupt began 10 ms or more after it was due.
    LateSoftirq {
        /// Its number.
        vector: u64,
        /// Its name, if the kernel has one.
        name: Option<&'static str>,
        /// How late the latest one was.
        most_ns: u64,
        /// When it began.
        at_ns: Option<u64>,
    },
    /// A system call failed a hundred times or more, and in half of all cases or more.
    Failing {
        /// The call's number; `None` if the recording has its name alone.
        number: Option<i64>,
        /// Its name, if that is known.
        name: Option<String>,
        /// How often it failed.
        failed: u64,
        /// How often it ended.
        count: u64,
        /// The number of the most frequent error.
        errno: i64,
        /// The name of that, if it has one.
        error: Option<&'static str>,
    },
}

/// What is out of the ordinary in these answers, the gravest first.
pub(super) fn found(
    sched: &SchedAnswer,
    calls: &CallsAnswer,
    irqs: &IrqsAnswer,
    disks: &[IoDevice],
    mut odd: Vec<Oddity>,
) -> Vec<Oddity> {
    odd.extend(waits(sched));
    odd.extend(unbalanced(&sched.cpus));
    odd.extend(blocked(sched));
    odd.extend(requests(disks));
    odd.extend(interrupts(irqs));
    odd.extend(failing(calls));
    odd
}

fn waits(sched: &SchedAnswer) -> impl Iterator<Item = Oddity> + '_ {
    let long = sched.worst.iter().filter(|waited| waited.wait_ns >= LONG_WAIT);
    long.take(ROWS).map(|waited| {
        let instead = waited.instead_tid.filter(|_| waited.instead_ns >= waited.wait_ns / 2);
        Oddity::LongWait {
            tid: waited.tid,
            comm: waited.comm.clone(),
            wait_ns: waited.wait_ns,
            at_ns: waited.at_ns,
            cpu: waited.cpu,
            instead_tid: instead,
            instead: instead.map_or_else(String::new, |_| waited.instead.clone()),
        }
    })
}

fn unbalanced(cpus: &[CpuTime]) -> Option<Oddity> {
    let busy = |cpu: &CpuTime| {
        let whole = u128::from(cpu.busy_ns) + u128::from(cpu.idle_ns);
        (u128::from(cpu.busy_ns) * 100).checked_div(whole)
    };
    let known = || cpus.iter().filter_map(|cpu| Some((busy(cpu)?, cpu)));
    let (most, busiest) = known().max_by_key(|(percent, _)| *percent)?;
    let (least, free) = known().min_by_key(|(percent, _)| *percent)?;
    (most >= u128::from(BUSY) && least < u128::from(FREE)).then_some(Oddity::Unbalanced {
        cpu: busiest.cpu,
        busy_ns: busiest.busy_ns,
        free_cpu: free.cpu,
        free_busy_ns: free.busy_ns,
    })
}

/// The longest request of each operation of a disk, of those that are long.
fn requests(disks: &[IoDevice]) -> impl Iterator<Item = Oddity> {
    let all = disks.iter().flat_map(|disk| disk.operations.iter().map(move |of| (disk, of)));
    let long = all.filter_map(|(disk, of)| Some((disk, of, of.times?)));
    let mut long: Vec<_> = long.filter(|(.., times)| times.most_ns >= LONG_REQUEST).collect();
    long.sort_by_key(|(.., times)| std::cmp::Reverse(times.most_ns));
    long.into_iter().take(ROWS).map(|(disk, of, times)| Oddity::LongRequest {
        device: disk.device.clone(),
        name: disk.name.clone(),
        operation: of.operation,
        most_ns: times.most_ns,
        at_ns: times.most_at_ns,
    })
}

fn blocked(sched: &SchedAnswer) -> Vec<Oddity> {
    let mut found: Vec<_> = (sched.threads.iter())
        .filter_map(|of| {
            let (wait, sleep, blocked) = (of.wait_ns?, of.sleep_ns?, of.blocked_ns?);
            let all = [of.run_ns, wait, sleep, blocked, of.stopped_ns?, of.unknown_ns];
            let whole: u128 = all.into_iter().map(u128::from).sum();
            let is_odd = blocked != 0 && u128::from(blocked) * 100 >= whole * u128::from(BLOCKED);
            is_odd.then_some((of, blocked))
        })
        .collect();
    found.sort_by_key(|(_, blocked)| std::cmp::Reverse(*blocked));
    let told = found.into_iter().take(ROWS).map(|(of, blocked_ns)| Oddity::Blocked {
        tid: of.tid,
        comm: of.comm.clone(),
        blocked_ns,
    });
    told.collect()
}

fn interrupts(irqs: &IrqsAnswer) -> Vec<Oddity> {
    let is_long = |times: Option<TimesTold>, limit: u64| times.filter(|times| times.most_ns >= limit);
    let long = irqs.irqs.iter().filter_map(|irq| Some((irq, is_long(irq.times, LONG_IRQ)?)));
    let long = long.take(ROWS).map(|(irq, times)| Oddity::LongIrq {
        irq: irq.irq,
        name: irq.name.clone(),
        most_ns: times.most_ns,
        at_ns: times.most_at_ns,
    });
    let mut odd: Vec<_> = long.collect();
    let all = || irqs.softirqs.iter();
    let long = all().filter_map(|softirq| Some((softirq, is_long(softirq.times, LONG_SOFTIRQ)?)));
    odd.extend(long.take(ROWS).map(|(softirq, times)| Oddity::LongSoftirq {
        vector: softirq.vector,
        name: softirq.name,
        most_ns: times.most_ns,
        at_ns: times.most_at_ns,
    }));
    let late = all().filter_map(|softirq| Some((softirq, is_long(softirq.latency, LATE_SOFTIRQ)?)));
    odd.extend(late.take(ROWS).map(|(softirq, latency)| Oddity::LateSoftirq {
        vector: softirq.vector,
        name: softirq.name,
        most_ns: latency.most_ns,
        at_ns: latency.most_at_ns,
    }));
    odd
}

fn failing(calls: &CallsAnswer) -> Vec<Oddity> {
    let known = calls.calls.iter().filter_map(|call| Some((call, call.failed?, call.times?.count)));
    let mut found: Vec<_> = known
        .filter(|(_, failed, count)| {
            *failed >= FAILURES && u128::from(*failed) * 100 >= u128::from(*count) * u128::from(FAILED)
        })
        .collect();
    found.sort_by_key(|(_, failed, _)| std::cmp::Reverse(*failed));
    let told = found.into_iter().take(ROWS).filter_map(|(call, failed, count)| {
        let most = call.errors.first()?;
        Some(Oddity::Failing {
            number: call.number,
            name: call.name.clone(),
            failed,
            count,
            errno: most.errno,
            error: most.name,
        })
    });
    told.collect()
}
