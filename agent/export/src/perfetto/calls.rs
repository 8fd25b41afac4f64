//! System calls of `raw_syscalls`, as the viewer draws them.
//!
//! Perfetto knows the numbers of 64-bit calls alone, and takes the end of a call for that of the one with its
//! number. Calls of 32-bit programs are therefore slices by their names (`B|0|compat_open`), and the ends of
//! `execve` and `execveat`, which have the number of the new program's `execve`, get that of their beginning.
//! The end of `rt_sigreturn` has the number -1; Perfetto draws that call without a duration.
//!
//! A slice without its own end would last until another call of its thread ends. Where ends may not be in the
//! recording, calls of 32-bit programs are therefore instants, and where events were lost, open slices end.

use std::collections::HashMap;

use ftrace_event::syscalls::{CallNames, split};

/// Numbers of threads are lower (`PID_MAX_LIMIT`, include/linux/threads.h).
const THREADS: u32 = 1 << 22;

/// What a record of a call becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Drawn {
    /// The event that Perfetto has for it.
    Event,
    /// The same, as the end of the call with this number.
    EndOf(i64),
    /// A slice with this name begins.
    Begin(String),
    /// An instant with this name.
    Instant(String),
    /// It ends.
    End,
    /// Nothing: no slice is open that it could end.
    Nothing,
}

/// The calls that threads are in.
#[derive(Debug)]
pub(super) struct Calls {
    names: CallNames,
    /// Whether beginnings and ends are all in the recording, or counted as lost.
    have_ends: bool,
    /// By thread, the number that the beginning has.
    open: HashMap<u32, i64>,
}

impl Calls {
    /// Of a machine with these calls, and a recording that has each beginning and end, or not; no thread is
    /// in a call.
    pub(super) fn new(names: CallNames, have_ends: bool) -> Self {
        Self { names, have_ends, open: HashMap::new() }
    }

    /// Events were lost: which threads are in which calls is unknown. Gives the threads with open slices.
    pub(super) fn lose(&mut self) -> Vec<u32> {
        let mut threads = Vec::new();
        self.open.retain(|thread, number| {
            let (is_slice, _) = split(*number);
            threads.extend(is_slice.then_some(*thread));
            !is_slice
        });
        threads.sort_unstable();
        threads
    }

    /// Whether a thread that begins a call has a slice of an earlier one, whose end was not recorded. It is
    /// taken as ended.
    pub(super) fn ends_open_slice(&mut self, thread: u32) -> bool {
        self.open.remove(&thread).is_some_and(|open| split(open).0)
    }

    /// A call begins.
    pub(super) fn begin(&mut self, thread: u32, number: i64) -> Drawn {
        let is_known = thread < THREADS;
        if is_known && (self.have_ends || !split(number).0) {
            self.open.insert(thread, number);
        } else {
            self.open.remove(&thread);
        }
        match split(number) {
            (false, _) => Drawn::Event,
            (true, _) if !is_known => Drawn::Nothing,
            (true, of_table) => {
                let name = self.names.name(number);
                let name = name.map_or_else(|| format!("compat_{of_table}"), str::to_owned);
                if self.have_ends { Drawn::Begin(name) } else { Drawn::Instant(name) }
            }
        }
    }

