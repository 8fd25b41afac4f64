//! The fast lane: programs on raw tracepoints that build the very record that tracefs describes.
//!
//! A tracepoint program gets the record that the kernel has built for perf, and copies it. A program on the
//! raw tracepoint gets the tracepoint's arguments and writes the record straight into the page, which saves
//! the kernel's building it and the copy, needs no perf event, and is detached at once. It has to know how
//! the kernel makes the fields: the files in `events`, one for a subsystem, say so (`language`). They are
//! compiled at the start (`compile`) against the event's format in tracefs and the kernel's BTF, and whatever
//! does not match sends the event to the generic lane.
//!
//! | module | subject |
//! |---|---|
//! | `language` | the descriptions |
//! | `compile` | from a description to instructions |
//! | `syscalls` | system calls, which have programs of their own |
//! | `strings` | the strings that these are given |
//! | `together` | programs of many events |
//! | `memory` | what descriptions need of the kernel's memory |
//! | `modules` | the types of modules, whose events are like any others |

pub(crate) mod compile;
pub(crate) mod language;
mod memory;
mod modules;
pub mod strings;
mod syscalls;
pub mod together;

use spec::StackKind;
use std::{collections::HashMap, rc::Rc, sync::Arc};

pub use compile::Mismatch;
pub use memory::{MemoryError, PagesError, SymbolError};
pub use modules::Module;
pub use modules::ModuleError;
pub use syscalls::Table;
pub use syscalls::{Call, Hooks};

use compile::{Access, Asked, Extras, Rules, TypeNames, compile, fragment};
use language::Definition;
use modules::{Found, Modules};
use together::Fragment;

use super::{
    aggregate::Counter,
    context::ContextLayout,
    filter::{self, Facts},
};
use bpf::program::Body;
use ftrace_event::Format;
use ftrace_event::filter::program::Test;
use kernel::btf::{Btf, BtfError, RawTracepoint, TypeId};
use kernel::features::tracepoints_are_preemptible;
use kernel::version::KernelVersion;

/// From here on the kernel keeps a raw tracepoint's program from interrupting itself (`__bpf_trace_run`,
/// kernel/trace/bpf_trace.c), which each event's counts rely on.
const SINCE: KernelVersion = KernelVersion::new(6, 1, 0);

