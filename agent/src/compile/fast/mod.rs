//! The fast lane: programs on raw tracepoints that build the very record that tracefs describes.
//!
//! A tracepoint program gets the record that the kernel has built for perf, and copies it. A program on the
//! raw tracepoint gets the tracepoint's arguments and writes the record straight into the page, which saves
//! the kernel's building it and the copy, needs no perf event, and is detached at once. It has to know how
//! the kernel makes the fields: the files in `events`, one for a subsystem, say so (`language`). They are
//! compiled at the start (`compile`) against the event's format in tracefs and the kernel's BTF, and whatever
//! does not match sends the event to the generic lane.
//!
//! | module | subject |
//! |---|---|
//! | `language` | the descriptions |
//! | `compile` | from a description to instructions |
//! | `syscalls` | system calls, which have programs of their own |
//! | `strings` | the strings that these are given |

pub(crate) mod compile;
pub(crate) mod language;
pub(crate) mod strings;
mod syscalls;

use std::{collections::HashMap, fmt, str::FromStr};

pub use compile::Mismatch;
pub use strings::StringLimit;
pub(crate) use syscalls::Table;
pub use syscalls::{Call, Hooks};

use compile::{Access, Asked, Extras, Rules, TypeNames, compile};
use language::Definition;
use serde::{Deserialize, Serialize};

use super::{
    aggregate::Counter,
    context::ContextLayout,
    filter::{self, Facts},
};
use crate::{
    bpf::program::Body,
    event::{Format, filter::program::Test},
    kernel::{
        btf::{Btf, TypeId},
        version::KernelVersion,
    },
};

/// From here on the kernel keeps a raw tracepoint's program from interrupting itself (`__bpf_trace_run`,
/// kernel/trace/bpf_trace.c), which each event's counts rely on.
const SINCE: KernelVersion = KernelVersion::new(6, 1, 0);

/// The descriptions, by system.
static DESCRIPTIONS: [(&str, &str); 14] = [
    ("block", include_str!("events/block.txt")),
    ("exceptions", include_str!("events/exceptions.txt")),
    ("irq", include_str!("events/irq.txt")),
    ("kmem", include_str!("events/kmem.txt")),
    ("net", include_str!("events/net.txt")),
    ("power", include_str!("events/power.txt")),
    ("raw_syscalls", include_str!("events/raw_syscalls.txt")),
    ("sched", include_str!("events/sched.txt")),
    ("signal", include_str!("events/signal.txt")),
    ("sock", include_str!("events/sock.txt")),
    ("task", include_str!("events/task.txt")),
    ("tcp", include_str!("events/tcp.txt")),
    ("timer", include_str!("events/timer.txt")),
    ("workqueue", include_str!("events/workqueue.txt")),
];

/// Which lane events take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LaneChoice {
    /// The fast one where it can be.
    #[default]
    Auto,
    /// The generic one, always.
    Generic,
    /// The fast one; an event that cannot take it is not recorded.
    Fast,
}

impl LaneChoice {
    /// Every one, with its name.
    pub const NAMES: [(&str, Self); 3] =
        [("auto", Self::Auto), ("fast", Self::Fast), ("generic", Self::Generic)];
}

impl fmt::Display for LaneChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMES.iter().find(|(_, lane)| lane == self).map_or("", |(name, _)| name))
    }
}

impl FromStr for LaneChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::NAMES.iter().find(|(name, _)| *name == text);
        known.map(|(_, lane)| *lane).ok_or_else(|| "expected auto, fast or generic".to_owned())
    }
}

/// How an event is recorded.
#[derive(Clone, Debug, Default)]
pub enum Lane {
    /// By a generic program.
    #[default]
    Generic,
    /// By a program of its own.
    Fast(FastEvent),
    /// By the programs of a probe.
    Probe,
    /// By the programs of the events that it follows.
    Stack(StackKind),
}

/// Whose stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StackKind {
    /// The kernel's: functions down to the one that the event is in.
    Kernel,
    /// The process's: functions down to the one that entered the kernel.
    User,
}

impl Lane {
    /// Its name, for people and files.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Generic => "generic",
            Self::Fast(_) => "fast",
            Self::Probe => "probe",
            Self::Stack(_) => "stack",
        }
    }
}

/// A program for one event, ready to be loaded.
#[derive(Clone, Debug)]
pub struct FastEvent(pub(crate) Kind);

impl FastEvent {
    /// Has its records carry this number in the place of the event's id. Those of system calls carry what
    /// their slots say.
    pub(crate) fn set_id(&mut self, number: u16) {
        if let Kind::Own { id, .. } = &mut self.0 {
            *id = number;
        }
    }
}

/// What kind of program.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// One for this event alone.
    Own {
        /// The event's id.
        id: u16,
        /// `attach_btf_id`.
        tracepoint: TypeId,
        /// With direct loads.
        direct: Body,
        /// With copied members, should the kernel refuse the other.
        copied: Body,
    },
    /// The one for all system calls.
    Call(Call),
    /// One for this event alone that another process has attached: there is no code of it here.
    Attached,
}

/// The kernel is too old for the fast lane.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the fast lane needs Linux {SINCE} or later")]
pub struct TooOld;

/// Plans fast events for the running kernel.
#[derive(Debug)]
pub struct FastLane<'a> {
    btf: &'a Btf,
    types: TypeNames<'a>,
    access: Access,
    definitions: HashMap<&'static str, Vec<Definition<'static>>>,
    calls: Option<Hooks>,
}

