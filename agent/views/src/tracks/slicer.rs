//! Hands the records of a recording on to all that makes slices of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{At, GraphEvents, Named, Sink, Slice, Tracks, spans::MarkEvents};
use analysis::answers::{Followed, Gaps, Known, KnownEvents, Lives, Tid, followed_and_unjoined};
use ftrace_event::syscalls::CallNames;
use ftrace_event::{FieldReader, Meaning, Printer, SymbolTable};
use recording::{Recording, Seen, full_name};
use stdx::fast_map::FastMap;
use tracedat::reader::Record;

/// The largest whole number that JavaScript counts up to. The times of slices are not larger.
const MOST_TIME: u64 = (1 << 53) - 1;

/// What is done with the records of an event.
#[derive(Clone, Copy, Debug)]
struct Use {
    pid: Option<FieldReader>,
    /// The buffer whose records slices are made of: others have the same ones.
    channel: usize,
    is_drawn: bool,
}

/// A record that was looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// When and where it was made.
    pub(crate) at: At,
    /// The id of its thread.
    pub(crate) tid: Option<Tid>,
    /// The number of its thread; `None` if there are too many.
    pub(crate) thread: Option<u32>,
    /// Whether slices tell what it tells.
    pub(crate) is_drawn: bool,
}

/// Makes slices of the records of a recording, which come in the order of time.
pub(crate) struct Slicer<'r> {
    recording: &'r Recording<'r>,
    uses: FastMap<u16, Use>,
    known: KnownEvents,
    lives: Lives,
    followed: Followed,
    graph: GraphEvents,
    marks: MarkEvents,
    symbols: Arc<SymbolTable>,
    /// For each buffer, the first one that has its name.
    channels: Vec<usize>,
    first: u64,
    span: u64,
    count: u64,
    /// When each CPU of a buffer made its last record.
    last: BTreeMap<(usize, u32), u64>,
    /// How many records are yet to come of CPUs that lose events behind the last one, by channel.
    open_ends: BTreeMap<(usize, u32), u64>,
    /// By channel.
    gaps: Gaps,
    tracks: Tracks,
    sink: Sink,
    too_late: u64,
    /// The time of the last record, and how many were before one that they follow.
    now: u64,
    backwards: u64,
}

