//! Rings and their CPUs.

use super::{PlanError, Why, error::InChannel};
use capture::RING_PAGES_MIN;
use kernel::cpus::{CpuSet, Cpus};

/// Pages of each CPU's ring.
pub(super) fn ring_pages(at: InChannel, bytes: u64) -> Result<u32, PlanError> {
    let pages = bytes.div_ceil(agent_ebpf::PAGE_SIZE as u64);
    u32::try_from(pages.max(RING_PAGES_MIN.into())).map_err(|_| {
        let why = format!(
            "a ring of {} KB for each CPU is more than an eBPF map can hold; choose a smaller one",
            bytes >> 10
        );
        at.field("ring_bytes", Why::Wrong(why))
    })
}

/// The CPUs that get a ring: those that are plugged in, because one that is offline may come online while
/// recording. Many more are possible in a virtual machine, most of which never come.
pub(super) fn choose_cpus(
    wanted: Option<&CpuSet>,
    cpus: &Cpus,
    notes: &mut Vec<String>,
) -> Result<CpuSet, PlanError> {
    let plugged_in: CpuSet = cpus.present.iter().chain(cpus.online.iter()).collect();
    let Some(wanted) = wanted else { return Ok(plugged_in) };
    let chosen: CpuSet = wanted.iter().filter(|&cpu| plugged_in.contains(cpu)).collect();
    if let Some(unknown) = wanted.iter().find(|&cpu| !cpus.possible.contains(cpu)) {
        let why = format!("this machine cannot have a CPU {unknown}; possible are {}", cpus.possible);
        return Err(PlanError::scope("cpus", Why::Wrong(why)));
    }
    if chosen.is_empty() {
        let why = format!(
            "{wanted} has no CPU that is present; present are {}, online {}",
            cpus.present, cpus.online
        );
        return Err(PlanError::scope("cpus", Why::Wrong(why)));
    }
    if !chosen.iter().any(|cpu| cpus.online.contains(cpu)) {
        notes.push(format!("CPU {chosen} is offline; its events are recorded when it comes online"));
    }
    Ok(chosen)
}
