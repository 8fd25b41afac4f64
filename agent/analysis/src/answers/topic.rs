//! Which analyses there are, and which events they use.

use serde::Serialize;

/// An analysis, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// [`Sched`](super::Sched)
    Sched,
    /// [`OffCpu`](super::OffCpu)
    Offcpu,
    /// [`Cpu`](super::Cpu)
    Cpu,
    /// [`Stacks`](super::Stacks)
    Stacks,
    /// [`Calls`](super::Calls)
    Syscalls,
    /// [`Io`](super::Io)
    Io,
    /// [`Irqs`](super::Irqs)
    Irq,
    /// [`Locks`](super::Locks)
    Locks,
    /// [`Memory`](super::Memory)
    Memory,
    /// [`Summary`](super::Summary)
    Summary,
}

/// Events of which an analysis needs one, and what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Need {
    /// What is not known without.
    pub tells: &'static str,
    /// Whether there is no answer without.
    pub is_required: bool,
    /// The events, as `system:name`, in which `*` at the end stands for anything.
    pub events: &'static [&'static str],
    /// Which events are to be recorded for it.
    #[serde(skip)]
    pub records: &'static [&'static str],
    /// Whether these are to be followed by stacks.
    #[serde(skip)]
    pub has_stacks: bool,
    /// Whether these are to be recorded of every thread, whichever a recording is about: they come in
    /// interrupts, or in other threads than what they end.
    #[serde(skip)]
    pub of_every_thread: bool,
}

