//! Statement expressions, `({ ... })`: variables with values, `min()` as the kernel's macros leave it, and
//! text that is printed into the trace_seq and then used by its address (arch/x86/kvm/mmu/mmutrace.h).

use std::sync::Arc;

use super::ctype::Type;
use super::error::PrintFmtErrorKind;
use super::expr::{Expr, LOCALS, Piece};
use super::parse::{Parsed, Parser, Result};
use super::token::{TokenKind, shorten};

/// A variable.
#[derive(Clone, Debug)]
pub(super) struct Local<'t> {
    name: &'t str,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// A value in a slot.
    Value(u8, Type),
    /// A list of strings.
    Texts(Arc<[Box<[u8]>]>),
    /// The offset in the trace_seq where text will stand.
    Sequence,
    /// A union with bit fields, whose word is in a slot once that was assigned.
    Union(&'static [(&'static str, u8, u8)], Option<u8>),
}

/// Members of `union kvm_mmu_page_role` of arch/x86/include/asm/kvm_host.h: name, shift, bits.
const KVM_MMU_PAGE_ROLE: &[(&str, u8, u8)] = &[
    ("level", 0, 4),
    ("has_4_byte_gpte", 4, 1),
    ("quadrant", 5, 2),
    ("direct", 7, 1),
    ("access", 8, 3),
    ("invalid", 11, 1),
    ("efer_nx", 12, 1),
    ("cr0_wp", 13, 1),
    ("smep_andnot_wp", 14, 1),
    ("smap_andnot_wp", 15, 1),
    ("ad_disabled", 16, 1),
    ("guest_mode", 17, 1),
    ("passthrough", 18, 1),
    ("smm", 24, 8),
];

impl<'t> Parser<'t> {
    /// What follows `({`.
    pub(super) fn statement_expression(&mut self) -> Result<Parsed> {
        let (outer_locals, outer_slots) = (self.locals.len(), self.slots);
        let block = self.block();
        self.locals.truncate(outer_locals);
        self.slots = outer_slots;
        block
    }

    fn block(&mut self) -> Result<Parsed> {
        let mut lets: Vec<(u8, Expr)> = Vec::new();
        let mut printed: Vec<Piece> = Vec::new();
        let mut depth = 1;
        let result = loop {
            match *self.peek() {
                TokenKind::Name("trace_seq_printf") => {
                    self.name()?;
                    self.expect("(")?;
                    self.name()?;
                    self.expect(",")?;
                    // Text within text within text would take time that doubles with each.
                    if std::mem::replace(&mut self.in_sequence, true) {
                        return Err(self.fail(PrintFmtErrorKind::Depth));
                    }
                    printed.extend(self.nested(Self::printf)?);
                    self.in_sequence = false;
                    self.expect(")")?;
                    self.expect(";")?;
                }
                TokenKind::Name(word) if super::ctype::starts_type(word) => {
                    self.declaration(&mut lets, &mut depth)?;
                }
                TokenKind::Name(name) if matches!(self.peek_second(), TokenKind::Punct("." | "=")) => {
                    self.assignment(name, &mut lets, &mut depth)?;
                }
                TokenKind::Name(name) if self.is_sequence(name) => {
                    self.name()?;
                    let expr = Expr::Printf(std::mem::take(&mut printed).into());
                    break Parsed { expr, ty: Type::TEXT, depth: 1 };
                }
                _ => {
                    let value = self.expression()?;
                    if self.peek_second() == &TokenKind::Punct("}") {
                        break value;
                    }
                    // A statement whose value is not used.
                    self.expect(";")?;
                }
            }
        };
        self.accept(";");
        self.expect("}")?;
        self.expect(")")?;
        let depth = depth.max(result.depth);
        if lets.is_empty() {
            return Ok(Parsed { depth, ..result });
        }
        self.made(Expr::Block { lets: lets.into(), result: Box::new(result.expr) }, result.ty, depth)
    }

