//! The graph of calls: which calls of which threads are nested in which (`agent_ebpf::calls`).
//!
//! `graph_enter`, `graph_start` and `graph_leave` are called by the programs that the agent writes
//! (`agent/compile/src/dynamic/graph.rs`), as `fast_begin` is.
//!
//! A call whose return is never seen (the kernel was out of memory for it, the program was skipped, the
//! function does not return) must not stay in the record. Stacks grow down, so whatever is entered or left
//! further up shows that such a call is over. Interrupts have a stack of their own, on top of which no
//! thread's own stack is ever used.
//!
//! A [`CallEvent`] and a [`CallEnd`] are on the stack of the program that calls, which has filled in the
//! first but for the function. A [`CallThread`] is used by the thread alone that `CALL_OWNERS` names, with
//! preemption off.

use agent_ebpf::{
    LossCause,
    calls::{
        CALL_BUCKETS, CALL_ON_TASK, CALL_WAYS, CALLS_MAX, Call, CallEnd, CallEvent, CallThread, OWNER_IDLE,
        OWNER_THREAD,
    },
};
use aya_ebpf::helpers::{bpf_get_current_task, bpf_probe_read_kernel, generated::bpf_get_func_ip};

use crate::{
    atomic,
    context::{self, Current},
    maps::{CALL_OWNERS, CALLS},
    ring::{Ring, clamp},
    tasks,
};

/// No record.
const NONE: u64 = u64::MAX;
/// How many functions that return from one place, each having called the next as its last act, are told
/// apart.
const TAIL_CALLS_MAX: usize = 8;

/// Notes a call, unless it is no part of the graph, or too deep in it. `cookie` is the slot of the event of
/// entries. Null if the call is not noted.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/graph_enter")]
extern "C" fn graph_enter(ctx: *const u8, event: *mut CallEvent, cookie: u64) -> *mut Call {
    enter(ctx, event, cookie as u32).unwrap_or_default()
}

/// Says that a call's entry is recorded, and when the call begins: now.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/graph_start")]
extern "C" fn graph_start(call: *mut Call) -> u64 {
    // SAFETY: the map's value: `graph_enter` has given the program this call of the current thread.
    unsafe { (*call).start = context::now() };
    0
}

/// Takes a call that returns out of the record. Gives 0 if its entry is not recorded.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/graph_leave")]
extern "C" fn graph_leave(ctx: *const u8, event: *mut CallEvent, end: *mut CallEnd) -> u64 {
    // Before everything that takes time.
    // SAFETY: `end` is on the calling program's stack, and is not read.
    unsafe { (&raw mut (*end).end).write_volatile(context::now()) };
    u64::from(leave(ctx, event, end) == Some(true))
}

