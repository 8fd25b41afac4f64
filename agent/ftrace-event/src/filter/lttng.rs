//! LTTng's dialect: the grammar of lttng-tools 2.13 (src/common/filter/filter-parser.y, filter-lexer.l).
//!
//! ```text
//! or       = and { "||" and }                 bitor  = bitxor { "|" bitxor }
//! and      = equal { "&&" equal }             bitxor = bitand { "^" bitand }
//! equal    = relation { "==" | "!=" relation } bitand = shift { "&" shift }
//! relation = bitor { "<" | ">" | "<=" | ">=" bitor }  shift = unary { "<<" | ">>" unary }
//! unary    = { "+" | "-" | "!" | "~" } (field | "$ctx." name | number | text | "(" or ")")
//! ```
//!
//! Bitwise operators bind tighter than comparisons, and so does `!`: `!a == 0` is `(!a) == 0`. A star in a
//! text is a wildcard, `\*` is not. What LTTng itself refuses is refused: arithmetic, numbers with a
//! fraction, texts with other comparisons than `==` and `!=`. So is what has no equivalent here: elements of
//! arrays and structures, `$app`, and the result of one comparison compared again.

use super::ast::{Expr, ExprKind, MatchOp, Span};
use super::error::FilterErrorKind;
use super::parse::{Deep, Error, Parser, nest};
use crate::context::Context;
use crate::int::Op;

const EQUALITIES: [(&str, Op); 2] = [("==", Op::Eq), ("!=", Op::Ne)];
const RELATIONS: [(&str, Op); 4] = [("<=", Op::Le), (">=", Op::Ge), ("<", Op::Lt), (">", Op::Gt)];

/// The names after `$ctx.`, for errors.
pub(super) fn contexts() -> String {
    let names = Context::ALL.map(|(context, _)| format!("$ctx.{}", context.lttng_name()));
    names.join(" ")
}

impl Parser<'_> {
    /// What `&&` connects.
    pub(super) fn lttng_equality(&mut self) -> Result<Deep, Error> {
        let mut left = self.lttng_relation()?;
        while let Some(op) = self.accept_one(&EQUALITIES)? {
            let right = self.lttng_relation()?;
            left = compare(op, left, right)?;
        }
        Ok(left)
    }

    fn lttng_relation(&mut self) -> Result<Deep, Error> {
        let mut left = self.arithmetic(0)?;
        while let Some(op) = self.accept_one(&RELATIONS)? {
            let right = self.arithmetic(0)?;
            left = compare(op, left, right)?;
        }
        Ok(left)
    }
}

/// A comparison, or a text matched with wildcards.
fn compare(op: Op, left: Deep, right: Deep) -> Result<Deep, Error> {
    let ((left, left_depth), (right, right_depth)) = (left, right);
    let (span, depth) = (left.span.to(right.span), left_depth.max(right_depth));
    let literal = |expr: &Expr| match &expr.kind {
        ExprKind::Text { text, single: false } => Some(text.clone()),
        _ => None,
    };
    let (text, mut pattern, wanted) = match (literal(&left), literal(&right)) {
        (None, Some(wanted)) => (left, right, wanted),
        (Some(wanted), None) => (right, left, wanted),
        (Some(_), Some(_)) => {
            return Err((
                span,
                FilterErrorKind::Mismatch("two texts are always the same or never".to_owned()),
            ));
        }
        (None, None) => {
            return nest(span, ExprKind::Binary { op, operands: Box::new((left, right)) }, depth);
        }
    };
    if !matches!(op, Op::Eq | Op::Ne) {
        return Err((
            span,
            FilterErrorKind::Mismatch("texts are compared with `==` and `!=` only".to_owned()),
        ));
    }
    let Some(wildcards) = wildcards(&wanted) else {
        pattern.kind = ExprKind::Text { text: plain(&wanted), single: false };
        return nest(span, ExprKind::Binary { op, operands: Box::new((text, pattern)) }, depth);
    };
    pattern.kind = ExprKind::Text { text: wildcards, single: false };
    let kind = ExprKind::Match { op: MatchOp::Glob, text: Box::new(text), pattern: Box::new(pattern) };
    let (expr, depth) = nest(span, kind, depth)?;
    if op == Op::Eq { Ok((expr, depth)) } else { nest(span, ExprKind::Not(Box::new(expr)), depth) }
}

/// The characters of a text, and whether a backslash stands before each.
fn characters(text: &str) -> impl Iterator<Item = (char, bool)> {
    let mut chars = text.chars();
    std::iter::from_fn(move || match chars.next()? {
        '\\' => Some(chars.next().map_or(('\\', false), |escaped| (escaped, true))),
        other => Some((other, false)),
    })
}

/// The text without what makes characters ordinary.
fn plain(text: &str) -> String {
    characters(text).map(|(character, _)| character).collect()
}

/// The pattern as ftrace's filters have it; `None` without a star.
fn wildcards(text: &str) -> Option<String> {
    let mut pattern = String::new();
    for (character, escaped) in characters(text) {
        // A pattern that begins with `!` is negated there.
        let special = matches!(character, '?' | '[' | '\\' | '*') || character == '!' && pattern.is_empty();
        if special && (escaped || character != '*') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    characters(text).any(|found| found == ('*', false)).then_some(pattern)
}

/// The error for an operator that LTTng reads and then refuses.
pub(super) fn no_arithmetic(span: Span, operator: &str) -> Error {
    let hint = "LTTng's filters have none of + - * / %; they have | ^ & << >>";
    (span, FilterErrorKind::Operator { found: operator.to_owned(), hint })
}
