//! System calls, as the viewer draws them.
//!
//! Perfetto knows the numbers of 64-bit calls alone, and takes the end of a call for that of the one with its
//! number. Calls of 32-bit programs are therefore slices by their names (`B|0|compat_open`), and the ends of
//! `execve` and `execveat`, which have the number of the new program's `execve`, get that of their beginning.
//! The end of `rt_sigreturn` has the number -1; Perfetto draws that call without a duration.
//!
//! A slice without its own end would last until another call of its thread ends, or to the end of the trace.
//! Where each end is in the recording, slices end with their threads. Where ends may be missing, beginnings
//! wait for theirs ([`Held`](super::held::Held)).

use std::collections::{HashMap, HashSet};

use ftrace_event::syscalls::{ANY_CALL, CallNames, returns_to_interrupted, split};

/// Numbers of threads are lower (`PID_MAX_LIMIT`, include/linux/threads.h).
const THREADS: u32 = 1 << 22;

/// What a record of a call becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Drawn {
    /// Perfetto's own event.
    Event,
    /// Perfetto's own event, as the end of the call with this number.
    EndOf(i64),
    /// An event that the viewer does not draw.
    Undrawn,
    /// A slice with this name begins.
    Begin(String),
    /// An instant with this name.
    Instant(String),
    /// It ends.
    End,
    /// Nothing: no slice is open that it could end.
    Nothing,
}

/// Whether a number is that of a thread, to which slices can belong.
pub(super) fn is_thread(number: u32) -> bool {
    number < THREADS
}

/// Whether a program may write to `trace_marker` by a call. The viewer takes the spans that begin there for
/// parts of a slice like `B|0|compat_write`, whose end would then be that of such a span.
pub(super) fn may_write_markers(call: &str) -> bool {
    call.contains("write")
}

/// The calls that threads are in, where each end is in the recording, and how calls are drawn.
#[derive(Debug)]
pub(super) struct Calls {
    names: CallNames,
    /// There are texts of programs.
    has_markers: bool,
    /// By thread, the number that the beginning has.
    open: HashMap<u32, i64>,
    /// Threads that reclaim memory.
    reclaim: HashSet<u32>,
}

impl Calls {
    /// Of a machine with these calls; no thread is in a call. `has_markers`: the recording has texts of
    /// programs.
    pub(super) fn new(names: CallNames, has_markers: bool) -> Self {
        Self { names, has_markers, open: HashMap::new(), reclaim: HashSet::new() }
    }

    /// Whether the recording has texts of programs.
    pub(super) fn has_markers(&self) -> bool {
        self.has_markers
    }

    /// Whether a thread has a slice.
    pub(super) fn is_open(&self, thread: u32) -> bool {
        self.open.contains_key(&thread) || self.reclaim.contains(&thread)
    }

    /// A thread begins to reclaim memory, or ends that. Returns whether it did so before.
    pub(super) fn reclaims(&mut self, thread: u32, begins: bool) -> bool {
        if begins { !self.reclaim.insert(thread) } else { self.reclaim.remove(&thread) }
    }

    /// The call that a thread is in, if any, ends with the thread, or without an end. Whether it has a slice.
    pub(super) fn end_without_end(&mut self, thread: u32) -> bool {
        self.take(thread).is_some()
    }

    /// A call begins whose end comes.
    pub(super) fn begin(&mut self, thread: u32, number: i64) -> Drawn {
        if self.is_slice(number) {
            self.open(thread, number);
        }
        self.drawn(number)
    }

    /// A slice of a call begins.
    pub(super) fn open(&mut self, thread: u32, number: i64) {
        self.open.insert(thread, number);
    }

    /// The number of the call that a thread is in, which ends: perhaps by one that a tracer has given to it.
    pub(super) fn take(&mut self, thread: u32) -> Option<i64> {
        self.open.remove(&thread)
    }

    /// Whether a call, by its number among all calls, is a slice from its beginning to its end.
    pub(super) fn is_slice(&self, number: i64) -> bool {
        let name = || self.names.name(number);
        if split(number).0 {
            !(self.has_markers && name().is_some_and(may_write_markers))
        } else {
            !name().is_some_and(returns_to_interrupted)
        }
    }

    /// What the beginning of a call is whose end comes.
    pub(super) fn drawn(&self, number: i64) -> Drawn {
        match split(number) {
            (false, _) => Drawn::Event,
            (true, of_table) => {
                let name = self.name_of_compat(number, of_table);
                if self.is_slice(number) { Drawn::Begin(name) } else { Drawn::Instant(name) }
            }
        }
    }

    /// What the beginning of a call is whose end is not there.
    pub(super) fn undrawn(&self, number: i64) -> Drawn {
        match split(number) {
            (false, _) => Drawn::Undrawn,
            (true, of_table) => Drawn::Instant(self.name_of_compat(number, of_table)),
        }
    }

    /// Whether the end of a call with a number ends what has begun with another one.
    pub(super) fn is_end_of(&self, ended: i64, open: i64) -> bool {
        ended == ANY_CALL
            || self.names.is_end_of(ended, open)
            || self.names.name(open).is_some_and(returns_to_interrupted)
    }

    /// What the end of a call is that has begun with a number, or of one whose beginning is not drawn.
    pub(super) fn end_of(open: Option<i64>, number: i64) -> Drawn {
        match open {
            Some(open) if split(open).0 => Drawn::End,
            Some(open) if number != open => Drawn::EndOf(open),
            _ if split(number).0 => Drawn::Nothing,
            _ => Drawn::Event,
        }
    }

    /// The number by which a call goes that has an event of its name, if records of that have none.
    pub(super) fn number_of(&self, call: &str) -> i64 {
        self.names.number_of(call).unwrap_or(ANY_CALL)
    }