#[inline(always)]
fn enter(ctx: *const u8, event: *mut CallEvent, cookie: u32) -> Option<*mut Call> {
    let cpu = context::cpu();
    let current = Current::get();
    let (owner, bucket) = owner(current.tid, cpu);
    let mut index = find(owner, bucket);
    // SAFETY: the calling program has filled in the event, on its stack.
    let (is_root, flags) = unsafe { ((*event).root != 0, (*event).flags) };
    if index == NONE {
        if !is_root {
            return None;
        }
        let mut ring = Ring::open(cpu, cookie)?;
        if !tasks::admits(&mut ring, cookie, &current, flags, || None) {
            return None;
        }
        index = claim(owner, bucket);
        if index == NONE {
            ring.lose(LossCause::Nested);
            return None;
        }
    }
    let thread = CALLS.get_ptr_mut(index as u32)?;
    // SAFETY: the context is the one that the kernel has called the program with, which the verifier insists
    // on.
    let function = unsafe { bpf_get_func_ip(ctx.cast_mut().cast()) };
    // SAFETY: the calling program's event, which nobody else uses.
    let stack = unsafe {
        (*event).function = function;
        (*event).stack
    };
    // The caller's last act: it has returned to the same place, which is not known to be a trampoline for
    // nothing.
    // SAFETY: the helper catches the fault of a wrong address; any eight bytes are a `u64`.
    let back = unsafe { bpf_probe_read_kernel(stack as *const u64) }.unwrap_or(0);
    // SAFETY: the calling program has filled in the event.
    let is_last_act = unsafe { back == (*event).trampolines[0] || back == (*event).trampolines[1] };
    let limit = if is_last_act { stack } else { stack + 1 };
    let cpu_and_flag = settle(thread, event, limit, cpu) as u32;
    // SAFETY: the map's value, and the current thread's.
    let depth = unsafe { (*thread).len };
    if depth == 0 && !is_root {
        release(index);
        return None;
    }
    // SAFETY: the calling program has filled in the event.
    if depth >= unsafe { (*event).max_depth } {
        return None;
    }
    if depth >= CALLS_MAX as u32 {
        // SAFETY: the map's value, and the current thread's.
        unsafe { (*thread).overrun += 1 };
        Ring::open(cpu, cookie)?.lose(LossCause::Nested);
        return None;
    }
    let call = at(thread, depth);
    // SAFETY: the map's value, and the current thread's; `call` is one of its calls, and not `event`, which
    // is on the calling program's stack.
    unsafe {
        (*call).function = (*event).function;
        (*call).stack = stack;
        (*call).start = 0;
        (*call).depth = depth;
        (*call).cpu_and_flag = cpu_and_flag;
        (*thread).len = depth + 1;
    }
    Some(call)
}

#[inline(always)]
fn leave(ctx: *const u8, event: *mut CallEvent, end: *mut CallEnd) -> Option<bool> {
    let cpu = context::cpu();
    let (owner, bucket) = owner(Current::get().tid, cpu);
    let index = find(owner, bucket);
    if index == NONE {
        return None;
    }
    let thread = CALLS.get_ptr_mut(index as u32)?;
    // SAFETY: the context is the one that the kernel has called the program with, which the verifier insists
    // on.
    let function = unsafe { bpf_get_func_ip(ctx.cast_mut().cast()) };
    // SAFETY: the calling program's event, which nobody else uses.
    let stack = unsafe {
        (*event).function = function;
        (*event).stack - 8
    };
    settle(thread, event, stack, cpu);
    // SAFETY: the map's value, and the current thread's.
    let len = unsafe { (*thread).len };
    for above in 1..=TAIL_CALLS_MAX as u32 {
        if len < above {
            break;
        }
        let call = at(thread, len - above);
        // SAFETY: the first is in the map's value, and the current thread's; the calling program has filled
        // in the other.
        if unsafe { (*call).stack.wrapping_sub(stack) > (*event).slack } {
            break;
        }
        // SAFETY: the map's value, and the current thread's.
        if unsafe { (*call).function } == function {
            // SAFETY: `call` is in `thread`, the map's value, and the current thread's; `end` is on the
            // calling program's stack.
            let start = unsafe {
                let start = (*call).start;
                (*end).start = start;
                (*end).depth = (*call).depth;
                (*end).overrun = (*thread).overrun;
                (*thread).len = len - above;
                start
            };
            // Last: once released, the record may be another thread's.
            if len == above {
                release(index);
            }
            return Some(start != 0);
        }
    }
    None
}

/// Forgets the calls of a thread that is no more.
#[inline(always)]
pub fn forget(tid: u32) {
    if tid != 0 {
        let (owner, bucket) = owner(tid, 0);
        let index = find(owner, bucket);
        if index != NONE {
            release(index);
        }
    }
}

/// Who owns the record of a thread, and in which bucket it is.
#[inline(always)]
fn owner(tid: u32, cpu: u32) -> (u64, u64) {
    let (bit, number) = if tid == 0 { (OWNER_IDLE, cpu) } else { (OWNER_THREAD, tid) };
    (bit | u64::from(number), u64::from(number) % CALL_BUCKETS as u64)
}

