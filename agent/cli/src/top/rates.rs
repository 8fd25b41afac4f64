//! What was counted, from one look to the next, as rows of tables.

use std::{cmp::Ordering, collections::HashMap, time::Duration};

use serde::Serialize;

use stdx::terminal;

/// Most processes of which totals are kept: of more, those with the fewest events that have come to rest are
/// forgotten.
const PROCESSES_MAX: usize = 16_384;

/// A thread's name in a process, as events had them.
pub(super) type Process = (u32, Vec<u8>);

/// What was counted of an event up to a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// By process and name.
    pub(super) processes: HashMap<Process, u64>,
    /// By CPU.
    pub(super) cpus: Vec<u64>,
    /// Of these, not by process: there was no room, or its name could not be read.
    pub(super) unnamed: u64,
    /// Events for which the kernel did not call the program, if it counts that.
    pub(super) skipped: u64,
}

/// What is shown of an event, a process or a CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Row {
    /// The event, the name of a process' thread that has most of its events, or the CPU. Safe for a terminal.
    pub(super) name: String,
    /// The process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pid: Option<u32>,
    /// Of a process, the event that it had most of in the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) event: Option<String>,
    /// Events a second in the interval.
    pub(super) rate: f64,
    /// Events in the interval.
    pub(super) count: u64,
    /// Events since the beginning.
    pub(super) total: u64,
    /// Events since the beginning that the kernel kept from the programs; of an event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) skipped: Option<u64>,
}

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// The rate, the highest first.
    #[default]
    Rate,
    /// The total, the highest first.
    Total,
    /// The name.
    Name,
}

impl Sort {
    pub(super) fn next(self) -> Self {
        match self {
            Self::Rate => Self::Total,
            Self::Total => Self::Name,
            Self::Name => Self::Rate,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Total => "total",
            Self::Name => "name",
        }
    }
}

/// What was counted in an interval, and up to its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Table {
    /// How long it has been counted, in nanoseconds.
    pub(super) elapsed_ns: u64,
    /// The length of the interval.
    pub(super) interval_ns: u64,
    /// Whether counting has ended.
    pub(super) last: bool,
    /// By event.
    pub(super) events: Vec<Row>,
    /// By process.
    pub(super) processes: Vec<Row>,
    /// By CPU.
    pub(super) cpus: Vec<Row>,
    /// Events in the interval.
    pub(super) count: u64,
    /// Events since the beginning.
    pub(super) total: u64,
    /// Of these, those that are in no process' row.
    pub(super) unnamed: u64,
    /// Events since the beginning that the kernel kept from the programs.
    pub(super) skipped: u64,
    /// How full the fullest map is: keys, and room for them.
    pub(super) keys: (u64, u64),
}

impl Table {
    /// Events a second.
    pub(super) fn rate(&self) -> f64 {
        rate(self.count, self.interval_ns)
    }
}

/// The events a second of so many in so many nanoseconds.
fn rate(count: u64, ns: u64) -> f64 {
    if ns == 0 { 0.0 } else { count as f64 * 1e9 / ns as f64 }
}

/// What is known from before.
#[derive(Debug, Default)]
pub(super) struct Rates {
    names: Vec<String>,
    /// The last look, of each event.
    last: Vec<Counted>,
    last_at: Duration,
    /// Totals of events.
    events: Vec<Totals>,
    cpus: Vec<u64>,
    processes: HashMap<u32, Known>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    all: u64,
    unnamed: u64,
    skipped: u64,
}

/// A process, since the beginning.
#[derive(Clone, Debug, Default)]
struct Known {
    total: u64,
    /// How many events had the name that had most.
    most: u64,
    name: Vec<u8>,
}

/// A process, in an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Active {
    count: u64,
    /// Most events of one kind, and which.
    most: (u64, usize),
}

impl Rates {
    /// Of events with these names.
    pub(super) fn of(names: impl IntoIterator<Item = String>) -> Self {
        let names: Vec<String> = names.into_iter().map(|name| terminal::name(&name)).collect();
        let count = names.len();
        Self {
            names,
            last: vec![Counted::default(); count],
            events: vec![Totals::default(); count],
            ..Self::default()
        }
    }

    /// What was looked at last is counted anew from 0 on.
    pub(super) fn begin_anew(&mut self) {
        for last in &mut self.last {
            // The kernel's own counts are not.
            *last = Counted { skipped: last.skipped, ..Counted::default() };
        }
    }

