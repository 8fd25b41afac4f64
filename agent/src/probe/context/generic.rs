//! The generic lane of events with contexts: a program for each, made at the start.
//!
//! The record is that of the tracepoint's context up to its last field, then the contexts, then what the kernel has as dynamic data; the
//! words that tell where that is are moved as far as the contexts reach.

use agent_ebpf::{EventSlot, SIDE_RECORD_MAX, begin_flags, slot_flags};

use super::{Placed, SCRATCH};
use crate::probe::{
    filter,
    hook::{Hook, HookProgram, Preemption},
    insn::{Alu, Assembler, FP, Jump, Label, R0, R1, R2, R3, R4, R5, R6, R7, R8},
    program::{Body, FRAME, Part, Relocation},
    shape::COMMON_LEN,
};

/// include/uapi/linux/bpf.h, enum bpf_func_id.
const PROBE_READ_KERNEL: i32 = 113;

/// The fixed fields alone are more than a program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its record has {0} bytes with the contexts, and a program writes {SIDE_RECORD_MAX} at most")]
pub struct TooLong(u32);

/// The program for the event `name` of this copying plan, with contexts and a filter.
pub(crate) fn program(
    name: &str,
    slot: &EventSlot,
    contexts: &Placed,
    filter: Option<&filter::Program>,
) -> Result<HookProgram, TooLong> {
    let max = if slot.dynamic_len == 0 { contexts.end.next_multiple_of(4) } else { SIDE_RECORD_MAX as u32 };
    if contexts.end > SIDE_RECORD_MAX as u32 {
        return Err(TooLong(contexts.end));
    }
    let mut writer = Writer { code: Assembler::default(), slot, contexts };
    writer.program(max, filter.is_some());
    let filter = filter.map_or_else(Vec::new, |filter| filter.code.clone());
    let body = Body::with_filter(writer.code, filter).ok_or(TooLong(contexts.end))?;
    Ok(HookProgram {
        name: name.to_owned(),
        body,
        hooks: vec![Hook::Tracepoint { id: slot.id }],
        preemption: Preemption::Off,
        sleepable: false,
        optional: false,
    })
}

/// R6 is the tracepoint's context, R7 the record, R8 the length of its dynamic data.
struct Writer<'a> {
    code: Assembler,
    slot: &'a EventSlot,
    contexts: &'a Placed,
}

