//! System calls: how often, for how long, with which errors, and how much of the time their threads slept in
//! them.

use std::collections::{BTreeMap, btree_map::Entry};

use serde::Serialize;

use super::{
    Analysis, At, Event, Evidence, Follows, Known, Names, Scope, Tid, Times, TimesTold, Topic,
    tally::{Room, Tally},
    threads::{Thread, Threads},
};
use ftrace_event::syscalls::{ANY_CALL, CallNames, error_name, machine_number, returns_to_interrupted};

/// Numbers of errors that calls return (`MAX_ERRNO`, include/linux/err.h), as negative numbers.
pub(super) const ERRORS: std::ops::RangeInclusive<i64> = -4095..=-1;

/// Most calls that are told apart: of the kernel there are a few hundred, of a hostile file as many as it has
/// records.
const MOST_CALLS: usize = 2048;

/// Most pairs of a thread and a call.
const MOST_PAIRS: usize = 1 << 17;

/// A call that a thread is in.
#[derive(Clone, Copy, Debug)]
struct Open {
    number: i64,
    since: u64,
    losses: u64,
    /// For how long its thread has been without a CPU since.
    off_cpu: u64,
    /// Since when it is.
    off_since: Option<u64>,
    is_raw: bool,
}

/// What is known of a thread.
#[derive(Clone, Debug, Default)]
struct State {
    open: Option<Open>,
    /// The number that the end of its last call had, and by which of the two events it was seen.
    ended: Option<(i64, bool)>,
    /// By number.
    calls: BTreeMap<i64, Told>,
    /// What remains of them when the thread has ended; `None` before.
    sum: Option<Sum>,
}

/// All system calls of a thread.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u64,
    failed: u64,
    time: u64,
    off_cpu: u64,
    /// The call that took most of the time, and how much.
    most: Option<(i64, u64)>,
}

impl Sum {
    fn add(&mut self, number: i64, told: &Told) {
        let time = told.times.sum();
        self.count += told.times.count();
        self.failed += told.failed();
        self.time = self.time.saturating_add(time);
        self.off_cpu = self.off_cpu.saturating_add(told.off_cpu);
        if time > self.most.map_or(0, |(_, most)| most) {
            self.most = Some((number, time));
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Told {
    times: Times,
    off_cpu: u64,
    /// By the errors' numbers; `None` as long as there are none.
    errors: Option<Box<Tally>>,
    unfinished: u64,
    unmatched: u64,
    /// Of those, by the errors' numbers.
    unmatched_errors: Option<Box<Tally>>,
}

/// How much more can be told apart.
#[derive(Clone, Copy, Debug)]
struct Rooms {
    /// Pairs of a thread and a call.
    pairs: usize,
    /// What has no room among them.
    left_out: u64,
    /// For the times and the errors of all pairs.
    sizes: Room,
}

impl Default for Rooms {
    fn default() -> Self {
        Self { pairs: MOST_PAIRS, left_out: 0, sizes: Room::default() }
    }
}

/// The analysis.
#[derive(Clone, Debug)]
pub struct Calls {
    scope: Scope,
    names: CallNames,
    threads: Threads<State>,
    losses: u64,
    rooms: Rooms,
    /// Of threads that were asked about and have ended, by number.
    ended: BTreeMap<i64, Told>,
    evidence: Evidence,
}

/// What the system calls did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CallsAnswer {
    /// By the time that they took together.
    pub calls: Vec<Call>,
    /// The same by thread, by the time that its calls took together.
    pub threads: Vec<OfThread>,
    /// Calls that were left out because there were too many threads or numbers.
    pub left_out: u64,
}

/// A system call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Call {
    /// Its number on the machine of the recording; `None` if the recording has its name alone.
    pub number: Option<i64>,
    /// Its name, if that is known.
    pub name: Option<String>,
    /// From entry to exit. `None` if one of both was not recorded.
    pub times: Option<TimesTold>,
    /// Of that, without a CPU, as far as both switches were seen. `None` if they were not recorded.
    pub off_cpu_ns: Option<u64>,
    /// How many ended with an error. `None` as `times`.
    pub failed: Option<u64>,
    /// Which errors, as far as there was room to tell them apart.
    pub errors: Vec<CallError>,
    /// Entries without an exit: at the end, where events were lost, and of calls that do not return. `None`
    /// if entries were not recorded.
    pub unfinished: Option<u64>,
    /// Exits without an entry: at the beginning, where events were lost or left out, and of calls that
    /// seccomp refused before they began. `None` if exits were not recorded.
    pub unmatched: Option<u64>,
    /// With which errors.
    pub unmatched_errors: Vec<CallError>,
}

/// An error of a system call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CallError {
    /// The number of the error, positive.
    pub errno: i64,
    /// Its name, if it has one.
    pub name: Option<&'static str>,
    /// How often.
    pub count: u64,
}

