//! What is wrong with a filter, and where.

use std::fmt;

use super::MAX_TEXT;
use super::ast::Span;

/// A filter that cannot be understood, or not be used for these events.
///
/// Printed, it shows the text with the position marked below it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct FilterError {
    /// The filter's text.
    pub text: String,
    /// Where in it the mistake is.
    pub span: Span,
    /// What the mistake is.
    pub kind: Box<FilterErrorKind>,
}

/// What is wrong with a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterErrorKind {
    /// It is longer than [`MAX_TEXT`].
    #[error("the filter is longer than {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// Its parentheses and operators are nested deeper than [`MAX_DEPTH`](super::MAX_DEPTH).
    #[error("parentheses and operators are nested deeper than {limit} levels")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// It would need too much memory for so many events.
    #[error("the filter is too long for {events} events; name those that it is for")]
    TooBig {
        /// How many events it is for.
        events: usize,
    },
    /// Something else stands at a position than what is possible there.
    #[error("{expected} expected{}", instead(.found))]
    Expected {
        /// What could stand there.
        expected: &'static str,
        /// What stands there; empty at the end.
        found: String,
    },
    /// A character that no part of a filter begins with.
    #[error("{0:?} has no meaning here; put texts in quotes")]
    Character(char),
    /// An operator of another language.
    #[error("there is no operator `{found}`; {hint}")]
    Operator {
        /// The operator.
        found: String,
        /// What is meant, perhaps.
        hint: &'static str,
    },
    /// Digits that are no number of 64 bits.
    #[error("`{0}` is no number of 64 bits; put texts in quotes")]
    Number(String),
    /// A quote without an end.
    #[error("the quote {0} is never closed")]
    Quote(char),
    /// What follows `$` or a dot.
    #[error("there is no `{found}`; there are {known}")]
    Unknown {
        /// What stands there.
        found: String,
        /// What could stand there.
        known: String,
    },
    /// A list of CPUs.
    #[error("{0}")]
    Cpus(String),
    /// A control group.
    #[error("{0}")]
    Group(String),
    /// A regular expression.
    #[error("the regular expression cannot be used: {0}")]
    Regex(String),
    /// No event has such a name.
    #[error("no event is described by `{pattern}`{}", did_you_mean(.nearest))]
    NoEvent {
        /// The pattern.
        pattern: String,
        /// Names that are like it.
        nearest: Vec<String>,
    },
    /// No event of the filter has such a field.
    #[error("{}{}", no_field(.name, .event), nearest_or(.nearest, .fields))]
    NoField {
        /// The name.
        name: String,
        /// The event, or the number of them.
        event: String,
        /// Names that are like it.
        nearest: Vec<String>,
        /// The names that there are, if it is for one event.
        fields: String,
    },
    /// A value that the field cannot be compared with, or not in this way.
    #[error("{0}")]
    Mismatch(String),
    /// Something that is not in a file.
    #[error("{0}")]
    NotRecorded(String),
}

fn instead(found: &str) -> String {
    if found.is_empty() {
        ", and the filter ends here".to_owned()
    } else {
        format!(", and here is `{found}`")
    }
}

fn did_you_mean(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [name] => format!("; did you mean `{name}`?"),
        [names @ .., last] => format!("; did you mean `{}` or `{last}`?", names.join("`, `")),
    }
}

fn no_field(name: &str, event: &str) -> String {
    match event.strip_prefix("none of ") {
        Some(events) => format!("none of {events} has a field `{name}`"),
        None => format!("{event} has no field `{name}`"),
    }
}

fn nearest_or(names: &[String], fields: &str) -> String {
    if names.is_empty() && !fields.is_empty() { format!("; it has {fields}") } else { did_you_mean(names) }
}

impl FilterError {
    /// The error for a position in a text, of which it keeps no more than a filter can have.
    pub(super) fn new(text: &str, (span, kind): (Span, FilterErrorKind)) -> Self {
        let text = text[..text.floor_char_boundary(MAX_TEXT)].to_owned();
        Self { text, span, kind: Box::new(kind) }
    }
}

/// Characters of the filter that are shown before and after the position.
const SHOWN: usize = 60;

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, span, kind } = self;
        let start = text.floor_char_boundary(span.start);
        let end = text.ceil_char_boundary(span.end.max(start));
        // One column each, so that the mark is below its position.
        let plain = |text: &str| -> Vec<char> {
            text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
        };
        let (before, marked, after) = (plain(&text[..start]), plain(&text[start..end]), plain(&text[end..]));
        let left_out = before.len().saturating_sub(SHOWN);
        let dots = if left_out == 0 { "" } else { "..." };
        let line = |part: &[char]| part.iter().collect::<String>();
        let shown = line(&marked[..marked.len().min(SHOWN)]);
        write!(f, "at byte {}: {kind}\n  {dots}{}{shown}", span.start, line(&before[left_out..]))?;
        if marked.len() <= SHOWN {
            f.write_str(&line(&after[..after.len().min(SHOWN)]))?;
            f.write_str(if after.len() > SHOWN { "..." } else { "" })?;
        } else {
            f.write_str("...")?;
        }
        let indent = dots.len() + before.len() - left_out;
        write!(f, "\n  {:indent$}^{}", "", "~".repeat(marked.len().clamp(1, SHOWN) - 1))
    }
}