/// The descriptions, by system.
static DESCRIPTIONS: [(&str, &str); 81] = [
    ("alarmtimer", include_str!("events/alarmtimer.txt")),
    ("block", include_str!("events/block.txt")),
    ("btrfs", include_str!("events/btrfs.txt")),
    ("capability", include_str!("events/capability.txt")),
    ("cgroup", include_str!("events/cgroup.txt")),
    ("clk", include_str!("events/clk.txt")),
    ("compaction", include_str!("events/compaction.txt")),
    ("cpuhp", include_str!("events/cpuhp.txt")),
    ("csd", include_str!("events/csd.txt")),
    ("damon", include_str!("events/damon.txt")),
    ("dma", include_str!("events/dma.txt")),
    ("erofs", include_str!("events/erofs.txt")),
    ("error_report", include_str!("events/error_report.txt")),
    ("exceptions", include_str!("events/exceptions.txt")),
    ("ext4", include_str!("events/ext4.txt")),
    ("fib", include_str!("events/fib.txt")),
    ("filelock", include_str!("events/filelock.txt")),
    ("filemap", include_str!("events/filemap.txt")),
    ("fs_dax", include_str!("events/fs_dax.txt")),
    ("fuse", include_str!("events/fuse.txt")),
    ("huge_memory", include_str!("events/huge_memory.txt")),
    ("hugetlbfs", include_str!("events/hugetlbfs.txt")),
    ("io_uring", include_str!("events/io_uring.txt")),
    ("iocost", include_str!("events/iocost.txt")),
    ("iomap", include_str!("events/iomap.txt")),
    ("iommu", include_str!("events/iommu.txt")),
    ("ipi", include_str!("events/ipi.txt")),
    ("irq", include_str!("events/irq.txt")),
    ("irq_matrix", include_str!("events/irq_matrix.txt")),
    ("irq_vectors", include_str!("events/irq_vectors.txt")),
    ("jbd2", include_str!("events/jbd2.txt")),
    ("kmem", include_str!("events/kmem.txt")),
    ("ksm", include_str!("events/ksm.txt")),
    ("kvm", include_str!("events/kvm.txt")),
    ("kvmmmu", include_str!("events/kvmmmu.txt")),
    ("kyber", include_str!("events/kyber.txt")),
    ("lock", include_str!("events/lock.txt")),
    ("maple_tree", include_str!("events/maple_tree.txt")),
    ("memcg", include_str!("events/memcg.txt")),
    ("migrate", include_str!("events/migrate.txt")),
    ("mmap", include_str!("events/mmap.txt")),
    ("mptcp", include_str!("events/mptcp.txt")),
    ("msr", include_str!("events/msr.txt")),
    ("napi", include_str!("events/napi.txt")),
    ("net", include_str!("events/net.txt")),
    ("nmi", include_str!("events/nmi.txt")),
    ("notifier", include_str!("events/notifier.txt")),
    ("oom", include_str!("events/oom.txt")),
    ("page_isolation", include_str!("events/page_isolation.txt")),
    ("page_pool", include_str!("events/page_pool.txt")),
    ("pagemap", include_str!("events/pagemap.txt")),
    ("percpu", include_str!("events/percpu.txt")),
    ("power", include_str!("events/power.txt")),
    ("qdisc", include_str!("events/qdisc.txt")),
    ("raw_syscalls", include_str!("events/raw_syscalls.txt")),
    ("rcu", include_str!("events/rcu.txt")),
    ("readahead", include_str!("events/readahead.txt")),
    ("rpm", include_str!("events/rpm.txt")),
    ("rseq", include_str!("events/rseq.txt")),
    ("sched", include_str!("events/sched.txt")),
    ("signal", include_str!("events/signal.txt")),
    ("skb", include_str!("events/skb.txt")),
    ("sock", include_str!("events/sock.txt")),
    ("task", include_str!("events/task.txt")),
    ("tcp", include_str!("events/tcp.txt")),
    ("thermal", include_str!("events/thermal.txt")),
    ("thp", include_str!("events/thp.txt")),
    ("timer", include_str!("events/timer.txt")),
    ("timer_migration", include_str!("events/timer_migration.txt")),
    ("timestamp", include_str!("events/timestamp.txt")),
    ("tlb", include_str!("events/tlb.txt")),
    ("vmalloc", include_str!("events/vmalloc.txt")),
    ("vmscan", include_str!("events/vmscan.txt")),
    ("vsock", include_str!("events/vsock.txt")),
    ("vsyscall", include_str!("events/vsyscall.txt")),
    ("watchdog", include_str!("events/watchdog.txt")),
    ("wbt", include_str!("events/wbt.txt")),
    ("workqueue", include_str!("events/workqueue.txt")),
    ("writeback", include_str!("events/writeback.txt")),
    ("xdp", include_str!("events/xdp.txt")),
    ("xfs", include_str!("events/xfs.txt")),
];

/// Systems whose events are mostly of threads: a program of one of them is hardly ever interrupted by another
/// of these events, which the kernel would skip if both have the same program.
const TOGETHER: [&str; 33] = [
    "btrfs",
    "cgroup",
    "clk",
    "compaction",
    "cpuhp",
    "damon",
    "erofs",
    "ext4",
    "fib",
    "filelock",
    "filemap",
    "fs_dax",
    "fuse",
    "huge_memory",
    "hugetlbfs",
    "iomap",
    "jbd2",
    "ksm",
    "kvm",
    "kvmmmu",
    "maple_tree",
    "migrate",
    "mmap",
    "nfs",
    "oom",
    "page_isolation",
    "thermal",
    "thp",
    "timestamp",
    "vmscan",
    "vsock",
    "writeback",
    "xfs",
];

/// Events of these systems that fire in interrupts: where a request ends or memory is short.
const IN_INTERRUPTS: [&str; 7] = [
    "iomap_dio_complete",
    "kvm_apic_accept_irq",
    "kvm_msi_set_irq",
    "kvm_set_irq",
    "mm_compaction_wakeup_kcompactd",
    "mm_vmscan_wakeup_kswapd",
    "sb_clear_inode_writeback",
];

/// How an event is recorded.
#[derive(Clone, Debug, Default)]
pub enum Lane {
    /// By a generic program.
    #[default]
    Generic,
    /// By a program of its own.
    Fast(FastEvent),
    /// By the programs of a probe.
    Probe,
    /// By the programs of the events that it follows.
    Stack(StackKind),
}

impl Lane {
    /// Its name, for people and files.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Generic => "generic",
            Self::Fast(_) => "fast",
            Self::Probe => "probe",
            Self::Stack(_) => "stack",
        }
    }
}

/// A program for one event, ready to be loaded.
#[derive(Clone, Debug)]
pub struct FastEvent(pub Kind);

impl FastEvent {
    /// Has its records carry this number in the place of the event's id. Those of system calls carry what
    /// their slots say.
    pub fn set_id(&mut self, number: u16) {
        if let Kind::Own { id, .. } = &mut self.0 {
            *id = number;
        }
    }
}