/// What is known when all slices were made.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Ids and names of threads, by their numbers. The name is empty where none was seen.
    pub(crate) threads: Vec<Named>,
    /// The rows and the names.
    pub(crate) sink: Sink,
    /// What there was no room for, and what was wrong with times: what, and how often.
    pub(crate) left_out: [(&'static str, u64); 4],
    /// Times that go back.
    pub(crate) backwards: u64,
}

impl<'r> Slicer<'r> {
    /// For a recording of which no record was taken yet.
    pub(crate) fn new(recording: &'r Recording<'r>) -> Self {
        let file = recording.file();
        let (first, end) = recording.span().unwrap_or_default();
        let names: Vec<&str> = file.buffers().iter().map(|buffer| buffer.name.as_str()).collect();
        let first_of = |name: &str| names.iter().position(|other| *other == name).unwrap_or(0);
        let channels = names.iter().map(|name| first_of(name)).collect();
        let events = recording.events();
        let calls = CallNames::of(recording.syscalls(), events);
        let (followed, unjoined, lacks_contexts) = followed_and_unjoined(file, events);
        let mut known = KnownEvents::of(events, &calls, |event| !unjoined.has(event)).with_seen(events);
        if lacks_contexts {
            known = known.without_contexts();
        }
        let graph = GraphEvents::of(events);
        let marks = MarkEvents::of(events, |event| !unjoined.has(event));
        let mut uses = FastMap::default();
        for printer in events.iter() {
            let id = printer.format().id;
            let mut streams = recording.cpu_streams().iter();
            let first = streams.find(|stream| stream.by_id.iter().any(|(other, _)| *other == id));
            let channel = first.map_or(0, |stream| first_of(&stream.channel));
            let pid = printer.typed("common_pid", Meaning::Number);
            let is_drawn = is_drawn(printer) && known.contains(id) || graph.contains(id);
            uses.insert(id, Use { pid, channel, is_drawn });
        }
        let printk = file.metadata().printk.iter().map(|(at, text)| (*at, text.as_str()));
        // Without symbols, addresses stay numbers.
        let symbols = SymbolTable::parse(file.kallsyms().unwrap_or_default()).with_texts(printk);
        let (mut open_ends, mut silent) = (BTreeMap::new(), Vec::new());
        for stream in recording.cpu_streams().iter().filter(|stream| stream.lost_at_end().is_some()) {
            match stream.counts.events {
                0 => silent.push((first_of(&stream.channel), stream.cpu)),
                events => {
                    open_ends.insert((first_of(&stream.channel), stream.cpu), events);
                }
            }
        }
        let mut slicer = Self {
            recording,
            uses,
            known,
            lives: Lives::of(events, &followed),
            followed,
            graph,
            marks,
            symbols: Arc::new(symbols),
            channels,
            first,
            span: end.saturating_sub(first).min(MOST_TIME),
            count: 0,
            last: BTreeMap::new(),
            open_ends,
            gaps: Gaps::default(),
            tracks: Tracks::new(has_switches(recording), calls, unjoined.unseen),
            sink: Sink::default(),
            too_late: 0,
            now: 0,
            backwards: 0,
        };
        for stream in silent {
            slicer.open_gap(stream);
        }
        slicer
    }

    /// Takes the next record, or the beginning of a gap. `None` for a gap, and for a record whose event is
    /// not described.
    pub(crate) fn take(&mut self, seen: Seen<'_>) -> Option<Taken> {
        let record = match seen {
            Seen::Record(record) => record,
            Seen::Gap(gap) => {
                if let Some(channel) = self.channels.get(gap.buffer) {
                    self.open_gap((*channel, gap.cpu));
                }
                return None;
            }
        };
        let taken = self.look(record);
        if !self.open_ends.is_empty() {
            self.pass_end(record);
        }
        taken
    }

    /// Ends what is known of a CPU with its last record, if events were lost behind that.
    fn pass_end(&mut self, record: &Record<'_>) {
        let Some(channel) = self.channels.get(record.buffer) else { return };
        let stream = (*channel, record.cpu);
        let Some(left) = self.open_ends.get_mut(&stream) else { return };
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.open_ends.remove(&stream);
            self.open_gap(stream);
        }
    }

    /// Events of a CPU are missing from now on.
    fn open_gap(&mut self, stream: (usize, u32)) {
        self.gaps.open(stream, self.now, &mut self.lives);
        let at = At { time: self.now, cpu: stream.1, event: 0 };
        self.tracks.lose(at, self.now, &mut self.sink);
        self.tracks.losses.has_gap = true;
    }

    /// Ends what is known where a record lies in a gap, of which it may be the end.
    fn pass_gaps(&mut self, at: At, buffer: usize) {
        let Some(channel) = self.channels.get(buffer) else { return };
        let Some(gap) = self.gaps.pass((*channel, at.cpu), &mut self.lives) else { return };
        if gap.has_ended {
            self.tracks.losses.has_gap = self.gaps.first().is_some();
            self.tracks.lose(at, gap.since, &mut self.sink);
        } else {
            self.tracks.pass_gap(at, gap, &mut self.sink);
        }
    }

    fn look(&mut self, record: &Record<'_>) -> Option<Taken> {
        let used = record.event_id().and_then(|id| Some((id, *self.uses.get(&id)?)));
        let time = record.timestamp.saturating_sub(self.first);
        // Those that are not described are not shown.
        let is_shown = u64::from(used.is_some());
        self.too_late += is_shown * u64::from(time > MOST_TIME);
        // A damaged recording can go back in time. Nothing else here has to know.
        self.backwards += is_shown * u64::from(time < self.now);
        let time = time.min(MOST_TIME).max(self.now);
        self.now = time;
        self.count += is_shown;
        let at = At { time, cpu: record.cpu, event: self.count };
        let before = self.last.insert((record.buffer, record.cpu), time);
        if let Some(count) = record.missed {
            self.lives.lost();
            let buffer = self.recording.file().buffers().get(record.buffer);
            let lost = (count, buffer.map_or("", |buffer| &buffer.name));
            self.tracks.lost(at, before.unwrap_or(0), lost, &mut self.sink);
        }
        self.pass_gaps(at, record.buffer);
        let (id, used) = used?;
        let mut is_drawn = used.is_drawn;
        let tid = used.pid.and_then(|pid| pid.number(record.data)).map(|tid| tid as u32);
        let mut thread = None;
        if self.channels.get(record.buffer) == Some(&used.channel) {
            self.followed.note(id, record);
            if let Some(event) = self.known.read(id, record.data) {
                let Self { lives, followed, tracks, sink, .. } = self;
                lives.tell(&event, |mut event| {
                    followed.mark(&mut event);
                    // When it is told whose the id is by now, and before it is nobody's any more.
                    let is_told = matches!(
                        event.known,
                        Known::Begins { .. } | Known::Ends { .. } | Known::Takes { .. }
                    );
                    if !is_told {
                        thread = tid.and_then(|tid| tracks.thread(tid));
                    }
                    tracks.look(at, &event, sink);
                });
                return Some(Taken { at, tid, thread, is_drawn: used.is_drawn });
            } else if self.known.contains(id) {
                // It happened, and what it was is not known.
                is_drawn = false;
                self.lives.lost();
                self.tracks.lose(at, before.unwrap_or(0), &mut self.sink);
            } else if self.graph.contains(id) {
                thread = tid.and_then(|tid| self.tracks.thread(tid));
                let which = (&self.graph, id, tid);
                self.tracks.graph(at, record.data, which, &*self.symbols, &mut self.sink);
            } else if self.marks.contains(id) {
                thread = tid.and_then(|tid| self.tracks.thread(tid));
                if let Some(mark) = tid.zip(self.marks.read(id, record.data)) {
                    self.tracks.mark(at, mark, &mut self.sink);
                }
            }
        }
        let thread = thread.or_else(|| tid.and_then(|tid| self.tracks.thread(tid)));
        Some(Taken { at, tid, thread, is_drawn })
    }

    /// No more records follow: what goes on, and what was lost since, is told up to the end.
    pub(crate) fn end(&mut self) {
        for stream in self.recording.cpu_streams() {
            let Some(count) = stream.lost_at_end() else { continue };
            let parts = stream.parts().iter().filter_map(|part| self.last.get(&(*part, stream.cpu)));
            let since = parts.max().copied().unwrap_or(0);
            let at = At { time: self.span, cpu: stream.cpu, event: 0 };
            Tracks::gap(at, since, (count, &stream.channel), &mut self.sink);
        }
        self.tracks.finish(self.span, &*self.symbols, &mut self.sink);
    }

    /// What is known after the end.
    pub(crate) fn finish(self) -> Finished {
        let requests_left_out = self.tracks.requests_left_out();
        let (threads, threads_left_out) = self.tracks.into_threads();
        let left_out = [
            ("slices and marks in rows for which there is no room", self.sink.rows.left_out),
            ("times that a thread was seen for which there is no room", threads_left_out),
            ("requests to block devices for which there is no room", requests_left_out),
            ("times that are later than a browser can count", self.too_late),
        ];
        Finished { threads, sink: self.sink, left_out, backwards: self.backwards }
    }

    /// The slices that were made and not taken away, and the rows that they are in.
    pub(crate) fn sink(&mut self) -> &mut Sink {
        &mut self.sink
    }

    /// The slices that were made since this was last asked for.
    pub(crate) fn slices(&mut self, into: &mut Vec<Slice>) {
        into.append(&mut self.sink.slices);
    }

    /// The id of a thread, and its last name; that is empty where none was seen.
    pub(crate) fn thread(&self, number: u32) -> Option<(Tid, &[u8])> {
        self.tracks.threads.get(number as usize).map(|thread| (thread.tid, &*thread.name))
    }

    /// A name by its number.
    pub(crate) fn label(&self, number: u32) -> &str {
        self.sink.labels.all().get(number as usize).map_or("", String::as_str)
    }

    /// The symbols of the recording's kernel.
    pub(crate) fn symbols(&self) -> &Arc<SymbolTable> {
        &self.symbols
    }

    /// The time of the first record, from which slices count theirs.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// How long the recording is.
    pub(crate) fn span(&self) -> u64 {
        self.span
    }

    /// How many records were taken.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Whether slices tell what the records of an event tell.
    pub(crate) fn is_drawn(&self, id: u16) -> bool {
        self.uses.get(&id).is_some_and(|used| used.is_drawn)
    }
}

