//! Programs without what the constants of a recording make superfluous.
//!
//! Programs ask constants that are set before they are loaded (`agent_ebpf::globals`). The kernel's verifier knows the values, and
//! drops branches that are never taken; but the loads stay, and so does everything that was computed for such a branch. Here loads of
//! constants become constants, what follows from them is computed, and what nobody asks for is left out: a third of the
//! instructions that an event runs, and of those that the verifier walks through.
//!
//! The passes are those of a compiler: conditional constant propagation (Wegman and Zadeck, 1991), then removal of dead code by the
//! liveness of registers, until nothing changes. Only registers are followed; memory but for the constants is left alone. A program with an
//! instruction that is not known here stays what it is.

use aya_obj::generated::bpf_insn;

use super::insn::{ALU64, Alu, CALL, EXIT, GOTO, Insn, LD_IMM64, PSEUDO_CALL, X};

/// The content of a map that never changes, by the map's descriptor.
pub(super) type Constants = Vec<(i32, Vec<u8>)>;

const REGISTERS: usize = 11;
/// Classes of instructions (Documentation/bpf/standardization/instruction-set.rst).
const LDX: u8 = 1;
const ST: u8 = 2;
const STX: u8 = 3;
const ALU32: u8 = 4;
const JMP: u8 = 5;
const JMP32: u8 = 6;
const MOV: u8 = Alu::Mov as u8;
const PSEUDO_MAP_VALUE: u8 = 2;
const PSEUDO_FUNC: u8 = 4;
/// Helpers without arguments: `ktime_get_ns`, `get_smp_processor_id`, `get_current_pid_tgid`, `get_current_uid_gid`, `get_current_task`,
/// `ktime_get_boot_ns`, `get_current_task_btf`, `ktime_get_coarse_ns`, `ktime_get_tai_ns` (include/uapi/linux/bpf.h).
const WITHOUT_ARGUMENTS: [i32; 9] = [5, 8, 14, 15, 35, 125, 158, 160, 208];

/// What is known of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Unknown,
    Number(u64),
    /// The address of a byte of a constant map.
    Data {
        map: i32,
        offset: u64,
    },
}

type State = [Value; REGISTERS];

/// Where the flow goes behind an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Nowhere,
    One(usize),
    Two(usize, usize),
}

impl Next {
    fn each(self) -> impl Iterator<Item = usize> {
        let (a, b) = match self {
            Self::Nowhere => (None, None),
            Self::One(a) => (Some(a), None),
            Self::Two(a, b) => (Some(a), Some(b)),
        };
        a.into_iter().chain(b)
    }
}

/// Simplifies a program, whose functions follow one another, the main one first.
pub(super) fn simplify(code: Vec<bpf_insn>, constants: &Constants) -> Vec<bpf_insn> {
    let insns = code.iter().map(|insn| Insn::from(*insn)).collect();
    match (Program { code: insns, constants }).simplify() {
        Some(simple) => simple.into_iter().map(bpf_insn::from).collect(),
        None => code,
    }
}

struct Program<'a> {
    code: Vec<Insn>,
    constants: &'a Constants,
}

