//! The events of this kernel, and what a user's selection of them means.
//!
//! Not every event that tracefs lists can be recorded by an eBPF program. The kernel refuses some, and,
//! worse, accepts a program for others and never calls it; [`Refusal`] names them all. An event of that kind
//! that was asked for by name is an error; one that a wildcard happened to cover is left out and listed in
//! [`Selection::skipped`].

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::tracefs::{Tracefs, TracefsError};
use crate::input::{glob, nearest};

/// How many similar names an error offers.
const SUGGESTIONS: usize = 5;

/// The full name of an event: its system and its own name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventName {
    system: Box<str>,
    name: Box<str>,
}

impl EventName {
    /// A name from its two parts.
    pub fn new(system: &str, name: &str) -> Self {
        Self { system: system.into(), name: name.into() }
    }

    /// Reads `system:name`, as `available_events` has it.
    pub fn parse(text: &str) -> Option<Self> {
        let (system, name) = text.split_once(':')?;
        (!system.is_empty() && !name.is_empty()).then(|| Self::new(system, name))
    }

    /// The part before the colon.
    pub fn system(&self) -> &str {
        &self.system
    }

    /// The part after the colon.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this is one of the records that ftrace writes itself: function entries, stacks, prints.
    pub fn is_ftrace_internal(&self) -> bool {
        &*self.system == "ftrace"
    }
}

impl fmt::Display for EventName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.system, self.name)
    }
}

impl fmt::Debug for EventName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

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

/// One `-e` argument: which events it means.
///
/// | text | meaning |
/// |---|---|
/// | `sched:sched_switch` | that event |
/// | `sched:*`, `sched:`, `sched` | every event of the system |
/// | `sched_switch` | every event of that name, in whichever system |
/// | `syscalls:sys_enter_open*`, `*:*_fault`, `irq*` | wildcards as ftrace has them, in either part |
/// | `all`, `*`, `*:*` | everything |
///
/// `sched/sched_switch` is taken for `sched:sched_switch`, as trace-cmd takes it. A text without a colon
/// means systems as well as events, as it does in `set_event` (`__ftrace_set_clr_event_nolock` in
/// `kernel/trace/trace_events.c`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventSelector {
    text: String,
    form: Form,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    All,
    Bare,
    Pair { system: String, name: String },
}

impl EventSelector {
    /// Every event.
    pub fn all() -> Self {
        Self { text: "all".to_owned(), form: Form::All }
    }

    /// The text it was made from.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether this means `event`.
    pub fn matches(&self, event: &EventName) -> bool {
        match &self.form {
            Form::All => true,
            Form::Bare => {
                glob::matches(&self.text, event.system()) || glob::matches(&self.text, event.name())
            }
            Form::Pair { system, name } => {
                glob::matches(system, event.system()) && glob::matches(name, event.name())
            }
        }
    }

    /// Whether it names `event` itself, rather than a set that has it.
    pub fn names(&self, event: &EventName) -> bool {
        match &self.form {
            Form::All => false,
            Form::Bare => self.text == event.name(),
            Form::Pair { system, name } => system == event.system() && name == event.name(),
        }
    }
}

impl FromStr for EventSelector {
    type Err = SelectError;

    fn from_str(text: &str) -> Result<Self, SelectError> {
        let text = text.trim();
        let bad = |why| Err(SelectError::Malformed { selector: text.to_owned(), why });
        if text.is_empty() {
            return bad("it is empty");
        }
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return bad("names of events have no blanks; give each event its own -e");
        }
        let form = match text.split_once([':', '/']) {
            None if text == "all" || text == "*" => Form::All,
            None => Form::Bare,
            Some((_, name)) if name.contains([':', '/']) => {
                return bad("it has more than one separator; write system:event");
            }
            Some(("", "")) => return bad("it has neither a system nor an event"),
            Some((system, name)) => {
                let or_any = |part: &str| if part.is_empty() { "*".to_owned() } else { part.to_owned() };
                Form::Pair { system: or_any(system), name: or_any(name) }
            }
        };
        Ok(Self { text: text.to_owned(), form })
    }
}

impl fmt::Display for EventSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A selector, and whether it adds events or takes them away (`-v -e X`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Which events.
    pub selector: EventSelector,
    /// Take them away. As with trace-cmd, an exclusion wins over every inclusion, wherever it stands.
    pub exclude: bool,
}

impl Rule {
    /// A rule that adds events.
    pub fn include(selector: EventSelector) -> Self {
        Self { selector, exclude: false }
    }

