//! What programs write to trace_marker for timelines, in atrace's form: spans of threads and of processes,
//! counters, and moments.
//!
//! | text | meaning |
//! |---|---|
//! | `B\|PROCESS\|NAME` | a span of the thread begins, inside those that have not ended |
//! | `E`, `E\|PROCESS` | the innermost one ends |
//! | `S\|PROCESS\|NAME\|COOKIE`, `F\|PROCESS\|NAME\|COOKIE` | a span of the process begins, and ends |
//! | `G\|PROCESS\|TRACK\|NAME\|COOKIE`, `H\|PROCESS\|TRACK\|COOKIE` | the same, told apart by track and cookie |
//! | `C\|PROCESS\|NAME\|VALUE` | a counter has a value |
//! | `I\|PROCESS\|NAME`, `N\|PROCESS\|TRACK\|NAME` | a moment of the thread |
//!
//! The form is that of Android's libcutils (`include/cutils/trace.h`). Where filters or sampling chose among
//! the texts, an end may be that of another span: then no span is made.

use super::{At, Losses, Part, Row, Sink, Stamp, Thread, Threads};
use analysis::answers::Tid;
use ftrace_event::{EventTable, FieldReader, MESSAGE_FIELD, Meaning};
use stdx::fast_map::FastMap;

/// Most spans of a thread inside one another that have rows.
const DEPTH: usize = 64;
/// Most spans of processes at a time.
const OPEN_MAX: usize = 1 << 16;
/// Most rows of a process's spans. Spans that have none of their own are in the last.
const LANES: usize = 16;
/// Most counters.
const COUNTERS_MAX: usize = 1 << 12;
/// Ids of processes are lower (`PID_MAX_LIMIT` of include/linux/threads.h).
const IDS: u32 = 1 << 22;

/// A text for timelines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark<'t> {
    Begins {
        name: &'t str,
    },
    Ends,
    /// A span of a process, which `what` tells apart from its others.
    ProcessBegins {
        process: u32,
        name: &'t str,
        what: (&'t str, &'t str),
    },
    ProcessEnds {
        process: u32,
        what: (&'t str, &'t str),
    },
    Counts {
        process: u32,
        name: &'t str,
        value: i64,
    },
    Moment {
        name: &'t str,
    },
}

impl<'t> Mark<'t> {
    /// `None` of any other text.
    fn of(text: &'t str) -> Option<Self> {
        let text = text.strip_suffix('\n').unwrap_or(text);
        if text == "E" {
            return Some(Self::Ends);
        }
        let (kind, rest) = text.split_once('|')?;
        let (process, rest) = rest.split_once('|').unwrap_or((rest, ""));
        let process = process.parse().ok().filter(|process| *process < IDS);
        Some(match kind {
            "B" => process.map(|_| Self::Begins { name: rest })?,
            "E" => Self::Ends,
            "S" => {
                let (name, _) = rest.rsplit_once('|')?;
                Self::ProcessBegins { process: process?, name, what: ("", rest) }
            }
            "F" => Self::ProcessEnds { process: process?, what: ("", rest) },
            "G" => {
                let (track, rest) = rest.split_once('|')?;
                let (name, cookie) = rest.rsplit_once('|')?;
                Self::ProcessBegins { process: process?, name, what: (track, cookie) }
            }
            "H" => {
                let (track, rest) = rest.split_once('|')?;
                let cookie = rest.rsplit_once('|').map_or(rest, |(_, cookie)| cookie);
                Self::ProcessEnds { process: process?, what: (track, cookie) }
            }
            "C" => {
                let (name, value) = rest.rsplit_once('|')?;
                Self::Counts { process: process?, name, value: value.trim().parse().ok()? }
            }
            "I" => process.map(|_| Self::Moment { name: rest })?,
            "N" => {
                process.map(|_| Self::Moment { name: rest.split_once('|').map_or(rest, |(_, name)| name) })?
            }
            _ => return None,
        })
    }
}

/// The events that have such texts.
#[derive(Debug, Default)]
pub(crate) struct MarkEvents {
    /// Where the text is, and whether ends can be joined with beginnings.
    by_id: FastMap<u16, (FieldReader, bool)>,
}

