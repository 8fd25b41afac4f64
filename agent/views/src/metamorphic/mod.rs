//! Whole recordings, and less of each, as scopes, filters, sampling, rates, losses, several buffers and short
//! rings leave it: each slice of less is in a slice of all.
//!
//! | file | subject |
//! |---|---|
//! | `page` | slices of a page of HTML |
//! | `trace` | slices, flows and losses of Chrome's JSON |

mod page;
mod trace;

use std::collections::{BTreeMap, BTreeSet};

use analysis::answers::Tid;
use analysis::world::{BEGIN, CPUS, HOWS, How, Part, Span, What, World};
use recording::survey::TraceFile;
use recording::{Format, Job, Recording};
use stdx::output::Directory;
use tracedat::reader::Reader;

use crate::chrome::Chrome;
use crate::timeline::Timeline;

/// What a slice is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Who has a CPU.
    Cpu,
    /// What a thread does.
    State,
    Call,
    Irq,
    Request,
}

/// A slice of an export, in nanoseconds of the recording's clock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Slice {
    kind: Kind,
    /// The CPU, or the number of the thread; of requests 0.
    of: u64,
    name: String,
    begin: u64,
    end: u64,
    /// Of a call what it returns, of a request its bytes.
    result: Option<i64>,
}

/// What a page says of a slice.
#[derive(Clone, Debug)]
struct Drawn {
    slice: Slice,
    /// The line that it is in, of several.
    line: (u64, u32),
    /// The thread that has the CPU, does something or makes a call, and its name.
    thread: Option<(Tid, String)>,
    /// Whether a record begins it, and whether one ends it.
    has: (bool, bool),
}

/// Bytes of a file that a format writes.
fn written(file: &TraceFile, format: &dyn Format) -> Vec<u8> {
    let job = Job::new(&|_| {});
    let recording = Recording::survey(file, &job).unwrap();
    let place = tempfile::tempdir().unwrap();
    let dir = Directory::open(place.path()).unwrap();
    format.write(&recording, &dir, &job).unwrap();
    std::fs::read(place.path().join(format.file().unwrap())).unwrap()
}

/// What a page shows of a recording. Chrome's JSON has the same.
fn drawn(world: &World, part: &Part) -> page::Page {
    let file: TraceFile = Reader::open(Box::new(part.file(world)) as _).unwrap();
    let mut page = page::Page::of(&String::from_utf8(written(&file, &Timeline::default())).unwrap());
    let trace = trace::Trace::of(&written(&file, &Chrome));
    is_same(world, &page, &trace);
    page.flows.clone_from(&trace.flows);
    for cpu in 0..CPUS as u32 {
        let lost = part.lost(world, cpu);
        assert_eq!((page.lost(cpu), trace.lost(cpu)), (lost, lost), "CPU {cpu}");
    }
    page
}

/// Chrome's trace has the slices of the page, but for who sleeps or does what nobody knows.
fn is_same(world: &World, page: &page::Page, trace: &trace::Trace) {
    let is_told = |drawn: &&Drawn| !["sleeps", "unknown"].contains(&&*drawn.slice.name);
    let mut told: Vec<Slice> = page.slices.iter().filter(is_told).map(|drawn| drawn.slice.clone()).collect();
    for slice in told.iter_mut().filter(|slice| slice.kind == Kind::Request) {
        slice.result = None;
    }
    told.sort_unstable();
    assert_eq!(trace.slices, told);
    // A lane has the names of all that had its number, and none of others.
    let names = trace.names.iter().flat_map(|(tid, names)| names.iter().map(move |name| (tid, name)));
    for (tid, name) in names.chain(trace.ran.iter().map(|(tid, name)| (tid, name))) {
        let row = world.rows.get(name).unwrap_or_else(|| panic!("{name} of thread {tid}"));
        assert_eq!(world.truth[*row].tid, *tid, "{name}");
    }
}

fn label(what: What) -> String {
    match what {
        What::Call(number) => match number {
            0 => "read",
            1 => "write",
            3 => "close",
            59 => "execve",
            _ => "futex",
        }
        .to_owned(),
        What::Irq(irq) => format!("irq {irq} disk"),
        What::Softirq(_) => "softirq BLOCK".to_owned(),
        What::Request(rwbs) => match rwbs {
            "R" => "read",
            "W" => "write",
            _ => "flush",
        }
        .to_owned(),
    }
}

fn kind_of(what: What) -> Kind {
    match what {
        What::Call(_) => Kind::Call,
        What::Irq(_) | What::Softirq(_) => Kind::Irq,
        What::Request(_) => Kind::Request,
    }
}

