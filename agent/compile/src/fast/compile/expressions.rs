//! Expressions as instructions: their values, and the locations in memory that they name.

use super::{
    Access, COPIED, Cast, Compiler, HELPER_PROBE_READ_KERNEL, Mismatch, SAVED, given::Holder, to_i16,
};
use crate::fast::language::{Expr, Op};
use crate::fast::memory::{BlockErrors, PageArray};
use bpf::insn::{Alu, Assembler, FP, Jump, Label, R0, R1, R2, R3, R6, Reg};
use bpf::program::FRAME;
use kernel::btf::{BitField, BtfError, Shape, TypeId};

// include/uapi/linux/bpf.h, enum bpf_func_id.
const HELPER_GET_SOCKET_COOKIE: i32 = 46;
const HELPER_JIFFIES64: i32 = 118;
const HELPER_GET_FUNC_IP: i32 = 173;

/// Registers that hold intermediate results: R1 to R5.
const DEPTH_MAX: u8 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Number {
        size: u32,
        signed: bool,
    },
    /// To something of this type.
    Pointer(TypeId, Seen),
}

/// What the verifier takes a pointer for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// For what it is; or it does not matter, as all is copied.
    Typed,
    /// For one to bytes ([`super::given::Holder`]).
    Bytes,
    /// For a number.
    Number,
}

impl Type {
    fn size(self) -> u32 {
        match self {
            Self::Number { size, .. } => size,
            Self::Pointer(..) => 8,
        }
    }
}

pub(super) const LONG: Type = Type::Number { size: 8, signed: true };

/// Something in memory: what `register + offset` points to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Location {
    pub(super) offset: u32,
    pub(super) type_id: TypeId,
    /// Whether the verifier sees bytes there.
    bytes: bool,
}

