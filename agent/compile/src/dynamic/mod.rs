//! Dynamic probes: kprobes, uprobes and USDT markers as events of their own.
//!
//! What is recorded is written in the language of tracefs' `kprobe_events` and `uprobe_events`
//! (Documentation/trace/kprobetrace.rst, uprobetracer.rst), and the events look as the kernel's own would:
//! the same fields at the same offsets, the same `print fmt`.
//!
//! | module | subject |
//! |---|---|
//! | `spec` | the text of a probe: its name, its attach point, its arguments |
//! | `fetch` | the text of an argument: what to fetch and how to show it |
//! | `registers` | what registers are called, and where programs find them |
//! | `layout` | the event's record, as readers are told |
//! | `compile` | from arguments to instructions |
//! | `stage` | what filters look at |
//! | [`function`] | calls of many functions, as ftrace has them |
//! | [`graph`] | the same with their returns, nested |
//! | [`kernel`] | kprobes: functions of the kernel |
//! | `missed` | returns that the kernel does not report |
//! | [`user`] | uprobes: functions of binaries |
//! | [`usdt`] | markers in binaries |
//! | [`trace_marker`] | what programs write to ftrace's file of this name |

mod compile;
mod fetch;
pub mod function;
pub mod graph;
pub mod kernel;
mod layout;
mod missed;
mod registers;
mod spec;
mod stage;
#[cfg(test)]
mod tests;
pub mod trace_marker;
pub mod usdt;
pub mod user;

use std::collections::HashSet;

use super::{
    hook::{Hook, HookProgram, NoSuchHook, OnRefusal},
    plan::{ProbeEvent, ProbePlan},
    probe_filter::{ProbeFilterError, ProbeRule},
};
use ::kernel::btf::{Btf, BtfError};
use ::kernel::kallsyms::KallsymsError;
use ::kernel::tracefs::TracefsError;
use ::kernel::version::KernelVersion;
use bpf::preemption::{Preemption, PreemptionGuard};
use elf::{Processes, Resolver};

pub use spec::{SpecError, SpecErrorKind, behind_path, quoted};

pub(crate) use spec::of_tracefs;

use compile::{CompileError, Program, compile};
use layout::Layout;
use missed::Depth;
use spec::NAME_MAX;
use stage::Stage;

/// How many events a pattern makes at most: each has a program and a link of its own.
pub const EVENTS_MAX: usize = 256;

