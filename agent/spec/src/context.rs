//! Contexts: facts about the current thread and CPU that an event carries.

use std::fmt;
use std::str::FromStr;

use ftrace_event::context::{COUNTER_PREFIX, Context as Known};
use ftrace_event::counters::{self, CACHE, HARDWARE, RAW, SOFTWARE};
use serde::{Deserialize, Serialize};

/// One context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Context {
    /// Something known of the thread or the CPU; not the processor or the time, which every record has.
    Known(Known),
    /// What a counter of the CPU has counted since the recording was prepared.
    Perf(Counter),
    /// A stack, as a record that follows the event's.
    Stack(StackKind),
}

/// LTTng's names of stacks.
const STACKS: [(&str, StackKind); 2] =
    [("callstack-kernel", StackKind::Kernel), ("callstack-user", StackKind::User)];

impl Context {
    /// The name of its field in a record; a stack has none.
    pub fn field(&self) -> Option<String> {
        match self {
            Self::Known(known) => Some(known.field()),
            Self::Perf(counter) => Some(counter.context_field()),
            Self::Stack(_) => None,
        }
    }
}

impl fmt::Display for Context {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(known) => out.write_str(known.name()),
            Self::Perf(counter) => write!(out, "perf:cpu:{}", counter.name()),
            Self::Stack(kind) => {
                let name = STACKS.iter().find(|(_, known)| known == kind);
                out.write_str(name.map_or("", |(name, _)| name))
            }
        }
    }
}

impl FromStr for Context {
    type Err = String;

    /// Reads a name, also one that only LTTng has (`procname`).
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(counter) = text.strip_prefix("perf:") {
            return counter.strip_prefix("cpu:").unwrap_or(counter).parse().map(Self::Perf);
        }
        if let Some((_, kind)) = STACKS.iter().find(|(name, _)| *name == text) {
            return Ok(Self::Stack(*kind));
        }
        Known::named(text).filter(|known| known.is_field()).map(Self::Known).ok_or_else(|| {
            let fields = Known::ALL.iter().filter(|(known, _)| known.is_field()).map(|(_, name)| *name);
            let known = fields.chain(STACKS.map(|(name, _)| name)).collect::<Vec<_>>().join(", ");
            format!("there is no context {text:?}; there are {known} and perf:cpu:COUNTER")
        })
    }
}

/// Whose stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StackKind {
    /// The kernel's: functions down to the one that the event is in.
    Kernel,
    /// The process's: functions down to the one that entered the kernel.
    User,
}

impl StackKind {
    /// The event that has these stacks.
    pub const fn event(self) -> &'static str {
        match self {
            Self::Kernel => "ftrace:kernel_stack",
            Self::User => "ftrace:user_stack",
        }
    }
}

/// A counter of a CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    name: String,
    kind: u32,
    config: u64,
}

impl Counter {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of its field in a record, as LTTng's contexts have it.
    pub fn context_field(&self) -> String {
        format!("{COUNTER_PREFIX}cpu_{}", self.name.replace(['-', ':'], "_"))
    }

    /// The kind: `type` of `struct perf_event_attr` (include/uapi/linux/perf_event.h).
    pub fn kind(&self) -> u32 {
        self.kind
    }

    /// The event of its kind: `config` there.
    pub fn config(&self) -> u64 {
        self.config
    }

    /// The counter of a processor's own number: `rHEX`, or with a name as LTTng has it, `raw:rHEX:NAME`.
    fn raw(text: &str) -> Option<u64> {
        let number = match text.strip_prefix("raw:") {
            Some(named) => {
                let (number, name) = named.split_once(':')?;
                let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
                (!name.is_empty() && name.chars().all(is_word)).then_some(number)?
            }
            None => text,
        };
        u64::from_str_radix(number.strip_prefix('r')?, 16).ok()
    }
}

impl FromStr for Counter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let counter = |kind, config| Self { name: text.to_owned(), kind, config };
        if let Some((_, kind, config)) = counters::all().find(|(name, ..)| *name == text) {
            return Ok(counter(kind, config));
        }
        Self::raw(text).map(|config| counter(RAW, config)).ok_or_else(|| {
            let names = |of: &[u32]| {
                let names = counters::all().filter(|(_, kind, _)| of.contains(kind));
                names.map(|(name, ..)| name).collect::<Vec<_>>().join(", ")
            };
            format!(
                "there is no counter {text:?}; there are, of the processor, {}, rHEX and raw:rHEX:NAME, and of the kernel {}",
                names(&[HARDWARE, CACHE]),
                names(&[SOFTWARE])
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field_of(context: &Context) -> String {
        context.field().unwrap_or_default()
    }

    #[test]
    fn names_are_read_and_written() {
        for (known, name) in Known::ALL.into_iter().filter(|(known, _)| known.is_field()) {
            let context: Context = name.parse().unwrap();
            assert_eq!((context.to_string().as_str(), &context), (name, &Context::Known(known)));
        }
        assert_eq!("procname".parse(), Ok(Context::Known(Known::Comm)));
        for (name, kind) in STACKS {
            let context: Context = name.parse().unwrap();
            assert_eq!((context.to_string().as_str(), &context), (name, &Context::Stack(kind)));
        }
        let counter: Context = "perf:cycles".parse().unwrap();
        assert_eq!(
            (counter.to_string().as_str(), field_of(&counter).as_str()),
            ("perf:cpu:cycles", "ctx_perf_cpu_cycles")
        );
        assert_eq!("perf:cpu:cycles".parse(), Ok(counter));
        let raw: Context = "perf:cpu:raw:r003c:mine".parse().unwrap();
        assert_eq!(field_of(&raw), "ctx_perf_cpu_raw_r003c_mine");
        for wrong in
            ["perf:cpu:raw:r003c", "perf:cpu:raw:r003c:", "perf:cpu:raw:rxx:a", "perf:cpu:raw:r1:a b"]
        {
            assert!(wrong.parse::<Context>().is_err(), "{wrong}");
        }
        assert!("cpu".parse::<Context>().unwrap_err().contains("there are pid, tid"));
        assert!("perf:cpu:nothing".parse::<Context>().unwrap_err().contains("page-faults"));
    }
}
