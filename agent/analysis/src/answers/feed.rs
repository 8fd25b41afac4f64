//! Hands the records of a file on to an analysis.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{
    Analysis, AnyRecord, At, Covered, Evidence, Followed, Frames, Gaps, KnownEvents, Lives, Names, Need,
    Scope, Topic, Unjoined,
    ids::Ids,
    pauses::Pauses,
    recorded::{Recorded, WasRecorded, is_foreign},
};
use ftrace_event::stacks::{Origin, place_of_frame};
use ftrace_event::{EventTable, FieldReader, Meaning, Printer};
use report::TraceFile;
use tracedat::ledger::{EventChoice, Pause};
use tracedat::reader::{End, Record, Source};

/// An analysis, and what its answer is about.
#[derive(Clone, Debug)]
pub struct Feed<A> {
    analysis: A,
    scope: Scope,
    known: KnownEvents,
    unjoined: Unjoined,
    lives: Lives,
    /// Events that say nothing but whose numbers are, by their numbers.
    of_lives: Ids,
    followed: Followed,
    recorded: Arc<Recorded>,
    covered: Covered,
    first: Option<u64>,
    last: u64,
    /// A record behind the end of what is asked was seen.
    is_past_end: bool,
    gaps: Gaps,
    pauses: Pauses,
    /// Which CPUs have records, as far as pauses ask for it.
    cpus: Vec<bool>,
    /// From which buffer each event is taken, by its number.
    buffers: Vec<Option<usize>>,
    stacks: Stacks,
    /// Whose stack may come next, by buffer and CPU.
    awaited: BTreeMap<(usize, u32), Vec<Awaited>>,
}

/// Whose stack may come next in a context.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    context: u64,
    /// What the analysis calls it.
    of: u64,
    /// When its event was recorded.
    since: u64,
}

/// How much later than its event a stack may be recorded, in nanoseconds, when a time is a border: what
/// interrupts the event's program is done by then.
const STACK_WITHIN: u64 = 1_000_000;

/// More CPUs than any kernel has (`NR_CPUS`).
const CPUS_MAX: usize = 1 << 16;

/// Which records are stacks, and which context records are of, by the events' numbers.
#[derive(Clone, Debug, Default)]
struct Stacks {
    /// `common_flags`, and whether it is a stack.
    events: Vec<(Option<FieldReader>, bool)>,
}

impl Stacks {
    fn of(events: &EventTable) -> Self {
        let mut found = Vec::new();
        for event in events.iter() {
            let id = usize::from(event.format().id);
            if found.len() <= id {
                found.resize(id + 1, (None, false));
            }
            let flags = event.typed("common_flags", Meaning::Number);
            found[id] = (flags, event.is_stack());
        }
        Self { events: found }
    }

    /// Where a record of an event was made, and whether it is a stack. `None` if the event is not described.
    fn origin(&self, id: u16, record: &Record<'_>) -> Option<(Origin, bool)> {
        let (flags, is_stack) = self.events.get(usize::from(id))?;
        let flags = flags.and_then(|flags| flags.number(record.data)).unwrap_or(0);
        Some((Origin { stream: (record.buffer, record.cpu), flags }, *is_stack))
    }
}

/// Which records are looked at, and not only counted.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// By the events' numbers.
    known: Vec<bool>,
    all: bool,
}

impl Wanted {
    /// Bytes that every record begins with, in which its event is.
    const HEAD: usize = 8;

    /// How much of a record is looked at.
    pub(super) fn bytes_of(&self, record: &Record<'_>) -> usize {
        let is_known = |id: u16| self.known.get(usize::from(id)).is_some_and(|known| *known);
        let is_wanted = self.all || record.event_id().is_some_and(is_known);
        if is_wanted { record.data.len() } else { Self::HEAD }
    }
}

