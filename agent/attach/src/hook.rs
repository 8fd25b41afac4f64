//! Attaching programs to the attach points that they are compiled for.

use std::{
    io,
    ops::Range,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use serde::{Deserialize, Serialize};

use super::{AttachError, Attachment, AttachmentState, NamedState, ProbeError, RecursionMisses};
use bpf::load::{LoadError, Object, Refused, side_by_side, verify};
use bpf::parts::{Code, Parts};
use bpf::preemption::Preemption;
use bpf::program::Recorded;
use bpf::sys;
use bpf::sys::FunctionEnd;
use bpf::unit::Unit;
use compile::hook::{Hook, HookProgram, NoSuchHook, OnRefusal};
use stdx::handover::{Descriptors, Missing};

/// The kernel's side of an attach point.
trait AttachPoint {
    /// What the kernel is given to load a program for it.
    fn program<'a>(&self, name: &'a str, code: &'a Code) -> sys::Program<'a>;

    /// What the kernel may mean by an error.
    fn advice(&self, error: &io::Error) -> &'static str;

    /// Whether a kernel that has loaded other programs of this process refuses this kind of hook altogether.
    fn is_forbidden(&self, error: &io::Error) -> bool;

    /// Attaches a loaded program.
    fn attach(&self, program: BorrowedFd<'_>) -> Result<Attachment, HookError>;
}

impl AttachPoint for Hook {
    fn program<'a>(&self, name: &'a str, code: &'a Code) -> sys::Program<'a> {
        let (kind, expected_attach, attach_btf_id) = match self {
            Self::Kernel { .. } | Self::User { .. } => (sys::ProgramKind::Kprobe, 0, 0),
            Self::KernelFunctions { .. } => (sys::ProgramKind::Kprobe, sys::BPF_TRACE_KPROBE_MULTI, 0),
            Self::KernelCalls { .. } => (sys::ProgramKind::Kprobe, sys::BPF_TRACE_KPROBE_SESSION, 0),
            Self::UserOffsets { .. } => (sys::ProgramKind::Kprobe, sys::BPF_TRACE_UPROBE_MULTI, 0),
            Self::Tracepoint { .. } => (sys::ProgramKind::Tracepoint, 0, 0),
            Self::Entry { function } => (sys::ProgramKind::Tracing, sys::BPF_TRACE_FENTRY, function.0),
            Self::Exit { function } => (sys::ProgramKind::Tracing, sys::BPF_TRACE_FEXIT, function.0),
        };
        sys::Program { expected_attach, attach_btf_id, ..code.program(kind, name) }
    }

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
                Self::User { .. } | Self::UserOffsets { .. },
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

    fn is_forbidden(&self, error: &io::Error) -> bool {
        matches!(self, Self::Entry { .. } | Self::Exit { .. }) && error.raw_os_error() == Some(libc::EPERM)
    }

    fn attach(&self, program: BorrowedFd<'_>) -> Result<Attachment, HookError> {
        let alone = |link| Attachment { link, carrier: None };
        let link = "BPF_LINK_CREATE";
        let (step, result) = match self {
            Self::Kernel { symbol, address, offset, returns } => {
                let unit = Unit::kprobe().ok_or(NoSuchHook::Kprobes)?;
                let location = match address {
                    Some(address) => sys::ProbeLocation::Address(address.wrapping_add(*offset)),
                    None => sys::ProbeLocation::Named(symbol, *offset),
                };
                return link_probe(program, unit.open(location, 0, *returns), 0).map(alone);
            }
            Self::User { path, offset, cookie, reference_counter, returns } => {
                let unit = Unit::uprobe().ok_or(NoSuchHook::Uprobes)?;
                let location = sys::ProbeLocation::Named(path, *offset);
                let event = unit.open(location, *reference_counter, *returns);
                return link_probe(program, event, *cookie).map(alone);
            }
            Self::KernelFunctions { addresses, returns } => {
                let end = if *returns { FunctionEnd::Return } else { FunctionEnd::Entry };
                (link, sys::link_kprobes(program, addresses, end))
            }
            Self::KernelCalls { addresses } => {
                (link, sys::link_kprobes(program, addresses, FunctionEnd::Both))
            }
            Self::UserOffsets { path, offsets, cookies, reference_counters, returns } => {
                (link, sys::link_uprobes(program, path, offsets, cookies, reference_counters, *returns))
            }
            Self::Tracepoint { id } => {
                let carrier = sys::open_tracepoint(*id)
                    .map_err(|source| HookError::Refused { step: "perf_event_open", source })?;
                return Ok(Attachment { link: link_event(program, &carrier, 0)?, carrier: Some(carrier) });
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

fn link_probe(
    program: BorrowedFd<'_>,
    event: io::Result<OwnedFd>,
    cookie: u64,
) -> Result<OwnedFd, HookError> {
    let event = event.map_err(|source| HookError::Refused { step: "perf_event_open", source })?;
    link_event(program, &event, cookie)
}

fn link_event(program: BorrowedFd<'_>, event: &OwnedFd, cookie: u64) -> Result<OwnedFd, HookError> {
    // The link keeps the event.
    sys::link_perf_event(program, event.as_fd(), cookie)
        .map_err(|source| HookError::Refused { step: "BPF_LINK_CREATE", source })
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

/// Attached programs.
#[derive(Debug, Default)]
pub struct HookLinks {
    /// For the detacher.
    pub(crate) attachments: Vec<Attachment>,
    /// With the events that they are for.
    programs: Vec<(String, OwnedFd)>,
    /// Which of the attachments are each one's, if it is at kprobes or tracepoints.
    kprobes: Vec<Range<usize>>,
    /// Whether one of them is at a kprobe or a tracepoint.
    pub(crate) has_kprobes: bool,
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

    /// How often the kernel has not called the programs for which that says something. Of those at kprobes
    /// and tracepoints it is known if the kernel `counts_all`.
    pub(crate) fn misses(&self, counts_all: bool) -> impl Iterator<Item = RecursionMisses> {
        let is_counted = counts_all || !self.has_kprobes;
        self.programs.iter().zip(&self.kprobes).map(move |((event, program), kprobes)| {
            let missed = || {
                let kprobes = self.attachments.get(kprobes.clone()).unwrap_or_default();
                let mut by_links = kprobes.iter().map(|of| sys::missed_by_link(of.link.as_fd()));
                let by_program = sys::told_of_program(program.as_fd(), "recursion_misses")?;
                by_links.try_fold(by_program, |sum, missed| Some(sum.saturating_add(missed?)))
            };
            RecursionMisses { program: event.clone(), misses: is_counted.then(missed).flatten() }
        })
    }

    /// Adds those of other programs.
    pub fn append(&mut self, mut other: Self) {
        let before = self.attachments.len();
        self.kprobes.extend(other.kprobes.drain(..).map(|of| of.start + before..of.end + before));
        self.attachments.append(&mut other.attachments);
        self.programs.append(&mut other.programs);
        self.has_kprobes |= other.has_kprobes;
    }

    /// Takes what has to be detached.
    pub fn take_attachments(&mut self) -> Vec<Attachment> {
        self.programs.clear();
        self.kprobes.clear();
        std::mem::take(&mut self.attachments)
    }
}

/// Links of probes on their way to another process.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct HooksState {
    attachments: Vec<AttachmentState>,
    programs: NamedState,
    kprobes: Vec<Range<usize>>,
    has_kprobes: bool,
}

impl HookLinks {
    /// Gives them away. The programs go on.
    pub fn hand_over(self, to: &mut Descriptors) -> HooksState {
        let attachments = self.attachments.into_iter().map(|of| of.hand_over(to)).collect();
        let programs = NamedState::of(self.programs, to);
        HooksState { attachments, programs, kprobes: self.kprobes, has_kprobes: self.has_kprobes }
    }

    /// Takes those that another process has given away.
    ///
    /// # Errors
    /// A descriptor is missing.
    pub fn take_over(state: HooksState, from: &mut Descriptors) -> Result<Self, Missing> {
        let HooksState { attachments, programs, kprobes, has_kprobes } = state;
        let attachments = attachments.into_iter().map(|of| Attachment::take_over(of, from));
        let attachments = attachments.collect::<Result<_, _>>()?;
        Ok(Self { attachments, programs: programs.take(from)?, kprobes, has_kprobes })
    }
}

/// A program with the events that it records, for [`attach`].
#[derive(Clone, Debug)]
pub(crate) struct ToAttach<'a> {
    /// The events, as the body's relocations number them.
    pub(crate) events: Vec<Recorded>,
    /// What errors call it.
    pub(crate) event: &'a str,
    pub(crate) program: &'a HookProgram,
}

/// Loads these programs, side by side, and attaches them. Gives the links, and the attach points that were
/// left out, with the reasons.
pub(crate) fn attach(
    object: &Object,
    programs: &[ToAttach<'_>],
) -> Result<(HookLinks, Vec<(String, ProbeError)>), ProbeError> {
    let loaded = side_by_side(programs, |to_attach| load(to_attach, object.parts()));
    let mut links = HookLinks::default();
    let mut left_out = Vec::new();
    // Whether the event has the program beside which another one counts what is missing.
    let mut is_recorded = true;
    for (to_attach, loaded) in programs.iter().zip(loaded) {
        let forgoes = to_attach.program.on_refusal == OnRefusal::Forgo;
        let counting = || format!("the count of missing returns of {}", to_attach.event);
        let loaded = match loaded {
            Err(error) if forgoes => {
                left_out.push((counting(), error));
                continue;
            }
            loaded => loaded?,
        };
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
                    match to_attach.program.on_refusal {
                        OnRefusal::Fail => return Err(error),
                        OnRefusal::Forgo if is_recorded => left_out.push((counting(), error)),
                        OnRefusal::Forgo => {}
                        OnRefusal::LeaveOutAttachPoint | OnRefusal::LeaveOutEvent => {
                            left_out.push((event, error));
                        }
                    }
                }
            }
        }
        if !forgoes {
            is_recorded = links.attachments.len() != attached_before;
        }
        if links.attachments.len() == attached_before {
            if to_attach.program.on_refusal == OnRefusal::LeaveOutAttachPoint
                && let Some((_, reason)) = left_out.pop()
            {
                return Err(reason);
            }
            continue;
        }
        let has_kprobes = to_attach.program.hooks.iter().any(Hook::is_guarded_like_tracepoints);
        links.has_kprobes |= has_kprobes;
        // At all functions, what is missed is mostly what the program itself calls.
        if !to_attach.program.tracks_calls() && !to_attach.program.counts_missing() {
            links.programs.push((to_attach.event.to_owned(), loaded));
            links.kprobes.push(if has_kprobes { attached_before..links.attachments.len() } else { 0..0 });
        }
    }
    Ok((links, left_out))
}

fn load(to_attach: &ToAttach<'_>, parts: &Parts) -> Result<OwnedFd, ProbeError> {
    let ToAttach { events, event, program } = to_attach;
    let Some(hook) = program.hooks.first() else {
        return Err(LoadError::Missing("place of a program").into());
    };
    let mut code = program.body.link(events, parts)?;
    if matches!(program.preemption, Preemption::Guarded(_)) {
        code = code.all_ordinary();
    }
    let to_load = sys::Program { sleepable: program.sleepable, ..hook.program(&program.name, &code) };
    verify(&to_load).map_err(|Refused { source, log }| {
        if hook.is_forbidden(&source) {
            return NoSuchHook::Functions.into();
        }
        LoadError::Compiled { event: (*event).to_owned(), source, log }.into()
    })
}
