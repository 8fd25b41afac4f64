//! Calls of functions as ftrace's own function tracer records them: `ftrace:function`, with the function and
//! its caller.

use agent_ebpf::begin_flags;

use super::{CompileErrorText, DynamicError, Environment, NotTraced, kernel::KernelFunctions, registers};
use crate::hook::{Hook, HookProgram, OnRefusal};
use crate::plan::{ProbeEvent, ProbePlan};
use bpf::insn::{Alu, Assembler, FP, R0, R1, R2, R3, R4, R6, R7};
use bpf::preemption::Preemption;
use bpf::program::{Body, FRAME};
use ftrace_event::Format;
use kernel::tracefs::Tracefs;
use spec::EventName;

// include/uapi/linux/bpf.h, enum bpf_func_id.
const HELPER_PROBE_READ_KERNEL: i32 = 113;
const HELPER_GET_FUNC_IP: i32 = 173;

/// Where the fields are, on every kernel so far (`struct ftrace_entry`, kernel/trace/trace_entries.h).
const FUNCTION_AT: i16 = 8;
const CALLER_AT: i16 = 16;
/// Bytes of a record. Since 6.16 arguments may follow.
const LEN: u32 = 24;
/// Below the frame: what was read.
const READ: i16 = -FRAME - 8;

/// The calls of all functions that `pattern` means, with one attachment for all of them.
pub fn calls(
    pattern: &str,
    environment: &Environment,
    functions: &KernelFunctions,
    tracefs: &Tracefs,
) -> Result<ProbePlan, DynamicError> {
    if !environment.has_kprobe_multi() {
        return Err(NotTraced::Fprobes.into());
    }
    let name = EventName::new("ftrace", "function");
    let format = tracefs.event_format(&name)?;
    let format = Format::parse(&format.text).map_err(|_| NotTraced::Layout)?;
    let is_at = |field: &str, at: i16| {
        format.field(field).is_some_and(|field| (field.offset, field.size) == (at as u32, 8))
    };
    let stack_pointer = registers::named("sp").filter(|_| registers::SUPPORTED).ok_or(NotTraced::Layout)?;
    if !is_at("ip", FUNCTION_AT) || !is_at("parent_ip", CALLER_AT) {
        return Err(NotTraced::Layout.into());
    }
    let addresses = functions.matching(pattern, tracefs)?.into_iter().map(|(_, address)| address).collect();
    let body = body(stack_pointer.0).ok_or_else(|| CompileErrorText {
        probe: "ftrace:function".to_owned(),
        reason: "a jump in its program leads nowhere".to_owned(),
    })?;
    let program = HookProgram {
        name: "function".to_owned(),
        body,
        hooks: vec![Hook::KernelFunctions { addresses, returns: false }],
        preemption: Preemption::Off,
        sleepable: false,
        on_refusal: OnRefusal::Fail,
    };
    let event = ProbeEvent::Ftrace { name: "function".to_owned(), id: format.id, prints_symbols: true };
    Ok(ProbePlan { events: vec![event], programs: vec![program], slot_flags: 0 })
}

/// R6 is the context, R7 the record.
fn body(stack_pointer: u16) -> Option<Body> {
    let mut code = Assembler::default();
    let out = code.label();
    code.alu(Alu::Mov, R6, R1);
    code.load_imm(R4, -1);
    code.begin_record(0, Preemption::Off.begin_flags() | begin_flags::REGISTERS, LEN, out);
    code.alu(Alu::Mov, R1, R6);
    code.call_helper(HELPER_GET_FUNC_IP);
    code.store(8, R7, FUNCTION_AT, R0);
    // The return address is on top of the stack.
    code.address(R1, FP, READ.into());
    code.load_imm(R2, 8);
    code.load(8, R3, R6, stack_pointer as i16);
    code.call_helper(HELPER_PROBE_READ_KERNEL);
    code.load(8, R1, FP, READ);
    code.store(8, R7, CALLER_AT, R1);
    code.load_imm(R2, LEN.into());
    code.end_record();
    code.bind(out);
    code.load_imm(R0, 0);
    code.exit();
    Body::new(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_can_be_put_together() {
        assert!(body(152).is_some());
    }
}
