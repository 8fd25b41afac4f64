//! Attaching the programs that note thread names and follow processes, and finding each CPU's preempt count.

use std::os::fd::OwnedFd;

use super::{
    ProbeError,
    object::{Programs, program},
    sys,
    tracepoint::AttachError,
};

/// Starts noting thread names, and following traced processes if the programs were loaded for it.
///
/// Attached through raw tracepoints, whose detaching takes well under a millisecond.
pub fn attach(programs: &Programs) -> Result<Vec<OwnedFd>, ProbeError> {
    let hooks = [
        (program::TASK_CREATED, c"task_newtask"),
        (program::TASK_RENAMED, c"task_rename"),
        (program::TASK_FREED, c"sched_process_free"),
    ];
    hooks
        .into_iter()
        .map(|(name, hook)| {
            sys::open_raw_tracepoint(programs.fd(name)?, hook).map_err(|source| {
                let event = hook.to_string_lossy().into_owned();
                ProbeError::Attach(AttachError { event, step: "BPF_RAW_TRACEPOINT_OPEN", source })
            })
        })
        .collect()
}

/// Lets each of `cpus` find its preempt count. Returns on how many it is now known; where it is not, records say so.
pub fn locate_preempt_counts(programs: &Programs, cpus: &[u32]) -> Result<usize, ProbeError> {
    let locate = programs.fd(program::LOCATE)?;
    // A CPU that goes offline meanwhile, or a kernel that cannot run a program there, leaves the count unknown.
    Ok(cpus.iter().filter(|&&cpu| matches!(sys::run_on_cpu(locate, cpu), Ok(0))).count())
}
