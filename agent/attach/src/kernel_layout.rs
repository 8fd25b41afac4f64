//! Where the fields that the programs read are in this kernel's structures.

use serde::{Deserialize, Serialize};

use kernel::btf::{Btf, TypeId};
use kernel::features;

/// Offsets from the kernel's BTF. Everything unknown is 0, which switches off what needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelLayout {
    /// `task_struct.pid`: the thread id.
    pub task_pid: u32,
    /// `task_struct.tgid`: the thread group's id.
    pub task_tgid: u32,
    /// `task_struct.comm`.
    pub task_comm: u32,
    /// `task_struct.migration_disabled`.
    pub task_migration: u32,
    /// `task_struct.mm`.
    pub task_mm: u32,
    /// `task_struct.se.nr_migrations`.
    pub task_nr_migrations: u32,
    /// `task_struct.thread_info.status`, where it tells of 32-bit system calls.
    pub task_status: u32,
    /// `task_struct.thread_info.preempt_lazy_count`, which only kernels with the `PREEMPT_RT` patches have.
    pub task_lazy_count: u32,
    /// How to find a CPU's preempt count.
    pub preempt_count: Option<PreemptCountPath>,
    /// How programs load from any address.
    pub any_load: Option<AnyLoad>,
    /// How to find the ids that a task's own namespaces give it.
    pub ids: Option<IdLayout>,
    /// `TRACE_FLAG_PREEMPT_RESCHED` (include/linux/trace_events.h), which is 0 with the `PREEMPT_RT` patches
    /// before 6.6: they have the bit for lazy rescheduling.
    pub flag_preempt_resched: u32,
}

/// Loads from addresses that the verifier knows nothing of, without a helper: a cast makes a pointer to some
/// structure of them, which the verifier does not trust. A load through it gives 0 where there is no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnyLoad {
    /// The kernel's function `bpf_rdonly_cast` (6.2 and later; it needs the compiler for programs).
    pub cast: TypeId,
    /// A structure that starts with an `int`.
    pub int_holder: TypeId,
}

impl AnyLoad {
    fn from_btf(btf: &Btf) -> Option<Self> {
        if !features::has_jit() {
            return None;
        }
        Some(Self {
            cast: btf.function("bpf_rdonly_cast").ok()?,
            // Its only member is an `atomic_t`, whose only member is the `int`
            // (include/linux/refcount_types.h).
            int_holder: btf.type_named("refcount_struct").ok()?,
        })
    }
}

/// `current->se.cfs_rq->rq` is this CPU's `runqueues`; the preempt count is a fixed distance away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreemptCountPath {
    /// `task_struct.se.cfs_rq`.
    pub task_cfs_rq: u32,
    /// `cfs_rq.rq`.
    pub cfs_rq_rq: u32,
    /// `rq.cpu`, to check the result.
    pub rq_cpu: u32,
    /// From the per-CPU variable `runqueues` to the word that holds the preempt count.
    pub rq_to_count: i64,
}

impl KernelLayout {
    /// Looks everything up in the kernel's type information. What is not there stays unknown.
    pub fn from_btf(btf: &Btf) -> Self {
        let offset = |path: &str| btf.member_offset(path).unwrap_or(0);
        // Programs read this field as 16 bits (include/linux/sched.h, 5.11 and later).
        let migration = btf.member("task_struct.migration_disabled").ok().filter(|member| member.size == 2);
        // And these as 64.
        let word = |path: &str| {
            let member = btf.member(path).ok().filter(|member| member.size == 8);
            member.map_or(0, |member| member.offset)
        };
        Self {
            task_pid: offset("task_struct.pid"),
            task_tgid: offset("task_struct.tgid"),
            task_comm: offset("task_struct.comm"),
            task_migration: migration.map_or(0, |member| member.offset),
            task_mm: word("task_struct.mm"),
            task_nr_migrations: word("task_struct.se.nr_migrations"),
            task_status: btf.call_status().unwrap_or(0),
            task_lazy_count: offset("task_struct.thread_info.preempt_lazy_count"),
            preempt_count: PreemptCountPath::from_btf(btf),
            any_load: AnyLoad::from_btf(btf),
            ids: IdLayout::from_btf(btf),
            flag_preempt_resched: flag(btf, "TRACE_FLAG_PREEMPT_RESCHED"),
        }
    }
}

