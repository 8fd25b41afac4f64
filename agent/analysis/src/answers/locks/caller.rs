//! Which function waits for a lock of the kernel or a futex, and what a lock is called.

use std::borrow::Cow;

use ftrace_event::Symbols;
use ftrace_event::stacks::{function, symbol};

/// Functions of the kernel whose names begin like this are of locking itself, or of tracing it.
const LOCKING: [&str; 46] = [
    "queued_spin_lock_slowpath",
    "native_queued_spin_lock_slowpath",
    "__pv_queued_spin_lock_slowpath",
    "resilient_",
    "queued_read_lock_slowpath",
    "queued_write_lock_slowpath",
    "_raw_spin_",
    "_raw_read_",
    "_raw_write_",
    "__raw_spin_",
    "__raw_read_",
    "__raw_write_",
    "do_raw_spin_",
    "do_raw_read_",
    "do_raw_write_",
    "raw_spin_rq_lock",
    "task_rq_lock",
    "__task_rq_lock",
    "mutex_lock",
    "__mutex_lock",
    "ww_mutex_lock",
    "__ww_mutex_lock",
    "rwsem_",
    "down_read",
    "__down_read",
    "down_write",
    "__down_write",
    "down_interruptible",
    "down_killable",
    "down_timeout",
    "__down",
    "___down",
    "percpu_down_",
    "__percpu_down_",
    "percpu_rwsem_wait",
    "rt_mutex_",
    "__rt_mutex_",
    "rtlock_",
    "rt_spin_lock",
    "rt_read_lock",
    "rt_write_lock",
    "rwbase_",
    "trace_contention_",
    "__traceiter_contention_",
    "trace_event_raw_event_contention_",
    "trace_event_buffer_",
];

/// The same, of which nothing is left out: others begin like these.
const LOCKING_EXACTLY: [&str; 1] = ["down"];

/// The innermost function that is not of locking. `None` if there is no stack, or none of them has a name.
pub(super) fn caller<'s>(symbols: &'s dyn Symbols, addresses: &[u64]) -> Option<Cow<'s, str>> {
    let is_locking =
        |name: &str| LOCKING.iter().any(|start| name.starts_with(start)) || LOCKING_EXACTLY.contains(&name);
    let found = addresses.iter().find(|address| !is_locking(&function(symbols, **address)))?;
    symbol(symbols, *found).map(|_| function(symbols, *found))
}

/// Functions of processes whose names begin like this are of waiting itself, in glibc, musl, Rust's standard
/// library, and the runtimes of C++ and Go.
const WAITING: [&str; 31] = [
    "syscall",
    "__syscall",
    "futex_",
    "__futex_",
    "__lll_lock_",
    "lll_lock_",
    "pthread_mutex_",
    "__pthread_mutex_",
    "___pthread_mutex_",
    "pthread_rwlock_",
    "__pthread_rwlock_",
    "___pthread_rwlock_",
    "pthread_cond_",
    "__pthread_cond_",
    "___pthread_cond_",
    "pthread_barrier_",
    "__pthread_barrier_",
    "___pthread_barrier_",
    "sem_wait",
    "sem_timedwait",
    "sem_clockwait",
    "__new_sem_wait",
    "__timedwait",
    "std::sys::sync::",
    "std::sys::pal::unix::futex::",
    "std::sync::",
    "std::thread::park",
    "std::condition_variable::",
    "std::mutex::",
    "std::shared_mutex::",
    "runtime.futex",
];

/// The innermost function of a process that has a name and is not of waiting. Functions of C libraries that
/// are not exported have no names. `None` if there is no stack, or none of them has a name.
pub(super) fn caller_in_process<'s>(symbols: &'s dyn Symbols, addresses: &[u64]) -> Option<Cow<'s, str>> {
    let names = addresses.iter().filter(|address| symbol(symbols, **address).is_some());
    let mut functions = names.map(|address| function(symbols, *address));
    functions.find(|name| !WAITING.iter().any(|start| name.starts_with(start)))
}

/// Most bytes between the start of a variable and a lock in it. A symbol that is farther away is that of
/// something else: tables of symbols do not say where a variable ends.
const VARIABLE: u64 = 1 << 16;

/// Names that linker scripts give to places between variables.
const BOUNDS: [&str; 8] = ["__start_", "__stop_", "__end_", "__bss_", "_end", "_etext", "_edata", "_sdata"];

/// The name of a lock that is a variable of the kernel, or a part of one. Locks of objects have none.
pub(super) fn lock_name(symbols: &dyn Symbols, address: u64) -> Option<String> {
    let found = symbol(symbols, address)?;
    if found.offset > VARIABLE || BOUNDS.iter().any(|start| found.name.starts_with(start)) {
        return None;
    }
    Some(if found.offset == 0 {
        found.name.to_owned()
    } else {
        format!("{}+{:#x}", found.name, found.offset)
    })
}
