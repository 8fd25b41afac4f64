//! Names of types in expressions: casts and `sizeof`.

use super::ctype::{self, IntType, Type};
use super::error::PrintFmtErrorKind;
use super::expr::Expr;
use super::parse::{Parsed, Parser, Result, constant};
use super::token::{TokenKind, shorten};

impl Parser<'_> {
    /// What follows `sizeof`.
    pub(super) fn size_of(&mut self) -> Result<Parsed> {
        let long = IntType { size: self.machine.long_size, signed: false };
        let at = self.at;
        if self.peek() == &TokenKind::Punct("(")
            && let Some((ty, words)) = self.type_in_parentheses(true)?
        {
            let size = match ty {
                Type::Int(int) => int.size,
                Type::Pointer(_) => self.machine.long_size,
                Type::Other => {
                    let name = format!("sizeof({words})");
                    let Some(size) = self.names.value(&name) else {
                        self.at = at;
                        return Err(self.fail(PrintFmtErrorKind::TypeSize(shorten(&words))));
                    };
                    return Ok(constant(size as u64, long));
                }
            };
            return Ok(constant(u64::from(size), long));
        }
        let operand = self.nested(Self::unary)?;
        let size = match (operand.expr, operand.ty) {
            (Expr::Bytes { len: Some(len), .. }, _) => len,
            (_, Type::Int(int)) => u32::from(int.size),
            (_, Type::Pointer(_)) => u32::from(self.machine.long_size),
            (_, Type::Other) => return Err(self.fail(PrintFmtErrorKind::TypeSize("expression".to_owned()))),
        };
        Ok(constant(u64::from(size), long))
    }

    /// `(type)`, if that is what stands here.
    pub(super) fn cast(&mut self) -> Result<Option<Type>> {
        Ok(self.type_in_parentheses(false)?.map(|(ty, _)| ty))
    }

    fn type_in_parentheses(&mut self, size_of: bool) -> Result<Option<(Type, String)>> {
        let start = self.at;
        self.expect("(")?;
        let Some((ty, words, pointers, certain)) = self.type_name() else {
            self.at = start;
            return Ok(None);
        };
        let closed = self.accept(")");
        // `(name)` is a cast if an operand follows that no operator joins to it.
        let operand = matches!(
            self.peek(),
            TokenKind::Name(_)
                | TokenKind::Number(..)
                | TokenKind::Text(_)
                | TokenKind::Punct("(" | "~" | "!")
        );
        let is_type = closed && (certain || pointers > 0 || (operand && !size_of));
        if !is_type || (words == "REC") {
            self.at = start;
            return Ok(None);
        }
        Ok(Some((ty, words)))
    }

    /// Words and stars that can be a type: what they mean, the words, the number of stars, and whether they
    /// cannot be anything else.
    pub(super) fn type_name(&mut self) -> Option<(Type, String, usize, bool)> {
        let mut words = Vec::new();
        let mut pointers = 0;
        let mut certain = false;
        loop {
            match *self.peek() {
                TokenKind::Name("const" | "volatile" | "__user" | "__force") => {}
                TokenKind::Name(word) if pointers == 0 => {
                    // Behind a complete type the next word is the name of what is declared.
                    let tag = matches!(words.last(), Some(&("struct" | "union" | "enum")));
                    let begins = ctype::starts_type(word);
                    if !words.is_empty() && !tag && !begins {
                        break;
                    }
                    certain |= begins;
                    words.push(word);
                }
                TokenKind::Punct("*") if !words.is_empty() => pointers += 1,
                _ => break,
            }
            self.at += 1;
        }
        if words.is_empty() {
            return None;
        }
        Some((ctype::named(&words, pointers, self.machine.long_size), words.join(" "), pointers, certain))
    }

    pub(super) fn converted(&mut self, operand: Parsed, ty: Type) -> Result<Parsed> {
        let Parsed { expr, ty: from, depth } = operand;
        match (&ty, &from) {
            // Of an unknown type the operand's is the best guess.
            (Type::Other, _) => Ok(Parsed { expr, ty: from, depth }),
            (Type::Int(int), _) => match expr {
                Expr::Const(value) => Ok(constant(int.wrap(value), *int)),
                expr => {
                    let int = *int;
                    self.made(Expr::Cast(int, Box::new(expr)), ty, depth)
                }
            },
            (Type::Pointer(_), _) => Ok(Parsed { expr, ty, depth }),
        }
    }
}