impl<A: Analysis> Feed<A> {
    /// Hands on what is asked about of the records of a file.
    pub fn new<S>(file: &TraceFile<S>, scope: Scope, analysis: A) -> Self
    where
        S: Source,
    {
        let recorded = Arc::new(Recorded::of(file.reader()));
        let unjoined = recorded.unjoined(file.events(), A::TOPIC);
        let (known, of_lives) = Self::known(file, &unjoined, recorded.lacks_contexts);
        let followed = recorded.followed(file.events(), scope.buffer.as_deref());
        let mut feed = Self {
            analysis,
            known,
            lives: Lives::of(file.events(), &followed),
            followed,
            scope,
            of_lives,
            unjoined,
            recorded: Arc::clone(&recorded),
            covered: Covered::default(),
            first: None,
            last: 0,
            is_past_end: false,
            gaps: Gaps::default(),
            pauses: Pauses::default(),
            cpus: Vec::new(),
            buffers: Vec::new(),
            stacks: if A::WANTS_STACKS { Stacks::of(file.events()) } else { Stacks::default() },
            awaited: BTreeMap::new(),
        };
        feed.know_pauses(file, &recorded.pauses);
        feed
    }

    /// The events that the analysis uses, without those that say nothing where they cannot be joined, and the
    /// numbers of those that say nothing but whose numbers are.
    fn known<S: Source>(
        file: &TraceFile<S>,
        unjoined: &Unjoined,
        lacks_contexts: bool,
    ) -> (KnownEvents, Ids) {
        let events = file.events();
        let is_needed = |event: &Printer| {
            A::TOPIC
                .is_none_or(|topic| topic.needs().iter().any(|need| need.uses(event.system(), event.name())))
        };
        let is_wanted = |event: &Printer| {
            (is_needed(event) || Lives::uses(event.system(), event.name())) && !unjoined.leaves_out(event)
        };
        let known = KnownEvents::of(events, &file.call_names(), is_wanted);
        let of_lives = events.iter().filter(|event| !is_needed(event) && is_wanted(event));
        let of_lives = of_lives.map(|event| event.format().id).collect();
        let known = if A::SEES_ALL { known.with_seen(events) } else { known };
        (if lacks_contexts { known.without_contexts() } else { known }, of_lives)
    }

    /// Tells which pauses a recording has had by now, if it goes on: those from before, and perhaps more. A
    /// file says itself which it has.
    pub fn know_pauses<S: Source>(&mut self, file: &TraceFile<S>, pauses: &[Pause]) {
        let clock = file.reader().clock();
        self.pauses.know(pauses.iter().map(|pause| pause.corrected(clock)));
    }

    /// Takes which threads and CPUs are recorded, and which firings of events, as a ledger would have it, of
    /// a recording that goes on.
    pub fn know_choice<S: Source>(&mut self, file: &TraceFile<S>, only: &[String], choices: &[EventChoice]) {
        if self.recorded.is_choice(only, choices) {
            return;
        }
        let mut recorded = Recorded::of_choice(only, choices);
        (recorded.lacks_contexts, recorded.compat) = (self.recorded.lacks_contexts, self.recorded.compat);
        if recorded.chooses_as(&self.recorded) {
            self.recorded = Arc::new(recorded);
            return;
        }
        self.followed = recorded.followed(file.events(), self.scope.buffer.as_deref());
        self.lives.follow(file.events(), &self.followed);
        self.unjoined = recorded.unjoined(file.events(), A::TOPIC);
        (self.known, self.of_lives) = Self::known(file, &self.unjoined, recorded.lacks_contexts);
        self.recorded = Arc::new(recorded);
        // What goes on was begun under another choice.
        if self.first.is_some() {
            self.lose_all(self.last);
        }
    }

    /// Events of a CPU were lost before a time.
    fn lose(&mut self, at: At) {
        self.lives.lost();
        self.analysis.lost(at);
    }

    /// Nothing goes on over this time that is known.
    fn lose_all(&mut self, time: u64) {
        let has_records = |cpu: &u32| self.cpus[*cpu as usize];
        for cpu in (0..self.cpus.len() as u32).filter(has_records).collect::<Vec<_>>() {
            self.lose(At { time, cpu });
        }
    }

