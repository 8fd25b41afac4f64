//! What the machine's tracepoints say, as events with fields, and the bytes of their records.

use std::fmt::Write as _;

use super::Made;
use crate::answers::Tid;

/// What a record says.
#[derive(Clone, Debug)]
pub(crate) enum Says {
    Switch { prev: Tid, prev_name: String, prev_state: u64, next: Tid, next_name: String },
    Wakeup { tid: Tid, name: String, is_new: bool },
    NewTask { child: Tid, name: String, is_thread: bool },
    Fork { child: Tid, name: String },
    Renamed { tid: Tid, name: String, before: String },
    Exec { tid: Tid, from: Tid },
    Exit { tid: Tid },
    Freed { tid: Tid },
    CallEnter { number: i64, arguments: [u64; 2] },
    CallExit { number: i64, result: i64 },
    IrqEntry { irq: i64 },
    IrqExit { irq: i64 },
    SoftirqRaise { vector: u64 },
    SoftirqEntry { vector: u64 },
    SoftirqExit { vector: u64 },
    Insert { sector: u64, bytes: u64, rwbs: &'static str },
    Issue { sector: u64, bytes: u64, rwbs: &'static str },
    Complete { sector: u64, sectors: u64, rwbs: &'static str },
    LockBegin { lock: u64, flags: u64 },
    LockEnd { lock: u64, result: i64 },
    PageAlloc { pfn: u64 },
    PageFree { pfn: u64 },
    Kmalloc { address: u64 },
    Kfree { address: u64 },
    Fault { address: u64 },
    ReclaimBegin,
    ReclaimEnd { pages: u64 },
    Tick,
    Stack,
    Other,
}

/// An event, by its place in [`EVENTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub(crate) enum Kind {
    Switch,
    Waking,
    WakeupNew,
    NewTask,
    Fork,
    Renamed,
    Exec,
    Exit,
    Freed,
    CallEnter,
    CallExit,
    IrqEntry,
    IrqExit,
    SoftirqRaise,
    SoftirqEntry,
    SoftirqExit,
    Insert,
    Issue,
    Complete,
    LockBegin,
    LockEnd,
    PageAlloc,
    PageFree,
    Kmalloc,
    Kfree,
    Fault,
    ReclaimBegin,
    ReclaimEnd,
    Tick,
    Stack,
    Other,
}

const LONG: &str = "unsigned long ";
const INT: &str = "int ";
const NAME: &str = "char ";

/// Types of fields, and their names with the lengths of arrays.
type Fields = &'static [(&'static str, &'static str)];

/// System and name of each event, and its fields.
pub(crate) const EVENTS: &[(&str, &str, Fields)] = &[
    (
        "sched",
        "sched_switch",
        &[
            (NAME, "prev_comm[16]"),
            (INT, "prev_pid"),
            (INT, "prev_prio"),
            ("long ", "prev_state"),
            (NAME, "next_comm[16]"),
            (INT, "next_pid"),
        ],
    ),
    ("sched", "sched_waking", &[(NAME, "comm[16]"), (INT, "pid")]),
    ("sched", "sched_wakeup_new", &[(NAME, "comm[16]"), (INT, "pid")]),
    ("task", "task_newtask", &[(INT, "pid"), (INT, "pad"), (NAME, "comm[16]"), (LONG, "clone_flags")]),
    ("sched", "sched_process_fork", &[(NAME, "child_comm[16]"), (INT, "child_pid")]),
    ("task", "task_rename", &[(INT, "pid"), (NAME, "oldcomm[16]"), (NAME, "newcomm[16]")]),
    ("sched", "sched_process_exec", &[(INT, "pid"), (INT, "old_pid")]),
    ("sched", "sched_process_exit", &[(INT, "pid")]),
    ("sched", "sched_process_free", &[(INT, "pid")]),
    ("raw_syscalls", "sys_enter", &[("long ", "id"), (LONG, "args[6]")]),
    ("raw_syscalls", "sys_exit", &[("long ", "id"), ("long ", "ret")]),
    ("irq", "irq_handler_entry", &[(INT, "irq"), (NAME, "name[16]")]),
    ("irq", "irq_handler_exit", &[(INT, "irq")]),
    ("irq", "softirq_raise", &[(INT, "vec")]),
    ("irq", "softirq_entry", &[(INT, "vec")]),
    ("irq", "softirq_exit", &[(INT, "vec")]),
    ("block", "block_rq_insert", REQUEST),
    ("block", "block_rq_issue", REQUEST),
    (
        "block",
        "block_rq_complete",
        &[(LONG, "dev"), (LONG, "sector"), (LONG, "nr_sector"), (NAME, "rwbs[8]"), (INT, "error")],
    ),
    ("lock", "contention_begin", &[(LONG, "lock_addr"), (INT, "flags")]),
    ("lock", "contention_end", &[(LONG, "lock_addr"), (INT, "ret")]),
    ("kmem", "mm_page_alloc", &[(LONG, "pfn"), (INT, "order")]),
    ("kmem", "mm_page_free", &[(LONG, "pfn"), (INT, "order")]),
    ("kmem", "kmalloc", &[(LONG, "call_site"), (LONG, "ptr"), (LONG, "bytes_req"), (LONG, "bytes_alloc")]),
    ("kmem", "kfree", &[(LONG, "call_site"), (LONG, "ptr")]),
    ("exceptions", "page_fault_user", &[(LONG, "address")]),
    ("vmscan", "mm_vmscan_direct_reclaim_begin", &[(INT, "order")]),
    ("vmscan", "mm_vmscan_direct_reclaim_end", &[(LONG, "nr_reclaimed")]),
    ("timer", "hrtimer_expire_entry", &[(LONG, "hrtimer"), (LONG, "function")]),
    ("ftrace", "kernel_stack", &[(INT, "size"), (INT, "pad"), (LONG, "caller[8]")]),
    ("workqueue", "workqueue_queue_work", &[(LONG, "work")]),
];

const REQUEST: &[(&str, &str)] =
    &[(LONG, "dev"), (LONG, "sector"), (LONG, "bytes"), (NAME, "rwbs[8]"), (NAME, "comm[16]")];

/// The kernel's symbols: the tick's function, the entry of its interrupt, and what that interrupts.
pub(super) const SYMBOLS: &str =
    "1000 t tick_nohz_handler\n2000 t asm_sysvec_apic_timer_interrupt\n3000 t works\n4000 t end\n";

impl Kind {
    /// Its number in a file.
    pub(crate) fn id(self) -> u16 {
        // Those of the ring buffer are lower, and the stack's is its own.
        if self == Self::Stack { 4 } else { 100 + self as u16 }
    }

    /// `system:name`.
    pub(crate) fn event(self) -> String {
        let (system, name, _) = EVENTS[self as usize];
        format!("{system}:{name}")
    }

    /// Whether recorders choose it also by the thread that it is about.
    pub(crate) fn is_of_two(self) -> bool {
        matches!(self, Self::Switch | Self::Waking | Self::WakeupNew)
    }
}

/// The text of an event's format.
pub(super) fn format(index: usize) -> String {
    let (system, name, fields) = EVENTS[index];
    let id = if system == "ftrace" { 4 } else { 100 + index };
    let mut text = format!(
        "name: {name}\nID: {id}\nformat:\n\
         \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
         \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
         \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
         \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
    );
    let mut offset = 8;
    for (of, field) in fields {
        let size = size(of, field);
        let is_signed = u8::from(!of.starts_with("unsigned"));
        let _ = writeln!(text, "\tfield:{of}{field};\toffset:{offset};\tsize:{size};\tsigned:{is_signed};");
        offset += size;
    }
    text + "\nprint fmt: \"\"\n"
}

fn size(of: &str, field: &str) -> usize {
    let len = field.split_once('[').map_or(1, |(_, len)| len.trim_end_matches(']').parse().unwrap());
    len * match of {
        NAME => 1,
        INT => 4,
        _ => 8,
    }
}

/// The value of a field.
enum Value<'v> {
    Number(u64),
    Text(&'v str),
    Numbers(&'v [u64]),
}
use Value::{Number, Numbers, Text};

fn signed(number: i64) -> Value<'static> {
    Number(number as u64)
}

fn tid(tid: Tid) -> Value<'static> {
    Number(tid.into())
}

impl Made {
    /// Which event it is of.
    pub(crate) fn kind(&self) -> Kind {
        match self.says {
            Says::Switch { .. } => Kind::Switch,
            Says::Wakeup { is_new: false, .. } => Kind::Waking,
            Says::Wakeup { is_new: true, .. } => Kind::WakeupNew,
            Says::NewTask { .. } => Kind::NewTask,
            Says::Fork { .. } => Kind::Fork,
            Says::Renamed { .. } => Kind::Renamed,
            Says::Exec { .. } => Kind::Exec,
            Says::Exit { .. } => Kind::Exit,
            Says::Freed { .. } => Kind::Freed,
            Says::CallEnter { .. } => Kind::CallEnter,
            Says::CallExit { .. } => Kind::CallExit,
            Says::IrqEntry { .. } => Kind::IrqEntry,
            Says::IrqExit { .. } => Kind::IrqExit,
            Says::SoftirqRaise { .. } => Kind::SoftirqRaise,
            Says::SoftirqEntry { .. } => Kind::SoftirqEntry,
            Says::SoftirqExit { .. } => Kind::SoftirqExit,
            Says::Insert { .. } => Kind::Insert,
            Says::Issue { .. } => Kind::Issue,
            Says::Complete { .. } => Kind::Complete,
            Says::LockBegin { .. } => Kind::LockBegin,
            Says::LockEnd { .. } => Kind::LockEnd,
            Says::PageAlloc { .. } => Kind::PageAlloc,
            Says::PageFree { .. } => Kind::PageFree,
            Says::Kmalloc { .. } => Kind::Kmalloc,
            Says::Kfree { .. } => Kind::Kfree,
            Says::Fault { .. } => Kind::Fault,
            Says::ReclaimBegin => Kind::ReclaimBegin,
            Says::ReclaimEnd { .. } => Kind::ReclaimEnd,
            Says::Tick => Kind::Tick,
            Says::Stack => Kind::Stack,
            Says::Other => Kind::Other,
        }
    }

