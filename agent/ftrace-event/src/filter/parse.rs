//! From text to expression.

use super::ast::{EventPattern, Expr, ExprKind, MatchOp, Modifier, Span};
use super::error::FilterErrorKind;
use super::token::{Token, TokenKind, Tokens, is_name};
use super::{Dialect, MAX_DEPTH};
use super::{lttng, posix};
use crate::int::Op;

pub(super) type Error = (Span, FilterErrorKind);

/// Operators of arithmetic and how strongly they bind. Comparisons bind weaker than all of them.
const ARITHMETIC: [(&str, (u8, Op)); 10] = [
    ("|", (0, Op::BitOr)),
    ("^", (1, Op::BitXor)),
    ("&", (2, Op::BitAnd)),
    ("<<", (3, Op::Shl)),
    (">>", (3, Op::Shr)),
    ("+", (4, Op::Add)),
    ("-", (4, Op::Sub)),
    ("*", (5, Op::Mul)),
    ("/", (5, Op::Div)),
    ("%", (5, Op::Rem)),
];

/// How strongly `<<` and `>>` bind.
const SHIFTS: u8 = 3;

const COMPARISONS: [(&str, Op); 6] =
    [("==", Op::Eq), ("!=", Op::Ne), ("<=", Op::Le), (">=", Op::Ge), ("<", Op::Lt), (">", Op::Gt)];

const MATCHES: [(&str, MatchOp); 3] =
    [("~", MatchOp::Glob), ("=~", MatchOp::Regex), ("!~", MatchOp::NotRegex)];

/// Splits a filter into its events and the offset where the expression starts; `None` if there is none.
///
/// The first colon ends the events, unless there is another one before any quote or brace:
/// `sched:sched_switch: prio > 1`, for no expression has a colon. Without another one, and without a slash
/// before it, a single name after the colon is the event's, too.
pub(super) fn head(text: &str) -> Result<(Vec<EventPattern>, Option<usize>), Error> {
    let plain = text.find(['"', '\'', '{']).unwrap_or(text.len());
    let (end, body) = match text[..plain].rfind(':') {
        None => (text.len(), None),
        Some(colon) => {
            let only = !text[..colon].contains([':', '/']);
            let name = text[colon + 1..].trim();
            let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            let is_event = starts && name.trim_end_matches('*').trim_end_matches('.').chars().all(is_name);
            if only && is_event { (text.len(), None) } else { (colon, Some(colon + 1)) }
        }
    };
    let mut patterns = Vec::new();
    let mut start = 0;
    for part in text[..end].split(',') {
        let trimmed = part.trim();
        let at = start + (part.len() - part.trim_start().len());
        let span = Span { start: at, end: at + trimmed.len() };
        start += part.len() + 1;
        let (system, event) = match trimmed.split_once(['/', ':']) {
            Some((system, event)) => (Some(system.trim()), event.trim()),
            None => (None, trimmed),
        };
        if event.is_empty() || system.is_some_and(str::is_empty) {
            let found = text[span.start..].chars().take(1).collect();
            return Err((
                span,
                FilterErrorKind::Expected { expected: "the name of an event or a system", found },
            ));
        }
        patterns.push(EventPattern { system: system.map(str::to_owned), event: event.to_owned(), span });
    }
    Ok((patterns, body))
}

/// Reads an expression that goes to the end of the text.
pub(super) fn expression(text: &str, at: usize, dialect: Dialect) -> Result<Expr, Error> {
    let mut tokens = Tokens::new(text, at, dialect);
    let next = tokens.next()?;
    let mut parser = Parser { tokens, next, dialect, depth: 0 };
    let (expr, _) = parser.alternatives()?;
    match parser.next.kind {
        TokenKind::End => Ok(expr),
        TokenKind::Operator(")") => {
            Err(parser.unexpected("`&&`, `||` or the end (there is no parenthesis to be closed)"))
        }
        _ => Err(parser.unexpected("`&&`, `||` or the end")),
    }
}

pub(super) struct Parser<'t> {
    tokens: Tokens<'t>,
    /// The word at the current position.
    next: Token<'t>,
    dialect: Dialect,
    /// Levels of recursion.
    depth: usize,
}

/// An expression and how deep it is nested: what works on it later goes as deep.
pub(super) type Deep = (Expr, usize);