    /// Which records are to be looked at. Of others it is enough to take their first bytes.
    pub(super) fn wanted(&self) -> Wanted {
        let known = self.known.flags();
        Wanted { known, all: A::WANTS_STACKS }
    }

    /// Takes a record. Records come in the order of time.
    pub fn take<S: Source>(&mut self, file: &TraceFile<S>, record: &Record<'_>) {
        if self.scope.to.is_some_and(|to| record.timestamp > to) {
            self.is_past_end = true;
            return;
        }
        let is_asked = self.is_asked(file, record.buffer);
        // Records of damaged pages can have any time.
        let time = record.timestamp.max(self.last);
        self.pass_pauses(file, time);
        let cpu = record.cpu as usize;
        if self.cpus.get(cpu) != Some(&true) && cpu < CPUS_MAX {
            let len = self.cpus.len().max(cpu + 1);
            self.cpus.resize(len, false);
            self.cpus[cpu] = true;
        }
        if is_asked {
            if self.first.is_none() {
                self.first = Some(time);
                self.analysis.begins(time);
            }
            self.last = time;
        }
        let at = At { time, cpu: record.cpu };
        if let Some(missed) = record.missed
            && is_asked
        {
            self.count_loss(missed);
            self.gaps.open((record.buffer, record.cpu), time, &mut self.lives);
        }
        self.pass_gaps(file, at, record.buffer);
        let Some(id) = record.event_id() else { return };
        if A::WANTS_STACKS {
            self.take_stack(file, id, record);
        }
        if !is_asked {
            return;
        }
        self.analysis.count(at, id);
        self.followed.note(id, record);
        self.unjoined.note(id);
        let (is_known, is_picked) = (self.known.contains(id), self.analysis.picks(id));
        if !(is_known || is_picked) || !self.is_of_buffer(id, record.buffer) {
            return;
        }
        let mut is_used = false;
        if is_known {
            if let Some(mut event) = self.known.read(id, record.data) {
                event.ends_unseen = self.unjoined.has_number(id);
                let Self { lives, followed, analysis, .. } = self;
                lives.tell(&event, |mut event| {
                    followed.mark(&mut event);
                    analysis.look(at, &event);
                });
                is_used = !self.known.is_seen_only(id) && !self.of_lives.contains(id);
            } else {
                // It happened, and what it was is not known.
                self.covered.unread += 1;
                self.lose(at);
            }
        }
        if is_picked {
            let record = AnyRecord { id, events: file.events(), record, names: names(file) };
            is_used |= self.analysis.pick(at, &record);
        }
        if is_used {
            self.covered.events += 1;
            if A::WANTS_STACKS
                && let Some(of) = self.analysis.awaits_stack()
                && let Some((origin, _)) = self.stacks.origin(id, record)
            {
                let awaited = Awaited { context: origin.context(), of, since: time };
                self.awaited.entry(origin.stream).or_default().push(awaited);
            }
        }
    }

    /// Events of a CPU are missing between its last record and its next one. Where that is known before the
    /// next one comes, nothing that others do meanwhile is taken for all that happened.
    pub fn gap<S: Source>(&mut self, file: &TraceFile<S>, buffer: usize, cpu: u32) {
        if !self.is_asked(file, buffer) {
            return;
        }
        self.gaps.open((buffer, cpu), self.last, &mut self.lives);
        self.end_stacks_of(file, buffer, cpu);
        // Before the first record there is nothing that could be wrong.
        if self.first.is_some() {
            self.analysis.lost(At { time: self.last, cpu });
        }
    }

    /// The records of a CPU have ended. If events were lost behind them, what happens on it from there on is
    /// not known.
    pub fn end<S: Source>(&mut self, file: &TraceFile<S>, end: &End) {
        let Some(missed) = end.missed.filter(|_| self.is_asked(file, end.buffer)) else { return };
        self.count_loss(missed);
        self.gap(file, end.buffer, end.cpu);
    }

