//! Whose a number is: threads have numbers one after the other, and one thread may have two.
//!
//! Records say it in many ways, and not all of them are in each recording. This makes one story of them,
//! which everything that tells threads apart follows: a number has a new thread ([`Known::Begins`]), it has
//! none any more ([`Known::Ends`]), or it goes to a thread that had another one ([`Known::Takes`]).
//!
//! | record | says |
//! |---|---|
//! | `task_newtask`, `sched_process_fork`, `sched_wakeup_new` | a thread is new: some of them, in order |
//! | `sched_process_exit`, a last `sched_switch` | a thread ends, and another one may get its number |
//! | `sched_process_free` | the kernel forgets a thread: often when its number has long been another one's |
//! | `sched_process_exec` | a thread becomes the first one of its process, and has its number |
//! | any other | that somebody has a number |
//!
//! Workers of io_uring and vhost are made without a fork.

use super::Followed;
use super::followed::Choice;
use super::known::{Event, Follows, Known, Tid};
use super::state;
use ftrace_event::{EventTable, Printer};
use std::sync::Arc;
use stdx::fast_map::FastMap;

/// Most numbers of which is kept what was seen. When there are more, all are forgotten.
const MOST: usize = 1 << 18;

/// As much of a name as is kept: the kernel's `TASK_COMM_LEN`.
const NAME: usize = 16;

/// How much of the making of a thread was seen, in the order of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Made,
    Forked,
    Woken,
}

/// What is known of the thread that has a number, or had it last.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each was said by another record")]
struct Life {
    /// It was seen to begin, and not to do anything yet.
    making: Option<Stage>,
    /// It was seen to begin.
    has_begun: bool,
    /// It was seen to exit.
    has_exited: bool,
    /// Nobody has the number.
    has_ended: bool,
    /// Nobody had the number when it was seen, and it was not seen to begin.
    is_found: bool,
    /// Threads that had the number before, and of which the kernel has not told that it forgets them.
    owed: u32,
    /// How many losses there had been when it began.
    losses: u64,
    /// Its last name, and how many losses there had been by then.
    name: [u8; NAME],
    named: u64,
}

/// Whose numbers are.
#[derive(Clone, Debug, Default)]
pub struct Lives {
    numbers: FastMap<Tid, Life>,
    /// The recording has the exits of threads. One was seen, which is not so where they were filtered.
    sees_exits: bool,
    losses: u64,
    /// Some CPU lacks events now.
    has_gap: bool,
    /// Of some threads or CPUs there are no records, though of all renames: a thread may end and another one
    /// get its number unseen, whose name is another one.
    has_strangers: bool,
    /// What says so.
    choice: Option<Arc<Choice>>,
}

impl Lives {
    /// Whether it looks at an event that may be of no use for anything else.
    pub(super) fn uses(system: &str, name: &str) -> bool {
        let of_sched = ["process_fork", "process_exec", "process_exit", "process_free", "wakeup_new"];
        match system {
            "sched" => name.strip_prefix("sched_").is_some_and(|name| of_sched.contains(&name)),
            "task" => matches!(name, "task_newtask" | "task_rename"),
            _ => false,
        }
    }

    /// Those of a recording with these events that follows these threads.
    pub fn of(events: &EventTable, followed: &Followed) -> Self {
        let mut lives = Self::default();
        lives.follow(events, followed);
        lives
    }

    /// The recording follows these threads from now on.
    pub(super) fn follow(&mut self, events: &EventTable, followed: &Followed) {
        let is_partial = !followed.has_all();
        // Without these records, a thread that gives itself a name has another one as well.
        let is_rename = |event: &Printer| (event.system(), event.name()) == ("task", "task_rename");
        self.has_strangers = is_partial && events.iter().any(is_rename);
        self.choice = is_partial.then(|| followed.choice());
    }

    /// Events were lost: what follows may be of other threads.
    pub fn lost(&mut self) {
        self.losses += 1;
    }

    /// A CPU lacks events from now on, or no longer. `is_open`: some CPU does.
    pub(super) fn gap(&mut self, is_open: bool) {
        self.lost();
        self.has_gap = is_open;
    }

    /// How often that was.
    #[cfg(test)]
    pub(super) fn losses(&self) -> u64 {
        self.losses
    }

