//! The memory that the eBPF programs and the agent share, as plain `repr(C)` types.
//!
//! Everything here is mapped into user space through `BPF_F_MMAPABLE` arrays, so that recording needs no
//! map system call: those raise the kernel's per-CPU instrumentation guard
//! (`bpf_disable_instrumentation`, include/linux/bpf.h) and every tracepoint program that fires meanwhile on
//! that CPU is skipped.
//!
//! # Maps
//!
//! | map | element | index | written by |
//! |---|---|---|---|
//! | `PAGES` | [`PAGE_SIZE`] bytes, a sub-buffer | `CpuControl::ring_base` + index in the ring | programs; sealed by the agent |
//! | `PAGE_META` | [`PageMeta`] | as `PAGES` | programs |
//! | `CONTROL` | [`CpuControl`] | [`CpuControl::row`] | programs and agent, each its own cache lines |
//! | `SIDE` | [`globals::SIDE_BYTES`] bytes, a side queue of [`SideEntry`] | `CpuControl::side` | programs |
//! | `EVENTS` | [`EventSlot`] | attach cookie | agent, before attaching |
//! | `ENABLED` | `u64`, which programs record the event now, where events come and go: their `CHANGING`, or 0 | attach cookie | agent |
//! | `SYSCALLS` | [`SyscallSlot`] | system call number | agent, before attaching |
//! | `STRING_NOTES` | [`StringNote`] | CPU id | programs |
//! | `LEDGER` | [`EventLedger`] | `row * slots + cookie` | programs |
//! | `OWNERS` | [`sets::Owner`]: whose a set of rings is | see there | programs and agent |
//! | `BORDER`, `BORDER_ROWS` | [`CpuBorder`] and [`EventLedger`], what a CPU had counted where one of its pages ends | 0; attach cookie | `mark_border`, for one CPU at a time |
//! | `RATES` | `u64`, a [`rate`] window; behind these, in a watch, how many [`places`] are taken | attach cookie; see there | programs and agent, atomically |
//! | `RATE_GROUPS` | [`rate::GROUPS`] times [`rate::Group`], the windows of control groups | [`slot_flags::RATE_BY_GROUP`] | programs, atomically |
//! | `CALL_OWNERS`, `CALLS` | [`calls`]: the nested calls of threads in a call graph | see there | programs |
//! | `AGGREGATE_INDEX` and others of this beginning | [`aggregates`]: a map that counts | see there | programs |
//! | `TRACED`, `UNTRACED`, `SCOPED` | `u64`, a bitmap of thread ids | `tid / 64` | agent and programs, atomically |
//! | `SETS` | [`tracking::Line`]: the sets of values that threads are recorded by | see there | agent |
//! | `NAMES` | [`NameRecord`] in a BPF ring buffer | - | programs |
//! | `WAKE` | a BPF ring buffer of [`WAKE_BYTES`], whose records mean nothing but "wake up" | [`CpuControl::reader`] | programs |
//!
//! # The page ring
//!
//! Pages have ftrace's sub-buffer format (`Documentation/trace/ring-buffer-design.rst`,
//! `events/header_page`): a `u64` time stamp, a `u64` commit word, then events with a 5-bit `type_len` and a
//! 27-bit time delta. `head` counts the pages that are complete; page number `p` is at index `p % ring_pages`
//! of its CPU's ring. In discard mode a page is opened only while `head - consumed < ring_pages`, and events
//! that find no page are counted. In overwrite mode the oldest page is reused. The commit word of a page is
//! left 0 by the programs: the agent seals a page when it takes it, because the missed-events mark belongs in
//! the same word and only the agent knows whether the count fits after the data.
//!
//! # The side queue
//!
//! A program that interrupts another one in the middle of a record cannot write to the ring. It appends its
//! record, as an entry after [`SideEntry`], to its CPU's side queue, and the interrupted program moves it to
//! the ring when its own record is done. `side_tail` and `side_head` count bytes since the start and never go
//! back; an entry never straddles the end of the memory. Entries are in the order of their time stamps. An
//! event's stacks are in its entry.
#![no_std]

mod abi;
pub mod aggregates;
pub mod calls;
pub mod sets;
pub mod tracking;

pub use abi::ABI;

/// Bytes in a sub-buffer page, header included.
pub const PAGE_SIZE: usize = 4096;
/// Bytes of a page's header: `u64` time stamp and `u64` commit word (`events/header_page`).
pub const PAGE_HEADER: usize = 16;
/// The longest record, common fields included, that fits an empty page after its event header of 8 bytes.
pub const RECORD_MAX: usize = PAGE_SIZE - PAGE_HEADER - 8;
/// How many `__data_loc` and `__rel_loc` fields of one event are followed. Kernels up to 6.18 have events
/// with at most 4.
pub const DYNAMIC_FIELDS_MAX: usize = 8;
/// Elements of the `TRACED`, `UNTRACED` and `SCOPED` bitmaps: one bit for each thread id up to
/// `PID_MAX_LIMIT` (include/linux/threads.h: 4 Mi on 64-bit kernels).
pub const TID_WORDS: usize = 4 * 1024 * 1024 / 64;
/// Bytes of a task's name, NUL included (`TASK_COMM_LEN`, include/linux/sched.h).
pub const COMM_LEN: usize = 16;
/// Bytes of the `NAMES` ring buffer: 32 768 records between two visits of the agent.
pub const NAMES_BYTES: u32 = 1 << 20;
/// Unread bytes in `NAMES` from which on every name wakes the agent.
pub const NAMES_WAKE: u64 = NAMES_BYTES as u64 / 2;
/// Bytes of each ring buffer of `WAKE`: the smallest there is. A CPU has one record in it at most.
pub const WAKE_BYTES: u32 = PAGE_SIZE as u32;

