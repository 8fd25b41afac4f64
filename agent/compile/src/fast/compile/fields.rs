//! Storing the fields of a record: numbers, arrays, strings.

use agent_ebpf::END_CUT;

use super::{
    Access, CUT, Compiler, HELPER_PROBE_READ_KERNEL, HELPER_PROBE_READ_KERNEL_STR,
    HELPER_PROBE_READ_USER_STR, Mismatch, TEXT_MIN, aligned_step,
    expressions::{Location, Type},
    to_i16,
};
use crate::fast::language::Expr;
use bpf::insn::{Alu, FP, Jump, Label, R0, R1, R2, R3, R7, R8, R9, Reg};
use ftrace_event::{Field, Format, Location as Place};

impl<'a> Compiler<'a> {
    /// The fields that are strings behind the fixed part, and how long each may be, NUL included and one
    /// more: what fills the limit may have been cut. Strings out of arrays are as long as these; the others
    /// share what is left.
    pub(super) fn text_limits(
        &mut self,
        format: &Format,
        fixed: u32,
        record_max: u32,
    ) -> Result<Vec<(&'a str, u32)>, Mismatch> {
        let mut limits = Vec::new();
        for (name, value) in &self.definition.fields {
            if format.field(name).is_none_or(|field| field.location == Place::Inline) {
                continue;
            }
            if is_empty_text(value) {
                limits.push((*name, Some(1)));
                continue;
            }
            let array = self.without_code(|compiler| compiler.array(text_source(value), 1))?;
            let limit = array.map(|(_, location)| self.btf.size_of(location.type_id)).transpose()?;
            limits.push((*name, limit.map(|limit| limit + 1)));
        }
        let known: u32 = fixed + limits.iter().filter_map(|(_, limit)| *limit).sum::<u32>();
        let open = limits.iter().filter(|(_, limit)| limit.is_none()).count() as u32;
        let share = record_max.saturating_sub(known).checked_div(open).unwrap_or(0);
        if known > record_max || open != 0 && share < TEXT_MIN {
            return Err(Mismatch::TooLong(known + open * TEXT_MIN, record_max));
        }
        Ok(limits.into_iter().map(|(name, limit)| (name, limit.unwrap_or(share))).collect())
    }

    /// Zeros between the fields and behind them, so that records do not carry what the page held before.
    pub(super) fn padding(&mut self, format: &Format, size: u32) {
        let mut at = 8;
        let mut ends: Vec<(u32, u32)> =
            format.fields.iter().map(|field| (field.offset, field.offset + field.size)).collect();
        ends.sort_unstable();
        ends.push((size.next_multiple_of(4), 0));
        for (start, end) in ends {
            while at < start {
                let step = if at % 4 == 0 && start - at >= 4 { 4 } else { 1 };
                self.code.store_imm(step, R7, at as i16, 0);
                at += step;
            }
            at = at.max(end);
        }
    }

    pub(super) fn field(&mut self, name: &str, field: &Field, value: &Expr<'_>) -> Result<(), Mismatch> {
        let wrong = || Mismatch::FieldType(name.to_owned());
        let at = i16::try_from(field.offset).map_err(|_| wrong())?;
        if let Some(number) = self.constant(value)
            && matches!(field.size, 1 | 2 | 4 | 8)
            && let Ok(number) = i32::try_from(number)
        {
            self.code.store_imm(field.size, R7, at, number);
            return Ok(());
        }
        if let Expr::Call("letters", letters) = value {
            return self.letters(name, letters, at, field.size);
        }
        if let Expr::Call("parts", parts) = value {
            return self.parts(name, parts, at, field.size);
        }
        if let Expr::Call("text", args) = value {
            let (source, absent) = match args.as_slice() {
                [source] => (source, ""),
                [source, Expr::Text(absent)] if absent.len() < field.size as usize => (source, *absent),
                _ => return Err(Mismatch::Expression("text takes a pointer, and a text for a null pointer")),
            };
            return self.fixed_text(source, absent, at, field.size);
        }
        if let Some((base, location)) = self.array(value, 1)? {
            if self.btf.size_of(location.type_id)? != field.size {
                return Err(wrong());
            }
            self.copy(base, location, at, field.size)?;
            return Ok(());
        }
        if !matches!(field.size, 1 | 2 | 4 | 8) {
            return Err(wrong());
        }
        let (register, ty) = self.value(value, 1)?;
        if let Type::Number { size, .. } = ty
            && size < field.size
        {
            self.extended(register, ty);
        }
        self.code.store(field.size, R7, at, register);
        Ok(())
    }

