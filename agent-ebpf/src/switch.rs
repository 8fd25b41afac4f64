//! Closing the page that is open, so that the agent can store it before it is full.

use agent_ebpf::{CpuControl, switched};
use aya_ebpf::{helpers::bpf_get_smp_processor_id, macros::raw_tracepoint, programs::RawTracePointContext};

use crate::{atomic, diagnose, globals, maps::CONTROL, owned, parts, ring, side};

/// `switch_page`: hands the open page of this CPU to the agent, if it has events, and what interrupts have
/// left in the side queue before it. Run by the agent through `BPF_PROG_TEST_RUN` on the CPU that it means:
/// in the kernel's interrupt for that, or directly if the agent runs there. Never attached, so nothing that
/// is recorded pays for it. Gives one of [`switched`].
#[raw_tracepoint(tracepoint = "sys_enter")]
pub fn switch_page(ctx: RawTracePointContext) -> i32 {
    // Once the gate is closed for good, what is left is for the agent, which may be at it on another CPU.
    close_page(&ctx, |_| ()).unwrap_or(switched::DONE)
}

/// Hands the open page of this CPU to the agent, with what is in the side queue, and calls `then` before
/// another event can follow, with the control block. The context has the number of the set of rings. Gives
/// one of [`switched`], of which only [`switched::DONE`] has done so; `None` if the CPU's gate is closed,
/// but not for a pause.
#[inline(always)]
pub fn close_page(ctx: &RawTracePointContext, then: impl FnOnce(*mut CpuControl)) -> Option<i32> {
    // SAFETY: the helper takes nothing and gives a number.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let set = if globals::ring_sets() == 0 { 0 } else { ctx.arg::<u64>(0) as u32 };
    let ctl = CONTROL.get_ptr_mut(owned::set_row(cpu, set), globals::control_len())?;
    // SAFETY: the map's value, of which these are members.
    let (enabled, paused) = unsafe { (&raw const (*ctl).enabled, &raw const (*ctl).paused) };
    // At once: with a branch for each the verifier would walk through the rest twice.
    if atomic::load(enabled) | atomic::load(paused) == 0 {
        return None;
    }
    parts::flush(ring::row_of(ctl));
    // An interrupt of the agent's can come while a program writes.
    if !ring::take(ctl) {
        diagnose::page_switched(cpu, 0, switched::BUSY);
        return Some(switched::BUSY);
    }
    let has_more = !side::is_empty(ctl);
    // SAFETY: the map's value, of which this is a member; the caller has the flag of the writer.
    let used = unsafe { (*ctl).offset };
    if !has_more {
        ring::close_open(ctl);
        then(ctl);
    }
    ring::give_up(ctl);
    let outcome = if has_more { switched::MORE } else { switched::DONE };
    diagnose::page_switched(cpu, used, outcome);
    Some(outcome)
}