    /// The bytes of the record.
    pub(crate) fn data(&self) -> Vec<u8> {
        const THREAD: u64 = 0x10000 | 0x400 | 0x100;
        let values = match &self.says {
            Says::Switch { prev, prev_name, prev_state, next, next_name } => vec![
                Text(prev_name),
                tid(*prev),
                Number(120),
                Number(*prev_state),
                Text(next_name),
                tid(*next),
            ],
            Says::Wakeup { tid: woken, name, .. } => vec![Text(name), tid(*woken)],
            Says::NewTask { child, name, is_thread } => {
                vec![tid(*child), Number(0), Text(name), Number(if *is_thread { THREAD } else { 0 })]
            }
            Says::Fork { child, name } => vec![Text(name), tid(*child)],
            Says::Renamed { tid: of, name, before } => vec![tid(*of), Text(before), Text(name)],
            Says::Exec { tid: to, from } => vec![tid(*to), tid(*from)],
            Says::Exit { tid: of } | Says::Freed { tid: of } => vec![tid(*of)],
            Says::CallEnter { number, arguments } => vec![signed(*number), Numbers(arguments)],
            Says::CallExit { number, result } => vec![signed(*number), signed(*result)],
            Says::IrqEntry { irq } => vec![signed(*irq), Text("disk")],
            Says::IrqExit { irq } => vec![signed(*irq)],
            Says::SoftirqRaise { vector } | Says::SoftirqEntry { vector } | Says::SoftirqExit { vector } => {
                vec![Number(*vector)]
            }
            Says::Insert { sector, bytes, rwbs } | Says::Issue { sector, bytes, rwbs } => {
                vec![Number(8 << 20), Number(*sector), Number(*bytes), Text(rwbs), Text(&self.name)]
            }
            Says::Complete { sector, sectors, rwbs } => {
                vec![Number(8 << 20), Number(*sector), Number(*sectors), Text(rwbs), Number(0)]
            }
            Says::LockBegin { lock, flags } => vec![Number(*lock), Number(*flags)],
            Says::LockEnd { lock, result } => vec![Number(*lock), signed(*result)],
            Says::PageAlloc { pfn } | Says::PageFree { pfn } => vec![Number(*pfn), Number(1)],
            Says::Kmalloc { address } => vec![Number(0x3000), Number(*address), Number(50), Number(64)],
            Says::Kfree { address } => vec![Number(0x3000), Number(*address)],
            Says::Fault { address } => vec![Number(*address)],
            Says::ReclaimBegin => vec![Number(0)],
            Says::ReclaimEnd { pages } => vec![Number(*pages)],
            Says::Tick => vec![Number(0x9000), Number(0x1000)],
            Says::Stack => vec![Number(3), Number(0), Numbers(&[0x1004, 0x2004, 0x3004])],
            Says::Other => vec![Number(1)],
        };
        let kind = self.kind();
        let mut data = kind.id().to_le_bytes().to_vec();
        data.extend([self.flags, 0]);
        data.extend(self.tid.to_le_bytes());
        let fields = EVENTS[kind as usize].2;
        assert_eq!(fields.len(), values.len(), "{kind:?}");
        for ((of, field), value) in fields.iter().zip(values) {
            let end = data.len() + size(of, field);
            match value {
                Number(number) => data.extend(number.to_le_bytes()),
                Text(text) => data.extend(text.bytes()),
                Numbers(numbers) => data.extend(numbers.iter().flat_map(|number| number.to_le_bytes())),
            }
            data.resize(end, 0);
        }
        data
    }
}