/// Bytes of a CPU's side queue: several hundred records, as a burst of soft interrupts on top of one
/// interrupted program leaves.
pub const SIDE_BYTES: usize = 32 * 1024;
/// The same where programs can be preempted: while a task that writes a record waits for its next time slice,
/// everything else on its CPU is queued.
pub const SIDE_BYTES_PREEMPTIBLE: usize = 4 * 1024 * 1024;
/// The same in a channel with [`sets`] of rings: only the events of one user or process are queued there.
pub const SIDE_BYTES_OF_SET: usize = 256 * 1024;
/// The same of a watch, whose rings are small, too.
pub const SIDE_BYTES_OF_WATCH: usize = 64 * 1024;
/// Entries of the side queue start at multiples of this.
pub const SIDE_ALIGN: usize = 16;
/// The longest record, common fields included, that the side queue takes.
pub const SIDE_RECORD_MAX: usize = 1024;
/// Frames of a kernel stack that are recorded.
pub const KERNEL_FRAMES: usize = 64;
/// Frames in one `ftrace:user_stack` record, and the least in an `ftrace:kernel_stack` record: readers print
/// so many (`FTRACE_STACK_ENTRIES`, kernel/trace/trace.h).
pub const FRAMES: usize = 8;
/// Records of a user stack, [`FRAMES`] each, that follow an event at most.
pub const USER_STACK_RECORDS: usize = 4;
/// Where the frames begin in both kinds of records: after the common fields and a number.
pub const FRAMES_AT: usize = 16;
/// Bytes of the longest record with a kernel stack.
pub const KERNEL_STACK_MAX: usize = FRAMES_AT + 8 * KERNEL_FRAMES;
/// Bytes of a record with a user stack.
pub const USER_STACK_LEN: usize = FRAMES_AT + 8 * FRAMES;
/// Bytes that an entry of the side queue has for the stacks after its record.
pub const STACKS_BYTES: usize = KERNEL_STACK_MAX + USER_STACK_RECORDS * USER_STACK_LEN;
/// System call numbers that have a slot in `SYSCALLS`: more than any 64-bit architecture has (470 on x86
/// 6.18).
pub const SYSCALL_SLOTS: usize = 1024;

/// Copies of strings that a record of a system call has at most (`SYSCALL_FAULT_MAX_CNT`,
/// kernel/trace/trace_syscalls.c).
pub const SYSCALL_STRINGS: usize = 3;
/// The longest such copy, without the mark that it was cut (`SYSCALL_FAULT_USER_MAX`,
/// kernel/trace/trace.h).
pub const STRING_MAX: usize = 165;
/// What follows a copy that was cut, NUL included.
pub const STRING_CUT: [u8; 4] = *b"...\0";
/// Bytes of a copy that programs write at once.
pub const STRING_STEP: u32 = 8;

/// Bytes that a record has for each copy of at most `limit`.
pub const fn string_room(limit: u32) -> u32 {
    limit + STRING_CUT.len() as u32 + STRING_STEP
}

/// The longest record whose first copy begins at byte `first`.
pub const fn with_strings_max(first: u32, limit: u32) -> u32 {
    first + SYSCALL_STRINGS as u32 * string_room(limit) + STRING_STEP
}

/// Why an event that fired is not in the file. The discriminant indexes [`EventLedger::lost`] and
/// [`CpuControl::lost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum LossCause {
    /// No free page: the agent did not empty the ring in time.
    RingFull = 0,
    /// The record is longer than a page ([`RECORD_MAX`]).
    Oversize = 1,
    /// The kernel refused to copy the record out of the tracepoint's buffer.
    ReadFault = 2,
    /// It was nested too deeply: the event interrupted another one's program, and the side queue was full; it
    /// is a call of a call graph for which [`calls`] has no record; or it is a return of a function of a
    /// program that the kernel does not report, as its thread is in too many such calls.
    Nested = 3,
    /// More events than the limit of its rate allows ([`EventSlot::rate`]): a loss that was asked for.
    RateLimit = 4,
}

impl LossCause {
    /// Every cause, in index order.
    pub const ALL: [Self; Self::COUNT] =
        [Self::RingFull, Self::Oversize, Self::ReadFault, Self::Nested, Self::RateLimit];
    /// Number of causes.
    pub const COUNT: usize = 5;
}

