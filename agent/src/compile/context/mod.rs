//! Contexts: what is known of the current thread and CPU, as fields of any event.
//!
//! | module | subject |
//! |---|---|
//! | `counters` | perf's counters |
//! | `generic` | programs of the generic lane that add contexts |
//! | `text` | formats with contexts |

mod counters;
mod generic;
mod text;

use std::{fmt, str::FromStr, sync::Arc};

use super::{
    filter::Facts,
    shape::{EventShape, ShapeField},
};
use crate::{
    bpf::insn::{Alu, Assembler, FP, Jump, R0, R1, R2, R3, R4, R7},
    event::context::{COUNTER_PREFIX, PREFIX},
};

pub use counters::{Counter, CounterError, Counters};
pub(crate) use generic::{TooLong, program};

// include/uapi/linux/bpf.h, enum bpf_func_id.
const GET_CURRENT_PID_TGID: i32 = 14;
const GET_CURRENT_UID_GID: i32 = 15;
const GET_CURRENT_COMM: i32 = 16;
const GET_CURRENT_TASK: i32 = 35;
const PERF_EVENT_READ_VALUE: i32 = 55;
const GET_CURRENT_CGROUP_ID: i32 = 80;
const PROBE_READ_KERNEL: i32 = 113;
/// `BPF_F_CURRENT_CPU`.
const CURRENT_CPU: i64 = 0xffff_ffff;

/// Stack that the code of contexts needs: `struct bpf_perf_event_value`.
pub(crate) const SCRATCH: i16 = 24;

/// One context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Context {
    /// The process.
    Pid,
    /// The thread.
    Tid,
    /// The process that has the thread as its child.
    Ppid,
    /// The thread's name.
    Comm,
    /// The number of the control group (of version 2).
    Cgroup,
    /// The user.
    Uid,
    /// The kernel's priority: 0 to 99 are real-time, 100 to 139 nice -20 to 19, as in the events of the
    /// scheduler.
    Prio,
    /// What a counter of the CPU has counted since the recording was prepared.
    Perf(Counter),
}

/// The contexts without counters, and their names.
const NAMED: [(&str, Context); 7] = [
    ("pid", Context::Pid),
    ("tid", Context::Tid),
    ("ppid", Context::Ppid),
    ("comm", Context::Comm),
    ("cgroup", Context::Cgroup),
    ("uid", Context::Uid),
    ("prio", Context::Prio),
];

impl Context {
    /// The field's name.
    fn field(&self) -> String {
        match self {
            Self::Perf(counter) => format!("{COUNTER_PREFIX}{}", counter.field()),
            _ => format!("{PREFIX}{self}"),
        }
    }

    /// Declaration without the name, bytes, sign, and how it is printed.
    fn shape(&self) -> (&'static str, u32, bool, &'static str) {
        match self {
            Self::Pid | Self::Tid | Self::Ppid | Self::Prio => ("int", 4, true, "%d"),
            Self::Uid => ("unsigned int", 4, false, "%u"),
            Self::Cgroup | Self::Perf(_) => ("u64", 8, false, "%llu"),
            Self::Comm => ("char", 16, false, "%s"),
        }
    }
}

impl fmt::Display for Context {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMED.iter().find(|(_, context)| context == self) {
            Some((name, _)) => out.write_str(name),
            None => match self {
                Self::Perf(counter) => write!(out, "perf:cpu:{}", counter.name()),
                _ => Ok(()),
            },
        }
    }
}

impl FromStr for Context {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(counter) = text.strip_prefix("perf:") {
            return counter.strip_prefix("cpu:").unwrap_or(counter).parse().map(Self::Perf);
        }
        NAMED.iter().find(|(name, _)| *name == text).map(|(_, context)| context.clone()).ok_or_else(|| {
            let known = NAMED.map(|(name, _)| name).join(", ");
            format!("there is no context {text:?}; there are {known} and perf:cpu:COUNTER")
        })
    }
}

