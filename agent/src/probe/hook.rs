//! Places that programs compiled for one event are attached to: functions of the kernel and of user space.
//!
//! | hook | way | since |
//! |---|---|---|
//! | a place in a kernel function, or its return | perf event of the unit `kprobe` | 5.15 (cookies) |
//! | entries or returns of kernel functions, one or many | `kprobe.multi` | 5.18 |
//! | both, and the program at an entry tells whether it wants the return | `kprobe.session` | 6.10 |
//! | a place in a binary, or the return from there | perf event of the unit `uprobe` | 5.15 |
//! | places in a binary, one or many | `uprobe.multi` | 6.6 |
//! | entry or exit of a kernel function with typed arguments | trampoline (`fentry`, `fexit`) | 5.15 |
//!
//! Programs at uprobes and trampolines run with migration disabled and preemption enabled
//! (`bpf_prog_run_array_uprobe`, include/linux/bpf.h; `__bpf_prog_enter_recur`, kernel/bpf/trampoline.c);
//! those at kprobes, alone or many, with preemption disabled (arch/x86/kernel/kprobes/core.c;
//! `ftrace_test_recursion_trylock`, include/linux/trace_recursion.h).

use std::{
    ffi::CString,
    fmt, io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use super::{
    ProbeError,
    tracepoint::{AttachError, Attachment},
};
use crate::{
    bpf::{
        load::{LoadError, Object, Refused, side_by_side, verify},
        preemption::Preemption,
        program::{Body, LICENSE, Parts, Recorded},
        relocation::Part,
        sys::{self, FunctionEnd},
        unit::Unit,
    },
    kernel::btf::TypeId,
};

/// A place that a program is attached to.
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
        /// The function's return instead of the place.
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
        /// The file, for the kernel to open.
        path: CString,
        /// Offset in the file.
        offset: u64,
        /// Offset in the file of a 16-bit counter that the kernel raises while the probe is there; 0 if there
        /// is none.
        reference_counter: u64,
        /// The return from the function that begins there.
        returns: bool,
    },
    /// At places in a binary, one or many.
    UserPlaces {
        /// The file, for the kernel to open.
        path: CString,
        /// Offsets in the file.
        offsets: Vec<u64>,
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
    fn is_guarded_like_tracepoints(&self) -> bool {
        matches!(
            self,
            Self::Kernel { .. }
                | Self::KernelFunctions { .. }
                | Self::KernelCalls { .. }
                | Self::Tracepoint { .. }
        )
    }

    fn program<'a>(
        &self,
        name: &'a str,
        instructions: &'a [aya_obj::generated::bpf_insn],
    ) -> sys::Program<'a> {
        let (kind, expected_attach, attach_btf_id) = match self {
            Self::Kernel { .. } | Self::User { .. } => (sys::ProgramKind::Kprobe, 0, 0),
            Self::KernelFunctions { .. } => (sys::ProgramKind::Kprobe, sys::BPF_TRACE_KPROBE_MULTI, 0),
            Self::KernelCalls { .. } => (sys::ProgramKind::Kprobe, sys::BPF_TRACE_KPROBE_SESSION, 0),
            Self::UserPlaces { .. } => (sys::ProgramKind::Kprobe, sys::BPF_TRACE_UPROBE_MULTI, 0),
            Self::Tracepoint { .. } => (sys::ProgramKind::Tracepoint, 0, 0),
            Self::Entry { function } => (sys::ProgramKind::Tracing, sys::BPF_TRACE_FENTRY, function.0),
            Self::Exit { function } => (sys::ProgramKind::Tracing, sys::BPF_TRACE_FEXIT, function.0),
        };
        let sleepable = false;
        sys::Program { kind, name, license: LICENSE, instructions, expected_attach, attach_btf_id, sleepable }
    }

    /// What the kernel may mean by an error.
    fn advice(&self, error: &io::Error) -> &'static str {
        /// `ENOTSUPP` of include/linux/errno.h, which libc does not know.
        const NOT_SUPPORTED: i32 = 524;
        match (self, error.raw_os_error()) {
            (Self::Kernel { .. }, Some(libc::EINVAL)) => {
                "; the kernel allows no probe there: the function is on the kprobe blacklist (NOKPROBE_SYMBOL), or the offset is \
                 inside an instruction"
            }
            (Self::Kernel { .. }, Some(libc::EILSEQ)) => "; the offset is inside an instruction",
            (Self::Kernel { .. }, Some(libc::EADDRNOTAVAIL)) => {
                "; several functions have this name: use a pattern, such as NAM[E]"
            }
            (
                Self::User { .. } | Self::UserPlaces { .. },
                Some(libc::EINVAL | libc::EOPNOTSUPP | NOT_SUPPORTED),
            ) => {
                "; the kernel cannot single-step the instruction there: the offset may be inside an instruction, or beyond the end of the file"
            }
            (Self::KernelFunctions { .. } | Self::KernelCalls { .. }, Some(libc::EOPNOTSUPP)) => {
                "; this kernel has no fprobes (CONFIG_FPROBE)"
            }
            (Self::KernelFunctions { .. } | Self::KernelCalls { .. }, Some(libc::ENOMEM)) => {
                "; up to 6.13 the kernel needs memory for each function and CPU to watch returns: take fewer functions"
            }
            _ => "",
        }
    }

    /// Whether a kernel that has loaded other programs of this process refuses this kind of hook altogether.
    fn is_forbidden(&self, error: &io::Error) -> bool {
        matches!(self, Self::Entry { .. } | Self::Exit { .. }) && error.raw_os_error() == Some(libc::EPERM)
    }

    fn attach(&self, program: BorrowedFd<'_>) -> Result<Attachment, HookError> {
        let alone = |link| Attachment { link, carrier: None };
        let link = "BPF_LINK_CREATE";
        let (step, result) = match self {
            Self::Kernel { symbol, address, offset, returns } => {
                let unit = Unit::kprobe().ok_or(NoSuchHook::Kprobes)?;
                let place = match address {
                    Some(address) => sys::ProbePlace::Address(address.wrapping_add(*offset)),
                    None => sys::ProbePlace::Named(symbol, *offset),
                };
                return link_probe(program, unit.open(place, 0, *returns)).map(alone);
            }
            Self::User { path, offset, reference_counter, returns } => {
                let unit = Unit::uprobe().ok_or(NoSuchHook::Uprobes)?;
                let place = sys::ProbePlace::Named(path, *offset);
                return link_probe(program, unit.open(place, *reference_counter, *returns)).map(alone);
            }
            Self::KernelFunctions { addresses, returns } => {
                let end = if *returns { FunctionEnd::Return } else { FunctionEnd::Entry };
                (link, sys::link_kprobes(program, addresses, end))
            }
            Self::KernelCalls { addresses } => {
                (link, sys::link_kprobes(program, addresses, FunctionEnd::Both))
            }
            Self::UserPlaces { path, offsets, reference_counters, returns } => {
                (link, sys::link_uprobes(program, path, offsets, reference_counters, *returns))
            }
            Self::Tracepoint { id } => {
                let carrier = sys::open_tracepoint(*id)
                    .map_err(|source| HookError::Refused { step: "perf_event_open", source })?;
                return Ok(Attachment { link: link_event(program, &carrier)?, carrier: Some(carrier) });
            }
            Self::Entry { .. } | Self::Exit { .. } => {
                ("BPF_RAW_TRACEPOINT_OPEN", sys::attach_tracing(program))
            }
        };
        result.map(alone).map_err(|source| {
            if self.is_forbidden(&source) {
                HookError::Missing(NoSuchHook::Functions)
            } else {
                HookError::Refused { step, source }
            }
        })
    }
}

