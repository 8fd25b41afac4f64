//! Attach points of programs compiled for one event: functions of the kernel and of user space.
//!
//! | hook | way | since |
//! |---|---|---|
//! | an offset in a kernel function, or its return | perf event of the unit `kprobe` | 5.15 (cookies) |
//! | entries or returns of kernel functions, one or many | `kprobe.multi` | 5.18 |
//! | both, and the program at an entry tells whether it wants the return | `kprobe.session` | 6.10 |
//! | an offset in a binary, or the return from there | perf event of the unit `uprobe` | 5.15 |
//! | offsets in a binary, one or many | `uprobe.multi` | 6.6 |
//! | entry or exit of a kernel function with typed arguments | trampoline (`fentry`, `fexit`) | 5.15 |
//!
//! Programs at uprobes and trampolines run with migration disabled and preemption enabled
//! (`bpf_prog_run_array_uprobe`, include/linux/bpf.h; `__bpf_prog_enter_recur`, kernel/bpf/trampoline.c);
//! those at kprobes, alone or many, with preemption disabled (arch/x86/kernel/kprobes/core.c;
//! `ftrace_test_recursion_trylock`, include/linux/trace_recursion.h).

use std::{ffi::CString, fmt};

use bpf::preemption::Preemption;
use bpf::program::Body;
use bpf::relocation::Subprogram;
use bpf::unit::Unit;
use elf::OpenBinary;
use kernel::btf::TypeId;

/// An attach point of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hook {
    /// In a function of the kernel.
    Kernel {
        /// The function, as kallsyms has it.
        symbol: CString,
        /// Where it is, unless the name does not tell. The kernel looks for a name among all of its symbols,
        /// one by one before 6.2 (`kallsyms_lookup_name`), several times for each probe, and refuses one that
        /// several have.
        address: Option<u64>,
        /// Bytes after its beginning.
        offset: u64,
        /// The function's return instead of the offset.
        returns: bool,
    },
    /// At many functions of the kernel.
    KernelFunctions {
        /// Their addresses.
        addresses: Vec<u64>,
        /// At their returns.
        returns: bool,
    },
    /// At the entries of many functions, and at the returns of the calls for which the program gave 0 there.
    KernelCalls {
        /// The functions' addresses.
        addresses: Vec<u64>,
    },
    /// In a binary.
    User {
        /// The file.
        path: OpenBinary,
        /// Offset in the file.
        offset: u64,
        /// What the program is given there (`bpf_get_attach_cookie`).
        cookie: u64,
        /// Offset in the file of a 16-bit counter that the kernel raises while the probe is there; 0 if there
        /// is none.
        reference_counter: u64,
        /// The return from the function that begins there.
        returns: bool,
    },
    /// At offsets in a binary, one or many.
    UserOffsets {
        /// The file.
        path: OpenBinary,
        /// Offsets in the file.
        offsets: Vec<u64>,
        /// As of [`Hook::User`], for each offset; or none.
        cookies: Vec<u64>,
        /// As of [`Hook::User`], for each offset; or none.
        reference_counters: Vec<u64>,
        /// The returns from the functions that begin there.
        returns: bool,
    },
    /// At a tracepoint, with the record that the kernel makes for perf.
    Tracepoint {
        /// The event's id.
        id: u16,
    },
    /// At the entry of a function of the kernel, with its arguments as BTF has them.
    Entry {
        /// The function in BTF.
        function: TypeId,
    },
    /// At its exit, with the returned value after the arguments.
    Exit {
        /// The function in BTF.
        function: TypeId,
    },
}

impl Hook {
    /// Whether programs can be preempted there.
    pub fn is_preemptible(&self) -> bool {
        !self.is_guarded_like_tracepoints()
    }