    fn name_of_compat(&self, number: i64, of_table: i64) -> String {
        self.names.name(number).map_or_else(|| format!("compat_{of_table}"), str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftrace_event::syscalls::{COMPAT, SyscallTable};

    fn calls(machine: &str) -> Calls {
        Calls::new(SyscallTable::of_machine(machine).into(), false)
    }

    /// Ends the call that a thread is in.
    fn end(calls: &mut Calls, thread: u32, number: i64) -> Drawn {
        Calls::end_of(calls.take(thread), number)
    }

    #[test]
    fn a_slice_of_a_32_bit_call_ends_with_the_call_whatever_number_its_end_has() {
        // `open`; `sigreturn`, `rt_sigreturn`; `execve` of a program of 64 bits; a number without a name.
        for (number, name, ended) in [
            (5, "compat_open", COMPAT + 5),
            (119, "compat_sigreturn", -1),
            (119, "compat_sigreturn", ANY_CALL),
            (173, "compat_rt_sigreturn", -1),
            (11, "compat_execve", 59),
            (511, "compat_511", COMPAT + 511),
        ] {
            let mut calls = calls("x86_64");
            assert!(!calls.end_without_end(7));
            assert_eq!(calls.begin(7, COMPAT | number), Drawn::Begin(name.to_owned()));
            // Another thread has none.
            assert_eq!(end(&mut calls, 8, COMPAT | number), Drawn::Nothing);
            assert_eq!(end(&mut calls, 7, ended), Drawn::End, "{name}");
            assert_eq!(end(&mut calls, 7, COMPAT | number), Drawn::Nothing, "{name}");
            assert_eq!(end(&mut calls, 7, 0), Drawn::Event, "{name}");
        }
        assert_eq!(calls("aarch64").begin(7, COMPAT + 5), Drawn::Begin("compat_5".to_owned()));
    }

    #[test]
    fn a_32_bit_call_in_which_spans_may_begin_is_an_instant() {
        // `open`; `write`, `writev`.
        for (number, has_markers, is_slice) in [
            (COMPAT + 5, true, true),
            (COMPAT + 4, true, false),
            (COMPAT + 146, true, false),
            (COMPAT + 4, false, true),
            (1, true, true),
        ] {
            let mut calls = Calls::new(SyscallTable::of_machine("x86_64").into(), has_markers);
            assert_eq!(calls.is_slice(number), is_slice, "{number}");
            let is_instant = matches!(calls.begin(7, number), Drawn::Instant(_));
            assert_eq!((is_instant, calls.is_open(7)), (!is_slice, is_slice), "{number}");
        }
    }

    #[test]
    fn calls_without_an_end_are_not_drawn() {
        let calls = calls("x86_64");
        assert_eq!(calls.undrawn(COMPAT + 5), Drawn::Instant("compat_open".to_owned()));
        assert_eq!(calls.undrawn(0), Drawn::Undrawn);
        for number in [COMPAT + 5, 0, 59] {
            let drawn = if number == COMPAT + 5 { Drawn::Nothing } else { Drawn::Event };
            assert_eq!(Calls::end_of(None, number), drawn);
        }
    }

    #[test]
    fn an_end_ends_what_has_begun_with_its_number_or_one_that_becomes_it() {
        let calls = calls("x86_64");
        // `read`; `execve`; `open`, `execve`, `sigreturn` of 32 bits.
        for (number, ended, is_end, drawn) in [
            (0, 0, true, Drawn::Event),
            (0, 1, false, Drawn::EndOf(0)),
            (59, COMPAT + 11, true, Drawn::EndOf(59)),
            (COMPAT + 5, COMPAT + 5, true, Drawn::End),
            (COMPAT + 5, COMPAT + 6, false, Drawn::End),
            (COMPAT + 11, 59, true, Drawn::End),
            (COMPAT + 119, -1, true, Drawn::End),
            (0, ANY_CALL, true, Drawn::EndOf(0)),
        ] {
            let found = (calls.is_end_of(ended, number), Calls::end_of(Some(number), ended));
            assert_eq!(found, (is_end, drawn), "{number} {ended}");
        }
    }

    #[test]
    fn a_64_bit_call_ends_by_the_number_that_it_began_with() {
        let mut calls = calls("x86_64");
        // `read`; `rt_sigreturn`; `execve` of a program of 32 bits; `execveat`; numbers that a tracer gave.
        for (number, ended, drawn) in [
            (0, 0, Drawn::Event),
            (15, -1, Drawn::Event),
            (59, COMPAT + 11, Drawn::EndOf(59)),
            (322, 59, Drawn::EndOf(322)),
            (0, -1, Drawn::EndOf(0)),
            (0, COMPAT + 3, Drawn::EndOf(0)),
        ] {
            assert_eq!(calls.begin(7, number), Drawn::Event);
            // `rt_sigreturn` has no duration.
            assert_eq!(calls.is_open(7), number != 15);
            assert_eq!(end(&mut calls, 7, ended), drawn, "{number} {ended}");
        }
        assert_eq!(end(&mut calls, 7, -1), Drawn::Event);
    }

    #[test]
    fn a_slice_without_an_end_ends_once() {
        let mut calls = calls("x86_64");
        for number in [COMPAT + 5, 0] {
            calls.begin(7, number);
            assert!(calls.end_without_end(7) && !calls.end_without_end(7));
        }
        for (begins, did) in [(true, false), (true, true), (false, true), (false, false)] {
            assert_eq!((calls.reclaims(7, begins), calls.is_open(7)), (did, begins));
        }
        assert!(is_thread(THREADS - 1) && !is_thread(THREADS) && !is_thread(u32::MAX));
    }
}