/// Kind, whose and name of slices, and the thread by its row if it has a name.
type OfThread = (Kind, u64, String, Option<usize>);

/// What can be told of all that was begun, ended or not.
struct Whole {
    /// By kind, whose and name.
    spans: BTreeMap<(Kind, u64, String), Vec<Span>>,
    /// Times, one behind the other.
    times: BTreeMap<OfThread, Vec<(u64, u64)>>,
    flows: BTreeSet<Flow>,
}

/// The lane of who wakes, when, that of who is woken, and since when that one runs.
type Flow = (u64, u64, u64, u64);

/// Whose slice it is.
fn row(world: &World, drawn: &Drawn) -> Option<usize> {
    let (tid, name) = drawn.thread.as_ref().filter(|(_, name)| !name.is_empty())?;
    let row = *world.rows.get(name).unwrap_or_else(|| panic!("{name:?}: {drawn:?}"));
    assert_eq!(world.truth[row].tid, *tid, "another one's name: {drawn:?}");
    Some(row)
}

/// Times as few as they can be.
fn joined(mut times: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    times.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (begin, end) in times {
        match joined.last_mut() {
            Some((_, until)) if begin <= *until => *until = end.max(*until),
            _ => joined.push((begin, end)),
        }
    }
    joined
}

impl Whole {
    fn of(world: &World, page: &page::Page) -> Self {
        let mut spans = BTreeMap::<_, Vec<Span>>::new();
        for span in world.spans() {
            let mut whose = vec![span.of, span.ends_on];
            whose.dedup();
            for of in whose {
                spans.entry((kind_of(span.what), of, label(span.what))).or_default().push(span);
            }
        }
        let mut times = BTreeMap::<_, Vec<(u64, u64)>>::new();
        for drawn in page.slices.iter().filter(|drawn| matches!(drawn.slice.kind, Kind::Cpu | Kind::State)) {
            let Slice { kind, of, name, begin, end, .. } = &drawn.slice;
            for row in [row(world, drawn), None] {
                times.entry((*kind, *of, name.clone(), row)).or_default().push((*begin, *end));
            }
        }
        // Under which number a thread has run is known when a record says so.
        for takes in world.takes() {
            for ((kind, of, name, _), times) in &mut times {
                let is_its = |tid: Tid| match kind {
                    Kind::Cpu => *name == tid.to_string(),
                    _ => *of == u64::from(tid) && name == "runs",
                };
                if is_its(takes.from) || is_its(takes.to) {
                    times.push(takes.when);
                }
            }
        }
        let times = times.into_iter().map(|(key, times)| (key, joined(times))).collect();
        Self { spans, times, flows: page.flows.clone() }
    }

    /// Whether a slice is within one of the whole recording, with the begin and the end that it says to have.
    fn has(&self, world: &World, drawn: &Drawn) -> bool {
        let Slice { kind, of, name, begin, end, result } = &drawn.slice;
        let (begins, ends) = drawn.has;
        match kind {
            Kind::Cpu | Kind::State => {
                let times = self.times.get(&(*kind, *of, name.clone(), row(world, drawn)));
                times.is_some_and(|times| times.iter().any(|(from, to)| from <= begin && end <= to))
            }
            _ => self.spans.get(&(*kind, *of, name.clone())).is_some_and(|spans| {
                spans.iter().any(|span| {
                    span.begin <= *begin
                        && *end <= span.end
                        && (!begins || span.begin == *begin)
                        && (!ends || span.end == *end && (*kind == Kind::Irq || span.result == *result))
                })
            }),
        }
    }
}

/// The page of a whole recording shows what happened.
fn is_what_happened(world: &World, page: &page::Page, end: u64) {
    let is_whole = |kind: Kind| {
        let of = page.slices.iter().filter(|drawn| drawn.slice.kind == kind && drawn.has.1);
        let mut slices: Vec<_> = of
            .map(|drawn| {
                let Slice { of, name, begin, end, result, .. } = drawn.slice.clone();
                (of, name, begin, end, result.unwrap_or(0))
            })
            .collect();
        slices.sort_unstable();
        slices
    };
    for kind in [Kind::Call, Kind::Irq, Kind::Request] {
        let spans = world.spans().into_iter().filter(|span| kind_of(span.what) == kind);
        let mut expected: Vec<_> = spans
            .filter_map(|span| Some((span.ends_on, label(span.what), span.begin, span.end, span.result?)))
            .collect();
        expected.sort_unstable();
        assert_eq!(is_whole(kind), expected, "{kind:?}");
    }
    let mut runs = BTreeMap::<usize, u64>::new();
    for drawn in page.slices.iter().filter(|drawn| drawn.slice.name == "runs") {
        *runs.entry(row(world, drawn).unwrap()).or_default() += drawn.slice.end - drawn.slice.begin;
    }
    for (row, truth) in world.truth.iter().enumerate() {
        let runs = runs.get(&row).copied().unwrap_or(0);
        // Behind the last record nothing is known.
        assert!(runs + end >= truth.runs && runs <= truth.runs + truth.untold, "{runs}: {truth:?}");
    }
}

