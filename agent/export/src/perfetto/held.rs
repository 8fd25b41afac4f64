//! Beginnings that wait for their ends, in recordings that lack events.
//!
//! The viewer joins an end with the last beginning of its thread or CPU that has none, whatever was recorded
//! in between, and draws a beginning without an end until the end of the trace. Where events may be missing,
//! a beginning is therefore written when its end is known, and one without an end as an event that the viewer
//! does not draw.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tracedat::ledger::Pause;
use tracedat::reader::Record;

/// Most bytes of beginnings that wait. Others are not drawn.
const MOST: usize = 16 << 20;

/// What the viewer draws in one line, no two at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// The system call that a thread is in.
    Call(u32),
    /// What a thread does to get memory.
    Reclaim(u32),
    /// The interrupt that a CPU is in.
    Irq(u32),
    /// The soft interrupt that a CPU is in.
    Softirq(u32),
}

/// A record that waits.
#[derive(Debug, PartialEq, Eq)]
struct Kept {
    time: u64,
    data: Vec<u8>,
}

/// A beginning, and the stacks that were recorded with it.
#[derive(Debug)]
pub(super) struct Beginning {
    /// What begins, if its records have that.
    pub(super) what: Option<i64>,
    /// Its stream of records, without bytes.
    of: Record<'static>,
    records: Vec<Kept>,
}

impl Beginning {
    /// The CPU that it was recorded on.
    pub(super) fn cpu(&self) -> u32 {
        self.of.cpu
    }

    /// Its record, and those of its stacks.
    pub(super) fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.records.iter().map(|Kept { time, data }| Record { timestamp: *time, data, ..self.of })
    }

    fn add(&mut self, record: &Record<'_>) -> usize {
        self.records.push(Kept { time: record.timestamp, data: record.data.to_vec() });
        bytes_of(record.data)
    }

    fn bytes(&self) -> usize {
        self.records.iter().map(|kept| bytes_of(&kept.data)).sum()
    }
}

/// The memory that a record takes while it waits.
fn bytes_of(data: &[u8]) -> usize {
    data.len() + size_of::<(Lane, Beginning, Kept)>()
}

/// The beginnings that wait.
#[derive(Debug, Default)]
pub(super) struct Held {
    waiting: BTreeMap<Lane, Beginning>,
    /// Their bytes.
    bytes: usize,
    /// By CPU and buffer, the beginning that the last record is of.
    last: BTreeMap<(u32, usize), Lane>,
    /// CPUs and buffers that lack events from some time on.
    gaps: BTreeSet<(u32, usize)>,
    /// Times at which pauses begin or end (`true`), latest first. Of one time, beginnings come first.
    pauses: Vec<(u64, bool)>,
    /// How many pauses there are now, of several recordings. Records can lie close to both ends of one.
    paused: usize,
    /// What waits no more, with whether its end has come.
    released: VecDeque<(Beginning, bool)>,
}

impl Held {
    /// Of recordings with these pauses.
    pub(super) fn new(pauses: impl Iterator<Item = Pause>) -> Self {
        let times = pauses.flat_map(|pause| [Some((pause.from_ns, false)), pause.to_ns.map(|to| (to, true))]);
        let mut pauses: Vec<(u64, bool)> = times.flatten().collect();
        pauses.sort_unstable_by(|one, other| other.cmp(one));
        Self { pauses, ..Self::default() }
    }

    /// A CPU of a buffer lacks events from now on, until its next record.
    pub(super) fn begin_gap(&mut self, buffer: usize, cpu: u32) {
        self.gaps.insert((cpu, buffer));
        // Threads go from one CPU to another.
        while let Some((&lane, _)) = self.waiting.first_key_value()
            && lane < Lane::Irq(0)
        {
            self.forget(lane);
        }
        self.forget(Lane::Irq(cpu));
        self.forget(Lane::Softirq(cpu));
    }

    /// Ends gaps and pauses before a record. No other method takes the record before.
    pub(super) fn pass(&mut self, record: &Record<'_>) {
        if !self.gaps.is_empty() {
            self.gaps.remove(&(record.cpu, record.buffer));
        }
        let mut has_paused = false;
        while let Some((_, ends)) = self.pauses.pop_if(|(at, _)| *at <= record.timestamp) {
            self.paused = if ends { self.paused.saturating_sub(1) } else { self.paused + 1 };
            has_paused = true;
        }
        if has_paused {
            self.forget_all();
        }
    }

