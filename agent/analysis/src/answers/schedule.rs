//! Who has which CPU, and what threads do: the one model of it, for tables and for pictures.
//!
//! A thread is runnable from the moment when it is woken (`sched_waking` or `sched_wakeup`, whichever comes
//! first) or loses its CPU while it could go on, and waits until `sched_switch` gives it one. Where events
//! were lost between the ends of an interval, what happened in it is not known. Who runs on a CPU is told by
//! events of that CPU alone, so that for the time that threads run losses elsewhere do not matter.
//!
//! Any event shows that its thread has the CPU. Where that is another thread than the one that got the CPU
//! last, a switch is missing: the former thread ran up to the last event that shows it there, and what both
//! did from then on is unknown. So no CPU has two threads at a time, and no thread two CPUs.
//!
//! Of threads that the recording does not follow, nothing is known from one record to the next, and a CPU
//! that goes to one of them is unknown until the next switch.
//!
//! An analysis keeps [`Doing`] for each thread, and gets each interval at its end.

use std::collections::BTreeMap;

use super::{
    Event, Follows, Known, Switch, Tid, Wakeup,
    state::{self, Off},
    threads::{Index, Thread, Threads},
};

/// Most losses whose times are kept: 8 MiB. After that, what began before a loss is not known.
const MOST_LOSSES: usize = 1 << 20;

/// When and where a record was made.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Its time.
    pub time: u64,
    /// Its CPU.
    pub cpu: u32,
    /// What it is called by who counts records; 0 for nobody.
    pub event: u64,
}

/// What a thread does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Does {
    /// What it does is not known.
    #[default]
    Unknown,
    /// It has this CPU.
    Runs(u32),
    /// It was woken, and waits for a CPU.
    Woken,
    /// It has no CPU, for this reason, and was not woken.
    Off(Off),
    /// It will not run again.
    Ended,
}

/// What a thread does now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Doing {
    does: Does,
    since: u64,
    /// The event that this began with; 0 for none.
    first: u64,
    /// Its waker, as given to [`Schedule::look`].
    by: i64,
    /// How many losses there had been.
    losses: u64,
    /// How many losses there had been when a record named it: by its id alone it may be another thread since.
    named: u64,
    /// It was woken while it had a CPU, when it was perhaps about to sleep, and by whom.
    woken_early: Option<i64>,
    /// A time before that of which nothing is known, as long as its CPU may tell that the thread ran in it.
    unknown: Option<(u64, u64, Option<u32>)>,
}

impl Doing {
    /// What it does.
    pub fn does(&self) -> Does {
        self.does
    }

    /// Whether nothing was seen of what it does.
    pub fn is_unseen(&self) -> bool {
        self.does == Does::Unknown && self.first == 0
    }

    /// Since when.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// From a time on.
    fn from(does: Does, at: Moment, losses: u64) -> Self {
        Self { does, since: at.time, first: at.event, losses, named: losses, ..Self::default() }
    }
}

/// A time in which a thread did one thing.
#[derive(Clone, Copy, Debug)]
pub struct Did {
    /// What.
    pub does: Does,
    /// From then on.
    pub since: u64,
    /// Until then.
    pub until: u64,
    /// The CPU on which it ended; `None` for the end of the recording.
    pub cpu: Option<u32>,
    /// The events that it began and ended with; 0 for none.
    pub first: u64,
    /// The other one.
    pub last: u64,
    /// Its waker, as given to [`Schedule::look`].
    pub by: i64,
    /// What it does from then on.
    pub next: Does,
}

/// A time in which a CPU was one thread's, or nobody knows whose.
#[derive(Clone, Copy, Debug)]
pub struct Had<'n> {
    /// The CPU.
    pub cpu: u32,
    /// Whose it was; `None` if that is not known.
    pub tid: Option<Tid>,
    /// The thread with that id; `None` for idle threads.
    pub index: Option<Index>,
    /// Its name, where that is known.
    pub name: &'n [u8],
    /// From then on.
    pub since: u64,
    /// Until then.
    pub until: u64,
    /// The events that it began and ended with; 0 for none.
    pub first: u64,
    /// The other one.
    pub last: u64,
}

