//! The words of a filter.

use super::ast::Span;
use super::error::FilterErrorKind;
use super::{Dialect, lttng};
use crate::context::Context;
use stdx::input::CpuSet;

/// A word and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token<'t> {
    pub(super) span: Span,
    pub(super) kind: TokenKind<'t>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TokenKind<'t> {
    Number(u64),
    Word(&'t str),
    Text {
        text: String,
        single: bool,
    },
    Context(Context),
    Cpus(CpuSet),
    /// An operator, a parenthesis or a dot.
    Operator(&'static str),
    End,
}

/// Longer ones first, so that the first that fits is the one.
const OPERATORS: [&str; 24] = [
    "&&", "||", "==", "!=", "<=", ">=", "<<", ">>", "=~", "!~", "<", ">", "!", "&", "|", "^", "+", "-", "*",
    "/", "%", "~", "(", ")",
];

/// Takes words from the front of a filter's text.
#[derive(Clone, Debug)]
pub(super) struct Tokens<'t> {
    text: &'t str,
    at: usize,
    dialect: Dialect,
}

/// What LTTng has beside the others: parts of fields.
const PARTS: [&str; 2] = ["->", "["];
/// Operators that LTTng does not have.
const NOT_OF_LTTNG: [&str; 2] = ["=~", "!~"];

impl<'t> Tokens<'t> {
    /// The words from an offset on.
    pub(super) fn new(text: &'t str, at: usize, dialect: Dialect) -> Self {
        Self { text, at, dialect }
    }

    /// All of the text.
    pub(super) fn text(&self) -> &'t str {
        self.text
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The next word.
    ///
    /// # Errors
    /// What stands there is none.
    pub(super) fn next(&mut self) -> Result<Token<'t>, (Span, FilterErrorKind)> {
        self.skip()?;
        let start = self.at;
        let kind = self.kind()?;
        Ok(Token { span: Span { start, end: self.at }, kind })
    }

    /// Goes on to what is not empty; LTTng's filters may have C's comments.
    fn skip(&mut self) -> Result<(), (Span, FilterErrorKind)> {
        loop {
            self.at += self.rest().len() - self.rest().trim_start().len();
            let rest = self.rest();
            if self.dialect != Dialect::Lttng {
                return Ok(());
            }
            if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                let open = Span { start: self.at, end: self.at + 2 };
                let end = rest.find("*/").ok_or((
                    open,
                    FilterErrorKind::Expected {
                        expected: "`*/`, the end of the comment,",
                        found: String::new(),
                    },
                ))?;
                self.at += end + 2;
            } else {
                return Ok(());
            }
        }
    }

    fn kind(&mut self) -> Result<TokenKind<'t>, (Span, FilterErrorKind)> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(TokenKind::End) };
        match first {
            '0'..='9' => self.number(),
            '"' | '\'' => self.quoted(first),
            'C' if rest.starts_with("CPUS{") && self.dialect != Dialect::Lttng => self.cpus(),
            '$' if self.dialect == Dialect::Lttng => self.lttng_context(),
            '$' => self.context(),
            _ if is_name(first) => Ok(TokenKind::Word(self.take_name())),
            '.' => {
                self.at += 1;
                Ok(TokenKind::Operator("."))
            }
            _ => self.operator(first),
        }
    }

    fn take_name(&mut self) -> &'t str {
        let rest = self.rest();
        let len = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    /// As strtoull(3) with base 0 has them.
    fn number(&mut self) -> Result<TokenKind<'t>, (Span, FilterErrorKind)> {
        let start = self.at;
        let mut word = self.take_name();
        if self.dialect == Dialect::Lttng {
            // C's suffixes of type, which change nothing.
            word = word.trim_end_matches(['u', 'U', 'l', 'L']);
            if self.rest().starts_with('.') {
                let found = format!("{word}.");
                return Err((Span { start, end: self.at + 1 }, FilterErrorKind::Number(found)));
            }
        }
        let digits = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
        let number = match digits {
            Some(digits) => u64::from_str_radix(digits, 16),
            None if word.len() > 1 && word.starts_with('0') => u64::from_str_radix(word, 8),
            None => word.parse(),
        };
        // The standard library takes a sign; none can be here, for it is no part of a name.
        number.map(TokenKind::Number).map_err(|_| {
            (Span { start, end: self.at }, FilterErrorKind::Number(word.chars().take(60).collect()))
        })
    }

    /// A quoted text. Backslashes stay as they are, for patterns; only before the quote they are left out.
    /// Double-quoted texts one after the other are one, as in C.
    fn quoted(&mut self, quote: char) -> Result<TokenKind<'t>, (Span, FilterErrorKind)> {
        let mut text = String::new();
        loop {
            let open = Span { start: self.at, end: self.at + 1 };
            self.at += 1;
            let mut chars = self.rest().char_indices();
            let end = loop {
                match chars.next() {
                    None => return Err((open, FilterErrorKind::Quote(quote))),
                    Some((end, c)) if c == quote => break end,
                    Some((_, '\\')) => match chars.next() {
                        None => return Err((open, FilterErrorKind::Quote(quote))),
                        Some((_, c)) if c == quote => text.push(c),
                        Some((_, c)) => text.extend(['\\', c]),
                    },
                    Some((_, c)) => text.push(c),
                }
            };
            self.at += end + 1;
            let behind = self.rest().trim_start();
            if quote == '\'' || !behind.starts_with('"') {
                return Ok(TokenKind::Text { text, single: quote == '\'' });
            }
            self.at += self.rest().len() - behind.len();
        }
    }

    fn cpus(&mut self) -> Result<TokenKind<'t>, (Span, FilterErrorKind)> {
        let start = self.at;
        let open = start + "CPUS{".len();
        let (list, _) = self.text[open..]
            .split_once('}')
            .ok_or((Span { start, end: open }, FilterErrorKind::Quote('{')))?;
        self.at = open + list.len() + 1;
        let span = Span { start: open, end: open + list.len() };
        match CpuSet::parse_list(list) {
            Ok(set) if set.is_empty() => {
                Err((span, FilterErrorKind::Cpus("a list of CPUs is empty".to_owned())))
            }
            Ok(set) => Ok(TokenKind::Cpus(set)),
            Err(error) => Err((span, FilterErrorKind::Cpus(error.to_string()))),
        }
    }

    fn context(&mut self) -> Result<TokenKind<'t>, (Span, FilterErrorKind)> {
        let start = self.at;
        self.at += 1;
        let name = self.take_name();
        Context::named(name).map(TokenKind::Context).ok_or_else(|| {
            let known = Context::ALL.map(|(_, name)| format!("${name}")).join(" ");
            let found = format!("${}", name.chars().take(60).collect::<String>());
            (Span { start, end: self.at }, FilterErrorKind::Unknown { found, known })
        })
    }

    /// `$ctx.NAME`.
    fn lttng_context(&mut self) -> Result<TokenKind<'t>, (Span, FilterErrorKind)> {
        let start = self.at;
        self.at += 1;
        let group = self.take_name();
        let name = if self.rest().starts_with('.') {
            self.at += 1;
            self.take_name()
        } else {
            ""
        };
        let context = if group == "ctx" { Context::named(name) } else { None };
        context.map(TokenKind::Context).ok_or_else(|| {
            let span = Span { start, end: self.at };
            let found = self.text[start..self.at].chars().take(60).collect();
            (span, FilterErrorKind::Unknown { found, known: lttng::contexts() })
        })
    }

    fn operator(&mut self, first: char) -> Result<TokenKind<'t>, (Span, FilterErrorKind)> {
        let rest = self.rest();
        let span = |len| Span { start: self.at, end: self.at + len };
        let is_lttng = self.dialect == Dialect::Lttng;
        let known = PARTS.iter().filter(|_| is_lttng).chain(&OPERATORS);
        let mut known = known.filter(|operator| !(is_lttng && NOT_OF_LTTNG.contains(operator)));
        if let Some(operator) = known.find(|operator| rest.starts_with(**operator)) {
            self.at += operator.len();
            return Ok(TokenKind::Operator(operator));
        }
        Err(match first {
            '=' => (
                span(1),
                FilterErrorKind::Operator {
                    found: "=".to_owned(),
                    hint: "`==` compares, `=~` looks for a regular expression",
                },
            ),
            ':' => (
                span(1),
                FilterErrorKind::Operator {
                    found: ":".to_owned(),
                    hint: "a colon stands between the events and the expression, once",
                },
            ),
            ',' => (
                span(1),
                FilterErrorKind::Operator {
                    found: ",".to_owned(),
                    hint: "`&&` and `||` connect comparisons, and a comma events, before the colon",
                },
            ),
            other => (span(other.len_utf8()), FilterErrorKind::Character(other)),
        })
    }
}

/// Whether a character can be in a name.
pub(super) fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}