/// One CPU's half of the ring's control data.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
pub struct CpuControl {
    /// Non-zero while events of this CPU are recorded. Written by the agent: the gate of a stop and of a
    /// pause, and the CPU mask.
    pub enabled: u64,
    /// Pages released to the programs since the start. Written by the agent, discard mode only.
    pub consumed: u64,
    /// Index in `PAGES` of this CPU's first page. Set by the agent before the start.
    pub ring_base: u32,
    /// Pages in this CPU's ring, at least 2 while `enabled`. Set by the agent before the start.
    pub ring_pages: u32,
    /// Kernel address of this CPU's preempt count, or 0 while it is not known. Found by the first event on
    /// the CPU.
    pub preempt_count: u64,
    /// How many complete pages wake the reader, at least 1. Set by the agent before the start.
    pub wake_pages: u32,
    /// Index in `WAKE` of the reader of this ring. Set by the agent before the start.
    pub reader: u32,
    /// Non-zero from the moment a program wakes the reader until the reader reads the ring's state. The
    /// reader clears it *before* it reads `head`, and a program reads it *after* it has raised `head`, so
    /// that one of them sees the other.
    pub wake_asked: u64,
    /// Index in `SIDE` of this CPU's queue. Set by the agent before the start.
    pub side: u32,
    /// The CPU's id. Set by the agent before the start.
    pub cpu: u32,
    /// Bit 32 and the id of the thread that the last switch looked at gave the CPU to, if that thread was
    /// wanted: the switch away from it is recorded then, whatever the thread has become. Used only where the
    /// recording is limited to some threads. The agent clears it when a pause ends.
    pub switch_owed: u64,
    /// The page that a snapshot was asked for in, plus 1: it is not reused, and what has no other page is
    /// lost. 0 until an event asks: a program sets it then. [`hold::OFF`] while nothing is kept. The agent
    /// sets it back.
    pub hold: u64,
    /// How many events of this CPU that ask for a snapshot were in its pages when the last one was completed.
    pub asked_seen: u64,
    /// Non-zero while the gate is closed for a pause: the page that is open is handed over by a program then,
    /// as it is while events come, and not left to the agent, as at a stop. Written by the agent.
    pub paused: u64,
    /// Index of this block in `CONTROL`, and of its rows in `LEDGER`: the CPU's id, or what [`sets`] says.
    /// Set by the agent before the start.
    pub row: u32,
    /// Thread group whose events are not recorded (the agent's own), but for those of interrupts, where
    /// `EXCLUDES_SELF` says so. Written by the agent, also while events come: an agent that goes on for
    /// another one has another.
    pub self_tgid: u32,
    /// 32-bit system calls of threads that are recorded, whichever they are: `syscalls:*` has no events of
    /// them. Written by the programs that `compat_counter` chooses, here for want of room below: only
    /// programs of such calls do so.
    pub compat_calls: u64,
    /// Which programs count these calls, one of all that there are ([`compat_counter`]). Written by the
    /// agent, also while events come.
    pub compat_counter: u64,
    /// Keeps the words above and below in different cache lines (two each, for the adjacent-line prefetcher).
    pub agent_line_end: [u64; 2],

    /// Pages completed since the start. The release point of everything in the pages before it.
    pub head: u64,
    /// Index in this CPU's ring of page `head`.
    pub page: u32,
    /// Where the next event goes in page `head`; 0 while that page is not open.
    pub offset: u32,
    /// Time stamp of the newest event.
    pub last_time: u64,
    /// Events recorded since the start.
    pub events: u64,
    /// Non-zero while a program writes in this ring.
    pub busy: u64,
    /// Bytes of the side queue that were ever taken by entries. The only word that interrupting programs
    /// compete for.
    pub side_tail: u64,
    /// Bytes of the side queue that were moved to the ring.
    pub side_head: u64,
    /// Value of `events` when page `head` was opened.
    pub page_start_events: u64,
    /// Events lost on this CPU that are noted in some page's [`PageMeta::lost`].
    pub marked_lost: u64,
    /// Events that were in pages which overwrite mode reused.
    pub overwritten: u64,
    /// Events lost, by [`LossCause`].
    pub lost: [u64; LossCause::COUNT],
    /// Thread names that found the `NAMES` buffer full.
    pub names_lost: u64,
}

/// Values of [`CpuControl::compat_counter`].
pub mod compat_counter {
    /// No program counts.
    pub const NONE: u64 = 0;
    /// The program at the entry of system calls.
    pub const ENTRY: u64 = 0;
    /// The program at their exit.
    pub const EXIT: u64 = 1;

    /// The program at `hook` of the programs with this generation, which is not 0.
    pub const fn of(generation: u32, hook: u64) -> u64 {
        (generation as u64) << 1 | hook
    }
}

/// Values of [`CpuControl::hold`].
pub mod hold {
    /// The next event that asks for a snapshot has its page kept.
    pub const ARMED: u64 = 0;
    /// No page is kept.
    pub const OFF: u64 = u64::MAX;
}

/// What the program `switch_page` gives back.
pub mod switched {
    /// The CPU has no open page any more, or had none.
    pub const DONE: i32 = 0;
    /// A program was writing to it.
    pub const BUSY: i32 = 1;
    /// There is more in the side queue than one run moves.
    pub const MORE: i32 = 2;
}

/// What a CPU has counted when one of its pages was complete and the next one not begun: what the program
/// `mark_border` notes, with the event's rows in `BORDER_ROWS`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CpuBorder {
    /// Pages completed since the start: the number of the first page after the border.
    pub head: u64,
    /// Events recorded since the start: all of them are in the pages before the border.
    pub events: u64,
    /// Events lost since the start, by [`LossCause`].
    pub lost: [u64; LossCause::COUNT],
    /// Those of them that are noted in the pages before the border ([`PageMeta::lost`]).
    pub marked_lost: u64,
    /// Events that were in pages which overwrite mode reused.
    pub overwritten: u64,
    /// Thread names that found the `NAMES` buffer full.
    pub names_lost: u64,
    /// [`CpuControl::compat_calls`].
    pub compat_calls: u64,
    /// The row of its control block and 1: written last, and cleared by the agent before it asks.
    pub noted: u64,
}

/// What the program `mark_border` gives back, beside what [`switched`] has.
pub mod border {
    /// The CPU's gate is closed: nothing was noted.
    pub const CLOSED: i32 = 3;
}

/// What stands before a record in the side queue.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SideEntry {
    /// Written last. High half: the entry's position since the start, in units of [`SIDE_ALIGN`], plus 1,
    /// which no older content of this memory has. Low half: bytes of the record, 0 if there is none, or
    /// [`SIDE_SKIP`].
    pub marker: u64,
    /// Time stamp.
    pub time: u64,
    /// The event's slot.
    pub cookie: u32,
    /// Bytes that the entry takes, this header included.
    pub size: u32,
    /// Where the entry's stacks are, [`STACKS_BYTES`], counted from the record's first byte: first the
    /// kernel's, then the process's.
    pub stacks_at: u32,
    /// Bytes of the kernel stack's record, or 0.
    pub kernel_stack: u16,
    /// Records of the user stack.
    pub user_stacks: u16,
}

