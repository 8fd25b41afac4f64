//! Why metadata of CTF 2 are not understood.

use crate::ctf::types::DEPTH_MAX;

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fragment {number} (byte {at}): {problem}")]
pub struct FragmentError {
    /// The fragment, from 1.
    pub number: usize,
    /// Where it begins.
    pub at: usize,
    /// What is wrong.
    pub problem: FragmentProblem,
}

/// What can be wrong with a fragment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FragmentProblem {
    /// It has more values than any has.
    #[error("it has more than {most} values", most = super::FRAGMENT_VALUES_MAX)]
    Many,
    /// It is no JSON.
    #[error("it is no JSON: {0}")]
    Json(String),
    /// The first one is something else.
    #[error("the first fragment is no preamble")]
    NoPreamble,
    /// Another version.
    #[error("this is CTF {0}, and only 1.8 and 2 are read")]
    Version(u64),
    /// A property that must be there.
    #[error("the {of} has no {name}")]
    Missing {
        /// What should have it.
        of: &'static str,
        /// The property.
        name: &'static str,
    },
    /// A property that cannot be.
    #[error("{value} is no {name} that can be: {rule}")]
    Value {
        /// The property.
        name: &'static str,
        /// Its value.
        value: String,
        /// What can be.
        rule: &'static str,
    },
    /// Something that is not understood here.
    #[error("{0} is not understood")]
    Unsupported(String),
    /// The name of a field class that no fragment before has.
    #[error("no field class {0} was named before")]
    UnknownAlias(String),
    /// A stream that is not declared.
    #[error("no data stream class with id {0} is declared")]
    UnknownStream(u64),
    /// A clock that is not declared.
    #[error("no clock class with id {0} is declared")]
    UnknownClock(String),
    /// Something that is there already.
    #[error("{0} is declared twice")]
    Twice(String),
    /// Types in types in types.
    #[error("field classes are nested in more than {DEPTH_MAX} levels")]
    Deep,
}
