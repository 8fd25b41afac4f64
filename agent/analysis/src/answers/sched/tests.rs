use super::super::{Context, Followed, Lives, Random, Switch, Wakeup};
use super::*;

const R: u64 = 0;
const S: u64 = 1;
const D: u64 = 2;
const X: u64 = 0x10;

struct Story(Sched, Lives);

impl Story {
    fn new(scope: Scope) -> Self {
        Self(Sched::new(scope), Lives::default())
    }

    fn look(&mut self, at: At, event: &Event<'_>) {
        self.1.tell(event, |event| self.0.look(at, &event));
    }

    fn at(&mut self, time: u64, cpu: u32, known: Known<'_>) {
        self.look(At { time, cpu }, &Event::whole(None, Context::Thread, known));
    }

    fn switch(&mut self, time: u64, cpu: u32, (prev, prev_state): (Tid, u64), next: Tid) {
        let name = |tid: Tid| match tid {
            0 => &b"swapper"[..],
            7 => b"seven",
            8 => b"eight",
            _ => b"other",
        };
        let (prev_comm, next_comm) = (name(prev), name(next));
        self.at(time, cpu, Known::Switch(Switch { prev, prev_comm, prev_state, next, next_comm }));
    }

    fn wake(&mut self, time: u64, cpu: u32, tid: Tid) {
        self.at(time, cpu, Known::Wakeup(Wakeup { tid, comm: b"", is_new: false }));
    }
}

fn of(answer: &SchedAnswer, tid: Tid) -> ThreadTime {
    answer.threads.iter().find(|thread| thread.tid == tid).cloned().unwrap()
}

fn spans(thread: &ThreadTime) -> [u64; 5] {
    let [wait, sleep, blocked] = [thread.wait_ns, thread.sleep_ns, thread.blocked_ns].map(Option::unwrap);
    [thread.run_ns, wait, sleep, blocked, thread.unknown_ns]
}

/// 7 runs, is preempted by 8, runs again, sleeps, is woken and waits for 8, and ends.
fn story(scope: &Scope) -> SchedAnswer {
    let mut story = Story::new(scope.clone());
    story.wake(100, 0, 8);
    story.switch(110, 0, (7, R), 8);
    story.switch(150, 0, (8, D), 7);
    story.switch(180, 0, (7, S), 0);
    story.wake(200, 1, 8);
    story.switch(205, 0, (0, R), 8);
    story.wake(210, 1, 7);
    // Of one that is awake nothing is new.
    story.wake(220, 1, 7);
    story.wake(225, 1, 8);
    story.switch(260, 0, (8, S), 7);
    story.switch(300, 0, (7, X), 0);
    story.0.answer(400, &Names::none())
}

#[test]
fn what_threads_did_adds_up_to_the_recording() {
    let answer = story(&Scope::default());
    let (seven, eight) = (of(&answer, 7), of(&answer, 8));
    // What it did before the first switch is not known.
    assert_eq!(spans(&seven), [30 + 40, 40 + 50, 30, 0, 10]);
    assert_eq!(spans(&eight), [40 + 55, 10 + 5, 140, 50, 0]);
    assert_eq!((seven.comm.as_str(), seven.switches, eight.switches), ("seven", 2, 2));
    assert_eq!(
        (seven.woken.unwrap().count, seven.woken.unwrap().most_ns, seven.woken.unwrap().most_at_ns),
        (1, 50, Some(260))
    );
    assert_eq!((seven.preempted.count, seven.preempted.total_ns), (1, 40));
    assert_eq!(
        (eight.woken.unwrap().count, eight.woken.unwrap().total_ns, eight.woken.unwrap().least_ns),
        (2, 15, 5)
    );
    assert_eq!((answer.woken.unwrap().count, answer.preempted.count), (3, 1));
    let cpu = CpuTime { cpu: 0, busy_ns: 70 + 95, idle_ns: 25 + 100, unknown_ns: 0, switches: 6 };
    assert_eq!(answer.cpus, [cpu]);
    let worst = &answer.worst[0];
    assert_eq!((worst.tid, worst.wait_ns, worst.at_ns, worst.is_woken), (7, 50, 260, true));
    let instead = (worst.instead_tid, worst.instead.as_str(), worst.instead_ns, worst.others);
    assert_eq!(instead, (Some(8), "eight", 50, 0));
}

