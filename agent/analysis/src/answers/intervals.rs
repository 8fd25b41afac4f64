//! One answer after the other about a recording that goes on.
//!
//! The first interval begins with the first record, and each of the others where the one before ends. A
//! record belongs to the interval in which its time is; one at a border, to the later interval. So what is
//! counted in all intervals is what is counted in the whole, and the times that threads ran, slept and the
//! like are cut at the borders.

use super::{Analysis, Covered, Feed, Need, Topic};
use report::TraceFile;
use tracedat::ledger::{EventChoice, Pause};
use tracedat::reader::{Record, Source};

/// Most intervals without a record, one after the other, that are told one by one. More of them, behind a
/// leap of the recording's times, are told as one.
const MOST_EMPTY: u64 = 1000;

/// An analysis that answers for one interval after the other, by the times of the records.
#[derive(Clone, Debug)]
pub struct Intervals<A> {
    feed: Feed<A>,
    topic: Topic,
    length: u64,
    /// Whether each answer is about all from the beginning on.
    is_cumulative: bool,
    /// When the current interval ends; `None` before the first record.
    end: Option<u64>,
    /// Whether it has a record.
    has_record: bool,
    damaged: u64,
}

impl<A: Analysis> Intervals<A> {
    /// Answers every `length` nanoseconds: for that interval, or for all from the beginning on.
    pub fn new(feed: Feed<A>, topic: Topic, length: u64, is_cumulative: bool) -> Self {
        Self { feed, topic, length: length.max(1), is_cumulative, end: None, has_record: false, damaged: 0 }
    }

    /// What the analysis needs and has not, as [`Feed::lacks`] says it.
    pub fn lacks<S: Source>(&self, file: &TraceFile<S>) -> (Vec<Need>, Vec<Need>) {
        self.feed.lacks(file, self.topic)
    }

    /// The answer about the current interval, if it ends at this time at the latest; the next one begins
    /// then. All records from before this time have been taken. To be called until there is none.
    pub fn close<S: Source>(&mut self, file: &TraceFile<S>, reached: u64) -> Option<(A::Answer, Covered)> {
        // Behind the last time there is no interval.
        let end = self.end.filter(|end| *end <= reached && *end != u64::MAX)?;
        let answered = self.feed.answer_until(end, file, self.topic);
        if !self.is_cumulative {
            self.feed.restart(end);
        }
        let empty = (reached - end) / self.length;
        let intervals = if empty > MOST_EMPTY { empty } else { 1 };
        self.end = Some(end.saturating_add(self.length.saturating_mul(intervals)));
        self.has_record = false;
        Some(answered)
    }

    /// Takes a record, when all intervals are closed that end before it.
    pub fn take<S: Source>(&mut self, file: &TraceFile<S>, record: &Record<'_>) {
        self.feed.take(file, record);
        self.has_record = true;
        self.end = self.end.or_else(|| Some(self.feed.first()?.saturating_add(self.length)));
    }

    /// Tells which pauses the recording has had by now, as [`Feed::know_pauses`] does.
    pub fn know_pauses<S: Source>(&mut self, file: &TraceFile<S>, pauses: &[Pause]) {
        self.feed.know_pauses(file, pauses);
    }

    /// Takes which threads, CPUs, and firings of events are recorded, as [`Feed::know_choice`] does.
    pub fn know_choice<S: Source>(&mut self, file: &TraceFile<S>, only: &[String], choices: &[EventChoice]) {
        self.feed.know_choice(file, only, choices);
    }

    /// A page or chunk could not be read.
    pub fn damaged(&mut self) {
        self.damaged += 1;
        self.feed.damaged();
    }

    /// How many pages and chunks could not be read since the beginning.
    pub fn damages(&self) -> u64 {
        self.damaged
    }

