//! Conditions and numbers as instructions.
//!
//! R6 holds the address of the record throughout, results are in R0, and everything else is used up by calls
//! and leaves. What has no value jumps to where its comparison is false.

use std::collections::BTreeSet;

use super::{Facts, Program, TEXT_MAX, Uncompiled, text};
use crate::generic::load_call_number;
use crate::task::{Lacking, SCRATCH};
use bpf::insn::{Alu, Assembler, FP, Insn, Jump, Label, R0, R1, R2, R3, R4, R5, R6, Reg, Relocations};
use ftrace_event::context::Context;
use ftrace_event::filter::program::{Bytes, CpuTest, Cpus, Number, Test};
use ftrace_event::int::{IntType, Op};
use spec::TraceClock;
use stdx::input::CpuSet;

/// Intermediate results that are on the stack at once.
const SLOTS: u16 = 12;
// A program's functions have 512 bytes of stack together, each a multiple of 32 (`check_max_stack_depth`,
// kernel/bpf/verifier.c): the program at most 128, a filter these, and `call_mark`, which keeps nothing, 32.
const _: () = assert!(128 + (TEXT_MAX + 8 * SLOTS as u32).next_multiple_of(32) + 32 <= 512);
/// Ranges in a list of CPUs.
const RANGES: usize = 64;
/// Bytes of the common fields.
const COMMON: u32 = 8;

// include/uapi/linux/bpf.h, enum bpf_func_id.
const KTIME_GET_NS: i32 = 5;
const GET_SMP_PROCESSOR_ID: i32 = 8;
const GET_CURRENT_PID_TGID: i32 = 14;
const KTIME_GET_BOOT_NS: i32 = 125;
const KTIME_GET_TAI_NS: i32 = 208;

/// Compiles a condition.
pub(super) fn compile(test: &Test, id: u16, facts: &Facts, text_max: u32) -> Result<Program, Uncompiled> {
    let mut emitter = Emitter::new(id, facts, text_max, text::room(test, text_max));
    let (yes, no) = (emitter.code.label(), emitter.code.label());
    emitter.test(test, yes, no)?;
    emitter.finish(yes, no)
}

impl Uncompiled {
    fn lacking(lacking: Lacking, context: Context) -> Self {
        match lacking {
            Lacking::Type => Self::NoType(context.name()),
            Lacking::NoNumber => Self::Late(context.name()),
        }
    }
}

/// A function that is being written.
pub(crate) struct Emitter<'a> {
    pub(crate) code: Assembler,
    id: u16,
    facts: &'a Facts,
    /// Longest text.
    pub(super) text_max: u32,
    /// Bytes at the top of the stack that texts are copied to.
    pub(super) room: u32,
    reads: BTreeSet<u32>,
}

impl<'a> Emitter<'a> {
    pub(crate) fn new(id: u16, facts: &'a Facts, text_max: u32, room: u32) -> Self {
        let mut code = Assembler::default();
        code.alu(Alu::Mov, R6, R1);
        Self { code, id, facts, text_max, room, reads: BTreeSet::new() }
    }

    /// Ends the function: what gets to `yes` gives 1.
    pub(crate) fn finish(mut self, yes: Label, no: Label) -> Result<Program, Uncompiled> {
        self.code.bind(yes);
        self.code.load_imm(R0, 1);
        self.code.exit();
        self.code.bind(no);
        self.code.load_imm(R0, 0);
        self.code.exit();
        let code: Vec<Insn> = self.code.finish_reachable().ok_or(Uncompiled::TooLong)?;
        Ok(Program { code, reads: self.reads })
    }

    /// Ends a function that has ended itself: its instructions, what of them is left for later, and the
    /// offsets of the fields that it looks at.
    pub(crate) fn finish_whole(self) -> Result<(Vec<Insn>, Relocations, BTreeSet<u32>), Uncompiled> {
        let (code, relocations) = self.code.finish().ok_or(Uncompiled::TooLong)?;
        Ok((code, relocations, self.reads))
    }

