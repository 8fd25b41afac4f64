//! Who runs on CPUs, and what threads do: what `analysis::answers::Sched` adds up, as it happens.

use std::collections::BTreeMap;

use super::{At, Losses, Part, Row, Sink, Thread, Threads, state};
use analysis::answers::{Context, Event, Follows, Off, Switch, Tid, Wakeup, off};

/// What a thread does.
#[derive(Debug, Default)]
pub(super) struct Doing {
    /// One of [`state`].
    does: u32,
    since: u64,
    arg: i64,
    first: u64,
    /// How many losses there had been.
    losses: usize,
    /// An interval of which nothing is known, as long as its CPU may tell that the thread ran in it.
    unknown: Option<(u64, u64)>,
}

/// What is known of a CPU.
#[derive(Debug)]
struct Cpu {
    since: u64,
    /// The event that this began with.
    first: u64,
    /// Who runs; `None` if that is not known.
    current: Option<Tid>,
    /// The number of that thread.
    thread: u32,
}

/// The state of all CPUs.
#[derive(Debug)]
pub(super) struct Sched {
    has_switches: bool,
    cpus: BTreeMap<u32, Cpu>,
    /// The time of the first switch on any CPU.
    first_switch: Option<u64>,
}

impl Doing {
    /// It does something else from now on.
    fn turn(&mut self, row: Row, to: (u32, i64), at: At, losses: &Losses, sink: &mut Sink) {
        self.tell(row, at.time, at.event, losses, sink);
        (self.does, self.arg) = to;
        (self.since, self.first, self.losses) = (at.time, at.event, losses.count());
    }

    /// Tells what it did up to a time.
    fn tell(&mut self, row: Row, end: u64, last: u64, losses: &Losses, sink: &mut Sink) {
        self.flush(row, sink);
        let Self { does, since, arg, first, .. } = *self;
        // Of who runs, the CPU knows what was lost.
        let known = match does {
            state::RUNS | state::UNKNOWN => None,
            _ => losses.since(self.losses, since).map(|time| time.min(end)),
        };
        match does {
            state::ENDED => {}
            state::UNKNOWN => self.unknown = Some((since, end)),
            _ if known.is_some() => {
                let known = known.unwrap_or(end);
                if known > since {
                    sink.slice(row, Part { start: since, end: known, key: does, arg, first, last: 0 });
                }
                self.unknown = Some((known, end));
            }
            _ => sink.slice(row, Part { start: since, end, key: does, arg, first, last }),
        }
    }

    /// What it did up to now is not known.
    fn forget(&mut self) {
        if self.does != state::ENDED {
            self.does = state::UNKNOWN;
        }
    }

    fn flush(&mut self, row: Row, sink: &mut Sink) {
        if let Some((start, end)) = self.unknown.take().filter(|(start, end)| start < end) {
            sink.slice(row, Part { start, end, key: state::UNKNOWN, ..Part::default() });
        }
    }

    /// Its CPU says that it has run since then, whatever else is known of it.
    fn has_run(&mut self, row: Row, (since, first, cpu): (u64, u64, u32), losses: &Losses, sink: &mut Sink) {
        if self.does == state::RUNS {
            return;
        }
        let mut begin = since.max(self.since);
        match &mut self.unknown {
            // It was woken before it was seen to run.
            Some((start, end)) if since < *end => {
                *end = since.max(*start);
                begin = *end;
            }
            _ if begin > self.since => {
                self.does = state::UNKNOWN;
                self.tell(row, begin, first, losses, sink);
            }
            _ => {}
        }
        (self.does, self.since, self.arg, self.first) = (state::RUNS, begin, cpu.into(), first);
        self.losses = losses.count();
    }
}

impl Sched {
    /// Of a recording that has switches. Without them, nothing is told.
    pub(super) fn new(has_switches: bool) -> Self {
        Self { has_switches, cpus: BTreeMap::new(), first_switch: None }
    }

