//! What records say of CPUs, threads, system calls, interrupts, disks and functions: slices of rows.
//!
//! | file | subject |
//! |---|---|
//! | `sched` | who runs on CPUs, and what threads do |
//! | `calls` | system calls |
//! | `irqs` | interrupts and soft interrupts |
//! | `io` | requests to block devices |
//! | `graph` | functions of the kernel that call each other |
//! | `spans` | spans and counters that programs write to trace_marker |
//! | `rows` | the rows, and names that are told by number |
//! | `slicer` | hands the records of a recording on to all of these |
//!
//! The timeline in a page and Chrome's trace format show the same slices. All of them hold what goes on and
//! nothing that has ended. Where events were lost, what went on is known up to the last record before; slices
//! end there.

mod calls;
mod graph;
mod io;
mod irqs;
mod rows;
mod sched;
mod slicer;
mod spans;

use analysis::answers::{Doing, Event, Known, PassedGap, Scheduled as _, Tid, Unseen};
use ftrace_event::Symbols;
use ftrace_event::syscalls::CallNames;

use self::graph::GraphEvents;
pub(crate) use self::rows::{Labels, Row, Rows};
#[cfg(test)]
pub(crate) use self::slicer::tests as slicer_tests;
pub(crate) use self::slicer::{Finished, Slicer, Taken, has_switches};

/// Most losses whose times are kept: 8 MiB. After that, what began before a loss is not known.
const MOST_LOSSES: usize = 1 << 20;

/// The numbers of the states of threads.
pub(crate) mod state {
    pub(crate) const UNKNOWN: u32 = 0;
    pub(crate) const RUNS: u32 = 1;
    pub(crate) const WOKEN: u32 = 2;
    pub(crate) const PREEMPTED: u32 = 3;
    pub(crate) const SLEEPS: u32 = 4;
    pub(crate) const BLOCKED: u32 = 5;
    pub(crate) const STOPPED: u32 = 6;
}

/// When and where a record was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    /// Since the first event.
    pub(crate) time: u64,
    pub(crate) cpu: u32,
    /// The event, counted from 1.
    pub(crate) event: u64,
}

/// A time in which something goes on in a row. Times count from the first event, `end` is not before `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) row: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// What goes on, as the row counts it.
    pub(crate) key: u32,
    /// More about it: what the row says.
    pub(crate) arg: i64,
    /// The events that it begins and ends with, counted from 1; 0 if there is none.
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// Where slices go.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    pub(crate) rows: Rows,
    pub(crate) labels: Labels,
    pub(crate) slices: Vec<Slice>,
}

/// A slice without its row.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    start: u64,
    end: u64,
    key: u32,
    arg: i64,
    first: u64,
    last: u64,
}

impl Sink {
    fn slice(&mut self, row: Row, part: Part) {
        let Part { start, end, key, arg, first, last } = part;
        if let Some(row) = self.rows.number(row) {
            self.slices.push(Slice { row, start, end: end.max(start), key, arg, first, last });
        }
    }
}

/// When something began, as far as it matters to what was lost since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    /// How often events had been lost.
    count: usize,
    /// Some CPU lacked events then.
    is_in_gap: bool,
}

/// Where events were lost.
#[derive(Debug, Default)]
struct Losses {
    count: usize,
    /// For each, when the last record before was made.
    times: Vec<u64>,
    /// Some CPU lacks events now.
    has_gap: bool,
}

impl Losses {
    fn stamp(&self) -> Stamp {
        Stamp { count: self.count, is_in_gap: self.has_gap }
    }

    /// Whether none were.
    fn are_none(&self) -> bool {
        self.count == 0
    }

    /// Whether everything is known of what began then.
    fn is_known(&self, stamp: Stamp) -> bool {
        stamp.count >= self.count && !self.has_gap
    }

    /// Up to when is known what went on, of what began at a time; `None` if no events were lost since.
    fn since(&self, stamp: Stamp, begin: u64) -> Option<u64> {
        if self.is_known(stamp) {
            return None;
        }
        let lost = self.times.get(stamp.count).filter(|_| !stamp.is_in_gap);
        Some(lost.map_or(begin, |time| (*time).max(begin)))
    }
}

/// What is known of a thread.
#[derive(Debug, Default)]
struct Thread {
    doing: Doing,
    calls: calls::Calling,
    graph: graph::Stack,
    spans: spans::Stack,
}

/// A thread's id and its last name.
pub(crate) type Named = (Tid, Box<[u8]>);

/// The threads of a recording.
type Threads = analysis::answers::Threads<Thread>;

/// All tracks.
#[derive(Debug)]
struct Tracks {
    threads: Threads,
    losses: Losses,
    sched: sched::Sched,
    calls: calls::Calls,
    irqs: irqs::Irqs,
    io: io::Io,
    graph: graph::Graph,
    spans: spans::Spans,
}

impl Tracks {
    /// Of a recording that has `sched_switch` or not, and lacks some halves, of a machine with these system
    /// calls.
    fn new(has_switches: bool, names: CallNames, unseen: Unseen) -> Self {
        Self {
            threads: Threads::default(),
            losses: Losses::default(),
            sched: sched::Sched::new(has_switches),
            irqs: irqs::Irqs::new(unseen.interrupts_end),
            calls: calls::Calls::new(names, has_switches, unseen),
            io: io::Io::default(),
            graph: graph::Graph::default(),
            spans: spans::Spans::default(),
        }
    }