/// Contexts that an event carries, in the order of their fields, each once.
#[derive(Clone, Debug, Default)]
pub struct Contexts {
    all: Vec<Context>,
    counters: Option<Arc<Counters>>,
}

/// Why an event cannot carry contexts.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// Something about threads.
    #[error("context {0} needs the kernel's type information, and this kernel has none")]
    NoType(&'static str),
    /// A counter.
    #[error(transparent)]
    Counter(#[from] CounterError),
}

/// Contexts with the offsets of their fields.
#[derive(Clone, Debug, Default)]
pub struct ContextLayout {
    fields: Vec<(Context, u32)>,
    /// Where they begin.
    from: u32,
    /// The byte after the last one.
    pub(crate) end: u32,
    counters: Option<Arc<Counters>>,
    task: TaskOffsets,
}

/// Offsets in the kernel's structures.
#[derive(Clone, Copy, Debug, Default)]
struct TaskOffsets {
    parent: u32,
    tgid: u32,
    prio: u32,
}

impl Contexts {
    /// Adds contexts; what is there already is not added again.
    pub fn add(&mut self, contexts: &[Context]) {
        for context in contexts {
            if !self.all.contains(context) {
                self.all.push(context.clone());
            }
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The contexts.
    pub fn all(&self) -> &[Context] {
        &self.all
    }

    /// Makes sure that this kernel has what the contexts need, and opens their counters. `counters` are those
    /// of the recording.
    ///
    /// # Errors
    /// What is missing.
    pub fn open(&mut self, facts: &Facts, counters: &Arc<Counters>) -> Result<(), ContextError> {
        for context in &self.all {
            match context {
                Context::Ppid if facts.parent.is_none() => return Err(ContextError::NoType("ppid")),
                Context::Prio if facts.prio.is_none() => return Err(ContextError::NoType("prio")),
                Context::Perf(counter) => counters.open(counter)?,
                _ => {}
            }
        }
        self.counters = Some(Arc::clone(counters));
        Ok(())
    }

    /// Their offsets after byte `from` of a record, each at a multiple of its size if `aligned`.
    pub(crate) fn lay_out(&self, from: u32, aligned: bool, facts: &Facts) -> ContextLayout {
        let mut end = from;
        let mut fields = Vec::new();
        for context in &self.all {
            let (_, size, ..) = context.shape();
            let align = match size {
                _ if !aligned => 1,
                4 | 8 => size,
                _ => 1,
            };
            let at = end.next_multiple_of(align);
            fields.push((context.clone(), at));
            end = at + size;
        }
        let (parent, tgid) = facts.parent.map_or((0, 0), |parent| (parent.task_parent, parent.task_tgid));
        let task = TaskOffsets { parent, tgid, prio: facts.prio.unwrap_or(0) };
        ContextLayout { fields, from, end, counters: self.counters.clone(), task }
    }
}

impl ContextLayout {
    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> u32 {
        self.end - self.from
    }

    /// Whether there is a counter among them.
    pub(crate) fn has_counters(&self) -> bool {
        self.fields.iter().any(|(context, _)| matches!(context, Context::Perf(_)))
    }

    /// Whether a field of this name is one of them.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(context, _)| context.field() == name)
    }

    fn shape_fields(&self) -> impl Iterator<Item = ShapeField> {
        self.fields.iter().map(|(context, offset)| {
            let (declaration, size, signed, _) = context.shape();
            let name = context.field();
            let length = if *context == Context::Comm { "[16]" } else { "" };
            ShapeField { declaration: format!("{declaration} {name}{length}"), offset: *offset, size, signed }
        })
    }

    /// Adds the fields to an event of our own.
    pub(crate) fn extend(&self, shape: &mut EventShape) {
        shape.fields.extend(self.shape_fields());
        shape.print_fmt = self.print_fmt(&shape.print_fmt);
    }

    /// Code that writes the fields into the record at R7. It takes R0 to R5, and [`SCRATCH`] bytes of the
    /// stack at `scratch`.
    pub(crate) fn write(&self, code: &mut Assembler, scratch: i16) {
        for (context, at) in &self.fields {
            let at = *at as i16;
            match context {
                Context::Pid => {
                    code.call_helper(GET_CURRENT_PID_TGID);
                    code.alu_imm(Alu::Rsh, R0, 32);
                    code.store(4, R7, at, R0);
                }
                Context::Tid => {
                    code.call_helper(GET_CURRENT_PID_TGID);
                    code.store(4, R7, at, R0);
                }
                Context::Uid => {
                    code.call_helper(GET_CURRENT_UID_GID);
                    code.store(4, R7, at, R0);
                }
                Context::Cgroup => {
                    code.call_helper(GET_CURRENT_CGROUP_ID);
                    code.store(8, R7, at, R0);
                }
                Context::Comm => {
                    code.address(R1, R7, at.into());
                    code.load_imm(R2, agent_ebpf::COMM_LEN as i64);
                    code.call_helper(GET_CURRENT_COMM);
                }
                Context::Ppid => {
                    Self::of_task(code, (at, scratch), &[(self.task.parent, 8), (self.task.tgid, 4)]);
                }
                Context::Prio => Self::of_task(code, (at, scratch), &[(self.task.prio, 4)]),
                Context::Perf(counter) => self.counter(code, counter, (at, scratch)),
            }
        }
    }

    /// What pointers lead to from the current task: offsets and sizes. 0 if there is nothing.
    fn of_task(code: &mut Assembler, (at, scratch): (i16, i16), steps: &[(u32, u32)]) {
        let (absent, done) = (code.label(), code.label());
        code.call_helper(GET_CURRENT_TASK);
        for &(offset, size) in steps {
            code.address(R3, R0, offset.cast_signed());
            code.address(R1, FP, scratch.into());
            code.load_imm(R2, size.into());
            code.call_helper(PROBE_READ_KERNEL);
            code.jump_imm(Jump::NotEqual, R0, 0, absent);
            code.load(size, R0, FP, scratch);
        }
        code.goto(done);
        code.bind(absent);
        code.load_imm(R0, 0);
        code.bind(done);
        code.store(4, R7, at, R0);
    }

    /// A counter's value; 0 where it cannot be read, as on a CPU that came online after the start.
    fn counter(&self, code: &mut Assembler, counter: &Counter, (at, scratch): (i16, i16)) {
        let map = self.counters.as_ref().and_then(|counters| counters.map_of(counter));
        let (absent, done) = (code.label(), code.label());
        if let Some(map) = map {
            code.load_map(R1, map);
            code.load_imm(R2, CURRENT_CPU);
            code.address(R3, FP, scratch.into());
            code.load_imm(R4, SCRATCH.into());
            code.call_helper(PERF_EVENT_READ_VALUE);
            code.jump_imm(Jump::NotEqual, R0, 0, absent);
            code.load(8, R0, FP, scratch);
            code.goto(done);
        }
        code.bind(absent);
        code.load_imm(R0, 0);
        code.bind(done);
        code.store(8, R7, at, R0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for name in ["pid", "tid", "ppid", "comm", "cgroup", "uid", "prio"] {
            assert_eq!(name.parse::<Context>().map(|context| context.to_string()), Ok(name.to_owned()));
        }
        let counter: Context = "perf:cycles".parse().unwrap();
        assert_eq!(
            (counter.to_string().as_str(), counter.field().as_str()),
            ("perf:cpu:cycles", "ctx_perf_cpu_cycles")
        );
        assert_eq!("perf:cpu:cycles".parse(), Ok(counter));
        assert!("name".parse::<Context>().unwrap_err().contains("there are pid, tid"));
        assert!("perf:cpu:nothing".parse::<Context>().unwrap_err().contains("page-faults"));
    }
}