    /// A call ends.
    pub(super) fn end(&mut self, thread: u32, number: i64) -> Drawn {
        match self.open.remove(&thread) {
            Some(open) if split(open).0 => Drawn::End,
            Some(open) if number != open && self.names.is_end_of(number, open) => Drawn::EndOf(open),
            _ if split(number).0 => Drawn::Nothing,
            _ => Drawn::Event,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftrace_event::syscalls::{ANY_CALL, COMPAT, SyscallTable};

    fn calls(machine: &str) -> Calls {
        Calls::new(SyscallTable::of_machine(machine).into(), true)
    }

    #[test]
    fn a_slice_of_a_32_bit_call_ends_with_the_call_whatever_number_its_end_has() {
        // `open`; `sigreturn`, `rt_sigreturn`; `execve` of a program of 64 bits; a number without a name.
        for (number, name, end) in [
            (5, "compat_open", COMPAT + 5),
            (119, "compat_sigreturn", -1),
            (119, "compat_sigreturn", ANY_CALL),
            (173, "compat_rt_sigreturn", -1),
            (11, "compat_execve", 59),
            (511, "compat_511", COMPAT + 511),
        ] {
            let mut calls = calls("x86_64");
            assert!(!calls.ends_open_slice(7));
            assert_eq!(calls.begin(7, COMPAT | number), Drawn::Begin(name.to_owned()));
            // Another thread has none.
            assert_eq!(calls.end(8, COMPAT | number), Drawn::Nothing);
            assert_eq!(calls.end(7, end), Drawn::End, "{name}");
            assert_eq!(calls.end(7, COMPAT | number), Drawn::Nothing, "{name}");
            assert_eq!(calls.end(7, 0), Drawn::Event, "{name}");
        }
        assert_eq!(calls("aarch64").begin(7, COMPAT + 5), Drawn::Begin("compat_5".to_owned()));
    }

    #[test]
    fn a_32_bit_call_is_an_instant_where_ends_may_be_missing() {
        let mut calls = Calls::new(SyscallTable::of_machine("x86_64").into(), false);
        for _ in 0..2 {
            assert_eq!(calls.begin(7, COMPAT + 5), Drawn::Instant("compat_open".to_owned()));
            assert!(!calls.ends_open_slice(7));
            assert_eq!(calls.end(7, COMPAT + 5), Drawn::Nothing);
            assert_eq!(calls.lose(), [0; 0]);
        }
        assert_eq!([calls.begin(7, 15), calls.end(7, -1)], [Drawn::Event, Drawn::Event]);
        // The viewer has drawn its beginning.
        calls.begin(7, 59);
        assert_eq!(calls.lose(), [0; 0]);
        assert_eq!(calls.end(7, COMPAT + 11), Drawn::EndOf(59));
        calls.begin(7, 15);
        calls.begin(7, COMPAT + 5);
        assert_eq!(calls.end(7, -1), Drawn::Event);
    }

    #[test]
    fn a_64_bit_call_ends_by_the_number_that_it_began_with() {
        let mut calls = calls("x86_64");
        // `read`; `rt_sigreturn`; `execve` of a program of 32 bits; `execveat`.
        for (number, end, drawn) in [
            (0, 0, Drawn::Event),
            (15, -1, Drawn::Event),
            (59, COMPAT + 11, Drawn::EndOf(59)),
            (322, 59, Drawn::EndOf(322)),
            (0, 1, Drawn::Event),
            (0, COMPAT + 3, Drawn::Nothing),
        ] {
            assert_eq!(calls.begin(7, number), Drawn::Event);
            assert_eq!(calls.end(7, end), drawn, "{number} {end}");
        }
        assert_eq!(calls.end(7, -1), Drawn::Event);
    }

    #[test]
    fn a_slice_without_an_end_ends_where_its_thread_begins_another_call() {
        let mut calls = calls("x86_64");
        calls.begin(7, COMPAT + 5);
        assert!(calls.ends_open_slice(7) && !calls.ends_open_slice(7));
        calls.begin(7, 0);
        assert!(!calls.ends_open_slice(7));
        // Events are lost.
        calls.begin(8, COMPAT + 5);
        calls.begin(6, COMPAT + 5);
        assert_eq!(calls.lose(), [6, 8]);
        assert_eq!(calls.end(8, COMPAT + 5), Drawn::Nothing);
        // No kernel has such a thread.
        assert_eq!(calls.begin(THREADS, COMPAT + 5), Drawn::Nothing);
        assert_eq!(calls.end(THREADS, COMPAT + 5), Drawn::Nothing);
    }
}
