//! The generic lane's programs: which one suits an event, and those that are made at the start for records of
//! one length.
//!
//! The kernel hands the record to the program as its context. Loads from there cost next to nothing, where a
//! helper takes longer than the rest of the program does; but they need constant offsets, and the kernel lets
//! a program be attached only to events whose fields reach as far as its furthest load
//! (`perf_event_set_bpf_prog`, kernel/events/core.c). So there is a program for each length, which all events
//! of this length share. Events with dynamic fields have a length of their own each time, and the kernel's
//! records of system calls are laid out in their own way: both take the object's program, which copies with a
//! helper.

use agent_ebpf::{COMPAT_CALL, EventSlot, SIDE_RECORD_MAX, begin_flags, slot_flags};

use super::shape::COMMON_LEN;
use bpf::insn::{Alu, Assembler, Insn, Jump, R0, R1, R2, R4, R6, R7, R9, Reg};
use bpf::load::LoadError;
use bpf::preemption::Preemption;
use bpf::program::Body;
use bpf::relocation::Subprogram;
use ftrace_event::syscalls::COMPAT;
use kernel::version::KernelVersion;

/// The object's program for every event.
pub const ANY: &str = "generic_event";
/// include/uapi/linux/bpf.h, `enum bpf_func_id`.
const GET_ATTACH_COOKIE: i32 = 174;
/// Where a cookie has the event's id; the slot is in the lower half.
const COOKIE_ID_SHIFT: i32 = 32;

/// What a program gets to know of the event that it is attached to.
pub fn cookie(slot: u32, id: u16) -> u64 {
    u64::from(slot) | u64::from(id) << COOKIE_ID_SHIFT
}

/// A program for all events that are alike to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GenericProgram {
    /// `None` for the object's.
    shape: Option<Shape>,
    /// The filter of the events, a function that gets the context.
    filter: Option<Vec<Insn>>,
}

/// What records of one length have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Shape {
    /// Where the last field ends.
    fields_end: u16,
    /// The record's length.
    len: u16,
    /// Where the thread is that the event is about besides the current one; or 0.
    other_tid: u16,
    /// What is said of the events in `slot_flags`, as `begin_flags`.
    flags: u32,
    /// Whether they are of all system calls.
    marks_calls: bool,
}

impl GenericProgram {
    /// The program for the event of this copying plan.
    pub fn of(plan: &EventSlot, filter: Option<&[Insn]>) -> Self {
        let is_plain = plan.dynamic_len == 0
            && plan.flags & (slot_flags::SYSCALL | slot_flags::LAZY_COUNT) == 0
            && u32::from(plan.fields_end) > COMMON_LEN
            && usize::from(plan.fixed_len) <= SIDE_RECORD_MAX;
        let shape = is_plain.then_some(Shape {
            fields_end: plan.fields_end,
            len: plan.fixed_len,
            other_tid: plan.other_tid,
            flags: switch_flags(plan),
            marks_calls: marks_calls(plan),
        });
        Self { shape, filter: filter.map(<[Insn]>::to_vec) }
    }

    /// The one that suits every event, with the same filter; `None` if this is it.
    pub fn without_shape(&self) -> Option<Self> {
        self.shape.map(|_| Self { shape: None, filter: self.filter.clone() })
    }

    /// What tools call it.
    pub fn name(&self) -> String {
        self.shape.map_or_else(|| ANY.to_owned(), |shape| format!("{ANY}_{}", shape.fields_end))
    }

    /// The function that gets the context and says whether the record is wanted.
    pub fn filter(&self) -> Option<&[Insn]> {
        self.filter.as_deref()
    }

    /// The program that is made for it; `None` if it is the object's.
    pub fn body(&self) -> Result<Option<Body>, LoadError> {
        let Some(shape) = self.shape else { return Ok(None) };
        shape.body(self.filter()).map(Some).ok_or(LoadError::Missing("place in a program"))
    }
}

