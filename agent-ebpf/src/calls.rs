//! The record of nested calls that each thread in a call graph has, and what the agent's programs and the
//! object's pass to each other about a call.
//!
//! A thread has a [`CallThread`] from its first call of a root of the graph until that call returns. Which
//! one is in the map `CALL_OWNERS`: buckets of [`CALL_WAYS`] owners, a cache line each; element `n` of
//! `CALLS` belongs to owner `n % CALL_WAYS` of bucket `n / CALL_WAYS`. The bucket follows from the thread's
//! id, so a thread without a record is recognised by one line of memory.
//!
//! Only the thread itself uses its record, with preemption off, and programs at functions do not interrupt
//! one another on a CPU (`bpf_prog_active`, kernel/trace/bpf_trace.c), so nothing in it is atomic but the
//! owner.

/// Owners in a bucket.
pub const CALL_WAYS: usize = 8;
/// Buckets of a recording with a call graph; 4096 threads may be in it at the same time.
pub const CALL_BUCKETS: usize = 512;
/// Calls that are nested at most. ftrace has room for 50 (`FTRACE_RETFUNC_DEPTH`, include/linux/ftrace.h).
pub const CALLS_MAX: usize = 64;
/// Bit of [`Call::cpu_and_flag`]: the call was made on its thread's own stack, and not on that of an
/// interrupt.
pub const CALL_ON_TASK: u32 = 1 << 31;
/// Bit of an owner that is a thread; the others are its id. 0 is nobody.
pub const OWNER_THREAD: u64 = 1 << 32;
/// Bit of an owner that is a CPU's idle task, all of which have the id 0; the others are the CPU's.
pub const OWNER_IDLE: u64 = 1 << 33;

/// A call that has not returned.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Call {
    /// The function.
    pub function: u64,
    /// Where the return address is.
    pub stack: u64,
    /// When it began, by the recording's clock; 0 if its entry was not recorded.
    pub start: u64,
    /// How many calls it is nested in.
    pub depth: u32,
    /// The CPU, and [`CALL_ON_TASK`].
    pub cpu_and_flag: u32,
}

/// A thread's calls.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CallThread {
    /// How many there are.
    pub len: u32,
    /// How many were nested too deeply to be recorded, as ftrace's `overrun`.
    pub overrun: u32,
    /// The outermost first.
    pub calls: [Call; CALLS_MAX],
}

/// What a program at a function knows, on its stack.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CallEvent {
    /// The function; filled in by the object's half.
    pub function: u64,
    /// The stack pointer: at an entry, where the return address is; at a return, 8 above.
    pub stack: u64,
    /// Where functions return to whose returns are watched.
    pub trampolines: [u64; 2],
    /// At a return, by how much the stack pointer may be too low.
    pub slack: u64,
    /// Offset of `task_struct.stack`.
    pub task_stack: u32,
    /// Bytes of a thread's stack.
    pub stack_size: u32,
    /// Whether the function is a root of the graph.
    pub root: u32,
    /// How many nested calls are recorded.
    pub max_depth: u32,
    /// [`begin_flags`](super::begin_flags).
    pub flags: u32,
}

/// What is known of a call that has returned.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CallEnd {
    /// When it began.
    pub start: u64,
    /// When it returned.
    pub end: u64,
    /// As [`Call::depth`].
    pub depth: u32,
    /// As [`CallThread::overrun`].
    pub overrun: u32,
}

const _: () = {
    assert!(size_of::<Call>() == 32 && size_of::<CallThread>() == 8 + 32 * CALLS_MAX);
    assert!(size_of::<CallEvent>() == 64 && size_of::<CallEnd>() == 24);
    assert!(CALL_BUCKETS.is_power_of_two() && CALLS_MAX.is_power_of_two());
};
