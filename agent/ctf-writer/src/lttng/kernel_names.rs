//! The way back: from the names of lttng-modules to those of the kernel, for traces that are imported.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::names::{ARGUMENTS, THREADS};
use super::{MAX_RT_PRIO, names};
use ftrace_event::syscalls::ANY;

/// Lines `system event name`: every event of lttng-modules 2.13 that a kernel of 5.15 or later can have, made
/// from its headers.
pub const OF_LTTNG: &str = include_str!("names_2.13.txt");

/// The kernel's events by the names of lttng-modules. What two events have as their name is of neither.
static EVENTS: LazyLock<HashMap<&str, Option<(&str, &str)>>> = LazyLock::new(|| {
    let mut events = HashMap::new();
    for line in OF_LTTNG.lines() {
        let mut words = line.split(' ');
        let (Some(system), Some(event), Some(lttng)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        events.entry(lttng).and_modify(|of| *of = None).or_insert(Some((system, event)));
    }
    events
});

/// The system and the name that the kernel has for an event of lttng-modules; `None` if that is not certain.
pub fn event(lttng: &str) -> Option<(&'static str, String)> {
    if let Some(event) = EVENTS.get(lttng) {
        let (system, event) = (*event)?;
        return Some((system, event.to_owned()));
    }
    call(lttng).map(|event| ("syscalls", event))
}

/// The event of a system call. Those of programs of 32 bits are `compat_`, which is a part of the call's name
/// here; before lttng-modules 2.6 entries were `sys_X`, and one event was the end of all calls.
fn call(lttng: &str) -> Option<String> {
    let (name, compat) = match lttng.strip_prefix("compat_") {
        Some(name) => (name, "compat_"),
        None => (lttng, ""),
    };
    if matches!(name, "exit_syscall" | "syscall_exit_unknown") {
        return Some(format!("sys_exit_{ANY}"));
    }
    let prefixes = [("syscall_entry_", "sys_enter_"), ("syscall_exit_", "sys_exit_"), ("sys_", "sys_enter_")];
    prefixes.into_iter().find_map(|(prefix, kernel)| {
        let call = name.strip_prefix(prefix).filter(|call| is_call(call))?;
        Some(format!("{kernel}{compat}{call}"))
    })
}

/// Whether it is the name of a system call, or the word for one that lttng-modules has no name for.
fn is_call(name: &str) -> bool {
    !name.is_empty()
}

/// The name of a field of an event of the kernel. `has` tells whether the event has a field of that name in
/// lttng-modules: `pid` is the process there if `tid` is the thread.
pub fn field(system: &str, event: &str, name: &str, has: impl Fn(&str) -> bool) -> String {
    if system == "syscalls" {
        let call = event.trim_start_matches("sys_enter_");
        let renamed = ARGUMENTS.iter().find(|(of, _, lttng)| *of == call && *lttng == name);
        return renamed.map_or(name, |(_, kernel, _)| kernel).to_owned();
    }
    for (kernel, lttng) in THREADS {
        if names::field(system, event, kernel) != *lttng {
            continue;
        }
        if name == *lttng {
            return (*kernel).to_owned();
        }
        if name == *kernel && has(lttng) {
            return format!("{}tgid", kernel.trim_end_matches("pid"));
        }
    }
    name.to_owned()
}

/// What a field of the kernel has more than that of lttng-modules.
pub fn more(system: &str, kernel_name: &str) -> i64 {
    if names::is_priority(system, kernel_name) { MAX_RT_PRIO } else { 0 }
}

/// The letters of `rwbs` in the kernel, by the bits that lttng-modules has (`blk_fill_rwbs`,
/// block/blk-core.c).
pub fn operation_letters(bits: u64) -> Vec<u8> {
    let is = |bit: u32| bits >> bit & 1 != 0;
    let mut letters = Vec::new();
    let mut add = |condition, letter| {
        if condition {
            letters.push(letter);
        }
    };
    add(is(10), b'F');
    match () {
        () if is(1) => {
            add(true, b'D');
            add(is(7), b'E');
        }
        () if is(0) => add(true, b'W'),
        () if is(2) => add(true, b'R'),
        () => add(true, if is(8) { b'F' } else { b'N' }),
    }
    add(is(9), b'F');
    add(is(3), b'A');
    add(is(5), b'S');
    add(is(6), b'M');
    letters
}

#[cfg(test)]
mod tests {
    use super::super::operation_bits;
    use super::*;

    #[test]
    fn every_name_leads_back() {
        let mut ambiguous = Vec::new();
        for line in OF_LTTNG.lines() {
            let words: Vec<_> = line.split(' ').collect();
            match event(words[2]) {
                Some((system, name)) => assert_eq!((system, name.as_str()), (words[0], words[1])),
                None => ambiguous.push(words[2]),
            }
        }
        ambiguous.dedup();
        assert_eq!(ambiguous, ["btrfs_find_free_extent"]);
        assert_eq!(event("syscall_exit_read"), Some(("syscalls", "sys_exit_read".to_owned())));
        let call = |name: &str| event(name).map(|(_, event)| event);
        let calls = ["compat_syscall_entry_read", "compat_syscall_exit_read", "sys_open", "compat_sys_open"];
        let events =
            ["sys_enter_compat_read", "sys_exit_compat_read", "sys_enter_open", "sys_enter_compat_open"];
        assert_eq!(calls.map(call), events.map(|event| Some(event.to_owned())));
        assert_eq!(
            ["exit_syscall", "compat_exit_syscall"].map(call),
            ["sys_exit_any", "sys_exit_any"].map(|event| Some(event.to_owned()))
        );
        assert_eq!(
            ["syscall_entry_unknown", "syscall_exit_unknown", "sys_"].map(call),
            [Some("sys_enter_unknown".to_owned()), Some("sys_exit_any".to_owned()), None]
        );
        assert_eq!(event("lttng_statedump_start"), None);
    }

    #[test]
    fn fields_lead_back() {
        let field = |event, name| field("sched", event, name, |name| matches!(name, "tid" | "child_tid"));
        assert_eq!(field("sched_switch", "prev_tid"), "prev_pid");
        assert_eq!(field("sched_process_fork", "child_tid"), "child_pid");
        assert_eq!(field("sched_process_fork", "child_pid"), "child_tgid");
        assert_eq!(field("sched_waking", "target_cpu"), "target_cpu");
        assert_eq!(super::field("syscalls", "sys_enter_mmap", "offset", |_| false), "off");
        assert_eq!(super::field("signal", "signal_generate", "pid", |_| true), "pid");
        assert_eq!((more("sched", "next_prio"), more("net", "prio")), (100, 0));
    }

    #[test]
    fn letters_lead_back() {
        for letters in ["R", "WS", "FF", "F", "FWFSM", "RA", "DE", "D", "WFSM", "N"] {
            let bits = operation_bits(letters.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(operation_letters(bits.into())).unwrap(), letters);
        }
    }
}