impl Writer<'_> {
    fn program(&mut self, max: u32, filtered: bool) {
        let (failed, finish, out) = (self.code.label(), self.code.label(), self.code.label());
        self.code.alu(Alu::Mov, R6, R1);
        if filtered {
            let open = self.code.label();
            self.code.call(Part::Filter);
            self.code.jump_imm(Jump::NotEqual, R0, 0, open);
            self.code.relocated_imm(R1, Relocation::Slot(0));
            self.code.call(Part::Reject);
            self.code.goto(out);
            self.code.place(open);
        }
        let flags = Preemption::Off.begin_flags() | begin_flags::REGISTERS;
        self.code.load_imm(R4, -1);
        if self.slot.other_tid != 0 {
            self.code.load(4, R4, R6, self.slot.other_tid.cast_signed());
        }
        self.code.relocated_imm(R1, Relocation::Slot(0));
        self.code.relocated_imm(R2, Relocation::Id(0, flags));
        self.code.load_imm(R3, max.into());
        self.stack_address(R5, -FRAME);
        self.code.call(Part::Begin);
        self.code.jump_imm(Jump::Equal, R0, 0, out);
        self.code.alu(Alu::Mov, R7, R0);
        self.fixed(failed);
        self.contexts.write(&mut self.code, -FRAME - SCRATCH);
        if self.slot.dynamic_len == 0 {
            self.code.load_imm(R2, max.into());
        } else {
            self.dynamic(max, failed);
            self.code.alu(Alu::Mov, R2, R8);
            self.code.alu_imm(Alu::Add, R2, self.contexts.end.cast_signed());
        }
        self.code.goto(finish);
        self.code.place(failed);
        self.code.load_imm(R2, 0);
        self.code.place(finish);
        self.stack_address(R1, -FRAME);
        self.code.alu(Alu::Mov, R3, R6);
        self.code.call(Part::End);
        self.code.place(out);
        // Any other value would hide the event from other users of the tracepoint (`trace_call_bpf`, kernel/trace/bpf_trace.c).
        self.code.load_imm(R0, 1);
        self.code.exit();
    }

    /// The fields of the event up to where dynamic data begins, with zeros for what the context does not hold, and up to the contexts' end.
    fn fixed(&mut self, failed: Label) {
        let end = u32::from(self.slot.fields_end);
        let copied = end.min(self.slot.copy_len.into());
        let mut at = copied.max(COMMON_LEN);
        // First, so that a copy which ends inside of a word is written over it.
        let zeros_from = at / 4 * 4;
        for word in (zeros_from..self.contexts.end.next_multiple_of(4)).step_by(4) {
            self.code.store_imm(4, R7, word as i16, 0);
        }
        if copied > COMMON_LEN {
            self.code.alu(Alu::Mov, R1, R7);
            self.code.alu_imm(Alu::Add, R1, COMMON_LEN.cast_signed());
            self.code.load_imm(R2, (copied - COMMON_LEN).into());
            self.code.alu(Alu::Mov, R3, R6);
            self.code.alu_imm(Alu::Add, R3, COMMON_LEN.cast_signed());
            self.code.call_helper(PROBE_READ_KERNEL);
            self.code.jump_imm(Jump::NotEqual, R0, 0, failed);
        }
        if self.slot.flags & slot_flags::SYSCALL != 0 && copied >= COMMON_LEN + 8 {
            at = COMMON_LEN + 4;
            self.code.store_imm(4, R7, at as i16, 0);
        }
    }

    /// Copies the dynamic data, and moves the words that tell of it.
    fn dynamic(&mut self, max: u32, failed: Label) {
        let fields_end = i32::from(self.slot.fields_end);
        self.code.load_imm(R8, fields_end.into());
        let fields = &self.slot.dynamic[..usize::from(self.slot.dynamic_len).min(self.slot.dynamic.len())];
        for field in fields {
            let nearer = self.code.label();
            self.code.load(4, R1, R7, field.offset.cast_signed());
            self.code.alu(Alu::Mov, R2, R1);
            self.code.alu_imm(Alu::Rsh, R2, 16);
            self.code.alu_imm(Alu::And, R1, 0xffff);
            self.code.alu(Alu::Add, R1, R2);
            self.code.alu_imm(Alu::Add, R1, field.base.into());
            self.code.jump(Jump::LessEqual, R1, R8, nearer);
            self.code.alu(Alu::Mov, R8, R1);
            self.code.place(nearer);
        }
        self.code.alu_imm(Alu::Sub, R8, fields_end);
        self.code.jump_imm(Jump::Greater, R8, (max - self.contexts.end).cast_signed(), failed);
        self.code.alu(Alu::Mov, R1, R7);
        self.code.alu_imm(Alu::Add, R1, self.contexts.end.cast_signed());
        self.code.alu(Alu::Mov, R2, R8);
        self.code.alu(Alu::Mov, R3, R6);
        self.code.alu_imm(Alu::Add, R3, fields_end);
        self.code.call_helper(PROBE_READ_KERNEL);
        self.code.jump_imm(Jump::NotEqual, R0, 0, failed);
        let moved = self.contexts.end.cast_signed() - fields_end;
        for field in fields {
            let at = field.offset.cast_signed();
            self.code.load(4, R1, R7, at);
            self.code.alu_imm(Alu::Add, R1, moved);
            self.code.store(4, R7, at, R1);
        }
    }

    fn stack_address(&mut self, to: crate::probe::insn::Reg, offset: i16) {
        self.code.alu(Alu::Mov, to, FP);
        self.code.alu_imm(Alu::Add, to, offset.into());
    }
}
