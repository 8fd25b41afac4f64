//! Names of events, and patterns that select events.

use std::fmt;
use std::str::FromStr;

use stdx::input::glob;

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

    /// The texts that programs write to trace_marker.
    pub fn trace_marker() -> Self {
        Self::new("ftrace", "print")
    }

    /// Whether this is [`trace_marker`](Self::trace_marker)'s event.
    pub fn is_trace_marker(&self) -> bool {
        self.is_ftrace_internal() && &*self.name == "print"
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

/// A text that selects no events on any kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{selector:?} does not name events: {why}")]
pub struct SelectorError {
    /// The text.
    pub selector: String,
    /// What is wrong with it.
    pub why: &'static str,
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

    /// The patterns of the system, if the text has one, and of the event; an empty one for every event.
    pub fn parts(&self) -> (Option<&str>, &str) {
        match &self.form {
            Form::All => (None, ""),
            Form::Bare => (None, &self.text),
            Form::Pair { system, name } => (Some(system), name),
        }
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

    /// Whether it names `event` itself or its system, rather than a pattern that matches one of them.
    pub fn names_event_or_system(&self, event: &EventName) -> bool {
        let (system, name) = self.parts();
        self.names(event) || system.unwrap_or(name) == event.system()
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
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let text = text.trim();
        let bad = |why| Err(SelectorError { selector: text.to_owned(), why });
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