/// What one of these events tells, of which the first is to be recorded.
const fn need(tells: &'static str, is_required: bool, events: &'static [&'static str]) -> Need {
    Need {
        tells,
        is_required,
        events,
        records: events.split_at(1).0,
        has_stacks: false,
        of_every_thread: false,
    }
}

/// A need of some of the events that another one names for recording.
const fn part_of(tells: &'static str, events: &'static [&'static str]) -> Need {
    Need { tells, is_required: false, events, records: &[], has_stacks: false, of_every_thread: false }
}

/// The same as [`need`], with the stacks of the kernel and of the process behind each.
const fn with_stacks(need: Need) -> Need {
    Need { has_stacks: true, ..need }
}

/// The same of every thread, whichever a recording is about.
const fn of_every_thread(need: Need) -> Need {
    Need { of_every_thread: true, ..need }
}

/// Ends of requests come in interrupts.
const REQUESTS_END: Need =
    of_every_thread(need("when requests to disks are done", false, &["block:block_rq_complete"]));
const REQUESTS_QUEUED: Need =
    need("how long requests wait in the queues of disks", false, &["block:block_rq_insert"]);
/// Requests are given back in interrupts, too.
const REQUESTS_BACK: Need =
    of_every_thread(need("requests that disks give back", false, &["block:block_rq_requeue"]));

const SWITCHES: &[&str] = &["sched:sched_switch"];
/// Events that say when a thread is woken.
pub(super) const WAKEUP_EVENTS: &[&str] = &["sched:sched_waking", "sched:sched_wakeup"];
const WAKEUPS: Need = need("when threads are woken", false, WAKEUP_EVENTS);
const FIRST_WAKEUPS: Need = need("when new threads are woken", false, &["sched:sched_wakeup_new"]);
const MOVES: Need = need("moves to other CPUs", false, &["sched:sched_migrate_task"]);
const NEW: &[&str] = &["sched:sched_process_fork", "task:task_newtask"];
/// Workers of io_uring and vhost have no fork, and kernels without the other event have that one.
const FORKS: Need = Need { records: NEW, ..need("which threads are new", false, NEW) };
const EXECS: Need =
    need("when a thread gets the id of its process's first one", false, &["sched:sched_process_exec"]);
const EXITS: Need = need("when threads end", false, &["sched:sched_process_exit", "sched:sched_switch"]);
const FREED: Need = need("when an id is given to another thread", false, &["sched:sched_process_free"]);
const RENAMED: Need = need("new names of threads", false, &["task:task_rename"]);
const CALLS_BEGIN: Need =
    need("when system calls begin", true, &["raw_syscalls:sys_enter", "syscalls:sys_enter_*"]);
const CALLS_END: Need =
    need("when system calls end", true, &["raw_syscalls:sys_exit", "syscalls:sys_exit_*"]);

const SCHED: &[Need] =
    &[need("who runs when", true, SWITCHES), WAKEUPS, FIRST_WAKEUPS, MOVES, FORKS, EXECS, FREED, RENAMED];

const OFFCPU: &[Need] = &[
    with_stacks(need("when threads sleep", true, SWITCHES)),
    with_stacks(need("who wakes them", false, WAKEUP_EVENTS)),
    FIRST_WAKEUPS,
    FORKS,
    EXECS,
    FREED,
    RENAMED,
];

const CPU: &[Need] = &[
    with_stacks(need("what CPUs do", true, &["timer:hrtimer_expire_entry"])),
    FORKS,
    EXECS,
    EXITS,
    FREED,
    RENAMED,
];

/// Names are those of the file, and of what else there is.
const STACKS: &[Need] = &[];

const SYSCALLS: &[Need] = &[
    CALLS_BEGIN,
    CALLS_END,
    need("for how long threads sleep in them", false, SWITCHES),
    FORKS,
    EXECS,
    FREED,
    RENAMED,
];

/// Names the events of the beginnings and the ends of system calls; `any`: behind the events of any call.
macro_rules! calls {
    (any $begin:ident, $end:ident: $($call:literal),*) => {
        const $begin: &[&str] = &["raw_syscalls:sys_enter", $(concat!("syscalls:sys_enter_", $call)),*];
        const $end: &[&str] =
            &["raw_syscalls:sys_exit", "syscalls:sys_exit_any", $(concat!("syscalls:sys_exit_", $call)),*];
    };
    ($begin:ident, $end:ident: $($call:literal),*) => {
        const $begin: &[&str] = &[$(concat!("syscalls:sys_enter_", $call)),*];
        const $end: &[&str] = &[$(concat!("syscalls:sys_exit_", $call)),*];
    };
}

// Calls that open, read, write and sync files; kernels of some machines lack some of them.
calls!(any OPENS, OPENS_END: "open", "openat", "openat2", "creat");
calls!(any READS, READS_END:
    "read", "pread64", "readv", "preadv", "preadv2", "recvfrom", "recvmsg", "sendfile64", "copy_file_range",
    "splice");
calls!(any WRITES, WRITES_END:
    "write", "pwrite64", "writev", "pwritev", "pwritev2", "sendto", "sendmsg", "sendfile64",
    "copy_file_range", "splice");
calls!(any SYNCS, SYNCS_END: "fsync", "fdatasync", "sync_file_range", "syncfs", "sync");
// Calls that close files, or change which numbers stand for them.
calls!(OTHERS, OTHERS_END:
    "close", "dup", "dup2", "dup3", "close_range", "fcntl", "socket", "accept", "accept4", "eventfd",
    "eventfd2", "timerfd_create", "signalfd", "signalfd4", "inotify_init", "inotify_init1",
    "memfd_create", "unshare");

const IO: &[Need] = &[
    need("when requests come to disks", false, &["block:block_rq_issue"]),
    REQUESTS_END,
    REQUESTS_QUEUED,
    REQUESTS_BACK,
    Need {
        records: OTHERS,
        ..need("which files are used", false, &["syscalls:sys_enter_*", "raw_syscalls:sys_enter"])
    },
    Need {
        records: OTHERS_END,
        ..need("for how long they are used", false, &["syscalls:sys_exit_*", "raw_syscalls:sys_exit"])
    },
    Need { records: OPENS.split_at(1).1, ..need("when files are opened", false, OPENS) },
    Need { records: OPENS_END.split_at(2).1, ..need("how long opening takes", false, OPENS_END) },
    Need { records: READS.split_at(1).1, ..need("when files are read", false, READS) },
    Need { records: READS_END.split_at(2).1, ..need("how much is read", false, READS_END) },
    Need { records: WRITES.split_at(1).1, ..need("when files are written", false, WRITES) },
    Need { records: WRITES_END.split_at(2).1, ..need("how much is written", false, WRITES_END) },
    Need { records: SYNCS.split_at(1).1, ..need("when threads wait until it is on a disk", false, SYNCS) },
    Need { records: SYNCS_END.split_at(2).1, ..need("for how long they do", false, SYNCS_END) },
    need("which threads share their files", false, &["task:task_newtask"]),
    FORKS,
    need("when files are closed as another program runs", false, &["sched:sched_process_exec"]),
    EXITS,
    FREED,
    RENAMED,
];

const IRQS_BEGIN: &[&str] = &["irq:irq_handler_entry", "irq:softirq_entry"];
const IRQS_END: &[&str] = &["irq:irq_handler_exit", "irq:softirq_exit"];

const SOFTIRQS_DUE: Need = need("when soft interrupts are due", false, &["irq:softirq_raise"]);

const IRQ: &[Need] = &[
    Need { records: IRQS_BEGIN, ..need("when interrupts begin", true, IRQS_BEGIN) },
    Need { records: IRQS_END, ..need("when interrupts end", true, IRQS_END) },
    part_of("when handlers of hardware interrupts begin", IRQS_BEGIN.split_at(1).0),
    part_of("when handlers of hardware interrupts end", IRQS_END.split_at(1).0),
    part_of("when soft interrupts begin", IRQS_BEGIN.split_at(1).1),
    part_of("when soft interrupts end", IRQS_END.split_at(1).1),
    SOFTIRQS_DUE,
];

const LOCKS: &[Need] = &[
    with_stacks(need("when threads wait for the kernel's locks", false, &["lock:contention_begin"])),
    need("when they have them", false, &["lock:contention_end"]),
    need(
        "when threads wait for locks of their own",
        false,
        &["syscalls:sys_enter_futex", "raw_syscalls:sys_enter"],
    ),
    need("when they wait no longer", false, &["syscalls:sys_exit_futex", "raw_syscalls:sys_exit"]),
    WAKEUPS,
    need("which threads are of one process", false, &["task:task_newtask"]),
    EXECS,
    EXITS,
    FREED,
    RENAMED,
];

/// Events that say what the kernel takes, and what from its caches.
pub(super) const KMALLOCS: &[&str] = &["kmem:kmalloc", "kmem:kmalloc_node"];
pub(super) const CACHE_ALLOCS: &[&str] = &["kmem:kmem_cache_alloc", "kmem:kmem_cache_alloc_node"];

const MEMORY: &[Need] = &[
    need("which pages are taken", false, &["kmem:mm_page_alloc"]),
    need("which pages are given back", false, &["kmem:mm_page_free"]),
    // Kernels since 6.1 have no separate events for memory of a node.
    Need { records: KMALLOCS, ..need("what the kernel takes for itself", false, KMALLOCS) },
    Need { records: CACHE_ALLOCS, ..need("what it takes from its caches", false, CACHE_ALLOCS) },
    need("what of that it gives back", false, &["kmem:kfree"]),
    need("what it gives back to its caches", false, &["kmem:kmem_cache_free"]),
    need("page faults of processes", false, &["exceptions:page_fault_user"]),
    need("page faults of the kernel", false, &["exceptions:page_fault_kernel"]),
    need("when threads have to find memory", false, &["vmscan:mm_vmscan_direct_reclaim_begin"]),
    need("when they have found it", false, &["vmscan:mm_vmscan_direct_reclaim_end"]),
    need(
        "when threads have to find memory of their control group",
        false,
        &["vmscan:mm_vmscan_memcg_reclaim_begin"],
    ),
    need("when they have found that", false, &["vmscan:mm_vmscan_memcg_reclaim_end"]),
    need("who is killed as there is no memory", false, &["oom:mark_victim"]),
    FORKS,
    EXECS,
    EXITS,
    FREED,
    RENAMED,
];

const SUMMARY: &[Need] = &[
    need("who runs when", false, SWITCHES),
    WAKEUPS,
    FIRST_WAKEUPS,
    MOVES,
    need("when system calls begin", false, &["raw_syscalls:sys_enter", "syscalls:sys_enter_*"]),
    need("when system calls end", false, &["raw_syscalls:sys_exit", "syscalls:sys_exit_*"]),
    need("when handlers of hardware interrupts begin", false, IRQS_BEGIN.split_at(1).0),
    need("when handlers of hardware interrupts end", false, IRQS_END.split_at(1).0),
    need("when soft interrupts begin", false, IRQS_BEGIN.split_at(1).1),
    need("when soft interrupts end", false, IRQS_END.split_at(1).1),
    SOFTIRQS_DUE,
    need("when requests come to disks", false, &["block:block_rq_issue"]),
    REQUESTS_END,
    REQUESTS_QUEUED,
    REQUESTS_BACK,
    need("who is killed as there is no memory", false, &["oom:mark_victim"]),
    FORKS,
    EXECS,
    FREED,
    RENAMED,
];

impl Topic {
    /// All of them, with their names.
    pub const NAMES: [(&'static str, Self); 10] = [
        ("sched", Self::Sched),
        ("offcpu", Self::Offcpu),
        ("cpu", Self::Cpu),
        ("stacks", Self::Stacks),
        ("syscalls", Self::Syscalls),
        ("io", Self::Io),
        ("irq", Self::Irq),
        ("locks", Self::Locks),
        ("memory", Self::Memory),
        ("summary", Self::Summary),
    ];

    /// The names of those that use events which are known beforehand.
    pub fn recorded() -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(|(_, topic)| !topic.needs().is_empty()).map(|(name, _)| name)
    }

    /// Whether it makes use of what the recorder saw of the machine when it began.
    pub fn uses_initial_state(self) -> bool {
        matches!(self, Self::Io | Self::Locks)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, topic)| *topic == self).map_or("", |(name, _)| *name)
    }

    /// The events that it uses.
    pub fn needs(self) -> &'static [Need] {
        match self {
            Self::Sched => SCHED,
            Self::Offcpu => OFFCPU,
            Self::Cpu => CPU,
            Self::Stacks => STACKS,
            Self::Syscalls => SYSCALLS,
            Self::Io => IO,
            Self::Irq => IRQ,
            Self::Locks => LOCKS,
            Self::Memory => MEMORY,
            Self::Summary => SUMMARY,
        }
    }

    /// Whether it uses an event: `system:name`.
    pub(super) fn uses(self, event: &str) -> bool {
        let (system, name) = event.split_once(':').unwrap_or_default();
        self.needs().iter().any(|need| need.uses(system, name))
    }

    /// The events that are to be recorded with stacks for it, as `system:name`.
    pub fn stacks(self) -> impl Iterator<Item = &'static str> {
        self.needs().iter().filter(|need| need.has_stacks).flat_map(|need| need.records.iter().copied())
    }
}

