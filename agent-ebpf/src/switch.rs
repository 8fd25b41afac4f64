//! Closing the page that is open, so that the agent can store it before it is full.

use agent_ebpf::switched;
use aya_ebpf::{helpers::bpf_get_smp_processor_id, macros::raw_tracepoint, programs::RawTracePointContext};

use crate::{atomic, globals, maps::CONTROL, ring, side};

/// `switch_page`: hands the open page of this CPU to the agent, if it has events. Run by the agent through
/// `BPF_PROG_TEST_RUN` on the CPU that it means, in the kernel's interrupt for that; never attached. So
/// nothing that is recorded pays for it. Gives one of [`switched`].
#[raw_tracepoint(tracepoint = "sys_enter")]
pub fn switch_page(_ctx: RawTracePointContext) -> i32 {
    // SAFETY: the helper takes nothing and gives a number.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let Some(ctl) = CONTROL.get_ptr_mut(cpu, globals::control_len()) else { return switched::DONE };
    // What interrupts have left belongs to the page.
    side::flush(ctl);
    // An interrupt of the agent's can come while a program writes.
    if !ring::take(ctl) {
        return switched::BUSY;
    }
    ring::close_open(ctl);
    // SAFETY: the map's value, of which this is a member.
    atomic::store(unsafe { &raw mut (*ctl).busy }, 0);
    switched::DONE
}
