//! Whole recordings, and less of each, as scopes, filters, sampling, rates, losses, several buffers and short
//! rings leave it: what is answered of less is what is answered of all, or less than that, or unknown.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::world::{HOWS, How, Made, OF_LIVES, Part, World};
use serde_json::{Map, Value, json};

/// How a figure of less may differ from that of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Bound {
    /// Those of parts add up to no more.
    Sum,
    Most,
    Least,
}

/// The members of answers that are figures.
const FIGURES: &[(Bound, &[&str])] = &[
    (
        Bound::Sum,
        &[
            "allocated",
            "allocated_bytes",
            "blocked_ns",
            "busy",
            "busy_ns",
            "bytes",
            "calls",
            "changed",
            "count",
            "failed",
            "freed",
            "freed_bytes",
            "idle",
            "idle_ns",
            "interrupted",
            "irq_ns",
            "kept",
            "kept_bytes",
            "kernel_bytes",
            "kernel_faults",
            "merged",
            "migrations",
            "off_cpu_ns",
            "open",
            "open_ns",
            "other_timers",
            "own_ns",
            "own_weight",
            "pages",
            "requested_bytes",
            "requeued",
            "run_ns",
            "samples",
            "sleep_ns",
            "softirq_ns",
            "started",
            "stopped_ns",
            "switches",
            "timed_out",
            "total_ns",
            "total_weight",
            "user_faults",
            "wait_ns",
            "wakes",
            "weight",
            "woken",
        ],
    ),
    (Bound::Most, &["most_ns", "most_depth", "peak"]),
    (Bound::Least, &["least_ns"]),
];

/// Members that say what something is.
const KEYS: &[&str] = &[
    "address",
    "call_site",
    "cpu",
    "device",
    "errno",
    "event",
    "function",
    "irq",
    "kind",
    "name",
    "number",
    "object_bytes",
    "operation",
    "order",
    "path",
    "state",
    "vector",
];

/// Members that are no figures, or follow from others: what is unknown, percentiles, times of day, names,
/// the longest of several, which are others where some are missing.
const OTHERS: &[&str] = &[
    "at_ns",
    "average_depth",
    "average_ns",
    "busiest",
    "callers",
    "comm",
    "fd",
    "has_stacks",
    "id",
    "is_kernel",
    "is_shared",
    "kernel",
    "knows_calls",
    "left_out",
    "mapping",
    "most",
    "most_at_ns",
    "mostly",
    "odd",
    "open_since_ns",
    "other_events",
    "others",
    "process",
    "p50_ns",
    "p95_ns",
    "p99_ns",
    "reason",
    "reclaims_unmatched",
    "threads",
    "threads_left_out",
    "threads_without_process",
    "tid",
    "unfinished",
    "unit",
    "unknown",
    "unknown_ns",
    "unknown_timers",
    "unmatched",
    "unmatched_errors",
    "unseen",
    "user",
    "wakers",
    "without_entry",
    "without_stack",
    "without_weight",
    "worst",
];

/// Figures by what they are about.
type Figures = BTreeMap<(String, Bound), u64>;

/// Takes the figures out of an answer.
struct Taking<'w> {
    world: &'w World,
    figures: Figures,
    /// Paths of what is unknown of a row.
    unknown: BTreeSet<String>,
}

