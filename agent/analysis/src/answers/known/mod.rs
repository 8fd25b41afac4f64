//! Events that analyses understand, with the fields that they use.
//!
//! A field is found by its name and by what it is in the kernel, once for each event of a file, so records of
//! any kernel's layout are read. An event of a file that lacks a field which an analysis cannot do without,
//! or has one of another type, is not known.

mod kind;

use self::kind::{Kind, is_optional, meaning};
use super::ids::Ids;
use ftrace_event::record::flag;
use ftrace_event::syscalls::{ANY_CALL, CallNames, call_of};
use ftrace_event::{EventTable, FieldReader, Meaning, Printer, Value};

/// A thread's id as records have it. 0 is the idle thread of every CPU.
pub type Tid = u32;

/// `sched:sched_switch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch<'r> {
    /// The thread that gives the CPU away.
    pub prev: Tid,
    /// Its name.
    pub prev_comm: &'r [u8],
    /// Why, as the kernel's `prev_state`.
    pub prev_state: u64,
    /// The thread that gets it.
    pub next: Tid,
    /// Its name.
    pub next_comm: &'r [u8],
}

/// `sched:sched_waking`, `sched:sched_wakeup` and `sched:sched_wakeup_new`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wakeup<'r> {
    /// The thread that may run from now on.
    pub tid: Tid,
    /// Its name.
    pub comm: &'r [u8],
    /// Whether it runs for the first time.
    pub is_new: bool,
}

/// A request to a disk or another block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'r> {
    /// The device: 12 bits of major number above 20 bits of minor number.
    pub device: u64,
    /// The first sector, of 512 bytes.
    pub sector: u64,
    /// How much is read or written.
    pub bytes: u64,
    /// What is done, as the kernel's letters: `R` reads, `W` writes, `F` flushes, `D` discards, behind these
    /// `S` for synchronous, `M` for metadata, `A` for read ahead and `F` for forced unit access
    /// (`blk_fill_rwbs`, kernel/trace/blktrace.c).
    pub rwbs: &'r [u8],
    /// The thread that asks for it, or that does it for others.
    pub comm: &'r [u8],
}

