//! What is told of stacks.

use std::sync::Arc;

use serde::Serialize;

use super::Sum;
use super::tally::Told;
use crate::answers::Tid;
use flame::{FlameStacks, Frame, Kind, Unit};

/// What a thread without a name is called, as in reports.
const NO_NAME: &str = "<...>";

/// The stacks of events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StacksAnswer {
    /// What weights are: `events`, `ns`, or the name of a field.
    #[serde(serialize_with = "name_of_unit")]
    pub unit: Unit,
    /// All events that are counted, with a stack or without.
    pub all: Sum,
    /// Of those, the ones without a stack.
    pub without_stack: Sum,
    /// Events with a stack for which there was no room, of any thread. They are not in `all`.
    pub others: Sum,
    /// Events that are not counted because their weight is not known: they have no number above 0 in the
    /// field; or they are the last ones of their threads, and those before a loss, if weights are times.
    pub without_weight: u64,
    /// By thread, the most first.
    pub threads: Vec<ThreadWeight>,
    /// By function, the one with the most of its own first.
    pub functions: Vec<FunctionWeight>,
    /// By thread and stack, the most first.
    pub stacks: Vec<StackWeight>,
}

/// What events of a thread weigh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadWeight {
    /// Its id.
    pub tid: Tid,
    /// Its last name.
    pub comm: String,
    /// Its events.
    #[serde(flatten)]
    pub sum: Sum,
}

/// What events weigh whose stacks have a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FunctionWeight {
    /// The function.
    pub name: Arc<str>,
    /// Whether it is one of the kernel.
    pub is_kernel: bool,
    /// Where it is the innermost one.
    pub own_weight: u64,
    /// Where it is anywhere in the stack; once, however often it is there.
    pub total_weight: u64,
}

/// What events of a thread with the same stack weigh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StackWeight {
    /// The thread's id.
    pub tid: Tid,
    /// Its last name.
    pub comm: String,
    /// The kernel's functions, the innermost first.
    pub kernel: Vec<Arc<str>>,
    /// The process's.
    pub user: Vec<Arc<str>>,
    /// The events.
    #[serde(flatten)]
    pub sum: Sum,
}

fn name_of_unit<S: serde::Serializer>(unit: &Unit, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(unit.name())
}

impl StacksAnswer {
    pub(super) fn of(told: Told, unit: Unit) -> Self {
        let Told { threads, functions, stacks, all, without_stack, others, without_weight, .. } = told;
        Self { unit, all, without_stack, others, without_weight, threads, functions, stacks }
    }

    /// Its stacks, for a flame graph. Events without a stack are not in it.
    pub fn flame(&self, title: &str) -> FlameStacks {
        flame(title, self.unit.clone(), &self.stacks, self.others)
    }
}

/// Stacks for a flame graph: the thread, the process's functions and the kernel's.
pub(in crate::answers) fn flame(title: &str, unit: Unit, stacks: &[StackWeight], others: Sum) -> FlameStacks {
    let mut flame = FlameStacks::new(title, unit);
    for of in stacks {
        flame.add(frames(&of.comm, &of.user, &of.kernel), of.sum.weight);
    }
    flame.add_others(others.weight);
    flame
}

/// The frames of a thread's stack, from the outermost to the innermost.
pub(in crate::answers) fn frames<'n, T: AsRef<str>>(
    comm: &'n str,
    user: &'n [T],
    kernel: &'n [T],
) -> impl Iterator<Item = Frame<'n>> {
    let comm = if comm.is_empty() { NO_NAME } else { comm };
    let of = |kind: Kind| move |name: &'n T| Frame { kind, name: name.as_ref() };
    let thread = std::iter::once(Frame { kind: Kind::Thread, name: comm });
    thread.chain(user.iter().rev().map(of(Kind::User))).chain(kernel.iter().rev().map(of(Kind::Kernel)))
}
