//! Attaching the programs that note thread names and follow processes.

use std::os::fd::OwnedFd;

use super::{
    AttachError, ProbeError,
    programs::{Programs, program},
};
use crate::bpf::sys;

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
                ProbeError::Attach(AttachError { event, step: "BPF_RAW_TRACEPOINT_OPEN", advice: "", source })
            })
        })
        .collect()
}
