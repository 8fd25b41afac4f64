//! Which events an answer is made of.

use std::collections::BTreeSet;
use std::ops::Bound;

/// Events that an analysis makes use of, and of which a recording has all records, or says that there were
/// none. What others would tell is unknown.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// `system:name`; `None` for all events.
    events: Option<BTreeSet<String>>,
}

impl Evidence {
    /// These events.
    pub(super) fn of(events: impl IntoIterator<Item = String>) -> Self {
        Self { events: Some(events.into_iter().collect()) }
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

    /// Whether begins and ends of a system call are there, also of programs of 32 bits; of any for `*`.
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
        let evidence = Evidence::of(["a:bc", "a:bd", "syscalls:sys_enter_read", "z:z"].map(str::to_owned));
        let found = ["a:bc", "a:b*", "a:bc*", "a:b", "a:be*", "zz:*"].map(|event| evidence.has(event));
        assert_eq!(found, [true, true, true, false, false, false]);
        assert!(evidence.has_any(&["a:x", "a:bd"]) && !evidence.has_all(&["a:x", "a:bd"]));
        assert!(evidence.has_call_begins("read") && evidence.has_call_begins("*"));
        assert!(!evidence.has_call_begins("write") && !evidence.has_calls("read"));
        assert!(Evidence::of(["syscalls:sys_exit_any".to_owned()]).has_call_ends("read"));
        assert!(Evidence::default().has("a:x"));
    }
}
