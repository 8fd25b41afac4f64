//! What the parts of an instruction mean (Documentation/bpf/standardization/instruction-set.rst).

use crate::insn::{ALU64, Alu, CALL, EXIT, GOTO, Insn, LD_IMM64, X, called};

// Classes of instructions.
pub(crate) const LDX: u8 = 1;
pub(crate) const ST: u8 = 2;
pub(crate) const STX: u8 = 3;
pub(crate) const ALU32: u8 = 4;
pub(crate) const JMP: u8 = 5;
pub(crate) const JMP32: u8 = 6;
pub(crate) const MOV: u8 = Alu::Mov as u8;
pub(crate) const PSEUDO_FUNC: u8 = 4;
/// Helpers without arguments: `ktime_get_ns`, `get_smp_processor_id`, `get_current_pid_tgid`,
/// `get_current_uid_gid`, `get_current_task`, `ktime_get_boot_ns`, `get_current_task_btf`,
/// `ktime_get_coarse_ns`, `ktime_get_tai_ns` (include/uapi/linux/bpf.h).
const WITHOUT_ARGUMENTS: [i32; 9] = [5, 8, 14, 15, 35, 125, 158, 160, 208];

impl Insn {
    /// An instruction that does nothing, which removal of dead code takes out.
    pub const NOTHING: Self = Self { code: GOTO, regs: 0, off: 0, imm: 0 };

    /// Whether it loads or stores through a plain address.
    pub fn is_plain_access(self) -> bool {
        matches!(self.class(), LDX | ST | STX) && matches!(self.code & 0xe0, 0x60 | 0x80)
    }

    /// `to += imm`, all 64 bits.
    pub fn is_sum(self) -> bool {
        self.code == ALU64 | Alu::Add as u8
    }

    /// `to = from`, all 64 bits.
    pub fn is_copy(self) -> bool {
        self.code == ALU64 | X | MOV && self.off == 0
    }

    /// The class: the low three bits of the operation.
    pub fn class(self) -> u8 {
        self.code & 7
    }

    /// The number of the destination register.
    pub fn dst(self) -> usize {
        (self.regs & 0xf).into()
    }

    /// The number of the source register.
    pub fn src(self) -> usize {
        (self.regs >> 4).into()
    }

    /// Bytes of a load or store.
    pub fn size(self) -> usize {
        match self.code & 0x18 {
            0x10 => 1,
            0x08 => 2,
            0 => 4,
            _ => 8,
        }
    }

    /// Whether it is a conditional jump.
    pub fn is_jump(self) -> bool {
        matches!(self.class(), JMP | JMP32) && matches!(self.code & 0xf0, 0x10..=0x70 | 0xa0..=0xd0)
    }

    /// The index of the instruction that a jump at index `at` goes to, if this is one.
    pub fn target(self, at: usize) -> Option<usize> {
        (at + 1).checked_add_signed(self.off.into())
    }

    /// Where the function of the program is that it calls; if that is nowhere, it is after the end.
    pub fn called(self, at: usize) -> Option<usize> {
        called(self.into(), at)
    }

    /// `to = value` in one instruction.
    pub fn mov(to: u8, value: u64) -> Option<Self> {
        if let Ok(imm) = i32::try_from(value as i64) {
            Some(Self { code: ALU64 | MOV, regs: to, off: 0, imm })
        } else {
            let imm = u32::try_from(value).ok()? as i32;
            Some(Self { code: ALU32 | MOV, regs: to, off: 0, imm })
        }
    }

    /// Whether it computes with the low 32 bits only.
    pub fn is_32_bit(self) -> bool {
        matches!(self.class(), ALU32 | JMP32)
    }

    /// The registers that it reads and writes: a bit for each.
    pub fn registers(self) -> (u16, u16) {
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