/// What kind of program.
#[derive(Clone, Debug)]
pub enum Kind {
    /// One for this event alone.
    Own {
        /// The event's id.
        id: u16,
        /// `attach_btf_id`.
        tracepoint: TypeId,
        /// The module that it is in; `None` for the kernel itself.
        module: Option<Arc<Module>>,
        /// With direct loads.
        direct: Body,
        /// With copied members, should the kernel refuse the other.
        copied: Box<Body>,
        /// What of it makes the record, if it can be part of a program of many events.
        together: Option<Box<Fragment>>,
    },
    /// The one for all system calls.
    Call(Call),
    /// One for this event alone that another process has attached: there is no code of it here.
    Attached,
}

/// The kernel is too old for the fast lane.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the fast lane needs Linux {SINCE} or later")]
pub struct TooOld;

/// Plans fast events for the running kernel.
#[derive(Debug)]
pub struct FastLane<'a> {
    btf: &'a Btf,
    types: Rc<TypeNames>,
    access: Access,
    modules: Modules,
    /// How members are read in events of modules, if there was one.
    access_in_modules: Option<Access>,
    definitions: HashMap<&'static str, Vec<Definition<'static>>>,
    calls: Option<Hooks>,
    /// Whether many events can have one program.
    shares_programs: bool,
}

/// A tracepoint, and what is known of the types there.
#[derive(Debug)]
pub struct Target {
    tracepoint: RawTracepoint,
    module: Option<Arc<Module>>,
    types: Rc<TypeNames>,
    access: Access,
}

impl<'a> FastLane<'a> {
    /// The lane on the running kernel, whose type information `btf` is.
    pub fn new(btf: &'a Btf) -> Result<Self, TooOld> {
        let running = KernelVersion::running().filter(|running| *running >= SINCE).ok_or(TooOld)?;
        let access = Access::of_kernel(btf);
        // A thread that is preempted in a program would keep all of its events from the others on the CPU.
        let shares_programs = running >= together::SINCE
            && !tracepoints_are_preemptible()
            && matches!(access, Access::Direct(Some(_)));
        Ok(Self {
            btf,
            types: Rc::new(TypeNames::new(btf)),
            access,
            modules: Modules::default(),
            access_in_modules: None,
            definitions: HashMap::new(),
            calls: None,
            shares_programs,
        })
    }

    /// A program for this event, with a filter of its records, and contexts that are part of `format`.
    pub fn plan(
        &mut self,
        system: &str,
        name: &str,
        format: &Format,
        filter: Option<(&Test, &Facts)>,
        contexts: &ContextLayout,
    ) -> Result<FastEvent, Mismatch> {
        let filter =
            filter.map(|(test, facts)| filter::Program::compile_fast(test, format.id, facts)).transpose()?;
        let filter = filter.as_ref().map(|program| Asked { program, apart: None });
        self.plan_with(system, name, format, Extras { filter, counter: None, contexts })
    }

    /// A program that counts this event's records, those that the filter takes.
    pub fn plan_counting(
        &mut self,
        system: &str,
        name: &str,
        format: &Format,
        filter: Option<&filter::Program>,
        counter: &Counter,
    ) -> Result<FastEvent, Mismatch> {
        let filter = filter.map(|program| Asked { program, apart: None });
        let contexts = &ContextLayout::default();
        self.plan_with(system, name, format, Extras { filter, counter: Some(counter), contexts })
    }

    fn plan_with(
        &mut self,
        system: &str,
        name: &str,
        format: &Format,
        extras: Extras<'_>,
    ) -> Result<FastEvent, Mismatch> {
        // What counts has a program of its own.
        if system == "syscalls" && extras.counter.is_some() {
            return self.plan_counted_call(name, format, extras);
        }
        if matches!(system, "syscalls" | "raw_syscalls") && extras.counter.is_none() {
            if extras.filter.is_some() || !extras.contexts.is_empty() {
                return Err(Mismatch::SharedProgram);
            }
            self.find_hooks()?;
            return syscalls::plan(system, name, format).map(|call| FastEvent(Kind::Call(call)));
        }
        self.plan_described(system, name, format, extras)
    }

    /// Makes sure that there are programs of all system calls.
    ///
    /// # Errors
    /// They do not suit the kernel.
    pub fn find_hooks(&mut self) -> Result<(), Mismatch> {
        if self.calls.is_none() {
            self.calls = Some(Hooks::find(self.btf)?);
        }
        Ok(())
    }