impl MarkEvents {
    /// Those of a table; `joins` those whose ends can be joined with beginnings.
    pub(crate) fn of(events: &EventTable, joins: impl Fn(&ftrace_event::Printer) -> bool) -> Self {
        let is_one = |event: &&ftrace_event::Printer| event.system() == "ftrace" && event.name() == "print";
        let text = |event: &ftrace_event::Printer| {
            Some((event.format().id, (event.typed(MESSAGE_FIELD, Meaning::Text)?, joins(event))))
        };
        Self { by_id: events.iter().filter(is_one).filter_map(text).collect() }
    }

    /// Whether an event is one of them.
    pub(crate) fn contains(&self, id: u16) -> bool {
        self.by_id.contains_key(&id)
    }

    /// What the text of a record says. `None` if it is nothing for timelines, or cannot be joined.
    pub(super) fn read<'r>(&self, id: u16, record: &'r [u8]) -> Option<Mark<'r>> {
        let (reader, joins) = self.by_id.get(&id)?;
        let mark = Mark::of(std::str::from_utf8(reader.text(record)?).ok()?)?;
        (*joins || matches!(mark, Mark::Counts { .. } | Mark::Moment { .. })).then_some(mark)
    }
}

/// A span that has not ended.
#[derive(Clone, Copy, Debug)]
struct Open {
    key: u32,
    since: u64,
    first: u64,
    losses: Stamp,
}

impl Open {
    fn new(key: u32, at: At, losses: &Losses) -> Self {
        Self { key, since: at.time, first: at.event, losses: losses.stamp() }
    }

    fn ends(self, end: u64, last: u64) -> Part {
        Part { start: self.since, end, key: self.key, arg: 0, first: self.first, last }
    }

    /// Up to where it is known to go on, at a time.
    fn ends_unseen(self, at: u64, losses: &Losses) -> Part {
        self.ends(losses.since(self.losses, self.since).map_or(at, |known| known.min(at)), 0)
    }
}

/// The spans that a thread is in.
#[derive(Debug, Default)]
pub(super) struct Stack(Vec<Open>);

impl Stack {
    fn row(thread: u32, depth: usize) -> Row {
        Row::Spans(thread, depth.min(DEPTH) as u32)
    }

    /// Ends those that began before a loss, and may have ended in it.
    fn settle(&mut self, thread: u32, at: u64, losses: &Losses, sink: &mut Sink) {
        let known = self.0.iter().take_while(|open| losses.is_known(open.losses)).count();
        self.end_from(known, thread, at, losses, sink);
    }

    fn end_from(&mut self, depth: usize, thread: u32, at: u64, losses: &Losses, sink: &mut Sink) {
        for (depth, open) in
            self.0.drain(depth.min(self.0.len())..).enumerate().map(|(place, open)| (depth + place, open))
        {
            sink.slice(Self::row(thread, depth), open.ends_unseen(at, losses));
        }
    }

    fn begin(&mut self, open: Open, sink: &mut Sink) {
        if self.0.len() < DEPTH {
            self.0.push(open);
        } else {
            sink.rows.left_out += 1;
        }
    }

    fn end(&mut self, thread: u32, at: At, sink: &mut Sink) {
        if let Some(open) = self.0.pop() {
            sink.slice(Self::row(thread, self.0.len()), open.ends(at.time, at.event));
        }
    }

    /// The thread ends, or the recording.
    pub(super) fn finish(&mut self, thread: u32, at: u64, losses: &Losses, sink: &mut Sink) {
        self.end_from(0, thread, at, losses, sink);
    }
}

/// Which span of a process it is: its track or none, and its cookie, with the name where there is no track.
type Which = (u32, Box<str>, Box<str>);

/// Spans of processes, and counters.
#[derive(Debug, Default)]
pub(super) struct Spans {
    open: FastMap<Which, (usize, Open)>,
    /// How many spans are in each row of a process.
    lanes: FastMap<u32, [u32; LANES]>,
    /// Values by process and name.
    counters: FastMap<(u32, u32), (i64, Open)>,
}