    /// Gives an event to `to`, with what it says of whose numbers are: before it what makes room for it,
    /// behind it what follows from it.
    #[inline]
    pub fn tell<'r>(&mut self, event: &Event<'r>, mut to: impl FnMut(Event<'r>)) {
        let mut story = |known| to(Event { known, follows: Follows::ALL, ..*event });
        match &event.known {
            Known::Switch(switch) => {
                for (tid, comm) in [(switch.prev, switch.prev_comm), (switch.next, switch.next_comm)] {
                    if !self.goes_on(tid, comm) {
                        self.shows(tid, false, &mut story);
                        self.is_called(tid, comm, &mut story);
                    }
                }
            }
            Known::Wakeup(wakeup) => {
                self.shows_current(event, &mut story);
                if !wakeup.is_new {
                    self.is_there(wakeup.tid, &mut story);
                } else if let Some(is_seen) = self.begins(wakeup.tid, Stage::Woken) {
                    let (child, comm) = (wakeup.tid, wakeup.comm);
                    begin(Known::Begins { child, comm, is_thread: false, is_seen }, &mut story);
                }
                self.is_called(wakeup.tid, wakeup.comm, &mut story);
            }
            Known::Renamed { tid, comm, before } => {
                self.shows_current(event, &mut story);
                self.is_called(*tid, before, &mut story);
                let (losses, name) = (self.losses, comm.map(bounded).unwrap_or_default());
                let life = self.life(*tid);
                (life.name, life.named) = (name, losses);
            }
            Known::NewTask { child, comm, is_thread, .. } => {
                self.shows_current(event, &mut story);
                if let Some(is_seen) = self.begins(*child, Stage::Made) {
                    let (child, comm, is_thread) = (*child, *comm, *is_thread);
                    begin(Known::Begins { child, comm, is_thread, is_seen }, &mut story);
                }
            }
            Known::Fork { child, comm } => {
                self.shows_current(event, &mut story);
                if let Some(is_seen) = self.begins(*child, Stage::Forked) {
                    begin(Known::Begins { child: *child, comm, is_thread: false, is_seen }, &mut story);
                }
            }
            Known::Exit { tid } => {
                self.shows(*tid, true, &mut story);
                self.sees_exits = true;
                self.life(*tid).has_exited = true;
            }
            Known::Freed { tid } => {
                self.shows_current(event, &mut story);
                if self.is_freed(*tid) {
                    story(Known::Ends { tid: *tid });
                }
            }
            Known::Exec { tid, from: Some(from) } if from != tid => {
                self.takes(*from, *tid, &mut story);
            }
            Known::Exec { tid, .. } => {
                self.shows_current(event, &mut story);
                // The new program's, which a later record has.
                self.life(*tid).name = [0; NAME];
            }
            _ => self.shows_current(event, &mut story),
        }
        to(*event);
        // What it does by this name is not recorded.
        if let Known::Renamed { tid, comm: Some(comm), .. } = event.known
            && self.choice.as_ref().is_some_and(|choice| choice.leaves_out(comm))
        {
            self.life(tid).has_ended = true;
            to(Event { known: Known::Ends { tid }, ..*event });
        }
        if let Known::Switch(switch) = &event.known
            && switch.prev != 0
            && state::off(switch.prev_state).is_none()
        {
            self.sees_exits = true;
            let life = self.life(switch.prev);
            (life.has_exited, life.has_ended) = (true, true);
            to(Event { known: Known::Ends { tid: switch.prev }, ..*event });
        }
    }

    fn life(&mut self, tid: Tid) -> &mut Life {
        if self.numbers.len() >= MOST && !self.numbers.contains_key(&tid) {
            self.numbers.clear();
        }
        self.numbers.entry(tid).or_default()
    }

    /// Whether a record of a switch says nothing new of a number, as of nearly all. It may have a new name.
    #[inline]
    fn goes_on(&mut self, tid: Tid, name: &[u8]) -> bool {
        let losses = self.losses;
        let Some(life) = self.numbers.get_mut(&tid) else { return tid == 0 };
        let is_so = life.making.is_none() && !life.has_exited && !life.has_ended && life.named == losses;
        if !is_so || name.is_empty() {
            return is_so;
        }
        let name = bounded(name);
        if (self.has_gap || self.has_strangers) && life.name != name {
            return false;
        }
        life.name = name;
        true
    }

    /// The thread that a record is of does something.
    #[inline]
    fn shows_current<'r>(&mut self, event: &Event<'r>, story: &mut impl FnMut(Known<'r>)) {
        // These are made by threads that go on.
        let goes_on = matches!(
            event.known,
            Known::CallEnter { .. }
                | Known::CallExit { .. }
                | Known::Renamed { .. }
                | Known::Exec { .. }
                | Known::NewTask { .. }
                | Known::Fork { .. }
        );
        if let Some(tid) = event.tid {
            self.shows(tid, goes_on, story);
        }
    }

