//! Putting code that is written at the start into compiled programs (`agent_ebpf::parts`).

use agent_ebpf::parts;
use aya_obj::generated::bpf_insn;

use super::{
    insn::{Insn, Replacement, calls_placeholder, replace_call},
    simplify::{Constants, simplify},
};

/// What programs ask. Without a part the answer is yes, and the verifier drops the question.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written<'a> {
    /// Of the generic lane: whether the event's record is wanted.
    pub(crate) filter: Option<&'a [Insn]>,
    /// Whether the current thread is within the scope of the recording.
    pub(crate) scope: Option<&'a [Insn]>,
}

/// A program with its parts after it, as simple as the constants make it.
pub(crate) fn join(mut code: Vec<bpf_insn>, written: Written<'_>, constants: &Constants) -> Vec<bpf_insn> {
    for (number, part) in [(parts::EVENT_FILTER, written.filter), (parts::SCOPE, written.scope)] {
        let end = code.len();
        let mut is_called = false;
        for (at, call) in code.iter_mut().enumerate().filter(|(_, insn)| calls_placeholder(**insn, number)) {
            is_called = true;
            let by = part.map_or(Replacement::Value(1), |_| Replacement::Function((end - at - 1) as i32));
            replace_call(call, by);
        }
        if let Some(part) = part.filter(|_| is_called) {
            code.extend(part.iter().map(|&insn| bpf_insn::from(insn)));
        }
    }
    simplify(code, constants)
}