    /// Takes what is counted by now of each event, after so long.
    pub(super) fn look(&mut self, now: Vec<Counted>, at: Duration, keys: (u64, u64)) -> Table {
        let interval = at.saturating_sub(self.last_at);
        let interval_ns = nanoseconds(interval);
        let mut table = Table { elapsed_ns: nanoseconds(at), interval_ns, keys, ..Table::default() };
        let mut active: HashMap<u32, Active> = HashMap::new();
        let mut of_cpus = vec![0; self.cpus.len()];
        for (event, now) in now.iter().enumerate().take(self.names.len()) {
            let before = &self.last[event];
            let mut count = now.unnamed.saturating_sub(before.unnamed);
            let unnamed = count;
            let mut in_event: HashMap<u32, u64> = HashMap::new();
            for ((pid, name), &counted) in &now.processes {
                let key = (*pid, name.clone());
                let more = counted.saturating_sub(before.processes.get(&key).copied().unwrap_or(0));
                if more == 0 {
                    continue;
                }
                count += more;
                *in_event.entry(*pid).or_default() += more;
                let known = self.processes.entry(*pid).or_default();
                known.total += more;
                if more > known.most || known.name.is_empty() {
                    (known.most, known.name) = (more, key.1);
                }
            }
            for (pid, more) in in_event {
                let process = active.entry(pid).or_default();
                process.count += more;
                process.most = process.most.max((more, event));
            }
            for (cpu, &counted) in now.cpus.iter().enumerate() {
                let more = counted.saturating_sub(before.cpus.get(cpu).copied().unwrap_or(0));
                if of_cpus.len() <= cpu {
                    of_cpus.resize(cpu + 1, 0);
                }
                of_cpus[cpu] += more;
            }
            let totals = &mut self.events[event];
            totals.all += count;
            totals.unnamed += unnamed;
            totals.skipped = now.skipped;
            table.count += count;
            table.events.push(Row {
                name: self.names[event].clone(),
                rate: rate(count, interval_ns),
                count,
                total: totals.all,
                skipped: Some(totals.skipped),
                ..Row::default()
            });
        }
        self.cpus.resize(of_cpus.len(), 0);
        for (cpu, (total, count)) in self.cpus.iter_mut().zip(of_cpus).enumerate() {
            *total += count;
            let (rate, total) = (rate(count, interval_ns), *total);
            table.cpus.push(Row { name: cpu.to_string(), rate, count, total, ..Row::default() });
        }
        table.processes = self.processes(&active, interval_ns);
        table.total = self.events.iter().map(|totals| totals.all).sum();
        table.unnamed = self.events.iter().map(|totals| totals.unnamed).sum();
        table.skipped = self.events.iter().map(|totals| totals.skipped).sum();
        self.last = now;
        self.last.resize(self.names.len(), Counted::default());
        self.last_at = at;
        self.forget(&active);
        table
    }

    fn processes(&self, active: &HashMap<u32, Active>, interval_ns: u64) -> Vec<Row> {
        let row = |(&pid, known): (&u32, &Known)| {
            let Active { count, most } = active.get(&pid).copied().unwrap_or_default();
            let event = self.names.get(most.1).filter(|_| most.0 != 0);
            let name = terminal::name(&String::from_utf8_lossy(&known.name));
            Row {
                name,
                pid: Some(pid),
                event: event.cloned(),
                rate: rate(count, interval_ns),
                count,
                total: known.total,
                skipped: None,
            }
        };
        self.processes.iter().map(row).collect()
    }