impl Shape {
    /// R6 is the tracepoint's context, R7 the record, R9 the cookie.
    fn body(self, filter: Option<&[Insn]>) -> Option<Body> {
        let mut code = Assembler::default();
        let (open, out) = (code.label(), code.label());
        code.alu(Alu::Mov, R6, R1);
        code.call_helper(GET_ATTACH_COOKIE);
        code.alu(Alu::Mov, R9, R0);
        if filter.is_some() {
            code.alu(Alu::Mov, R1, R6);
            code.call(Subprogram::Filter);
            code.jump_imm(Jump::NotEqual, R0, 0, open);
            slot(&mut code);
            code.call(Subprogram::Reject);
            code.goto(out);
            code.bind(open);
        }
        slot(&mut code);
        code.alu(Alu::Mov, R2, R9);
        code.alu_imm(Alu::Rsh, R2, COOKIE_ID_SHIFT);
        code.alu_imm(Alu::And, R2, u16::MAX.into());
        // The verifier knows these bits, whatever the id.
        code.alu_imm(Alu::Or, R2, (begin_flags_at_tracepoint() | self.flags).cast_signed());
        code.load_imm(R4, -1);
        if self.other_tid != 0 {
            code.load(4, R4, R6, self.other_tid.cast_signed());
        }
        code.take_space(self.len.into(), out);
        copy_fields(&mut code, self.fields_end.into(), self.len.into());
        if self.marks_calls {
            load_call_number(&mut code, R6);
            code.store(8, R7, COMMON_LEN as i16, R0);
        }
        code.load_imm(R2, self.len.into());
        code.end_record();
        code.bind(out);
        // Any other value would hide the event from other users of the tracepoint (`trace_call_bpf`,
        // kernel/trace/bpf_trace.c).
        code.load_imm(R0, 1);
        code.exit();
        Body::with_filter(code, filter.unwrap_or_default().to_vec())
    }
}

/// Gives the slot in R1.
fn slot(code: &mut Assembler) {
    code.alu(Alu::Mov, R1, R9);
    code.alu_imm(Alu::Lsh, R1, COOKIE_ID_SHIFT);
    code.alu_imm(Alu::Rsh, R1, COOKIE_ID_SHIFT);
}

/// What programs at tracepoints tell `fast_begin`: the context leads to the registers of the tracepoint's
/// caller, where stacks begin.
pub(crate) fn begin_flags_at_tracepoint() -> u32 {
    Preemption::Off.begin_flags() | begin_flags::REGISTERS
}

/// Before this version, tracepoints of system calls disable preemption, and ftrace's events of single ones
/// count that as theirs: those of all others leave it out (`tracing_gen_ctx` in `ftrace_syscall_enter`,
/// kernel/trace/trace_syscalls.c).
const CALLS_PREEMPTIBLE_SINCE: KernelVersion = KernelVersion::new(6, 13, 0);

/// What programs tell `fast_begin` of an event of a single system call.
pub fn call_flags() -> u32 {
    let counts = KernelVersion::running().is_some_and(|version| version < CALLS_PREEMPTIBLE_SINCE);
    if counts { begin_flags::PREEMPTIBLE } else { 0 }
}

/// What programs tell `fast_begin` of an event that is a switch of threads: the kernel has interrupts off
/// then (`__schedule`, kernel/sched/core.c).
pub(crate) fn switch_flags(plan: &EventSlot) -> u32 {
    if plan.flags & slot_flags::SWITCH == 0 { 0 } else { begin_flags::SWITCH | begin_flags::IRQS_OFF }
}

// What programs write is what readers look for.
const _: () = assert!(COMPAT_CALL.cast_signed() == COMPAT);

/// Whether the event is one of all system calls, in whose records the numbers of 32-bit ones are marked.
pub(crate) fn marks_calls(plan: &EventSlot) -> bool {
    plan.flags & slot_flags::ANY_SYSCALL != 0
}

/// Gives in R0 the number of the system call of the record at `record`, marked if it is of 32 bits. Takes R1
/// to R5.
pub(crate) fn load_call_number(code: &mut Assembler, record: Reg) {
    let unmarked = code.label();
    code.call(Subprogram::CallMark);
    code.load(8, R1, record, COMMON_LEN as i16);
    code.jump_imm(Jump::Equal, R0, 0, unmarked);
    // The number is an `int`: the mark is in the place of its sign.
    code.load(4, R1, record, COMMON_LEN as i16);
    code.bind(unmarked);
    code.alu(Alu::Or, R0, R1);
}

