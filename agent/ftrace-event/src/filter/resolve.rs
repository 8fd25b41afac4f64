//! From expression to conditions for the records of each event.

mod operand;

use std::collections::{BTreeMap, BTreeSet};

use regex::bytes::Regex;

use self::operand::{
    Literal, Operand, binary, describe, is_address, never_negative, of_constant, sole_field, value_of,
};
use super::ast::{EventPattern, Expr, ExprKind, MatchOp, Span};
use super::error::{FilterError, FilterErrorKind};
use super::parse::literal;
use super::program::{CpuTest, Cpus, Number, Pattern, Test, Value};
use super::{Dialect, Filter, ResolvedFilter, posix};
use crate::format::Field;
use crate::int::{IntType, Op};
use crate::table::{EventTable, Printer};
use stdx::input::{glob, nearest};

type Error = (Span, FilterErrorKind);

/// Conditions that all events together may have: what a long filter needs for thousands of events.
const MAX_TESTS: usize = 1 << 20;

/// How a filter is made for its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResolveOptions {
    /// A field that no event has is no error, but false, as in trace-cmd.
    pub unknown_fields: bool,
    /// A comparison that makes sense in no event, as of a number with a text, is no error, but false.
    pub mismatches: bool,
    /// Events as they happen, and not records of a file: processes and their memory are there to be looked
    /// at.
    pub live: bool,
}

pub(super) fn resolve(
    filter: &Filter,
    table: &EventTable,
    options: ResolveOptions,
) -> Result<ResolvedFilter, FilterError> {
    let fail = |error| FilterError::new(&filter.text, error);
    let events = events(&filter.events, table).map_err(fail)?;
    let mut resolver = Resolver {
        dialect: filter.dialect,
        options,
        regexes: BTreeMap::new(),
        leaves: BTreeMap::new(),
        tests: 0,
    };
    let mut tests = Vec::with_capacity(events.len());
    for (id, event) in &events {
        let test = filter.expr.as_ref().map_or(Test::Const(true), |expr| resolver.test(event, expr));
        if resolver.tests > MAX_TESTS {
            return Err(fail((Span::default(), FilterErrorKind::TooBig { events: events.len() })));
        }
        tests.push((*id, test));
    }
    let wrong = resolver.leaves.into_values().find_map(|leaf| match leaf {
        Leaf::Wrong(span, FilterErrorKind::NoField { name, .. }) if !options.unknown_fields => {
            Some((span, no_field(name, &events)))
        }
        Leaf::Wrong(_, FilterErrorKind::NoField { .. }) | Leaf::Right => None,
        Leaf::Wrong(_, FilterErrorKind::Mismatch(_)) if options.mismatches => None,
        Leaf::Wrong(span, kind) => Some((span, kind)),
    });
    match wrong {
        Some(error) => Err(fail(error)),
        None => Ok(ResolvedFilter { machine: table.machine(), tests: tests.into() }),
    }
}

/// What the expression of a filter is worth in the records of the event number `id`.
pub(super) fn value(
    filter: &Filter,
    table: &EventTable,
    id: u16,
    options: ResolveOptions,
) -> Result<Value, FilterError> {
    let fail = |error| FilterError::new(&filter.text, error);
    let expected = || {
        let what = FilterErrorKind::Expected { expected: "a field", found: filter.text.clone() };
        fail((Span::default(), what))
    };
    let found: BTreeMap<u16, &Printer> =
        table.iter().filter(|event| event.format().id == id).map(|event| (id, event)).collect();
    let (Some(expr), Some(event)) = (&filter.expr, found.get(&id)) else { return Err(expected()) };
    let (regexes, leaves) = (BTreeMap::new(), BTreeMap::new());
    let resolver = Resolver { dialect: filter.dialect, options, regexes, leaves, tests: 0 };
    match resolver.operand(event, expr).map_err(fail)? {
        Operand::Number { number, field: Some(field), .. } if resolver.has_copy(event, field) => {
            Ok(Value::Text(resolver.copy(event, number, field)))
        }
        Operand::Number { number, int, field } => {
            // What is extended to 64 bits with zeros is not negative.
            let signed = field.map_or(int.signed, |field| field.signed);
            Ok(Value::Number { number, signed })
        }
        Operand::Text { text, .. } => Ok(Value::Text(text)),
        Operand::Literal(Literal { text, quoted: false, span, .. }) => {
            Err(fail((span, no_field(text.to_owned(), &found))))
        }
        other => {
            Err(fail(mismatch(expr.span, format!("{} is neither a number nor a text", other.describe()))))
        }
    }
}