/// The first arguments of a system call, where a record has them.
pub type Arguments = [Option<i64>; 3];

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known<'r> {
    /// A CPU goes from one thread to another.
    Switch(Switch<'r>),
    /// A thread is woken.
    Wakeup(Wakeup<'r>),
    /// `sched:sched_migrate_task`: a thread that does not run gets another CPU.
    Migrate {
        /// The thread.
        tid: Tid,
    },
    /// `sched:sched_process_fork`: there is a new thread.
    Fork {
        /// The new one.
        child: Tid,
        /// Its name.
        comm: &'r [u8],
    },
    /// `task:task_newtask`: there is a new thread, and what it shares with the one that made it.
    NewTask {
        /// The new one.
        child: Tid,
        /// Its name.
        comm: &'r [u8],
        /// Whether the open files of both are the same (`CLONE_FILES`).
        shares_files: bool,
        /// Whether both are of one process (`CLONE_THREAD`).
        is_thread: bool,
        /// Whether the memory of both is the same for as long as both live: `CLONE_VM` without `CLONE_VFORK`,
        /// after which the new one runs another program.
        shares_memory: bool,
    },
    /// `task:task_rename`: a thread has another name from now on.
    Renamed {
        /// The thread.
        tid: Tid,
        /// Its name, where the record has it.
        comm: Option<&'r [u8]>,
        /// The name that it had, where the record has it.
        before: &'r [u8],
    },
    /// `sched:sched_process_exec`: a process runs another program from now on, with this thread as its only
    /// one.
    Exec {
        /// The thread, as the first one of its process.
        tid: Tid,
        /// The id that it had before, where the record has it.
        from: Option<Tid>,
    },
    /// `sched:sched_process_exit`: a thread ends.
    Exit {
        /// The thread.
        tid: Tid,
    },
    /// `sched:sched_process_free`: the kernel forgets a thread. Its id may be another one's by then.
    Freed {
        /// The id that it had.
        tid: Tid,
    },
    /// An id has a new thread, as [`Lives`](super::Lives) says.
    Begins {
        /// The thread.
        child: Tid,
        /// Its name, where the record has it.
        comm: &'r [u8],
        /// Whether it is known to be of the process that made it.
        is_thread: bool,
        /// Whether it was seen to begin; otherwise it was found to have an id that nobody had.
        is_seen: bool,
    },
    /// An id has no thread any more, as [`Lives`](super::Lives) says.
    Ends {
        /// The id.
        tid: Tid,
    },
    /// A thread has another id from now on, as [`Lives`](super::Lives) says: that of the first thread of its
    /// process, whose place it takes.
    Takes {
        /// The id that it had.
        from: Tid,
        /// The id that it has.
        to: Tid,
    },
    /// Something else, which shows that its thread has the CPU.
    Seen,
    /// A system call begins: of `raw_syscalls` or of `syscalls`.
    CallEnter {
        /// The number of the call: that of the machine, or one of [`CallNames`] where the record has none.
        number: i64,
        /// Its first arguments, where the record has them.
        arguments: Arguments,
        /// The path that it is given as `filename` or `pathname`, where the record has a copy.
        path: Option<&'r [u8]>,
        /// Whether the event is of all calls, or of one.
        is_raw: bool,
    },
    /// A system call ends.
    CallExit {
        /// The number of the call, or [`ANY_CALL`] for the one that the thread is in.
        number: i64,
        /// What it returns; from -4095 to -1 an error's number.
        result: i64,
        /// Whether the event is of all calls, or of one.
        is_raw: bool,
    },
    /// `irq:irq_handler_entry`: a handler of a hardware interrupt begins.
    IrqEntry {
        /// The interrupt.
        irq: i64,
        /// Its handler.
        name: &'r [u8],
    },
    /// `irq:irq_handler_exit`.
    IrqExit {
        /// The interrupt.
        irq: i64,
    },
    /// `irq:softirq_raise`: a soft interrupt is due on this CPU.
    SoftirqRaise {
        /// Which.
        vector: u64,
    },
    /// `irq:softirq_entry`.
    SoftirqEntry {
        /// Which.
        vector: u64,
    },
    /// `irq:softirq_exit`.
    SoftirqExit {
        /// Which.
        vector: u64,
    },
    /// `block:block_rq_insert`: a request is put into the queue of its device.
    BlockInsert(Request<'r>),
    /// `block:block_rq_issue`: a request is given to the device's driver.
    BlockIssue(Request<'r>),
    /// `block:block_rq_requeue`: the driver gives it back.
    BlockRequeue {
        /// The device.
        device: u64,
        /// The first sector.
        sector: u64,
        /// What is done, as in [`Request::rwbs`].
        rwbs: &'r [u8],
    },
    /// `block:block_rq_complete`: a request, or a part of it, is done.
    BlockComplete {
        /// The device.
        device: u64,
        /// The first sector of what is done.
        sector: u64,
        /// How many sectors.
        sectors: u64,
        /// What is done, as in [`Request::rwbs`].
        rwbs: &'r [u8],
        /// Whether it failed; not if the record does not say.
        is_failed: bool,
    },
    /// `lock:contention_begin`: a thread waits for a lock of the kernel.
    LockBegin {
        /// The lock's address.
        lock: u64,
        /// Its kind: `LCB_F_*` of include/trace/events/lock.h.
        flags: u64,
    },
    /// `lock:contention_end`: it waits no longer.
    LockEnd {
        /// The lock's address.
        lock: u64,
        /// 0 if the thread has the lock now, otherwise an error's number.
        result: i64,
    },
    /// `kmem:mm_page_alloc`.
    PageAlloc {
        /// The first page's number; `None` if there was none left.
        pfn: Option<u64>,
        /// How many: 2 to the power of this.
        order: u64,
    },
    /// `kmem:mm_page_free`.
    PageFree {
        /// The first page's number.
        pfn: u64,
        /// How many: 2 to the power of this.
        order: u64,
    },
    /// `kmem:kmalloc` and `kmem:kmem_cache_alloc`: the kernel takes memory for its own use.
    SlabAlloc {
        /// Where it is; 0 if there was none.
        address: u64,
        /// The code that asked for it.
        call_site: u64,
        /// How many bytes were asked for.
        requested: u64,
        /// How many were taken.
        allocated: u64,
        /// The cache that it is from, empty where the record does not say. `None` if it is one of `kmalloc`,
        /// which has caches for sizes.
        cache: Option<&'r [u8]>,
    },
    /// `kmem:kfree` and `kmem:kmem_cache_free`.
    SlabFree {
        /// Where it was.
        address: u64,
    },
    /// `exceptions:page_fault_user` and `exceptions:page_fault_kernel`.
    PageFault {
        /// What was not there.
        address: u64,
        /// Whether a process wanted it, or the kernel.
        is_user: bool,
    },
    /// `vmscan:mm_vmscan_direct_reclaim_begin` and `vmscan:mm_vmscan_memcg_reclaim_begin`: a thread that
    /// wants memory has to find some first.
    ReclaimBegin {
        /// Whether it is its control group that has none left, or the machine.
        is_of_group: bool,
    },
    /// `vmscan:mm_vmscan_direct_reclaim_end` and `vmscan:mm_vmscan_memcg_reclaim_end`.
    ReclaimEnd {
        /// Whether it was its control group that had none left.
        is_of_group: bool,
        /// How many pages it found.
        pages: u64,
    },
    /// `oom:mark_victim`: a process is killed as there is no memory.
    OomVictim {
        /// Its first thread.
        tid: Tid,
        /// Its name, where the record has it.
        comm: &'r [u8],
    },
}

/// Most fields that an event is read from.
const FIELDS: usize = 6;

/// Flags of include/uapi/linux/sched.h.
mod clone {
    pub(super) const VM: u64 = 0x100;
    pub(super) const FILES: u64 = 0x400;
    pub(super) const VFORK: u64 = 0x4000;
    pub(super) const THREAD: u64 = 0x10000;
}

/// An event of a file, and where its fields are.
#[derive(Clone, Debug)]
struct Plan {
    kind: Kind,
    /// The thread that the record is of.
    common_pid: Option<FieldReader>,
    common_flags: Option<FieldReader>,
    /// In the order of [`Kind::of`].
    fields: [Option<FieldReader>; FIELDS],
    /// The number of the call, where the record has none.
    call: Option<i64>,
}

impl Plan {
    fn of(event: &Printer, calls: &CallNames) -> Option<Self> {
        let (kind, names) = Kind::of(event.system(), event.name())?;
        let mut fields = [None; FIELDS];
        for (place, name) in fields.iter_mut().zip(names) {
            *place = event.typed(name, meaning(name));
        }
        let is_complete =
            names.iter().zip(&fields).all(|(name, field)| field.is_some() || is_optional(kind, name));
        let mut call = None;
        if matches!(kind, Kind::CallEnter { is_raw: false } | Kind::CallExit { is_raw: false }) {
            // Kernels before 3.15 call it `nr`.
            fields[0] = fields[0].or_else(|| event.typed("nr", Meaning::Number));
            call = calls.number_of(call_of(event.name())?);
        }
        if kind == (Kind::CallEnter { is_raw: false }) {
            // The arguments stand behind the number, in their order.
            let number = ["__syscall_nr", "nr"].into_iter().find_map(|name| event.field_index(name));
            let first = number.map_or(event.format().common.len(), |number| number + 1);
            let argument = |nth: usize| event.field(first + nth);
            let text = |name| event.typed(name, Meaning::Text);
            let copies = ["__filename_val", "__pathname_val", "filename", "pathname"];
            let path = copies.into_iter().find_map(text);
            fields = [fields[0], None, argument(0), argument(1), argument(2), path];
        }
        let common = |name| event.typed(name, Meaning::Number);
        let (common_pid, common_flags) = (common("common_pid"), common("common_flags"));
        is_complete.then_some(Self { kind, common_pid, common_flags, fields, call })
    }
}

/// Where a record was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Context {
    /// By a thread.
    #[default]
    Thread,
    /// In a soft interrupt.
    Softirq,
    /// In an interrupt, of whatever kind.
    Irq,
    /// By the thread, or in an interrupt that came while it ran: imports of texts and of other tracers lack
    /// this.
    Unknown,
}

impl Context {
    pub(super) fn of(flags: u64) -> Self {
        if flags & (flag::HARD_IRQ | flag::NMI) != 0 {
            Self::Irq
        } else if flags & flag::SOFT_IRQ != 0 {
            Self::Softirq
        } else {
            Self::Thread
        }
    }
}

/// A record that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'r> {
    /// The thread that was running; `None` if the record does not say.
    pub tid: Option<Tid>,
    /// Whether it was interrupted.
    pub context: Context,
    /// What it is about.
    pub known: Known<'r>,
    /// Which of its threads the recording follows.
    pub follows: Follows,
    /// Not each end of what it begins was recorded, or not each beginning: whether it goes on is not known.
    pub ends_unseen: bool,
}

/// Which threads of an event a recording follows: those of which it has every switch. Of others, nothing is
/// known from one record to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is about something else")]
pub struct Follows {
    /// The thread that was running; of a switch, the one that gives its CPU away.
    pub current: bool,
    /// The thread that it is about: the one that gets a CPU, is woken, is new or was freed.
    pub other: bool,
    /// Whether it does on all CPUs: otherwise a thread may run where nothing tells.
    pub every_cpu: bool,
    /// Whether it follows threads from their first moment on, or from its own: otherwise a thread may become
    /// one of those while it runs.
    pub from_begin: bool,
    /// Whether all threads and CPUs were recorded: otherwise an event may end what others began.
    pub all: bool,
}

impl Follows {
    /// All of a whole recording.
    pub const ALL: Self = Self { current: true, other: true, every_cpu: true, from_begin: true, all: true };
}

impl<'r> Event<'r> {
    /// One of a recording of all threads.
    pub fn whole(tid: Option<Tid>, context: Context, known: Known<'r>) -> Self {
        Self { tid, context, known, follows: Follows::ALL, ends_unseen: false }
    }
}

/// The events of a file that are known.
#[derive(Clone, Debug)]
pub struct KnownEvents {
    /// By the events' numbers.
    plans: Vec<Option<Plan>>,
    /// Events of the kernel's names whose fields are of other types, or are not there.
    foreign: Ids,
}

impl KnownEvents {
    /// Those of a table for which `is_wanted` holds, of a file with these system calls.
    pub fn of(events: &EventTable, calls: &CallNames, is_wanted: impl Fn(&Printer) -> bool) -> Self {
        let len = events.iter().map(|event| usize::from(event.format().id) + 1).max().unwrap_or(0);
        let mut plans = vec![None; len];
        let mut foreign = Ids::default();
        for event in events.iter().filter(|event| is_wanted(event)) {
            if let Some(plan) = plans.get_mut(usize::from(event.format().id)) {
                *plan = Plan::of(event, calls);
                if plan.is_none() && Kind::of(event.system(), event.name()).is_some() {
                    foreign.insert(event.format().id);
                }
            }
        }
        Self { plans, foreign }
    }

    /// Whether an event has the name of one that is understood, and other fields.
    pub fn is_foreign(&self, id: u16) -> bool {
        self.foreign.contains(id)
    }

    /// Whether an event of a name is known.
    pub fn has(&self, events: &EventTable, system: &str, name: &str) -> bool {
        let is_it = |event: &&Printer| event.system() == system && event.name() == name;
        events.iter().filter(is_it).any(|event| self.contains(event.format().id))
    }

    /// The same, and of all others that are known that their threads have the CPU.
    #[must_use]
    pub fn with_seen(mut self, events: &EventTable) -> Self {
        // They say nothing of their calls.
        let calls = CallNames::default();
        for event in events.iter().filter(|event| !event.is_stack()) {
            if let Some(plan) = self.plans.get_mut(usize::from(event.format().id))
                && plan.is_none()
            {
                *plan = Plan::of(event, &calls).map(|plan| Plan { kind: Kind::Seen, ..plan });
            }
        }
        self
    }

    /// The same, without the flags of records, where these are not known.
    #[must_use]
    pub fn without_contexts(mut self) -> Self {
        self.plans.iter_mut().flatten().for_each(|plan| plan.common_flags = None);
        self
    }

    /// Whether a record of an event tells no more than that its thread has the CPU.
    pub fn is_seen_only(&self, id: u16) -> bool {
        self.plans.get(usize::from(id)).and_then(Option::as_ref).is_some_and(|plan| plan.kind == Kind::Seen)
    }

    /// Whether an event is known, by the events' numbers.
    pub(super) fn flags(&self) -> Vec<bool> {
        self.plans.iter().map(Option::is_some).collect()
    }

    /// Whether an event is known.
    pub fn contains(&self, id: u16) -> bool {
        self.plans.get(usize::from(id)).is_some_and(Option::is_some)
    }

    /// Reads a record. `None` if its event is not known, or if it is too short for what its event has.
    #[inline]
    pub fn read<'r>(&self, id: u16, record: &'r [u8]) -> Option<Event<'r>> {
        let plan = self.plans.get(usize::from(id))?.as_ref()?;
        let common = |field: Option<FieldReader>| field?.number(record);
        let tid = common(plan.common_pid).map(|tid| tid as Tid);
        let context = common(plan.common_flags).map_or(Context::Unknown, Context::of);
        let fields = Fields { of: &plan.fields, call: plan.call, record };
        Some(Event::whole(tid, context, fields.known(plan.kind, tid)?))
    }
}

