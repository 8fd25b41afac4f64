//! From words to expressions: the C grammar of `print fmt`.

use std::collections::HashSet;

use super::call;
use super::ctype::{self, IntType, Pointee, Type};
use super::direct::Direct;
use super::error::{PrintFmtError, PrintFmtErrorKind};
use super::expr::{Argument, Expr, Op, Piece};
use super::spec::{self, Amount};
use super::statement::Local;
use super::token::{Token, TokenKind, tokens};
use crate::format::{Array, Field, Format, Location};
use crate::output::Snippet;
use crate::record::Machine;
use crate::symbols::Names;

/// How deep expressions may stand in each other, in the text and in the tree that is made of it. The deepest
/// of the kernel's, which macros have grown, has about 20.
const MAX_DEPTH: u16 = 100;

/// An expression with its type and how deep its tree is.
#[derive(Clone, Debug)]
pub(super) struct Parsed {
    pub(super) expr: Expr,
    pub(super) ty: Type,
    pub(super) depth: u16,
}

pub(super) struct Parser<'t> {
    tokens: Vec<Token<'t>>,
    pub(super) at: usize,
    depth: u16,
    pub(super) format: &'t Format,
    pub(super) machine: Machine,
    pub(super) names: &'t dyn Names,
    /// Names whose value is unknown.
    pub(super) unresolved: Vec<String>,
    known_unresolved: HashSet<String>,
    pub(super) locals: Vec<Local<'t>>,
    pub(super) slots: u8,
    /// Whether this is within the arguments of `trace_seq_printf`.
    pub(super) in_sequence: bool,
}

pub(super) type Result<T> = std::result::Result<T, PrintFmtError>;

impl<'t> Parser<'t> {
    pub(super) fn new(format: &'t Format, machine: Machine, names: &'t dyn Names) -> Result<Self> {
        let tokens = tokens(&format.print_fmt, machine.long_size)?;
        Ok(Self {
            tokens,
            at: 0,
            depth: 0,
            format,
            machine,
            names,
            unresolved: Vec::new(),
            known_unresolved: HashSet::new(),
            locals: Vec::new(),
            slots: 0,
            in_sequence: false,
        })
    }

    /// The whole text: a format string and its arguments.
    pub(super) fn print_fmt(&mut self) -> Result<Vec<Piece>> {
        if self.peek() == &TokenKind::End {
            return Err(self.fail(PrintFmtErrorKind::Empty));
        }
        let pieces = self.printf()?;
        match self.peek() {
            TokenKind::End => Ok(pieces),
            _ => Err(self.expected("the end")),
        }
    }

    /// A format string and its arguments, up to what cannot go on.
    pub(super) fn printf(&mut self) -> Result<Vec<Piece>> {
        let start = self.at;
        let text = self.text()?;
        let mut arguments = Vec::new();
        while self.accept(",") {
            arguments.push(self.expression()?);
        }
        self.pieces(&text, arguments).map_err(|kind| PrintFmtError { at: self.tokens[start].at, kind })
    }

