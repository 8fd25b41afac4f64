//! `analyze summary`, as text: what fits on a screen.

use super::table::{
    Side::Left, Side::Right, Table, duration, percent, perhaps, perhaps_duration, seconds, times,
};
use crate::units::{bytes, count};
use analysis::answers::{Covered, Oddity, SummaryAnswer};
use stdx::terminal;

/// What is odd, then what is busy and what is slow.
pub(super) fn text(answer: &SummaryAnswer, covered: &Covered, limit: usize) -> String {
    let mut text = odd(&answer.odd);
    let whole = covered.to_ns.saturating_sub(covered.from_ns);
    text += &busy(answer, whole, limit);
    text += &slow(answer, limit);
    text += &disks(answer, whole, limit);
    let mut events = Table::new("Events", &[&[("EVENT", Left), ("COUNT", Right)]]);
    for of in &answer.events {
        let name = if of.event.is_empty() { format!("number {}", of.id) } else { of.event.clone() };
        events.row(&[&[name, count(of.count)]]);
    }
    if answer.other_events != 0 {
        events.row(&[&["(all others)".to_owned(), count(answer.other_events)]]);
    }
    text + &events.text(limit)
}

fn odd(odd: &[Oddity]) -> String {
    if odd.is_empty() {
        return "\nNothing is out of the ordinary.\n".to_owned();
    }
    let mut text = "\nOut of the ordinary\n".to_owned();
    for oddity in odd {
        text += &format!("  {}\n", terminal::name(&said(oddity)));
    }
    text
}

/// A sentence about what is odd.
fn said(oddity: &Oddity) -> String {
    let at = |time: &Option<u64>| time.map_or(String::new(), |time| format!(", until {}", seconds(time)));
    match oddity {
        Oddity::MoreKilled { count: more } => {
            format!("{} more processes were killed as there was no memory", count(*more))
        }
        Oddity::Killed { tid, comm, at_ns } => {
            format!("{comm} {tid} was killed at {} as there was no memory", seconds(*at_ns))
        }
        Oddity::LongWait { tid, comm, wait_ns, at_ns, cpu, instead_tid, instead } => {
            let instead = match instead_tid {
                None => String::new(),
                Some(0) => ", where the idle thread ran most of the time".to_owned(),
                Some(_) => format!(", where {instead} ran most of the time"),
            };
            format!(
                "{comm} {tid} waited {} for CPU {cpu}, until {}{instead}",
                duration(*wait_ns),
                seconds(*at_ns)
            )
        }
        Oddity::Unbalanced { cpu, busy_ns, free_cpu, free_busy_ns } => format!(
            "CPU {cpu} was busy for {} while CPU {free_cpu} was for {}",
            duration(*busy_ns),
            duration(*free_busy_ns)
        ),
        Oddity::Blocked { tid, comm, blocked_ns } => {
            format!("{comm} {tid} waited {} for a disk or the like (D)", duration(*blocked_ns))
        }
        Oddity::LongRequest { device, name, operation, most_ns, at_ns } => {
            let (device, operation) = (name.as_ref().unwrap_or(device), operation.name());
            format!("a request ({operation}) to {device} took {}{}", duration(*most_ns), at(at_ns))
        }
        Oddity::LongIrq { irq, name, most_ns, at_ns } => {
            format!("interrupt {irq} ({name}) took {}{}", duration(*most_ns), at(at_ns))
        }
        Oddity::LongSoftirq { vector, name, most_ns, at_ns } => {
            format!("soft interrupt {} took {}{}", vector_name(*vector, *name), duration(*most_ns), at(at_ns))
        }
        Oddity::LateSoftirq { vector, name, most_ns, at_ns } => {
            format!(
                "soft interrupt {} was {} late{}",
                vector_name(*vector, *name),
                duration(*most_ns),
                at(at_ns)
            )
        }
        Oddity::Failing { number, name, failed, count: all, errno, error } => {
            let name = super::calls::call_text(name.as_deref(), *number);
            let error = error.map_or_else(|| format!("error {errno}"), str::to_owned);
            format!("{name} failed {} of {} times, mostly with {error}", count(*failed), count(*all))
        }
    }
}