impl std::str::FromStr for Topic {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == text);
        found.map(|(_, topic)| *topic).ok_or_else(|| {
            let names: Vec<&str> = Self::NAMES.iter().map(|(name, _)| *name).collect();
            format!("no such analysis; there are {}", names.join(", "))
        })
    }
}

impl Need {
    /// Whether system calls tell it.
    pub(super) fn is_of_calls(&self) -> bool {
        self.events.iter().any(|event| event.starts_with("raw_syscalls:") || event.starts_with("syscalls:"))
    }

    /// Whether an event is looked at for it.
    pub(super) fn uses(&self, system: &str, name: &str) -> bool {
        let is_it = |record: &&str| record.split_once(':') == Some((system, name));
        self.is_met_by(system, name) || self.records.iter().any(is_it)
    }

    /// Whether an event has the name of one that is needed, and the system of texts, which no kernel has.
    pub(super) fn is_like(&self, system: &str, name: &str) -> bool {
        let mut names = self.events.iter().filter_map(|event| event.split_once(':'));
        system == "text" && names.any(|(_, wanted)| wanted == name)
    }

    /// Whether all of its events meet another need, whose absence says that it is not met either.
    pub(super) fn is_part_of(&self, other: &Self) -> bool {
        let mut events = self.events.iter().filter_map(|event| event.split_once(':'));
        events.all(|(system, name)| other.is_met_by(system, name))
    }

    /// Whether an event is one of those that are needed.
    pub(super) fn is_met_by(&self, system: &str, name: &str) -> bool {
        self.events.iter().filter_map(|event| event.split_once(':')).any(|(of, wanted)| {
            of == system && wanted.strip_suffix('*').map_or(wanted == name, |start| name.starts_with(start))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_uses_what_those_use_that_it_is_made_of() {
        for topic in [Topic::Sched, Topic::Syscalls, Topic::Irq] {
            for record in topic.needs().iter().flat_map(|need| need.records) {
                let (system, name) = record.split_once(':').unwrap();
                assert!(Topic::Summary.needs().iter().any(|need| need.uses(system, name)), "{record}");
            }
        }
    }
}