    /// A rule that takes events away.
    pub fn exclude(selector: EventSelector) -> Self {
        Self { selector, exclude: true }
    }
}

/// An event that is to be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    /// Which event.
    pub name: EventName,
    /// The places, in the list of rules, of the rules that asked for it: a filter belongs to the `-e` before
    /// it.
    pub rules: Vec<usize>,
}

/// An event that a wildcard covers and that cannot be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Which event.
    pub name: EventName,
    /// Why it cannot be recorded.
    pub reason: Refusal,
}

/// A selector that means no event of this kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownEvent {
    /// The selector as it was written.
    pub selector: String,
    /// What may have been meant, best first, at most five.
    pub nearest: Vec<String>,
    /// How many events the system has that was named, when there is such a system.
    pub in_system: Option<(String, usize)>,
}

impl fmt::Display for UnknownEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no such event {}", self.selector)?;
        if let Some((last, others)) = self.nearest.split_last() {
            f.write_str("; did you mean ")?;
            if !others.is_empty() {
                write!(f, "{} or ", others.join(", "))?;
            }
            write!(f, "{last}?")?;
        }
        match &self.in_system {
            Some((system, count)) if self.nearest.is_empty() => {
                write!(f, "; {system} has {count} events, see: tracer-agent list -e '{system}:*'")
            }
            None if self.nearest.is_empty() => f.write_str("; see: tracer-agent list -e"),
            _ => Ok(()),
        }
    }
}

/// What a list of rules means on this kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// The events to record, sorted by name.
    pub events: Vec<Selected>,
    /// Events that wildcards cover and that cannot be recorded, sorted by name.
    pub skipped: Vec<Skipped>,
    /// Selectors without any event, when those were to be ignored.
    pub unknown: Vec<UnknownEvent>,
}

/// Why a selection means nothing that could be recorded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// The text is no selector.
    #[error("{selector:?} does not name events: {why}")]
    Malformed {
        /// The text.
        selector: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// There is no such event. All selectors without one are listed, not just the first.
    #[error("{}", join(.0))]
    Unknown(Vec<UnknownEvent>),
    /// An event that was asked for by name cannot be recorded.
    #[error("cannot record {name}: {reason}")]
    Refused {
        /// Which event.
        name: EventName,
        /// Why.
        reason: Refusal,
    },
    /// Events were asked for, and every one was excluded or cannot be recorded.
    #[error("no event is left to record: {excluded} excluded, {} cannot be recorded{}", .skipped.len(), first_reason(.skipped))]
    NothingLeft {
        /// How many were taken away by exclusions.
        excluded: usize,
        /// Those that cannot be recorded.
        skipped: Vec<Skipped>,
    },
}