impl Spans {
    /// Takes a text of a thread.
    pub(super) fn look(
        &mut self,
        at: At,
        (tid, mark): (Tid, Mark<'_>),
        threads: &mut Threads,
        losses: &Losses,
        sink: &mut Sink,
    ) {
        match mark {
            Mark::Begins { .. } | Mark::Ends | Mark::Moment { .. } => {
                // All idle threads have the id 0.
                if tid == 0 {
                    return;
                }
                let Some((number, thread)) = threads.find(tid, Thread::default) else { return };
                let (number, stack) = (number as u32, &mut thread.of.spans);
                stack.settle(number, at.time, losses, sink);
                match mark {
                    Mark::Begins { name } => {
                        stack.begin(Open::new(sink.labels.number(name), at, losses), sink);
                    }
                    Mark::Moment { name } => {
                        let moment = Open::new(sink.labels.number(name), at, losses);
                        sink.slice(Row::Moments(number), moment.ends(at.time, at.event));
                    }
                    _ => stack.end(number, at, sink),
                }
            }
            Mark::ProcessBegins { process, name, what } => {
                let open = Open::new(sink.labels.number(name), at, losses);
                self.begin((process_or(process, tid), what.0.into(), what.1.into()), open, losses, sink);
            }
            Mark::ProcessEnds { process, what } => {
                let which = (process_or(process, tid), what.0.into(), what.1.into());
                self.end(&which, at, losses, sink);
            }
            Mark::Counts { process, name, value } => {
                let key = sink.labels.number(name);
                let of = (process_or(process, tid), key);
                let is_room =
                    key != 0 && (self.counters.len() < COUNTERS_MAX || self.counters.contains_key(&of));
                if !is_room {
                    sink.rows.left_out += 1;
                    return;
                }
                let before = self.counters.insert(of, (value, Open::new(key, at, losses)));
                if let Some(before) = before {
                    Self::held(of, before, (at.time, at.event), losses, sink);
                }
            }
        }
    }

    fn begin(&mut self, which: Which, open: Open, losses: &Losses, sink: &mut Sink) {
        // What was begun once more has ended unseen.
        self.end_unseen(&which, open.since, losses, sink);
        if self.open.len() >= OPEN_MAX {
            sink.rows.left_out += 1;
            return;
        }
        let lanes = self.lanes.entry(which.0).or_default();
        let lane = lanes.iter().position(|count| *count == 0).unwrap_or(LANES - 1);
        lanes[lane] += 1;
        self.open.insert(which, (lane, open));
    }

    fn end(&mut self, which: &Which, at: At, losses: &Losses, sink: &mut Sink) {
        let is_known = |(_, open): &(usize, Open)| losses.is_known(open.losses);
        if !self.open.get(which).is_some_and(is_known) {
            self.end_unseen(which, at.time, losses, sink);
        } else if let Some((lane, open)) = self.take(which) {
            sink.slice(Row::ProcessSpans(which.0, lane as u32), open.ends(at.time, at.event));
        }
    }

    fn end_unseen(&mut self, which: &Which, at: u64, losses: &Losses, sink: &mut Sink) {
        if let Some((lane, open)) = self.take(which) {
            sink.slice(Row::ProcessSpans(which.0, lane as u32), open.ends_unseen(at, losses));
        }
    }

    fn take(&mut self, which: &Which) -> Option<(usize, Open)> {
        let (lane, open) = self.open.remove(which)?;
        if let Some(count) = self.lanes.get_mut(&which.0).and_then(|lanes| lanes.get_mut(lane)) {
            *count = count.saturating_sub(1);
        }
        Some((lane, open))
    }

    /// A counter has had a value up to now.
    fn held(
        (process, key): (u32, u32),
        (value, open): (i64, Open),
        (at, last): (u64, u64),
        losses: &Losses,
        sink: &mut Sink,
    ) {
        let part =
            if losses.is_known(open.losses) { open.ends(at, last) } else { open.ends_unseen(at, losses) };
        sink.slice(Row::Counter(process, key), Part { arg: value, ..part });
    }

    /// The recording ends.
    pub(super) fn finish(&mut self, end: u64, threads: &mut Threads, losses: &Losses, sink: &mut Sink) {
        for (number, thread) in threads.iter_mut().enumerate() {
            std::mem::take(&mut thread.of.spans).finish(number as u32, end, losses, sink);
        }
        let open: Vec<Which> = self.open.keys().cloned().collect();
        for which in open {
            self.end_unseen(&which, end, losses, sink);
        }
        for (of, value) in std::mem::take(&mut self.counters) {
            Self::held(of, value, (end, 0), losses, sink);
        }
    }
}

/// A process by its number; that of the thread where the text says 0.
fn process_or(process: u32, tid: Tid) -> u32 {
    if process == 0 { tid } else { process }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_atrace_are_read() {
        let of = |text| Mark::of(text);
        assert_eq!(of("B|7|a|b\n"), Some(Mark::Begins { name: "a|b" }));
        assert_eq!([of("E"), of("E|7\n")], [Some(Mark::Ends); 2]);
        let what = ("", "load|3");
        assert_eq!(of("S|7|load|3"), Some(Mark::ProcessBegins { process: 7, name: "load", what }));
        assert_eq!(of("F|7|load|3"), Some(Mark::ProcessEnds { process: 7, what }));
        let what = ("net", "3");
        assert_eq!(of("G|7|net|get|3"), Some(Mark::ProcessBegins { process: 7, name: "get", what }));
        assert_eq!([of("H|7|net|3"), of("H|7|net|get|3")], [Some(Mark::ProcessEnds { process: 7, what }); 2]);
        assert_eq!(of("C|7|load|-5\n"), Some(Mark::Counts { process: 7, name: "load", value: -5 }));
        assert_eq!(of("I|7|now"), Some(Mark::Moment { name: "now" }));
        assert_eq!(of("N|7|net|now"), Some(Mark::Moment { name: "now" }));
        for other in [
            "",
            "B",
            "B|x|a",
            "B|-1|a",
            "C|7|load",
            "C|7|load|x",
            "S|7|load",
            "X|7|a",
            "hello|7",
            "B|4194304|a",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    fn at(time: u64) -> At {
        At { time, cpu: 0, event: time }
    }

    /// Row, begin, end, the value, and whether an event ends it.
    fn slices(losses_at: Option<u64>, marks: &[(u64, Tid, &'static str)]) -> Vec<(Row, u64, u64, i64, bool)> {
        let (mut spans, mut threads, mut sink) = (Spans::default(), Threads::default(), Sink::default());
        let mut losses = Losses::default();
        for (time, tid, text) in marks {
            if losses_at.is_some_and(|lost| losses.count == 0 && *time > lost) {
                losses.count = 1;
                losses.times.extend(losses_at);
            }
            spans.look(at(*time), (*tid, Mark::of(text).unwrap()), &mut threads, &losses, &mut sink);
        }
        spans.finish(100, &mut threads, &losses, &mut sink);
        let mut all: Vec<_> = sink
            .slices
            .iter()
            .map(|of| (sink.rows.get(of.row).unwrap(), of.start, of.end, of.arg, of.last != 0))
            .collect();
        all.sort_by_key(|of| (of.1, of.2));
        all
    }

    #[test]
    fn spans_of_threads_are_inside_one_another() {
        let marks = [
            (1, 5, "E"),
            (2, 5, "B|5|a"),
            (3, 6, "B|6|x"),
            (4, 5, "B|5|b"),
            (6, 5, "E|5"),
            (9, 5, "E"),
            (10, 5, "I|5|now"),
        ];
        let all = slices(None, &marks);
        let (first, second) = (0, 1);
        let expected = [
            (Row::Spans(first, 0), 2, 9, 0, true),
            (Row::Spans(second, 0), 3, 100, 0, false),
            (Row::Spans(first, 1), 4, 6, 0, true),
            (Row::Moments(first), 10, 10, 0, true),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn spans_of_processes_overlap_and_counters_hold_their_values() {
        let marks = [
            (1, 5, "S|7|load|1"),
            (2, 6, "S|7|load|2"),
            (3, 5, "C|7|queue|4"),
            (4, 9, "F|7|load|1"),
            (5, 5, "C|7|queue|6"),
            (6, 5, "F|7|load|2"),
            (7, 5, "F|7|load|2"),
        ];
        let expected = [
            (Row::ProcessSpans(7, 0), 1, 4, 0, true),
            (Row::ProcessSpans(7, 1), 2, 6, 0, true),
            (Row::Counter(7, 2), 3, 5, 4, true),
            (Row::Counter(7, 2), 5, 100, 6, false),
        ];
        assert_eq!(slices(None, &marks), expected);
    }

    #[test]
    fn what_began_before_a_loss_ends_there() {
        let marks = [
            (1, 5, "B|5|a"),
            (2, 5, "S|7|load|1"),
            (3, 5, "C|7|queue|4"),
            (20, 5, "E"),
            (21, 5, "F|7|load|1"),
            (22, 5, "C|7|queue|5"),
            (23, 5, "B|5|b"),
            (24, 5, "E"),
        ];
        let expected = [
            (Row::Spans(0, 0), 1, 10, 0, false),
            (Row::ProcessSpans(7, 0), 2, 10, 0, false),
            (Row::Counter(7, 3), 3, 10, 4, false),
            (Row::Counter(7, 3), 22, 100, 5, false),
            (Row::Spans(0, 0), 23, 24, 0, true),
        ];
        assert_eq!(slices(Some(10), &marks), expected);
    }
}
