//! What is known about the moment an event fires: time, thread, and the common fields of its record.

use agent_ebpf::{CAST_CALL, COMPAT_CALL, CpuControl, begin_flags, clock};
use aya_ebpf::helpers::{
    bpf_get_current_pid_tgid, bpf_get_current_task, bpf_get_current_task_btf, bpf_get_smp_processor_id,
    bpf_ktime_get_boot_ns, bpf_ktime_get_ns, bpf_probe_read_kernel, generated::bpf_ktime_get_tai_ns,
};

use crate::{globals, percpu};

// include/linux/preempt.h: 8 bits of preemption depth, 8 of softirq, 4 of hardirq, 4 of NMI.
const PREEMPT_MASK: u32 = 0xff;
const SOFTIRQ_MASK: u32 = 0xff00;
const SOFTIRQ_SERVING: u32 = 0x100;
const HARDIRQ_MASK: u32 = 0xf_0000;
const NMI_MASK: u32 = 0xf0_0000;
/// What an NMI adds (`__nmi_enter`, include/linux/hardirq.h).
const NMI_MARKS: u32 = 0x11_0000;
const NEED_RESCHED_INVERTED: u32 = 0x8000_0000;

// include/linux/trace_events.h, enum trace_flag_type; the kernels differ in what is not here.
const FLAG_IRQS_OFF: u32 = 0x01;
const FLAG_NEED_RESCHED: u32 = 0x04;
const FLAG_HARDIRQ: u32 = 0x08;
const FLAG_SOFTIRQ: u32 = 0x10;
const FLAG_NMI: u32 = 0x40;
const FLAG_BH_OFF: u32 = 0x80;
/// Of an event's id with its flags, what goes to the record's first word as it is.
const ID_AND_FLAGS: u32 = 0xffff | begin_flags::IRQS_OFF;
const _: () = assert!(begin_flags::IRQS_OFF == FLAG_IRQS_OFF << 16);

/// The thread that an event fires in.
pub struct Current {
    /// Its `task_struct`, for direct loads; null where the offsets of its fields are not known
    /// ([`has_task`]).
    task: *const u8,
    /// The thread's id.
    pub tid: u32,
    /// Its process's.
    pub tgid: u32,
}

/// Whether the offsets of a task's fields are known. Asked for instead of the pointer, which no constant
/// shows to be null.
#[inline(always)]
fn has_task() -> bool {
    globals::task_pid() != 0 && globals::task_tgid() != 0
}

impl Current {
    /// Whether the thread is in a 32-bit system call (`TS_COMPAT`, arch/x86/include/asm/thread_info.h).
    #[inline(always)]
    pub fn in_compat_syscall(&self) -> bool {
        const TS_COMPAT: u32 = 2;
        if !has_task() || globals::task_status() == 0 {
            return false;
        }
        // SAFETY: with `has_task`, the task is the one that `get` had from the kernel; the loader has the
        // offset of this `u32` from the kernel's BTF.
        let status = unsafe { self.task.add(globals::task_status() as usize).cast::<u32>().read_volatile() };
        status & TS_COMPAT != 0
    }

    /// The mark of a 32-bit call in the number of the thread's call: `COMPAT_CALL` or 0.
    #[inline(always)]
    pub fn call_mark(&self) -> u64 {
        if self.in_compat_syscall() { COMPAT_CALL } else { 0 }
    }

    /// How often the thread has been moved to another CPU (`set_task_cpu`, kernel/sched/core.c). Needs
    /// `TASK_NR_MIGRATIONS`.
    #[inline(always)]
    pub fn migrations(&self) -> u64 {
        if !has_task() || globals::task_nr_migrations() == 0 {
            return 0;
        }
        // SAFETY: with `has_task`, the task is the one that `get` had from the kernel; the loader has the
        // offset of this `u64` from the kernel's BTF.
        unsafe { self.task.add(globals::task_nr_migrations() as usize).cast::<u64>().read_volatile() }
    }

    /// The address of what describes the current thread's memory (`struct mm_struct`), as a number; 0 if it
    /// is not known. `execve` makes a new one while the old one is still there. Needs `TASK_MM`.
    #[inline(always)]
    pub fn memory(&self) -> u64 {
        if globals::task_mm() == 0 {
            return 0;
        }
        // A load through the task would give a pointer, which the verifiers of some kernels neither compare
        // nor store.
        // SAFETY: the helper takes nothing.
        let member = unsafe { bpf_get_current_task() } + u64::from(globals::task_mm());
        // SAFETY: the helper catches the fault of a wrong address; any eight bytes are a `u64`.
        unsafe { bpf_probe_read_kernel(member as *const u64) }.unwrap_or(0)
    }