fn link_probe(program: BorrowedFd<'_>, event: io::Result<OwnedFd>) -> Result<OwnedFd, HookError> {
    link_event(program, &event.map_err(|source| HookError::Refused { step: "perf_event_open", source })?)
}

fn link_event(program: BorrowedFd<'_>, event: &OwnedFd) -> Result<OwnedFd, HookError> {
    // The link keeps the event.
    sys::link_perf_event(program, event.as_fd(), 0)
        .map_err(|source| HookError::Refused { step: "BPF_LINK_CREATE", source })
}

impl fmt::Display for Hook {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let returns = |returns: &bool| if *returns { "the return of " } else { "" };
        let user_place = |out: &mut fmt::Formatter<'_>, at, path: &CString, offset: u64| {
            write!(out, "{}{}:{offset:#x}", returns(at), path.to_string_lossy())
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
            Self::User { path, offset, returns: at, .. } => user_place(out, at, path, *offset),
            Self::UserPlaces { path, offsets, returns: at, .. } => match offsets.as_slice() {
                [offset] => user_place(out, at, path, *offset),
                _ => write!(out, "{}{} places of {}", returns(at), offsets.len(), path.to_string_lossy()),
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

enum HookError {
    Missing(NoSuchHook),
    Refused { step: &'static str, source: io::Error },
}

impl From<NoSuchHook> for HookError {
    fn from(missing: NoSuchHook) -> Self {
        Self::Missing(missing)
    }
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
    pub(super) body: Body,
    /// Places of one kind, so that one program suits them.
    pub hooks: Vec<Hook>,
    /// Whether it runs with preemption on.
    pub(super) preemption: Preemption,
    /// Whether it may wait for memory that is not there.
    pub(super) sleepable: bool,
    /// What becomes of a place that the kernel refuses.
    pub on_refusal: OnRefusal,
}

/// What becomes of a place that the kernel refuses a program at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRefusal {
    /// The recording does not start.
    Fail,
    /// The place is left out, as long as the program has another.
    LeaveOutPlace,
    /// The place is left out: the event is one of several that a pattern means.
    LeaveOutEvent,
}

impl OnRefusal {
    /// For a program at so many places.
    pub(super) fn of_places(count: usize) -> Self {
        if count > 1 { Self::LeaveOutPlace } else { Self::Fail }
    }
}

impl HookProgram {
    /// Whether it writes records with preemption on.
    pub fn is_preemptible(&self) -> bool {
        self.preemption == Preemption::On
    }

    /// The same with this for places that the kernel refuses, if it is given.
    pub(super) fn on_refusal(self, given: Option<OnRefusal>) -> Self {
        Self { on_refusal: given.unwrap_or(self.on_refusal), ..self }
    }

    /// Whether it keeps track of nested calls.
    pub fn tracks_calls(&self) -> bool {
        self.body.calls(Part::GraphEnter)
    }
}

/// Attached programs.
#[derive(Debug, Default)]
pub struct HookLinks {
    /// For the detacher.
    pub(crate) attachments: Vec<Attachment>,
    /// With the events that they are for.
    programs: Vec<(String, OwnedFd)>,
    /// Whether one of them is at a kprobe or a tracepoint.
    pub(super) has_kprobes: bool,
}

impl HookLinks {
    /// How many links there are.
    pub fn len(&self) -> usize {
        self.attachments.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.attachments.is_empty()
    }

    /// The programs whose counts of what they missed say something, by name.
    pub(super) fn programs(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        self.programs.iter().map(|(name, program)| (name.as_str(), program.as_fd()))
    }

    /// Adds those of other programs.
    pub fn append(&mut self, mut other: Self) {
        self.attachments.append(&mut other.attachments);
        self.programs.append(&mut other.programs);
        self.has_kprobes |= other.has_kprobes;
    }

    /// Takes what has to be detached.
    pub fn take_attachments(&mut self) -> Vec<Attachment> {
        self.programs.clear();
        std::mem::take(&mut self.attachments)
    }
}

/// A program with the events that it records, for [`attach`].
#[derive(Clone, Debug)]
pub(super) struct ToAttach<'a> {
    /// The events, as the body's relocations number them.
    pub(super) events: Vec<Recorded>,
    /// What errors call it.
    pub(super) event: &'a str,
    pub(super) program: &'a HookProgram,
}

/// Loads these programs, side by side, and attaches them. Gives the links, and the places that were left out,
/// with the reasons.
pub(super) fn attach(
    object: &Object,
    programs: &[ToAttach<'_>],
) -> Result<(HookLinks, Vec<(String, ProbeError)>), ProbeError> {
    let parts = Parts::of_object(object)?;
    let loaded = side_by_side(programs, |to_attach| load(to_attach, &parts));
    let mut links = HookLinks::default();
    let mut left_out = Vec::new();
    for (to_attach, loaded) in programs.iter().zip(loaded) {
        let loaded = loaded?;
        let attached_before = links.attachments.len();
        let attached = side_by_side(&to_attach.program.hooks, |hook| hook.attach(loaded.as_fd()));
        for (hook, attached) in to_attach.program.hooks.iter().zip(attached) {
            match attached {
                Ok(attachment) => links.attachments.push(attachment),
                Err(HookError::Missing(missing)) => return Err(missing.into()),
                Err(HookError::Refused { step, source }) => {
                    let event = format!("{} ({hook})", to_attach.event);
                    let advice = hook.advice(&source);
                    let error =
                        ProbeError::Attach(AttachError { event: event.clone(), step, advice, source });
                    if to_attach.program.on_refusal == OnRefusal::Fail {
                        return Err(error);
                    }
                    left_out.push((event, error));
                }
            }
        }
        if links.attachments.len() == attached_before {
            if to_attach.program.on_refusal != OnRefusal::LeaveOutEvent
                && let Some((_, reason)) = left_out.pop()
            {
                return Err(reason);
            }
            continue;
        }
        links.has_kprobes |= to_attach.program.hooks.iter().any(Hook::is_guarded_like_tracepoints);
        // At all functions, what is missed is mostly what the program itself calls.
        if !to_attach.program.tracks_calls() {
            links.programs.push((to_attach.event.to_owned(), loaded));
        }
    }
    Ok((links, left_out))
}

fn load(to_attach: &ToAttach<'_>, parts: &Parts<'_>) -> Result<OwnedFd, ProbeError> {
    let ToAttach { events, event, program } = to_attach;
    let Some(hook) = program.hooks.first() else {
        return Err(LoadError::Missing("place of a program").into());
    };
    let code = program.body.link(events, parts)?;
    let to_load = sys::Program { sleepable: program.sleepable, ..hook.program(&program.name, &code) };
    verify(&to_load).map_err(|Refused { source, log }| {
        if hook.is_forbidden(&source) {
            return NoSuchHook::Functions.into();
        }
        LoadError::Compiled { event: (*event).to_owned(), source, log }.into()
    })
}
