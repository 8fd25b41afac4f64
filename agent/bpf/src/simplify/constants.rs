//! Conditional constant propagation: what is known of registers and of the stack in front of each
//! instruction, along the branches that can be taken.

use super::{
    Next, Program, REGISTERS,
    decode::{ALU32, JMP, JMP32, LDX, MOV, PSEUDO_FUNC, ST, STX},
    stack::StackRange,
};
use crate::insn::{ALU64, Alu, CALL, EXIT, GOTO, Insn, LD_IMM64, PSEUDO_MAP_VALUE, X};

/// What is known of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    Unknown,
    /// A number whose upper half is 0.
    Word,
    Number(u64),
    /// The address of a byte of a constant map.
    Data {
        map: i32,
        offset: u64,
    },
    /// What is on the stack there, 8 bytes from this offset on.
    Held(i16),
}

impl Value {
    fn is_word(self) -> bool {
        match self {
            Self::Word => true,
            Self::Number(number) => u32::try_from(number).is_ok(),
            Self::Unknown | Self::Data { .. } | Self::Held(_) => false,
        }
    }

    /// What is known if it is one of the two.
    fn or(self, other: Self) -> Self {
        match self {
            _ if self == other => self,
            _ if self.is_word() && other.is_word() => Self::Word,
            _ => Self::Unknown,
        }
    }

    /// What is known of a number of which nothing is known but that it has so many bytes.
    fn of_size(size: usize) -> Self {
        if size < 8 { Self::Word } else { Self::Unknown }
    }
}

/// What is known of a range of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    range: StackRange,
    value: Value,
}

/// Of how many ranges of the stack something is remembered. Compilers keep few constants there.
const SLOTS: usize = 12;

/// What is known in front of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    pub(super) registers: [Value; REGISTERS],
    slots: [Option<Slot>; SLOTS],
}

impl State {
    pub const fn of(registers: [Value; REGISTERS]) -> Self {
        Self { registers, slots: [None; SLOTS] }
    }

    /// What is known if it is one of the two.
    fn or(mut self, other: &Self) -> Self {
        for (value, other) in self.registers.iter_mut().zip(other.registers) {
            *value = value.or(other);
        }
        for slot in &mut self.slots {
            *slot = slot.filter(|slot| other.slots.contains(&Some(*slot)));
        }
        self
    }

    /// A store, from a register if it is from one.
    fn store(&mut self, range: StackRange, value: Value, from: Option<usize>) {
        let is_held = |value: &Value| match value {
            Value::Held(offset) => StackRange { offset: *offset, size: 8 }.overlaps(range),
            _ => false,
        };
        for slot in &mut self.slots {
            *slot = slot.filter(|slot| !slot.range.overlaps(range) && !is_held(&slot.value));
        }
        for register in self.registers.iter_mut().filter(|value| is_held(value)) {
            *register = Value::Unknown;
        }
        if value == Value::Unknown || is_held(&value) {
            if let Some(register) = from.and_then(|from| self.registers.get_mut(from))
                && range.size == 8
            {
                *register = Value::Held(range.offset);
            }
        } else if let Some(free) = self.slots.iter_mut().find(|slot| slot.is_none()) {
            *free = Some(Slot { range, value });
        }
    }

    /// What a load gives.
    fn load(&self, range: StackRange) -> Value {
        let holds = |slot: &&Slot| slot.range.offset <= range.offset && range.end() <= slot.range.end();
        let unknown = if range.size == 8 { Value::Held(range.offset) } else { Value::Word };
        match self.slots.iter().flatten().find(holds) {
            Some(Slot { range: whole, value: Value::Number(number) }) => {
                let number = number >> (8 * (range.offset - whole.offset));
                Value::Number(if range.size < 8 { number & ((1 << (8 * range.size)) - 1) } else { number })
            }
            Some(Slot { range: whole, value }) if *whole == range && range.size == 8 => *value,
            _ => unknown,
        }
    }
}

