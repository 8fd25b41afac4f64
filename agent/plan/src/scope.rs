//! Whose events are recorded.

use std::{collections::BTreeSet, os::fd::OwnedFd, path::Path};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};

use super::{PlanError, Why};
use attach::KernelLayout;
use capture::{TaskFilter, Tracking};
use compile::scope::{Scope, Set, Sets, Values};
use elf::{Newcomers, Processes};
use kernel::cgroup::{Cgroup, Hierarchy};
use kernel::ids::Owner;
use kernel::{ids, proc};
use spec::Attribute;
use spec::{ScopeSpec, TraitSpec};

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
    let has_pids = |of: &TraitSpec| of.get(&Attribute::Pid).is_some_and(|pids| !pids.is_empty());
    let needed = [
        ("pids", !scope.pids.is_empty()),
        ("only_command", scope.only_command),
        (TRACK, has_pids(&scope.track)),
        (EXCLUDE, has_pids(&scope.exclude)),
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

/// The processes that are recorded, whose names for files are meant. Where values of attributes change while
/// the recording goes on, or only some are left out, names are those of this process.
pub(super) fn processes(tasks: Option<&TaskFilter>, has_command: bool, scope: Option<&Scope>) -> Processes {
    if let Some(TaskFilter { processes, follow_fork }) = tasks {
        let newcomers = match (has_command, follow_fork) {
            (true, _) => Newcomers::Command,
            (false, true) => Newcomers::Children,
            (false, false) => Newcomers::None,
        };
        return Processes::Of { ids: processes.clone(), newcomers };
    }
    let Some(scope) = scope.filter(|scope| scope.chooses()) else { return Processes::All };
    // Where /proc cannot be read, none is known.
    let threads = proc::threads().unwrap_or_default();
    let ids: BTreeSet<u32> =
        threads.iter().filter(|thread| scope.takes(thread)).map(|thread| thread.tgid).collect();
    Processes::Of { ids: ids.into_iter().collect(), newcomers: Newcomers::Any }
}

/// The memory maps of the processes, of those that are still there.
pub(super) fn process_maps(scope: &ScopeSpec) -> Vec<Vec<u8>> {
    scope.pids.iter().filter_map(|&pid| proc::process_maps(pid).ok()).collect()
}

/// Plans that threads are recorded by other values of an attribute; by all of them with `None`.
///
/// # Errors
/// There is no such user, group or control group, or this process cannot know what is meant.
pub fn tracking(attribute: Attribute, values: Option<&[String]>) -> Result<Tracking, PlanError> {
    let set = values.map(|values| find(TRACK, attribute, values, &[])).transpose()?;
    Ok(Tracking { attribute, set })
}

/// Which threads, by what they are; `None` if every thread is meant, to the end.
pub(super) fn traits(scope: &ScopeSpec) -> Result<Option<Scope>, PlanError> {
    let sets = |field, of: &TraitSpec, containers: &[String]| {
        let mut sets = Sets::default();
        let more = (!containers.is_empty()).then_some(Attribute::Cgroup);
        let attributes: BTreeSet<Attribute> = of.keys().copied().chain(more).collect();
        for attribute in attributes {
            let values = of.get(&attribute).map(Vec::as_slice).unwrap_or_default();
            let containers = if attribute == Attribute::Cgroup { containers } else { &[] };
            sets.put(attribute, Some(find(field, attribute, values, containers)?));
        }
        Ok::<Sets, PlanError>(sets)
    };
    for pid in scope.exclude.get(&Attribute::Pid).into_iter().flatten() {
        if !Path::new(&format!("/proc/{pid}")).exists() {
            let why = Why::Wrong(format!("pid {pid}: there is no such process"));
            return Err(PlanError::scope(EXCLUDE, why));
        }
    }
    let changes = scope.changes;
    let only = sets(TRACK, &scope.track, &scope.containers)?;
    let scope = Scope { only, except: sets(EXCLUDE, &scope.exclude, &[])?, changes };
    Ok((changes || !scope.is_everything()).then_some(scope))
}

/// Fields of the scope.
const TRACK: &str = "track";
const EXCLUDE: &str = "exclude";
const CONTAINERS: &str = "containers";

/// What values of an attribute mean on this machine, with containers beside control groups.
fn find(
    field: &'static str,
    attribute: Attribute,
    texts: &[String],
    containers: &[String],
) -> Result<Set, PlanError> {
    let wrong = |why: String| PlanError::scope(field, Why::Wrong(format!("{attribute}: {why}")));
    let ids = |id: &dyn Fn(&str) -> Result<u32, String>| {
        let id = |text: &String| id(text).map_err(wrong);
        texts.iter().map(id).collect::<Result<BTreeSet<u32>, PlanError>>().map(Values::Ids)
    };
    let values = match attribute {
        Attribute::Pid | Attribute::Vpid => {
            ids(&|text| text.parse().map_err(|_| format!("{text} is the number of no process")))?
        }
        Attribute::Uid | Attribute::Vuid => ids(&|text| ids::of_name(Owner::User, text))?,
        Attribute::Gid | Attribute::Vgid => ids(&|text| ids::of_name(Owner::Group, text))?,
        Attribute::Comm => Values::Names(texts.to_vec()),
        Attribute::Cgroup if texts.is_empty() && containers.is_empty() => Values::Groups(Vec::new()),
        Attribute::Cgroup => {
            let hierarchy = Hierarchy::find()
                .map_err(|error| PlanError::scope(field, Why::Unsupported(error.to_string())))?;
            let group = |path: &String| {
                hierarchy.group(path).map_err(|error| PlanError::scope(field, Why::Cgroup(error)))
            };
            let container = |name: &String| {
                hierarchy.container(name).map_err(|error| PlanError::scope(CONTAINERS, Why::Container(error)))
            };
            let groups = texts.iter().map(group).chain(containers.iter().map(container));
            Values::Groups(groups.collect::<Result<Vec<Cgroup>, PlanError>>()?)
        }
    };
    Ok(Set { texts: texts.iter().chain(containers).cloned().collect(), values })
}

/// Whether the kernel's types say where the ids of namespaces are, if threads are chosen by them.
///
/// # Errors
/// They do not.
pub(super) fn check_ids(scope: &ScopeSpec, layout: &KernelLayout) -> Result<(), PlanError> {
    for (field, of) in [(TRACK, &scope.track), (EXCLUDE, &scope.exclude)] {
        if let Some(attribute) = of.keys().find(|attribute| attribute.is_virtual() && layout.ids.is_none()) {
            let why = format!("{attribute} needs the kernel's type information about namespaces");
            return Err(PlanError::scope(field, Why::Unsupported(why)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(attribute: Attribute, values: &[&str]) -> Result<Tracking, PlanError> {
        let values: Vec<String> = values.iter().map(|&value| value.to_owned()).collect();
        tracking(attribute, Some(&values))
    }

    #[test]
    fn values_are_numbers_and_names() {
        let set = |tracking: Tracking| tracking.set.unwrap();
        let uids = set(plan(Attribute::Uid, &["root", "7"]).unwrap());
        assert_eq!(uids.values, Values::Ids(BTreeSet::from([0, 7])));
        assert_eq!(uids.texts, ["root", "7"]);
        assert_eq!(set(plan(Attribute::Vgid, &["root"]).unwrap()).values, Values::Ids(BTreeSet::from([0])));
        assert_eq!(set(plan(Attribute::Cgroup, &[]).unwrap()).values, Values::Groups(Vec::new()));
        assert_eq!(tracking(Attribute::Comm, None).unwrap().set, None);
    }

    #[test]
    fn what_is_no_value_is_an_error() {
        for (attribute, text, said) in [
            (Attribute::Pid, "x", "scope.track: pid: x is the number of no process"),
            (Attribute::Vpid, "-1", "scope.track: vpid: -1 is the number of no process"),
            (
                Attribute::Uid,
                "no-such-user",
                "scope.track: uid: /etc/passwd has no user no-such-user; give the number",
            ),
            (
                Attribute::Vgid,
                "no-such-group",
                "scope.track: vgid: /etc/group has no group no-such-group; give the number",
            ),
        ] {
            assert_eq!(plan(attribute, &[text]).unwrap_err().to_string(), said);
        }
    }
}
