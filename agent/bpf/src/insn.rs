//! eBPF instructions and a small assembler with labels
//! (Documentation/bpf/standardization/instruction-set.rst).

use std::collections::BTreeMap;

use aya_obj::generated::bpf_insn;

use super::relocation::{Relocation, Subprogram};
use kernel::btf::TypeId;

/// A register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reg(pub u8);

/// Result of calls.
pub const R0: Reg = Reg(0);
/// First argument of calls; the context at the start.
pub const R1: Reg = Reg(1);
/// The second argument of a call.
pub const R2: Reg = Reg(2);
/// The third argument of a call.
pub const R3: Reg = Reg(3);
/// The fourth argument of a call.
pub const R4: Reg = Reg(4);
/// The fifth argument of a call.
pub const R5: Reg = Reg(5);
/// First register that calls leave alone.
pub const R6: Reg = Reg(6);
/// A register that calls keep.
pub const R7: Reg = Reg(7);
/// A register that calls keep.
pub const R8: Reg = Reg(8);
/// A register that calls keep.
pub const R9: Reg = Reg(9);
/// The frame pointer.
pub const FP: Reg = Reg(10);

/// `struct bpf_insn` (include/uapi/linux/bpf.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Insn {
    /// Class, operation and source or size.
    pub code: u8,
    /// Destination in the low half, source in the high one.
    pub regs: u8,
    /// Jump distance or memory offset.
    pub off: i16,
    /// Immediate.
    pub imm: i32,
}

impl From<Insn> for bpf_insn {
    fn from(Insn { code, regs, off, imm }: Insn) -> Self {
        Self {
            code,
            _bitfield_align_1: [],
            _bitfield_1: Self::new_bitfield_1(regs & 0xf, regs >> 4),
            off,
            imm,
        }
    }
}

impl From<bpf_insn> for Insn {
    fn from(insn: bpf_insn) -> Self {
        Self { code: insn.code, regs: insn.dst_reg() | insn.src_reg() << 4, off: insn.off, imm: insn.imm }
    }
}

const LDX: u8 = 0x61;
const ST: u8 = 0x62;
const STX: u8 = 0x63;
/// An atomic operation on memory; `imm` says which, and 0 is an addition.
const ATOMIC: u8 = 0xc3;
/// Class of arithmetic on 64 bits.
pub const ALU64: u8 = 0x07;
const JMP: u8 = 0x05;
/// The second operand is a register.
pub const X: u8 = 0x08;
/// A call of a helper, a function of the program or of the kernel, as the source register says.
pub const CALL: u8 = 0x85;
/// The end of a function.
pub const EXIT: u8 = 0x95;
/// A jump without a condition.
pub const GOTO: u8 = JMP;
/// Source register of a call to another function of the program.
pub const PSEUDO_CALL: u8 = 1;
/// Source register of a call to a function of the kernel.
const PSEUDO_KFUNC_CALL: u8 = 2;
/// Source register of loads of a map's address.
const PSEUDO_MAP_FD: u8 = 1;
/// The same of loads of the address of a map's only value, to which the second instruction's immediate is
/// added.
pub const PSEUDO_MAP_VALUE: u8 = 2;
/// Loads 64 bits, with the upper half in a second instruction.
pub const LD_IMM64: u8 = 0x18;

/// What the call of a placeholder, a number that no helper has, becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// A call of the same program's function that begins so many instructions after the next one.
    Function(i32),
    /// A call of a function of the kernel.
    Kernel(TypeId),
    /// `R0 = value`.
    Value(i32),
}

/// Whether an instruction calls the placeholder `number`.
pub fn calls_placeholder(instruction: bpf_insn, number: i32) -> bool {
    placeholder(instruction) == Some(number)
}

/// The number that an instruction calls as if it were a helper's; `None` if it is no such call.
pub fn placeholder(instruction: bpf_insn) -> Option<i32> {
    (instruction.code == CALL && instruction.src_reg() == 0).then_some(instruction.imm)
}

/// Where the function of the program is that an instruction at `at` calls; if that is nowhere, it is after
/// the end.
pub fn called(instruction: bpf_insn, at: usize) -> Option<usize> {
    let is_call = instruction.code == CALL && instruction.src_reg() == PSEUDO_CALL;
    is_call.then(|| (at + 1).wrapping_add_signed(instruction.imm as isize))
}

/// Puts something else in the place of a call.
pub fn replace_call(instruction: &mut bpf_insn, by: Replacement) {
    match by {
        Replacement::Function(distance) => {
            instruction.set_src_reg(PSEUDO_CALL);
            instruction.imm = distance;
        }
        Replacement::Kernel(function) => {
            instruction.set_src_reg(PSEUDO_KFUNC_CALL);
            instruction.imm = function.0 as i32;
        }
        Replacement::Value(value) => {
            instruction.code = ALU64 | Alu::Mov as u8;
            instruction.imm = value;
        }
    }
}