    /// A thread runs. `goes_on`: and has not exited yet.
    #[inline]
    fn shows<'r>(&mut self, tid: Tid, goes_on: bool, story: &mut impl FnMut(Known<'r>)) {
        if tid == 0 || self.numbers.is_empty() {
            return;
        }
        let Some(life) = self.numbers.get_mut(&tid) else { return };
        life.making = None;
        // The one that has exited is not this one.
        if goes_on && life.has_exited && !life.has_ended {
            life.has_ended = true;
            story(Known::Ends { tid });
        }
        self.is_there(tid, story);
    }

    /// A record has the name of the thread that has a number. Where it had another one before events were
    /// lost, or where not all are recorded, it may be another thread.
    #[inline]
    fn is_called<'r>(&mut self, tid: Tid, name: &[u8], story: &mut impl FnMut(Known<'r>)) {
        if tid == 0 || name.is_empty() {
            return;
        }
        let (losses, name) = (self.losses, bounded(name));
        let may_be_unseen = self.has_gap || self.has_strangers;
        let life = self.life(tid);
        let is_other = (may_be_unseen || life.named != losses) && life.name != name && life.name != [0; NAME];
        (life.name, life.named) = (name, losses);
        if is_other && (may_be_unseen || life.losses != losses) {
            *life = Life { is_found: true, losses, name, named: losses, ..Life::default() };
            story(Known::Ends { tid });
            story(Known::Begins { child: tid, comm: b"", is_thread: false, is_seen: false });
        }
    }

    /// Somebody has a number.
    #[inline]
    fn is_there<'r>(&mut self, tid: Tid, story: &mut impl FnMut(Known<'r>)) {
        let losses = self.losses;
        if let Some(life) = self.numbers.get_mut(&tid).filter(|life| life.has_ended) {
            // The former one may still be told of.
            *life = Life { is_found: true, owed: life.owed.saturating_add(1), losses, ..Life::default() };
            story(Known::Begins { child: tid, comm: b"", is_thread: false, is_seen: false });
        }
    }

    /// A record says that a thread is new. Returns whether its beginning is seen here, unless an earlier
    /// record has told of it. Where events were lost between two such records, they may be of two threads.
    fn begins(&mut self, tid: Tid, stage: Stage) -> Option<bool> {
        let losses = self.losses;
        let is_new_number = !self.numbers.contains_key(&tid);
        let life = self.life(tid);
        let may_be_told = life.making.is_some_and(|making| making < stage);
        if life.losses == losses && may_be_told {
            life.making = Some(stage);
            return None;
        }
        let owed = if is_new_number { 0 } else { life.owed.saturating_add(1) };
        *life = Life { making: Some(stage), has_begun: true, owed, losses, ..Life::default() };
        Some(!may_be_told)
    }

    /// The kernel forgets a thread. Returns whether it is the one that has its number.
    fn is_freed(&mut self, tid: Tid) -> bool {
        // Within a gap, exits may be missing.
        let (losses, sees_exits) = (self.losses, self.sees_exits && !self.has_gap);
        let Some(life) = self.numbers.get_mut(&tid) else { return true };
        if life.owed != 0 {
            life.owed -= 1;
            return false;
        }
        let is_alive = life.has_begun && !life.has_exited && sees_exits && life.losses == losses;
        if is_alive {
            return false;
        }
        let is_new = !life.has_ended;
        self.numbers.remove(&tid);
        is_new
    }

    /// A thread has the number of the first thread of its process from now on.
    fn takes<'r>(&mut self, from: Tid, to: Tid, story: &mut impl FnMut(Known<'r>)) {
        // What was seen of the number since the first thread ended is of this one already.
        let former = self.numbers.get(&to).copied().unwrap_or_default();
        if !former.is_found && !former.has_ended {
            story(Known::Ends { tid: to });
        }
        story(Known::Takes { from, to });
        let life = self.numbers.get(&from).copied().unwrap_or_default();
        // The former first thread has the other number until it is forgotten; up to Linux 5.6 its own.
        let owed = former.owed.saturating_add(u32::from(!former.is_found));
        let (name, named) = if former.is_found { (former.name, former.named) } else { ([0; NAME], 0) };
        let is_not = Life { making: None, has_exited: false, has_ended: false, is_found: false, ..life };
        *self.life(to) = Life { owed, name, named, ..is_not };
        *self.life(from) = Life { has_exited: true, has_ended: true, owed: life.owed, ..Life::default() };
    }
}

/// Tells of a thread that is new. One whose beginning was perhaps told before is found to be there.
fn begin<'r>(known: Known<'r>, story: &mut impl FnMut(Known<'r>)) {
    if let Known::Begins { child: tid, is_seen: false, .. } = known {
        story(Known::Ends { tid });
    }
    story(known);
}