/// The system calls of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OfThread {
    /// Its id.
    pub tid: Tid,
    /// Its last name.
    pub comm: String,
    /// How many ended. This and the next three are `None` if no call was recorded at both ends.
    pub count: Option<u64>,
    /// How many of them with an error.
    pub failed: Option<u64>,
    /// For how long it was in them.
    pub total_ns: Option<u64>,
    /// Of that, without a CPU, as far as both switches were seen.
    pub off_cpu_ns: Option<u64>,
    /// The call in which it was for the longest time.
    pub most: Option<String>,
}

impl Calls {
    /// An analysis of a part of a recording, of a machine with these calls.
    pub fn new(scope: Scope, names: impl Into<CallNames>) -> Self {
        let (threads, rooms, names) = (Threads::default(), Rooms::default(), names.into());
        let ended = BTreeMap::new();
        Self { scope, names, threads, losses: 0, rooms, ended, evidence: Evidence::all() }
    }

    fn enter(&mut self, at: At, tid: Tid, number: i64, is_raw: bool) {
        let losses = self.losses;
        let Some((_, thread)) = self.threads.find(tid, State::default) else { return };
        let state = &mut thread.of;
        let before = state.open;
        if before.is_some_and(|open| open.is_same(number, is_raw, losses)) {
            return;
        }
        state.open = Some(Open { number, since: at.time, losses, off_cpu: 0, off_since: None, is_raw });
        state.ended = None;
        if let Some(before) = before
            && self.scope.has(at)
            && let Some(told) = state.told(before.number, &mut self.rooms)
        {
            told.unfinished += 1;
        }
    }

    fn exit(&mut self, at: At, tid: Tid, (number, result): (i64, i64), is_raw: bool) {
        let losses = self.losses;
        let Some((_, thread)) = self.threads.find(tid, State::default) else { return };
        let state = &mut thread.of;
        // The other event of the same exit.
        if state.open.is_none() && state.ended == Some((number, !is_raw)) {
            return;
        }
        let open = state.open.take();
        state.ended = Some((number, is_raw));
        // `rt_sigreturn` restores the registers of what was interrupted: its number is lost, and what it
        // returns is not its own.
        let (number, result) = match open {
            Some(open) if number == ANY_CALL => {
                let is_its = !self.names.name(open.number).is_some_and(returns_to_interrupted);
                (open.number, if is_its { result } else { 0 })
            }
            Some(open) if number < 0 => (open.number, 0),
            Some(open) if self.names.is_end_of(number, open.number) => (open.number, result),
            _ => (number, result),
        };
        if !self.scope.has(at) {
            return;
        }
        let is_its = |open: &Open| open.number == number && open.losses == losses;
        if let Some(other) = open.filter(|open| !is_its(open))
            && let Some(told) = state.told(other.number, &mut self.rooms)
        {
            told.unfinished += 1;
        }
        let Some(told) = state.told(number, &mut self.rooms) else { return };
        let Some(open) = open.filter(is_its) else {
            told.unmatched += 1;
            if ERRORS.contains(&result) {
                let errors = told.unmatched_errors.get_or_insert_default();
                errors.add((-result) as u16, 1, &mut self.rooms.sizes);
            }
            return;
        };
        told.times.add_within(at.time.saturating_sub(open.since), at.time, &mut self.rooms.sizes);
        told.off_cpu = told.off_cpu.saturating_add(open.off_cpu);
        if ERRORS.contains(&result) {
            told.errors.get_or_insert_default().add((-result) as u16, 1, &mut self.rooms.sizes);
        }
    }

    /// A thread has a CPU. If it had none before, nothing says since when it has.
    fn runs(&mut self, tid: Option<Tid>) {
        if let Some(tid) = tid
            && let Some(thread) = self.threads.current(tid)
            && let Some(open) = &mut thread.of.open
        {
            open.off_since = None;
        }
    }