    /// A CPU goes from one thread to another.
    pub(super) fn switch(
        &mut self,
        at: At,
        (switch, follows): (&Switch<'_>, Follows),
        threads: &mut Threads,
        losses: &Losses,
        sink: &mut Sink,
    ) {
        for (tid, is_followed) in [(switch.prev, follows.current), (switch.next, follows.other)] {
            // Not any more, perhaps: it has another name.
            if let Some(thread) = threads.current(tid).filter(|_| !is_followed) {
                thread.of.doing.forget();
            }
        }
        let first_switch = *self.first_switch.get_or_insert(at.time);
        let number = find(threads, switch.prev, switch.prev_comm).map_or(0, |(number, _)| number);
        // Nobody else ran there before: there was no switch.
        let cpu = self.cpus.entry(at.cpu).or_insert_with(|| Cpu {
            since: first_switch,
            first: 0,
            current: (follows.current && follows.from_begin).then_some(switch.prev),
            thread: number,
        });
        let ran = cpu.current == Some(switch.prev) && follows.current;
        let ran = ran.then_some((cpu.since, cpu.first, at.cpu));
        if let Some(other) = cpu.current.filter(|other| ran.is_none() && *other != 0) {
            left_unseen(other, at.cpu, threads);
        }
        let prev = find(threads, switch.prev, switch.prev_comm);
        if let Some((number, doing)) = prev.filter(|_| switch.prev != 0 && follows.current) {
            let row = Row::Thread(number);
            match ran {
                Some(ran) => {
                    doing.has_run(row, ran, losses, sink);
                    cpu.thread = number;
                    cpu.tell(at.cpu, at.time, at.event, sink);
                }
                // It got the CPU without a record.
                None => doing.forget(),
            }
            let does = match off(switch.prev_state) {
                // It may run on another CPU.
                Some(_) if !follows.every_cpu => state::UNKNOWN,
                Some(Off::Preempted) => state::PREEMPTED,
                Some(Off::Sleeping) => state::SLEEPS,
                Some(Off::Blocked) => state::BLOCKED,
                Some(Off::Stopped) => state::STOPPED,
                None => state::ENDED,
            };
            doing.turn(row, (does, 0), at, losses, sink);
            if does == state::ENDED {
                doing.flush(row, sink);
            }
        }
        let next = find(threads, switch.next, switch.next_comm);
        (cpu.since, cpu.first, cpu.current) = (at.time, at.event, follows.other.then_some(switch.next));
        cpu.thread = next.as_ref().map_or(0, |(number, _)| *number);
        if let Some((number, doing)) = next.filter(|_| switch.next != 0 && follows.other) {
            // It left another CPU without a record.
            if doing.does == state::RUNS {
                doing.forget();
            }
            doing.turn(Row::Thread(number), (state::RUNS, at.cpu.into()), at, losses, sink);
        }
    }

    /// A thread is woken.
    pub(super) fn wake(
        &mut self,
        at: At,
        event: &Event<'_>,
        wakeup: &Wakeup<'_>,
        threads: &mut Threads,
        losses: &Losses,
        sink: &mut Sink,
    ) {
        let Follows { other, every_cpu, .. } = event.follows;
        if let Some(thread) = threads.current(wakeup.tid).filter(|_| !other) {
            thread.of.doing.forget();
        }
        if wakeup.tid == 0 || !self.has_switches || !other || !every_cpu {
            return;
        }
        // By a thread, whose numbers count from 1, or else by an interrupt of a CPU.
        let waker = event.tid.filter(|tid| event.context == Context::Thread && *tid != 0);
        let waker = waker.and_then(|tid| threads.find(tid, Thread::default));
        let by = waker.map_or(-1 - i64::from(at.cpu), |(number, _)| number as i64 + 1);
        let Some((number, doing)) = find(threads, wakeup.tid, wakeup.comm) else { return };
        let awake = matches!(doing.does, state::RUNS | state::WOKEN | state::PREEMPTED);
        // One that runs or was woken already is only told so again.
        if awake && (doing.does == state::RUNS || losses.since(doing.losses, 0).is_none()) {
            return;
        }
        doing.turn(Row::Thread(number), (state::WOKEN, by), at, losses, sink);
    }

    /// There is a new thread. Until it is woken for the first time, it is being made.
    pub(super) fn fork(&mut self, at: At, child: Tid, comm: &[u8], threads: &mut Threads, losses: &Losses) {
        let doing = Doing {
            does: if self.has_switches { state::SLEEPS } else { state::ENDED },
            since: at.time,
            first: at.event,
            losses: losses.count(),
            ..Doing::default()
        };
        let mut thread = Thread { doing, ..Thread::default() };
        thread.calls.born = Some(at.time);
        if let Some(thread) = threads.begin(child, thread) {
            thread.is_called(comm);
        }
    }

    /// Events of a CPU were lost after its last record: who ran there then is known, and nothing after that.
    pub(super) fn lost(
        &mut self,
        at: At,
        since: u64,
        threads: &mut Threads,
        losses: &Losses,
        sink: &mut Sink,
    ) {
        // Of a CPU that begins with a loss it is not known who ran there.
        let unknown = Cpu { since: at.time, first: 0, current: None, thread: 0 };
        let cpu = self.cpus.entry(at.cpu).or_insert(unknown);
        let since = since.max(cpu.since);
        if let Some(tid) = cpu.current.take().filter(|tid| *tid != 0) {
            cpu.tell(at.cpu, since, 0, sink);
            if let Some((number, thread)) = threads.find(tid, Thread::default)
                && number as u32 == cpu.thread
            {
                let (row, doing) = (Row::Thread(cpu.thread), &mut thread.of.doing);
                doing.has_run(row, (cpu.since, cpu.first, at.cpu), losses, sink);
                doing.turn(row, (state::UNKNOWN, 0), At { time: since, event: 0, ..at }, losses, sink);
            }
        }
        cpu.since = at.time;
    }

    /// The recording ends.
    pub(super) fn finish(&mut self, end: u64, threads: &mut Threads, losses: &Losses, sink: &mut Sink) {
        if !self.has_switches {
            return;
        }
        for (number, cpu) in &self.cpus {
            if cpu.current.is_some_and(|tid| tid != 0) {
                cpu.tell(*number, end, 0, sink);
            }
        }
        for (number, thread) in threads.iter_mut().enumerate() {
            let doing = &mut thread.of.doing;
            // Of which nothing was seen but that it is there.
            if thread.tid == 0
                || doing.does == state::UNKNOWN
                    && doing.since == 0
                    && doing.first == 0
                    && doing.unknown.is_none()
            {
                continue;
            }
            let row = Row::Thread(number as u32);
            doing.tell(row, end, 0, losses, sink);
            doing.flush(row, sink);
        }
    }
}

impl Cpu {
    /// Tells who ran there up to a time.
    fn tell(&self, number: u32, end: u64, last: u64, sink: &mut Sink) {
        let part = Part { start: self.since, end, key: self.thread, arg: 0, first: self.first, last };
        sink.slice(Row::Cpu(number), part);
    }
}

/// A thread that got a CPU has lost it without a record: since when is not known.
fn left_unseen(tid: Tid, cpu: u32, threads: &mut Threads) {
    if let Some(thread) = threads.current(tid) {
        let doing = &mut thread.of.doing;
        // It may have come to another CPU.
        if doing.does == state::RUNS && doing.arg == i64::from(cpu) {
            doing.does = state::UNKNOWN;
        }
    }
}

/// The thread that has an id now, by its number.
fn find<'t>(threads: &'t mut Threads, tid: Tid, name: &[u8]) -> Option<(u32, &'t mut Doing)> {
    let (number, thread) = threads.find(tid, Thread::default)?;
    thread.is_called(name);
    Some((number as u32, &mut thread.of.doing))
}