impl Program<'_> {
    /// What is known in front of each instruction; `None` of those that never run.
    pub(crate) fn propagate(&self) -> Option<Vec<Option<State>>> {
        let mut states: Vec<Option<State>> = vec![None; self.code.len()];
        let mut open = Vec::new();
        let enter = |states: &mut Vec<Option<State>>, open: &mut Vec<usize>, at: usize, from: State| {
            let slot = states.get_mut(at)?;
            let merged = slot.map_or(from, |known| known.or(&from));
            if *slot != Some(merged) {
                *slot = Some(merged);
                open.push(at);
            }
            Some(())
        };
        enter(&mut states, &mut open, 0, State::of([Value::Unknown; REGISTERS]))?;
        while let Some(at) = open.pop() {
            let before = (*states.get(at)?)?;
            let insn = *self.code.get(at)?;
            if let Some(function) = insn.called(at) {
                // Nothing is said of its arguments. The verifier knows them anyway, and without the branches
                // that they decide it keeps fewer states to compare with (`is_state_visited`,
                // kernel/bpf/verifier.c): it walks through some programs twice as long.
                enter(&mut states, &mut open, function, State::of([Value::Unknown; REGISTERS]))?;
            }
            let next = self.next_of(at, &before)?;
            let after = self.after(at, before)?;
            for next in next.each() {
                enter(&mut states, &mut open, next, after)?;
            }
        }
        Some(states)
    }

    /// Where the flow goes after an instruction, if this is known in front of it.
    fn next_of(&self, at: usize, state: &State) -> Option<Next> {
        let next = self.next(at)?;
        Some(match next {
            Next::Two(on, taken) => match self.code.get(at)?.decided(state) {
                Some(true) => Next::One(taken),
                Some(false) => Next::One(on),
                None => next,
            },
            _ => next,
        })
    }

    /// What is known after an instruction. `None` for one that is not known here.
    fn after(&self, at: usize, mut state: State) -> Option<State> {
        let insn = *self.code.get(at)?;
        let (to, from) = (insn.dst(), insn.src());
        match insn.class() {
            0 if insn.code == LD_IMM64 => {
                let upper = self.code.get(at + 1)?.imm;
                *state.registers.get_mut(to)? = match from as u8 {
                    0 => Value::Number(u64::from(insn.imm as u32) | (upper as u64) << 32),
                    PSEUDO_MAP_VALUE if self.data(insn.imm).is_some() => {
                        Value::Data { map: insn.imm, offset: u64::from(upper as u32) }
                    }
                    PSEUDO_FUNC => return None,
                    _ => Value::Unknown,
                };
            }
            LDX => {
                let value = match insn.code & 0xe0 {
                    0x60 => self.loaded(at, insn, &state)?,
                    _ => Value::Unknown,
                };
                *state.registers.get_mut(to)? = value;
            }
            ST | STX if insn.code & 0xe0 == 0x60 => {
                let value = if insn.class() == ST {
                    Value::Number(i64::from(insn.imm) as u64)
                } else {
                    *state.registers.get(from)?
                };
                if let Some(range) = self.stack.range(at, insn) {
                    state.store(range, value, (insn.class() == STX).then_some(from));
                }
            }
            // Atomic operations: what they fetch goes to the source, or to R0.
            STX if insn.code & 0xe0 == 0xc0 && insn.imm & 0x100 == 0 => {
                *state.registers.get_mut(from)? = Value::Unknown;
                state.registers[0] = Value::Unknown;
            }
            ALU32 | ALU64 => {
                let operand = insn.operand(&state)?;
                let slot = state.registers.get_mut(to)?;
                *slot = insn.computed(*slot, operand);
            }
            _ if insn.code == CALL => state.registers[..6].fill(Value::Unknown),
            JMP | JMP32 if insn.code == EXIT || insn.code == GOTO || insn.is_jump() => {}
            _ => return None,
        }
        Some(state)
    }

    fn data(&self, map: i32) -> Option<&[u8]> {
        self.constants.iter().find(|(fd, _)| *fd == map).map(|(_, data)| data.as_slice())
    }

    /// What a load gives.
    fn loaded(&self, at: usize, insn: Insn, state: &State) -> Option<Value> {
        let base = *state.registers.get(insn.src())?;
        Some(match self.stack.range(at, insn) {
            Some(range) => state.load(range),
            None => self.constant(insn, base).map_or(Value::of_size(insn.size()), Value::Number),
        })
    }

    /// The number that a load of a constant gives.
    fn constant(&self, insn: Insn, base: Value) -> Option<u64> {
        let Value::Data { map, offset } = base else { return None };
        let at = usize::try_from(offset.checked_add_signed(insn.off.into())?).ok()?;
        let bytes = self.data(map)?.get(at..at.checked_add(insn.size())?)?;
        let mut number = [0; 8];
        number[..bytes.len()].copy_from_slice(bytes);
        Some(u64::from_le_bytes(number))
    }

    /// Puts something simpler in the place of an instruction, by what is known in front of it.
    pub(crate) fn rewrite(&mut self, at: usize, state: &State) -> Option<()> {
        let after = self.after(at, *state)?;
        let insn = self.code.get_mut(at)?;
        let (to, from) = (insn.dst(), insn.src());
        match insn.class() {
            LDX | ALU32 | ALU64 => {
                if let Value::Number(value) = *after.registers.get(to)?
                    && let Some(short) = Insn::mov(to as u8, value)
                {
                    *insn = short;
                    return Some(());
                }
                if insn.code == LDX | 0x78
                    && let Value::Held(off) = *after.registers.get(to)?
                    && self.stack.range(at, *insn).is_some()
                {
                    let is_there = *state.registers.get(to)? == Value::Held(off);
                    *insn = if is_there { Insn::NOTHING } else { Insn { off, ..*insn } };
                    return Some(());
                }
                if insn.class() == LDX || insn.off != 0 || insn.code & 0xf0 == 0xd0 {
                    return Some(());
                }
                let (value, operand) = (*state.registers.get(to)?, insn.operand(state)?);
                if insn.code & X != 0 {
                    if let Some(imm) = insn.as_immediate(operand) {
                        *insn = Insn { code: insn.code & !X, regs: to as u8, off: 0, imm };
                    } else if let Value::Number(value) = value
                        && insn.is_operand_alone(value)
                    {
                        *insn = Insn { code: insn.code & !0xf0 | MOV, ..*insn };
                    }
                }
                if insn.changes_nothing(value) {
                    *insn = Insn::NOTHING;
                }
            }
            JMP | JMP32 if insn.is_jump() => match insn.decided(state) {
                Some(true) => *insn = Insn { off: insn.off, ..Insn::NOTHING },
                Some(false) => *insn = Insn::NOTHING,
                None if insn.code & X != 0 => {
                    if let Some(imm) = insn.as_immediate(*state.registers.get(from)?) {
                        *insn = Insn { code: insn.code & !X, regs: to as u8, off: insn.off, imm };
                    }
                }
                None => {}
            },
            _ => {}
        }
        Some(())
    }

    /// Takes out pairs of shifts that clear the upper half of a register, where it is clear.
    pub(crate) fn drop_extensions(&mut self, states: &[Option<State>]) -> Option<()> {
        let used: Vec<bool> = states.iter().map(Option::is_some).collect();
        let targets = self.targets(&used)?;
        let shift = |op: Alu| (ALU64 | op as u8, 32);
        for at in 1..self.code.len() {
            let (left, right) = (self.code[at - 1], self.code[at]);
            let is_pair = (left.code, left.imm) == shift(Alu::Lsh)
                && (right.code, right.imm) == shift(Alu::Rsh)
                && left.dst() == right.dst();
            if let Some(Some(state)) = states.get(at - 1)
                && is_pair
                && targets.get(at) == Some(&false)
                && !self.is_upper_half(at)
                && !self.is_upper_half(at - 1)
                && state.registers.get(left.dst())?.is_word()
            {
                self.code[at - 1] = Insn::NOTHING;
                self.code[at] = Insn::NOTHING;
            }
        }
        Some(())
    }
}

