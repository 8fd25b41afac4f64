//! Finding per-CPU kernel variables without kallsyms.
//!
//! A kernel built without `CONFIG_KALLSYMS_ALL` names no variable, and eBPF's own per-CPU helpers need the name. But the
//! current task leads to its run queue (`current->se.cfs_rq->rq`), which is this CPU's copy of the per-CPU variable
//! `runqueues`, and the kernel's BTF gives the distance between two per-CPU variables.

use aya_ebpf::{
    helpers::{bpf_get_current_task, bpf_get_smp_processor_id, bpf_probe_read_kernel},
    macros::raw_tracepoint,
    programs::RawTracePointContext,
};

use crate::{globals, maps::CONTROL};

/// Stores the address of this CPU's preempt count in its control block. Run by the agent on each CPU through
/// `BPF_PROG_TEST_RUN`; never attached.
#[raw_tracepoint(tracepoint = "sys_enter")]
pub fn locate_percpu(_ctx: RawTracePointContext) -> i32 {
    let cpu = unsafe { bpf_get_smp_processor_id() } as u32;
    match (CONTROL.get_ptr_mut(cpu), run_queue(cpu)) {
        (Some(control), Some(rq)) => {
            let address = rq.wrapping_add(globals::rq_to_preempt() as u64);
            unsafe { (*control).preempt_count = address };
            0
        }
        _ => -1,
    }
}

/// The address of this CPU's run queue, checked by the CPU number in it.
#[inline(always)]
fn run_queue(cpu: u32) -> Option<u64> {
    if globals::task_cfs_rq() == 0 {
        return None;
    }
    unsafe {
        let task = bpf_get_current_task();
        let cfs_rq: u64 =
            bpf_probe_read_kernel((task + u64::from(globals::task_cfs_rq())) as *const u64).ok()?;
        let rq: u64 = bpf_probe_read_kernel((cfs_rq + u64::from(globals::cfs_rq_rq())) as *const u64).ok()?;
        let owner: u32 = bpf_probe_read_kernel((rq + u64::from(globals::rq_cpu())) as *const u32).ok()?;
        (owner == cpu).then_some(rq)
    }
}
