//! What is told of an event that matches a rule: capture descriptors (lttng-add-trigger(1)).

use std::{fmt, str::FromStr};

/// A field of an event, or something about its thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Capture {
    /// `NAME`: a field of the event.
    Field(String),
    /// `$ctx.NAME`: a context, as `lttng add-context --list` names it.
    Context(String),
    /// `$app.PROVIDER:NAME`: a context of an application.
    AppContext {
        /// The provider.
        provider: String,
        /// The name.
        name: String,
    },
    /// `EXPR[INDEX]`: an element of an array.
    Element(Box<Capture>, u32),
}

/// Why a text is no capture descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// It is no name at all.
    #[error("this is no field: NAME, $ctx.NAME, $app.PROVIDER:NAME, or one of them with [INDEX]")]
    Syntax,
    /// An index that is no number.
    #[error("the index of an element is a number")]
    Index,
    /// `$app.NAME`.
    #[error("a context of an application is $app.PROVIDER:NAME")]
    NoProvider,
    /// `$app.PROVIDER:`.
    #[error("a context of an application is $app.PROVIDER:NAME, and the name is missing")]
    NoTypeName,
    /// `a.b`.
    #[error("fields of fields cannot be captured")]
    Subfield,
    /// An operator.
    #[error("{} operators are not allowed", .0.name())]
    Operator(OperatorKind),
}

/// Kinds of operators, which filters have and capture descriptors have not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorKind {
    /// `!a`.
    Unary,
    /// `a == b`.
    Binary,
    /// `a && b`.
    Logical,
}

impl OperatorKind {
    /// LTTng's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unary => "Unary",
            Self::Binary => "Binary",
            Self::Logical => "Logical",
        }
    }

    /// The operator that a text has that is no name, if it has one.
    fn of(text: &str) -> Option<Self> {
        if text.contains("&&") || text.contains("||") {
            return Some(Self::Logical);
        }
        let operand = text.trim_start_matches(['!', '-', '+', '~']);
        if operand.len() != text.len() && is_name(operand) {
            return Some(Self::Unary);
        }
        text.contains(['=', '!', '<', '>', '&', '|', '^']).then_some(Self::Binary)
    }
}

impl FromStr for Capture {
    type Err = CaptureError;

    fn from_str(text: &str) -> Result<Self, CaptureError> {
        let is_between_brackets =
            |text: &str| text.split(']').nth(1).is_some_and(|rest| rest.starts_with('.'));
        if is_between_brackets(text)
            && text.split(['.', '[', ']']).all(|part| part.is_empty() || is_word(part))
        {
            return Err(CaptureError::Subfield);
        }
        let (text, indices) = match text.split_once('[') {
            Some((text, rest)) => {
                (text, rest.strip_suffix(']').ok_or(CaptureError::Syntax)?.split("][").collect())
            }
            None => (text, Vec::new()),
        };
        let mut capture = Self::base(text)?;
        for index in indices {
            capture = Self::Element(Box::new(capture), number(index).ok_or(CaptureError::Index)?);
        }
        Ok(capture)
    }
}

impl Capture {
    fn base(text: &str) -> Result<Self, CaptureError> {
        if let Some(name) = text.strip_prefix("$ctx.") {
            return if is_context(name) {
                Ok(Self::Context(name.to_owned()))
            } else {
                Err(CaptureError::Syntax)
            };
        }
        if let Some(name) = text.strip_prefix("$app.") {
            let (provider, name) = name.split_once(':').ok_or(CaptureError::NoProvider)?;
            if name.is_empty() {
                return Err(CaptureError::NoTypeName);
            }
            return if is_name(provider) && is_name(name) {
                Ok(Self::AppContext { provider: provider.to_owned(), name: name.to_owned() })
            } else {
                Err(CaptureError::Syntax)
            };
        }
        if is_name(text) {
            return Ok(Self::Field(text.to_owned()));
        }
        let fields: Vec<&str> = text.split("->").flat_map(|part| part.split('.')).collect();
        if fields.len() > 1 && fields.into_iter().all(is_name) {
            return Err(CaptureError::Subfield);
        }
        Err(OperatorKind::of(text).map_or(CaptureError::Syntax, CaptureError::Operator))
    }
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn is_name(text: &str) -> bool {
    is_word(text) && text.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

/// Names of contexts have parts: `perf:cpu:cache-misses`.
fn is_context(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':' | b'-');
    text.bytes().all(is_part) && text.bytes().next().is_some_and(|first| first.is_ascii_alphabetic())
}

/// A number as C writes it.
fn number(text: &str) -> Option<u32> {
    let digits = |text: &str, base| {
        let is_all = text.bytes().all(|byte| char::from(byte).is_digit(base));
        (is_all && !text.is_empty()).then(|| u32::from_str_radix(text, base).ok())?
    };
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return digits(hex, 16);
    }
    match text.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => digits(octal, 8),
        _ => digits(text, 10),
    }
}

impl fmt::Display for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => f.write_str(name),
            Self::Context(name) => write!(f, "$ctx.{name}"),
            Self::AppContext { provider, name } => write!(f, "$app.{provider}:{name}"),
            Self::Element(of, index) => write!(f, "{of}[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_read_and_written() {
        let field = |name: &str| Capture::Field(name.to_owned());
        let parse = |text: &str| text.parse::<Capture>();
        assert_eq!(parse("a_1"), Ok(field("a_1")));
        assert_eq!(parse("a[0x10]"), Ok(Capture::Element(Box::new(field("a")), 16)));
        assert_eq!(parse("$ctx.perf:cpu:cache-misses"), Ok(Capture::Context("perf:cpu:cache-misses".into())));
        for text in ["a", "a[3]", "a[1][2]", "$ctx.vpid", "$app.p:c", "$app.p:c[7]"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        for (wrong, error) in [
            ("", CaptureError::Syntax),
            ("1", CaptureError::Syntax),
            ("a[", CaptureError::Syntax),
            ("a[1]b", CaptureError::Syntax),
            ("a[b]", CaptureError::Index),
            ("a[]", CaptureError::Index),
            ("a[+1]", CaptureError::Index),
            ("a[4294967296]", CaptureError::Index),
            ("a.b", CaptureError::Subfield),
            ("a->b", CaptureError::Subfield),
            ("a[3].b", CaptureError::Subfield),
            ("a==1", CaptureError::Operator(OperatorKind::Binary)),
            ("a == !b", CaptureError::Operator(OperatorKind::Binary)),
            ("a || b", CaptureError::Operator(OperatorKind::Logical)),
            ("!a", CaptureError::Operator(OperatorKind::Unary)),
            ("-~a", CaptureError::Operator(OperatorKind::Unary)),
            ("--action", CaptureError::Operator(OperatorKind::Unary)),
            ("-1", CaptureError::Syntax),
            ("$ctx", CaptureError::Syntax),
            ("$foo.b", CaptureError::Syntax),
            ("$app.b", CaptureError::NoProvider),
            ("$app.b:", CaptureError::NoTypeName),
        ] {
            assert_eq!(parse(wrong), Err(error), "{wrong}");
        }
    }
}
