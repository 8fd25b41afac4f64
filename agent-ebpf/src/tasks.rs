//! Which threads are recorded, and what they are called.
//!
//! Thread ids are kept in bitmaps, as ftrace keeps `set_event_pid` (kernel/trace/pid_list.c): a test costs
//! one array lookup, nothing is allocated when a task is followed, and user space sets bits without a system
//! call.

use agent_ebpf::{COMM_LEN, CpuControl, NAMES_WAKE, NameRecord, begin_flags, slot_flags};
use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    helpers::{bpf_get_current_pid_tgid, bpf_probe_read_kernel, bpf_probe_read_kernel_str_bytes},
    macros::raw_tracepoint,
    maps::Array,
    programs::RawTracePointContext,
};

use crate::{
    atomic,
    context::{self, Current},
    diagnose, globals, graph,
    maps::{CONTROL, EVENTS, NAMES, SCOPED, TRACED, UNTRACED},
    ring::Ring,
    scope,
};

/// `CLONE_THREAD` (include/uapi/linux/sched.h).
const CLONE_THREAD: u64 = 0x1_0000;

/// Whether an event is recorded, as far as its threads decide that.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is.
    Wanted,
    /// Its threads are not wanted.
    Filtered,
    /// It is of one of the agent's threads.
    Own,
}

/// Whether the event of the ring in slot `cookie` is recorded, as [`judge`] says. Counts it if not.
#[inline(always)]
pub fn admits(
    ring: &mut Ring,
    cookie: u32,
    current: &Current,
    flags: u32,
    other: impl Fn() -> Option<u32>,
) -> bool {
    match judge(ring.ctl, current, flags, other) {
        Verdict::Wanted => return true,
        Verdict::Filtered if is_of_every_thread(cookie) => {
            // A scope does not ask for the agent's threads, and so has not looked for them.
            let in_interrupt =
                || context::in_interrupt(ring.ctl, (flags & begin_flags::BREAKPOINT).into()) != 0;
            if !is_self(ring.ctl, current, in_interrupt) {
                return true;
            }
            ring.leave_out_own();
        }
        Verdict::Filtered => ring.filter_out(),
        Verdict::Own => ring.leave_out_own(),
    }
    false
}

/// Whether the event in the slot is recorded whichever threads the recording is about. Only events of threads
/// that it is not about come here.
#[inline(always)]
fn is_of_every_thread(cookie: u32) -> bool {
    if globals::every_thread() == 0 {
        return false;
    }
    let Some(slot) = EVENTS.get_ptr(cookie) else { return false };
    // SAFETY: the map's value; the agent fills it in before it attaches the event, and not again.
    unsafe { (*slot).flags & slot_flags::EVERY_THREAD != 0 }
}

/// Whether an event that fires while the current thread has the CPU is recorded. `flags` are `begin_flags`;
/// `other` names the second thread of a scheduler event: as with ftrace's `set_event_pid` and
/// `set_event_notrace_pid`, a switch or a wakeup counts for both threads, and is left out only if neither is
/// wanted.
///
/// An event of an interrupt has nothing to do with the thread that was interrupted. Where threads are asked
/// for, it counts as that thread's, as with ftrace's `set_event_pid`, which compares the current thread
/// wherever an event fires. Where threads are excluded, the agent's among them, it is recorded: it may be the
/// end of what a thread began that is not excluded.
///
/// Switches make a chain: whoever gets the CPU is who gives it away next. Where nothing but the agent's own
/// threads is left out, it has no gaps, for which switches between two of them are recorded, too. Where
/// threads were asked for, a gap is between two others: whoever was switched to as one that is wanted is also
/// switched away from.
#[inline(always)]
pub fn judge(
    ctl: *mut CpuControl,
    current: &Current,
    flags: u32,
    other: impl Fn() -> Option<u32>,
) -> Verdict {
    let is_switch = || flags & begin_flags::SWITCH != 0;
    let in_interrupt = || context::in_interrupt(ctl, (flags & begin_flags::BREAKPOINT).into()) != 0;
    let sets = scope::asked_sets();
    let wanted_other =
        || other().filter(|&tid| is_listed(tid) && was_in_scope(sets, tid) && !contains(&UNTRACED, tid));
    if sets == 0 && globals::filter_tasks() == 0 {
        let is_wanted = !is_self(ctl, current, in_interrupt) || is_switch() || wanted_other().is_some();
        return if is_wanted { Verdict::Wanted } else { Verdict::Own };
    }
    // The scope first, which notes what it finds.
    let is_asked_for = in_scope(sets, current, in_interrupt) && is_listed(current.tid);
    let mut is_wanted = is_asked_for && !is_self(ctl, current, in_interrupt);
    if is_switch() {
        let next = wanted_other();
        is_wanted = is_owed(ctl, current.tid, next) || is_wanted || next.is_some();
    } else {
        is_wanted = is_wanted || wanted_other().is_some();
    }
    match (is_wanted, is_asked_for) {
        (true, _) => Verdict::Wanted,
        (false, true) => Verdict::Own,
        (false, false) => Verdict::Filtered,
    }
}

