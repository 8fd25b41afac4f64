//! Finding per-CPU kernel variables without kallsyms.
//!
//! A kernel built without `CONFIG_KALLSYMS_ALL` names no variable, and eBPF's own per-CPU helpers need the
//! name. But the current task leads to its run queue (`current->se.cfs_rq->rq`), which is this CPU's copy of
//! the per-CPU variable `runqueues`, and the kernel's BTF gives the distance between two per-CPU variables.

use agent_ebpf::CpuControl;
use aya_ebpf::helpers::{bpf_get_current_task, bpf_probe_read_kernel};

use crate::globals;

/// The address of this CPU's preempt count, or 0. The first event on a CPU finds it, so that a CPU may come
/// online at any time.
#[inline(always)]
pub fn preempt_count(ctl: *mut CpuControl) -> u64 {
    let known = unsafe { (*ctl).preempt_count };
    if known != 0 || globals::task_cfs_rq() == 0 {
        return known;
    }
    locate(ctl)
}

/// Looks for the preempt count and notes where it is. A program that interrupts this one finds the same.
#[inline(never)]
fn locate(ctl: *mut CpuControl) -> u64 {
    let Some(rq) = run_queue(unsafe { (*ctl).cpu }) else { return 0 };
    let address = rq.wrapping_add(globals::rq_to_preempt() as u64);
    unsafe { (*ctl).preempt_count = address };
    address
}

/// The address of this CPU's run queue, checked by the CPU number in it.
#[inline(always)]
fn run_queue(cpu: u32) -> Option<u64> {
    unsafe {
        let task = bpf_get_current_task();
        let cfs_rq: u64 =
            bpf_probe_read_kernel((task + u64::from(globals::task_cfs_rq())) as *const u64).ok()?;
        let rq: u64 = bpf_probe_read_kernel((cfs_rq + u64::from(globals::cfs_rq_rq())) as *const u64).ok()?;
        let owner: u32 = bpf_probe_read_kernel((rq + u64::from(globals::rq_cpu())) as *const u32).ok()?;
        (owner == cpu).then_some(rq)
    }
}
