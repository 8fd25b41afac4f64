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

use spec::Context;
use std::sync::Arc;

use super::filter::Facts;
use super::shape::{EventShape, ShapeField};
use super::task::{CONTAINER, HOSTNAME, TaskLayout};
use bpf::insn::{Alu, Assembler, FP, Jump, R0, R1, R2, R3, R4, R7};
use ftrace_event::context::Context as Known;
use spec::StackKind;

pub(crate) use super::task::SCRATCH;
pub use counters::{Counter, CounterError, Counters, CountersState};
pub use generic::{Strings, TooLong, program};

// include/uapi/linux/bpf.h, enum bpf_func_id.
const GET_CURRENT_COMM: i32 = 16;
const PERF_EVENT_READ_VALUE: i32 = 55;
/// `BPF_F_CURRENT_CPU`.
const CURRENT_CPU: i64 = 0xffff_ffff;
/// `struct bpf_perf_event_value` (include/uapi/linux/bpf.h).
const COUNTER_VALUE: i16 = 24;
const _: () = assert!(COUNTER_VALUE <= SCRATCH);

/// `common_flags` in the first word of a record: interrupts are off.
const IRQS_OFF: u32 = 0x01 << 16;
/// The thread shall give up the CPU.
const NEED_RESCHED: u32 = 0x04 << 16;
/// In an interrupt of one kind or the other, or with soft interrupts off.
const INTERRUPT: u32 = 0xd8 << 16;
/// `common_preempt_count` there: how often preemption is disabled, and above that migration.
const PREEMPTION: u32 = 0x0f << 24;
/// One of them.
const PREEMPTION_LEVEL: u32 = 1 << 24;
/// The same of migration.
const MIGRATION: u32 = 0xf0 << 24;
/// What ids are that are not known: the value that no id has (`INVALID_UID`, include/linux/uidgid.h).
const NO_ID: i64 = 0xffff_ffff;

/// A context that is a field of the event's record.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Field {
    Known(Known),
    Perf(Counter),
}

impl Field {
    /// The field's name.
    fn field(&self) -> String {
        match self {
            Self::Known(known) => known.field(),
            Self::Perf(counter) => counter.context_field(),
        }
    }

    /// Declaration without the name, bytes, sign, and how it is printed.
    fn shape(&self) -> (&'static str, u32, bool, &'static str) {
        const INT: (&str, u32, bool, &str) = ("int", 4, true, "%d");
        const UNSIGNED: (&str, u32, bool, &str) = ("unsigned int", 4, false, "%u");
        const FLAG: (&str, u32, bool, &str) = ("u8", 1, false, "%u");
        let Self::Known(known) = self else { return ("u64", 8, false, "%llu") };
        match known {
            Known::Cgroup | Known::Timestamp => ("u64", 8, false, "%llu"),
            Known::Comm => ("char", agent_ebpf::COMM_LEN as u32, false, "%s"),
            Known::Hostname => ("char", HOSTNAME, false, "%s"),
            Known::Container => ("char", CONTAINER, false, "%s"),
            Known::Preemptible | Known::NeedReschedule | Known::Migratable => FLAG,
            // Stock readers take a byte for one without a sign.
            Known::Interruptible
            | Known::Pid
            | Known::Tid
            | Known::Ppid
            | Known::Vpid
            | Known::Vtid
            | Known::Vppid
            | Known::Prio
            | Known::Nice => INT,
            Known::Cpu
            | Known::CgroupNs
            | Known::IpcNs
            | Known::MntNs
            | Known::NetNs
            | Known::PidNs
            | Known::TimeNs
            | Known::UserNs
            | Known::UtsNs
            | Known::Uid
            | Known::Euid
            | Known::Suid
            | Known::Gid
            | Known::Egid
            | Known::Sgid
            | Known::Vuid
            | Known::Veuid
            | Known::Vsuid
            | Known::Vgid
            | Known::Vegid
            | Known::Vsgid => UNSIGNED,
        }
    }

    /// Whether it is text in an array.
    fn is_text(&self) -> bool {
        matches!(self, Self::Known(Known::Comm | Known::Hostname | Known::Container))
    }
}