/// Low half of a marker that says: the next entry is at the start of the memory.
pub const SIDE_SKIP: u32 = 0xffff;

/// What the agent needs to know about a page beside its bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct PageMeta {
    /// Events lost on this CPU directly before this page's first event.
    pub lost: u64,
    /// Events in the page.
    pub events: u32,
    /// Bytes used in the page, header included.
    pub used: u32,
}

/// Where a dynamic field's location word is in a record, and how it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct DynamicField {
    /// Offset of the `u32` location word: low 16 bits offset of the data, high 16 bits its length.
    pub offset: u16,
    /// What is added to the data's offset: 0 for `__data_loc`, the end of the location word for `__rel_loc`.
    pub base: u16,
}

/// How to copy one event's record. Filled by the agent from the event's tracefs format.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct EventSlot {
    /// The kernel's event id: `common_type` of every record.
    pub id: u16,
    /// Size of the C structure that holds the fixed part, trailing padding included.
    pub fixed_len: u16,
    /// End of the last fixed field, where dynamic data starts.
    pub fields_end: u16,
    /// How much of the fixed part the tracepoint's context holds; the rest of it is recorded as zeros.
    pub copy_len: u16,
    /// Offset of an `int` field that names another thread which makes the event interesting to a process
    /// filter (`next_pid` of sched_switch, `pid` of a wakeup), or 0.
    pub other_tid: u16,
    /// Entries used in `dynamic`.
    pub dynamic_len: u16,
    /// [`slot_flags`].
    pub flags: u32,
    /// Of so many events on a CPU that are wanted otherwise, one is recorded; 0 and 1 record all. Needs
    /// `THINNED`.
    pub sample: u32,
    /// At most so many are recorded within each second of the clock, on all CPUs together; 0 is without
    /// limit. Needs `THINNED`.
    pub rate: u32,
    /// The event's dynamic fields.
    pub dynamic: [DynamicField; DYNAMIC_FIELDS_MAX],
}

/// Bits of [`EventSlot::flags`].
pub mod slot_flags {
    /// A `syscalls:*` event: the four bytes after the system call number are padding that the kernel's
    /// context does not initialise (`perf_call_bpf_enter`, kernel/trace/trace_syscalls.c), so they are
    /// zeroed.
    pub const SYSCALL: u32 = 1;
    /// The event is followed by the kernel's stack.
    pub const KERNEL_STACK: u32 = 2;
    /// The event is followed by its process's stack.
    pub const USER_STACK: u32 = 4;
    /// A fifth common field, the byte `common_preempt_lazy_count`, is after the others, and three bytes of
    /// padding after it (kernels before 6.6 with the `PREEMPT_RT` patches).
    pub const LAZY_COUNT: u32 = 8;
    /// A switch of threads: as [`begin_flags::SWITCH`](super::begin_flags::SWITCH).
    pub const SWITCH: u32 = 16;
    /// Fires at the first instruction of a function of a process. It has no frame yet: the address that it
    /// returns to is at the stack pointer, where a walk along frame pointers does not look.
    pub const FUNCTION_ENTRY: u32 = 32;
    /// The event is recorded whichever threads the recording is about. Needs `EVERY_THREAD`.
    pub const EVERY_THREAD: u32 = 64;
    /// An event of `raw_syscalls` on x86-64: the number of a 32-bit call has
    /// [`COMPAT_CALL`](super::COMPAT_CALL).
    pub const ANY_SYSCALL: u32 = 128;
    /// The unit of the upper half, which says which element of `RATE_GROUPS` has the event's windows, counted
    /// from 1, where each control group has the limit of the event's rate for itself. The half is 0 where all
    /// share the limit. Before the event is loaded, any other number says the same.
    pub const RATE_BY_GROUP: u32 = 1 << 16;
}

/// What the number of a 32-bit system call has in the eight bytes of `raw_syscalls:*`, whose lower half is a
/// number of another table then. Kernels leave both tables' numbers as they are.
pub const COMPAT_CALL: u64 = 1 << 32;

/// Where user stacks at the entry of a function have its direct caller from.
pub mod user_entry {
    /// No event is at a function's entry, or the kernel does not describe a task's registers.
    pub const NONE: u32 = 0;
    /// From the stack pointer, always.
    pub const ADDED: u32 = 1;
    /// From the stack pointer, where the kernel's own walk does not begin with it: since 6.11 it looks there
    /// if the function begins with `push %rbp` or `endbr64` (`is_uprobe_at_func_entry`,
    /// arch/x86/events/core.c).
    pub const ADDED_IF_MISSING: u32 = 2;
}

/// What to record of one system call number. The slots are positions in `EVENTS` plus 1, or 0 for "not
/// recorded".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct SyscallSlot {
    /// Slot of `syscalls:sys_enter_*`.
    pub enter: u32,
    /// Slot of `syscalls:sys_exit_*`.
    pub exit: u32,
    /// The kernel's id of the first.
    pub enter_id: u16,
    /// The kernel's id of the second.
    pub exit_id: u16,
    /// Bytes of the first's record without strings.
    pub enter_len: u16,
    /// Where copies of strings begin in it: after a location word for each.
    pub copies_at: u16,
    /// Which arguments are strings that the record has a copy of: positions plus 1, 0 after the last.
    pub strings: [u8; SYSCALL_STRINGS],
    /// Which argument tells how long the first of them is, which then is not a string but so many bytes:
    /// position plus 1, or 0.
    pub length: u8,
}

