//! The function that counts a record.
//!
//! It gets the record's address, as a filter does. On its stack are, from the top: the value, the bucket that
//! it is in, the key, and before that what pairs the events of a time. R6 is the record.

use agent_ebpf::aggregates::{NO_TIME, POWERS, cause, value};

use super::{Function, Part, PartKind, Resolved, Role};
use crate::filter::{Emitter, Facts, Uncompiled};
use bpf::insn::{Alu, FP, Jump, Label, R0, R1, R2, R3, Reg};
use bpf::program::Function as Code;
use bpf::relocation::Subprogram;
use ftrace_event::filter::program::Value;
use std::collections::BTreeSet;

const VALUE: i16 = -8;
const BUCKET: i16 = -16;
/// Bytes of both.
const ABOVE: u32 = 16;

/// Whose records are counted, and how.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The event's id.
    pub id: u16,
    /// What has to be known of the kernel.
    pub facts: &'a Facts,
    /// Bytes of a text that can be read there.
    pub text_max: u32,
    /// Whether another task's program may come in between.
    pub preemptible: bool,
}

/// A compiled function.
#[derive(Clone, Debug, Default)]
pub struct Counter {
    pub(crate) function: Code,
    /// Offsets of the fields that it looks at.
    pub(crate) reads: BTreeSet<u32>,
}

impl Counter {
    /// Compiles it.
    pub fn compile(asked: &Resolved, target: Target<'_>) -> Result<Self, Uncompiled> {
        if target.preemptible
            && let Function::Numbers { least, most, .. } = asked.function
            && (least || most)
        {
            return Err(Uncompiled::Preemptible);
        }
        let key_bytes = asked.key_words() as u32 * 8;
        let room = ABOVE + key_bytes + asked.pair_words() as u32 * 8;
        let emitter = Emitter::new(target.id, target.facts, target.text_max, room);
        let mut writer =
            Writer { emitter, asked, target, room: room as i16, key: -((ABOVE + key_bytes) as i16) };
        writer.write()?;
        let (code, relocations, reads) = writer.emitter.finish_whole()?;
        Ok(Self { function: Code { code, relocations }, reads })
    }
}

struct Writer<'a> {
    emitter: Emitter<'a>,
    asked: &'a Resolved,
    target: Target<'a>,
    room: i16,
    /// Where the key is.
    key: i16,
}

