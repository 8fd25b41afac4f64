//! Hands records on to all that is told of them.

use std::collections::{BTreeMap, HashMap};

use super::Options;
use super::document::Document;
use super::events::{Block, Made, Plan};
use super::index::{CpuTold, EventTold, Index, told};
use super::levels::Levels;
use super::rows::Row;
use super::tracks::state::RUNS;
use super::tracks::{At, GraphEvents, Sink, Tracks};
use crate::analysis::answers::KnownEvents;
use crate::event::syscalls::SyscallTable;
use crate::event::{FieldReader, Printer, SymbolTable};
use crate::export::{ExportError, Job, Recording, full_name};
use crate::tracedat::reader::Record;
use crate::tracedat::{FileOption, Uname};

/// The largest whole number that JavaScript counts up to.
const MOST_TIME: u64 = (1 << 53) - 1;

/// The overview has the densities of at least so many events: of 8192 buckets, several on a pixel.
const OVERVIEW: u64 = 1 << 18;

/// What is done with the records of an event.
#[derive(Debug)]
struct Use {
    plan: Plan,
    pid: Option<FieldReader>,
    /// The buffer whose records slices are made of: others have the same ones.
    channel: usize,
    is_drawn: bool,
}

pub(super) struct Builder<'r> {
    recording: &'r Recording<'r>,
    options: Options,
    uses: HashMap<u16, Use>,
    known: KnownEvents,
    graph: GraphEvents,
    symbols: SymbolTable,
    /// For each buffer, the first one that has its name.
    channels: Vec<usize>,
    first: u64,
    span: u64,
    count: u64,
    detailed: (u64, u64),
    /// When each CPU of a buffer made its last record.
    last: BTreeMap<(usize, u32), u64>,
    tracks: Tracks,
    sink: Sink,
    levels: Levels,
    block: Block,
    too_late: u64,
    /// The time of the last record, and how many were before one that they follow.
    now: u64,
    backwards: u64,
}

impl<'r> Builder<'r> {
    pub(super) fn new(recording: &'r Recording<'r>, options: Options) -> Self {
        let file = recording.file();
        let (first, end) = recording.span().unwrap_or_default();
        let span = end.saturating_sub(first).min(MOST_TIME);
        let total = total(recording);
        let names: Vec<&str> = file.buffers().iter().map(|buffer| buffer.name.as_str()).collect();
        let first_of = |name: &str| names.iter().position(|other| *other == name).unwrap_or(0);
        let channels = names.iter().map(|name| first_of(name)).collect();
        let calls = Uname::of(file.facts()).and_then(|uname| SyscallTable::of_machine(&uname.machine));
        let events = recording.events();
        let (known, graph) = (KnownEvents::of(events, |_| true), GraphEvents::of(events));
        let mut uses = HashMap::new();
        for (number, printer) in events.iter().enumerate() {
            let id = printer.format().id;
            let mut streams = recording.cpu_streams().iter();
            let first = streams.find(|stream| stream.by_id.iter().any(|(other, _)| *other == id));
            let channel = first.map_or(0, |stream| first_of(&stream.channel));
            let pid = printer.field_index("common_pid").and_then(|index| printer.field(index));
            let plan = Plan::of(printer, number as u32, calls);
            let is_drawn = is_drawn(printer) || graph.contains(id);
            uses.insert(id, Use { plan, pid, channel, is_drawn });
        }
        let has_switches = events.iter().any(|event| full_name(event) == "sched:sched_switch");
        let printk = file.metadata().printk.iter().map(|(at, text)| (*at, text.as_str()));
        // Without symbols, addresses stay numbers.
        let symbols = SymbolTable::parse(file.kallsyms().unwrap_or_default()).with_texts(printk);
        Self {
            recording,
            options,
            uses,
            known,
            graph,
            symbols,
            channels,
            first,
            span,
            count: 0,
            detailed: (0, 0),
            last: BTreeMap::new(),
            tracks: Tracks::new(has_switches, calls),
            sink: Sink::default(),
            levels: Levels::new(span, total.min(options.max_events.max(OVERVIEW))),
            block: Block::default(),
            too_late: 0,
            now: 0,
            backwards: 0,
        }
    }