    /// The thread that has an id ends. What is told of its calls is a part of the sums from now on: a
    /// recording can have more threads than there is room for, one after the other.
    fn end(&mut self, tid: Tid) {
        let Some(thread) = self.threads.current(tid) else { return };
        // Whether it is asked about may depend on a name that only the file has.
        if thread.name.is_empty() && !self.scope.names.is_empty() {
            return;
        }
        let is_asked = self.scope.has_thread(tid, &thread.name);
        let state = &mut thread.of;
        state.close(&mut self.rooms);
        for (number, told) in std::mem::take(&mut state.calls) {
            self.rooms.give_back(&told);
            if is_asked {
                state.sum.get_or_insert_default().add(number, &told);
                add_to(&mut self.ended, number, &told, &mut self.rooms);
            }
        }
    }

    fn of_thread(&self, thread: &Thread<State>, names: &Names<'_>) -> OfThread {
        let knows_calls = self.evidence.has_whole_calls();
        let mut sum = thread.of.sum.unwrap_or_default();
        for (number, told) in &thread.of.calls {
            sum.add(*number, told);
        }
        OfThread {
            tid: thread.tid,
            comm: names.thread_text(thread.tid, &thread.name),
            count: knows_calls.then_some(sum.count),
            failed: knows_calls.then_some(sum.failed),
            total_ns: knows_calls.then_some(sum.time),
            off_cpu_ns: (knows_calls && self.knows_switches()).then_some(sum.off_cpu),
            most: sum.most.map(|(number, _)| self.name(number).unwrap_or_else(|| number.to_string())),
        }
    }

    fn name(&self, number: i64) -> Option<String> {
        self.names.name(number).map(str::to_owned)
    }

    fn knows_switches(&self) -> bool {
        self.evidence.has("sched:sched_switch")
    }

    /// The row of the calls with this number.
    fn call(&self, number: i64, told: &Told) -> Call {
        let name = self.name(number);
        // Events of single calls may be those of others.
        let [begins, ends] = [Evidence::has_call_begins, Evidence::has_call_ends].map(|has| {
            name.as_deref().map_or_else(|| has(&self.evidence, "*"), |name| has(&self.evidence, name))
        });
        let was_joined = told.times.count() != 0;
        let knows_begins = begins || was_joined || told.unfinished != 0;
        let knows_ends = ends || was_joined || told.unmatched != 0;
        let knows_both = knows_begins && knows_ends;
        Call {
            number: machine_number(number),
            name,
            times: knows_both.then(|| told.times.told()),
            off_cpu_ns: (knows_both && self.knows_switches()).then_some(told.off_cpu),
            failed: knows_both.then(|| told.failed()),
            errors: CallError::all(told.errors.as_deref()),
            unfinished: knows_begins.then_some(told.unfinished),
            unmatched: knows_ends.then_some(told.unmatched),
            unmatched_errors: CallError::all(told.unmatched_errors.as_deref()),
        }
    }
}

/// Adds what is told of the calls with a number to those of other threads.
fn add_to(calls: &mut BTreeMap<i64, Told>, number: i64, told: &Told, rooms: &mut Rooms) {
    if calls.len() >= MOST_CALLS && !calls.contains_key(&number) {
        rooms.left_out += told.times.count();
        return;
    }
    calls.entry(number).or_default().merge_within(told, &mut rooms.sizes);
}

impl Rooms {
    /// A pair of a thread and a call is no more.
    fn give_back(&mut self, told: &Told) {
        self.pairs += 1;
        told.times.give_back(&mut self.sizes);
        for errors in told.errors.iter().chain(&told.unmatched_errors) {
            self.sizes.give_back(errors);
        }
    }
}

impl Open {
    /// Whether another event of the same entry says this.
    fn is_same(&self, number: i64, is_raw: bool, losses: u64) -> bool {
        self.number == number && self.is_raw != is_raw && self.losses == losses
    }
}

impl State {
    /// Counts the call that has no end.
    fn close(&mut self, rooms: &mut Rooms) {
        if let Some(open) = self.open.take()
            && let Some(told) = self.told(open.number, rooms)
        {
            told.unfinished += 1;
        }
    }