impl Taking<'_> {
    fn take(&mut self, path: &str, value: &Value) {
        match value {
            Value::Object(members) => self.take_members(path, members),
            Value::Array(rows) => rows.iter().for_each(|row| self.take(path, row)),
            _ => {}
        }
    }

    fn take_members(&mut self, path: &str, members: &Map<String, Value>) {
        // Files without a path and futexes are named by who used them first, as far as that was seen.
        let is_file = ["io.files", "locks.futexes.locks", "locks.futexes.callers"].contains(&path);
        let mut path = path.to_owned();
        for key in KEYS {
            match members.get(*key) {
                Some(Value::String(text)) => path += &format!("[{key} {text}]"),
                Some(Value::Number(number)) => path += &format!("[{key} {number}]"),
                _ => {}
            }
        }
        let name = members.get("comm").and_then(Value::as_str).filter(|_| !is_file);
        let row = name.and_then(|name| self.world.rows.get(name));
        let of_row = row.map(|row| u64::from(self.world.truth[*row].tid));
        let tid = members.get("tid").and_then(Value::as_u64).filter(|_| !is_file);
        if let (Some(tid), Some(of_row)) = (tid, of_row) {
            assert_eq!(tid, of_row, "{path}: {name:?} is another one's name");
        }
        let paths = match (row, tid.or(of_row)) {
            (Some(row), Some(tid)) => vec![format!("{path}[row {row}]"), format!("{path}[tid {tid}]")],
            (None, Some(tid)) => vec![format!("{path}[tid {tid}]")],
            _ => vec![path],
        };
        for path in paths {
            for (name, value) in members {
                let path = format!("{path}.{name}");
                let bound = FIGURES.iter().find(|(_, names)| names.contains(&name.as_str()));
                match (bound, value) {
                    (_, Value::Null) => {
                        self.unknown.insert(path);
                    }
                    (Some((bound, _)), Value::Number(number)) => {
                        self.add(path, *bound, number.as_u64().unwrap());
                    }
                    (_, Value::Object(_) | Value::Array(_))
                        if !matches!(
                            name.as_str(),
                            "wakers" | "worst" | "unmatched_errors" | "without_stack"
                        ) =>
                    {
                        self.take(&path, value);
                    }
                    (None, _) => {
                        let is_told = KEYS.contains(&name.as_str()) || OTHERS.contains(&name.as_str());
                        assert!(is_told, "{path} is no figure that this test knows");
                    }
                    _ => {}
                }
            }
        }
    }

    fn add(&mut self, path: String, bound: Bound, figure: u64) {
        if path.starts_with("sched.threads")
            && ["sleep_ns", "blocked_ns", "wait_ns"].iter().any(|name| path.ends_with(name))
        {
            let all = path.rsplit_once('.').unwrap().0;
            *self.figures.entry((format!("{all}.off_ns"), Bound::Sum)).or_default() += figure;
        }
        // Without a time there is no least one.
        if bound == Bound::Least && figure == 0 {
            return;
        }
        let before = self.figures.entry((path, bound));
        let add = |sum: &mut u64| match bound {
            Bound::Sum => *sum += figure,
            Bound::Most => *sum = (*sum).max(figure),
            Bound::Least => *sum = (*sum).min(figure),
        };
        before.and_modify(add).or_insert(figure);
    }
}

/// All that is answered of a file.
fn figures(world: &World, bytes: Vec<u8>) -> Figures {
    taken(world, bytes).figures
}