#[test]
fn a_part_of_it_is_cut_at_its_ends() {
    let scope = Scope { from: Some(140), to: Some(265), ..Scope::default() };
    let mut answer = story(&scope);
    // What comes behind the end is not looked at: here it was.
    answer = SchedAnswer { threads: answer.threads, ..SchedAnswer::default() };
    let (seven, eight) = (of(&answer, 7), of(&answer, 8));
    assert_eq!(spans(&seven), [30 + 5, 10 + 50, 30, 0, 0]);
    assert_eq!(spans(&eight), [10 + 55, 5, 5, 50, 0]);
}

#[test]
fn what_lasted_over_a_loss_is_unknown() {
    let scope = Scope::default();
    let mut story = Story::new(scope);
    story.switch(0, 0, (0, R), 7);
    story.switch(10, 0, (7, S), 8);
    story.0.lost(At { time: 30, cpu: 1 });
    story.switch(40, 0, (8, R), 7);
    story.switch(50, 0, (7, S), 8);
    let answer = story.0.answer(60, &Names::none());
    // What happened on CPU 1 cannot change who ran on CPU 0; it can change who slept.
    assert_eq!(spans(&of(&answer, 7)), [10 + 10, 0, 10, 0, 30]);
    assert_eq!(spans(&of(&answer, 8)), [30 + 10, 10, 0, 0, 10]);
    let unknown: Vec<_> = answer.cpus.iter().map(|cpu| (cpu.cpu, cpu.busy_ns, cpu.unknown_ns)).collect();
    assert_eq!(unknown, [(0, 60, 0), (1, 0, 60)]);
    assert_eq!(answer.woken.unwrap().count + answer.preempted.count, 1, "the wait of 8 after the loss");
}

#[test]
fn a_loss_on_a_cpu_leaves_open_who_ran_there() {
    let mut story = Story::new(Scope::default());
    story.switch(0, 0, (0, R), 7);
    // A recording of a CPU that begins with a loss.
    story.0.lost(At { time: 5, cpu: 1 });
    story.switch(5, 1, (9, S), 0);
    story.0.lost(At { time: 20, cpu: 0 });
    story.switch(20, 0, (7, R), 8);
    story.switch(30, 0, (8, S), 0);
    let answer = story.0.answer(40, &Names::none());
    assert_eq!(spans(&of(&answer, 7)), [0, 20, 0, 0, 20]);
    assert_eq!(spans(&of(&answer, 8)), [10, 0, 10, 0, 20]);
    let times: Vec<_> = answer.cpus.iter().map(|cpu| [cpu.busy_ns, cpu.idle_ns, cpu.unknown_ns]).collect();
    assert_eq!(times, [[10, 10, 20], [0, 35, 5]]);
}

#[test]
fn one_that_is_woken_before_it_is_seen_to_run_has_run() {
    let mut story = Story::new(Scope::default());
    story.switch(0, 0, (0, R), 8);
    // It was about to sleep on CPU 1, where it has run all the time.
    story.wake(30, 0, 7);
    story.switch(50, 1, (7, R), 9);
    story.switch(60, 1, (9, S), 7);
    let answer = story.0.answer(60, &Names::none());
    assert_eq!(spans(&of(&answer, 7)), [50, 10, 0, 0, 0]);
    assert_eq!((answer.woken.unwrap().count, answer.preempted.count), (0, 1));
}

#[test]
fn times_of_a_hostile_file_are_not_too_many() {
    let mut story = Story::new(Scope::default());
    for cpu in 0..4 {
        story.switch(0, cpu, (0, R), 7);
    }
    for cpu in (0..4).rev() {
        story.switch(u64::MAX, cpu, (7, R), 0);
    }
    story.0.lost(At { time: 3, cpu: 0 });
    story.switch(5, 0, (7, R), 0);
    let answer = story.0.answer(u64::MAX, &Names::none());
    assert_eq!(of(&answer, 7).run_ns, u64::MAX);
}

#[test]
fn an_id_of_a_new_thread_is_not_the_old_one() {
    let scope = Scope::default();
    let mut story = Story::new(scope);
    story.switch(0, 0, (0, R), 7);
    story.switch(10, 0, (7, X), 0);
    story.at(20, 1, Known::Fork { child: 7, comm: b"new" });
    story.at(20, 1, Known::Wakeup(Wakeup { tid: 7, comm: b"new", is_new: true }));
    story.switch(25, 0, (0, R), 7);
    let answer = story.0.answer(30, &Names::none());
    let seven: Vec<_> =
        answer.threads.iter().map(|thread| (thread.run_ns, thread.wait_ns.unwrap())).collect();
    assert_eq!(seven, [(10, 0), (5, 5)]);
}