/// The events that the patterns mean; all if there are none.
fn events<'t>(patterns: &[EventPattern], table: &'t EventTable) -> Result<BTreeMap<u16, &'t Printer>, Error> {
    if patterns.is_empty() {
        return Ok(table.iter().map(|event| (event.format().id, event)).collect());
    }
    let mut found = BTreeMap::new();
    for pattern in patterns {
        let expression = |text: &str| posix::compile_whole(text).ok();
        let (system, event) = (pattern.system.as_deref(), pattern.event.as_str());
        let by_expression = (system.map(expression), expression(event));
        let described = |printer: &&Printer| match &by_expression {
            (None, Some(event)) => {
                event.is_match(printer.system().as_bytes()) || event.is_match(printer.name().as_bytes())
            }
            (Some(Some(system)), Some(event)) => {
                system.is_match(printer.system().as_bytes()) && event.is_match(printer.name().as_bytes())
            }
            _ => false,
        };
        let by_wildcards = |printer: &&Printer| match system {
            None => glob::matches(event, printer.system()) || glob::matches(event, printer.name()),
            Some(system) => glob::matches(system, printer.system()) && glob::matches(event, printer.name()),
        };
        let mut events: Vec<&Printer> = table.iter().filter(described).collect();
        if events.is_empty() {
            events = table.iter().filter(by_wildcards).collect();
        }
        if events.is_empty() {
            return Err((pattern.span, no_event(pattern, table)));
        }
        found.extend(events.into_iter().map(|event| (event.format().id, event)));
    }
    Ok(found)
}

fn no_event(pattern: &EventPattern, table: &EventTable) -> FilterErrorKind {
    let mut scored = BTreeSet::new();
    for event in table.iter() {
        if let Some(score) = nearest::score(&pattern.event, event.name()) {
            scored.insert((score, format!("{}/{}", event.system(), event.name())));
        }
        if let Some(score) = nearest::score(&pattern.event, event.system()) {
            scored.insert((score, event.system().to_owned()));
        }
    }
    let text = match &pattern.system {
        Some(system) => format!("{system}/{}", pattern.event),
        None => pattern.event.clone(),
    };
    let nearest = scored.into_iter().take(3).map(|(_, name)| name).collect();
    FilterErrorKind::NoEvent { pattern: text, nearest }
}

/// The error for a field that none of the events has, with what they have.
fn no_field(name: String, events: &BTreeMap<u16, &Printer>) -> FilterErrorKind {
    let fields = || events.values().take(256).flat_map(|event| fields(event));
    let scored: BTreeSet<_> = fields()
        .filter_map(|field| Some((nearest::score(&name, &field.name)?, field.name.as_str())))
        .collect();
    let mut nearest: Vec<String> = scored.into_iter().map(|(_, name)| name.to_owned()).collect();
    nearest.dedup();
    nearest.truncate(3);
    let mut values = events.values();
    let event = match (values.next(), values.next()) {
        (Some(only), None) => format!("{}:{}", only.system(), only.name()),
        _ => format!("none of the {} events", events.len()),
    };
    let fields = match events.len() {
        1 => fields().map(|field| field.name.as_str()).take(20).collect::<Vec<_>>().join(", "),
        _ => String::new(),
    };
    FilterErrorKind::NoField { name, event, nearest, fields }
}

fn fields(event: &Printer) -> impl Iterator<Item = &Field> {
    event.format().fields.iter().chain(&event.format().common)
}

/// What became of a comparison. It is an error only if it makes sense in no event.
enum Leaf {
    Right,
    Wrong(Span, FilterErrorKind),
}

struct Resolver {
    dialect: Dialect,
    options: ResolveOptions,
    /// Each is compiled once for all events.
    regexes: BTreeMap<Span, Regex>,
    leaves: BTreeMap<Span, Leaf>,
    tests: usize,
}

impl Resolver {
    fn test(&mut self, event: &Printer, expr: &Expr) -> Test {
        self.tests += 1;
        if self.tests > MAX_TESTS {
            return Test::Const(false);
        }
        let list =
            |this: &mut Self, terms: &[Expr]| terms.iter().map(|term| this.test(event, term)).collect();
        match &expr.kind {
            ExprKind::And(terms) => Test::All(list(self, terms)),
            ExprKind::Or(terms) => Test::Any(list(self, terms)),
            ExprKind::Not(inner) => match self.test(event, inner) {
                Test::Const(value) => Test::Const(!value),
                test => Test::Not(Box::new(test)),
            },
            _ => {
                let result = self.leaf(event, expr);
                let known = self.leaves.get(&expr.span);
                match result {
                    Ok(test) => {
                        self.leaves.insert(expr.span, Leaf::Right);
                        test
                    }
                    Err((span, kind)) => {
                        // An event that has the field gives the better error than one that has not.
                        let vague =
                            matches!(known, None | Some(Leaf::Wrong(_, FilterErrorKind::NoField { .. })));
                        if vague {
                            self.leaves.insert(expr.span, Leaf::Wrong(span, kind));
                        }
                        Test::Const(false)
                    }
                }
            }
        }
    }