impl Compiler<'_> {
    /// The location of an expression that is an array or a structure.
    pub(super) fn array(&mut self, value: &Expr<'_>, depth: u8) -> Result<Option<(Reg, Location)>, Mismatch> {
        if !matches!(value, Expr::Member(..) | Expr::Index(..)) {
            return Ok(None);
        }
        let mark = self.code.clone();
        let found = self.location(value, depth);
        if let Err(Mismatch::Btf(BtfError::BitField(_))) = found {
            self.code = mark;
            return Ok(None);
        }
        let (base, location) = found?;
        if matches!(self.btf.shape(location.type_id)?, Shape::Array { .. } | Shape::Struct | Shape::Union) {
            return Ok(Some((base, location)));
        }
        self.code = mark;
        Ok(None)
    }

    /// Evaluates to a 64-bit number in the register of this depth.
    pub(super) fn number(&mut self, expr: &Expr<'_>, depth: u8) -> Result<Reg, Mismatch> {
        let (register, ty) = self.value(expr, depth)?;
        self.extended(register, ty);
        Ok(register)
    }

    /// Makes all 64 bits of a loaded value valid.
    pub(super) fn extended(&mut self, register: Reg, ty: Type) -> Type {
        match ty {
            Type::Number { size, signed } if size < 8 => {
                let unused = 64 - 8 * size as i32;
                if signed {
                    self.code.alu_imm(Alu::Lsh, register, unused);
                    self.code.alu_imm(Alu::Arsh, register, unused);
                }
                Type::Number { size: 8, signed }
            }
            other => other,
        }
    }

    pub(super) fn value(&mut self, expr: &Expr<'_>, depth: u8) -> Result<(Reg, Type), Mismatch> {
        if depth > DEPTH_MAX {
            return Err(Mismatch::Expression("it is nested too deep"));
        }
        let to = Reg(depth);
        if !matches!(expr, Expr::Number(_))
            && let Some(value) = self.constant(expr)
        {
            self.code.load_imm(to, value);
            return Ok((to, LONG));
        }
        let ty = match expr {
            Expr::Number(value) => {
                self.code.load_imm(to, *value);
                LONG
            }
            Expr::Name(name) => self.named(name, to, depth)?,
            Expr::Member(outer, name, arrow) => {
                let (base, owner) = self.owner(outer, *arrow, depth)?;
                match self.btf.bit_field_of(owner.type_id, name)? {
                    Some(field) => self.load_bits(field, base, owner, depth),
                    None => self.load_member(base, self.member(owner, name)?, depth)?,
                }
            }
            Expr::Index(..) => {
                let (base, location) = self.location(expr, depth)?;
                self.load_member(base, location, depth)?
            }
            Expr::Not(inner) => {
                self.value(inner, depth)?;
                self.truth(to, |code, yes| code.jump_imm(Jump::Equal, to, 0, yes))
            }
            Expr::Negate(inner) => {
                self.number(inner, depth)?;
                self.code.alu_imm(Alu::Neg, to, 0);
                LONG
            }
            Expr::Complement(inner) => {
                self.number(inner, depth)?;
                self.code.alu_imm(Alu::Xor, to, -1);
                LONG
            }
            Expr::Binary(op, left, right) => self.binary(*op, left, right, depth)?,
            Expr::Choice(condition, yes, no) if self.constant(condition).is_some() => {
                let taken = if self.constant(condition) == Some(0) { no } else { yes };
                self.number(taken, depth)?;
                LONG
            }
            Expr::Choice(condition, yes, no) => {
                let (other, end) = (self.code.label(), self.code.label());
                self.number(condition, depth)?;
                self.code.jump_imm(Jump::Equal, to, 0, other);
                self.number(yes, depth)?;
                self.code.goto(end);
                self.code.bind(other);
                self.number(no, depth)?;
                self.code.bind(end);
                LONG
            }
            Expr::Call("address", args) => {
                let [inner] = args.as_slice() else {
                    return Err(Mismatch::Expression("address takes one argument"));
                };
                let (base, location) = self.location(inner, depth)?;
                self.code.address(to, base, location.offset as i32);
                Type::Number { size: 8, signed: false }
            }
            Expr::Call("read64", args) => {
                let [pointer] = args.as_slice() else {
                    return Err(Mismatch::Expression("read64 takes one argument"));
                };
                self.value(pointer, depth)?;
                self.load(Access::Copied, LONG, to, to, 0, depth);
                LONG
            }
            Expr::Call("cast", args) => {
                let [Expr::Name(name), inner] = args.as_slice() else {
                    return Err(Mismatch::Expression("cast takes a type and a pointer"));
                };
                let target = self.types.named(name)?;
                self.value(inner, depth)?;
                self.pointer(target, depth)?
            }
            Expr::Call("container", args) => {
                let [Expr::Name(name), Expr::Name(member), inner] = args.as_slice() else {
                    return Err(Mismatch::Expression("container takes a type, a member and a pointer"));
                };
                let target = self.types.named(name)?;
                let offset = self.btf.member_of(target, member)?.offset;
                self.value(inner, depth)?;
                self.code.address(to, to, -(offset as i32));
                self.pointer(target, depth)?
            }
            Expr::Call("pfn", args) => {
                let [page] = args.as_slice() else {
                    return Err(Mismatch::Expression("pfn takes a page"));
                };
                self.value(page, depth)?;
                self.page_frame(to)?
            }
            Expr::Call("blk_error", args) => {
                let [status] = args.as_slice() else {
                    return Err(Mismatch::Expression("blk_error takes a status"));
                };
                self.number(status, depth)?;
                self.block_error(to)?
            }
            Expr::Call("socket_cookie", args) if depth == 1 => {
                let [Expr::Name(name)] = args.as_slice() else {
                    return Err(Mismatch::Expression("socket_cookie takes an argument of the tracepoint"));
                };
                // The helper wants the pointer as the tracepoint gives it.
                self.code.load(8, R1, R6, 8 * self.argument(name)? as i16);
                self.code.call_helper(HELPER_GET_SOCKET_COOKIE);
                self.code.alu(Alu::Mov, to, R0);
                Type::Number { size: 8, signed: false }
            }
            // A call takes R1 to R5.
            Expr::Call("jiffies", args) if args.is_empty() && depth == 1 => {
                self.code.call_helper(HELPER_JIFFIES64);
                self.code.alu(Alu::Mov, to, R0);
                Type::Number { size: 8, signed: false }
            }
            Expr::Call("function_address", args) if args.is_empty() && depth == 1 => {
                self.code.alu(Alu::Mov, R1, R6);
                self.code.call_helper(HELPER_GET_FUNC_IP);
                self.code.alu(Alu::Mov, to, R0);
                Type::Number { size: 8, signed: false }
            }
            Expr::Text(_) => return Err(Mismatch::Expression("a text is used as a number")),
            Expr::Call(..) => return Err(Mismatch::Expression("it calls an unknown function")),
        };
        Ok((to, ty))
    }

    /// Makes the pointer to a `struct page` in a register the number of its frame, as `page_to_pfn` does.
    fn page_frame(&mut self, to: Reg) -> Result<Type, Mismatch> {
        let PageArray { base, each } = self.types.memory.pages(self.btf)?;
        // The verifier lets programs negate a pointer, which makes it a number, but subtract nothing as large
        // as an address from it.
        self.code.alu_imm(Alu::Neg, to, 0);
        self.code.load_imm(R0, base.cast_signed());
        self.code.alu(Alu::Add, to, R0);
        self.code.alu_imm(Alu::Neg, to, 0);
        if each.is_power_of_two() {
            self.code.alu_imm(Alu::Arsh, to, each.trailing_zeros() as i32);
        } else {
            self.code.alu_imm(Alu::Div, to, each as i32);
        }
        Ok(Type::Number { size: 8, signed: false })
    }

    /// Makes the status of a request in a register its error, as `blk_status_to_errno` does. Nearly all are
    /// 0, which takes a single jump.
    fn block_error(&mut self, to: Reg) -> Result<Type, Mismatch> {
        const EACH: i32 = 4;
        let words = self.types.memory.block_errors()?.words();
        let (found, end) = (self.code.label(), self.code.label());
        self.code.jump_imm(Jump::Equal, to, 0, end);
        self.code.load_imm(R0, BlockErrors::other_word().cast_signed());
        for (index, word) in words.iter().enumerate().rev() {
            self.code.jump_imm(Jump::GreaterEqual, to, EACH * (index as i32 + 1), found);
            self.code.load_imm(R0, word.cast_signed());
        }
        self.code.bind(found);
        self.code.alu_imm(Alu::And, to, EACH - 1);
        self.code.alu_imm(Alu::Lsh, to, 4);
        self.code.alu(Alu::Rsh, R0, to);
        self.code.alu_imm(Alu::And, R0, 0xffff);
        self.code.alu(Alu::Mov, to, R0);
        self.code.alu_imm(Alu::Neg, to, 0);
        self.code.bind(end);
        Ok(LONG)
    }

    /// Makes the number in the register of this depth a pointer to this type.
    fn pointer(&mut self, target: TypeId, depth: u8) -> Result<Type, Mismatch> {
        let is_cast = matches!(self.access, Access::Direct(Some(_)));
        let seen = if is_cast { self.cast_at(target, depth)? } else { Seen::Typed };
        Ok(Type::Pointer(target, seen))
    }

    pub(super) fn named(&mut self, name: &str, to: Reg, depth: u8) -> Result<Type, Mismatch> {
        if let Some(index) = self.lets.iter().position(|(known, _)| *known == name) {
            self.code.load(8, to, FP, -FRAME - 8 - 8 * index as i16);
            return Ok(self.lets[index].1);
        }
        let index = self.argument(name)?;
        // The kernel hands over arguments zero extended (`CAST_TO_U64`, include/trace/bpf_probe.h).
        let ty = self.type_of(self.args[index])?;
        let access = match ty {
            Type::Pointer(target, _) => match self.btf.shape(target)? {
                // The verifier thinks that arguments of modules may be null, and takes them nowhere (6.12 and
                // later).
                Shape::Struct | Shape::Union if self.access == Access::Copied && self.btf.has_base() => {
                    Access::Copied
                }
                // Up to 6.12 at least, the verifier does not see that `const void *` is one to nothing.
                Shape::Void if self.access == Access::Copied => Access::Copied,
                Shape::Struct | Shape::Union | Shape::Void | Shape::Int { .. } => Access::Direct(None),
                // The verifier lets no program load pointers to functions and to pointers (`btf_ctx_access`,
                // kernel/bpf/btf.c).
                _ => Access::Copied,
            },
            Type::Number { .. } => Access::Direct(None),
        };
        self.load(access, Type::Number { size: 8, signed: false }, to, R6, 8 * index as u32, depth);
        if let Type::Number { size, .. } = ty
            && size < 8
            && self.rules.raw_arguments
        {
            let unused = 64 - 8 * size as i32;
            self.code.alu_imm(Alu::Lsh, to, unused);
            self.code.alu_imm(Alu::Rsh, to, unused);
        }
        Ok(ty)
    }

    /// Which of the tracepoint's arguments has this name.
    fn argument(&self, name: &str) -> Result<usize, Mismatch> {
        let index = self.definition.args.iter().position(|arg| *arg == name);
        index.ok_or(Mismatch::Expression("it names something that there is not"))
    }

    pub(super) fn type_of(&self, type_id: TypeId) -> Result<Type, Mismatch> {
        Ok(match self.btf.shape(type_id)? {
            Shape::Int { size: size @ (1 | 2 | 4 | 8), signed } => Type::Number { size, signed },
            Shape::Enum => Type::Number { size: self.btf.size_of(type_id)?, signed: false },
            Shape::Pointer => {
                Type::Pointer(self.btf.pointer_target(type_id)?.unwrap_or(TypeId(0)), Seen::Typed)
            }
            _ => return Err(Mismatch::Expression("a structure is used as a number")),
        })
    }

    /// Finds what an expression names in memory. The base is in the register of this depth.
    pub(super) fn location(&mut self, expr: &Expr<'_>, depth: u8) -> Result<(Reg, Location), Mismatch> {
        match expr {
            Expr::Member(outer, name, arrow) => {
                let (base, owner) = self.owner(outer, *arrow, depth)?;
                Ok((base, self.member(owner, name)?))
            }
            Expr::Index(outer, index) => {
                let (base, location) = self.location(outer, depth)?;
                let Shape::Array { element, .. } = self.btf.shape(location.type_id)? else {
                    return Err(Mismatch::Expression("an index behind something that is no array"));
                };
                let offset = location.offset + index * self.btf.size_of(element)?;
                Ok((base, Location { offset, type_id: element, ..location }))
            }
            _ => Err(Mismatch::Expression("a member of something that is not in memory")),
        }
    }

    /// The structure that a member is of, as its address in the register of this depth and the distance from
    /// there.
    fn owner(&mut self, outer: &Expr<'_>, arrow: bool, depth: u8) -> Result<(Reg, Location), Mismatch> {
        if !arrow {
            return self.location(outer, depth);
        }
        match self.value(outer, depth)? {
            (base, Type::Pointer(type_id, seen)) => {
                let seen = if seen == Seen::Number { self.cast_at(type_id, depth)? } else { seen };
                Ok((base, Location { offset: 0, type_id, bytes: seen == Seen::Bytes }))
            }
            _ => Err(Mismatch::Expression("-> behind something that is no pointer")),
        }
    }

    /// Where a member of a structure is.
    fn member(&self, owner: Location, name: &str) -> Result<Location, Mismatch> {
        let member = self.btf.member_of(owner.type_id, name)?;
        Ok(Location { offset: owner.offset + member.offset, type_id: member.type_id, ..owner })
    }

    fn load_member(&mut self, base: Reg, location: Location, depth: u8) -> Result<Type, Mismatch> {
        let ty = self.type_of(location.type_id)?;
        let size = ty.size();
        let access = self.access_at(location, location.offset, size);
        self.load(access, ty, Reg(depth), base, location.offset, depth);
        Ok(match ty {
            Type::Pointer(target, _) if location.bytes => Type::Pointer(target, Seen::Number),
            other => other,
        })
    }

    /// How so many bytes are read at this distance from the base of a location: directly, if the verifier
    /// knows that there is something.
    pub(super) fn access_at(&self, location: Location, offset: u32, size: u32) -> Access {
        match self.access {
            Access::Direct(Some(Cast { holder: Some(Holder { len, .. }), .. }))
                if location.bytes && offset.checked_add(size).is_none_or(|end| end > len) =>
            {
                Access::Copied
            }
            access => access,
        }
    }

    /// Casts the pointer in the register of this depth.
    fn cast_at(&mut self, target: TypeId, depth: u8) -> Result<Seen, Mismatch> {
        self.put_aside(depth);
        if depth != 1 {
            self.code.alu(Alu::Mov, R1, Reg(depth));
        }
        let seen = self.cast(target)?;
        self.take_back(depth);
        self.code.alu(Alu::Mov, Reg(depth), R0);
        Ok(seen)
    }

    /// A call takes R1 to R5: what the levels below this depth hold is put aside before it.
    fn put_aside(&mut self, depth: u8) {
        for below in 1..depth {
            self.code.store(8, FP, -SAVED - 8 * i16::from(below), Reg(below));
        }
    }

    fn take_back(&mut self, depth: u8) {
        for below in 1..depth {
            self.code.load(8, Reg(below), FP, -SAVED - 8 * i16::from(below));
        }
    }

    /// Loads a bit field of a structure.
    fn load_bits(&mut self, field: BitField, base: Reg, owner: Location, depth: u8) -> Type {
        let to = Reg(depth);
        let word = Type::Number { size: field.size, signed: false };
        let offset = owner.offset + field.offset;
        self.load(self.access_at(owner, offset, field.size), word, to, base, offset, depth);
        let unused = 64 - field.bits as i32;
        self.code.alu_imm(Alu::Lsh, to, unused - field.shift as i32);
        self.code.alu_imm(if field.signed { Alu::Arsh } else { Alu::Rsh }, to, unused);
        // A number of fewer bits than an int is an int.
        LONG
    }

    pub(super) fn load(&mut self, access: Access, ty: Type, to: Reg, base: Reg, offset: u32, depth: u8) {
        let size = ty.size();
        if let Access::Direct(_) = access {
            if let Ok(near) = to_i16(offset) {
                self.code.load(size, to, base, near);
            } else {
                self.code.address(to, base, offset as i32);
                self.code.load(size, to, to, 0);
            }
            return;
        }
        self.put_aside(depth);
        self.code.address(R3, base, offset as i32);
        self.code.address(R1, FP, -i32::from(COPIED) - 8);
        self.code.load_imm(R2, size.into());
        self.code.call_helper(HELPER_PROBE_READ_KERNEL);
        self.take_back(depth);
        self.code.load(size, to, FP, -COPIED - 8);
    }

    /// 1 or 0, by a jump that is taken for 1.
    fn truth(&mut self, to: Reg, jump: impl FnOnce(&mut Assembler, Label)) -> Type {
        let (yes, end) = (self.code.label(), self.code.label());
        jump(&mut self.code, yes);
        self.code.load_imm(to, 0);
        self.code.goto(end);
        self.code.bind(yes);
        self.code.load_imm(to, 1);
        self.code.bind(end);
        LONG
    }

    fn binary(&mut self, op: Op, left: &Expr<'_>, right: &Expr<'_>, depth: u8) -> Result<Type, Mismatch> {
        let to = Reg(depth);
        if matches!(op, Op::BothTrue | Op::EitherTrue) {
            let (short, end) = (self.code.label(), self.code.label());
            let jump = if op == Op::BothTrue { Jump::Equal } else { Jump::NotEqual };
            for side in [left, right] {
                self.number(side, depth)?;
                self.code.jump_imm(jump, to, 0, short);
            }
            self.code.load_imm(to, i64::from(op == Op::BothTrue));
            self.code.goto(end);
            self.code.bind(short);
            self.code.load_imm(to, i64::from(op == Op::EitherTrue));
            self.code.bind(end);
            return Ok(LONG);
        }
        let (_, left_type) = self.value(left, depth)?;
        let left_type = self.extended(to, left_type);
        let constant = self.constant(right).and_then(|value| i32::try_from(value).ok());
        let mut right_type = LONG;
        let mut from = R0;
        if constant.is_none() {
            let (register, ty) = self.value(right, depth + 1)?;
            right_type = self.extended(register, ty);
            from = register;
        }
        let signed = |ty| matches!(ty, Type::Number { signed: true, .. });
        let both_signed = signed(left_type) && signed(right_type);
        let jump = match op {
            Op::Equal => Some((Jump::Equal, false)),
            Op::NotEqual => Some((Jump::NotEqual, false)),
            Op::Greater => Some((if both_signed { Jump::SignedGreater } else { Jump::Greater }, false)),
            Op::GreaterEqual => {
                Some((if both_signed { Jump::SignedGreaterEqual } else { Jump::GreaterEqual }, false))
            }
            // The opposite of the opposite.
            Op::Less => Some((if both_signed { Jump::SignedGreaterEqual } else { Jump::GreaterEqual }, true)),
            Op::LessEqual => Some((if both_signed { Jump::SignedGreater } else { Jump::Greater }, true)),
            _ => None,
        };
        if let Some((jump, inverted)) = jump {
            let ty = self.truth(to, |code, yes| match constant {
                Some(value) => code.jump_imm(jump, to, value, yes),
                None => code.jump(jump, to, from, yes),
            });
            if inverted {
                self.code.alu_imm(Alu::Xor, to, 1);
            }
            return Ok(ty);
        }
        let alu = match op {
            Op::Mul => Alu::Mul,
            Op::Div => Alu::Div,
            Op::Mod => Alu::Mod,
            Op::Add => Alu::Add,
            Op::Sub => Alu::Sub,
            Op::Lsh => Alu::Lsh,
            Op::Rsh if signed(left_type) => Alu::Arsh,
            Op::Rsh => Alu::Rsh,
            Op::And => Alu::And,
            Op::Xor => Alu::Xor,
            _ => Alu::Or,
        };
        match constant {
            Some(value) => self.code.alu_imm(alu, to, value),
            None => self.code.alu(alu, to, from),
        }
        Ok(Type::Number { size: 8, signed: both_signed })
    }
}