#[test]
fn a_thread_runs_up_to_the_last_event_that_shows_it() {
    let mut story = Story::new(Scope::default());
    story.switch(0, 0, (0, R), 7);
    // 7 wakes somebody, and was never seen to leave.
    let wakeup = Known::Wakeup(Wakeup { tid: 9, comm: b"", is_new: false });
    story.look(At { time: 20, cpu: 0 }, &Event::whole(Some(7), Context::Thread, wakeup));
    story.switch(50, 0, (8, S), 0);
    story.switch(80, 0, (0, R), 7);
    story.switch(90, 0, (7, S), 0);
    let answer = story.0.answer(100, &Names::none());
    assert_eq!(spans(&of(&answer, 7)), [20 + 10, 0, 10, 0, 60]);
    assert_eq!(spans(&of(&answer, 8)), [0, 0, 50, 0, 50]);
    let cpu = answer.cpus[0];
    assert_eq!([cpu.busy_ns, cpu.idle_ns, cpu.unknown_ns], [20 + 10, 30 + 10, 30]);
}

#[test]
fn an_event_of_another_thread_ends_the_time_of_the_former_one() {
    let mut story = Story::new(Scope::default());
    story.switch(0, 0, (0, R), 7);
    let wakeup = Known::Wakeup(Wakeup { tid: 9, comm: b"", is_new: false });
    let event = |tid| Event::whole(Some(tid), Context::Thread, wakeup);
    story.look(At { time: 40, cpu: 0 }, &event(8));
    story.look(At { time: 60, cpu: 0 }, &event(8));
    // An event without a thread says nothing.
    story.look(At { time: 70, cpu: 0 }, &event(0));
    story.switch(90, 1, (7, S), 0);
    let answer = story.0.answer(100, &Names::none());
    assert_eq!(spans(&of(&answer, 7)), [90, 0, 10, 0, 0], "as CPU 1 says");
    assert_eq!(spans(&of(&answer, 8)), [60, 0, 0, 0, 40]);
    let cpu = answer.cpus[0];
    assert_eq!([cpu.busy_ns, cpu.idle_ns, cpu.unknown_ns], [60, 0, 40]);
}

/// Whole recordings, of which switches are missing at random without a mark, as where threads are hidden
/// or the recording has some threads only.
#[test]
fn no_cpu_is_busy_for_longer_than_it_is_there() {
    const CPUS: u32 = 3;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut below = |end| random.below(end);
    for round in 0..400 {
        let dropped = below(100);
        let mut story = Story::new(Scope::default());
        let (mut current, mut time) = ([0; CPUS as usize], 0);
        for _ in 0..200 {
            time += below(20);
            let cpu = below(CPUS.into()) as usize;
            let free: Vec<Tid> = (1..8).filter(|tid| !current.contains(tid)).chain([0]).collect();
            let next = free[below(free.len() as u64) as usize];
            let (prev, state) = (current[cpu], [R, S, D][below(3) as usize]);
            let is_kept = below(100) >= dropped;
            if below(3) == 0 {
                let known = Known::Wakeup(Wakeup { tid: 1 + below(7) as Tid, comm: b"", is_new: false });
                let event = Event::whole(Some(prev), Context::Thread, known);
                if is_kept {
                    story.look(At { time, cpu: cpu as u32 }, &event);
                }
            } else if next != prev {
                current[cpu] = next;
                if is_kept {
                    story.switch(time, cpu as u32, (prev, state), next);
                }
            }
        }
        let begin = story.0.schedule.unseen(time).since();
        let answer = story.0.answer(time, &Names::none());
        let first = answer.cpus.iter().map(|cpu| cpu.busy_ns + cpu.idle_ns + cpu.unknown_ns).max();
        for cpu in &answer.cpus {
            let sum = cpu.busy_ns + cpu.idle_ns + cpu.unknown_ns;
            assert!(sum <= time - begin && Some(sum) == first, "{round}: {cpu:?}");
        }
        let busy: u64 = answer.cpus.iter().map(|cpu| cpu.busy_ns).sum();
        let ran: u64 = answer.threads.iter().map(|thread| thread.run_ns).sum();
        assert!(ran <= busy, "{round}: {dropped} % dropped: {ran} of {busy}: {answer:?}");
        if dropped == 0 {
            assert_eq!(ran, busy, "{round}");
        }
        for thread in &answer.threads {
            let all = spans(thread).iter().sum::<u64>() + thread.stopped_ns.unwrap();
            assert!(all <= time - begin, "{round}: {thread:?}");
        }
    }
}