    /// The parts of a format string with these arguments.
    pub(super) fn pieces(
        &self,
        text: &[u8],
        arguments: Vec<Parsed>,
    ) -> std::result::Result<Vec<Piece>, PrintFmtErrorKind> {
        let mut arguments = arguments.into_iter();
        let mut count = 0;
        let mut next = || {
            count += 1;
            arguments.next().map(|parsed| parsed.expr).ok_or(PrintFmtErrorKind::MissingArgument(count))
        };
        let mut pieces = Vec::new();
        let mut plain: Vec<u8> = Vec::new();
        let mut rest = text;
        while let Some((&byte, after)) = rest.split_first() {
            if byte != b'%' || after.first() == Some(&b'%') {
                plain.push(byte);
                rest = if byte == b'%' { &after[1..] } else { after };
                continue;
            }
            let (spec, used) = spec::parse(after, self.machine.long_size).map_err(|bad| {
                PrintFmtErrorKind::Conversion(
                    String::from_utf8_lossy(&after[..bad]).chars().take(20).collect(),
                )
            })?;
            rest = &after[used..];
            if !plain.is_empty() {
                pieces.push(Piece::Text(Snippet::new(&std::mem::take(&mut plain))));
            }
            let width = if spec.width == Amount::Argument { Some(next()?) } else { None };
            let precision = if spec.precision == Amount::Argument { Some(next()?) } else { None };
            let value = next()?;
            let direct = Direct::of(&spec, &value);
            pieces.push(Piece::Argument(Argument { direct, spec, width, precision, value }));
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(Snippet::new(&plain)));
        }
        Ok(pieces)
    }

    pub(super) fn expression(&mut self) -> Result<Parsed> {
        self.nested(Self::conditional)
    }

    /// Runs a part of the grammar that can contain itself.
    pub(super) fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= MAX_DEPTH {
            return Err(self.fail(PrintFmtErrorKind::Depth));
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    fn conditional(&mut self) -> Result<Parsed> {
        let condition = self.binary(0)?;
        if !self.accept("?") {
            return Ok(condition);
        }
        let yes = self.expression()?;
        self.expect(":")?;
        let no = self.expression()?;
        let ty = match (&yes.ty, &no.ty) {
            (Type::Int(a), Type::Int(b)) => Type::Int(a.common(*b)),
            (Type::Int(_), other) | (other, _) => other.clone(),
        };
        if let Expr::Const(value) = condition.expr {
            let chosen = if value == 0 { no } else { yes };
            return Ok(Parsed { expr: convert(chosen.expr, &chosen.ty, &ty), ty, depth: chosen.depth });
        }
        let depth = condition.depth.max(yes.depth).max(no.depth);
        let (yes, no) = (convert(yes.expr, &yes.ty, &ty), convert(no.expr, &no.ty, &ty));
        self.made(Expr::Choice(Box::new((condition.expr, yes, no))), ty, depth)
    }

    /// Operators between two operands, from those that bind as weakly as `level` on.
    fn binary(&mut self, level: u8) -> Result<Parsed> {
        let mut left = self.nested(Self::unary)?;
        while let TokenKind::Punct(punct) = *self.peek() {
            let Some((own, operator)) = operator(punct) else { break };
            if own < level {
                break;
            }
            self.at += 1;
            let right = self.nested(|parser| parser.binary(own + 1))?;
            left = self.combine(operator, left, right)?;
        }
        Ok(left)
    }

    fn combine(&mut self, operator: Operator, left: Parsed, right: Parsed) -> Result<Parsed> {
        let depth = left.depth.max(right.depth);
        let op = match operator {
            Operator::And => {
                return self.made(Expr::And(Box::new((left.expr, right.expr))), Type::INT, depth);
            }
            Operator::Or => return self.made(Expr::Or(Box::new((left.expr, right.expr))), Type::INT, depth),
            Operator::Arithmetic(op) => op,
        };
        // Arithmetic on pointers.
        match (op, &left.ty, &right.ty) {
            (Op::Add | Op::Sub, Type::Pointer(_), Type::Int(int)) => {
                let int = *int;
                let index = if op == Op::Sub {
                    Expr::Negate(IntType::U64, Box::new(right.expr))
                } else {
                    convert(right.expr, &Type::Int(int), &Type::Int(IntType::U64))
                };
                let Some(step) = self.step(&left.ty) else {
                    return self.made(Expr::Unknown, left.ty, depth);
                };
                let operands = Box::new((left.expr, index));
                return self.made(Expr::Advance { step, operands }, left.ty, depth);
            }
            (Op::Add, Type::Int(_), Type::Pointer(_)) => return self.combine(operator, right, left),
            _ => {}
        }
        let (a, b) = (left.ty.int(), right.ty.int());
        let int = if matches!(op, Op::Shl | Op::Shr) { a.promoted() } else { a.common(b) };
        let ty = if op.is_comparison() { Type::INT } else { Type::Int(int) };
        if let (Expr::Const(a), Expr::Const(b)) = (&left.expr, &right.expr)
            && let Some(value) = op.apply(int, *a, *b)
        {
            return Ok(Parsed { expr: Expr::Const(value), ty, depth: 1 });
        }
        self.made(Expr::Binary(op, int, Box::new((left.expr, right.expr))), ty, depth)
    }

    /// Bytes that `pointer + 1` is further than `pointer`.
    fn step(&mut self, ty: &Type) -> Option<u32> {
        match ty {
            Type::Pointer(Pointee::Int(int)) => Some(u32::from(int.size)),
            Type::Pointer(Pointee::Pointer) => Some(u32::from(self.machine.long_size)),
            Type::Pointer(Pointee::Void) => Some(1),
            Type::Pointer(Pointee::Named(name)) => {
                let name = format!("sizeof({name})");
                let size = self.names.value(&name).and_then(|size| u32::try_from(size).ok());
                if size.is_none() {
                    self.unresolved(name);
                }
                size
            }
            Type::Int(_) | Type::Other => None,
        }
    }

    pub(super) fn unary(&mut self) -> Result<Parsed> {
        let at = self.at;
        if let TokenKind::Name("sizeof") = self.peek() {
            self.at += 1;
            return self.size_of();
        }
        let &TokenKind::Punct(punct) = self.peek() else { return self.postfix() };
        if punct == "(" {
            if let Some(ty) = self.cast()? {
                let operand = self.nested(Self::unary)?;
                return self.converted(operand, ty);
            }
            return self.postfix();
        }
        if !matches!(punct, "!" | "~" | "-" | "+" | "&" | "*") {
            return self.postfix();
        }
        self.at += 1;
        let operand = self.nested(Self::unary)?;
        let int = operand.ty.int().promoted();
        let (expr, depth) = (operand.expr, operand.depth);
        match punct {
            "+" => Ok(Parsed { expr, ty: operand.ty, depth }),
            "!" => match expr {
                Expr::Const(value) => Ok(constant(u64::from(value == 0), IntType::INT)),
                expr => self.made(Expr::Not(Box::new(expr)), Type::INT, depth),
            },
            "~" => match expr {
                Expr::Const(value) => Ok(constant(int.wrap(!value), int)),
                expr => self.made(Expr::Complement(int, Box::new(expr)), Type::Int(int), depth),
            },
            "-" => match expr {
                Expr::Const(value) => Ok(constant(int.wrap(value.wrapping_neg()), int)),
                expr => self.made(Expr::Negate(int, Box::new(expr)), Type::Int(int), depth),
            },
            "*" => self.element(Parsed { expr, ty: operand.ty, depth }, constant(0, IntType::INT)),
            _ => {
                let (expr, pointee) = match expr {
                    Expr::Load { offset, int } => {
                        (Expr::Bytes { offset, len: Some(u32::from(int.size)) }, Pointee::Int(int))
                    }
                    bytes @ (Expr::Bytes { .. } | Expr::Dynamic { .. }) => (bytes, Pointee::Void),
                    Expr::Element { int, operands } => {
                        (Expr::Advance { step: u32::from(int.size), operands }, Pointee::Int(int))
                    }
                    _ => {
                        self.at = at;
                        return Err(self.fail(PrintFmtErrorKind::Operands("&")));
                    }
                };
                Ok(Parsed { expr, ty: Type::Pointer(pointee), depth })
            }
        }
    }

    fn postfix(&mut self) -> Result<Parsed> {
        let mut parsed = self.primary()?;
        loop {
            if self.accept("[") {
                let index = self.expression()?;
                self.expect("]")?;
                parsed = self.element(parsed, index)?;
            } else if matches!(self.peek(), TokenKind::Punct("." | "->")) {
                // Members of structs that the format does not describe.
                self.at += 1;
                let name = self.name()?;
                return Err(self.fail(PrintFmtErrorKind::NoField(super::token::shorten(name))));
            } else {
                return Ok(parsed);
            }
        }
    }

    fn element(&mut self, base: Parsed, index: Parsed) -> Result<Parsed> {
        let (int, ty) = match base.ty {
            Type::Pointer(Pointee::Int(int)) => (int, Type::Int(int)),
            Type::Pointer(Pointee::Pointer) => {
                let int = IntType { size: self.machine.long_size, signed: false };
                (int, Type::Pointer(Pointee::Void))
            }
            _ => return Err(self.fail(PrintFmtErrorKind::Operands("[]"))),
        };
        let depth = base.depth.max(index.depth);
        self.made(Expr::Element { int, operands: Box::new((base.expr, index.expr)) }, ty, depth)
    }

    fn primary(&mut self) -> Result<Parsed> {
        match self.peek().clone() {
            TokenKind::Number(value, int) => {
                self.at += 1;
                Ok(constant(value, int))
            }
            TokenKind::Text(_) => {
                let text = self.text()?;
                Ok(Parsed { expr: Expr::Text(text.into()), ty: Type::TEXT, depth: 1 })
            }
            TokenKind::Punct("(") => {
                self.at += 1;
                if self.accept("{") {
                    return self.nested(Self::statement_expression);
                }
                // `(REC)->field`
                if self.peek() == &TokenKind::Name("REC") && self.peek_second() == &TokenKind::Punct(")") {
                    self.at += 2;
                    self.expect("->")?;
                    return self.member();
                }
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            TokenKind::Name("REC") => {
                self.at += 1;
                self.expect("->")?;
                self.member()
            }
            TokenKind::Name(name) => {
                self.at += 1;
                if self.peek() == &TokenKind::Punct("(") {
                    return call::parse(self, name);
                }
                if let Some(parsed) = self.local(name)? {
                    return Ok(parsed);
                }
                Ok(self.named_constant(name))
            }
            _ => Err(self.expected("an expression")),
        }
    }

    fn named_constant(&mut self, name: &str) -> Parsed {
        let known = match name {
            "true" => Some(1),
            "false" => Some(0),
            "NULL" => return Parsed { expr: Expr::Const(0), ty: Type::Pointer(Pointee::Void), depth: 1 },
            // include/linux/printk.h
            "DUMP_PREFIX_NONE" => Some(0),
            "DUMP_PREFIX_ADDRESS" => Some(1),
            "DUMP_PREFIX_OFFSET" => Some(2),
            // include/linux/nvme.h
            "nvme_fabrics_command" => Some(0x7f),
            _ => enumerator(name).or_else(|| self.names.value(name)),
        };
        let Some(value) = known else {
            self.unresolved(name.to_owned());
            return Parsed { expr: Expr::Unknown, ty: Type::Int(IntType::U64), depth: 1 };
        };
        let int = if i32::try_from(value).is_ok() {
            IntType::INT
        } else if u32::try_from(value).is_ok() {
            IntType { size: 4, signed: false }
        } else {
            IntType { size: 8, signed: value < 0 }
        };
        constant(value as u64, int)
    }

    pub(super) fn unresolved(&mut self, name: String) {
        if self.known_unresolved.insert(name.clone()) {
            self.unresolved.push(name);
        }
    }

    /// What follows `REC->`.
    fn member(&mut self) -> Result<Parsed> {
        let at = self.at;
        let mut name = self.name()?;
        let raw = name.strip_prefix("__data_loc_").or_else(|| name.strip_prefix("__rel_loc_"));
        if let Some(field) = raw.and_then(|name| self.format.member(name, true)) {
            let int = IntType { size: 4, signed: false };
            return Ok(Parsed {
                expr: Expr::Load { offset: field.offset, int },
                ty: Type::Int(int),
                depth: 1,
            });
        }
        // Of members of members the format lists the last ones (system `ftrace`).
        while self.format.member(name, false).is_none() && matches!(self.peek(), TokenKind::Punct("." | "->"))
        {
            self.at += 1;
            name = self.name()?;
        }
        let Some(field) = self.format.member(name, false) else {
            self.at = at;
            return Err(self.fail(PrintFmtErrorKind::NoField(super::token::shorten(name))));
        };
        Ok(self.field(field))
    }

    /// A field as an expression.
    pub(super) fn field(&self, field: &Field) -> Parsed {
        let (offset, size) = (field.offset, field.size);
        // A field may be named as often as there is room; a type that is too long for one means nothing.
        let type_text =
            Some(&*field.type_text).filter(|text| text.len() <= ctype::NAME_MAX).unwrap_or_default();
        let stars = type_text.matches('*').count();
        let without = type_text.replace('*', " ");
        let words: Vec<&str> = without.split_whitespace().collect();
        let long_size = self.machine.long_size;
        if field.array != Array::Single || field.location != Location::Inline || size == 0 {
            let expr = match field.location {
                Location::Inline => Expr::Bytes { offset, len: (size != 0).then_some(size) },
                location => Expr::Dynamic { offset, relative: location == Location::RelLoc },
            };
            let ty = ctype::named(&words, stars + 1, long_size);
            return Parsed { expr, ty, depth: 1 };
        }
        let composite = stars == 0 && words.iter().any(|word| matches!(*word, "struct" | "union"));
        if composite || !matches!(size, 1 | 2 | 4 | 8) {
            let expr = Expr::Bytes { offset, len: Some(size) };
            return Parsed { expr, ty: Type::Pointer(Pointee::Void), depth: 1 };
        }
        let int = IntType { size: size as u8, signed: field.signed };
        let ty = if stars == 0 { Type::Int(int) } else { ctype::named(&words, stars, long_size) };
        Parsed { expr: Expr::Load { offset, int }, ty, depth: 1 }
    }

    /// An expression whose parts are `depth` deep.
    pub(super) fn made(&self, expr: Expr, ty: Type, depth: u16) -> Result<Parsed> {
        if depth >= MAX_DEPTH {
            return Err(self.fail(PrintFmtErrorKind::Depth));
        }
        Ok(Parsed { expr, ty, depth: depth + 1 })
    }

    pub(super) fn peek(&self) -> &TokenKind<'t> {
        // The last one is the end, which nothing goes past.
        &self.tokens[self.at.min(self.tokens.len() - 1)].kind
    }

    pub(super) fn peek_second(&self) -> &TokenKind<'t> {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)].kind
    }

    pub(super) fn accept(&mut self, punct: &str) -> bool {
        let found = matches!(self.peek(), TokenKind::Punct(found) if *found == punct);
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, punct: &'static str) -> Result<()> {
        if self.accept(punct) { Ok(()) } else { Err(self.expected(punct)) }
    }

    pub(super) fn name(&mut self) -> Result<&'t str> {
        match *self.peek() {
            TokenKind::Name(name) => {
                self.at += 1;
                Ok(name)
            }
            _ => Err(self.expected("a name")),
        }
    }

    /// One or more strings, joined.
    pub(super) fn text(&mut self) -> Result<Vec<u8>> {
        let mut text = match self.peek() {
            TokenKind::Text(text) => text.clone(),
            _ => return Err(self.expected("a string")),
        };
        self.at += 1;
        while let TokenKind::Text(more) = self.peek() {
            text.extend_from_slice(&more.clone());
            self.at += 1;
        }
        Ok(text)
    }

    /// Where the next word stands.
    pub(super) fn position(&self) -> usize {
        self.tokens[self.at.min(self.tokens.len() - 1)].at
    }

    /// Where the last word stood that was taken.
    pub(super) fn last_position(&self) -> usize {
        self.tokens[self.at.saturating_sub(1)].at
    }

    pub(super) fn fail(&self, kind: PrintFmtErrorKind) -> PrintFmtError {
        PrintFmtError { at: self.position(), kind }
    }

    pub(super) fn expected(&self, expected: &'static str) -> PrintFmtError {
        self.fail(PrintFmtErrorKind::Expected { expected, found: self.peek().describe() })
    }
}