/// Why a probe cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum DynamicError {
    /// Its text.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The kernel has no such probes.
    #[error(transparent)]
    Hook(#[from] NoSuchHook),
    /// The names of the kernel's functions.
    #[error("cannot look up functions of the kernel: {0}")]
    Symbols(#[from] KallsymsError),
    /// The binary.
    #[error(transparent)]
    Binary(#[from] elf::BinaryError),
    /// A function of the binary.
    #[error(transparent)]
    Lookup(#[from] elf::symbols::LookupError),
    /// A marker of the binary.
    #[error(transparent)]
    Marker(#[from] usdt::MarkerError),
    /// A file of tracefs.
    #[error(transparent)]
    Tracefs(#[from] TracefsError),
    /// There is no function of that name, or none that can be probed.
    #[error(transparent)]
    Function(#[from] kernel::FunctionError),
    /// Calls of functions cannot be recorded.
    #[error(transparent)]
    NotTraced(#[from] NotTraced),
    /// A pattern that matches more than there can be events.
    #[error(transparent)]
    TooMany(#[from] TooManyMatches),
    /// A pattern matches only functions that choose their implementation.
    #[error(
        "all that match ({0}) choose their implementation when a program starts (IFUNC): probe each by name"
    )]
    Indirect(String),
    /// Functions that a pattern matches choose their implementation.
    #[error("chosen when a program starts (IFUNC): probe each by name")]
    IndirectOfPattern,
    /// Returns of functions of Go.
    #[error(
        "{0}; in Go programs probes are put on return instructions, as the kernel's own return probes replace addresses on \
         their stacks, which ends every process that runs them (--force makes them nevertheless)"
    )]
    Go(#[from] elf::returns::ReturnsError),
    /// What functions of an old Go return.
    #[error(
        "$retval is not known: the program is of Go before 1.18, whose functions may return their results on the stack, \
         where $stackN takes them"
    )]
    GoResult,
    /// Writes to trace_marker cannot be recorded.
    #[error(transparent)]
    TraceMarker(#[from] trace_marker::TraceMarkerError),
    /// Its filter.
    #[error(transparent)]
    Filter(#[from] ProbeFilterError),
    /// The record would be too long, or the program.
    #[error("{0}")]
    TooMuch(#[from] CompileErrorText),
}

/// Why calls of functions cannot be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTraced {
    /// There is no way to attach to many functions.
    #[error(
        "this kernel cannot attach a program to many functions (it needs Linux 5.18 and CONFIG_FPROBE, which needs \
         CONFIG_DYNAMIC_FTRACE_WITH_REGS); --kprobe takes single functions, if the kernel has kprobes"
    )]
    Fprobes,
    /// There is no way to attach to both ends of them.
    #[error("this kernel has no kprobe sessions (they need Linux 6.10 and CONFIG_FPROBE)")]
    Sessions,
    /// A kprobe for each would take too long.
    #[error(
        "the graph has {0} functions, and this kernel attaches to one at a time (for many it needs Linux 5.18 and CONFIG_FPROBE); \
         choose at most 512 with --graph-filter, or only the roots with --max-graph-depth 1"
    )]
    TooMany(usize),
    /// ftrace's records of a graph, or the kernel's structures, have another layout.
    #[error("the record layout of ftrace:funcgraph_entry and _exit on this kernel is not supported")]
    GraphLayout,
    /// ftrace's records of calls have another layout.
    #[error("the record layout of ftrace:function on this kernel is not supported")]
    Layout,
}

/// A probe that is more than a program can hold.
#[derive(Debug, thiserror::Error)]
#[error("{probe}: {reason}")]
pub struct CompileErrorText {
    /// The probe's name.
    pub probe: String,
    /// What is too much.
    pub reason: String,
}

/// A pattern that matches more than there can be events.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pattern} matches {found} {what}, and a pattern makes at most {EVENTS_MAX} events; {advice}")]
pub struct TooManyMatches {
    /// The pattern.
    pub pattern: String,
    /// How many it matches.
    pub found: usize,
    /// Of what.
    pub what: &'static str,
    /// What to do.
    pub advice: &'static str,
}

/// What the text of a probe adds to a recording: one probe, or one for each function or marker that a pattern
/// matches.
#[derive(Debug, Default)]
pub struct Planned {
    /// The probes.
    pub probes: Vec<ProbePlan>,
    /// What a pattern matches and cannot be recorded, as `GROUP:NAME`, with the reasons.
    pub left_out: Vec<(String, DynamicError)>,
    /// What else the user should know.
    pub notes: Vec<String>,
}

impl Planned {
    /// All of it for the user.
    pub fn told(&self) -> Vec<String> {
        let left_out = self.left_out.iter().map(|(name, error)| format!("not recorded: {name}: {error}"));
        left_out.chain(self.notes.iter().cloned()).collect()
    }
}

impl From<ProbePlan> for Planned {
    fn from(probe: ProbePlan) -> Self {
        Self { probes: vec![probe], ..Self::default() }
    }
}

/// Whether the recording has an event of this system and name already.
pub type IsTaken<'a> = &'a dyn Fn(&str, &str) -> bool;

/// Names for the events of a pattern.
struct FreeNames<'a> {
    is_taken: IsTaken<'a>,
    given: HashSet<(String, String)>,
}

impl<'a> FreeNames<'a> {
    fn new(is_taken: IsTaken<'a>) -> Self {
        Self { is_taken, given: HashSet::new() }
    }

    /// `name`, or with the first number after it that no other event has, as `perf probe` numbers them:
    /// `name_1`.
    fn take(&mut self, group: &str, name: &str) -> String {
        let numbered = (1_u32..).map(|number| {
            let suffix = format!("_{number}");
            // Names made by `name_from` are ASCII.
            let kept = name.len().min(NAME_MAX - suffix.len());
            format!("{}{suffix}", name.get(..kept).unwrap_or_default())
        });
        let free = std::iter::once(name.to_owned()).chain(numbered).find(|name| {
            !(self.is_taken)(group, name) && self.given.insert((group.to_owned(), name.clone()))
        });
        free.unwrap_or_default()
    }
}

/// Whether an attach point is a pattern.
fn is_pattern(point: &str) -> bool {
    point.contains(['*', '?', '['])
}

/// What probes need to know of the running kernel.
#[derive(Debug)]
pub struct Environment {
    guard: Option<PreemptionGuard>,
    version: KernelVersion,
    /// Whether the kernel can attach a program to many of its functions.
    has_fprobes: bool,
    /// `task_struct.utask` and `uprobe_task.vaddr`, which lead to a uprobe's address.
    utask: Option<(u32, u32)>,
    /// Finds the files of programs and libraries.
    resolver: Resolver,
    /// Where the kernel has the number of a thread's calls whose returns it watches.
    depth: Option<Depth>,
}

