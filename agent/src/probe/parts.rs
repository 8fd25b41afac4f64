//! Putting code that is written at the start into compiled programs (`agent_ebpf::parts`).

use agent_ebpf::parts;
use aya_obj::generated::bpf_insn;

use super::insn::Insn;

/// A call, and the source register of one of a function of the same program.
const CALL: u8 = 0x85;
const PSEUDO_CALL: u8 = 1;
/// `R0 = imm`.
const MOV_IMM: u8 = 0xb7;

/// What programs ask. Without a part the answer is yes, and the verifier drops the question.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written<'a> {
    /// Of the generic lane: whether the event's record is wanted.
    pub(super) filter: Option<&'a [Insn]>,
    /// Whether the current thread is within the scope of the recording.
    pub(super) scope: Option<&'a [Insn]>,
}

/// A program with its parts behind it.
pub(super) fn join(mut code: Vec<bpf_insn>, written: Written<'_>) -> Vec<bpf_insn> {
    for (number, part) in [(parts::EVENT_FILTER, written.filter), (parts::SCOPE, written.scope)] {
        let end = code.len();
        let mut is_called = false;
        for (at, insn) in code.iter_mut().enumerate() {
            if insn.code != CALL || insn.src_reg() != 0 || insn.imm != number {
                continue;
            }
            if part.is_some() {
                is_called = true;
                insn.set_src_reg(PSEUDO_CALL);
                insn.imm = (end - at - 1) as i32;
            } else {
                (insn.code, insn.imm) = (MOV_IMM, 1);
            }
        }
        if let Some(part) = part.filter(|_| is_called) {
            code.extend(part.iter().map(|&insn| bpf_insn::from(insn)));
        }
    }
    code
}