fn vector_name(vector: u64, name: Option<&str>) -> String {
    name.map_or_else(|| vector.to_string(), str::to_owned)
}

/// CPUs and threads.
fn busy(answer: &SummaryAnswer, whole: u64, limit: usize) -> String {
    let mut cpus =
        Table::new("CPUs", &[&[("CPU", Right), ("BUSY", Right), ("%", Right), ("SWITCHES", Right)]]);
    for cpu in &answer.cpus {
        cpus.row(&[&[
            cpu.cpu.to_string(),
            duration(cpu.busy_ns),
            percent(cpu.busy_ns, whole),
            count(cpu.switches),
        ]]);
    }
    let title = format!(
        "Threads that ran longest, of {}; {} were started",
        count(answer.threads),
        perhaps(answer.started, count)
    );
    let heads = [
        ("THREAD", Left),
        ("TID", Right),
        ("RUN", Right),
        ("%", Right),
        ("WAIT", Right),
        ("LATE MAX", Right),
    ];
    let mut threads = Table::new(&title, &[&heads]);
    for of in &answer.busiest {
        threads.row(&[&[
            of.comm.clone(),
            of.tid.to_string(),
            duration(of.run_ns),
            percent(of.run_ns, whole),
            perhaps_duration(of.wait_ns),
            perhaps_duration(of.woken.map(|woken| woken.most_ns)),
        ]]);
    }
    let mut text = cpus.text(limit) + &threads.text(limit);
    if let Some(woken) = answer.woken.filter(|woken| woken.count != 0) {
        text += &format!(
            "  from a wakeup to the CPU: half within {}, 99 % within {}, at most {}\n",
            perhaps_duration(woken.p50_ns),
            perhaps_duration(woken.p99_ns),
            duration(woken.most_ns)
        );
    }
    text
}

/// System calls and interrupts.
fn slow(answer: &SummaryAnswer, limit: usize) -> String {
    let heads = [
        ("CALL", Left),
        ("COUNT", Right),
        ("TOTAL", Right),
        ("P99", Right),
        ("MAX", Right),
        ("FAILED", Right),
    ];
    let mut calls = Table::new("System calls that took longest", &[&heads]);
    for of in &answer.calls {
        let [calls_count, total, _, _, most_of, most] = times(of.times);
        calls.row(&[&[
            super::calls::call_text(of.name.as_deref(), of.number),
            calls_count,
            total,
            most_of,
            most,
            perhaps(of.failed, count),
        ]]);
    }
    let heads = [("INTERRUPT", Left), ("COUNT", Right), ("OWN", Right), ("MAX", Right)];
    let mut irqs = Table::new("Interrupts that took longest", &[&heads]);
    for of in &answer.irqs {
        let name = format!("{} {}", of.irq, of.name);
        let [count, .., most] = times(of.times);
        irqs.row(&[&[name, count, perhaps_duration(of.own_ns), most]]);
    }
    for of in &answer.softirqs {
        let name = format!("soft {}", vector_name(of.vector, of.name));
        let [count, .., most] = times(of.times);
        irqs.row(&[&[name, count, perhaps_duration(of.own_ns), most]]);
    }
    calls.text(limit) + &irqs.text(limit)
}

/// Requests to disks.
fn disks(answer: &SummaryAnswer, whole: u64, limit: usize) -> String {
    let heads = [
        ("DISK", Left),
        ("BUSY", Right),
        ("%", Right),
        ("OPERATION", Left),
        ("COUNT", Right),
        ("BYTES", Right),
        ("P99", Right),
        ("MAX", Right),
    ];
    let mut table = Table::new("Requests to disks", &[&heads]);
    for disk in &answer.disks {
        for of in &disk.operations {
            let [requests, .., most_of, most] = times(of.times);
            table.row(&[&[
                disk.name.clone().unwrap_or_else(|| disk.device.clone()),
                perhaps_duration(disk.busy_ns),
                perhaps(disk.busy_ns, |busy| percent(busy, whole)),
                of.operation.name().to_owned(),
                requests,
                perhaps(of.bytes, bytes),
                most_of,
                most,
            ]]);
        }
    }
    table.text(limit)
}
