//! Wakeup latencies: the time from a task's wakeup to its running (`-w`).

use std::collections::HashMap;

use super::plugin::Num;
use super::text::{decimal, micros, unsigned};
use super::view::{EventView, FileView};

/// Highest priority number of a real-time task (MAX_RT_PRIO of include/linux/sched/prio.h, less one).
const LAST_RT_PRIO: u64 = 99;

/// Latencies of wakeups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// How many there were.
    pub count: u64,
    /// Their sum, ns.
    pub total: u64,
    /// The longest, ns, and when it ended.
    pub longest: (u64, u64),
    /// The shortest, ns, and when it ended.
    pub shortest: (u64, u64),
}

/// Latencies of wakeups of all tasks, and of real-time tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WakeupTimes {
    /// Of all tasks.
    pub all: Latencies,
    /// Of real-time tasks.
    pub real_time: Latencies,
}

/// Follows the scheduler's events.
#[derive(Debug, Default)]
pub(super) struct Wakeups {
    /// When tasks were woken, by pid.
    woken: HashMap<u64, u64>,
    pub(super) times: WakeupTimes,
}

impl Latencies {
    fn add(&mut self, latency: u64, end: u64) {
        if self.count == 0 || latency > self.longest.0 {
            self.longest = (latency, end);
        }
        if self.count == 0 || latency < self.shortest.0 {
            self.shortest = (latency, end);
        }
        self.count += 1;
        self.total = self.total.saturating_add(latency);
    }

    fn text(&self, out: &mut Vec<u8>) {
        let end = |out: &mut Vec<u8>, time: u64| {
            out.extend_from_slice(b" usecs at timestamp: ");
            unsigned(out, time / 1_000_000_000);
            out.push(b'.');
            decimal(out, time.saturating_add(500) % 1_000_000_000 / 1000, 6, b'0');
            out.push(b'\n');
        };
        out.extend_from_slice(b"\nAverage wakeup latency: ");
        micros(out, self.total / self.count.max(1));
        out.extend_from_slice(b" usecs\nMaximum Latency: ");
        micros(out, self.longest.0);
        end(out, self.longest.1);
        out.extend_from_slice(b"Minimum Latency: ");
        micros(out, self.shortest.0);
        end(out, self.shortest.1);
        out.push(b'\n');
    }
}

impl WakeupTimes {
    /// The summary as trace-cmd prints it; empty if there was no wakeup.
    pub fn text(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.all.count != 0 {
            self.all.text(&mut out);
        }
        if self.real_time.count != 0 {
            out.extend_from_slice(b"RT task timings:\n");
            self.real_time.text(&mut out);
        }
        out
    }
}

impl Wakeups {
    /// Takes a record that is shown. The latency that ends with it, if it is a switch to a task whose wakeup
    /// was seen.
    pub(super) fn follow(
        &mut self,
        file: &FileView<'_>,
        event: &EventView<'_>,
        record: &[u8],
        time: u64,
    ) -> Option<u64> {
        if event.printer.system() != "sched" {
            return None;
        }
        let format = event.printer.format();
        let read = |name| Num::of(format, name).map(|num: Num| num.read(record, file.machine));
        match event.printer.name() {
            "sched_wakeup" | "sched_wakeup_new" => {
                if read("success") != Some(0) {
                    self.woken.insert(read("pid")?, time);
                }
                None
            }
            "sched_switch" => {
                let priority = read("next_prio")?;
                let latency = time.wrapping_sub(self.woken.remove(&read("next_pid")?)?);
                self.times.all.add(latency, time);
                if priority <= LAST_RT_PRIO {
                    self.times.real_time.add(latency, time);
                }
                Some(latency)
            }
            _ => None,
        }
    }
}