/// A record of a system call's entry that has room for strings which could not be read: what the exit needs
/// to copy them. There is one for each CPU, of its last such record; it belongs to the holder of the CPU's
/// [`CpuControl::busy`], except that others may clear `thread`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct StringNote {
    /// Id of the calling thread; 0 while there is no note. Written last, and cleared first.
    pub thread: u64,
    /// How often the thread had been moved to another CPU (`task_struct.se.nr_migrations`).
    pub migrations: u64,
    /// The address of its memory's description (`task_struct.mm`).
    pub memory: u64,
    /// [`CpuControl::head`] while the record's page is open.
    pub head: u64,
    /// System call number.
    pub nr: u32,
    /// Where in the page the record begins, after the event header.
    pub record: u32,
    /// Which of the copies are missing: bit 0 for the first.
    pub missing: u32,
}

/// What programs that the agent compiles tell `fast_begin` with the event's id, above its 16 bits.
pub mod begin_flags {
    /// The event fires with interrupts off, always. It is `TRACE_FLAG_IRQS_OFF`, in the place that
    /// `common_flags` have above the id.
    pub const IRQS_OFF: u32 = 1 << 16;
    /// Neither the hook nor the program has disabled preemption, or the kernel takes what the hook has for
    /// the event's own.
    pub const PREEMPTIBLE: u32 = 1 << 17;
    /// The program's context is registers, at the address that the probe is at: stacks begin there.
    pub const REGISTERS: u32 = 1 << 18;
    /// The kernel disables migration around this kind of program.
    pub const MIGRATION_DISABLED: u32 = 1 << 19;
    /// The CPU goes from the current thread to another one. A switch is left out only if neither of them is
    /// recorded, and the agent's own threads count as recorded where all others are.
    pub const SWITCH: u32 = 1 << 20;
    /// The event is recorded of whatever thread it is.
    pub const OF_ANYONE: u32 = 1 << 21;
    /// The event may come by a breakpoint in the kernel, which counts as an NMI by itself.
    pub const BREAKPOINT: u32 = 1 << 22;
}

/// What programs that the agent compiles tell `fast_end` with the record's length: a text in it was longer
/// than its room, and was cut.
pub const END_CUT: u64 = 1 << 32;

/// One event's counts on one CPU.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct EventLedger {
    /// Records written to the ring.
    pub recorded: u64,
    /// Events that a filter of threads or the event's own rejected (not a loss).
    pub filtered: u64,
    /// Events of the agent's own threads (not a loss).
    pub own: u64,
    /// Events that came to [`EventSlot::sample`], recorded or not.
    pub arrived: u64,
    /// Events lost, by [`LossCause`].
    pub lost: [u64; LossCause::COUNT],
    /// Records in which a text was cut.
    pub cut: u64,
}

/// The places for matches that the rules of a watch take between two looks of its reader, so that a rule
/// that matches all the time leaves room for others.
///
/// A match takes one of its rule's own places, wherever it fires. If these are taken, it takes one that the
/// rules share, unless half of its CPU's pages wait for the reader: the other half is for rules with places
/// left. A match that gets none is lost as one that finds the ring full ([`LossCause::RingFull`]). The reader
/// subtracts what was taken when it began to look, after it has emptied the rings.
pub mod places {
    /// Places that each rule has.
    pub const OF_RULE: u64 = 16;
    /// Places that all rules share.
    pub const SHARED: u64 = 8 << 10;

    /// Words of `RATES` in a watch with so many slots.
    pub const fn words(slots: u32) -> u32 {
        slots.saturating_mul(2).saturating_add(1)
    }

    /// The word that counts the shared places that are taken.
    pub const fn shared(slots: u32) -> u32 {
        slots
    }

    /// The word that counts the places taken of a rule's own, by its first slot.
    pub const fn of_rule(slots: u32, first: u32) -> u32 {
        slots.saturating_add(1).saturating_add(first)
    }
}

/// The window of a rate limit, one word for each event: the low half of the second in the upper half, and in
/// the lower one how many events came in it.
///
/// Where each control group has a limit of its own, an event has [`GROUPS`](rate::GROUPS) more windows, of
/// which a group takes one for a second at a time. It takes the first of its [`PROBES`](rate::PROBES) places
/// that nobody has in this second. What is taken stays so for the second; so it is the first for every
/// program of the group, and no two groups have the same. A group whose places are all taken shares the
/// event's window in `RATES` with others like it.
pub mod rate {
    /// Nanoseconds in a window.
    pub const WINDOW: u64 = 1_000_000_000;
    /// The bit that the second begins at.
    pub const SECOND_SHIFT: u32 = 32;
    /// Windows of control groups that each event has: with half of them taken, one group in a thousand finds
    /// no place.
    pub const GROUPS: usize = 512;
    /// Places where a group's window may be.
    pub const PROBES: u32 = 8;

    /// A window that control groups take.
    #[derive(Clone, Copy, Debug, Default)]
    #[repr(C)]
    pub struct Group {
        /// Whose it is: in the upper half the lower one of the group's number, in the lower one the low half
        /// of the second. Half of the number is enough: what stands above it counts how often numbers were
        /// used up (`__kernfs_new_node`, fs/kernfs/dir.c), and groups that are there have different ones.
        pub owner: u64,
        /// As in `RATES`.
        pub window: u64,
    }