    /// A load from the task costs a tenth of a helper call.
    #[inline(always)]
    pub fn get() -> Self {
        if !has_task() {
            let ids = bpf_get_current_pid_tgid();
            return Self { task: core::ptr::null(), tid: ids as u32, tgid: (ids >> 32) as u32 };
        }
        // SAFETY: the helper takes nothing. The task that it gives is not freed while this program runs in
        // it.
        let task = unsafe { bpf_get_current_task_btf() } as *const u8;
        // SAFETY: the loader has the offsets of both `pid_t` from the kernel's BTF. The verifier knows them
        // as constants and checks by the same BTF that each load is of one member of `task_struct`.
        let (tid, tgid) = unsafe {
            (
                task.add(globals::task_pid() as usize).cast::<u32>().read_volatile(),
                task.add(globals::task_tgid() as usize).cast::<u32>().read_volatile(),
            )
        };
        Self { task, tid, tgid }
    }
}

/// The CPU that the program runs on. It is not moved to another one before it ends.
#[inline(always)]
pub fn cpu() -> u32 {
    // SAFETY: the helper takes nothing, and every kind of program may call it.
    unsafe { bpf_get_smp_processor_id() as u32 }
}

/// Whether the event is one of an interrupt: a hard one, an NMI, or a soft interrupt that is served. It is
/// the opposite of the kernel's `in_task()` (include/linux/preempt.h), but for what a thread does while it
/// only keeps soft interrupts off, which adds twice [`SOFTIRQ_SERVING`].
///
/// With `breakpoint`, the event may come by one (`exc_int3`, arch/x86/kernel/traps.c, calls
/// `irqentry_nmi_enter`). The marks of a breakpoint in a thread are those of an NMI that interrupts one: both
/// count as the thread's then.
///
/// With `PREEMPT_RT` soft interrupts are served in threads, with no mark in the count: their events are those
/// of the thread. Nor is there an answer where the count cannot be read (kernels without BTF): then all
/// events are a thread's, and the ledger says so.
///
/// A function of the program: it is called for the few events that would be left out otherwise.
#[inline(never)]
pub fn in_interrupt(ctl: *mut CpuControl, breakpoint: u64) -> u64 {
    let address = percpu::preempt_count(ctl);
    if address == 0 {
        return 0;
    }
    let marks = read_word(address).unwrap_or(0) & (NMI_MASK | HARDIRQ_MASK | SOFTIRQ_SERVING);
    u64::from(marks != 0 && (breakpoint == 0 || marks != NMI_MARKS))
}

/// The time stamp of an event, in nanoseconds of the chosen clock.
#[inline(always)]
pub fn now() -> u64 {
    match globals::clock() {
        // SAFETY: the helper takes nothing; kernels that can load the programs have it (since 5.8).
        clock::BOOT => unsafe { bpf_ktime_get_boot_ns() },
        // SAFETY: the helper takes nothing. The loader sets this clock only where the kernel has the helper;
        // else the verifier removes the call.
        clock::TAI => unsafe { bpf_ktime_get_tai_ns() },
        // SAFETY: the helper takes nothing; every kernel with eBPF programs for tracing has it.
        _ => unsafe { bpf_ktime_get_ns() },
    }
}

/// What running a program adds to the current task's state.
#[derive(Clone, Copy)]
pub struct Own {
    /// Levels of disabled migration, which the eBPF dispatcher adds.
    pub migration: u32,
    /// Levels of disabled preemption: a tracepoint (include/linux/tracepoint.h, `__DO_TRACE`) and a kprobe
    /// add one.
    pub preemption: u32,
}

