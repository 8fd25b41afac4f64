//! What a filter's text says, before it is known which events there are.

use super::error::FilterErrorKind;
use crate::context::Context;
use crate::int::Op;
use stdx::input::CpuSet;

/// Where in a filter's text something stands, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last one.
    pub end: usize,
}

impl Span {
    /// From the start of one to the end of another.
    pub(super) fn to(self, other: Self) -> Self {
        Self { start: self.start, end: other.end }
    }
}

/// Which events a filter is for: one part of the list before its colon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventPattern {
    /// The system's pattern, if one is given.
    pub system: Option<String>,
    /// The event's pattern. Without a system's it is compared with the names of systems, too.
    pub event: String,
    /// Where it stands.
    pub span: Span,
}

/// An expression, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expr {
    /// Where.
    pub span: Span,
    /// What.
    pub kind: ExprKind,
}

impl Expr {
    /// See [`Filter::name_groups`](super::Filter::name_groups).
    pub(super) fn name_groups(
        &mut self,
        number: &mut dyn FnMut(&str) -> Result<u64, String>,
    ) -> Result<(), (Span, FilterErrorKind)> {
        match &mut self.kind {
            ExprKind::And(parts) | ExprKind::Or(parts) => {
                parts.iter_mut().try_for_each(|part| part.name_groups(number))
            }
            ExprKind::Not(inner) | ExprKind::Negate(inner) | ExprKind::Complement(inner) => {
                inner.name_groups(number)
            }
            ExprKind::Binary { op: Op::Eq | Op::Ne, operands } => {
                let (one, other) = &mut **operands;
                match (&one.kind, &other.kind) {
                    (ExprKind::Context(Context::Cgroup), ExprKind::Text { .. }) => other.be_group(number),
                    (ExprKind::Text { .. }, ExprKind::Context(Context::Cgroup)) => one.be_group(number),
                    _ => {
                        one.name_groups(number)?;
                        other.name_groups(number)
                    }
                }
            }
            ExprKind::Binary { operands, .. } => {
                operands.0.name_groups(number)?;
                operands.1.name_groups(number)
            }
            ExprKind::Match { .. }
            | ExprKind::Number(_)
            | ExprKind::Text { .. }
            | ExprKind::Word { .. }
            | ExprKind::Context(_)
            | ExprKind::Cpus(_) => Ok(()),
        }
    }

    fn be_group(
        &mut self,
        number: &mut dyn FnMut(&str) -> Result<u64, String>,
    ) -> Result<(), (Span, FilterErrorKind)> {
        if let ExprKind::Text { text, .. } = &self.kind {
            let group = number(text).map_err(|error| (self.span, FilterErrorKind::Group(error)))?;
            self.kind = ExprKind::Number(group);
        }
        Ok(())
    }
}

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExprKind {
    /// `a && b && ...`: two or more.
    And(Vec<Expr>),
    /// `a || b || ...`: two or more.
    Or(Vec<Expr>),
    /// `!a`.
    Not(Box<Expr>),
    /// A comparison or arithmetic.
    Binary {
        /// The operator.
        op: Op,
        /// Its operands.
        operands: Box<(Expr, Expr)>,
    },
    /// A text compared with a pattern.
    Match {
        /// The operator.
        op: MatchOp,
        /// The text.
        text: Box<Expr>,
        /// The pattern.
        pattern: Box<Expr>,
    },
    /// `-a`.
    Negate(Box<Expr>),
    /// `~a`: all bits turned over.
    Complement(Box<Expr>),
    /// `12`, `0x1f`, `017`.
    Number(u64),
    /// A quoted text.
    Text {
        /// What is between the quotes.
        text: String,
        /// Whether they are single ones: then one character can be a number.
        single: bool,
    },
    /// A word: a field, or where a value is expected one without quotes.
    Word {
        /// The word.
        name: String,
        /// What follows its dot.
        modifier: Option<Modifier>,
    },
    /// `$pid` and the like.
    Context(Context),
    /// `CPUS{0-3,8}`.
    Cpus(CpuSet),
}

/// How a text is compared with a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchOp {
    /// `~`: all of it is what the wildcards describe, as in ftrace's filters.
    Glob,
    /// `=~`: the regular expression is found in it.
    Regex,
    /// `!~`: the regular expression is not found in it.
    NotRegex,
}

impl MatchOp {
    /// How it is written.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Glob => "~",
            Self::Regex => "=~",
            Self::NotRegex => "!~",
        }
    }
}

/// What a field is taken for, as ftrace's filters have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modifier {
    /// `.ustring`: the address of a text in the memory of the process, which is there only while it is
    /// traced.
    Ustring,
    /// `.function`: an address in a function.
    Function,
}