    fn count_loss(&mut self, missed: u64) {
        self.covered.losses += 1;
        self.covered.lost_events = self.covered.lost_events.saturating_add(missed);
        self.covered.losses_uncounted += u64::from(missed == 0);
    }

    /// Tells of the pauses that begin or end before a time: nothing goes on over these that is known.
    #[inline]
    fn pass_pauses<S: Source>(&mut self, file: &TraceFile<S>, until: u64) {
        while let Some(time) = self.pauses.pass(until) {
            self.end_stacks(file, |_| true);
            if self.first.is_none() {
                continue;
            }
            // Not before what was looked at.
            self.lose_all(time.max(self.last));
        }
    }

    /// Tells of the gaps before a record, of which it may end one.
    fn pass_gaps<S: Source>(&mut self, file: &TraceFile<S>, at: At, buffer: usize) {
        let Some(gap) = self.gaps.pass((buffer, at.cpu), &mut self.lives) else { return };
        if gap.has_ended {
            self.end_stacks_of(file, buffer, at.cpu);
        }
        self.analysis.lost(At { time: at.time, cpu: gap.cpu });
    }

    /// No more stacks come for what a CPU did so far.
    fn end_stacks_of<S: Source>(&mut self, file: &TraceFile<S>, buffer: usize, cpu: u32) {
        for awaited in self.awaited.remove(&(buffer, cpu)).unwrap_or_default() {
            self.analysis.stack_ended(awaited.of, &names(file));
        }
    }

    /// A page or chunk could not be read.
    pub fn damaged(&mut self) {
        self.covered.damaged += 1;
    }

    /// Whether a record was seen that is behind what is asked about: those that follow are not wanted.
    pub fn is_past_end(&self) -> bool {
        self.is_past_end
    }

    /// The time of the first record.
    pub fn first(&self) -> Option<u64> {
        self.first
    }

    /// The time of the last record; 0 if there was none. After [`Feed::restart`] it is not before that time.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Forgets what was counted, and counts from this time on. A record from before that comes later all the
    /// same is counted as one of this time. Which events the recording has is not forgotten.
    pub fn restart(&mut self, from: u64) {
        self.analysis.restart(from);
        self.scope.from = Some(from);
        self.last = self.last.max(from);
        self.covered = Covered::default();
    }

    /// What is answered, with the records that were taken.
    pub fn answer<S: Source>(mut self, file: &TraceFile<S>, topic: Topic) -> (A::Answer, Covered) {
        self.end_stacks(file, |_| true);
        // What comes behind the last record is not known.
        let end = self.scope.to.filter(|_| self.is_past_end).unwrap_or(self.last);
        self.pass_pauses(file, end);
        self.told(end, file, topic)
    }

    /// What is answered up to this time, from before which all records were taken, and none behind it. More
    /// may be taken afterwards; an event whose stack may still come then is not in the answer of those that
    /// are about stacks, but in the next one.
    pub fn answer_until<S: Source>(
        &mut self,
        end: u64,
        file: &TraceFile<S>,
        topic: Topic,
    ) -> (A::Answer, Covered) {
        self.end_stacks(file, |awaited| awaited.since.saturating_add(STACK_WITHIN) <= end);
        self.pass_pauses(file, end);
        self.clone().told(end, file, topic)
    }

    /// No more of these stacks will come.
    fn end_stacks<S: Source>(&mut self, file: &TraceFile<S>, is_over: impl Fn(&Awaited) -> bool) {
        let Self { awaited, analysis, .. } = self;
        let names = names(file);
        awaited.retain(|_, of_stream| {
            of_stream.retain(|awaited| {
                let is_over = is_over(awaited);
                if is_over {
                    analysis.stack_ended(awaited.of, &names);
                }
                !is_over
            });
            !of_stream.is_empty()
        });
    }