/// Copies what is after the common fields up to `end` from the context at R6 to the record at R7, and fills
/// it with zeros up to `padded_end`. Takes R1.
pub(crate) fn copy_fields(code: &mut Assembler, end: u32, padded_end: u32) {
    // First, so that a copy which ends inside of a word is written over it.
    for word in (end.max(COMMON_LEN) / 4 * 4..padded_end.next_multiple_of(4)).step_by(4) {
        code.store_imm(4, R7, word as i16, 0);
    }
    let mut at = COMMON_LEN;
    while at < end {
        // The context is aligned to 8 bytes, and a load must be to its own size.
        let size =
            [8, 4, 2, 1].into_iter().find(|size| at.is_multiple_of(*size) && at + size <= end).unwrap_or(1);
        code.load(size, R1, R6, at as i16);
        code.store(size, R7, at as i16, R1);
        at += size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offsets and sizes.
    type Accesses = Vec<(u32, u32)>;

    /// The loads from the context and the stores to the record.
    fn accesses(end: u32, padded_end: u32) -> (Accesses, Accesses) {
        /// Class and mode of the instruction (Documentation/bpf/standardization/instruction-set.rst), and
        /// which register is the base.
        const KIND: u8 = 0xe7;
        const LOAD: u8 = 0x61;
        const STORE: u8 = 0x63;
        const STORE_IMM: u8 = 0x62;
        let mut code = Assembler::default();
        copy_fields(&mut code, end, padded_end);
        let (code, _) = code.finish().unwrap();
        let (mut loads, mut stores) = (Vec::new(), Vec::new());
        for insn in code {
            let size = match insn.code & 0x18 {
                0x00 => 4,
                0x08 => 2,
                0x10 => 1,
                _ => 8,
            };
            let access = (u32::try_from(insn.off).unwrap(), size);
            match insn.code & KIND {
                LOAD => loads.push(access),
                STORE | STORE_IMM => stores.push(access),
                _ => panic!("{insn:?}"),
            }
        }
        (loads, stores)
    }

    #[test]
    fn every_byte_of_the_fields_is_loaded_once_and_none_behind_them() {
        for end in COMMON_LEN + 1..200 {
            for padded_end in [end, end.next_multiple_of(8), end + 20] {
                let (loads, stores) = accesses(end, padded_end);
                let mut at = COMMON_LEN;
                for (offset, size) in &loads {
                    assert_eq!(*offset, at, "{end}");
                    assert!(offset.is_multiple_of(*size), "{end}: {size} bytes at {offset}");
                    at += size;
                }
                assert_eq!(at, end);
                let stored = |byte: u32| stores.iter().any(|(at, size)| (*at..at + size).contains(&byte));
                assert!((COMMON_LEN..padded_end.next_multiple_of(4)).all(stored), "{end} {padded_end}");
                assert!(!stored(padded_end.next_multiple_of(4)), "{end} {padded_end}");
            }
        }
    }

    #[test]
    fn events_of_one_length_share_a_program() {
        let plan = |id, fields_end: u16| EventSlot {
            id,
            fields_end,
            fixed_len: fields_end.next_multiple_of(8),
            copy_len: fields_end.next_multiple_of(8),
            ..EventSlot::default()
        };
        let program = |plan: EventSlot| GenericProgram::of(&plan, None);
        assert_eq!(program(plan(1, 28)), program(plan(2, 28)));
        assert_eq!(program(plan(1, 28)).name(), "generic_event_28");
        // The kernel compares the furthest load with the event's length.
        assert_ne!(program(plan(1, 28)), program(plan(1, 32)));
        let any = program(plan(1, 28)).without_shape();
        for other in [
            EventSlot { dynamic_len: 1, ..plan(1, 28) },
            EventSlot { flags: slot_flags::SYSCALL, ..plan(1, 28) },
            EventSlot { flags: slot_flags::LAZY_COUNT, ..plan(1, 28) },
            plan(1, 8),
            plan(1, 1025),
        ] {
            assert_eq!(Some(program(other)), any, "{other:?}");
            assert_eq!(program(other).without_shape(), None);
        }
    }
}