impl Had<'_> {
    fn unknown(cpu: u32, since: u64, until: u64) -> Self {
        Self { cpu, tid: None, index: None, name: b"", since, until, first: 0, last: 0 }
    }
}

/// What is kept of a thread by who wants to hear of it.
pub trait Scheduled {
    /// One that does this.
    fn new(doing: Doing) -> Self;

    /// What it does.
    fn doing(&mut self) -> &mut Doing;

    /// A thread goes on under another id: what it is in the middle of goes on there.
    fn goes_on_as(&mut self, _other: &mut Self) {}
}

/// Who is told of what threads and CPUs did.
pub trait Observer<T> {
    /// A thread did this. Times of a thread come one after the other.
    fn did(&mut self, index: Index, thread: &mut Thread<T>, did: &Did);

    /// A thread does something else from now on.
    fn turns(&mut self, _index: Index, _thread: &mut Thread<T>, _at: Moment) {}

    /// A CPU was somebody's. Times of a CPU do not overlap.
    fn had(&mut self, had: &Had<'_>);
}

/// Where events were lost.
#[derive(Clone, Debug, Default)]
struct Losses {
    count: u64,
    /// For each, the time up to which everything is known; none if that is not told.
    times: Vec<u64>,
}

impl Losses {
    /// Up to when is known what went on, of what began when there had been so many; `None` if no events were
    /// lost since.
    fn since(&self, count: u64, begin: u64) -> Option<u64> {
        if count == self.count {
            return None;
        }
        let time = usize::try_from(count).ok().and_then(|count| self.times.get(count));
        Some(time.map_or(begin, |time| (*time).max(begin)))
    }
}

/// What is known of a CPU.
#[derive(Clone, Copy, Debug)]
struct Cpu {
    since: u64,
    /// The event that this began with.
    first: u64,
    /// Who runs there; `None` if that is not known.
    current: Option<Tid>,
    /// The time of the last event that shows this.
    seen: u64,
    /// A time in which it was perhaps still that of the thread that had it before: of which another thread
    /// was seen next, under an id that nobody had. It may be the same one.
    held: Option<(u64, u64, Tid)>,
}

impl Cpu {
    fn new(since: u64, current: Option<Tid>) -> Self {
        Self { since, first: 0, current, seen: since, held: None }
    }
}

/// The state of all CPUs and threads.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    /// When the recording begins.
    begin: Option<u64>,
    /// The time of the first switch on any CPU. Whether there were switches before is not known: a recorder
    /// begins with one event after the other.
    first_switch: Option<u64>,
    cpus: BTreeMap<u32, Cpu>,
    losses: Losses,
    /// Threads that are not followed are threads all the same, of which nothing is known.
    shows_others: bool,
}

/// All that takes part while an event is looked at.
struct Scene<'s, T, O> {
    schedule: &'s mut Schedule,
    threads: &'s mut Threads<T>,
    told: &'s mut O,
}

impl Schedule {
    /// Of a recording of which nothing was seen yet. `shows_others`: threads are threads also if the
    /// recording does not follow them.
    pub fn new(shows_others: bool) -> Self {
        Self { shows_others, ..Self::default() }
    }

    /// The recording begins then, if it has not before.
    pub fn begins(&mut self, time: u64) {
        self.begin.get_or_insert(time);
    }

    /// What a thread does of which nothing was seen.
    pub fn unseen(&self, time: u64) -> Doing {
        let losses = self.losses.count;
        Doing { since: self.begin.unwrap_or(time), losses, named: losses, ..Doing::default() }
    }