/// A machine on which threads come and go at random.
struct Machine {
    random: Random,
    /// Who has each of its CPUs.
    current: [Tid; 3],
    time: u64,
}

/// What may happen next.
struct Step {
    at: At,
    /// Who has the CPU, and why it would give it away.
    prev: Tid,
    prev_state: u64,
    /// Somebody else without a CPU, or the idle thread.
    other: Tid,
}

impl Machine {
    fn new(seed: u64) -> Self {
        Self { random: Random(seed), current: [0; 3], time: 0 }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.below(end)
    }

    fn step(&mut self) -> Step {
        self.time += 1 + self.below(20);
        let cpu = self.below(3) as usize;
        let free: Vec<Tid> = (1..8).filter(|tid| !self.current.contains(tid)).chain([0]).collect();
        let other = free[self.below(free.len() as u64) as usize];
        let prev_state = [R, S, D][self.below(3) as usize];
        Step { at: At { time: self.time, cpu: cpu as u32 }, prev: self.current[cpu], prev_state, other }
    }
}

/// A whole recording, and what one of some threads has of it.
struct Both {
    whole: Story,
    part: Story,
    followed: Followed,
}

impl Both {
    /// The other one says this of itself.
    fn new(only: &str) -> Self {
        let story = || Story::new(Scope::default());
        Self { whole: story(), part: story(), followed: Followed::told(&[only]) }
    }

    fn look(&mut self, at: At, tid: Tid, known: Known<'_>, is_kept: bool) {
        let event = Event::whole(Some(tid), Context::Thread, known);
        self.whole.look(at, &event);
        if is_kept {
            let Self { part: Story(part, lives), followed, .. } = self;
            lives.tell(&event, |mut event| {
                followed.mark(&mut event);
                part.look(at, &event);
            });
        }
    }

    fn answers(self, end: u64) -> (SchedAnswer, SchedAnswer) {
        (self.whole.0.answer(end, &Names::none()), self.part.0.answer(end, &Names::none()))
    }
}

/// Whole recordings, and of each the records that it would have of some threads.
#[test]
fn a_recording_of_some_threads_says_no_more_than_the_whole_one() {
    let mut machine = Machine::new(0x2545_f491_4f6c_dd1d);
    let (mut known, mut all) = (0, 0);
    for round in 0..400 {
        let chosen: Vec<bool> = (0..8).map(|tid| tid != 0 && machine.below(2) == 0).collect();
        let has = |tid: Tid| chosen[tid as usize];
        let mut both = Both::new("the command");
        (machine.current, machine.time) = ([0; 3], 0);
        for _ in 0..300 {
            let Step { at, prev, prev_state, other } = machine.step();
            let (known, is_kept) = match machine.below(4) {
                0 if prev != 0 => {
                    if has(prev) {
                        both.followed.show(prev);
                    }
                    (Known::Exec { tid: prev, from: None }, has(prev))
                }
                1 if other != 0 => {
                    let wakeup = Wakeup { tid: other, comm: b"", is_new: false };
                    (Known::Wakeup(wakeup), has(prev) || has(other))
                }
                _ if other != prev => {
                    machine.current[at.cpu as usize] = other;
                    let (prev_comm, next_comm) = (b"", b"");
                    let switch = Switch { prev, prev_comm, prev_state, next: other, next_comm };
                    (Known::Switch(switch), has(prev) || has(other))
                }
                _ => continue,
            };
            both.look(at, prev, known, is_kept);
        }
        let (whole, part) = both.answers(machine.time);
        for thread in &part.threads {
            assert!(has(thread.tid), "{round}: {thread:?}");
            let (some, whole) = (spans(thread), spans(&of(&whole, thread.tid)));
            // What is unknown to the whole one as well is the time before the first event.
            let is_less = some[..4].iter().zip(&whole[..4]).all(|(some, whole)| some <= whole);
            assert!(is_less, "{round}: {} is {some:?} of {whole:?}", thread.tid);
            known += some[..4].iter().sum::<u64>();
            all += whole[..4].iter().sum::<u64>();
        }
        for cpu in &part.cpus {
            let whole = whole.cpus.iter().find(|of| of.cpu == cpu.cpu).unwrap();
            assert!(cpu.busy_ns <= whole.busy_ns && cpu.idle_ns == 0, "{round}: {cpu:?} {whole:?}");
        }
        for (some, whole) in
            [(&part.woken.unwrap(), &whole.woken.unwrap()), (&part.preempted, &whole.preempted)]
        {
            assert!(
                some.count <= whole.count && some.most_ns <= whole.most_ns,
                "{round}: {some:?} {whole:?}"
            );
        }
    }
    assert!(known > all / 2, "{known} of {all}");
}