/// Lets loads of the addresses of these maps load those of their values.
pub fn load_values_of(maps: &[i32], instructions: &mut [bpf_insn]) {
    for at in 1..instructions.len() {
        if let [.., load, offset] = &mut instructions[..=at]
            && load.code == LD_IMM64
            && load.src_reg() == PSEUDO_MAP_FD
            && maps.contains(&load.imm)
        {
            load.set_src_reg(PSEUDO_MAP_VALUE);
            offset.imm = 0;
        }
    }
}

/// Arithmetic operations on 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alu {
    /// `dst += src`.
    Add = 0x00,
    /// `dst -= src`.
    Sub = 0x10,
    /// `dst *= src`.
    Mul = 0x20,
    /// `dst /= src`, unsigned; 0 where `src` is 0.
    Div = 0x30,
    /// `dst |= src`.
    Or = 0x40,
    /// `dst &= src`.
    And = 0x50,
    /// `dst <<= src`.
    Lsh = 0x60,
    /// `dst >>= src`, with zeros.
    Rsh = 0x70,
    /// `dst = -dst`.
    Neg = 0x80,
    /// `dst %= src`, unsigned; `dst` where `src` is 0.
    Mod = 0x90,
    /// `dst ^= src`.
    Xor = 0xa0,
    /// `dst = src`.
    Mov = 0xb0,
    /// `dst >>= src`, with the sign.
    Arsh = 0xc0,
}

/// Conditions of jumps on 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jump {
    /// Unconditional.
    Always = 0x00,
    /// `dst == src`.
    Equal = 0x10,
    /// `dst > src`, unsigned.
    Greater = 0x20,
    /// `dst >= src`, unsigned.
    GreaterEqual = 0x30,
    /// `dst != src`.
    NotEqual = 0x50,
    /// `dst > src`, signed.
    SignedGreater = 0x60,
    /// `dst >= src`, signed.
    SignedGreaterEqual = 0x70,
    /// `dst < src`, unsigned.
    Less = 0xa0,
    /// `dst <= src`, unsigned.
    LessEqual = 0xb0,
    /// `dst < src`, signed.
    SignedLess = 0xc0,
    /// `dst <= src`, signed.
    SignedLessEqual = 0xd0,
}

/// The size bits of loads and stores.
fn size_bits(size: u32) -> u8 {
    match size {
        1 => 0x10,
        2 => 0x08,
        4 => 0x00,
        _ => 0x18,
    }
}

/// The instructions that are filled in when the program is loaded, and with what.
pub type Relocations = Vec<(usize, Relocation)>;

/// A target of jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// Instructions that are being put together.
#[derive(Clone, Debug, Default)]
pub struct Assembler {
    code: Vec<Insn>,
    /// Where each label is.
    labels: Vec<Option<usize>>,
    /// Jumps, and where they go.
    jumps: Vec<(usize, Label)>,
    /// What is filled in when the program is loaded.
    relocations: Relocations,
}

impl Assembler {
    fn push(&mut self, code: u8, to: Reg, from: Reg, off: i16, imm: i32) {
        self.code.push(Insn { code, regs: to.0 | from.0 << 4, off, imm });
    }

    /// `to = *(size *)(from + off)`, zero extended.
    pub fn load(&mut self, size: u32, to: Reg, from: Reg, off: i16) {
        self.push(LDX | size_bits(size), to, from, off, 0);
    }

    /// `*(size *)(to + off) = from`.
    pub fn store(&mut self, size: u32, to: Reg, off: i16, from: Reg) {
        self.push(STX | size_bits(size), to, from, off, 0);
    }

    /// `*(size *)(to + off) = value`.
    pub fn store_imm(&mut self, size: u32, to: Reg, off: i16, value: i32) {
        self.push(ST | size_bits(size), to, R0, off, value);
    }

    /// `*(u64 *)(to + off) += from`, atomically.
    pub fn atomic_add(&mut self, to: Reg, off: i16, from: Reg) {
        self.push(ATOMIC | size_bits(8), to, from, off, 0);
    }

    /// `to = to op from`.
    pub fn alu(&mut self, op: Alu, to: Reg, from: Reg) {
        self.push(ALU64 | X | op as u8, to, from, 0, 0);
    }

    /// `to = to op value`, the value sign extended.
    pub fn alu_imm(&mut self, op: Alu, to: Reg, value: i32) {
        self.push(ALU64 | op as u8, to, R0, 0, value);
    }

    /// `to = base + offset`.
    pub fn address(&mut self, to: Reg, base: Reg, offset: i32) {
        self.alu(Alu::Mov, to, base);
        self.alu_imm(Alu::Add, to, offset);
    }

