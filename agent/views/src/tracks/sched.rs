//! Who runs on CPUs, and what threads do, as `analysis::answers::Schedule` tells it.

use super::{At, Part, Row, Sink, Thread, Threads, state};
use analysis::answers::{
    self, Context, Did, Does, Event, Had, Index, Known, Moment, Observer, Off, Schedule, Scheduled,
};

/// The state of all CPUs and threads.
#[derive(Debug)]
pub(super) struct Sched {
    has_switches: bool,
    schedule: Schedule,
}

/// Draws what it is told.
struct Drawing<'s>(&'s mut Sink);

impl Observer<Thread> for Drawing<'_> {
    fn did(&mut self, index: Index, thread: &mut answers::Thread<Thread>, did: &Did) {
        let Did { does, since, until, first, last, by, .. } = *did;
        // The idle thread is one of each CPU; of others perhaps nothing was seen but that they are there.
        let is_unseen = does == Does::Unknown && since == 0 && did.cpu.is_none();
        if thread.tid == 0 || is_unseen && thread.of.doing.is_unseen() || since == until && last == 0 {
            return;
        }
        let (key, arg) = match does {
            Does::Unknown => (state::UNKNOWN, 0),
            Does::Runs(cpu) => (state::RUNS, cpu.into()),
            Does::Woken => (state::WOKEN, by),
            Does::Off(Off::Preempted) => (state::PREEMPTED, 0),
            Does::Off(Off::Sleeping) => (state::SLEEPS, 0),
            Does::Off(Off::Blocked) => (state::BLOCKED, 0),
            Does::Off(Off::Stopped) => (state::STOPPED, 0),
            Does::Ended => return,
        };
        self.0.slice(Row::Thread(index as u32), Part { start: since, end: until, key, arg, first, last });
    }

    fn had(&mut self, had: &Had<'_>) {
        let Had { cpu, index, since, until, first, last, .. } = *had;
        if let Some(index) = index.filter(|_| until > since || last != 0) {
            let part = Part { start: since, end: until, key: index as u32, arg: 0, first, last };
            self.0.slice(Row::Cpu(cpu), part);
        }
    }
}

impl Scheduled for Thread {
    fn new(doing: answers::Doing) -> Self {
        Self { doing, ..Self::default() }
    }

    fn doing(&mut self) -> &mut answers::Doing {
        &mut self.doing
    }

    fn goes_on_as(&mut self, other: &mut Self) {
        (other.calls, other.graph) = (std::mem::take(&mut self.calls), std::mem::take(&mut self.graph));
        other.spans = std::mem::take(&mut self.spans);
    }
}

impl From<At> for Moment {
    fn from(At { time, cpu, event }: At) -> Self {
        Self { time, cpu, event }
    }
}

impl Sched {
    /// Of a recording that has switches. Without them, nothing is told.
    pub(super) fn new(has_switches: bool) -> Self {
        let mut schedule = Schedule::default();
        schedule.begins(0);
        Self { has_switches, schedule }
    }

    /// Whether it is told of anything.
    pub(super) fn has_switches(&self) -> bool {
        self.has_switches
    }

    /// Looks at any event: who is new, who ends, who has a CPU.
    pub(super) fn look(&mut self, at: At, event: &Event<'_>, threads: &mut Threads, sink: &mut Sink) {
        if !self.has_switches {
            return;
        }
        let by = match &event.known {
            Known::Wakeup(wakeup) if wakeup.tid != 0 => waker(at, event, threads),
            _ => 0,
        };
        self.schedule.look(at.into(), event, by, threads, &mut Drawing(sink));
    }

    /// Events of a CPU were lost after its last record: who ran there then is known, and nothing after that.
    pub(super) fn lost(&mut self, at: At, since: u64, threads: &mut Threads, sink: &mut Sink) {
        self.schedule.lost(at.into(), Some(since), threads, &mut Drawing(sink));
    }

    /// The recording ends.
    pub(super) fn finish(&mut self, end: u64, threads: &mut Threads, sink: &mut Sink) {
        if self.has_switches {
            self.schedule.finish(end, threads, &mut Drawing(sink));
        }
    }
}

/// Who wakes: a thread, whose numbers count from 1, an interrupt of a CPU, below 0, or 0 where it may be
/// both.
fn waker(at: At, event: &Event<'_>, threads: &mut Threads) -> i64 {
    if event.context == Context::Unknown {
        return 0;
    }
    let waker = event.tid.filter(|tid| event.context == Context::Thread && *tid != 0);
    let waker = waker.and_then(|tid| threads.find(tid, Thread::default));
    waker.map_or(-1 - i64::from(at.cpu), |(number, _)| number as i64 + 1)
}

