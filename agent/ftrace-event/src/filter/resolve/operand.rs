//! One side of a comparison: what numbers, texts, names and arithmetic mean in the records of an event.

use super::super::Dialect;
use super::super::ast::{Expr, ExprKind, Modifier, Span};
use super::super::error::FilterErrorKind;
use super::super::program::{Bytes, Number, Text};
use super::{Error, Resolver, mismatch, missing};
use crate::context::Context;
use crate::copies::{CALLS, copied_argument, copy_of};
use crate::format::Field;
use crate::int::{IntType, Op};
use crate::record::FieldKind;
use crate::table::Printer;
use stdx::input::CpuSet;

/// One side of a comparison in the records of one event.
pub(super) enum Operand<'f> {
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
pub(super) struct Literal<'f> {
    pub(super) text: &'f str,
    pub(super) quoted: bool,
    /// Single quotes: one character can be a number.
    pub(super) single: bool,
    pub(super) span: Span,
}

/// A number of 64 bits without a sign.
pub(super) const UNSIGNED: IntType = IntType::U64;
/// A number of 64 bits with one; everything that fits counts as such.
pub(super) const SIGNED: IntType = IntType { size: 8, signed: true };

impl Resolver {
    pub(super) fn operand<'f>(&self, event: &'f Printer, expr: &'f Expr) -> Result<Operand<'f>, Error> {
        self.operand_with(event, expr, None)
    }

    /// An operand. Names of values inside arithmetic are those of the field `of`.
    pub(super) fn operand_with<'f>(
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

    pub(super) fn number(
        &self,
        event: &Printer,
        expr: &Expr,
        of: Option<&Field>,
    ) -> Result<(Number, IntType), Error> {
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
    pub(super) fn has_copy(&self, event: &Printer, field: &Field) -> bool {
        let is_call = event.format().name.starts_with(CALLS);
        let is_string = field.size == 8 && field.type_text.contains("char");
        is_call && (event.format().field(&copy_of(&field.name)).is_some() || self.options.live && is_string)
    }

    /// The text of such a field. While recording, programs that evaluate filters have the address and not the
    /// copy.
    pub(super) fn copy(&self, event: &Printer, address: Number, field: &Field) -> Text {
        match event.format().field(&copy_of(&field.name)) {
            Some(&Field { offset, size, location, .. }) if !self.options.live => {
                Text::Field(Bytes { offset, size, location })
            }
            _ => Text::User(address),
        }
    }

    pub(super) fn word<'f>(
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
            // While recording, the contexts are known of which records get fields.
            let context = Context::of_field(name).filter(|_| self.options.live);
            return match (context.or_else(|| special(name, self.dialect)), modifier) {
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
    pub(super) fn field<'f>(event: &'f Printer, name: &str) -> Option<Operand<'f>> {
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

    pub(super) fn context<'f>(
        &self,
        event: &'f Printer,
        span: Span,
        context: Context,
    ) -> Result<Operand<'f>, Error> {
        // What a record has of its own is of the moment when it was written.
        if context.is_field()
            && let Some(recorded) = Self::field(event, &context.field())
        {
            return Ok(recorded);
        }
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
            Context::Hostname | Context::Container if self.options.live => {
                Ok(Operand::Text { text: Text::Known(context), name: context.name() })
            }
            _ if self.options.live => {
                let number = Number::Context { context, tid: Some(Box::new(tid)) };
                Ok(Operand::Number { number, int, field: None })
            }
            _ => Err((
                span,
                FilterErrorKind::NotRecorded(format!(
                    "the record does not tell ${0}; record it with `--context {0}`",
                    context.name()
                )),
            )),
        }
    }
}

impl Operand<'_> {
    pub(super) fn describe(&self) -> String {
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
pub(super) fn describe(field: &Field) -> String {
    let mut declaration = field.to_string();
    declaration.truncate(declaration.floor_char_boundary(80));
    format!("`{}` ({declaration})", field.name)
}

/// What a name means that no field has.
pub(super) fn special(name: &str, dialect: Dialect) -> Option<Context> {
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
pub(super) fn sole_field<'f>(event: &'f Printer, expr: &Expr) -> Option<&'f Field> {
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
pub(super) fn value_of(event: &Printer, field: Option<&Field>, literal: Literal<'_>) -> Option<u64> {
    let mut chars = literal.text.chars();
    if let (true, Some(c), None) = (literal.single, chars.next(), chars.next()) {
        return Some(u64::from(u32::from(c)));
    }
    let names = event.value_names(field?);
    names.iter().find(|(name, _)| *name == literal.text.as_bytes()).map(|(_, value)| *value)
}

/// Whether a field can be compared with the name of a function: pointers, and longs if the name is in quotes,
/// as in libtraceevent.
pub(super) fn is_address(field: &Field, quoted: bool) -> bool {
    let pointer = field.type_text.contains('*');
    pointer || (field.type_text.contains("long") && (quoted || field.type_text == "unsigned long"))
}

pub(super) fn widened(int: IntType) -> IntType {
    if int.size == 8 && !int.signed { UNSIGNED } else { SIGNED }
}

pub(super) fn of_constant(value: u64) -> IntType {
    if SIGNED.holds(value) { SIGNED } else { UNSIGNED }
}

/// What an operator makes of two numbers, in 64 bits with a sign if both have room for one.
pub(super) fn binary(
    op: Op,
    (a, a_int): (Number, IntType),
    (b, b_int): (Number, IntType),
) -> (Number, IntType) {
    let int = if a_int.signed && b_int.signed { SIGNED } else { UNSIGNED };
    let result = if op.is_comparison() { SIGNED } else { int };
    (Number::Binary { op, int, operands: Box::new((a, b)) }, result)
}

/// A field without a sign that is compared with a negative number.
pub(super) fn never_negative(
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