/// The figures of which nothing is unknown: one id may be that of several rows.
fn known_figures(world: &World, bytes: Vec<u8>) -> Figures {
    let Taking { mut figures, unknown, .. } = taken(world, bytes);
    let is_below = |path: &str, above: &String| {
        path.strip_prefix(above.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    figures.retain(|(path, _), _| !unknown.iter().any(|above| is_below(path, above)));
    figures
}

fn taken(world: &World, bytes: Vec<u8>) -> Taking<'_> {
    let file = TraceFile::open("made", bytes).unwrap();
    let mut taking = Taking { world, figures: Figures::new(), unknown: BTreeSet::new() };
    for (name, topic) in Topic::NAMES {
        let Some(answer) = of_topic(&file, topic) else { continue };
        // The summary has the first rows of other answers, which are others where some are missing.
        let Value::Object(members) = &answer else { panic!("{answer}") };
        for (member, value) in members {
            let of = match (topic, member.as_str()) {
                (Topic::Summary, "busiest") => "sched.threads".to_owned(),
                (Topic::Summary, "calls") => "syscalls.calls".to_owned(),
                (Topic::Summary, "disks") => "io.devices".to_owned(),
                (Topic::Summary, "irqs" | "softirqs") => format!("irq.{member}"),
                _ => continue,
            };
            let mut other = Taking { world, figures: Figures::new(), unknown: BTreeSet::new() };
            other.take(&of, value);
            for (key, figure) in other.figures {
                let (path, bound) = key.clone();
                let own = taking.figures.get(&key).copied();
                let is_within = match bound {
                    Bound::Least => own.is_none_or(|own| figure >= own),
                    _ => figure <= own.unwrap_or(0),
                };
                assert!(is_within, "{path}: {figure} in the summary, {own:?} in its own answer");
            }
        }
        let rest = members.iter().filter(|(member, _)| {
            topic != Topic::Summary || ["events", "cpus", "started", "woken"].contains(&member.as_str())
        });
        taking.take(name, &Value::Object(rest.map(|(name, value)| (name.clone(), value.clone())).collect()));
    }
    taking
}

/// The event whose stacks are asked about.
const STACKS_OF: &str = "timer:hrtimer_expire_entry";

/// An answer. `None` if the file lacks events that the answer needs.
fn of_topic(file: &TraceFile<Vec<u8>>, topic: Topic) -> Option<Value> {
    fn ask<A: Analysis>(file: &TraceFile<Vec<u8>>, topic: Topic, analysis: A) -> Option<Value> {
        let (answer, covered) = answer(file, topic, &Scope::default(), analysis, &mut |_| {}).unwrap();
        let mut lacks = covered.missing.iter().chain(&covered.unseen);
        lacks.all(|need| !need.is_required).then(|| json!(answer))
    }
    let (scope, calls) = (Scope::default(), file.call_names());
    match topic {
        Topic::Sched => ask(file, topic, Sched::new(scope)),
        Topic::Offcpu => ask(file, topic, OffCpu::new(scope)),
        Topic::Cpu => ask(file, topic, Cpu::of_ticks(file, scope)),
        Topic::Stacks => {
            let pick = Pick::of(file, STACKS_OF, &Weight::Count).unwrap();
            ask(file, topic, Stacks::new(scope, pick))
        }
        Topic::Syscalls => ask(file, topic, Calls::new(scope, calls)),
        Topic::Io => ask(file, topic, Io::of(file, scope)),
        Topic::Irq => ask(file, topic, Irqs::new(scope)),
        Topic::Locks => ask(file, topic, Locks::new(scope, calls, Vec::new())),
        Topic::Memory => ask(file, topic, Memory::new(scope)),
        Topic::Summary => ask(file, topic, Summary::of(file, scope)),
    }
}

/// For how long the thread of a path had another number before a record said so.
fn untold(world: &World, path: &str) -> u64 {
    if !path.starts_with("sched.threads") || !path.ends_with(".run_ns") {
        return 0;
    }
    let number = |of: &str| {
        let (_, rest) = path.split_once(of)?;
        rest.split_once(']').and_then(|(number, _)| number.parse::<u64>().ok())
    };
    let of_row = number("[row ").map(|row| world.truth[row as usize].untold);
    let of_tid = number("[tid ").map(|tid| {
        world.truth.iter().filter(|truth| u64::from(truth.tid) == tid).map(|truth| truth.untold).sum()
    });
    of_row.or(of_tid).unwrap_or(0)
}

/// A path without what it is about.
fn kind_of(path: &str) -> String {
    let mut kind = String::new();
    let mut depth = 0;
    for character in path.chars() {
        match character {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ if depth == 0 => kind.push(character),
            _ => {}
        }
    }
    kind
}

/// What is answered of all is what happened.
fn is_what_happened(world: &World, whole: &Figures, end: u64) {
    // Behind the last record nothing is known.
    let behind = end - world.made.last().unwrap().time;
    for (row, truth) in world.truth.iter().enumerate() {
        let told = |figure: &str| {
            let path = format!("sched.threads[row {row}].{figure}");
            whole.get(&(path, Bound::Sum)).copied().unwrap_or(0)
        };
        let (runs, sleeps) = (told("run_ns"), told("sleep_ns") + told("blocked_ns"));
        // Under which number a thread has run is known when a record says so.
        assert!(runs + behind >= truth.runs && runs <= truth.runs + truth.untold, "{runs} of {truth:?}");
        let others = [told("wait_ns") <= truth.waits, sleeps <= truth.sleeps];
        assert!(others == [true; 2] && told("switches") == truth.switches, "{row}: {truth:?}");
    }
}

#[test]
fn less_of_a_recording_says_no_more_than_all_of_it() {
    let (mut wrong, mut told) = (BTreeMap::<_, (u64, String)>::new(), BTreeMap::<_, (u64, u64)>::new());
    for seed in 1..=12_u64 {
        let mut world = World::new(seed * 0x9e37_79b9);
        let end = world.run(500);
        let whole = figures(&world, Part::whole(&world).file(&world));
        is_what_happened(&world, &whole, end);
        for how in HOWS {
            let part = Part::less(&mut world, how);
            if part.hides_exec(&world) && matches!(how, How::Named | How::NotNamed) {
                continue;
            }
            let lacks_wakeups = part.lacks_wakeups(&world);
            for ((path, bound), figure) in figures(&world, part.file(&world)) {
                if is_of_less(&path, how, lacks_wakeups) {
                    continue;
                }
                let of_whole = whole.get(&(path.clone(), bound)).copied();
                let most = of_whole.unwrap_or(0) + untold(&world, &path);
                let is_within = match bound {
                    Bound::Sum | Bound::Most => figure <= most,
                    Bound::Least => of_whole.is_some_and(|of_whole| figure >= of_whole),
                };
                if bound == Bound::Sum && is_within {
                    let topic = path.split(['.', '[']).next().unwrap().to_owned();
                    let (some, all) = told.entry(topic).or_default();
                    (*some, *all) = (*some + figure, *all + most);
                }
                if !is_within {
                    let about =
                        format!("{how:?}, {seed}: {path} {figure} of {of_whole:?} {:?}", part.filters);
                    wrong.entry((format!("{how:?}"), kind_of(&path))).or_insert((0, about)).0 += 1;
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // It is not unknown throughout.
    assert_eq!(told.len(), Topic::NAMES.len());
    assert!(told.values().all(|(some, all)| *some > all / 4), "{told:?}");
}

#[test]
fn what_was_not_recorded_is_unknown() {
    let mut wrong = BTreeMap::<_, (u64, String)>::new();
    let mut unknown = 0;
    for seed in 1..=4_u64 {
        let mut world = World::new(seed * 0x9e37_79b9);
        world.run(500);
        let whole = figures(&world, Part::whole(&world).file(&world));
        let mut kinds: BTreeSet<_> = world.made.iter().map(Made::kind).collect();
        // What these would tell is under the name or the number that a thread has without them, and the event
        // whose stacks are asked about is counted as it is in the file.
        kinds.retain(|kind| !OF_LIVES.contains(kind) && kind.event() != STACKS_OF);
        // Answers end with the last record.
        kinds.remove(&world.made.last().unwrap().kind());
        for kind in kinds {
            let less = known_figures(&world, Part::without(&world, kind).file(&world));
            unknown += whole.keys().filter(|path| !less.contains_key(path)).count();
            for ((path, bound), figure) in less {
                let of_whole = whole.get(&(path.clone(), bound)).copied().unwrap_or(0);
                // Only the most frequent events are named, and this sum of the test is of what is known.
                let is_other = path.starts_with("summary.events") || path.ends_with(".off_ns");
                if figure != of_whole && !is_other {
                    let about = format!("{seed}: {path} {figure} of {of_whole}");
                    wrong.entry((kind.event(), kind_of(&path))).or_insert((0, about)).0 += 1;
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_ne!(unknown, 0);
}

/// Whether a figure means something else where a recording is less in this way.
fn is_of_less(path: &str, how: How, lacks_wakeups: bool) -> bool {
    // Events are counted in each buffer, and only the most frequent ones are named.
    let is_count = path.starts_with("summary.events");
    // The growth of memory counts from the first record on.
    let is_peak = path.contains("peak") && how == How::Ring;
    // Who is not seen to be woken seems to sleep on.
    let is_sleep = lacks_wakeups && (path.ends_with(".sleep_ns") || path.ends_with(".blocked_ns"));
    is_count || is_peak || is_sleep
}