impl Finished {
    /// Ids and names of threads, by their numbers, as recordings have names of those that no record names.
    pub(crate) fn names<'n>(&'n self, recording: &'n Recording<'_>) -> impl Iterator<Item = (Tid, &'n [u8])> {
        let names = &recording.file().metadata().cmdlines;
        self.threads.iter().map(move |(tid, name)| {
            let name: &[u8] = match &**name {
                [] if *tid == 0 => b"idle",
                [] => names.get(*tid).unwrap_or_default(),
                name => name,
            };
            (*tid, name)
        })
    }
}

/// Whether a recording tells who runs.
pub(crate) fn has_switches(recording: &Recording<'_>) -> bool {
    let is_it = |event: &Printer| full_name(event) == "sched:sched_switch";
    let known = KnownEvents::of(recording.events(), &CallNames::default(), is_it);
    recording.events().iter().any(|event| is_it(event) && known.contains(event.format().id))
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

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

    use super::*;
    use ftrace_event::Endian;
    use std::io::Cursor;
    use tracedat::reader::{Gap, Reader};
    use tracedat::{Buffer, Compression, EventSystem, Section, Setup, Writer, layout};

    use super::super::{Row, state};
    use recording::survey::TraceFile;

    const SWITCH: u16 = 1;
    pub(crate) const ENTER: u16 = 2;
    const EXIT: u16 = 3;

    fn format(name: &str, id: u16, fields: &[&str]) -> String {
        let common = ["unsigned short common_type", "unsigned short common_flags", "int common_pid"];
        let mut offset = 0;
        let mut lines = |fields: &[&str]| -> String {
            let line = |field: &&str| {
                let size = if field.contains("short") { 2 } else { 4 };
                offset += size;
                format!("\tfield:{field};\toffset:{};\tsize:{size};\tsigned:1;\n", offset - size)
            };
            fields.iter().map(line).collect()
        };
        let (common, own) = (lines(&common), lines(fields));
        format!("name: {name}\nID: {id}\nformat:\n{common}\n{own}\nprint fmt: \"\"\n")
    }

    /// A file without records.
    pub(crate) fn file() -> TraceFile {
        let switch = format("sched_switch", SWITCH, &["int prev_pid", "int prev_state", "int next_pid"]);
        let enter = format("sys_enter", ENTER, &["int id"]);
        let exit = format("sys_exit", EXIT, &["int id", "int ret"]);
        let (endian, compression) = (Endian::Little, Compression::None);
        let setup = Setup { endian, page_size: 4096, compression };
        let mut writer = Writer::create(Cursor::new(Vec::new()), setup).unwrap();
        let header_page = layout::header_page_text(4096);
        writer.section(Section::header_info(endian, &header_page, "").unwrap()).unwrap();
        let systems = [
            EventSystem { name: "sched", formats: &[&switch] },
            EventSystem { name: "raw_syscalls", formats: &[&enter, &exit] },
        ];
        writer.section(Section::event_formats(endian, &systems).unwrap()).unwrap();
        let buffer = Buffer { name: "", clock: "mono", page_size: 4096 };
        writer.begin_buffer(buffer).unwrap().finish().unwrap();
        Reader::open(Box::new(writer.finish().unwrap().into_inner()) as _).unwrap()
    }

    pub(crate) fn take(
        slicer: &mut Slicer<'_>,
        (timestamp, cpu): (u64, u32),
        (id, tid): (u16, Tid),
        fields: &[u32],
    ) {
        let own = fields.iter().flat_map(|field| field.to_le_bytes());
        let head = [&id.to_le_bytes()[..], &[0; 2], &tid.to_le_bytes()].concat();
        let data: Vec<u8> = head.into_iter().chain(own).collect();
        let (missed, endian) = (None, Endian::Little);
        let record = Record { reader: 0, buffer: 0, cpu, timestamp, missed, data: &data, endian };
        slicer.take(Seen::Record(&record));
    }

    /// Begin and end of the slices of rows.
    fn told(slicer: &mut Slicer<'_>, is_wanted: impl Fn(Row, &Slice) -> bool) -> Vec<(u64, u64)> {
        slicer.span = 100;
        slicer.end();
        let sink = slicer.sink();
        let slices = sink.slices.iter();
        let slices = slices.filter(|slice| sink.rows.get(slice.row).is_some_and(|row| is_wanted(row, slice)));
        slices.map(|slice| (slice.start, slice.end)).collect()
    }

    #[test]
    fn calls_within_a_gap_have_no_known_end() {
        let file = file();
        let recording = Recording::of_head(&file);
        // Of a CPU that lost all, and of one that lost what is behind its first record.
        for is_silent in [true, false] {
            let mut slicer = Slicer::new(&recording);
            if is_silent {
                slicer.open_gap((0, 1));
            } else {
                slicer.open_ends.insert((0, 1), 1);
            }
            take(&mut slicer, (1, 0), (ENTER, 6), &[0]);
            take(&mut slicer, (5, 0), (EXIT, 6), &[0, 0]);
            if !is_silent {
                take(&mut slicer, (10, 1), (ENTER, 9), &[1]);
            }
            take(&mut slicer, (20, 0), (ENTER, 7), &[0]);
            take(&mut slicer, (30, 0), (ENTER, 8), &[0]);
            take(&mut slicer, (60, 0), (EXIT, 7), &[0, 0]);
            let calls = told(&mut slicer, |row, _| matches!(row, Row::Calls(_)));
            let expected = if is_silent {
                vec![(1, 1), (20, 20), (30, 30)]
            } else {
                vec![(1, 5), (20, 20), (30, 30), (10, 10)]
            };
            assert_eq!(sorted(calls), sorted(expected));
        }
    }

    /// What happens on another CPU while one lacks events is not joined, whatever record ends the gap.
    #[test]
    fn calls_within_a_gap_that_ends_have_no_known_end() {
        let file = file();
        let recording = Recording::of_head(&file);
        for (event, ends) in [(EXIT, 60), (777, 60)] {
            let mut slicer = Slicer::new(&recording);
            take(&mut slicer, (1, 0), (ENTER, 6), &[0]);
            take(&mut slicer, (5, 0), (EXIT, 6), &[0, 0]);
            take(&mut slicer, (10, 1), (ENTER, 9), &[1]);
            slicer.take(Seen::Gap(Gap { reader: 0, buffer: 0, cpu: 1 }));
            take(&mut slicer, (20, 0), (ENTER, 7), &[0]);
            take(&mut slicer, (30, 0), (EXIT, 7), &[0, 0]);
            // The record that ends it, of an event that may not be described.
            let data = [&event.to_le_bytes()[..], &[0; 2], &99_u32.to_le_bytes(), &[0; 8]].concat();
            let (missed, endian) = (Some(3), Endian::Little);
            let record =
                Record { reader: 0, buffer: 0, cpu: 1, timestamp: ends, missed, data: &data, endian };
            slicer.take(Seen::Record(&record));
            take(&mut slicer, (70, 0), (ENTER, 7), &[0]);
            take(&mut slicer, (80, 0), (EXIT, 7), &[0, 0]);
            let gaps = told(&mut slicer, |row, _| matches!(row, Row::Gap(1)));
            assert_eq!(gaps, [(10, 60)], "{event}");
            let slices = slicer.sink().slices.clone();
            let rows = &slicer.sink().rows;
            let calls = slices.iter().filter(|of| matches!(rows.get(of.row), Some(Row::Calls(_))));
            let calls = calls.map(|of| (of.start, of.end)).collect();
            assert_eq!(sorted(calls), [(1, 5), (10, 10), (20, 20), (70, 80)], "{event}");
        }
    }

    fn sorted(mut times: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
        times.sort_unstable();
        times
    }

    #[test]
    fn threads_do_not_run_on_over_a_switch_that_cannot_be_read() {
        let file = file();
        let recording = Recording::of_head(&file);
        let runs = |fields: &[u32]| {
            let mut slicer = Slicer::new(&recording);
            take(&mut slicer, (10, 0), (SWITCH, 0), &[0, 0, 7]);
            take(&mut slicer, (40, 0), (SWITCH, 7), fields);
            let losses = slicer.tracks.losses.count;
            (losses, told(&mut slicer, |row, of| matches!(row, Row::Thread(_)) && of.key == state::RUNS))
        };
        assert_eq!(runs(&[7, 1, 0]), (0, vec![(10, 40)]));
        // It is cut short.
        assert_eq!(runs(&[7]), (1, vec![]));
    }
}