    /// Whether the kernel's guard against recursion counts what it keeps from programs there only since 6.7.
    pub fn is_guarded_like_tracepoints(&self) -> bool {
        matches!(
            self,
            Self::Kernel { .. }
                | Self::KernelFunctions { .. }
                | Self::KernelCalls { .. }
                | Self::Tracepoint { .. }
        )
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let returns = |returns: &bool| if *returns { "the return of " } else { "" };
        let user_offset = |out: &mut fmt::Formatter<'_>, at, binary: &OpenBinary, offset: u64| {
            write!(out, "{}{}:{offset:#x}", returns(at), binary.path().display())
        };
        match self {
            Self::Kernel { symbol, offset, returns: at, .. } => {
                write!(out, "{}{}", returns(at), symbol.to_string_lossy())?;
                if *offset == 0 { Ok(()) } else { write!(out, "+{offset:#x}") }
            }
            Self::KernelFunctions { addresses, returns: at } => {
                write!(out, "{}{} functions", returns(at), addresses.len())
            }
            Self::KernelCalls { addresses } => write!(out, "{} functions", addresses.len()),
            Self::User { path, offset, returns: at, .. } => user_offset(out, at, path, *offset),
            Self::UserOffsets { path, offsets, returns: at, .. } => match offsets.as_slice() {
                [offset] => user_offset(out, at, path, *offset),
                _ => write!(out, "{}{} offsets of {}", returns(at), offsets.len(), path.path().display()),
            },
            Self::Tracepoint { id } => write!(out, "the tracepoint of event {id}"),
            Self::Entry { .. } => out.write_str("the function's entry"),
            Self::Exit { .. } => out.write_str("the function's exit"),
        }
    }
}

/// The kernel lacks a kind of hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSuchHook {
    /// Kprobes.
    #[error(
        "this kernel has no kprobes for perf (CONFIG_KPROBES and CONFIG_KPROBE_EVENTS are not set, or are locked down); \
         tracepoints (-e) and uprobes may do instead: see `tracer-agent doctor`"
    )]
    Kprobes,
    /// Uprobes.
    #[error(
        "this kernel has no uprobes for perf (CONFIG_UPROBES and CONFIG_UPROBE_EVENTS are not set, or are locked down)"
    )]
    Uprobes,
    /// Entries and exits of the kernel's functions.
    #[error(
        "this kernel refuses eBPF programs at the entry and exit of its functions (--fentry, --fexit) with EPERM, although it takes \
         this process's other programs: tracing of kernel functions is disabled on it; tracepoints (-e) and uprobes may do instead: \
         see `tracer-agent doctor`"
    )]
    Functions,
}

/// Whether the kernel has kprobes, for an error before anything is begun.
pub fn check_kprobes() -> Result<(), NoSuchHook> {
    Unit::kprobe().map(drop).ok_or(NoSuchHook::Kprobes)
}

/// Whether the kernel has uprobes.
pub fn check_uprobes() -> Result<(), NoSuchHook> {
    Unit::uprobe().map(drop).ok_or(NoSuchHook::Uprobes)
}

/// A program for one or more events, and where it goes.
#[derive(Clone, Debug)]
pub struct HookProgram {
    /// Shown by tools.
    pub name: String,
    /// The code.
    pub body: Body,
    /// Attach points of one kind, so that one program suits them.
    pub hooks: Vec<Hook>,
    /// Whether it runs with preemption on.
    pub preemption: Preemption,
    /// Whether it may wait for memory that is not there.
    pub sleepable: bool,
    /// What becomes of an attach point that the kernel refuses.
    pub on_refusal: OnRefusal,
}

/// What becomes of an attach point that the kernel refuses a program at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRefusal {
    /// The recording does not start.
    Fail,
    /// The attach point is left out, as long as the program has another.
    LeaveOutAttachPoint,
    /// The attach point is left out: the event is one of several that a pattern means.
    LeaveOutEvent,
    /// The program is left out: it counts what another program of the event, before it, is not called for.
    Forgo,
}

impl OnRefusal {
    /// For a program at so many attach points.
    pub(crate) fn of_attach_points(count: usize) -> Self {
        if count > 1 { Self::LeaveOutAttachPoint } else { Self::Fail }
    }
}

impl HookProgram {
    /// Whether it writes records with preemption on.
    pub fn is_preemptible(&self) -> bool {
        self.preemption == Preemption::On
    }

    /// The same with this for attach points that the kernel refuses, if it is given.
    pub(crate) fn on_refusal(self, given: Option<OnRefusal>) -> Self {
        Self { on_refusal: given.unwrap_or(self.on_refusal), ..self }
    }

    /// Whether it only counts what is missing.
    pub fn counts_missing(&self) -> bool {
        self.body.calls(Subprogram::Miss)
    }

    /// Whether it keeps track of nested calls.
    pub fn tracks_calls(&self) -> bool {
        self.body.calls(Subprogram::GraphEnter)
    }
}
