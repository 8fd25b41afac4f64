//! System calls, as `analysis::answers::Calls` understands them.

use super::{At, Losses, Part, Row, Sink, Stamp, Thread, Threads};
use analysis::answers::{Follows, Tid, Unseen};
use ftrace_event::syscalls::{ANY_CALL, CallNames, returns_to_interrupted, without_compat};

#[derive(Clone, Copy, Debug)]
struct Open {
    number: i64,
    is_raw: bool,
    since: u64,
    first: u64,
    losses: Stamp,
}

/// What is known of a thread.
#[derive(Debug, Default)]
pub(super) struct Calling {
    open: Option<Open>,
    /// The number that the end of its last call had, and by which of the two events it was seen.
    ended: Option<(i64, bool)>,
    is_seen: bool,
    /// When the thread was made, if that was seen: in a call of another one, from which it returns, too.
    pub(super) born: Option<u64>,
}

/// What is known of calls in general.
#[derive(Debug)]
pub(super) struct Calls {
    names: CallNames,
    /// Whether the recording says when threads end.
    sees_ends: bool,
    unseen: Unseen,
}

impl Calls {
    /// Of a machine with these calls, and a recording that has `sched_switch` or not, and lacks some halves.
    pub(super) fn new(names: CallNames, has_switches: bool, unseen: Unseen) -> Self {
        Self { names, sees_ends: has_switches, unseen }
    }

    /// A call begins.
    pub(super) fn enter(
        &self,
        at: At,
        tid: Tid,
        (number, is_raw): (i64, bool),
        threads: &mut Threads,
        losses: &Losses,
        sink: &mut Sink,
    ) {
        let Some((index, thread)) = threads.find(tid, Thread::default) else { return };
        let calling = &mut thread.of.calls;
        // The other event of the same entry.
        let is_same =
            |open: Open| open.number == number && open.is_raw != is_raw && open.losses == losses.stamp();
        if calling.open.is_some_and(is_same) {
            return;
        }
        let open = Open { number, is_raw, since: at.time, first: at.event, losses: losses.stamp() };
        calling.is_seen = true;
        calling.ended = None;
        if let Some(before) = calling.open.replace(open) {
            self.tell_open(index as u32, before, at.time, losses, sink);
        }
    }

    /// A call ends, of a thread that the recording follows like this.
    pub(super) fn exit(
        &self,
        at: At,
        (tid, follows): (Tid, Follows),
        (number, result, is_raw): (i64, i64, bool),
        threads: &mut Threads,
        losses: &Losses,
        sink: &mut Sink,
    ) {
        let Some((index, thread)) = threads.find(tid, Thread::default) else { return };
        let calling = &mut thread.of.calls;
        if calling.open.is_none() && calling.ended == Some((number, !is_raw)) {
            return;
        }
        let is_first = !std::mem::replace(&mut calling.is_seen, true);
        let open = calling.open.take();
        calling.ended = Some((number, is_raw));
        // `rt_sigreturn` restores the registers of what was interrupted, and with them another number.
        let is_of_open = number < 0 || number == ANY_CALL;
        let is_its = |open: &Open| is_of_open || self.names.is_end_of(number, open.number);
        let number = open.filter(is_its).map_or(number, |open| open.number);
        let is_other = is_of_open && self.names.name(number).is_some_and(returns_to_interrupted);
        let result = if is_other { 0 } else { result };
        let index = index as u32;
        match open {
            Some(open) if open.number == number && losses.is_known(open.losses) => {
                let key = self.label(number, sink);
                let Open { since, first, .. } = open;
                let part = Part { start: since, end: at.time, key, arg: result, first, last: at.event };
                sink.slice(Row::Calls(index), part);
            }
            Some(open) => self.tell_open(index, open, at.time, losses, sink),
            // It was in the call when the recording began.
            None if is_first && !self.unseen.calls_begin && losses.are_none() && !is_of_open => {
                // A new thread returns from the call that made it, another one from what it was in when the
                // recording began; of one that was not followed since then, that is not known.
                let is_since_begin = follows.current && follows.every_cpu && follows.from_begin;
                let start = match calling.born {
                    Some(born) => (result == 0 && self.makes_threads(number)).then_some(born),
                    None => (is_since_begin && !self.may_be_of_other_number(number))
                        .then_some(0)
                        .filter(|_| result != 0 || !self.makes_threads(number)),
                };
                if let Some(start) = start {
                    let key = self.label(number, sink);
                    let part =
                        Part { start, end: at.time, key, arg: result, last: at.event, ..Part::default() };
                    sink.slice(Row::Calls(index), part);
                }
            }
            None => {}
        }
    }