    /// Goes to `yes` if the condition holds, else to `no`.
    pub(crate) fn test(&mut self, test: &Test, yes: Label, no: Label) -> Result<(), Uncompiled> {
        match test {
            Test::Const(value) => self.code.goto(if *value { yes } else { no }),
            Test::All(tests) => {
                for test in tests {
                    let next = self.code.label();
                    self.test(test, next, no)?;
                    self.code.bind(next);
                }
                self.code.goto(yes);
            }
            Test::Any(tests) => {
                for test in tests {
                    let next = self.code.label();
                    self.test(test, yes, next)?;
                    self.code.bind(next);
                }
                self.code.goto(no);
            }
            Test::Not(inner) => self.test(inner, no, yes)?,
            Test::Number(number) => self.condition(number, yes, no)?,
            Test::Text { text, pattern, negated } => {
                let (is, is_not) = if *negated { (no, yes) } else { (yes, no) };
                self.text(text, pattern, is, is_not, no)?;
            }
            Test::SameText { texts, negated } => {
                let (same, differ) = if *negated { (no, yes) } else { (yes, no) };
                self.same_text(texts, same, differ, no)?;
            }
            Test::Function { .. } => return Err(Uncompiled::Function),
            Test::Cpus { cpus, test, set } => self.cpus(cpus, *test, set, yes, no)?,
        }
        Ok(())
    }

    fn condition(&mut self, number: &Number, yes: Label, no: Label) -> Result<(), Uncompiled> {
        match number {
            Number::Binary { op, int, operands } if op.is_comparison() => {
                let jump = jump_of(*op, *int);
                if let Number::Const(value) = operands.1
                    && let Ok(short) = i32::try_from(int.wrap(value).cast_signed())
                {
                    self.number(&operands.0, 0, no)?;
                    self.code.jump_imm(jump, R0, short, yes);
                } else {
                    self.operands(operands, 0, no)?;
                    self.code.jump(jump, R0, R1, yes);
                }
            }
            _ => {
                self.number(number, 0, no)?;
                self.code.jump_imm(Jump::NotEqual, R0, 0, yes);
            }
        }
        self.code.goto(no);
        Ok(())
    }

    /// Where an intermediate result is kept.
    fn slot(&self, depth: u16) -> Result<i16, Uncompiled> {
        if depth >= SLOTS {
            return Err(Uncompiled::TooDeep(SLOTS));
        }
        Ok(-(self.room as i16) - 8 - 8 * depth.cast_signed())
    }

    /// Two numbers in R0 and R1.
    fn operands(&mut self, (a, b): &(Number, Number), depth: u16, none: Label) -> Result<(), Uncompiled> {
        if let Number::Const(value) = b {
            self.number(a, depth, none)?;
            self.code.load_imm(R1, value.cast_signed());
            return Ok(());
        }
        let slot = self.slot(depth)?;
        self.number(a, depth, none)?;
        self.code.store(8, FP, slot, R0);
        self.number(b, depth + 1, none)?;
        self.code.alu(Alu::Mov, R1, R0);
        self.code.load(8, R0, FP, slot);
        Ok(())
    }

    /// A number in R0.
    pub(crate) fn number(&mut self, number: &Number, depth: u16, none: Label) -> Result<(), Uncompiled> {
        match number {
            Number::Const(value) => self.code.load_imm(R0, value.cast_signed()),
            Number::Field { offset, int } => self.field(*offset, *int)?,
            Number::Context { context, .. } => self.context(*context, depth, none)?,
            Number::Binary { op, int, operands } => {
                self.operands(operands, depth, none)?;
                self.operate(*op, *int, none);
            }
            Number::Negate(inner) => {
                self.number(inner, depth, none)?;
                self.code.alu_imm(Alu::Neg, R0, 0);
            }
            Number::Complement(inner) => {
                self.number(inner, depth, none)?;
                self.code.alu_imm(Alu::Xor, R0, -1);
            }
        }
        Ok(())
    }

    /// Leaves of a register what a type has room for, extended to 64 bits.
    fn wrap(&mut self, register: Reg, int: IntType) {
        let unused = 64 - 8 * i32::from(int.size.clamp(1, 8));
        if unused != 0 {
            self.code.alu_imm(Alu::Lsh, register, unused);
            self.code.alu_imm(if int.signed { Alu::Arsh } else { Alu::Rsh }, register, unused);
        }
    }