    /// What is told of the calls with a number. `None` if there is no room.
    fn told(&mut self, number: i64, rooms: &mut Rooms) -> Option<&mut Told> {
        match self.calls.entry(number) {
            Entry::Occupied(told) => Some(told.into_mut()),
            Entry::Vacant(_) if rooms.pairs == 0 => {
                rooms.left_out += 1;
                None
            }
            Entry::Vacant(place) => {
                rooms.pairs -= 1;
                Some(place.insert(Told::default()))
            }
        }
    }
}

impl Analysis for Calls {
    type Answer = CallsAnswer;

    const TOPIC: Option<Topic> = Some(Topic::Syscalls);

    const SEES_ALL: bool = true;

    fn look(&mut self, at: At, event: &Event<'_>) {
        if !matches!(event.known, Known::Switch(_)) {
            self.runs(event.tid);
        }
        match (&event.known, event.tid) {
            (Known::CallEnter { number, is_raw, .. }, Some(tid)) => self.enter(at, tid, *number, *is_raw),
            (Known::CallExit { number, result, is_raw }, Some(tid)) => {
                self.exit(at, tid, (*number, *result), *is_raw);
            }
            (Known::Switch(switch), _) => {
                let Follows { current, other, every_cpu, .. } = event.follows;
                for (tid, name, is_followed) in [
                    (switch.prev, switch.prev_comm, current && every_cpu),
                    (switch.next, switch.next_comm, other && every_cpu),
                ] {
                    if tid != 0
                        && let Some((_, thread)) = self.threads.find(tid, State::default)
                    {
                        thread.is_called(name);
                        if let Some(open) = &mut thread.of.open {
                            // One that gives a CPU away without having got it was off for an unknown time.
                            let since = open.off_since.take().filter(|_| tid == switch.next && is_followed);
                            let off = since.map_or(0, |since| at.time.saturating_sub(since));
                            open.off_cpu = open.off_cpu.saturating_add(off);
                            open.off_since = (tid == switch.prev && is_followed).then_some(at.time);
                        }
                    }
                }
            }
            (Known::Begins { child, comm, is_seen: true, .. }, _) => {
                // A former thread with this id has ended, whether that was recorded or not.
                self.end(*child);
                if let Some(thread) = self.threads.begin(*child, State::default()) {
                    thread.is_called(comm);
                }
            }
            (Known::Renamed { tid, comm: Some(comm), .. }, _) => {
                if let Some((_, thread)) = self.threads.find(*tid, State::default) {
                    thread.is_called(comm);
                }
            }
            (Known::Ends { tid }, _) => {
                self.end(*tid);
                self.threads.end(*tid);
            }
            (Known::Takes { from, to }, _) => {
                if let Some((was, is)) = self.threads.take(*from, *to, State::default)
                    && let Some((was, is)) = self.threads.two(was, is)
                {
                    (is.of.open, is.of.ended) = (was.of.open.take(), was.of.ended);
                }
            }
            _ => {}
        }
    }

    fn lost(&mut self, _: At) {
        self.losses += 1;
    }

    fn restart(&mut self, from: u64) {
        self.scope.from = Some(from);
        self.threads.forget_ended();
        self.rooms = Rooms::default();
        self.ended.clear();
        for thread in self.threads.iter_mut() {
            thread.of.calls.clear();
            thread.of.sum = None;
        }
    }

    fn rests_on(&mut self, evidence: &Evidence) {
        self.evidence = evidence.clone();
    }

    fn answer(mut self, _: u64, names: &Names<'_>) -> CallsAnswer {
        // The end is on no CPU; where some were asked about, it is none of them.
        let are_asked = self.scope.cpus.is_none();
        for thread in self.threads.iter_mut() {
            if are_asked {
                thread.of.close(&mut self.rooms);
            }
        }
        let (threads, threads_left_out) = std::mem::take(&mut self.threads).into_parts();
        let mut answer = CallsAnswer::default();
        let mut calls = std::mem::take(&mut self.ended);
        for thread in threads {
            let is_asked = self.scope.has_thread(thread.tid, names.of_thread(thread.tid, &thread.name));
            if !is_asked || (thread.of.calls.is_empty() && thread.of.sum.is_none()) {
                continue;
            }
            answer.threads.push(self.of_thread(&thread, names));
            for (number, told) in &thread.of.calls {
                self.rooms.give_back(told);
                add_to(&mut calls, *number, told, &mut self.rooms);
            }
        }
        answer.left_out = self.rooms.left_out + threads_left_out;
        answer.threads.sort_by(|one, other| other.total_ns.cmp(&one.total_ns).then(one.tid.cmp(&other.tid)));
        answer.calls = calls.iter().map(|(number, told)| self.call(*number, told)).collect();
        let total = |call: &Call| call.times.map(|times| times.total_ns);
        answer.calls.sort_by(|one, other| total(other).cmp(&total(one)).then(one.number.cmp(&other.number)));
        answer
    }
}