#[cfg(test)]
mod tests {
    use super::state::{BLOCKED, PREEMPTED, RUNS, SLEEPS, UNKNOWN, WOKEN};
    use super::*;

    const R: u64 = 0;
    const S: u64 = 1;
    const D: u64 = 2;

    #[derive(Default)]
    struct Story {
        threads: Threads,
        losses: Losses,
        sink: Sink,
        events: u64,
    }

    impl Story {
        fn at(&mut self, time: u64, cpu: u32) -> At {
            self.events += 1;
            At { time, cpu, event: self.events }
        }

        fn switch(
            &mut self,
            sched: &mut Sched,
            (time, cpu): (u64, u32),
            (prev, prev_state): (Tid, u64),
            next: Tid,
        ) {
            let at = self.at(time, cpu);
            let switch = Switch { prev, prev_comm: b"p", prev_state, next, next_comm: b"n" };
            sched.switch(at, (&switch, Follows::ALL), &mut self.threads, &self.losses, &mut self.sink);
        }

        fn wake(&mut self, sched: &mut Sched, (time, cpu): (u64, u32), by: Tid, tid: Tid) {
            let at = self.at(time, cpu);
            let wakeup = Wakeup { tid, comm: b"", is_new: false };
            let known = analysis::answers::Known::Wakeup(wakeup);
            let event = Event::whole(Some(by), Context::Thread, known);
            sched.wake(at, &event, &wakeup, &mut self.threads, &self.losses, &mut self.sink);
        }

        /// State, begin and end of what a thread did, and of who ran on a CPU.
        fn told(&mut self, row: impl Fn(Row) -> bool) -> Vec<(u32, u64, u64)> {
            let rows = &self.sink.rows;
            let slices = self.sink.slices.iter().filter(|slice| rows.get(slice.row).is_some_and(&row));
            let mut told: Vec<_> = slices.map(|slice| (slice.key, slice.start, slice.end)).collect();
            told.sort_unstable_by_key(|(_, start, _)| *start);
            told
        }

        fn of(&mut self, tid: Tid) -> Vec<(u32, u64, u64)> {
            let number = self.threads.find(tid, Thread::default).unwrap().0 as u32;
            self.told(|row| row == Row::Thread(number))
        }
    }