impl Program<'_> {
    fn simplify(mut self) -> Option<Vec<Insn>> {
        let states = self.propagate()?;
        for (at, state) in states.iter().enumerate() {
            if let Some(state) = state {
                self.rewrite(at, state)?;
            }
        }
        let mut used: Vec<bool> = states.iter().map(Option::is_some).collect();
        self.thread_jumps(&used)?;
        while self.remove_dead(&mut used)? {}
        self.compact(&used)
    }

    /// What is known of the registers in front of each instruction; `None` of those that never run.
    fn propagate(&self) -> Option<Vec<Option<State>>> {
        let mut states: Vec<Option<State>> = vec![None; self.code.len()];
        let mut open = Vec::new();
        let enter = |states: &mut Vec<Option<State>>, open: &mut Vec<usize>, at: usize, from: State| {
            let slot = states.get_mut(at)?;
            let merged = slot.map_or(from, |known| {
                let mut merged = known;
                for (value, other) in merged.iter_mut().zip(from) {
                    if *value != other {
                        *value = Value::Unknown;
                    }
                }
                merged
            });
            if *slot != Some(merged) {
                *slot = Some(merged);
                open.push(at);
            }
            Some(())
        };
        enter(&mut states, &mut open, 0, [Value::Unknown; REGISTERS])?;
        while let Some(at) = open.pop() {
            let before = (*states.get(at)?)?;
            let insn = *self.code.get(at)?;
            if let Some(function) = insn.called(at) {
                enter(&mut states, &mut open, function, [Value::Unknown; REGISTERS])?;
            }
            let next = self.next(at, Some(&before))?;
            let after = self.after(at, before)?;
            for next in next.each() {
                enter(&mut states, &mut open, next, after)?;
            }
        }
        Some(states)
    }

    /// Where the flow goes behind an instruction, if this is known of the registers.
    fn next(&self, at: usize, state: Option<&State>) -> Option<Next> {
        let insn = *self.code.get(at)?;
        Some(match insn.code {
            EXIT => Next::Nowhere,
            LD_IMM64 => Next::One(at + 2),
            CALL => Next::One(at + 1),
            GOTO => Next::One(insn.target(at)?),
            _ if insn.is_jump() => {
                let (taken, on) = (insn.target(at)?, at + 1);
                match state.and_then(|state| insn.decided(state)) {
                    Some(true) => Next::One(taken),
                    Some(false) => Next::One(on),
                    None => Next::Two(on, taken),
                }
            }
            _ => Next::One(at + 1),
        })
    }

    /// What is known behind an instruction. `None` for one that is not known here.
    fn after(&self, at: usize, mut state: State) -> Option<State> {
        let insn = *self.code.get(at)?;
        let (to, from) = (insn.dst(), insn.src());
        match insn.class() {
            0 if insn.code == LD_IMM64 => {
                let upper = self.code.get(at + 1)?.imm;
                *state.get_mut(to)? = match from as u8 {
                    0 => Value::Number(u64::from(insn.imm as u32) | (upper as u64) << 32),
                    PSEUDO_MAP_VALUE if self.data(insn.imm).is_some() => {
                        Value::Data { map: insn.imm, offset: u64::from(upper as u32) }
                    }
                    PSEUDO_FUNC => return None,
                    _ => Value::Unknown,
                };
            }
            LDX => {
                let value = if insn.code & 0xe0 == 0x60 { self.load(insn, *state.get(from)?) } else { None };
                *state.get_mut(to)? = value.map_or(Value::Unknown, Value::Number);
            }
            ST | STX if insn.code & 0xe0 == 0x60 => {}
            // Atomic operations: what they fetch goes to the source, or to R0.
            STX if insn.code & 0xe0 == 0xc0 && insn.imm & 0x100 == 0 => {
                *state.get_mut(from)? = Value::Unknown;
                state[0] = Value::Unknown;
            }
            ALU32 | ALU64 => {
                let operand = insn.operand(&state)?;
                let slot = state.get_mut(to)?;
                *slot = insn.computed(*slot, operand);
            }
            _ if insn.code == CALL => state[..6].fill(Value::Unknown),
            JMP | JMP32 if insn.code == EXIT || insn.code == GOTO || insn.is_jump() => {}
            _ => return None,
        }
        Some(state)
    }

    fn data(&self, map: i32) -> Option<&[u8]> {
        self.constants.iter().find(|(fd, _)| *fd == map).map(|(_, data)| data.as_slice())
    }

    /// The number that a load gives.
    fn load(&self, insn: Insn, base: Value) -> Option<u64> {
        let Value::Data { map, offset } = base else { return None };
        let at = usize::try_from(offset.checked_add_signed(insn.off.into())?).ok()?;
        let bytes = self.data(map)?.get(at..at.checked_add(insn.size())?)?;
        let mut number = [0; 8];
        number[..bytes.len()].copy_from_slice(bytes);
        Some(u64::from_le_bytes(number))
    }

    /// Puts constants in the place of what is known.
    fn rewrite(&mut self, at: usize, state: &State) -> Option<()> {
        let after = self.after(at, *state)?;
        let insn = self.code.get_mut(at)?;
        let (to, from) = (insn.dst(), insn.src());
        match insn.class() {
            LDX | ALU32 | ALU64 => {
                if let Value::Number(value) = *after.get(to)?
                    && let Some(short) = Insn::mov(to as u8, value)
                {
                    *insn = short;
                } else if insn.class() != LDX
                    && insn.code & X != 0
                    && insn.off == 0
                    && insn.code & 0xf0 != 0xd0
                    && let Some(imm) = insn.as_immediate(*state.get(from)?)
                {
                    *insn = Insn { code: insn.code & !X, regs: to as u8, off: 0, imm };
                }
            }
            JMP | JMP32 if insn.is_jump() => match insn.decided(state) {
                Some(true) => *insn = Insn { code: GOTO, regs: 0, off: insn.off, imm: 0 },
                Some(false) => *insn = Insn { code: GOTO, regs: 0, off: 0, imm: 0 },
                None if insn.code & X != 0 => {
                    if let Some(imm) = insn.as_immediate(*state.get(from)?) {
                        *insn = Insn { code: insn.code & !X, regs: to as u8, off: insn.off, imm };
                    }
                }
                None => {}
            },
            _ => {}
        }
        Some(())
    }

    /// Lets jumps to jumps go where those go.
    fn thread_jumps(&mut self, used: &[bool]) -> Option<()> {
        for at in (0..self.code.len()).filter(|at| used[*at]) {
            let insn = self.code[at];
            if !(insn.code == GOTO || insn.is_jump()) {
                continue;
            }
            let mut target = insn.target(at)?;
            // A loop of nothing but jumps would never end.
            for _ in 0..8 {
                let next = self.code.get(target)?;
                if next.code != GOTO {
                    break;
                }
                target = next.target(target)?;
            }
            // The kernel knows a loop of the verifier's by a jump back: none is made that was not there.
            if let Ok(off) = i16::try_from(target as i64 - at as i64 - 1)
                && (off >= 0) == (insn.off >= 0)
            {
                self.code[at].off = off;
            }
        }
        Some(())
    }

    /// Removes instructions whose result nobody uses, and jumps to what comes next anyway. Returns whether there were some.
    fn remove_dead(&self, used: &mut [bool]) -> Option<bool> {
        let reached = self.reached(used)?;
        let mut changed = false;
        for (used, reached) in used.iter_mut().zip(&reached) {
            changed |= *used && !*reached;
            *used &= *reached;
        }
        let live = self.live(used)?;
        for at in 0..self.code.len() {
            if !used[at] {
                continue;
            }
            let insn = self.code[at];
            let is_dead = match insn.class() {
                0 | LDX | ALU32 | ALU64 => live[at] & 1 << insn.dst() == 0,
                JMP | JMP32 if insn.code == GOTO || insn.is_jump() => {
                    let target = insn.target(at)?;
                    target > at && (at + 1..target).all(|between| !used[between])
                }
                _ => false,
            };
            if is_dead {
                used[at] = false;
                changed = true;
            }
        }
        Some(changed)
    }

    /// Whether this is no instruction, but the second half of one.
    fn is_upper_half(&self, at: usize) -> bool {
        at > 0 && self.code[at - 1].code == LD_IMM64 && self.code[at].code == 0
    }

    /// Which of the instructions that are used can be reached.
    fn reached(&self, used: &[bool]) -> Option<Vec<bool>> {
        let mut reached = vec![false; self.code.len()];
        let mut open = vec![0];
        while let Some(at) = open.pop() {
            if std::mem::replace(reached.get_mut(at)?, true) {
                continue;
            }
            // One that is removed only leads on.
            if !used[at] {
                open.push(self.behind(at));
                continue;
            }
            if let Some(function) = self.code[at].called(at) {
                open.push(function);
            }
            open.extend(self.next(at, None)?.each());
        }
        Some(reached)
    }

    /// The instruction behind one.
    fn behind(&self, at: usize) -> usize {
        if self.code[at].code == LD_IMM64 { at + 2 } else { at + 1 }
    }

    /// The registers that are used later, behind each instruction: a bit for each.
    fn live(&self, used: &[bool]) -> Option<Vec<u16>> {
        let mut before = vec![0u16; self.code.len() + 1];
        let mut after = vec![0u16; self.code.len()];
        loop {
            let mut changed = false;
            for at in (0..self.code.len()).rev() {
                if self.is_upper_half(at) {
                    continue;
                }
                let insn = self.code[at];
                let (live, now) = if used[at] {
                    let live = self
                        .next(at, None)?
                        .each()
                        .fold(0, |live, next| live | before.get(next).copied().unwrap_or_default());
                    let (mut reads, writes) = insn.registers();
                    if let Some(function) = insn.called(at) {
                        reads &= before.get(function)?;
                    }
                    (live, live & !writes | reads)
                } else {
                    let live = before.get(self.behind(at)).copied().unwrap_or_default();
                    (live, live)
                };
                after[at] = live;
                changed |= before[at] != now;
                before[at] = now;
            }
            if !changed {
                return Some(after);
            }
        }
    }

    /// The used instructions, with the distances between them set right.
    fn compact(&self, used: &[bool]) -> Option<Vec<Insn>> {
        let mut places = Vec::with_capacity(self.code.len() + 1);
        let mut place = 0usize;
        for at in 0..self.code.len() {
            places.push(place);
            place += usize::from(used[at] || self.is_upper_half(at) && used[at - 1]);
        }
        places.push(place);
        let mut code = Vec::with_capacity(place);
        for at in 0..self.code.len() {
            if self.is_upper_half(at) {
                if used[at - 1] {
                    code.push(self.code[at]);
                }
                continue;
            }
            if !used[at] {
                continue;
            }
            let mut insn = self.code[at];
            let distance = |target: usize| Some(*places.get(target)? as i64 - places[at] as i64 - 1);
            if let Some(function) = insn.called(at) {
                insn.imm = i32::try_from(distance(function)?).ok()?;
            } else if insn.code == GOTO || insn.is_jump() {
                insn.off = i16::try_from(distance(insn.target(at)?)?).ok()?;
            }
            code.push(insn);
        }
        Some(code)
    }
}

