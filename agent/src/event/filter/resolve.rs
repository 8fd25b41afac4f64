//! From expression to conditions for the records of each event.

use std::collections::{BTreeMap, BTreeSet};

use regex::bytes::Regex;

use super::ast::{Context, EventPattern, Expr, ExprKind, MatchOp, Modifier, Span};
use super::error::{FilterError, FilterErrorKind};
use super::parse::literal;
use super::program::{Bytes, CpuTest, Cpus, Number, Pattern, Test, Text};
use super::{Dialect, Filter, ResolvedFilter, posix};
use crate::event::copies::{CALLS, copied_argument, copy_of};
use crate::event::format::Field;
use crate::event::int::{IntType, Op};
use crate::event::record::FieldKind;
use crate::event::table::{EventTable, Printer};
use crate::input::{CpuSet, glob, nearest};

type Error = (Span, FilterErrorKind);

/// Conditions that all events together may have: what a long filter needs for thousands of events.
const MAX_TESTS: usize = 1 << 20;

/// A number of 64 bits without a sign.
const UNSIGNED: IntType = IntType::U64;
/// A number of 64 bits with one; everything that fits counts as such.
const SIGNED: IntType = IntType { size: 8, signed: true };

/// How a filter is made for its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResolveOptions {
    /// A field that no event has is no error, but false, as in trace-cmd.
    pub unknown_fields: bool,
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
        Leaf::Wrong(span, kind) => Some((span, kind)),
    });
    match wrong {
        Some(error) => Err(fail(error)),
        None => Ok(ResolvedFilter { machine: table.machine(), tests: tests.into() }),
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

/// One side of a comparison in the records of one event.
enum Operand<'f> {
    Number {
        number: Number,
        int: IntType,
        field: Option<&'f Field>,
    },
    /// An address whose function is meant.
    Function(Number),
    Text {
        text: Text,
        name: &'f str,
    },
    Mask(Bytes),
    Cpus(&'f CpuSet),
    Literal(Literal<'f>),
}

#[derive(Clone, Copy)]
struct Literal<'f> {
    text: &'f str,
    quoted: bool,
    /// Single quotes: one character can be a number.
    single: bool,
    span: Span,
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

    fn operand<'f>(&self, event: &'f Printer, expr: &'f Expr) -> Result<Operand<'f>, Error> {
        self.operand_with(event, expr, None)
    }

    /// An operand. Names of values inside arithmetic are those of the field `of`.
    fn operand_with<'f>(
        &self,
        event: &'f Printer,
        expr: &'f Expr,
        of: Option<&'f Field>,
    ) -> Result<Operand<'f>, Error> {
        let number = |(number, int)| Ok(Operand::Number { number, int, field: None });
        match &expr.kind {
            ExprKind::Number(value) => number((Number::Const(*value), of_constant(*value))),
            ExprKind::Text { text, single } => {
                Ok(Operand::Literal(Literal { text, quoted: true, single: *single, span: expr.span }))
            }
            ExprKind::Cpus(set) => Ok(Operand::Cpus(set)),
            ExprKind::Context(context) => self.context(event, expr.span, *context),
            ExprKind::Word { name, modifier } => self.word(event, expr.span, name, *modifier),
            ExprKind::Negate(inner) => {
                let (inner, _) = self.number(event, inner, of)?;
                number((Number::Negate(Box::new(inner)), SIGNED))
            }
            ExprKind::Complement(inner) => {
                let (inner, int) = self.number(event, inner, of)?;
                number((Number::Complement(Box::new(inner)), int))
            }
            ExprKind::Binary { op, operands } if !op.is_comparison() => {
                let (left, right) = (&operands.0, &operands.1);
                let a = self.number(event, left, sole_field(event, right).or(of))?;
                let b = self.number(event, right, sole_field(event, left).or(of))?;
                number(binary(*op, a, b))
            }
            ExprKind::Binary { .. }
            | ExprKind::Match { .. }
            | ExprKind::And(_)
            | ExprKind::Or(_)
            | ExprKind::Not(_) => {
                Err(mismatch(expr.span, "a condition stands where a value is expected".to_owned()))
            }
        }
    }

    fn number(&self, event: &Printer, expr: &Expr, of: Option<&Field>) -> Result<(Number, IntType), Error> {
        match self.operand_with(event, expr, of)? {
            Operand::Number { number, int, .. } => Ok((number, int)),
            Operand::Literal(literal) => match value_of(event, of, literal) {
                Some(value) => Ok((Number::Const(value), of_constant(value))),
                None if literal.quoted => Err(mismatch(expr.span, "a text is no number".to_owned())),
                None => Err(missing(expr.span, literal.text)),
            },
            other => Err(mismatch(expr.span, format!("{} is no number", other.describe()))),
        }
    }

    /// Whether a field is a string that a system call is given: the record has a copy of it, or can have.
    fn has_copy(&self, event: &Printer, field: &Field) -> bool {
        let is_call = event.format().name.starts_with(CALLS);
        let is_string = field.size == 8 && field.type_text.contains("char");
        is_call && (event.format().field(&copy_of(&field.name)).is_some() || self.options.live && is_string)
    }

    /// The text of such a field. While recording, programs that evaluate filters have the address and not the
    /// copy.
    fn copy(&self, event: &Printer, address: Number, field: &Field) -> Text {
        match event.format().field(&copy_of(&field.name)) {
            Some(&Field { offset, size, location, .. }) if !self.options.live => {
                Text::Field(Bytes { offset, size, location })
            }
            _ => Text::User(address),
        }
    }

    fn word<'f>(
        &self,
        event: &'f Printer,
        span: Span,
        name: &'f str,
        modifier: Option<Modifier>,
    ) -> Result<Operand<'f>, Error> {
        let format = event.format();
        if self.options.live
            && modifier.is_none()
            && let Some(argument) = copied_argument(name).and_then(|argument| format.field(argument))
            && self.has_copy(event, argument)
            && let Some(Operand::Number { number, .. }) = Self::field(event, &argument.name)
        {
            return Ok(Operand::Text { text: self.copy(event, number, argument), name });
        }
        // libtraceevent and ftrace both look at the common fields first; the names are distinct within a
        // format.
        let Some(field) = format.field(name) else {
            return match (special(name, self.dialect), modifier) {
                (Some(context), None) => self.context(event, span, context),
                (None, None) => {
                    Ok(Operand::Literal(Literal { text: name, quoted: false, single: false, span }))
                }
                (_, Some(_)) => Err(missing(span, name)),
            };
        };
        let operand = Self::field(event, name);
        match (modifier, operand) {
            (None, Some(operand)) => Ok(operand),
            (Some(Modifier::Function), Some(Operand::Number { number, .. })) => Ok(Operand::Function(number)),
            (Some(Modifier::Ustring), Some(Operand::Number { number, .. })) if self.options.live => {
                Ok(Operand::Text { text: Text::User(number), name })
            }
            (Some(Modifier::Ustring), Some(Operand::Number { .. })) => Err((
                span,
                FilterErrorKind::NotRecorded(format!(
                    "`{name}` is an address in the memory of a process, which is not in the file; `.ustring` is for recording"
                )),
            )),
            (Some(modifier), _) => {
                let modifier = if modifier == Modifier::Ustring { ".ustring" } else { ".function" };
                Err(mismatch(span, format!("{} is no address, which `{modifier}` is for", describe(field))))
            }
            (None, None) => {
                Err(mismatch(span, format!("{} is neither a number nor a text", describe(field))))
            }
        }
    }

    /// A field as an operand; `None` for what is neither number nor text.
    fn field<'f>(event: &'f Printer, name: &str) -> Option<Operand<'f>> {
        let index = event.field_index(name)?;
        let field = event.format().field(name)?;
        let Field { offset, size, location, .. } = *field;
        let bytes = Bytes { offset, size, location };
        let number = |size, signed| {
            let int = IntType { size, signed };
            let number = Number::Field { offset, int };
            Some(Operand::Number { number, int: widened(int), field: Some(field) })
        };
        match event.kind(index)? {
            FieldKind::Number { size, signed } => number(size, signed),
            FieldKind::Pointer { size } => number(size, false),
            // libtraceevent takes arrays of any kind of bytes for texts.
            FieldKind::Text | FieldKind::Array { size: 1, .. } => {
                Some(Operand::Text { text: Text::Field(bytes), name: &field.name })
            }
            FieldKind::Bitmask => Some(Operand::Mask(bytes)),
            FieldKind::Texts { .. } | FieldKind::Array { .. } | FieldKind::Bytes { .. } => None,
        }
    }

    fn context<'f>(&self, event: &Printer, span: Span, context: Context) -> Result<Operand<'f>, Error> {
        let int = if context == Context::Timestamp { UNSIGNED } else { SIGNED };
        if matches!(context, Context::Cpu | Context::Timestamp) {
            return Ok(Operand::Number { number: Number::Context { context, tid: None }, int, field: None });
        }
        let tid = match Self::field(event, "common_pid") {
            Some(Operand::Number { number, .. }) => Some(number),
            _ => None,
        };
        let Some(tid) = tid else {
            return Err((
                span,
                FilterErrorKind::NotRecorded("the event's format does not tell the thread".to_owned()),
            ));
        };
        match context {
            Context::Comm => Ok(Operand::Text { text: Text::Comm(tid), name: "COMM" }),
            Context::Tid => Ok(Operand::Number { number: tid, int, field: None }),
            _ if self.options.live => {
                let number = Number::Context { context, tid: Some(Box::new(tid)) };
                Ok(Operand::Number { number, int, field: None })
            }
            _ => Err((
                span,
                FilterErrorKind::NotRecorded(format!(
                    "a file does not tell ${} of its threads; $tid, $comm, $cpu and $timestamp can be used",
                    context.name()
                )),
            )),
        }
    }
}