impl Told {
    fn merge_within(&mut self, other: &Self, room: &mut Room) {
        self.times.merge_within(&other.times, room);
        self.off_cpu = self.off_cpu.saturating_add(other.off_cpu);
        self.unfinished += other.unfinished;
        self.unmatched += other.unmatched;
        for (of, errors) in
            [(&mut self.errors, &other.errors), (&mut self.unmatched_errors, &other.unmatched_errors)]
        {
            if let Some(errors) = errors {
                of.get_or_insert_default().merge_within(errors, room);
            }
        }
    }

    /// How many ended with an error.
    fn failed(&self) -> u64 {
        self.errors.as_ref().map_or(0, |errors| errors.total())
    }
}

impl CallError {
    /// Errors by their positive numbers, the most frequent first.
    pub(super) fn all(errors: Option<&Tally>) -> Vec<Self> {
        let error = |(errno, count): (u16, u64)| {
            let errno = i64::from(errno);
            Self { errno, name: error_name(errno), count }
        };
        let mut errors: Vec<Self> = errors.into_iter().flat_map(Tally::iter).map(error).collect();
        errors.sort_by(|one, other| other.count.cmp(&one.count).then(one.errno.cmp(&other.errno)));
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Context, Switch};
    use super::*;
    use ftrace_event::syscalls::{COMPAT, SyscallTable};

    fn look(calls: &mut Calls, time: u64, tid: Tid, known: Known<'_>) {
        calls.look(At { time, cpu: 0 }, &Event::whole(Some(tid), Context::Thread, known));
    }

