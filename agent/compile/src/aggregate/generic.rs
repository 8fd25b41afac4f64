//! Programs that count at tracepoints, with the record that the kernel makes for perf as their context.

use agent_ebpf::EventSlot;

use super::Counter;
use crate::filter;
use crate::generic::{begin_flags_at_tracepoint, switch_flags};
use crate::hook::{Hook, HookProgram, OnRefusal};
use bpf::insn::{Alu, Assembler, R0, R1, R4, R6, R7};
use bpf::preemption::Preemption;
use bpf::program::Body;

/// The program for the event `name` of this copying plan; `None` if it would be too long.
pub fn program(
    name: &str,
    slot: &EventSlot,
    filter: Option<&filter::Program>,
    counter: Counter,
) -> Option<HookProgram> {
    let mut code = Assembler::default();
    let out = code.label();
    code.alu(Alu::Mov, R6, R1);
    code.alu(Alu::Mov, R7, R1);
    if filter.is_some() {
        code.ask_filter(Preemption::Off, out);
    }
    code.load_imm(R4, -1);
    if slot.other_tid != 0 {
        code.load(4, R4, R6, slot.other_tid.cast_signed());
    }
    code.count_record(0, begin_flags_at_tracepoint() | switch_flags(slot), out);
    code.bind(out);
    // Any other value would hide the event from other users of the tracepoint (`trace_call_bpf`,
    // kernel/trace/bpf_trace.c).
    code.load_imm(R0, 1);
    code.exit();
    let filter = filter.map_or_else(Vec::new, |filter| filter.code.clone());
    Some(HookProgram {
        name: name.to_owned(),
        body: Body::with_filter(code, filter)?.counting(counter.function),
        hooks: vec![Hook::Tracepoint { id: slot.id }],
        preemption: Preemption::Off,
        sleepable: false,
        on_refusal: OnRefusal::Fail,
    })
}