/// The same of a choice by names, which threads change while they run. A recorder has the switch away from a
/// thread, whatever its name is by then, if it had the switch to it.
#[test]
fn threads_that_change_their_names_are_known_while_they_are_recorded() {
    let mut machine = Machine::new(0x9e6c_63d0_876a_3f6b);
    let (mut known, mut all) = (0, 0);
    for round in 0..400 {
        let mut chosen: Vec<bool> = (0..8).map(|tid| tid != 0 && machine.below(2) == 0).collect();
        let (mut both, mut owed) = (Both::new("threads named in"), [None; 3]);
        (machine.current, machine.time) = ([0; 3], 0);
        for _ in 0..300 {
            let Step { at, prev, prev_state, other } = machine.step();
            let name = |is_chosen: bool| if is_chosen { &b"in"[..] } else { b"out" };
            let [of_prev, of_other] = [prev, other].map(|tid| chosen[tid as usize]);
            let (known, is_kept) = match machine.below(6) {
                0 if prev != 0 => {
                    chosen[prev as usize] = machine.below(2) == 0;
                    let comm = Some(name(chosen[prev as usize]));
                    (Known::Renamed { tid: prev, comm, before: b"" }, of_prev)
                }
                1 if other != 0 => {
                    let wakeup = Wakeup { tid: other, comm: name(of_other), is_new: false };
                    (Known::Wakeup(wakeup), of_prev || of_other)
                }
                _ if other != prev => {
                    let cpu = at.cpu as usize;
                    let is_owed = owed[cpu] == Some(prev);
                    (machine.current[cpu], owed[cpu]) = (other, of_other.then_some(other));
                    let (prev_comm, next_comm) = (name(of_prev), name(of_other));
                    let switch = Switch { prev, prev_comm, prev_state, next: other, next_comm };
                    (Known::Switch(switch), of_prev || of_other || is_owed)
                }
                _ => continue,
            };
            both.look(at, prev, known, is_kept);
        }
        let (whole, part) = both.answers(machine.time);
        for thread in &part.threads {
            let (some, whole) = (thread.run_ns, of(&whole, thread.tid).run_ns);
            assert!(some <= whole, "{round}: {} ran {some} of {whole}", thread.tid);
            known += some;
            all += whole;
        }
        let sum = |answer: &SchedAnswer| answer.threads.iter().map(|thread| thread.run_ns).sum::<u64>();
        let busy = |answer: &SchedAnswer| answer.cpus.iter().map(|cpu| cpu.busy_ns).sum::<u64>();
        assert!(sum(&part) <= busy(&part) && busy(&part) <= busy(&whole), "{round}: {part:?}");
    }
    assert!(known > all / 3, "{known} of {all}");
}

#[test]
fn on_some_cpus_nothing_is_known_of_threads_without_one() {
    let mut story = Story::new(Scope::default());
    let mut followed = Followed::told(&["CPUs 0"]);
    let mut look = |time, known| {
        let event = Event::whole(Some(7), Context::Thread, known);
        story.1.tell(&event, |mut event| {
            followed.mark(&mut event);
            story.0.look(At { time, cpu: 0 }, &event);
        });
    };
    let switch = |prev, prev_state, next| {
        Known::Switch(Switch { prev, prev_comm: b"", prev_state, next, next_comm: b"" })
    };
    look(0, Known::Fork { child: 9, comm: b"" });
    look(10, Known::Wakeup(Wakeup { tid: 9, comm: b"", is_new: true }));
    look(20, switch(7, S, 8));
    look(60, switch(8, S, 7));
    let answer = story.0.answer(100, &Names::none());
    assert_eq!(spans(&of(&answer, 7)), [40, 0, 0, 0, 60]);
    assert_eq!(spans(&of(&answer, 8)), [40, 0, 0, 0, 60]);
    assert_eq!(spans(&of(&answer, 9)), [0, 0, 0, 0, 100]);
}

fn rows_of(answer: &SchedAnswer, tid: Tid) -> Vec<[u64; 5]> {
    let mut rows: Vec<_> = answer.threads.iter().filter(|of| of.tid == tid).map(spans).collect();
    rows.sort_unstable();
    rows
}

