//! The events of this kernel, and what a user's selection of them means.
//!
//! Not every event that tracefs lists can be recorded by an eBPF program. The kernel refuses some, and,
//! worse, accepts a program for others and never calls it; [`Refusal`] names them all. An event of that kind
//! that was asked for by name is an error; one that a wildcard happened to cover is left out and listed in
//! [`Selection::skipped`].

mod selection;
#[cfg(test)]
mod tests;

use spec::{EventName, EventSelector};
use std::collections::BTreeMap;
use std::fmt;

pub use self::selection::{Rule, SelectError, Selected, Selection, Skipped, UnknownEvent};
use super::tracefs::{Tracefs, TracefsError};

/// Why an event of tracefs cannot be recorded by a tracepoint program.
///
/// `perf_event_set_bpf_prog` in `kernel/events/core.c` takes a tracepoint program only for events with the
/// flag `TRACE_EVENT_FL_TRACEPOINT` and for system calls, and answers EINVAL for the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// A record that ftrace writes itself. Its class has no `perf_probe` and the event no tracepoint
    /// (`kernel/trace/trace_export.c`).
    FtraceInternal,
    /// What is written to trace_marker. It has no tracepoint either, but programs elsewhere see it, so that
    /// it is recorded where it is asked for by its name or its system's; a pattern that covers it does not
    /// make every `write` on the machine slower.
    OnlyNamed,
    /// A probe on a kernel function, made through `kprobe_events`: takes programs of the kprobe kind only
    /// (`TRACE_EVENT_FL_KPROBE`), which see registers and not the record.
    KprobeEvent,
    /// A probe on a user function, made through `uprobe_events`: as [`Refusal::KprobeEvent`]
    /// (`TRACE_EVENT_FL_UPROBE`).
    UprobeEvent,
    /// A function or tracepoint probe of `kernel/trace/trace_fprobe.c` (`TRACE_EVENT_FL_FPROBE`): no program
    /// at all.
    FprobeEvent,
    /// A probe on another event (`TRACE_EVENT_FL_EPROBE`, `kernel/trace/trace_eprobe.c`): no program at all.
    EventProbe,
    /// An event made of other events. A program can be attached and is never called: the event has no perf
    /// path (`kernel/trace/trace_events_synth.c` registers no `perf_probe`).
    Synthetic,
    /// An event that programs write through `user_events_data`. A program can be attached and is never
    /// called: `user_event_perf` in `kernel/trace/trace_events_user.c` hands records to perf only.
    UserEvent,
}

impl Refusal {
    /// A word for scripts.
    pub fn code(self) -> &'static str {
        match self {
            Self::FtraceInternal => "ftrace-internal",
            Self::OnlyNamed => "only-named",
            Self::KprobeEvent => "kprobe-event",
            Self::UprobeEvent => "uprobe-event",
            Self::FprobeEvent => "fprobe-event",
            Self::EventProbe => "event-probe",
            Self::Synthetic => "synthetic",
            Self::UserEvent => "user-event",
        }
    }

    /// The refusal of every event in a system whose events are all of one kind, for kernels or users that
    /// cannot read `dynamic_events`. These are the default groups; events in groups of their maker's choice
    /// need the file.
    fn of_system(system: &str) -> Option<Self> {
        Some(match system {
            "ftrace" => Self::FtraceInternal,
            "kprobes" => Self::KprobeEvent,
            "uprobes" => Self::UprobeEvent,
            "fprobes" | "tracepoints" => Self::FprobeEvent,
            "eprobes" => Self::EventProbe,
            "synthetic" => Self::Synthetic,
            "user_events" | "user_events_multi" => Self::UserEvent,
            _ => return None,
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FtraceInternal => "ftrace writes it itself and no program can see it",
            Self::OnlyNamed => "patterns leave it out; name it: -e ftrace:print",
            Self::KprobeEvent => {
                "it was made through kprobe_events, and such events show a program no record"
            }
            Self::UprobeEvent => {
                "it was made through uprobe_events, and such events show a program no record"
            }
            Self::FprobeEvent => "the kernel attaches no eBPF program to fprobe events",
            Self::EventProbe => {
                "the kernel attaches no eBPF program to event probes; record the event it probes"
            }
            Self::Synthetic => {
                "the kernel never calls eBPF programs for synthetic events; record the events it is made of"
            }
            Self::UserEvent => "the kernel never calls eBPF programs for user_events",
        })
    }
}