    /// Takes the next record.
    pub(super) fn take(&mut self, record: &Record<'_>, document: &mut Document) -> Result<(), ExportError> {
        // Others were found by the survey.
        let Some(id) = record.event_id() else { return Ok(()) };
        let (Some(used), Some(printer)) = (self.uses.get(&id), self.recording.events().get(id)) else {
            return Ok(());
        };
        let time = record.timestamp.saturating_sub(self.first);
        self.too_late += u64::from(time > MOST_TIME);
        // A damaged recording can go back in time. Nothing else here has to know.
        self.backwards += u64::from(time < self.now);
        let time = time.min(MOST_TIME).max(self.now);
        self.now = time;
        self.count += 1;
        let at = At { time, cpu: record.cpu, event: self.count };
        let before = self.last.insert((record.buffer, record.cpu), time);
        if let Some(count) = record.missed {
            self.tracks.lost(at, before.unwrap_or(0), count, &mut self.sink);
        }
        let tid = used.pid.and_then(|pid| pid.number(record.data)).map(|tid| tid as u32);
        // Before it is looked at: with its last record a thread ends, and its id is nobody's.
        let thread = tid.and_then(|tid| self.tracks.thread(tid));
        if self.channels.get(record.buffer) == Some(&used.channel) {
            if let Some(event) = self.known.read(id, record.data) {
                self.tracks.look(at, &event, &mut self.sink);
            } else if self.graph.contains(id) {
                let which = (&self.graph, id, tid);
                self.tracks.graph(at, record.data, which, &self.symbols, &mut self.sink);
            }
        }
        if let Some(row) = self.sink.rows.number(Row::Event(used.plan.number)) {
            self.levels.event(row, time);
            self.sink.rows.count(row, 0);
        }
        let marks = thread.filter(|_| !used.is_drawn && tid != Some(0));
        if let Some(row) = marks.and_then(|thread| self.sink.rows.number(Row::Marks(thread))) {
            self.levels.event(row, time);
            self.sink.rows.count(row, 0);
        }
        let has_details = self.count <= self.options.max_events;
        if has_details {
            let made = Made { time, thread: thread.map_or(0, |thread| thread + 1) };
            self.block.add(record, made, (&used.plan, printer), &self.symbols);
            self.detailed = (self.count, time);
            if self.block.is_full() {
                self.block.write(document)?;
            }
        }
        self.write_slices(has_details, document)?;
        self.levels.advance(time, &self.sink.rows, document)
    }

    fn write_slices(&mut self, has_details: bool, document: &mut Document) -> Result<(), ExportError> {
        for slice in self.sink.slices.drain(..) {
            let has_time = !self.sink.rows.get(slice.row).is_some_and(Row::has_few_keys) || slice.key == RUNS;
            self.sink.rows.count(slice.row, if has_time { slice.end - slice.start } else { 0 });
            self.levels.slice(slice, has_details, document)?;
        }
        Ok(())
    }

    /// Writes what is left, and gives the index.
    pub(super) fn finish(mut self, document: &mut Document, job: &Job<'_>) -> Result<Vec<u8>, ExportError> {
        let has_details = self.count <= self.options.max_events;
        for stream in self.recording.cpu_streams() {
            if stream.lost_at_end == 0 && !stream.cut_short {
                continue;
            }
            let parts = stream.parts().iter().filter_map(|part| self.last.get(&(*part, stream.cpu)));
            let since = parts.max().copied().unwrap_or(0);
            let at = At { time: self.span, cpu: stream.cpu, event: 0 };
            self.tracks.lost(at, since, stream.lost_at_end, &mut self.sink);
        }
        self.tracks.finish(self.span, &self.symbols, &mut self.sink);
        self.write_slices(has_details, document)?;
        self.levels.finish(&self.sink.rows, document)?;
        self.block.write(document)?;
        let index = self.index(job);
        serde_json::to_vec(&index).map_err(|error| ExportError::Unsupported(error.to_string()))
    }