/// From here on a program at the return of a user function can ask where the function is (`bpf_get_func_ip`).
const USER_FUNCTION_SINCE: KernelVersion = KernelVersion::new(6, 7, 0);
/// From here on a program at an offset in user space may wait for memory.
const SLEEPABLE_SINCE: KernelVersion = KernelVersion::new(6, 0, 0);
/// From here on one link ties a program to many offsets of a binary.
const UPROBE_MULTI_SINCE: KernelVersion = KernelVersion::new(6, 6, 0);
/// From here on one link ties a program to many functions of the kernel.
const KPROBE_MULTI_SINCE: KernelVersion = KernelVersion::new(5, 18, 0);

impl Environment {
    /// The running kernel's, whose type information is `btf`, where there is one; `processes` are recorded.
    pub fn of_kernel(btf: Result<&Btf, &BtfError>, processes: Processes) -> Self {
        let btf = btf.ok();
        let utask = btf.and_then(|btf| {
            let vaddr = btf.member_offset("uprobe_task.vaddr").ok()?;
            Some((btf.member_offset("task_struct.utask").ok()?, vaddr))
        });
        Self {
            guard: btf.and_then(PreemptionGuard::find),
            version: KernelVersion::running().unwrap_or(KernelVersion::new(5, 15, 0)),
            depth: btf.and_then(Depth::find),
            has_fprobes: btf.is_some_and(|btf| btf.has_function("register_fprobe_ips")),
            utask,
            resolver: Resolver::new(processes),
        }
    }

    /// How a program at such an attach point finds the address of its function.
    fn function_address(&self, hook: &Hook) -> compile::FunctionAddress {
        match (hook, self.utask) {
            (Hook::User { returns: false, .. } | Hook::UserOffsets { returns: false, .. }, _) => {
                compile::FunctionAddress::BeforeCookie
            }
            (Hook::User { .. }, Some((utask, vaddr))) if self.version < USER_FUNCTION_SINCE => {
                compile::FunctionAddress::OfTask { utask, vaddr }
            }
            _ => compile::FunctionAddress::Helper,
        }
    }

    /// A program that records the event of `layout` at `hooks`, which are of one kind, if its filter takes
    /// it.
    pub fn program(
        &self,
        layout: &Layout,
        rule: &ProbeRule<'_>,
        arguments: &[fetch::Argument],
        hooks: Vec<Hook>,
    ) -> Result<HookProgram, DynamicError> {
        let preemptible = hooks.first().is_some_and(Hook::is_preemptible);
        let preemption = Preemption::at(preemptible, self.guard);
        let stage = Stage::new(layout, rule, preemption == Preemption::On)?;
        let failed = |error: CompileError| CompileErrorText {
            probe: format!("{}:{}", layout.group, layout.name),
            reason: error.to_string(),
        };
        let user = matches!(hooks.first(), Some(Hook::User { .. } | Hook::UserOffsets { .. }));
        let sleepable = user
            && self.version >= SLEEPABLE_SINCE
            // Programs that may wait cannot have maps of counters (`check_map_prog_compatibility`,
            // kernel/bpf/verifier.c).
            && !layout.contexts.has_counters()
            && arguments.iter().any(|argument| matches!(argument.fetch, fetch::Fetch::Memory { .. }));
        let program = Program {
            layout,
            arguments,
            preemption,
            user,
            touch: sleepable,
            address: match hooks.first() {
                // arch/x86/kernel/kprobes/core.c
                Some(Hook::Kernel { .. }) => compile::ProbeAddress::BehindBreakpoint,
                Some(Hook::KernelFunctions { .. }) => compile::ProbeAddress::Function,
                _ => compile::ProbeAddress::Instruction,
            },
            function: hooks
                .first()
                .map_or(compile::FunctionAddress::Helper, |hook| self.function_address(hook)),
            stage: stage.as_ref(),
        };
        let body = compile(&program).map_err(failed)?;
        let on_refusal = OnRefusal::of_attach_points(hooks.len());
        Ok(HookProgram { name: layout.name.clone(), body, hooks, preemption, sleepable, on_refusal })
    }
}

/// A probe of one event.
fn plan(layout: &Layout, programs: Vec<HookProgram>) -> ProbePlan {
    ProbePlan { events: vec![ProbeEvent::Own(layout.recorded_shape())], programs, slot_flags: 0 }
}