    fn declaration(&mut self, lets: &mut Vec<(u8, Expr)>, depth: &mut u16) -> Result<()> {
        let Some((ty, words, _, _)) = self.type_name() else { return Err(self.expected("a type")) };
        let name = self.name()?;
        let is_list = self.accept("[");
        if is_list {
            if let TokenKind::Number(..) = self.peek() {
                self.expression()?;
            }
            self.expect("]")?;
        }
        let kind = if !self.accept("=") {
            match words.as_str() {
                "union kvm_mmu_page_role" => Kind::Union(KVM_MMU_PAGE_ROLE, None),
                // Assigned later.
                _ => Kind::Value(self.slot()?, ty),
            }
        } else if is_list {
            Kind::Texts(self.texts()?)
        } else if self.peek() == &TokenKind::Name("trace_seq_buffer_ptr") {
            self.name()?;
            self.expect("(")?;
            self.name()?;
            self.expect(")")?;
            Kind::Sequence
        } else {
            let value = self.expression()?;
            *depth = value.depth.max(*depth);
            let slot = self.slot()?;
            let declared =
                if words.contains("auto_type") || ty == Type::Other { value.ty.clone() } else { ty };
            lets.push((slot, super::parse::convert(value.expr, &value.ty, &declared)));
            Kind::Value(slot, declared)
        };
        self.expect(";")?;
        self.locals.push(Local { name, kind });
        Ok(())
    }

    /// `{ "a", "b" }`
    fn texts(&mut self) -> Result<Arc<[Box<[u8]>]>> {
        let mut texts: Vec<Box<[u8]>> = Vec::new();
        self.expect("{")?;
        while !self.accept("}") {
            texts.push(self.text()?.into());
            if !self.accept(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(texts.into())
    }

    /// `name = value;` or `name.word = value;`
    fn assignment(&mut self, name: &'t str, lets: &mut Vec<(u8, Expr)>, depth: &mut u16) -> Result<()> {
        let unknown = self.fail(PrintFmtErrorKind::NoField(shorten(name)));
        self.name()?;
        if self.accept(".") {
            self.name()?;
        }
        self.expect("=")?;
        let value = self.expression()?;
        *depth = value.depth.max(*depth);
        self.expect(";")?;
        let Some(at) = self.locals.iter().rposition(|local| local.name == name) else { return Err(unknown) };
        let slot = match self.locals[at].kind {
            Kind::Value(slot, _) => slot,
            Kind::Union(fields, None) => {
                let slot = self.slot()?;
                self.locals[at].kind = Kind::Union(fields, Some(slot));
                slot
            }
            Kind::Union(_, Some(slot)) => slot,
            Kind::Texts(_) | Kind::Sequence => return Err(unknown),
        };
        lets.push((slot, value.expr));
        Ok(())
    }

    fn slot(&mut self) -> Result<u8> {
        if usize::from(self.slots) == LOCALS {
            return Err(self.fail(PrintFmtErrorKind::Depth));
        }
        self.slots += 1;
        Ok(self.slots - 1)
    }

    fn is_sequence(&self, name: &str) -> bool {
        self.locals.iter().any(|local| local.name == name && matches!(local.kind, Kind::Sequence))
    }

    /// The variable of that name, with the index or member that follows it.
    pub(super) fn local(&mut self, name: &str) -> Result<Option<Parsed>> {
        let Some(local) = self.locals.iter().rfind(|local| local.name == name) else { return Ok(None) };
        match local.kind.clone() {
            Kind::Value(slot, ty) => Ok(Some(Parsed { expr: Expr::Local(slot), ty, depth: 1 })),
            Kind::Texts(texts) => {
                self.expect("[")?;
                let index = self.expression()?;
                self.expect("]")?;
                self.made(Expr::Pick { texts, index: Box::new(index.expr) }, Type::TEXT, index.depth)
                    .map(Some)
            }
            Kind::Union(fields, Some(slot)) => {
                self.expect(".")?;
                let member = self.name()?;
                let Some(&(_, shift, bits)) = fields.iter().find(|field| field.0 == member) else {
                    return Err(self.fail(PrintFmtErrorKind::NoField(shorten(member))));
                };
                let value = Box::new(Expr::Local(slot));
                self.made(Expr::BitField { shift, bits, value }, Type::INT, 1).map(Some)
            }
            Kind::Union(_, None) | Kind::Sequence => {
                Err(self.fail(PrintFmtErrorKind::NoField(shorten(name))))
            }
        }
    }
}
