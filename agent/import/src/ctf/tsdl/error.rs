//! Why metadata are not understood.

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} (byte {at} of the text): {problem}")]
pub struct TsdlError {
    /// Bytes of text before it.
    pub at: usize,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub problem: Problem,
}

/// What can be wrong with metadata.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A sign that is none of the language.
    #[error("{0:?} is not part of the language")]
    Character(char),
    /// A comment or a literal without its end.
    #[error("the {0} has no end")]
    Endless(&'static str),
    /// An escape in a literal.
    #[error("the escape \\{0} is not known")]
    Escape(char),
    /// A number that is none, or too large.
    #[error("{0} is not a number of at most 64 bits")]
    Number(String),
    /// Something else is expected.
    #[error("{wanted} is expected, and {found} is there")]
    Expected {
        /// What.
        wanted: &'static str,
        /// What is there.
        found: String,
    },
    /// A type that was not declared before.
    #[error("no type {0} was declared before")]
    UnknownType(String),
    /// A type, a field, a block or a value that is declared twice.
    #[error("{0} is declared twice")]
    Twice(String),
    /// A value that cannot be.
    #[error("{value} is no {name} that can be: {rule}")]
    Value {
        /// What it is the value of.
        name: &'static str,
        /// The value.
        value: String,
        /// What can be.
        rule: &'static str,
    },
    /// A value that must be there.
    #[error("the {of} has no {name}")]
    Missing {
        /// The block or type.
        of: &'static str,
        /// What is missing.
        name: &'static str,
    },
    /// Types in types in types.
    #[error("types are nested in more than {0} levels")]
    Deep(u32),
    /// A word that nobody would write.
    #[error("a word has more than {0} bytes")]
    Long(usize),
    /// Parts of streams with more fields than are kept.
    #[error("the streams have more than {0} fields")]
    Many(usize),
    /// Another version.
    #[error("this is CTF {0}.{1}, and only 1.8 is read")]
    Version(i128, i128),
    /// Something that belongs to a structure is none.
    #[error("{0} must be a structure")]
    NotAStructure(&'static str),
    /// A stream that is not declared.
    #[error("no stream with id {0} is declared")]
    UnknownStream(u64),
    /// A clock that is not declared.
    #[error("no clock {0} is declared")]
    UnknownClock(String),
}