impl Writer<'_> {
    fn write(&mut self) -> Result<(), Uncompiled> {
        let (unreadable, out) = (self.emitter.code.label(), self.emitter.code.label());
        let asked = self.asked;
        self.parts(&asked.pair, -self.room, unreadable)?;
        if asked.role == Role::Begins {
            self.emitter.code.address(R1, FP, i32::from(-self.room));
            self.emitter.code.call(Subprogram::BeginTime);
        } else {
            if let Some((number, _)) = &asked.value {
                self.emitter.number(number, 0, unreadable)?;
                self.emitter.code.store(8, FP, VALUE, R0);
            }
            let end = self.parts(&asked.keys, self.key, unreadable)?;
            for at in (end..-(ABOVE as i16)).step_by(8) {
                self.emitter.code.store_imm(8, FP, at, 0);
            }
            if asked.role == Role::Ends {
                self.emitter.code.address(R1, FP, i32::from(-self.room));
                self.emitter.code.call(Subprogram::EndTime);
                self.emitter.code.jump_imm(Jump::Equal, R0, NO_TIME as i32, out);
                self.emitter.code.store(8, FP, VALUE, R0);
            }
            let buckets = self.bucket();
            self.emitter.code.address(R1, FP, self.key.into());
            self.emitter.code.call(Subprogram::Find);
            self.emitter.code.jump_imm(Jump::Equal, R0, 0, out);
            self.change(buckets, out);
        }
        if self.emitter.code.is_reached(out) {
            self.emitter.code.bind(out);
        }
        self.emitter.code.load_imm(R0, 0);
        self.emitter.code.exit();
        if self.emitter.code.is_reached(unreadable) {
            self.emitter.code.bind(unreadable);
            self.emitter.code.load_imm(R1, cause::UNREADABLE as i64);
            self.emitter.code.call(Subprogram::Lose);
            self.emitter.code.load_imm(R0, 0);
            self.emitter.code.exit();
        }
        Ok(())
    }

    /// Makes parts of a key from `at` on. Gives where they end.
    fn parts(&mut self, parts: &[Part], at: i16, unreadable: Label) -> Result<i16, Uncompiled> {
        let mut at = at;
        for part in parts {
            match (&part.value, part.kind) {
                (Value::Number { number, .. }, _) => {
                    self.emitter.number(number, 0, unreadable)?;
                    self.emitter.code.store(8, FP, at, R0);
                }
                (Value::Text(text), PartKind::Text { bytes }) => {
                    let from = (at + self.room).cast_unsigned().into();
                    self.emitter.fetch(text, from, bytes, unreadable)?;
                    // The last byte ends it, whatever is there.
                    self.emitter.code.store_imm(1, FP, at + bytes as i16 - 1, 0);
                }
                (Value::Text(_), PartKind::Number { .. } | PartKind::Address) => {
                    return Err(Uncompiled::TooLong);
                }
            }
            at += part.kind.words() as i16 * 8;
        }
        Ok(at)
    }

    /// Puts the number of the value's bucket in its place. Gives how many there are.
    fn bucket(&mut self) -> u32 {
        let signed = self.asked.is_signed();
        let code = &mut self.emitter.code;
        match self.asked.function {
            Function::Numbers { .. } => 0,
            Function::Powers => {
                code.load(8, R1, FP, VALUE);
                code.load_imm(R2, signed.into());
                code.call(Subprogram::Power);
                code.store(8, FP, BUCKET, R0);
                POWERS as u32
            }
            Function::Steps { from, step, count } => {
                let (below, above, known) = (code.label(), code.label(), code.label());
                let less = if signed { Jump::SignedLess } else { Jump::Less };
                code.load(8, R1, FP, VALUE);
                code.load_imm(R2, from);
                code.jump(less, R1, R2, below);
                code.alu(Alu::Sub, R1, R2);
                code.load_imm(R2, step.cast_signed());
                code.alu(Alu::Div, R1, R2);
                code.jump_imm(Jump::GreaterEqual, R1, count.cast_signed(), above);
                code.alu_imm(Alu::Add, R1, 1);
                code.goto(known);
                code.bind(above);
                code.load_imm(R1, i64::from(count) + 1);
                code.goto(known);
                code.bind(below);
                code.load_imm(R1, 0);
                code.bind(known);
                code.store(8, FP, BUCKET, R1);
                count + 2
            }
        }
    }

    /// Changes the values at R0.
    fn change(&mut self, buckets: u32, out: Label) {
        self.emitter.code.load_imm(R1, 1);
        if let Function::Numbers { sum, least, most } = self.asked.function {
            let offset = |word: usize| word as i16 * 8;
            if least || most {
                self.emitter.code.load(8, R2, FP, VALUE);
            }
            for (word, wanted) in [(value::LEAST, least), (value::MOST, most)] {
                if wanted {
                    self.compare(offset(word), word == value::LEAST);
                }
            }
            if sum {
                self.emitter.code.load(8, R2, FP, VALUE);
                self.add(offset(value::SUM), R2);
            }
            self.add(offset(value::COUNT), R1);
            return;
        }
        self.emitter.code.load(8, R2, FP, VALUE);
        self.add(value::SUM as i16 * 8, R2);
        self.add(value::COUNT as i16 * 8, R1);
        let code = &mut self.emitter.code;
        code.load(8, R2, FP, BUCKET);
        // What is known of numbers in memory is not known to every verifier.
        code.jump_imm(Jump::GreaterEqual, R2, buckets.cast_signed(), out);
        code.alu_imm(Alu::Lsh, R2, 3);
        code.alu(Alu::Add, R0, R2);
        self.add(value::BUCKETS as i16 * 8, R1);
    }

    /// Adds a register to the word at this offset of R0. Takes R3.
    fn add(&mut self, at: i16, from: Reg) {
        let code = &mut self.emitter.code;
        if self.target.preemptible {
            code.atomic_add(R0, at, from);
            return;
        }
        code.load(8, R3, R0, at);
        code.alu(Alu::Add, R3, from);
        code.store(8, R0, at, R3);
    }

    /// Stores R2 at this offset of R0 if it is smaller, or larger, than what is there, or nothing was counted
    /// yet. Takes R3.
    fn compare(&mut self, at: i16, smaller: bool) {
        let jump = match (smaller, self.asked.is_signed()) {
            (true, true) => Jump::SignedGreaterEqual,
            (true, false) => Jump::GreaterEqual,
            (false, true) => Jump::SignedLessEqual,
            (false, false) => Jump::LessEqual,
        };
        let code = &mut self.emitter.code;
        let (store, keep) = (code.label(), code.label());
        code.load(8, R3, R0, value::COUNT as i16 * 8);
        code.jump_imm(Jump::Equal, R3, 0, store);
        code.load(8, R3, R0, at);
        code.jump(jump, R2, R3, keep);
        code.bind(store);
        code.store(8, R0, at, R2);
        code.bind(keep);
    }
}