    /// The answer about the last interval, which ends with the last record; `None` if it has none. The last
    /// answer about all from the beginning on is that of the file, also where an interval without records
    /// has ended behind the last one.
    pub fn finish<S: Source>(self, file: &TraceFile<S>) -> Option<(A::Answer, Covered)> {
        let is_due = self.has_record || self.is_cumulative && self.end.is_some();
        is_due.then(|| self.feed.answer(file, self.topic))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Cursor;

    use super::super::{Calls, OffCpu, Pick, Sched, SchedAnswer, Scope, Stacks, StacksAnswer, Tid, Weight};
    use super::*;
    use ftrace_event::Endian;
    use report::crafted;
    use report::crafted::{Entry, ev, stack};
    use tracedat::{Buffer, Compression, EventSystem, Section, Setup, Writer, layout};

    const SWITCH: u16 = 1;
    const ENTER: u16 = 2;
    const EXIT: u16 = 3;

    /// A file without records that describes switches and system calls, with their numbers only.
    fn file() -> TraceFile<Vec<u8>> {
        let format = |name: &str, id: u16, fields: &[&str]| {
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
        };
        let switch = format("sched_switch", SWITCH, &["int prev_pid", "int prev_state", "int next_pid"]);
        let enter = format("sys_enter", ENTER, &["int id"]);
        let exit = format("sys_exit", EXIT, &["int id", "int ret"]);
        let (endian, compression) = (Endian::Little, Compression::None);
        let mut writer =
            Writer::create(Cursor::new(Vec::new()), Setup { endian, page_size: 4096, compression }).unwrap();
        let header_page = layout::header_page_text(4096);
        writer.section(Section::header_info(endian, &header_page, "").unwrap()).unwrap();
        let systems = [
            EventSystem { name: "sched", formats: &[&switch] },
            EventSystem { name: "raw_syscalls", formats: &[&enter, &exit] },
        ];
        writer.section(Section::event_formats(endian, &systems).unwrap()).unwrap();
        let buffer = Buffer { name: "", clock: "mono", page_size: 4096 };
        writer.begin_buffer(buffer).unwrap().finish().unwrap();
        TraceFile::open("live", writer.finish().unwrap().into_inner()).unwrap()
    }

    #[derive(Clone, Debug)]
    struct Made {
        time: u64,
        cpu: u32,
        data: Vec<u8>,
    }

    fn made(time: u64, cpu: u32, (id, tid): (u16, Tid), fields: &[u32]) -> Made {
        let mut data = [id.to_le_bytes(), [0; 2]].concat();
        data.extend(tid.to_le_bytes());
        data.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
        Made { time, cpu, data }
    }

    fn switch(time: u64, cpu: u32, prev: Tid, next: Tid) -> Made {
        made(time, cpu, (SWITCH, prev), &[prev, 1, next])
    }

    fn record(made: &Made) -> Record<'_> {
        let Made { time: timestamp, cpu, data } = made;
        Record {
            reader: 0,
            buffer: 0,
            cpu: *cpu,
            timestamp: *timestamp,
            missed: None,
            data,
            endian: Endian::Little,
        }
    }

    /// All answers about records that come one by one.
    fn all<A: Analysis>(
        mut of: Intervals<A>,
        file: &TraceFile<Vec<u8>>,
        records: &[Made],
    ) -> Vec<(A::Answer, Covered)> {
        let mut answers = Vec::new();
        for made in records {
            while let Some(answer) = of.close(file, made.time) {
                answers.push(answer);
            }
            of.take(file, &record(made));
        }
        answers.extend(of.finish(file));
        answers
    }

    fn sched(length: u64, is_cumulative: bool) -> Intervals<Sched> {
        let scope = Scope::default();
        let feed = Feed::new(&file(), scope.clone(), Sched::new(scope));
        Intervals::new(feed, Topic::Sched, length, is_cumulative)
    }