    #[test]
    fn threads_run_wait_and_sleep() {
        let (mut story, mut sched) = (Story::default(), Sched::new(true));
        story.switch(&mut sched, (110, 0), (7, R), 8);
        story.switch(&mut sched, (150, 0), (8, D), 7);
        story.switch(&mut sched, (180, 0), (7, S), 0);
        story.wake(&mut sched, (200, 1), 9, 8);
        story.switch(&mut sched, (205, 0), (0, R), 8);
        sched.finish(300, &mut story.threads, &story.losses, &mut story.sink);
        let seven = [(UNKNOWN, 0, 110), (PREEMPTED, 110, 150), (RUNS, 150, 180), (SLEEPS, 180, 300)];
        assert_eq!(
            story.of(7).iter().filter(|(_, start, end)| start < end).copied().collect::<Vec<_>>(),
            seven
        );
        let eight =
            [(UNKNOWN, 0, 110), (RUNS, 110, 150), (BLOCKED, 150, 200), (WOKEN, 200, 205), (RUNS, 205, 300)];
        assert_eq!(story.of(8), eight);
        let numbers = [7, 8].map(|tid| story.threads.find(tid, Thread::default).unwrap().0 as u32);
        let cpu = story.told(|row| row == Row::Cpu(0));
        let busy: Vec<_> = cpu.into_iter().filter(|(_, start, end)| start < end).collect();
        assert_eq!(busy, [(numbers[1], 110, 150), (numbers[0], 150, 180), (numbers[1], 205, 300)]);
        let waker = story.threads.find(9, Thread::default).unwrap().0 as i64 + 1;
        assert!(story.sink.slices.iter().any(|slice| slice.key == WOKEN && slice.arg == waker));
    }

    #[test]
    fn what_is_known_ends_where_events_were_lost() {
        let (mut story, mut sched) = (Story::default(), Sched::new(true));
        story.switch(&mut sched, (0, 0), (0, R), 7);
        story.switch(&mut sched, (10, 1), (8, S), 9);
        story.losses.times.push(20);
        let at = story.at(40, 0);
        sched.lost(at, 20, &mut story.threads, &story.losses, &mut story.sink);
        story.switch(&mut sched, (50, 0), (7, S), 0);
        story.switch(&mut sched, (60, 1), (9, S), 8);
        sched.finish(70, &mut story.threads, &story.losses, &mut story.sink);
        assert_eq!(story.of(7), [(RUNS, 0, 20), (UNKNOWN, 20, 50), (SLEEPS, 50, 70)]);
        assert_eq!(story.of(8)[1..], [(SLEEPS, 10, 20), (UNKNOWN, 20, 60), (RUNS, 60, 70)]);
        // What was lost elsewhere does not matter to who runs.
        assert_eq!(story.of(9)[1..], [(RUNS, 10, 60), (SLEEPS, 60, 70)]);
    }

    #[test]
    fn a_cpu_that_begins_with_a_loss_has_no_past() {
        let (mut story, mut sched) = (Story::default(), Sched::new(true));
        story.switch(&mut sched, (0, 0), (0, R), 7);
        let at = story.at(20, 1);
        sched.lost(at, 0, &mut story.threads, &story.losses, &mut story.sink);
        story.switch(&mut sched, (30, 1), (8, S), 9);
        sched.finish(40, &mut story.threads, &story.losses, &mut story.sink);
        let ninth = story.threads.find(9, Thread::default).unwrap().0 as u32;
        assert_eq!(story.told(|row| row == Row::Cpu(1)), [(ninth, 30, 40)]);
        assert_eq!(story.of(8), [(UNKNOWN, 0, 30), (SLEEPS, 30, 40)]);
    }

    #[test]
    fn one_that_loses_its_cpu_without_a_record_is_not_said_to_run() {
        let (mut story, mut sched) = (Story::default(), Sched::new(true));
        story.switch(&mut sched, (0, 0), (0, R), 7);
        story.switch(&mut sched, (30, 0), (8, S), 0);
        sched.finish(60, &mut story.threads, &story.losses, &mut story.sink);
        assert_eq!(story.of(7), [(UNKNOWN, 0, 60)]);
        assert_eq!(story.told(|row| row == Row::Cpu(0)), []);
    }

    #[test]
    fn one_that_is_woken_before_it_is_seen_to_run_has_run() {
        let (mut story, mut sched) = (Story::default(), Sched::new(true));
        story.switch(&mut sched, (0, 0), (0, R), 8);
        story.wake(&mut sched, (30, 0), 8, 7);
        story.switch(&mut sched, (50, 1), (7, R), 9);
        sched.finish(60, &mut story.threads, &story.losses, &mut story.sink);
        assert_eq!(story.of(7), [(RUNS, 0, 50), (PREEMPTED, 50, 60)]);
    }
}
