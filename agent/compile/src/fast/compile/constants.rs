//! What a description says that is known when it is compiled: enumerators, whether a type exists, the size of
//! a field.

use super::Compiler;
use crate::fast::language::{Expr, Op};

impl Compiler<'_> {
    /// The value of an expression that does not depend on an event.
    pub(super) fn constant(&self, expr: &Expr<'_>) -> Option<i64> {
        let truth = |value: bool| Some(i64::from(value));
        match expr {
            Expr::Number(value) => Some(*value),
            Expr::Call("size", args) if args.is_empty() => Some(self.field_size.into()),
            Expr::Call("known", args) => match args.as_slice() {
                [Expr::Name(name)] => truth(self.types.find(name).is_some()),
                _ => None,
            },
            Expr::Call("enum", args) => match args.as_slice() {
                [Expr::Name(of), Expr::Name(name)] => self.enumerator(of, name),
                [Expr::Name(of), Expr::Name(name), otherwise] => {
                    self.enumerator(of, name).or_else(|| self.constant(otherwise))
                }
                _ => None,
            },
            Expr::Not(inner) => truth(self.constant(inner)? == 0),
            Expr::Negate(inner) => self.constant(inner)?.checked_neg(),
            Expr::Complement(inner) => Some(!self.constant(inner)?),
            Expr::Binary(Op::BothTrue, a, b) => match (self.constant(a), self.constant(b)) {
                (Some(0), _) | (_, Some(0)) => Some(0),
                (Some(_), Some(_)) => Some(1),
                _ => None,
            },
            Expr::Binary(op, a, b) => {
                let (a, b) = (self.constant(a)?, self.constant(b)?);
                match op {
                    Op::Equal => truth(a == b),
                    Op::NotEqual => truth(a != b),
                    Op::Less => truth(a < b),
                    Op::LessEqual => truth(a <= b),
                    Op::Greater => truth(a > b),
                    Op::GreaterEqual => truth(a >= b),
                    Op::Add => a.checked_add(b),
                    Op::Sub => a.checked_sub(b),
                    Op::Lsh => a.checked_shl(u32::try_from(b).ok()?),
                    Op::And => Some(a & b),
                    Op::Or => Some(a | b),
                    _ => None,
                }
            }
            Expr::Choice(condition, yes, no) => {
                self.constant(if self.constant(condition)? == 0 { no } else { yes })
            }
            _ => None,
        }
    }

    fn enumerator(&self, of: &str, name: &str) -> Option<i64> {
        self.btf.enumerator(self.types.find(of)?, name).ok().flatten()
    }
}