    /// Makes R0 and R1 one number in R0.
    fn operate(&mut self, op: Op, int: IntType, none: Label) {
        self.wrap(R0, int);
        if !matches!(op, Op::Shl | Op::Shr) {
            self.wrap(R1, int);
        }
        match op {
            Op::Add => self.code.alu(Alu::Add, R0, R1),
            Op::Sub => self.code.alu(Alu::Sub, R0, R1),
            Op::Mul => self.code.alu(Alu::Mul, R0, R1),
            Op::Div | Op::Rem => self.divide(op, int.signed, none),
            Op::Shl | Op::Shr => {
                self.code.alu_imm(Alu::And, R1, 8 * i32::from(int.size.clamp(1, 8)) - 1);
                let right = if int.signed { Alu::Arsh } else { Alu::Rsh };
                self.code.alu(if op == Op::Shl { Alu::Lsh } else { right }, R0, R1);
            }
            Op::BitAnd => self.code.alu(Alu::And, R0, R1),
            Op::BitOr => self.code.alu(Alu::Or, R0, R1),
            Op::BitXor => self.code.alu(Alu::Xor, R0, R1),
            Op::Eq | Op::Ne | Op::Lt | Op::Le | Op::Gt | Op::Ge => {
                let (holds, end) = (self.code.label(), self.code.label());
                self.code.jump(jump_of(op, int), R0, R1, holds);
                self.code.load_imm(R0, 0);
                self.code.goto(end);
                self.code.bind(holds);
                self.code.load_imm(R0, 1);
                self.code.bind(end);
                return;
            }
        }
        self.wrap(R0, int);
    }

    /// Division. Instructions that heed signs came with 6.6 only, so it is done without signs, which are put
    /// back.
    fn divide(&mut self, op: Op, signed: bool, none: Label) {
        let alu = if op == Op::Div { Alu::Div } else { Alu::Mod };
        self.code.jump_imm(Jump::Equal, R1, 0, none);
        if !signed {
            self.code.alu(alu, R0, R1);
            return;
        }
        self.code.alu(Alu::Mov, R2, R0);
        if op == Op::Div {
            self.code.alu(Alu::Xor, R2, R1);
        }
        for register in [R0, R1] {
            self.negate_if_negative(register, register);
        }
        self.code.alu(alu, R0, R1);
        self.negate_if_negative(R0, R2);
    }

    fn negate_if_negative(&mut self, register: Reg, sign: Reg) {
        let positive = self.code.label();
        self.code.jump_imm(Jump::SignedGreaterEqual, sign, 0, positive);
        self.code.alu_imm(Alu::Neg, register, 0);
        self.code.bind(positive);
    }

    fn field(&mut self, offset: u32, int: IntType) -> Result<(), Uncompiled> {
        match offset {
            0 => {
                self.code.load_imm(R0, self.id.into());
                return Ok(());
            }
            1..=2 => return Err(Uncompiled::Common("common_flags")),
            3 => return Err(Uncompiled::Common("common_preempt_count")),
            4..COMMON => {
                self.code.call_helper(GET_CURRENT_PID_TGID);
                self.wrap(R0, IntType::INT);
                return Ok(());
            }
            _ => {}
        }
        self.reads.insert(offset);
        let at = to_i16(offset)?;
        let size = u32::from(int.size);
        if self.facts.marks_calls && (offset, size) == (COMMON, 8) {
            load_call_number(&mut self.code, R6);
        } else if offset.is_multiple_of(size) {
            self.code.load(size, R0, R6, at);
        } else {
            // Contexts are loaded at multiples of the size only.
            self.code.load_imm(R0, 0);
            for byte in 0..size {
                self.code.load(1, R1, R6, at + byte as i16);
                self.code.alu_imm(Alu::Lsh, R1, 8 * byte as i32);
                self.code.alu(Alu::Or, R0, R1);
            }
        }
        if int.signed {
            self.wrap(R0, int);
        }
        Ok(())
    }

    fn context(&mut self, context: Context, depth: u16, none: Label) -> Result<(), Uncompiled> {
        match context {
            Context::Cpu => self.code.call_helper(GET_SMP_PROCESSOR_ID),
            Context::Timestamp => self.code.call_helper(match self.facts.clock {
                TraceClock::Mono => KTIME_GET_NS,
                TraceClock::Boot => KTIME_GET_BOOT_NS,
                TraceClock::Tai => KTIME_GET_TAI_NS,
            }),
            _ => {
                let scratch = self.slot(depth + SCRATCH.cast_unsigned() / 8 - 1)?;
                let number = self.facts.task.number(&mut self.code, context, scratch, none);
                number.map_err(|lacking| Uncompiled::lacking(lacking, context))?;
            }
        }
        Ok(())
    }