impl<'t> Parser<'t> {
    fn advance(&mut self) -> Result<Token<'t>, Error> {
        let next = self.tokens.next()?;
        Ok(std::mem::replace(&mut self.next, next))
    }

    /// Moves on if the word is this operator.
    fn accept(&mut self, operator: &str) -> Result<bool, Error> {
        let found = matches!(self.next.kind, TokenKind::Operator(next) if next == operator);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    pub(super) fn accept_one<O: Copy>(&mut self, operators: &[(&str, O)]) -> Result<Option<O>, Error> {
        let TokenKind::Operator(next) = self.next.kind else { return Ok(None) };
        let found = operators.iter().find(|(operator, _)| *operator == next).map(|(_, op)| *op);
        if found.is_some() {
            self.advance()?;
        }
        Ok(found)
    }

    fn unexpected(&self, expected: &'static str) -> Error {
        let span = self.next.span;
        let found = self.tokens_text(span);
        (span, FilterErrorKind::Expected { expected, found })
    }

    fn tokens_text(&self, span: Span) -> String {
        self.tokens.text().get(span.start..span.end).unwrap_or_default().chars().take(60).collect()
    }

    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        self.depth += 1;
        let span = self.next.span;
        let result = check_depth(self.depth, span).and_then(|()| inner(self));
        self.depth -= 1;
        result
    }

    /// Everything that `&&` and `||` connect.
    fn alternatives(&mut self) -> Result<Deep, Error> {
        if self.dialect == Dialect::TraceCmd {
            return self.chain();
        }
        let first = self.all_of()?;
        let mut terms = vec![first];
        while self.accept("||")? {
            terms.push(self.all_of()?);
        }
        connect(terms, ExprKind::Or)
    }

    fn all_of(&mut self) -> Result<Deep, Error> {
        let mut terms = vec![self.term()?];
        while self.accept("&&")? {
            terms.push(self.term()?);
        }
        connect(terms, ExprKind::And)
    }

    /// `&&` and `||` from left to right, none before the other.
    fn chain(&mut self) -> Result<Deep, Error> {
        let mut terms = vec![self.term()?];
        let mut and = None;
        loop {
            let next = if self.accept("&&")? {
                true
            } else if self.accept("||")? {
                false
            } else {
                return connect(terms, if and == Some(true) { ExprKind::And } else { ExprKind::Or });
            };
            if let Some(before) = and
                && before != next
            {
                terms = vec![connect(terms, if before { ExprKind::And } else { ExprKind::Or })?];
            }
            and = Some(next);
            terms.push(self.term()?);
        }
    }

    fn term(&mut self) -> Result<Deep, Error> {
        if self.dialect == Dialect::Lttng {
            return self.lttng_equality();
        }
        let start = self.next.span;
        if self.accept("!")? {
            let (inner, depth) = self.deeper(Self::term)?;
            let span = start.to(inner.span);
            return nest(span, ExprKind::Not(Box::new(inner)), depth);
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Deep, Error> {
        let (left, left_depth) = self.arithmetic(0)?;
        if let Some(op) = self.accept_one(&COMPARISONS)? {
            let (right, right_depth) = self.arithmetic(0)?;
            let span = left.span.to(right.span);
            let kind = ExprKind::Binary { op, operands: Box::new((left, right)) };
            return nest(span, kind, left_depth.max(right_depth));
        }
        if let Some(op) = self.accept_one(&MATCHES)? {
            if !matches!(self.next.kind, TokenKind::Text { .. } | TokenKind::Word(_)) {
                return Err(self.unexpected("a pattern in quotes"));
            }
            let (pattern, _) = self.operand()?;
            if let (MatchOp::Regex | MatchOp::NotRegex, Some(text)) = (op, literal(&pattern)) {
                posix::compile(text).map_err(|error| (pattern.span, FilterErrorKind::Regex(error)))?;
            }
            let span = left.span.to(pattern.span);
            let kind = ExprKind::Match { op, text: Box::new(left), pattern: Box::new(pattern) };
            return nest(span, kind, left_depth);
        }
        Ok((left, left_depth))
    }

    /// Operators that bind at least this strongly, and their operands.
    pub(super) fn arithmetic(&mut self, least: u8) -> Result<Deep, Error> {
        let (mut left, mut depth) = self.operand()?;
        while let Some((strength, op)) = self.arithmetic_operator()
            && strength >= least
        {
            let operator = self.advance()?;
            if self.dialect == Dialect::Lttng && strength > SHIFTS {
                return Err(lttng::no_arithmetic(operator.span, &self.tokens_text(operator.span)));
            }
            let (right, right_depth) = self.arithmetic(strength + 1)?;
            let span = left.span.to(right.span);
            let kind = ExprKind::Binary { op, operands: Box::new((left, right)) };
            (left, depth) = nest(span, kind, depth.max(right_depth))?;
        }
        Ok((left, depth))
    }

    fn arithmetic_operator(&self) -> Option<(u8, Op)> {
        let TokenKind::Operator(next) = self.next.kind else { return None };
        ARITHMETIC.iter().find(|(operator, _)| *operator == next).map(|(_, found)| *found)
    }

    fn operand(&mut self) -> Result<Deep, Error> {
        let start = self.next.span;
        if self.accept("(")? {
            let (mut inner, depth) = self.deeper(Self::alternatives)?;
            let end = self.next.span;
            if !self.accept(")")? {
                return Err(self.unexpected("`&&`, `||` or `)`"));
            }
            inner.span = start.to(end);
            return Ok((inner, depth));
        }
        if self.dialect == Dialect::Lttng {
            if self.accept("+")? {
                return self.deeper(Self::operand);
            }
            if self.accept("!")? {
                let (inner, depth) = self.deeper(Self::operand)?;
                let span = start.to(inner.span);
                return nest(span, ExprKind::Not(Box::new(inner)), depth);
            }
        }
        for (sign, kind) in
            [("-", ExprKind::Negate as fn(Box<Expr>) -> ExprKind), ("~", ExprKind::Complement)]
        {
            if self.accept(sign)? {
                let (inner, depth) = self.deeper(Self::operand)?;
                let span = start.to(inner.span);
                return nest(span, kind(Box::new(inner)), depth);
            }
        }
        if matches!(self.next.kind, TokenKind::Operator(_) | TokenKind::End) {
            return Err(self.unexpected("a field or a value"));
        }
        let token = self.advance()?;
        let mut span = token.span;
        let kind = match token.kind {
            TokenKind::Number(number) => ExprKind::Number(number),
            TokenKind::Text { text, single } => ExprKind::Text { text, single },
            TokenKind::Context(context) => ExprKind::Context(context),
            TokenKind::Cpus(cpus) => ExprKind::Cpus(cpus),
            TokenKind::Word(name) => {
                let modifier = if self.dialect == Dialect::Lttng {
                    self.no_element()?;
                    None
                } else if self.accept(".")? {
                    Some(self.modifier(&mut span)?)
                } else {
                    None
                };
                ExprKind::Word { name: name.to_owned(), modifier }
            }
            // Left out above.
            TokenKind::Operator(_) | TokenKind::End => return Err(self.unexpected("a field or a value")),
        };
        Ok((Expr { span, kind }, 1))
    }

    /// Refuses what LTTng has after the names of fields with parts.
    fn no_element(&self) -> Result<(), Error> {
        match self.next.kind {
            TokenKind::Operator(found @ ("." | "->" | "[")) => Err((
                self.next.span,
                FilterErrorKind::Operator {
                    found: found.to_owned(),
                    hint: "fields have no parts here; compare them whole",
                },
            )),
            _ => Ok(()),
        }
    }

    fn modifier(&mut self, span: &mut Span) -> Result<Modifier, Error> {
        let token = self.advance()?;
        *span = span.to(token.span);
        match token.kind {
            TokenKind::Word("ustring") => Ok(Modifier::Ustring),
            TokenKind::Word("function") => Ok(Modifier::Function),
            _ => {
                let found = format!(".{}", self.tokens_text(token.span));
                Err((
                    token.span,
                    FilterErrorKind::Unknown { found, known: ".ustring and .function".to_owned() },
                ))
            }
        }
    }
}

/// The text of a pattern, with quotes or without.
pub(super) fn literal(expr: &Expr) -> Option<&str> {
    match &expr.kind {
        ExprKind::Text { text, .. } => Some(text),
        ExprKind::Word { name, modifier: None } => Some(name),
        _ => None,
    }
}

fn check_depth(depth: usize, span: Span) -> Result<(), Error> {
    if depth > MAX_DEPTH { Err((span, FilterErrorKind::TooDeep { limit: MAX_DEPTH })) } else { Ok(()) }
}

pub(super) fn nest(span: Span, kind: ExprKind, depth: usize) -> Result<Deep, Error> {
    check_depth(depth + 1, span)?;
    Ok((Expr { span, kind }, depth + 1))
}

fn connect(mut terms: Vec<Deep>, kind: fn(Vec<Expr>) -> ExprKind) -> Result<Deep, Error> {
    if terms.len() == 1
        && let Some(only) = terms.pop()
    {
        return Ok(only);
    }
    let depth = terms.iter().map(|(_, depth)| *depth).max().unwrap_or(0);
    let span = match (terms.first(), terms.last()) {
        (Some((first, _)), Some((last, _))) => first.span.to(last.span),
        _ => Span::default(),
    };
    nest(span, kind(terms.into_iter().map(|(expr, _)| expr).collect()), depth)
}