pub(super) fn constant(value: u64, int: IntType) -> Parsed {
    Parsed { expr: Expr::Const(value), ty: Type::Int(int), depth: 1 }
}

/// An operand in the type that an operator needs.
pub(super) fn convert(expr: Expr, from: &Type, to: &Type) -> Expr {
    match (from, to, expr) {
        (Type::Int(a), Type::Int(b), expr) if a == b => expr,
        (Type::Int(_), Type::Int(int), Expr::Const(value)) => Expr::Const(int.wrap(value)),
        // Longer types hold what was extended already, unless the sign is lost on the way.
        (Type::Int(a), Type::Int(b), expr) if b.size == 8 || (a.size < b.size && a.signed == b.signed) => {
            expr
        }
        (Type::Int(_), Type::Int(int), expr) => Expr::Cast(*int, Box::new(expr)),
        (_, _, expr) => expr,
    }
}

/// Enumerators that kernels before 4.1 have in formats by their names: numbers that have always been these
/// (include/linux/interrupt.h, include/linux/hrtimer.h).
fn enumerator(name: &str) -> Option<i64> {
    const SOFTIRQS: [&str; 10] = [
        "HI_SOFTIRQ",
        "TIMER_SOFTIRQ",
        "NET_TX_SOFTIRQ",
        "NET_RX_SOFTIRQ",
        "BLOCK_SOFTIRQ",
        "BLOCK_IOPOLL_SOFTIRQ",
        "TASKLET_SOFTIRQ",
        "SCHED_SOFTIRQ",
        "HRTIMER_SOFTIRQ",
        "RCU_SOFTIRQ",
    ];
    match name {
        "IRQ_POLL_SOFTIRQ" => Some(5),
        "HRTIMER_NORESTART" => Some(0),
        "HRTIMER_RESTART" => Some(1),
        _ => SOFTIRQS.iter().position(|softirq| *softirq == name).map(|number| number as i64),
    }
}

