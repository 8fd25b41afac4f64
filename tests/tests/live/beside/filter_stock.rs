//! The same filters select the same records here and in stock trace-cmd.
//!
//! What is left out here because stock trace-cmd does something that nobody can want (all of it is in the
//! table of `ftrace_event::filter`):
//!
//! - `<` and `>` for values below zero, which it compares without their sign;
//! - two fields compared with each other, `-1`, arithmetic inside comparisons: syntax errors;
//! - texts of one character in single quotes, and texts compared with numbers that are no addresses;
//! - fields that no event has: false there, and here, too, if that is asked for; otherwise an error.
//! - files with named buffers: it crashes;
//! - stacks of events that a filter left out: it shows those behind an event that it showed before.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    path::{Path, PathBuf},
};

use ftrace_event::filter::{Dialect, Filter, Origin, ResolveOptions, Selection, Shown};
use ftrace_event::{EventTable, FieldKind, Machine, NoNames, Symbol, Symbols, Value};
use integration_tests::trace_cmd::{self, Line};
use tracedat::reader::Reader;

/// A field that no event has is false.
const AS_STOCK: ResolveOptions = ResolveOptions { unknown_fields: true, mismatches: false, live: false };

/// A record as far as both sides tell it: thread, CPU, time, event.
type Seen = (u32, u32, u64, String);

/// The functions of a file, looked up as trace-cmd does: whatever begins last before the address holds it.
struct Functions(BTreeMap<u64, String>);

impl Functions {
    fn parse(text: &str) -> Self {
        let mut functions = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (address, kind, name) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            if !matches!(kind, "A" | "a") && !name.starts_with('$') {
                functions.insert(u64::from_str_radix(address, 16).unwrap(), name.to_owned());
            }
        }
        Self(functions)
    }
}

impl Symbols for Functions {
    fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
        let (start, name) = self.0.range(..=address).next_back()?;
        // The last one is only found at its very address.
        if start != &address && self.0.range(start + 1..).next().is_none() {
            return None;
        }
        Some(Symbol { name, offset: address - start, size: None, module: None })
    }
}

/// One recording of stock trace-cmd, opened by both.
struct Recording {
    path: PathBuf,
    reader: Reader<File>,
    events: EventTable,
    functions: Functions,
}

impl Recording {
    fn open(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces").join(name);
        let reader = Reader::open(File::open(&path).unwrap()).unwrap();
        let layout = reader.layout();
        let mut events = EventTable::new(Machine { endian: layout.endian, long_size: layout.long_size });
        for event in reader.metadata().events() {
            events.add(event.system, event.format, &NoNames).unwrap();
        }
        let functions = Functions::parse(std::str::from_utf8(&reader.kallsyms().unwrap()).unwrap());
        Self { path, reader, events, functions }
    }

    fn stock(&self, filters: &[(&str, bool)]) -> Vec<Seen> {
        let mut args = vec!["report", "-t"];
        let mut inverted = false;
        for (filter, negated) in filters {
            assert!(*negated || !inverted, "-v is for all that follow");
            if *negated && !inverted {
                args.push("-v");
                inverted = true;
            }
            args.extend(["-F", filter]);
        }
        // Behind `-i FILE` it takes no notice of filters.
        args.push(self.path.to_str().unwrap());
        let said = trace_cmd::run(&args);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "trace-cmd {args:?}");
        // Lines that are no event's are those of stacks.
        said.out
            .lines()
            .filter_map(Line::parse)
            .map(|line| (line.pid, line.cpu, line.time, line.event))
            .collect()
    }

    fn ours(&self, filters: &[(&str, bool)]) -> Vec<Seen> {
        let mut selection = Selection::new(&self.events);
        for (filter, negated) in filters {
            let resolved = Filter::parse(filter, Dialect::TraceCmd)
                .and_then(|filter| filter.resolve(&self.events, AS_STOCK))
                .unwrap_or_else(|error| panic!("{error}"));
            selection.add(resolved, *negated);
        }
        let mut shown = Shown::default();
        let mut seen = Vec::new();
        self.each(|event, record, origin, time| {
            if selection.wants(event, record, 0, origin, &mut shown) {
                let name = self.events.get(event).unwrap().name().to_owned();
                let pid = u32::from_le_bytes(record[4..8].try_into().unwrap());
                seen.push((pid, origin.cpu, time, name));
            }
        });
        seen
    }

    fn each(&self, mut look: impl FnMut(u16, &[u8], &Origin<'_>, u64)) {
        let mut records = self.reader.records().unwrap();
        let tasks = &self.reader.metadata().cmdlines;
        while let Some(record) = records.next_record().unwrap() {
            let origin =
                Origin { cpu: record.cpu, timestamp: record.timestamp, tasks, symbols: &self.functions };
            look(record.event_id().unwrap(), record.data, &origin, record.timestamp);
        }
    }

    #[track_caller]
    fn compare(&self, filters: &[(&str, bool)]) -> usize {
        let (stock, ours) = (self.stock(filters), self.ours(filters));
        let first = stock.iter().zip(&ours).find(|(stock, ours)| stock != ours);
        assert!(
            stock == ours,
            "{filters:?}: stock has {} records, the agent {}; first difference: {first:?}",
            stock.len(),
            ours.len()
        );
        stock.len()
    }
}