    /// The places of a group: the first one, and how far it is from each to the next, both modulo [`GROUPS`].
    #[inline]
    pub const fn places(group: u64) -> (u64, u64) {
        // 2^64 divided by the golden ratio. Numbers of groups follow one another at much the same distances,
        // which one multiplication alone may put side by side.
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut hash = group.wrapping_mul(GOLDEN);
        hash ^= hash >> 32;
        hash = hash.wrapping_mul(GOLDEN);
        // Odd, so that all places are different.
        (hash >> 32, hash | 1)
    }

    /// Whether what belongs to the second `seen` is over in the second `now`: the next one is not, to which
    /// another CPU may have come. It is over, too, if a clock was set back.
    #[inline]
    pub const fn is_over(seen: u32, now: u32) -> bool {
        seen.wrapping_sub(now) > 1
    }
}

/// Code that the agent appends to programs. They call it as helpers of these numbers, which no kernel has;
/// before a program is loaded, each such call becomes one of the code appended to it.
pub mod parts {
    /// `u64 filter(const void *ctx)`: whether an event of the generic lane is wanted, by its record. Written
    /// by the agent at the start; where there is nothing to ask, the call becomes "yes".
    pub const EVENT_FILTER: i32 = 0x7f00_0001;
    /// `u64 ring_make_room(u64 row, u64 time, u64 need)`: room in the ring of a row of the control map, for
    /// the holder of its flag. One of [`APART`].
    pub const MAKE_ROOM: i32 = 0x7f00_0002;
    /// `u64 side_try_append(u64 row, u64 size, u64 cookie)`: takes an entry of a row's side queue. One of
    /// [`APART`].
    pub const TRY_APPEND: i32 = 0x7f00_0003;
    /// `u64 side_flush(u64 row)`: moves entries of a row's side queue to the ring. One of [`APART`].
    pub const FLUSH: i32 = 0x7f00_0004;
    /// `u64 side_move_entry(u64 row)`: moves one entry, for the holder of the ring's flag. One of [`APART`].
    pub const MOVE_ENTRY: i32 = 0x7f00_0005;

    /// The object's functions that programs call this way: number, name and how many arguments each has, all
    /// of which are numbers. They are what programs do now and then, and have most of the branches.
    pub const APART: [(i32, &str, u32); 4] = [
        (MAKE_ROOM, "ring_make_room", 3),
        (TRY_APPEND, "side_try_append", 3),
        (FLUSH, "side_flush", 1),
        (MOVE_ENTRY, "side_move_entry", 1),
    ];
}

/// A thread's name as it became known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct NameRecord {
    /// Thread id in the initial pid namespace.
    pub tid: u32,
    /// Its name, NUL terminated.
    pub comm: [u8; COMM_LEN],
}

/// The number of no helper: the agent replaces calls of it by calls of the kernel's function
/// `bpf_rdonly_cast`, whose number only the running kernel's BTF has, or by an instruction without effect
/// where the kernel has no such function.
pub const CAST_CALL: i32 = 0x7fff_0001;

/// Which clock stamps the events: the value of the `CLOCK` global.
pub mod clock {
    /// `CLOCK_MONOTONIC`, ftrace's `mono`.
    pub const MONO: u32 = 0;
    /// `CLOCK_BOOTTIME`, ftrace's `boot`.
    pub const BOOT: u32 = 1;
    /// `CLOCK_TAI`, ftrace's `tai` (helper from 6.1 on).
    pub const TAI: u32 = 2;
}

