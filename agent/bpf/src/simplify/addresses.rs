//! Sums that become the offsets of loads and stores.
//!
//! Compilers know the offsets that are constants of a recording no earlier than the agent sets them, and add
//! them to the address. Only instructions that follow one another without a jump in or out are looked at.

use super::{
    Program, REGISTERS,
    decode::{ALU32, LDX, ST, STX},
};
use crate::insn::{ALU64, Insn, LD_IMM64, X};

/// A register that holds what another one holds, and something on top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Copied {
    from: usize,
    plus: i32,
}

type Copies = [Option<Copied>; REGISTERS];

impl Program<'_> {
    /// Lets what reads a copy of a register read the register, with the copy's sum as part of the offset.
    pub(crate) fn follow_copies(&mut self, used: &[bool]) -> Option<()> {
        let targets = self.targets(used)?;
        let mut copies = Copies::default();
        for at in 0..self.code.len() {
            if targets[at] {
                copies = Copies::default();
            }
            if !used[at] || self.is_upper_half(at) {
                continue;
            }
            let insn = self.code[at].through(&copies);
            self.code[at] = insn;
            copies = insn.copies_behind(copies);
        }
        Some(())
    }

    /// Takes out additions to a register that is used as an address only, and no longer.
    pub(crate) fn fold_sums(&mut self, used: &mut [bool]) -> Option<()> {
        let targets = self.targets(used)?;
        let live = self.live(used)?;
        for at in 0..self.code.len() {
            let insn = self.code[at];
            if !used[at] || self.is_upper_half(at) || !insn.is_sum() {
                continue;
            }
            let register = insn.dst();
            let mut accesses = Vec::new();
            let mut is_over = false;
            for next in at + 1..self.code.len() {
                if targets[next] {
                    break;
                }
                if !used[next] || self.is_upper_half(next) {
                    continue;
                }
                let access = self.code[next];
                let (reads, writes) = access.registers();
                if reads & 1 << register != 0 {
                    let Some(moved) = access.moved(register, insn.imm) else { break };
                    accesses.push((next, moved));
                }
                is_over = writes & 1 << register != 0 || live[next].registers & 1 << register == 0;
                if is_over || !access.goes_on() {
                    break;
                }
            }
            if is_over {
                for (access, moved) in accesses {
                    self.code[access] = moved;
                }
                used[at] = false;
            }
        }
        Some(())
    }
}

impl Insn {
    /// Whether the next instruction is always the one after it, and memory is all that it may ask for.
    fn goes_on(self) -> bool {
        matches!(self.class(), LDX | ST | STX | ALU32 | ALU64)
    }

    /// The register with the address of a load or store.
    fn base(self) -> Option<usize> {
        match self.class() {
            _ if !self.is_plain_access() => None,
            LDX => Some(self.src()),
            _ => Some(self.dst()),
        }
    }

    /// The same access by an address that is `by` lower, if it asks for this register as an address only.
    fn moved(self, register: usize, by: i32) -> Option<Self> {
        let is_value = self.class() == STX && self.src() == register;
        if self.base() != Some(register) || is_value {
            return None;
        }
        let off = i16::try_from(i32::from(self.off).checked_add(by)?).ok()?;
        Some(Self { off, ..self })
    }

    /// The same instruction with the registers that its sources are copies of.
    fn through(self, copies: &Copies) -> Self {
        let mut insn = self;
        if let Some(base) = insn.base()
            && let Some(Some(Copied { from, plus })) = copies.get(base)
            && let Some(off) = i32::from(insn.off).checked_add(*plus).and_then(|off| i16::try_from(off).ok())
        {
            let from = *from as u8;
            insn.regs =
                if insn.class() == LDX { insn.regs & 0xf | from << 4 } else { insn.regs & 0xf0 | from };
            insn.off = off;
        }
        let has_source = insn.class() == STX && insn.is_plain_access()
            || matches!(insn.class(), ALU32 | ALU64) && insn.code & X != 0 && insn.code & 0xf0 != 0xd0;
        if has_source && let Some(Some(Copied { from, plus: 0 })) = copies.get(insn.src()) {
            insn.regs = insn.regs & 0xf | (*from as u8) << 4;
        }
        insn
    }

    /// What is a copy after it.
    fn copies_behind(self, mut copies: Copies) -> Copies {
        if !self.goes_on() && self.code != LD_IMM64 {
            return Copies::default();
        }
        let own = copies.get(self.dst()).copied().flatten();
        let (mut reads_written, mut writes) = (None, self.registers().1);
        if self.is_copy() && self.dst() != self.src() {
            reads_written = Some(Copied { from: self.src(), plus: 0 });
        } else if self.is_sum()
            && let Some(Copied { from, plus }) = own
        {
            reads_written = plus.checked_add(self.imm).map(|plus| Copied { from, plus });
        } else if self.class() == STX && !self.is_plain_access() {
            // What an atomic operation fetches goes to the source, or to R0.
            writes |= 1 << self.src() | 1;
        }
        for (register, copy) in copies.iter_mut().enumerate() {
            if writes & 1 << register != 0 || copy.is_some_and(|copy| writes & 1 << copy.from != 0) {
                *copy = None;
            }
        }
        if let (Some(copied), Some(slot)) = (reads_written, copies.get_mut(self.dst())) {
            *slot = Some(copied);
        }
        copies
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insn::Alu;

    const fn insn(code: u8, regs: u8, off: i16, imm: i32) -> Insn {
        Insn { code, regs, off, imm }
    }

    #[test]
    fn offsets_go_into_loads_and_stores() {
        let (copy, add) = (ALU64 | X | Alu::Mov as u8, ALU64 | Alu::Add as u8);
        let exit = insn(0x95, 0, 0, 0);
        let simple = |code: &[Insn]| Program::new(code.to_vec(), &Vec::new()).simplify().unwrap();
        // r2 = r1; r2 += 1264; r0 = *(r2 + 4); and r1 += 16; r1 = *r1
        let code = [insn(copy, 0x12, 0, 0), insn(add, 2, 0, 1264), insn(0x61, 0x20, 4, 0), exit];
        assert_eq!(simple(&code), [insn(0x61, 0x10, 1268, 0), exit]);
        let code = [insn(add, 1, 0, 16), insn(0x61, 0x10, 4, 0), exit];
        assert_eq!(simple(&code), [insn(0x61, 0x10, 20, 0), exit]);
        // The sum is a value, too; the offset is too large; the register is changed in between.
        let kept = [
            vec![insn(add, 1, 0, 16), insn(0x7b, 0x11, 0, 0), insn(copy, 0x10, 0, 0), exit],
            vec![insn(add, 1, 0, 32768), insn(0x61, 0x10, 0, 0), exit],
        ];
        for code in kept {
            assert_eq!(simple(&code), code);
        }
        let code = [
            insn(copy, 0x12, 0, 0),
            insn(0x79, 0x11, 0, 0),
            insn(0x79, 0x20, 0, 0),
            insn(0x7b, 0x01, 0, 0),
            exit,
        ];
        assert_eq!(simple(&code), code);
    }
}