    fn told<S: Source>(self, end: u64, file: &TraceFile<S>, topic: Topic) -> (A::Answer, Covered) {
        let (missing, unseen) = self.lacks(file, topic);
        let foreign = self.foreign(file.events(), topic);
        let evidence = self.evidence(file.events(), topic);
        let mut of_all_calls = file.events().iter().filter(|event| event.system() == "raw_syscalls");
        let has_all_calls = of_all_calls.any(|event| self.is_seen(event));
        let Self { mut analysis, scope, mut covered, first, last, gaps, pauses, recorded, unjoined, .. } =
            self;
        covered.from_ns = first.unwrap_or(0).max(scope.from.unwrap_or(0));
        if let Some(gap) = gaps.first() {
            analysis.lost(At { time: last, cpu: gap.cpu });
        }
        covered.to_ns = end.max(covered.from_ns);
        (covered.pauses, covered.paused_ns) = pauses.within(covered.from_ns, covered.to_ns);
        (covered.missing, covered.unseen, covered.foreign) = (missing, unseen, foreign);
        covered.partly = recorded.partly(topic, &scope);
        covered.unjoined = unjoined.names().filter(|event| topic.uses(event)).cloned().collect();
        covered.only.clone_from(&recorded.only);
        let tells_interrupts = matches!(topic, Topic::Memory | Topic::Locks | Topic::Io | Topic::Offcpu);
        covered.lacks_contexts = recorded.lacks_contexts && tells_interrupts;
        analysis.rests_on(&evidence);
        covered.compat_unmarked = Some(false);
        if topic.needs().iter().any(Need::is_of_calls) {
            // They were counted for all of the recording.
            let is_known = recorded.compat.missing == Some(0) || scope.is_all();
            covered.compat_calls = recorded.compat.missing.filter(|_| is_known);
            covered.compat_calls_of_all = recorded.compat.missing;
            covered.compat_unmarked = recorded.compat.are_unmarked(has_all_calls, file.syscalls());
        }
        (analysis.answer(end, &names(file)), covered)
    }

    /// What of the needs of an analysis is not met by the records so far: as such events were not recorded,
    /// and as far as it is not known whether they are.
    pub fn lacks<S: Source>(&self, file: &TraceFile<S>, topic: Topic) -> (Vec<Need>, Vec<Need>) {
        let events = file.events();
        let (mut missing, mut unseen) = (Vec::new(), Vec::new());
        for need in topic.needs() {
            let is_told = |other: &Need| need.is_part_of(other);
            if self.has_seen(events, need)
                || self.analysis.does_without(need)
                || missing.iter().chain(&unseen).any(is_told)
            {
                continue;
            }
            match self.recorded.meets(events, &self.known, need, self.scope.buffer.as_deref()) {
                WasRecorded::Yes => {}
                WasRecorded::No => missing.push(*need),
                WasRecorded::Perhaps => unseen.push(*need),
            }
        }
        (missing, unseen)
    }

    /// The events that the answer is made of: those that there were, and those that were recorded and would
    /// have been used.
    fn evidence(&self, events: &EventTable, topic: Topic) -> Evidence {
        let name = |event: &Printer| format!("{}:{}", event.system(), event.name());
        let seen = events.iter().filter(|event| self.is_seen(event)).map(name);
        let recorded = self.recorded.events(self.scope.buffer.as_deref());
        let recorded = recorded.filter(|event| !is_foreign(events, &self.known, event));
        let left_out: Vec<String> =
            events.iter().filter(|event| self.unjoined.leaves_out(event)).map(name).collect();
        let is_used = |event: &String| topic.uses(event) && !left_out.contains(event);
        let described = events.iter().map(name).filter(|event| topic.uses(event));
        Evidence::of(seen.chain(recorded.cloned()).filter(is_used), described)
    }

    /// The events that an analysis would use if their fields were the kernel's, or if they were of the
    /// kernel's system: imports do not understand every text.
    fn foreign(&self, events: &EventTable, topic: Topic) -> Vec<String> {
        let would_be_used = |event: &&Printer| {
            let (system, name) = (event.system(), event.name());
            let is_foreign = self.known.is_foreign(event.format().id);
            let mut needs = topic.needs().iter();
            needs.any(|need| need.uses(system, name) && is_foreign || need.is_like(system, name))
        };
        events
            .iter()
            .filter(would_be_used)
            .map(|event| format!("{}:{}", event.system(), event.name()))
            .collect()
    }