    /// Whether all events of a lane are there now.
    pub(super) fn is_whole(&self, lane: Lane) -> bool {
        let has_gap = match lane {
            Lane::Call(_) | Lane::Reclaim(_) => !self.gaps.is_empty(),
            Lane::Irq(cpu) | Lane::Softirq(cpu) => {
                self.gaps.range((cpu, 0)..=(cpu, usize::MAX)).next().is_some()
            }
        };
        !has_gap && self.paused == 0
    }

    /// Whether something that has begun in a lane waits.
    pub(super) fn is_waiting(&self, lane: Lane) -> bool {
        self.waiting.contains_key(&lane)
    }

    /// Something begins with a record.
    pub(super) fn begin(&mut self, lane: Lane, what: Option<i64>, record: &Record<'_>) {
        self.forget(lane);
        let Record { reader, buffer, cpu, timestamp, missed, endian, .. } = *record;
        let of = Record { reader, buffer, cpu, timestamp, missed, data: &[], endian };
        let mut beginning = Beginning { what, of, records: Vec::with_capacity(1) };
        self.bytes += beginning.add(record);
        self.waiting.insert(lane, beginning);
        self.last.insert((cpu, buffer), lane);
        self.forget_beyond_most(lane);
    }

    /// Keeps a stack if the record before it waits. Whether it does.
    pub(super) fn keeps_stack(&mut self, record: &Record<'_>) -> bool {
        let Some(lane) = self.last.get(&(record.cpu, record.buffer)).copied() else { return false };
        let Some(beginning) = self.waiting.get_mut(&lane) else { return false };
        if (beginning.of.cpu, beginning.of.buffer) != (record.cpu, record.buffer) {
            return false;
        }
        self.bytes += beginning.add(record);
        self.forget_beyond_most(lane);
        true
    }

    /// Takes another record than a stack: those that come are of this one.
    pub(super) fn end_stacks(&mut self, record: &Record<'_>) {
        if !self.last.is_empty() {
            self.last.remove(&(record.cpu, record.buffer));
        }
    }

    /// What has begun in a lane and ends now.
    pub(super) fn take(&mut self, lane: Lane) -> Option<Beginning> {
        let beginning = self.waiting.remove(&lane)?;
        self.bytes -= beginning.bytes();
        Some(beginning)
    }

    /// The end of what has begun in a lane will not come, or another one.
    pub(super) fn forget(&mut self, lane: Lane) {
        if let Some(beginning) = self.take(lane) {
            self.release(beginning, false);
        }
    }

    /// Gives back what was taken. `is_drawn`: its end has come.
    pub(super) fn release(&mut self, beginning: Beginning, is_drawn: bool) {
        self.released.push_back((beginning, is_drawn));
    }

    fn forget_beyond_most(&mut self, lane: Lane) {
        if self.bytes > MOST {
            self.forget(lane);
        }
    }

    /// No end will come.
    pub(super) fn forget_all(&mut self) {
        self.bytes = 0;
        let waiting = std::mem::take(&mut self.waiting).into_values();
        self.released.extend(waiting.map(|beginning| (beginning, false)));
    }

    /// What waits no more, one after the other, with whether its end has come.
    pub(super) fn released(&mut self) -> Option<(Beginning, bool)> {
        self.released.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftrace_event::Endian;

    fn record(buffer: usize, cpu: u32, timestamp: u64, data: &[u8]) -> Record<'_> {
        Record { reader: 0, buffer, cpu, timestamp, missed: None, data, endian: Endian::Little }
    }

    fn begin(held: &mut Held, lane: Lane) {
        held.begin(lane, Some(5), &record(0, 0, 1, &[7]));
    }

    /// Whether what is released has its end, and its times.
    fn released(held: &mut Held) -> Vec<(bool, Vec<u64>)> {
        let times = |(of, is_drawn): (Beginning, bool)| {
            (is_drawn, of.records().map(|record| record.timestamp).collect())
        };
        std::iter::from_fn(|| held.released()).map(times).collect()
    }

