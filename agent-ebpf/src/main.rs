//! The eBPF programs of tracer-agent, one file per family.
//!
//! | file | programs |
//! |---|---|
//! | `generic` | `generic_event`: records any event of tracefs, whatever its format |
//! | `fast` | `fast_begin`, `fast_end`: the halves of the programs that the agent writes for single events; `fast_reject`, for filtered ones; `fast_miss`, for those that the kernel does not report; `fast_begin_owned`, `fast_reject_owned`, `fast_miss_owned` where users or processes have rings of their own |
//! | `aggregate` | `aggregate_admit`, `aggregate_find` and more: the halves of programs that count in maps |
//! | `graph` | `graph_enter`, `graph_start`, `graph_leave`: which calls of a thread are nested in which, for programs at functions |
//! | `syscalls`, `strings`, `late_strings` | `syscall_enter`, `syscall_exit`: all system calls, and the strings that they are given, at the exit those that could not be read at the entry |
//! | `tasks` | `task_created`, `task_renamed`, `task_freed`: thread names and process following |
//! | `side` | `flush_side`: empties a side queue, run once per CPU at a stop |
//! | `switch` | `switch_page`: closes a CPU's open page, run by the agent's timer |
//! | `border` | `mark_border`: the same, and notes what the CPU has counted there |
//!
//! `stack` records what follows an event: the stacks of the kernel and of its process. `ring` is the writer
//! of the page ring that all recording programs share, `side` what they do when one interrupts another,
//! `wake` tells its reader; `context` rebuilds the common fields, for which `percpu` finds a CPU's preempt
//! count; `scope` asks whether a thread is recorded, for which `ids` reads what its namespaces call it;
//! `owned` finds the rings of a user or process; `parts` calls what the agent writes, `thin` samples and
//! limits, and `diagnose` says what programs do, in builds for that.
//!
//! # What unsafe code relies on
//!
//! The verifier loads no program that could access memory other than what its pointer was made for: the value
//! of a map, the stack, the context, an object of the kernel. A wrong pointer or length fails the load,
//! wherever it comes from; so most functions that take a raw pointer are safe to call. What the verifier does
//! not know is what the bytes mean, and who else accesses them. The SAFETY comments say on which of these
//! they rely:
//!
//! - The *map's value*: a lookup gives a whole one, aligned, that lives as long as the program runs (elements
//!   of an array are never freed). The map's definition has its size from the type, and the types are
//!   integers in `repr(C)`, for which all bytes are valid. The agent only ever makes values larger.
//! - The *flag of the writer*, [`CpuControl::busy`](agent_ebpf::CpuControl::busy): its holder alone uses the
//!   CPU's open page, the page's `PageMeta`, and the control block from `head` on. Of that, others change
//!   only `busy`, `side_tail`, `lost` and `names_lost`, which everyone accesses atomically or by a single
//!   load or store.
//! - The event's *own row* of the ledger: there is one for each CPU, and no program interrupts itself. Where
//!   another task's program may come in between (`PREEMPTIBLE`), it is changed atomically.
//! - The *gate*, [`CpuControl::enabled`](agent_ebpf::CpuControl::enabled): what the agent sets before it
//!   opens it does not change any more.
//! - The *loader*: it sets the constants in `globals` before the kernel verifies the programs, and has
//!   offsets in the kernel's structures from the kernel's BTF.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch, core_intrinsics)]
#![allow(
    internal_features,
    reason = "atomics that the BPF back end selects exist only as intrinsics on this target"
)]
#![allow(
    clippy::inline_always,
    reason = "to the verifier a call costs a frame of the stack, and what it knows of the arguments"
)]
#![allow(
    clippy::cast_ptr_alignment,
    reason = "records and the kernel's structures are bytes here; SAFETY comments tell what is aligned"
)]
#![allow(
    clippy::manual_div_ceil,
    clippy::bool_to_int_with_if,
    reason = "what is proposed instead compiles to more instructions"
)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "the macro that makes a program of a function hands over the context"
)]
#![allow(unreachable_pub, clippy::wildcard_imports)]

mod aggregate;
mod atomic;
mod border;
mod context;
mod diagnose;
mod fast;
mod generic;
mod globals;
mod graph;
mod hold;
mod ids;
mod late_strings;
mod maps;
mod owned;
mod parts;
mod percpu;
mod ring;
mod scope;
mod side;
mod stack;
mod strings;
mod switch;
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