    /// `to = value`.
    pub fn load_imm(&mut self, to: Reg, value: i64) {
        if let Ok(short) = i32::try_from(value) {
            return self.alu_imm(Alu::Mov, to, short);
        }
        self.push(LD_IMM64, to, R0, 0, value as i32);
        self.push(0, R0, R0, 0, (value >> 32) as i32);
    }

    /// `to = map`, by its descriptor.
    pub fn load_map(&mut self, to: Reg, map: i32) {
        self.push(LD_IMM64, to, Reg(PSEUDO_MAP_FD), 0, map);
        self.push(0, R0, R0, 0, 0);
    }

    /// A new label, not bound yet.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Binds a label to the next instruction.
    pub fn bind(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    /// Whether a jump goes there. What no jump reaches, the verifier refuses.
    pub fn is_reached(&self, label: Label) -> bool {
        self.jumps.iter().any(|(_, target)| *target == label)
    }

    /// Jumps if `a op b`.
    pub fn jump(&mut self, op: Jump, a: Reg, b: Reg, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.push(JMP | X | op as u8, a, b, 0, 0);
    }

    /// Jumps if `a op value`.
    pub fn jump_imm(&mut self, op: Jump, a: Reg, value: i32, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.push(JMP | op as u8, a, R0, 0, value);
    }

    /// Jumps.
    pub fn goto(&mut self, label: Label) {
        self.jump_imm(Jump::Always, R0, 0, label);
    }

    /// Calls a helper of the kernel.
    pub fn call_helper(&mut self, helper: i32) {
        self.push(CALL, R0, R0, 0, helper);
    }

    /// Calls a function of the kernel by its number in BTF.
    pub fn call_kernel_function(&mut self, id: u32) {
        self.push(CALL, R0, Reg(PSEUDO_KFUNC_CALL), 0, id as i32);
    }

    /// Calls a function that is appended when the program is loaded.
    pub fn call(&mut self, subprogram: Subprogram) {
        self.call_helper(subprogram.placeholder());
    }

    /// `to = value`, which is known when the program is loaded.
    pub fn relocated_imm(&mut self, to: Reg, value: Relocation) {
        self.relocations.push((self.code.len(), value));
        self.alu_imm(Alu::Mov, to, 0);
    }

    /// Calls a function that is appended later; gives the index of the call.
    pub fn call_appended(&mut self) -> usize {
        self.push(CALL, R0, Reg(PSEUDO_CALL), 0, 0);
        self.code.len() - 1
    }

    /// Adds finished instructions, which jump among themselves and to what comes after them.
    pub fn append(&mut self, finished: &[Insn]) {
        self.code.extend_from_slice(finished);
    }

    /// Ends the program with `R0`.
    pub fn exit(&mut self) {
        self.push(EXIT, R0, R0, 0, 0);
    }

    /// As [`Assembler::finish`] for code that leaves nothing for later, without what can never run, which the
    /// verifier refuses, and without jumps to what comes next. Indices of instructions from before are no
    /// longer valid.
    pub fn finish_reachable(mut self) -> Option<Vec<Insn>> {
        let targets: BTreeMap<usize, usize> =
            self.jumps.iter().map(|(at, label)| Some((*at, self.labels[label.0]?))).collect::<Option<_>>()?;
        let mut used = vec![false; self.code.len()];
        let mut open = vec![0];
        while let Some(at) = open.pop() {
            let insn = self.code.get(at)?;
            if std::mem::replace(&mut used[at], true) {
                continue;
            }
            open.extend(targets.get(&at));
            match insn.code {
                GOTO | EXIT => {}
                LD_IMM64 => {
                    *used.get_mut(at + 1)? = true;
                    open.push(at + 2);
                }
                _ => open.push(at + 1),
            }
        }
        // From the end, so that of several jumps in a row all go.
        let mut next = self.code.len();
        for at in (0..self.code.len()).rev() {
            if used[at] && self.code[at].code == GOTO && targets[&at] > at && targets[&at] <= next {
                used[at] = false;
            }
            if used[at] {
                next = at;
            }
        }
        let new_index = |target: usize| used[..target].iter().filter(|used| **used).count();
        for label in self.labels.iter_mut().flatten() {
            *label = new_index(*label);
        }
        let jumps = self.jumps.iter().filter(|(at, _)| used[*at]);
        self.jumps = jumps.map(|(at, label)| (new_index(*at), *label)).collect();
        let mut kept = used.iter();
        self.code.retain(|_| kept.next() == Some(&true));
        self.finish().map(|(code, _)| code)
    }

    /// The instructions, with every jump resolved, and what is left for later. `None` if a label was not
    /// bound or is too far away.
    pub fn finish(mut self) -> Option<(Vec<Insn>, Relocations)> {
        for (at, label) in &self.jumps {
            let target = self.labels[label.0]?;
            self.code[*at].off = i16::try_from(target as i64 - *at as i64 - 1).ok()?;
        }
        Some((self.code, self.relocations))
    }
}
