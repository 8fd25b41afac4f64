//! The eBPF programs of tracer-agent, one file per family.
//!
//! | file | programs |
//! |---|---|
//! | `generic` | `generic_event`: records any event of tracefs, whatever its format |
//! | `fast` | `fast_begin`, `fast_end`: the halves of the programs that the agent writes for single events; `fast_reject`, for filtered ones |
//! | `graph` | `graph_enter`, `graph_start`, `graph_leave`: which calls of a thread are nested in which, for programs at functions |
//! | `syscalls`, `strings` | `syscall_enter`, `syscall_exit`: all system calls, and the strings that they are given |
//! | `tasks` | `task_created`, `task_renamed`, `task_freed`: thread names and process following |
//! | `side` | `flush_side`: empties a side queue, run once per CPU at a stop |
//!
//! `stack` records what follows an event: the stacks of the kernel and of its process. `ring` is the writer
//! of the page ring that all recording programs share, `side` what they do when one interrupts another,
//! `wake` tells its reader; `context` rebuilds the common fields, for which `percpu` finds a CPU's preempt
//! count; `parts` calls what the agent writes, and `thin` samples and limits.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch, core_intrinsics)]
#![allow(
    internal_features,
    reason = "atomics that the BPF back end selects exist only as intrinsics on this target"
)]
#![allow(unreachable_pub, clippy::undocumented_unsafe_blocks, clippy::wildcard_imports)]

mod atomic;
mod context;
mod fast;
mod generic;
mod globals;
mod graph;
mod maps;
mod parts;
mod percpu;
mod ring;
mod side;
mod stack;
mod strings;
mod syscalls;
mod tasks;
mod thin;
mod wake;

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier refuses unreachable loops, so a panic path that survives optimisation fails the load
    // loudly.
    loop {}
}

/// The kernel offers the helpers used here only to programs under a GPL-compatible licence.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