/// Where the ids that a task's own namespaces give it are (`__task_pid_nr_ns`, kernel/pid.c; `from_kuid`,
/// kernel/user_namespace.c).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdLayout {
    /// `task_struct.signal`.
    pub task_signal: u32,
    /// `signal_struct.pids[PIDTYPE_TGID]`.
    pub signal_tgid: u32,
    /// `pid.level`.
    pub pid_level: u32,
    /// `pid.numbers[0].nr`.
    pub pid_nr: u32,
    /// Bytes of a `struct upid`.
    pub upid_size: u32,
    /// `task_struct.cred`.
    pub task_cred: u32,
    /// `cred.uid`.
    pub cred_uid: u32,
    /// `cred.gid`.
    pub cred_gid: u32,
    /// `cred.user_ns`.
    pub cred_user_ns: u32,
    /// `user_namespace.uid_map`.
    pub uid_map: u32,
    /// `user_namespace.gid_map`.
    pub gid_map: u32,
    /// `uid_gid_map.nr_extents`.
    pub map_count: u32,
    /// `uid_gid_map.extent`.
    pub map_extents: u32,
    /// `uid_gid_map.reverse`.
    pub map_reverse: u32,
}

impl IdLayout {
    fn from_btf(btf: &Btf) -> Option<Self> {
        let offset = |path| btf.member_offset(path).ok();
        let kinds = btf.type_named("pid_type").ok()?;
        let process = btf.enumerator(kinds, "PIDTYPE_TGID").ok()??;
        let process = u32::try_from(process).ok()?.checked_mul(size_of::<u64>() as u32)?;
        Some(Self {
            task_signal: offset("task_struct.signal")?,
            signal_tgid: offset("signal_struct.pids")?.checked_add(process)?,
            pid_level: offset("pid.level")?,
            pid_nr: offset("pid.numbers")?.checked_add(offset("upid.nr")?)?,
            upid_size: btf.size_of(btf.type_named("upid").ok()?).ok()?,
            task_cred: offset("task_struct.cred")?,
            cred_uid: offset("cred.uid")?,
            cred_gid: offset("cred.gid")?,
            cred_user_ns: offset("cred.user_ns")?,
            uid_map: offset("user_namespace.uid_map")?,
            gid_map: offset("user_namespace.gid_map")?,
            map_count: offset("uid_gid_map.nr_extents")?,
            map_extents: offset("uid_gid_map.extent")?,
            map_reverse: offset("uid_gid_map.reverse")?,
        })
    }
}

/// A bit of `common_flags`, as this kernel has it; 0 if it has no such flag.
fn flag(btf: &Btf, name: &str) -> u32 {
    let value = btf.type_named("trace_flag_type").and_then(|flags| btf.enumerator(flags, name));
    value.ok().flatten().and_then(|value| u32::try_from(value).ok()).unwrap_or(0)
}

impl PreemptCountPath {
    fn from_btf(btf: &Btf) -> Option<Self> {
        let (variable, member) = btf.preempt_count().ok()?;
        let runqueues = btf.percpu_variable("runqueues").ok()?;
        Some(Self {
            task_cfs_rq: btf.member_offset("task_struct.se.cfs_rq").ok()?,
            cfs_rq_rq: btf.member_offset("cfs_rq.rq").ok()?,
            rq_cpu: btf.member_offset("rq.cpu").ok()?,
            rq_to_count: i64::from(variable.offset) + i64::from(member) - i64::from(runqueues.offset),
        })
    }
}
