//! Whose events are recorded.

use std::{os::fd::OwnedFd, path::Path};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};

use super::{PlanError, Why};
use crate::{
    capture::TaskFilter,
    compile::scope::{Scope, Traits},
    kernel::{
        cgroup::{Cgroup, CgroupError, Hierarchy},
        proc,
    },
    spec::ScopeSpec,
};

/// The processes, each held by a descriptor that tells when it ends.
pub(super) fn open_processes(scope: &ScopeSpec) -> Result<Vec<OwnedFd>, PlanError> {
    let open = |&pid: &u32| {
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH);
        process.and_then(|process| pidfd_open(process, PidfdFlags::empty())).map_err(|error| {
            let why = match error {
                Errno::SRCH => format!("{pid}: there is no such process"),
                // 6.18 says so of a thread; kernels before it give EINVAL.
                Errno::INVAL | Errno::NOENT => {
                    format!("{pid} is a thread; give the id of its process, whose threads are all recorded")
                }
                other => format!("{pid}: cannot watch the process: {other}"),
            };
            PlanError::scope("pids", Why::Wrong(why))
        })
    };
    scope.pids.iter().map(open).collect()
}

/// Whether ids of processes mean here what they mean to the kernel.
///
/// # Errors
/// They do not, and are needed.
pub(super) fn check_pid_namespace(scope: &ScopeSpec) -> Result<bool, PlanError> {
    let sees_kernel_pids = proc::in_initial_pid_namespace();
    let needed = [
        ("pids", !scope.pids.is_empty()),
        ("only_command", scope.only_command),
        ("exclude_pids", !scope.exclude_pids.is_empty()),
    ];
    match needed.into_iter().find(|(_, is_needed)| *is_needed && !sees_kernel_pids) {
        None => Ok(sees_kernel_pids),
        Some((name, _)) => Err(PlanError::scope(
            name,
            Why::Unsupported(
                "choosing processes needs the process ids of the initial pid namespace, which are not visible in \
                 this one; run it outside of the container, or in one with the host's pid namespace"
                    .to_owned(),
            ),
        )),
    }
}

pub(super) fn task_filter(scope: &ScopeSpec) -> Option<TaskFilter> {
    let is_chosen = scope.only_command || !scope.pids.is_empty();
    is_chosen.then(|| TaskFilter { processes: scope.pids.clone(), follow_fork: scope.children })
}

/// The memory maps of the processes, of those that are still there.
pub(super) fn process_maps(scope: &ScopeSpec) -> Vec<Vec<u8>> {
    scope.pids.iter().filter_map(|&pid| proc::process_maps(pid).ok()).collect()
}

/// Which threads, by what they are; `None` if every thread is meant.
pub(super) fn traits(scope: &ScopeSpec) -> Result<Option<Scope>, PlanError> {
    let (mut only, mut except) = (Vec::new(), Vec::new());
    let named = [
        ("cgroups", &scope.cgroups),
        ("containers", &scope.containers),
        ("exclude_cgroups", &scope.exclude_cgroups),
    ];
    if let Some((field, _)) = named.iter().find(|(_, of)| !of.is_empty()) {
        let hierarchy = Hierarchy::find()
            .map_err(|error| PlanError::scope(field, Why::Unsupported(error.to_string())))?;
        only = find(&scope.cgroups, "cgroups", |path| hierarchy.group(path))?;
        only.extend(find(&scope.containers, "containers", |name| hierarchy.container(name))?);
        except = find(&scope.exclude_cgroups, "exclude_cgroups", |path| hierarchy.group(path))?;
    }
    for pid in &scope.exclude_pids {
        if !Path::new(&format!("/proc/{pid}")).exists() {
            let why = Why::Wrong(format!("{pid}: there is no such process"));
            return Err(PlanError::scope("exclude_pids", why));
        }
    }
    let traits = |comms: &[String], uids: &[u32], cgroups, processes: &[u32]| Traits {
        comms: comms.to_vec(),
        uids: uids.to_vec(),
        cgroups,
        processes: processes.to_vec(),
    };
    let scope = Scope {
        only: traits(&scope.comms, &scope.uids, only, &[]),
        except: traits(&scope.exclude_comms, &scope.exclude_uids, except, &scope.exclude_pids),
    };
    Ok((!scope.is_everything()).then_some(scope))
}

/// The groups that a field names.
fn find(
    texts: &[String],
    field: &'static str,
    group: impl Fn(&str) -> Result<Cgroup, CgroupError>,
) -> Result<Vec<Cgroup>, PlanError> {
    let find = |text: &String| group(text).map_err(|error| PlanError::scope(field, error));
    texts.iter().map(find).collect()
}