    /// Looks at an event. `by` is who wakes, if it is a wakeup.
    pub fn look<T: Scheduled>(
        &mut self,
        at: Moment,
        event: &Event<'_>,
        by: i64,
        threads: &mut Threads<T>,
        told: &mut impl Observer<T>,
    ) {
        self.begins(at.time);
        let mut scene = Scene { schedule: self, threads, told };
        match &event.known {
            Known::Switch(switch) => scene.switch(at, switch, event.follows),
            Known::Begins { child, comm, is_seen, .. } => {
                scene.begin(at, *child, comm, *is_seen, event.follows);
            }
            Known::Ends { tid } => scene.end(at, *tid),
            Known::Takes { from, to } => scene.take(at, *from, *to),
            known => {
                if let Some(tid) = event.tid {
                    scene.see(at, tid, event.follows.current);
                }
                match known {
                    Known::Wakeup(wakeup) if wakeup.tid != 0 => match event.follows {
                        Follows { other: true, every_cpu: true, .. } => scene.wake(at, wakeup, by),
                        Follows { other: true, .. } => {}
                        Follows { .. } => scene.show_other(at, wakeup.tid, wakeup.comm),
                    },
                    Known::Renamed { tid, comm: Some(comm), .. } if event.follows.other => {
                        scene.is_called(at, *tid, comm);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Events of a CPU are missing before a time. `since` is that of the last record before, if it is known.
    pub fn lost<T: Scheduled>(
        &mut self,
        at: Moment,
        since: Option<u64>,
        threads: &mut Threads<T>,
        told: &mut impl Observer<T>,
    ) {
        self.begins(at.time);
        self.losses.count += 1;
        if let Some(since) = since
            && self.losses.times.len() < MOST_LOSSES
        {
            self.losses.times.push(since);
        }
        let first = self.first_switch.unwrap_or(at.time);
        let cpu = self.cpus.entry(at.cpu).or_insert_with(|| Cpu::new(first, None));
        cpu.seen = since.unwrap_or(0).max(cpu.seen).min(at.time.max(cpu.since));
        Scene { schedule: self, threads, told }.empty(at.cpu);
    }

    /// The recording ends: what goes on is told up to there.
    pub fn finish<T: Scheduled>(&self, end: u64, threads: &mut Threads<T>, told: &mut impl Observer<T>) {
        for (number, cpu) in &self.cpus {
            let tid = cpu.current;
            let current = tid.filter(|tid| *tid != 0).and_then(|tid| threads.current_index(tid));
            let name = current.and_then(|index| threads.get(index)).map_or(&b""[..], |thread| &thread.name);
            let Cpu { since, first, held, .. } = *cpu;
            if let Some((since, until, _)) = held {
                told.had(&Had::unknown(*number, since, until));
            }
            told.had(&Had { cpu: *number, tid, index: current, name, since, until: end, first, last: 0 });
        }
        for (index, thread) in threads.iter_mut().enumerate() {
            let end = Moment { time: end, cpu: 0, event: 0 };
            let next = thread.of.doing().does;
            tell(&self.losses, (index, thread), next, (end, None), told);
            flush(index, thread, told);
        }
    }

    /// The losses so far.
    fn losses(&self) -> u64 {
        self.losses.count
    }
}

/// Tells what a thread did up to a time. What is not known is told later.
fn tell<T: Scheduled>(
    losses: &Losses,
    (index, thread): (Index, &mut Thread<T>),
    next: Does,
    (at, cpu): (Moment, Option<u32>),
    told: &mut impl Observer<T>,
) {
    flush(index, thread, told);
    let Doing { does, since, first, by, losses: known, .. } = *thread.of.doing();
    let until = at.time.max(since);
    let known = match does {
        // Of who runs, its CPU knows what was lost.
        Does::Runs(_) | Does::Unknown => None,
        _ => losses.since(known, since).map(|time| time.min(until)),
    };
    let did = Did { does, since, until, cpu, first, last: at.event, by, next };
    match (does, known) {
        (Does::Ended, _) => {}
        (Does::Unknown, _) => thread.of.doing().unknown = Some((since, until, cpu)),
        (_, Some(known)) => {
            if known > since {
                told.did(index, thread, &Did { until: known, last: 0, next: Does::Unknown, ..did });
            }
            thread.of.doing().unknown = Some((known, until, cpu));
        }
        _ => told.did(index, thread, &did),
    }
}

/// Tells of the time of which nothing is known.
fn flush<T: Scheduled>(index: Index, thread: &mut Thread<T>, told: &mut impl Observer<T>) {
    let doing = thread.of.doing();
    let next = doing.does;
    if let Some((since, until, cpu)) = doing.unknown.take()
        && since < until
    {
        let did = Did { does: Does::Unknown, since, until, cpu, first: 0, last: 0, by: 0, next };
        told.did(index, thread, &did);
    }
}

impl<T: Scheduled, O: Observer<T>> Scene<'_, T, O> {
    /// The thread that has an id, of which perhaps nothing was seen.
    fn find(&mut self, at: Moment, tid: Tid) -> Option<(Index, &mut Thread<T>)> {
        let unseen = self.schedule.unseen(at.time);
        self.threads.find(tid, || T::new(unseen))
    }

    fn is_called(&mut self, at: Moment, tid: Tid, name: &[u8]) {
        let losses = self.schedule.losses();
        if tid != 0
            && let Some((_, thread)) = self.find(at, tid)
        {
            thread.is_called(name);
            thread.of.doing().named = losses;
        }
    }

    /// A thread does something else from now on.
    fn turn(&mut self, at: Moment, index: Index, does: Does, by: i64) {
        let losses = self.schedule.losses();
        let Some(thread) = self.threads.get_mut(index) else { return };
        tell(&self.schedule.losses, (index, thread), does, (at, Some(at.cpu)), self.told);
        let doing = thread.of.doing();
        let time = at.time.max(doing.since);
        (doing.does, doing.since, doing.first, doing.by, doing.losses) = (does, time, at.event, by, losses);
        self.told.turns(index, thread, at);
    }

    /// Nothing is known any more of who has a CPU. Who had it ran up to the last event that shows it there.
    fn empty(&mut self, number: u32) {
        let Some(cpu) = self.schedule.cpus.get_mut(&number) else { return };
        let Some(tid) = cpu.current.take() else { return };
        let had = Cpu { current: Some(tid), ..*cpu };
        cpu.since = cpu.seen.max(cpu.since);
        let at = Moment { time: cpu.since, cpu: number, event: 0 };
        cpu.first = 0;
        self.had(number, had, at, b"");
        if let Some(index) = self.threads.current_index(tid)
            && tid != 0
            && self.threads.get_mut(index).is_some_and(|thread| thread.of.doing().does == Does::Runs(number))
        {
            self.turn(at, index, Does::Unknown, 0);
            if let Some(thread) = self.threads.get_mut(index) {
                thread.of.doing().first = had.first;
            }
        }
    }

    /// Tells whose a CPU was up to a time.
    fn had(&mut self, number: u32, cpu: Cpu, at: Moment, name: &[u8]) {
        let Cpu { since, first, current, .. } = cpu;
        let index = current.filter(|tid| *tid != 0).and_then(|tid| self.threads.current_index(tid));
        let own = index.and_then(|index| self.threads.get(index)).map_or(&b""[..], |thread| &thread.name);
        let name = if name.is_empty() { own } else { name };
        let until = at.time.max(since);
        let last = at.event;
        self.told.had(&Had { cpu: number, tid: current, index, name, since, until, first, last });
    }

    /// A thread has a CPU: any other that was thought to have it has not.
    fn vacate(&mut self, number: u32, tid: Tid) {
        if self.schedule.cpus.get(&number).is_some_and(|cpu| cpu.current.is_some_and(|other| other != tid)) {
            self.empty(number);
        }
    }

    /// What a thread did up to now is not known.
    fn forget(&mut self, index: Index) {
        let Some(thread) = self.threads.get_mut(index) else { return };
        if let Does::Runs(number) = thread.of.doing().does {
            let tid = thread.tid;
            if self.schedule.cpus.get(&number).is_some_and(|cpu| cpu.current == Some(tid)) {
                self.empty(number);
            }
        }
        let Some(thread) = self.threads.get_mut(index) else { return };
        let doing = thread.of.doing();
        doing.woken_early = None;
        if doing.does != Does::Ended {
            doing.does = Does::Unknown;
        }
    }

    /// A thread is there that the recording does not follow; perhaps not any more, as it has another name.
    fn show_other(&mut self, at: Moment, tid: Tid, name: &[u8]) {
        if tid == 0 {
            return;
        }
        if self.schedule.shows_others {
            self.find(at, tid);
        }
        let Some(index) = self.threads.current_index(tid) else { return };
        self.forget(index);
        if let Some(thread) = self.threads.get_mut(index) {
            thread.is_called(name);
        }
    }

    /// An event shows that a thread has the CPU.
    fn see(&mut self, at: Moment, tid: Tid, is_followed: bool) {
        // Before the first switch there is nobody else. An event of the same time may come from another
        // buffer, whose order is not known.
        let Some(cpu) = self.schedule.cpus.get_mut(&at.cpu).filter(|cpu| at.time > cpu.since) else {
            return;
        };
        let before = cpu.current.filter(|tid| *tid != 0);
        if cpu.current == Some(tid) && tid != 0 {
            cpu.seen = at.time;
        }
        if cpu.current == Some(tid) {
            return;
        }
        // 0 is also the thread of events whose thread is not known.
        if tid == 0 {
            return;
        }
        self.vacate(at.cpu, tid);
        let mut is_followed = is_followed;
        if let Some(index) = self.threads.current_index(tid) {
            self.forget(index);
            let losses = self.schedule.losses();
            let named = self.threads.get_mut(index).map(|thread| thread.of.doing().named);
            is_followed &= named == Some(losses);
        }
        let Some(cpu) = self.schedule.cpus.get_mut(&at.cpu) else { return };
        let (current, held) = (is_followed.then_some(tid), cpu.held);
        let unknown = (cpu.since, at.time);
        let now = Cpu { since: at.time, first: at.event, current, seen: at.time, held };
        *cpu = now;
        let unknown = match before {
            Some(before) => cpu.held.replace((unknown.0, unknown.1, before)).map(|of| (of.0, of.1)),
            None => Some(unknown),
        };
        if let Some((since, until)) = unknown {
            self.told.had(&Had::unknown(at.cpu, since, until));
        }
        if is_followed && let Some((index, _)) = self.find(at, tid) {
            self.turn(at, index, Does::Runs(at.cpu), 0);
        }
    }

    /// A CPU goes from one thread to another.
    fn switch(&mut self, at: Moment, switch: &Switch<'_>, follows: Follows) {
        self.vacate(at.cpu, switch.prev);
        for (tid, name, is_followed) in
            [(switch.prev, switch.prev_comm, follows.current), (switch.next, switch.next_comm, follows.other)]
        {
            if is_followed {
                self.is_called(at, tid, name);
            } else {
                self.show_other(at, tid, name);
            }
        }
        let first_switch = *self.schedule.first_switch.get_or_insert(at.time);
        let prev = follows.current.then_some(switch.prev);
        // Nobody else ran there before: there was no switch.
        let had_it = prev.filter(|_| follows.from_begin);
        let mut had = *self.schedule.cpus.entry(at.cpu).or_insert_with(|| Cpu::new(first_switch, had_it));
        had.current = had.current.filter(|current| Some(*current) == prev);
        if switch.prev != 0
            && let Some(prev) = prev
        {
            let ran = had.current.map(|_| had);
            self.put_off(at, (prev, switch.prev_state), ran, follows.every_cpu);
        }
        self.had(at.cpu, had, at, if had.current.is_some() { switch.prev_comm } else { b"" });
        let next = self.threads.current_index(switch.next).filter(|_| switch.next != 0 && follows.other);
        if let Some(index) = next {
            self.leave(index);
        }
        let current = follows.other.then_some(switch.next);
        if let Some(cpu) = self.schedule.cpus.get_mut(&at.cpu) {
            let since = at.time.max(had.since);
            *cpu = Cpu { since, first: at.event, current, seen: at.time, held: cpu.held };
        }
        if let Some(index) = next {
            self.put_on(at, index);
        }
    }

    /// A thread has left its CPU, if it had one, without a record.
    fn leave(&mut self, index: Index) {
        if let Some(thread) = self.threads.get_mut(index)
            && let Does::Runs(_) = thread.of.doing().does
        {
            self.forget(index);
        }
    }

    /// A thread gives its CPU away, which it has had since then if that is known.
    fn put_off(&mut self, at: Moment, (tid, state): (Tid, u64), ran: Option<Cpu>, sees_every_cpu: bool) {
        let Some((index, thread)) = self.find(at, tid) else { return };
        let does = match state::off(state) {
            // It may run on another one.
            Some(_) if !sees_every_cpu => Does::Unknown,
            Some(off) => Does::Off(off),
            None => Does::Ended,
        };
        if !matches!(does, Does::Off(Off::Sleeping | Off::Blocked)) {
            thread.of.doing().woken_early = None;
        }
        match ran {
            Some(cpu) => self.has_run(at, index, cpu),
            None => self.forget(index),
        }
        self.turn(at, index, does, 0);
    }

    /// A thread has run up to now: its CPU says so, whatever else is known of it.
    fn has_run(&mut self, at: Moment, index: Index, cpu: Cpu) {
        let losses = self.schedule.losses();
        let Some(thread) = self.threads.get_mut(index) else { return };
        let doing = thread.of.doing();
        if let Does::Runs(_) = doing.does {
            return;
        }
        // From then on it was not seen to do anything else, but for being woken.
        let since = match (doing.unknown, doing.does) {
            (Some((since, until, _)), _) if until >= doing.since => since,
            (_, Does::Unknown) => doing.since,
            _ => u64::MAX,
        };
        if cpu.since < since {
            doing.does = Does::Unknown;
            return;
        }
        if let Some((_, until, _)) = &mut doing.unknown
            && cpu.since < *until
        {
            *until = cpu.since;
        } else if cpu.since > doing.since {
            doing.does = Does::Unknown;
            let until = Moment { time: cpu.since, event: cpu.first, ..at };
            tell(
                &self.schedule.losses,
                (index, thread),
                Does::Runs(at.cpu),
                (until, Some(at.cpu)),
                self.told,
            );
        }
        let doing = thread.of.doing();
        (doing.does, doing.since, doing.first) = (Does::Runs(at.cpu), cpu.since, cpu.first);
        (doing.by, doing.losses) = (0, losses);
    }

    /// A thread gets a CPU.
    fn put_on(&mut self, at: Moment, index: Index) {
        let losses = self.schedule.losses();
        let Some(thread) = self.threads.get_mut(index) else { return };
        let doing = thread.of.doing();
        // Nobody woke it since, but somebody before: it was about to sleep then.
        if let Some(by) = doing.woken_early.take()
            && doing.losses == losses
            && matches!(doing.does, Does::Off(Off::Sleeping | Off::Blocked))
        {
            (doing.does, doing.by) = (Does::Woken, by);
        }
        self.turn(at, index, Does::Runs(at.cpu), 0);
    }

    /// A thread is woken.
    fn wake(&mut self, at: Moment, wakeup: &Wakeup<'_>, by: i64) {
        let losses = self.schedule.losses();
        self.is_called(at, wakeup.tid, wakeup.comm);
        let Some((index, thread)) = self.find(at, wakeup.tid) else { return };
        let doing = thread.of.doing();
        match doing.does {
            Does::Runs(_) => {
                doing.woken_early = Some(by);
                return;
            }
            // One that was woken already is only told so again.
            Does::Woken | Does::Off(Off::Preempted) if doing.losses == losses => return,
            Does::Ended => return,
            _ => doing.woken_early = None,
        }
        self.turn(at, index, Does::Woken, by);
    }

    /// An id has a new thread. Until it is woken for the first time, it is being made.
    fn begin(&mut self, at: Moment, tid: Tid, name: &[u8], is_seen: bool, follows: Follows) {
        // One that was found may have been found by who counts records before.
        if is_seen {
            self.end(at, tid);
        }
        if !follows.other && !self.schedule.shows_others {
            return;
        }
        let is_known = is_seen && follows.other && follows.every_cpu;
        let does = if is_known { Does::Off(Off::Sleeping) } else { Does::Unknown };
        let doing = Doing::from(does, at, self.schedule.losses());
        let thread = if is_seen {
            self.threads.begin(tid, T::new(doing))
        } else {
            self.threads.find(tid, || T::new(doing)).map(|(_, thread)| thread)
        };
        if let Some(thread) = thread {
            thread.is_called(name);
        }
    }

    /// An id is nobody's any more. If its thread was not seen to end, it has done so at some time before.
    fn end(&mut self, at: Moment, tid: Tid) {
        if let Some(index) = self.threads.current_index(tid) {
            let does = self.threads.get_mut(index).map(|thread| thread.of.doing().does);
            if does != Some(Does::Ended) {
                self.forget(index);
                self.turn(at, index, Does::Ended, 0);
            }
            if let Some(thread) = self.threads.get_mut(index) {
                flush(index, thread, self.told);
            }
        }
        self.threads.end(tid);
    }

    /// A thread has another id since some time ago. It may have been seen under that one on its CPU: so it
    /// ran up to then.
    fn end_displaced(&mut self, at: Moment, index: Index, tid: Tid) {
        let since = self.threads.get_mut(index).map(|thread| *thread.of.doing()).map(|doing| doing.since);
        let held = self.schedule.cpus.iter_mut().find_map(|(number, cpu)| {
            let held = cpu.held.take_if(|(from, _, before)| *before == tid && Some(*from) == since)?;
            Some((*number, held))
        });
        let Some((number, (from, until, _))) = held else {
            self.forget(index);
            self.turn(at, index, Does::Ended, 0);
            return;
        };
        let had = Cpu { current: Some(tid), ..Cpu::new(from, None) };
        let until = Moment { time: until, cpu: number, event: 0 };
        self.had(number, had, until, b"");
        if let Some(thread) = self.threads.get_mut(index) {
            thread.of.doing().does = Does::Runs(number);
        }
        self.turn(until, index, Does::Ended, 0);
    }

    /// A thread has another id from now on.
    fn take(&mut self, at: Moment, from: Tid, to: Tid) {
        let Some(was) = self.threads.current_index(from) else { return };
        let does = self.threads.get_mut(was).map_or(Does::Unknown, |thread| thread.of.doing().does);
        let runs_on = match does {
            Does::Runs(number) => Some(number),
            _ => None,
        };
        if let Some(cpu) = runs_on.and_then(|number| self.schedule.cpus.get_mut(&number)) {
            let had = *cpu;
            *cpu = Cpu { since: at.time, first: at.event, current: Some(to), seen: at.time, held: had.held };
            self.had(runs_on.unwrap_or(at.cpu), had, at, b"");
            self.turn(at, was, Does::Ended, 0);
        } else {
            self.end_displaced(at, was, from);
        }
        if let Some(thread) = self.threads.get_mut(was) {
            flush(was, thread, self.told);
        }
        let doing = Doing::from(Does::Unknown, at, self.schedule.losses());
        let Some((was, is)) = self.threads.take(from, to, || T::new(doing)) else { return };
        if let Some((was, is)) = self.threads.two(was, is) {
            was.of.goes_on_as(&mut is.of);
        }
        if let Some(number) = runs_on {
            self.turn(Moment { cpu: number, ..at }, is, Does::Runs(number), 0);
        }
    }
}