    /// Whether there was an event that is needed.
    fn has_seen(&self, events: &EventTable, need: &Need) -> bool {
        let mut seen = events.iter().filter(|event| self.is_seen(event));
        seen.any(|event| need.is_met_by(event.system(), event.name()))
    }

    /// Whether there was a record of an event that was used.
    fn is_seen(&self, event: &Printer) -> bool {
        self.buffers.get(usize::from(event.format().id)).is_some_and(Option::is_some)
    }

    /// Gives the frames of a stack to whom they belong. Any other record ends what its context waited for.
    fn take_stack<S: Source>(&mut self, file: &TraceFile<S>, id: u16, record: &Record<'_>) {
        let Some((origin, is_stack)) = self.stacks.origin(id, record) else { return };
        let Some(awaited) = self.awaited.get_mut(&origin.stream) else { return };
        let found = awaited.iter().position(|awaited| awaited.context == origin.context());
        let Some(index) = found else { return };
        if !is_stack {
            let Awaited { of, .. } = awaited.swap_remove(index);
            self.analysis.stack_ended(of, &names(file));
        } else if let Some(printer) = file.events().get(id) {
            let Awaited { of, .. } = awaited[index];
            let is_kernel = printer.is_kernel_stack();
            if let Some(frames) = printer.frames(record.data) {
                let process = printer.process(record.data);
                let mut addresses = frames.map(|address| match process {
                    Some(_) => place_of_frame(file.symbols(), process, address),
                    None => address,
                });
                self.analysis.stack(of, Frames { is_kernel, addresses: &mut addresses });
            }
        }
    }

    /// Whether a buffer is asked about.
    fn is_asked<S: Source>(&self, file: &TraceFile<S>, buffer: usize) -> bool {
        let Some(wanted) = &self.scope.buffer else { return true };
        file.reader().buffers().get(buffer).is_some_and(|buffer| buffer.name == *wanted)
    }

    /// Whether an event is taken from this buffer.
    fn is_of_buffer(&mut self, id: u16, buffer: usize) -> bool {
        let id = usize::from(id);
        if self.buffers.len() <= id {
            self.buffers.resize(id + 1, None);
        }
        let is_its = *self.buffers[id].get_or_insert(buffer) == buffer;
        self.covered.of_other_buffers += u64::from(!is_its);
        is_its
    }
}

