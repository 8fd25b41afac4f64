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
    // SAFETY: the map's value. Who else writes the word writes the same: only programs on this CPU do, each
    // by a single store.
    let known = unsafe { (*ctl).preempt_count };
    if known != 0 || globals::task_cfs_rq() == 0 {
        return known;
    }
    locate(ctl)
}

/// Looks for the preempt count and notes where it is. A program that interrupts this one finds the same.
#[inline(never)]
fn locate(ctl: *mut CpuControl) -> u64 {
    // SAFETY: the map's value; the agent has set the CPU's id before it opened the gate.
    let Some(rq) = run_queue(unsafe { (*ctl).cpu }) else { return 0 };
    let address = rq.wrapping_add(globals::rq_to_preempt() as u64);
    // SAFETY: the map's value. A program that interrupts this one stores the same word.
    unsafe { (*ctl).preempt_count = address };
    address
}

/// The address of this CPU's run queue, checked by the CPU number in it.
#[inline(always)]
fn run_queue(cpu: u32) -> Option<u64> {
    // SAFETY: the helper takes nothing.
    let task = unsafe { bpf_get_current_task() };
    let cfs_rq = task + u64::from(globals::task_cfs_rq());
    // SAFETY: the helper catches the fault of a wrong address, and any bytes are an integer. Whether this one
    // is of a run queue shows at its CPU's number.
    let cfs_rq = unsafe { bpf_probe_read_kernel(cfs_rq as *const u64) }.ok()?;
    let rq = cfs_rq + u64::from(globals::cfs_rq_rq());
    // SAFETY: as above.
    let rq = unsafe { bpf_probe_read_kernel(rq as *const u64) }.ok()?;
    let owner = rq + u64::from(globals::rq_cpu());
    // SAFETY: as above.
    let owner = unsafe { bpf_probe_read_kernel(owner as *const u32) }.ok()?;
    (owner == cpu).then_some(rq)
}