impl Operand<'_> {
    fn describe(&self) -> String {
        match self {
            Self::Number { field: Some(field), .. } => describe(field),
            Self::Number { number: Number::Const(value), .. } => format!("the number {value}"),
            Self::Number { .. } => "a number".to_owned(),
            Self::Function(_) => "the name of a function".to_owned(),
            Self::Text { name, .. } => format!("the text `{name}`"),
            Self::Mask(_) => "a set of CPUs".to_owned(),
            Self::Cpus(_) => "a list of CPUs".to_owned(),
            Self::Literal(literal) => format!("the text \"{}\"", literal.text),
        }
    }
}

/// A field for an error: `` `next_pid` (pid_t) ``.
fn describe(field: &Field) -> String {
    let mut declaration = field.to_string();
    declaration.truncate(declaration.floor_char_boundary(80));
    format!("`{}` ({declaration})", field.name)
}

/// What a name means that no field has.
fn special(name: &str, dialect: Dialect) -> Option<Context> {
    match name {
        "COMM" | "common_comm" => Some(Context::Comm),
        "CPU" | "common_cpu" => Some(Context::Cpu),
        "TIMESTAMP" | "common_timestamp" => Some(Context::Timestamp),
        // `trace_define_generic_fields` of kernel/trace/trace_events.c.
        "comm" if dialect == Dialect::Ftrace => Some(Context::Comm),
        "cpu" if dialect == Dialect::Ftrace => Some(Context::Cpu),
        _ => None,
    }
}

