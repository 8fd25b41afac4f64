//! Which events are understood, and from which fields they are read.

use ftrace_event::Meaning;
use ftrace_event::syscalls::ANY;

/// An event that is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Switch,
    Wakeup {
        is_new: bool,
    },
    Migrate,
    Fork,
    NewTask,
    Renamed,
    Exec,
    Exit,
    Freed,
    /// Of an event that is not wanted for anything else.
    Seen,
    CallEnter {
        is_raw: bool,
    },
    CallExit {
        is_raw: bool,
    },
    AnyCallExit,
    IrqEntry,
    IrqExit,
    SoftirqRaise,
    SoftirqEntry,
    SoftirqExit,
    BlockInsert,
    BlockIssue,
    BlockRequeue,
    BlockComplete,
    LockBegin,
    LockEnd,
    PageAlloc,
    PageFree,
    SlabAlloc {
        is_kmalloc: bool,
    },
    SlabFree,
    PageFault {
        is_user: bool,
    },
    ReclaimBegin {
        is_of_group: bool,
    },
    ReclaimEnd {
        is_of_group: bool,
    },
    OomVictim,
}

const THREAD: &[&str] = &["pid", "comm"];
const VECTOR: &[&str] = &["vec"];
const REQUEST: &[&str] = &["dev", "sector", "bytes", "rwbs", "comm"];
const RECLAIMED: &[&str] = &["nr_reclaimed"];
const SLAB: &[&str] = &["ptr", "call_site", "bytes_req", "bytes_alloc", "name"];

impl Kind {
    /// The kind of an event, and the fields that it is read from.
    pub(super) fn of(system: &str, name: &str) -> Option<(Self, &'static [&'static str])> {
        match system {
            "sched" | "task" => Self::of_threads(name),
            "raw_syscalls" | "syscalls" => Self::of_calls(system, name),
            "irq" => Self::of_irqs(name),
            "block" => Self::of_block(name),
            "lock" => Some(match name {
                "contention_begin" => (Self::LockBegin, &["lock_addr", "flags"]),
                "contention_end" => (Self::LockEnd, &["lock_addr", "ret"]),
                _ => return None,
            }),
            "kmem" | "exceptions" | "vmscan" | "oom" => Self::of_memory(name),
            _ => None,
        }
    }

    fn of_threads(name: &str) -> Option<(Self, &'static [&'static str])> {
        Some(match name {
            "sched_switch" => {
                (Self::Switch, &["prev_pid", "prev_comm", "prev_state", "next_pid", "next_comm"])
            }
            "sched_waking" | "sched_wakeup" => (Self::Wakeup { is_new: false }, THREAD),
            "sched_wakeup_new" => (Self::Wakeup { is_new: true }, THREAD),
            "sched_migrate_task" => (Self::Migrate, &["pid"]),
            "sched_process_fork" => (Self::Fork, &["child_pid", "child_comm"]),
            "task_newtask" => (Self::NewTask, &["pid", "comm", "clone_flags"]),
            "sched_process_exec" => (Self::Exec, &["pid", "old_pid"]),
            "sched_process_exit" => (Self::Exit, &["pid"]),
            "task_rename" => (Self::Renamed, &["pid", "newcomm", "oldcomm"]),
            "sched_process_free" => (Self::Freed, &["pid"]),
            _ => return None,
        })
    }

    fn of_calls(system: &str, name: &str) -> Option<(Self, &'static [&'static str])> {
        Some(match (system, name) {
            ("raw_syscalls", "sys_enter") => (Self::CallEnter { is_raw: true }, &["id", "args"]),
            ("raw_syscalls", "sys_exit") => (Self::CallExit { is_raw: true }, &["id", "ret"]),
            ("syscalls", name) if name.starts_with("sys_enter_") => {
                (Self::CallEnter { is_raw: false }, &["__syscall_nr"])
            }
            ("syscalls", name) if name.strip_prefix("sys_exit_") == Some(ANY) => {
                (Self::AnyCallExit, &["ret"])
            }
            ("syscalls", name) if name.starts_with("sys_exit_") => {
                (Self::CallExit { is_raw: false }, &["__syscall_nr", "ret"])
            }
            _ => return None,
        })
    }

    fn of_irqs(name: &str) -> Option<(Self, &'static [&'static str])> {
        Some(match name {
            "irq_handler_entry" => (Self::IrqEntry, &["irq", "name"]),
            "irq_handler_exit" => (Self::IrqExit, &["irq"]),
            "softirq_raise" => (Self::SoftirqRaise, VECTOR),
            "softirq_entry" => (Self::SoftirqEntry, VECTOR),
            "softirq_exit" => (Self::SoftirqExit, VECTOR),
            _ => return None,
        })
    }

    fn of_block(name: &str) -> Option<(Self, &'static [&'static str])> {
        Some(match name {
            "block_rq_insert" => (Self::BlockInsert, REQUEST),
            "block_rq_issue" => (Self::BlockIssue, REQUEST),
            "block_rq_requeue" => (Self::BlockRequeue, &["dev", "sector", "rwbs"]),
            "block_rq_complete" => (Self::BlockComplete, &["dev", "sector", "nr_sector", "rwbs", "error"]),
            _ => return None,
        })
    }

    fn of_memory(name: &str) -> Option<(Self, &'static [&'static str])> {
        Some(match name {
            "mm_page_alloc" => (Self::PageAlloc, &["pfn", "order"]),
            "mm_page_free" => (Self::PageFree, &["pfn", "order"]),
            "kmalloc" | "kmalloc_node" => (Self::SlabAlloc { is_kmalloc: true }, SLAB),
            "kmem_cache_alloc" | "kmem_cache_alloc_node" => (Self::SlabAlloc { is_kmalloc: false }, SLAB),
            "kfree" | "kmem_cache_free" => (Self::SlabFree, &["ptr"]),
            "page_fault_user" => (Self::PageFault { is_user: true }, &["address"]),
            "page_fault_kernel" => (Self::PageFault { is_user: false }, &["address"]),
            "mm_vmscan_direct_reclaim_begin" => (Self::ReclaimBegin { is_of_group: false }, &["order"]),
            "mm_vmscan_direct_reclaim_end" => (Self::ReclaimEnd { is_of_group: false }, RECLAIMED),
            "mm_vmscan_memcg_reclaim_begin" => (Self::ReclaimBegin { is_of_group: true }, &["order"]),
            "mm_vmscan_memcg_reclaim_end" => (Self::ReclaimEnd { is_of_group: true }, RECLAIMED),
            "mark_victim" => (Self::OomVictim, THREAD),
            _ => return None,
        })
    }
}

/// What a field is in the kernel.
pub(super) fn meaning(field: &str) -> Meaning {
    match field {
        "prev_state" => Meaning::State,
        "args" => Meaning::Numbers,
        "name" | "rwbs" => Meaning::Text,
        field if field.ends_with("comm") => Meaning::Text,
        _ => Meaning::Number,
    }
}

/// Whether an event is understood without this field: names are shown where they are known; nothing goes
/// without numbers, but for those of calls, which events have in their names. (`mark_victim` has the name of
/// the thread from Linux 6.8 on; `block_rq_complete` has `error` from 4.15 on.)
pub(super) fn is_optional(kind: Kind, field: &str) -> bool {
    kind == Kind::Renamed && field == "pid"
        || field.ends_with("comm")
        || matches!(field, "name" | "rwbs" | "error" | "args" | "__syscall_nr" | "old_pid")
}