    fn leaf(&mut self, event: &Printer, expr: &Expr) -> Result<Test, Error> {
        match &expr.kind {
            ExprKind::Binary { op, operands } if op.is_comparison() => {
                self.comparison(event, expr.span, *op, &operands.0, &operands.1)
            }
            ExprKind::Binary { op: Op::BitAnd, operands }
                if [&operands.0, &operands.1].iter().any(|side| matches!(side.kind, ExprKind::Cpus(_))) =>
            {
                let sides = [self.operand(event, &operands.0)?, self.operand(event, &operands.1)?];
                cpus(expr.span, CpuTest::Intersects, sides)
            }
            ExprKind::Match { op, text, pattern } => self.pattern(event, *op, text, pattern),
            _ => match self.operand(event, expr)? {
                Operand::Number { number, .. } => Ok(Test::Number(number)),
                Operand::Literal(Literal { text, quoted: false, .. }) => Err(missing(expr.span, text)),
                other => Err(mismatch(
                    expr.span,
                    format!("{} alone is no condition; compare it with something", other.describe()),
                )),
            },
        }
    }

    fn comparison(
        &mut self,
        event: &Printer,
        span: Span,
        op: Op,
        left: &Expr,
        right: &Expr,
    ) -> Result<Test, Error> {
        let equality = match op {
            Op::Eq => Some(false),
            Op::Ne => Some(true),
            _ => None,
        };
        let one = self.operand_with(event, left, sole_field(event, right))?;
        let other = self.operand_with(event, right, sole_field(event, left))?;
        let ordered = |what: &Operand<'_>| {
            let what = what.describe();
            mismatch(span, format!("{what} can only be compared with ==, !=, ~, =~ and !~"))
        };
        match (one, other) {
            (
                Operand::Number { number: a, int: a_int, field: a_field },
                Operand::Number { number: b, int: b_int, field: b_field },
            ) => {
                never_negative(span, (a_field, &b), (b_field, &a))?;
                Ok(Test::Number(binary(op, (a, a_int), (b, b_int)).0))
            }
            (Operand::Text { text: a, .. }, Operand::Text { text: b, .. }) if equality.is_some() => {
                Ok(Test::SameText { texts: Box::new((a, b)), negated: equality == Some(true) })
            }
            (Operand::Text { text, name }, Operand::Literal(literal))
            | (Operand::Literal(literal), Operand::Text { text, name }) => {
                let Some(negated) = equality else { return Err(ordered(&Operand::Text { text, name })) };
                Ok(Test::Text { text, pattern: Pattern::Equal(literal.text.as_bytes().into()), negated })
            }
            (Operand::Function(address), Operand::Literal(literal))
            | (Operand::Literal(literal), Operand::Function(address)) => {
                let Some(negated) = equality else { return Err(ordered(&Operand::Function(address))) };
                let pattern = Pattern::Equal(literal.text.as_bytes().into());
                Ok(Test::Function { address, pattern, negated })
            }
            (Operand::Number { number, field: Some(field), .. }, Operand::Literal(literal))
            | (Operand::Literal(literal), Operand::Number { number, field: Some(field), .. })
                if literal.quoted && self.has_copy(event, field) && equality.is_some() =>
            {
                let (text, negated) = (self.copy(event, number, field), equality == Some(true));
                Ok(Test::Text { text, pattern: Pattern::Equal(literal.text.as_bytes().into()), negated })
            }
            (Operand::Number { number, int, field }, Operand::Literal(literal)) => {
                Self::named(event, span, op, (number, int, field), literal, false)
            }
            (Operand::Literal(literal), Operand::Number { number, int, field }) => {
                Self::named(event, span, op, (number, int, field), literal, true)
            }
            (a, b) if matches!(a, Operand::Cpus(_)) != matches!(b, Operand::Cpus(_)) => match equality {
                Some(false) => cpus(span, CpuTest::Equal, [a, b]),
                Some(true) => cpus(span, CpuTest::NotEqual, [a, b]),
                None => {
                    Err(mismatch(span, "a list of CPUs can only be compared with ==, != and &".to_owned()))
                }
            },
            (Operand::Literal(Literal { text, quoted: false, span, .. }), _)
            | (_, Operand::Literal(Literal { text, quoted: false, span, .. })) => Err(missing(span, text)),
            (a, b) => {
                Err(mismatch(span, format!("{} cannot be compared with {}", a.describe(), b.describe())))
            }
        }
    }

    /// A number compared with a text: a name that the format has for the value, or the name of a function.
    fn named(
        event: &Printer,
        span: Span,
        op: Op,
        (number, int, field): (Number, IntType, Option<&Field>),
        literal: Literal<'_>,
        swapped: bool,
    ) -> Result<Test, Error> {
        if let Some(value) = value_of(event, field, literal) {
            let sides = ((number, int), (Number::Const(value), of_constant(value)));
            let (a, b) = if swapped { (sides.1, sides.0) } else { sides };
            return Ok(Test::Number(binary(op, a, b).0));
        }
        let is_address = field.is_some_and(|field| is_address(field, literal.quoted));
        if is_address && matches!(op, Op::Eq | Op::Ne) {
            let pattern = Pattern::Equal(literal.text.as_bytes().into());
            return Ok(Test::Function { address: number, pattern, negated: op == Op::Ne });
        }
        if is_address {
            return Err(mismatch(
                span,
                "names of functions can only be compared with ==, !=, ~, =~ and !~".to_owned(),
            ));
        }
        let names: Vec<_> = field.map(|field| event.value_names(field)).unwrap_or_default();
        let names = names.iter().take(12).map(|(name, _)| String::from_utf8_lossy(name)).collect::<Vec<_>>();
        let what = field.map_or_else(|| "this".to_owned(), describe);
        Err(if !literal.quoted && names.is_empty() {
            missing(literal.span, literal.text)
        } else if names.is_empty() {
            mismatch(literal.span, format!("{what} is a number; compare it with a number"))
        } else {
            mismatch(literal.span, format!("{what} has no value of this name; it has {}", names.join(", ")))
        })
    }

    fn pattern(&mut self, event: &Printer, op: MatchOp, text: &Expr, pattern: &Expr) -> Result<Test, Error> {
        let wanted = literal(pattern)
            .ok_or_else(|| mismatch(pattern.span, "a pattern is a text in quotes".to_owned()))?;
        let (pattern, negated) = match op {
            MatchOp::Glob => match wanted.strip_prefix('!') {
                // As in ftrace's filters.
                Some(rest) => (Pattern::Glob(rest.as_bytes().into()), true),
                None => (Pattern::Glob(wanted.as_bytes().into()), false),
            },
            MatchOp::Regex | MatchOp::NotRegex => {
                let regex = if let Some(regex) = self.regexes.get(&pattern.span) {
                    regex.clone()
                } else {
                    let regex = posix::compile(wanted)
                        .map_err(|error| (pattern.span, FilterErrorKind::Regex(error)))?;
                    self.regexes.insert(pattern.span, regex.clone());
                    regex
                };
                (Pattern::Regex(regex), op == MatchOp::NotRegex)
            }
        };
        match self.operand(event, text)? {
            Operand::Text { text, .. } => Ok(Test::Text { text, pattern, negated }),
            Operand::Number { number, field: Some(field), .. } if self.has_copy(event, field) => {
                Ok(Test::Text { text: self.copy(event, number, field), pattern, negated })
            }
            Operand::Function(address) => Ok(Test::Function { address, pattern, negated }),
            Operand::Number { number, field: Some(field), .. } if is_address(field, true) => {
                Ok(Test::Function { address: number, pattern, negated })
            }
            Operand::Literal(Literal { text: name, quoted: false, .. }) => Err(missing(text.span, name)),
            other => Err(mismatch(
                text.span,
                format!("{} is no text, and `{}` is for texts", other.describe(), op.text()),
            )),
        }
    }
}

fn cpus(span: Span, test: CpuTest, sides: [Operand<'_>; 2]) -> Result<Test, Error> {
    let ([Operand::Cpus(set), cpus] | [cpus, Operand::Cpus(set)]) = sides else {
        return Err(mismatch(span, "there are no CPUs to compare".to_owned()));
    };
    let cpus = match cpus {
        Operand::Number { number, .. } => Cpus::One(number),
        Operand::Mask(mask) => Cpus::Mask(mask),
        Operand::Literal(Literal { text, quoted: false, span, .. }) => return Err(missing(span, text)),
        other => {
            return Err(mismatch(
                span,
                format!("{} cannot be compared with a list of CPUs", other.describe()),
            ));
        }
    };
    Ok(Test::Cpus { cpus, test, set: set.clone() })
}

fn mismatch(span: Span, text: String) -> Error {
    (span, FilterErrorKind::Mismatch(text))
}

fn missing(span: Span, name: &str) -> Error {
    let (event, nearest, fields) = (String::new(), Vec::new(), String::new());
    (span, FilterErrorKind::NoField { name: name.to_owned(), event, nearest, fields })
}