    /// A program that counts the records of a single system call.
    fn plan_counted_call(
        &mut self,
        name: &str,
        format: &Format,
        extras: Extras<'_>,
    ) -> Result<FastEvent, Mismatch> {
        let (tracepoint, text) = syscalls::description(name, format)?;
        let definitions =
            language::parse(&text).map_err(|_| Mismatch::Expression("the names of its fields"))?;
        let found = self.btf.raw_tracepoint(tracepoint)?;
        let definition = definitions.first().ok_or(Mismatch::NotDescribed)?;
        let compiled =
            |access| compile(definition, &found.args, format, &self.types, access, Rules::FAST, extras);
        let (direct, copied) = (compiled(self.access)?, Box::new(compiled(Access::Copied)?));
        let (id, tracepoint) = (format.id, found.id);
        Ok(FastEvent(Kind::Own { id, tracepoint, module: None, direct, copied, together: None }))
    }

    fn plan_described(
        &mut self,
        system: &str,
        name: &str,
        format: &Format,
        extras: Extras<'_>,
    ) -> Result<FastEvent, Mismatch> {
        let (&system, text) = DESCRIPTIONS
            .iter()
            .map(|(known, text)| (known, text))
            .find(|(known, _)| **known == system)
            .ok_or(Mismatch::NotDescribed)?;
        let is_described = |definition: &&Definition<'_>| definition.names.contains(&name);
        let definitions =
            self.definitions.entry(system).or_insert_with(|| language::parse(text).unwrap_or_default());
        if !definitions.iter().any(|definition| is_described(&definition)) {
            return Err(Mismatch::NotDescribed);
        }
        let Target { tracepoint, module, types, access } = self.target(system, name)?;
        let mut mismatch = Mismatch::NotDescribed;
        let definitions = self.definitions.get(system).into_iter().flatten();
        for definition in definitions.filter(is_described) {
            let compiled =
                |access| compile(definition, &tracepoint.args, format, &types, access, Rules::FAST, extras);
            match compiled(access) {
                Ok(direct) => {
                    let copied = Box::new(compiled(Access::Copied)?);
                    let is_plain =
                        extras.filter.is_none() && extras.counter.is_none() && extras.contexts.is_empty();
                    let can_share = TOGETHER.contains(&system) && !IN_INTERRUPTS.contains(&name);
                    let together = (is_plain && self.shares_programs && can_share)
                        .then(|| fragment(definition, &tracepoint.args, format, &types, access))
                        .flatten()
                        .map(Box::new);
                    let (id, tracepoint) = (format.id, tracepoint.id);
                    return Ok(FastEvent(Kind::Own { id, tracepoint, module, direct, copied, together }));
                }
                // It fits, up to what cannot be had; another could take these arguments for something else.
                Err(error @ Mismatch::Memory(_)) => return Err(error),
                Err(error) => mismatch = error,
            }
        }
        Err(mismatch)
    }

    /// The tracepoint of an event: the kernel's own, or else that of a module.
    fn target(&mut self, system: &str, name: &str) -> Result<Target, Mismatch> {
        let missing = match self.btf.raw_tracepoint(name) {
            Ok(tracepoint) => {
                let (types, access) = (Rc::clone(&self.types), self.access);
                return Ok(Target { tracepoint, module: None, types, access });
            }
            Err(missing) => missing,
        };
        if !matches!(missing, BtfError::NoType(_)) {
            return Err(missing.into());
        }
        let Found { module, types } = self.modules.with_tracepoint(self.btf, name, system)?;
        let access = *self.access_in_modules.get_or_insert_with(|| self.access.of_module(self.btf));
        let tracepoint = types.btf.raw_tracepoint(name)?;
        Ok(Target { tracepoint, module: Some(module), types, access })
    }

    /// The events that have descriptions, as system and name, and those that stand for all system calls: with
    /// strings and without.
    pub fn described() -> Vec<(&'static str, &'static str)> {
        let mut events = vec![
            ("raw_syscalls", "sys_enter"),
            ("raw_syscalls", "sys_exit"),
            ("syscalls", "sys_enter_rename"),
            ("syscalls", "sys_exit_rename"),
        ];
        for (system, text) in DESCRIPTIONS {
            let definitions = language::parse(text).unwrap_or_default();
            events.extend(definitions.into_iter().flat_map(|it| it.names).map(|name| (system, name)));
        }
        events.sort_unstable();
        events.dedup();
        events
    }

    /// The system call hooks, if an event needs them.
    pub fn into_hooks(self) -> Option<Hooks> {
        self.calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_description_can_be_read() {
        for (system, text) in DESCRIPTIONS {
            let definitions = language::parse(text).unwrap_or_else(|error| panic!("{system}: {error}"));
            assert!(!definitions.is_empty(), "{system}");
            for definition in definitions {
                assert!(!definition.fields.is_empty(), "{system}:{}", definition.names[0]);
            }
        }
    }
}