/// Globals that the agent sets before it loads the programs; the verifier treats them as constants and
/// removes what they disable.
pub mod globals {
    /// `u32`: one of [`super::clock`].
    pub const CLOCK: &str = "CLOCK";
    /// `u32`: non-zero reuses the oldest page instead of losing the newest event.
    pub const OVERWRITE: &str = "OVERWRITE";
    /// `u32`: non-zero where the reader is woken by the first event after it has looked, not by pages.
    pub const WAKE_EACH: &str = "WAKE_EACH";
    /// `u32`: the slot of the event that asks for snapshots, plus 1; 0 if none does.
    pub const ASKING: &str = "ASKING";
    /// `u32`: non-zero records only threads whose bit is set in `TRACED`.
    pub const FILTER_TASKS: &str = "FILTER_TASKS";
    /// `u32`: non-zero sets the bit of a traced task's new child processes.
    pub const FOLLOW_FORK: &str = "FOLLOW_FORK";
    /// `u32`: a bit for each set of [`super::tracking`] that the recording may ask threads for, by its
    /// number. With none, all threads are within its scope. `SCOPED` has the threads that were within it when
    /// they were last seen running.
    pub const SCOPE: &str = "SCOPE";
    /// `u32`: non-zero if some event is recorded whichever threads the recording is about.
    pub const EVERY_THREAD: &str = "EVERY_THREAD";
    /// `u32`: non-zero if some event is sampled or limited.
    pub const THINNED: &str = "THINNED";
    /// `u32`: in a watch, which word of `RATES` counts the [`super::places`] that the rule of these programs
    /// has taken; 0 elsewhere.
    pub const PLACES: &str = "PLACES";
    /// `u32`: non-zero if some event has a limit for each control group. Needs `THINNED`.
    pub const RATE_BY_GROUP: &str = "RATE_BY_GROUP";
    /// `u32`: non-zero if events come and go: what `ENABLED` has to say for these programs to record. No
    /// other programs of the channel have the same, so those of an event that was removed, which may be
    /// attached still, do not record what its slot is for now.
    pub const CHANGING: &str = "CHANGING";
    /// `u32`: whether the events of the agent's own threads are not recorded (`CpuControl::self_tgid`).
    pub const EXCLUDES_SELF: &str = "EXCLUDES_SELF";
    /// `u32`: number of event slots, the row length of `LEDGER`.
    pub const SLOTS: &str = "SLOTS";
    /// How many CPUs `CONTROL` has; 0 where that is an ordinary array. Like the next three.
    pub const CONTROL_LEN: &str = "CONTROL_LEN";
    /// Elements of `LEDGER`.
    pub const LEDGER_LEN: &str = "LEDGER_LEN";
    /// Elements of `PAGES`.
    pub const PAGES_LEN: &str = "PAGES_LEN";
    /// Elements of `STRING_NOTES`.
    pub const STRING_NOTES_LEN: &str = "STRING_NOTES_LEN";
    /// Elements of `SETS`.
    pub const SETS_LEN: &str = "SETS_LEN";
    /// `u32`: words of the keys of a map, as [`super::aggregates`] has them: 0, 1, 2, 3, 4, 8 or 16.
    pub const AGGREGATE_KEY_WORDS: &str = "AGGREGATE_KEY_WORDS";
    /// `u32`: entries of a map.
    pub const AGGREGATE_KEYS_MAX: &str = "AGGREGATE_KEYS_MAX";
    /// Elements of `AGGREGATE_INDEX`, of which there is a power of two.
    pub const AGGREGATE_INDEX_LEN: &str = "AGGREGATE_INDEX_LEN";
    /// `u32`: their number less 1.
    pub const AGGREGATE_INDEX_MASK: &str = "AGGREGATE_INDEX_MASK";
    /// `u32`: words of the keys of times: 1 to 4.
    pub const AGGREGATE_START_WORDS: &str = "AGGREGATE_START_WORDS";
    /// `u32`: elements of `AGGREGATE_STARTS`, of which there is a power of two, less 1.
    pub const AGGREGATE_STARTS_MASK: &str = "AGGREGATE_STARTS_MASK";
    /// `u32`: offset of `task_struct.pid`, or 0 without BTF.
    pub const TASK_PID: &str = "TASK_PID";
    /// `u32`: offset of `task_struct.tgid`, or 0 without BTF.
    pub const TASK_TGID: &str = "TASK_TGID";
    /// `u32`: offset of `task_struct.comm`, or 0 without BTF.
    pub const TASK_COMM: &str = "TASK_COMM";
    /// `u32`: offset of `task_struct.migration_disabled`, or 0.
    pub const TASK_MIGRATION: &str = "TASK_MIGRATION";
    /// `u32`: offset of `task_struct.mm`, or 0.
    pub const TASK_MM: &str = "TASK_MM";
    /// `u32`: offset of `task_struct.se.nr_migrations`, or 0.
    pub const TASK_NR_MIGRATIONS: &str = "TASK_NR_MIGRATIONS";
    /// `u32`: offset of `task_struct.thread_info.preempt_lazy_count`, or 0.
    pub const TASK_LAZY_COUNT: &str = "TASK_LAZY_COUNT";
    /// `u32`: how often the kernel disables migration around a raw tracepoint's program, instead of
    /// preemption.
    pub const RAW_MIGRATION: &str = "RAW_MIGRATION";
    /// `u32`: offset of `task_struct.thread_info.status`, whose bit 1 marks 32-bit system calls on x86, or 0.
    pub const TASK_STATUS: &str = "TASK_STATUS";
    /// `u32`: the generation of programs that may be chosen to count in [`super::CpuControl::compat_calls`];
    /// 0 of others.
    pub const COUNTS_COMPAT: &str = "COUNTS_COMPAT";
    /// `u32`: non-zero where `SYSCALLS` has an event at the entry of some system call.
    pub const NAMED_ENTER: &str = "NAMED_ENTER";
    /// `u32`: the same at the exit.
    pub const NAMED_EXIT: &str = "NAMED_EXIT";
    /// `u32`: [`super::begin_flags`] of the events of single system calls.
    pub const NAMED_FLAGS: &str = "NAMED_FLAGS";
    /// `u32`: non-zero where records of some system call have copies of strings.
    pub const NAMED_STRINGS: &str = "NAMED_STRINGS";
    /// `u32`: how long these are at most ([`super::STRING_MAX`]); 0 leaves them empty.
    pub const STRING_LIMIT: &str = "STRING_LIMIT";
    /// `u32`: non-zero where strings that cannot be read at the entry are copied at the exit. Needs
    /// `TASK_MM` and `TASK_NR_MIGRATIONS`.
    pub const LATE_STRINGS: &str = "LATE_STRINGS";
    /// `u32`: slot of `raw_syscalls:sys_enter` plus 1, or 0.
    pub const RAW_ENTER: &str = "RAW_ENTER";
    /// `u32`: the kernel's id of that event.
    pub const RAW_ENTER_ID: &str = "RAW_ENTER_ID";
    /// `u32`: slot of `raw_syscalls:sys_exit` plus 1, or 0.
    pub const RAW_EXIT: &str = "RAW_EXIT";
    /// `u32`: the kernel's id of that event.
    pub const RAW_EXIT_ID: &str = "RAW_EXIT_ID";
    /// `u32`: slot of `ftrace:kernel_stack` plus 1, or 0 if no event is followed by one.
    pub const KERNEL_STACK: &str = "KERNEL_STACK";
    /// `u32`: the kernel's id of that event.
    pub const KERNEL_STACK_ID: &str = "KERNEL_STACK_ID";
    /// `u32`: slot of `ftrace:user_stack` plus 1, or 0.
    pub const USER_STACK: &str = "USER_STACK";
    /// `u32`: the kernel's id of that event.
    pub const USER_STACK_ID: &str = "USER_STACK_ID";
    /// `u32`: one of [`super::user_entry`].
    pub const USER_ENTRY: &str = "USER_ENTRY";
    /// `u32`: non-zero where another task's program may run on a CPU before the running one has ended.
    pub const PREEMPTIBLE: &str = "PREEMPTIBLE";
    /// `u32`: how many `sets` of rings there are; 0 where all share one.
    pub const RING_SETS: &str = "RING_SETS";
    /// `u32`: whose they are: one of [`super::sets`].
    pub const RING_SETS_BY: &str = "RING_SETS_BY";
    /// `u32`: rows of `CONTROL` that each of them has: one more than the highest possible CPU id.
    pub const ROWS_OF_SET: &str = "ROWS_OF_SET";
    /// `u32`: bytes of each side queue, a power of two.
    pub const SIDE_BYTES: &str = "SIDE_BYTES";
    /// `u32`: offset of `task_struct.signal`; like the next five used only where processes are chosen by the
    /// numbers of their own pid namespaces.
    pub const TASK_SIGNAL: &str = "TASK_SIGNAL";
    /// `u32`: offset of `signal_struct.pids[PIDTYPE_TGID]`.
    pub const SIGNAL_TGID: &str = "SIGNAL_TGID";
    /// `u32`: offset of `pid.level`.
    pub const PID_LEVEL: &str = "PID_LEVEL";
    /// `u32`: offset of `pid.numbers[0].nr`.
    pub const PID_NR: &str = "PID_NR";
    /// `u32`: the distance to that of the next level.
    pub const UPID_SIZE: &str = "UPID_SIZE";
    /// `u32`: offset of `task_struct.cred`; like the following used only where threads are chosen by the ids
    /// of their own user namespaces.
    pub const TASK_CRED: &str = "TASK_CRED";
    /// `u32`: offset of `cred.uid`.
    pub const CRED_UID: &str = "CRED_UID";
    /// `u32`: offset of `cred.gid`.
    pub const CRED_GID: &str = "CRED_GID";
    /// `u32`: offset of `cred.user_ns`.
    pub const CRED_USER_NS: &str = "CRED_USER_NS";
    /// `u32`: offset of `user_namespace.uid_map`.
    pub const USER_NS_UID_MAP: &str = "USER_NS_UID_MAP";
    /// `u32`: offset of `user_namespace.gid_map`.
    pub const USER_NS_GID_MAP: &str = "USER_NS_GID_MAP";
    /// `u32`: offset of `uid_gid_map.nr_extents`.
    pub const ID_MAP_COUNT: &str = "ID_MAP_COUNT";
    /// `u32`: offset of `uid_gid_map.extent`.
    pub const ID_MAP_EXTENTS: &str = "ID_MAP_EXTENTS";
    /// `u32`: offset of `uid_gid_map.reverse`.
    pub const ID_MAP_REVERSE: &str = "ID_MAP_REVERSE";
    /// `u32`: the user that stands for those that a namespace does not have
    /// (`/proc/sys/kernel/overflowuid`).
    pub const OVERFLOW_UID: &str = "OVERFLOW_UID";
    /// `u32`: the same for groups.
    pub const OVERFLOW_GID: &str = "OVERFLOW_GID";
    /// `u32`: offset of `task_struct.se.cfs_rq`, or 0.
    pub const TASK_CFS_RQ: &str = "TASK_CFS_RQ";
    /// `u32`: offset of `cfs_rq.rq`.
    pub const CFS_RQ_RQ: &str = "CFS_RQ_RQ";
    /// `u32`: offset of `rq.cpu`.
    pub const RQ_CPU: &str = "RQ_CPU";
    /// `i64`: what leads from a CPU's `runqueues` variable to its preempt count.
    pub const RQ_TO_PREEMPT: &str = "RQ_TO_PREEMPT";
    /// `u32`: number in BTF of a structure that starts with an `int`, or 0 where the kernel has no
    /// `bpf_rdonly_cast`.
    pub const INT_HOLDER: &str = "INT_HOLDER";
    /// `u32`: the kernel's `TRACE_FLAG_PREEMPT_RESCHED`, or 0 where it has no such flag (with the
    /// `PREEMPT_RT` patches before 6.6).
    pub const FLAG_PREEMPT_RESCHED: &str = "FLAG_PREEMPT_RESCHED";
    /// `u32`: non-zero on architectures whose preempt count keeps "reschedule needed" inverted in its top bit
    /// (x86, arch/x86/include/asm/preempt.h).
    pub const PREEMPT_NEED_RESCHED: &str = "PREEMPT_NEED_RESCHED";
}

const _: () = {
    assert!(size_of::<CpuControl>() == 256);
    assert!(core::mem::offset_of!(CpuControl, head) == 128);
    assert!(size_of::<CpuBorder>() == 56 + 8 * LossCause::COUNT);
    assert!(size_of::<PageMeta>() == 16);
    assert!(size_of::<EventSlot>() == 24 + 4 * DYNAMIC_FIELDS_MAX);
    assert!(size_of::<rate::Group>() == 16 && rate::GROUPS.is_power_of_two());
    assert!(size_of::<EventLedger>() == 80);
    assert!(size_of::<SyscallSlot>() == 24);
    assert!(size_of::<StringNote>() == 64);
    assert!(size_of::<SideEntry>() == 32 && SIDE_BYTES.is_power_of_two());
    assert!(SIDE_BYTES_OF_SET.is_power_of_two() && SIDE_BYTES_OF_WATCH.is_power_of_two());
    assert!(SIDE_BYTES_PREEMPTIBLE.is_power_of_two() && SIDE_BYTES > SIDE_ALIGN);
    assert!(size_of::<NameRecord>() == 20);
    assert!(RECORD_MAX == 4072);
};