impl Insn {
    fn class(self) -> u8 {
        self.code & 7
    }

    fn dst(self) -> usize {
        (self.regs & 0xf).into()
    }

    fn src(self) -> usize {
        (self.regs >> 4).into()
    }

    /// Bytes of a load or store.
    fn size(self) -> usize {
        match self.code & 0x18 {
            0x10 => 1,
            0x08 => 2,
            0 => 4,
            _ => 8,
        }
    }

    /// Whether it is a conditional jump.
    fn is_jump(self) -> bool {
        matches!(self.class(), JMP | JMP32) && matches!(self.code & 0xf0, 0x10..=0x70 | 0xa0..=0xd0)
    }

    fn target(self, at: usize) -> Option<usize> {
        (at + 1).checked_add_signed(self.off.into())
    }

    /// Where the function of the program is that it calls; if that is nowhere, it is behind the end.
    fn called(self, at: usize) -> Option<usize> {
        let is_call = self.code == CALL && self.src() as u8 == PSEUDO_CALL;
        is_call.then(|| (at + 1).wrapping_add_signed(self.imm as isize))
    }

    /// `to = value` in one instruction.
    fn mov(to: u8, value: u64) -> Option<Self> {
        if let Ok(imm) = i32::try_from(value as i64) {
            Some(Self { code: ALU64 | MOV, regs: to, off: 0, imm })
        } else {
            let imm = u32::try_from(value).ok()? as i32;
            Some(Self { code: ALU32 | MOV, regs: to, off: 0, imm })
        }
    }