#[test]
fn a_thread_that_runs_another_program_has_a_row_for_each_of_its_numbers() {
    for is_renamed in [true, false] {
        let mut story = Story::new(Scope::default());
        story.switch(0, 0, (0, R), 7);
        story.switch(10, 0, (7, X), 8);
        let mut of_exec = |time, known| {
            story.look(At { time, cpu: 0 }, &Event::whole(Some(7), Context::Thread, known));
        };
        if is_renamed {
            of_exec(37, Known::Renamed { tid: 7, comm: Some(b"seven"), before: b"eight" });
            of_exec(38, Known::CallExit { number: 0, result: 0, is_raw: true });
        }
        of_exec(if is_renamed { 39 } else { 37 }, Known::Exec { tid: 7, from: Some(8) });
        story.switch(60, 0, (7, S), 0);
        let answer = story.0.answer(100, &Names::none());
        // It ran for 27, and then under the other number.
        assert_eq!(rows_of(&answer, 8), [[27, 0, 0, 0, 10]]);
        assert_eq!(rows_of(&answer, 7), [[10, 0, 0, 0, 0], [23, 0, 40, 0, 0]]);
        assert_eq!(
            answer.cpus.iter().map(|cpu| (cpu.busy_ns, cpu.unknown_ns)).collect::<Vec<_>>(),
            [(60, 0)]
        );
    }
}

#[test]
fn a_number_that_is_free_has_nobody_who_sleeps() {
    let mut story = Story::new(Scope::default());
    story.switch(0, 0, (0, R), 7);
    story.switch(10, 0, (7, X), 0);
    story.at(20, 1, Known::Fork { child: 7, comm: b"new" });
    story.at(20, 1, Known::Wakeup(Wakeup { tid: 7, comm: b"new", is_new: true }));
    story.switch(25, 0, (0, R), 7);
    story.switch(30, 0, (7, S), 0);
    story.at(35, 1, Known::Freed { tid: 7 });
    story.wake(40, 1, 7);
    story.switch(42, 0, (0, R), 7);
    story.switch(50, 0, (7, X), 0);
    // One whose end was not seen.
    story.switch(60, 0, (0, R), 9);
    story.switch(70, 0, (9, S), 0);
    story.at(80, 1, Known::Freed { tid: 9 });
    let answer = story.0.answer(800, &Names::none());
    assert_eq!(rows_of(&answer, 7), [[10, 0, 0, 0, 0], [13, 7, 10, 0, 0]]);
    assert_eq!(rows_of(&answer, 9), [[10, 0, 0, 0, 60 + 10]]);
}

#[test]
fn what_an_id_does_behind_a_loss_is_its_thread_s_if_a_record_names_it() {
    for name in [&b"seven"[..], b"new"] {
        let mut story = Story::new(Scope::default());
        story.switch(0, 0, (0, R), 7);
        story.switch(10, 0, (7, S), 0);
        story.1.lost();
        story.0.lost(At { time: 20, cpu: 1 });
        for time in [30, 40] {
            story.look(At { time, cpu: 0 }, &Event::whole(Some(7), Context::Thread, Known::Seen));
        }
        let known =
            Known::Switch(Switch { prev: 7, prev_comm: name, prev_state: S, next: 0, next_comm: b"" });
        story.at(50, 0, known);
        let answer = story.0.answer(60, &Names::none());
        let ran: Vec<_> = answer.threads.iter().map(|of| (of.comm.as_bytes(), of.run_ns)).collect();
        let expected = [(&b"seven"[..], 10), (b"new", 0)];
        assert_eq!(ran, expected[..if name == b"new" { 2 } else { 1 }]);
        assert_eq!((answer.cpus[0].busy_ns, answer.cpus[0].unknown_ns), (10, 40));
    }
}

#[test]
fn one_that_is_woken_before_it_sleeps_waits() {
    let mut story = Story::new(Scope::default());
    story.switch(0, 0, (0, R), 7);
    story.wake(9, 1, 7);
    story.switch(10, 0, (7, S), 8);
    story.switch(30, 0, (8, S), 7);
    // That one was for the sleep before.
    story.switch(40, 0, (7, S), 0);
    story.switch(50, 0, (0, R), 7);
    let answer = story.0.answer(50, &Names::none());
    assert_eq!(spans(&of(&answer, 7)), [10 + 10, 20, 10, 0, 0]);
    assert_eq!((answer.woken.unwrap().count, answer.woken.unwrap().total_ns), (1, 20));
}