/// The first field of the event in an expression: names of values next to it are its.
fn sole_field<'f>(event: &'f Printer, expr: &Expr) -> Option<&'f Field> {
    match &expr.kind {
        ExprKind::Word { name, .. } => event.format().field(name),
        ExprKind::Binary { operands, .. } => {
            sole_field(event, &operands.0).or_else(|| sole_field(event, &operands.1))
        }
        ExprKind::Negate(inner) | ExprKind::Complement(inner) => sole_field(event, inner),
        _ => None,
    }
}

/// The number that a text means as a value of a field.
fn value_of(event: &Printer, field: Option<&Field>, literal: Literal<'_>) -> Option<u64> {
    let mut chars = literal.text.chars();
    if let (true, Some(c), None) = (literal.single, chars.next(), chars.next()) {
        return Some(u64::from(u32::from(c)));
    }
    let names = event.value_names(field?);
    names.iter().find(|(name, _)| *name == literal.text.as_bytes()).map(|(_, value)| *value)
}

/// Whether a field can be compared with the name of a function: pointers, and longs if the name is in quotes,
/// as in libtraceevent.
fn is_address(field: &Field, quoted: bool) -> bool {
    let pointer = field.type_text.contains('*');
    pointer || (field.type_text.contains("long") && (quoted || field.type_text == "unsigned long"))
}

fn widened(int: IntType) -> IntType {
    if int.size == 8 && !int.signed { UNSIGNED } else { SIGNED }
}

fn of_constant(value: u64) -> IntType {
    if SIGNED.holds(value) { SIGNED } else { UNSIGNED }
}

/// What an operator makes of two numbers, in 64 bits with a sign if both have room for one.
fn binary(op: Op, (a, a_int): (Number, IntType), (b, b_int): (Number, IntType)) -> (Number, IntType) {
    let int = if a_int.signed && b_int.signed { SIGNED } else { UNSIGNED };
    let result = if op.is_comparison() { SIGNED } else { int };
    (Number::Binary { op, int, operands: Box::new((a, b)) }, result)
}

/// A field without a sign that is compared with a negative number.
fn never_negative(
    span: Span,
    one: (Option<&Field>, &Number),
    other: (Option<&Field>, &Number),
) -> Result<(), Error> {
    for (field, number) in [one, other] {
        let negative = matches!(number, Number::Negate(inner) if matches!(**inner, Number::Const(1..)));
        if let Some(field) = field.filter(|field| negative && !field.signed) {
            return Err(mismatch(span, format!("{} has no sign and is never negative", describe(field))));
        }
    }
    Ok(())
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
