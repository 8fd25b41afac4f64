//! Why a `print fmt` cannot be used.

/// A `print fmt` that is not understood, and where that showed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {at} of print fmt: {kind}")]
#[non_exhaustive]
pub struct PrintFmtError {
    /// Bytes from the start of the `print fmt` text.
    pub at: usize,
    /// What is wrong there.
    pub kind: PrintFmtErrorKind,
}

/// What is wrong with a `print fmt`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrintFmtErrorKind {
    /// There is none.
    #[error("the event has none")]
    Empty,
    /// More text than any kernel has.
    #[error("it is longer than {} bytes", super::MAX_PRINT_FMT)]
    TooLong,
    /// A character that no token starts with.
    #[error("unexpected character `{0}`")]
    Character(char),
    /// A string or a character constant without an end.
    #[error("it ends within quotes")]
    Quotes,
    /// A number that is none, or that 64 bits do not hold.
    #[error("`{0}` is no number")]
    Number(String),
    /// Something else was expected.
    #[error("expected {expected}, found `{found}`")]
    Expected {
        /// What could stand there.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// Expressions within expressions, too many of them.
    #[error("expressions are nested too deeply")]
    Depth,
    /// A field that the event does not have.
    #[error("the event has no field `{0}`")]
    NoField(String),
    /// A function of the kernel's that is not known here.
    #[error("unknown function `{0}`")]
    Function(String),
    /// A function with the wrong number or kind of arguments.
    #[error("wrong arguments for `{0}`")]
    Arguments(&'static str),
    /// A type whose size is not known.
    #[error("the size of `{0}` is not known")]
    TypeSize(String),
    /// An operator on operands that it does not work with.
    #[error("`{0}` does not work with these operands")]
    Operands(&'static str),
    /// A conversion that printf does not know.
    #[error("unknown conversion `%{0}`")]
    Conversion(String),
    /// More conversions than arguments.
    #[error("no argument for conversion {0}")]
    MissingArgument(usize),
}