const ALL: &str = "k6.12-all-mono.dat";
const SCHED: &str = "k6.12-sched-irq-timer-zstd.dat";
const STACKS: &str = "k6.12-stacks.dat";
const KPROBES: &str = "k6.12-kprobes.dat";

/// Filters that select something, and not everything.
const FILTERS: [(&str, &str); 51] = [
    (SCHED, "sched_switch"),
    (SCHED, "sched"),
    (SCHED, "sched_*"),
    (SCHED, "sched/sched_wak.*"),
    (SCHED, "SCHED/Sched_Switch, irq/softirq_[er][nx].*"),
    (SCHED, "timer,irq"),
    (SCHED, "sched_switch: next_pid == 0"),
    (SCHED, "sched_switch:next_pid!=0x0"),
    (SCHED, "sched_switch : prev_prio >= 120 && next_prio < 0170"),
    (SCHED, "sched_switch: next_pid & 1"),
    (SCHED, "sched_switch: 3 & next_pid"),
    (SCHED, "sched_switch: next_pid % 2"),
    (SCHED, "sched_switch: next_pid - 281"),
    (SCHED, "sched_switch: next_pid >> 3"),
    (SCHED, "sched_switch: prev_state ^ 1"),
    (SCHED, "sched_switch: prev_state | 0"),
    (SCHED, "sched_switch: next_comm == \"trace-cmd\""),
    (SCHED, "sched_switch: next_comm != 'trace-cmd'"),
    (SCHED, "sched_switch: next_comm =~ \"^k\\|SWAPPER\""),
    (SCHED, "sched_switch: prev_comm !~ \"[0-9]\\+$\""),
    (SCHED, "sched_switch: prev_comm =~ \"^[[:alpha:]]\\{5\\}$\""),
    (SCHED, "sched_switch: ! next_pid == 0 && ! ( prev_pid == 0 )"),
    (SCHED, "sched_switch: !(next_pid == 0 || prev_pid == 0)"),
    // From left to right: this is (a || b) && c.
    (SCHED, "sched_switch: next_pid == 0 || next_prio == 120 && prev_pid == 0"),
    (SCHED, "sched_switch: next_pid == 0 && prev_prio == 120 || prev_pid == 0"),
    (SCHED, "sched_switch: next_pid == 0 || (next_prio == 120 && prev_pid == 0)"),
    (SCHED, "sched: bogus == 1 || common_pid == 0 || pid > 280"),
    (SCHED, "sched: !bogus == 1 && runtime > 1000000 || pid == 17"),
    (SCHED, "sched: pid > 100"),
    (SCHED, ".*:COMM == \"trace-cmd\""),
    (SCHED, ".*: COMM =~ \"^rcu\""),
    (SCHED, ".*: COMM != \"<idle>\" && CPU == 1"),
    (SCHED, ".*: CPU & 1"),
    (SCHED, ".*: common_pid == 0 && common_preempt_count == 1"),
    (SCHED, ".*: common_flags & 8"),
    (SCHED, "softirq_.*: vec == 1 || vec == 9"),
    (SCHED, "hrtimer_start, hrtimer_expire_entry: function == \"tick_nohz_handler\""),
    (SCHED, "timer_start: function !~ \"^process\""),
    (SCHED, "hrtimer_start: softexpires > 4900000000"),
    (SCHED, "sched_stat_runtime: comm =~ \"sh\" && runtime / 1000000"),
    (SCHED, "sched_process_exec: filename =~ \"tmp\""),
    (SCHED, "sched_process_fork: child_pid > 170"),
    (ALL, "kmem: bytes_alloc > 200"),
    (ALL, "kmem_cache_free: name == \"filp\" || name =~ \"^vm_area\""),
    (ALL, "kfree: call_site =~ \"free\""),
    (ALL, "sys_enter: id == 1 || id == 0"),
    (ALL, "sys_exit: ret == 0"),
    (ALL, "rcu_utilization: common_pid > 0"),
    (ALL, "page_fault_user: ip == \"0x0\" || error_code & 4"),
    (ALL, "mm_page_alloc: order == 0 && pfn > 1000"),
    (KPROBES, ".*: common_pid > 0"),
];