impl Insn {
    /// The immediate that means the same as a register of this value.
    fn as_immediate(self, value: Value) -> Option<i32> {
        let Value::Number(value) = value else { return None };
        if self.is_32_bit() { Some(value as i32) } else { i32::try_from(value as i64).ok() }
    }

    /// The second operand.
    fn operand(self, state: &State) -> Option<Value> {
        Some(match self.code & X {
            0 => Value::Number(i64::from(self.imm) as u64),
            _ => *state.registers.get(self.src())?,
        })
    }

    /// What an arithmetic instruction makes of two values.
    fn computed(self, value: Value, operand: Value) -> Value {
        let op = self.code & 0xf0;
        // Division with sign, moves that extend the sign; byte orders.
        if self.off != 0 || op == 0xd0 {
            return Value::Unknown;
        }
        if self.class() == ALU64 {
            match (op, value, operand) {
                (MOV, _, moved) => return moved,
                (0x00, Value::Data { map, offset }, Value::Number(number)) => {
                    return Value::Data { map, offset: offset.wrapping_add(number) };
                }
                _ => {}
            }
        }
        let b = match operand {
            Value::Number(b) => Some(b),
            _ if op == 0x80 => Some(0),
            _ => None,
        };
        let a = match value {
            Value::Number(a) => Some(a),
            _ if op == MOV => Some(0),
            _ => None,
        };
        let Some((a, b)) = a.zip(b) else {
            return if self.is_32_bit() || self.keeps_words(value, operand) {
                Value::Word
            } else {
                Value::Unknown
            };
        };
        let result = if self.class() == ALU64 {
            number64(op, a, b)
        } else {
            number32(op, a as u32, b as u32).map(u64::from)
        };
        result.map_or(Value::Unknown, Value::Number)
    }