    fn enter(number: i64) -> Known<'static> {
        Known::CallEnter { number, arguments: [None; 3], path: None, is_raw: true }
    }

    fn exit(number: i64, result: i64) -> Known<'static> {
        Known::CallExit { number, result, is_raw: true }
    }

    fn switch(prev: Tid, next: Tid) -> Known<'static> {
        Known::Switch(Switch { prev, prev_comm: b"a", prev_state: 1, next, next_comm: b"b" })
    }

    #[test]
    fn a_thread_that_runs_is_not_without_a_cpu() {
        let mut calls = Calls::new(Scope::default(), None);
        let mut look = |time, tid, known: Known<'_>| {
            calls.look(At { time, cpu: 0 }, &Event::whole(Some(tid), Context::Thread, known));
        };
        let enter = Known::CallEnter { number: 1, arguments: [None; 3], path: None, is_raw: true };
        let switch =
            |prev, next| Known::Switch(Switch { prev, prev_comm: b"", prev_state: 1, next, next_comm: b"" });
        look(0, 7, enter);
        look(10, 7, switch(7, 8));
        // The switch to it is missing here.
        look(20, 7, Known::Seen);
        look(90, 8, switch(8, 7));
        // Under another number, too.
        look(95, 9, Known::Takes { from: 7, to: 9 });
        look(96, 9, switch(9, 8));
        look(98, 8, switch(8, 9));
        look(100, 9, Known::CallExit { number: 1, result: 0, is_raw: true });
        let answer = calls.answer(100, &Names::none());
        assert_eq!((answer.calls[0].times.unwrap().total_ns, answer.calls[0].off_cpu_ns.unwrap()), (100, 2));
        assert_eq!(answer.threads.iter().map(|of| of.tid).collect::<Vec<_>>(), [9]);
    }

    #[test]
    fn exits_without_an_entry_have_their_errors() {
        let mut calls = Calls::new(Scope::default(), SyscallTable::of_machine("x86_64"));
        for time in 0..3 {
            // As seccomp makes them, which refuses a call before it begins.
            look(&mut calls, time, 1, exit(83, -1));
        }
        look(&mut calls, 5, 1, enter(83));
        look(&mut calls, 6, 1, exit(83, -17));
        look(&mut calls, 7, 1, exit(83, 0));
        let answer = calls.answer(10, &Names::none());
        let [call] = &answer.calls[..] else { panic!("{answer:?}") };
        assert_eq!((call.times.unwrap().count, call.failed.unwrap(), call.unmatched.unwrap()), (1, 1, 4));
        assert_eq!(call.errors, [CallError { errno: 17, name: Some("EEXIST"), count: 1 }]);
        assert_eq!(call.unmatched_errors, [CallError { errno: 1, name: Some("EPERM"), count: 3 }]);
    }

    #[test]
    fn calls_are_counted_with_their_errors_and_the_time_without_a_cpu() {
        let scope = Scope::default();
        let mut calls = Calls::new(scope, SyscallTable::of_machine("x86_64"));
        // The end of a call that was there before.
        look(&mut calls, 5, 1, exit(0, 0));
        look(&mut calls, 10, 1, enter(0));
        look(&mut calls, 20, 1, switch(1, 2));
        look(&mut calls, 30, 2, enter(257));
        look(&mut calls, 35, 2, exit(257, -2));
        look(&mut calls, 50, 2, switch(2, 1));
        look(&mut calls, 60, 1, exit(0, 8));
        look(&mut calls, 70, 1, enter(0));
        let answer = calls.answer(100, &Names::none());
        let names: Vec<_> = answer.calls.iter().map(|call| call.name.as_deref().unwrap()).collect();
        assert_eq!(names, ["read", "openat"]);
        let [read, openat] = &answer.calls[..] else { panic!("{:?}", answer.calls) };
        assert_eq!(
            (read.times.unwrap().count, read.times.unwrap().total_ns, read.off_cpu_ns.unwrap()),
            (1, 50, 30)
        );
        assert_eq!((read.failed.unwrap(), read.unfinished.unwrap(), read.unmatched.unwrap()), (0, 1, 1));
        assert_eq!((openat.times.unwrap().total_ns, openat.failed.unwrap()), (5, 1));
        assert_eq!(openat.errors, [CallError { errno: 2, name: Some("ENOENT"), count: 1 }]);
        let threads: Vec<_> =
            answer.threads.iter().map(|of| (of.tid, of.count.unwrap(), of.total_ns.unwrap())).collect();
        assert_eq!(threads, [(1, 1, 50), (2, 1, 5)]);
        assert_eq!(answer.threads[0].most.as_deref(), Some("read"));
    }

    #[test]
    fn a_thread_that_gives_its_cpu_away_twice_has_run_in_between() {
        let mut calls = Calls::new(Scope::default(), CallNames::default());
        look(&mut calls, 10, 1, enter(0));
        look(&mut calls, 20, 1, switch(1, 2));
        // The switch back is missing.
        look(&mut calls, 50, 1, switch(1, 2));
        look(&mut calls, 57, 2, switch(2, 1));
        look(&mut calls, 60, 1, exit(0, 0));
        let call = calls.answer(100, &Names::none()).calls.remove(0);
        assert_eq!(
            (call.times.unwrap().count, call.times.unwrap().total_ns, call.off_cpu_ns.unwrap()),
            (1, 50, 7)
        );
    }

    #[test]
    fn what_threads_did_that_have_ended_is_a_part_of_the_sums() {
        let freed = |calls: &mut Calls, time| look(calls, time, 0, Known::Ends { tid: 1 });
        let named = Known::Renamed { tid: 1, comm: Some(b"one"), before: b"" };
        for names in [&[][..], &["one"], &["two"]] {
            let scope =
                Scope { names: names.iter().map(|name| (*name).to_owned()).collect(), ..Scope::default() };
            let mut calls = Calls::new(scope, CallNames::default());
            for time in [10, 100] {
                // As many threads as there are pairs, and more.
                calls.rooms.pairs = 1;
                look(&mut calls, time, 1, named);
                look(&mut calls, time + 1, 1, enter(3));
                look(&mut calls, time + 5, 1, exit(3, -2));
                freed(&mut calls, time + 6);
            }
            look(&mut calls, 200, 1, enter(3));
            look(&mut calls, 206, 1, exit(3, 0));
            let mut cmdlines = ftrace_event::Cmdlines::new();
            cmdlines.insert(1, b"one");
            let answer = calls.answer(300, &Names { threads: Some(&cmdlines), ..Names::none() });
            if names == ["two"] {
                assert_eq!((answer.calls.len(), answer.threads.len()), (0, 0));
                continue;
            }
            let [call] = &answer.calls[..] else { panic!("{:?}", answer.calls) };
            assert_eq!(
                (call.times.unwrap().count, call.times.unwrap().total_ns, call.failed.unwrap()),
                (3, 14, 2)
            );
            assert_eq!(call.errors, [CallError { errno: 2, name: Some("ENOENT"), count: 2 }]);
            let threads: Vec<_> = answer
                .threads
                .iter()
                .map(|of| (of.tid, of.count.unwrap(), of.failed.unwrap(), of.total_ns.unwrap()))
                .collect();
            assert_eq!(threads, [(1, 1, 0, 6), (1, 1, 1, 4), (1, 1, 1, 4)]);
            assert_eq!(answer.threads[1].most.as_deref(), Some("3"));
            assert_eq!(answer.left_out, 0);
        }
    }

    #[test]
    fn two_events_of_one_call_are_one_call() {
        let scope = Scope::default();
        let mut calls = Calls::new(scope, CallNames::default());
        for time in [10, 100] {
            look(&mut calls, time, 1, enter(0));
            look(
                &mut calls,
                time + 1,
                1,
                Known::CallEnter { number: 0, arguments: [None; 3], path: None, is_raw: false },
            );
            look(&mut calls, time + 5, 1, Known::CallExit { number: 0, result: 0, is_raw: false });
            look(&mut calls, time + 6, 1, exit(0, 0));
        }
        let answer = calls.answer(200, &Names::none());
        let call = &answer.calls[0];
        assert_eq!(
            (
                call.times.unwrap().count,
                call.times.unwrap().total_ns,
                call.unfinished.unwrap(),
                call.unmatched.unwrap()
            ),
            (2, 10, 0, 0)
        );
    }

    #[test]
    fn an_execve_to_a_program_of_the_other_kind_is_one_call() {
        let named = |known: Known<'static>| match known {
            Known::CallEnter { number, arguments, path, .. } => {
                Known::CallEnter { number, arguments, path, is_raw: false }
            }
            Known::CallExit { number, result, .. } => Known::CallExit { number, result, is_raw: false },
            other => other,
        };
        let (native, compat) = (59, COMPAT + 11);
        // The events of single calls have none of 32 bits.
        for (records, number) in [
            (&[enter(compat), exit(native, 0), named(exit(native, 0))], compat),
            (&[enter(compat), named(exit(native, 0)), exit(native, 0)], compat),
            (&[enter(native), named(enter(native)), exit(compat, 0)], native),
        ] {
            let mut calls = Calls::new(Scope::default(), SyscallTable::of_machine("x86_64"));
            for (time, known) in (10..).zip(records) {
                look(&mut calls, time, 1, *known);
            }
            let answer = calls.answer(40, &Names::none());
            let [call] = &answer.calls[..] else { panic!("{:?}", answer.calls) };
            assert_eq!((call.number, call.times.unwrap().count, call.unmatched), (Some(number), 1, Some(0)));
        }
    }

    #[test]
    fn a_call_over_a_loss_is_not_measured() {
        let scope = Scope::default();
        let mut calls = Calls::new(scope, CallNames::default());
        look(&mut calls, 10, 1, enter(0));
        calls.lost(At { time: 15, cpu: 3 });
        look(&mut calls, 20, 1, exit(0, 0));
        look(&mut calls, 30, 1, enter(0));
        look(&mut calls, 31, 1, exit(0, 0));
        let answer = calls.answer(40, &Names::none());
        let call = &answer.calls[0];
        assert_eq!((call.times.unwrap().count, call.unmatched.unwrap(), call.unfinished.unwrap()), (1, 1, 1));
    }

    #[test]
    fn an_end_of_any_call_is_that_of_the_one_that_its_thread_is_in() {
        let mut calls = Calls::new(Scope::default(), CallNames::default());
        look(&mut calls, 10, 1, enter(15));
        look(&mut calls, 14, 1, exit(ANY_CALL, -4));
        look(&mut calls, 15, 1, exit(ANY_CALL, -4));
        let answer = calls.answer(40, &Names::none());
        let told = |call: &Call| {
            (call.number, call.times.unwrap().count, call.failed.unwrap(), call.unmatched.unwrap())
        };
        assert_eq!(answer.calls.iter().map(told).collect::<Vec<_>>(), [(Some(15), 1, 1, 0), (None, 0, 0, 1)]);
    }

    #[test]
    fn the_return_from_a_signal_ends_without_its_number() {
        let mut calls = Calls::new(Scope::default(), CallNames::default());
        look(&mut calls, 10, 1, enter(15));
        look(&mut calls, 14, 1, exit(-1, -4));
        let answer = calls.answer(40, &Names::none());
        let [call] = &answer.calls[..] else { panic!("{:?}", answer.calls) };
        let told = (
            call.number,
            call.times.unwrap().count,
            call.times.unwrap().total_ns,
            call.failed.unwrap(),
            call.unmatched.unwrap(),
        );
        assert_eq!(told, (Some(15), 1, 4, 0, 0));
    }

    #[test]
    fn an_exit_of_another_call_leaves_both_without_a_duration() {
        let mut calls = Calls::new(Scope::default(), CallNames::default());
        look(&mut calls, 10, 1, enter(0));
        look(&mut calls, 20, 1, exit(1, 5));
        let answer = calls.answer(40, &Names::none());
        let told: Vec<_> = answer
            .calls
            .iter()
            .map(|call| (call.number, call.unfinished.unwrap(), call.unmatched.unwrap()))
            .collect();
        assert_eq!(told, [(Some(0), 1, 0), (Some(1), 0, 1)]);
    }

    #[test]
    fn threads_are_asked_about_by_their_last_name_and_their_number() {
        let story = |scope: Scope| {
            let mut calls = Calls::new(scope, CallNames::default());
            look(&mut calls, 10, 1, enter(0));
            look(&mut calls, 15, 1, exit(0, -2));
            look(&mut calls, 16, 2, enter(0));
            look(&mut calls, 26, 2, exit(0, 0));
            look(&mut calls, 30, 2, switch(2, 1));
            let answer = calls.answer(40, &Names::none());
            let call = answer.calls.first().cloned().unwrap_or_default();
            let times = call.times.unwrap_or_default();
            (answer.threads.len(), times.count, times.total_ns, call.failed.unwrap_or(0))
        };
        assert_eq!(story(Scope::default()), (2, 2, 15, 1));
        // Both names come behind the calls.
        assert_eq!(story(Scope { names: vec!["b".into()], ..Scope::default() }), (1, 1, 5, 1));
        assert_eq!(story(Scope { tids: Some([2].into()), ..Scope::default() }), (1, 1, 10, 0));
        assert_eq!(story(Scope { names: vec!["c".into()], ..Scope::default() }), (0, 0, 0, 0));
    }

    #[test]
    fn a_call_that_ends_in_the_part_that_is_asked_about_is_as_long_as_it_was() {
        let mut calls =
            Calls::new(Scope { from: Some(100), to: Some(200), ..Scope::default() }, CallNames::default());
        look(&mut calls, 10, 1, enter(0));
        look(&mut calls, 20, 1, switch(1, 2));
        look(&mut calls, 30, 2, enter(0));
        look(&mut calls, 40, 2, exit(0, 0));
        look(&mut calls, 110, 2, switch(2, 1));
        look(&mut calls, 150, 1, exit(0, 0));
        look(&mut calls, 190, 1, enter(0));
        let answer = calls.answer(200, &Names::none());
        let call = &answer.calls[0];
        assert_eq!(
            (call.times.unwrap().count, call.times.unwrap().total_ns, call.off_cpu_ns.unwrap()),
            (1, 140, 90)
        );
        assert_eq!((call.unfinished.unwrap(), call.unmatched.unwrap()), (1, 0));
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut calls = Calls::new(Scope::default(), CallNames::default());
        for number in 0..MOST_CALLS as i64 + 5 {
            look(&mut calls, 10, 1, enter(number));
            look(&mut calls, 20, 1, exit(number, 0));
        }
        let answer = calls.answer(40, &Names::none());
        assert_eq!((answer.calls.len(), answer.left_out), (MOST_CALLS, 5));
    }

    #[test]
    fn times_of_a_hostile_file_are_not_too_many() {
        let mut calls = Calls::new(Scope::default(), CallNames::default());
        for (time, known) in [(0, enter(0)), (u64::MAX, exit(0, 0))] {
            for tid in 1..4 {
                look(&mut calls, time, tid, known);
            }
        }
        let answer = calls.answer(u64::MAX, &Names::none());
        assert_eq!(
            (answer.calls[0].times.unwrap().total_ns, answer.threads[0].total_ns.unwrap()),
            (u64::MAX, u64::MAX)
        );
    }
}