/// Contexts that an event carries, in the order of their fields, each once.
#[derive(Clone, Debug, Default)]
pub struct Contexts {
    fields: Vec<Field>,
    stacks: Vec<StackKind>,
    counters: Option<Arc<Counters>>,
}

/// Why an event cannot carry contexts.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// Something about threads or CPUs.
    #[error("context {0} needs something that this kernel or its type information (BTF) does not have")]
    NoType(&'static str),
    /// A counter.
    #[error(transparent)]
    Counter(#[from] CounterError),
}

/// Contexts with the offsets of their fields.
#[derive(Clone, Debug, Default)]
pub struct ContextLayout {
    fields: Vec<(Field, u32)>,
    /// Where they begin.
    from: u32,
    /// The byte after the last one.
    pub(crate) end: u32,
    counters: Option<Arc<Counters>>,
    task: Arc<TaskLayout>,
}

impl Contexts {
    /// Adds contexts; what is there already is not added again.
    pub fn add(&mut self, contexts: &[Context]) {
        for context in contexts {
            let field = match context {
                Context::Known(known) => Field::Known(*known),
                Context::Perf(counter) => Field::Perf(counter.clone()),
                Context::Stack(kind) => {
                    if !self.stacks.contains(kind) {
                        self.stacks.push(*kind);
                    }
                    continue;
                }
            };
            if !self.fields.contains(&field) {
                self.fields.push(field);
            }
        }
    }

    /// Leaves out the fields that others do not have.
    pub fn keep_common(&mut self, others: &Self) {
        self.fields.retain(|field| others.fields.contains(field));
    }

    /// The format of an event that has no fields but these; empty if there are none.
    pub fn format(&self, facts: &Facts) -> String {
        const NOTHING: &str = "name: contexts\nID: 0\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\nprint fmt: \"\"\n";
        if self.is_empty() { String::new() } else { self.lay_out(2, true, facts).extend_text(NOTHING) }
    }

    /// Whether the record has no fields of them.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Whether one of them is a field of this name.
    pub(crate) fn has_field(&self, name: &str) -> bool {
        self.fields.iter().any(|field| field.field() == name)
    }

    /// The stacks that follow the record.
    pub fn stacks(&self) -> &[StackKind] {
        &self.stacks
    }

    /// Makes sure that this kernel has what the contexts need, and opens their counters. `counters` are those
    /// of the recording.
    ///
    /// # Errors
    /// What is missing.
    pub fn open(&mut self, facts: &Facts, counters: &Arc<Counters>) -> Result<(), ContextError> {
        for field in &self.fields {
            match field {
                Field::Known(known) if !facts.task.has(*known) => {
                    return Err(ContextError::NoType(known.name()));
                }
                Field::Known(_) => {}
                Field::Perf(counter) => counters.open(counter)?,
            }
        }
        self.counters = Some(Arc::clone(counters));
        Ok(())
    }

    /// Their offsets after byte `from` of a record, each at a multiple of its size if `aligned`.
    pub fn lay_out(&self, from: u32, aligned: bool, facts: &Facts) -> ContextLayout {
        let mut end = from;
        let mut fields = Vec::new();
        for field in &self.fields {
            let (_, size, ..) = field.shape();
            let align = if aligned && !field.is_text() { size } else { 1 };
            let at = end.next_multiple_of(align);
            fields.push((field.clone(), at));
            end = at + size;
        }
        ContextLayout { fields, from, end, counters: self.counters.clone(), task: Arc::clone(&facts.task) }
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

    /// The byte after the last one.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// Whether there is a counter among them.
    pub(crate) fn has_counters(&self) -> bool {
        self.fields.iter().any(|(field, _)| matches!(field, Field::Perf(_)))
    }

    /// Whether a field of this name is one of them.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(context, _)| context.field() == name)
    }

    fn shape_fields(&self) -> impl Iterator<Item = ShapeField> {
        self.fields.iter().map(|(context, offset)| {
            let (declaration, size, signed, _) = context.shape();
            let name = context.field();
            let length = if context.is_text() { format!("[{size}]") } else { String::new() };
            ShapeField { declaration: format!("{declaration} {name}{length}"), offset: *offset, size, signed }
        })
    }

    /// Adds the fields to an event of our own.
    pub(crate) fn extend(&self, shape: &mut EventShape) {
        shape.fields.extend(self.shape_fields());
        shape.print_fmt = self.print_fmt(&shape.print_fmt);
    }

    /// Code that writes the fields into the record at R7, which has its common fields. It takes R0 to R5, and
    /// [`SCRATCH`] bytes of the stack at `scratch`, a multiple of 8. The common fields count `hook` levels of
    /// disabled preemption that are the hook's, not the thread's.
    pub(crate) fn write(&self, code: &mut Assembler, scratch: i16, hook: u32) {
        for (field, at) in &self.fields {
            let at = *at as i16;
            match field {
                Field::Known(Known::Comm) => {
                    code.address(R1, R7, at.into());
                    code.load_imm(R2, agent_ebpf::COMM_LEN as i64);
                    code.call_helper(GET_CURRENT_COMM);
                }
                Field::Known(text @ (Known::Hostname | Known::Container)) => {
                    let target = |code: &mut Assembler| code.address(R1, R7, at.into());
                    // `Contexts::open` has asked whether it can be read.
                    let _ = self.task.text(code, *text, scratch, target);
                }
                Field::Known(Known::Interruptible) => {
                    Self::if_common(code, (IRQS_OFF, 0), 0, -1);
                    code.store(4, R7, at, R0);
                }
                Field::Known(Known::Preemptible) => {
                    Self::if_common(code, (INTERRUPT | PREEMPTION, hook * PREEMPTION_LEVEL), 0, 1);
                    code.store(1, R7, at, R0);
                }
                Field::Known(Known::NeedReschedule) => {
                    Self::if_common(code, (NEED_RESCHED, 0), 1, 0);
                    code.store(1, R7, at, R0);
                }
                Field::Known(Known::Migratable) => {
                    Self::if_common(code, (MIGRATION, 0), 0, 1);
                    code.store(1, R7, at, R0);
                }
                Field::Known(known) => self.number(code, *known, (field.shape().1, at, scratch)),
                Field::Perf(counter) => self.counter(code, counter, (at, scratch)),
            }
        }
    }

    /// R0 by bits of the record's first word: one value if they differ from the usual ones, else the other.
    /// The word is that of the moment before the program disabled preemption and migration itself.
    fn if_common(code: &mut Assembler, (bits, usual): (u32, u32), other: i64, same: i64) {
        let done = code.label();
        code.load(4, R1, R7, 0);
        code.load_imm(R2, bits.into());
        code.alu(Alu::And, R1, R2);
        code.load_imm(R0, other);
        code.jump_imm(Jump::NotEqual, R1, usual.cast_signed(), done);
        code.load_imm(R0, same);
        code.bind(done);
    }

    /// A number; what cannot be read is 0, of ids [`NO_ID`].
    fn number(&self, code: &mut Assembler, known: Known, (size, at, scratch): (u32, i16, i16)) {
        let (absent, done) = (code.label(), code.label());
        // `Contexts::open` has asked whether it can be read.
        let _ = self.task.number(code, known, scratch, absent);
        if code.is_reached(absent) {
            code.goto(done);
            code.bind(absent);
            code.load_imm(R0, if is_id(known) { NO_ID } else { 0 });
        }
        code.bind(done);
        code.store(size, R7, at, R0);
    }

    /// A counter's value; 0 where it cannot be read, as on a CPU that came online after the start.
    fn counter(&self, code: &mut Assembler, counter: &Counter, (at, scratch): (i16, i16)) {
        let map = self.counters.as_ref().and_then(|counters| counters.map_of(counter));
        let (absent, done) = (code.label(), code.label());
        if let Some(map) = map {
            code.load_map(R1, map);
            code.load_imm(R2, CURRENT_CPU);
            code.address(R3, FP, scratch.into());
            code.load_imm(R4, COUNTER_VALUE.into());
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

/// Whether 0 is somebody: root.
const fn is_id(known: Known) -> bool {
    matches!(
        known,
        Known::Uid
            | Known::Euid
            | Known::Suid
            | Known::Gid
            | Known::Egid
            | Known::Sgid
            | Known::Vuid
            | Known::Veuid
            | Known::Vsuid
            | Known::Vgid
            | Known::Vegid
            | Known::Vsgid
    )
}
