//! The generic lane of events with contexts: a program for each, made at the start.
//!
//! The record is that of the tracepoint's context up to its last field, then the contexts, then what the
//! kernel has as dynamic data; the words that tell where that is are moved as far as the contexts reach. Of a
//! system call the kernel has no dynamic data here: the program copies its strings behind the contexts.

use agent_ebpf::{EventSlot, SIDE_RECORD_MAX, slot_flags, with_strings_max};

use super::{ContextLayout, SCRATCH};
use crate::fast::Call;
use crate::filter;
use crate::generic::{
    begin_flags_at_tracepoint, call_flags, copy_fields, load_call_number, marks_calls, switch_flags,
};
use crate::hook::{Hook, HookProgram, OnRefusal};
use crate::shape::COMMON_LEN;
use bpf::insn::{Alu, Assembler, FP, Jump, Label, R0, R1, R2, R3, R4, R5, R6, R7, R8};
use bpf::preemption::Preemption;
use bpf::program::{Body, FRAME};
use bpf::relocation::Subprogram;
use spec::StringLimit;

/// include/uapi/linux/bpf.h, enum bpf_func_id.
const PROBE_READ_KERNEL: i32 = 113;

/// The fixed fields alone are more than a program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its record has {0} bytes with the contexts, and a program writes at most {SIDE_RECORD_MAX}")]
pub struct TooLong(u32);

/// Strings that a program copies: those of a system call.
#[derive(Clone, Copy, Debug)]
pub struct Strings {
    /// The call's number.
    nr: u32,
    /// Where its location words begin.
    words: u16,
    /// How long a copy is at most.
    limit: u32,
}

impl Strings {
    /// Those of this call; `None` if it has none.
    pub fn of(call: Call, limit: StringLimit) -> Option<Self> {
        call.strings().map(|(nr, words)| Self { nr, words, limit: limit.bytes() })
    }
}

/// The program for the event `name` of this copying plan, with contexts, a filter and strings.
///
/// # Errors
/// The record is too long.
pub fn program(
    name: &str,
    slot: &EventSlot,
    contexts: &ContextLayout,
    filter: Option<&filter::Program>,
    strings: Option<Strings>,
) -> Result<HookProgram, TooLong> {
    let max = match strings {
        Some(strings) => with_strings_max(contexts.end, strings.limit).next_multiple_of(4),
        None if slot.dynamic_len == 0 => contexts.end.next_multiple_of(4),
        None => SIDE_RECORD_MAX as u32,
    };
    let least = max.max(contexts.end);
    if least > SIDE_RECORD_MAX as u32 {
        return Err(TooLong(least));
    }
    let mut writer = Writer { code: Assembler::default(), slot, contexts, strings };
    writer.program(max, filter.is_some());
    let filter = filter.map_or_else(Vec::new, |filter| filter.code.clone());
    let body = Body::with_filter(writer.code, filter).ok_or(TooLong(contexts.end))?;
    Ok(HookProgram {
        name: name.to_owned(),
        body,
        hooks: vec![Hook::Tracepoint { id: slot.id }],
        preemption: Preemption::Off,
        sleepable: false,
        on_refusal: OnRefusal::Fail,
    })
}

/// R6 is the tracepoint's context, R7 the record, R8 the length of its dynamic data.
struct Writer<'a> {
    code: Assembler,
    slot: &'a EventSlot,
    contexts: &'a ContextLayout,
    strings: Option<Strings>,
}

impl Writer<'_> {
    pub(crate) fn program(&mut self, max: u32, filtered: bool) {
        let (failed, finish, out) = (self.code.label(), self.code.label(), self.code.label());
        self.code.alu(Alu::Mov, R6, R1);
        if self.strings.is_some() {
            self.code.call(Subprogram::DropStrings);
            self.code.alu(Alu::Mov, R1, R6);
        }
        if filtered {
            self.code.ask_filter(Preemption::Off, out);
        }
        let is_call = self.slot.flags & slot_flags::SYSCALL != 0;
        let of_call = if is_call { call_flags() } else { 0 };
        let flags = begin_flags_at_tracepoint() | switch_flags(self.slot) | of_call;
        self.code.load_imm(R4, -1);
        if self.slot.other_tid != 0 {
            self.code.load(4, R4, R6, self.slot.other_tid.cast_signed());
        }
        self.code.begin_record(0, flags, max, out);
        self.fixed();
        self.contexts.write(&mut self.code, -FRAME - SCRATCH, u32::from(of_call != 0));
        if let Some(Strings { nr, words, .. }) = self.strings {
            self.code.alu(Alu::Mov, R1, R7);
            self.code.load_imm(R2, nr.into());
            self.code.load_imm(R3, (self.contexts.end << 16 | u32::from(words)).into());
            self.code.load_imm(R4, max.into());
            self.code.address(R5, FP, -i32::from(FRAME));
            self.code.call(Subprogram::Strings);
            self.code.alu(Alu::Mov, R2, R0);
        } else if self.slot.dynamic_len == 0 {
            self.code.load_imm(R2, max.into());
        } else {
            self.dynamic(max, failed);
            self.code.address(R2, R8, self.contexts.end.cast_signed());
        }
        self.code.goto(finish);
        self.code.bind(failed);
        self.code.load_imm(R2, 0);
        self.code.bind(finish);
        self.code.end_record();
        self.code.bind(out);
        // Any other value would hide the event from other users of the tracepoint (`trace_call_bpf`,
        // kernel/trace/bpf_trace.c).
        self.code.load_imm(R0, 1);
        self.code.exit();
    }

    /// The fields of the event up to where dynamic data begins, with zeros for what the context does not
    /// hold, and up to the contexts' end.
    fn fixed(&mut self) {
        let copied = self.slot.fields_end.min(self.slot.copy_len).into();
        copy_fields(&mut self.code, copied, self.contexts.end);
        if self.slot.flags & slot_flags::SYSCALL != 0 && copied >= COMMON_LEN + 8 {
            self.code.store_imm(4, R7, COMMON_LEN as i16 + 4, 0);
        }
        if marks_calls(self.slot) {
            load_call_number(&mut self.code, R6);
            self.code.store(8, R7, COMMON_LEN as i16, R0);
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
            self.code.bind(nearer);
        }
        self.code.alu_imm(Alu::Sub, R8, fields_end);
        self.code.jump_imm(Jump::Greater, R8, (max - self.contexts.end).cast_signed(), failed);
        self.code.address(R1, R7, self.contexts.end.cast_signed());
        self.code.alu(Alu::Mov, R2, R8);
        self.code.address(R3, R6, fields_end);
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
}
