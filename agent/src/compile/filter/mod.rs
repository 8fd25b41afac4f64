//! Filters as eBPF code: what [`Test`] asks of a record, asked in the kernel before there is space for the
//! record.
//!
//! A filter becomes a function that gets the address of a record and gives 1 or 0. In the generic lane that
//! is the program's context, which holds the record from its first field on; in the fast lane it is the part
//! of the record that the program has made so far, on its stack. The common fields are in neither, and are
//! taken from where the kernel has them.
//!
//! The result is that of [`ResolvedFilter::matches`](crate::event::filter::ResolvedFilter::matches) for the
//! record as it will be in the file; a property test runs both on the same records. What the kernel cannot do
//! is an error that names the part: nothing is recorded under a filter that is not evaluated.
//!
//! | module | subject |
//! |---|---|
//! | `compile` | conditions and numbers |
//! | `text` | texts, wildcards |

mod compile;
mod text;

use std::collections::BTreeSet;

use crate::{
    bpf::insn::Insn,
    event::filter::program::Test,
    kernel::{btf::Btf, clock::TraceClock},
};

/// Bytes of a text that a filter sees in the generic lane. A longer text is cut for wildcards; the memory of
/// a process is not read further for `.ustring`.
pub const TEXT_MAX: u32 = 256;

/// Bytes of a text in the fast lane, whose records are not longer.
pub(crate) const FAST_TEXT_MAX: u32 = 112;

/// Why a filter cannot be evaluated in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Uncompiled {
    /// A regular expression.
    #[error(
        "regular expressions (`=~`, `!~`) cannot be evaluated in the kernel; use wildcards (`~`), or record all and filter with `report -F`"
    )]
    Regex,
    /// The name of a function.
    #[error(
        "function names are not known while recording; compare with the address, or record all and filter with `report -F`"
    )]
    Function,
    /// A common field.
    #[error(
        "`{0}` is set after the filter is evaluated, when the record is written; `common_pid` and `common_type` can be used"
    )]
    Common(&'static str),
    /// Operators nested in one another.
    #[error("its arithmetic is nested deeper than {0} levels, the limit of a program")]
    TooDeep(u16),
    /// Code without end.
    #[error("it is too long for one program; make it shorter, or record all and filter with `report -F`")]
    TooLong,
    /// A pattern.
    #[error("the pattern `{0}` is too long for one program, which takes 62 characters and 64 ranges")]
    Pattern(String),
    /// A list of CPUs.
    #[error("its list of CPUs has more than {0} ranges")]
    Ranges(usize),
    /// A field that goes on to the end of the record.
    #[error("the length of a field is not known before the event is recorded")]
    OpenEnded,
    /// Something about threads.
    #[error("${0} needs the kernel's type information, and this kernel has none")]
    NoType(&'static str),
}

/// A compiled filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    pub(crate) code: Vec<Insn>,
    /// Offsets of the fields that it looks at.
    pub(crate) reads: BTreeSet<u32>,
}

/// What a filter needs to know of the running kernel and of the recording.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The clock of `$timestamp`.
    pub clock: TraceClock,
    pub(crate) parent: Option<Parent>,
    /// `task_struct.prio`.
    pub(crate) prio: Option<u32>,
    namespace: Option<Namespace>,
}

/// `task->real_parent->tgid`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parent {
    pub(crate) task_parent: u32,
    pub(crate) task_tgid: u32,
}

/// `task->thread_pid->numbers[task->thread_pid->level].ns->ns.inum` (`task_active_pid_ns`,
/// include/linux/pid.h).
#[derive(Clone, Copy, Debug)]
struct Namespace {
    task_pid: u32,
    pid_level: u32,
    /// `pid.numbers[0].ns`, and the distance to that of the next level.
    pid_ns: u32,
    step: u32,
    ns_inum: u32,
}

impl Facts {
    /// What the kernel's type information tells.
    pub fn new(clock: TraceClock, btf: Option<&Btf>) -> Self {
        Self {
            clock,
            parent: btf.and_then(Parent::find),
            prio: btf.and_then(|btf| btf.member_offset("task_struct.prio").ok()),
            namespace: btf.and_then(Namespace::find),
        }
    }
}

impl Parent {
    fn find(btf: &Btf) -> Option<Self> {
        let offset = |path| btf.member_offset(path).ok();
        Some(Self { task_parent: offset("task_struct.real_parent")?, task_tgid: offset("task_struct.tgid")? })
    }
}

impl Namespace {
    fn find(btf: &Btf) -> Option<Self> {
        let offset = |path| btf.member_offset(path).ok();
        Some(Self {
            task_pid: offset("task_struct.thread_pid")?,
            pid_level: offset("pid.level")?,
            pid_ns: offset("pid.numbers")? + offset("upid.ns")?,
            step: btf.size_of(btf.type_named("upid").ok()?).ok()?,
            ns_inum: offset("pid_namespace.ns.inum")?,
        })
    }
}

impl Program {
    /// Compiles a condition of the records of event number `id`, for the generic lane.
    ///
    /// # Errors
    /// The part that the kernel cannot evaluate.
    pub fn compile(test: &Test, id: u16, facts: &Facts) -> Result<Self, Uncompiled> {
        compile::compile(test, id, facts, TEXT_MAX)
    }

    /// The same for the fast lane.
    pub(crate) fn compile_fast(test: &Test, id: u16, facts: &Facts) -> Result<Self, Uncompiled> {
        compile::compile(test, id, facts, FAST_TEXT_MAX)
    }
}

/// The result of a condition that is the same for every record.
pub fn constant(test: &Test) -> Option<bool> {
    match test {
        Test::Const(value) => Some(*value),
        Test::Not(inner) => constant(inner).map(|value| !value),
        Test::All(tests) => decided(tests, false),
        Test::Any(tests) => decided(tests, true),
        _ => None,
    }
}

/// One of the value `early` decides; otherwise all have to be known.
fn decided(tests: &[Test], early: bool) -> Option<bool> {
    let mut all_known = true;
    for test in tests {
        match constant(test) {
            Some(value) if value == early => return Some(early),
            Some(_) => {}
            None => all_known = false,
        }
    }
    all_known.then_some(!early)
}