    /// The number of the thread that has an id now; `None` if there are too many threads.
    fn thread(&mut self, tid: Tid) -> Option<u32> {
        self.threads.find(tid, Thread::default).map(|(index, _)| index as u32)
    }

    /// Looks at a record that is known.
    fn look(&mut self, at: At, event: &Event<'_>, sink: &mut Sink) {
        let Self { threads, losses, sched, calls, irqs, io, .. } = self;
        if let Known::Exit { tid } | Known::Ends { tid } = event.known {
            // It makes no system call any more.
            calls.end(at, tid, threads, losses, sink);
            if let Some(index) = threads.current_index(tid)
                && let Some(thread) = threads.get_mut(index)
            {
                thread.of.spans.finish(index as u32, at.time, losses, sink);
            }
        }
        sched.look(at, event, threads, sink);
        match &event.known {
            Known::Begins { child, comm, is_seen: true, .. } => {
                if !sched.has_switches() {
                    threads.begin(*child, Thread::default());
                }
                if let Some(thread) = threads.current(*child) {
                    thread.is_called(comm);
                    thread.of.calls.born = event.follows.other.then_some(at.time);
                }
            }
            Known::Ends { tid } => threads.end(*tid),
            Known::Takes { from, to } if !sched.has_switches() => {
                if let Some((was, is)) = threads.take(*from, *to, Thread::default)
                    && let Some((was, is)) = threads.two(was, is)
                {
                    was.of.goes_on_as(&mut is.of);
                }
            }
            Known::Renamed { tid, comm: Some(comm), .. } => {
                if let Some((_, thread)) = threads.find(*tid, Thread::default) {
                    thread.is_called(comm);
                }
            }
            Known::CallEnter { number, is_raw, .. } => {
                if let Some(tid) = event.tid {
                    calls.enter(at, tid, (*number, *is_raw), threads, losses, sink);
                }
            }
            Known::CallExit { number, result, is_raw } => {
                if let Some(tid) = event.tid {
                    calls.exit(at, (tid, event.follows), (*number, *result, *is_raw), threads, losses, sink);
                }
            }
            Known::IrqEntry { .. }
            | Known::IrqExit { .. }
            | Known::SoftirqEntry { .. }
            | Known::SoftirqExit { .. } => irqs.look(at, &event.known, sink),
            Known::BlockIssue(_) | Known::BlockComplete { .. } | Known::BlockRequeue { .. } => {
                io.look(at, &event.known, sink);
            }
            _ => {}
        }
    }

    /// A function of the kernel is called or returns.
    fn graph(
        &mut self,
        at: At,
        record: &[u8],
        (events, id, tid): (&GraphEvents, u16, Option<Tid>),
        symbols: &dyn Symbols,
        sink: &mut Sink,
    ) {
        if let (Some(call), Some(tid)) = (events.read(id, record), tid) {
            self.graph.look(at, (tid, call), &mut self.threads, &self.losses, symbols, sink);
        }
    }

    /// A program tells of spans, counters or moments.
    fn mark(&mut self, at: At, (tid, mark): (Tid, spans::Mark<'_>), sink: &mut Sink) {
        self.spans.look(at, (tid, mark), &mut self.threads, &self.losses, sink);
    }

    /// Events of a CPU are missing between its last record and now.
    fn lost(&mut self, at: At, since: u64, lost: (u64, &str), sink: &mut Sink) {
        Self::gap(at, since, lost, sink);
        self.lose(at, since, sink);
    }

    /// Shows that so many events of a CPU are missing in a buffer; 0 if nobody counted them.
    fn gap(at: At, since: u64, (count, buffer): (u64, &str), sink: &mut Sink) {
        let arg = i64::try_from(count).unwrap_or(i64::MAX);
        let key = sink.labels.number(buffer);
        sink.slice(
            Row::Gap(at.cpu),
            Part { start: since, end: at.time, key, arg, last: at.event, ..Part::default() },
        );
    }

    /// Ends what is known of a CPU with its last record.
    fn lose(&mut self, at: At, since: u64, sink: &mut Sink) {
        self.losses.count += 1;
        if self.losses.times.len() < MOST_LOSSES {
            self.losses.times.push(since);
        }
        self.sched.lost(at, since, &mut self.threads, sink);
        self.irqs.lost(at, since, sink);
        self.io.lost(sink);
    }

    /// A record lies in the gap of a CPU: what happened since the record before is not all known.
    fn pass_gap(&mut self, at: At, gap: PassedGap, sink: &mut Sink) {
        self.sched.lost(At { cpu: gap.cpu, ..at }, gap.since, &mut self.threads, sink);
        self.io.lost(sink);
    }

    /// The recording ends: what goes on then is told up to there.
    fn finish(&mut self, end: u64, symbols: &dyn Symbols, sink: &mut Sink) {
        let Self { threads, losses, sched, calls, irqs, io, graph, spans } = self;
        sched.finish(end, threads, sink);
        calls.finish(end, threads, losses, sink);
        irqs.finish(end, sink);
        io.lost(sink);
        graph.finish(end, threads, losses, symbols, sink);
        spans.finish(end, threads, losses, sink);
    }

    /// How many requests to block devices are not told of.
    fn requests_left_out(&self) -> u64 {
        self.io.left_out()
    }

    /// Ids and names of all threads, and how often one was seen for which there was no room.
    fn into_threads(self) -> (Vec<Named>, u64) {
        let (all, left_out) = self.threads.into_parts();
        (all.into_iter().map(|thread| (thread.tid, thread.name)).collect(), left_out)
    }
}