    fn is_32_bit(self) -> bool {
        matches!(self.class(), ALU32 | JMP32)
    }

    /// The immediate that means the same as a register of this value.
    fn as_immediate(self, value: Value) -> Option<i32> {
        let Value::Number(value) = value else { return None };
        if self.is_32_bit() { Some(value as i32) } else { i32::try_from(value as i64).ok() }
    }

    /// The second operand.
    fn operand(self, state: &State) -> Option<Value> {
        Some(match self.code & X {
            0 => Value::Number(i64::from(self.imm) as u64),
            _ => *state.get(self.src())?,
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
            Value::Number(b) => b,
            _ if op == 0x80 => 0,
            _ => return Value::Unknown,
        };
        let a = match value {
            Value::Number(a) => a,
            _ if op == MOV => 0,
            _ => return Value::Unknown,
        };
        let result = if self.class() == ALU64 {
            number64(op, a, b)
        } else {
            number32(op, a as u32, b as u32).map(u64::from)
        };
        result.map_or(Value::Unknown, Value::Number)
    }

    /// Whether a conditional jump is taken, if that is known.
    fn decided(self, state: &State) -> Option<bool> {
        let (Value::Number(a), Value::Number(b)) = (*state.get(self.dst())?, self.operand(state)?) else {
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

    /// The registers that it reads and writes: a bit for each.
    fn registers(self) -> (u16, u16) {
        let (to, from) = (1u16 << self.dst(), 1u16 << self.src());
        match self.class() {
            _ if self.code == LD_IMM64 => (0, to),
            _ if self.code == EXIT => (1, 0),
            _ if self.code == CALL => {
                let takes_none = self.regs == 0 && WITHOUT_ARGUMENTS.contains(&self.imm);
                (if takes_none { 0 } else { 0b11_1110 }, 0b11_1111)
            }
            LDX => (from, to),
            ST => (to, 0),
            // R0 is compared by `cmpxchg`.
            STX => (to | from | u16::from(self.code & 0xe0 == 0xc0), 0),
            ALU32 | ALU64 => {
                let second = if self.code & X != 0 { from } else { 0 };
                let first = if self.code & 0xf0 == MOV { 0 } else { to };
                (first | second, to)
            }
            _ if self.is_jump() => (to | if self.code & X != 0 { from } else { 0 }, 0),
            _ => (0, 0),
        }
    }
}

fn number64(op: u8, a: u64, b: u64) -> Option<u64> {
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

fn number32(op: u8, a: u32, b: u32) -> Option<u32> {
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

#[cfg(test)]
#[path = "simplify_tests.rs"]
mod tests;