    /// Forgets processes, if there are too many.
    fn forget(&mut self, active: &HashMap<u32, Active>) {
        let excess = self.processes.len().saturating_sub(PROCESSES_MAX);
        if excess == 0 {
            return;
        }
        let resting = self.processes.iter().filter(|(pid, _)| !active.contains_key(pid));
        let mut resting: Vec<(u64, u32)> = resting.map(|(pid, known)| (known.total, *pid)).collect();
        resting.sort_unstable();
        for (_, pid) in resting.into_iter().take(excess) {
            self.processes.remove(&pid);
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The rows with this text in their names, in an order.
pub(super) fn arranged<'r>(rows: &'r [Row], sort: Sort, is_reversed: bool, text: &str) -> Vec<&'r Row> {
    let has = |row: &&Row| {
        text.is_empty()
            || row.name.contains(text)
            || row.pid.is_some_and(|pid| pid.to_string() == text)
            || row.event.as_ref().is_some_and(|event| event.contains(text))
    };
    let mut rows: Vec<&Row> = rows.iter().filter(has).collect();
    rows.sort_by(|one, other| {
        let order = match sort {
            Sort::Rate => other.rate.total_cmp(&one.rate).then(other.total.cmp(&one.total)),
            Sort::Total => other.total.cmp(&one.total),
            Sort::Name => Ordering::Equal,
        };
        let order = order.then_with(|| by_name(one, other));
        if is_reversed { order.reverse() } else { order }
    });
    rows
}

/// CPUs by number, others by their names.
fn by_name(one: &Row, other: &Row) -> Ordering {
    let number = |row: &Row| row.name.parse::<u32>().ok();
    match (number(one), number(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        _ => one.name.cmp(&other.name).then(one.pid.cmp(&other.pid)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(processes: &[(u32, &[u8], u64)], cpus: &[u64]) -> Counted {
        let processes = processes.iter().map(|(pid, name, count)| ((*pid, name.to_vec()), *count)).collect();
        Counted { processes, cpus: cpus.to_vec(), ..Counted::default() }
    }

    fn second(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    fn row<'r>(rows: &'r [Row], name: &str) -> &'r Row {
        rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("{name}: {rows:#?}"))
    }

    #[test]
    fn an_interval_is_what_came_since_the_last_look() {
        let mut rates = Rates::of(vec!["a:b".to_owned(), "a:c".to_owned()]);
        let first =
            vec![counted(&[(7, b"sh", 10), (7, b"worker", 4)], &[10, 4]), counted(&[(7, b"sh", 1)], &[1, 0])];
        let table = rates.look(first, second(2), (3, 100));
        assert_eq!((table.count, table.total, table.keys), (15, 15, (3, 100)));
        assert!((table.rate() - 7.5).abs() < 1e-9);
        let process = row(&table.processes, "sh");
        assert_eq!((process.pid, process.count, process.event.as_deref()), (Some(7), 15, Some("a:b")));
        assert_eq!((table.cpus[0].count, table.cpus[1].count), (11, 4));

        let mut second_look = vec![
            counted(&[(7, b"sh", 10), (7, b"worker", 4), (8, b"cat", 5)], &[10, 9]),
            counted(&[(7, b"sh", 3)], &[1, 2]),
        ];
        second_look[0].unnamed = 6;
        second_look[1].skipped = 2;
        let table = rates.look(second_look, second(3), (4, 100));
        assert_eq!((table.interval_ns, table.count, table.total), (1_000_000_000, 13, 28));
        assert_eq!((table.unnamed, table.skipped), (6, 2));
        assert_eq!((row(&table.events, "a:b").count, row(&table.events, "a:b").total), (11, 25));
        assert_eq!(row(&table.processes, "sh").event.as_deref(), Some("a:c"));
        assert_eq!((row(&table.processes, "cat").count, row(&table.processes, "cat").total), (5, 5));
        assert_eq!((table.cpus[1].count, table.cpus[1].total), (7, 11));
    }

    #[test]
    fn maps_that_were_emptied_go_on_with_the_totals() {
        let mut rates = Rates::of(vec!["a:b".to_owned()]);
        let look = |count: u64| vec![Counted { skipped: 1, ..counted(&[(7, b"sh", count)], &[count]) }];
        rates.look(look(10), second(1), (1, 1));
        rates.begin_anew();
        let table = rates.look(look(3), second(2), (1, 1));
        assert_eq!((table.count, table.total, table.cpus[0].total), (3, 13, 13));
        assert_eq!((row(&table.processes, "sh").total, table.skipped), (13, 1));
    }

    #[test]
    fn names_of_others_are_made_safe() {
        let mut rates = Rates::of(vec!["a:\u{1b}[31mb".to_owned()]);
        let table = rates.look(vec![counted(&[(7, b"\x1b]0;x\x07\xff\n", 1)], &[1])], second(1), (1, 1));
        for name in [&table.events[0].name, &table.processes[0].name] {
            assert!(name.chars().all(|c| !c.is_control()), "{name:?}");
        }
        assert!(table.processes[0].name.starts_with(r"\x1b]0;x\x07"), "{:?}", table.processes[0]);
    }

    #[test]
    fn rows_are_chosen_and_sorted() {
        let row = |name: &str, rate: f64, total: u64| Row {
            name: name.to_owned(),
            pid: Some(total as u32),
            rate,
            total,
            ..Row::default()
        };
        let rows = [row("b", 1.0, 9), row("a", 2.0, 8), row("c", 0.0, 10)];
        let names = |sort, reversed, text: &str| {
            arranged(&rows, sort, reversed, text).iter().map(|row| row.name.clone()).collect::<String>()
        };
        assert_eq!(names(Sort::Rate, false, ""), "abc");
        assert_eq!(names(Sort::Total, false, ""), "cba");
        assert_eq!(names(Sort::Name, false, ""), "abc");
        assert_eq!(names(Sort::Name, true, ""), "cba");
        assert_eq!((names(Sort::Rate, false, "b"), names(Sort::Rate, false, "10")), ("b".into(), "c".into()));
        let cpus = [row("10", 0.0, 0), row("9", 0.0, 0)];
        assert_eq!(arranged(&cpus, Sort::Name, false, "")[0].name, "9");
    }

    #[test]
    fn processes_that_came_and_went_do_not_fill_the_memory() {
        let mut rates = Rates::of(vec!["a:b".to_owned()]);
        for round in 0..4_u32 {
            let processes = (0..10_000).map(|at| ((round * 10_000 + at, b"x".to_vec()), 1)).collect();
            rates.look(vec![Counted { processes, ..Counted::default() }], second(u64::from(round)), (0, 0));
            rates.begin_anew();
            assert!(rates.processes.len() <= PROCESSES_MAX + 10_000);
        }
        assert_eq!(rates.processes.len(), PROCESSES_MAX);
        assert_eq!(rates.events[0].all, 40_000);
    }
}