fn names<S: Source>(file: &TraceFile<S>) -> Names<'_> {
    Names {
        symbols: file.symbols(),
        threads: Some(&file.reader().metadata().cmdlines),
        events: Some(file.events()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

    use super::super::{Sched, Summary, Tid};
    use super::*;
    use ftrace_event::Endian;
    use ftrace_event::syscalls::CallNames;
    use std::io::Cursor;
    use tracedat::{Buffer, Compression, EventSystem, Section, Setup, Writer, layout};

    const SWITCH: u16 = 1;
    const FORK: u16 = 2;
    const NEW: u16 = 3;
    const WOKEN: u16 = 4;

    fn format(name: &str, id: u16, fields: &[(&str, usize)]) -> String {
        let common =
            [("unsigned short common_type", 2), ("unsigned short common_flags", 2), ("int common_pid", 4)];
        let mut offset = 0;
        let mut lines = |fields: &[(&str, usize)]| -> String {
            let line = |(field, size): &(&str, usize)| {
                offset += size;
                format!("\tfield:{field};\toffset:{};\tsize:{size};\tsigned:1;\n", offset - size)
            };
            fields.iter().map(line).collect()
        };
        let (common, own) = (lines(&common), lines(fields));
        format!("name: {name}\nID: {id}\nformat:\n{common}\n{own}\nprint fmt: \"\"\n")
    }

    /// A file without records.
    fn file() -> TraceFile<Vec<u8>> {
        let thread = [("int pid", 4), ("char comm[16]", 16)];
        let switch = [("int prev_pid", 4), ("int prev_state", 4), ("int next_pid", 4)];
        let switch = format("sched_switch", SWITCH, &switch);
        let fork = format("sched_process_fork", FORK, &[("int child_pid", 4)]);
        let woken = format("sched_wakeup_new", WOKEN, &thread);
        let new = format("task_newtask", NEW, &[("int pid", 4), ("int clone_flags", 4)]);
        let (endian, compression) = (Endian::Little, Compression::None);
        let setup = Setup { endian, page_size: 4096, compression };
        let mut writer = Writer::create(Cursor::new(Vec::new()), setup).unwrap();
        let header_page = layout::header_page_text(4096);
        writer.section(Section::header_info(endian, &header_page, "").unwrap()).unwrap();
        let systems = [
            EventSystem { name: "sched", formats: &[&switch, &fork, &woken] },
            EventSystem { name: "task", formats: &[&new] },
        ];
        writer.section(Section::event_formats(endian, &systems).unwrap()).unwrap();
        let buffer = Buffer { name: "", clock: "mono", page_size: 4096 };
        writer.begin_buffer(buffer).unwrap().finish().unwrap();
        TraceFile::open("feed", writer.finish().unwrap().into_inner()).unwrap()
    }

    fn take<A: Analysis>(
        feed: &mut Feed<A>,
        file: &TraceFile<Vec<u8>>,
        (timestamp, cpu, missed): (u64, u32, Option<u64>),
        (id, tid): (u16, Tid),
        fields: &[u8],
    ) {
        let data = [&id.to_le_bytes()[..], &[0; 2], &tid.to_le_bytes(), fields].concat();
        let endian = Endian::Little;
        feed.take(file, &Record { reader: 0, buffer: 0, cpu, timestamp, missed, data: &data, endian });
    }

    fn thread(tid: Tid, name: u8) -> Vec<u8> {
        let mut fields = tid.to_le_bytes().to_vec();
        fields.push(name);
        fields.resize(20, 0);
        fields
    }

    #[test]
    fn a_thread_is_started_once_while_a_cpu_is_silent() {
        let file = file();
        let mut feed =
            Feed::new(&file, Scope::default(), Summary::new(Scope::default(), CallNames::default()));
        feed.end(&file, &End { reader: 0, buffer: 0, cpu: 1, missed: Some(5) });
        let mut time = 1000;
        for tid in 10..20 {
            for id in [NEW, FORK, WOKEN] {
                time += 10;
                take(&mut feed, &file, (time, 0, None), (id, 1), &thread(tid, b'a'));
            }
        }
        let (answer, covered) = feed.answer(&file, Topic::Summary);
        assert_eq!((answer.started, covered.losses, covered.lost_events), (Some(10), 1, 5));
    }

    #[test]
    fn a_record_that_cannot_be_read_may_be_of_the_life_of_any_thread() {
        let file = file();
        let threads = |is_read: bool| {
            let mut feed = Feed::new(&file, Scope::default(), Sched::new(Scope::default()));
            let switch =
                |prev: u32, state: u32, next: u32| [prev, state, next].map(u32::to_le_bytes).concat();
            take(&mut feed, &file, (1000, 0, None), (WOKEN, 1), &thread(7, b'a'));
            take(&mut feed, &file, (1010, 0, None), (SWITCH, 1), &switch(1, 1, 7));
            let unread = switch(7, 1, 1);
            let len = if is_read { unread.len() } else { 4 };
            take(&mut feed, &file, (1020, 0, None), (SWITCH, 7), &unread[..len]);
            let losses = feed.lives.losses();
            (losses, feed.answer(&file, Topic::Sched).1.unread)
        };
        assert_eq!((threads(true), threads(false)), ((0, 0), (1, 1)));
    }
}