/// Slices of a line are one behind the other.
fn are_apart(page: &page::Page) {
    let mut lines = BTreeMap::<_, Vec<(u64, u64)>>::new();
    for Drawn { slice, line, .. } in &page.slices {
        lines.entry((slice.kind, *line)).or_default().push((slice.begin, slice.end));
    }
    for (line, mut times) in lines {
        times.sort_unstable();
        assert!(times.is_sorted_by(|one, other| one.1 <= other.0), "{line:?}: {times:?}");
    }
}

/// What was found in recordings that are less.
#[derive(Default)]
struct Found {
    /// By how it is less, kind and state, how many slices are in none of the whole recording, and one of
    /// them.
    wrong: BTreeMap<(String, Kind, String), (u64, String)>,
    /// By kind, how much time of the whole recordings is told, of how much.
    told: BTreeMap<Kind, (u64, u64)>,
}

impl Found {
    /// Looks at a recording that is less in this way, perhaps as wakeups are missing without a mark.
    fn look(&mut self, (world, whole): (&World, &Whole), less: &page::Page, how: &str, lacks_wakeups: bool) {
        are_apart(less);
        for drawn in &less.slices {
            let Slice { kind, name, begin, end, .. } = &drawn.slice;
            // Who is not seen to be woken seems to sleep on.
            let is_sleep = lacks_wakeups && ["sleeps", "blocked"].contains(&&**name);
            if is_sleep || name == "unknown" {
                continue;
            }
            if whole.has(world, drawn) {
                self.told.entry(*kind).or_default().0 += end - begin;
            } else {
                let state = if *kind == Kind::State { name } else { "" };
                let key = (how.to_owned(), *kind, state.to_owned());
                self.wrong.entry(key).or_insert_with(|| (0, format!("{drawn:?}"))).0 += 1;
            }
        }
        if !less.flows.is_subset(&whole.flows) {
            let flows: Vec<_> = less.flows.difference(&whole.flows).collect();
            self.wrong.insert((how.to_owned(), Kind::State, "flows".to_owned()), (0, format!("{flows:?}")));
        }
    }

    fn add_whole(&mut self, page: &page::Page) {
        for Drawn { slice, .. } in page.slices.iter().filter(|drawn| drawn.slice.name != "unknown") {
            self.told.entry(slice.kind).or_default().1 += slice.end - slice.begin;
        }
    }

    /// Nothing is wrong, and of each kind of slices so much of the time is told.
    fn check(&self, percent: u64) {
        assert!(self.wrong.is_empty(), "{:#?}", self.wrong);
        assert_eq!(self.told.len(), 5);
        assert!(self.told.values().all(|(some, all)| some * 100 > all * percent), "{:?}", self.told);
    }
}

fn world(seed: u64) -> (World, u64) {
    let mut world = World::new(seed * 0x9e37_79b9);
    let end = world.run(500);
    (world, BEGIN + end)
}

#[test]
fn slices_of_less_of_a_recording_are_in_slices_of_all_of_it() {
    let mut found = Found::default();
    for seed in 1..=12 {
        let (mut world, end) = world(seed);
        let page = drawn(&world, &Part::whole(&world));
        is_what_happened(&world, &page, end - world.last());
        are_apart(&page);
        let whole = Whole::of(&world, &page);
        for how in HOWS {
            let part = Part::less(&mut world, how);
            if part.hides_exec(&world) && matches!(how, How::Named | How::NotNamed) {
                continue;
            }
            let less = drawn(&world, &part);
            found.look((&world, &whole), &less, &format!("{how:?}, {seed}"), part.lacks_wakeups(&world));
            found.add_whole(&page);
        }
    }
    found.check(25);
}

#[test]
fn what_has_no_begin_or_no_end_in_a_recording_is_drawn_no_longer_than_it_was() {
    let mut found = Found::default();
    for seed in 1..=3 {
        let (world, _) = world(seed);
        let page = drawn(&world, &Part::whole(&world));
        let whole = Whole::of(&world, &page);
        for (event, part) in Part::without_each(&world) {
            let less = drawn(&world, &part);
            found.look((&world, &whole), &less, &event, event.starts_with("sched:sched_wak"));
            found.add_whole(&page);
        }
    }
    found.check(75);
}
