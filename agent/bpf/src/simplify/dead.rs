//! Removal of what cannot be reached, and of results that nobody uses.

use std::ops::BitOr;

use super::{
    Program,
    decode::{ALU32, JMP, JMP32, LDX, ST, STX},
    stack::Words,
};
use crate::insn::{ALU64, GOTO, Insn};

/// What is used later: a bit for each register, and for each word of the stack that only loads and stores by
/// the frame pointer reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Live {
    pub(super) registers: u16,
    stack: Words,
}

impl BitOr for Live {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self { registers: self.registers | other.registers, stack: self.stack | other.stack }
    }
}

impl Program<'_> {
    /// Lets jumps to jumps go where those go.
    pub(crate) fn thread_jumps(&mut self, used: &[bool]) -> Option<()> {
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

    /// Removes what nobody needs, until there is no more of it.
    pub(crate) fn remove_all_dead(&self, used: &mut [bool]) -> Option<()> {
        while self.remove_dead(used)? {}
        Some(())
    }

    /// Removes instructions whose result nobody uses, and jumps to what comes next anyway. Returns whether
    /// there were some.
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
                0 | LDX | ALU32 | ALU64 => {
                    live[at].registers & 1 << insn.dst() == 0 || insn.is_copy() && insn.dst() == insn.src()
                }
                ST | STX if insn.is_plain_access() => {
                    self.stack.range(at, insn).is_some_and(|range| live[at].stack & range.touched() == 0)
                }
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
            open.extend(self.next(at)?.each());
        }
        Some(reached)
    }

    /// What is used later, after each instruction.
    pub(crate) fn live(&self, used: &[bool]) -> Option<Vec<Live>> {
        let mut before = vec![Live::default(); self.code.len() + 1];
        let mut after = vec![Live::default(); self.code.len()];
        loop {
            let mut changed = false;
            for at in (0..self.code.len()).rev() {
                if self.is_upper_half(at) {
                    continue;
                }
                let insn = self.code[at];
                let (live, now) = if used[at] {
                    let live = self.next(at)?.each().fold(Live::default(), |live, next| {
                        live | before.get(next).copied().unwrap_or_default()
                    });
                    let (mut reads, writes) = insn.registers();
                    if let Some(function) = insn.called(at) {
                        reads &= before.get(function)?.registers;
                    }
                    let registers = live.registers & !writes | reads;
                    let stack = match self.stack.range(at, insn) {
                        Some(range) if insn.class() == LDX => live.stack | range.touched(),
                        Some(range) if insn.is_plain_access() => live.stack & !range.filled(),
                        _ => live.stack,
                    };
                    (live, Live { registers, stack })
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
    pub(crate) fn compact(&self, used: &[bool]) -> Option<Vec<Insn>> {
        let mut positions = Vec::with_capacity(self.code.len() + 1);
        let mut position = 0usize;
        for at in 0..self.code.len() {
            positions.push(position);
            position += usize::from(used[at] || self.is_upper_half(at) && used[at - 1]);
        }
        positions.push(position);
        let mut code = Vec::with_capacity(position);
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
            let distance = |target: usize| Some(*positions.get(target)? as i64 - positions[at] as i64 - 1);
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