fn join(unknown: &[UnknownEvent]) -> String {
    unknown.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn first_reason(skipped: &[Skipped]) -> String {
    skipped.first().map(|Skipped { name, reason }| format!(" ({name}: {reason})")).unwrap_or_default()
}

/// An event of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: EventName,
    /// Why it cannot be recorded, if it cannot.
    pub refusal: Option<Refusal>,
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
                let refusal = refusals.get(&name).copied().or_else(|| Refusal::of_system(name.system()));
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
        let place = self.entries.binary_search_by(|entry| entry.name.cmp(name)).ok()?;
        self.entries.get(place)
    }

    /// The events that a selector means, also those that cannot be recorded.
    pub fn matching(&self, selector: &EventSelector) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| selector.matches(&entry.name))
    }

    /// What `rules` mean on this kernel. Without rules that is nothing, which is no error.
    pub fn select(&self, rules: &[Rule], ignore_unknown: bool) -> Result<Selection, SelectError> {
        let mut chosen: BTreeMap<&EventName, Vec<usize>> = BTreeMap::new();
        let mut skipped: BTreeMap<&EventName, Refusal> = BTreeMap::new();
        let mut excluded = 0;
        let mut unknown = Vec::new();
        let mut refused = None;

        for (place, rule) in rules.iter().enumerate().filter(|(_, rule)| !rule.exclude) {
            let selector = &rule.selector;
            let mut found = false;
            let mut recordable = false;
            let mut named = None;
            for Entry { name, refusal } in self.matching(selector) {
                found = true;
                match *refusal {
                    None => {
                        recordable = true;
                        chosen.entry(name).or_default().push(place);
                    }
                    Some(reason) => {
                        if selector.names(name) {
                            named = named.or(Some((name, reason)));
                        }
                        skipped.insert(name, reason);
                    }
                }
            }
            if !found {
                unknown.push(self.unknown(selector));
            }
            // A bare name that means a recordable event too was not about the other one.
            if let (false, Some((name, reason)), None) = (recordable, named, &refused) {
                refused = Some(SelectError::Refused { name: name.clone(), reason });
            }
        }
        for rule in rules.iter().filter(|rule| rule.exclude) {
            if self.matching(&rule.selector).next().is_none() {
                unknown.push(self.unknown(&rule.selector));
            }
            let before = chosen.len();
            chosen.retain(|name, _| !rule.selector.matches(name));
            excluded += before - chosen.len();
            skipped.retain(|name, _| !rule.selector.matches(name));
        }

        if !ignore_unknown && !unknown.is_empty() {
            return Err(SelectError::Unknown(unknown));
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
        let skipped: Vec<Skipped> =
            skipped.into_iter().map(|(name, reason)| Skipped { name: name.clone(), reason }).collect();
        if chosen.is_empty() && (excluded > 0 || !skipped.is_empty()) {
            return Err(SelectError::NothingLeft { excluded, skipped });
        }
        let events = chosen.into_iter().map(|(name, rules)| Selected { name: name.clone(), rules }).collect();
        Ok(Selection { events, skipped, unknown })
    }

    /// Describes a selector that means no event.
    fn unknown(&self, selector: &EventSelector) -> UnknownEvent {
        let (system, name) = match &selector.form {
            Form::All => (None, ""),
            Form::Bare => (None, selector.text.as_str()),
            Form::Pair { system, name } => (Some(system.as_str()), name.as_str()),
        };
        let of_system = |wanted| self.entries.iter().filter(move |entry| entry.name.system() == wanted);
        let count = system.map_or(0, |system| of_system(system).count());
        UnknownEvent {
            selector: selector.text.clone(),
            nearest: self.nearest(system, name),
            in_system: system.filter(|_| count > 0).map(|system| (system.to_owned(), count)),
        }
    }

    /// The names that are most like one that does not exist. Without a system, names of systems count as
    /// well.
    fn nearest(&self, system: Option<&str>, name: &str) -> Vec<String> {
        let name: String = name.chars().filter(|c| !"*?[]\\".contains(*c)).collect();
        let mut scored: Vec<(usize, String)> = Vec::new();
        for Entry { name: event, refusal } in &self.entries {
            if refusal.is_some() {
                continue;
            }
            let foreign = match system {
                None => 0,
                Some(system) if glob::matches(system, event.system()) => 0,
                // The right event in the wrong system is likelier than a similar event in the right one.
                Some(system) => 1 + nearest::distance(system, event.system()).min(4),
            };
            if let Some(score) = nearest::score(&name, event.name()) {
                scored.push((score + foreign, event.to_string()));
            }
        }
        let mut systems: Vec<&str> = self.entries.iter().map(|entry| entry.name.system()).collect();
        systems.dedup();
        // `shed:*` is about the system, `shed` may be.
        let wanted = match system {
            Some(system) if name.is_empty() => system,
            Some(_) => "",
            None => &name,
        };
        for candidate in systems {
            if let Some(score) = nearest::score(wanted, candidate) {
                scored.push((score, format!("{candidate}:*")));
            }
        }
        scored.sort();
        // With a near miss at hand, names that only share a part with it are noise; two points are one
        // mistyped letter.
        let enough = scored.first().map_or(0, |(best, _)| best + if *best <= 2 { 1 } else { 8 });
        scored.retain(|(score, _)| *score <= enough);
        scored.truncate(SUGGESTIONS);
        scored.into_iter().map(|(_, name)| name).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    const DYNAMIC: &str = "p:kprobes/myopen do_sys_openat2 dfd=%ax\n\
        r16:sched/myret do_sys_openat2 ret=$retval\n\
        p:uprobes/bash /bin/bash:0x00000000000bbde0 arg=%ax\n\
        e:eprobes/ep sched.sched_switch pid=$prev_pid\n\
        f:fprobes/fp vfs_read\n\
        t:tracepoints/tp sched_switch\n\
        s:synthetic/wakeup_lat\tu64 lat; pid_t pid;\n\
        u:app_event u32 count\n\
        \n\
        ?:what/ever\n";

    fn catalogue() -> Catalogue {
        let names = [
            "sched:sched_switch",
            "sched:sched_wakeup",
            "sched:sched_waking",
            "sched:sched_process_exec",
            "sched:myret",
            "irq:irq_handler_entry",
            "irq:softirq_entry",
            "irq_vectors:call_function_entry",
            "syscalls:sys_enter_open",
            "syscalls:sys_enter_openat",
            "syscalls:sys_exit_openat",
            "raw_syscalls:sys_enter",
            "kmem:kmalloc",
            "kmem:kfree",
            "kprobes:myopen",
            "uprobes:bash",
            "eprobes:ep",
            "fprobes:fp",
            "tracepoints:tp",
            "synthetic:wakeup_lat",
            "synthetic:other",
            "user_events:app_event",
            "user_events:app_two",
            "ftrace:function",
            "ftrace:print",
        ];
        let names = names.iter().map(|name| EventName::parse(name).unwrap()).collect();
        Catalogue::new(names, DYNAMIC, "other\tu64 x\n", "app_two # Used by ftrace\n\nActive: 2\nBusy: 0\n")
    }

    fn rule(text: &str) -> Rule {
        Rule::include(text.parse().unwrap())
    }

    fn not(text: &str) -> Rule {
        Rule::exclude(text.parse().unwrap())
    }

    fn select(rules: &[Rule]) -> Vec<String> {
        catalogue().select(rules, false).unwrap().events.iter().map(|event| event.name.to_string()).collect()
    }

    fn message(text: &str) -> String {
        catalogue().select(&[rule(text)], false).unwrap_err().to_string()
    }

    #[test]
    fn selectors_mean_what_trace_cmd_means_by_them() {
        assert_eq!(select(&[rule("sched:sched_switch")]), ["sched:sched_switch"]);
        assert_eq!(select(&[rule("sched/sched_switch")]), ["sched:sched_switch"]);
        let sched =
            ["sched:sched_process_exec", "sched:sched_switch", "sched:sched_wakeup", "sched:sched_waking"];
        assert_eq!(select(&[rule("sched")]), sched);
        assert_eq!(select(&[rule("sched:*")]), sched);
        assert_eq!(select(&[rule("sched:")]), sched);
        assert_eq!(select(&[rule("sched_wak*")]), ["sched:sched_wakeup", "sched:sched_waking"]);
        assert_eq!(select(&[rule("kmalloc")]), ["kmem:kmalloc"]);
        assert_eq!(select(&[rule(":kmalloc")]), ["kmem:kmalloc"]);
        assert_eq!(
            select(&[rule("syscalls:sys_enter_open*")]),
            ["syscalls:sys_enter_open", "syscalls:sys_enter_openat"]
        );
        assert_eq!(
            select(&[rule("irq*:*_entry")]),
            ["irq:irq_handler_entry", "irq:softirq_entry", "irq_vectors:call_function_entry"]
        );
        assert_eq!(select(&[rule("all")]).len(), 13);
        assert_eq!(select(&[rule("all")]), select(&[rule("*:*")]));
        assert_eq!(select(&[rule("all")]), select(&[rule("*")]));
        assert!(select(&[]).is_empty());
    }

    #[test]
    fn exclusions_win_wherever_they_stand() {
        let expected = ["sched:sched_process_exec", "sched:sched_switch"];
        assert_eq!(select(&[rule("sched"), not("*wak*")]), expected);
        assert_eq!(select(&[not("*wak*"), rule("sched")]), expected);
        let error = catalogue().select(&[rule("kmem"), not("kmem:*")], false).unwrap_err();
        assert_eq!(error, SelectError::NothingLeft { excluded: 2, skipped: vec![] });
    }

    #[test]
    fn an_event_remembers_every_rule_that_asked_for_it() {
        let selection =
            catalogue().select(&[rule("sched"), not("sched_wak*"), rule("sched_switch")], false).unwrap();
        assert_eq!(selection.events[1].name.to_string(), "sched:sched_switch");
        assert_eq!(selection.events[1].rules, [0, 2]);
    }

    #[test]
    fn every_kind_of_unrecordable_event_is_recognised() {
        let catalogue = catalogue();
        let refusal = |name: &str| catalogue.get(&EventName::parse(name).unwrap()).unwrap().refusal;
        assert_eq!(refusal("sched:sched_switch"), None);
        assert_eq!(refusal("sched:myret"), Some(Refusal::KprobeEvent));
        assert_eq!(refusal("kprobes:myopen"), Some(Refusal::KprobeEvent));
        assert_eq!(refusal("uprobes:bash"), Some(Refusal::UprobeEvent));
        assert_eq!(refusal("eprobes:ep"), Some(Refusal::EventProbe));
        assert_eq!(refusal("fprobes:fp"), Some(Refusal::FprobeEvent));
        assert_eq!(refusal("tracepoints:tp"), Some(Refusal::FprobeEvent));
        assert_eq!(refusal("synthetic:wakeup_lat"), Some(Refusal::Synthetic));
        assert_eq!(refusal("synthetic:other"), Some(Refusal::Synthetic));
        assert_eq!(refusal("user_events:app_event"), Some(Refusal::UserEvent));
        assert_eq!(refusal("user_events:app_two"), Some(Refusal::UserEvent));
        assert_eq!(refusal("ftrace:function"), Some(Refusal::FtraceInternal));
    }

    #[test]
    fn the_systems_tell_the_kind_when_dynamic_events_cannot_be_read() {
        let names = ["user_events:x", "synthetic:y", "eprobes:z", "ftrace:print", "sched:sched_switch"];
        let names = names.iter().map(|name| EventName::parse(name).unwrap()).collect();
        let selection = Catalogue::new(names, "", "", "").select(&[rule("all")], false).unwrap();
        assert_eq!(selection.events.len(), 1);
        assert_eq!(selection.skipped.len(), 4);
    }

    #[test]
    fn an_unrecordable_event_is_an_error_by_name_and_skipped_by_wildcard() {
        assert_eq!(
            message("ftrace:function"),
            "cannot record ftrace:function: ftrace writes it itself and no program can see it"
        );
        assert!(message("synthetic:wakeup_lat").contains("synthetic"));
        assert!(message("app_event").starts_with("cannot record user_events:app_event: "));
        let selection = catalogue().select(&[rule("all")], false).unwrap();
        assert_eq!(selection.skipped.len(), 12);
        assert!(
            selection.skipped.contains(&Skipped {
                name: EventName::new("ftrace", "print"),
                reason: Refusal::FtraceInternal
            })
        );
        assert!(message("ftrace:*").starts_with("no event is left to record: 0 excluded, 2 cannot"));
    }

    #[test]
    fn unknown_events_come_with_the_names_that_may_have_been_meant() {
        assert_eq!(
            message("sched:sched_swich"),
            "no such event sched:sched_swich; did you mean sched:sched_switch?"
        );
        assert_eq!(message("sched_swtich"), "no such event sched_swtich; did you mean sched:sched_switch?");
        assert_eq!(
            message("irq:sched_switch"),
            "no such event irq:sched_switch; did you mean sched:sched_switch?"
        );
        assert_eq!(message("sched:switch"), "no such event sched:switch; did you mean sched:sched_switch?");
        assert_eq!(message("shced:*"), "no such event shced:*; did you mean sched:*?");
        assert_eq!(message("shced"), "no such event shced; did you mean sched:*?");
        assert_eq!(
            message("sched:foo"),
            "no such event sched:foo; sched has 5 events, see: tracer-agent list -e 'sched:*'"
        );
        assert_eq!(message("zzzzzz:qqq"), "no such event zzzzzz:qqq; see: tracer-agent list -e");
        let SelectError::Unknown(unknown) =
            catalogue().select(&[rule("x:y"), not("nope")], false).unwrap_err()
        else {
            panic!("both are unknown");
        };
        assert_eq!(unknown.len(), 2);
    }

    #[test]
    fn at_most_five_names_are_offered() {
        let names = (0..50).map(|n| EventName::new("sys", &format!("event_{n}"))).collect();
        let catalogue = Catalogue::new(names, "", "", "");
        let SelectError::Unknown(unknown) = catalogue.select(&[rule("sys:event_x")], false).unwrap_err()
        else {
            panic!("there is no event_x");
        };
        assert_eq!(unknown[0].nearest.len(), SUGGESTIONS);
    }

    #[test]
    fn unknown_events_can_be_ignored() {
        let selection = catalogue().select(&[rule("kmalloc"), rule("sched:foo")], true).unwrap();
        assert_eq!(selection.events.len(), 1);
        assert_eq!(selection.unknown[0].selector, "sched:foo");
        let nothing = catalogue().select(&[rule("sched:foo")], true).unwrap();
        assert!(nothing.events.is_empty());
    }

    #[test]
    fn texts_that_are_no_selectors_are_refused() {
        for text in ["", "  ", "a b", ":", "a:b:c", "a/b/c", "a\0b"] {
            assert!(matches!(text.parse::<EventSelector>(), Err(SelectError::Malformed { .. })), "{text:?}");
        }
    }
}