    /// Copies a text that is known of the thread to this offset on the stack.
    pub(super) fn known_text(&mut self, context: Context, at: i16) -> Result<(), Uncompiled> {
        let scratch = self.slot(SCRATCH.cast_unsigned() / 8 - 1)?;
        let target = |code: &mut Assembler| code.address(R1, FP, at.into());
        let copied = self.facts.task.text(&mut self.code, context, scratch, target);
        copied.map_err(|lacking| Uncompiled::lacking(lacking, context))
    }

    fn cpus(
        &mut self,
        cpus: &Cpus,
        test: CpuTest,
        set: &CpuSet,
        yes: Label,
        no: Label,
    ) -> Result<(), Uncompiled> {
        match cpus {
            Cpus::One(number) => {
                self.number(number, 0, no)?;
                let (inside, outside) = match test {
                    CpuTest::Intersects => (yes, no),
                    CpuTest::Equal => (if set.len() == 1 { yes } else { no }, no),
                    CpuTest::NotEqual => (if set.len() == 1 { no } else { yes }, yes),
                };
                for (first, last) in ranges(set)? {
                    let next = self.code.label();
                    self.code.jump_imm(Jump::Less, R0, first.cast_signed(), next);
                    self.code.jump_imm(Jump::LessEqual, R0, last.cast_signed(), inside);
                    self.code.bind(next);
                }
                self.code.goto(outside);
            }
            Cpus::Mask(field) => self.mask(*field, test, set, yes, no)?,
        }
        Ok(())
    }

    /// Compares a mask word by word: R2 gets the CPUs that both have, R3 those of the mask alone, R4 those of
    /// the set alone.
    fn mask(
        &mut self,
        field: Bytes,
        test: CpuTest,
        set: &CpuSet,
        yes: Label,
        no: Label,
    ) -> Result<(), Uncompiled> {
        let limit = text::mask_room(field, self.text_max);
        let at = self.fetch_bytes(field, 0, limit, no)?;
        for register in [R2, R3, R4] {
            self.code.load_imm(register, 0);
        }
        for word in 0..limit / 8 {
            let wanted = set.words().get(word as usize).copied().unwrap_or(0);
            self.code.load(8, R0, FP, at + 8 * word as i16);
            self.code.load_imm(R1, wanted.cast_signed());
            self.code.alu(Alu::Mov, R5, R0);
            self.code.alu(Alu::And, R5, R1);
            self.code.alu(Alu::Or, R2, R5);
            self.code.alu(Alu::Xor, R0, R5);
            self.code.alu(Alu::Or, R3, R0);
            self.code.alu(Alu::Xor, R5, R1);
            self.code.alu(Alu::Or, R4, R5);
        }
        if test == CpuTest::Intersects {
            self.code.jump_imm(Jump::NotEqual, R2, 0, yes);
            self.code.goto(no);
            return Ok(());
        }
        let (equal, differ) = if test == CpuTest::Equal { (yes, no) } else { (no, yes) };
        if set.highest().is_some_and(|highest| highest >= limit * 8) {
            self.code.goto(differ);
            return Ok(());
        }
        self.code.alu(Alu::Or, R3, R4);
        self.code.jump_imm(Jump::Equal, R3, 0, equal);
        self.code.goto(differ);
        Ok(())
    }

    /// Notes that the filter looks at a field.
    pub(super) fn reads(&mut self, offset: u32) {
        self.reads.insert(offset);
    }
}

pub(super) fn to_i16(offset: u32) -> Result<i16, Uncompiled> {
    i16::try_from(offset).map_err(|_| Uncompiled::TooLong)
}

fn jump_of(op: Op, int: IntType) -> Jump {
    match (op, int.signed) {
        (Op::Ne, _) => Jump::NotEqual,
        (Op::Lt, true) => Jump::SignedLess,
        (Op::Lt, false) => Jump::Less,
        (Op::Le, true) => Jump::SignedLessEqual,
        (Op::Le, false) => Jump::LessEqual,
        (Op::Gt, true) => Jump::SignedGreater,
        (Op::Gt, false) => Jump::Greater,
        (Op::Ge, true) => Jump::SignedGreaterEqual,
        (Op::Ge, false) => Jump::GreaterEqual,
        _ => Jump::Equal,
    }
}

/// The CPUs of a set as first and last ones.
fn ranges(set: &CpuSet) -> Result<Vec<(u32, u32)>, Uncompiled> {
    let mut found: Vec<(u32, u32)> = Vec::new();
    for cpu in set.iter() {
        match found.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => found.push((cpu, cpu)),
        }
    }
    if found.len() > RANGES { Err(Uncompiled::Ranges(RANGES)) } else { Ok(found) }
}