#[cfg(test)]
mod tests {
    use super::state::{BLOCKED, PREEMPTED, RUNS, SLEEPS, UNKNOWN, WOKEN};
    use super::*;
    use analysis::answers::{Switch, Tid, Wakeup};

    const R: u64 = 0;
    const S: u64 = 1;
    const D: u64 = 2;

    #[derive(Default)]
    struct Story {
        threads: Threads,
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
            let event = Event::whole(Some(prev), Context::Thread, Known::Switch(switch));
            sched.look(at, &event, &mut self.threads, &mut self.sink);
        }

        fn wake(&mut self, sched: &mut Sched, (time, cpu): (u64, u32), by: Tid, tid: Tid) {
            let at = self.at(time, cpu);
            let wakeup = Wakeup { tid, comm: b"", is_new: false };
            let event = Event::whole(Some(by), Context::Thread, Known::Wakeup(wakeup));
            sched.look(at, &event, &mut self.threads, &mut self.sink);
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
        sched.finish(300, &mut story.threads, &mut story.sink);
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
        let at = story.at(40, 0);
        sched.lost(at, 20, &mut story.threads, &mut story.sink);
        story.switch(&mut sched, (50, 0), (7, S), 0);
        story.switch(&mut sched, (60, 1), (9, S), 8);
        sched.finish(70, &mut story.threads, &mut story.sink);
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
        sched.lost(at, 0, &mut story.threads, &mut story.sink);
        story.switch(&mut sched, (30, 1), (8, S), 9);
        sched.finish(40, &mut story.threads, &mut story.sink);
        let ninth = story.threads.find(9, Thread::default).unwrap().0 as u32;
        assert_eq!(story.told(|row| row == Row::Cpu(1)), [(ninth, 30, 40)]);
        assert_eq!(story.of(8), [(UNKNOWN, 0, 30), (SLEEPS, 30, 40)]);
    }

    #[test]
    fn one_that_loses_its_cpu_without_a_record_is_not_said_to_run() {
        let (mut story, mut sched) = (Story::default(), Sched::new(true));
        story.switch(&mut sched, (0, 0), (0, R), 7);
        story.switch(&mut sched, (30, 0), (8, S), 0);
        sched.finish(60, &mut story.threads, &mut story.sink);
        assert_eq!(story.of(7), [(UNKNOWN, 0, 60)]);
        assert_eq!(story.told(|row| row == Row::Cpu(0)), []);
    }

    #[test]
    fn one_that_is_woken_before_it_is_seen_to_run_has_run() {
        let (mut story, mut sched) = (Story::default(), Sched::new(true));
        story.switch(&mut sched, (0, 0), (0, R), 8);
        story.wake(&mut sched, (30, 0), 8, 7);
        story.switch(&mut sched, (50, 1), (7, R), 9);
        sched.finish(60, &mut story.threads, &mut story.sink);
        assert_eq!(story.of(7), [(RUNS, 0, 50), (PREEMPTED, 50, 60)]);
    }

    #[test]
    fn any_event_shows_who_has_a_cpu() {
        let (mut story, mut sched) = (Story::default(), Sched::new(true));
        story.switch(&mut sched, (0, 0), (0, R), 7);
        let mut seen = |story: &mut Story, time, tid, known| {
            let at = story.at(time, 0);
            let event = Event::whole(Some(tid), Context::Thread, known);
            sched.look(at, &event, &mut story.threads, &mut story.sink);
        };
        seen(&mut story, 20, 7, Known::Seen);
        seen(&mut story, 30, 8, Known::Seen);
        // It has another number from then on.
        seen(&mut story, 40, 9, Known::Takes { from: 8, to: 9 });
        let number = |story: &mut Story, tid| story.threads.find(tid, Thread::default).unwrap().0 as u32;
        let (seven, nine) = (number(&mut story, 7), number(&mut story, 9));
        sched.finish(50, &mut story.threads, &mut story.sink);
        let states = |story: &mut Story, of| story.told(|row| row == Row::Thread(of));
        assert_eq!(states(&mut story, seven), [(RUNS, 0, 20), (UNKNOWN, 20, 50)]);
        assert_eq!(states(&mut story, nine), [(RUNS, 40, 50)]);
        let cpu = story.told(|row| row == Row::Cpu(0));
        assert_eq!(cpu, [(seven, 0, 20), (nine - 1, 30, 40), (nine, 40, 50)]);
    }
}