    /// A string out of single characters, of which those that are 0 are left out, with zeros behind it. The
    /// next one goes over one that is 0: a jump for each would let the verifier go twice as many ways.
    fn letters(&mut self, name: &str, letters: &[Expr<'_>], at: i16, size: u32) -> Result<(), Mismatch> {
        let possible: Vec<&Expr<'_>> =
            letters.iter().filter(|letter| self.constant(letter) != Some(0)).collect();
        if possible.len() >= size as usize {
            return Err(Mismatch::FieldType(name.to_owned()));
        }
        self.clear(at, size);
        self.code.address(R9, R7, at.into());
        for letter in possible {
            self.number(letter, 1)?;
            self.code.store(1, R9, 0, R1);
            if self.is_chosen(letter) {
                // Read again, the verifier does not know any more which one it is, and goes on in one way.
                self.code.load(1, R1, R9, 0);
            }
            // 1, or 0 of 0: what is less than 256 has its upmost bit set when it is negated.
            self.code.alu_imm(Alu::Neg, R1, 0);
            self.code.alu_imm(Alu::Rsh, R1, 63);
            self.code.alu(Alu::Add, R9, R1);
        }
        Ok(())
    }

    /// Whether jumps lead to the value of an expression.
    fn is_chosen(&self, expr: &Expr<'_>) -> bool {
        match expr {
            Expr::Choice(condition, yes, no) => match self.constant(condition) {
                Some(0) => self.is_chosen(no),
                Some(_) => self.is_chosen(yes),
                None => true,
            },
            _ => false,
        }
    }

    /// An array whose elements, or groups of them, are numbers.
    fn parts(&mut self, name: &str, parts: &[Expr<'_>], at: i16, size: u32) -> Result<(), Mismatch> {
        let each = size.checked_div(parts.len() as u32).unwrap_or(0);
        if !matches!(each, 1 | 2 | 4 | 8) || each as usize * parts.len() != size as usize {
            return Err(Mismatch::FieldType(name.to_owned()));
        }
        for (index, part) in parts.iter().enumerate() {
            self.number(part, 1)?;
            let at = at + (index as u32 * each) as i16;
            let step = aligned_step(at.cast_unsigned().into(), each);
            for done in (0..each).step_by(step as usize) {
                if done != 0 {
                    self.code.alu_imm(Alu::Rsh, R1, 8 * step as i32);
                }
                self.code.store(step, R7, at + done as i16, R1);
            }
        }
        Ok(())
    }

    fn clear(&mut self, at: i16, size: u32) {
        for byte in 0..size as i16 {
            self.code.store_imm(1, R7, at + byte, 0);
        }
    }

    /// A string in an array, with zeros behind it, or another one if it cannot be read.
    fn fixed_text(&mut self, source: &Expr<'_>, absent: &str, at: i16, size: u32) -> Result<(), Mismatch> {
        self.clear(at, size);
        self.value(source, 1)?;
        self.code.alu(Alu::Mov, R3, R1);
        self.code.address(R1, R7, at.into());
        self.code.load_imm(R2, size.into());
        self.code.call_helper(HELPER_PROBE_READ_KERNEL_STR);
        if !absent.is_empty() {
            let there = self.code.label();
            self.code.jump_imm(Jump::SignedGreater, R0, 0, there);
            for (index, byte) in absent.bytes().enumerate() {
                self.code.store_imm(1, R7, at + index as i16, byte.into());
            }
            self.code.bind(there);
        }
        Ok(())
    }

    fn copy(&mut self, base: Reg, location: Location, at: i16, size: u32) -> Result<(), Mismatch> {
        let from = to_i16(location.offset)?;
        if self.access_at(location, location.offset, size) == Access::Copied {
            self.code.address(R3, base, from.into());
            self.code.address(R1, R7, at.into());
            self.code.load_imm(R2, size.into());
            self.code.call_helper(HELPER_PROBE_READ_KERNEL);
            return Ok(());
        }
        let mut done = 0;
        while done < size {
            let step = aligned_step(at.cast_unsigned().into(), size).min(aligned_step(done, size - done));
            self.code.load(step, R2, base, from + done as i16);
            self.code.store(step, R7, at + done as i16, R2);
            done += step;
        }
        Ok(())
    }

    /// A string behind the fixed part; R8 is where it goes.
    pub(super) fn text(
        &mut self,
        name: &str,
        field: &Field,
        value: &Expr<'_>,
        max: u32,
        failed: Label,
    ) -> Result<(), Mismatch> {
        let source = text_source(value);
        if field.location != Place::DataLoc {
            return Err(Mismatch::FieldType(name.to_owned()));
        }
        if is_empty_text(value) {
            self.code.alu(Alu::Mov, R1, R7);
            self.code.alu(Alu::Add, R1, R8);
            self.code.store_imm(1, R1, 0, 0);
            self.code.load_imm(R0, 1);
            return self.locate_text(field);
        }
        if let Some((base, location)) = self.array(source, 1)? {
            self.code.address(R3, base, location.offset as i32);
        } else {
            self.value(source, 1)?;
            self.code.alu(Alu::Mov, R3, R1);
        }
        self.code.alu(Alu::Mov, R1, R7);
        self.code.alu(Alu::Add, R1, R8);
        self.code.load_imm(R2, max.into());
        let is_user = matches!(value, Expr::Call("ustring", _));
        self.code.call_helper(if is_user {
            HELPER_PROBE_READ_USER_STR
        } else {
            HELPER_PROBE_READ_KERNEL_STR
        });
        let there = self.code.label();
        self.code.jump_imm(Jump::SignedGreater, R0, 0, there);
        self.code.alu(Alu::Mov, R1, R7);
        self.code.alu(Alu::Add, R1, R8);
        let absent = self.absent(value);
        let len = absent.len() + 1;
        if len >= max as usize {
            return Err(Mismatch::FieldType(name.to_owned()));
        }
        for (index, &byte) in absent.iter().chain(&[0]).enumerate() {
            self.code.store_imm(1, R1, index as i16, byte.into());
        }
        self.code.load_imm(R0, len as i64);
        self.code.bind(there);
        if self.rules.cuts {
            let whole = self.code.label();
            self.code.load_imm(R1, max.into());
            self.code.jump(Jump::SignedGreater, R1, R0, whole);
            self.code.load_imm(R1, END_CUT.cast_signed());
            self.code.store(8, FP, -CUT, R1);
            self.code.load_imm(R0, max.into());
            self.code.bind(whole);
        } else {
            // It may have been cut: nothing that is not whole is recorded.
            self.code.jump_imm(Jump::SignedGreaterEqual, R0, max as i32, failed);
        }
        self.locate_text(field)
    }

    /// What stands for this text if it cannot be read.
    fn absent<'e>(&self, value: &'e Expr<'_>) -> &'e [u8] {
        if let Expr::Call("string", args) = value
            && let [_, Expr::Text(text)] = args.as_slice()
        {
            return text.as_bytes();
        }
        let absent = self.rules.absent;
        absent.split(|&byte| byte == 0).next().unwrap_or(absent)
    }

    /// Notes where the string of R0 bytes is that was written last.
    fn locate_text(&mut self, field: &Field) -> Result<(), Mismatch> {
        self.code.alu(Alu::Mov, R1, R0);
        self.code.alu_imm(Alu::Lsh, R1, 16);
        self.code.alu(Alu::Or, R1, R8);
        self.code.store(4, R7, to_i16(field.offset)?, R1);
        self.code.alu(Alu::Add, R8, R0);
        Ok(())
    }
}

/// What a string is copied from: an array is meant as it is, a pointer is marked by `string`, which may say
/// what stands for one that is null.
fn text_source<'e, 't>(value: &'e Expr<'t>) -> &'e Expr<'t> {
    match value {
        Expr::Call("string" | "ustring", args) if args.len() == 1 => &args[0],
        Expr::Call("string", args) if matches!(args.as_slice(), [_, Expr::Text(_)]) => &args[0],
        other => other,
    }
}

/// Whether a string is always empty.
pub(super) fn is_empty_text(value: &Expr<'_>) -> bool {
    matches!(text_source(value), Expr::Call("empty", args) if args.is_empty())
}