/// An event of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: EventName,
    /// Why it cannot be recorded, if it cannot.
    pub refusal: Option<Refusal>,
}

impl Entry {
    /// Why it is not recorded where a selector that [matches](EventSelector::matches) it asks for events.
    pub fn refusal_of(&self, selector: &EventSelector) -> Option<Refusal> {
        let is_left_out = self.name.is_trace_marker() && !selector.names_event_or_system(&self.name);
        self.refusal.or(is_left_out.then_some(Refusal::OnlyNamed))
    }
}

/// Every event of this kernel by name, with the ones that cannot be recorded marked.
///
/// Knows no formats: reading all of them costs far more than the list, and most recordings want a few.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalogue {
    entries: Vec<Entry>,
}

impl Catalogue {
    /// Lists the events of the running kernel.
    pub fn read(tracefs: &Tracefs) -> Result<Self, TracefsError> {
        let names = tracefs.event_names()?;
        // Each of these exists only where the kernel was built with its feature; the system's name is the
        // fallback.
        let text = |path| tracefs.text(path).unwrap_or_default();
        Ok(Self::new(names, &text("dynamic_events"), &text("synthetic_events"), &text("user_events_status")))
    }

    /// Builds the catalogue from the names and from the texts of `dynamic_events`, `synthetic_events` and
    /// `user_events_status`.
    pub fn new(names: Vec<EventName>, dynamic: &str, synthetic: &str, user: &str) -> Self {
        let mut refusals: BTreeMap<EventName, Refusal> = dynamic.lines().filter_map(dynamic_event).collect();
        // synthetic_events: `name<TAB>type field; ...` (__synth_event_show in
        // kernel/trace/trace_events_synth.c).
        for name in synthetic.lines().filter_map(|line| line.split_whitespace().next()) {
            refusals.insert(EventName::new("synthetic", name), Refusal::Synthetic);
        }
        // user_events_status: `name # Used by ftrace`, then counters (user_seq_show in trace_events_user.c).
        for name in user.lines().filter_map(|line| line.split_whitespace().next()) {
            if !name.ends_with(':') {
                refusals.insert(EventName::new("user_events", name), Refusal::UserEvent);
            }
        }
        let mut entries: Vec<Entry> = names
            .into_iter()
            .map(|name| {
                let of_system = || Refusal::of_system(name.system()).filter(|_| !name.is_trace_marker());
                let refusal = refusals.get(&name).copied().or_else(of_system);
                Entry { name, refusal }
            })
            .collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries.dedup_by(|a, b| a.name == b.name);
        Self { entries }
    }

    /// All events, sorted by name.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The event of this name.
    pub fn get(&self, name: &EventName) -> Option<&Entry> {
        let index = self.entries.binary_search_by(|entry| entry.name.cmp(name)).ok()?;
        self.entries.get(index)
    }

    /// The events that a selector means, also those that cannot be recorded.
    pub fn matching(&self, selector: &EventSelector) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| selector.matches(&entry.name))
    }
}

/// Reads a line of `dynamic_events` (`dyn_event_seq_show` in `kernel/trace/trace_dynevent.c`; each kind
/// prints its own): `p:kprobes/name symbol`, `r16:group/name symbol`, `p:uprobes/name /path:0x12`,
/// `e:group/name system.event`, `f:fprobes/name symbol`, `t:tracepoints/name tracepoint`,
/// `s:synthetic/name<TAB>fields`, `u:name fields`.
fn dynamic_event(line: &str) -> Option<(EventName, Refusal)> {
    let mut words = line.split_whitespace();
    let (kind, name) = words.next()?.split_once(':')?;
    let target = words.next().unwrap_or_default();
    let refusal = match kind.chars().next()? {
        // Symbols of the kernel never begin with a slash, paths of files always do.
        'p' | 'r' if target.starts_with('/') => Refusal::UprobeEvent,
        'p' | 'r' => Refusal::KprobeEvent,
        'e' => Refusal::EventProbe,
        'f' | 't' => Refusal::FprobeEvent,
        's' => Refusal::Synthetic,
        'u' => return Some((EventName::new("user_events", name), Refusal::UserEvent)),
        _ => return None,
    };
    let (system, name) = name.split_once('/')?;
    Some((EventName::new(system, name), refusal))
}
