//! Why there is no plan.

use super::{NameTaken, StackError, UnusableFormat};
use compile::aggregate::CountError;
use compile::context::ContextError;
use compile::dynamic::DynamicError;
use compile::typed::TypedError;
use ftrace_event::filter::FilterError;
use kernel::cgroup::CgroupError;
use kernel::events::SelectError;
use kernel::tracefs::TracefsError;
use spec::EventName;
use spec::SelectorError;
use spec::{Field, Problem, RuleSpec};
use stdx::output::OutputError;

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
#[error("{at}: {why}")]
pub struct PlanError {
    /// The part of the specification that it is about.
    pub at: Field,
    /// What is wrong with it on this kernel.
    #[source]
    pub why: Box<Why>,
}

/// What is wrong.
#[derive(Debug, thiserror::Error)]
pub enum Why {
    /// It contradicts itself, or names what is not there.
    #[error("{0}")]
    Wrong(String),
    /// The kernel, or this process's place in it, cannot do it.
    #[error("{0}")]
    Unsupported(String),
    /// tracefs.
    #[error(transparent)]
    Tracefs(#[from] TracefsError),
    /// The selection of events.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// An event that was asked for by its name.
    #[error("cannot record {name}: {reason}")]
    Unusable {
        /// Which event.
        name: EventName,
        /// Why not.
        reason: UnusableFormat,
    },
    /// What is counted in a map.
    #[error(transparent)]
    Count(#[from] CountError),
    /// A filter that is none, or fits none of its events.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// A context.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// A control group.
    #[error("cgroup: {0}")]
    Cgroup(#[source] CgroupError),
    /// A container.
    #[error(transparent)]
    Container(CgroupError),
    /// A probe.
    #[error(transparent)]
    Probe(#[from] DynamicError),
    /// A probe with typed arguments.
    #[error(transparent)]
    Typed(#[from] TypedError),
    /// A probe whose event has a name that is taken.
    #[error(transparent)]
    NameTaken(#[from] NameTaken),
    /// Stacks.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The file cannot be there.
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl From<SelectorError> for Why {
    fn from(error: SelectorError) -> Self {
        Self::Select(error.into())
    }
}

impl From<&str> for Why {
    fn from(text: &str) -> Self {
        Self::Wrong(text.to_owned())
    }
}

impl From<Problem> for PlanError {
    fn from(Problem { at, why }: Problem) -> Self {
        Self { at, why: Box::new(why.into()) }
    }
}

impl PlanError {
    pub(super) fn whole(why: impl Into<Why>) -> Self {
        Self { at: Field::Whole, why: Box::new(why.into()) }
    }

    pub(super) fn scope(name: &'static str, why: impl Into<Why>) -> Self {
        Self { at: Field::Scope(name), why: Box::new(why.into()) }
    }

    pub(super) fn file(name: &'static str, why: impl Into<Why>) -> Self {
        Self { at: Field::File(name), why: Box::new(why.into()) }
    }
}

/// A map of the specification, by its index.
#[derive(Clone, Copy, Debug)]
pub(super) struct InMap<'a>(pub(super) usize, pub(super) &'a str);

impl InMap<'_> {
    /// Something wrong with a field of it.
    pub(super) fn field(self, name: &'static str, why: impl Into<Why>) -> PlanError {
        PlanError {
            at: Field::OfMap { map: self.0, text: self.1.to_owned(), name },
            why: Box::new(why.into()),
        }
    }
}

/// A channel, by its index in the specification.
#[derive(Clone, Copy, Debug)]
pub(super) struct InChannel(pub(super) usize);

impl InChannel {
    /// Something about a field of it.
    pub(super) fn field(self, name: &'static str, why: impl Into<Why>) -> PlanError {
        PlanError { at: Field::OfChannel { channel: self.0, name }, why: Box::new(why.into()) }
    }

    /// Something about one of its rules.
    pub(super) fn rule(self, number: usize, rule: &RuleSpec, why: impl Into<Why>) -> PlanError {
        PlanError { at: Field::of_rule(self.0, number, rule), why: Box::new(why.into()) }
    }

    /// Something about a field of one of its rules.
    pub(super) fn of_rule(self, rule: usize, name: &'static str, why: impl Into<Why>) -> PlanError {
        PlanError { at: Field::OfRule { channel: self.0, rule, name }, why: Box::new(why.into()) }
    }
}
