//! Which events an answer is made of.

use std::collections::BTreeSet;
use std::ops::Bound;

/// Events that an analysis makes use of, and that were recorded: a recording has records of them that are
/// understood, or says that it would have had. What others would tell is unknown.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// `system:name`; `None` for all events.
    events: Option<BTreeSet<String>>,
    /// Those that the kernel has, as far as the recording describes them.
    described: BTreeSet<String>,
}

impl Evidence {
    /// All events.
    pub(super) fn all() -> Self {
        Self { events: None, described: BTreeSet::new() }
    }

    /// These events, of a recording that describes others, too.
    pub(super) fn of(
        events: impl IntoIterator<Item = String>,
        described: impl IntoIterator<Item = String>,
    ) -> Self {
        Self { events: Some(events.into_iter().collect()), described: described.into_iter().collect() }
    }

    /// Whether there is such an event: `system:name`, in which `*` at the end stands for anything.
    pub(super) fn has(&self, event: &str) -> bool {
        let Some(events) = &self.events else { return true };
        match event.strip_suffix('*') {
            Some(start) => {
                let from = (Bound::Included(start), Bound::Unbounded);
                events.range::<str, _>(from).next().is_some_and(|first| first.starts_with(start))
            }
            None => events.contains(event),
        }
    }

    /// Whether there is one of several.
    pub(super) fn has_any(&self, events: &[&str]) -> bool {
        events.iter().any(|event| self.has(event))
    }

    /// Whether there are all of several.
    pub(super) fn has_all(&self, events: &[&str]) -> bool {
        events.iter().all(|event| self.has(event))
    }

    /// Whether there is one of several, and none that the kernel has is missing: kernels before 6.1 have
    /// events that others do not have.
    pub(super) fn has_described(&self, events: &[&str]) -> bool {
        self.has_any(events) && events.iter().all(|event| self.has(event) || !self.described.contains(*event))
    }

    /// Whether begins and ends of any one system call are there.
    pub(super) fn has_whole_calls(&self) -> bool {
        let Some(events) = &self.events else { return true };
        let mut begins = events.iter().filter_map(|event| event.strip_prefix("syscalls:sys_enter_"));
        self.has("raw_syscalls:sys_enter") && self.has_call_ends("*")
            || begins.any(|name| self.has_call_ends(name))
    }

    /// Whether begins and ends of a system call are there, also of programs of 32 bits.
    pub(super) fn has_calls(&self, name: &str) -> bool {
        let has = |name: &str| self.has_call_begins(name) && self.has_call_ends(name);
        has(name) || has(&format!("compat_{name}"))
    }

    /// Whether begins of such calls are there.
    pub(super) fn has_call_begins(&self, name: &str) -> bool {
        self.has("raw_syscalls:sys_enter") || self.has(&format!("syscalls:sys_enter_{name}"))
    }

    /// Whether ends of such calls are there.
    pub(super) fn has_call_ends(&self, name: &str) -> bool {
        let any = ftrace_event::syscalls::ANY;
        self.has_any(&["raw_syscalls:sys_exit", &format!("syscalls:sys_exit_{any}")])
            || self.has(&format!("syscalls:sys_exit_{name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_by_name_and_by_how_names_begin() {
        let of = |events: &[&str], described: &[&str]| {
            let [events, described] =
                [events, described].map(|of| of.iter().map(|event| (*event).to_owned()));
            Evidence::of(events, described)
        };
        let evidence = of(&["a:bc", "a:bd", "syscalls:sys_enter_read", "z:z"], &["a:bc", "a:node"]);
        let found = ["a:bc", "a:b*", "a:bc*", "a:b", "a:be*", "zz:*"].map(|event| evidence.has(event));
        assert_eq!(found, [true, true, true, false, false, false]);
        assert!(evidence.has_any(&["a:x", "a:bd"]) && !evidence.has_all(&["a:x", "a:bd"]));
        assert!(evidence.has_call_begins("read") && evidence.has_call_begins("*"));
        assert!(!evidence.has_call_begins("write") && !evidence.has_calls("read"));
        assert!(evidence.has_described(&["a:bc", "a:absent"]) && !evidence.has_described(&["a:absent"]));
        assert!(!evidence.has_described(&["a:bc", "a:node"]));
        assert!(of(&["syscalls:sys_exit_any"], &[]).has_call_ends("read"));
        assert!(Evidence::all().has("a:x") && Evidence::all().has_whole_calls());
    }

    #[test]
    fn calls_are_whole_if_one_of_them_has_both_ends() {
        let (enter, exit) = ("raw_syscalls:sys_enter", "raw_syscalls:sys_exit");
        let [enter_read, exit_read] = ["syscalls:sys_enter_read", "syscalls:sys_exit_read"];
        for (events, expected) in [
            ([enter, exit], true),
            ([enter, exit_read], true),
            ([enter_read, exit], true),
            ([enter_read, exit_read], true),
            ([enter_read, "syscalls:sys_exit_write"], false),
            ([enter_read, enter], false),
            ([exit_read, exit], false),
        ] {
            let evidence = Evidence::of(events.map(str::to_owned), []);
            assert_eq!(evidence.has_whole_calls(), expected, "{events:?}");
        }
    }
}
