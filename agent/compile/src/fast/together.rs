//! Programs of many events.
//!
//! What the verifier has to do for an event's program is nearly all for what every program of the fast lane
//! has in common: finding the ring, taking space, giving the record away. Where a recording has hundreds of
//! events, a program for thirty of them at a time is there in a tenth of the time. It is put on each of their
//! raw tracepoints with a cookie that says which event it is, for which it pays some 25 instructions.
//!
//! The kernel does not let a program interrupt itself (`__bpf_trace_run`, kernel/trace/bpf_trace.c), so an
//! event that interrupts another one of the same program is skipped, and counted. Hence few events take part,
//! those that hardly ever interrupt one another, and only where a recording has many of them.

use bpf::insn::{Alu, Assembler, Insn, Jump, Label, R0, R1, R2, R4, R6, R9};
use bpf::program::Body;
use kernel::version::KernelVersion;

/// From here on raw tracepoints have cookies.
pub(super) const SINCE: KernelVersion = KernelVersion::new(6, 10, 0);

/// `bpf_get_attach_cookie` (include/uapi/linux/bpf.h, enum bpf_func_id).
const HELPER_GET_ATTACH_COOKIE: i32 = 174;

// Parts of a cookie, from the lowest bits on: the event's slot, its id, which of the events it is.
const ID_SHIFT: i32 = 32;
const INDEX_SHIFT: i32 = 48;

/// What of an event's program makes its record.
#[derive(Clone, Debug)]
pub struct Fragment {
    /// With the program's context in R6 and the record at R7; its length, or 0, is in R2 after it.
    pub code: Vec<Insn>,
    /// The most bytes that the record has.
    pub max: u32,
    /// How many arguments the tracepoint has. A program is put only where there are as many as it looks at.
    pub arguments: usize,
}

/// The cookie of the event that is at `index` in its program.
pub fn cookie(index: u16, slot: u32, id: u16) -> u64 {
    u64::from(index) << INDEX_SHIFT | u64::from(id) << ID_SHIFT | u64::from(slot)
}

/// A program for these events; `None` if it gets too long.
pub fn program(fragments: &[&Fragment]) -> Option<Body> {
    let mut code = Assembler::default();
    let (finish, done) = (code.label(), code.label());
    let max = fragments.iter().map(|fragment| fragment.max).max()?;
    code.alu(Alu::Mov, R6, R1);
    code.call_helper(HELPER_GET_ATTACH_COOKIE);
    code.alu(Alu::Mov, R9, R0);
    code.alu(Alu::Mov, R1, R0);
    code.alu_imm(Alu::Lsh, R1, 64 - ID_SHIFT);
    code.alu_imm(Alu::Rsh, R1, 64 - ID_SHIFT);
    code.alu(Alu::Mov, R2, R0);
    code.alu_imm(Alu::Lsh, R2, 64 - INDEX_SHIFT);
    code.alu_imm(Alu::Rsh, R2, 64 - INDEX_SHIFT + ID_SHIFT);
    code.load_imm(R4, -1);
    code.take_space(max, done);
    code.alu_imm(Alu::Rsh, R9, INDEX_SHIFT);
    let labels: Vec<Label> = fragments.iter().map(|_| code.label()).collect();
    choose(&mut code, &labels, 0);
    for (fragment, label) in fragments.iter().zip(labels) {
        code.bind(label);
        code.append(&fragment.code);
        code.goto(finish);
    }
    code.bind(finish);
    code.end_record();
    code.bind(done);
    code.load_imm(R0, 0);
    code.exit();
    Body::new(code)
}

/// Goes to the label that is at R9, less `first`.
fn choose(code: &mut Assembler, labels: &[Label], first: i32) {
    match labels {
        [] => {}
        [label] => code.goto(*label),
        _ => {
            let (low, high) = labels.split_at(labels.len() / 2);
            let upper = code.label();
            let middle = first + low.len() as i32;
            code.jump_imm(Jump::GreaterEqual, R9, middle, upper);
            choose(code, low, first);
            code.bind(upper);
            choose(code, high, middle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bpf::load::LoadError;
    use bpf::parts::Parts;

    fn fragment(length: i64) -> Fragment {
        let mut code = Assembler::default();
        code.load_imm(R2, length);
        Fragment { code: code.finish().unwrap().0, max: length as u32, arguments: 1 }
    }

    #[test]
    fn each_event_is_reached_by_its_index() -> Result<(), LoadError> {
        let fragments: Vec<Fragment> = (0..5).map(|length| fragment(100 + length)).collect();
        let body = program(&fragments.iter().collect::<Vec<_>>()).unwrap();
        let code: Vec<Insn> =
            body.link(&[], &Parts::default())?.instructions.into_iter().map(Insn::from).collect();
        // Room for the longest is asked for, whichever it will be.
        assert!(code.iter().any(|insn| insn.imm == 104 && insn.regs == 3));
        let first = code.iter().position(|insn| insn.imm == INDEX_SHIFT && insn.regs == 9).unwrap() + 1;
        for index in 0..5 {
            let mut at = first;
            let length = loop {
                let insn = code[at];
                let jumps = insn.code == 0x05 || insn.code == 0x35 && index >= insn.imm;
                at = (at + 1).checked_add_signed(if jumps { insn.off.into() } else { 0 }).unwrap();
                if insn.code == 0xb7 && insn.regs == 2 {
                    break insn.imm;
                }
            };
            assert_eq!(length, 100 + index);
        }
        Ok(())
    }

    #[test]
    fn a_cookie_has_what_the_program_takes_from_it() {
        assert_eq!(cookie(3, 0x1234_5678, 0xabcd), 0x0003_abcd_1234_5678);
    }
}