/// Whether the switch away from the current thread has to be recorded because the one to it was wanted; notes
/// the same for `next`, the thread that gets the CPU, if that one is wanted. Between the two the thread's
/// name, user, or control group may change, or its being one of the agent's become known.
///
/// The thread is part of the note: a program that rejects a switch by the event's own filter does not come
/// here, and what it leaves noted is about a thread that no longer has the CPU.
///
/// The kernel switches with interrupts off, and so nothing comes between the load and the store.
#[inline(always)]
fn is_owed(ctl: *mut CpuControl, tid: u32, next: Option<u32>) -> bool {
    // SAFETY: the map's value, of which this is a member.
    let owed = unsafe { &raw mut (*ctl).switch_owed };
    let before = atomic::load(owed);
    let after = next.map_or(0, owed_to);
    if before != after {
        atomic::store(owed, after);
    }
    before == owed_to(tid)
}

/// The note about a thread; never 0, which is nobody's.
#[inline(always)]
fn owed_to(tid: u32) -> u64 {
    1 << 32 | u64::from(tid)
}

/// Whether the event is one of the agent's threads, and not of an interrupt that came while one of them had
/// the CPU.
#[inline(always)]
fn is_self(ctl: *mut CpuControl, current: &Current, in_interrupt: impl Fn() -> bool) -> bool {
    // SAFETY: the map's value, of which this is an aligned member that the agent writes with single stores.
    let is_agents = || current.tgid == unsafe { (&raw const (*ctl).self_tgid).read_volatile() };
    globals::excludes_self() != 0 && is_agents() && !in_interrupt()
}

/// Whether the filter by thread ids takes the thread.
#[inline(always)]
fn is_listed(tid: u32) -> bool {
    globals::filter_tasks() == 0 || contains(&TRACED, tid)
}

/// Whether a thread other than the current one was within the scope when it was last seen.
#[inline(always)]
fn was_in_scope(sets: u64, tid: u32) -> bool {
    sets == 0 || contains(&SCOPED, tid)
}

/// Whether the event is within the scope of the recording: that of the current thread, or, in an interrupt,
/// what the sets of excluded threads leave of it. Notes whether the thread is, for the events of other
/// threads that are about it.
#[inline(always)]
fn in_scope(sets: u64, current: &Current, in_interrupt: impl Fn() -> bool) -> bool {
    if sets == 0 {
        return true;
    }
    let inside = scope::takes(sets, current.tgid.into(), 0) != 0;
    if contains(&SCOPED, current.tid) != inside {
        note(&SCOPED, current.tid, inside);
    }
    inside
        || scope::excludes(sets)
            && in_interrupt()
            && scope::takes(scope::without_exclusions(sets), current.tgid.into(), 0) != 0
}

#[inline(always)]
fn note(set: &Array<u64>, tid: u32, inside: bool) {
    if let Some(word) = set.get_ptr_mut(tid / 64) {
        let bit = 1 << (tid % 64);
        if inside { atomic::set_bits(word, bit) } else { atomic::clear_bits(word, bit) }
    }
}

#[inline(always)]
fn contains(set: &Array<u64>, tid: u32) -> bool {
    match set.get_ptr(tid / 64) {
        Some(word) => atomic::load(word) >> (tid % 64) & 1 != 0,
        None => false,
    }
}