    /// A thread ends, and with it the call that it is in.
    pub(super) fn end(&self, at: At, tid: Tid, threads: &mut Threads, losses: &Losses, sink: &mut Sink) {
        let Some(index) = threads.current_index(tid) else { return };
        if let Some(open) = threads.get_mut(index).and_then(|thread| thread.of.calls.open.take()) {
            self.tell_open(index as u32, open, at.time, losses, sink);
        }
    }

    pub(super) fn finish(&self, end: u64, threads: &mut Threads, losses: &Losses, sink: &mut Sink) {
        for (index, thread) in threads.iter_mut().enumerate() {
            if let Some(open) = thread.of.calls.open.take() {
                self.tell_open(index as u32, open, end, losses, sink);
            }
        }
    }

    /// Tells of a call whose end was not seen.
    fn tell_open(&self, thread: u32, open: Open, end: u64, losses: &Losses, sink: &mut Sink) {
        let is_gone =
            !self.sees_ends && self.ends_threads(open.number) || self.may_be_of_other_number(open.number);
        let is_unseen = self.unseen.calls_end
            || self.name(open.number).is_some_and(|name| self.unseen.calls_without_end.contains(name));
        let end = if is_gone || is_unseen {
            // It has ended since then, or its thread has: it would seem to be there for longer.
            open.since
        } else {
            losses.since(open.losses, open.since).map_or(end, |known| known.min(end))
        };
        let key = self.label(open.number, sink);
        let part = Part { start: open.since, end, key, arg: 0, first: open.first, last: 0 };
        sink.slice(Row::Calls(thread), part);
    }

    /// Whether a call makes threads, which return from it.
    fn makes_threads(&self, number: i64) -> bool {
        matches!(self.name(number).map(without_compat), Some("clone" | "clone3" | "fork" | "vfork"))
    }

    /// Whether nobody returns from a call.
    fn ends_threads(&self, number: i64) -> bool {
        matches!(self.name(number).map(without_compat), Some("exit" | "exit_group"))
    }

    /// Whether a thread may begin a call with one number and end it with another, which no record says.
    fn may_be_of_other_number(&self, number: i64) -> bool {
        self.unseen.execs && matches!(self.name(number).map(without_compat), Some("execve" | "execveat"))
    }

    fn name(&self, number: i64) -> Option<&str> {
        self.names.name(number)
    }

    fn label(&self, number: i64, sink: &mut Sink) -> u32 {
        match self.name(number) {
            Some(name) => sink.labels.number(name),
            None if number == ANY_CALL => sink.labels.number("unknown system call"),
            None => sink.labels.number(&format!("system call {number}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftrace_event::syscalls::SyscallTable;

    #[test]
    fn a_thread_does_not_exit_for_ever() {
        let names = SyscallTable::of_machine("x86_64").unwrap();
        // `read` and `exit_group`.
        let ends = |has_switches: bool| {
            let calls = Calls::new(Some(names).into(), has_switches, Unseen::default());
            let (mut threads, losses, mut sink) = (Threads::default(), Losses::default(), Sink::default());
            for (tid, number) in [(7, 0), (8, 231)] {
                let at = At { time: 10, cpu: 0, event: 1 };
                calls.enter(at, tid, (number, false), &mut threads, &losses, &mut sink);
            }
            calls.finish(90, &mut threads, &losses, &mut sink);
            sink.slices.iter().map(|slice| slice.end).collect::<Vec<_>>()
        };
        assert_eq!((ends(false), ends(true)), (vec![90, 10], vec![90, 90]));
    }

    #[test]
    fn a_call_is_known_up_to_a_loss_also_where_its_thread_ends() {
        let names = SyscallTable::of_machine("x86_64").unwrap();
        let calls = Calls::new(Some(names).into(), true, Unseen::default());
        let (mut threads, mut sink) = (Threads::default(), Sink::default());
        // One call begins before another CPU loses events, and one while it lacks them.
        let (before, mut losses) = (Losses::default(), Losses::default());
        let at = |time| At { time, cpu: 0, event: time };
        calls.enter(at(10), 7, (0, false), &mut threads, &before, &mut sink);
        (losses.count, losses.times, losses.has_gap) = (1, vec![30], true);
        calls.enter(at(40), 8, (0, false), &mut threads, &losses, &mut sink);
        (losses.count, losses.times) = (2, vec![30, 60]);
        for tid in [7, 8] {
            calls.end(at(90), tid, &mut threads, &losses, &mut sink);
        }
        let told: Vec<_> = sink.slices.iter().map(|slice| (slice.start, slice.end)).collect();
        assert_eq!(told, [(10, 30), (40, 40)]);
    }
}