#[test]
fn the_same_filters_select_the_same_records() {
    let files: BTreeSet<_> = FILTERS.iter().map(|(file, _)| *file).collect();
    for file in files {
        let recording = Recording::open(file);
        let mut empty = Vec::new();
        for (_, filter) in FILTERS.iter().filter(|(name, _)| *name == file) {
            if recording.compare(&[(filter, false)]) == 0 {
                empty.push(filter);
            }
        }
        assert!(empty.is_empty(), "{file}: these select nothing and prove nothing: {empty:?}");
    }
}

#[test]
fn several_filters_are_alternatives_and_those_behind_v_take_away() {
    let recording = Recording::open(SCHED);
    for filters in [
        &[("sched_switch: next_pid == 0", false), ("irq", false)][..],
        &[("sched_switch: next_pid == 0", true)],
        &[("sched", true), ("irq: vec == 1", true)],
        &[("sched", false), ("sched_switch: next_pid == 0", true)],
        &[("sched_switch", false), ("timer", false), (".*: CPU == 0", true), ("hrtimer.*", true)],
    ] {
        assert!(recording.compare(filters) > 0);
    }
}

/// Stacks are those of the events before them, which differs from stock trace-cmd; the events are the same.
#[test]
fn a_stack_is_shown_with_its_event() {
    let recording = Recording::open(STACKS);
    let is_stack = |seen: &Seen| seen.3 == "kernel_stack" || seen.3 == "user_stack";
    for filters in [
        &[("sched_switch: next_pid == 0", false)][..],
        &[("sched_switch: next_pid == 0", true)],
        &[("sched_switch", false)],
        &[(".*_stack", false)],
    ] {
        let (stock, ours) = (recording.stock(filters), recording.ours(filters));
        let events = |seen: &[Seen]| seen.iter().filter(|seen| !is_stack(seen)).cloned().collect::<Vec<_>>();
        assert_eq!(events(&stock), events(&ours), "{filters:?}");
        // Every stack that is shown is behind its event, unless stacks alone were asked for.
        let all = recording.ours(&[]);
        let wanted: BTreeSet<_> = ours.iter().collect();
        let mut last: BTreeMap<u32, bool> = BTreeMap::new();
        let mut stacks = 0;
        for seen in &all {
            if is_stack(seen) {
                let asked = filters[0].0 == ".*_stack";
                assert_eq!(wanted.contains(seen), asked || last[&seen.1], "{seen:?}");
                stacks += usize::from(wanted.contains(seen));
            } else {
                last.insert(seen.1, wanted.contains(seen));
            }
        }
        assert!(stacks > 0, "{filters:?}");
    }
}

/// Numbers that come out the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// Values that a field has in the recording.
#[derive(Default)]
struct Values {
    numbers: BTreeSet<u64>,
    negative: bool,
    texts: BTreeSet<String>,
}

/// By system, event and field.
type Known = BTreeMap<(String, String), BTreeMap<String, Values>>;