/// `task_newtask(struct task_struct *task, u64 clone_flags)`: the new thread has its parent's name, and is
/// followed when its parent is traced. It has not run yet (`copy_process`, kernel/fork.c), so none of its
/// events is missed.
#[raw_tracepoint(tracepoint = "task_newtask")]
pub fn task_created(ctx: RawTracePointContext) -> i32 {
    let task: *const u8 = ctx.arg(0);
    let clone_flags: u64 = ctx.arg(1);
    let Some(tid) = task_tid(task) else { return 0 };
    // SAFETY: the tracepoint's task; the loader has the offset of `task_struct.comm` from the kernel's BTF,
    // from which `task_tid` has the id's.
    let comm = unsafe { task.add(globals::task_comm() as usize) };
    note_name(tid, comm);
    let ids = bpf_get_current_pid_tgid();
    let is_thread = clone_flags & CLONE_THREAD != 0;
    if globals::filter_tasks() != 0
        && (is_thread || globals::follow_fork() != 0)
        && contains(&TRACED, ids as u32)
    {
        note(&TRACED, tid, true);
    }
    let sets = scope::asked_sets();
    if sets != 0 {
        let process = if is_thread { ids >> 32 } else { tid.into() };
        note(&SCOPED, tid, scope::takes(sets, process, task as u64) != 0);
    }
    0
}

/// `task_rename(struct task_struct *task, const char *comm)`: exec and prctl. It fires before the name is
/// copied.
#[raw_tracepoint(tracepoint = "task_rename")]
pub fn task_renamed(ctx: RawTracePointContext) -> i32 {
    let task: *const u8 = ctx.arg(0);
    let comm: *const u8 = ctx.arg(1);
    // Without BTF the task's id cannot be read, but a task nearly always renames itself.
    let tid = task_tid(task).unwrap_or(bpf_get_current_pid_tgid() as u32);
    note_name(tid, comm);
    0
}

/// `sched_process_free(struct task_struct *p)`: the id may be given to another task from here on.
#[raw_tracepoint(tracepoint = "sched_process_free")]
pub fn task_freed(ctx: RawTracePointContext) -> i32 {
    let Some(tid) = task_tid(ctx.arg(0)) else { return 0 };
    graph::forget(tid);
    if contains(&TRACED, tid) {
        note(&TRACED, tid, false);
    }
    if globals::scope() != 0 && contains(&SCOPED, tid) {
        note(&SCOPED, tid, false);
    }
    0
}

#[inline(always)]
fn task_tid(task: *const u8) -> Option<u32> {
    let offset = globals::task_pid();
    if offset == 0 {
        return None;
    }
    // SAFETY: the tracepoint's task; the loader has the offset of this `pid_t` from the kernel's BTF.
    let tid = unsafe { task.add(offset as usize).cast::<u32>() };
    // SAFETY: the helper catches the fault of a wrong address; any four bytes are a `u32`.
    unsafe { bpf_probe_read_kernel(tid) }.ok()
}

#[inline(always)]
fn note_name(tid: u32, comm: *const u8) {
    let mut record = NameRecord { tid, comm: [0; COMM_LEN] };
    // SAFETY: the helper catches the fault of a wrong address, and writes no more than `comm` has.
    if unsafe { bpf_probe_read_kernel_str_bytes(comm, &mut record.comm) }.is_ok() {
        let cpu = context::cpu();
        let many = NAMES.query(BPF_RB_AVAIL_DATA.into()) >= NAMES_WAKE;
        let wakeup = if many { BPF_RB_FORCE_WAKEUP } else { BPF_RB_NO_WAKEUP };
        if NAMES.output::<NameRecord>(&record, u64::from(wakeup)).is_ok() {
            diagnose::name_noted(tid);
        } else {
            diagnose::name_lost(tid);
            count_lost_name(cpu);
        }
    }
}

/// The agent then reads the names from /proc, for as long as the threads live.
#[inline(always)]
fn count_lost_name(cpu: u32) {
    if let Some(ctl) = CONTROL.get_ptr_mut(cpu, globals::control_len()) {
        // Atomic, as programs of two threads can be on their way here on one CPU.
        // SAFETY: the map's value, of which this is a member.
        atomic::increment(unsafe { &raw mut (*ctl).names_lost });
    }
}