    /// Threads of two CPUs that make calls and give their CPUs to others, at times that are often the same.
    fn story() -> Vec<Made> {
        let mut records = vec![switch(1000, 0, 0, 1), switch(1000, 1, 0, 2)];
        let mut running = [1, 2];
        let mut random = 1_u64;
        for step in 0..2000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (time, cpu) = (1000 + step * 5 / 10 * 10, (random >> 33) as u32 % 2);
            let tid = &mut running[cpu as usize];
            match (random >> 40) % 3 {
                0 => {
                    let next = *tid % 20 + 2;
                    records.push(switch(time, cpu, *tid, next));
                    *tid = next;
                }
                1 => records.push(made(time, cpu, (ENTER, *tid), &[(random >> 50) as u32 % 4])),
                _ => records.push(made(time, cpu, (EXIT, *tid), &[(random >> 50) as u32 % 4, 0])),
            }
        }
        records
    }

    fn run_times(answers: &[(SchedAnswer, Covered)]) -> BTreeMap<Tid, u64> {
        let mut times = BTreeMap::new();
        for thread in answers.iter().flat_map(|(answer, _)| &answer.threads) {
            *times.entry(thread.tid).or_default() += thread.run_ns;
        }
        times
    }

    #[test]
    fn the_intervals_together_are_the_whole() {
        let (file, records) = (file(), story());
        let whole = all(sched(u64::MAX, false), &file, &records);
        assert_eq!(whole.len(), 1);
        let (begin, end) = (whole[0].1.from_ns, whole[0].1.to_ns);
        for length in [7, 10, 100, 1000, 12_345] {
            let parts = all(sched(length, false), &file, &records);
            let mut border = begin;
            for (_, covered) in &parts {
                assert_eq!(covered.from_ns, border);
                border = covered.to_ns;
                assert!(border - covered.from_ns == length || border == end);
            }
            assert_eq!(border, end);
            let events: u64 = parts.iter().map(|(_, covered)| covered.events).sum();
            assert_eq!(events, whole[0].1.events);
            assert_eq!(run_times(&parts), run_times(&whole), "{length}");
            let busy = |answers: &[(SchedAnswer, Covered)]| -> u64 {
                answers.iter().flat_map(|(answer, _)| &answer.cpus).map(|cpu| cpu.busy_ns).sum()
            };
            assert_eq!(busy(&parts), busy(&whole));
            let total = all(sched(length, true), &file, &records);
            assert_eq!(total.len(), parts.len());
            assert_eq!(total.last(), whole.last(), "{length}");
        }
    }

    #[test]
    fn the_last_answer_about_all_is_that_of_the_file() {
        let (file, records) = (file(), story());
        let whole = all(sched(u64::MAX, false), &file, &records);
        let mut of = sched(100, true);
        for made in &records {
            while of.close(&file, made.time).is_some() {}
            of.take(&file, &record(made));
        }
        // As long as the recording goes on, intervals end by the clock.
        while of.close(&file, records.last().unwrap().time + 1000).is_some() {}
        assert_eq!(of.finish(&file).as_ref(), whole.last());
        assert_eq!(sched(100, true).finish(&file), None, "there is no record");
    }

    #[test]
    fn a_call_is_one_of_the_interval_in_which_it_ends() {
        let (file, records) = (file(), story());
        let calls = |length| {
            let scope = Scope::default();
            let feed = Feed::new(&file, scope.clone(), Calls::new(scope, None));
            let answers = all(Intervals::new(feed, Topic::Syscalls, length, false), &file, &records);
            let mut counts = BTreeMap::new();
            for call in answers.iter().flat_map(|(answer, _)| &answer.calls) {
                let count: &mut (u64, u64) = counts.entry(call.number).or_default();
                let times = call.times.unwrap_or_default();
                *count = (count.0 + times.count, count.1 + times.total_ns);
            }
            counts
        };
        let whole = calls(u64::MAX);
        assert!(whole.values().all(|(count, time)| *count > 10 && *time > 0), "{whole:?}");
        for length in [10, 100, 3333] {
            assert_eq!(calls(length), whole, "{length}");
        }
    }

    #[test]
    fn an_interval_ends_when_it_is_known_that_nothing_more_comes() {
        let file = file();
        let mut of = sched(100, false);
        assert!(of.close(&file, 5000).is_none(), "nothing has begun");
        of.take(&file, &record(&switch(1000, 0, 0, 7)));
        assert!(of.close(&file, 1099).is_none());
        let spans = |of: &mut Intervals<Sched>, reached| {
            let mut spans = Vec::new();
            while let Some((answer, covered)) = of.close(&file, reached) {
                let missing = covered.missing.iter().any(|need| need.is_required);
                assert!(
                    !missing,
                    "that there was no switch in this interval does not mean that there are none"
                );
                spans.push((covered.from_ns, covered.to_ns, covered.events, answer.cpus[0].busy_ns));
            }
            spans
        };
        assert_eq!(spans(&mut of, 1350), [(1000, 1100, 1, 100), (1100, 1200, 0, 100), (1200, 1300, 0, 100)]);
        // One that was not expected any more counts when it comes.
        of.take(&file, &record(&switch(1250, 0, 7, 0)));
        assert_eq!(spans(&mut of, 1400), [(1300, 1400, 1, 0)]);
        assert!(of.finish(&file).is_none(), "all up to the last record is told");
    }

    #[test]
    fn a_leap_is_one_interval_and_the_last_time_ends_none() {
        let file = file();
        let leap = 1000 + 100 * 100_000 + 50;
        let records = [switch(1000, 0, 0, 7), switch(leap, 0, 7, 8), switch(u64::MAX, 0, 8, 0)];
        let answers = all(sched(100, false), &file, &records);
        let spans: Vec<_> = answers.iter().map(|(_, covered)| (covered.from_ns, covered.to_ns)).collect();
        assert_eq!(spans[..2], [(1000, 1100), (1100, leap - 50)]);
        assert_eq!(spans[2], (leap - 50, leap + 50));
        assert_eq!(spans.last().map(|(_, to)| *to), Some(u64::MAX));
        assert!(spans.len() < 6, "{spans:?}");
        let whole = all(sched(u64::MAX, false), &file, &records);
        assert_eq!(run_times(&answers), run_times(&whole));
    }

    /// For how long threads were without a CPU, by intervals that have ended and by those that go on.
    fn off_times(length: u64) -> (u64, u64, u64) {
        let file = file();
        let scope = Scope::default();
        let feed = Feed::new(&file, scope.clone(), OffCpu::new(scope));
        let answers = all(Intervals::new(feed, Topic::Offcpu, length, false), &file, &story());
        let (mut count, mut ended, mut open) = (0, 0, 0);
        for thread in answers.iter().flat_map(|(answer, _)| &answer.threads) {
            count += thread.times.count;
            ended += thread.times.total_ns;
            open += thread.open_ns;
        }
        (count, ended, open)
    }

    #[test]
    fn a_sleep_over_a_border_is_told_on_both_sides_with_its_parts() {
        let (count, ended, open) = off_times(u64::MAX);
        assert!(count > 100);
        for length in [10, 100, 3333] {
            let of_parts = off_times(length);
            assert_eq!((of_parts.0, of_parts.1 + of_parts.2), (count, ended + open), "{length}");
        }
    }

    /// Answers about the stacks of a crafted file whose records have these times.
    fn stacks(entries: &[Entry], times: &[u64], weight: &str, length: u64) -> Vec<(StacksAnswer, Covered)> {
        let file = crafted::file(entries, "1000 t f1\n2000 t f2\n9000 t end\n", "1 one\n2 two\n", "[local]");
        let Ok(weight) = weight.parse::<Weight>();
        let pick = Pick::of(&file, "ev", &weight).unwrap();
        let feed = Feed::new(&file, Scope::default(), Stacks::new(Scope::default(), pick));
        let mut of = Intervals::new(feed, Topic::Stacks, length, false);
        let (mut answers, mut times) = (Vec::new(), times.iter().copied());
        let mut records = file.reader().records().unwrap();
        while let (Some(record), Some(timestamp)) = (records.next_record().unwrap(), times.next()) {
            while let Some(answer) = of.close(&file, timestamp) {
                answers.push(answer);
            }
            of.take(&file, &Record { timestamp, ..record });
        }
        answers.extend(of.finish(&file));
        answers
    }

    #[test]
    fn a_stack_behind_a_border_is_that_of_its_event() {
        let entries = [
            ev(1, 0, 7, 0),
            stack(1, 0, &[0x1000, 0x2000]),
            ev(1, 0, 5, 0),
            stack(1, 0, &[0x2000]),
            ev(2, 0, 1, 0),
            ev(1, 0, 1, 0),
        ];
        // An interval is two milliseconds. The second event is right before a border, its stack behind it.
        let times = [1_000_000, 1_000_100, 2_999_999, 3_000_001, 3_500_000, 9_500_000];
        let counts = |answers: &[(StacksAnswer, Covered)]| -> Vec<(u64, u64)> {
            answers.iter().map(|(answer, _)| (answer.all.count, answer.without_stack.count)).collect()
        };
        let answers = stacks(&entries, &times, "count", 2_000_000);
        assert_eq!(counts(&answers), [(1, 0), (2, 1), (0, 0), (0, 0), (1, 1)]);
        let names = |at: usize| {
            answers[at].0.stacks.iter().flat_map(|of| &of.kernel).map(|name| &**name).collect::<Vec<_>>()
        };
        assert_eq!(names(1), ["f2"]);
        let whole = stacks(&entries, &times, "count", u64::MAX);
        assert_eq!(counts(&whole), [(4, 2)]);
    }

    #[test]
    fn the_time_up_to_the_next_event_is_told_when_that_comes() {
        let entries = [ev(1, 0, 7, 0), stack(1, 0, &[0x1000]), ev(1, 0, 5, 0), stack(1, 0, &[0x1000])];
        let times = [1_000_000, 1_000_100, 8_000_000, 8_000_100];
        let weights = |length| -> Vec<u64> {
            let answers = stacks(&entries, &times, "time", length);
            answers.iter().map(|(answer, _)| answer.all.weight).collect()
        };
        assert_eq!(weights(u64::MAX), [7_000_000]);
        assert_eq!(weights(2_000_000), [0, 0, 0, 7_000_000]);
    }
}