impl<'a> FastLane<'a> {
    /// The lane on the running kernel, whose type information `btf` is.
    pub fn new(btf: &'a Btf) -> Result<Self, TooOld> {
        KernelVersion::running().filter(|running| *running >= SINCE).ok_or(TooOld)?;
        let access = Access::of_kernel(btf);
        Ok(Self { btf, types: TypeNames::new(btf), access, definitions: HashMap::new(), calls: None })
    }

    /// A program for this event, with a filter of its records, and contexts that are part of `format`.
    pub fn plan(
        &mut self,
        system: &str,
        name: &str,
        format: &Format,
        filter: Option<(&Test, &Facts)>,
        contexts: &ContextLayout,
    ) -> Result<FastEvent, Mismatch> {
        let filter =
            filter.map(|(test, facts)| filter::Program::compile_fast(test, format.id, facts)).transpose()?;
        let filter = filter.as_ref().map(|program| Asked { program, apart: None });
        self.plan_with(system, name, format, Extras { filter, counter: None, contexts })
    }

    /// A program that counts this event's records, those that the filter takes.
    pub(crate) fn plan_counting(
        &mut self,
        system: &str,
        name: &str,
        format: &Format,
        filter: Option<&filter::Program>,
        counter: &Counter,
    ) -> Result<FastEvent, Mismatch> {
        let filter = filter.map(|program| Asked { program, apart: None });
        let contexts = &ContextLayout::default();
        self.plan_with(system, name, format, Extras { filter, counter: Some(counter), contexts })
    }

    fn plan_with(
        &mut self,
        system: &str,
        name: &str,
        format: &Format,
        extras: Extras<'_>,
    ) -> Result<FastEvent, Mismatch> {
        // What counts has a program of its own.
        if system == "syscalls" && extras.counter.is_some() {
            return self.plan_counted_call(name, format, extras);
        }
        if matches!(system, "syscalls" | "raw_syscalls") && extras.counter.is_none() {
            if extras.filter.is_some() || !extras.contexts.is_empty() {
                return Err(Mismatch::SharedProgram);
            }
            if self.calls.is_none() {
                self.calls = Some(Hooks::find(self.btf)?);
            }
            return syscalls::plan(system, name, format).map(|call| FastEvent(Kind::Call(call)));
        }
        self.plan_described(system, name, format, extras)
    }

    /// A program that counts the records of a single system call.
    fn plan_counted_call(
        &mut self,
        name: &str,
        format: &Format,
        extras: Extras<'_>,
    ) -> Result<FastEvent, Mismatch> {
        let (tracepoint, text) = syscalls::description(name, format)?;
        let definitions =
            language::parse(&text).map_err(|_| Mismatch::Expression("the names of its fields"))?;
        let found = self.btf.raw_tracepoint(tracepoint)?;
        let definition = definitions.first().ok_or(Mismatch::NotDescribed)?;
        let compiled =
            |access| compile(definition, &found.args, format, &self.types, access, Rules::FAST, extras);
        let (direct, copied) = (compiled(self.access)?, compiled(Access::Copied)?);
        Ok(FastEvent(Kind::Own { id: format.id, tracepoint: found.id, direct, copied }))
    }

    fn plan_described(
        &mut self,
        system: &str,
        name: &str,
        format: &Format,
        extras: Extras<'_>,
    ) -> Result<FastEvent, Mismatch> {
        let (&system, text) = DESCRIPTIONS
            .iter()
            .map(|(known, text)| (known, text))
            .find(|(known, _)| **known == system)
            .ok_or(Mismatch::NotDescribed)?;
        let definitions =
            self.definitions.entry(system).or_insert_with(|| language::parse(text).unwrap_or_default());
        let mut mismatch = Mismatch::NotDescribed;
        let mut tracepoint = None;
        for definition in definitions.iter().filter(|definition| definition.names.contains(&name)) {
            let found = match &tracepoint {
                Some(found) => found,
                None => tracepoint.insert(self.btf.raw_tracepoint(name)?),
            };
            let compiled =
                |access| compile(definition, &found.args, format, &self.types, access, Rules::FAST, extras);
            match compiled(self.access) {
                Ok(direct) => {
                    let copied = compiled(Access::Copied)?;
                    return Ok(FastEvent(Kind::Own { id: format.id, tracepoint: found.id, direct, copied }));
                }
                Err(error) => mismatch = error,
            }
        }
        Err(mismatch)
    }

    /// The events that have descriptions, as system and name, and those that stand for all system calls: with
    /// strings and without.
    pub fn described() -> Vec<(&'static str, &'static str)> {
        let mut events = vec![
            ("raw_syscalls", "sys_enter"),
            ("raw_syscalls", "sys_exit"),
            ("syscalls", "sys_enter_rename"),
            ("syscalls", "sys_exit_rename"),
        ];
        for (system, text) in DESCRIPTIONS {
            let definitions = language::parse(text).unwrap_or_default();
            events.extend(definitions.into_iter().flat_map(|it| it.names).map(|name| (system, name)));
        }
        events.sort_unstable();
        events.dedup();
        events
    }

    /// The system call hooks, if an event needs them.
    pub fn into_hooks(self) -> Option<Hooks> {
        self.calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_description_can_be_read() {
        for (system, text) in DESCRIPTIONS {
            let definitions = language::parse(text).unwrap_or_else(|error| panic!("{system}: {error}"));
            assert!(!definitions.is_empty(), "{system}");
            for definition in definitions {
                assert!(!definition.fields.is_empty(), "{system}:{}", definition.names[0]);
            }
        }
    }
}