    /// Whether all 64 bits of the result have an upper half of 0.
    fn keeps_words(self, value: Value, operand: Value) -> bool {
        match self.code & 0xf0 {
            0x40 | 0xa0 => value.is_word() && operand.is_word(),
            0x50 => value.is_word() || operand.is_word(),
            0x70 => value.is_word() || matches!(operand, Value::Number(32..64)),
            _ => false,
        }
    }

    /// Whether an operation on `value` gives its operand.
    fn is_operand_alone(self, value: u64) -> bool {
        let value = if self.is_32_bit() { value & u64::from(u32::MAX) } else { value };
        match self.code & 0xf0 {
            0x00 | 0x40 | 0xa0 => value == 0,
            0x20 => value == 1,
            _ => false,
        }
    }

    /// Whether an operation with an immediate gives `value`, whatever is known of it.
    fn changes_nothing(self, value: Value) -> bool {
        if self.is_32_bit() && !value.is_word() {
            return false;
        }
        match self.code & (0xf0 | X) {
            0x00 | 0x10 | 0x40 | 0x60 | 0x70 | 0xa0 | 0xc0 => self.imm == 0,
            0x20 => self.imm == 1,
            0x50 => self.imm == -1,
            _ => self.is_32_bit() && self.code & (0xf0 | X) == MOV | X && self.dst() == self.src(),
        }
    }

    /// Whether a conditional jump is taken, if that is known.
    pub fn decided(self, state: &State) -> Option<bool> {
        let (Value::Number(a), Value::Number(b)) = (*state.registers.get(self.dst())?, self.operand(state)?)
        else {
            return None;
        };
        let op = self.code & 0xf0;
        if self.class() == JMP32 {
            let (a, b) = (a as u32, b as u32);
            compared(op, u64::from(a), u64::from(b), i64::from(a as i32), i64::from(b as i32))
        } else {
            compared(op, a, b, a as i64, b as i64)
        }
    }
}

pub(crate) fn number64(op: u8, a: u64, b: u64) -> Option<u64> {
    Some(match op {
        0x00 => a.wrapping_add(b),
        0x10 => a.wrapping_sub(b),
        0x20 => a.wrapping_mul(b),
        0x40 => a | b,
        0x50 => a & b,
        0x60 => a << (b & 63),
        0x70 => a >> (b & 63),
        0x80 => a.wrapping_neg(),
        0xa0 => a ^ b,
        MOV => b,
        0xc0 => ((a as i64) >> (b & 63)) as u64,
        _ => return None,
    })
}

pub(crate) fn number32(op: u8, a: u32, b: u32) -> Option<u32> {
    Some(match op {
        0x60 => a << (b & 31),
        0x70 => a >> (b & 31),
        0xc0 => ((a as i32) >> (b & 31)) as u32,
        _ => number64(op, a.into(), b.into())? as u32,
    })
}

/// Operands without and with sign.
fn compared(op: u8, a: u64, b: u64, signed_a: i64, signed_b: i64) -> Option<bool> {
    Some(match op {
        0x10 => a == b,
        0x20 => a > b,
        0x30 => a >= b,
        0x40 => a & b != 0,
        0x50 => a != b,
        0x60 => signed_a > signed_b,
        0x70 => signed_a >= signed_b,
        0xa0 => a < b,
        0xb0 => a <= b,
        0xc0 => signed_a < signed_b,
        0xd0 => signed_a <= signed_b,
        _ => return None,
    })
}