/// As much of a name as is kept.
fn bounded(name: &[u8]) -> [u8; NAME] {
    let mut bounded = [0; NAME];
    for (to, byte) in bounded.iter_mut().zip(name) {
        *to = *byte;
    }
    bounded
}

#[cfg(test)]
mod tests {
    use super::super::{Context, Gaps, PassedGap, Switch, Wakeup};
    use super::*;

    const X: u64 = 0x10;

    /// The events of [`Lives`]: beginnings, seen or found, ends, and changes of number.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Told {
        Begins(Tid),
        Found(Tid),
        Ends(Tid),
        Takes(Tid, Tid),
    }
    use Told::{Begins, Ends, Found, Takes};

    fn told(lives: &mut Lives, tid: Tid, known: Known<'_>) -> Vec<Told> {
        let mut told = Vec::new();
        lives.tell(&Event::whole(Some(tid), Context::Thread, known), |event| match event.known {
            Known::Begins { child, is_seen: true, .. } => told.push(Begins(child)),
            Known::Begins { child, .. } => told.push(Found(child)),
            Known::Ends { tid } => told.push(Ends(tid)),
            Known::Takes { from, to } => told.push(Takes(from, to)),
            _ => {}
        });
        told
    }

    fn switch(prev: Tid, prev_state: u64, next: Tid) -> Known<'static> {
        Known::Switch(Switch { prev, prev_comm: b"a", prev_state, next, next_comm: b"a" })
    }

    fn fork(child: Tid) -> Known<'static> {
        Known::Fork { child, comm: b"a" }
    }

    fn first_wakeup(tid: Tid) -> Known<'static> {
        Known::Wakeup(Wakeup { tid, comm: b"a", is_new: true })
    }

    fn new_task(child: Tid) -> Known<'static> {
        let (is_thread, shares_files, shares_memory) = (true, true, true);
        Known::NewTask { child, comm: b"a", shares_files, is_thread, shares_memory }
    }

    fn renamed(tid: Tid, before: &'static [u8]) -> Known<'static> {
        Known::Renamed { tid, comm: Some(b"b"), before }
    }

    #[test]
    fn a_thread_begins_once_whatever_records_there_are() {
        let all = [new_task(7), fork(7), first_wakeup(7)];
        for left_out in 0..7_usize {
            let mut lives = Lives::default();
            let kept = all.iter().enumerate().filter(|(nth, _)| left_out >> nth & 1 == 0);
            let first: Vec<_> = kept.clone().flat_map(|(_, known)| told(&mut lives, 1, *known)).collect();
            assert_eq!(first, [Begins(7)]);
            assert_eq!(told(&mut lives, 1, switch(1, 0, 7)), []);
            // The former one has ended unseen.
            let again: Vec<_> = kept.flat_map(|(_, known)| told(&mut lives, 1, *known)).collect();
            assert_eq!(again, [Begins(7)]);
        }
    }

    #[test]
    fn in_a_part_of_a_recording_another_name_is_another_thread_but_for_a_program_of_another_name() {
        let switch_of = |name: &'static [u8]| {
            Known::Switch(Switch { prev: 1, prev_comm: b"a", prev_state: 0, next: 7, next_comm: name })
        };
        let mut lives = Lives { has_strangers: true, ..Lives::default() };
        assert_eq!(told(&mut lives, 1, switch_of(b"sh")), []);
        assert_eq!(told(&mut lives, 7, Known::Exec { tid: 7, from: Some(7) }), []);
        assert_eq!(told(&mut lives, 1, switch_of(b"ls")), []);
        assert_eq!(told(&mut lives, 1, switch_of(b"cat")), [Ends(7), Found(7)]);
        let mut whole = Lives::default();
        assert_eq!(told(&mut whole, 1, switch_of(b"sh")), []);
        assert_eq!(told(&mut whole, 1, switch_of(b"ls")), []);
    }

    #[test]
    fn a_late_end_of_the_former_thread_does_not_end_the_new_one() {
        let mut lives = Lives::default();
        assert_eq!(told(&mut lives, 7, switch(7, X, 1)), [Ends(7)]);
        assert_eq!(told(&mut lives, 1, fork(7)), [Begins(7)]);
        assert_eq!(told(&mut lives, 1, Known::Freed { tid: 7 }), []);
        assert_eq!(told(&mut lives, 1, switch(1, 0, 7)), []);
        assert_eq!(told(&mut lives, 7, Known::Exit { tid: 7 }), []);
        assert_eq!(told(&mut lives, 1, Known::Freed { tid: 7 }), [Ends(7)]);
        // Of one that had ended before the recording began.
        assert_eq!(told(&mut lives, 1, fork(9)), [Begins(9)]);
        assert_eq!(told(&mut lives, 1, Known::Freed { tid: 9 }), []);
        // Where the exit may be lost, it may be this one.
        assert_eq!(told(&mut lives, 1, fork(5)), [Begins(5)]);
        lives.lost();
        assert_eq!(told(&mut lives, 1, Known::Freed { tid: 5 }), [Ends(5)]);
    }

    #[test]
    fn ends_are_those_of_former_threads_first_where_exits_are_not_recorded() {
        let mut lives = Lives::default();
        let freed = Known::Freed { tid: 7 };
        assert_eq!(told(&mut lives, 1, fork(7)), [Begins(7)]);
        assert_eq!(told(&mut lives, 7, Known::Seen), []);
        assert_eq!(told(&mut lives, 1, fork(7)), [Begins(7)]);
        assert_eq!([told(&mut lives, 1, freed), told(&mut lives, 1, freed)], [vec![], vec![Ends(7)]]);
        assert_eq!(told(&mut lives, 1, fork(7)), [Begins(7)]);
        assert_eq!(told(&mut lives, 1, freed), [Ends(7)]);
    }

    #[test]
    fn a_thread_takes_the_number_of_the_first_one_of_its_process() {
        // 8 runs another program, while 7 was seen to end or not.
        for is_end_seen in [true, false] {
            for is_renamed in [true, false] {
                let mut lives = Lives::default();
                if is_end_seen {
                    assert_eq!(told(&mut lives, 7, switch(7, X, 8)), [Ends(7)]);
                }
                let found = is_end_seen && is_renamed;
                if is_renamed {
                    let expected = if found { vec![Found(7)] } else { vec![] };
                    assert_eq!(told(&mut lives, 7, renamed(7, b"a")), expected);
                }
                let exec = told(&mut lives, 7, Known::Exec { tid: 7, from: Some(8) });
                let expected = if is_end_seen { vec![Takes(8, 7)] } else { vec![Ends(7), Takes(8, 7)] };
                assert_eq!(exec, expected);
                assert_eq!(told(&mut lives, 7, Known::Exec { tid: 7, from: Some(7) }), []);
                // The former first thread has the other number when it is forgotten.
                assert_eq!(told(&mut lives, 1, Known::Freed { tid: 8 }), []);
                assert_eq!(told(&mut lives, 7, switch(7, 0, 1)), []);
                assert_eq!(told(&mut lives, 1, fork(8)), [Begins(8)]);
            }
        }
    }

    #[test]
    fn a_thread_begins_once_within_a_gap() {
        let (mut lives, mut gaps) = (Lives::default(), Gaps::default());
        gaps.open((0, 1), 0, &mut lives);
        for tid in [7, 8] {
            let mut all = Vec::new();
            for known in [new_task(tid), fork(tid), first_wakeup(tid)] {
                let passed = PassedGap { cpu: 1, since: 0, has_ended: false };
                assert_eq!(gaps.pass((0, 0), &mut lives), Some(passed));
                all.extend(told(&mut lives, 1, known));
            }
            assert_eq!(all, [Begins(tid)]);
        }
        // An exit was seen, that of 7 may be missing.
        assert_eq!(told(&mut lives, 8, Known::Exit { tid: 8 }), []);
        assert_eq!(told(&mut lives, 1, Known::Freed { tid: 7 }), [Ends(7)]);
        let passed = gaps.pass((0, 1), &mut lives);
        assert_eq!(passed, Some(PassedGap { cpu: 1, since: 0, has_ended: true }));
        assert_eq!((gaps.pass((0, 0), &mut lives), gaps.first()), (None, None));
        assert_eq!(told(&mut lives, 1, fork(9)), [Begins(9)]);
        assert_eq!(told(&mut lives, 1, Known::Freed { tid: 9 }), [], "it is alive");
    }

    #[test]
    fn another_name_behind_a_loss_is_another_thread() {
        let called = |comm| Known::Wakeup(Wakeup { tid: 7, comm, is_new: false });
        let mut lives = Lives::default();
        assert_eq!(told(&mut lives, 1, called(b"a")), []);
        assert_eq!(told(&mut lives, 7, renamed(7, b"a")), []);
        lives.lost();
        assert_eq!(told(&mut lives, 1, called(b"b")), []);
        lives.lost();
        assert_eq!(told(&mut lives, 7, renamed(7, b"b")), []);
        lives.lost();
        assert_eq!(told(&mut lives, 7, renamed(7, b"x")), [Ends(7), Found(7)]);
    }
}
