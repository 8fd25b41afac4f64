//! Filters as eBPF code: what [`Test`] asks of a record, asked in the kernel before there is space for the
//! record.
//!
//! A filter becomes a function that gets the address of a record and gives 1 or 0. In the generic lane that
//! is the program's context, which holds the record from its first field on; in the fast lane it is the part
//! of the record that the program has made so far, on its stack. The common fields are in neither, and are
//! taken from where the kernel has them.
//!
//! The result is that of [`ResolvedFilter::matches`](ftrace_event::filter::ResolvedFilter::matches) for the
//! record as it will be in the file; a property test runs both on the same records. What the kernel cannot do
//! is an error that names the part: nothing is recorded under a filter that is not evaluated.
//!
//! | module | subject |
//! |---|---|
//! | `compile` | conditions and numbers |
//! | `text` | texts, wildcards |

mod compile;
mod text;

pub(crate) use compile::Emitter;

use std::{collections::BTreeSet, sync::Arc};

use super::{generic::marks_calls, task::TaskLayout};
use agent_ebpf::EventSlot;
use bpf::insn::Insn;
use ftrace_event::filter::program::Test;
use kernel::btf::Btf;
use spec::TraceClock;

/// Bytes of a text that a filter sees in the generic lane. A longer text is cut for wildcards; the memory of
/// a process is not read further for `.ustring`.
pub const TEXT_MAX: u32 = 256;

/// Bytes of a text in the fast lane, whose records are not longer.
pub const FAST_TEXT_MAX: u32 = 112;

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
    #[error("${0} needs type information that this kernel does not have")]
    NoType(&'static str),
    /// Numbers that are compared with others that another task's program may change meanwhile.
    #[error("`min`, `max` and `stats` need Linux 6.10 or later there, as programs can be preempted")]
    Preemptible,
    /// Something about the CPU.
    #[error("`${0}` is not known before the record is written; record it, and filter with `report -F`")]
    Late(&'static str),
}

/// A compiled filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The instructions.
    pub code: Vec<Insn>,
    /// Offsets of the fields that it looks at.
    pub(crate) reads: BTreeSet<u32>,
}

/// What a filter needs to know of the running kernel and of the recording.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The clock of `$timestamp`.
    pub clock: TraceClock,
    pub(crate) task: Arc<TaskLayout>,
    /// Whether the record is of all system calls: the number is read as its event is recorded, with the mark
    /// of a 32-bit call, which neither the kernel's record nor a program's arguments have.
    pub(crate) marks_calls: bool,
}

impl Facts {
    /// What the kernel's type information tells.
    pub fn new(clock: TraceClock, btf: Option<&Btf>) -> Self {
        Self { clock, task: Arc::new(TaskLayout::new(btf)), marks_calls: false }
    }

    /// The same for the records of an event with this copying plan.
    #[must_use]
    pub fn of_event(&self, slot: &EventSlot) -> Self {
        Self { marks_calls: marks_calls(slot), ..self.clone() }
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
    pub fn compile_fast(test: &Test, id: u16, facts: &Facts) -> Result<Self, Uncompiled> {
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