    #[test]
    fn a_beginning_waits_until_its_end_comes_or_cannot_come() {
        let mut held = Held::default();
        let lane = Lane::Irq(0);
        begin(&mut held, lane);
        assert!(held.is_waiting(lane) && released(&mut held).is_empty());
        let taken = held.take(lane).unwrap();
        assert_eq!((taken.what, taken.cpu(), held.bytes), (Some(5), 0, 0));
        assert!(held.take(lane).is_none() && !held.is_waiting(lane));
        held.release(taken, true);
        assert_eq!(released(&mut held), [(true, vec![1])]);
        // Another one begins, and none ends.
        begin(&mut held, lane);
        begin(&mut held, lane);
        assert_eq!(released(&mut held), [(false, vec![1])]);
        held.forget_all();
        assert_eq!((released(&mut held), held.bytes), (vec![(false, vec![1])], 0));
    }

    #[test]
    fn the_bytes_that_wait_have_a_limit() {
        let mut held = Held::default();
        let long = vec![7; MOST - 2 * bytes_of(&[]) - 1];
        held.begin(Lane::Call(7), None, &record(0, 0, 1, &long));
        begin(&mut held, Lane::Irq(0));
        assert!(released(&mut held).is_empty());
        begin(&mut held, Lane::Irq(1));
        assert_eq!(released(&mut held), [(false, vec![1])]);
        assert!(!held.is_waiting(Lane::Irq(1)));
        // A stack goes with its event.
        held.begin(Lane::Call(7), None, &record(0, 0, 2, &[7]));
        assert_eq!(released(&mut held), [(false, vec![1])]);
        let stack = &long[bytes_of(&[]) + 1..];
        assert!(held.keeps_stack(&record(0, 0, 2, stack)) && released(&mut held).is_empty());
        assert!(held.keeps_stack(&record(0, 0, 2, &[7])));
        assert_eq!(released(&mut held), [(false, vec![2; 3])]);
        assert!(!held.keeps_stack(&record(0, 0, 2, &[7])));
    }

    #[test]
    fn stacks_wait_with_the_record_before_them() {
        let mut held = Held::default();
        begin(&mut held, Lane::Call(7));
        assert!(!held.keeps_stack(&record(0, 1, 1, &[])) && !held.keeps_stack(&record(1, 0, 1, &[])));
        held.end_stacks(&record(0, 1, 1, &[]));
        assert!(held.keeps_stack(&record(0, 0, 1, &[])) && held.keeps_stack(&record(0, 0, 1, &[])));
        held.end_stacks(&record(0, 0, 2, &[]));
        assert!(!held.keeps_stack(&record(0, 0, 2, &[])));
        held.forget(Lane::Call(7));
        assert_eq!(released(&mut held), [(false, vec![1; 3])]);
    }

    #[test]
    fn nothing_is_joined_over_gaps_and_pauses() {
        let pause = |from_ns| Pause { from_ns, to_ns: Some(from_ns + 5) };
        let moment = Pause { from_ns: 28, to_ns: Some(28) };
        let mut held = Held::new([pause(20), moment, pause(10), pause(12)].into_iter());
        let lanes = [Lane::Call(7), Lane::Reclaim(7), Lane::Irq(0), Lane::Irq(1), Lane::Softirq(1)];
        let begin_all = |held: &mut Held| lanes.into_iter().for_each(|lane| begin(held, lane));
        begin_all(&mut held);
        held.begin_gap(3, 1);
        assert_eq!(released(&mut held).len(), 4);
        assert_eq!(lanes.map(|lane| held.is_whole(lane)), [false, false, true, false, false]);
        assert!(held.is_waiting(Lane::Irq(0)));
        // Only its own next record ends a gap.
        for (buffer, cpu, is_whole) in [(3, 0, false), (0, 1, false), (3, 1, true)] {
            held.pass(&record(buffer, cpu, 1, &[]));
            assert_eq!(lanes.map(|lane| held.is_whole(lane)), [is_whole, is_whole, true, is_whole, is_whole]);
        }
        begin_all(&mut held);
        assert_eq!(released(&mut held).len(), 1);
        for (time, forgotten, is_whole) in [
            (9, 0, true),
            (10, 5, false),
            (15, 5, false),
            (17, 5, true),
            (19, 0, true),
            (25, 5, true),
            (28, 5, true),
        ] {
            held.pass(&record(0, 0, time, &[]));
            assert_eq!(released(&mut held).len(), forgotten, "{time}");
            assert_eq!(lanes.map(|lane| held.is_whole(lane)), [is_whole; 5], "{time}");
            if forgotten != 0 {
                begin_all(&mut held);
            }
        }
    }
}