/// The record of this owner.
#[inline(never)]
fn find(owner: u64, bucket: u64) -> u64 {
    let Some(owners) = CALL_OWNERS.get_ptr(bucket as u32) else { return NONE };
    for way in 0..CALL_WAYS {
        // SAFETY: the map's value: `CALL_WAYS` owners.
        if atomic::load(unsafe { owners.cast::<u64>().add(way) }) == owner {
            return bucket * CALL_WAYS as u64 + way as u64;
        }
    }
    NONE
}

/// An empty record for this owner.
#[inline(never)]
fn claim(owner: u64, bucket: u64) -> u64 {
    let Some(owners) = CALL_OWNERS.get_ptr_mut(bucket as u32) else { return NONE };
    for way in 0..CALL_WAYS {
        // SAFETY: the map's value: `CALL_WAYS` owners.
        let cell = unsafe { owners.cast::<u64>().add(way) };
        if atomic::load(cell) == 0 && atomic::replace(cell, 0, owner) {
            let index = bucket * CALL_WAYS as u64 + way as u64;
            if let Some(thread) = CALLS.get_ptr_mut(index as u32) {
                // SAFETY: the map's value; the exchange has made it this owner's and nobody else's.
                unsafe {
                    (*thread).len = 0;
                    (*thread).overrun = 0;
                }
            }
            return index;
        }
    }
    NONE
}

/// Gives a record back.
#[inline(never)]
fn release(index: u64) -> u64 {
    if let Some(owners) = CALL_OWNERS.get_ptr_mut((index / CALL_WAYS as u64) as u32) {
        let way = clamp::<{ CALL_WAYS as u32 - 1 }>((index % CALL_WAYS as u64) as u32);
        // SAFETY: the map's value: `CALL_WAYS` owners, of which `way` is one.
        atomic::store(unsafe { owners.cast::<u64>().add(way as usize) }, 0);
    }
    0
}

/// Call `number` of a thread.
#[inline(always)]
fn at(thread: *mut CallThread, number: u32) -> *mut Call {
    let number = clamp::<{ CALLS_MAX as u32 - 1 }>(number);
    // SAFETY: the map's value: `CALLS_MAX` calls, of which `number` is one.
    unsafe { (&raw mut (*thread).calls).cast::<Call>().add(number as usize) }
}

/// Takes out the calls that are over, given that only what is at `limit` or above on this stack is not. Gives
/// the [`Call::cpu_and_flag`] of a call here.
#[inline(never)]
fn settle(thread: *mut CallThread, event: *const CallEvent, limit: u64, cpu: u32) -> u64 {
    // SAFETY: the calling program has filled in the event, on its stack.
    let (task_stack, size) = unsafe { ((*event).task_stack as usize, u64::from((*event).stack_size)) };
    // SAFETY: the helper takes nothing.
    let task = unsafe { bpf_get_current_task() } as *const u8;
    // SAFETY: the agent has the offset of `task_struct.stack` from the kernel's BTF.
    let stack_member = unsafe { task.add(task_stack).cast::<u64>() };
    // SAFETY: the helper catches the fault of a wrong address; any eight bytes are a `u64`.
    let base = unsafe { bpf_probe_read_kernel(stack_member) }.unwrap_or(0);
    let on_task = limit.wrapping_sub(base) <= size;
    for _ in 0..CALLS_MAX {
        // SAFETY: the map's value, and the current thread's.
        let len = unsafe { (&raw const (*thread).len).read_volatile() };
        if len == 0 {
            break;
        }
        let call = at(thread, len - 1);
        // SAFETY: the map's value, and the current thread's.
        let (stack, cpu_and_flag) = unsafe { ((*call).stack, (*call).cpu_and_flag) };
        let over = if cpu_and_flag & CALL_ON_TASK != 0 {
            // Not even on this stack: it was another thread's of the same id.
            stack.wrapping_sub(base) > size || on_task && stack < limit
        } else {
            on_task || cpu_and_flag != cpu || stack < limit && limit - stack < size
        };
        if !over {
            break;
        }
        // SAFETY: the map's value, and the current thread's.
        unsafe { (&raw mut (*thread).len).write_volatile(len - 1) };
    }
    u64::from(if on_task { cpu | CALL_ON_TASK } else { cpu })
}