    fn index(self, job: &Job<'_>) -> Index {
        let recording = self.recording;
        let requests_left_out = self.tracks.requests_left_out();
        let (threads, threads_left_out) = self.tracks.into_threads();
        let names = &recording.file().metadata().cmdlines;
        let threads = threads.into_iter().map(|(tid, name)| {
            let name: &[u8] = match &*name {
                [] if tid == 0 => b"idle",
                [] => names.get(tid).unwrap_or_default(),
                name => name,
            };
            (tid, String::from_utf8_lossy(name).into_owned())
        });
        let undetailed = self.count - self.detailed.0;
        for (what, count) in [
            ("events of which the page has densities and longer slices only (--max-events)", undetailed),
            ("texts of which the page has the first 16 KiB", self.block.cut),
            ("slices and marks in rows for which there is no room", self.sink.rows.left_out),
            ("times that a thread was seen for which there is no room", threads_left_out),
            ("requests to block devices for which there is no room", requests_left_out),
            ("times that are later than a browser can count", self.too_late),
            ("times that go back: the events are shown where the one before is", self.backwards),
        ] {
            job.not_carried(what, count);
        }
        let not_carried = job.take_not_carried();
        let left_out = not_carried.iter().map(|(what, count)| (what.to_owned(), count)).collect();
        job.merge_not_carried(not_carried);
        let relative = |time: u64| time.saturating_sub(self.first).min(self.span);
        let pauses = recording.pauses().iter();
        Index {
            version: 1,
            writer: format!("tracer-agent {}", env!("CARGO_PKG_VERSION")),
            nanoseconds: recording.counts_nanoseconds(),
            clock: recording.clock_name(),
            first: self.first.to_string(),
            wall_offset: recording.wall_offset().map(|offset| offset.to_string()),
            span: self.span,
            machine: recording
                .file()
                .facts()
                .find_map(|fact| match fact {
                    FileOption::Uname(text) => Some(text.clone()),
                    _ => None,
                })
                .unwrap_or_default(),
            total: self.count,
            detailed: self.detailed.0,
            detailed_to: self.detailed.1,
            base: self.levels.base(),
            levels: self.levels.count(),
            has_switches: recording.events().iter().any(|event| full_name(event) == "sched:sched_switch"),
            threads: threads.collect(),
            rows: self
                .sink
                .rows
                .iter()
                .map(|(row, sum)| {
                    let (kind, owner, lane) = row.told();
                    (kind, owner, lane, sum.count, sum.time)
                })
                .collect(),
            labels: self.sink.labels.all().to_vec(),
            events: events_told(recording, &self.uses),
            slices: told(&self.levels.slice_blocks),
            densities: told(&self.levels.density_blocks),
            blocks: self.block.written,
            cpus: cpus_told(recording),
            pauses: pauses
                .map(|pause| (relative(pause.from_ns), pause.to_ns.map_or(self.span, relative)))
                .collect(),
            left_out,
        }
    }
}

/// How many records there are whose events are understood.
fn total(recording: &Recording<'_>) -> u64 {
    let counts = recording.cpu_streams().iter().flat_map(|stream| &stream.by_id);
    counts.filter(|(id, _)| recording.events().get(*id).is_some()).map(|(_, count)| count).sum()
}

/// Whether slices tell what the records of an event tell.
fn is_drawn(printer: &Printer) -> bool {
    match printer.system() {
        "syscalls" | "raw_syscalls" => true,
        "sched" => matches!(printer.name(), "sched_switch" | "sched_waking" | "sched_wakeup"),
        "irq" => printer.name() != "softirq_raise",
        _ => false,
    }
}

fn events_told(recording: &Recording<'_>, uses: &HashMap<u16, Use>) -> Vec<EventTold> {
    let told = |printer: &Printer| {
        let id = printer.format().id;
        let counts = recording.cpu_streams().iter().flat_map(|stream| &stream.by_id);
        let used = uses.get(&id);
        EventTold {
            name: full_name(printer),
            count: counts.filter(|(other, _)| *other == id).map(|(_, count)| count).sum(),
            is_marker: printer.system() == "ftrace" && matches!(printer.name(), "print" | "bprint" | "bputs"),
            is_drawn: used.is_some_and(|used| used.is_drawn),
            fields: used.map(|used| used.plan.told()).unwrap_or_default(),
        }
    };
    recording.events().iter().map(told).collect()
}

fn cpus_told(recording: &Recording<'_>) -> Vec<CpuTold> {
    let mut cpus: BTreeMap<u32, CpuTold> = BTreeMap::new();
    for stream in recording.cpu_streams() {
        let cpu = cpus.entry(stream.cpu).or_insert(CpuTold {
            cpu: stream.cpu,
            events: 0,
            lost: 0,
            uncounted: 0,
            cut_short: false,
        });
        cpu.events += stream.counts.events;
        cpu.lost = cpu.lost.saturating_add(stream.lost());
        cpu.uncounted += stream.counts.missed_unknown;
        cpu.cut_short |= stream.cut_short;
    }
    cpus.into_values().collect()
}
