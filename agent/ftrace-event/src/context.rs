//! Contexts: what is known of the thread and the CPU that an event fires in, besides its record.
//!
//! `record --context` adds them to the kernel's own fields, filters ask for them. As fields they follow the
//! event's own, in its format, and are called `ctx_NAME`, so that none is taken for one of the event's
//! (`sched_waking` has a `pid`, a `comm` and a `prio` of its own). What has dynamic data has it after them.

/// What the names of all of the fields begin with.
pub const PREFIX: &str = "ctx_";

/// What the names of counters begin with.
pub const COUNTER_PREFIX: &str = "ctx_perf_";

/// Something that is known of an event besides its record.
///
/// Numbers of processes and threads are those of the first PID namespace, those with a V are those of the
/// thread's own namespace. So are the ids of users and groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Context {
    /// The process.
    Pid,
    /// The thread, as in `common_pid`.
    Tid,
    /// The thread's name.
    Comm,
    /// The processor. No field: each record has it.
    Cpu,
    /// When it happened, in the units of the clock. No field: each record has it.
    Timestamp,
    /// The process that has the thread as its child.
    Ppid,
    /// The process in the thread's PID namespace.
    Vpid,
    /// The thread in its PID namespace.
    Vtid,
    /// The parent process in the thread's PID namespace; 0 if it is not in there.
    Vppid,
    /// The kernel's priority: 0 to 99 are real-time, 100 to 139 nice -20 to 19, as in the events of the
    /// scheduler.
    Prio,
    /// The nice value, -20 to 19.
    Nice,
    /// The number of the control group (of version 2).
    Cgroup,
    /// The container: the name of the control group (of version 2) that is the root of the thread's cgroup
    /// namespace. Runtimes of containers put their identifiers there. Empty in the first namespace.
    Container,
    /// The node name of the thread's UTS namespace.
    Hostname,
    /// Whether interrupts are on; -1 if that is not known.
    Interruptible,
    /// Whether the thread can be preempted, as far as the CPU's preemption counter says.
    Preemptible,
    /// Whether the thread shall give up the CPU.
    NeedReschedule,
    /// Whether the thread can be moved to another CPU.
    Migratable,
    /// The inode number of the cgroup namespace, 0 of a thread that has ended it, as the next ones.
    CgroupNs,
    /// That of the IPC namespace.
    IpcNs,
    /// That of the mount namespace.
    MntNs,
    /// That of the network namespace.
    NetNs,
    /// That of the PID namespace that the thread is in, whatever its children will be in.
    PidNs,
    /// That of the time namespace.
    TimeNs,
    /// That of the user namespace.
    UserNs,
    /// That of the UTS namespace.
    UtsNs,
    /// The real user.
    Uid,
    /// The effective user.
    Euid,
    /// The saved user.
    Suid,
    /// The real group.
    Gid,
    /// The effective group.
    Egid,
    /// The saved group.
    Sgid,
    /// The real user in the thread's user namespace.
    Vuid,
    /// The effective user there.
    Veuid,
    /// The saved user there.
    Vsuid,
    /// The real group in the thread's user namespace.
    Vgid,
    /// The effective group there.
    Vegid,
    /// The saved group there.
    Vsgid,
}

impl Context {
    /// Every one, and its name.
    pub const ALL: [(Self, &'static str); 38] = [
        (Self::Pid, "pid"),
        (Self::Tid, "tid"),
        (Self::Comm, "comm"),
        (Self::Cpu, "cpu"),
        (Self::Timestamp, "timestamp"),
        (Self::Ppid, "ppid"),
        (Self::Vpid, "vpid"),
        (Self::Vtid, "vtid"),
        (Self::Vppid, "vppid"),
        (Self::Prio, "prio"),
        (Self::Nice, "nice"),
        (Self::Cgroup, "cgroup"),
        (Self::Container, "container"),
        (Self::Hostname, "hostname"),
        (Self::Interruptible, "interruptible"),
        (Self::Preemptible, "preemptible"),
        (Self::NeedReschedule, "need_reschedule"),
        (Self::Migratable, "migratable"),
        (Self::CgroupNs, "cgroup_ns"),
        (Self::IpcNs, "ipc_ns"),
        (Self::MntNs, "mnt_ns"),
        (Self::NetNs, "net_ns"),
        (Self::PidNs, "pid_ns"),
        (Self::TimeNs, "time_ns"),
        (Self::UserNs, "user_ns"),
        (Self::UtsNs, "uts_ns"),
        (Self::Uid, "uid"),
        (Self::Euid, "euid"),
        (Self::Suid, "suid"),
        (Self::Gid, "gid"),
        (Self::Egid, "egid"),
        (Self::Sgid, "sgid"),
        (Self::Vuid, "vuid"),
        (Self::Veuid, "veuid"),
        (Self::Vsuid, "vsuid"),
        (Self::Vgid, "vgid"),
        (Self::Vegid, "vegid"),
        (Self::Vsgid, "vsgid"),
    ];

    /// Names that mean the same as one of those: LTTng's (`lttng add-context --list`), and an older one.
    const OTHERS: [(Self, &'static str); 3] =
        [(Self::Comm, "procname"), (Self::Cpu, "cpu_id"), (Self::PidNs, "pidns")];

    /// Its name: what follows the `$` in filters.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(context, _)| *context == self).map_or("", |(_, name)| name)
    }

    /// The one with this name, or with LTTng's.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().chain(&Self::OTHERS).find(|(_, known)| *known == name).map(|(context, _)| *context)
    }

    /// LTTng's name; `cgroup` and `container` have none there and keep their own.
    pub fn lttng_name(self) -> &'static str {
        match self {
            Self::Comm => "procname",
            Self::Cpu => "cpu_id",
            other => other.name(),
        }
    }

    /// Whether a record can have it as a field.
    pub const fn is_field(self) -> bool {
        !matches!(self, Self::Cpu | Self::Timestamp)
    }

    /// The name of its field.
    pub fn field(self) -> String {
        format!("{PREFIX}{}", self.name())
    }

    /// The context that a field of this name is; `None` if it is a field of the event's own.
    pub fn of_field(field: &str) -> Option<Self> {
        let name = field.strip_prefix(PREFIX)?;
        let found = Self::ALL.iter().find(|(context, known)| context.is_field() && *known == name);
        found.map(|(context, _)| *context)
    }
}

/// The name that LTTng has for the context in the field `name`; `None` if it is a field of the event's own.
pub fn lttng_name(name: &str) -> Option<&str> {
    if name.starts_with(COUNTER_PREFIX) {
        return name.strip_prefix(PREFIX);
    }
    Context::of_field(name).map(Context::lttng_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_told_from_other_fields() {
        assert_eq!(lttng_name("ctx_comm"), Some("procname"));
        assert_eq!(lttng_name("ctx_vsgid"), Some("vsgid"));
        assert_eq!(lttng_name("ctx_perf_cpu_cycles"), Some("perf_cpu_cycles"));
        assert_eq!((lttng_name("ctx_other"), lttng_name("pid"), lttng_name("ctx_cpu")), (None, None, None));
    }

    #[test]
    fn every_name_leads_back() {
        for (context, name) in Context::ALL {
            assert_eq!((Context::named(name), context.name()), (Some(context), name));
            assert_eq!(Context::named(context.lttng_name()), Some(context));
            assert_eq!(Context::of_field(&context.field()), Some(context).filter(|it| it.is_field()));
        }
    }
}