#[derive(Clone, Copy)]
enum Operator {
    Arithmetic(Op),
    And,
    Or,
}

/// How strongly an operator binds (C11, 6.5.5 to 6.5.14).
fn operator(punct: &str) -> Option<(u8, Operator)> {
    use Operator::Arithmetic;
    Some(match punct {
        "||" => (1, Operator::Or),
        "&&" => (2, Operator::And),
        "|" => (3, Arithmetic(Op::BitOr)),
        "^" => (4, Arithmetic(Op::BitXor)),
        "&" => (5, Arithmetic(Op::BitAnd)),
        "==" => (6, Arithmetic(Op::Eq)),
        "!=" => (6, Arithmetic(Op::Ne)),
        "<" => (7, Arithmetic(Op::Lt)),
        "<=" => (7, Arithmetic(Op::Le)),
        ">" => (7, Arithmetic(Op::Gt)),
        ">=" => (7, Arithmetic(Op::Ge)),
        "<<" => (8, Arithmetic(Op::Shl)),
        ">>" => (8, Arithmetic(Op::Shr)),
        "+" => (9, Arithmetic(Op::Add)),
        "-" => (9, Arithmetic(Op::Sub)),
        "*" => (10, Arithmetic(Op::Mul)),
        "/" => (10, Arithmetic(Op::Div)),
        "%" => (10, Arithmetic(Op::Rem)),
        _ => return None,
    })
}