/// The first word of a record: `common_type`, `common_flags`, `common_preempt_count`.
///
/// As ftrace fills them (`tracing_gen_ctx_irq_test`, kernel/trace/trace.c), from the CPU's preempt count,
/// less what the hook itself and the eBPF dispatcher add (`own` is their share). `id` is the event's, with
/// its `begin_flags`.
///
/// Whether interrupts are off cannot be read by a program. It is known of hard interrupts, whose handlers run
/// with interrupts off, and of events with `begin_flags::IRQS_OFF`; the flag of all others is 0. The kernel's
/// flag for "not known" (0x02) is none: from 6.13 on it means that the thread shall be rescheduled lazily,
/// and readers such as trace-cmd 3.4 take it for that in recordings of every kernel. Whether a thread shall
/// be is not known either: the bit's number among a thread's flags (`TIF_NEED_RESCHED_LAZY`) is in no type
/// information.
#[inline(always)]
pub fn common_word(ctl: *mut CpuControl, id: u32, current: &Current, own: Own) -> u32 {
    let id = id & ID_AND_FLAGS;
    let mut flags = 0;
    let mut depth = 0;
    let migration = migration_level(current);
    let address = percpu::preempt_count(ctl);
    if address != 0
        && let Some(count) = read_word(address)
    {
        // Most events: nothing but what the hook and the dispatcher add.
        let rest = if globals::preempt_need_resched() != 0 { NEED_RESCHED_INVERTED } else { 0 };
        if count == own.preemption | rest && migration == own.migration {
            return id;
        }
        if count & HARDIRQ_MASK != 0 {
            flags = FLAG_IRQS_OFF | FLAG_HARDIRQ;
        }
        if count & SOFTIRQ_SERVING != 0 {
            flags |= FLAG_SOFTIRQ;
        }
        if count & SOFTIRQ_MASK & !SOFTIRQ_SERVING != 0 {
            flags |= FLAG_BH_OFF;
        }
        if count & NMI_MASK != 0 {
            flags |= FLAG_NMI;
        }
        if globals::preempt_need_resched() != 0 && count & NEED_RESCHED_INVERTED == 0 {
            flags |= FLAG_NEED_RESCHED | globals::flag_preempt_resched();
        }
        depth = (count & PREEMPT_MASK).saturating_sub(own.preemption);
        if depth > 0xf {
            depth = 0xf;
        }
    }
    let migration = migration.saturating_sub(own.migration);
    depth |= if migration > 0xf { 0xf0 } else { migration << 4 };
    id | flags << 16 | depth << 24
}

/// Reads a word of the kernel's memory. A load through a pointer that the verifier does not trust costs a
/// nanosecond, the helper thirty.
#[inline(always)]
fn read_word(address: u64) -> Option<u32> {
    if globals::int_holder() == 0 {
        // SAFETY: the helper catches the fault of an address that is not mapped; any four bytes are a `u32`.
        return unsafe { bpf_probe_read_kernel(address as *const u32) }.ok();
    }
    let holder: *const u32;
    // SAFETY: the loader makes this a call of `bpf_rdonly_cast` (kernel/bpf/helpers.c), which gives back its
    // first argument, or an instruction without effect where `int_holder` is 0 and the call is not reached.
    // The operands have all registers that the calling convention lets a function change.
    unsafe {
        core::arch::asm!(
            "call {cast}",
            cast = const CAST_CALL,
            inlateout("r1") address => _,
            inlateout("r2") u64::from(globals::int_holder()) => _,
            lateout("r0") holder,
            lateout("r3") _,
            lateout("r4") _,
            lateout("r5") _,
            options(nostack),
        );
    }
    // SAFETY: to the verifier this points to a structure that starts with an `int` (`int_holder`), which it
    // lets be read and not written; the kernel catches the load's fault (`BPF_PROBE_MEM`), which then gives
    // 0.
    Some(unsafe { holder.read_volatile() })
}

/// How often the current task has migration disabled.
#[inline(always)]
fn migration_level(current: &Current) -> u32 {
    let offset = globals::task_migration();
    if offset == 0 || !has_task() {
        return 0;
    }
    // SAFETY: with `has_task`, the task is the one that `Current::get` had from the kernel; the loader has
    // the offset of this `unsigned short` from the kernel's BTF.
    let level = unsafe { current.task.add(offset as usize).cast::<u16>().read_volatile() };
    u32::from(level)
}

/// How often the current task has lazy preemption disabled (`common_preempt_lazy_count`), without what
/// running this program adds: the first level of disabled migration adds one.
#[inline(always)]
pub fn lazy_count(current: &Current, own_migration: u32) -> u32 {
    let offset = globals::task_lazy_count();
    if offset == 0 || globals::task_migration() == 0 || !has_task() {
        return 0;
    }
    // SAFETY: with `has_task`, the task is the one that `Current::get` had from the kernel; the loader has
    // the offsets of this `int` and this `unsigned short` from the kernel's BTF.
    let (count, migration) = unsafe {
        (
            current.task.add(offset as usize).cast::<u32>().read_volatile(),
            current.task.add(globals::task_migration() as usize).cast::<u16>().read_volatile(),
        )
    };
    let own = if own_migration != 0 && u32::from(migration) == own_migration { 1 } else { 0 };
    count.saturating_sub(own) & 0xff
}