fn known_values(recording: &Recording) -> Known {
    let mut known = Known::new();
    recording.each(|event, record, _, _| {
        let event = recording.events.get(event).unwrap();
        let fields = known.entry((event.system().to_owned(), event.name().to_owned())).or_default();
        for (field, value) in event.common_fields(record).chain(event.fields(record)) {
            let kind = event.kind(event.field_index(&field.name).unwrap()).unwrap();
            // Compared with a number, an array of numbers is the memory that was there before in stock
            // trace-cmd.
            let values = match kind {
                FieldKind::Number { .. } | FieldKind::Pointer { .. } | FieldKind::Text => {
                    fields.entry(field.name.clone()).or_default()
                }
                _ => continue,
            };
            match value.unwrap() {
                Value::Signed(number) if number < 0 => values.negative = true,
                Value::Signed(number) => drop(values.numbers.insert(number as u64)),
                Value::Unsigned(number) | Value::Pointer(number) => drop(values.numbers.insert(number)),
                Value::Text(text) => {
                    let text = String::from_utf8_lossy(text).into_owned();
                    if !text.contains(['"', '\\', '[', '*']) {
                        values.texts.insert(text);
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    });
    known
}

fn comparison(random: &mut Random, fields: &BTreeMap<String, Values>) -> String {
    if random.below(8) == 0 {
        return [
            "CPU == 0",
            "CPU != 0",
            "COMM == \"<idle>\"",
            "COMM =~ \"^s\"",
            "COMM !~ \"[0-9]\"",
            "no_such_field == 1",
        ][random.below(6)]
        .to_owned();
    }
    let usable: Vec<_> =
        fields.iter().filter(|(_, v)| !v.numbers.is_empty() || !v.texts.is_empty()).collect();
    let (name, values) = random.pick(&usable);
    if values.texts.is_empty() {
        let numbers: Vec<_> = values.numbers.iter().collect();
        let number = **random.pick(&numbers);
        let number = number.wrapping_add(random.below(3) as u64).saturating_sub(1);
        let number = if random.below(2) == 0 { number.to_string() } else { format!("{number:#x}") };
        let operators: &[&str] = if values.negative {
            &["==", "!=", "&", "^"]
        } else {
            &["==", "!=", "<", ">", "<=", ">=", "&", "^"]
        };
        return format!("{name} {} {number}", random.pick(operators));
    }
    let texts: Vec<_> = values.texts.iter().collect();
    let text = random.pick(&texts);
    let part: String = text.chars().skip(random.below(3)).take(1 + random.below(5)).collect();
    match random.below(4) {
        0 => format!("{name} == \"{text}\""),
        1 => format!("{name} != \"{text}\""),
        2 => format!("{name} =~ \"{part}\""),
        _ => format!("{name} !~ \"^{part}\""),
    }
}

fn expression(random: &mut Random, fields: &BTreeMap<String, Values>, depth: usize) -> String {
    match if depth == 0 { 0 } else { random.below(6) } {
        0 | 1 => comparison(random, fields),
        2 => format!("!{}", comparison(random, fields)),
        3 => format!("!({})", expression(random, fields, depth - 1)),
        _ => {
            let mut terms = String::new();
            for place in 0..2 + random.below(3) {
                if place > 0 {
                    terms.push_str([" && ", " || "][random.below(2)]);
                }
                let inner = expression(random, fields, depth - 1);
                // Without parentheses some are taken together with what is before them.
                let bare = inner.contains("&&") || inner.contains("||");
                terms.push_str(&if bare { format!("({inner})") } else { inner });
            }
            terms
        }
    }
}

#[test]
fn random_filters_select_the_same_records() {
    let recording = Recording::open(ALL);
    let known = known_values(&recording);
    let events: Vec<_> = known.iter().filter(|(_, fields)| !fields.is_empty()).collect();
    let mut random = Random(0x5eed_1234_5678_9abc);
    let (mut some, mut selected) = (0, 0);
    for _ in 0..60 {
        let ((system, event), fields) = random.pick(&events);
        let head = match random.below(3) {
            0 => format!("{system}/{event}"),
            1 => event.clone(),
            _ => format!(" {event} , {system}/{event} "),
        };
        let filter = format!("{head}:{}", expression(&mut random, fields, 3));
        let count = recording.compare(&[(&filter, false)]);
        some += usize::from(count != 0);
        selected += count;
    }
    assert!(some > 25 && selected > 300, "{some} filters select {selected} records");
}