/// Whether a dot stands where a character of UTF-8 goes on.
fn has_dot_in_character(text: &[u8]) -> bool {
    const LEADS: std::ops::RangeInclusive<u8> = 0xc2..=0xf4;
    let mut chunks = text.utf8_chunks().peekable();
    while let Some(chunk) = chunks.next() {
        let is_begun = chunk.invalid().first().is_some_and(|byte| LEADS.contains(byte));
        if is_begun && chunks.peek().is_some_and(|next| next.valid().starts_with('.')) {
            return true;
        }
    }
    false
}

/// The fields of a record that it is read from, in the order of [`Kind::of`].
struct Fields<'e, 'r> {
    of: &'e [Option<FieldReader>; FIELDS],
    call: Option<i64>,
    record: &'r [u8],
}

impl<'r> Fields<'_, 'r> {
    fn signed(&self, nth: usize) -> Option<i64> {
        self.number(nth).map(u64::cast_signed)
    }

    #[inline]
    fn number(&self, nth: usize) -> Option<u64> {
        self.of[nth].as_ref()?.number(self.record)
    }

    fn tid(&self, nth: usize) -> Option<Tid> {
        self.number(nth).map(|number| number as Tid)
    }

    /// The number that stands for none where all others are taken: all its bits are ones.
    fn none(&self, nth: usize) -> u64 {
        self.of[nth].map_or(u64::MAX, |field| field.all_ones())
    }

    /// A text; none where the record has none.
    #[inline]
    fn text(&self, nth: usize) -> &'r [u8] {
        self.of[nth].as_ref().and_then(|field| field.text(self.record)).unwrap_or_default()
    }

    /// The same, if the event has it.
    fn text_if_there(&self, nth: usize) -> Option<&'r [u8]> {
        self.of[nth].map(|_| self.text(nth))
    }

    /// A path, if it is known. The kernel's own copies (`syscall_put_data`, kernel/trace/trace_syscalls.c,
    /// from 6.19 on) have dots for bytes from 0x80 to 0x9f, so that names of several files are one.
    fn path(&self, nth: usize) -> Option<&'r [u8]> {
        self.text_if_there(nth).filter(|path| !path.is_empty() && !has_dot_in_character(path))
    }

    /// The number of a system call.
    fn call_number(&self) -> Option<i64> {
        let number = self.signed(0);
        match self.call {
            // The event is of one call, and what its record has is no number of one.
            Some(_) if number.is_none_or(|number| number < 0) => self.call,
            _ => number,
        }
    }

    fn request(&self) -> Option<Request<'r>> {
        let (device, sector, bytes) = (self.number(0)?, self.number(1)?, self.number(2)?);
        Some(Request { device, sector, bytes, rwbs: self.text(3), comm: self.text(4) })
    }

    fn arguments(&self, is_raw: bool) -> Arguments {
        if !is_raw {
            return [2, 3, 4].map(|nth| self.signed(nth));
        }
        let Some(Ok(Value::Array(numbers))) = self.of[1].map(|field| field.value(self.record)) else {
            return [None; 3];
        };
        let mut numbers = numbers.iter().map(|number| number.address().map(u64::cast_signed));
        std::array::from_fn(|_| numbers.next().flatten())
    }

    fn known(&self, kind: Kind, current: Option<Tid>) -> Option<Known<'r>> {
        Some(match kind {
            Kind::Switch => Known::Switch(Switch {
                prev: self.tid(0)?,
                prev_comm: self.text(1),
                prev_state: self.number(2)?,
                next: self.tid(3)?,
                next_comm: self.text(4),
            }),
            Kind::Wakeup { is_new } => {
                Known::Wakeup(Wakeup { tid: self.tid(0)?, comm: self.text(1), is_new })
            }
            Kind::Migrate => Known::Migrate { tid: self.tid(0)? },
            Kind::Fork => Known::Fork { child: self.tid(0)?, comm: self.text(1) },
            Kind::NewTask => {
                let flags = self.number(2)?;
                Known::NewTask {
                    child: self.tid(0)?,
                    comm: self.text(1),
                    shares_files: flags & clone::FILES != 0,
                    is_thread: flags & clone::THREAD != 0,
                    shares_memory: flags & (clone::VM | clone::VFORK) == clone::VM,
                }
            }
            // Some kernels leave the id out: nearly always it is that of the thread itself.
            Kind::Renamed => Known::Renamed {
                tid: self.tid(0).or(current)?,
                comm: self.text_if_there(1),
                before: self.text(2),
            },
            Kind::Exec => Known::Exec { tid: self.tid(0)?, from: self.tid(1) },
            Kind::Exit => Known::Exit { tid: self.tid(0)? },
            Kind::Seen => Known::Seen,
            Kind::Freed => Known::Freed { tid: self.tid(0)? },
            Kind::CallEnter { is_raw } => Known::CallEnter {
                number: self.call_number()?,
                arguments: self.arguments(is_raw),
                path: self.path(5),
                is_raw,
            },
            Kind::CallExit { is_raw } => {
                Known::CallExit { number: self.call_number()?, result: self.signed(1)?, is_raw }
            }
            Kind::AnyCallExit => Known::CallExit { number: ANY_CALL, result: self.signed(0)?, is_raw: false },
            Kind::IrqEntry => Known::IrqEntry { irq: self.signed(0)?, name: self.text(1) },
            Kind::IrqExit => Known::IrqExit { irq: self.signed(0)? },
            Kind::SoftirqRaise => Known::SoftirqRaise { vector: self.number(0)? },
            Kind::SoftirqEntry => Known::SoftirqEntry { vector: self.number(0)? },
            Kind::SoftirqExit => Known::SoftirqExit { vector: self.number(0)? },
            Kind::BlockInsert => Known::BlockInsert(self.request()?),
            Kind::BlockIssue => Known::BlockIssue(self.request()?),
            Kind::BlockRequeue => {
                Known::BlockRequeue { device: self.number(0)?, sector: self.number(1)?, rwbs: self.text(2) }
            }
            Kind::BlockComplete => Known::BlockComplete {
                device: self.number(0)?,
                sector: self.number(1)?,
                sectors: self.number(2)?,
                rwbs: self.text(3),
                is_failed: self.number(4).is_some_and(|error| error != 0),
            },
            Kind::LockBegin => Known::LockBegin { lock: self.number(0)?, flags: self.number(1)? },
            Kind::LockEnd => Known::LockEnd { lock: self.number(0)?, result: self.signed(1)? },
            Kind::PageAlloc => {
                let pfn = Some(self.number(0)?).filter(|pfn| *pfn != self.none(0));
                Known::PageAlloc { pfn, order: self.number(1)? }
            }
            Kind::PageFree => Known::PageFree { pfn: self.number(0)?, order: self.number(1)? },
            Kind::SlabAlloc { is_kmalloc } => Known::SlabAlloc {
                address: self.number(0)?,
                call_site: self.number(1)?,
                requested: self.number(2)?,
                allocated: self.number(3)?,
                cache: (!is_kmalloc).then(|| self.text(4)),
            },
            Kind::SlabFree => Known::SlabFree { address: self.number(0)? },
            Kind::PageFault { is_user } => Known::PageFault { address: self.number(0)?, is_user },
            Kind::ReclaimBegin { is_of_group } => Known::ReclaimBegin { is_of_group },
            Kind::ReclaimEnd { is_of_group } => Known::ReclaimEnd { is_of_group, pages: self.number(0)? },
            Kind::OomVictim => Known::OomVictim { tid: self.tid(0)?, comm: self.text(1) },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_several_files_are_unknown() {
        let of_several: [&[u8]; 4] = [b"\xc3.", b"a\xe4.\xbd", b"\xe4\xb8.b", b"\xff\xf0\x9f\x98.x"];
        assert!(of_several.into_iter().all(has_dot_in_character));
        let of_one: [&[u8]; 6] =
            [b"", b"a.b", "\u{c0}.\u{e9}".as_bytes(), b"\xe9\xff", b"M\xfcller.txt", b"\x80."];
        assert!(!of_one.into_iter().any(has_dot_in_character));
    }
}
