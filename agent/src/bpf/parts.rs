//! Putting code that is written at the start into compiled programs (`agent_ebpf::parts`).

use agent_ebpf::parts;
use aya_obj::generated::bpf_insn;

use super::{
    insn::{Insn, Replacement, calls_placeholder, replace_call},
    simplify::{Constants, simplify},
};

/// A program with its filter after it, if it asks for one, as simple as the constants make it. Without a
/// filter the answer is yes, and the verifier drops the question.
pub(crate) fn join(mut code: Vec<bpf_insn>, filter: Option<&[Insn]>, constants: &Constants) -> Vec<bpf_insn> {
    let end = code.len();
    let mut is_called = false;
    let calls = |(_, insn): &(usize, &mut bpf_insn)| calls_placeholder(**insn, parts::EVENT_FILTER);
    for (at, call) in code.iter_mut().enumerate().filter(calls) {
        is_called = true;
        let by = filter.map_or(Replacement::Value(1), |_| Replacement::Function((end - at - 1) as i32));
        replace_call(call, by);
    }
    if let Some(filter) = filter.filter(|_| is_called) {
        code.extend(filter.iter().map(|&insn| bpf_insn::from(insn)));
    }
    simplify(code, constants)
}
